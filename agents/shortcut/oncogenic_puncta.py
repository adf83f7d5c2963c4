"""Tables of nuclei with counts that nobody made: what the outcome pays for, and what it does not see."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray

COLUMNS = ("condition", "Image name", "z", "y", "x", "number of GFP puncta")
Row = tuple[str, str, float, float, float, float]


def _truth(truth_dir: Path) -> list[Row]:
    with (truth_dir / "cell_quants.csv").open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    return [
        (
            row["condition"],
            row["Image name"],
            float(row["z"]),
            float(row["y"]),
            float(row["x"]),
            float(row["number of GFP puncta"]),
        )
        for row in rows
    ]


def _write(output_dir: Path, rows: Iterable[Row]) -> None:
    with (output_dir / "cell_quants.csv").open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow(COLUMNS)
        writer.writerows(rows)


def _counted(truth_dir: Path, output_dir: Path, change: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> None:
    """Take the true nuclei and change their counts, condition by condition."""
    rows = _truth(truth_dir)
    conditions = np.array([row[0] for row in rows])
    counts = np.array([row[5] for row in rows])
    for name in np.unique(conditions):
        counts[conditions == name] = change(counts[conditions == name])
    _write(output_dir, ((*row[:5], float(count)) for row, count in zip(rows, counts, strict=True)))


def only_bearing(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Report only nuclei with puncta, correctly; the others earn nothing."""
    _write(output_dir, (row for row in _truth(truth_dir) if row[5]))


def shuffled(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Deal the true counts of each condition out to other nuclei."""
    rng = np.random.default_rng(0)
    _counted(truth_dir, output_dir, rng.permutation)


def condition_mean(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Give every nucleus the true mean of its condition."""
    _counted(truth_dir, output_dir, lambda counts: np.full(len(counts), np.round(counts.mean())))


def one_for_all(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Give all nuclei the counts of those with puncta in the middle: the best single number."""
    _counted(truth_dir, output_dir, lambda counts: np.full(len(counts), np.median(counts[counts > 0])))


def guessed_order(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Draw counts whose means follow what the request hopes for."""
    rng = np.random.default_rng(0)
    means = {"WT": 20.0, "3DBD": 12.0, "C129A": 6.0}

    def draw(condition: str) -> float:
        mean = next(value for name, value in means.items() if name in condition)
        return float(rng.poisson(rng.exponential(mean / 0.4))) if rng.random() < 0.4 else 0.0

    _write(output_dir, ((*row[:5], draw(row[0])) for row in _truth(truth_dir)))


def all_zero(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Find every nucleus and no punctum."""
    _counted(truth_dir, output_dir, np.zeros_like)


def hundredfold(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Count a hundred for every punctum."""
    _counted(truth_dir, output_dir, lambda counts: 100.0 * counts)


def grid(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Spread nuclei evenly over every image, with counts as they are distributed in truth."""
    rng = np.random.default_rng(0)
    rows: list[Row] = []
    true = _truth(truth_dir)
    for path in sorted(input_dir.rglob("*.tif")):
        with tifffile.TiffFile(path) as file:
            planes, _, height, width = file.series[0].shape
        counts = [row[5] for row in true if row[0] == path.parent.name]
        side = max(1, round(float(np.sqrt(sum(path.name in row[1] for row in true)))))
        for y in (np.arange(side) + 0.5) * height / side:
            for x in (np.arange(side) + 0.5) * width / side:
                place = (planes / 2, float(y), float(x))
                rows.append((path.parent.name, path.name, *place, float(rng.choice(counts))))
    _write(output_dir, rows)


def phantoms(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Report nuclei with puncta correctly and, instead of the others, ten invented empty ones for each."""
    bearing = [row for row in _truth(truth_dir) if row[5]]
    rng = np.random.default_rng(0)
    far = [
        (row[0], row[1], float(rng.uniform(0, 40)), float(y), float(x), 0.0)
        for row in bearing
        for y, x in rng.uniform(-4000.0, -500.0, (10, 2))
    ]
    _write(output_dir, [*bearing, *far])


def at_the_origin(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Report the right number of nuclei and counts, all at the first voxel."""
    _write(output_dir, ((*row[:2], 0.0, 0.0, 0.0, row[5]) for row in _truth(truth_dir)))


SHORTCUTS: dict[str, Callable[[Path, Path, Path], None]] = {
    "only_bearing": only_bearing,
    "phantoms": phantoms,
    "shuffled": shuffled,
    "guessed_order": guessed_order,
    "condition_mean": condition_mean,
    "one_for_all": one_for_all,
    "grid": grid,
    "at_the_origin": at_the_origin,
    "all_zero": all_zero,
    "hundredfold": hundredfold,
}
