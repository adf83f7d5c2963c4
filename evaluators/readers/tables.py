"""Read delimited tables of unknown origin: separators, decimal commas and byte order marks as people's programs write
them, within bounds, with every row that is not a row named.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from evaluators.problems import Refusal, shown
from evaluators.readers.text import read_text

MAX_ROWS = 200_000
MAX_COLUMNS = 1_000
_HEAD_BYTES = 64 << 10
_SEPARATORS = (",", ";", "\t")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_NOT_FINITE = {"", "nan", "na", "n/a", "none", "null", "inf", "infinity"}


@dataclass(frozen=True)
class NumberTable:
    """Numeric columns of a table.

    Attributes
    ----------
    values : (rows, columns) float64
        In the order of the file. A cell that is missing, empty, NaN, infinite or too large for a float is NaN.
    invalid : list of (int, str)
        Line number and content of the first rows with such a cell.
    """

    values: NDArray[np.float64]
    invalid: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True)
class TextTable:
    """Columns of a table as text.

    Attributes
    ----------
    rows : list of dict
        One per row, the wanted name of a column to its cell without surrounding blanks; a cell that is missing is
        empty. Optional columns that the table lacks have no entry.
    lines : list of int
        Line number of each row.
    separator : str
        What separates cells.
    """

    rows: list[dict[str, str]]
    lines: list[int]
    separator: str

    def number(self, row: int, column: str) -> float:
        """Return a cell as a number; NaN where it is empty, absent, text, or not finite."""
        try:
            value = _number(self.rows[row].get(column, ""), self.separator, self.lines[row])
        except Refusal:
            return float("nan")
        return value if np.isfinite(value) else float("nan")


def check_columns(handle: BinaryIO, columns: Sequence[str]) -> None:
    """Check from its first lines that a table has the columns.

    Raises
    ------
    Refusal
        As for :func:`read_numbers`.
    """
    _layout(read_text(handle, _HEAD_BYTES, head=True), columns)


def column_names(handle: BinaryIO, columns: Sequence[str]) -> list[str]:
    """Return all names in the header of a table that has the columns, as they are written, blanks around them removed.

    Raises
    ------
    Refusal
        As for :func:`check_columns`.
    """
    text = read_text(handle, _HEAD_BYTES, head=True)
    separator, header_line, _ = _layout(text, columns)
    return _header(text, separator, header_line)


def read_numbers(handle: BinaryIO, columns: Sequence[str]) -> NumberTable:
    """Read columns of numbers by name.

    The separator (comma, semicolon or tab) is the one that splits the header into cells with the wanted names. Upper
    and lower case and blanks around a name do not matter, further columns are allowed, empty lines are skipped. A
    decimal comma is understood where the separator is another one.

    Raises
    ------
    Refusal
        ``empty_file``, ``too_large``, ``not_text``; ``missing_columns``; ``duplicate_columns`` where a wanted name
        occurs twice; ``not_a_table`` for what the csv format does not allow; ``not_numeric`` where a cell holds text,
        such as a unit.
    """
    text = read_text(handle)
    separator, header_line, places = _layout(text, columns)
    values: list[list[float]] = []
    invalid: list[tuple[int, str]] = []
    reader = csv.reader(text.splitlines(keepends=True), delimiter=separator)
    try:
        for row in reader:
            if reader.line_num <= header_line or not any(cell.strip() for cell in row):
                continue
            if len(values) == MAX_ROWS:
                raise Refusal("too_large", f"has more than {MAX_ROWS} rows")
            numbers = [_number(row[place] if place < len(row) else "", separator, reader.line_num) for place in places]
            values.append(numbers)
            if len(invalid) < 10 and not all(map(math.isfinite, numbers)):
                invalid.append((reader.line_num, shown(separator.join(row), 60)))
    except csv.Error as error:
        raise Refusal("not_a_table", f"line {reader.line_num}: {error}") from error
    array = np.array(values, float).reshape(len(values), len(columns))
    return NumberTable(np.where(np.isfinite(array), array, np.nan), invalid)


def read_texts(handle: BinaryIO, columns: Sequence[str], optional: Sequence[str] = ()) -> TextTable:
    """Read columns by name as text, with the same kindness to separators and names as :func:`read_numbers`.

    Raises
    ------
    Refusal
        ``empty_file``, ``too_large``, ``not_text``; ``missing_columns``; ``duplicate_columns``; ``not_a_table``.
    """
    text = read_text(handle)
    separator, header_line, places = _layout(text, columns)
    wanted = dict(zip(columns, places, strict=True))
    names = [name.lower() for name in _header(text, separator, header_line)]
    for column in optional:
        key = column.strip().lower()
        if names.count(key) == 1:  # lacking, or there twice: as if it were not there
            wanted[column] = names.index(key)
    rows: list[dict[str, str]] = []
    lines: list[int] = []
    reader = csv.reader(text.splitlines(keepends=True), delimiter=separator)
    try:
        for row in reader:
            if reader.line_num <= header_line or not any(cell.strip() for cell in row):
                continue
            if len(rows) == MAX_ROWS:
                raise Refusal("too_large", f"has more than {MAX_ROWS} rows")
            rows.append({name: row[place].strip() if place < len(row) else "" for name, place in wanted.items()})
            lines.append(reader.line_num)
    except csv.Error as error:
        raise Refusal("not_a_table", f"line {reader.line_num}: {error}") from error
    return TextTable(rows, lines, separator)


def _header(text: str, separator: str, header_line: int) -> list[str]:
    line = text.splitlines()[header_line - 1]
    return [name.strip() for name in next(csv.reader([line], delimiter=separator))]


def _layout(text: str, columns: Sequence[str]) -> tuple[str, int, list[int]]:
    """Return the separator, the line of the header and the place of each wanted column."""
    lines = text.splitlines()
    header_line = next((number for number, line in enumerate(lines, start=1) if line.strip()), 0)
    if not header_line:
        raise Refusal("empty_file", "has no header")
    widest = max(line.count(separator) for line in lines for separator in _SEPARATORS)
    if widest >= MAX_COLUMNS:
        raise Refusal("too_large", f"has more than {MAX_COLUMNS} columns")
    line = lines[header_line - 1]
    wanted = [column.strip().lower() for column in columns]
    names: list[str] = []
    for separator in _SEPARATORS:
        try:
            names = [name.strip().lower() for name in next(csv.reader([line], delimiter=separator))]
        except (csv.Error, StopIteration):
            continue
        if set(wanted) <= set(names):
            if repeated := [name for name in wanted if names.count(name) > 1]:
                raise Refusal("duplicate_columns", f"has column {repeated[0]!r} more than once")
            return separator, header_line, [names.index(name) for name in wanted]
    found = shown(line, 80)
    raise Refusal("missing_columns", f"expected a header with {', '.join(columns)}; the first line is {found!r}")


def _number(cell: str, separator: str, line: int) -> float:
    text = cell.strip()
    if separator != "," and "." not in text:
        text = text.replace(",", ".", 1)
    if _NUMBER.fullmatch(text):
        return float(text)
    if text.lstrip("+-").lower() in _NOT_FINITE:
        return float("nan")
    raise Refusal("not_numeric", f"line {line}: {shown(cell, 40)!r} is not a number")
