"""The filament pipeline on drawn filaments, and on an image of other people."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile
from scipy import ndimage

from agents.classical._job import Job, parse_contract
from agents.classical.microtubules import _length, bridge, draw, filament_width, flatten, prune, ridges, run, segment

REAL = Path(__file__).resolve().parents[3].parent / "shared" / "real" / "filaments" / "tirf_microtubules_raw"
INSTRUCTION = """\
Please trace each microtubule.
- segmentation_masks (required, one file per image or sequence)
  File name: *mask*.tif*
"""


def make_image(gap: int = 0, brightness: float = 20.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A slanted and a bent filament on an uneven background, and the band of pixels around their axes."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0.0, 1.0, 1200)
    paths = [np.column_stack((30 + 90 * t, 25 + 110 * t)), np.column_stack((120 - 70 * t, 30 + 60 * t + 40 * t**2))]
    light = np.zeros((160, 160))
    distance = np.full(light.shape, np.inf)
    y, x = np.indices(light.shape)
    for path in paths:
        lit = np.ones(len(path), bool)
        lit[600 : 600 + gap] = False
        np.add.at(light, tuple(np.rint(path[lit]).astype(int).T), brightness * 2.5 / 10)
        for point in path[::4]:
            distance = np.minimum(distance, np.hypot(y - point[0], x - point[1]))
    light = ndimage.gaussian_filter(light, 1.0) * 4 + 6 + 0.05 * x
    return (4 * rng.poisson(light)).clip(0, 255).astype(np.uint8), distance <= 1.5


def dice(one: np.ndarray, other: np.ndarray) -> float:
    return float(2 * (one & other).sum() / (one.sum() + other.sum()))


def test_filaments_are_found_in_noise_with_their_width() -> None:
    image, truth = make_image()
    mask, line, ridge = segment(image)
    assert dice(mask, truth) > 0.85
    assert ndimage.label(line, np.ones((3, 3)))[1] <= 2
    assert filament_width(flatten(image)[0], ridge) == pytest.approx(1.05, abs=0.25)


def test_nothing_is_found_in_noise_alone() -> None:
    noise = (4 * np.random.default_rng(1).poisson(8.0, (160, 160))).astype(np.uint8)
    assert not segment(noise)[0].any()


def test_a_gap_is_closed_along_the_ridge() -> None:
    whole = np.zeros((40, 60), bool)
    whole[20, 5:55] = True
    ridge = ridges(30 * ndimage.gaussian_filter(whole.astype(np.float32), 1.0), np.ones(whole.shape, np.float32))
    broken = whole.copy()
    broken[20, 25:33] = False
    assert ndimage.label(bridge(broken, ridge), np.ones((3, 3)))[1] == 1
    dark = ridges(30 * ndimage.gaussian_filter(broken.astype(np.float32), 1.0), np.ones(whole.shape, np.float32))
    far = whole.copy()
    far[20, 18:42] = False
    assert ndimage.label(bridge(far, dark), np.ones((3, 3)))[1] == 2  # beyond reach


def test_short_side_branches_are_cut() -> None:
    line = np.zeros((30, 50), bool)
    line[15, 2:48] = True
    line[10:15, 25] = True
    assert not prune(line, 8.0)[:13].any()
    line[2:15, 25] = True
    assert prune(line, 8.0)[4, 25]


def test_bands_follow_the_axis_between_pixels() -> None:
    y, x = np.indices((40, 60))
    profile = np.exp(-0.5 * ((y - 20.4) / 1.2) ** 2).astype(np.float32)
    ridge = ridges(30 * profile, np.ones(profile.shape, np.float32))
    line = np.zeros(profile.shape, bool)
    line[20, 5:55] = True
    rows = np.flatnonzero(draw(line, ridge)[:, 30])
    assert rows.tolist() == [19, 20, 21]
    assert np.flatnonzero(draw(line, ridge, 2.2)[:, 30]).tolist() == [19, 20, 21, 22]
    assert x.shape == y.shape


def test_length_counts_diagonals() -> None:
    assert _length(np.eye(11, dtype=bool)) == pytest.approx(10 * np.sqrt(2))
    bar = np.zeros((3, 11), bool)
    bar[1] = True
    assert _length(bar) == 10


def test_a_broken_image_costs_only_itself(tmp_path: Path) -> None:
    given, output = tmp_path / "input", tmp_path / "output"
    given.mkdir()
    output.mkdir()
    image, _ = make_image()
    tifffile.imwrite(given / "report_0003.noisy.tiff", image)
    (given / "report_0005.noisy.tiff").write_bytes(b"II*\0 broken")
    tifffile.imwrite(given / "report_0007.noisy.tiff", np.full((80, 80), 7, np.uint8))
    job = Job(given, output, INSTRUCTION, parse_contract(INSTRUCTION))
    assert job.finish(run) == 0
    assert sorted(path.name for path in output.glob("*.tif")) == ["report_0003_mask.tif", "report_0007_mask.tif"]
    assert not tifffile.imread(output / "report_0007_mask.tif").any()
    assert [failure.item for failure in job.failures] == ["report_0005.noisy.tiff"]
    report = (output / "report.md").read_text()
    assert "1 of 3 images could not be processed" in report
    assert (output / "figures" / "panels.svg").is_file()


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the image in ../shared/real/filaments")
def test_real_microtubules_give_thin_long_lines() -> None:
    image = tifffile.imread(REAL / "Composite_z001_c001_crop.tif")
    mask, line, _ = segment(np.squeeze(image))
    assert 0.01 < mask.mean() < 0.25
    sizes = np.bincount(ndimage.label(line, np.ones((3, 3)))[0].ravel())[1:]
    assert sizes.max() > 60
