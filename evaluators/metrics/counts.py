"""Scores of object counts per image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


def typical_count(truth: ArrayLike) -> int:
    """Return the upper median of the true counts above 0, element ``n // 2`` of n sorted ones; 1 if there is none."""
    counts = np.sort(_counts(truth, "truth", missing=False))
    counts = counts[counts > 0]
    return int(counts[len(counts) // 2]) if len(counts) else 1


def count_accuracy(predicted: ArrayLike, truth: ArrayLike, *, typical: int | None = None) -> NDArray[np.float64]:
    """Return the published count accuracy of each image, ``clip(1 - |p - g| / d, 0, 1)``.

    d is the true count g for a count p below it, and the larger of g and the typical count otherwise, so that a few
    false objects in a blank image cost a share of a typical image.

    Parameters
    ----------
    predicted : (n,) array_like
        Counts of the submission; NaN for an image that is missing, which scores 0.
    truth : (n,) array_like
        True counts of the same images, the missing ones included.
    typical : int, optional
        Typical count; by default :func:`typical_count` of ``truth``.

    Returns
    -------
    (n,) float64

    Raises
    ------
    ValueError
        Lengths differ, or a count is negative, not whole or infinite.
    """
    predicted, truth = _pair(predicted, truth)
    scale = np.maximum(truth, typical_count(truth) if typical is None else typical)
    below = predicted < truth
    scale[below] = truth[below]
    accuracy = np.clip(1.0 - np.abs(predicted - truth) / scale, 0.0, 1.0)
    return np.where(np.isnan(predicted), 0.0, accuracy)


@dataclass(frozen=True)
class CountErrors:
    """Errors of counts over images.

    Attributes
    ----------
    mae, rmse : float
        Mean absolute and root mean square error, in objects.
    mape : float or None
        Mean absolute error relative to the true count over the images that have objects; ``None`` without such images.
    bias : float
        Mean of predicted minus true count.
    """

    mae: float
    rmse: float
    mape: float | None
    bias: float


def count_errors(predicted: ArrayLike, truth: ArrayLike) -> CountErrors:
    """Return the count errors over images; a missing image (NaN) counts once, as a count of 0.

    Raises
    ------
    ValueError
        As for :func:`count_accuracy`, or there is no image.
    """
    predicted, truth = _pair(predicted, truth)
    if not len(truth):
        raise ValueError("expected at least one image")
    error = np.where(np.isnan(predicted), 0.0, predicted) - truth
    filled = truth > 0
    return CountErrors(
        mae=float(np.abs(error).mean()),
        rmse=float(np.sqrt(np.mean(error**2))),
        mape=float(np.mean(np.abs(error[filled]) / truth[filled])) if filled.any() else None,
        bias=float(error.mean()),
    )


def _pair(predicted: ArrayLike, truth: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    expected = _counts(truth, "truth", missing=False)
    found = _counts(predicted, "predicted", missing=True)
    if found.shape != expected.shape:
        raise ValueError(f"expected counts of {len(expected)} images, found {len(found)}")
    return found, expected


def _counts(values: ArrayLike, name: str, *, missing: bool) -> NDArray[np.float64]:
    counts = np.asarray(values, float)
    if counts.ndim != 1:
        raise ValueError(f"{name}: expected one count per image, found shape {counts.shape}")
    given = counts[~np.isnan(counts)] if missing else counts
    if not (np.isfinite(given).all() and (given >= 0).all() and (given == np.floor(given)).all()):
        raise ValueError(f"{name}: counts must be whole numbers of at least 0")
    return counts
