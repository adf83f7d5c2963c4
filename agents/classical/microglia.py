"""Find and classify cells in a label-free phase-contrast series, and follow how their types shift over time.

Cells are the bright and the dark spots of the size of a cell body; what is narrower, such as a branch, hardly answers.
Phenotypes follow from two measurements: the brightness of the body (rounded cells shine) and the amount of thin dark
structure around it (branches). Both are smoothed along tracks; thresholds are set on the distributions of the whole
series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import ndimage as ndi
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from skimage.measure import regionprops
from skimage.morphology import disk
from skimage.segmentation import watershed

from . import _figures as figures
from ._io import as_grey, list_images, pixel_size_um, read_image, write_table
from ._job import Job, parse_pixel_size_um
from ._report import Report, Summary
from ._segment import background_surface, noise_sigma, otsu

Array = npt.NDArray[np.float64]
Image = npt.NDArray[np.float32]

BODY_UM = 5.0  # radius of a cell body
DEFAULT_PIXEL_UM = 0.65  # of a common camera behind a 20x objective, where neither text nor file tells
SMOOTHING = 2  # frames to either side over which features of a track are averaged
NOISE = 2.0  # a cell deviates from the background by at least so many SD of the detector between cells
SHARE = 0.38  # and by this share of what a typical dark cell does
LINK = 1.5  # longest step between frames, in body radii
CLASSES = ("round", "amoeboid", "ramified")
COLOURS = {"round": figures.BLUE, "amoeboid": figures.GREEN, "ramified": figures.VERMILION}
MEASURES = ("area", "perimeter", "circularity", "solidity", "aspect_ratio", "perimeter_area_ratio")


@dataclass
class Frame:
    """Cells of one frame: places, strength of detection, features, and shape measures in µm."""

    number: int
    path: Path
    y: Array
    x: Array
    strength: Array
    brightness: Array  # of the body, relative to the background
    branches: Array  # length of thin dark structure, in body radii
    shapes: Array  # (n, 6), the order of MEASURES
    noise: float

    def keep(self, chosen: npt.NDArray[np.bool_]) -> Frame:
        """Return some of the cells."""
        names = ("y", "x", "strength", "brightness", "branches", "shapes")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})


def run(job: Job) -> None:
    """Measure all frames, choose thresholds, write the table, then figures and report."""
    paths = ordered_frames(job.input_dir)
    pixel = parse_pixel_size_um(job.instruction) or next((pixel_size_um(path) for path in paths[:1]), None)
    radius = BODY_UM / (pixel or DEFAULT_PIXEL_UM)
    job.log(f"{len(paths)} frames, body radius {radius:.1f} px")
    frames = []
    for number, path in paths_with_numbers(paths):
        with job.attempt(path.name):
            frames.append(measure(number, path, radius, pixel or 1.0))
    if not frames:
        return
    limit = strength_limit(frames)
    cells = [frame.keep(frame.strength >= limit) for frame in frames]
    tracks = link(cells, LINK * radius)
    brightness, branches = smoothed(cells, tracks)
    thresholds = choose_thresholds(brightness, branches)
    labels = classify(brightness, branches, thresholds)
    table = job.output_dir / "cell_labels.csv"
    write_cells(table, cells, labels, tracks)
    job.delivered = 1
    job.log(f"{sum(len(frame.y) for frame in cells)} cells in {len(cells)} frames")
    rows = read_cells(table)
    scale = figures.Scale(pixel)
    with job.attempt("overlays"):
        draw_overlays(job, cells, rows, radius, scale)
    with job.attempt("figures"):
        draw_figures(job, rows, np.concatenate(brightness), np.concatenate(branches), thresholds, scale)
    write_report(job, paths, cells, rows, radius, limit, thresholds, scale)


# --- analysis ---------------------------------------------------------------------------------------------------------


def ordered_frames(folder: Path) -> list[Path]:
    """Return the images of the series: in the order of a list beside them, if there is one, else in natural order."""
    images = list_images(folder)
    for listing in sorted(folder.rglob("*list*.txt")):
        names = [line.strip() for line in listing.read_text(encoding="utf-8").splitlines() if line.strip()]
        named = [listing.parent / name for name in names]
        if named and set(named) == set(images):
            return named
    return images


def paths_with_numbers(paths: Sequence[Path]) -> list[tuple[int, Path]]:
    """Return each frame with the number at the end of its name; the place in the series where names have none."""
    numbers = []
    for path in paths:
        digits = path.stem[len(path.stem.rstrip("0123456789")) :]
        numbers.append(int(digits) if digits else -1)
    if len(set(numbers)) != len(numbers) or min(numbers) < 0:
        numbers = list(range(len(paths)))
    return list(zip(numbers, paths, strict=True))


def measure(number: int, path: Path, radius: float, pixel_um: float) -> Frame:
    """Find candidates in one frame and measure them."""
    image = as_grey(read_image(path))
    background = background_surface(image, 14 * radius, 50.0)
    change = (image / np.maximum(background, 1e-6) - 1.0).astype(np.float32)
    noise = noise_sigma(change)
    change -= np.median(change)
    response = ndi.gaussian_filter(change, 0.5 * radius) - ndi.gaussian_filter(change, 1.8 * radius)
    energy = np.abs(response)
    grain = float(np.median(energy)) / 0.6745  # noise, texture of the dish and halos
    peaks = _bodies(response, grain, radius)
    y, x = peaks.T.astype(float) if len(peaks) else (np.zeros(0), np.zeros(0))
    smooth = ndi.gaussian_filter(change, 0.33 * radius)
    markers = np.zeros(image.shape, np.int32)
    markers[tuple(peaks.T)] = np.arange(1, len(peaks) + 1)
    support = np.abs(ndi.gaussian_filter(change, 1.0)) > max(0.07, 2.5 * grain)
    support = ndi.binary_fill_holes(ndi.binary_closing(support, disk(1)))
    reach = ndi.distance_transform_edt(markers == 0) < 4 * radius
    territory = watershed(-energy, markers, mask=reach)
    thin = _thin_dark(change, radius)
    branches = np.zeros(len(peaks))
    shapes = np.full((len(peaks), len(MEASURES)), np.nan)
    brightness = np.zeros(len(peaks))
    boxes = ndi.find_objects(territory, max_label=len(peaks))
    for k, box in enumerate(boxes):
        if box is None:
            continue
        own = territory[box] == k + 1
        rows, columns = np.ogrid[box]
        away = np.hypot(rows - y[k], columns - x[k])
        branches[k] = float(np.sum(own & thin[box] & (away > radius) & (away < 3.5 * radius))) / radius
        inner = own & (away < 1.2 * radius)
        weight = np.where(inner, energy[box] ** 2, 0.0)
        y[k], x[k] = (float((weight * axis).sum() / weight.sum()) for axis in (rows, columns))
        brightness[k] = smooth[min(round(y[k]), image.shape[0] - 1), min(round(x[k]), image.shape[1] - 1)]
        shapes[k] = _shape(own & support[box], pixel_um)
    return Frame(number, path, y, x, energy[tuple(peaks.T)] / grain, brightness, branches, shapes, noise)


def _bodies(response: Image, grain: float, radius: float) -> npt.NDArray[np.int64]:
    """Return bright and dark bodies as (y, x); a dark spot at the rim of a bright body is that body's own rim."""
    window = disk(round(0.75 * radius))
    bright = np.argwhere((response == ndi.maximum_filter(response, footprint=window)) & (response > 3.0 * grain))
    dark = np.argwhere((response == ndi.minimum_filter(response, footprint=window)) & (response < -grain))
    if len(bright) and len(dark):
        dark = dark[cdist(dark, bright).min(axis=1) > 1.7 * radius]
    return np.concatenate([bright, dark])


