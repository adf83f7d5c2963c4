"""What tests of several rooms start from: a record of one attempt, and the demo of a task with three cells."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from agents.base import Usage
from biabench_plugin.endstate import EndState
from biabench_plugin.records import DatasetIdentity, Provenance, TrialRecord
from evaluators.model import OutcomeScore


def trial_record(**changes: Any) -> TrialRecord:
    """Return the record of a delivered trial of the agent ``empty``, with changes."""
    values: dict[str, Any] = {
        "trial": "tasks/tiny/task.yaml::empty[brief-r1]",
        "task": "tiny",
        "agent": "empty",
        "agent_version": "1",
        "configuration": "empty[brief]",
        "model": None,
        "instruction_level": "brief",
        "effort_requested": "medium",
        "effort_applied": "no control",
        "repeat": 1,
        "attempt": 1,
        "synthetic": True,
        "resume_key": "k",
        "dataset": DatasetIdentity(kind="demo", name="demo", revision="r", input_digest="a", truth_digest="b"),
        "instruction_digest": "c",
        "status": EndState.DELIVERED,
        "status_reason": "",
        "timed_out": False,
        "quota_exceeded": False,
        "infrastructure": None,
        "score": OutcomeScore(outcome=0.5, delivered=True, evaluator="e", evaluator_version="1"),
        "usage": Usage(),
        "final_message": None,
        "exit_code": 0,
        "signal": None,
        "survivors_killed": 0,
        "log_truncated": False,
        "input_changed": False,
        "budget_seconds": 10.0,
        "network": "open",
        "started": datetime(2026, 1, 1, tzinfo=UTC),
        "wall_seconds": 1.0,
        "evaluation_seconds": 0.1,
        "provenance": Provenance(
            biabench="0",
            commit=None,
            python="3",
            packages={},
            host="h",
            platform="p",
            cpus=1,
            gpu=[],
            isolation={"in_force": True},
        ),
        "run_folder": "runs/tiny/empty+brief/r1/attempt-1",
    }
    return TrialRecord(**(values | changes))


TINY_DEMO = '''"""Two images, three cells and none."""

import numpy as np
import tifffile


def make(destination, seed):
    for name in ("input", "evaluation"):
        (destination / name).mkdir(parents=True)
    points = [(10, 12), (30, 40), (50, 20)]
    image = np.full((64, 64), 10, np.uint8)
    for x, y in points:
        image[y - 2 : y + 3, x - 2 : x + 3] = 200
    tifffile.imwrite(destination / "input" / "0.tiff", image)
    tifffile.imwrite(destination / "input" / "1.tiff", np.full((64, 64), 10, np.uint8))
    rows = "".join(f"{x},{y}\\n" for x, y in points)
    (destination / "evaluation" / "0.csv").write_text("X,Y\\n" + rows)
    (destination / "evaluation" / "1.csv").write_text("X,Y\\n")
'''
