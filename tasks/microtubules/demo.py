"""Demo data of microtubules: simulated confocal images of microtubules whose fluorescence fades toward their ends.

Imaging model
-------------
State: stiff filaments grow in steps of half a pixel inside a cell that fills the middle of the image; part of them
start at one or two organising centres, the rest anywhere. Their heading wanders as that of a semiflexible polymer does,
and a filament that meets the cell's edge bends along it. They cross and run side by side. The truth of an image is the
band of pixels whose centres lie within ``HALF_WIDTH_PX`` of any filament's axis.

Light: a filament is brightest in its middle and falls to a small share of that at both ends; filaments differ in
brightness and labelling is patchy. Free tubulin fills the cell with an uneven haze, aggregates lie about as bright
specks. Then uneven illumination, a Gaussian point spread (confocal, 1.4 NA, 520 nm, pixels of 60 nm), Poisson noise,
read noise, 8 bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks._optics import (
    Array,
    Blob,
    Camera,
    Objective,
    blur,
    coverage,
    debris,
    render_points,
    rotation_2d,
    smooth_field,
    stream,
    uneven_light,
    write_tiff,
)

IMAGES = 6
FIRST_NUMBER = 3
SHAPE = (400, 400)
HALF_WIDTH_PX = 1.5
STEP_PX = 0.5
OBJECTIVE = Objective(na=1.4, wavelength_nm=520.0, pixel_size_um=0.06, confocal=True)


@dataclass(frozen=True)
class Filament:
    """Axis of one filament, ``(n, 2)`` as (y, x) half a pixel apart, and its light per point, 1 in a typical middle."""

    path: Array
    light: Array


def _relative_radius(cell: Blob, offset: Array) -> float:
    """Distance from the middle of the cell, 1 at its edge (an ellipse; its roughness only shapes the haze)."""
    return float(np.linalg.norm(cell.axes @ offset / cell.radii))


def _grow(rng: np.random.Generator, cell: Blob, start: Array, heading: float, length_px: float) -> Array:
    """Grow one filament; ``heading`` is in radians from x towards y."""
    kinks = rng.normal(0.0, 0.010, 4096)
    curvature, place, path = rng.normal(0.0, 0.004), start, [start]
    for kink in kinks[: round(length_px / STEP_PX)]:
        curvature = 0.97 * curvature + 0.03 * kink * 3.0
        heading += curvature
        place = path[-1] + STEP_PX * np.array([math.sin(heading), math.cos(heading)])
        outward = place - cell.centre
        if _relative_radius(cell, outward) > 0.93:  # the wall turns it to the nearer tangent
            away = math.atan2(outward[0], outward[1])
            side = math.copysign(math.pi / 2.0 + 0.12, math.sin(heading - away))
            turn = (away + side - heading + math.pi) % (2.0 * math.pi) - math.pi
            heading += float(np.clip(turn, -0.06, 0.06))
        path.append(place)
    return np.asarray(path)


def _brightness(rng: np.random.Generator, count: int) -> Array:
    """Light along a filament of ``count`` points: full in the middle, fading over a good part of each half."""
    along = np.linspace(0.0, 1.0, count)
    reach = rng.uniform(0.22, 0.45, 2)
    end = rng.uniform(0.12, 0.3, 2)
    fade = np.minimum(
        end[0] + (1.0 - end[0]) * np.clip(along / reach[0], 0.0, 1.0),
        end[1] + (1.0 - end[1]) * np.clip((1.0 - along) / reach[1], 0.0, 1.0),
    )
    patches = 1.0 + 0.16 * smooth_field((count,), 10.0, rng)
    return np.asarray(rng.uniform(0.7, 1.3) * fade * np.maximum(patches, 0.3))


def _filaments(rng: np.random.Generator, cell: Blob) -> list[Filament]:
    count = int(rng.integers(14, 27))
    centres = [cell.centre + rng.normal(0.0, 25.0, 2) for _ in range(int(rng.integers(1, 3)))]
    result = []
    while len(result) < count:
        if rng.random() < 0.4:
            start = centres[rng.integers(len(centres))] + rng.normal(0.0, 4.0, 2)
        else:
            start = cell.centre + rng.uniform(-1.0, 1.0, 2) * cell.radii.max()
            if _relative_radius(cell, start - cell.centre) > 0.85:
                continue
        heading = rng.uniform(0.0, 2.0 * math.pi)
        path = _grow(rng, cell, start, heading, length_px=float(rng.uniform(70.0, 260.0)))
        inside = np.all((path >= 1.0) & (path <= np.array(SHAPE) - 2.0), axis=1)
        path = path[inside]
        result.append(Filament(path, _brightness(rng, len(path))))
    return result


def _truth(filaments: list[Filament]) -> NDArray[np.uint8]:
    """Mark the pixels whose centre lies within half the width of an axis."""
    mask = np.zeros(SHAPE, np.uint8)
    reach = math.ceil(HALF_WIDTH_PX)
    near = np.mgrid[-reach : reach + 1, -reach : reach + 1].reshape(2, -1).T
    for filament in filaments:
        pixels = np.rint(filament.path).astype(np.int64)[:, None] + near
        close = np.sum((pixels - filament.path[:, None]) ** 2, axis=-1) <= HALF_WIDTH_PX**2
        close &= np.all((pixels >= 0) & (pixels < SHAPE), axis=-1)
        mask[tuple(pixels[close].T)] = 1
    return mask


def _image(filaments: list[Filament], cell: Blob, rng: np.random.Generator) -> NDArray[np.unsignedinteger]:
    signal = rng.uniform(24.0, 36.0)  # photons per pixel of length in the middle of a typical filament
    background = rng.uniform(3.0, 6.0)
    points = np.concatenate([filament.path for filament in filaments])
    weights = signal * STEP_PX * np.concatenate([filament.light for filament in filaments])
    photons = render_points(SHAPE, points, weights, OBJECTIVE.sigma_px)
    haze = np.zeros(SHAPE)
    if (place := cell.on(SHAPE)) is not None:
        where, rho = place
        haze[where] = coverage(rho, 40.0) * np.exp(0.3 * smooth_field(rho.shape, 25.0, rng))
    photons += background * (0.6 + 0.9 * blur(haze, 4.0))
    photons += debris(SHAPE, rng, int(rng.integers(3, 9)), (0.6, 1.4), (0.15 * signal, 0.5 * signal))
    photons *= uneven_light(SHAPE, rng, falloff=rng.uniform(0.35, 0.6), ripple=0.06)
    return Camera(gain=rng.uniform(3.5, 5.0), offset=6.0, read_noise_e=1.6).expose(photons, rng)


def make(destination: Path, seed: int) -> None:
    """Write ``input/report_<NNNN>.noisy.tiff`` and ``evaluation/report_<NNNN>.binary.tiff`` below ``destination``."""
    for index in range(IMAGES):
        shape = stream(seed, "cell", index)
        middle = np.array(SHAPE) / 2.0 + shape.normal(0.0, 8.0, 2)
        radii = shape.uniform(125.0, 160.0, 2)
        cell = Blob.random(shape, middle, radii, rotation_2d(shape.uniform(0.0, math.pi)), roughness=0.05)
        filaments = _filaments(stream(seed, "filaments", index), cell)
        name = f"report_{FIRST_NUMBER + 2 * index:04d}"
        write_tiff(destination / "evaluation" / f"{name}.binary.tiff", _truth(filaments))
        image = _image(filaments, cell, stream(seed, "image", index))
        write_tiff(destination / "input" / f"{name}.noisy.tiff", image.astype(np.uint8))
