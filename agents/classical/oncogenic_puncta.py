"""Count bright droplets in nuclei, in 3D, over the images of several conditions.

Nuclei lie side by side in one layer: they are thresholded in 3D and separated by shape in the plane. Droplets are local
maxima of a difference of Gaussians that is matched to the point spread, accepted by their contrast to the nucleus that
they lie in and by its noise, so that even haze, however bright, gives none.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tifffile
from scipy import ndimage as ndi
from scipy import stats

from . import _figures as figures
from ._io import list_images, pixel_size_um, write_table
from ._job import Job
from ._report import Report, Summary
from ._segment import distance_inside, otsu, split_touching
from ._volumes import voxel_size

Volume = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int32]
Spacing = tuple[float, float, float]

NUCLEUS_SMOOTHING_UM = 0.35
LEAST_RADIUS_UM = 1.6  # of a nucleus in the plane
PASS_UM = 0.14  # how much narrower the neck between two nuclei is than the narrower one
SPOT_UM = (0.28, 0.11, 0.11)  # Gaussian width of a droplet along z, y, x: that of the point spread
SPOT_NOISE = 5.3  # droplets stand out by so many noise SD of the filter
SPOT_CONTRAST = 0.25  # and by this share of the nucleus's median level
COLUMNS = (
    "condition",
    "Image name",
    "ROI label",
    "z",
    "y",
    "x",
    "ROI volume um",
    "GFP mean intensity per ROI",
    "number of GFP puncta",
    "total GFP puncta volume um per ROI",
    "share of GFP inside puncta",
)


@dataclass(frozen=True)
class Nucleus:
    """One nucleus with what was measured in it; lengths in voxels, volumes in µm³."""

    label: int
    centre: tuple[float, float, float]
    volume: float
    mean: float
    puncta: int
    puncta_volume: float
    share: float


def run(job: Job) -> None:
    """Measure image by image, write the table, then figures and report."""
    paths = list_images(job.input_dir, (".tif", ".tiff"))
    stated = voxel_size(job.instruction)
    rows: list[Sequence[object]] = []
    spots: list[Sequence[object]] = []
    shown: set[str] = set()
    done = 0
    for path in paths:
        with job.attempt(path.name):
            spacing = file_spacing(path) or stated
            if spacing is None:
                raise ValueError("no voxel size in the file or in the request")
            stack = read_stack(path)
            dna, gfp = (stack[:, channel].astype(np.float32) for channel in (0, 1))
            labels = segment_nuclei(dna, spacing)
            points, response = find_puncta(gfp, labels, spacing)
            condition = path.parent.name
            for nucleus in measure(gfp, labels, points, response, spacing):
                rows.append(
                    (
                        condition,
                        path.name,
                        nucleus.label,
                        *(f"{value:.2f}" for value in nucleus.centre),
                        nucleus.volume,
                        nucleus.mean,
                        nucleus.puncta,
                        nucleus.puncta_volume,
                        nucleus.share,
                    )
                )
            spots += [(condition, path.name, int(labels[tuple(point)]), *point) for point in points.tolist()]
            done += 1
            job.log(f"{path.name}: {int(labels.max())} nuclei, {len(points)} puncta")
            if condition not in shown:
                shown.add(condition)
                draw_overlay(job, path, dna, gfp, labels, points, figures.Scale(spacing[2]))
    if not rows:
        return
    table = job.output_dir / "cell_quants.csv"
    write_table(table, COLUMNS, rows, delimiter=",")
    job.delivered = 1
    write_table(job.folder("supporting") / "puncta.tsv", ("condition", "image", "nucleus", "z", "y", "x"), spots)
    delivered = read_back(table)
    with job.attempt("figures"):
        draw_figures(job, delivered)
    write_report(job, len(paths), done, delivered)


# --- reading ----------------------------------------------------------------------------------------------------------


def file_spacing(path: Path) -> Spacing | None:
    """Return the voxel size (z, y, x) in µm from an ImageJ file's metadata, or ``None``."""
    pixel = pixel_size_um(path)
    with tifffile.TiffFile(path) as file:
        step = (file.imagej_metadata or {}).get("spacing")
    return None if pixel is None or step is None else (float(step), pixel, pixel)


def read_stack(path: Path) -> npt.NDArray[np.generic]:
    """Read ``(z, channel, y, x)`` with two channels."""
    stack = np.squeeze(tifffile.imread(path))
    if stack.ndim != 4 or 2 not in stack.shape[:2]:
        raise ValueError(f"expected planes and two channels, found an array of shape {stack.shape}")
    return stack if stack.shape[1] == 2 else np.moveaxis(stack, 0, 1)


