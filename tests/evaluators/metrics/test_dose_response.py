"""Dose-response metrics against hand-derived values, and the promise that leaving a replicate out never helps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evaluators.metrics.dose_response import (
    consistency,
    fold_agreement,
    replicate_cv,
    welch_greater,
    worst_spearman,
)

NAN = math.nan
numbers = st.floats(0.1, 10.0).map(lambda value: round(value, 1))


def test_complete_values_give_spearman_with_mean_ranks():
    assert worst_spearman([1, 2, 3, 4], [2, 1, 4, 4]) == pytest.approx(stats.spearmanr([1, 2, 3, 4], [2, 1, 4, 4])[0])
    assert worst_spearman([1, 2, 3], [5, 5, 5]) == 0.0


def test_a_missing_value_takes_the_worst_rank():
    assert worst_spearman([1, 2, 3, 4], [1, 2, 3, NAN]) == pytest.approx(-0.2)  # ranks 2 3 4 1
    assert worst_spearman([1, 2, 3, 4], [NAN, 2, 3, 4]) == pytest.approx(-0.2)  # ranks 4 1 2 3
    assert worst_spearman([1, 2, 3], [NAN, NAN, NAN]) == pytest.approx(-1.0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(numbers, st.booleans()), min_size=3, max_size=8))
def test_missing_values_never_raise_the_correlation(rows):
    values = np.array([value for value, _ in rows])
    gone = np.array([missing for _, missing in rows])
    reference = np.arange(len(rows))
    bound = worst_spearman(reference, np.where(gone, NAN, values))
    assert max(0.0, bound) <= max(0.0, worst_spearman(reference, values)) + 1e-12


def test_replicate_cv_by_hand():
    assert replicate_cv([[1.0, 1.0], [1.0, 3.0]]) == pytest.approx(math.sqrt(2) / 2 / 2)
    assert replicate_cv([[1.0, 1.0, 1.0, NAN]]) == 2.0
    assert replicate_cv([[1.0]]) is None
    assert replicate_cv([[-1.0, 1.0]]) is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(numbers, st.booleans()), min_size=2, max_size=6))
def test_missing_replicates_never_lower_the_variation(rows):
    values = np.array([value for value, _ in rows])
    gone = np.array([missing for _, missing in rows])
    assert replicate_cv([np.where(gone, NAN, values)]) >= replicate_cv([values]) - 1e-12


def test_consistency_is_flat_to_the_tolerance_then_linear():
    assert consistency(0.15, 0.15) == 1.0
    assert consistency(0.575, 0.15) == pytest.approx(0.5)
    assert consistency(1.0, 0.15) == 0.0
    assert consistency(None, 0.15) == 0.0


def test_welch_is_one_sided_and_undefined_without_replicates():
    high, low = [2.0, 2.1, 1.9, 2.2], [1.0, 1.1, 0.9, 1.2]
    expected = stats.ttest_ind(high, low, equal_var=False, alternative="greater").pvalue
    assert welch_greater(high, low) == pytest.approx(expected)
    assert welch_greater(low, high) > 0.99
    assert welch_greater([1.0], low) is None
    assert welch_greater([1.0, NAN], low) is None
    assert welch_greater([1.0, 1.0], [1.0, 1.0]) is None
    assert welch_greater([2.0, 2.0], [1.0, 1.0]) == 0.0


def test_fold_agreement_is_relative_to_the_true_change():
    assert fold_agreement(2.0, 2.0) == 1.0
    assert fold_agreement(2.0, math.sqrt(2.0)) == pytest.approx(0.5)
    assert fold_agreement(2.0, 1.0) == 0.0
    assert fold_agreement(2.0, 0.5) == 0.0
    assert fold_agreement(2.0, None) == 0.0
    assert fold_agreement(2.0, -2.0) == 0.0
