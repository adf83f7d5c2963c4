"""Decode or score a sequence on one core and print what it took: ``measure_tracking.py FOLDER decode|score``."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray

from evaluators.metrics.tracking import score_tracking


def pages(path: Path) -> Iterator[NDArray[np.uint16]]:
    with tifffile.TiffFile(path) as file:
        for page in file.pages:
            yield page.asarray(maxworkers=1)


def main(folder: Path, task: str) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    start = time.perf_counter()
    both = zip(pages(folder / "truth.tif"), pages(folder / "result.tif"), strict=True)
    report: dict[str, float] = {}
    if task == "decode":
        report["frames"] = sum(1 for _ in both)
    else:
        tracks = [np.loadtxt(folder / name, dtype=np.int64, ndmin=2) for name in ("man_track.txt", "res_track.txt")]
        score = score_tracking(((frame, truth, result, truth) for frame, (truth, result) in enumerate(both)), *tracks)
        assert score.seg is not None
        report |= {"seg": score.seg, "tra": score.tra, "lnk": score.lnk, "division_f1": score.divisions[0].f1}
        report |= {"cells": score.truth_nodes, "complete_tracks": score.complete_tracks.f1}
    report["seconds"] = time.perf_counter() - start
    report["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
