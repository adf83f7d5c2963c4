"""Building blocks for volumes, and both volume pipelines on drawn bodies."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import tifffile
from scipy import ndimage

from agents.classical import brain_vessels, zebrafish_cells
from agents.classical._job import Job, parse_contract
from agents.classical._volumes import (
    Grid,
    deep_basins,
    faces_between,
    find_voxel_size,
    line_strength,
    merge_across,
    ridge_strength,
    voxel_size,
)

SPACING = (2.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Voxels measure 0.099 µm in x and y and 0.225 µm in z; the files do not say so.", (0.225, 0.099, 0.099)),
        ("Voxels are 2 um in z and 0.975 um in y and x.", (2.0, 0.975, 0.975)),
        ("0.1 µm in x, 0.2 µm in y, and 0.3 µm along z", (0.3, 0.2, 0.1)),
        ("The pixel size is 0.1 µm in x and y.", None),
        ("cells are 5 µm in size", None),
    ],
)
def test_voxel_size_is_read_from_the_request(text: str, expected: tuple[float, ...] | None) -> None:
    assert voxel_size(text) == expected


def test_the_file_knows_its_voxel_size_better_than_the_request(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    stack = np.zeros((3, 4, 5), np.uint8)
    tifffile.imwrite(
        path, stack, imagej=True, resolution=(4.0, 4.0), metadata={"axes": "ZYX", "unit": "um", "spacing": 0.5}
    )
    assert find_voxel_size(path, "1 µm in x, y and z")[0] == (0.5, 0.25, 0.25)
    tifffile.imwrite(path, stack, photometric="minisblack")
    assert find_voxel_size(path, "1 µm in x and y and 3 µm in z")[0] == (3.0, 1.0, 1.0)
    assert "assumed" in find_voxel_size(path, "no size")[1]


def test_grid_averages_and_restores() -> None:
    grid = Grid.near_cubic((3, 7, 8), (0.225, 0.099, 0.099))
    assert grid.factors == (1, 2, 2)
    labels = np.arange(3 * 4 * 4, dtype=np.int32).reshape(3, 4, 4)
    assert grid.restore(labels).shape == (3, 7, 8)
    assert np.array_equal(grid.reduce(grid.restore(labels).astype(float)), labels)


def test_ridges_see_sheets_and_lines_see_no_sheets() -> None:
    volume = np.zeros((24, 24, 24), np.float32)
    volume[:, 12, :] = 1.0
    ridge = ridge_strength(volume, (1.5, 1.5, 1.5), slab=7)
    assert ridge[12, 12, 12] > 5 * ridge[12, 5, 12]
    everywhere = np.ones(volume.shape, bool)
    on_sheet = line_strength(volume, 1.5, (1.0, 1.0, 1.0), everywhere)[0][12, 12, 12]
    line = np.zeros_like(volume)
    line[:, 12, 12] = 1.0
    on_line = line_strength(line, 1.5, (1.0, 1.0, 1.0), everywhere)[0][12, 12, 12]
    assert on_line > 0.02
    assert on_sheet < 0.1 * on_line


def test_basins_with_a_shallow_pass_are_one_and_faces_are_merged_faintest_first() -> None:
    x = np.arange(40)
    profile = np.maximum(5 - abs(x - 8), 0) + np.maximum(5 - abs(x - 15), 0) + np.maximum(6 - abs(x - 30), 0)
    depth = np.broadcast_to(profile.astype(np.float32), (5, 5, 40)).copy()
    basins, summits = deep_basins(depth, 1.0, 1.5)
    assert basins[2, 2, 8] != basins[2, 2, 15] != basins[2, 2, 30]
    shallow, _ = deep_basins(depth, 1.0, 2.5)
    assert shallow[2, 2, 8] == shallow[2, 2, 15] != shallow[2, 2, 30]
    assert sorted(np.unique(summits[1:])) == [5.0, 6.0]
    regions = np.repeat([1, 2, 3, 4], 5).astype(np.int32)[None, None].repeat(4, 0).repeat(4, 1)
    wall = np.zeros(regions.shape, np.float32)
    wall[..., 5], wall[..., 10], wall[..., 15] = 0.2, 0.9, 0.4
    faces = faces_between(regions, wall)
    assert faces.counts.tolist() == [16, 16, 16]
    assert len(np.unique(merge_across(regions, faces, 0.5))) == 2
    assert len(np.unique(merge_across(regions, faces, 0.1))) == 4


def job(tmp_path: Path, contract: str, words: str) -> Job:
    for name in ("input", "output"):
        (tmp_path / name).mkdir()
    text = f"{words}\n{contract}"
    return Job(tmp_path / "input", tmp_path / "output", text, parse_contract(text))


def membranes(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Nine brick-shaped cells with thin bright walls, above the floor of a noisy volume."""
    labels = np.zeros((30, 84, 84), np.uint16)
    y, x = np.indices((60, 60)) // 20
    labels[6:24, 12:72, 12:72] = 1 + 3 * y + x
    light = np.zeros(labels.shape)
    for axis in range(3):
        differ = np.diff(labels.astype(int), axis=axis) != 0
        pad = [(0, 1) if a == axis else (0, 0) for a in range(3)]
        light += np.pad(differ, pad)
    light = ndimage.gaussian_filter(light, 0.8) * 90 + 2
    return rng.poisson(light).clip(0, 255).astype(np.uint8), labels


