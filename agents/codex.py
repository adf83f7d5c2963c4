"""Codex, as its own program: ``codex exec``, with the instruction on standard input."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any, ClassVar

from agents import cli
from agents._events import Steps, addresses, count, is_image, items, json_lines, obj, text
from agents.base import Agent, Bind, Evidence, Launch, Session, Usage
from agents.endpoints import Protocol
from agents.transcript import Step

_PACKAGE = "@openai/codex"
_INSIDE = "/opt/codex"
_TRIPLES = {"x64": "x86_64-unknown-linux-musl", "arm64": "aarch64-unknown-linux-musl"}
_EFFORTS = {"max": "xhigh"}
_KEY = "CODEX_MODEL_KEY"
_STATUS = re.compile(r"\bstatus (\d{3})\b")


class Codex(Agent):
    """Runs the pinned ``codex`` without anybody's configuration, rules or sessions."""

    name: ClassVar[str] = "codex"
    description: ClassVar[str] = "Codex, the command-line agent of OpenAI"
    version: ClassVar[str] = cli.pinned(_PACKAGE)
    needs_model: ClassVar[bool] = True
    effort_control: ClassVar[bool] = True
    protocol: ClassVar[Protocol | None] = "responses"
    keeps: ClassVar[tuple[str, ...]] = (".codex/sessions/**/*.jsonl",)

    def unavailable(self) -> str | None:
        return cli.missing(_PACKAGE, _folder() / "bin" / "codex")

    def fingerprint(self) -> str:
        """Digest of the program's version, of what is locked with it, and of this module."""
        return cli.fingerprint(_PACKAGE, Path(__file__))

    def effort_word(self, effort: str) -> str:
        return _EFFORTS.get(effort, effort)

    def launch(self, session: Session) -> Launch:
        """Start ``codex exec``; the instruction goes to its standard input, byte for byte."""
        assert session.endpoint is not None
        assert session.model is not None
        folder = _INSIDE if session.contained else str(_folder())
        provider = (
            f'{{name="model", base_url={json.dumps(session.endpoint.openai_v1)}, env_key="{_KEY}", '
            'wire_api="responses"}'
        )
        settings = {
            "model_provider": '"biabench"',
            "model_providers.biabench": provider,
            "model_reasoning_effort": f'"{self.effort_word(session.effort)}"',
            # The study ran Codex without it; nothing of the environment beyond the key is kept from commands.
            "web_search": '"live"' if session.web else '"disabled"',
            "shell_environment_policy.exclude": f'["{_KEY}"]',
            "check_for_update_on_startup": "false",
            "analytics.enabled": "false",
        }
        return Launch(
            argv=(
                f"{folder}/bin/codex",
                *("exec", "--json", "--skip-git-repo-check"),
                *("--ignore-user-config", "--ignore-rules", "--strict-config"),
                *("--model", session.model),
                *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")),
                "--dangerously-bypass-approvals-and-sandbox",
                *("-C", session.output_dir),
                "-",
            ),
            stdin=session.instruction.encode(),
            environment={"CODEX_HOME": f"{session.home_dir}/.codex", _KEY: session.endpoint.key},
            binds=(Bind(_folder(), folder),),
            python_prefix=True,
            home_files={".codex/.keep": ""},
        )

    def read(self, stdout: Path, stderr: Path, output_dir: Path) -> Evidence:
        """Translate the stream of events; it does not tell which images were looked at, the session log does."""
        return _Reader().read(stdout, _views(stdout.parent / "home" / ".codex" / "sessions"))


def _folder() -> Path:
    processor = cli.processor()
    return cli.MODULES / f"{_PACKAGE}-linux-{processor}" / "vendor" / _TRIPLES.get(processor, processor)


