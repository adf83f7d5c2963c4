"""Whatever provider, model or program do: the right end state, the right usage, and nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.agents.programs.conftest import TABLES, Ran
from tests.model_server import Counts, Fault, Turn

PROGRAMS = ("api", "claude_code", "codex", "deepseek_harness")
LOOK = Turn(shell="ls /input", counts=Counts(10, 0, 0, 5, 0))
BEGUN = ("truncated", "stalled", "stream_error")
ENDLESS = 300  # seconds that no test waits


@dataclass(frozen=True)
class Rung:
    """A script and what must come of it; ``infrastructure`` and ``review`` are words that must be in the record."""

    turns: list[Turn]
    status: str
    infrastructure: str | None = None
    review: str | None = None
    budget: float = 60.0
    timed_out: bool = False
    usage: tuple[int, int] | None = None  # input and output tokens
    differs: dict[str, str] = field(default_factory=dict)  # status of single programs


def fault(**values: object) -> list[Turn]:
    return [LOOK, Turn(text="Not seen.", fault=Fault(**values))]  # type: ignore[arg-type]


LADDER = {
    "refusal": Rung([LOOK, Turn(text="I cannot help.", refusal=True)], "refused", usage=None),
    "empty_reply": Rung(fault(kind="empty_body"), "crashed", "without content", budget=25.0),
    "empty_turn": Rung(
        [LOOK, Turn(counts=Counts(10, 0, 0, 7, 7))],
        "no_deliverable",
        review="empty turn",
        differs={"deepseek_harness": "crashed"},
    ),
    "400": Rung(fault(status=400, message="unknown field"), "crashed", review="rejected the agent's request"),
    "400_policy": Rung(fault(status=400, message="violates our usage policy"), "crashed", review="may be a refusal"),
    "400_size": Rung(fault(status=400, message="prompt is too long: 9 tokens > 8"), "crashed", review="size limit"),
    "401": Rung(fault(status=401, message="bad key"), "crashed", "HTTP 401", budget=30.0),
    "402": Rung(fault(status=402, message="no credits"), "crashed", "HTTP 402", budget=30.0),
    "429": Rung(fault(status=429, message="slow down"), "crashed", "HTTP 429", budget=20.0),
    "529": Rung(fault(status=529, message="overloaded"), "crashed", "HTTP 529", budget=20.0),
    "truncated": Rung(fault(kind="truncated"), "crashed", "cut off", budget=25.0),
    "stream_error": Rung(
        fault(kind="stream_error", status=529, message="overloaded"), "crashed", "overloaded", budget=25.0
    ),
    "hang": Rung(fault(kind="hang"), "no_deliverable", "sent nothing", budget=24.0, timed_out=True, usage=(10, 5)),
    "stall": Rung(fault(kind="stalled"), "no_deliverable", "sent nothing", budget=24.0, timed_out=True),
    "crash": Rung([LOOK, Turn(shell="kill -9 -1", counts=Counts(20, 0, 0, 6, 0))], "crashed", usage=(30, 11)),
    "child_left": Rung(
        [Turn(shell=f"{TABLES}; setsid sleep {ENDLESS} > /dev/null 2>&1 &"), Turn(text="Done.")], "delivered"
    ),
    "half_in_time": Rung(
        [Turn(shell="printf 'X,Y\\n10,12\\n' > /output/0.csv", counts=Counts(10, 0, 0, 5, 0)),
         Turn(shell=f"sleep {ENDLESS}", counts=Counts(20, 0, 0, 6, 0))],
        "delivered", budget=12.0, timed_out=True,
    ),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("rung", LADDER)
def test_ladder(run_trial: Callable[..., Ran], name: str, rung: str) -> None:
    expected = LADDER[rung]
    ran = run_trial(name, expected.turns, budget=expected.budget)
    check(ran, name, expected)


@pytest.mark.parametrize("rung", ["refusal", "402", pytest.param("half_in_time", marks=pytest.mark.full)])
def test_short_ladder(run_trial: Callable[..., Ran], rung: str) -> None:
    ran = run_trial("api", LADDER[rung].turns, budget=LADDER[rung].budget)
    check(ran, "api", LADDER[rung])


def served(ran: Ran, turns: list[Turn], kinds: tuple[str, ...] = ()) -> tuple[int, int]:
    """Sum what the provider's answers took, with faulty ones of these kinds; the last turn is given again and again."""
    answers = [turns[min(number, len(turns) - 1)] for number in range(len(ran.server.requests))]
    counts = [turn.counts for turn in answers if turn.fault is None or turn.fault.kind in kinds]
    prompts = sum(one.input + one.cached + one.cache_write for one in counts)
    return prompts, sum(one.output for one in counts)


def check(ran: Ran, name: str, expected: Rung) -> None:
    record = ran.record
    seen = (record.status.value, record.status_reason, record.infrastructure, record.review, record.wire)
    ended_itself = not record.timed_out
    assert expected.timed_out <= record.timed_out, seen
    wanted = expected.differs.get(name, expected.status) if ended_itself or expected.timed_out else "no_deliverable"
    assert record.status.value == wanted, seen
    if expected.infrastructure is None:
        assert record.infrastructure is None, seen
    else:
        assert record.infrastructure is not None, seen
        assert expected.infrastructure in record.infrastructure, seen
    if expected.review is not None:
        assert expected.review in " ".join(record.review), seen
    if expected.usage is not None:
        assert (record.usage.input_tokens, record.usage.output_tokens) == expected.usage, seen
    least, most = served(ran, expected.turns), served(ran, expected.turns, BEGUN)
    assert least[0] <= (record.usage.input_tokens or 0) <= most[0], seen
    assert least[1] <= (record.usage.output_tokens or 0) <= most[1], seen
    assert record.usage.source == "relay"
    assert record.transcript_problem is None, seen
    if record.timed_out and expected.status == "delivered":
        assert record.score is not None
        assert 0 < record.score.outcome < 1
    if "sleep" in (expected.turns[0].shell or ""):
        assert record.survivors_killed >= 1, seen


@pytest.mark.full
@pytest.mark.parametrize("name", PROGRAMS)
def test_prompt_beyond_what_an_argument_holds(run_trial: Callable[..., Ran], name: str) -> None:
    long = "Please count the cells in every image.\n" + "Cells are bright; background is dark.\n" * 5000
    ran = run_trial(name, [Turn(shell=TABLES), Turn(text="Done.")], instruction=long)
    assert len(ran.instruction.encode()) > 140_000
    assert ran.record.status.value == "delivered", (ran.record.status_reason, ran.record.review)
    assert ran.instruction in ran.server.requests[0].user_texts()
