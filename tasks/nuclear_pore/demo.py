"""Demo data of nuclear_pore: two-channel volumes over time of dividing cells, with a labelled pore protein.

Imaging model
-------------
State: a plate of chromosomes that at one moment, different in every cell, parts into two. The daughters move apart,
round up and grow. On the surface of each, the pore protein gathers from the cytoplasm: early and fast on most of it,
later on the patch that faces the sister (the inner core), each daughter with a course of its own. The cell drifts
slowly. Truth is the moment, and for each daughter the volume, the surface, and the light on the patch and on the rest
of the surface, as laid down.

Light: stained chromatin; protein on the surface, in the cytoplasm (a pool that is used up) and, weakly, on the
chromosomes; slow bleaching; a Gaussian confocal point spread with coarse planes, camera offset, shot and read noise.
"""

from __future__ import annotations

import io
import math
import zipfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import openpyxl
import tifffile

from tasks._optics import Array, Camera, Objective, render_points, smooth_field, stream

SPACING = (1.0, 0.25, 0.25)  # um along z, y, x
SHAPE = (12, 62, 82)
FRAMES = 40
CELLS = 4
MINUTES = 0.5  # per frame
DNA_OPTICS = Objective(na=1.2, wavelength_nm=670.0, pixel_size_um=0.25, z_step_um=1.0, index=1.33, confocal=True)
GFP_OPTICS = Objective(na=1.2, wavelength_nm=510.0, pixel_size_um=0.25, z_step_um=1.0, index=1.33, confocal=True)
CAMERA = Camera(gain=4.0, offset=40.0, read_noise_e=1.0, bits=16)
CORE_UM = 1.5  # radius of the patch when a daughter is as large as at its birth
COLUMNS = (
    "Time Point",
    "Time after anaphase onset (min)",
    "Volume_Nucleus_1 (um3)",
    "SurfaceArea_Nucleus_1 (um2)",
    "Normalized_total_Intensity_InnerCore_1",
    "Normalized_total_Intensity_NonCore_1",
    "Volume_Nucleus_2 (um3)",
    "SurfaceArea_Nucleus_2 (um2)",
    "Normalized_total_Intensity_InnerCore_2",
    "Normalized_total_Intensity_NonCore_2",
)


@dataclass(frozen=True)
class Daughter:
    """How one daughter grows and gathers protein; times in minutes after the parting."""

    side: float  # -1 or 1
    grown: float  # final volume over the first one
    growth_minutes: float
    rest_half: float
    rest_steep: float
    core_half: float
    core_steep: float
    drift_up: float  # slow rise of the plateau per minute

    @classmethod
    def draw(cls, rng: np.random.Generator, side: float, early: float) -> Daughter:
        rest = 2.3 + 6.0 * early + rng.uniform(-0.7, 0.7)
        return cls(
            side=side,
            grown=rng.uniform(1.7, 3.4),
            growth_minutes=rng.uniform(3.5, 9.0),
            rest_half=rest,
            rest_steep=rng.uniform(3.0, 6.0),
            core_half=rest + rng.uniform(0.5, 5.0),
            core_steep=rng.uniform(3.0, 7.0),
            drift_up=rng.uniform(-0.012, 0.025),
        )

    def radii(self, minutes: float) -> Array:
        """Half axes in um: along z, across in the plane, along the axis of division."""
        growth = (1.0 + (self.grown - 1.0) * (1.0 - math.exp(-minutes / self.growth_minutes))) ** (1.0 / 3.0)
        rounding = 1.0 - math.exp(-minutes / 4.0)
        wide, thin = 3.1 - 0.55 * rounding, 1.35 + 0.95 * rounding
        return np.array([0.95 * wide, wide, thin]) * growth

    def densities(self, minutes: float) -> tuple[float, float]:
        """Light per um2 on the patch and on the rest."""
        plateau = 1.0 + self.drift_up * minutes

        def course(half: float, steep: float) -> float:
            return plateau / (1.0 + (half / max(minutes, 1e-6)) ** steep)

        return 34.0 * course(self.core_half, self.core_steep), 36.0 * course(self.rest_half, self.rest_steep)


