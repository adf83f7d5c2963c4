"""Demo data of wound_healing: scratch assays in differential interference contrast, six conditions.

Imaging model
-------------
State: two sheets of cells face each other across a scratch with ragged edges. Every point of a sheet moves with a
velocity whose size follows the distance to the moving edge and the time: fast near the edge, slower behind, and a wave
of activation that starts at the edge and travels into the sheet, with a start, speed and strength of its own in each
experiment. Its direction mixes the way to the wound with slowly turning swirls, more of the former near the edge. Each
cell is carried along with its granules, which change slowly; where the sheet thins out new cells appear. Texture has
to be followed: brightness alone says nothing about speed. A series goes on after the two edges meet; its truth ends
there.

Light: differential interference contrast shows the slope of the relief along one diagonal, over uneven light whose
level flickers; the bare glass has faint marks, and debris drifts over the scene. Then blur, Poisson noise and 8 bits.

Truth, from the state: for each pair of frames the mean speed in bands of the distance to the edge in the first of the
two, and for the first pair the velocity of each pixel. Units, names and conventions are those of the published files:
bands of ``ceil(15 um / pixel size)`` pixels, velocities in um/h, x to the right, y downward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import edt
import numpy as np
import tifffile
from numpy.typing import NDArray
from scipy import ndimage

from tasks._optics import Array, Camera, blur, render_points, smooth_field, stream, uneven_light, write_tiff

ACROSS, ALONG = 304, 184  # pixels across the wound and along it
MARGIN = 48  # the relief reaches beyond the image by this much
INTERVAL_MIN = 14.5
PATCH_UM = 15.0
FARTHEST_PX = 300
GRANULES = 5  # per cell


@dataclass(frozen=True)
class Experiment:
    """One series: names, calibration, and the speeds of its cells in um/h."""

    condition: str
    name: str
    pixel_um: tuple[int, int]  # numerator, denominator
    frames: int
    upright: bool  # whether the wound runs from top to bottom
    gap_um: float
    front: float
    bulk: float
    wave: float

    @property
    def um(self) -> float:
        """Pixel size in um."""
        return self.pixel_um[0] / self.pixel_um[1]

    @property
    def patch_px(self) -> int:
        """Width of a distance band in pixels."""
        return math.ceil(PATCH_UM / self.um)


DA3, MDCK = (62, 25), (1758, 1000)
EXPERIMENTS = (
    Experiment("DA3_CTRL_SN29_L5", "SN29_L5", DA3, 16, True, 265.0, 19.0, 6.0, 9.0),
    Experiment("DA3_HGF-SN_SN29_L12", "SN29_L12", DA3, 14, True, 245.0, 30.0, 9.0, 13.0),
    Experiment("DA3_PHA_SN77_L20", "SN77_L20", DA3, 17, False, 250.0, 14.0, 4.5, 6.0),
    Experiment("DA3_PHA-HGF-SF_SN77_L36", "SN77_L36", DA3, 15, False, 255.0, 17.0, 5.0, 7.0),
    Experiment("MDCK_CTRL_DKWH7_L10", "DKWH7_L10", DA3, 14, False, 240.0, 20.0, 8.0, 8.0),
    Experiment("MDCK_HGF-SF_DKWH7_L6", "DKWH7_L6", MDCK, 14, True, 190.0, 25.0, 8.0, 11.0),
)


# --- the sheets ---------------------------------------------------------------------------------------------------


def _sheets(experiment: Experiment, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Label the two sheets at the start, 1 and 2, over the image and its margin; the wound is 0 and upright."""
    rows, columns = ALONG + 2 * MARGIN, ACROSS + 2 * MARGIN
    half = 0.5 * experiment.gap_um / experiment.um
    middle = columns / 2.0 + rng.normal(0.0, 4.0) + 3.0 * smooth_field((rows,), 90.0, rng)
    edges = [half + 4.0 * smooth_field((rows,), 22.0, rng) + 1.2 * smooth_field((rows,), 6.0, rng) for _ in range(2)]
    x = np.arange(columns)[None, :]
    labels = np.zeros((rows, columns), np.uint8)
    labels[x < (middle - edges[0])[:, None]] = 1
    labels[x > (middle + edges[1])[:, None]] = 2
    return labels


