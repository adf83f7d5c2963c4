"""The real programs do a scripted analysis of the demo images: delivered, scored, metered, told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.agents.programs.conftest import ANALYSIS, CANARY, Ran
from tests.model_server import Counts, Turn

PROGRAMS = ["api", "claude_code", "codex", "deepseek_harness"]
TURNS = [
    Turn(
        reasoning="I look first.", text="Let me look.", shell="ls -1 /input | head -3", counts=Counts(900, 100, 50, 30)
    ),
    Turn(shell=ANALYSIS, counts=Counts(300, 1000, 0, 200, 60)),
    Turn(text="I counted the cells in all images.", counts=Counts(50, 1300, 0, 25, 0)),
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_scripted_analysis(run_trial: Callable[..., Ran], name: str) -> None:
    ran = run_trial(name, TURNS, task_name="cell_counting")
    record = ran.record
    stderr = (ran.folder / "logs" / "stderr.log").read_text()[-2000:]
    assert record.status.value == "delivered", (record.status_reason, stderr, ran.ledger)
    assert record.score is not None
    assert record.score.outcome > 0.1

    # the instruction, byte for byte
    assert ran.instruction in ran.server.requests[0].user_texts()

    # usage: each token once, as metered, and as the agent says
    assert [exchange.answered for exchange in ran.ledger if exchange.asks_model] == [True] * 3
    assert record.usage.input_tokens == (900 + 100 + 50) + (300 + 1000) + (50 + 1300)
    assert record.usage.cached_tokens == 2400
    assert record.usage.output_tokens == 255
    assert record.usage.tool_calls == 2
    assert record.usage.executed_blocks == 2
    assert record.usage_difference == {}

    # model, effort and key on the wire
    assert {request.model for request in ran.server.requests} == {"test-model"}
    assert {request.key for request in ran.server.requests} == {CANARY}
    assert record.effort_applied == "medium"
    assert record.wire["problems"] == []

    # transcript and closing message
    assert record.transcript_problem is None
    assert record.final_message == "I counted the cells in all images."
    tools = [step for step in ran.steps if step.kind == "tool"]
    assert [step.code for step in tools] == ["ls -1 /input | head -3", ANALYSIS]
    assert tools[0].output is not None
    assert "0.tiff" in tools[0].output
    assert "tables: " in (tools[1].output or "")
    assert tools[1].exit_code == 0
    assert ran.steps[-1].kind == "final"
