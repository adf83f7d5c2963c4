"""Scores of single-molecule localisations: detection per frame within a tolerance, away from the image border."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evaluators.metrics.detection import Matching
from evaluators.metrics.points import match_points


def match_localizations(
    truth: NDArray[np.float64],
    truth_frames: NDArray[np.int64],
    predicted: NDArray[np.float64],
    predicted_frames: NDArray[np.int64],
    tolerance: float,
    *,
    shape: tuple[float, float] | None = None,
    border: float = 0.0,
) -> Matching:
    """Match molecules frame by frame: as many pairs as possible, then the least total distance.

    Within the border neither side is counted: a molecule there is no true positive, none missed, and none invented. A
    detection there may still be the partner of a molecule inside.

    Parameters
    ----------
    truth, predicted : (n, 2), (m, 2)
        Positions (x, y) in pixels from the outer corner of the first pixel. A predicted position that is not finite
        matches nothing and counts as invented.
    truth_frames, predicted_frames : (n,), (m,) int64
    tolerance
        Largest distance of a pair, in pixels, which itself still matches.
    shape
        (rows, columns) of the image; without it there is no border.
    border
        Width of the border in pixels.
    """
    matching = match_points(truth, predicted, tolerance, truth_groups=truth_frames, predicted_groups=predicted_frames)
    inside_truth, inside_predicted = _inside(truth, shape, border), _inside(predicted, shape, border)
    counted = inside_truth[matching.truth_index]
    alone = np.ones(len(predicted), bool)
    alone[matching.predicted_index] = False
    return Matching(
        truth_index=matching.truth_index[counted],
        predicted_index=matching.predicted_index[counted],
        truth_count=int(np.count_nonzero(inside_truth)),
        predicted_count=int(np.count_nonzero(counted) + np.count_nonzero(alone & inside_predicted)),
    )


def jaccard_at_other_times(
    truth: NDArray[np.float64], frames: NDArray[np.int64], tolerance: float, *, shifts: int = 3
) -> float:
    """Return what knowing all places and rates but not the moments is worth: the best Jaccard of truth with itself,
    its frames rolled by equal parts of the movie.
    """
    if not len(truth):
        return 0.0
    length = int(frames.max()) + 1
    steps = {round(length * k / (shifts + 1)) for k in range(1, shifts + 1)} - {0, length}
    return max(
        (match_localizations(truth, frames, truth, (frames + step) % length, tolerance).jaccard for step in steps),
        default=0.0,
    )


def _inside(points: NDArray[np.float64], shape: tuple[float, float] | None, border: float) -> NDArray[np.bool_]:
    """Mark the points that are not in the border; those that are not finite or off the image count as not in it."""
    if shape is None or border <= 0.0:
        return np.ones(len(points), bool)
    x, y = points[:, 0], points[:, 1]
    on_image = (x >= 0.0) & (y >= 0.0) & (x <= shape[1]) & (y <= shape[0])
    near = (x < border) | (y < border) | (x > shape[1] - border) | (y > shape[0] - border)
    return np.asarray(~(on_image & near))