def _sphere(count: int) -> Array:
    """Even directions, (count, 3)."""
    k = np.arange(count) + 0.5
    polar, turn = np.arccos(1.0 - 2.0 * k / count), math.pi * (1.0 + 5.0**0.5) * k
    return np.stack([np.cos(polar), np.sin(polar) * np.sin(turn), np.sin(polar) * np.cos(turn)], axis=1)


DIRECTIONS = _sphere(900)


def _surface(radii: Array) -> tuple[Array, Array]:
    """Points on an ellipsoid around the origin and the area that each stands for, in um and um2."""
    points = DIRECTIONS * radii
    # The area element of an ellipsoid over that of the unit sphere.
    area = np.prod(radii) * np.sqrt(((DIRECTIONS / radii) ** 2).sum(axis=1)) * 4.0 * math.pi / len(points)
    return points, area


@dataclass(frozen=True)
class Measured:
    """What truth says about one daughter at one moment."""

    volume: float
    surface: float
    core: float
    rest: float


def _frame(
    frame: int, onset: int, daughters: tuple[Daughter, Daughter], place: Array, angle: float, mitotic: Array
) -> tuple[Array, Array, list[Measured]]:
    """Expected photons of both channels, and what is true, in one frame."""
    minutes = (frame - onset) * MINUTES
    axis = np.array([0.0, math.sin(angle), math.cos(angle)])
    across = np.array([0.0, math.cos(angle), -math.sin(angle)])
    frame_axes = np.stack([np.array([1.0, 0.0, 0.0]), across, axis])
    grids = np.meshgrid(*(np.arange(n) * s for n, s in zip(SHAPE, SPACING, strict=True)), indexing="ij", sparse=True)
    offsets = [g - p for g, p in zip(grids, place, strict=True)]

    def inside(centre: Array, radii: Array) -> Array:
        own = [o - c for o, c in zip(offsets, centre, strict=True)]
        turned = [sum(a * o for a, o in zip(row, own, strict=True)) for row in frame_axes]
        rho = np.sqrt(sum((t / r) ** 2 for t, r in zip(turned, radii, strict=True)))
        return np.asarray(np.clip(0.5 + (1.0 - rho) * 4.0, 0.0, 1.0))

    cell = inside(np.zeros(3), np.array([6.3, 7.4, 10.4]))
    measured: list[Measured] = []
    bodies = []
    points, weights = [], []
    if minutes < 0.0:
        bodies.append((inside(np.zeros(3), np.array([3.6, 4.0, 1.15])), 1.0))
        used = 0.0
    else:
        apart = 1.3 + 3.9 * (1.0 - math.exp(-(minutes + 0.5) / 2.2))
        for daughter in daughters:
            centre = daughter.side * apart * axis
            radii = daughter.radii(minutes)
            first = daughter.radii(0.0)
            bodies.append((inside(centre, radii), float(np.prod(first) / np.prod(radii)) ** 0.7))
            surface, area = _surface(radii)
            area_first = float(_surface(first)[1].sum())
            reach = CORE_UM * math.sqrt(float(area.sum()) / area_first)
            toward = surface[:, 2] * -daughter.side > 0
            patch = toward & (np.hypot(surface[:, 0], surface[:, 1]) < reach)
            core, rest = daughter.densities(minutes)
            light = area * np.where(patch, core, rest)
            points.append(place + centre + surface @ frame_axes)
            weights.append(light)
            measured.append(
                Measured(
                    4.0 / 3.0 * math.pi * float(np.prod(radii)),
                    float(area.sum()),
                    float(light[patch].sum()),
                    float(light[~patch].sum()),
                )
            )
        used = sum(one.core + one.rest for one in measured) / 9000.0
    dna, chromatin = np.zeros(SHAPE), np.zeros(SHAPE)
    for body, density in bodies:
        dna += 75.0 * body * density
        chromatin = np.maximum(chromatin, body)
    texture = np.exp(0.2 * mitotic)
    pool = 7.5 * max(0.25, 1.0 - 0.6 * used)
    gfp = pool * cell * (1.0 - 0.8 * chromatin) + (3.0 * chromatin if minutes < 3.0 else 0.0)
    gfp = GFP_OPTICS.blur(gfp + 0.3)
    if points:
        step = np.array(SPACING)
        gfp += render_points(SHAPE, np.concatenate(points) / step, np.concatenate(weights), GFP_OPTICS.sigma_px)
    return gfp, DNA_OPTICS.blur(dna * texture + 0.5 + 0.8 * cell), measured


