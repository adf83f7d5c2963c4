"""What the simulators of volumes share: settled bodies, membranes between them, tubes, loss of light with depth.

As in ``tasks._optics``, arrays are ``(z, y, x)``; ``spacing_um`` is the size of a voxel along those axes. Positions are
in µm from the centre of the first voxel, so that anisotropic sampling enters in one place only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from tasks._optics import Array, Slices

Shape3D = tuple[int, int, int]
Spacing = tuple[float, float, float]
Labels = NDArray[np.integer]


def window_um(
    shape: tuple[int, ...], spacing_um: Spacing, low: Sequence[float], high: Sequence[float]
) -> tuple[Slices, tuple[Array, Array, Array]] | None:
    """Return the voxels of a box (µm) and open grids of their positions (µm) along z, y and x; ``None`` when off."""
    slices: list[slice] = []
    grids: list[Array] = []
    for axis, (length, step) in enumerate(zip(shape, spacing_um, strict=True)):
        start = max(0, math.ceil(low[axis] / step))
        stop = min(length, math.floor(high[axis] / step) + 1)
        if start >= stop:
            return None
        slices.append(slice(start, stop))
        grids.append(
            (np.arange(start, stop, dtype=np.float64) * step).reshape([-1 if a == axis else 1 for a in range(3)])
        )
    return tuple(slices), (grids[0], grids[1], grids[2])


def rotation_3d(rng: np.random.Generator) -> Array:
    """Draw a rotation, uniform over all orientations; its rows are orthonormal axes in ``(z, y, x)``."""
    q = rng.standard_normal(4)
    w, a, b, c = q / np.sqrt(np.sum(q**2))
    return np.array(
        [
            [1 - 2 * (b * b + c * c), 2 * (a * b - c * w), 2 * (a * c + b * w)],
            [2 * (a * b + c * w), 1 - 2 * (a * a + c * c), 2 * (b * c - a * w)],
            [2 * (a * c - b * w), 2 * (b * c + a * w), 1 - 2 * (a * a + b * b)],
        ]
    )


def settle(labels: Labels, min_voxels: int) -> NDArray[np.uint16]:
    """Make every body one piece: smaller pieces, and bodies below ``min_voxels``, go to the nearest remaining one.

    Labels of the result run from 1 without gaps, in the order of the ones given. Only voxels of bodies change hands;
    background stays.
    """
    kept = np.zeros(labels.shape, np.uint16)
    count = 0
    for label, where in enumerate(ndimage.find_objects(labels), start=1):
        if where is None:
            continue
        pieces, n = ndimage.label(labels[where] == label)
        sizes = np.bincount(pieces.ravel(), minlength=n + 1)
        sizes[0] = 0
        if sizes.max() >= min_voxels:
            count += 1
            kept[where][pieces == int(sizes.argmax())] = count
    orphans = (labels > 0) & (kept == 0)
    if count and orphans.any():
        margin = 8
        for where in ndimage.find_objects(ndimage.label(orphans)[0]):
            around = tuple(slice(max(0, s.start - margin), s.stop + margin) for s in where)
            lost = orphans[around]
            if not (near := kept[around]).any():
                continue
            nearest = ndimage.distance_transform_edt(near == 0, return_distances=False, return_indices=True)
            near[lost] = near[tuple(nearest)][lost]
            orphans[around] = False
    return kept


def membranes(labels: Labels, brightness: Array, spacing_um: Spacing) -> Array:
    """Light of the membranes between bodies: density on every face between two voxels of different label.

    Parameters
    ----------
    labels
        Bodies and background, ``(z, y, x)``.
    brightness
        Symmetric ``(n, n)``: light per µm² of membrane between each two labels.
    spacing_um
        Size of a voxel.

    Returns
    -------
    array
        Light per voxel: brightness times area of its faces, half of each face to either side. Faces overstate the area
        of oblique membranes by up to the square root of three, which the point spread turns into slight texture.
    """
    light = np.zeros(labels.shape)
    volume = math.prod(spacing_um)
    for axis, step in enumerate(spacing_um):
        near = np.moveaxis(labels, axis, 0)
        view = np.moveaxis(light, axis, 0)
        where = np.nonzero(near[1:] != near[:-1])
        behind, before = near[:-1][where], near[1:][where]
        share = 0.5 * volume / step * brightness[behind, before]
        view[:-1][where] += share
        view[1:][where] += share
    return light


def loss_with_depth(depth_um: Array, half_um: float) -> Array:
    """Share of light that is left at a depth in the tissue, halved every ``half_um``."""
    return np.asarray(np.exp2(-np.maximum(depth_um, 0.0) / half_um))


class Tubes:
    """Tubes of varying width, painted piece by piece into a volume: which voxel lies how deep in which piece.

    Attributes
    ----------
    depth_um
        Distance inside the wall of the tube that the voxel lies deepest in, negative outside, ``-inf`` far away.
    light
        Brightness of that tube at that place.
    """

    def __init__(self, shape: Shape3D, spacing_um: Spacing, rim_um: float = 2.0) -> None:
        self.spacing_um = spacing_um
        self.rim_um = rim_um  # how far outside the wall depths are known
        self.depth_um = np.full(shape, -np.inf, np.float32)
        self.light = np.zeros(shape, np.float32)

    def paint(self, path_um: Array, radius_um: Array, light: Array) -> None:
        """Paint a tube along ``path_um``, ``(n, 3)``, with radius and brightness ``(n,)`` at its points."""
        for one, two, r_one, r_two, light_one, light_two in zip(
            path_um[:-1], path_um[1:], radius_um[:-1], radius_um[1:], light[:-1], light[1:], strict=True
        ):
            margin = max(r_one, r_two) + self.rim_um
            low, high = np.minimum(one, two) - margin, np.maximum(one, two) + margin
            place = window_um(self.depth_um.shape, self.spacing_um, low.tolist(), high.tolist())
            if place is None:
                continue
            where, grids = place
            step = two - one
            oz, oy, ox = (g - o for g, o in zip(grids, one, strict=True))
            along = (step[0] * oz + step[1] * oy + step[2] * ox) / max(float(step @ step), 1e-12)
            along = np.clip(along, 0.0, 1.0)
            squared = (oz - step[0] * along) ** 2 + (oy - step[1] * along) ** 2 + (ox - step[2] * along) ** 2
            depth = (r_one + (r_two - r_one) * along - np.sqrt(squared)).astype(np.float32)
            deeper = depth > self.depth_um[where]
            self.depth_um[where][deeper] = depth[deeper]
            self.light[where][deeper] = (light_one + (light_two - light_one) * along)[deeper]

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Voxels whose centre lies inside a tube."""
        return np.asarray(self.depth_um > 0.0)

    def filling(self, softness_um: float) -> Array:
        """Share of each voxel that a tube fills, a ramp of ``softness_um`` across the wall."""
        return np.clip(0.5 + self.depth_um.astype(np.float64) / softness_um, 0.0, 1.0)
