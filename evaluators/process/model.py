"""What a judge decided: the immutable file of one judgement. Scores are views of it."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Verdict = Literal["pass", "fail", "unknown", "not_applicable", "judge_error"]

FOLDER = "judgements"  # in an attempt's folder; one file per judgement, named by its digest


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Citation(_Model):
    """Where a decision says it found its evidence; ``verified`` once the quoted words were found in that file."""

    file: str
    quote: str | None = None
    verified: bool = False


class Decision(_Model):
    """One rubric item decided for one run.

    ``by`` tells rules from a model. ``claimed`` keeps the judge's own verdict where ours differs (a pass whose
    citations could not be verified is ``unknown``; the ``published`` view uses ``claimed``).
    """

    item: int
    verdict: Verdict
    claimed: Verdict | None = None
    unknown_reason: str | None = None
    confidence: float | None = None
    rationale: str = ""
    citations: list[Citation] = Field(default_factory=list)
    by: Literal["model", "rule"]


class JudgeUsage(_Model):
    """What judging one run consumed; separate from the agent's usage."""

    requests: int = 0
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None


class Judgement(_Model):
    """All decisions of one judge on one run. The digest covers evidence, rubric, prompt, model and settings."""

    schema_version: int = 1
    digest: str
    trial: str
    task: str
    judge: str
    rubric_version: str
    protocol_version: str
    evidence_digest: str
    settings: dict[str, str] = Field(default_factory=dict)
    decisions: list[Decision]
    canary_tripped: bool = False
    left_out: list[str] = Field(default_factory=list)
    usage: JudgeUsage = Field(default_factory=JudgeUsage)
    made: datetime
