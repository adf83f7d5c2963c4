"""Detections as points: optimal matching within a tolerance, detection and localisation scores, chance level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from evaluators.metrics.assignment import assign
from evaluators.metrics.detection import Matching

_QUERY_CELLS = 2_000_000  # neighbours looked up in one go

# Spacing of the grids that stand for a blind guess, in units of the matching distance: from full cover to no overlap.
_GRID_STEPS = (1.4, 1.6, 1.8, 2.0, 2.5, 3.0)


@dataclass(frozen=True, eq=False)
class PointMatching(Matching):
    """A one-to-one matching of predicted to true points.

    Attributes
    ----------
    distances : (k,) float64
        Distance of each pair, in the unit of the coordinates.
    """

    distances: NDArray[np.float64]

    @property
    def mean_distance(self) -> float | None:
        """Mean distance of the matched pairs; ``None`` where nothing matched."""
        return float(self.distances.mean()) if len(self.distances) else None

    @property
    def rmse(self) -> float | None:
        """Root mean square distance of the matched pairs; ``None`` where nothing matched."""
        return float(np.sqrt(np.mean(self.distances**2))) if len(self.distances) else None


def match_points(
    truth: ArrayLike,
    predicted: ArrayLike,
    tolerance: float,
    *,
    truth_groups: ArrayLike | None = None,
    predicted_groups: ArrayLike | None = None,
) -> PointMatching:
    """Match points one to one within a distance: as many pairs as possible, then the least total distance.

    A greedy rule loses pairs where points are dense: with true points at 0 and 8 and predictions at 1 and 3.5 both
    predictions lie nearest to the first one, while two pairs within 10 exist.

    Parameters
    ----------
    truth : (n, d) array_like
        Finite coordinates, all axes in the same unit.
    predicted : (m, d) array_like
        Coordinates. A point with a coordinate that is not finite matches nothing, yet counts as predicted.
    tolerance : float
        Largest distance of a pair, which itself still matches.
    truth_groups, predicted_groups : (n,), (m,) array_like of integers, optional
        Group of each point (its frame, its channel); points of different groups never match.

    Returns
    -------
    PointMatching
        Independent of the order of the points, but for points at the same place.

    Raises
    ------
    ValueError
        A shape does not fit, a true point is not finite, or the tolerance is negative or not finite.
    """
    truth, predicted = _coordinates(truth, "truth"), _coordinates(predicted, "predicted")
    if len(truth) and len(predicted) and truth.shape[1] != predicted.shape[1]:
        raise ValueError(f"dimensions differ: truth {truth.shape[1]}, predicted {predicted.shape[1]}")
    if not np.isfinite(truth).all():
        raise ValueError("truth: coordinates must be finite")
    if not (np.isfinite(tolerance) and tolerance >= 0):
        raise ValueError(f"tolerance {tolerance}: expected a finite number of at least 0")
    if (truth_groups is None) != (predicted_groups is None):
        raise ValueError("groups are needed for both sides or for none")

    truth_order, truth_part = _canonical(truth, truth_groups)
    predicted_order, predicted_part = _canonical(predicted, predicted_groups)
    rows, columns, distances = _candidates(
        truth[truth_order], truth_part, predicted[predicted_order], predicted_part, float(tolerance)
    )
    chosen = assign(rows, columns, distances)
    truth_index, predicted_index = truth_order[rows[chosen]], predicted_order[columns[chosen]]
    by_truth = np.argsort(truth_index)
    return PointMatching(
        truth_index[by_truth], predicted_index[by_truth], len(truth), len(predicted), distances[chosen][by_truth]
    )


def random_f1(
    truth: ArrayLike,
    count: int,
    shape: tuple[float, ...],
    tolerance: float,
    *,
    repeats: int = 64,
    seed: int = 0,
) -> float:
    """Return the mean F1 of uniformly random points: what is reached by knowing the number of objects and nothing else.

    Parameters
    ----------
    truth : (n, d) array_like
        True points.
    count : int
        Number of random points per draw.
    shape : d floats
        Extent of the image along each axis, in the unit and axis order of the points; pixel centres are whole numbers,
        so that the image reaches from -0.5 to ``shape - 0.5``.
    tolerance : float
        As for :func:`match_points`.
    repeats, seed : int
        Number of draws and seed of their generator; the same arguments give the same value everywhere.

    Returns
    -------
    float
        Between 0 and 1; 1 where neither side has points.
    """
    generator = np.random.default_rng(seed)
    extent = np.asarray(shape, float)
    draws = (generator.random((count, len(extent))) * extent - 0.5 for _ in range(repeats))
    return float(np.mean([match_points(truth, points, tolerance).f1 for points in draws]))


def grid_f1(truth: ArrayLike, shape: tuple[float, float], tolerance: float) -> float:
    """Return the best F1 of regular grids of points, which need no image: the chance level of dense fields.

    Parameters
    ----------
    truth : (n, 2) array_like
        True points.
    shape : two floats
        Extent of the image along the axes of the points; pixel centres are whole numbers.
    tolerance : float
        As for :func:`match_points`.
    """
    points = np.asarray(truth, float).reshape(-1, 2)
    if not len(points):
        return 0.0
    best = 0.0
    for step in _GRID_STEPS:
        axes = []
        for length in shape:
            count = max(1, round(length / (step * tolerance)))
            axes.append((np.arange(count) + 0.5) * length / count - 0.5)
        grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
        best = max(best, match_points(points, grid, tolerance).f1)
    return best


def above_chance(score: float, chance: float) -> float:
    """Rescale a score so that chance level becomes 0 and 1 stays 1; below chance is 0.

    Where chance itself reaches 1, only a score of 1 counts.
    """
    if chance >= 1.0:
        return float(score >= 1.0)
    return max(0.0, (score - chance) / (1.0 - chance))


def _coordinates(points: ArrayLike, name: str) -> NDArray[np.float64]:
    array = np.asarray(points, float)
    if array.size == 0:
        return array.reshape(0, array.shape[1] if array.ndim == 2 else 1)
    if array.ndim != 2:
        raise ValueError(f"{name}: expected an array of shape (points, axes), found {array.shape}")
    return array


def _canonical(points: NDArray[np.float64], groups: ArrayLike | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the finite points sorted by group and coordinates (their rows), and the group of each."""
    part = np.zeros(len(points), np.int64) if groups is None else np.asarray(groups, None if len(points) else np.int64)
    if part.shape != (len(points),) or part.dtype.kind not in "ui":
        raise ValueError(f"groups: expected {len(points)} integers, found {part.dtype} of shape {part.shape}")
    finite = np.flatnonzero(np.isfinite(points).all(axis=1))
    order = finite[np.lexsort((*points[finite].T[::-1], part[finite]))]
    return order, part[order].astype(np.int64)


