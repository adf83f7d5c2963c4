"""Segment cells from their membranes in 3D: ridges, basins between them, and a merge across faint faces.

The volume is averaged to near-cubic voxels. Membranes are ridges of the brightness (after a square root, which evens
out photon noise). Basins of the distance to membranes seed a watershed that deliberately divides too much; regions are
then merged across faces on which the ridge is faint, the faintest first. What touches the edge of the volume with much
of its surface is outside; what is far smaller than a cell is a lumen or a fragment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import ndimage as ndi
from skimage.measure import marching_cubes, mesh_surface_area
from skimage.segmentation import watershed

from agents.classical._segment import otsu
from agents.classical._volumes import (
    Grid,
    Labels,
    Spacing,
    Volume,
    deep_basins,
    distance_um,
    faces_between,
    merge_across,
    ridge_strength,
)

SMOOTH_UM = 0.12  # grain of the deconvolution
RIDGE_UM = 0.21  # half the width at which a membrane appears
LEAST_DEPTH_UM = 0.25  # of a basin, and what keeps two of them apart
PASS_UM = 0.12
CERTAIN = 0.7  # faces fainter than this share of the limit are no membrane, whatever the size of the cells
SMALLEST = 0.1  # share of the median cell volume
EDGE_SHARE = 0.3  # of the surface, above which a region lies outside


@dataclass(frozen=True)
class Segmentation:
    """Labels of one stack and how they came about.

    Attributes
    ----------
    labels
        On the full grid, 1 to n.
    limit
        Ridge strength that separates membrane from no membrane.
    regions
        Number of regions before merging.
    faintest
        Mean ridge strength of the faintest face of each cell towards another one, over the limit; by label, from 1.
    """

    labels: npt.NDArray[np.uint16]
    limit: float
    regions: int
    faintest: npt.NDArray[np.float64]


def segment(stack: npt.NDArray[np.generic], spacing_um: Spacing) -> Segmentation:
    """Segment the cells of one stack."""
    grid = Grid.near_cubic(stack.shape, spacing_um)
    light = np.sqrt(np.maximum(ndi.gaussian_filter(grid.reduce(stack), grid.voxels(SMOOTH_UM)), 0.0))
    ridge = ridge_strength(light, grid.voxels(RIDGE_UM))
    walls = ridge > 0.7 * otsu(ridge)
    depth = ndi.gaussian_filter(distance_um(walls, grid.spacing_um), 0.7)
    basins, summits = deep_basins(depth, LEAST_DEPTH_UM, PASS_UM)
    seeds = np.where(depth >= 0.6 * summits[basins], basins, 0)
    regions = watershed(light + 2.0 * ridge, seeds).astype(np.int32)  # type: ignore[no-untyped-call]
    del basins, depth, seeds, walls
    faces = faces_between(regions, ridge)
    limit = float(np.exp(otsu(np.log(faces.means[faces.counts > 20] + 1e-3), default=0.0)))
    count = len(np.unique(regions))
    regions = merge_across(regions, faces, CERTAIN * limit)
    regions = _merge_small(regions, ridge, limit)
    cells = _cells(regions)
    faintest = _faintest(cells, ridge) / limit
    return Segmentation(grid.restore(cells).astype(np.uint16), limit, count, faintest)


def _volumes(regions: Labels) -> npt.NDArray[np.int64]:
    return np.bincount(regions.ravel())


def _typical(regions: Labels) -> float:
    """Return the median volume of the regions that can be cells: not at the edge, not fragments."""
    volumes = _volumes(regions)
    inner = np.ones(len(volumes), bool)
    for axis in range(3):
        for end in (0, -1):
            inner[np.unique(np.take(regions, end, axis=axis))] = False
    inner[0] = False
    sizes = volumes[inner & (volumes > 0)]
    if not len(sizes):
        return float(np.median(volumes[1:])) if len(volumes) > 1 else 1.0
    sizes = np.sort(sizes)[::-1]
    cumulative = np.cumsum(sizes)
    return float(sizes[np.searchsorted(cumulative, 0.5 * cumulative[-1])])  # weighted by volume: fragments do not count


def _merge_small(regions: Labels, ridge: Volume, limit: float) -> Labels:
    """Merge across faces of doubtful strength where a region is too small to be a cell of its own."""
    typical = _typical(regions)
    for _ in range(4):
        volumes = _volumes(regions)
        faces = faces_between(regions, ridge)
        smaller = np.minimum(volumes[faces.pairs[:, 0]], volumes[faces.pairs[:, 1]])
        joint = volumes[faces.pairs].sum(axis=1)
        doubtful = (faces.means < limit) & (smaller < 0.4 * typical) & (joint < 1.8 * typical)
        if not doubtful.any():
            break
        means = np.where(doubtful, faces.means, np.inf)
        best = int(np.argmin(means))
        one, two = faces.pairs[best]
        regions = np.where(regions == two, one, regions).astype(np.int32)
    return regions


def _cells(regions: Labels) -> Labels:
    """Keep the regions that are cells, numbered 1 to n."""
    count = int(regions.max())
    surface = np.zeros(count + 1)
    at_edge = np.zeros(count + 1)
    for axis in range(3):
        region = np.moveaxis(regions, axis, 0)
        differ = region[1:] != region[:-1]
        surface += np.bincount(region[1:][differ], minlength=count + 1)
        surface += np.bincount(region[:-1][differ], minlength=count + 1)
        for end in (region[0], region[-1]):
            at_edge += np.bincount(end.ravel(), minlength=count + 1)
    volumes = _volumes(regions)
    outside = at_edge > EDGE_SHARE * (surface + at_edge)
    outside[int(np.argmax(at_edge))] = True
    kept = np.where(outside[regions], 0, regions)
    typical = _typical(kept)
    keep = ~outside & (volumes > SMALLEST * typical)
    keep[0] = False
    names = np.zeros(count + 1, np.int32)
    names[keep] = np.arange(1, keep.sum() + 1)
    return names[regions]


def _faintest(cells: Labels, ridge: Volume) -> npt.NDArray[np.float64]:
    faces = faces_between(cells, ridge)
    faintest = np.full(int(cells.max()) + 1, np.nan)
    for (one, two), mean, number in zip(faces.pairs.tolist(), faces.means.tolist(), faces.counts.tolist(), strict=True):
        if number > 20:
            for cell in (one, two):
                faintest[cell] = np.fmin(faintest[cell], mean)
    return faintest[1:]
