"""Outcome by kind of task and by failure tag, with the number of runs in every cell; the map of task profiles."""

from __future__ import annotations

import numpy as np

from biabench_plugin.report import stats
from biabench_plugin.report.study import Study, strata
from biabench_plugin.report.table import Cell, Column, Table, Value


def tables(study: Study) -> list[Table]:
    known = {slug: study.specs[slug] for slug in study.tasks if slug in study.specs}
    kinds = strata(known)
    return [*(stratum(study, kind, groups) for kind, groups in kinds.items()), tags(study), profiles(study)]


def cell(grid: stats.Grid, row: int, columns: list[int]) -> Cell:
    """Mean of the task means over some tasks, with the number of runs behind it."""
    means = grid.task_means[row, columns]
    runs = int(grid.counts[row, columns].sum())
    if not runs:
        return Cell(None, "–")
    value = float(np.nanmean(means))
    return Cell(value, f"{value:.2f} (n = {runs})")


def stratum(study: Study, kind: str, groups: dict[str, list[str]]) -> Table:
    """One kind of stratum: strata down, configurations across."""
    grid = study.grid
    rows: list[tuple[Cell | Value, ...]] = []
    for name, slugs in groups.items():
        columns = [grid.tasks.index(slug) for slug in slugs]
        cells = [cell(grid, row, columns) for row in range(len(grid.configurations))]
        rows.append((name, len(columns), *cells))
    notes = {
        "subtask": "A task counts for every subtask it contains; the rows overlap.",
        "artifact-chain depth": "Depth: distinct steps between raw images and scored result (prepare, find, relate, "
        "measure, compare) that the task's subtasks take.",
        "chained subtasks": "Number of subtasks that the task lists.",
    }
    return Table(
        f"by_{kind.replace(' ', '_').replace('-', '_')}",
        f"Outcome by {kind}",
        "Mean of per-task means over the tasks of each stratum; n counts scored runs.",
        (
            Column("stratum", kind[0].upper() + kind[1:], align="left"),
            Column("tasks", "Tasks"),
            *(Column(name, study.labels[name], 2) for name in grid.configurations),
        ),
        rows,
        (notes[kind],) if kind in notes else (),
        "strata",
    )


def tags(study: Study) -> Table:
    """Outcome of the runs with each failure tag."""
    scored = [run for run in study.real if run.scored]
    names = sorted({tag for run in scored for tag in run.tags})
    rows: list[tuple[Cell | Value, ...]] = []
    for tag in names:
        cells: list[Cell] = []
        for name in study.real_grid.configurations:
            members = [run for run in scored if run.configuration == name and tag in run.tags]
            value = stats.mean([run.outcome for run in members])
            cells.append(Cell(value, "–" if value is None else f"{value:.2f} (n = {len(members)})"))
        tagged = [run for run in scored if tag in run.tags]
        rows.append((tag, len(tagged), stats.mean([run.outcome for run in tagged]), *cells))
    return Table(
        "by_tag",
        "Outcome by failure tag",
        "Mean outcome of the scored runs with each tag; a run may have several.",
        (
            Column("tag", "Tag", align="left"),
            Column("n", "n"),
            Column("outcome", "All", 2),
            *(Column(name, study.labels[name], 2) for name in study.real_grid.configurations),
        ),
        rows,
        section="strata",
    )


def profiles(study: Study) -> Table:
    """Rank correlation of task scores between every two configurations."""
    grid = study.real_grid
    rows: list[tuple[Cell | Value, ...]] = []
    if 2 <= len(grid.configurations) <= 40 and len(grid.tasks) >= 3:
        rho = stats.spearman_map(grid)
        for index, name in enumerate(grid.configurations):
            rows.append((study.labels[name], *(Cell(None if np.isnan(r) else float(r)) for r in rho[index])))
    return Table(
        "profiles",
        "Do configurations find the same tasks hard?",
        "Spearman's rank correlation of per-task outcomes between every two configurations, over their common tasks.",
        (
            Column("configuration", "Configuration", align="left"),
            *(Column(name, study.labels[name], 2) for name in grid.configurations),
        ),
        rows,
        section="strata",
    )
