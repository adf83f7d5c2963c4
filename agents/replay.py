"""An agent that hands in the truth, through the same files that every agent must write: the top of the scale."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

from agents.base import Agent, Evidence, Launch, Session

UNUSABLE = "unusable reference data: "  # how evaluators.replay_main begins its complaint
_ROOT = Path(__file__).resolve().parent.parent


class Replay(Agent):
    """Builds the perfect submission from truth. It reads truth, so it runs outside containment, and records say so."""

    name: ClassVar[str] = "replay"
    description: ClassVar[str] = "hands in the truth in the required form; fixes the top of the outcome scale"
    contained: ClassVar[bool] = False
    reads_truth: ClassVar[bool] = True
    synthetic: ClassVar[bool] = True

    def launch(self, session: Session) -> Launch:
        if session.task_dir is None or session.truth_dir is None:
            raise ValueError("replay needs the task's truth, and there is none")
        return Launch(
            (
                sys.executable,
                "-m",
                "evaluators.replay_main",
                *("--task-dir", str(session.task_dir)),
                *("--truth", str(session.truth_dir)),
                *("--input", session.input_dir),
                *("--output", session.output_dir),
            ),
            environment={"PYTHONPATH": str(_ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        )

    def read(self, stdout: Path, stderr: Path, output_dir: Path) -> Evidence:
        """Blame nobody's agent where the reference data cannot be used: the program says so in a line of its own."""
        lines = stderr.read_text(encoding="utf-8", errors="replace").splitlines()
        unusable = [line for line in lines if line.startswith(UNUSABLE)]
        return Evidence(infrastructure=unusable[-1] if unusable else None)
