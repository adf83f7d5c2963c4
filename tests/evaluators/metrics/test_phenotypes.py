"""Classes over time: values worked out by hand, and what a blind guess is worth."""

from __future__ import annotations

import numpy as np
import pytest

from evaluators.metrics.phenotypes import (
    class_f1,
    kappa_within,
    pooled_trend_correlation,
    proportions,
    trend_correlation,
)


def test_class_f1_counts_no_class_as_missed() -> None:
    # class 0: 1 hit of 2 true and 1 claimed; class 1: 1 hit of 1 true and 1 claimed
    assert class_f1([0, 0, 1], [0, -1, 1], 2) == pytest.approx([2 / 3, 1.0])


def test_class_f1_of_an_absent_class_is_undefined() -> None:
    assert np.isnan(class_f1([0], [0], 2)[1])
    with pytest.raises(ValueError, match="classes from 0"):
        class_f1([2], [0], 2)
    with pytest.raises(ValueError, match="paired"):
        class_f1([0, 1], [0], 2)


def test_kappa_by_hand() -> None:
    # one group, 4 objects: agreement 3/4; true 2+2, claimed 3+1: expected (2*3 + 2*1)/16 = 1/2
    assert kappa_within([0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0], 2) == pytest.approx(0.5)


def test_kappa_takes_chance_within_groups() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 50)
    truth = (rng.random(2000) < groups / 40).astype(int)
    shuffled = truth.copy()
    for group in range(40):
        shuffled[groups == group] = rng.permutation(truth[groups == group])
    assert kappa_within(truth, truth, groups, 2) == 1.0
    within, overall = kappa_within(truth, shuffled, groups, 2), kappa_within(truth, shuffled, np.zeros(2000, int), 2)
    assert abs(within) < 0.06
    assert overall > 0.25  # the time alone would earn this


def test_kappa_counts_cells_without_partner_as_wrong() -> None:
    truth, groups = [0, 0, 1, 1], [0] * 4
    assert kappa_within(truth, [0, -1, 1, -1], groups, 2) == pytest.approx((0.5 - 0.25) / 0.75)
    assert kappa_within(truth, [-1] * 4, groups, 2) == 0.0
    assert kappa_within([0, 0], [0, 0], [0, 1], 2) is None


def test_proportions_of_groups() -> None:
    table = proportions([0, 0, 1, 5, 1], [0, 1, 1, 0, -1], 3, 2)
    assert table[:2].tolist() == [[0.5, 0.5], [0.0, 1.0]]
    assert np.isnan(table[2]).all()


def test_a_class_that_is_never_predicted_has_no_correlation() -> None:
    reference = np.array([[0.8, 0.1, 0.1], [0.5, 0.2, 0.3], [0.1, 0.1, 0.8]])
    predicted = reference.copy()
    predicted[:, 0] += predicted[:, 1]
    predicted[:, 1] = 0.0
    assert trend_correlation(reference, reference) == pytest.approx(1.0)
    lacking = trend_correlation(reference, predicted)
    assert lacking is not None
    assert lacking < 0.7  # not the mean of the two others
    assert trend_correlation(np.full((4, 2), 0.5), np.full((4, 2), 0.5)) is None


def test_pooled_correlation_weighs_classes_by_their_change() -> None:
    reference = np.column_stack([np.linspace(0, 1, 9), np.linspace(1, 0, 9)])
    assert pooled_trend_correlation(reference, reference) == pytest.approx(1.0)
    assert pooled_trend_correlation(reference, reference[::-1]) == pytest.approx(-1.0)
    assert pooled_trend_correlation(reference, np.full((9, 2), 0.5)) == 0.0
    gaps = reference.copy()
    gaps[3] = np.nan
    assert pooled_trend_correlation(reference, gaps) == pytest.approx(1.0)