def _thin_dark(change: Image, radius: float) -> npt.NDArray[np.bool_]:
    """Return the pixels of dark lines narrower than a body: what a closing fills."""
    smooth = ndi.gaussian_filter(change, 0.8)
    closed = ndi.grey_closing(smooth, footprint=disk(max(2, round(0.45 * radius))))
    hat = closed - smooth
    level = 6.0 * np.median(np.abs(hat - np.median(hat))) / 0.6745
    return np.asarray(hat > max(0.06, np.median(hat) + 0.7 * level))


def _shape(mask: npt.NDArray[np.bool_], pixel_um: float) -> Array:
    """Return the shape measures of the largest piece of a mask."""
    pieces, count = ndi.label(mask)
    if count == 0:
        return np.full(len(MEASURES), np.nan)
    region = max(regionprops(pieces), key=lambda part: part.area)
    area = float(region.area) * pixel_um**2
    perimeter = max(float(region.perimeter_crofton) * pixel_um, 1e-9)
    minor = max(float(region.axis_minor_length), 1.0)
    return np.array(
        [
            area,
            perimeter,
            min(1.0, 4 * np.pi * area / perimeter**2),
            float(region.solidity),
            max(float(region.axis_major_length), minor) / minor,
            perimeter / area,
        ]
    )


