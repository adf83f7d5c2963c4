"""Demo data of nfkb_translocation: one 96-well plate, two stains in wide field, a transcription factor that moves.

Imaging model
-------------
State: rows A-D hold one cell line, rows E-H another; the twelve columns are doses of a cytokine, the highest in
column 1, no cytokine in column 12 (its key says 10^-13). Each cell has an outline, a nucleus and a ratio q, the mean
light of its nucleus over that of its cytoplasm in the stain of the transcription factor. q follows a saturating curve
of the dose with a shallow dip just below the threshold; the lines differ in sensitivity and amplitude. Each well
deviates from the curve of its dose (handling, edge of the plate), each cell from its well; the deviations of the four
wells of a dose cancel, as do those of the cells of a well. Stimulated cells also draw out and shrink a little. The
truth of a well is the mean of q over its cells.

Light: the factor's stain fills each cell in proportion to its thickness and is normalised so that q is exact before
optics; staining strength varies from cell to cell and from well to well without regard to the dose. The DNA stain
fills the nuclei. Dead cells lie on top as small bright balls in both stains. Then haze, an off-centre lamp, a
Gaussian point spread (some wells out of focus), Poisson and read noise, an offset, and 8 bits.
"""

from __future__ import annotations

import math
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks._optics import (
    Array,
    Blob,
    Camera,
    Objective,
    compete,
    debris,
    haze,
    render_points,
    rotation_2d,
    smooth_field,
    stream,
    uneven_light,
    write_csv,
    write_png,
)

SHAPE = (180, 240)
ROWS = "ABCDEFGH"
LOG_DOSES = (-7.0, -7.523, -8.0, -8.523, -9.0, -9.523, -10.0, -10.523, -11.0, -11.523, -12.0, -13.0)
TRIES = 60  # at a place for each cell
FACTOR, DNA = 1, 2  # number of the channel in the file name
FACTOR_OPTICS = Objective(na=0.35, wavelength_nm=520.0, pixel_size_um=0.9)
DNA_OPTICS = Objective(na=0.35, wavelength_nm=460.0, pixel_size_um=0.9)


@dataclass(frozen=True)
class Line:
    """A cell line: how its ratio follows the dose, and what its cells look like."""

    name: str
    resting: float
    amplitude: float
    log_ec50: float
    slope: float
    dip: float
    nucleus_px: float
    cell_px: float
    stretch: float
    cells: tuple[int, int]
    clustered: float

    def stimulation(self, log_dose: float) -> float:
        """Share of the full response, 0 to 1."""
        return 0.0 if log_dose <= -13.0 else 1.0 / (1.0 + 10.0 ** (self.slope * (self.log_ec50 - log_dose)))

    def ratio(self, log_dose: float) -> float:
        """Mean ratio of nucleus to cytoplasm at a dose."""
        below = 0.0 if log_dose <= -13.0 else self.dip * math.exp(-0.5 * ((log_dose + 11.9) / 0.35) ** 2)
        return self.resting * (1.0 + self.amplitude * self.stimulation(log_dose) - below)


def _lines(seed: int) -> tuple[Line, Line]:
    rng = stream(seed, "lines")

    def about(value: float, spread: float) -> float:
        return float(value + spread * rng.uniform(-1.0, 1.0))

    return (
        Line("MCF7", about(0.74, 0.05), about(1.3, 0.1), about(-9.6, 0.15), 1.1, 0.05, 6.2, 11.5, 1.12, (34, 58), 0.55),
        Line("A549", about(0.62, 0.04), about(0.8, 0.06), about(-8.75, 0.12), 0.9, 0.05, 5.5, 11.0, 1.4, (26, 50), 0.1),
    )


def _centres(rng: np.random.Generator, line: Line) -> Array:
    """Place the nuclei of a field: MCF7 grows in islands, A549 is scattered."""
    count = int(rng.integers(*line.cells))
    islands = rng.uniform((0, 0), SHAPE, (4, 2))
    centres: list[Array] = []
    for _ in range(TRIES * count):
        if len(centres) == count:
            break
        if rng.random() < line.clustered:
            candidate = islands[rng.integers(len(islands))] + rng.normal(0.0, 24.0, 2)
        else:
            candidate = rng.uniform((0.0, 0.0), SHAPE)
        if np.any(candidate < 1.0) or np.any(candidate > np.array(SHAPE) - 2.0):
            continue
        spacing = line.nucleus_px * rng.uniform(2.05, 2.7)
        if not centres or np.min(np.hypot(*(np.asarray(centres) - candidate).T)) >= spacing:
            centres.append(candidate)
    return np.asarray(centres)


