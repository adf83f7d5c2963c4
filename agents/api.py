"""A bare model: our own minimal loop on the Anthropic SDK, so that the effect of a harness can be measured."""

from __future__ import annotations

import hashlib
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from agents import _api_loop
from agents._events import Steps, addresses, count, items, json_lines, obj, text
from agents.base import Agent, Bind, Evidence, Launch, Session, Usage
from agents.endpoints import Protocol
from agents.transcript import Step

_LOOP = Path(_api_loop.__file__).resolve()
_INSIDE = "/opt/api/loop.py"
_EFFORTS = {"minimal": "low"}


class Api(Agent):
    """Runs :mod:`agents._api_loop` in the same containment as every other agent."""

    name: ClassVar[str] = "api"
    description: ClassVar[str] = "a model with a shell, Python and an image viewer, and nothing else"
    version: ClassVar[str] = "1"
    needs_model: ClassVar[bool] = True
    effort_control: ClassVar[bool] = True
    protocol: ClassVar[Protocol | None] = "messages"

    def fingerprint(self) -> str:
        """Return a digest of the loop and the version of the SDK."""
        return hashlib.sha256(_LOOP.read_bytes() + version("anthropic").encode()).hexdigest()[:16]

    def effort_word(self, effort: str) -> str:
        return _EFFORTS.get(effort, effort)

    def launch(self, session: Session) -> Launch:
        """Start the loop with the instruction on standard input."""
        assert session.endpoint is not None
        assert session.endpoint.messages is not None
        assert session.model is not None
        key = "ANTHROPIC_AUTH_TOKEN" if session.endpoint.authentication == "bearer" else "ANTHROPIC_API_KEY"
        place = _INSIDE if session.contained else str(_LOOP)
        return Launch(
            argv=(sys.executable, "-I", "-B", place, session.model, self.effort_word(session.effort)),
            stdin=session.instruction.encode(),
            environment={"ANTHROPIC_BASE_URL": session.endpoint.messages, key: session.endpoint.key},
            binds=(Bind(_LOOP, place),),
            python_prefix=True,
        )

    def read(self, stdout: Path, stderr: Path, output_dir: Path) -> Evidence:
        """Translate the loop's own events."""
        return _Reader().read(stdout)


class _Reader:
    def __init__(self) -> None:
        self.steps = Steps()
        self.calls: dict[str, Step | None] = {}
        self.blocks = 0
        self.sums: dict[str, int] = {}
        self.error: dict[str, Any] = {}
        self.stop = ""
        self.final = ""
        self.begun = False

    def read(self, stdout: Path) -> Evidence:
        for event in json_lines(stdout):
            kind = event.get("type")
            self.begun |= kind == "start"
            if kind == "assistant":
                self._said(obj(event.get("message")))
            elif kind == "result":
                self.steps.complete(
                    self.calls.get(text(event.get("id"))),
                    output=text(event.get("output")),
                    exit_code=event.get("exit_code") if isinstance(event.get("exit_code"), int) else None,
                )
            elif kind == "error":
                self.error = event
                self.steps.add("error", text=f"{event.get('kind')}: {event.get('text')}")
        final = self.final if self.stop == "end_turn" and not self.error else None
        return Evidence(
            usage=self._usage(),
            final_message=final or None,
            refused="stop reason refusal" if self.stop == "refusal" else None,
            infrastructure=self._fault(),
            steps=self.steps.close(final),
        )

    def _said(self, message: dict[str, Any]) -> None:
        self.stop = text(message.get("stop_reason"))
        self.final = ""
        for block in items(message.get("content")):
            kind = block.get("type")
            if kind == "text" and text(block.get("text")).strip():
                self.final = text(block.get("text"))
                self.steps.add("message", text=self.final)
            elif kind == "thinking" and text(block.get("thinking")).strip():
                self.steps.add("reasoning", text=text(block.get("thinking")))
            elif kind == "tool_use":
                self._call(text(block.get("id")), text(block.get("name")), obj(block.get("input")))
        for name, value in obj(message.get("usage")).items():
            if (number := count(value)) is not None:
                self.sums[name] = self.sums.get(name, 0) + number

    def _call(self, identifier: str, name: str, given: dict[str, Any]) -> None:
        if name == "view_image":
            step = self.steps.add("tool", tool=name, images_viewed=[text(given.get("path"))])
        else:
            code = text(given.get("command") or given.get("code"))
            step = self.steps.add("tool", tool=name, code=code, urls=addresses(code))
            self.blocks += 1
        self.calls[identifier] = step

    def _usage(self) -> Usage:
        names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        parts = [self.sums.get(name) for name in names]
        known = [part for part in parts if part is not None]
        return Usage(
            input_tokens=sum(known) if known else None,
            cached_tokens=parts[2],
            cache_write_tokens=parts[1],
            output_tokens=self.sums.get("output_tokens"),
            tool_calls=len(self.calls) if self.begun else None,
            executed_blocks=self.blocks if self.begun else None,
            source="answers to the loop" if known else None,
        )

    def _fault(self) -> str | None:
        status = self.error.get("status")
        if not self.error or (isinstance(status, int) and 400 <= status < 500 and status not in (401, 402, 403, 429)):
            return None
        what = f"HTTP {status}" if status else text(self.error.get("kind"))
        return f"the provider's answer failed ({what}): {text(self.error.get('text'))[:300]}"
