"""Mosaics of tiles: size of the canvas, intensity profiles, where tiles lie, what they show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Image = NDArray[np.float32]
Array = NDArray[np.float64]


def canvas_agreement(truth: Sequence[int], predicted: Sequence[int], tolerance_px: float) -> float:
    """Return how near the size of a canvas comes to the true one: ``max(0, 1 - sum |difference| / (2 tolerance))``.

    Examples
    --------
    >>> canvas_agreement((100, 100), (100, 120), 20), canvas_agreement((100, 100), (120, 120), 20)
    (0.5, 0.0)
    """
    difference = sum(abs(one - other) for one, other in zip(truth, predicted, strict=True))
    return max(0.0, 1.0 - difference / (2.0 * tolerance_px))


def profile_correlation(truth: ArrayLike, predicted: ArrayLike) -> float:
    """Return Pearson's correlation of two profiles, at least 0; 0 where one is constant.

    Profiles of different length are stretched onto each other: the predicted one is interpolated linearly at the true
    one's points, both running from 0 to 1.
    """
    true, found = np.asarray(truth, float), np.asarray(predicted, float)
    if min(len(true), len(found)) < 2:
        return 0.0
    if len(true) != len(found):
        found = np.interp(np.linspace(0.0, 1.0, len(true)), np.linspace(0.0, 1.0, len(found)), found)
    return max(0.0, correlation(true, found))


def aligned_correlation(truth: ArrayLike, predicted: ArrayLike, shift: int) -> float:
    """Return Pearson's correlation of two profiles where they overlap, at least 0.

    Parameters
    ----------
    truth, predicted
        Profiles.
    shift
        Place of the true one's first point in the predicted one. Less than half of the true profile in common is 0.
    """
    true, found = np.asarray(truth, float), np.asarray(predicted, float)
    first, last = max(0, -shift), min(len(true), len(found) - shift)
    if last - first < max(2, len(true) // 2):
        return 0.0
    return max(0.0, correlation(true[first:last], found[first + shift : last + shift]))


def correlation(one: ArrayLike, other: ArrayLike) -> float:
    """Return Pearson's correlation, between -1 and 1; 0 where one side is constant."""
    a, b = np.asarray(one, float).ravel(), np.asarray(other, float).ravel()
    a, b = a - a.mean(), b - b.mean()
    norm = math.sqrt(float(a @ a) * float(b @ b))
    return min(1.0, max(-1.0, float(a @ b) / norm)) if norm > 0 else 0.0  # rounding can pass the limits


def global_shift(truth: Image, predicted: Image) -> tuple[int, int]:
    """Return where the true image's corner lies in the predicted one, to about a hundredth of the image's size.

    Both are reduced to some 500 pixels by block means, clipped to their brighter half, and correlated over all shifts.
    """
    step = max(1, round(max(*truth.shape, *predicted.shape) / 512))
    small, other = (_reduced(image, step) for image in (truth, predicted))
    small, other = (np.maximum(image - np.median(image), 0.0) for image in (small, other))
    small, other = (image - image.mean() for image in (small, other))
    shape = tuple(one + two for one, two in zip(small.shape, other.shape, strict=True))
    spectrum = np.conj(np.fft.rfft2(small, shape)) * np.fft.rfft2(other, shape)
    match = np.fft.irfft2(spectrum, shape)
    place = np.unravel_index(int(np.argmax(match)), shape)
    found = [
        int(p) if p < length else int(p) - total for p, length, total in zip(place, other.shape, shape, strict=True)
    ]
    return found[0] * step, found[1] * step


