"""Group comparisons against scipy and hand-derived values, and the promise that leaving a value out never helps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evaluators.metrics.group_patterns import (
    closeness,
    common_language_effect,
    concordance_within,
    effect_agreement,
    rank_sum_p,
    worst_median_gap,
    worst_rank_sum_p,
)

NAN = math.nan
# distinct values: with ties the test's variance shrinks, which is no matter of what is missing
samples = st.lists(st.integers(0, 10**6), min_size=14, max_size=30, unique=True)


def test_complete_groups_give_the_mann_whitney_test():
    a, b = [0.1, 0.2, 0.3, 0.4], [0.35, 0.5, 0.6, 0.7, 0.8]
    expected = stats.mannwhitneyu(a, b).pvalue
    assert rank_sum_p(a, b) == pytest.approx(expected)
    assert worst_rank_sum_p(a, b, significant=True) == pytest.approx(expected)
    assert rank_sum_p([1.0, 1.0], [1.0, 1.0]) == 1.0
    assert rank_sum_p([], [1.0]) == 1.0


def test_missing_values_lie_where_they_hurt_most():
    low, high = [0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]
    assert worst_rank_sum_p([*low, NAN], high, significant=True) == pytest.approx(
        stats.mannwhitneyu([*low, 9.0], high).pvalue
    )
    assert worst_rank_sum_p([*low, NAN], low, significant=False) == pytest.approx(
        min(stats.mannwhitneyu([*low, far], low).pvalue for far in (-9.0, 9.0))
    )
    assert worst_rank_sum_p([NAN] * 4, high, significant=True) == 1.0
    assert worst_rank_sum_p([NAN] * 9, high * 3, significant=False) < 0.05


@settings(max_examples=60, deadline=None)
@given(samples, st.integers(2, 10), st.sets(st.integers(0, 29), max_size=6))
def test_missing_values_never_help_a_comparison(values, split, gone):
    complete = np.array(values, float)
    gaps = np.array([NAN if k in gone else value for k, value in enumerate(complete)])
    p = rank_sum_p(complete[:split], complete[split:])
    assert worst_rank_sum_p(gaps[:split], gaps[split:], significant=True) >= p - 1e-9
    assert worst_rank_sum_p(gaps[:split], gaps[split:], significant=False) <= p + 1e-9
    gap = np.median(complete[:split]) - np.median(complete[split:])
    assert worst_median_gap(gaps[:split], gaps[split:]) <= gap


def test_median_gap():
    assert worst_median_gap([0.3, 0.5], [0.1, 0.2, 0.3]) == pytest.approx(0.2)
    assert worst_median_gap([0.3, 0.5, NAN], [0.1, 0.2, 0.3]) == pytest.approx(0.1)
    assert worst_median_gap([NAN, NAN, 0.5], [0.1]) == -math.inf


def test_common_language_effect_counts_ties_half():
    assert common_language_effect([2.0, 3.0], [1.0, 2.0]) == pytest.approx(3.5 / 4)
    assert common_language_effect([], [1.0]) == 0.5


def test_effect_agreement_sees_lost_and_reversed_differences():
    low, high = [0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]
    assert effect_agreement(high, low, [9.0, 8.0, 7.0, 6.0], [1.0, 2.0, 3.0, 4.0]) == 1.0
    assert effect_agreement(high, low, low, high) == 0.0
    assert effect_agreement(high, low, low, low) == 0.0
    assert effect_agreement(low, low, low, high) == 0.0
    assert effect_agreement(high, low, [*high[:3], NAN], low) == pytest.approx(0.5)  # a quarter of the pairs is lost


def test_concordance_looks_at_order_within_groups_only():
    truth = [[1.0, 1.1, 1.3], [-2.0, 2.2]]
    assert concordance_within(truth, truth) == pytest.approx(1.0)
    assert concordance_within(truth, [[0.3, 0.2, 0.1], [9.0, 8.0]]) == pytest.approx(-1.0)
    assert concordance_within(truth, [[5.0, 5.0, 5.0], [7.0, 7.0]]) == 0.0  # group levels say nothing
    assert concordance_within([[1.0, 1.0]], [[1.0, 2.0]]) == 0.0
    # pairs 0.1 right, 0.2 wrong, 0.3 tied
    assert concordance_within([[1.0, 1.1, 1.3]], [[1.0, 2.0, 1.0]]) == pytest.approx((0.1 - 0.2) / 0.6)


def test_a_missing_measurement_counts_as_the_wrong_order():
    assert concordance_within([[1.0, 1.2]], [[1.0, NAN]]) == pytest.approx(-1.0)


def test_closeness_is_a_mean_over_objects():
    assert closeness([0.1, 0.2, 0.3, 0.4], [0.1, 0.3, NAN, 0.9], 0.2) == pytest.approx((1.0 + 0.5) / 4)
