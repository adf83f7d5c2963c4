"""Read lists of single-molecule localisations as people's programs write them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from evaluators.problems import Refusal, shown
from evaluators.readers.text import read_text

MAX_ROWS = 500_000
_NOT_FINITE = re.compile(r"(?i)[+-]?(nan|na|n/a|none|null|inf|infinity)?")
_COLUMNS = {
    "frame": {"frame", "frames", "t", "frameindex", "framenumber", "frameid"},
    "x": {"x", "xpos", "xposition", "xcoordinate"},
    "y": {"y", "ypos", "yposition", "ycoordinate"},
    "intensity": {"intensity", "photons", "integratedintensity", "signal", "sum", "photoncount"},
}
_LENGTHS = {"nm", "um", "µm", "μm", "nanometer", "nanometers", "micron", "microns", "micrometer", "mm"}


@dataclass(frozen=True)
class LocalizationList:
    """The rows of a list.

    Attributes
    ----------
    frames : (n,) int64
        0 for rows that are no localisation.
    positions : (n, 2) float64
        x and y; NaN for rows that are no localisation.
    intensities : (n,) float64
        NaN where absent, or no finite number.
    invalid : list of (int, str)
        Line number and content of the first rows that are no localisation.
    """

    frames: NDArray[np.int64]
    positions: NDArray[np.float64]
    intensities: NDArray[np.float64]
    invalid: list[tuple[int, str]]


def read_localizations(handle: BinaryIO) -> LocalizationList:
    """Read frame, x, y and intensity of each row.

    The separator is one for the whole file: tab, semicolon, comma or blanks. With a header the columns are found by
    name, without one they are the first four, in this order. Lines that begin with ``#`` are comments, except that the
    first one may be the header. A decimal comma is understood where the separator is another character.

    A row with too few cells, a position that is not finite, or a frame that is not a whole number of at least 0 is no
    localisation; it is kept as such, so that it can be counted.

    Raises
    ------
    Refusal
        ``empty_file``, ``too_large``, ``not_text``; ``missing_columns`` where a header lacks one of frame, x and y;
        ``duplicate_columns``; ``ambiguous_columns`` without header and with other than three or four columns;
        ``wrong_unit`` where a header gives lengths that are not pixels; ``not_a_table`` where no row is a localisation.
    """
    lines = _lines(read_text(handle))
    separator = _separator(lines)
    first = _cells(re.sub(r"\s+(?=[\[(])", "", lines[0][1].lstrip("#")), separator)  # "x [px]" is one name
    header = not all(_is_number(cell, separator) for cell in first)
    body = [(number, line) for number, line in lines[int(header) :] if not line.startswith("#")]
    if header:
        places = _named(first)
        if body and (width := len(_cells(body[0][1], separator))) > len(first):
            raise Refusal("ambiguous_columns", f"has a header of {len(first)} names and rows of {width} cells")
    else:
        width = len(first)
        if width not in (3, 4):
            raise Refusal("ambiguous_columns", f"has no header and {width} columns; expected frame, x, y, intensity")
        places = {"frame": 0, "x": 1, "y": 2, **({"intensity": 3} if width == 4 else {})}
    if len(body) > MAX_ROWS:
        raise Refusal("too_large", f"has more than {MAX_ROWS} rows")
    values = np.full((len(body), 4), np.nan)
    wanted = [(column, places[name]) for column, name in enumerate(_COLUMNS) if name in places]
    for row, (_, line) in enumerate(body):
        cells = line.split(separator) if separator else line.split()
        for column, place in wanted:
            if place < len(cells):
                values[row, column] = _number(cells[place], separator)
    if len(body) and np.isnan(values).all():
        raise Refusal("not_a_table", f"no row holds numbers; line {body[0][0]} is {shown(body[0][1], 60)!r}")
    return _localizations(values, body)


def _localizations(values: NDArray[np.float64], body: Sequence[tuple[int, str]]) -> LocalizationList:
    values = np.where(np.isfinite(values), values, np.nan)
    frames = values[:, 0]
    with np.errstate(invalid="ignore"):
        valid = np.isfinite(values[:, :3]).all(axis=1) & (frames >= 0) & (frames < 2**31) & (frames == np.floor(frames))
    return LocalizationList(
        frames=np.where(valid, frames, 0.0).astype(np.int64),
        positions=np.where(valid[:, None], values[:, 1:3], np.nan),
        intensities=np.where(valid, values[:, 3], np.nan),
        invalid=[(body[row][0], shown(body[row][1], 60)) for row in np.flatnonzero(~valid)[:10]],
    )


def _lines(text: str) -> list[tuple[int, str]]:
    """Return the lines that count, with their numbers; a leading comment only where it can be the header."""
    lines = [(number, line.strip("\r\n")) for number, line in enumerate(text.splitlines(), start=1)]
    lines = [(number, line) for number, line in lines if line.strip()]
    if not lines:
        raise Refusal("empty_file", "has no rows")
    comments = [entry for entry in lines if entry[1].startswith("#")]
    rows = [entry for entry in lines if not entry[1].startswith("#")]
    if comments and {"x", "y"} <= {_name(cell)[0] for cell in re.split(r"[\s,;]+", comments[-1][1].lstrip("#"))}:
        rows.insert(0, comments[-1])
    if not rows:
        raise Refusal("empty_file", "has comments and no rows")
    return rows


def _separator(lines: Sequence[tuple[int, str]]) -> str:
    """Return what separates cells, ``""`` for blanks, judged by the last of the first lines."""
    sample = [line for _, line in lines[:3]]
    if any("\t" in line.strip() for line in sample):
        return "\t"
    if all(";" in line for line in sample):
        return ";"
    row = sample[-1].split(",")
    if len(row) >= 3 and all("," in line for line in sample) and not any(len(cell.split()) > 1 for cell in row):
        return ","
    return ""


def _cells(line: str, separator: str) -> list[str]:
    cells = line.split(separator) if separator else line.split()
    return [cell.strip().strip("\"'").strip() for cell in cells]


def _named(header: Sequence[str]) -> dict[str, int]:
    """Find the columns by their names; refuse lengths in anything but pixels."""
    places: dict[str, int] = {}
    for place, cell in enumerate(header):
        name, unit = _name(cell)
        for column, names in _COLUMNS.items():
            if name not in names:
                continue
            if column in places:
                raise Refusal("duplicate_columns", f"has column {column!r} more than once")
            if column in "xy" and unit in _LENGTHS:
                raise Refusal("wrong_unit", f"gives {column} in {unit}; expected pixels")
            places[column] = place
    if lacking := [name for name in ("frame", "x", "y") if name not in places]:
        found = shown(" ".join(header), 80)
        raise Refusal("missing_columns", f"its header names no column {', '.join(lacking)}; it is {found!r}")
    return places


def _name(cell: str) -> tuple[str, str]:
    """Split the name of a column into name and unit, both in plain lower case: ``x [nm]``, ``x_nm``, ``x (px)``."""
    words = [word for word in re.split(r"[\s_\[\]()\"'.,:/-]+", cell.lower().strip().lstrip("#")) if word]
    units = [word for word in words if word in _LENGTHS]
    plain = [
        word for word in words if word not in _LENGTHS | {"px", "pixel", "pixels", "photon", "adu", "au", "a", "u"}
    ]
    return "".join(plain), units[0] if units else ""


def _is_number(cell: str, separator: str) -> bool:
    return not np.isnan(_number(cell, separator)) or bool(_NOT_FINITE.fullmatch(cell))


def _number(cell: str, separator: str) -> float:
    """Return a cell as a number, NaN where it is none."""
    text = cell.strip().strip("\"'")
    if separator != "," and "." not in text:
        text = text.replace(",", ".", 1)
    try:
        return float(text) if "_" not in text else float("nan")
    except ValueError:
        return float("nan")
