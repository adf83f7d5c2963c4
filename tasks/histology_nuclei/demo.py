"""Demo data of histology_nuclei: H&E sections of kidney and pancreas in bright field, 20x, 0.275 um per pixel.

Imaging model
-------------
State: a section is tiled with structures that press against each other. Kidney: tubules with a lumen and a lining of
even height, whose nuclei sit in a ring, proximal (deep pink, few nuclei) or distal (pale, wide lumen), and in one field
a glomerulus with its crowded tuft and Bowman's space. Pancreas: acini with basal nuclei, basophilic outside and
granular pink in the middle, a pale islet or a duct. Between them stroma with collagen, spindle-shaped nuclei, red blood
cells, and an infiltrate of lymphocytes, small and packed until they touch and overlap. Each nucleus is a smooth random
outline of its kind. Where nuclei overlap a pixel belongs to the one it lies relatively deeper in; these outlines are
the truth. Nuclei cut by the border are kept.

Light: hematoxylin and eosin have a concentration per pixel (nuclear envelope, chromatin and nucleoli; pale vesicular
nuclei next to dark ones; cytoplasm, collagen and blood cells), which varies with the thickness of the section. Their
optical densities add (Beer-Lambert) with stain vectors, staining strengths and a lamp colour of each slide's own. Some
nuclei and some regions lie out of focus. Then the point spread (0.75 NA, 550 nm), photon noise, 8 bits per colour.
"""

from __future__ import annotations

import math
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
    Shape,
    Slices,
    blur,
    compete,
    coverage,
    haze,
    oriented_field,
    rotation_2d,
    scatter,
    smooth_field,
    spaced,
    stream,
    uneven_light,
    write_png,
    write_tiff,
)

SHAPE = (512, 512)
PAD = 64  # structures are laid out beyond the field by this much, px
PER_ORGAN = 3
OBJECTIVE = Objective(na=0.75, wavelength_nm=550.0, pixel_size_um=0.275)
HEMATOXYLIN = (0.62, 0.71, 0.34)  # optical density in red, green, blue at unit concentration
EOSIN = (0.13, 0.88, 0.46)
MIN_NUCLEUS_PX = 45  # smaller remains at the border or below others are not annotated


@dataclass(frozen=True)
class Kind:
    """How the nuclei of one cell type look: half-axes in px, roundness, hematoxylin, how vesicular (pale inside)."""

    radius_px: tuple[float, float]
    stretch: tuple[float, float]
    stain: tuple[float, float]
    vesicular: tuple[float, float]
    crowding: float  # closest distance to a neighbour, relative to the sum of the radii


TUBULE = Kind((9.5, 12.5), (1.0, 1.3), (0.38, 0.85), (0.25, 0.65), 0.92)
ACINUS = Kind((8.5, 11.0), (1.0, 1.2), (0.4, 0.85), (0.3, 0.65), 0.9)
ISLET = Kind((8.0, 10.5), (1.05, 1.4), (0.32, 0.65), (0.25, 0.55), 0.92)
TUFT = Kind((7.5, 10.5), (1.05, 1.7), (0.45, 1.0), (0.1, 0.45), 0.84)
LYMPHOCYTE = Kind((6.8, 8.6), (1.0, 1.2), (0.95, 1.35), (0.05, 0.2), 0.78)
SPINDLE = Kind((6.0, 8.0), (2.4, 4.5), (0.5, 1.1), (0.05, 0.2), 0.95)


@dataclass(frozen=True)
class Nucleus:
    """One nucleus: outline, concentration of hematoxylin, how pale it is inside, and whether it lies out of focus."""

    outline: Blob
    stain: float
    vesicular: float
    blurred: bool


