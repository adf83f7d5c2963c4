"""Measure how a labelled pore protein gathers on the daughter nuclei of dividing cells, in 3D over time.

Onset is the first frame in which the DNA has parted for good. From then on both daughters are followed; the envelope is
a thin shell around the DNA, from which the levels of cytoplasm and nucleoplasm are subtracted, and its inner core is
the patch that faces the sister.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import edt
import numpy as np
import numpy.typing as npt
import openpyxl
import tifffile
from scipy import ndimage as ndi
from scipy import stats
from skimage.measure import marching_cubes, mesh_surface_area
from skimage.segmentation import watershed

from . import _figures as figures
from ._io import frame_interval_seconds, list_images, pixel_size_um
from ._job import Job
from ._report import Report, Summary
from ._segment import otsu
from ._volumes import voxel_size

Volume = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
Array = npt.NDArray[np.float64]
Spacing = tuple[float, float, float]

SMOOTHING_UM = 0.35
LEAST_UM3 = 8.0  # a mass of chromosomes has more
LEAST_SHARE = 0.25  # of the DNA in the smaller of two daughters
STAYS = 3  # frames for which two masses must stay two
SHELL_UM = 0.65  # to either side of the DNA's border
OUTSIDE_UM = (0.9, 1.8)  # where cytoplasm is measured
INSIDE_UM = 1.0  # so deep lies nucleoplasm
BLUR_UM = 0.25  # over which both levels pass into each other
CORE_UM = 1.5  # radius of the inner core at onset
MEASURES = ("volume", "surface", "core", "noncore")
HEADERS = {
    "volume": "Volume_Nucleus_{} (um3)",
    "surface": "SurfaceArea_Nucleus_{} (um2)",
    "core": "Normalized_total_Intensity_InnerCore_{}",
    "noncore": "Normalized_total_Intensity_NonCore_{}",
}


@dataclass(frozen=True)
class Movie:
    """One movie: ``(t, z, c, y, x)`` values, voxel size in µm, minutes per frame."""

    path: Path
    values: npt.NDArray[np.generic]
    spacing: Spacing
    minutes: float

    @property
    def factor(self) -> int:
        """How many planes stand for one, to come near cubic voxels."""
        return max(1, round(self.spacing[0] / self.spacing[2]))

    @property
    def fine(self) -> Spacing:
        """Voxel size after interpolation."""
        return (self.spacing[0] / self.factor, self.spacing[1], self.spacing[2])

    def channel(self, frame: int, channel: int) -> Volume:
        """Return one channel of a frame on nearly cubic voxels."""
        volume = self.values[frame, :, channel].astype(np.float32)
        planes = volume.shape[0]
        position = np.clip((np.arange(planes * self.factor) + 0.5) / self.factor - 0.5, 0, planes - 1)
        low = np.minimum(position.astype(int), max(planes - 2, 0))
        share = (position - low).astype(np.float32)[:, None, None]
        return np.asarray(volume[low] * (1 - share) + volume[np.minimum(low + 1, planes - 1)] * share)


@dataclass
class Course:
    """What was measured in one movie: onset (frame from 0) and, per measure, ``(frames, 2)`` with NaN before onset."""

    name: str
    onset: int
    minutes: Array
    curves: dict[str, Array]
    outlines: dict[int, tuple[Volume, Labels, Labels]]  # some frames: GFP plane, nuclei, inner core


def run(job: Job) -> None:
    """Measure movie by movie, each into its workbook, then figures and report."""
    paths = list_images(job.input_dir, (".tif", ".tiff"))
    courses: list[Course] = []
    scale = figures.Scale(None)
    for path in paths:
        with job.attempt(path.name):
            movie = read_movie(path, job.instruction)
            scale = figures.Scale(movie.spacing[2])
            course = measure_movie(movie)
            write_workbook(job.output_dir / f"{path.stem}.xlsx", course)
            courses.append(course)
            job.log(f"{path.name}: onset in frame {course.onset + 1} of {len(course.minutes)}")
    job.delivered = len(courses)
    delivered = {course.name: read_workbook(job.output_dir / f"{course.name}.xlsx") for course in courses}
    with job.attempt("overlays"):
        draw_overlays(job, courses, scale)
    with job.attempt("figures"):
        draw_figures(job, delivered)
    write_report(job, paths, delivered)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_movie(path: Path, instruction: str) -> Movie:
    """Read a movie with its voxel size and interval, from the file's metadata, else from the request."""
    with tifffile.TiffFile(path) as file:
        series = file.series[0]
        axes, values = series.axes, series.asarray()
        step = (file.imagej_metadata or {}).get("spacing")
    if set("TZCYX") <= set(axes):
        values = np.moveaxis(values, [axes.index(axis) for axis in "TZCYX"], range(5)).reshape(
            [values.shape[axes.index(axis)] for axis in "TZCYX"]
        )
    if values.ndim != 5 or values.shape[2] < 2:
        raise ValueError(f"expected time, z, two channels, y and x, found {axes} {values.shape}")
    pixel = pixel_size_um(path)
    spacing = None if pixel is None or step is None else (float(step), pixel, pixel)
    spacing = spacing or voxel_size(instruction)
    if spacing is None:
        raise ValueError("no voxel size in the file or in the request")
    seconds = frame_interval_seconds(path)
    if seconds is None:
        stated = re.search(r"every (\d+(?:\.\d+)?) seconds|(\d+(?:\.\d+)?) s\b", " ".join(instruction.split()))
        if stated is None:
            raise ValueError("no frame interval in the file or in the request")
        seconds = float(stated[1] or stated[2])
    return Movie(path, values, spacing, seconds / 60.0)


