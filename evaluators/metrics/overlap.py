"""One sparse overlap table of two label images, from which every region metric is derived."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_CHUNK = 1 << 21  # pixels looked at in one go: bounds memory where every pixel carries another label

Labels = NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class OverlapTable:
    """Which truth object shares how many pixels with which predicted object.

    Objects are numbered by the position of their first pixel in raster order, not by their id, so that nothing derived
    from the table depends on how objects were labelled. Background (0) is no object.

    Attributes
    ----------
    truth_ids, predicted_ids : (n,), (m,) int64
        Label of each object.
    truth_sizes, predicted_sizes : (n,), (m,) int64
        Pixels of each object.
    truth_index, predicted_index : (k,) int64
        The pairs of objects that share at least one pixel, sorted by truth object, then by predicted object.
    overlaps : (k,) int64
        Pixels that each pair shares.
    """

    truth_ids: NDArray[np.int64]
    truth_sizes: NDArray[np.int64]
    predicted_ids: NDArray[np.int64]
    predicted_sizes: NDArray[np.int64]
    truth_index: NDArray[np.int64]
    predicted_index: NDArray[np.int64]
    overlaps: NDArray[np.int64]

    @property
    def truth_count(self) -> int:
        """Number of truth objects."""
        return len(self.truth_ids)

    @property
    def predicted_count(self) -> int:
        """Number of predicted objects."""
        return len(self.predicted_ids)

    def iou(self) -> NDArray[np.float64]:
        """Return the intersection over union of each overlapping pair, shape (k,)."""
        union = self.truth_sizes[self.truth_index] + self.predicted_sizes[self.predicted_index] - self.overlaps
        return self.overlaps / union


def overlap_table(truth: Labels, predicted: Labels) -> OverlapTable:
    """Count the shared pixels of two label images.

    Works on runs of equal labels, so that the cost follows the number of object outlines, not the number of pixels, and
    memory stays bounded for any number of labels: no dense matrix of all pairs is made.

    Parameters
    ----------
    truth, predicted : array of integers, same shape
        Label images or volumes of any dimension; 0 is background, every other value one object.

    Returns
    -------
    OverlapTable

    Raises
    ------
    TypeError
        An array does not hold integers.
    ValueError
        The shapes differ, or a label is negative or above 2**63 - 1.

    Examples
    --------
    >>> table = overlap_table(np.array([[1, 1, 0], [2, 2, 0]]), np.array([[7, 7, 7], [0, 0, 7]]))
    >>> table.truth_sizes.tolist(), table.predicted_sizes.tolist(), table.overlaps.tolist()
    ([2, 2], [4], [2])
    """
    for name, labels in (("truth", truth), ("predicted", predicted)):
        if labels.dtype.kind not in "ui":
            raise TypeError(f"{name}: expected integer labels, found {labels.dtype}")
    if truth.shape != predicted.shape:
        raise ValueError(f"shapes differ: truth {truth.shape}, predicted {predicted.shape}")
    flat_truth, flat_predicted = np.ravel(truth), np.ravel(predicted)
    pairs = _Pairs.empty()
    for start in range(0, flat_truth.size, _CHUNK):
        stop = start + _CHUNK
        pairs = pairs.merged(_Pairs.of_runs(flat_truth[start:stop], flat_predicted[start:stop], start))
    return pairs.table()


def foreground_dice(table: OverlapTable) -> float:
    """Return the Dice coefficient of foreground against foreground, 2|A∩B| / (|A|+|B|); 1 if both are empty.

    Dice, *Ecology* 26:297 (1945). Which object a pixel belongs to does not matter.
    """
    total = int(table.truth_sizes.sum() + table.predicted_sizes.sum())
    return 2.0 * int(table.overlaps.sum()) / total if total else 1.0


def foreground_iou(table: OverlapTable) -> float:
    """Return the Jaccard index of foreground against foreground, |A∩B| / |A∪B|; 1 if both are empty."""
    shared = int(table.overlaps.sum())
    union = int(table.truth_sizes.sum() + table.predicted_sizes.sum()) - shared
    return shared / union if union else 1.0


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Distinct (truth label, predicted label) pairs, background included, with pixel count and first position."""

    truth: NDArray[np.int64]
    predicted: NDArray[np.int64]
    count: NDArray[np.int64]
    first: NDArray[np.int64]

    @classmethod
    def empty(cls) -> _Pairs:
        nothing = np.empty(0, np.int64)
        return cls(nothing, nothing, nothing, nothing)

    @classmethod
    def of_runs(cls, truth: Labels, predicted: Labels, offset: int) -> _Pairs:
        """Collect the pairs of one stretch of pixels from its runs of constant labels."""
        breaks = truth[1:] != truth[:-1]
        breaks |= predicted[1:] != predicted[:-1]
        starts = np.concatenate(([0], np.flatnonzero(breaks) + 1))
        lengths = np.diff(starts, append=truth.size)
        run_truth, run_predicted = _as_ids(truth[starts]), _as_ids(predicted[starts])
        foreground = (run_truth | run_predicted) != 0
        return cls(
            run_truth[foreground], run_predicted[foreground], lengths[foreground], starts[foreground] + offset
        ).reduced()

    def merged(self, other: _Pairs) -> _Pairs:
        if not len(self.count):
            return other
        return _Pairs(
            np.concatenate((self.truth, other.truth)),
            np.concatenate((self.predicted, other.predicted)),
            np.concatenate((self.count, other.count)),
            np.concatenate((self.first, other.first)),
        ).reduced()

    def reduced(self) -> _Pairs:
        """Add up the rows of each distinct pair."""
        if not len(self.count):
            return self
        if max(self.truth.max(), self.predicted.max()) < 2**31:
            order = np.argsort(self.truth << 32 | self.predicted)  # one key sorts several times faster than two
        else:
            order = np.lexsort((self.predicted, self.truth))
        truth, predicted = self.truth[order], self.predicted[order]
        heads = np.concatenate(([0], np.flatnonzero((np.diff(truth) != 0) | (np.diff(predicted) != 0)) + 1))
        return _Pairs(
            truth[heads],
            predicted[heads],
            np.add.reduceat(self.count[order], heads),
            np.minimum.reduceat(self.first[order], heads),
        )

    def table(self) -> OverlapTable:
        truth_ids, truth_sizes, truth_index = _objects(self.truth, self.count, self.first)
        predicted_ids, predicted_sizes, predicted_index = _objects(self.predicted, self.count, self.first)
        both = np.flatnonzero((truth_index >= 0) & (predicted_index >= 0))
        both = both[np.lexsort((predicted_index[both], truth_index[both]))]
        return OverlapTable(
            truth_ids,
            truth_sizes,
            predicted_ids,
            predicted_sizes,
            truth_index[both],
            predicted_index[both],
            self.count[both],
        )


def _as_ids(labels: Labels) -> NDArray[np.int64]:
    """Convert labels to int64, refusing what has no place in it."""
    ids = labels.astype(np.int64)
    if ids.size and ids.min() < 0:  # unsigned values above 2**63 - 1 wrap to negative ones
        raise ValueError("labels must lie between 0 and 2**63 - 1")
    return ids


def _objects(
    labels: NDArray[np.int64], count: NDArray[np.int64], first: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return id and size of each object, by first pixel, and the object of each row (-1 for background)."""
    index = np.full(len(labels), -1, np.int64)
    rows = np.flatnonzero(labels)
    if not len(rows):
        return np.empty(0, np.int64), np.empty(0, np.int64), index
    rows = rows[np.argsort(labels[rows])]
    ordered = labels[rows]
    begins = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    heads = np.flatnonzero(begins)
    by_position = np.argsort(np.minimum.reduceat(first[rows], heads))
    rank = np.empty(len(heads), np.int64)
    rank[by_position] = np.arange(len(heads))
    index[rows] = rank[np.cumsum(begins) - 1]
    return ordered[heads][by_position], np.add.reduceat(count[rows], heads)[by_position], index
