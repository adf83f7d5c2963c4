"""Demo data of brain_vessels: layout, truth without contradictions, and what makes it hard."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from scipy import ndimage

SLUG = "brain_vessels"
SPACING = (2.0, 0.975, 0.975)

Stack = tuple[NDArray[np.uint16], NDArray[np.bool_]]


@pytest.fixture(scope="module")
def stacks(demo: Any) -> list[Stack]:
    data = demo(SLUG)
    return [
        (tifffile.imread(path), tifffile.imread(data.evaluation / f"Binary_{path.name}") > 0)
        for path in sorted(data.input.iterdir())
    ]


def test_same_seed_same_bytes(load_simulator: Any, digests: Any, tmp_path: Any) -> None:
    found = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        module = load_simulator(SLUG)
        module.ANIMALS = (204,)
        module.make(tmp_path / name, seed)
        found.append(digests(tmp_path / name))
    assert found[0] == found[1]
    assert set(found[0]) == set(found[2])
    assert all(found[0][name] != found[2][name] for name in found[0])


def test_layout_is_the_published_one(demo: Any) -> None:
    data = demo(SLUG)
    names = {path.name for path in data.input.iterdir()}
    assert len(names) == 6
    assert all(re.fullmatch(r"control\d{3}_r_RA\.tiff", name) for name in names)
    assert {path.name for path in data.evaluation.iterdir()} == {f"Binary_{name}" for name in names}
    for path in data.input.iterdir():
        with tifffile.TiffFile(path) as image, tifffile.TiffFile(data.evaluation / f"Binary_{path.name}") as truth:
            assert image.series[0].dtype == np.uint16
            assert truth.series[0].dtype == np.uint8
            assert image.series[0].shape == truth.series[0].shape
            assert len(set(image.series[0].shape)) == 2  # one more plane than rows and columns, as published
            assert not image.pages.first.description
    assert sum(path.stat().st_size for path in data.folder.rglob("*.tiff")) < 20e6


def test_vessels_fill_a_few_percent_and_hang_together(stacks: list[Stack]) -> None:
    for _, mask in stacks:
        assert set(np.unique(mask)) == {False, True}
        assert 0.015 < mask.mean() < 0.09
        pieces, _ = ndimage.label(mask, np.ones((3, 3, 3)))
        assert np.bincount(pieces.ravel())[1:].max() > 0.5 * mask.sum()


def test_widths_range_from_capillaries_to_large_vessels(stacks: list[Stack]) -> None:
    widest, thin = [], []
    for _, mask in stacks:
        depth = ndimage.distance_transform_edt(mask, sampling=SPACING)
        widest.append(depth.max())
        crest = (depth == ndimage.maximum_filter(depth, 3)) & mask
        thin.append(np.percentile(depth[crest], 20))
    assert max(widest) > 6.0  # µm from the wall: wider than 12 µm
    assert max(widest) < 11.0
    assert np.median(thin) < 2.5


def test_vessels_are_bright_unevenly_and_other_things_are_bright_too(stacks: list[Stack]) -> None:
    for image, mask in stacks:
        inside, outside = image[mask].astype(float), image[~mask].astype(float)
        assert inside.mean() > 1.4 * outside.mean()
        assert np.percentile(outside, 99.5) > np.percentile(inside, 10)  # no single threshold parts them
        far = ~ndimage.binary_dilation(mask, iterations=4)
        smooth = ndimage.gaussian_filter(image.astype(float), (0.5, 1, 1))
        assert smooth[far].max() > np.median(inside)  # clumps and cells
        assert image.max() < 2**16 - 1


def test_light_is_lost_along_x_and_stripes_follow_it(stacks: list[Stack]) -> None:
    losses = []
    for image, mask in stacks:
        tissue = np.where(mask, np.nan, image)
        along = np.nanmedian(tissue, axis=(0, 1))
        losses.append(along[:20].mean() / along[-20:].mean())
        rows = np.nanmedian(tissue, axis=2)
        ripple = rows - ndimage.gaussian_filter(rows, (3, 6))
        assert ripple.std() > 3.0
    assert np.median(losses) > 1.08
