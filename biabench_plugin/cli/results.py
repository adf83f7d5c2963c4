"""Commands on finished campaigns: report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from biabench_plugin.cli._app import TaskFolders, app, find_tasks, stop


@app.command()
def report(
    paths: Annotated[list[Path], typer.Argument(help="Campaign folders and JUnit XML files, in any mix.")],
    out: Annotated[Path | None, typer.Option(help="Folder to write to; default: the first campaign folder.")] = None,
    rank_by: Annotated[str, typer.Option(help="outcome or strict")] = "outcome",
    prices: Annotated[Path | None, typer.Option(help="Price the stored tokens by this table.")] = None,
    tasks: TaskFolders = None,
) -> None:
    """Aggregate campaigns: leaderboard.json, report/index.html and a table."""
    from biabench_plugin.records import RecordError
    from biabench_plugin.report import build

    if rank_by not in ("outcome", "strict"):
        stop(f"--rank-by {rank_by}: expected outcome or strict")
    for path in paths:
        if not path.exists():
            stop(f"{path}: no such campaign folder or JUnit file")
    folder = out or (paths[0] if paths[0].is_dir() else paths[0].parent)
    try:
        made = build(paths, folder, find_tasks(tasks), rank_by=rank_by)  # type: ignore[arg-type]
    except (RecordError, OSError) as error:
        stop(str(error))
    print("\n".join(made.terminal_lines()))
    if prices is not None:
        from biabench_plugin.cli.agents import cost_lines, read_price_table

        campaigns = [path for path in paths if path.is_dir()]
        print("\n".join(["", *cost_lines(campaigns, read_price_table(prices))]))
