"""Demo data of repair_foci: two movies of nuclei in which replication foci meet repair foci.

Imaging model ------------- State: nuclei drift, turn and pass through the cell cycle. The replication stain is spread
through the nucleus (spared by nucleoli) outside S phase; from entry to exit it also forms foci, bright ones that last
for some frames and can be followed, and a swarm of faint ones that changes from frame to frame. The repair stain is
faint and spread out; at some of the bright replication foci it forms a spot from a given frame (the onset) until the
focus ends. Repair spots away from any replication focus occur at all times. In each movie some nuclei pass the whole
S phase; others are in S phase at the first frame, or still at the last, or never: they have foci too, but no length
of S phase and no events.

Truth is one event per replication focus that a repair spot joins, in nuclei whose entry and exit both lie in the
movie: onset minus entry, divided by the length of S phase. Onsets are spread evenly over a distribution that differs
between the two conditions.

Light: maximum projections are treated as one plane; Gaussian spinning-disk point spread, haze, Poisson and read
noise, an offset that the export cut away, 8 bits; red is the replication stain, green the repair stain, blue a copy
of red; the time is burnt into the corner in white.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.special import ndtri

from tasks._optics import (
    Array,
    Blob,
    Camera,
    Objective,
    coverage,
    haze,
    render_points,
    rotation_2d,
    scatter,
    smooth_field,
    stream,
    write_csv,
    write_tiff,
)

SHAPE = (256, 256)
FIELD_UM = 108.0
OPTICS = Objective(na=1.3, wavelength_nm=560.0, pixel_size_um=FIELD_UM / SHAPE[1], confocal=True)
FOCUS_PX = 1.05  # standard deviation of a focus before the point spread
INTERVAL_MIN = 20
OUT_OF_FOCUS = 0.06  # share of frames in which a focus has left the planes of the projection
APART_PX = 5.0  # bright foci of a nucleus that exist at the same time keep this distance

GLYPHS = {
    "0": "01110 10001 10011 10101 11001 10001 01110",
    "1": "00100 01100 00100 00100 00100 00100 01110",
    "2": "01110 10001 00001 00110 01000 10000 11111",
    "3": "01110 10001 00001 00110 00001 10001 01110",
    "4": "00010 00110 01010 10010 11111 00010 00010",
    "5": "11111 10000 11110 00001 00001 10001 01110",
    "6": "00110 01000 10000 11110 10001 10001 01110",
    "7": "11111 00001 00010 00100 01000 01000 01000",
    "8": "01110 10001 10001 01110 10001 10001 01110",
    "9": "01110 10001 10001 01111 00001 00010 01100",
    ":": "00000 00100 00100 00000 00100 00100 00000",
}


@dataclass(frozen=True)
class Condition:
    """One movie: its frames, lengths of S phase in frames, and the distribution of normalised onsets."""

    name: str
    frames: int
    length: tuple[int, int]
    onset: tuple[float, float]
    complete: int


CONDITIONS = (
    Condition("siControl", 62, (27, 36), (0.42, 0.14), 5),
    Condition("si53BP1", 48, (24, 31), (0.19, 0.09), 5),
)
EVENTS_PER_NUCLEUS = 5


@dataclass
class Focus:
    """A bright replication focus: place in the nucleus (units of its radii), frames, and onset of the repair spot."""

    place: Array
    first: int
    last: int
    onset: int | None
    brightness: float
    wander: Array  # (frames, 2), px


@dataclass
class Nucleus:
    """A nucleus: path, outline, entry and exit of S phase (may lie outside the movie; ``None`` = never)."""

    path: Array  # (frames, 2)
    angles: Array
    radii: tuple[float, float]
    entry: int | None
    exit: int | None
    strength: tuple[float, float]
    foci: list[Focus] = field(default_factory=list)
    lone: list[Focus] = field(default_factory=list)

    @property
    def replicates(self) -> range:
        return range(0) if self.entry is None or self.exit is None else range(self.entry, self.exit)

    def position(self, place: Array, t: int) -> Array:
        """Return the pixel (y, x) of a place in the nucleus at frame ``t``."""
        along, across = rotation_2d(float(self.angles[t]))
        return np.asarray(self.path[t] + along * place[0] * self.radii[0] + across * place[1] * self.radii[1])


def _walk(rng: np.random.Generator, frames: int, step: float) -> Array:
    """Return a smooth random walk, ``(frames, 2)``, that starts at 0."""
    steps = ndimage.gaussian_filter1d(rng.normal(0.0, step, (frames, 2)), 2.0, axis=0, mode="nearest") * 2.6
    path = np.cumsum(steps, axis=0)
    return np.asarray(path - path[0])


def _inside(rng: np.random.Generator, reach: float = 0.8) -> Array:
    """Draw a place in the unit disc."""
    radius, angle = reach * math.sqrt(rng.random()), rng.uniform(0.0, 2.0 * math.pi)
    return np.array([radius * math.sin(angle), radius * math.cos(angle)])


def _free_place(rng: np.random.Generator, nucleus: Nucleus, first: int, last: int) -> Array | None:
    """Find a place away from all foci and lone spots that exist in the same frames (two frames more on each side)."""
    present = [f for f in [*nucleus.foci, *nucleus.lone] if f.first <= last + 2 and first <= f.last + 2]
    for _ in range(80):
        place = _inside(rng)
        if all(np.hypot(*((place - f.place) * nucleus.radii)) >= APART_PX for f in present):
            return place
    return None


def _add_focus(
    rng: np.random.Generator, nucleus: Nucleus, first: int, last: int, onset: int | None, frames: int
) -> bool:
    place = _free_place(rng, nucleus, first, last)
    if place is None:
        return False
    brightness = float(np.clip(rng.lognormal(0.0, 0.3), 0.55, 2.0))
    nucleus.foci.append(Focus(place, first, last, onset, brightness, _walk(rng, frames, 0.06).clip(-1.2, 1.2)))
    return True


def _replication(rng: np.random.Generator, nucleus: Nucleus, onsets: list[float], frames: int) -> None:
    """Fill an S phase with foci: some present from entry, some to the exit, events, and others without repair."""
    if nucleus.entry is None or nucleus.exit is None:
        return
    entry, end = nucleus.entry, nucleus.exit
    length = end - entry
    for normalised in onsets:
        onset = entry + min(max(round(normalised * length), 1), length - 4)
        for _ in range(20):
            first = max(entry, onset - int(rng.integers(1, 6)))
            last = min(end - 1, onset + int(rng.integers(5, 12)))
            if _add_focus(rng, nucleus, first, last, onset, frames):
                break
        else:
            raise RuntimeError("no room for a focus")
    for _ in range(2):
        _add_focus(rng, nucleus, entry, entry + int(rng.integers(4, 9)), None, frames)
        _add_focus(rng, nucleus, end - int(rng.integers(5, 9)), end - 1, None, frames)
    for _ in range(8):
        first = entry + int(rng.integers(0, length - 4))
        _add_focus(rng, nucleus, first, min(end - 1, first + int(rng.integers(4, 10))), None, frames)


def _lone_spots(rng: np.random.Generator, nucleus: Nucleus, frames: int) -> None:
    """Repair spots where no replication focus is, at any time."""
    for _ in range(int(rng.integers(1, 4))):
        first = int(rng.integers(-5, frames - 3))
        last = first + int(rng.integers(6, 18))
        place = _free_place(rng, nucleus, first, last)
        if place is not None:
            still = np.zeros((frames, 2))
            nucleus.lone.append(Focus(place, first, last, None, float(rng.lognormal(-0.1, 0.2)), still))


def _nuclei(condition: Condition, seed: int) -> list[Nucleus]:
    rng = stream(seed, "nuclei", condition.name)
    frames = condition.frames
    phases: list[tuple[int | None, int | None]] = []
    for _ in range(condition.complete):
        length = int(rng.integers(*condition.length))
        entry = int(rng.integers(4, frames - length - 4))
        phases.append((entry, entry + length))
    phases.append((-int(rng.integers(6, 14)), int(rng.integers(12, 20))))
    late = frames - int(rng.integers(12, 20))
    phases.append((late, late + 40))
    phases.append((None, None))
    count = condition.complete * EVENTS_PER_NUCLEUS
    mean, deviation = condition.onset
    even = np.clip(mean + deviation * ndtri((rng.permutation(count) + 0.5) / count), 0.02, 0.85)
    centres = scatter(rng, len(phases), (32.0, 24.0), (SHAPE[0] - 24.0, SHAPE[1] - 24.0), 42.0, tries=400)
    jitter = _walk(rng, frames, 0.12)
    nuclei = []
    for k, (entry, end) in enumerate(phases[: len(centres)]):
        own = stream(seed, "nucleus", condition.name, k)
        drift = _walk(own, frames, 0.28)
        turns = np.cumsum(ndimage.gaussian_filter1d(own.normal(0.0, 0.03, frames), 2.0, mode="nearest"))
        radius, stretch = own.uniform(17.0, 20.0), own.uniform(1.1, 1.4)
        nucleus = Nucleus(
            path=centres[k] + drift.clip(-16.0, 16.0) + jitter,
            angles=own.uniform(0.0, math.pi) + turns,
            radii=(radius * stretch**0.5, radius / stretch**0.5),
            entry=entry,
            exit=end,
            strength=(float(own.lognormal(0.0, 0.15)), float(own.lognormal(0.0, 0.15))),
        )
        if k < condition.complete:
            onsets = even[k * EVENTS_PER_NUCLEUS : (k + 1) * EVENTS_PER_NUCLEUS].tolist()
        else:
            onsets = own.uniform(0.05, 0.7, EVENTS_PER_NUCLEUS).tolist()
        _replication(own, nucleus, onsets, frames)
        _lone_spots(own, nucleus, frames)
        nuclei.append(nucleus)
    return nuclei


def _bodies(nucleus: Nucleus, rng: np.random.Generator) -> tuple[Blob, list[tuple[Array, float]], Array]:
    """Outline, nucleoli (place and size), and chromatin texture of a nucleus, fixed in its own frame."""
    outline = Blob.random(rng, (0.0, 0.0), nucleus.radii, rotation_2d(0.0), roughness=0.04)
    nucleoli = [(_inside(rng, 0.55), float(rng.uniform(2.2, 3.6))) for _ in range(int(rng.integers(1, 4)))]
    return outline, nucleoli, smooth_field((64, 64), 3.5, rng)


def _frame(
    nuclei: list[Nucleus],
    bodies: list[tuple[Blob, list[tuple[Array, float]], Array]],
    t: int,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Return the light of both stains at frame ``t``, in photons before the point spread."""
    red, green = np.zeros(SHAPE), np.zeros(SHAPE)
    points: tuple[list[Array], list[Array]] = ([], [])
    weights: tuple[list[float], list[float]] = ([], [])
    for nucleus, (outline, nucleoli, texture) in zip(nuclei, bodies, strict=True):
        inside_s = t in nucleus.replicates
        # Foci gather in the first frames of S phase and fade in the last.
        gathered = min(1.0, 0.55 + 0.2 * (t - nucleus.replicates.start), 0.55 + 0.2 * (nucleus.replicates.stop - 1 - t))
        turned = Blob(
            nucleus.path[t],
            outline.radii,
            rotation_2d(float(nucleus.angles[t])),
            outline.waves,
            outline.phases,
            outline.roughness,
        )
        place = turned.on(SHAPE)
        if place is None:
            continue
        where, rho = place
        body = coverage(rho, 18.0) * (0.55 + 0.45 * np.sqrt(np.maximum(1.0 - np.minimum(rho, 1.0) ** 2, 0.0)))
        y = np.arange(where[0].start, where[0].stop)[:, None] - nucleus.path[t][0]
        x = np.arange(where[1].start, where[1].stop)[None, :] - nucleus.path[t][1]
        for spot, size in nucleoli:
            offset = nucleus.position(spot, t) - nucleus.path[t]
            body = body * (1.0 - 0.5 * np.exp(-0.5 * ((y - offset[0]) ** 2 + (x - offset[1]) ** 2) / size**2))
        body *= 1.0 + 0.07 * texture[(y + 32).astype(int).clip(0, 63), (x + 32).astype(int).clip(0, 63)]
        past = nucleus.exit is not None and t >= nucleus.exit
        red[where] += nucleus.strength[0] * (90.0 if inside_s else 105.0 if past else 80.0) * body
        green[where] += nucleus.strength[1] * 40.0 * body
        for focus in nucleus.foci:
            if inside_s and focus.first <= t <= focus.last:
                at = nucleus.position(focus.place, t) + focus.wander[t]
                sharp = 0.35 if rng.random() < OUT_OF_FOCUS else 1.0
                points[0].append(at)
                weights[0].append(
                    nucleus.strength[0]
                    * 1900.0
                    * sharp
                    * gathered
                    * focus.brightness
                    * (0.75 if t == focus.first else 1.0)
                )
                if focus.onset is not None and t >= focus.onset:
                    points[1].append(at + rng.normal(0.0, 0.2, 2))
                    weights[1].append(1050.0 * focus.brightness * min(1.0, 0.65 + 0.2 * (t - focus.onset)))
        for spot_focus in nucleus.lone:
            if spot_focus.first <= t <= spot_focus.last:
                points[1].append(nucleus.position(spot_focus.place, t) + rng.normal(0.0, 0.2, 2))
                weights[1].append(1000.0 * spot_focus.brightness)
        if inside_s:
            for _ in range(24):
                points[0].append(nucleus.position(_inside(rng, 0.9), t))
                weights[0].append(nucleus.strength[0] * 400.0 * gathered * float(rng.lognormal(0.0, 0.4)))
    for image, spots, light in zip((red, green), points, weights, strict=True):
        if spots:
            image += render_points(SHAPE, np.asarray(spots), np.asarray(light), FOCUS_PX)
    return red, green