@dataclass
class Field:
    """The geometry of a well: cell and nucleus labels, relative depth within each."""

    cells: NDArray[np.int32]
    nuclei: NDArray[np.int32]
    cell_rho: Array
    nucleus_rho: Array

    @classmethod
    def grow(cls, rng: np.random.Generator, line: Line, stimulation: float) -> Field:
        """Draw the outlines; stimulated cells are longer and smaller."""
        field = cls(
            np.zeros(SHAPE, np.int32), np.zeros(SHAPE, np.int32), np.full(SHAPE, np.inf), np.full(SHAPE, np.inf)
        )
        for number, centre in enumerate(_centres(rng, line), start=1):
            size = float(rng.lognormal(0.0, 0.1))
            stretch = line.stretch * (1.0 + 0.25 * stimulation) * float(rng.lognormal(0.0, 0.1))
            axes = rotation_2d(float(rng.uniform(0.0, math.pi)))
            body_px = line.cell_px * size * (1.0 - 0.08 * stimulation)
            nucleus_px, nucleus_stretch = line.nucleus_px * size, 1.0 + 0.5 * (stretch - 1.0)
            body = Blob.random(
                rng, centre + rng.normal(0.0, 1.2, 2), (body_px * stretch**0.5, body_px / stretch**0.5), axes, 0.1
            )
            nucleus = Blob.random(
                rng, centre, (nucleus_px * nucleus_stretch**0.5, nucleus_px / nucleus_stretch**0.5), axes, 0.03
            )
            if (place := body.on(SHAPE)) is not None:
                compete(field.cells, field.cell_rho, *place, number)
            if (place := nucleus.on(SHAPE)) is not None:
                compete(field.nuclei, field.nucleus_rho, *place, number)
        inside = field.nuclei > 0
        field.cells[inside] = field.nuclei[inside]
        return field

    @property
    def count(self) -> int:
        return int(self.cells.max())


def _mean_one(light: Array, labels: NDArray[np.int32], count: int) -> Array:
    """Scale the light of each label to a mean of 1."""
    total = np.bincount(labels.ravel(), light.ravel(), count + 1)
    pixels = np.bincount(labels.ravel(), minlength=count + 1)
    mean = np.where(total > 0, total / np.maximum(pixels, 1), 1.0)
    return np.asarray(np.where(labels > 0, light / mean[labels], 0.0))


def _dead(rng: np.random.Generator) -> tuple[Array, Array]:
    """Centres and light of a few dead cells."""
    count = int(rng.poisson(1.2))
    return rng.uniform((0, 0), SHAPE, (count, 2)), rng.uniform(1.2, 2.2, count)


def _photograph(
    light: Array, optics: Objective, defocus_um: float, background: float, gain: float, seed: int, *name: str | int
) -> NDArray[np.uint8]:
    """Send light (photons) through optics, haze, lamp and camera."""
    rng = stream(seed, "camera", *name)
    hazy = light + haze(SHAPE, rng, background, 90.0, contrast=0.12) + debris(SHAPE, rng, int(rng.integers(0, 4)))
    # one lamp for the whole plate
    lamp = uneven_light(SHAPE, stream(seed, "lamp", name[0]), falloff=0.3, ripple=0.02)
    exposed = Camera(gain=gain, offset=3.0, read_noise_e=4.0, bits=8).expose(optics.blur(hazy, defocus_um) * lamp, rng)
    return exposed.astype(np.uint8)


def _well(line: Line, log_dose: float, ratio: float, seed: int, well: str) -> dict[int, NDArray[np.uint8]]:
    """Return the two images of a well whose cells have ``ratio`` on average."""
    rng = stream(seed, "well", well)
    field = Field.grow(rng, line, line.stimulation(log_dose))
    spread = rng.lognormal(0.0, 0.16, field.count)
    q = np.concatenate([[0.0], ratio * spread / spread.mean()])
    strength = np.concatenate([[0.0], rng.lognormal(0.0, 0.22, field.count)]) * rng.lognormal(0.0, 0.18)
    inside = field.nuclei > 0
    height = 0.45 + 0.55 * np.sqrt(np.maximum(1.0 - np.minimum(field.cell_rho, 1.0) ** 2, 0.0))
    cytoplasm_texture = np.exp(0.16 * smooth_field(SHAPE, 2.5, rng))
    cytoplasm = _mean_one(height * cytoplasm_texture, np.where(inside, 0, field.cells), field.count)
    dome = 0.6 + 0.4 * np.sqrt(np.maximum(1.0 - np.minimum(field.nucleus_rho, 1.0) ** 2, 0.0))
    nucleus = _mean_one(dome * np.exp(0.08 * smooth_field(SHAPE, 3.0, rng)), field.nuclei, field.count)
    factor = 170.0 * strength[field.cells] * (cytoplasm + q[field.cells] * nucleus)
    ploidy = np.concatenate([[0.0], rng.choice([1.0, 1.4, 1.9], field.count, p=[0.6, 0.25, 0.15])])
    ploidy[1:] *= rng.lognormal(0.0, 0.12, field.count)
    chromatin = dome * np.exp(0.14 * smooth_field(SHAPE, 2.5, rng)) * inside
    dna = 260.0 * float(rng.lognormal(0.0, 0.12)) * ploidy[field.nuclei] * chromatin
    centres, brightness = _dead(rng)
    dna += render_points(SHAPE, centres, 700.0 * brightness * 2.0 * math.pi * 2.2**2, 2.2)
    factor += render_points(SHAPE, centres, 420.0 * brightness * 2.0 * math.pi * 2.8**2, 2.8)
    defocus = float(abs(rng.normal(0.0, 1.0))) + (4.0 if rng.random() < 0.06 else 0.0)
    return {
        FACTOR: _photograph(factor, FACTOR_OPTICS, defocus, float(rng.uniform(45.0, 75.0)), 0.25, seed, FACTOR, well),
        DNA: _photograph(dna, DNA_OPTICS, defocus, float(rng.uniform(25.0, 45.0)), 0.26, seed, DNA, well),
    }


