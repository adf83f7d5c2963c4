"""Figure 6: wall-clock time and outcome."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from biabench_plugin.report import stats
from biabench_plugin.report.figure import INK, SOFT, Figure, canvas, colour, marker, plain_log, rules
from biabench_plugin.report.runs import Run
from biabench_plugin.report.study import Study
from biabench_plugin.report.table import Cell, Column, Table, Value, shown

_MOST_LINES = 8
_TIER_NAMES = ("< 0.1", "0.1–0.5", "≥ 0.5")


def figures(study: Study) -> list[Figure]:
    runs = [run for run in study.focus if run.scored and run.wall_minutes is not None]
    return [_time(study, runs)] if len(runs) >= 3 else []


def _longest(study: Study, runs: list[Run]) -> list[tuple[str, int, int]]:
    groups = [(study.labels[name], [run for run in runs if run.configuration == name]) for name in study.focus_names]
    counted = [(label, *stats.longest_is_best(own)[::2]) for label, own in [*groups, ("all", runs)]]
    return [(label, found, pairs) for label, found, pairs in counted if pairs]


def _time(study: Study, runs: list[Run]) -> Figure:
    thirds = [stats.mean([run.outcome for run in third]) for third in stats.time_terciles(runs)]
    tiers = [stats.median([run.wall_minutes for run in tier]) for tier in stats.outcome_tiers(runs)]
    longest = _longest(study, runs)
    rho = stats.time_rank_correlation(runs)

    def draw() -> Canvas:
        made, axes = canvas(10.5, 3.6, 1, 3, width_ratios=[1, 1.5, 1])
        _draw_thirds(study, runs, axes[0])
        axes[0].set_title(f"a  thirds by time, ρ = {shown(rho, 2)}")
        _draw_tiers(study, runs, axes[1])
        _draw_longest(longest, axes[2])
        return made

    rows: list[tuple[Cell | Value, ...]] = [
        *(("third", name, None, value) for name, value in zip(("shortest", "middle", "longest"), thirds, strict=True)),
        *(("median minutes by outcome", name, None, value) for name, value in zip(_TIER_NAMES, tiers, strict=True)),
        *(("longest is best", label, pairs, found / pairs) for label, found, pairs in longest),
    ]
    columns = (
        Column("part", "Part", align="left"),
        Column("group", "Group", align="left"),
        Column("n", "n"),
        Column("value", "Value", 3),
    )
    last = f" The longest run was best in {longest[-1][1]} of {longest[-1][2]} pairs." if longest else ""
    return Figure(
        "figure6",
        "Figure 6. Wall-clock time and outcome",
        f"a) Mean outcome of the shortest, middle and longest third of the runs of each task, pooled (black) and by "
        f"configuration; ρ is the median within-task rank correlation of time and outcome. b) Minutes per run by "
        f"outcome tier ({', '.join(_TIER_NAMES)}), with medians. c) Share of pairs, among those that differ by more "
        f"than {stats.DIFFERS:g}, whose longest run scored best; the dashed line is chance. {study.focus_text}.",
        f"Mean outcome by third of wall time: {', '.join(shown(value, 2) for value in thirds)}. Median minutes by "
        f"outcome tier: {', '.join(shown(value, 1) for value in tiers)}.{last}",
        draw,
        Table("figure6-data", "", "", columns, rows),
    )


def _draw_thirds(study: Study, runs: list[Run], axes: Axes) -> None:
    for place, name in enumerate(study.focus_names[:_MOST_LINES]):
        parts = [[run for run in third if run.configuration == name] for third in stats.time_terciles(runs)]
        means = [stats.mean([run.outcome for run in part]) for part in parts]
        kept = [(index, mean) for index, mean in enumerate(means) if mean is not None]
        axes.plot(
            [index for index, _mean in kept],
            [mean for _index, mean in kept],
            color=colour(place),
            marker=marker(place),
            markersize=4,
            linewidth=0.8,
            alpha=0.8,
        )
    pooled = [stats.mean([run.outcome for run in third]) or np.nan for third in stats.time_terciles(runs)]
    axes.plot(range(3), pooled, color=INK, marker="o", linewidth=2)
    axes.set_xticks(range(3), ["shortest", "middle", "longest"])
    axes.set_ylabel("mean outcome")
    axes.set_ylim(0, 1)
    rules(axes)


def _draw_tiers(study: Study, runs: list[Run], axes: Axes) -> None:
    groups = [[run for run in runs if run.configuration == name] for name in study.focus_names[:_MOST_LINES]]
    names = [study.labels[name] for name in study.focus_names[:_MOST_LINES]]
    rng = np.random.default_rng(0)  # only spreads the points sideways
    for place, own in enumerate([*groups, runs]):
        for tier, members in enumerate(stats.outcome_tiers(own)):
            if not members:
                continue
            minutes = np.array([run.wall_minutes for run in members], float)
            x = place + 0.26 * (tier - 1)
            shade = INK if place == len(groups) else colour(place)
            spread = rng.uniform(-0.08, 0.08, minutes.size)
            axes.scatter(x + spread, minutes, s=5, color=shade, alpha=0.4, linewidth=0)
            axes.plot([x - 0.11, x + 0.11], [np.median(minutes)] * 2, color=shade, linewidth=2)
    axes.set_yscale("log")
    plain_log(axes.yaxis)
    axes.set_ylabel("minutes per run")
    axes.set_xticks(range(len(groups) + 1), [*names, "all"], rotation=40, ha="right")
    axes.set_title("b  by outcome: low, middle, high")
    rules(axes)


def _draw_longest(longest: list[tuple[str, int, int]], axes: Axes) -> None:
    labels = [f"{label} ({found}/{pairs})" for label, found, pairs in longest]
    shares = [found / pairs for _label, found, pairs in longest]
    axes.barh(range(len(labels)), shares, color=[*(colour(0) for _ in labels[:-1]), INK])
    axes.axvline(1 / 3, linestyle="--", color=SOFT)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_title("c  longest run best")
    rules(axes, "x")
