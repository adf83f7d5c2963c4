"""oncogenic_puncta: the ends of the scale, damage of every kind, and the cheap tricks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

NAME = "cell_quants.csv"
COUNT = "number of GFP puncta"
SEEDS = [0, pytest.param(1, marks=pytest.mark.full), pytest.param(2, marks=pytest.mark.full)]

Table = pd.DataFrame


@pytest.fixture(params=SEEDS)
def data(request: pytest.FixtureRequest, bench: Any) -> Any:
    return bench("oncogenic_puncta", request.param)


def changed(data: Any, change: Callable[[Table], Table]) -> Any:
    def edit(folder: Path) -> None:
        change(pd.read_csv(folder / NAME)).to_csv(folder / NAME, index=False)

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


def test_half_of_the_images_is_their_share_of_the_puncta(data: Any) -> None:
    truth = pd.read_csv(data.truth / NAME)
    first = truth["Image name"].str.contains("Position 1")
    shares = [part.loc[first, COUNT].sum() / part[COUNT].sum() for _, part in truth.groupby("condition")]
    score = changed(data, lambda rows: rows[first])
    assert score.outcome == pytest.approx(np.mean(shares), abs=1e-6)
    assert 0.2 < score.outcome < 0.8
    assert score.strict < 0.65
    assert "missing_images" in codes(score)


def test_a_condition_left_out_is_a_third(data: Any) -> None:
    score = changed(data, lambda rows: rows[~rows.condition.str.endswith("WT")])
    assert score.outcome == pytest.approx(2 / 3)
    assert score.strict < 0.65


def test_damage_never_pays(data: Any, falls: Any) -> None:
    rng = np.random.default_rng(5)
    rows = pd.read_csv(data.truth / NAME)
    n = len(rows)
    order, noise, lost = rng.permutation(n), rng.normal(0, 1, (n, 3)), rng.random((n, 150))

    def dropped(share: float) -> Table:
        return rows.iloc[np.sort(order[round(share * n) :])]

    def moved(voxels: float) -> Table:
        return rows.assign(y=rows.y + voxels * noise[:, 1], x=rows.x + voxels * noise[:, 2])

    def missed(share: float) -> Table:
        kept = [(one[: int(count)] >= share).sum() for one, count in zip(lost, rows[COUNT], strict=True)]
        return rows.assign(**{COUNT: kept})

    def inflated(factor: float) -> Table:
        return rows.assign(**{COUNT: np.round(rows[COUNT] * factor)})

    def haze(puncta: float) -> Table:
        return rows.assign(**{COUNT: rows[COUNT] + int(puncta)})

    def split(share: float) -> Table:
        part = rows.index.isin(order[: round(share * n)])
        half = rows.assign(**{COUNT: np.where(part, rows[COUNT] // 2, rows[COUNT])})
        other = rows[part].assign(x=rows.x[part] + 15, **{COUNT: rows.loc[part, COUNT] - rows.loc[part, COUNT] // 2})
        return pd.concat([half, other])

    def dealt(share: float) -> Table:
        part = order[: round(share * n)]
        counts = rows[COUNT].to_numpy().copy()
        counts[part] = np.roll(counts[part], 1)
        return rows.assign(**{COUNT: counts})

    ladders: dict[Callable[[float], Table], tuple[float, ...]] = {
        dropped: (0.0, 0.1, 0.4, 0.8),
        moved: (0.0, 4.0, 15.0, 60.0),
        missed: (0.0, 0.1, 0.4, 0.9),
        inflated: (1.0, 1.2, 2.0, 10.0),
        haze: (0, 1, 4, 20),
        split: (0.0, 0.1, 0.5, 1.0),
        dealt: (0.0, 0.15, 0.5, 1.0),
    }
    for damage, rungs in ladders.items():
        falls([changed(data, lambda _, damage=damage, rung=rung: damage(rung)) for rung in rungs])


def test_swapped_conditions_fall(data: Any, falls: Any) -> None:
    other = {"WT": "C129A_H144A", "C129A_H144A": "WT"}

    def swapped(rows: Table) -> Table:
        """Exchange the counts of two conditions, nucleus by nucleus."""
        one, two = (rows.index[rows["sample"].str.endswith(name)] for name in other)
        counts = rows[COUNT].copy()
        k = min(len(one), len(two))
        counts[one[:k]], counts[two[:k]] = rows[COUNT][two[:k]].to_numpy(), rows[COUNT][one[:k]].to_numpy()
        return rows.assign(**{COUNT: counts})

    scores = [data.score(data.perfect()), changed(data, swapped)]
    falls(scores)
    assert scores[1].strict == 0.0


def test_mild_damage_is_forgiven(data: Any) -> None:
    rng = np.random.default_rng(6)

    def mild(rows: Table) -> Table:
        rows = rows[rng.random(len(rows)) > 0.05].copy()
        rows[["y", "x"]] += rng.normal(0.0, 5.0, (len(rows), 2))
        rows[COUNT] = np.where(rows[COUNT] > 0, rng.binomial(rows[COUNT], 0.88), rng.random(len(rows)) < 0.1)
        return rows

    score = changed(data, mild)
    assert score.outcome > 0.7
    assert score.strict > 0.6


def test_order_names_and_spelling_mean_nothing(data: Any) -> None:
    rng = np.random.default_rng(7)
    rows = pd.read_csv(data.truth / NAME)
    rows[COUNT] = rng.binomial(rows[COUNT], 0.8)
    first = changed(data, lambda _: rows)
    short = rows.assign(**{"Image name": rows["Image name"].str.extract(r"(Position \d+)")[0]})
    spelled = rows.assign(condition=rows["sample"].map(lambda name: "Wild-Type" if name.endswith("WT") else name))
    capital = rows.rename(columns={"z": "Z", COUNT: "Number of GFP puncta ", "condition": "Condition"})
    for other in (rows.iloc[rng.permutation(len(rows))].iloc[:, ::-1], short, spelled, capital):
        score = changed(data, lambda _, other=other: other)
        assert (score.outcome, score.strict) == (first.outcome, first.strict)


def test_the_companion_tables_of_single_images_are_not_scored_instead(data: Any) -> None:
    def companions(folder: Path) -> None:
        rows = pd.read_csv(folder / NAME)
        for (condition, image), part in rows.groupby(["condition", "Image name"]):
            target = folder / "cell_quants" / condition / f"{image.rsplit('/', 1)[-1]}.csv"
            target.parent.mkdir(parents=True, exist_ok=True)
            part.head(3).to_csv(target, index=False)

    score = data.edited(companions)
    assert (score.outcome, score.strict) == (1.0, 1.0)


def test_conventions_that_went_wrong_are_named(data: Any) -> None:
    step = {"z": 0.4, "y": 0.13, "x": 0.13}
    um = changed(data, lambda rows: rows.assign(**{axis: rows[axis] * size for axis, size in step.items()}))
    assert um.strict == 0.0
    assert "units" in codes(um)
    swapped = changed(data, lambda rows: rows.rename(columns={"x": "y", "y": "x"}))
    assert "axes_swapped" in codes(swapped)
    assert swapped.strict < 0.3


def test_cheap_tricks_fail_in_the_strict_score(data: Any) -> None:
    outcomes = {}
    for name, trick in data.tricks().items():
        score = data.trick(name, trick)
        assert score.strict <= 0.2, (name, score.strict)
        outcomes[name] = score.outcome
    assert outcomes["only_bearing"] == 1.0  # the honest limit of the published definition
    assert outcomes["shuffled"] < 0.1
