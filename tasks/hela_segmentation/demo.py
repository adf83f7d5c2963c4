"""Demo data of hela_segmentation: adherent cells, phalloidin (red) and DAPI (blue), wide field, 0.645 um per pixel.

Imaging model
-------------
State: nuclei are placed singly and in crowds; each owns a cell body, an irregular, often elongated outline around it
with a few tapering processes. Where bodies press against each other the pixel belongs to the one it lies relatively
deeper in, so neighbours share a border and never overlap. Cells may be cut by the image border. Some nuclei have two or
three lobes, some cells are in mitosis: rounded, with a condensed plate or ball of chromosomes. These outlines are the
truth; the region of a cell contains its nucleus.

Light, red: a thin flat body, a cortex that is brighter along most but not all of the outline, stress fibres along the
cell's own axis, a weaker zone over the nucleus; a brightness of its own for every cell, from faint to saturated. Fine
retraction fibres reach out of the cells and belong to none. Light, blue: thickness of the nucleus times its DNA
content, mottled, with dark nucleoli; condensed chromosomes are brighter. Apoptotic fragments and dirt are not cells.
Both channels: out-of-focus haze, a lamp off the centre, a Gaussian point spread (0.4 NA, slightly out of focus),
Poisson noise, read noise, 8 bits with clipping. Green holds no more than the camera's offset.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from tasks._optics import (
    Array,
    Blob,
    Camera,
    Objective,
    Slices,
    compete,
    debris,
    haze,
    oriented_field,
    render_points,
    rod_coordinates,
    rotation_2d,
    smooth_field,
    stream,
    uneven_light,
    wander,
    wide_blur,
    window,
    write_tiff,
)

SHAPE = (520, 696)
FIRST_ID = 2408
CELLS_PER_IMAGE = (26, 44, 58, 74, 90)
RED = Objective(na=0.4, wavelength_nm=605.0, pixel_size_um=0.645)
BLUE = Objective(na=0.4, wavelength_nm=455.0, pixel_size_um=0.645)
ORIENTATIONS = 8  # stress fibres are drawn from this many textures
MIN_NUCLEUS_PX = 60  # smaller remains at the border or below a neighbour are no cells


@dataclass(frozen=True)
class Cell:
    """One cell: outlines of body and nucleus (one blob per lobe) and how it glows."""

    body: Blob
    processes: tuple[tuple[float, float, float], ...]  # direction, length, half width at the base
    nucleus: tuple[Blob, ...]
    angle: float
    mitotic: bool
    actin: float
    fibres: float
    dna: float

    def rho(self) -> tuple[Slices, Array] | None:
        """Window and relative radius of body and processes together; ``None`` off the image."""
        reach = max([self.body.reach, *(length + 2.0 for _, length, _ in self.processes)])
        if (place := window(SHAPE, self.body.centre.tolist(), reach)) is None:
            return None
        where, offsets = place
        rho = self.body.rho(offsets)
        for heading, length, width in self.processes:
            half = 0.5 * length * np.array([math.sin(heading), math.cos(heading)])
            distance, along = rod_coordinates([offsets[0] - half[0], offsets[1] - half[1]], half.tolist())
            process = 0.6 + 0.4 * distance / (width * (1.0 - 0.8 * along))  # gives way to the middle of a neighbour
            both = np.exp(-7.0 * np.minimum(rho, 50.0)) + np.exp(-7.0 * np.minimum(process, 50.0))
            rho = -np.log(both) / 7.0  # a smooth union
        return where, rho


def _centres(rng: np.random.Generator, count: int) -> Array:
    """Nuclei, about half of them in crowds whose members nearly touch."""
    low, high = np.array([2.0, 2.0]), np.array(SHAPE) - 3.0
    crowds = rng.uniform(low, high, (max(2, count // 12), 2))
    centres: list[Array] = []
    for _ in range(200 * count):
        if len(centres) == count:
            break
        if rng.random() < 0.55:
            candidate, spacing = crowds[rng.integers(len(crowds))] + rng.normal(0.0, 42.0, 2), rng.uniform(17.0, 28.0)
        else:
            candidate, spacing = rng.uniform(low, high), rng.uniform(36.0, 52.0)
        inside = bool(np.all(candidate >= low) and np.all(candidate <= high))
        if inside and (not centres or np.min(np.hypot(*(np.asarray(centres) - candidate).T)) >= spacing):
            centres.append(candidate)
    return np.asarray(centres)


def _nucleus(rng: np.random.Generator, centre: Array, angle: float, mitotic: bool) -> tuple[Blob, ...]:
    axes = rotation_2d(angle + rng.normal(0.0, 0.35))
    if mitotic:
        radii = (rng.uniform(8.5, 11.0), rng.uniform(3.2, 5.0)) if rng.random() < 0.6 else rng.uniform(6.5, 8.0, 2)
        return (Blob.random(rng, centre, radii, axes, roughness=0.1, detail=3.0),)
    radius, stretch = rng.uniform(9.0, 12.5), rng.uniform(1.05, 1.5)
    whole = Blob.random(rng, centre, (radius * stretch**0.5, radius / stretch**0.5), axes, roughness=0.06)
    if rng.random() > 0.1:
        return (whole,)
    lobes = []
    turn = rng.uniform(0.0, 2.0 * math.pi)
    for k in range(n := int(rng.integers(2, 4))):
        heading = turn + 2.0 * math.pi * k / n
        middle = centre + 0.72 * radius * np.array([math.sin(heading), math.cos(heading)])
        lobes.append(Blob.random(rng, middle, (0.82 * radius, 0.66 * radius), rotation_2d(heading), roughness=0.07))
    return tuple(lobes)


def _cell(rng: np.random.Generator, centre: Array) -> Cell:
    angle = float(rng.uniform(0.0, math.pi))
    mitotic = bool(rng.random() < 0.07)
    axes = rotation_2d(angle)
    if mitotic:
        body = Blob.random(rng, centre, (rng.uniform(15.0, 18.0), rng.uniform(14.0, 16.0)), axes, roughness=0.03)
    else:
        radius, stretch = rng.uniform(22.0, 33.0), math.exp(abs(rng.normal(0.0, 0.55)))
        middle = centre + rng.normal(0.0, 0.22) * radius * axes[0] * math.sqrt(stretch)
        radii = (radius * math.sqrt(stretch), radius / math.sqrt(stretch))
        body = Blob.random(rng, middle, radii, axes, roughness=0.17, detail=2.6)
    processes = []
    for k in range(0 if mitotic else int(rng.choice([0, 1, 2, 3], p=[0.35, 0.3, 0.25, 0.1]))):
        heading = angle + math.pi * k + rng.normal(0.0, 0.45)
        processes.append((heading, float(body.radii[0] * rng.uniform(1.0, 1.5)), float(rng.uniform(6.0, 11.0))))
    return Cell(
        body=body,
        processes=tuple(processes),
        nucleus=_nucleus(rng, centre, angle, mitotic),
        angle=angle,
        mitotic=mitotic,
        actin=float(np.clip(rng.lognormal(0.0, 0.5), 0.3, 2.6)) * (1.7 if mitotic else 1.0),
        fibres=0.0 if mitotic else float(rng.uniform(0.05, 0.6)),
        dna=float(rng.choice([1.0, 1.35, 1.8], p=[0.55, 0.25, 0.2]) * rng.lognormal(0.0, 0.32))
        * (1.9 if mitotic else 1.0),
    )


def _truth(cells: list[Cell]) -> tuple[list[Cell], NDArray[np.uint8], NDArray[np.uint8], Array]:
    """Settle which pixel is whose.

    Returns the cells that are left (number n has label n + 1), the label images of nuclei and of whole cells, and the
    relative radius inside the nuclei.
    """
    nuclei, best = np.zeros(SHAPE, np.int64), np.full(SHAPE, np.inf)
    bodies, best_body = np.zeros(SHAPE, np.int64), np.full(SHAPE, np.inf)
    for label, cell in enumerate(cells, start=1):
        for lobe in cell.nucleus:
            if (place := lobe.on(SHAPE)) is not None:
                compete(nuclei, best, *place, label)
        if (place := cell.rho()) is not None:
            compete(bodies, best_body, *place, label)
    bodies[nuclei > 0] = nuclei[nuclei > 0]
    kept: list[Cell] = []
    final_nuclei, final_bodies = np.zeros(SHAPE, np.uint8), np.zeros(SHAPE, np.uint8)
    for label, where in enumerate(ndimage.find_objects(bodies, max_label=len(cells)), start=1):
        if where is None or not (nucleus := _largest(nuclei[where] == label)).sum() >= MIN_NUCLEUS_PX:
            continue
        parts, _ = ndimage.label(bodies[where] == label)
        body = parts == np.bincount(parts[nucleus]).argmax()
        kept.append(cells[label - 1])
        final_nuclei[where][nucleus & body] = len(kept)
        final_bodies[where][body] = len(kept)
    return kept, final_nuclei, final_bodies, np.where(final_nuclei > 0, best, 1.0)


def _largest(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the largest connected part of a mask."""
    parts, count = ndimage.label(mask)
    if count < 2:
        return mask
    sizes = np.bincount(parts.ravel())
    return np.asarray(parts == 1 + np.argmax(sizes[1:]))


