"""The audit of an attempt: which study its task comes from, and whether the agent looked that study up."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from agents.audit import FILE_NAME, Audit, Identifiers, audit
from agents.transcript import FILE_NAME as TRANSCRIPT
from agents.transcript import read_transcript
from biabench_plugin.records import write_atomically
from biabench_plugin.taskspec import LEVELS, TaskSpec


def identifiers(task: TaskSpec) -> Identifiers:
    """Return how the study behind a task can be named, beyond the words that the task itself uses."""
    bodies = [(task.folder / f"{level}.md").read_text(encoding="utf-8") for level in LEVELS]
    deliverables = [f"{deliverable.id} {deliverable.description}" for deliverable in task.deliverables]
    return Identifiers.of(
        study=task.source.study,
        accession=task.source.accession,
        doi=task.source.doi,
        url=task.source.url,
        dataset_id=task.dataset_id,
        known=" ".join([*bodies, *deliverables]),
    )


def audit_attempt(attempt: Path, task: TaskSpec) -> Audit | None:
    """Audit an attempt's transcript and write ``audit.json`` beside it; ``None`` where there is no transcript.

    Raises ``ValueError`` that names the line of a damaged transcript.
    """
    transcript = attempt / TRANSCRIPT
    if not transcript.is_file():
        return None
    found = audit(read_transcript(transcript), identifiers(task))
    write_atomically(attempt / FILE_NAME, found.model_dump_json(indent=1) + "\n")
    return found


def read_audit(attempt: Path) -> Audit | None:
    """Read an attempt's stored audit; ``None`` where there is none."""
    path = attempt / FILE_NAME
    if not path.is_file():
        return None
    try:
        return Audit.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ValueError(f"{path}: is no audit: {error.errors()[0]['msg']}") from error
