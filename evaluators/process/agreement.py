"""How far a judge agrees with human reviewers: pure functions on arrays of verdicts.

A verdict is :data:`PASS`, :data:`FAIL` or :data:`UNDECIDED`. Agreement is computed on the items that both sides
decided; abstentions of either side are reported as rates (paper, section 4.2 and appendix E). Items of one run are not
independent, so intervals resample whole runs. Every statistic is a function of the 3 x 3 table of verdicts, which makes
the bootstrap one matrix product: tables per run, times how often each run was drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

PASS, FAIL, UNDECIDED = 0, 1, 2
RESAMPLES = 10_000
SEED = 20260903  # of the published analysis
LEVEL = 95.0
_DECIDED_SHARE = 0.4

Table = NDArray[np.float64]  # (..., 3, 3): reviewer down, judge across


@dataclass(frozen=True)
class Estimate:
    """A statistic with its 95 % interval; ``None`` where undefined: nothing to divide by, or fewer than two runs."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Resamples:
    """Runs drawn with replacement.

    Attributes
    ----------
    index : (resamples, runs) int array
        Which run stands at each place of each resample.
    weights : (resamples, runs) float array
        How often each run was drawn.
    """

    index: NDArray[np.intp]
    weights: NDArray[np.float64]


def resample(runs: int, resamples: int = RESAMPLES, seed: int = SEED) -> Resamples:
    """Draw ``resamples`` times ``runs`` runs with replacement; the same seed gives the same draws."""
    if runs < 1:
        raise ValueError("nothing to resample: no run")
    index = np.random.default_rng(seed).integers(0, runs, size=(resamples, runs))
    flat = (index + np.arange(resamples)[:, None] * runs).ravel()
    weights = np.bincount(flat, minlength=resamples * runs).reshape(resamples, runs)
    return Resamples(index, weights.astype(np.float64))


def tables(run: ArrayLike, reviewer: ArrayLike, judge: ArrayLike, runs: int) -> Table:
    """Count verdict pairs per run.

    Parameters
    ----------
    run : (n,) int array_like
        Run of each item, from 0 to ``runs - 1``.
    reviewer, judge : (n,) int array_like
        Verdicts.

    Returns
    -------
    (runs, 3, 3) float array
        Reviewer's verdict down, judge's across.
    """
    where, one, other = (np.asarray(values, np.intp).ravel() for values in (run, reviewer, judge))
    if not len(where) == len(one) == len(other):
        raise ValueError(f"expected one verdict of each side per item, found {len(where)}, {len(one)}, {len(other)}")
    for values, most in ((where, runs - 1), (one, UNDECIDED), (other, UNDECIDED)):
        if len(values) and not 0 <= values.min() <= values.max() <= most:
            raise ValueError(f"expected values from 0 to {most}, found {values.min()} to {values.max()}")
    counts = np.bincount(where * 9 + one * 3 + other, minlength=runs * 9)
    return counts.reshape(runs, 3, 3).astype(np.float64)


def _share(part: ArrayLike, whole: ArrayLike) -> NDArray[np.float64]:
    part, whole = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(whole > 0, part / whole, np.nan)


def both_decided(table: Table) -> NDArray[np.float64]:
    """Number of items that both sides decided."""
    return np.asarray(table[..., :2, :2].sum((-2, -1)))


def accuracy(table: Table) -> NDArray[np.float64]:
    """Share of the items both decided on which they agree."""
    return _share(table[..., PASS, PASS] + table[..., FAIL, FAIL], both_decided(table))


def cohen_kappa(table: Table) -> NDArray[np.float64]:
    """Cohen's kappa of a square table of any size: agreement beyond chance, ``(po - pe) / (1 - pe)``.

    Cohen, *Educational and Psychological Measurement* 20:37 (1960). Not a number where both sides gave one and the same
    verdict throughout: chance then explains everything, and kappa says nothing.

    Examples
    --------
    >>> round(float(cohen_kappa(np.array([[20.0, 5.0], [10.0, 15.0]]))), 3)
    0.4
    """
    total = table.sum((-2, -1))
    observed = _share(np.trace(table, axis1=-2, axis2=-1), total)
    chance = _share((table.sum(-1) * table.sum(-2)).sum(-1), total**2)
    return _share(observed - chance, 1.0 - chance)


