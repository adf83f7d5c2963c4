"""Trace thin filaments in noise: elongated oriented filters, hysteresis along ridges, gaps closed along ridges."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tifffile
from scipy import fft
from scipy import ndimage as ndi
from skimage.graph import MCP_Geometric
from skimage.morphology import skeletonize

from ._figures import (
    ORANGE,
    SKY,
    VERMILION,
    Scale,
    annotate,
    draw_outlines,
    hexadecimal,
    new_figure,
    panel_letters,
    save_figure,
    save_overlay,
    show_image,
    to_rgb,
)
from ._io import as_grey, list_images, read_image, stem, write_table
from ._job import Job
from ._report import Report, Summary, number

Image = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Array = npt.NDArray[np.float64]

ORIENTATIONS = 24
FIRST_WIDTH = 1.6  # standard deviation across the filter with which the width of filaments is measured, px
WIDTHS = (1.0, 3.0)  # limits of the one used then
LENGTH, STRIDE = 3.0, 6.0  # standard deviation along the filament of one of three parts of the filter, their distance
BRIGHTEST = 15.0  # units of noise, above which brightness counts no more
HIGH, LOW = 6.5, 3.2  # ridge strength in units of its noise: to begin, and to go on
SHORTEST = 18.0  # px, of a piece that stands alone
SPUR = 8.0  # px, of a side branch
PAD = 32  # px, mirrored around the image before filtering
REACH = 18  # px, longest gap that is closed
HALF_WIDTH = 1.5  # px, of the drawn band
MIXED = np.ones((3, 3), bool)


# --- ridges ---


@dataclass(frozen=True)
class Ridges:
    """Ridge strength in units of its noise, and the direction along the ridge (radians, from x towards y)."""

    strength: Image
    angle: Image
    width: float


def flatten(image: npt.NDArray[np.generic], broad: float = 12.0) -> tuple[Image, Image]:
    """Return the image without haze, and the local noise.

    The haze is a median-like surface: a Gaussian of what is left after bright pixels are clipped, twice. Shot noise
    grows with brightness, so that noise is measured as a function of the haze, from differences of pixels two apart.
    """
    data = image.astype(np.float32)
    haze = ndi.gaussian_filter(data, broad, mode="reflect")
    for _ in range(3):
        spread = np.sqrt(ndi.gaussian_filter(np.square(np.minimum(data - haze, 0)), broad, mode="reflect"))
        haze = ndi.gaussian_filter(np.minimum(data, haze + spread), broad, mode="reflect")
    jump = (data[:, 2:] - data[:, :-2]) / math.sqrt(2.0)
    level = haze[:, 1:-1]
    edges = np.quantile(level, np.linspace(0.0, 1.0, 9))
    levels, noises = [], []
    for low, high in itertools.pairwise(edges):
        part = jump[(level >= low) & (level <= high)]
        if part.size > 100:
            levels.append(float(level[(level >= low) & (level <= high)].mean()))
            noises.append(1.4826 * float(np.median(np.abs(part))))
    order = np.argsort(levels)
    noise = np.interp(haze, np.array(levels)[order], np.maximum.accumulate(np.array(noises)[order]))
    return data - haze, np.maximum(noise, 1e-3).astype(np.float32)


def ridges(flat: Image, noise: Image) -> Ridges:
    """Filter with elongated second derivatives in all directions, a little wider than filaments are."""
    scaled = flat / noise
    scaled = np.minimum(scaled, max(BRIGHTEST, float(np.percentile(scaled, 99.7))))
    spectrum, padded = _spectrum(scaled)
    first = Ridges(*_bank(spectrum, padded, scaled.shape, FIRST_WIDTH), FIRST_WIDTH)
    width = float(np.clip(1.3 * filament_width(scaled, first), *WIDTHS))
    return Ridges(*_bank(spectrum, padded, scaled.shape, width), width)


def filament_width(image: Image, ridge: Ridges) -> float:
    """Return the standard deviation of the mean profile across the strongest crests, in pixels."""
    strong = crests(ridge) & (ridge.strength > max(HIGH, float(np.percentile(ridge.strength, 98))))
    points = np.argwhere(strong)
    if len(points) < 50:
        return 1.0
    angle = ridge.angle[strong]
    reach = np.arange(-5, 6)
    y = points[:, 0, None] + np.cos(angle)[:, None] * reach
    x = points[:, 1, None] - np.sin(angle)[:, None] * reach
    profile = np.median(ndi.map_coordinates(image, [y, x], order=1, mode="nearest"), axis=0)
    profile = profile - 0.5 * (profile[0] + profile[-1])
    above = np.clip(profile[2:-2], 0.0, None)
    variance = float(np.sum(above * reach[2:-2] ** 2) / max(float(above.sum()), 1e-6))
    return math.sqrt(max(variance - 0.25, 0.25))  # interpolation and the pixel itself widen the profile


def _spectrum(image: Image, pad: int = PAD) -> tuple[npt.NDArray[np.complex64], tuple[int, int]]:
    wide = np.pad(image, pad, mode="reflect")
    shape = tuple(fft.next_fast_len(length, real=True) for length in wide.shape)
    return fft.rfft2(wide, shape), (shape[0], shape[1])


def _bank(
    spectrum: npt.NDArray[np.complex64], padded: tuple[int, int], shape: tuple[int, ...], width: float, pad: int = PAD
) -> tuple[Image, Image]:
    """Return the largest response over directions, in units of white noise, and its direction in radians.

    The filter has three parts, one behind the other. Its answer is their mean, but at most 1.5 times their median:
    a speck, or the end of a bright filament seen from the side, excites one part only.
    """
    ky = fft.fftfreq(padded[0])[:, None] * 2 * np.pi
    kx = fft.rfftfreq(padded[1])[None, :] * 2 * np.pi
    strength = np.full(shape, -np.inf, np.float32)
    best = np.zeros(shape, np.float32)
    spreads = []
    for angle in np.arange(ORIENTATIONS) * (np.pi / ORIENTATIONS):
        along = kx * math.cos(angle) + ky * math.sin(angle)
        across = ky * math.cos(angle) - kx * math.sin(angle)
        transfer = across**2 * np.exp(-0.5 * ((across * width) ** 2 + (along * LENGTH) ** 2))
        dy, dx = round(STRIDE * math.sin(angle)), round(STRIDE * math.cos(angle))
        weight = np.full(transfer.shape, 2.0)
        weight[:, 0] = 1.0
        power = np.sum(weight * (transfer * (1.0 + 2.0 * np.cos(ky * dy + kx * dx)) / 3.0) ** 2)
        norm = math.sqrt(float(power) / (padded[0] * padded[1]))
        part = fft.irfft2(spectrum * (transfer / norm).astype(np.float32), padded)
        one, two, three = (
            part[pad + step * dy : pad + step * dy + shape[0], pad + step * dx : pad + step * dx + shape[1]]
            for step in (-1, 0, 1)
        )
        median = np.maximum(np.minimum(one, two), np.minimum(np.maximum(one, two), three))
        mean = (one + two + three) / 3.0
        spreads.append(1.4826 * float(np.median(np.abs(mean))))
        response = np.minimum(mean, 1.5 * median)
        better = response > strength
        strength[better], best[better] = response[better], angle
    # grain that is coarser than one pixel passes the filter better than the differences of pixels said
    return strength / np.float32(max(1.0, float(np.median(spreads)))), best


def crests(ridge: Ridges) -> Mask:
    """Mark pixels whose strength is largest across the ridge (within half a pixel)."""
    y, x = np.indices(ridge.strength.shape, dtype=np.float32)
    dy, dx = np.cos(ridge.angle), -np.sin(ridge.angle)
    sides = [
        ndi.map_coordinates(ridge.strength, [y + step * dy, x + step * dx], order=1, mode="nearest") for step in (-1, 1)
    ]
    return np.asarray((ridge.strength >= sides[0]) & (ridge.strength >= sides[1]))


# --- tracing ---


def trace(ridge: Ridges, rigour: float = 1.0) -> Mask:
    """Return the centrelines: crests with hysteresis, gaps closed, spurs and short pieces removed.

    ``rigour`` multiplies both thresholds.
    """
    weak = crests(ridge) & (ridge.strength > rigour * LOW)
    pieces, count = ndi.label(weak, MIXED)
    if not count:
        return weak
    peak = ndi.maximum(ridge.strength, pieces, np.arange(1, count + 1))
    line = np.isin(pieces, 1 + np.flatnonzero(np.asarray(peak) > rigour * HIGH))
    line = skeletonize(ndi.binary_closing(np.pad(line, 2), MIXED)[2:-2, 2:-2])
    line = prune(line, SPUR)
    line = skeletonize(bridge(line, ridge))
    return keep_long(prune(line, SPUR), SHORTEST)


def _neighbours(line: Mask) -> npt.NDArray[np.int64]:
    return np.where(line, ndi.convolve(line.astype(np.int64), np.ones((3, 3), np.int64), mode="constant") - 1, 0)


def prune(line: Mask, length: float) -> Mask:
    """Remove side branches that end freely and are shorter than ``length``."""
    for _ in range(2):
        neighbours = _neighbours(line)
        junction = line & (neighbours > 2)
        near = ndi.binary_dilation(junction, MIXED)
        branches, count = ndi.label(line & ~near, MIXED)
        if not count:
            return line
        sizes = np.bincount(branches.ravel(), minlength=count + 1)
        touching = np.zeros(count + 1, np.int64)
        ring = ndi.grey_dilation(branches, footprint=MIXED)
        for label in np.unique(ring[near & (ring > 0)]):
            touching[label] = 1
        free = np.zeros(count + 1, bool)
        free[np.unique(branches[line & (neighbours == 1)])] = True
        free[0] = False
        short = free & (touching > 0) & (sizes < length)
        if not short.any():
            return line
        line = skeletonize(line & ~short[branches])
    return line


def keep_long(line: Mask, length: float) -> Mask:
    """Remove pieces of fewer pixels than ``length``."""
    pieces, _ = ndi.label(line, MIXED)
    sizes = np.bincount(pieces.ravel())
    sizes[0] = 0
    return np.asarray((sizes >= length)[pieces])


def bridge(line: Mask, ridge: Ridges) -> Mask:
    """Prolong free ends along the ridge until they meet another line, where such a path is strong enough.

    From each free end the cheapest path is sought within reach; a pixel costs the more the weaker its ridge is. A path
    must leave the end forward and stay above a part of the threshold on average.
    """
    line = line.copy()
    ends = np.argwhere(line & (_neighbours(line) == 1))
    cost = 1.0 / (0.15 + np.clip(ridge.strength, 0.0, HIGH) / HIGH)
    for y, x in ends:
        low = np.maximum([y - REACH, x - REACH], 0)
        high = np.minimum([y + REACH + 1, x + REACH + 1], line.shape)
        window = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
        heading = _heading(line[window], np.array([y, x]) - low)
        if heading is None:
            continue
        own = _own_side(line[window], np.array([y, x]) - low, heading)
        goals = np.argwhere(line[window] & ~own)
        goals = goals[((goals + low - [y, x]) @ heading) > 0.5 * np.hypot(*(goals + low - [y, x]).T)]
        goals = goals[np.hypot(*(goals + low - [y, x]).T) <= REACH]
        if not len(goals):
            continue
        blocked = cost[window].copy()
        blocked[own] = np.inf
        blocked[tuple(np.array([y, x]) - low)] = 1.0
        search = MCP_Geometric(blocked)
        totals, _ = search.find_costs([tuple(np.array([y, x]) - low)])
        goal = min(goals.tolist(), key=lambda point: float(totals[tuple(point)]))
        if not np.isfinite(totals[tuple(goal)]):
            continue
        path = np.array(search.traceback(goal))
        inner = path[1:-1] + low
        if not len(inner) or np.mean(ridge.strength[tuple(inner.T)]) > 0.75 * LOW:
            line[tuple((path + low).T)] = True
    return line


def _heading(window: Mask, end: npt.NDArray[np.int64], length: int = 9) -> Array | None:
    """Return the unit vector in which a line leaves its free end, from its last pixels."""
    place, seen = tuple(end.tolist()), []
    left = window.copy()
    for _ in range(length):
        seen.append(place)
        left[place] = False
        y, x = place
        box = left[max(0, y - 1) : y + 2, max(0, x - 1) : x + 2]
        steps = np.argwhere(box)
        if not len(steps):
            break
        place = (int(steps[0][0] + max(0, y - 1)), int(steps[0][1] + max(0, x - 1)))
    if len(seen) < 4:
        return None
    back = np.array(seen[0], float) - np.array(seen[-1], float)
    return np.asarray(back / np.hypot(*back))


def _own_side(window: Mask, end: npt.NDArray[np.int64], heading: Array) -> Mask:
    """Mark the pixels of the line that the end belongs to, near the end: no path may lead back along them."""
    y, x = np.indices(window.shape)
    behind = (y - end[0]) * heading[0] + (x - end[1]) * heading[1] <= 0.5
    pieces, _ = ndi.label(window & behind, MIXED)
    return np.asarray((pieces == pieces[tuple(end)]) & (pieces > 0))


# --- drawing ---


def draw(line: Mask, ridge: Ridges, half_width: float = HALF_WIDTH) -> Mask:
    """Draw centrelines as bands of one width, after moving each point to the ridge's maximum across it."""
    points = np.argwhere(line)
    if not len(points):
        return np.zeros(line.shape, bool)
    angle = ridge.angle[tuple(points.T)].astype(float)
    normal = np.stack([np.cos(angle), -np.sin(angle)], axis=1)
    sides = [
        ndi.map_coordinates(ridge.strength, (points + step * normal).T, order=1, mode="nearest") for step in (-1.0, 1.0)
    ]
    middle = ridge.strength[tuple(points.T)]
    curvature = sides[0] + sides[1] - 2.0 * middle
    shift = np.where(curvature < -1e-6, 0.5 * (sides[0] - sides[1]) / np.minimum(curvature, -1e-6), 0.0)
    refined = points + np.clip(shift, -0.7, 0.7)[:, None] * normal
    pairs = _links(line, points)
    places = np.concatenate([refined, 0.5 * (refined[pairs[:, 0]] + refined[pairs[:, 1]])])
    reach = math.ceil(half_width)
    near = np.mgrid[-reach : reach + 1, -reach : reach + 1].reshape(2, -1).T
    pixels = np.rint(places).astype(int)[:, None] + near
    close = np.sum((pixels - places[:, None]) ** 2, axis=-1) <= half_width**2
    close &= np.all((pixels >= 0) & (pixels < line.shape), axis=-1)
    mask = np.zeros(line.shape, bool)
    mask[tuple(pixels[close].T)] = True
    return mask


