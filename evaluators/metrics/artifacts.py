"""Agreement of a table with a reference table: identifiers, numbers, labels, intervals; and what chance is worth.

F1 of identifiers, Lin's concordance, macro F1 of labels and overlap F1 of intervals are the measures by which
BixBench3, a benchmark of tabular studies, grades artifacts. Those that correct for chance are ours.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evaluators.metrics.agreement import concordance
from evaluators.metrics.assignment import assign
from evaluators.metrics.detection import Matching
from evaluators.metrics.phenotypes import class_f1
from evaluators.metrics.points import above_chance

Values = NDArray[np.float64]
Codes = NDArray[np.int64]

_SAME = 1e-6  # numbers that agree to six digits are the same number
_CONSTANTS = 101
_TILE_LENGTHS = (0.75, 1.0, 1.5)  # of blind intervals, in median lengths of the true ones


def identifier_f1(reference: Collection[Hashable], found: Collection[Hashable]) -> float:
    """Return the F1 of recovered identifiers: twice the shared ones over all of both sides.

    Parameters
    ----------
    reference
        The identifiers, each once.
    found
        Those of the submission. One that is there more than once counts as found once and as false otherwise.

    Examples
    --------
    >>> identifier_f1(["a", "b", "c", "d"], ["a", "b", "x"])  # 2 * 2 / (4 + 3)
    0.5714285714285714
    """
    total = len(reference) + len(found)
    return 2.0 * len(set(reference) & set(found)) / total if total else 1.0


def number_agreement(truth: ArrayLike, predicted: ArrayLike) -> float:
    """Return Lin's concordance, at least 0, times the share of cells in which both or neither side has a number.

    Lin, *Biometrics* 45:255 (1989). Where all true numbers are one number, or there is a single pair, concordance
    cannot tell and only equal numbers (to six digits) are worth 1.

    Parameters
    ----------
    truth, predicted : (n,) array_like
        The same cells of both sides; NaN where a cell holds no number.

    Returns
    -------
    float
        Between 0 and 1; 0 without any cell.

    Examples
    --------
    >>> round(number_agreement([1, 2, 3, 4], [1, 2, 3, float("nan")]), 3)  # 1 over three pairs, three of four cells
    0.75
    """
    x, y = _columns(truth, predicted)
    if not len(x):
        return 0.0
    one, other = np.isfinite(x), np.isfinite(y)
    share = float(np.mean(one == other))
    both = one & other
    if not both.any():
        return 0.0 if one.any() else share
    if np.allclose(y[both], x[both], rtol=_SAME, atol=0.0):
        return share
    return share * max(0.0, concordance(x[both], y[both]) or 0.0)


def label_f1(truth: ArrayLike, predicted: ArrayLike, classes: int) -> float:
    """Return the macro F1 over the classes that occur on either side; 0 without any object.

    Parameters
    ----------
    truth, predicted : (n,) array_like of int
        Class of each object from 0; -1 in ``predicted`` is none of the classes and wrong for the true one.
    classes : int
        Number of classes.
    """
    values = class_f1(truth, predicted, classes)
    return float(np.nanmean(values)) if np.isfinite(values).any() else 0.0


def number_skill(truth: ArrayLike, predicted: ArrayLike) -> float | None:
    """Return how much closer numbers are than the best constant: 0 for it or worse, 1 for the truth.

    Each cell earns ``1 - (error / scale)**2``, at least 0, with the scale of the true values (1.4826 times their median
    absolute deviation; their mean one where more than half of them are the same). A cell without a number earns 0, so
    that leaving one out never pays. The mean is rescaled so that the best constant gets 0. Numbers dealt out at random
    are worse than it: their expected mean is that of constants drawn from the true values.

    Parameters
    ----------
    truth, predicted : (n,) array_like
        The same cells of both sides; NaN where a cell holds no number. Cells without a true number do not count.

    Returns
    -------
    float or None
        ``None`` where truth has no two different numbers.

    Examples
    --------
    >>> number_skill([1, 2, 3, 4], [1, 2, 3, 4]), number_skill([1, 2, 3, 4], [2.5] * 4)
    (1.0, 0.0)
    """
    x, y = _columns(truth, predicted)
    known = np.isfinite(x)
    x, y = x[known], y[known]
    if not len(x) or x.min() == x.max():
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        largest = float(np.abs(x).max())
        x, y = x / largest, y / largest
        scale = 1.4826 * float(np.median(np.abs(x - np.median(x)))) or float(np.abs(x - x.mean()).mean())

        def credit(numbers: Values) -> float:
            return float(np.nan_to_num(np.maximum(0.0, 1.0 - ((numbers - x) / scale) ** 2)).mean())

        levels = np.unique(x)
        chosen = levels[np.linspace(0, len(levels) - 1, min(len(levels), _CONSTANTS)).astype(int)]
        blind = max(map(credit, [*chosen, x.mean(), np.median(x)]))
        return above_chance(credit(y), blind)


@dataclass(frozen=True, eq=False)
class IntervalMatching(Matching):
    """A one-to-one matching of predicted to true intervals.

    Attributes
    ----------
    overlaps : (k,) float64
        Length of the intersection over that of the union of each pair.
    """

    overlaps: Values

    @property
    def quality(self) -> float:
        """F1 with each pair counted by its overlap (panoptic quality in one dimension)."""
        total = self.truth_count + self.predicted_count
        return 2.0 * float(self.overlaps.sum()) / total if total else 1.0


def match_intervals(
    truth: ArrayLike,
    predicted: ArrayLike,
    least: float,
    *,
    truth_groups: ArrayLike | None = None,
    predicted_groups: ArrayLike | None = None,
) -> IntervalMatching:
    """Match intervals one to one: as many pairs as possible, then the largest overlap.

    Parameters
    ----------
    truth, predicted : (n, 2), (m, 2) array_like
        Start and end. A predicted interval that is not finite, or does not end after it starts, matches nothing.
    least : float
        Least intersection over union of a pair, above 0 and at most 1.
    truth_groups, predicted_groups : (n,), (m,) array_like of int, optional
        Group of each interval (its chromosome, its movie); intervals of different groups never match.

    Raises
    ------
    ValueError
        A shape does not fit, a true interval is not one, or ``least`` is out of range.
    """
    if not 0.0 < least <= 1.0:
        raise ValueError(f"least overlap {least}: expected more than 0 and at most 1")
    one, other = np.asarray(truth, float).reshape(-1, 2), np.asarray(predicted, float).reshape(-1, 2)
    if not (np.isfinite(one).all() and (one[:, 1] > one[:, 0]).all()):
        raise ValueError("a true interval does not end after it starts")
    own = np.zeros(len(one), np.int64) if truth_groups is None else np.asarray(truth_groups, np.int64)
    theirs = np.zeros(len(other), np.int64) if predicted_groups is None else np.asarray(predicted_groups, np.int64)
    if len(own) != len(one) or len(theirs) != len(other):
        raise ValueError("expected one group for each interval")
    found = list(_overlapping(one, other, own, theirs, least))
    rows = np.repeat(np.array([row for row, _, _ in found], np.int64), [len(columns) for _, columns, _ in found])
    columns = np.concatenate([np.zeros(0, np.int64), *(columns for _, columns, _ in found)])
    overlaps = np.concatenate([np.zeros(0), *(overlaps for _, _, overlaps in found)])
    chosen = assign(rows, columns, 1.0 - overlaps)
    chosen = chosen[np.argsort(rows[chosen], kind="stable")]
    return IntervalMatching(rows[chosen], columns[chosen], len(one), len(other), overlaps[chosen])


def _overlapping(
    truth: Values, predicted: Values, truth_groups: Codes, predicted_groups: Codes, least: float
) -> Iterator[tuple[int, Codes, Values]]:
    """Yield for each true interval those that overlap it enough, and by how much."""
    valid = np.flatnonzero(np.isfinite(predicted).all(axis=1) & (predicted[:, 1] > predicted[:, 0]))
    order = valid[np.lexsort((predicted[valid, 1], predicted[valid, 0], predicted_groups[valid]))]
    starts, ends = predicted[order].T
    lows, highs = (np.searchsorted(predicted_groups[order], truth_groups, side) for side in ("left", "right"))
    for row, (start, end) in enumerate(truth):
        own = slice(lows[row], highs[row])
        # One that overlaps enough is at most 1 / least times as long, which bounds where it can start.
        first, last = lows[row] + np.searchsorted(starts[own], [start - (end - start) / least, end])
        near = slice(first, last)
        shared = np.minimum(ends[near], end) - np.maximum(starts[near], start)
        overlap = shared / (np.maximum(ends[near], end) - np.minimum(starts[near], start))
        enough = overlap >= least
        if enough.any():
            yield row, order[near][enough], overlap[enough]


def blind_interval_quality(truth: ArrayLike, least: float, groups: ArrayLike | None = None) -> float:
    """Return the best quality of intervals laid out without looking: the whole span, and regular tilings of it.

    Parameters
    ----------
    truth : (n, 2) array_like
        True intervals.
    least : float
        As for :func:`match_intervals`.
    groups : (n,) array_like of int, optional
        Group of each.
    """
    one = np.asarray(truth, float).reshape(-1, 2)
    _, own = np.unique(np.zeros(len(one)) if groups is None else np.asarray(groups), return_inverse=True)
    sizes = np.bincount(own)
    low, high = np.full(len(sizes), np.inf), np.full(len(sizes), -np.inf)
    np.minimum.at(low, own, one[:, 0])
    np.maximum.at(high, own, one[:, 1])
    typical = float(np.median(one[:, 1] - one[:, 0]))
    layouts = [(factor * typical, factor * typical + gap) for factor in _TILE_LENGTHS for gap in (0.0, typical)]
    best = 0.0
    for length, pitch in [(np.inf, np.inf), *layouts]:
        counts = np.clip((high - low) // pitch, 1, 4 * sizes).astype(np.int64)
        of = np.repeat(np.arange(len(sizes)), counts)
        number = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
        step = ((high - low) / counts)[of]
        starts = low[of] + step * number
        tiles = np.column_stack((starts, starts + np.minimum(length, step)))
        best = max(best, match_intervals(one, tiles, least, truth_groups=own, predicted_groups=of).quality)
    return best


def _columns(truth: ArrayLike, predicted: ArrayLike) -> tuple[Values, Values]:
    x, y = np.asarray(truth, float), np.asarray(predicted, float)
    if x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"expected the same cells of both sides, found {x.shape} and {y.shape}")
    return x, y
