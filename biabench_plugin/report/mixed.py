"""What differs between runs that stand in one row or one column, and should not: data, evaluators, effort, versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from biabench_plugin.records import TrialRecord
from biabench_plugin.report.rows import Row

_MOST = 10

# Per task: what must be the same in all configurations that are compared on it.
_OF_TASK: tuple[tuple[str, Callable[[TrialRecord], str | None]], ...] = (
    ("data", lambda record: f"{record.dataset.revision} {record.dataset.input_digest[:8]}"),
    ("truth", lambda record: record.dataset.truth_digest[:8]),
    (
        "evaluator",
        lambda record: f"{record.score.evaluator} {record.score.evaluator_version}" if record.score else None,
    ),
)
# Per configuration: what must be the same in all of its runs.
_OF_CONFIGURATION: tuple[tuple[str, Callable[[TrialRecord], str | None]], ...] = (
    ("agent version", lambda record: record.agent_version),
    ("effort", lambda record: record.effort_requested),
    ("network", lambda record: record.network),
)


def mixed_lines(rows: Iterable[Row], width: int) -> list[str]:
    """Return one line for everything that differs among runs whose means are taken together, or compared."""
    found: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        if row.record is None or not row.counts:
            continue
        keys = [(f"{row.task} ({row.dataset})", of) for of in _OF_TASK]
        keys += [(f"{row.configuration} ({row.dataset})", of) for of in _OF_CONFIGURATION]
        for name, (what, get) in keys:
            if (value := get(row.record)) is not None:
                found.setdefault((name, what), set()).add(value)
    lines = [
        f"MIXED {name}: runs differ in {what}: {', '.join(sorted(values))}"[:width]
        for (name, what), values in found.items()
        if len(values) > 1
    ]
    return [*lines[:_MOST], f"MIXED … and {len(lines) - _MOST} more"] if len(lines) > _MOST else lines
