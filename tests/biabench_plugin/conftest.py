"""Run pytest as a user does: a process of its own, in an empty folder, with demo data cached once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from agents.base import Usage
from biabench_plugin.endstate import EndState
from biabench_plugin.records import DatasetIdentity, Provenance, TrialRecord
from evaluators.model import OutcomeScore

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Session:
    """A finished pytest process and what it left."""

    code: int
    out: str
    campaign: Path

    def properties(self) -> dict[str, dict[str, str]]:
        """JUnit user properties per item name."""
        root = ElementTree.parse(self.campaign / "junit.xml").getroot()
        return {
            f"{case.get('classname')}::{case.get('name')}": {
                str(node.get("name")).removeprefix("biabench."): str(node.get("value"))
                for node in case.iter("property")
            }
            for case in root.iter("testcase")
        }


@pytest.fixture(scope="session")
def demo_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the cache in which all tests of a session find demo data, built once."""
    return Path(os.environ.get("BIABENCH_CACHE") or tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def run_pytest(demo_cache: Path) -> Callable[..., Session]:
    """Return a function that runs ``pytest ARGS`` in ``cwd``."""

    def run(*args: str, cwd: Path, campaign: Path | None = None, environment: dict[str, str] | None = None) -> Session:
        folder = campaign or cwd / "campaign"
        if any(argument.startswith(("--agent=", "--agent", "--config")) for argument in args):
            args = (*args, f"--campaign={folder}")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "biabench_plugin.plugin", "-p", "no:cacheprovider", *args],
            cwd=cwd,
            env={
                **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
                "PYTHONPATH": str(ROOT),
                "BIABENCH_CACHE": str(demo_cache),
                "COLUMNS": "200",
                **(environment or {}),
            },
            capture_output=True,
            text=True,
            timeout=600,
        )
        return Session(done.returncode, done.stdout + done.stderr, folder)

    return run


@pytest.fixture
def make_task(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a small counting task into a folder of tasks of its own."""

    def make(slug: str = "tiny", **changes: str) -> Path:
        text = (ROOT / "tasks" / "cell_counting" / "task.yaml").read_text(encoding="utf-8")
        text = text.replace("slug: cell_counting", f"slug: {slug}")
        text = re.sub(r"(?ms)^data:\n.*?(?=^[a-z])", "", text)  # its demo is another one
        for old, new in changes.items():
            assert old in text, old
            text = text.replace(old, new)
        folder = tmp_path / "tasks_of_mine" / slug
        folder.mkdir(parents=True)
        (folder / "task.yaml").write_text(text, encoding="utf-8")
        for level in ("brief", "detailed"):
            (folder / f"{level}.md").write_text("Please count the cells in every image.\n", encoding="utf-8")
        (folder / "demo.py").write_text(_DEMO, encoding="utf-8")
        return folder.parent

    return make


@pytest.fixture
def make_record() -> Callable[..., TrialRecord]:
    def make(**changes: Any) -> TrialRecord:
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

    return make


_DEMO = '''"""Two images, three cells and none."""

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
