"""Tables of kinetics that nobody measured: any rising curve will do for the outcome, none for the strict score."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

FRAME, TIME = "Time Point", "Time after anaphase onset (min)"
Change = Callable[[str, pd.DataFrame], pd.DataFrame]


def _truth(truth_dir: Path, input_dir: Path) -> dict[str, pd.DataFrame]:
    """Return the tables of the cells in the input."""
    movies = sorted(path.name for path in input_dir.rglob("*.tif*"))
    numbers = {int(name.split("cell-")[1].split("-")[0].split(".")[0]) for name in movies}
    sheets = pd.read_excel(next(truth_dir.glob("*.xlsx")), sheet_name=None)
    return {name: table for name, table in sheets.items() if int(name.split("cell")[1]) in numbers}


def _write(output_dir: Path, tables: dict[str, pd.DataFrame]) -> None:
    for name, table in tables.items():
        table.to_excel(output_dir / f"{name}.xlsx", index=False)


def _series(table: pd.DataFrame) -> list[str]:
    return [name for name in table.columns if name not in (FRAME, TIME)]


def _curves(input_dir: Path, truth_dir: Path, output_dir: Path, curve: Callable[[pd.Series], pd.Series]) -> None:
    """Take the true onset and put one function of time in the place of every curve."""
    tables = _truth(truth_dir, input_dir)
    for table in tables.values():
        values = curve(table[TIME])
        for name in _series(table):
            table[name] = values.where(table[TIME] >= 0)
    _write(output_dir, tables)


def common_curve(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Take the true onset and give every daughter the mean of all true curves."""
    tables = _truth(truth_dir, input_dir)
    for series in {name.replace("_2", "_1") for table in tables.values() for name in _series(table)}:
        pair = (series, series.replace("_1", "_2"))
        parts = [table[[TIME, name]].set_axis(["t", "v"], axis=1) for table in tables.values() for name in pair]
        mean = pd.concat(parts).groupby("t").v.mean()
        for table in tables.values():
            for name in pair:
                table[name] = table[TIME].map(mean)
    _write(output_dir, tables)


def logistic(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Take the true onset and a textbook curve."""
    _curves(input_dir, truth_dir, output_dir, lambda t: 1.0 / (1.0 + np.exp(-(t - 7.0) / 1.5)))


def logistic_at_a_guess(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Guess one onset for all movies and a textbook curve."""
    tables = _truth(truth_dir, input_dir)
    for table in tables.values():
        time = 0.5 * (table[FRAME] - table[FRAME].min() - 10)
        table[TIME] = time
        for name in _series(table):
            table[name] = (1.0 / (1.0 + np.exp(-(time - 7.0) / 1.5))).where(time >= 0)
    _write(output_dir, tables)


def ramp(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Take the true onset and a straight line."""
    _curves(input_dir, truth_dir, output_dir, lambda t: t)


def constant(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Take the true onset and no course at all."""
    _curves(input_dir, truth_dir, output_dir, lambda t: 1.0 + 0.0 * t)


def two_rows(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Take the true onset and report a beginning and an end."""
    tables = _truth(truth_dir, input_dir)
    chosen = {}
    for name, table in tables.items():
        chosen[name] = table[(table[TIME] == 0) | (table[TIME] == table[TIME].max())].copy()
        for series in _series(table):
            chosen[name][series] = [0.0, 1.0]
    _write(output_dir, chosen)


def one_daughter(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Report one daughter of each cell, correctly."""
    tables = _truth(truth_dir, input_dir)
    kept = {}
    for name, table in tables.items():
        kept[name] = table[[FRAME, TIME, *(series for series in _series(table) if "_2" not in series)]]
    _write(output_dir, kept)


def onset_alone(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Find the onset and measure nothing."""
    tables = _truth(truth_dir, input_dir)
    for table in tables.values():
        table[_series(table)] = np.nan
    _write(output_dir, tables)


def wrong_onset(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Take true curves, and frames that are off by twenty."""
    tables = _truth(truth_dir, input_dir)
    for table in tables.values():
        table[FRAME] += 20
    _write(output_dir, tables)


def other_cells(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in each cell's table under the name of the next one."""
    tables = _truth(truth_dir, input_dir)
    names = list(tables)
    _write(output_dir, {name: tables[other] for name, other in zip(names, [*names[1:], names[0]], strict=True)})


SHORTCUTS: dict[str, Callable[[Path, Path, Path], None]] = {
    "common_curve": common_curve,
    "logistic": logistic,
    "ramp": ramp,
    "logistic_at_a_guess": logistic_at_a_guess,
    "one_daughter": one_daughter,
    "other_cells": other_cells,
    "two_rows": two_rows,
    "constant": constant,
    "onset_alone": onset_alone,
    "wrong_onset": wrong_onset,
}
