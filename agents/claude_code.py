"""Claude Code, as its own program: ``claude --print``, with the instruction on standard input."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from agents import cli
from agents._events import Steps, addresses, count, is_image, items, json_lines, obj, text
from agents.base import Agent, Bind, Evidence, Launch, Session, Usage
from agents.endpoints import Protocol
from agents.transcript import Step

_PACKAGE = "@anthropic-ai/claude-code"
_INSIDE = "/opt/claude-code"
# Without them a run can wait for an answer that nobody gives.
_INTERACTIVE = ("EnterPlanMode", "ExitPlanMode", "AskUserQuestion")
_WEB = ("WebSearch", "WebFetch")
_EFFORTS = {"minimal": "low"}
_SLOTS = (  # every place where Claude Code would otherwise choose a model by itself
    "ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL",
)  # fmt: skip


class ClaudeCode(Agent):
    """Runs the pinned ``claude`` with a configuration folder of its own, and nobody's settings."""

    name: ClassVar[str] = "claude_code"
    description: ClassVar[str] = "Claude Code, the command-line agent of Anthropic"
    version: ClassVar[str] = cli.pinned(_PACKAGE)
    needs_model: ClassVar[bool] = True
    effort_control: ClassVar[bool] = True
    protocol: ClassVar[Protocol | None] = "messages"

    def unavailable(self) -> str | None:
        return cli.missing(_PACKAGE, _program())

    def fingerprint(self) -> str:
        """Digest of the program's version, of what is locked with it, and of this module."""
        return cli.fingerprint(_PACKAGE, Path(__file__))

    def effort_word(self, effort: str) -> str:
        return _EFFORTS.get(effort, effort)

    def launch(self, session: Session) -> Launch:
        """Start ``claude``; the instruction goes to its standard input, byte for byte."""
        assert session.endpoint is not None
        assert session.endpoint.messages is not None
        assert session.model is not None
        disallowed = _INTERACTIVE + (_WEB if session.web is False else ())
        folder = _INSIDE if session.contained else str(_program().parent)
        environment = {
            "ANTHROPIC_BASE_URL": session.endpoint.messages,
            "CLAUDE_CONFIG_DIR": f"{session.home_dir}/.claude",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            **dict.fromkeys(_SLOTS, session.model),
        }
        if session.endpoint.relayed or session.endpoint.authentication == "bearer":
            environment["ANTHROPIC_AUTH_TOKEN"] = session.endpoint.key
        else:
            environment["ANTHROPIC_API_KEY"] = session.endpoint.key
        if not session.contained and os.geteuid() == 0:
            environment["IS_SANDBOX"] = "1"  # else it refuses to work without asking for each command
        return Launch(
            argv=(
                f"{folder}/claude",
                "--print",
                *("--model", session.model),
                *("--verbose", "--output-format", "stream-json"),
                *("--effort", self.effort_word(session.effort)),
                *("--permission-mode", "bypassPermissions"),
                f"--disallowed-tools={','.join(disallowed)}",
                "--setting-sources=",
                "--strict-mcp-config",
            ),
            stdin=session.instruction.encode(),
            environment=environment,
            binds=(Bind(_program().parent, folder),),
            python_prefix=True,
        )

    def read(self, stdout: Path, stderr: Path, output_dir: Path) -> Evidence:
        """Translate the stream of events."""
        return _Reader().read(stdout)


def _program() -> Path:
    return cli.MODULES / f"{_PACKAGE}-linux-{cli.processor()}" / "claude"


