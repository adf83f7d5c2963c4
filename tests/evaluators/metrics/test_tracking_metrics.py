"""Tracking measures on movies of a few pixels: every error by hand, known weaknesses with the right value."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from evaluators.metrics.lineage import LineageFaults
from evaluators.metrics.overlap import overlap_table
from evaluators.metrics.tracking import EventScore, TrackingAccumulator, TrackingScore, score_tracking

Movie = NDArray[np.int64]
Tracks = list[list[int]]


def score(truth: Movie, result: Movie, truth_tracks: Tracks, result_tracks: Tracks) -> TrackingScore:
    frames = ((frame, a, b, a) for frame, (a, b) in enumerate(zip(truth, result, strict=True)))
    return score_tracking(frames, truth_tracks, result_tracks)


def strip(*cells: tuple[int, int, int, int], frames: int, width: int = 40) -> Movie:
    """Draw cells (label, first frame, last frame, place) of 4 pixels, ``place`` counting in steps of 5."""
    movie = np.zeros((frames, 1, width), np.int64)
    for label, first, last, place in cells:
        movie[first : last + 1, 0, 5 * place : 5 * place + 4] = label
    return movie


MOTHER = strip((1, 0, 4, 0), (2, 5, 9, 0), (3, 5, 9, 1), frames=10)  # a division between frames 4 and 5
MOTHER_TRACKS = [[1, 0, 4, 0], [2, 5, 9, 1], [3, 5, 9, 1]]
PAIR = strip((1, 0, 3, 0), (2, 0, 3, 1), frames=4)
PAIR_TRACKS = [[1, 0, 3, 0], [2, 0, 3, 0]]


def errors(found: TrackingScore) -> tuple[int, ...]:
    """Count splits, missed and false nodes, redundant, missing and wrong edges."""
    return tuple(len(rows) for rows in vars(found.errors).values())


def test_truth_itself_scores_one() -> None:
    found = score(MOTHER, MOTHER, MOTHER_TRACKS, MOTHER_TRACKS)
    assert (found.seg, found.det, found.tra, found.lnk, found.aogm) == (1.0, 1.0, 1.0, 1.0, 0.0)
    assert (found.truth_nodes, found.result_nodes, found.truth_edges, found.result_edges) == (15, 15, 14, 14)
    assert found.divisions == {0: EventScore(1, 1, 1), 1: EventScore(1, 1, 1)}
    assert found.complete_tracks == EventScore(3, 3, 3)
    assert not found.truth_faults
    assert not found.result_faults


def test_result_without_any_object_scores_zero() -> None:
    for tracks in ([], [[1, 0, 9, 0]]):
        found = score(MOTHER, np.zeros_like(MOTHER), MOTHER_TRACKS, tracks)
        assert (found.seg, found.det, found.tra, found.lnk) == (0.0, 0.0, 0.0, 0.0)
        assert found.divisions[1].f1 == found.complete_tracks.f1 == 0.0


def test_two_frames_without_a_link() -> None:
    truth = strip((1, 0, 1, 0), frames=2)
    found = score(truth, truth, [[1, 0, 1, 0]], [[1, 0, 0, 0]])
    assert found.tra == pytest.approx(1 - 1.5 / (10 * 2 + 1.5))
    assert (found.seg, found.det, found.lnk) == (1.0, 1.0, 0.0)


def test_perfect_masks_without_links_have_lnk_zero_and_no_track() -> None:
    """TRA alone hardly notices: it keeps 10 N of 10 N + 1.5 E."""
    found = score(MOTHER, MOTHER, MOTHER_TRACKS, [[99, 0, 0, 0]])
    assert found.lnk == 0.0
    assert found.tra == pytest.approx(150 / 171)
    assert found.divisions[1].f1 == 0.0
    assert found.complete_tracks.f1 == 0.0
    assert found.result_faults == LineageFaults(0, 0, 0, 0, 0, 1, 0, 15)


def test_lost_parents_cost_tra_little_and_divisions_everything() -> None:
    found = score(MOTHER, MOTHER, MOTHER_TRACKS, [[1, 0, 4, 0], [2, 5, 9, 0], [3, 5, 9, 0]])
    assert found.tra == pytest.approx(0.9825, abs=5e-5)
    assert found.lnk == pytest.approx(12 / 14)
    assert found.divisions == {0: EventScore(0, 1, 0), 1: EventScore(0, 1, 0)}
    assert found.complete_tracks.f1 == 1.0


def test_swapped_identities_cost_two_edges_each_way() -> None:
    result = PAIR.copy()
    result[2:] = np.where(PAIR[2:] > 0, 3 - PAIR[2:], 0)
    found = score(PAIR, result, PAIR_TRACKS, PAIR_TRACKS)
    assert errors(found) == (0, 0, 0, 2, 2, 0)
    assert found.errors.redundant_edges.tolist() == [[1, 1, 2, 1], [1, 2, 2, 2]]
    assert found.errors.missing_edges.tolist() == [[1, 1, 2, 1], [1, 2, 2, 2]]
    assert found.lnk == pytest.approx(1 - (2 + 2 * 1.5) / (6 * 1.5))
    assert found.det == 1.0
    assert found.complete_tracks == EventScore(0, 2, 2)


def test_one_false_object_for_each_true_one() -> None:
    """SEG ignores them and TRA charges 1 each; false positives are counted."""
    result = PAIR + np.where(np.roll(PAIR, 20, axis=2) > 0, np.roll(PAIR, 20, axis=2) + 10, 0)
    tracks = [*PAIR_TRACKS, [11, 0, 3, 0], [12, 0, 3, 0]]
    found = score(PAIR, result, PAIR_TRACKS, tracks)
    assert errors(found) == (0, 0, 8, 0, 0, 0)
    assert found.seg == 1.0
    assert found.det == pytest.approx(0.9)
    assert found.lnk == 1.0  # edges between false objects go with them


def test_match_needs_more_than_half_of_the_reference_object() -> None:
    truth = np.ones((1, 10, 10), np.int64)
    half, more = truth.copy(), truth.copy()
    half[0, 5:], more[0, 5:] = 0, 0
    more[0, 5, 0] = 1
    tracks = [[1, 0, 0, 0]]
    assert score(truth, half, tracks, tracks).seg == 0.0
    assert errors(score(truth, half, tracks, tracks)) == (0, 1, 1, 0, 0, 0)
    assert score(truth, more, tracks, tracks).seg == pytest.approx(0.51)


def test_large_object_around_a_reference_is_credited() -> None:
    """100 pixels inside 250: a match by the challenge's rule, at an IoU of 0.4."""
    truth = np.zeros((1, 20, 20), np.int64)
    truth[0, :10, :10] = 1
    result = np.zeros_like(truth)
    result.ravel()[: 10 * 20] = 1
    result[0, 10:12, :20], result[0, 12, :10] = 1, 1
    found = score(truth, result, [[1, 0, 0, 0]], [[1, 0, 0, 0]])
    assert found.seg == 0.4
    assert found.det == 1.0


