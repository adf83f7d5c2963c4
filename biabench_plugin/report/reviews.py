"""Agreement between judges and a human expert: Tables E2 and E3 of the paper, from decisions on the same items."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from biabench_plugin.report.runs import RunError
from biabench_plugin.report.stats import LEVEL, RESAMPLES, SEED, Interval, pearson, spearman
from biabench_plugin.report.table import Cell, Column, Table, Value

WEIGHTS: Mapping[str, int] = {"critical": 3, "major": 2, "minor": 1}
_DECIDED = ("pass", "fail")
_EXPERT = (*_DECIDED, "skip")
_JUDGE = (*_DECIDED, "unknown")
_LEAST_RUNS = 8  # runs in which the expert decided an item, for Table E3
_MOST_FAILED = 12

Counts = NDArray[np.float64]  # (..., 4): both pass, under-credited, over-credited, both fail


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


@dataclass(frozen=True)
class Agreement:
    """How a judge and an expert agree on the items that both decided."""

    items: int
    accuracy: Interval
    kappa: Interval
    over_credit: Interval  # judge passes what the expert failed
    under_credit: Interval  # judge fails what the expert passed
    abstention: float  # share of all items that the judge left open


_NEEDED = ("run", "agent", "item", "statement", "section", "severity", "expert", "outcome")


def read_reviews(path: Path) -> list[Reviewed]:
    """Read a CSV of reviewed items; every column beyond the named ones is a judge, the first is the adopted one."""
    with path.open(encoding="utf-8", newline="") as stream:
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
            if not known or line["severity"] not in WEIGHTS or not line["item"].isdecimal():
                raise RunError(f"{path}: line {number}: expected a whole item number, a severity and known verdicts")
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
                    outcome=float(line["outcome"]) if line["outcome"] else None,
                )
            )
    return found


def kappa(counts: Counts) -> Counts:
    """Cohen's kappa of 2 × 2 counts in the last axis; 1 where chance agreement is complete [1]_.

    References
    ----------
    .. [1] Cohen, Educational and Psychological Measurement 20, 37 (1960).
    """
    passes, under, over, fails = np.moveaxis(counts, -1, 0)
    total = passes + under + over + fails
    with np.errstate(invalid="ignore", divide="ignore"):
        observed = (passes + fails) / total
        chance = ((passes + under) * (passes + over) + (over + fails) * (under + fails)) / total**2
        found: Counts = np.where(chance >= 1, 1.0, (observed - chance) / (1 - chance))
    return np.where(total > 0, found, np.nan)


def _accuracy(counts: Counts) -> Counts:
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Counts = (counts[..., 0] + counts[..., 3]) / counts.sum(axis=-1)
    return found


def _share(counts: Counts, part: int, other: int) -> Counts:
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Counts = counts[..., part] / (counts[..., part] + counts[..., other])
    return found


def agreement(items: Sequence[Reviewed], judge: str, resamples: int = RESAMPLES, seed: int = SEED) -> Agreement:
    """Compare a judge with the expert; intervals resample whole runs, because items of a run are not independent."""
    runs = {name: index for index, name in enumerate(dict.fromkeys(item.run for item in items))}
    table = np.zeros((len(runs), 4))
    for item in items:
        if item.expert in _DECIDED and (verdict := item.verdicts.get(judge)) in _DECIDED:
            table[runs[item.run], 2 * (item.expert == "fail") + (verdict == "fail")] += 1
    asked = [item.verdicts[judge] for item in items if judge in item.verdicts]
    drawn = np.random.default_rng(seed).multinomial(len(runs), np.full(len(runs), 1 / len(runs)), resamples) @ table

    def interval(function: Callable[[Counts], Counts]) -> Interval:
        many = function(drawn)
        many = many[~np.isnan(many)]
        low, high = np.quantile(many, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) if many.size else (np.nan, np.nan)
        return Interval(float(function(table.sum(axis=0))), float(low), float(high))

    return Agreement(
        items=int(table.sum()),
        accuracy=interval(_accuracy),
        kappa=interval(kappa),
        over_credit=interval(lambda counts: _share(counts, 2, 3)),
        under_credit=interval(lambda counts: _share(counts, 1, 0)),
        abstention=asked.count("unknown") / len(asked) if asked else float("nan"),
    )


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
        row: list[Cell | Value] = [judge, stratum, found.items]
        for interval in (found.accuracy, found.kappa, found.over_credit, found.under_credit):
            row += [interval.value, interval.low, interval.high]
        rows.append((*row, found.abstention))
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


def most_failed(items: Sequence[Reviewed]) -> list[tuple[Reviewed, int, int, int, int]]:
    """Return the items failed most often: item, runs failed, decided, judge agreeing, decided by both."""
    adopted = judges(items)[0]
    found = []
    for number in sorted({item.item for item in items}):
        decided = [item for item in items if item.item == number and item.expert in _DECIDED]
        if len(decided) < _LEAST_RUNS:
            continue
        both = [item for item in decided if item.verdicts.get(adopted) in _DECIDED]
        failed = sum(item.expert == "fail" for item in decided)
        agree = sum(item.expert == item.verdicts[adopted] for item in both)
        found.append((decided[0], failed, len(decided), agree, len(both)))
    return sorted(found, key=lambda row: (-row[1] / row[2], -row[2], row[0].item))[:_MOST_FAILED]


def _table_e3(items: Sequence[Reviewed]) -> Table:
    return Table(
        "tableE3",
        "Table E3. Items failed most often under expert review",
        f"Items that the expert decided in at least {_LEAST_RUNS} runs, by share of runs that failed.",
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
                Cell(failed / decided, f"{failed}/{decided}"),
                Cell(agree / both, f"{agree}/{both}") if both else None,
            )
            for item, failed, decided, agree, both in most_failed(items)
        ],
        section="judge",
    )
