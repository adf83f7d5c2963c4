"""Judge runs: plan the requests, send them, check the answers, store one judgement per run.

Every valid answer is kept beside the judgement under the digest of its exact request, so that an interrupted session
continues where it stopped and nothing is paid for twice.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evaluators.process import rules
from evaluators.process.evidence import Evidence, Source, gather_bounded
from evaluators.process.model import FOLDER, TAGS, Citation, Decision, Judgement, JudgeUsage, Tag
from evaluators.process.prices import cost, price_of
from evaluators.process.requests import (
    CANARY,
    PROTOCOL_VERSION,
    TOOL,
    UNKNOWN_REASONS,
    Asking,
    JudgeRequest,
    Shown,
    build,
    digest_of,
    head_tokens,
    tokens,
)
from evaluators.process.rubric import Item, load_rubric
from evaluators.process.store import find, write_judgement
from evaluators.process.views import RULES

if TYPE_CHECKING:
    import anthropic

    from evaluators.process.sending import Access, Sender

DEFAULT_MODEL = "claude-sonnet-5"  # the study's judge, asked directly
ROUTED_MODEL = "anthropic/claude-sonnet-5"  # the same through a router
UNVERIFIED = "unverified_citation"
OUTPUT_PER_DECISION = 130  # tokens, of the answer's form with a rationale and a citation; an estimate


class JudgeUnavailableError(RuntimeError):
    """The judge cannot be asked at all (no key, refused, no credit); nothing was decided by it."""


@dataclass(frozen=True)
class Run:
    """One run to be judged: the attempt, its task, and what the task selects from the rubric."""

    trial: str
    task: str
    source: Source
    sections: Sequence[str]
    not_applicable: Mapping[int, str] = field(default_factory=dict)


@dataclass
class Plan:
    """A run with its evidence and the exact requests on it. ``done`` is the judgement where it is stored already."""

    run: Run
    evidence: Evidence
    items: tuple[Item, ...]
    asking: Asking
    digest: str
    settings: dict[str, str]
    requests: list[JudgeRequest]
    done: Judgement | None = None
    batch: bool = False

    @property
    def answers(self) -> Path:
        """Folder of the answers that were received."""
        return self.run.source.attempt / FOLDER / self.digest

    def pending(self) -> list[JudgeRequest]:
        """Requests whose answer is not there yet."""
        return [] if self.done else [request for request in self.requests if not self.answer_file(request).is_file()]

    def answer_file(self, request: JudgeRequest) -> Path:
        return self.answers / f"{request.key}.json"

    def estimate(self) -> JudgeUsage:
        """Estimate the tokens of the pending requests, and their price."""
        return estimate(self.pending(), self.evidence, self.asking.model, self.batch)


def estimate(requests: Sequence[JudgeRequest], evidence: Evidence, model: str, batch: bool = False) -> JudgeUsage:
    """Estimate the tokens of requests on one run, and their price; the first writes the provider's cache."""
    usage = JudgeUsage(requests=len(requests))
    pictures = {figure.data: (figure.width, figure.height) for figure in evidence.figures}
    for number, request in enumerate(requests):
        content = request.body["messages"][0]["content"]
        shared = tokens(content[: request.shared], pictures) + head_tokens(request)
        if "cache_control" not in content[request.shared - 1]:
            usage.input_tokens += shared
        elif number == 0:
            usage.cache_write_tokens += shared
        else:
            usage.cache_read_tokens += shared
        usage.input_tokens += tokens(content[request.shared :], pictures)
        usage.output_tokens += OUTPUT_PER_DECISION * len(request.questions)
    usage.cost_usd = cost(usage, price_of(model), batch)
    return usage


def plan(run: Run, asking: Asking, *, batch: bool = False, evidence: Evidence | None = None) -> Plan:
    """Gather the evidence on a run and build its requests; sends nothing.

    Raises
    ------
    ValueError
        The task names a rubric section or item that does not exist.
    """
    rubric = load_rubric()
    evidence = evidence or gather_bounded(run.source)
    items = rubric.select(run.sections)
    if unknown := set(run.not_applicable) - {item.id for item in items}:
        raise ValueError(f"{run.task}: not_applicable names items that it does not select: {sorted(unknown)}")
    settings = {
        "chunk": "all" if asking.chunk is None else str(asking.chunk),
        "temperature": "not sent" if asking.temperature is None else f"{asking.temperature:g}",
        "rules": rules.digest()[:16],
        "not_applicable": ",".join(map(str, sorted(run.not_applicable))),
    }
    if asking.model == RULES:
        settings = {name: settings[name] for name in ("rules", "not_applicable")}
    digest = digest_of(
        [evidence.digest, rubric.digest, asking.digest, asking.model, settings, [item.id for item in items]]
    )
    made = Plan(run, evidence, items, asking, digest, settings, [], find(run.source.attempt, digest), batch)
    if made.done is None and asking.model != RULES and evidence.analysis is not None:
        made.requests = build(evidence, items, asking, _fence(made.answers))
    return made