def test_one_object_over_two_equal_daughters_is_a_split_not_a_miss() -> None:
    result = PAIR.copy()
    result[1] = np.minimum(PAIR[1], 1)
    result[2:][PAIR[2:] == 2] = 3
    found = score(PAIR, result, PAIR_TRACKS, [[1, 0, 3, 0], [2, 0, 0, 0], [3, 2, 3, 0]])
    assert found.errors.split_nodes.tolist() == [[1, 1]]
    assert errors(found)[:3] == (1, 0, 0)
    assert found.det == pytest.approx(1 - 5 / 80)
    assert found.seg == pytest.approx((6 + 2 * 0.5) / 8)
    # Edges at the shared object are missing for both, and none of its own is called redundant.
    assert found.errors.missing_edges.tolist() == [[0, 1, 1, 1], [0, 2, 1, 2], [1, 1, 2, 1], [1, 2, 2, 2]]
    assert len(found.errors.redundant_edges) == 0
    assert found.complete_tracks.matched == 0


def test_three_markers_in_one_object_are_two_splits() -> None:
    truth = strip((1, 0, 0, 0), (2, 0, 0, 1), (3, 0, 0, 2), frames=1)
    rows = [[1, 0, 0, 0], [2, 0, 0, 0], [3, 0, 0, 0]]
    found = score(truth, np.minimum(truth, 1), rows, rows[:1])
    assert found.errors.split_nodes.tolist() == [[0, 1], [0, 1]]


def test_track_cut_in_two_with_a_parent_link_is_one_wrong_edge() -> None:
    result = PAIR.copy()
    result[2:][PAIR[2:] == 1] = 7
    found = score(PAIR, result, PAIR_TRACKS, [[1, 0, 1, 0], [2, 0, 3, 0], [7, 2, 3, 1]])
    assert errors(found) == (0, 0, 0, 0, 0, 1)
    assert found.errors.wrong_edges.tolist() == [[1, 1, 2, 7]]
    assert found.lnk == pytest.approx(1 - 1 / 9)
    assert found.complete_tracks == EventScore(1, 2, 3)


