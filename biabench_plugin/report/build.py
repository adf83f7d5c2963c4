"""Write the leaderboard file and the HTML page, and give the lines for the terminal."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.console import Console
from rich.table import Table

from biabench_plugin import checkout
from biabench_plugin.records import write_atomically
from biabench_plugin.report.board import HARD, Board, boards
from biabench_plugin.report.mixed import mixed_lines
from biabench_plugin.report.rows import Row, load
from biabench_plugin.report.runs import Run, load_runs, with_paper
from biabench_plugin.report.summary import Line, RankBy, summarise
from biabench_plugin.report.trial_page import FOLDER, RowKey, TrialPage, digest, style, write_pages
from biabench_plugin.report.wire_notes import wire_lines
from biabench_plugin.source_study import read_audit
from biabench_plugin.taskspec import Difficulty, TaskSpec

if TYPE_CHECKING:
    from agents.pricing import PriceTable
    from biabench_plugin.report.export import Exported
    from biabench_plugin.report.reviews import Reviewed

WIDTH = 100
_NUMBERS_WIDTH = 64  # of the terminal's table of configurations
_DATASET_WIDTH = 8
FAILING = 50  # rows of failing trials in a terminal


@dataclass(frozen=True)
class Report:
    """What was aggregated, and where it was written."""

    folder: Path
    leaderboard: Path
    page: Path
    rows: list[Row]
    lines: list[Line]
    labels: Mapping[str, str]
    rank_by: RankBy
    order: list[str]
    boards: list[Board]

    def terminal_lines(self, *, colour: bool = False) -> list[str]:
        """Return one row per configuration, one per failing trial, and the paths, at most 100 columns wide.

        Parameters
        ----------
        colour
            Whether the reader is a terminal that shows colours; without it the lines hold no escape sequence.
        """
        if not self.rows:
            ranked = _text(self._ranking(), colour).splitlines() if self.boards else ["no trials were recorded"]
            return [*ranked, f"report    {self.page}"]
        lines = _text(self._scores(), colour).splitlines() + _text(self._configurations(), colour).splitlines()
        failing = [row for row in self.rows if row.status != "delivered"]
        for row in failing[:FAILING]:
            # an agent's words steer no terminal
            said = "".join(sign if sign.isprintable() else " " for sign in row.note)
            what = f"{row.task} {row.configuration} r{row.repeat}: {row.status}: {' '.join(said.split())}"
            lines.append(_paint(what if len(what) <= WIDTH else what[: WIDTH - 1] + "…", "31", colour))
        if len(failing) > FAILING:
            lines.append(f"… and {len(failing) - FAILING} more trials that did not deliver; the report lists them")
        warnings = []
        if any(line.demo for line in self.lines):
            warnings.append("Demo data: these scores check an installation; they are not benchmark results.")
        if uncontained := sum(line.uncontained for line in self.lines if not line.synthetic):
            warnings.append(f"{uncontained} trial(s) ran without containment: truth was not protected from the agent.")
        warnings += mixed_lines(self.rows, WIDTH) + wire_lines(self.rows, WIDTH) + _source_study(self.rows)
        lines += [_paint(text, "33", colour) for text in warnings]
        campaign = [f"campaign  {self.folder}"] if (self.folder / "runs").is_dir() else []
        return [*lines, *campaign, f"report    {self.page}"]

    def _ranking(self) -> Table:
        """Runs of leaderboard entries and CSV files, which are no trials of a campaign."""
        table = Table(box=None, pad_edge=False)
        table.add_column("configuration", no_wrap=True, overflow="ellipsis")
        for name in (self.rank_by, "95 % interval", "tasks"):
            table.add_column(name, justify="right", no_wrap=True)
        for place in (place for board in self.boards for place in board.places):
            interval = "–" if place.low is None else f"{place.low:.3f} to {place.high:.3f}"
            table.add_row(place.label, _number(place.value), interval, str(place.tasks))
        return table

    def _scores(self) -> Table:
        """Tasks down, configurations across, while they fit; otherwise the first ones."""
        table = Table(title_justify="left", box=None, pad_edge=False)
        table.add_column("task", no_wrap=True)
        room = WIDTH - max(len(label) for label in self.labels.values()) - 2
        shown: list[Line] = []
        for line in self.lines:
            room -= max(7, len(line.configuration) + 2)
            if room < 0:
                break
            shown.append(line)
            table.add_column(line.configuration, justify="right", no_wrap=True)
        some = f", {len(shown)} of {len(self.lines)} configurations" if len(shown) < len(self.lines) else ""
        table.title = f"{self.rank_by} score by task{some}"
        for task in self.order:
            table.add_row(self.labels.get(task, task), *(self._cell(line, task) for line in shown))
        table.add_row("mean over tasks", *(_number(self._ranked(line)) for line in shown))
        return table

    def _cell(self, line: Line, task: str) -> str:
        found = line.cells.get(task)
        if found is None:
            return ""
        value = found.outcome if self.rank_by == "outcome" else found.strict
        if value is None and found.states["refused"]:
            return "R"
        return _number(value)

    def _ranked(self, line: Line) -> float | None:
        return line.outcome if self.rank_by == "outcome" else line.strict

    def _configurations(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for name in ("configuration", "dataset"):
            table.add_column(name, no_wrap=True, overflow="ellipsis")
        for name in ("outcome", "± s.d.", "strict", "D/N/C/R", "faults", "late", "min"):
            table.add_column(name, justify="right", no_wrap=True)
        room = WIDTH - _NUMBERS_WIDTH - min(_DATASET_WIDTH, max((len(line.dataset) for line in self.lines), default=0))
        for line in self.lines:
            table.add_row(
                _shortened(line.configuration, room),
                _shortened(line.dataset, _DATASET_WIDTH),
                _number(line.outcome),
                _number(line.outcome_sd),
                _number(line.strict),
                line.end_states,
                str(line.infrastructure + line.not_run),
                str(line.timed_out),
                "" if line.minutes is None else f"{line.minutes:.2f}",
            )
        return table


def _shortened(name: str, room: int) -> str:
    """Cut a name in its middle: the ends tell agents and models apart."""
    if len(name) <= room:
        return name
    tail = (room - 1) // 2
    return f"{name[: room - 1 - tail]}…{name[len(name) - tail :]}"


def _source_study(rows: Iterable[Row]) -> list[str]:
    """Name the trials whose agent looked up the study that the task comes from."""
    found = [(row, read_audit(row.folder)) for row in rows if row.folder is not None]
    flagged = [(row, audit) for row, audit in found if audit is not None and audit.flagged]
    lines = [
        f"SOURCE STUDY {row.task} {row.configuration} r{row.repeat}: {audit.hits[0].target}"[:WIDTH]
        for row, audit in flagged[:10]
    ]
    if flagged:
        lines.append(f"{len(flagged)} trial(s) reached for the study behind their task: biabench audit CAMPAIGN")
    return lines


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _paint(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text


def _text(table: Table, colour: bool) -> str:
    stream = io.StringIO()
    system: Literal["standard"] | None = "standard" if colour else None
    console = Console(
        file=stream, width=WIDTH, color_system=system, force_terminal=colour, markup=False, highlight=False
    )
    console.print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n\n"


def build(
    paths: Iterable[Path],
    out: Path,
    tasks: Mapping[str, TaskSpec],
    *,
    rank_by: RankBy = "outcome",
    compare: bool = False,
    reviewed: Sequence[Reviewed] | None = None,
    prices: PriceTable | None = None,
    figures: bool = True,
) -> Report:
    """Aggregate runs; write ``leaderboard.json`` and ``report/`` below ``out``.

    Parameters
    ----------
    paths
        Campaign folders, JUnit XML files, leaderboard entries and run CSVs. One that does not exist is passed over.
    out
        Gets ``leaderboard.json`` and ``report/index.html`` with ``report/trials/``, ``tables/`` and ``figures/``.
    tasks
        Task specifications by slug.
    rank_by
        Which score orders configurations.
    compare
        Whether the study's configurations stand beside these runs.
    reviewed
        Rubric items that an expert and judges decided, for the tables and the figure of agreement; by default those
        that ``biabench agreement`` left in the campaign folders.
    prices
        Price the tokens of records by this table, whatever was recorded or billed.
    figures
        Whether every table and figure is made, which takes some seconds.
    """
    found = [path for path in paths if path.exists()]
    rows = load(path for path in found if path.is_dir() or path.suffix.lower() == ".xml")
    lines = summarise(rows, rank_by)
    exported, runs = _statistics(
        found, tasks, out / "report", compare=compare, reviewed=reviewed, prices=prices, figures=figures
    )
    slugs = {row.task for row in rows} | {run.task for run in runs}
    labels = {slug: task.label for slug, task in tasks.items()} | {slug: slug for slug in slugs if slug not in tasks}
    order = _order(slugs, tasks)
    report = Report(
        folder=out,
        leaderboard=out / "leaderboard.json",
        page=out / "report" / "index.html",
        rows=rows,
        lines=lines,
        labels=labels,
        rank_by=rank_by,
        order=order,
        boards=boards(runs, tasks, rank_by),
    )
    write_atomically(report.leaderboard, json.dumps(_leaderboard(report), indent=1, sort_keys=True) + "\n")
    pages = write_pages(rows, report.page.parent / FOLDER, tasks)
    write_atomically(report.page, _page(report, tasks, pages, exported, runs))
    return report


def _statistics(
    paths: Sequence[Path],
    tasks: Mapping[str, TaskSpec],
    folder: Path,
    *,
    compare: bool,
    reviewed: Sequence[Reviewed] | None,
    prices: PriceTable | None,
    figures: bool,
) -> tuple[Exported | None, list[Run]]:
    """Read the runs and write every table and figure of them."""
    runs = load_runs(paths, tasks, prices)
    if compare:
        runs = with_paper(runs, tasks)
    if not (runs and figures):
        return None, runs
    from biabench_plugin.report.export import export  # loads Matplotlib, which short sessions need not wait for
    from biabench_plugin.report.reviews import reviews_below  # and this SciPy

    if reviewed is None:
        reviewed = reviews_below(path for path in paths if path.is_dir())
    return export(runs, tasks, folder, reviewed, prices), runs


def _order(slugs: Iterable[str], tasks: Mapping[str, TaskSpec]) -> list[str]:
    """Easy tasks first, as in the paper's tables; tasks that are not at hand last."""
    return sorted(slugs, key=lambda slug: (_difficulty(slug, tasks)[0], slug))


