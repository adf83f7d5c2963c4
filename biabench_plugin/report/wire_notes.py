"""What the relay saw that a reader must know: other models, other efforts, counts that differ, open cases."""

from __future__ import annotations

from collections.abc import Iterable

from biabench_plugin.report.rows import Row

_MOST = 10  # lines; the records have all


def wire_lines(rows: Iterable[Row], width: int) -> list[str]:
    """Return lines that name the trials concerned, none where there is nothing to say."""
    found = [(row, note) for row in rows if row.record is not None for note in _notes(row)]
    lines = [f"{row.task} {row.configuration} r{row.repeat}: {note}"[:width] for row, note in found[:_MOST]]
    if len(found) > _MOST:
        lines.append(f"… and {len(found) - _MOST} more; the records have all (wire, usage_difference, review)")
    return lines


def _notes(row: Row) -> list[str]:
    record = row.record
    assert record is not None
    notes = [f"WIRE {problem}" for problem in record.wire.get("problems", ())]
    if record.usage_difference:
        signs = ", ".join(f"{name} {value:+d}" for name, value in sorted(record.usage_difference.items()))
        notes.append(f"USAGE the agent reports otherwise than metered: {signs}")
    return notes + [f"REVIEW {note}" for note in record.review]
