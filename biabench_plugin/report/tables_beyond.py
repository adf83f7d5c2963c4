"""Tables that the paper does not have: intervals, differences, reliability, variance, cost, strict, agreement."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np

from biabench_plugin.report import agreement_repeats, stats
from biabench_plugin.report.runs import Run
from biabench_plugin.report.study import Study
from biabench_plugin.report.table import Cell, Column, Table, Value

_MOST_PAIRED = 40  # configurations; with more, only neighbours in rank and pairs with the best are compared
_TIE = 1e-9


def tables(study: Study) -> list[Table]:
    return [
        intervals(study),
        differences(study),
        common_tasks(study),
        reliability(study),
        strict(study),
        variance(study),
        process(study),
        time(study),
        cost(study),
        *agreement_repeats.tables(study),
    ]


def _configuration(study: Study, name: str) -> Cell:
    return Cell(study.labels[name])


NAME = Column("configuration", "Configuration", align="left")


def intervals(study: Study) -> Table:
    """Mean outcome with its interval, and how stable the rank is."""
    grid, drawn = study.real_grid, study.bootstrap
    ranks = drawn.ranks()
    rows: list[tuple[Cell | Value, ...]] = []
    left_out = _ranks_without_a_task(grid)
    for index, name in enumerate(grid.configurations):
        if np.isnan(grid.means[index]):
            continue
        found = drawn.interval(index)
        low, middle, high = np.quantile(ranks[index], [0.025, 0.5, 0.975], method="inverted_cdf")
        lowest, highest = int(left_out[index].min()), int(left_out[index].max())
        sure = len(grid.tasks) > 1
        rows.append(
            (
                _configuration(study, name),
                int((grid.counts[index] > 0).sum()),
                int(grid.counts[index].sum()),
                found.value,
                found.low,
                found.high,
                int(1 + (grid.means > grid.means[index] + _TIE).sum()),
                int(middle) if sure else None,
                Cell(f"{int(low)}–{int(high)}") if sure else None,
                float((ranks[index] == 1).mean()) if sure else None,
                Cell(f"{lowest}–{highest}") if sure else None,
            )
        )
    return Table(
        "intervals",
        "How sure the ranking is",
        f"Hierarchical bootstrap, {stats.RESAMPLES:,} resamples: tasks are drawn with replacement, then runs within "
        "each drawn task; the same tasks for all configurations.",
        (
            NAME,
            Column("tasks", "Tasks"),
            Column("runs", "Runs"),
            Column("outcome", "Outcome", 3),
            Column("low", "95 % low", 3),
            Column("high", "95 % high", 3),
            Column("rank", "Rank"),
            Column("rank_median", "Median rank"),
            Column("rank_interval", "95 % of ranks"),
            Column("first", "P(first)", 2, "Share of resamples in which it has the highest mean"),
            Column("rank_without_a_task", "Rank, one task left out", help="Over leaving out each task in turn"),
        ),
        rows,
        (
            "Intervals from few repeats per task are too narrow in their run part; see docs/statistics.md."
            if grid.counts.max(initial=0) > 1
            else "Nothing was repeated: the intervals hold the choice of tasks, and nothing of run-to-run noise.",
        ),
        "beyond",
    )


def _ranks_without_a_task(grid: stats.Grid) -> np.ndarray:
    """Rank of each configuration when one task is left out: (configurations, tasks)."""
    number = len(grid.tasks)
    if number < 2:
        return np.ones((len(grid.configurations), 1), int)
    columns = []
    for task in range(number):
        means = np.nan_to_num(stats.mean_along(np.delete(grid.task_means, task, axis=1), axis=1), nan=-1.0)
        columns.append(1 + (means[None] > means[:, None] + _TIE).sum(axis=1))
    return np.column_stack(columns)


def pairs(study: Study) -> list[tuple[int, int]]:
    """Return the pairs of configurations to compare, better one first: all, or with many the best and neighbours."""
    usable = [index for index, mean in enumerate(study.real_grid.means) if not np.isnan(mean)]
    if len(usable) <= _MOST_PAIRED:
        return list(combinations(usable, 2))
    neighbours = pairwise(usable)
    return sorted({*neighbours, *((usable[0], other) for other in usable[1:])})


def differences(study: Study) -> Table:
    """Pairwise differences over common tasks, the chance of being better, and what would separate the two."""
    grid, drawn = study.real_grid, study.bootstrap
    rows: list[tuple[Cell | Value, ...]] = []
    for first, second in pairs(study):
        found, better = drawn.difference(first, second)
        if np.isnan(found.value):
            continue
        repeats, tasks = stats.repeats_to_separate(grid, first, second)
        common = int(((grid.counts[first] > 0) & (grid.counts[second] > 0)).sum())
        rows.append(
            (
                _configuration(study, grid.configurations[first]),
                _configuration(study, grid.configurations[second]),
                common,
                found.value,
                found.low,
                found.high,
                better,
                None if np.isnan(found.low) else "yes" if found.low > 0 or found.high < 0 else "no",
                repeats,
                tasks,
            )
        )
    notes = [
        "Repeats: per task, for 80 % power at 5 % with these tasks held fixed. Tasks: as many such tasks would be "
        "needed for the same with the repeats as they are. Intervals are not adjusted for the number of comparisons."
    ]
    if len(study.real_grid.configurations) > _MOST_PAIRED:
        notes.append(f"With more than {_MOST_PAIRED} configurations: neighbours in rank, and every one with the best.")
    return Table(
        "differences",
        "Pairwise differences",
        "Outcome of the first minus the second configuration over the tasks that both have, with its 95 % interval and "
        "the share of resamples in which the first is better.",
        (
            Column("first", "First", align="left"),
            Column("second", "Second", align="left"),
            Column("tasks", "Tasks"),
            Column("difference", "Difference", 3),
            Column("low", "95 % low", 3),
            Column("high", "95 % high", 3),
            Column("better", "P(first better)", 2),
            Column("separated", "Separated"),
            Column("repeats", "Repeats needed"),
            Column("tasks_needed", "Tasks needed"),
        ),
        rows,
        tuple(notes),
        "beyond",
    )


def common_tasks(study: Study) -> Table:
    """Results over the tasks that every configuration has, where these differ from its own."""
    grid = study.real_grid
    grid = grid.of([name for name, mean in zip(grid.configurations, grid.means, strict=True) if not np.isnan(mean)])
    keep = grid.common_tasks()
    missing = [study.task_label(task) for task, kept in zip(grid.tasks, keep, strict=True) if not kept]
    common = grid.of_tasks(keep)
    rows: list[tuple[Cell | Value, ...]] = []
    if missing and common.tasks:
        drawn = stats.bootstrap(common)
        for index, name in enumerate(common.configurations):
            found = drawn.interval(index)
            rows.append(
                (
                    _configuration(study, name),
                    float(grid.means[index]),
                    int((grid.counts[index] > 0).sum()),
                    found.value,
                    found.low,
                    found.high,
                    int(1 + (grid.means > grid.means[index] + _TIE).sum()),
                    int(1 + (common.means > common.means[index] + _TIE).sum()),
                )
            )
    return Table(
        "common_tasks",
        "Over the tasks that every configuration has",
        f"A refused task leaves the mean of those that were refused and stays in the others'. Left out here: "
        f"{', '.join(missing)}.",
        (
            NAME,
            Column("outcome_own", "Own tasks", 3),
            Column("tasks_own", "Tasks"),
            Column("outcome_common", f"{len(common.tasks)} common tasks", 3),
            Column("low", "95 % low", 3),
            Column("high", "95 % high", 3),
            Column("rank_own", "Rank, own"),
            Column("rank_common", "Rank, common"),
        ),
        rows,
        section="beyond",
    )


def reliability(study: Study) -> Table:
    """pass^k, worst and best of k, and how far repeats move."""
    grid = study.real_grid
    most = min(3, grid.values.shape[2])
    solved = [stats.pass_hat(grid, k) for k in range(1, most + 1)]
    worst, best = stats.worst_of(grid, max(most, 1)), stats.worst_of(grid, max(most, 1), best=True)
    rows: list[tuple[Cell | Value, ...]] = []
    for index, name in enumerate(grid.configurations):
        moved, repeated = stats.moving(grid.of([name]))
        if not repeated:
            continue
        ranges = grid.ranges[index]
        rows.append(
            (
                _configuration(study, name),
                *(float(found[index]) for found in solved),
                float(worst[index]),
                float(grid.means[index]),
                float(best[index]),
                float(best[index] - worst[index]),
                float(np.median(ranges[~np.isnan(ranges)])),
                Cell(moved / repeated, f"{moved}/{repeated}"),
            )
        )
    return Table(
        "reliability",
        "Reliability over repeats",
        f"pass^k: chance that k runs of a task all reach {stats.SOLVED:g}. Worst and best: expected lowest and highest "
        f"outcome of {most} runs. Moved: pairs of configuration and task whose repeats differ by more than "
        f"{stats.MOVED:g}.",
        (
            NAME,
            *(Column(f"pass_hat_{k}", f"pass^{k}", 2) for k in range(1, most + 1)),
            Column("worst", f"Worst of {most}", 3),
            Column("mean", "Mean", 3),
            Column("best", f"Best of {most}", 3),
            Column("gap", "Best − worst", 3),
            Column("median_range", "Median range", 3),
            Column("moved", "Moved"),
        ),
        rows,
        section="beyond",
    )


def strict(study: Study) -> Table:
    """The strict score beside the outcome, over runs that have both."""
    rows: list[tuple[Cell | Value, ...]] = []
    both = [run for run in study.runs if run.scored and run.strict is not None]
    outcome, hard = stats.grid(both), stats.grid(both, lambda run: run.strict)
    for name in study.grid.configurations:
        if name not in outcome.configurations:
            continue
        index = outcome.configurations.index(name)
        rows.append(
            (
                _configuration(study, name),
                int((outcome.counts[index] > 0).sum()),
                int(outcome.counts[index].sum()),
                float(outcome.means[index]),
                float(hard.means[index]),
                float(outcome.means[index] - hard.means[index]),
                int(1 + (hard.means > hard.means[index] + _TIE).sum()),
            )
        )
    return Table(
        "strict",
        "Strict score beside outcome",
        "Both over the tasks where truth decides the strict score, in which known shortcuts fail. A large gap says "
        "that the outcome was won by what its definition leaves open.",
        (
            NAME,
            Column("tasks", "Tasks"),
            Column("runs", "Runs"),
            Column("outcome", "Outcome", 3),
            Column("strict", "Strict", 3),
            Column("gap", "Gap", 3),
            Column("rank_strict", "Rank, strict"),
        ),
        rows,
        section="beyond",
    )


_PARTS = ("task", "agent", "interaction", "run")


def variance(study: Study) -> Table:
    """Where the variance of outcome and process lies: the published decomposition and a random-effects one."""
    rows: list[tuple[Cell | Value, ...]] = []
    for score in ("outcome", "process"):
        grid = stats.grid(study.focus, lambda run, score=score: getattr(run, score))  # type: ignore[misc]
        if len(grid.configurations) < 2 or len(grid.tasks) < 2:
            continue
        found = (
            ("sums of squares, task first (figure 3b)", stats.shares(grid, "task")),
            ("sums of squares, agent first", stats.shares(grid, "agent")),
            ("random effects, moments", stats.as_shares(stats.variance_components(grid))),
        )
        for method, parts in found:
            if parts:
                ratio = parts["run"] / parts["agent"] if parts["agent"] else None
                rows.append((score, method, *(100 * parts[part] for part in _PARTS), ratio))
    return Table(
        "variance",
        "Where the variance lies",
        f"Percent of the variance of scored runs, {study.focus_text}. Sums of squares fit one factor after the other "
        "and give interaction all its degrees of freedom; the random-effects estimate takes run-to-run noise out of "
        "the others and uses the tasks that all configurations have.",
        (
            Column("score", "Score", align="left"),
            Column("method", "Method", align="left"),
            Column("task", "Task", 1),
            Column("agent", "Configuration", 1),
            Column("interaction", "Interaction", 1),
            Column("run", "Run to run", 1),
            Column("ratio", "Run / configuration", 1),
        ),
        rows,
        section="beyond",
    )


def process(study: Study) -> Table:
    """Pearson's r of process and outcome, per configuration and over all (figure 2e)."""
    rows: list[tuple[Cell | Value, ...]] = []
    groups = [
        (study.labels[name], [run for run in study.focus if run.configuration == name]) for name in study.focus_names
    ]
    for label, runs in [*groups, ("all", study.focus)]:
        judged = [run for run in runs if run.scored and run.process is not None]
        if len(judged) < 3:
            continue
        sound = [run for run in judged if (run.process or 0) >= 0.5 and (run.outcome or 0) <= 0.3]
        rows.append(
            (
                label,
                len(judged),
                stats.process_and_outcome(judged),
                stats.process_and_outcome(judged, stats.DIFFERS),
                stats.within_task(judged, lambda run: run.process),
                stats.mean([run.process for run in judged]),
                Cell(len(sound) / len(judged), f"{len(sound)}/{len(judged)}"),
            )
        )
    return Table(
        "process",
        "Does the process score tell the outcome?",
        f"Pearson's r over scored runs with a process score, {study.focus_text}. Sound but wrong: process at least 0.5 "
        "and outcome at most 0.3.",
        (
            NAME,
            Column("n", "n"),
            Column("r", "r", 2),
            Column("r_above", "r, outcome > 0.05", 2),
            Column("r_within", "r within task", 2, "After taking the mean of each task out of both"),
            Column("process", "Mean process", 2),
            Column("sound_but_wrong", "Sound but wrong"),
        ),
        rows,
        section="beyond",
    )


