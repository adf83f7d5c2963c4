"""Demo data of zebrafish_cells: layout, truth without contradictions, and what makes it hard."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from scipy import ndimage

SLUG = "zebrafish_cells"
VOXEL_UM3 = 0.225 * 0.099 * 0.099

Stack = tuple[NDArray[np.uint8], NDArray[np.uint16]]


@pytest.fixture(scope="module")
def stacks(demo: Any) -> list[Stack]:
    data = demo(SLUG)
    return [
        (tifffile.imread(path), tifffile.imread(data.evaluation / f"{path.stem}_seg.tif"))
        for path in sorted(data.input.iterdir())
    ]


def test_same_seed_same_bytes(load_simulator: Any, digests: Any, tmp_path: Any) -> None:
    found = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        module = load_simulator(SLUG)
        module.STACKS = (("0123456789", (30, 120, 200)),)
        module.make(tmp_path / name, seed)
        found.append(digests(tmp_path / name))
    assert found[0] == found[1]
    assert set(found[0]) == set(found[2])
    assert all(found[0][name] != found[2][name] for name in found[0])


def test_layout_is_the_published_one(demo: Any) -> None:
    data = demo(SLUG)
    stems = {path.stem for path in data.input.iterdir()}
    assert len(stems) == 3
    assert all(re.fullmatch(r"[0-9A-F]{10}_8bit_lynEGFP", stem) for stem in stems)
    assert {path.stem for path in data.evaluation.iterdir()} == {f"{stem}_seg" for stem in stems}
    for path in data.input.iterdir():
        with tifffile.TiffFile(path) as image, tifffile.TiffFile(data.evaluation / f"{path.stem}_seg.tif") as truth:
            assert image.series[0].dtype == np.uint8
            assert truth.series[0].dtype == np.uint16
            assert len(image.series[0].shape) == 3
            assert image.series[0].shape == truth.series[0].shape
            assert not image.pages.first.description  # no voxel size in the files
    assert sum(path.stat().st_size for path in data.folder.rglob("*.tif")) < 20e6


def test_every_cell_is_one_piece_of_a_cells_size(stacks: list[Stack]) -> None:
    for _, labels in stacks:
        count = int(labels.max())
        assert 15 <= count <= 60
        sizes = np.bincount(labels.ravel())[1:] * VOXEL_UM3
        assert sizes.min() >= 10.0
        assert sizes.max() < 400.0
        for cell, where in enumerate(ndimage.find_objects(labels), start=1):
            assert ndimage.label(labels[where] == cell)[1] == 1


def test_cells_touch_and_the_rear_ones_are_cut_by_the_image(stacks: list[Stack]) -> None:
    for _, labels in stacks:
        inner = labels[:, 1:] > 0
        touching = (labels[:, 1:] != labels[:, :-1]) & inner & (labels[:, :-1] > 0)
        assert touching.sum() > 5000
        at_ends = [len(np.unique(end)) - 1 for end in (labels[:, :, 0], labels[:, :, -1])]
        assert min(at_ends) == 0  # the front lies inside
        assert max(at_ends) >= 2
        assert not labels[[0, -1]].any()


def test_front_is_flat_and_rear_is_tall(stacks: list[Stack]) -> None:
    for _, labels in stacks:
        height = (labels > 0).sum(axis=0).max(axis=0) * 0.225
        if labels[:, :, 0].any():
            height = height[::-1]
        present = np.flatnonzero(height)
        front, rear = height[present[:20]].mean(), height[present[-100:]].mean()
        assert rear > 1.8 * front


def test_lumens_are_enclosed_background(stacks: list[Stack]) -> None:
    total = 0
    for _, labels in stacks:
        holes, count = ndimage.label(labels == 0)
        sizes = np.bincount(holes.ravel())
        enclosed = [k for k in range(1, count + 1) if k != holes[0, 0, 0] and sizes[k] * VOXEL_UM3 > 0.2]
        total += len(enclosed)
    assert total >= 3


def test_membranes_are_bright_and_unevenly_so(stacks: list[Stack]) -> None:
    for image, labels in stacks:
        edge = np.zeros(labels.shape, bool)
        edge[:, 1:] |= (labels[:, 1:] != labels[:, :-1]) & (labels[:, 1:] > 0) & (labels[:, :-1] > 0)
        inside = ndimage.minimum_filter(labels, 7) == ndimage.maximum_filter(labels, 7)
        assert image[edge].mean() > 4.0 * image[inside & (labels > 0)].mean()
        one, two = labels[:, 1:][edge[:, 1:]].astype(int), labels[:, :-1][edge[:, 1:]].astype(int)
        pair = np.minimum(one, two) * 1000 + np.maximum(one, two)
        _, index, size = np.unique(pair, return_inverse=True, return_counts=True)
        brightness = np.bincount(index, image[edge]) / size
        brightness = brightness[size > 200]
        assert np.percentile(brightness, 95) > 3.0 * np.percentile(brightness, 5)
        assert (image == 255).mean() < 0.005


def test_there_is_light_that_is_no_cell(stacks: list[Stack]) -> None:
    for image, truth in stacks:
        labels = truth[::2, ::3, ::3]
        smooth = ndimage.gaussian_filter(image.astype(float), 1.0)[::2, ::3, ::3]
        far = ndimage.distance_transform_edt(labels == 0, sampling=(0.45, 0.297, 0.297)) > 0.5
        assert smooth[far].max() > 4.0 * np.median(smooth[labels > 0])
