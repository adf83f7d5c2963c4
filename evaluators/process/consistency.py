"""Does a run agree with itself? An audit of what was said against what was delivered; it never sees the truth.

Two kinds of findings: a *contradiction* is between the run's own words and its own files; a *caution* names a check
that the run could have made and did not. Statements that cannot be tied to a delivered table are not judged: the audit
prefers silence to a false alarm.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from agents.transcript import Step, read_transcript
from evaluators.model import Content, Deliverable
from evaluators.problems import Refusal, shown
from evaluators.process.claims import closing_claim, promises, sentences
from evaluators.process.statements import (
    Vector,
    count_statements,
    coverage_statements,
    label_pattern,
    per_unit_statements,
    vectors,
    words,
)
from evaluators.process.tables import MEAN_WAYS, SIZE_WAYS, GroupTable, read_group_table, unit_forms, unit_of
from evaluators.readers import check_header
from evaluators.readers.text import read_text
from evaluators.submission import Submission, SubmittedFile

VERSION = "1"

Code = Literal[
    "count_mismatch",
    "coverage_mismatch",
    "mean_mismatch",
    "order_mismatch",
    "missing_despite_claim",
    "future_tense_ending",
    "named_file_missing",
    "overlays_unread",
    "thresholds_unchecked",
]

_MAX_REPORTS = 12
_MAX_REPORT_BYTES = 1 << 20
_MAX_TABLES = 200  # a task with one table per image has up to 200
_CLEARLY = 1.2  # two values are told apart from this ratio on
_FAR = 1.5  # a mean that is off by less may be over a subset of rows
_REPORTS = (".md", ".markdown", ".rst", ".txt")


class Finding(BaseModel):
    """One disagreement, or one check not made; ``where`` names files, or steps of the transcript."""

    model_config = ConfigDict(extra="forbid")

    code: Code
    severity: Literal["contradiction", "caution"]
    message: str
    where: list[str] = Field(default_factory=list)


class Audit(BaseModel):
    """What was found, and how much could be compared at all: an audit without statements says nothing."""

    model_config = ConfigDict(extra="forbid")

    version: str = VERSION
    findings: list[Finding] = Field(default_factory=list)
    compared: int = 0
    transcript: bool = False

    @property
    def contradictions(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "contradiction"]


def audit(
    submission: Path,
    deliverables: Sequence[Deliverable],
    final_message: str | None = None,
    steps: Iterable[Step] | None = None,
) -> Audit:
    """Compare a run's words with its files.

    Parameters
    ----------
    submission
        The output folder that the run left; hostile. Use :func:`evaluators.bounded.inspect_bounded` for files that you
        do not trust.
    deliverables
        What the task asks for; the unit of a table's rows is read from its description.
    final_message
        The closing message, where the agent gave one.
    steps
        The transcript; ``None`` where there is none, and then nothing is said about looking at images.
    """
    files = Submission(submission, deliverables)
    texts = _texts(files, final_message)
    found = _Words(files, texts).findings()
    missing = _missing(files)
    findings = [*found.findings, *_ending(final_message, missing), *_named_files(files, final_message)]
    if steps is not None:
        findings += _looking(files, list(steps))
    return Audit(findings=findings, compared=found.compared, transcript=steps is not None)


def audit_files(
    submission: Path, deliverables: Sequence[Deliverable], final_message: str | None, transcript: Path | None
) -> Audit:
    """As :func:`audit`, with the transcript as a file; one that is absent or damaged counts as none."""
    steps: list[Step] | None = None
    if transcript is not None and transcript.is_file():
        try:
            steps = list(read_transcript(transcript))
        except ValueError:
            steps = None
    return audit(submission, deliverables, final_message, steps)


# --- words against tables ---------------------------------------------------------------------------------------------


def _texts(files: Submission, final_message: str | None) -> dict[str, str]:
    """Return the closing message and the written reports, by name."""
    texts = {"closing message": final_message} if final_message else {}
    taken = {file.path for name in files.deliverables for file in files.candidates(name)}
    reports = [
        file
        for file in files.files
        if PurePath(file.name).suffix.lower() in _REPORTS
        and file.path not in taken
        and file.size <= _MAX_REPORT_BYTES
        and not re.search(r"(?i)log|requirements|license|instruction", file.name)
        and file.folder.lower() not in ("logs", "scripts", "code", "src")
    ]
    for file in reports[:_MAX_REPORTS]:
        try:
            with file.open() as handle:
                texts[shown(file.path)] = read_text(handle, _MAX_REPORT_BYTES)
        except Refusal:
            continue
    return texts


class _Words:
    """The numbers in a run's texts against the tables that it delivered."""

    def __init__(self, files: Submission, texts: Mapping[str, str]) -> None:
        self._files = files
        self._texts = texts
        self._audit = Audit()
        self._others = _read(
            file
            for file in files.files
            if PurePath(file.name).suffix.lower() in (".csv", ".tsv")
            and not any(file in files.candidates(name) for name in files.deliverables)
        )
        self._others += _read(_supporting(files.folder))

    def findings(self) -> Audit:
        for name, deliverable in self._files.deliverables.items():
            if deliverable.content is not Content.TABLE:
                if deliverable.multiple:
                    self._coverage(deliverable, len(self._files.candidates(name)))
                continue
            tables = _read(self._files.candidates(name))
            if not tables:
                continue
            unit = unit_of(deliverable.description)
            if unit is not None:
                self._counts(deliverable, unit, tables)
                if not deliverable.multiple:
                    self._container(unit, tables)
            if deliverable.multiple:
                self._coverage(deliverable, len(tables))
            else:
                self._groups(unit, tables[0])
                self._per_unit(unit, tables[0])
        return self._audit

    def _add(self, code: Code, message: str, *where: str) -> None:
        if not any(finding.code == code for finding in self._audit.findings):
            self._audit.findings.append(
                Finding(code=code, severity="contradiction", message=shown(message, 500), where=list(where))
            )

    def _counts(self, deliverable: Deliverable, unit: str, tables: list[GroupTable]) -> None:
        """A stated total must be the number of rows, or of something else in the delivered table.

        Other files do not excuse it: that a check counted an intermediate table is how such reports come about.
        """
        total = sum(table.rows for table in tables)
        stated = [
            (name, found) for name, text in self._texts.items() for found in count_statements(text, unit_forms(unit))
        ]
        if not stated:
            return
        self._audit.compared += 1
        if any(found.value == total for _, found in stated):
            return
        known = {total} | {count for table in tables for count in table.counts()}
        wrong = [
            (name, found)
            for name, found in stated
            if found.value not in known and (found.value > total or found.is_total)
        ]
        if wrong:
            name, worst = max(wrong, key=lambda pair: pair[1].value)
            self._add(
                "count_mismatch",
                f"“{worst.sentence}” states {worst.value:g}; {', '.join(t.name for t in tables[:3])} has {total} "
                f"rows, one per {unit}",
                name,
                *(table.name for table in tables[:3]),
            )

    def _container(self, unit: str, tables: list[GroupTable]) -> None:
        """``96 of 96 wells`` against a table with one row per well."""
        self._compare_coverage(unit_forms(unit), sum(table.rows for table in tables), tables[0].name)

    def _coverage(self, deliverable: Deliverable, files: int) -> None:
        """``27/27 images`` against the number of files of which there is one per image."""
        if files:
            forms = unit_forms("image") | unit_forms("stack") | unit_forms("movie") | unit_forms("file")
            self._compare_coverage(forms, files, deliverable.id)

    def _compare_coverage(self, forms: frozenset[str], available: int, what: str) -> None:
        for name, text in self._texts.items():
            for found in coverage_statements(text, forms):
                self._audit.compared += 1
                if found.value > available and found.is_total:
                    self._add(
                        "coverage_mismatch",
                        f"“{found.sentence}” states {found.value:g}; {what} has {available}",
                        name,
                        what,
                    )

    def _groups(self, unit: str | None, table: GroupTable) -> None:
        """Numbers by condition, in a table of a report or in a sentence, against the delivered rows."""
        for column, labels in table.conditions().items():
            patterns = [label_pattern(label, labels) for label in labels]
            if any(pattern is None for pattern in patterns):
                continue
            for name, text in self._texts.items():
                for vector in vectors(text, [pattern for pattern in patterns if pattern is not None]):
                    self._compare_vector(name, vector, table, column, labels, unit)

    def _compare_vector(
        self, name: str, vector: Vector, table: GroupTable, column: str, labels: list[str], unit: str | None
    ) -> None:
        stated = np.array(vector.values)
        if len(set(vector.values)) == 1:
            return
        sources = [table, *(other for other in self._others if other.has(column, labels))]
        if any(_agree(stated, known) for source in sources for known in source.ways(column, labels).values()):
            self._audit.compared += 1
            return
        if unit is not None and vector.topic and vector.topic <= unit_forms(unit):
            counts = table.group_counts(column, labels)
            self._audit.compared += 1
            self._add(
                "count_mismatch",
                f"“{vector.sentence}” states {_listed(labels, vector.values)} by {column}; {table.name} has "
                f"{_listed(labels, counts)} rows, one per {unit}",
                name,
                table.name,
            )
            return
        known_words = words(" ".join(table.numeric))
        topic = vector.topic if vector.in_table else vector.topic & known_words
        candidates = [numeric for numeric in table.numeric if topic and topic <= words(numeric)]
        if not candidates or len(sources) > 1:
            return
        self._audit.compared += 1
        ways = [table.ways(column, labels)[numeric] for numeric in candidates]
        means = _listed(labels, table.group_means(column, labels, candidates[0]))
        if _reversed(stated, np.concatenate([way[list(SIZE_WAYS)] for way in ways])):
            self._add(
                "order_mismatch",
                f"“{vector.sentence}” puts the conditions in another order than {table.name}: stated "
                f"{_listed(labels, vector.values)}; mean {candidates[0]} is {means}",
                name,
                table.name,
            )
        elif vector.is_mean and not _close(stated, np.concatenate([way[list(MEAN_WAYS)] for way in ways]), _FAR).any():
            self._add(
                "mean_mismatch",
                f"“{vector.sentence}” states {_listed(labels, vector.values)}; mean {candidates[0]} in {table.name} "
                f"is {means}",
                name,
                table.name,
            )

    def _per_unit(self, unit: str | None, table: GroupTable) -> None:
        """``a mean of 8.2 puncta per nucleus`` against the column of puncta."""
        if unit is None:
            return
        for name, text in self._texts.items():
            for found in per_unit_statements(text, unit_forms(unit)):
                candidates = [numeric for numeric in table.numeric if found.topic and found.topic <= words(numeric)]
                if not candidates:
                    continue
                self._audit.compared += 1
                known = [value for numeric in candidates for value in table.averages(numeric)]
                if known and not _close(np.array([found.value]), np.array(known)[:, None], 1.05).any():
                    self._add(
                        "mean_mismatch",
                        f"“{found.sentence}” states {found.value:g}; the mean of {candidates[0]} in {table.name} is "
                        f"{known[0]:.4g}",
                        name,
                        table.name,
                    )