def _reduced(image: Image, step: int) -> Image:
    rows, columns = (length // step * step for length in image.shape)
    blocks = image[:rows, :columns].reshape(rows // step, step, columns // step, step)
    return np.asarray(blocks.mean(axis=(1, 3), dtype=np.float32))


@dataclass(frozen=True)
class Location:
    """Where a block of the true image was found: displacement in pixels and correlation there."""

    dy: float
    dx: float
    correlation: float


def locate(block: Image, image: Image, corner: tuple[int, int], reach: int, *, step: int = 1) -> Location | None:
    """Find a block in an image around a place, to a fraction of a pixel.

    The normalised cross-correlation over all shifts within the reach (Lewis, *Vision Interface* 1995), with a parabola
    through its peak along each axis.

    Parameters
    ----------
    block
        Part of the true image.
    image
        Where it is looked for; beyond the edge it is 0.
    corner
        Expected row and column of the block's first pixel.
    reach
        Largest shift, in pixels.
    step
        Both are reduced by block means of this size first.

    Returns
    -------
    Location or None
        ``None`` where the block is constant, or the image is around the place.
    """
    from skimage.feature import match_template

    reach = -(-reach // step) * step
    height, width = (length // step * step for length in block.shape)
    window = np.zeros((height + 2 * reach, width + 2 * reach), np.float32)
    rows = slice(max(0, corner[0] - reach), min(image.shape[0], corner[0] + height + reach))
    columns = slice(max(0, corner[1] - reach), min(image.shape[1], corner[1] + width + reach))
    if rows.start >= rows.stop or columns.start >= columns.stop:
        return None
    part = image[rows, columns]
    top, left = rows.start - corner[0] + reach, columns.start - corner[1] + reach
    window[top : top + part.shape[0], left : left + part.shape[1]] = part
    template, window = _reduced(block[:height, :width], step), _reduced(window, step)
    if np.ptp(template) == 0 or np.ptp(window) == 0:
        return None
    match = match_template(window, template)
    y, x = np.unravel_index(int(np.argmax(match)), match.shape)
    dy, dx = int(y) + _vertex(match[:, x], int(y)), int(x) + _vertex(match[y], int(x))
    return Location(dy * step - reach, dx * step - reach, float(match[y, x]))


def _vertex(values: NDArray[np.floating], place: int) -> float:
    """Return the offset of a parabola's vertex from the highest of three values, 0 at an end."""
    if not 0 < place < len(values) - 1:
        return 0.0
    before, peak, after = (float(value) for value in values[place - 1 : place + 2])
    bend = before - 2.0 * peak + after
    return 0.5 * (before - after) / bend if bend < 0 else 0.0


@dataclass(frozen=True)
class Placement:
    """Which tiles lie right relative to each other.

    Attributes
    ----------
    share
        Tiles in the largest group that is displaced alike within the tolerance, among all tiles.
    pairs
        Pairs of tiles within that group, among all pairs: 0 for one tile, which always agrees with itself.
    shift
        Displacement of that group, ``(dy, dx)``; ``None`` without any tile.
    errors
        Distance of each tile from that displacement, in pixels; infinite where it was not found.
    """

    share: float
    pairs: float
    shift: tuple[float, float] | None
    errors: Array


def placement(locations: Sequence[Location | None], tolerance_px: float, least_correlation: float) -> Placement:
    """Judge the displacements of all tiles after one shift of the whole mosaic.

    Parameters
    ----------
    locations
        Where each tile's content was found.
    tolerance_px
        Largest distance from the common displacement.
    least_correlation
        A tile that matches worse was not found.
    """
    count = len(locations)
    errors = np.full(count, np.inf)
    good = [k for k, found in enumerate(locations) if found is not None and found.correlation >= least_correlation]
    if not good:
        return Placement(0.0, 0.0, None, errors)
    points = np.array([(found.dy, found.dx) for found in (locations[k] for k in good) if found is not None])
    distance = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
    votes = (distance <= tolerance_px).sum(axis=1)
    centre = int(np.argmax(votes))
    shift = np.median(points[distance[centre] <= tolerance_px], axis=0)
    errors[good] = np.hypot(*(points - shift).T)
    right = int((errors <= tolerance_px).sum())
    pairs = right * (right - 1) / (count * (count - 1)) if count > 1 else float(right)
    return Placement(right / count, pairs, (float(shift[0]), float(shift[1])), errors)


def plane_identity(truth: Array, predicted: Array, *, slack: float = 0.01, mistaken: float = 0.1) -> Array:
    """Return for each image of a set its correlation with its own true image, at least 0.

    Where another true image fits better, a tenth of it: a mosaic whose channels or planes are exchanged, or all copies
    of one, shows right structures at the wrong place.

    Parameters
    ----------
    truth, predicted : (n, pixels) arrays
        True and predicted images in the same order.
    slack : float
        By how much another true image may fit better, since neighbouring planes hardly differ.
    mistaken : float
        What is left of the correlation of an image that fits another one better.
    """
    a, b = (values - values.mean(axis=1, keepdims=True) for values in (truth, predicted))
    norm = np.outer(np.sqrt((b**2).sum(axis=1)), np.sqrt((a**2).sum(axis=1)))
    with np.errstate(invalid="ignore", divide="ignore"):
        table = np.where(norm > 0, (b @ a.T) / norm, 0.0)
    own = np.diag(table)
    return np.asarray(np.clip(own, 0.0, 1.0) * np.where(own + slack >= table.max(axis=1), 1.0, mistaken))
