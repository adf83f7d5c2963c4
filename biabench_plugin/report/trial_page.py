"""One page per trial: what was asked, what came back beside the truth, and why it scored what it scored.

A page holds no script and loads nothing. Everything an agent wrote is escaped, or sanitised where it is rendered; a
content security policy that allows our own style sheet and embedded pictures alone stands behind that.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby, islice
from os import cpu_count
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import ValidationError

from agents.audit import FILE_NAME as AUDIT
from agents.audit import Audit as SourceAudit
from agents.relay.ledger import FILE_NAME as LEDGER
from agents.relay.ledger import Exchange, read_ledger
from agents.transcript import FILE_NAME as TRANSCRIPT
from agents.transcript import Step, read_transcript
from biabench_plugin import checkout
from biabench_plugin.billing import FILE_NAME as BILLS
from biabench_plugin.billing import cost_of
from biabench_plugin.records import FILE_NAME
from biabench_plugin.report.consistency import audit_attempt
from biabench_plugin.report.previews import Truth, drawings, preview, truth_of
from biabench_plugin.report.rows import Row
from biabench_plugin.report.sanitise import markdown_html
from biabench_plugin.report.wire_notes import notes
from biabench_plugin.source_study import read_audit
from biabench_plugin.taskspec import TaskSpec
from evaluators.previews import Preview
from evaluators.process.consistency import Audit
from evaluators.process.model import FOLDER as JUDGEMENTS
from evaluators.process.model import Judgement
from evaluators.process.rubric import load_rubric

FOLDER = "trials"
RowKey = tuple[str, str, str, int, str]  # Row.key
VERSION = "2"  # raise it when pages of the same trial should be made anew
_STEPS = 400
_REQUESTS = 200
_STEP_CHARACTERS = 6_000
_LOG_BYTES = 8_000
_STAMP = re.compile(rb"<!-- made from ([0-9a-f]{64}) -->")


@dataclass(frozen=True)
class TrialPage:
    """Where a trial's page lies, and what the audit found."""

    path: Path
    audit: Audit | None


@dataclass(frozen=True)
class Transcript:
    """The steps that a page shows; the middle of a long run is left out and counted."""

    steps: list[Step]
    left_out: int = 0
    problem: str | None = None


@dataclass(frozen=True)
class Requests:
    """The requests to a model that a page shows; the middle of a long run is left out and counted."""

    exchanges: list[Exchange]
    left_out: int = 0
    problem: str | None = None


def page_name(row: Row) -> str:
    """Return the file name of a trial's page: readable, and different for trials of the same name."""
    readable = re.sub(r"[^A-Za-z0-9.-]+", "_", f"{row.task}--{row.configuration}--r{row.repeat}").strip("_")[:120]
    return f"{readable}-{hashlib.sha256(repr(row.key).encode()).hexdigest()[:8]}.html"