def strength_limit(frames: Sequence[Frame]) -> float:
    """Return how much a cell must deviate: a share of what the typical dark cell does, above the level of the dish."""
    dark = np.concatenate([frame.strength[frame.brightness < 0] for frame in frames])
    typical = dark[dark > otsu(dark, default=0.0)]
    return max(NOISE, SHARE * float(np.median(typical))) if typical.size else NOISE


def link(frames: Sequence[Frame], longest: float) -> list[npt.NDArray[np.int64]]:
    """Link cells of neighbouring frames one to one, nearest in all; return the track of each cell per frame."""
    tracks: list[npt.NDArray[np.int64]] = []
    count = 0
    for number, frame in enumerate(frames):
        own = np.full(len(frame.y), -1, np.int64)
        if number and len(frame.y) and len(frames[number - 1].y):
            before = frames[number - 1]
            cost = cdist(np.column_stack([before.y, before.x]), np.column_stack([frame.y, frame.x]))
            cost = np.minimum(cost, 2 * longest)
            for one, two in zip(*linear_sum_assignment(cost), strict=True):
                if cost[one, two] < longest:
                    own[two] = tracks[-1][one]
        new = own < 0
        own[new] = count + np.arange(new.sum())
        count += int(new.sum())
        tracks.append(own)
    return tracks


def smoothed(frames: Sequence[Frame], tracks: Sequence[npt.NDArray[np.int64]]) -> tuple[list[Array], list[Array]]:
    """Return brightness and branches of each cell per frame: the median over some frames of its track."""
    series: dict[int, list[tuple[int, float, float]]] = {}
    for number, (frame, own) in enumerate(zip(frames, tracks, strict=True)):
        for track, bright, thin in zip(own.tolist(), frame.brightness.tolist(), frame.branches.tolist(), strict=True):
            series.setdefault(track, []).append((number, bright, thin))
    brightness, branches = [frame.brightness.copy() for frame in frames], [frame.branches.copy() for frame in frames]
    for number, own in enumerate(tracks):
        for k, track in enumerate(own.tolist()):
            near = [entry for entry in series[track] if abs(entry[0] - number) <= 1]
            brightness[number][k] = np.median([entry[1] for entry in near])
            near = [entry for entry in series[track] if abs(entry[0] - number) <= SMOOTHING]
            branches[number][k] = np.median([entry[2] for entry in near])
    return brightness, branches


def choose_thresholds(brightness: Sequence[Array], branches: Sequence[Array]) -> tuple[float, float]:
    """Return the brightness above which a body is round, and the branches above which others are ramified (Otsu)."""
    bright, thin = np.concatenate(brightness), np.concatenate(branches)
    limit = otsu(bright, default=0.1)
    others = np.log1p(thin[bright <= limit])
    return limit, float(np.expm1(otsu(others, default=1.0)))


def classify(
    brightness: Sequence[Array], branches: Sequence[Array], thresholds: tuple[float, float]
) -> list[npt.NDArray[np.str_]]:
    """Return the phenotype of each cell per frame."""
    return [
        np.where(bright > thresholds[0], "round", np.where(thin > thresholds[1], "ramified", "amoeboid"))
        for bright, thin in zip(brightness, branches, strict=True)
    ]


# --- output -----------------------------------------------------------------------------------------------------------


def write_cells(
    path: Path,
    frames: Sequence[Frame],
    labels: Sequence[npt.NDArray[np.str_]],
    tracks: Sequence[npt.NDArray[np.int64]],
) -> None:
    """Write the table, one row per cell and frame."""
    rows = []
    for frame, own, track in zip(frames, labels, tracks, strict=True):
        for k in np.lexsort((frame.x, frame.y)).tolist():
            place = (f"{frame.x[k]:.2f}", f"{frame.y[k]:.2f}")
            rows.append(
                (frame.number, *place, str(own[k]), 0.5 * frame.number, int(track[k]), *frame.shapes[k].tolist())
            )
    columns = ["frame", "x", "y", "phenotype", "time_h", "track", *MEASURES]
    write_table(path, columns, rows, delimiter=",")