@dataclass
class Tissue:
    """The state of one field.

    ``owner`` says which structure a pixel belongs to (0 is stroma), ``depth`` how far it lies within, in px, ``wall``
    the direction of the nearest wall; ``eosin`` and ``basophilia`` are the concentrations outside nuclei.
    """

    rng: np.random.Generator
    owner: NDArray[np.int64]
    depth: Array
    wall: Array
    eosin: Array
    basophilia: Array
    nuclei: list[Nucleus] = field(default_factory=list)
    taken: list[tuple[float, float, float]] = field(default_factory=list)  # y, x, radius of each nucleus

    def add(self, position: Array, kind: Kind, angle: float | None = None) -> bool:
        """Put a nucleus at ``position`` unless it lies off the field or too close to others."""
        rng = self.rng
        radius, stretch = rng.uniform(*kind.radius_px), rng.uniform(*kind.stretch)
        if np.any(position < -3.0) or np.any(position > np.array(SHAPE) + 2.0):
            return False
        y, x, sizes = np.array(self.taken).reshape(-1, 3).T
        if np.any(np.hypot(y - position[0], x - position[1]) < kind.crowding * (sizes + radius)):
            return False
        self.taken.append((float(position[0]), float(position[1]), float(radius)))
        axes = rotation_2d(rng.uniform(0, math.pi) if angle is None else angle + rng.normal(0.0, 0.2))
        radii = (radius * math.sqrt(stretch), radius / math.sqrt(stretch))
        outline = Blob.random(rng, position, radii, axes, roughness=0.06 if stretch < 2 else 0.1, detail=2.5)
        stain, vesicular = float(rng.uniform(*kind.stain)), float(rng.uniform(*kind.vesicular))
        self.nuclei.append(Nucleus(outline, stain, vesicular, bool(rng.random() < 0.25)))
        return True

    def paint(self, where: Slices, cover: Array, eosin: Array | float, basophilia: Array | float) -> None:
        """Replace the stroma by other concentrations to the degree of ``cover``."""
        self.eosin[where] += cover * (eosin - self.eosin[where])
        self.basophilia[where] += cover * (basophilia - self.basophilia[where])

    def line(self, where: Slices, label: int, depth_px: float, spacing_px: float, kind: Kind, share: float) -> None:
        """Set nuclei along a structure's wall at a depth, about ``spacing_px`` apart, in a ``share`` of the places."""
        on_line = (self.owner[where] == label) & (np.abs(self.depth[where] - depth_px) < 1.5)
        places = np.argwhere(on_line) + [w.start for w in where]
        for y, x in spaced(places, spacing_px, self.rng):
            if self.rng.random() < share:
                self.add(np.array([y, x]) + self.rng.normal(0.0, 1.5, 2), kind, float(self.wall[y, x]))

    def crowd(self, where: Slices, inside: NDArray[np.bool_], spacing_px: float, kind: Kind) -> None:
        """Scatter nuclei over part of the field."""
        low = np.array([w.start for w in where], float)
        high = np.array([w.stop for w in where], float)
        count = int(1.3 * inside.sum() / spacing_px**2)
        for position in scatter(self.rng, count, low, high, spacing_px, tries=6):
            y, x = np.floor(position - low).astype(int)
            if inside[y, x]:
                self.add(position, kind)

    def cytoplasm(self, shape: Shape, mean: float, grain: float) -> Array:
        """Eosin of a grainy cytoplasm."""
        texture = 1.0 + grain * smooth_field(shape, 2.0, self.rng) + 0.16 * smooth_field(shape, 9.0, self.rng)
        return np.maximum(mean * texture, 0.01)


def _below(values: Array, edge: Array | float, width: float) -> Array:
    """1 where ``values`` lie below ``edge``, 0 above, with a soft step."""
    return 0.5 * (1.0 - np.tanh((values - edge) / width))


