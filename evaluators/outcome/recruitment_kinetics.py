"""Kinetics after cell division: one table per cell with the onset, and curves of both daughters.

*Outcome* (published): half for the onset (1 - mean error / cap, each error at most the cap) and half for the curve of
the inner core (Pearson's correlation, at least 0, mean over cells). A curve counts for the share of the reference's
points that it has. Only cells whose movies are in the input count; a cell without a table has the largest error and no
curve.

*Strict*: harmonic mean of the onset (smaller cap, above the best single frame for all), the inner core and the non-core
(concordance of how the daughters' curves, each in units of its own end, depart from their common course) and the
volumes (the same in their own unit). Any rising curve correlates with any other; telling
daughters and cells apart takes measurement.

Daughters are compared under the better of both assignments (outcome: by the inner core; strict: by all series), point
by point in time. A blank cell is a missing point and
shifts nothing. In the strict score a cell counts only with both daughters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluators.metrics.agreement import pearson
from evaluators.metrics.kinetics import (
    at_times,
    blind_onset_score,
    onset_score,
    own_course_concordance,
    own_scale,
)
from evaluators.metrics.points import above_chance
from evaluators.model import Deliverable, OutcomeScore, TruthError
from evaluators.outcome.aggregate import harmonic_mean
from evaluators.outcome.files import deliverable_path
from evaluators.outcome.parameters import RecruitmentKinetics
from evaluators.problems import Problems, Refusal
from evaluators.readers.workbooks import Cell, Sheet, read_workbook
from evaluators.submission import Submission, stem_of
from evaluators.truth import Truth

VERSION = "1"

SERIES = ("volume", "surface", "core", "noncore")
_MAX_WORKBOOKS = 200
_FRAME_NAMES = {"timepoint", "frame", "frameindex", "framenumber", "timepointindex", "tidx", "frameno"}
_SERIES_NAMES = {
    "volume": ("volumenucleus",),
    "surface": ("surfaceareanucleus", "surfacenucleus"),
    "core": ("normalizedtotalintensityinnercore", "normalizedtotalinnercore"),
    "noncore": ("normalizedtotalintensitynoncore", "normalizedtotalnoncore"),
}
_UNITS = ("um3", "um2", "µm3", "µm2", "μm3", "μm2", "µm³", "µm²", "μm³", "μm²")

Values = NDArray[np.float64]
Key = tuple[str | None, int | None]


@dataclass(frozen=True)
class Kinetics:
    """The table of one cell.

    Attributes
    ----------
    where
        File and sheet, for problems.
    times
        Minutes after onset of each row.
    frames
        Number of the frame, NaN where unknown.
    curves
        By series and daughter (0, 1); daughters or series that are missing have no entry.
    """

    where: str
    times: Values
    frames: Values
    curves: dict[tuple[str, int], Values]

    def onset(self, within: float) -> float:
        """Return the frame of the row nearest to time 0; NaN where none is near."""
        distance = np.where(np.isfinite(self.times) & np.isfinite(self.frames), np.abs(self.times), np.inf)
        if not len(distance) or distance.min() > within:
            return float("nan")
        return float(self.frames[int(np.argmin(distance))])


def score(submission: Submission, truth: Truth, parameters: RecruitmentKinetics) -> OutcomeScore:
    """Score a submission.

    Raises
    ------
    TruthError
        The reference workbook is missing or cannot be read, or fits none of the movies.
    """
    reference = _reference(truth, parameters)
    found = _submitted(submission, parameters, reference)
    cells = [_Cell(name, reference[name], found.get(name), parameters) for name in reference]
    if found:
        _name_conventions(submission, parameters, cells)
    return _result(submission, parameters, cells)


def replay(truth: Truth, deliverables: Sequence[Deliverable], parameters: RecruitmentKinetics, folder: Path) -> None:
    """Write the reference as a submission: one workbook per cell."""
    import openpyxl

    deliverable = next(one for one in deliverables if one.id == parameters.tables)
    reference = _reference(truth, parameters)
    for name, rows in _sheets(_reference_path(truth)).items():
        if name in reference:
            book = openpyxl.Workbook()
            sheet = book.active
            sheet.title = name[:31]
            for row in rows:
                sheet.append(list(row))
            book.save(deliverable_path(folder, deliverable, f"{name}.xlsx"))


# --- tables -----------------------------------------------------------------------------------------------------------


def cell_key(*names: str) -> Key:
    """Return date (six digits) and number of a cell, each from the first name that has it.

    Examples
    --------
    >>> cell_key("160701-cell3"), cell_key("Sheet1", "20160701-Nup107-cell-10-t6")
    (('160701', 3), ('160701', 10))
    """
    date, number = None, None
    for name in names:
        if date is None and (found := re.search(r"(?<!\d)(?:20)?(\d{6})(?!\d)", name)):
            date = found[1]
        if number is None and (found := re.search(r"(?<![a-z])c(?:ell)?[\s_-]*0*(\d{1,3})(?!\d)", name.lower())):
            number = int(found[1])
    return date, number


def _header(cell: Cell) -> str:
    return re.sub(r"[^a-z0-9µμ²³]", "", str(cell or "").lower()).replace("normalised", "normalized")


def read_kinetics(where: str, rows: Sheet) -> Kinetics:
    """Read the table of a sheet.

    Raises
    ------
    Refusal
        ``missing_columns`` where it has no time after anaphase or none of the measurements.
    """
    start = next((k for k, row in enumerate(rows) if sum(isinstance(cell, str) for cell in row) > 1), None)
    if start is None:
        raise Refusal("missing_columns", "has no header")
    headers = [_header(cell) for cell in rows[start]]
    time = _first(headers, lambda h: h.startswith("timeafteranaphase")) or _first(
        headers, lambda h: "time" in h and "anaphase" in h and "frame" not in h
    )
    if time is None:
        raise Refusal("missing_columns", "has no column 'Time after anaphase onset (min)'")
    frame = _first(headers, lambda h: h in _FRAME_NAMES) or _first(
        headers, lambda h: "timepoint" in h or h.startswith("frame")
    )
    body = rows[start + 1 :]

    def column(place: int) -> Values:
        return np.array([_number(row[place]) if place < len(row) else np.nan for row in body], float)

    curves: dict[tuple[str, int], Values] = {}
    for series, names in _SERIES_NAMES.items():
        for daughter in (0, 1):
            wanted = {f"{name}{daughter + 1}{unit}" for name in names for unit in ("", *_UNITS)}
            place = _first(headers, lambda h, wanted=wanted: h in wanted)
            if place is not None:
                curves[series, daughter] = column(place[0])
    if not curves:
        raise Refusal("missing_columns", "has none of the measured columns, such as Volume_Nucleus_1 (um3)")
    frames = np.full(len(body), np.nan) if frame is None else column(frame[0])
    return Kinetics(where, column(time[0]), frames, curves)


def _first(headers: Sequence[str], fits: object) -> tuple[int] | None:
    """Return the place of the first header that fits, in a tuple, so that place 0 is true."""
    assert callable(fits)
    return next(((place,) for place, header in enumerate(headers) if fits(header)), None)


def _number(cell: Cell) -> float:
    if isinstance(cell, bool) or cell is None:
        return float("nan")
    if isinstance(cell, str):
        try:
            cell = float(cell.strip().replace(",", "."))
        except ValueError:
            return float("nan")
    value = float(cell)
    return value if np.isfinite(value) and abs(value) < 1e100 else float("nan")


def _reference_path(truth: Truth) -> Path:
    paths = [path for path in sorted(truth.folder.rglob("*.xlsx")) if path.name[0] not in ".~"]
    if len(paths) != 1:
        raise TruthError(f"{truth.folder}: expected one workbook, found {len(paths)}")
    return paths[0]


def _sheets(path: Path) -> dict[str, Sheet]:
    try:
        with path.open("rb") as handle:
            return read_workbook(handle)
    except (Refusal, OSError) as error:
        raise TruthError(f"{path}: {error}") from error


def _reference(truth: Truth, parameters: RecruitmentKinetics) -> dict[str, Kinetics]:
    """Return the reference of each cell that has a movie in the input; of all cells where no input is at hand."""
    path = _reference_path(truth)
    tables: dict[str, Kinetics] = {}
    keys: dict[Key, str] = {}
    for name, rows in _sheets(path).items():
        key = cell_key(name)
        if key[1] is None:
            continue  # a summary
        if key in keys:
            raise TruthError(f"{path}: sheets {keys[key]} and {name} are the same cell")
        try:
            table = read_kinetics(f"{path.name}, sheet {name}", rows)
        except Refusal as refusal:
            raise TruthError(f"{path}: sheet {name} {refusal.message}") from refusal
        if not np.isfinite(table.onset(parameters.onset_minutes)) or ("core", 0) not in table.curves:
            raise TruthError(f"{path}: sheet {name} has no onset or no curve of the inner core")
        tables[name], keys[key] = table, name
    if truth.input_dir is not None:
        movies = [stem_of(movie.name) for movie in sorted(truth.input_dir.rglob("*.tif*")) if movie.name[0] != "."]
        given = {cell_key(movie) for movie in movies}
        tables = {name: table for name, table in tables.items() if cell_key(name) in given}
    if not tables:
        raise TruthError(f"{path}: no sheet is a cell of the input")
    return tables


def _submitted(
    submission: Submission, parameters: RecruitmentKinetics, reference: dict[str, Kinetics]
) -> dict[str, Kinetics]:
    """Return the submitted table of each cell."""
    problems, where = submission.problems, parameters.tables
    candidates = submission.candidates(where)
    if not candidates:
        submission.missing(where)
        return {}
    found: dict[str, list[tuple[int, Kinetics]]] = {}
    for file in candidates[:_MAX_WORKBOOKS]:
        if file.name.startswith("~$"):
            continue
        try:
            with file.open() as handle:
                sheets = read_workbook(handle)
        except Refusal as refusal:
            problems.refused(file.path, refusal)
            continue
        stem_names_cell = cell_key(file.stem)[1] is not None
        readable: list[tuple[str, Kinetics]] = []
        for name, rows in sheets.items():
            try:
                readable.append((name, read_kinetics(f"{file.path}, sheet {name}", rows)))
            except Refusal as refusal:
                if len(sheets) == 1:
                    problems.refused(f"{file.path}, sheet {name}", refusal)
        if not readable and len(sheets) > 1:
            problems.add("missing_columns", file.path, "no sheet has time after anaphase onset and measurements")
        for name, table in readable:
            # A stem that names a cell speaks for the file; otherwise the sheet does.
            names = (file.stem, name) if stem_names_cell and len(readable) == 1 else (name, file.stem)
            cell = _match(cell_key(*names), reference)
            if cell is None:
                problems.add("unknown_cell", table.where, "is none of the movies by its name; it does not count")
            else:
                found.setdefault(cell, []).append((0 if stem_names_cell else 1, table))
    return _one_each(problems, found)


def _match(key: Key, reference: dict[str, Kinetics]) -> str | None:
    """Return the cell of the same date and number, or the only cell of that number where the key has no date."""
    date, number = key
    fitting = [name for name in reference if cell_key(name)[1] == number and date in (None, cell_key(name)[0])]
    return fitting[0] if number is not None and len(fitting) == 1 else None


def _one_each(problems: Problems, found: dict[str, list[tuple[int, Kinetics]]]) -> dict[str, Kinetics]:
    """Keep one table per cell: that of a file named after the cell, before that of a sheet in a common file."""
    chosen: dict[str, Kinetics] = {}
    for cell, tables in found.items():
        best = min(rank for rank, _ in tables)
        equal = [table for rank, table in tables if rank == best]
        if all(_same(table, equal[0]) for table in equal[1:]):
            chosen[cell] = equal[0]
        else:
            names = "; ".join(table.where for table in equal[:3])
            problems.add("ambiguous_files", cell, f"{names} differ and are the same cell; none is scored")
    return chosen


def _same(one: Kinetics, other: Kinetics) -> bool:
    parts = [(one.times, other.times), (one.frames, other.frames)]
    if one.curves.keys() != other.curves.keys():
        return False
    parts += [(one.curves[key], other.curves[key]) for key in one.curves]
    return all(np.array_equal(a, b, equal_nan=True) for a, b in parts)


# --- comparison -------------------------------------------------------------------------------------------------------


class _Cell:
    """One cell: reference and submission, with daughters under the better assignment."""

    def __init__(self, name: str, reference: Kinetics, found: Kinetics | None, parameters: RecruitmentKinetics) -> None:
        self.name = name
        self.reference = reference
        self.found = found
        self.parameters = parameters
        self.true_onset = reference.onset(parameters.onset_minutes)
        self.onset = float("nan") if found is None else found.onset(parameters.onset_minutes)
        straight, crossed = self._correlation(swap=False), self._correlation(swap=True)
        self.swap = crossed[0] > straight[0]
        self.correlation, self.coverage, self.r = crossed if self.swap else straight

    @property
    def error(self) -> float:
        """Signed error of the onset in frames; NaN without one."""
        return self.onset - self.true_onset

    def true_curve(self, series: str, daughter: int) -> tuple[Values, Values]:
        """Return times and values of the reference where it has values."""
        values = self.reference.curves.get((series, daughter), np.zeros(0))
        times = self.reference.times[: len(values)]
        known = np.isfinite(values) & np.isfinite(times)
        return times[known], values[known]

    def curve(self, series: str, daughter: int, *, swap: bool | None = None) -> Values:
        """Return the submitted values at the reference's times; NaN where there are none."""
        times, _ = self.true_curve(series, daughter)
        other = daughter if not (self.swap if swap is None else swap) else 1 - daughter
        if self.found is None or (series, other) not in self.found.curves:
            return np.full(len(times), np.nan)
        return at_times(self.found.times, times, self.found.curves[series, other], self.parameters.pairing_minutes)

    @cached_property
    def strict_swap(self) -> bool:
        """Whether all series together speak for the other assignment of daughters: by the squared errors."""

        def error(swap: bool) -> float:
            total = 0.0
            for series in ("core", "noncore", "volume"):
                for daughter in (0, 1):
                    true, found = self.true_curve(series, daughter)[1], self.curve(series, daughter, swap=swap)
                    if series != "volume":
                        true, found = own_scale(true), own_scale(found)
                    if np.isfinite(found).any():
                        total += float(np.nanmean((true - found) ** 2) / max(float(np.var(true)), 1e-12))
                    else:
                        total += 1e6 * len(true)
            return total

        return error(True) < error(False)

    def paired_curve(self, series: str, daughter: int) -> Values:
        """Return a curve for the strict score: a cell of which one daughter was left out altogether has none."""
        curves = [self.curve(series, number, swap=self.strict_swap) for number in (0, 1)]
        if any(len(curve) and not np.isfinite(curve).any() for curve in curves):
            return np.full(len(curves[daughter]), np.nan)
        return curves[daughter]

    def _correlation(self, *, swap: bool) -> tuple[float, float, float | None]:
        """Return the published curve score, the share of points, and Pearson's correlation of the inner core."""
        true = np.concatenate([self.true_curve("core", daughter)[1] for daughter in (0, 1)])
        found = np.concatenate([self.curve("core", daughter, swap=swap) for daughter in (0, 1)])
        coverage = float(np.isfinite(found).mean()) if len(found) else 0.0
        r = pearson(true, found)
        return max(0.0, r or 0.0) * coverage, coverage, r


