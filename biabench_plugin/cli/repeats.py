"""Commands that compare runs with each other: repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from biabench_plugin.cli._app import TaskFolders, app, find_tasks, stop


@app.command()
def repeats(
    campaigns: Annotated[list[Path], typer.Argument(help="Campaign folders whose repeats are compared.")],
    tasks: TaskFolders = None,
) -> None:
    """Compare the deliverables of repeats by each task's own metric, without truth; kept for the report."""
    from biabench_plugin.records import RecordError
    from biabench_plugin.report.agreement_repeats import FILE, Pair, compare_repeats, summary

    def show(pair: Pair) -> None:
        value = "–" if pair.agreement is None else f"{pair.agreement:.3f}"
        print(f"{value}  {pair.task}  {pair.configuration}{'' if pair.problem is None else f'  ({pair.problem})'}")

    specs = find_tasks(tasks)
    for campaign in campaigns:
        if not campaign.is_dir():
            stop(f"{campaign}: no such campaign folder")
        try:
            pairs = compare_repeats(campaign, specs, show)
        except (RecordError, OSError) as error:
            stop(str(error))
        print(f"{summary(pairs)}: {campaign / FILE}")
