"""Write every table as CSV, Markdown and HTML, every figure as SVG and PNG, and the runs behind them as CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.pricing import PriceTable
from biabench_plugin.records import write_atomically
from biabench_plugin.report.figure import Figure
from biabench_plugin.report.reviews import Reviewed
from biabench_plugin.report.runs import Run, write_runs
from biabench_plugin.report.tables import Table, all_tables
from biabench_plugin.taskspec import TaskSpec


@dataclass(frozen=True)
class Exported:
    """What was written below ``folder``: ``tables/``, ``figures/`` and ``runs.csv``."""

    folder: Path
    tables: list[Table]
    figures: list[Figure]


def export(
    runs: Sequence[Run],
    tasks: Mapping[str, TaskSpec],
    folder: Path,
    reviewed: Sequence[Reviewed] = (),
    prices: PriceTable | None = None,
) -> Exported:
    """Make every table and figure of the runs and write them below ``folder``.

    The same runs give the same bytes. Numbers in CSV are not rounded; those of the others are, as printed.
    """
    from biabench_plugin.report.figures import all_figures  # only here, so that short sessions load no Matplotlib

    tables, figures = all_tables(runs, tasks, reviewed, prices), all_figures(runs, tasks, reviewed)
    for table in tables:
        _write(folder / "tables" / table.id, table)
    for figure in figures:
        target = folder / "figures"
        target.mkdir(parents=True, exist_ok=True)
        (target / f"{figure.id}.svg").write_bytes(figure.svg)
        (target / f"{figure.id}.png").write_bytes(figure.png)
        if figure.data is not None:
            write_atomically(target / f"{figure.id}.csv", figure.data.to_csv())
    write_runs(runs, folder / "runs.csv")
    return Exported(folder, tables, figures)


def _write(stem: Path, table: Table) -> None:
    forms = {"csv": table.to_csv(), "md": table.to_markdown(), "html": table.to_html()}
    for suffix, text in forms.items():
        write_atomically(stem.with_name(f"{stem.name}.{suffix}"), text)
