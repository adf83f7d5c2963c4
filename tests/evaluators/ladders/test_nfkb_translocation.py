"""nfkb_translocation: the top, the bottom and the steps between of both scores."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluators.model import OutcomeScore

SLUG = "nfkb_translocation"
NAME = "per_well_summary.csv"
RATIO = "mean_nuc_over_cyto_ratio"
COLUMNS = ["well", "cell_type", "dose", RATIO]
Rows = list[dict[str, str]]

SEEDS = [0, pytest.param(1, marks=pytest.mark.full), pytest.param(2, marks=pytest.mark.full)]


@pytest.fixture(params=SEEDS)
def plate(request: pytest.FixtureRequest, bench: Callable[[str, int], Any]) -> Any:
    return bench(SLUG, request.param)


def _rows(plate: Any) -> Rows:
    with (plate.perfect() / NAME).open(newline="") as handle:
        return list(csv.DictReader(handle))


def _score(plate: Any, rows: Rows, columns: list[str] = COLUMNS) -> OutcomeScore:
    folder = plate.new()
    with (folder / NAME).open("w", newline="") as handle:
        writer = csv.DictWriter(handle, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return plate.score(folder)


def _with(rows: Rows, change: Callable[[int, float], float]) -> Rows:
    return [{**row, RATIO: repr(change(k, float(row[RATIO])))} for k, row in enumerate(rows)]


def test_replay_is_the_top(plate: Any) -> None:
    result = plate.score(plate.perfect())
    assert result.outcome >= 0.99  # the dip below the threshold costs the published formula about 0.007
    assert result.strict >= 0.999
    assert not result.problems


def test_nothing_and_words_alone_are_the_bottom(plate: Any) -> None:
    for folder in (plate.new(), plate.bluff()):
        result = plate.score(folder)
        assert (result.outcome, result.strict, result.delivered) == (0.0, 0.0, False)
        assert result.problems


def test_one_cell_line_is_half(plate: Any) -> None:
    result = _score(plate, [row for row in _rows(plate) if row["cell_type"] == "MCF7"])
    assert result.outcome == pytest.approx(0.5, abs=0.01)
    assert result.strict == 0.0


def test_the_optional_table_alone_is_nothing(plate: Any) -> None:
    folder = plate.new()
    header = "well,cell_type,dose,nuc_intensity,cyto_intensity,nuc_over_cyto_ratio\n"
    (folder / "per_cell_features.csv").write_text(header + "A01,MCF7,-7,2,1,2\n")
    result = plate.score(folder)
    assert (result.outcome, result.strict, result.delivered) == (0.0, 0.0, False)


def test_mild_damage_stays_above_and_both_scores_fall_with_noise(plate: Any, falls: Any) -> None:
    rows = _rows(plate)
    noise = np.random.default_rng(5).normal(0.0, 1.0, len(rows))
    sizes = (0.0, 0.03, 0.1, 0.3, 1.0)
    steps = [_score(plate, _with(rows, lambda k, r, s=s: r * float(np.exp(s * noise[k])))) for s in sizes]
    assert steps[1].strict >= 0.6
    assert steps[1].outcome >= 0.85
    falls(steps)


def test_wells_left_out_never_help(plate: Any, falls: Any) -> None:
    rows = _rows(plate)
    order = np.random.default_rng(6).permutation(len(rows)).tolist()
    steps = [
        _score(plate, [row for k, row in enumerate(rows) if k not in order[:n]]) for n in (0, 1, 4, 16, 48, len(rows))
    ]
    falls(steps)
    assert (steps[-1].outcome, steps[-1].strict) == (0.0, 0.0)


def test_a_compressed_response_falls(plate: Any, falls: Any) -> None:
    rows = _rows(plate)
    steps = [_score(plate, _with(rows, lambda k, r, a=a: r**a)) for a in (1.0, 0.7, 0.4, 0.2, 0.0)]
    falls(steps)
    assert steps[1].strict >= 0.6
    assert steps[-1].strict == 0.0


def test_swapped_wells_fall(plate: Any, falls: Any) -> None:
    rows = _rows(plate)
    steps = []
    for n in (0, 8, 24, 96):
        turned = {k: (k + 11) % n for k in range(n)} if n else {}
        steps.append(_score(plate, _with(rows, lambda k, r, t=turned: float(rows[t.get(k, k)][RATIO]))))
    falls(steps)


def test_a_reversed_response_earns_no_more_than_steadiness(plate: Any) -> None:
    result = _score(plate, _with(_rows(plate), lambda k, r: 1.0 / r))
    assert result.outcome <= 1 / 3 + 0.01
    assert result.strict == 0.0


def test_order_of_rows_and_columns_and_spelling_change_nothing(plate: Any) -> None:
    rows = _with(_rows(plate), lambda k, r: r * (1 + 0.05 * ((k * 7) % 5 - 2)))
    expected = _score(plate, rows)
    shuffled = [rows[k] for k in np.random.default_rng(7).permutation(len(rows))]
    other = [{**row, "well": f"{row['well'][0].lower()}{int(row['well'][1:])}"} for row in rows]
    for same in (_score(plate, shuffled, COLUMNS[::-1]), _score(plate, other)):
        assert (same.outcome, same.strict) == (expected.outcome, expected.strict)


def test_no_shortcut_passes_strict(plate: Any) -> None:
    found = {name: plate.trick(name, trick) for name, trick in plate.tricks().items()}
    assert len(found) >= 8
    assert {name: result.strict for name, result in found.items() if not result.strict <= 0.2} == {}
    assert found["invented"].outcome > 0.95  # what the published formula gives for a table made up from the plate map
    assert found["four_rows"].outcome == 0.0
    assert found["repeated_rows"].outcome == 0.0
    assert found["extra_line"].outcome == found["constant"].outcome


def test_without_true_ratios_there_is_an_outcome_and_no_strict_score(plate: Any, tmp_path: Path) -> None:
    for truth in (tmp_path, tmp_path / "absent"):
        result = plate.score(plate.perfect(), truth=truth)
        assert result.outcome >= 0.99
        assert result.strict is None