def _actin(cells: list[Cell], bodies: NDArray[np.uint8], nuclei: NDArray[np.uint8], seed: int, index: int) -> Array:
    """Light of the red channel before the microscope; 1 is the flat middle of a typical cell."""
    rng = stream(seed, "actin", index)
    inner = (ndimage.minimum_filter(bodies, 3) != bodies) | (ndimage.maximum_filter(bodies, 3) != bodies)
    depth = np.where(bodies > 0, ndimage.distance_transform_edt(~inner), 0.0)
    textures = np.stack([oriented_field(SHAPE, math.pi * k / ORIENTATIONS, 9.0, 0.8, rng) for k in range(ORIENTATIONS)])
    per_cell = np.array(
        [(0.0, 0.0, 0.0, 0)]
        + [
            (
                cell.actin,
                cell.fibres,
                2.2 if cell.mitotic else 1.0,
                round(cell.angle / math.pi * ORIENTATIONS) % ORIENTATIONS,
            )
            for cell in cells
        ]
    )
    actin, fibres, rim = (per_cell[:, column][bodies] for column in range(3))
    streaks = np.take_along_axis(textures, per_cell[:, 3].astype(int)[bodies][None], axis=0)[0]
    patchy = np.clip(0.65 + 0.8 * smooth_field(SHAPE, 18.0, rng), 0.05, 2.5)
    patchy *= 1.0 + 0.3 * smooth_field(SHAPE, 2.5, rng)
    grain = 1.0 + 0.24 * smooth_field(SHAPE, 2.5, rng) + 0.3 * smooth_field(SHAPE, 12.0, rng)
    body = (0.22 + 0.78 * (1.0 - np.exp(-depth / 8.0))) * grain
    cortex = 1.5 * rim * patchy * np.exp(-((depth / 2.2) ** 2))
    over_nucleus = 1.0 - 0.3 * ndimage.gaussian_filter((nuclei > 0).astype(float), 2.5)
    light = actin * over_nucleus * np.maximum(body + cortex + fibres * np.maximum(streaks, -0.5), 0.02)
    light[bodies == 0] = 0.0
    light += _retraction_fibres(cells, bodies, stream(seed, "retraction", index))
    return np.asarray(light)


