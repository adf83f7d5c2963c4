"""The three protocols: from a scripted turn to the JSON, or the events, that a real provider sends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.model_server.script import Counts, Fault, Protocol, Request, Turn

Event = tuple[str | None, dict[str, Any] | str]  # (event name, data)

_ANTHROPIC_ERRORS = {
    400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
    404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 500: "api_error",
    529: "overloaded_error",
}  # fmt: skip
_OPENAI_ERRORS = {401: "invalid_api_key", 402: "insufficient_quota", 429: "rate_limit_exceeded"}


def protocol_of(path: str) -> Protocol | None:
    """Return which protocol a path belongs to."""
    for ending, name in (("/messages", "messages"), ("/responses", "responses"), ("/chat/completions", "chat")):
        if path.rstrip("/").endswith(ending):
            return name  # type: ignore[return-value]
    return None


def error_body(protocol: Protocol | None, fault: Fault) -> dict[str, Any]:
    """Return the body of an error answer."""
    if protocol == "messages":
        kind = _ANTHROPIC_ERRORS.get(fault.status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": fault.message}, "request_id": "req_test"}
    code = _OPENAI_ERRORS.get(fault.status)
    return {"error": {"message": fault.message, "type": "invalid_request_error", "code": code, "param": None}}


def answer(request: Request, turn: Turn, number: int) -> dict[str, Any]:
    """Return the whole answer as one JSON object."""
    build = {"messages": _message, "responses": _response, "chat": _completion}[request.protocol or "chat"]
    return build(request, turn, number)


def events(request: Request, turn: Turn, number: int) -> list[Event]:
    """Return the answer as the events of a stream."""
    build = {"messages": _message_events, "responses": _response_events, "chat": _chat_events}
    return list(build[request.protocol or "chat"](request, turn, number))


def encode(event: Event) -> bytes:
    """Return an event in the form of server-sent events."""
    name, data = event
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


# --- Anthropic Messages --------------------------------------------------------------------------------------------


def _message_usage(counts: Counts, output: int) -> dict[str, Any]:
    return {
        "input_tokens": counts.input,
        "cache_creation_input_tokens": counts.cache_write,
        "cache_read_input_tokens": counts.cached,
        "output_tokens": output,
    }


def _message(request: Request, turn: Turn, number: int) -> dict[str, Any]:
    call = turn.call(request)
    content: list[dict[str, Any]] = []
    if turn.reasoning:
        content.append({"type": "thinking", "thinking": turn.reasoning, "signature": "c2lnbmF0dXJl"})
    if turn.text:
        content.append({"type": "text", "text": turn.text})
    if call:
        content.append({"type": "tool_use", "id": f"toolu_{number:04d}", "name": call[0], "input": call[1]})
    stop = "refusal" if turn.refusal else "max_tokens" if turn.length else "tool_use" if call else "end_turn"
    return {
        "id": f"msg_{number:04d}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": _message_usage(turn.counts, turn.counts.output),
    }


def _message_events(request: Request, turn: Turn, number: int) -> Iterator[Event]:
    whole = _message(request, turn, number)
    start = {**whole, "content": [], "stop_reason": None, "usage": _message_usage(turn.counts, 1)}
    yield "message_start", {"type": "message_start", "message": start}
    yield "ping", {"type": "ping"}
    for index, block in enumerate(whole["content"]):
        kind = block["type"]
        if kind == "tool_use":
            opened: dict[str, Any] = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        elif kind == "thinking":
            opened = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        else:
            opened = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": part} for part in _parts(block["text"])]
        yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": opened}
        for delta in deltas:
            yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    usage = {"output_tokens": turn.counts.output}
    yield "message_delta", {"type": "message_delta", "delta": delta, "usage": usage}
    yield "message_stop", {"type": "message_stop"}


def _parts(text: str) -> list[str]:
    half = max(1, len(text) // 2)
    return [part for part in (text[:half], text[half:]) if part]


# --- OpenAI Responses ----------------------------------------------------------------------------------------------


def _response_items(request: Request, turn: Turn, number: int) -> list[dict[str, Any]]:
    call = turn.call(request)
    items: list[dict[str, Any]] = []
    if turn.reasoning:
        summary = [{"type": "summary_text", "text": turn.reasoning}]
        items.append({"type": "reasoning", "id": f"rs_{number:04d}", "summary": summary, "encrypted_content": None})
    if turn.text or turn.refusal:
        part = (
            {"type": "refusal", "refusal": turn.text or "I can't help with that."}
            if turn.refusal
            else {"type": "output_text", "text": turn.text, "annotations": []}
        )
        items.append(
            {"type": "message", "id": f"m_{number:04d}", "role": "assistant", "status": "completed", "content": [part]}
        )
    if call:
        items.append(
            {
                "type": "function_call",
                "id": f"fc_{number:04d}",
                "call_id": f"call_{number:04d}",
                "name": call[0],
                "arguments": json.dumps(call[1]),
                "status": "completed",
            }
        )
    return items


def _response(request: Request, turn: Turn, number: int) -> dict[str, Any]:
    counts = turn.counts
    prompt = counts.input + counts.cached + counts.cache_write
    usage: dict[str, Any] = {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": counts.cached},
        "output_tokens": counts.output,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning},
        "total_tokens": prompt + counts.output,
    }
    if counts.cost is not None:
        usage["cost"] = counts.cost
    return {
        "id": f"resp_{number:04d}",
        "object": "response",
        "created_at": 1_700_000_000,
        "model": request.model,
        "status": "incomplete" if turn.length else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if turn.length else None,
        "output": _response_items(request, turn, number),
        "usage": usage,
    }


def _response_events(request: Request, turn: Turn, number: int) -> Iterator[Event]:
    whole = _response(request, turn, number)
    sequence = iter(range(1000))

    def event(kind: str, **values: Any) -> Event:
        return kind, {"type": kind, "sequence_number": next(sequence), **values}

    begun = {**whole, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for index, item in enumerate(whole["output"]):
        opened = {**item, "status": "in_progress"}
        if item["type"] == "message":
            opened["content"] = []
        yield event("response.output_item.added", output_index=index, item=opened)
        if item["type"] == "message" and item["content"][0]["type"] == "output_text":
            place = {"item_id": item["id"], "output_index": index, "content_index": 0}
            for part in _parts(item["content"][0]["text"]):
                yield event("response.output_text.delta", **place, delta=part)
            yield event("response.output_text.done", **place, text=item["content"][0]["text"])
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.incomplete" if turn.length else "response.completed", response=whole)


# --- OpenAI Chat Completions ---------------------------------------------------------------------------------------


def _chat_usage(counts: Counts) -> dict[str, Any]:
    prompt = counts.input + counts.cached + counts.cache_write
    usage: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": counts.output,
        "total_tokens": prompt + counts.output,
        "prompt_tokens_details": {"cached_tokens": counts.cached, "cache_write_tokens": counts.cache_write},
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning},
    }
    if counts.cost is not None:
        usage["cost"] = counts.cost
    return usage


def _chat_finish(turn: Turn, calls: bool) -> str:
    return "content_filter" if turn.refusal else "length" if turn.length else "tool_calls" if calls else "stop"


def _chat_calls(request: Request, turn: Turn, number: int) -> list[dict[str, Any]]:
    call = turn.call(request)
    if call is None:
        return []
    function = {"name": call[0], "arguments": json.dumps(call[1])}
    return [{"id": f"call_{number:04d}", "type": "function", "function": function}]


def _completion(request: Request, turn: Turn, number: int) -> dict[str, Any]:
    calls = _chat_calls(request, turn, number)
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if calls:
        message["tool_calls"] = calls
    if turn.reasoning:
        message["reasoning"] = turn.reasoning
    return {
        "id": f"gen_{number:04d}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": request.model,
        "choices": [{"index": 0, "message": message, "finish_reason": _chat_finish(turn, bool(calls))}],
        "usage": _chat_usage(turn.counts),
    }


def _chat_events(request: Request, turn: Turn, number: int) -> Iterator[Event]:
    whole = _completion(request, turn, number)
    frame = {"id": whole["id"], "object": "chat.completion.chunk", "created": whole["created"], "model": whole["model"]}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> Event:
        return None, {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    if turn.reasoning:
        yield chunk({"reasoning": turn.reasoning})
    for part in _parts(turn.text):
        yield chunk({"content": part})
    calls = whole["choices"][0]["message"].get("tool_calls", ())
    for index, call in enumerate(calls):
        yield chunk({"tool_calls": [{"index": index, **call}]})
    yield chunk({}, whole["choices"][0]["finish_reason"])
    yield None, {**frame, "choices": [], "usage": whole["usage"]}
    yield None, "[DONE]"
