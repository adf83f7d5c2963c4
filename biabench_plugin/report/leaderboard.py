"""Leaderboard entries in the published JSON form: write one from a campaign, check, rank.

The fields are those of the public leaderboard's entries (schema version 1); ``entry_schema.json`` beside this module is
the same as JSON Schema. What a schema cannot say is in :func:`check`. A check does not prove that runs happened as
claimed, that an agent did not know the public truth, or that scores belong to the artifacts.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import mean, median, pstdev, stdev
from typing import Any, Literal, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from biabench_plugin.billing import Cost, cost_of
from biabench_plugin.records import TrialRecord
from biabench_plugin.report import stats
from biabench_plugin.report.rows import Row
from biabench_plugin.taskspec import TaskSpec
from evaluators.process import store
from evaluators.process.views import ProcessView

PAPER = Path(__file__).parent / "paper"
SCHEMA = Path(__file__).parent / "entry_schema.json"
RunStatus = Literal["delivered", "no_deliverable", "crash", "refused"]
STATUSES: tuple[RunStatus, ...] = ("delivered", "no_deliverable", "crash", "refused")


class EntryError(ValueError):
    """An entry cannot be read, made or used; the message says which and why."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True, allow_inf_nan=False)


class Submitter(_Model):
    name: str = Field(min_length=1)
    affiliation: str | None = None
    contact: str = Field(min_length=1)


class AgentInfo(_Model):
    name: str = Field(min_length=1)
    version: str = Field(min_length=1)
    adapter: str | None = None
    kind: Literal["general", "biology"] | None = Field(alias="class")
    url: str | None = None


class ModelInfo(_Model):
    name: str = Field(min_length=1)
    identifier: str = Field(min_length=1)
    provider: str | None = None


class EntrySettings(_Model):
    dataset_revision: str = Field(min_length=1)
    instruction_level: Literal["brief", "detailed"]
    repeats: int = Field(ge=1)
    judge_model: str | None
    evaluator_commit: str | None = None
    cost_provenance: Literal["billed", "list_price"] | None
    hardware: str | None = None


class Artifacts(_Model):
    url: str | None
    notes: str | None = None


class EntryRun(_Model):
    """One run. ``outcome`` is ``None`` for a refused run; minutes, tokens and US dollars are ``None`` if unknown."""

    run_id: str = Field(min_length=1)
    status: RunStatus
    outcome: float | None = Field(ge=0, le=1, strict=True)
    process: float | None = Field(default=None, ge=0, le=1, strict=True)
    wall_min: float | None = Field(ge=0, strict=True)
    input_tokens: float | None = Field(ge=0, strict=True)
    output_tokens: float | None = Field(ge=0, strict=True)
    cost_usd: float | None = Field(ge=0, strict=True)

    @property
    def scored(self) -> bool:
        return self.status != "refused"


class EntryTask(_Model):
    runs: list[EntryRun]


class Entry(_Model):
    """One configuration on all sixteen tasks."""

    schema_version: Literal["1"]
    id: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{2,79}$")
    source: Literal["paper", "community"]
    submitted: date
    submitter: Submitter
    agent: AgentInfo
    model: ModelInfo
    settings: EntrySettings
    artifacts: Artifacts
    tasks: dict[str, EntryTask]

    def dump(self) -> str:
        """Return the entry as JSON; optional fields that are absent stay absent, nullable ones are ``null``."""
        values = self.model_dump(mode="json", by_alias=True)
        optional = {
            "submitter": ("affiliation",),
            "agent": ("adapter", "url"),
            "model": ("provider",),
            "settings": ("evaluator_commit", "hardware"),
            "artifacts": ("notes",),
        }
        for part, names in optional.items():
            values[part] = {key: value for key, value in values[part].items() if value is not None or key not in names}
        for task in values["tasks"].values():
            for run in task["runs"]:
                if run["process"] is None:
                    del run["process"]
        return json.dumps(values, indent=1, ensure_ascii=False) + "\n"


