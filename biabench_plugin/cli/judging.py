"""Commands of the process score: judge."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from biabench_plugin.cli._app import TaskFolders, app, find_tasks, stop

if TYPE_CHECKING:
    from biabench_plugin.judging import Summary
    from biabench_plugin.report.rows import Row
    from evaluators.process.model import JudgeUsage

JUDGE_FAILED = 4


@app.command()
def judge(
    campaign: Annotated[Path, typer.Argument(help="Campaign folder.")],
    model: Annotated[
        str | None,
        typer.Option(help="Judge; `rules` asks no model. Default: the study's judge, by whichever key is set."),
    ] = None,
    chunk: Annotated[str, typer.Option(help="Items in a request: a number, or `all`.")] = "2",
    batch: Annotated[bool, typer.Option("--batch", help="Message Batches: half the price, within a day.")] = False,
    max_cost: Annotated[float | None, typer.Option(min=0.0, help="Largest cost of this session, in USD.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print requests, tokens and price; spend nothing.")
    ] = False,
    base_url: Annotated[str | None, typer.Option(help="Any endpoint compatible with Anthropic's Messages.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="Requests in flight at once.")] = 4,
    poll_seconds: Annotated[float, typer.Option(min=0.01, help="Between questions for the state of a batch.")] = 30.0,
    tasks: TaskFolders = None,
) -> None:
    """Judge how the trials of a campaign were carried out; safe to interrupt and to call again."""
    from biabench_plugin import judging
    from evaluators.process.judge import JudgeUnavailableError
    from evaluators.process.requests import Asking

    if not campaign.is_dir():
        stop(f"{campaign}: no such campaign folder")
    asking = Asking(model or default_model(), chunk=parse_chunk(chunk))
    found = find_tasks(tasks)
    try:
        if dry_run:
            _print_estimates(judging.estimate_campaign(campaign, found, asking, batch=batch), asking.model)
            return
        with _Progress() as progress:
            summary = judging.judge_campaign(
                campaign,
                found,
                asking,
                base_url=base_url,
                batch=batch,
                max_cost=max_cost,
                concurrency=concurrency,
                poll_seconds=poll_seconds,
                progress=progress.tell,
            )
    except JudgeUnavailableError as error:
        stop(str(error), JUDGE_FAILED)
    except (ValueError, OSError, RuntimeError) as error:
        stop(str(error))
    except KeyboardInterrupt:
        stop("interrupted; answers so far are kept, and the same command continues", 130)
    _print_scores(summary)
    if summary.errors:
        raise typer.Exit(JUDGE_FAILED)


def default_model() -> str:
    """Return the study's judge by the route for which there is a key."""
    import os

    from evaluators.process.judge import DEFAULT_MODEL, ROUTED_MODEL

    direct = os.environ.get("ANTHROPIC_API_KEY") and not os.environ.get("OPENROUTER_API_KEY")
    return DEFAULT_MODEL if direct else ROUTED_MODEL


def parse_chunk(text: str) -> int | None:
    """Parse a number of items, or ``all``."""
    if text == "all":
        return None
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        stop(f"--chunk {text}: expected a whole number from 1 on, or all")
    return int(text)


class _Progress:
    """A progress bar on a terminal, nothing elsewhere."""

    def __enter__(self) -> _Progress:
        from rich.progress import Progress

        self._bar = Progress(console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True)
        self._bar.start()
        self._task = self._bar.add_task("judging", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def tell(self, done: int, total: int, what: str) -> None:
        self._bar.update(self._task, completed=done, total=total, description=what)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < 2 else "right", overflow="fold")
    return table


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 160, markup=False)


def _print_estimates(estimates: list[tuple[Row, JudgeUsage]], model: str) -> None:
    from evaluators.process.model import JudgeUsage

    table = _table("task", "configuration", "requests", "fresh", "cached", "written", "output", "USD")
    total = JudgeUsage(cost_usd=0.0)
    for row, usage in estimates:
        table.add_row(row.task, f"{row.configuration} r{row.repeat}", *_cells(usage))
        for name in ("requests", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens"):
            setattr(total, name, getattr(total, name) + getattr(usage, name))
        known = total.cost_usd is not None and usage.cost_usd is not None
        total.cost_usd = (total.cost_usd or 0.0) + (usage.cost_usd or 0.0) if known else None
    table.add_row("all", "", *_cells(total))
    console = _console()
    console.print(table)
    console.print(f"judge {model}: an estimate of tokens; nothing was sent")


def _cells(usage: JudgeUsage) -> list[str]:
    counts = (
        usage.requests,
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
    )
    return [*(f"{count:,}" for count in counts), "?" if usage.cost_usd is None else f"{usage.cost_usd:.4f}"]


def _print_scores(summary: Summary) -> None:
    from evaluators.process.views import view

    table = _table("task", "configuration", "process", "interval", "undecided", "by rule", "by model", "published")
    notes = []
    for row, judgement in summary.judged:
        found = view(judgement)
        interval = "-" if found.low is None or found.high is None else f"{found.low:.3f}-{found.high:.3f}"
        numbers = [_number(found.score), interval, _number(found.auditability)]
        counts = [str(found.by_rule), str(found.by_model), _number(found.published)]
        table.add_row(row.task, f"{row.configuration} r{row.repeat}", *numbers, *counts)
        if found.problem:
            notes.append(f"{row.task} {row.configuration} r{row.repeat}: no process score: {found.problem}")
    console = _console()
    console.print(table)
    for line in [*notes, *summary.lines()]:
        console.print(line)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
