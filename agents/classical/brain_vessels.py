"""Segment vessels in light-sheet volumes and describe their network: flattening, lines, wall at half height, graph.

Stripes and the tissue's glow are removed first. A voxel is a candidate if it is bright, or fainter but on a line (two
of the three curvatures point down). Candidates count where they hang together with something clearly bright. The wall
lies where the signal falls to a share of the highest one close by, so that bright vessels do not come out fatter than
dim ones.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cc3d
import edt
import numpy as np
import numpy.typing as npt
import tifffile
from scipy import ndimage as ndi
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree
from scipy.spatial import cKDTree
from skimage.morphology import skeletonize

from . import _figures as figures
from ._io import list_images, stem, write_table
from ._job import Job
from ._report import Report, Summary, number
from ._volumes import Mask, Spacing, Volume, find_voxel_size, line_strength, smoothed_um

BACKGROUND_UM = 24.0  # half the window of the tissue's glow: wider than the widest vessel
BRIGHT = 4.5  # noise SD: a vessel by brightness alone
FAINT = 2.5  # noise SD: a vessel where it lies on a line
LINE = 4.0  # noise SD of the line filter
SURE = 8.0  # noise SD: one such voxel makes a piece count
LINE_UM = 2.2  # width of the line filter
WALL = 0.45  # of the highest signal within reach
REACH_UM = 4.0
SMALLEST_UM3 = 150.0
MIN_SPUR = 1.0  # spurs shorter than this many local radii are no branches

Array = npt.NDArray[np.float64]

COLUMNS = (
    "sample_id",
    "total_length_um",
    "n_branches",
    "n_bifurcation_points",
    "n_terminal_points",
    "mean_branch_length_um",
    "mean_diameter_um",
    "median_diameter_um",
    "mean_tortuosity",
    "mean_branching_angle_deg",
    "vessel_volume_fraction",
    "length_density_mm_per_mm3",
    "n_pieces",
)


@dataclass(frozen=True)
class Sample:
    """One stack that was delivered."""

    path: Path
    mask: Path
    spacing_um: Spacing
    spacing_source: str
    noise: float


def run(job: Job) -> None:
    """Segment every stack, describe its network, then draw figures and report."""
    paths = list_images(job.input_dir, (".tif", ".tiff"))
    job.log(f"{len(paths)} stacks")
    done: list[Sample] = []
    for path in paths:
        with job.attempt(path.name):
            stack = np.squeeze(tifffile.imread(path))
            if stack.ndim != 3:
                raise ValueError(f"{path.name}: expected a stack (z, y, x), found an array of shape {stack.shape}")
            spacing, source = find_voxel_size(path, job.instruction)
            mask, noise = segment(stack, spacing)
            target = job.output_dir / f"{stem(path)}_mask.tiff"
            tifffile.imwrite(target, mask.astype(np.uint8), compression="zlib", photometric="minisblack")
            done.append(Sample(path, target, spacing, source, noise))
            job.log(f"{path.name}: {mask.mean():.2%} vessel")
    job.delivered = len(done)
    networks: dict[str, Network] = {}
    rows: list[Sequence[object]] = []
    for sample in done:
        with job.attempt(f"{sample.path.name}, network"):
            mask = tifffile.imread(sample.mask) > 0
            networks[stem(sample.path)] = network = trace(mask, sample.spacing_um)
            rows.append(describe(stem(sample.path), mask, network, sample.spacing_um))
    table = job.output_dir / "vessel_morphology.csv"
    write_table(table, COLUMNS, rows, delimiter=",")
    write_branches(job, networks)
    for sample in done:
        with job.attempt(f"{sample.path.name}, overlay"):
            draw_projections(job, sample)
    animals = read_table(table)
    with job.attempt("figures"):
        draw_networks(job, animals, networks)
    write_report(job, paths, done, animals, networks)


# --- segmentation -----------------------------------------------------------------------------------------------


def segment(stack: npt.NDArray[np.generic], spacing_um: Spacing) -> tuple[Mask, float]:
    """Return the vessel mask of one stack and the noise of its smoothed signal, in grey levels."""
    signal = flatten(stack, spacing_um)
    smooth = smoothed_um(signal, 0.7, spacing_um)
    noise = _spread(smooth)
    faint = smooth > FAINT * noise
    line, line_noise = line_strength(signal, LINE_UM, spacing_um, faint)
    candidate = (smooth > BRIGHT * noise) | (line > LINE * line_noise)
    del line, faint
    pieces = cc3d.connected_components(candidate, connectivity=26)
    sure = np.zeros(int(pieces.max()) + 1, bool)
    sure[np.unique(pieces[smooth > SURE * noise])] = True
    sure[0] = False
    mask = sure[pieces]
    del pieces, candidate
    reach = [2 * max(1, round(REACH_UM / step)) + 1 for step in spacing_um]
    peak = ndi.maximum_filter(smoothed_um(signal, 1.2, spacing_um), size=reach)
    mask &= smooth > WALL * peak
    del peak
    return _without_crumbs(_filled(mask), spacing_um), noise


def flatten(stack: npt.NDArray[np.generic], spacing_um: Spacing) -> Volume:
    """Return the signal above the tissue's glow, without stripes along x.

    Each row is brought to the level of its neighbours (a stripe dims a whole row); the glow is a low percentile in wide
    windows, measured on block means.
    """
    signal = stack.astype(np.float32)
    rows = np.percentile(signal, 25, axis=2)
    near = ndi.gaussian_filter(ndi.median_filter(rows, (9, 15)), (2, 4))
    signal *= (near / np.maximum(rows, 1e-3)).astype(np.float32)[:, :, None]
    factors = [max(1, round(BACKGROUND_UM / 6.0 / step)) for step in spacing_um]
    pad = [(0, -length % factor) for length, factor in zip(signal.shape, factors, strict=True)]
    padded = np.pad(signal, pad, mode="edge")
    blocks = [part for length, factor in zip(padded.shape, factors, strict=True) for part in (length // factor, factor)]
    small = padded.reshape(blocks).mean(axis=(1, 3, 5))
    window = [
        min(2 * round(BACKGROUND_UM / (s * f)) + 1, n | 1)
        for s, f, n in zip(spacing_um, factors, small.shape, strict=True)
    ]
    low = ndi.gaussian_filter(ndi.percentile_filter(small, 30, size=window, mode="nearest"), 2.0, mode="nearest")
    for start in range(0, signal.shape[0], 16):  # in slabs, for memory
        stop = min(start + 16, signal.shape[0])
        grid = [np.arange(start, stop), np.arange(signal.shape[1]), np.arange(signal.shape[2])]
        where = np.meshgrid(*[(g + 0.5) / f - 0.5 for g, f in zip(grid, factors, strict=True)], indexing="ij")
        signal[start:stop] -= ndi.map_coordinates(low, where, order=1, mode="nearest", output=np.float32)
    return signal


def _spread(values: Volume) -> float:
    """Return the standard deviation of the bulk of a volume, from its median absolute deviation."""
    some = values[::2, ::2, ::2]
    return float(1.4826 * np.median(np.abs(some - np.median(some))))


def _filled(mask: Mask) -> Mask:
    """Fill holes that are closed in all directions."""
    outside = cc3d.connected_components(~np.pad(mask, 1, constant_values=False), connectivity=6)
    return np.asarray((outside != outside[0, 0, 0])[1:-1, 1:-1, 1:-1])


def _without_crumbs(mask: Mask, spacing_um: Spacing) -> Mask:
    """Remove small pieces, and round ones that are as wide as they are long."""
    voxel = float(np.prod(spacing_um))
    pieces = cc3d.connected_components(mask, connectivity=26)
    statistics = cc3d.statistics(pieces)
    keep = statistics["voxel_counts"] * voxel >= SMALLEST_UM3
    for piece, box in enumerate(statistics["bounding_boxes"]):
        if piece == 0 or not keep[piece]:
            continue
        extent = [(part.stop - part.start) * step for part, step in zip(box, spacing_um, strict=True)]
        longest = float(np.linalg.norm(extent))
        if longest < 30.0:
            inside = pieces[box] == piece
            width = 2.0 * float(edt.edt(np.pad(inside, 1), anisotropy=spacing_um).max())
            points = np.argwhere(inside) * np.array(spacing_um)
            axes = np.sqrt(np.maximum(np.linalg.eigvalsh(np.cov(points.T)), 0.0)) if len(points) > 3 else np.ones(3)
            keep[piece] = axes[2] > 1.8 * max(axes[1], 1e-6) or longest > 3.0 * width
    keep[0] = False
    return np.asarray(keep[pieces])


# --- network ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Network:
    """Branches of a vessel network.

    Attributes
    ----------
    length_um, diameter_um, tortuosity
        One value per branch; tortuosity is not a number where a branch is a loop.
    angles_deg
        Angle between each two branches that meet.
    bifurcations, ends, pieces
        Numbers of branching points, free ends and separate pieces.
    """

    length_um: Array
    diameter_um: Array
    tortuosity: Array
    angles_deg: Array
    bifurcations: int
    ends: int
    pieces: int


def trace(mask: Mask, spacing_um: Spacing) -> Network:
    """Turn a mask into branches: centreline, cut at junctions, spurs shorter than the local radius removed."""
    spacing = np.array(spacing_um)
    pieces = int(cc3d.connected_components(mask, connectivity=26, return_N=True)[1])
    radius = edt.edt(np.ascontiguousarray(mask), anisotropy=spacing_um, black_border=False)
    points = np.argwhere(skeletonize(mask))
    for _ in range(2):
        branches = _branches(points, spacing)
        spurs = [
            b for b in branches if len(b.ends) == 1 and b.length < MIN_SPUR * float(radius[tuple(points[b.path[-1]])])
        ]
        if not spurs:
            break
        drop = np.zeros(len(points), bool)
        for spur in spurs:
            drop[spur.path] = True
        points = points[~drop]
    branches = _branches(points, spacing)
    lengths, widths, tortuosities = [], [], []
    meeting: dict[int, list[Array]] = {}
    ends = 0
    for branch in branches:
        if len(branch.path) < 2:
            continue
        place = points[branch.path] * spacing
        chord = float(np.linalg.norm(place[-1] - place[0]))
        lengths.append(branch.length)
        widths.append(2.0 * float(radius[tuple(points[branch.path].T)].mean()))
        tortuosities.append(branch.length / chord if chord > 0.2 * branch.length else np.nan)
        ends += 2 - len(branch.ends)
        for cluster, first in branch.ends:
            path = place if first == branch.path[0] else place[::-1]
            meeting.setdefault(cluster, []).append(path[min(len(path) - 1, 5)] - path[0])
    angles = [
        float(np.degrees(np.arccos(np.clip(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)), -1.0, 1.0))))
        for directions in meeting.values()
        for i, a in enumerate(directions)
        for b in directions[i + 1 :]
        if np.linalg.norm(a) > 0 and np.linalg.norm(b) > 0
    ]
    bifurcations = sum(len(directions) >= 3 for directions in meeting.values())
    return Network(
        np.array(lengths), np.array(widths), np.array(tortuosities), np.array(angles), bifurcations, ends, pieces
    )


@dataclass(frozen=True)
class _Branch:
    """A path of centreline points, its length in µm, and (junction, end point) where it meets a junction."""

    path: npt.NDArray[np.int64]
    length: float
    ends: list[tuple[int, int]]


def _branches(points: npt.NDArray[np.int64], spacing: Array) -> list[_Branch]:
    """Cut a centreline at its junctions (points with more than two neighbours)."""
    if len(points) < 2:
        return []
    pairs = cKDTree(points).query_pairs(1.8, output_type="ndarray")
    degree = np.bincount(pairs.ravel(), minlength=len(points))
    junction = degree > 2
    steps = np.linalg.norm((points[pairs[:, 0]] - points[pairs[:, 1]]) * spacing, axis=1)

    def graph(rows: Mask) -> Any:
        n = len(points)
        return coo_array((steps[rows], (pairs[rows, 0], pairs[rows, 1])), shape=(n, n)).tocsr()

    crossing = junction[pairs]
    clusters = connected_components(graph(crossing.all(axis=1)), directed=False)[1]
    contact: dict[int, int] = {}
    last_step: dict[int, float] = {}
    for (one, two), (at_one, at_two), step in zip(pairs.tolist(), crossing.tolist(), steps.tolist(), strict=True):
        if at_one != at_two:
            inner, outer = (two, one) if at_one else (one, two)
            contact.setdefault(inner, int(clusters[outer]))
            last_step[inner] = min(step, last_step.get(inner, np.inf))
    tree = minimum_spanning_tree(graph(~crossing.any(axis=1)))
    tree = tree + tree.T
    member = connected_components(tree, directed=False)[1]
    found = []
    outside = np.flatnonzero(~junction)
    order = outside[np.argsort(member[outside], kind="stable")]
    cuts = np.flatnonzero(np.diff(member[order])) + 1
    valence = np.diff(tree.indptr)
    for part in np.split(order, cuts):
        if not len(part):
            continue
        tips = part[valence[part] <= 1]
        start = int(tips[0]) if len(tips) else int(part[0])
        path = breadth_first_order(tree, start, directed=False, return_predecessors=False).astype(np.int64)
        length = float(tree[path].sum()) / 2.0 + sum(last_step.get(tip, 0.0) for tip in {int(path[0]), int(path[-1])})
        ends = [(contact[tip], tip) for tip in dict.fromkeys((int(path[0]), int(path[-1]))) if tip in contact]
        found.append(_Branch(path, length, ends))
    return found


def describe(name: str, mask: Mask, network: Network, spacing_um: Spacing) -> Sequence[object]:
    """Return one row of the table, in the order of :data:`COLUMNS`."""
    volume_mm3 = mask.size * float(np.prod(spacing_um)) * 1e-9
    total = float(network.length_um.sum())

    def mean(values: Array) -> float:
        return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")

    weighted = float(np.average(network.diameter_um, weights=network.length_um)) if total > 0 else float("nan")
    return (
        name,
        total,
        len(network.length_um),
        network.bifurcations,
        network.ends,
        mean(network.length_um),
        weighted,
        float(np.median(network.diameter_um)) if len(network.diameter_um) else float("nan"),
        mean(network.tortuosity),
        mean(network.angles_deg),
        float(mask.mean()),
        total * 1e-3 / volume_mm3,
        network.pieces,
    )


def write_branches(job: Job, networks: dict[str, Network]) -> None:
    """Write every branch with its measurements, for review."""
    rows = [
        (name, index, length, diameter, tortuosity)
        for name, network in networks.items()
        for index, (length, diameter, tortuosity) in enumerate(
            zip(network.length_um, network.diameter_um, network.tortuosity, strict=True), start=1
        )
    ]
    columns = ["sample_id", "branch", "length_um", "diameter_um", "tortuosity"]
    write_table(job.output_dir / "supporting" / "branches.tsv", columns, rows)


def read_table(path: Path) -> list[dict[str, Any]]:
    """Read the delivered table back."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {key: value if key == "sample_id" else float(value or "nan") for key, value in row.items()}
            for row in csv.DictReader(file)
        ]


