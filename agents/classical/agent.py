"""The agent that a careful bioimage analyst would script: one pipeline per task, chosen by the required files."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import ClassVar

from agents.base import Agent, Bind, Evidence, Launch, Session

_HERE = Path(__file__).resolve().parent
_INSIDE = "/opt/classical"  # tells neither task nor study nor where the repository lies


class Classical(Agent):
    """Runs :mod:`agents.classical.run` on this interpreter, in its own process."""

    name: ClassVar[str] = "classical"
    description: ClassVar[str] = "scikit-image and SciPy pipelines, scripted; needs no model, key or network"

    def fingerprint(self) -> str:
        """Return a digest of every source file of the pipelines."""
        digest = hashlib.sha256()
        for path in sorted(_HERE.glob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        return digest.hexdigest()[:16]

    def launch(self, session: Session) -> Launch:
        """Start ``run.py``: from its neutral place inside containment, from the repository without it."""
        contained = session.input_dir == "/input"
        folder = _INSIDE if contained else str(_HERE)
        threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
        return Launch(
            argv=(sys.executable, "-I", "-B", f"{folder}/run.py"),
            environment={**dict.fromkeys(threads, "1"), "MPLBACKEND": "Agg"},
            binds=(Bind(_HERE, _INSIDE),) if contained else (),
            python_prefix=True,
        )

    def read(self, stdout: Path, stderr: Path, output_dir: Path) -> Evidence:
        """Return the last line that the run printed as its closing message."""
        try:
            lines = stdout.read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            return Evidence()
        said = [line.strip() for line in lines if line.strip()]
        return Evidence(final_message=said[-1] if said else None)
