"""Judgements on disk: one immutable file each, in the folder of the attempt that was judged."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pydantic import ValidationError

from evaluators.process.model import FOLDER, Judgement
from evaluators.process.views import RULES, ProcessView, view

SCHEMA_VERSION = 1


class JudgementError(ValueError):
    """A judgement on disk cannot be read; the message names the file."""


def read_judgement(path: Path) -> Judgement:
    """Read a judgement; raise :class:`JudgementError` that names the file when it is damaged or newer."""
    try:
        judgement = Judgement.model_validate_json(path.read_bytes())
    except OSError as error:
        raise JudgementError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise JudgementError(
            f"{path}: is no judgement of schema {SCHEMA_VERSION}: {error.errors()[0]['msg']}"
        ) from error
    if judgement.schema_version > SCHEMA_VERSION:
        raise JudgementError(f"{path}: schema {judgement.schema_version} is newer than {SCHEMA_VERSION}")
    return judgement


def judgements(attempt: Path) -> list[Judgement]:
    """Return all judgements of an attempt, oldest first; empty where it was never judged."""
    found = [read_judgement(path) for path in sorted((attempt / FOLDER).glob("*.json"))]
    return sorted(found, key=lambda judgement: (judgement.made, judgement.digest))


def newest(attempt: Path, judge: str | None = None) -> Judgement | None:
    """Return the judgement that counts.

    With ``judge`` it is that judge's newest one. Without, a model's judgement goes before one by rules alone, and then
    the newest counts; two judgements are never mixed.
    """
    found = [one for one in judgements(attempt) if judge is None or one.judge == judge]
    return max(found, key=lambda one: (one.judge != RULES, one.made), default=None)


def latest(attempt: Path, judge: str | None = None) -> ProcessView | None:
    """Return the scores of :func:`newest`, ``None`` where the attempt was never judged."""
    found = newest(attempt, judge)
    return None if found is None else view(found)


def find(attempt: Path, digest: str) -> Judgement | None:
    """Return the complete judgement of a digest, ``None`` where there is none."""
    path = attempt / FOLDER / f"{digest}.json"
    return read_judgement(path) if path.is_file() else None


def write_judgement(attempt: Path, judgement: Judgement) -> Path:
    """Store a judgement; what is there already is never changed.

    A judgement with items that the judge failed to answer is stored under a name of its own, so that a later try can
    take the digest's name.

    Raises
    ------
    FileExistsError
        The digest is stored already.
    """
    folder = attempt / FOLDER
    folder.mkdir(exist_ok=True)
    failed = any(decision.verdict == "judge_error" for decision in judgement.decisions)
    path = folder / f"{judgement.digest}.json"
    number = 0
    while failed and (number == 0 or path.exists()):
        number += 1
        path = folder / f"{judgement.digest}-error-{number}.json"
    handle, name = tempfile.mkstemp(prefix=".judgement-", dir=folder)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(judgement.model_dump_json(indent=1) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(0o644)
        os.link(name, path)  # unlike a rename, fails where the name is taken
    finally:
        Path(name).unlink(missing_ok=True)
    return path
