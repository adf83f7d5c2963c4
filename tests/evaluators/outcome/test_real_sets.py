"""Images that nobody here made: truth against itself, simple damage, and official scores where they exist.

The sets lie beside the checkout; the tests skip where they are absent.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from scipy import ndimage
from skimage.segmentation import expand_labels

from evaluators import Deliverable, OutcomeScore, OutcomeSpec, evaluate

Desk = Any
Write = Callable[..., Any]


def challenge_score(desk: Desk, result: Path, truth: Path) -> OutcomeScore:
    outcome: OutcomeSpec = desk.outcome
    deliverables: list[Deliverable] = desk.deliverables
    return evaluate(outcome, deliverables, result, truth, None)


def test_official_scores_of_the_challenge(tracking: Desk, challenge_cases: Path) -> None:
    """Every case, 2D and 3D, through the whole path: files, lineage, scores."""
    expected = json.loads((challenge_cases / "expected.json").read_text())
    assert len(expected) == 16
    for case, values in expected.items():
        metrics = challenge_score(tracking, challenge_cases / case / "01_RES", challenge_cases / case / "01_GT").metrics
        for name, value in values.items():
            assert metrics[name.lower()] == pytest.approx(value, abs=1e-5), (case, name)


def test_official_scores_of_a_simulated_sequence(tracking: Desk, real_sets: Path) -> None:
    folder = real_sets / "ctc" / "simplus_01_f09-20"
    official = json.loads((folder / "official.json").read_text())
    for case, values in official.items():
        score = challenge_score(tracking, folder / case, folder / "01_GT")
        for name, value in values.items():
            assert score.metrics[name.lower()] == pytest.approx(value, abs=1e-5), (case, name)
        if case == "RES_nodiv":
            assert score.strict == 0.0
        elif case in ("RES_perfect", "RES_erode2", "RES_swap"):  # mild
            assert score.strict is not None
            assert score.strict >= 0.6


def test_replay_of_a_challenge_folder(tracking: Desk, real_sets: Path, write: Write) -> None:
    folder = real_sets / "ctc" / "simplus_01_f09-20" / "01_GT"
    shutil.rmtree(tracking.truth)
    shutil.copytree(folder, tracking.truth)
    tracking.replay()
    score = tracking.score()
    assert score.outcome >= 0.999
    assert score.strict is not None
    assert score.strict >= 0.999


def test_a_tracker_result_of_real_scale_against_itself(tracking: Desk, real_sets: Path) -> None:
    source = real_sets / "ctc" / "traccuracy_hela01_res" / "01_RES"
    shutil.rmtree(tracking.truth)
    for path in sorted(source.glob("mask*.tif")):
        for room, prefix in (("TRA", "man_track"), ("SEG", "man_seg")):
            (tracking.truth / room).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, tracking.truth / room / path.name.replace("mask", prefix))
    shutil.copyfile(source / "res_track.txt", tracking.truth / "TRA" / "man_track.txt")
    score = challenge_score(tracking, source, tracking.truth)
    assert (score.outcome, score.strict) == (1.0, 1.0)
    assert score.metrics["truth_divisions"] == 106


def damaged(labels: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Return damage from mild to total."""
    ids = np.unique(labels[labels > 0])
    return {
        "shift1": np.roll(labels, 1, axis=1),
        "dropped10": np.where(np.isin(labels, ids[::10]), 0, labels),
        "dropped50": np.where(np.isin(labels, ids[::2]), 0, labels),
        "binary": (labels > 0).astype(labels.dtype),
        "full": np.ones_like(labels),
    }


def images_2d(real_sets: Path) -> dict[str, np.ndarray[Any, Any]]:
    folder = real_sets / "he_nuclei" / "dsb2018_he" / "labels"
    return {path.stem: tifffile.imread(path) for path in sorted(folder.glob("*.tif"))} | {
        "dsb2d": tifffile.imread(real_sets / "nuc2d" / "stardist_dsb2d" / "mask2d.tif")
    }


