"""Demo data of microglia: a phase-contrast series of cells that draw in their branches and round up.

Imaging model
-------------
State: cells wander, push each other apart when they touch, enter over time. Each has a soma, curved branches and
two moments: when its branches are drawn in (ramified to amoeboid) and when it rounds up (amoeboid to round). Some are
round from the start and some never respond. Truth is the soma's centre and the state at each moment.

Light: optical thickness (phase) of soma, lamella and branches; phase contrast shows a thin cell dark, a thick one with
a bright middle and a dark rim (the sine of the phase), and lends each cell a halo (a blurred copy, lifted off). Uneven
illumination, grain of the dish, specks and floating dirt, shot and read noise, 16 bits.
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
    blur,
    render_points,
    rotation_2d,
    scatter,
    smooth_field,
    stream,
    uneven_light,
    wander,
    wide_blur,
    write_csv,
    write_tiff,
)

SHAPE = (320, 384)
FRAMES = 30
CELLS = 96
CLASSES = ("ramified", "amoeboid", "round")
CAMERA = Camera(gain=0.5, offset=200.0, read_noise_e=6.0, bits=16)
LIGHT = 5200.0  # photons per pixel
STEP_PX = 1.5  # random step per frame along each axis
TOUCH_PX = 17.0  # somata closer than this push each other apart


@dataclass
class Cell:
    """One cell: places over time, the two moments, and the shape of its parts."""

    enters: int
    drawn_in: float
    rounds_up: float
    soma: Array  # radii of the ramified soma
    angle: float
    turn: float
    size: float
    thickness: float
    branches: list[Array]
    seed: int

    def label(self, frame: int) -> str:
        return CLASSES[(frame >= self.drawn_in) + (frame >= self.rounds_up)]


def _cells(rng: np.random.Generator) -> list[Cell]:
    cells = []
    for number in range(CELLS):
        kind = rng.random()
        if kind < 0.12:  # round from the start
            drawn_in, rounds_up = -9.0, -9.0
        elif kind < 0.22:  # never responds
            drawn_in, rounds_up = 999.0, 999.0
        else:
            drawn_in = rng.normal(0.42, 0.2) * FRAMES
            rounds_up = drawn_in + rng.gamma(4.0, 0.05) * FRAMES
        branches = []
        for angle in rng.uniform(0.0, 2.0 * math.pi) + 2.0 * math.pi * (
            np.arange(n := int(rng.integers(2, 5))) / n + rng.normal(0.0, 0.08, n)
        ):
            branches.append(wander(rng, (0.0, 0.0), float(angle), rng.uniform(15.0, 27.0), bend=0.07))
        cells.append(
            Cell(
                enters=0 if number < 0.82 * CELLS else int(rng.integers(1, FRAMES)),
                drawn_in=drawn_in,
                rounds_up=rounds_up,
                soma=np.array([rng.uniform(7.5, 9.5), rng.uniform(5.2, 6.5)]),
                angle=rng.uniform(0.0, math.pi),
                turn=rng.normal(0.0, 0.04),
                size=rng.uniform(0.9, 1.12),
                thickness=rng.uniform(0.85, 1.14),
                branches=branches,
                seed=int(rng.integers(2**31)),
            )
        )
    return cells


def _walk(rng: np.random.Generator) -> Array:
    """Places of all cells over time, ``(frames, cells, 2)``; those that are not there yet wander as well."""
    low, high = -np.full(2, 12.0), np.array(SHAPE) + 11.0
    start = scatter(rng, CELLS, low, high, 16.0)
    start = np.concatenate([start, rng.uniform(low, high, (CELLS - len(start), 2))])
    drift = np.zeros_like(start)
    places = [start]
    for _ in range(FRAMES - 1):
        drift = 0.6 * drift + rng.normal(0.0, STEP_PX, drift.shape)
        now = places[-1] + drift
        for _ in range(3):
            apart = now[:, None] - now[None]
            distance = np.sqrt((apart**2).sum(axis=2)) + np.eye(CELLS) * 999.0
            push = np.maximum(TOUCH_PX - distance, 0.0) / np.maximum(distance, 1.0)
            now = now + 0.35 * (push[..., None] * apart).sum(axis=1)
        places.append(np.clip(now, low, high))
    return np.stack(places)


def _ramp(frame: float, moment: float, width: float) -> float:
    """Share of a change that is done: from 0 to 1 around its moment."""
    return 1.0 / (1.0 + math.exp(-min(60.0, max(-60.0, (frame - moment + 0.5) / width))))


def _phase(cells: list[Cell], places: Array, frame: int) -> Array:
    """Optical thickness of all cells in one frame, in radians."""
    phase = np.zeros(SHAPE)
    points, weights = [], []
    for number, cell in enumerate(cells):
        if frame < cell.enters:
            continue
        place = places[frame, number]
        drawn, rounded = _ramp(frame, cell.drawn_in, 0.35), _ramp(frame, cell.rounds_up, 0.3)
        rng = np.random.default_rng(cell.seed)
        angle = cell.angle + cell.turn * frame + 0.12 * math.sin(0.7 * frame + cell.seed % 7)
        amoeboid = np.array([10.5, 8.2]) * cell.size
        radii = cell.soma * cell.size * (1.0 - drawn) + amoeboid * drawn
        radii = radii * (1.0 - rounded) + np.array([7.8, 7.1]) * cell.size**1.5 * rounded
        rough = (0.08 + 0.11 * drawn) * (1.0 - rounded) + 0.02 * rounded
        height = (1.25 * (1.0 - drawn) + 1.75 * drawn) * (1.0 - rounded) + 4.1 * rounded
        body = Blob.random(rng, place, radii, rotation_2d(angle), roughness=rough, detail=1.5)
        on = body.on(SHAPE)
        if on is not None:
            where, rho = on
            dome = np.maximum(1.0 - rho**2, 0.0) ** (0.5 + 0.25 * (1.0 - rounded))
            phase[where] = np.maximum(phase[where], height * cell.thickness * dome)
        lamella = 0.4 * drawn * (1.0 - rounded)
        if lamella > 0.02:  # a thin skirt on one side
            shift = 5.5 * np.array([math.sin(2.2 * angle), math.cos(2.2 * angle)])
            skirt = Blob.random(rng, place + shift, radii * 0.95, rotation_2d(angle + 0.6), roughness=0.15)
            on = skirt.on(SHAPE)
            if on is not None:
                phase[on[0]] = np.maximum(phase[on[0]], lamella * np.clip(2.0 * (1.0 - on[1]), 0.0, 1.0))
        length = (1.0 - 0.85 * drawn) * (1.0 - rounded)
        if length > 0.2:
            for k, branch in enumerate(cell.branches):
                sway = rotation_2d(0.15 * math.sin(0.45 * frame + 2.1 * k + cell.seed % 5))
                part = branch[: max(2, round(length * len(branch)))]
                along = np.linspace(0.0, 1.0, len(part))
                turned = part @ np.array([[sway[0, 1], sway[0, 0]], [-sway[0, 0], sway[0, 1]]])
                points.append((place + turned)[::2])
                weights.append((2.6 * (1.0 - 0.6 * along) * min(1.0, 1.6 * length))[::2])
    if points:
        lines = render_points(SHAPE, np.concatenate(points), np.concatenate(weights), 1.15)
        phase = np.maximum(phase, np.minimum(lines, 0.9))
    return blur(phase, 0.6)


def _contrast(phase: Array) -> Array:
    """Phase contrast: relative change of the light."""
    halo = np.minimum(phase, 2.2)
    return -0.38 * np.sin(phase) + 0.22 * blur(halo, 4.5) + 0.15 * wide_blur(halo, 11.0)


def make(destination: Path, seed: int) -> None:
    """Write the image series and the annotated points."""
    cells = _cells(stream(seed, "cells"))
    places = _walk(stream(seed, "walk"))
    dish = stream(seed, "dish")
    light = uneven_light(SHAPE, dish, falloff=0.22)
    grain = 0.012 * smooth_field(SHAPE, 2.5, dish) + 0.02 * smooth_field(SHAPE, 40.0, dish)
    specks = dish.uniform(0.0, 1.0, (14, 2)) * SHAPE  # stuck to the dish, small and sharp
    stuck = render_points(SHAPE, specks, dish.uniform(4.0, 10.0, 14), 1.3)
    floating = dish.uniform(0.0, 1.0, (6, 2)) * SHAPE
    folder = destination / "input" / "extracted_data" / "Replicate 1"
    rows: list[tuple[object, ...]] = []
    names = []
    for frame in range(FRAMES):
        rng = stream(seed, "frame", frame)
        floating = (floating + rng.normal(0.0, 9.0, floating.shape)) % SHAPE
        dirt = stuck - 0.8 * render_points(SHAPE, floating, 18.0, 2.0)
        change = _contrast(_phase(cells, places, frame)) + 0.3 * np.clip(dirt, -2.0, 2.0)
        lamp = 1.0 + rng.normal(0.0, 0.01)
        image = LIGHT * lamp * light * np.maximum(1.0 + change + grain, 0.02)
        name = f"IMG_20x_{frame}.tif"
        names.append(name)
        write_tiff(folder / name, CAMERA.expose(image, rng))
        for number, cell in enumerate(cells):
            y, x = places[frame, number]
            if frame >= cell.enters and -0.5 <= y <= SHAPE[0] - 0.5 and -0.5 <= x <= SHAPE[1] - 0.5:
                rows.append((len(rows), float(frame), round(float(y), 3), round(float(x), 3), cell.label(frame)))
    (folder / "filelist.txt").write_text("\n".join(names) + "\n", encoding="utf-8", newline="\n")
    header = ("index", "axis-0", "axis-1", "axis-2", "label")
    write_csv(destination / "evaluation" / "Replicate1annotation.csv", header, rows)
