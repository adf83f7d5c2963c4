"""Tables of coefficients that nobody measured: the outcome asks for a pattern of groups, which is easy to make up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import tifffile

CONDITIONS = ("Control", "Stage 1", "Stage 2", "Stage 3")
LEVELS = {"Control": (0.10, 0.15), "Stage 1": (0.10, 0.15), "Stage 2": (0.22, 0.28), "Stage 3": (0.32, 0.38)}
Row = tuple[str, str, float]


def _images(input_dir: Path) -> list[tuple[str, str]]:
    """Return path below the input and condition of each image."""
    return [
        (f"{condition}/{path.name}", condition)
        for condition in CONDITIONS
        for path in sorted((input_dir / condition).glob("*.tif*"))
    ]


def _write(output_dir: Path, rows: Iterable[Row]) -> None:
    lines = ["image,condition,spearman_coefficient", *(f"{image},{name},{value}" for image, name, value in rows)]
    (output_dir / "colocalization_results.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _pairwise(output_dir: Path) -> None:
    lines = ["condition_1,condition_2,p_value", "Control,Stage 1,0.5", "Stage 1,Stage 2,0.001", "Stage 2,Stage 3,0.001"]
    (output_dir / "pairwise_pvalues.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def expected_pattern(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Spread values evenly over the level that is expected of each condition."""
    rows: list[Row] = []
    for condition in CONDITIONS:
        own = [image for image, name in _images(input_dir) if name == condition]
        values = np.random.default_rng(0).permutation(np.linspace(*LEVELS[condition], len(own)))
        rows += [(image, condition, float(value)) for image, value in zip(own, values, strict=True)]
    _write(output_dir, rows)
    _pairwise(output_dir)


def true_medians(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Give every image the true median of its condition."""
    table = [line.rsplit(",", 2) for line in (truth_dir / "per_cell_truth.csv").read_text().splitlines()[1:]]
    medians = {name: float(np.median([float(row[2]) for row in table if row[1] == name])) for name in CONDITIONS}
    _write(output_dir, ((image, name, medians[name]) for image, name in _images(input_dir)))


def shuffled_truth(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in the true values of each condition in another order: right distributions, no cell measured."""
    table = [line.rsplit(",", 2) for line in (truth_dir / "per_cell_truth.csv").read_text().splitlines()[1:]]
    rows: list[Row] = []
    for condition in CONDITIONS:
        own = [image for image, name in _images(input_dir) if name == condition]
        values = np.random.default_rng(0).permutation([float(row[2]) for row in table if row[1] == condition])
        rows += [(image, condition, float(value)) for image, value in zip(own, values, strict=True)]
    _write(output_dir, rows)


def brightness(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Take the brightness of green for colocalization: it rises with the stages as well."""
    means = {image: float(tifffile.imread(input_dir / image)[..., 1].mean()) for image, _ in _images(input_dir)}
    top = max(means.values())
    _write(output_dir, ((image, name, means[image] / top) for image, name in _images(input_dir)))


def negative(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Follow the pattern at impossible values: no colocalization in any cell."""
    level = {"Control": -0.5, "Stage 1": -0.5, "Stage 2": -0.3, "Stage 3": -0.1}
    _write(output_dir, ((image, name, level[name] + 1e-4 * k) for k, (image, name) in enumerate(_images(input_dir))))


def twelve_rows(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Three cells per condition."""
    level = {"Control": 0.1, "Stage 1": 0.1, "Stage 2": 0.3, "Stage 3": 0.4}
    images = _images(input_dir)
    first = [row for name in CONDITIONS for row in [one for one in images if one[1] == name][:3]]
    _write(output_dir, ((image, name, level[name]) for image, name in first))


def repeated_rows(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Repeat a few cells until every difference is significant."""
    level = {"Control": 0.1, "Stage 1": 0.1, "Stage 2": 0.3, "Stage 3": 0.4}
    images = _images(input_dir)
    first = [row for name in CONDITIONS for row in [one for one in images if one[1] == name][:3]]
    _write(output_dir, ((image, name, level[name]) for image, name in first * 20))


def summary_rows(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in one mean per condition instead of cells."""
    _write(output_dir, ((name, name, float(np.mean(LEVELS[name]))) for name in CONDITIONS))


def random_numbers(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Draw every coefficient at random."""
    rng = np.random.default_rng(0)
    _write(output_dir, ((image, name, float(rng.uniform(-1.0, 1.0))) for image, name in _images(input_dir)))


def only_p_values(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """State significant differences without a single measurement."""
    _pairwise(output_dir)
    (output_dir / "report.md").write_text("Control vs Stage 1: p-value = 0.5\nStage 1 vs Stage 2: p-value = 0.001\n")


SHORTCUTS: dict[str, Callable[[Path, Path, Path], None]] = {
    "expected_pattern": expected_pattern,
    "shuffled_truth": shuffled_truth,
    "true_medians": true_medians,
    "negative": negative,
    "brightness": brightness,
    "random_numbers": random_numbers,
    "twelve_rows": twelve_rows,
    "repeated_rows": repeated_rows,
    "summary_rows": summary_rows,
    "only_p_values": only_p_values,
}
