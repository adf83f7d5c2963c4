"""Surfaces of masks: agreement within a tolerance, and how thick a mask is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


def surface(mask: Mask) -> Mask:
    """Return the foreground pixels with a background pixel beside them along an axis; the image's border is none."""
    inner = mask.copy()
    for axis in range(mask.ndim):
        view, along = np.moveaxis(inner, axis, 0), np.moveaxis(mask, axis, 0)
        view[1:] &= along[:-1]
        view[:-1] &= along[1:]
    np.logical_not(inner, out=inner)
    inner &= mask
    return inner


def dilated(mask: Mask, steps: int = 1) -> Mask:
    """Return a mask grown by a cube: all pixels that can be reached with so many steps, over corners too."""
    result = mask
    for _ in range(steps):
        for axis in range(mask.ndim):
            grown = result.copy()
            view, along = np.moveaxis(grown, axis, 0), np.moveaxis(result, axis, 0)
            view[1:] |= along[:-1]
            view[:-1] |= along[1:]
            result = grown
    return result


@dataclass(frozen=True)
class SurfaceScores:
    """Agreement of two surfaces within a tolerance.

    Attributes
    ----------
    dice
        Share of both surfaces that lies within the tolerance of the other one.
    chance
        What it would be if the two had nothing to do with each other: the share of the image near each surface takes
        the place of the share of the other surface.
    """

    dice: float
    chance: float


def surface_scores(truth: Mask, predicted: Mask, *, tolerance_px: int = 1) -> SurfaceScores:
    """Compare two surfaces within a tolerance.

    The surface Dice of Nikolov et al. (*J. Med. Internet Res.* 23:e26151, 2021), counted in surface pixels, with a
    distance in steps over faces, edges and corners. A tube that is drawn one pixel too thick or too thin counts as
    right, whatever its width, while the Dice coefficient of thin tubes drops to 0.6.

    Parameters
    ----------
    truth, predicted : bool array, same shape
        Masks in 2D or 3D.
    tolerance_px : int
        Steps that a surface may lie off.

    Returns
    -------
    SurfaceScores
        Dice is 1 if the masks are the same, 0 if one of two different masks has no surface.

    Examples
    --------
    >>> truth = np.zeros((9, 9), bool)
    >>> truth[2:7, 2:7] = True
    >>> smaller = np.zeros((9, 9), bool)
    >>> smaller[3:6, 3:6] = True
    >>> surface_scores(truth, smaller).dice, surface_scores(truth, smaller, tolerance_px=0).dice
    (1.0, 0.0)
    """
    if truth.shape != predicted.shape:
        raise ValueError(f"shapes differ: truth {truth.shape}, predicted {predicted.shape}")
    true_surface, predicted_surface = surface(truth), surface(predicted)
    true_count, predicted_count = np.count_nonzero(true_surface), np.count_nonzero(predicted_surface)
    if not true_count or not predicted_count:
        return SurfaceScores(float(np.array_equal(truth, predicted)), 0.0)
    near_predicted, near_true = dilated(predicted_surface, tolerance_px), dilated(true_surface, tolerance_px)
    total = true_count + predicted_count
    right = np.count_nonzero(true_surface & near_predicted) + np.count_nonzero(predicted_surface & near_true)
    guess = true_count * np.count_nonzero(near_predicted) + predicted_count * np.count_nonzero(near_true)
    return SurfaceScores(float(right / total), float(guess / (total * truth.size)))


def holds_block(mask: Mask, edge: int) -> bool:
    """Tell whether one of the cubes of ``edge`` pixels that tile the image is foreground throughout.

    A mask for which this is false holds no solid cube of twice the edge.
    """
    if min(mask.shape) < edge:
        return False
    cut = mask[tuple(slice(0, length // edge * edge) for length in mask.shape)]
    for axis in range(mask.ndim):
        moved = np.moveaxis(cut, axis, 0)
        filled = np.asarray(moved.reshape(moved.shape[0] // edge, edge, *moved.shape[1:]).all(axis=1))
        cut = np.moveaxis(filled, 0, axis)
    return bool(cut.any())
