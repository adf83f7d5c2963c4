"""Means and counts per configuration and task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median, stdev
from typing import Literal

from biabench_plugin.report.rows import Row

RankBy = Literal["outcome", "strict"]
STATES = ("delivered", "no_deliverable", "crashed", "refused")


@dataclass(frozen=True)
class Cell:
    """One configuration on one task: means over its counting repeats."""

    outcome: float | None
    strict: float | None
    scored: int
    trials: int
    states: dict[str, int]


@dataclass(frozen=True)
class Line:
    """One configuration on one dataset: a row of the leaderboard.

    ``outcome`` is the mean of the per-task means, ``outcome_sd`` the sample standard deviation over tasks.
    """

    configuration: str
    agent: str
    dataset: str
    synthetic: bool
    cells: dict[str, Cell]
    outcome: float | None
    outcome_sd: float | None
    strict: float | None
    states: dict[str, int]
    infrastructure: int
    excluded: int
    not_run: int
    timed_out: int
    uncontained: int
    minutes: float | None
    input_tokens: float | None
    output_tokens: float | None

    @property
    def demo(self) -> bool:
        return self.dataset.partition(":")[0] == "demo"

    @property
    def end_states(self) -> str:
        """Counts in the order delivered / no deliverable / crashed / refused."""
        return "/".join(str(self.states[state]) for state in STATES)


def _mean(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return mean(present) if present else None


def _median(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return median(present) if present else None


def cell(rows: Sequence[Row]) -> Cell:
    """Summarise the repeats of one configuration on one task."""
    counting = [row for row in rows if row.counts]
    return Cell(
        outcome=_mean(row.outcome for row in counting),
        strict=_mean(row.strict for row in counting),
        scored=len(counting),
        trials=len(rows),
        states=_states(rows),
    )


def _states(rows: Iterable[Row]) -> dict[str, int]:
    shown = [row for row in rows if row.excluded is None]
    found = [row.record.status.value for row in shown if row.record is not None and row.record.valid]
    return {state: found.count(state) for state in STATES}


def summarise(rows: Sequence[Row], rank_by: RankBy = "outcome") -> list[Line]:
    """Return one line per dataset and configuration, best first within a dataset; datasets are never pooled."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.dataset, row.configuration), []).append(row)
    lines = [_line(dataset, configuration, members) for (dataset, configuration), members in groups.items()]

    def order(line: Line) -> tuple[str, bool, float, str]:
        value = line.outcome if rank_by == "outcome" else line.strict
        return (line.dataset, value is None, -(value or 0.0), line.configuration)

    return sorted(lines, key=order)


def _line(dataset: str, configuration: str, rows: list[Row]) -> Line:
    tasks = sorted({row.task for row in rows})
    cells = {task: cell([row for row in rows if row.task == task]) for task in tasks}
    outcomes = [found.outcome for found in cells.values() if found.outcome is not None]
    records = [row.record for row in rows if row.record is not None]
    counting = [row.record for row in rows if row.record is not None and row.counts]
    return Line(
        configuration=configuration,
        agent=rows[0].agent,
        dataset=dataset,
        synthetic=any(record.synthetic for record in records),
        cells=cells,
        outcome=_mean(outcomes),
        outcome_sd=stdev(outcomes) if len(outcomes) > 1 else None,
        strict=_mean(found.strict for found in cells.values()),
        states=_states(rows),
        infrastructure=sum(row.record is not None and not row.record.valid and row.excluded is None for row in rows),
        excluded=sum(row.excluded is not None for row in rows),
        not_run=sum(row.record is None and row.excluded is None for row in rows),
        timed_out=sum(record.timed_out for record in counting),
        uncontained=sum(not record.provenance.isolation.get("in_force") for record in records),
        minutes=_median(record.wall_seconds / 60 for record in counting),
        input_tokens=_median(record.usage.input_tokens for record in counting),
        output_tokens=_median(record.usage.output_tokens for record in counting),
    )
