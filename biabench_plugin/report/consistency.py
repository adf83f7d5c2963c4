"""The self-consistency audit of a trial, made once and kept beside its record."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from agents.transcript import FILE_NAME as TRANSCRIPT
from biabench_plugin.records import TrialRecord, write_atomically
from evaluators.bounded import inspect_bounded
from evaluators.model import Deliverable
from evaluators.process.consistency import VERSION, Audit

FILE_NAME = "consistency.json"  # in an attempt's folder


class _Stored(BaseModel):
    model_config = ConfigDict(extra="forbid")

    schema_version: int = 1
    digest: str
    audit: Audit


def stored_audit(attempt: Path) -> Audit | None:
    """Return the audit that lies in an attempt's folder, whichever version made it; ``None`` where there is none."""
    try:
        return _Stored.model_validate_json((attempt / FILE_NAME).read_bytes()).audit
    except (OSError, ValidationError):
        return None


def audit_attempt(attempt: Path, record: TrialRecord, deliverables: Sequence[Deliverable]) -> Audit | None:
    """Audit an attempt, or return the stored audit where nothing has changed since.

    ``None`` where there is no submission, or where its files were too much for the bounded child.
    """
    submission, transcript = attempt / "submission", attempt / TRANSCRIPT
    if not submission.is_dir():
        return None
    digest = _digest(record, transcript, deliverables)
    try:
        stored = _Stored.model_validate_json((attempt / FILE_NAME).read_bytes())
    except (OSError, ValidationError):
        stored = None
    if stored is not None and stored.digest == digest:
        return stored.audit
    found = inspect_bounded(
        "audit", deliverables, {"submission": submission, "transcript": transcript}, final_message=record.final_message
    )
    if isinstance(found, str):
        return None
    audit = Audit.model_validate(found)
    write_atomically(attempt / FILE_NAME, _Stored(digest=digest, audit=audit).model_dump_json(indent=1) + "\n")
    return audit


def _digest(record: TrialRecord, transcript: Path, deliverables: Sequence[Deliverable]) -> str:
    steps = transcript.stat() if transcript.is_file() else None
    parts = [
        VERSION,
        record.final_message,
        None if steps is None else (steps.st_size, steps.st_mtime_ns),
        [deliverable.model_dump(mode="json") for deliverable in deliverables],
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
