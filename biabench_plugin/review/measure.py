"""Join reviewers' answers with judges' decisions and measure their agreement."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from agents.transcript import FILE_NAME as TRANSCRIPT
from biabench_plugin.report.reviews import Reviewed
from biabench_plugin.report.rows import Row, from_campaign
from biabench_plugin.review.answers import AnswerStore
from biabench_plugin.review.copying import CODE, who
from biabench_plugin.review.model import COPY, Answers, Key, Review, ReviewError, read_key, read_review
from evaluators.process.agreement import (
    FAIL,
    PASS,
    UNDECIDED,
    Agreement,
    Estimate,
    ItemCount,
    PairOfReviewers,
    Relation,
    Resamples,
    SeverityCount,
    agreement,
    between_reviewers,
    consensus,
    item_counts,
    least_runs,
    most_failed,
    often_skipped,
    relation,
    resample,
    run_scores,
    severity_counts,
    tables,
)
from evaluators.process.model import Decision, Judgement

MISSING = -1  # not answered, not judged, or the judge gave no valid answer
REPORT_FILE = "agreement.json"
_PER_TASK = {"not_applicable"}  # settings that come from a task, so that one judge has many
_REPORTS = (".md", ".rst", ".html", ".htm", ".tex", ".pdf", ".docx")
_Codes = NDArray[np.intp]
_Verdicts = dict[tuple[int, int], Decision]  # by place of the run in the key, and rubric item

View = Literal["ours", "published", "both"]


@dataclass(frozen=True)
class ReviewerCount:
    """What one reviewer answered."""

    name: str
    answered: int
    yes: int
    no: int
    cannot_tell: int
    does_not_apply: int


@dataclass(frozen=True)
class JudgeAgreement:
    """One judge, in one view, against the reference.

    ``view`` is ``published`` where passes without a verified citation are kept and rules decide nothing; only that view
    stands next to the paper's figures. It is ``both`` where the two views are the same. ``not_judged`` counts answered
    items without a judgement, ``errors`` those without a valid answer, ``void_runs`` runs whose canary tripped; none of
    them enters a table.
    """

    judge: str
    view: View
    rubric_version: str
    protocol_version: str
    settings: dict[str, str]
    overall: Agreement
    sections: dict[str, Agreement]
    kinds: dict[str, Agreement]
    severities: dict[str, Agreement]
    agents: dict[str, Agreement]
    tasks: dict[str, Agreement]
    process: Relation
    process_common: Relation
    judge_outcome: Relation
    not_judged: int
    errors: int
    void_runs: int
    not_applicable: int
    by_rule: int
    agreed: dict[int, tuple[int, int]]  # rubric item: agreeing runs, runs both decided


@dataclass(frozen=True)
class Evidence:
    """What the runs of one agent leave, and how much of it reviewers and judges could decide.

    Shares of ``runs`` are over all counting runs of the campaign, the rates over the reviewed ones.
    """

    agent: str
    runs: int
    script: float
    report: float
    log: float
    reviewed: int
    skip_rate: float | None
    abstention: dict[str, float | None]


@dataclass(frozen=True)
class AgreementReport:
    """Everything that is measured on one review."""

    review: str
    rubric_version: str
    reference: str
    runs: int
    items: int
    resamples: int
    seed: int
    reviewers: list[ReviewerCount]
    judges: list[JudgeAgreement]
    pairs: list[PairOfReviewers]
    reviewer_outcome: Relation
    severities: list[SeverityCount]
    least_runs: int
    failed: list[ItemCount]
    skipped: list[ItemCount]
    statements: dict[int, str]
    item_severities: dict[int, str]
    evidence: list[Evidence]
    reviewed: list[Reviewed]
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        """Return the report as JSON, the same for the same answers and judgements; single items have a CSV."""
        found = {name: value for name, value in asdict(self).items() if name != "reviewed"}
        return json.dumps({"schema_version": 1, **found}, indent=1) + "\n"


@dataclass(frozen=True)
class _Rows:
    """One row per run and item, in the order of the review."""

    run: _Codes
    item: _Codes
    weight: NDArray[np.float64]
    severity: list[str]
    section: list[str]
    kind: list[str]
    agent: list[str]
    task: list[str]
    runs: int


@dataclass(frozen=True)
class _Judge:
    name: str
    rubric_version: str
    protocol_version: str
    settings: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, judgement: Judgement) -> _Judge:
        return cls(
            judgement.judge,
            judgement.rubric_version,
            judgement.protocol_version,
            tuple(sorted((name, value) for name, value in judgement.settings.items() if name not in _PER_TASK)),
        )


def measure(
    campaign: Path,
    folder: Path,
    judgements_of: Callable[[Path], Iterable[Judgement]],
    *,
    reviewer: str | None = None,
    judges: Sequence[str] = (),
    resamples: int = 10_000,
    seed: int = 20260903,
) -> AgreementReport:
    """Measure agreement on the review in ``folder``.

    Parameters
    ----------
    campaign
        Holds the run folders that the key names, with their judgements.
    judgements_of
        Returns all judgements in a run folder.
    reviewer
        Take this reviewer as the reference; by default the majority of all.
    judges
        Names of the judges to compare; by default every one that judged a reviewed run.

    Raises
    ------
    ReviewError
        Files are missing or do not belong together, or nothing was answered.
    """
    key, review = read_key(folder), read_review(folder / COPY)
    if key.review != review.id:
        raise ReviewError(f"{folder}: the key belongs to review {key.review}, the copy to {review.id}")
    everybody = AnswerStore(folder / COPY, review).everybody()
    if reviewer is not None and not any(one.reviewer == reviewer for one in everybody):
        known = ", ".join(one.reviewer for one in everybody) or "nobody"
        raise ReviewError(f"{folder}: no answers of reviewer {reviewer!r}; answered by: {known}")
    rows = _rows(key, review)
    given = {one.reviewer: _answered(one, key, rows) for one in everybody}
    chosen = {name: codes for name, codes in given.items() if reviewer in (None, name)}
    if not any((codes != MISSING).any() for codes in chosen.values()):
        raise ReviewError(f"{folder}: no item was answered yet")
    reference = _reference(list(chosen.values()))
    draws = resample(rows.runs, resamples, seed)
    outcome = np.array([np.nan if entry.outcome is None else entry.outcome for entry in key.entries])
    answered = reference != MISSING
    notes: list[str] = []
    found = _judged(campaign, key, review, judgements_of, judges, notes)
    measured = [
        _against(judge, view, decisions, rows, reference, outcome, draws, seed)
        for judge, decisions in found.items()
        for view in _views(decisions.values())
    ]
    for one, other in zip(list(found), list(found)[1:], strict=False):
        if one.name == other.name:
            notes.append(f"judge {one.name} has judged with several settings or versions; they are kept apart")
    counts = item_counts(rows.item[answered], reference[answered], np.full(answered.sum(), UNDECIDED))
    least = least_runs(rows.runs)
    return AgreementReport(
        review=review.id,
        rubric_version=review.rubric_version,
        reference=next(iter(chosen)) if len(chosen) == 1 else f"majority of {', '.join(chosen)}",
        runs=len(np.unique(rows.run[answered])),
        items=int(answered.sum()),
        resamples=resamples,
        seed=seed,
        reviewers=[_count(one) for one in everybody],
        judges=measured,
        pairs=_pairs(given, rows, draws),
        reviewer_outcome=relation(_scores(reference, rows), outcome, resamples, seed),
        severities=severity_counts(
            [severity for severity, here in zip(rows.severity, answered, strict=True) if here],
            rows.weight[answered],
            reference[answered],
        ),
        least_runs=least,
        failed=most_failed(counts, least),
        skipped=often_skipped(counts),
        statements={number: item.statement for number, item in review.items.items()},
        item_severities={number: item.severity for number, item in review.items.items()},
        evidence=_evidence(campaign, rows, reference, measured),
        reviewed=_reviewed(key, review, rows, reference, _by_name(found, judges)),
        notes=list(dict.fromkeys(notes)),
    )


def _rows(key: Key, review: Review) -> _Rows:
    pairs = [(position, number) for position, entry in enumerate(key.entries) for number in review.run(entry.id).items]
    items = [review.items[number] for _, number in pairs]
    return _Rows(
        run=np.array([position for position, _ in pairs], np.intp),
        item=np.array([number for _, number in pairs], np.intp),
        weight=np.array([item.weight for item in items], np.float64),
        severity=[item.severity for item in items],
        section=[item.title for item in items],
        kind=["general items" if item.general else "task-specific items" for item in items],
        agent=[key.entries[position].agent for position, _ in pairs],
        task=[key.entries[position].task for position, _ in pairs],
        runs=len(key.entries),
    )


def _answered(answers: Answers, key: Key, rows: _Rows) -> _Codes:
    codes = {"yes": PASS, "no": FAIL, "skip": UNDECIDED, None: MISSING}
    return np.array(
        [
            codes[given.answer]
            if (given := answers.answers.get(key.entries[run].id, {}).get(int(number))) is not None
            else MISSING
            for run, number in zip(rows.run, rows.item, strict=True)
        ],
        np.intp,
    )


def _reference(given: Sequence[_Codes]) -> _Codes:
    """Return the majority verdict per row; an item that nobody answered stays missing."""
    stacked = np.stack(given)
    agreed = consensus(np.where(stacked == MISSING, UNDECIDED, stacked))
    return np.where((stacked == MISSING).all(0), MISSING, agreed).astype(np.intp)


def _count(answers: Answers) -> ReviewerCount:
    given = [one for run in answers.answers.values() for one in run.values() if one.answer is not None]
    return ReviewerCount(
        name=answers.reviewer,
        answered=len(given),
        yes=sum(one.answer == "yes" for one in given),
        no=sum(one.answer == "no" for one in given),
        cannot_tell=sum(one.answer == "skip" and one.reason != "does_not_apply" for one in given),
        does_not_apply=sum(one.answer == "skip" and one.reason == "does_not_apply" for one in given),
    )


def _judged(
    campaign: Path,
    key: Key,
    review: Review,
    judgements_of: Callable[[Path], Iterable[Judgement]],
    wanted: Sequence[str],
    notes: list[str],
) -> dict[_Judge, dict[int, Judgement]]:
    """Return per judge its newest judgement of each reviewed run; other models, versions or settings never mix."""
    found: dict[_Judge, dict[int, Judgement]] = {}
    for position, entry in enumerate(key.entries):
        folder = campaign / entry.run_folder
        if not folder.is_dir():
            raise ReviewError(f"{folder}: the reviewed run {entry.id} is gone; is this the campaign of the review?")
        for judgement in sorted(judgements_of(folder), key=lambda one: one.made):
            if wanted and judgement.judge not in wanted:
                continue
            found.setdefault(_Judge.of(judgement), {})[position] = judgement
            if judgement.rubric_version != review.rubric_version:
                notes.append(
                    f"judge {judgement.judge} used rubric {judgement.rubric_version}, the reviewers "
                    f"{review.rubric_version}: items are matched by number"
                )
    if missing := set(wanted) - {judge.name for judge in found}:
        raise ReviewError(f"{campaign}: no reviewed run was judged by {', '.join(sorted(missing))}")
    if not found:
        notes.append("no reviewed run was judged yet: run biabench judge, then this command again")
    return dict(sorted(found.items(), key=lambda pair: (pair[0].name, pair[0].settings)))


def _said(decision: Decision, view: View) -> int:
    verdict: str | None = decision.verdict
    if verdict == "judge_error":
        return MISSING
    if view == "published":
        verdict = decision.claimed or (verdict if decision.by == "model" else None)
    return {"pass": PASS, "fail": FAIL}.get(verdict or "", UNDECIDED)


def _views(judgements: Iterable[Judgement]) -> tuple[View, ...]:
    """Return the views of a judge that are worth a row; one by rules alone has no published view."""
    decisions = [decision for judgement in judgements for decision in judgement.decisions]
    if not any(decision.by == "model" for decision in decisions):
        return ("ours",)
    same = all(_said(decision, "ours") == _said(decision, "published") for decision in decisions)
    return ("both",) if same else ("ours", "published")


def _by_name(found: Mapping[_Judge, dict[int, Judgement]], wanted: Sequence[str]) -> dict[str, tuple[View, _Verdicts]]:
    """Name every judge and view apart; first those asked for, in that order, then those that judged most runs."""
    named: dict[str, tuple[View, _Verdicts]] = {}
    place = {name: position for position, name in enumerate(wanted)}
    for judge in sorted(found, key=lambda one: (place.get(one.name, 0), -len(found[one]), one.name, one.settings)):
        for view in _views(found[judge].values()):
            label = judge.name if view == "both" else f"{judge.name} ({view})"
            number = sum(name == label or name.startswith(f"{label} #") for name in named)
            named[f"{label} #{number + 1}" if number else label] = (view, _decisions(found[judge]))
    return named


def _decisions(judgements: Mapping[int, Judgement]) -> _Verdicts:
    """Return what a judge decided per run and item, without runs whose canary tripped."""
    return {
        (run, decision.item): decision
        for run, judgement in judgements.items()
        if not judgement.canary_tripped
        for decision in judgement.decisions
    }


def _reviewed(
    key: Key, review: Review, rows: _Rows, reference: _Codes, judged: Mapping[str, tuple[View, _Verdicts]]
) -> list[Reviewed]:
    """Return every answered item with what each judge decided, for the tables and the figure of the report."""
    found = []
    for place in np.flatnonzero(reference != MISSING):
        run, number = int(rows.run[place]), int(rows.item[place])
        said = {
            name: _said(decisions[run, number], view)
            for name, (view, decisions) in judged.items()
            if (run, number) in decisions
        }
        found.append(
            Reviewed(
                run=key.entries[run].run_folder,
                agent=rows.agent[place],
                item=number,
                statement=review.items[number].statement,
                section=rows.section[place],
                severity=rows.severity[place],
                expert=("pass", "fail", "skip")[reference[place]],
                verdicts={name: ("pass", "fail", "unknown")[code] for name, code in said.items() if code != MISSING},
                outcome=key.entries[run].outcome,
            )
        )
    return found


def _against(
    judge: _Judge,
    view: View,
    judgements: Mapping[int, Judgement],
    rows: _Rows,
    reference: _Codes,
    outcome: NDArray[np.float64],
    draws: Resamples,
    seed: int,
) -> JudgeAgreement:
    decisions = _decisions(judgements)
    mine = [decisions.get((int(run), int(item))) for run, item in zip(rows.run, rows.item, strict=True)]
    codes = np.array([MISSING if one is None else _said(one, view) for one in mine], np.intp)
    answered = reference != MISSING
    here = answered & (codes != MISSING)
    per_run = tables(rows.run[here], reference[here], codes[here], rows.runs)

    def strata(values: Sequence[str]) -> dict[str, Agreement]:
        labels = np.asarray(values)
        return {
            name: agreement(tables(rows.run[part], reference[part], codes[part], rows.runs), draws)
            for name in dict.fromkeys(values)
            if (part := here & (labels == name)).any()
        }

    both = here & (codes < UNDECIDED) & (reference < UNDECIDED)
    count = len(draws.index)
    shared = np.where(both, 1.0, 0.0) * rows.weight
    faulty = np.array([one is not None and one.verdict == "judge_error" for one in mine], bool)
    judged = _scores(codes, rows)
    judged[np.unique(rows.run[faulty])] = np.nan  # a run with errors has no process score
    return JudgeAgreement(
        judge=judge.name,
        view=view,
        rubric_version=judge.rubric_version,
        protocol_version=judge.protocol_version,
        settings=dict(judge.settings),
        overall=agreement(per_run, draws),
        sections=strata(rows.section),
        kinds=strata(rows.kind),
        severities=strata(rows.severity),
        agents=strata(rows.agent),
        tasks=strata(rows.task),
        process=relation(_scores(reference, rows), judged, count, seed),
        process_common=relation(_scores(reference, rows, shared), _scores(codes, rows, shared), count, seed),
        judge_outcome=relation(judged, outcome, count, seed),
        not_judged=int(sum(one is None for one, is_answered in zip(mine, answered, strict=True) if is_answered)),
        errors=int(faulty.sum()),
        void_runs=sum(one.canary_tripped for one in judgements.values()),
        not_applicable=sum(one is not None and one.verdict == "not_applicable" for one in mine),
        by_rule=sum(one is not None and one.by == "rule" and _said(one, view) in (PASS, FAIL) for one in mine),
        agreed={
            count.item: (count.agreed, count.both)
            for count in item_counts(rows.item[here], reference[here], codes[here])
        },
    )


def _scores(codes: _Codes, rows: _Rows, weight: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    known = np.where(codes == MISSING, UNDECIDED, codes)
    return run_scores(rows.run, known, rows.weight if weight is None else weight, rows.runs)


def _pairs(given: Mapping[str, _Codes], rows: _Rows, draws: Resamples) -> list[PairOfReviewers]:
    names = sorted(given)
    found = []
    for place, one in enumerate(names):
        for other in names[place + 1 :]:
            here = (given[one] != MISSING) & (given[other] != MISSING)
            if here.any():
                per_run = tables(rows.run[here], given[one][here], given[other][here], rows.runs)
                found.append(between_reviewers(one, other, per_run, draws))
    return found


def _evidence(campaign: Path, rows: _Rows, reference: _Codes, judges: Sequence[JudgeAgreement]) -> list[Evidence]:
    counting = [row for row in from_campaign(campaign) if row.counts and row.folder is not None]
    labels = np.asarray(rows.agent)
    found = []
    for agent in sorted(set(rows.agent)):
        mine = [row for row in counting if who(row) == agent]
        here = (labels == agent) & (reference != MISSING)
        found.append(
            Evidence(
                agent=agent,
                runs=len(mine),
                script=_share(mine, lambda row: _left(row, CODE)),
                report=_share(mine, lambda row: _left(row, _REPORTS)),
                log=_share(mine, _logged),
                reviewed=len(np.unique(rows.run[here])),
                skip_rate=float((reference[here] == UNDECIDED).mean()) if here.any() else None,
                abstention={
                    f"{judge.judge} ({judge.view})": judge.agents[agent].estimates["abstention"].value
                    for judge in judges
                    if agent in judge.agents
                },
            )
        )
    return found


def _share(rows: Sequence[Row], has: Callable[[Row], bool]) -> float:
    return sum(map(has, rows)) / len(rows) if rows else 0.0


def _left(row: Row, suffixes: tuple[str, ...]) -> bool:
    assert row.folder is not None
    names = (name for _, _, files in os.walk(row.folder / "submission") for name in files)
    return any(name.lower().endswith(suffixes) for name in names)


def _logged(row: Row) -> bool:
    assert row.folder is not None
    logs = (row.folder / TRANSCRIPT, row.folder / "logs" / "stdout.log")
    return any(path.is_file() and path.stat().st_size > 0 for path in logs)


def stated(campaign: Path, judge: str, protocol_version: str, view: View = "ours") -> str:
    """Return the measured agreement of a judge in a few words, for beside its process scores.

    ``not measured`` where ``biabench agreement`` was not run on this campaign, or not for this judge and protocol.
    """
    path = campaign / "review" / REPORT_FILE
    try:
        judges: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["judges"]
    except FileNotFoundError:
        return "not measured"
    except (OSError, ValueError, KeyError) as error:
        raise ReviewError(f"{path}: cannot be read: {error}") from error
    for one in judges:
        if (one["judge"], one["protocol_version"]) == (judge, protocol_version) and one["view"] in (view, "both"):
            overall = one["overall"]
            estimate = Estimate(**overall["estimates"]["kappa"])
            return f"κ {interval(estimate)} on {overall['both']} items of {overall['runs']} runs"
    return "not measured"


def interval(estimate: Estimate, digits: int = 2) -> str:
    """Return an estimate as text, for example ``0.67 [0.61, 0.73]``."""
    if estimate.value is None:
        return "–"
    text = f"{estimate.value:.{digits}f}"
    return text if estimate.low is None else f"{text} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"
