"""Agreement of tables, with values derived by hand."""

from __future__ import annotations

import doctest
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.metrics import artifacts
from evaluators.metrics.artifacts import (
    blind_interval_quality,
    identifier_f1,
    label_f1,
    match_intervals,
    number_agreement,
    number_skill,
)

NAN = math.nan


def test_docstring_examples() -> None:
    failures, examples = doctest.testmod(artifacts)
    assert (failures, examples >= 3) == (0, True)


# --- identifiers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "value"),
    [
        ("abcd", 1.0),
        ("dcba", 1.0),
        ("ab", 2 * 2 / 6),
        ("abcdefgh", 2 * 4 / 12),
        ("xy", 0.0),
        ("", 0.0),
        ("aabcd", 2 * 4 / 9),  # a repeat is one too many
        ("aaaa", 2 * 1 / 8),
    ],
)
def test_identifier_f1(found: str, value: float) -> None:
    assert identifier_f1("abcd", found) == pytest.approx(value)


def test_nothing_wanted_and_nothing_given_is_right() -> None:
    assert identifier_f1([], []) == 1.0
    assert identifier_f1([], ["a"]) == 0.0


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_number_agreement_is_lins_concordance() -> None:
    # means 2 and 4, variances 2/3 and 8/3, covariance 4/3: 2 * 4/3 / (10/3 + 4)
    assert number_agreement([1, 2, 3], [2, 4, 6]) == pytest.approx((8 / 3) / (22 / 3))
    # the same numbers and 1 more: variance 2/3 each, covariance 2/3: (4/3) / (4/3 + 1)
    assert number_agreement([1, 2, 3], [2, 3, 4]) == pytest.approx(4 / 7)
    assert number_agreement([1, 2, 3], [3, 2, 1]) == 0.0  # -1, which counts as nothing
    assert number_agreement([1, 2, 3], [2, 2, 2]) == 0.0
    assert number_agreement([1, 2, 3], [1, 2, 3]) == 1.0


def test_wrong_units_do_not_pass_as_a_correlation_would() -> None:
    truth = np.array([1.0, 2.0, 3.0, 4.0])
    assert number_agreement(truth, 1000 * truth) < 0.01


def test_cells_without_a_number_count() -> None:
    assert number_agreement([1, 2, 3, 4], [1, 2, NAN, NAN]) == pytest.approx(0.5)
    assert number_agreement([1, 2, NAN, NAN], [1, 2, NAN, NAN]) == 1.0
    assert number_agreement([1, 2, NAN, NAN], [1, 2, 3, 4]) == pytest.approx(0.5)
    assert number_agreement([1, 2], [NAN, NAN]) == 0.0
    assert number_agreement([NAN, NAN], [NAN, NAN]) == 1.0
    assert number_agreement([NAN, NAN], [NAN, 1.0]) == 0.5
    assert number_agreement([], []) == 0.0


def test_where_concordance_is_not_defined_only_equal_numbers_count() -> None:
    assert number_agreement([5, 5, 5], [5, 5, 5.0000001]) == 1.0
    assert number_agreement([5, 5, 5], [4, 5, 6]) == 0.0
    assert number_agreement([7], [7]) == 1.0
    assert number_agreement([7], [8]) == 0.0


def test_number_skill_by_hand() -> None:
    # Truth 0, 1, 3, 4: median 2, absolute deviations 2, 1, 1, 2, scale s = 1.4826 * 1.5. The constant 1 has errors 1,
    # 0, 2, 3 and earns 3 - 5/s2 over four cells (an error of 3 is beyond s), more than the mean 2 with 4 - 10/s2.
    s2 = (1.4826 * 1.5) ** 2
    blind = (3 - 5 / s2) / 4
    assert number_skill([0, 1, 3, 4], [0, 1, 3, 5]) == pytest.approx(((4 - 1 / s2) / 4 - blind) / (1 - blind))
    assert number_skill([0, 1, 3, 4], [0, 1, 3, NAN]) == pytest.approx(max(0.0, (3 / 4 - blind) / (1 - blind)))
    assert number_skill([0, 1, 3, 4], [0, 1, 3, 1e300]) == number_skill([0, 1, 3, 4], [0, 1, 3, NAN])
    assert number_skill([0, 1, 3, 4], [1, 1, 1, 1]) == number_skill([0, 1, 3, 4], [2, 2, 2, 2]) == 0.0


