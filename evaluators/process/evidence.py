"""What a judge gets to see of a run, gathered by the same rules for every agent.

Scripts, reports, what was done (the canonical transcript, or the log where there is none), the request, a list of all
files, a digest of tables and deliverable images, and figures. Nothing of it is computed from truth: a run folder's
record, which holds the outcome, is not read here. What does not fit the budgets is named in ``left_out``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from agents.transcript import FILE_NAME, Step, read_transcript
from evaluators.model import Deliverable
from evaluators.problems import Refusal, shown
from evaluators.process.figures import Figure, choose, family_of
from evaluators.process.inspect import FileFact, Table, look, walk
from evaluators.readers.text import read_text
from evaluators.submission import SubmittedFile

PartKind = Literal["request", "inventory", "digest", "report", "code", "transcript", "text"]

_READ_BYTES = 4 << 20  # of one text file
_REPORT_CHARACTERS = 200_000  # of all reports, for the rules
# A command that only writes prose is no analysis; one that opens images is.
_OPENS_IMAGES = re.compile(
    r"imread|tifffile|skimage|cv2|imageio|\bPIL\b|czifile|nd2|zarr|aicsimage|bioio|nibabel|SimpleITK|cellpose|stardist"
    r"|openImage|IJ\.|run\(\"|ndimage|pandas|numpy",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Budgets:
    """How much of a run is shown: characters per file and in all, pictures, their longest side and bytes.

    The defaults are the published ones, except that pictures are reduced instead of dropped.
    """

    code: int = 12_000
    report: int = 8_000
    transcript: int = 12_000
    text: int = 20_000
    total: int = 60_000  # reports, transcript, code and other text together
    lists: int = 12_000  # the list of files, and the digest
    figures: int = 8
    figure_side: int = 1568
    figure_bytes: int = 8 << 20


@dataclass(frozen=True)
class Source:
    """Where the evidence on a run lies, and what its task asks for.

    ``request`` is rendered from the task, never taken from the submission. ``input_names`` are the names of the input
    files. ``input_unchanged`` tells whether the input was the same after the run, ``None`` where nobody looked.
    """

    attempt: Path
    request: str
    deliverables: Sequence[Deliverable]
    input_names: Sequence[str] = ()
    input_unchanged: bool | None = None
    budgets: Budgets = field(default_factory=Budgets)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Part(_Model):
    """One text that is shown: ``name`` is what citations call it."""

    name: str
    kind: PartKind
    text: str


class Evidence(_Model):
    """Everything a judge, or a rule, may use on one run.

    ``analysis`` says by what the run shows that images were analysed, ``None`` where nothing shows it. ``reports`` and
    ``facts`` are for the rules: whole texts and facts on all files.
    """

    parts: list[Part]
    figures: list[Figure]
    facts: list[FileFact]
    reports: dict[str, str] = Field(default_factory=dict)
    input_names: list[str] = Field(default_factory=list)
    input_unchanged: bool | None = None
    analysis: str | None = None
    has_transcript: bool = False
    code_files: int = 0
    left_out: list[str] = Field(default_factory=list)
    budgets: dict[str, int] = Field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Digest of all of it."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def gather(source: Source, *, decode: bool = True) -> Evidence:
    """Gather the evidence on a run in this process; :func:`gather_bounded` does so in a bounded one."""
    budgets = source.budgets
    submission = source.attempt / "submission"
    files, passed_over = walk(submission)
    facts, _ = look(submission, source.deliverables, decode=decode)
    left_out = [f"file {line}" for line in passed_over]
    texts = _texts(files, facts)
    reports = _within({file.path: text for file, text in texts["report"]}, _REPORT_CHARACTERS)
    steps = _steps(source.attempt, left_out)
    transcript = _transcript(steps) if steps else _log(source.attempt)
    order = " ".join([*reports.values(), transcript, *(step.code or "" for step in steps)])

    room = _Room(budgets.total, left_out)
    shown_reports = [room.part(_name(file), "report", text, budgets.report) for file, text in texts["report"]]
    shown_transcript = [room.part("transcript", "transcript", transcript, budgets.transcript, head=0.6)]
    code = [(_name(file), text) for file, text in _by_relevance(texts["code"], order)]
    if commands := _commands(steps):
        code.insert(0, ("commands", commands))
    shown_code = [room.part(name, "code", text, budgets.code) for name, text in code]
    shown_text = [room.part(_name(file), "text", text, budgets.text) for file, text in texts["text"]]

    lists = [
        _listed("inventory", "inventory", _inventory(facts), budgets.lists, left_out),
        _listed("digest", "digest", _digest(facts), budgets.lists, left_out),
    ]
    deliverables = {file.path for file, fact in zip(files, facts, strict=True) if fact.deliverable is not None}
    figures, hidden = (
        ([], ["figures: not decoded"])
        if not decode
        else choose(
            files, deliverables, order, most=budgets.figures, side=budgets.figure_side, most_bytes=budgets.figure_bytes
        )
    )
    request = Part(name="request", kind="request", text=source.request)
    parts = [*lists, *shown_reports, *shown_code, *shown_transcript, *shown_text]
    return Evidence(
        parts=[request, *(part for part in parts if part is not None)],
        figures=figures,
        facts=facts,
        reports=reports,
        input_names=[shown(name) for name in sorted(source.input_names)],
        input_unchanged=source.input_unchanged,
        analysis=_analysis(facts, steps),
        has_transcript=bool(steps),
        code_files=len(texts["code"]),
        left_out=[*left_out, *hidden],
        budgets=asdict(budgets),
    )


def gather_bounded(source: Source) -> Evidence:
    """Gather the evidence in a child process with a bound on memory and time.

    Where decoding brings the child down, the evidence is gathered without opening images and tables, and says so.
    """
    from evaluators.bounded import gather_evidence

    return gather_evidence(source)


class _Room:
    """The characters that are left for texts; what does not fit is noted."""

    def __init__(self, total: int, left_out: list[str]) -> None:
        self._left = total
        self._left_out = left_out

    def part(self, name: str, kind: PartKind, text: str, limit: int, head: float = 1.0) -> Part | None:
        if not text.strip():
            return None
        allowed = min(limit, self._left)
        if allowed < 200:
            self._left_out.append(f"{kind} {name}: all {len(text):,} characters, beyond the total of texts")
            return None
        if len(text) > allowed:
            self._left_out.append(f"{kind} {name}: {len(text) - allowed:,} of {len(text):,} characters")
        cut = _cut(text, allowed, head)
        self._left -= min(len(text), allowed)
        return Part(name=name, kind=kind, text=cut)


def _cut(text: str, limit: int, head: float) -> str:
    if len(text) <= limit:
        return text
    begin = int(limit * head)
    end = limit - begin
    tail = text[len(text) - end :] if end else ""
    return f"{text[:begin]}\n[… {len(text) - limit:,} characters are not shown …]\n{tail}"


def _listed(name: str, kind: PartKind, lines: list[str], limit: int, left_out: list[str]) -> Part:
    kept, size = [], 0
    for line in lines:
        size += len(line) + 1
        if size > limit:
            break
        kept.append(line)
    if len(kept) < len(lines):
        left_out.append(f"{name}: {len(lines) - len(kept)} of {len(lines)} lines")
        kept.append(f"[… {len(lines) - len(kept)} lines are not shown …]")
    return Part(name=name, kind=kind, text="\n".join(kept))


def _within(texts: dict[str, str], limit: int) -> dict[str, str]:
    kept = {}
    for name, text in texts.items():
        kept[shown(name, 200)] = text[:limit]
        limit = max(0, limit - len(text))
    return kept


def _name(file: SubmittedFile) -> str:
    return shown(file.path, 200)


def _texts(files: Sequence[SubmittedFile], facts: Sequence[FileFact]) -> dict[str, list[tuple[SubmittedFile, str]]]:
    """Read reports, code and other texts that are no deliverables."""
    found: dict[str, list[tuple[SubmittedFile, str]]] = {"report": [], "code": [], "text": []}
    for file, fact in zip(files, facts, strict=True):
        if fact.kind not in found or fact.deliverable is not None:
            continue
        try:
            with file.open() as handle:
                text = read_text(handle, _READ_BYTES, head=True)
        except Refusal as refusal:
            fact.problem = fact.problem or shown(refusal.message)
            continue
        kind = "report" if fact.kind == "text" and _is_prose_report(file.name) else fact.kind
        found[kind].append((file, _notebook(text) if file.name.lower().endswith(".ipynb") else text))
    return found


def _is_prose_report(name: str) -> bool:
    return bool(re.fullmatch(r"(?i).*(report|readme|summary|methods).*\.txt", name))


def _notebook(text: str) -> str:
    """Return the sources of a notebook's cells; its outputs hold pictures as text."""
    try:
        cells = json.loads(text)["cells"]
        return "\n\n".join(f"# [{cell['cell_type']}]\n{''.join(cell['source'])}" for cell in cells)
    except (ValueError, KeyError, TypeError):
        return text


