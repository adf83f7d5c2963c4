"""Correlation, rank correlation and concordance against SciPy and values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evaluators.metrics.agreement import concordance, pearson, spearman

NUMBERS = st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=3, max_size=20)


def test_agree_with_scipy() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=50).round(1)
    y = x + rng.normal(size=50).round(1)
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)


def test_concordance_by_hand() -> None:
    # x = 1, 2, 3; y = 2, 4, 6: cov 4/3, variances 2/3 and 8/3, means 2 apart
    assert concordance([1, 2, 3], [2, 4, 6]) == pytest.approx(2 * (4 / 3) / (2 / 3 + 8 / 3 + 4))
    assert concordance([1, 2, 3], [1, 2, 3]) == pytest.approx(1.0)
    assert concordance([1, 2, 3], [5, 5, 5]) == 0.0


@pytest.mark.parametrize("measure", [pearson, spearman, concordance])
def test_undefined_is_none(measure: object) -> None:
    assert callable(measure)
    assert measure([1.0], [1.0]) is None
    assert measure([1.0, np.nan], [1.0, 2.0]) is None
    assert measure([2.0, 2.0, 2.0], [2.0, 2.0, 2.0]) is None
    with pytest.raises(ValueError, match="pairs"):
        measure([1.0, 2.0], [1.0])


def test_constant_with_rounding_is_constant() -> None:
    assert pearson([0.1 + 0.2, 0.3, 0.1 + 0.2], [0.1, 0.1, 0.1]) is None
    assert pearson([0.1] * 7, np.arange(7)) is None


@given(NUMBERS)
def test_bounds_and_symmetry(pairs: list[tuple[float, float]]) -> None:
    x, y = np.array(pairs).T
    for measure in (pearson, spearman, concordance):
        value = measure(x, y)
        other = measure(y, x)
        assert (value is None) == (other is None)
        if value is not None and other is not None:
            assert -1.0 - 1e-9 <= value <= 1.0 + 1e-9
            assert value == pytest.approx(other, abs=1e-9)


def test_huge_values_do_not_overflow() -> None:
    assert pearson([1e300, 2e300, 3e300], [1, 2, 3]) == pytest.approx(1.0)
    assert concordance([1e300, 2e300], [1e300, 2e300]) == pytest.approx(1.0)
