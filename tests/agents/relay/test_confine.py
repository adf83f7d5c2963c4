"""A request that could have the provider read the web is refused, and those of agents are not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents.relay.confine import objections

BASE: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "see http://a.example"}]}


def content(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


HARMLESS: dict[str, dict[str, Any]] = {
    "plain": {},
    "functions": {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"$schema": "http://j/s"}}}]},
    "anthropic tool": {"tools": [{"name": "Bash", "input_schema": {"properties": {"url": {"type": "string"}}}}]},
    "client side": {"tools": [{"type": "bash_20250124", "name": "bash"}, {"type": "custom", "name": "apply_patch"}]},
    "group": {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}]},
    "image": content({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}),
    "image as text": content({"type": "input_image", "image_url": "data:image/png;base64,AAAA"}),
    "file": content({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "A"}}),
    "call": content({"type": "tool_use", "id": "1", "name": "get", "input": {"url": "http://a.example"}}),
    "result": content({"type": "tool_result", "content": [{"type": "text", "text": '{"url": "http://a.example"}'}]}),
    "empty fields": {"plugins": [], "mcp_servers": None, "models": [], "background": False},
    "cache key": {"prompt_cache_key": "p", "store": False, "metadata": {"url": "http://a.example"}},
}
WEB: dict[str, dict[str, Any]] = {
    "search": {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    "upper case": {"tools": [{"type": "Web_Search", "name": "w"}]},
    "google": {"tools": [{"google_search": {}}]},
    "google, named": {"tools": [{"type": "google_search"}]},
    "kimi": {"tools": [{"type": "builtin_function", "function": {"name": "$web_search"}}]},
    "kimi, disguised": {"tools": [{"type": "function", "function": {"name": "$web_search"}}]},
    "hosted shell": {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]},
    "namespace": {"tools": [{"type": "namespace", "tools": [{"type": "web_search"}]}]},
    "tools, no list": {"tools": {"type": "web_search"}},
    "plugins": {"plugins": [{"id": "web"}]},
    "mcp": {"mcp_servers": [{"url": "http://a.example"}]},
    "options": {"web_search_options": {"a": 1}},
    "qwen": {"enable_search": True},
    "grok": {"search_parameters": {"mode": "on"}},
    "models": {"models": ["x/y:online"]},
    "online": {"model": "m:online"},
    "another model": {"model": "perplexity/sonar-pro"},
    "no model": {"model": None},
    "stored prompt": {"prompt": {"id": "pmpt_1"}},
    "preset": {"preset": "p"},
    "field in other letters": {"Tools": [{"type": "web_search"}]},
    "field with a space": {"plugins ": [{"id": "web"}]},
    "anthropic url": content({"type": "document", "source": {"type": "url", "url": "https://a.example/p.pdf"}}),
    "chat url": content({"type": "image_url", "image_url": {"url": " HTTPS://a.example/p.png"}}),
    "chat url as text": content({"type": "image_url", "image_url": "https://a.example/p.png"}),
    "responses file": {"input": [{"content": [{"type": "input_file", "file_url": "https://a.example/p.pdf"}]}]},
    "openrouter file": content({"type": "file", "file": {"file_data": "https://a.example/p.pdf"}}),
    "no scheme": content({"type": "image_url", "image_url": {"url": "//a.example/p.png"}}),
    "bucket": content({"type": "file", "fileUri": "gs://a/b"}),
    "in a result": content({"type": "tool_result", "content": [{"source": {"type": "url", "url": "ftp://a.example"}}]}),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_agents_ask_passes(name: str) -> None:
    assert objections(json.dumps(BASE | HARMLESS[name]).encode(), "m") == []


@pytest.mark.parametrize("name", WEB)
def test_what_reads_the_web_does_not(name: str) -> None:
    assert objections(json.dumps(BASE | WEB[name]).encode(), "m")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{",
        b'{"model": "m"} x',
        b'{"model": "m", "tools": [{"type": "web_search"}], "tools": []}',
        b'{"model": "m", "\\u0074ools": [{"type": "web_search"}]}',
        b"[" * 100_000,
        json.dumps({"model": "m", "plugins": [{"id": "web"}]}).encode("utf-16"),
    ],
)
def test_what_parsers_read_differently_does_not_pass(raw: bytes) -> None:
    assert objections(raw, "m")


def test_any_model_may_be_asked_where_none_is_named() -> None:
    assert objections(json.dumps(BASE | {"model": "other"}).encode()) == []
