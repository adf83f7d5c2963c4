"""What the server is told to answer, and what it was asked, in words that belong to no provider."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Protocol = Literal["messages", "responses", "chat"]

# Tools by which agents run a shell command, and image views, as the agents themselves call them.
_SHELLS = ("Bash", "bash", "exec_command", "shell_command", "shell", "run_command", "execute")
_VIEWS = ("view_image", "read_image", "Read")
_SHELL_PARAMETERS = ("command", "cmd", "script", "code")
_VIEW_PARAMETERS = ("path", "file_path", "filePath")


@dataclass(frozen=True)
class Counts:
    """Tokens of one answer: ``input`` is what was neither read from nor written to a cache; ``output`` includes
    ``reasoning``."""

    input: int = 100
    cached: int = 40
    cache_write: int = 0
    output: int = 20
    reasoning: int = 5
    cost: float | None = None


@dataclass(frozen=True)
class Fault:
    """A way in which the provider fails instead of answering.

    Parameters
    ----------
    status
        HTTP status of an error answer, with ``message`` in the protocol's own error form.
    kind
        ``error`` (an answer with ``status``), ``empty_body`` (200 and no byte), ``truncated`` (a stream that is cut
        in its middle), ``hang`` (no byte ever), ``stalled`` (a stream that stops in its middle and stays open),
        ``stream_error`` (200, then an error event in the stream).
    """

    kind: Literal["error", "empty_body", "truncated", "hang", "stalled", "stream_error"] = "error"
    status: int = 500
    message: str = "The server had an error."
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Turn:
    """One answer of the model.

    ``shell`` and ``view`` become a call of whatever tool the agent offers for it; ``tool`` calls one by name. A turn
    with neither ends the model's turn. ``refusal`` is the provider's structured refusal; a turn with nothing in it is
    an empty one.
    """

    text: str = ""
    reasoning: str = ""
    shell: str | None = None
    view: str | None = None
    tool: tuple[str, Mapping[str, Any]] | None = None
    refusal: bool = False
    length: bool = False  # stopped at the limit of output tokens
    counts: Counts = Counts()
    fault: Fault | None = None
    delay: float = 0.0  # seconds before the first byte

    def call(self, request: Request) -> tuple[str, dict[str, Any]] | None:
        """Return the tool call of this turn in the words of the tools that the request offers."""
        if self.tool is not None:
            return self.tool[0], dict(self.tool[1])
        if self.shell is not None:
            return request.fill(_SHELLS, _SHELL_PARAMETERS, self.shell)
        if self.view is not None:
            return request.fill(_VIEWS, _VIEW_PARAMETERS, self.view)
        return None


@dataclass(frozen=True)
class Request:
    """One request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    raw: bytes
    protocol: Protocol | None

    @property
    def body(self) -> dict[str, Any]:
        try:
            found = json.loads(self.raw)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def model(self) -> str | None:
        found = self.body.get("model")
        return found if isinstance(found, str) else None

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def key(self) -> str:
        """The credential that came with the request, whichever header carried it."""
        return self.headers.get("x-api-key") or self.headers.get("authorization", "").removeprefix("Bearer ")

    @property
    def effort(self) -> str | None:
        """The reasoning effort on the wire, wherever the protocol puts it."""
        body = self.body
        for holder in (body.get("output_config"), body.get("reasoning"), {"effort": body.get("reasoning_effort")}):
            if isinstance(holder, dict) and holder.get("effort"):
                return str(holder["effort"])
        return None

    @property
    def tools(self) -> dict[str, dict[str, Any]]:
        """Name and parameter schema of each tool that the request offers."""
        found = {}
        for tool in self.body.get("tools") or ():
            inner = tool.get("function", tool)
            if name := inner.get("name"):
                found[name] = inner.get("input_schema") or inner.get("parameters") or {}
        return found

    def texts(self) -> str:
        """Everything that the request says to the model, as one text, to search in."""
        return "\n".join(_strings({key: value for key, value in self.body.items() if key != "tools"}))

    def user_texts(self) -> list[str]:
        """The text parts of user messages, exactly as sent."""
        messages = self.body.get("messages") or self.body.get("input") or []
        if isinstance(messages, str):
            return [messages]
        found: list[str] = []
        for message in messages:
            if not isinstance(message, dict) or message.get("role") != "user":
                continue
            content = message.get("content")
            parts = [content] if isinstance(content, str) else content or []
            found += [part if isinstance(part, str) else part.get("text", "") for part in parts]
        return [text for text in found if text]

    def fill(self, names: tuple[str, ...], parameters: tuple[str, ...], value: str) -> tuple[str, dict[str, Any]]:
        """Return a call of the first offered tool among ``names``, with ``value`` where its schema takes it."""
        offered = self.tools
        for name in names:
            if name in offered:
                schema = offered[name].get("properties", {})
                parameter = next((known for known in parameters if known in schema), parameters[0])
                needed = {key: "step" for key in offered[name].get("required", ()) if key != parameter}
                return name, {**needed, parameter: value}
        raise LookupError(f"the request offers none of the tools {names}: {sorted(offered)}")


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in _strings(item)]
    if isinstance(value, list):
        return [text for item in value for text in _strings(item)]
    return []
