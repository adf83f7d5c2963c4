"""Counts per object: values worked out by hand."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from evaluators.metrics.count_agreement import blind_overlap, order_agreement, overlap_share, relative_error


def test_relative_error_by_hand() -> None:
    assert relative_error([40, 0, 0], [80, 0, 0]) == 1.0
    assert relative_error([40, 10], [30, 10], surplus=5) == pytest.approx(0.3)
    assert relative_error([0, 0], [0, 0]) == 0.0
    assert relative_error([0, 0], [1, 0]) == float("inf")


def test_overlap_tells_double_from_nothing() -> None:
    assert overlap_share([40, 0, 0], [80, 0, 0]) == 0.5
    assert overlap_share([40, 0, 0], [0, 0, 0]) == 0.0
    assert overlap_share([40, 0], [40, 0], surplus=40) == 0.5
    assert overlap_share([0], [0]) == 1.0


def test_blind_overlap_is_the_mean_over_all_deals() -> None:
    counts = [0, 2, 5, 9]
    deals = list(permutations(counts))
    smaller = sum(np.minimum(counts, deal).sum() for deal in deals)
    larger = sum(np.maximum(counts, deal).sum() for deal in deals)
    constant = max(np.minimum(counts, c).sum() / np.maximum(counts, c).sum() for c in range(10))
    assert blind_overlap(counts) == pytest.approx(max(smaller / larger, constant))
    assert blind_overlap([0, 0]) == 0.0
    assert blind_overlap([7, 7, 7]) == 1.0


def test_order_counts_pairs_that_truly_differ() -> None:
    assert order_agreement([36, 23, 12], [3, 2, 1]) == 1.0
    assert order_agreement([36, 23, 12], [1, 2, 3]) == -1.0
    assert order_agreement([36, 23, 12], [3, 1, 2]) == pytest.approx(1 / 3)
    assert order_agreement([36, 23, 12], [3, 2, np.nan]) == pytest.approx(1 / 3)
    assert order_agreement([20, 19.5], [1, 2]) is None


def test_counts_must_be_counts() -> None:
    with pytest.raises(ValueError, match="finite"):
        relative_error([1.0], [np.nan])
    with pytest.raises(ValueError, match="paired"):
        overlap_share([1.0, 2.0], [1.0])
