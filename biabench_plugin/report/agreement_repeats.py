"""How alike the deliverables of an agent's repeats are, and whether that tells the outcome. Needs no truth.

The comparison itself is made by :mod:`evaluators.agreement` and kept in ``CAMPAIGN/agreement.json``; a report reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.figure import Figure as Canvas
from pydantic import BaseModel, ConfigDict, ValidationError

from biabench_plugin.datasets import Dataset, DatasetError, folder_digest
from biabench_plugin.records import write_atomically
from biabench_plugin.report import stats
from biabench_plugin.report.figure import Figure, canvas, colour, legend, marker, rules
from biabench_plugin.report.rows import from_campaign
from biabench_plugin.report.runs import Run, RunError, load_runs
from biabench_plugin.report.study import Study
from biabench_plugin.report.table import Cell, Column, Table, Value, shown
from biabench_plugin.taskspec import TaskSpec
from evaluators import TruthError, evaluator_version
from evaluators.bounded import agreement_bounded

FILE = "agreement.json"
SUBMISSION = "submission"
_MOST_LINES = 16


class Pair(BaseModel):
    """Two repeats and how alike their deliverables are; ``agreement`` is ``None`` where they cannot be compared.

    ``first`` and ``second`` are the runs' folders below the campaign; ``digest`` covers both submissions and the
    evaluator, so that a pair is compared again only when one of them changed.
    """

    model_config = ConfigDict(extra="forbid")

    dataset: str
    configuration: str
    task: str
    first: str
    second: str
    agreement: float | None
    problem: str | None
    digest: str


class Agreements(BaseModel):
    """All compared pairs of a campaign."""

    model_config = ConfigDict(extra="forbid")

    schema_version: Literal[1] = 1
    pairs: list[Pair]


def read_agreements(campaign: Path) -> list[Pair]:
    """Return the compared pairs of a campaign; empty where none were compared."""
    path = campaign / FILE
    if not path.is_file():
        return []
    try:
        return Agreements.model_validate_json(path.read_bytes()).pairs
    except ValidationError as error:
        raise RunError(f"{path}: is no file of agreements: {error.errors()[0]['msg']}") from error


def compare_repeats(
    campaign: Path, tasks: Mapping[str, TaskSpec], progress: Callable[[Pair], None] = lambda _pair: None
) -> list[Pair]:
    """Compare every two delivered repeats of a configuration on a task, in both directions, and keep the results.

    Raises
    ------
    RunError
        ``agreement.json`` is there and damaged.
    """
    known = {pair.digest: pair for pair in read_agreements(campaign)}
    datasets = {row.folder: row.record.dataset.name for row in from_campaign(campaign) if row.record is not None}
    pairs: list[Pair] = []
    runs = [run for run in load_runs([campaign], tasks) if run.status == "delivered" and run.task in tasks]
    for members in stats.by(runs, lambda run: (run.dataset, run.configuration, run.task)).values():
        ordered = sorted((run for run in members if run.folder is not None), key=lambda run: str(run.folder))
        for first, second in combinations(ordered, 2):
            pair = _compare(campaign, first, second, tasks[first.task], datasets, known)
            pairs.append(pair)
            progress(pair)
            write_atomically(campaign / FILE, Agreements(pairs=pairs).model_dump_json(indent=1) + "\n")
    return pairs


def _compare(
    campaign: Path,
    first: Run,
    second: Run,
    task: TaskSpec,
    datasets: Mapping[Path | None, str],
    known: Mapping[str, Pair],
) -> Pair:
    folders = [run.folder / SUBMISSION for run in (first, second) if run.folder is not None]
    version = evaluator_version(task.outcome.kind)
    digest = "+".join([*(folder_digest(folder)[:16] for folder in folders), f"{task.outcome.kind}-{version}"])
    names = [folder.parent.relative_to(campaign).as_posix() for folder in folders]
    about = {"dataset": first.dataset, "configuration": first.configuration, "task": task.slug}
    where = {"first": names[0], "second": names[1], "digest": digest}
    if digest in known:
        return known[digest].model_copy(update={**about, **where})
    try:
        data = Dataset.parse(datasets[first.folder]).locate(task)
        if data is None:
            raise DatasetError(f"dataset {datasets[first.folder]} does not hold the task")
    except DatasetError as error:
        return Pair(**about, **where, agreement=None, problem=str(error))
    found, problems = [], []
    for one, other in (folders, folders[::-1]):
        try:
            found.append(agreement_bounded(task.outcome, task.deliverables, one, other, data.input))
        except TruthError as error:
            problems.append(str(error))
    value = float(np.mean(found)) if found else None
    return Pair(**about, **where, agreement=value, problem="; ".join(problems) or None)


# --- views ---------------------------------------------------------------------------------------------------------


def _campaigns(runs: Iterable[Run]) -> set[Path]:
    """Return the campaign folders that hold the runs: five levels above an attempt."""
    return {run.folder.parents[4] for run in runs if run.folder is not None and len(run.folder.parents) > 4}


def _pairs(study: Study) -> list[tuple[Run, Run, float]]:
    """Return the compared pairs of a study's runs that have an agreement."""
    by_folder = {run.folder: run for run in study.real if run.folder is not None}
    found = []
    for campaign in sorted(_campaigns(study.real)):
        for pair in read_agreements(campaign):
            first, second = by_folder.get(campaign / pair.first), by_folder.get(campaign / pair.second)
            if first is not None and second is not None and pair.agreement is not None:
                found.append((first, second, pair.agreement))
    return found


