"""Outline every nucleus in H&E sections, one by one, and compare groups of images.

Hematoxylin is separated from eosin by colour deconvolution; in its density nuclei are bright, compact objects on a
slowly varying ground of stained cytoplasm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import ndimage as ndi
from skimage.color import rgb2hed
from skimage.measure import regionprops
from skimage.segmentation import watershed

from . import _figures as figures
from ._io import list_images, pixel_size_um, read_image, spread, stem, write_labels, write_table
from ._job import Job, parse_pixel_size_um
from ._report import Report, Summary, compare_groups, mean_interval, number
from ._segment import (
    Image,
    Labels,
    compact_objects,
    flat_background,
    half_height,
    hull_pixels,
    local_floor,
    object_radius,
    opened,
    otsu,
    region_outlines,
    relabel,
    ring_contrast,
    steepest_fraction,
    tidy,
)

FLOORS = (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)  # lowest density of a nucleus, in Otsu thresholds: what is tried
CONVEX_ENOUGH = 0.94  # of the best solidity; the lowest floor that reaches it is taken
SHAPE_WEIGHT = 1.0  # chromatin and overlaps make density a poor guide to where nuclei touch
BACKGROUND_RADII = 12.0  # width of the background's window, in nuclear radii
CONTRAST_SHARE = 0.4  # lowest contrast of a nucleus to its own surroundings, in the image's median one
OVERLAYS = 12
CROP_RADII = 16.0  # side of the close-up, in nuclear radii


@dataclass(frozen=True)
class Found:
    """What one image gave before it was written."""

    labels: Labels
    radius: float
    fraction: float  # height of the outlines
    floor: float  # lowest density, in Otsu thresholds


@dataclass(frozen=True)
class Nuclei:
    """Measurements of one delivered mask, ordered by label."""

    name: str
    group: str
    field: float  # area of the image in pixels
    label: npt.NDArray[np.int64]
    y: npt.NDArray[np.float64]
    x: npt.NDArray[np.float64]
    area: npt.NDArray[np.float64]
    axis_ratio: npt.NDArray[np.float64]
    solidity: npt.NDArray[np.float64]
    density: npt.NDArray[np.float64]  # of hematoxylin
    border: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.label)


def run(job: Job) -> None:
    """Write one mask per image, then table, figures and report."""
    images = list_images(job.input_dir)
    job.log(f"{len(images)} images")
    found: dict[str, Found] = {}
    done: list[Path] = []
    for path in images:
        with job.attempt(path.name):
            result = segment(read_rgb(path))
            write_labels(job.output_dir / f"{stem(path)}.tif", result.labels)
            found[stem(path)] = result
            done.append(path)
            job.log(f"{path.name}: {int(result.labels.max())} nuclei of radius {result.radius:.1f} px")
    job.delivered = len(done)
    scale = figures.Scale(parse_pixel_size_um(job.instruction) or next((pixel_size_um(path) for path in images), None))
    measured = [measure(job.output_dir, path) for path in done]
    write_objects(job, measured, scale)
    with job.attempt("overlays"):
        draw_overlays(job, done, found, scale)
    with job.attempt("figures"):
        draw_figures(job, done, measured, found, scale)
    write_report(job, images, measured, found, scale)


# --- analysis ---------------------------------------------------------------------------------------------------


def read_rgb(path: Path) -> npt.NDArray[np.uint8]:
    """Read an 8-bit RGB image."""
    image = read_image(path)
    if image.ndim != 3 or image.dtype != np.uint8:
        raise ValueError(f"expected an 8-bit RGB image, found {image.dtype} of shape {image.shape}")
    return image


def hematoxylin(rgb: npt.NDArray[np.uint8]) -> Image:
    """Return the density of hematoxylin (Ruifrok and Johnston 2001), in thousandths, lightly smoothed."""
    return np.asarray(ndi.gaussian_filter(1e3 * rgb2hed(rgb)[..., 0], 1.0), dtype=np.float32)


def segment(rgb: npt.NDArray[np.uint8]) -> Found:
    """Segment the nuclei of one image at its own nuclear size."""
    density = hematoxylin(rgb)
    above = density - np.percentile(density, 1)
    radius = object_radius([opened(above > otsu(above), 2.0)])
    if radius is None:
        return Found(np.zeros(density.shape, dtype=np.int32), float("nan"), float("nan"), float("nan"))
    signal = np.clip(density - flat_background(density, max(BACKGROUND_RADII * radius, 60.0)), 0, None)
    floor = convex_floor(signal, radius)
    first = compact_objects(signal, radius, floor=floor, shape_weight=SHAPE_WEIGHT, fraction=0.5)
    height = np.asarray(signal - local_floor(signal, radius), dtype=np.float32)
    reach = ndi.binary_dilation(first > 0, iterations=max(1, round(radius / 3)))
    basins = np.asarray(watershed(-signal, first, mask=reach), dtype=np.int32)
    fraction = steepest_fraction(first, height, basins, 1.0)
    labels = tidy(half_height(first, height, basins, fraction), 0.1 * np.pi * radius**2, smooth=1)
    contrast = ring_contrast(density, labels, 0.2 * radius, 0.7 * radius)
    clear = contrast >= CONTRAST_SHARE * float(np.median(contrast[1:])) if labels.max() else contrast > 0
    clear[0] = False
    return Found(relabel(np.where(clear[labels], labels, 0)), radius, fraction, floor / otsu(signal))


def convex_floor(signal: Image, radius: float) -> float:
    """Return the lowest threshold whose foreground is about as convex as that of any.

    A threshold below the density of stained cytoplasm gives ragged, merged regions; a higher one than needed loses pale
    nuclei. The area-weighted solidity of the foreground's pieces shows the step between both.
    """
    limit = otsu(signal)
    quality = []
    for share in FLOORS:
        mask = ndi.binary_fill_holes(opened(signal > share * limit, max(1.0, 0.15 * radius)))
        pieces = np.asarray(ndi.label(mask)[0], dtype=np.int32)
        area = np.bincount(pieces.ravel())
        hulls = {label: hull_pixels(hull) for label, hull in region_outlines(pieces).items()}
        total = sum(int(area[label]) for label in hulls)
        quality.append(sum(int(area[label]) ** 2 / hull for label, hull in hulls.items()) / max(total, 1))
    enough = [share for share, value in zip(FLOORS, quality, strict=True) if value >= CONVEX_ENOUGH * max(quality)]
    return float(enough[0] * limit)


# --- delivered files --------------------------------------------------------------------------------------------


def group_of(name: str) -> str:
    """Return a file's group: its name without the running number (``human_kidney_01`` -> ``human_kidney``)."""
    return re.sub(r"[_\- ]*\d+$", "", name) or "all"


