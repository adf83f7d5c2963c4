"""The stitching pipeline on tiles whose places are known."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tifffile
from scipy import ndimage

from agents.classical import tile_stitching as stitching
from agents.classical._job import Job, parse_contract
from biabench_plugin.datasets import load_simulator

ROOT = Path(__file__).resolve().parents[3]
CONTRACT = """\
- stitched_image (required, one file)
  File name: *stitch*.tif*
- summary_statistics (required, one file)
  File name: *summary*statistic*.csv
"""


def simulator() -> ModuleType:
    return load_simulator(ROOT / "tasks" / "tile_stitching")


@pytest.fixture(scope="module")
def mosaic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mosaic")
    module = simulator()
    module.GRID, module.TILE, module.CELLS = 2, 190, {"WBC": 26, "MCF7": 15}
    module.make(folder, 3)
    return folder


def places(folder: Path) -> np.ndarray:
    return np.loadtxt(folder / "evaluation" / "tile_positions.csv", delimiter=",", skiprows=1)[:, 1:]


def error(layout: stitching.Layout, truth: np.ndarray) -> float:
    difference = layout.places - truth
    return float(np.hypot(*(difference - np.median(difference, axis=0)).T).max())


def test_the_file_says_which_channel_is_which_and_where_the_stage_went(mosaic: Path) -> None:
    tiles = stitching.Tiles.open(next((mosaic / "input").iterdir()))
    assert (tiles.count, tiles.planes, tiles.height, tiles.width) == (4, 3, 190, 190)
    assert tiles.order == (0, 1, 2, 3)
    assert (tiles.pixel_um, tiles.step_um) == (pytest.approx(0.415), pytest.approx(5.0))
    assert tiles.asked_px == pytest.approx(np.array([[0, 0], [0, 171], [171, 171], [171, 0]]), abs=0.1)


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (("DAPI", "Bodipy FL", "Alexa 647", "Alexa 568"), (1, 3, 0, 2)),
        (("Ch1", "Ch2", "Ch3", "Ch4"), (0, 1, 2, 3)),
        ((), (0, 1, 2, 3)),
    ],
)
def test_channels_are_told_by_name(names: tuple[str, ...], order: tuple[int, ...]) -> None:
    assert stitching._channel_order(names, 4) == order


def test_tiles_are_placed_to_half_a_pixel(mosaic: Path) -> None:
    tiles = stitching.Tiles.open(next((mosaic / "input").iterdir()))
    layout = stitching.register(tiles, stitching.estimate_shading(tiles))
    assert error(layout, places(mosaic)) < 0.5
    assert error(stitching.Layout(tiles.asked_px, [], np.zeros(0, bool), np.zeros(0)), places(mosaic)) > 3.0


def test_a_few_percent_of_overlap_are_enough(tmp_path: Path) -> None:
    module = simulator()
    module.GRID, module.TILE, module.CELLS = 2, 220, {"WBC": 40, "MCF7": 22}
    module.make(tmp_path, 4, overlap=0.06, jitter_px=(1.5, 3.0))
    tiles = stitching.Tiles.open(next((tmp_path / "input").iterdir()))
    layout = stitching.register(tiles, stitching.estimate_shading(tiles))
    assert error(layout, places(tmp_path)) < 1.0


def test_shading_and_offset_are_estimated_from_the_background(mosaic: Path) -> None:
    tiles = stitching.Tiles.open(next((mosaic / "input").iterdir()))
    shading = stitching.estimate_shading(tiles)
    assert shading.offset == pytest.approx(np.full(4, 60.0), abs=14.0)
    for light in shading.light:
        corners = [light[0, 0], light[0, -1], light[-1, 0], light[-1, -1]]
        assert light[80:110, 80:110].mean() > 0.9
        assert 0.4 <= np.min(corners) < 0.85


def test_pairs_that_disagree_lose_their_weight() -> None:
    asked = np.array([[0.0, 0.0], [0.0, 100.0], [100.0, 0.0], [100.0, 100.0]])
    true = asked + np.array([[0, 0], [3, -2], [-4, 1], [2, 5]])
    pairs = [
        stitching.Pair(one, two, tuple(true[two] - true[one]), 0.9, 1000)
        for one, two in ((0, 1), (0, 2), (1, 3), (2, 3), (0, 3))
    ]
    pairs.append(stitching.Pair(1, 2, tuple(true[2] - true[1] + 9), 0.9, 1000))  # a false match
    layout = stitching.solve(asked, pairs)
    moved = layout.places - true
    assert np.abs(moved - moved[0]).max() < 0.2
    assert layout.used.tolist() == [True] * 5 + [False]


def test_tiles_without_any_match_stay_where_they_were_asked_to_be() -> None:
    asked = np.array([[0.0, 0.0], [0.0, 90.0]])
    assert stitching.solve(asked, []).places == pytest.approx(asked)


def test_moments_of_a_gaussian() -> None:
    y, x = np.indices((81, 81)) - 40.0
    spread = 6.0
    image = np.exp(-(x**2 + y**2) / (2 * spread**2)) * 100.0
    total, r, rf, product = stitching.moments(image, 0.5)
    assert total == pytest.approx(10 * math.log10(100 * 2 * math.pi * spread**2), abs=0.01)
    assert r == pytest.approx(math.sqrt(2) * spread * 0.5, rel=0.01)
    assert rf == pytest.approx(1 / (2 * math.pi * spread * 0.5), rel=0.02)
    assert product == pytest.approx(r * rf)


def test_the_whole_run_leaves_mosaic_tables_figures_and_report(mosaic: Path, tmp_path: Path) -> None:
    job = Job(mosaic / "input", tmp_path, CONTRACT, parse_contract(CONTRACT))
    stitching.run(job)
    assert not job.failures
    reference = tifffile.imread(next((mosaic / "evaluation").glob("*_Stitched.lsm")))
    with tifffile.TiffFile(tmp_path / "stitched_mosaic.tif") as file:
        assert file.series[0].axes == "ZCYX"
        found = file.asarray()
    assert found.shape[:2] == (3, 4)
    assert np.abs(np.array(found.shape[2:]) - reference.shape[2:]).max() <= 3
    rows, columns = (min(a, b) for a, b in zip(found.shape[2:], reference.shape[2:], strict=True))
    one, two = (
        ndimage.gaussian_filter(image[1, 0, :rows, :columns].astype(float), 1.5) for image in (found, reference)
    )
    assert np.corrcoef(one.ravel(), two.ravel())[0, 1] > 0.85
    with (tmp_path / "summary_statistics.csv").open() as handle:
        table: dict[Any, dict[str, str]] = {
            (row["population"], row["channel"], row["feature"]): row for row in csv.DictReader(handle)
        }
    assert len(table) == 32
    assert 18 <= int(table["WBC", "DAPI", "r"]["n"]) <= 28
    assert 8 <= int(table["MCF7", "DAPI", "r"]["n"]) <= 16
    assert float(table["MCF7", "PanCK", "Sigma"]["mean"]) > float(table["WBC", "PanCK", "Sigma"]["mean"]) + 8
    assert {"mosaic.png", "mosaic.svg", "features.png"} <= {path.name for path in (tmp_path / "figures").iterdir()}
    assert "higher in" in (tmp_path / "report.md").read_text()


REAL = ROOT / "../shared/real/stitching/bpae_3ch_tiles_derived"


@pytest.mark.skipif(not REAL.is_dir(), reason="the real sets are not beside the repository")
def test_real_tiles_with_five_percent_of_overlap_are_placed_to_half_a_pixel() -> None:
    with (REAL / "true_positions.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    truth = np.array([(float(row["y0"]), float(row["x0"])) for row in rows])
    asked = np.array([(226.0 * int(row["row"]), min(275.0 * int(row["col"]), 810.0)) for row in rows])
    pictures = []
    for row in rows:
        channels = tifffile.imread(REAL / "tiles" / f"tile_r{row['row']}_c{row['col']}.tif").astype(np.float32)
        channels = np.moveaxis(channels, -1, 0) if channels.shape[-1] == 3 else channels
        pictures.append(sum(stitching.structure(channel) for channel in channels))
    pairs = []
    for one in range(len(rows)):
        for two in range(one + 1, len(rows)):
            offset = asked[two] - asked[one]
            if np.prod(np.maximum(np.array(pictures[0].shape) - np.abs(offset), 0)) > 0.02 * pictures[0].size:
                found = stitching.match_pair(pictures[one], pictures[two], offset, 12)
                assert found is not None
                pairs.append(stitching.Pair(one, two, *found))
    layout = stitching.solve(asked, pairs)
    assert layout.used.all()
    assert error(layout, truth) < 0.5
