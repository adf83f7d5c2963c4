"""Count accuracy: the published values, its known weaknesses with the right value, errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.metrics.counts import count_accuracy, count_errors, typical_count

# As the published subset: 21 images, 7 blank, 3 nearly blank, up to 141 objects.
TRUTH = np.array([0] * 7 + [1, 1, 2, 12, 20, 31, 40, 44, 52, 60, 75, 88, 110, 141])
TYPICAL = 44
MISSING = np.nan
COUNTS = st.lists(st.integers(0, 60), min_size=1, max_size=8)


def test_typical_count_is_the_upper_median_of_filled_images() -> None:
    assert typical_count(TRUTH) == TYPICAL  # the 8th of 14
    assert typical_count([0, 3, 9]) == 9
    assert typical_count([0, 3, 5, 9]) == 5
    assert typical_count([0, 0]) == typical_count([]) == 1


def test_exact_counts_score_one() -> None:
    assert count_accuracy(TRUTH, TRUTH).mean() == 1.0


def test_one_spurious_object_on_each_blank_image() -> None:
    predicted = np.where(TRUTH == 0, 1, TRUTH)
    assert count_accuracy(predicted, TRUTH).mean() == pytest.approx((14 + 7 * (1 - 1 / TYPICAL)) / 21)


def test_typical_many_spurious_objects_on_each_blank_image() -> None:
    predicted = np.where(TRUTH == 0, TYPICAL, TRUTH)
    assert count_accuracy(predicted, TRUTH).mean() == pytest.approx(14 / 21)


def test_one_spurious_object_on_each_nearly_blank_image() -> None:
    predicted = TRUTH + ((TRUTH > 0) & (TRUTH <= 2))
    assert count_accuracy(predicted, TRUTH).mean() == pytest.approx((18 + 3 * (1 - 1 / TYPICAL)) / 21)


def test_header_only_files_reach_the_share_of_blank_images() -> None:
    assert count_accuracy(np.zeros(21), TRUTH).mean() == pytest.approx(7 / 21)


def test_published_asymmetry_around_the_true_count() -> None:
    scores = [count_accuracy([count], [2], typical=44)[0] for count in (0, 1, 2, 3, 10, 20)]
    assert scores == pytest.approx([0.0, 0.5, 1.0, 0.977, 0.818, 0.591], abs=5e-4)


def test_a_missing_image_scores_zero_even_where_nothing_was_to_find() -> None:
    assert count_accuracy([MISSING, 4], [0, 4]).tolist() == [0.0, 1.0]


def test_mape_counts_a_missing_image_once() -> None:
    assert count_errors([10, MISSING], [10, 10]).mape == 0.5


def test_mape_leaves_out_blank_images() -> None:
    assert count_errors([MISSING, 10], [0, 10]).mape == 0.0
    assert count_errors([3], [0]).mape is None


def test_errors_by_hand() -> None:
    errors = count_errors([12, MISSING, 7], [10, 4, 8])
    assert errors.mae == pytest.approx((2 + 4 + 1) / 3)
    assert errors.rmse == pytest.approx(np.sqrt((4 + 16 + 1) / 3))
    assert errors.mape == pytest.approx((0.2 + 1.0 + 0.125) / 3)
    assert errors.bias == pytest.approx((2 - 4 - 1) / 3)


@given(COUNTS, st.data())
@settings(deadline=None)
def test_accuracy_is_bounded_exact_at_the_truth_and_falls_with_distance(truth: list[int], data: st.DataObject) -> None:
    predicted = data.draw(st.lists(st.integers(0, 200), min_size=len(truth), max_size=len(truth)))
    near, true = np.array(predicted), np.array(truth)
    accuracy = count_accuracy(near, true)
    assert ((accuracy >= 0) & (accuracy <= 1)).all()
    assert (count_accuracy(true, true) == 1).all()
    further = np.where(near < true, np.maximum(near - 1, 0), near + 1)
    assert (count_accuracy(further, true) <= accuracy).all()
    dropped = near.astype(float)
    dropped[0] = MISSING
    assert count_accuracy(dropped, true).mean() <= accuracy.mean()


@pytest.mark.parametrize("bad", [[-1], [2.5], [np.inf]])
def test_counts_that_cannot_be_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="whole numbers"):
        count_accuracy(bad, [1])


def test_lengths_must_agree_and_truth_cannot_be_missing() -> None:
    with pytest.raises(ValueError, match="expected counts of 2 images, found 1"):
        count_accuracy([1], [1, 2])
    with pytest.raises(ValueError, match="truth: counts"):
        count_errors([1], [MISSING])
    with pytest.raises(ValueError, match="at least one image"):
        count_errors([], [])