def mask_of(output_dir: Path, path: Path) -> Labels:
    """Read the delivered mask of an image back."""
    return read_image(output_dir / f"{stem(path)}.tif").astype(np.int32)


def measure(output_dir: Path, path: Path) -> Nuclei:
    """Measure every nucleus of an image in the delivered mask."""
    labels = mask_of(output_dir, path)
    density = hematoxylin(read_rgb(path))
    regions = regionprops(labels, density)
    edge = np.unique(np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]]))

    def column(values: Sequence[float]) -> npt.NDArray[np.float64]:
        return np.asarray(values, dtype=float)

    label = np.asarray([region.label for region in regions], dtype=np.int64)
    return Nuclei(
        stem(path),
        group_of(stem(path)),
        float(labels.size),
        label,
        column([region.centroid[0] for region in regions]),
        column([region.centroid[1] for region in regions]),
        column([region.area for region in regions]),
        column([region.axis_major_length / max(region.axis_minor_length, 1.0) for region in regions]),
        column([region.solidity for region in regions]),
        column([region.intensity_mean for region in regions]),
        np.isin(label, edge),
    )


def write_objects(job: Job, measured: Sequence[Nuclei], scale: figures.Scale) -> None:
    """Write one row per nucleus."""
    unit = "um2" if scale.pixel_um else "px"
    columns = ["image", "group", "label", "y_px", "x_px", f"area_{unit}", "axis_ratio", "solidity"]
    columns += ["hematoxylin_density", "touches_border"]
    rows = [
        (
            item.name,
            item.group,
            int(item.label[k]),
            item.y[k],
            item.x[k],
            float(scale.area(item.area[k])),
            item.axis_ratio[k],
            item.solidity[k],
            item.density[k] / 1e3,
            int(item.border[k]),
        )
        for item in measured
        for k in range(len(item))
    ]
    write_table(job.output_dir / "supporting" / "nuclei.tsv", columns, rows)


def draw_overlays(job: Job, done: Sequence[Path], found: dict[str, Found], scale: figures.Scale) -> None:
    """Draw the outlines over up to :data:`OVERLAYS` images, and a close-up of each one's most crowded place."""
    legend = (("nucleus outline", figures.YELLOW),)
    for path in spread(done, OVERLAYS):
        rgb, labels = read_rgb(path), mask_of(job.output_dir, path)
        folder = job.output_dir / "overlays"
        canvas = figures.draw_outlines(rgb, [(labels, figures.YELLOW)], zoom=2)
        figures.save_overlay(figures.annotate(canvas, scale, 2, legend), folder / f"{stem(path)}_outlines.png")
        box = crowded(labels, found[stem(path)].radius)
        canvas = figures.draw_outlines(rgb[box], [(labels[box], figures.YELLOW)], zoom=6)
        figures.save_overlay(figures.annotate(canvas, scale, 6, legend), folder / f"{stem(path)}_crowded.png")


