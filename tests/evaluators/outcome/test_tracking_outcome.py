"""Cell tracking: the published weaknesses with what is right, both layouts, and what is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tifffile

from evaluators import OutcomeScore, TruthError
from evaluators.outcome import cell_tracking

Codes = Callable[[OutcomeScore], set[str]]
Desk = Any
Write = Callable[..., Any]


def test_replay_is_perfect_and_streams_one_stack(tracking: Desk) -> None:
    tracking.replay()
    score = tracking.score()
    assert (score.outcome, score.strict, score.delivered, score.problems) == (1.0, 1.0, True, [])
    assert sorted(path.name for path in tracking.output.iterdir()) == ["00_RES.ome.tif", "res_track.txt"]
    np.testing.assert_array_equal(tifffile.imread(tracking.output / "00_RES.ome.tif"), tracking.stack)
    assert score.metrics["division_f1"] == score.metrics["complete_tracks_f1"] == 1.0
    assert len(score.items) == 10


def test_one_part_missing_is_zero_in_its_part(tracking: Desk, codes: Codes) -> None:
    tracking.replay()
    (tracking.output / "res_track.txt").unlink()
    score = tracking.score()
    assert (score.outcome, score.strict) == (0.5, 0.0)
    assert codes(score) == {"missing_deliverable"}
    (tracking.output / "00_RES.ome.tif").unlink()
    score = tracking.score()
    assert (score.outcome, score.strict, score.delivered) == (0.0, 0.0, False)
    tracking.write("res_track.txt", "1 0 4 0\n")
    assert tracking.score().outcome == 0.0


def test_a_lineage_of_one_dummy_row_is_no_tracking(tracking: Desk, codes: Codes) -> None:
    """Published: 0.9348 for perfect masks and a dummy row. Objects without a row are no part of the tracking."""
    tracking.submit(tracking.stack, [(999, 0, 0, 0)])
    score = tracking.score()
    assert (score.metrics["seg"], score.metrics["tra"]) == (1.0, 0.0)
    assert (score.outcome, score.strict) == (0.5, 0.0)
    assert codes(score) == {"label_without_row", "row_without_object"}


def test_masks_without_links(tracking: Desk) -> None:
    """Every object its own track: valid, and worth much in the published weights; strict is 0."""
    stack = np.zeros_like(tracking.stack)
    tracks = []
    for frame, image in enumerate(tracking.stack):
        for label in np.unique(image[image > 0]):
            tracks.append((len(tracks) + 1, frame, frame, 0))
            stack[frame][image == label] = len(tracks)
    tracking.submit(stack, tracks)
    score = tracking.score()
    assert score.metrics["seg"] == 1.0
    assert score.metrics["lnk"] == 0.0
    assert score.outcome > 0.9
    assert score.strict == 0.0


def test_losing_every_division_is_seen_by_strict(tracking: Desk) -> None:
    tracking.submit(tracking.stack, [(label, begin, end, 0) for label, begin, end, _ in tracking.tracks])
    score = tracking.score()
    assert score.metrics["division_f1"] == 0.0
    assert score.outcome > 0.98
    assert score.strict == 0.0


def test_specks_are_seen_by_strict(tracking: Desk) -> None:
    """Published: one background speck per cell kept SEG at 1."""
    stack = tracking.stack.copy()
    tracks = list(tracking.tracks)
    for frame in range(10):
        for number in range(3):
            label = 100 + 3 * frame + number
            stack[frame, 31, 3 * number] = label
            tracks.append((label, frame, frame, 0))
    tracking.submit(stack, tracks)
    score = tracking.score()
    assert score.metrics["seg"] == 1.0
    assert score.metrics["object_precision"] == pytest.approx(22 / 52)
    assert score.strict < 0.8


def test_late_frames_do_not_hide_early_ones_in_strict(tracking: Desk) -> None:
    """SEG pools objects; strict averages frames."""
    stack = tracking.stack.copy()
    stack[7:] = 0
    tracking.submit(stack)
    score = tracking.score()
    assert score.metrics["seg"] == pytest.approx(16 / 22)
    assert score.metrics["seg_frame_mean"] == pytest.approx(7 / 10)


def test_objects_must_cover_more_than_half_of_the_reference(tracking: Desk, write: Write) -> None:
    """The challenge's criterion: 100 px inside a result of 250 px give a Jaccard index of 0.4 and a found object."""
    truth = np.zeros((2, 20, 30), np.uint16)
    truth[:, 5:15, 5:15] = 1
    found = np.zeros_like(truth)
    found[:, 5:15, 2:27] = 1
    write(tracking.truth / "00_GT.ome.tif", truth, ome=True)
    write(tracking.truth / "man_track.txt", "1 0 1 0\n")
    tracking.submit(found, [(1, 0, 1, 0)])
    metrics = tracking.score().metrics
    assert (metrics["seg"], metrics["det"], metrics["tra"]) == (pytest.approx(0.4), 1.0, 1.0)