def _ratios(seed: int) -> dict[str, tuple[str, float, float]]:
    """Return cell line, log dose and mean ratio of each well; the wells of a dose average to the curve."""
    plate: dict[str, tuple[str, float, float]] = {}
    for line, rows in zip(_lines(seed), (ROWS[:4], ROWS[4:]), strict=True):
        for column, log_dose in enumerate(LOG_DOSES, start=1):
            effect = stream(seed, "effect", line.name, column).normal(0.0, 0.1, len(rows)).clip(-0.22, 0.22)
            for row, deviation in zip(rows, effect - effect.mean(), strict=True):
                plate[f"{row}{column:02d}"] = (line.name, log_dose, line.ratio(log_dose) * (1.0 + float(deviation)))
    return dict(sorted(plate.items()))


def _bmp(image: NDArray[np.uint8]) -> bytes:
    """Encode an 8-bit BMP with a grey palette; its rows run from the bottom up and fill multiples of four bytes."""
    height, width = image.shape
    padded = np.pad(image[::-1], ((0, 0), (0, -width % 4)))
    head = 14 + 40 + 1024
    grey = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 4, axis=1)
    grey[:, 3] = 0
    return (
        struct.pack("<2sIHHI", b"BM", head + padded.size, 0, 0, head)
        + struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 0, padded.size, 0, 0, 256, 0)
        + grey.tobytes()
        + padded.tobytes()
    )


def make(destination: Path, seed: int) -> None:
    """Write the plate below ``destination/input`` and the ratios of its wells below ``destination/evaluation``."""
    folder = destination / "input"
    folder.mkdir(parents=True, exist_ok=True)
    lines = {line.name: line for line in _lines(seed)}
    plate = _ratios(seed)
    names = []
    with zipfile.ZipFile(folder / "BBBC014_v1_images.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for index, (well, (line, log_dose, ratio)) in enumerate(plate.items(), start=1):
            for channel, image in _well(lines[line], log_dose, ratio, seed, well).items():
                name, content = f"Channel {channel}-{index:02d}-{well[0]}-{well[1:]}-00.Bmp", _bmp(image)
                names.append(name)
                (folder / name).write_bytes(content)
                entry = zipfile.ZipInfo(f"BBBC014_v1_images/{name}", (1980, 1, 1, 0, 0, 0))
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, content, compresslevel=1)
                if well == "A01" and channel == 1:
                    write_png(folder / name.replace(".Bmp", ".png"), image)
                    write_png(folder / name.replace(".Bmp", "_small.png"), np.ascontiguousarray(image[::2, ::2]))
    doses = {well: f"10^{log_dose:g}" for well, (_, log_dose, _) in plate.items()}
    write_csv(
        folder / "BBBC014_v1_platemap_dosekey.csv",
        ("row", "column", "dose", "cell_type"),
        ((well[0], int(well[1:]), doses[well], line) for well, (line, _, _) in plate.items()),
    )
    (folder / "BBBC014_v1_platemap_all.txt").write_text("\n".join(["DESCRIPTION TNFa", *doses.values(), ""]))
    (folder / "contents_BBBC014_v1_images_filenames.txt").write_text("\n".join([*sorted(names), ""]))
    write_csv(
        destination / "evaluation" / "per_well_truth.csv",
        ("well", "cell_type", "dose", "mean_nuc_over_cyto_ratio"),
        ((well, line, log_dose, f"{ratio:.9f}") for well, (line, log_dose, ratio) in plate.items()),
    )
