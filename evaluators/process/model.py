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


TAGS = (
    "environment_setup_failure",
    "input_misread",
    "wrong_method",
    "uncalibrated_threshold",
    "placeholder_or_synthetic_output",
    "format_violation",
    "retry_loop",
    "premature_end",
    "budget_exhausted",
    "report_contradicts_files",
    "none",
)


class Tag(_Model):
    """One kind of failure that a run shows; never part of a score. ``tag`` is one of :data:`TAGS`."""

    tag: str
    by: Literal["rule", "model"]
    why: str
    citations: list[Citation] = Field(default_factory=list)


class JudgeUsage(_Model):
    """What judging one run consumed; separate from the agent's usage."""

    requests: int = 0
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None


class Judgement(_Model):
    """All decisions of one judge on one run. The digest covers evidence, rubric, prompt, model and settings.

    ``no_analysis`` says why nothing was judged: the run shows no analysis. ``left_out`` names what of the evidence was
    not shown. ``served_model`` is what the provider says it used. ``tags`` are the model's, with verified citations.
    """

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
    no_analysis: str | None = None
    left_out: list[str] = Field(default_factory=list)
    served_model: str | None = None
    tags: list[Tag] = Field(default_factory=list)
    problems: list[str] = Field(default_factory=list)
    usage: JudgeUsage = Field(default_factory=JudgeUsage)
    made: datetime
