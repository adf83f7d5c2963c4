"""Stitch multi-channel tiles and measure single cells in the mosaic: register, solve, blend, segment, classify.

Tiles are flattened by the shading that they share, registered pair by pair on their overlaps around the positions in
the file's metadata, and placed by least squares over all pairs. The same positions serve all channels and planes. Cells
are found where any stain is bright, parted by their nuclei, measured on sums over the planes, and classed by two
markers.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tifffile
from scipy import ndimage as ndi
from skimage.segmentation import watershed

from . import _figures as figures
from ._io import write_table
from ._job import Job
from ._report import Report, Summary, number
from ._segment import distance_inside, otsu, relabel, split_touching

POPULATIONS = ("WBC", "MCF7")
CHANNELS = ("Bodipy", "PanCK", "DAPI", "CD45")
FEATURES = ("Sigma", "r", "rf", "M")
WORDS = {
    "Bodipy": ("bodipy", "lipid"),
    "PanCK": ("panck", "pan-ck", "keratin", "568"),
    "DAPI": ("dapi", "hoechst", "dna"),
    "CD45": ("cd45", "647"),
}
STAGE_SHARE = 0.04  # of a tile's side: how far the stage may miss, at least 16 px
LEAST_MATCH = 0.2  # correlation of an overlap that counts
FINE_PX, BROAD_PX = 0.8, 3.0  # structure that registration sees
LEAST_LIGHT = 0.4  # share of light in the darkest corner
NORMAL_03, NORMAL_20 = -1.8808, -0.8416  # quantiles of the normal distribution
SMOOTH_UM = 0.5
AREA_UM2 = (20.0, 600.0)

Array = npt.NDArray[np.float64]
Image = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Tiles:
    """A file of tiles that is read plane by plane.

    Attributes
    ----------
    path
        The file.
    count, planes, height, width
        Number of tiles and planes, size of a tile.
    order
        Index in the file of each channel of :data:`CHANNELS`.
    names
        Names of the channels as the file has them, in its order.
    asked_px
        ``(tiles, 2)`` y, x where the stage was asked to go, in pixels; the smallest is 0.
    pixel_um, step_um
        Size of a pixel and distance of planes.
    """

    path: Path
    count: int
    planes: int
    height: int
    width: int
    order: tuple[int, ...]
    names: tuple[str, ...]
    asked_px: Array
    pixel_um: float
    step_um: float

    @classmethod
    def open(cls, path: Path) -> Tiles:
        """Read sizes and metadata."""
        with tifffile.TiffFile(path) as file:
            series = file.series[0]
            sizes = dict(zip(series.axes, series.shape, strict=True))
            metadata = file.lsm_metadata or {}
        if "M" not in sizes or "C" not in sizes:
            raise ValueError(f"{path.name}: expected tiles with channels, found axes {series.axes} of {series.shape}")
        positions = metadata.get("TilePositions")
        if positions is None or len(positions) != sizes["M"]:
            raise ValueError(f"{path.name}: no position for each of the {sizes['M']} tiles in the metadata")
        pixel = float(metadata["VoxelSizeX"])
        asked = np.asarray(positions, float)[:, 1::-1] / pixel
        names = tuple(str(name) for name in metadata.get("ChannelColors", {}).get("ColorNames", []))
        return cls(
            path,
            sizes["M"],
            sizes.get("Z", 1),
            sizes["Y"],
            sizes["X"],
            _channel_order(names, sizes["C"]),
            names,
            asked - asked.min(axis=0),
            pixel * 1e6,
            float(metadata["VoxelSizeZ"]) * 1e6,
        )

    def pages(self) -> Iterator[tuple[int, int, npt.NDArray[Any]]]:
        """Yield tile, plane and the image of all channels ``(c, y, x)`` in the file's order."""
        with tifffile.TiffFile(self.path) as file:
            pages = file.series[0].pages
            for index in range(self.count * self.planes):
                page = pages[index]
                if page is None:
                    raise ValueError(f"{self.path.name}: page {index} is missing")
                yield *divmod(index, self.planes), page.asarray()


def _channel_order(names: Sequence[str], count: int) -> tuple[int, ...]:
    """Return where each stain lies; by name, else in the usual order."""
    found = []
    for stain in CHANNELS:
        hits = [index for index, name in enumerate(names) if any(word in name.lower() for word in WORDS[stain])]
        found.append(hits[0] if len(hits) == 1 else -1)
    if len(set(found)) == len(CHANNELS) and min(found) >= 0:
        return tuple(found)
    if count != len(CHANNELS):
        raise ValueError(f"expected {len(CHANNELS)} channels, found {count} with names {', '.join(names) or 'unknown'}")
    return tuple(range(count))


