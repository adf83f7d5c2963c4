"""Demo data of zebrafish_cells: membranes of a migrating epithelial cluster, 0.099 x 0.099 x 0.225 um voxels, 8 bit.

Imaging model
-------------
State: the tissue is a low mound that tapers towards its front, its rear is cut by the image. Cells are columns that
lean: each has a foot and a head, and at every height the cross-section is a share of a power diagram (Voronoi with
weights, and an axis ratio per cell). Heads of the followers are drawn together into rosettes around a small lumen, with
narrow apices; some cells reach only the foot or only the head side; leaders are flat and stretched along the way of
migration. A few cells round up for division and push their neighbours aside. Every cell is one connected body; lumens
and the outside are background. These bodies are the truth.

Light: membrane per area, two leaflets between cells and one towards the outside, each contact with a brightness of its
own, some almost dark; bright apices around lumens; bright vesicles inside cells; faint cytoplasm. Above lies a dim
sheet of skin with its own cell outlines, beside the tissue bright debris; neither holds cells to segment. A confocal
point spread, haze from out of focus, loss with depth, few photons, the correlated grain that deconvolution leaves, and
8 bits with clipping. Cells are small and few here, voxels and everything else as in the published stacks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from tasks._optics import Array, Camera, Objective, render_points, smooth_field, stream, write_tiff
from tasks._optics3d import Shape3D, loss_with_depth, membranes, settle, window_um

SPACING = (0.225, 0.099, 0.099)  # um per voxel along z, y, x
OBJECTIVE = Objective(na=1.2, wavelength_nm=515.0, pixel_size_um=0.099, z_step_um=0.225, index=1.33, confocal=True)
STACKS = (("056F63395C", (44, 176, 300)), ("2E0A94D71B", (48, 168, 318)), ("B1C7403EF8", (40, 184, 290)))
MIN_CELL_UM3 = 10.0


@dataclass(frozen=True)
class Tissue:
    """Outline of the cluster: where it stands and how high it is."""

    length_um: float  # from the rear (cut by the image) to the front
    middle_um: float  # y of the long axis
    half_width_um: float
    height_um: float
    floor_um: float
    waves: Array  # (3,) phases

    def profile(self, y: Array, x: Array) -> tuple[Array, Array]:
        """Floor and height in um over the plane; height is at most 0 outside."""
        to_front = np.clip((self.length_um - x) / 9.0, 0.0, 1.0)
        taper = np.sqrt(np.clip(to_front, 0.0, 1.0))
        width = self.half_width_um * (0.35 + 0.65 * taper) * (1.0 + 0.06 * np.sin(x / 3.1 + self.waves[0]))
        middle = self.middle_um + 0.6 * np.sin(x / 9.0 + self.waves[1])
        across = np.abs(y - middle) / width
        dome = np.sqrt(np.clip(1.0 - across**4, 0.0, 1.0))
        height = self.height_um * dome * (0.28 + 0.72 * np.clip(to_front * 1.25 - 0.1, 0.0, 1.0) ** 0.8)
        height = np.where((x < self.length_um) & (across < 1.0), height, 0.0)
        floor = self.floor_um + 0.25 * np.sin(x / 4.3 + self.waves[2]) + 0.25 * np.cos(y / 3.7 + self.waves[0])
        return floor, np.where(height < 0.5, 0.0, height)


@dataclass(frozen=True)
class Column:
    """One cell: axis from foot to head, cross-section weights there (um²) and stretch along x."""

    foot: Array  # (y, x) um
    head: Array
    weights: tuple[float, float]  # at foot and head
    bend: Array  # (y, x) um, sideways bulge of the axis
    stretch: float


def _footprint(tissue: Tissue, shape: Shape3D, rng: np.random.Generator) -> Array:
    """Feet of the cells, ``(n, 2)``: close together in the rear, wider apart in the front."""
    feet: list[Array] = []
    extent = np.array(shape[1:]) * SPACING[1:]
    candidates = rng.uniform((0.0, -2.0), (extent[0], tissue.length_um), (3000, 2))
    _, heights = tissue.profile(candidates[:, 0], np.maximum(candidates[:, 1], 0.0))
    for candidate, height in zip(candidates[heights > 0.0], heights[heights > 0.0], strict=True):
        spacing = 3.3 if height > 0.72 * tissue.height_um else 4.3
        if not feet or np.min(np.hypot(*(np.asarray(feet) - candidate).T)) > spacing:
            feet.append(candidate)
    return np.asarray(feet)


def _columns(tissue: Tissue, shape: Shape3D, rng: np.random.Generator) -> tuple[list[Column], Array]:
    """Return the columns and the centres of the rosettes, ``(n, 2)``."""
    feet = _footprint(tissue, shape, rng)
    rosettes = np.array(
        [
            (tissue.middle_um + rng.normal(0.0, 0.6), position + rng.normal(0.0, 0.6))
            for position in np.arange(5.0, tissue.length_um - 10.0, 10.5)
        ]
    )
    columns = []
    for foot in feet:
        _, height = tissue.profile(foot[:1], np.maximum(foot[1:], 0.0))
        follower = height[0] > 0.72 * tissue.height_um
        nearest = rosettes[np.argmin(np.hypot(*(rosettes - foot).T))]
        distance = float(np.hypot(*(nearest - foot)))
        pull = 0.7 * math.exp(-((distance / 5.0) ** 2)) if follower else 0.0
        head = foot + pull * (nearest - foot) + rng.normal(0.0, 0.7, 2)
        wedge = rng.normal(0.0, 2.0) + (1.6 if rng.random() < 0.12 else 0.0) * rng.choice([-2.0, 2.0])
        columns.append(
            Column(
                foot=foot,
                head=head,
                weights=(wedge, -wedge - 1.2 * pull),
                bend=rng.normal(0.0, 0.35, 2),
                stretch=1.0 if follower else float(rng.uniform(1.25, 1.8)),
            )
        )
    return columns, rosettes


def _bodies(tissue: Tissue, shape: Shape3D, rng: np.random.Generator) -> tuple[NDArray[np.uint16], NDArray[np.bool_]]:
    """Return the label volume and the mask of the lumens, which are background in it."""
    columns, rosettes = _columns(tissue, shape, rng)
    z, y, x = (np.arange(n, dtype=np.float64) * step for n, step in zip(shape, SPACING, strict=True))
    floor, height = tissue.profile(y[:, None], x[None, :])
    inside_height = np.where(height > 0.0, height, 1.0)
    level = (z[:, None, None] - floor) / inside_height
    tissue_mask = (level >= 0.0) & (level <= 1.0) & (height > 0.0)
    labels = np.zeros(shape, np.int32)
    best = np.full(shape, np.inf, np.float32)
    reach = 6.5
    for label, column in enumerate(columns, start=1):
        low = np.minimum(column.foot, column.head) - reach
        high = np.maximum(column.foot, column.head) + reach
        place = window_um(shape, SPACING, (-1.0, *low), (1e3, *high))
        if place is None:
            continue
        where, (_, grid_y, grid_x) = place
        # Axis and weight depend on the height in the tissue, which is nearly the same for a whole plane of a column.
        at = np.clip(level[where].mean(axis=(1, 2), where=tissue_mask[where] | (level[where] < 9.0)), 0.0, 1.0)
        at = at[:, None, None]
        bulge = 4.0 * at * (1.0 - at)
        centre_y = column.foot[0] + (column.head[0] - column.foot[0]) * at + column.bend[0] * bulge
        centre_x = column.foot[1] + (column.head[1] - column.foot[1]) * at + column.bend[1] * bulge
        weight = column.weights[0] + (column.weights[1] - column.weights[0]) * at
        cost = ((grid_y - centre_y) ** 2 * column.stretch + (grid_x - centre_x) ** 2 / column.stretch - weight).astype(
            np.float32
        )
        wins = cost < best[where]
        best[where][wins] = cost[wins]
        labels[where][wins] = label
    labels[~tissue_mask] = 0
    labels = _round_up(labels, tissue, shape, len(columns), rng)
    lumens = _lumens(labels, tissue, rosettes, rng) & tissue_mask
    labels[lumens] = 0
    bodies = settle(labels, round(MIN_CELL_UM3 / math.prod(SPACING)))
    return bodies, lumens


def _round_up(
    labels: NDArray[np.int32], tissue: Tissue, shape: Shape3D, count: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Insert one or two cells that round up near the upper side; they push the others aside."""
    for extra in range(1, 2 + int(rng.random() < 0.5)):
        radius = rng.uniform(1.9, 2.3)
        middle_y = tissue.middle_um + rng.uniform(-0.4, 0.4) * tissue.half_width_um
        middle_x = rng.uniform(3.0, tissue.length_um - 11.0)
        floor, height = tissue.profile(np.array([middle_y]), np.array([middle_x]))
        middle = (floor[0] + height[0] - radius * 1.02, middle_y, middle_x)
        place = window_um(shape, SPACING, [m - radius for m in middle], [m + radius for m in middle])
        if place is None:
            continue
        where, grids = place
        squared = sum((g - m) ** 2 for g, m in zip(grids, middle, strict=True))
        labels[where][(squared < radius**2) & (labels[where] > 0)] = count + extra
    return labels


