"""The stand-in provider is read by a real client library, so that what it says is what a provider says."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import anthropic
import pytest

from tests.model_server import Counts, Fault, ModelServer, Turn

_BASH = {"name": "bash", "description": "", "input_schema": {"type": "object", "properties": {"command": {}}}}


def _post(url: str, body: dict[str, Any]) -> tuple[int, str]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Authorization": "Bearer k"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_messages_stream_is_read_by_the_anthropic_client() -> None:
    turns = [Turn(reasoning="hm", text="Look.", shell="ls /input", counts=Counts(7, 3, 2, 11)), Turn(text="Done.")]
    with ModelServer(turns) as server:
        client = anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0)
        messages: Any = [{"role": "user", "content": "count"}]
        options: Any = {"model": "m", "max_tokens": 99, "messages": messages, "tools": [_BASH]}
        with client.messages.stream(**options) as stream:
            first = stream.get_final_message()
        second = client.messages.create(**options)
    assert [block.type for block in first.content] == ["thinking", "text", "tool_use"]
    assert first.content[2].input == {"command": "ls /input"}
    assert (first.usage.input_tokens, first.usage.cache_read_input_tokens, first.usage.output_tokens) == (7, 3, 11)
    assert first.stop_reason == "tool_use"
    assert second.stop_reason == "end_turn"
    assert [request.model for request in server.requests] == ["m", "m"]
    assert server.requests[0].key == "k"
    assert server.requests[0].user_texts() == ["count"]


@pytest.mark.parametrize(("path", "where"), [("v1/responses", "input"), ("v1/chat/completions", "messages")])
def test_openai_streams_say_the_text_and_end_with_usage(path: str, where: str) -> None:
    with ModelServer([Turn(text="Four cells.", counts=Counts(100, 40, 0, 20, 5))]) as server:
        body = {"model": "m", "stream": True, where: [{"role": "user", "content": "count"}]}
        status, text = _post(f"{server.url}/{path}", body)
    assert status == 200
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    if where == "input":
        said = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
        usage = events[-1]["response"]["usage"]
    else:
        said = "".join(choice["delta"].get("content", "") for event in events for choice in event["choices"])
        usage = events[-1]["usage"]
    assert said == "Four cells."
    assert usage["total_tokens"] == 160


def test_faults() -> None:
    faults = [Fault(status=402, message="no credit"), Fault(kind="empty_body"), Fault(kind="truncated")]
    with ModelServer([Turn(text="never seen whole", fault=fault) for fault in faults]) as server:
        url, body = f"{server.url}/v1/messages", {"model": "m", "stream": True, "messages": []}
        status, text = _post(url, body)
        assert status == 402
        assert json.loads(text)["error"] == {"type": "billing_error", "message": "no credit"}
        assert _post(url, body) == (200, "")
        with pytest.raises(Exception, match=r"IncompleteRead|reset|closed"):
            _post(url, body)
