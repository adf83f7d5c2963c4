"""The migration pipeline on textures moved by known amounts, and on a real image pair with a public vector field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image as PillowImage
from scipy import ndimage

from agents.classical._job import Job, parse_contract
from agents.classical.wound_healing import Sheet, band_means, flatten, flow, run

REAL = Path(__file__).resolve().parents[3].parent / "shared" / "real" / "wound" / "openpiv_pairs"
INSTRUCTION = """\
- speed_kymograph (required, one file per image or sequence)
  File name: *speedKymograph.tif*
- velocity_x (required, one file per image or sequence)
  File name: *_mf_dxs.tif*
- velocity_y (required, one file per image or sequence)
  File name: *_mf_dys.tif*
"""


def texture(shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return ndimage.gaussian_filter(rng.standard_normal(shape), 2.0) * 2.0


def series(frames: int, um: float, speed_um_h: float, shape: tuple[int, int] = (120, 200)) -> tuple[Any, Any]:
    """Two sheets that close in on a wound at one speed, each as a rigid texture, and the cells of each frame."""
    hours = 14.5 / 60
    left, right = texture((shape[0], shape[1] + 80), 1), texture((shape[0], shape[1] + 80), 2)
    rng = np.random.default_rng(3)
    images, cells = [], []
    for t in range(frames):
        step = speed_um_h * hours / um * t
        x = np.arange(shape[1])
        edge = 0.34 * shape[1] + step
        from_left = ndimage.shift(left, (0, step), order=3)[:, 40 : 40 + shape[1]]
        from_right = ndimage.shift(right, (0, -step), order=3)[:, 40 : 40 + shape[1]]
        mask = np.tile((x < edge) | (x >= shape[1] - edge), (shape[0], 1))
        scene = np.where(x < shape[1] / 2, from_left, from_right) * ndimage.gaussian_filter(mask.astype(float), 1.0)
        images.append((100 * (1 + 0.5 * scene) + rng.normal(0, 1.5, shape)).clip(0, 255).astype(np.uint8))
        cells.append(mask)
    return np.stack(images), np.stack(cells)


def write(folder: Path, images: np.ndarray, cells: np.ndarray, um: tuple[int, int]) -> None:
    folder.mkdir(parents=True)
    options: dict[str, Any] = {"imagej": True, "resolution": ((um[1], um[0]), (um[1], um[0]))}
    metadata = {"axes": "TYX", "unit": "um", "finterval": 14.5, "tunit": "min"}
    tifffile.imwrite(folder / "E1_L2_image_stack.tif", images, metadata=metadata, **options)
    tifffile.imwrite(folder / "E1_L2_roi.tif", cells[0].astype(np.uint8))


def test_flow_recovers_a_shift_of_several_pixels() -> None:
    image = texture((140, 180))
    moved = ndimage.shift(image, (2.6, -3.4), order=3, mode="nearest")
    motion = flow(image.astype(np.float32), moved.astype(np.float32), np.ones(image.shape, np.float32), 5.0)
    inner = motion[:, 15:-15, 15:-15]
    assert np.median(inner[0]) == pytest.approx(2.6, abs=0.05)
    assert np.median(inner[1]) == pytest.approx(-3.4, abs=0.05)
    assert np.percentile(np.hypot(inner[0] - 2.6, inner[1] + 3.4), 95) < 0.3


def test_flow_recovers_rotation_and_ignores_masked_ground() -> None:
    image = texture((140, 180))
    y, x = np.indices(image.shape)
    truth = 0.03 * np.stack([x - 90.0, -(y - 70.0)])
    moved = ndimage.map_coordinates(image, np.indices(image.shape) - truth, order=3, mode="nearest")
    weight = (x > 60).astype(np.float32)
    moved = np.where(x > 60, moved, image)  # the ground stands still
    motion = flow(image.astype(np.float32), moved.astype(np.float32), weight, 5.0)
    part = np.s_[20:-20, 66:-20]
    assert np.median(np.hypot(*(motion - truth))[part]) < 0.15


def test_bands_take_their_upper_limit_and_not_their_lower_one() -> None:
    cells = np.zeros((5, 12), bool)
    cells[:, 2:] = True  # distances 1, 2, 3, ... from column 2 on
    speed = np.tile(np.arange(12.0), (5, 1))
    assert band_means(speed, cells, 3, 3).tolist() == [3.0, 6.0, 9.0]
    assert np.isnan(band_means(speed, cells, 3, 5)[4])


def test_the_edge_is_followed_until_the_sides_meet() -> None:
    um = 2.48
    images, cells = series(10, um, 50.0)
    sheet = Sheet(flatten(images[0], um), cells[0], um)
    assert sheet.agreement > 0.9
    for t in range(1, 10):
        motion = np.zeros((2, *cells[0].shape))
        motion[1] = np.where(np.arange(200) < 100, 1.0, -1.0) * 50.0 * 14.5 / 60 / um
        found = sheet.advance(flatten(images[t], um), motion)
        if sheet.closed():
            break
        assert np.mean(found == cells[t]) > 0.95
    assert t in (6, 7, 8)  # 64 px of wound, 9.7 px less per frame


@pytest.mark.parametrize("um", [(62, 25), (31, 25)])
def test_speeds_and_calibration(um: tuple[int, int], tmp_path: Path) -> None:
    size = um[0] / um[1]
    shape = (round(120 * 2.48 / size), round(200 * 2.48 / size))
    images, cells = series(4, size, 20.0, shape)
    given, output = tmp_path / "input", tmp_path / "output"
    write(given / "COND_E1_L2", images, cells, um)
    output.mkdir()
    job = Job(given, output, INSTRUCTION, parse_contract(INSTRUCTION))
    assert job.finish(run) == 0, job.failures
    table = tifffile.imread(output / "COND_E1_L2" / "E1_L2_speedKymograph.tif")
    patch = int(np.ceil(15 / size))
    assert table.shape == (int(0.34 * shape[1] // patch), 3)
    assert np.median(table) == pytest.approx(20.0, abs=1.5)
    x = tifffile.imread(output / "COND_E1_L2" / "E1_L2_mf_dxs.tif")
    assert x.shape == shape
    assert np.median(x[:, 10 : round(0.3 * shape[1])]) == pytest.approx(20.0, abs=1.5)
    assert np.median(x[:, -round(0.3 * shape[1]) : -10]) == pytest.approx(-20.0, abs=1.5)
    assert not x[:, shape[1] // 2].any()
    assert not job.failures
    assert {path.stem for path in (output / "figures").glob("*.svg")} == {
        "speed_kymographs",
        "first_frame_velocities_and_edges",
        "conditions",
    }


def test_an_experiment_without_mask_costs_only_itself(tmp_path: Path) -> None:
    images, cells = series(3, 2.48, 20.0, (90, 150))
    given, output = tmp_path / "input", tmp_path / "output"
    write(given / "A", images, cells, (62, 25))
    write(given / "B", images, cells, (62, 25))
    (given / "B" / "E1_L2_roi.tif").unlink()
    output.mkdir()
    job = Job(given, output, INSTRUCTION, parse_contract(INSTRUCTION))
    assert job.finish(run) == 0
    assert [failure.item for failure in job.failures] == ["E1_L2_image_stack.tif"]
    assert "1 of 2 experiments could not be processed" in (output / "report.md").read_text()


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the image pair in ../shared/real/wound")
def test_motion_agrees_with_a_public_tool_on_a_real_pair() -> None:
    one, two = (np.asarray(PillowImage.open(REAL / f"exp1_001_{frame}.bmp").convert("L"), float) for frame in "ab")
    x, y, u, v, flag = np.loadtxt(REAL / "test_data.vec").T[:5]
    per_unit = 96.52  # pixels; y counts upward from the lower edge
    rows, columns = np.rint(one.shape[0] - 1 - y * per_unit).astype(int), np.rint(x * per_unit).astype(int)
    first, second = (ndimage.gaussian_filter(image, 1.0).astype(np.float32) for image in (one, two))
    first, second = (image - ndimage.gaussian_filter(image, 16) for image in (first, second))
    motion = flow(first, second, np.ones(first.shape, np.float32), 12.0)
    found = np.stack([motion[1], -motion[0]])[:, rows, columns]
    public = np.stack([u, v]) * per_unit
    valid = flag == 0
    assert np.median(np.hypot(*public)) > 5.0  # a motion of several pixels
    assert np.median(np.hypot(*(found - public))[valid]) < 0.35
    assert np.corrcoef(found[:, valid].ravel(), public[:, valid].ravel())[0, 1] > 0.99
