"""golgi_colocalization: the top, the bottom and the steps between of both scores."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluators.model import OutcomeScore

SLUG = "golgi_colocalization"
NAME = "colocalization_results.csv"
VALUE = "spearman_coefficient"
COLUMNS = ["image", "condition", VALUE]
Rows = list[dict[str, str]]

SEEDS = [0, pytest.param(1, marks=pytest.mark.full), pytest.param(2, marks=pytest.mark.full)]


@pytest.fixture(params=SEEDS)
def cells(request: pytest.FixtureRequest, bench: Callable[[str, int], Any]) -> Any:
    return bench(SLUG, request.param)


def _rows(cells: Any) -> Rows:
    with (cells.perfect() / NAME).open(newline="") as handle:
        return list(csv.DictReader(handle))


def _score(cells: Any, rows: Rows, columns: list[str] = COLUMNS) -> OutcomeScore:
    folder = cells.new()
    with (folder / NAME).open("w", newline="") as handle:
        writer = csv.DictWriter(handle, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return cells.score(folder)


def _with(rows: Rows, change: Callable[[int, float], float]) -> Rows:
    return [{**row, VALUE: repr(float(np.clip(change(k, float(row[VALUE])), -1, 1)))} for k, row in enumerate(rows)]


def test_replay_is_the_top(cells: Any) -> None:
    result = cells.score(cells.perfect())
    assert result.outcome >= 0.999
    assert result.strict >= 0.999
    assert not result.problems


def test_nothing_and_words_alone_are_the_bottom(cells: Any) -> None:
    for folder in (cells.new(), cells.bluff()):
        result = cells.score(folder)
        assert (result.outcome, result.strict, result.delivered) == (0.0, 0.0, False)
        assert result.problems


def test_half_of_the_rows_decides_nothing(cells: Any) -> None:
    rows = _rows(cells)
    half = _score(cells, rows[::2])
    assert half.outcome <= 0.1
    assert half.strict < 0.2


def test_two_conditions_alone_leave_their_own_comparison(cells: Any) -> None:
    result = _score(cells, [row for row in _rows(cells) if row["condition"] in ("Control", "Stage 1")])
    assert result.outcome == pytest.approx(0.7 / 3, abs=1e-6)
    assert result.strict <= 0.1


def test_mild_damage_stays_above_and_both_scores_fall_with_noise(cells: Any, falls: Any) -> None:
    rows = _rows(cells)
    noise = np.random.default_rng(5).normal(0.0, 1.0, len(rows))
    sizes = (0.0, 0.02, 0.1, 0.4, 2.0)
    steps = [_score(cells, _with(rows, lambda k, r, s=s: r + s * float(noise[k]))) for s in sizes]
    assert steps[1].strict >= 0.6
    assert steps[1].outcome >= 0.999
    falls(steps)


def test_rows_left_out_never_help(cells: Any, falls: Any) -> None:
    rows = _rows(cells)
    order = np.random.default_rng(6).permutation(len(rows)).tolist()
    counts = (0, 2, 8, 20, 40, len(rows))
    steps = [_score(cells, [row for k, row in enumerate(rows) if k not in order[:n]]) for n in counts]
    falls(steps)
    assert (steps[-1].outcome, steps[-1].strict) == (0.0, 0.0)


def test_values_moved_between_images_fall(cells: Any, falls: Any) -> None:
    rows = _rows(cells)
    steps = []
    for n in (0, 10, 30, len(rows)):
        turned = {k: (k + n // 2) % n for k in range(n)}
        steps.append(_score(cells, _with(rows, lambda k, r, t=turned: float(rows[t.get(k, k)][VALUE]))))
    falls(steps)


def test_a_fading_effect_falls_and_a_reversed_one_has_no_direction(cells: Any, falls: Any) -> None:
    rows = _rows(cells)
    level = {"Control": 0.0, "Stage 1": 0.0, "Stage 2": 0.15, "Stage 3": 0.31}
    steps = [
        _score(cells, _with(rows, lambda k, r, s=s: r - s * level[rows[k]["condition"]])) for s in (0.0, 0.5, 0.8, 1.0)
    ]
    falls(steps)
    reversed_effect = _score(cells, _with(rows, lambda k, r: r - 2.0 * level[rows[k]["condition"]]))
    assert reversed_effect.metrics["direction_score"] == 0.0
    assert reversed_effect.outcome <= 0.7
    assert reversed_effect.strict < 0.5


def test_order_of_rows_and_columns_and_spelling_change_nothing(cells: Any) -> None:
    rows = _with(_rows(cells), lambda k, r: r + 0.05 * ((k * 7) % 5 - 2))
    expected = _score(cells, rows)
    shuffled = [rows[k] for k in np.random.default_rng(7).permutation(len(rows))]
    bare = [{**row, "image": Path(row["image"]).stem, "condition": row["condition"].upper()} for row in rows]
    joined = [{**row, "condition": row["condition"].replace(" ", "_")} for row in rows]
    for same in (_score(cells, shuffled, COLUMNS[::-1]), _score(cells, bare), _score(cells, joined)):
        assert (same.outcome, same.strict) == (expected.outcome, expected.strict)
        assert not same.problems


def test_no_shortcut_passes_strict(cells: Any) -> None:
    found = {name: cells.trick(name, trick) for name, trick in cells.tricks().items()}
    assert len(found) >= 8
    assert {name: result.strict for name, result in found.items() if not result.strict <= 0.2} == {}
    assert found["expected_pattern"].outcome == 1.0  # what the published formula gives without an image
    for name in ("twelve_rows", "repeated_rows", "summary_rows", "only_p_values"):
        assert found[name].outcome == 0.0


def test_without_true_values_there_is_an_outcome_and_no_strict_score(cells: Any, tmp_path: Path) -> None:
    result = cells.score(cells.perfect(), truth=tmp_path)
    assert result.outcome >= 0.999
    assert result.strict is None