def test_a_mother_without_parents_recorded(tracking: Desk, write: Write) -> None:
    """Published fixture: N = 15, E = 14, both parent ids 0: TRA 0.9825, no division."""
    truth = np.zeros((10, 12, 30), np.uint16)
    truth[:5, 2:8, 2:20] = 1
    truth[5:, 2:8, 2:9], truth[5:, 2:8, 12:20] = 2, 3
    write(tracking.truth / "00_GT.ome.tif", truth, ome=True)
    write(tracking.truth / "man_track.txt", "1 0 4 0\n2 5 9 1\n3 5 9 1\n")
    tracking.submit(truth, [(1, 0, 4, 0), (2, 5, 9, 0), (3, 5, 9, 0)])
    metrics = tracking.score().metrics
    assert metrics["tra"] == pytest.approx(0.9825, abs=5e-5)
    assert metrics["division_f1"] == 0.0


def test_empty_masks_score_zero(tracking: Desk) -> None:
    tracking.submit(np.zeros_like(tracking.stack), [(1, 0, 9, 0)])
    score = tracking.score()
    assert (score.outcome, score.strict, score.delivered) == (0.0, 0.0, True)


@pytest.mark.parametrize(
    "layout", ["series", "bigtiff", "lzw", "imagej", "singleton", "int32", "float32", "folder", "01_RES"]
)
def test_layouts_that_people_write(layout: str, tracking: Desk) -> None:
    """Published: one page per series collapsed to one frame, challenge folders were read as one frame."""
    tracking.submit(tracking.stack)
    path = tracking.output / "00_RES.ome.tif"
    stack = tracking.stack
    if layout == "series":
        path.unlink()
        with tifffile.TiffWriter(path) as writer:
            for image in stack:
                writer.write(image)
    elif layout in ("folder", "01_RES"):
        path.unlink()
        for frame, image in enumerate(stack):
            tracking.write(f"{'' if layout == 'folder' else '01_RES/'}mask{frame:03d}.tif", image)
    elif layout == "singleton":
        tracking.write(path.name, stack[:, None, :, :, None])
    elif layout in ("int32", "float32"):
        tracking.write(path.name, stack.astype(layout))
    else:
        options = {"bigtiff": {"bigtiff": True}, "lzw": {"compression": "lzw"}, "imagej": {"imagej": True}}[layout]
        tracking.write(path.name, stack, **options)
    score = tracking.score()
    assert (score.outcome, score.strict, score.problems) == (1.0, 1.0, [])


def test_a_challenge_folder_as_truth(tracking: Desk, write: Write) -> None:
    """SEG against SEG masks of annotated frames only, TRA against markers; perfect tracking may have SEG below 1."""
    markers = np.where(np.roll(tracking.stack, 1, axis=1) == tracking.stack, tracking.stack, 0)
    for path in tracking.truth.iterdir():
        path.unlink()
    for frame in range(10):
        write(tracking.truth / "01_GT" / "TRA" / f"man_track{frame:03d}.tif", markers[frame])
        if frame % 4 == 0:
            write(tracking.truth / "01_GT" / "SEG" / f"man_seg{frame:03d}.tif", tracking.stack[frame] * 7)
    lineage = "".join(" ".join(map(str, row)) + "\n" for row in tracking.tracks)
    write(tracking.truth / "01_GT" / "TRA" / "man_track.txt", lineage)
    tracking.replay()
    assert (tracking.output / "mask000.tif").is_file()
    score = tracking.score()
    assert (score.outcome, score.strict) == (1.0, 1.0)
    assert sum(item["seg"] is not None for item in score.items) == 3
    shutil.rmtree(tracking.output)
    tracking.submit(markers)
    score = tracking.score()
    assert score.metrics["tra"] == 1.0
    assert 0.5 < score.metrics["seg"] < 1.0


