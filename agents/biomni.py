"""Biomni, in an environment of its own: ``A1`` behind a driver process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from agents.base import Bind, Launch, Session
from agents.driven import Driven, agents_home, contained
from agents.endpoints import Protocol

PINNED = "0.0.8"
REQUIREMENTS = Path(__file__).resolve().parent / "requirements" / "biomni.txt"
STEP_SECONDS = 600  # Biomni's own default for one block of code
_INSIDE = "/opt/biomni"


class Biomni(Driven):
    """The released Biomni; its environment is made by ``biabench setup biomni``."""

    name: ClassVar[str] = "biomni"
    version: ClassVar[str] = f"1+biomni-{PINNED}"
    description: ClassVar[str] = "Biomni's A1, in its own environment behind a driver"
    protocol: ClassVar[Protocol | None] = "chat"
    driver: ClassVar[str] = "run_biomni.py"
    usage_source: ClassVar[str] = "biomni: each model call"

    @property
    def environment(self) -> Path:
        """The virtual environment: ``BIABENCH_BIOMNI_ENV``, or where setup puts it."""
        named = os.environ.get("BIABENCH_BIOMNI_ENV")
        return Path(named).expanduser().absolute() if named else agents_home() / "biomni"

    @property
    def step_seconds(self) -> int:
        """Time limit of one block of code, declared to Biomni."""
        return int(os.environ.get("BIABENCH_BIOMNI_STEP_SECONDS") or STEP_SECONDS)

    def installed(self) -> str | None:
        """Return the version of Biomni in its environment."""
        for found in sorted(self.environment.glob("lib/python3.*/site-packages/biomni-*.dist-info")):
            return found.name.removeprefix("biomni-").removesuffix(".dist-info")
        return None

    def unavailable(self) -> str | None:
        if self.installed() is None:
            return f"Biomni is not installed in {self.environment}: biabench setup biomni"
        if self.installed() != PINNED:
            return f"Biomni {self.installed()} is installed, {PINNED} is needed: biabench setup biomni"
        return None

    def fingerprint(self) -> str:
        return f"{super().fingerprint()}:{self.step_seconds}"

    def launch(self, session: Session) -> Launch:
        home = self.environment
        inside = _INSIDE if contained(session) else str(home)
        driver, binds = self.driver_path(session)
        base = (home / "bin" / "python").resolve().parent.parent
        return Launch(
            argv=(f"{inside}/bin/python", "-B", driver),
            stdin=self.job(session, step_seconds=self.step_seconds),
            binds=(*binds, Bind(home, inside), Bind(base, str(base))),
        )
