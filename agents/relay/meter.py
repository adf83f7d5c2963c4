"""Read requests and answers of the three protocols as they pass: what was asked, what came, what it will cost."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from agents.relay.ledger import Protocol

_MOST = 64 << 20  # bytes of one event, or of one whole answer, that are looked at
_ERROR_LENGTH = 500
_NAME_LENGTH = 200
_MOST_TOOLS = 500
_ENDINGS: tuple[tuple[str, Protocol], ...] = (
    ("/v1/messages", "messages"),
    ("/v1/responses", "responses"),
    ("/v1/chat/completions", "chat"),
)


def protocol_of(method: str, path: str) -> Protocol:
    """Tell which protocol a request belongs to; ``other`` asks no model."""
    if method == "POST":
        for ending, protocol in _ENDINGS:
            if path.rstrip("/").endswith(ending):
                return protocol
    return "other"


@dataclass(frozen=True)
class Asked:
    """What a request says about itself."""

    model: str | None = None
    effort: str | None = None
    stream: bool = False
    tools: tuple[str, ...] = ()
    web: tuple[str, ...] = ()


class _Head(BaseModel):
    """The fields of a request that are looked at; Pydantic skips the megabytes of messages beside them."""

    model: Any = None
    stream: Any = None
    tools: Any = None
    output_config: Any = None
    reasoning: Any = None
    reasoning_effort: Any = None
    thinking: Any = None
    plugins: Any = None
    web_search_options: Any = None
    mcp_servers: Any = None


def storable(text: str, most: int = _NAME_LENGTH) -> str:
    """Return a text that a record can hold: no lone surrogates, and no megabytes."""
    return text[:most].encode("utf-8", "replace").decode()


def read_request(raw: bytes) -> Asked:
    """Read a request's body; one that is no JSON object says nothing."""
    try:
        body = _Head.model_validate_json(raw).model_dump(exclude_unset=True)
    except ValidationError:  # lone surrogates, for one, which Python's own parser takes
        body = _object(raw)
    tools = [tool for tool in _list(body.get("tools")) if isinstance(tool, dict)]
    return Asked(
        model=_name(body.get("model")),
        effort=_name(_effort(body)),
        stream=body.get("stream") is True,
        tools=tuple(sorted({_tool_name(tool) for tool in tools[:_MOST_TOOLS]})),
        web=tuple(sorted({storable(name) for name in _web_tools(body, tools)})[:_MOST_TOOLS]),
    )


def _effort(body: dict[str, Any]) -> str | None:
    for holder in (body.get("output_config"), body.get("reasoning")):
        if isinstance(holder, dict) and isinstance(holder.get("effort"), str):
            return str(holder["effort"])
    if isinstance(body.get("reasoning_effort"), str):
        return str(body["reasoning_effort"])
    thinking = body.get("thinking")
    if isinstance(thinking, dict) and isinstance(thinking.get("budget_tokens"), int):
        return f"{thinking['budget_tokens']} thinking tokens"
    return None


def _tool_name(tool: dict[str, Any]) -> str:
    inner = tool.get("function")
    holder = inner if isinstance(inner, dict) else tool
    return _name(holder.get("name")) or _name(tool.get("type")) or "?"


def _web_tools(body: dict[str, Any], tools: list[dict[str, Any]]) -> Iterator[str]:
    """Name what the provider would fetch from the web by itself."""
    for tool in tools:
        kind = _text(tool.get("type")) or ""
        if kind.startswith(("web_search", "web_fetch", "browser", "mcp", "openrouter:web")):
            yield kind
    for plugin in _list(body.get("plugins")):
        if isinstance(plugin, dict) and plugin.get("id") == "web":
            yield "plugin web"
    if "web_search_options" in body:
        yield "web_search_options"
    if _list(body.get("mcp_servers")):
        yield "mcp_servers"
    if (_text(body.get("model")) or "").endswith(":online"):
        yield "model :online"


@dataclass
class Answer:
    """What an answer says; filled by a :class:`Meter`."""

    model: str | None = None
    stop: str | None = None
    refusal: bool = False
    error_type: str | None = None
    error: str | None = None
    text: bool = False
    reasoning: bool = False
    calls: int = 0
    complete: bool = False
    input_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None

    def fail(self, error: Any, kind: str | None = None) -> None:
        """Note a provider's error in whichever form it came."""
        if isinstance(error, dict):
            detail = error.get("code") if isinstance(error.get("code"), str) else error.get("type") or error.get("code")
            self.error_type = storable(str(detail or kind or "error"))
            metadata = error.get("metadata")
            if isinstance(metadata, dict) and metadata.get("reasons"):
                self.error_type = "moderation"
            self.error = storable(_text(error.get("message")) or json.dumps(error), _ERROR_LENGTH)
        else:
            self.error_type, self.error = kind or "error", storable(str(error), _ERROR_LENGTH)


