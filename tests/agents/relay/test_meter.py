"""What answers say, in the forms that providers and gateways really give them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents.relay.ledger import Protocol
from agents.relay.meter import Answer, Meter


def streamed(protocol: Protocol, *events: dict[str, Any] | str) -> Answer:
    meter = Meter(protocol, 200, "text/event-stream; charset=utf-8")
    for event in events:
        meter.feed(f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode())
    return meter.close()


def whole(protocol: Protocol, body: dict[str, Any], status: int = 200) -> Answer:
    meter = Meter(protocol, status, "application/json")
    meter.feed(json.dumps(body).encode())
    return meter.close()


def test_zeros_at_the_end_do_not_wipe_what_was_counted_at_the_start() -> None:
    start = {"input_tokens": 3, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 40, "output_tokens": 1}
    last = {"input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 9}
    answer = streamed(
        "messages",
        {"type": "message_start", "message": {"model": "m", "usage": start}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last},
        {"type": "message_stop"},
    )
    assert (answer.input_tokens, answer.cached_tokens, answer.cache_write_tokens, answer.output_tokens) == (
        63,
        40,
        20,
        9,
    )
    assert answer.complete


@pytest.mark.parametrize(
    ("reason", "refused"), [("max_output_tokens", False), ("content_filter", True)], ids=["length", "filter"]
)
def test_an_incomplete_response_is_an_end(reason: str, refused: bool) -> None:
    response = {
        "model": "m",
        "status": "incomplete",
        "incomplete_details": {"reason": reason},
        "usage": {"input_tokens": 5, "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 1}},
    }
    answer = streamed("responses", {"type": "response.incomplete", "response": response})
    assert (answer.complete, answer.stop, answer.refusal) == (True, reason, refused)
    assert (answer.input_tokens, answer.output_tokens, answer.reasoning_tokens) == (5, 2, 1)


def test_output_that_comes_with_the_end_alone_counts_and_counts_once() -> None:
    call = {"type": "function_call", "name": "f"}
    said = {"type": "message", "content": [{"type": "output_text", "text": "Four."}]}
    end = {"type": "response.completed", "response": {"output": [call, said], "status": "completed"}}
    alone = streamed("responses", end)
    assert (alone.calls, alone.text) == (1, True)
    both = streamed("responses", {"type": "response.output_item.done", "item": call}, end)
    assert both.calls == 1


def test_deepseeks_own_name_of_cached_tokens() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_cache_hit_tokens": 7}
    answer = whole("chat", {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "usage": usage})
    assert (answer.input_tokens, answer.cached_tokens, answer.output_tokens) == (10, 7, 2)


@pytest.mark.parametrize(
    ("message", "text", "calls"),
    [
        ({"content": [{"type": "text", "text": "Four."}]}, True, 0),
        ({"content": [{"type": "text", "text": " "}]}, False, 0),
        ({"content": None, "function_call": {"name": "f", "arguments": "{}"}}, False, 1),
        ({"content": "", "tool_calls": [{"function": {"name": "f"}}, {"function": {"name": "g"}}]}, False, 2),
    ],
)
def test_chat_messages_in_every_form(message: dict[str, Any], text: bool, calls: int) -> None:
    answer = whole("chat", {"choices": [{"message": message, "finish_reason": "stop"}]})
    assert (answer.text, answer.calls) == (text, calls)


def test_a_chat_stream_ends_with_its_finish_reason_too() -> None:
    delta = {"choices": [{"delta": {"content": "x"}}]}
    assert streamed("chat", delta, {"choices": [{"delta": {}, "finish_reason": "stop"}]}).complete
    assert streamed("chat", delta, "[DONE]").complete
    assert not streamed("chat", delta).complete


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        ({"cost": 0.5}, 0.5),
        ({"cost": 0, "cost_details": {"upstream_inference_cost": 0.5}}, 0.5),
        ({"cost": 0.025, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.5}}, 0.525),
        ({"cost": 0.5, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.4}}, 0.5),
        ({"cost": None}, None),
        ({"cost": -1}, None),
        ({}, None),
    ],
)
def test_a_providers_cost_with_a_key_of_ones_own_upstream(usage: dict[str, Any], cost: float | None) -> None:
    body = {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1, **usage}}
    assert whole("chat", body).cost_usd == cost


def test_errors_are_stored_in_short() -> None:
    answer = whole("chat", {"error": {"code": "c" * 1000, "message": "m" * 10_000 + "\ud83d"}}, 400)
    assert (len(answer.error_type or ""), len(answer.error or "")) == (200, 500)
