"""Where the relay is all the network: what a request must not hold, because the provider would read the web for it.

Of fields and tools what is known to be harmless passes, and nothing else does: providers add ways to the web faster
than a list of them could follow. Content passes unless an address stands where a provider would fetch it. All of a body
is read, unlike elsewhere in the relay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

# Fields of the three protocols, and of servers that extend them, by which nothing is fetched or run elsewhere.
_FIELDS = frozenset(
    ("model", "messages", "system", "input", "instructions", "tools", "tool_choice", "functions", "function_call",
     "parallel_tool_calls", "max_tool_calls", "stream", "stream_options", "max_tokens", "max_completion_tokens",
     "max_output_tokens", "temperature", "top_p", "top_k", "top_a", "min_p", "stop", "stop_sequences", "seed", "n",
     "frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias", "logprobs", "top_logprobs",
     "metadata", "client_metadata", "user", "safety_identifier", "thinking", "output_config", "output_format",
     "reasoning", "reasoning_effort", "include_reasoning", "enable_thinking", "chat_template_kwargs", "verbosity",
     "text", "response_format", "modalities", "include", "store", "truncation", "context_management", "cache_control",
     "prompt_cache_key", "prompt_cache_retention", "service_tier", "speed", "usage", "provider", "transforms")
)  # fmt: skip
# Kinds of tools that the agent itself carries out.
_TOOLS = re.compile(
    r"function|custom|local_shell|apply_patch"
    r"|(?:bash|text_editor|computer|memory)_\d{8}|computer_use_preview"
)
# Where content names something to be fetched, whatever its spelling: imageUrl, image_url, IMAGE-URL.
_PLACES = frozenset(
    ("url", "uri", "imageurl", "fileurl", "videourl", "audiourl", "documenturl", "filedata", "fileuri", "href", "src")
)
_ARGUMENTS = frozenset(("input", "arguments", "input_schema", "parameters", "schema", "json_schema", "metadata"))


class _Twice(ValueError):
    """A field stands twice in one object."""


def objections(raw: bytes, model: str | None = None) -> list[str]:
    """Say what in a request's body is not let through; nothing where all of it is known to be harmless.

    Parameters
    ----------
    raw
        The body.
    model
        The only model that may be asked; ``None`` where any may.
    """
    try:
        body = json.loads(raw, object_pairs_hook=_once)
    except _Twice as error:
        return [str(error)]
    except (ValueError, RecursionError):
        return ["a body that cannot be read"]
    if not isinstance(body, dict):
        return ["a body that is no object"]
    try:
        return list(dict.fromkeys(_objections(body, model)))
    except RecursionError:
        return ["a body that cannot be read"]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object; parsers disagree on which of two fields of one name counts."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Twice("a field that stands twice")
    return found


def _objections(body: dict[str, Any], model: str | None) -> Iterator[str]:
    for name, value in body.items():
        if name not in _FIELDS and value not in (None, [], {}, False, ""):
            yield f"the field {name:.60}"
    asked = body.get("model")
    if isinstance(asked, str) and asked.endswith(":online"):
        yield "model :online"
    if model is not None and asked != model:
        yield f"the model {asked!r:.60} instead of {model}"
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else [] if tools is None else [tools]:
        if (kind := _foreign(tool)) is not None:
            yield kind
    for name, value in body.items():
        if name not in ("tools", "metadata"):
            yield from _fetched(value)


def _foreign(tool: Any) -> str | None:
    """Name a tool that is not known to be the agent's own."""
    if not isinstance(tool, dict):
        return "a tool that is no object"
    kind, inner = tool.get("type"), tool.get("function")
    name = inner.get("name") if isinstance(inner, dict) else tool.get("name")
    if isinstance(name, str) and name.startswith("$"):  # a provider's own function
        return f"{name:.60}"
    if kind is None:
        return None if "input_schema" in tool and isinstance(name, str) else "a tool without a type"
    if kind == "namespace":  # a group of tools, as Codex has them
        members = tool.get("tools")
        found = [_foreign(member) for member in members] if isinstance(members, list) else ["a group that is no list"]
        return next((one for one in found if one is not None), None)
    return None if isinstance(kind, str) and _TOOLS.fullmatch(kind) else f"{kind!s:.60}"


def _fetched(value: Any) -> Iterator[str]:
    """Name addresses that stand where a provider fetches content; texts and arguments of tools are no such place."""
    if isinstance(value, list):
        for item in value:
            yield from _fetched(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            place = re.sub(r"[^a-z]", "", name.lower())
            if place in _PLACES and isinstance(item, str) and item.lstrip()[:5].lower() != "data:":
                if re.match(r"\s*[A-Za-z][A-Za-z0-9+.-]*:", item) or item.lstrip().startswith("//"):
                    yield f"content from {item.strip():.60}"
            elif name not in _ARGUMENTS:
                yield from _fetched(item)
