"""Scores as views of a judgement: nothing here is stored, and nothing here asks a judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pydantic import BaseModel, ConfigDict

from evaluators.process.model import Decision, Judgement, Verdict
from evaluators.process.rubric import STAGES, Item, Rubric, load_rubric

RULES = "rules"  # the judge that asks no model


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SectionScore(_Model):
    """Score of a group of items (a section or a stage of the analysis), with weights by severity.

    ``score`` is the share of passes among what was decided, ``None`` where nothing was. ``auditability`` is the share
    that stayed undecided (smaller is better) and ``coverage`` its complement; ``low`` and ``high`` bound the score by
    counting all that is unknown as failed, and as passed. Items that do not apply are in none of them.
    """

    score: float | None
    auditability: float | None
    coverage: float | None
    low: float | None
    high: float | None
    items: int
    decided: int
    weight: int


class ProcessView(_Model):
    """The process score of one run by one judge, and what must stand beside it.

    ``published`` is the score by the published rules: a pass without a citation counts as a pass, nothing is taken out
    as not applicable, and rules decide nothing; ``None`` for the judge ``rules``. ``problem`` says why there is no
    score. ``agreement`` with human experts is for the reader to add: none has been measured for this judge.
    """

    score: float | None
    auditability: float | None
    low: float | None
    high: float | None
    published: float | None
    coverage: float | None
    sections: dict[str, SectionScore]
    stages: dict[str, SectionScore]
    judge: str
    rubric_version: str
    protocol_version: str
    items: int
    decided: int
    by_rule: int
    by_model: int
    not_applicable: int
    unverified: int
    errors: int
    problem: str | None = None


def view(judgement: Judgement, task: str | None = None, rubric: Rubric | None = None) -> ProcessView:
    """Compute the scores of a judgement.

    Parameters
    ----------
    judgement
        Decisions on one run.
    task
        The task's slug, as a check; the judgement itself holds the items that its task selects.
    rubric
        Severities, sections and stages; by default the rubric of this version.

    Raises
    ------
    ValueError
        The judgement is on another task.
    """
    if task is not None and task != judgement.task:
        raise ValueError(f"judgement {judgement.digest} is on task {judgement.task}, not on {task}")
    rubric = rubric or load_rubric()
    decisions = judgement.decisions
    problem = _problem(judgement)
    whole = _score(decisions, rubric)

    def groups(name: Callable[[Item], str], order: Iterable[str]) -> dict[str, SectionScore]:
        found = {key: [one for one in decisions if name(rubric[one.item]) == key] for key in order}
        return {key: _hidden(_score(members, rubric), problem) for key, members in found.items() if members}

    shown = _hidden(whole, problem)
    return ProcessView(
        score=shown.score,
        auditability=shown.auditability,
        low=shown.low,
        high=shown.high,
        published=None if problem else _published(decisions, rubric),
        coverage=shown.coverage,
        sections=groups(lambda item: item.section, rubric.sections),
        stages=groups(lambda item: item.stage, STAGES),
        judge=judgement.judge,
        rubric_version=judgement.rubric_version,
        protocol_version=judgement.protocol_version,
        items=whole.items,
        decided=whole.decided,
        by_rule=sum(one.by == "rule" and one.verdict in ("pass", "fail") for one in decisions),
        by_model=sum(one.by == "model" and one.verdict in ("pass", "fail") for one in decisions),
        not_applicable=sum(one.verdict == "not_applicable" for one in decisions),
        unverified=sum(one.claimed == "pass" and one.verdict == "unknown" for one in decisions),
        errors=sum(one.verdict == "judge_error" for one in decisions),
        problem=problem,
    )


def _problem(judgement: Judgement) -> str | None:
    """Say why the run has no process score, or ``None``."""
    errors = sum(decision.verdict == "judge_error" for decision in judgement.decisions)
    if judgement.canary_tripped:
        return "the judge passed an item that is false for every run: its decisions are void"
    if errors:
        return f"the judge gave no valid answer on {errors} of {len(judgement.decisions)} items"
    return judgement.no_analysis


def _score(decisions: Iterable[Decision], rubric: Rubric) -> SectionScore:
    weights: dict[Verdict, int] = {"pass": 0, "fail": 0, "unknown": 0, "judge_error": 0, "not_applicable": 0}
    counted = decided = 0
    for one in decisions:
        weights[one.verdict] += rubric.weight(one.item)
        counted += one.verdict != "not_applicable"
        decided += one.verdict in ("pass", "fail")
    known = weights["pass"] + weights["fail"]
    open_weight = weights["unknown"] + weights["judge_error"]
    total = known + open_weight
    return SectionScore(
        score=weights["pass"] / known if known else None,
        auditability=open_weight / total if total else None,
        coverage=known / total if total else None,
        low=weights["pass"] / total if known else None,
        high=(weights["pass"] + open_weight) / total if known else None,
        items=counted,
        decided=decided,
        weight=total,
    )


def _hidden(score: SectionScore, problem: str | None) -> SectionScore:
    """Take the score out where there is none to show; how much stayed undecided remains to be seen."""
    return score if problem is None else score.model_copy(update={"score": None, "low": None, "high": None})


def _published(decisions: Iterable[Decision], rubric: Rubric) -> float | None:
    """Share of passes among decided items, by what the model itself said; ``None`` where no model said anything."""
    passed = decided = 0
    for one in decisions:
        said = one.claimed if one.claimed is not None else (one.verdict if one.by == "model" else None)
        if said in ("pass", "fail"):
            decided += rubric.weight(one.item)
            passed += rubric.weight(one.item) if said == "pass" else 0
    return passed / decided if decided else None
