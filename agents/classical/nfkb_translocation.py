"""Measure nuclear against cytoplasmic stain per cell on a well plate, and relate it to the dose.

Which channel shows nuclei is decided from the images, the dose of a well is read from the plate map. The cytoplasm is
measured in a ring around the nucleus, inside the cell; cells whose ratio lies far off those of their well (dead or
badly segmented ones) are left out, and counted.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage as ndi
from scipy import optimize, stats
from skimage.segmentation import expand_labels, watershed

from . import _figures as figures
from ._io import as_grey, list_images, read_image, write_table
from ._job import Job
from ._report import Report, Summary, number
from ._segment import (
    Image,
    Labels,
    background_surface,
    blob_radius,
    distance_inside,
    flat_background,
    half_height,
    label_medians,
    noise_sigma,
    opened,
    otsu,
    split_touching,
    tidy,
)

NAME = re.compile(r"(?i)^channel\s*(\d+)-(\d+)-([a-z])-(\d+)")
SMALLEST_RADIUS_PX, LARGEST_RADIUS_PX = 2.5, 40.0
DETECTION_NOISE = 5.0  # Rose criterion, in standard deviations of pixel noise
GAP, RING = 0.2, 0.8  # of the nucleus' radius: left out for blur, and measured as cytoplasm
RING_SHARE = 0.5  # of the stain close to the nucleus; a ring pixel below lies outside the cell
SMALLEST_RING = 10  # pixels
OPENING, SPLIT_DEPTH = 0.3, 0.08  # of the nucleus' radius: spurs that are cut, depth of a waist that parts two nuclei
SMALLEST_NUCLEUS = 0.3  # in discs of the typical radius
DEAD_BRIGHTNESS = 3.2  # of the typical nucleus of the image; condensed chromatin of dead cells is brighter
OUTLIER = 3.0  # median absolute deviations (as standard deviations) of the cells of a well
SAMPLE = 16  # wells from which channels and sizes are determined

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Well:
    """A well of the plate map: name, cell line, log10 of the dose."""

    name: str
    line: str
    dose: float


@dataclass(frozen=True)
class Cells:
    """The cells of a well; arrays have one value per cell, ``kept`` says which enter the mean."""

    well: Well
    nuclear: Array
    cytoplasmic: Array
    nucleus_area: Array
    cell_area: Array
    elongation: Array
    y: Array
    x: Array
    kept: npt.NDArray[np.bool_]
    rejected: dict[str, int]

    @property
    def ratios(self) -> Array:
        return self.nuclear / self.cytoplasmic


def run(job: Job) -> None:
    """Find out what is where, measure all wells, write both tables, then figures and report."""
    files = plate_images(job.input_dir)
    plate, source = read_plate_map(job.input_dir)
    wells = [well for well in plate if well.name in files]
    job.log(f"{len(files)} wells with images, {len(plate)} in {source}")
    nuclear_channel, shares = find_nuclear_channel(job, files)
    factor_channel = next(channel for channel in shares if channel != nuclear_channel)
    radius = nucleus_radius(job, files, nuclear_channel)
    job.log(f"channel {nuclear_channel} shows nuclei (radius {radius:.1f} px), channel {factor_channel} the factor")
    measured: list[Cells] = []
    for well in wells:
        with job.attempt(well.name):
            dna, factor = (load(files[well.name][channel]) for channel in (nuclear_channel, factor_channel))
            measured.append(measure(well, dna, factor, radius))
    write_tables(job, wells, measured)
    rows = read_wells(job.output_dir / "per_well_summary.csv")
    job.delivered = sum(math.isfinite(row.ratio) for row in rows)
    with job.attempt("figures"):
        draw_curves(job, rows)
        draw_shapes(job, measured)
    with job.attempt("panels"):
        draw_panels(job, files, rows, (nuclear_channel, factor_channel), radius)
    write_report(job, rows, measured, wells, source, shares, nuclear_channel, radius)


# --- plate ----------------------------------------------------------------------------------------------------------


def plate_images(folder: Path) -> dict[str, dict[int, Path]]:
    """Return the images by well and channel; a bitmap wins over a preview of the same name."""
    found: dict[str, dict[int, Path]] = {}
    for path in sorted(list_images(folder), key=lambda path: path.suffix.lower() != ".bmp"):
        name = NAME.match(path.name)
        if name and not path.stem.lower().endswith("_small"):
            found.setdefault(f"{name[3].upper()}{int(name[4]):02d}", {}).setdefault(int(name[1]), path)
    if not found:
        raise ValueError("no images named like 'Channel 1-01-A-01-00.Bmp'")
    return found


def parse_dose(text: str) -> float | None:
    """Return log10 of a dose, which is written as a power of ten or as a number; 0 gives minus infinity."""
    if power := re.match(r"\s*10\s*\^\s*\(?\s*([+-]?\d*\.?\d+)", text):
        return float(power[1])
    if plain := re.match(r"\s*([+-]?\d*\.?\d+(?:[eE][+-]?\d+)?)", text):
        value = float(plain[1])
        return value if value < 0 else math.log10(value) if value > 0 else -math.inf
    return None


def read_plate_map(folder: Path) -> tuple[list[Well], str]:
    """Return the wells of the plate map and its file's name: a table with row, column, dose and cell type."""
    for path in sorted(folder.rglob("*.csv")):
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file))
        names = [cell.strip().lower() for cell in rows[0]] if rows else []

        def place(*words: str, names: list[str] = names) -> int | None:
            return next((names.index(name) for word in words for name in names if word in name), None)

        row, column, dose, line = place("row"), place("col"), place("dose", "conc"), place("cell", "line")
        if row is None or column is None or dose is None or line is None:
            continue
        wells = []
        for cells in rows[1:]:
            value = parse_dose(cells[dose]) if len(cells) > max(row, column, dose, line) else None
            if value is not None:
                name = f"{cells[row].strip().upper()}{int(cells[column]):02d}"
                wells.append(Well(name, cells[line].strip(), value))
        if wells:
            return sorted(wells, key=lambda well: well.name), path.name
    raise ValueError("no plate map with columns for row, column, dose and cell type")


