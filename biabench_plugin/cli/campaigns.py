"""Commands on campaigns that run or ran: status, exclude."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from biabench_plugin.cli._app import app, stop


@app.command()
def status(
    campaign: Annotated[Path, typer.Argument(help="Campaign folder.")],
    watch: Annotated[float | None, typer.Option(min=1, help="Show it again every so many seconds.")] = None,
) -> None:
    """Show how far a campaign is, from outside: done, running, failed, means, time left, cost; also while it runs."""
    from biabench_plugin.records import RecordError
    from biabench_plugin.status import lines

    if not (campaign / "campaign.json").is_file():
        stop(f"{campaign}: no campaign folder; expected a folder with campaign.json")
    while True:
        try:
            print("\n".join(lines(campaign, time.time())), flush=True)
        except RecordError as error:
            stop(str(error))
        if watch is None:
            return
        time.sleep(watch)


@app.command()
def exclude(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TRIAL|CONFIGURATION",
            help="A trial's folder or id (tasks/<task>/task.yaml::<name>), or a configuration's id.",
        ),
    ],
    reason: Annotated[str, typer.Option(help="Why; it is shown in every report.")],
    campaign: Annotated[
        Path | None, typer.Option(help="Campaign folder; not needed where TRIAL is a folder in it.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take the exclusion back; the reason says why.")] = False,
) -> None:
    """Take a trial or a configuration out of the means of a campaign: it stays listed, with the reason.

    Decisions are appended to CAMPAIGN/exclusions.jsonl and never deleted; records are not touched.
    """
    from biabench_plugin import exclusions
    from biabench_plugin.records import RecordError
    from biabench_plugin.status import find_target

    if not reason.strip():
        stop("--reason: say why, in a sentence")
    try:
        folder, found = find_target(target, campaign)
        exclusions.add(folder, found, reason.strip(), undo=undo)
    except (RecordError, ValueError, OSError) as error:
        stop(str(error))
    print(
        f"{found}: {'counts again' if undo else 'excluded'} in {folder}; biabench report {folder} shows the new means"
    )
