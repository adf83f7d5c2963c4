"""Demo data of golgi_colocalization: crops of single cells, three stains in a confocal section, four groups.

Imaging model ------------- State: each crop shows one cell, cut out at its bounding box, often with parts of
neighbours at the edge. A cell has an outline, a nucleus that all stains spare, and beside the nucleus a Golgi
apparatus: curved ribbons in a cloud of vesicles. The glycoprotein sits partly at the Golgi, partly in a mottled
network in the rest of the cytoplasm, with a few bright vesicles of its own; the share at the Golgi is the state of
the cell. It is set so that the rank correlation of the two stains over the cell equals a value laid down for the
cell, and these values are spread evenly within each group: the first two groups alike, the third higher, the fourth
higher still. The amount of glycoprotein varies from cell to cell and rises from none (a weak unspecific stain) to
plenty, without regard to its place. Half of the crops of the second group are copies of control crops.

Truth is the rank correlation of both stains' light after the point spread, before background and camera, over the
cell's own outline.

Light: a dim section of the cell, haze, a Gaussian confocal point spread, a little crosstalk, Poisson and read noise, an
offset, 8 bits for each colour.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.special import ndtri
from scipy.stats import rankdata

from tasks._optics import (
    Array,
    Blob,
    Camera,
    Objective,
    coverage,
    haze,
    render_points,
    rotation_2d,
    smooth_field,
    stream,
    wander,
    write_csv,
    write_tiff,
)

PIXEL_UM = 0.0706
GOLGI_OPTICS = Objective(na=1.3, wavelength_nm=520.0, pixel_size_um=PIXEL_UM, confocal=True)
PROTEIN_OPTICS = Objective(na=1.3, wavelength_nm=600.0, pixel_size_um=PIXEL_UM, confocal=True)
CONTEXT_OPTICS = Objective(na=1.3, wavelength_nm=670.0, pixel_size_um=PIXEL_UM, confocal=True)


@dataclass(frozen=True)
class Group:
    """One condition: how many crops, their coefficients (mean, standard deviation) and amount of glycoprotein."""

    name: str
    crops: int
    copies: int
    coefficient: tuple[float, float]
    amount: tuple[float, float]
    hours: tuple[int, ...]


GROUPS = (
    Group("Control", 26, 0, (0.15, 0.07), (0.10, 0.16), (5, 10, 24)),
    Group("Stage 1", 10, 5, (0.15, 0.07), (0.14, 0.3), (5, 10)),
    Group("Stage 2", 12, 0, (0.30, 0.07), (0.5, 1.6), (10,)),
    Group("Stage 3", 18, 0, (0.46, 0.07), (0.6, 1.9), (10, 24)),
)


def _even(count: int, mean: float, deviation: float, rng: np.random.Generator) -> Array:
    """Values at even quantiles of a normal distribution, in random order."""
    return np.asarray(mean + deviation * ndtri((rng.permutation(count) + 0.5) / count))


@dataclass
class Cell:
    """The geometry of one crop."""

    shape: tuple[int, int]
    body: NDArray[np.bool_]
    height: Array  # thickness of the section, 0 to 1, without nucleus
    golgi: Array  # light of the Golgi marker
    protein_network: Array
    protein_vesicles: Array
    protein_golgi: Array
    context: Array

    @classmethod
    def grow(cls, rng: np.random.Generator) -> Cell:
        radius, stretch = rng.uniform(88.0, 118.0), rng.uniform(1.0, 1.35)
        radii = (radius * stretch**0.5, radius / stretch**0.5)
        axes = rotation_2d(rng.uniform(0.0, math.pi))
        outline = Blob.random(rng, (0.0, 0.0), radii, axes, roughness=0.13, detail=1.6)
        span = math.ceil(outline.reach) + 2
        grid = np.arange(-span, span + 1, 3, dtype=np.float64)
        rows, columns = (grid[i] for i in np.nonzero(outline.rho([grid[:, None], grid[None, :]]) < 1.0))
        margin = rng.integers(4, 13, 4)
        centre = -np.array([rows.min(), columns.min()]) + margin[:2]
        shape = (int(np.ptp(rows) + margin[0] + margin[2]), int(np.ptp(columns) + margin[1] + margin[3]))
        offsets = [np.arange(shape[0])[:, None] - float(centre[0]), np.arange(shape[1])[None, :] - float(centre[1])]
        rho = outline.rho(offsets)
        body = rho < 1.0
        # The nucleus lies off the middle, the Golgi on the roomier side of it.
        angle = rng.uniform(0.0, 2.0 * math.pi)
        away = np.array([math.sin(angle), math.cos(angle)])
        size = radius * rng.uniform(0.36, 0.44)
        nucleus = Blob.random(rng, centre - 0.2 * radius * away, (size * 1.12, size / 1.12), axes, 0.04)
        nuclear = coverage(nucleus.rho([o + s for o, s in zip(offsets, 0.2 * radius * away, strict=True)]), size)
        edge = np.clip((1.0 - rho) / 0.25, 0.0, 1.0)
        height = coverage(rho, radius) * (0.35 + 0.65 * np.sqrt(edge)) * (1.0 - 0.6 * nuclear)
        seat = centre + (size - 0.2 * radius + radius * rng.uniform(0.1, 0.2)) * away
        golgi, near = _golgi(rng, shape, seat, radius, height)
        network = height * np.exp(0.5 * smooth_field(shape, 3.5, rng)) * (1.3 - 1.1 * near)
        vesicles = _vesicles(rng, shape, body & (nuclear < 0.5), int(rng.integers(25, 60)))
        context = height * np.exp(0.3 * smooth_field(shape, 6.0, rng)) + 0.6 * _vesicles(
            rng, shape, body & (nuclear < 0.5), int(rng.integers(20, 50))
        )
        # Glycoprotein at the Golgi fills the same compartment, not the very same spots.
        at_golgi = ndimage.gaussian_filter(golgi, 1.8) * np.exp(0.35 * smooth_field(shape, 3.0, rng))
        return cls(shape, body, height, golgi, network, vesicles, at_golgi, context)


def _golgi(
    rng: np.random.Generator, shape: tuple[int, int], seat: Array, radius: float, height: Array
) -> tuple[Array, Array]:
    """Light of the Golgi marker, and nearness to the Golgi from 0 to 1."""
    spread = radius * rng.uniform(0.17, 0.26)
    points, weights = [], []
    for _ in range(int(rng.integers(7, 13))):
        start = seat + rng.normal(0.0, 0.5 * spread, 2)
        ribbon = wander(rng, start, rng.uniform(0.0, 2.0 * math.pi), rng.uniform(0.5, 1.4) * spread, bend=0.16)
        points.append(ribbon)
        weights.append(np.full(len(ribbon), rng.uniform(0.6, 1.5) * 1.3))
    cloud = seat + rng.standard_t(2.5, (int(rng.integers(90, 150)), 2)) * spread * 0.95
    points.append(cloud)
    weights.append(rng.lognormal(0.6, 0.6, len(cloud)))
    ribbons = render_points(shape, np.concatenate(points), np.concatenate(weights), 1.0) * (height > 0.1)
    squared = (np.arange(shape[0])[:, None] - seat[0]) ** 2 + (np.arange(shape[1])[None, :] - seat[1]) ** 2
    near = 1.0 / (1.0 + squared / (2.2 * spread) ** 2)
    veil = height * np.exp(0.45 * smooth_field(shape, 3.0, rng)) * (0.09 + 0.30 * near)
    return ribbons + veil, near


def _vesicles(rng: np.random.Generator, shape: tuple[int, int], where: NDArray[np.bool_], count: int) -> Array:
    """Bright spots at random places of a region."""
    rows, columns = np.nonzero(where)
    chosen = rng.integers(0, len(rows), count)
    points = np.stack([rows[chosen], columns[chosen]], axis=1) + rng.uniform(-0.5, 0.5, (count, 2))
    return render_points(shape, points, rng.lognormal(1.6, 0.7, count), rng.uniform(1.2, 1.9))


def _correlation(ranks: Array, values: Array) -> float:
    """Pearson correlation of ready ranks with the ranks of ``values``."""
    return float(np.corrcoef(ranks, rankdata(values))[0, 1])


def _share(cell: Cell, golgi: Array, parts: tuple[Array, Array], coefficient: float) -> float:
    """Find the share of glycoprotein at the Golgi for which the rank correlation over the cell has a given value."""
    ranks = rankdata(golgi[cell.body][::6])  # a sixth of the pixels is enough to choose by
    elsewhere, at_golgi = (part[cell.body][::6] for part in parts)
    low, high = 0.0, 0.97
    for _ in range(8):
        share = 0.5 * (low + high)
        if _correlation(ranks, (1.0 - share) * elsewhere + share * at_golgi) < coefficient:
            low = share
        else:
            high = share
    return 0.5 * (low + high)


def _crop(group: Group, coefficient: float, seed: int, number: int) -> tuple[NDArray[np.uint8], float]:
    """Return one crop and the true coefficient of its cell."""
    rng = stream(seed, "cell", group.name, number)
    cell = Cell.grow(rng)
    golgi = GOLGI_OPTICS.blur(cell.golgi)
    elsewhere = PROTEIN_OPTICS.blur(cell.protein_network + 0.5 * cell.protein_vesicles)
    at_golgi = PROTEIN_OPTICS.blur(cell.protein_golgi)
    elsewhere /= elsewhere[cell.body].mean()
    at_golgi /= at_golgi[cell.body].mean()
    share = _share(cell, golgi, (elsewhere, at_golgi), coefficient)
    protein = (1.0 - share) * elsewhere + share * at_golgi
    true = _correlation(rankdata(golgi[cell.body]), protein[cell.body])

    low, high = group.amount
    amount = low * (high / low) ** rng.random()
    outside = _neighbours(rng, cell)
    red = 210.0 * rng.lognormal(0.0, 0.2) * (golgi + 0.25 * outside)
    green = 150.0 * amount * (protein + 0.7 * outside)
    blue = 120.0 * amount**0.7 * rng.lognormal(0.0, 0.3) * (CONTEXT_OPTICS.blur(cell.context) + 0.7 * outside)
    layers = (red + 0.01 * green, green + 0.01 * red, blue + 0.01 * green)
    gains = (0.55, 0.55 / max(amount, 0.25) ** 0.6, 0.6)  # a brighter stain is taken with less gain
    image = np.empty((*cell.shape, 3), np.uint8)
    for k, (light, gain) in enumerate(zip(layers, gains, strict=True)):
        exposure = stream(seed, "camera", group.name, number, k)
        dim = haze(cell.shape, exposure, float(exposure.uniform(1.0, 3.0)), 70.0, contrast=0.3)
        camera = Camera(gain=gain, offset=2.0, read_noise_e=1.2, bits=8)
        image[..., k] = camera.expose(light + dim, exposure)
    return image, true


def _neighbours(rng: np.random.Generator, cell: Cell) -> Array:
    """Cytoplasm of other cells that reach into the crop."""
    light = np.zeros(cell.shape)
    for _ in range(int(rng.integers(0, 4))):
        angle = rng.uniform(0.0, 2.0 * math.pi)
        centre = np.array(cell.shape) / 2 + np.array(cell.shape) * 0.82 * np.array([math.sin(angle), math.cos(angle)])
        other = Blob.random(rng, centre, (80.0, 65.0), rotation_2d(rng.uniform(0.0, math.pi)), 0.12)
        if (place := other.on(cell.shape)) is not None:
            where, rho = place
            light[where] = np.maximum(light[where], coverage(rho, 70.0) * 0.8)
    free = ndimage.distance_transform_edt(~cell.body)
    return light * np.clip(free / 4.0, 0.0, 1.0) * np.exp(0.4 * smooth_field(cell.shape, 4.0, rng))


def _names(group: Group, rng: np.random.Generator) -> list[str]:
    """File names <hours>h_<replicate>_<cell>.tif, no two alike."""
    count: dict[tuple[int, int], int] = {}
    names = []
    for _ in range(group.crops):
        key = (int(rng.choice(group.hours)), int(rng.integers(1, 4)))
        count[key] = count.get(key, 0) + int(rng.integers(1, 3))
        names.append(f"{key[0]}h_{key[1]}_{count[key]}.tif")
    return names


def make(destination: Path, seed: int) -> None:
    """Write ``input/<group>/<name>.tif`` and ``evaluation/per_cell_truth.csv``, the same bytes for the same seed."""
    rows: list[tuple[str, str, str]] = []
    controls: list[tuple[str, float]] = []
    for group in GROUPS:
        rng = stream(seed, "group", group.name)
        names = _names(group, rng)
        folder = destination / "input" / group.name
        copies = []
        if group.copies:
            # Copies spread over the controls' whole range, so that both groups stay alike.
            ordered = sorted(controls, key=lambda item: item[1])
            copies = [ordered[int((k + 0.5) * len(ordered) / group.copies)] for k in range(group.copies)]
        targets = _even(group.crops - group.copies, *group.coefficient, rng)
        for number, name in enumerate(names):
            if number < len(copies):
                source, true = copies[number]
                folder.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes((destination / "input" / "Control" / source).read_bytes())
            else:
                image, true = _crop(group, float(targets[number - len(copies)]), seed, number)
                write_tiff(folder / name, image)
            if group.name == "Control":
                controls.append((name, true))
            rows.append((f"{group.name}/{name}", group.name, f"{true:.9f}"))
    colors = "Red: Golgi marker\nGreen: membrane glycoprotein (S)\nBlue: nucleoprotein (N)\n"
    (destination / "input" / "colors.txt").write_text(colors)
    write_csv(
        destination / "evaluation" / "per_cell_truth.csv", ("image", "condition", "spearman_coefficient"), sorted(rows)
    )
