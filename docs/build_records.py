"""Write ``docs/records.md``: every field of a trial's record, from the model that reads and writes it.

python docs/build_records.py            # write
python docs/build_records.py --check    # exit 1 when the page is not what the model says
"""

from __future__ import annotations

import re
import sys
import types
import typing
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a script, only this folder is on the path

from biabench_plugin.records import SCHEMA_VERSION, TrialRecord  # noqa: E402

PAGE = ROOT / "docs" / "records.md"

# What a field holds, where its name and its type do not say it. A field without a line here is shown by its type alone.
MEANING = {
    "TrialRecord.schema_version": "version of this form; a reader refuses a newer one and reads older ones",
    "TrialRecord.trial": "id of the pytest item",
    "TrialRecord.task": "slug of the task",
    "TrialRecord.agent": "name of the agent, as in `--agent`",
    "TrialRecord.agent_version": "version that the agent's wrapper declares",
    "TrialRecord.configuration": "agent or label, model, instruction level and effort: a row of the leaderboard",
    "TrialRecord.model": "model as named on the command line; null for agents without one",
    "TrialRecord.instruction_level": "brief or detailed",
    "TrialRecord.effort_requested": "reasoning effort asked for",
    "TrialRecord.effort_applied": "what the agent could apply, or `no control`",
    "TrialRecord.repeat": "number of the repeat, from 1",
    "TrialRecord.attempt": "number of the attempt within the repeat, from 1",
    "TrialRecord.synthetic": "whether the agent fixes an end of the scale and is never ranked",
    "TrialRecord.resume_key": "digest of what makes two attempts the same experiment",
    "TrialRecord.dataset": "which data the trial ran on",
    "TrialRecord.instruction_digest": "SHA-256 of the instruction with placeholders for paths and GPU",
    "TrialRecord.status": "end state",
    "TrialRecord.status_reason": "the evidence that decided the end state",
    "TrialRecord.timed_out": "whether the budget ended the run",
    "TrialRecord.quota_exceeded": "whether the output quota ended the run",
    "TrialRecord.infrastructure": "the fault that makes the attempt void; null for a valid attempt",
    "TrialRecord.score": "outcome, strict score, metrics and problems; null where a fault left nothing to score",
    "TrialRecord.usage": "what the run consumed, as far as the agent tells",
    "TrialRecord.final_message": "the agent's closing message",
    "TrialRecord.transcript_problem": "why the agent's own log could not be read; null when it could",
    "TrialRecord.exit_code": "exit code of the agent; null when a signal ended it or it never started",
    "TrialRecord.signal": "signal that ended the agent",
    "TrialRecord.survivors_killed": "processes that had to be killed after the agent",
    "TrialRecord.log_truncated": "whether standard output or error was longer than what is kept",
    "TrialRecord.input_changed": "whether the input was changed during the run, which voids the attempt",
    "TrialRecord.budget_seconds": "wall-clock budget, seconds",
    "TrialRecord.network": "open or none",
    "TrialRecord.started": "start of the agent, UTC",
    "TrialRecord.wall_seconds": "run time of the agent, seconds",
    "TrialRecord.evaluation_seconds": "time of scoring, seconds",
    "TrialRecord.provenance": "where and with what the trial ran",
    "TrialRecord.run_folder": "folder of the attempt, relative to the campaign",
    "DatasetIdentity.kind": "demo, full or folder",
    "DatasetIdentity.name": "as given by `--dataset`",
    "DatasetIdentity.revision": "revision of published data, or digest of a simulator",
    "DatasetIdentity.input_digest": "SHA-256 over paths and contents of the input folder",
    "DatasetIdentity.truth_digest": "SHA-256 over paths and contents of the evaluation folder",
    "Provenance.biabench": "version of this project",
    "Provenance.commit": "commit of the checkout, `+changes` when it was edited",
    "Provenance.packages": "versions of the packages that scores depend on",
    "Provenance.host": "name of the computer",
    "Provenance.cpus": "processors available to the session",
    "Provenance.gpu": "model, memory and driver (and MIG profile) of the GPU that the trial held; empty without one",
    "Provenance.isolation": "containment: tool, version, what was given and what was not",
    "Provenance.input_view": "how the input was shown (bound, linked, reflinked, copied) and why, if not as usual",
    "Provenance.tools": "programs, packages and GPU that the agent found inside",
    "Usage.input_tokens": "tokens read by the model, cached reads included",
    "Usage.cached_tokens": "of these, read from the provider's cache",
    "Usage.output_tokens": "tokens written by the model",
    "Usage.reasoning_tokens": "of these, reasoning",
    "Usage.tool_calls": "as the agent counts them; not comparable between agents",
    "Usage.cost_usd": "cost in US dollars, where the provider states it",
    "Usage.source": "which log the figures come from",
}

HEAD = f"""# The record of a trial

<!-- Written by `python docs/build_records.py` from the record model; edit the model or that script, not this page. -->

Each attempt of a trial leaves `CAMPAIGN/runs/<task>/<configuration>/r<N>/attempt-<k>/record.json`, schema version
{SCHEMA_VERSION}. It is written once, whole (synced and renamed into place), after the submission is scored; an attempt
without a record was cut off, and the same command runs the trial again. A signal that an agent does not give is null,
never 0. Beside it lie
`instruction.md` (what the agent was told, byte for byte), `submission/` (what it left) and `logs/`.
"""


def _models(model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return a model and those that its fields hold, each once, in order of appearance."""
    found = [model]
    for field in model.model_fields.values():
        for inner in _inside(field.annotation):
            found += [one for one in _models(inner) if one not in found]
    return found


def _inside(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in _inside(part)]


def _type(annotation: Any) -> str:
    """Write a type for people."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(part) for part in parts)
    if origin is typing.Annotated:
        return _type(parts[0])
    if origin is typing.Literal:
        return " or ".join(f"`{part}`" for part in parts)
    if origin is dict:
        return f"object of {_type(parts[1])}"
    if origin in (list, tuple):
        return f"list of {_type(parts[0])}"
    if annotation is type(None):
        return "null"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(f"`{member.value}`" for member in annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    names = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "any value"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def page() -> str:
    """Return the whole page."""
    models = _models(TrialRecord)
    known = {f"{model.__name__}.{name}" for model in models for name in model.model_fields}
    if stale := sorted(MEANING.keys() - known):
        raise SystemExit(f"docs/build_records.py: describes fields that are gone: {', '.join(stale)}")
    sections = [HEAD]
    for model in models:
        rows = ["| field | type | meaning |", "| --- | --- | --- |"]
        for name, field in model.model_fields.items():
            meaning = MEANING.get(f"{model.__name__}.{name}") or field.description or ""
            rows.append(f"| `{name}` | {_type(field.annotation)} | {meaning} |".replace("  |", " |"))
        about = re.split(r"\n\s*\n", (model.__doc__ or "").strip())[0]
        sections.append(f"## {model.__name__}\n\n{' '.join(about.split())}\n\n" + "\n".join(rows) + "\n")
    return "\n".join(sections)


def main(arguments: list[str]) -> int:
    """Run the command; 1 when ``--check`` finds another page than the model gives."""
    text = page()
    if arguments == ["--check"]:
        if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
            print(f"{PAGE} is out of date; run: python docs/build_records.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
