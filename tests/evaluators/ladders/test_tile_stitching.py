"""tile_stitching: the top, the bottom, and what lies between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from scipy import ndimage

SLUG = "tile_stitching"
SEEDS = [0, pytest.param(1, marks=pytest.mark.full), pytest.param(2, marks=pytest.mark.full)]
MOSAIC, TABLE = "stitched_mosaic.tif", "summary_statistics.csv"

Stack = NDArray[np.uint16]


@pytest.fixture(scope="module", params=SEEDS)
def task(request: Any, bench: Any) -> Any:
    return bench(SLUG, request.param)


@pytest.fixture(scope="module", params=SEEDS)
def corner(request: Any, bench: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The task with four of its nine tiles, for ladders."""
    full = bench(SLUG, request.param)
    base = tmp_path_factory.mktemp("corner")
    for folder in ("input", "evaluation"):
        (base / "data" / folder).mkdir(parents=True)
    lines = (full.truth / "tile_positions.csv").read_text().splitlines()
    kept = [lines[0], *(lines[1 + k] for k in (0, 1, 4, 5))]  # back and forth: two of the first row, two of the second
    places = np.array([[float(cell) for cell in line.split(",")[1:]] for line in kept[1:]])
    stack = tifffile.imread(next(full.truth.glob("*_Stitched.lsm")))
    every = np.array([[float(cell) for cell in line.split(",")[1:]] for line in lines[1:]])
    rows, columns = np.ceil(places.max(axis=0) + np.array(stack.shape[2:]) - every.max(axis=0)).astype(int)
    write(base / "data" / "evaluation", stack[:, :, :rows, :columns], "x_Stitched.tif")
    (base / "data" / "evaluation" / "tile_positions.csv").write_text("\n".join(kept))
    table = (full.truth / "reference_table_1.csv").read_text()
    (base / "data" / "evaluation" / "reference_table_1.csv").write_text(table)
    return type(full)(full.spec, base / "data", base / "submissions")


def read(folder: Path) -> Stack:
    return tifffile.imread(folder / MOSAIC)


def write(folder: Path, stack: Stack, name: str = MOSAIC) -> None:
    tifffile.imwrite(folder / name, stack.astype(np.uint16), imagej=True, metadata={"axes": "ZCYX"})


def rows(folder: Path) -> list[list[str]]:
    return [line.split(",") for line in (folder / TABLE).read_text().splitlines()]


def scaled(factor: float) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        head, *body = rows(folder)
        lines = [",".join(head), *(",".join([*row[:3], str(float(row[3]) * factor)]) for row in body)]
        (folder / TABLE).write_text("\n".join(lines))

    return edit


def test_truth_is_the_top(task: Any) -> None:
    folder = task.perfect()
    result = task.score(folder)
    assert (result.outcome, result.strict) == (1.0, 1.0)
    assert not result.problems
    assert {path.name for path in folder.iterdir()} == {MOSAIC, TABLE}
    assert result.metrics["placed_tiles"] == result.metrics["direction_agreement"] == 1.0


def test_nothing_and_talk_are_the_bottom(task: Any) -> None:
    for folder in (task.new(), task.bluff()):
        result = task.score(folder)
        assert (result.outcome, result.strict, result.delivered) == (0.0, 0.0, False)
        assert "missing_deliverable" in {problem.code for problem in result.problems}


def test_each_deliverable_alone_is_its_part(task: Any) -> None:
    mosaic_only = task.edited(lambda folder: (folder / TABLE).unlink())
    assert (mosaic_only.outcome, mosaic_only.strict, mosaic_only.delivered) == (0.7, 0.0, True)
    table_only = task.edited(lambda folder: (folder / MOSAIC).unlink())
    assert (table_only.outcome, table_only.strict, table_only.delivered) == (0.3, 0.0, True)
    corrupt = task.edited(lambda folder: (folder / MOSAIC).write_bytes(b"II*\0no image"))
    assert corrupt.outcome == 0.3


def test_shortcuts_fail_the_strict_score(task: Any) -> None:
    for name, trick in task.tricks().items():
        result = task.trick(name, trick)
        assert result.strict <= 0.2, name
        if name in {"middle_band", "streaks"}:
            assert result.outcome > 0.999  # the published score looks at the band alone


@pytest.mark.parametrize(("factor", "outcome"), [(1.0, 1.0), (1.1, 0.97), (1.5, 0.85), (3.0, 0.7)])
def test_scaled_means_lose_in_proportion(factor: float, outcome: float, corner: Any) -> None:
    assert corner.edited(scaled(factor)).outcome == pytest.approx(outcome, abs=1e-6)