def _links(line: Mask, points: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return pairs of rows of neighbouring points."""
    number = np.full(line.shape, -1)
    number[line] = np.arange(len(points))
    wide = np.pad(number, 1, constant_values=-1)
    pairs = []
    for dy, dx in ((0, 1), (1, -1), (1, 0), (1, 1)):
        other = wide[1 + dy : wide.shape[0] - 1 + dy, 1 + dx : wide.shape[1] - 1 + dx]
        both = (number >= 0) & (other >= 0)
        pairs.append(np.column_stack([number[both], other[both]]))
    return np.concatenate(pairs)


def segment(image: npt.NDArray[np.generic]) -> tuple[Mask, Mask, Ridges]:
    """Return mask, centrelines and ridges of one image."""
    ridge = ridges(*flatten(image))
    line = trace(ridge)
    return draw(line, ridge), line, ridge


# --- the task ---


@dataclass(frozen=True)
class _Result:
    """What was measured on one image; lengths in pixels."""

    image: Path
    mask: Path
    foreground: float
    pieces: int
    ends: int
    junctions: int
    length: float
    width: float
    lengths: tuple[float, ...]
    changes: tuple[float, float]


def run(job: Job) -> None:
    """Segment the filaments of every image; write masks, figures and a report."""
    images = list_images(job.input_dir)
    results: list[_Result] = []
    for path in images:
        with job.attempt(path.name):
            mask, line, ridge = segment(as_grey(read_image(path)))
            target = job.output_dir / f"{_name(path)}_mask.tif"
            tifffile.imwrite(target, mask.astype(np.uint8), photometric="minisblack", compression="zlib")
            job.delivered += 1
            results.append(_measure(path, target, line, ridge))
            job.log(f"{path.name}: {results[-1].length:.0f} px of filament in {results[-1].pieces} pieces")
    changes = ("length_change_at_80_percent", "length_change_at_120_percent")
    columns = ("image", "foreground_share", "pieces", "ends", "junctions", "length_px", "width_sigma_px", *changes)
    rows = [(r.image.name, r.foreground, r.pieces, r.ends, r.junctions, r.length, r.width, *r.changes) for r in results]
    with job.attempt("table"):
        write_table(job.folder("tables") / "filaments_per_image.csv", columns, rows, ",")
    if results:
        with job.attempt("figures"):
            _figures(job, results)
    with job.attempt("report"):
        _report(job, results, len(images))


def _name(path: Path) -> str:
    """Return the name of an image without a last word such as ``.noisy``."""
    return re.sub(r"\.[A-Za-z]+$", "", stem(path))


def _measure(path: Path, target: Path, line: Mask, ridge: Ridges) -> _Result:
    mask = tifffile.imread(target) > 0
    neighbours = _neighbours(line)
    pieces, count = ndi.label(line, MIXED)
    lengths = tuple(_length(pieces == label) for label in range(1, count + 1)) if count < 400 else ()
    total = _length(line)
    changes = [(_length(trace(ridge, rigour)) - total) / max(total, 1.0) for rigour in (0.8, 1.2)]
    return _Result(
        image=path,
        mask=target,
        foreground=float(mask.mean()),
        pieces=count,
        ends=int(np.sum(line & (neighbours == 1))),
        junctions=int(ndi.label(line & (neighbours > 2), MIXED)[1]),
        length=total,
        width=ridge.width / 1.3,
        lengths=lengths,
        changes=(changes[0], changes[1]),
    )


def _length(line: Mask) -> float:
    """Return the length of a centreline in pixels; diagonal steps count root two, corners once."""
    straight = np.count_nonzero(line[1:] & line[:-1]) + np.count_nonzero(line[:, 1:] & line[:, :-1])
    corner = (line[1:, 1:] & line[:-1, :-1] & ~line[1:, :-1] & ~line[:-1, 1:]).sum()
    corner += (line[1:, :-1] & line[:-1, 1:] & ~line[1:, 1:] & ~line[:-1, :-1]).sum()
    return float(straight + math.sqrt(2.0) * corner)


def _figures(job: Job, results: Sequence[_Result]) -> None:
    folder = job.folder("figures")
    scale = Scale()
    order = sorted(results, key=lambda result: result.ends / max(result.length, 1.0))
    typical, difficult = order[len(order) // 2], order[-1]
    figure = new_figure(180, 125)
    axes = figure.subplots(2, 3)
    for row, (result, word) in enumerate(((typical, "typical"), (difficult, "difficult"))):
        grey = as_grey(read_image(result.image))
        flat, noise = flatten(grey)
        ridge = ridges(flat, noise)
        line = skeletonize(tifffile.imread(result.mask) > 0)
        smooth = to_rgb(ndi.gaussian_filter(flat / noise, 0.8), high=99.9)
        show_image(axes[row, 0], to_rgb(grey), scale, f"raw ({word})")
        show_image(axes[row, 1], to_rgb(np.clip(ridge.strength, 0, None), high=99.9), scale, "ridge strength")
        show_image(axes[row, 2], smooth, scale, "skeleton, ends, junctions")
        neighbours = _neighbours(line)
        for points, colour, label, size in (
            (line, ORANGE, "skeleton", 0.3),
            (line & (neighbours == 1), SKY, "end", 12),
            (line & (neighbours > 2), VERMILION, "junction", 6),
        ):
            y, x = np.nonzero(points)
            axes[row, 2].scatter(x, y, s=size, color=hexadecimal(colour), label=label, linewidths=0)
    axes[0, 2].legend(loc="upper left", fontsize=6, markerscale=2)
    panel_letters(axes.ravel())
    save_figure(figure, folder, "panels")

    for result in (typical, difficult):
        zoom = 2 if max(tifffile.imread(result.mask).shape) < 1200 else 1
        labels = (tifffile.imread(result.mask) > 0).astype(np.int32)
        canvas = draw_outlines(to_rgb(as_grey(read_image(result.image))), [(labels, ORANGE)], zoom)
        picture = annotate(canvas, scale, zoom, [("outline of the mask", ORANGE)])
        save_overlay(picture, folder / f"{_name(result.image)}_overlay.png")

    figure = new_figure(180, 60)
    axes = figure.subplots(1, 3)
    lengths = [length for result in results for length in result.lengths]
    axes[0].hist(lengths, bins=40, color=hexadecimal(SKY))
    axes[0].set(xlabel="length of connected piece (px)", ylabel="pieces", yscale="log")
    places = np.arange(len(results))
    axes[1].bar(places - 0.2, [result.ends for result in results], 0.4, color=hexadecimal(SKY), label="ends")
    axes[1].bar(places + 0.2, [result.pieces for result in results], 0.4, color=hexadecimal(ORANGE), label="pieces")
    axes[1].set(xlabel="image", ylabel="number", xticks=places)
    axes[1].legend()
    for side, (marker, label) in enumerate((("v", "thresholds x 0.8"), ("^", "thresholds x 1.2"))):
        axes[2].plot(places, [100 * result.changes[side] for result in results], marker, label=label, markersize=4)
    axes[2].axhline(0, color="black", lw=0.6)
    axes[2].set(xlabel="image", ylabel="change of total length (%)", xticks=places)
    axes[2].legend()
    panel_letters(axes)
    save_figure(figure, folder, "measures")


def _report(job: Job, results: Sequence[_Result], expected: int) -> None:
    report = Report("Segmentation of microtubules")
    report.section(
        "Question",
        "Which pixels of each picture belong to a microtubule? Lengths and connections are to be measured on the "
        "masks, so each filament must stay in one piece, to its faint ends, and be as wide everywhere.",
    )
    report.section("Method")
    report.bullets(
        "Haze and uneven light: a wide Gaussian surface (12 px) fitted below the filaments is subtracted. The "
        "noise is measured in classes of the haze's brightness, and everything is expressed in units of it, so "
        "that dim regions are judged by their own level.",
        f"Ridges: second derivatives of a Gaussian across the filament, in {ORIENTATIONS} directions, averaged "
        f"along it over three parts {STRIDE:g} px apart: this denoises without merging neighbours. The answer is "
        "the mean of the parts, but at most 1.5 times their median, so that specks excite it little. The filter is "
        "1.3 times as wide as the filaments' mean profile.",
        f"Tracing: maxima across the ridge; pieces that reach {HIGH} times the noise, followed down to {LOW} times. "
        f"Free ends are prolonged along the strongest path of up to {REACH} px to a line ahead, if its mean "
        f"strength exceeds {0.75 * LOW:.1f}. Side branches below {SPUR:g} px and pieces below {SHORTEST:g} px are "
        "removed.",
        "Drawing: each point is moved to the ridge's maximum by a parabola (sub-pixel), then a band of "
        f"{2 * HALF_WIDTH:g} px is drawn, whatever the brightness.",
    )
    report.section("Result")
    report.table(
        ("image", "filament area (%)", "length (px)", "pieces", "ends", "junctions"),
        [(r.image.name, 100 * r.foreground, r.length, r.pieces, r.ends, r.junctions) for r in results],
    )
    lengths = [length for result in results for length in result.lengths]
    report.bullets(
        f"Length of connected pieces: {Summary.of(lengths).text('px')}.",
        f"Share of the area that is filament: {Summary.of([100 * r.foreground for r in results]).text('%')} (images).",
        f"Width of filaments (sigma of the mean profile): {Summary.of([r.width for r in results]).text('px')}.",
    )
    report.section("Quality control")
    lower, higher = (Summary.of([100 * r.changes[side] for r in results]) for side in (0, 1))
    report.text(
        f"With both thresholds 20 % lower the total length changes by {number(lower.median)} % (median over "
        f"images), 20 % higher by {number(higher.median)} %. `figures/panels` shows raw image, ridge strength and "
        "skeleton with ends and junctions, `figures/*_overlay.png` the outlines on the raw image, "
        "`figures/measures` the numbers above per image."
    )
    report.failures(job.failures, expected, "images")
    report.section("Caveats")
    report.bullets(
        "Filaments side by side at less than about 3 px are drawn as one; where they cross, which end belongs to "
        "which is not decided.",
        "The last part of fading ends falls below the lower threshold; lengths are too small rather than too large.",
        "No pixel size is known: all lengths are in pixels. There is no reference to measure errors against.",
    )
    report.write(job.output_dir / "report.md")