def kappa(table: Table) -> NDArray[np.float64]:
    """Cohen's kappa over the items both decided."""
    return cohen_kappa(table[..., :2, :2])


def over_credit(table: Table) -> NDArray[np.float64]:
    """Share the judge passed of the items that the reviewer failed, among those both decided."""
    return _share(table[..., FAIL, PASS], table[..., FAIL, :2].sum(-1))


def under_credit(table: Table) -> NDArray[np.float64]:
    """Share the judge failed of the items that the reviewer passed, among those both decided."""
    return _share(table[..., PASS, FAIL], table[..., PASS, :2].sum(-1))


def fail_precision(table: Table) -> NDArray[np.float64]:
    """Share the reviewer failed too of the items that the judge failed, among those both decided."""
    return _share(table[..., FAIL, FAIL], table[..., :2, FAIL].sum(-1))


def leniency(table: Table) -> NDArray[np.float64]:
    """Judge's pass rate minus the reviewer's, over the items both decided."""
    return _share(table[..., FAIL, PASS] - table[..., PASS, FAIL], both_decided(table))


def abstention(table: Table) -> NDArray[np.float64]:
    """Share of all items that the judge left undecided."""
    return _share(table[..., UNDECIDED].sum(-1), table.sum((-2, -1)))


def skip_rate(table: Table) -> NDArray[np.float64]:
    """Share of all items that the reviewer skipped."""
    return _share(table[..., UNDECIDED, :].sum(-1), table.sum((-2, -1)))


def skips_abstained(table: Table) -> NDArray[np.float64]:
    """Share the judge left undecided too of the items that the reviewer skipped."""
    return _share(table[..., UNDECIDED, UNDECIDED], table[..., UNDECIDED, :].sum(-1))


def abstentions_decided(table: Table) -> NDArray[np.float64]:
    """Share the reviewer could decide of the items that the judge left undecided."""
    return _share(table[..., :2, UNDECIDED].sum(-1), table[..., UNDECIDED].sum(-1))


STATISTICS: dict[str, Callable[[Table], NDArray[np.float64]]] = {
    "accuracy": accuracy,
    "kappa": kappa,
    "over_credit": over_credit,
    "under_credit": under_credit,
    "fail_precision": fail_precision,
    "leniency": leniency,
    "abstention": abstention,
    "skip_rate": skip_rate,
    "skips_abstained": skips_abstained,
    "abstentions_decided": abstentions_decided,
}


@dataclass(frozen=True)
class Agreement:
    """Agreement of one judge with one reviewer, overall or in a stratum.

    ``table`` is the 3 x 3 table of verdicts (pass, fail, undecided), reviewer down and judge across.
    """

    runs: int
    items: int
    both: int
    table: tuple[tuple[int, ...], ...]
    estimates: dict[str, Estimate]

    @property
    def kappa(self) -> float | None:
        return self.estimates["kappa"].value

    @property
    def accuracy(self) -> float | None:
        return self.estimates["accuracy"].value


def agreement(per_run: Table, draws: Resamples | None = None) -> Agreement:
    """Compute every statistic of :data:`STATISTICS` with cluster-bootstrap intervals over runs.

    Parameters
    ----------
    per_run : (runs, 3, 3) float array
        From :func:`tables`.
    draws
        Resamples of the same runs, shared between strata and judges so that they can be compared; none gives no
        intervals.
    """
    total = per_run.sum(0)
    taken = int((per_run.sum((1, 2)) > 0).sum())
    drawn = None
    if draws is not None and taken > 1:
        if draws.weights.shape[1] != len(per_run):
            raise ValueError(f"resamples of {draws.weights.shape[1]} runs do not fit {len(per_run)} runs")
        drawn = (draws.weights @ per_run.reshape(len(per_run), 9)).reshape(-1, 3, 3)
    return Agreement(
        runs=taken,
        items=int(total.sum()),
        both=int(both_decided(total)),
        table=tuple(tuple(int(cell) for cell in row) for row in total),
        estimates={
            name: _estimate(float(statistic(total)), None if drawn is None else statistic(drawn))
            for name, statistic in STATISTICS.items()
        },
    )