def test_one_lost_object_costs_the_node_and_two_links() -> None:
    result = PAIR.copy()
    result[1][PAIR[1] == 1] = 0
    kept_id = score(PAIR, result, PAIR_TRACKS, PAIR_TRACKS)
    assert errors(kept_id) == (0, 1, 0, 0, 2, 0)
    assert kept_id.result_faults == LineageFaults(0, 0, 0, 0, 0, 0, 1, 0)

    # Written as the challenge wants it, a new track whose parent ended before the gap, the bridge is a redundant edge.
    result[2:][PAIR[2:] == 1] = 7
    bridged = score(PAIR, result, PAIR_TRACKS, [[1, 0, 0, 0], [2, 0, 3, 0], [7, 2, 3, 1]])
    assert errors(bridged) == (0, 1, 0, 1, 2, 0)
    assert not bridged.result_faults


def test_a_bridge_over_a_gap_of_truth_is_credited() -> None:
    """A cell leaves focus and comes back: truth itself links over the gap."""
    truth = strip((1, 0, 1, 0), (2, 3, 4, 0), frames=5)
    rows = [[1, 0, 1, 0], [2, 3, 4, 1]]
    assert score(truth, truth, rows, rows).lnk == 1.0
    assert score(truth, truth, rows, [[1, 0, 1, 0], [2, 3, 4, 0]]).lnk == pytest.approx(2 / 3)


def divided_at(frame: int) -> tuple[Movie, Tracks]:
    """Return the mother's movie with her division told ``frame`` frames late (or early, if negative)."""
    end = 4 + frame
    movie = strip((1, 0, end, 0), (2, end + 1, 9, 0), (3, end + 1, 9, 1), frames=10)
    return movie, [[1, 0, end, 0], [2, end + 1, 9, 1], [3, end + 1, 9, 1]]


@pytest.mark.parametrize(
    ("shift", "exact", "within_one"), [(0, 1.0, 1.0), (1, 0.0, 1.0), (-1, 0.0, 1.0), (2, 0.0, 0.0)]
)
def test_divisions_early_and_late(shift: int, exact: float, within_one: float) -> None:
    movie, rows = divided_at(shift)
    found = score(MOTHER, movie, MOTHER_TRACKS, rows)
    assert {tolerance: event.f1 for tolerance, event in found.divisions.items()} == {0: exact, 1: within_one}


def test_division_with_a_wrong_daughter_does_not_count() -> None:
    truth = strip((1, 0, 1, 0), (2, 2, 3, 0), (3, 2, 3, 1), (4, 0, 3, 3), frames=4)
    rows = [[1, 0, 1, 0], [2, 2, 3, 1], [3, 2, 3, 1], [4, 0, 3, 0]]
    wrong = truth.copy()
    wrong[2:][truth[2:] == 4] = 3
    wrong[2:][truth[2:] == 3] = 4
    found = score(truth, wrong, rows, rows)
    assert found.divisions[1] == EventScore(0, 1, 1)


def test_division_of_another_mother_does_not_count_within_a_tolerance() -> None:
    """The dividing track held the right mother until the frame before she divided."""
    truth = strip((1, 0, 1, 0), (2, 2, 3, 0), (3, 2, 3, 1), (4, 0, 3, 3), frames=4)
    rows = [[1, 0, 1, 0], [2, 2, 3, 1], [3, 2, 3, 1], [4, 0, 3, 0]]
    swapped = truth.copy()
    swapped[1] = np.select([truth[1] == 1, truth[1] == 4], [4, 1], truth[1])
    assert score(truth, swapped, rows, rows).divisions[1] == EventScore(0, 1, 1)


def test_daughter_that_begins_with_her_mothers_last_frame_has_no_parent_edge() -> None:
    rows = [[1, 0, 5, 0], [2, 5, 9, 1], [3, 5, 9, 1]]
    movie = MOTHER + strip((1, 5, 5, 3), frames=10)
    found = score(movie, movie, rows, rows)
    assert found.truth_faults.late_parents == 2
    assert found.truth_edges == 5 + 4 + 4
    assert found.divisions[1].truth == 0


def test_track_with_an_object_outside_its_row_is_not_complete() -> None:
    longer = strip((1, 0, 3, 0), (2, 0, 3, 1), frames=6)
    result = longer.copy()
    result[5, 0, :4] = 1
    found = score(longer, result, PAIR_TRACKS, PAIR_TRACKS)
    assert found.complete_tracks == EventScore(1, 2, 2)
    assert found.result_faults.uncovered_objects == 1