# --- analysis ---------------------------------------------------------------------------------------------------------


def segment_nuclei(dna: Volume, spacing: Spacing) -> Labels:
    """Return labels of nuclei: threshold in 3D, separated in the plane by shape."""
    factor = max(1, round(0.26 / spacing[2]))
    planes, height, width = dna.shape
    padded = np.pad(dna, ((0, 0), (0, -height % factor), (0, -width % factor)), mode="edge")
    small = padded.reshape(planes, padded.shape[1] // factor, factor, padded.shape[2] // factor, factor).mean((2, 4))
    step = (spacing[0], spacing[1] * factor, spacing[2] * factor)
    smooth = ndi.gaussian_filter(small, [NUCLEUS_SMOOTHING_UM / s for s in step])
    light = np.sqrt(np.maximum(smooth - np.percentile(smooth, 5), 0.0))  # dim nuclei count as much as bright ones
    mask = light > 0.9 * otsu(light)
    footprint = ndi.binary_fill_holes(mask.sum(axis=0) * step[0] > 0.9)
    radius = LEAST_RADIUS_UM / step[1]
    footprint = ndi.binary_opening(footprint, iterations=max(1, round(0.3 * radius)))
    depth = ndi.gaussian_filter(distance_inside(footprint), 0.25 * radius)
    regions = split_touching(footprint, depth, PASS_UM / step[1])
    inner = np.asarray(ndi.maximum(depth, regions, np.arange(1, regions.max() + 1)))
    names = np.zeros(int(regions.max()) + 1, np.int32)
    large = np.flatnonzero(inner > 0.7 * radius) + 1
    names[large] = np.arange(1, len(large) + 1)
    plane = names[regions]
    filled = ndi.binary_closing(mask, np.ones((1, 5, 5), bool))
    labels = np.where(filled, plane[None], 0)
    return labels.repeat(factor, axis=1).repeat(factor, axis=2)[:, :height, :width].astype(np.int32)


def find_puncta(gfp: Volume, labels: Labels, spacing: Spacing) -> tuple[npt.NDArray[np.int64], Volume]:
    """Return droplets as (z, y, x) voxels, and the filtered image."""
    widths = [width / step for width, step in zip(SPOT_UM, spacing, strict=True)]
    response = ndi.gaussian_filter(gfp, widths) - ndi.gaussian_filter(gfp, [1.6 * width for width in widths])
    peaks = (response == ndi.maximum_filter(response, size=3)) & (labels > 0)
    places = np.argwhere(peaks)
    owner = labels[tuple(places.T)]
    offset = float(np.percentile(gfp, 1))
    count = int(labels.max())
    limits = np.full(count + 1, np.inf)
    for label, box in enumerate(ndi.find_objects(labels), start=1):
        if box is None:
            continue
        inside = labels[box] == label
        values = response[box][inside]
        middle, low = np.percentile(values, [50, 15.9])  # the lower side holds no droplets
        level = float(np.median(gfp[box][inside])) - offset
        limits[label] = max(middle + SPOT_NOISE * (middle - low), SPOT_CONTRAST * level)
    strong = response[tuple(places.T)] > limits[owner]
    return places[strong], response


def measure(
    gfp: Volume, labels: Labels, points: npt.NDArray[np.int64], response: Volume, spacing: Spacing
) -> list[Nucleus]:
    """Measure every nucleus; a droplet is what lies above half of its peak in the filtered image, around it."""
    voxel = float(np.prod(spacing))
    owner = labels[tuple(points.T)]
    counts = np.bincount(owner, minlength=int(labels.max()) + 1)
    peak = np.zeros(labels.shape, np.float32)
    peak[tuple(points.T)] = response[tuple(points.T)]
    reach = [2 * max(1, round(1.5 * width / step)) + 1 for width, step in zip(SPOT_UM, spacing, strict=True)]
    near = ndi.maximum_filter(peak, size=reach)
    droplets = (near > 0) & (response > 0.5 * near)
    light = np.maximum(gfp - np.percentile(gfp, 1), 0.0)
    nuclei = []
    for label, box in enumerate(ndi.find_objects(labels), start=1):
        if box is None:
            continue
        inside = labels[box] == label
        z, y, x = (float(axis.mean()) + part.start for axis, part in zip(np.nonzero(inside), box, strict=True))
        drops = inside & droplets[box]
        total = float(light[box][inside].sum())
        nuclei.append(
            Nucleus(
                label,
                (z, y, x),
                float(inside.sum()) * voxel,
                float(gfp[box][inside].mean()),
                int(counts[label]),
                float(drops.sum()) * voxel,
                float(light[box][drops].sum()) / total if total > 0 else 0.0,
            )
        )
    return nuclei


# --- output -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Delivered:
    """The delivered table, read back."""

    condition: npt.NDArray[np.str_]
    image: npt.NDArray[np.str_]
    volume: npt.NDArray[np.float64]
    puncta: npt.NDArray[np.float64]
    share: npt.NDArray[np.float64]

    @property
    def conditions(self) -> list[str]:
        """Conditions, the one with most puncta first."""
        means = {name: self.puncta[self.condition == name].mean() for name in np.unique(self.condition)}
        return sorted(means, key=lambda name: -means[name])

    def field_means(self, condition: str) -> list[float]:
        """Mean count of each image of a condition."""
        own = self.condition == condition
        return [float(self.puncta[own & (self.image == name)].mean()) for name in np.unique(self.image[own])]


def read_back(path: Path) -> Delivered:
    """Read the delivered table."""
    with path.open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))

    def numbers(column: str) -> npt.NDArray[np.float64]:
        return np.array([float(row[column]) for row in rows])

    return Delivered(
        np.array([row["condition"] for row in rows]),
        np.array([row["Image name"] for row in rows]),
        numbers("ROI volume um"),
        numbers("number of GFP puncta"),
        numbers("share of GFP inside puncta"),
    )


