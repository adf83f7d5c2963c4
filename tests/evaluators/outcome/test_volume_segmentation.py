"""Instance segmentation of volumes: names of samples, labels that are none, a real pair with known scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray

from evaluators.evaluation import evaluate
from evaluators.model import Content, Deliverable, OutcomeScore, OutcomeSpec

REAL = Path(__file__).resolve().parents[3] / "../shared/real/seg3d"
OUTCOME = OutcomeSpec(
    kind="instance_segmentation",
    parameters={
        "compartments": {"cells": "segmentation_masks"},
        "truth_folders": {"cells": "."},
        "truth_name": "{}_seg",
        "boundary_px": None,
    },
)
DELIVERABLES = (
    Deliverable(
        id="segmentation_masks",
        patterns=("*_seg.tif*",),
        format="unsigned 16-bit 3D TIFF, instance labels",
        content=Content.LABEL_IMAGE,
        multiple=True,
        description="one label volume per stack",
    ),
)
SAMPLES = ("056F63395C", "2E0A94D71B", "B1C7403EF8")

Labels = NDArray[np.uint16]


def blocks(seed: int) -> Labels:
    """Thirty-six touching cells, and background around."""
    labels = np.zeros((8 + seed, 26, 26), np.uint16)
    y, x = np.indices((24, 24)) // 4
    labels[2:6, 1:25, 1:25] = 1 + 6 * y + x
    return labels


class Case:
    def __init__(self, base: Path) -> None:
        self.base, self.out = base, base / "out"
        for folder in ("input", "evaluation", "out"):
            (base / folder).mkdir()
        self.truth = {sample: blocks(index) for index, sample in enumerate(SAMPLES)}
        for sample, labels in self.truth.items():
            tifffile.imwrite(base / "input" / f"{sample}_8bit_lynEGFP.tif", np.zeros(labels.shape, np.uint8))
            tifffile.imwrite(base / "evaluation" / f"{sample}_8bit_lynEGFP_seg.tif", labels)

    def score(self, name: str, change: dict[str, NDArray[np.generic]] | None = None) -> OutcomeScore:
        for sample, labels in {**self.truth, **(change or {})}.items():
            path = self.out / name.format(sample)
            path.parent.mkdir(exist_ok=True)
            tifffile.imwrite(path, labels)
        return evaluate(OUTCOME, DELIVERABLES, self.out, self.base / "evaluation", self.base / "input")


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "{}_8bit_lynEGFP_seg.tif",
        "{}_8bit_lynEGFP_labels_seg.tiff",
        "{}_lynEGFP_20260101_seg.tif",  # a date is no sample
        "{}_seg.tif",
        "final/{}-run2_seg.tif",
    ],
)
def test_the_id_of_the_sample_decides(name: str, case: Case) -> None:
    result = case.score(name)
    assert (result.outcome, result.strict) == (1.0, 1.0)
    assert not result.problems


def test_a_name_with_two_samples_is_nobodys(case: Case) -> None:
    for sample in SAMPLES[1:]:
        tifffile.imwrite(case.out / f"{sample}_vs_{SAMPLES[0]}_seg.tif", case.truth[sample])
    result = evaluate(OUTCOME, DELIVERABLES, case.out, case.base / "evaluation", case.base / "input")
    assert (result.outcome, result.metrics["files_without_image"]) == (0.0, 2)


def test_two_versions_of_one_sample_are_ambiguous_only_if_they_differ(case: Case) -> None:
    case.score("{}_seg.tif")
    (case.out / "draft").mkdir()
    sample = SAMPLES[0]
    tifffile.imwrite(case.out / "draft" / f"{sample}_seg.tif", np.zeros_like(case.truth[sample]))
    result = evaluate(OUTCOME, DELIVERABLES, case.out, case.base / "evaluation", case.base / "input")
    assert result.outcome == 1.0  # the one at the top counts
    assert [problem.code for problem in result.problems] == ["duplicate_file"]


def test_one_label_for_all_cells_has_full_dice_and_no_quality(case: Case) -> None:
    result = case.score("{}_seg.tif", {sample: (labels > 0).astype(np.uint16) for sample, labels in case.truth.items()})
    assert (result.outcome, result.strict, result.metrics["ap_50"]) == (1.0, 0.0, 0.0)


def test_a_label_over_two_equal_cells_is_neither(case: Case) -> None:
    paired = {sample: ((labels + 1) // 2).astype(np.uint16) for sample, labels in case.truth.items()}
    result = case.score("{}_seg.tif", paired)
    assert result.strict == 0.0  # an IoU of exactly one half is no match


def test_gaps_between_cells_cost_dice_and_no_cell(case: Case) -> None:
    gaps = {}
    for sample, labels in case.truth.items():
        cut = labels.copy()
        cut[:, ::4, :] = 0
        gaps[sample] = cut
    result = case.score("{}_seg.tif", gaps)
    assert result.outcome < 0.9
    assert result.metrics["ap_50"] == 1.0


@pytest.mark.parametrize(
    ("values", "code"),
    [
        (lambda labels: labels.astype(np.int32) - (labels > 0) * 100, "negative_labels"),
        (lambda labels: labels.astype(np.float32) * 0.4, "non_integer"),
        (lambda labels: np.where(labels > 0, np.nan, 0.0).astype(np.float32), "non_finite"),
        (lambda labels: labels.transpose(1, 2, 0).copy(), "wrong_shape"),
    ],
)
def test_what_is_no_label_volume_is_refused_with_its_reason(values: object, code: str, case: Case) -> None:
    sample = SAMPLES[1]
    result = case.score("{}_seg.tif", {sample: values(case.truth[sample])})  # type: ignore[operator]
    assert result.outcome == pytest.approx(2 / 3, abs=1e-6)
    assert [problem.code for problem in result.problems] == [code]


def test_an_empty_volume_agrees_with_an_empty_one(tmp_path: Path) -> None:
    case = Case(tmp_path)
    empty = np.zeros_like(case.truth[SAMPLES[0]])
    tifffile.imwrite(tmp_path / "evaluation" / f"{SAMPLES[0]}_8bit_lynEGFP_seg.tif", empty)
    result = case.score("{}_seg.tif", {SAMPLES[0]: empty})
    assert (result.outcome, result.strict) == (1.0, 1.0)


@pytest.mark.skipif(not REAL.is_dir(), reason="the real sets are not beside the repository")
def test_a_real_pair_has_the_scores_that_its_source_states(tmp_path: Path) -> None:
    folder = REAL / "platynereis_gt_vs_prediction"
    for name in ("input", "evaluation", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "evaluation" / "tp7_seg.tif").write_bytes((folder / "gt.tif").read_bytes())
    (tmp_path / "out" / "tp7_seg.tif").write_bytes((folder / "prediction_voronoi_otsu.tif").read_bytes())
    result = evaluate(OUTCOME, DELIVERABLES, tmp_path / "out", tmp_path / "evaluation", None)
    assert result.outcome == pytest.approx(0.829561, abs=1e-6)
    assert result.metrics["ap_50"] == pytest.approx(23 / (23 + 10 + 13))
    assert result.metrics["ap_75"] == pytest.approx(4 / (4 + 29 + 32))
    (item,) = result.items
    assert (item["truth_objects"], item["predicted_objects"]) == (36, 33)