def test_the_lineage_is_told_by_its_content(tracking: Desk, codes: Codes) -> None:
    """Published: README_track.txt, Tracking_report.txt or tracking_out/README.txt went first."""
    tracking.submit(tracking.stack)
    tracking.write("README_track.txt", "Tracks of all 10 frames.\nSee 3 figures.\n")
    tracking.write("Tracking_report.txt", "800 frames were tracked\n")
    tracking.write("tracking_out/README.txt", "nothing here\n")
    tracking.write("00_tracking_log.txt", "frame 0 done\nframe 1 done\n")
    score = tracking.score()
    assert (score.outcome, score.problems) == (1.0, [])
    tracking.write("old/my_tracks.txt", "1 0 9 0\n")
    score = tracking.score()
    assert score.outcome == 1.0
    assert codes(score) == {"duplicate_file"}


def test_two_lineages_of_equal_rank_are_ambiguous(tracking: Desk, codes: Codes) -> None:
    tracking.submit(tracking.stack)
    (tracking.output / "res_track.txt").rename(tracking.output / "a_track.txt")
    assert tracking.score().outcome == 1.0
    tracking.write("b_track.txt", "1 0 9 0\n")
    score = tracking.score()
    assert score.outcome == 0.5
    assert codes(score) == {"ambiguous_files"}


def test_two_sets_of_masks(tracking: Desk, codes: Codes) -> None:
    tracking.submit(tracking.stack)
    tracking.write("mask000.tif", tracking.stack[0])  # fewer frames: cannot be meant
    tracking.write("mask_overview.tif", np.zeros((5, 5), np.uint8))
    score = tracking.score()
    assert score.outcome == 1.0
    assert codes(score) == {"duplicate_file", "wrong_shape"}
    (tracking.output / "mask000.tif").unlink()
    (tracking.output / "mask_overview.tif").unlink()
    tracking.write("01_RES.ome.tif", np.roll(tracking.stack, 1, axis=1), ome=True)
    score = tracking.score()
    assert score.outcome == 0.0
    assert codes(score) == {"ambiguous_files"}


@pytest.mark.parametrize("line", ["inf 0 1 0", "1e400 0 1 0", "9" * 30 + " 0 1 0", "-5 0 1 0", "7 9 2 0"])
def test_an_impossible_row_is_named_and_costs_itself(line: str, tracking: Desk, codes: Codes) -> None:
    """Published: inf and 1e400 raised, and the run left the averages."""
    tracking.submit(tracking.stack)
    path = tracking.output / "res_track.txt"
    path.write_text(path.read_text() + line + "\n")
    score = tracking.score()
    assert score.outcome == 1.0
    assert codes(score) == {"invalid_row"}


@pytest.mark.parametrize(
    ("tracks", "code"),
    [
        ([(1, 0, 4, 1), (2, 5, 9, 1), (3, 5, 9, 1), (4, 0, 6, 0)], "unknown_parent"),
        ([(1, 0, 4, 0), (2, 5, 9, 77), (3, 5, 9, 1), (4, 0, 6, 0)], "unknown_parent"),
        ([(1, 0, 4, 0), (2, 5, 9, 4), (3, 5, 9, 1), (4, 0, 6, 0)], "late_parent"),
        ([(1, 0, 4, 2), (2, 5, 9, 1), (3, 5, 9, 1), (4, 0, 6, 0)], "late_parent"),
        ([(1, 0, 4, 0), (2, 5, 9, 1), (3, 5, 9, 1), (4, 0, 6, 0), (9, 0, 1, 0)], "row_without_object"),
        ([(1, 0, 4, 0), (2, 5, 9, 1), (3, 5, 9, 1)], "label_without_row"),
        ([(1, 0, 4, 0), (2, 5, 9, 1), (3, 5, 9, 1), (4, 0, 6, 0), (4, 0, 3, 0)], "repeated_id"),
        ([(1, 0, 4, 0), (2, 5, 9, 1), (3, 5, 9, 1), (4, 0, 3, 0)], "object_outside_row"),
        ([(1, 0, 4, 0), (2, 5, 9, 1), (3, 5, 9, 1), (4, 0, 8, 0)], "track_gap"),
        ([(1, 0, 4, 0), (2, 5, 12, 1), (3, 5, 9, 1), (4, 0, 6, 0)], "row_outside"),
        ([(1, 1, 5, 0), (2, 6, 10, 1), (3, 6, 10, 1), (4, 1, 7, 0)], "off_by_one_frames"),
    ],
    ids="self_parent unknown parent_alive cycle empty_row rowless repeated uncovered gap beyond off_by_one".split(),  # noqa: SIM905
)
def test_faults_of_a_lineage_are_named(
    tracks: list[tuple[int, int, int, int]], code: str, tracking: Desk, codes: Codes
) -> None:
    tracking.submit(tracking.stack, tracks)
    score = tracking.score()
    assert code in codes(score)
    assert score.metrics["seg"] == 1.0
    assert score.outcome <= 1.0
    assert score.strict <= 1.0


