"""Putting necessary parts together into one strict score."""

from __future__ import annotations

import math
from collections.abc import Iterable


def above_chance(value: float, chance: float) -> float:
    """Rescale a score so that ``chance`` becomes 0 and 1 stays 1; lower and undefined (``NaN``) scores give 0.

    ``chance`` is what the best uninformed submission reaches, below 1.
    """
    scaled = (value - chance) / (1.0 - chance)
    return 0.0 if math.isnan(scaled) else min(1.0, max(0.0, scaled))


def harmonic_mean(parts: Iterable[float]) -> float:
    """Return the harmonic mean of parts in [0, 1]: 0 as soon as one of them is, so that every part is necessary."""
    values = list(parts)
    if not values:
        raise ValueError("the harmonic mean needs at least one part")
    return len(values) / sum(1.0 / value for value in values) if min(values) > 0.0 else 0.0
