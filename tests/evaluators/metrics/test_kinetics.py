"""Curves over time: values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from evaluators.metrics.kinetics import (
    at_times,
    blind_onset_score,
    common_curve,
    onset_score,
    own_course_concordance,
    own_scale,
    pooled_concordance,
)


def test_points_are_paired_in_time_each_once() -> None:
    found = at_times([0.1, 0.6, 9.0], [0.0, 0.5, 1.0], [7.0, 8.0, 9.0], 0.2)
    assert found[:2].tolist() == [7.0, 8.0]
    assert np.isnan(found[2])
    # one point cannot stand for two times
    assert np.isnan(at_times([0.25], [0.0, 0.5], [1.0], 0.51)).sum() == 1
    assert np.isnan(at_times([], [0.0], [], 0.5)).all()


def test_points_at_the_same_time_are_averaged_and_blanks_shift_nothing() -> None:
    assert at_times([0.0, 0.0, 1.0], [0.0, 1.0], [1.0, 3.0, 5.0], 0.1).tolist() == [2.0, 5.0]
    times = np.arange(6) * 0.5
    values = np.arange(6.0)
    values[2] = np.nan
    found = at_times(times, times, values, 0.4)
    assert np.isnan(found[2])
    assert np.delete(found, 2).tolist() == [0, 1, 3, 4, 5]


def test_own_scale_ends_at_one() -> None:
    assert own_scale([0.0, 2.0, 4.0, 4.0, 4.0]).tolist() == [0.0, 0.5, 1.0, 1.0, 1.0]
    assert own_scale([3.0, -1.0]).tolist() == [0.0, 0.0]
    assert np.isnan(own_scale([np.nan])).all()


def test_pooled_concordance_counts_missing_points() -> None:
    curves = [np.array([0.0, 1.0, 2.0]), np.array([0.0, 2.0, 4.0])]
    assert pooled_concordance(curves, curves) == pytest.approx(1.0)
    half = [curves[0], np.full(3, np.nan)]
    assert pooled_concordance(curves, half) == pytest.approx(0.5)
    assert pooled_concordance(curves, [-curve for curve in curves]) == 0.0


def test_a_common_curve_tells_nothing_apart() -> None:
    times = [np.arange(5.0), np.arange(5.0), np.arange(3.0)]
    curves = [np.arange(5.0), np.arange(5.0) ** 1.5, 2 * np.arange(3.0)]
    common = common_curve(times, curves)
    assert common[0][1] == pytest.approx((1 + 1 + 2) / 3)
    assert common[0][4] == pytest.approx((4 + 8) / 2)
    assert own_course_concordance(times, curves, curves) == pytest.approx(1.0)
    assert own_course_concordance(times, curves, common) == 0.0
    assert own_course_concordance(times, curves, [3.0 * part for part in common]) < 0.2
    assert own_course_concordance(times[:1], curves[:1], curves[:1]) == pytest.approx(1.0)


def test_one_wild_onset_costs_one_cell() -> None:
    assert onset_score([0.0] * 9 + [200.0], 20.0) == pytest.approx(0.9)
    assert onset_score([0.0] * 9 + [np.nan], 20.0) == pytest.approx(0.9)
    assert onset_score([5.0, -5.0], 20.0) == pytest.approx(0.75)
    assert blind_onset_score([10.0, 10.0, 14.0], 20.0) == pytest.approx(1 - 4 / 60)