@dataclass(frozen=True)
class Rows:
    """The delivered table, read back."""

    frame: npt.NDArray[np.int64]
    x: Array
    y: Array
    label: npt.NDArray[np.str_]
    time: Array
    shapes: Array


def read_cells(path: Path) -> Rows:
    """Read the delivered table."""
    lines = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    return Rows(
        np.array([int(line[0]) for line in lines]),
        np.array([float(line[1]) for line in lines]),
        np.array([float(line[2]) for line in lines]),
        np.array([line[3] for line in lines]),
        np.array([float(line[4]) for line in lines]),
        np.array([[float(cell) for cell in line[6:]] for line in lines]),
    )


def draw_overlays(job: Job, frames: Sequence[Frame], rows: Rows, radius: float, scale: figures.Scale) -> None:
    """Draw the delivered cells over the first, two middle and the last frame."""
    chosen = sorted({round(share * (len(frames) - 1)) for share in (0.0, 1 / 3, 2 / 3, 1.0)})
    zoom = 2 if read_image(frames[0].path).shape[1] < 700 else 1
    legend = tuple((name, COLOURS[name]) for name in CLASSES)
    for k in chosen:
        frame = frames[k]
        rgb = figures.to_rgb(as_grey(read_image(frame.path)))
        rgb = rgb.repeat(zoom, axis=0).repeat(zoom, axis=1)
        here = rows.frame == frame.number
        circles = [
            (y, x, 1.3 * radius, COLOURS[label])
            for y, x, label in zip(rows.y[here].tolist(), rows.x[here].tolist(), rows.label[here].tolist(), strict=True)
        ]
        picture = figures.annotate(rgb, scale, zoom, legend, circles=circles)
        figures.save_overlay(picture, job.output_dir / "overlays" / f"{frame.path.stem}_cells.png")


def shares(rows: Rows) -> tuple[Array, Array]:
    """Return times and class proportions, ``(times, classes)``."""
    times = np.unique(rows.time)
    table = np.array([[np.mean(rows.label[rows.time == t] == name) for name in CLASSES] for t in times])
    return times, table


def draw_figures(
    job: Job, rows: Rows, bright: Array, thin: Array, thresholds: tuple[float, float], scale: figures.Scale
) -> None:
    """Plot proportions over time, the two deciding features, and shapes by class."""
    colours = [figures.hexadecimal(COLOURS[name]) for name in CLASSES]
    figure = figures.new_figure(180, 60)
    axes = figure.subplots(1, 3)
    times, table = shares(rows)
    axes[0].stackplot(times, table.T, labels=CLASSES, colors=colours, alpha=0.85)
    axes[0].set(xlabel="time (h)", ylabel="share of cells", ylim=(0, 1), xlim=(times.min(), max(times.max(), 1e-3)))
    axes[0].legend(loc="lower left")
    counts = [np.sum(rows.time == t) for t in times]
    axes[1].plot(times, counts, color="black")
    axes[1].set(xlabel="time (h)", ylabel="cells per frame", ylim=(0, None))
    for name, colour in zip(CLASSES, colours, strict=True):
        order = np.lexsort((rows.x, rows.y, rows.frame))
        own = rows.label[order] == name
        if len(own) == len(bright):
            axes[2].plot(np.nan, np.nan, ".", color=colour, label=f"{name} (n = {int(own.sum())})")
    axes[2].scatter(bright, thin, s=1, color="0.5", rasterized=True)
    axes[2].axvline(thresholds[0], color="black", linestyle="--", linewidth=0.8)
    axes[2].axhline(thresholds[1], color="black", linestyle="--", linewidth=0.8)
    axes[2].set(xlabel="brightness of the body (relative)", ylabel="branches (body radii)")
    axes[2].legend(frameon=False)
    figures.panel_letters(axes)
    figures.save_figure(figure, job.output_dir / "figures", "phenotypes_over_time")
    figure = figures.new_figure(180, 60)
    axes = figure.subplots(1, 4)
    units = (f"area ({scale.area_unit})", "circularity", "solidity", "aspect ratio")
    for axis, column, unit in zip(axes, (0, 2, 3, 4), units, strict=True):
        groups = [rows.shapes[rows.label == name, column] for name in CLASSES]
        groups = [group[np.isfinite(group)] for group in groups]
        box = axis.boxplot(groups, showfliers=False, patch_artist=True, widths=0.6)
        for patch, colour in zip(box["boxes"], colours, strict=True):
            patch.set_facecolor(colour)
        names = [f"{name}\nn = {len(group)}" for name, group in zip(CLASSES, groups, strict=True)]
        axis.set_xticks(range(1, len(CLASSES) + 1), names, fontsize=5)
        axis.set_ylabel(unit)
    figures.panel_letters(axes)
    figures.save_figure(figure, job.output_dir / "figures", "shape_by_phenotype")


