"""Commands on agents and what they did: doctor, setup, audit, cost."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from biabench_plugin.cli._app import TaskFolders, app, find_tasks, stop

if TYPE_CHECKING:
    from agents.pricing import PriceTable

FLAGGED = 1
NOTHING_CHECKED = 3

cost_app = typer.Typer(help="What runs cost: metered and billed.", no_args_is_help=True)
app.add_typer(cost_app, name="cost")

AgentClasses = Annotated[
    list[str] | None, typer.Option("--agent-class", metavar="MODULE:CLASS", help="Agent of your own; repeatable.")
]


def _register(references: list[str] | None) -> None:
    from agents import register

    for reference in references or ():
        try:
            register(reference)
        except ValueError as error:
            stop(str(error))


@app.command()
def doctor(
    agents: Annotated[list[str] | None, typer.Argument(metavar="AGENT…", help="Agents; default: all.")] = None,
    agent_class: AgentClasses = None,
    provider: Annotated[
        str | None, typer.Option(metavar="NAME|URL", help="Where the model is, as pytest's option says it.")
    ] = None,
    key_variable: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable that holds the provider's key.")
    ] = None,
) -> None:
    """Say what can run on this host, and for what cannot, the exact fix.

    Exit status: 0 fit, 1 an agent that was named cannot run here or any agent's own code raised, 2 misuse.
    """
    from biabench_plugin.doctor import examine

    _register(agent_class)
    try:
        host, found = examine(agents or (), provider=provider, key_variable=key_variable)
    except ValueError as error:
        stop(str(error))
    width = max(len(finding.name) for finding in (*host, *found))
    for finding in (*host, *found):
        mark = "ok  " if finding.problem is None else "FIX "
        print(f"{mark}{finding.name:<{width}}  {finding.problem or finding.found}")
    if any(finding.raised or (agents and finding.problem is not None) for finding in found):
        raise typer.Exit(1)


@app.command()
def setup(
    agent: Annotated[str, typer.Argument(help="What to install.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands only.")] = False,
) -> None:
    """Install AGENT from the package registries: npm for the command-line agents, a virtual environment for Biomni.

    Exit status: 0 installed, 1 it cannot be installed from here (the message says what to do), 2 misuse.
    """
    from biabench_plugin.doctor import SetupError, commands, examine_agent, install

    try:
        steps = commands(agent)
    except ValueError as error:
        stop(str(error))
    except SetupError as error:
        stop(str(error), 1)
    for argv, folder in steps:
        print(f"in {folder}: {' '.join(argv)}", flush=True)
    if dry_run:
        return
    try:
        install(agent)
    except SetupError as error:
        stop(str(error), 1)
    finding = examine_agent(agent)
    print(finding.problem or f"{agent} {finding.found} can run here")


@app.command()
def audit(
    campaign: Annotated[Path, typer.Argument(help="A campaign folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="List every access, not only the hits.")] = False,
    tasks: TaskFolders = None,
) -> None:
    """Say which agents reached for the study behind their task, and write audit.json beside each record.

    Exit status: 0 none did, 1 at least one did, 2 misuse, 3 there was no transcript to look at.
    """
    from biabench_plugin.records import RecordError, iter_records
    from biabench_plugin.source_study import audit_attempt

    if not campaign.is_dir():
        stop(f"{campaign}: no such campaign folder")
    specs = find_tasks(tasks)
    rows, unchecked = [], []
    for path, record in iter_records(campaign):
        if isinstance(record, RecordError):
            unchecked.append((path, str(record)))
            continue
        if record.task not in specs:
            unchecked.append((path, f"task {record.task} is not at hand; --tasks DIR"))
            continue
        try:
            found = audit_attempt(path.parent, specs[record.task])
        except ValueError as error:
            unchecked.append((path, str(error)))
            continue
        if found is None:
            unchecked.append((path, "no transcript"))
        else:
            rows.append((record, found))
    flagged = [record for record, found in rows if found.flagged]
    if as_json:
        trials = [
            {"trial": record.trial, "attempt": record.attempt, "flagged": found.flagged, **found.model_dump()}
            for record, found in rows
        ]
        missing = [{"record": str(path), "why": why} for path, why in unchecked]
        print(json.dumps({"trials": trials, "unchecked": missing}))
    else:
        for record, found in rows:
            counts = ", ".join(f"{number} {kind}" for kind, number in sorted(found.counts.items())) or "no access"
            mark = "FLAGGED" if found.flagged else "ok     "
            print(f"{mark} {record.trial} attempt {record.attempt}: {counts}")
            for access in found.accesses if everything else found.hits:
                said = f" = {'; '.join(access.hits)}" if access.hits else f" ({access.kind})"
                print(f"        step {access.step} {access.how}: {access.target}{said}")
            if found.mentions:
                print(f"        named, not looked up: {'; '.join(found.mentions)}")
        for path, why in unchecked:
            print(f"NOT CHECKED {path.parent.relative_to(campaign)}: {why}")
        print(f"{len(rows)} checked, {len(flagged)} flagged, {len(unchecked)} not checked")
    if flagged:
        raise typer.Exit(FLAGGED)
    if not rows:
        raise typer.Exit(NOTHING_CHECKED)


def read_price_table(path: Path | None) -> PriceTable | None:
    """Read the table that ``--prices`` names, or stop with what is wrong in it."""
    from agents.pricing import read_prices

    if path is None:
        return None
    try:
        return read_prices(path)
    except ValueError as error:
        stop(f"--prices {error}")


@cost_app.command("import")
def import_cost(
    file: Annotated[Path, typer.Argument(help="A provider's billing export: CSV, JSON or JSON lines.")],
    campaign: Annotated[Path, typer.Option(help="The campaign that the charges belong to.")],
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="OURS=THEIRS", help="Which column is the cost, run, agent, request, model or time."),
    ] = None,
) -> None:
    """Join a billing export to a campaign's runs; what was metered stays beside it.

    A row is joined by the run it names, else by the request's id in the relay's ledger, else by time and model. One
    that an import has booked before, of this export or of another, is not billed again.
    Exit status: 0 every row was joined, 1 some were not, 2 misuse.
    """
    from biabench_plugin.billing import COLUMNS, BillError, import_bill

    chosen = dict(pair.partition("=")[::2] for pair in column or ())
    if unknown := set(chosen) - set(COLUMNS):
        stop(f"--column {', '.join(sorted(unknown))}: expected one of {', '.join(COLUMNS)}, as in cost=Amount")
    try:
        result = import_bill(file, campaign, chosen)
    except BillError as error:
        stop(str(error))
    for folder, bill in result.attempts.items():
        print(
            f"${bill.cost_usd:.4f} in {bill.rows} rows by {', '.join(bill.joined_by)}: {folder.relative_to(campaign)}"
        )
    for charge, why in result.left[:20]:
        print(f"NOT JOINED row {charge.number} (${charge.cost_usd:.4f}): {why}")
    left = sum(charge.cost_usd for charge, _ in result.left)
    rest = f"${left:.4f} in {len(result.left)} rows not joined"
    print(f"${result.billed_usd:.4f} joined to {len(result.attempts)} runs; {rest}")
    if result.before:
        before = sum(charge.cost_usd for charge in result.before)
        print(f"${before:.4f} in {len(result.before)} rows booked before")
    if result.left:
        raise typer.Exit(1)


@cost_app.command("show")
def show_cost(
    campaign: Annotated[Path, typer.Argument(help="A campaign folder.")],
    prices: Annotated[Path | None, typer.Option(help="Price the metered tokens by this table.")] = None,
) -> None:
    """Print per configuration what was metered and what was billed, with the source of each."""
    if not campaign.is_dir():
        stop(f"{campaign}: no such campaign folder")
    print("\n".join(cost_lines([campaign], read_price_table(prices))))


def cost_lines(campaigns: Iterable[Path], prices: PriceTable | None) -> list[str]:
    """Return the lines of the cost table; every attempt is counted, for every attempt was paid."""
    from biabench_plugin.billing import BillError, configuration_costs

    try:
        found = configuration_costs(campaigns, prices)
    except BillError as error:
        stop(str(error))
    if not found:
        return ["no run was recorded"]
    lines = [f"{'configuration':<40} {'runs':>5} {'metered USD':>12} {'billed USD':>12}  source"]
    for name, line in found.items():
        lines.append(
            f"{name:<40} {line.runs:>5} {_money(line.metered_usd, line.metered_runs, line.runs):>12} "
            f"{_money(line.billed_usd, line.billed_runs, line.runs):>12}  {', '.join(line.sources) or '–'}"
        )
    return lines


def _money(total: float, having: int, runs: int) -> str:
    if having == 0:
        return "–"
    return f"{total:.4f}" if having == runs else f"{total:.4f}*{having}"