class _Cells:
    """Cells of both sheets as points that carry granules; positions in image pixels, the margin is negative."""

    def __init__(self, experiment: Experiment, labels: NDArray[np.uint8], rng: np.random.Generator) -> None:
        self.rng = rng
        self.spacing = 17.0 / experiment.um
        grid = np.meshgrid(*(np.arange(0.0, n, self.spacing) for n in labels.shape), indexing="ij")
        middles = np.stack(grid, axis=-1).reshape(-1, 2)
        middles += rng.uniform(-0.42, 0.42, middles.shape) * self.spacing
        pixel = np.rint(middles).astype(int).clip(0, np.array(labels.shape) - 1)
        self.middles = np.zeros((0, 2))
        self.offsets, self.weights, self.phases, self.rates = (np.zeros((0, GRANULES, k)) for k in (2, 1, 1, 1))
        self._add(middles[labels[tuple(pixel.T)] > 0] - MARGIN)

    def _add(self, middles: Array) -> None:
        shape = (len(middles), GRANULES, 1)
        rng = self.rng
        offsets = rng.normal(0.0, 0.3 * self.spacing, (len(middles), GRANULES, 2))
        self.middles = np.concatenate([self.middles, middles])
        self.offsets = np.concatenate([self.offsets, offsets])
        self.weights = np.concatenate([self.weights, rng.choice([-1.6, 2.4], shape) * rng.uniform(0.4, 1.3, shape)])
        self.phases = np.concatenate([self.phases, rng.uniform(-1.0, 1.0, shape)])
        self.rates = np.concatenate([self.rates, rng.normal(0.0, 0.16, shape)])

    def move(self, shift: Array) -> None:
        """Carry every cell along by the displacement ``(2, y, x)`` at its middle."""
        self.middles += np.stack(
            [ndimage.map_coordinates(part, self.middles.T, order=1, mode="nearest") for part in shift]
        ).T
        self.phases += self.rates
        self.offsets += self.rng.normal(0.0, 0.06, self.offsets.shape)

    def relief(self, cells: NDArray[np.bool_]) -> Array:
        """Height of the sheet: a dome for each cell, and its granules; fills thin places of the sheet first."""
        empty = np.ones((ALONG, ACROSS), bool)
        pixel = np.rint(self.middles).astype(int)
        inside = np.all((pixel >= 0) & (pixel < (ALONG, ACROSS)), axis=1)
        empty[tuple(pixel[inside].T)] = False
        radius = edt.edt(empty, black_border=False) / self.spacing
        thin = np.argwhere((radius > 0.95) & cells & (radius == ndimage.maximum_filter(radius, 5)))
        self._add(thin.astype(float))
        domes = np.sqrt(np.maximum(1.0 - (radius / 0.85) ** 2, 0.0))
        points = (self.middles[:, None] + self.offsets).reshape(-1, 2)
        return blur(domes, 0.8) + blur(_splat(points, (self.weights * np.cos(self.phases)).ravel()), 1.0)


def _splat(points: Array, weights: Array) -> Array:
    """Share the weight of each point among the four pixels around it."""
    low = np.floor(points).astype(int)
    part = points - low
    image = np.zeros(ALONG * ACROSS)
    for dy in (0, 1):
        for dx in (0, 1):
            y, x = low[:, 0] + dy, low[:, 1] + dx
            share = weights * np.abs(1 - dy - part[:, 0]) * np.abs(1 - dx - part[:, 1])
            inside = (y >= 0) & (y < ALONG) & (x >= 0) & (x < ACROSS)
            image += np.bincount((y * ACROSS + x)[inside], share[inside], minlength=image.size)
    return image.reshape(ALONG, ACROSS)