@dataclass
class _Strict:
    """The parts of the strict score over all cells."""

    cells: Sequence[_Cell]
    parameters: RecruitmentKinetics

    @cached_property
    def onset(self) -> float:
        cap = self.parameters.strict_frame_cap
        chance = blind_onset_score([cell.true_onset for cell in self.cells], cap)
        return above_chance(
            onset_score([cell.error for cell in self.cells], cap), chance if len(self.cells) > 1 else 0.0
        )

    def curves(self, series: str, *, scaled: bool) -> float | None:
        """Agreement of how daughters depart from their common course; ``None`` where the reference lacks the series."""
        daughters = [
            (cell, daughter) for cell in self.cells for daughter in (0, 1) if len(cell.true_curve(series, daughter)[1])
        ]
        if not daughters:
            return None
        scale = own_scale if scaled else np.asarray
        times = [cell.true_curve(series, daughter)[0] for cell, daughter in daughters]
        true = [np.asarray(scale(cell.true_curve(series, daughter)[1])) for cell, daughter in daughters]
        found = [np.asarray(scale(cell.paired_curve(series, daughter))) for cell, daughter in daughters]
        return own_course_concordance(times, true, found)

    @cached_property
    def parts(self) -> dict[str, float | None]:
        return {
            "onset": self.onset,
            "core": self.curves("core", scaled=True),
            "noncore": self.curves("noncore", scaled=True),
            "volume": self.curves("volume", scaled=False),
        }

    @property
    def value(self) -> float:
        return harmonic_mean([part for part in self.parts.values() if part is not None])