def _difficulty(slug: str, tasks: Mapping[str, TaskSpec]) -> tuple[int, str]:
    ranks = {difficulty: rank for rank, difficulty in enumerate(Difficulty)}
    return (ranks[tasks[slug].difficulty], tasks[slug].difficulty.value) if slug in tasks else (len(ranks), "")


def _leaderboard(report: Report) -> dict[str, Any]:
    """Return the aggregates; without a time stamp, so that the same records give the same file."""
    return {
        "schema_version": 1,
        "biabench": checkout.version(),
        "rank_by": report.rank_by,
        "rows": [asdict(line) | {"demo": line.demo} for line in report.lines],
        "evaluators": sorted(
            {
                f"{row.record.task}: {row.record.score.evaluator} {row.record.score.evaluator_version}"
                for row in report.rows
                if row.record is not None and row.record.score is not None
            }
        ),
    }


@dataclass(frozen=True)
class _Link:
    """A trial's page as the overview shows it."""

    href: str
    contradictions: list[str]


def _page(
    report: Report,
    tasks: Mapping[str, TaskSpec],
    pages: Mapping[RowKey, TrialPage],
    exported: Exported | None,
    runs: Sequence[Run],
) -> str:
    environment = Environment(
        loader=PackageLoader("biabench_plugin", "report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["score"] = _number
    environment.filters["base64"] = lambda data: base64.b64encode(data).decode()
    links = {
        key: _Link(
            f"{FOLDER}/{page.path.name}", [] if page.audit is None else [f.code for f in page.audit.contradictions]
        )
        for key, page in pages.items()
    }
    first: dict[tuple[str, str, str], str] = {}
    for row in report.rows:
        if row.key in links:
            first.setdefault((row.dataset, row.configuration, row.task), links[row.key].href)
            first.setdefault((_published(row), row.configuration, row.task), links[row.key].href)
    script = (Path(__file__).parent / "report.js").read_text(encoding="utf-8")
    return environment.get_template("page.html").render(
        report=report,
        mixed=mixed_lines(report.rows, 400),
        lines=report.lines,
        rows=report.rows,
        boards=report.boards,
        hard=HARD,
        trials=len(runs),
        places=sum(len(board.places) for board in report.boards),
        labels=report.labels,
        difficulty={slug: _difficulty(slug, tasks) for slug in report.labels},
        links=first,
        pages=links,
        contradictions=_contradictions(report.rows, links),
        several_datasets=len({row.dataset for row in report.rows}) > 1,
        figures=[] if exported is None else exported.figures,
        tables=[] if exported is None else exported.tables,
        version=checkout.version(),
        style=style(),
        style_digest=digest(style()),
        script=script,
        script_digest=digest(script),
    )


def _published(row: Row) -> str:
    """Return the name by which statistics call a row's dataset."""
    return "full" if row.record is not None and row.record.dataset.kind == "full" else row.dataset


def _contradictions(rows: Iterable[Row], links: Mapping[RowKey, _Link]) -> dict[tuple[str, str], int]:
    """Trials per configuration whose words contradict their files."""
    found: dict[tuple[str, str], int] = {}
    for row in rows:
        if row.key in links:
            name = (row.dataset, row.configuration)
            found[name] = found.get(name, 0) + bool(links[row.key].contradictions)
    return found
