"""The outcome kind vessel_segmentation on toy volumes: the published weaknesses, each with the right value."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray

from evaluators.evaluation import evaluate
from evaluators.metrics.skeletons import centreline_length, skeletonise
from evaluators.model import Content, Deliverable, OutcomeScore, OutcomeSpec, TruthError
from evaluators.skeleton_cache import remembered_skeleton

IDS = (204, 218, 608, 640, 641, 642)
OUTCOME = OutcomeSpec(
    kind="vessel_segmentation",
    parameters={"truth_name": "Binary_{}", "morphology": "vessel_morphology", "spacing_um": [2.0, 1.0, 1.0]},
)
DELIVERABLES = (
    Deliverable(
        id="vessel_masks",
        patterns=("*mask*.tif*",),
        format="binary 3D TIFF",
        content=Content.BINARY_IMAGE,
        multiple=True,
        description="one mask per stack",
    ),
    Deliverable(
        id="vessel_morphology",
        patterns=("*vessel_morphology*.csv",),
        format="table with a header",
        content=Content.TABLE,
        required=False,
        columns=("sample_id",),
        description="one row per stack",
    ),
)

Mask = NDArray[np.bool_]


def vessel(seed: int) -> Mask:
    """A tube three voxels wide that bends at random."""
    rng = np.random.default_rng(seed)
    mask = np.zeros((16, 20, 24), bool)
    path = np.clip(np.cumsum(rng.integers(-1, 2, (24, 2)), axis=0) + np.array([8, 10]), 1, [14, 18])
    for x, (z, y) in enumerate(path):
        mask[z - 1 : z + 2, y - 1 : y + 2, x] = True
    return mask


class Case:
    def __init__(self, base: Path) -> None:
        self.base, self.out = base, base / "out"
        for folder in ("input", "evaluation", "out"):
            (base / folder).mkdir()
        self.truth = {f"control{number}_r_RA": vessel(number) for number in IDS}
        for stem, mask in self.truth.items():
            tifffile.imwrite(base / "input" / f"{stem}.tiff", np.zeros(mask.shape, np.uint16))
            tifffile.imwrite(base / "evaluation" / f"Binary_{stem}.tiff", mask.astype(np.uint8))

    def put(self, name: str, values: NDArray[np.generic]) -> None:
        path = self.out / name
        path.parent.mkdir(exist_ok=True)
        tifffile.imwrite(path, values, photometric="minisblack")

    def perfect(self, name: str = "{}_mask.tiff") -> None:
        for stem, mask in self.truth.items():
            self.put(name.format(stem), mask.astype(np.uint8))

    def score(self) -> OutcomeScore:
        return evaluate(OUTCOME, DELIVERABLES, self.out, self.base / "evaluation", self.base / "input")

    def codes(self, result: OutcomeScore) -> set[str]:
        return {problem.code for problem in result.problems}


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_one_perfect_mask_among_five_of_a_wrong_shape_is_a_sixth(case: Case) -> None:
    stems = list(case.truth)
    case.put(f"{stems[0]}_mask.tiff", case.truth[stems[0]].astype(np.uint8))
    for stem in stems[1:]:
        case.put(f"{stem}_mask.tiff", np.ones((2, 2, 2), np.uint8))
    result = case.score()
    assert result.outcome == pytest.approx(1 / 6, abs=1e-6)
    assert result.strict == pytest.approx(1 / 6, abs=1e-6)
    assert [problem.code for problem in result.problems] == ["wrong_shape"] * 5


@pytest.mark.parametrize("fault", ["missing", "unreadable", "wrong shape", "nan", "grey"])
def test_five_perfect_masks_and_one_fault_are_five_sixths(fault: str, case: Case) -> None:
    case.perfect()
    stem = next(iter(case.truth))
    path = case.out / f"{stem}_mask.tiff"
    path.unlink()
    soft = np.linspace(0, 200, case.truth[stem].size).reshape(case.truth[stem].shape)
    match fault:
        case "unreadable":
            path.write_bytes(b"II*\x00 not an image")
        case "wrong shape":
            case.put(path.name, case.truth[stem][:-1].astype(np.uint8))
        case "nan":
            case.put(path.name, np.where(case.truth[stem], np.nan, 0.0).astype(np.float32))
        case "grey":
            case.put(path.name, soft.astype(np.uint8))
    result = case.score()
    assert result.outcome == pytest.approx(5 / 6, abs=1e-6)
    assert result.problems
    assert result.metrics["precision"] == pytest.approx(5 / 6)  # nothing is dropped from a mean


@pytest.mark.parametrize(
    "name",
    ["binary_mask_{}.tiff", "BinaryMask_{}.tif", "vessel_masks/{}.tif", "{}_MASK.TIF", "masks/{}_binary_mask.tiff"],
)
def test_natural_names_are_found(name: str, case: Case) -> None:
    case.perfect(name)
    assert case.score().outcome == 1.0


def test_the_number_of_the_animal_is_enough(case: Case) -> None:
    for stem, mask in case.truth.items():
        case.put(f"{stem.split('_')[0]}_mask.tiff", mask.astype(np.uint8))
    assert case.score().outcome == 1.0


def test_two_animals_in_one_name_are_nobodys(case: Case) -> None:
    case.perfect()
    case.put("control204_r_RA_vs_control218_r_RA_mask.tiff", np.ones((16, 20, 24), np.uint8))
    result = case.score()
    assert result.outcome == 1.0
    assert result.metrics["files_without_image"] == 1


def test_a_flat_picture_with_mask_in_its_name_steals_nothing(case: Case) -> None:
    case.perfect()
    case.put("control204_r_RA_MIP_mask.tif", np.zeros((20, 24), np.uint8))
    case.put("mask_overview.tif", np.zeros((40, 40), np.uint8))
    assert case.score().outcome == 1.0


@pytest.mark.parametrize("values", [np.uint8(255), np.int8(-1), np.uint16(1), np.float32(1.0), np.bool_(True)])
def test_any_single_foreground_value_is_foreground(values: np.generic, case: Case) -> None:
    for stem, mask in case.truth.items():
        if values.dtype == bool:
            case.put(f"{stem}_mask.tiff", mask)
        else:
            case.put(f"{stem}_mask.tiff", (mask * values).astype(values.dtype))
    assert case.score().outcome == 1.0


def test_two_foreground_values_in_different_planes_are_no_mask(case: Case) -> None:
    case.perfect()
    stem = next(iter(case.truth))
    mask = case.truth[stem].astype(np.uint8)
    mask[np.argmax(mask.any(axis=(1, 2)))] *= 2
    case.put(f"{stem}_mask.tiff", mask)
    result = case.score()
    assert result.outcome == pytest.approx(5 / 6, abs=1e-6)
    assert case.codes(result) == {"not_binary"}


def test_a_block_without_skeleton_agrees_with_itself(tmp_path: Path) -> None:
    case = Case(tmp_path)
    block = np.zeros((16, 20, 24), bool)
    block[4:8, 4:8, 4:8] = True
    for stem in case.truth:
        tifffile.imwrite(tmp_path / "evaluation" / f"Binary_{stem}.tiff", block.astype(np.uint8))
        case.put(f"{stem}_mask.tiff", block.astype(np.uint8))
    result = case.score()
    assert (result.outcome, result.strict, result.metrics["cl_dice"]) == (1.0, 1.0, 1.0)


def test_empty_agrees_with_empty_and_with_nothing_else(tmp_path: Path) -> None:
    case = Case(tmp_path)
    stems = list(case.truth)
    empty = np.zeros((16, 20, 24), np.uint8)
    tifffile.imwrite(tmp_path / "evaluation" / f"Binary_{stems[0]}.tiff", empty)
    for stem in stems[:2]:
        case.put(f"{stem}_mask.tiff", empty)
    for stem in stems[2:]:
        case.put(f"{stem}_mask.tiff", case.truth[stem].astype(np.uint8))
    items = {item["volume"]: item for item in case.score().items}
    assert (items[stems[0]]["dice"], items[stems[0]]["strict"]) == (1.0, 1.0)
    assert (items[stems[1]]["dice"], items[stems[1]]["precision"], items[stems[1]]["strict"]) == (0.0, 0.0, 0.0)


def test_mirrored_masks_are_named(case: Case) -> None:
    for stem, mask in case.truth.items():
        case.put(f"{stem}_mask.tiff", mask[:, ::-1].astype(np.uint8))
    result = case.score()
    assert result.outcome < 0.5
    assert "orientation" in case.codes(result)
    assert any("mirrored along y" in problem.message for problem in result.problems)


def test_everything_is_no_network(tmp_path: Path) -> None:
    case = Case(tmp_path)
    for stem, mask in case.truth.items():
        case.put(f"{stem}_mask.tiff", np.ones(mask.shape, np.uint8))
    result = case.score()
    share = np.mean([2 * mask.mean() / (1 + mask.mean()) for mask in case.truth.values()])
    assert result.outcome == pytest.approx(share, abs=1e-6)
    assert (result.strict, case.codes(result)) == (0.0, {"no_network"})


def test_preview_beside_the_truth_is_no_reference_but_two_references_are_an_error(case: Case) -> None:
    case.perfect()
    evaluation = case.base / "evaluation"
    (evaluation / "Binary_overview.png").write_bytes(b"")
    tifffile.imwrite(evaluation / "Binary_overview.tiff", np.zeros((4, 4), np.uint8))
    assert case.score().outcome == 1.0
    tifffile.imwrite(evaluation / "Binary_control204_r_RA.tif", np.zeros((16, 20, 24), np.uint8))
    with pytest.raises(TruthError, match="same image"):
        case.score()


def test_truth_that_is_no_mask_is_our_fault(case: Case) -> None:
    case.perfect()
    tifffile.imwrite(
        case.base / "evaluation" / "Binary_control204_r_RA.tiff",
        np.arange(16 * 20 * 24, dtype=np.uint16).reshape(16, 20, 24),
    )
    with pytest.raises(TruthError, match="more than two values"):
        case.score()


@pytest.mark.parametrize("factor", [1.0, 1.2])
def test_a_delivered_table_is_compared_with_the_references(factor: float, case: Case) -> None:
    case.perfect()
    lines = ["Sample_ID;Total_Length_um;vessel_volume_fraction"]
    for stem, mask in case.truth.items():
        length = centreline_length(skeletonise(mask), (2.0, 1.0, 1.0))
        lines.append(f"{stem};{str(length * factor).replace('.', ',')};{mask.mean()}")
    (case.out / "vessel_morphology.csv").write_text("\ufeff" + "\n".join(lines), encoding="utf-8")
    result = case.score()
    assert result.metrics["length_error"] == pytest.approx(factor - 1.0)
    assert result.metrics["fraction_error"] == pytest.approx(0.0)
    assert result.outcome == 1.0


def test_length_of_a_centreline_follows_the_voxel_size() -> None:
    line = np.zeros((9, 9, 9), bool)
    line[4, 4, 1:8] = True
    assert centreline_length(line, (2.0, 1.0, 0.5)) == pytest.approx(3.0)
    assert centreline_length(line.swapaxes(0, 2), (2.0, 1.0, 0.5)) == pytest.approx(12.0)
    diagonal = np.eye(5, dtype=bool)[None]
    assert centreline_length(diagonal, (2.0, 3.0, 4.0)) == pytest.approx(4 * 5.0)
    assert centreline_length(np.zeros((3, 3, 3), bool), (1.0, 1.0, 1.0)) == 0.0


def test_remembered_centrelines_are_checked_against_the_mask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIABENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("evaluators.skeleton_cache.LARGE", 0)
    calls: list[int] = []

    def counted(skeleton: Callable[[Mask], Mask]) -> Callable[[Mask], Mask]:
        return lambda mask: (calls.append(1), skeleton(mask))[1]

    monkeypatch.setattr("evaluators.skeleton_cache.skeletonise", counted(skeletonise))
    mask = vessel(3)
    first = remembered_skeleton(mask)
    assert np.array_equal(first, skeletonise(mask))
    assert np.array_equal(remembered_skeleton(mask), first)
    assert len(calls) == 1
    (path,) = (tmp_path / "skeletons").iterdir()
    for poison in (np.arange(5), np.array([-1]), np.array([1.5]), np.empty(0, np.int64)):
        np.save(path, poison)  # places outside the mask, or no places
        assert np.array_equal(remembered_skeleton(mask), first)
    path.write_bytes(b"garbage")
    assert np.array_equal(remembered_skeleton(mask), first)
    assert len(calls) == 6


REAL = Path(__file__).resolve().parents[3] / "../shared/real/vessels/vessap_label/label.nii.gz"


@pytest.mark.skipif(not REAL.is_file(), reason="the real sets are not beside the repository")
def test_a_real_mask_scores_itself_and_a_shifted_copy_nearly_so(tmp_path: Path) -> None:
    data = np.frombuffer(gzip.decompress(REAL.read_bytes()), np.uint8, offset=352).reshape(600, 304, 325)
    mask = data[200:290, 100:190, 100:190] > 0
    assert mask.any()
    for name in ("input", "evaluation", "out"):
        (tmp_path / name).mkdir()
    tifffile.imwrite(tmp_path / "evaluation" / "Binary_a1.tiff", mask.astype(np.uint8), photometric="minisblack")
    for voxels, outcome, strict in ((0, 1.0, 1.0), (1, 0.9, 0.8)):
        moved = np.roll(mask, voxels, axis=2).astype(np.uint8)
        tifffile.imwrite(tmp_path / "out" / "a1_mask.tiff", moved, photometric="minisblack")
        result = evaluate(OUTCOME, DELIVERABLES, tmp_path / "out", tmp_path / "evaluation", None)
        assert result.strict is not None
        assert result.strict >= strict
        assert (result.outcome < outcome) is (voxels > 0)
