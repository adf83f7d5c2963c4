"""Demo data of bacteria_tracking: a growing monolayer of rods in phase contrast, 0.072 um per pixel, a frame a minute.

Imaging model
-------------
State: rods (tapered capsules) elongate exponentially, each at a rate of its own, and divide when they reach a length of
their own into two daughters of unequal size, which snap into a V of random angle around the new poles. Rods push each
other apart as rigid bodies until they no longer overlap; the colony spreads, and cells are pushed out of the field,
beyond which the simulation goes on for a margin. Growth is faster than in reality (about eleven frames a doubling) so
that a short sequence has several generations; displacements between frames stay below the width of a cell, apart
from the snap itself.

Truth: a pixel belongs to the rod it lies relatively deepest in. A cell has a track while at least ``MIN_VISIBLE_PX`` of
its pixels lie in the field; smaller slivers at the border have no label. A cell that leaves ends its track; should it
come back it begins a new one without parent. Daughters begin in the frame after the mother's last and name her as
parent when she had a label then.

Light: rods retard light in proportion to their thickness, waists thin out before division; a phase ring turns that into
dark bodies with a bright halo, and shades off the inside of dense patches. Uneven light, a lamp that flickers a little,
fixed dirt, focus and stage drift, Poisson and read noise, 8 bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.spatial import cKDTree

from tasks._optics import (
    Array,
    Camera,
    Objective,
    blur,
    compete,
    render_points,
    rod_coordinates,
    smooth_field,
    stream,
    uneven_light,
    wide_blur,
    window,
    write_ome,
)

SHAPE = (222, 259)
FRAMES = 60
PIXEL_SIZE_UM = 0.072
INTERVAL_S = 60.0
FINAL_CELLS = 165  # about this many cells descend from the founders
MARGIN_PX = 50.0  # cells live on this far beyond the field
MIN_VISIBLE_PX = 40
OBJECTIVE = Objective(na=1.3, wavelength_nm=600.0, pixel_size_um=PIXEL_SIZE_UM, index=1.515)


@dataclass
class Colony:
    """All living rods; one row per rod in each array.

    ``length`` is from pole to pole, ``radius`` half the width, ``taper`` the relative difference of the two ends,
    ``uid`` a number of each cell's own, ``mother`` that of the cell it came from (0 for founders).
    """

    centre: Array
    angle: Array
    length: Array
    radius: Array
    taper: Array
    rate: Array
    division_length: Array
    density: Array
    uid: NDArray[np.int64]
    mother: NDArray[np.int64]
    born: int = field(default=0)

    def select(self, keep: NDArray[np.bool_]) -> None:
        """Drop the rods that are not in ``keep``."""
        for name in (
            "centre",
            "angle",
            "length",
            "radius",
            "taper",
            "rate",
            "division_length",
            "density",
            "uid",
            "mother",
        ):
            setattr(self, name, getattr(self, name)[keep])

    def half_axes(self) -> Array:
        """Vectors from the middle to the centre of the cap, ``(n, 2)`` as (y, x)."""
        reach = 0.5 * self.length - self.radius
        return np.asarray(reach[:, None] * np.stack([np.sin(self.angle), np.cos(self.angle)], axis=1))


def _founders(rng: np.random.Generator) -> Colony:
    count = int(rng.integers(3, 5))
    rate = math.log(FINAL_CELLS / count) / FRAMES
    middle = np.array(SHAPE) * rng.uniform(0.33, 0.67, 2)
    offsets = np.stack([np.linspace(-1, 1, count) * 26.0, rng.uniform(-8.0, 8.0, count)], axis=1)
    turn = rng.uniform(0, 2 * math.pi)
    turned = np.stack(
        [
            offsets[:, 0] * math.cos(turn) - offsets[:, 1] * math.sin(turn),
            offsets[:, 0] * math.sin(turn) + offsets[:, 1] * math.cos(turn),
        ],
        axis=1,
    )
    division_length = rng.normal(47.0, 3.5, count)
    return Colony(
        centre=middle + turned,
        angle=rng.uniform(0, math.pi, count),
        length=division_length * rng.uniform(0.55, 0.9, count),
        radius=rng.normal(6.0, 0.25, count),
        taper=rng.normal(0.0, 0.08, count),
        rate=rate * rng.normal(1.0, 0.08, count),
        division_length=division_length,
        density=rng.normal(1.0, 0.07, count),
        uid=np.arange(1, count + 1),
        mother=np.zeros(count, np.int64),
        born=count,
    )


def _clear(colony: Colony, rod: int, centre: Array, heading: float, reach: float) -> bool:
    """Whether an axis of half length ``reach`` keeps clear of the axes of all rods but number ``rod``."""
    steps = np.linspace(-1.0, 1.0, 7)[:, None] * reach
    points = centre + steps * np.array([math.sin(heading), math.cos(heading)])
    half = colony.half_axes()
    relative = points[:, None] - colony.centre
    along = np.clip((relative * half).sum(2) / np.maximum((half**2).sum(1), 1e-9), -1.0, 1.0)
    distance = np.sqrt(((relative - along[..., None] * half) ** 2).sum(2))
    distance[:, rod] = np.inf
    return bool(np.all(distance > 0.7 * (colony.radius + colony.radius[rod])))


def _divide(colony: Colony, rng: np.random.Generator, mean_rate: float) -> None:
    """Replace every rod that has reached its division length by two daughters in a V."""
    ready = np.flatnonzero(colony.length >= colony.division_length)
    if not len(ready):
        return
    added = []
    for mother in ready:
        share = float(np.clip(rng.normal(0.5, 0.035), 0.4, 0.6))
        length, angle = colony.length[mother], colony.angle[mother]
        axis = np.array([math.sin(angle), math.cos(angle)])
        septum = colony.centre[mother] + (share - 0.5) * length * axis
        snap = float(np.clip(abs(rng.normal(0.0, 0.9)), 0.0, 1.6)) * rng.choice([-0.5, 0.5])
        for side, portion in ((-1.0, share), (1.0, 1.0 - share)):
            reach = 0.5 * portion * length
            for freedom in (1.0, 0.6, 0.3, 0.0):  # a daughter bends only as far as its neighbours let it
                heading = angle - side * snap * freedom
                middle = septum + side * reach * np.array([math.sin(heading), math.cos(heading)])
                if _clear(colony, int(mother), middle, heading, reach - colony.radius[mother]):
                    break
            colony.born += 1
            added.append(
                (
                    middle,
                    heading,
                    portion * length,
                    float(np.clip(0.5 * colony.radius[mother] + 0.5 * rng.normal(6.0, 0.3), 5.2, 6.8)),
                    rng.normal(0.0, 0.08),
                    mean_rate * rng.normal(1.0, 0.1),
                    rng.normal(47.0, 3.5),
                    rng.normal(1.0, 0.07),
                    colony.born,
                    colony.uid[mother],
                )
            )
    keep = np.ones(len(colony.length), bool)
    keep[ready] = False
    colony.select(keep)
    columns = list(zip(*added, strict=True))
    names = ("centre", "angle", "length", "radius", "taper", "rate", "division_length", "density", "uid", "mother")
    for name, column in zip(names, columns, strict=True):
        setattr(colony, name, np.concatenate([getattr(colony, name), np.array(column)]))


def _relax(colony: Colony, iterations: int) -> None:
    """Push overlapping rods apart as rigid bodies (position-based, averaged over the contacts of each rod).

    Two capsules that do not cross are closest at an end of one of them, so ends against axes cover all contacts.
    """
    reach = 0.5 * colony.length.max()
    pairs = cKDTree(colony.centre).query_pairs(2.0 * reach + 4.0, output_type="ndarray")
    if not len(pairs):
        return
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    rod = np.concatenate([pairs[:, 0], pairs[:, 0], pairs[:, 1], pairs[:, 1]])  # whose end
    other = np.concatenate([pairs[:, 1], pairs[:, 1], pairs[:, 0], pairs[:, 0]])  # whose axis
    side = np.repeat([-1.0, 1.0, -1.0, 1.0], len(pairs))[:, None]
    mass = colony.length / colony.length.mean()
    inertia = mass * (colony.length**2 / 12.0 + 0.25 * colony.radius**2)
    touching = colony.radius[rod] + colony.radius[other]
    n = len(colony.length)
    for _ in range(iterations):
        half = colony.half_axes()
        end = colony.centre[rod] + side * half[rod]
        axis = half[other]
        relative = end - colony.centre[other]
        along = np.clip((relative * axis).sum(1) / np.maximum((axis**2).sum(1), 1e-9), -1.0, 1.0)
        gap = relative - along[:, None] * axis
        distance = np.sqrt((gap**2).sum(1))
        overlap = touching - distance
        hit = np.flatnonzero(overlap > 0.0)
        if not len(hit) or overlap[hit].max() < 0.05:
            break
        i, j = rod[hit], other[hit]
        normal = gap[hit] / np.maximum(distance[hit], 1e-6)[:, None]
        lever_i = side[hit] * half[i]
        lever_j = along[hit, None] * axis[hit]
        moment_i = lever_i[:, 1] * normal[:, 0] - lever_i[:, 0] * normal[:, 1]
        moment_j = lever_j[:, 1] * normal[:, 0] - lever_j[:, 0] * normal[:, 1]
        push = overlap[hit] / (1 / mass[i] + 1 / mass[j] + moment_i**2 / inertia[i] + moment_j**2 / inertia[j])
        contacts = np.maximum(np.bincount(i, minlength=n) + np.bincount(j, minlength=n), 1.0)
        softness = 1.9 / np.maximum(contacts, 1.9)
        for d in range(2):
            move = np.bincount(i, push * normal[:, d] / mass[i], n) - np.bincount(j, push * normal[:, d] / mass[j], n)
            colony.centre[:, d] += softness * move
        turn = np.bincount(i, push * moment_i / inertia[i], n) - np.bincount(j, push * moment_j / inertia[j], n)
        colony.angle += softness * np.clip(turn, -0.3, 0.3)
    # rounding keeps the last bits of different processors from growing apart
    colony.centre = np.round(colony.centre, 6)
    colony.angle = np.round(colony.angle, 8)


def _advance(colony: Colony, rng: np.random.Generator, mean_rate: float) -> None:
    """Grow, divide, push and jostle for one frame; forget what has gone beyond the margin."""
    for _ in range(2):
        colony.length = colony.length * np.exp(0.5 * colony.rate)
        _relax(colony, 20)
    _divide(colony, rng, mean_rate)
    colony.centre = colony.centre + rng.normal(0.0, 0.12, colony.centre.shape)
    colony.angle = colony.angle + rng.normal(0.0, 0.008, colony.angle.shape)
    _relax(colony, 35)
    colony.select(np.all((colony.centre > -MARGIN_PX) & (colony.centre < np.array(SHAPE) + MARGIN_PX), axis=1))


def _render(colony: Colony, shift: Array) -> tuple[NDArray[np.int64], Array]:
    """Return which rod (row + 1) owns each pixel, and the phase delay of the rods, 1 at a typical axis."""
    owner, best, phase = np.zeros(SHAPE, np.int64), np.full(SHAPE, np.inf), np.zeros(SHAPE)
    half = colony.half_axes()
    for row in range(len(colony.length)):
        place = window(SHAPE, (colony.centre[row] + shift).tolist(), float(0.5 * colony.length[row] + 3.0))
        if place is None:
            continue
        where, offsets = place
        distance, along = rod_coordinates(offsets, half[row].tolist())
        ripeness = max(0.0, (colony.length[row] / colony.division_length[row] - 0.85) / 0.15)
        waist = 1.0 - 0.28 * ripeness * np.exp(-(((along - 0.5) * colony.length[row] / 3.5) ** 2))
        radius = colony.radius[row] * (1.0 + colony.taper[row] * (along - 0.5)) * waist
        rho = distance / radius
        compete(owner, best, where, rho, row + 1)
        delay = (
            colony.density[row] * np.sqrt(np.clip(1.15 - rho**2, 0.0, 1.0)) * np.clip((1.0 - rho) * radius + 0.5, 0, 1)
        )
        np.maximum(phase[where], delay, out=phase[where])
    return owner, phase


@dataclass
class Tracks:
    """Turns rods into tracks: rows ``id, first, last, parent`` and a label image per frame."""

    rows: list[list[int]] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)  # uid of a cell -> row of its track, labelled in the last frame

    def label(self, frame: int, colony: Colony, owner: NDArray[np.int64]) -> NDArray[np.uint16]:
        """Return the label image of one frame and keep the book of tracks."""
        labels = np.zeros(SHAPE, np.uint16)
        before, self.open = self.open, {}
        for value, where in enumerate(ndimage.find_objects(owner, max_label=len(colony.uid)), start=1):
            if where is None:
                continue
            parts, count = ndimage.label(owner[where] == value)
            sizes = np.bincount(parts.ravel())[1:]
            if not count or sizes.max() < MIN_VISIBLE_PX:
                continue
            uid, mother = int(colony.uid[value - 1]), int(colony.mother[value - 1])
            row = before.get(uid)
            if row is None:
                parent = before.get(mother)
                self.rows.append([len(self.rows) + 1, frame, frame, 0 if parent is None else self.rows[parent][0]])
                row = len(self.rows) - 1
            self.rows[row][2] = frame
            self.open[uid] = row
            labels[where][parts == 1 + int(np.argmax(sizes))] = self.rows[row][0]
        return labels


class Microscope:
    """Phase contrast with a fixed field: light, dirt and drift of one sequence."""

    def __init__(self, seed: int) -> None:
        rng = stream(seed, "microscope")
        self.rng = stream(seed, "camera")
        texture = 1.0 + 0.012 * smooth_field(SHAPE, 9.0, rng) + 0.006 * smooth_field(SHAPE, 2.5, rng)
        dirt = render_points(SHAPE, rng.uniform(0, 1, (9, 2)) * SHAPE, rng.uniform(-6.0, 3.0, 9), 1.4)
        self.light = uneven_light(SHAPE, rng, falloff=0.22, ripple=0.04) * (texture + blur(dirt, 0.6))
        self.shifts = np.cumsum(rng.normal(0.0, 0.12, (FRAMES, 2)), axis=0)
        focus = ndimage.gaussian_filter1d(rng.normal(0.0, 1.0, FRAMES), 5.0) * 3.0
        self.defocus_um = 0.04 + 0.05 * np.abs(focus)
        self.flicker = 1.0 + 0.012 * rng.standard_normal(FRAMES)
        self.camera = Camera(gain=0.062, offset=3.0, read_noise_e=12.0)

    def expose(self, frame: int, phase: Array) -> NDArray[np.uint8]:
        """Return the 8-bit image of one frame."""
        body = OBJECTIVE.blur(phase, float(self.defocus_um[frame]))
        contrast = 1.0 - 0.9 * body + 0.58 * blur(phase, 3.3) + 0.08 * wide_blur(phase, 18.0)
        photons = 2150.0 * self.flicker[frame] * self.light * np.maximum(contrast, 0.05)
        return self.camera.expose(photons, self.rng).astype(np.uint8)


def make(destination: Path, seed: int) -> None:
    """Write ``input/00.ome.tif``, ``evaluation/00_GT.ome.tif`` and ``evaluation/man_track.txt``."""
    growth = stream(seed, "growth")
    colony = _founders(growth)
    mean_rate = float(colony.rate.mean())
    microscope, tracks = Microscope(seed), Tracks()
    images: list[NDArray[np.unsignedinteger]] = []
    labels: list[NDArray[np.unsignedinteger]] = []
    for frame in range(FRAMES):
        if frame:
            _advance(colony, growth, mean_rate)
        else:
            _relax(colony, 200)
        owner, phase = _render(colony, microscope.shifts[frame])
        images.append(microscope.expose(frame, phase))
        labels.append(tracks.label(frame, colony, owner))
    truth = destination / "evaluation"
    for path, stack in ((destination / "input" / "00.ome.tif", images), (truth / "00_GT.ome.tif", labels)):
        write_ome(path, np.stack(stack), "TYX", pixel_size_um=PIXEL_SIZE_UM, interval_s=INTERVAL_S, compression="zlib")
    lines = "".join(f"{' '.join(map(str, row))}\n" for row in tracks.rows)
    (truth / "man_track.txt").write_text(lines, encoding="ascii", newline="\n")
