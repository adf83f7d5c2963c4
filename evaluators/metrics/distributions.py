"""Distance of two distributions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def ks_distance(first: ArrayLike, second: ArrayLike) -> float | None:
    """Return the two-sample Kolmogorov-Smirnov statistic, the largest gap of the empirical distribution functions.

    Parameters
    ----------
    first, second : (n,), (m,) array
        Samples; infinite values are allowed (a value that is wrong whatever it is), ``NaN`` is not.

    Returns
    -------
    float or None
        In [0, 1]; ``None`` where a sample has fewer than two values.

    Examples
    --------
    >>> ks_distance([0.1, 0.2, 0.3, 0.4], [0.15, 0.35])
    0.25
    """
    a, b = np.sort(np.asarray(first, np.float64)), np.sort(np.asarray(second, np.float64))
    if np.isnan(a).any() or np.isnan(b).any():
        raise ValueError("expected numbers, found NaN")
    if min(len(a), len(b)) < 2:
        return None
    places = np.concatenate([a, b])
    gaps = np.searchsorted(a, places, "right") / len(a) - np.searchsorted(b, places, "right") / len(b)
    return float(np.max(np.abs(gaps)))
