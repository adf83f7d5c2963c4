"""The files of a review: what the reviewer gets (``copy/``), and the key that only the operator has."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

REVIEW_FILE = "review.json"  # in the copy
KEY_FILE = "key.json"  # beside the copy, never in it
COPY = "copy"
ANSWERS = "answers"  # in the copy; one file per reviewer
SCHEMA_VERSION = 1

Kind = Literal["instruction", "report", "figure", "table", "code", "log", "text", "other"]
Answer = Literal["yes", "no", "skip"]
SkipReason = Literal["cannot_tell", "does_not_apply"]


class ReviewError(ValueError):
    """A review cannot be made or read; the message says which file and what to do."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ReviewItem(_Model):
    """A rubric item as the reviewer reads it; ``general`` ones belong to every task."""

    number: int
    section: str
    title: str
    general: bool = True
    severity: str
    weight: float
    statement: str
    evidence: str = ""
    absence: str = ""
    unless: str | None = None


class CopiedFile(_Model):
    """One file of a run as the reviewer sees it.

    ``path`` is where the agent put it, with telling names hidden; ``stored`` is the file in the copy, ``None`` where
    only the entry is shown; ``facts`` describe the original; ``note`` says what differs from it or why it is not shown.
    """

    number: int
    path: str
    kind: Kind
    size: int
    facts: str = ""
    stored: str | None = Field(default=None, pattern=r"^runs/R[0-9]+/[0-9]+\.(txt|png|svg)$")
    note: str = ""


class BlindedRun(_Model):
    """A run without anything that tells who made it."""

    id: str = Field(pattern=r"^R[0-9]+$")
    task: str
    label: str
    items: list[int]
    files: list[CopiedFile]
    left_out: list[str] = Field(default_factory=list)


class Review(_Model):
    """All that the page shows, apart from the files."""

    schema_version: int = SCHEMA_VERSION
    id: str
    rubric_version: str
    items: dict[int, ReviewItem]
    runs: list[BlindedRun]

    def run(self, identifier: str) -> BlindedRun:
        """Return a run; raise ``KeyError`` for one that is not part of the review."""
        for run in self.runs:
            if run.id == identifier:
                return run
        raise KeyError(identifier)


class KeyEntry(_Model):
    """Which run hides behind a blinded id. ``run_folder`` is relative to the campaign."""

    id: str
    run_folder: str
    trial: str
    task: str
    agent: str
    configuration: str
    repeat: int
    attempt: int
    outcome: float | None


class Key(_Model):
    """The operator's side of a review."""

    schema_version: int = SCHEMA_VERSION
    review: str
    made: datetime
    sample: int
    seed: int
    entries: list[KeyEntry]
    left_out: list[str] = Field(default_factory=list)


class GivenAnswer(_Model):
    """What a reviewer said about one item of one run; ``answer`` is ``None`` while there is only a note."""

    answer: Answer | None = None
    reason: SkipReason | None = None
    note: str = Field(default="", max_length=10_000)
    at: datetime


class Answers(_Model):
    """All answers of one reviewer: run id, then item number."""

    schema_version: int = SCHEMA_VERSION
    review: str
    reviewer: str
    answers: dict[str, dict[int, GivenAnswer]] = Field(default_factory=dict)


def read_review(copy: Path) -> Review:
    """Read the blinded copy's description; raise :class:`ReviewError` that names the file."""
    return _read(Review, copy / REVIEW_FILE)


def read_key(folder: Path) -> Key:
    """Read the key of a review folder; raise :class:`ReviewError` that names the file."""
    return _read(Key, folder / KEY_FILE)


def read_answers(path: Path) -> Answers:
    """Read one reviewer's answers; raise :class:`ReviewError` that names the file."""
    return _read(Answers, path)


_M = TypeVar("_M", bound=BaseModel)


def _read(kind: type[_M], path: Path) -> _M:
    try:
        found = kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ReviewError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        raise ReviewError(f"{path}: is no {kind.__name__.lower()} of this version: {where}: {fault['msg']}") from error
    version = getattr(found, "schema_version", SCHEMA_VERSION)
    if version > SCHEMA_VERSION:
        raise ReviewError(f"{path}: schema {version} is newer than {SCHEMA_VERSION}; update biabench")
    return found
