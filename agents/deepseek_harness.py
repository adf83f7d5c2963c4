"""DeepSeek Harness, as its own program: ``dsh --profile headless``, on the Node.js that is installed beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import yaml

from agents import cli
from agents._events import Steps, addresses, count, is_image, items, json_lines, obj, text
from agents.base import Agent, Bind, Evidence, Launch, Session, Usage
from agents.endpoints import Protocol
from agents.transcript import Step

_PACKAGE = "@deepseek-ai/dsh"
_INSIDE = "/opt/dsh"
_START = Path(__file__).resolve().with_name("_dsh_start.mjs")
_KEY = "DSH_MODEL_KEY"
_ROUTE = "biabench"
_SESSIONS = ".dsh-sessions"
_CONTEXT = 200_000  # tokens; what the study declared for every model
_EFFORTS = {"minimal": "low", "max": "high"}  # the three tiers that the route declares
_FAULTS = ("AUTH", "QUOTA", "RATE_LIMIT", "SERVER", "TIMEOUT", "TRANSPORT", "MISSING_CREDENTIAL", "EMPTY_RESPONSE")
_EXIT = re.compile(r"\[exit code: (-?\d+)\]\s*$")


class DeepSeekHarness(Agent):
    """Runs the pinned ``dsh`` with a folder of its own for settings and sessions."""

    name: ClassVar[str] = "deepseek_harness"
    description: ClassVar[str] = "DeepSeek Harness, the command-line agent of DeepSeek"
    version: ClassVar[str] = cli.pinned(_PACKAGE)
    needs_model: ClassVar[bool] = True
    effort_control: ClassVar[bool] = True
    protocol: ClassVar[Protocol | None] = "chat"
    keeps: ClassVar[tuple[str, ...]] = (f"{_SESSIONS}/**/*.jsonl",)

    def unavailable(self) -> str | None:
        return cli.missing(_PACKAGE, _program(cli.MODULES)) or (
            None if _node(cli.MODULES).is_file() else f"the Node.js that dsh needs is not installed: {cli.INSTALL}"
        )

    def fingerprint(self) -> str:
        """Digest of the program's version, of what is locked with it, and of this module."""
        return cli.fingerprint(_PACKAGE, Path(__file__), _START)

    def effort_word(self, effort: str) -> str:
        return _EFFORTS.get(effort, effort)

    def launch(self, session: Session) -> Launch:
        """Start ``dsh`` by way of a few lines that hand it standard input as its task."""
        assert session.endpoint is not None
        assert session.model is not None
        modules = Path(_INSIDE, "node_modules") if session.contained else cli.MODULES
        start = f"{_INSIDE}/start.mjs" if session.contained else str(_START)
        effort = self.effort_word(session.effort)
        model = {
            "id": session.model,
            "contextWindow": _CONTEXT,
            "reasoningEfforts": {tier: tier for tier in ("low", "medium", "high")},
        }
        route = {
            "apiKeyEnv": _KEY,
            "api": "openai-completions",
            "baseURL": session.endpoint.openai_v1,
            "models": [model],
            "reasoning": effort,
        }
        patch: list[dict[str, Any]] = [
            {"id": "agent-default-model", "config": {"provider": _ROUTE, "model": session.model}},
            {
                "id": "session-persistence-jsonl",
                "config": {"root": f"{session.home_dir}/{_SESSIONS}", "compression": "none"},
            },
            {"id": "session-title-llm", "disabled": True},  # one more request to the model, for nothing that is used
        ]
        if not session.web:  # it searches with a key of DeepSeek's own, which no run has
            patch.append({"id": "tool-web", "disabled": True})
        return Launch(
            argv=(
                str(_node(modules)),
                start,
                str(_program(modules)),
                *("--profile", "headless"),
                *("--patch", f"{session.home_dir}/.dsh/biabench.patch.yml"),
            ),
            stdin=session.instruction.encode(),
            environment={
                "DSH_HOME": f"{session.home_dir}/.dsh",
                "DSH_PERMISSION_MODE": "danger-full-access",
                "DSH_TELEMETRY_MODE": "DISABLED",
                _KEY: session.endpoint.key,
            },
            binds=(Bind(cli.MODULES, str(modules)), Bind(_START, start)),
            python_prefix=True,
            home_files={
                ".dsh/settings.yaml": yaml.safe_dump({"llm-pi-ai": {"providers": {_ROUTE: route}}}),
                ".dsh/biabench.patch.yml": yaml.safe_dump(patch),
            },
        )

    def read(self, stdout: Path, stderr: Path, output_dir: Path) -> Evidence:
        """Translate the session logs, which lie where the agent could write; standard output is the closing text."""
        return _Reader().read(stdout, stderr, stdout.parent / "home" / _SESSIONS)


