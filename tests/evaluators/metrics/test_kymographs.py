"""Kymograph and velocity measures on small arrays with values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.metrics.kymographs import (
    coverage,
    fitted,
    leading_band,
    mean_cosine,
    moving,
    near_faster_share,
    profile_free_concordance,
    sideways_agreement,
    toward_wound,
)


def wave(rows: int = 14, columns: int = 12) -> np.ndarray:
    b, t = np.mgrid[:rows, :columns]
    return 5.0 + 10.0 * np.exp(-b / 4.0) + 4.0 * np.exp(-(((b - t) / 2.0) ** 2))


def sheet(shape: tuple[int, int] = (40, 60)) -> np.ndarray:
    cells = np.ones(shape, bool)
    cells[:, 25:35] = False
    return cells


def test_fitted_cuts_and_fills_with_nan() -> None:
    table = fitted(np.array([[1.0, np.inf, 3.0], [4.0, 5.0, 6.0]]), (3, 2))
    assert np.isnan(table[0, 1])
    assert np.isnan(table[2]).all()
    assert table[1].tolist() == [4.0, 5.0]
    truth = np.array([[1.0, 2.0], [3.0, np.nan], [5.0, 6.0]])
    assert coverage(table, truth) == pytest.approx(2 / 5)


def test_a_sum_of_profiles_leaves_nothing() -> None:
    truth = wave()
    profiles = truth.mean(axis=1, keepdims=True) + truth.mean(axis=0, keepdims=True)
    assert profile_free_concordance(truth, truth) == pytest.approx(1.0)
    assert abs(profile_free_concordance(profiles, truth) or 0.0) < 1e-9
    assert abs(profile_free_concordance(profiles.astype(np.float32).astype(float), truth) or 0.0) < 1e-4
    assert abs(profile_free_concordance(np.full(truth.shape, 7.0), truth) or 0.0) < 1e-9


def test_profiles_may_be_wrong_where_the_pattern_is_right() -> None:
    truth = wave()
    other = truth + np.arange(14)[:, None] * 3.0 - np.arange(12)[None, :]
    assert profile_free_concordance(other, truth) == pytest.approx(1.0)
    # half the pattern: 2 * 0.5 / (1 + 0.25)
    assert profile_free_concordance(0.5 * truth, truth) == pytest.approx(0.8)


def test_holes_are_left_out_on_both_sides() -> None:
    truth = wave()
    holes = truth.copy()
    holes[3:5, 2:6] = np.nan
    assert profile_free_concordance(holes, truth) == pytest.approx(1.0)


def test_near_and_far_do_not_overlap() -> None:
    truth = np.tile(np.arange(14.0, 0.0, -1.0)[:, None], (1, 4))
    assert near_faster_share(truth, truth) == 1.0
    assert near_faster_share(truth[::-1], truth) == 0.0
    mixed = truth.copy()
    mixed[:, 3] = mixed[::-1, 3]
    assert near_faster_share(mixed, truth) == 0.75
    few = np.array([[3.0], [2.0], [1.0], [9.0]])
    assert near_faster_share(few, few) == 0.0  # near: rows 0 to 2, far: row 3 alone
    assert near_faster_share(few[:3], few[:3]) is None


def test_frame_pairs_without_values_are_not_faster() -> None:
    truth = np.tile(np.arange(14.0, 0.0, -1.0)[:, None], (1, 4))
    assert near_faster_share(fitted(truth[:, :1], truth.shape), truth) == 0.25
    assert near_faster_share(fitted(truth[:4], truth.shape), truth) == 0.0


def test_direction_towards_the_wound() -> None:
    cells = sheet()
    distance, toward = toward_wound(cells)
    band = leading_band(distance, toward, cells, 40.0)
    assert distance[band].max() <= 12.0
    assert mean_cosine(5.0 * toward, toward, band) == pytest.approx(1.0)
    assert mean_cosine(-toward, toward, band) == pytest.approx(-1.0)
    sideways = np.stack([toward[1], -toward[0]])
    assert mean_cosine(sideways, toward, band) == pytest.approx(0.0, abs=1e-9)
    assert mean_cosine(toward, toward, np.zeros(cells.shape, bool)) is None


def test_standing_pixels_count_as_no_direction() -> None:
    cells = sheet()
    distance, toward = toward_wound(cells)
    band = leading_band(distance, toward, cells)
    one = np.zeros_like(toward)
    y, x = np.argwhere(band)[0]
    one[:, y, x] = toward[:, y, x]
    assert mean_cosine(one, toward, band) == pytest.approx(1 / band.sum())
    assert moving(one).sum() == 1
    lost = np.where(np.arange(60) < 30, np.nan, toward)
    assert mean_cosine(lost, toward, band) == pytest.approx(0.5, abs=0.02)


def test_a_band_needs_cells_and_a_wound() -> None:
    for cells in (np.zeros((9, 9), bool), np.ones((9, 9), bool)):
        distance, toward = toward_wound(cells)
        assert not leading_band(distance, toward, cells).any()


def test_the_way_to_the_wound_explains_nothing_sideways() -> None:
    cells = sheet()
    _, toward = toward_wound(cells)
    y, x = np.indices(cells.shape)
    swirl = np.stack([np.sin(x / 5.0), np.cos(y / 5.0)]) * cells
    truth = 3.0 * toward + swirl
    assert sideways_agreement(truth, truth, cells, 5) == pytest.approx(1.0)
    assert sideways_agreement(3.0 * toward, truth, cells, 5) == pytest.approx(0.0, abs=0.02)
    assert sideways_agreement(np.zeros_like(truth), truth, cells, 5) == 0.0
    assert sideways_agreement(9.0 * toward + swirl, truth, cells, 5) == pytest.approx(1.0, abs=0.01)
    assert (sideways_agreement(-truth, truth, cells, 5) or 0.0) < -0.9
    assert sideways_agreement(swirl, toward * 0.0, cells, 5) is None
    half = np.where(np.arange(60) < 30, truth, 0.0)
    assert 0.1 < (sideways_agreement(half, truth, cells, 5) or 0.0) < 0.6


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_concordance_is_bounded_and_symmetric(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = rng.normal(size=(2, 6, 5))
    value = profile_free_concordance(one, other)
    assert value is not None
    assert -1.0 <= value <= 1.0
    assert profile_free_concordance(other, one) == pytest.approx(value)
    order = rng.permutation(6)
    assert profile_free_concordance(one[order], other[order]) == pytest.approx(value)