# --- figures ----------------------------------------------------------------------------------------------------


def draw_projections(job: Job, sample: Sample) -> None:
    """Draw maximum projections along all axes, beside the same with the mask's outline."""
    stack = np.squeeze(tifffile.imread(sample.path))
    mask = tifffile.imread(sample.mask) > 0
    dz, dy, dx = sample.spacing_um
    depth = min(stack.shape[0], max(8, round(60.0 / dz)))
    middle = (stack.shape[0] - depth) // 2
    slab = slice(middle, middle + depth)
    views = [
        (f"xy, {depth * dz:.0f} µm thick", stack[slab].max(axis=0), mask[slab].max(axis=0), dx),
        ("xz, whole depth", _stretched(stack.max(axis=1), dz / dx), _stretched(mask.max(axis=1), dz / dx), dx),
        ("yz, whole depth", _stretched(stack.max(axis=2), dz / dy), _stretched(mask.max(axis=2), dz / dy), dy),
        ("xy, one plane", stack[stack.shape[0] // 2], mask[stack.shape[0] // 2], dx),
    ]
    figure = figures.new_figure(180, 110)
    axes = figure.subplots(2, 4, width_ratios=[view[1].shape[1] / view[1].shape[0] for view in views])
    for column, (title, image, inside, pixel) in enumerate(views):
        rgb = figures.to_rgb(image, high=99.7, gamma=0.7)
        figures.show_image(axes[0, column], rgb, figures.Scale(pixel), title)
        overlay = figures.draw_outlines(rgb, [(inside.astype(np.uint8), figures.ORANGE)])
        figures.show_image(axes[1, column], overlay, figures.Scale(pixel), "mask outline")
    figures.save_figure(figure, job.output_dir / "figures", f"{stem(sample.path)}_projections")


def _stretched(section: npt.NDArray[Any], ratio: float) -> npt.NDArray[Any]:
    """Repeat the rows of a section so that its pixels are about square."""
    rows = np.minimum((np.arange(round(section.shape[0] * ratio)) / ratio).astype(int), section.shape[0] - 1)
    return np.asarray(section[rows])


def draw_networks(job: Job, animals: Sequence[dict[str, Any]], networks: dict[str, Network]) -> None:
    """Plot distributions over branches, and the values of all animals."""
    figure = figures.new_figure(180, 110)
    axes = figure.subplots(2, 3).ravel()
    colours = [figures.hexadecimal(colour) for colour in figures.COLOURS]
    for axis, attribute, label, top in (
        (axes[0], "diameter_um", "branch diameter (µm)", None),
        (axes[1], "length_um", "branch length (µm)", None),
        (axes[2], "tortuosity", "path length / distance of ends", 2.5),
    ):
        every = [getattr(network, attribute) for network in networks.values()]
        joined = np.concatenate(every) if every else np.zeros(0)
        joined = joined[np.isfinite(joined)]
        edges = np.linspace(
            0 if top is None else 1, top or max(1.0, float(np.percentile(joined, 99)) if len(joined) else 1.0), 25
        )
        for index, (name, network) in enumerate(networks.items()):
            values = getattr(network, attribute)
            weights = np.full(len(values), 1.0 / max(len(values), 1))
            axis.hist(values, edges, weights=weights, histtype="step", color=colours[index % len(colours)], label=name)
        axis.set_xlabel(label)
        axis.set_ylabel("share of branches")
    axes[0].legend(frameon=False, fontsize=5)
    for axis, column, label, factor in (
        (axes[3], "length_density_mm_per_mm3", "length density (mm / mm³)", 1.0),
        (axes[4], "mean_diameter_um", "mean diameter (µm)", 1.0),
        (axes[5], "vessel_volume_fraction", "volume fraction (%)", 100.0),
    ):
        values = [animal[column] * factor for animal in animals]
        axis.boxplot(values, widths=0.5, showfliers=False, medianprops={"color": "black"})
        spread = np.linspace(-0.12, 0.12, len(values)) if len(values) > 1 else [0.0]
        axis.scatter(
            1 + np.asarray(spread),
            values,
            s=14,
            color=[colours[i % len(colours)] for i in range(len(values))],
            zorder=3,
        )
        axis.set_xticks([1], [f"n = {len(values)} animals"])
        axis.set_ylabel(label)
        axis.set_ylim(0, 1.25 * max(values, default=1.0))
    figures.panel_letters(axes)
    figures.save_figure(figure, job.output_dir / "figures", "networks")


# --- report -----------------------------------------------------------------------------------------------------


def write_report(
    job: Job,
    paths: Sequence[Path],
    done: Sequence[Sample],
    animals: Sequence[dict[str, Any]],
    networks: dict[str, Network],
) -> None:
    """Write the report; every number in it is read from the delivered files."""
    report = Report("Vessel networks in cleared brain")
    report.section(
        "Question",
        "Where are the vessels in each stack, from capillaries to arterioles and venules, and what network do "
        "they form?",
    )
    report.section("Result", f"{len(done)} of {len(paths)} stacks have a mask; {len(animals)} networks are described.")
    report.table(
        [
            "animal",
            "length (mm/mm³)",
            "branches",
            "bifurcations",
            "mean branch (µm)",
            "diameter (µm)",
            "tortuosity",
            "angle (°)",
            "volume (%)",
        ],
        [
            (
                a["sample_id"],
                a["length_density_mm_per_mm3"],
                int(a["n_branches"]),
                int(a["n_bifurcation_points"]),
                a["mean_branch_length_um"],
                a["mean_diameter_um"],
                a["mean_tortuosity"],
                a["mean_branching_angle_deg"],
                100.0 * a["vessel_volume_fraction"],
            )
            for a in animals
        ],
    )
    for column, label, unit in (
        ("length_density_mm_per_mm3", "Length density", "mm/mm³"),
        ("mean_diameter_um", "Mean diameter (weighted by length)", "µm"),
        ("mean_tortuosity", "Mean tortuosity", ""),
        ("vessel_volume_fraction", "Volume fraction", ""),
    ):
        report.text(f"{label}: {Summary.of(a[column] for a in animals).text(unit)} animals.")
    report.section("Method")
    spacing = done[0].spacing_um if done else (float("nan"),) * 3
    source = done[0].spacing_source if done else "no stack"
    report.bullets(
        f"Voxel size (z, y, x): {' × '.join(f'{step:g}' for step in spacing)} µm, from {source}. All widths below "
        "are in µm and scaled per axis.",
        "Stripes: each row along x is brought to the level of its neighbours (25th percentile against a median "
        "of rows).",
        f"Glow of the tissue: 30th percentile in windows of {2 * BACKGROUND_UM:g} µm, wider than any vessel, "
        "smoothed and subtracted.",
        f"Candidates: smoothed signal (0.7 µm) above {BRIGHT:g} noise SD, or above {FAINT:g} SD on a line (second "
        f"curvature of the Hessian at {LINE_UM:g} µm above "
        f"{LINE:g} SD of its own noise); kept where a connected piece reaches {SURE:g} SD.",
        f"Wall: {WALL:g} of the highest signal within {REACH_UM:g} µm, close to half height, so that width does "
        "not depend on brightness.",
        f"Pieces below {SMALLEST_UM3:g} µm³, and short round ones (cells, clumps of dye), are removed; closed "
        "holes are filled.",
        "Network: 3D thinning, cut at junctions; spurs shorter than the local radius are removed; branch length "
        "along the centreline in µm, "
        "diameter twice the mean distance to the wall, tortuosity length over distance of the ends, angle "
        "between branches from their first 5 voxels.",
    )
    report.section("Quality control")
    report.failures(job.failures, len(paths), "stacks and steps")
    report.table(
        ["animal", "noise (grey levels)", "separate pieces", "free ends", "branches thinner than 3 voxels"],
        [
            (
                stem(sample.path),
                sample.noise,
                networks[stem(sample.path)].pieces,
                networks[stem(sample.path)].ends,
                f"{np.mean(networks[stem(sample.path)].diameter_um < 3 * min(spacing)):.0%}",
            )
            for sample in done
            if stem(sample.path) in networks and len(networks[stem(sample.path)].diameter_um)
        ],
    )
    report.text(
        "Separate pieces and free ends inside the volume are signs of broken vessels. Projections along three "
        "axes with the mask's outline: "
        "`figures/*_projections`."
    )
    report.section("Caveats")
    report.bullets(
        f"Vessels thinner than about two voxels ({number(2 * min(spacing))} µm across, {number(2 * max(spacing))} "
        "µm along z) are at the limit of what the optics resolve: "
        "their diameter is an upper bound, and faint ones break.",
        "The axial blur makes vessels that run in the plane look thicker along z.",
        "Clumps that touch a vessel stay part of it.",
        f"N is the number of animals ({len(animals)}); branches of one animal are not independent.",
    )
    report.section(
        "Files",
        "`<stack>_mask.tiff`: masks. `vessel_morphology.csv`: one row per animal. `supporting/branches.tsv`: "
        "every branch. "
        "`figures/`: projections, distributions (PNG, SVG).",
    )
    report.write(job.output_dir / "report.md")
