"""Localisations: matching per frame, the border, and chance."""

from __future__ import annotations

import numpy as np

from evaluators.metrics.localizations import jaccard_at_other_times, match_localizations

POINTS = np.array([[10.0, 10.0], [20.0, 10.0], [30.0, 30.0]])
FRAMES = np.array([0, 0, 1])


def test_frames_do_not_mix() -> None:
    found = match_localizations(POINTS, FRAMES, POINTS, np.array([0, 1, 1]), 1.0)
    assert (found.true_positives, found.false_positives, found.false_negatives) == (2, 1, 1)
    assert found.jaccard == 0.5


def test_border_counts_neither_way() -> None:
    truth = np.array([[2.0, 10.0], [5.0, 10.0], [20.0, 20.0]])
    frames = np.zeros(3, int)
    predicted = np.array([[2.1, 10.0], [4.5, 10.0], [39.0, 20.0], [3.0, 30.0]])
    shape = (40.0, 40.0)
    found = match_localizations(truth, frames, predicted, np.zeros(4, int), 1.0, shape=shape, border=4.5)
    # truth (2, 10) lies in the border; (5, 10) has its partner at the edge of it; (20, 20) is missed
    assert (found.true_positives, found.false_positives, found.false_negatives) == (1, 0, 1)
    inner = match_localizations(
        truth[1:2], frames[:1], np.array([[4.2, 10.0]]), frames[:1], 1.0, shape=shape, border=4.5
    )
    assert (inner.true_positives, inner.false_positives) == (1, 0)


def test_positions_that_are_not_finite_or_off_the_image_are_invented() -> None:
    predicted = np.array([[np.nan, 1.0], [-3.0, 10.0], [10.0, 10.0]])
    found = match_localizations(POINTS, FRAMES, predicted, np.zeros(3, int), 1.0, shape=(40.0, 40.0), border=4.0)
    assert (found.true_positives, found.false_positives, found.false_negatives) == (1, 2, 2)


def test_chance_of_knowing_the_places() -> None:
    always = np.repeat([[10.0, 10.0]], 8, axis=0)
    assert jaccard_at_other_times(always, np.arange(8), 1.0) == 1.0  # never off: the moment says nothing
    apart = np.column_stack((10.0 * np.arange(8), np.zeros(8)))
    assert jaccard_at_other_times(apart, np.arange(8), 1.0) == 0.0
    assert jaccard_at_other_times(np.zeros((0, 2)), np.zeros(0, int), 1.0) == 0.0