def _read(files: Iterable[SubmittedFile]) -> list[GroupTable]:
    tables = []
    for file, _ in zip(files, range(_MAX_TABLES), strict=False):
        try:
            with file.open() as handle:
                tables.append(read_group_table(shown(file.path), handle))
        except Refusal:
            continue
    return tables


def _supporting(folder: Path) -> Iterable[SubmittedFile]:
    """Tables in the folder ``supporting``, which no evaluator looks at but a report may quote."""
    with_tables = folder / "supporting"
    if with_tables.is_symlink() or not with_tables.is_dir():
        return
    with os.scandir(with_tables) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name)[:_MAX_TABLES]:
            if entry.is_file(follow_symlinks=False) and entry.name.lower().endswith((".csv", ".tsv")):
                yield SubmittedFile(folder, ("supporting", entry.name), entry.stat().st_size)


def _agree(stated: NDArray[np.float64], known: NDArray[np.float64]) -> bool:
    """Whether numbers are those of a table in some way of summing it up, rounded as people round, or as percentages."""
    return bool(_close(stated, known, 1.02).any() or _close(stated, 100 * known, 1.02).any())


def _close(stated: NDArray[np.float64], known: NDArray[np.float64], factor: float) -> NDArray[np.bool_]:
    """Return for each row of ``known`` whether all its values are those stated, up to rounding and a factor."""
    rounding = 0.5 * np.array([_unit_in_last_place(value) for value in stated])
    near = np.abs(stated - known) <= np.maximum(np.abs(known) * (factor - 1), rounding) + 1e-9
    return np.asarray(near.all(axis=-1), bool)


