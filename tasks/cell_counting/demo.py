"""Demo data of cell_counting: immunostained neural progenitor cells in wide field, one channel.

Imaging model
-------------
State: each field holds a number of cells, from none to dense colonies whose cells touch and overlap. A cell is either
round and barely attached (a small bright sphere) or spread (a flat soma with a brighter nucleus and up to four curved,
tapering neurites). Its point of truth is the centre of its nucleus, which always lies in the field; somata and neurites
may be cut by the edge.

Light: every body emits in proportion to its thickness, times a brightness of its own; bodies on top of each other add
up. Part of the cells lie above the focal plane and are wider for it. Over the field come an out-of-focus haze, large
soft glows of floating cells far out of focus, specks of dirt, lint, a lamp that is not centred, and for every batch
another stain strength, background and camera gain. Then a Gaussian point spread (0.45 NA, 520 nm), Poisson noise, read
noise and 8 bits, which the brightest cells of some batches exceed.

The empty fields have all of it except cells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tasks._optics import (
    Array,
    Blob,
    Camera,
    Objective,
    coverage,
    debris,
    haze,
    render_points,
    rotation_2d,
    smooth_field,
    stream,
    uneven_light,
    wander,
    window,
    write_csv,
    write_tiff,
)

SHAPE = (1200, 1600)
OBJECTIVE = Objective(na=0.45, wavelength_nm=520.0, pixel_size_um=0.5)
CELLS_PER_FIELD = ((0, 0), (0, 0), (1, 2), (10, 21), (35, 59), (75, 104), (120, 141))
EDGE = 5.0  # no centre lies closer to the border, px


@dataclass(frozen=True)
class Cell:
    """One cell: where its nucleus is, how large and bright it is, whether it has spread, how far from focus it lies."""

    centre: tuple[float, float]
    radius_px: float
    angle: float
    brightness: float
    spread: bool
    defocus_um: float


def _centres(rng: np.random.Generator, count: int, clustered: float) -> Array:
    """Place ``count`` centres; a share ``clustered`` of them crowds into colonies with touching neighbours."""
    low, high = np.array([EDGE, EDGE]), np.array(SHAPE) - 1 - EDGE
    colonies = rng.uniform(low, high, (max(1, count // 18), 2))
    spreads = rng.uniform(20.0, 52.0, len(colonies))
    centres: list[Array] = []
    while len(centres) < count:
        if rng.random() < clustered:
            colony = int(rng.integers(len(colonies)))
            candidate, spacing = colonies[colony] + rng.normal(0.0, spreads[colony], 2), rng.uniform(10.0, 17.0)
        else:
            candidate, spacing = rng.uniform(low, high), 20.0
        if np.any(candidate < low) or np.any(candidate > high):
            continue
        if not centres or np.min(np.hypot(*(np.asarray(centres) - candidate).T)) >= spacing:
            centres.append(candidate)
    return np.asarray(centres).reshape(-1, 2)


def _cells(rng: np.random.Generator, count: int, spread: float) -> list[Cell]:
    cells = []
    for y, x in _centres(rng, count, clustered=0.75 if count > 20 else 0.3):
        cells.append(
            Cell(
                centre=(float(y), float(x)),
                radius_px=float(rng.uniform(6.5, 10.5)),
                angle=float(rng.uniform(0.0, math.pi)),
                brightness=float(np.clip(rng.lognormal(0.0, 0.38), 0.4, 2.5)),
                spread=bool(rng.random() < spread),
                defocus_um=float(abs(rng.normal(0.0, 2.2))),
            )
        )
    return cells


def _draw(layer: Array, cell: Cell, rng: np.random.Generator) -> None:
    """Add the light of one cell, 1 at the middle of a typical nucleus, to ``layer``."""
    axes = rotation_2d(cell.angle)
    stretch = rng.uniform(1.05, 1.45) if cell.spread else rng.uniform(1.0, 1.15)
    radii = (cell.radius_px * math.sqrt(stretch), cell.radius_px / math.sqrt(stretch))
    nucleus = Blob.random(rng, cell.centre, radii, axes, roughness=0.04)
    if (place := nucleus.on(SHAPE)) is not None:
        where, rho = place
        mottle = 1.0 + 0.18 * smooth_field(rho.shape, 3.0, rng)
        thickness = 0.35 + 0.65 * np.sqrt(np.maximum(1.0 - rho**2, 0.0))
        layer[where] += cell.brightness * thickness * mottle * coverage(rho, cell.radius_px)
    if not cell.spread:
        return
    soma_radii = (cell.radius_px * rng.uniform(1.6, 2.3), cell.radius_px * rng.uniform(1.15, 1.4))
    offset = rng.normal(0.0, 1.5, 2)
    soma = Blob.random(rng, np.add(cell.centre, offset), soma_radii, axes, roughness=0.16)
    if (place := soma.on(SHAPE)) is not None:
        where, rho = place
        layer[where] += 0.3 * cell.brightness * np.sqrt(np.maximum(1.0 - np.minimum(rho, 1.0) ** 2, 0.0))
    for k in range(int(rng.integers(1, 5))):
        heading = cell.angle + (math.pi if k % 2 else 0.0) + rng.normal(0.0, 0.5)
        length = rng.uniform(15.0, 110.0) if k < 2 else rng.uniform(8.0, 30.0)
        path = wander(rng, cell.centre, heading, length + cell.radius_px, bend=0.05)[round(1.6 * cell.radius_px) :]
        if not len(path):
            continue
        taper = np.linspace(1.0, 0.35, len(path)) * (1.0 + 0.3 * np.abs(smooth_field((len(path),), 9.0, rng)))
        _add_points(layer, path, 0.42 * cell.brightness * taper, 1.1)


def _add_points(layer: Array, path: Array, weights: Array, sigma_px: float) -> None:
    """Render points into the part of ``layer`` around them."""
    margin = 8
    low = np.clip(np.floor(path.min(axis=0)).astype(int) - margin, 0, SHAPE)
    high = np.clip(np.ceil(path.max(axis=0)).astype(int) + margin, 0, SHAPE)
    if np.all(high > low):
        part = layer[low[0] : high[0], low[1] : high[1]]
        part += render_points(part.shape, path - low, weights, sigma_px)


def _photons(cells: list[Cell], seed: int, index: int) -> Array:
    """Return the expected photons per pixel of one field, 8-bit scale still to come."""
    rng = stream(seed, "batch", index)
    signal, background = rng.uniform(120.0, 420.0), rng.uniform(18.0, 60.0)
    sharp, soft = np.zeros(SHAPE), np.zeros(SHAPE)
    for number, cell in enumerate(cells):
        _draw(soft if cell.defocus_um > 3.0 else sharp, cell, stream(seed, "cell", index, number))
    light = signal * OBJECTIVE.blur(sharp, 0.8)
    if soft.any():
        light += signal * OBJECTIVE.blur(soft, 4.5)
    light += haze(SHAPE, stream(seed, "haze", index), background, 260.0, contrast=0.35)
    light += _glows(stream(seed, "glow", index), 0.5 * signal)
    light += debris(SHAPE, stream(seed, "dirt", index), int(rng.integers(12, 40)), (0.4, 1.1), (0.3 * signal, signal))
    lint = stream(seed, "lint", index)
    for _ in range(int(lint.integers(0, 4))):
        fibre = wander(
            lint, (lint.uniform(0, 1, 2) * SHAPE).tolist(), lint.uniform(0, 6.3), lint.uniform(60, 260), bend=0.02
        )
        _add_points(light, fibre, np.full(len(fibre), 0.5 * signal), 0.9)
    return light * uneven_light(SHAPE, stream(seed, "lamp", index), falloff=0.3)


def _glows(rng: np.random.Generator, peak: float) -> Array:
    """Floating cells far above the focal plane: soft discs many times wider than a cell."""
    glow = np.zeros(SHAPE)
    for _ in range(int(rng.integers(2, 6))):
        sigma = rng.uniform(34.0, 75.0)
        height = peak * rng.uniform(0.15, 0.7)
        if (place := window(SHAPE, (rng.uniform(0, 1, 2) * SHAPE).tolist(), 3.5 * sigma)) is not None:
            where, (y, x) = place
            glow[where] += height * np.exp(-0.5 * (y / sigma) ** 2) * np.exp(-0.5 * (x / sigma) ** 2)
    return glow


def make(destination: Path, seed: int) -> None:
    """Write ``input/<N>.tiff`` and ``evaluation/<N>.csv`` below ``destination``, the same bytes for the same seed."""
    rng = stream(seed, "fields")
    counts = [int(rng.integers(low, high + 1)) for low, high in CELLS_PER_FIELD]
    for index, field in enumerate(rng.permutation(len(counts))):
        cells = _cells(stream(seed, "cells", index), counts[field], spread=float(rng.uniform(0.15, 0.75)))
        exposure = stream(seed, "camera", index)
        camera = Camera(gain=float(exposure.uniform(0.32, 0.5)), offset=4.0, read_noise_e=4.0, bits=8)
        write_tiff(destination / "input" / f"{index}.tiff", camera.expose(_photons(cells, seed, index), exposure))
        points = [(math.floor(cell.centre[1] + 0.5), math.floor(cell.centre[0] + 0.5)) for cell in cells]
        write_csv(destination / "evaluation" / f"{index}.csv", ("X", "Y"), points)
