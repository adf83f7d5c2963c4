"""Demo data of histology_nuclei: H&E sections of kidney and pancreas in bright field, 20x, 0.275 um per pixel.

Imaging model
-------------
State: a section is tiled with structures that press against each other. Kidney: tubules with a lumen, whose nuclei sit in
a ring, proximal (deep pink, few nuclei) or distal (pale, wide lumen), and in one field a glomerulus with its crowded tuft
and Bowman's space. Pancreas: acini with basal nuclei, basophilic outside and granular pink towards the middle, pale islets,
a duct. Between them stroma with collagen, spindle-shaped nuclei, red blood cells, and infiltrates of lymphocytes, small
and packed until they touch and overlap. Each nucleus is a smooth random outline of its kind. Where nuclei overlap a pixel
belongs to the one it lies relatively deeper in; these outlines are the truth. Nuclei cut by the border are kept.

Light: hematoxylin and eosin have a concentration per pixel (nuclear envelope, chromatin and nucleoli; pale vesicular
nuclei next to dark ones; cytoplasm, collagen and blood cells), which varies with the thickness of the section. Their
optical densities add (Beer-Lambert) with stain vectors, staining strengths and a lamp colour of each slide's own. Some
nuclei and some regions lie out of focus. Then the point spread (0.75 NA, 550 nm), photon noise, 8 bits per colour.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from tasks._optics import (
    Array,
    Blob,
    Camera,
    Objective,
    blur,
    compete,
    coverage,
    oriented_field,
    rotation_2d,
    scatter,
    smooth_field,
    stream,
    uneven_light,
    write_png,
    write_tiff,
)

SHAPE = (512, 512)
PER_ORGAN = 3
OBJECTIVE = Objective(na=0.75, wavelength_nm=550.0, pixel_size_um=0.275)
HEMATOXYLIN = (0.62, 0.71, 0.34)  # optical density in red, green, blue at unit concentration
EOSIN = (0.13, 0.88, 0.46)
MIN_NUCLEUS_PX = 45  # smaller remains at the border or below others are not annotated


@dataclass(frozen=True)
class Kind:
    """How the nuclei of one cell type look: half-axes in px, roundness, hematoxylin, and how vesicular (pale inside)."""

    radius_px: tuple[float, float]
    stretch: tuple[float, float]
    stain: tuple[float, float]
    vesicular: float
    crowding: float  # closest distance to a neighbour, relative to the sum of the radii


TUBULE = Kind((9.5, 12.5), (1.0, 1.25), (0.55, 0.95), 0.55, 0.92)
ACINUS = Kind((8.5, 11.0), (1.0, 1.15), (0.55, 0.95), 0.6, 0.9)
ISLET = Kind((8.0, 10.5), (1.05, 1.35), (0.45, 0.8), 0.5, 0.92)
TUFT = Kind((7.5, 10.5), (1.05, 1.6), (0.6, 1.05), 0.4, 0.86)
LYMPHOCYTE = Kind((6.8, 8.6), (1.0, 1.15), (1.0, 1.35), 0.12, 0.78)
SPINDLE = Kind((6.5, 8.0), (2.6, 4.5), (0.7, 1.15), 0.15, 0.95)


@dataclass(frozen=True)
class Nucleus:
    """One nucleus: outline, kind, concentration of hematoxylin, and whether it lies out of focus."""

    outline: Blob
    kind: Kind
    stain: float
    blurred: bool


@dataclass
class Tissue:
    """The state of one field: stain concentrations without nuclei, and the nuclei."""

    rng: np.random.Generator
    eosin: Array
    basophilia: Array
    nuclei: list[Nucleus] = field(default_factory=list)
    structures: NDArray[np.int64] = field(default_factory=lambda: np.zeros(SHAPE, np.int64))

    def add(self, position: Array, kind: Kind, angle: float | None = None) -> bool:
        """Put a nucleus at ``position`` unless it lies off the field or too close to others."""
        rng = self.rng
        radius, stretch = rng.uniform(*kind.radius_px), rng.uniform(*kind.stretch)
        if np.any(position < 0.0) or np.any(position > np.array(SHAPE) - 1.0):
            return False
        if self.nuclei:
            gaps = np.hypot(*(np.array([n.outline.centre for n in self.nuclei]) - position).T)
            sizes = np.array([math.sqrt(float(n.outline.radii.prod())) for n in self.nuclei])
            if np.any(gaps < kind.crowding * (sizes + radius)):
                return False
        axes = rotation_2d(rng.uniform(0, math.pi) if angle is None else angle + rng.normal(0.0, 0.2))
        radii = (radius * math.sqrt(stretch), radius / math.sqrt(stretch))
        outline = Blob.random(rng, position, radii, axes, roughness=0.05 if stretch < 2 else 0.1, detail=2.5)
        self.nuclei.append(Nucleus(outline, kind, float(rng.uniform(*kind.stain)), bool(rng.random() < 0.18)))
        return True


def _ring(shape: Blob, relative: float, spacing_px: float, rng: np.random.Generator) -> Iterator[tuple[Array, float]]:
    """Positions around a structure at a relative radius, about ``spacing_px`` apart, with the direction of its wall."""
    circumference = 2.0 * math.pi * relative * math.sqrt(float(shape.radii.prod()))
    count = max(3, round(circumference / spacing_px))
    for k in range(count):
        heading = 2.0 * math.pi * (k + rng.uniform(-0.3, 0.3)) / count
        way = np.array([math.sin(heading), math.cos(heading)])
        radius = 1.0 / float(shape.rho([way[:1], way[1:]])[0])
        yield shape.centre + way * radius * relative * rng.uniform(0.93, 1.07), heading + 0.5 * math.pi


def _soft(field_: Array, edge: Array | float, width: float) -> Array:
    """1 where ``field_`` lies below ``edge``, 0 above, with a soft step."""
    return 0.5 * (1.0 - np.tanh((field_ - edge) / width))


def _stroma(rng: np.random.Generator) -> Tissue:
    """Loose connective tissue all over the field, to be covered by structures."""
    collagen = oriented_field(SHAPE, rng.uniform(0, math.pi), 14.0, 1.2, rng)
    eosin = 0.15 + 0.07 * np.maximum(collagen, -1.0) + 0.03 * smooth_field(SHAPE, 12.0, rng)
    return Tissue(rng, np.maximum(eosin, 0.02), np.full(SHAPE, 0.03))


def _layout(tissue: Tissue, spacing_px: float, radius_px: tuple[float, float], big: list[Blob]) -> list[Blob]:
    """Tile the field with structures around the ``big`` ones; returns them all, ``tissue.structures`` holds who is where."""
    rng = tissue.rng
    shapes = list(big)
    for y, x in scatter(rng, 400, (-40.0, -40.0), (SHAPE[0] + 40.0, SHAPE[1] + 40.0), spacing_px, tries=3):
        if any(np.hypot(*(b.centre - (y, x))) < b.radii.min() + 0.42 * spacing_px for b in big):
            continue
        radius, stretch = rng.uniform(*radius_px), rng.uniform(1.0, 1.5)
        axes = rotation_2d(rng.uniform(0, math.pi))
        radii = (radius * math.sqrt(stretch), radius / math.sqrt(stretch))
        shapes.append(Blob.random(rng, (y, x), radii, axes, roughness=0.07, detail=1.5))
    best = np.full(SHAPE, np.inf)
    for label, shape in enumerate(shapes, start=1):
        if (place := shape.on(SHAPE)) is not None:
            compete(tissue.structures, best, *place, label)
    return shapes


def _fill(tissue: Tissue, label: int, shape: Blob) -> tuple[tuple[slice, ...], Array, Array] | None:
    """Window, relative radius and soft coverage of one structure of the layout, a thin gap left to its neighbours."""
    if (place := shape.on(SHAPE)) is None:
        return None
    where, rho = place
    mine = (tissue.structures[where] == label).astype(float)
    return where, rho, np.clip(2.0 * ndimage.gaussian_filter(mine, 1.8, mode="nearest") - 1.0, 0.0, 1.0)


def _paint(
    tissue: Tissue, where: tuple[slice, ...], cover: Array, eosin: Array | float, basophilia: Array | float
) -> None:
    tissue.eosin[where] += cover * (eosin - tissue.eosin[where])
    tissue.basophilia[where] += cover * (basophilia - tissue.basophilia[where])


def _cytoplasm(tissue: Tissue, shape: tuple[int, ...], mean: float, grain: float) -> Array:
    rng = tissue.rng
    texture = 1.0 + grain * smooth_field(shape, 2.0, rng) + 0.16 * smooth_field(shape, 9.0, rng)
    return np.maximum(mean * texture, 0.01)


def _tubule(tissue: Tissue, label: int, shape: Blob) -> None:
    rng = tissue.rng
    proximal = rng.random() < 0.6
    lumen = rng.uniform(0.12, 0.3) if proximal else rng.uniform(0.35, 0.52)
    if (place := _fill(tissue, label, shape)) is not None:
        where, rho, cover = place
        eosin = _cytoplasm(tissue, rho.shape, rng.uniform(0.24, 0.32) if proximal else rng.uniform(0.15, 0.21), 0.2)
        open_ = _soft(rho, lumen + 0.05 * smooth_field(rho.shape, 6.0, rng), 0.03)
        membrane = 0.16 * np.exp(-(((cover - 0.35) / 0.25) ** 2))
        _paint(tissue, where, cover, eosin * (1.0 - 0.93 * open_) + membrane, 0.06 * (1.0 - open_))
    spacing = rng.uniform(30.0, 42.0) if proximal else rng.uniform(23.0, 29.0)
    for position, wall in _ring(shape, 0.5 * (lumen + 1.0) + rng.uniform(-0.02, 0.1), spacing, rng):
        if rng.random() < 0.85 and _owner(tissue, position) == label:
            tissue.add(position, TUBULE, wall)


def _acinus(tissue: Tissue, label: int, shape: Blob) -> None:
    rng = tissue.rng
    if (place := _fill(tissue, label, shape)) is not None:
        where, rho, cover = place
        apical = _soft(rho, 0.52 + 0.08 * smooth_field(rho.shape, 10.0, rng), 0.1)
        granules = _cytoplasm(tissue, rho.shape, rng.uniform(0.3, 0.38), 0.35)
        _paint(tissue, where, cover, apical * granules + (1.0 - apical) * 0.55 * granules, 0.04 + 0.17 * (1.0 - apical))
    for position, _ in _ring(shape, rng.uniform(0.64, 0.74), rng.uniform(24.0, 31.0), rng):
        if rng.random() < 0.88 and _owner(tissue, position) == label:
            tissue.add(position, ACINUS)


def _islet(tissue: Tissue, label: int, shape: Blob) -> None:
    rng = tissue.rng
    if (place := _fill(tissue, label, shape)) is not None:
        where, rho, cover = place
        capillaries = _soft(np.abs(smooth_field(rho.shape, 24.0, rng)), 0.12, 0.06)
        _paint(tissue, where, cover, _cytoplasm(tissue, rho.shape, 0.16, 0.2) * (1.0 - 0.8 * capillaries), 0.05)
    _crowd(tissue, shape, ISLET, 23.0)


def _glomerulus(tissue: Tissue, label: int, shape: Blob) -> None:
    rng = tissue.rng
    if (place := _fill(tissue, label, shape)) is not None:
        where, rho, cover = place
        tuft = _soft(rho, 0.84 + 0.05 * smooth_field(rho.shape, 22.0, rng), 0.02)
        loops = _soft(smooth_field(rho.shape, 13.0, rng), -0.75, 0.15)
        eosin = _cytoplasm(tissue, rho.shape, 0.22, 0.22) * (1.0 - 0.85 * loops)
        _paint(tissue, where, cover, tuft * eosin + (1.0 - tuft) * 0.015, 0.07 * tuft)
    _crowd(tissue, shape, TUFT, 18.5, limit=0.8)
    for position, wall in _ring(shape, 0.99, 60.0, rng):
        tissue.add(position, SPINDLE, wall)


def _duct(tissue: Tissue, label: int, shape: Blob) -> None:
    rng = tissue.rng
    if (place := _fill(tissue, label, shape)) is not None:
        where, rho, cover = place
        open_ = _soft(rho, 0.52, 0.03)
        _paint(
            tissue, where, cover, _cytoplasm(tissue, rho.shape, 0.2, 0.15) * (1.0 - 0.95 * open_), 0.06 * (1.0 - open_)
        )
    for position, wall in _ring(shape, 0.74, 20.0, rng):
        if _owner(tissue, position) == label:
            tissue.add(position, TUBULE, wall + 0.5 * math.pi)


def _owner(tissue: Tissue, position: Array) -> int:
    y, x = np.rint(position).astype(int)
    return int(tissue.structures[y, x]) if 0 <= y < SHAPE[0] and 0 <= x < SHAPE[1] else 0


def _crowd(tissue: Tissue, shape: Blob, kind: Kind, spacing_px: float, limit: float = 0.95) -> None:
    """Scatter nuclei of one kind all over a structure."""
    reach = shape.reach
    count = int(4.0 * reach**2 / spacing_px**2)
    for position in scatter(tissue.rng, count, shape.centre - reach, shape.centre + reach, spacing_px, tries=6):
        offset = position - shape.centre
        if float(shape.rho([offset[:1], offset[1:]])[0]) < limit:
            tissue.add(position, kind)


def _infiltrate(tissue: Tissue, count: int) -> None:
    """Lymphocytes, packed around a place in the stroma."""
    rng = tissue.rng
    free = np.argwhere(tissue.structures == 0)
    middle = free[rng.integers(len(free))] if len(free) else rng.uniform(0, 1, 2) * SHAPE
    axes, spread = rotation_2d(rng.uniform(0, math.pi)), np.array([rng.uniform(28.0, 46.0), rng.uniform(14.0, 22.0)])
    for _ in range(4 * count):
        tissue.add(middle + (rng.normal(0.0, 1.0, 2) * spread) @ axes, LYMPHOCYTE)


def _interstitial(tissue: Tissue, count: int) -> None:
    """Spindle-shaped nuclei along the clefts between structures, and red blood cells in some of them."""
    rng = tissue.rng
    cleft = ndimage.distance_transform_edt(tissue.structures == 0)
    smooth = ndimage.gaussian_filter(cleft, 4.0)
    slope_y, slope_x = np.gradient(smooth)
    free = np.argwhere(cleft >= 3.0)
    if not len(free):
        return
    for y, x in free[rng.integers(0, len(free), count)]:
        tissue.add(np.array([y, x], float), SPINDLE, math.atan2(slope_y[y, x], slope_x[y, x]) + 0.5 * math.pi)
    for y, x in free[rng.integers(0, len(free), count // 2)]:
        cell = Blob.random(rng, (y, x), rng.uniform(8.0, 11.0, 2), rotation_2d(0.0), roughness=0.05)
        if (place := cell.on(SHAPE)) is not None:
            where, rho = place
            _paint(tissue, where, coverage(rho, 9.0), 0.42 + 0.12 * rho, 0.0)


def _kidney(rng: np.random.Generator, glomerulus: bool) -> Tissue:
    tissue = _stroma(rng)
    big = []
    if glomerulus:
        centre = rng.uniform(0.25, 0.75, 2) * SHAPE
        big = [Blob.random(rng, centre, rng.uniform(115.0, 140.0, 2), rotation_2d(0.0), roughness=0.04, detail=1.2)]
    shapes = _layout(tissue, 108.0, (56.0, 70.0), big)
    for label, shape in enumerate(shapes, start=1):
        (_glomerulus if label <= len(big) else _tubule)(tissue, label, shape)
    return tissue


def _pancreas(rng: np.random.Generator, islet: bool) -> Tissue:
    tissue = _stroma(rng)
    centre = rng.uniform(0.2, 0.8, 2) * SHAPE
    radius = rng.uniform(95.0, 125.0) if islet else rng.uniform(48.0, 62.0)
    big = [Blob.random(rng, centre, (radius * 1.1, radius * 0.9), rotation_2d(rng.uniform(0, 3.1)), roughness=0.08)]
    shapes = _layout(tissue, 82.0, (44.0, 56.0), big)
    (_islet if islet else _duct)(tissue, 1, shapes[0])
    for label, shape in enumerate(shapes[1:], start=2):
        _acinus(tissue, label, shape)
    return tissue


def _truth(nuclei: list[Nucleus]) -> tuple[list[Nucleus], NDArray[np.uint16]]:
    """Return the nuclei that show in the field and their label image (number n has label n + 1)."""
    owner, best = np.zeros(SHAPE, np.int64), np.full(SHAPE, np.inf)
    for label, nucleus in enumerate(nuclei, start=1):
        if (place := nucleus.outline.on(SHAPE)) is not None:
            compete(owner, best, *place, label)
    kept, labels = [], np.zeros(SHAPE, np.uint16)
    for label, where in enumerate(ndimage.find_objects(owner, max_label=len(nuclei)), start=1):
        if where is None:
            continue
        parts, count = ndimage.label(owner[where] == label)
        sizes = np.bincount(parts.ravel())[1:]
        if count and sizes.max() >= MIN_NUCLEUS_PX:
            kept.append(nuclei[label - 1])
            labels[where][parts == 1 + int(np.argmax(sizes))] = len(kept)
    return kept, labels


def _stain_nuclei(tissue: Tissue, rng: np.random.Generator) -> Array:
    """Return the hematoxylin of the nuclei, and thin the eosin where they lie."""
    sharp, soft = np.zeros(SHAPE), np.zeros(SHAPE)
    for nucleus in tissue.nuclei:
        if (place := nucleus.outline.on(SHAPE)) is None:
            continue
        where, rho = place
        radius = math.sqrt(float(nucleus.outline.radii.prod()))
        envelope = np.exp(-(((rho - 0.92) * radius / 1.6) ** 2))
        clumps = smooth_field(rho.shape, 2.6, rng)
        inside = 1.0 - nucleus.kind.vesicular + nucleus.kind.vesicular * np.maximum(envelope, 0.9 * (clumps > 1.0))
        if nucleus.kind.vesicular > 0.3 and rng.random() < 0.7:
            dy, dx = rng.normal(0.0, 0.22, 2) * radius
            y, x = np.ogrid[where]
            spot = (y - nucleus.outline.centre[0] - dy) ** 2 + (x - nucleus.outline.centre[1] - dx) ** 2
            inside = inside + 0.7 * np.exp(-spot / 3.5)
        cover = coverage(rho, radius)
        layer = soft if nucleus.blurred else sharp
        layer[where] += nucleus.stain * cover * np.maximum(inside + 0.13 * clumps, 0.12)
        tissue.eosin[where] *= 1.0 - 0.55 * cover
    return sharp + 0.85 * blur(soft, 1.6)


def _slide(tissue: Tissue, seed: int, stem: str) -> NDArray[np.uint8]:
    """Send light through the section."""
    rng = stream(seed, stem, "slide")
    nuclear = _stain_nuclei(tissue, stream(seed, stem, "chromatin"))
    thickness = 1.0 + 0.07 * smooth_field(SHAPE, 90.0, rng)
    hematoxylin = thickness * rng.uniform(0.8, 1.15) * (nuclear + tissue.basophilia)
    eosin = thickness * rng.uniform(0.75, 1.25) * tissue.eosin
    lamp = rng.normal((244.0, 240.0, 245.0), 3.5)
    light = uneven_light(SHAPE, rng, falloff=0.06, ripple=0.01)
    unsharp = 0.8 * _soft(-smooth_field(SHAPE, 170.0, rng), -0.9, 0.3)
    camera = Camera(gain=0.05, read_noise_e=12.0)
    channels = []
    for band in range(3):
        vectors = HEMATOXYLIN[band] + rng.normal(0.0, 0.025), EOSIN[band] + rng.normal(0.0, 0.025)
        transmitted = 10.0 ** -(vectors[0] * hematoxylin + vectors[1] * eosin)
        image = OBJECTIVE.blur(transmitted)
        image += unsharp * (blur(image, 1.5) - image)
        channels.append(camera.expose(lamp[band] * light * image / camera.gain, rng))
    return np.stack(channels, axis=-1).astype(np.uint8)


def make(destination: Path, seed: int) -> None:
    """Write ``input/human_<organ>_<NN>.png`` and ``evaluation/human_<organ>_<NN>.tif`` below ``destination``."""
    for organ, build in (("kidney", _kidney), ("pancreas", _pancreas)):
        special = int(stream(seed, organ, "special").integers(PER_ORGAN))
        for number in range(PER_ORGAN):
            stem = f"human_{organ}_{number + 1:02d}"
            rng = stream(seed, stem, "tissue")
            tissue = build(rng, number == special)
            _infiltrate(tissue, int(rng.integers(14, 40)))
            _interstitial(tissue, int(rng.integers(18, 34)))
            tissue.nuclei, labels = _truth(tissue.nuclei)
            write_png(destination / "input" / f"{stem}.png", _slide(tissue, seed, stem))
            write_tiff(destination / "evaluation" / f"{stem}.tif", labels, compression="zlib")