def _unit_in_last_place(value: float) -> float:
    text = f"{value:g}"
    return 10.0 ** -len(text.partition(".")[2]) if "." in text and "e" not in text else 1.0


def _reversed(stated: NDArray[np.float64], known: NDArray[np.float64]) -> bool:
    """Whether some two conditions, clearly apart in the words, are clearly apart the other way round in every row."""
    known = known[np.isfinite(known).all(axis=1)]
    if not len(known):
        return False
    for high in range(len(stated)):
        for low in range(len(stated)):
            apart = stated[high] > _CLEARLY * stated[low] >= 0
            if apart and (known >= 0).all() and (known[:, low] > _CLEARLY * known[:, high]).all():
                return True
    return False


def _listed(labels: Sequence[str], values: Sequence[float]) -> str:
    return ", ".join(f"{shown(label, 30)} {value:.4g}" for label, value in zip(labels, values, strict=True))


# --- the ending -------------------------------------------------------------------------------------------------------


def _missing(files: Submission) -> list[str]:
    """Return the required deliverables without any file that can be what is asked for."""

    def conforms(name: str, deliverable: Deliverable) -> bool:
        for file in files.candidates(name):
            try:
                check_header(file.open(), deliverable)
            except Refusal:
                continue
            return True
        return False

    return [name for name, wanted in files.deliverables.items() if wanted.required and not conforms(name, wanted)]


