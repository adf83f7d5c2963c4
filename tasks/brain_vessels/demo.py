"""Demo data of brain_vessels: vessels of cleared mouse brain in the light sheet, 0.975 x 0.975 x 2 um voxels, 16 bit.

Imaging model
-------------
State: capillaries run along the edges of a foam (a Voronoi tessellation of random points, thinned until at most three
meet in a point), each bent at random, 2.7 to 8 µm wide; one or two larger vessels, up to 20 µm wide, cross the volume,
taper and send branches into the net. A voxel belongs to a vessel if its centre lies inside the wall; this is the truth.

Light: filled lumen, with a brightness of its own for every vessel and stretches of it that the label hardly reached;
wide vessels are dimmer in the middle. Tissue glows, in the large pattern of pale fibre bundles and in fine grain;
single round cells glow more, and clumps of label are brighter than any vessel: none of these are vessels. The sheet is
thin in the middle of the field and thicker to the sides, so that the axial blur changes along x; light is lost on its
way and stripes of shade follow it. A sCMOS camera, 16 bits.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.spatial import Voronoi

from tasks._optics import Array, Camera, haze, render_points, smooth_field, stream, write_tiff
from tasks._optics3d import Tubes

ANIMALS = (204, 218, 608, 640, 641, 642)
SHAPE = (101, 100, 100)
SPACING = (2.0, 0.975, 0.975)  # um per voxel along z, y, x
EXTENT = tuple((n - 1) * step for n, step in zip(SHAPE, SPACING, strict=True))
STEP_UM = 3.0  # length of one painted piece
CELLS_UM = 72.0  # mean distance of the points behind the foam


def _foam(rng: np.random.Generator) -> tuple[Array, list[tuple[int, int]]]:
    """Return nodes (µm) and edges of the capillary net, reaching beyond the volume on all sides."""
    margin = 50.0
    low, high = -np.full(3, margin), np.array(EXTENT) + margin
    count = round(float(np.prod((high - low) / CELLS_UM)) * 1.6)
    foam = Voronoi(rng.uniform(low, high, (count, 3)))
    edges: set[tuple[int, int]] = set()
    for face in foam.ridge_vertices:
        if -1 not in face:
            edges |= {(min(a, b), max(a, b)) for a, b in zip(face, face[1:] + face[:1], strict=True)}
    nodes = np.asarray(foam.vertices)
    inside = np.all((nodes > low + 10.0) & (nodes < high - 10.0), axis=1)
    kept: list[tuple[int, int]] = []
    degree = np.zeros(len(nodes), int)
    ordered = sorted(edges)
    for index in rng.permutation(len(ordered)):
        a, b = ordered[index]
        length = float(np.linalg.norm(nodes[a] - nodes[b]))
        if inside[a] and inside[b] and 8.0 < length < 90.0 and max(degree[a], degree[b]) < 3:
            kept.append((a, b))
            degree[[a, b]] += 1
    return nodes, kept


def _bent(rng: np.random.Generator, start: Array, stop: Array, bend: float) -> Array:
    """Return a path between two points with a random smooth bulge of ``bend`` times its length, ``(n, 3)``."""
    length = float(np.linalg.norm(stop - start))
    t = np.linspace(0.0, 1.0, max(3, math.ceil(length / STEP_UM) + 1))[:, None]
    bulge = rng.normal(0.0, bend * length, (3, 3))
    waves = sum((bulge[k] / (k + 1) * np.sin((k + 1) * math.pi * t) for k in range(3)), start=np.zeros(3))
    return np.asarray(start + (stop - start) * t + waves)


def _profile(rng: np.random.Generator, n: int, mean: float, spread: float) -> Array:
    """Return a smooth positive random course of ``n`` values around ``mean``."""
    period = rng.uniform(6.0, 25.0, (4, 1))
    waves = np.sin(2.0 * math.pi * (np.arange(n) / period + rng.random((4, 1)))).sum(axis=0) / math.sqrt(2.0)
    return np.asarray(mean * np.exp(spread * waves - 0.5 * spread**2))


def _brightness(rng: np.random.Generator, n: int) -> Array:
    """Return the brightness along a vessel: its own level, and stretches where little label arrived."""
    level = rng.lognormal(0.0, 0.3) * _profile(rng, n, 1.0, 0.15)
    if rng.random() < 0.3:
        gap = np.abs(np.arange(n) - rng.uniform(0.2, 0.8) * n) * STEP_UM
        level *= 1.0 - rng.uniform(0.45, 0.75) * np.exp(-((gap / rng.uniform(3.0, 8.0)) ** 2))
    return np.asarray(level)


def _network(rng: np.random.Generator) -> Tubes:
    tubes = Tubes(SHAPE, SPACING)
    nodes, edges = _foam(rng)
    for a, b in edges:
        beyond = np.minimum(nodes[a], nodes[b]) > np.array(EXTENT) + 10.0
        if beyond.any() or (np.maximum(nodes[a], nodes[b]) < -10.0).any():
            continue
        path = _bent(rng, nodes[a], nodes[b], 0.09)
        radius = float(np.clip(rng.lognormal(math.log(2.3), 0.25), 1.45, 4.0))
        tubes.paint(path, np.maximum(_profile(rng, len(path), radius, 0.1), 1.35), _brightness(rng, len(path)))
    for _ in range(int(rng.integers(1, 3))):
        _large_vessel(rng, tubes, nodes)
    return tubes


def _large_vessel(rng: np.random.Generator, tubes: Tubes, nodes: Array) -> None:
    """Paint an arteriole or venule across the volume, and its branches to nearby nodes of the net."""
    middle = np.array(EXTENT) * rng.uniform(0.25, 0.75, 3)
    heading = rng.normal(0.0, 1.0, 3) * (2.0, 1.0, 1.0)
    heading /= np.sqrt(np.sum(heading**2))
    path = _bent(rng, middle - 150.0 * heading, middle + 150.0 * heading, 0.03)
    widest = rng.uniform(5.0, 9.7)
    taper = np.linspace(1.0, rng.uniform(0.45, 0.8), len(path))
    radius = _profile(rng, len(path), widest, 0.05).clip(max=9.75) * taper
    tubes.paint(path, radius, rng.uniform(0.9, 1.4) * _profile(rng, len(path), 1.0, 0.1))
    for index in rng.integers(5, len(path) - 5, 7):
        near = np.argsort(np.linalg.norm(nodes - path[index], axis=1))[:6]
        goal = nodes[rng.choice(near)]
        if 10.0 < (distance := float(np.linalg.norm(goal - path[index]))) < 60.0:
            branch = _bent(rng, path[index], goal, 0.06)
            start = min(0.6 * radius[index], 4.5)
            width = start + (2.4 - start) * np.linspace(0.0, 1.0, len(branch)) ** (10.0 / distance)
            tubes.paint(branch, width, _brightness(rng, len(branch)))


def _tissue(rng: np.random.Generator) -> Array:
    """Glow of the tissue around the vessels, in photons: bundles, grain, round cells, clumps of label."""
    bundles = smooth_field(SHAPE, (30.0, 22.0, 22.0), rng)
    glow = haze(SHAPE, rng, 130.0, 60.0, 0.25) * (1.0 - 0.28 / (1.0 + np.exp(-6.0 * (bundles - 0.7))))
    glow *= np.clip(1.0 + 0.12 * smooth_field(SHAPE, (2.0, 2.5, 2.5), rng), 0.3, 2.0)
    cells = rng.uniform((0.0, 0.0, 0.0), np.array(SHAPE) - 1.0, (45, 3))
    glow += render_points(SHAPE, cells, rng.uniform(1e4, 5.5e4, len(cells)), (1.7, 3.2, 3.2))
    clumps = rng.uniform((0.0, 0.0, 0.0), np.array(SHAPE) - 1.0, (12, 3))
    glow += render_points(SHAPE, clumps, rng.lognormal(math.log(9000.0), 0.6, len(clumps)), (0.5, 0.8, 0.8))
    return glow


def _expose(tubes: Tubes, rng: np.random.Generator) -> NDArray[np.unsignedinteger]:
    deep = np.maximum(tubes.depth_um.astype(np.float64), 0.0)
    hollow = 1.0 - 0.35 * (1.0 - np.exp(-np.maximum(deep - 3.0, 0.0) / 3.0))
    photons = 300.0 * tubes.filling(1.0) * tubes.light * hollow + _tissue(rng)
    lateral = ndimage.gaussian_filter1d(photons, 0.9, axis=1, mode="nearest")
    lateral = ndimage.gaussian_filter1d(lateral, 0.9, axis=2, mode="nearest")
    thin = ndimage.gaussian_filter1d(lateral, 0.85, axis=0, mode="nearest")
    thick = ndimage.gaussian_filter1d(lateral, 1.7, axis=0, mode="nearest")
    x = np.linspace(-1.0, 1.0, SHAPE[2])
    waist = rng.uniform(-0.3, 0.3)
    to_the_side = np.clip((x - waist) ** 2, 0.0, 1.0)
    photons = thin + (thick - thin) * to_the_side
    stripes = 1.0 + 0.06 * smooth_field((SHAPE[0], SHAPE[1]), (1.2, 2.5), rng)[:, :, None]
    lost = np.exp(-rng.uniform(0.15, 0.35) * (x + 1.0))
    photons *= stripes * lost * (1.0 + 0.08 * smooth_field((SHAPE[0],), 12.0, rng)[:, None, None])
    return Camera(gain=2.2, offset=100.0, read_noise_e=2.0, bits=16, efficiency=0.7).expose(photons, rng)


def make(destination: Path, seed: int) -> None:
    """Write ``input/control<id>_r_RA.tiff`` and ``evaluation/Binary_control<id>_r_RA.tiff`` for six animals."""
    for animal in ANIMALS:
        tubes = _network(stream(seed, "vessels", animal))
        image = _expose(tubes, stream(seed, "light", animal))
        write_tiff(destination / "input" / f"control{animal}_r_RA.tiff", image)
        truth = tubes.mask.astype(np.uint8)
        write_tiff(destination / "evaluation" / f"Binary_control{animal}_r_RA.tiff", truth, compression="zlib")
