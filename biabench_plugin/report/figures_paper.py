"""The paper's figures on outcome: suite, heat map, cost, instruction, repeats, process, ranges, variance, subtasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

from biabench_plugin.report import stats
from biabench_plugin.report.figure import (
    GRID,
    INK,
    SEQUENTIAL,
    SOFT,
    Figure,
    canvas,
    colour,
    legend,
    marker,
    plain_log,
    rules,
)
from biabench_plugin.report.runs import Run
from biabench_plugin.report.study import Study, input_size, strata
from biabench_plugin.report.table import Cell, Column, Table, Value, shown
from biabench_plugin.taskspec import Subtask, TaskSpec

_MOST_COLUMNS = 30  # configurations in a heat map; the best ones are shown
_MOST_LINES = 16  # configurations named in a legend or on an axis
_MOST_PANELS = 6  # pairs of instruction levels, one panel each
_ARROW = 0.05  # change of a task's mean that is drawn as an arrow
_SOUND, _WRONG = 0.5, 0.3
_SAME = 0.005  # printed alike: boxed jointly


def figures(study: Study) -> list[Figure]:
    names = study.real_grid.configurations
    made = (
        heat_map(study, study.focus_names),
        heat_map(study, names, every=True) if len(study.focus_names) < len(names) else None,
        cost(study),
        instruction(study),
        repeats(study),
        process(study),
        ranges(study),
        variance(study),
        subtasks(study),
    )
    return [figure for figure in made if figure is not None]


# --- Figure 1c -----------------------------------------------------------------------------------------------------


def suite(tasks: Mapping[str, TaskSpec]) -> list[Figure]:
    """Figure 1c: how diverse the tasks are."""
    if not tasks:
        return []
    specs = list(tasks.values())
    parts: dict[str, Counter[str]] = {
        "modality": Counter(task.modality.value.replace("_", " ") for task in specs),
        "organism": Counter(
            task.organism.split("(")[0].split(",")[0].strip()
            for task in specs
            if not task.organism.startswith("none")  # simulated, or no cells
        ),
        "dimension": Counter(f"{task.dimension} {task.temporal}" for task in specs),
        "difficulty": Counter(task.difficulty.value for task in specs),
        "subtask": Counter({subtask.value.replace("_", " "): 0 for subtask in Subtask}),
        "input size": Counter(input_size(task) for task in specs),
    }
    for task in specs:
        parts["subtask"].update(subtask.value.replace("_", " ") for subtask in task.subtasks)
    parts["subtask"] = +parts["subtask"]

    def draw() -> Canvas:
        made, axes = canvas(9.5, 5.2, 2, 3)
        for place, (name, counts) in zip(axes.flat, parts.items(), strict=True):
            ordered = counts.most_common()[::-1]
            place.barh([label for label, _count in ordered], [count for _label, count in ordered], color=colour(0))
            for height, (_label, count) in enumerate(ordered):
                place.text(count + 0.1, height, str(count), va="center", color=SOFT)
            place.set_title(name)
            place.set_xticks([])
            place.spines["bottom"].set_visible(False)
        return made

    rows: list[tuple[Cell | Value, ...]] = [
        (kind, name, number) for kind, counts in parts.items() for name, number in counts.most_common()
    ]
    total = sum(task.input_size_mb for task in specs) / 1000
    columns = (Column("kind", "Kind", align="left"), Column("value", "Value", align="left"), Column("tasks", "Tasks"))
    return [
        Figure(
            "figure1c",
            "Figure 1c. Diversity of the tasks",
            f"{len(specs)} tasks, {total:.1f} GB of input data. A task counts for every subtask it contains.",
            f"Bar charts of the {len(specs)} tasks: "
            + "; ".join(
                f"{kind}: {', '.join(f'{name} {number}' for name, number in counts.most_common(4))}"
                for kind, counts in parts.items()
            )
            + ".",
            draw,
            Table("figure1c-data", "", "", columns, rows),
        )
    ]


# --- Figures 2a and 3a: heat maps ----------------------------------------------------------------------------------


def best(means: np.ndarray) -> np.ndarray:
    """Mark, per task, the configurations whose mean is printed like the highest: (configurations, tasks)."""
    highest = np.nanmax(np.where(np.isnan(means), -np.inf, means), axis=0)
    marked: np.ndarray = np.round(means, 2) >= np.round(highest, 2)[None]
    return marked


def heat_map(study: Study, names: Sequence[str], *, every: bool = False) -> Figure | None:
    """Figure 2a: outcome by task and configuration, the best boxed, refusals marked R."""
    grid = study.grid.of(names[:_MOST_COLUMNS])
    if not len(grid.tasks) or np.isnan(grid.means).all():
        return None
    refused = {(run.configuration, run.task) for run in study.runs if run.status == "refused"}
    boxed = best(grid.task_means) if len(grid.configurations) > 1 else np.zeros(grid.counts.shape, bool)

    def draw() -> Canvas:
        values = np.column_stack([grid.task_means, grid.means]).T
        made, axes = _heat_canvas(study, grid, values, [*map(study.task_label, grid.tasks), "mean over tasks"])
        for column, name in enumerate(grid.configurations):
            for row, task in enumerate(grid.tasks):
                if not grid.counts[column, row] and (name, task) in refused:
                    axes.text(column, row, "R", ha="center", va="center", color=INK, fontsize=8)
                if boxed[column, row]:
                    box = Rectangle(
                        (column - 0.47, row - 0.45), 0.94, 0.9, fill=False, edgecolor="#D55E00", linewidth=1.6
                    )
                    axes.add_patch(box)
        for row in (*_level_ends(study, grid.tasks), len(grid.tasks)):
            axes.axhline(row - 0.5, color="white", linewidth=3)
        return made

    leader = study.labels[grid.configurations[0]]
    level = stats.mean_along(grid.task_means, axis=0)
    hardest = ", ".join(study.task_label(grid.tasks[index]) for index in np.argsort(level)[:2])
    dropped = len(names) - len(grid.configurations)
    more = f" {dropped} further configurations are in Table 3." if dropped else ""
    return Figure(
        name := "by_task_all" if every else "figure2a",
        "Outcome by task, all configurations" if every else "Figure 2a. Outcome by task",
        "Mean over scored runs; an orange box marks the best configuration of a task (those printed alike share it), R "
        f"a task whose runs were refused. Tasks by difficulty, configurations by mean outcome.{more}",
        f"Heat map of {len(grid.tasks)} tasks by {len(grid.configurations)} configurations. Highest mean: {leader} "
        f"with {grid.means[0]:.2f}. Lowest scores on {hardest}.",
        draw,
        _grid_table(study, grid, grid.task_means, f"{name}-data"),
    )


def _level_ends(study: Study, tasks: Sequence[str]) -> list[int]:
    """Return the rows at which a new difficulty begins."""
    levels = [study.specs[task].difficulty if task in study.specs else None for task in tasks]
    return [row for row in range(1, len(levels)) if levels[row] != levels[row - 1]]


def _heat_canvas(
    study: Study, grid: stats.Grid, values: np.ndarray, labels: Sequence[str], most: float = 1.0
) -> tuple[Canvas, Axes]:
    made, axes = canvas(2.6 + 0.5 * values.shape[1], 1.9 + 0.26 * values.shape[0])
    image = axes.imshow(values, cmap=SEQUENTIAL, vmin=0, vmax=most, aspect="auto")
    small = values.shape[1] > 18
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            if not np.isnan(value := values[row, column]):
                dark = value < 0.55 * most
                axes.text(
                    column,
                    row,
                    f"{value:.2f}".removeprefix("0") if small else f"{value:.2f}",
                    ha="center",
                    va="center",
                    fontsize=6 if small else 7,
                    color="white" if dark else "black",
                )
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xticks(
        range(len(grid.configurations)), [study.labels[name] for name in grid.configurations], rotation=40, ha="right"
    )
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    bar = made.colorbar(image, ax=axes, shrink=0.5, aspect=14)
    bar.outline.set_visible(False)
    return made, axes


def _grid_table(study: Study, grid: stats.Grid, values: np.ndarray, name: str) -> Table:
    columns = (
        Column("task", "Task", align="left"),
        *(Column(key, study.labels[key], 3) for key in grid.configurations),
    )
    rows: list[tuple[Cell | Value, ...]] = [
        (study.task_label(task), *(None if np.isnan(value) else float(value) for value in values[:, index]))
        for index, task in enumerate(grid.tasks)
    ]
    return Table(name, "", "", columns, rows)


def ranges(study: Study) -> Figure | None:
    """Figure 3a: largest minus smallest repeat of every pair, with medians in the margins."""
    grid = study.focus_grid.of(study.focus_names[:_MOST_COLUMNS])
    moved, pairs = stats.moving(grid)
    if not pairs:
        return None
    values = grid.ranges
    by_agent = np.array([np.median(row[~np.isnan(row)]) if (~np.isnan(row)).any() else np.nan for row in values])
    by_task = np.array([np.median(row[~np.isnan(row)]) if (~np.isnan(row)).any() else np.nan for row in values.T])

    def draw() -> Canvas:
        whole = np.full((len(grid.tasks) + 1, len(grid.configurations) + 1), np.nan)
        whole[:-1, :-1], whole[-1, :-1], whole[:-1, -1] = values.T, by_agent, by_task
        made, axes = _heat_canvas(study, grid, whole, [*map(study.task_label, grid.tasks), "median"])
        names = [*(study.labels[name] for name in grid.configurations), "median"]
        axes.set_xticks(range(len(names)), names, rotation=40, ha="right")
        axes.axhline(len(grid.tasks) - 0.5, color="white", linewidth=3)
        axes.axvline(len(grid.configurations) - 0.5, color="white", linewidth=3)
        return made

    return Figure(
        "figure3a",
        "Figure 3a. Range of outcome over repeats",
        f"Highest minus lowest outcome of the repeats of each pair, {study.focus_text}; margins are medians. Empty: "
        f"fewer than two scored runs. {moved} of {pairs} pairs ({100 * moved / pairs:.0f} %) moved by more than "
        f"{stats.MOVED:g}.",
        f"Heat map of ranges over repeats. {moved} of {pairs} pairs moved by more than {stats.MOVED:g}; medians by "
        f"configuration {np.nanmin(by_agent):.2f} to {np.nanmax(by_agent):.2f}, by task {np.nanmin(by_task):.2f} to "
        f"{np.nanmax(by_task):.2f}.",
        draw,
        _grid_table(study, grid, values, "figure3a-data"),
    )


# --- Figure 2b -----------------------------------------------------------------------------------------------------


def cost(study: Study) -> Figure | None:
    """Figure 2b: mean outcome against mean cost, with the Pareto front; detailed instructions are left out."""
    points: list[tuple[str, float, float]] = []
    for index, name in enumerate(study.real_grid.configurations):
        runs = [run for run in study.by_configuration[name] if run.scored]
        spent = stats.mean([run.cost_usd for run in runs])
        mean = float(study.real_grid.means[index])
        if spent and not np.isnan(mean) and study.first[name].instruction == "brief":
            points.append((name, spent, mean))
    if len(points) < 2:
        return None
    front = stats.pareto([(spent, mean) for _name, spent, mean in points])

    def draw() -> Canvas:
        made, axes = canvas(8.2, 4.2)
        for place, (name, spent, mean) in enumerate(points):
            shape = {"open": "o", "closed": "s"}.get(study.first[name].weights or "", "D")
            on_front = place in front
            axes.scatter(
                spent,
                mean,
                marker=shape,
                s=48,
                color=colour(0 if on_front else 1),
                edgecolor=INK,
                linewidth=0.5,
                zorder=3,
            )
            if len(points) <= 40:
                axes.annotate(
                    study.labels[name], (spent, mean), xytext=(6, 3), textcoords="offset points", fontsize=7, color=INK
                )
        axes.plot([points[k][1] for k in front], [points[k][2] for k in front], "--", color=colour(0), linewidth=1)
        axes.set_xscale("log")
        plain_log(axes.xaxis)
        axes.set_xlabel("mean cost per run (US dollars, log scale)")
        axes.set_ylabel("mean outcome")
        rules(axes, "both")
        axes.margins(x=0.25, y=0.12)
        return made

    named = ", ".join(f"{study.labels[points[k][0]]} ($ {points[k][1]:.2f}, {points[k][2]:.2f})" for k in front)
    columns = (
        Column("configuration", "Configuration", align="left"),
        Column("cost_usd", "$/run", 2),
        Column("outcome", "Outcome", 3),
        Column("front", "On the front"),
    )
    rows: list[tuple[Cell | Value, ...]] = [
        (study.labels[name], spent, mean, "yes" if place in front else "no")
        for place, (name, spent, mean) in enumerate(points)
    ]
    return Figure(
        "figure2b",
        "Figure 2b. Outcome and cost",
        "Mean outcome against mean cost per run, brief instruction. Squares: closed weights; circles: open; diamonds: "
        "not known. The dashed line and blue mark the Pareto front: nothing cheaper scores as high. Means suffer from "
        "single expensive runs; the table of robust cost has medians.",
        f"Scatter plot of {len(points)} configurations. On the Pareto front, from cheap to expensive: {named}.",
        draw,
        Table("figure2b-data", "", "", columns, rows),
    )


# --- Figure 2c -----------------------------------------------------------------------------------------------------


def instruction_pairs(study: Study) -> list[tuple[str, str]]:
    """Return (brief, detailed) configurations that differ in nothing but the instruction."""
    found: dict[tuple[str, str | None], dict[str, str]] = {}
    for name in study.real_grid.configurations:
        first = study.first[name]
        found.setdefault((first.agent, first.model), {}).setdefault(first.instruction, name)
    return [(levels["brief"], levels["detailed"]) for levels in found.values() if {"brief", "detailed"} <= set(levels)]


def instruction(study: Study) -> Figure | None:
    """Figure 2c: what a detailed instruction changes, task by task."""
    pairs = instruction_pairs(study)[:_MOST_PANELS]
    if not pairs:
        return None
    grid = study.real_grid
    index = {name: place for place, name in enumerate(grid.configurations)}

    def draw() -> Canvas:
        made, axes = canvas(
            3.2 + 3.0 * len(pairs), 1.2 + 0.27 * len(grid.tasks), 1, len(pairs), squeeze=False, sharey=True
        )
        for place, (brief, detailed) in zip(axes[0], pairs, strict=True):
            _instruction_axes(study, grid, place, index[brief], index[detailed])
        axes[0][0].set_yticks(range(len(grid.tasks)), [study.task_label(task) for task in grid.tasks])
        axes[0][0].invert_yaxis()
        return made

    texts, rows = [], []
    for brief, detailed in pairs:
        before, after = grid.task_means[index[brief]], grid.task_means[index[detailed]]
        change = after - before
        texts.append(
            f"{study.labels[brief]}: mean {shown(float(grid.means[index[brief]]), 2)} to "
            f"{shown(float(grid.means[index[detailed]]), 2)}, "
            f"mean absolute change by task {np.nanmean(np.abs(change)):.2f}"
        )
        rows += [
            (study.labels[brief], study.task_label(task), *(_plain(value) for value in values))
            for task, *values in zip(grid.tasks, before, after, change, strict=True)
        ]
    columns = (
        Column("configuration", "Configuration", align="left"),
        Column("task", "Task", align="left"),
        Column("brief", "Brief", 3),
        Column("detailed", "Detailed", 3),
        Column("change", "Change", 3),
    )
    return Figure(
        "figure2c",
        "Figure 2c. Effect of a detailed instruction",
        "Mean outcome per task under the brief (open) and the detailed instruction (filled); arrows mark changes of at "
        f"least {_ARROW:g}, vertical lines the means over tasks.",
        ". ".join(texts) + ".",
        draw,
        Table("figure2c-data", "", "", columns, list(rows)),
    )


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _instruction_axes(study: Study, grid: stats.Grid, axes: Axes, brief: int, detailed: int) -> None:
    for row in range(len(grid.tasks)):
        before, after = grid.task_means[brief, row], grid.task_means[detailed, row]
        if np.isnan(before) or np.isnan(after):
            continue
        if abs(after - before) >= _ARROW:
            axes.annotate(
                "",
                (after, row),
                (before, row),
                arrowprops={"arrowstyle": "->", "color": SOFT, "shrinkA": 3, "shrinkB": 3},
            )
        axes.scatter(before, row, s=26, facecolor="white", edgecolor=colour(0), zorder=3)
        axes.scatter(after, row, s=26, color=colour(1), edgecolor=INK, linewidth=0.4, zorder=3)
    for which, style, shade in ((brief, ":", colour(0)), (detailed, "-", colour(1))):
        axes.axvline(grid.means[which], linestyle=style, color=shade, linewidth=1)
    delta = grid.means[detailed] - grid.means[brief]
    axes.set_title(f"{study.labels[grid.configurations[brief]]}  Δ = {delta:+.2f}")
    axes.set_xlim(-0.03, 1.03)
    axes.set_xlabel("mean outcome")
    rules(axes, "both")


# --- Figure 2d -----------------------------------------------------------------------------------------------------


def repeats(study: Study) -> Figure | None:
    """Figure 2d: mean, worst and best of the repeats, averaged over tasks."""
    grid = study.focus_grid.of(study.focus_names[:_MOST_LINES])
    if not (grid.counts > 1).any():
        return None
    with np.errstate(invalid="ignore"):
        low = np.nanmean(np.where(grid.counts > 0, np.nanmin(_filled(grid.values), axis=2), np.nan), axis=1)
        high = np.nanmean(np.where(grid.counts > 0, np.nanmax(_filled(grid.values), axis=2), np.nan), axis=1)
    labels = [study.labels[name] for name in grid.configurations]

    def draw() -> Canvas:
        made, axes = canvas(7.0, 1.0 + 0.34 * len(labels))
        for row in range(len(labels)):
            axes.plot([low[row], high[row]], [row, row], color=GRID, linewidth=3, zorder=1)
            axes.scatter(low[row], row, marker="v", color=colour(1), zorder=3)
            axes.scatter(high[row], row, marker="^", color=colour(2), zorder=3)
            axes.scatter(grid.means[row], row, marker="o", facecolor="white", edgecolor=colour(0), zorder=3)
        axes.set_yticks(range(len(labels)), labels)
        axes.invert_yaxis()
        axes.set_xlabel("outcome, mean over tasks: worst (▼), mean (○), best (▲) of the repeats")
        rules(axes, "x")
        return made

    gaps = ", ".join(f"{label} {a:.2f} to {b:.2f}" for label, a, b in zip(labels, low, high, strict=True))
    columns = (
        Column("configuration", "Configuration", align="left"),
        Column("worst", "Worst", 3),
        Column("mean", "Mean", 3),
        Column("best", "Best", 3),
    )
    rows: list[tuple[Cell | Value, ...]] = [
        (label, float(a), float(m), float(b)) for label, a, m, b in zip(labels, low, grid.means, high, strict=True)
    ]
    return Figure(
        "figure2d",
        "Figure 2d. Worst, mean and best of the repeats",
        f"Lowest and highest outcome of the repeats of each task, averaged over tasks; {study.focus_text}.",
        f"Dumbbell chart, worst to best of the repeats: {gaps}.",
        draw,
        Table("figure2d-data", "", "", columns, rows),
    )


def _filled(values: np.ndarray) -> np.ndarray:
    """Put a number into cells without any run, so that their minimum does not warn; they are masked afterwards."""
    empty = np.isnan(values).all(axis=2, keepdims=True)
    filled: np.ndarray = np.where(empty, 0.0, values)
    return filled


# --- Figure 2e -----------------------------------------------------------------------------------------------------


def process(study: Study) -> Figure | None:
    """Figure 2e: process against outcome, with margins and the region of sound but wrong runs."""
    runs = [run for run in study.focus if run.scored and run.process is not None]
    if len(runs) < 3:
        return None
    names = [name for name in study.focus_names if any(run.configuration == name for run in runs)]
    whole, above = stats.process_and_outcome(runs), stats.process_and_outcome(runs, stats.DIFFERS)
    sound = sum((run.process or 0) >= _SOUND and (run.outcome or 0) <= _WRONG for run in runs)

    def draw() -> Canvas:
        made = Canvas(figsize=(7.6, 5.0), layout="constrained")
        places = made.subplot_mosaic([["top", "."], ["main", "right"]], width_ratios=[5, 1], height_ratios=[1, 5])
        axes = places["main"]
        axes.add_patch(Rectangle((0, _SOUND), _WRONG, 1 - _SOUND, color="#E69F00", alpha=0.15, linewidth=0))
        axes.plot([0, 1], [0, 1], "--", color=SOFT, linewidth=0.8)
        for place, name in enumerate(names[:_MOST_LINES]):
            own = [run for run in runs if run.configuration == name]
            r, r_above = stats.process_and_outcome(own), stats.process_and_outcome(own, stats.DIFFERS)
            axes.scatter(
                _values(own, "outcome"),
                _values(own, "process"),
                s=16,
                color=colour(place),
                marker=marker(place),
                alpha=0.75,
                linewidth=0,
                label=f"{study.labels[name]}  r = {shown(r, 2)}; {shown(r_above, 2)}",
            )
        bins = np.linspace(0, 1, 21).tolist()
        places["top"].hist(_values(runs, "outcome"), bins=bins, color=SOFT)
        places["right"].hist(_values(runs, "process"), bins=bins, color=SOFT, orientation="horizontal")
        places["top"].set_xlim(-0.02, 1.02)
        places["right"].set_ylim(-0.02, 1.02)
        for side in ("top", "right"):
            places[side].axis("off")
        axes.set(xlabel="outcome", ylabel="process", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        made.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=7, frameon=False)
        return made

    columns = (
        Column("configuration", "Configuration", align="left"),
        Column("task", "Task", align="left"),
        Column("outcome", "Outcome", 4),
        Column("process", "Process", 4),
    )
    rows: list[tuple[Cell | Value, ...]] = [
        (study.labels[run.configuration], study.task_label(run.task), run.outcome, run.process) for run in runs
    ]
    return Figure(
        "figure2e",
        "Figure 2e. Process against outcome",
        f"{len(runs)} scored runs, {study.focus_text}. r: Pearson's correlation over all runs; over those with outcome "
        f"above {stats.DIFFERS:g}. Shaded: sound process (≥ {_SOUND:g}), low outcome (≤ {_WRONG:g}). Dashed: y = x. "
        f"{study.judges}",
        f"Scatter plot of process against outcome for {len(runs)} runs. r = {shown(whole, 2)} over all, "
        f"{shown(above, 2)} for outcome above {stats.DIFFERS:g}. {sound} runs have a sound process and a low outcome.",
        draw,
        Table("figure2e-data", "", "", columns, rows),
    )


def _values(runs: Sequence[Run], name: str) -> np.ndarray:
    return np.array([getattr(run, name) for run in runs], float)


# --- Figure 3b -----------------------------------------------------------------------------------------------------


def variance(study: Study) -> Figure | None:
    """Figure 3b: shares of the variance, published decomposition and random effects, outcome and process."""
    bars: list[tuple[str, dict[str, float]]] = []
    for score in ("outcome", "process"):
        grid = stats.grid(study.focus, lambda run, score=score: getattr(run, score))  # type: ignore[misc]
        if len(grid.configurations) > 1 and len(grid.tasks) > 1:
            bars.append((f"{score}\nsums of squares", stats.shares(grid)))
            bars.append((f"{score}\nrandom effects", stats.as_shares(stats.variance_components(grid))))
    bars = [(name, parts) for name, parts in bars if parts]
    if not bars:
        return None
    names = {"task": "task", "interaction": "task × configuration", "run": "run to run", "agent": "configuration"}

    def draw() -> Canvas:
        made, axes = canvas(7.4, 0.9 + 0.5 * len(bars))
        for row, (_label, parts) in enumerate(bars):
            left = 0.0
            for place, part in enumerate(names):
                share = 100 * parts[part]
                axes.barh(
                    row,
                    share,
                    left=left,
                    color=colour(place),
                    edgecolor="white",
                    label=names[part] if not row else None,
                )
                if share >= 4:
                    axes.text(
                        left + share / 2, row, f"{share:.0f}", ha="center", va="center", color="white", fontsize=7.5
                    )
                left += share
        axes.set_yticks(range(len(bars)), [name for name, _parts in bars])
        axes.invert_yaxis()
        axes.set_xlabel("percent of the variance")
        legend(axes, fontsize=7.5)
        return made

    parts = bars[0][1]
    ratio = f" Run-to-run is {parts['run'] / parts['agent']:.1f} times the configuration." if parts["agent"] else ""
    columns = (Column("what", "Decomposition", align="left"), *(Column(part, text, 3) for part, text in names.items()))
    rows: list[tuple[Cell | Value, ...]] = [
        (name.replace("\n", ", "), *(found[part] for part in names)) for name, found in bars
    ]
    return Figure(
        "figure3b",
        "Figure 3b. Where the variance lies",
        f"Shares of the variance of scored runs, {study.focus_text}: sums of squares fitted task first, as published, "
        "and random-effects components, which do not count run-to-run noise towards the others.",
        "Stacked bars. "
        + " ".join(
            f"{name.replace(chr(10), ', ')}: "
            + ", ".join(f"{text} {100 * found[part]:.0f} %" for part, text in names.items())
            + "."
            for name, found in bars
        )
        + ratio,
        draw,
        Table("figure3b-data", "", "", columns, rows),
    )


# --- Figure 4 ------------------------------------------------------------------------------------------------------


def subtasks(study: Study) -> Figure | None:
    """Figure 4: mean outcome by subtask, for the comparison of agents."""
    grid = study.focus_grid.of(study.focus_names[:_MOST_COLUMNS])
    known = {slug: study.specs[slug] for slug in grid.tasks if slug in study.specs}
    groups = strata(known)["subtask"] if known else {}
    if not groups or np.isnan(grid.means).all():
        return None
    values = np.full((len(groups), len(grid.configurations)), np.nan)
    for row, slugs in enumerate(groups.values()):
        values[row] = stats.mean_along(grid.task_means[:, [grid.tasks.index(slug) for slug in slugs]], axis=1)

    def draw() -> Canvas:
        labels = [f"{name} ({len(slugs)})" for name, slugs in groups.items()]
        return _heat_canvas(study, grid, values, labels)[0]

    level = stats.mean_along(values, axis=1)
    order = np.argsort(np.nan_to_num(level, nan=2.0))
    names = list(groups)
    columns = (
        Column("subtask", "Subtask", align="left"),
        Column("tasks", "Tasks"),
        *(Column(name, study.labels[name], 3) for name in grid.configurations),
    )
    rows: list[tuple[Cell | Value, ...]] = [
        (name, len(slugs), *(_plain(value) for value in values[row]))
        for row, (name, slugs) in enumerate(groups.items())
    ]
    return Figure(
        "figure4",
        "Figure 4. Outcome by analysis subtask",
        f"Mean over all tasks that contain a subtask (their number in parentheses), {study.focus_text}. Rows overlap.",
        f"Heat map by subtask. Lowest: {names[order[0]]} ({level[order[0]]:.2f}); highest: {names[_last(level)]} "
        f"({np.nanmax(level):.2f}), means over configurations.",
        draw,
        Table("figure4-data", "", "", columns, rows),
    )


def _last(level: np.ndarray) -> int:
    return int(np.nanargmax(level))
