"""Speed kymographs of a closing wound, and the velocity field they come from.

A kymograph is an array of shape (bands, frame pairs), bands of the distance to the wound, nearest first. Velocities are
arrays of shape (2, y, x), components in the order (y, x).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from evaluators.metrics.agreement import concordance, pearson

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_STANDING = 1e-6  # slower is standing still, as is a distance map flatter than this


def fitted(found: Array, shape: tuple[int, int]) -> Array:
    """Return a kymograph cut to a shape, NaN where it is smaller or not finite."""
    result = np.full(shape, np.nan)
    part = found[: shape[0], : shape[1]]
    result[: part.shape[0], : part.shape[1]] = np.where(np.isfinite(part), part, np.nan)
    return result


def coverage(found: Array, truth: Array) -> float:
    """Return the share of the true cells (those that are finite) for which there is a finite value."""
    known = np.isfinite(truth)
    return float(np.mean(np.isfinite(found[known]))) if known.any() else 1.0


def pooled_correlation(found: Array, truth: Array) -> float | None:
    """Return Pearson's correlation over all cells that are finite in both."""
    return pearson(found, truth)


def profile_free_concordance(found: Array, truth: Array) -> float | None:
    """Return the concordance of what is left after the mean profiles of distance and of time are taken away.

    Both kymographs are centred by rows and columns over the cells that are finite in both. A table that is the sum of a
    function of distance and a function of time leaves nothing, however well it fits, and one with the right pattern at
    the wrong scale leaves too little or too much.

    Returns
    -------
    float or None
        Lin's concordance, at most 1; ``None`` where nothing is left of either side.
    """
    known = np.isfinite(found) & np.isfinite(truth)
    return concordance(_centred(found, known)[known], _centred(truth, known)[known])


def _centred(values: Array, known: Mask, sweeps: int = 50) -> Array:
    """Take row and column means away over the known cells, in turn until nothing changes."""
    rest = np.where(known, values, 0.0)
    rows, columns = (np.maximum(known.sum(axis=axis), 1) for axis in (1, 0))
    size = float(np.abs(rest).max(initial=0.0))
    for _ in range(sweeps):
        change = rest.sum(axis=1) / rows
        rest = np.where(known, rest - change[:, None], 0.0)
        step = rest.sum(axis=0) / columns
        rest = np.where(known, rest - step[None, :], 0.0)
        if max(np.abs(change).max(initial=0.0), np.abs(step).max(initial=0.0)) <= 1e-12 * size:
            break
    return rest


def near_faster_share(found: Array, truth: Array, near_rows: int = 3, far_from: int = 10) -> float | None:
    """Return in which share of the frame pairs cells near the wound are faster than cells far from it.

    Near are the first ``near_rows`` bands; far are those from ``far_from`` on, or the second half where there are no
    more than that; the two never overlap. Only frame pairs of the true kymograph count, and one without a finite value
    in both zones is one in which near is not faster.

    Returns
    -------
    float or None
        ``None`` where the true kymograph has no such zones.
    """
    rows = len(truth)
    start = far_from if rows > far_from else max(near_rows, rows // 2)
    if rows <= near_rows or start >= rows:
        return None
    zones = [slice(0, near_rows), slice(start, rows)]
    asked = np.isfinite(truth[zones[0]]).any(axis=0) & np.isfinite(truth[zones[1]]).any(axis=0)
    if not asked.any():
        return None
    near, far = (_mean_of_finite(found[zone][:, asked]) for zone in zones)
    with np.errstate(invalid="ignore"):
        return float(np.mean(near > far))


def _mean_of_finite(values: Array) -> Array:
    finite = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(finite, values, 0.0).sum(axis=0) / finite.sum(axis=0))


def toward_wound(cells: Mask) -> tuple[Array, Array]:
    """Return the distance of each cell pixel to the wound, and minus its gradient, the vector towards the wound."""
    distance = ndimage.distance_transform_edt(cells)
    return distance, -np.stack(np.gradient(distance))


def leading_band(distance: Array, toward: Array, cells: Mask, percentile: float = 40.0) -> Mask:
    """Mark the cell pixels nearest to the wound, up to a percentile of the distance (at least 1 px)."""
    if not cells.any() or cells.all():
        return np.zeros(cells.shape, bool)
    limit = max(float(np.percentile(distance[cells], percentile)), 1.0)
    return np.asarray(cells & (distance <= limit) & (np.hypot(*toward) > _STANDING))


def mean_cosine(velocity: Array, toward: Array, where: Mask) -> float | None:
    """Return the mean cosine between velocity and the way to the wound; pixels that stand still count 0.

    ``None`` without a pixel.
    """
    if not where.any():
        return None
    y, x = (np.where(np.isfinite(part), part, 0.0)[where] for part in velocity)
    speed = np.hypot(y, x)
    size = np.hypot(*toward)[where]
    projection = y * toward[0][where] + x * toward[1][where]
    return float(np.mean(np.where(speed > _STANDING, projection / np.maximum(speed * size, _STANDING**2), 0.0)))


def moving(velocity: Array) -> Mask:
    """Mark the pixels with a finite velocity that do not stand still."""
    speed = np.hypot(*velocity)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.isfinite(speed) & (speed > _STANDING))


def sideways_agreement(found: Array, truth: Array, cells: Mask, patch_px: int) -> float | None:
    """Return how well two velocity fields agree beyond what the way to the wound explains.

    Both fields are averaged over square patches of cell pixels. In each band of the distance to the wound, one patch
    wide, the multiple of the vector towards the wound that fits best is taken away; what is left, u and v, is compared
    by ``2 sum(u.v) / (sum(u.u) + sum(v.v))``, times the share of patches in which something was found.

    Returns
    -------
    float or None
        At most 1, 0 where the found field leaves nothing; ``None`` where the true one leaves nothing.
    """
    distance, toward = toward_wound(cells)
    toward = toward / np.maximum(np.hypot(*toward), _STANDING)
    valid = cells & np.isfinite(truth).all(axis=0)
    weight = _patches(valid.astype(float), patch_px)
    used = weight > 0.25 * patch_px**2
    if not used.any():
        return None

    def mean(field: Array) -> Array:
        return _patches(np.where(valid & np.isfinite(field), field, 0.0), patch_px)[used] / weight[used]

    band = np.ceil(mean(distance) / patch_px).astype(int)
    way = np.stack([mean(part) for part in toward])
    left = []
    for field in (found, truth):
        patches = np.stack([mean(part) for part in field])
        total = np.bincount(band, np.sum(way**2, axis=0))
        share = np.bincount(band, np.sum(patches * way, axis=0)) / np.maximum(total, _STANDING)
        left.append(patches - share[band] * way)
    one, other = (np.clip(part, -1e100, 1e100) for part in left)  # nobody moves that fast, and squares stay finite
    size = [float(np.sum(part**2)) for part in (one, other)]
    if size[1] <= 1e-12 * float(np.sum(np.stack([mean(part) for part in truth]) ** 2)):
        return None  # rounding is no motion
    given = (
        _patches((valid & np.isfinite(found).all(axis=0) & moving(found)).astype(float), patch_px)[used] / weight[used]
    )
    return float(2.0 * np.sum(one * other) / sum(size) * np.mean(given > 0.5))


def _patches(values: Array, size: int) -> Array:
    """Add up square patches; what does not fill a patch at the lower and right edge is left out."""
    rows, columns = (length // size for length in values.shape)
    return np.asarray(values[: rows * size, : columns * size].reshape(rows, size, columns, size).sum(axis=(1, 3)))