def _name_conventions(submission: Submission, parameters: RecruitmentKinetics, cells: Sequence[_Cell]) -> None:
    """Name missing cells, and mistakes of convention that explain a low score."""
    problems, where = submission.problems, parameters.tables
    for cell in cells:
        if cell.found is None:
            problems.add("missing_cell", cell.name, "has no table")
            continue
        if not np.isfinite(cell.onset):
            what = "no frame column (Time Point)" if not np.isfinite(cell.found.frames).any() else "no row at time 0"
            problems.add("missing_onset", cell.found.where, f"has {what}: the onset counts as wrong")
        lacking = [f"{series}_{d + 1}" for series in SERIES for d in (0, 1) if (series, d) not in cell.found.curves]
        if lacking:
            problems.add("missing_columns", cell.found.where, f"has no column for {', '.join(lacking)}")
        elif cell.coverage < 0.5:
            message = f"has {cell.coverage:.0%} of the inner core's time points; time is wanted in minutes"
            problems.add("missing_points", cell.found.where, message)
    errors = {cell.error for cell in cells if np.isfinite(cell.error)}
    if len(errors) == 1 and len(cells) > 1 and abs(next(iter(errors))) == 1.0:
        problems.add("frame_shift", where, "all onsets are off by one frame: the first frame of a movie is number 1")