def json_schema() -> str:
    """Return the form of an entry as JSON Schema (draft-07)."""
    text = json.dumps(Entry.model_json_schema(by_alias=True)).replace("#/$defs/", "#/definitions/")
    schema = json.loads(text)
    schema["definitions"] = schema.pop("$defs")
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **schema, "title": "BIABench leaderboard entry"}
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise EntryError(f"a field stands twice among {', '.join(sorted(found))}"[:300])
    return found


def read_entry(path: Path) -> Entry:
    """Read one entry; the error names the file and every field that does not fit."""
    try:
        raw = path.read_bytes()
        entry = Entry.model_validate_json(raw)
        json.loads(raw, object_pairs_hook=_once)
        return entry
    except OSError as error:
        raise EntryError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'entry'}: {fault['msg']}" for fault in error.errors())
        raise EntryError(f"{path}: is no leaderboard entry: {faults}") from error


def check(entry: Entry, dataset_ids: Iterable[str], stem: str | None = None) -> list[str]:
    """Return what is wrong with an entry beyond its form, one sentence per fault.

    Parameters
    ----------
    dataset_ids
        The tasks that an entry must hold, by their published ids.
    stem
        Name of the entry's file without extension, which must be its id.
    """
    faults = []
    if stem is not None and stem != entry.id:
        faults.append(f"id {entry.id!r} differs from the file name {stem!r}")
    wanted = set(dataset_ids)
    if absent := sorted(wanted - set(entry.tasks)):
        faults.append(f"tasks are missing: {', '.join(absent)}")
    if unknown := sorted(set(entry.tasks) - wanted):
        faults.append(f"unknown tasks: {', '.join(unknown)}")
    for name, task in entry.tasks.items():
        faults += [f"{name}: {fault}" for fault in _check_runs(task.runs)]
    counts = Counter(len(task.runs) for task in entry.tasks.values())
    modes = [number for number, times in counts.items() if times == max(counts.values())]
    if counts and entry.settings.repeats not in modes:
        faults.append(f"repeats is {entry.settings.repeats}; most tasks have {modes[0]} runs")
    judged = any(run.process is not None for task in entry.tasks.values() for run in task.runs)
    if judged and entry.settings.judge_model is None:
        faults.append("has process scores but names no judge_model")
    if entry.settings.judge_model is not None and not judged:
        faults.append(f"names the judge {entry.settings.judge_model} but has no process score")
    if entry.source == "community" and not (entry.artifacts.url or "").startswith("https://"):
        faults.append("a community entry needs the https address of its artifacts (artifacts.url)")
    return faults


def _check_runs(runs: Sequence[EntryRun]) -> list[str]:
    faults = [] if runs else ["has no run"]
    twice = sorted(name for name, number in Counter(run.run_id for run in runs).items() if number > 1)
    faults += [f"run_id {name!r} occurs twice" for name in twice]
    for run in runs:
        if run.status == "refused" and run.process is not None:
            faults.append(f"{run.run_id}: a refused run has no process score, found {run.process:g}")
        if run.status == "refused" and run.outcome:
            faults.append(f"{run.run_id}: a refused run has no outcome, found {run.outcome:g}")
        elif run.status != "refused" and run.outcome is None:
            faults.append(f"{run.run_id}: status {run.status} needs a number as outcome")
        elif run.status in ("no_deliverable", "crash") and run.outcome:
            faults.append(f"{run.run_id}: status {run.status} means outcome 0, found {run.outcome:g}")
    return faults


# --- ranking ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskLine:
    """One task of an entry."""

    n_runs: int
    n_scored: int
    outcome_mean: float | None
    outcome_runs: list[float]
    process_mean: float | None