def crowded(labels: Labels, radius: float) -> tuple[slice, slice]:
    """Return the window, of 16 nuclear radii, that holds the most nuclei."""
    side = min(*labels.shape, 128 if np.isnan(radius) else round(CROP_RADII * radius))
    centres = np.zeros(labels.shape, dtype=np.float32)
    for y, x in ndi.center_of_mass(labels > 0, labels, np.arange(1, labels.max() + 1)):
        centres[round(y), round(x)] = 1
    number_inside = ndi.uniform_filter(centres, side, mode="constant")
    half = side // 2
    inner = number_inside[half : labels.shape[0] - side + half + 1, half : labels.shape[1] - side + half + 1]
    row, col = np.unravel_index(int(np.argmax(inner)), inner.shape)
    return slice(int(row), int(row) + side), slice(int(col), int(col) + side)


def draw_figures(
    job: Job, done: Sequence[Path], measured: Sequence[Nuclei], found: dict[str, Found], scale: figures.Scale
) -> None:
    """Draw one example per group and the comparison of groups."""
    if not done:
        return
    groups = sorted({item.group for item in measured})[:4]
    figure = figures.new_figure(180, 4 + 62 * len(groups))
    axes = figure.subplots(len(groups), 3, squeeze=False)
    for row, group in zip(axes, groups, strict=True):
        index = next(number for number, item in enumerate(measured) if item.group == group)
        rgb, labels = read_rgb(done[index]), mask_of(job.output_dir, done[index])
        figures.show_image(row[0], rgb, scale, stem(done[index]))
        figures.show_image(
            row[1], figures.draw_outlines(rgb, [(labels, figures.YELLOW)]), scale, f"n = {len(measured[index])}"
        )
        box = crowded(labels, found[stem(done[index])].radius)
        figures.show_image(
            row[2], figures.draw_outlines(rgb[box], [(labels[box], figures.YELLOW)], zoom=3), _zoomed(scale, 3)
        )
    figures.panel_letters(axes.ravel())
    figures.save_figure(figure, job.output_dir / "figures", "examples")

    groups = sorted({item.group for item in measured})
    figure = figures.new_figure(180, 65)
    axes = figure.subplots(1, 3)
    colours = [figures.hexadecimal(figures.COLOURS[k % len(figures.COLOURS)]) for k in range(len(groups))]
    for position, (group, colour) in enumerate(zip(groups, colours, strict=True)):
        items = [item for item in measured if item.group == group]
        counts = [len(item) for item in items]
        spread = np.linspace(-0.12, 0.12, len(counts)) if len(counts) > 1 else [0.0]
        axes[0].scatter(
            position + np.asarray(spread),
            counts,
            s=14,
            color=colour,
            zorder=3,
            label=f"{group} (n = {len(counts)} images)",
        )
        axes[0].hlines(np.mean(counts), position - 0.25, position + 0.25, color="black", linewidth=1)
        inner = np.concatenate([scale.area(item.area[~item.border]) for item in items])
        ratio = np.concatenate([item.axis_ratio[~item.border] for item in items])
        for axis, values in ((axes[1], inner), (axes[2], ratio)):
            if values.size:
                order = np.sort(values)
                share = np.arange(1, order.size + 1) / order.size
                axis.step(order, share, where="post", color=colour, label=f"{group} (n = {values.size} nuclei)")
    axes[0].set_xticks(range(len(groups)), groups)
    axes[0].set_ylabel("nuclei per image (line: mean)")
    axes[0].set_ylim(bottom=0)
    axes[1].set_xlabel(f"nucleus area ({scale.area_unit})")
    axes[2].set_xlabel("axis ratio")
    for axis in axes[1:]:
        axis.set_ylabel("cumulative share of nuclei")
    for axis in axes:
        axis.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.08))
    figures.panel_letters(axes)
    figures.save_figure(figure, job.output_dir / "figures", "groups")


def _zoomed(scale: figures.Scale, zoom: int) -> figures.Scale:
    return scale if scale.pixel_um is None else figures.Scale(scale.pixel_um / zoom)


