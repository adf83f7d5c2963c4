"""One record per trial: a versioned schema, written atomically, and its JUnit properties."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.base import Usage
from biabench_plugin.endstate import EndState
from evaluators.model import OutcomeScore

SCHEMA_VERSION = 1
FILE_NAME = "record.json"
MOST_FAULTS = 2  # an infrastructure fault is retried once, then the trial is excluded and listed
CURRENT = "current"  # in a trial's folder: the resume key that the last session used


class RecordError(ValueError):
    """A record on disk cannot be read; the message names the file."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DatasetIdentity(_Model):
    """Which data a trial ran on. Demo results are never pooled with others."""

    kind: str
    name: str
    revision: str
    input_digest: str
    truth_digest: str


class Provenance(_Model):
    """Where and with what a trial ran."""

    biabench: str
    commit: str | None
    python: str
    packages: dict[str, str]
    host: str
    platform: str
    cpus: int
    gpu: list[str]
    isolation: dict[str, Any]
    input_view: dict[str, Any] = Field(default_factory=dict)
    tools: dict[str, Any] = Field(default_factory=dict)


class TrialRecord(_Model):
    """Everything that is known about one attempt of one trial.

    ``run_folder`` is relative to the campaign folder, so that a campaign can be moved.
    ``outcome``, ``strict`` and their diagnostics lie in ``score``; it is ``None`` only where nothing could be scored
    because of an infrastructure fault. ``usage`` holds tokens as the relay metered them, where it stood between;
    ``usage_reported`` what the agent says itself, and ``usage_difference`` reported minus metered. ``wire`` sums up the
    relay's ledger, ``review`` says what a person should look at. ``resume_key`` tells whether a later session may reuse
    the attempt.
    """

    schema_version: int = SCHEMA_VERSION
    trial: str
    task: str
    agent: str
    agent_version: str
    configuration: str
    model: str | None
    instruction_level: str
    effort_requested: str
    effort_applied: str
    repeat: int
    attempt: int
    synthetic: bool
    resume_key: str
    dataset: DatasetIdentity
    instruction_digest: str
    status: EndState
    status_reason: str
    timed_out: bool
    quota_exceeded: bool
    infrastructure: str | None
    score: OutcomeScore | None
    usage: Usage
    usage_reported: Usage | None = None
    usage_difference: dict[str, int] = Field(default_factory=dict)
    wire: dict[str, Any] = Field(default_factory=dict)
    review: list[str] = Field(default_factory=list)
    provider: str | None = None
    web_tools: str | None = None
    final_message: str | None
    transcript_problem: str | None = None
    exit_code: int | None
    signal: int | None
    survivors_killed: int
    log_truncated: bool
    input_changed: bool
    budget_seconds: float
    network: str
    started: datetime
    wall_seconds: float
    evaluation_seconds: float
    provenance: Provenance
    run_folder: str

    @property
    def valid(self) -> bool:
        """Whether the attempt says something about the agent (and not about the infrastructure)."""
        return self.infrastructure is None and not self.input_changed

    @property
    def counts(self) -> bool:
        """Whether the attempt enters means: crashes and timeouts do, refusals and infrastructure faults do not."""
        return self.valid and self.status is not EndState.REFUSED and self.score is not None


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader, or the next session after a power cut, sees the old or the new one whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_record(record: TrialRecord, folder: Path) -> Path:
    """Write ``record.json`` into an attempt's folder and return its path."""
    path = folder / FILE_NAME
    write_atomically(path, record.model_dump_json(indent=1) + "\n")
    return path


def read_record(path: Path) -> TrialRecord:
    """Read a record; raise :class:`RecordError` that names the file when it is damaged or newer than this reader."""
    try:
        record = TrialRecord.model_validate_json(path.read_bytes())
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise RecordError(
            f"{path}: is no trial record of schema {SCHEMA_VERSION}: {error.errors()[0]['msg']}"
        ) from error
    if record.schema_version > SCHEMA_VERSION:
        raise RecordError(f"{path}: schema {record.schema_version} is newer than {SCHEMA_VERSION}; update biabench")
    return record


def record_path(campaign: Path, record: TrialRecord) -> Path:
    """Return where an attempt's record lies in its campaign."""
    return campaign / record.run_folder / FILE_NAME


def iter_records(campaign: Path) -> Iterator[tuple[Path, TrialRecord | RecordError]]:
    """Yield every attempt's record of a campaign folder, in a stable order; for a damaged one its error."""
    for path in sorted(campaign.glob(f"runs/*/*/r*/attempt-*/{FILE_NAME}")):
        try:
            yield path, read_record(path)
        except RecordError as error:
            yield path, error


def current_attempt(attempts: list[TrialRecord], key: str | None = None) -> TrialRecord:
    """Choose the attempt of a trial that counts.

    ``key`` is the resume key of the session that used the trial last; an edited agent or another budget is another
    experiment. Among the attempts of that experiment the first one that counts is taken, else the first valid one
    (refused), else the last.
    """
    ordered = sorted(attempts, key=lambda record: record.attempt)
    known = {record.resume_key for record in ordered}
    wanted = key if key in known else ordered[-1].resume_key
    same = [record for record in ordered if record.resume_key == wanted]
    for fits in (lambda record: record.counts, lambda record: record.valid):
        if found := next(filter(fits, same), None):
            return found
    return same[-1]


def junit_properties(record: TrialRecord, record_path: Path) -> list[tuple[str, str]]:
    """Return the ``biabench.*`` user properties of an item; a signal that is absent gives no property."""
    score, isolation = record.score, record.provenance.isolation
    values: dict[str, object] = {
        "task": record.task,
        "agent": record.agent,
        "configuration": record.configuration,
        "model": record.model,
        "instruction": record.instruction_level,
        "effort": record.effort_requested,
        "repeat": record.repeat,
        "attempt": record.attempt,
        "dataset": record.dataset.name,
        "status": record.status.value,
        "timed_out": str(record.timed_out).lower(),
        "infrastructure": record.infrastructure,
        "outcome": None if score is None or not record.counts else f"{score.outcome:.6f}",
        "strict": None if score is None or not record.counts or score.strict is None else f"{score.strict:.6f}",
        "wall_seconds": f"{record.wall_seconds:.3f}",
        "input_tokens": record.usage.input_tokens,
        "output_tokens": record.usage.output_tokens,
        "tool_calls": record.usage.tool_calls,
        "cached_tokens": record.usage.cached_tokens,
        "reasoning_tokens": record.usage.reasoning_tokens,
        "cost_usd": record.usage.cost_usd,
        "effort_applied": record.effort_applied,
        "provider": record.provider,
        "review": "; ".join(record.review) or None,
        "isolation": (isolation.get("tool") or "bubblewrap") if isolation.get("in_force") else "off",
        "record": str(record_path),
    }
    return [(f"biabench.{name}", str(value)) for name, value in values.items() if value is not None]
