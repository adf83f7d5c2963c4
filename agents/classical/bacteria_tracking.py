"""Segment and track every cell of a growing colony: label stack and lineage, streamed frame by frame.

Dark objects on a bright ground are taken for rods in phase contrast, bright ones for stained nuclei; size and contrast
are measured on frames from the whole sequence before the first one is processed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import ndimage as ndi
from scipy import stats
from skimage.segmentation import watershed

from . import _figures as figures
from ._io import (
    Sequence2D,
    find_sequences,
    frame_interval_seconds,
    pixel_size_um,
    read_pages,
    write_label_stack,
    write_table,
)
from ._job import Job, parse_interval_seconds, parse_pixel_size_um
from ._report import Report, Summary, number
from ._segment import (
    Image,
    Labels,
    background_surface,
    blob_radius,
    distance_inside,
    flat_background,
    half_height,
    inner_radii,
    label_medians,
    merge_convex,
    noise_sigma,
    object_radius,
    opened,
    otsu,
    relabel,
    split_touching,
    tidy,
)
from ._track import Lineage, Links, Objects, Track, link, read_lineage, write_lineage

SAMPLE = 8  # frames on which size and contrast are measured
NOISE = 5.0  # Rose criterion, in standard deviations of pixel noise
BACKGROUND_RADII = 8.0  # window of the local background; wider than a rod, narrow enough to see gaps in a colony
BACKGROUND_PERCENT = 5.0
CELL_CONTRAST = 0.35  # lowest contrast of a cell, in those of a typical one
ROD_EDGE = 0.3  # a rod is thin at its rim, so its outline lies below half height
ROD_VALLEY = 0.8  # signal on a cut, relative to the paler side's, below which both sides are two cells
ROD_SOLIDITY = 0.8  # rods may bend
NUCLEUS_SOLIDITY = 0.9
ROD_WIDTH = 3.2  # in radii; two rods side by side are wider
SEED_DEPTH = 0.05  # shallowest pass between two pieces of the first split, in typical contrasts
SMALLEST = 0.5  # area of a cell inside the field, in discs of the typical radius
SMALLEST_CUT = 0.2  # and of one that the image border cuts
INTERVALS = (1, 2, 3, 5, 10, 20)
OVERLAYS = 4


@dataclass(frozen=True)
class Look:
    """What the objects of a sequence look like."""

    dark: bool
    radius: float  # inner radius in pixels
    contrast: float  # of a typical object, smoothed, to the local background


def run(job: Job) -> None:
    """Calibrate, segment and link frame by frame, write stack and lineage, then tables, figures and report."""
    sequences = find_sequences(job.input_dir)
    if not sequences:
        raise ValueError("no time series found in the input folder")
    sequence = sequences[0]
    for other in sequences[1:]:
        with job.attempt(other.name):
            raise ValueError("further time series; the request asks for one result, the first series was tracked")
    job.log(f"{sequence.name}: {sequence.length} frames of {sequence.shape[0]} x {sequence.shape[1]} px")
    look = calibrate(sequence)
    job.log(f"{'dark' if look.dark else 'bright'} objects of radius {look.radius:.1f} px, contrast {look.contrast:.1f}")
    scale = figures.Scale(parse_pixel_size_um(job.instruction) or pixel_size_um(sequence.files[0]))
    interval = frame_interval_seconds(sequence.files[0]) or parse_interval_seconds(job.instruction)
    stack = job.output_dir / f"{sequence.name}_RES.ome.tif"
    lineage_file = job.output_dir / "res_track.txt"
    undone = track_sequence(job, sequence, look, stack, lineage_file, scale.pixel_um, interval)
    job.delivered = 2
    result = Result.read(stack, lineage_file)
    write_objects(job, result, scale)
    robustness = interval_robustness(result, look.radius)
    with job.attempt("overlays"):
        draw_overlays(job, sequence, result, scale)
    with job.attempt("figures"):
        draw_figures(job, result, robustness, scale, interval)
    write_report(job, sequence, look, result, robustness, undone, scale, interval)


# --- appearance -------------------------------------------------------------------------------------------------


def sample_frames(sequence: Sequence2D) -> Iterator[Image]:
    """Yield frames spread evenly over the sequence, the last one included; unreadable ones are left out."""
    for index in np.unique(np.linspace(0, sequence.length - 1, SAMPLE).round().astype(int)).tolist():
        try:
            yield sequence.frame(index)
        except (OSError, ValueError):
            continue


def calibrate(sequence: Sequence2D) -> Look:
    """Measure polarity, size, contrast and the height of outlines on a sample of frames."""
    frames = list(sample_frames(sequence))
    if not frames:
        raise ValueError(f"{sequence.name}: no frame can be read")
    if is_dark(frames):
        return _calibrate_rods(frames)
    return _calibrate_nuclei(frames)


def is_dark(frames: Sequence[Image]) -> bool:
    """Return whether the objects are darker than the background: by the skewness of what stands out locally."""
    skews = []
    for frame in frames:
        detail = ndi.gaussian_filter(frame, 1.0) - ndi.gaussian_filter(frame, min(frame.shape) / 16)
        skews.append(float(stats.skew(detail, axis=None)))
    return float(np.median(skews)) < 0


def _calibrate_rods(frames: Sequence[Image]) -> Look:
    inverted = [-frame for frame in frames]
    largest = max(12.0, min(frames[0].shape) / 15)
    blobs = blob_radius(((frame, NOISE * noise_sigma(frame)) for frame in inverted), 2.0, largest)
    if blobs is None:
        raise ValueError("no dark object stands out of the noise in the sampled frames")
    look = Look(True, blobs / np.sqrt(2), 0.0)  # a long rod answers strongest at sqrt(2) times its radius
    for _ in range(2):
        radii: list[float] = []
        contrasts: list[float] = []
        for frame in frames:
            labels, signal = rods(frame, look)
            radii += inner_radii(labels)[1:].tolist()
            contrasts += label_medians(signal, labels)[1:].tolist()
        if not radii:
            raise ValueError("no dark rod was found in the sampled frames")
        look = Look(True, float(np.median(radii)), float(np.median(contrasts)))
    return look


def _calibrate_nuclei(frames: Sequence[Image]) -> Look:
    signals = [_nuclear_signal(frame) for frame in frames]
    radius = object_radius(signal > floor for signal, floor in signals)
    if radius is None:
        raise ValueError("no bright object stands out of the noise in the sampled frames")
    bright = np.concatenate([signal[signal > floor] for signal, floor in signals])
    return Look(False, radius, float(np.median(bright)))


# --- segmentation -----------------------------------------------------------------------------------------------


def segment(frame: Image, look: Look) -> tuple[Labels, Image]:
    """Return the objects of one frame and the signal (objects bright) in which they were found."""
    return rods(frame, look) if look.dark else nuclei(frame, look)


def rods(frame: Image, look: Look) -> tuple[Labels, Image]:
    """Segment dark rods.

    Darkness is measured against the bright gaps nearby, so that cells inside a colony, which look paler, count like
    those outside. Its maxima split the foreground into many pieces; those are joined again unless the cut between
    them is bright, the union is bent too far, or is wider than one rod.
    """
    smooth = ndi.gaussian_filter(-frame, 1.0)
    signal = np.asarray(
        smooth - background_surface(smooth, BACKGROUND_RADII * look.radius, BACKGROUND_PERCENT), dtype=np.float32
    )
    least = max(CELL_CONTRAST * look.contrast, NOISE * noise_sigma(frame) / 2)
    span = 2 * round(look.radius) + 1
    around = ndi.gaussian_filter(ndi.maximum_filter(signal, span), look.radius / 2)
    mask = (signal > 0.5 * ROD_EDGE * around) & (signal > 0.3 * least)
    mask = without_holes(opened(mask, 0.4 * look.radius), 0.5 * look.radius**2)
    pieces = split_touching(mask, signal, SEED_DEPTH * max(look.contrast, least))
    whole = merge_convex(pieces, signal, solidity=ROD_SOLIDITY, valley=ROD_VALLEY, max_width=ROD_WIDTH * look.radius)
    drawn = tidy(half_height(whole, signal, whole, ROD_EDGE), 0, smooth=1)
    return _sized(drawn, signal, look.radius, least), signal


def without_holes(mask: npt.NDArray[np.bool_], largest: float) -> npt.NDArray[np.bool_]:
    """Fill the holes of a mask that are no larger than an area; larger gaps between objects stay."""
    gaps, _ = ndi.label(~mask)
    area = np.bincount(gaps.ravel())
    area[0] = np.iinfo(area.dtype).max
    return np.asarray(mask | (area[gaps] <= largest), dtype=bool)


def _nuclear_signal(frame: Image) -> tuple[Image, float]:
    """Return smoothed brightness above the background, and Otsu's threshold of its logarithm, at least the noise's."""
    noise = max(noise_sigma(frame), 0.5)
    signal = np.asarray(
        ndi.gaussian_filter(frame - flat_background(frame, min(frame.shape) / 3), 1.0), dtype=np.float32
    )
    return signal, max(float(np.exp(otsu(np.log(np.clip(signal, noise, None))))), NOISE * noise / 2)


def nuclei(frame: Image, look: Look) -> tuple[Labels, Image]:
    """Segment bright nuclei by a low threshold and their shape alone.

    Chromatin can be many times brighter than the rest of a nucleus, so brightness tells neither where a nucleus ends
    nor where two of them touch; the logarithm puts the threshold between background and the dimmest part.
    """
    signal, floor = _nuclear_signal(frame)
    mask = opened(ndi.binary_fill_holes(signal > floor), 0.2 * look.radius)
    shape = ndi.gaussian_filter(distance_inside(mask), 0.15 * look.radius) / look.radius
    pieces = split_touching(mask, np.asarray(shape, dtype=np.float32), SEED_DEPTH)
    whole = merge_convex(pieces, np.ones_like(signal), solidity=NUCLEUS_SOLIDITY, valley=0.0)
    return _sized(tidy(whole, 0), signal, look.radius, floor), signal


def _sized(labels: Labels, signal: Image, radius: float, least: float) -> Labels:
    """Drop what is too small (less is asked of cells that the border cuts) or too faint."""
    objects = Objects.of(labels)
    disc = np.pi * radius**2
    keep = (objects.area >= np.where(objects.edge, SMALLEST_CUT, SMALLEST) * disc) & (
        label_medians(signal, labels)[1:] >= least
    )
    return relabel(np.where(np.concatenate([[False], keep])[labels], labels, 0))


def divide_region(labels: Labels, signal: Image, region: int, parts: Sequence[npt.NDArray[np.bool_]]) -> Labels | None:
    """Split one region along two earlier objects that both lie on it; ``None`` if a part would be too small."""
    inside = labels == region
    seeds = np.zeros(labels.shape, dtype=np.int32)
    for value, part in enumerate(parts, start=1):
        seeds[part & inside] = value
    if not all((seeds == value).any() for value in (1, 2)):
        return None
    box = ndi.find_objects(inside.astype(np.uint8))[0]
    halves = watershed(-signal[box], seeds[box], mask=inside[box])
    share = np.bincount(halves.ravel(), minlength=3)[1:] / inside.sum()
    if share.min() < 0.25:
        return None
    result = labels.copy()
    view = result[box]
    view[halves == 2] = int(labels.max()) + 1
    return result


# --- tracking ---------------------------------------------------------------------------------------------------


def track_sequence(
    job: Job,
    sequence: Sequence2D,
    look: Look,
    stack: Path,
    lineage_file: Path,
    pixel_um: float | None,
    interval: float | None,
) -> int:
    """Segment and link all frames, write both deliverables; return the number of divisions that were taken back.

    Only two frames are held at a time; finished label images wait compressed for their final numbers. A frame that
    cannot be read is reported and counts as empty.
    """
    lineage = Lineage()
    kept: list[bytes] = []
    before: Objects | None = None
    empty = np.zeros(sequence.shape, dtype=np.int32)
    for index in range(sequence.length):
        labels, signal = empty, empty.astype(np.float32)
        with job.attempt(f"frame {index}"):
            labels, signal = segment(sequence.frame(index), look)
        after = Objects.of(labels)
        links = Links([], [], [])
        if before is not None:
            after, links = explain(before, after, signal, lineage, look.radius)
        lineage.add(len(after), links)
        kept.append(zlib.compress(after.labels.astype(np.uint16).tobytes(), 1))
        before = after
        if index % max(1, sequence.length // 20) == 0:
            job.log(f"frame {index}: {len(after)} cells")
    tracks, numbers = lineage.finish()
    dtype = np.uint16 if len(tracks) <= np.iinfo(np.uint16).max else np.uint32

    def pages() -> Iterator[npt.NDArray[np.integer]]:
        for data, row in zip(kept, numbers, strict=True):
            labels = np.frombuffer(zlib.decompress(data), dtype=np.uint16).reshape(sequence.shape)
            yield np.concatenate([[0], row])[labels]

    write_label_stack(
        stack, pages(), (sequence.length, *sequence.shape), dtype, pixel_um=pixel_um, interval_seconds=interval
    )
    write_lineage(lineage_file, tracks)
    return lineage.undone


def explain(before: Objects, after: Objects, signal: Image, lineage: Lineage, radius: float) -> tuple[Objects, Links]:
    """Link two frames; where two cells that are no sisters became one region, split it along both and link again."""
    links = link(before, after, radius)
    past, now = lineage.objects[-1], len(lineage.objects)
    strangers = [m for m in links.merged if not lineage.sisters(int(past[m[0]]), int(past[m[1]]), now)]
    if not strangers:
        return after, links
    labels = after.labels
    for i, k, j in strangers:
        parts = [before.labels == i + 1, before.labels == k + 1]
        split = divide_region(labels, signal, j + 1, parts)
        labels = labels if split is None else split
    after = Objects.of(labels)
    links = link(before, after, radius)
    settled = [m for m in links.merged if lineage.sisters(int(past[m[0]]), int(past[m[1]]), now)]
    for i, k, j in links.merged:
        if (i, k, j) not in settled:  # cannot be split: the larger one goes on, the other is lost
            links.continued.append((i if before.area[i] >= before.area[k] else k, j))
    return after, Links(links.continued, links.divided, settled)


# --- delivered files --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """The delivered stack and lineage, read back; frames are decoded when they are needed."""

    stack: Path
    tracks: list[Track]
    table: dict[str, npt.NDArray[np.float64]]  # one row per object and frame
    counts: npt.NDArray[np.int64]  # objects per frame

    @classmethod
    def read(cls, stack: Path, lineage_file: Path) -> Result:
        """Read and measure both files."""
        columns: dict[str, list[npt.NDArray[np.float64]]] = {}
        counts = []
        for frame, numbers, objects in read_frames(stack):
            counts.append(len(objects))
            row = {
                "frame": np.full(len(objects), float(frame)),
                "track": numbers.astype(float),
                "y": objects.y,
                "x": objects.x,
                "area": objects.area,
                "length": objects.length,
                "width": objects.width,
                "edge": objects.edge.astype(float),
            }
            for name, values in row.items():
                columns.setdefault(name, []).append(values)
        table = {name: np.concatenate(values) for name, values in columns.items()}
        return cls(stack, read_lineage(lineage_file), table, np.asarray(counts))

    @property
    def mothers(self) -> set[int]:
        """Tracks that end in a division."""
        return {track.parent for track in self.tracks if track.parent}


def read_frames(stack: Path) -> Iterator[tuple[int, npt.NDArray[np.int64], Objects]]:
    """Yield frame number, track numbers and objects of each page of a delivered stack."""
    for frame, page in enumerate(read_pages(stack)):
        labels = page.astype(np.int64)
        numbers = np.unique(labels[labels > 0])
        yield frame, numbers, Objects.of(relabel(labels))


def write_objects(job: Job, result: Result, scale: figures.Scale) -> None:
    """Write one row per object and frame, and one per track."""
    table, unit = result.table, "um" if scale.pixel_um else "px"
    columns = ["frame", "track", "y_px", "x_px", f"area_{unit}2", f"length_{unit}", f"width_{unit}", "touches_border"]
    rows = zip(
        table["frame"].astype(int).tolist(),
        table["track"].astype(int).tolist(),
        table["y"].tolist(),
        table["x"].tolist(),
        scale.area(table["area"]).tolist(),
        scale.length(table["length"]).tolist(),
        scale.length(table["width"]).tolist(),
        table["edge"].astype(int).tolist(),
        strict=True,
    )
    write_table(job.output_dir / "supporting" / "objects.tsv", columns, rows)
    mothers = result.mothers
    write_table(
        job.output_dir / "supporting" / "lives.tsv",
        ["track", "first_frame", "last_frame", "parent", "divides"],
        [(t.id, t.start, t.end, t.parent, int(t.id in mothers)) for t in result.tracks],
    )


@dataclass(frozen=True)
class Robustness:
    """How often linking at a longer interval finds the same ancestor as at full rate, by interval and colony size."""

    intervals: tuple[int, ...]
    size_edges: npt.NDArray[np.float64]  # cells in the earlier frame
    agreement: npt.NDArray[np.float64]  # (interval, size class)
    links: npt.NDArray[np.int64]


def interval_robustness(result: Result, radius: float) -> Robustness:
    """Link the delivered objects again at every k-th frame and compare with the delivered tracks.

    An object agrees if its new predecessor is the ancestor that the full-rate tracks give it. No truth is needed; what
    is measured is how much the answer depends on the interval, by the number of cells in the earlier frame.
    """
    frames = len(result.counts)
    intervals = tuple(k for k in INTERVALS if k <= max(1, frames // 3))
    edges = np.unique(np.quantile(result.counts, [0, 1 / 3, 2 / 3, 1])).astype(float)
    edges = edges if edges.size > 1 else np.array([edges[0], edges[0] + 1])
    parent = {track.id: track.parent for track in result.tracks}
    start = {track.id: track.start for track in result.tracks}
    right = np.zeros((len(intervals), edges.size - 1), dtype=np.int64)
    total = np.zeros_like(right)
    held: dict[int, tuple[npt.NDArray[np.int64], Objects]] = {}
    for frame, numbers, objects in read_frames(result.stack):
        held[frame] = (numbers, objects)
        for row, k in enumerate(intervals):
            if frame < k or frame % k:
                continue
            old_numbers, old = held[frame - k]
            links = link(old, objects, radius)
            found = {j: i for i, j in links.continued} | {j: i for i, *new in links.divided for j in new}
            column = min(int(np.searchsorted(edges, len(old), side="right")) - 1, edges.size - 2)
            present = {int(track): i for i, track in enumerate(old_numbers)}
            for j, track in enumerate(numbers.tolist()):
                while track and start[track] > frame - k:
                    track = parent[track]
                if track in present:
                    total[row, column] += 1
                    right[row, column] += found.get(j) == present[track]
        needed = max(frame - max(intervals), 0)
        for old_frame in [t for t in held if t < needed or not any((t % k) == 0 for k in intervals)]:
            del held[old_frame]
    share = np.where(total > 0, right / np.maximum(total, 1), np.nan)
    return Robustness(intervals, edges, share, total)


def doubling_frames(counts: npt.NDArray[np.int64]) -> tuple[float, float] | None:
    """Return doubling time in frames and its standard error, from the slope of log2 counts over time, if it grows."""
    time = np.flatnonzero(counts > 0)
    if time.size < 5:
        return None
    fit = stats.linregress(time, np.log2(counts[time]))
    if fit.slope <= 0:
        return None
    return float(1 / fit.slope), float(fit.stderr / fit.slope**2)


def draw_overlays(job: Job, sequence: Sequence2D, result: Result, scale: figures.Scale) -> None:
    """Draw numbered outlines over frames from early to late."""
    chosen = set(np.unique(np.linspace(0, sequence.length - 1, OVERLAYS).round().astype(int)).tolist())
    zoom = max(1, round(1400 / max(sequence.shape)))
    for frame, numbers, objects in read_frames(result.stack):
        if frame not in chosen:
            continue
        colour = np.array([[0, 0, 0], *figures.COLOURS], dtype=np.uint8)
        canvas = np.repeat(np.repeat(figures.to_rgb(sequence.frame(frame)), zoom, axis=0), zoom, axis=1)
        large = np.repeat(np.repeat(objects.labels, zoom, axis=0), zoom, axis=1)
        edge = figures.outline(large)
        tracks = np.concatenate([[0], numbers])[large[edge]]
        canvas[edge] = colour[1 + tracks % len(figures.COLOURS)]
        marks = [(y, x, str(n)) for y, x, n in zip(objects.y, objects.x, numbers.tolist(), strict=True)]
        legend = ((f"outline and number of each track; frame {frame}, n = {len(objects)} cells", figures.COLOURS[0]),)
        picture = figures.annotate(canvas, scale, zoom, legend, numbers=marks)
        figures.save_overlay(picture, job.output_dir / "overlays" / f"frame_{frame:04d}_numbers.png")


def draw_figures(
    job: Job, result: Result, robustness: Robustness, scale: figures.Scale, interval: float | None
) -> None:
    """Draw counts, divisions, lives and robustness; and the lineage tree."""
    from matplotlib.collections import LineCollection

    minutes = 1.0 if interval is None else interval / 60
    unit = "frame" if interval is None else "min"
    time = np.arange(len(result.counts)) * minutes
    mothers = result.mothers
    figure = figures.new_figure(180, 120)
    axes = figure.subplots(2, 2).ravel()
    blue, red, green = (figures.hexadecimal(c) for c in (figures.BLUE, figures.VERMILION, figures.GREEN))
    axes[0].semilogy(time, np.maximum(result.counts, 0.5), color=blue, label="cells in the field")
    if (growth := doubling_frames(result.counts)) is not None:
        fit = np.polyfit(np.flatnonzero(result.counts), np.log2(result.counts[result.counts > 0]), 1)
        label = f"doubling in {growth[0] * minutes:.3g} {unit}"
        axes[0].semilogy(
            time, 2 ** np.polyval(fit, np.arange(len(time))), "--", color="black", linewidth=1, label=label
        )
    axes[0].set_ylabel("cells")
    ends = np.array([track.end for track in result.tracks if track.id in mothers]) * minutes
    axes[1].hist(ends, 30, range=(0, max(float(time[-1]), minutes)), color=red, label=f"divisions (n = {ends.size})")
    axes[1].set_ylabel("divisions")
    for axis in axes[:2]:
        axis.set_xlabel(f"time ({unit})")
    lives = np.array([t.end - t.start + 1 for t in result.tracks if t.parent and t.id in mothers]) * minutes
    axes[2].hist(lives, 25, color=green, label=f"birth to division (n = {lives.size} cells)")
    axes[2].set_xlabel(f"life span ({unit})")
    axes[2].set_ylabel("cells")
    for axis in axes[:3]:
        axis.legend(frameon=False)
        axis.margins(y=0.15)
    image = axes[3].imshow(robustness.agreement, vmin=0, vmax=1, cmap="viridis", aspect="auto")
    axes[3].set_yticks(range(len(robustness.intervals)), [f"{k * minutes:g}" for k in robustness.intervals])
    axes[3].set_xticks(range(len(robustness.size_edges) - 1), _classes(robustness.size_edges))
    axes[3].set_ylabel(f"imaging interval ({unit})")
    axes[3].set_xlabel("cells in the field")
    for (row, column), value in np.ndenumerate(robustness.agreement):
        if np.isfinite(value):
            axes[3].text(
                column, row, f"{value:.3f}", ha="center", va="center", color="black" if value > 0.6 else "white"
            )
    figure.colorbar(image, ax=axes[3], label="agreement with full rate")
    figures.panel_letters(axes)
    figures.save_figure(figure, job.output_dir / "figures", "colony")

    figure = figures.new_figure(180, 120)
    axis = figure.subplots()
    height = lineage_order(result.tracks)
    by_id = {track.id: track for track in result.tracks}
    bars = [((t.start * minutes, height[t.id]), ((t.end + 1) * minutes, height[t.id])) for t in result.tracks]
    forks = [
        ((t.start * minutes, height[t.id]), (t.start * minutes, height[t.parent]))
        for t in result.tracks
        if t.parent in by_id
    ]
    roots = [_root_of(track, by_id) for track in result.tracks]
    shades = {root: figures.hexadecimal(figures.COLOURS[k % 6]) for k, root in enumerate(dict.fromkeys(roots))}
    axis.add_collection(LineCollection(bars, colors=[shades[root] for root in roots], linewidths=0.8))
    axis.add_collection(LineCollection(forks, colors="0.6", linewidths=0.5))
    axis.autoscale()
    axis.set_yticks([])
    axis.set_xlabel(f"time ({unit})")
    axis.set_ylabel(f"{len(result.tracks)} tracks, colour = founder")
    figures.save_figure(figure, job.output_dir / "figures", "lineage_tree")


def _classes(edges: npt.NDArray[np.float64]) -> list[str]:
    return [f"{low:.0f}–{high:.0f}" for low, high in pairwise(edges)]


def _root_of(track: Track, by_id: dict[int, Track]) -> int:
    while track.parent in by_id:
        track = by_id[track.parent]
    return track.id


def lineage_order(tracks: Sequence[Track]) -> dict[int, float]:
    """Return a height for each track such that families stay together: leaves in order, mothers between daughters."""
    children: dict[int, list[int]] = {}
    for track in tracks:
        children.setdefault(track.parent, []).append(track.id)
    height: dict[int, float] = {}
    leaf = 0
    stack = [(number, False) for number in reversed(children.get(0, []))]
    while stack:
        track_id, visited = stack.pop()
        below = children.get(track_id, [])
        if visited:
            height[track_id] = float(np.mean([height[number] for number in below]))
        elif below:
            stack.append((track_id, True))
            stack += [(number, False) for number in reversed(below)]
        else:
            height[track_id] = float(leaf)
            leaf += 1
    return height


def write_report(
    job: Job,
    sequence: Sequence2D,
    look: Look,
    result: Result,
    robustness: Robustness,
    undone: int,
    scale: figures.Scale,
    interval: float | None,
) -> None:
    """Write the report; all numbers come from the delivered stack and lineage."""
    minutes, unit = (1.0, "frames") if interval is None else (interval / 60, "min")
    mothers = result.mothers
    table = result.table
    report = Report("Lives of single cells in a growing colony")
    report.section(
        "Question", "Who is where in each frame, who divides into whom, and how far can the tracks be trusted?"
    )
    spans = [(t.end - t.start + 1) * minutes for t in result.tracks if t.parent and t.id in mothers]
    report.section(
        "Result",
        f"{len(result.tracks)} tracks and {len(mothers)} divisions in {len(result.counts)} frames; "
        f"{int(result.counts.sum())} objects in all, {int(result.counts[0])} in the first frame and "
        f"{int(result.counts[-1])} in the last.",
    )
    inner = table["edge"] == 0
    items = [
        f"life from birth to division: {Summary.of(spans).text(unit)} cells seen from birth to division",
        f"cell length: {Summary.of(scale.length(table['length'][inner])).text(scale.unit)} objects",
        f"cell width: {Summary.of(scale.length(table['width'][inner])).text(scale.unit)} objects",
    ]
    if (growth := doubling_frames(result.counts)) is not None:
        items.append(
            f"doubling time of the number of cells in the field: {number(growth[0] * minutes)} ± "
            f"{number(growth[1] * minutes)} {unit} (slope of log2 counts ± SE, "
            f"N = {int((result.counts > 0).sum())} frames)"
        )
    report.bullets(*items)
    report.section("How far to trust it: imaging interval and colony size")
    report.text(
        "The delivered objects were linked again at longer intervals. The table gives the share of objects that find "
        "the same ancestor as at the full rate (N = links compared). It shows how much the answer depends on the "
        "interval; faults that both have in common do not show. A cell can have at most two descendants between two "
        "frames, so intervals near the life span of a cell must fail."
    )
    report.table(
        [f"interval ({unit})", *(f"{name} cells" for name in _classes(robustness.size_edges))],
        [
            (
                f"{k * minutes:g}",
                *(f"{share:.4f} (N = {n})" if n else "–" for share, n in zip(row, counts, strict=True)),
            )
            for k, row, counts in zip(robustness.intervals, robustness.agreement, robustness.links, strict=True)
        ],
    )
    report.section("Method")
    kind = "dark rods" if look.dark else "bright nuclei"
    steps = [
        f"Appearance, measured on {SAMPLE} frames of the whole sequence: {kind}, inner radius "
        f"{look.radius:.1f} px, typical contrast {look.contrast:.1f} grey levels.",
    ]
    if look.dark:
        steps += [
            f"Signal: darkness against the bright gaps within {BACKGROUND_RADII:g} radii, smoothed with sigma 1 px.",
            "Cells: pieces around the maxima of the signal, joined unless the signal on the cut drops below "
            f"{ROD_VALLEY:g} of the paler side's, the union fills less than {ROD_SOLIDITY:g} of its convex hull, or "
            f"it is wider than {ROD_WIDTH:g} radii; outline at {ROD_EDGE:g} of a cell's height, since a rod is thin at "
            "its rim.",
            f"Left out: contrast below {CELL_CONTRAST:g} of the typical one; area below {SMALLEST:g} discs of the "
            f"typical radius ({SMALLEST_CUT:g} where the border cuts the cell).",
        ]
    else:
        steps += [
            "Signal: brightness above the smoothed background; Otsu's threshold of its logarithm, which follows the "
            "dimmest parts of a nucleus; split by shape alone and joined again where the union fills "
            f"{NUCLEUS_SOLIDITY:g} of its convex hull.",
        ]
    steps += [
        "Links: between two frames, continue, divide and merge compete in one exact assignment; their worth is overlap "
        "(0.6) and likeness of size and place (0.4); two daughters together must match their mother in size.",
        "Corrections: two parts of a division that are one region again in the next frame take the division back; "
        "other cells that become one region are split along their earlier outlines.",
    ]
    report.bullets(*steps)
    report.section("Quality control")
    report.failures(job.failures, sequence.length, "frames")
    lengths = np.array([t.end - t.start + 1 for t in result.tracks])
    orphans = sum(1 for t in result.tracks if not t.parent and t.start > 0)
    lost = sum(1 for t in result.tracks if t.id not in mothers and t.end < len(result.counts) - 1)
    report.bullets(
        "The lineage was checked: every label lives in each frame of its track and in no other, daughters begin right "
        "after their mother, every mother has two.",
        f"tracks of a single frame: {int((lengths == 1).sum())} of {len(lengths)}",
        f"tracks that begin inside the movie without a mother (entered, or a missed link): {orphans}",
        f"tracks that end before the last frame without a division (left, or a missed link): {lost}",
        f"divisions taken back: {undone}",
        f"objects that the border cuts: {int((~inner).sum())} of {inner.size}",
    )
    report.section("Caveats")
    report.bullets(
        "A division is dated by the first frame in which a gap between the daughters can be seen.",
        "Cells that are pushed out of the field end their track; life spans leave them out, which favours short ones.",
        "Where cells lie densest, outlines follow the thin bright line between them and may be off by a pixel.",
        "Scale: "
        + ("unknown, sizes are in pixels." if scale.pixel_um is None else f"{scale.pixel_um:g} µm per pixel."),
    )
    report.section(
        "Files",
        f"`{result.stack.name}`: labels, number = track. `res_track.txt`: lineage. `overlays/`: numbered outlines. "
        "`figures/colony`, `figures/lineage_tree`. `supporting/objects.tsv`, `supporting/lives.tsv`: tables.",
    )
    report.write(job.output_dir / "report.md")
