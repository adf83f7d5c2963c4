"""Tables of a study, each graded against a reference table.

*Outcome*: share of artifacts that pass. An artifact's score is the product of what applies to it: F1 of the row
identifiers (of intervals that overlap, where rows are intervals), F1 of the column identifiers, Lin's concordance of
numbers (mean over columns; all cells together in a matrix), macro F1 of labels (mean over columns). It passes at 0.8.
Numbers and labels are compared in the rows and columns that both sides have, the F1 of identifiers pays for the others.
A missing, empty or unreadable table scores 0. What an artifact depends on does not enter its score: it was derived from
what the agent had. Depth in that chain is reported.

*Strict*: mean over artifacts of the harmonic mean of their parts: identifiers as above; for each column of numbers how
much closer than the best constant they are, and for each column of labels kappa, over all rows of the reference,
missing ones being wrong; for intervals F1 weighted by overlap, above what blind tilings reach. So identifiers with
constant or permuted numbers earn nothing, whatever else is right. A column without two different values decides
nothing, nor does an artifact of such columns.

A row that names the same identifiers as another one with other values is ambiguous: neither counts as found. Case,
blanks, hyphens, underscores and leading zeros in identifiers and labels do not matter where the reference has no two
that differ in nothing else.
"""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluators.metrics.artifacts import (
    IntervalMatching,
    blind_interval_quality,
    identifier_f1,
    label_f1,
    match_intervals,
    number_agreement,
    number_skill,
)
from evaluators.metrics.phenotypes import kappa_within
from evaluators.metrics.points import above_chance
from evaluators.model import Deliverable, OutcomeScore, TruthError
from evaluators.outcome.aggregate import harmonic_mean
from evaluators.outcome.files import deliverable_path, write_rows
from evaluators.outcome.parameters import Artifacts, ArtifactTable
from evaluators.outcome.single_table import Rows, read_single_table
from evaluators.problems import Refusal, shown
from evaluators.readers.tables import TextTable, column_names
from evaluators.submission import Submission
from evaluators.truth import Truth

VERSION = "1"

_MAX_LOOKED_AT = 32
_EMPTY_CELLS = {"", "nan", "na", "n/a", "none", "null"}
_NONE = -1

Values = NDArray[np.float64]
Index = NDArray[np.int64]


def score(submission: Submission, truth: Truth, parameters: Artifacts) -> OutcomeScore:
    """Score a submission.

    Raises
    ------
    TruthError
        A reference is missing or cannot be read.
    """
    references = {name: _read_reference(truth, artifact) for name, artifact in parameters.artifacts.items()}
    depths = parameters.depths()
    grades: dict[str, _Grade] = {}
    for name in parameters.order():
        found = _read_submitted(submission, references[name])
        grade = _grade(submission, references[name], found, parameters.overlap)
        grade.passed = round(grade.score, 9) >= parameters.pass_at
        before = parameters.artifacts[name].depends_on
        grade.on_failure = any(not grades[other].passed or grades[other].on_failure for other in before)
        grades[name] = grade
    return _result(submission, parameters, {name: grades[name] for name in parameters.artifacts}, depths)


def replay(truth: Truth, deliverables: Sequence[Deliverable], parameters: Artifacts, folder: Path) -> None:
    """Write the references as a submission."""
    for artifact in parameters.artifacts.values():
        deliverable = next(one for one in deliverables if one.id == artifact.deliverable)
        reference = _read_reference(truth, artifact, deliverable.columns)
        graded = (*artifact.identifiers, *reference.columns)
        asked = {name.strip().lower() for name in deliverable.columns}
        header = [*deliverable.columns, *(name for name in graded if name.strip().lower() not in asked)]
        own = {name.strip().lower(): name for name in graded}
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        for row in reference.table.rows:
            writer.writerow([row.get(own.get(name.strip().lower(), name), "") for name in header])
        name = deliverable.patterns[0].replace("*", deliverable.id)
        deliverable_path(folder, deliverable, name).write_text(text.getvalue(), encoding="utf-8", newline="")


