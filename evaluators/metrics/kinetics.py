"""Curves over time: pairing of time points, agreement of curves, what a common curve is worth, error of a moment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from evaluators.metrics.agreement import concordance

Values = NDArray[np.float64]


def at_times(times: ArrayLike, wanted: ArrayLike, values: ArrayLike, tolerance: float) -> Values:
    """Return values at wanted times: each from one point within the tolerance, used once, nearest in all.

    Parameters
    ----------
    times, values : (n,) array_like
        A curve; points without a finite time or value do not count. Of points at the same time the mean counts.
    wanted : (m,) array_like
        Finite times.
    tolerance : float
        Largest distance in time.

    Returns
    -------
    (m,) float64
        NaN where there is no point.

    Examples
    --------
    >>> at_times([0.1, 0.6], [0.0, 0.5, 1.0], [7.0, 8.0], 0.2)
    array([ 7.,  8., nan])
    """
    t, v = np.asarray(times, float), np.asarray(values, float)
    target = np.asarray(wanted, float)
    finite = np.isfinite(t) & np.isfinite(v)
    unique, owner = np.unique(t[finite], return_inverse=True)
    found = np.full(len(target), np.nan)
    if not len(unique) or not len(target):
        return found
    means = np.bincount(owner, v[finite]) / np.bincount(owner)
    near = np.searchsorted(unique, target)
    rows, columns = [], []
    for shift in range(-2, 2):
        place = near + shift
        inside = (place >= 0) & (place < len(unique))
        close = inside.copy()
        close[inside] = np.abs(unique[place[inside]] - target[inside]) <= tolerance
        rows.append(np.flatnonzero(close))
        columns.append(place[close])
    row, column = np.concatenate(rows), np.concatenate(columns)
    used_rows, used_columns = np.unique(row), np.unique(column)
    exact = np.isin(target, unique)
    if exact.all():  # the common case: the same times on both sides
        return np.asarray(means[np.searchsorted(unique, target)])
    cost = np.full((len(used_rows), len(used_columns)), 1e6)
    cost[np.searchsorted(used_rows, row), np.searchsorted(used_columns, column)] = np.abs(unique[column] - target[row])
    for one, two in zip(*linear_sum_assignment(cost), strict=True):
        if cost[one, two] <= tolerance:
            found[used_rows[one]] = means[used_columns[two]]
    return found


def own_scale(values: ArrayLike, last: float = 0.2) -> Values:
    """Return a curve divided by the mean of the last part of its finite values, so that its end lies at about 1.

    A curve that ends at 0 or below has no scale of its own and is all 0.
    """
    curve = np.asarray(values, float)
    finite = curve[np.isfinite(curve)]
    if not len(finite):
        return curve
    end = float(np.mean(finite[-max(1, round(last * len(finite))) :]))
    return curve / end if end > 0.0 else np.where(np.isfinite(curve), 0.0, np.nan)


def pooled_concordance(truth: Sequence[ArrayLike], predicted: Sequence[ArrayLike]) -> float:
    """Return Lin's concordance over the points of all curves, times the share of true points that were predicted.

    Parameters
    ----------
    truth, predicted : sequences of (n,) array_like
        Curves on the same times; NaN in truth is no point, NaN in the prediction one that is missing.

    Returns
    -------
    float
        From 0 (also for negative agreement) to 1.
    """
    one = np.concatenate([np.asarray(curve, float) for curve in truth])
    other = np.concatenate([np.asarray(curve, float) for curve in predicted])
    known = np.isfinite(one)
    both = known & np.isfinite(other)
    if not both.any():
        return 0.0
    agreement = concordance(one[both], other[both])
    return max(0.0, agreement or 0.0) * float(both.sum() / known.sum())


def own_course_concordance(
    times: Sequence[ArrayLike], truth: Sequence[ArrayLike], predicted: Sequence[ArrayLike]
) -> float:
    """Return the concordance of how each curve departs from the common one: 0 for what tells no curve from another.

    Parameters
    ----------
    times, truth, predicted : sequences of (n,) array_like
        As for :func:`pooled_concordance`, with the times of each curve.

    Returns
    -------
    float
        From 0 to 1, 1 for equal curves; :func:`pooled_concordance` itself where there is a single curve, or where the
        true ones do not differ.
    """
    common = common_curve(times, truth)
    away = [np.asarray(curve, float) - mean for curve, mean in zip(truth, common, strict=True)]
    if len(away) < 2 or not any(np.nanmax(np.abs(part), initial=0.0) > 1e-9 for part in away):
        return pooled_concordance(truth, predicted)
    return pooled_concordance(
        away, [np.asarray(curve, float) - mean for curve, mean in zip(predicted, common, strict=True)]
    )


def common_curve(times: Sequence[ArrayLike], curves: Sequence[ArrayLike]) -> list[Values]:
    """Return for each curve the mean of all curves at its times: the best curve that tells none from another."""
    all_times = np.concatenate([np.asarray(part, float) for part in times])
    values = np.concatenate([np.asarray(curve, float) for curve in curves])
    finite = np.isfinite(values)
    keys, owner = np.unique(np.round(all_times, 3), return_inverse=True)
    total = np.bincount(owner[finite], values[finite], len(keys))
    number = np.bincount(owner[finite], minlength=len(keys))
    with np.errstate(invalid="ignore"):
        means = total / number
    return [np.asarray(means[np.searchsorted(keys, np.round(np.asarray(part, float), 3))]) for part in times]


def onset_score(errors: ArrayLike, cap: float) -> float:
    """Return 1 minus the mean error in units of the cap, the most for each, also for a missing one (NaN)."""
    values = np.abs(np.asarray(errors, float))
    return 1.0 - float(np.mean(np.minimum(np.where(np.isfinite(values), values, cap), cap))) / cap


def blind_onset_score(onsets: ArrayLike, cap: float) -> float:
    """Return the onset score of the best single frame for all."""
    values = np.asarray(onsets, float)
    return max(onset_score(values - guess, cap) for guess in np.unique(values))
