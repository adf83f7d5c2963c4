"""Surfaces of masks, with values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import ndimage

from evaluators.metrics.surfaces import dilated, holds_block, surface, surface_scores


def tube(radius: float, shape: tuple[int, int, int] = (24, 21, 21), shift: int = 0) -> np.ndarray:
    _, y, x = np.indices(shape)
    return np.asarray((y - 10) ** 2 + (x - 10 - shift) ** 2 <= radius**2)


@settings(max_examples=60, deadline=None)
@given(arrays(bool, st.sampled_from([(5, 6), (4, 5, 3)])))
def test_surface_and_dilation_agree_with_scipy(mask: np.ndarray) -> None:
    cross = ndimage.generate_binary_structure(mask.ndim, 1)
    cube = np.ones((3,) * mask.ndim, bool)
    assert np.array_equal(surface(mask), mask & ~ndimage.binary_erosion(mask, cross, border_value=1))
    assert np.array_equal(dilated(mask), ndimage.binary_dilation(mask, cube))
    assert np.array_equal(dilated(mask, 2), ndimage.binary_dilation(mask, cube, iterations=2))


def test_one_voxel_of_width_does_not_count_and_three_do() -> None:
    truth = tube(3)
    for radius in (2, 4):
        assert surface_scores(truth, tube(radius)).dice == 1.0
        overlap = 2 * (truth & tube(radius)).sum() / (truth.sum() + tube(radius).sum())
        assert overlap < 0.75  # while Dice depends on where the wall of a thin tube is drawn
    assert surface_scores(truth, tube(7)).dice == 0.0


def test_a_plane_of_a_square_prism() -> None:
    truth = np.zeros((12, 12), bool)
    truth[3:9, 3:9] = True  # outline of 20 pixels
    moved = np.roll(truth, 2, axis=1)
    # By 2 columns: the long sides lie 2 off except for their ends, the short ones overlap.
    near = dilated(surface(moved))
    expected = (np.count_nonzero(surface(truth) & near)) / 20
    assert surface_scores(truth, moved).dice == pytest.approx(expected)
    assert 0.5 < expected < 0.8


def test_empty_and_full_masks() -> None:
    nothing, everything = np.zeros((6, 6, 6), bool), np.ones((6, 6, 6), bool)
    assert surface_scores(nothing, nothing).dice == 1.0
    assert surface_scores(everything, everything).dice == 1.0
    assert surface_scores(tube(3), np.zeros_like(tube(3))).dice == 0.0
    assert surface_scores(tube(3), np.ones_like(tube(3))).dice == 0.0


def test_chance_is_what_a_lattice_of_points_reaches() -> None:
    truth = tube(4, (48, 42, 42))
    lattice = np.zeros_like(truth)
    lattice[1::3, 1::3, 1::3] = True  # every voxel lies beside one of its points
    scores = surface_scores(truth, lattice)
    assert scores.dice > 0.25
    assert scores.chance == pytest.approx(scores.dice, abs=0.03)
    assert surface_scores(truth, truth).chance < 0.25


def test_shapes_must_fit() -> None:
    with pytest.raises(ValueError, match="shapes differ"):
        surface_scores(np.zeros((3, 3), bool), np.zeros((3, 4), bool))


def test_blocks_are_found_where_they_are_aligned() -> None:
    mask = np.zeros((20, 20, 20), bool)
    mask[4:12, 4:12, 4:12] = True
    assert holds_block(mask, 4)
    assert not holds_block(mask, 8)
    mask[8:16, 8:16, 8:16] = True
    assert holds_block(mask, 8)
    assert not holds_block(mask, 64)