def _fence(folder: Path) -> str:
    """Return the random key of this judgement, drawn once, so that a later session sends the same requests."""
    path = folder / "fence"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="ascii") as stream:
            stream.write(secrets.token_hex(12))
    return path.read_text(encoding="ascii")


# --- answers --------------------------------------------------------------------------------------------------------


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Cited(_Answer):
    file: str
    quote: str | None = None


class _Decided(_Answer):
    id: str
    verdict: Literal["pass", "fail", "unknown", "not_applicable"]
    unknown_reason: str | None = None
    confidence: float = Field(ge=0.0, le=1.0)
    rationale: str
    citations: list[_Cited]


class _Tagged(_Answer):
    tag: str
    why: str
    citations: list[_Cited] = Field(default_factory=list)


class _Whole(_Answer):
    decisions: list[_Decided]
    tags: list[_Tagged] = Field(default_factory=list)


class InvalidAnswerError(ValueError):
    """The model's answer does not have the asked form; the message says what is wrong, for the model to repair it."""


def check(message: Mapping[str, Any], request: JudgeRequest, items: Mapping[int, Item]) -> _Whole:
    """Return the answer in a message; raise :class:`InvalidAnswerError` that says all that is wrong with it."""
    call = next((block for block in message["content"] if block["type"] == "tool_use" and block["name"] == TOOL), None)
    if message.get("stop_reason") == "refusal":
        raise InvalidAnswerError("the provider refused to answer")
    if call is None:
        raise InvalidAnswerError(f"there is no call of the tool {TOOL}")
    if message.get("stop_reason") == "max_tokens":
        raise InvalidAnswerError("the answer was cut off at its largest length; write shorter rationales")
    try:
        answer = _Whole.model_validate(call["input"])
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:8])
        raise InvalidAnswerError("; ".join(wrong)) from error
    if faults := _faults(answer, request, items):
        raise InvalidAnswerError("; ".join(faults[:12]))
    return answer


def _faults(answer: _Whole, request: JudgeRequest, items: Mapping[int, Item]) -> list[str]:
    labels = request.label
    said = [decision.id for decision in answer.decisions]
    faults = [f"{label}: no decision" for label in labels if label not in said]
    faults += [f"{label}: {said.count(label)} decisions" for label in sorted(set(said)) if said.count(label) > 1]
    for decision in answer.decisions:
        if decision.id not in labels:
            faults.append(f"{decision.id[:20]}: was not asked")
            continue
        item = items.get(labels[decision.id])
        if decision.verdict == "unknown" and decision.unknown_reason not in UNKNOWN_REASONS:
            faults.append(f"{decision.id}: unknown needs unknown_reason, one of {', '.join(UNKNOWN_REASONS)}")
        if decision.verdict == "not_applicable" and (item is None or item.unless is None):
            faults.append(f"{decision.id}: always applies")
    faults += [f"tag {tag.tag[:30]}: is not in the list" for tag in answer.tags if tag.tag not in TAGS]
    return faults


# --- storing ---------------------------------------------------------------------------------------------------------


def keep(plan: Plan, request: JudgeRequest, message: Mapping[str, Any], spent: Sequence[Mapping[str, Any]]) -> None:
    """Store a valid answer under the digest of its request, with what was asked, but without the run's material."""
    plan.answers.mkdir(parents=True, exist_ok=True)
    body = {name: value for name, value in request.body.items() if name != "messages"}
    record = {
        "request": {**body, "statements": request.body["messages"][0]["content"][-1]["text"]},
        "batch": plan.batch,
        "message": message,
        "usage": list(spent),
    }
    path = plan.answer_file(request)
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(record, indent=1), encoding="utf-8")
    temporary.replace(path)