class _Reader:
    """Reads one session's ``stream-json``."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.calls: dict[str, Step | None] = {}
        self.shells = 0
        self.result: dict[str, Any] = {}

    def read(self, stdout: Path) -> Evidence:
        for event in json_lines(stdout):
            kind = event.get("type")
            if kind == "assistant":
                self._said(obj(event.get("message")))
            elif kind == "user":
                self._results(obj(event.get("message")))
            elif kind == "system" and event.get("subtype") == "api_retry":
                status = event.get("error_status")
                self.steps.add("error", text=f"request failed, trying again: {event.get('error')} (HTTP {status})")
            elif kind == "result":
                self.result = event
        final = None if self.result.get("is_error") else text(self.result.get("result"))
        if self.result.get("is_error"):
            self.steps.add("error", text=text(self.result.get("result")))
        return Evidence(
            usage=self._usage(),
            final_message=final or None,
            refused=self._refused(),
            infrastructure=self._fault(),
            steps=self.steps.close(final),
        )

    def _said(self, message: dict[str, Any]) -> None:
        synthetic = message.get("model") == "<synthetic>"
        for block in items(message.get("content")):
            kind = block.get("type")
            if kind == "text" and text(block.get("text")).strip():
                self.steps.add("error" if synthetic else "message", text=text(block.get("text")))
            elif kind == "thinking" and text(block.get("thinking")).strip():
                self.steps.add("reasoning", text=text(block.get("thinking")))
            elif kind == "tool_use":
                self.calls[text(block.get("id"))] = self._call(text(block.get("name")), obj(block.get("input")))

    def _call(self, name: str, given: dict[str, Any]) -> Step | None:
        fields: dict[str, Any] = {"tool": name}
        path = text(given.get("file_path") or given.get("notebook_path"))
        if name == "Bash":
            self.shells += 1
            fields["code"] = text(given.get("command"))
            fields["urls"] = addresses(fields["code"])
        elif name in ("Write", "Edit", "MultiEdit", "NotebookEdit"):
            fields["files_written"] = [path]
            fields["code"] = text(given.get("content") or given.get("new_string") or given.get("new_source"))
        elif name == "Read" and is_image(path):
            fields["images_viewed"] = [path]
        elif name == "WebFetch":
            fields["urls"] = [text(given.get("url"))]
        elif name == "WebSearch":
            fields["queries"] = [text(given.get("query"))]
        if "code" not in fields:
            fields["text"] = ", ".join(f"{key}: {value}" for key, value in given.items())
        return self.steps.add("tool", **fields)

    def _results(self, message: dict[str, Any]) -> None:
        for block in items(message.get("content")):
            if block.get("type") != "tool_result":
                continue
            step = self.calls.get(text(block.get("tool_use_id")))
            content = block.get("content")
            said = content if isinstance(content, str) else "\n".join(text(part.get("text")) for part in items(content))
            code = None
            if step is not None and step.tool == "Bash":
                code = _exit_code(said) if block.get("is_error") else 0
            self.steps.complete(step, output=said, exit_code=code)

    def _usage(self) -> Usage:
        usage = obj(self.result.get("usage"))
        fresh, written, cached = (
            count(usage.get(name))
            for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        )
        known = [part for part in (fresh, written, cached) if part is not None]
        called = len(self.calls) if self.steps.found or self.result else None
        return Usage(
            input_tokens=sum(known) if known else None,
            cached_tokens=cached,
            cache_write_tokens=written,
            output_tokens=count(usage.get("output_tokens")),
            tool_calls=called,
            executed_blocks=None if called is None else self.shells,
            source="result event of Claude Code" if known else None,
        )

    def _refused(self) -> str | None:
        return "stop reason refusal" if self.result.get("stop_reason") == "refusal" else None

    def _fault(self) -> str | None:
        status = self.result.get("api_error_status")
        if self.result.get("is_error") and isinstance(status, int) and cli.provider_fault(status):
            return f"the provider answered HTTP {status}: {text(self.result.get('result'))[:300]}"
        return None


def _exit_code(said: str) -> int | None:
    """Read the exit code with which a failed command's result begins."""
    head = said.strip().split("\n", 1)[0].lower().removeprefix("exit code").strip()
    return int(head) if head.isdecimal() else None