def write_report(
    job: Job,
    paths: Sequence[Path],
    frames: Sequence[Frame],
    rows: Rows,
    radius: float,
    limit: float,
    thresholds: tuple[float, float],
    scale: figures.Scale,
) -> None:
    """Write the report; every number of a result is read from the delivered table."""
    times, table = shares(rows)
    report = Report("Microglia phenotypes over time")
    report.section(
        "Question",
        "Where is every cell in every frame of this label-free series, is it round, amoeboid or ramified, and how do "
        "the proportions of the three types shift over time?",
    )
    report.section(
        "Result",
        f"{len(rows.frame)} cells in {len(times)} of {len(paths)} frames; cells per frame "
        f"{Summary.of(float(np.sum(rows.time == t)) for t in times).text()}.",
    )
    picked = sorted({round(share * (len(times) - 1)) for share in (0.0, 1 / 3, 2 / 3, 1.0)})
    report.table(
        ["time (h)", "cells", *CLASSES],
        [(f"{times[k]:g}", int(np.sum(rows.time == times[k])), *map(float, table[k])) for k in picked],
    )
    report.text("Shape by phenotype (cells of all frames; the same cell counts in each of its frames):")
    shape_rows = []
    for name in CLASSES:
        own = rows.shapes[rows.label == name]
        median = np.nanmedian(own, axis=0) if len(own) else np.full(len(MEASURES), np.nan)
        shape_rows.append((name, len(own), *map(float, median)))
    report.table(["phenotype", "n", *(f"{name} (median)" for name in MEASURES)], shape_rows)
    report.text(f"Area in {scale.area_unit}, perimeter in {scale.unit}.")
    report.section("Method")
    report.bullets(
        "Background: running median in windows of 14 body radii; the image is divided by it, so that uneven light and "
        "flicker drop out.",
        f"Detection: difference of Gaussians of 0.5 and 1.8 body radii (body radius {radius:.1f} px = {BODY_UM:g} µm), "
        f"its bright and dark extremes of at least {limit:.1f} SD of the response between cells ({SHARE:g} of a "
        "typical dark cell's). A dark spot within 1.7 body radii of a bright body is its rim.",
        "Place: centre of the response within 1.2 body radii.",
        "Branches: pixels of dark lines narrower than a body (black top hat) from 1 to 3.5 body radii around the "
        "centre, in the cell's own watershed territory, divided by the body radius.",
        f"Links: nearest neighbours in all, up to {LINK:g} body radii per frame. Brightness is the median over 3, "
        f"branches over {2 * SMOOTHING + 1} frames of a track.",
        f"Classes: round where the body is brighter than {thresholds[0]:+.2f} relative to the background (Otsu over "
        f"the series); else ramified with branches above {thresholds[1]:.1f} (Otsu on the logarithm); else amoeboid.",
    )
    report.section("Quality control")
    report.failures(job.failures, len(paths), "frames")
    steps = np.abs(np.diff(table, axis=0)).max(axis=1) if len(table) > 1 else np.zeros(1)
    report.text(f"Largest change of a proportion between neighbouring frames: {steps.max():.2f}.")
    report.section("Caveats")
    report.bullets(
        "No labelled examples were given: thresholds divide this series, not microglia in general. Cells in transition "
        "are assigned to one side.",
        "One series, one condition, no control: proportions are described and not tested. Rows of the same cell in "
        "several frames are not independent.",
        "Frames are taken to be half an hour apart.",
    )
    report.section(
        "Files",
        "`cell_labels.csv`: all cells. `overlays/`: cells over frames. `figures/`: proportions, features, shapes.",
    )
    report.write(job.output_dir / "report.md")
