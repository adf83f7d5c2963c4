"""What is asked for is what goes over the wire: effort, model, tools, images; and nobody's settings come along."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.agents.programs.conftest import TABLES, Ran
from tests.model_server import Turn

PICTURE = (
    f"{TABLES}; python3 -c \"from PIL import Image; Image.new('L', (40, 30), 128).save('/output/overlay.png')\"; "
    "echo drawn"
)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "effort", "word"),
    [
        ("api", "minimal", "low"), ("api", "max", "max"),
        ("claude_code", "high", "high"), ("claude_code", "minimal", "low"), ("claude_code", "max", "max"),
        ("codex", "minimal", "minimal"), ("codex", "max", "xhigh"),
        ("deepseek_harness", "low", "low"), ("deepseek_harness", "max", "high"),
    ],
)  # fmt: skip
def test_effort_on_the_wire(run_trial: Callable[..., Ran], name: str, effort: str, word: str) -> None:
    ran = run_trial(name, [Turn(shell=TABLES), Turn(text="Done.")], effort=effort)
    assert {request.effort for request in ran.server.requests} == {word}
    assert (ran.record.effort_requested, ran.record.effort_applied) == (effort, word)
    assert ran.record.wire["problems"] == []


@pytest.mark.full
def test_an_effort_that_does_not_reach_the_wire_is_named(run_trial: Callable[..., Ran]) -> None:
    """Claude Code drops the tier for model names that it does not know to have one."""
    ran = run_trial("claude_code", [Turn(shell=TABLES), Turn(text="Done.")], model="anthropic/claude-opus-4.6")
    assert ran.record.effort_applied != "medium"
    assert "instead of medium" in " ".join(ran.record.wire["problems"])


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "choice", "offered"),
    [
        ("claude_code", None, True), ("claude_code", "off", False), ("claude_code", "on", True),
        ("codex", None, False), ("codex", "on", True),
        ("deepseek_harness", None, False), ("deepseek_harness", "on", True),
    ],
)  # fmt: skip
def test_web_tools(run_trial: Callable[..., Ran], name: str, choice: str | None, offered: bool) -> None:
    ran = run_trial(name, [Turn(shell=TABLES), Turn(text="Done.")], web_tools=choice)
    names = {"WebSearch", "WebFetch", "web_search"} & set(ran.record.wire["tools"])
    assert bool(names) == offered, ran.record.wire["tools"]
    assert ran.record.web_tools == choice


@pytest.mark.full
@pytest.mark.parametrize("name", ["api", "claude_code", "codex"])
def test_images_that_were_looked_at(run_trial: Callable[..., Ran], name: str) -> None:
    turns = [Turn(shell=PICTURE), Turn(view="/output/overlay.png"), Turn(text="Done.")]
    ran = run_trial(name, turns)
    assert ran.record.status.value == "delivered", ran.steps
    last = json.dumps(ran.server.requests[-1].body)
    assert "image/png" in last
    assert ["/output/overlay.png"] in [step.images_viewed for step in ran.steps]