def _tissue(rng: np.random.Generator, spacing_px: float, big: list[Blob], stroma: Blob) -> Tissue:
    """Tile a field with structures about ``spacing_px`` apart around the ``big`` ones (numbered first) and stroma."""
    padded = (SHAPE[0] + 2 * PAD, SHAPE[1] + 2 * PAD)
    shapes = [*big, stroma]
    for y, x in scatter(rng, 400, (0.0, 0.0), padded, spacing_px, tries=3):
        if any(np.hypot(*(b.centre - (y, x))) < b.radii.min() + 0.4 * spacing_px for b in shapes[: len(big) + 1]):
            continue
        radius, stretch = spacing_px * rng.uniform(0.64, 0.76), rng.uniform(1.0, 1.4)
        radii = (radius * math.sqrt(stretch), radius / math.sqrt(stretch))
        shapes.append(Blob.random(rng, (y, x), radii, rotation_2d(rng.uniform(0, math.pi)), roughness=0.06, detail=1.5))
    owner, best = np.zeros(padded, np.int64), np.full(padded, np.inf)
    for label, shape in enumerate(shapes, start=1):
        if (place := shape.on(padded)) is not None:
            compete(owner, best, *place, label)
    owner[owner == len(big) + 1] = 0
    edge = (ndimage.minimum_filter(owner, 3) != owner) | (ndimage.maximum_filter(owner, 3) != owner)
    depth = np.where(owner > 0, ndimage.distance_transform_edt(~edge), 0.0)
    cleft = 2.0 + 1.8 * np.maximum(smooth_field(padded, 60.0, rng), -0.8)  # half the distance of neighbours
    field_ = (slice(PAD, PAD + SHAPE[0]), slice(PAD, PAD + SHAPE[1]))
    depth = np.maximum(depth - cleft, 0.0)[field_]
    owner = np.where(depth > 0.0, owner[field_], 0)
    slope_y, slope_x = np.gradient(depth)
    wall = np.arctan2(slope_y, slope_x) + 0.5 * math.pi
    collagen = oriented_field(SHAPE, rng.uniform(0, math.pi), 7.0, 1.1, rng)
    other = oriented_field(SHAPE, rng.uniform(0, math.pi), 7.0, 1.1, rng)
    blend = _below(smooth_field(SHAPE, 50.0, rng), 0.0, 0.4)
    eosin = 0.15 + 0.045 * (blend * collagen + (1.0 - blend) * other) + 0.03 * smooth_field(SHAPE, 14.0, rng)
    return Tissue(rng, owner, depth, wall, np.maximum(eosin, 0.02), haze(SHAPE, rng, 0.06, 40.0, contrast=0.6))


def _tubule(tissue: Tissue, where: Slices, label: int) -> None:
    rng, depth = tissue.rng, tissue.depth[where]
    proximal = rng.random() < 0.6
    height = rng.uniform(34.0, 44.0) if proximal else rng.uniform(24.0, 30.0)
    eosin = tissue.cytoplasm(depth.shape, rng.uniform(0.24, 0.32) if proximal else rng.uniform(0.15, 0.21), 0.2)
    open_ = 1.0 - _below(depth, height + 2.5 * smooth_field(depth.shape, 6.0, rng), 1.5)
    cover = np.clip(depth / 2.0, 0.0, 1.0) * (tissue.owner[where] == label)
    membrane = 0.13 * np.exp(-(((depth - 1.0) / 1.2) ** 2))
    tissue.paint(where, cover, eosin * (1.0 - 0.93 * open_) + membrane, rng.uniform(0.05, 0.14) * (1.0 - open_))
    spacing = rng.uniform(28.0, 40.0) if proximal else rng.uniform(21.0, 27.0)
    tissue.line(where, label, rng.uniform(13.0, 17.0), spacing, TUBULE, 0.85)


def _acinus(tissue: Tissue, where: Slices, label: int) -> None:
    rng, depth = tissue.rng, tissue.depth[where]
    apical = 1.0 - _below(depth, 25.0 + 4.0 * smooth_field(depth.shape, 10.0, rng), 5.0)
    granules = tissue.cytoplasm(depth.shape, rng.uniform(0.28, 0.36), 0.35)
    basal = tissue.cytoplasm(depth.shape, rng.uniform(0.16, 0.3), 0.3)
    cover = np.clip(depth / 2.0, 0.0, 1.0) * (tissue.owner[where] == label)
    tissue.paint(where, cover, (0.5 + 0.5 * apical) * granules, basal * (1.0 - 0.8 * apical))
    tissue.line(where, label, rng.uniform(13.0, 17.0), rng.uniform(22.0, 28.0), ACINUS, 0.88)


def _islet(tissue: Tissue, where: Slices, label: int) -> None:
    rng, depth = tissue.rng, tissue.depth[where]
    capillaries = _below(np.abs(smooth_field(depth.shape, 24.0, rng)), 0.12, 0.06)
    mine = tissue.owner[where] == label
    eosin = tissue.cytoplasm(depth.shape, 0.16, 0.2) * (1.0 - 0.8 * capillaries)
    tissue.paint(where, np.clip(depth / 2.0, 0.0, 1.0) * mine, eosin, 0.05)
    tissue.crowd(where, mine & (depth > 6.0), 22.0, ISLET)


