"""Segmentation building blocks on shapes whose answer can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage as ndi

from agents.classical._segment import (
    background_surface,
    blob_radius,
    compact_objects,
    contacts,
    convex_hull,
    distance_inside,
    flat_background,
    half_height,
    hull_pixels,
    hull_width,
    inner_radii,
    label_medians,
    merge_convex,
    noise_sigma,
    object_radius,
    opened,
    otsu,
    region_outlines,
    relabel,
    ring_contrast,
    split_touching,
    steepest_fraction,
    tidy,
)


def disc(shape: tuple[int, int], y: float, x: float, radius: float) -> np.ndarray:
    rows, cols = np.ogrid[: shape[0], : shape[1]]
    return (rows - y) ** 2 + (cols - x) ** 2 <= radius**2


def two_discs(distance: float, radius: float = 10.0) -> np.ndarray:
    return disc((60, 80), 30, 30, radius) | disc((60, 80), 30, 30 + distance, radius)


# --- hulls ------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_hull_counts_the_pixels_inside_it(points: list[tuple[int, int]]) -> None:
    corners = convex_hull(np.array(points))
    rows, cols = np.mgrid[:31, :31]
    inside = np.ones((31, 31), dtype=bool)
    if len(corners) < 3:
        step = corners[-1] - corners[0]
        inside = (rows - corners[0, 0]) * step[1] == (cols - corners[0, 1]) * step[0]
        along = (rows - corners[0, 0]) * step[0] + (cols - corners[0, 1]) * step[1]
        inside &= (along >= 0) & (along <= step @ step)
        inside &= (rows == corners[0, 0]) & (cols == corners[0, 1]) if not step.any() else True
    else:
        for (y0, x0), (y1, x1) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
            inside &= (y1 - y0) * (cols - x0) - (x1 - x0) * (rows - y0) >= 0
    assert hull_pixels(corners) == inside.sum()


def test_a_rectangle_is_as_wide_as_its_short_side() -> None:
    labels = np.zeros((40, 40), dtype=np.int32)
    labels[5:11, 3:33] = 1
    hull = region_outlines(labels)[1]
    assert hull_width(hull) == pytest.approx(6)
    assert hull_pixels(hull) == 6 * 30


# --- tables over labels -----------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_label_medians_are_those_of_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 6, (9, 11)).astype(np.int32)
    image = rng.integers(0, 50, (9, 11)).astype(np.float32)
    present = np.unique(labels[labels > 0])
    found = label_medians(image, labels)
    np.testing.assert_allclose(found[present], ndi.median(image, labels, present))
    assert np.all(found[np.setdiff1d(np.arange(found.size), present)] == 0)


def test_contacts_measure_straight_lengths_and_the_pass() -> None:
    labels = np.zeros((8, 8), dtype=np.int32)
    labels[:, :4], labels[:, 4:] = 1, 2
    image = np.tile(np.arange(8, dtype=np.float32)[:, None], (1, 8))
    length, mean, highest = contacts(labels, image)[1, 2]
    assert (length, mean, highest) == (8, 3.5, 7)
    diagonal = (np.add.outer(np.arange(8), np.arange(8)) < 8).astype(np.int32) + 1
    assert contacts(diagonal, image)[1, 2][0] == pytest.approx(7 * np.sqrt(2), rel=0.05)
    assert contacts(np.ones((3, 3), dtype=np.int32), np.ones((3, 3), dtype=np.float32)) == {}


def test_distance_is_measured_to_other_labels_and_not_to_the_border() -> None:
    labels = np.ones((7, 10), dtype=np.int32)
    labels[:, 5:] = 2
    assert inner_radii(labels).tolist() == [0, 5, 5]
    assert distance_inside(np.ones((5, 5), dtype=bool)).min() > 5


def test_relabel_and_tidy_leave_no_gap_in_the_numbers() -> None:
    labels = np.zeros((20, 20), dtype=np.int32)
    labels[2:8, 2:8] = 7
    labels[4, 4] = 0  # a hole
    labels[12, 12] = 7  # a stray pixel
    labels[12:18, 2:8] = 9
    assert np.unique(relabel(labels)).tolist() == [0, 1, 2]
    clean = tidy(labels, 10)
    assert np.unique(clean).tolist() == [0, 1, 2]
    assert clean[4, 4] == 1
    assert clean[12, 12] == 0
    assert np.unique(tidy(labels, 10, keep_numbers=True)).tolist() == [0, 7, 9]
    assert tidy(labels, 100).max() == 0


def test_opening_keeps_what_a_disc_can_reach() -> None:
    body = disc((50, 50), 25, 20, 9)
    body[24:26, 28:46] = True  # a neurite
    result = opened(body, 3.0)
    assert not result[24:26, 33:].any()
    assert result[disc((50, 50), 25, 20, 8)].all()


# --- intensities ------------------------------------------------------------------------------------------------


def test_noise_is_measured_on_a_slope_with_objects() -> None:
    rng = np.random.default_rng(0)
    rows, cols = np.mgrid[:200, :200]
    image = 0.2 * rows + 0.1 * cols + 80 * disc((200, 200), 100, 100, 30) + rng.normal(0, 3.0, (200, 200))
    assert noise_sigma(image) == pytest.approx(3.0, rel=0.05)


def test_backgrounds_follow_a_ramp_below_objects() -> None:
    rng = np.random.default_rng(1)
    rows, cols = np.mgrid[:180, :240]
    truth = 20 + 0.05 * rows + 0.1 * cols
    objects = sum(100 * disc((180, 240), y, x, 8) for y in (30, 90, 150) for x in (40, 120, 200))
    image = truth + objects + rng.normal(0, 2.0, truth.shape)
    surface = background_surface(image, 80, 20)
    assert np.abs(surface - truth).mean() < 4  # a low percentile lies below the mean
    flat = flat_background(image, 80)
    assert np.abs(flat - truth).mean() < 1.0
    assert np.abs(flat - truth)[objects > 0].max() < 3.0


def test_otsu_of_one_value_is_the_default() -> None:
    assert otsu(np.ones(5)) == np.inf
    assert otsu([], default=0.0) == 0.0
    assert 0 < otsu([0, 1, 1, 9, 10, 10]) < 9


# --- size -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [4.0, 7.0, 12.0])
def test_blob_radius_finds_the_size_of_discs_and_ignores_specks(radius: float) -> None:
    rng = np.random.default_rng(2)
    image = np.zeros((220, 220))
    for y in range(30, 200, 45):
        for x in range(30, 200, 45):
            image += 50 * disc(image.shape, y + rng.uniform(-5, 5), x + rng.uniform(-5, 5), radius)
    image = ndi.gaussian_filter(image, 1.0)
    for y, x in rng.integers(0, 220, (15, 2)):
        image[y, x] += 200
    image += rng.normal(0, 2.0, image.shape)
    found = blob_radius([(image.astype(np.float32), 10.0)], 3.0, 30.0)
    assert found == pytest.approx(radius, rel=0.2)


def test_no_blob_no_radius() -> None:
    noise = np.random.default_rng(3).normal(0, 1, (80, 80)).astype(np.float32)
    assert blob_radius([(noise, 10.0)], 3.0, 20.0) is None
    assert object_radius([np.zeros((20, 20), dtype=bool)]) is None


def test_object_radius_is_that_of_convex_objects() -> None:
    masks = [disc((60, 60), 30, 30, 8) for _ in range(5)] + [two_discs(18, 10)]
    assert object_radius(masks) == pytest.approx(8.5, abs=0.6)


# --- splitting and merging --------------------------------------------------------------------------------------


def split(mask: np.ndarray, height: float = 1.0) -> np.ndarray:
    return split_touching(mask, ndi.gaussian_filter(distance_inside(mask), 1.0), height)


@pytest.mark.parametrize("distance", [16.0, 14.0, 13.0])
def test_overlapping_discs_are_split_and_stay_apart(distance: float) -> None:
    pieces = split(two_discs(distance), height=0.5)
    assert pieces.max() == 2
    even = np.ones(pieces.shape, dtype=np.float32)
    assert merge_convex(pieces, even, solidity=0.97, valley=0.9, waist=1.1).max() == 2


def test_pieces_of_an_ellipse_are_joined_again() -> None:
    rows, cols = np.mgrid[:60, :80]
    ellipse = ((rows - 30) / 12) ** 2 + ((cols - 40) / 26) ** 2 <= 1
    pieces = np.where(ellipse, np.where(cols < 34, 1, np.where(cols < 45, 2, 3)), 0).astype(np.int32)
    even = np.ones(pieces.shape, dtype=np.float32)
    joined = merge_convex(pieces, even, solidity=0.95, valley=0.9, waist=1.1)
    assert len(np.unique(joined[ellipse])) == 1
    dark = np.where((cols == 33) | (cols == 34), 0.3, 1.0).astype(np.float32)
    assert len(np.unique(merge_convex(pieces, dark, solidity=0.95, valley=0.9)[ellipse])) == 2
    assert len(np.unique(merge_convex(pieces, even, solidity=0.95, valley=0.9, max_area=500)[ellipse])) == 3


def test_rods_side_by_side_are_too_wide_to_be_one() -> None:
    labels = np.zeros((40, 60), dtype=np.int32)
    labels[10:18, 10:50], labels[18:26, 10:50] = 1, 2
    even = np.ones(labels.shape, dtype=np.float32)
    assert merge_convex(labels, even, solidity=0.8, valley=0.0).max() == 1
    kept = merge_convex(labels, even, solidity=0.8, valley=0.0, max_width=12)
    assert len(np.unique(kept[kept > 0])) == 2


def test_a_component_without_a_deep_maximum_still_gets_a_region() -> None:
    mask = disc((60, 80), 30, 20, 9) | disc((60, 80), 30, 60, 2)
    pieces = split(mask, height=3.0)
    assert pieces.max() == 2
    assert ((pieces > 0) == mask).all()


# --- outlines ---------------------------------------------------------------------------------------------------


def test_half_height_gives_bright_and_dim_discs_their_true_size() -> None:
    truth = [disc((80, 160), 40, 40, 15), disc((80, 160), 40, 120, 15)]
    image = ndi.gaussian_filter(200.0 * truth[0] + 20.0 * truth[1], 3.0).astype(np.float32)
    basins = np.ones((80, 160), dtype=np.int32)
    basins[:, 80:] = 2
    cores = np.where(image > 8, basins, 0).astype(np.int32)
    drawn = half_height(cores, image, basins, 0.5, rounds=3)
    for label, disc_truth in enumerate(truth, start=1):
        assert (drawn == label).sum() == pytest.approx(disc_truth.sum(), rel=0.06)
    fraction = steepest_fraction(cores, image, basins, 1.0)
    assert 0.35 <= fraction <= 0.55


def test_contrast_to_the_ring_tells_sharp_from_blurred_and_enclosed() -> None:
    rows, cols = np.mgrid[:120, :240]
    sharp = 50.0 * disc((120, 240), 60, 50, 8)
    glow = 50.0 * np.exp(-((rows - 60) ** 2 + (cols - 170) ** 2) / (2 * 30.0**2))
    image = (ndi.gaussian_filter(sharp, 1.0) + glow).astype(np.float32)
    labels = np.zeros(image.shape, dtype=np.int32)
    labels[disc(image.shape, 60, 50, 8)] = 1
    labels[disc(image.shape, 60, 170, 20)] = 3
    labels[disc(image.shape, 60, 170, 8)] = 2  # enclosed by label 3: compared with the ring around both
    contrast = ring_contrast(image, labels, 3, 8)
    assert contrast[1] > 45
    assert contrast[3] < 20
    assert contrast[2] < 25


def test_compact_objects_separate_touching_ones_of_any_brightness() -> None:
    rng = np.random.default_rng(4)
    centres = [(30, 30), (30, 47), (80, 40), (80, 90), (30, 100), (45, 108)]
    image = np.zeros((120, 140))
    for level, (y, x) in zip((60, 80, 200, 30, 90, 70), centres, strict=True):
        image = np.maximum(image, level * disc(image.shape, y, x, 9))
    image = ndi.gaussian_filter(image, 1.2) + rng.normal(0, 1.0, image.shape)
    labels = compact_objects(image.astype(np.float32), 9.0, floor=8.0)
    found = {int(labels[y, x]) for y, x in centres}
    assert len(found) == len(centres)
    assert 0 not in found
    assert labels.max() == len(centres)


def test_nothing_gives_no_objects() -> None:
    empty = np.zeros((40, 40), dtype=np.float32)
    assert compact_objects(empty, 5.0, floor=1.0).max() == 0
