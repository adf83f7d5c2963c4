"""Points that were not looked for: right counts at the wrong places, the same count everywhere, or no point at all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray

Points = NDArray[np.float64]
Size = tuple[float, float]  # columns, rows
Change = Callable[[Points, Size, np.random.Generator], Points]


def _tables(change: Change, input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    rng = np.random.default_rng(0)
    for path in sorted(truth_dir.glob("*.csv")):
        rows_of_text = path.read_text(encoding="utf-8").split()[1:]
        points = np.array([row.split(",") for row in rows_of_text], np.float64).reshape(-1, 2)
        with tifffile.TiffFile(next(input_dir.glob(f"{path.stem}.tif*"))) as image:
            rows, columns = image.pages.first.shape[:2]
        made = change(points, (columns, rows), rng)
        lines = ["X,Y", *(f"{x:.3f},{y:.3f}" for x, y in made)]
        (output_dir / path.name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _grid(size: Size, spacing: float) -> Points:
    axes = [np.arange(spacing / 2, length, spacing) for length in size]
    return np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)


def _counted_grid(points: Points, size: Size, rng: np.random.Generator) -> Points:
    return _grid(size, float(np.sqrt(size[0] * size[1] / max(len(points), 1))))[: len(points)]


CHANGES: dict[str, Change] = {
    "right_counts_at_the_origin": lambda points, size, rng: np.zeros_like(points),
    "right_counts_anywhere": lambda points, size, rng: rng.random(points.shape) * size,
    "right_counts_on_a_grid": _counted_grid,
    "swapped_axes": lambda points, size, rng: points[:, ::-1],
    "twelve_points_in_every_image": lambda points, size, rng: rng.random((12, 2)) * size,
    "headers_alone": lambda points, size, rng: np.empty((0, 2)),
    "dense_grid": lambda points, size, rng: _grid(size, 14.0),
    "coarse_grid": lambda points, size, rng: _grid(size, 40.0),
}

SHORTCUTS: dict[str, Callable[[Path, Path, Path], None]] = {
    name: partial(_tables, change) for name, change in CHANGES.items()
}