# --- identifiers ------------------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """Return an identifier without what people write differently: case, separators of words, zeros before numbers.

    Examples
    --------
    >>> plain("Well_B-02"), plain("1.50"), plain(" siRNA  A"), plain("0.05 uM")
    ('well b 2', '1.5', 'sirna a', '0.05 um')
    """
    text = text.strip().casefold()
    if len(text) <= 24 and re.fullmatch(r"[+-]?[0-9]+(?:[.,][0-9]+)?(?:e[+-]?[0-9]{1,3})?", text):
        return format(Decimal(text.replace(",", ".")).normalize() + 0, "g")
    return re.sub(r"(?<![0-9.,])0+(?=[0-9])", "", re.sub(r"[\s_-]+", " ", text))


class Identifiers:
    """The names on the side of the reference, and which of them a submitted one means.

    Parameters
    ----------
    reference
        The names, of one part or more each; they differ.
    """

    def __init__(self, reference: Sequence[tuple[str, ...]]) -> None:
        self._exact = {name: index for index, name in enumerate(reference)}
        forms: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for name, index in self._exact.items():
            forms[tuple(map(plain, name))].append(index)
        self._loose = {form: indices[0] for form, indices in forms.items() if len(indices) == 1}

    def find(self, name: tuple[str, ...]) -> int:
        """Return the place of a name in the reference, -1 where it is not there."""
        place = self._exact.get(name)
        return self._loose.get(tuple(map(plain, name)), _NONE) if place is None else place


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reference:
    """A reference table; ``columns`` are those with numbers or labels."""

    artifact: ArtifactTable
    path: Path
    table: TextTable
    columns: tuple[str, ...]

    @property
    def number_columns(self) -> tuple[str, ...]:
        return self.columns if self.artifact.matrix else self.artifact.values

    def names(self, columns: Sequence[str]) -> list[tuple[str, ...]]:
        return [tuple(row[column] for column in columns) for row in self.table.rows]

    @cached_property
    def numbers(self) -> dict[str, Values]:
        return {
            column: np.array([self.table.number(row, column) for row in range(len(self.table.rows))], float)
            for column in self.number_columns
        }

    @cached_property
    def spans(self) -> Values:
        return _spans([self._number(column) for column in self.artifact.identifiers[-2:]], self.artifact)

    def _number(self, column: str) -> Values:
        return np.array([self.table.number(row, column) for row in range(len(self.table.rows))], float)

    @cached_property
    def classes(self) -> dict[str, Identifiers]:
        """Classes of each column of labels, in alphabetical order."""
        return {
            column: Identifiers(sorted({(row[column],) for row in self.table.rows})) for column in self.artifact.labels
        }


def _spans(columns: Sequence[Values], artifact: ArtifactTable) -> Values:
    assert artifact.interval is not None
    start, end = columns
    return np.column_stack((start, end + float(artifact.interval.inclusive)))


def _read_reference(truth: Truth, artifact: ArtifactTable, further: Sequence[str] = ()) -> _Reference:
    """Read and check a reference; ``further`` columns are read as well where it has them."""
    path = truth.folder / (artifact.truth or f"{artifact.deliverable}.csv")
    columns: tuple[str, ...] = (*artifact.values, *artifact.labels)
    if artifact.matrix:
        keys = {name.strip().lower() for name in artifact.keys}
        columns = tuple(name for name in truth.column_names(path, artifact.keys) if name and name.lower() not in keys)
    wanted = (*artifact.identifiers, *columns)
    known = {name.strip().lower() for name in wanted}
    table = truth.texts(path, wanted, [name for name in further if name.strip().lower() not in known])
    reference = _Reference(artifact, path, table, columns)
    if not table.rows:
        raise TruthError(f"{path}: has a header and no row")
    if not columns and artifact.matrix:
        raise TruthError(f"{path}: a matrix without any column beside {', '.join(artifact.keys)}")
    names = reference.names(artifact.identifiers)
    if len(set(names)) != len(names):
        raise TruthError(f"{path}: two rows are named {', '.join(next(n for n in names if names.count(n) > 1))}")
    for column, numbers in reference.numbers.items():
        for row, (number, cells) in enumerate(zip(numbers, table.rows, strict=True)):
            if np.isnan(number) and cells[column].lower() not in _EMPTY_CELLS:
                raise TruthError(f"{path}: line {table.lines[row]}: {shown(cells[column], 40)!r} is no number")
    if artifact.interval is not None:
        spans = reference.spans
        wrong = ~(np.isfinite(spans).all(axis=1) & (spans[:, 1] > spans[:, 0]))
        if wrong.any():
            raise TruthError(f"{path}: line {table.lines[int(np.argmax(wrong))]}: is not an interval")
    for column in artifact.labels:
        if any(not row[column] for row in table.rows):
            raise TruthError(f"{path}: column {column} has a row without a label")
    return reference


@dataclass(frozen=True)
class _Submitted:
    """A table that was handed in.

    Attributes
    ----------
    rows
        Its rows.
    columns
        Column of the reference to the submission's name of it.
    strangers
        Number of columns of a matrix that the reference does not have.
    """

    rows: Rows
    columns: dict[str, str]
    strangers: int


def _read_submitted(submission: Submission, reference: _Reference) -> _Submitted | None:
    artifact, where = reference.artifact, reference.artifact.deliverable
    header = _headers(submission, artifact) if artifact.matrix else list(reference.columns)
    rows = read_single_table(submission, where, artifact.identifiers, header, mergeable=artifact.interval is None)
    if rows is None:
        return None
    if not rows.cells:
        submission.problems.add("no_rows", where, "the table has a header and no row")
        return None
    names = Identifiers([(name,) for name in reference.columns])
    claimed: dict[int, list[str]] = defaultdict(list)
    for name in filter(rows.has, header):
        claimed[names.find((name,))].append(name)
    strangers = claimed.pop(_NONE, [])
    columns = {}
    for place, found in claimed.items():
        if len(found) == 1:
            columns[reference.columns[place]] = found[0]
            continue
        message = f"{', '.join(map(shown, found[:3]))} stand for one column, {reference.columns[place]}; none counts"
        submission.problems.add("ambiguous_columns", where, message)
        strangers += found
    if lacking := [name for name in reference.columns if name not in columns]:
        submission.problems.add("missing_columns", where, f"{len(lacking)} columns are not there: {_listed(lacking)}")
    if strangers:
        message = f"{len(strangers)} columns were not asked for: {_listed(strangers)}"
        submission.problems.add("unknown_columns", where, message)
    return _Submitted(rows, columns, len(strangers))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(shown(name, 40) for name in names[:5]) + (" …" if len(names) > 5 else "")


def _headers(submission: Submission, artifact: ArtifactTable) -> list[str]:
    """Return the names of all columns beside the keys, in any file that can be the table."""
    keys = {name.strip().lower() for name in artifact.keys}
    found: dict[str, str] = {}
    for file in submission.candidates(artifact.deliverable)[:_MAX_LOOKED_AT]:
        try:
            with file.open() as handle:
                names = column_names(handle, artifact.keys)
        except Refusal:
            continue  # named where the table is read
        found |= {name.lower(): name for name in names if name and name.lower() not in keys}
    return list(found.values())


# --- grading ----------------------------------------------------------------------------------------------------------


@dataclass
class _Grade:
    """What an artifact is worth: the parts of its score, and those of its strict score (``None``: decides nothing)."""

    status: str
    parts: dict[str, float] = field(default_factory=dict)
    strict_parts: dict[str, float | None] = field(default_factory=dict)
    rows: int = 0
    reference_rows: int = 0
    passed: bool = False
    on_failure: bool = False  # whether something that it depends on, at any distance, did not pass

    @property
    def score(self) -> float:
        return float(np.prod(list(self.parts.values()))) if self.parts else 0.0

    @property
    def strict(self) -> float | None:
        if not self.parts:
            return 0.0
        own = [part for name, part in self.strict_parts.items() if name not in ("row_f1", "column_f1")]
        if own and all(part is None for part in own):
            return None
        return harmonic_mean([part for part in self.strict_parts.values() if part is not None])


def _grade(submission: Submission, reference: _Reference, found: _Submitted | None, overlap: float) -> _Grade:
    count = len(reference.table.rows)
    if found is None:
        there = submission.candidates(reference.artifact.deliverable)
        return _Grade("unusable" if there else "missing", reference_rows=count)
    grade = _Grade("scored", rows=len(found.rows.cells), reference_rows=count)
    partner = (
        _pair_names(submission, reference, found, grade)
        if reference.artifact.interval is None
        else _pair_intervals(submission, reference, found, grade, overlap)
    )
    if reference.columns:
        grade.parts["column_f1"] = identifier_f1(reference.columns, [*found.columns, *range(found.strangers)])
        grade.strict_parts["column_f1"] = grade.parts["column_f1"]
    _grade_numbers(submission, reference, found, partner, grade)
    _grade_labels(submission, reference, found, partner, grade)
    return grade


def _pair_names(submission: Submission, reference: _Reference, found: _Submitted, grade: _Grade) -> Index:
    """Return for each row of the reference the submitted one of the same name, or -1."""
    artifact, where = reference.artifact, reference.artifact.deliverable
    names = Identifiers(reference.names(artifact.keys))
    places = [names.find(tuple(cells[key] for key in artifact.keys)) for cells in found.rows.cells]
    same: dict[int, list[int]] = defaultdict(list)
    for row, place in enumerate(places):
        same[place].append(row)
    strangers = same.pop(_NONE, [])
    partner = np.full(len(reference.table.rows), _NONE, np.int64)
    for place, rows in same.items():
        partner[place] = rows[0]
        if len(rows) == 1:
            continue
        contents = {tuple(found.rows.cells[row][own] for own in found.columns.values()) for row in rows}
        if len(contents) > 1:
            partner[place] = _NONE
        listed = ", ".join(found.rows.places[row] for row in rows[:3])
        code = "repeated_row" if len(contents) == 1 else "ambiguous_row"
        verdict = "the same twice, which counts once" if len(contents) == 1 else "with different cells; none counts"
        submission.problems.add(code, where, f"{listed}: one row of the table, {verdict}")
    if strangers:
        first = ", ".join(shown(found.rows.cells[strangers[0]][key], 40) for key in artifact.keys)
        message = f"{len(strangers)} rows name nothing of the reference; the first is {first!r}"
        submission.problems.add("unknown_rows", where, f"{message} in {found.rows.places[strangers[0]]}")
    lacking = int((partner == _NONE).sum())
    if lacking:
        message = f"{lacking} of {len(partner)} rows are not there"
        submission.problems.add("missing_rows", where, message)
    claimed = [place if place >= 0 and partner[place] >= 0 else f"{row}" for row, place in enumerate(places)]
    grade.parts["row_f1"] = grade.strict_parts["row_f1"] = identifier_f1(range(len(partner)), claimed)
    return partner


def _pair_intervals(
    submission: Submission, reference: _Reference, found: _Submitted, grade: _Grade, overlap: float
) -> Index:
    """Return for each interval of the reference the submitted one that pairs with it, or -1."""
    artifact, where = reference.artifact, reference.artifact.deliverable
    of = reference.names(artifact.keys)
    groups = {name: number for number, name in enumerate(dict.fromkeys(of))}
    names, own = Identifiers(list(groups)), np.array([groups[name] for name in of], np.int64)
    theirs = [names.find(tuple(cells[key] for key in artifact.keys)) for cells in found.rows.cells]
    spans = _spans([found.rows.numbers(column) for column in artifact.identifiers[-2:]], artifact)
    wrong = ~(np.isfinite(spans).all(axis=1) & (spans[:, 1] > spans[:, 0]))
    if wrong.any():
        message = f"{int(wrong.sum())} rows are no interval; the first is {found.rows.places[int(np.argmax(wrong))]}"
        submission.problems.add("invalid_interval", where, message)
    if strangers := [row for row, group in enumerate(theirs) if group == _NONE]:
        message = f"{len(strangers)} rows lie on nothing of the reference; the first is "
        submission.problems.add("unknown_rows", where, message + found.rows.places[strangers[0]])
    if len(spans) > 20 * len(own) + 1000:  # so many that even with all of them right the score is next to nothing
        submission.problems.add("too_many_rows", where, f"{len(spans)} intervals: none is looked at")
        matching = IntervalMatching(*(np.zeros(0, np.int64),) * 2, len(own), len(spans), np.zeros(0))
    else:
        matching = match_intervals(
            reference.spans, spans, overlap, truth_groups=own, predicted_groups=np.array(theirs, np.int64)
        )
    grade.parts["interval_f1"] = matching.f1
    blind = blind_interval_quality(reference.spans, overlap, own)
    grade.strict_parts["intervals"] = above_chance(matching.quality, blind)
    partner = np.full(len(own), _NONE, np.int64)
    partner[matching.truth_index] = matching.predicted_index
    return partner


def _grade_numbers(
    submission: Submission, reference: _Reference, found: _Submitted, partner: Index, grade: _Grade
) -> None:
    if not reference.number_columns:
        return
    matched = partner >= 0
    truth: list[Values] = []
    claimed: list[Values] = []
    agreement: list[float] = []
    for column in reference.number_columns:
        numbers = np.full(len(partner), np.nan)
        if column in found.columns:
            numbers[matched] = found.rows.numbers(found.columns[column])[partner[matched]]
            _name_missing_numbers(submission, reference, column, numbers, matched)
            if not reference.artifact.matrix:
                agreement.append(number_agreement(reference.numbers[column][matched], numbers[matched]))
        truth.append(reference.numbers[column])
        claimed.append(numbers)
        if not reference.artifact.matrix:
            grade.strict_parts[f"skill_{column}"] = number_skill(truth[-1], numbers)
    if reference.artifact.matrix:
        here = [column in found.columns for column in reference.number_columns]
        cells = np.array(here)[:, None] & matched
        agreement.append(number_agreement(np.array(truth)[cells], np.array(claimed)[cells]))
        grade.strict_parts["skill"] = number_skill(np.concatenate(truth), np.concatenate(claimed))
    grade.parts["concordance"] = float(np.mean(agreement)) if agreement else 0.0


def _name_missing_numbers(
    submission: Submission, reference: _Reference, column: str, numbers: Values, matched: NDArray[np.bool_]
) -> None:
    true = np.isfinite(reference.numbers[column][matched])
    differ = true != np.isfinite(numbers[matched])
    if differ.any():
        message = f"{int((differ & true).sum())} cells hold no number"
        if (differ & ~true).any():
            message += f", {int((differ & ~true).sum())} hold one where there is none"
        submission.problems.add("not_a_number", f"{reference.artifact.deliverable}: {column}", message)


def _grade_labels(
    submission: Submission, reference: _Reference, found: _Submitted, partner: Index, grade: _Grade
) -> None:
    matched = partner >= 0
    values: list[float] = []
    for column, classes in reference.classes.items():
        true = np.array([classes.find((row[column],)) for row in reference.table.rows], np.int64)
        claimed = np.full(len(partner), _NONE, np.int64)
        if column in found.columns:
            texts = [found.rows.cells[row][found.columns[column]] for row in partner[matched].tolist()]
            claimed[matched] = [classes.find((text,)) for text in texts]
            if (claimed[matched] == _NONE).any():
                unknown = [text for text, own in zip(texts, claimed[matched], strict=True) if own == _NONE]
                message = f"{len(unknown)} cells hold no label that occurs; the first is {shown(unknown[0], 40)!r}"
                submission.problems.add("unknown_label", f"{reference.artifact.deliverable}: {column}", message)
            values.append(label_f1(true[matched], claimed[matched], int(true.max()) + 1))
        kappa = kappa_within(true, claimed, np.zeros(len(true)), int(true.max()) + 1)
        grade.strict_parts[f"kappa_{column}"] = None if kappa is None else max(0.0, kappa)
    if reference.classes:
        grade.parts["macro_f1"] = float(np.mean(values)) if values else 0.0


# --- result -----------------------------------------------------------------------------------------------------------


def _result(
    submission: Submission, parameters: Artifacts, grades: dict[str, _Grade], depths: dict[str, int]
) -> OutcomeScore:
    stricts = [grade.strict for grade in grades.values() if grade.strict is not None]
    by_depth = {
        f"passed_depth_{depth}": float(np.mean([grades[name].passed for name in grades if depths[name] == depth]))
        for depth in sorted(set(depths.values()))
    }
    return OutcomeScore(
        outcome=float(np.mean([grade.passed for grade in grades.values()])),
        strict=float(np.mean(stricts)) if stricts else None,
        delivered=submission.delivered,
        evaluator="artifact",
        evaluator_version=VERSION,
        parameters=parameters.model_dump(mode="json"),
        metrics={
            "artifacts": len(grades),
            "artifacts_passed": sum(grade.passed for grade in grades.values()),
            "mean_score": float(np.mean([grade.score for grade in grades.values()])),
            "depth": max(depths.values()),
            **by_depth,
            "passed_on_a_failure": sum(grade.passed and grade.on_failure for grade in grades.values()),
            **{f"score_{name}": grade.score for name, grade in grades.items()},
        },
        items=[
            {
                "artifact": name,
                "status": grade.status,
                "depth": depths[name],
                "score": grade.score,
                "passed": grade.passed,
                "passed_on_a_failure": grade.passed and grade.on_failure,
                **grade.parts,
                "strict": grade.strict,
                **{f"strict_{part}": value for part, value in grade.strict_parts.items()},
                "rows": grade.rows,
                "reference_rows": grade.reference_rows,
            }
            for name, grade in grades.items()
        ],
        problems=submission.problems.list(),
    )


def as_reference(submission: Submission, given: Truth, parameters: Artifacts, folder: Path) -> Path | None:
    """Write a submission as the reference data that others are compared with; see :mod:`evaluators.agreement`."""
    for artifact in parameters.artifacts.values():
        graded = _headers(submission, artifact) if artifact.matrix else [*artifact.values, *artifact.labels]
        header = [*artifact.identifiers, *graded]
        rows = read_single_table(submission, artifact.deliverable, header, mergeable=artifact.interval is None)
        if rows is None:
            raise TruthError(f"{artifact.deliverable}: no table")
        name = artifact.truth or f"{artifact.deliverable}.csv"
        write_rows(folder / name, header, [[cells[column] for column in header] for cells in rows.cells])
    return given.input_dir
