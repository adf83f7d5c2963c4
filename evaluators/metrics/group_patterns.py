"""Differences between groups of measurements, and their agreement with reference values object by object.

A group may lack values that were expected. They always count as the least favourable ones that are possible, so that
leaving a measurement out never helps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Values = NDArray[np.float64]


def rank_sum_p(first: ArrayLike, second: ArrayLike) -> float:
    """Return the two-sided p-value of the Mann-Whitney U test, exact for small samples without ties.

    1 where a group is empty, or both are the same constant.
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if not len(a) or not len(b):
        return 1.0
    p = float(stats.mannwhitneyu(a, b, alternative="two-sided").pvalue)
    return 1.0 if np.isnan(p) else min(p, 1.0)


def worst_rank_sum_p(first: ArrayLike, second: ArrayLike, *, significant: bool) -> float:
    """Return the Mann-Whitney p-value, or the least favourable one where values are missing.

    Parameters
    ----------
    first, second : (n,), (m,) array
        Measurements; ``NaN`` where one is missing.
    significant
        Whether a difference is expected: the least favourable p-value is then the largest that the missing values could
        bring about, otherwise the smallest.
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if not (np.isnan(a).any() or np.isnan(b).any()):
        return rank_sum_p(a, b)
    # At either end, the missing values may tie, which narrows the test's variance, or not, which makes it exact.
    beyond = 4.0 * float(np.nanmax(np.abs([*a, *b]), initial=1.0))
    ends = [[(_filled(a, sign * far), _filled(b, -sign * far)) for far in (beyond, np.inf)] for sign in (-1.0, 1.0)]
    p_values = [rank_sum_p(*pair) for end in ends for pair in end]
    if not significant:
        return min(p_values)
    effects = [common_language_effect(*end[0]) - 0.5 for end in ends]
    return max(p_values) if effects[0] * effects[1] > 0 else 1.0


def worst_median_gap(higher: ArrayLike, lower: ArrayLike) -> float:
    """Return the median of one group minus that of another; missing values pull the first down and the second up.

    ``-inf`` where a group has no value or its median is one of the missing.
    """
    gap = float(np.median(_filled(higher, -np.inf)) - np.median(_filled(lower, np.inf)))
    return -np.inf if np.isnan(gap) or not np.isfinite(gap) else gap


def common_language_effect(first: ArrayLike, second: ArrayLike) -> float:
    """Return the share of pairs in which the value of ``first`` is the larger one; a tie is half a pair.

    It is the area under the ROC curve; 0.5 where a group is empty.
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if not len(a) or not len(b):
        return 0.5
    return float((np.sum(a[:, None] > b) + 0.5 * np.sum(a[:, None] == b)) / (len(a) * len(b)))


def effect_agreement(true_first: ArrayLike, true_second: ArrayLike, first: ArrayLike, second: ArrayLike) -> float:
    """Return how well the difference of two groups is recovered: ``1 - 2 |A - A'|``, at least 0.

    A and A' are the common-language effects of the true and the measured groups. A difference that is lost or reversed
    gives 0 where the true one was complete. Missing (``NaN``) measurements lie where the agreement is least.
    """
    true = common_language_effect(true_first, true_second)
    ends = ((_filled(first, sign * np.inf), _filled(second, -sign * np.inf)) for sign in (-1.0, 1.0))
    return max(0.0, 1.0 - 2.0 * max(abs(common_language_effect(*end) - true) for end in ends))


def concordance_within(reference: Sequence[ArrayLike], measured: Sequence[ArrayLike]) -> float:
    """Return how well the order of objects within their groups is found, weighted by how far they lie apart.

    All pairs of objects of a group are looked at: a pair in the right order counts its true distance, one in the wrong
    order counts it negative, a tie 0; the sum is divided by the sum of distances. Only differences that the group does
    not explain matter, so that values invented from the groups' expected levels reach 0 on average.

    Parameters
    ----------
    reference, measured : sequences of (n_i,) arrays
        The groups in the same order. A pair with a missing (``NaN``) measurement counts as one in the wrong order.

    Returns
    -------
    float
        In [-1, 1]; 0 where the reference has no differences.
    """
    agree = total = 0.0
    for true_group, group in zip(reference, measured, strict=True):
        t, m = np.asarray(true_group, np.float64), np.asarray(group, np.float64)
        first, second = np.triu_indices(len(t), 1)
        difference = t[first] - t[second]
        order = np.sign(m[first] - m[second]) * np.sign(difference)
        agree += float(np.sum(np.abs(difference) * np.where(np.isnan(order), -1.0, order)))
        total += float(np.sum(np.abs(difference)))
    return agree / total if total else 0.0


def closeness(reference: ArrayLike, measured: ArrayLike, scale: float) -> float:
    """Return the mean over objects of ``1 - |measured - reference| / scale``, at least 0 each; 0 for a missing one."""
    error = np.abs(np.asarray(measured, np.float64) - np.asarray(reference, np.float64)) / scale
    return float(np.mean(np.where(np.isnan(error), 0.0, np.maximum(0.0, 1.0 - error))))


def _filled(values: ArrayLike, far: float) -> Values:
    """Put missing values at a place beyond all others: the same place if it is infinite, else apart from each other."""
    data = np.asarray(values, np.float64)
    return np.where(np.isnan(data), far + np.sign(far) * np.arange(len(data)), data)