def _result(submission: Submission, parameters: RecruitmentKinetics, cells: Sequence[_Cell]) -> OutcomeScore:
    scored = any(cell.found is not None for cell in cells)
    errors = np.array([cell.error for cell in cells])
    accuracy = onset_score(errors, parameters.frame_cap)
    curves = float(np.mean([cell.correlation for cell in cells]))
    strict = _Strict(cells, parameters)
    known = errors[np.isfinite(errors)]
    return OutcomeScore(
        outcome=min(1.0, 0.5 * accuracy + 0.5 * curves) if scored else 0.0,
        strict=strict.value if scored else 0.0,
        delivered=submission.delivered,
        evaluator="recruitment_kinetics",
        evaluator_version=VERSION,
        parameters=parameters.model_dump(mode="json"),
        metrics={
            "onset_score": accuracy,
            "onset_mean_error_frames": float(np.abs(known).mean()) if len(known) else None,
            "onset_within_2_frames": float(np.mean(np.abs(np.where(np.isfinite(errors), errors, 1e9)) <= 2)),
            "curve_score": curves,
            **{f"strict_{name}": value for name, value in strict.parts.items()},
            "cells": len(cells),
            "cells_with_table": sum(cell.found is not None for cell in cells),
        },
        items=[
            {
                "cell": cell.name,
                "true_onset": cell.true_onset,
                "onset": None if np.isnan(cell.onset) else cell.onset,
                "pearson_core": cell.r,
                "points_share": cell.coverage,
                "daughters_swapped": bool(cell.swap),
            }
            for cell in cells
        ],
        problems=submission.problems.list(),
    )


