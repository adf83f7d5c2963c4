"""Demo data of tile_stitching: a mosaic of confocal tiles with four stains and three planes, 0.415 um pixels, as LSM.

Imaging model
-------------
State: white blood cells (small, round, nucleus large or lobed) and cells of a breast cancer line (large, often in
clumps) lie mixed on a slide, at their own heights. Light by channel: lipids (diffuse and in droplets, more in cancer
cells), cytokeratin (fibres, cancer cells only), DNA (mottled nuclei), CD45 (patchy rim, white blood cells only). Every
cell has a strength of its own in every stain, so that single cells overlap between the two kinds; dead cells have lost
their markers, fragments and dust are no cells.

Acquisition: the stage goes from tile to tile on a grid with about a tenth of overlap, back and forth, and misses every
position by 5 to 7 pixels in any direction, not by whole pixels; the file holds the positions that were asked for. All
tiles share one vignetting per channel. A confocal point spread, photon noise, read noise, 12 bits in 16.

Reference: the same scene seen at once, without tiles, vignetting or overlap. The table is measured on it, in the true
outlines, above the true background: what a perfect segmentation of a perfect mosaic gives. ``tile_positions.csv`` holds
where in it each tile lies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from tasks._lsm import Channel, write_lsm
from tasks._optics import (
    Array,
    Blob,
    Camera,
    Objective,
    coverage,
    debris,
    oriented_field,
    render_points,
    rotation_2d,
    smooth_field,
    stream,
    write_csv,
)

GRID = 3
TILE = 216
OVERLAP = 0.10
JITTER_PX = (5.0, 7.0)
CELLS = {"WBC": 58, "MCF7": 34}
PIXEL_UM, STEP_UM = 0.415, 5.0
PLANES = 3
STEM = "day15_1_6_wbc_wbca1_mcf7_dapi_bodipy_panck_cd45_zstack_{0}x{0}"
CHANNELS = (
    Channel("Bodipy FL", (0, 255, 0), (490.0, 553.0)),
    Channel("Alexa 568", (255, 128, 0), (562.0, 633.0)),
    Channel("DAPI", (0, 0, 255), (408.0, 487.0)),
    Channel("Alexa 647", (255, 0, 255), (651.0, 700.0)),
)
NAMES = ("Bodipy", "PanCK", "DAPI", "CD45")
FEATURES = ("Sigma", "r", "rf", "M")
OBJECTIVES = tuple(
    Objective(na=0.8, wavelength_nm=sum(c.band_nm) / 2, pixel_size_um=PIXEL_UM, confocal=True) for c in CHANNELS
)
BACKGROUND = (9.0, 6.0, 5.0, 6.0)  # photons per pixel and plane
CAMERA = Camera(gain=4.0, offset=60.0, read_noise_e=1.5, bits=12)


@dataclass(frozen=True)
class Cell:
    """One cell: outline, nucleus, height, and its strength in each stain."""

    kind: str
    body: Blob
    nucleus: tuple[Blob, ...]
    plane: float  # height of its middle, in planes
    thickness: float  # standard deviation of its light along z, in planes
    strength: Array  # (4,)
    angle: float


def _cell(rng: np.random.Generator, kind: str, centre: Array) -> Cell:
    angle = float(rng.uniform(0.0, math.pi))
    axes = rotation_2d(angle)
    cancer = kind == "MCF7"
    radius = rng.uniform(18.0, 25.0) if cancer else rng.uniform(10.5, 13.5)
    stretch = math.exp(abs(rng.normal(0.0, 0.16 if cancer else 0.07)))
    body = Blob.random(rng, centre, (radius * stretch, radius / stretch), axes, roughness=0.07 if cancer else 0.03)
    share = rng.uniform(0.5, 0.62) if cancer else rng.uniform(0.66, 0.8)
    offset = rng.normal(0.0, 0.08 * radius, 2)
    if not cancer and rng.random() < 0.35:
        turn = rng.uniform(0.0, 2.0 * math.pi)
        lobes = tuple(
            Blob.random(
                rng,
                centre + 0.42 * radius * np.array([math.sin(turn + 2.1 * k), math.cos(turn + 2.1 * k)]),
                (0.42 * radius, 0.34 * radius),
                rotation_2d(turn + 2.1 * k),
                roughness=0.05,
            )
            for k in range(3)
        )
    else:
        size = share * radius
        lobes = (Blob.random(rng, centre + offset, (size * 1.08, size / 1.08), axes, roughness=0.05),)
    typical = np.array([3.2, 2.6, 1.25, 0.07]) if cancer else np.array([0.75, 0.07, 1.5, 2.4])
    strength = typical * rng.lognormal(0.0, [0.35, 0.4, 0.2, 0.4])
    if rng.random() < 0.06:
        strength[[1, 3]] *= 0.15  # dead, or without marker
    return Cell(
        kind=kind,
        body=body,
        nucleus=lobes,
        plane=float(rng.uniform(0.5, 1.5)),
        thickness=1.1 if cancer else 0.75,
        strength=strength,
        angle=angle,
    )


def _cells(size: int, rng: np.random.Generator) -> list[Cell]:
    """Place cells: cancer cells half in clumps, white blood cells anywhere; neighbours may touch but not overlap."""
    placed: list[tuple[Array, float]] = []
    cells: list[Cell] = []
    clumps = rng.uniform(0.1, 0.9, (5, 2)) * size
    for kind, count in (("MCF7", CELLS["MCF7"]), ("WBC", CELLS["WBC"])):
        own = 0
        for _ in range(400 * count):
            if own == count:
                break
            if kind == "MCF7" and rng.random() < 0.55:
                centre = clumps[rng.integers(len(clumps))] + rng.normal(0.0, 40.0, 2)
            else:
                centre = rng.uniform(0.0, size, 2)
            if not np.all((centre > 2.0) & (centre < size - 2.0)):
                continue
            cell = _cell(rng, kind, centre)
            reach = float(cell.body.radii.max())
            gaps = [float(np.hypot(*(centre - other))) - reach - extent for other, extent in placed]
            if not gaps or min(gaps) > -1.5:
                placed.append((centre, reach))
                cells.append(cell)
                own += 1
    return cells


def _scene(size: int, cells: list[Cell], seed: int) -> tuple[Array, NDArray[np.int32]]:
    """Return expected photons ``(z, c, y, x)`` without vignetting, and the true outlines of the cells."""
    shape = (size, size)
    rng = stream(seed, "texture")
    grain = np.clip(1.0 + 0.22 * smooth_field(shape, 2.2, rng), 0.2, None)
    mottle = np.clip(1.0 + 0.25 * smooth_field(shape, 3.0, rng), 0.2, None)
    patchy = np.clip(1.0 + 0.5 * smooth_field(shape, 5.0, rng), 0.1, None)
    fibres = [np.clip(1.0 + 0.4 * oriented_field(shape, math.pi * k / 4, 5.0, 0.6, rng), 0.05, None) for k in range(4)]
    labels, best = np.zeros(shape, np.int32), np.full(shape, np.inf)
    for label, cell in enumerate(cells, start=1):
        place = cell.body.on(shape)
        if place is not None:
            where, rho = place
            wins = (rho < 1.0) & (rho < best[where])
            best[where][wins] = rho[wins]
            labels[where][wins] = label
    light = np.zeros((PLANES, 4, *shape))
    droplets = stream(seed, "droplets")
    for label, cell in enumerate(cells, start=1):
        place = cell.body.on(shape, 1.15)
        if place is None:
            continue
        where, rho = place
        own = (labels[where] == label) | ((labels[where] == 0) & (rho < 1.1))
        inside = coverage(rho, float(cell.body.radii.min())) * own
        dome = inside * (0.35 + 0.65 * np.sqrt(np.clip(1.0 - rho**2, 0.0, 1.0)))
        nucleus = np.zeros_like(inside)
        for lobe in cell.nucleus:
            grids = [np.arange(s.start, s.stop, dtype=np.float64) for s in where]
            offsets = [grids[0][:, None] - lobe.centre[0], grids[1][None, :] - lobe.centre[1]]
            nucleus = np.maximum(nucleus, coverage(lobe.rho(offsets), float(lobe.radii.min())))
        nucleus = nucleus * inside
        rim = inside * np.exp(-(((1.0 - rho) / (2.2 / float(cell.body.radii.min()))) ** 2))
        streaks = fibres[round(cell.angle / math.pi * 4) % 4][where]
        fat = dome * grain[where] * (1.0 - 0.35 * nucleus)
        count = int(droplets.poisson(14.0 if cell.kind == "MCF7" else 2.0))
        points = cell.body.centre + droplets.normal(0.0, 0.4, (count, 2)) * cell.body.radii.mean()
        sheds = render_points(inside.shape, points - [s.start for s in where], droplets.lognormal(1.6, 0.5, count), 0.9)
        stains = (
            fat + sheds * inside,
            dome * streaks * (1.0 - 0.6 * nucleus),
            nucleus * mottle[where],
            rim * patchy[where],
        )
        for z in range(PLANES):
            slice_weight = math.exp(-0.5 * ((z - cell.plane) / cell.thickness) ** 2)
            for c, stain in enumerate(stains):
                light[z, c][where] += 42.0 * slice_weight * cell.strength[c] * stain
    clutter = stream(seed, "clutter")
    for c in range(4):
        specks = debris(shape, clutter, 14, (0.7, 1.8), (30.0, 260.0))
        height = clutter.uniform(0.0, 2.0)
        pattern = np.exp(0.15 * smooth_field(shape, 150.0, clutter))
        for z in range(PLANES):
            light[z, c] = OBJECTIVES[c].blur(light[z, c] + specks * math.exp(-((z - height) ** 2)))
            light[z, c] += BACKGROUND[c] * pattern
    return light, labels


def _positions(rng: np.random.Generator, overlap: float, jitter_px: tuple[float, float]) -> tuple[Array, Array]:
    """Return where tiles were asked to be and where they are, ``(tiles, 2)`` in pixels, in the order of acquisition."""
    step = TILE * (1.0 - overlap)
    order = [(row, column if row % 2 == 0 else GRID - 1 - column) for row in range(GRID) for column in range(GRID)]
    asked = np.array(order, np.float64) * step
    angle = rng.uniform(0.0, 2.0 * math.pi, len(asked))
    miss = rng.uniform(*jitter_px, len(asked))[:, None] * np.stack([np.sin(angle), np.cos(angle)], axis=1)
    return asked, asked + miss


def _vignetting(rng: np.random.Generator) -> Array:
    """Return one fall-off per channel, at most 1, ``(4, y, x)``."""
    y, x = (np.arange(TILE) - TILE / 2)[:, None], (np.arange(TILE) - TILE / 2)[None, :]
    result = []
    for _ in CHANNELS:
        dy, dx = rng.normal(0.0, TILE / 14, 2)
        fall = rng.uniform(0.25, 0.4)
        result.append(1.0 - fall * ((y - dy) ** 2 + (x - dx) ** 2) / (TILE**2 / 2))
    return np.asarray(result)


def _measure(reference: NDArray[np.unsignedinteger], labels: NDArray[np.int32], cells: list[Cell]) -> dict[str, Array]:
    """Return features of the cells that lie wholly inside, ``(cells, channel, feature)`` by kind, from sums over z."""
    level = np.array(BACKGROUND) * CAMERA.gain + CAMERA.offset
    summed = reference.astype(np.float64).sum(axis=0) - PLANES * level[:, None, None]
    found: dict[str, list[Array]] = {"WBC": [], "MCF7": []}
    for label, where in enumerate(ndimage.find_objects(labels, max_label=len(cells)), start=1):
        if where is None or any(s.start == 0 or s.stop == n for s, n in zip(where, labels.shape, strict=True)):
            continue
        mask = labels[where] == label
        values = np.zeros((4, 4))
        for c in range(4):
            image = np.where(mask, np.maximum(summed[c][where], 0.0), 0.0)
            values[c] = _features(image)
        found[cells[label - 1].kind].append(values)
    return {kind: np.asarray(values) for kind, values in found.items()}


def _features(image: Array) -> Array:
    """Sigma (dB), r (um), rf (1/um) and their product, of one background-subtracted cell."""
    total = max(float(image.sum()), 1.0)
    y, x = np.indices(image.shape) * PIXEL_UM
    my, mx = float((image * y).sum()) / total, float((image * x).sum()) / total
    r = math.sqrt(float((image * ((y - my) ** 2 + (x - mx) ** 2)).sum()) / total)
    power = np.abs(np.fft.fft2(image)) ** 2
    fy, fx = np.fft.fftfreq(image.shape[0], PIXEL_UM)[:, None], np.fft.fftfreq(image.shape[1], PIXEL_UM)[None, :]
    rf = math.sqrt(float((power * (fy**2 + fx**2)).sum()) / max(float(power.sum()), 1e-12))
    return np.array([10.0 * math.log10(total), r, rf, r * rf])


def _table(features: dict[str, Array]) -> list[tuple[str, ...]]:
    """Return the rows of the reference table: single features, then combinations by linear discriminant."""
    rows: list[tuple[str, ...]] = []

    def row(name: str, wbc: Array, mcf7: Array) -> None:
        spread = math.sqrt((float(wbc.var(ddof=1)) + float(mcf7.var(ddof=1))) / 2.0)
        numbers = (wbc.mean(), wbc.std(ddof=1), mcf7.mean(), mcf7.std(ddof=1), abs(mcf7.mean() - wbc.mean()) / spread)
        rows.append((name, *(f"{value:.4f}" for value in numbers)))

    wbc, mcf7 = features["WBC"], features["MCF7"]
    for c, channel in enumerate(NAMES):
        for f, feature in enumerate(FEATURES):
            row(f"{channel} {feature}", wbc[:, c, f], mcf7[:, c, f])
    sets = {"RegSigma": [0], "Regr": [1], "Regrf": [2], "RegM": [3], "RegSigmaM": [0, 3], "RegAll": [0, 1, 2]}
    for name, columns in sets.items():
        a, b = (values[:, :, columns].reshape(len(values), -1) for values in (wbc, mcf7))
        within = np.cov(a.T) + np.cov(b.T)
        direction = np.linalg.solve(within + 1e-9 * np.eye(len(within)), b.mean(axis=0) - a.mean(axis=0))
        row(name, a @ direction, b @ direction)
    return rows


def make(destination: Path, seed: int, *, overlap: float = OVERLAP, jitter_px: tuple[float, float] = JITTER_PX) -> None:
    """Write ``input/<name>.lsm``, and the stitched stack, the table and the tile positions below ``evaluation``."""
    asked, true = _positions(stream(seed, "stage"), overlap, jitter_px)
    margin = 12
    low = np.floor(true.min(axis=0)).astype(int)
    extent = np.ceil(true.max(axis=0)).astype(int) + TILE - low
    size = int(extent.max()) + 2 * margin
    cells = _cells(size, stream(seed, "cells"))
    light, labels = _scene(size, cells, seed)
    corner = true - low + margin  # of each tile in the scene
    shading = _vignetting(stream(seed, "vignetting"))
    tiles = np.empty((len(true), PLANES, 4, TILE, TILE), np.uint16)
    for t, place in enumerate(corner):
        whole = np.floor(place).astype(int)
        part = whole - place
        block = light[:, :, whole[0] - 2 : whole[0] + TILE + 4, whole[1] - 2 : whole[1] + TILE + 4]
        moved = np.stack([[ndimage.shift(plane, part, mode="nearest") for plane in stains] for stains in block])
        moved = moved[:, :, 2 : TILE + 2, 2 : TILE + 2]
        tiles[t] = CAMERA.expose(moved * shading, stream(seed, "tile", t))
    window = (slice(margin, margin + int(extent[0])), slice(margin, margin + int(extent[1])))
    reference = CAMERA.expose(light[:, :, window[0], window[1]], stream(seed, "reference")).astype(np.uint16)
    stem = STEM.format(GRID)
    voxel = (STEP_UM, PIXEL_UM, PIXEL_UM)
    centred = (asked - asked.mean(axis=0)) * PIXEL_UM
    stage = np.column_stack([np.zeros(len(asked)), centred])
    write_lsm(destination / "input" / f"{stem}.lsm", tiles, channels=CHANNELS, voxel_um=voxel, tile_positions_um=stage)
    evaluation = destination / "evaluation"
    write_lsm(evaluation / f"{stem}_Stitched.lsm", reference, channels=CHANNELS, voxel_um=voxel)
    columns = ("Feature", "WBC_Mean", "WBC_SD", "MCF7_Mean", "MCF7_SD", "D")
    write_csv(evaluation / "reference_table_1.csv", columns, _table(_measure(reference, labels[window], cells)))
    write_csv(
        evaluation / "tile_positions.csv",
        ("tile", "y", "x"),
        [(t, f"{y:.3f}", f"{x:.3f}") for t, (y, x) in enumerate(true - low)],
    )
