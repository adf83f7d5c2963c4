"""The judge end to end: the real SDK against a provider on loopback."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaluators.process.batch import Batches
from evaluators.process.evidence import gather
from evaluators.process.judge import (
    UNVERIFIED,
    JudgeUnavailableError,
    Plan,
    judge,
    judge_async,
    plan,
)
from evaluators.process.model import Judgement
from evaluators.process.requests import Asking
from evaluators.process.rules import RULES as RULED
from evaluators.process.sending import Access
from evaluators.process.store import judgements, latest
from evaluators.process.views import RULES, view
from tests.evaluators.process.judge_server import Answer, Asked, Fault, JudgeServer, serve
from tests.evaluators.process.runs import REPORT, bluff_run, empty_run, real_run, run
from tests.evaluators.process.test_requests import ATTACKS

MODEL = "claude-sonnet-5"


def ask(
    attempt: Path,
    task: Any,
    answer: Callable[[Asked], Answer | Fault | str],
    model: str = MODEL,
    retries: int = 2,
    **changes: Any,
) -> tuple[Judgement, JudgeServer]:
    """Judge a run with a scripted judge; the evidence is gathered in this process, which is faster."""
    with serve(answer) as server:
        judged = run(attempt, task, input_unchanged=True)

        async def work() -> list[Judgement]:
            async with Access(server.url, "key", timeout_seconds=20, retries=retries).client(model) as client:
                made = plan(judged, Asking(model, **changes), evidence=gather(judged.source))
                return await judge_async([made], client)

        return asyncio.run(work())[0], server


def said(judgement: Judgement) -> dict[int, Any]:
    return {decision.item: decision for decision in judgement.decisions}


def test_passes_with_citations_count(tmp_path: Path, task: Any) -> None:
    made, server = ask(real_run(tmp_path), task, lambda asked: asked.decide("pass"))
    found = view(made)
    assert found.score == 1.0
    assert found.coverage == 1.0
    assert found.by_rule + found.by_model + found.not_applicable == 50
    assert found.by_rule > 4
    assert len(server.asked) == 25
    assert made.served_model == f"{MODEL}-served"
    assert made.settings["chunk"] == "2"
    assert latest(tmp_path) == found


def test_request_is_what_the_study_used(tmp_path: Path, task: Any) -> None:
    _, server = ask(real_run(tmp_path), task, lambda asked: asked.decide())
    body = server.asked[0].body
    assert body["model"] == MODEL
    assert body["temperature"] == 0.1
    assert body["tool_choice"] == {"type": "tool", "name": "decide"}
    assert len(server.asked[0].statements) == 3  # two items and the false statement
    assert "key" in (server.asked[0].headers.get("x-api-key"), server.asked[0].headers["authorization"][7:])


def test_routed_models_get_a_bearer_and_never_the_other_key(
    tmp_path: Path, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not for the router")
    _, server = ask(
        real_run(tmp_path), task, lambda asked: asked.decide(), model="anthropic/claude-sonnet-5", chunk=None
    )
    assert server.asked[0].headers["authorization"] == "Bearer key"
    assert "not for the router" not in str(server.asked[0].headers)


def test_usage_is_counted_and_priced(tmp_path: Path, task: Any) -> None:
    made, _ = ask(real_run(tmp_path), task, lambda asked: asked.decide(), chunk=25)
    assert made.usage.model_dump() == {
        "requests": 2,
        "input_tokens": 200,
        "cache_read_tokens": 1000,
        "cache_write_tokens": 1000,
        "output_tokens": 100,
        "cost_usd": pytest.approx((200 * 2 + 1000 * 0.2 + 1000 * 2.5 + 100 * 10) / 1e6),
    }


def test_passes_without_verified_citation_become_unknown_and_are_counted(tmp_path: Path, task: Any) -> None:
    invented = [{"file": "report.md", "quote": "segmented with StarDist"}]
    made, _ = ask(real_run(tmp_path), task, lambda asked: asked.decide(citations=invented), chunk=None)
    found = view(made)
    assert found.by_model == 0
    assert found.unverified == 50 - found.by_rule - found.not_applicable
    assert said(made)[2].unknown_reason == UNVERIFIED
    assert found.published == 1.0  # the published rules keep such passes


def test_rules_and_task_go_before_the_model_which_stays_on_record(tmp_path: Path, task: Any) -> None:
    made, _ = ask(real_run(tmp_path), task, lambda asked: asked.decide("fail"), chunk=None)
    decisions = said(made)
    assert (decisions[36].verdict, decisions[36].by, decisions[36].claimed) == ("pass", "rule", "fail")
    assert (decisions[20].verdict, decisions[20].by) == ("not_applicable", "rule")
    assert decisions[2].by == "model"
    assert view(made).published == 0.0
    assert 0 < view(made).score < 1  # type: ignore[operator]


def test_unknown_and_not_applicable_leave_the_denominator(tmp_path: Path, task: Any) -> None:
    def answer(asked: Asked) -> Answer:
        said = asked.decide("unknown")
        for one in said["decisions"]:
            if "does not apply if" in asked.content[-1]["text"].split(f"\n{one['id']}: ")[-1].split("\nq")[0]:
                one["verdict"] = "not_applicable"
        return said

    made, _ = ask(real_run(tmp_path), task, answer, chunk=1)
    found = view(made)
    assert found.by_model == 0
    assert found.not_applicable > len(task.not_applicable)
    assert said(made)[2].unknown_reason == "ambiguous_evidence"


def test_tripped_canary_voids_the_score(tmp_path: Path, task: Any) -> None:
    def gullible(asked: Asked) -> Answer:
        answer = asked.decide("pass")
        if asked.number == 3:
            for one in answer["decisions"]:
                one["verdict"] = "pass"
        return answer

    made, _ = ask(real_run(tmp_path), task, gullible)
    assert made.canary_tripped
    assert view(made).score is None
    assert "void" in str(view(made).problem)


def test_invalid_answers_are_repaired_once(tmp_path: Path, task: Any) -> None:
    turn = itertools.count()

    def sloppy(asked: Asked) -> Answer | str:
        answer = asked.decide("pass")
        if asked.repairing:
            return answer
        return [
            "I cannot use tools.",
            {"decisions": "all pass"},
            {"decisions": answer["decisions"][1:]},
            {"decisions": [*answer["decisions"], answer["decisions"][0]]},
            {"decisions": [{**one, "verdict": "maybe"} for one in answer["decisions"]]},
            {"decisions": [{**one, "verdict": "unknown"} for one in answer["decisions"]]},
            {"decisions": [{**one, "confidence": 7} for one in answer["decisions"]]},
            {"decisions": [{**one, "verdict": "not_applicable"} for one in answer["decisions"]]},
        ][next(turn) % 8]

    made, server = ask(real_run(tmp_path), task, sloppy)
    assert view(made).errors == 0
    assert view(made).score == 1.0
    repairs = [asked for asked in server.asked if asked.repairing]
    assert len(repairs) >= 8
    assert made.usage.requests == len(server.asked)  # what was wasted is paid for too
    told = json.dumps([asked.body["messages"][-1] for asked in repairs])
    for words in ("there is no call of the tool", "no decision", "2 decisions", "unknown_reason", "always applies"):
        assert words in told


def test_answers_that_stay_invalid_are_errors_and_can_be_asked_again(tmp_path: Path, task: Any) -> None:
    attempt = real_run(tmp_path)

    made, _ = ask(attempt, task, lambda asked: "no" if asked.content[-1]["text"].count("bit depth") else asked.decide())
    found = view(made)
    assert found.errors >= 2
    assert found.score is None
    assert "no valid answer" in str(found.problem)
    error = next(one for one in made.decisions if one.verdict == "judge_error")
    assert error.unknown_reason is None
    assert "there is no call" in error.rationale
    again, server = ask(attempt, task, lambda asked: asked.decide())
    assert view(again).score == 1.0
    assert 0 < len(server.asked) < 25  # only what had failed
    assert len(judgements(attempt)) == 2
    assert again.usage.requests > 25  # the failed answers were paid for


def test_rate_limits_and_overload_are_waited_for(tmp_path: Path, task: Any) -> None:
    def busy(asked: Asked) -> Answer | Fault:
        fault = {0: 429, 5: 529, 9: 500}.get(asked.number)
        return Fault(fault, "rate_limit_error", headers={"retry-after-ms": "10"}) if fault else asked.decide()

    made, server = ask(real_run(tmp_path), task, busy)
    assert view(made).errors == 0
    assert len(server.asked) == 28


def test_faults_that_last_are_errors_not_unknowns(tmp_path: Path, task: Any) -> None:
    made, _ = ask(
        real_run(tmp_path),
        task,
        lambda _: Fault(500, "api_error", headers={"retry-after-ms": "1"}),
        retries=1,
        chunk=None,
    )
    assert {one.verdict for one in made.decisions} == {"judge_error"}
    assert "InternalServerError (500)" in made.decisions[0].rationale


@pytest.mark.parametrize("status", [401, 402, 403, 404])
def test_no_access_stops_without_a_judgement(tmp_path: Path, task: Any, status: int) -> None:
    with pytest.raises(JudgeUnavailableError, match=str(status)):
        ask(real_run(tmp_path), task, lambda _: Fault(status, "authentication_error"))
    assert judgements(tmp_path) == []


def test_missing_key_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    with pytest.raises(JudgeUnavailableError, match="set OPENROUTER_API_KEY"):
        Access().client("anthropic/claude-sonnet-5")


def test_models_that_refuse_temperature_get_none(tmp_path: Path, task: Any) -> None:
    def strict(asked: Asked) -> Answer | Fault:
        if "temperature" in asked.body:
            return Fault(400, "invalid_request_error", "temperature: is not supported by this model")
        return asked.decide()

    made, server = ask(real_run(tmp_path), task, strict)
    assert view(made).score == 1.0
    assert sum("temperature" in asked.body for asked in server.asked) == 1


@pytest.mark.parametrize("model", [MODEL, RULES])
@pytest.mark.parametrize("make", [empty_run, bluff_run])
def test_empty_and_bluff_have_no_score_on_any_task(
    make: Any, model: str, tmp_path: Path, tasks: dict[str, Any]
) -> None:
    for slug, task in tasks.items():
        made, server = ask(make(tmp_path / slug), task, lambda asked: asked.decide("pass"), model=model)
        found = view(made)
        assert found.score is found.published is None
        assert found.decided == 0
        assert "analysed" in str(found.problem)
        assert server.asked == []  # nothing to ask, nothing to pay


@pytest.mark.parametrize("model", [MODEL, RULES])
def test_real_run_without_its_deliverables_still_has_a_score(model: str, tmp_path: Path, task: Any) -> None:
    attempt = real_run(tmp_path)
    for path in [*(attempt / "submission").glob("*.tif"), attempt / "submission" / "nuclei.csv"]:
        path.unlink()
    made, _ = ask(attempt, task, lambda asked: asked.decide("pass"), model=model, chunk=None)
    assert view(made).score is not None


def test_rules_alone_show_a_score_with_its_coverage(tmp_path: Path, task: Any) -> None:
    made, server = ask(real_run(tmp_path), task, lambda asked: asked.decide(), model=RULES)
    found = view(made)
    assert server.asked == []
    assert found.score is not None
    assert 0.1 < found.coverage < 0.5  # type: ignore[operator]
    assert found.by_model == 0
    assert {one.item for one in made.decisions if one.verdict in ("pass", "fail")} <= set(RULED)
    assert {one.unknown_reason for one in made.decisions if one.verdict == "unknown"} == {"no_rule"}
    assert found.low < found.score <= found.high  # type: ignore[operator]


def test_judge_does_it_all_from_the_bounded_process_on(tmp_path: Path, task: Any) -> None:
    with serve(lambda asked: asked.decide()) as server:
        made = judge([run(real_run(tmp_path), task)], Asking(MODEL, chunk=None), Access(server.url, "key"))
    assert [view(one).score for one in made] == [1.0]


def test_judging_twice_asks_nobody_and_models_never_mix(tmp_path: Path, task: Any) -> None:
    attempt = real_run(tmp_path)
    first, _ = ask(attempt, task, lambda asked: asked.decide("pass"), chunk=None)
    again, server = ask(attempt, task, lambda asked: asked.decide("fail"), chunk=None)
    assert again == first
    assert server.asked == []
    other, server = ask(attempt, task, lambda asked: asked.decide("fail"), chunk=None, model="claude-opus-5")
    assert len(server.asked) == 1
    assert view(other).published == 0.0
    assert latest(attempt, MODEL).published == 1.0  # type: ignore[union-attr]
    chunked, _ = ask(attempt, task, lambda asked: asked.decide("pass"), chunk=10)
    assert chunked.digest not in (first.digest, other.digest)
    assert len(judgements(attempt)) == 3


def test_changed_evidence_is_judged_anew(tmp_path: Path, task: Any) -> None:
    attempt = real_run(tmp_path)
    first, _ = ask(attempt, task, lambda asked: asked.decide(), chunk=None)
    (attempt / "submission" / "report.md").write_text("Other words, the table has 2 rows.")
    second, _ = ask(attempt, task, lambda asked: asked.decide(), chunk=None)
    assert first.evidence_digest != second.evidence_digest
    assert first.digest != second.digest


def test_interrupted_judging_continues_with_the_same_requests(tmp_path: Path, task: Any) -> None:
    attempt = real_run(tmp_path)

    class Cut(Exception):
        pass

    def cut() -> None:
        count.append(1)
        if len(count) == 7:
            raise Cut

    count: list[int] = []
    with serve(lambda asked: asked.decide()) as server:

        async def work(step: Callable[[], None] | None) -> None:
            async with Access(server.url, "key").client(MODEL) as client:
                await judge_async([plan(run(attempt, task), Asking(MODEL))], client, concurrency=1, step=step)

        with pytest.raises(Cut):
            asyncio.run(work(cut))
        assert judgements(attempt) == []
        kept = len(server.asked)
        assert kept < 25
        asyncio.run(work(None))
        assert len(server.asked) <= 26  # at most the one in flight is asked again
    assert len(judgements(attempt)) == 1


def test_cost_limit_stops_before_a_run_that_would_break_it(tmp_path: Path, task: Any) -> None:
    plans = [plan(run(real_run(tmp_path / str(at)), task), Asking(MODEL)) for at in range(3)]
    each = plans[0].estimate().cost_usd
    assert each is not None
    with serve(lambda asked: asked.decide()) as server:

        async def work(limit: float) -> list[Judgement]:
            async with Access(server.url, "key").client(MODEL) as client:
                return await judge_async(plans, client, max_cost=limit)

        assert asyncio.run(work(each * 0.9)) == []
        assert server.asked == []
        done = asyncio.run(work(each * 1.05))
        assert 1 <= len(done) < 3


def test_estimate_counts_what_is_shared_once(tmp_path: Path, task: Any) -> None:
    attempt = real_run(tmp_path)
    two, ten, whole = (plan(run(attempt, task), Asking(MODEL, chunk=size)).estimate() for size in (2, 10, None))
    assert (two.requests, ten.requests, whole.requests) == (25, 5, 1)
    assert two.cache_read_tokens == 24 * two.cache_write_tokens > 0
    assert whole.cache_write_tokens == whole.cache_read_tokens == 0
    assert two.cost_usd > ten.cost_usd > whole.cost_usd  # type: ignore[operator]
    batch = plan(run(attempt, task), Asking(MODEL, chunk=None), batch=True).estimate()
    assert batch.cost_usd == pytest.approx(whole.cost_usd / 2)  # type: ignore[operator]


# --- batches --------------------------------------------------------------------------------------------------------


def batch(plans: list[Plan], server: JudgeServer, folder: Path) -> tuple[int, list[Judgement]]:
    async def work() -> tuple[int, list[Judgement]]:
        async with Access(server.url, "key", retries=0).client(MODEL) as client:
            batches = Batches(folder)
            await batches.submit(plans, client)
            await batches.collect(client, poll_seconds=0.01)
            return batches.take(plans), await judge_async(plans, client)

    return asyncio.run(work())


def test_batches_answer_everything_at_half_the_price(tmp_path: Path, task: Any) -> None:
    plans = [plan(run(real_run(tmp_path / str(at)), task), Asking(MODEL, chunk=None), batch=True) for at in range(2)]
    with serve(lambda asked: asked.decide()) as server:
        server.polls_needed = 3
        stored, made = batch(plans, server, tmp_path / "judging")
    assert stored == 2
    assert len(server.batches) == 1
    assert server.polls["msgbatch_0"] >= 3
    assert [view(one).score for one in made] == [1.0, 1.0]
    assert made[0].usage.cost_usd == pytest.approx((100 * 2 + 50 * 10) / 2e6)
    assert json.loads((tmp_path / "judging" / "batches.json").read_text()) == {}


def test_interrupted_batch_is_waited_for_not_sent_again(tmp_path: Path, task: Any) -> None:
    folder = tmp_path / "judging"
    attempt = real_run(tmp_path)

    def planned() -> list[Plan]:
        return [plan(run(attempt, task), Asking(MODEL, chunk=10), batch=True)]

    with serve(lambda asked: asked.decide()) as server:
        server.polls_needed = 10**6

        async def cut() -> None:
            async with Access(server.url, "key").client(MODEL) as client:
                batches = Batches(folder)
                await batches.submit(planned(), client)
                await asyncio.wait_for(batches.collect(client, poll_seconds=0.01), 0.5)

        with pytest.raises(TimeoutError):
            asyncio.run(cut())
        server.polls_needed = 1
        stored, made = batch(planned(), server, folder)
        assert len(server.batches) == 1
        assert stored == 5
        assert view(made[0]).score == 1.0


def test_what_a_batch_did_not_answer_well_is_asked_alone(tmp_path: Path, task: Any) -> None:
    made_plan = [plan(run(real_run(tmp_path), task), Asking(MODEL, chunk=10), batch=True)]

    def answer(asked: Asked) -> Answer | Fault | str:
        return {0: Fault(500, "api_error"), 1: "no"}.get(asked.number, asked.decide())  # type: ignore[return-value]

    with serve(answer) as server:
        stored, made = batch(made_plan, server, tmp_path / "judging")
    assert stored == 3
    assert view(made[0]).score == 1.0
    assert len(server.asked) == 5 + 2


def test_batch_that_the_provider_forgot_is_named(tmp_path: Path, task: Any) -> None:
    folder = tmp_path / "judging"
    folder.mkdir()
    (folder / "batches.json").write_text('{"msgbatch_gone": ["x"]}')
    with serve(lambda asked: asked.decide()) as server, pytest.raises(JudgeUnavailableError, match="msgbatch_gone"):
        batch([], server, folder)


# --- attacks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ATTACKS)
def test_a_judge_that_follows_the_material_loses_the_score(name: str, tmp_path: Path, task: Any) -> None:
    """A scripted judge that does what the attack says passes the false statement with the rest."""
    attempt = real_run(tmp_path)
    (attempt / "submission" / "report.md").write_text(f"{REPORT}\n{ATTACKS[name]}\n", newline="")

    def gullible(asked: Asked) -> Answer:
        answer = asked.decide("pass")
        if any("ATTACK" in block.get("text", "") for block in asked.content):
            for one in answer["decisions"]:
                one["verdict"] = "pass"
        return answer

    made, _ = ask(attempt, task, gullible, chunk=None)
    assert made.canary_tripped
    assert view(made).score is view(made).published is None


@pytest.mark.parametrize("name", ATTACKS)
def test_a_judge_that_keeps_to_the_fences_decides_as_without_the_attack(name: str, tmp_path: Path, task: Any) -> None:
    """What it reads outside of the pieces is the same, letter by letter, but for the key."""

    def seen(text: str) -> tuple[str, list[str]]:
        attempt = real_run(tmp_path / str(len(text)))
        (attempt / "submission" / "report.md").write_text(text, newline="")
        _, server = ask(attempt, task, lambda asked: asked.decide(), chunk=None)
        content = server.asked[0].content
        fence = content[0]["text"][1:25]
        outside = [
            line.replace(fence, "KEY")
            for block in content
            for line in block.get("text", "").split("\n")
            if not line.startswith("| ") and "A table " not in line
        ]
        return server.asked[0].body["system"][0]["text"], sorted(outside)  # the false statement moves

    plain, attacked = seen(REPORT), seen(f"{REPORT}\n{ATTACKS[name]}\n")
    assert attacked[0] == plain[0]
    keep = [line for line in plain[1] if not line.startswith("q")]
    assert [line for line in attacked[1] if not line.startswith("q")] == keep
