"""A campaign of 10,000 finished trials: collection, resume scan and report together, and what one process needs.

The trials themselves are apart: their records are written here, under the key that the session asks for.

    pytest tests/benchmarks/test_scale.py -s
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _session(folder: Path, repeats: int, *more: str) -> tuple[float, str, float]:
    """Return wall seconds, output and peak MB of one session on the demo task with containment off."""
    begun, used = time.perf_counter(), _processor_seconds()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "biabench_plugin.plugin", "-p", "no:cacheprovider", "-q"),
            *("tasks/cell_counting", "--agent=bluff", "--isolation=off", f"--repeats={repeats}", "--tb=no"),
            *(f"--campaign={folder / 'campaign'}", "--no-summary", *more),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"  {time.perf_counter() - begun:.1f} s, of which processor {_processor_seconds() - used:.1f} s")
    return time.perf_counter() - begun, done.stdout + done.stderr, peak


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _copy_first(campaign: Path, repeats: int) -> None:
    """Write records of further repeats like the first one's."""
    first = campaign / "runs" / "cell_counting" / "bluff+brief" / "r1"
    record = json.loads((first / "attempt-1" / "record.json").read_text())
    current = (first / "current").read_text()
    for repeat in range(2, repeats + 1):
        attempt = first.parent / f"r{repeat}" / "attempt-1"
        attempt.mkdir(parents=True)
        record |= {
            "repeat": repeat,
            "trial": re.sub(r"r1\]$", f"r{repeat}]", record["trial"]),
            "run_folder": f"runs/cell_counting/bluff+brief/r{repeat}/attempt-1",
        }
        (attempt / "record.json").write_text(json.dumps(record))
        (attempt.parent / "current").write_text(current)


@pytest.mark.parametrize("trials", [1_000, 10_000])
def test_campaign_of_finished_trials(tmp_path: Path, trials: int) -> None:
    _session(tmp_path, 1)
    _copy_first(tmp_path / "campaign", trials)
    seconds, output, peak = _session(tmp_path, trials)
    assert f"{trials} failed" in output, output[-2000:]
    more, output, _ = _session(tmp_path, trials + 20)  # the cost of trials that run, in a campaign of this size
    assert f"{trials + 20} failed" in output, output[-2000:]
    print(
        f"\n{trials} finished trials: collection, resume scan, report {seconds:.1f} s, peak {peak:.0f} MB; "
        f"each of 20 more trials {(more - seconds) / 20:.3f} s"
    )
