"""What the demo simulators share: random streams, shapes, light, a camera, and byte-stable files.

A simulator builds a *state* (cells with positions and outlines), renders its geometry as truth, and only then sends
light through this module: rendered objects -> point spread -> uneven illumination and haze -> camera. Truth never comes
from an image.

Conventions: arrays are ``(y, x)`` or ``(z, y, x)``; coordinates are in pixels in the same order, a pixel's centre
lies at its integer index; light is counted in photons per pixel and exposure. Everything is computed in double
precision and photons are quantised before the Poisson draw, so that the last bit of a platform's ``exp`` does not
change a file.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import imagecodecs
import numpy as np
import tifffile
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage, sparse
from scipy.special import erf

Array = NDArray[np.float64]
Shape = tuple[int, ...]

# ---------------------------------------------------------------------------------------------------------------------
# Random streams


def stream(seed: int, *name: str | int) -> np.random.Generator:
    """Return the random stream of one named part of a simulation.

    Streams of different names are independent, so a new kind of object, or one object more, leaves all others as they
    were. The same ``seed`` and ``name`` give the same numbers on every platform.
    """
    digest = hashlib.blake2b("/".join(map(str, name)).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.PCG64([seed, *np.frombuffer(digest, "<u4").tolist()]))


# ---------------------------------------------------------------------------------------------------------------------
# Point spread


@dataclass(frozen=True)
class Objective:
    """An objective with a Gaussian point spread.

    Parameters
    ----------
    na
        Numerical aperture.
    wavelength_nm
        Emission (or transmitted) wavelength.
    pixel_size_um
        Pixel size in the sample.
    z_step_um
        Distance of planes; ``None`` for single planes.
    index
        Refractive index of the immersion medium.
    confocal
        Whether a pinhole sharpens the spread by the square root of two in each direction.

    Notes
    -----
    Paraxial Gaussian approximation: ``sqrt(2) / (k NA)`` across and ``2 sqrt(3) n / (k NA^2)`` along the axis, with
    ``k = 2 pi / wavelength`` (Zhang, Zerubia, Olivo-Marin, Applied Optics 46, 1819, 2007).
    """

    na: float
    wavelength_nm: float
    pixel_size_um: float
    z_step_um: float | None = None
    index: float = 1.0
    confocal: bool = False

    @property
    def sigma_px(self) -> tuple[float, ...]:
        """Standard deviation of the spread in pixels, ``(y, x)`` or, with a ``z_step_um``, ``(z, y, x)``."""
        k_per_um = 2.0 * math.pi / (self.wavelength_nm * 1e-3)
        sharpening = math.sqrt(2.0) if self.confocal else 1.0
        lateral = math.sqrt(2.0) / (k_per_um * self.na) / self.pixel_size_um / sharpening
        if self.z_step_um is None:
            return (lateral, lateral)
        axial = 2.0 * math.sqrt(3.0) * self.index / (k_per_um * self.na**2) / self.z_step_um / sharpening
        return (axial, lateral, lateral)

    def defocused_px(self, defocus_um: float) -> float:
        """Lateral standard deviation in pixels for an object ``defocus_um`` away from the focal plane.

        The geometric cone of light is a disc whose radius is ``defocus * tan(asin(NA / n))``; its standard deviation
        along one axis is half of that and adds in quadrature.
        """
        slope = math.tan(math.asin(min(self.na / self.index, 0.99)))
        return math.hypot(self.sigma_px[-1], 0.5 * abs(defocus_um) * slope / self.pixel_size_um)

    def blur(self, image: Array, defocus_um: float = 0.0) -> Array:
        """Return ``image`` after the point spread; ``defocus_um`` widens it laterally."""
        lateral = self.defocused_px(defocus_um)
        return blur(image, (*self.sigma_px[:-2], lateral, lateral))


def blur(image: Array, sigma_px: float | Sequence[float]) -> Array:
    """Gaussian blur in double precision; light beyond the edge is that of the edge."""
    result: Array = ndimage.gaussian_filter(np.asarray(image, np.float64), sigma_px, mode="nearest", truncate=3.5)
    return result


def wide_blur(image: Array, sigma_px: float) -> Array:
    """Gaussian blur over the last two axes for spreads of many pixels, computed on a coarser grid.

    For out-of-focus glow and shading, where 1 % matters little; the cost does not grow with the spread.
    """
    step = max(1, int(sigma_px / 5.0))
    result = image
    for axis in (-2, -1):
        length = image.shape[axis]
        count = math.ceil(length / step)
        result = np.moveaxis(result, axis, -1)
        padded = np.concatenate([result, np.repeat(result[..., -1:], count * step - length, axis=-1)], axis=-1)
        means = padded.reshape(*padded.shape[:-1], count, step).mean(axis=-1)
        means = ndimage.gaussian_filter1d(means, sigma_px / step, mode="nearest", truncate=3.5)
        position = ((np.arange(length) + 0.5) / step - 0.5).clip(0, count - 1)
        left = np.minimum(position.astype(np.int64), max(count - 2, 0))
        share = position - left
        right = np.minimum(left + 1, count - 1)
        result = np.moveaxis(means[..., left] * (1.0 - share) + means[..., right] * share, -1, axis)
    return np.ascontiguousarray(result)


def render_points(shape: Shape, points: ArrayLike, weights: ArrayLike, sigma_px: float | Sequence[float]) -> Array:
    """Render point sources at sub-pixel positions, each integrated over the area (volume) of the pixels.

    Parameters
    ----------
    shape
        Shape of the image, two or three axes.
    points
        ``(n, ndim)`` coordinates in pixels; points outside shed light into the image where it reaches.
    weights
        ``(n,)`` or scalar, the whole light of each point.
    sigma_px
        Gaussian spread, one number or one per axis.
    """
    image = np.zeros(shape)
    points = np.asarray(points, np.float64).reshape(-1, len(shape))
    weights = np.broadcast_to(np.asarray(weights, np.float64), len(points))
    sigmas = np.broadcast_to(np.asarray(sigma_px, np.float64), len(shape))
    reach = [math.ceil(4.0 * sigma) + 1 for sigma in sigmas]
    chunk = max(1, 4_000_000 // math.prod(2 * r + 1 for r in reach))
    for start in range(0, len(points), chunk):
        part = points[start : start + chunk]
        light = weights[start : start + chunk]
        flat: NDArray[np.int64] = np.zeros(len(part), np.int64)
        for axis, (length, sigma, r) in enumerate(zip(shape, sigmas, reach, strict=True)):
            pixels = np.floor(part[:, axis] + 0.5).astype(np.int64)[:, None] + np.arange(-r, r + 1)
            edges = (np.concatenate([pixels, pixels[:, -1:] + 1], axis=1) - 0.5 - part[:, axis, None]) / sigma
            share = 0.5 * np.diff(erf(edges / math.sqrt(2.0)), axis=1)
            share[(pixels < 0) | (pixels >= length)] = 0.0
            light = light[..., None] * share.reshape(len(part), *[1] * axis, -1)
            flat = flat[..., None] * length + pixels.clip(0, length - 1).reshape(len(part), *[1] * axis, -1)
        np.add.at(image.ravel(), flat.ravel(), light.ravel())
    return image


# ---------------------------------------------------------------------------------------------------------------------
# Random fields, illumination, debris


def smooth_field(shape: Shape, scale_px: float | Sequence[float], rng: np.random.Generator) -> Array:
    """Random field of zero mean and unit variance whose features are about ``scale_px`` wide, in any dimension.

    White noise on a coarse grid of that spacing, interpolated by uniform cubic B-splines; the cost hardly depends on
    the scale.
    """
    scales = np.broadcast_to(np.asarray(scale_px, np.float64), len(shape))
    counts = [math.ceil(length / scale) + 4 for length, scale in zip(shape, scales, strict=True)]
    field = rng.standard_normal(counts)
    shifts = rng.random(len(shape))
    for axis in range(len(shape)):
        position = np.arange(shape[axis]) / scales[axis] + shifts[axis]
        knot = np.floor(position).astype(np.int64)
        t = position - knot
        taps = np.stack([(1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3], axis=1) / 6.0
        columns = knot[:, None] + np.arange(4)
        starts = np.arange(0, 4 * shape[axis] + 1, 4)
        weights = sparse.csr_array((taps.ravel(), columns.ravel(), starts), shape=(shape[axis], counts[axis]))
        moved = np.moveaxis(field, axis, 0)
        spread = weights @ moved.reshape(counts[axis], -1)
        field = np.moveaxis(spread.reshape(shape[axis], *moved.shape[1:]), 0, axis)
    return np.asarray(field / 0.479 ** (len(shape) / 2))  # 151/315 = mean sum of the squared taps


def oriented_field(
    shape: tuple[int, int], angle: float, length_px: float, width_px: float, rng: np.random.Generator
) -> Array:
    """Random fibrous texture of zero mean and unit variance, 2D: streaks along ``angle`` (radians, x towards y)."""
    ky = np.fft.fftfreq(shape[0])[:, None]
    kx = np.fft.rfftfreq(shape[1])[None, :]
    along = kx * math.cos(angle) + ky * math.sin(angle)
    across = ky * math.cos(angle) - kx * math.sin(angle)
    transfer = np.exp(-2.0 * math.pi**2 * ((along * length_px) ** 2 + (across * width_px) ** 2))
    field: Array = np.fft.irfft2(np.fft.rfft2(rng.standard_normal(shape)) * transfer, s=shape)
    return np.asarray((field - field.mean()) / field.std())


def uneven_light(shape: Shape, rng: np.random.Generator, falloff: float = 0.25, ripple: float = 0.03) -> Array:
    """Multiplicative illumination over the last two axes, at most about 1.

    ``falloff`` is the loss in the corner farthest from a randomly placed maximum (vignetting and misaligned lamp);
    ``ripple`` the relative amplitude of broad irregularities.
    """
    height, width = shape[-2:]
    centre = (height * rng.uniform(0.3, 0.7), width * rng.uniform(0.3, 0.7))
    y = np.arange(height)[:, None] - centre[0]
    x = np.arange(width)[None, :] - centre[1]
    farthest = math.hypot(max(centre[0], height - centre[0]), max(centre[1], width - centre[1]))
    light = (1.0 - falloff * (y / farthest) ** 2) - falloff * (x / farthest) ** 2
    if ripple:
        light *= 1.0 + ripple * smooth_field((height, width), max(height, width) / 3.0, rng)
    return light


def haze(shape: Shape, rng: np.random.Generator, mean: float, scale_px: float, contrast: float = 0.4) -> Array:
    """Out-of-focus background: a broad, strictly positive random field of about the given mean."""
    log_field = contrast * smooth_field(shape, scale_px, rng)
    return mean * np.exp(log_field - 0.5 * contrast**2)


def debris(
    shape: tuple[int, int],
    rng: np.random.Generator,
    count: int,
    size_px: tuple[float, float] = (0.8, 2.5),
    brightness: tuple[float, float] = (50.0, 400.0),
) -> Array:
    """Render specks of dirt, 2D: small irregular clumps of bright points, sharp and smaller than any cell.

    ``size_px`` is the range of a clump's standard deviation, ``brightness`` that of its peak, in photons per pixel.
    """
    points, weights = [], []
    for _ in range(count):
        centre = rng.uniform(0, 1, 2) * shape
        size = rng.uniform(*size_px)
        n = int(rng.integers(3, 9))
        points.append(centre + rng.normal(0.0, size, (n, 2)))
        peak = math.exp(rng.uniform(math.log(brightness[0]), math.log(brightness[1])))
        weights.append(rng.dirichlet(np.ones(n)) * peak * 2.0 * math.pi * (size**2 + 0.5))
    if not points:
        return np.zeros(shape)
    return render_points(shape, np.concatenate(points), np.concatenate(weights), 0.7)


# ---------------------------------------------------------------------------------------------------------------------
# Shapes

Slices = tuple[slice, ...]


def window(shape: Shape, centre: Sequence[float], reach: float | Sequence[float]) -> tuple[Slices, list[Array]] | None:
    """Return the part of an image within ``reach`` of ``centre`` and open grids of offsets from it, or ``None``.

    The grids broadcast against each other, one per axis, in pixels.
    """
    reaches = np.broadcast_to(np.asarray(reach, np.float64), len(shape))
    slices, grids = [], []
    for axis, (length, middle, extent) in enumerate(zip(shape, centre, reaches, strict=True)):
        low = max(0, math.floor(middle - extent))
        high = min(length, math.ceil(middle + extent) + 1)
        if low >= high:
            return None
        slices.append(slice(low, high))
        grids.append((np.arange(low, high) - middle).reshape([-1 if a == axis else 1 for a in range(len(shape))]))
    return tuple(slices), grids


def rotation_2d(angle: float) -> Array:
    """Rows are the axes, long then short, of a frame turned by ``angle`` (radians, x towards y), as ``(y, x)``."""
    return np.array([[math.sin(angle), math.cos(angle)], [math.cos(angle), -math.sin(angle)]])


def _dot(a: Iterable[ArrayLike], b: Iterable[Array]) -> Array:
    """Sum of products over the axes; the arrays broadcast."""
    terms = iter([np.multiply(u, v) for u, v in zip(a, b, strict=True)])
    total: Array = next(terms)
    for term in terms:
        total = total + term
    return total


@dataclass(frozen=True)
class Blob:
    """A star-convex body with a smooth random outline, in 2D or 3D: a cell, a nucleus, a lumen.

    Its surface is that of an ellipsoid with ``radii`` along the rows of ``axes``, moved in and out by a few random
    waves over the directions.
    """

    centre: Array
    radii: Array
    axes: Array
    waves: Array  # (n, ndim), radians
    phases: Array  # (n,)
    roughness: float

    @classmethod
    def random(
        cls,
        rng: np.random.Generator,
        centre: Sequence[float] | Array,
        radii: Sequence[float] | Array,
        axes: Array,
        roughness: float = 0.1,
        detail: float = 2.0,
    ) -> Blob:
        """Draw an outline; ``roughness`` is its relative standard deviation, ``detail`` its bumps per radian."""
        ndim = len(radii)
        waves = rng.normal(0.0, detail, (6, ndim))
        phases = rng.uniform(0.0, 2.0 * math.pi, 6)
        return cls(np.asarray(centre, np.float64), np.asarray(radii, np.float64), axes, waves, phases, roughness)

    @property
    def reach(self) -> float:
        """Radius in pixels beyond which no point of the body lies."""
        return float(self.radii.max()) * math.exp(self.roughness * math.sqrt(2 * len(self.phases)))

    def rho(self, offsets: Sequence[Array]) -> Array:
        """Relative radius at ``offsets`` from the centre: 0 there, 1 on the outline, larger outside."""
        frame = [_dot(axis, offsets) / radius for axis, radius in zip(self.axes, self.radii, strict=True)]
        norm = np.sqrt(_dot(frame, frame))
        inverse = 1.0 / np.maximum(norm, 1e-9)
        way = [u * inverse for u in frame]
        bump = np.zeros_like(norm)
        for wave, phase in zip(self.waves, self.phases, strict=True):
            bump += np.cos(_dot(wave, way) + phase)
        return np.asarray(norm * np.exp(-self.roughness * math.sqrt(2.0 / len(self.phases)) * bump))

    def on(self, shape: Shape, margin: float = 1.0) -> tuple[Slices, Array] | None:
        """Return window and :meth:`rho` on an image, out to ``margin`` times the reach; ``None`` when off the image."""
        place = window(shape, self.centre.tolist(), self.reach * margin)
        return None if place is None else (place[0], self.rho(place[1]))


def compete(
    labels: NDArray[np.integer], best: Array, where: Slices, rho: Array, label: int, limit: float = 1.0
) -> None:
    """Give ``label`` to the pixels of a window inside the outline that lie relatively deeper in it than in any other.

    ``best`` holds the smallest relative radius so far and starts at infinity; two bodies that press against each other
    share a border without overlap, whatever the order.
    """
    wins = (rho < limit) & (rho < best[where])
    best[where][wins] = rho[wins]
    labels[where][wins] = label


def coverage(rho: Array, radius_px: float) -> Array:
    """Share of each pixel that a body of about ``radius_px`` covers: 1 inside, 0 outside, a ramp between."""
    return np.clip(0.5 + (1.0 - rho) * radius_px, 0.0, 1.0)


def rod_coordinates(offsets: Sequence[Array], half_axis: Sequence[float]) -> tuple[Array, Array]:
    """Distance in pixels from a rod's axis, and position along it from 0 to 1, at ``offsets`` from its middle.

    ``half_axis`` is the vector from the middle to one end of the axis (without the cap).
    """
    along = np.clip(_dot(half_axis, offsets) / max(sum(h * h for h in half_axis), 1e-12), -1.0, 1.0)
    gap = [o - h * along for h, o in zip(half_axis, offsets, strict=True)]
    distance = np.sqrt(_dot(gap, gap))
    return distance, 0.5 * (along + 1.0)


def wander(rng: np.random.Generator, start: Sequence[float], angle: float, length_px: float, bend: float) -> Array:
    """Return a smooth curved path, ``(n, 2)`` points half a pixel apart; ``bend`` is radians per half pixel."""
    n = max(2, round(2.0 * length_px))
    turns = ndimage.gaussian_filter1d(rng.normal(0.0, bend, n), 4.0, mode="nearest") * math.sqrt(4.0)
    angles = angle + np.cumsum(turns)
    steps = 0.5 * np.stack([np.sin(angles), np.cos(angles)], axis=1)
    return np.asarray(start) + np.cumsum(steps, axis=0)


def spaced(points: Array, spacing_px: float, rng: np.random.Generator) -> Array:
    """Return a random choice of ``points``, ``(n, ndim)``, as many as fit no two closer than ``spacing_px``."""
    left = points[rng.permutation(len(points))]
    chosen = []
    while len(left):
        chosen.append(left[0])
        left = left[np.sum((left - left[0]) ** 2, axis=1) >= spacing_px**2]
    return np.asarray(chosen).reshape(-1, points.shape[1])


def scatter(
    rng: np.random.Generator, count: int, low: ArrayLike, high: ArrayLike, spacing_px: float, tries: int = 10
) -> Array:
    """Return up to ``count`` random points in a box, ``(n, ndim)``, no two closer than ``spacing_px``.

    With ``count`` times ``tries`` candidates far more than fit, the box is filled.
    """
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    return spaced(rng.uniform(low, high, (count * tries, len(low))), spacing_px, rng)[:count]


# ---------------------------------------------------------------------------------------------------------------------
# Camera


@dataclass(frozen=True)
class Camera:
    """A camera: photons become electrons (Poisson), read noise is added, gain and offset give grey values, which clip.

    Parameters
    ----------
    gain
        Grey values per electron.
    offset
        Grey value without light.
    read_noise_e
        Standard deviation of the read noise in electrons.
    bits
        Bit depth of the grey values: up to 8 gives ``uint8``, more gives ``uint16``.
    efficiency
        Electrons per photon.
    """

    gain: float = 1.0
    offset: float = 0.0
    read_noise_e: float = 2.0
    bits: int = 8
    efficiency: float = 1.0

    def expose(self, photons: Array, rng: np.random.Generator) -> NDArray[np.unsignedinteger]:
        """Return the grey values of one exposure to an expected number of photons per pixel."""
        expected = np.rint(np.maximum(photons, 0.0) * (self.efficiency * 256.0)) / 256.0
        grey = rng.poisson(expected) + self.read_noise_e * rng.standard_normal(expected.shape, dtype=np.float32)
        grey *= self.gain
        grey += self.offset
        np.rint(grey, out=grey)
        return grey.clip(0, 2**self.bits - 1, out=grey).astype(np.uint8 if self.bits <= 8 else np.uint16)


# ---------------------------------------------------------------------------------------------------------------------
# Files, the same bytes for the same content

_UUID = "urn:uuid:00000000-0000-4000-8000-000000000000"


def write_tiff(path: Path, array: NDArray[np.generic], *, compression: str | None = None) -> None:
    """Write a plain TIFF: 2D grey, 3D pages, or ``(y, x, 3)`` 8-bit colour; no description tag."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = array.ndim == 3 and array.shape[-1] == 3 and array.dtype == np.uint8
    tifffile.imwrite(
        path,
        array,
        photometric="rgb" if colour else "minisblack",
        compression=compression,
        metadata=None,
        software=False,
    )


