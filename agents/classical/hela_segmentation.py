"""Outline the nucleus and the whole body of every cell in two-channel fluorescence fields, with one number for both.

Nuclei are compact and bright in their own channel, so they are found first; each one then claims its cell body in the
actin channel along the cheapest path, where crossing a cell edge is dear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import ndimage as ndi
from scipy import stats
from skimage.graph import MCP_Geometric
from skimage.segmentation import watershed

from . import _figures as figures
from ._io import list_images, pixel_size_um, read_image, spread, stem, write_labels, write_table
from ._job import Job, parse_pixel_size_um
from ._report import Report, Summary, mean_interval, number
from ._segment import (
    Image,
    Labels,
    Mask,
    compact_objects,
    flat_background,
    half_height,
    hull_pixels,
    local_floor,
    merge_convex,
    noise_sigma,
    object_radius,
    opened,
    otsu,
    region_outlines,
    steepest_fraction,
    tidy,
)

NUCLEUS, ACTIN = 2, 0  # channels of the RGB files, as the request says: DAPI blue, phalloidin red
SAMPLE = 24  # images from which the nuclear size is measured
CALIBRATION = 4  # images on which the outlines' height is chosen
NOISE = 5.0  # Rose criterion, in standard deviations of pixel noise
LOBES = {"solidity": 0.7, "valley": 0.85}  # pieces that touch and together are no larger than a nucleus are its lobes
LARGEST_LOBED = 1.5  # in median nuclear areas
SPECK_AREA = 0.3  # in median nuclear areas; smaller pieces inside the field are debris
FRAGMENT_AREA = 0.5  # up to here, a ragged outline or the lack of a cell body gives a fragment of a dead cell away
RAGGED = 0.9  # solidity
BODILESS = 1.3  # cell area in nuclear areas
EDGE_COST = 0.02  # cost of a pixel without any edge, relative to a strong edge's 1
OVERLAYS = 12


@dataclass(frozen=True)
class Settings:
    """What was measured on the batch."""

    radius: float  # of nuclei, in pixels
    nucleus_fraction: float
    cell_fraction: float
    nucleus_area: float


@dataclass(frozen=True)
class Cells:
    """Measurements of one delivered pair of masks; all arrays are ordered by label."""

    name: str
    label: npt.NDArray[np.int64]
    nucleus_area: npt.NDArray[np.float64]
    cell_area: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    x: npt.NDArray[np.float64]
    dapi: npt.NDArray[np.float64]
    actin: npt.NDArray[np.float64]
    border: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.label)


def run(job: Job) -> None:
    """Calibrate on the batch, write both masks of every image, then table, figures and report."""
    images = list_images(job.input_dir)
    job.log(f"{len(images)} images")
    settings = calibrate(images)
    if settings is None:
        raise ValueError("no image of the sample could be read or holds a nucleus")
    job.log(
        f"nuclear radius {settings.radius:.1f} px; outlines at {settings.nucleus_fraction:g} (nuclei) and "
        f"{settings.cell_fraction:g} (cells) of each object's height"
    )
    done: list[Path] = []
    for path in images:
        with job.attempt(path.name):
            nuclei, cells = segment(two_channels(path), settings)
            write_labels(job.output_dir / "nuclei_masks" / f"{stem(path)}.tif", nuclei)
            write_labels(job.output_dir / "cytoplasm_masks" / f"{stem(path)}.tif", cells)
            done.append(path)
            job.log(f"{path.name}: {int(nuclei.max())} cells")
    job.delivered = len(done)
    scale = figures.Scale(parse_pixel_size_um(job.instruction) or next((pixel_size_um(path) for path in images), None))
    measured = [measure(job.output_dir, path) for path in done]
    write_objects(job, measured, scale)
    with job.attempt("overlays"):
        draw_overlays(job, done, scale)
    with job.attempt("figures"):
        draw_figures(job, done, measured, scale)
    write_report(job, images, measured, settings, scale)


# --- analysis ---------------------------------------------------------------------------------------------------


def two_channels(path: Path) -> tuple[Image, Image]:
    """Return the nuclear and the actin channel of an RGB file."""
    image = read_image(path)
    if image.ndim != 3:
        raise ValueError(f"expected an RGB image, found shape {image.shape}")
    return image[..., NUCLEUS].astype(np.float32), image[..., ACTIN].astype(np.float32)


def bright_signal(channel: Image) -> tuple[Image, float]:
    """Return the smoothed, background-free channel and the lowest brightness of an object in it."""
    noise = max(noise_sigma(channel), 0.5)
    signal = ndi.gaussian_filter(channel - flat_background(channel, min(channel.shape) / 3), 1.0)
    root = np.sqrt(np.clip(signal, 0, None))
    return np.asarray(signal, dtype=np.float32), max(0.5 * otsu(root, 0.0) ** 2, NOISE * noise)


def calibrate(images: Sequence[Path]) -> Settings | None:
    """Measure nuclear size on a sample, and at which height the outlines run along the steepest edges."""
    masks: list[Mask] = []
    readable: list[Path] = []
    for path in spread(images, SAMPLE):
        try:
            signal, floor = bright_signal(two_channels(path)[0])
        except (OSError, ValueError):
            continue  # named when the image's own turn comes
        masks.append(signal > floor)
        readable.append(path)
    radius = object_radius(masks)
    if radius is None:
        return None
    heights: list[tuple[float, float, float]] = []
    for path in spread(readable, CALIBRATION):
        dapi, actin = two_channels(path)
        signal, floor = bright_signal(dapi)
        labels = compact_objects(signal, radius, floor=floor, fraction=0.5)
        if labels.max() == 0:
            continue
        reach = ndi.binary_dilation(labels > 0, iterations=max(1, round(radius / 2)))
        basins = np.asarray(watershed(-signal, labels, mask=reach), dtype=np.int32)
        nuclear = steepest_fraction(labels, np.asarray(signal - local_floor(signal, radius)), basins, 1.0)
        body, body_floor = bright_signal(actin)
        territory = claim(body, labels, body_floor)
        cellular = steepest_fraction(territory, body, territory, 1.0)
        drawn = half_height(labels, np.asarray(signal - local_floor(signal, radius)), basins, nuclear)
        heights.append((nuclear, cellular, float(np.median(np.bincount(drawn.ravel())[1:]))))
    if not heights:
        return None
    nuclear, cellular, area = (float(value) for value in np.median(np.array(heights), axis=0))
    return Settings(radius, nuclear, cellular, area)


def segment(channels: tuple[Image, Image], settings: Settings) -> tuple[Labels, Labels]:
    """Return nuclei and whole cells of one field; the same label is the same cell."""
    signal, floor = bright_signal(channels[0])
    nuclei = compact_objects(signal, settings.radius, floor=floor, fraction=settings.nucleus_fraction)
    root = np.sqrt(np.clip(signal, 0, None))
    nuclei = merge_convex(nuclei, root, max_area=LARGEST_LOBED * settings.nucleus_area, **LOBES)
    nuclei, _ = without_fragments(nuclei, settings.nucleus_area)
    cells = cell_bodies(channels[1], nuclei, settings.cell_fraction)
    return without_fragments(nuclei, settings.nucleus_area, cells)


def without_fragments(nuclei: Labels, typical: float, cells: Labels | None = None) -> tuple[Labels, Labels]:
    """Drop debris: specks, and small pieces that are ragged or, once cells are known, have no body around them.

    What the image border cuts stays. Returns renumbered nuclei and cells (the nuclei again where none are given).
    """
    area = np.bincount(nuclei.ravel()).astype(float)
    size = area.size
    solidity = np.ones(size)
    for label, hull in region_outlines(nuclei).items():
        solidity[label] = area[label] / hull_pixels(hull)
    fragment = (area < FRAGMENT_AREA * typical) & (solidity < RAGGED) | (area < SPECK_AREA * typical)
    if cells is not None:
        body = np.bincount(cells.ravel(), minlength=size)[:size]
        fragment |= (area < FRAGMENT_AREA * typical) & (body < BODILESS * area)
    fragment[np.unique(np.concatenate([nuclei[0], nuclei[-1], nuclei[:, 0], nuclei[:, -1]]))] = False
    keep = ~fragment & (area > 0)
    keep[0] = False
    number = np.where(keep, np.cumsum(keep), 0).astype(np.int32)
    return number[nuclei], number[nuclei if cells is None else cells]


def claim(body: Image, nuclei: Labels, floor: float) -> Labels:
    """Share the actin foreground among the nuclei: each pixel goes to the nucleus with the cheapest path to it.

    A step costs little where actin is even and much on slopes and on bright ridges, which is what cell edges look like.
    """
    foreground = opened(ndi.binary_fill_holes(body > floor), 2.0) | (nuclei > 0)
    root = np.sqrt(np.clip(body, 0, None))
    slope = ndi.gaussian_gradient_magnitude(root, 1.0)
    ridge = np.clip(-ndi.gaussian_laplace(root, 1.5), 0, None)
    edge = 0.5 * slope / _strong(slope, foreground) + 0.5 * ridge / _strong(ridge, foreground)
    cost = np.where(foreground, EDGE_COST + edge**2, 1e3)
    start = np.argwhere(figures.outline(nuclei))
    if start.size == 0:
        return np.zeros_like(nuclei)
    cheapest, _ = MCP_Geometric(cost).find_costs(start)
    return np.asarray(watershed(cheapest, nuclei, mask=foreground), dtype=np.int32)


def _strong(values: Image, where: Mask) -> float:
    return max(float(np.percentile(values[where], 90)), 1e-6) if where.any() else 1.0


def cell_bodies(actin: Image, nuclei: Labels, fraction: float) -> Labels:
    """Return whole cells: the claimed territory, cut at a fraction of each cell's own brightness, with its nucleus."""
    body, floor = bright_signal(actin)
    territory = claim(body, nuclei, floor)
    drawn = half_height(territory, body, territory, fraction)
    drawn = np.where(nuclei > 0, nuclei, drawn)
    smooth = tidy(np.asarray(drawn, dtype=np.int32), 0, smooth=2, keep_numbers=True)
    return np.where(nuclei > 0, nuclei, smooth).astype(np.int32)