def run_agreement(pairs: Sequence[tuple[Run, Run, float]]) -> dict[tuple[str, str, str, str], float]:
    """Return, per run, the mean agreement with the other repeats of its configuration on its task."""
    values: dict[tuple[str, str, str, str], list[float]] = {}
    for first, second, value in pairs:
        for run in (first, second):
            values.setdefault(run.key, []).append(value)
    return {key: float(np.mean(found)) for key, found in values.items()}


def most_typical(runs: Sequence[Run], agreement: Mapping[tuple[str, str, str, str], float]) -> Iterator[list[Run]]:
    """Yield the repeats of every pair of configuration and task, the one most like the others first."""
    known = [run for run in runs if run.key in agreement and run.scored]
    for members in stats.by(known, lambda run: (run.configuration, run.task)).values():
        yield sorted(members, key=lambda run: -agreement[run.key])


def tables(study: Study) -> list[Table]:
    """How alike repeats are, per configuration, and whether it tells the outcome."""
    pairs = _pairs(study)
    agreement = run_agreement(pairs)
    runs = [run for run in study.real if run.key in agreement and run.scored]
    rows: list[tuple[Cell | Value, ...]] = []
    groups = stats.by(runs, lambda run: run.configuration)
    named = [(study.labels[name], groups[name]) for name in study.grid.configurations if name in groups]
    for label, members in [*named, ("all", runs)] if runs else []:
        kept = {run.key for run in members}
        own = [value for first, _second, value in pairs if first.key in kept]
        choices = list(most_typical(members, agreement))
        rows.append(
            (
                label,
                len(members),
                len(own),
                stats.mean(own),
                stats.mean([run.outcome for run in members]),
                stats.pearson([agreement[run.key] for run in members], [run.outcome or 0.0 for run in members]),
                stats.within_task(members, lambda run: agreement.get(run.key)),
                stats.mean([choice[0].outcome for choice in choices]),
                stats.mean([stats.mean([run.outcome for run in choice]) for choice in choices]),
                stats.mean([max(run.outcome or 0.0 for run in choice) for choice in choices]),
            )
        )
    return [
        Table(
            "agreement",
            "Do repeats agree, and does that tell the outcome?",
            "Agreement: the task's own metric between the deliverables of two repeats, each in turn in the place of "
            "truth. It needs no truth. r compares each run's mean agreement with the other repeats with its outcome.",
            (
                Column("configuration", "Configuration", align="left"),
                Column("runs", "Runs"),
                Column("pairs", "Pairs"),
                Column("agreement", "Agreement", 3),
                Column("outcome", "Outcome", 3),
                Column("r", "r", 2),
                Column("r_within", "r within task", 2),
                Column("typical", "Most typical run", 3, "Outcome of the repeat most like the others"),
                Column("mean", "Any run", 3),
                Column("best", "Best run", 3),
            ),
            rows,
            ("Repeats can agree on what is wrong: agreement is reliability, not correctness.",),
            "beyond",
        )
    ]


def figure(study: Study) -> Figure | None:
    """Agreement of each run with its repeats, against its outcome."""
    agreement = run_agreement(_pairs(study))
    runs = [run for run in study.real if run.key in agreement and run.scored]
    if len(runs) < 3:
        return None
    names = [name for name in study.grid.configurations if any(run.configuration == name for run in runs)]
    r = stats.pearson([agreement[run.key] for run in runs], [run.outcome or 0.0 for run in runs])
    within = stats.within_task(runs, lambda run: agreement.get(run.key))

    def draw() -> Canvas:
        made, axes = canvas(7.2, 4.4)
        for place, name in enumerate(names[:_MOST_LINES]):
            own = [run for run in runs if run.configuration == name]
            x, y = [agreement[run.key] for run in own], [run.outcome or 0.0 for run in own]
            axes.scatter(x, y, s=22, color=colour(place), marker=marker(place), alpha=0.8, label=study.labels[name])
        axes.plot([0, 1], [0, 1], "--", color="#5c6a70", linewidth=0.8)
        axes.set(xlabel="agreement with the other repeats", ylabel="outcome", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        rules(axes, "both")
        legend(axes, fontsize=7)
        return made

    rows: list[tuple[Cell | Value, ...]] = [
        (study.labels[run.configuration], study.task_label(run.task), agreement[run.key], run.outcome) for run in runs
    ]
    columns = (
        Column("configuration", "Configuration", align="left"),
        Column("task", "Task", align="left"),
        Column("agreement", "Agreement", 4),
        Column("outcome", "Outcome", 4),
    )
    return Figure(
        "agreement",
        "Agreement of repeats against outcome",
        f"Each of {len(runs)} runs: mean agreement with the other repeats of its configuration on its task, by the "
        "task's own metric, against its outcome. Agreement needs no truth.",
        f"Scatter plot of {len(runs)} runs: r = {shown(r, 2)}, within tasks {shown(within, 2)}.",
        draw,
        Table("agreement-data", "", "", columns, rows),
    )


def summary(pairs: Sequence[Pair]) -> str:
    """Return a line for the terminal."""
    known = [pair.agreement for pair in pairs if pair.agreement is not None]
    text = f"{len(pairs)} pairs of repeats compared"
    if known:
        text += f", mean agreement {np.mean(known):.3f}"
    return text + (f"; {len(pairs) - len(known)} cannot be compared" if len(known) < len(pairs) else "")