def load(path: Path) -> Image:
    """Read one image as float."""
    return as_grey(read_image(path))


def _sample(files: dict[str, dict[int, Path]]) -> list[dict[int, Path]]:
    names = sorted(files)
    return [files[name] for name in names[:: -(-len(names) // SAMPLE)]]


def find_nuclear_channel(job: Job, files: dict[str, dict[int, Path]]) -> tuple[int, dict[int, float]]:
    """Return the channel with nuclei, and the share of the field that is bright in each.

    Nuclei cover less of the field than whole cells.
    """
    shares: dict[int, list[float]] = {}
    for channels in _sample(files):
        for channel, path in channels.items():
            with job.attempt(path.name):
                image = ndi.gaussian_filter(load(path), 1.0)
                signal = np.sqrt(np.clip(image - background_surface(image, min(image.shape) / 2), 0, None))
                shares.setdefault(channel, []).append(float((signal > otsu(signal)).mean()))
    means = {channel: float(np.median(values)) for channel, values in sorted(shares.items())}
    if len(means) != 2:
        raise ValueError(f"expected two channels, found {sorted(means)}")
    return min(means, key=lambda channel: means[channel]), means


def nucleus_radius(job: Job, files: dict[str, dict[int, Path]], channel: int) -> float:
    """Return the most common radius of nuclei over a sample of wells, in pixels."""

    def images() -> Iterator[tuple[Image, float]]:
        for channels in _sample(files):
            try:
                image = load(channels[channel])
            except (KeyError, OSError, ValueError):
                continue  # named when the well's own turn comes
            smooth = ndi.gaussian_filter(image, 0.7)
            signal = smooth - background_surface(smooth, min(image.shape) / 2)
            yield np.asarray(signal, np.float32), DETECTION_NOISE * noise_sigma(image)

    radius = blob_radius(images(), SMALLEST_RADIUS_PX, LARGEST_RADIUS_PX)
    if radius is None:
        raise ValueError("no nuclei were found in the sample of wells")
    return radius


# --- measurement ----------------------------------------------------------------------------------------------------


def segment_nuclei(dna: Image, radius: float) -> tuple[Labels, Image]:
    """Return nuclei and the background-subtracted image they come from."""
    smooth = ndi.gaussian_filter(dna, 0.7)
    signal = np.asarray(smooth - flat_background(smooth, 10 * radius), np.float32)
    root = np.sqrt(np.clip(signal, 0, None))  # dim and bright nuclei weigh alike
    floor = DETECTION_NOISE * max(noise_sigma(dna), 0.5)
    mask = (signal > floor) & (root > ndi.gaussian_filter(root, radius))
    mask = opened(ndi.binary_fill_holes(mask), max(1.0, OPENING * radius))
    smallest = SMALLEST_NUCLEUS * np.pi * radius**2
    landscape = ndi.gaussian_filter(distance_inside(mask), 0.15 * radius) / radius
    seeds = tidy(split_touching(mask, np.asarray(landscape, np.float32), SPLIT_DEPTH), smallest)
    basins = watershed(-signal, seeds, mask=ndi.binary_dilation(mask, iterations=max(1, round(radius / 4))))
    return tidy(half_height(seeds, signal, np.asarray(basins, np.int32)), smallest, smooth=1), signal


def segment_cells(factor: Image, nuclei: Labels, radius: float) -> tuple[Image, Labels, Labels]:
    """Return the background-subtracted factor image, the rings of cytoplasm, and whole cells (nucleus included)."""
    signal = np.asarray(factor - flat_background(factor, 16 * radius), np.float32)
    smooth = ndi.gaussian_filter(signal, 1.0)
    gap = max(1, round(GAP * radius))
    reach = gap + max(2, round(RING * radius))
    inner, near, outer = (expand_labels(nuclei, width) for width in (gap, gap + 2, reach))
    close = label_medians(smooth, np.where(inner > 0, 0, near).astype(np.int32))
    limit = np.full(int(nuclei.max()) + 1, np.inf, np.float32)
    limit[: close.size] = RING_SHARE * np.maximum(np.nan_to_num(close), 1.0)
    limit[0] = np.inf
    ring = np.where((inner == 0) & (smooth > limit[outer]), outer, 0).astype(np.int32)
    far = expand_labels(nuclei, 3 * radius)
    return signal, ring, np.where((smooth > limit[far]) | (nuclei > 0), far, 0).astype(np.int32)


def measure(well: Well, dna: Image, factor: Image, radius: float) -> Cells:
    """Measure all cells of a well."""
    nuclei, dna_signal = segment_nuclei(dna, radius)
    count = int(nuclei.max())
    if count == 0:
        raise ValueError("no nuclei")
    signal, ring, cells = segment_cells(factor, nuclei, radius)
    index = np.arange(1, count + 1)
    core = np.where(ndi.binary_erosion(nuclei > 0), nuclei, 0)
    with np.errstate(invalid="ignore", divide="ignore"):  # a label without pixels has no mean
        nuclear = np.asarray(ndi.mean(signal, core, index), float)
        cytoplasmic = np.asarray(ndi.mean(signal, ring, index), float)
    ring_area = np.bincount(ring.ravel(), minlength=count + 1)[1:]
    area, y, x, elongation = shapes(nuclei)
    brightness = label_medians(dna_signal, nuclei)[1:]
    measurable = (ring_area >= SMALLEST_RING) & (cytoplasmic > 1.0) & (nuclear > 0)
    alive = brightness < DEAD_BRIGHTNESS * np.median(brightness)
    kept = measurable & alive
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = nuclear / cytoplasmic
    inlying = within_spread(ratios, kept)
    rejected = {
        "no cytoplasm in reach": int((~measurable).sum()),
        "condensed chromatin": int((measurable & ~alive).sum()),
        "ratio far off the well's cells": int((kept & ~inlying).sum()),
    }
    return Cells(
        well,
        nuclear,
        cytoplasmic,
        area,
        np.bincount(cells.ravel(), minlength=count + 1)[1:].astype(float),
        elongation,
        y,
        x,
        kept & inlying,
        rejected,
    )


def shapes(labels: Labels) -> tuple[Array, Array, Array, Array]:
    """Return area, centre (y, x) and axis ratio of the ellipse with the same second moments, of each label."""
    rows, columns = np.nonzero(labels)
    owner = labels[rows, columns] - 1
    area = np.bincount(owner).astype(float)
    y, x = np.bincount(owner, rows) / area, np.bincount(owner, columns) / area
    dy, dx = rows - y[owner], columns - x[owner]
    vy, vx = np.bincount(owner, dy * dy) / area + 1 / 12, np.bincount(owner, dx * dx) / area + 1 / 12
    root = np.sqrt((vy - vx) ** 2 / 4 + (np.bincount(owner, dy * dx) / area) ** 2)
    return area, y, x, np.sqrt(((vy + vx) / 2 + root) / ((vy + vx) / 2 - root))


def within_spread(values: Array, among: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Mark values that lie within :data:`OUTLIER` robust standard deviations of the median of some of them."""
    if not among.any():
        return among
    middle = float(np.median(values[among]))
    spread = 1.4826 * float(np.median(np.abs(values[among] - middle)))
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(values - middle) <= OUTLIER * max(spread, 1e-6), bool)


# --- tables ---------------------------------------------------------------------------------------------------------


def write_tables(job: Job, wells: Sequence[Well], measured: Sequence[Cells]) -> None:
    """Write the table of cells and, computed from it, the table of wells."""
    cells_path = job.output_dir / "per_cell_features.csv"
    columns = ["well", "cell_type", "dose", "nuc_intensity", "cyto_intensity", "nuc_over_cyto_ratio"]
    columns += ["nucleus_area_px", "cell_area_px", "nucleus_axis_ratio", "y", "x"]
    rows: list[Sequence[object]] = []
    ratios: dict[str, list[float]] = {}
    for cells in measured:
        for k in np.flatnonzero(cells.kept):
            nuclear, cytoplasmic = round(float(cells.nuclear[k]), 4), round(float(cells.cytoplasmic[k]), 4)
            ratio = nuclear / cytoplasmic
            ratios.setdefault(cells.well.name, []).append(ratio)
            shape = (cells.nucleus_area[k], cells.cell_area[k], cells.elongation[k], cells.y[k], cells.x[k])
            rows.append((cells.well.name, cells.well.line, cells.well.dose, nuclear, cytoplasmic, ratio, *shape))
    write_table(cells_path, columns, rows, delimiter=",")
    summary: list[Sequence[object]] = []
    for well in wells:
        own = np.array(ratios.get(well.name, []))
        mean = repr(round(float(own.mean()), 6)) if own.size else ""
        spread = repr(round(float(own.std(ddof=1)), 6)) if own.size > 1 else ""
        summary.append((well.name, well.line, f"{well.dose:g}", mean, spread, own.size))
    write_table(
        job.output_dir / "per_well_summary.csv",
        ["well", "cell_type", "dose", "mean_nuc_over_cyto_ratio", "sd_of_cells", "cells"],
        summary,
        delimiter=",",
    )


@dataclass(frozen=True)
class Row:
    """A row of the delivered table of wells; the ratio of a well without cells is NaN."""

    well: str
    line: str
    dose: float
    ratio: float
    cells: int


def read_wells(path: Path) -> list[Row]:
    """Read the delivered table back."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Row(
                row["well"],
                row["cell_type"],
                float(row["dose"]),
                float(row["mean_nuc_over_cyto_ratio"] or "nan"),
                int(row["cells"]),
            )
            for row in csv.DictReader(file)
        ]


# --- statistics -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """One cell line: ratios of its wells by dose, ascending, and a fitted sigmoid where one could be fitted."""

    line: str
    doses: list[float]
    groups: list[Array]
    fit: Array | None  # bottom, top, log EC50, slope
    ec50_error: float | None

    @classmethod
    def of(cls, line: str, rows: Sequence[Row]) -> Curve:
        found: dict[float, list[float]] = {}
        for row in rows:
            if row.line == line and math.isfinite(row.ratio):
                found.setdefault(row.dose, []).append(row.ratio)
        doses = sorted(found)
        groups = [np.array(found[dose]) for dose in doses]
        return cls(line, doses, groups, *_fit(doses, groups))

    @property
    def means(self) -> Array:
        return np.array([group.mean() for group in self.groups])

    @property
    def deviations(self) -> Array:
        return np.array([group.std(ddof=1) if group.size > 1 else 0.0 for group in self.groups])

    def dunnett(self) -> Array:
        """Return p-values of each dose above the lowest against it (Dunnett, wells as units); NaN where impossible."""
        if len(self.groups) < 2 or min(group.size for group in self.groups) < 2:
            return np.full(max(0, len(self.groups) - 1), np.nan)
        result = stats.dunnett(*self.groups[1:], control=self.groups[0], random_state=np.random.default_rng(0))
        return np.asarray(result.pvalue, float)

    def kruskal(self) -> tuple[float, float] | None:
        """Return H and p of the Kruskal-Wallis test over doses."""
        if len(self.groups) < 2 or min(group.size for group in self.groups) < 2:
            return None
        result = stats.kruskal(*self.groups)
        return float(result.statistic), float(result.pvalue)


def sigmoid(dose: Array, bottom: float, top: float, middle: float, slope: float) -> Array:
    """Four-parameter logistic curve over log10 of the dose."""
    return np.asarray(bottom + (top - bottom) / (1.0 + 10.0 ** (slope * (middle - dose))))


def _fit(doses: list[float], groups: list[Array]) -> tuple[Array | None, float | None]:
    known = [k for k, dose in enumerate(doses) if math.isfinite(dose)]
    x = np.concatenate([np.full(groups[k].size, doses[k]) for k in known]) if known else np.zeros(0)
    y = np.concatenate([groups[k] for k in known]) if known else np.zeros(0)
    if len(known) < 5:
        return None, None
    start = (float(groups[known[0]].mean()), float(groups[known[-1]].mean()), float(np.median(x)), 1.0)
    bounds = ([0.0, 0.0, float(x.min()), 0.2], [np.inf, np.inf, float(x.max()), 5.0])
    try:
        fit, covariance = optimize.curve_fit(sigmoid, x, y, p0=start, bounds=bounds)
    except (RuntimeError, ValueError):
        return None, None
    return np.asarray(fit, float), float(np.sqrt(covariance[2, 2]))


def stars(p: float) -> str:
    """Return the usual marks of significance."""
    return "" if not p < 0.05 else "*" if p >= 0.01 else "**" if p >= 0.001 else "***"


def _lines(rows: Sequence[Row]) -> list[str]:
    return sorted({row.line for row in rows})


# --- figures --------------------------------------------------------------------------------------------------------


def _places(doses: Sequence[float]) -> Array:
    """Where doses stand on a logarithmic axis: the lowest, if far from the next, closer to it and apart."""
    places = np.array(doses, float)
    if len(places) > 2 and places[1] - places[0] > 1.5 * np.median(np.diff(places[1:])):
        places[0] = places[1] - 1.0
    return places


def draw_curves(job: Job, rows: Sequence[Row]) -> None:
    """Plot dose-response curves with single wells, and the plate."""
    figure = figures.new_figure(180, 75)
    lines = _lines(rows)
    axes = figure.subplots(1, len(lines) + 1, width_ratios=[*[1.0] * len(lines), 1.15])
    for axis, line, colour in zip(axes[: len(lines)], lines, figures.COLOURS, strict=False):
        curve, shade = Curve.of(line, rows), figures.hexadecimal(colour)
        places = _places(curve.doses)
        for place, group in zip(places, curve.groups, strict=True):
            axis.plot(np.full(group.size, place), group, ".", color=shade, alpha=0.4, markersize=4)
        axis.errorbar(places, curve.means, curve.deviations, fmt="o", color=shade, markersize=4, capsize=2)
        if curve.fit is not None:
            x = np.linspace(places[1], places[-1], 200)
            axis.plot(x, sigmoid(x, *curve.fit), color="black", linewidth=1)
        for place, mean, spread, p in zip(
            places[1:], curve.means[1:], curve.deviations[1:], curve.dunnett(), strict=True
        ):
            axis.text(place, mean + spread + 0.02, stars(p), ha="center", va="bottom", fontsize=6)
        step = 1 + (len(places) - 2) // 5
        shown = [0, *range(len(places) - 1, 0, -step)]
        axis.set_xticks(places[shown], [f"{curve.doses[k]:.3g}" for k in shown])
        axis.set_xlabel("log10 dose of the plate map")
        axis.set_ylabel("nuclear / cytoplasmic intensity")
        axis.set_title(f"{line} (mean ± SD of wells)")
    _draw_plate(axes[-1], rows, figure)
    figures.panel_letters(axes)
    figures.save_figure(figure, job.output_dir / "figures", "dose_response")


def _draw_plate(axis: Any, rows: Sequence[Row], figure: Any) -> None:
    letters = sorted({row.well[0] for row in rows})
    columns = sorted({int(row.well[1:]) for row in rows})
    grid = np.full((len(letters), len(columns)), np.nan)
    for row in rows:
        grid[letters.index(row.well[0]), columns.index(int(row.well[1:]))] = row.ratio
    picture = axis.imshow(grid, cmap="viridis", aspect="equal")
    axis.set_xticks(range(len(columns)), columns, fontsize=6)
    axis.set_yticks(range(len(letters)), letters)
    axis.set_title("plate")
    figure.colorbar(picture, ax=axis, label="ratio", shrink=0.7)


def draw_shapes(job: Job, measured: Sequence[Cells]) -> None:
    """Plot nuclear and cell morphology against the dose, one value per well."""
    figure = figures.new_figure(180, 62)
    axes = figure.subplots(1, 3)
    kinds = (
        ("nucleus_area", "nucleus area (px²)"),
        ("cell_area", "cell area (px²)"),
        ("elongation", "nuclear axis ratio"),
    )
    for axis, (name, label) in zip(axes, kinds, strict=True):
        for line, colour in zip(sorted({cells.well.line for cells in measured}), figures.COLOURS, strict=False):
            own = [cells for cells in measured if cells.well.line == line and cells.kept.any()]
            doses = sorted({cells.well.dose for cells in own})
            groups = [[float(np.mean(getattr(c, name)[c.kept])) for c in own if c.well.dose == dose] for dose in doses]
            means = [float(np.mean(group)) for group in groups]
            spread = [float(np.std(group, ddof=1)) if len(group) > 1 else 0.0 for group in groups]
            axis.errorbar(
                _places(doses), means, spread, fmt="o-", color=figures.hexadecimal(colour), markersize=3, label=line
            )
        axis.set_xlabel("log10 dose")
        axis.set_ylabel(f"{label}, mean ± SD of wells")
        axis.legend(frameon=False)
    figures.panel_letters(axes)
    figures.save_figure(figure, job.output_dir / "figures", "morphology")


def draw_panels(
    job: Job, files: dict[str, dict[int, Path]], rows: Sequence[Row], channels: tuple[int, int], radius: float
) -> None:
    """Show a well without and one with the highest dose per line: nuclei, cells and rings, and both merged."""
    for line in _lines(rows):
        own = [row for row in rows if row.line == line and math.isfinite(row.ratio)]
        doses = sorted({row.dose for row in own})
        if len(doses) < 2:
            continue
        chosen = []
        for dose in (doses[0], doses[-1]):
            group = [row for row in own if row.dose == dose]
            middle = float(np.median([row.ratio for row in group]))
            chosen.append(min(group, key=lambda row: abs(row.ratio - middle)))
        pairs = [[load(files[row.well][channel]) for channel in channels] for row in chosen]
        tops = [max(float(np.percentile(pair[k], 99.7)) for pair in pairs) for k in range(2)]
        figure = figures.new_figure(180, 95)
        axes = figure.subplots(2, 3)
        for line_axes, row, pair in zip(axes, chosen, pairs, strict=True):
            nuclei, _ = segment_nuclei(pair[0], radius)
            _, ring, cells = segment_cells(pair[1], nuclei, radius)
            dna, factor = (_display(image, top) for image, top in zip(pair, tops, strict=True))
            grey = [np.repeat(image[..., None], 3, axis=2) for image in (dna, factor)]
            merged = np.stack([np.zeros_like(dna), factor, dna], axis=-1)
            scale = figures.Scale()
            figures.show_image(
                line_axes[0],
                figures.draw_outlines(grey[0], [(nuclei, figures.YELLOW)], 3),
                _zoomed(scale),
                f"{row.well}, dose {row.dose:g}: nuclei",
            )
            drawn = figures.draw_outlines(grey[1], [(cells, figures.SKY), (ring, figures.VERMILION)], 3)
            figures.show_image(line_axes[1], drawn, _zoomed(scale), f"cells and rings, ratio {row.ratio:.2f}")
            figures.show_image(line_axes[2], figures.draw_outlines(merged, [], 3), _zoomed(scale), "merged")
        name = re.sub(r"[^A-Za-z0-9]+", "_", line)
        figures.save_figure(figure, job.output_dir / "figures", f"panels_{name}")


def _display(image: Image, top: float) -> npt.NDArray[np.uint8]:
    low = float(np.percentile(image, 1))
    return np.asarray(255 * np.clip((image - low) / max(top - low, 1.0), 0, 1), np.uint8)


@dataclass(frozen=True)
class _Zoomed(figures.Scale):
    """Pixels of an image that is shown enlarged."""

    zoom: int = 3

    def bar(self, width_px: int) -> tuple[float, str]:
        pixels, label = super().bar(width_px // self.zoom)
        return pixels * self.zoom, label


def _zoomed(scale: figures.Scale) -> _Zoomed:
    return _Zoomed(scale.pixel_um)


# --- report ---------------------------------------------------------------------------------------------------------


def write_report(
    job: Job,
    rows: Sequence[Row],
    measured: Sequence[Cells],
    wells: Sequence[Well],
    source: str,
    shares: dict[int, float],
    nuclear_channel: int,
    radius: float,
) -> None:
    """Write the report; ratios, counts and tests are computed from the delivered table of wells."""
    report = Report("Translocation of the factor into the nucleus against the dose")
    report.section(
        "Question",
        "Does the factor move from cytoplasm to nucleus with the dose, from which dose on, and do the cell lines "
        "differ?",
    )
    scored = [row for row in rows if math.isfinite(row.ratio)]
    total = sum(row.cells for row in rows)
    report.section("Result", f"{total} cells in {len(scored)} of {len(rows)} wells.")
    table = []
    for line in _lines(rows):
        curve = Curve.of(line, rows)
        p = curve.dunnett()
        first = next((dose for dose, value in zip(curve.doses[1:], p, strict=True) if value < 0.05), None)
        rho = stats.spearmanr(np.arange(len(curve.doses)), curve.means) if len(curve.doses) > 2 else None
        test = curve.kruskal()
        table.append(
            (
                line,
                f"{curve.means[0]:.3f} ± {curve.deviations[0]:.3f} (n = {curve.groups[0].size})",
                f"{curve.means[-1]:.3f} ± {curve.deviations[-1]:.3f} (n = {curve.groups[-1].size})",
                f"{curve.means[-1] / curve.means[0]:.2f}",
                "–" if curve.fit is None else f"{curve.fit[2]:.2f} ± {curve.ec50_error or 0:.2f}",
                "–" if first is None else f"{first:g}",
                f"{p[-1]:.2g}" if p.size and np.isfinite(p[-1]) else "–",
                "–" if rho is None else f"{rho.statistic:.3f}",
                "–" if test is None else f"H = {test[0]:.1f}, p = {test[1]:.2g}",
            )
        )
    report.table(
        [
            *("cell line", "ratio at the lowest dose", "at the highest dose", "fold change", "log10 EC50 ± SE"),
            *("lowest dose with p < 0.05", "p, highest against lowest", "Spearman r, dose and mean", "Kruskal-Wallis"),
        ],
        table,
    )
    report.text(
        "Ratios are mean ± SD over wells. p-values are Dunnett's, two-sided, each dose against the lowest one, with "
        "the "
        "well as unit; they are corrected for the number of doses.",
        "Cells per well: " + Summary.of(row.cells for row in rows).text() + " wells.",
        "Curves: `figures/dose_response`; shape of nuclei and cells: `figures/morphology`; outlines: "
        "`figures/panels_*`.",
    )
    report.section("Method")
    channels = ", ".join(f"channel {channel}: {100 * share:.1f} %" for channel, share in shares.items())
    report.bullets(
        f"Plate: doses and cell lines from `{source}`, joined by well; the lowest dose of the map is taken as "
        "untreated.",
        f"Channels: the one that covers less of the field shows nuclei ({channels}); channel {nuclear_channel} here.",
        "Background: mean of object-free pixels, smoothed, for each image and channel; removes offset, haze and lamp.",
        f"Nuclei: typical radius {radius:.1f} px (scale-normalised Laplacian over the plate); threshold and local "
        "mean, "
        "parted at waists, outline at half height; the rim of one pixel is not "
        "measured.",
        f"Cytoplasm: ring from {GAP:g} to {GAP + RING:g} nuclear radii outside the nucleus, never into another cell's, "
        "and "
        f"only where the stain reaches {RING_SHARE:g} of its level next to the nucleus.",
        "Ratio: mean in the nucleus over mean in the ring, per cell; the well's value is the mean over its cells.",
        f"Left out: nuclei brighter than {DEAD_BRIGHTNESS:g} times the image's median (condensed chromatin), rings "
        "below "
        f"{SMALLEST_RING} px, and cells whose ratio lies more than {OUTLIER:g} robust SD from the well's median.",
    )
    report.section("Quality control")
    report.failures(job.failures, len(wells), "wells")
    reasons: dict[str, int] = {}
    for cells in measured:
        for reason, count in cells.rejected.items():
            reasons[reason] = reasons.get(reason, 0) + count
    report.text("Cells left out: " + "; ".join(f"{reason}: {count}" for reason, count in reasons.items()) + ".")
    few = [row.well for row in rows if row.cells < 10]
    report.text(f"Wells with fewer than ten cells: {', '.join(few) if few else 'none'}.")
    report.section("Caveats")
    report.bullets(
        "In wide field the light of cytoplasm above and below the nucleus adds to the nuclear signal, so that the "
        "ratio "
        "understates how far the factor is excluded or concentrated.",
        "A ring next to the nucleus samples thicker cytoplasm than the cell's edge; the same rule holds for all wells.",
        f"The plate holds {min((len(g) for line in _lines(rows) for g in Curve.of(line, rows).groups), default=0)} or "
        "more "
        "wells per dose and line from one experiment: tests speak about this plate.",
        "The pixel size is not known; areas are in pixels.",
    )
    report.write(job.output_dir / "report.md")
    job.log(f"median ratio {number(float(np.median([row.ratio for row in scored])))}" if scored else "no ratios")
