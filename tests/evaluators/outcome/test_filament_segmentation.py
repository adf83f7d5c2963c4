"""Filament segmentation: the published scores on correct data, and each known weakness with its right value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from evaluators.evaluation import check_parameters, evaluate, replay
from evaluators.model import Content, Deliverable, OutcomeScore, OutcomeSpec, TruthError

DELIVERABLE = Deliverable(
    id="segmentation_masks",
    patterns=("*mask*.tif*",),
    format="binary TIFF",
    content=Content.BINARY_IMAGE,
    multiple=True,
    description="one binary mask per image",
)
SPEC = OutcomeSpec(kind="filament_segmentation")
SHAPE = (60, 80)

Files = dict[str, Any]
Scorer = Callable[..., OutcomeScore]


def lines(*rows: int) -> np.ndarray:
    """Horizontal filaments, three pixels wide and sixty long."""
    mask = np.zeros(SHAPE, np.uint8)
    for row in rows:
        mask[row - 1 : row + 2, 10:70] = 1
    return mask


TRUTH = {"report_0008": lines(15, 35), "report_0012": lines(30)}


@pytest.fixture
def truth(tmp_path: Path) -> Path:
    folder = tmp_path / "evaluation"
    folder.mkdir()
    for name, mask in TRUTH.items():
        tifffile.imwrite(folder / f"{name}.binary.tiff", mask)
    return folder


@pytest.fixture
def score(truth: Path, tmp_path: Path) -> Scorer:
    def run(files: Files, spec: OutcomeSpec = SPEC) -> OutcomeScore:
        for name, content in files.items():
            path = tmp_path / "output" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                colour = content.shape[-1] == 3
                tifffile.imwrite(path, content, photometric="rgb" if colour else "minisblack")
        return evaluate(spec, [DELIVERABLE], tmp_path / "output", truth)

    return run


def perfect() -> Files:
    return {f"{name}_mask.tif": mask for name, mask in TRUTH.items()}


def codes(result: OutcomeScore) -> set[str]:
    return {problem.code for problem in result.problems}


def test_replay(truth: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.mkdir()
    replay(SPEC, [DELIVERABLE], truth, None, output)
    result = evaluate(SPEC, [DELIVERABLE], output, truth)
    assert (result.outcome, result.strict, result.problems) == (1.0, 1.0, [])


def test_scores_by_hand(score: Scorer) -> None:
    files = perfect()
    half = lines(30)
    half[:, 40:] = 0  # 90 of 180 pixels
    result = score({**files, "report_0012_mask.tif": half})
    assert result.items[1]["dice"] == pytest.approx(2 * 90 / (90 + 180))
    assert result.items[1]["iou"] == pytest.approx(0.5)
    assert (result.items[1]["precision"], result.items[1]["recall"]) == (1.0, 0.5)
    assert result.items[1]["cl_dice"] == pytest.approx(2 / 3, abs=0.02)
    assert result.outcome == pytest.approx((1.0 + 2 / 3) / 2, abs=1e-6)


def test_line_width_and_gaps_are_told_apart(score: Scorer) -> None:
    thin = np.zeros(SHAPE, np.uint8)
    thin[[14, 15, 34, 35], 10:70] = 1
    dashed = lines(30)
    dashed[:, 14::6] = dashed[:, 15::6] = 0
    result = score({"report_0008_mask.tif": thin, "report_0012_mask.tif": dashed})
    assert result.items[0]["dice"] == pytest.approx(0.8)
    assert result.items[0]["continuity"] == 1.0
    assert result.items[1]["dice"] == pytest.approx(0.8, abs=0.02)
    assert result.items[1]["continuity"] < 0.15
    assert (result.items[1]["components"], result.items[1]["truth_components"]) == (10, 1)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (np.ones((2, 2), np.uint8), "wrong_shape"),
        (lines(30).T, "wrong_shape"),
        (np.stack([lines(30)] * 3), "wrong_shape"),
        (np.stack([lines(30)] * 3, axis=-1), "colour"),
        (np.arange(60 * 80, dtype=np.float32).reshape(SHAPE) / 4800, "not_binary"),
        (lines(30) * np.uint8(2) + lines(15), "not_binary"),
        (lines(30) + np.uint8(1), "not_binary"),
        (np.where(lines(30) > 0, np.nan, 0.0).astype(np.float32), "non_finite"),
        (b"II*\0 this is no image", "truncated"),
        (b"", "unreadable"),
    ],
)
def test_a_mask_that_is_none_counts_as_missing(score: Scorer, bad: Any, code: str) -> None:
    result = score({**perfect(), "report_0012_mask.tif": bad})
    assert result.outcome == 0.5
    assert result.items[1]["status"] == code
    assert result.metrics["precision"] == 0.5


def test_a_page_axis_is_no_other_shape(score: Scorer) -> None:
    assert score({name: mask[None] for name, mask in perfect().items()}).outcome == 1.0


def test_empty_and_empty_is_right_and_empty_against_something_is_wrong(score: Scorer, truth: Path) -> None:
    empty = np.zeros(SHAPE, np.uint8)
    tifffile.imwrite(truth / "report_0020.binary.tiff", empty)
    files = {**perfect(), "report_0020_mask.tif": empty}
    result = score(files)
    assert (result.outcome, result.strict) == (1.0, 1.0)
    assert result.items[2]["cl_dice"] == 1.0
    speck = empty.copy()
    speck[5, 5] = 1
    result = score({**files, "report_0020_mask.tif": speck, "report_0012_mask.tif": empty})
    assert result.outcome == pytest.approx(1 / 3)
    assert result.items[1]["precision"] == 0.0  # nothing drawn where there is something: not undefined
    assert result.strict == pytest.approx(1 / 3)


def test_the_whole_image_is_worth_nothing_in_strict(score: Scorer) -> None:
    result = score({name: np.ones_like(mask) for name, mask in perfect().items()})
    assert result.strict == 0.0
    assert "mostly_foreground" in codes(result)
    by_centreline = OutcomeSpec(kind="filament_segmentation", parameters={"primary": "cl_dice"})
    assert score({}, by_centreline).strict == 0.0


def test_the_plain_name_wins_over_others(score: Scorer) -> None:
    junk = {"denoised/report_0008_enhanced_mask.tif": lines(50), "a/report_0008_mask.tif": lines(50)}
    result = score({**perfect(), **junk})
    assert result.outcome == 1.0
    assert "duplicate_file" in codes(result)


def test_numbers_are_compared_as_numbers(score: Scorer) -> None:
    files = {"report_8_mask.tif": TRUTH["report_0008"], "mask_00012.tif": TRUTH["report_0012"]}
    assert score(files).outcome == 1.0


def test_files_without_an_image_are_counted(score: Scorer) -> None:
    result = score({**perfect(), "qc_mask.tif": lines(5), "report_0099_mask.tif": lines(5)})
    assert result.outcome == 1.0
    assert result.metrics["files_without_image"] == 2


def test_truth_must_be_whole(score: Scorer, truth: Path, tmp_path: Path) -> None:
    (truth / "report_0012.binary.tiff").write_bytes(b"no image")
    with pytest.raises(TruthError, match="report_0012"):
        score(perfect())
    (truth / "report_0012.binary.tiff").unlink()
    given = tmp_path / "input"
    given.mkdir()
    for name in TRUTH:
        tifffile.imwrite(given / f"{name}.noisy.tiff", lines(1))
    with pytest.raises(TruthError, match="no reference for input image report_0012"):
        evaluate(SPEC, [DELIVERABLE], tmp_path / "output", truth, given)


def test_parameters_are_checked() -> None:
    with pytest.raises(ValueError, match="primary"):
        check_parameters(OutcomeSpec(kind="filament_segmentation", parameters={"primary": "dic"}), [DELIVERABLE])
    with pytest.raises(ValueError, match="binary_image"):
        check_parameters(SPEC, [DELIVERABLE.model_copy(update={"content": Content.LABEL_IMAGE})])