def test_division_into_three_is_one_event_that_two_daughters_do_not_match() -> None:
    truth = strip((1, 0, 0, 0), (2, 1, 1, 0), (3, 1, 1, 1), (4, 1, 1, 2), frames=2)
    rows = [[1, 0, 0, 0], [2, 1, 1, 1], [3, 1, 1, 1], [4, 1, 1, 1]]
    assert score(truth, truth, rows, rows).divisions[0] == EventScore(1, 1, 1)
    assert score(truth, truth, rows, [*rows[:3], [4, 1, 1, 0]]).divisions[0] == EventScore(0, 1, 1)


def test_invented_division_is_a_false_positive() -> None:
    found = score(PAIR, PAIR, PAIR_TRACKS, PAIR_TRACKS)
    assert found.divisions[0].f1 == 1.0  # none there, none told
    result = strip((1, 0, 1, 0), (2, 2, 3, 0), (3, 2, 3, 1), (4, 0, 1, 1), frames=4)
    found = score(PAIR, result, PAIR_TRACKS, [[1, 0, 1, 0], [2, 2, 3, 1], [3, 2, 3, 1], [4, 0, 1, 0]])
    assert found.divisions[0] == EventScore(0, 0, 1)
    assert found.divisions[0].f1 == 0.0
    assert errors(found) == (0, 0, 0, 1, 1, 1)


def test_frames_counted_from_one_lose_links_and_divisions_and_are_named() -> None:
    shifted = [[label, first + 1, last + 1, parent] for label, first, last, parent in MOTHER_TRACKS]
    found = score(MOTHER, MOTHER, MOTHER_TRACKS, shifted)
    assert found.tra > 0.95  # nearly free, hence the faults
    assert found.divisions[1].f1 == 0.0
    faults = found.result_faults
    assert (faults.outside_rows, faults.missing_objects, faults.uncovered_objects) == (2, 1, 3)


def test_faults_of_a_track_table_are_counted_and_survived() -> None:
    rows = [
        [1, 0, 4, 1],  # its own parent
        [2, 5, 9, 1],
        [2, 0, 9, 0],  # repeats an id
        [3, 5, 9, 42],  # unknown parent
        [0, 0, 9, 0],  # no id
        [-7, 0, 9, 0],
        [5, 9, 2, 0],  # ends before it begins
        [6, 2, 30, 2],  # begins before its parent ends, ends after the movie, has no pixel
        [2**62, -(2**62), 2**62, 2**62 + 1],
    ]
    found = score(MOTHER, MOTHER, MOTHER_TRACKS, rows)
    assert found.result_faults == LineageFaults(
        invalid_rows=3,
        repeated_ids=1,
        outside_rows=2,
        unknown_parents=3,
        late_parents=1,
        empty_rows=2,
        missing_objects=0,
        uncovered_objects=0,
    )
    assert errors(found) == (0, 0, 0, 0, 1, 0)  # the parent link of track 3


def test_surplus_frames_are_false_positives() -> None:
    longer = np.concatenate((PAIR, PAIR[:1]))
    truth = np.concatenate((PAIR, np.zeros_like(PAIR[:1])))
    found = score(truth, longer, PAIR_TRACKS, [[1, 0, 4, 0], [2, 0, 4, 0]])
    assert errors(found) == (0, 0, 2, 0, 0, 0)
    assert found.truth_nodes == 8


def test_seg_uses_annotated_frames_only() -> None:
    result = PAIR.copy()
    result[3] = 0
    accumulator = TrackingAccumulator(PAIR_TRACKS, PAIR_TRACKS)
    for frame in range(4):
        annotated = PAIR[frame] if frame in (0, 2) else None
        accumulator.add_frame(frame, PAIR[frame], result[frame], segmentation=annotated)
    found = accumulator.score()
    assert (found.seg, found.seg_objects) == (1.0, 4)
    assert found.det == pytest.approx(0.75)


def test_without_annotated_frames_there_is_no_seg() -> None:
    found = score_tracking(((k, frame, frame, None) for k, frame in enumerate(PAIR)), PAIR_TRACKS, PAIR_TRACKS)
    assert found.seg is None
    assert found.tra == 1.0


