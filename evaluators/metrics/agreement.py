"""How well two sets of numbers agree: correlation, rank correlation, concordance."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata


def pearson(one: ArrayLike, other: ArrayLike) -> float | None:
    """Return Pearson's correlation over the pairs in which both values are finite.

    Parameters
    ----------
    one, other : (n,) array_like
        Paired values.

    Returns
    -------
    float or None
        Between -1 and 1; ``None`` with fewer than two pairs, or where a side does not vary.

    Examples
    --------
    >>> pearson([1, 2, 3], [2, 4, 6])
    1.0
    """
    x, y = _pairs(one, other)
    if len(x) < 2:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        x, y = _standardised(x), _standardised(y)
        value = float(x @ y)
    # Nothing is left of a side that does not vary, or whose numbers are too large to tell apart.
    return float(np.clip(value, -1.0, 1.0)) if np.isfinite(value) and x.any() and y.any() else None


def spearman(one: ArrayLike, other: ArrayLike) -> float | None:
    """Return Spearman's rank correlation (ties share their mean rank) over the pairs in which both values are finite.

    ``None`` under the conditions of :func:`pearson`.
    """
    x, y = _pairs(one, other)
    return pearson(rankdata(x), rankdata(y)) if len(x) else None


def concordance(one: ArrayLike, other: ArrayLike) -> float | None:
    """Return Lin's concordance, correlation that also asks for the same mean and the same spread.

    Lin, *Biometrics* 45:255 (1989): ``2 cov / (var + var + (mean - mean)**2)`` with population moments.

    Returns
    -------
    float or None
        Between -1 and 1, and 1 only for equal values; ``None`` with fewer than two pairs, or where all values of both
        sides are the same number.

    Examples
    --------
    >>> round(concordance([1, 2, 3], [2, 4, 6]), 3)
    0.364
    """
    x, y = _pairs(one, other)
    if len(x) < 2:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        scale = max(float(np.abs(x).max()), float(np.abs(y).max())) or 1.0
        x, y = x / scale, y / scale
        spread = x.var() + y.var() + (x.mean() - y.mean()) ** 2
        value = 2.0 * float(np.mean((x - x.mean()) * (y - y.mean()))) / spread if spread > 0.0 else None
    return value


def _pairs(one: ArrayLike, other: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    x, y = np.asarray(one, float).ravel(), np.asarray(other, float).ravel()
    if x.shape != y.shape:
        raise ValueError(f"expected pairs, found {len(x)} and {len(y)} values")
    finite = np.isfinite(x) & np.isfinite(y)
    return x[finite], y[finite]


def _standardised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values with mean 0 and length 1; all 0 where they do not vary."""
    values = values / (np.abs(values).max() or 1.0)
    # Equal values can differ from their mean by rounding: compare them with each other, not with the mean.
    centred = values - values.mean() if values.min() < values.max() else np.zeros_like(values)
    length = float(np.linalg.norm(centred))
    return centred / length if length > 0.0 else centred