def as_reference(submission: Submission, given: Truth, parameters: RecruitmentKinetics, folder: Path) -> Path | None:
    """Write a submission as the reference data that others are compared with; see :mod:`evaluators.agreement`."""
    import openpyxl

    if given.input_dir is None:
        raise TruthError("which cells exist is read from the input folder, which is not at hand")
    movies = [stem_of(path.name) for path in sorted(given.input_dir.rglob("*.tif*")) if path.name[0] != "."]
    empty = Kinetics("", np.zeros(0), np.zeros(0), {})
    found = _submitted(submission, parameters, dict.fromkeys(movies, empty))
    book = openpyxl.Workbook()
    book.remove(book.active)
    for movie, table in found.items():
        if not np.isfinite(table.onset(parameters.onset_minutes)) or ("core", 0) not in table.curves:
            continue  # no reference for others
        sheet = book.create_sheet("cell".join(str(part) for part in cell_key(movie)))
        names = [f"{_SERIES_NAMES[series][0]}{daughter + 1}" for series, daughter in table.curves]
        sheet.append(["Time after anaphase onset (min)", "frame", *names])
        for row in np.column_stack([table.times, table.frames, *table.curves.values()]).tolist():
            sheet.append([value if np.isfinite(value) else None for value in row])
    if not book.sheetnames:
        raise TruthError(f"{parameters.tables}: no cell with an onset and a curve of the inner core")
    book.save(folder / "reference.xlsx")
    return given.input_dir