# --- delivered files --------------------------------------------------------------------------------------------


def masks_of(output_dir: Path, path: Path) -> tuple[Labels, Labels]:
    """Read the delivered masks of an image back."""
    nuclei, cells = (
        read_image(output_dir / folder / f"{stem(path)}.tif").astype(np.int32)
        for folder in ("nuclei_masks", "cytoplasm_masks")
    )
    return nuclei, cells


def measure(output_dir: Path, path: Path) -> Cells:
    """Measure every cell of an image in the delivered masks."""
    nuclei, cells = masks_of(output_dir, path)
    dapi, actin = two_channels(path)
    size = int(max(nuclei.max(), cells.max())) + 1
    nucleus_area = np.bincount(nuclei.ravel(), minlength=size)
    cell_area = np.bincount(cells.ravel(), minlength=size)
    label = np.flatnonzero(nucleus_area[1:] + cell_area[1:]) + 1
    rows, cols = np.indices(nuclei.shape)
    weight = np.maximum(nucleus_area, 1)
    touching = np.unique(np.concatenate([cells[0], cells[-1], cells[:, 0], cells[:, -1]]))
    return Cells(
        stem(path),
        label,
        nucleus_area[label].astype(float),
        cell_area[label].astype(float),
        (np.bincount(nuclei.ravel(), rows.ravel(), size) / weight)[label],
        (np.bincount(nuclei.ravel(), cols.ravel(), size) / weight)[label],
        (np.bincount(nuclei.ravel(), dapi.ravel(), size) / weight)[label],
        (np.bincount(cells.ravel(), actin.ravel(), size) / np.maximum(cell_area, 1))[label],
        np.isin(label, touching),
    )


