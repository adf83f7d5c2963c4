"""Plates that nobody measured: the outcome rewards the shape of the numbers, the strict score their truth."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

Row = tuple[str, str, float, float]
_COLUMNS = "well,cell_type,dose,mean_nuc_over_cyto_ratio"


def _plate(input_dir: Path) -> list[tuple[str, str, float]]:
    """Return well, cell line and log dose of each well from the plate map."""
    text = next(input_dir.glob("*platemap*.csv")).read_text(encoding="utf-8")
    wells = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if re.fullmatch(r"[A-H]", cells[0]):
            wells.append((f"{cells[0]}{int(cells[1]):02d}", cells[3], float(cells[2].removeprefix("10^"))))
    return wells


def _write(output_dir: Path, rows: Iterable[Sequence[object]]) -> None:
    lines = [_COLUMNS, *(",".join(map(str, row)) for row in rows)]
    (output_dir / "per_well_summary.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _true_ratios(truth_dir: Path) -> dict[str, float]:
    lines = (truth_dir / "per_well_truth.csv").read_text(encoding="utf-8").splitlines()[1:]
    return {cells[0]: float(cells[3]) for cells in (line.split(",") for line in lines)}


def _rising(dose: float) -> float:
    return 1.0 + 0.12 * (dose + 13.0)


def invented(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Make ratios up from the plate map: a smooth rise with the dose and a little noise."""
    rng = np.random.default_rng(0)
    _write(
        output_dir,
        ((well, line, dose, _rising(dose) * rng.normal(1.0, 0.005)) for well, line, dose in _plate(input_dir)),
    )


def offset(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Add 100 to every measured ratio, which hides the differences of replicates."""
    ratios = _true_ratios(truth_dir)
    _write(output_dir, ((well, line, dose, ratios[well] + 100.0) for well, line, dose in _plate(input_dir)))


def dose_means(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Give every well the mean of its line and dose, so that replicates agree perfectly."""
    ratios = _true_ratios(truth_dir)
    groups: dict[tuple[str, float], list[float]] = {}
    for well, line, dose in _plate(input_dir):
        groups.setdefault((line, dose), []).append(ratios[well])
    _write(output_dir, ((well, line, dose, np.mean(groups[line, dose])) for well, line, dose in _plate(input_dir)))


def one_line(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Leave one cell line out."""
    plate = _plate(input_dir)
    ratios = _true_ratios(truth_dir)
    _write(output_dir, ((well, line, dose, ratios[well]) for well, line, dose in plate if line == plate[0][1]))


def four_rows(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Two wells without and two with the highest dose, of one line."""
    wells = sorted((one for one in _plate(input_dir) if one[0][0] in "AB"), key=lambda one: one[2])
    rows = [(*well, ratio) for well, ratio in zip([*wells[:2], *wells[-2:]], (1.0, 1.01, 2.0, 2.01), strict=True)]
    _write(output_dir, rows)


def two_doses(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Report the wells without and with the highest dose of both lines and nothing between."""
    plate = _plate(input_dir)
    doses = sorted({dose for _, _, dose in plate})
    ratios = _true_ratios(truth_dir)
    _write(output_dir, ((*well, ratios[well[0]]) for well in plate if well[2] in (doses[0], doses[-1])))


def constant(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Give every well the same ratio."""
    _write(output_dir, ((*well, 1.0) for well in _plate(input_dir)))


def noise(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Draw every ratio at random."""
    rng = np.random.default_rng(0)
    _write(output_dir, ((*well, rng.uniform(0.9, 1.1)) for well in _plate(input_dir)))


def repeated_rows(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Repeat two wells per dose as if they were replicates."""
    plate = [well for well in _plate(input_dir) if well[0][0] in "ABEF"]
    rng = np.random.default_rng(0)
    _write(output_dir, ((*well, _rising(well[2]) * rng.normal(1.0, 0.01)) for well in plate * 50))


def extra_line(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Add a perfect cell line that was never on the plate to a flat plate."""
    plate = _plate(input_dir)
    rows: list[Row] = [(*well, 1.0) for well in plate]
    rows += [
        (f"{'IJKL'['EFGH'.index(w[0])]}{w[1:]}", "HeLa", dose, _rising(dose)) for w, _, dose in plate if w[0] in "EFGH"
    ]
    _write(output_dir, rows)


SHORTCUTS: dict[str, Callable[[Path, Path, Path], None]] = {
    "invented": invented,
    "offset": offset,
    "dose_means": dose_means,
    "one_line": one_line,
    "four_rows": four_rows,
    "two_doses": two_doses,
    "constant": constant,
    "noise": noise,
    "repeated_rows": repeated_rows,
    "extra_line": extra_line,
}