def test_real_nuclei_replay_and_damage(histology: Desk, real_sets: Path, write: Write) -> None:
    shutil.rmtree(histology.truth)
    shutil.rmtree(histology.input)
    histology.input.mkdir()
    images = images_2d(real_sets)
    assert len(images) == 5
    for stem, labels in images.items():
        write(histology.truth / f"{stem}.tif", labels)
        write(histology.input / f"{stem}.tif", np.zeros(labels.shape, np.uint8))
    histology.replay()
    score = histology.score()
    assert (score.outcome, score.strict) == (1.0, 1.0)
    assert score.metrics["truth_objects"] == 125 + 13 + 23 + 18 + 34
    found: dict[str, OutcomeScore] = {}
    for name in damaged(next(iter(images.values()))):
        for stem, labels in images.items():
            histology.write(f"{stem}.tif", damaged(labels)[name])
        found[name] = histology.score()
    strict = {name: score.strict for name, score in found.items()}
    assert strict["shift1"] >= 0.6
    assert strict["dropped10"] >= 0.6
    assert strict["dropped50"] < strict["dropped10"]
    assert strict["binary"] <= 0.2
    assert strict["full"] <= 0.05
    assert found["binary"].outcome == 1.0


def test_real_nuclei_with_grown_cells(hela: Desk, real_sets: Path, write: Write) -> None:
    """Real nuclei with cells grown around them stand for the two linked compartments."""
    shutil.rmtree(hela.truth)
    shutil.rmtree(hela.input)
    nuclei = tifffile.imread(real_sets / "nuc2d" / "stardist_dsb2d" / "mask2d.tif")
    write(hela.input / "7.tif", np.zeros(nuclei.shape, np.uint8))
    write(hela.truth / "nuclei_masks" / "7.tif", nuclei)
    write(hela.truth / "cytoplasm_masks" / "7.tif", expand_labels(nuclei, 12))
    hela.replay()
    assert hela.score().strict == 1.0
    hela.write("nuclei_masks/7.tif", ndimage.grey_erosion(nuclei, footprint=np.ones((3, 3), bool)))
    eroded = hela.score()
    assert eroded.strict is not None
    assert 0.6 <= eroded.strict < 1.0
    hela.write("cytoplasm_masks/7.tif", (nuclei > 0).astype(np.uint16))
    assert hela.score().strict == 0.0


def test_public_dot_annotations(counting: Desk, real_sets: Path, write: Write) -> None:
    folder = real_sets / "counting" / "vgg_cells_synthetic"
    for room in (counting.truth, counting.input):
        shutil.rmtree(room)
        room.mkdir()
    counts = {"001": 135, "002": 233, "003": 82, "100": 207}
    points = {}
    for stem, count in counts.items():
        table = (folder / f"{stem}_centroids.csv").read_text().splitlines()
        columns = [name.strip().lower() for name in table[0].split(",")]
        values = np.array([[float(cell) for cell in line.split(",")] for line in table[1:]])
        points[stem] = values[:, [columns.index("x"), columns.index("y")]]
        assert len(points[stem]) == count
        shutil.copyfile(folder / f"{stem}cell.png", counting.input / f"{stem}.png")
        write(counting.truth / f"{stem}.csv", "X,Y\n" + "".join(f"{x},{y}\n" for x, y in points[stem]))
    counting.replay()
    score = counting.score()
    assert (score.outcome, score.strict) == (1.0, 1.0)
    jitter = np.random.default_rng(0)
    counting.tables({stem: values + jitter.normal(0, 1.5, values.shape) for stem, values in points.items()})
    noisy = counting.score()
    assert noisy.strict is not None
    assert noisy.strict >= 0.6
    counting.tables({stem: jitter.random(values.shape) * 256 for stem, values in points.items()})
    guessed = counting.score()
    assert guessed.outcome == 1.0
    assert guessed.strict is not None
    assert guessed.strict <= 0.2