def write_objects(job: Job, measured: Sequence[Cells], scale: figures.Scale) -> None:
    """Write one row per cell."""
    unit = "um2" if scale.pixel_um else "px"
    columns = ["image", "label", "y_px", "x_px", f"nucleus_area_{unit}", f"cell_area_{unit}", "nucleus_share"]
    columns += ["dapi_mean", "actin_mean", "touches_border"]
    rows = [
        (
            item.name,
            int(item.label[k]),
            item.y[k],
            item.x[k],
            float(scale.area(item.nucleus_area[k])),
            float(scale.area(item.cell_area[k])),
            float(item.nucleus_area[k] / max(item.cell_area[k], 1)),
            item.dapi[k],
            item.actin[k],
            int(item.border[k]),
        )
        for item in measured
        for k in range(len(item))
    ]
    write_table(job.output_dir / "supporting" / "cells.tsv", columns, rows)


def composite(path: Path) -> figures.RGB:
    """Return a display copy: actin red, DNA blue-cyan, each stretched."""
    dapi, actin = two_channels(path)
    red, blue = figures.to_rgb(actin, gamma=0.6)[..., 0], figures.to_rgb(dapi, gamma=0.6)[..., 0]
    return np.stack([red, (0.35 * blue).astype(np.uint8), blue], axis=-1)


