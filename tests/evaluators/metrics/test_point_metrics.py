"""Point matching: known weaknesses of greedy matching, conventions, invariants, chance level."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.metrics.points import above_chance, grid_f1, match_points, random_f1

Points = list[tuple[int, int]]
POINTS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=6)


def brute_force(truth: Points, predicted: Points, tolerance: float) -> tuple[int, float]:
    """Try every assignment: most pairs, then least total distance."""
    if len(truth) > len(predicted):
        truth, predicted = predicted, truth
    best = (0, 0.0)
    for order in permutations(range(len(predicted)), len(truth)):
        distances = [np.hypot(*np.subtract(point, predicted[j])) for point, j in zip(truth, order, strict=True)]
        near = [distance for distance in distances if distance <= tolerance]
        best = max(best, (len(near), -float(sum(near))))
    return best[0], -best[1]


def test_optimal_not_greedy() -> None:
    """Both predictions lie nearest to the first point; a greedy rule finds one pair and F1 0.5."""
    matching = match_points([(0, 0), (8, 0)], [(1, 0), (3.5, 0)], 10)
    assert matching.true_positives == 2
    assert matching.f1 == 1.0
    assert matching.distances.tolist() == [1.0, 4.5]


def test_two_close_localisations_both_count() -> None:
    assert match_points([(0.0, 5.0), (0.9, 5.0)], [(0.5, 5.0), (0.6, 5.0)], 1.0).true_positives == 2


@given(POINTS, POINTS, st.sampled_from([0.0, 1.0, 3.0, 5.0, 100.0]))
@settings(deadline=None, max_examples=60)
def test_as_good_as_trying_everything(truth: Points, predicted: Points, tolerance: float) -> None:
    matching = match_points(np.reshape(truth, (-1, 2)), np.reshape(predicted, (-1, 2)), tolerance)
    pairs, total = brute_force(truth, predicted, tolerance)
    assert matching.true_positives == pairs
    assert matching.distances.sum() == pytest.approx(total, abs=1e-9)


@given(POINTS, POINTS, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_order_of_rows_does_not_matter(truth: Points, predicted: Points, random: object) -> None:
    one = match_points(np.reshape(truth, (-1, 2)), np.reshape(predicted, (-1, 2)), 4.0)
    random.shuffle(truth)  # type: ignore[attr-defined]
    random.shuffle(predicted)  # type: ignore[attr-defined]
    other = match_points(np.reshape(truth, (-1, 2)), np.reshape(predicted, (-1, 2)), 4.0)
    assert (one.true_positives, one.rmse) == (other.true_positives, pytest.approx(other.rmse))
    assert sorted(one.distances) == pytest.approx(sorted(other.distances))


@given(POINTS, POINTS)
@settings(deadline=None)
def test_scores_are_symmetric_bounded_and_grow_with_the_tolerance(truth: Points, predicted: Points) -> None:
    a, b = np.reshape(truth, (-1, 2)), np.reshape(predicted, (-1, 2))
    scores = [match_points(a, b, tolerance).f1 for tolerance in (0, 1, 2, 5, 20)]
    assert scores == sorted(scores)
    assert all(0.0 <= score <= 1.0 for score in scores)
    matching, swapped = match_points(a, b, 3), match_points(b, a, 3)
    assert (matching.f1, matching.precision, matching.recall) == (swapped.f1, swapped.recall, swapped.precision)
    assert matching.jaccard <= matching.f1


def test_the_tolerance_itself_matches() -> None:
    assert match_points([(0, 0)], [(6, 8)], 10).true_positives == 1
    assert match_points([(0, 0)], [(6, 8.001)], 10).true_positives == 0
    assert match_points([(3, 3)], [(3, 3)], 0).true_positives == 1


def test_swapped_axes_do_not_match() -> None:
    truth = np.array([(10.0, 100.0), (200.0, 40.0)])
    assert match_points(truth, truth[:, ::-1], 10).f1 == 0.0


def test_right_count_in_wrong_places_finds_nothing() -> None:
    truth = np.array([(100.0 * k, 50.0) for k in range(1, 9)])
    assert match_points(truth, np.zeros_like(truth), 10).f1 == 0.0


def test_duplicates_of_a_hit_are_false_positives() -> None:
    matching = match_points([(0, 0)], [(0, 0), (0, 0), (0, 1)], 10)
    assert (matching.true_positives, matching.false_positives, matching.false_negatives) == (1, 2, 0)
    assert matching.rmse == 0.0


def test_empty_sides() -> None:
    nothing = np.empty((0, 2))
    both = match_points(nothing, nothing, 10)
    assert (both.f1, both.precision, both.recall, both.jaccard) == (1.0, 1.0, 1.0, 1.0)
    for matching in (match_points([(1, 1)], [], 10), match_points([], [(1, 1)], 10)):
        assert (matching.f1, matching.precision, matching.recall, matching.jaccard) == (0.0, 0.0, 0.0, 0.0)
        assert matching.rmse is None
        assert matching.mean_distance is None


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_prediction_that_is_not_finite_counts_as_false_positive(bad: float) -> None:
    matching = match_points([(5, 5)], [(5, 6), (bad, 5)], 10)
    assert (matching.true_positives, matching.false_positives) == (1, 1)
    assert matching.predicted_index.tolist() == [0]


def test_unusable_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="truth: coordinates must be finite"):
        match_points([(np.nan, 0)], [(0, 0)], 1)
    with pytest.raises(ValueError, match="dimensions differ"):
        match_points([(0, 0)], [(0, 0, 0)], 1)
    with pytest.raises(ValueError, match="tolerance -1"):
        match_points([(0, 0)], [(0, 0)], -1)
    with pytest.raises(ValueError, match="expected an array of shape"):
        match_points([0, 1], [(0, 0)], 1)
    with pytest.raises(ValueError, match="groups"):
        match_points([(0, 0)], [(0, 0)], 1, truth_groups=[0])


def test_localisation_error_of_the_matches() -> None:
    matching = match_points([(0, 0), (100, 0)], [(3, 4), (100, 1)], 10)
    assert matching.mean_distance == 3.0
    assert matching.rmse == pytest.approx(np.sqrt((25 + 1) / 2))


def test_groups_never_mix() -> None:
    truth, frames = [(5, 5), (5, 5), (9, 9)], [0, 1, 7]
    matching = match_points(truth, [(5, 5), (5, 5), (9, 9)], 2, truth_groups=frames, predicted_groups=[0, 0, 7])
    assert matching.truth_index.tolist() == [0, 2]
    assert matching.f1 == pytest.approx(2 / 3)


def test_three_dimensions() -> None:
    assert match_points([(0, 0, 0)], [(1, 2, 2)], 3).distances.tolist() == [3.0]


def test_sixty_thousand_points() -> None:
    rng = np.random.default_rng(0)
    truth = rng.uniform(0, 5000, (60_000, 2))
    predicted = np.concatenate((truth[:54_000] + rng.normal(0, 3, (54_000, 2)), rng.uniform(0, 5000, (6_000, 2))))
    matching = match_points(truth, predicted, 10.0)
    assert 53_000 < matching.true_positives < 57_000
    assert len(set(matching.predicted_index.tolist())) == matching.true_positives


def test_a_crowd_of_predictions_on_one_spot_stays_small() -> None:
    truth = [(0.0, 0.0), (1.0, 0.0), (500.0, 0.0)]
    matching = match_points(truth, np.zeros((300_000, 2)), 10.0)
    assert (matching.true_positives, matching.false_positives) == (2, 299_998)


def test_chance_level_of_sparse_points_follows_the_covered_area() -> None:
    """For few points the expected number of hits is n m times the share of the image that one disc covers."""
    truth = np.array([(300.0, 400.0), (600.0, 1200.0), (900.0, 200.0), (250.0, 1000.0)])
    expected = 4 * np.pi * 60.0**2 / (1200 * 1600)
    assert random_f1(truth, 4, (1200, 1600), 60.0, repeats=4000) == pytest.approx(expected, rel=0.12)


def test_chance_level_is_reproducible_and_has_ends() -> None:
    truth = np.array([(5.0, 5.0), (15.0, 15.0)])
    assert random_f1(truth, 2, (20, 20), 3.0) == random_f1(truth, 2, (20, 20), 3.0)
    assert random_f1(truth, 2, (20, 20), 1000.0) == 1.0
    assert random_f1(truth, 0, (20, 20), 3.0) == 0.0
    assert random_f1(np.empty((0, 2)), 0, (20, 20), 3.0) == 1.0


def test_above_chance() -> None:
    assert above_chance(1.0, 0.3) == 1.0
    assert above_chance(0.3, 0.3) == above_chance(0.1, 0.3) == 0.0
    assert above_chance(0.65, 0.3) == pytest.approx(0.5)
    assert (above_chance(1.0, 1.0), above_chance(0.9, 1.0)) == (1.0, 0.0)


def test_a_blind_grid_is_worth_much_in_a_dense_field() -> None:
    rng = np.random.default_rng(1)
    dense, sparse = rng.uniform(0, 200, (140, 2)), rng.uniform(0, 200, (5, 2))
    assert grid_f1(dense, (200.0, 200.0), 8.0) > 0.3
    assert grid_f1(sparse, (200.0, 200.0), 8.0) < 0.25
    assert grid_f1(np.zeros((0, 2)), (10.0, 10.0), 8.0) == 0.0