def write_imagej(
    path: Path,
    array: NDArray[np.generic],
    axes: str,
    *,
    pixel_size_um: float | None = None,
    z_step_um: float | None = None,
    interval_s: float | None = None,
) -> None:
    """Write an ImageJ hyperstack; ``axes`` in the order of the array, from ``TZCYX``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata: dict[str, object] = {"axes": axes}
    if pixel_size_um is not None:
        metadata["unit"] = "um"
    if z_step_um is not None:
        metadata["spacing"] = z_step_um
    if interval_s is not None:
        metadata |= {"finterval": interval_s, "tunit": "s"}
    resolution = None if pixel_size_um is None else (1.0 / pixel_size_um, 1.0 / pixel_size_um)
    tifffile.imwrite(path, array, imagej=True, resolution=resolution, metadata=metadata)


def write_ome(
    path: Path,
    array: NDArray[np.generic],
    axes: str,
    *,
    pixel_size_um: float | None = None,
    z_step_um: float | None = None,
    interval_s: float | None = None,
    channels: Sequence[str] = (),
    compression: str | None = None,
) -> None:
    """Write an OME-TIFF, one page per plane, with physical sizes, time increment and channel names where given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata: dict[str, object] = {"axes": axes, "UUID": _UUID, "Creator": "demo", "Name": path.name.split(".")[0]}
    if pixel_size_um is not None:
        metadata |= {f"PhysicalSize{axis}": pixel_size_um for axis in "XY"}
        metadata |= {f"PhysicalSize{axis}Unit": "µm" for axis in "XY"}
    if z_step_um is not None:
        metadata |= {"PhysicalSizeZ": z_step_um, "PhysicalSizeZUnit": "µm"}
    if interval_s is not None:
        metadata |= {"TimeIncrement": interval_s, "TimeIncrementUnit": "s"}
    if channels:
        metadata["Channel"] = {"Name": list(channels)}
    tifffile.imwrite(
        path, array, ome=True, photometric="minisblack", compression=compression, metadata=metadata, software=False
    )


def write_png(path: Path, array: NDArray[np.unsignedinteger]) -> None:
    """Write a grey or colour PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(imagecodecs.png_encode(np.ascontiguousarray(array), level=4))


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a comma-separated table with a header, one line per row, Unix line ends; floats as Python prints them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join(header), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
