"""Demo data of oncogenic_puncta: two-channel volumes of nuclei with droplets of a fusion protein, three constructs.

Imaging model
-------------
State: flat nuclei lie side by side and touch; some are cut by the edge of the field. Each either lacks the protein, or
holds it evenly spread, or holds it in droplets; how many droplets there are is heavy-tailed and depends on the
construct. Droplets sit partly in clusters, where neighbours are barely further apart than the microscope resolves, and
keep a least distance. Truth is the list of nuclei with the centre of their volume and the number of droplets.

Light: stained chromatin with dark nucleoli; protein in the nucleoplasm, grainy, and in droplets; blur from other
planes, loss of light with depth, uneven light, a Gaussian confocal point spread, camera offset, shot and read noise.
The files are averaged over 2 x 2 x 2 voxels of the published sampling, and say so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray
from scipy.special import ndtri

from tasks._optics import (
    Array,
    Blob,
    Camera,
    Objective,
    compete,
    coverage,
    render_points,
    scatter,
    smooth_field,
    stream,
    uneven_light,
    wide_blur,
    write_csv,
)

SPACING = (0.4, 0.13, 0.13)  # um along z, y, x
SHAPE = (14, 272, 272)
FIELDS = 2
DNA_OPTICS = Objective(na=1.4, wavelength_nm=460.0, pixel_size_um=0.13, z_step_um=0.4, index=1.515, confocal=True)
GFP_OPTICS = Objective(na=1.4, wavelength_nm=510.0, pixel_size_um=0.13, z_step_um=0.4, index=1.515, confocal=True)
CAMERA = Camera(gain=2.0, offset=100.0, read_noise_e=1.6, bits=16)
LEAST_UM = (0.85, 0.46, 0.46)  # half axes of the ellipsoid that a droplet keeps free of others


@dataclass(frozen=True)
class Construct:
    """One construct: folder, part of file names, share of nuclei with droplets, median and spread of their number."""

    folder: str
    name: str
    bearing: float
    median: float
    spread: float


CONSTRUCTS = (
    Construct("08172023_ZR_WT", "08172023_ZFTA_RELA_WT", 0.42, 36.0, 0.55),
    Construct("08172023_ZR_3DBDmut", "08172023_ZFTA_RELA_3DBDmut", 0.40, 20.0, 0.55),
    Construct("08172023_ZRC129A_H144A_fix", "08172023_ZFTA_RELA_C129A_H144A", 0.34, 11.0, 0.5),
)


@dataclass
class Nucleus:
    """One nucleus."""

    body: Blob
    stain: float
    level: float  # photons of evenly spread protein per voxel
    droplets: Array = field(default_factory=lambda: np.zeros((0, 3)))


def _place_droplets(rng: np.random.Generator, label: int, labels: NDArray[np.uint16], count: int) -> Array:
    """Draw droplet centres in voxels inside a nucleus, partly clustered, each with some room."""
    inside = np.argwhere(labels == label).astype(float)
    step = np.array(SPACING)
    centres = inside[rng.integers(0, len(inside), max(1, count // 9))]
    room = np.array(LEAST_UM) / step
    chosen = np.zeros((0, 3))
    for _ in range(60 * count):
        if len(chosen) == count:
            break
        if rng.random() < 0.55:
            place = centres[rng.integers(len(centres))] + rng.normal(0.0, 0.65, 3) * (0.7, 1.0, 1.0) / step
        else:
            place = inside[rng.integers(len(inside))] + rng.uniform(-0.5, 0.5, 3)
        z, y, x = np.rint(place).astype(int)
        if not (0 <= z < SHAPE[0] and 2 <= y < SHAPE[1] - 2 and 2 <= x < SHAPE[2] - 2) or labels[z, y, x] != label:
            continue
        if not len(chosen) or np.min((((chosen - place) / room) ** 2).sum(axis=1)) >= 1.0:
            chosen = np.concatenate([chosen, place[None]])
    return chosen


def _numbers(construct: Construct, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Numbers of droplets of all nuclei of a construct: even quantiles, in random order, most of them none."""
    bearing = max(2, round(construct.bearing * count))
    quantiles = ndtri((np.arange(bearing) + 0.5) / bearing)
    numbers = np.zeros(count, np.int64)
    numbers[:bearing] = np.clip(np.rint(construct.median * np.exp(construct.spread * quantiles)), 4, 110)
    return rng.permutation(numbers)