def test_rows_in_any_order_score_alike(tracking: Desk) -> None:
    tracks = [*tracking.tracks, (4, 0, 3, 0), (2, 5, 9, 1)]
    tracking.submit(tracking.stack, tracks)
    one = tracking.score()
    tracking.submit(tracking.stack, tracks[::-1])
    other = tracking.score()
    assert one.metrics == other.metrics
    assert one.outcome == other.outcome < 1.0


def test_relabelling_changes_nothing(tracking: Desk) -> None:
    stack = tracking.stack.copy()
    stack[3] = np.roll(stack[3], 2, axis=0)
    tracking.submit(stack)
    one = tracking.score()
    lookup = np.array([0, 700, 13, 60_000, 2], np.uint16)
    tracks = [(lookup[label], begin, end, lookup[parent]) for label, begin, end, parent in tracking.tracks]
    tracking.submit(lookup[stack], tracks)
    other = tracking.score()
    assert one.metrics == other.metrics
    assert one.strict == other.strict < 1.0


def test_missing_frames_are_misses_and_named(tracking: Desk, codes: Codes) -> None:
    tracking.submit(tracking.stack[:5], tracking.tracks)
    score = tracking.score()
    assert "missing_frames" in codes(score)
    assert "shifted_frames" not in codes(score)
    assert score.metrics["seg"] == pytest.approx(10 / 22)
    assert score.metrics["frames_not_scored"] == 5
    whole = score.outcome
    tracking.submit(tracking.stack[:4], tracking.tracks)
    assert tracking.score().outcome < whole


def test_a_missing_first_page_is_named_as_a_shift(tracking: Desk, codes: Codes) -> None:
    """Published: 799 pages with the first one missing collapsed without a message."""
    tracking.submit(tracking.stack[1:], tracking.tracks)
    score = tracking.score()
    assert {"missing_frames", "shifted_frames"} <= codes(score)
    assert "-1" in next(one.message for one in score.problems if one.code == "shifted_frames")


def test_a_folder_numbered_from_one_is_named_as_a_shift(tracking: Desk, codes: Codes) -> None:
    tracking.submit(tracking.stack)
    (tracking.output / "00_RES.ome.tif").unlink()
    for frame, image in enumerate(tracking.stack):
        tracking.write(f"mask{frame + 1:03d}.tif", image)
    score = tracking.score()
    assert {"missing_frames", "surplus_frames", "shifted_frames"} <= codes(score)
    assert score.metrics["truth_frames"] == 10
    assert score.metrics["surplus_frames"] == 1


def test_surplus_frames_count_as_false_and_are_named(tracking: Desk, codes: Codes) -> None:
    surplus = np.concatenate((tracking.stack, tracking.stack[-1:], tracking.stack[-1:]))
    tracking.submit(surplus)
    score = tracking.score()
    assert "surplus_frames" in codes(score)
    assert score.metrics["truth_frames"] == 10
    assert score.metrics["false_objects"] == 4
    assert score.outcome < 1.0
    tracking.submit(np.concatenate([tracking.stack] * 4))
    score = tracking.score()
    assert score.outcome == 0.0
    assert codes(score) == {"wrong_shape"}