@dataclass(frozen=True)
class Standing:
    """One row of the leaderboard, recomputed from the runs of an entry.

    ``outcome_mean`` is the mean of the per-task means over tasks with a scored run; its spread over these tasks is
    given both ways: ``outcome_sd_tasks_population`` (the public leaderboard) and ``outcome_sd_tasks_sample`` (Table 1
    of the paper). ``rank`` is shared by entries whose means agree to the three decimals that are printed.
    """

    rank: int
    id: str
    agent: str
    model: str
    instruction_level: str
    source: str
    n_runs: int
    n_scored: int
    tasks_scored: int
    outcome_mean: float | None
    outcome_sd_tasks_population: float | None
    outcome_sd_tasks_sample: float | None
    process_mean: float | None
    delivered: int
    no_deliverable: int
    crash: int
    refused: int
    median_wall_min: float | None
    median_input_tok_k: float | None
    median_output_tok_k: float | None
    cost_per_run_usd: float | None
    cost_provenance: str | None
    judge_model: str | None
    dataset_revision: str
    tasks: dict[str, TaskLine]


def _of(values: Iterable[float | None], statistic: Any) -> float | None:
    present = [value for value in values if value is not None]
    return float(statistic(present)) if present else None


def standing(entry: Entry, rank: int = 0) -> Standing:
    """Recompute everything that the leaderboard shows of an entry."""
    runs = [run for task in entry.tasks.values() for run in task.runs]
    scored = [run for run in runs if run.scored]
    lines = {name: _task_line(task.runs) for name, task in entry.tasks.items()}
    means = [line.outcome_mean for line in lines.values() if line.outcome_mean is not None]
    states = Counter(run.status for run in runs)
    return Standing(
        rank=rank,
        id=entry.id,
        agent=entry.agent.name,
        model=entry.model.name,
        instruction_level=entry.settings.instruction_level,
        source=entry.source,
        n_runs=len(runs),
        n_scored=len(scored),
        tasks_scored=len(means),
        outcome_mean=_of(means, mean),
        outcome_sd_tasks_population=_of(means, pstdev),
        outcome_sd_tasks_sample=stdev(means) if len(means) > 1 else None,
        process_mean=_of((run.process for run in scored), mean),
        **{status: states[status] for status in STATUSES},
        median_wall_min=_of((run.wall_min for run in scored), median),
        median_input_tok_k=_of((_thousand(run.input_tokens) for run in scored), median),
        median_output_tok_k=_of((_thousand(run.output_tokens) for run in scored), median),
        cost_per_run_usd=_of((run.cost_usd for run in scored), mean),
        cost_provenance=entry.settings.cost_provenance,
        judge_model=entry.settings.judge_model,
        dataset_revision=entry.settings.dataset_revision,
        tasks=lines,
    )


def _thousand(value: float | None) -> float | None:
    return None if value is None else value / 1000


def _task_line(runs: Sequence[EntryRun]) -> TaskLine:
    scored = [run for run in runs if run.scored]
    outcomes = [run.outcome for run in scored if run.outcome is not None]
    return TaskLine(len(runs), len(scored), _of(outcomes, mean), outcomes, _of((run.process for run in scored), mean))


def rank(entries: Iterable[Entry]) -> list[Standing]:
    """Order entries by mean outcome, then by agent and model; an entry without a scored run comes last."""
    found = [standing(entry) for entry in entries]
    found.sort(key=lambda line: (line.outcome_mean is None, -(line.outcome_mean or 0.0), line.agent, line.model))
    printed = [None if line.outcome_mean is None else round(line.outcome_mean, 3) for line in found]
    return [
        Standing(**{**_shallow(line), "rank": printed.index(printed[index]) + 1}) for index, line in enumerate(found)
    ]


def _shallow(line: Standing) -> dict[str, Any]:
    return {name: getattr(line, name) for name in Standing.__dataclass_fields__}


