"""Cell counting: the published formula, and every published weakness with what is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from evaluators import OutcomeScore, TruthError

Codes = Callable[[OutcomeScore], set[str]]
Desk = Any
Write = Callable[..., Any]

EMPTY = ("1", "4", "6")
TYPICAL = 20  # upper median of 20, 8, 1, 31


def spurious(count: int) -> np.ndarray[Any, Any]:
    return np.column_stack((np.arange(count) * 7.0, np.full(count, 5.0)))


def test_replay_is_perfect(counting: Desk) -> None:
    counting.replay()
    score = counting.score()
    assert (score.outcome, score.strict, score.delivered, score.problems) == (1.0, 1.0, True, [])
    assert score.metrics["f1"] == 1.0
    assert score.metrics["localisation_error_px"] == 0.0
    assert (counting.output / "0.csv").read_text().startswith("X,Y\n")


def test_published_values(counting: Desk) -> None:
    """The published regression values, for three empty fields among seven."""
    counting.tables(counting.points | {stem: spurious(1) for stem in EMPTY})
    assert counting.score().outcome == pytest.approx((4 + 3 * (1 - 1 / TYPICAL)) / 7, abs=1e-6)
    counting.tables(dict.fromkeys(EMPTY, spurious(TYPICAL)))
    assert counting.score().outcome == pytest.approx(4 / 7, abs=1e-6)
    counting.tables(counting.points | {"3": spurious(2)})
    assert counting.score().outcome == pytest.approx((6 + 1 - 1 / TYPICAL) / 7, abs=1e-6)


def test_headers_alone_are_worth_the_empty_fields_and_nothing_in_strict(counting: Desk) -> None:
    counting.tables(dict.fromkeys(counting.points, np.empty((0, 2))))
    score = counting.score()
    assert score.outcome == pytest.approx(3 / 7, abs=1e-6)
    assert score.metrics["count_accuracy_empty"] == 1.0
    assert score.metrics["count_accuracy_filled"] == 0.0
    assert score.strict == 0.0


def test_right_counts_at_the_origin(counting: Desk) -> None:
    """Location does not enter the published outcome; strict and f1 see it."""
    counting.tables({stem: np.zeros_like(points) for stem, points in counting.points.items()})
    score = counting.score()
    assert score.outcome == 1.0
    assert score.metrics["f1"] < 0.1
    assert score.strict <= 0.05


def test_swapped_axes_are_seen_by_strict_and_named(counting: Desk, codes: Codes) -> None:
    counting.tables({stem: points[:, ::-1] for stem, points in counting.points.items()})
    score = counting.score()
    assert score.outcome == 1.0
    assert score.strict < 0.2
    assert "swapped" in next(one.message for one in score.problems if one.code == "outside_image")


def test_a_constant_count_needs_no_image(counting: Desk) -> None:
    counting.tables({stem: np.add(spurious(12), [30, 100]) for stem in counting.points})
    assert counting.score().strict <= 0.1


def test_false_and_missed_cells_do_not_cancel_in_strict(counting: Desk) -> None:
    moved = counting.points["5"].copy()
    moved[:15] = [1.0, 1.0]
    counting.tables(counting.points | {"5": moved})
    score = counting.score()
    assert score.outcome == 1.0
    assert score.strict < 1.0


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", ""])
def test_a_value_that_is_not_finite_is_a_false_positive(value: str, counting: Desk, codes: Codes) -> None:
    """Published: the matcher raised, and the run left the averages."""
    counting.replay()
    perfect = (counting.output / "2.csv").read_text()
    counting.write("2.csv", perfect + f"{value},5\n")
    score = counting.score()
    assert score.outcome == pytest.approx((6 + 1 - 1 / TYPICAL) / 7, abs=1e-6)
    assert (score.metrics["false_positives"], score.metrics["false_negatives"]) == (1, 0)
    assert codes(score) == {"invalid_row"}


def test_a_unit_in_a_number_fails_the_file(counting: Desk, codes: Codes) -> None:
    """Published: such rows were skipped silently and the image had no cells."""
    counting.replay()
    counting.write("2.csv", "X,Y\n12.3 px,40\n")
    counting.write("1.csv", "X,Y\n12.3 px,40\n")
    score = counting.score()
    assert score.outcome == pytest.approx(5 / 7, abs=1e-6)
    assert codes(score) == {"not_numeric"}


def test_points_outside_the_image_are_false(counting: Desk, codes: Codes) -> None:
    counting.tables(counting.points | {"1": np.array([[400.5, 10.0], [400.6, 10.0], [10.0, -1.6]])})
    score = counting.score()
    assert codes(score) == {"outside_image"}
    assert "2 points" in score.problems[0].message
    assert score.metrics["false_positives"] == 3


def test_counts_by_one_are_inside(counting: Desk) -> None:
    counting.tables({stem: points + 1.0 for stem, points in counting.points.items()})
    score = counting.score()
    assert not score.problems
    assert score.metrics["f1"] == 1.0
    assert score.metrics["localisation_error_px"] == pytest.approx(2**0.5)


def test_optimal_matching(counting: Desk, write: Write) -> None:
    """Published: true (0,0), (8,0) and found (1,0), (3.5,0) gave one pair."""
    write(counting.truth / "0.csv", "X,Y\n0,0\n8,0\n")
    counting.replay()
    counting.write("0.csv", "X,Y\n1,0\n3.5,0\n")
    score = counting.score()
    assert score.items[0]["f1"] == 1.0


def test_repeated_points_are_named_and_match_once(counting: Desk, codes: Codes) -> None:
    counting.tables(counting.points | {"3": np.repeat(counting.points["3"], 3, axis=0)})
    score = counting.score()
    assert codes(score) == {"repeated_points"}
    assert score.items[3]["f1"] == 0.5


def test_missing_images_score_zero_and_count_once(counting: Desk, codes: Codes) -> None:
    """Published: missing images entered the relative error twice."""
    counting.replay()
    for stem in ("0", "1"):
        (counting.output / f"{stem}.csv").unlink()
    score = counting.score()
    assert score.outcome == pytest.approx(5 / 7, abs=1e-6)
    assert score.metrics["count_mape"] == pytest.approx(1 / 4)
    assert score.metrics["false_negatives"] == 20
    assert codes(score) == {"missing_file"}
    assert [item["status"] for item in score.items[:3]] == ["missing_file", "missing_file", "scored"]
    assert score.metrics["images"] == 7


def test_half_of_the_files(counting: Desk) -> None:
    counting.tables({stem: counting.points[stem] for stem in ("0", "1", "2")})
    assert counting.score().outcome == pytest.approx(3 / 7, abs=1e-6)


def test_a_file_without_any_content_is_not_an_empty_field(counting: Desk, codes: Codes) -> None:
    """An interrupted program leaves such files; the contract asks for a header."""
    counting.replay()
    counting.write("1.csv", b"")
    score = counting.score()
    assert score.outcome == pytest.approx(6 / 7, abs=1e-6)
    assert codes(score) == {"empty_file"}


def test_all_fields_empty_is_right_when_nothing_is_found(counting: Desk, write: Write) -> None:
    """Published: f1 was 0 for the perfect answer. Strict cannot be decided without a cell."""
    for stem in counting.points:
        write(counting.truth / f"{stem}.csv", "X,Y\n")
    counting.replay()
    score = counting.score()
    assert (score.outcome, score.metrics["f1"], score.strict) == (1.0, 1.0, None)


@pytest.mark.parametrize(
    "text",
    ["\ufeffX,Y\r\n{0},{1}\r\n", "x;y\n{0};{1}\n", "X\tY\n{0}\t{1}\n", "Id,Y,X\n1,{1},{0}\n", ' x , y \n"{0}","{1}"\n'],
)
def test_kindness_to_formats(text: str, counting: Desk) -> None:
    counting.replay()
    x, y = counting.points["3"][0]
    counting.write("3.csv", text.format(x, y))
    score = counting.score()
    assert (score.outcome, score.strict, score.problems) == (1.0, 1.0, [])


@pytest.mark.parametrize(
    "name", ["{}_centroids.csv", "centroids_{}.csv", "cells{}.csv", "img-{}.csv", "agent_run_{}.csv", "csv/00{}.csv"]
)
def test_documented_names_score(name: str, counting: Desk) -> None:
    counting.tables({})
    for stem, points in counting.points.items():
        table = "X,Y\n" + "".join(f"{x},{y}\n" for x, y in points)
        counting.write(name.format(stem), table)
    assert counting.score().outcome == 1.0


def test_strays_and_drafts(counting: Desk, codes: Codes) -> None:
    """Published: aggregate/detections_2026.csv took image 6, attempt1/3.csv went before final/3.csv."""
    counting.replay()
    counting.write("aggregate/detections_2026.csv", "X,Y\n1,1\n2,2\n")
    counting.write("all_cells.csv", "image,X,Y\n0,1,1\n")
    counting.write("summary.csv", "image,count\n0,20\n")
    score = counting.score()
    assert score.outcome == 1.0
    assert not score.problems
    assert score.metrics["files_without_image"] == 3
    assert score.metrics["images"] == 7
    counting.write("attempt1/3.csv", "X,Y\n1,1\n2,2\n")
    assert counting.score().outcome == 1.0
    (counting.output / "final").mkdir()
    (counting.output / "3.csv").rename(counting.output / "final" / "3.csv")
    score = counting.score()
    assert score.outcome == pytest.approx(6 / 7, abs=1e-6)
    assert codes(score) == {"ambiguous_files"}


def test_a_stray_in_truth_is_no_image(counting: Desk, write: Write) -> None:
    counting.replay()
    write(counting.truth / "summary.csv", "image,count\n")
    write(counting.truth / "more" / "0.csv", "X,Y\n1,1\n")
    assert counting.score().outcome == 1.0


def test_the_order_of_rows_does_not_matter(counting: Desk) -> None:
    noise = np.random.default_rng(3).normal(0, 5, (31, 2))
    counting.tables(counting.points | {"5": counting.points["5"] + noise})
    before = counting.score()
    counting.tables(counting.points | {"5": (counting.points["5"] + noise)[::-1]})
    after = counting.score()
    assert (after.outcome, after.strict) == (before.outcome, before.strict)
    assert after.metrics == pytest.approx(before.metrics)


def test_without_input_strict_cannot_be_decided(counting: Desk) -> None:
    counting.replay()
    score = counting.score(with_input=False)
    assert (score.outcome, score.strict) == (1.0, None)


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n", "X,Y\n1,nan\n"])
def test_unusable_truth_blames_nobody(content: str, counting: Desk, write: Write) -> None:
    counting.replay()
    write(counting.truth / "3.csv", content)
    with pytest.raises(TruthError, match=r"3\.csv"):
        counting.score()
    (counting.truth / "3.csv").unlink()
    with pytest.raises(TruthError, match="input image 3"):
        counting.score()
