"""repair_foci: the top, the bottom and the steps between of both scores."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluators.model import OutcomeScore

SLUG = "repair_foci"
NAME = "coloc_results.csv"
ONSET = "start_normalized"
COLUMNS = ["condition", "frame", "y", "x", ONSET]
Rows = list[dict[str, str]]

SEEDS = [0, pytest.param(1, marks=pytest.mark.full), pytest.param(2, marks=pytest.mark.full)]


@pytest.fixture(params=SEEDS)
def movies(request: pytest.FixtureRequest, bench: Callable[[str, int], Any]) -> Any:
    return bench(SLUG, request.param)


def _rows(movies: Any) -> Rows:
    with (movies.perfect() / NAME).open(newline="") as handle:
        return list(csv.DictReader(handle))


def _score(movies: Any, rows: Rows, columns: list[str] = COLUMNS) -> OutcomeScore:
    folder = movies.new()
    with (folder / NAME).open("w", newline="") as handle:
        writer = csv.DictWriter(handle, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return movies.score(folder)


def _moved(rows: Rows, onset: Callable[[int], float], place: Callable[[int], float] = lambda k: 0.0) -> Rows:
    return [
        {
            **row,
            ONSET: repr(float(np.clip(float(row[ONSET]) + onset(k), 0.0, 1.0))),
            "y": repr(float(row["y"]) + place(k)),
        }
        for k, row in enumerate(rows)
    ]


def test_replay_is_the_top(movies: Any) -> None:
    result = movies.score(movies.perfect())
    assert result.outcome >= 0.999
    assert result.strict >= 0.999
    assert not result.problems


def test_nothing_and_words_alone_are_the_bottom(movies: Any) -> None:
    for folder in (movies.new(), movies.bluff()):
        result = movies.score(folder)
        assert (result.outcome, result.strict, result.delivered) == (0.0, 0.0, False)
        assert result.problems


def test_one_condition_is_half(movies: Any) -> None:
    result = _score(movies, [row for row in _rows(movies) if row["condition"] == "siControl"])
    assert result.outcome == pytest.approx(0.5)
    assert result.strict == 0.0


def test_mild_damage_stays_above_and_both_scores_fall_with_shift(movies: Any, falls: Any) -> None:
    rows = _rows(movies)
    shift = np.abs(np.random.default_rng(5).normal(1.0, 0.3, len(rows)))
    steps = [_score(movies, _moved(rows, lambda k, s=s: s * float(shift[k]))) for s in (0.0, 0.02, 0.08, 0.2, 0.6)]
    assert steps[1].strict >= 0.6
    assert steps[1].outcome >= 0.7
    falls(steps)


def test_events_that_lie_elsewhere_cost_the_strict_score(movies: Any) -> None:
    rows = _rows(movies)
    off = np.random.default_rng(6).permutation(len(rows))
    steps = [
        _score(movies, _moved(rows, lambda k: 0.0, lambda k, n=n: 40.0 * float(off[k] < n)))
        for n in (0, 5, 20, len(rows))
    ]
    assert [result.outcome for result in steps] == [1.0] * 4  # the published measure does not look at places
    strict = [result.strict for result in steps]
    assert strict == sorted(strict, reverse=True)
    assert strict[1] >= 0.6
    assert strict[-1] == 0.0


def test_late_events_left_out_and_false_events_added_fall(movies: Any, falls: Any) -> None:
    rows = sorted(_rows(movies), key=lambda row: -float(row[ONSET]))
    falls([_score(movies, rows[n:]) for n in (0, 4, 12, 24, len(rows))])
    false = [{**rows[0], "frame": str(k), "x": repr(3.7 * k), ONSET: "0.97"} for k in range(1, 60)]
    falls([_score(movies, rows + false[:n]) for n in (0, 4, 15, 59)])


def test_swapped_conditions_fall(movies: Any) -> None:
    other = {"siControl": "si53BP1", "si53BP1": "siControl"}
    result = _score(movies, [{**row, "condition": other[row["condition"]]} for row in _rows(movies)])
    assert result.outcome < 0.5
    assert result.strict == 0.0


def test_order_of_rows_and_columns_and_spelling_change_nothing(movies: Any) -> None:
    rows = _moved(_rows(movies), lambda k: 0.02 * ((k * 7) % 5 - 2), lambda k: float((k * 3) % 4))
    expected = _score(movies, rows)
    shuffled = [rows[k] for k in np.random.default_rng(7).permutation(len(rows))]
    named = [{**row, "condition": f"Figure2b_{row['condition'].upper()} cell {k % 3}"} for k, row in enumerate(rows)]
    for same in (_score(movies, shuffled, COLUMNS[::-1]), _score(movies, named)):
        assert (same.outcome, same.strict) == (expected.outcome, expected.strict)
        assert not same.problems


def test_no_shortcut_passes_strict(movies: Any) -> None:
    found = {name: movies.trick(name, trick) for name, trick in movies.tricks().items()}
    assert len(found) >= 8
    assert {name: result.strict for name, result in found.items() if not result.strict <= 0.2} == {}
    assert found["copied_values"].outcome == 1.0  # what the published formula gives for numbers without a movie
    assert found["quartiles"].outcome > 0.7
    assert found["pooled"].outcome > 0.5


def test_without_true_events_there_is_an_outcome_and_no_strict_score(movies: Any, tmp_path: Path) -> None:
    (tmp_path / "coloc_results.csv").write_bytes((movies.truth / "coloc_results.csv").read_bytes())
    result = movies.score(movies.perfect(), truth=tmp_path)
    assert result.outcome == 1.0
    assert result.strict is None
