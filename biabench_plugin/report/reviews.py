"""Agreement between judges and a human expert: Tables E2 and E3 of the paper, from decisions on the same items."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from biabench_plugin.report.runs import RunError, csv_stream
from biabench_plugin.report.stats import RESAMPLES, SEED, pearson, spearman
from biabench_plugin.report.table import Cell, Column, Table, Value
from evaluators.process.agreement import (
    FAIL,
    PASS,
    UNDECIDED,
    Agreement,
    ItemCount,
    item_counts,
    least_runs,
    most_failed,
    resample,
    tables,
)
from evaluators.process.agreement import agreement as measured

WEIGHTS: Mapping[str, int] = {"critical": 3, "major": 2, "minor": 1}
FILE_NAME = "reviews.csv"
_DECIDED = ("pass", "fail")
_EXPERT = (*_DECIDED, "skip")
_JUDGE = (*_DECIDED, "unknown")
_CODES = {"pass": PASS, "fail": FAIL, "skip": UNDECIDED, "unknown": UNDECIDED}


@dataclass(frozen=True)
class Reviewed:
    """One rubric item of one run as an expert (``pass``, ``fail``, ``skip``) and each judge decided it.

    ``verdicts`` maps a judge to ``pass``, ``fail`` or ``unknown``; its first judge is the adopted one.
    """

    run: str
    agent: str
    item: int
    statement: str
    section: str
    severity: str
    expert: str
    verdicts: Mapping[str, str]
    outcome: float | None = None


_NEEDED = ("run", "agent", "item", "statement", "section", "severity", "expert", "outcome")


def read_reviews(path: Path) -> list[Reviewed]:
    """Read a CSV of reviewed items; every column beyond the named ones is a judge, the first is the adopted one."""
    with csv_stream(path) as stream:
        reader = csv.DictReader(stream)
        header = list(reader.fieldnames or [])
        missing = [name for name in _NEEDED if name not in header]
        judges = [name for name in header if name not in _NEEDED]
        if missing or not judges:
            raise RunError(
                f"{path}: expected columns {', '.join(_NEEDED)} and one per judge; found {', '.join(header)}"
            )
        found = []
        for number, line in enumerate(reader, start=2):
            verdicts = {judge: line[judge] for judge in judges if line[judge]}
            known = line["expert"] in _EXPERT and all(verdict in _JUDGE for verdict in verdicts.values())
            try:
                outcome = float(line["outcome"]) if line["outcome"] else None
            except ValueError:
                known = False
            if not known or line["severity"] not in WEIGHTS or not line["item"].isdecimal():
                raise RunError(
                    f"{path}: line {number}: expected a whole item number, a severity, known verdicts and a number as "
                    "outcome"
                )
            found.append(
                Reviewed(
                    run=line["run"],
                    agent=line["agent"],
                    item=int(line["item"]),
                    statement=line["statement"],
                    section=line["section"],
                    severity=line["severity"],
                    expert=line["expert"],
                    verdicts=verdicts,
                    outcome=outcome,
                )
            )
    return found


def write_reviews(items: Sequence[Reviewed]) -> str:
    """Return reviewed items as the CSV that :func:`read_reviews` reads."""
    text = io.StringIO()
    names = judges(items)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*_NEEDED, *names))
    for one in items:
        known = (one.run, one.agent, one.item, one.statement, one.section, one.severity, one.expert, one.outcome)
        writer.writerow((*known, *(one.verdicts.get(name, "") for name in names)))
    return text.getvalue()


def reviews_below(campaigns: Iterable[Path]) -> list[Reviewed]:
    """Return what ``biabench agreement`` left in campaign folders; runs keep apart by the campaign's name."""
    paths = [path for campaign in campaigns if (path := campaign / "review" / FILE_NAME).is_file()]
    return [replace(one, run=f"{path.parent.parent}/{one.run}") for path in paths for one in read_reviews(path)]


def agreement(items: Sequence[Reviewed], judge: str, resamples: int = RESAMPLES, seed: int = SEED) -> Agreement:
    """Compare a judge with the expert over the items it was asked; intervals resample whole runs.

    A judge that was not asked about an item has no verdict there, and the item does not count.
    """
    runs = {name: index for index, name in enumerate(dict.fromkeys(item.run for item in items))}
    asked = [item for item in items if judge in item.verdicts]
    per_run = tables(
        [runs[item.run] for item in asked],
        [_CODES[item.expert] for item in asked],
        [_CODES[item.verdicts[judge]] for item in asked],
        len(runs),
    )
    return measured(per_run, resample(len(runs), resamples, seed) if resamples else None)


def judges(items: Sequence[Reviewed]) -> list[str]:
    return list(dict.fromkeys(judge for item in items for judge in item.verdicts))


