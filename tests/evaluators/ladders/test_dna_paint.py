"""dna_paint: the ends of the scale, damage of every kind, and the cheap tricks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

NAME = "DNAPAINT_LocalizationList.txt"
SEEDS = [0, pytest.param(1, marks=pytest.mark.full), pytest.param(2, marks=pytest.mark.full)]

Rows = NDArray[np.float64]
Change = Callable[[Rows], Rows]


@pytest.fixture(params=SEEDS)
def data(request: pytest.FixtureRequest, bench: Any) -> Any:
    return bench("dna_paint", request.param)


def write(folder: Path, rows: Rows, header: Sequence[str] = ("frame", "x", "y", "intensity")) -> None:
    lines = ["\t".join(header), *("\t".join(repr(float(value)) for value in row) for row in rows)]
    (folder / NAME).write_text("\n".join(lines) + "\n")


def changed(data: Any, change: Change) -> Any:
    def edit(folder: Path) -> None:
        write(folder, change(np.loadtxt(folder / NAME, skiprows=1)))

    return data.edited(edit)


def test_ends_of_the_scale(data: Any) -> None:
    perfect = data.score(data.perfect())
    assert perfect.outcome == perfect.strict == 1.0
    assert not perfect.problems
    for folder in (data.new(), data.bluff()):
        nothing = data.score(folder)
        assert (nothing.outcome, nothing.strict, nothing.delivered) == (0.0, 0.0, False)
        assert nothing.problems[0].code == "missing_deliverable"


def test_half_of_the_frames(data: Any) -> None:
    # Jaccard is the share of molecules in the frames that are left; the brightness of those is perfect.
    score = changed(data, lambda rows: rows[rows[:, 0] % 2 == 0])
    rows = np.loadtxt(data.truth / NAME, skiprows=1)
    assert score.outcome == pytest.approx(0.7 * np.mean(rows[:, 0] % 2 == 0) + 0.3, abs=1e-6)
    assert score.strict < 0.55


def test_damage_never_pays(data: Any, falls: Any) -> None:
    rng = np.random.default_rng(5)
    rows = np.loadtxt(data.truth / NAME, skiprows=1)
    order, noise, place = rng.permutation(len(rows)), rng.normal(0, 1, (len(rows), 2)), rng.uniform(4, 140, rows.shape)
    gone = rng.permutation(rows[:, 3])

    def dropped(share: float) -> Rows:
        return rows[np.sort(order[round(share * len(rows)) :])]

    def moved(sigma: float) -> Rows:
        return np.column_stack((rows[:, 0], rows[:, 1:3] + sigma * noise, rows[:, 3]))

    def invented(share: float) -> Rows:
        count = round(share * len(rows))
        return np.concatenate([rows, np.column_stack((rows[:count, 0], place[:count, 1:3], gone[:count]))])

    def shifted(by: float) -> Rows:
        return rows + np.array([0.0, by, -0.5 * by, 0.0])

    def dazzled(share: float) -> Rows:
        part = order[: round(share * len(rows))]
        result = rows.copy()
        result[part, 3] = gone[part]
        return result

    def late(frames: float) -> Rows:
        return rows + np.array([frames, 0.0, 0.0, 0.0])

    ladders: dict[Callable[[float], Rows], tuple[float, ...]] = {
        dropped: (0.0, 0.1, 0.3, 0.6, 0.9),
        moved: (0.0, 0.2, 0.4, 0.8),
        invented: (0.0, 0.2, 0.5, 1.0),
        shifted: (0.0, 0.4, 0.8, 1.2),
        dazzled: (0.0, 0.2, 0.5, 1.0),
        late: (0, 1, 2, 4),
    }
    for damage, rungs in ladders.items():
        falls([changed(data, lambda _, damage=damage, rung=rung: damage(rung)) for rung in rungs])


def test_mild_damage_is_forgiven(data: Any) -> None:
    rng = np.random.default_rng(6)

    def mild(rows: Rows) -> Rows:
        kept = rows[rng.random(len(rows)) > 0.1]
        kept[:, 1:3] += rng.normal(0.0, 0.12, (len(kept), 2))
        kept[:, 3] *= rng.normal(0.02, 0.004, len(kept))  # photons, with noise
        extra = np.column_stack((np.arange(60), rng.uniform(5, 139, (60, 2)), rng.uniform(100, 900, 60)))
        return np.concatenate([kept, extra])

    score = changed(data, mild)
    assert score.outcome > 0.8
    assert score.strict > 0.6


def test_wrong_units_and_axes(data: Any) -> None:
    nanometres = changed(data, lambda rows: rows * np.array([1.0, 100.0, 100.0, 1.0]))
    assert nanometres.strict == 0.0
    assert "outside_image" in {problem.code for problem in nanometres.problems}
    swapped = changed(data, lambda rows: rows[:, [0, 2, 1, 3]])
    assert swapped.strict < 0.05
    assert "axes_swapped" in {problem.code for problem in swapped.problems}


def test_order_of_rows_and_columns_means_nothing(data: Any) -> None:
    rng = np.random.default_rng(7)
    noisy = np.loadtxt(data.truth / NAME, skiprows=1) + rng.normal(0.0, 1.0, (1, 4)) * [0.0, 0.2, 0.2, 0.0]
    names = np.array(["frame", "x", "y", "intensity"])

    def scored(rows: Rows, header: Sequence[str]) -> Any:
        return data.edited(lambda folder: write(folder, rows, header))

    first = scored(noisy, names)
    columns = [3, 2, 0, 1]
    for other in (scored(rng.permutation(noisy), names), scored(noisy[:, columns], names[columns])):
        assert (other.outcome, other.strict) == (first.outcome, first.strict)


def test_cheap_tricks_fail_in_the_strict_score(data: Any) -> None:
    outcomes = {}
    for name, trick in data.tricks().items():
        score = data.trick(name, trick)
        assert score.strict <= 0.2, (name, score.strict)
        outcomes[name] = score.outcome
    assert outcomes["constant_intensity"] == pytest.approx(0.7)  # the honest limit of the published definition
    assert outcomes["two_rows"] == pytest.approx(0.3, abs=0.005)
