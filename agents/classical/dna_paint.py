"""Localise single molecules in a blinking movie: temporal background, matched filter, joint Gaussian fits."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tifffile
from scipy import ndimage as ndi
from scipy.special import erf

from ._figures import (
    ORANGE,
    SKY,
    VERMILION,
    Scale,
    hexadecimal,
    new_figure,
    panel_letters,
    save_figure,
    show_image,
    to_rgb,
)
from ._io import list_images, stem, write_table
from ._job import Job
from ._report import Report, Summary, number

Array = npt.NDArray[np.float64]
Movie = npt.NDArray[np.float32]
Index = npt.NDArray[np.int64]

WINDOW = 41  # frames of the temporal median that follows the haze
LONG_WINDOW = 201  # frames of the one that finds lasting spots
SHORTEST = 60  # frames that a temporal median needs
BROAD_PX = 3.0  # what is broader than this is haze
STRIDE = 8  # frames between two medians; linear in between
RADIUS = 3  # half width of the fitted box
THRESHOLD = 4.6  # detection, in units of the filter's noise
MIN_SNR = 4.0  # of the fitted light against its expected error
WIDTHS = (0.6, 1.7)  # accepted widths, in units of the point spread
ROUNDS = 4


@dataclass
class Spots:
    """Fitted molecules: frame, place (pixel centres at whole numbers), light, and what the fit says about them."""

    frame: Index
    y: Array
    x: Array
    light: Array
    light_error: Array
    place_error: Array
    offset: Array
    width: Array

    def __len__(self) -> int:
        return len(self.frame)

    def take(self, rows: npt.NDArray[np.generic]) -> Spots:
        """Return some of the spots."""
        return Spots(*(part[rows] for part in vars(self).values()))


# --- background and noise ---


def flattened(movie: npt.NDArray[np.generic]) -> tuple[Movie, Movie]:
    """Return the movie without its background, and the background, a sliding temporal median that follows the lamp.

    Molecules are on in few frames, so that a median over time sees only what does not blink, lasting spots included.
    The broad part of the background changes within tens of frames and comes from a short window; a molecule that stays
    longer than half of it would be taken for background, so that the fine part comes from a window many times longer.
    A movie too short for that has its background taken from the surroundings within each frame.
    """
    frames = movie.astype(np.float32)
    if len(frames) < SHORTEST:
        background = np.stack([_surroundings(frame) for frame in frames])
        return frames - background, background
    level = np.median(frames, axis=(1, 2))
    dark = float(np.percentile(frames, 0.1))
    trend = ndi.median_filter(level, min(15, len(level)), mode="nearest")
    lamp = ((level - dark) / np.maximum(trend - dark, 1e-6)).astype(np.float32)[:, None, None]
    steady = (frames - dark) / lamp
    nodes = np.unique(np.append(np.arange(0, len(frames), STRIDE), len(frames) - 1))
    broad = [ndi.gaussian_filter(_median(steady, node, WINDOW), BROAD_PX, mode="nearest") for node in nodes]
    lasting = {node: _median(steady, node, LONG_WINDOW) for node in nodes[:: max(1, LONG_WINDOW // (8 * STRIDE))]}
    fine = {node: image - ndi.gaussian_filter(image, BROAD_PX, mode="nearest") for node, image in lasting.items()}
    anchors = [broad[k] + fine[min(fine, key=lambda other: abs(other - node))] for k, node in enumerate(nodes)]
    background = np.empty_like(frames)
    for t in range(len(frames)):
        right = int(np.clip(np.searchsorted(nodes, t), min(1, len(nodes) - 1), len(nodes) - 1))
        left = max(right - 1, 0)
        share = (t - nodes[left]) / max(1, nodes[right] - nodes[left])
        background[t] = ((1 - share) * anchors[left] + share * anchors[right]) * lamp[t] + dark
    return frames - background, background


def _surroundings(frame: Movie, block: int = 8) -> Movie:
    """Return the median of 3 x 3 blocks around every place of a frame, smoothed."""
    rows, columns = (max(1, length // block) for length in frame.shape)
    grid = frame[: rows * block, : columns * block].reshape(
        rows, -1, columns, frame[:1, : columns * block].size // columns
    )
    coarse = ndi.median_filter(np.median(grid, axis=(1, 3)), 3, mode="nearest")
    places = [np.clip((np.arange(length) + 0.5) / block - 0.5, 0, None) for length in frame.shape]
    return np.asarray(
        ndi.map_coordinates(coarse, np.meshgrid(*places, indexing="ij"), order=1, mode="nearest"), np.float32
    )


def _median(frames: Movie, middle: int, window: int) -> Movie:
    """Return the median over a window of frames, moved inward at the ends of the movie."""
    start = int(np.clip(middle - window // 2, 0, max(0, len(frames) - window)))
    return np.asarray(np.median(frames[start : start + window : 1 + window // 100], axis=0))


def noise_model(residual: Movie, background: Movie) -> tuple[float, float]:
    """Return slope and intercept of variance against background level: shot noise and read noise in grey values.

    Differences of neighbouring frames, robustly, in classes of the background level.
    """
    jump = np.diff(residual, axis=0)
    level = 0.5 * (background[1:] + background[:-1])
    edges = np.quantile(level[::5], np.linspace(0.0, 1.0, 13))
    means, variances = [], []
    for low, high in itertools.pairwise(edges):
        inside = (level >= low) & (level < high)
        if np.count_nonzero(inside) > 50:
            means.append(float(level[inside].mean()))
            variances.append(float((1.4826 * np.median(np.abs(jump[inside]))) ** 2 / 2.0))
    if len(means) < 3 or np.ptp(means) < 0.15 * np.mean(means):  # too even to tell a slope
        return 0.0, float(np.mean(variances)) if variances else 1.0
    slope, intercept = np.polyfit(means, variances, 1)
    if slope <= 0.0:
        return 0.0, float(np.mean(variances))
    return float(slope), float(intercept)


# --- fits ---


def _profile(place: Array, width: Array) -> tuple[Array, Array, Array]:
    """Share of light in each pixel of a row of boxes, ``(n, 2 RADIUS + 1)``, and its slope by place and by width."""
    edges = np.arange(-RADIUS, RADIUS + 2) - 0.5
    scaled = (edges[None, :] - place[:, None]) / width[:, None]
    cumulative = 0.5 * erf(scaled / np.sqrt(2.0))
    density = np.exp(-0.5 * scaled**2) / (np.sqrt(2.0 * np.pi) * width[:, None])
    return np.diff(cumulative, axis=1), -np.diff(density, axis=1), -np.diff(density * scaled, axis=1)


def fit_boxes(boxes: Array, variances: Array, width: float, *, free_width: bool = False, steps: int = 7) -> Array:
    """Fit a Gaussian, integrated over pixels, plus an offset to square boxes by weighted Levenberg-Marquardt.

    Parameters
    ----------
    boxes, variances : (n, k, k)
        Light without background, and the variance of each pixel.
    width
        Standard deviation of the point spread, in pixels; the start value where it is free.

    Returns
    -------
    fits : (n, 7)
        y, x (from the middle of the box), light, offset, width, standard errors of the light and of the place.
    """
    count = len(boxes)
    middle = boxes[:, RADIUS - 1 : RADIUS + 2, RADIUS - 1 : RADIUS + 2]
    rim = np.median(np.concatenate([boxes[:, 0], boxes[:, -1], boxes[:, :, 0], boxes[:, :, -1]], axis=1), axis=1)
    start = np.maximum((middle - rim[:, None, None]).sum(axis=(1, 2)) / 0.75, 1e-3)
    fits = np.column_stack([np.zeros(count), np.zeros(count), start, rim, np.full(count, width)])
    weights = 1.0 / variances
    used = 5 if free_width else 4
    damping = np.full(count, 1e-2)
    cost, gradient, hessian = _normal_equations(boxes, weights, fits, used)
    for _ in range(steps):
        diagonal = np.einsum("nii->ni", hessian)
        damped = hessian + np.einsum("ni,ij->nij", damping[:, None] * diagonal + 1e-12, np.eye(used))
        step = np.linalg.solve(damped, gradient[..., None])[..., 0]
        trial = fits.copy()
        trial[:, :used] += step
        trial[:, :2] = np.clip(trial[:, :2], -1.8, 1.8)
        trial[:, 4] = np.clip(trial[:, 4], 0.3 * width, 3.5 * width)
        new_cost, new_gradient, new_hessian = _normal_equations(boxes, weights, trial, used)
        better = new_cost <= cost
        fits[better], cost[better] = trial[better], new_cost[better]
        gradient[better], hessian[better] = new_gradient[better], new_hessian[better]
        damping = np.clip(np.where(better, damping / 5.0, damping * 4.0), 1e-6, 1e6)
    covariance = np.linalg.pinv(hessian)
    place = 0.5 * (covariance[:, 0, 0] + covariance[:, 1, 1])
    return np.column_stack([fits, np.sqrt(np.maximum(np.stack([covariance[:, 2, 2], place], axis=1), 0.0))])


def _normal_equations(boxes: Array, weights: Array, fits: Array, used: int) -> tuple[Array, Array, Array]:
    y, x, light, offset, width = fits.T
    row, row_place, row_width = _profile(y, width)
    column, column_place, column_width = _profile(x, width)
    shape = row[:, :, None] * column[:, None, :]
    parts = [
        light[:, None, None] * row_place[:, :, None] * column[:, None, :],
        light[:, None, None] * row[:, :, None] * column_place[:, None, :],
        shape,
        np.ones_like(shape),
        light[:, None, None]
        * (row_width[:, :, None] * column[:, None, :] + row[:, :, None] * column_width[:, None, :]),
    ]
    jacobian = np.stack(parts[:used], axis=-1).reshape(len(boxes), -1, used)
    rest = (boxes - light[:, None, None] * shape - offset[:, None, None]).reshape(len(boxes), -1)
    flat = weights.reshape(len(boxes), -1)
    weighted = np.swapaxes(jacobian * flat[..., None], 1, 2)
    return (flat * rest**2).sum(axis=1), (weighted @ rest[..., None])[..., 0], weighted @ jacobian


# --- detection ---


class Localiser:
    """Finds and fits the molecules of a movie."""

    def __init__(self, movie: npt.NDArray[np.generic]) -> None:
        self.residual, background = flattened(movie)
        slope, intercept = noise_model(self.residual, background)
        floor = 0.1 * float(np.median(np.square(np.diff(self.residual[:50], axis=0)))) + 1e-6
        self.variance = np.maximum(slope * background + intercept, floor).astype(np.float32)
        self.noise = np.sqrt(ndi.uniform_filter(self.variance, (0, 5, 5), mode="nearest"))
        self.gain = slope
        self.width = 1.0
        self.width = self._point_spread()

    def _filtered(self, frames: Movie) -> Movie:
        """Matched filter that ignores a constant and a slope: a difference of Gaussians over space, not over time."""
        inner = ndi.gaussian_filter(frames, (0, self.width, self.width), mode="nearest")
        outer = ndi.gaussian_filter(frames, (0, 2.2 * self.width, 2.2 * self.width), mode="nearest")
        return np.asarray(inner - outer)

    def detect(self, frames: Movie, threshold: float) -> Index:
        """Return (frame, y, x) of local maxima of the filter above a multiple of its noise."""
        impulse = np.zeros((1, 41, 41), np.float32)
        impulse[0, 20, 20] = 1.0
        snr = self._filtered(frames) / (self.noise * float(np.linalg.norm(self._filtered(impulse))))
        peaks = (snr == ndi.maximum_filter(snr, (0, 3, 3))) & (snr > threshold)
        peaks[:, :1], peaks[:, -1:], peaks[:, :, :1], peaks[:, :, -1:] = False, False, False, False
        return np.argwhere(peaks)

    def _boxes(self, frames: Movie, places: Index) -> Array:
        """Cut boxes out of frames; beyond the edge the nearest pixel is repeated."""
        span = np.arange(-RADIUS, RADIUS + 1)
        rows = np.clip(places[:, 1, None] + span, 0, frames.shape[1] - 1)
        columns = np.clip(places[:, 2, None] + span, 0, frames.shape[2] - 1)
        boxes: Array = frames[places[:, 0, None, None], rows[:, :, None], columns[:, None, :]].astype(np.float64)
        return boxes

    def _point_spread(self) -> float:
        """Return the width of the point spread: median over bright spots without a neighbour in their frame."""
        places = self.detect(self.residual, 10.0)
        if not len(places):
            return 1.0
        order = np.argsort(-self.residual[tuple(places.T)])
        alone = [k for k in order[:400] if _alone(places, k)]
        if len(alone) < 5:
            return 1.0
        chosen = places[alone]
        boxes = self._boxes(self.residual, chosen)
        fits = fit_boxes(boxes, self._boxes(self.variance, chosen), 1.0, free_width=True)
        return float(np.clip(np.median(fits[:, 4]), 0.5, 3.0))

    def locate(self) -> Spots:
        """Detect, fit with all neighbours taken away, look again for what was hidden, and fit again."""
        places = self.detect(self.residual, THRESHOLD)
        spots = self._fit(places, None)
        for _ in range(2):
            spots = self._refine(self._checked(spots))
            rest = self.residual - self._rendered(spots)
            hidden = self.detect(rest, THRESHOLD + 0.6)
            if not len(hidden):
                break
            spots = _joined(spots, self._fit(hidden, rest))
            spots = self._refine(spots)
        return self._checked(spots)

    def _fit(self, places: Index, frames: Movie | None, *, free: bool = False) -> Spots:
        frames = self.residual if frames is None else frames
        boxes = self._boxes(frames, places)
        light = np.maximum(boxes, 0.0)
        fits = fit_boxes(boxes, self._boxes(self.variance, places) + self.gain * light, self.width, free_width=free)
        return Spots(
            places[:, 0],
            places[:, 1] + fits[:, 0],
            places[:, 2] + fits[:, 1],
            fits[:, 2],
            fits[:, 5],
            fits[:, 6],
            fits[:, 3],
            fits[:, 4],
        )

    def _rendered(self, spots: Spots) -> Movie:
        """Return the light of all spots, with the common width."""
        image = np.zeros_like(self.residual)
        if len(spots):
            places = _pixels(spots)
            self._add(image, places, self._models(spots, places))
        return image

    def _models(self, spots: Spots, places: Index) -> Array:
        width = np.full(len(spots), self.width)
        row, column = (
            _profile(place - pixel, width)[0] for place, pixel in ((spots.y, places[:, 1]), (spots.x, places[:, 2]))
        )
        return spots.light[:, None, None] * row[:, :, None] * column[:, None, :]

    def _add(self, image: Movie, places: Index, models: Array) -> None:
        span = np.arange(-RADIUS, RADIUS + 1)
        rows, columns = places[:, 1, None] + span, places[:, 2, None] + span
        inside = ((rows >= 0) & (rows < image.shape[1]))[:, :, None] & ((columns >= 0) & (columns < image.shape[2]))[
            :, None, :
        ]
        frames = np.broadcast_to(places[:, 0, None, None], models.shape)
        all_rows = np.broadcast_to(rows[:, :, None], models.shape)
        all_columns = np.broadcast_to(columns[:, None, :], models.shape)
        np.add.at(image, (frames[inside], all_rows[inside], all_columns[inside]), models[inside].astype(np.float32))

    def _refine(self, spots: Spots) -> Spots:
        """Fit every spot on its frame without the light of all others, a few times over."""
        for round_ in range(ROUNDS):
            if not len(spots):
                return spots
            rest = self.residual - self._rendered(spots)
            places = _pixels(spots)
            boxes = self._boxes(rest, places) + self._models(spots, places)
            variances = self._boxes(self.variance, places) + self.gain * np.maximum(self._models(spots, places), 0.0)
            last = round_ == ROUNDS - 1
            fits = fit_boxes(boxes, variances, self.width)
            widths = fit_boxes(boxes, variances, self.width, free_width=True)[:, 4] if last else fits[:, 4]
            spots = Spots(
                places[:, 0],
                places[:, 1] + fits[:, 0],
                places[:, 2] + fits[:, 1],
                fits[:, 2],
                fits[:, 5],
                fits[:, 6],
                fits[:, 3],
                widths,
            )
        return spots

    def _checked(self, spots: Spots) -> Spots:
        """Keep what is bright enough and as wide as the point spread; of two on the same place keep the brighter."""
        relative = spots.width / self.width
        good = (spots.light > MIN_SNR * spots.light_error) & (relative > WIDTHS[0]) & (relative < WIDTHS[1])
        shape = self.residual.shape
        good &= (spots.y > -0.5) & (spots.x > -0.5) & (spots.y < shape[1] - 0.5) & (spots.x < shape[2] - 0.5)
        spots = spots.take(good)
        order = np.argsort(-spots.light, kind="stable")
        spots = spots.take(order)
        keep = np.ones(len(spots), bool)
        for k in range(len(spots)):
            if keep[k]:
                same = (spots.frame == spots.frame[k]) & keep
                near = np.hypot(spots.y - spots.y[k], spots.x - spots.x[k]) < 1.2 * self.width
                near[: k + 1] = False
                keep &= ~(same & near)
        spots = spots.take(keep)
        return spots.take(np.lexsort((spots.x, spots.y, spots.frame)))


def _pixels(spots: Spots) -> Index:
    return np.column_stack([spots.frame, np.rint(spots.y), np.rint(spots.x)]).astype(np.int64)


def _joined(one: Spots, other: Spots) -> Spots:
    return Spots(*(np.concatenate(pair) for pair in zip(vars(one).values(), vars(other).values(), strict=True)))


def _alone(places: Index, row: int) -> bool:
    same = places[places[:, 0] == places[row, 0], 1:]
    near = np.hypot(*(same - places[row, 1:]).T.astype(float)) < 8.0
    return int(near.sum()) == 1


# --- the task ---


CORNER = 0.5  # of the first pixel's centre, where positions count from the outer corner of the image


def run(job: Job) -> None:
    """Localise the molecules of the movie in the input folder; write the list, figures and a report."""
    border = _border(job.instruction)
    results: list[_Result] = []
    movies = list_images(job.input_dir, (".tif", ".tiff"))
    for path in movies:
        with job.attempt(path.name):
            movie = np.squeeze(tifffile.imread(path))
            if movie.ndim != 3:
                raise ValueError(f"expected a stack of frames, found an array of shape {movie.shape}")
            localiser = Localiser(movie)
            found = localiser.locate()
            y, x = found.y + CORNER, found.x + CORNER
            shape = movie.shape[1:]
            inside = (np.minimum(y, x) >= border) & (y <= shape[0] - border) & (x <= shape[1] - border)
            spots = found.take(inside)
            name = job.output_dir / f"{stem(path).split('_')[0]}_LocalizationList.txt"
            rows = zip(spots.frame, spots.x + CORNER, spots.y + CORNER, spots.light, strict=True)
            write_table(name, ("frame", "x", "y", "intensity"), ([int(t), *place] for t, *place in rows))
            job.delivered += 1
            job.log(f"{path.name}: {len(spots)} localisations in {len(movie)} frames")
            columns = ("frame", "x_px", "y_px", "light", "light_error", "place_error_px", "width_px", "offset")
            parts = (spots.x + CORNER, spots.y + CORNER, spots.light, spots.light_error, spots.place_error)
            table = zip(spots.frame, *parts, spots.width, spots.offset, strict=True)
            write_table(job.folder("tables") / f"{stem(path)}_fits.csv", columns, table, ",")
            results.append(_Result(path.name, name, movie, localiser, spots, len(found) - len(spots)))
    for result in results:
        with job.attempt(f"figures of {result.name}"):
            _figures(job, result)
    with job.attempt("report"):
        _report(job, results, len(movies), border)


@dataclass(frozen=True)
class _Result:
    name: str
    table: Path
    movie: npt.NDArray[Any]
    localiser: Localiser
    spots: Spots
    at_border: int


def _border(instruction: str) -> float:
    """Return the width of the border that the text leaves out, in pixels."""
    found = re.search(r"less than ([0-9.]+) px from an\s+edge", " ".join(instruction.split()))
    return float(found[1]) if found else 0.0


def _events(spots: Spots, reach: float = 1.0) -> Index:
    """Return how many frames each binding event lasts: rows within ``reach`` pixels in consecutive frames."""
    lengths: list[int] = []
    open_events: list[tuple[float, float, int]] = []
    for frame in range(int(spots.frame.max(initial=-1)) + 1):
        rows = np.flatnonzero(spots.frame == frame)
        free = set(rows.tolist())
        going: list[tuple[float, float, int]] = []
        for y, x, length in open_events:
            near = [row for row in free if np.hypot(spots.y[row] - y, spots.x[row] - x) <= reach]
            if near:
                row = min(near, key=lambda row, y=y, x=x: float(np.hypot(spots.y[row] - y, spots.x[row] - x)))  # type: ignore[misc]
                free.remove(row)
                going.append((float(spots.y[row]), float(spots.x[row]), length + 1))
            else:
                lengths.append(length)
        open_events = going + [(float(spots.y[row]), float(spots.x[row]), 1) for row in sorted(free)]
    return np.array([*lengths, *(length for _, _, length in open_events)], dtype=np.int64)


def _figures(job: Job, result: _Result) -> None:
    folder, spots, movie = job.folder("figures"), result.spots, result.movie
    per_frame = np.bincount(spots.frame, minlength=len(movie))
    scale = Scale()
    figure = new_figure(180, 130)
    axes = figure.subplots(2, 3)
    for column, (frame, title) in enumerate(
        ((int(np.argsort(per_frame)[len(per_frame) // 10]), "sparse"), (int(np.argsort(per_frame)[-1]), "crowded"))
    ):
        rows = spots.frame == frame
        for row, image in enumerate((movie[frame], result.localiser.residual[frame])):
            axis = axes[row, column]
            show_image(axis, to_rgb(image), scale, f"{title} frame {frame}, {('raw', 'flattened')[row]}")
            axis.scatter(spots.x[rows], spots.y[rows], s=40, facecolors="none", edgecolors=hexadecimal(ORANGE), lw=0.8)
    axes[0, 0].scatter([], [], s=40, facecolors="none", edgecolors=hexadecimal(ORANGE), label="localisation")
    axes[0, 0].legend(loc="upper left", fontsize=6)
    zoom = 8
    sizes = tuple(zoom * length for length in movie.shape[1:])
    edges = [np.linspace(0, length, length * zoom + 1) for length in movie.shape[1:]]
    image = np.histogram2d(spots.y + CORNER, spots.x + CORNER, bins=edges)[0]
    blurred = ndi.gaussian_filter(image, zoom * max(0.15, float(np.median(spots.place_error)) if len(spots) else 0.0))
    show_image(axes[0, 2], to_rgb(np.sqrt(blurred), low=0.0, high=99.5), _Zoomed(zoom), "all localisations")
    points = axes[1, 2].scatter(spots.x + CORNER, spots.y + CORNER, c=spots.frame, s=1.5, cmap="viridis", linewidths=0)
    axes[1, 2].set(
        xlim=(0, sizes[1] / zoom), ylim=(sizes[0] / zoom, 0), xlabel="x (px)", ylabel="y (px)", aspect="equal"
    )
    figure.colorbar(points, ax=axes[1, 2], label="frame", shrink=0.7)
    panel_letters(axes.ravel())
    save_figure(figure, folder, "overview")

    figure = new_figure(180, 100)
    axes = figure.subplots(2, 3)
    axes[0, 0].hist(spots.light, bins=60, color=hexadecimal(SKY))
    axes[0, 0].set(xlabel="intensity (grey values)", ylabel="localisations")
    axes[0, 1].hist(spots.width, bins=60, color=hexadecimal(SKY))
    axes[0, 1].axvline(result.localiser.width, color=hexadecimal(VERMILION), label="point spread")
    axes[0, 1].set(xlabel="fitted width, sigma (px)", ylabel="localisations")
    axes[0, 1].legend()
    axes[0, 2].hist(spots.place_error, bins=60, range=(0, 0.5), color=hexadecimal(SKY))
    axes[0, 2].set(xlabel="standard error of x and y (px)", ylabel="localisations")
    axes[1, 0].plot(per_frame, lw=0.6, color=hexadecimal(SKY))
    axes[1, 0].set(xlabel="frame", ylabel="localisations per frame")
    axes[1, 1].plot(np.median(movie, axis=(1, 2)), lw=0.8, color=hexadecimal(VERMILION))
    axes[1, 1].set(xlabel="frame", ylabel="median grey value (background)")
    lengths = _events(spots)
    axes[1, 2].hist(lengths, bins=np.arange(0.5, lengths.max(initial=1) + 1.5), color=hexadecimal(SKY))
    axes[1, 2].set(xlabel="frames that an event lasts", ylabel="events", yscale="log")
    panel_letters(axes.ravel())
    save_figure(figure, folder, "distributions")


@dataclass(frozen=True)
class _Zoomed(Scale):
    """Scale of a picture with several points per camera pixel; lengths in camera pixels."""

    pixel_um: float | None = None

    def __init__(self, zoom: int) -> None:
        object.__setattr__(self, "pixel_um", None)
        object.__setattr__(self, "zoom", zoom)

    def bar(self, width_px: int) -> tuple[float, str]:
        zoom: int = self.zoom  # type: ignore[attr-defined]
        pixels, label = super().bar(width_px // zoom)
        return pixels * zoom, label


def _report(job: Job, results: list[_Result], expected: int, border: float) -> None:
    report = Report("Localisation of single molecules in a DNA-PAINT movie")
    report.section(
        "Question",
        "Where, to a fraction of a pixel, and how bright is every molecule in every frame of the movie? The list "
        "is meant for rendering a super-resolved picture and for looking at the brightness of the dye.",
    )
    report.section("Method")
    report.bullets(
        f"Background: temporal median over {WINDOW} frames, made smooth (sigma {number(BROAD_PX)} px), for the haze "
        f"that drifts; plus the fine structure of a median over {LONG_WINDOW} frames for spots that glow all the "
        "time. One short window for both would take molecules that stay for long for background. The lamp's "
        "flicker is divided out before.",
        "Noise: variance against background level from differences of neighbouring frames, so that the threshold "
        "follows shot noise from place to place.",
        "Detection: difference of Gaussians at the width of the point spread (measured on isolated bright spots), "
        f"local maxima above {THRESHOLD} times the filter's own noise. A second and third search on the movie "
        "without the molecules found so far recovers close neighbours.",
        f"Fit: Gaussian integrated over pixels in boxes of {2 * RADIUS + 1} x {2 * RADIUS + 1} px, weighted least "
        f"squares with the width of the point spread, {ROUNDS} rounds in each of which the light of all neighbours "
        "is taken away.",
        f"Kept: light above {MIN_SNR} times its standard error, free-fit width {WIDTHS[0]} to {WIDTHS[1]} times the "
        f"point spread (wide ones are strands that diffuse), centres at least {number(border)} px from the edge.",
        "Convention: frames from 0; x = column, y = row, in pixels from the outer corner of the image, so that the "
        "centre of the first pixel is (0.5, 0.5). Intensity is the integral of the fitted spot in grey values.",
    )
    report.section("Result")
    for result in results:
        values = np.loadtxt(result.table, skiprows=1, ndmin=2)
        frames = len(result.movie)
        per_frame = np.bincount(values[:, 0].astype(int), minlength=frames)
        lengths = _events(result.spots)
        report.text(f"**{result.name}**: {len(values)} localisations in {frames} frames (`{result.table.name}`).")
        report.bullets(
            f"Per frame: {Summary.of(per_frame).text()}; frames without any: {int((per_frame == 0).sum())}.",
            f"Intensity: {Summary.of(values[:, 3]).text('grey values')}.",
            f"Standard error of x and y from the fit: {Summary.of(result.spots.place_error).text('px')}.",
            f"Point spread: sigma {number(result.localiser.width)} px; noise gain {number(result.localiser.gain)} grey "
            "values per unit of variance.",
            f"Binding events (rows within 1 px in consecutive frames): {len(lengths)}; they last "
            f"{Summary.of(lengths).text('frames')}.",
            f"{result.at_border} fits nearer to the edge than {number(border)} px were left out.",
        )
    report.section("Quality control")
    report.text(
        "`figures/overview` shows localisations on a sparse and a crowded frame, before and after the background was "
        "removed, and the rendered picture; colour by frame shows stage drift, which is not corrected in the list. "
        "`figures/distributions` shows intensity, width, precision, localisations and background over time."
    )
    report.failures(job.failures, expected, "movies")
    report.section("Caveats")
    report.bullets(
        "Two molecules nearer than about 1.2 point-spread widths in one frame appear as one, with the sum of their "
        "light.",
        "First and last frames of an event can fall below the threshold; the list then misses them, and events "
        "look shorter.",
        "No pixel size is known, so that no length can be given in nanometres; no drift correction was applied.",
        "There is no reference here: precision is what the fit states, recall was judged by eye only.",
    )
    report.write(job.output_dir / "report.md")
