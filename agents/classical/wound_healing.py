"""Follow the texture of moving cell sheets, follow their edge, and condense the speeds into kymographs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tifffile
from scipy import ndimage as ndi

from ._figures import (
    COLOURS,
    ORANGE,
    Scale,
    hexadecimal,
    new_figure,
    panel_letters,
    save_figure,
    show_image,
    to_rgb,
)
from ._io import Sequence2D, list_images, pixel_size_um, read_image, write_table
from ._job import Job
from ._report import Report, Summary, number

Image = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Array = npt.NDArray[np.float64]

PATCH_UM = 15.0  # width of a band
FARTHEST_PX = 300
WINDOW_UM = 12.0  # standard deviation of the window in which motion is constant
LIGHT_UM = 30.0  # broader changes of brightness are no texture
SMALLEST_UM2 = 3600.0  # of a piece of sheet or wound
OUTLIER, SMOOTH = 2.5, 1.2  # of vectors: limit in units of their neighbours' scatter, and width of their local mean
EDGE_UM = 9.0  # how far the followed edge may lie from the carried one
TEXTURE_UM = 6.0
WORKING_UM = 2.2  # finer pixels are averaged to about this size before motion is measured
KNOWN_SHIFT_PX = (1.3, -0.7)  # with which the estimator is checked


# --- motion ---


def flatten(frame: npt.NDArray[np.generic], um: float) -> Image:
    """Return the texture of a frame: brightness over its broad level, minus 1."""
    data = frame.astype(np.float32)
    broad = ndi.gaussian_filter(data, LIGHT_UM / um, mode="nearest")
    return np.asarray(data / np.maximum(broad, 1.0) - 1.0)


def flow(one: Image, two: Image, weight: Image, sigma: float) -> Array:
    """Return the displacement (y, x) in pixels that carries each place of ``one`` to ``two``.

    Lucas and Kanade's method, coarse to fine and iterated: within a Gaussian window all pixels move alike, and only
    pixels with weight count, so that the still ground beside a sheet does not slow its edge.
    """
    levels = [(one, two, weight)]
    while len(levels) < 3 and min(levels[-1][0].shape) > 48:
        levels.append(tuple(_halved(image) for image in levels[-1]))  # type: ignore[arg-type]
    motion = np.zeros((2, *levels[-1][0].shape))
    for first, second, mass in reversed(levels):
        if motion.shape[1:] != first.shape:
            motion = _finer(motion, first.shape)
        width = max(2.0, sigma * first.shape[0] / one.shape[0])
        for _ in range(2):
            motion, support = _improved(first, second, mass, motion, width)
        motion = _without_outliers(motion, support, width)
    return motion


def _improved(first: Image, second: Image, mass: Image, motion: Array, sigma: float) -> tuple[Array, Image]:
    """One iteration: warp, solve the 2 x 2 system of each window for what is left, smooth over doubtful places."""
    place = np.indices(first.shape, dtype=np.float32) + motion.astype(np.float32)
    moved = ndi.map_coordinates(second, place, order=1, mode="nearest")
    gy, gx = np.gradient(0.5 * (first + moved))
    change = moved - first
    limit = 3.0 * float(np.sqrt(np.mean(change**2))) + 1e-6
    robust = mass / (1.0 + (change / limit) ** 2)
    for axis, length in enumerate(first.shape):  # what comes from outside the image is not known
        robust = robust * ((place[axis] >= 0) & (place[axis] <= length - 1))

    def window(values: Image) -> Image:
        return np.asarray(ndi.gaussian_filter(values * robust, sigma, mode="constant", truncate=2.5))

    yy, xx, yx = window(gy * gy), window(gx * gx), window(gy * gx)
    ty, tx = window(gy * change), window(gx * change)
    ridge = 0.02 * float(np.mean(yy + xx)) + 1e-9
    yy, xx = yy + ridge, xx + ridge
    determinant = yy * xx - yx * yx
    step = -np.stack([xx * ty - yx * tx, yy * tx - yx * ty]) / determinant
    return motion + np.clip(step, -2.0, 2.0), window(np.ones_like(first))


def _without_outliers(motion: Array, support: Image, sigma: float) -> Array:
    """Replace vectors that differ from the median of their surroundings, or have little support, by a local mean.

    The normalised median test of particle image velocimetry (Westerweel and Scarano, Exp. Fluids 39:1096, 2005), on a
    grid as coarse as the windows are.
    """
    stride = max(1, round(sigma / 2))
    coarse = motion[:, ::stride, ::stride]
    median = np.stack([ndi.median_filter(part, 5, mode="nearest") for part in coarse])
    residual = np.hypot(*(coarse - median))
    typical = ndi.median_filter(residual, 5, mode="nearest") + 0.1
    trust = (residual < OUTLIER * typical) * np.maximum(support[::stride, ::stride], 1e-6)
    total = ndi.gaussian_filter(trust, SMOOTH, mode="nearest")
    mean = np.stack([ndi.gaussian_filter(part * trust, SMOOTH, mode="nearest") for part in coarse]) / (total + 1e-12)
    places = np.meshgrid(*(np.arange(length) / stride for length in motion.shape[1:]), indexing="ij")
    return np.stack([ndi.map_coordinates(part, places, order=1, mode="nearest") for part in mean])


def _halved(image: Image) -> Image:
    smooth = ndi.gaussian_filter(image, 0.8, mode="nearest")
    return np.asarray(smooth[::2, ::2])


def _finer(motion: Array, shape: tuple[int, ...]) -> Array:
    """Interpolate a displacement field to the next finer level of the pyramid."""
    places = np.meshgrid(*(np.arange(length) / 2.0 for length in shape), indexing="ij")
    return 2.0 * np.stack([ndi.map_coordinates(part, places, order=1, mode="nearest") for part in motion])


# --- the sheet ---


class Sheet:
    """Follows the cells from the given mask of the first frame."""

    def __init__(self, first: Image, cells: Mask, um: float) -> None:
        self.um = um
        self.cells = cells
        self.smallest = SMALLEST_UM2 / um**2
        texture = self._texture(first)
        inside, outside = texture[cells], texture[~cells]
        # the threshold that gives back the given mask: where as many cells are lost as wound is taken
        candidates = np.quantile(texture, np.linspace(0.02, 0.98, 97))
        lost = np.searchsorted(np.sort(inside), candidates)
        taken = outside.size - np.searchsorted(np.sort(outside), candidates)
        self.threshold = float(candidates[int(np.argmin(np.abs(lost - taken)))]) if outside.size else 0.0
        self.agreement = float(np.mean((texture > self.threshold) == cells))

    def _texture(self, frame: Image) -> Image:
        fine = frame - ndi.gaussian_filter(frame, 6.0 / self.um, mode="nearest")
        return np.asarray(np.sqrt(ndi.gaussian_filter(fine**2, TEXTURE_UM / self.um, mode="nearest")))

    def advance(self, frame: Image, motion: Array) -> Mask:
        """Carry the mask along with the motion, let texture decide near its edge; return the cells of ``frame``."""
        spread = _spread(motion, self.cells)
        place = np.indices(self.cells.shape) - spread
        carried = ndi.map_coordinates(self.cells.astype(np.float32), place, order=1, mode="nearest") > 0.5
        carried |= self.cells
        reach = EDGE_UM / self.um
        depth = ndi.distance_transform_edt(carried) - ndi.distance_transform_edt(~carried)
        textured = self._texture(frame) > self.threshold
        cells = (depth > reach) | (textured & (depth > -reach))
        self.cells = self._cleaned(cells)
        return self.cells

    def _cleaned(self, cells: Mask) -> Mask:
        for wanted in (False, True):  # first close small holes, then drop small islands
            pieces, count = ndi.label(cells == wanted)
            sizes = np.bincount(pieces.ravel(), minlength=count + 1)
            small = sizes < self.smallest
            small[0] = False
            cells = cells ^ small[pieces]
        return cells

    def closed(self) -> bool:
        """Whether the two sides touch: the wound no longer reaches from one end of the image to the other."""
        wound, _ = ndi.label(~self.cells)
        for one, other in ((wound[0], wound[-1]), (wound[:, 0], wound[:, -1])):
            if np.intersect1d(one[one > 0], other[other > 0]).size:
                return False
        return True


def _spread(motion: Array, cells: Mask) -> Array:
    """Continue the motion of the cells into the wound: that of the nearest cell."""
    nearest = ndi.distance_transform_edt(~cells, return_distances=False, return_indices=True)
    return motion[:, nearest[0], nearest[1]]


# --- kymograph ---


def band_means(speed: Array, cells: Mask, patch_px: int, count: int) -> Array:
    """Return the mean speed in each band of the distance to the wound, (lower, upper]; NaN without a cell."""
    band = np.ceil(ndi.distance_transform_edt(cells) / patch_px).astype(int) - 1
    inside = cells & (band < count)
    pixels = np.bincount(band[inside], minlength=count)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.bincount(band[inside], speed[inside], minlength=count) / pixels)


@dataclass(frozen=True)
class Migration:
    """What was measured in one series.

    Attributes
    ----------
    kymograph : (bands, frame pairs)
        Mean speed in um/h.
    velocity : (2, y, x)
        Velocity of the first pair of frames as (y, x) in um/h, 0 without a cell.
    contact : int or None
        First frame in which the two sides touch.
    edges : dict
        Masks of a few frames, for the figures.
    agreement : float
        Share of pixels of the first frame in which texture agrees with the given mask.
    check : (2,)
        Median and 95th percentile of the error, in pixels, for a known shift.
    """

    kymograph: Array
    velocity: Array
    contact: int | None
    edges: dict[int, Mask]
    agreement: float
    check: tuple[float, float]


def measure(frames: Sequence2D, cells: Mask, um: float, hours: float) -> Migration:
    """Measure one series, one pair of frames at a time."""
    patch = math.ceil(PATCH_UM / um)
    count = int(min(FARTHEST_PX, float(ndi.distance_transform_edt(cells).max())) // patch)
    factor = max(1, round(WORKING_UM / um))
    sigma = WINDOW_UM / (um * factor)
    columns: list[Array] = []
    velocity, contact, check = np.zeros((2, *cells.shape)), None, (math.nan, math.nan)
    packed = [np.packbits(cells)]
    sheet: Sheet | None = None
    current: Image | None = None
    for number_, frame in enumerate(frames):
        following = flatten(frame, um)
        if sheet is None or current is None:
            sheet, current = Sheet(following, cells, um), following
            check = _known_shift(_reduced(following, factor), _reduced(cells.astype(np.float32), factor), sigma)
            continue
        weight = _reduced(sheet.cells.astype(np.float32), factor)
        coarse = flow(_reduced(current, factor), _reduced(following, factor), weight, sigma)
        motion = _enlarged(coarse, factor, cells.shape)
        moving = motion * (um / hours)
        columns.append(band_means(np.hypot(*moving), sheet.cells, patch, count))
        if number_ == 1:
            velocity = moving * sheet.cells
        sheet.advance(following, motion)
        if contact is None and sheet.closed():
            contact = number_
        if contact is None:
            packed.append(np.packbits(sheet.cells))
        current = following
    if sheet is None or not columns:
        raise ValueError(f"{frames.name}: fewer than two frames")
    edges = {
        key: np.unpackbits(packed[key], count=cells.size).reshape(cells.shape).astype(bool)
        for key in (0, (len(packed) - 1) // 2, len(packed) - 1)
    }
    return Migration(np.stack(columns, axis=1), velocity, contact, edges, sheet.agreement, check)


def _reduced(image: Image, factor: int) -> Image:
    """Average blocks of pixels; an incomplete block at the end is left out."""
    if factor == 1:
        return image
    rows, columns = (length // factor for length in image.shape)
    blocks = image[: rows * factor, : columns * factor].reshape(rows, factor, columns, factor)
    return np.asarray(blocks.mean(axis=(1, 3)))


def _enlarged(motion: Array, factor: int, shape: tuple[int, ...]) -> Array:
    """Bring a displacement field of averaged pixels back to all pixels."""
    if factor == 1:
        return motion
    places = np.meshgrid(*((np.arange(length) + 0.5) / factor - 0.5 for length in shape), indexing="ij")
    return factor * np.stack([ndi.map_coordinates(part, places, order=1, mode="nearest") for part in motion])


def _known_shift(image: Image, weight: Image, sigma: float) -> tuple[float, float]:
    """Shift a frame by a known amount and measure it back; return median and 95th percentile of the error in pixels."""
    moved = ndi.shift(image, KNOWN_SHIFT_PX, order=3, mode="nearest")
    error = np.hypot(*(flow(image, moved, weight, sigma) - np.reshape(KNOWN_SHIFT_PX, (2, 1, 1))))
    inner = weight > 0.5
    inner[:6], inner[-6:], inner[:, :6], inner[:, -6:] = False, False, False, False
    return float(np.median(error[inner])), float(np.percentile(error[inner], 95))


# --- the task ---


@dataclass(frozen=True)
class _Result:
    condition: str
    name: str
    stack: Path
    um: float
    minutes: float
    table: Path
    migration: Migration

    @property
    def kymograph(self) -> Array:
        """The delivered table."""
        return np.atleast_2d(tifffile.imread(self.table)).astype(float)

    @property
    def pairs(self) -> int:
        """Pairs of frames before the sides touch."""
        contact = self.migration.contact
        return self.migration.kymograph.shape[1] if contact is None else max(1, contact - 1)


def run(job: Job) -> None:
    """Measure every experiment of the input folder; write kymographs, velocities, figures and a report."""
    results: list[_Result] = []
    stacks = [path for path in list_images(job.input_dir, (".tif", ".tiff")) if "roi" not in path.stem.lower()]
    for path in stacks:
        with job.attempt(path.name):
            result = _experiment(job, path)
            results.append(result)
            job.delivered += 1
            rows, columns = result.kymograph.shape
            job.log(f"{result.condition}: {rows} bands, {columns} pairs of frames, contact {result.migration.contact}")
    with job.attempt("table"):
        _table(job, results)
    if results:
        with job.attempt("figures"):
            _figures(job, results)
    with job.attempt("report"):
        _report(job, results, len(stacks))


def _experiment(job: Job, path: Path) -> _Result:
    name = re.sub(r"(?i)_?image_?stack$", "", path.stem)
    masks = [
        other for other in list_images(path.parent, (".tif", ".tiff")) if other.stem.lower() == f"{name}_roi".lower()
    ]
    if not masks:
        raise FileNotFoundError(f"no mask {name}_roi.tif beside it")
    um, minutes = pixel_size_um(path), _interval_minutes(path)
    if um is None or minutes is None:
        raise ValueError("no pixel size or no time between frames in the file")
    cells = read_image(masks[0]) > 0
    with tifffile.TiffFile(path) as file:
        length = len(file.pages)
    migration = measure(Sequence2D(name, (path,), length, (cells.shape[0], cells.shape[1])), cells, um, minutes / 60.0)
    folder = job.folder(path.parent.relative_to(job.input_dir).as_posix())
    for suffix, values in (
        ("mf_dxs", migration.velocity[1]),
        ("mf_dys", migration.velocity[0]),
        ("speedKymograph", migration.kymograph),
    ):
        tifffile.imwrite(folder / f"{name}_{suffix}.tif", values.astype(np.float32), photometric="minisblack")
    return _Result(path.parent.name, name, path, um, minutes, folder / f"{name}_speedKymograph.tif", migration)


def _interval_minutes(path: Path) -> float | None:
    """Return the time between frames in an ImageJ TIFF, in minutes."""
    with tifffile.TiffFile(path) as file:
        metadata = file.imagej_metadata or {}
    unit = {"min": 1.0, "minute": 1.0, "minutes": 1.0, "s": 1 / 60, "sec": 1 / 60, "h": 60.0, "hour": 60.0}
    factor = unit.get(str(metadata.get("tunit", "s")).strip().lower())
    interval = metadata.get("finterval")
    return None if factor is None or not interval else float(interval) * factor


def _zones(result: _Result) -> tuple[Array, Array]:
    """Return speed over time near the wound (3 bands) and far from it (the last third of the bands)."""
    table = result.kymograph
    return np.nanmean(table[:3], axis=0), np.nanmean(table[-max(1, len(table) // 3) :], axis=0)


def _table(job: Job, results: Sequence[_Result]) -> None:
    rows = []
    for result in results:
        near, far = (zone[: result.pairs] for zone in _zones(result))
        contact = result.migration.contact
        rows.append(
            (
                result.condition,
                result.name,
                result.um,
                "" if contact is None else contact * result.minutes,
                float(np.nanmean(near)),
                float(np.nanmean(far)),
                float(np.nanmean(result.kymograph[:, : result.pairs])),
                result.migration.agreement,
                result.migration.check[0],
            )
        )
    columns = ("condition", "experiment", "pixel_um", "contact_min", "near_um_per_h", "far_um_per_h", "mean_um_per_h")
    write_table(job.folder("tables") / "speeds.csv", (*columns, "mask_agreement", "known_shift_error_px"), rows, ",")


def _figures(job: Job, results: Sequence[_Result]) -> None:
    folder = job.folder("figures")
    columns = min(3, len(results))
    rows = math.ceil(len(results) / columns)
    top = max(float(np.nanpercentile(result.kymograph, 99)) for result in results)
    figure = new_figure(180, 55 * rows)
    axes = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    picture: Any = None
    for axis, result in zip(axes, results, strict=False):
        table = result.kymograph
        patch = math.ceil(PATCH_UM / result.um) * result.um
        extent = (0, table.shape[1] * result.minutes, len(table) * patch, 0)
        picture = axis.imshow(table, cmap="viridis", vmin=0, vmax=top, extent=extent, aspect="auto")
        if result.migration.contact is not None:
            axis.axvline(result.migration.contact * result.minutes, color="white", ls="--", lw=1)
        axis.set(xlabel="time (min)", ylabel="distance from wound (µm)")
        axis.set_title(result.condition, fontsize=6, loc="right")
    figure.colorbar(picture, ax=axes.tolist(), label="mean speed (µm/h)", shrink=0.8)
    panel_letters(list(axes))
    save_figure(figure, folder, "speed_kymographs")

    figure = new_figure(180, 62 * rows)
    axes = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for axis, result in zip(axes, results, strict=False):
        frame = tifffile.imread(result.stack, key=0)
        show_image(axis, to_rgb(frame), Scale(result.um))
        axis.set_title(result.condition, fontsize=6, loc="right")
        velocity = result.migration.velocity
        step = max(6, min(frame.shape) // 22)
        y, x = np.mgrid[step // 2 : frame.shape[0] : step, step // 2 : frame.shape[1] : step]
        inside = result.migration.edges[0][y, x]
        y, x = y[inside], x[inside]
        axis.quiver(x, y, velocity[1, y, x], velocity[0, y, x], color=hexadecimal(ORANGE), angles="xy", width=0.005)
        for (number_, cells), colour in zip(sorted(result.migration.edges.items()), COLOURS, strict=False):
            label = f"edge at {number_ * result.minutes:.0f} min"
            axis.contour(cells, [0.5], colors=[hexadecimal(colour)], linewidths=0.9)
            axis.plot([], [], color=hexadecimal(colour), label=label)
        axis.legend(loc="lower left", fontsize=5)
    panel_letters(list(axes))
    save_figure(figure, folder, "first_frame_velocities_and_edges")

    figure = new_figure(180, 65)
    axes = figure.subplots(1, 3)
    for result, colour in zip(results, COLOURS * 3, strict=False):
        near, far = _zones(result)
        time = (np.arange(result.pairs) + 0.5) * result.minutes
        axes[0].plot(time, near[: result.pairs], color=hexadecimal(colour), label=result.condition)
        axes[1].plot(time, far[: result.pairs], color=hexadecimal(colour))
        profile = np.nanmean(result.kymograph[:, : result.pairs], axis=1)
        axes[2].plot(
            (np.arange(len(profile)) + 0.5) * math.ceil(PATCH_UM / result.um) * result.um,
            profile,
            color=hexadecimal(colour),
        )
    axes[0].set(title="near the wound (3 bands)", xlabel="time (min)", ylabel="speed (µm/h)")
    axes[1].set(title="far from it (last third)", xlabel="time (min)", ylabel="speed (µm/h)")
    axes[2].set(title="mean over time", xlabel="distance from wound (µm)", ylabel="speed (µm/h)")
    figure.legend(loc="outside lower center", ncols=3, fontsize=6)
    panel_letters(list(axes))
    save_figure(figure, folder, "conditions")


def _wave(table: Array) -> tuple[float, float]:
    """Return by how many frame pairs the speed of bands 5 to 8 lags behind that of the first two, and the correlation.

    Both without their trend over time; the lag is the one of the largest correlation.
    """
    near, inner = np.nanmean(table[:2], axis=0), np.nanmean(table[4:8], axis=0)
    time = np.arange(len(near))
    near, inner = (values - np.polyval(np.polyfit(time, values, 1), time) for values in (near, inner))
    best = (0.0, -1.0)
    for lag in range(max(1, len(near) // 2)):
        one, other = near[: len(near) - lag], inner[lag:]
        if len(one) > 4 and one.std() > 0 and other.std() > 0:
            value = float(np.corrcoef(one, other)[0, 1])
            best = (float(lag), value) if value > best[1] else best
    return best


def _report(job: Job, results: Sequence[_Result], expected: int) -> None:
    report = Report("Speed of collective migration in scratch wounds")
    report.section(
        "Question",
        "How fast do cells move after the sheet was scratched, does the speed depend on the distance to the wound, "
        "and do changes at the edge travel into the sheet? One experiment per condition.",
    )
    report.section("Method")
    report.bullets(
        f"Light: each frame is divided by its broad brightness (Gaussian, {LIGHT_UM:g} µm).",
        f"Motion: Lucas-Kanade on an image pyramid, two iterations per level, Gaussian windows of {WINDOW_UM:g} µm "
        "(standard deviation). Only pixels of the sheet count, so that the still ground does not slow the edge. "
        "Vectors that differ from the median of their neighbours by more than 2.5 times the local scatter are "
        "replaced by a local mean.",
        f"Sheet: carried along with the measured motion; within {EDGE_UM:g} µm of that edge texture decides (local "
        "standard deviation against the threshold that gives back the given mask of the first frame). Pieces of "
        f"sheet or wound below {SMALLEST_UM2:g} µm² are dropped. The sides touch when the wound no longer spans the "
        "image.",
        "Kymograph: Euclidean distance of each cell pixel to the wound in the same frame; bands of ceil(15 µm / "
        "pixel size) pixels, the upper limit belongs to the band; mean length of the velocity vectors in µm/h.",
    )
    report.section("Result")
    rows = []
    for result in results:
        near, far = (zone[: result.pairs] for zone in _zones(result))
        contact = result.migration.contact
        lag, correlation = _wave(result.kymograph[:, : result.pairs]) if result.pairs > 6 else (math.nan, math.nan)
        rows.append(
            (
                result.condition,
                len(result.kymograph),
                result.pairs,
                "not reached" if contact is None else f"{contact * result.minutes:.0f} min",
                Summary.of(near).mean,
                Summary.of(far).mean,
                float(np.nanmean(near) / np.nanmean(far)),
                f"{lag * result.minutes:.0f} min (r = {correlation:.2f})" if np.isfinite(lag) else "–",
            )
        )
    report.table(
        (
            "condition",
            "bands",
            "frame pairs before contact",
            "contact",
            "near (µm/h)",
            "far (µm/h)",
            "near / far",
            "lag of bands 5-8 behind the edge",
        ),
        rows,
    )
    report.text(
        "Near: the three bands next to the wound; far: the last third of the bands; means over the frame pairs "
        "before contact. The lag is that of the largest correlation of detrended speeds; a small r means that no "
        "travelling change is seen.",
    )
    ratios = [row[6] for row in rows]
    report.text(f"Ratio of near to far over the experiments: {Summary.of([float(value) for value in ratios]).text()}.")
    report.section("Quality control")
    checks = [result.migration.check for result in results]
    report.bullets(
        f"A first frame shifted by {KNOWN_SHIFT_PX} px is measured back with a median error of "
        f"{number(float(np.median([one for one, _ in checks])))} px (95 % below "
        f"{number(float(np.max([other for _, other in checks])))} px in the worst experiment).",
        "Texture agrees with the given mask of the first frame in "
        f"{Summary.of([100 * result.migration.agreement for result in results]).text('% of the pixels')}.",
        "`figures/first_frame_velocities_and_edges`: vectors of the first step and the followed edge at the start, "
        "halfway and last before contact.",
    )
    report.failures(job.failures, expected, "experiments")
    report.section("Caveats")
    report.bullets(
        "One experiment per condition: differences between conditions are described, not tested.",
        "Windows of the width used average the fastest and slowest motion; noise adds a little to slow speeds, so "
        "that contrast between near and far is rather too small.",
        "Columns after the contact are in the files but have no meaning as distance from a wound.",
    )
    report.write(job.output_dir / "report.md")
