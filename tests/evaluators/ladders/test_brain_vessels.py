"""brain_vessels: the top, the bottom, and what lies between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from scipy import ndimage

SLUG = "brain_vessels"
SEEDS = [0, pytest.param(1, marks=pytest.mark.full), pytest.param(2, marks=pytest.mark.full)]

Mask = NDArray[np.bool_]


def read(folder: Path) -> dict[str, Mask]:
    return {path.stem.removeprefix("Binary_"): tifffile.imread(path) > 0 for path in sorted(folder.glob("*.tiff"))}


def write(folder: Path, masks: dict[str, Mask]) -> Path:
    for stem, mask in masks.items():
        tifffile.imwrite(folder / f"{stem}_mask.tiff", mask.astype(np.uint8), compression="zlib")
    return folder


def part_of(task: Any, base: Path, animals: int) -> Any:
    """Cut a block out of each volume of the first animals: a third of the work."""
    for folder in ("input", "evaluation"):
        (base / "data" / folder).mkdir(parents=True)
        for path in sorted((task.folder / folder).iterdir())[:animals]:
            tifffile.imwrite(base / "data" / folder / path.name, tifffile.imread(path)[14:88, 16:84, 16:84])
    return type(task)(task.spec, base / "data", base / "submissions")


@pytest.fixture(scope="module", params=SEEDS)
def task(request: Any, bench: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return part_of(bench(SLUG, request.param), tmp_path_factory.mktemp("six"), 6)


@pytest.fixture(scope="module", params=SEEDS)
def pair(request: Any, bench: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return part_of(bench(SLUG, request.param), tmp_path_factory.mktemp("two"), 2)


def test_truth_is_the_top(task: Any) -> None:
    result = task.score(task.perfect())
    assert (result.outcome, result.strict) == (1.0, 1.0)
    assert not result.problems
    assert len(result.items) == 6


def test_nothing_and_talk_are_the_bottom(pair: Any) -> None:
    for folder in (pair.new(), pair.bluff()):
        result = pair.score(folder)
        assert (result.outcome, result.strict, result.delivered) == (0.0, 0.0, False)
        assert "missing_deliverable" in {problem.code for problem in result.problems}


def test_half_of_the_animals_is_half(task: Any) -> None:
    def keep_three(folder: Path) -> None:
        for path in sorted(folder.iterdir())[3:]:
            path.unlink()

    result = task.edited(keep_three)
    assert (result.outcome, result.strict) == (0.5, 0.5)


@pytest.mark.parametrize("seed", SEEDS)
def test_shortcuts_fail_the_strict_score(seed: int, bench: Any) -> None:
    whole = bench(SLUG, seed)
    tricks = list(whole.tricks().items())
    for name, trick in tricks[:3] if seed == 0 else tricks:  # the strongest come first
        assert whole.trick(name, trick).strict <= 0.2, name


def thinned(mask: Mask, steps: int) -> Mask:
    """Peel voxels off the vessels: thin ones break and vanish first."""
    return ndimage.binary_erosion(mask, iterations=steps) if steps else mask


def grown(mask: Mask, steps: int) -> Mask:
    return ndimage.binary_dilation(mask, iterations=steps) if steps else mask


def broken(mask: Mask, gaps: int) -> Mask:
    """Cut gaps of five voxels; more gaps contain the fewer ones."""
    rng = np.random.default_rng(5)
    places = rng.permutation(np.argwhere(mask))[:gaps]
    result = mask.copy()
    for place in places:
        result[tuple(slice(max(0, p - 2), p + 3) for p in place)] = False
    return result


def littered(mask: Mask, blobs: int) -> Mask:
    """Add round bodies of the size of a cell."""
    rng = np.random.default_rng(6)
    z, y, x = np.indices((7, 9, 9))
    ball = ((z - 3) / 3) ** 2 + ((y - 4) / 4) ** 2 + ((x - 4) / 4) ** 2 <= 1.0
    result = mask.copy()
    for _ in range(blobs):
        z0, y0, x0 = (int(rng.integers(0, n - k)) for n, k in zip(mask.shape, ball.shape, strict=True))
        result[z0 : z0 + 7, y0 : y0 + 9, x0 : x0 + 9] |= ball
    return result


def shifted(mask: Mask, voxels: int) -> Mask:
    return np.roll(mask, voxels, axis=1)


LADDERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "thinned": (thinned, (0, 1, 2, 3)),
    "grown": (grown, (0, 1, 2, 4)),
    "broken": (broken, (0, 8, 60, 600)),
    "littered": (littered, (0, 3, 60, 400)),
    "shifted": (shifted, (0, 1, 3, 9)),
}


@pytest.mark.parametrize("ladder", LADDERS)
def test_no_score_rises_with_damage(ladder: str, pair: Any, falls: Any) -> None:
    damage, steps = LADDERS[ladder]
    truth = read(pair.truth)
    scores = [
        pair.score(write(pair.new(), {stem: damage(mask, step) for stem, mask in truth.items()})) for step in steps
    ]
    falls(scores)
    assert scores[0].strict == 1.0
    if ladder != "thinned":  # one voxel off a vessel three voxels wide leaves nothing of it
        assert scores[1].strict >= 0.6
    assert scores[-1].strict < 0.5


def test_missing_planes_break_vessels_though_dice_hardly_sees_it(pair: Any) -> None:
    def sliced(mask: Mask) -> Mask:
        result = mask.copy()
        result[::6] = False
        return result

    result = pair.score(write(pair.new(), {stem: sliced(mask) for stem, mask in read(pair.truth).items()}))
    assert result.outcome > 0.85
    assert result.metrics["cl_dice"] > 0.85
    assert result.metrics["continuity"] < 0.65
    assert all(item["predicted_pieces"] > 2 * item["true_pieces"] for item in result.items)


def test_capillaries_one_voxel_too_thick_cost_dice_but_not_strict(pair: Any) -> None:
    result = pair.score(write(pair.new(), {stem: grown(mask, 1) for stem, mask in read(pair.truth).items()}))
    assert result.outcome < 0.8
    assert result.strict > 0.85
