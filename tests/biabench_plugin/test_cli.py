"""The `biabench` command: contracts that scripts rely on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def biabench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "biabench_plugin.cli", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "160"},
        timeout=300,
    )


@pytest.fixture
def tiny(make_task: Callable[..., Path], tmp_path: Path) -> tuple[str, Path]:
    """A tiny task's folder of tasks, and its demo data."""
    root = str(make_task())
    done = biabench("demo", "tiny", str(tmp_path / "data"), "--seed", "0", "--tasks", root)
    assert done.returncode == 0, done.stderr
    return root, tmp_path / "data"


def test_tasks_prints_the_suite() -> None:
    plain, matrix = biabench("tasks"), biabench("tasks", "--matrix")
    assert plain.returncode == matrix.returncode == 0
    for path in (ROOT / "tasks").glob("*/task.yaml"):
        assert path.parent.name in plain.stdout
        assert path.parent.name in matrix.stdout
    assert "filament" in matrix.stdout
    assert "●" in matrix.stdout


def test_score_prints_one_json_object(tiny: tuple[str, Path], tmp_path: Path) -> None:
    root, data = tiny
    submission = tmp_path / "submission"
    submission.mkdir()
    (submission / "0.csv").write_bytes((data / "evaluation" / "0.csv").read_bytes())
    done = biabench("score", "tiny", str(submission), "--truth", str(data / "evaluation"), "--json", "--tasks", root)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["task"] == "tiny"
    assert found["outcome"] == 0.5
    assert found["status"] == "delivered"
    assert found["metrics"]["strict"] < 0.5
    assert any("1" in problem["where"] for problem in found["problems"])


def test_score_of_an_empty_folder_is_zero_and_exit_zero(tiny: tuple[str, Path], tmp_path: Path) -> None:
    root, data = tiny
    (tmp_path / "nothing").mkdir()
    arguments = ["score", "tiny", str(tmp_path / "nothing"), "--truth", str(data / "evaluation"), "--tasks", root]
    done = biabench(*arguments, "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert (found["outcome"], found["status"]) == (0.0, "no_deliverable")
    assert found["problems"]
    plain = biabench(*arguments)
    assert plain.returncode == 0
    assert "outcome 0.0000" in plain.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["score", "nothing", ".", "--truth", "."], "unknown task 'nothing'; tasks: "),
        (["score", "cell_counting", "/nowhere", "--truth", "."], "/nowhere: no such folder"),
        (["score", "cell_counting", ".", "--truth", "/nowhere"], "/nowhere: no such folder"),
        (["score", "cell_counting", "."], "Missing option '--truth'"),
        (["demo", "cell_counting", "/proc/x"], "/proc/x"),
        (["demo", "cell_counting", "x", "--seed", "-1"], "--seed"),
        (["report", "/nowhere"], "/nowhere: no such campaign"),
        (["tasks", "--tasks", "/nowhere"], "/nowhere: no such folder of tasks"),
        (["dance"], "dance"),
    ],
)
def test_misuse_exits_with_2_and_says_why(arguments: list[str], message: str) -> None:
    done = biabench(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_unreadable_truth_exits_with_3(tiny: tuple[str, Path], tmp_path: Path) -> None:
    root, data = tiny
    (data / "evaluation" / "0.csv").write_text("no,header\n", encoding="utf-8")
    done = biabench("score", "tiny", str(tmp_path), "--truth", str(data / "evaluation"), "--tasks", root)
    assert done.returncode == 3
    assert "0.csv" in done.stderr


def test_demo_never_overwrites(tiny: tuple[str, Path]) -> None:
    root, data = tiny
    done = biabench("demo", "tiny", str(data), "--tasks", root)
    assert done.returncode == 2
    assert "already holds" in done.stderr
