"""Each wrapper turns its program's own events into one transcript; whatever the events hold, nothing breaks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents import load_agent
from agents.base import Evidence
from agents.transcript import read_transcript, write_transcript

NAMES = ["api", "claude_code", "codex", "deepseek_harness"]


def read(name: str, folder: Path, lines: list[Any], stdout: str | None = None, stderr: str = "") -> Evidence:
    logs = folder / "logs"
    session = logs / "home" / ".dsh-sessions" / "--output--" / "s1" / "session.jsonl"
    session.parent.mkdir(parents=True, exist_ok=True)
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    session.write_text(text, encoding="utf-8")
    (logs / "stdout.log").write_text(text if stdout is None else stdout, encoding="utf-8")
    (logs / "stderr.log").write_text(stderr)
    return load_agent(name).read(logs / "stdout.log", logs / "stderr.log", folder)


HOSTILE: list[Any] = [
    "", "not json", "{", '{"type": "assistant", "message": ', "[1, 2]", '"text"', "null",
    '{"type": "assistant", "message": {"content": [{"type": "text", "text": "\\ud800 lone"}]}}',
    {"type": "assistant", "message": "no object"}, {"type": "assistant", "message": {"content": [1, None, "x"]}},
    {"type": "assistant", "message": {"content": [{"type": "tool_use", "id": 7, "name": None, "input": [1]}]}},
    {"type": "assistant", "message": {"content": [], "usage": {"input_tokens": "9"}, "stop_reason": {}}},
    {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": ["x"], "content": 3}]}},
    {"type": "result", "usage": {"input_tokens": -4, "output_tokens": True}, "result": {"no": "text"}, "is_error": 2},
    {"type": "item.completed", "item": {"type": "command_execution", "id": None, "command": 3, "exit_code": "0"}},
    {"type": "item.completed", "item": {"type": "file_change", "changes": {"path": "x"}}},
    {"type": "item.completed", "item": {"type": {"deep": 1}}}, {"type": "turn.completed", "usage": [1]},
    {"type": ["assistant"]}, {"type": "tool/call", "data": {"name": "bash", "arguments": "{broken"}, "time": "soon"},
    {"type": "tool/call", "data": {"callId": "1", "name": "bash", "arguments": "[1]"}, "time": True},
    {"type": "tool/result", "data": {"message": {"content": [{"toolCallId": "1", "content": [None, {"type": 3}]}]}}},
    {"type": "assistant/message", "data": {"message": {"content": "x", "usage": 3}, "usage": {"inputTokens": 1.5}}},
    "[" * 100_000, '{"a":' * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_hostile_events(tmp_path: Path, name: str) -> None:
    found = read(name, tmp_path, HOSTILE)
    path = tmp_path / "transcript.jsonl"
    write_transcript(found.steps, path)
    assert [step.step for step in read_transcript(path)] == list(range(1, len(found.steps) + 1))
    assert found.usage.input_tokens is None
    assert found.usage.output_tokens is None


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_said_nothing_has_no_signals(tmp_path: Path, name: str) -> None:
    found = read(name, tmp_path, [])
    assert found.usage.model_dump(exclude_none=True) == {}
    assert (found.final_message, found.steps) == (None, ())


@pytest.mark.parametrize("name", NAMES)
def test_logs_that_are_absent(tmp_path: Path, name: str) -> None:
    missing = tmp_path / "logs"
    found = load_agent(name).read(missing / "stdout.log", missing / "stderr.log", tmp_path)
    assert found.final_message is None


def test_long_text_is_shortened_in_its_middle_and_says_so(tmp_path: Path) -> None:
    said = "a" * 100_000 + "END"
    events = [{"type": "assistant", "message": {"content": [{"type": "text", "text": said}]}}]
    (step,) = read("claude_code", tmp_path, events).steps
    assert step.shortened
    assert step.text is not None
    assert len(step.text) < 50_000
    assert step.text.endswith("END")
    assert "60003 characters left out" in step.text


def test_claude_code_tools(tmp_path: Path) -> None:
    def use(number: int, name: str, **given: Any) -> dict[str, Any]:
        block = {"type": "tool_use", "id": f"t{number}", "name": name, "input": given}
        return {"type": "assistant", "message": {"content": [block]}}

    def result(number: int, content: Any, error: bool = False) -> dict[str, Any]:
        block = {"type": "tool_result", "tool_use_id": f"t{number}", "content": content, "is_error": error}
        return {"type": "user", "message": {"content": [block]}}

    events = [
        use(1, "Bash", command="curl https://example.org/a.tif && false"), result(1, "Exit code 22\nno", True),
        use(2, "Write", file_path="/output/a.csv", content="X,Y"), result(2, "written"),
        use(3, "Read", file_path="/output/a.png"), result(3, [{"type": "image", "source": {}}]),
        use(4, "WebSearch", query="cells dataset"), use(5, "WebFetch", url="https://example.org/paper"),
        {"type": "system", "subtype": "api_retry", "error_status": 529, "error": "overloaded"},
        {"type": "result", "is_error": True, "api_error_status": 402, "result": "no credit",
         "usage": {"input_tokens": 5, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2}},
    ]  # fmt: skip
    found = read("claude_code", tmp_path, events)
    shell, write, look, search, fetch, retry, error = found.steps
    assert (shell.exit_code, shell.urls) == (22, ["https://example.org/a.tif"])
    assert (write.files_written, write.code) == (["/output/a.csv"], "X,Y")
    assert look.images_viewed == ["/output/a.png"]
    assert (search.queries, fetch.urls) == (["cells dataset"], ["https://example.org/paper"])
    assert (retry.kind, error.kind) == ("error", "error")
    assert (found.usage.input_tokens, found.usage.cached_tokens, found.usage.cache_write_tokens) == (10, 3, 2)
    assert (found.usage.tool_calls, found.usage.executed_blocks) == (5, 1)
    assert found.final_message is None
    assert "402" in str(found.infrastructure)


def test_codex_items(tmp_path: Path) -> None:
    events = [
        {"type": "thread.started", "thread_id": "x"},
        {"type": "item.started", "item": {"id": "1", "type": "command_execution", "command": "/bin/sh -lc 'ls'"}},
        {"type": "item.completed", "item": {"id": "1", "type": "command_execution", "command": "/bin/sh -lc 'ls'",
                                            "aggregated_output": "a", "exit_code": 2}},
        {"type": "item.completed", "item": {"id": "2", "type": "file_change", "changes": [{"path": "/output/a.py"}]}},
        {"type": "item.completed", "item": {"id": "3", "type": "web_search", "query": "cells"}},
        {"type": "item.completed", "item": {"id": "4", "type": "agent_message", "text": "Done."}},
        {"type": "turn.completed", "usage": {"input_tokens": 100, "cached_input_tokens": 90, "output_tokens": 7,
                                             "reasoning_output_tokens": 3}},
    ]  # fmt: skip
    found = read("codex", tmp_path, events)
    shell, change, search, final = found.steps
    assert (shell.code, shell.exit_code, shell.output) == ("ls", 2, "a")
    assert change.files_written == ["/output/a.py"]
    assert search.queries == ["cells"]
    assert (final.kind, found.final_message) == ("final", "Done.")
    assert (found.usage.input_tokens, found.usage.cached_tokens) == (100, 90)  # cached is a part, not more
    assert (found.usage.tool_calls, found.usage.executed_blocks) == (3, 1)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (  # both kinds of quotes, as Codex writes them
            r"""/bin/bash -lc 'echo "$p"; tr '"'\\0' ' ' < "'$p/environ'""",
            r"""echo "$p"; tr '\0' ' ' < $p/environ""",
        ),
        (r"""bash -lc 'echo '"'"'a b'"'" """, "echo 'a b'"),
        (r"""/usr/bin/zsh -c "it's \$HOME \`x\` \"y\" \\n\"" """.strip(), r"""it's $HOME `x` "y" \n" """.strip()),
        ("sh -c ls", "ls"),
        ("/bin/bash -lc 'unended", "/bin/bash -lc 'unended"),
        ("python -c 'print(1)'", "python -c 'print(1)'"),
        ("bash -c 'echo $0' name", "bash -c 'echo $0' name"),
        (["bash", "-lc", """echo 'a' "b\""""], """echo 'a' "b\""""),
        (["echo", "a b"], "echo 'a b'"),
        (7, ""),
    ],
)
def test_codex_commands_without_their_shell(tmp_path: Path, command: object, code: str) -> None:
    item = {"id": "1", "type": "command_execution", "command": command, "exit_code": 0}
    assert read("codex", tmp_path, [{"type": "item.completed", "item": item}]).steps[0].code == code