def _lumens(labels: NDArray[np.int32], tissue: Tissue, rosettes: Array, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Cavities where the heads of a rosette meet, a little below the upper side."""
    mask = np.zeros(labels.shape, bool)
    for rosette in rosettes:
        floor, height = tissue.profile(rosette[:1], rosette[1:])
        depth = float(floor[0] + height[0]) - 1.6
        if height[0] < 0.6 * tissue.height_um:
            continue
        plane = labels[round(depth / SPACING[0])]
        blocks = np.sort(np.stack([plane[:-1, :-1], plane[1:, :-1], plane[:-1, 1:], plane[1:, 1:]]), axis=0)
        corners = np.argwhere((np.diff(blocks, axis=0) != 0).sum(axis=0) >= 2) + 0.5
        if not len(corners):
            continue
        corners_um = corners * SPACING[1:]
        middle = np.array([depth, *corners_um[np.argmin(np.hypot(*(corners_um - rosette).T))]])
        radii = np.array([rng.uniform(0.7, 1.1), *rng.uniform(0.45, 0.75, 2)])
        place = window_um(mask.shape, SPACING, (middle - radii).tolist(), (middle + radii).tolist())
        if place is not None:
            where, grids = place
            mask[where] |= sum(((g - m) / r) ** 2 for g, m, r in zip(grids, middle, radii, strict=True)) < 1.0
    return mask


def _contacts(n: int, rng: np.random.Generator) -> Array:
    """Membrane brightness per area between each two of: outside (0), cells (1..n), lumens (n + 1)."""
    between = 2.0 * np.where(rng.random((n + 2, n + 2)) < 0.16, 0.22, 1.0) * rng.lognormal(0.0, 0.3, (n + 2, n + 2))
    table = np.triu(between, 1)
    table[0, 1:] = rng.lognormal(0.0, 0.25, n + 1)
    table[: n + 1, n + 1] = 3.0
    return np.asarray(table + table.T)


def _vesicles(bodies: NDArray[np.uint16], rng: np.random.Generator) -> Array:
    """Bright transport vesicles, about five in a cell."""
    inside = np.flatnonzero(bodies)
    count = 5 * int(bodies.max())
    points = np.stack(np.unravel_index(rng.choice(inside, count), bodies.shape), axis=1).astype(float)
    return render_points(bodies.shape, points, rng.lognormal(math.log(0.5), 0.7, count), (0.5, 0.6, 0.6))


def _surroundings(tissue: Tissue, shape: Shape3D, rng: np.random.Generator) -> Array:
    """Skin above the tissue, and debris beside it."""
    light = np.zeros(shape)
    y, x = (np.arange(n, dtype=np.float64) * step for n, step in zip(shape[1:], SPACING[1:], strict=True))
    tilt = rng.uniform(-0.03, 0.03, 2)
    above = tissue.floor_um + tissue.height_um + rng.uniform(0.9, 1.3)
    plane = above + tilt[0] * (y[:, None] - y.mean()) + tilt[1] * (x[None, :] - x.mean())
    index = np.rint(plane / SPACING[0]).astype(int)
    seeds = rng.uniform((-6.0, -6.0), (y[-1] + 6.0, x[-1] + 6.0), (14, 2))
    squared = (y[:, None, None] - seeds[:, 0]) ** 2 + (x[None, :, None] - seeds[:, 1]) ** 2
    nearest = np.argmin(squared, axis=-1)
    edges = (ndimage.maximum_filter(nearest, 3) != ndimage.minimum_filter(nearest, 3)).astype(float)
    sheet = 0.0035 * np.clip(1.0 + 0.6 * smooth_field(shape[1:], 25.0, rng), 0.0, 2.0) + 0.012 * edges
    inside = (index >= 0) & (index < shape[0])
    rows, columns = np.nonzero(inside)
    light[index[inside], rows, columns] += sheet[inside]
    for _ in range(int(rng.integers(2, 5))):
        side = rng.choice([-1.0, 1.0])
        middle = np.array(
            [
                rng.uniform(1.5, tissue.height_um),
                tissue.middle_um + side * (tissue.half_width_um + rng.uniform(0.7, 1.3)),
                rng.uniform(2.0, x[-1]),
            ]
        )
        points = (middle + rng.normal(0.0, 0.28, (25, 3))) / SPACING
        light += render_points(shape, points, rng.uniform(0.05, 0.5, 25), (0.6, 0.8, 0.8))
    return light


def _expose(light: Array, bodies: NDArray[np.uint16], tissue: Tissue, rng: np.random.Generator) -> NDArray[np.uint8]:
    photons = OBJECTIVE.blur(light)
    wide = ndimage.uniform_filter(photons, (9, 35, 35), mode="nearest")
    photons += 0.16 * ndimage.uniform_filter(wide, (9, 35, 35), mode="nearest")
    photons += np.where(bodies > 0, 0.0012, 0.0003)
    depth = (np.arange(light.shape[0], dtype=np.float64) * SPACING[0] - tissue.floor_um)[:, None, None]
    photons *= loss_with_depth(depth, 9.0) * 700.0
    photons += 0.35
    electrons = Camera(offset=50.0, read_noise_e=0.6, bits=16).expose(photons, rng).astype(np.float32) - 50.0
    grain = ndimage.gaussian_filter(electrons, (0.45, 0.6, 0.6), mode="nearest", truncate=3.0)
    grey: NDArray[np.uint8] = np.rint(np.clip(grain * 4.0 - 2.0, 0.0, 255.0)).astype(np.uint8)
    return grey


def _stack(shape: Shape3D, rng: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    """Return image and truth of one stack; the front points to the left or to the right."""
    size = [n * step for n, step in zip(shape, SPACING, strict=True)]
    tissue = Tissue(
        length_um=size[2] - rng.uniform(2.2, 3.2),
        middle_um=size[1] * rng.uniform(0.48, 0.52),
        half_width_um=size[1] * rng.uniform(0.37, 0.40),
        height_um=size[0] - rng.uniform(2.7, 3.0),
        floor_um=rng.uniform(0.9, 1.1),
        waves=rng.uniform(0.0, 2.0 * math.pi, 3),
    )
    bodies, lumens = _bodies(tissue, shape, rng)
    n = int(bodies.max())
    with_lumens = bodies.copy()
    with_lumens[lumens] = n + 1
    light = membranes(with_lumens, _contacts(n, rng), SPACING)
    light *= np.clip(1.0 + 0.3 * smooth_field(shape, (3.0, 5.0, 5.0), rng), 0.1, 2.5)
    light += 0.16 * _vesicles(bodies, rng) + _surroundings(tissue, shape, rng)
    image = _expose(light, bodies, tissue, rng)
    if rng.random() < 0.5:
        image, bodies = image[:, :, ::-1], bodies[:, :, ::-1]
    return np.ascontiguousarray(image), np.ascontiguousarray(bodies)


def make(destination: Path, seed: int) -> None:
    """Write ``input/<id>_8bit_lynEGFP.tif`` and ``evaluation/<id>_8bit_lynEGFP_seg.tif`` for three stacks."""
    for identifier, shape in STACKS:
        image, labels = _stack(shape, stream(seed, "stack", identifier))
        write_tiff(destination / "input" / f"{identifier}_8bit_lynEGFP.tif", image)
        write_tiff(destination / "evaluation" / f"{identifier}_8bit_lynEGFP_seg.tif", labels, compression="zlib")
