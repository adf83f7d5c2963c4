"""Demo data of dna_paint: a DNA-PAINT movie of nanorulers in total internal reflection, one channel.

Imaging model
-------------
State: DNA-origami rulers lie flat on the glass, alone or a few pixels apart, each with three marks 80 nm from the next.
Imager strands bind to a mark at random moments and stay for an exponentially distributed time of a few frames; while
bound they emit at a rate of their own, so that first and last frame of an event are dimmer. The stage drifts slowly.
A row of truth is one bound strand in one frame: its position on the camera at that moment and the grey values that its
light adds up to. Emissions too weak to be told from the background (``FAINT_PHOTONS``), and those within
``BORDER_PX`` of the edge, are light in the movie and no rows of truth.

Light: strands that are bound, a haze of free imager that drifts, changes its pattern and bleaches, smears of strands
that diffuse through the evanescent field, specks that glow all the time, a lamp that flickers, uneven excitation.
Then a Gaussian point spread (1.45 NA, 650 nm, pixels of 100 nm), Poisson noise, read noise, and the gain and offset of
a 16-bit camera.

Truth and movie follow the conventions of the published ones: frames from 0, ``x`` along the columns, ``y`` along the
rows, in pixels from the outer corner of the first pixel (its centre is 0.5, 0.5); no pixel size in the file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import ndimage

from tasks._optics import (
    Array,
    Camera,
    Objective,
    render_points,
    smooth_field,
    stream,
    uneven_light,
    write_tiff,
)

FRAMES = 300
SHAPE = (144, 144)
OBJECTIVE = Objective(na=1.45, wavelength_nm=650.0, pixel_size_um=0.1)
MARK_SPACING_PX = 0.8
FAINT_PHOTONS = 180.0
BORDER_PX = 4.0


@dataclass(frozen=True)
class Event:
    """One bound strand: where, from when to when (in frames), and how bright (photons per full frame)."""

    place: Array  # (y, x), pixel centres at whole numbers, before drift
    start: float
    stop: float
    rate: float

    def photons(self, frame: int) -> float:
        """Light sent out during one frame."""
        return self.rate * max(0.0, min(self.stop, frame + 1.0) - max(self.start, float(frame)))


def _rulers(rng: np.random.Generator) -> Array:
    """Middles of the rulers: most apart from each other, the rest a few pixels from a neighbour; ``(n, 2)``."""
    count = int(rng.integers(105, 126))
    middles: list[Array] = []
    while len(middles) < count:
        if middles and rng.random() < 0.3:
            heading, distance = rng.uniform(0.0, 2.0 * math.pi), rng.uniform(3.0, 7.0)
            offset = distance * np.array([math.sin(heading), math.cos(heading)])
            candidate, spacing = middles[rng.integers(len(middles))] + offset, 3.0
        else:
            candidate, spacing = rng.uniform(1.0, np.array(SHAPE) - 2.0), 7.0
        if not middles or np.min(np.hypot(*(np.asarray(middles) - candidate).T)) >= spacing:
            middles.append(candidate)
    return np.asarray(middles)


def _events(seed: int) -> list[Event]:
    """Bind strands to the marks over the whole movie; the excitation is brightest where its beam is."""
    light = uneven_light(SHAPE, stream(seed, "beam"), falloff=0.45)
    events = []
    for number, middle in enumerate(_rulers(stream(seed, "rulers"))):
        rng = stream(seed, "ruler", number)
        heading = rng.uniform(0.0, math.pi)
        along = MARK_SPACING_PX * np.array([math.sin(heading), math.cos(heading)])
        depth = rng.uniform(0.8, 1.15)
        for mark in (-1, 0, 1):
            for start in np.sort(rng.uniform(-30.0, FRAMES, rng.poisson(1.22))):
                place = middle + mark * along + rng.normal(0.0, 0.05, 2)
                y, x = np.clip(np.rint(place).astype(int), 0, np.array(SHAPE) - 1)
                rate = 1900.0 * depth * light[y, x] * rng.lognormal(0.0, 0.35)
                events.append(Event(place, float(start), float(start + rng.exponential(4.6)), float(rate)))
    return events


def _drift(rng: np.random.Generator) -> Array:
    """Stage position over time, ``(frames, 2)`` in pixels, starting at 0."""
    heading = rng.uniform(0.0, 2.0 * math.pi)
    trend = np.linspace(0.0, rng.uniform(0.3, 1.0), FRAMES)[:, None] * np.array([math.sin(heading), math.cos(heading)])
    wobble = ndimage.gaussian_filter1d(rng.normal(0.0, 1.0, (FRAMES, 2)), 20.0, axis=0, mode="nearest")
    path = trend + 0.6 * wobble
    return np.asarray(path - path[0])


def _background(seed: int, drift: Array) -> Array:
    """Everything that is not a bound strand, photons per pixel, ``(frames, y, x)``."""
    rng = stream(seed, "background")
    level = rng.uniform(45.0, 70.0)
    beam = uneven_light(SHAPE, stream(seed, "beam"), falloff=0.45)
    time = np.arange(FRAMES)
    bleach = 1.0 + rng.uniform(0.3, 0.6) * np.exp(-time / rng.uniform(50.0, 110.0))
    swell = 1.0 + 0.12 * np.sin(2.0 * math.pi * (time / rng.uniform(110.0, 220.0) + rng.random()))
    lamp = 1.0 + 0.025 * rng.standard_normal(FRAMES)
    patterns = [smooth_field(SHAPE, 17.0, rng) for _ in range(3)]
    phase = 2.0 * math.pi * (time[:, None] / 260.0 + np.arange(3) / 3.0 + rng.random())
    mixture = 0.28 * np.cos(phase)
    specks = rng.uniform(8.0, np.array(SHAPE) - 9.0, (int(rng.integers(5, 9)), 2))
    glow = rng.uniform(250.0, 900.0, len(specks))
    haze = np.empty((FRAMES, *SHAPE))
    for t in range(FRAMES):
        pattern = sum((m * p for m, p in zip(mixture[t], patterns, strict=True)), start=np.zeros(SHAPE))
        smears = int(rng.poisson(5.0))
        places = rng.uniform(0.0, 1.0, (smears, 2)) * SHAPE
        frame = level * bleach[t] * swell[t] * np.exp(pattern) * beam
        frame += render_points(SHAPE, places, rng.uniform(150.0, 700.0, smears), 3.6)
        frame += render_points(SHAPE, specks + drift[t], glow * bleach[t] / bleach[0], 1.5)
        haze[t] = frame * lamp[t]
    return haze


def make(destination: Path, seed: int) -> None:
    """Write ``input/DNAPAINT_substack.tiff`` and ``evaluation/DNAPAINT_LocalizationList.txt`` below ``destination``."""
    drift = _drift(stream(seed, "drift"))
    light = _background(seed, drift)
    events = _events(seed)
    camera = Camera(gain=42.0, offset=400.0, read_noise_e=1.6, bits=16, efficiency=0.9)
    flicker = stream(seed, "flicker")
    rows: list[tuple[int, float, float, float]] = []
    for t in range(FRAMES):
        bound = [(event, event.photons(t)) for event in events]
        bound = [(event, photons) for event, photons in bound if photons > 0.0]
        if not bound:
            continue
        places = np.array([event.place for event, _ in bound]) + drift[t]
        photons = np.array([number for _, number in bound]) * flicker.normal(1.0, 0.06, len(bound)).clip(0.7, 1.3)
        light[t] += render_points(SHAPE, places, photons, OBJECTIVE.sigma_px)
        for (y, x), number in zip(places + 0.5, photons, strict=True):
            inside = min(y, x, SHAPE[0] - y, SHAPE[1] - x) >= BORDER_PX
            if inside and number >= FAINT_PHOTONS:
                rows.append((t, float(x), float(y), float(number) * camera.efficiency * camera.gain))
    write_tiff(destination / "input" / "DNAPAINT_substack.tiff", camera.expose(light, stream(seed, "camera")))
    truth = destination / "evaluation" / "DNAPAINT_LocalizationList.txt"
    truth.parent.mkdir(parents=True, exist_ok=True)
    lines = ["frame x y intensity", *(f"{t} {x:.2f} {y:.2f} {grey:.1f}" for t, x, y, grey in sorted(rows))]
    truth.write_text("\n".join(lines) + "\n", encoding="ascii", newline="\n")
