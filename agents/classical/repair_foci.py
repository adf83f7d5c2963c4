"""When do repair foci join replication foci in S phase? Nuclei, S phase, foci, tracks, first colocalization.

Everything is done movie by movie and frame by frame: nuclei are segmented and linked; in each, foci of both stains are
located; the period in which the replication stain is punctate is S phase; its foci are followed in the frame of their
nucleus, and the first frame in which a repair focus stays on one is the event.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage as ndi
from scipy import stats
from scipy.optimize import linear_sum_assignment

from . import _figures as figures
from ._io import list_images, read_image, write_table
from ._job import Job, parse_pixel_size_um
from ._report import Report, Summary
from ._segment import (
    Labels,
    Mask,
    distance_inside,
    object_radius,
    opened,
    otsu,
    split_touching,
    tidy,
)

RED, GREEN = 0, 1
FOCUS_UM = 1.0  # what the request calls the width of a focus
SPOT_NOISE = 6.0  # least height of a focus, in standard deviations of the response inside nuclei
SPOT_SHARE = 0.25  # and of the movie's typical strong focus
TOUCH = 0.6  # foci whose centres lie nearer than this share of a focus' width are together
SEARCH = 1.2  # widths of a focus that one may move in its nucleus from frame to frame
GAP = 2  # frames in which a focus or nucleus may be missed
SHORTEST_TRACK = 3  # frames of a replication focus
SHORTEST_S = 6  # frames of S phase
EDGE_FRAMES = 4  # frames that foci may take to gather or to fade
CONFIRM = 3  # frames from the onset on, of which at least two must show both foci

Array = npt.NDArray[np.float64]


@dataclass
class Nucleus:
    """A nucleus over time: by frame its centre, and the foci of both stains in it (rows of y, x, height)."""

    number: int
    centres: dict[int, Array] = field(default_factory=dict)
    areas: dict[int, float] = field(default_factory=dict)
    red: dict[int, Array] = field(default_factory=dict)
    green: dict[int, Array] = field(default_factory=dict)
    grain: dict[int, float] = field(default_factory=dict)  # of the replication stain: spread of its fine structure
    entry: int | None = None
    exit: int | None = None
    reason: str = ""
    tracks: list[Track] = field(default_factory=list)


@dataclass
class Track:
    """A replication focus over time: frame to (y, x), and the frames in which a repair focus is on it."""

    places: dict[int, Array] = field(default_factory=dict)
    together: list[int] = field(default_factory=list)
    onset: int | None = None


@dataclass(frozen=True)
class Movie:
    """A condition: its frames in order, their numbers, and the region of the burnt-in time."""

    condition: str
    paths: list[Path]
    numbers: list[int]
    stamp: tuple[slice, slice] | None


def find_movies(folder: Path) -> list[Movie]:
    """Return the movies: folders of images with a running number in their names."""
    by_folder: dict[Path, list[tuple[int, Path]]] = {}
    for path in list_images(folder):
        if number := re.match(r"(?i)t(\d+)", path.name):
            by_folder.setdefault(path.parent, []).append((int(number[1]), path))
    movies = []
    for parent, frames in sorted(by_folder.items()):
        frames.sort()
        name = re.sub(r"(?i)\.tiff?$", "", parent.name).rsplit("_", 1)[-1]
        paths = [path for _, path in frames]
        movies.append(Movie(name, paths, [number for number, _ in frames], find_stamp(paths)))
    return sorted(movies, key=lambda movie: "control" not in movie.condition.lower())


def find_stamp(paths: Sequence[Path]) -> tuple[slice, slice] | None:
    """Return the rectangle of the time stamp: pixels at the upper edge that are often white in all channels."""
    white: Any = None
    looked = paths[:: -(-len(paths) // 12)]
    for path in looked:
        image = read_image(path)
        found = (image > 0.98 * np.iinfo(image.dtype).max).all(axis=-1).astype(np.int64)
        white = found if white is None else white + found
    if white is None:
        return None
    height = white.shape[0] // 8
    zone = white[:height] >= max(2, len(looked) // 4)
    if zone.sum() < 10:
        return None
    any_white = white[:height] > 0
    rows, columns = np.nonzero(ndi.binary_dilation(zone, iterations=height // 4) & any_white)
    margin = 3
    return (
        slice(max(0, rows.min() - margin), rows.max() + margin + 1),
        slice(max(0, columns.min() - margin), columns.max() + margin + 1),
    )


def frames_of(movie: Movie) -> Iterator[tuple[int, Array]]:
    """Yield index and (y, x, 2) float image of each frame, the stamp blanked."""
    for index, path in enumerate(movie.paths):
        image = read_image(path)[..., :2].astype(float)
        if movie.stamp is not None:
            image[movie.stamp] = 0.0
        yield index, image


# --- nuclei ---------------------------------------------------------------------------------------------------------


def nuclear_mask(image: Array, blur: float) -> Mask:
    """Return the foreground of the smoothed sum of both stains."""
    smooth = ndi.gaussian_filter(np.sqrt(np.clip(image, 0, None)).sum(axis=-1), blur)
    return np.asarray(ndi.binary_fill_holes(smooth > otsu(smooth)), bool)


def segment_nuclei(image: Array, radius: float) -> Labels:
    """Return the nuclei of a frame."""
    mask = opened(nuclear_mask(image, 0.1 * radius), 0.4 * radius)
    depth = ndi.gaussian_filter(distance_inside(mask), 0.15 * radius) / radius
    return tidy(split_touching(mask, np.asarray(depth, np.float32), 0.12), 0.3 * math.pi * radius**2)


def assign(cost: Array, limit: float) -> list[tuple[int, int]]:
    """Return the pairs of an optimal assignment whose cost is within a limit."""
    if not cost.size:
        return []
    rows, columns = linear_sum_assignment(np.minimum(cost, 10.0 * limit))
    return [(int(r), int(c)) for r, c in zip(rows, columns, strict=True) if cost[r, c] <= limit]


# --- foci -----------------------------------------------------------------------------------------------------------


def response(channel: Array, sigma: float) -> Array:
    """Return a difference of Gaussians, positive on spots of standard deviation ``sigma``."""
    return np.asarray(ndi.gaussian_filter(channel, 0.7 * sigma) - ndi.gaussian_filter(channel, 2.0 * sigma))


def find_spots(answer: Array, labels: Labels, least: float) -> tuple[Array, npt.NDArray[np.int64]]:
    """Return local maxima inside nuclei as rows of y, x, height (to a fraction of a pixel), and the nucleus of each."""
    peaks = (answer == ndi.maximum_filter(answer, 3)) & (labels > 0) & (answer > least)
    rows, columns = np.nonzero(peaks)
    inner = (rows > 0) & (columns > 0) & (rows < answer.shape[0] - 1) & (columns < answer.shape[1] - 1)
    rows, columns = rows[inner], columns[inner]
    places = [rows.astype(float), columns.astype(float)]
    for axis, (dy, dx) in enumerate(((1, 0), (0, 1))):
        before, here, after = answer[rows - dy, columns - dx], answer[rows, columns], answer[rows + dy, columns + dx]
        curvature = np.minimum(before - 2 * here + after, -1e-9)
        places[axis] += np.clip(0.5 * (before - after) / curvature, -0.5, 0.5)
    return np.stack([*places, answer[rows, columns]], axis=1), labels[rows, columns].astype(np.int64)


def spread_of(answer: Array, inside: Mask) -> float:
    """Return the standard deviation of a response among pixels of nuclei, from the median of absolute values."""
    values = answer[inside]
    return float(1.4826 * np.median(np.abs(values - np.median(values)))) if values.size else 0.0


# --- one movie ------------------------------------------------------------------------------------------------------


@dataclass
class Result:
    """What was found in a movie."""

    movie: Movie
    nuclei: list[Nucleus]
    radius: float
    sigma: float
    grain_limit: float
    levels: tuple[float, float]  # least height of a focus in both stains
    lost: int  # objects that were seen in too few frames to be a nucleus


def analyse(job: Job, movie: Movie, pixel_um: float | None) -> Result:
    """Analyse a movie: two passes over its frames, one for sizes and levels, one for nuclei and foci."""
    sample = [image for index, image in frames_of(movie) if index % max(1, len(movie.paths) // 6) == 0]
    radius = object_radius([nuclear_mask(image, 2.0) for image in sample])
    if radius is None:
        raise ValueError("no nuclei in the sample of frames")
    sigma = max(1.0, FOCUS_UM / pixel_um / 2.355) if pixel_um else 1.0
    levels = focus_levels(sample, radius, sigma)
    nuclei: list[Nucleus] = []
    for index, image in frames_of(movie):
        with job.attempt(f"{movie.condition}, {movie.paths[index].name}"):
            add_frame(nuclei, index, image, radius, sigma, levels)
    lasting = [nucleus for nucleus in nuclei if len(nucleus.centres) >= SHORTEST_S]
    limit = grain_limit(lasting)
    for number, nucleus in enumerate(lasting, start=1):
        nucleus.number = number
        find_s_phase(nucleus, limit, len(movie.paths))
        if nucleus.entry is not None and nucleus.exit is not None:
            nucleus.tracks = follow(nucleus, 2.355 * sigma)
            find_onsets(nucleus, 2.355 * sigma)
    return Result(movie, lasting, radius, sigma, limit, levels, len(nuclei) - len(lasting))


def focus_levels(sample: Sequence[Array], radius: float, sigma: float) -> tuple[float, float]:
    """Return the least height of a focus in both stains: above noise, and a share of the strong foci of the movie."""
    levels = []
    for channel in (RED, GREEN):
        spreads, tops = [], []
        for image in sample:
            labels = segment_nuclei(image, radius)
            answer = response(image[..., channel], sigma)
            spreads.append(spread_of(answer, labels > 0))
            spots, _ = find_spots(answer, labels, SPOT_NOISE * spreads[-1])
            tops += spots[:, 2].tolist()
        strong = float(np.percentile(tops, 80)) if tops else 0.0
        levels.append(max(SPOT_NOISE * float(np.median(spreads)), SPOT_SHARE * strong))
    return levels[0], levels[1]


def add_frame(
    nuclei: list[Nucleus], index: int, image: Array, radius: float, sigma: float, levels: tuple[float, float]
) -> None:
    """Segment a frame, link its nuclei to those seen before, and note the foci in each."""
    labels = segment_nuclei(image, radius)
    count = int(labels.max())
    if count == 0:
        return
    centres = np.array(ndi.center_of_mass(labels > 0, labels, np.arange(1, count + 1))).reshape(-1, 2)
    open_ones = [nucleus for nucleus in nuclei if index - max(nucleus.centres) <= GAP + 1]
    before = np.array([nucleus.centres[max(nucleus.centres)] for nucleus in open_ones]).reshape(-1, 2)
    distance = np.linalg.norm(before[:, None] - centres[None], axis=2)
    owner: dict[int, Nucleus] = {column + 1: open_ones[row] for row, column in assign(distance, radius)}
    answers = [response(image[..., channel], sigma) for channel in (RED, GREEN)]
    spots = [find_spots(answer, labels, level) for answer, level in zip(answers, levels, strict=True)]
    means = ndi.mean(image[..., RED], labels, np.arange(1, count + 1))
    areas = np.bincount(labels.ravel(), minlength=count + 1)
    for label in range(1, count + 1):
        if label not in owner:
            owner[label] = Nucleus(0)
            nuclei.append(owner[label])
        nucleus = owner[label]
        nucleus.centres[index] = centres[label - 1]
        nucleus.areas[index] = float(areas[label])
        nucleus.red[index], nucleus.green[index] = (found[home == label] for found, home in spots)
        top = float(np.percentile(answers[RED][labels == label], 97))
        nucleus.grain[index] = top / max(float(means[label - 1]), 1.0)


def grain_limit(nuclei: Sequence[Nucleus]) -> float:
    """Return the punctateness between that of spread-out and of punctate stain, over all nuclei and frames."""
    values = np.log([max(value, 1e-3) for nucleus in nuclei for value in nucleus.grain.values()])
    return float(np.exp(otsu(values))) if values.size else math.inf


def find_s_phase(nucleus: Nucleus, limit: float, frames: int) -> None:
    """Set entry and exit (first frame after) of the longest lasting punctate period, or the reason why there is
    none."""
    known = sorted(nucleus.grain)
    values = np.interp(np.arange(frames), known, [nucleus.grain[t] for t in known])
    punctate = ndi.median_filter(values, 3, mode="nearest") > limit
    punctate[: known[0]] = punctate[known[-1] + 1 :] = False
    # Interruptions and periods shorter than the gap are noise.
    punctate = ndi.binary_closing(np.pad(punctate, 4, mode="edge"), np.ones(4))[4:-4]
    runs, count = ndi.label(punctate)
    if count == 0:
        nucleus.reason = "never punctate"
        return
    longest = 1 + int(np.argmax(np.bincount(runs)[1:]))
    inside = np.flatnonzero(runs == longest)
    entry, leave = _extended(values, int(inside[0]), int(inside[-1]) + 1)
    if entry <= known[0]:
        nucleus.reason = "punctate from the first frame on"
    elif leave > known[-1]:
        nucleus.reason = "punctate to the last frame"
    elif leave - entry < SHORTEST_S:
        nucleus.reason = f"punctate for {leave - entry} frames only"
    else:
        nucleus.entry, nucleus.exit = entry, leave


def _extended(values: Array, entry: int, leave: int) -> tuple[int, int]:
    """Move both ends outwards while the stain is still more punctate than the same nucleus outside of S phase.

    Foci gather and fade within a few frames; the level between the two states is crossed in the middle of that.
    """
    outside = np.concatenate([values[: max(0, entry - EDGE_FRAMES)], values[leave + EDGE_FRAMES :]])
    if outside.size < EDGE_FRAMES:
        return entry, leave
    spread = 1.4826 * float(np.median(np.abs(outside - np.median(outside))))
    low = float(np.median(outside)) + 4.0 * spread
    first, last = max(0, entry - EDGE_FRAMES), min(len(values), leave + EDGE_FRAMES)
    while entry > first and values[entry - 1] > low:
        entry -= 1
    while leave < last and values[leave] > low:
        leave += 1
    return entry, leave


def follow(nucleus: Nucleus, width: float) -> list[Track]:
    """Link the replication foci of a nucleus in S phase, its own movement taken off."""
    assert nucleus.entry is not None
    assert nucleus.exit is not None
    tracks: list[Track] = []
    for t in range(nucleus.entry, nucleus.exit):
        if t not in nucleus.red:
            continue
        places = nucleus.red[t][:, :2]
        heights = nucleus.red[t][:, 2]
        active = [track for track in tracks if t - max(track.places) <= GAP + 1]
        expected = np.array([_carried(nucleus, track, t) for track in active]).reshape(-1, 2)
        distance = np.linalg.norm(expected[:, None] - places[None], axis=2)
        pairs = assign(distance, SEARCH * width)
        for row, column in pairs:
            active[row].places[t] = places[column]
        taken = {column for _, column in pairs}
        for column in np.argsort(-heights, kind="stable").tolist():
            if column not in taken:
                tracks.append(Track({t: places[column]}))
    return [track for track in tracks if len(track.places) >= SHORTEST_TRACK]


def _carried(nucleus: Nucleus, track: Track, t: int) -> Array:
    """Return where a focus is expected at a frame if it moves with its nucleus."""
    last = max(track.places)
    return np.asarray(track.places[last] + nucleus.centres[t] - nucleus.centres[last])


def find_onsets(nucleus: Nucleus, width: float) -> None:
    """Set the first frame of each track from which on a repair focus stays with it.

    Where the repair focus was there before the replication focus was seen, it did not join it: no event.
    """
    for track in nucleus.tracks:
        for t, place in sorted(track.places.items()):
            if _repair_at(nucleus, t, place, TOUCH * width):
                track.together.append(t)
        for t in track.together:
            following = sum(t <= other < t + CONFIRM for other in track.together)
            if following >= 2:
                if t > min(track.places) or not _repair_before(nucleus, t, track.places[t], TOUCH * width):
                    track.onset = t
                break


def _repair_at(nucleus: Nucleus, t: int, place: Array, reach: float) -> bool:
    repair = nucleus.green.get(t)
    return (
        repair is not None and len(repair) > 0 and float(np.linalg.norm(repair[:, :2] - place, axis=1).min()) <= reach
    )


def _repair_before(nucleus: Nucleus, t: int, place: Array, reach: float) -> bool:
    """Whether a repair focus was at the same place of the nucleus in one of the two frames before."""
    return any(
        _repair_at(nucleus, s, place + nucleus.centres[s] - nucleus.centres[t], 1.5 * reach)
        for s in (t - 1, t - 2)
        if s in nucleus.centres
    )


# --- the whole job --------------------------------------------------------------------------------------------------


def run(job: Job) -> None:
    """Analyse all movies, write the table of events, then figures and report."""
    movies = find_movies(job.input_dir)
    if not movies:
        raise ValueError("no folder with images named like T00001C01Z001.tif")
    results: list[Result] = []
    pixel_um: float | None = None
    for movie in movies:
        with job.attempt(movie.condition):
            columns = read_image(movie.paths[0]).shape[1]
            pixel_um = pixel_size(job.instruction, columns)
            results.append(analyse(job, movie, pixel_um))
            kept = [nucleus for nucleus in results[-1].nuclei if nucleus.entry is not None]
            events = sum(track.onset is not None for nucleus in kept for track in nucleus.tracks)
            job.log(f"{movie.condition}: {len(movie.paths)} frames, {len(kept)} nuclei, {events} events")
    table = job.output_dir / "coloc_results.csv"
    write_events(table, results)
    groups = read_events(table)
    job.delivered = sum(len(values) for values in groups.values())
    write_nuclei(job.output_dir / "supporting" / "nuclei.csv", results)
    scale = figures.Scale(pixel_um)
    with job.attempt("figures"):
        draw_events(job, groups)
        draw_courses(job, results)
    with job.attempt("montages"):
        for result in results:
            draw_montage(job, result, scale)
            draw_tracks(job, result, scale)
    write_report(job, movies, results, groups, scale)


def pixel_size(instruction: str, columns: int) -> float | None:
    """Return the pixel size in µm: stated, or from the stated width of the field."""
    text = " ".join(instruction.split())
    if field_width := re.search(r"field is ([0-9.]+)\s*(?:µm|um|micrometres) wide", text):
        return float(field_width[1]) / columns
    return parse_pixel_size_um(instruction)


def write_events(path: Path, results: Sequence[Result]) -> None:
    """Write one row per event."""
    rows: list[Sequence[object]] = []
    for result in results:
        for nucleus in result.nuclei:
            if nucleus.entry is None or nucleus.exit is None:
                continue
            length = nucleus.exit - nucleus.entry
            for track in sorted(nucleus.tracks, key=lambda track: track.onset or 0):
                if track.onset is None:
                    continue
                y, x = track.places[track.onset]
                numbers = [
                    result.movie.numbers[min(t, len(result.movie.numbers) - 1)] for t in (nucleus.entry, nucleus.exit)
                ]
                rows.append(
                    (
                        result.movie.condition,
                        nucleus.number,
                        result.movie.numbers[track.onset],
                        f"{y:.2f}",
                        f"{x:.2f}",
                        (track.onset - nucleus.entry) / length,
                        *numbers,
                        track.onset - nucleus.entry,
                        length,
                    )
                )
    columns = ["condition", "cell", "frame", "y", "x", "start_normalized", "s_entry_frame", "s_exit_frame"]
    write_table(path, [*columns, "start_coloc_frames", "s_phase_length_frames"], rows, delimiter=",")


def read_events(path: Path) -> dict[str, dict[str, list[float]]]:
    """Read the delivered table back: onsets by condition and nucleus."""
    found: dict[str, dict[str, list[float]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["condition"], {}).setdefault(row["cell"], []).append(float(row["start_normalized"]))
    return found


def _pooled(cells: dict[str, list[float]]) -> Array:
    return np.array([value for values in cells.values() for value in values])


def write_nuclei(path: Path, results: Sequence[Result]) -> None:
    """Write every nucleus with its S phase, or why it has none."""
    rows = [
        (
            result.movie.condition,
            nucleus.number,
            "" if nucleus.entry is None else result.movie.numbers[nucleus.entry],
            "" if nucleus.entry is None or nucleus.exit is None else nucleus.exit - nucleus.entry,
            len(nucleus.tracks),
            sum(track.onset is not None for track in nucleus.tracks),
            nucleus.reason,
        )
        for result in results
        for nucleus in result.nuclei
    ]
    columns = [
        "condition",
        "cell",
        "s_entry_frame",
        "s_phase_length_frames",
        "replication_tracks",
        "events",
        "left_out",
    ]
    write_table(path, columns, rows, delimiter=",")


# --- figures --------------------------------------------------------------------------------------------------------


def draw_events(job: Job, groups: dict[str, dict[str, list[float]]]) -> None:
    """Plot all events and the medians of nuclei by condition, with the test."""
    figure = figures.new_figure(90, 85)
    axis = figure.subplots()
    rng = np.random.default_rng(0)
    for place, (cells, colour) in enumerate(zip(groups.values(), figures.COLOURS, strict=False)):
        values = _pooled(cells)
        shade = figures.hexadecimal(colour)
        axis.plot(place + rng.uniform(-0.2, 0.2, values.size), values, ".", color=shade, alpha=0.6, markersize=5)
        medians = [float(np.median(own)) for own in cells.values()]
        axis.plot(np.full(len(medians), place + 0.32), medians, "D", color=shade, markersize=3.5)
        axis.plot([place - 0.25, place + 0.25], [np.median(values)] * 2, color="black", linewidth=1.5)
    names = [f"{name}\n{_pooled(cells).size} events, {len(cells)} nuclei" for name, cells in groups.items()]
    axis.set_xticks(range(len(groups)), names)
    axis.set_xlabel("Condition")
    axis.set_ylabel("Normalized colocalization start")
    axis.set_ylim(-0.02, 1.08)
    samples = [_pooled(cells) for cells in groups.values()]
    if len(samples) == 2:
        p = float(stats.mannwhitneyu(*samples).pvalue)
        axis.plot([0, 0, 1, 1], [0.98, 1.0, 1.0, 0.98], color="black", linewidth=0.8)
        axis.text(0.5, 1.01, f"p = {p:.2g}" if p >= 0.001 else "p < 0.001", ha="center", va="bottom", fontsize=7)
    axis.set_title("dots: events, bars: medians, diamonds: medians of nuclei", fontsize=6)
    figures.save_figure(figure, job.output_dir / "figures", "coloc_onsets")


def draw_courses(job: Job, results: Sequence[Result]) -> None:
    """Plot how punctate the replication stain is over time, with S phase (shaded) and onsets (lines)."""
    most = max(len(result.nuclei) for result in results)
    shown = min(most, 10)
    figure = figures.new_figure(180, 22 * shown + 10)
    axes = figure.subplots(shown, len(results), sharex="col", squeeze=False)
    for column, result in enumerate(results):
        for row in range(shown):
            axis = axes[row][column]
            if row >= len(result.nuclei):
                axis.set_visible(False)
                continue
            nucleus = result.nuclei[row]
            times = sorted(nucleus.grain)
            axis.plot(
                [result.movie.numbers[t] for t in times],
                [nucleus.grain[t] for t in times],
                color="black",
                linewidth=0.8,
            )
            axis.axhline(result.grain_limit, color="grey", linestyle=":", linewidth=0.8)
            if nucleus.entry is not None and nucleus.exit is not None:
                first, last = (result.movie.numbers[t] for t in (nucleus.entry, nucleus.exit - 1))
                axis.axvspan(first, last, color=figures.hexadecimal(figures.SKY), alpha=0.35)
                for track in nucleus.tracks:
                    if track.onset is not None:
                        axis.axvline(
                            result.movie.numbers[track.onset],
                            color=figures.hexadecimal(figures.VERMILION),
                            linewidth=0.7,
                        )
            axis.set_title(f"{result.movie.condition}, nucleus {nucleus.number} {nucleus.reason}", fontsize=6)
        axes[shown - 1][column].set_xlabel("frame")
        axes[shown // 2][column].set_ylabel("punctateness", fontsize=7)
    figures.save_figure(figure, job.output_dir / "figures", "s_phase")


def _crop(image: Array, centre: Array, half: int) -> Array:
    padded = np.pad(image, ((half, half), (half, half), (0, 0)))
    y, x = (round(float(value)) + half for value in centre)
    return np.asarray(padded[y - half : y + half + 1, x - half : x + half + 1])


def draw_montage(job: Job, result: Result, scale: figures.Scale, most: int = 3) -> None:
    """Show nuclei at entry into S phase and at a median onset: both stains and their merge, the event marked."""
    chosen = [n for n in result.nuclei if n.entry is not None and any(t.onset is not None for t in n.tracks)][:most]
    if not chosen:
        return
    half, zoom = round(1.5 * result.radius), 4
    figure = figures.new_figure(180, 34 * len(chosen))
    axes = figure.subplots(len(chosen), 6, squeeze=False)
    wanted: dict[int, Array] = {}
    events = []
    for nucleus in chosen:
        onsets = sorted((track.onset, id(track), track) for track in nucleus.tracks if track.onset is not None)
        events.append(onsets[len(onsets) // 2][2])
    needed = {t for nucleus, track in zip(chosen, events, strict=True) for t in (nucleus.entry, track.onset)}
    for index, image in frames_of(result.movie):
        if index in needed:
            wanted[index] = image
    top = [float(np.percentile(np.stack(list(wanted.values()))[..., k], 99.8)) for k in (RED, GREEN)]
    for line, nucleus, track in zip(axes, chosen, events, strict=True):
        for side, t in enumerate((nucleus.entry, track.onset)):
            assert t is not None
            crop = np.clip(_crop(wanted[t], nucleus.centres[t], half) / np.maximum(top, 1.0), 0, 1)
            shown = (255 * np.repeat(np.repeat(crop, zoom, axis=0), zoom, axis=1)).astype(np.uint8)
            none = np.zeros_like(shown[..., 0])
            layers = (
                ("PCNA", np.stack([shown[..., 0], none, none], axis=-1)),
                ("RAD18", np.stack([none, shown[..., 1], none], axis=-1)),
                ("merge", np.stack([shown[..., 0], shown[..., 1], none], axis=-1)),
            )
            for axis, (name, layer) in zip(line[3 * side : 3 * side + 3], layers, strict=True):
                when = "entry" if side == 0 else "onset"
                figures.show_image(
                    axis, layer, _Zoomed(scale.pixel_um, zoom), f"{name}, {when} {result.movie.numbers[t]}"
                )
                axis.title.set_fontsize(6)
                if side:
                    y, x = track.places[t] - np.round(nucleus.centres[t]) + half
                    axis.plot((x + 0.5) * zoom, (y + 0.5) * zoom, "o", markersize=9, fillstyle="none", color="white")
    figures.save_figure(figure, job.output_dir / "figures", f"montage_{result.movie.condition}")


@dataclass(frozen=True)
class _Zoomed(figures.Scale):
    """Pixels of an image that is shown enlarged."""

    zoom: int = 4

    def bar(self, width_px: int) -> tuple[float, str]:
        pixels, label = super().bar(width_px // self.zoom)
        return pixels * self.zoom, label


def draw_tracks(job: Job, result: Result, scale: figures.Scale) -> None:
    """Draw all tracks of replication foci over the frame in the middle of the movie, events marked at their onset."""
    middle = len(result.movie.paths) // 2
    image = next(image for index, image in frames_of(result.movie) if index == middle)
    zoom = max(1, 1000 // image.shape[1])
    display = [figures.to_rgb(image[..., k], high=99.8, gamma=0.6)[..., 0] for k in (RED, GREEN)]
    rgb = np.stack([display[0], display[1], np.zeros_like(display[0])], axis=-1)
    circles = []
    for nucleus in result.nuclei:
        for track in nucleus.tracks:
            here = [place for t, place in track.places.items() if abs(t - middle) <= 1]
            if here:
                colour = figures.SKY if track.onset is None or track.onset > middle else figures.YELLOW
                circles.append((float(here[0][0]), float(here[0][1]), 2.5, colour))
    numbers = [
        (float(n.centres[middle][0] - 1.2 * result.radius), float(n.centres[middle][1]), str(n.number))
        for n in result.nuclei
        if middle in n.centres
    ]
    legend = (("replication focus", figures.SKY), ("with repair focus", figures.YELLOW))
    picture = figures.annotate(figures.draw_outlines(rgb, [], zoom), scale, zoom, legend, numbers, circles)
    figures.save_overlay(
        picture, job.output_dir / "overlays" / f"{result.movie.condition}_{result.movie.numbers[middle]}.png"
    )


# --- report ---------------------------------------------------------------------------------------------------------


def chance_events(result: Result) -> int:
    """Count events after turning the repair foci by half a turn around their nucleus' centre: what chance gives."""
    width = 2.355 * result.sigma
    count = 0
    for nucleus in result.nuclei:
        if nucleus.entry is None:
            continue
        turned = Nucleus(nucleus.number, nucleus.centres, entry=nucleus.entry, exit=nucleus.exit)
        for t, spots in nucleus.green.items():
            mirrored = spots.copy()
            mirrored[:, :2] = 2 * nucleus.centres[t] - spots[:, :2]
            turned.green[t] = mirrored
        turned.tracks = [Track(dict(track.places)) for track in nucleus.tracks]
        find_onsets(turned, width)
        count += sum(track.onset is not None for track in turned.tracks)
    return count


