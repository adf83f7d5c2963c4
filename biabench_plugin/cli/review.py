"""Commands of human review: review, agreement."""

from __future__ import annotations

import webbrowser
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console
from rich.table import Table

from biabench_plugin.cli._app import TaskFolders, app, find_tasks, stop

if TYPE_CHECKING:
    from biabench_plugin.review.measure import AgreementReport, JudgeAgreement
    from evaluators.process.agreement import Agreement
    from evaluators.process.model import Judgement

_FOLDER = "review"
_SAMPLE = 20


@app.command()
def review(
    path: Annotated[Path, typer.Argument(metavar="CAMPAIGN", help="A campaign folder, or a blinded copy sent to you.")],
    sample: Annotated[
        int | None, typer.Option(min=1, help="Runs to draw; they cover every agent and task; default: 20.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Same seed, same draw; default: 0.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the review; default: CAMPAIGN/review.")] = None,
    reviewer: Annotated[str, typer.Option(help="Name that answers are kept under; the page asks otherwise.")] = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    synthetic: Annotated[bool, typer.Option("--synthetic", help="Draw runs of synthetic agents too.")] = False,
    serve: Annotated[bool, typer.Option(help="Serve the page; otherwise only draw and copy.")] = True,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    tasks: TaskFolders = None,
) -> None:
    """Draw runs of CAMPAIGN, blind them, and serve a page on which people answer the rubric.

    The second call continues the review that is there. Stop with Ctrl-C; every answer is saved when it is given.
    """
    from biabench_plugin.review.copying import prepare
    from biabench_plugin.review.model import COPY, KEY_FILE, REVIEW_FILE, ReviewError, read_key
    from biabench_plugin.review.rubric import rubric_items, rubric_version
    from biabench_plugin.review.server import ReviewServer

    if not path.is_dir():
        stop(f"{path}: no such folder")
    sent = (path / REVIEW_FILE).is_file()
    folder = out or path / _FOLDER
    copy = path if sent else folder / COPY
    try:
        if not sent and (folder / KEY_FILE).is_file() and (copy / REVIEW_FILE).is_file():
            key = read_key(folder)
            if sample not in (None, key.sample) or seed not in (None, key.seed):
                stop(
                    f"{folder}: holds a review with --sample {key.sample} --seed {key.seed}; "
                    "give the same or neither, or another --out"
                )
        elif not sent:
            key = prepare(
                path,
                folder,
                find_tasks(tasks),
                rubric_items,
                rubric_version(),
                sample=_SAMPLE if sample is None else sample,
                seed=seed or 0,
                synthetic=synthetic,
                progress=lambda text: print(text, flush=True),
            )
            print("\n".join(f"left out: {line}" for line in key.left_out), end="\n" if key.left_out else "")
            print(f"copy for reviewers  {copy}\nkey, keep it back   {folder / KEY_FILE}", flush=True)
        if not serve:
            return
        server = ReviewServer(copy, port, reviewer)
    except (ReviewError, OSError) as error:
        stop(str(error))
    print(f"review page         {server.url}\nStop with Ctrl-C.", flush=True)
    if browser:
        webbrowser.open(server.url)
    try:
        server.serve()
    except KeyboardInterrupt:
        print("stopped; answers are in", copy / "answers")


@app.command()
def agreement(
    campaign: Annotated[Path, typer.Argument(help="The campaign that was reviewed and judged.")],
    folder: Annotated[Path | None, typer.Option("--review", help="Folder of the review; default: below it.")] = None,
    judge: Annotated[list[str] | None, typer.Option(help="Compare this judge; repeatable; default: all.")] = None,
    reviewer: Annotated[str | None, typer.Option(help="Reference; default: the majority of all reviewers.")] = None,
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples of whole runs.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 20260903,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole report as JSON.")] = False,
) -> None:
    """Measure how far judges agree with the reviewers of CAMPAIGN.

    Writes agreement.json and reviews.csv (single items, which biabench report shows) into the review's folder.
    """
    from biabench_plugin.records import write_atomically
    from biabench_plugin.report.reviews import FILE_NAME, write_reviews
    from biabench_plugin.review.measure import REPORT_FILE, measure
    from biabench_plugin.review.model import ReviewError

    where = folder or campaign / _FOLDER
    try:
        found = measure(
            campaign, where, _judgements, reviewer=reviewer, judges=judge or (), resamples=resamples, seed=seed
        )
    except (ReviewError, ValueError, OSError) as error:
        stop(str(error))
    write_atomically(where / REPORT_FILE, found.to_json())
    write_atomically(where / FILE_NAME, write_reviews(found.reviewed))
    if as_json:
        print(found.to_json(), end="")
        return
    show(found, Console(width=110, markup=False, highlight=False))
    print(f"report    {where / REPORT_FILE}\nitems     {where / FILE_NAME}")


def _judgements(attempt: Path) -> Iterable[Judgement]:
    from evaluators.process.store import judgements

    return cast("Iterable[Judgement]", judgements(attempt))


