"""SEG, TRA and DET against the Cell Tracking Challenge's own programs: values, and every error they list."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray

from evaluators.metrics.tracking import TrackingScore, score_tracking

SHARED = Path(__file__).resolve().parents[4] / "shared"
ORACLE = SHARED / "oracle" / "ctc"
REAL = SHARED / "real" / "ctc" / "simplus_01_f09-20"
HELA = SHARED / "real" / "ctc" / "traccuracy_hela01_res" / "01_RES"

LOGGED = {
    "Splitting Operations": "split_nodes",
    "False Negative Vertices": "missed_nodes",
    "False Positive Vertices": "false_nodes",
    "Redundant Edges To Be Deleted": "redundant_edges",
    "Edges To Be Added": "missing_edges",
    "Edges with Wrong Semantics": "wrong_edges",
}


def cases(folder: Path, name: str) -> list[str]:
    values = folder / name
    return sorted(json.loads(values.read_text())) if values.is_file() else []


def read_tracks(path: Path) -> NDArray[np.int64]:
    return np.loadtxt(path, dtype=np.int64, ndmin=2)


def score_folders(truth: Path, result: Path) -> TrackingScore:
    def frames() -> Iterator[tuple[int, NDArray[np.uint16], NDArray[np.uint16], NDArray[np.uint16] | None]]:
        for path in sorted((truth / "TRA").glob("man_track*.tif")):
            digits = path.stem.removeprefix("man_track")
            annotated = truth / "SEG" / f"man_seg{digits}.tif"
            segmentation = tifffile.imread(annotated) if annotated.is_file() else None
            yield int(digits), tifffile.imread(path), tifffile.imread(result / f"mask{digits}.tif"), segmentation

    return score_tracking(frames(), read_tracks(truth / "TRA" / "man_track.txt"), read_tracks(result / "res_track.txt"))


def read_log(path: Path) -> dict[str, list[tuple[int, ...]]]:
    listed: dict[str, list[tuple[int, ...]]] = {}
    errors: list[tuple[int, ...]] = []
    for line in path.read_text().splitlines():
        if title := re.match(r"-+([A-Z][A-Za-z ]+?) \(Penalty", line):
            errors = listed.setdefault(LOGGED[title[1]], [])
        elif numbers := re.findall(r"abel=(\d+)|T=(\d+)", line):
            errors.append(tuple(int(label or frame) for label, frame in numbers))
    return {name: sorted(rows) for name, rows in listed.items()}


def test_oracle_is_complete() -> None:
    if not ORACLE.is_dir():
        pytest.skip(f"official values are not at {ORACLE}")
    assert len(cases(ORACLE, "expected.json")) >= 16
    assert len(cases(REAL, "official.json")) >= 7


@pytest.mark.parametrize("case", cases(ORACLE, "expected.json"))
def test_official_values_and_error_lists(case: str) -> None:
    expected = json.loads((ORACLE / "expected.json").read_text())[case]
    score = score_folders(ORACLE / case / "01_GT", ORACLE / case / "01_RES")
    assert {"SEG": score.seg, "TRA": score.tra, "DET": score.det} == pytest.approx(expected, abs=1e-6)
    log = ORACLE / case / "01_RES" / "TRA_log.txt"
    if log.is_file():
        found = {name: sorted(map(tuple, getattr(score.errors, name).tolist())) for name in LOGGED.values()}
        assert found == read_log(log)


def test_official_seg_of_each_object() -> None:
    """The overlap rule and the Jaccard index object by object, with merged and split ones."""
    folder = ORACLE / "small_mix"
    if not folder.is_dir():
        pytest.skip(f"official values are not at {ORACLE}")
    logged = [float(value) for value in re.findall(r"J=([\d.]+)", (folder / "01_RES" / "SEG_log.txt").read_text())]
    score = score_folders(folder / "01_GT", folder / "01_RES")
    assert score.seg_objects == len(logged)
    assert score.seg == pytest.approx(np.mean(logged), abs=1e-6)


@pytest.mark.parametrize("case", cases(REAL, "official.json"))
def test_official_values_on_real_images(case: str) -> None:
    official = json.loads((REAL / "official.json").read_text())[case]
    peer = json.loads((REAL / "expected.json").read_text())[case.removeprefix("RES_")]["py-ctcmetrics 1.3.3"]
    score = score_folders(REAL / "01_GT", REAL / case)
    assert {"SEG": score.seg, "TRA": score.tra, "DET": score.det} == pytest.approx(official, abs=1e-6)
    # No official program prints these; a peer that agrees with them on the rest does.
    found = {"LNK": score.lnk, "AOGM": score.aogm, "CT": score.complete_tracks.f1}
    found |= {f"BC({tolerance})": event.f1 for tolerance, event in score.divisions.items()}
    assert found == pytest.approx({name: peer[name] for name in found}, abs=1e-6)


def test_perfect_tracking_on_markers_smaller_than_the_cells_has_seg_below_one() -> None:
    """SEG is measured on the SEG masks, never on the TRA markers, which eroded masks still cover."""
    if not REAL.is_dir():
        pytest.skip(f"real sequence is not at {REAL}")
    score = score_folders(REAL / "01_GT", REAL / "RES_erode2")
    assert score.tra == 1.0
    assert score.seg == pytest.approx(0.851888, abs=1e-6)


def test_real_result_against_itself_scores_one() -> None:
    if not HELA.is_dir():
        pytest.skip(f"real result is not at {HELA}")
    tracks = read_tracks(HELA / "res_track.txt")
    images = ((int(path.stem[4:]), tifffile.imread(path)) for path in sorted(HELA.glob("mask*.tif")))
    score = score_tracking(((frame, image, image, image) for frame, image in images), tracks, tracks)
    assert (score.seg, score.tra, score.det, score.lnk) == (1.0, 1.0, 1.0, 1.0)
    assert (score.truth_nodes, len(tracks)) == (8600, 285)
    assert score.divisions[0].matched == score.divisions[0].truth == 106
    assert score.complete_tracks.matched == 285
    assert not score.truth_faults
