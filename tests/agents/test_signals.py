"""The table of docs/agents.md, row by row: what the relay saw decides what a run's end means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.base import Evidence, Usage
from agents.relay.ledger import Exchange
from agents.signals import difference, effort_on_wire, merge_usage, weigh, wire


def row(number: int = 1, **values: Any) -> Exchange:
    known: dict[str, Any] = {
        "number": number,
        "at": float(number),
        "method": "POST",
        "path": "/v1/messages",
        "protocol": "messages",
        "status": 200,
        "model": "m",
        "effort": "medium",
        "response_bytes": 10,
        "first_byte_ms": 5.0,
        "input_tokens": 10,
        "output_tokens": 5,
    }
    return Exchange(**(known | values))


GOOD = row(1, text=True, calls=1)

ROWS: list[tuple[str, dict[str, Any], str | None, str]] = [
    # what the provider did, as the ledger has it; where it goes; words that must be there
    ("refusal", {"refusal": True, "stop": "refusal"}, "refused", "stop reason refusal"),
    ("content filter", {"refusal": True, "stop": "content_filter"}, "refused", "content_filter"),
    ("policy by code", {"status": 400, "error_type": "content_policy_violation"}, "refused", "policy"),
    ("moderation", {"status": 403, "error_type": "moderation"}, "refused", "moderation"),
    ("policy by words", {"status": 400, "error_type": "x", "error": "violates our policy"}, "review", "may be"),
    ("other 400", {"status": 400, "error_type": "x", "error": "bad field"}, "review", "rejected"),
    ("size by code", {"status": 400, "error_type": "context_length_exceeded"}, "review", "size limit"),
    ("size by words", {"status": 400, "error_type": "x", "error": "prompt is too long"}, "review", "size limit"),
    ("413", {"status": 413, "error_type": "request_too_large"}, "review", "size limit"),
    ("401", {"status": 401, "error_type": "authentication_error"}, "infrastructure", "401"),
    ("402", {"status": 402, "error_type": "billing_error"}, "infrastructure", "402"),
    ("404", {"status": 404, "error_type": "not_found_error"}, "infrastructure", "404"),
    ("429", {"status": 429, "error_type": "rate_limit_error"}, "infrastructure", "429"),
    ("500", {"status": 500, "error_type": "api_error"}, "infrastructure", "500"),
    ("529", {"status": 529, "error_type": "overloaded_error"}, "infrastructure", "529"),
    ("error in the stream", {"error_type": "overloaded_error", "error": "busy"}, "infrastructure", "broke off"),
    ("unreachable", {"status": None, "ending": "unreachable", "error": "x"}, "infrastructure", "reached"),
    ("cut", {"ending": "truncated"}, "infrastructure", "cut off"),
    ("no content", {"ending": "truncated", "response_bytes": 0}, "infrastructure", "without content"),
    ("gateway-empty", {"output_tokens": 0}, "infrastructure", "no output tokens"),
    ("empty turn", {"output_tokens": 7}, "review", "empty turn"),
    ("empty, not counted", {"output_tokens": None}, "review", "no token count"),
    ("hang", {"status": None, "ending": "client_gone", "first_byte_ms": None, "silent_seconds": 60.0},
     "infrastructure", "sent nothing for the last 60 s"),
    ("stall", {"ending": "client_gone", "silent_seconds": 60.0}, "infrastructure", "sent nothing"),
    ("short wait", {"status": None, "ending": "client_gone", "first_byte_ms": None, "silent_seconds": 9.0},
     "review", "9 s after a request"),
    ("killed while it wrote", {"ending": "client_gone", "silent_seconds": 0.1, "text": True}, None, ""),
    ("answer", {"text": True}, None, ""),
    ("call", {"calls": 1}, None, ""),
]  # fmt: skip


@pytest.mark.parametrize(("values", "where", "words"), [case[1:] for case in ROWS], ids=[case[0] for case in ROWS])
def test_the_last_exchange_decides(values: dict[str, Any], where: str | None, words: str) -> None:
    found = weigh([GOOD, row(2, **values)], Evidence(), budget_seconds=100.0)
    placed = {"refused": found.refused, "infrastructure": found.infrastructure, "review": " ".join(found.review)}
    for name, said in placed.items():
        if name == where:
            assert said
            assert words in said
        else:
            assert not said, (name, said)


@pytest.mark.parametrize("values", [case[1] for case in ROWS], ids=[case[0] for case in ROWS])
def test_what_was_overcome_does_not_count(values: dict[str, Any]) -> None:
    found = weigh([row(1, **values), row(2, text=True)], Evidence(), budget_seconds=100.0)
    assert (found.refused, found.infrastructure, found.review) == (None, None, ())


def test_last_is_what_ended_last_and_asked_a_model() -> None:
    slow_failure = row(1, status=429, error_type="rate_limit_error", seconds=50.0)
    listing = row(3, protocol="other", status=404, at=99.0)
    found = weigh([slow_failure, row(2, text=True, seconds=1.0), listing], Evidence(), budget_seconds=100.0)
    assert found.infrastructure is not None


def test_another_model_decides_nothing_where_the_right_one_was_asked() -> None:
    """An agent must not excuse its run by a last request that fails for sure."""
    foreign = row(2, model="nope", status=404, error_type="not_found_error")
    assert weigh([GOOD, foreign], Evidence(), budget_seconds=100, model="m").infrastructure is None
    assert weigh([foreign], Evidence(), budget_seconds=100, model="m").infrastructure is not None
    unread = row(3, model=None, status=413, error_type="request_too_large")
    assert "size limit" in weigh([GOOD, unread], Evidence(), budget_seconds=100, model="m").review[0]


def test_requests_that_were_not_read_whole_are_no_problem_of_the_wire() -> None:
    found = wire([GOOD, row(2, model=None, effort=None, status=413, ending="truncated")], model="m", effort="medium")
    assert found["problems"] == []
    assert (found["requests"], found["not_read"], found["models"]) == (2, 1, {"m": 1})
    assert effort_on_wire([GOOD, row(2, model=None, effort=None)]) == "medium"


def test_answers_without_counts_are_counted() -> None:
    cut = row(2, ending="client_gone", input_tokens=None, output_tokens=None)
    refused = row(3, ending="refused_by_relay", status=None, input_tokens=None, output_tokens=None)
    failed = row(4, status=500, error_type="api_error", input_tokens=None, output_tokens=None)
    assert wire([GOOD, cut, refused, failed], model="m", effort=None)["unmetered"] == 1


def test_a_cost_that_lacks_a_request_is_no_cost() -> None:
    costly = row(2, output_tokens=0, cost_usd=None, input_tokens=100_000)
    assert merge_usage(Usage(), [GOOD.model_copy(update={"cost_usd": 0.5})]).cost_usd == 0.5
    assert merge_usage(Usage(), [GOOD.model_copy(update={"cost_usd": 0.5}), costly]).cost_usd is None


def test_an_agent_cannot_claim_a_fault_that_the_relay_did_not_see() -> None:
    claimed = Evidence(refused="I was refused", infrastructure="HTTP 429")
    found = weigh([GOOD], claimed, budget_seconds=100.0)
    assert (found.refused, found.infrastructure) == (None, None)
    assert len(found.review) == 2
    alone = weigh([], claimed, budget_seconds=100.0, relayed=False)
    assert alone == claimed  # no relay: its events are all there is
    assert weigh([], claimed, budget_seconds=100.0).review == ("the agent never asked its model",)


def test_usage_is_metered_and_calls_are_the_agents_own() -> None:
    reported = Usage(input_tokens=25, output_tokens=10, tool_calls=3, executed_blocks=2, source="events")
    rows = [row(1, cached_tokens=4), row(2, reasoning_tokens=1)]
    usage = merge_usage(reported, rows)
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens) == (20, 10, 4, 1)
    assert (usage.tool_calls, usage.executed_blocks, usage.source, usage.requests) == (3, 2, "relay", 2)
    assert difference(reported, usage) == {"input_tokens": 5}
    assert merge_usage(reported, []) is reported


def test_wrong_model_and_effort_are_named() -> None:
    rows = [row(1, tools=["Bash"]), row(2, model="small", effort=None), row(3, effort="31999 thinking tokens")]
    found = wire(rows, model="m", effort="medium")
    assert found["problems"] == [
        "1 requests named the model small",
        "1 requests carried the effort none instead of medium",
        "1 requests carried the effort 31999 thinking tokens instead of medium",
    ]
    assert found["tools"] == ["Bash"]
    assert wire(rows[:1], model="m", effort="medium")["problems"] == []
    assert effort_on_wire(rows) == "31999 thinking tokens+medium+not on the wire"
    assert effort_on_wire([]) is None


def test_every_row_is_in_the_documentation() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")
    table = page.partition("## From signal to end state")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")]
    ends = {name.strip(): cells[2] for cells in rows[2:] for name in cells[0].split(",")}
    ends["empty, not counted"] = ends.pop("empty", "")
    for name, _, where, _ in ROWS:
        if name in ("answer", "call"):
            continue
        expected = {"refused": "refused", "infrastructure": "infrastructure", "review": "by exit, review"}
        assert ends.get(name) == expected.get(str(where), "by exit"), name