def process_scores(items: Iterable[Reviewed], judge: str | None = None) -> dict[str, float]:
    """Return the severity-weighted process score of every run by the expert (``None``) or by a judge."""
    earned: dict[str, list[int]] = {}
    for item in items:
        verdict = item.expert if judge is None else item.verdicts.get(judge)
        if verdict in _DECIDED:
            weight = WEIGHTS[item.severity]
            total = earned.setdefault(item.run, [0, 0])
            total[0] += weight * (verdict == "pass")
            total[1] += weight
    return {run: passed / decided for run, (passed, decided) in earned.items()}


def agreement_tables(items: Sequence[Reviewed]) -> list[Table]:
    """Return Tables E2 and E3; nothing where nobody reviewed."""
    if not items or not judges(items):
        return []
    return [_table_e2(items), _table_e3(items)]


def _table_e2(items: Sequence[Reviewed]) -> Table:
    adopted = judges(items)[0]
    parts: list[tuple[str, str, Sequence[Reviewed]]] = [(judge, "all items", items) for judge in judges(items)]
    for name in ("section", "severity"):
        values = sorted({getattr(item, name) for item in items})
        parts += [(adopted, value, [item for item in items if getattr(item, name) == value]) for value in values]
    rows: list[tuple[Cell | Value, ...]] = []
    for judge, stratum, members in parts:
        found = agreement(members, judge)
        row: list[Cell | Value] = [judge, stratum, found.both]
        for name in ("accuracy", "kappa", "over_credit", "under_credit"):
            estimate = found.estimates[name]
            row += [estimate.value, estimate.low, estimate.high]
        rows.append((*row, found.estimates["abstention"].value))
    columns = [Column("judge", "Judge", align="left"), Column("items", "Items", align="left"), Column("n", "n")]
    for key, title in (
        ("accuracy", "Accuracy"),
        ("kappa", "κ"),
        ("over_credit", "Over-credit"),
        ("under_credit", "Under-credit"),
    ):
        columns += [Column(key, title, 2), Column(f"{key}_low", "low", 2), Column(f"{key}_high", "high", 2)]
    skipped = sum(item.expert == "skip" for item in items)
    return Table(
        "tableE2",
        "Table E2. Agreement of judges with a human expert",
        f"{len({item.run for item in items})} runs, {len(items)} items, of which the expert skipped {skipped}. "
        "n counts items that both decided; intervals resample whole runs.",
        (*columns, Column("abstention", "Abstention", 2)),
        rows,
        (_run_level(items, adopted),),
        "judge",
    )


def _run_level(items: Sequence[Reviewed], adopted: str) -> str:
    expert, judged = process_scores(items), process_scores(items, adopted)
    runs = [run for run in expert if run in judged]
    outcome = {item.run: item.outcome for item in items if item.outcome is not None}
    pair = ([expert[run] for run in runs], [judged[run] for run in runs])
    scored = [run for run in expert if run in outcome]
    against = pearson([expert[run] for run in scored], [outcome[run] for run in scored])
    texts = ("–" if value is None else f"{value:.2f}" for value in (pearson(*pair), spearman(*pair), against))
    return "Run level: process scores of expert and adopted judge r = {}, ρ = {}; expert and outcome r = {}.".format(
        *texts
    )


def failed_items(items: Sequence[Reviewed]) -> list[tuple[Reviewed, ItemCount]]:
    """Return the items that the expert failed most often, each with its counts against the adopted judge."""
    adopted = judges(items)[0]
    counts = item_counts(
        [item.item for item in items],
        [_CODES[item.expert] for item in items],
        [_CODES[item.verdicts.get(adopted, "unknown")] for item in items],
    )
    first = {item.item: item for item in reversed(items)}
    return [(first[count.item], count) for count in most_failed(counts, _least_runs(items))]


def _least_runs(items: Sequence[Reviewed]) -> int:
    return least_runs(len({item.run for item in items}))


def _table_e3(items: Sequence[Reviewed]) -> Table:
    return Table(
        "tableE3",
        "Table E3. Items failed most often under expert review",
        f"Items that the expert decided in at least {_least_runs(items)} runs, by share of runs that failed.",
        (
            Column("item", "#"),
            Column("statement", "Item", align="left"),
            Column("severity", "Severity", align="left"),
            Column("failed", "Runs failed"),
            Column("agrees", "Judge agrees"),
        ),
        [
            (
                item.item,
                item.statement,
                item.severity,
                Cell(count.failed / count.decided, f"{count.failed}/{count.decided}"),
                Cell(count.agreed / count.both, f"{count.agreed}/{count.both}") if count.both else None,
            )
            for item, count in failed_items(items)
        ],
        section="judge",
    )
