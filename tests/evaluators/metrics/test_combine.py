"""Chance correction and the harmonic mean of necessary parts."""

from __future__ import annotations

import math

import pytest

from evaluators.metrics.combine import above_chance, harmonic_mean


def test_chance_is_zero_and_truth_one():
    assert above_chance(0.2, 0.2) == 0.0
    assert above_chance(1.0, 0.2) == 1.0
    assert above_chance(0.6, 0.2) == pytest.approx(0.5)
    assert above_chance(-1.0, 0.2) == 0.0
    assert above_chance(math.nan, 0.2) == 0.0


def test_every_part_is_necessary():
    assert harmonic_mean([1.0, 1.0]) == 1.0
    assert harmonic_mean([1.0, 0.5]) == pytest.approx(2 / 3)
    assert harmonic_mean([1.0, 1.0, 0.0]) == 0.0
    with pytest.raises(ValueError, match="at least one"):
        harmonic_mean([])
