"""Tables of population means: nearness to reference values, direction and size of differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

Key = tuple[str, str, str]  # population, channel, feature


def relative_agreement(value: float | None, reference: float, tolerance: float = 1.0) -> float:
    """Return ``max(0, 1 - |value - reference| / (tolerance |reference|))``; 0 for no value or a reference of 0.

    Examples
    --------
    >>> relative_agreement(45.0, 50.0), relative_agreement(None, 50.0), relative_agreement(150.0, 50.0)
    (0.9, 0.0, 0.0)
    """
    if value is None or not math.isfinite(value) or reference == 0:
        return 0.0
    return max(0.0, 1.0 - abs(value - reference) / (tolerance * abs(reference)))


def direction_agreement(
    values: Mapping[Key, float],
    references: Mapping[Key, float],
    pairs: Sequence[tuple[str, str]],
    populations: tuple[str, str],
) -> float:
    """Return the share of (channel, feature) pairs whose difference between two populations has the true sign.

    A missing value and no difference count as wrong. Guessing reaches one half.
    """
    right = 0
    for channel, feature in pairs:
        true = _difference(references, channel, feature, populations)
        found = _difference(values, channel, feature, populations)
        right += true is not None and found is not None and found * true > 0
    return right / len(pairs)


def contrast_agreement(
    values: Mapping[Key, float],
    references: Mapping[Key, float],
    pairs: Sequence[tuple[str, str]],
    populations: tuple[str, str],
    tolerance: float = 0.5,
) -> float:
    """Return how near the differences between two populations come to the true ones, averaged over pairs.

    Each is ``max(0, 1 - |difference - true difference| / (tolerance |true difference|))``: no difference, one of the
    wrong sign, one that is half or one and a half times the true one, and a missing value are worth 0, whatever the
    level of both populations.
    """
    total = 0.0
    for channel, feature in pairs:
        true = _difference(references, channel, feature, populations)
        found = _difference(values, channel, feature, populations)
        if true is not None:
            total += relative_agreement(found, true, tolerance)
    return total / len(pairs)


def effect_size_agreement(
    means: Mapping[Key, float],
    spreads: Mapping[Key, float],
    references: Mapping[tuple[str, str], float],
    populations: tuple[str, str],
) -> float | None:
    """Return Spearman's correlation of effect sizes (Cohen's d) with reference ones; ``None`` for less than three."""
    found: list[float] = []
    true: list[float] = []
    one, two = populations
    for (channel, feature), size in references.items():
        difference = _difference(means, channel, feature, populations)
        first, second = spreads.get((one, channel, feature)), spreads.get((two, channel, feature))
        if difference is None or first is None or second is None:
            continue
        pooled = math.sqrt((first**2 + second**2) / 2.0)
        if pooled > 0:
            found.append(abs(difference) / pooled)
            true.append(abs(size))
    if len(found) < 3:
        return None
    if np.ptp(found) == 0 or np.ptp(true) == 0:
        return None
    from scipy.stats import spearmanr

    return float(spearmanr(found, true).statistic)


def _difference(values: Mapping[Key, float], channel: str, feature: str, populations: tuple[str, str]) -> float | None:
    one, two = (values.get((population, channel, feature)) for population in populations)
    return None if one is None or two is None else two - one