@dataclass(frozen=True)
class Shading:
    """What tiles share: fall-off of light per channel ``(c, y, x)``, at most 1, and the camera's offset."""

    light: Image
    offset: Array


@dataclass(frozen=True)
class Pair:
    """Two neighbouring tiles, the measured offset of the second from the first (y, x), and how well they match."""

    one: int
    two: int
    offset: tuple[float, float]
    match: float
    area: int


@dataclass(frozen=True)
class Layout:
    """Where tiles lie, y and x in pixels, and how well the pairs agree with it."""

    places: Array
    pairs: list[Pair]
    used: npt.NDArray[np.bool_]
    residuals: Array

    @property
    def rms(self) -> float:
        """Root mean square of the residuals of the pairs in use."""
        return float(np.sqrt(np.mean(self.residuals[self.used] ** 2))) if self.used.any() else float("nan")


def run(job: Job) -> None:
    """Stitch, segment, measure and class; then figures and report."""
    path = next(
        (p for p in sorted(job.input_dir.rglob("*")) if p.suffix.lower() == ".lsm" and not p.name.startswith(".")), None
    )
    if path is None:
        raise ValueError("no LSM file in the input folder")
    tiles = Tiles.open(path)
    job.log(f"{tiles.count} tiles, {tiles.planes} planes, channels {', '.join(tiles.names)}")
    shading = estimate_shading(tiles)
    job.log("shading estimated")
    layout = register(tiles, shading)
    job.log(f"{layout.used.sum()} of {len(layout.pairs)} overlaps used, residual {layout.rms:.2f} px")
    mosaic_path = job.output_dir / "stitched_mosaic.tif"
    blend(tiles, shading, layout, mosaic_path)
    job.delivered += 1
    job.log("mosaic written")
    mosaic = tifffile.memmap(mosaic_path, mode="r")
    cells: list[dict[str, Any]] = []
    labels = np.zeros(mosaic.shape[-2:], np.int32)
    with job.attempt("cells"):
        signal = projected(mosaic, tiles)
        labels = find_cells(signal, tiles.pixel_um)
        cells = measure(signal, labels, tiles.pixel_um)
        classify(cells)
        write_cells(job, cells)
        write_summary(job, cells)
        job.delivered += 1
        job.log(f"{len(cells)} cells")
    with job.attempt("figures"):
        draw_mosaic(job, mosaic, tiles, layout, labels, cells)
        draw_features(job, cells)
    summary = read_summary(job.output_dir / "summary_statistics.csv")
    write_report(job, tiles, shading, layout, mosaic.shape, cells, summary)


# --- shading and registration -----------------------------------------------------------------------------------