def show(found: AgreementReport, console: Console) -> None:
    """Print a report as tables."""
    console.print(
        f"{found.items} items of {found.runs} runs; reference: {found.reference}; rubric {found.rubric_version}. "
        f"Intervals: 95 %, {found.resamples} resamples of whole runs."
    )
    for one in found.reviewers:
        console.print(
            f"{one.name}: {one.yes} yes, {one.no} no, {one.cannot_tell} cannot tell, "
            f"{one.does_not_apply} does not apply"
        )
    for note in found.notes:
        console.print(f"note: {note}")
    _judges(found, console)
    for judge in found.judges:
        title = f"{judge.judge} ({judge.view}) by section and severity"
        _strata({**judge.sections, **judge.kinds, **judge.severities}, title, console)
    _relations(found, console)
    _pairs(found, console)
    _items(found, console)
    _harness(found, console)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for position, name in enumerate(columns):
        table.add_column(name, justify="left" if position == 0 else "right")
    return table


def _judges(found: AgreementReport, console: Console) -> None:
    from biabench_plugin.review.measure import interval

    table = _table(
        "\nJudges", "judge", "view", "both", "accuracy", "κ", "over-credit", "under-credit", "abstains", "errors"
    )
    for one in found.judges:
        values = one.overall.estimates
        table.add_row(
            one.judge,
            one.view,
            str(one.overall.both),
            *(interval(values[name]) for name in ("accuracy", "kappa", "over_credit", "under_credit")),
            _percent(values["abstention"].value),
            str(one.errors),
        )
    if found.judges:
        console.print(table)
    for one in found.judges:
        values = one.overall.estimates
        console.print(
            f"{one.judge} ({one.view}), protocol {one.protocol_version}: abstains on "
            f"{_percent(values['skips_abstained'].value)} of the reviewers' skips; the reviewers decided "
            f"{_percent(values['abstentions_decided'].value)} of its abstentions; {one.by_rule} items by rule; "
            f"{one.not_judged} answered items not judged, {one.void_runs} runs void"
        )


def _strata(strata: Mapping[str, Agreement], title: str, console: Console) -> None:
    from biabench_plugin.review.measure import interval

    table = _table(f"\n{title}", "", "both", "accuracy", "κ", "over-credit", "under-credit")
    for name, one in strata.items():
        estimates = (one.estimates[key] for key in ("accuracy", "kappa", "over_credit", "under_credit"))
        table.add_row(name, str(one.both), *map(interval, estimates))
    console.print(table)


def _relations(found: AgreementReport, console: Console) -> None:
    from biabench_plugin.review.measure import interval

    table = _table("\nProcess scores of runs", "", "runs", "Pearson r", "Spearman ρ", "difference")

    def add(name: str, one: object) -> None:
        from evaluators.process.agreement import Relation

        assert isinstance(one, Relation)
        difference = "–" if one.difference is None else f"{one.difference:+.3f}"
        table.add_row(name, str(one.runs), interval(one.pearson), interval(one.spearman), difference)

    for judge in found.judges:
        name = f"{judge.judge} ({judge.view})"
        add(f"reviewers, {name}", judge.process)
        add(f"reviewers, {name}, items of both", judge.process_common)
    add("reviewers, outcome", found.reviewer_outcome)
    for judge in found.judges:
        add(f"{judge.judge} ({judge.view}), outcome", judge.judge_outcome)
    console.print(table)


def _pairs(found: AgreementReport, console: Console) -> None:
    from biabench_plugin.review.measure import interval

    if not found.pairs:
        return
    table = _table("\nReviewers with each other", "reviewers", "items", "both", "accuracy", "κ", "κ with skips")
    for pair in found.pairs:
        table.add_row(
            f"{pair.one}, {pair.other}",
            str(pair.items),
            str(pair.both),
            *map(interval, (pair.accuracy, pair.kappa, pair.kappa3)),
        )
    console.print(table)


def _items(found: AgreementReport, console: Console) -> None:
    table = _table("\nSeverities under review", "severity", "decided", "failed", "of the weight", "of the failures")
    for severity in found.severities:
        rate = severity.failed / severity.decided if severity.decided else None
        table.add_row(
            severity.severity,
            str(severity.decided),
            f"{severity.failed} ({_percent(rate)})",
            _percent(severity.weight_share),
            _percent(severity.failure_share),
        )
    console.print(table)
    judge = found.judges[0] if found.judges else None
    agrees = "" if judge is None else f"{judge.judge} agrees"
    table = _table(f"\nFailed most often (decided in at least {found.least_runs} runs)", "item", "failed", agrees)
    for item in found.failed:
        table.add_row(
            f"{item.item} {found.statements[item.item]} ({found.item_severities[item.item]})",
            f"{item.failed}/{item.decided}",
            _agrees(judge, item.item),
        )
    console.print(table)
    if found.skipped:
        table = _table("\nSkipped in at least half of their runs", "item", "skipped")
        for item in found.skipped:
            statement = f"{item.item} {found.statements[item.item]}"
            table.add_row(statement, f"{item.appeared - item.decided}/{item.appeared}")
        console.print(table)


def _agrees(judge: JudgeAgreement | None, item: int) -> str:
    agreed, both = (0, 0) if judge is None else judge.agreed.get(item, (0, 0))
    return f"{agreed}/{both}" if both else "–"


def _harness(found: AgreementReport, console: Console) -> None:
    names = list(dict.fromkeys(name for one in found.evidence for name in one.abstention))
    table = _table(
        "\nEvidence by agent",
        *("agent", "runs", "script", "report", "log", "reviewed", "skipped"),
        *(f"{name} abstains" for name in names),
    )
    for one in found.evidence:
        table.add_row(
            one.agent,
            str(one.runs),
            *map(_percent, (one.script, one.report, one.log)),
            str(one.reviewed),
            _percent(one.skip_rate),
            *(_percent(one.abstention.get(name)) for name in names),
        )
    console.print(table)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"
