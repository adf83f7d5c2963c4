"""Segment cells from their membranes in 3D: ridges, basins between them, and a merge across faint faces.

The volume is averaged to near-cubic voxels. Membranes are ridges of the brightness (after a square root, which evens
out photon noise). Basins of the distance to membranes seed a watershed that deliberately divides too much; regions are
then merged across faces on which the ridge is faint, the faintest first. What touches the edge of the volume with much
of its surface is outside; what is far smaller than a cell is a lumen or a fragment.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tifffile
from scipy import ndimage as ndi
from skimage.measure import marching_cubes, mesh_surface_area
from skimage.segmentation import watershed

from . import _figures as figures
from ._io import list_images, stem, write_labels, write_table
from ._job import Job
from ._report import Report, Summary, number
from ._segment import otsu
from ._volumes import (
    Grid,
    Labels,
    Spacing,
    Volume,
    deep_basins,
    distance_um,
    faces_between,
    find_voxel_size,
    merge_across,
    ridge_strength,
)

SMOOTH_UM = 0.12  # grain of the deconvolution
RIDGE_UM = 0.21  # half the width at which a membrane appears
LEAST_DEPTH_UM = 0.25  # of a basin, and what keeps two of them apart
PASS_UM = 0.12
CERTAIN = 0.7  # faces fainter than this share of the limit are no membrane, whatever the size of the cells
SMALLEST = 0.1  # share of the median cell volume
EDGE_SHARE = 0.3  # of the surface, above which a region lies outside


COLUMNS = (
    "sample_id",
    "cell_id",
    "centroid_z",
    "centroid_y",
    "centroid_x",
    "volume_voxels",
    "volume_um3",
    "surface_area_um2",
    "sphericity",
    "aspect_ratio",
    "elongation",
    "longest_extension_um",
    "roundness",
    "semi_axis_1_um",
    "semi_axis_2_um",
    "semi_axis_3_um",
    "direction_z",
    "direction_y",
    "direction_x",
    "at_edge",
    "weakest_contact",
)

Cells = list[dict[str, Any]]


@dataclass(frozen=True)
class Sample:
    """One stack that was delivered."""

    path: Path
    labels: Path
    spacing_um: Spacing
    spacing_source: str
    limit: float
    regions: int
    faintest: npt.NDArray[np.float64]

    @property
    def name(self) -> str:
        return stem(self.path).split("_")[0]


@dataclass(frozen=True)
class Segmentation:
    """Labels of one stack and how they came about.

    Attributes
    ----------
    labels
        On the full grid, 1 to n.
    limit
        Ridge strength that separates membrane from no membrane.
    regions
        Number of regions before merging.
    faintest
        Mean ridge strength of the faintest face of each cell towards another one, over the limit; by label, from 1.
    """

    labels: npt.NDArray[np.uint16]
    limit: float
    regions: int
    faintest: npt.NDArray[np.float64]


def run(job: Job) -> None:
    """Segment every stack, measure its cells, then draw figures and report."""
    paths = list_images(job.input_dir, (".tif", ".tiff"))
    job.log(f"{len(paths)} stacks")
    done: list[Sample] = []
    for path in paths:
        with job.attempt(path.name):
            stack = read_stack(path)
            spacing, source = find_voxel_size(path, job.instruction)
            result = segment(stack, spacing)
            target = job.output_dir / f"{stem(path)}_seg.tif"
            write_labels(target, result.labels)
            done.append(Sample(path, target, spacing, source, result.limit, result.regions, result.faintest))
            job.log(f"{path.name}: {int(result.labels.max())} cells")
    job.delivered = len(done)
    table = job.output_dir / "cell_morphometrics.csv"
    rows: list[Sequence[object]] = []
    for sample in done:
        with job.attempt(f"{sample.path.name}, measurements"):
            rows += measure(sample, tifffile.imread(sample.labels))
    write_table(table, COLUMNS, rows, delimiter=",")
    cells = read_table(table)
    for sample in done:
        with job.attempt(f"{sample.path.name}, overlay"):
            draw_sections(job, sample, tifffile.imread(sample.labels))
    with job.attempt("figures"):
        draw_features(job, done, cells)
    write_report(job, paths, done, cells)


def read_stack(path: Path) -> npt.NDArray[np.generic]:
    """Read one stack as ``(z, y, x)``."""
    stack = np.squeeze(tifffile.imread(path))
    if stack.ndim != 3 or min(stack.shape) < 5:
        raise ValueError(f"{path.name}: expected a stack (z, y, x), found an array of shape {stack.shape}")
    return stack


# --- segmentation -----------------------------------------------------------------------------------------------


def segment(stack: npt.NDArray[np.generic], spacing_um: Spacing) -> Segmentation:
    """Segment the cells of one stack."""
    grid = Grid.near_cubic(stack.shape, spacing_um)
    light = np.sqrt(np.maximum(ndi.gaussian_filter(grid.reduce(stack), grid.voxels(SMOOTH_UM)), 0.0))
    ridge = ridge_strength(light, grid.voxels(RIDGE_UM))
    walls = ridge > 0.7 * otsu(ridge)
    depth = ndi.gaussian_filter(distance_um(walls, grid.spacing_um), 0.7)
    basins, summits = deep_basins(depth, LEAST_DEPTH_UM, PASS_UM)
    seeds = np.where(depth >= 0.6 * summits[basins], basins, 0)
    regions = watershed(light + 2.0 * ridge, seeds).astype(np.int32)
    del basins, depth, seeds, walls
    faces = faces_between(regions, ridge)
    limit = float(np.exp(otsu(np.log(faces.means[faces.counts > 20] + 1e-3), default=0.0)))
    count = len(np.unique(regions))
    regions = merge_across(regions, faces, CERTAIN * limit)
    regions = _merge_small(regions, ridge, limit)
    cells = _cells(regions)
    faintest = _faintest(cells, ridge) / limit
    return Segmentation(grid.restore(cells).astype(np.uint16), limit, count, faintest)


def _volumes(regions: Labels) -> npt.NDArray[np.int64]:
    return np.bincount(regions.ravel())


def _typical(regions: Labels) -> float:
    """Return the median volume of the regions that can be cells: not at the edge, not fragments."""
    volumes = _volumes(regions)
    inner = np.ones(len(volumes), bool)
    for axis in range(3):
        for end in (0, -1):
            inner[np.unique(np.take(regions, end, axis=axis))] = False
    inner[0] = False
    sizes = volumes[inner & (volumes > 0)]
    if not len(sizes):
        return float(np.median(volumes[1:])) if len(volumes) > 1 else 1.0
    sizes = np.sort(sizes)[::-1]
    cumulative = np.cumsum(sizes)
    return float(sizes[np.searchsorted(cumulative, 0.5 * cumulative[-1])])  # weighted by volume: fragments do not count


def _merge_small(regions: Labels, ridge: Volume, limit: float) -> Labels:
    """Merge across faces of doubtful strength where a region is too small to be a cell of its own."""
    typical = _typical(regions)
    for _ in range(4):
        volumes = _volumes(regions)
        faces = faces_between(regions, ridge)
        smaller = np.minimum(volumes[faces.pairs[:, 0]], volumes[faces.pairs[:, 1]])
        joint = volumes[faces.pairs].sum(axis=1)
        doubtful = (faces.means < limit) & (smaller < 0.4 * typical) & (joint < 1.8 * typical)
        if not doubtful.any():
            break
        means = np.where(doubtful, faces.means, np.inf)
        best = int(np.argmin(means))
        one, two = faces.pairs[best]
        regions = np.where(regions == two, one, regions).astype(np.int32)
    return regions


def _cells(regions: Labels) -> Labels:
    """Keep the regions that are cells, numbered 1 to n."""
    count = int(regions.max())
    surface = np.zeros(count + 1)
    at_edge = np.zeros(count + 1)
    for axis in range(3):
        region = np.moveaxis(regions, axis, 0)
        differ = region[1:] != region[:-1]
        surface += np.bincount(region[1:][differ], minlength=count + 1)
        surface += np.bincount(region[:-1][differ], minlength=count + 1)
        for end in (region[0], region[-1]):
            at_edge += np.bincount(end.ravel(), minlength=count + 1)
    volumes = _volumes(regions)
    outside = at_edge > EDGE_SHARE * (surface + at_edge)
    outside[int(np.argmax(at_edge))] = True
    kept = np.where(outside[regions], 0, regions)
    typical = _typical(kept)
    keep = ~outside & (volumes > SMALLEST * typical)
    keep[0] = False
    names = np.zeros(count + 1, np.int32)
    names[keep] = np.arange(1, keep.sum() + 1)
    return names[regions]


def _faintest(cells: Labels, ridge: Volume) -> npt.NDArray[np.float64]:
    faces = faces_between(cells, ridge)
    faintest = np.full(int(cells.max()) + 1, np.nan)
    for (one, two), mean, size in zip(faces.pairs.tolist(), faces.means.tolist(), faces.counts.tolist(), strict=True):
        if size > 20:
            for cell in (one, two):
                faintest[cell] = np.fmin(faintest[cell], mean)
    return faintest[1:]


# --- measurements -----------------------------------------------------------------------------------------------


def measure(sample: Sample, labels: npt.NDArray[np.integer]) -> list[Sequence[object]]:
    """Measure every cell of a delivered label volume; one row per cell, in the order of :data:`COLUMNS`."""
    spacing = np.array(sample.spacing_um)
    factors = Grid.near_cubic(labels.shape, sample.spacing_um).factors
    rows: list[Sequence[object]] = []
    for cell, box in enumerate(ndi.find_objects(labels), start=1):
        if box is None:
            continue
        inside = labels[box] == cell
        points = np.argwhere(inside)
        middle = points.mean(axis=0)
        offsets = (points - middle) * spacing
        volume = len(points) * float(np.prod(spacing))
        moments = np.cov(offsets.T, bias=True) + np.diag(spacing**2) / 12.0
        axes = np.sqrt(5.0 * np.sort(np.linalg.eigvalsh(moments))[::-1])  # of the ellipsoid with these moments
        lengths = np.sqrt((offsets**2).sum(axis=1))
        farthest = int(np.argmax(lengths))
        direction = offsets[farthest] / max(float(lengths[farthest]), 1e-9)
        area = surface_area(inside, sample.spacing_um, factors)
        touches = any(part.start == 0 or part.stop == n for part, n in zip(box, labels.shape, strict=True))
        ellipsoid = 4.0 / 3.0 * np.pi * float(np.prod(axes))
        rows.append(
            (
                sample.name,
                cell,
                *(float(m + part.start) for m, part in zip(middle, box, strict=True)),
                len(points),
                volume,
                area,
                np.pi ** (1 / 3) * (6.0 * volume) ** (2 / 3) / area,
                float(axes[0] / axes[2]),
                float(axes[0] / axes[1]),
                float(lengths[farthest]),
                _inside_ellipsoid(offsets, moments) * volume / ellipsoid,
                *(float(axis) for axis in axes),
                *(float(part) for part in direction),
                int(touches),
                float(sample.faintest[cell - 1]),
            )
        )
    return rows


def _inside_ellipsoid(offsets: npt.NDArray[np.float64], moments: npt.NDArray[np.float64]) -> float:
    """Return the share of a cell that lies in the ellipsoid of its own second moments."""
    squared = np.einsum("ni,ij,nj->n", offsets, np.linalg.inv(5.0 * moments), offsets)
    return float(np.mean(squared <= 1.0))


def surface_area(inside: npt.NDArray[np.bool_], spacing_um: Spacing, factors: Sequence[int]) -> float:
    """Return the area of a body's surface in µm², by marching cubes on a slightly smoothed near-cubic copy."""
    body = np.pad(inside, [(factor, 2 * factor) for factor in factors])
    steps = tuple(step * factor for step, factor in zip(spacing_um, factors, strict=True))
    cut = body[tuple(slice(0, length // factor * factor) for length, factor in zip(body.shape, factors, strict=True))]
    blocks = [part for length, factor in zip(cut.shape, factors, strict=True) for part in (length // factor, factor)]
    smooth = ndi.gaussian_filter(np.pad(cut.reshape(blocks).mean(axis=(1, 3, 5)), 2), 0.7)
    if smooth.max() <= 0.5:
        return float("nan")
    corners, triangles, _, _ = marching_cubes(smooth, 0.5, spacing=steps)
    return float(mesh_surface_area(corners, triangles))


def read_table(path: Path) -> Cells:
    """Read the delivered table back."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {key: value if key == "sample_id" else float(value or "nan") for key, value in row.items()}
            for row in csv.DictReader(file)
        ]


# --- figures ----------------------------------------------------------------------------------------------------


def draw_sections(job: Job, sample: Sample, labels: npt.NDArray[np.integer]) -> None:
    """Draw raw and outlined sections along all three planes, each with its own scale bar."""
    stack = np.squeeze(tifffile.imread(sample.path))
    filled = (labels > 0).sum(axis=(1, 2))
    planes = np.flatnonzero(filled > 0.3 * filled.max()) if filled.any() else np.arange(labels.shape[0])
    low, high = int(planes[len(planes) // 4]), int(planes[3 * len(planes) // 4])
    dz, dy, dx = sample.spacing_um
    views = [
        (f"xy, z = {low * dz:.1f} µm", stack[low], labels[low], dx),
        (f"xy, z = {high * dz:.1f} µm", stack[high], labels[high], dx),
        (
            "xz, middle",
            _stretched(stack[:, stack.shape[1] // 2], dz / dx),
            _stretched(labels[:, labels.shape[1] // 2], dz / dx),
            dx,
        ),
        (
            "yz, middle",
            _stretched(stack[:, :, stack.shape[2] // 2], dz / dy),
            _stretched(labels[:, :, labels.shape[2] // 2], dz / dy),
            dy,
        ),
    ]
    figure = figures.new_figure(180, 150)
    axes = figure.subplots(4, 2, height_ratios=[view[1].shape[0] / view[1].shape[1] for view in views])
    for (title, image, cells, pixel), (left, right) in zip(views, axes, strict=True):
        rgb = figures.to_rgb(image, high=99.8, gamma=0.7)
        figures.show_image(left, rgb, figures.Scale(pixel), f"{title}: image")
        figures.show_image(
            right, figures.draw_outlines(rgb, [(cells, figures.ORANGE)]), figures.Scale(pixel), "cell outlines"
        )
    figures.save_figure(figure, job.output_dir / "figures", f"{stem(sample.path)}_sections")


def _stretched(section: npt.NDArray[Any], ratio: float) -> npt.NDArray[Any]:
    """Repeat the rows of a section so that its pixels are about square."""
    rows = np.minimum((np.arange(round(section.shape[0] * ratio)) / ratio).astype(int), section.shape[0] - 1)
    return np.asarray(section[rows])


def draw_features(job: Job, done: Sequence[Sample], cells: Cells) -> None:
    """Plot the distributions of the measurements per embryo, and how clear the weakest contact of each cell is."""
    shown = [
        ("volume_um3", "volume (µm³)"),
        ("surface_area_um2", "surface area (µm²)"),
        ("sphericity", "sphericity"),
        ("aspect_ratio", "longest / shortest axis"),
        ("longest_extension_um", "longest extension (µm)"),
        ("weakest_contact", "weakest contact / limit"),
    ]
    figure = figures.new_figure(180, 105)
    axes = figure.subplots(2, 3).ravel()
    names = [sample.name for sample in done]
    rng = np.random.default_rng(0)
    for axis, (column, label) in zip(axes, shown, strict=True):
        for place, name in enumerate(names):
            values = [
                c[column] for c in cells if c["sample_id"] == name and (not c["at_edge"] or column == "weakest_contact")
            ]
            values = [value for value in values if np.isfinite(value)]
            if len(values) > 1:
                parts = axis.violinplot([values], [place], widths=0.8, showextrema=False)
                parts["bodies"][0].set_facecolor(figures.hexadecimal(figures.SKY))
            axis.scatter(
                place + rng.uniform(-0.12, 0.12, len(values)), values, s=5, color=figures.hexadecimal(figures.BLUE)
            )
            axis.plot([place - 0.3, place + 0.3], [np.median(values or [np.nan])] * 2, color="black", linewidth=1.2)
        axis.set_xticks(range(len(names)), names, rotation=20)
        axis.set_ylabel(label)
    axes[-1].axhline(1.0, color="black", linestyle="--", linewidth=0.8)
    figures.panel_letters(axes)
    figures.save_figure(figure, job.output_dir / "figures", "cell_shapes")


# --- report -----------------------------------------------------------------------------------------------------


def write_report(job: Job, paths: Sequence[Path], done: Sequence[Sample], cells: Cells) -> None:
    """Write the report; every number in it is read from the delivered table."""
    report = Report("Cells of a migrating cluster in three dimensions")
    report.section(
        "Question",
        "Where is each cell of the cluster, and what shape has it? Membranes are labelled, contacts differ in "
        "brightness, "
        "leaders are flat and followers tall and drawn together into rosettes.",
    )
    inner = [cell for cell in cells if not cell["at_edge"]]
    report.section(
        "Result",
        f"{len(cells)} cells in {len(done)} of {len(paths)} stacks; {len(cells) - len(inner)} of them are cut by "
        "the edge of the volume.",
    )
    rows = []
    for sample in done:
        own = [cell for cell in inner if cell["sample_id"] == sample.name]
        total = sum(cell["sample_id"] == sample.name for cell in cells)
        rows.append(
            (
                sample.name,
                total,
                len(own),
                *(
                    float(np.median([cell[key] for cell in own] or [np.nan]))
                    for key in ("volume_um3", "surface_area_um2", "sphericity", "aspect_ratio", "longest_extension_um")
                ),
            )
        )
    report.table(
        [
            "embryo",
            "cells",
            "whole cells",
            "volume (µm³)",
            "area (µm²)",
            "sphericity",
            "aspect ratio",
            "extension (µm)",
        ],
        rows,
    )
    report.text("Medians over the cells that lie wholly inside the volume. Over embryos (the unit of replication):")
    for place, label, unit in (
        (3, "median volume", "µm³"),
        (5, "median sphericity", ""),
        (6, "median aspect ratio", ""),
    ):
        report.text(f"{label}: {Summary.of(float(row[place]) for row in rows).text(unit)} embryos.")
    report.section("Method")
    spacing = done[0].spacing_um if done else (float("nan"),) * 3
    source = done[0].spacing_source if done else "no stack"
    report.bullets(
        f"Voxel size (z, y, x): {' × '.join(f'{step:g}' for step in spacing)} µm, from {source}. "
        "Work is done on blocks averaged to near-cubic voxels; labels are brought back to the full grid.",
        f"Membranes: brightness smoothed by {SMOOTH_UM:g} µm (grain of deconvolution), square root (evens out "
        "photon noise), "
        f"ridge strength = largest downward curvature at {RIDGE_UM:g} µm (half the width at which a membrane "
        "appears). Ridges do not depend on the "
        "local background, so that loss with depth and haze matter little.",
        f"Regions: basins of the distance to membranes that are at least {LEAST_DEPTH_UM:g} µm deep and parted by "
        f"{PASS_UM:g} µm seed a watershed on "
        "brightness and ridge strength. This divides too much on purpose.",
        "Merging: mean ridge strength on each shared face, faintest first; the limit is Otsu's threshold on the "
        "logarithm over all faces of a stack. "
        f"Below {CERTAIN:g} of it faces are dissolved whatever they part; up to the limit only where one side is "
        "too small to be a cell.",
        f"Outside: regions with more than {EDGE_SHARE:.0%} of their surface on the edge of the volume. Below "
        f"{SMALLEST:g} of the typical cell volume "
        "a region is a lumen, vesicle or fragment and becomes background.",
        "Shape: volume from voxels; area by marching cubes on near-cubic voxels smoothed by 0.7 voxel; "
        "sphericity π^(1/3)(6V)^(2/3)/A; semi-axes of the ellipsoid "
        "with the same second moments; aspect ratio longest to shortest, elongation longest to middle; extension "
        "from the centroid to the farthest "
        "voxel and its direction; roundness = volume of the cell inside that ellipsoid over the ellipsoid's volume.",
    )
    report.table(
        ["embryo", "regions before merging", "limit of ridge strength", "cells"],
        [(s.name, s.regions, s.limit, sum(cell["sample_id"] == s.name for cell in cells)) for s in done],
    )
    report.section("Quality control")
    report.failures(job.failures, len(paths), "stacks and steps")
    for sample in done:
        own = [cell for cell in cells if cell["sample_id"] == sample.name]
        typical = float(np.median([cell["volume_um3"] for cell in own] or [np.nan]))
        large = sum(cell["volume_um3"] > 2.2 * typical for cell in own)
        doubtful = sum(cell["weakest_contact"] < 1.0 for cell in own)
        flagged = "; more than a tenth, look at it" if large + doubtful > 0.1 * max(len(own), 1) else ""
        report.text(
            f"{sample.name}: {large} cells exceed 2.2 median volumes (possibly merged); {doubtful} have a contact "
            "fainter than the limit "
            f"(possibly split){flagged}."
        )
    report.text("Sections along three planes with outlines: `figures/*_sections`.")
    report.section("Caveats")
    report.bullets(
        "Contacts that are dark over most of their area cannot be seen; such neighbours come out as one cell.",
        "Outlines follow the near-cubic grid and are exact to about one of its voxels "
        f"({number(max(spacing))} µm); sphericity of small cells suffers most.",
        "Cells cut by the edge of the volume are labelled and marked (`at_edge`), and left out of summaries of shape.",
        "Cells of one embryo are not independent: compare embryos, not cells.",
    )
    report.section(
        "Files",
        "`<stack>_seg.tif`: labels. `cell_morphometrics.csv`: one row per cell. `figures/`: sections, "
        "distributions (PNG, SVG).",
    )
    report.write(job.output_dir / "report.md")