def _retraction_fibres(cells: list[Cell], bodies: NDArray[np.uint8], rng: np.random.Generator) -> Array:
    paths, weights = [], []
    for cell in cells:
        for _ in range(0 if cell.mitotic else int(rng.poisson(1.2))):
            heading = rng.uniform(0.0, 2.0 * math.pi)
            path = wander(rng, cell.body.centre.tolist(), heading, rng.uniform(25.0, 60.0), bend=0.02)
            pixel = np.rint(path).astype(int)
            inside = np.all((pixel >= 0) & (pixel < SHAPE), axis=1)
            outside_cells = inside.copy()
            outside_cells[inside] = bodies[tuple(pixel[inside].T)] == 0
            paths.append(path[outside_cells])
            weights.append(np.full(outside_cells.sum(), 0.35 * cell.actin))
    if not paths:
        return np.zeros(SHAPE)
    return render_points(SHAPE, np.concatenate(paths), np.concatenate(weights), 0.6)


def _dna(cells: list[Cell], nuclei: NDArray[np.uint8], rho: Array, seed: int, index: int) -> Array:
    """Light of the blue channel before the microscope; 1 is the middle of a diploid nucleus."""
    rng = stream(seed, "dna", index)
    content = np.array([0.0] + [cell.dna for cell in cells])[nuclei]
    thickness = 0.4 + 0.6 * np.sqrt(np.clip(1.0 - rho**2, 0.0, 1.0))
    chromatin = 1.0 + 0.14 * smooth_field(SHAPE, 2.5, rng) - 0.35 * (smooth_field(SHAPE, 4.0, rng) > 1.6)
    light = content * thickness * np.maximum(chromatin, 0.2)
    fragments = stream(seed, "fragments", index)
    for _ in range(int(fragments.integers(1, 5))):
        middle = fragments.uniform(0, 1, 2) * SHAPE
        points = middle + fragments.normal(0.0, 4.0, (int(fragments.integers(2, 6)), 2))
        light += render_points(SHAPE, points, fragments.uniform(12.0, 40.0, len(points)), 1.5)
    return light


