"""Speed kymographs: the published parts on correct data, and each known weakness with its right value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from evaluators.evaluation import check_parameters, evaluate, replay
from evaluators.model import Content, Deliverable, OutcomeScore, OutcomeSpec, TruthError
from evaluators.outcome.speed_kymograph import _PathMatcher
from evaluators.submission import SubmittedFile

PATTERNS = {"speed_kymograph": "*speedKymograph.tif*", "velocity_x": "*_mf_dxs.tif*", "velocity_y": "*_mf_dys.tif*"}
DELIVERABLES = [
    Deliverable(
        id=name,
        patterns=(pattern,),
        format="float TIFF",
        content=Content.IMAGE,
        multiple=True,
        description="numbers in um/h",
    )
    for name, pattern in PATTERNS.items()
]
SPEC = OutcomeSpec(kind="speed_kymograph")
NAMES = {"DA3_CTRL_SN29_L5": "SN29_L5", "DA3_HGF-SN_SN29_L12": "SN29_L12"}
SHAPE = (60, 90)

Edit = Callable[[Path], None]


def kymograph(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    b, t = np.mgrid[:12, :9]
    wave = 3.0 * np.exp(-(((b - t - 4 * rng.random()) / 2.0) ** 2))
    return 4.0 + 14.0 * np.exp(-b / 3.0) + wave + 0.2 * rng.random(b.shape)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    y, x = np.indices(SHAPE)
    cells = (np.abs(x - 45) > 12).astype(np.uint8)
    for seed, (condition, name) in enumerate(NAMES.items()):
        given, truth = tmp_path / "input" / condition, tmp_path / "evaluation" / condition
        given.mkdir(parents=True)
        truth.mkdir(parents=True)
        tifffile.imwrite(given / f"{name}_roi.tif", cells)
        options: dict[str, Any] = {"imagej": True, "resolution": ((100, 248), (100, 248)), "metadata": {"unit": "um"}}
        tifffile.imwrite(given / f"{name}_image_stack.tif", np.zeros((3, *SHAPE), np.uint8), **options)
        tifffile.imwrite(truth / f"{name}_speedKymograph.tif", kymograph(seed))
        inward = np.sign(45 - x) * cells
        tifffile.imwrite(truth / f"{name}_mf_dxs.tif", (10.0 * inward + 3.0 * np.sin(y / 6.0)) * cells)
        tifffile.imwrite(truth / f"{name}_mf_dys.tif", 4.0 * np.cos(x / 7.0 + seed) * cells)
    return tmp_path / "evaluation", tmp_path / "input"


@pytest.fixture
def score(folders: tuple[Path, Path], tmp_path: Path) -> Callable[[Edit | None], OutcomeScore]:
    def run(edit: Edit | None = None) -> OutcomeScore:
        output = tmp_path / "output"
        output.mkdir()
        replay(SPEC, DELIVERABLES, *folders, output)
        if edit is not None:
            edit(output)
        return evaluate(SPEC, DELIVERABLES, output, *folders)

    return run


def tables(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*speedKymograph.tif"))


def codes(result: OutcomeScore) -> set[str]:
    return {problem.code for problem in result.problems}


def test_replay(score: Any) -> None:
    result = score()
    assert (result.outcome, result.strict, result.problems) == (1.0, 1.0, [])


def test_a_kymograph_that_falls_as_truth_rises_has_no_accuracy(score: Any) -> None:
    result = score(lambda folder: [tifffile.imwrite(path, 30.0 - tifffile.imread(path)) for path in tables(folder)])
    assert result.metrics["accuracy"] == 0.0
    assert result.metrics["pattern"] == 0.0
    assert result.outcome == pytest.approx(0.15 + 0.10)


def test_a_constant_kymograph_has_no_accuracy(score: Any) -> None:
    result = score(lambda folder: [tifffile.imwrite(path, np.full((12, 9), 8.0)) for path in tables(folder)])
    assert result.metrics["accuracy"] == 0.0
    assert result.metrics["kymograph_pearson_defined"] is None


def test_two_finite_cells_are_two_cells(score: Any) -> None:
    def edit(folder: Path) -> None:
        for path in tables(folder):
            table = np.full((12, 9), np.nan)
            table[0, 0], table[11, 0] = 2.0, 1.0
            tifffile.imwrite(path, table)

    result = score(edit)
    assert result.metrics["accuracy"] == pytest.approx(2 / 108)
    assert result.metrics["pattern"] == 0.0
    assert result.metrics["completeness"] == pytest.approx(2 / 3)
    assert "incomplete" in codes(result)


def test_a_tiny_table_lacks_the_rest(score: Any) -> None:
    result = score(lambda f: [tifffile.imwrite(path, np.array([[4.0], [3.0], [2.0], [1.0]])) for path in tables(f)])
    assert result.metrics["accuracy"] < 4 / 108 + 1e-9
    assert result.metrics["pattern"] == 0.0
    assert "row_count" in codes(result)


def test_a_missing_column_is_missing(score: Any) -> None:
    result = score(lambda folder: [tifffile.imwrite(path, tifffile.imread(path)[:, :6]) for path in tables(folder)])
    assert result.metrics["accuracy"] == pytest.approx(6 / 9)
    assert result.metrics["pattern"] == pytest.approx(2 * 6 / 9 - 1)


def test_columns_beyond_truth_do_not_count(score: Any) -> None:
    def edit(folder: Path) -> None:
        for path in tables(folder):
            tifffile.imwrite(path, np.hstack([tifffile.imread(path), np.full((12, 30), 5.0)]))

    assert score(edit).outcome == 1.0


def test_nan_where_truth_has_nan_is_right(score: Any, folders: tuple[Path, Path]) -> None:
    for path in tables(folders[0]):
        table = tifffile.imread(path)
        table[11] = np.nan
        tifffile.imwrite(path, table)
    assert score().outcome == 1.0


def test_a_transposed_table_is_refused(score: Any) -> None:
    result = score(lambda folder: [tifffile.imwrite(path, tifffile.imread(path).T) for path in tables(folder)])
    assert result.metrics["accuracy"] == 0.0
    assert "transposed" in codes(result)


def test_a_table_of_one_column_keeps_its_axes(score: Any, folders: tuple[Path, Path]) -> None:
    for path in tables(folders[0]):
        tifffile.imwrite(path, tifffile.imread(path)[:, :1])
    result = score()
    assert result.metrics["accuracy"] == pytest.approx(1.0)


def test_one_moving_pixel_is_no_direction(score: Any) -> None:
    def edit(folder: Path) -> None:
        for path in folder.rglob("*_mf_d*.tif"):
            one = np.zeros(SHAPE)
            if "dxs" in path.name:
                one[30, 30] = 9.0
            tifffile.imwrite(path, one)

    result = score(edit)
    assert result.metrics["direction"] < 0.01
    assert result.metrics["sideways_agreement"] == pytest.approx(0.0, abs=0.02)


def test_velocities_per_patch_are_refused(score: Any) -> None:
    def edit(folder: Path) -> None:
        for path in folder.rglob("*_mf_d*.tif"):
            tifffile.imwrite(path, tifffile.imread(path)[::6, ::6])

    result = score(edit)
    assert result.metrics["direction"] == 0.0
    assert result.outcome == pytest.approx(0.75 + 0.1 / 3)
    assert "wrong_shape" in codes(result)


def test_a_speed_in_other_units_shows_in_strict(score: Any) -> None:
    result = score(lambda f: [tifffile.imwrite(path, 1000.0 * tifffile.imread(path) + 5.0) for path in tables(f)])
    assert result.outcome == pytest.approx(1.0)
    assert result.strict < 0.05
    assert result.metrics["kymograph_nrmse"] > 100


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b"no image", "unreadable"),
        (b"", "unreadable"),
        (np.zeros((3, 4, 5), np.float32), "wrong_shape"),
        (np.zeros((12, 9), bool), "wrong_dtype"),
        (np.zeros((12, 9, 3), np.uint8), "colour"),
    ],
)
def test_what_is_no_table_counts_as_missing(score: Any, bad: Any, code: str) -> None:
    def edit(folder: Path) -> None:
        path = tables(folder)[0]
        if isinstance(bad, bytes):
            path.write_bytes(bad)
        else:
            tifffile.imwrite(path, bad, photometric="rgb" if bad.shape[-1] == 3 else "minisblack")

    result = score(edit)
    assert result.metrics["accuracy"] == pytest.approx(0.5)
    assert code in codes(result)


def test_absurd_values_end_in_a_score(score: Any) -> None:
    def edit(folder: Path) -> None:
        for path in folder.rglob("*.tif"):
            values = np.full(tifffile.imread(path).shape, 1e300)
            values[::2] = -np.inf
            tifffile.imwrite(path, values)

    result = score(edit)
    assert 0.0 <= result.outcome < 0.3
    assert result.strict == 0.0


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("SN29_L5_speedKymograph.tif", ("SN29_L5", 0)),
        ("DA3_CTRL_SN29_L5_speedKymograph.tif", ("SN29_L5", 1)),
        ("agent_sn29-l12_speedkymograph.tiff", ("SN29_L12", 1)),
        ("DA3_HGF-SN_SN29_L12/speedKymograph.tif", ("SN29_L12", 2)),
        ("SN29_L12/deep/speedKymograph.tif", ("SN29_L12", 2)),
        ("SN29_L50_speedKymograph.tif", None),
        ("SN29_L5_SN29_L12_speedKymograph.tif", None),
        ("speedKymograph.tif", None),
    ],
)
def test_experiments_are_found_in_names_and_folders(path: str, meant: tuple[str, int] | None) -> None:
    matcher = _PathMatcher(list(NAMES.values()), "_speedKymograph")
    assert matcher(SubmittedFile(Path(), tuple(path.split("/")), 0)) == meant


def test_a_stray_copy_does_not_win(score: Any) -> None:
    def edit(folder: Path) -> None:
        (folder / "a_debug").mkdir()
        tifffile.imwrite(folder / "a_debug" / "old_SN29_L5_speedKymograph.tif", np.ones((12, 9)))

    result = score(edit)
    assert result.outcome == 1.0
    assert "duplicate_file" in codes(result)


def test_truth_needs_its_masks_and_velocities(score: Any, folders: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(TruthError, match="directions need it"):
        evaluate(SPEC, DELIVERABLES, tmp_path, folders[0])
    next(folders[0].rglob("*_mf_dys.tif")).unlink()
    with pytest.raises(TruthError, match="mf_dys"):
        evaluate(SPEC, DELIVERABLES, tmp_path, *folders)


def test_parameters_are_checked() -> None:
    for wrong in ({"weights": {"accuracy": 1.0}}, {"near_rows": 11}, {"patch_um": 0}):
        with pytest.raises(ValueError, match=r"weights|far_from|patch_um"):
            check_parameters(OutcomeSpec(kind="speed_kymograph", parameters=wrong), DELIVERABLES)
