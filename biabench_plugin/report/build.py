"""Write the leaderboard file and the HTML page, and give the lines for the terminal."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.console import Console
from rich.table import Table

from biabench_plugin import checkout
from biabench_plugin.records import write_atomically
from biabench_plugin.report.rows import Row, load
from biabench_plugin.report.summary import Line, RankBy, summarise
from biabench_plugin.source_study import read_audit
from biabench_plugin.taskspec import Difficulty, TaskSpec

WIDTH = 100


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

    def terminal_lines(self) -> list[str]:
        """Return the score table, the failing trials and the paths, at most 100 columns wide."""
        if not self.rows:
            return ["no trials were recorded", f"campaign  {self.folder}"]
        text = _text(self._scores()) + _text(self._configurations())
        failing = [row for row in self.rows if row.status != "delivered"]
        lines = text.splitlines()
        for row in failing[:20]:
            what = f"{row.task} {row.configuration} r{row.repeat}: {row.status}: {row.note}"
            lines.append(what if len(what) <= WIDTH else what[: WIDTH - 1] + "…")
        if len(failing) > 20:
            lines.append(f"… and {len(failing) - 20} more trials that did not deliver")
        if any(line.demo for line in self.lines):
            lines.append("Demo data: these scores check an installation; they are not benchmark results.")
        if uncontained := sum(line.uncontained for line in self.lines if not line.synthetic):
            lines.append(f"{uncontained} trial(s) ran without containment: truth was not protected from the agent.")
        lines += _source_study(self.rows)
        return [*lines, f"campaign  {self.folder}", f"report    {self.page}"]

    def _scores(self) -> Table:
        """Tasks down, configurations across, while they fit; otherwise the first ones."""
        table = Table(title=f"{self.rank_by} score by task", title_justify="left", box=None, pad_edge=False)
        table.add_column("task", no_wrap=True)
        room = WIDTH - max(len(label) for label in self.labels.values()) - 2
        shown: list[Line] = []
        for line in self.lines:
            room -= max(7, len(line.configuration) + 2)
            if room < 0:
                break
            shown.append(line)
            table.add_column(line.configuration, justify="right", no_wrap=True)
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
        for line in self.lines:
            table.add_row(
                line.configuration,
                line.dataset,
                _number(line.outcome),
                _number(line.outcome_sd),
                _number(line.strict),
                line.end_states,
                str(line.infrastructure + line.not_run),
                str(line.timed_out),
                "" if line.minutes is None else f"{line.minutes:.2f}",
            )
        return table


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


def _text(table: Table) -> str:
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, markup=False, highlight=False)
    console.print(table)
    stream = console.file
    assert isinstance(stream, io.StringIO)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n\n"


def build(paths: Iterable[Path], out: Path, tasks: Mapping[str, TaskSpec], *, rank_by: RankBy = "outcome") -> Report:
    """Aggregate campaigns and JUnit files; write ``leaderboard.json`` and ``report/index.html`` below ``out``."""
    rows = load(path for path in paths if path.exists())
    lines = summarise(rows, rank_by)
    labels = {slug: task.label for slug, task in tasks.items()} | {
        row.task: row.task for row in rows if row.task not in tasks
    }
    report = Report(
        out, out / "leaderboard.json", out / "report" / "index.html", rows, lines, labels, rank_by, _order(rows, tasks)
    )
    write_atomically(report.leaderboard, json.dumps(_leaderboard(report), indent=1, sort_keys=True) + "\n")
    write_atomically(report.page, _page(report, tasks))
    return report


def _order(rows: Iterable[Row], tasks: Mapping[str, TaskSpec]) -> list[str]:
    """Easy tasks first, as in the paper's tables; tasks that are not at hand last."""
    ranks = {difficulty: rank for rank, difficulty in enumerate(Difficulty)}
    return sorted(
        {row.task for row in rows},
        key=lambda slug: (ranks[tasks[slug].difficulty] if slug in tasks else len(ranks), slug),
    )


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


def _page(report: Report, tasks: Mapping[str, TaskSpec]) -> str:
    environment = Environment(
        loader=PackageLoader("biabench_plugin", "report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["score"] = _number
    environment.globals["shade"] = _shade
    return environment.get_template("page.html").render(
        report=report,
        lines=report.lines,
        rows=report.rows,
        tasks=[(slug, tasks.get(slug)) for slug in report.order],
        version=checkout.version(),
        relative=lambda path: _relative(path, report.page.parent),
    )


def _relative(path: Path | None, start: Path) -> str | None:
    return None if path is None else Path(os.path.relpath(path, start)).as_posix()


def _shade(value: float | None) -> str:
    """Background of a heat-map cell: a single-hue ramp, readable in light and dark."""
    return "transparent" if value is None else f"rgba(20, 120, 140, {0.08 + 0.62 * value:.2f})"
