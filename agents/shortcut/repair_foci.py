"""Onsets that were not found in the movies: two quantiles fill a distribution, and a guess at its shape does well."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray
from scipy import ndimage

CONDITIONS = ("siControl", "si53BP1")
Values = NDArray[np.float64]


def _reference(truth_dir: Path) -> dict[str, Values]:
    with (truth_dir / "coloc_results.csv").open(newline="") as handle:
        rows = list(csv.reader(handle))
    found = {}
    for start, name in enumerate(rows[0]):
        if name:
            column = start + 2
            found[name] = np.array([float(row[column]) for row in rows[2:] if len(row) > column and row[column]])
    return found


def _write(output_dir: Path, rows: Iterable[Sequence[object]], columns: str = "condition,start_normalized") -> None:
    lines = [columns, *(",".join(map(str, row)) for row in rows)]
    (output_dir / "coloc_results.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def copied_values(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in the published list of numbers."""
    _write(output_dir, ((name, value) for name, values in _reference(truth_dir).items() for value in values))


def quartiles(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Two values per condition, at its quartiles."""
    quarters = {name: np.percentile(values, [25, 75]) for name, values in _reference(truth_dir).items()}
    _write(output_dir, ((name, value) for name, values in quarters.items() for value in values))


def ten_quantiles(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Ten values per condition, evenly over its distribution."""
    levels = {name: np.percentile(values, np.arange(5, 100, 10)) for name, values in _reference(truth_dir).items()}
    _write(output_dir, ((name, value) for name, values in levels.items() for value in values))


def pooled(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """The same list for both conditions: no effect at all."""
    values = np.concatenate(list(_reference(truth_dir).values()))
    _write(output_dir, ((name, value) for name in CONDITIONS for value in values))


def even_grid(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """An even grid from 0 to 0.6 for both conditions."""
    _write(output_dir, ((name, value) for name in CONDITIONS for value in np.linspace(0.0, 0.6, 56)))


def constant(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Always one half."""
    _write(output_dir, ((name, 0.5) for name in CONDITIONS for _ in range(56)))


def one_condition(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Leave the second condition out."""
    with (truth_dir / "events.csv").open(newline="") as handle:
        rows = [row for row in csv.DictReader(handle) if row["condition"] == CONDITIONS[0]]
    columns = "condition,frame,y,x,start_normalized"
    _write(output_dir, ([row[name] for name in columns.split(",")] for row in rows), columns)


def swapped_conditions(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """The values of each condition under the name of the other."""
    reference = _reference(truth_dir)
    rows = (
        (name, value) for name, other in zip(CONDITIONS, CONDITIONS[::-1], strict=True) for value in reference[other]
    )
    _write(output_dir, rows)


def repeated_events(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """A handful of values, each a hundred times."""
    levels = {name: np.percentile(values, [20, 50, 80]) for name, values in _reference(truth_dir).items()}
    _write(output_dir, ((name, value) for name, values in levels.items() for value in np.repeat(values, 100)))


def _frames(input_dir: Path, condition: str) -> list[Path]:
    folder = next(path for path in sorted(input_dir.rglob(f"*{condition}*")) if path.is_dir())
    return sorted(folder.glob("T*.tif"))


def bright_spots(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Give the right onsets to bright red spots of random frames: foci, but no colocalization."""
    rng = np.random.default_rng(0)
    rows: list[Sequence[object]] = []
    for name, values in _reference(truth_dir).items():
        frames = _frames(input_dir, name)
        for value in values:
            path = frames[int(rng.integers(len(frames)))]
            red = tifffile.imread(path)[..., 0].astype(float)
            red[: red.shape[0] // 8, red.shape[1] // 2 :] = 0.0  # the time stamp
            red = ndimage.gaussian_filter(red, 1.0)
            spots = np.argwhere((red == ndimage.maximum_filter(red, 5)) & (red > 0.4 * red.max()))
            y, x = spots[rng.integers(len(spots))]
            number = re.search(r"T(\d+)", path.name)
            rows.append((name, int(number[1]) if number else 0, y, x, value))
    _write(output_dir, rows, "condition,frame,y,x,start_normalized")


def time_stamp(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Take the burnt-in time for colocalized spots: bright in all channels, in every frame."""
    rows: list[Sequence[object]] = []
    for name in CONDITIONS:
        frames = _frames(input_dir, name)
        for k, path in enumerate(frames[: len(frames) // 2], start=1):
            ys, xs = np.nonzero((tifffile.imread(path) > 250).all(axis=-1))
            y, x = (ys[len(ys) // 2], xs[len(xs) // 2]) if len(ys) else (0, 0)
            rows.append((name, k, y, x, k / len(frames)))
    _write(output_dir, rows, "condition,frame,y,x,start_normalized")


SHORTCUTS: dict[str, Callable[[Path, Path, Path], None]] = {
    "copied_values": copied_values,
    "bright_spots": bright_spots,
    "ten_quantiles": ten_quantiles,
    "quartiles": quartiles,
    "pooled": pooled,
    "even_grid": even_grid,
    "one_condition": one_condition,
    "swapped_conditions": swapped_conditions,
    "repeated_events": repeated_events,
    "time_stamp": time_stamp,
    "constant": constant,
}