def _node(modules: Path) -> Path:
    return modules / f"node-linux-{cli.processor()}" / "bin" / "node"


def _program(modules: Path) -> Path:
    return modules / _PACKAGE / "lib" / "bin.js"


class _Reader:
    """Reads the logs of one run: its session, and those of its sub-agents."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.calls: dict[str, Step | None] = {}
        self.shells = 0
        self.sums: dict[str, int] = {}
        self.begun = 0.0

    def read(self, stdout: Path, stderr: Path, sessions: Path) -> Evidence:
        final = stdout.read_text(encoding="utf-8", errors="replace").strip() if stdout.exists() else ""
        complaint = stderr.read_text(encoding="utf-8", errors="replace").strip() if stderr.exists() else ""
        last = complaint.splitlines()[-1] if complaint else ""
        failed = last.removeprefix("dsh: ") if last.startswith("dsh: ") else ""
        for event in _events(sessions):
            self._event(text(event.get("type")), obj(event.get("data")), event.get("time"))
        if failed:
            self.steps.add("error", text=failed)
        return Evidence(
            usage=self._usage(),
            final_message=None if failed else final or None,
            infrastructure=f"dsh ended with {failed[:300]}" if failed.split(":")[0] in _FAULTS else None,
            steps=self.steps.close(None if failed else final),
        )

    def _event(self, kind: str, data: dict[str, Any], at: Any) -> None:
        seconds = None
        if isinstance(at, int | float) and not isinstance(at, bool):
            self.begun = self.begun or at
            seconds = round((at - self.begun) / 1000, 3)
        if kind == "assistant/message":
            message = obj(data.get("message")) or data
            for block in items(message.get("content")):
                if block.get("type") in ("text", "reasoning") and text(block.get("text")).strip():
                    said = "message" if block["type"] == "text" else "reasoning"
                    self.steps.add(said, text=text(block.get("text")), at=seconds)  # type: ignore[arg-type]
            for name, value in obj(data.get("usage") or message.get("usage")).items():
                if (number := count(value)) is not None:
                    self.sums[name] = self.sums.get(name, 0) + number
        elif kind == "tool/call":
            self._call(data, seconds)
        elif kind == "tool/result":
            for result in items(obj(data.get("message")).get("content")):
                self._result(self.calls.get(text(result.get("toolCallId"))), result)
        elif kind == "llm/retry":
            self.steps.add("error", text=f"request failed, trying again: {json.dumps(data)[:2000]}", at=seconds)

    def _call(self, data: dict[str, Any], seconds: float | None) -> None:
        name, given = text(data.get("name")), data.get("arguments")
        if isinstance(given, str):
            try:
                given = json.loads(given)
            except ValueError:
                given = {"arguments": given}
        given = obj(given)
        path = text(given.get("path") or given.get("file_path"))
        fields: dict[str, Any] = {"tool": name, "at": seconds}
        if name == "bash":
            self.shells += 1
            fields["code"] = text(given.get("command"))
            fields["urls"] = addresses(fields["code"])
        elif name in ("write", "edit", "str_replace_editor"):
            fields |= {"files_written": [path], "code": text(given.get("content") or given.get("new_string"))}
        elif name == "read_image" or (name == "read" and is_image(path)):
            fields["images_viewed"] = [path]
        elif name == "web_search":
            fields["queries"] = [text(given.get("query"))]
        else:
            fields["text"] = json.dumps(given)
        self.calls[text(data.get("callId"))] = self.steps.add("tool", **fields)

    def _result(self, step: Step | None, result: dict[str, Any]) -> None:
        said = _said(result.get("content"))
        self.steps.complete(step, output=said)
        if step is not None and step.tool == "bash":
            code = _EXIT.search(said)
            self.steps.complete(step, exit_code=int(code[1]) if code else None if result.get("isError") else 0)

    def _usage(self) -> Usage:
        names = ("inputTokens", "cacheReadTokens", "cacheWriteTokens")
        parts = [self.sums.get(name) for name in names]
        known = [part for part in parts if part is not None]
        called = len(self.calls) if self.steps.found else None
        return Usage(
            input_tokens=sum(known) if known else None,
            cached_tokens=parts[1],
            cache_write_tokens=parts[2],
            output_tokens=self.sums.get("outputTokens"),
            tool_calls=called,
            executed_blocks=None if called is None else self.shells,
            source="session log of DeepSeek Harness" if known else None,
        )


def _events(sessions: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of all sessions of a run in the order of their time."""
    found = [event for path in sorted(sessions.rglob("*.jsonl")) for event in json_lines(path)]
    found.sort(key=lambda event: event["time"] if isinstance(event.get("time"), int | float) else 0)
    yield from found


def _said(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(text(part.get("text")) or f"[{text(part.get('type'))}]" for part in items(content))
