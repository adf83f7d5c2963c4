"""Demo data of compound_plate: nuclei after treatment with eight compounds, three wells each, one image per well.

State: each compound has a phenotype and a survival. A well has nuclei with centres, outlines and, where they have
broken up, pieces; most of them, not all, have the phenotype of the compound. Truth is counted from this state. Light:
smooth nuclei, brighter pieces, haze, a lamp that is not centred, point spread, camera.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from tasks._optics import (
    Array,
    Blob,
    Camera,
    Objective,
    coverage,
    haze,
    rotation_2d,
    scatter,
    stream,
    uneven_light,
    write_csv,
    write_tiff,
)

SHAPE = (192, 192)
OBJECTIVE = Objective(na=0.5, wavelength_nm=461.0, pixel_size_um=0.6)
CAMERA = Camera(gain=1.0, offset=100.0, read_noise_e=3.0, bits=16)
ROWS, COLUMNS = "ABCD", 6
PHENOTYPES = ("normal", "normal", "normal", "large", "large", "fragmented", "fragmented")  # of the compounds
WELLS_EACH = 3
RADIUS = {"normal": 6.5, "large": 10.5, "fragmented": 6.5}
SPACING = {"normal": 15.0, "large": 23.0, "fragmented": 19.0}


def _nucleus(rng: np.random.Generator, centre: Array, kind: str) -> list[Blob]:
    """Return the bodies of a nucleus: one, or the pieces into which it has broken."""
    axes = rotation_2d(float(rng.uniform(0.0, math.pi)))
    if kind != "fragmented":
        radius, stretch = RADIUS[kind] * rng.uniform(0.9, 1.12), rng.uniform(1.0, 1.3)
        radii = (radius * math.sqrt(stretch), radius / math.sqrt(stretch))
        return [Blob.random(rng, centre, radii, axes, roughness=0.04)]
    count, turn = int(rng.integers(3, 6)), rng.uniform(0.0, 2 * math.pi)
    angles = turn + 2 * math.pi * np.arange(count) / count
    offsets = rng.uniform(3.6, 4.6, count)[:, None] * np.stack([np.sin(angles), np.cos(angles)], axis=1)
    return [Blob.random(rng, centre + offset, [rng.uniform(1.7, 2.4)] * 2, axes, 0.05) for offset in offsets]


def _well(rng: np.random.Generator, wanted: int, phenotype: str) -> tuple[Array, int, float]:
    """Return the light of a well, 1 in the middle of a typical nucleus, the number of nuclei and their mean area."""
    light, areas = np.zeros(SHAPE), []
    centres = scatter(rng, wanted, [2, 2], [SHAPE[0] - 3, SHAPE[1] - 3], SPACING[phenotype])
    affected = rng.permutation(len(centres)) < round(rng.uniform(0.75, 0.95) * len(centres))
    for centre, changed in zip(centres, affected, strict=True):
        kind = phenotype if changed else "normal"
        inside = np.zeros(SHAPE, bool)
        brightness = rng.uniform(0.8, 1.2) * (1.7 if kind == "fragmented" else 1.0)
        for body in _nucleus(rng, centre, kind):
            if (place := body.on(SHAPE)) is not None:
                where, rho = place
                inside[where] |= rho < 1.0
                light[where] = np.maximum(light[where], brightness * coverage(rho, float(body.radii.mean())))
        areas.append(int(inside.sum()))
    return light, len(areas), float(np.mean(areas))


def make(destination: Path, seed: int) -> None:
    """Write ``input/<well>.tif``, ``input/plate_map.csv`` and two tables below ``evaluation``."""
    rng = stream(seed, "plate")
    names = ["vehicle", *(f"K-{number:02d}" for number in rng.choice(np.arange(1, 60), len(PHENOTYPES), replace=False))]
    phenotypes = dict(zip(names, ("normal", *rng.permutation(PHENOTYPES).tolist()), strict=True))
    survival = dict(zip(names, (1.0, *rng.permutation(np.linspace(0.35, 0.95, len(PHENOTYPES)))), strict=True))
    wells = [f"{row}{column:02d}" for row in ROWS for column in range(1, COLUMNS + 1)]
    compounds = dict(zip(wells, rng.permutation(np.repeat(names, WELLS_EACH)).tolist(), strict=True))
    rows = []
    for well, compound in compounds.items():
        own = stream(seed, "well", well)
        wanted = max(4, round(46 * survival[compound] * own.uniform(0.9, 1.1)))
        light, count, area = _well(own, wanted, phenotypes[compound])
        background = haze(SHAPE, own, 90.0, 70.0, contrast=0.3)
        photons = (OBJECTIVE.blur(600.0 * light) + background) * uneven_light(SHAPE, own, falloff=0.3)
        write_tiff(destination / "input" / f"{well}.tif", CAMERA.expose(photons, own))
        rows.append((well, count, round(area, 2), phenotypes[compound]))
    write_csv(destination / "input" / "plate_map.csv", ("well", "compound"), compounds.items())
    write_csv(destination / "evaluation" / "well_table.csv", ("well", "nuclei", "mean_area_px", "phenotype"), rows)
    means = {name: np.mean([count for well, count, *_ in rows if compounds[well] == name]) for name in names}
    summary = [(name, round(float(means[name] / means["vehicle"]), 4), phenotypes[name]) for name in sorted(names)]
    columns = ("compound", "relative_count", "phenotype")
    write_csv(destination / "evaluation" / "compound_table.csv", columns, summary)