def test_number_skill_where_more_than_half_of_the_values_are_the_same() -> None:
    # 0, 0, 0, 4: the median deviation is 0; mean deviation from the mean 1 is (1 + 1 + 1 + 3) / 4
    s2, wrong = 1.5**2, [0, 0, 0, 3]
    blind = 3 / 4  # the constant 0; the constant 1 earns 3 * (1 - 1/s2) / 4
    assert number_skill([0, 0, 0, 4], wrong) == pytest.approx(((4 - 1 / s2) / 4 - blind) / (1 - blind))
    assert number_skill([0, 0, 0, 4], [0, 0, 0, 0]) == 0.0


def test_number_skill_needs_values_that_differ() -> None:
    assert number_skill([3, 3, 3], [3, 3, 3]) is None
    assert number_skill([NAN, 3], [1, 3]) is None
    assert number_skill([], []) is None


def test_permuted_numbers_have_no_skill() -> None:
    generator = np.random.default_rng(0)
    above = 0
    for _ in range(300):
        truth = generator.lognormal(0.0, 0.7, 24)
        above += (number_skill(truth, generator.permutation(truth)) or 0.0) > 0.2
    assert above <= 6  # 2 %


def test_mild_noise_keeps_most_of_the_skill() -> None:
    generator = np.random.default_rng(1)
    truth = generator.normal(50.0, 15.0, 24)
    for _ in range(20):
        assert (number_skill(truth, truth + generator.normal(0.0, 3.0, 24)) or 0.0) > 0.6


numbers = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12)


@settings(deadline=None, max_examples=60)
@given(numbers, st.data())
def test_numbers_stay_within_bounds_and_leaving_one_out_never_pays(truth: list[float], data: st.DataObject) -> None:
    cell = st.one_of(st.floats(allow_nan=True, allow_infinity=False), st.just(NAN))
    predicted = data.draw(st.lists(cell, min_size=len(truth), max_size=len(truth)))
    assert 0.0 <= number_agreement(truth, predicted) <= 1.0 + 1e-12
    skill = number_skill(truth, predicted)
    if skill is None:
        return
    assert 0.0 <= skill <= 1.0
    predicted[data.draw(st.integers(0, len(truth) - 1))] = NAN
    fewer = number_skill(truth, predicted)
    assert fewer is not None
    assert fewer <= skill + 1e-12


@settings(deadline=None, max_examples=40)
@given(numbers, st.randoms())
def test_order_of_the_rows_does_not_matter(truth: list[float], random: object) -> None:
    predicted = [value * 1.1 + 1.0 for value in truth]
    order = np.random.default_rng(random.randint(0, 1000)).permutation(len(truth))  # type: ignore[attr-defined]
    shuffled = np.array(truth)[order], np.array(predicted)[order]
    assert number_agreement(*shuffled) == pytest.approx(number_agreement(truth, predicted), abs=1e-9)
    assert (number_skill(*shuffled) or 0.0) == pytest.approx(number_skill(truth, predicted) or 0.0, abs=1e-6)


# --- labels -----------------------------------------------------------------------------------------------------------


def test_label_f1() -> None:
    assert label_f1([0, 0, 1, 1], [0, 0, 1, 1], 2) == 1.0
    # class 0: 2 * 1 / (2 + 1), class 1: 2 * 2 / (2 + 3)
    assert label_f1([0, 0, 1, 1], [0, 1, 1, 1], 2) == pytest.approx((2 / 3 + 4 / 5) / 2)
    # none of the classes: class 0: 2 * 1 / (2 + 1), class 1: 1
    assert label_f1([0, 0, 1, 1], [0, -1, 1, 1], 2) == pytest.approx((2 / 3 + 1) / 2)
    assert label_f1([0, 0], [0, 2], 3) == pytest.approx((2 / 3 + 0) / 2)  # class 2 is only claimed, class 1 nowhere
    assert label_f1([0, 0], [0, 0], 3) == 1.0
    assert label_f1([], [], 2) == 0.0


