"""One row per trial, from campaign folders and JUnit files; records win over JUnit."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

from biabench_plugin import exclusions
from biabench_plugin.records import (
    CURRENT,
    FILE_NAME,
    RecordError,
    TrialRecord,
    current_attempt,
    iter_records,
    read_record,
    record_path,
)

_PREFIX = "biabench."


@dataclass(frozen=True)
class Row:
    """One trial as a report shows it. ``record`` is ``None`` for items that never ran (skipped, no data)."""

    task: str
    configuration: str
    agent: str
    dataset: str
    repeat: int
    status: str
    note: str
    record: TrialRecord | None
    attempts: int
    folder: Path | None
    excluded: str | None = None  # the operator's reason
    faults: int = 0  # attempts that an infrastructure fault ended

    @property
    def counts(self) -> bool:
        return self.record is not None and self.record.counts and self.excluded is None

    @property
    def outcome(self) -> float | None:
        return None if self.record is None or self.record.score is None else self.record.score.outcome

    @property
    def strict(self) -> float | None:
        return None if self.record is None or self.record.score is None else self.record.score.strict

    @property
    def key(self) -> tuple[str, str, str, int, str]:
        """Identity of the run: trials of the same name from two campaigns are two trials."""
        began = "" if self.record is None else self.record.started.isoformat()
        return (self.dataset, self.configuration, self.task, self.repeat, began)


def _from_attempts(attempts: list[TrialRecord], campaign: Path) -> Row:
    marker = record_path(campaign, attempts[0]).parent.parent / CURRENT
    record = current_attempt(attempts, marker.read_text().strip() if marker.is_file() else None)
    return Row(
        task=record.task,
        configuration=record.configuration,
        agent=record.agent,
        dataset=record.dataset.name,
        repeat=record.repeat,
        status=record.status.value if record.valid else "infrastructure",
        note=record.status_reason if record.valid else str(record.infrastructure),
        record=record,
        attempts=len(attempts),
        folder=record_path(campaign, record).parent,
        faults=sum(not found.valid for found in attempts),
    )


def _without_excluded(rows: list[Row], campaign: Path) -> list[Row]:
    """Mark the rows that the operator took out; they stay in every report, with the reason."""
    reasons = exclusions.active(campaign)
    marked = []
    for row in rows:
        trial = f"tasks/{row.task}/task.yaml::{row.configuration[:-1]}-r{row.repeat}]"
        reason = exclusions.reason_for(reasons, trial, row.configuration)
        if reason is not None:
            row = replace(row, excluded=reason, status="excluded", note=f"excluded by the operator: {reason}")
        marked.append(row)
    return marked


def from_campaign(campaign: Path) -> list[Row]:
    """Return one row per trial of a campaign folder."""
    trials: dict[Path, list[TrialRecord]] = {}
    damaged: dict[Path, RecordError] = {}
    for path, found in iter_records(campaign):
        if isinstance(found, RecordError):
            damaged[path] = found
        else:
            trials.setdefault(path.parent.parent, []).append(found)
    rows = [_from_attempts(attempts, campaign) for attempts in trials.values()]
    rows += [_damaged(path, error) for path, error in damaged.items() if path.parent.parent not in trials]
    return _without_excluded(rows, campaign)


def _damaged(path: Path, error: RecordError) -> Row:
    """Return a row for a trial of which no record can be read, so that it is missed by nobody."""
    task, configuration, repeat, _attempt, _name = path.parts[-5:]
    return Row(
        task=task,
        configuration=configuration.replace("+", "[", 1) + "]",
        agent=configuration.partition("+")[0],
        dataset="unknown",
        repeat=int(repeat.removeprefix("r")) if repeat.removeprefix("r").isdecimal() else 0,
        status="damaged record",
        note=str(error),
        record=None,
        attempts=1,
        folder=path.parent,
    )


def properties(path: Path) -> list[dict[str, str]]:
    """Return the ``biabench.*`` properties of every trial item of a JUnit file, in the order of :func:`from_junit`."""
    return [found for _case, found in _cases(path)]


def from_junit(path: Path, known: Collection[Path] = ()) -> list[Row]:
    """Return one row per trial item of a JUnit file; a record that still lies where the file says is used.

    Items whose record lies in one of the ``known`` campaign folders are left out: their rows are there already.
    """
    return [
        _from_case(case, found, path)
        for case, found in _cases(path)
        if not any(found.get("record", "").startswith(f"{folder}{os.sep}") for folder in known)
    ]


def _cases(path: Path) -> list[tuple[ElementTree.Element, dict[str, str]]]:
    try:
        root = ElementTree.parse(path).getroot()  # noqa: S314 - written by pytest, which escapes what it holds
    except (OSError, ElementTree.ParseError) as error:
        raise RecordError(f"{path}: cannot be read as JUnit XML: {error}") from error
    cases = []
    for case in root.iter("testcase"):
        found = {
            str(node.get("name")).removeprefix(_PREFIX): str(node.get("value"))
            for node in case.iter("property")
            if str(node.get("name")).startswith(_PREFIX)
        }
        if "task" in found and "configuration" in found:
            cases.append((case, found))
    return cases


def _from_case(case: ElementTree.Element, found: dict[str, str], path: Path) -> Row:
    record_file = _record_file(found.get("record"), path)
    if record_file is not None:
        record = read_record(record_file)
        campaign = record_file.parents[len(Path(record.run_folder).parts)]
        siblings = (path for path in record_file.parent.parent.glob(f"attempt-*/{FILE_NAME}") if path != record_file)
        return _without_excluded([_from_attempts([record, *_readable(siblings)], campaign)], campaign)[0]
    kind, note = "unknown", ""
    for name in ("skipped", "error", "failure"):
        if (node := case.find(name)) is not None:
            kind, note = name, str(node.get("message") or "")
    return Row(
        task=found["task"],
        configuration=found["configuration"],
        agent=found.get("agent", found["configuration"]),
        dataset=found.get("dataset", "unknown"),
        repeat=int(repeat) if (repeat := found.get("repeat", "1")).isdecimal() else 1,
        status=found.get("status", kind),
        note=note,
        record=None,
        attempts=0,
        folder=None,
    )


def _readable(paths: Iterable[Path]) -> Iterator[TrialRecord]:
    for path in paths:
        with suppress(RecordError):
            yield read_record(path)


def _record_file(named: str | None, junit: Path) -> Path | None:
    if named is None:
        return None
    path = Path(named)
    if path.is_file():
        return path
    parts = path.parts
    if "runs" in parts:  # the campaign was moved together with its JUnit file
        moved = junit.parent.joinpath(*parts[len(parts) - 1 - parts[::-1].index("runs") :])
        if moved.is_file() and moved.name == FILE_NAME:
            return moved
    return None


def load(paths: Iterable[Path]) -> list[Row]:
    """Load campaign folders and JUnit files in any mix; each trial is taken once, from its record where it has one."""
    rows: dict[tuple[str, str, str, int, str], Row] = {}
    campaigns: set[Path] = set()
    for path in paths:
        if path.is_dir():
            found = from_campaign(path)
            campaigns.add(path)
        elif path.is_file():
            found = from_junit(path, campaigns)
        else:
            raise RecordError(f"{path}: no such campaign folder or JUnit file")
        for row in found:
            rows.setdefault(row.key, row)
    ran = {key[:-1] for key, row in rows.items() if row.record is not None}
    return [rows[key] for key in sorted(rows) if key[-1] or key[:-1] not in ran]
