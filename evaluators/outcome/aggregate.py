"""From the scores of parts and images to one number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

SEED = 42
RESAMPLES = 1000


def harmonic_mean(parts: Sequence[float]) -> float:
    """Return the harmonic mean of necessary parts: 0 where one of them is 0, 1 where all are 1.

    Examples
    --------
    >>> harmonic_mean([1.0, 0.5])
    0.6666666666666666
    """
    if not parts:
        raise ValueError("expected at least one part")
    if min(parts) <= 0.0:
        return 0.0
    return min(1.0, max(parts), len(parts) / sum(1.0 / part for part in parts))  # rounding may exceed them


def bootstrap_interval(values: ArrayLike, *, level: float = 0.95) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean over images, from 1000 seeded resamples.

    Parameters
    ----------
    values : (n,) array_like
        One value per image, n at least 1.
    level : float
        Coverage.
    """
    sample = np.asarray(values, float)
    if sample.ndim != 1 or not len(sample):
        raise ValueError("expected at least one value")
    draws = np.random.default_rng(SEED).integers(0, len(sample), (RESAMPLES, len(sample)))
    low, high = np.quantile(sample[draws].mean(axis=1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