def time(study: Study) -> Table:
    """Wall-clock time and outcome: thirds, tiers, longest is best (figure 6)."""
    runs = study.focus
    if not any(run.scored and run.wall_minutes is not None for run in runs):
        return Table("time", "", "", (), [], section="beyond")
    rows: list[tuple[Cell | Value, ...]] = []
    for name, third in zip(("shortest third", "middle third", "longest third"), stats.time_terciles(runs), strict=True):
        rows.append(_time_row(name, third))
    low, high = stats.TIERS
    tiers = (f"outcome below {low:g}", f"outcome {low:g} to {high:g}", f"outcome from {high:g}")
    for name, tier in zip(tiers, stats.outcome_tiers(runs), strict=True):
        rows.append(_time_row(name, tier))
    lenient, strictly, pairs = stats.longest_is_best(runs)
    rho = stats.time_rank_correlation(runs)
    notes = [f"Median within-task rank correlation of time and outcome: {'–' if rho is None else f'{rho:.2f}'}."]
    if pairs:
        notes.append(
            f"The longest run scored best in {lenient} of {pairs} pairs whose runs differ by more than "
            f"{stats.DIFFERS:g} ({strictly} where a tie in time does not count); chance is about one in three."
        )
    return Table(
        "time",
        "Does time spent tell the outcome?",
        f"Thirds are cut within each task by wall-clock time, then pooled; {study.focus_text}.",
        (
            Column("group", "Runs", align="left"),
            Column("n", "n"),
            Column("outcome", "Mean outcome", 3),
            Column("minutes", "Median minutes", 1),
        ),
        rows,
        tuple(notes),
        "beyond",
    )


