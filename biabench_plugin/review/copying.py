"""Make the blinded copy: what a reviewer needs of each drawn run, and nothing that tells who made it.

Only what is listed here is copied (instruction, transcript or logs, submission): records, scores, judgements, ledgers
and tags never are. Text has telling names replaced; images are drawn anew as PNG, which leaves all metadata behind,
with the facts on the original beside them. Files are stored by number, so that no name from an agent becomes a path.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from agents.transcript import FILE_NAME as TRANSCRIPT
from agents.transcript import Step, read_transcript
from biabench_plugin import checkout
from biabench_plugin.records import write_atomically
from biabench_plugin.report.rows import Row, from_campaign
from biabench_plugin.review.blinding import Blinding
from biabench_plugin.review.draw import Candidate, draw
from biabench_plugin.review.model import (
    COPY,
    KEY_FILE,
    REVIEW_FILE,
    BlindedRun,
    CopiedFile,
    Key,
    KeyEntry,
    Kind,
    Review,
    ReviewError,
    ReviewItem,
)
from biabench_plugin.review.preview import IMAGES, TABLES, Previewer
from biabench_plugin.taskspec import TaskSpec
from evaluators.model import Content
from evaluators.submission import Submission

CODE = (".py", ".ipynb", ".groovy", ".ijm", ".java", ".js", ".jl", ".m", ".r", ".sh", ".bsh", ".cpp", ".c")
_REPORTS = (".md", ".rst", ".html", ".htm", ".tex")
_TEXT_TABLES = (".csv", ".tsv")
_TEXTS = (".txt", ".log", ".json", ".jsonl", ".yaml", ".yml", ".xml", ".ini", ".toml")
_PICTURES_NOT_SHOWN = (".pdf", ".eps", ".ps")
_MAX_TEXT = 8 << 20  # bytes of one text file; of a longer one its head and its tail
_MAX_SVG = 20 << 20
_MAX_FILES = 3000  # of one run
_MAX_PER_FAMILY = 24  # pictures that differ only in their numbers
_LABELS = {Content.LABEL_IMAGE, Content.LABEL_STACK, Content.BINARY_IMAGE}

Items = Callable[[TaskSpec], Sequence[ReviewItem]]


def prepare(
    campaign: Path,
    folder: Path,
    tasks: Mapping[str, TaskSpec],
    items_of: Items,
    rubric_version: str,
    *,
    sample: int,
    seed: int,
    synthetic: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> Key:
    """Draw runs of a campaign and write ``folder/copy`` (for reviewers) and ``folder/key.json`` (for the operator).

    Synthetic agents, which fix the ends of the scale, take part only with ``synthetic`` or where there is no other.

    Raises
    ------
    ReviewError
        There is a review already, or no run to draw, or the sample is too small.
    """
    if (folder / KEY_FILE).exists() and (folder / COPY / REVIEW_FILE).exists():
        raise ReviewError(f"{folder}: already holds a review; choose another folder")
    rows, left_out = _eligible(campaign, tasks, synthetic)
    try:
        chosen = [rows[i] for i in draw([_candidate(row) for row in rows], sample, seed)]
    except ValueError as error:
        raise ReviewError(f"{campaign}: {error}") from error
    blinding = _blinding(rows, campaign)
    partial = folder / f"{COPY}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(folder / COPY, ignore_errors=True)  # left by a process that was cut off: nobody has answered it
    runs: list[BlindedRun] = []
    entries: list[KeyEntry] = []
    items: dict[int, ReviewItem] = {}
    with Previewer() as previewer:
        for number, row in enumerate(chosen, 1):
            identifier = f"R{number:02d}"
            task = tasks[row.task]
            progress(f"{identifier} of {len(chosen)}: {task.label}")
            selected = items_of(task)
            items |= {item.number: item for item in selected}
            copier = _Copier(partial, identifier, task, blinding, previewer)
            runs.append(copier.run(row, [item.number for item in selected]))
            entries.append(_entry(identifier, row))
    digest = hashlib.sha256(json.dumps([rubric_version, [e.model_dump(mode="json") for e in entries]]).encode())
    review = Review(
        id=digest.hexdigest()[:16], rubric_version=rubric_version, items=dict(sorted(items.items())), runs=runs
    )
    key = Key(review=review.id, made=datetime.now(UTC), sample=sample, seed=seed, entries=entries, left_out=left_out)
    write_atomically(partial / REVIEW_FILE, review.model_dump_json(indent=1) + "\n")
    write_atomically(folder / KEY_FILE, key.model_dump_json(indent=1) + "\n")
    (folder / KEY_FILE).chmod(0o600)
    partial.rename(folder / COPY)
    return key


def _eligible(campaign: Path, tasks: Mapping[str, TaskSpec], synthetic: bool) -> tuple[list[Row], list[str]]:
    """Return the runs that can be drawn, in a stable order, and say which are left out."""
    rows = sorted(from_campaign(campaign), key=lambda row: row.key)
    if not rows:
        raise ReviewError(f"{campaign}: holds no run; expected a campaign folder with runs/")
    counting = [row for row in rows if row.counts and row.folder is not None]
    left_out = [f"{len(rows) - len(counting)} runs that do not count (refused, faults of the host)"]
    known = [row for row in counting if row.task in tasks]
    left_out += [f"{len(counting) - len(known)} runs of tasks that are not at hand"]
    real = [row for row in known if row.record is not None and not row.record.synthetic]
    chosen = known if synthetic or not real else real
    left_out += [f"{len(known) - len(chosen)} runs of synthetic agents"]
    if not chosen:
        raise ReviewError(f"{campaign}: none of its {len(rows)} runs can be reviewed: {'; '.join(left_out)}")
    return chosen, [line for line in left_out if not line.startswith("0 ")]


def who(row: Row) -> str:
    """Return the agent of a run as a reader tells agents apart: its label where it has one."""
    return row.configuration.partition("[")[0]


def _candidate(row: Row) -> Candidate:
    return Candidate(agent=who(row), task=row.task, configuration=row.configuration)


def _blinding(rows: Iterable[Row], campaign: Path) -> Blinding:
    names: set[str] = set()
    for row in rows:
        names |= {row.agent, who(row)}
        if row.record is not None and row.record.model:
            names |= {row.record.model, row.record.model.rpartition("/")[2]}
    return Blinding(names, {str(campaign), str(campaign.resolve()), str(checkout.ROOT)})


def _entry(identifier: str, row: Row) -> KeyEntry:
    assert row.record is not None
    return KeyEntry(
        id=identifier,
        run_folder=row.record.run_folder,
        trial=row.record.trial,
        task=row.task,
        agent=who(row),
        configuration=row.configuration,
        repeat=row.repeat,
        attempt=row.record.attempt,
        outcome=row.outcome,
    )


class _Copier:
    """Copies one run."""

    def __init__(self, copy: Path, identifier: str, task: TaskSpec, blinding: Blinding, previewer: Previewer) -> None:
        self._copy, self._id, self._task = copy, identifier, task
        self._blinding, self._previewer = blinding, previewer
        self._files: list[CopiedFile] = []
        self._left_out: list[str] = []
        (copy / "runs" / identifier).mkdir(parents=True)

    def run(self, row: Row, items: list[int]) -> BlindedRun:
        """Copy what the run left and describe it."""
        assert row.folder is not None
        self._text_file(row.folder / "instruction.md", "instruction.md", "instruction")
        self._logs(row)
        self._submission(row.folder / "submission")
        return BlindedRun(
            id=self._id,
            task=self._task.slug,
            label=self._task.label,
            items=items,
            files=self._files,
            left_out=[self._blinding.text(line) for line in self._left_out],
        )

    def _logs(self, row: Row) -> None:
        """Copy the transcript, or else the raw logs, whose form alone can tell the agent."""
        assert row.folder is not None
        logs = [row.folder / "logs" / "stdout.log", row.folder / "logs" / "stderr.log"]
        transcript = row.folder / TRANSCRIPT
        if transcript.is_file():
            try:
                text = "\n".join(map(_step, read_transcript(transcript)))
            except ValueError as error:
                self._left_out.append(f"transcript: damaged, so the raw logs stand for it ({error})")
            else:
                if text:
                    self._text(text, "transcript", "log")
                    self._left_out.append("logs/stdout.log: the transcript tells the same without the agent's own form")
                    logs = logs[1:]
        elif row.record is not None and row.record.final_message:
            self._text(row.record.final_message, "closing message", "log")
        for log in logs:
            if log.is_file() and log.stat().st_size:
                self._text_file(log, f"logs/{log.name}", "log")

    def _submission(self, folder: Path) -> None:
        found = Submission(folder, self._task.deliverables)
        deliverables = {
            file.path: deliverable
            for deliverable in self._task.deliverables
            for file in found.candidates(deliverable.id)
        }
        paths = list(self._walk(folder))
        hidden = _beyond_family(paths)
        for path in paths:
            name = path.as_posix()
            deliverable = deliverables.get(name)
            label = f"deliverable {deliverable.id}" if deliverable is not None else ""
            labels = (deliverable is not None and deliverable.content in _LABELS) or (
                deliverable is None and re.search(r"label|mask|segment", name.lower()) is not None
            )
            self._one(folder / path, name, label, labels, shown=path not in hidden)

    def _walk(self, folder: Path) -> Iterator[PurePosixPath]:
        """Yield regular files in the order of their paths; say what is not one."""
        count = 0
        for where, folders, names in os.walk(folder, onerror=self._unreadable):
            folders.sort()
            for name in sorted([*names, *(each for each in folders if (Path(where) / each).is_symlink())]):
                path = Path(where) / name
                inside = PurePosixPath(path.relative_to(folder).as_posix())
                if not stat.S_ISREG(path.lstat().st_mode):
                    self._left_out.append(f"{_printable(inside.as_posix())}: a link or special file, not followed")
                elif count >= _MAX_FILES:
                    self._left_out.append(f"more than {_MAX_FILES} files: the rest is not listed")
                    return
                else:
                    count += 1
                    yield inside

    def _unreadable(self, error: OSError) -> None:
        self._left_out.append(f"{_printable(Path(str(error.filename)).name)}/: cannot be listed: {error.strerror}")

    def _one(self, source: Path, name: str, label: str, labels: bool, *, shown: bool) -> None:
        suffix = source.suffix.lower()
        if suffix in CODE:
            self._text_file(source, name, "code", label)
        elif suffix in _REPORTS:
            self._text_file(source, name, "report", label)
        elif suffix in _TEXT_TABLES:
            self._text_file(source, name, "table", label)
        elif suffix == ".svg":
            self._svg(source, name, label)
        elif suffix in IMAGES and not shown:
            self._add(
                name, "figure", _size(source), label, None, f"one of many alike; {_MAX_PER_FAMILY} of them are shown"
            )
        elif suffix in IMAGES:
            self._preview(source, name, "figure", label, labels)
        elif suffix in TABLES:
            self._preview(source, name, "table", label, labels)
        elif suffix in _PICTURES_NOT_SHOWN:
            self._add(
                name, "figure", _size(source), _join(label, suffix[1:].upper()), None, "kept as a file; not shown"
            )
        elif suffix in _TEXTS or _looks_like_text(source):
            self._text_file(source, name, "log" if suffix == ".log" else "text", label)
        else:
            self._add(name, "other", _size(source), label, None, "no text and no image: not shown")

    def _text_file(self, source: Path, name: str, kind: Kind, label: str = "") -> None:
        size = _size(source)
        try:
            with source.open("rb") as stream:
                data = stream.read(_MAX_TEXT)
                note = ""
                if size > _MAX_TEXT:
                    stream.seek(size - _MAX_TEXT // 2)
                    data = data[: _MAX_TEXT // 2] + b"\n[\xe2\x80\xa6 not copied \xe2\x80\xa6]\n" + stream.read()
                    note = f"the middle is left out: {size - _MAX_TEXT} of {size} bytes"
        except OSError as error:
            self._add(name, kind, size, label, None, f"cannot be read: {error.strerror}")
            return
        text = _decoded(data)
        if source.suffix.lower() == ".ipynb":
            text = _notebook(text)
        self._text(text, name, kind, size=size, label=label, note=note)

    def _text(
        self, text: str, name: str, kind: Kind, *, size: int | None = None, label: str = "", note: str = ""
    ) -> None:
        stored = self._stored(".txt")
        (self._copy / stored).write_text(self._blinding.text(text), encoding="utf-8", errors="replace")
        lines = text.count("\n") + (not text.endswith("\n"))
        self._add(
            name,
            kind,
            len(text.encode("utf-8", "replace")) if size is None else size,
            _join(label, f"{lines} line{'' if lines == 1 else 's'}"),
            stored,
            note,
        )

    def _svg(self, source: Path, name: str, label: str) -> None:
        size = _size(source)
        if size > _MAX_SVG:
            self._add(name, "figure", size, label, None, "too large to show")
            return
        stored = self._stored(".svg")
        text = self._blinding.text(_decoded(source.read_bytes()))
        (self._copy / stored).write_text(text, encoding="utf-8", errors="replace")
        self._add(name, "figure", size, _join(label, "SVG, vector graphics"), stored, "")

    def _preview(self, source: Path, name: str, kind: Kind, label: str, labels: bool) -> None:
        stored = self._stored(".txt" if kind == "table" else ".png")
        target = self._copy / stored
        made = self._previewer.make(source, target, labels)
        facts = self._blinding.text(_join(label, made.get("facts", "")))
        if "failure" in made:
            target.unlink(missing_ok=True)
            self._add(name, kind, _size(source), facts, None, f"not shown: {self._blinding.text(made['failure'])}")
            return
        if kind == "table":
            target.write_text(self._blinding.text(target.read_text(encoding="utf-8")), encoding="utf-8")
        self._add(name, kind, _size(source), facts, stored, made.get("note", ""))

    def _stored(self, suffix: str) -> str:
        return f"runs/{self._id}/{len(self._files) + 1}{suffix}"

    def _add(self, name: str, kind: Kind, size: int, facts: str, stored: str | None, note: str) -> None:
        self._files.append(
            CopiedFile(
                number=len(self._files) + 1,
                path=self._blinding.path(_printable(name)),
                kind=kind,
                size=size,
                facts=facts,
                stored=stored,
                note=note,
            )
        )


def _join(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _printable(name: str) -> str:
    """Return a name from an agent as text without control characters, whatever bytes it has."""
    text = os.fsencode(name).decode("utf-8", "replace")
    return "".join(character if character.isprintable() else "�" for character in text)


def _decoded(data: bytes) -> str:
    for mark, encoding in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig")):
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    return data.decode("utf-8", "replace").replace("\0", "�")


def _looks_like_text(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            head = stream.read(8192)
    except OSError:
        return False
    if not head or b"\0" in head:
        return not head
    try:
        head[: max(len(head) - 3, 1)].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _beyond_family(paths: Iterable[PurePosixPath]) -> set[PurePosixPath]:
    """Return the pictures that are not shown because many others differ from them in their numbers only."""
    families: dict[tuple[str, str], list[PurePosixPath]] = {}
    for path in paths:
        if path.suffix.lower() in IMAGES:
            families.setdefault((str(path.parent), re.sub(r"[0-9]+", "#", path.name)), []).append(path)
    hidden: set[PurePosixPath] = set()
    for members in families.values():
        if (count := len(members)) > _MAX_PER_FAMILY:
            shown = {members[round(i * (count - 1) / (_MAX_PER_FAMILY - 1))] for i in range(_MAX_PER_FAMILY)}
            hidden |= set(members) - shown
    return hidden


def _step(step: Step) -> str:
    """Return a step of a transcript as text; the tool's own name would tell the agent."""
    at = "" if step.at is None else f" · {step.at:.1f} s"
    kinds = {"tool": "tool call", "final": "closing message"}
    lines = [f"── step {step.step}{at} · {kinds.get(step.kind, step.kind)}"]
    lines += [part for part in (step.text, step.code) if part]
    if step.exit_code is not None:
        lines.append(f"exit status {step.exit_code}")
    if step.output:
        lines += ["output:" + (" (shortened)" if step.shortened else ""), step.output]
    for title, values in (("files written", step.files_written), ("images viewed", step.images_viewed)):
        lines += [f"{title}: {', '.join(values)}"] if values else []
    for title, values in (("addresses fetched", step.urls), ("searches", step.queries)):
        lines += [f"{title}: {', '.join(values)}"] if values else []
    return "\n".join(lines) + "\n"


def _notebook(text: str) -> str:
    """Return a notebook's cells and printed output as text; the raw file where it is no notebook."""
    try:
        cells = json.loads(text)["cells"]
        parts = [part for cell in cells for part in _cell(cell)]
    except (ValueError, KeyError, TypeError, AttributeError):
        return text
    return "\n".join(parts) + "\n"


def _cell(cell: dict[str, object]) -> Iterator[str]:
    def joined(value: object) -> str:
        return "".join(map(str, value)) if isinstance(value, list) else str(value or "")

    yield f"# %% [{cell.get('cell_type', 'cell')}]"
    yield joined(cell.get("source"))
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else []:
        yield "# output:"
        if text := joined(output.get("text") or output.get("data", {}).get("text/plain")):
            yield text
        if any(str(kind).startswith("image/") for kind in output.get("data", {})):
            yield "[a picture inside the notebook: not shown]"