def write_report(
    job: Job, images: Sequence[Path], measured: Sequence[Nuclei], found: dict[str, Found], scale: figures.Scale
) -> None:
    """Write the report; all numbers come from the delivered masks."""
    unit = scale.area_unit
    report = Report("Nuclei in H&E sections")
    report.section("Question", "Where is every nucleus, and do the groups of images differ in number, size and shape?")
    total = sum(len(item) for item in measured)
    report.section("Result", f"{total} nuclei in {len(measured)} of {len(images)} images.")
    groups = sorted({item.group for item in measured})
    rows = []
    for group in groups:
        items = [item for item in measured if item.group == group]
        counts = [len(item) for item in items]
        interval = mean_interval(counts)
        inner = np.concatenate([scale.area(item.area[~item.border]) for item in items])
        ratio = np.concatenate([item.axis_ratio[~item.border] for item in items])
        rows.append(
            (
                group,
                len(items),
                sum(counts),
                number(float(np.mean(counts))),
                "–" if interval is None else f"{number(interval[0])} to {number(interval[1])}",
                _quartiles(inner),
                _quartiles(ratio),
            )
        )
    columns = ["group", "images", "nuclei", "nuclei per image", "95 % CI", f"area ({unit}), median [quartiles]"]
    report.table([*columns, "axis ratio, median [quartiles]"], rows)
    report.text("Areas and axis ratios leave out nuclei that the border cuts.")
    if len(groups) == 2:
        pair = [[item for item in measured if item.group == group] for group in groups]
        report.text(f"{groups[0]} against {groups[1]}, with images as independent units:")
        report.bullets(
            "nuclei per image: " + compare_groups(*([len(item) for item in items] for items in pair)),
            f"median nucleus area ({unit}): "
            + compare_groups(*([_median(scale.area(item.area[~item.border])) for item in items] for items in pair)),
            "median axis ratio: "
            + compare_groups(*([_median(item.axis_ratio[~item.border]) for item in items] for items in pair)),
        )
    report.section("Method")
    radii = [item.radius for item in found.values()]
    fractions = [item.fraction for item in found.values()]
    floors = ", ".join(f"{item.floor:.1f}" for item in found.values())
    report.bullets(
        "Hematoxylin density by colour deconvolution (Ruifrok and Johnston), smoothed with sigma 1 px.",
        "Nuclear size: inner radius of convex dark objects, per image, sets all lengths: "
        f"{Summary.of(radii).text('px')} images.",
        f"Background: mean density between objects, smoothed over {BACKGROUND_RADII:g} nuclear radii; takes stained "
        "cytoplasm and differences between slides out.",
        f"Nuclei: density above a floor and above the local mean. The floor ({floors} Otsu thresholds) is the lowest "
        f"of {FLOORS[0]:g} to {FLOORS[-1]:g} at which the foreground is about as convex as at any, since stained "
        "cytoplasm makes it ragged. Holes (pale centres) are filled; pieces are split by shape and joined again where "
        "the union is convex (solidity 0.95) and has no waist.",
        f"Left out: contrast to the close surroundings below {CONTRAST_SHARE:g} of the image's median.",
        "Outlines: at the height of each nucleus where the edges of an image are steepest: "
        f"{Summary.of(fractions).text()} images.",
    )
    report.section("Quality control")
    report.failures(job.failures, len(images), "images")
    ragged = sum(int(np.sum(item.solidity < 0.85)) for item in measured)
    border = sum(int(item.border.sum()) for item in measured)
    report.bullets(
        f"objects of solidity below 0.85 (possibly merged or torn): {ragged} of {total}",
        f"nuclei that the border cuts: {border} of {total}; kept in the masks",
    )
    report.text("Outlines over every image, with a close-up of the most crowded place: `overlays/`.")
    report.section("Caveats")
    known = "unknown, sizes are in pixels" if scale.pixel_um is None else f"{scale.pixel_um:g} µm per pixel, as stated"
    report.bullets(
        "Nuclei that lie on top of each other in the section can look like one.",
        "Pale nuclei far out of focus are the least certain.",
        "Few images per group: the intervals above say how little that is.",
        f"Scale: {known}.",
    )
    report.section("Counts")
    report.table(
        ["image", "nuclei", "nuclei per mm²"] if scale.pixel_um else ["image", "nuclei"],
        [
            (item.name, len(item), len(item) / (item.field * scale.pixel_um**2 / 1e6))
            if scale.pixel_um
            else (item.name, len(item))
            for item in measured
        ],
    )
    report.write(job.output_dir / "report.md")


def _quartiles(values: npt.NDArray[np.float64]) -> str:
    found = Summary.of(values)
    return f"{number(found.median)} [{number(found.lower)}, {number(found.upper)}]"


def _median(values: npt.NDArray[np.float64]) -> float:
    return float(np.median(values)) if values.size else float("nan")