def _time_row(name: str, runs: Sequence[Run]) -> tuple[Value, ...]:
    outcomes, spent = [run.outcome for run in runs], [run.wall_minutes for run in runs]
    return (name, len(runs), stats.mean(outcomes), stats.median(spent))


def cost(study: Study) -> Table:
    """Cost per run, robust: median beside mean, outliers named and left out."""
    rows: list[tuple[Cell | Value, ...]] = []
    notes = []
    for name, runs in study.by_configuration.items():
        known = [run for run in runs if run.scored and run.cost_usd is not None]
        if not known:
            continue
        costs = [run.cost_usd or 0.0 for run in known]
        bound = stats.far_out(costs)
        outliers = [run for run in known if bound is not None and (run.cost_usd or 0.0) > bound]
        kept = [value for value in costs if bound is None or value <= bound]
        outcome = float(study.grid.means[study.grid.configurations.index(name)])
        middle = stats.median(costs)
        rows.append(
            (
                _configuration(study, name),
                ", ".join(sorted({run.cost_source.replace("_", " ") for run in known if run.cost_source})) or None,
                len(known),
                stats.mean(costs),
                middle,
                stats.mean(kept),
                len(outliers),
                max(costs),
                middle / outcome if middle and outcome else None,
            )
        )
        named = sorted(outliers, key=lambda run: -(run.cost_usd or 0.0))
        notes += [
            f"{study.labels[name]}: {study.task_label(run.task)}, {run.run_id}, $ {run.cost_usd:.2f}" for run in named
        ]
    return Table(
        "cost",
        "Cost per run, robust",
        "US dollars over scored runs with a known cost. An outlier lies above the third quartile plus three times the "
        "interquartile range of its configuration; all are named below.",
        (
            NAME,
            Column("source", "Source", align="left"),
            Column("n", "n"),
            Column("mean", "Mean", 2),
            Column("median", "Median", 2),
            Column("mean_kept", "Mean without outliers", 2),
            Column("outliers", "Outliers"),
            Column("highest", "Highest", 2),
            Column("median_per_outcome", "Median $ per outcome", 2),
        ),
        rows,
        tuple(notes),
        "beyond",
    )
