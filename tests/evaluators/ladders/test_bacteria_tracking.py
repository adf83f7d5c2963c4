"""bacteria_tracking: the top, the bottom, and what lies between."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from skimage.morphology import disk, erosion

from agents.shortcut.bacteria_tracking import CHANGES as TRICKS

SLUG = "bacteria_tracking"
TOLERANCE = 0.02

Stack = NDArray[Any]
Tracks = NDArray[np.int64]
Change = Callable[[Stack, Tracks], tuple[Stack, Tracks]]


@pytest.fixture(scope="module", params=[1, *(pytest.param(seed, marks=pytest.mark.full) for seed in (2, 3))])
def task(request: Any, bench: Any) -> Any:
    return bench(SLUG, request.param)


@pytest.fixture(scope="module")
def changed(task: Any) -> Callable[[Change], Any]:
    """Return the score of the true tracks after a change."""

    def score(change: Change) -> Any:
        def edit(folder: Path) -> None:
            (masks,) = folder.glob("*_RES.ome.tif")
            table = folder / "res_track.txt"
            stack, tracks = change(tifffile.imread(masks), np.loadtxt(table, dtype=np.int64, ndmin=2))
            tifffile.imwrite(masks, stack.astype(np.uint16), compression="zlib", ome=True, metadata={"axes": "TYX"})
            np.savetxt(table, tracks, fmt="%d")

        return task.edited(edit)

    return score


def objects(stack: Stack) -> list[tuple[int, int]]:
    """Return all objects (frame, label) in a random order that is the same in every rung."""
    pairs = [(frame, int(name)) for frame, image in enumerate(stack) for name in np.unique(image[image > 0])]
    return [pairs[index] for index in np.random.default_rng(5).permutation(len(pairs))]


def dropped(share: float) -> Change:
    def change(stack: Stack, tracks: Tracks) -> tuple[Stack, Tracks]:
        pairs = objects(stack)
        for frame, name in pairs[: round(share * len(pairs))]:
            stack[frame][stack[frame] == name] = 0
        return stack, tracks

    return change


def eroded(pixels: int) -> Change:
    def change(stack: Stack, tracks: Tracks) -> tuple[Stack, Tracks]:
        images = [erosion(image, disk(pixels)) for image in stack] if pixels else stack
        return np.stack(list(images)), tracks

    return change


def shifted(pixels: int) -> Change:
    return lambda stack, tracks: (np.pad(stack, ((0, 0), (0, 0), (pixels, 0)))[:, :, : stack.shape[2]], tracks)


def cut_short(share: float) -> Change:
    """Leave out frames at the end."""
    return lambda stack, tracks: (stack[: round((1 - share) * len(stack))], tracks)


def fragmented(share: float) -> Change:
    """End tracks and go on under a new id, without a parent."""

    def change(stack: Stack, tracks: Tracks) -> tuple[Stack, Tracks]:
        rows = {int(row[0]): row.copy() for row in tracks}
        for frame, name in objects(stack)[: round(share * len(objects(stack)))]:
            row = rows.get(name)
            if row is None or not row[1] < frame <= row[2]:
                continue
            new = max(rows) + 1
            later = stack[frame:]
            later[later == name] = new
            for other in rows.values():
                if other[3] == name:
                    other[3] = new
            rows[new] = np.array([new, frame, row[2], 0])
            row[2] = frame - 1
        return stack, np.array(list(rows.values()))

    return change


def orphaned(share: float) -> Change:
    """Forget the mothers of a share of the daughters."""

    def change(stack: Stack, tracks: Tracks) -> tuple[Stack, Tracks]:
        daughters = np.flatnonzero(tracks[:, 3])
        some = np.random.default_rng(5).permutation(daughters)[: round(share * len(daughters))]
        tracks[some, 3] = 0
        return stack, tracks

    return change


def swapped(share: float) -> Change:
    """Exchange the ids of neighbouring labels from a frame on."""

    def change(stack: Stack, tracks: Tracks) -> tuple[Stack, Tracks]:
        pairs = objects(stack)
        for frame, name in pairs[: round(share * len(pairs))]:
            names = np.unique(stack[frame][stack[frame] > 0])
            other = names[(np.searchsorted(names, name) + 1) % len(names)] if len(names) else name
            image = stack[frame]
            first, second = image == name, image == other
            image[first], image[second] = other, name
        return stack, tracks

    return change


LADDERS: dict[str, tuple[Change, ...]] = {
    "dropped": tuple(map(dropped, (0.0, 0.02, 0.1, 0.3, 0.6, 1.0))),
    "eroded": tuple(map(eroded, (0, 1, 2, 3))),
    "shifted": tuple(map(shifted, (0, 1, 2, 4, 8))),
    "cut_short": tuple(map(cut_short, (0.0, 0.1, 0.3, 0.6, 0.9))),
    "fragmented": tuple(map(fragmented, (0.0, 0.01, 0.05, 0.2))),
    "orphaned": tuple(map(orphaned, (0.0, 0.1, 0.3, 0.6, 1.0))),
    "swapped": tuple(map(swapped, (0.0, 0.01, 0.05, 0.2))),
}
MILD: dict[str, Change] = {
    "dropped": dropped(0.01),
    "eroded": eroded(1),
    "shifted": shifted(1),
    "cut_short": cut_short(0.03),
    "fragmented": fragmented(0.01),
    "orphaned": orphaned(0.1),
    "swapped": swapped(0.005),
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


def test_one_of_two_deliverables(task: Any) -> None:
    without_lineage = task.edited(lambda folder: (folder / "res_track.txt").unlink())
    assert (without_lineage.outcome, without_lineage.strict) == (0.5, 0.0)
    without_masks = task.edited(lambda folder: next(folder.glob("*.tif")).unlink())
    assert (without_masks.outcome, without_masks.strict) == (0.0, 0.0)


@pytest.mark.parametrize("name", TRICKS)
def test_tricks_fail_the_strict_score(changed: Any, name: str) -> None:
    score = changed(TRICKS[name])
    assert score.strict <= 0.2, name
    if name == "masks_without_links":
        assert score.outcome > 0.9  # an honest limit of the published score