def _workbook(path: Path, sheets: dict[str, list[list[object]]]) -> None:
    """Write a workbook, the same bytes for the same content."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    moment = datetime(2016, 7, 12)
    book.properties.created = book.properties.modified = moment
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    buffer = io.BytesIO()
    book.save(buffer)
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(buffer) as source, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for entry in sorted(source.namelist()):
            content = source.read(entry)
            if entry == "docProps/core.xml":  # openpyxl writes the present moment on saving
                head, _, tail = content.partition(b"<dcterms:modified")
                content = (
                    head
                    + b'<dcterms:modified xsi:type="dcterms:W3CDTF">2016-07-12T00:00:00Z'
                    + tail[tail.index(b"</dcterms:modified>") :]
                )
            target.writestr(zipfile.ZipInfo(entry, (2016, 7, 12, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)


def make(destination: Path, seed: int) -> None:
    """Write the movies and the workbook."""
    sheets: dict[str, list[list[object]]] = {}
    order = stream(seed, "order")
    onsets = order.permutation(np.linspace(4, 14, CELLS).round().astype(int)) + order.integers(-1, 2, CELLS)
    early = order.permutation((np.arange(CELLS) + 0.5) / CELLS)
    for cell in range(CELLS):
        rng = stream(seed, "cell", cell)
        onset = int(onsets[cell])
        daughters = (Daughter.draw(rng, -1.0, float(early[cell])), Daughter.draw(rng, 1.0, float(early[cell])))
        angle = rng.uniform(-0.5, 0.5)
        middle = 0.5 * np.array(SHAPE) * SPACING + rng.normal(0.0, 0.3, 3)
        drift = np.cumsum(rng.normal(0.0, (0.02, 0.06, 0.06), (FRAMES, 3)), axis=0)
        mitotic = smooth_field(SHAPE, (2.0, 5.0, 5.0), rng)
        movie = np.empty((FRAMES, SHAPE[0], 2, *SHAPE[1:]), np.uint16)
        rows: list[list[object]] = [list(COLUMNS)]
        for frame in range(FRAMES):
            gfp, dna, measured = _frame(frame, onset, daughters, middle + drift[frame], angle + 0.004 * frame, mitotic)
            bleaching = math.exp(-0.002 * frame)
            for channel, light in enumerate((gfp, dna)):
                movie[frame, :, channel] = CAMERA.expose(light * bleaching, rng)
            row: list[object] = [frame + 1, (frame - onset) * MINUTES]
            for one in measured:
                # Light on the surface over the light in a um3 of the cytoplasm before the parting.
                row += [round(v, 4) for v in (one.volume, one.surface, one.core / 30.0, one.rest / 30.0)]
            rows.append(row)
        sheets[f"160701-cell{cell + 1}"] = rows
        path = destination / "input" / f"160701-Nup107-cell-{cell + 1}-t6.tif"
        path.parent.mkdir(parents=True, exist_ok=True)
        tifffile.imwrite(
            path,
            movie,
            imagej=True,
            resolution=(1.0 / SPACING[2], 1.0 / SPACING[1]),
            metadata={"axes": "TZCYX", "unit": "um", "spacing": SPACING[0], "finterval": 30.0, "tunit": "s"},
            compression="zlib",
        )
    _workbook(destination / "evaluation" / "processed data NUP107.xlsx", sheets)