def _by_relevance(code: list[tuple[SubmittedFile, str]], said: str) -> list[tuple[SubmittedFile, str]]:
    """Order scripts: those that log, report or commands name, then those that they use, then the others."""
    named = {file.path for file, _ in code if re.search(rf"\b{re.escape(file.stem)}\b", said)}
    using = " ".join(text for file, text in code if file.path in named)

    def tier(file: SubmittedFile) -> int:
        if file.path in named:
            return 0
        return 1 if re.search(rf"\b{re.escape(file.stem)}\b", using) else 2

    return sorted(code, key=lambda one: (tier(one[0]), one[0].depth, one[0].path))


def _steps(attempt: Path, left_out: list[str]) -> list[Step]:
    path = attempt / FILE_NAME
    steps: list[Step] = []
    if path.is_file():
        try:
            steps.extend(read_transcript(path))
        except ValueError as error:
            left_out.append(f"transcript after step {len(steps)}: {shown(str(error), 300)}")
    return steps


def _transcript(steps: Iterable[Step]) -> str:
    """Write steps as text: what was said in full up to 700 characters, outputs with their two ends."""
    lines = []
    for step in steps:
        head = f"[{step.step}] {step.kind}"
        if step.kind == "tool":
            ending = "" if step.exit_code is None else f", exit code {step.exit_code}"
            lines.append(f"{head} {step.tool or ''}{ending}: {_ends(step.code or '', 350, 150)}")
            if step.output:
                lines.append(f"    output: {_ends(_clean(step.output), 250, 250)}")
            if step.files_written:
                lines.append(f"    wrote: {', '.join(step.files_written[:20])}")
            if step.images_viewed:
                lines.append(f"    viewed: {', '.join(step.images_viewed[:20])}")
        else:
            lines.append(f"{head}: {_ends(_clean(step.text or ''), 700, 0)}")
    return "\n".join(lines)