@pytest.mark.parametrize(
    ("message", "infrastructure"),
    [("unexpected status 402 Payment Required", True), ("stream disconnected before completion", True),
     ("exceeded retry limit, last status: 429", True), ("unexpected status 400 Bad Request", False)],
)  # fmt: skip
def test_codex_failed_turn(tmp_path: Path, message: str, infrastructure: bool) -> None:
    found = read("codex", tmp_path, [{"type": "turn.failed", "error": {"message": message}}])
    assert bool(found.infrastructure) == infrastructure


@pytest.mark.parametrize(
    ("complaint", "infrastructure"),
    [("dsh: QUOTA: no credit", True), ("dsh: INVALID_REQUEST: bad", False), ("something else", False)],
)
def test_dsh_complaints(tmp_path: Path, complaint: str, infrastructure: bool) -> None:
    found = read("deepseek_harness", tmp_path, [], stdout="text\n", stderr=f"{complaint}\n")
    assert bool(found.infrastructure) == infrastructure
    assert (found.final_message is None) == complaint.startswith("dsh:")


def test_dsh_shell_result_has_its_exit_code(tmp_path: Path) -> None:
    call = {
        "type": "tool/call",
        "time": 1000,
        "data": {"callId": "c", "name": "bash", "arguments": '{"command": "ls"}'},
    }
    part = {"type": "tool-result", "toolCallId": "c", "content": [{"type": "text", "text": "no\n[exit code: 2]"}]}
    result = {"type": "tool/result", "time": 3000, "data": {"message": {"content": [part]}}}
    (step,) = read("deepseek_harness", tmp_path, [call, result], stdout="").steps
    assert (step.code, step.exit_code, step.at) == ("ls", 2, 0.0)