# --- intervals --------------------------------------------------------------------------------------------------------


def test_intervals_by_hand() -> None:
    truth = [(0, 10), (20, 30), (40, 50)]
    found = match_intervals(truth, [(0, 10), (22, 32), (44, 54), (60, 70)], 0.5)
    # overlaps 1, 8/12, 6/14; the last is below a half
    assert found.truth_index.tolist() == [0, 1]
    assert found.predicted_index.tolist() == [0, 1]
    assert found.overlaps.tolist() == pytest.approx([1, 2 / 3])
    assert found.f1 == pytest.approx(2 * 2 / 7)
    assert found.quality == pytest.approx(2 * (1 + 2 / 3) / 7)


def test_one_interval_over_everything_finds_one_at_most() -> None:
    assert match_intervals([(0, 10), (20, 30)], [(0, 30)], 0.1).f1 == pytest.approx(2 / 3)
    assert match_intervals([(0, 10), (20, 30)], [(0, 30)], 0.5).f1 == 0.0


def test_intervals_are_paired_optimally() -> None:
    # The first prediction fits both, the second only the first: a greedy rule that takes the best pair first loses one.
    found = match_intervals([(0, 10), (4, 14)], [(1, 11), (-3, 7)], 0.5)
    assert found.true_positives == 2
    assert found.predicted_index.tolist() == [1, 0]


def test_intervals_of_other_groups_and_wrong_ones_never_match() -> None:
    found = match_intervals([(0, 10)], [(0, 10)], 0.5, truth_groups=[1], predicted_groups=[2])
    assert (found.f1, found.predicted_count) == (0.0, 1)
    for wrong in ((10, 0), (5, 5), (NAN, 10), (0, math.inf)):
        assert match_intervals([(0, 10)], [wrong], 0.5).f1 == 0.0
    with pytest.raises(ValueError, match="true interval"):
        match_intervals([(10, 0)], [(0, 10)], 0.5)
    with pytest.raises(ValueError, match="least overlap"):
        match_intervals([(0, 10)], [(0, 10)], 0.0)


def test_nothing_on_both_sides() -> None:
    assert match_intervals(np.zeros((0, 2)), np.zeros((0, 2)), 0.5).f1 == 1.0
    assert match_intervals([(0, 1)], np.zeros((0, 2)), 0.5).f1 == 0.0


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), min_size=1, max_size=8), st.integers(0, 99))
def test_interval_pairs_do_not_depend_on_order(spans: list[tuple[int, int]], seed: int) -> None:
    generator = np.random.default_rng(seed)
    truth = np.array([(start, start + length) for start, length in spans], float)
    predicted = truth + generator.integers(-2, 3, truth.shape) * 0.5
    base = match_intervals(truth, predicted, 0.5)
    order = generator.permutation(len(predicted))
    mixed = match_intervals(truth, predicted[order], 0.5)
    assert mixed.true_positives == base.true_positives
    assert mixed.quality == pytest.approx(base.quality)
    # the same as looking at every pair
    low, high = np.maximum(truth[:, None], predicted[None]), np.minimum(truth[:, None], predicted[None])
    with np.errstate(all="ignore"):
        able = (high[..., 1] - low[..., 0]) / (low[..., 1] - high[..., 0]) >= 0.5
    able &= predicted[:, 1] > predicted[:, 0]
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    assert base.true_positives == int((maximum_bipartite_matching(csr_array(able), "column") >= 0).sum())


def test_blind_intervals() -> None:
    # one interval over the whole: laying out the span finds it
    assert blind_interval_quality([(3, 9)], 0.5) == 1.0
    # adjacent intervals of one length: a tiling finds them all
    assert blind_interval_quality([(0, 10), (10, 20), (20, 30)], 0.5) == pytest.approx(1.0)
    # irregular ones in two groups: little
    generator = np.random.default_rng(0)
    starts = np.cumsum(generator.uniform(5, 60, 40))
    truth = np.column_stack((starts, starts + generator.uniform(2, 5, 40)))
    assert blind_interval_quality(truth, 0.5, np.repeat([0, 1], 20)) < 0.25
