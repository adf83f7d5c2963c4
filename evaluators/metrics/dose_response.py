"""Dose-response quality of grouped measurements, and their agreement with reference values.

A group holds the replicates of one dose; ``NaN`` stands for a replicate that was expected but is missing. A missing
replicate always counts as the least favourable value it could have had, so that leaving one out never helps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Values = NDArray[np.float64]


def worst_spearman(reference: ArrayLike, values: ArrayLike) -> float:
    """Return Spearman's rank correlation, or the lowest it could be where values are missing.

    Parameters
    ----------
    reference : (n,) array
        Finite numbers, n >= 2.
    values : (n,) array
        Numbers to correlate; ``NaN`` where one is missing.

    Returns
    -------
    float
        In [-1, 1]. Without missing values the usual coefficient with mean ranks for ties, 0 where either side is
        constant. With missing values a lower bound that holds whatever they are: each is put at the rank, among the
        others, that makes the coefficient smallest.

    Examples
    --------
    >>> worst_spearman([1, 2, 3, 4], [1, 2, 3, float("nan")])  # the best dose may have had the lowest value
    -0.2
    """
    x = np.asarray(reference, np.float64)
    y = np.asarray(values, np.float64)
    n = len(x)
    missing = np.isnan(y)
    if not missing.any():
        if np.ptp(x) == 0 or np.ptp(y) == 0:
            return 0.0
        return float(np.clip(stats.spearmanr(x, y).statistic, -1.0, 1.0))
    ranks = stats.rankdata(x, method="ordinal")
    # Ties among the known go the unfavourable way; the missing take their places in descending order of reference.
    known = ranks[~missing][np.lexsort((-ranks[~missing], y[~missing]))]
    free = np.sort(ranks[missing])[::-1]
    best = np.full((len(known) + 1, len(free) + 1), np.inf)
    best[0, 0] = 0.0
    for a in range(len(known) + 1):
        for b in range(len(free) + 1):
            if a:
                best[a, b] = min(best[a, b], best[a - 1, b] + (a + b) * known[a - 1])
            if b:
                best[a, b] = min(best[a, b], best[a, b - 1] + (a + b) * free[b - 1])
    squares = n * (n + 1) * (2 * n + 1) / 6
    return float(1.0 - 12.0 * (squares - best[-1, -1]) / (n * (n * n - 1)))


def replicate_cv(groups: Sequence[ArrayLike]) -> float | None:
    """Return the mean coefficient of variation of replicates, sample standard deviation over mean, over all groups.

    A group with missing values counts as ``sqrt(n)``, the largest value that n positive numbers can have. Groups of
    fewer than two, or with a mean of 0, have no coefficient; ``None`` if no group has one.
    """
    found = []
    for group in groups:
        values = np.asarray(group, np.float64)
        if len(values) < 2:
            continue
        if np.isnan(values).any():
            found.append(math.sqrt(len(values)))
        elif values.mean() != 0:
            found.append(float(values.std(ddof=1) / abs(values.mean())))
    return float(np.mean(found)) if found else None


def consistency(mean_cv: float | None, tolerance: float) -> float:
    """Return 1 up to a mean coefficient of variation of ``tolerance``, falling linearly to 0 at 1; 0 for ``None``."""
    return 0.0 if mean_cv is None else float(np.clip((1.0 - mean_cv) / (1.0 - tolerance), 0.0, 1.0))


def welch_greater(treated: ArrayLike, control: ArrayLike) -> float | None:
    """Return the p-value of a one-sided Welch t-test that ``treated`` lies above ``control``.

    ``None`` where it is undefined: a value is missing, a side has fewer than two, or both are the same constant. Two
    different constants give 0 or 1.
    """
    a, b = np.asarray(treated, np.float64), np.asarray(control, np.float64)
    if min(len(a), len(b)) < 2 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return None
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        return None if a[0] == b[0] else float(a[0] < b[0])
    return float(stats.ttest_ind(a, b, equal_var=False, alternative="greater").pvalue)


def fold_agreement(true_fold: float, fold: float | None) -> float:
    """Return how well a fold change is recovered: 1 if exact, 0 if its logarithm is off by its own size or more."""
    if fold is None or not (math.isfinite(fold) and fold > 0):
        return 0.0
    size = abs(math.log(true_fold))
    return max(0.0, 1.0 - abs(math.log(fold) - math.log(true_fold)) / size) if size else 0.0