def leaderboard_json(entries: Sequence[Entry]) -> str:
    """Return the leaderboard without a time stamp: the same entries give the same file."""
    return (
        json.dumps(
            {
                "schema_version": 1,
                "updated": max((entry.submitted for entry in entries), default=date.min).isoformat(),
                "entries": [asdict(line) for line in rank(entries)],
            },
            indent=1,
            ensure_ascii=False,
        )
        + "\n"
    )


def leaderboard_markdown(entries: Sequence[Entry], intervals: Mapping[str, tuple[float, float]] | None = None) -> str:
    """Return the leaderboard as a Markdown table; ``intervals`` are 95 % intervals of the mean by entry id."""
    head = ["#", "agent", "model", "instruction", "outcome", "95 % interval", "± sample s.d.", "± population s.d.",
            "tasks", "process", "D/N/C/R", "median min", "$ per run"]  # fmt: skip
    lines = ["# Leaderboard", "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in rank(entries):
        low, high = (intervals or {}).get(row.id, (float("nan"), float("nan")))
        cells = [
            str(row.rank),
            row.agent,
            row.model,
            row.instruction_level,
            _printed(row.outcome_mean),
            f"{low:.3f} to {high:.3f}" if low == low else "–",
            _printed(row.outcome_sd_tasks_sample),
            _printed(row.outcome_sd_tasks_population),
            str(row.tasks_scored),
            _printed(row.process_mean),
            f"{row.delivered}/{row.no_deliverable}/{row.crash}/{row.refused}",
            _printed(row.median_wall_min, 1),
            _printed(row.cost_per_run_usd, 2) + ("*" if row.cost_provenance == "billed" else ""),
        ]
        safe = (cell.replace("<", "&lt;").replace("|", "\\|").replace("\n", " ") for cell in cells)
        lines.append("| " + " | ".join(safe) + " |")
    lines += [
        "",
        "Outcome: mean of the per-task means; s.d. over these tasks. Means over fewer than 16 tasks are over another",
        "set of tasks. Intervals: hierarchical bootstrap over tasks and runs. D/N/C/R: delivered, no deliverable,",
        "crash, refused. * billed; otherwise list price times tokens.",
    ]
    return "\n".join(lines) + "\n"


def _printed(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def intervals(entries: Sequence[Entry]) -> dict[str, tuple[float, float]]:
    """Return the 95 % interval of every entry's mean outcome (hierarchical bootstrap over tasks and runs)."""
    lines = {entry.id: standing(entry).tasks for entry in entries}
    tasks = sorted({name for found in lines.values() for name in found})
    most = max((len(line.outcome_runs) for found in lines.values() for line in found.values()), default=0)
    values = np.full((len(entries), len(tasks), most), np.nan)
    counts = np.zeros((len(entries), len(tasks)), np.intp)
    for row, entry in enumerate(entries):
        for name, line in lines[entry.id].items():
            counts[row, tasks.index(name)] = len(line.outcome_runs)
            values[row, tasks.index(name), : len(line.outcome_runs)] = line.outcome_runs
    drawn = stats.bootstrap(stats.Grid(tuple(lines), tuple(tasks), values, counts))
    found = {entry.id: drawn.interval(row) for row, entry in enumerate(entries)}
    return {name: (interval.low, interval.high) for name, interval in found.items()}


# --- the paper's entries ----------------------------------------------------------------------------------------------


def paper_entries() -> list[Entry]:
    """Return the study's 15 configurations as entries, from the CSV files in ``paper/``.

    Figures of the public leaderboard, BSD-3-Clause, copyright 2026 The BIABench authors (arXiv 2609.34274). The files
    do not hold agent versions.
    """
    runs: dict[str, dict[str, list[EntryRun]]] = {}
    for line in _csv(PAPER / "runs.csv"):
        run = EntryRun(
            run_id=line["run_id"],
            status=cast(RunStatus, line["status"]),
            **{
                name: float(line[name]) if line[name] else None
                for name in ("outcome", "process", "wall_min", "input_tokens", "output_tokens", "cost_usd")
            },
        )
        runs.setdefault(line["entry_id"], {}).setdefault(line["task_id"], []).append(run)
    return [
        Entry(
            schema_version="1",
            id=line["entry_id"],
            source="paper",
            submitted=date(2026, 9, 10),
            submitter=Submitter(name="The BIABench authors", contact="arXiv:2609.34274"),
            agent=AgentInfo.model_validate(
                {
                    "name": line["agent_name"],
                    "version": "not recorded",
                    "adapter": line["agent_adapter"],
                    "class": line["agent_class"],
                }
            ),
            model=ModelInfo(name=line["model_name"], identifier=line["model_identifier"], provider=line["provider"]),
            settings=EntrySettings(
                dataset_revision=line["dataset_revision"],
                instruction_level=cast(Literal["brief", "detailed"], line["instruction_level"]),
                repeats=int(line["repeats"]),
                judge_model=line["judge_model"],
                cost_provenance=cast(Literal["billed", "list_price"], line["cost_provenance"]),
                hardware=line["hardware"],
            ),
            artifacts=Artifacts(url=None),
            tasks={name: EntryTask(runs=found) for name, found in runs[line["entry_id"]].items()},
        )
        for line in _csv(PAPER / "entries.csv")
    ]


def _csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


# --- export -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class About:
    """What an entry says that records do not know."""

    id: str
    submitter: str
    contact: str
    submitted: date
    affiliation: str | None = None
    artifacts_url: str | None = None
    agent_name: str | None = None
    agent_class: Literal["general", "biology"] | None = None
    model_name: str | None = None
    provider: str | None = None
    hardware: str | None = None


def export(rows: Sequence[Row], tasks: Mapping[str, TaskSpec], about: About, configuration: str | None = None) -> Entry:
    """Make an entry of one configuration of a campaign.

    Parameters
    ----------
    rows
        Trials of the campaign.
    tasks
        Task specifications by slug; an entry holds all of them that have published data.
    about
        Who submits, and names.
    configuration
        Which configuration; needed where the campaign holds several.

    Raises
    ------
    EntryError
        The campaign cannot be an entry: demo or other data, a synthetic agent, tasks without a valid run, several
        configurations, data revisions or settings.
    """
    chosen = _one_configuration(rows, configuration)
    records = [row.record for row in chosen if row.record is not None]
    if not records:
        raise EntryError("no trial of this configuration has a record")
    if others := sorted({record.dataset.name for record in records if record.dataset.kind != "full"}):
        raise EntryError(
            f"these are runs on {', '.join(others)}; an entry needs the published data (--dataset=full). Demo data "
            "check an installation and are no benchmark results"
        )
    if any(record.synthetic for record in records):
        raise EntryError(f"{records[0].agent} is a synthetic agent that fixes the scale; it cannot be an entry")
    valid = [row for row in chosen if row.record is not None and row.record.valid]
    held = {row.task for row in valid}
    if absent := [task.dataset_id for slug, task in tasks.items() if slug not in held]:
        raise EntryError(f"tasks without a valid run: {', '.join(absent)}; an entry holds all {len(tasks)} tasks")
    if unknown := sorted(held - set(tasks)):
        raise EntryError(f"tasks that are not part of the benchmark: {', '.join(unknown)}")
    return _entry(valid, len(records) - len(valid), tasks, about)


def _one_configuration(rows: Sequence[Row], configuration: str | None) -> list[Row]:
    names = sorted({row.configuration for row in rows})
    if configuration is None and len(names) > 1:
        raise EntryError(
            f"the campaign holds several configurations; name one with --configuration: {', '.join(names)}"
        )
    chosen = [row for row in rows if configuration in (None, row.configuration)]
    if not chosen:
        raise EntryError(f"configuration {configuration!r}: the campaign holds {', '.join(names) or 'no trial'}")
    return chosen


def _only(values: Iterable[str | None], what: str) -> str | None:
    found = sorted({value for value in values if value is not None})
    if len(found) > 1:
        raise EntryError(f"runs differ in {what}: {', '.join(found)}; an entry has one")
    return found[0] if found else None


def _entry(rows: Sequence[Row], faults: int, tasks: Mapping[str, TaskSpec], about: About) -> Entry:
    records = [row.record for row in rows if row.record is not None]
    views = {row.key: _judged(row.folder) for row in rows}
    runs: dict[str, list[EntryRun]] = {}
    for row in sorted(rows, key=lambda row: (row.task, row.repeat)):
        runs.setdefault(row.task, []).append(_run(row, views[row.key]))
    counts = Counter(map(len, runs.values()))
    first = records[0]
    level = cast(Literal["brief", "detailed"], first.instruction_level)
    commits = {record.provenance.commit for record in records}
    model = first.model or "none"
    return Entry(
        schema_version="1",
        id=about.id,
        source="community",
        submitted=about.submitted,
        submitter=Submitter(name=about.submitter, affiliation=about.affiliation, contact=about.contact),
        agent=AgentInfo.model_validate(
            {
                "name": about.agent_name or first.agent,
                "version": _only((record.agent_version for record in records), "agent version") or "unknown",
                "adapter": first.agent,
                "class": about.agent_class,
            }
        ),
        model=ModelInfo(name=about.model_name or model, identifier=model, provider=about.provider),
        settings=EntrySettings(
            dataset_revision=_only((record.dataset.revision for record in records), "dataset revision") or "unknown",
            instruction_level=level,
            repeats=max(counts, key=lambda number: (counts[number], number)),
            judge_model=_only((getattr(view, "judge", None) for view in views.values()), "judge"),
            evaluator_commit=next(iter(commits)) if len(commits) == 1 else None,
            cost_provenance=_cost_provenance(cost_of(one, row.folder) for one, row in zip(records, rows, strict=True)),
            hardware=about.hardware or _hardware(records),
        ),
        artifacts=Artifacts(url=about.artifacts_url, notes=_notes(records, faults)),
        tasks={tasks[slug].dataset_id: EntryTask(runs=found) for slug, found in runs.items()},
    )


def _judged(folder: Path | None) -> ProcessView | None:
    """Return the latest process view of an attempt; ``None`` where it was not judged."""
    if folder is None or not (folder / "judgements").is_dir():
        return None
    return store.latest(folder)


def _run(row: Row, view: ProcessView | None) -> EntryRun:
    record = row.record
    assert record is not None
    refused = record.status.value == "refused"
    process = None if refused else getattr(view, "published", None)
    status = cast(RunStatus, {"crashed": "crash"}.get(record.status.value, record.status.value))
    usage = record.usage
    return EntryRun(
        run_id=f"r{record.repeat}-{record.started:%Y%m%dT%H%M%SZ}",
        status=status,
        outcome=None if refused or record.score is None else round(record.score.outcome, 4),
        process=None if process is None else round(process, 4),
        wall_min=round(record.wall_seconds / 60, 2),
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=cost_of(record, row.folder).best_usd,
    )


def _cost_provenance(costs: Iterable[Cost]) -> Literal["billed", "list_price"] | None:
    found = {cost.provenance for cost in costs if cost.best_usd is not None}
    return None if not found else "billed" if found == {"billed"} else "list_price"


def _hardware(records: Sequence[TrialRecord]) -> str:
    found = {f"{record.provenance.cpus} CPUs, GPU {', '.join(record.provenance.gpu) or 'none'}" for record in records}
    return "; ".join(sorted(found))


def _notes(records: Sequence[TrialRecord], faults: int) -> str | None:
    """Say what a reader must know and the form has no field for."""
    uncontained = sum(not record.provenance.isolation.get("in_force") for record in records)
    notes = [f"{faults} run(s) with infrastructure faults are left out"] if faults else []
    if uncontained:
        notes.append(f"{uncontained} run(s) without containment: truth was not protected")
    return "; ".join(notes) or None
