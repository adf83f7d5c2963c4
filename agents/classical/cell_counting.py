"""Count stained cells in fluorescence fields: one table of centres per image.

Somata are compact, in focus and of about one size; neurites, fibres, specks and out-of-focus glow are not. The size is
measured on the whole batch first; candidates are segmented (so that clumps come apart), and each must stand out from
its own close surroundings.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import ndimage as ndi

from . import _figures as figures
from ._io import as_grey, list_images, pixel_size_um, read_image, spread, stem, write_table
from ._job import Job, parse_pixel_size_um
from ._report import Report, Summary, number
from ._segment import (
    Image,
    background_surface,
    blob_radius,
    compact_objects,
    noise_sigma,
    ring_contrast,
)

SMALLEST_RADIUS_PX = 3.0  # below, a cell cannot be told from a speck that the optics blurred
LARGEST_RADIUS_PX = 30.0
DETECTION_NOISE = 5.0  # Rose criterion: what a person calls visible, in standard deviations of pixel noise
CONTRAST_NOISE = 6.5  # a little more is asked of the contrast to the own surroundings
CONTRAST_SHARE = 0.2  # and a fifth of what a typical cell of the batch has
LARGEST_AREA = 3.5  # in discs of the typical radius; larger ones are blurs or film
LONGEST = 4.0  # largest axis ratio of a soma
CANDIDATE_AREA = 0.3  # smallest area of a candidate, in discs of the typical radius
SAMPLE = 24  # images from which the cell size is measured
OVERLAYS = 24


@dataclass(frozen=True)
class Candidates:
    """What was segmented in one image, before the decision which of it are cells."""

    path: Path
    shape: tuple[int, int]
    noise: float
    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    area: npt.NDArray[np.float64]
    contrast: npt.NDArray[np.float64]  # to the close surroundings, in grey levels
    elongation: npt.NDArray[np.float64]

    def accepted(self, radius: float, typical_contrast: float, factor: float = 1.0) -> npt.NDArray[np.bool_]:
        """Return which candidates are cells; ``factor`` scales the contrast that is asked (for the sensitivity)."""
        limit = factor * max(CONTRAST_NOISE * self.noise, CONTRAST_SHARE * typical_contrast)
        disc = np.pi * radius**2
        compact = (self.area <= LARGEST_AREA * disc) & (self.elongation <= LONGEST)
        return np.asarray(compact & (self.contrast >= limit), dtype=bool)


def run(job: Job) -> None:
    """Measure the cell size, find cells, write one table per image, then figures and report."""
    images = list_images(job.input_dir)
    job.log(f"{len(images)} images")
    radius = cell_radius(images)
    job.log("no object of cell size in the sample" if radius is None else f"typical cell radius {radius:.1f} px")
    found: list[Candidates] = []
    for path in images:
        with job.attempt(path.name):
            found.append(find_candidates(path, radius))
            job.log(f"{path.name}: {found[-1].x.size} candidates")
    contrast = typical_contrast(found, radius)
    delivered: list[Path] = []
    for item in found:
        with job.attempt(item.path.name):
            keep = item.accepted(radius or 0.0, contrast)
            table = job.output_dir / f"{stem(item.path)}.csv"
            order = np.lexsort((item.x[keep], item.y[keep]))
            points = np.stack([item.x[keep], item.y[keep]], axis=1)[order]
            write_table(table, ["X", "Y"], np.round(points, 2).tolist(), delimiter=",")
            delivered.append(table)
    job.delivered = len(delivered)
    counts = {table.stem: read_points(table) for table in delivered}
    done = [item for item in found if stem(item.path) in counts]
    write_objects(job, done, radius, contrast)
    scale = figures.Scale(parse_pixel_size_um(job.instruction) or next((pixel_size_um(path) for path in images), None))
    with job.attempt("overlays"):
        draw_overlays(job, done, counts, radius, scale)
    with job.attempt("figures"):
        draw_figures(job, done, counts, radius, contrast)
    write_report(job, images, done, counts, radius, contrast, scale)


# --- analysis ---------------------------------------------------------------------------------------------------


def cell_radius(images: Sequence[Path]) -> float | None:
    """Return the most common radius of visible blobs over a sample of the batch."""

    def sample() -> Iterator[tuple[Image, float]]:
        for path in spread(images, SAMPLE):
            try:
                image = as_grey(read_image(path))
            except (OSError, ValueError):
                continue  # named when the image's own turn comes
            yield image, DETECTION_NOISE * pixel_noise(image)

    return blob_radius(sample(), SMALLEST_RADIUS_PX, LARGEST_RADIUS_PX)


def pixel_noise(image: Image) -> float:
    """Return the noise of a pixel, at least half a grey level, which rounding to integers can hide."""
    return max(noise_sigma(image), 0.5)


def find_candidates(path: Path, radius: float | None) -> Candidates:
    """Segment everything in one image that is bright, compact and not too small."""
    image = as_grey(read_image(path))
    noise = pixel_noise(image)
    empty = np.zeros(0)
    if radius is None:
        return Candidates(path, image.shape, noise, empty, empty, empty, empty, empty)
    smooth = ndi.gaussian_filter(image, 1.0)
    signal: Image = np.asarray(smooth - background_surface(smooth, 8 * radius), dtype=np.float32)
    labels = compact_objects(
        signal,
        radius,
        floor=DETECTION_NOISE * noise,
        opening=0.4,  # wider than a neurite, narrower than a soma
        min_area=CANDIDATE_AREA,
        solidity=0.98,  # somata are round: a union with the least waist is two cells
        fraction=0.6,
    )
    count = int(labels.max())
    if count == 0:
        return Candidates(path, image.shape, noise, empty, empty, empty, empty, empty)
    inside = labels > 0
    owner = labels[inside] - 1
    y, x = (axis.astype(float) for axis in np.nonzero(inside))
    weight = np.clip(signal[inside], 1e-3, None).astype(float)
    total = np.bincount(owner, weight, count)
    cy, cx = np.bincount(owner, weight * y, count) / total, np.bincount(owner, weight * x, count) / total
    return Candidates(
        path,
        image.shape,
        noise,
        cx,
        cy,
        np.bincount(owner, minlength=count).astype(float),
        ring_contrast(smooth, labels, 0.4 * radius, radius)[1:],
        _elongation(owner, y, x, count),
    )


def _elongation(
    owner: npt.NDArray[np.integer], y: npt.NDArray[np.float64], x: npt.NDArray[np.float64], count: int
) -> npt.NDArray[np.float64]:
    """Return the ratio of the axes of the ellipse with the same second moments (a pixel's own extent included)."""
    number = np.bincount(owner, minlength=count)
    my, mx = np.bincount(owner, y, count) / number, np.bincount(owner, x, count) / number
    dy, dx = y - my[owner], x - mx[owner]
    vy = np.bincount(owner, dy * dy, count) / number + 1 / 12
    vx = np.bincount(owner, dx * dx, count) / number + 1 / 12
    cov = np.bincount(owner, dy * dx, count) / number
    root = np.sqrt(((vy - vx) / 2) ** 2 + cov**2)
    return np.asarray(np.sqrt(((vy + vx) / 2 + root) / ((vy + vx) / 2 - root)))


def typical_contrast(found: Sequence[Candidates], radius: float | None) -> float:
    """Return the median contrast of the batch's candidates that are compact and pass the noise criterion."""
    if radius is None:
        return 0.0
    sure = [item.contrast[item.accepted(radius, 0.0)] for item in found]
    values = np.concatenate(sure) if sure else np.zeros(0)
    return float(np.median(values)) if values.size else 0.0


def read_points(table: Path) -> npt.NDArray[np.float64]:
    """Read a delivered table back as ``(n, 2)`` x and y."""
    with table.open(encoding="utf-8", newline="") as file:
        rows = [(float(row["X"]), float(row["Y"])) for row in csv.DictReader(file)]
    return np.asarray(rows, dtype=float).reshape(-1, 2)


# --- output -----------------------------------------------------------------------------------------------------


def write_objects(job: Job, found: Sequence[Candidates], radius: float | None, contrast: float) -> None:
    """Write every candidate with its measurements and the decision, for review."""
    rows = []
    for item in found:
        keep = item.accepted(radius or 0.0, contrast)
        for index in range(item.x.size):
            rows.append(
                (
                    item.path.name,
                    item.x[index],
                    item.y[index],
                    item.area[index],
                    item.contrast[index],
                    item.contrast[index] / item.noise,
                    item.elongation[index],
                    int(keep[index]),
                )
            )
    columns = ["image", "x_px", "y_px", "area_px", "contrast_grey", "contrast_noise", "axis_ratio", "counted"]
    write_table(job.output_dir / "supporting" / "candidates.tsv", columns, rows)


def draw_overlays(
    job: Job,
    found: Sequence[Candidates],
    counts: dict[str, npt.NDArray[np.float64]],
    radius: float | None,
    scale: figures.Scale,
) -> None:
    """Draw the delivered centres, and what was rejected, over the images."""
    legend = (("counted cell", figures.YELLOW), ("rejected candidate", figures.VERMILION))
    reach = 1.6 * (radius or 5.0)
    for item in spread(found, OVERLAYS):
        rgb = figures.to_rgb(as_grey(read_image(item.path)), gamma=0.6)
        points = counts[stem(item.path)]
        circles = [(y, x, reach, figures.YELLOW) for x, y in points]
        known = {(round(float(x), 2), round(float(y), 2)) for x, y in points}
        circles += [
            (y, x, reach, figures.VERMILION)
            for x, y in zip(item.x.tolist(), item.y.tolist(), strict=True)
            if (round(x, 2), round(y, 2)) not in known
        ]
        picture = figures.annotate(rgb, scale, 1, legend, circles=circles)
        figures.save_overlay(picture, job.output_dir / "overlays" / f"{stem(item.path)}_cells.png")


def draw_figures(
    job: Job,
    found: Sequence[Candidates],
    counts: dict[str, npt.NDArray[np.float64]],
    radius: float | None,
    contrast: float,
) -> None:
    """Plot the counts, the contrast of candidates against the limit, and the sizes of cells."""
    figure = figures.new_figure(180, 62)
    axes = figure.subplots(1, 3, width_ratios=[1.5, 1, 1])
    names = list(counts)
    figures.count_panel(axes[0], names, [len(counts[name]) for name in names], "cells", figures.BLUE)
    accepted = [item.accepted(radius or 0.0, contrast) for item in found]
    ratio = [item.contrast / item.noise for item in found]
    yes = np.concatenate([r[a] for r, a in zip(ratio, accepted, strict=True)]) if found else np.zeros(0)
    no = np.concatenate([r[~a] for r, a in zip(ratio, accepted, strict=True)]) if found else np.zeros(0)
    bins = np.linspace(0, max(20.0, float(np.max(yes, initial=1.0))), 40)
    axes[1].hist(yes, bins, color=figures.hexadecimal(figures.BLUE), label=f"counted (n = {yes.size})")
    axes[1].hist(
        np.clip(no, 0, None),
        bins,
        color=figures.hexadecimal(figures.VERMILION),
        alpha=0.8,
        label=f"rejected (n = {no.size})",
    )
    axes[1].axvline(CONTRAST_NOISE, color="black", linestyle="--", linewidth=1, label="lowest accepted")
    axes[1].set_xlabel("contrast to surroundings (noise SD)")
    axes[1].set_ylabel("candidates")
    axes[1].margins(y=0.45)
    axes[1].legend(frameon=False, loc="upper right")
    area = np.concatenate([item.area[a] for item, a in zip(found, accepted, strict=True)]) if found else np.zeros(0)
    axes[2].hist(
        2 * np.sqrt(area / np.pi), 30, color=figures.hexadecimal(figures.GREEN), label=f"cells (n = {area.size})"
    )
    axes[2].set_xlabel("equivalent diameter (px)")
    axes[2].set_ylabel("cells")
    axes[2].margins(y=0.15)
    axes[2].legend(frameon=False)
    figures.panel_letters(axes)
    figures.save_figure(figure, job.output_dir / "figures", "counts")


def write_report(
    job: Job,
    images: Sequence[Path],
    found: Sequence[Candidates],
    counts: dict[str, npt.NDArray[np.float64]],
    radius: float | None,
    contrast: float,
    scale: figures.Scale,
) -> None:
    """Write the report; every count in it is read from the delivered tables."""
    report = Report("Cells per field")
    total = sum(len(points) for points in counts.values())
    empty = sum(len(points) == 0 for points in counts.values())
    report.section(
        "Question",
        "Where is each cell in each field, and how many are there? Fields range from empty to dense, cells touch, and "
        "stain and background differ between batches.",
    )
    report.section("Result", f"{total} cells in {len(counts)} of {len(images)} images; {empty} images hold none.")
    report.table(["image", "cells"], [(name, len(points)) for name, points in counts.items()])
    report.text(
        f"Cells per image: {Summary.of(len(points) for points in counts.values()).text()} images.",
        "Cells per image that is not empty: "
        f"{Summary.of(len(points) for points in counts.values() if len(points)).text()} images.",
    )
    report.section("Method")
    size = "no object of cell size was found, so all fields count as empty" if radius is None else f"{radius:.1f} px"
    report.bullets(
        "Background: low percentile in windows of 8 cell radii, smoothed; follows haze and uneven light but not cells.",
        f"Cell size: the scale at which most blobs answer strongest to a scale-normalised Laplacian (response at least "
        f"{DETECTION_NOISE:g} noise SD, radius {SMALLEST_RADIUS_PX:g} to {LARGEST_RADIUS_PX:g} px), over the batch: "
        f"{size}. All other lengths follow from it.",
        "Candidates: foreground by threshold and local mean, opened with 0.4 cell radii (removes neurites and "
        "fibres), split where distance to the outline and blob response have a pass, joined again where the union is "
        "convex (solidity 0.98), outlines redrawn at 0.6 of each object's height.",
        f"Decision: contrast to the ring from 0.4 to 1 cell radius around the object of at least {CONTRAST_NOISE:g} "
        f"noise SD and {CONTRAST_SHARE:g} of the batch's typical contrast ({number(contrast)} grey levels): glow far "
        f"out of focus fails this. Area at most {LARGEST_AREA:g} typical discs, axis ratio at most {LONGEST:g}.",
        "Position: centre of brightness, in pixels from the centre of the top-left pixel; X is the column.",
    )
    report.section("Quality control")
    report.failures(job.failures, len(images), "images")
    rejected = sum(int((~item.accepted(radius or 0.0, contrast)).sum()) for item in found)
    report.text(f"{rejected} candidates were rejected; `overlays/` marks and `supporting/candidates.tsv` lists them.")
    rows = []
    for factor in (0.75, 1.0, 1.25):
        number_of_cells = sum(int(item.accepted(radius or 0.0, contrast, factor).sum()) for item in found)
        rows.append((f"{factor:g}", number_of_cells, f"{100 * (number_of_cells / max(total, 1) - 1):+.1f} %"))
    report.text("How the total depends on the contrast that is asked:")
    report.table(["limit × ", "cells", "change"], rows)
    edge = sum(_at_edge(item, counts[stem(item.path)], radius) for item in found)
    report.text(f"{edge} counted cells lie within one cell radius of the image border.")
    known = "No pixel size is known; sizes are in pixels."
    if scale.pixel_um is not None:
        known = f"Scale: {scale.pixel_um:g} µm per pixel; positions and sizes above are in pixels."
    report.section("Caveats")
    report.bullets(
        "Cells that lie fully on top of each other count as one; in dense clumps the count is a lower limit.",
        known,
        "Cells near the contrast limit are a matter of judgement; the table above shows how much hangs on it.",
    )
    report.section(
        "Files",
        "`<image>.csv`: centres. `overlays/`: marks over the images. `figures/counts`: counts, contrast, sizes. "
        "`supporting/candidates.tsv`: every candidate with its measurements.",
    )
    report.write(job.output_dir / "report.md")


def _at_edge(item: Candidates, points: npt.NDArray[np.float64], radius: float | None) -> int:
    height, width = item.shape
    margin = radius or 0.0
    x, y = points[:, 0], points[:, 1]
    return int(np.sum((x < margin) | (y < margin) | (x > width - 1 - margin) | (y > height - 1 - margin)))