def write_pages(rows: Sequence[Row], folder: Path, tasks: Mapping[str, TaskSpec]) -> dict[RowKey, TrialPage]:
    """Write the page of every trial that has a record; a page whose trial has not changed stays as it is.

    Parameters
    ----------
    rows
        Trials in the order of the report; pages link to their neighbours.
    folder
        Where pages go, beside ``index.html``.
    tasks
        Task specifications by slug. Without one a page has no pictures and no audit.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shown = [row for row in rows if row.record is not None]
    names = [page_name(row) for row in shown]
    neighbours = {
        row.key: (names[index - 1] if index else None, names[index + 1] if index + 1 < len(names) else None)
        for index, row in enumerate(shown)
    }
    template = _environment().get_template("trial.html")
    pages: dict[RowKey, TrialPage] = {}

    def make(row: Row, truth: Truth) -> tuple[Row, Preview | str | None, Audit | None]:
        task = tasks.get(row.task)
        if task is None or row.folder is None or row.record is None:
            return row, None, None
        submission = row.folder / "submission"
        audit = audit_attempt(row.folder, row.record, task.deliverables)
        return row, preview(submission, task, truth) if submission.is_dir() else None, audit

    stale: list[Row] = []
    for row, name in zip(shown, names, strict=True):
        if _stamped(folder / name) == _stamp(row, tasks.get(row.task), neighbours[row.key]):
            task = tasks.get(row.task)
            audit = (
                audit_attempt(row.folder, row.record, task.deliverables) if task and row.folder and row.record else None
            )
            pages[row.key] = TrialPage(folder / name, audit)
        else:
            stale.append(row)
    with ThreadPoolExecutor(min(4, cpu_count() or 1)) as pool:
        for _, members in groupby(sorted(stale, key=_data_of), key=_data_of):
            group = list(members)
            with _truth(group, tasks) as truth:
                for row, pictures, audit in pool.map(lambda row: make(row, truth), group):
                    path = folder / page_name(row)
                    text = _render(template, row, tasks.get(row.task), truth, pictures, audit, neighbours[row.key])
                    stamp = _stamp(row, tasks.get(row.task), neighbours[row.key])
                    _write(path, text.replace("<!-- stamp -->", f"<!-- made from {stamp} -->", 1))
                    pages[row.key] = TrialPage(path, audit)
    _remove_others(folder, set(names))
    return pages


def _write(path: Path, text: str) -> None:
    """Write a page whole or not at all; unlike a record it can be made again, so nothing waits for the disk."""
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _data_of(row: Row) -> tuple[str, str, str]:
    assert row.record is not None
    return row.task, row.dataset, row.record.dataset.truth_digest


class _Nothing:
    """A truth that is not looked for: no trial of the group has files to draw."""

    def __enter__(self) -> Truth:
        return Truth(None, None)

    def __exit__(self, *_: object) -> None: ...


def _truth(group: Sequence[Row], tasks: Mapping[str, TaskSpec]) -> Any:
    task, record = tasks.get(group[0].task), group[0].record
    if task is None or record is None or not any(row.folder and (row.folder / "submission").is_dir() for row in group):
        return _Nothing()
    return truth_of(task, record.dataset)


def _remove_others(folder: Path, names: set[str]) -> None:
    """Delete pages of trials that the report no longer holds."""
    for path in folder.glob("*.html"):
        if path.name not in names and _stamped(path) is not None:
            path.unlink()


def _stamp(row: Row, task: TaskSpec | None, neighbours: tuple[str | None, str | None]) -> str:
    """Digest of everything a page is made from, by size and time of the files."""
    files = []
    if row.folder is not None:
        for path in (
            row.folder / FILE_NAME,
            row.folder / TRANSCRIPT,
            row.folder / "tags.json",
            row.folder / LEDGER,
            row.folder / AUDIT,
            row.folder / BILLS,
            *sorted((row.folder / JUDGEMENTS).glob("*.json")),
        ):
            if path.is_file():
                stat = path.stat()
                files.append((path.name, stat.st_size, stat.st_mtime_ns))
    parts = [VERSION, checkout.version(), files, row.attempts, row.note, neighbours, task and task.label]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _stamped(path: Path) -> str | None:
    try:
        with path.open("rb") as stream:
            match = _STAMP.search(stream.read(400))
    except OSError:
        return None
    return match[1].decode() if match else None


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("biabench_plugin", "report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["score"] = lambda value: "–" if value is None else f"{value:.3f}"
    environment.filters["size"] = _size
    environment.globals["style"] = style()
    environment.globals["style_digest"] = digest(style())
    environment.globals["markdown"] = markdown_html
    return environment


def style() -> str:
    """Return the style sheet that all pages share."""
    return (Path(__file__).parent / "report.css").read_text(encoding="utf-8")


def digest(text: str) -> str:
    """Return the source expression by which a content security policy allows this inline text and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _render(
    template: Any,
    row: Row,
    task: TaskSpec | None,
    truth: Truth,
    pictures: Preview | str | None,
    audit: Audit | None,
    neighbours: tuple[str | None, str | None],
) -> str:
    folder = row.folder
    judgement = None if folder is None else latest_judgement(folder)
    text: str = template.render(
        row=row,
        record=row.record,
        task=task,
        label=task.label if task else row.task,
        preview=pictures if isinstance(pictures, Preview) else None,
        preview_problem=pictures if isinstance(pictures, str) else None,
        truth_note=truth.note,
        has_truth=truth.reference is not None,
        audit=audit,
        instruction=None if folder is None else _head(folder / "instruction.md", 40_000),
        drawings=drawings(folder / "submission") if folder and (folder / "submission").is_dir() else [],
        transcript=None if folder is None else read_steps(folder / TRANSCRIPT),
        notes=[] if row.record is None else notes(row.record),
        study=None if folder is None else _study(folder),
        requests=None if folder is None else read_requests(folder / LEDGER),
        cost=None if row.record is None else cost_of(row.record, folder),
        statements={} if judgement is None else _statements(judgement.rubric_version),
        logs=[] if folder is None else _logs(folder / "logs"),
        judgement=judgement,
        tags=[] if folder is None else _tags(folder / "tags.json"),
        previous=neighbours[0],
        following=neighbours[1],
        version=checkout.version(),
    )
    return text