def _estimate(value: float, drawn: NDArray[np.float64] | None) -> Estimate:
    """Take percentiles over the resamples in which the statistic is defined."""
    if not np.isfinite(value):
        return Estimate(None)
    defined = np.empty(0) if drawn is None else drawn[np.isfinite(drawn)]
    if len(defined) < 2:
        return Estimate(value)
    low, high = np.percentile(defined, [(100.0 - LEVEL) / 2, (100.0 + LEVEL) / 2])
    return Estimate(value, float(low), float(high))


def consensus(verdicts: ArrayLike) -> NDArray[np.intp]:
    """Majority of the reviewers who decided; undecided where nobody did, or as many passed as failed.

    Parameters
    ----------
    verdicts : (reviewers, n) int array_like
        Verdicts; an item that a reviewer has not answered counts as undecided.
    """
    given = np.asarray(verdicts, np.intp)
    passed, failed = (given == PASS).sum(0), (given == FAIL).sum(0)
    return np.where(passed > failed, PASS, np.where(failed > passed, FAIL, UNDECIDED)).astype(np.intp)


def run_scores(run: ArrayLike, verdict: ArrayLike, weight: ArrayLike, runs: int) -> NDArray[np.float64]:
    """Return each run's process score: weight of passes over weight of decided items; not a number without any."""
    where, given = np.asarray(run, np.intp), np.asarray(verdict, np.intp)
    weights = np.asarray(weight, np.float64)
    passed = np.bincount(where, weights * (given == PASS), minlength=runs)
    decided = np.bincount(where, weights * (given != UNDECIDED), minlength=runs)
    return _share(passed, decided)


@dataclass(frozen=True)
class Relation:
    """Two scores of the same runs: correlations with run-bootstrap intervals, and mean differences (second - first)."""

    runs: int
    pearson: Estimate
    spearman: Estimate
    difference: float | None
    absolute_difference: float | None


def relation(one: ArrayLike, other: ArrayLike, resamples: int = RESAMPLES, seed: int = SEED) -> Relation:
    """Relate two scores over the runs that have both; ties in ranks share their mean rank."""
    x, y = np.asarray(one, np.float64), np.asarray(other, np.float64)
    if x.shape != y.shape:
        raise ValueError(f"expected pairs, found {len(x)} and {len(y)} values")
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    if not len(x):
        return Relation(0, Estimate(None), Estimate(None), None, None)
    drawn_x = drawn_y = None
    if len(x) > 2:
        index = resample(len(x), resamples, seed).index
        drawn_x, drawn_y = x[index], y[index]
    return Relation(
        len(x),
        _correlate(x, y, drawn_x, drawn_y),
        _correlate(
            rankdata(x),
            rankdata(y),
            None if drawn_x is None else rankdata(drawn_x, axis=1),
            None if drawn_y is None else rankdata(drawn_y, axis=1),
        ),
        float(np.mean(y - x)),
        float(np.mean(np.abs(y - x))),
    )


def _correlate(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    drawn_x: NDArray[np.float64] | None,
    drawn_y: NDArray[np.float64] | None,
) -> Estimate:
    value = float(_row_correlation(x[None], y[None])[0]) if len(x) > 1 else float("nan")
    return _estimate(value, None if drawn_x is None or drawn_y is None else _row_correlation(drawn_x, drawn_y))


def _row_correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pearson's correlation of each row; not a number where a side does not vary."""
    x, y = x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True)
    spread = np.sqrt((x * x).sum(1) * (y * y).sum(1))
    spread[spread < 1e-12] = 0.0  # rounding is no variation
    return np.clip(_share((x * y).sum(1), spread), -1.0, 1.0)


