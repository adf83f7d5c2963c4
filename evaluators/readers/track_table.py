"""Read lineages in the form of the Cell Tracking Challenge: four whole numbers per line, no header."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from evaluators.problems import Refusal, shown
from evaluators.readers.text import read_text

MAX_ROWS = 500_000  # the largest sequence has 280,000 objects
MAX_VALUE = 2**31 - 1
_HEAD_BYTES = 64 << 10
_WHOLE = re.compile(r"([+-]?[0-9]{1,12})(?:\.0*)?")


@dataclass(frozen=True)
class TrackTable:
    """Rows of a lineage file that hold four whole numbers.

    Attributes
    ----------
    rows : (n, 4) int64
        Track id, first frame, last frame, parent id, in the order of the file and otherwise unchecked.
    invalid : list of (int, str)
        Line number and content of the first lines that are not such a row.
    invalid_count : int
        All of them. A line of words before the first row is a header and not counted.
    header : str or None
        That header.
    """

    rows: NDArray[np.int64]
    invalid: list[tuple[int, str]] = field(default_factory=list)
    invalid_count: int = 0
    header: str | None = None


def check_track_table(handle: BinaryIO) -> None:
    """Check from its first lines that a text file is a lineage.

    Raises
    ------
    Refusal
        As for :func:`read_track_table`.
    """
    _parsed(read_text(handle, _HEAD_BYTES, head=True))


def read_track_table(handle: BinaryIO) -> TrackTable:
    """Read a lineage; blanks, tabs, commas and semicolons separate, empty lines and comments (``#``) are skipped.

    Raises
    ------
    Refusal
        ``empty_file``, ``too_large``, ``not_text``; ``not_a_lineage`` where not even half of the lines are four whole
        numbers.
    """
    return _parsed(read_text(handle))


def _parsed(text: str) -> TrackTable:
    rows: list[tuple[int, ...]] = []
    invalid: list[tuple[int, str]] = []
    count, header = 0, None
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if len(rows) + count == MAX_ROWS:
            raise Refusal("too_large", f"has more than {MAX_ROWS} lines")
        row = _row(stripped)
        if row is not None:
            rows.append(row)
        elif not rows and not count and header is None and not any(mark.isdigit() for mark in stripped):
            header = shown(stripped, 60)
        else:
            count += 1
            if len(invalid) < 5:
                invalid.append((number, shown(stripped, 60)))
    if not rows or len(rows) < count:
        example = f"; line {invalid[0][0]} is {invalid[0][1]!r}" if invalid else ""
        raise Refusal("not_a_lineage", f"expected four whole numbers per line, found {len(rows)} such lines{example}")
    return TrackTable(np.array(rows, np.int64), invalid, count, header)


def _row(line: str) -> tuple[int, ...] | None:
    cells = line[:200].replace(",", " ").replace(";", " ").split()
    if len(cells) != 4 or len(line) > 200:
        return None
    values = []
    for cell in cells:
        match = _WHOLE.fullmatch(cell)
        if match is None or abs(int(match[1])) > MAX_VALUE:
            return None
        values.append(int(match[1]))
    return tuple(values)