def _glomerulus(tissue: Tissue, where: Slices, label: int) -> None:
    rng, depth = tissue.rng, tissue.depth[where]
    mine = tissue.owner[where] == label
    tuft = 1.0 - _below(depth, 16.0 + 6.0 * smooth_field(depth.shape, 26.0, rng), 1.5)
    loops = _below(smooth_field(depth.shape, 13.0, rng), -0.75, 0.15)
    eosin = tissue.cytoplasm(depth.shape, 0.22, 0.22) * (1.0 - 0.85 * loops)
    capsule = 0.15 * np.exp(-(((depth - 1.5) / 1.5) ** 2))
    cover = np.clip(depth / 2.0, 0.0, 1.0) * mine
    tissue.paint(where, cover, tuft * eosin + (1.0 - tuft) * 0.015 + capsule, 0.07 * tuft)
    tissue.crowd(where, mine & (tuft > 0.9), 18.0, TUFT)
    tissue.line(where, label, 4.0, 55.0, SPINDLE, 0.9)


def _duct(tissue: Tissue, where: Slices, label: int) -> None:
    rng, depth = tissue.rng, tissue.depth[where]
    open_ = 1.0 - _below(depth, 27.0 + 1.5 * smooth_field(depth.shape, 10.0, rng), 1.2)
    cover = np.clip(depth / 2.0, 0.0, 1.0) * (tissue.owner[where] == label)
    eosin = tissue.cytoplasm(depth.shape, 0.2, 0.15) * (1.0 - 0.95 * open_)
    tissue.paint(where, cover, eosin, 0.06 * (1.0 - open_))
    tissue.line(where, label, 13.0, 19.5, TUBULE, 0.97)


def _infiltrate(tissue: Tissue, stroma: Blob, count: int) -> None:
    """Lymphocytes packed into a patch of stroma."""
    rng = tissue.rng
    spread = 0.42 * stroma.radii
    for _ in range(4 * count):
        tissue.add(stroma.centre - PAD + (rng.normal(0.0, 1.0, 2) * spread) @ stroma.axes, LYMPHOCYTE)