def note_waste(path: Path, spent: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        stream.writelines(json.dumps(usage) + "\n" for usage in spent)


# --- judgement ------------------------------------------------------------------------------------------------------


def conclude(plan: Plan, failures: Mapping[str, str] | None = None) -> Judgement:
    """Turn the stored answers to a plan into its judgement, and store that.

    Parameters
    ----------
    failures
        Why there is no answer, by the key of the request; its items become ``judge_error``.
    """
    if plan.done is not None:
        return plan.done
    failures = failures or {}
    claimed: dict[int, Decision] = {}
    shown = Shown(plan.evidence)
    tripped = False
    tags: list[Tag] = []
    served: str | None = None
    usage = JudgeUsage()
    items = {item.id: item for item in plan.items}
    for request in plan.requests:
        path = plan.answer_file(request)
        if not path.is_file():
            why = failures.get(request.key, "was not asked")
            for question in request.questions:
                claimed[question.item] = Decision(item=question.item, verdict="judge_error", rationale=why, by="model")
            continue
        stored = json.loads(path.read_text(encoding="utf-8"))
        _count(usage, stored["usage"], plan, bool(stored["batch"]))
        served = stored["message"].get("model") or served
        answer = check(stored["message"], request, items)
        for said in answer.decisions:
            number = request.label[said.id]
            tripped |= number == CANARY and said.verdict == "pass"
            claimed[number] = _decision(number, said, shown)
        tags += [_tag(tag, shown) for tag in answer.tags]
    if (wasted := plan.answers / "wasted.jsonl").is_file():
        _count(usage, [json.loads(line) for line in wasted.read_text(encoding="utf-8").splitlines()], plan, plan.batch)
    judgement = Judgement(
        digest=plan.digest,
        trial=plan.run.trial,
        task=plan.run.task,
        judge=plan.asking.model,
        rubric_version=load_rubric().version,
        protocol_version=PROTOCOL_VERSION,
        evidence_digest=plan.evidence.digest,
        settings=plan.settings,
        decisions=_combined(plan, claimed),
        canary_tripped=tripped,
        no_analysis=None if plan.evidence.analysis else "nothing that the run left shows that images were analysed",
        left_out=plan.evidence.left_out,
        served_model=served,
        tags=[tag for tag in tags if tag.tag == "none" or any(one.verified for one in tag.citations)],
        usage=usage,
        made=datetime.now(UTC),
    )
    write_judgement(plan.run.source.attempt, judgement)
    return judgement


def _count(usage: JudgeUsage, spent: Sequence[Mapping[str, Any]], plan: Plan, batch: bool) -> None:
    part = JudgeUsage(requests=len(spent))
    for one in spent:
        part.input_tokens += one.get("input_tokens") or 0
        part.cache_read_tokens += one.get("cache_read_input_tokens") or 0
        part.cache_write_tokens += one.get("cache_creation_input_tokens") or 0
        part.output_tokens += one.get("output_tokens") or 0
    billed = cost(part, price_of(plan.asking.model), batch)
    for name in ("requests", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens"):
        setattr(usage, name, getattr(usage, name) + getattr(part, name))
    usage.cost_usd = None if billed is None else (usage.cost_usd or 0.0) + billed


def _decision(number: int, said: _Decided, shown: Shown) -> Decision:
    """Take over what the model said; a pass of which no citation can be found is unknown."""
    citations = [
        Citation(file=one.file[:300], quote=one.quote and one.quote[:500], verified=shown.verify(one.file, one.quote))
        for one in said.citations[:10]
    ]
    decision = Decision(
        item=number,
        verdict=said.verdict,
        unknown_reason=said.unknown_reason if said.verdict == "unknown" else None,
        confidence=said.confidence,
        rationale=said.rationale[:1000],
        citations=citations,
        by="model",
    )
    if said.verdict == "pass" and not any(one.verified for one in citations):
        return decision.model_copy(update={"verdict": "unknown", "claimed": "pass", "unknown_reason": UNVERIFIED})
    return decision


def _tag(said: _Tagged, shown: Shown) -> Tag:
    citations = [
        Citation(file=one.file[:300], quote=one.quote and one.quote[:500], verified=shown.verify(one.file, one.quote))
        for one in said.citations[:10]
    ]
    return Tag(tag=said.tag, by="model", why=said.why[:500], citations=citations)


def _combined(plan: Plan, claimed: Mapping[int, Decision]) -> list[Decision]:
    """One decision per item: what the task takes out, then what rules decide, then what the model said."""
    case = rules.Case(plan.evidence, plan.run.source.deliverables)
    decisions = []
    for item in plan.items:
        model = claimed.get(item.id)
        said = None if model is None or model.verdict == "judge_error" else model.claimed or model.verdict
        if model is not None and model.verdict == "judge_error":
            decisions.append(model)
        elif item.id in plan.run.not_applicable:
            why = plan.run.not_applicable[item.id]
            decisions.append(Decision(item=item.id, verdict="not_applicable", claimed=said, rationale=why, by="rule"))
        elif (ruled := rules.decide(item.id, case)) is not None:
            decisions.append(ruled.model_copy(update={"claimed": said}))
        elif model is not None:
            decisions.append(model)
        else:
            reason = rules.NO_ANALYSIS if plan.evidence.analysis is None else rules.NO_RULE
            decisions.append(Decision(item=item.id, verdict="unknown", unknown_reason=reason, by="rule"))
    return decisions


async def judge_async(
    plans: Sequence[Plan],
    client: anthropic.AsyncAnthropic | None,
    *,
    concurrency: int = 4,
    max_cost: float | None = None,
    spent: float = 0.0,
    each: Callable[[Plan, Judgement], None] | None = None,
    step: Callable[[], None] | None = None,
) -> list[Judgement]:
    """Judge runs one after the other, the requests on a run together.

    The first request on a run is sent alone, so that the others find what they share in the provider's cache.

    Parameters
    ----------
    plans
        From :func:`plan`; those that are done, and those for rules alone, need no client.
    client
        From :meth:`evaluators.process.sending.Access.client`.
    concurrency
        Requests in flight at once.
    max_cost
        In USD: a run whose estimate goes beyond is not begun, nor is any after it.
    spent
        In USD, already.
    each, step
        Called after each run and after each request.

    Raises
    ------
    JudgeUnavailableError
        No request can succeed; judgements so far are stored.
    """
    sender = None
    if client is not None:
        from evaluators.process.sending import Sender  # the provider's SDK takes a second to load

        sender = Sender(client, concurrency)
    judged = []
    for one in plans:
        pending = one.pending()
        if pending and max_cost is not None:
            estimate = one.estimate().cost_usd
            if estimate is None:
                raise JudgeUnavailableError(
                    f"the price of {one.asking.model} is not known, so it cannot be kept below a limit"
                )
            if spent + estimate > max_cost:
                break
        failures: dict[str, str] = {}
        if pending:
            if sender is None:
                raise JudgeUnavailableError(f"judge {one.asking.model}: there is no client to ask it with")
            before = _paid(one)
            failures = await _asked(one, pending, sender, step)
            spent += _paid(one) - before
        judgement = conclude(one, failures)
        judged.append(judgement)
        if each is not None:
            each(one, judgement)
    return judged


def _paid(plan: Plan) -> float:
    usage = JudgeUsage()
    for request in plan.requests:
        if (path := plan.answer_file(request)).is_file():
            stored = json.loads(path.read_text(encoding="utf-8"))
            _count(usage, stored["usage"], plan, bool(stored["batch"]))
    return usage.cost_usd or 0.0


async def _asked(
    plan: Plan, pending: Sequence[JudgeRequest], sender: Sender, step: Callable[[], None] | None
) -> dict[str, str]:
    failures: dict[str, str] = {}

    async def one(request: JudgeRequest) -> None:
        if problem := await sender.ask(plan, request):
            failures[request.key] = problem
        if step is not None:
            step()

    await one(pending[0])
    try:
        async with asyncio.TaskGroup() as group:
            for request in pending[1:]:
                group.create_task(one(request))
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None
    return failures


def judge(
    runs: Sequence[Run], asking: Asking, access: Access | None = None, *, concurrency: int = 4
) -> list[Judgement]:
    """Judge runs, from plan to stored judgements; :func:`judge_async` is the same within an event loop."""

    async def work() -> list[Judgement]:
        plans = [plan(run, asking) for run in runs]
        if not any(one.pending() for one in plans):
            return await judge_async(plans, None)
        from evaluators.process.sending import Access

        async with (access or Access()).client(asking.model) as client:
            return await judge_async(plans, client, concurrency=concurrency)

    return asyncio.run(work())
