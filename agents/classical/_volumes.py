"""Building blocks for volumes: voxel size, near-cubic working grid, ridges, and partition by membranes.

Arrays are ``(z, y, x)``; ``spacing_um`` is the size of a voxel along those axes. Lengths are µm where the name says so,
so that anisotropic sampling is dealt with in one place.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import edt
import numpy as np
import numpy.typing as npt
import tifffile
from scipy import ndimage as ndi
from skimage.segmentation import watershed

from ._io import pixel_size_um

Volume = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.int32]
Spacing = tuple[float, float, float]

_CORNERS = np.ones((3, 3, 3), dtype=bool)
_SIZE = re.compile(
    r"([0-9]+(?:\.[0-9]+)?)\s*(?:µm|μm|um)\s+(?:in|along)\s+((?:[xyz]\s*(?:,|and|or)?\s*)+)(?![a-z])", re.IGNORECASE
)


def find_voxel_size(path: Path, instruction: str) -> tuple[Spacing, str]:
    """Return the voxel size (z, y, x) in µm and where it was found: the file's metadata, else the instruction.

    Without either, voxels are taken to be cubes of 1 µm, and the source says so.
    """
    plane = pixel_size_um(path)
    with tifffile.TiffFile(path) as file:
        step = (file.imagej_metadata or {}).get("spacing")
        if file.ome_metadata and (found := re.search(r'PhysicalSizeZ="([0-9.eE+-]+)"', file.ome_metadata)):
            step = float(found[1])
    if plane is not None and step:
        return (float(step), plane, plane), "the file's metadata"
    stated = voxel_size(instruction)
    if stated is not None:
        return stated, "the instruction (the files state none)"
    return (1.0, 1.0, 1.0), "nowhere: cubes of unit size are assumed"


def voxel_size(instruction: str) -> Spacing | None:
    """Read the voxel size (z, y, x) in µm from a text such as "0.1 µm in x and y and 0.2 µm in z", or ``None``."""
    found: dict[str, float] = {}
    for size, axes in _SIZE.findall(instruction):
        for axis in re.findall(r"[xyz]", axes.lower()):
            found.setdefault(axis, float(size))
    return (found["z"], found["y"], found["x"]) if set(found) == set("xyz") else None


@dataclass(frozen=True)
class Grid:
    """A working grid that is coarser than the data in the plane, so that its voxels are nearly cubic."""

    shape: tuple[int, int, int]
    factors: tuple[int, int, int]
    spacing_um: Spacing

    @classmethod
    def near_cubic(cls, shape: Sequence[int], spacing_um: Spacing) -> Grid:
        """Reduce each axis by the whole number that comes closest to the coarsest axis."""
        coarsest = max(spacing_um)
        factors = tuple(max(1, round(coarsest / step)) for step in spacing_um)
        sizes = tuple(step * factor for step, factor in zip(spacing_um, factors, strict=True))
        return cls(tuple(shape), factors, sizes)  # type: ignore[arg-type]

    def reduce(self, volume: npt.NDArray[np.generic]) -> Volume:
        """Average blocks; the rim is padded with its own values."""
        pad = [(0, -length % factor) for length, factor in zip(self.shape, self.factors, strict=True)]
        data = np.pad(volume, pad, mode="edge") if any(after for _, after in pad) else volume
        blocks = [
            part for length, factor in zip(data.shape, self.factors, strict=True) for part in (length // factor, factor)
        ]
        return np.asarray(data.reshape(blocks).mean(axis=(1, 3, 5), dtype=np.float32))

    def restore(self, labels: Labels) -> Labels:
        """Bring labels back to the full grid by repeating voxels."""
        for axis, factor in enumerate(self.factors):
            labels = labels.repeat(factor, axis=axis) if factor > 1 else labels
        z, y, x = self.shape
        return labels[:z, :y, :x]

    def voxels(self, length_um: float) -> tuple[float, float, float]:
        """Return a length in voxels along each axis."""
        return tuple(length_um / step for step in self.spacing_um)  # type: ignore[return-value]


def ridge_strength(volume: Volume, sigma: Sequence[float], slab: int = 32) -> Volume:
    """Return how sharply the brightness bends down across the best direction: sheets and lines are bright.

    The largest negative eigenvalue of the Hessian at one scale, computed in slabs of planes to bound memory.

    Parameters
    ----------
    sigma
        Gaussian width along each axis, in voxels.
    """
    reach = int(np.ceil(4 * sigma[0])) + 1
    result = np.empty(volume.shape, dtype=np.float32)
    for start in range(0, volume.shape[0], slab):
        low, high = max(0, start - reach), min(volume.shape[0], start + slab + reach)
        part = volume[low:high]
        matrix = np.empty((min(slab, volume.shape[0] - start), *volume.shape[1:], 3, 3), dtype=np.float32)
        for i in range(3):
            for j in range(i, 3):
                order = [0, 0, 0]
                order[i] += 1
                order[j] += 1
                second = ndi.gaussian_filter(part, sigma, order=order)[start - low : start - low + slab]
                matrix[..., i, j] = matrix[..., j, i] = second * (sigma[i] * sigma[j])
        result[start : start + slab] = -np.linalg.eigvalsh(matrix)[..., 0]
    return np.maximum(result, 0, out=result)


@dataclass(frozen=True)
class Faces:
    """The faces between touching regions: pairs, number of voxel faces, mean and lowest value along them."""

    pairs: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    means: npt.NDArray[np.float64]
    lowest: npt.NDArray[np.float32]


def faces_between(labels: Labels, values: Volume) -> Faces:
    """Measure ``values`` on the faces between regions; a voxel face has the larger value of its two voxels."""
    base = int(labels.max()) + 1
    keys: list[npt.NDArray[np.int64]] = []
    levels: list[npt.NDArray[np.float32]] = []
    for axis in range(3):
        region, value = np.moveaxis(labels, axis, 0), np.moveaxis(values, axis, 0)
        touch = (region[1:] != region[:-1]) & (region[1:] > 0) & (region[:-1] > 0)
        one, two = region[:-1][touch].astype(np.int64), region[1:][touch].astype(np.int64)
        keys.append(np.minimum(one, two) * base + np.maximum(one, two))
        levels.append(np.maximum(value[:-1][touch], value[1:][touch]))
    key, level = np.concatenate(keys), np.concatenate(levels)
    order = np.argsort(key, kind="stable")
    key, level = key[order], level[order]
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    counts = np.diff(starts, append=key.size)
    if not len(starts):
        return Faces(np.empty((0, 2), np.int64), counts, np.empty(0), np.empty(0, np.float32))
    pairs = np.stack([key[starts] // base, key[starts] % base], axis=1)
    means = np.add.reduceat(level.astype(np.float64), starts) / counts
    return Faces(pairs, counts, means, np.minimum.reduceat(level, starts))


def deep_basins(depth: Volume, least: float, height: float) -> tuple[Labels, npt.NDArray[np.float64]]:
    """Divide a volume into the basins around the maxima of ``depth``; basins parted by shallow passes are one.

    Parameters
    ----------
    depth
        Landscape, larger inside objects.
    least
        Smallest value of a maximum.
    height
        Two maxima stay apart if both stand this much above the highest pass between them.

    Returns
    -------
    basins
        Labels of all voxels.
    summits
        Height of the maximum of each label.
    """
    tops, count = ndi.label((depth == ndi.maximum_filter(depth, 3)) & (depth > least), structure=_CORNERS)
    if count == 0:
        return np.zeros(depth.shape, np.int32), np.zeros(1)
    basins = watershed(-depth, tops)
    summits = np.zeros(count + 1)
    summits[1:] = ndi.maximum(depth, tops, np.arange(1, count + 1))
    faces = faces_between(basins, -depth)
    parent = np.arange(count + 1)
    for index in np.argsort(faces.lowest, kind="stable"):
        one, two = (_root(parent, int(label)) for label in faces.pairs[index])
        if one != two and min(summits[one], summits[two]) + faces.lowest[index] < height:
            low, high = (one, two) if summits[one] < summits[two] else (two, one)
            parent[low] = high
    root = np.array([_root(parent, label) for label in range(count + 1)])
    names, index = np.unique(root, return_inverse=True)
    return index[basins].astype(np.int32), summits[names]


def merge_across(labels: Labels, faces: Faces, limit: float) -> Labels:
    """Merge regions across faces whose mean value lies below ``limit``, the faintest face first.

    Faces of merged regions with a common neighbour become one face with their mean.
    """
    count = int(labels.max())
    neighbours: list[dict[int, tuple[int, float]]] = [{} for _ in range(count + 1)]
    for (one, two), number, mean in zip(faces.pairs.tolist(), faces.counts.tolist(), faces.means.tolist(), strict=True):
        neighbours[one][two] = neighbours[two][one] = (number, mean)
    parent = np.arange(count + 1)
    queue = [(mean, one, two) for (one, two), mean in zip(faces.pairs.tolist(), faces.means.tolist(), strict=True)]
    queue = [entry for entry in queue if entry[0] < limit]
    heapq.heapify(queue)
    while queue:
        mean, one, two = heapq.heappop(queue)
        if parent[one] != one or parent[two] != two or neighbours[one].get(two, (0, np.nan))[1] != mean:
            continue
        parent[two] = one
        for other, (number, level) in list(neighbours[two].items()):
            del neighbours[other][two]
            if other == one:
                continue
            held, held_level = neighbours[one].get(other, (0, 0.0))
            joint = (number + held, (number * level + held * held_level) / (number + held))
            neighbours[one][other] = neighbours[other][one] = joint
            if joint[1] < limit:
                heapq.heappush(queue, (joint[1], one, other))
        neighbours[two] = {}
    return np.array([_root(parent, label) for label in range(count + 1)], dtype=np.int32)[labels]


def distance_um(outside: Mask, spacing_um: Spacing) -> Volume:
    """Return the distance of every voxel to the nearest one of ``outside``, in µm; the volume's edge is no wall."""
    return np.asarray(edt.edt(np.ascontiguousarray(~outside), anisotropy=spacing_um, black_border=False), np.float32)