def write_report(
    job: Job,
    movies: Sequence[Movie],
    results: Sequence[Result],
    groups: dict[str, dict[str, list[float]]],
    scale: figures.Scale,
) -> None:
    """Write the report; onsets, counts and tests are computed from the delivered table."""
    report = Report("When repair foci join replication foci in S phase")
    report.section(
        "Question", "Does the condition change when, within S phase, repair foci arrive at replication foci?"
    )
    report.section("Result")
    report.table(
        ["condition", "normalised onset of events", "nuclei", "median of the nuclei's medians"],
        [
            (
                name,
                Summary.of(_pooled(cells)).text() + " events",
                len(cells),
                float(np.median([np.median(own) for own in cells.values()])),
            )
            for name, cells in groups.items()
        ],
    )
    if len(groups) == 2:
        (first, one), (second, two) = groups.items()
        events = stats.mannwhitneyu(_pooled(one), _pooled(two))
        effect = float(events.statistic) / (_pooled(one).size * _pooled(two).size)
        medians = [[float(np.median(own)) for own in cells.values()] for cells in (one, two)]
        nuclei = stats.mannwhitneyu(*medians)
        report.text(
            f"{first} against {second}: two-sided Mann-Whitney p = {events.pvalue:.3g} over events; an event of "
            f"{first} is "
            f"the later one in {100 * effect:.0f} % of pairs. Events of one nucleus are not independent; over the "
            "medians of "
            f"nuclei p = {nuclei.pvalue:.3g} (n = {len(medians[0])} and {len(medians[1])})."
        )
    report.text(
        "Events: `figures/coloc_onsets`; S phases: `figures/s_phase`; examples: `figures/montage_*`, `overlays/`."
    )
    report.section("Method")
    size = f"{scale.pixel_um:.3f} µm per pixel" if scale.pixel_um else "pixel size unknown"
    report.bullets(
        f"Channels: red is the replication stain, green the repair stain; blue copies red and is not used. {size}. The "
        "time "
        "stamp at the upper edge was blanked.",
        "Nuclei: Otsu's threshold on the smoothed sum of both stains (square roots), parted at waists, linked from "
        "frame to "
        "frame by an optimal assignment of centres.",
        "S phase: punctateness is the 97th percentile of the spot response over the mean of the replication stain; the "
        "longest period above the level that parts both states (Otsu over all nuclei), ends moved to where the stain "
        "is "
        "more punctate than the same nucleus outside of S phase (median + 4 robust SD).",
        f"Foci: difference of Gaussians, at least {SPOT_NOISE:g} robust SD of the response inside nuclei and "
        f"{SPOT_SHARE:g} of "
        "the strong foci; located to a fraction of a pixel.",
        f"Tracks: optimal assignment in the frame of the nucleus, search radius {SEARCH:g} widths of a focus, gaps of "
        "up to "
        f"{GAP} frames, at least {SHORTEST_TRACK} frames.",
        f"Event: first frame with both centres within {TOUCH:g} widths of a focus, seen again within {CONFIRM} frames; "
        "none "
        "where the repair focus was there before the replication focus. Onset = (frame - entry) / (exit - entry).",
    )
    report.section("Quality control")
    report.failures(job.failures, sum(len(movie.paths) for movie in movies), "frames")
    rows = []
    for result in results:
        kept = [nucleus for nucleus in result.nuclei if nucleus.entry is not None]
        lengths = Summary.of([n.exit - n.entry for n in kept if n.exit is not None and n.entry is not None])
        rows.append(
            (
                result.movie.condition,
                len(result.movie.paths),
                len(result.nuclei),
                len(kept),
                lengths.text("frames") if kept else "–",
                sum(len(nucleus.tracks) for nucleus in kept),
                sum(track.onset is not None for nucleus in kept for track in nucleus.tracks),
                chance_events(result),
            )
        )
    report.table(
        [
            *("condition", "frames", "nuclei", "with a whole S phase", "its length"),
            *("replication tracks", "events", "events with repair foci turned by 180°"),
        ],
        rows,
    )
    reasons = [
        f"{result.movie.condition} {nucleus.number}: {nucleus.reason}"
        for result in results
        for nucleus in result.nuclei
        if nucleus.reason
    ]
    report.text("Nuclei left out: " + ("; ".join(reasons) if reasons else "none") + ".")
    report.section("Caveats")
    report.bullets(
        "One movie per condition: the test compares these two movies, not experiments.",
        "Projections put foci of different depth on top of each other; the turned control shows how often.",
        "An onset is known to one frame, which is a larger share of a shorter S phase. The interval between frames is "
        "in the "
        "burnt-in stamp and was not read; normalised onsets do not need it.",
        "Nuclei whose S phase is cut by the movie's ends are left out, which favours short S phases.",
    )
    report.write(job.output_dir / "report.md")
