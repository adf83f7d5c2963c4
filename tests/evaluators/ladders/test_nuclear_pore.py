"""nuclear_pore: the ends of the scale, damage of every kind, and the cheap tricks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

FRAME, TIME = "Time Point", "Time after anaphase onset (min)"
SEEDS = [0, pytest.param(1, marks=pytest.mark.full), pytest.param(2, marks=pytest.mark.full)]

Table = pd.DataFrame


@pytest.fixture(scope="module", params=SEEDS)
def data(request: pytest.FixtureRequest, bench: Any) -> Any:
    return bench("nuclear_pore", request.param)


def series(table: Table) -> list[str]:
    return [name for name in table.columns if name not in (FRAME, TIME)]


def changed(data: Any, change: Callable[[int, Table], Table | None]) -> Any:
    """Score the reference with each cell's table changed; ``None`` leaves a cell out."""

    def edit(folder: Path) -> None:
        for number, path in enumerate(sorted(folder.glob("*.xlsx"))):
            table = change(number, pd.read_excel(path))
            path.unlink()
            if table is not None:
                table.to_excel(path, index=False)

    return data.edited(edit)


def codes(score: Any) -> set[str]:
    return {problem.code for problem in score.problems}


def test_ends_of_the_scale(data: Any) -> None:
    perfect = data.score(data.perfect())
    assert perfect.outcome == perfect.strict == 1.0
    assert not perfect.problems
    for folder in (data.new(), data.bluff()):
        nothing = data.score(folder)
        assert (nothing.outcome, nothing.strict, nothing.delivered) == (0.0, 0.0, False)
        assert nothing.problems[0].code == "missing_deliverable"


def test_half_of_the_cells_is_half(data: Any) -> None:
    score = changed(data, lambda number, table: table if number % 2 else None)
    assert score.outcome == pytest.approx(0.5)
    assert score.strict < 0.55
    assert "missing_cell" in codes(score)


def test_the_reference_workbook_itself_is_a_good_submission(data: Any) -> None:
    folder = data.new()
    source = next(data.truth.glob("*.xlsx"))
    (folder / source.name).write_bytes(source.read_bytes())
    assert data.score(folder).outcome == 1.0


def test_damage_never_pays(data: Any, falls: Any) -> None:
    rng = np.random.default_rng(5)
    noise = rng.normal(0.0, 1.0, (10, 400, 8))

    def noisy(number: int, table: Table, size: float) -> Table:
        values = table[series(table)]
        return table.assign(**(values + size * values.max().to_numpy() * noise[number, : len(table)]))

    def late(number: int, table: Table, frames: float) -> Table:
        return table.assign(**{FRAME: table[FRAME] + int(frames) * (1 if number % 2 else -1)})

    def shifted(number: int, table: Table, frames: float) -> Table:
        return table.assign(**table[series(table)].shift(int(frames)).bfill())

    def thinned(number: int, table: Table, share: float) -> Table:
        lost = np.zeros(len(table), bool)
        lost[np.argsort(noise[number, : len(table), 0])[: round(share * len(table))]] = True
        lost[table[TIME] == 0] = False
        return table[~lost]

    def alike(number: int, table: Table, share: float) -> Table:
        time = table[TIME].clip(lower=0)
        ramp = {name: time / time.max() * table[name].max() for name in series(table)}
        mixed = {name: (1 - share) * table[name] + share * ramp[name] for name in series(table)}
        return table.assign(**mixed)

    ladders: dict[Callable[[int, Table, float], Table], tuple[float, ...]] = {
        noisy: (0.0, 0.05, 0.3, 1.5),
        late: (0, 1, 5, 15),
        shifted: (0, 1, 4, 10),
        thinned: (0.0, 0.15, 0.9),
        alike: (0.0, 0.15, 0.5, 1.0),
    }
    for damage, rungs in ladders.items():
        falls([changed(data, lambda n, t, damage=damage, rung=rung: damage(n, t, rung)) for rung in rungs])


def test_mild_damage_is_forgiven(data: Any) -> None:
    rng = np.random.default_rng(6)

    def mild(number: int, table: Table) -> Table:
        values = table[series(table)]
        values = 1.1 * values + 0.03 * values.max().to_numpy() * rng.normal(0.0, 1.0, values.shape)
        values[[name for name in values if "Volume" in name]] /= 1.1
        off = 1 if number == 0 else 0
        return table.assign(**values, **{FRAME: table[FRAME] + off}).drop(index=table.index[-2])

    score = changed(data, mild)
    assert score.outcome > 0.9
    assert score.strict > 0.6


def test_names_of_daughters_order_and_unit_of_light_mean_nothing(data: Any) -> None:
    def renamed(number: int, table: Table) -> Table:
        swap = {name: name.replace("_1", "_9").replace("_2", "_1").replace("_9", "_2") for name in table.columns}
        table = table.rename(columns=swap) if number % 2 else table
        light = [name for name in table.columns if "Intensity" in name]
        table = table.assign(**{name: 1000.0 * table[name] for name in light})
        return table.sample(frac=1.0, random_state=number)[table.columns[::-1]]

    score = changed(data, renamed)
    assert (score.outcome, score.strict) == pytest.approx((1.0, 1.0))


def test_a_blank_cell_is_one_missing_point(data: Any) -> None:
    def blank(number: int, table: Table) -> Table:
        column = next(name for name in table.columns if "InnerCore_2" in name)
        start = table.index[table[TIME] == 0][0]
        table.loc[start, column] = np.nan
        return table

    score = changed(data, blank)
    assert score.outcome > 0.97  # it was 0.6 where every later point slipped by half a step
    assert score.strict > 0.95


def test_conventions_that_went_wrong_are_named(data: Any) -> None:
    first = changed(data, lambda n, t: t.assign(**{FRAME: t[FRAME] - 1}))
    assert first.outcome == pytest.approx(0.975)
    assert "frame_shift" in codes(first)
    seconds = changed(data, lambda n, t: t.assign(**{TIME: 60.0 * t[TIME]}))
    assert seconds.outcome < 0.6
    assert "missing_points" in codes(seconds)
    frameless = changed(data, lambda n, t: t.drop(columns=FRAME))
    assert frameless.outcome == pytest.approx(0.5)
    assert "missing_onset" in codes(frameless)


def test_cheap_tricks_fail_in_the_strict_score(data: Any) -> None:
    outcomes = {}
    for name, trick in data.tricks().items():
        score = data.trick(name, trick)
        assert score.strict <= 0.2, (name, score.strict)
        outcomes[name] = score.outcome
    assert outcomes["logistic"] > 0.9  # the honest limit of the published definition
    assert outcomes["two_rows"] < 0.6  # it was 1 where two points were a curve
    assert outcomes["one_daughter"] == pytest.approx(0.75, abs=0.01)