def draw_overlay(
    job: Job,
    path: Path,
    dna: Volume,
    gfp: Volume,
    labels: Labels,
    points: npt.NDArray[np.int64],
    scale: figures.Scale,
) -> None:
    """Draw nuclei and droplets over maximum projections of both channels, side by side."""
    zoom = 2 if dna.shape[2] < 500 else 1
    flat = labels.max(axis=0)
    panels = []
    for volume in (dna, gfp):
        rgb = figures.to_rgb(volume.max(axis=0), gamma=0.7)
        panels.append(figures.draw_outlines(rgb, [(flat, figures.YELLOW)], zoom))
    canvas = np.concatenate(panels, axis=1)
    circles = [(float(y), float(x) + dna.shape[2], 3.5, figures.VERMILION) for _, y, x in points.tolist()]
    legend = (("nucleus", figures.YELLOW), ("punctum", figures.VERMILION))
    picture = figures.annotate(canvas, scale, zoom, legend, circles=circles)
    figures.save_overlay(picture, job.output_dir / "overlays" / f"{path.parent.name}.png")


def draw_figures(job: Job, table: Delivered) -> None:
    """Plot counts per condition, means per image, and count against volume."""
    figure = figures.new_figure(180, 65)
    axes = figure.subplots(1, 3)
    rng = np.random.default_rng(0)
    for place, name in enumerate(table.conditions):
        colour = figures.hexadecimal(figures.COLOURS[place % len(figures.COLOURS)])
        own = table.condition == name
        counts = table.puncta[own]
        axes[0].scatter(place + rng.uniform(-0.25, 0.25, len(counts)), counts, s=5, color=colour, alpha=0.6, lw=0)
        axes[0].hlines(counts.mean(), place - 0.3, place + 0.3, color="black", linewidth=1.2)
        means = table.field_means(name)
        axes[1].scatter(np.full(len(means), place), means, s=14, color=colour)
        bearing = own & (table.puncta > 0)
        label = f"{name} (n = {int(bearing.sum())})"
        axes[2].scatter(table.volume[bearing], table.puncta[bearing], s=6, color=colour, label=label)
    names = [f"{name}\nn = {int((table.condition == name).sum())}" for name in table.conditions]
    axes[0].set_yscale("symlog", linthresh=3)
    for axis in axes[:2]:
        axis.set_xticks(range(len(names)), names, fontsize=4)
    axes[0].set_ylabel("puncta per nucleus (line: mean)")
    axes[1].set_ylabel("mean puncta per nucleus, per image")
    axes[1].set_ylim(0, None)
    bearing = table.puncta > 0
    if bearing.sum() > 2:
        fit = stats.linregress(table.volume[bearing], table.puncta[bearing])
        ends = np.array([table.volume[bearing].min(), table.volume[bearing].max()])
        axes[2].plot(
            ends, fit.intercept + fit.slope * ends, color="black", linewidth=0.8, label=f"r = {fit.rvalue:.2f}"
        )
    axes[2].set(xlabel="nucleus volume (µm³)", ylabel="puncta per nucleus (> 0)")
    axes[2].legend(frameon=False, fontsize=4)
    figures.panel_letters(axes)
    figures.save_figure(figure, job.output_dir / "figures", "puncta_per_nucleus")