def _expose(
    light: Array, objective: Objective, seed: int, channel: str, index: int, signal: float, background: float
) -> NDArray[np.unsignedinteger]:
    rng = stream(seed, channel, "microscope", index)
    glow = 0.08 * wide_blur(light, 60.0) + 0.12 * wide_blur(light, 9.0)
    photons = signal * (objective.blur(light, rng.uniform(1.0, 2.6)) + glow)
    photons += haze(SHAPE, rng, background, 160.0)
    photons += debris(SHAPE, rng, int(rng.integers(4, 14)), (0.6, 1.6), (0.3 * signal, 1.5 * signal))
    photons *= uneven_light(SHAPE, rng, falloff=rng.uniform(0.25, 0.45))
    return Camera(gain=0.35, offset=2.0, read_noise_e=4.0).expose(photons, rng)


def _image(
    cells: list[Cell], truth: tuple[NDArray[np.uint8], NDArray[np.uint8], Array], seed: int, index: int
) -> NDArray[np.uint8]:
    nuclei, bodies, rho = truth
    rng = stream(seed, "exposure", index)
    red = _expose(
        _actin(cells, bodies, nuclei, seed, index),
        RED,
        seed,
        "red",
        index,
        rng.uniform(80.0, 220.0),
        rng.uniform(20.0, 60.0),
    )
    blue = _expose(
        _dna(cells, nuclei, rho, seed, index),
        BLUE,
        seed,
        "blue",
        index,
        rng.uniform(90.0, 320.0),
        rng.uniform(15.0, 50.0),
    )
    green = Camera(gain=0.35, offset=0.6, read_noise_e=1.5).expose(np.zeros(SHAPE), stream(seed, "green", index))
    return np.stack([red, green, blue], axis=-1).astype(np.uint8)


def make(destination: Path, seed: int) -> None:
    """Write ``input/<N>.tif``, ``evaluation/nuclei_masks/<N>.tif`` and ``evaluation/cytoplasm_masks/<N>.tif``."""
    order = stream(seed, "fields").permutation(CELLS_PER_IMAGE)
    for index, count in enumerate(order):
        placing = stream(seed, "centres", index)
        centres = _centres(placing, int(count))
        cells = [_cell(stream(seed, "cell", index, n), centre) for n, centre in enumerate(centres)]
        cells, nuclei, bodies, rho = _truth(cells)
        name = f"{FIRST_ID + index}.tif"
        write_tiff(destination / "input" / name, _image(cells, (nuclei, bodies, rho), seed, index))
        write_tiff(destination / "evaluation" / "nuclei_masks" / name, nuclei)
        write_tiff(destination / "evaluation" / "cytoplasm_masks" / name, bodies)
