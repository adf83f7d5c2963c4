"""Scoring volumes and mosaics of published size: label stacks, vessel masks, a four-channel mosaic."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def measured(kind: str, folder: Path, step: str, cache: Path) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "BIABENCH_CACHE": str(cache)}
    command = [sys.executable, str(HERE / "volume_submissions.py"), kind, str(folder), step]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout)) if done.stdout else {}


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("cells", "3 stacks of 150 x 1000 x 1300 labels"),
        ("vessels", "6 masks of 501 x 500 x 500"),
        ("mosaic", "3 planes, 4 channels of 7476 x 7476"),
    ],
)
def test_scoring_at_published_size(kind: str, size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, cache = tmp_path / kind, tmp_path / "cache"
    measured(kind, folder, "make", cache)
    read = measured(kind, folder, "read", cache)
    first = measured(kind, folder, "score", cache)
    again = measured(kind, folder, "score", cache)
    with capsys.disabled():
        print(
            f"\n{kind}: {size}"
            f"\n  read only    {read['seconds']:6.1f} s, peak {read['peak_mb']:.0f} MB"
            f"\n  first score  {first['seconds']:6.1f} s, peak {first['peak_mb']:.0f} MB"
            f"\n  score again  {again['seconds']:6.1f} s, peak {again['peak_mb']:.0f} MB"
            f"\n  outcome {first['outcome']:.4f}  strict {first['strict']:.4f}"
        )
    shutil.rmtree(folder)
    # A real comparison was measured: a good submission with the error that was put in.
    assert not first["problems"]
    assert (first["outcome"], first["strict"]) == (again["outcome"], again["strict"])
    assert first["strict"] > 0.5
    assert 0.5 < first["outcome"] <= 1.0
