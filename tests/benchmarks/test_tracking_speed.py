"""SEG, TRA and the rest on a sequence as large as that of the bacteria task: 800 frames, 174,000 cells, one core."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def _python(*arguments: str | Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def sequence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("colony")
    _python(HERE / "colony_sequence.py", folder)
    return folder


def test_scoring_an_800_frame_sequence(sequence: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decode = json.loads(_python(HERE / "measure_tracking.py", sequence, "decode"))
    score = json.loads(_python(HERE / "measure_tracking.py", sequence, "score"))
    with capsys.disabled():
        print(
            f"\n800 frames of 938 x 1094, {score['cells']} cell instances, one core:"
            f"\n  decode and score {score['seconds']:6.2f} s, peak {score['peak_mb']:.0f} MB"
            f"\n  decode only      {decode['seconds']:6.2f} s, peak {decode['peak_mb']:.0f} MB"
            f"\n  ratio            {score['seconds'] / decode['seconds']:6.2f}"
            f"\n  SEG {score['seg']:.4f}  TRA {score['tra']:.4f}  LNK {score['lnk']:.4f}"
            f"  division F1 {score['division_f1']:.4f}  complete tracks {score['complete_tracks']:.4f}"
        )
    # What was measured is a real comparison: a good result with the errors that were put in.
    assert score["cells"] == 174_312
    assert 0.7 < score["seg"] < 0.95
    assert 0.9 < score["tra"] < 0.995
    assert 0.2 < score["complete_tracks"] < 0.9