def _ends(text: str, head: int, tail: int) -> str:
    if len(text) <= head + tail:
        return text
    return f"{text[:head]} [… {len(text) - head - tail:,} characters …] {text[len(text) - tail :] if tail else ''}"


def _commands(steps: Iterable[Step]) -> str:
    """Put the code that was run into one text, in the order of the run."""
    return "\n\n".join(f"# step {step.step}, {step.tool or 'tool'}\n{step.code}" for step in steps if step.code)


_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PROGRESS = re.compile(r"^\s*\S{0,40}\s*\d{1,3}%\s?[|\[█#=▏-].*$|^.*\b\d+(\.\d+)?\s?(it/s|s/it|[kM]i?B/s)\b.*$")


def _clean(text: str) -> str:
    """Take terminal colours, overwritten lines and progress bars out of a log, and fold repeated lines."""
    lines = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    kept: list[str] = []
    repeated = 0
    for line in lines:
        if _PROGRESS.match(line) and len(line) < 400:
            continue
        if kept and line == kept[-1]:
            repeated += 1
            continue
        if repeated:
            kept.append(f"[the line above {repeated} more times]" if kept[-1].strip() else "")
            repeated = 0
        kept.append(line)
    return "\n".join(kept).strip("\n")


def _log(attempt: Path) -> str:
    """Return what the agent printed, where there is no transcript."""
    texts = []
    for name in ("stdout.log", "stderr.log"):
        path = attempt / "logs" / name
        if path.is_file() and path.stat().st_size:
            with path.open("rb") as stream:
                head = stream.read(_READ_BYTES)
                stream.seek(max(len(head), path.stat().st_size - _READ_BYTES))
                tail = stream.read(_READ_BYTES)
            text = _clean((head + tail).decode("utf-8", "replace"))
            if text.strip():
                texts.append(f"--- {name}\n{text}")
    return "\n".join(texts)


def _analysis(facts: Sequence[FileFact], steps: Iterable[Step]) -> str | None:
    """Say by what a run shows that images were analysed; words and scripts that nobody ran do not."""
    for fact in facts:
        if any(table.rows for table in fact.tables):
            return f"table {fact.path}"
        if fact.picture is not None and min(fact.picture.shape[-2:], default=0) >= 16 and not fact.picture.blank:
            return f"image {fact.path}"
    for step in steps:
        if step.kind == "tool" and step.exit_code in (0, None) and _OPENS_IMAGES.search(step.code or ""):
            return f"code run in step {step.step}"
    return None


