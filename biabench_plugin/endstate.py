"""From exit, files and structured events to an end state: one rule, used everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agents.base import Evidence
from biabench_plugin.supervisor import RunResult


class EndState(StrEnum):
    """How a trial ended. ``timed_out`` and ``infrastructure`` are flags beside it."""

    DELIVERED = "delivered"
    NO_DELIVERABLE = "no_deliverable"
    CRASHED = "crashed"
    REFUSED = "refused"


@dataclass(frozen=True)
class Ending:
    """An end state, its flags, and the evidence that decided it."""

    state: EndState
    timed_out: bool
    infrastructure: str | None
    reason: str


def classify(delivered: bool, run: RunResult, evidence: Evidence) -> Ending:
    """Decide the end state of a run.

    At least one conforming required deliverable means *delivered*, whatever the exit; what was written is always
    scored. Otherwise the provider's structured refusal, then the exit decide. Words printed by the agent never do.
    """
    infrastructure = None if delivered else (run.start_error or evidence.infrastructure)
    if delivered:
        state, reason = EndState.DELIVERED, "a required deliverable conforms"
    elif evidence.refused:
        state, reason = EndState.REFUSED, evidence.refused
    elif run.timed_out:
        state, reason = EndState.NO_DELIVERABLE, "the budget ended before a required deliverable was written"
    elif run.quota_exceeded:
        state, reason = EndState.NO_DELIVERABLE, "stopped over the output quota without a conforming deliverable"
    elif run.signal is not None:
        state, reason = EndState.CRASHED, f"ended by signal {run.signal} without a conforming deliverable"
    elif run.exit_code != 0:
        state, reason = EndState.CRASHED, f"exit code {run.exit_code} without a conforming deliverable"
    else:
        state, reason = EndState.NO_DELIVERABLE, "ended normally without a conforming required deliverable"
    return Ending(state, run.timed_out, infrastructure, reason)