def draw_overlays(job: Job, done: Sequence[Path], scale: figures.Scale) -> None:
    """Draw both outlines over the composite of up to :data:`OVERLAYS` images."""
    legend = (("nucleus outline", figures.YELLOW), ("cell outline", figures.SKY))
    for path in spread(done, OVERLAYS):
        nuclei, cells = masks_of(job.output_dir, path)
        canvas = figures.draw_outlines(composite(path), [(cells, figures.SKY), (nuclei, figures.YELLOW)], zoom=2)
        picture = figures.annotate(canvas, scale, 2, legend)
        figures.save_overlay(picture, job.output_dir / "overlays" / f"{stem(path)}_outlines.png")


def draw_figures(job: Job, done: Sequence[Path], measured: Sequence[Cells], scale: figures.Scale) -> None:
    """Draw one example from raw channels to outlines, and the areas of nuclei and cells."""
    if not done:
        return
    middle = int(np.argsort([len(item) for item in measured])[len(measured) // 2])
    path = done[middle]
    dapi, actin = two_channels(path)
    nuclei, cells = masks_of(job.output_dir, path)
    grey_dapi, grey_actin = figures.to_rgb(dapi, gamma=0.6), figures.to_rgb(actin, gamma=0.6)
    figure = figures.new_figure(180, 142)
    axes = figure.subplots(2, 2).ravel()
    figures.show_image(axes[0], grey_dapi, scale, "DNA")
    figures.show_image(axes[1], grey_actin, scale, "actin")
    figures.show_image(axes[2], figures.draw_outlines(grey_dapi, [(nuclei, figures.YELLOW)]), scale, "nuclei")
    layers = [(cells, figures.SKY), (nuclei, figures.YELLOW)]
    figures.show_image(axes[3], figures.draw_outlines(composite(path), layers), scale, "cells and nuclei")
    figures.panel_letters(axes)
    figure.suptitle(
        f"image {stem(path)}: outlines of nuclei (yellow) and cells (blue), n = {len(measured[middle])} cells"
    )
    figures.save_figure(figure, job.output_dir / "figures", "example")

    inner = [~item.border for item in measured]
    nucleus = np.concatenate([scale.area(item.nucleus_area[k]) for item, k in zip(measured, inner, strict=True)])
    cell = np.concatenate([scale.area(item.cell_area[k]) for item, k in zip(measured, inner, strict=True)])
    figure = figures.new_figure(180, 62)
    axes = figure.subplots(1, 3)
    axes[0].scatter(
        cell, nucleus, s=5, alpha=0.4, linewidths=0, color=figures.hexadecimal(figures.BLUE), label="one cell"
    )
    if nucleus.size > 2:
        line = np.polyfit(cell, nucleus, 1)
        ends = np.array([cell.min(), cell.max()])
        axes[0].plot(ends, np.polyval(line, ends), color=figures.hexadecimal(figures.VERMILION), label="linear fit")
    axes[0].set_xlabel(f"cell area ({scale.area_unit})")
    axes[0].set_ylabel(f"nucleus area ({scale.area_unit})")
    axes[0].legend(frameon=False)
    both = np.concatenate([nucleus, cell])
    bins = np.geomspace(both.min(), both.max(), 40) if both.size else 10
    for values, colour, name in ((nucleus, figures.BLUE, "nuclei"), (cell, figures.ORANGE, "cells")):
        label = f"{name} (n = {values.size})"
        axes[1].hist(values, bins, color=figures.hexadecimal(colour), alpha=0.8, label=label)
    axes[1].set_xscale("log")
    axes[1].set_xlabel(f"area ({scale.area_unit})")
    axes[1].set_ylabel("objects")
    axes[1].legend(frameon=False)
    figures.count_panel(axes[2], [item.name for item in measured], [len(item) for item in measured], "cells")
    figures.panel_letters(axes)
    figures.save_figure(figure, job.output_dir / "figures", "areas")


def write_report(
    job: Job, images: Sequence[Path], measured: Sequence[Cells], settings: Settings, scale: figures.Scale
) -> None:
    """Write the report; all numbers come from the delivered masks."""
    unit = scale.area_unit
    total = sum(len(item) for item in measured)
    report = Report("Nuclei and cell bodies")
    report.section("Question", "Where does each cell lie, and how large are its nucleus and its body?")
    report.section("Result", f"{total} cells in {len(measured)} of {len(images)} images.")
    inner = [(item, ~item.border) for item in measured]
    nucleus = np.concatenate([scale.area(item.nucleus_area[k]) for item, k in inner]) if inner else np.zeros(0)
    cell = np.concatenate([scale.area(item.cell_area[k]) for item, k in inner]) if inner else np.zeros(0)
    report.text(
        f"Cells per image: {Summary.of(len(item) for item in measured).text()} images.",
        "Of cells that the image border does not cut:",
    )
    report.bullets(
        f"nucleus area {Summary.of(nucleus).text(unit)} cells",
        f"cell area {Summary.of(cell).text(unit)} cells",
        f"share of the nucleus in the cell's area {Summary.of(nucleus / np.maximum(cell, 1)).text()} cells",
    )
    if nucleus.size > 3:
        rho = stats.spearmanr(nucleus, cell)
        report.text(
            f"Nucleus and cell area: Spearman rho = {rho.statistic:.2f} (p = {rho.pvalue:.2g}, N = {nucleus.size} "
            "cells; cells of one image are not independent, so the p value is too small)."
        )
    means = [float(np.mean(scale.area(item.nucleus_area[k]))) for item, k in inner if k.any()]
    if (interval := mean_interval(means)) is not None:
        report.text(
            f"Mean nucleus area with images as units: {number(float(np.mean(means)))} {unit} "
            f"(95 % CI {number(interval[0])} to {number(interval[1])}, N = {len(means)} images)."
        )
    report.section("Method")
    report.bullets(
        "Channels: blue = DNA, red = actin; green is not used.",
        "Background: mean of pixels without objects, smoothed over a third of the field; objects brighter than half of "
        f"Otsu's threshold on the square root, and than {NOISE:g} noise SD.",
        f"Nuclear size: {settings.radius:.1f} px inner radius, measured on convex objects of up to {SAMPLE} images; "
        "sets every length of the nuclear step.",
        "Nuclei: threshold and local mean, split by distance to the outline and blob response, joined again where the "
        "union is convex (solidity 0.95), outlines redrawn at "
        f"{settings.nucleus_fraction:g} of each nucleus's own height, chosen as the place of the steepest edge.",
        f"Debris: inside the field, pieces below {SPECK_AREA:g} of the median nuclear area, and below "
        f"{FRAGMENT_AREA:g} if ragged (solidity < {RAGGED:g}) or without a cell body (cell area < {BODILESS:g} nuclear "
        "areas), are left out.",
        "Lobes: pieces that touch without a dark gap and together are no larger than "
        f"{LARGEST_LOBED:g} median nuclei are one.",
        "Cells: each nucleus claims the actin foreground along the cheapest path, where slopes and bright ridges are "
        f"dear; cut at {settings.cell_fraction:g} of each cell's own brightness; the nucleus belongs to its cell.",
    )
    report.section("Quality control")
    report.failures(job.failures, len(images), "images")
    unlinked = sum(int(np.sum((item.nucleus_area == 0) | (item.cell_area == 0))) for item in measured)
    bare = sum(int(np.sum(item.cell_area < BODILESS * item.nucleus_area)) for item in measured)
    border = sum(int(item.border.sum()) for item in measured)
    report.bullets(
        f"labels without a partner in the other mask: {unlinked}",
        f"cells whose body is hardly larger than the nucleus (< {BODILESS:g} times): {bare} of {total}; "
        "rounded mitotic cells, or faint actin",
        f"cells that the border cuts: {border} of {total}; kept in the masks, left out of the areas above",
    )
    report.text("Outlines over images: `overlays/`.")
    report.section("Caveats")
    report.bullets(
        "Where two cells overlap, a pixel goes to one of them; which one is on top can be seen only by its edge.",
        "Edges between cells of equal brightness in close contact are the least certain part.",
        "Two nuclei of one cell would count as two cells.",
        "Scale: "
        + ("unknown, sizes are in pixels." if scale.pixel_um is None else f"{scale.pixel_um:g} µm per pixel."),
    )
    report.section("Counts")
    report.table(["image", "cells"], [(item.name, len(item)) for item in measured])
    report.write(job.output_dir / "report.md")