class _Reader:
    """Reads one run's ``--json`` stream."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.open: dict[str, Step | None] = {}
        self.begun = False
        self.calls = 0
        self.shells = 0
        self.final = ""
        self.failed = ""
        self.sums: dict[str, int] = {}

    def read(self, stdout: Path, views: list[tuple[int, str]]) -> Evidence:
        for event in json_lines(stdout):
            kind = text(event.get("type"))
            self.begun |= kind == "thread.started"
            if kind == "item.started":
                self._item(obj(event.get("item")), done=False)
            elif kind == "item.completed":
                self._item(obj(event.get("item")), done=True)
            elif kind == "turn.completed":
                for name, value in obj(event.get("usage")).items():
                    if (number := count(value)) is not None:
                        self.sums[name] = self.sums.get(name, 0) + number
            elif kind == "turn.failed":
                self.failed = text(obj(event.get("error")).get("message")) or "turn failed"
                self.steps.add("error", text=self.failed)
            elif kind == "error":
                self.steps.add("error", text=text(event.get("message")))
        self._insert(views)
        final = None if self.failed else self.final
        return Evidence(
            usage=self._usage(),
            final_message=final or None,
            infrastructure=self._fault(),
            steps=self.steps.close(final),
        )

    def _insert(self, views: list[tuple[int, str]]) -> None:
        """Insert views of images after as many commands as the session log has before them."""
        for done, path in reversed(views):
            shells = [place for place, step in enumerate(self.steps.found) if step.tool == "command_execution"]
            position = 0 if not done else shells[done - 1] + 1 if done <= len(shells) else len(self.steps.found)
            self.steps.insert(position, Step(step=1, kind="tool", tool="view_image", images_viewed=[path]))
            self.calls += 1

    def _item(self, item: dict[str, Any], *, done: bool) -> None:
        kind, identifier = text(item.get("type")), text(item.get("id"))
        if kind in ("command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call"):
            if identifier not in self.open:
                self.calls += 1
                self.shells += kind == "command_execution"
                self.open[identifier] = self.steps.add("tool", tool=kind)
            self.steps.complete(self.open[identifier], **_call(kind, item, done=done))
        elif not done:
            return
        elif kind == "agent_message":
            self.final = text(item.get("text"))
            self.steps.add("message", text=self.final)
        elif kind == "reasoning":
            self.steps.add("reasoning", text=text(item.get("text")))
        elif kind == "error":
            self.steps.add("error", text=text(item.get("message")))
        elif kind:
            self.steps.add("tool", tool=kind, text=json.dumps(item))

    def _usage(self) -> Usage:
        return Usage(
            input_tokens=self.sums.get("input_tokens"),
            cached_tokens=self.sums.get("cached_input_tokens"),
            cache_write_tokens=self.sums.get("cache_write_input_tokens"),
            output_tokens=self.sums.get("output_tokens"),
            reasoning_tokens=self.sums.get("reasoning_output_tokens"),
            tool_calls=self.calls if self.begun else None,
            executed_blocks=self.shells if self.begun else None,
            source="turn.completed events of Codex" if self.sums else None,
        )

    def _fault(self) -> str | None:
        if not self.failed:
            return None
        status = _STATUS.search(self.failed)
        if status and cli.provider_fault(int(status[1])):
            return f"the provider answered HTTP {status[1]}: {self.failed[:300]}"
        if "stream disconnected" in self.failed or "exceeded retry limit" in self.failed:
            return self.failed[:300]
        return None


def _views(sessions: Path) -> list[tuple[int, str]]:
    """Return the images that a session looked at, each with the number of commands that had ended before."""
    found, commands = [], 0
    for path in sorted(sessions.rglob("*.jsonl")):
        for line in json_lines(path):
            payload = obj(line.get("payload"))
            item = obj(payload.get("item")) if payload.get("type") == "item_completed" else {}
            commands += item.get("type") == "CommandExecution"
            if item.get("type") == "ImageView":
                place = text(item.get("path")).removeprefix("file://").encode("utf-8", "replace").decode()
                found.append((commands, place))
    return found


def _call(kind: str, item: dict[str, Any], *, done: bool) -> dict[str, Any]:
    """Return the fields of a step from a tool's item."""
    if kind == "command_execution":
        code = item.get("exit_code")
        command = _unwrapped(item.get("command"))
        found: dict[str, Any] = {"code": command, "urls": addresses(command)}
        if done:
            found |= {
                "output": text(item.get("aggregated_output")),
                "exit_code": code if isinstance(code, int) else None,
            }
        return found
    if kind == "file_change":
        return {"files_written": [text(change.get("path")) for change in items(item.get("changes"))]}
    if kind == "web_search":
        return {"queries": [query] if (query := text(item.get("query"))) else []}
    given = item.get("arguments")
    path = text(obj(given).get("path"))
    return {"text": json.dumps(given), "images_viewed": [path] if is_image(path) else []}


_SHELLS = frozenset(("bash", "sh", "zsh"))
_DOUBLE_QUOTED = re.compile(r'\S+ -l?c "(?P<code>(?:[^"\\]|\\.)*)"', re.DOTALL)


def _unwrapped(command: Any) -> str:
    """Return a command, given as a text or as a list of words, without the shell that Codex wraps around it."""
    if isinstance(command, list):
        words = [text(word) for word in command]
        whole = shlex.join(words)
    else:
        whole = text(command)
        try:
            words = shlex.split(whole)
        except ValueError:  # a quote without its end
            return whole
    if len(words) != 3 or Path(words[0]).name not in _SHELLS or words[1] not in ("-c", "-lc"):
        return whole
    if not isinstance(command, list) and (quoted := _DOUBLE_QUOTED.fullmatch(whole)):
        return re.sub(r"\\([\"\\$`])", r"\1", quoted["code"])  # shlex leaves the backslash of \$ and \`
    return words[2]