def estimate_shading(tiles: Tiles) -> Shading:
    """Estimate the common fall-off from the background that tiles share, and the offset from its noise.

    In each window of a tile's field the lower part of the distribution over all tiles and planes is background. The
    variance of photon noise grows in proportion to light, so that it extrapolates to 0 where there is no light: at the
    offset. Read noise makes the offset come out slightly low.
    """
    window = max(8, tiles.width // 9)
    rows, columns = tiles.height // window, tiles.width // window
    some = max(1, tiles.count * tiles.planes // 40)
    blocks: list[npt.NDArray[Any]] = []
    for tile, plane, image in tiles.pages():
        if (tile * tiles.planes + plane) % some == 0:
            cut = image[:, : rows * window, : columns * window]
            parts = cut.reshape(len(cut), rows, window, columns, window).swapaxes(2, 3)
            blocks.append(parts.reshape(len(cut), rows, columns, window * window)[..., ::2])
    samples = np.stack(blocks)  # (images, c, rows, columns, pixels)
    channels = samples.shape[1]
    light = np.ones((channels, tiles.height, tiles.width), np.float32)
    offset = np.zeros(channels)
    y, x = np.meshgrid(np.linspace(-1, 1, tiles.height), np.linspace(-1, 1, tiles.width), indexing="ij")
    centre_y = ((np.arange(rows) + 0.5) * window - 0.5) / (tiles.height - 1) * 2 - 1
    centre_x = ((np.arange(columns) + 0.5) * window - 0.5) / (tiles.width - 1) * 2 - 1
    by, bx = np.meshgrid(centre_y, centre_x, indexing="ij")
    terms = np.stack([np.ones_like(by), by, bx, by * by, by * bx, bx * bx]).reshape(6, -1).T
    for c in range(channels):
        values = samples[:, c].transpose(1, 2, 0, 3).reshape(rows * columns, -1).astype(np.float32)
        low, middle = np.quantile(values, [0.03, 0.2], axis=1)  # cells brighten the upper part of the distribution only
        spread = (middle - low) / (NORMAL_20 - NORMAL_03)
        level = middle - NORMAL_20 * spread
        offset[c] = _dark_level(level, spread**2)
        above = level - offset[c]
        weights, *_ = np.linalg.lstsq(terms, above, rcond=None)
        surface = weights @ np.stack([np.ones_like(y), y, x, y * y, y * x, x * x]).reshape(6, -1)
        surface = surface.reshape(y.shape)
        light[c] = np.clip(surface / surface.max(), 0.2, 1.0)
    return Shading(light, offset)


def _dark_level(level: npt.NDArray[Any], variance: npt.NDArray[Any]) -> float:
    """Return the level at which the variance of the background extrapolates to 0.

    It is kept between 0 and the level that would make the fall-off of light steeper than :data:`LEAST_LIGHT`.
    """
    slope, intercept = np.polyfit(level, variance, 1) if np.ptp(level) > 0 else (0.0, 0.0)
    if slope <= 0:
        return 0.0
    highest = (float(level.min()) - LEAST_LIGHT * float(level.max())) / (1.0 - LEAST_LIGHT)
    return float(np.clip(-intercept / slope, 0.0, max(0.0, highest)))


def register(tiles: Tiles, shading: Shading) -> Layout:
    """Measure the offsets of all neighbouring tiles and solve for their places."""
    pictures = _pictures(tiles, shading)
    reach = max(16, round(STAGE_SHARE * max(tiles.height, tiles.width)))
    pairs = []
    for one in range(tiles.count):
        for two in range(one + 1, tiles.count):
            asked = tiles.asked_px[two] - tiles.asked_px[one]
            overlap = np.array([tiles.height, tiles.width]) - np.abs(asked)
            if overlap.min() > 0 and overlap.prod() > 0.02 * tiles.height * tiles.width:
                found = match_pair(pictures[one], pictures[two], asked, reach)
                if found is not None:
                    pairs.append(Pair(one, two, *found))
    return solve(tiles.asked_px, pairs)


def _pictures(tiles: Tiles, shading: Shading) -> list[Image]:
    """Return one image per tile for registration: the structure of all channels, summed over channels and planes."""
    sums = np.zeros((tiles.count, tiles.height, tiles.width), np.float32)
    for tile, _, image in tiles.pages():
        for c in tiles.order:
            sums[tile] += structure((image[c] - shading.offset[c]) / shading.light[c])
    return list(sums)


def structure(image: npt.NDArray[Any]) -> Image:
    """Return what is above background in units of the noise, compressed, between two sizes.

    A cell that the overlap cuts would match at almost any shift; its texture and outline do not.
    """
    level = np.median(image[::4, ::4])
    noise = 1.4826 * np.median(np.abs(image[::4, ::4] - level)) + 1e-6
    bright = np.arcsinh(np.clip((image - level) / noise, -1.0, None) / 3.0)
    return np.asarray(ndi.gaussian_filter(bright, FINE_PX) - ndi.gaussian_filter(bright, BROAD_PX), np.float32)


def match_pair(one: Image, two: Image, asked: Array, reach: int) -> tuple[tuple[float, float], float, int] | None:
    """Find the offset of one tile from another around the one asked for.

    The correlation of the overlap is computed for every shift within reach, on a coarse grid first where the reach is
    wide, and refined by parabolas. Shifts that leave little overlap must match better.

    Returns
    -------
    (offset, correlation, pixels of the overlap), or ``None`` where nothing can be compared.
    """
    step = max(1, reach // 16)
    centre = np.rint(asked).astype(int)
    if step > 1:
        small = [ndi.zoom(image, 1.0 / step, order=1, grid_mode=True, mode="nearest") for image in (one, two)]
        coarse = _best_shift(small[0], small[1], np.rint(asked / step).astype(int), -(-reach // step))
        if coarse is None:
            return None
        centre, reach = coarse[0] * step, 2 * step
    best = _best_shift(one, two, centre, reach)
    if best is None:
        return None
    place, table = best
    middle = place - centre + reach
    offset = [float(place[0]), float(place[1])]
    for axis in range(2):
        if 0 < middle[axis] < 2 * reach:
            before, after = middle.copy(), middle.copy()
            before[axis] -= 1
            after[axis] += 1
            a, b, c = (float(table[tuple(m)]) for m in (before, middle, after))
            bend = a - 2 * b + c
            if bend < 0:
                offset[axis] += 0.5 * (a - c) / bend
    height, width = np.array(one.shape) - np.abs(place)
    return (offset[0], offset[1]), float(table[tuple(middle)]), int(height * width)


def _best_shift(
    one: Image, two: Image, centre: npt.NDArray[np.int64], reach: int
) -> tuple[npt.NDArray[np.int64], Array] | None:
    """Return the best shift and the table of correlations over all shifts around ``centre``."""
    shape = np.array(one.shape)
    table = np.full((2 * reach + 1, 2 * reach + 1), -1.0)
    rating = np.full_like(table, -1.0)
    usual = float(np.prod(np.maximum(shape - np.abs(centre), 1)))
    for i in range(-reach, reach + 1):
        for j in range(-reach, reach + 1):
            dy, dx = int(centre[0]) + i, int(centre[1]) + j
            height, width = shape[0] - abs(dy), shape[1] - abs(dx)
            if min(height, width) < 4:
                continue
            a = one[max(0, dy) : max(0, dy) + height, max(0, dx) : max(0, dx) + width]
            b = two[max(0, -dy) : max(0, -dy) + height, max(0, -dx) : max(0, -dx) + width]
            a, b = a - a.mean(), b - b.mean()
            norm = math.sqrt(float(np.vdot(a, a)) * float(np.vdot(b, b)))
            if norm > 0:
                table[i + reach, j + reach] = value = float(np.vdot(a, b)) / norm
                rating[i + reach, j + reach] = value * min(1.0, height * width / usual) ** 0.25
    if rating.max() <= 0:
        return None
    best = np.array(np.unravel_index(int(np.argmax(rating)), rating.shape))
    return centre + best - reach, table


def solve(asked: Array, pairs: list[Pair]) -> Layout:
    """Place all tiles by weighted least squares; pairs that disagree with the rest lose their weight.

    A weak pull towards the positions asked for places tiles that no pair holds.
    """
    count = len(asked)
    weights = np.array([pair.match**2 * math.sqrt(pair.area) if pair.match > LEAST_MATCH else 0.0 for pair in pairs])
    weights = weights / max(float(weights.max(initial=0.0)), 1e-9)
    offsets = np.array([pair.offset for pair in pairs]).reshape(-1, 2)
    rows = np.zeros((len(pairs), count))
    for index, pair in enumerate(pairs):
        rows[index, pair.one], rows[index, pair.two] = -1.0, 1.0
    trust = np.ones(len(pairs))
    residuals = np.zeros(len(pairs))
    places = asked.copy()
    for _ in range(25):
        strength = np.sqrt(weights * trust)[:, None]
        system = np.concatenate([rows * strength, 1e-3 * np.eye(count)])
        target = np.concatenate([offsets * strength, 1e-3 * asked])
        places, *_ = np.linalg.lstsq(system, target, rcond=None)
        residuals = np.hypot(*(rows @ places - offsets).T) if len(pairs) else residuals
        trust = 1.0 / (1.0 + (residuals / 0.7) ** 4)
    used = (weights > 0) & (residuals < 1.5)
    return Layout(places - places.min(axis=0), pairs, used, residuals)


def blend(tiles: Tiles, shading: Shading, layout: Layout, path: Path) -> None:
    """Write the mosaic, plane by plane; overlaps are weighted by the distance to the edge of each tile."""
    whole = np.floor(layout.places).astype(int)
    part = layout.places - whole
    last = np.ceil(layout.places.max(axis=0)).astype(int)
    height, width = int(last[0]) + tiles.height, int(last[1]) + tiles.width
    shape = (tiles.planes, len(CHANNELS), height, width)
    path.parent.mkdir(parents=True, exist_ok=True)
    resolution = (1.0 / tiles.pixel_um, 1.0 / tiles.pixel_um)
    mosaic = tifffile.memmap(
        path,
        shape=shape,
        dtype=np.uint16,
        imagej=True,
        resolution=resolution,
        metadata={"axes": "ZCYX", "unit": "um", "spacing": tiles.step_um},
    )
    ramp_y = np.minimum(np.arange(tiles.height) + 1, tiles.height - np.arange(tiles.height))
    ramp_x = np.minimum(np.arange(tiles.width) + 1, tiles.width - np.arange(tiles.width))
    weight = np.minimum(ramp_y[:, None], ramp_x[None, :]).astype(np.float32)
    with tifffile.TiffFile(tiles.path) as file:
        pages = file.series[0].pages
        for z in range(tiles.planes):
            total = np.zeros((len(CHANNELS), height, width), np.float32)
            cover = np.zeros((height, width), np.float32)
            for tile in range(tiles.count):
                page = pages[tile * tiles.planes + z]
                if page is None:
                    continue
                image = page.asarray()
                spread = _moved(weight, part[tile], 0.0)
                where = tuple(
                    slice(int(start), int(start) + length)
                    for start, length in zip(whole[tile], spread.shape, strict=True)
                )
                inside = tuple(slice(0, min(s.stop, n) - s.start) for s, n in zip(where, cover.shape, strict=True))
                cover[where] += spread[inside]
                for place, c in enumerate(tiles.order):
                    flat = (image[c] - shading.offset[c]) / shading.light[c] + shading.offset[c]
                    total[place][where] += (spread * _moved(flat.astype(np.float32), part[tile], None))[inside]
            for place, plane in enumerate(total):
                np.divide(plane, cover, out=plane, where=cover > 0)
                mosaic[z, place] = np.clip(np.rint(plane, out=plane), 0, 65535, out=plane).astype(np.uint16)
    mosaic.flush()


def _moved(image: Image, part: Array, outside: float | None) -> Image:
    """Return an image moved by part of a pixel, one row and column larger; ``outside`` repeats the edge if ``None``."""
    padded = np.pad(image, ((0, 1), (0, 1)), mode="edge") if outside is None else np.pad(image, ((0, 1), (0, 1)))
    order = 1 if outside is not None else 3
    return np.asarray(ndi.shift(padded, part, order=order, mode="nearest" if outside is None else "constant"))


# --- cells ------------------------------------------------------------------------------------------------------


def projected(mosaic: npt.NDArray[Any], tiles: Tiles) -> Image:
    """Return sums over the planes above the local background, ``(c, y, x)``."""
    signal = np.zeros(mosaic.shape[1:], np.float32)
    for c in range(mosaic.shape[1]):
        total = mosaic[:, c].sum(axis=0, dtype=np.float32)
        covered = mosaic[0, c] > 0
        base = float(np.median(total[covered]))
        low = total[covered & (total < base)]
        spread = float(base - np.percentile(low, 16)) if low.size else 1.0
        background = covered & (total < base + 2.0 * spread)
        level = float(np.median(total[background]))
        window = max(64, round(60.0 / tiles.pixel_um))
        kept = np.where(background, total, 0.0)
        share = ndi.uniform_filter(background.astype(np.float32), window)
        local = ndi.uniform_filter(kept, window) / np.maximum(share, 1e-3)
        local = np.where(share > 0.05, local, level)
        signal[c] = np.where(covered, total - local, 0.0)
    return signal


def find_cells(signal: Image, pixel_um: float) -> npt.NDArray[np.int32]:
    """Label cells: bright in any stain, holes filled, parted by nuclei."""
    smooth = [np.asarray(ndi.gaussian_filter(channel, SMOOTH_UM / pixel_um)) for channel in signal]
    masks = [_half_height(image) for image in smooth]
    nuclei_mask = masks[CHANNELS.index("DAPI")]
    body = ndi.binary_fill_holes(masks[0] | masks[1] | masks[2] | masks[3])
    body = ndi.binary_opening(body, iterations=max(1, round(0.8 / pixel_um)))
    nuclei = ndi.binary_fill_holes(nuclei_mask & body)
    closing = max(1, round(1.2 / pixel_um))
    nuclei = ndi.binary_closing(np.pad(nuclei, closing), iterations=closing)[closing:-closing, closing:-closing]
    depth = ndi.gaussian_filter(distance_inside(np.asarray(nuclei & body)), 1.0)
    seeds = split_touching(np.asarray(nuclei & body), np.asarray(depth, np.float32), 0.6 / pixel_um)
    sizes = np.bincount(seeds.ravel())
    seeds[(sizes < 8.0 / pixel_um**2)[seeds]] = 0
    inner = distance_inside(body)
    cells = watershed(-inner, seeds, mask=body)
    keep = []
    for label, box in enumerate(ndi.find_objects(cells), start=1):
        if box is None:
            continue
        area = float((cells[box] == label).sum()) * pixel_um**2
        edge = any(s.start == 0 or s.stop == n for s, n in zip(box, cells.shape, strict=True))
        if AREA_UM2[0] <= area <= AREA_UM2[1] and not edge:
            keep.append(label)
    return relabel(np.where(np.isin(cells, keep), cells, 0))


def _half_height(image: Image) -> npt.NDArray[np.bool_]:
    """Return what is brighter than half of the bright things around it, and well above noise.

    A global threshold finds objects; each pixel then has to reach a share of the highest value in its object, so that
    bright cells do not come out larger than dim ones.
    """
    low = image[image < 0]
    noise = 1.4826 * float(np.median(np.abs(low))) if low.size else 1.0
    rough = image > max(5.0 * noise, 0.15 * otsu(image))
    parts, count = ndi.label(rough)
    if count == 0:
        return np.asarray(rough)
    peaks = np.zeros(count + 1, np.float32)
    for index, box in enumerate(ndi.find_objects(parts), start=1):
        peaks[index] = np.percentile(image[box][parts[box] == index], 75)
    return np.asarray(rough & (image > 0.35 * peaks[parts]))


def measure(signal: Image, labels: npt.NDArray[np.int32], pixel_um: float) -> list[dict[str, Any]]:
    """Measure every cell in every channel."""
    cells = []
    for label, box in enumerate(ndi.find_objects(labels), start=1):
        if box is None:
            continue
        mask = labels[box] == label
        y, x = np.nonzero(mask)
        row: dict[str, Any] = {
            "cell": label,
            "centroid_y": float(y.mean() + box[0].start),
            "centroid_x": float(x.mean() + box[1].start),
            "area_um2": float(mask.sum()) * pixel_um**2,
        }
        for c, channel in enumerate(CHANNELS):
            image = np.where(mask, np.maximum(signal[c][box], 0.0), 0.0).astype(float)
            for feature, value in zip(FEATURES, moments(image, pixel_um), strict=True):
                row[f"{channel}_{feature}"] = value
            row[f"{channel}_mean"] = float(image.sum()) / float(mask.sum())
        cells.append(row)
    return cells


def moments(image: Array, pixel_um: float) -> tuple[float, float, float, float]:
    """Return total signal (dB), spatial size r (µm), spatial frequency rf (1/µm) and their product of one cell."""
    total = float(image.sum())
    if total <= 0:
        return 0.0, float("nan"), float("nan"), float("nan")
    y, x = np.indices(image.shape) * pixel_um
    my, mx = float((image * y).sum()) / total, float((image * x).sum()) / total
    r = math.sqrt(float((image * ((y - my) ** 2 + (x - mx) ** 2)).sum()) / total)
    power = np.abs(np.fft.fft2(image)) ** 2
    fy, fx = np.fft.fftfreq(image.shape[0], pixel_um)[:, None], np.fft.fftfreq(image.shape[1], pixel_um)[None, :]
    rf = math.sqrt(float((power * (fy**2 + fx**2)).sum()) / float(power.sum()))
    return 10.0 * math.log10(max(total, 1.0)), r, rf, r * rf


def classify(cells: list[dict[str, Any]]) -> None:
    """Decide between the two kinds by the two markers per area; what is dim in both is left undecided."""
    if not cells:
        return
    markers = {}
    for channel in ("PanCK", "CD45"):
        values = np.log(np.maximum([cell[f"{channel}_mean"] for cell in cells], 1.0))
        markers[channel] = (values, otsu(values, default=0.0))
    ratio = (markers["PanCK"][0] - markers["PanCK"][1]) - (markers["CD45"][0] - markers["CD45"][1])
    for index, cell in enumerate(cells):
        positive = {channel: bool(values[index] > limit) for channel, (values, limit) in markers.items()}
        cell["marker_ratio"] = float(ratio[index])
        if not any(positive.values()):
            cell["cell_type"] = ""
        else:
            cell["cell_type"] = "MCF7" if ratio[index] > 0 else "WBC"


# --- tables -----------------------------------------------------------------------------------------------------


def write_cells(job: Job, cells: Sequence[dict[str, Any]]) -> None:
    """Write one row per cell."""
    units = {"Sigma": "_dB", "r": "_um", "rf": "_per_um", "M": ""}
    columns = ["cell", "cell_type", "centroid_y", "centroid_x", "area_um2", "marker_ratio"]
    named = [
        (f"{channel}_{feature}{units[feature]}", f"{channel}_{feature}") for channel in CHANNELS for feature in FEATURES
    ]
    rows = [[*(cell[key] for key in columns), *(cell[key] for _, key in named)] for cell in cells]
    write_table(job.output_dir / "per_cell_features.csv", [*columns, *(name for name, _ in named)], rows, delimiter=",")


def write_summary(job: Job, cells: Sequence[dict[str, Any]]) -> None:
    """Write mean, standard deviation and number of cells per population, channel and feature."""
    rows: list[Sequence[object]] = []
    for population in POPULATIONS:
        own = [cell for cell in cells if cell["cell_type"] == population]
        for channel in CHANNELS:
            for feature in FEATURES:
                values = np.array([cell[f"{channel}_{feature}"] for cell in own], float)
                values = values[np.isfinite(values)]
                mean = float(values.mean()) if len(values) else ""
                spread = float(values.std(ddof=1)) if len(values) > 1 else ""
                rows.append((population, channel, feature, mean, spread, len(values)))
    write_table(
        job.output_dir / "summary_statistics.csv",
        ["population", "channel", "feature", "mean", "sd", "n"],
        rows,
        delimiter=",",
    )


def read_summary(path: Path) -> dict[tuple[str, str, str], tuple[float, float, int]]:
    """Read the delivered table back: mean, standard deviation, number."""
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (row["population"], row["channel"], row["feature"]): (
                float(row["mean"] or "nan"),
                float(row["sd"] or "nan"),
                int(row["n"]),
            )
            for row in csv.DictReader(file)
        }


# --- figures ----------------------------------------------------------------------------------------------------


def draw_mosaic(
    job: Job,
    mosaic: npt.NDArray[Any],
    tiles: Tiles,
    layout: Layout,
    labels: npt.NDArray[np.int32],
    cells: Sequence[dict[str, Any]],
) -> None:
    """Draw the mosaic with the borders of its tiles, all stains, and the outlines of cells by class."""
    step = max(1, max(mosaic.shape[-2:]) // 1500)
    middle = mosaic.shape[0] // 2
    small = [np.asarray(mosaic[middle, c, ::step, ::step]) for c in range(len(CHANNELS))]
    scale = figures.Scale(tiles.pixel_um * step)
    figure = figures.new_figure(180, 190)
    axes = figure.subplots(2, 2).ravel()
    dna = figures.to_rgb(small[CHANNELS.index("DAPI")], gamma=0.6)
    figures.show_image(axes[0], dna, scale, "DNA, borders of tiles")
    for y, x in layout.places / step:
        axes[0].add_patch(_box(x, y, tiles.width / step, tiles.height / step))
    rgb = np.stack([figures.to_rgb(small[k], gamma=0.6)[..., 0] for k in (1, 3, 2)], axis=-1)
    figures.show_image(axes[1], rgb, scale, "cytokeratin red, CD45 green, DNA blue")
    figures.show_image(axes[2], figures.to_rgb(small[0], gamma=0.6), scale, "lipids")
    kinds = np.zeros(int(labels.max()) + 1, np.int32)
    for cell in cells:
        kinds[cell["cell"]] = {"WBC": 1, "MCF7": 2}.get(cell["cell_type"], 3)
    shown = labels[::step, ::step]
    layers = [
        (np.where(kinds[shown] == kind, shown, 0), colour)
        for kind, colour in ((1, figures.SKY), (2, figures.ORANGE), (3, figures.YELLOW))
    ]
    figures.show_image(axes[3], figures.draw_outlines(dna, layers), scale, "WBC blue, MCF7 orange, undecided yellow")
    figures.panel_letters(axes)
    figures.save_figure(figure, job.output_dir / "figures", "mosaic")


def _box(x: float, y: float, width: float, height: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, fill=False, linewidth=0.7, edgecolor=figures.hexadecimal(figures.ORANGE))


def draw_features(job: Job, cells: Sequence[dict[str, Any]]) -> None:
    """Draw the distributions of all features in both populations, and the markers that decide between them."""
    figure = figures.new_figure(180, 150)
    axes = figure.subplots(4, 4)
    labels = {"Sigma": "Σ (dB)", "r": "r (µm)", "rf": "rf (1/µm)", "M": "M"}
    rng = np.random.default_rng(0)
    for row, channel in zip(axes, CHANNELS, strict=True):
        for axis, feature in zip(row, FEATURES, strict=True):
            for place, (population, colour) in enumerate(zip(POPULATIONS, (figures.SKY, figures.ORANGE), strict=True)):
                values = [cell[f"{channel}_{feature}"] for cell in cells if cell["cell_type"] == population]
                values = [value for value in values if np.isfinite(value)]
                if len(values) > 1:
                    parts = axis.violinplot([values], [place], widths=0.8, showextrema=False)
                    parts["bodies"][0].set_facecolor(figures.hexadecimal(colour))
                axis.scatter(place + rng.uniform(-0.1, 0.1, len(values)), values, s=2, color="black")
            axis.set_xticks([0, 1], POPULATIONS)
            axis.set_ylabel(f"{channel} {labels[feature]}")
    figures.save_figure(figure, job.output_dir / "figures", "features")


# --- report -----------------------------------------------------------------------------------------------------


def write_report(
    job: Job,
    tiles: Tiles,
    shading: Shading,
    layout: Layout,
    shape: tuple[int, ...],
    cells: Sequence[dict[str, Any]],
    summary: dict[tuple[str, str, str], tuple[float, float, int]],
) -> None:
    """Write the report; means are read from the delivered table."""
    report = Report("Mosaic and image cytometry of two cell populations")
    report.section(
        "Question", "How do white blood cells and cells of the line MCF7 in one mixture differ in four stains?"
    )
    counts = {kind: sum(cell["cell_type"] == kind for cell in cells) for kind in (*POPULATIONS, "")}
    report.section(
        "Result",
        f"{tiles.count} tiles make a mosaic of {shape[2]} × {shape[3]} px ({shape[2] * tiles.pixel_um:.0f} × "
        f"{shape[3] * tiles.pixel_um:.0f} µm), {shape[0]} planes, {shape[1]} channels. {len(cells)} cells were "
        "measured: "
        f"{counts['WBC']} WBC, {counts['MCF7']} MCF7, {counts['']} undecided.",
    )
    rows = []
    for channel in CHANNELS:
        for feature in FEATURES:
            one, two = (summary.get((p, channel, feature), (np.nan, np.nan, 0)) for p in POPULATIONS)
            pooled = math.sqrt((one[1] ** 2 + two[1] ** 2) / 2.0) if np.isfinite(one[1] + two[1]) else float("nan")
            effect = (two[0] - one[0]) / pooled if pooled else float("nan")
            higher = "–" if not np.isfinite(effect) else POPULATIONS[int(two[0] > one[0])]
            rows.append(
                (
                    channel,
                    feature,
                    f"{number(one[0])} ± {number(one[1])}",
                    f"{number(two[0])} ± {number(two[1])}",
                    higher,
                    effect,
                )
            )
    report.table(["channel", "feature", "WBC (mean ± SD)", "MCF7 (mean ± SD)", "higher in", "effect size d"], rows)
    report.text("Σ in dB (10 log10 of counts), r in µm, rf in 1/µm, M without unit. d: difference over pooled SD.")
    report.section("Method")
    report.bullets(
        f"Metadata: channels {', '.join(tiles.names) or 'without names'}; pixel {tiles.pixel_um:g} µm, planes "
        f"{tiles.step_um:g} µm; tile positions as asked of the stage.",
        "Shading: in windows of the tile's field, the lower part of the distribution over tiles and planes is "
        "background; a surface of "
        "second degree through it, above the camera's offset, is the "
        "common fall-off. The offset is where the variance of the background extrapolates to 0.",
        "Registration: all channels above background in units of noise (inverse hyperbolic sine), summed over "
        "planes; correlation of the overlap over all shifts within reach, "
        "parabola for fractions of a pixel.",
        f"Solution: weighted least squares over all pairs with a correlation above {LEAST_MATCH:g}; pairs that "
        "disagree lose weight; a weak pull towards the asked positions.",
        "Mosaic: the same shifts for all channels and planes, cubic interpolation, overlaps weighted by the "
        "distance to the tile's edge, shading divided out, offset and scale of the counts kept.",
        f"Cells: sums over planes, local background subtracted, smoothed by {SMOOTH_UM:g} µm; bright in any stain "
        "(35 % of the object's upper quartile), holes filled; parted by nuclei; "
        f"{AREA_UM2[0]:g} to {AREA_UM2[1]:g} µm², not at the edge.",
        "Features: in the cell's outline, negative values 0; Σ, r about the intensity centroid, rf from the "
        "power spectrum with zero frequency, M = r · rf.",
        "Classes: mean cytokeratin and CD45 signal, each against Otsu's threshold on the logarithm; the larger "
        "excess decides, cells dim in both are undecided.",
    )
    report.section("Quality control")
    report.failures(job.failures, 1, "files and steps")
    matches = Summary.of(pair.match for pair, use in zip(layout.pairs, layout.used, strict=True) if use)
    darkest = [f"{name} {1 - float(shading.light[c].min()):.0%}" for name, c in zip(CHANNELS, tiles.order, strict=True)]
    moves = np.hypot(*(layout.places - layout.places.mean(axis=0) - tiles.asked_px + tiles.asked_px.mean(axis=0)).T)
    report.bullets(
        f"Pairs of neighbouring tiles: {len(layout.pairs)} measured, {int(layout.used.sum())} used, "
        f"{int((~layout.used).sum())} rejected; residual {number(layout.rms)} px (RMS of pairs used).",
        f"Correlation of the overlaps used: {matches.text()} pairs.",
        f"Tiles lie {Summary.of(moves).text('px')} tiles from where the stage was asked to go.",
        f"Fall-off of light to the darkest corner: {', '.join(darkest)}.",
        "Tile borders, stains and cell outlines: `figures/mosaic`; all distributions: `figures/features`.",
    )
    report.section("Caveats")
    report.bullets(
        "Signals include the noise of the detector: in stains that a population lacks, rf is that of noise.",
        "Outlines of white blood cells rest on CD45 and lipids; where both are dim they come out small.",
        "Tiles without structure in their overlaps rest on the asked positions.",
        "One field of one sample: cells are not independent replicates, so no test is made.",
    )
    report.section(
        "Files",
        "`stitched_mosaic.tif`: (z, channel, y, x), ImageJ hyperstack. `summary_statistics.csv`: means. "
        "`per_cell_features.csv`: cells. `figures/` (PNG, SVG).",
    )
    report.write(job.output_dir / "report.md")
