"""The state of a campaign as its folder tells it, from any process and any host."""

from __future__ import annotations

import re
import time
from datetime import datetime
from pathlib import Path

from biabench_plugin import sessions
from biabench_plugin.progress import Progress, short
from biabench_plugin.records import junit_properties, record_path
from biabench_plugin.report.rows import Row, from_campaign
from biabench_plugin.workspace import LEASE, LEASE_SECONDS

_MOST_LISTED = 20


def progress(campaign: Path, now: float) -> Progress:
    """Count what the records, leases and commands of a campaign say."""
    rows = {_trial(row): row for row in from_campaign(campaign)}
    commands = list(sessions.commands(campaign))
    planned = {trial for command in commands for trial in command.planned} | set(rows)
    open_ones = [command for command in commands if command.finished is None]
    found = Progress(planned=len(planned), left=set(planned))
    if open_ones:
        found.began = min(datetime.fromisoformat(command.started).timestamp() for command in open_ones)
        found.budget_seconds = open_ones[-1].budget_seconds
    running = _running(campaign, now)
    for trial, row in rows.items():
        if trial not in running:
            _count(found, campaign, trial, row)
    found.running = running
    return found


def _count(found: Progress, campaign: Path, trial: str, row: Row) -> None:
    if row.record is None:
        return  # damaged: the same command runs it again
    values = {name.removeprefix("biabench."): value for name, value in _properties(row, campaign)}
    if row.excluded is not None:
        found.finish(trial, {"reused": "true"}, "skipped")
        return
    if row.record.started.timestamp() < found.began:
        values["reused"] = "true"  # of an earlier command; it says nothing about how fast this one goes
    found.finish(trial, values, "skipped" if values.get("status") == "refused" else "passed")


def _properties(row: Row, campaign: Path) -> list[tuple[str, str]]:
    assert row.record is not None
    return junit_properties(row.record, record_path(campaign, row.record))


def _trial(row: Row) -> str:
    return f"tasks/{row.task}/task.yaml::{row.configuration[:-1]}-r{row.repeat}]"


def _running(campaign: Path, now: float) -> dict[str, float]:
    """Return the trials that somebody holds now, and since when their attempt runs."""
    running = {}
    for lease in campaign.glob(f"runs/*/*/r*/{LEASE}"):
        try:
            if now - lease.stat().st_mtime > LEASE_SECONDS:
                continue  # of a dead process
            began = max(path.stat().st_mtime for path in lease.parent.glob("attempt-*/instruction.md"))
        except (OSError, ValueError):  # released meanwhile, or not begun yet
            continue
        task, configuration, repeat = lease.parent.parts[-3:]
        running[f"tasks/{task}/task.yaml::{configuration.replace('+', '[', 1)}-{repeat}]"] = began
    return running


def lines(campaign: Path, now: float | None = None) -> list[str]:
    """Return what ``biabench status`` prints."""
    now = time.time() if now is None else now
    found = progress(campaign, now)
    rows = from_campaign(campaign)
    said = [f"campaign  {campaign}", found.headline(now), *("  " + line for line in found.means())]
    said += ["  running  " + line for line in found.runs(now)]
    notable = [row for row in rows if row.excluded is not None or row.record is None or not row.record.valid]
    said += [f"  {row.status}  {short(_trial(row))}: {row.note}" for row in notable[:_MOST_LISTED]]
    if len(notable) > _MOST_LISTED:
        said.append(f"  … and {len(notable) - _MOST_LISTED} more; biabench report lists them all")
    for command in sessions.commands(campaign):
        if command.finished is None:
            said.append(f"  unfinished  pytest {' '.join(command.words)}  (begun {command.started} on {command.host})")
    return said


_RUN = re.compile(r"runs/([^/]+)/([^/]+)/r([0-9]+)(?:/.*)?")


def find_target(text: str, campaign: Path | None) -> tuple[Path, str]:
    """Return the campaign and the id of a trial or configuration; raise ``ValueError`` with what there is.

    ``text`` is the folder of a trial (or something in it), a trial's id, or a configuration's id.
    """
    path = Path(text)
    if campaign is None and path.exists():
        absolute = path.resolve()
        for folder in absolute.parents:
            if (folder / "campaign.json").is_file() and (
                found := _RUN.fullmatch(absolute.relative_to(folder).as_posix())
            ):
                task, configuration, repeat = found.groups()
                return folder, f"tasks/{task}/task.yaml::{configuration.replace('+', '[', 1)}-r{repeat}]"
        raise ValueError(f"{text}: lies in no trial of a campaign; expected CAMPAIGN/runs/<task>/<configuration>/r<N>")
    if campaign is None:
        raise ValueError(f"{text}: say which campaign it belongs to: --campaign DIR")
    if not (campaign / "campaign.json").is_file():
        raise ValueError(f"{campaign}: no campaign folder; expected a folder with campaign.json")
    rows = from_campaign(campaign)
    known = {_trial(row) for row in rows} | {row.configuration for row in rows}
    known |= {trial for command in sessions.commands(campaign) for trial in command.planned}
    if text not in known:
        configurations = ", ".join(sorted({row.configuration for row in rows})) or "none yet"
        raise ValueError(f"{campaign}: knows no trial or configuration {text!r}; configurations: {configurations}")
    return campaign, text