def _interstitial(tissue: Tissue, count: int) -> None:
    """Spindle-shaped nuclei along the clefts between structures, and red blood cells in the wider of them."""
    rng = tissue.rng
    cleft = ndimage.distance_transform_edt(tissue.owner == 0)
    slope_y, slope_x = np.gradient(ndimage.gaussian_filter(cleft, 4.0))
    free = np.argwhere(cleft >= 2.5)
    for y, x in free[rng.integers(0, len(free), count)] if len(free) else ():
        tissue.add(np.array([y, x], float), SPINDLE, math.atan2(slope_y[y, x], slope_x[y, x]) + 0.5 * math.pi)
    free = np.argwhere(cleft >= 7.0)
    for y, x in free[rng.integers(0, len(free), count // 2)] if len(free) else ():
        cell = Blob.random(rng, (y, x), rng.uniform(8.0, 11.0, 2), rotation_2d(0.0), roughness=0.05)
        if (place := cell.on(SHAPE)) is not None:
            where, rho = place
            tissue.paint(where, coverage(rho, 9.0), 0.38 + 0.12 * rho, 0.0)


def _field(rng: np.random.Generator, organ: str, special: bool) -> Tissue:
    """Build one field; ``special`` is the one with a glomerulus or an islet."""
    centre, away = rng.uniform(0.25, 0.75, 2) * SHAPE + PAD, rng.uniform(-0.15, 0.15, 2) * SHAPE
    opposite = PAD + np.array(SHAPE) - (centre - PAD) + away
    radii = (rng.uniform(55.0, 85.0), rng.uniform(32.0, 45.0))
    stroma = Blob.random(rng, opposite, radii, rotation_2d(rng.uniform(0, math.pi)), roughness=0.12)
    if organ == "kidney":
        size = rng.uniform(115.0, 140.0, 2)
        big = [Blob.random(rng, centre, size, rotation_2d(0.0), roughness=0.04, detail=1.2)] if special else []
        tissue, first, rest = _tissue(rng, 112.0, big, stroma), _glomerulus, _tubule
    else:
        radius = rng.uniform(95.0, 125.0) if special else rng.uniform(46.0, 58.0)
        axes = rotation_2d(rng.uniform(0, math.pi))
        big = [Blob.random(rng, centre, (radius * 1.1, radius * 0.9), axes, roughness=0.07)]
        tissue, first, rest = _tissue(rng, 86.0, big, stroma), _islet if special else _duct, _acinus
    for label, where in enumerate(ndimage.find_objects(tissue.owner), start=1):
        if where is not None:
            (first if label <= len(big) else rest)(tissue, where, label)
    _infiltrate(tissue, stroma, int(rng.integers(16, 40)))
    _interstitial(tissue, int(rng.integers(24, 44)))
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
    sharp, soft, chromatin = np.zeros(SHAPE), np.zeros(SHAPE), smooth_field(SHAPE, 2.6, rng)
    for nucleus in tissue.nuclei:
        if (place := nucleus.outline.on(SHAPE)) is None:
            continue
        where, rho = place
        radius = math.sqrt(float(nucleus.outline.radii.prod()))
        envelope = np.exp(-(((rho - 0.93) * radius / 1.9) ** 2))
        clumps = chromatin[where]
        inside = 1.0 - nucleus.vesicular * (1.0 - np.maximum(0.8 * envelope, np.clip(clumps - 0.4, 0.0, 0.9)))
        if nucleus.vesicular > 0.25 and rng.random() < 0.6:
            dy, dx = rng.normal(0.0, 0.22, 2) * radius
            y, x = np.ogrid[where]
            spot = (y - nucleus.outline.centre[0] - dy) ** 2 + (x - nucleus.outline.centre[1] - dx) ** 2
            inside = inside + 0.6 * np.exp(-spot / 3.2)
        cover = coverage(rho, radius)
        layer = soft if nucleus.blurred else sharp
        layer[where] += nucleus.stain * cover * np.maximum(inside + 0.13 * clumps, 0.12)
        tissue.eosin[where] *= 1.0 - 0.55 * cover
    return sharp + 0.85 * blur(soft, 2.0)


def _slide(tissue: Tissue, seed: int, stem: str) -> NDArray[np.uint8]:
    """Send light through the section."""
    rng = stream(seed, stem, "slide")
    nuclear = _stain_nuclei(tissue, stream(seed, stem, "chromatin"))
    thickness = 1.0 + 0.07 * smooth_field(SHAPE, 90.0, rng)
    hematoxylin = thickness * rng.uniform(0.8, 1.15) * (nuclear + tissue.basophilia)
    eosin = thickness * rng.uniform(0.75, 1.25) * tissue.eosin
    lamp = rng.normal((244.0, 240.0, 245.0), 3.5)
    light = uneven_light(SHAPE, rng, falloff=0.06, ripple=0.01)
    unsharp = 0.8 * _below(-smooth_field(SHAPE, 170.0, rng), -0.9, 0.3)
    defocus_um = rng.uniform(0.0, 0.6)
    camera = Camera(gain=0.05, read_noise_e=12.0)
    channels = []
    for band in range(3):
        vectors = HEMATOXYLIN[band] + rng.normal(0.0, 0.025), EOSIN[band] + rng.normal(0.0, 0.025)
        transmitted = 10.0 ** -(vectors[0] * hematoxylin + vectors[1] * eosin)
        image = OBJECTIVE.blur(transmitted, defocus_um)
        image += unsharp * (blur(image, 1.5) - image)
        channels.append(camera.expose(lamp[band] * light * image / camera.gain, rng))
    return np.stack(channels, axis=-1).astype(np.uint8)


def make(destination: Path, seed: int) -> None:
    """Write ``input/human_<organ>_<NN>.png`` and ``evaluation/human_<organ>_<NN>.tif`` below ``destination``."""
    for organ in ("kidney", "pancreas"):
        special = int(stream(seed, organ, "special").integers(PER_ORGAN))
        for number in range(PER_ORGAN):
            stem = f"human_{organ}_{number + 1:02d}"
            tissue = _field(stream(seed, stem, "tissue"), organ, number == special)
            tissue.nuclei, labels = _truth(tissue.nuclei)
            write_png(destination / "input" / f"{stem}.png", _slide(tissue, seed, stem))
            write_tiff(destination / "evaluation" / f"{stem}.tif", labels, compression="zlib")