def misplaced(stack: Stack, task: Any, count: int) -> Stack:
    """Move the content of some tiles by six pixels each, in different directions."""
    corners = np.loadtxt(task.truth / "tile_positions.csv", delimiter=",", skiprows=1)[:, 1:]
    size = np.array(stack.shape[2:]) - corners.max(axis=0)
    order = np.random.default_rng(1).permutation(len(corners))
    result = stack.copy()
    for k in order[:count]:
        angle = 2.4 * k
        dy, dx = round(6 * np.sin(angle)), round(6 * np.cos(angle))
        y0, x0 = np.rint(corners[k]).astype(int)
        y1, x1 = np.minimum(np.rint(corners[k] + size).astype(int), stack.shape[2:])
        result[:, :, y0:y1, x0:x1] = np.roll(stack, (dy, dx), axis=(2, 3))[:, :, y0:y1, x0:x1]
    return result


def noisy(stack: Stack, task: Any, sigma: int) -> Stack:
    noise = np.random.default_rng(2).standard_normal(stack.shape)
    return np.clip(stack + sigma * noise, 0, 65535)


def cropped(stack: Stack, task: Any, lines: int) -> Stack:
    return stack[:, :, lines:, lines:]


def blurred(stack: Stack, task: Any, sigma: int) -> Stack:
    return ndimage.gaussian_filter(stack.astype(np.float32), (0, 0, sigma, sigma)) if sigma else stack


LADDERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "misplaced": (misplaced, (0, 1, 2, 4)),
    "noisy": (noisy, (0, 25, 200, 3000)),
    "cropped": (cropped, (0, 8, 60, 300)),
    "blurred": (blurred, (0, 1, 4, 25)),
}


@pytest.mark.parametrize("ladder", LADDERS)
def test_no_score_rises_with_damage_of_the_mosaic(ladder: str, corner: Any, falls: Any) -> None:
    damage, steps = LADDERS[ladder]
    truth = read(corner.perfect())
    scores = [corner.edited(lambda folder, step=step: write(folder, damage(truth, corner, step))) for step in steps]
    if ladder == "misplaced":  # tiles outside the band are not seen by the published score
        assert np.all(np.diff([score.outcome for score in scores]) <= 0.02)
        assert np.all(np.diff([score.strict for score in scores]) <= 0.02)
    else:
        falls(scores)
    assert scores[1].strict >= 0.6
    assert scores[-1].strict < 0.5


def mixed(share: float) -> Callable[[Path], None]:
    """Take a share of each population for the other one, as misclassified cells do."""

    def edit(folder: Path) -> None:
        head, *body = rows(folder)
        means = {tuple(row[:3]): float(row[3]) for row in body}
        other = {"WBC": "MCF7", "MCF7": "WBC"}
        lines = [
            f"{p},{c},{f},{(1 - share) * value + share * means[other[p], c, f]}" for (p, c, f), value in means.items()
        ]
        (folder / TABLE).write_text("\n".join([",".join(head), *lines]))

    return edit


def test_no_score_rises_with_misclassified_cells(corner: Any, falls: Any) -> None:
    scores = [corner.edited(mixed(share)) for share in (0.0, 0.05, 0.2, 0.45)]
    falls(scores)
    assert scores[1].strict >= 0.6
    assert scores[-1].strict < 0.2


def test_exchanged_populations_are_wrong_in_every_direction(corner: Any) -> None:
    result = corner.edited(mixed(1.0))
    assert result.strict == 0.0
    assert result.metrics["direction_agreement"] == 0.0
    assert result.outcome > 0.8  # the published score hardly sees it


def test_exchanged_channels_and_copied_planes_are_seen(corner: Any) -> None:
    exchanged = corner.edited(lambda folder: write(folder, read(folder)[:, [1, 0, 2, 3]]))
    copied = corner.edited(lambda folder: write(folder, np.repeat(read(folder)[1:2], 3, axis=0)))
    assert exchanged.strict < 0.5
    assert copied.strict < 0.6
    assert copied.outcome > 0.95


def test_order_of_rows_and_files_does_not_matter(corner: Any) -> None:
    def shuffled(folder: Path) -> None:
        head, *body = rows(folder)
        body = [body[k] for k in np.random.default_rng(4).permutation(len(body))]
        (folder / TABLE).write_text("\n".join(",".join(row) for row in [head, *body]))

    assert corner.edited(shuffled).outcome == 1.0