@dataclass(frozen=True)
class ItemCount:
    """One rubric item over the reviewed runs; ``agreed`` counts equal verdicts among the runs that ``both`` decided."""

    item: int
    appeared: int
    decided: int
    failed: int
    both: int
    agreed: int

    @property
    def fail_rate(self) -> float | None:
        return self.failed / self.decided if self.decided else None

    @property
    def skip_rate(self) -> float:
        return 1.0 - self.decided / self.appeared


def item_counts(item: ArrayLike, reviewer: ArrayLike, judge: ArrayLike) -> list[ItemCount]:
    """Count verdicts per rubric item, in the order of item numbers."""
    number, one, other = (np.asarray(values, np.intp) for values in (item, reviewer, judge))
    items, where = np.unique(number, return_inverse=True)
    per_item = tables(where, one, other, len(items)) if len(items) else np.empty((0, 3, 3))
    return [
        ItemCount(
            item=int(which),
            appeared=int(table.sum()),
            decided=int(table[:2].sum()),
            failed=int(table[FAIL].sum()),
            both=int(both_decided(table)),
            agreed=int(np.trace(table[:2, :2])),
        )
        for which, table in zip(items, per_item, strict=True)
    ]


def least_runs(runs: int) -> int:
    """Return in how many of the reviewed runs an item must be decided to be listed: 8 of 20 as published."""
    return max(1, int(np.ceil(_DECIDED_SHARE * runs)))


def most_failed(counts: Sequence[ItemCount], least_runs: int, top: int = 12) -> list[ItemCount]:
    """Return the items failed most often among those decided in at least ``least_runs`` runs (Table E3)."""
    enough = [count for count in counts if count.decided >= max(1, least_runs)]
    return sorted(enough, key=lambda count: (-(count.fail_rate or 0.0), -count.decided, count.item))[:top]


def often_skipped(counts: Sequence[ItemCount], share: float = 0.5) -> list[ItemCount]:
    """Return the items skipped in at least ``share`` of the runs they appeared in: candidates for a task's filter."""
    return [count for count in counts if count.skip_rate >= share]


@dataclass(frozen=True)
class SeverityCount:
    """What the items of one severity contribute under the reviewer: counts, and shares of all decided weight."""

    severity: str
    decided: int
    failed: int
    weight_share: float
    failure_share: float


def severity_counts(severity: Sequence[str], weight: ArrayLike, reviewer: ArrayLike) -> list[SeverityCount]:
    """Tell which severities fail, and which of them carry the weight, over the items the reviewer decided."""
    kind, weights, given = np.asarray(severity), np.asarray(weight, np.float64), np.asarray(reviewer, np.intp)
    decided, failed = given != UNDECIDED, given == FAIL
    all_weight, all_failures = float(weights[decided].sum()), float(weights[failed].sum())
    found = []
    for name in dict.fromkeys(severity):
        here = kind == name
        found.append(
            SeverityCount(
                severity=name,
                decided=int((here & decided).sum()),
                failed=int((here & failed).sum()),
                weight_share=float(weights[here & decided].sum()) / all_weight if all_weight else 0.0,
                failure_share=float(weights[here & failed].sum()) / all_failures if all_failures else 0.0,
            )
        )
    return found


@dataclass(frozen=True)
class PairOfReviewers:
    """Agreement between two reviewers on the items both answered; ``kappa3`` counts skips as a third verdict."""

    one: str
    other: str
    items: int
    both: int
    accuracy: Estimate
    kappa: Estimate
    kappa3: Estimate


def between_reviewers(one: str, other: str, per_run: Table, draws: Resamples | None = None) -> PairOfReviewers:
    """Compare two reviewers; ``per_run`` from :func:`tables` over the items that both answered."""
    found = agreement(per_run, draws)
    drawn = None
    if draws is not None and found.runs > 1:
        drawn = cohen_kappa((draws.weights @ per_run.reshape(len(per_run), 9)).reshape(-1, 3, 3))
    return PairOfReviewers(
        one=one,
        other=other,
        items=found.items,
        both=found.both,
        accuracy=found.estimates["accuracy"],
        kappa=found.estimates["kappa"],
        kappa3=_estimate(float(cohen_kappa(per_run.sum(0))), drawn),
    )