# --- analysis ---------------------------------------------------------------------------------------------------------


def measure_movie(movie: Movie) -> Course:
    """Find the onset and measure both daughters from then on."""
    frames = len(movie.values)
    onset = find_onset([len(dna_masses(movie, frame, fine=False)[2]) for frame in range(frames)])
    curves = {name: np.full((frames, 2), np.nan) for name in MEASURES}
    outlines: dict[int, tuple[Volume, Labels, Labels]] = {}
    shown = {onset, onset + (frames - onset) // 4, onset + (frames - onset) // 2, frames - 1}
    offset = float(np.percentile(np.asarray(movie.values[:, :, 0], np.float32), 0.5))
    unit = cytoplasm_before(movie, onset, offset) - offset
    centres: Array | None = None
    first: dict[int, float] = {}
    for frame in range(onset, frames):
        dna, masses, large = dna_masses(movie, frame)
        labels = two_nuclei(masses, large, centres, movie.fine)
        if labels is None:
            continue
        labels = half_height(dna, labels, movie.fine)
        own = np.array([ndi.center_of_mass(labels == n) for n in (1, 2)]) * movie.fine
        if centres is not None and _crossed(own, centres):
            labels = np.where(labels > 0, 3 - labels, 0).astype(np.int32)
            own = own[::-1]
        centres = own
        gfp = movie.channel(frame, 0)
        core_labels = np.zeros_like(labels)
        for n in (1, 2):
            inside = labels == n
            volume = float(inside.sum()) * float(np.prod(movie.fine))
            surface = surface_um2(inside, movie.fine)
            first.setdefault(n, surface)
            reach = CORE_UM * float(np.sqrt(surface / first[n]))
            core, rest, patch = envelope(gfp, labels, n, centres, reach, offset, movie.fine)
            core_labels[patch] = n
            scale = float(np.prod(movie.fine)) / max(unit, 1e-6)
            for name, value in zip(MEASURES, (volume, surface, core * scale, rest * scale), strict=True):
                curves[name][frame, n - 1] = value
        if frame in shown:
            middle = round(float(centres[:, 0].mean()) / movie.fine[0])
            middle = min(max(middle, 0), labels.shape[0] - 1)
            outlines[frame] = (gfp[middle], labels[middle], core_labels[middle])
    minutes = np.asarray((np.arange(frames) - onset) * movie.minutes, np.float64)
    return Course(movie.path.stem, onset, minutes, curves, outlines)


def dna_masses(movie: Movie, frame: int, *, fine: bool = True) -> tuple[Volume, Labels, list[int]]:
    """Return smoothed DNA of a frame, its labelled masses, and the labels of those that can be the cell's own."""
    step = movie.fine if fine else movie.spacing
    raw = movie.channel(frame, 1) if fine else movie.values[frame, :, 1].astype(np.float32)
    dna = ndi.gaussian_filter(raw, [SMOOTHING_UM / s for s in step])
    labels, count = ndi.label(dna > otsu(dna))
    sizes = np.bincount(labels.ravel(), minlength=count + 1)[1:]
    voxel = float(np.prod(step))
    large = [n + 1 for n in np.argsort(-sizes)[:2] if sizes[n] * voxel > LEAST_UM3]
    if len(large) == 2 and sizes[large[1] - 1] < LEAST_SHARE * (sizes[large[0] - 1] + sizes[large[1] - 1]):
        large = large[:1]
    return dna, labels.astype(np.int32), large


def half_height(dna: Volume, labels: Labels, spacing: Spacing) -> Labels:
    """Redraw both nuclei at half of their own brightness, as one threshold fits only one of two that differ."""
    result = np.zeros_like(labels)
    background = float(np.percentile(dna, 20))
    for n in (1, 2):
        box = around(labels == n, 1.0, spacing)
        own, image = labels[box], dna[box]
        inside = own == n
        depth = edt.edt(inside, anisotropy=spacing)
        level = float(np.median(image[depth > 0.5 * depth.max()]))
        near = edt.edt(~inside, anisotropy=spacing) < 0.8
        mask = near & ((own == n) | (own == 0)) & (image > background + 0.5 * (level - background))
        pieces, count = ndi.label(mask)
        if count == 0:
            pieces, mask = inside.astype(np.int32), inside
        largest = 1 + int(np.argmax(np.bincount(pieces.ravel())[1:]))
        result[box][ndi.binary_fill_holes(pieces == largest)] = n
    return result


def around(mask: Mask, margin_um: float, spacing: Spacing) -> tuple[slice, ...]:
    """Return the bounding box of a mask with a margin."""
    box = ndi.find_objects(mask.astype(np.int8))[0]
    margins = [int(np.ceil(margin_um / step)) for step in spacing]
    return tuple(slice(max(0, part.start - m), part.stop + m) for part, m in zip(box, margins, strict=True))


def find_onset(counts: Sequence[int]) -> int:
    """Return the first frame with two masses that stay two."""
    for frame in range(len(counts)):
        ahead = counts[frame : frame + 1 + STAYS]
        if all(count == 2 for count in ahead):
            return frame
    raise ValueError("the chromosomes never part")


def two_nuclei(labels: Labels, large: Sequence[int], before: Array | None, spacing: Spacing) -> Labels | None:
    """Return the two daughters as 1 and 2; where they touch, they are cut between the places of the frame before."""
    if len(large) == 2:
        return np.where(labels == large[0], 1, np.where(labels == large[1], 2, 0)).astype(np.int32)
    if len(large) == 0 or before is None:
        return None
    mask = labels == large[0]
    depth = edt.edt(mask, anisotropy=spacing)
    markers = np.zeros(mask.shape, np.int32)
    for n, centre in enumerate(before, start=1):
        place = tuple(np.clip(np.rint(centre / np.array(spacing)).astype(int), 0, np.array(mask.shape) - 1))
        markers[place] = n
    return np.asarray(watershed(-depth, markers, mask=mask), np.int32)


def _crossed(own: Array, before: Array) -> bool:
    kept = np.linalg.norm(own - before, axis=1).sum()
    return bool(np.linalg.norm(own[::-1] - before, axis=1).sum() < kept)


def surface_um2(inside: Mask, spacing: Spacing) -> float:
    """Return the area of a triangulated surface, on the slightly smoothed mask."""
    smooth = ndi.gaussian_filter(
        np.pad(inside[around(inside, 0.0, spacing)], 3).astype(np.float32), [0.25 / step for step in spacing]
    )
    vertices, faces, _, _ = marching_cubes(smooth, 0.5, spacing=spacing)
    return float(mesh_surface_area(vertices, faces))


def envelope(
    gfp: Volume, labels: Labels, own: int, centres: Array, reach_um: float, dark: float, spacing: Spacing
) -> tuple[float, float, Mask]:
    """Return the light of inner core and rest above background, summed over voxels, and the patch of the inner core."""
    shape, box = labels.shape, around(labels == own, 2.2, spacing)
    start = np.array([part.start for part in box]) * np.array(spacing)
    gfp, labels, centres = gfp[box], labels[box], centres - start
    inside = labels == own
    distance = np.where(
        inside, -edt.edt(inside, anisotropy=spacing), edt.edt(~inside, anisotropy=spacing)
    ) + 0.5 * spacing[2] * np.where(inside, 1, -1)
    other = (labels > 0) & ~inside
    free = edt.edt(~other, anisotropy=spacing) > OUTSIDE_UM[0]
    ring = free & (distance > OUTSIDE_UM[0]) & (distance < OUTSIDE_UM[1])
    deep = distance < -INSIDE_UM
    if deep.sum() < 20:
        deep = distance < 0.6 * float(distance.min())
    cytoplasm, nucleoplasm = inside_cell(gfp, ring, dark), float(np.mean(gfp[deep]))
    share = 1.0 / (1.0 + np.exp(-distance / (0.6 * BLUR_UM)))
    excess = gfp - (share * cytoplasm + (1.0 - share) * nucleoplasm)
    shell = np.abs(distance) < SHELL_UM
    axis = centres[2 - own] - centres[own - 1]
    axis = axis / np.linalg.norm(axis)
    grids = np.meshgrid(
        *(np.arange(n) * s for n, s in zip(gfp.shape, spacing, strict=True)), indexing="ij", sparse=True
    )
    offsets = [grid - centre for grid, centre in zip(grids, centres[own - 1], strict=True)]
    along = sum(a * o for a, o in zip(axis, offsets, strict=True))
    across = np.sqrt(np.maximum(sum(o**2 for o in offsets) - along**2, 0.0))
    patch = shell & (along > 0) & (across < reach_um)
    full = np.zeros(shape, bool)
    full[box] = patch
    return float(excess[patch].sum()), float(excess[shell & ~patch].sum()), full


def inside_cell(gfp: Volume, ring: Mask, dark: float) -> float:
    """Return the mean of GFP in the part of a ring that lies inside the cell, not beyond its edge."""
    smooth = ndi.uniform_filter(gfp, 5)
    typical = float(np.percentile(smooth[ring], 75))
    return float(np.mean(gfp[ring & (smooth > dark + 0.75 * (typical - dark))]))


def cytoplasm_before(movie: Movie, onset: int, dark: float) -> float:
    """Return the level of cytoplasm around the chromosomes before onset (at onset where nothing lies before)."""
    levels = []
    for frame in range(max(0, onset - 4), max(onset, 1)):
        distance = edt.edt(dna_masses(movie, frame)[1] == 0, anisotropy=movie.fine)
        gfp = movie.channel(frame, 0)
        levels.append(inside_cell(gfp, (distance > OUTSIDE_UM[0]) & (distance < OUTSIDE_UM[1]), dark))
    return float(np.mean(levels))


# --- output -----------------------------------------------------------------------------------------------------------


def write_workbook(path: Path, course: Course) -> None:
    """Write the table of one movie."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = course.name[:31]
    sheet.append(
        ["Time Point", "Time after anaphase onset (min)"]
        + [HEADERS[name].format(n) for n in (1, 2) for name in MEASURES]
    )
    for frame, minutes in enumerate(course.minutes.tolist()):
        values = [float(course.curves[name][frame, n]) for n in (0, 1) for name in MEASURES]
        sheet.append([frame + 1, minutes, *(None if np.isnan(value) else round(value, 4) for value in values)])
    book.save(path)


@dataclass(frozen=True)
class Delivered:
    """One delivered table, read back: frames from 1, minutes, and ``(frames, 2)`` per measure."""

    frames: Array
    minutes: Array
    curves: dict[str, Array]

    @property
    def onset(self) -> int:
        """Number of the onset frame."""
        return int(self.frames[int(np.argmin(np.abs(self.minutes)))])

    def half_time(self, measure: str, daughter: int) -> float:
        """Minutes at which a curve first passes half of the mean of its last fifth."""
        curve = self.curves[measure][:, daughter]
        known = np.isfinite(curve)
        values, times = curve[known], self.minutes[known]
        if len(values) < 5:
            return float("nan")
        smooth = ndi.gaussian_filter1d(values, 1.0)
        above = np.flatnonzero(smooth > 0.5 * values[-max(1, len(values) // 5) :].mean())
        return float(times[above[0]]) if len(above) else float("nan")


def read_workbook(path: Path) -> Delivered:
    """Read a delivered table."""
    rows = list(openpyxl.load_workbook(path, data_only=True).active.iter_rows(values_only=True))
    table = np.array([[np.nan if cell is None else float(cell) for cell in row] for row in rows[1:]])
    columns = {name: table[:, number] for number, name in enumerate(rows[0])}
    curves = {name: np.stack([columns[HEADERS[name].format(n)] for n in (1, 2)], axis=1) for name in MEASURES}
    return Delivered(table[:, 0], table[:, 1], curves)


def draw_overlays(job: Job, courses: Sequence[Course], scale: figures.Scale) -> None:
    """Draw nuclei and inner cores over GFP in selected frames."""
    legend = (("nucleus", figures.SKY), ("inner core", figures.VERMILION))
    for course in courses:
        zoom = 5 if next(iter(course.outlines.values()))[0].shape[1] < 120 else 3
        for frame, (gfp, nuclei, core) in course.outlines.items():
            rgb = figures.draw_outlines(figures.to_rgb(gfp), [(nuclei, figures.SKY), (core, figures.VERMILION)], zoom)
            picture = figures.annotate(rgb, scale, zoom, legend)
            figures.save_overlay(picture, job.output_dir / "overlays" / f"{course.name}_frame{frame + 1:03d}.png")


def draw_figures(job: Job, delivered: dict[str, Delivered]) -> None:
    """Plot the kinetics of every daughter, and volume and surface."""
    colours = [figures.hexadecimal(colour) for colour in figures.COLOURS]
    count = len(delivered)
    columns = min(count, 5)
    figure = figures.new_figure(180, 50 * -(-count // columns))
    axes = np.atleast_1d(figure.subplots(-(-count // columns), columns, sharex=True, squeeze=False)).ravel()
    for axis, (name, table) in zip(axes, delivered.items(), strict=False):
        for measure, colour, label in (("noncore", colours[0], "non-core"), ("core", colours[1], "inner core")):
            for daughter, style in ((0, "-"), (1, "--")):
                curve = table.curves[measure][:, daughter]
                end = np.nanmean(curve[-max(1, len(curve) // 8) :])
                text = f"{label}, daughter {daughter + 1}"
                axis.plot(table.minutes, curve / end, style, color=colour, linewidth=0.9, label=text)
        axis.set_title(name, fontsize=6)
        axis.set(xlabel="time after anaphase (min)", ylabel="Nup107 (of its end)", xlim=(0, None))
    axes[0].legend(frameon=False, fontsize=5)
    figures.save_figure(figure, job.output_dir / "figures", "kinetics_per_cell")
    figure = figures.new_figure(180, 60)
    row = figure.subplots(1, 3)
    for axis, measure, label in zip(row[:2], ("volume", "surface"), ("volume (µm³)", "surface (µm²)"), strict=True):
        for number, (name, table) in enumerate(delivered.items()):
            for daughter in (0, 1):
                label_text = name if daughter == 0 else None
                colour = colours[number % len(colours)]
                axis.plot(
                    table.minutes, table.curves[measure][:, daughter], color=colour, linewidth=0.8, label=label_text
                )
        axis.set(xlabel="time after anaphase (min)", ylabel=label, xlim=(0, None), ylim=(0, None))
    row[0].legend(frameon=False, fontsize=5)
    halves = half_times(delivered)
    for pair in halves:
        row[2].plot([0, 1], pair, color="0.6", linewidth=0.8, marker="o", markersize=3)
    row[2].set_xticks([0, 1], ["non-core", "inner core"])
    row[2].set(ylabel="time to half (min)", xlim=(-0.4, 1.4), title=f"n = {len(halves)} daughters")
    figures.panel_letters(row)
    figures.save_figure(figure, job.output_dir / "figures", "size_and_half_times")


def half_times(delivered: dict[str, Delivered]) -> Array:
    """Return (non-core, inner core) times to half of all daughters that have both."""
    pairs: list[list[float]] = [
        [table.half_time(measure, daughter) for measure in ("noncore", "core")]
        for table in delivered.values()
        for daughter in (0, 1)
    ]
    values = np.array(pairs, float).reshape(-1, 2)
    return np.asarray(values[np.isfinite(values).all(axis=1)])


def write_report(job: Job, paths: Sequence[Path], delivered: dict[str, Delivered]) -> None:
    """Write the report; every number of a result is read from the delivered workbooks."""
    report = Report("Return of Nup107 to the daughter nuclei")
    report.section(
        "Question",
        "When does anaphase begin in each cell, and how does the pore protein gather on the inner core and on the rest "
        "of the envelope of both daughters?",
    )
    report.section("Result")
    rows: list[tuple[Any, ...]] = []
    for name, table in delivered.items():
        for daughter in (0, 1):
            ends = [table.curves[measure][:, daughter] for measure in ("volume", "surface")]
            finite = [curve[np.isfinite(curve)] for curve in ends]
            last = [float(curve[-1]) if len(curve) else float("nan") for curve in finite]
            half = [table.half_time(measure, daughter) for measure in ("noncore", "core")]
            rows.append((name, table.onset, daughter + 1, *last, *half))
    columns = ["movie", "onset frame", "daughter", "final volume (µm³)", "final surface (µm²)", "half non-core (min)"]
    report.table([*columns, "half inner core (min)"], rows)
    halves = half_times(delivered)
    report.bullets(
        f"Time to half, non-core: {Summary.of(halves[:, 0]).text('min')} daughters.",
        f"Time to half, inner core: {Summary.of(halves[:, 1]).text('min')} daughters.",
    )
    if len(halves) > 4 and np.ptp(halves[:, 1] - halves[:, 0]) > 0:
        test = stats.wilcoxon(halves[:, 1], halves[:, 0])
        report.text(
            f"Paired within daughters: median delay of the inner core {np.median(halves[:, 1] - halves[:, 0]):.2f} "
            f"min, Wilcoxon p = {test.pvalue:.3g}, N = {len(halves)} daughters of {len(delivered)} cells."
        )
    report.section("Method")
    report.bullets(
        f"DNA: interpolated along z to near-cubic voxels, Gaussian {SMOOTHING_UM:g} µm, Otsu's threshold per frame, "
        f"then half of each nucleus's own brightness; holes filled, masses above {LEAST_UM3:g} µm³.",
        f"Onset: first frame with two masses, the smaller of at least {LEAST_SHARE:g} of both, that stay two for "
        f"{STAYS} more frames.",
        "Tracking: nearest centres; daughters that touch are cut between their last places.",
        "Volume from voxels; surface from marching cubes.",
        f"Envelope: {SHELL_UM:g} µm to either side of the DNA's border. Background passes from the mean of "
        f"nucleoplasm (deeper than {INSIDE_UM:g} µm) to that of cytoplasm ({OUTSIDE_UM[0]:g} to "
        f"{OUTSIDE_UM[1]:g} µm outside).",
        f"Inner core: part of the shell facing the sister, within {CORE_UM:g} µm of the axis between both at onset, "
        "growing with the square root of the surface. Non-core: the rest of the shell.",
        "Totals are divided by the mean of cytoplasm before onset, without camera offset (per µm³).",
    )
    report.section("Quality control")
    report.failures(job.failures, len(paths), "movies")
    missing = sum(
        int(np.isnan(table.curves["volume"][table.minutes >= 0]).any(axis=1).sum()) for table in delivered.values()
    )
    report.text(f"{missing} time points after onset could not be measured and are blank.")
    report.section("Caveats")
    report.bullets(
        "Daughters of one cell are not independent; there is one condition and no control.",
        "The border is that of DNA; where chromatin does not reach the envelope, the shell lies too far inside.",
        "Planes along z are coarse: the top and the bottom of nuclei are blurred.",
    )
    report.section("Files", "`<movie>.xlsx`: tables. `overlays/`: outlines. `figures/`: kinetics, sizes, half times.")
    report.write(job.output_dir / "report.md")
