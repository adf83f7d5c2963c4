"""Agreement of counts per object that are mostly zero and heavy-tailed: errors, overlap, chance, order of groups."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Values = NDArray[np.float64]


def relative_error(truth: ArrayLike, predicted: ArrayLike, surplus: float = 0.0) -> float:
    """Return the absolute error of all counts and of a surplus, over the sum of the true counts.

    Parameters
    ----------
    truth, predicted : (n,) array_like
        Counts of the same objects; 0 is predicted for an object that was not found.
    surplus
        Counts that belong to no object.

    Returns
    -------
    float
        0 for equal counts, 1 where nothing is predicted, without upper bound; infinite where truth is all 0 and
        something is predicted.
    """
    one, other = _counts(truth, predicted)
    error, total = float(np.abs(one - other).sum()) + surplus, float(one.sum())
    return error / total if total > 0 else float("inf") if error > 0 else 0.0


def overlap_share(truth: ArrayLike, predicted: ArrayLike, surplus: float = 0.0) -> float:
    """Return the sum of the smaller over the sum of the larger count (Ruzicka): double or half the counts give 0.5.

    ``surplus`` adds to the larger ones; two sides without any count agree.
    """
    one, other = _counts(truth, predicted)
    larger = float(np.maximum(one, other).sum()) + surplus
    return float(np.minimum(one, other).sum()) / larger if larger > 0 else 1.0


def blind_overlap(truth: ArrayLike) -> float:
    """Return the overlap that knowing the counts, but not whose they are, gives: the better of dealing them out at
    random and of one constant for all.
    """
    counts = np.sort(np.asarray(truth, float).ravel())
    if not counts.any():
        return 0.0
    n, total = len(counts), counts.sum()
    # Over all pairs: each value is the smaller one of as many pairs as there are values behind it, twice, plus itself.
    smaller = float((counts * (2 * np.arange(n)[::-1] + 1)).sum())
    dealt = smaller / (2 * n * total - smaller)
    constants = np.unique(counts)[:, None]
    constant = np.minimum(counts, constants).sum(axis=1) / np.maximum(counts, constants).sum(axis=1)
    return float(max(dealt, constant.max()))


def order_agreement(truth: ArrayLike, predicted: ArrayLike, least_difference: float = 0.1) -> float | None:
    """Return the share of pairs of groups in the right order minus that in the wrong one, over truly different pairs.

    Parameters
    ----------
    truth, predicted : (n,) array_like
        One value per group; a group that is missing is NaN and in no order.
    least_difference
        Relative difference from which two true values are different.

    Returns
    -------
    float or None
        Between -1 and 1; ``None`` where no two groups truly differ.
    """
    one, other = np.asarray(truth, float), np.asarray(predicted, float)
    if one.shape != other.shape or one.ndim != 1:
        raise ValueError(f"expected two lists of one length, found {one.shape} and {other.shape}")
    first, second = np.triu_indices(len(one), 1)
    apart = one[first] - one[second]
    different = np.abs(apart) > least_difference * np.maximum(np.abs(one[first]), np.abs(one[second]))
    if not different.any():
        return None
    claimed = np.nan_to_num(np.sign(other[first] - other[second]))
    return float(np.mean((np.sign(apart) * claimed)[different]))


def _counts(truth: ArrayLike, predicted: ArrayLike) -> tuple[Values, Values]:
    one, other = np.asarray(truth, float), np.asarray(predicted, float)
    if one.shape != other.shape or one.ndim != 1:
        raise ValueError(f"expected paired counts, found {one.shape} and {other.shape}")
    if not (np.isfinite(one).all() and np.isfinite(other).all() and min(one.min(initial=0), other.min(initial=0)) >= 0):
        raise ValueError("counts must be finite and not negative")
    return one, other
