"""Tables of cells that nobody classified or nobody looked for: the outcome pays for parts, the strict score for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray

CLASSES = ("round", "amoeboid", "ramified")
Cell = tuple[int, float, float, str]


def _truth(truth_dir: Path) -> list[Cell]:
    lines = next(truth_dir.glob("*annotation*.csv")).read_text(encoding="utf-8").splitlines()
    names = lines[0].split(",")
    at = [names.index(name) for name in ("axis-0", "axis-2", "axis-1", "label")]
    cells = (line.split(",") for line in lines[1:])
    named = ((row[at[0]], row[at[1]], row[at[2]], row[at[3]]) for row in cells)
    return [(int(float(t)), float(x), float(y), label.replace("stratified", "ramified")) for t, x, y, label in named]


def _images(input_dir: Path) -> tuple[int, tuple[int, int]]:
    paths = sorted(input_dir.rglob("*.tif"))
    with tifffile.TiffFile(paths[0]) as file:
        rows, columns = file.series[0].shape
    return len(paths), (rows, columns)


def _write(output_dir: Path, cells: Sequence[Cell]) -> None:
    lines = ["frame,x,y,phenotype", *(f"{t},{x:.2f},{y:.2f},{label}" for t, x, y, label in cells)]
    (output_dir / "cell_labels.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _ramp(frame: int, frames: int) -> NDArray[np.float64]:
    """Guessed shares of round, amoeboid, ramified: what the request itself tells."""
    done = frame / max(1, frames - 1)
    return np.array([0.1 + 0.7 * done, 0.1, 0.8 - 0.7 * done])


def _guess(frames: int, places: NDArray[np.float64], seed: int = 0) -> list[Cell]:
    """Put the same places into every frame, with labels drawn from the guessed shares."""
    rng = np.random.default_rng(seed)
    return [
        (t, float(x), float(y), str(rng.choice(CLASSES, p=_ramp(t, frames)))) for t in range(frames) for x, y in places
    ]


def true_shares(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Take perfect places and draw labels from the true shares of each frame."""
    rng = np.random.default_rng(0)
    cells = _truth(truth_dir)
    frames = np.array([cell[0] for cell in cells])
    labels = np.array([cell[3] for cell in cells])
    for t in np.unique(frames):
        labels[frames == t] = rng.permutation(labels[frames == t])
    _write(output_dir, [(t, x, y, str(label)) for (t, x, y, _), label in zip(cells, labels, strict=True)])


def one_cell_a_frame(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Report one cell of each frame, correctly."""
    first: dict[int, Cell] = {}
    for cell in _truth(truth_dir):
        first.setdefault(cell[0], cell)
    _write(output_dir, list(first.values()))


def random_labels(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Take perfect places and draw every label at random."""
    rng = np.random.default_rng(0)
    _write(output_dir, [(t, x, y, str(rng.choice(CLASSES))) for t, x, y, _ in _truth(truth_dir)])


def four_cells(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Report two cells of the first and two of the last frame, correctly."""
    cells = _truth(truth_dir)
    chosen = []
    for frame, wanted in ((cells[0][0], ("ramified", "amoeboid")), (cells[-1][0], ("round", "amoeboid"))):
        for label in wanted:
            chosen += [cell for cell in cells if cell[0] == frame and cell[3] == label][:1]
    _write(output_dir, chosen)


def swapped_labels(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Take perfect places and call round cells ramified and the other way round."""
    other = {"round": "ramified", "ramified": "round", "amoeboid": "amoeboid"}
    _write(output_dir, [(t, x, y, other[label]) for t, x, y, label in _truth(truth_dir)])


def swapped_axes(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Exchange x and y."""
    _write(output_dir, [(t, y, x, label) for t, x, y, label in _truth(truth_dir)])


def moved_away(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Put every cell 16 px beside its place."""
    _write(output_dir, [(t, x + 16.0, y, label) for t, x, y, label in _truth(truth_dir)])


def grid_and_ramp(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Cover every frame with a regular grid, with labels from a guessed ramp."""
    frames, (rows, columns) = _images(input_dir)
    y, x = np.mgrid[12:rows:26, 12:columns:26]
    _write(output_dir, _guess(frames, np.column_stack((x.ravel(), y.ravel())).astype(float)))


def fine_grid_and_ramp(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Cover every frame with a grid so fine that a point lies near every cell."""
    frames, (rows, columns) = _images(input_dir)
    y, x = np.mgrid[6:rows:14, 6:columns:14]
    _write(output_dir, _guess(frames, np.column_stack((x.ravel(), y.ravel())).astype(float)))


def random_and_ramp(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Draw as many places as there are cells, with labels from a guessed ramp."""
    frames, (rows, columns) = _images(input_dir)
    count = round(len(_truth(truth_dir)) / frames)
    places = np.random.default_rng(0).uniform(0.0, 1.0, (count, 2)) * (columns, rows)
    _write(output_dir, _guess(frames, places))


def first_frame_and_ramp(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Find the cells of the first frame perfectly and repeat them in all others, with labels from a guessed ramp."""
    frames, _ = _images(input_dir)
    cells = _truth(truth_dir)
    _write(output_dir, _guess(frames, np.array([cell[1:3] for cell in cells if cell[0] == cells[0][0]])))


def all_round(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Take perfect places and call every cell round."""
    _write(output_dir, [(t, x, y, "round") for t, x, y, _ in _truth(truth_dir)])


SHORTCUTS: dict[str, Callable[[Path, Path, Path], None]] = {
    "true_shares": true_shares,
    "one_cell_a_frame": one_cell_a_frame,
    "random_labels": random_labels,
    "swapped_labels": swapped_labels,
    "grid_and_ramp": grid_and_ramp,
    "fine_grid_and_ramp": fine_grid_and_ramp,
    "first_frame_and_ramp": first_frame_and_ramp,
    "random_and_ramp": random_and_ramp,
    "swapped_axes": swapped_axes,
    "moved_away": moved_away,
    "all_round": all_round,
    "four_cells": four_cells,
}
