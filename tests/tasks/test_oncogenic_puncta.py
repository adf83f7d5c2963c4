"""Demo data of oncogenic_puncta: the published layout, and volumes that are hard for the right reasons."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tifffile
from scipy import ndimage

from biabench_plugin.taskspec import LEVELS, load_task, render_instruction
from evaluators.evaluation import check_parameters

ROOT = Path(__file__).resolve().parents[2]
SLUG = "oncogenic_puncta"
HOME = ROOT / "tasks" / SLUG
COUNT = "number of GFP puncta"


@pytest.fixture(scope="module")
def data(demo: Callable[[str], Any]) -> Path:
    return demo(SLUG).folder


@pytest.fixture(scope="module")
def rows(data: Path) -> pd.DataFrame:
    return pd.read_csv(data / "evaluation" / "cell_quants.csv")


@pytest.fixture(scope="module")
def stack(data: Path) -> np.ndarray:
    return tifffile.imread(next(path for path in sorted(data.rglob("*.tif")) if path.parent.name.endswith("WT")))


def test_layout_is_the_published_one(data: Path, rows: pd.DataFrame) -> None:
    folders = {path.name for path in (data / "input").iterdir()}
    assert folders == {"08172023_ZR_WT", "08172023_ZR_3DBDmut", "08172023_ZRC129A_H144A_fix"} == set(rows.condition)
    paths = sorted((data / "input").rglob("*.tif"))
    assert all(" - Position " in path.name for path in paths)
    assert sum(path.stat().st_size for path in paths) < 20e6
    with tifffile.TiffFile(paths[0]) as file:
        assert file.series[0].axes == "ZCYX"
        assert file.series[0].dtype == np.uint16
        assert file.series[0].shape[1] == 2
        assert file.imagej_metadata["spacing"] == 0.4
        shape = file.series[0].shape
    images = {f"{path.parent.name}/{path.name}_trimmed.tif" for path in paths}
    assert images == set(rows["Image name"])
    for axis, length in zip("zyx", (shape[0], shape[2], shape[3]), strict=True):
        assert rows[axis].between(0, length - 1).all()
    assert (rows["ROI volume um"] / rows["ROI volume pix"]).round(5).nunique() == 1


def test_same_seed_same_bytes(load_simulator: Any, digests: Any, tmp_path: Path) -> None:
    simulator = load_simulator(SLUG)
    simulator.FIELDS, simulator.CONSTRUCTS = 1, simulator.CONSTRUCTS[:1]
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        simulator.make(tmp_path / name, seed)
    first, second, other = (digests(tmp_path / name) for name in "abc")
    assert first == second
    assert all(first[name] != other[name] for name in first)


def test_counts_are_heavy_tailed_mostly_zero_and_ordered(rows: pd.DataFrame) -> None:
    assert 0.5 < (rows[COUNT] == 0).mean() < 0.75
    bearing = rows.loc[rows[COUNT] > 0, COUNT]
    assert bearing.max() > 2.5 * bearing.median()
    means = rows.groupby("condition")[COUNT].mean()
    wild, dbd, double = (next(v for k, v in means.items() if n in k) for n in ("WT", "3DBD", "C129A"))
    assert wild > 1.4 * dbd > 1.4 * double * 1.3


def test_bright_nuclei_need_not_have_puncta(rows: pd.DataFrame) -> None:
    level = rows["GFP mean intensity per ROI"]
    empty, bearing = level[rows[COUNT] == 0], level[rows[COUNT] > 0]
    assert empty.max() > bearing.median()
    assert empty.min() < bearing.min()


def test_a_threshold_undercounts(rows: pd.DataFrame, stack: np.ndarray) -> None:
    wild = rows[rows.condition.str.endswith("WT") & rows["Image name"].str.contains("Position 1")]
    gfp = stack[:, 1].astype(float)
    pieces = ndimage.label(gfp > np.percentile(gfp, 99.0))[1]
    smooth = ndimage.gaussian_filter(gfp, (0.6, 2.5, 2.5))
    peaks = ((smooth == ndimage.maximum_filter(smooth, (5, 15, 15))) & (smooth > np.percentile(smooth, 97))).sum()
    assert peaks < 0.6 * wild[COUNT].sum()  # a detector of isolated droplets
    assert pieces != pytest.approx(wild[COUNT].sum(), rel=0.1)


def test_nuclei_touch(rows: pd.DataFrame, stack: np.ndarray) -> None:
    wild = rows[rows.condition.str.endswith("WT") & rows["Image name"].str.contains("Position 1")]
    smooth = ndimage.gaussian_filter(stack[:, 0].astype(float), (1, 2, 2)).max(axis=0)
    pieces = ndimage.label(smooth > 0.3 * np.percentile(smooth, 95) + 0.7 * np.percentile(smooth, 5))[1]
    assert pieces < len(wild)


def test_specification_and_instructions() -> None:
    spec = load_task(HOME / "task.yaml")
    check_parameters(spec.outcome, spec.deliverables)
    for level, low, high in zip(LEVELS, (120, 230), (400, 900), strict=True):
        assert low <= len(spec.body(level).split()) <= high
        text = render_instruction(spec, level, gpu=False, input_dir="/input", output_dir="/output").lower()
        for name in ("biad1556", "arabzade", "zfta", "rela::", "score", "2062", "biabench", "punctatools"):
            assert name not in text
