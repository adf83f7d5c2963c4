"""The paper's tables: profile, capabilities, task by configuration, minutes, suite, usage signals, prices."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from agents.pricing import PriceTable
from biabench_plugin.report import stats
from biabench_plugin.report.runs import PAPER, PAPER_PREFIX, STATES, Run
from biabench_plugin.report.study import ENOUGH, Study
from biabench_plugin.report.table import Cell, Column, Table, Value
from biabench_plugin.taskspec import Difficulty, Subtask, TaskSpec

NAMES = (
    Column("agent", "Harness", align="left"),
    Column("model", "Model", align="left"),
    Column("instruction", "Instruction", align="left"),
)
_MEASURING = (
    "quantification",
    "feature-extraction",
    "statistical-plotting",
    "tracking",
    "colocalization",
    "spot-detection",
)
_NEAR_ZERO = 0.1  # a delivered run below has its closing message looked at
_ABOVE = 0.05

DAGGER = "† fewer than three scored runs."
CENSORED = "‡ at least one run was stopped at the wall-clock limit; the median is right-censored."


def tables(study: Study, table: PriceTable | None = None) -> list[Table]:
    return [profile(study), capabilities(study), by_task(study), minutes(study), signals(study), prices(study, table)]


def names(run: Run) -> tuple[Cell | Value, ...]:
    return (Cell(run.agent, mark=" (synthetic)" if run.synthetic else ""), run.model, run.instruction)


# --- Table 1 -------------------------------------------------------------------------------------------------------


def profile(study: Study) -> Table:
    """Table 1: outcome, process, end states, medians of time and tokens, mean cost, one row per configuration."""
    budgets = {name: _budgets(runs) for name, runs in study.by_configuration.items()}
    differ = len({budget for budget in budgets.values() if budget}) > 1
    rows = [
        _profile_row(study, index, runs, budgets[name], differ=differ)
        for index, (name, runs) in enumerate(study.by_configuration.items())
    ]
    notes = [
        DAGGER,
        "* from the provider's billing, (*) some of the runs; other costs are token counts at list price.",
        "± is the sample standard deviation over tasks; the leaderboard file holds the population one beside it.",
        "Low and high bound the 95 % interval of the mean (hierarchical bootstrap over tasks and runs).",
        study.judges,
        "R runs and infrastructure faults leave every mean; what was not measured is a dash, never 0.",
    ]
    if any(run.configuration.startswith(PAPER_PREFIX) for run in study.runs):
        notes.append(
            "Budgets of the study's rows are those at which a run was stopped; its budget was 240 minutes, and 120 in "
            "most sessions of Kimi K2.6, GLM-5.1 and Claude Opus 5."
        )
    if differ:
        notes.append("! The budgets of the configurations differ: times and time-outs do not compare directly.")
    return Table(
        "table1",
        "Table 1. Profile of every configuration",
        "Outcome is the mean over per-task means, process the mean over scored runs. D/N/C/R counts runs delivered, "
        "without deliverable, crashed, refused. Time and tokens are medians over scored runs, cost is the mean.",
        (
            *NAMES,
            Column("agent_class", "Class", align="left"),
            Column("weights", "Weights", align="left"),
            Column("tasks", "Tasks", help="Tasks with a scored run"),
            Column("outcome", "Outcome", 2),
            Column("outcome_sd_sample", "± s.d.", 2, "Sample standard deviation over tasks"),
            Column("outcome_sd_population", "s.d. (pop.)", 2, "Population standard deviation, as on the leaderboard"),
            Column("low", "95 % low", 2),
            Column("high", "95 % high", 2),
            Column("strict", "Strict", 2, "Score in which known shortcuts fail"),
            Column("process", "Process", 2),
            Column("end_states", "D/N/C/R"),
            Column("faults", "Faults", help="Infrastructure faults and runs that never started"),
            Column("minutes", "Time (min)", 1),
            Column("input_ktok", "Tokens in (10³)", 0),
            Column("output_ktok", "Tokens out (10³)", 1),
            Column("cost_usd", "$/run", 2),
            Column("budget_min", "Budget (min)", align="left"),
        ),
        rows,
        tuple(notes),
    )


def _profile_row(
    study: Study, index: int, runs: Sequence[Run], budget: str | None, *, differ: bool
) -> tuple[Cell | Value, ...]:
    first = study.first[runs[0].configuration]
    grid = study.grid
    scored = [run for run in runs if run.scored]
    means = grid.task_means[index].tolist()
    few = ((grid.counts[index] > 0) & (grid.counts[index] < ENOUGH)).any()
    counts = [sum(run.status == state for run in runs) for state in STATES]
    interval = _interval(study, first.configuration)
    states = "/".join(map(str, counts))
    sources = {run.cost_source for run in scored if run.cost_usd is not None}
    billed = "" if "billed" not in sources else "*" if sources == {"billed"} else "(*)"
    return (
        *names(first),
        first.agent_class,
        first.weights,
        int((grid.counts[index] > 0).sum()),
        Cell(_number(grid.means[index]), mark="†" if few else ""),
        stats.spread(means),
        stats.spread(means, sample=False),
        None if interval is None else interval.low,
        None if interval is None else interval.high,
        _mean_of_task_means(scored, "strict"),
        stats.mean([run.process for run in scored]),
        Cell(states, states),
        sum(run.status in ("infrastructure", "not_run") for run in runs),
        stats.median([run.wall_minutes for run in scored]),
        thousands([run.input_tokens for run in scored]),
        thousands([run.output_tokens for run in scored]),
        Cell(stats.mean([run.cost_usd for run in scored]), mark=billed),
        Cell(budget, mark=" !" if differ and budget else ""),
    )


def _interval(study: Study, configuration: str) -> stats.Interval | None:
    names = study.real_grid.configurations
    return study.bootstrap.interval(names.index(configuration)) if configuration in names else None


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _mean_of_task_means(runs: Sequence[Run], name: str) -> float | None:
    groups = stats.by(runs, lambda run: run.task)
    return stats.mean([stats.mean([getattr(run, name) for run in members]) for members in groups.values()])


def thousands(values: Sequence[float | None]) -> float | None:
    middle = stats.median(values)
    return None if middle is None else middle / 1000


def _budgets(runs: Sequence[Run]) -> str | None:
    """Name the budgets of a configuration; of imported entries only the limits that stopped a run are known."""
    found = sorted({run.budget_minutes for run in runs if run.budget_minutes is not None})
    return ", ".join(f"{budget:g}" for budget in found) or None


# --- Table 2 -------------------------------------------------------------------------------------------------------


def capabilities(study: Study) -> Table:
    """Table 2: what configurations manage, from delivering to knowing when they failed."""
    return Table(
        "table2",
        "Table 2. Capability indicators",
        "Delivered and timed out in percent of runs (refused runs and faults out). Input, tools, segmentation and "
        "quantification are pass rates of decided rubric items. 2D and 3D/5D are mean outcomes. r is Pearson's "
        "correlation of process and outcome over runs with outcome above 0.05. Claims counts, among delivered runs "
        "below 0.1, the closing messages that claim completion.",
        (
            *NAMES,
            Column("delivered_percent", "Delivered", 0),
            Column("timed_out_percent", "Timed out", 0),
            Column("input", "Input", 2),
            Column("tools", "Tools", 2),
            Column("segmentation", "Segm.", 2),
            Column("quantification", "Quant.", 2),
            Column("outcome_2d", "2D", 2),
            Column("outcome_3d", "3D/5D", 2),
            Column("r", "r", 2),
            Column("claims", "Claims"),
            Column("claims_published", "Claims (paper's words)"),
        ),
        [_capability_row(study, runs) for runs in study.by_configuration.values()],
        (
            "A claim is told from the recorded closing message; runs without one leave the count. The second column "
            "applies the paper's word list to the same messages.",
            "A dash: not measured, or no delivered run below 0.1.",
            study.judges,
        ),
    )


def _capability_row(study: Study, runs: Sequence[Run]) -> tuple[Cell | Value, ...]:
    first = study.first[runs[0].configuration]
    counted = [run for run in runs if run.status in ("delivered", "no_deliverable", "crashed")]
    timed = [run for run in counted if run.timed_out is not None]
    flat = [run for run in runs if run.scored and _dimension(study, run) == "2D"]
    solid = [run for run in runs if run.scored and _dimension(study, run) == "3D"]
    return (
        *names(first),
        _percent(sum(run.status == "delivered" for run in counted), len(counted)),
        _percent(sum(bool(run.timed_out) for run in timed), len(timed)),
        _rate(runs, ("input-understanding",)),
        _rate(runs, ("tool-use",)),
        _rate(runs, ("segmentation",)),
        _rate(runs, _MEASURING),
        _mean_of_task_means(flat, "outcome"),
        _mean_of_task_means(solid, "outcome"),
        stats.process_and_outcome(runs, _ABOVE),
        _claims(runs, "claim"),
        _claims(runs, "claim_published"),
    )


def _dimension(study: Study, run: Run) -> str | None:
    return study.specs[run.task].dimension if run.task in study.specs else None


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


def _rate(runs: Sequence[Run], sections: Sequence[str]) -> float | None:
    pairs = [run.sections[name] for run in runs for name in sections if name in run.sections]
    decided = sum(number for _passed, number in pairs)
    return sum(passed for passed, _decided in pairs) / decided if decided else None


def _claims(runs: Sequence[Run], name: str) -> Cell:
    low = [run for run in runs if run.status == "delivered" and run.outcome is not None and run.outcome < _NEAR_ZERO]
    said = [value for run in low if (value := getattr(run, name)) not in (None, "unknown")]
    if not said:
        return Cell(None)
    claimed = sum(value == "claimed" for value in said)
    return Cell(claimed / len(said), f"{claimed}/{len(said)}")


# --- Tables 3 and 4 ------------------------------------------------------------------------------------------------


def _task_columns(study: Study, configurations: Sequence[str], digits: int) -> tuple[Column, ...]:
    return (
        Column("difficulty", "Difficulty", align="left"),
        Column("task", "Task", align="left"),
        *(Column(name, study.labels[name], digits) for name in configurations),
    )


def _task_names(study: Study, task: str) -> tuple[Value, Value]:
    spec = study.specs.get(task)
    return (spec.difficulty.value if spec else None, study.task_label(task))


def by_task(study: Study) -> Table:
    """Table 3: mean outcome per task and configuration, with † and R."""
    grid = study.grid
    groups = stats.by(study.runs, lambda run: (run.configuration, run.task))
    rows: list[tuple[Cell | Value, ...]] = []
    for column, task in enumerate(grid.tasks):
        cells: list[Cell | Value] = []
        for row, name in enumerate(grid.configurations):
            number = int(grid.counts[row, column])
            refused = any(run.status == "refused" for run in groups.get((name, task), ()))
            if number:
                mark = "†" if number < ENOUGH else ""
                cells.append(Cell(float(grid.task_means[row, column]), mark=mark))
            else:
                cells.append(Cell(None, "R" if refused else None))
        rows.append((*_task_names(study, task), *cells))
    if rows:
        rows.append((None, "Mean over tasks", *(_number(mean) for mean in grid.means)))
    return Table(
        "table3",
        "Table 3. Outcome by task and configuration",
        "Mean over the scored runs of each configuration on each task. Tasks are grouped by difficulty, within a group "
        "by mean outcome.",
        _task_columns(study, grid.configurations, 2),
        rows,
        (DAGGER, "R: every run was refused by the provider; the task leaves that configuration's mean."),
    )


def minutes(study: Study) -> Table:
    """Table 4: median wall-clock minutes per task and configuration of the comparison of agents, with ‡."""
    groups = stats.by(study.focus, lambda run: (run.configuration, run.task))
    rows: list[tuple[Cell | Value, ...]] = [
        (*_task_names(study, task), *(_minutes(groups.get((name, task), [])) for name in study.focus_names))
        for task in study.tasks
    ]
    totals = stats.by(study.focus, lambda run: run.configuration)
    if rows:
        scored = [[run for run in totals[name] if run.scored] for name in study.focus_names]
        whole = (stats.median([run.wall_minutes for run in runs]) for runs in scored)
        rows.append((None, "All tasks", *whole))
    return Table(
        "table4",
        "Table 4. Wall-clock minutes by task",
        f"Median over runs, {study.focus_text}; the bottom row is the median over all scored runs.",
        _task_columns(study, study.focus_names, 0),
        rows,
        (CENSORED,),
    )


def _minutes(runs: Sequence[Run]) -> Cell:
    timed = any(run.timed_out for run in runs)
    return Cell(stats.median([run.wall_minutes for run in runs]), mark="‡" if timed else "")


# --- Tables A1 and A2 ----------------------------------------------------------------------------------------------


def suite(tasks: Mapping[str, TaskSpec]) -> list[Table]:
    """Tables A1 and A2: what the tasks are, what they ask for and what scores them."""
    ranks = {difficulty: rank for rank, difficulty in enumerate(Difficulty)}
    ordered = sorted(tasks.values(), key=lambda task: (ranks[task.difficulty], task.slug))
    if not ordered:
        return []
    numbers = {subtask: f"S{number}" for number, subtask in enumerate(Subtask, start=1)}
    legend = ", ".join(f"{short} {subtask.value.replace('_', ' ')}" for subtask, short in numbers.items())
    matrix = Table(
        "tableA1",
        "Table A1. The tasks and their analysis steps",
        f"Input data in MB; {legend}.",
        (
            Column("difficulty", "Difficulty", align="left"),
            Column("task", "Task", align="left"),
            Column("modality", "Modality", align="left"),
            Column("dimension", "Dimension", align="left"),
            Column("temporal", "Temporal", align="left"),
            Column("input_mb", "Data (MB)", 0),
            *(Column(subtask.value, short) for subtask, short in numbers.items()),
        ),
        [
            (
                task.difficulty.value,
                task.label,
                task.modality.value.replace("_", " "),
                task.dimension,
                task.temporal,
                task.input_size_mb,
                *(Cell(int(subtask in task.subtasks), "•" if subtask in task.subtasks else "") for subtask in Subtask),
            )
            for task in ordered
        ],
        section="suite",
    )
    outputs = Table(
        "tableA2",
        "Table A2. Required outputs and scoring",
        "What a submission must hold and what scores it; a submission without a matching file scores 0.",
        (
            Column("difficulty", "Difficulty", align="left"),
            Column("task", "Task", align="left"),
            Column("channels", "Channels"),
            Column("outputs", "Output", align="left"),
            Column("metric", "Outcome", align="left"),
            Column("tiebreak", "Tie-break", align="left"),
            Column("accession", "Source", align="left"),
        ),
        [
            (
                task.difficulty.value,
                task.label,
                task.channels,
                ", ".join(item.patterns[0] for item in task.deliverables if item.required),
                task.outcome.kind.replace("_", " "),
                (task.outcome.tiebreak or "").replace("_", " ") or None,
                task.source.accession,
            )
            for task in ordered
        ],
        section="suite",
    )
    return [matrix, outputs]


# --- Tables F1 and F2 ----------------------------------------------------------------------------------------------


def signals(study: Study) -> Table:
    """Table F1: which usage signals each configuration gives, and their medians."""
    rows = []
    for runs in study.by_configuration.values():
        first = study.first[runs[0].configuration]
        ran = [run for run in runs if run.status not in ("infrastructure", "not_run")]
        totals = [
            run.input_tokens + run.output_tokens
            for run in ran
            if run.input_tokens is not None and run.output_tokens is not None
        ]
        rows.append(
            (
                *names(first),
                len(ran),
                _share(ran, "wall_minutes"),
                _share(ran, "input_tokens"),
                _share(ran, "cached_tokens"),
                _share(ran, "reasoning_tokens"),
                _share(ran, "tool_calls"),
                _share(ran, "executed_blocks"),
                _share(ran, "cost_usd"),
                "; ".join(sorted({run.usage_source for run in ran if run.usage_source})) or None,
                "; ".join(sorted({run.effort for run in ran if run.effort})) or None,
                stats.median([run.wall_minutes for run in ran]),
                thousands(totals),
                stats.median([run.tool_calls for run in ran]),
            )
        )
    return Table(
        "tableF1",
        "Table F1. Usage signals",
        "Share of runs for which a configuration gives each signal, and medians over the runs that give it. Token "
        "medians are input, with cached reads, plus output. Tool calls mean different things per harness and are not "
        "compared.",
        (
            *NAMES,
            Column("n", "n"),
            Column("time", "Time", 2),
            Column("tokens", "Tokens", 2),
            Column("cached", "Cached", 2),
            Column("reasoning", "Reasoning", 2),
            Column("tool_calls", "Tool calls", 2),
            Column("executed", "Exec.", 2, "Blocks of code that the agent ran"),
            Column("cost", "Cost", 2),
            Column("source", "Source", align="left"),
            Column("effort", "Effort", align="left"),
            Column("median_minutes", "Median min", 1),
            Column("median_ktok", "Median tokens (10³)", 0),
            Column("median_tool_calls", "Median calls", 0),
        ),
        rows,
    )


def _share(runs: Sequence[Run], name: str) -> float | None:
    """Return the share of runs that give a signal; ``None`` where what was read could not say it."""
    having = sum(getattr(run, name) is not None for run in runs)
    said = having or all(run.source == "record" for run in runs)
    return having / len(runs) if runs and said else None


@cache
def price_list() -> dict[str, tuple[float, float, float]]:
    """Return list prices in US dollars per million tokens (input, cached input, output) by model identifier."""
    with (PAPER / "prices.csv").open(encoding="utf-8", newline="") as stream:
        return {
            row["model_key"]: tuple(  # type: ignore[misc]
                float(row[f"{kind}_usd_per_mtok"]) for kind in ("input", "cached_input", "output")
            )
            for row in csv.DictReader(stream)
        }


@cache
def _identifiers() -> dict[str, str]:
    with (PAPER / "entries.csv").open(encoding="utf-8", newline="") as stream:
        return {row["model_name"]: row["model_identifier"] for row in csv.DictReader(stream)}


def price(model: str) -> tuple[str, tuple[float, float, float]] | None:
    """Return the key and prices of a model: the longest key that its identifier contains."""
    name = _identifiers().get(model, model).lower()
    keys = sorted((key for key in price_list() if key in name), key=len)
    return (keys[-1], price_list()[keys[-1]]) if keys else None


def _listed(model: str, table: PriceTable) -> tuple[str, tuple[float, float | None, float]] | None:
    found = table.find(_identifiers().get(model, model))
    return None if found is None else (model, (found.input, found.cached, found.output))


def prices(study: Study, table: PriceTable | None = None) -> Table:
    """Table F2: the models that ran, their identifiers and list prices: the paper's, or those of a table."""
    rows = []
    for model in sorted({run.model for run in study.runs if run.model}):
        found = price(model) if table is None else _listed(model, table)
        weights = next(run.weights for run in study.runs if run.model == model)
        rows.append((model, _identifiers().get(model, model), weights, *(found[1] if found else (None, None, None))))
    read = (
        "as the paper's authors read them on 2026-08-28"
        if table is None
        else f"by the table of {table.date.isoformat()} ({table.source}); runs that are no records keep their cost"
    )
    return Table(
        "tableF2",
        "Table F2. Models and list prices",
        f"US dollars per million tokens, {read}. A model without a price has only the cost that its harness or "
        "provider stated.",
        (
            Column("model", "Model", align="left"),
            Column("identifier", "Identifier", align="left"),
            Column("weights", "Weights", align="left"),
            Column("input", "Input", 3),
            Column("cached", "Cached input", 3),
            Column("output", "Output", 3),
        ),
        rows,
    )
