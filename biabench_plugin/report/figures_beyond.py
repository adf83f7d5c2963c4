"""Figures that the paper does not have: intervals of the means, rank stability, the map of task profiles."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure as Canvas

from biabench_plugin.report import agreement_repeats, stats
from biabench_plugin.report.figure import INK, Figure, canvas, colour, rules
from biabench_plugin.report.study import Study
from biabench_plugin.report.table import Cell, Column, Table, Value

_MOST = 40


def figures(study: Study) -> list[Figure]:
    made = (intervals(study), ranks(study), profiles(study), agreement_repeats.figure(study))
    return [figure for figure in made if figure is not None]


def _shown(study: Study) -> list[int]:
    return [index for index, mean in enumerate(study.real_grid.means) if not np.isnan(mean)][:_MOST]


def intervals(study: Study) -> Figure | None:
    """Mean outcome of every configuration with its 95 % interval."""
    index = _shown(study)
    if not index:
        return None
    found = [study.bootstrap.interval(place) for place in index]
    labels = [study.labels[study.real_grid.configurations[place]] for place in index]

    def draw() -> Canvas:
        made, axes = canvas(7.4, 0.9 + 0.28 * len(labels))
        for row, interval in enumerate(found):
            axes.plot([interval.low, interval.high], [row, row], color=colour(0), linewidth=2, solid_capstyle="butt")
            axes.scatter(interval.value, row, color=INK, s=22, zorder=3)
            axes.text(
                1.02, row, f"{interval.value:.2f}", va="center", fontsize=7.5, transform=axes.get_yaxis_transform()
            )
        axes.set_yticks(range(len(labels)), labels)
        axes.invert_yaxis()
        axes.set_xlabel("mean outcome with 95 % interval")
        rules(axes, "x")
        return made

    leader = found[0]
    overlapping = sum(interval.high >= leader.low for interval in found[1:])
    columns = (
        Column("configuration", "Configuration", align="left"),
        Column("outcome", "Outcome", 3),
        Column("low", "95 % low", 3),
        Column("high", "95 % high", 3),
    )
    rows: list[tuple[Cell | Value, ...]] = [
        (label, interval.value, interval.low, interval.high) for label, interval in zip(labels, found, strict=True)
    ]
    return Figure(
        "intervals",
        "Who is best, and how sure is that?",
        "Mean outcome with its 95 % interval (hierarchical bootstrap over tasks and runs). Intervals of two "
        "configurations may overlap although their paired difference is clear; see the pairwise differences.",
        f"Forest plot. Highest: {labels[0]} with {leader.value:.2f} ({leader.low:.2f} to {leader.high:.2f}); the "
        f"intervals of {overlapping} of {len(found) - 1} others reach into it.",
        draw,
        Table("intervals-data", "", "", columns, rows),
    )


def ranks(study: Study) -> Figure | None:
    """How often each configuration takes each rank under resampling."""
    index = _shown(study)
    if len(index) < 2:
        return None
    drawn = study.bootstrap.ranks()[index]
    most = len(index)
    shares = np.stack([np.bincount(np.minimum(row, most), minlength=most + 1)[1:] / row.size for row in drawn])
    labels = [study.labels[study.real_grid.configurations[place]] for place in index]

    def draw() -> Canvas:
        made, axes = canvas(3.4 + 0.24 * most, 1.2 + 0.24 * most)
        image = axes.imshow(shares, cmap="cividis", vmin=0, vmax=max(0.2, float(shares.max())), aspect="auto")
        axes.set_yticks(range(most), labels)
        axes.set_xticks(range(most), [str(rank) for rank in range(1, most + 1)])
        axes.set_xlabel("rank")
        axes.tick_params(length=0)
        bar = made.colorbar(image, ax=axes, shrink=0.6)
        bar.set_label("share of resamples")
        return made

    first = shares[:, 0]
    columns = (
        Column("configuration", "Configuration", align="left"),
        *(Column(f"rank_{rank}", str(rank), 2) for rank in range(1, most + 1)),
    )
    rows: list[tuple[Cell | Value, ...]] = [
        (label, *map(float, row)) for label, row in zip(labels, shares, strict=True)
    ]
    return Figure(
        "ranks",
        "How stable is the ranking?",
        "Share of bootstrap resamples (tasks, then runs) in which each configuration takes each rank.",
        f"Heat map of ranks under resampling. {labels[int(np.argmax(first))]} is first in {100 * first.max():.0f} % of "
        "resamples.",
        draw,
        Table("ranks-data", "", "", columns, rows),
    )


def profiles(study: Study) -> Figure | None:
    """Rank correlation of task scores between every two configurations."""
    names = [study.real_grid.configurations[place] for place in _shown(study)]
    if len(names) < 2 or len(study.tasks) < 3:
        return None
    rho = stats.spearman_map(study.real_grid.of(names))
    labels = [study.labels[name] for name in names]
    pairs = rho[np.triu_indices(len(names), 1)]
    known = pairs[~np.isnan(pairs)]
    if not known.size:
        return None

    def draw() -> Canvas:
        made, axes = canvas(3.6 + 0.34 * len(names), 2.4 + 0.3 * len(names))
        image = axes.imshow(rho, cmap="cividis", vmin=min(0.0, float(known.min())), vmax=1)
        for row in range(len(names)):
            for column in range(len(names)):
                if not np.isnan(value := rho[row, column]):
                    text = f"{value:.2f}".replace("0.", ".") if value < 1 else "1"
                    axes.text(
                        column,
                        row,
                        text,
                        ha="center",
                        va="center",
                        fontsize=6,
                        color="white" if value < 0.5 else "black",
                    )
        axes.set_xticks(range(len(labels)), labels, rotation=45, ha="right")
        axes.set_yticks(range(len(labels)), labels)
        axes.tick_params(length=0)
        made.colorbar(image, ax=axes, shrink=0.6).set_label("Spearman's ρ")
        return made

    columns = (Column("configuration", "Configuration", align="left"), *(Column(n, study.labels[n], 2) for n in names))
    rows: list[tuple[Cell | Value, ...]] = [
        (label, *(None if np.isnan(value) else float(value) for value in row))
        for label, row in zip(labels, rho, strict=True)
    ]
    return Figure(
        "profiles",
        "Do configurations find the same tasks hard?",
        "Spearman's rank correlation of per-task outcomes between every two configurations, over their common tasks.",
        f"Map of rank correlations between {len(names)} configurations: median {np.median(known):.2f}, from "
        f"{known.min():.2f} to {known.max():.2f}.",
        draw,
        Table("profiles-data", "", "", columns, rows),
    )
