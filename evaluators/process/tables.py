"""A delivered table as the audit compares it: numbers by condition, whatever the columns are called."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from evaluators.problems import Refusal
from evaluators.readers.text import read_text

_MAX_ROWS = 200_000
_MAX_COLUMNS = 200
_MAX_CONDITIONS = 8
_MAX_GROUPS = 500
_ID = re.compile(r"(?i)image|file|well|stack|field|frame|sample|embryo|cell|nucleus|movie|position|replicate|id\b")
SIZE_WAYS = (0, 2)  # of the ways below, those whose order is that of the conditions: mean and sum
MEAN_WAYS = (0, 1, 8, 9)  # those that a report may call a mean: mean and median, of all and of what is above 0
_UNIT = re.compile(r"\bone row per ((?:[a-z]+ )*?)([a-z]+)(?=$|[,;.:()]| and | for | in | of )", re.IGNORECASE)
_SAME = (
    frozenset({"nucleus", "nuclei"}),
    frozenset({"cell", "cells"}),
    frozenset({"image", "images", "field", "fields", "fov", "fovs"}),
    frozenset({"stack", "stacks", "volume", "volumes", "image", "images"}),
    frozenset({"molecule", "molecules", "localization", "localizations", "localisation", "localisations"}),
    frozenset({"movie", "movies", "video", "videos"}),
    frozenset({"event", "events"}),
    frozenset({"focus", "foci"}),
    frozenset({"punctum", "puncta", "spot", "spots", "droplet", "droplets"}),
)


def unit_of(description: str) -> str | None:
    """Return what a table has one row per, from the task's own words (``one row per segmented cell`` is ``cell``)."""
    match = _UNIT.search(" ".join(description.split()))
    return match[2].lower() if match else None


def unit_forms(unit: str) -> frozenset[str]:
    """Return the words by which a report may call a unit."""
    found = next((forms for forms in _SAME if unit in forms), None)
    return found or frozenset({unit, f"{unit}s"})


