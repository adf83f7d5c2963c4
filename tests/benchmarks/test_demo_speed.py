"""How long demo data take to make and how large they are, and what the bounded child adds to a score.

Run with ``pytest tests/benchmarks/test_demo_speed.py -s``; figures are printed, nothing is asserted about time.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from biabench_plugin.datasets import build_demo, demo_folder
from biabench_plugin.taskspec import load_task, load_tasks
from evaluators import evaluate, evaluate_bounded, warm_up

ROOT = Path(__file__).resolve().parents[2]
TASKS = load_tasks(ROOT / "tasks")


@pytest.mark.parametrize("slug", TASKS)
def test_making_demo_data(slug: str, tmp_path: Path) -> None:
    begun, cpu = time.perf_counter(), time.process_time()
    build_demo(TASKS[slug], tmp_path, 0)
    wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    print(f"\n{slug}: {wall:.1f} s ({cpu:.1f} s CPU), {size / 1e6:.1f} MB")
    assert size > 0


def test_overhead_of_the_bounded_child(tmp_path: Path) -> None:
    task = load_task(ROOT / "tasks" / "cell_counting" / "task.yaml")
    data = demo_folder(task, 0)
    arguments = (task.outcome, task.deliverables, tmp_path, data / "evaluation", data / "input")
    warm_up()
    times = {evaluate: [], evaluate_bounded: []}  # type: ignore[var-annotated]
    for _ in range(10):
        for function, seconds in times.items():
            begun = time.perf_counter()
            assert function(*arguments).outcome == 0.0
            seconds.append(time.perf_counter() - begun)
    here, child = (min(seconds) for seconds in times.values())
    print(f"\nscoring here {here:.3f} s, in the bounded child {child:.3f} s")