def _ending(final_message: str | None, missing: list[str]) -> list[Finding]:
    absent = ", ".join(missing)
    if going_on := promises(final_message):
        tail = f"; {absent} was never delivered" if missing else "; every required file is there"
        return [
            Finding(
                code="future_tense_ending",
                severity="contradiction" if missing else "caution",
                message=f"the run ended with a promise: “{shown(going_on[-1], 300)}”{tail}",
                where=["closing message", *missing],
            )
        ]
    if missing and closing_claim(final_message) == "claimed":
        return [
            Finding(
                code="missing_despite_claim",
                severity="contradiction",
                message=f"the closing message claims finished work; {absent} is missing or cannot be read",
                where=["closing message", *missing],
            )
        ]
    return []


_FILE_NAME = re.compile(
    r"(?<![\w*?<{])([\w][\w\-. /]{0,80}?[\w*\-]\.(?:csv|tsv|xlsx|json|md|pdf|html|png|svg|tiff?|npy|zip))(?![\w*>}])"
)
_WROTE = re.compile(
    r"(?i)\b(?:wrote|written|saved?|saving|created|produced|generated|exported|delivered|outputs?|deliverables?|files?"
    r"|results?|see|available|stored)\b"
)
_NOT_WRITTEN = re.compile(r"(?i)\b(?:not|n['’]t|no|without|missing|input|from|read|loaded|provided|given|instead)\b")