def test_scores_of_a_frame() -> None:
    truth = strip((1, 0, 0, 0), (2, 0, 0, 1), (3, 0, 0, 2), frames=1)[0]
    result = np.where(truth == 2, 1, truth)  # merges two, keeps one
    result[0, 30:33] = 9
    frame = TrackingAccumulator([], []).add_frame(5, truth, result, segmentation=truth)
    assert (frame.frame, frame.truth_objects, frame.result_objects) == (5, 3, 3)
    assert (frame.missed, frame.false, frame.splits) == (0, 1, 1)
    assert frame.seg == pytest.approx((0.5 + 0.5 + 1.0) / 3)


def test_tables_and_images_are_the_same_to_it() -> None:
    by_table = TrackingAccumulator(MOTHER_TRACKS, MOTHER_TRACKS)
    for frame, image in enumerate(MOTHER):
        table = overlap_table(image, np.roll(image, 1))
        by_table.add_tables(frame, table, table)
    direct = score(MOTHER, np.roll(MOTHER, 1, axis=2), MOTHER_TRACKS, MOTHER_TRACKS)
    assert (by_table.score().seg, by_table.score().tra) == (direct.seg, direct.tra)


def test_misuse_is_refused() -> None:
    accumulator = TrackingAccumulator(PAIR_TRACKS, [[1, 0, 3]])
    with pytest.raises(ValueError, match="no object in any frame"):
        accumulator.score()
    accumulator.add_frame(0, PAIR[0], PAIR[0])
    with pytest.raises(ValueError, match="frame 0: expected each frame once"):
        accumulator.add_frame(0, PAIR[0], PAIR[0])
    with pytest.raises(ValueError, match="rows of four numbers"):
        accumulator.score()
    with pytest.raises(TypeError, match="expected integers"):
        score_tracking([(0, PAIR[0], PAIR[0], None)], [[1.5, 0, 0, 0]], PAIR_TRACKS)


# Random movies: every pixel a label, tables with any parents.
MOVIES = st.lists(st.lists(st.integers(0, 4), min_size=8, max_size=8), min_size=4, max_size=4).map(
    lambda rows: np.array(rows, np.int64)[:, None]
)
TABLES = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 3), st.integers(0, 4)), max_size=5
).map(lambda rows: [list(row) for row in rows])


def summary(found: TrackingScore) -> list[float]:
    values = [found.seg or 0.0, found.det, found.tra, found.lnk, found.complete_tracks.f1]
    return values + [event.f1 for event in found.divisions.values()]


@given(MOVIES.filter(np.any), MOVIES, TABLES, TABLES)
@settings(deadline=None)
def test_measures_are_bounded(truth: Movie, result: Movie, truth_tracks: Tracks, result_tracks: Tracks) -> None:
    found = score(truth, result, truth_tracks, result_tracks)
    assert all(0.0 <= value <= 1.0 for value in summary(found))
    assert found.tra == pytest.approx(1 - min(found.aogm / (10 * found.truth_nodes + 1.5 * found.truth_edges), 1.0))
    assert score(truth, truth, truth_tracks, truth_tracks).aogm == 0.0


@given(MOVIES.filter(np.any), MOVIES, TABLES, TABLES, st.permutations(range(1, 5)), st.permutations(range(4)))
@settings(deadline=None)
def test_labels_and_order_carry_no_meaning(
    truth: Movie, result: Movie, truth_tracks: Tracks, result_tracks: Tracks, new: list[int], order: list[int]
) -> None:
    # Of repeated ids the first usable row counts, which is what makes their order matter.
    result_tracks = list({row[0]: row for row in result_tracks}.values())
    expected = score(truth, result, truth_tracks, result_tracks)
    ids = np.array([0, *new])
    renamed = [[int(ids[label]), first, last, int(ids[parent])] for label, first, last, parent in result_tracks]
    accumulator = TrackingAccumulator(truth_tracks, renamed[::-1])
    for frame in order:
        accumulator.add_frame(frame, truth[frame], ids[result[frame]], segmentation=truth[frame])
    assert summary(accumulator.score()) == pytest.approx(summary(expected))


@given(st.permutations([(frame, label) for frame in range(10) for label in (1, 2, 3)]))
@settings(deadline=None, max_examples=12)
def test_leaving_out_more_objects_never_helps(order: list[tuple[int, int]]) -> None:
    result, last = MOTHER.copy(), [1.0] * 4
    for frame, label in order:
        result[frame][result[frame] == label] = 0
        found = score(MOTHER, result, MOTHER_TRACKS, MOTHER_TRACKS)
        values = [found.seg or 0.0, found.det, found.tra, found.lnk]
        assert all(value <= before + 1e-12 for value, before in zip(values, last, strict=True))
        last = values
    assert last == [0.0] * 4