def _candidates(
    truth: NDArray[np.float64],
    truth_part: NDArray[np.int64],
    predicted: NDArray[np.float64],
    predicted_part: NDArray[np.int64],
    tolerance: float,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """List pairs within the tolerance that an optimal matching can need.

    A true point never needs more than its k nearest predictions, k being the number of true points within twice the
    tolerance: the others take k - 1 of them at most. A crowd of predictions thus costs no more than a few.
    """
    if not len(truth) or not len(predicted):
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    # Groups lie side by side along one more axis, too far apart to meet and exactly level within.
    parts = np.unique(np.concatenate((truth_part, predicted_part)))
    step = 4.0 * tolerance + 1.0
    truth = np.column_stack((truth, step * np.searchsorted(parts, truth_part)))
    predicted = np.column_stack((predicted, step * np.searchsorted(parts, predicted_part)))

    truth_tree, predicted_tree = cKDTree(truth), cKDTree(predicted)
    rivals = truth_tree.query_ball_point(truth, 2.0 * tolerance * (1.0 + 1e-9), return_length=True)
    nearest = min(int(rivals.max()), len(predicted))
    reach = tolerance * (1.0 + 1e-9) + 1e-100  # the tree leaves out its bound; the exact test follows
    rows, columns, distances = [], [], []
    block = max(1, _QUERY_CELLS // nearest)
    for start in range(0, len(truth), block):
        found, neighbour = predicted_tree.query(
            truth[start : start + block], k=range(1, nearest + 1), distance_upper_bound=reach
        )
        row, rank = np.nonzero(found <= tolerance)
        rows.append(row + start)
        columns.append(neighbour[row, rank])
        distances.append(found[row, rank])
    return np.concatenate(rows), np.concatenate(columns), np.concatenate(distances)
