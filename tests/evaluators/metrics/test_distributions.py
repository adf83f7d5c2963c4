"""The Kolmogorov-Smirnov distance against scipy and hand-derived values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evaluators.metrics.distributions import ks_distance

samples = st.lists(st.integers(0, 12).map(float), min_size=2, max_size=20)


def test_by_hand() -> None:
    assert ks_distance([0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]) == 0.0
    assert ks_distance([0.1, 0.2, 0.3, 0.4], [0.5, 0.6]) == 1.0
    assert ks_distance([0.1, 0.2, 0.3, 0.4], [0.15, 0.35]) == 0.25
    assert ks_distance([0.1, 0.2], [0.1, math.inf]) == 0.5
    assert ks_distance([0.1], [0.1, 0.2]) is None
    with pytest.raises(ValueError, match="NaN"):
        ks_distance([0.1, math.nan], [0.1, 0.2])


@settings(max_examples=50, deadline=None)
@given(samples, samples)
def test_it_is_scipys_statistic(first: list[float], second: list[float]) -> None:
    expected = stats.ks_2samp(first, second, method="asymp").statistic
    assert ks_distance(first, second) == pytest.approx(expected, abs=1e-12)
    assert ks_distance(np.repeat(first, 3), second) == pytest.approx(expected, abs=1e-12)