def _inventory(facts: Sequence[FileFact]) -> list[str]:
    """List all files, large families folded."""
    families: dict[str, list[FileFact]] = {}
    for fact in facts:
        families.setdefault(family_of(fact.path), []).append(fact)
    lines = [f"{len(facts)} files, {sum(fact.size for fact in facts):,} bytes"]
    for name, members in families.items():
        lines += [_file_line(fact) for fact in (members if len(members) <= 4 else members[:2])]
        if len(members) > 4:
            sizes = sorted(fact.size for fact in members)
            lines.append(f"... {len(members) - 2} more named {name}, {sizes[0]:,} to {sizes[-1]:,} bytes")
    return lines


def _file_line(fact: FileFact) -> str:
    words = [fact.path, f"{fact.size:,} bytes"]
    if picture := fact.picture:
        words.append("x".join(map(str, picture.shape)) + f" {picture.dtype or ''} {picture.bits or '?'} bit")
        words += [picture.compression] if picture.compression else []
        words.append(f"{picture.dots_per_inch:g} dpi" if picture.dots_per_inch else "no dpi stated")
        words += [f"pixel size: {picture.pixel_size}"] if picture.pixel_size else []
    if fact.tables:
        words.append(f"{len(fact.tables[0].columns)} columns, {fact.tables[0].rows} rows")
    if fact.deliverable:
        words.append(f"deliverable {fact.deliverable}")
    if fact.problem:
        words.append(f"PROBLEM: {fact.problem}")
    return "; ".join(words)


def _digest(facts: Sequence[FileFact]) -> list[str]:
    """Describe what deliverables and tables hold; of families the first files and their ranges."""
    groups: dict[str, list[FileFact]] = {}
    for fact in facts:
        if fact.deliverable is not None:
            groups.setdefault(f"deliverable {fact.deliverable}", []).append(fact)
        elif fact.tables:
            groups.setdefault(f"table {family_of(fact.path)}", []).append(fact)
    lines = []
    for name, members in sorted(groups.items()):
        lines.append(f"{name}: {len(members)} file{'s' if len(members) > 1 else ''}")
        for fact in members[:3]:
            lines += [f"  {fact.path}", *(f"    {line}" for line in _contents(fact))]
        lines += _ranges(members)
    return lines


def _contents(fact: FileFact) -> list[str]:
    if fact.problem:
        return [f"problem: {fact.problem}"]
    if picture := fact.picture:
        words = [f"shape {'x'.join(map(str, picture.shape))}, {picture.dtype}"]
        words += [f"values {picture.low:g} to {picture.high:g}"] if picture.low is not None else []
        words += [f"{picture.labels} labels"] if picture.labels is not None else []
        words += [f"{picture.recurring:.0%} of labels in two frames or more"] if picture.recurring is not None else []
        return [", ".join(words)]
    return [line for table in fact.tables[:4] for line in _table_lines(table)]


def _table_lines(table: Table) -> list[str]:
    named = f"sheet {table.sheet}: " if table.sheet else ""
    rows = "more than can be counted" if table.rows < 0 else str(table.rows)
    lines = [f"{named}{len(table.columns)} columns, {rows} rows"]
    for column in table.columns:
        lines.append(f"  {column.name}: " + ("text" if column.low is None else f"{column.low:g} to {column.high:g}"))
    lines += [f"  row: {' | '.join(row)}" for row in table.first]
    if table.recurring is not None:
        lines.append(f"  {table.recurring:.0%} of track identifiers in two frames or more")
    return lines


def _ranges(members: Sequence[FileFact]) -> list[str]:
    """Sum up a family of which not every file is described."""
    if len(members) <= 3:
        return []
    values: list[tuple[str, Callable[[FileFact], float | None]]] = [
        ("labels", lambda fact: fact.picture.labels if fact.picture else None),
        ("rows", lambda fact: fact.tables[0].rows if fact.tables else None),
    ]
    lines = []
    for name, value in values:
        found = [number for fact in members if (number := value(fact)) is not None]
        if found:
            lines.append(f"  {name} in {len(found)} of {len(members)} files: {min(found):g} to {max(found):g}")
    return [*lines, f"  ({len(members) - 3} files are not described one by one)"]