def _root(parent: npt.NDArray[np.int64], label: int) -> int:
    while parent[label] != label:
        parent[label] = parent[parent[label]]
        label = int(parent[label])
    return label


def smoothed_um(volume: Volume, sigma_um: float, spacing_um: Spacing) -> Volume:
    """Return a volume after a Gaussian of the same width in µm along each axis."""
    return np.asarray(ndi.gaussian_filter(volume, [sigma_um / step for step in spacing_um], mode="nearest"))


def line_strength(volume: Volume, sigma_um: float, spacing_um: Spacing, where: Mask) -> tuple[Volume, float]:
    """Return how much brightness bends down across a line, at the voxels of ``where``, and the noise of that value.

    The second of the three principal curvatures (largest first) is negative on lines and blobs but not on sheets; it is
    taken with its sign reversed, 0 where the brightness does not bend down. The noise is measured on a regular sample
    of the whole volume. Only the voxels asked for cost time beyond the six derivatives.
    """
    sigma = [sigma_um / step for step in spacing_um]
    places = np.nonzero(where)
    sample = tuple(slice(0, None, max(1, length // 25)) for length in volume.shape)
    matrix = np.empty((len(places[0]), 3, 3), np.float32)
    around = np.empty((volume[sample].size, 3, 3), np.float32)
    for i in range(3):
        for j in range(i, 3):
            order = [0, 0, 0]
            order[i] += 1
            order[j] += 1
            second = ndi.gaussian_filter(volume, sigma, order=order, mode="nearest") * (sigma[i] * sigma[j])
            matrix[:, i, j] = matrix[:, j, i] = second[places]
            around[:, i, j] = around[:, j, i] = second[sample].ravel()
    result = np.zeros(volume.shape, np.float32)
    result[places] = np.maximum(-np.linalg.eigvalsh(matrix)[:, 1], 0.0)
    middle = np.linalg.eigvalsh(around)[:, 1]
    return result, float(1.4826 * np.median(np.abs(middle - np.median(middle))))