class _Motion:
    """Velocity of the sheets of one experiment at a given moment."""

    def __init__(self, experiment: Experiment, rng: np.random.Generator) -> None:
        self.experiment = experiment
        shape = (ALONG, ACROSS)
        scale = 55.0 / experiment.um
        self.stream_functions = np.stack([smooth_field(shape, scale, rng) for _ in range(3)])
        self.unrest = np.stack([smooth_field(shape, 0.8 * scale, rng) for _ in range(3)])
        self.turn = 2.0 * math.pi / rng.uniform(26.0, 40.0)
        self.phase = rng.uniform(0.0, 2.0 * math.pi)
        hours = experiment.frames * INTERVAL_MIN / 60.0
        self.wave_start = rng.uniform(-0.45, 0.55) * hours
        self.wave_speed = rng.uniform(0.7, 1.5) * 230.0 / hours  # um/h
        self.wave_width = rng.uniform(38.0, 55.0)
        self.reach = rng.uniform(55.0, 85.0)
        self.pulse = (rng.uniform(0.9, 1.6) * hours, rng.uniform(0.0, 2.0 * math.pi))

    def speed(self, distance_um: Array, hour: float) -> Array:
        """Speed in um/h at a distance from the edge."""
        experiment = self.experiment
        pulse = 1.0 + 0.16 * math.sin(2.0 * math.pi * hour / self.pulse[0] + self.pulse[1])
        calm = experiment.bulk + (experiment.front - experiment.bulk) * pulse * np.exp(-distance_um / self.reach)
        crest = self.wave_speed * (hour - self.wave_start)
        wave = experiment.wave * np.exp(-(((distance_um - crest) / self.wave_width) ** 2) - max(crest, 0.0) / 170.0)
        return np.asarray(calm + wave)

    def velocity(self, cells: NDArray[np.bool_], distance: Array, hour: float, frame: int) -> Array:
        """Velocity in um/h, ``(2, y, x)`` as (y, x), continued a few pixels into the wound."""
        um = self.experiment.um
        slope = np.stack(np.gradient(ndimage.gaussian_filter(distance, 5.0, truncate=3.0)))
        toward = -slope / np.maximum(np.hypot(*slope), 1e-3)
        angle = self.phase + self.turn * frame + 2.0 * math.pi * np.arange(3) / 3.0
        mix = np.cos(angle) / math.sqrt(1.5)
        potential, unrest = (np.tensordot(mix, fields, axes=1) for fields in (self.stream_functions, self.unrest))
        down, right = np.gradient(potential)
        swirl = np.stack([right, -down]) * (55.0 / um)
        order = 0.35 + 0.75 * np.exp(-distance * um / 60.0)
        heading = order * toward + 0.62 * swirl
        heading /= np.maximum(np.hypot(*heading), 0.25)
        size = self.speed(distance * um, hour) * np.clip(1.0 + 0.28 * unrest, 0.3, 2.0) * cells
        sigma = 8.0 / um
        weight = ndimage.gaussian_filter(cells.astype(float), sigma, truncate=3.0)
        smooth = [ndimage.gaussian_filter(part * size, sigma, truncate=3.0) for part in heading]
        return np.stack(smooth) / np.maximum(weight, 1e-3)


# --- the microscope -------------------------------------------------------------------------------------------------


class _Microscope:
    """Turns relief into frames of one series."""

    def __init__(self, experiment: Experiment, rng: np.random.Generator) -> None:
        shape = (ALONG, ACROSS)
        self.rng = rng
        self.light = uneven_light(shape, rng, falloff=0.3, ripple=0.04)
        self.glass = 0.06 * smooth_field(shape, 2.5, rng) + 0.05 * smooth_field(shape, 12.0, rng)
        self.shear = math.copysign(1.0, rng.uniform(-1.0, 1.0))
        self.specks = rng.uniform(0.0, 1.0, (int(rng.integers(5, 12)), 2)) * shape
        self.camera = Camera(gain=0.085, offset=4.0, read_noise_e=8.0)

    def expose(self, height: Array) -> NDArray[np.unsignedinteger]:
        """Return one frame, 8 bit."""
        self.specks += self.rng.normal(0.0, 2.5, self.specks.shape)
        scene = blur(height + self.glass, self.rng.uniform(0.55, 0.8))
        scene += render_points(height.shape, self.specks, 6.0, 1.2)
        down, right = np.gradient(scene)
        flicker = 1.0 + 0.03 * self.rng.standard_normal()
        photons = 1350.0 * flicker * self.light * np.maximum(1.0 + 0.8 * (self.shear * down + right), 0.05)
        return self.camera.expose(photons, self.rng)


# --- one experiment -------------------------------------------------------------------------------------------------


def _sample(field: Array, place: Array) -> Array:
    """Interpolate each ``(y, x)`` layer of ``field`` at ``place``, ``(2, y, x)``."""
    return np.stack([ndimage.map_coordinates(part, place, order=1, mode="nearest") for part in field])


