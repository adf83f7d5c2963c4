"""Centrelines, clDice, continuity and topology on small shapes with values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.ndimage import gaussian_filter
from skimage.measure import euler_number
from skimage.morphology import skeletonize

from evaluators.metrics.skeletons import (
    CentrelineScores,
    betti_numbers,
    bounding_box,
    centreline_scores,
    continuity,
    euler_characteristic,
    skeletonise,
)


def line(length: int = 21, width: int = 1, shape: tuple[int, int] = (9, 25)) -> np.ndarray:
    """A horizontal bar starting at column 2."""
    mask = np.zeros(shape, bool)
    mask[4 - width // 2 : 4 + width // 2 + 1, 2 : 2 + length] = True
    return mask


def masks(*shapes: tuple[int, ...]) -> st.SearchStrategy[np.ndarray]:
    return st.one_of(*(arrays(bool, shape) for shape in shapes))


@pytest.mark.parametrize("ndim", [2, 3])
def test_thinning_the_bounding_box_equals_thinning_the_image(ndim: int) -> None:
    rng = np.random.default_rng(ndim)
    field = gaussian_filter(rng.standard_normal((40,) * ndim), 2.0)
    for low in (0, 7):
        mask = field > 0.3 * field.std()
        mask[:low] = mask[..., :low] = False
        assert np.array_equal(skeletonise(mask), skeletonize(mask))


def test_a_mask_is_never_without_a_centreline() -> None:
    cube = np.zeros((6, 6, 6), bool)
    cube[2:4, 2:4, 2:4] = True
    assert not skeletonize(cube).any()
    assert np.array_equal(skeletonise(cube), cube)
    assert not skeletonise(np.zeros((6, 6), bool)).any()


def test_only_2d_and_3d() -> None:
    with pytest.raises(ValueError, match="2 or 3 axes"):
        skeletonise(np.ones(4, bool))
    with pytest.raises(ValueError, match="2 or 3 axes"):
        betti_numbers(np.ones((2, 2, 2, 2), bool))


def test_bounding_box() -> None:
    mask = np.zeros((5, 6, 7), bool)
    assert bounding_box(mask) is None
    mask[1, 2, 3] = mask[3, 2, 5] = True
    assert bounding_box(mask) == (slice(1, 4), slice(2, 3), slice(3, 6))


def test_cl_dice_of_half_a_line() -> None:
    truth = line(20)
    half = truth.copy()
    half[:, 12:] = False  # 10 of 20 pixels
    scores = centreline_scores(half, truth)
    assert scores == CentrelineScores(precision=1.0, sensitivity=0.5)
    assert scores.dice == pytest.approx(2 / 3)


def test_cl_dice_ignores_width_where_dice_does_not() -> None:
    truth, thick = line(21, 3), line(21, 5)
    assert centreline_scores(thick, truth).dice == 1.0
    assert 2 * (truth & thick).sum() / (truth.sum() + thick.sum()) == pytest.approx(0.75)


def test_cl_dice_of_empty_masks() -> None:
    empty = np.zeros((9, 25), bool)
    assert centreline_scores(empty, empty).dice == 1.0
    assert centreline_scores(line(), empty).dice == 0.0
    assert centreline_scores(empty, line()).dice == 0.0


def test_known_skeletons_are_used() -> None:
    truth = line(21, 3)
    scores = centreline_scores(truth, truth, predicted_skeleton=~truth, truth_skeleton=skeletonise(truth))
    assert scores.precision == 0.0
    assert scores.sensitivity == 1.0


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="shapes differ"):
        centreline_scores(line(), np.zeros((3, 3), bool))
    with pytest.raises(ValueError, match="shapes differ"):
        continuity(line(), np.zeros((3, 3), bool))


def test_cl_dice_agrees_in_3d() -> None:
    truth = np.zeros((9, 9, 30), bool)
    truth[3:6, 3:6, 2:28] = True
    half = truth.copy()
    half[..., 15:] = False
    scores = centreline_scores(half, truth)
    assert scores.precision == 1.0
    assert scores.sensitivity == pytest.approx(0.5, abs=0.06)


def test_continuity_of_a_straight_line() -> None:
    truth = line(20)
    assert continuity(truth, truth) == 1.0
    assert continuity(~truth, truth, tolerance_px=0) == 0.0
    gap = truth.copy()
    gap[:, 10] = False  # runs of 8 and 11
    assert continuity(gap, truth, tolerance_px=0) == pytest.approx((8**2 + 11**2) / 20**2)
    dashes = truth.copy()
    dashes[:, 6::5] = False  # four runs of 4
    assert continuity(dashes, truth, tolerance_px=0) == pytest.approx(4 * 4**2 / 20**2)


def test_continuity_cuts_at_junctions() -> None:
    cross = np.zeros((11, 11), bool)
    cross[5, :] = cross[:, 5] = True
    # The centre and its four neighbours touch three or more others over faces or corners; the corner links between
    # the four neighbours run through the centre and do not count, so that only the centre is a junction.
    missing_arm = cross.copy()
    missing_arm[5, 6:] = False
    assert continuity(missing_arm, cross, tolerance_px=0) == pytest.approx(3 / 4)


def test_a_staircase_has_no_junctions() -> None:
    stairs = np.zeros((12, 12), bool)
    for k in range(5):
        stairs[k, k] = stairs[k, k + 1] = True
    broken = stairs.copy()
    broken[2, 2] = False  # the 10 pixels form one branch; 4 before, 5 after; (1, 2) links (2, 3) over a corner
    assert continuity(stairs, stairs) == 1.0
    assert continuity(broken, stairs, tolerance_px=0) == pytest.approx((4**2 + 5**2) / 10**2)


def test_continuity_forgives_a_small_offset_but_no_gap() -> None:
    truth = line(20)
    beside = np.roll(truth, 1, axis=0)
    assert continuity(beside, truth) == 1.0
    assert continuity(np.roll(truth, 2, axis=0), truth) == 0.0
    gap = truth.copy()
    gap[:, 10] = False  # the pixel of the gap lies beside a piece, yet the pieces are two: runs of 8 + 12 or 9 + 11
    assert continuity(gap, truth) in (pytest.approx((8**2 + 12**2) / 20**2), pytest.approx((9**2 + 11**2) / 20**2))


def test_continuity_in_3d_and_without_branches() -> None:
    tube = np.zeros((5, 5, 20), bool)
    tube[2, 2, 1:19] = True
    gap = tube.copy()
    gap[..., 9] = False  # runs of 8 and 9 of 18
    assert continuity(gap, tube, tolerance_px=0) == pytest.approx((8**2 + 9**2) / 18**2)
    assert continuity(tube, np.zeros_like(tube)) is None


def test_betti_numbers_2d() -> None:
    figure_eight = np.zeros((5, 9), bool)
    figure_eight[0, :] = figure_eight[-1, :] = True
    figure_eight[:, [0, 4, 8]] = True
    assert betti_numbers(figure_eight) == (1, 2)
    assert betti_numbers(np.zeros((3, 3), bool)) == (0, 0)
    diagonal = np.eye(4, dtype=bool)  # one object over corners; the background parts meet outside
    assert betti_numbers(diagonal) == (1, 0)


def test_betti_numbers_3d() -> None:
    torus = np.ones((3, 7, 7), bool)
    torus[:, 2:5, 2:5] = False
    assert betti_numbers(torus) == (1, 1, 0)
    shell = np.ones((5, 5, 5), bool)
    shell[2, 2, 2] = False
    assert betti_numbers(shell) == (1, 0, 1)
    assert betti_numbers(np.zeros((2, 2, 2), bool)) == (0, 0, 0)


@settings(max_examples=40, deadline=None)
@given(masks((6, 7), (4, 5, 4)))
def test_euler_characteristic_is_that_of_scikit_image(mask: np.ndarray) -> None:
    assert euler_characteristic(mask) == euler_number(mask, connectivity=mask.ndim)
    betti = betti_numbers(mask)
    assert sum(number * (-1) ** k for k, number in enumerate(betti)) == euler_characteristic(mask)


@settings(max_examples=40, deadline=None)
@given(arrays(bool, (8, 9)), arrays(bool, (8, 9)))
def test_scores_are_shares_and_more_coverage_never_lowers_continuity(truth: np.ndarray, other: np.ndarray) -> None:
    centre = skeletonise(truth)
    part = continuity(truth & other, centre, tolerance_px=0)
    more = continuity(truth | other, centre, tolerance_px=0)
    if part is None or more is None:
        assert not truth.any()
        return
    assert 0.0 <= part <= more <= 1.0
    assert 0.0 <= centreline_scores(other, truth).dice <= 1.0
    assert continuity(truth[::-1], centre[::-1]) == pytest.approx(continuity(truth, centre))