@pytest.mark.parametrize("axes", [(1, 2, 0), (0, 2, 1), (2, 1, 0)])
def test_axes_in_another_order_are_named(axes: tuple[int, int, int], tracking: Desk) -> None:
    tracking.submit(tracking.stack.transpose(axes))
    score = tracking.score()
    assert score.outcome == 0.0
    assert "transposed" in score.problems[0].message


def test_bad_frames_are_empty_frames_and_named(tracking: Desk, codes: Codes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_tracking, "MAX_OBJECTS", 500)
    tracking.submit(tracking.stack)
    (tracking.output / "00_RES.ome.tif").unlink()
    frames = dict(enumerate(tracking.stack))
    frames[1] = tracking.stack[1].astype(np.float32) * 0.5
    frames[2] = -tracking.stack[2].astype(np.int16)
    frames[3] = tracking.stack[3].T
    frames[4] = np.arange(32 * 40, dtype=np.uint16).reshape(32, 40)
    for frame, image in frames.items():
        tracking.write(f"mask{frame:03d}.tif", image)
    tracking.write("mask005.tif", (tracking.output / "mask005.tif").read_bytes()[:300])
    tracking.write("mask06.tif", tracking.stack[0])
    score = tracking.score()
    statuses = [item["status"] for item in score.items]
    assert statuses[:7] == [
        "scored", "non_integer", "negative_labels", "wrong_shape", "too_many_objects", "truncated", "missing_frame",
    ]  # fmt: skip
    assert {"ambiguous_files", "missing_frames", *statuses[1:6]} <= codes(score)
    assert score.metrics["seg"] == pytest.approx((2 + 3 * 2) / 22)


def test_noise_in_every_frame_stops_early(tracking: Desk, monkeypatch: pytest.MonkeyPatch, codes: Codes) -> None:
    monkeypatch.setattr(cell_tracking, "MAX_OBJECTS", 500)
    monkeypatch.setattr(cell_tracking, "_MAX_NOISE_FRAMES", 3)
    tracking.submit(np.arange(10 * 32 * 40, dtype=np.uint16).reshape(10, 32, 40))
    score = tracking.score()
    assert score.outcome == 0.0
    messages = [problem.message for problem in score.problems if problem.code == "too_many_objects"]
    assert len(messages) == 10
    assert messages[3].startswith("not read")


def test_three_daughters_divide_too(tracking: Desk, write: Write) -> None:
    truth = np.zeros((4, 12, 40), np.uint16)
    truth[:2, 2:8, 2:30] = 1
    truth[2:, 2:8, 2:9], truth[2:, 2:8, 12:20], truth[2:, 2:8, 22:30] = 2, 3, 4
    write(tracking.truth / "00_GT.ome.tif", truth, ome=True)
    write(tracking.truth / "man_track.txt", "1 0 1 0\n2 2 3 1\n3 2 3 1\n4 2 3 1\n")
    tracking.replay()
    assert tracking.score().metrics["truth_divisions"] == 1
    assert tracking.score().strict == 1.0


def test_without_divisions_in_truth_the_part_is_left_out(tracking: Desk, write: Write) -> None:
    write(tracking.truth / "man_track.txt", "1 0 4 0\n2 5 9 0\n3 5 9 0\n4 0 6 0\n")
    tracking.replay()
    assert tracking.score().strict == 1.0


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("man_track.txt", "1 0 4 0\n", "no row"),
        ("man_track.txt", "", "man_track"),
        ("man_track.txt", None, "man_track"),
        ("00_GT.ome.tif", b"II*\0", "00_GT"),
        ("00_GT.ome.tif", None, "expected"),
        ("01_GT.ome.tif", np.zeros((3, 3), np.uint8), "more than one"),
        ("00_GT.ome.tif", np.zeros((10, 32, 40), np.uint8), "no object"),
    ],
    ids="rowless empty_lineage no_lineage broken no_stack two_stacks empty".split(),  # noqa: SIM905
)
def test_unusable_truth_blames_nobody(name: str, content: Any, words: str, tracking: Desk, write: Write) -> None:
    tracking.replay()
    if content is None:
        (tracking.truth / name).unlink()
    else:
        write(tracking.truth / name, content)
    with pytest.raises(TruthError, match=words):
        tracking.score()
