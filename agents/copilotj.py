"""CopilotJ: its bridge, Fiji and leader agent behind one driver, on a private display and port."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import ClassVar

from agents.base import Bind, Launch, Session
from agents.driven import Driven, agents_home
from agents.endpoints import Protocol

BOOT_SECONDS = 180
_FIJI = ("fiji-linux-x64", "ImageJ-linux64", "fiji-linux64", "fiji")


class CopilotJ(Driven):
    """A checkout of CopilotJ with its ``.venv`` (``uv sync``), and a Fiji that holds its bridge plugin."""

    name: ClassVar[str] = "copilotj"
    description: ClassVar[str] = "CopilotJ with Fiji on a private display, behind a driver"
    protocol: ClassVar[Protocol | None] = "chat"
    driver: ClassVar[str] = "run_copilotj.py"
    usage_source: ClassVar[str] = "copilotj: lines of its log"

    @property
    def checkout(self) -> Path:
        """``BIABENCH_COPILOTJ_DIR``, or ``copilotj`` in the agents' folder."""
        named = os.environ.get("BIABENCH_COPILOTJ_DIR")
        return Path(named).expanduser().absolute() if named else agents_home() / "copilotj"

    @property
    def fiji(self) -> Path:
        """The folder of Fiji: ``BIABENCH_FIJI_DIR``, or ``Fiji`` in the agents' folder."""
        named = os.environ.get("BIABENCH_FIJI_DIR")
        return Path(named).expanduser().absolute() if named else agents_home() / "Fiji"

    @property
    def fiji_options(self) -> str:
        """Further options of Fiji; ``{port}`` in them is how its plugin is told the bridge's port."""
        return os.environ.get("BIABENCH_COPILOTJ_FIJI_OPTIONS") or ""

    def installed(self) -> str | None:
        """Return which commit of CopilotJ lies in its checkout, or that it has none."""
        if not (self.checkout / ".venv" / "bin" / "python").exists():
            return None
        return _described(self.checkout)

    def unavailable(self) -> str | None:
        if shutil.which("Xvfb") is None:
            return "Xvfb is missing: apt-get install xvfb"
        if not (self.checkout / ".venv" / "bin" / "python").exists():
            return (
                f"CopilotJ is not installed in {self.checkout}: clone it there and run `uv sync` in it "
                "(BIABENCH_COPILOTJ_DIR names another folder)"
            )
        if self._launcher() is None:
            return (
                f"no Fiji in {self.fiji}: unpack Fiji with the CopilotJ bridge there "
                "(BIABENCH_FIJI_DIR names another folder)"
            )
        if not any(self.fiji.glob("plugins/**/*opilot*.jar")) and not any(self.fiji.glob("jars/*opilot*.jar")):
            return (
                f"the Fiji in {self.fiji} has no CopilotJ bridge: build its plugin with Maven and put it into plugins/"
            )
        return None

    def _launcher(self) -> Path | None:
        return next((self.fiji / name for name in _FIJI if (self.fiji / name).is_file()), None)

    def fingerprint(self) -> str:
        return f"{super().fingerprint()}:{self.installed()}:{self.fiji_options}"

    def launch(self, session: Session) -> Launch:
        python = self.checkout / ".venv" / "bin" / "python"
        driver, binds = self.driver_path(session)
        base = python.resolve().parent.parent
        launcher = self._launcher()
        if launcher is None:
            raise ValueError(f"no Fiji in {self.fiji}")
        return Launch(
            argv=(str(python), "-B", driver),
            stdin=self.job(
                session,
                python=str(python),
                checkout=str(self.checkout),
                fiji=str(launcher),
                fiji_options=self.fiji_options,
                boot_seconds=BOOT_SECONDS,
            ),
            binds=(*binds, *(Bind(folder, str(folder)) for folder in (self.checkout, self.fiji, base))),
        )


@cache
def _described(checkout: Path) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), "describe", "--tags", "--always", "--dirty"],
            capture_output=True,
            text=True,
            timeout=30,
        )
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"