def test_cells_between_membranes_are_found_and_measured(tmp_path: Path) -> None:
    image, truth = membranes(np.random.default_rng(0))
    contract = "- segmentation_masks (required, one file per image or sequence)\n  File name: *_seg.tif*\n"
    task = job(tmp_path, contract, "Voxels measure 0.2 µm in x, y and z.")
    tifffile.imwrite(tmp_path / "input" / "AB_x.tif", image)
    (tmp_path / "input" / "broken.tif").write_bytes(b"II*\0nonsense")
    zebrafish_cells.run(task)
    found = tifffile.imread(tmp_path / "output" / "AB_x_seg.tif")
    assert found.max() == 9
    for cell in range(1, 10):
        owner = np.bincount(found[truth == cell]).argmax()
        union = ((truth == cell) | (found == owner)).sum()
        assert ((truth == cell) & (found == owner)).sum() / union > 0.8
    with (tmp_path / "output" / "cell_morphometrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 9
    assert {row["sample_id"] for row in rows} == {"AB"}
    assert float(rows[4]["volume_um3"]) == pytest.approx(18 * 20 * 20 * 0.008, rel=0.15)
    assert 0.7 < float(rows[4]["sphericity"]) < 0.9  # a brick
    assert [failure.item for failure in task.failures] == ["broken.tif"]
    assert "broken.tif" in (tmp_path / "output" / "report.md").read_text()


def vessels(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A wide straight vessel with two capillaries that leave it, uneven glow, and a bright ball."""
    shape = (50, 80, 80)
    z, y, x = np.indices(shape) * np.array(SPACING).reshape(3, 1, 1, 1)
    wide = (y - 40) ** 2 + (x - 40) ** 2 <= 6.0**2
    one = ((z - 30) ** 2 + (y - 20 - 0.5 * (x - 40)) ** 2 <= 2.6**2) & (x > 40) & (y > 0)
    two = ((z - 70) ** 2 + (x - 40 + 0.4 * (y - 40)) ** 2 <= 2.6**2) & (y < 40)
    truth = wide | one | two
    ball = (z - 20) ** 2 + (y - 15) ** 2 + (x - 15) ** 2 <= 5.0**2
    light = 120 + 0.5 * x + 260 * (ndimage.gaussian_filter(truth.astype(float), (0.5, 0.8, 0.8))) + 150 * ball
    return rng.poisson(light).astype(np.uint16), truth


def test_vessels_are_found_and_their_network_described(tmp_path: Path) -> None:
    image, truth = vessels(np.random.default_rng(0))
    contract = "- vessel_masks (required, one file per image or sequence)\n  File name: *mask*.tif*\n"
    task = job(tmp_path, contract, "Voxels measure 1 µm in x and y and 2 µm in z.")
    tifffile.imwrite(tmp_path / "input" / "animal1.tiff", image)
    tifffile.imwrite(tmp_path / "input" / "flat.tiff", image[0])
    brain_vessels.run(task)
    found = tifffile.imread(tmp_path / "output" / "animal1_mask.tiff") > 0
    assert 2 * (found & truth).sum() / (found.sum() + truth.sum()) > 0.8
    assert not found[8:12, 12:18, 12:18].any()  # the ball
    with (tmp_path / "output" / "vessel_morphology.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["sample_id"] == "animal1"
    assert float(row["total_length_um"]) == pytest.approx(98 + 40 + 45, rel=0.25)
    assert 1 <= float(row["n_bifurcation_points"]) <= 4
    assert float(row["vessel_volume_fraction"]) == pytest.approx(found.mean(), rel=1e-4)
    assert [failure.item for failure in task.failures] == ["flat.tiff"]


def test_a_straight_tube_is_one_branch_of_its_length_and_width() -> None:
    mask = np.zeros((20, 20, 60), bool)
    z, y = np.indices((20, 20)) * np.array([2.0, 1.0]).reshape(2, 1, 1)
    mask[((z - 20) ** 2 + (y - 10) ** 2 <= 4.2**2)] = True
    network = brain_vessels.trace(mask, SPACING)
    assert len(network.length_um) == 1
    assert network.length_um[0] == pytest.approx(59, abs=6)
    assert network.diameter_um[0] == pytest.approx(8.4, abs=2.0)
    assert network.tortuosity[0] == pytest.approx(1.0, abs=0.05)
    assert (network.bifurcations, network.ends, network.pieces) == (0, 2, 1)
