"""Commands on finished campaigns: report."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from biabench_plugin.cli._app import TaskFolders, app, find_tasks, stop


@app.command()
def report(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Campaign folders, JUnit XML files, leaderboard entry JSONs and run CSVs, in any mix."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write to; default: the first campaign folder, else this one.")
    ] = None,
    rank_by: Annotated[str, typer.Option(help="outcome or strict")] = "outcome",
    compare: Annotated[str | None, typer.Option(help="paper: put the study's 15 configurations beside yours")] = None,
    reviews: Annotated[
        Path | None,
        typer.Option(
            help="CSV of rubric items that an expert and judges decided (Tables E2, E3, Figure 5); default: the one "
            "that biabench agreement left in each campaign"
        ),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(
            help="Price the stored tokens by this table, in every table and figure, whatever was recorded or billed; "
            "runs that are no records keep their cost."
        ),
    ] = None,
    tasks: TaskFolders = None,
) -> None:
    """Aggregate runs: every table and figure, leaderboard.json, report/index.html and a summary."""
    from biabench_plugin.cli.agents import cost_lines, read_price_table
    from biabench_plugin.records import RecordError
    from biabench_plugin.report import build
    from biabench_plugin.report.reviews import read_reviews

    if compare not in (None, "paper"):
        stop(f"--compare {compare}: expected paper")
    if rank_by not in ("outcome", "strict"):
        stop(f"--rank-by {rank_by}: expected outcome or strict")
    for path in paths:
        if not path.exists():
            stop(f"{path}: no such campaign folder, JUnit XML, entry JSON or run CSV")
    if reviews is not None and not reviews.is_file():
        stop(f"{reviews}: no such file")
    campaigns = [path if path.is_dir() else path.parent for path in paths if path.is_dir() or path.suffix == ".xml"]
    folder = out or next(iter(campaigns), Path.cwd())
    specs = find_tasks(tasks)
    table = read_price_table(prices)
    try:
        reviewed = None if reviews is None else read_reviews(reviews)
        made = build(paths, folder, specs, rank_by=rank_by, compare=bool(compare), reviewed=reviewed, prices=table)  # type: ignore[arg-type]
    except (RecordError, OSError) as error:
        stop(str(error))
    if not (made.rows or made.boards):
        stop(f"{', '.join(map(str, paths))}: no run in it; expected campaign folders, JUnit XML, entries or run CSVs")
    print("\n".join(made.terminal_lines(colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ)))
    if table is not None:
        print("\n".join(["", *cost_lines([path for path in paths if path.is_dir()], table)]))
