"""What a reader must know of a run: models, efforts and counts other than expected, logs not read, open cases."""

from __future__ import annotations

from collections.abc import Iterable

from biabench_plugin.records import TrialRecord
from biabench_plugin.report.rows import Row

_MOST = 10  # lines; the records have all


def wire_lines(rows: Iterable[Row], width: int) -> list[str]:
    """Return lines that name the trials concerned, none where there is nothing to say."""
    found = [(row, note) for row in rows if row.record is not None for note in notes(row.record)]
    lines = [f"{row.task} {row.configuration} r{row.repeat}: {note}"[:width] for row, note in found[:_MOST]]
    if len(found) > _MOST:
        fields = "wire, usage_difference, transcript_problem, review"
        lines.append(f"… and {len(found) - _MOST} more; the records have all ({fields})")
    return lines


def notes(record: TrialRecord) -> list[str]:
    """Return what stands out in one record."""
    found = [f"WIRE {problem}" for problem in record.wire.get("problems", ())]
    if unmetered := record.wire.get("unmetered"):
        found.append(f"USAGE {unmetered} request(s) ended without token counts: tokens and cost are at least these")
    if record.usage_difference:
        signs = ", ".join(f"{name} {value:+d}" for name, value in sorted(record.usage_difference.items()))
        found.append(f"USAGE the agent reports otherwise than metered: {signs}")
    if record.transcript_problem is not None:
        said = " ".join(record.transcript_problem.split())  # an exception's words may have several lines
        found.append(f"TRANSCRIPT not read: {said}")
    return found + [f"REVIEW {note}" for note in record.review]
