"""Commands on leaderboard entries: leaderboard export, check, build, schema."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from biabench_plugin import checkout
from biabench_plugin.cli._app import app, find_tasks, stop

board = typer.Typer(help="Leaderboard entries: export, check, build, schema.", no_args_is_help=True)
app.add_typer(board, name="leaderboard")


def _dataset_ids() -> list[str]:
    return [task.dataset_id for task in find_tasks(None).values() if task.folder.parent == checkout.TASKS]


@board.command("export")
def export_entry(
    campaign: Annotated[Path, typer.Argument(help="A campaign folder on the published data.")],
    entry_id: Annotated[str, typer.Option("--id", help="Id of the entry and name of its file.")],
    submitter: Annotated[str, typer.Option(help="Who submits.")],
    contact: Annotated[str, typer.Option(help="How to reach them.")],
    affiliation: Annotated[str | None, typer.Option()] = None,
    artifacts_url: Annotated[str | None, typer.Option(help="Address of the runs' files; needed to submit.")] = None,
    configuration: Annotated[str | None, typer.Option(help="Which one, where the campaign holds several.")] = None,
    agent_name: Annotated[str | None, typer.Option(help="Name to show; default: the adapter's.")] = None,
    agent_class: Annotated[str | None, typer.Option(help="general or biology")] = None,
    model_name: Annotated[str | None, typer.Option(help="Name to show; default: the identifier.")] = None,
    provider: Annotated[str | None, typer.Option(help="Who served the model.")] = None,
    hardware: Annotated[str | None, typer.Option(help="Default: from the records.")] = None,
    submitted: Annotated[str | None, typer.Option(help="Date YYYY-MM-DD; default: today.")] = None,
    out: Annotated[Path, typer.Option(help="Folder to write <id>.json to.")] = Path(),
) -> None:
    """Write an entry in the published form. Runs on demo data and of synthetic agents are refused."""
    from biabench_plugin.records import RecordError, write_atomically
    from biabench_plugin.report.leaderboard import About, EntryError, check, export
    from biabench_plugin.report.rows import from_campaign

    if not campaign.is_dir():
        stop(f"{campaign}: no such campaign folder")
    if agent_class not in (None, "general", "biology"):
        stop(f"--agent-class {agent_class}: expected general or biology")
    try:
        day = date.fromisoformat(submitted) if submitted else datetime.now(UTC).date()
    except ValueError:
        stop(f"--submitted {submitted}: expected a date like 2026-09-10")
    about = About(
        id=entry_id,
        submitter=submitter,
        contact=contact,
        submitted=day,
        affiliation=affiliation,
        artifacts_url=artifacts_url,
        agent_name=agent_name,
        agent_class=cast(Literal["general", "biology"] | None, agent_class),
        model_name=model_name,
        provider=provider,
        hardware=hardware,
    )
    tasks = {slug: task for slug, task in find_tasks(None).items() if task.folder.parent == checkout.TASKS}
    try:
        entry = export(from_campaign(campaign), tasks, about, configuration)
        path = out / f"{entry.id}.json"
        write_atomically(path, entry.dump())
    except (EntryError, RecordError, OSError, ValueError) as error:
        stop(f"{campaign}: {error}")
    print(path)
    for fault in check(entry, _dataset_ids(), path.stem):
        print(f"not yet fit to submit: {fault}")


@board.command("check")
def check_entries(
    entries: Annotated[list[Path], typer.Argument(help="Entry files, or folders of them.")],
) -> None:
    """Validate entries: form and every rule beyond it. One line per fault.

    Exit status: 0 all fit, 1 some do not, 2 misuse.
    """
    from biabench_plugin.report.leaderboard import EntryError, check, read_entry

    wrong = False
    ids = _dataset_ids()
    for path in _files(entries):
        try:
            faults = check(read_entry(path), ids, path.stem)
        except EntryError as error:
            faults = [str(error).removeprefix(f"{path}: ")]
        for fault in faults:
            print(f"FAIL {path}: {fault}")
        if not faults:
            print(f"ok   {path}")
        wrong |= bool(faults)
    if wrong:
        raise typer.Exit(1)


@board.command("build")
def build_board(
    entries: Annotated[list[Path] | None, typer.Argument(help="Entry files, or folders of them.")] = None,
    paper: Annotated[bool, typer.Option("--paper", help="Put the study's 15 configurations among them.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for leaderboard.json and leaderboard.md.")] = Path(),
) -> None:
    """Rank entries by their mean outcome, recomputed from the runs."""
    from biabench_plugin.records import write_atomically
    from biabench_plugin.report.leaderboard import (
        EntryError,
        check,
        intervals,
        leaderboard_json,
        leaderboard_markdown,
        paper_entries,
        read_entry,
    )

    ids = _dataset_ids()
    found = {}
    for path in _files(entries or []):
        try:
            entry = read_entry(path)
        except EntryError as error:
            stop(str(error))
        if faults := check(entry, ids, path.stem):
            stop(f"{path}: {'; '.join(faults)}")
        if entry.id in found:
            stop(f"{path}: id {entry.id!r} occurs twice")
        found[entry.id] = entry
    if paper:
        found = {entry.id: entry for entry in paper_entries()} | found
    if not found:
        stop("no entries; name entry files or folders, or --paper")
    chosen = list(found.values())
    text = leaderboard_markdown(chosen, intervals(chosen))
    try:
        write_atomically(out / "leaderboard.json", leaderboard_json(chosen))
        write_atomically(out / "leaderboard.md", text)
    except OSError as error:
        stop(str(error))
    print(text, end="")


@board.command("schema")
def print_schema() -> None:
    """Print the form of an entry as JSON Schema (draft-07)."""
    from biabench_plugin.report.leaderboard import json_schema

    print(json_schema(), end="")


def _files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(path.glob("*.json"))
        elif path.is_file():
            yield path
        else:
            stop(f"{path}: no such entry file or folder")
