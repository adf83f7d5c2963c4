"""One run as every table and figure sees it, and its readers: campaigns, JUnit files, leaderboard entries, run CSVs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from biabench_plugin.taskspec import TaskSpec

Status = Literal["delivered", "no_deliverable", "crashed", "refused", "infrastructure", "not_run"]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one configuration on one task; what was not measured is ``None``, never 0.

    ``configuration`` tells rows apart within a dataset; ``label`` is its short form for tables.
    ``sections`` holds the share of decided rubric items passed, by section.
    """

    dataset: str
    configuration: str
    agent: str
    model: str | None
    instruction: str
    task: str
    run_id: str
    status: Status
    outcome: float | None = None
    strict: float | None = None
    process: float | None = None
    auditability: float | None = None
    judge: str | None = None
    sections: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # passed, decided
    timed_out: bool | None = None
    wall_minutes: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    tool_calls: float | None = None
    cost_usd: float | None = None
    cost_source: str | None = None  # "billed", "list_price" or None
    budget_minutes: float | None = None
    claim: str | None = None  # of the closing message: claimed, denied, promised, unknown
    tags: tuple[str, ...] = ()
    agent_class: str | None = None  # "general", "biology" or None
    synthetic: bool = False
    folder: Path | None = None
    source: str = "record"

    @property
    def scored(self) -> bool:
        """Whether the run enters means: crashes and time-outs do, refusals and infrastructure faults do not."""
        return self.outcome is not None and self.status in ("delivered", "no_deliverable", "crashed")

    @property
    def demo(self) -> bool:
        return self.dataset.partition(":")[0] == "demo"


def load_runs(paths: Iterable[Path], tasks: Mapping[str, TaskSpec]) -> list[Run]:
    """Read campaign folders, JUnit XML files, leaderboard entry JSONs and run CSVs, in any mix."""
    raise NotImplementedError