def _nuclei(rng: np.random.Generator) -> tuple[list[Nucleus], NDArray[np.uint16]]:
    """Lay nuclei out in one field; return them with their labels, both in the same order."""
    step = np.array(SPACING)
    span = np.array(SHAPE[1:]) * step[1:]
    labels = np.zeros(SHAPE, np.uint16)
    best = np.full(SHAPE, np.inf)
    nuclei: list[Nucleus] = []
    for y, x in scatter(rng, 40, -0.5 * np.ones(2), span + 0.5, 6.9):
        z = rng.normal(0.5 * SHAPE[0] * step[0], 0.3)
        angle = rng.uniform(0.0, math.pi)
        cos, sin = math.cos(angle), math.sin(angle)
        # Axes in the plane only; radii in voxels of the plane, z handled by its own scale.
        axes = np.array([[1.0, 0.0, 0.0], [0.0, sin, cos], [0.0, cos, -sin]])
        long = rng.uniform(3.7, 4.7)
        radii = np.array([rng.uniform(1.7, 2.1) / step[0], long / step[1], long * rng.uniform(0.7, 0.92) / step[1]])
        body = Blob.random(rng, np.array([z, y, x]) / step, radii, axes, roughness=0.04, detail=1.5)
        on = body.on(SHAPE)
        if on is None:
            continue
        nuclei.append(Nucleus(body, stain=rng.uniform(22.0, 50.0), level=0.0))
        compete(labels, best, on[0], on[1], len(nuclei))
    sizes = np.bincount(labels.ravel(), minlength=len(nuclei) + 1)
    kept = [k for k in range(1, len(nuclei) + 1) if sizes[k] > 8000]
    names = np.zeros(len(nuclei) + 1, np.uint16)
    names[kept] = np.arange(1, len(kept) + 1)
    return [nuclei[k - 1] for k in kept], names[labels]


def _light(rng: np.random.Generator, nuclei: list[Nucleus], labels: NDArray[np.uint16]) -> tuple[Array, Array]:
    """Expected photons of both channels before the camera."""
    dna, gfp = np.full(SHAPE, 0.6), np.full(SHAPE, 0.9)
    points, weights = [], []
    texture = np.exp(0.22 * smooth_field(SHAPE, (2.5, 6.0, 6.0), rng))
    grain = np.exp(0.2 * smooth_field(SHAPE, (2.0, 5.0, 5.0), rng))
    holes = smooth_field(SHAPE, (4.0, 12.0, 12.0), rng)
    for number, nucleus in enumerate(nuclei, start=1):
        on = nucleus.body.on(SHAPE)
        if on is None:
            continue
        where, rho = on
        soft = coverage(rho, 9.0) * (labels[where] == number)
        spared = np.clip(1.6 - holes[where], 0.35, 1.0)
        dna[where] += nucleus.stain * soft * texture[where] * spared
        gfp[where] += nucleus.level * soft * grain[where] * (0.5 + 0.5 * spared)
        points.append(nucleus.droplets)
        weights.append(rng.lognormal(math.log(620.0), 0.4, len(nucleus.droplets)))
    spread = tuple(math.hypot(s, 0.11 / step) for s, step in zip(GFP_OPTICS.sigma_px, SPACING, strict=True))
    drops = render_points(SHAPE, np.concatenate(points), np.concatenate(weights), spread)
    dna, gfp = DNA_OPTICS.blur(dna), GFP_OPTICS.blur(gfp) + drops
    depth = np.exp2(-np.arange(SHAPE[0]) * SPACING[0] / 14.0)[:, None, None]
    shade = uneven_light(SHAPE, rng, falloff=0.25)
    result = []
    for light in (dna, gfp):
        glow = wide_blur(light.mean(axis=0), 16.0)
        result.append((light + 0.18 * glow) * depth * shade)
    return result[0], result[1]


HEADER = (
    "ROI label",
    "ROI volume pix",
    "ROI volume um",
    "z",
    "y",
    "x",
    "GFP mean intensity per ROI",
    "number of GFP puncta",
    "Image name",
    "sample",
    "condition",
)


def make(destination: Path, seed: int) -> None:
    """Write the stacks and the table of nuclei."""
    rows: list[tuple[object, ...]] = []
    voxel = math.prod(SPACING)
    for construct in CONSTRUCTS:
        fields = [_nuclei(stream(seed, construct.folder, "nuclei", number)) for number in range(FIELDS)]
        numbers = _numbers(
            construct, sum(len(nuclei) for nuclei, _ in fields), stream(seed, construct.folder, "numbers")
        )
        for number, (nuclei, labels) in enumerate(fields, start=1):
            rng = stream(seed, construct.folder, "field", number)
            for label, nucleus in enumerate(nuclei, start=1):
                count, numbers = int(numbers[0]), numbers[1:]
                spread_out = rng.random() < 0.6
                nucleus.level = rng.uniform(5.0, 16.0) if count else rng.uniform(4.0, 22.0) * spread_out
                nucleus.droplets = _place_droplets(rng, label, labels, count) if count else np.zeros((0, 3))
            photons = _light(rng, nuclei, labels)
            stack = np.stack([CAMERA.expose(light, rng) for light in photons], axis=1)
            name = f"08172023_HEK_ZFTA_Mutants.sld - {construct.name} - Position {number}.tif"
            path = destination / "input" / construct.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            tifffile.imwrite(
                path,
                stack,
                imagej=True,
                resolution=(1.0 / SPACING[2], 1.0 / SPACING[1]),
                metadata={"axes": "ZCYX", "unit": "um", "spacing": SPACING[0]},
                compression="zlib",
            )
            for label, nucleus in enumerate(nuclei, start=1):
                inside = labels == label
                centre = [round(float(axis.mean()), 4) for axis in np.nonzero(inside)]
                size = int(inside.sum())
                mean = round(float(stack[:, 1][inside].mean()), 3)
                image = f"{construct.folder}/{name}_trimmed.tif"
                volume = round(size * voxel, 5)
                rows.append(
                    (label, size, volume, *centre, mean, len(nucleus.droplets), image, construct.name, construct.folder)
                )
    write_csv(destination / "evaluation" / "cell_quants.csv", HEADER, rows)
