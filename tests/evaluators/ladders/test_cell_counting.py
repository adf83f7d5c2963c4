"""cell_counting: the top, the bottom, and what lies between."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray

SLUG = "cell_counting"
TOLERANCE = 0.02

Points = NDArray[np.float64]
Change = Callable[[Points, tuple[float, float], np.random.Generator], Points]


@pytest.fixture(scope="module", params=[1, *(pytest.param(seed, marks=pytest.mark.full) for seed in (2, 3))])
def task(request: Any, bench: Any) -> Any:
    return bench(SLUG, request.param)


@pytest.fixture(scope="module")
def sizes(task: Any) -> dict[str, tuple[float, float]]:
    """Width and height of the images."""
    shapes = {path.stem: tifffile.imread(path).shape for path in task.input.glob("*.tiff")}
    return {stem: (float(shape[1]), float(shape[0])) for stem, shape in shapes.items()}


@pytest.fixture(scope="module")
def changed(task: Any, sizes: dict[str, tuple[float, float]]) -> Callable[[Change], Any]:
    """Return the score of the true points after a change, with the same random numbers in every rung."""

    def score(change: Change) -> Any:
        def edit(folder: Path) -> None:
            for path in sorted(folder.glob("*.csv")):
                rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
                points = np.array(rows, float).reshape(-1, 2)
                result = change(points, sizes[path.stem], np.random.default_rng(int(path.stem)))
                path.write_text("X,Y\n" + "".join(f"{x},{y}\n" for x, y in result))

        return task.edited(edit)

    return score


def jittered(pixels: float) -> Change:
    return lambda points, _, rng: points + pixels * rng.normal(size=points.shape)


def shifted(pixels: float) -> Change:
    return lambda points, *_: points + pixels


def dropped(share: float) -> Change:
    return lambda points, _, rng: rng.permutation(points)[round(share * len(points)) :]


def surplus(share: float) -> Change:
    """Add false points, at least one in every image from the second rung on."""

    def change(points: Points, size: tuple[float, float], rng: np.random.Generator) -> Points:
        more = rng.random((200, 2)) * size
        return np.concatenate((points, more[: int(np.ceil(share * max(len(points), 10)))]))

    return change


def replaced(share: float) -> Change:
    """Move a share of the points anywhere: false and missed ones, the count unchanged."""

    def change(points: Points, size: tuple[float, float], rng: np.random.Generator) -> Points:
        points = rng.permutation(points)
        count = round(share * len(points))
        points[:count] = (rng.random(points.shape) * size)[:count]
        return points

    return change


LADDERS: dict[str, tuple[Change, ...]] = {
    "jittered": tuple(map(jittered, (0, 2, 4, 8, 16, 64))),
    "shifted": tuple(map(shifted, (0, 2, 5, 9))),
    "dropped": tuple(map(dropped, (0.0, 0.1, 0.3, 0.6, 1.0))),
    "surplus": tuple(map(surplus, (0.0, 0.1, 0.3, 1.0, 3.0))),
    "replaced": tuple(map(replaced, (0.0, 0.1, 0.3, 0.6, 1.0))),
}
MILD: dict[str, Change] = {
    "jittered": jittered(2),
    "shifted": shifted(2),
    "dropped": dropped(0.1),
    "surplus": surplus(0.1),
    "replaced": replaced(0.1),
}


@pytest.mark.parametrize("name", LADDERS)
def test_damage_never_raises_a_score(changed: Any, name: str) -> None:
    scores = [changed(change) for change in LADDERS[name]]
    for values in ([score.outcome for score in scores], [score.strict for score in scores]):
        assert all(later <= earlier + TOLERANCE for earlier, later in pairwise(values)), values
    assert scores[-1].strict < scores[0].strict - 0.3, [score.strict for score in scores]


@pytest.mark.parametrize("name", MILD)
def test_mild_damage_keeps_strict(changed: Any, name: str) -> None:
    assert changed(MILD[name]).strict >= 0.6


def test_truth_is_the_top_and_nothing_the_bottom(task: Any) -> None:
    perfect = task.score(task.perfect())
    assert (perfect.outcome, perfect.strict, perfect.problems) == (1.0, 1.0, [])
    for folder in (task.new(), task.bluff()):
        score = task.score(folder)
        assert (score.outcome, score.strict, score.delivered) == (0.0, 0.0, False)


def test_leaving_out_tables_one_by_one_never_raises_a_score(task: Any) -> None:
    folder = task.perfect()
    scores = [task.score(folder)]
    paths = sorted(folder.glob("*.csv"))
    for path in paths:
        path.unlink()
        scores.append(task.score(folder))
    count = len(paths)
    outcomes = [score.outcome for score in scores]
    assert outcomes == pytest.approx([(count - left_out) / count for left_out in range(count + 1)], abs=1e-6)
    stricts = [score.strict for score in scores]
    assert all(later <= earlier for earlier, later in pairwise(stricts))


def grid(points: Points, size: tuple[float, float], spacing: float) -> Points:
    axes = [np.arange(spacing / 2, length, spacing) for length in size]
    return np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)


TRICKS: dict[str, Change] = {
    "right_counts_at_the_origin": lambda points, *_: np.zeros_like(points),
    "right_counts_anywhere": lambda points, size, rng: rng.random(points.shape) * size,
    "right_counts_on_a_grid": lambda points, size, _: grid(
        points, size, np.sqrt(size[0] * size[1] / max(len(points), 1))
    )[: len(points)],
    "twelve_points_in_every_image": lambda _, size, rng: rng.random((12, 2)) * size,
    "headers_alone": lambda *_: np.empty((0, 2)),
    "dense_grid": lambda points, size, _: grid(points, size, 14.0),
    "coarse_grid": lambda points, size, _: grid(points, size, 40.0),
    "swapped_axes": lambda points, *_: points[:, ::-1],
}


@pytest.mark.parametrize("name", TRICKS)
def test_tricks_fail_the_strict_score(changed: Any, name: str) -> None:
    score = changed(TRICKS[name])
    assert score.strict <= 0.2, name
    if name in ("right_counts_at_the_origin", "right_counts_anywhere"):
        assert score.outcome == 1.0  # an honest limit of the published score