@dataclass
class Meter:
    """Reads one answer's bytes as they pass; never alters or delays them."""

    protocol: Protocol
    status: int
    content_type: str = ""
    encoding: str = ""
    answer: Answer = field(default_factory=Answer)
    _rest: bytes = b""
    _data: list[bytes] = field(default_factory=list)
    _size: int = 0
    _blocks: dict[str, Any] = field(default_factory=dict)
    _items: int = 0

    def __post_init__(self) -> None:
        known = self.encoding.lower() in ("gzip", "deflate", "x-gzip")
        self._inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32) if known else None

    @property
    def _streamed(self) -> bool:
        return "text/event-stream" in self.content_type.lower()

    def feed(self, data: bytes) -> None:
        """Look at the next bytes of the answer."""
        if self._inflate is not None:
            try:
                data = self._inflate.decompress(data)
            except zlib.error:
                return
        if not self._streamed:
            if len(self._rest) < _MOST:
                self._rest += data
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line.rstrip(b"\r"))
        if len(self._rest) > _MOST:
            self._rest = b""

    def close(self) -> Answer:
        """Return what the answer said, after its last byte."""
        if self._streamed:
            self._line(self._rest)
            self._line(b"")
            if self.protocol == "chat" and self.answer.stop is not None:  # some servers never say [DONE]
                self.answer.complete = True
        else:
            self._whole()
        return self.answer

    def _line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._size += len(line)
            if self._size <= _MOST:
                self._data.append(line[5:].strip())
        elif not line and self._data:
            data, self._data, self._size = b"\n".join(self._data), [], 0
            if data == b"[DONE]":
                self.answer.complete = True
            else:
                self._event(_object(data))

    def _whole(self) -> None:
        body = _object(self._rest)
        if self.status >= 400 or body.get("type") == "error":
            self.answer.fail(body.get("error") or body.get("detail") or self._rest.decode(errors="replace"))
            self.answer.complete = True
            return
        if self.protocol == "other" or not body:
            self.answer.complete = self.protocol == "other"
            return
        self.answer.complete = True
        if body.get("error"):
            self.answer.fail(body["error"])
        {"messages": self._message, "responses": self._response, "chat": self._chat}[self.protocol](body)

    def _event(self, event: dict[str, Any]) -> None:
        if self.protocol == "messages":
            self._message_event(event)
        elif self.protocol == "responses":
            self._response_event(event)
        elif self.protocol == "chat":
            if event.get("error"):
                self.answer.fail(event["error"])
            self._chat(event)

    # --- Anthropic Messages

    def _message_event(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "message_start":
            self._message({**_dict(event.get("message")), "content": []})
        elif kind == "content_block_start":
            self._block(_dict(event.get("content_block")))
        elif kind == "content_block_delta":
            self._block(_dict(event.get("delta")))
        elif kind == "message_delta":
            self._message({**_dict(event.get("delta")), "usage": event.get("usage")})
        elif kind == "message_stop":
            self.answer.complete = True
        elif kind == "error":
            self.answer.fail(event.get("error"))

    def _message(self, message: dict[str, Any]) -> None:
        self.answer.model = _name(message.get("model")) or self.answer.model
        self.answer.stop = _name(message.get("stop_reason")) or self.answer.stop
        self.answer.refusal |= message.get("stop_reason") == "refusal"
        for block in _list(message.get("content")):
            self._block(_dict(block))
        usage = _dict(message.get("usage"))
        # some servers count in the first event and send zeros in the last
        self._blocks.update({name: value for name, value in usage.items() if value or name not in self._blocks})
        counted = self._blocks
        parts = [_count(counted.get(name)) for name in _MESSAGE_PROMPT]
        known = [part for part in parts if part is not None]
        self.answer.input_tokens = sum(known) if known else None
        self.answer.cache_write_tokens, self.answer.cached_tokens = parts[1], parts[2]
        self.answer.output_tokens = _count(counted.get("output_tokens"))
        self.answer.reasoning_tokens = _count(_dict(counted.get("output_tokens_details")).get("thinking_tokens"))
        self.answer.cost_usd = _cost(counted)

    def _block(self, block: dict[str, Any]) -> None:
        kind = _text(block.get("type")) or ""
        self.answer.text |= bool((_text(block.get("text")) or "").strip())
        self.answer.reasoning |= "thinking" in kind
        self.answer.calls += kind == "tool_use"

    # --- OpenAI Responses

    def _response_event(self, event: dict[str, Any]) -> None:
        kind = _text(event.get("type")) or ""
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            self.answer.complete = True
            response = _dict(event.get("response"))
            self._response({**response, "output": []} if self._items else response)
            if kind == "response.failed":
                self.answer.fail(response.get("error"), "response.failed")
        elif kind == "response.created":
            self.answer.model = _name(_dict(event.get("response")).get("model")) or self.answer.model
        elif kind == "response.output_item.done":
            self._items += 1
            self._item(_dict(event.get("item")))
        elif kind == "error":
            self.answer.fail(event.get("error") or event, "error")

    def _response(self, response: dict[str, Any]) -> None:
        self.answer.model = _name(response.get("model")) or self.answer.model
        reason = _name(_dict(response.get("incomplete_details")).get("reason"))
        self.answer.stop = reason or _name(response.get("status")) or self.answer.stop
        self.answer.refusal |= reason == "content_filter"
        for item in _list(response.get("output")):
            self._item(_dict(item))
        usage = _dict(response.get("usage"))
        details = _dict(usage.get("input_tokens_details"))
        self.answer.input_tokens = _count(usage.get("input_tokens"))
        self.answer.cached_tokens = _count(details.get("cached_tokens"))
        self.answer.cache_write_tokens = _count(details.get("cache_write_tokens"))
        self.answer.output_tokens = _count(usage.get("output_tokens"))
        self.answer.reasoning_tokens = _count(_dict(usage.get("output_tokens_details")).get("reasoning_tokens"))
        self.answer.cost_usd = _cost(usage)

    def _item(self, item: dict[str, Any]) -> None:
        kind = _text(item.get("type")) or ""
        self.answer.reasoning |= kind == "reasoning"
        self.answer.calls += kind.endswith("_call")
        for part in _list(item.get("content")) if kind == "message" else ():
            self.answer.refusal |= _dict(part).get("type") == "refusal"
            self.answer.text |= bool((_text(_dict(part).get("text")) or "").strip())

    # --- OpenAI Chat Completions

    def _chat(self, chunk: dict[str, Any]) -> None:
        self.answer.model = _name(chunk.get("model")) or self.answer.model
        for choice in _list(chunk.get("choices")):
            message = _dict(_dict(choice).get("message") or _dict(choice).get("delta"))
            self.answer.text |= _says(message.get("content"))
            self.answer.reasoning |= bool(message.get("reasoning") or message.get("reasoning_content"))
            self.answer.refusal |= bool(_text(message.get("refusal")))
            self.answer.calls += sum(bool(_dict(_dict(call).get("function")).get("name"))
                                     for call in _list(message.get("tool_calls")))  # fmt: skip
            self.answer.calls += bool(_dict(message.get("function_call")).get("name"))
            self.answer.stop = _name(_dict(choice).get("finish_reason")) or self.answer.stop
            self.answer.refusal |= self.answer.stop == "content_filter"
        usage = _dict(chunk.get("usage"))
        if usage:
            details = _dict(usage.get("prompt_tokens_details"))
            cached = _count(details.get("cached_tokens"))
            self.answer.input_tokens = _count(usage.get("prompt_tokens"))
            self.answer.cached_tokens = _count(usage.get("prompt_cache_hit_tokens")) if cached is None else cached
            self.answer.cache_write_tokens = _count(details.get("cache_write_tokens"))
            self.answer.output_tokens = _count(usage.get("completion_tokens"))
            self.answer.reasoning_tokens = _count(_dict(usage.get("completion_tokens_details")).get("reasoning_tokens"))
            self.answer.cost_usd = _cost(usage)


_MESSAGE_PROMPT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def _cost(usage: dict[str, Any]) -> float | None:
    """Return what the provider says that a request cost; with a key of one's own upstream, that bill too."""
    charged, upstream = (
        _money(usage.get("cost")),
        _money(_dict(usage.get("cost_details")).get("upstream_inference_cost")),
    )
    own_key = usage.get("is_byok") is True or charged == 0
    return charged + upstream if charged is not None and upstream is not None and own_key else charged


def _money(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _object(raw: bytes) -> dict[str, Any]:
    try:
        return _dict(json.loads(raw))
    except (ValueError, RecursionError):
        return {}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _name(value: Any) -> str | None:
    return storable(value) if isinstance(value, str) else None


def _says(content: Any) -> bool:
    """Whether a message's content, a text or a list of parts, holds any text."""
    parts = [content] if isinstance(content, str) else [_dict(part).get("text") for part in _list(content)]
    return any((_text(part) or "").strip() for part in parts)
