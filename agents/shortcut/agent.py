"""An agent that tries a task's cheap tricks: what a score without image analysis is worth."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import ClassVar

from agents.base import Agent, Launch, Session

_HERE = Path(__file__).resolve().parent


class Shortcut(Agent):
    """Hands in a submission that does no analysis or ignores the biology.

    The model names the trick (``--agent=shortcut=four_rows``); without one it is the task's strongest. Some tricks need
    perfect masks or real values to start from and take them from truth, so it runs outside containment, and records say
    so.
    """

    name: ClassVar[str] = "shortcut"
    description: ClassVar[str] = "hands in a cheap trick; shows what the published score gives without an analysis"
    contained: ClassVar[bool] = False
    reads_truth: ClassVar[bool] = True
    synthetic: ClassVar[bool] = True

    def fingerprint(self) -> str:
        """Digest of all tricks."""
        digest = hashlib.sha256(self.version.encode())
        for path in sorted(_HERE.glob("*.py")):
            digest.update(path.read_bytes())
        return digest.hexdigest()

    def launch(self, session: Session) -> Launch:
        if session.task_dir is None or session.truth_dir is None:
            raise ValueError("shortcut needs to know the task, and was not told")
        return Launch(
            (
                sys.executable,
                "-m",
                "agents.shortcut.run",
                *("--task", session.task_dir.name),
                *("--truth", str(session.truth_dir)),
                *("--input", session.input_dir),
                *("--output", session.output_dir),
                *(("--name", session.model) if session.model else ()),
            ),
            environment={"PYTHONPATH": str(_HERE.parent.parent), "PYTHONDONTWRITEBYTECODE": "1"},
        )