def _band_means(speed: Array, cells: NDArray[np.bool_], distance: Array, patch_px: int, count: int) -> Array:
    """Mean speed in each band of the distance to the wound, (lower, upper], NaN where a band holds no cell."""
    band = np.ceil(distance / patch_px).astype(int) - 1
    inside = cells & (band < count)
    pixels = np.bincount(band[inside], minlength=count)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.bincount(band[inside], speed[inside], minlength=count) / pixels)


@dataclass
class _Series:
    """What one experiment leaves, wound upright: frames, cells at the start, kymograph, first velocity as (y, x)."""

    frames: list[NDArray[np.unsignedinteger]]
    start: NDArray[np.bool_]
    kymograph: Array
    velocity: Array


def _run(experiment: Experiment, seed: int) -> _Series:
    labels = _sheets(experiment, stream(seed, experiment.name, "edges"))
    population = _Cells(experiment, labels, stream(seed, experiment.name, "cells"))
    motion = _Motion(experiment, stream(seed, experiment.name, "motion"))
    microscope = _Microscope(experiment, stream(seed, experiment.name, "light"))
    step_h = INTERVAL_MIN / 60.0
    pixels = np.indices((ALONG, ACROSS)).astype(float)
    origin = pixels + MARGIN  # where in the first frame, margin included, the material of each pixel was
    frames, columns, count, met = [], [], 0, False
    start, first = np.zeros(0, bool), np.zeros(0)
    for frame in range(experiment.frames):
        sheet = ndimage.map_coordinates(labels, origin, order=0, mode="nearest")
        cells = sheet > 0
        frames.append(microscope.expose((population.relief(cells) + 0.5) * blur(cells.astype(float), 1.2)))
        distance = edt.edt(cells, black_border=False).astype(float)
        velocity = motion.velocity(cells, distance, frame * step_h, frame)
        if frame == 0:
            start, first = cells, velocity * cells
            count = int(min(FARTHEST_PX, distance.max()) // experiment.patch_px)
        met = met or bool(np.any(ndimage.binary_dilation(sheet == 1, iterations=2) & (sheet == 2)))
        if not met and frame + 1 < experiment.frames:
            columns.append(_band_means(np.hypot(*velocity), cells, distance, experiment.patch_px, count))
        shift = velocity * (step_h / experiment.um)
        population.move(shift)
        back = _sample(shift, pixels - shift)  # the way back from where a pixel's material arrives
        origin = _sample(origin, pixels - back)
    return _Series(frames, start, np.stack(columns, axis=1), first)


def _write_stack(path: Path, stack: NDArray[np.unsignedinteger], pixel_um: tuple[int, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    per_um = (pixel_um[1], pixel_um[0])
    metadata = {"axes": "TYX", "unit": "um", "finterval": INTERVAL_MIN, "tunit": "min"}
    tifffile.imwrite(path, stack.astype(np.uint8), imagej=True, resolution=(per_um, per_um), metadata=metadata)


def make(destination: Path, seed: int) -> None:
    """Write ``input/<condition>/`` and ``evaluation/<condition>/`` for the six experiments below ``destination``."""
    for experiment in EXPERIMENTS:
        series = _run(experiment, seed)
        stack, roi, (dys, dxs) = np.stack(series.frames), series.start.astype(np.uint8), series.velocity
        if not experiment.upright:  # lay the wound down: axes swap, and so do the components
            stack, roi, dxs, dys = stack.swapaxes(1, 2), roi.T, dys.T, dxs.T
        given = destination / "input" / experiment.condition
        _write_stack(given / f"{experiment.name}_image_stack.tif", np.ascontiguousarray(stack), experiment.pixel_um)
        write_tiff(given / f"{experiment.name}_roi.tif", np.ascontiguousarray(roi))
        truth = destination / "evaluation" / experiment.condition / experiment.name
        write_tiff(truth.with_name(f"{truth.name}_mf_dxs.tif"), np.ascontiguousarray(dxs), compression="zlib")
        write_tiff(truth.with_name(f"{truth.name}_mf_dys.tif"), np.ascontiguousarray(dys), compression="zlib")
        write_tiff(truth.with_name(f"{truth.name}_speedKymograph.tif"), series.kymograph, compression="zlib")
