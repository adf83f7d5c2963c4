"""The outcome kind mosaic_cytometry on a small mosaic: the published weaknesses, each with the right value."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from scipy import ndimage

from evaluators.evaluation import evaluate, replay
from evaluators.model import Content, Deliverable, OutcomeScore, OutcomeSpec, TruthError
from tasks._lsm import Channel, write_lsm

CHANNELS = ("Bodipy", "PanCK", "DAPI", "CD45")
FEATURES = ("Sigma", "r", "rf", "M")
OUTCOME = OutcomeSpec(
    kind="mosaic_cytometry",
    parameters={"cells": "per_cell_features", "channels": list(CHANNELS), "planes": 3, "grid": [3, 3]},
)
DELIVERABLES = (
    Deliverable(
        id="stitched_image",
        patterns=("*stitch*.tif*",),
        format="16-bit TIFF",
        content=Content.CHANNEL_STACK,
        description="the mosaic",
    ),
    Deliverable(
        id="summary_statistics",
        patterns=("*summary*statistic*.csv",),
        format="table with a header",
        content=Content.TABLE,
        columns=("population", "channel", "feature", "mean"),
        description="means of populations",
    ),
    Deliverable(
        id="per_cell_features",
        patterns=("*cell*feature*.csv",),
        format="table with a header",
        content=Content.TABLE,
        required=False,
        columns=("cell_type",),
        description="one row per cell",
    ),
)
HEADER = "population,channel,feature,mean"


def scene() -> NDArray[np.uint16]:
    """Three planes of four channels, each with structure of its own."""
    rng = np.random.default_rng(0)
    stack = np.zeros((3, 4, 150, 156))
    for channel in range(4):
        spots = np.zeros((150, 156))
        spots[rng.integers(0, 150, 120), rng.integers(0, 156, 120)] = rng.uniform(0.3, 1.0, 120)
        for z in range(3):
            height = rng.uniform(0.2, 1.0, (15, 16)).repeat(10, 0).repeat(10, 1)[:, :156]
            stack[z, channel] = ndimage.gaussian_filter(spots * height, 1.8) * 9000
    return (stack + 100).astype(np.uint16)


MEANS = {
    (population, channel, feature): round(base * (1.4 if (population == "MCF7") != (channel == "CD45") else 1.0), 4)
    for population in ("WBC", "MCF7")
    for channel in CHANNELS
    for feature, base in zip(FEATURES, (50.0, 3.0, 0.3, 1.0), strict=True)
}


class Case:
    def __init__(self, base: Path) -> None:
        self.base, self.out = base, base / "out"
        for folder in ("input", "evaluation", "out"):
            (base / folder).mkdir()
        self.truth = scene()
        channels = [Channel(name, (0, 255, 0), (400.0, 500.0)) for name in CHANNELS]
        write_lsm(base / "evaluation" / "x_Stitched.lsm", self.truth, channels=channels, voxel_um=(5.0, 0.4, 0.4))
        lines = ["Feature,WBC_Mean,WBC_SD,MCF7_Mean,MCF7_SD,D"]
        lines += [
            f"{c} {f},{MEANS['WBC', c, f]},1,{MEANS['MCF7', c, f]},1,{k + 1}"
            for k, (c, f) in enumerate((c, f) for c in CHANNELS for f in FEATURES)
        ]
        lines += ["RegSigma,1,1,2,1,3", "RegAll,1,1,2,1,3"]
        (base / "evaluation" / "reference_table_1.csv").write_text("\n".join(lines))

    def mosaic(self, stack: NDArray[Any], name: str = "stitched.tif", **options: Any) -> None:
        path = self.out / name
        path.parent.mkdir(exist_ok=True)
        options = options or {"imagej": True, "metadata": {"axes": "ZCYX"}}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tifffile.imwrite(path, stack, **options)

    def table(self, lines: list[str] | None = None, header: str = HEADER, name: str = "summary_statistics.csv") -> None:
        if lines is None:
            lines = [f"{','.join(key)},{value}" for key, value in MEANS.items()]
        (self.out / name).write_text("\n".join([header, *lines]), encoding="utf-8")

    def score(self) -> OutcomeScore:
        return evaluate(OUTCOME, DELIVERABLES, self.out, self.base / "evaluation", self.base / "input")

    def codes(self, result: OutcomeScore) -> set[str]:
        return {problem.code for problem in result.problems}


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_replay_without_tile_positions_uses_the_grid(case: Case) -> None:
    replay(OUTCOME, DELIVERABLES, case.base / "evaluation", case.base / "input", case.out)
    result = case.score()
    assert (result.outcome, result.strict, result.problems) == (1.0, 1.0, [])
    assert sum("tile" in item for item in result.items) == 9


@pytest.mark.parametrize(
    "options",
    [
        {"photometric": "minisblack"},  # the published reader averages all channels of this one
        {"photometric": "minisblack", "compression": "lzw"},
        {"ome": True, "metadata": {"axes": "ZCYX"}},
        {},
    ],
)
def test_unlabelled_and_labelled_stacks_are_the_same(options: dict[str, Any], case: Case) -> None:
    case.mosaic(case.truth, **options)
    case.table()
    assert case.score().outcome == 1.0


def test_channels_before_planes_are_understood(case: Case) -> None:
    case.mosaic(np.ascontiguousarray(case.truth.swapaxes(0, 1)), photometric="minisblack")
    case.table()
    assert case.score().outcome == 1.0


def test_twelve_pages_without_a_word_are_ambiguous(case: Case) -> None:
    case.mosaic(case.truth.reshape(12, 150, 156), photometric="minisblack")
    case.table()
    result = case.score()
    assert result.outcome == pytest.approx(0.3)
    assert case.codes(result) == {"ambiguous_axes"}


def test_an_overview_beside_the_mosaic_steals_nothing(case: Case) -> None:
    case.mosaic(case.truth)
    case.mosaic(case.truth[0, 2], "figures/stitched_overview.tif", photometric="minisblack")
    case.mosaic((case.truth[0, :3].transpose(1, 2, 0) // 40).astype(np.uint8), "a_stitched_rgb.tif", photometric="rgb")
    case.table()
    result = case.score()
    assert result.outcome == 1.0
    assert "duplicate_file" in case.codes(result)


def test_two_different_mosaics_are_ambiguous(case: Case) -> None:
    case.mosaic(case.truth)
    case.mosaic(case.truth + 1, "stitched_v2.tif")
    case.table()
    result = case.score()
    assert result.outcome == pytest.approx(0.3)
    assert "ambiguous_files" in case.codes(result)


def test_a_blank_margin_costs_canvas_but_not_the_profile(case: Case) -> None:
    case.mosaic(np.pad(case.truth, ((0, 0), (0, 0), (0, 0), (0, 20))))
    case.table()
    result = case.score()
    assert result.metrics["canvas"] == 0.5
    assert result.metrics["profile"] == pytest.approx(1.0, abs=1e-6)
    assert result.strict == 1.0
    shifted = np.pad(case.truth, ((0, 0), (0, 0), (9, 0), (6, 0)))
    case.mosaic(shifted)
    assert case.score().strict == pytest.approx(1.0, abs=1e-3)


def test_a_collapsed_mosaic_keeps_its_profile_and_loses_the_rest(case: Case) -> None:
    case.mosaic(case.truth.max(axis=0), ome=True, metadata={"axes": "CYX"})
    case.table()
    result = case.score()
    assert result.metrics["canvas"] == 0.0
    assert result.metrics["profile"] > 0.8
    assert (result.strict, case.codes(result)) == (0.0, {"wrong_shape"})


def test_gain_offset_and_bit_depth_do_not_matter(case: Case) -> None:
    case.mosaic((case.truth.astype(float) * 0.05 + 3).astype(np.float32), photometric="minisblack")
    case.table()
    assert case.score().outcome == pytest.approx(1.0, abs=1e-6)


def test_nan_in_one_channel_costs_that_channel(case: Case) -> None:
    stack = case.truth.astype(np.float32)
    stack[1, 3, 70, 70] = np.nan
    case.mosaic(stack, photometric="minisblack")
    case.table()
    result = case.score()
    assert result.metrics["profile_CD45"] == 0.0
    assert result.metrics["profile_DAPI"] == pytest.approx(1.0)
    assert (result.strict, case.codes(result)) == (0.0, {"non_finite"})


def test_content_outside_the_band_decides_strict(case: Case) -> None:
    stack = np.zeros_like(case.truth)
    stack[:, :, 25:125] = case.truth[:, :, 25:125]
    case.mosaic(stack)
    case.table()
    result = case.score()
    assert result.metrics["stitching_quality"] == 1.0
    assert result.strict < 0.8
    swapped = case.truth.copy()
    swapped[:, :, :50], swapped[:, :, 100:] = case.truth[:, :, 100:], case.truth[:, :, :50]
    case.mosaic(swapped)
    assert case.score().metrics["placed_tiles"] < 0.5


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ("White blood cells,lipid droplets (Bodipy),total intensity", ("WBC", "Bodipy", "Sigma")),
        ("leukocytes,Alexa568,spatial frequency", ("WBC", "PanCK", "rf")),
        ("MCF-7,DNA,r_um", ("MCF7", "DAPI", "r")),
        ("MCF7,nuclei,surface r", ("MCF7", "DAPI", "r")),
        ("cancer cells,CD45 / Alexa 647,M = r*rf", ("MCF7", "CD45", "M")),
        ("wbc,pan-cytokeratin,r_f (1/um)", ("WBC", "PanCK", "rf")),
        ("WBC,Bodipy,Bodipy_Sigma_dBct", ("WBC", "Bodipy", "Sigma")),
    ],
)
def test_words_of_people_are_understood(row: str, key: tuple[str, str, str], case: Case) -> None:
    case.table([f"{row},1.5"])
    result = case.score()
    assert result.metrics["reported_means"] == 1
    found = [item for item in result.items if item.get("mean") is not None]
    assert [(item["population"], item["channel"], item["feature"]) for item in found] == [key]


@pytest.mark.parametrize(
    "row", ["WBC,channel_2,r,1", "WBC,DAPI,texture,1", "all cells,DAPI,r,1", "WBC vs MCF7,DAPI,r,1"]
)
def test_rows_that_could_be_anything_are_named(row: str, case: Case) -> None:
    case.table([row])
    result = case.score()
    assert (result.metrics["reported_means"], result.outcome) == (0, 0.0)
    assert "unknown_row" in case.codes(result)


def test_one_ragged_row_does_not_cost_the_others(case: Case) -> None:
    lines = [f"{','.join(key)},{value}" for key, value in MEANS.items()]
    case.table([*lines, "WBC,DAPI,r,2.5,extra,extra,extra", "WBC"])
    case.mosaic(case.truth)
    result = case.score()
    assert result.outcome > 0.9
    assert result.problems


def test_two_answers_for_one_mean_are_none(case: Case) -> None:
    lines = [f"{','.join(key)},{value}" for key, value in MEANS.items()]
    case.table([*lines, "WBC,DAPI,r,77"])
    case.mosaic(case.truth)
    result = case.score()
    assert result.outcome == pytest.approx(0.95)
    assert "duplicate_row" in case.codes(result)
    case.table([*lines, lines[0]])  # twice the same is no contradiction
    assert case.score().outcome == 1.0


def test_sums_instead_of_decibels_are_named(case: Case) -> None:
    lines = [f"{','.join(key)},{1e5 if key[2] == 'Sigma' else value}" for key, value in MEANS.items()]
    case.table(lines)
    case.mosaic(case.truth)
    result = case.score()
    assert result.outcome == pytest.approx(0.9)
    assert "wrong_unit" in case.codes(result)


def test_means_that_the_summary_lacks_come_from_the_cells(case: Case) -> None:
    lines = [f"{','.join(key)},{value}" for key, value in MEANS.items() if key[1:] != ("DAPI", "r")]
    case.mosaic(case.truth)
    case.table(lines)
    assert case.score().outcome == pytest.approx(0.9)
    cells = ["WBC,2.0", "WBC,4.0", f"MCF7,{MEANS['MCF7', 'DAPI', 'r']}", ",9.0"]
    case.table(cells, "cell_type,DAPI_r_um", "per_cell_features.csv")
    result = case.score()
    assert result.outcome == 1.0
    assert "filled_from_cells" in case.codes(result)


def test_cells_without_a_summary_do_not_stand_in_for_it(case: Case) -> None:
    case.mosaic(case.truth)
    case.table(["WBC,3.0", "MCF7,4.2"], "cell_type,DAPI_r_um", "per_cell_features.csv")
    assert case.score().outcome == pytest.approx(0.7)


def test_semicolons_capitals_and_byte_order_marks(case: Case) -> None:
    lines = [f"{';'.join(key)};{str(value).replace('.', ',')}" for key, value in MEANS.items()]
    case.table(lines, "\ufeffPopulation;Channel;Feature;Mean")
    case.mosaic(case.truth)
    assert case.score().outcome == 1.0


def test_missing_reference_data_are_our_fault(case: Case) -> None:
    case.mosaic(case.truth)
    case.table()
    table = case.base / "evaluation" / "reference_table_1.csv"
    kept = table.read_text()
    table.write_text("\n".join(kept.splitlines()[:9]))
    with pytest.raises(TruthError, match="no means of"):
        case.score()
    table.write_text(kept)
    (case.base / "evaluation" / "x_Stitched.lsm").unlink()
    with pytest.raises(TruthError, match="stitched stack"):
        case.score()