def write_report(job: Job, images: int, done: int, table: Delivered) -> None:
    """Write the report; every number of a result is read from the delivered table."""
    report = Report("Puncta per nucleus")
    report.section("Question", "How many GFP puncta does each nucleus have, and do the constructs differ?")
    report.section("Result", f"{len(table.puncta)} nuclei with {int(table.puncta.sum())} puncta in {done} images.")
    rows = []
    for name in table.conditions:
        counts = table.puncta[table.condition == name]
        positive = counts[counts > 0]
        rows.append(
            (
                name,
                len(table.field_means(name)),
                len(counts),
                float(counts.mean()),
                float(np.median(counts)),
                float(np.mean(counts > 0)),
                float(np.median(positive)) if positive.size else float("nan"),
                float(np.mean(table.share[(table.condition == name) & (table.puncta > 0)])) if positive.size else 0.0,
            )
        )
    columns = [
        "condition",
        "images",
        "nuclei",
        "mean",
        "median",
        "share with puncta",
        "median of those",
        "GFP share in them",
    ]
    report.table(columns, rows)
    groups = [table.puncta[table.condition == name] for name in table.conditions]
    if len(groups) > 1 and any(np.ptp(group) > 0 for group in groups):
        test = stats.kruskal(*groups)
        report.text(f"Kruskal-Wallis over nuclei: H = {test.statistic:.2f}, p = {test.pvalue:.3g}.")
        report.table(["pair", "Dunn z", "p (Holm)"], dunn(table.conditions, groups))
    report.text("Means per image, the independent unit:")
    report.bullets(*(f"{name}: {Summary.of(table.field_means(name)).text()} images" for name in table.conditions))
    report.section("Method")
    report.bullets(
        f"Nuclei: Hoechst smoothed with {NUCLEUS_SMOOTHING_UM:g} µm, square root, Otsu's threshold in 3D; footprint in "
        f"the plane split where a neck is {PASS_UM:g} µm narrower than the narrower side; inner radius at least "
        f"{0.7 * LEAST_RADIUS_UM:.1f} µm. One layer of nuclei is assumed. Nuclei at the edge are kept.",
        f"Puncta: difference of Gaussians ({SPOT_UM[0]:g} µm along z, {SPOT_UM[1]:g} µm in the plane, and 1.6 times "
        f"that), maxima among 26 neighbours, accepted above {SPOT_NOISE:g} noise SD (from the lower side of the "
        f"nucleus's own values) and above {SPOT_CONTRAST:g} of its median level over the camera offset.",
        "Volume of puncta: voxels above half of the peak, in the filtered image.",
    )
    report.section("Quality control")
    report.failures(job.failures, images, "images")
    report.text("Overlays of the first image of each condition show outlines and accepted puncta.")
    report.section("Caveats")
    report.bullets(
        "Puncta closer than the resolution count as one; counts in the most crowded nuclei are lower limits.",
        "Nuclei of one image are not independent; tests over nuclei overstate the certainty.",
        "Nuclei on top of each other would be taken for one.",
    )
    report.section(
        "Files",
        "`cell_quants.csv`: nuclei. `supporting/puncta.tsv`: places of puncta. `overlays/`, `figures/`.",
    )
    report.write(job.output_dir / "report.md")


def dunn(names: Sequence[str], groups: Sequence[npt.NDArray[np.float64]]) -> list[tuple[str, float, str]]:
    """Return Dunn's test of all pairs after Kruskal-Wallis, with ties, p adjusted by Holm."""
    values = np.concatenate(groups)
    ranks = stats.rankdata(values)
    ends = np.cumsum([0, *(len(group) for group in groups)])
    means = [ranks[low:high].mean() for low, high in pairwise(ends)]
    total = len(values)
    _, ties = np.unique(values, return_counts=True)
    variance = total * (total + 1) / 12 - float((ties**3 - ties).sum()) / (12 * (total - 1))
    found = []
    for one, two in combinations(range(len(groups)), 2):
        spread = np.sqrt(variance * (1 / len(groups[one]) + 1 / len(groups[two])))
        z = (means[one] - means[two]) / max(spread, 1e-12)
        found.append((f"{names[one]} – {names[two]}", float(z), float(2 * stats.norm.sf(abs(z)))))
    adjusted: list[tuple[str, float, str]] = []
    highest = 0.0
    for place, (pair, z, p) in enumerate(sorted(found, key=lambda entry: entry[2])):
        highest = max(highest, min(1.0, p * (len(found) - place)))
        adjusted.append((pair, z, f"{highest:.3g}"))
    return adjusted