def _size(value: int) -> str:
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value //= 1000
    return f"{value} GB"


def _head(path: Path, size: int) -> str | None:
    try:
        with path.open("rb") as stream:
            return stream.read(size).decode("utf-8", "replace")
    except OSError:
        return None


def _logs(folder: Path) -> list[tuple[str, str]]:
    """Return the ends of the logs, where a program says why it stopped."""
    found = []
    for name in ("stdout.log", "stderr.log"):
        path = folder / name
        if path.is_file() and (size := path.stat().st_size):
            with path.open("rb") as stream:
                stream.seek(max(0, size - _LOG_BYTES))
                found.append((name, stream.read().decode("utf-8", "replace")))
    return found


def read_steps(path: Path) -> Transcript | None:
    """Read a transcript for a page: the first and the last steps of a long one, texts shortened."""
    if not path.is_file():
        return None
    steps: list[Step] = []
    problem = None
    try:
        steps = list(islice(read_transcript(path), 100_000))
    except ValueError as error:
        problem = str(error).rpartition("/")[2]
    left_out = max(0, len(steps) - _STEPS)
    kept = steps[: _STEPS // 2] + steps[-_STEPS // 2 :] if left_out else steps
    return Transcript([_shortened(step) for step in kept], left_out, problem)


def read_requests(path: Path) -> Requests | None:
    """Read the relay's ledger for a page: the first and the last requests of a long run."""
    if not path.is_file():
        return None
    try:
        found = read_ledger(path)
    except (OSError, ValueError) as error:
        return Requests([], problem=str(error).rpartition("/")[2])
    left_out = max(0, len(found) - _REQUESTS)
    return Requests(found[: _REQUESTS // 2] + found[-_REQUESTS // 2 :] if left_out else found, left_out)


def _study(attempt: Path) -> SourceAudit | None:
    try:
        return read_audit(attempt)
    except (OSError, ValueError):
        return None  # the report's summary names damaged audits


def _statements(version: str) -> dict[int, str]:
    """Return the rubric's statements by item, of that version only: other versions say other things."""
    rubric = load_rubric()
    return {item.id: item.statement for item in rubric.items} if rubric.version == version else {}


def _shortened(step: Step) -> Step:
    def cut(text: str | None) -> str | None:
        return text if text is None or len(text) <= _STEP_CHARACTERS else text[:_STEP_CHARACTERS] + " …"

    return step.model_copy(update={"text": cut(step.text), "code": cut(step.code), "output": cut(step.output)})


def latest_judgement(attempt: Path) -> Judgement | None:
    """Return the newest judgement of an attempt that can be read."""
    return max(_readable((attempt / JUDGEMENTS).glob("*.json")), key=lambda found: found.made, default=None)


def _readable(paths: Iterable[Path]) -> Iterable[Judgement]:
    for path in sorted(paths):
        try:
            yield Judgement.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            continue


def _tags(path: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["tags"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [tag for tag in found if isinstance(tag, dict) and "tag" in tag]
