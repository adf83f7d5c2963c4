"""What a session costs besides the agents: collecting a large campaign, and one trial of an agent that does nothing.

Run with ``pytest tests/benchmarks -s``; figures are printed, nothing is asserted about time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
TASKS, CONFIGURATIONS, REPEATS = 16, 13, 3


def run(folder: Path, *arguments: str) -> tuple[float, str]:
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "biabench_plugin.plugin", "-q", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    return time.perf_counter() - begun, done.stdout + done.stderr


def test_collecting_a_full_campaign(tmp_path: Path) -> None:
    source = ROOT / "tasks" / "cell_counting"
    there = len(list((ROOT / "tasks").glob("*/task.yaml")))
    for number in range(TASKS - there):
        folder = tmp_path / "more" / f"copy_{number}"
        folder.mkdir(parents=True)
        for path in source.glob("*.*"):
            text = path.read_text(encoding="utf-8").replace("slug: cell_counting", f"slug: {folder.name}")
            (folder / path.name).write_text(text, encoding="utf-8")
    (tmp_path / "more").mkdir(exist_ok=True)
    rows = [{"agent": "empty", "label": f"configuration-{number}"} for number in range(CONFIGURATIONS)]
    (tmp_path / "rows.yaml").write_text(yaml.safe_dump(rows))
    seconds, output = run(
        tmp_path, "--config=rows.yaml", f"--repeats={REPEATS}", "--collect-only", "--tasks=more", "--campaign=c"
    )
    assert f"{TASKS * CONFIGURATIONS * REPEATS} tests collected" in output, output[-2000:]
    nothing, _ = run(tmp_path, "--version")
    print(f"\ncollecting {TASKS * CONFIGURATIONS * REPEATS} items: {seconds:.2f} s (pytest --version: {nothing:.2f} s)")


def test_overhead_of_a_trial(tmp_path: Path) -> None:
    arguments = ("--agent=empty", "-k", "counting", "--isolation=required")
    run(tmp_path, *arguments, "--campaign=warm")  # builds demo data, asks what the environment holds
    alone, _ = run(tmp_path, *arguments, "--campaign=one", "--repeats=1")
    many, output = run(tmp_path, *arguments, "--campaign=many", "--repeats=41")
    assert "41 failed" in output, output[-2000:]
    record = json.loads(next((tmp_path / "many").rglob("r41/attempt-1/record.json")).read_text())
    print(
        f"\none more trial of an agent that does nothing: {(many - alone) / 40:.3f} s "
        f"(agent {record['wall_seconds']:.3f} s, scoring {record['evaluation_seconds']:.3f} s); first one {alone:.2f} s"
    )