def _named_files(files: Submission, final_message: str | None) -> list[Finding]:
    """Files that the closing message says were written, and that are nowhere."""
    if not final_message:
        return []
    there = {file.name.lower() for file in files.files} | set(_hidden_names(files.folder))
    absent: list[str] = []
    for line in sentences(final_message):
        if not _WROTE.search(line) or _NOT_WRITTEN.search(line):
            continue
        for match in _FILE_NAME.finditer(line):
            name = PurePath(match[1].strip()).name.split()[-1].lower()
            if not any(fnmatch.fnmatch(other, name) for other in there):
                absent.append(name)
    if not absent:
        return []
    names = ", ".join(shown(name, 60) for name in dict.fromkeys(absent))
    return [
        Finding(
            code="named_file_missing",
            severity="contradiction",
            message=f"the closing message names files that do not exist: {shown(names, 300)}",
            where=["closing message"],
        )
    ]


def _hidden_names(folder: Path) -> Iterable[str]:
    """Names in ``supporting``, which :class:`Submission` leaves out."""
    for _, _, names in os.walk(folder / "supporting", followlinks=False):
        yield from (name.lower() for name in names[:20_000])


# --- looking at images ------------------------------------------------------------------------------------------------

_OVERLAY = re.compile(
    r"(?i)(overlay|outline|contour|qc|quality|preview|montage|annotat|check|panel|segmentation_?vis|debug)"
)
_PICTURE = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".svg", ".pdf", ".gif", ".webp")
_SETTING = re.compile(
    r"""(?ix) \b ( [a-z_]*(?:thr(?:esh(?:old)?)?|cutoff|min_?(?:size|area|vol(?:ume)?|voxels?|dist(?:ance)?)
        |max_?(?:size|area|vol(?:ume)?)|prominence|sigma|h_?max(?:ima)?|contrast)[a-z_0-9]* )
        \s*(?:=|:)\s* (-?\d+(?:\.\d+)?(?:e-?\d+)?) """
)


def _looking(files: Submission, steps: list[Step]) -> list[Finding]:
    """Were overlays opened, and thresholds tried more than once or held against the images?"""
    written = {PurePath(path).name for step in steps for path in step.files_written} | {
        file.name for file in files.files
    }
    overlays = sorted(name for name in written if _OVERLAY.search(name) and name.lower().endswith(_PICTURE))
    viewed = [(step.step, path) for step in steps for path in step.images_viewed]
    opened = {PurePath(path).name for _, path in viewed}
    unread = overlays and not opened & set(overlays)
    settings = _settings(steps)
    once = {name: places for name, places in settings.items() if len({value for value, _ in places}) == 1}
    first = min((number for places in settings.values() for _, number in places), default=0)
    looked_after = any(number >= first for number, _ in viewed)
    if settings and len(once) == len(settings) and not looked_after:
        listed = ", ".join(f"{shown(name, 40)} = {places[0][0]}" for name, places in sorted(once.items())[:6])
        also = f"; {len(overlays)} overlays were written and none was opened" if unread else ""
        return [
            Finding(
                code="thresholds_unchecked",
                severity="caution",
                message=f"set once and never held against the images: {listed}{also}",
                where=[f"step {number}" for number in sorted({places[0][1] for places in once.values()})[:10]],
            )
        ]
    if unread:
        return [
            Finding(
                code="overlays_unread",
                severity="caution",
                message=f"{len(overlays)} overlays were written and none was opened: {', '.join(overlays[:3])}"
                f"{' …' if len(overlays) > 3 else ''}",
                where=overlays[:10],
            )
        ]
    return []


def _settings(steps: Iterable[Step]) -> dict[str, list[tuple[str, int]]]:
    """Return every threshold-like setting in code that ran, with its values and steps."""
    found: dict[str, list[tuple[str, int]]] = {}
    for step in steps:
        for name, value in _SETTING.findall(step.code or ""):
            found.setdefault(name.lower(), []).append((value, step.step))
    return found