def _stamp(image: NDArray[np.uint8], minutes: int) -> None:
    """Burn the time into the upper right corner."""
    text = f"{minutes // 60:02d}:{minutes % 60:02d}"
    rows = [[int(bit) for bit in "0".join(GLYPHS[mark].split()[r] for mark in text)] for r in range(7)]
    bitmap = np.kron(np.array(rows, np.uint8), np.ones((2, 2), np.uint8)).astype(bool)
    height, width = bitmap.shape
    image[5 : 5 + height, SHAPE[1] - 6 - width : SHAPE[1] - 6][bitmap] = 255


def _movie(condition: Condition, nuclei: list[Nucleus], folder: Path, seed: int) -> None:
    bodies = [_bodies(nucleus, stream(seed, "body", condition.name, k)) for k, nucleus in enumerate(nuclei)]
    dim = [haze(SHAPE, stream(seed, "haze", condition.name, k), 6.0, 80.0) for k in range(2)]
    for t in range(condition.frames):
        rng = stream(seed, "frame", condition.name, t)
        lights = _frame(nuclei, bodies, t, rng)
        image = np.zeros((*SHAPE, 3), np.uint8)
        bleach = math.exp(-0.0015 * t)
        for k, (light, gain) in enumerate(zip(lights, (0.85, 1.15), strict=True)):
            camera = Camera(gain=gain, offset=-6.0 * gain, read_noise_e=2.0, bits=8)  # the export cut the offset away
            image[..., k] = camera.expose((OPTICS.blur(light) + dim[k]) * bleach, rng)
        image[..., 2] = np.where(image[..., 0] > 3, image[..., 0] - 1, 0)
        _stamp(image, t * INTERVAL_MIN)
        write_tiff(folder / f"T{t + 1:05d}C01Z001.tif", image, compression="zlib")


