"""Optimal pairing: against enumeration, and each solver against the others."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from evaluators.metrics import assignment
from evaluators.metrics.assignment import assign

Pairs = list[tuple[int, int, int]]


@st.composite
def candidates(draw: st.DrawFn) -> Pairs:
    pairs = draw(st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=9))
    return [(row, column, draw(st.integers(0, 20))) for row, column in sorted(pairs)]


def solve(pairs: Pairs) -> Pairs:
    table = np.array(pairs, np.int64).reshape(-1, 3)
    return [pairs[chosen] for chosen in assign(table[:, 0], table[:, 1], table[:, 2].astype(float))]


def value(chosen: Pairs) -> tuple[int, int]:
    return len(chosen), -sum(cost for *_, cost in chosen)


def best(pairs: Pairs) -> tuple[int, int]:
    """Try every choice."""
    options = (choice for size in range(len(pairs) + 1) for choice in combinations(pairs, size))
    return max(
        value(list(choice))
        for choice in options
        if len({row for row, *_ in choice}) == len({column for _, column, _ in choice}) == len(choice)
    )


@given(candidates())
@settings(deadline=None, max_examples=200)
def test_no_other_choice_is_better(pairs: Pairs) -> None:
    chosen = solve(pairs)
    assert len({row for row, *_ in chosen}) == len({column for _, column, _ in chosen}) == len(chosen)
    assert value(chosen) == best(pairs)


@pytest.mark.parametrize(("large", "dense"), [(0, 16_000_000), (0, 0), (10**9, 0)])
@given(pairs=candidates())
@settings(deadline=None)
def test_cut_and_sparse_solvers_are_exact_too(large: int, dense: int, pairs: Pairs) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assignment, "_LARGE_CELLS", large)
        patch.setattr(assignment, "_DENSE_CELLS", dense)
        assert value(solve(pairs)) == best(pairs)


def test_one_more_pair_beats_any_saving() -> None:
    assert solve([(0, 0, 1), (0, 1, 1000), (1, 0, 1000)]) == [(0, 1, 1000), (1, 0, 1000)]


def test_all_costs_zero_still_match() -> None:
    assert len(solve([(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)])) == 2


def test_nothing_to_match() -> None:
    assert solve([]) == []


def crowded(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    rng = np.random.default_rng(3)
    side = 8.0 * np.sqrt(count)
    truth = rng.uniform(0, side, (count, 2))
    predicted = np.concatenate((truth[: count * 9 // 10], rng.uniform(0, side, (count // 10, 2))))
    predicted += rng.normal(0, 4, predicted.shape)
    near = cKDTree(truth).sparse_distance_matrix(cKDTree(predicted), 10.0, output_type="ndarray")
    order = np.lexsort((near["j"], near["i"]))
    return near["i"][order].astype(np.int64), near["j"][order].astype(np.int64), near["v"][order]


def test_cutting_a_large_group_leaves_its_value_unchanged() -> None:
    rows, columns, costs = crowded(1500)
    whole_size = np.unique(rows).size * np.unique(columns).size
    assert whole_size > assignment._LARGE_CELLS, "the case must be large enough to be cut"
    cut = assign(rows, columns, costs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assignment, "_LARGE_CELLS", 10**12)
        whole = assign(rows, columns, costs)
    assert len(cut) == len(whole)
    assert costs[cut].sum() == pytest.approx(costs[whole].sum())
