"""Kinds of failure that a run shows, from a closed list; several may hold, and none ever enters a score.

Rules read end state, named problems, log and transcript. What they cannot see (a wrong method, an uncalibrated
threshold, a report that contradicts its files) comes from a model's judgement, with citations that were found in the
evidence.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.transcript import FILE_NAME as TRANSCRIPT
from agents.transcript import Step, read_transcript
from evaluators.problems import Refusal, shown
from evaluators.process.inspect import kind_of, walk
from evaluators.process.model import TAGS, Citation, Tag
from evaluators.process.store import newest
from evaluators.readers.text import read_text

FILE_NAME = "tags.json"
SCHEMA_VERSION = 1

_SETUP = re.compile(
    r"ModuleNotFoundError|ImportError: |No module named|command not found|Could not find a version that satisfies"
    r"|ResolvePackageNotFound|CUDA driver version is insufficient|error while loading shared libraries|GLIBC_"
)
_RETRIES = 4  # the same failing command so often is a loop
_FORMAT_CODES = {
    "ambiguous_axes", "ambiguous_columns", "ambiguous_deliverable", "axes_swapped", "duplicate_columns", "empty_file",
    "encrypted", "folder_not_file", "invalid_row", "label_too_large", "missing_columns", "no_rows", "non_finite",
    "not_a_lineage", "not_a_number", "not_a_phenotype", "not_a_table", "not_binary", "not_text", "truncated",
    "unreadable", "wrong_dtype", "wrong_shape", "wrong_unit",
}  # fmt: skip
_MADE_UP = re.compile(
    r"(?i)#[^\n]*\b(placeholder|dummy|fake|mock|made.?up|synthetic)\b[^\n]*\b(output|result|data|values?|mask|table|label)"
)
_PROMISES = re.compile(r"(?i)\b(i will|i'll|next,? i|let me|now i|going to|will now)\b[^.]*[.:…]*$")


@dataclass(frozen=True)
class Ending:
    """How a run ended, as its record says; ``problems`` are codes and places of the faults of its submission."""

    status: str
    timed_out: bool = False
    quota_exceeded: bool = False
    exit_code: int | None = None
    final_message: str | None = None
    problems: Sequence[tuple[str, str]] = ()


def tag_run(attempt: Path, ending: Ending) -> list[Tag]:
    """Decide the tags of an attempt, by rules and from the judgement that counts, and write them.

    Without any failure the one tag is ``none``.
    """
    tags = [*by_rules(attempt, ending), *_by_model(attempt)]
    kept: dict[str, Tag] = {}
    for tag in tags:
        kept.setdefault(tag.tag, tag)
    kept.pop("none", None)
    found = list(kept.values()) or [Tag(tag="none", by="rule", why="no rule and no judge names a failure")]
    text = json.dumps({"schema_version": SCHEMA_VERSION, "tags": [tag.model_dump() for tag in found]}, indent=1)
    temporary = attempt / f".{FILE_NAME}.part"
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(attempt / FILE_NAME)
    return found


def read_tags(attempt: Path) -> list[Tag]:
    """Return the stored tags of an attempt, none where it was not tagged; raise ``ValueError`` on a damaged file."""
    path = attempt / FILE_NAME
    if not path.is_file():
        return []
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return [Tag.model_validate(tag) for tag in stored["tags"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: holds no tags: {error}") from error


def by_rules(attempt: Path, ending: Ending) -> list[Tag]:
    """Return the tags that rules can tell."""
    steps = _steps(attempt)
    found = [
        *_budget(ending),
        *_setup(attempt, steps, ending),
        *_format(ending),
        *_loops(steps),
        *_premature(ending, steps),
        *_placeholder(attempt),
    ]
    return [tag for tag in found if tag.tag in TAGS]


def _tag(name: str, why: str, *citations: Citation) -> Tag:
    return Tag(tag=name, by="rule", why=why, citations=list(citations))


def _cite(file: str, quote: str) -> Citation:
    return Citation(file=file, quote=quote[:200], verified=True)


def _budget(ending: Ending) -> Iterable[Tag]:
    if ending.timed_out:
        yield _tag("budget_exhausted", "the wall-clock budget ended the run", _cite("record", "timed_out"))
    elif ending.quota_exceeded:
        yield _tag("budget_exhausted", "the output quota ended the run", _cite("record", "quota_exceeded"))


def _setup(attempt: Path, steps: Sequence[Step], ending: Ending) -> Iterable[Tag]:
    """A missing program or library: where nothing was delivered, or where most steps failed over it."""
    failed = [step for step in steps if step.kind == "tool" and step.exit_code not in (0, None)]
    hits = [(step, found) for step in failed if (found := _SETUP.search(step.output or ""))]
    if hits and (ending.status != "delivered" or len(hits) * 2 >= len(failed) > 2):
        step, found = hits[0]
        yield _tag(
            "environment_setup_failure",
            f"{len(hits)} of {len(failed)} failed steps lack a program or library",
            _cite("transcript", f"[{step.step}] {_line(step.output or '', found)}"),
        )
    elif not steps and ending.status == "crashed":
        for name in ("stderr.log", "stdout.log"):
            path = attempt / "logs" / name
            text = _tail(path)
            if found := _SETUP.search(text):
                yield _tag(
                    "environment_setup_failure", "the log ends with a missing one", _cite(name, _line(text, found))
                )
                return


def _format(ending: Ending) -> Iterable[Tag]:
    wrong = [(code, where) for code, where in ending.problems if code in _FORMAT_CODES]
    if wrong:
        code, where = wrong[0]
        yield _tag("format_violation", f"{len(wrong)} named faults of form", _cite(where or "record", code))


def _loops(steps: Sequence[Step]) -> Iterable[Tag]:
    """The same code failing again and again."""
    failures = Counter(" ".join((step.code or "").split()) for step in steps if step.exit_code not in (0, None))
    failures.pop("", None)
    if failures and (most := failures.most_common(1)[0])[1] >= _RETRIES:
        yield _tag("retry_loop", f"the same failing command {most[1]} times", _cite("transcript", most[0]))


def _premature(ending: Ending, steps: Sequence[Step]) -> Iterable[Tag]:
    """Ended by itself, without what was asked for, while still announcing work or after next to none."""
    if ending.status != "no_deliverable" or ending.timed_out or ending.quota_exceeded:
        return
    message = (ending.final_message or "").strip()
    last = message.rsplit("\n", 1)[-1]
    if message and _PROMISES.search(last):
        yield _tag("premature_end", "the closing message announces further work", _cite("record", last))
    elif not any(step.kind == "tool" for step in steps):
        yield _tag("premature_end", "ended by itself without a deliverable and without a recorded action")


def _placeholder(attempt: Path) -> Iterable[Tag]:
    """Code that says of itself that it makes data up instead of reading images."""
    for file in walk(attempt / "submission")[0]:
        if kind_of(file.name) != "code" or file.size > 1 << 20:
            continue
        try:
            with file.open() as handle:
                text = read_text(handle)
        except Refusal:
            continue
        if found := _MADE_UP.search(text):
            citation = _cite(shown(file.path, 200), _line(text, found))
            yield _tag("placeholder_or_synthetic_output", "a script says that it makes data up", citation)
            return


def _by_model(attempt: Path) -> list[Tag]:
    judgement = newest(attempt)
    if judgement is None or judgement.canary_tripped:
        return []
    return [tag for tag in judgement.tags if tag.tag in TAGS and any(one.verified for one in tag.citations)]


def _steps(attempt: Path) -> list[Step]:
    path = attempt / TRANSCRIPT
    steps: list[Step] = []
    if path.is_file():
        try:
            steps.extend(read_transcript(path))
        except ValueError:
            return steps
    return steps


def _tail(path: Path, size: int = 20_000) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - size))
        return stream.read(size).decode("utf-8", "replace")


def _line(text: str, found: re.Match[str]) -> str:
    start = text.rfind("\n", 0, found.start()) + 1
    end = text.find("\n", found.end())
    return text[start : end if end >= 0 else len(text)].strip()
