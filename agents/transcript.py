"""The canonical transcript: what an agent did, step by step, in one form for every agent.

Each wrapper translates its agent's own events into :class:`Step`; the judge, the report and the audits read nothing
else. Text comes from an untrusted agent and must be escaped wherever it is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

FILE_NAME = "transcript.jsonl"  # in an attempt's folder, beside record.json

StepKind = Literal["message", "reasoning", "tool", "error", "final"]


class Step(BaseModel):
    """One event of a run.

    Parameters
    ----------
    step
        Position in the run, from 1.
    at
        Seconds since the agent was started, where the agent tells.
    kind
        What the agent said (``message``), thought aloud (``reasoning``), called (``tool``), met (``error``), or said
        last (``final``).
    tool, code, exit_code, output
        Of a tool call: its name in the agent's own words, the code or command it ran, how that ended and what it
        printed (shortened where ``shortened`` says so).
    files_written, images_viewed
        Paths as the agent named them.
    urls, queries
        Addresses fetched and searches made, for the source-study audit.
    """

    model_config = ConfigDict(extra="forbid")

    step: int
    at: float | None = None
    kind: StepKind
    text: str | None = None
    tool: str | None = None
    code: str | None = None
    exit_code: int | None = None
    output: str | None = None
    files_written: list[str] = Field(default_factory=list)
    images_viewed: list[str] = Field(default_factory=list)
    urls: list[str] = Field(default_factory=list)
    queries: list[str] = Field(default_factory=list)
    shortened: bool = False


def write_transcript(steps: Iterable[Step], path: Path) -> None:
    """Write steps as JSON lines, without the fields that are empty."""
    lines = (step.model_dump_json(exclude_defaults=True) + "\n" for step in steps)
    path.write_text("".join(lines), encoding="utf-8")


def read_transcript(path: Path) -> Iterator[Step]:
    """Yield the steps of a transcript; raise ``ValueError`` that names file and line of a damaged one."""
    with path.open(encoding="utf-8", errors="replace") as stream:
        for number, line in enumerate(stream, 1):
            try:
                yield Step.model_validate_json(line)
            except ValidationError as error:
                raise ValueError(f"{path}:{number}: is no step of a transcript: {error.errors()[0]['msg']}") from error
