"""Demo data of tile_stitching: a file as the microscope writes it, truth without contradictions, what makes it hard."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from scipy import ndimage

from tasks._lsm import Channel, write_lsm

SLUG = "tile_stitching"
CHANNELS = ("Bodipy", "PanCK", "DAPI", "CD45")


@dataclass(frozen=True)
class Mosaic:
    tiles: NDArray[np.uint16]  # (tile, z, c, y, x)
    metadata: dict[str, Any]
    reference: NDArray[np.uint16]
    corners: NDArray[np.float64]
    table: dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def mosaic(demo: Any) -> Mosaic:
    data = demo(SLUG)
    (path,) = data.input.iterdir()
    with tifffile.TiffFile(path) as file:
        assert file.is_lsm
        assert file.series[0].axes == "MZCYX"
        tiles, metadata = file.asarray(), dict(file.lsm_metadata or {})
    with (data.evaluation / "reference_table_1.csv").open(newline="") as handle:
        table = {row["Feature"]: row for row in csv.DictReader(handle)}
    corners = np.loadtxt(data.evaluation / "tile_positions.csv", delimiter=",", skiprows=1)[:, 1:]
    return Mosaic(tiles, metadata, tifffile.imread(next(data.evaluation.glob("*_Stitched.lsm"))), corners, table)


def test_same_seed_same_bytes(load_simulator: Any, digests: Any, tmp_path: Path) -> None:
    found = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        module = load_simulator(SLUG)
        module.GRID, module.TILE, module.CELLS = 2, 120, {"WBC": 9, "MCF7": 6}
        module.make(tmp_path / name, seed)
        found.append(digests(tmp_path / name))
    assert found[0] == found[1]
    assert set(found[0]) == set(found[2])
    assert all(found[0][name] != found[2][name] for name in found[0])


def test_layout_and_metadata_are_the_published_ones(demo: Any, mosaic: Mosaic) -> None:
    data = demo(SLUG)
    (path,) = data.input.iterdir()
    assert path.name == "day15_1_6_wbc_wbca1_mcf7_dapi_bodipy_panck_cd45_zstack_3x3.lsm"
    names = {file.name for file in data.evaluation.iterdir()}
    assert names == {f"{path.stem}_Stitched.lsm", "reference_table_1.csv", "tile_positions.csv"}
    assert mosaic.tiles.shape[:3] == (9, 3, 4)
    assert mosaic.tiles.dtype == np.uint16
    assert mosaic.reference.shape[:2] == (3, 4)
    assert mosaic.metadata["VoxelSizeX"] == pytest.approx(0.415e-6)
    assert mosaic.metadata["VoxelSizeZ"] == pytest.approx(5e-6)
    assert mosaic.metadata["ChannelColors"]["ColorNames"] == ["Bodipy FL", "Alexa 568", "DAPI", "Alexa 647"]
    assert mosaic.metadata["TilePositions"].shape == (9, 3)
    with tifffile.TiffFile(path) as file:
        assert len(file.pages) == 2 * 27  # every plane and its thumbnail
        assert file.pages[0].shape == (4, *mosaic.tiles.shape[-2:])
        assert file.pages[1].is_reduced
    assert sum(file.stat().st_size for file in data.folder.rglob("*") if file.is_file()) < 20e6


def test_table_has_the_published_rows(mosaic: Mosaic) -> None:
    singles = [f"{channel} {feature}" for channel in CHANNELS for feature in ("Sigma", "r", "rf", "M")]
    assert list(mosaic.table)[:16] == singles
    assert sum(name.startswith("Reg") for name in mosaic.table) == 6
    value = {name: (float(row["WBC_Mean"]), float(row["MCF7_Mean"])) for name, row in mosaic.table.items()}
    assert value["PanCK Sigma"][1] > value["PanCK Sigma"][0] + 8
    assert value["CD45 Sigma"][0] > value["CD45 Sigma"][1] + 3
    assert value["Bodipy Sigma"][1] > value["Bodipy Sigma"][0] + 5
    assert all(value[f"{channel} r"][1] > value[f"{channel} r"][0] for channel in CHANNELS)
    assert all(30 < number < 70 for name in singles if name.endswith("Sigma") for number in value[name])
    assert all(float(mosaic.table[name]["D"]) > 0 for name in mosaic.table)


def test_tiles_lie_where_the_table_says(mosaic: Mosaic) -> None:
    height, width = mosaic.tiles.shape[-2:]
    for tile, (y, x) in zip(mosaic.tiles, mosaic.corners, strict=True):
        y0, x0 = round(y), round(x)
        part = mosaic.reference[:, :, y0 : y0 + height, x0 : x0 + width].astype(float)
        own = tile[:, :, : part.shape[2], : part.shape[3]].astype(float)
        for channel in (0, 2):
            one, two = (ndimage.gaussian_filter(image[1, channel], 1.5) for image in (part, own))
            assert np.corrcoef(one.ravel(), two.ravel())[0, 1] > 0.9
    assert np.all(mosaic.corners >= 0)
    assert np.all(mosaic.corners.max(axis=0) + np.array([height, width]) <= np.array(mosaic.reference.shape[2:]) + 1e-6)


def test_the_stage_misses_by_several_pixels_and_fractions(mosaic: Mosaic) -> None:
    asked = mosaic.metadata["TilePositions"][:, 1::-1] / mosaic.metadata["VoxelSizeX"]
    error = mosaic.corners - asked
    error -= error.mean(axis=0)
    distance = np.hypot(*error.T)
    assert np.median(distance) > 4.0
    assert distance.max() < 10.0
    fractions = np.abs(mosaic.corners - np.rint(mosaic.corners))
    assert np.mean(fractions > 0.1) > 0.5
    steps = np.diff(asked, axis=0)
    assert np.any(steps[:, 1] < 0)  # back and forth
    overlap = 1.0 - np.abs(steps).max(axis=1) / mosaic.tiles.shape[-1]
    assert overlap == pytest.approx(0.10, abs=0.005)


def test_tiles_are_darker_in_their_corners_and_the_reference_is_not(mosaic: Mosaic) -> None:
    height, width = mosaic.tiles.shape[-2:]
    low = np.percentile(mosaic.tiles[:, :, 0], 30, axis=(0, 1)).astype(float)
    corners = np.mean([low[:40, :40], low[:40, -40:], low[-40:, :40], low[-40:, -40:]])
    middle = low[height // 2 - 30 : height // 2 + 30, width // 2 - 30 : width // 2 + 30].mean()
    assert middle > 1.05 * corners
    assert mosaic.reference.min() > 0


def test_stains_differ_and_planes_differ(mosaic: Mosaic) -> None:
    pictures = ndimage.gaussian_filter(mosaic.reference.astype(float), (0, 0, 2, 2))
    between = np.corrcoef(pictures[1].reshape(4, -1))
    assert between[1, 3] < 0.2  # cytokeratin and CD45 exclude each other
    assert between[0, 1] > 0.6
    for channel in range(4):
        across = np.corrcoef(pictures[:, channel].reshape(3, -1))
        assert across[0, 2] < 0.95
    assert 0.05 < np.mean(pictures[1, 0] > 1.5 * np.median(pictures[1, 0])) < 0.4


def test_a_few_percent_of_overlap_can_be_asked_for(load_simulator: Any, tmp_path: Path) -> None:
    module = load_simulator(SLUG)
    module.GRID, module.TILE, module.CELLS = 2, 160, {"WBC": 12, "MCF7": 8}
    module.make(tmp_path, 5, overlap=0.05, jitter_px=(1.5, 2.5))
    corners = np.loadtxt(tmp_path / "evaluation" / "tile_positions.csv", delimiter=",", skiprows=1)[:, 1:]
    assert np.abs(np.diff(corners, axis=0)).max() > 0.95 * 160 - 5


def test_lsm_files_are_read_back(tmp_path: Path) -> None:
    tiles = np.random.default_rng(0).integers(0, 4095, (4, 2, 3, 17, 21)).astype(np.uint16)
    channels = [Channel(name, (255, 0, 0), (400.0, 450.0)) for name in ("A", "Bb", "C c")]
    positions = np.arange(12.0).reshape(4, 3)
    write_lsm(tmp_path / "a.lsm", tiles, channels=channels, voxel_um=(2.0, 0.3, 0.2), tile_positions_um=positions)
    with tifffile.TiffFile(tmp_path / "a.lsm") as file:
        metadata = file.lsm_metadata or {}
        assert np.array_equal(file.asarray(), tiles)
        assert metadata["ChannelColors"]["ColorNames"] == ["A", "Bb", "C c"]
        assert metadata["ChannelWavelength"][2].tolist() == pytest.approx([400e-9, 450e-9])
        assert np.allclose(metadata["TilePositions"] * 1e6, positions[:, ::-1])
        sizes = [metadata[f"VoxelSize{axis}"] * 1e6 for axis in "ZYX"]
        assert sizes == pytest.approx([2.0, 0.3, 0.2])
    write_lsm(tmp_path / "b.lsm", tiles[0], channels=channels, voxel_um=(2.0, 0.3, 0.2))
    with tifffile.TiffFile(tmp_path / "b.lsm") as file:
        assert file.series[0].axes == "ZCYX"
        assert np.array_equal(file.asarray(), tiles[0])