def make(destination: Path, seed: int) -> None:
    """Write both movies below ``destination/input`` and the events below ``destination/evaluation``."""
    events: list[tuple[object, ...]] = []
    blocks: list[list[tuple[str, str, str]]] = []
    for condition in CONDITIONS:
        nuclei = _nuclei(condition, seed)
        folder = destination / "input" / "Figure2b" / "single images movies" / f"Figure2b_{condition.name}.tif"
        _movie(condition, nuclei, folder, seed)
        block = []
        for cell, nucleus in enumerate(nuclei, start=1):
            if nucleus.entry is None or nucleus.exit is None or nucleus.entry < 1 or nucleus.exit > condition.frames:
                continue
            length = nucleus.exit - nucleus.entry
            for focus in nucleus.foci:
                if focus.onset is None:
                    continue
                y, x = nucleus.position(focus.place, focus.onset) + focus.wander[focus.onset]
                start = focus.onset - nucleus.entry
                hours = (length * INTERVAL_MIN / 60, start * INTERVAL_MIN / 60)
                row = (f"{hours[0]:.4f}", f"{hours[1]:.4f}", f"{start / length:.6f}")
                block.append(row)
                place = (f"{y:.3f}", f"{x:.3f}")
                events.append(
                    (condition.name, cell, focus.onset + 1, *place, nucleus.entry + 1, nucleus.exit + 1, *row)
                )
        blocks.append(block)
    longest = max(len(block) for block in blocks)
    header = ("S-phase length (h)", "Start coloc after S entry (h)", "Start normalized")
    table = [header * len(blocks)]
    for k in range(longest):
        table.append(sum(((block[k] if k < len(block) else ("", "", "")) for block in blocks), start=()))
    names = sum(((condition.name, "", "") for condition in CONDITIONS), start=())
    write_csv(destination / "evaluation" / "coloc_results.csv", names, table)
    write_csv(
        destination / "evaluation" / "events.csv",
        (
            *("condition", "cell", "frame", "y", "x", "s_entry_frame", "s_exit_frame"),
            *("s_phase_length_h", "start_coloc_h", "start_normalized"),
        ),
        events,
    )
