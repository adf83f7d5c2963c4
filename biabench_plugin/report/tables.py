"""Every table of a report, from the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agents.pricing import PriceTable
from biabench_plugin.report import tables_beyond, tables_paper, tables_strata
from biabench_plugin.report.reviews import Reviewed, agreement_tables
from biabench_plugin.report.runs import Run
from biabench_plugin.report.study import DEMO, Study, studies
from biabench_plugin.report.table import DASH, Cell, Column, Table, Value, shown
from biabench_plugin.taskspec import TaskSpec

__all__ = ["DASH", "Cell", "Column", "Table", "Value", "all_tables", "shown"]


def all_tables(
    runs: Sequence[Run],
    tasks: Mapping[str, TaskSpec],
    reviewed: Sequence[Reviewed] = (),
    prices: PriceTable | None = None,
) -> list[Table]:
    """Return every table that the runs determine, in the order of a report.

    Parameters
    ----------
    runs
        Runs of any configurations and datasets; datasets are never pooled: each has tables of its own.
    tasks
        Task specifications by slug, for labels and strata; a run of a task that is not among them keeps its slug.
    reviewed
        Rubric items that an expert and judges decided, for the agreement tables.
    prices
        The prices that the costs were made with, for Table F2; by default the paper's.
    """
    groups = studies(runs, tasks)
    tables = [table for study in groups for table in _tables(study, prices, named=len(groups) > 1)]
    return [*tables, *tables_paper.suite(tasks), *agreement_tables(reviewed)]


def _tables(study: Study, prices: PriceTable | None, *, named: bool) -> list[Table]:
    tables = [*tables_paper.tables(study, prices), *tables_beyond.tables(study), *tables_strata.tables(study)]
    tables = [table for table in tables if table.rows]
    demo = (DEMO,) if study.runs[0].demo else ()
    return [
        replace(
            table,
            id=table.id + (study.id_suffix if named else ""),
            title=table.title + study.title_suffix,
            notes=(*demo, *table.notes),
        )
        for table in tables
    ]
