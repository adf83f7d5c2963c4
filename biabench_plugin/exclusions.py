"""What the operator takes out of the means of a campaign, and why: append-only, undoable, shown in every report.

``CAMPAIGN/exclusions.jsonl`` has one object per line: ``when``, ``target`` (a trial's id or a configuration's id),
``reason``, ``undo``. The last line about a target decides.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from biabench_plugin.records import RecordError

FILE = "exclusions.jsonl"


@dataclass(frozen=True)
class Exclusion:
    """One decision of the operator."""

    when: str
    target: str
    reason: str
    undo: bool = False


def history(campaign: Path) -> list[Exclusion]:
    """Return all decisions, oldest first; raise :class:`RecordError` that names a damaged line."""
    path = campaign / FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{path}: cannot be read: {error}") from error
    found = []
    for number, line in enumerate(text.split("\n")[:-1], start=1):  # what follows the last line end was never finished
        try:
            found.append(Exclusion(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise RecordError(
                f"{path}:{number}: expected an object with when, target, reason, undo: {error}"
            ) from error
    return found


def active(campaign: Path) -> dict[str, str]:
    """Return the reasons of the exclusions in force, by target."""
    reasons: dict[str, str] = {}
    for decision in history(campaign):
        if decision.undo:
            reasons.pop(decision.target, None)
        else:
            reasons[decision.target] = decision.reason
    return reasons


def reason_for(reasons: dict[str, str], trial: str, configuration: str) -> str | None:
    """Say why a trial is excluded, itself or with its configuration; ``None`` when it is not."""
    return reasons.get(trial, reasons.get(configuration))


def add(campaign: Path, target: str, reason: str, *, undo: bool = False) -> Exclusion:
    """Append a decision; raise ``ValueError`` where it says nothing new."""
    history(campaign)  # never append to a damaged file
    in_force = active(campaign)
    if undo and target not in in_force:
        raise ValueError(f"{target} is not excluded, so there is nothing to undo")
    if not undo and in_force.get(target) == reason:
        raise ValueError(f"{target} is excluded already, for the same reason")
    decision = Exclusion(datetime.now(UTC).isoformat(timespec="seconds"), target, reason, undo)
    descriptor = os.open(campaign / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "r+b") as stream:
        stream.seek(_whole_lines(stream.read()))
        stream.write(json.dumps(asdict(decision)).encode() + b"\n")
        stream.truncate()
        stream.flush()
        os.fsync(stream.fileno())
    return decision


def _whole_lines(content: bytes) -> int:
    """Length of the finished lines; a process that died while appending may have left part of one."""
    return content.rfind(b"\n") + 1