@dataclass(frozen=True)
class GroupTable:
    """A table by columns of text; numbers are parsed on demand."""

    name: str
    columns: dict[str, list[str]]

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values()), []))

    @cached_property
    def numeric(self) -> dict[str, NDArray[np.float64]]:
        """Columns of numbers (at least half of the cells), what is none being NaN."""
        found = {}
        for name, cells in self.columns.items():
            values = np.array([_number(cell) for cell in cells])
            if cells and np.isfinite(values).mean() >= 0.5:
                found[name] = values
        return found

    @cached_property
    def _conditions(self) -> dict[str, list[str]]:
        found = {}
        for name, cells in self.columns.items():
            if name in self.numeric:
                continue
            labels = sorted(set(cells) - {""})
            if 2 <= len(labels) <= _MAX_CONDITIONS and self.rows > len(labels):
                found[name] = labels
        return found

    @cached_property
    def _known_ways(self) -> dict[tuple[str, ...], dict[str, NDArray[np.float64]]]:
        return {}

    def conditions(self) -> dict[str, list[str]]:
        """Columns that divide the rows into a few named groups, with their labels."""
        return self._conditions

    def has(self, column: str, labels: list[str]) -> bool:
        """Whether the table knows the same conditions, under whatever heading."""
        return self._column_with(column, labels) is not None

    def _column_with(self, column: str, labels: list[str]) -> str | None:
        names = sorted(self.conditions(), key=lambda name: name != column)
        return next((name for name in names if set(labels) <= set(self.conditions()[name])), None)

    @cached_property
    def _codes(self) -> dict[str, tuple[NDArray[np.int64], int]]:
        """Of every column: each row's value as a number from 0, and how many values there are."""
        found = {}
        for name, cells in self.columns.items():
            places: dict[str, int] = {}
            found[name] = (np.array([places.setdefault(cell, len(places)) for cell in cells], np.int64), len(places))
        return found

    def counts(self) -> set[float]:
        """Every number that a report may state as a count: rows, groups, distinct values, sums of whole numbers."""
        found: set[float] = {float(self.rows)}
        for name, (codes, distinct) in self._codes.items():
            found.add(float(distinct))
            if distinct <= _MAX_GROUPS:
                found |= {float(count) for count in np.bincount(codes, minlength=distinct)}
            values = self.numeric.get(name)
            if values is not None:
                finite = values[np.isfinite(values)]
                found |= {float(finite.size), float(np.count_nonzero(finite))}
                if np.array_equal(finite, np.round(finite)):
                    found.add(float(finite.sum()))
        return found

    def _members(self, column: str, labels: list[str]) -> list[NDArray[np.intp]]:
        """Row numbers per condition."""
        name = self._column_with(column, labels)
        assert name is not None
        cells = self.columns[name]
        where: dict[str, list[int]] = {label: [] for label in labels}
        for row, cell in enumerate(cells):
            if cell in where:
                where[cell].append(row)
        return [np.array(where[label], np.intp) for label in labels]

    def group_counts(self, column: str, labels: list[str]) -> list[float]:
        """Rows per condition."""
        return [float(rows.size) for rows in self._members(column, labels)]

    def group_means(self, column: str, labels: list[str], numeric: str) -> list[float]:
        """Mean per condition."""
        return [_mean(self.numeric[numeric][rows]) for rows in self._members(column, labels)]

    def ways(self, column: str, labels: list[str]) -> dict[str, NDArray[np.float64]]:
        """Every way in which people sum up the table by condition.

        Returns
        -------
        dict of str to (ways, conditions) float64
            Per column of numbers; under the empty name counts of rows and of distinct values.
        """
        key = (column, *labels)
        if key not in self._known_ways:
            self._known_ways[key] = self._all_ways(column, labels)
        return self._known_ways[key]

    def _all_ways(self, column: str, labels: list[str]) -> dict[str, NDArray[np.float64]]:
        members = self._members(column, labels)
        distinct = [[float(np.unique(codes[rows]).size) for rows in members] for codes, _ in self._codes.values()]
        found = {"": np.array([[float(rows.size) for rows in members], *distinct])}
        for name, values in self.numeric.items():
            per_condition = [_summaries(values[rows]) + self._inner(name, rows) for rows in members]
            if per_condition:
                found[name] = np.array(per_condition).T
        return found

    def _inner(self, numeric: str, rows: NDArray[np.intp]) -> list[float]:
        """Mean and median over the means of images, wells or cells within a condition; also of flagged rows alone."""
        values = self.numeric[numeric][rows]
        usable = np.isfinite(values)
        found = []
        for name, (codes, distinct) in self._codes.items():
            if name == numeric:
                continue
            if distinct <= _MAX_GROUPS and (name not in self.numeric or _ID.search(name)):
                inner = codes[rows][usable]
                sizes = np.bincount(inner, minlength=distinct)
                sums = np.bincount(inner, weights=values[usable], minlength=distinct)
                means = sums[sizes > 0] / sizes[sizes > 0]
                found += [float(means.mean()), float(np.median(means))] if means.size else [np.nan, np.nan]
            if distinct == 2:  # a flag: reports often leave one kind of row out
                for kind in (0, 1):
                    part = values[usable & (codes[rows] == kind)]
                    found += [_mean(part), float(np.median(part)) if part.size else np.nan, float(part.size)]
        return found

    def averages(self, numeric: str) -> list[float]:
        """Mean and median of a column, of its positive values, and of its parts by condition or image."""
        every = np.arange(self.rows)
        values = self.numeric[numeric]
        found = [*_summaries(values)[:2], *_summaries(values)[8:], *self._inner(numeric, every)]
        finite = np.isfinite(values)
        for name, (codes, distinct) in self._codes.items():
            if name != numeric and 1 < distinct <= _MAX_GROUPS:
                sizes = np.bincount(codes[finite], minlength=distinct)
                sums = np.bincount(codes[finite], weights=values[finite], minlength=distinct)
                found += list(sums[sizes > 0] / sizes[sizes > 0])
        return [float(value) for value in found if np.isfinite(value)]


def _summaries(values: NDArray[np.float64]) -> list[float]:
    """Mean, median, sum, extremes, share and number above 0, spread; mean and median of what is above 0."""
    part = values[np.isfinite(values)]
    if not part.size:
        return [float("nan")] * 10
    above = part[part > 0]
    return [
        float(part.mean()),
        float(np.median(part)),
        float(part.sum()),
        float(part.max()),
        float(part.min()),
        float((part > 0).mean()),
        float(above.size),
        float(part.std(ddof=1)) if part.size > 1 else float("nan"),
        float(above.mean()) if above.size else float("nan"),
        float(np.median(above)) if above.size else float("nan"),
    ]


def _mean(values: NDArray[np.float64]) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else float("nan")


def _number(cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        return float("nan")
    return value if np.isfinite(value) else float("nan")


def read_group_table(name: str, handle: BinaryIO) -> GroupTable:
    """Read a delimited table with whatever columns it has.

    Raises
    ------
    Refusal
        It is no text, has no header, or is too large.
    """
    text = read_text(handle)
    lines = text.splitlines(keepends=True)
    head = next((line for line in lines if line.strip()), "")
    separator = max(",;\t", key=head.count)
    try:
        rows = [row for row in csv.reader(lines, delimiter=separator) if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise Refusal("not_a_table", str(error)) from error
    if not rows or len(rows[0]) > _MAX_COLUMNS or len(rows) > _MAX_ROWS:
        raise Refusal("not_a_table", "has no header, or is too large")
    header = [cell.strip() or f"column {index}" for index, cell in enumerate(rows[0], start=1)]
    columns: dict[str, list[str]] = {title: [] for title in header}
    if len(columns) != len(header):
        raise Refusal("duplicate_columns", "has the same column twice")
    for row in rows[1:]:
        for index, title in enumerate(header):
            columns[title].append(row[index].strip() if index < len(row) else "")
    return GroupTable(name, columns)
