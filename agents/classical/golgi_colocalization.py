"""Colocalization of two stains per cell: outline of the cell, Spearman's coefficient inside, comparison of conditions.

The coefficient depends on the outline more than on anything else: dark surroundings raise it. The outline is therefore
put at half of the cytoplasm's own level next to the edge, after each stain was scaled by its own signal.
"""

from __future__ import annotations

import csv
import hashlib
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import ndimage as ndi
from scipy import stats

from . import _figures as figures
from ._io import list_images, natural_key, pixel_size_um, read_image, write_table
from ._job import Job, parse_pixel_size_um
from ._report import Report, Summary, number
from ._segment import Mask, distance_inside, opened, otsu, split_touching

FIRST, SECOND = 0, 1  # red against green
EDGE = 0.5  # where blur puts the edge of a step
BAND = (2.0, 8.0)  # pixels inside the outline between which the cytoplasm's level is taken
REACH = 10.0  # pixels along the outline over which that level is averaged
BRIDGE = 4.0  # radius of attachments that are cut off, pixels
WAIST = 0.04  # depth of a waist that parts the cell from a neighbour, in radii of the cell
ROUNDS = 4
SMALLEST_SHARE = 0.05  # of the crop; a smaller mask is a failure
SHIFT_UM = 1.5  # of one stain against the other, to see what chance gives
ALPHA = 0.05

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """One image: what its name says, its outline and coefficients; NaN where it could not be measured."""

    image: str
    condition: str
    hours: str
    replicate: str
    number: str
    digest: str
    area: float
    coefficient: float
    shifted: float

    @property
    def measured(self) -> bool:
        return math.isfinite(self.coefficient)


def run(job: Job) -> None:
    """Measure all images, write the tables, then figures and report."""
    paths = [path for path in list_images(job.input_dir) if path.parent != job.input_dir]
    conditions = in_order({path.parent.name for path in paths})
    job.log(f"{len(paths)} images in {len(conditions)} conditions: {', '.join(conditions)}")
    scale = figures.Scale(parse_pixel_size_um(job.instruction) or next((pixel_size_um(path) for path in paths), None))
    cells = []
    for path in paths:
        cell = _named(job, path)
        with job.attempt(cell.image):
            cell = measure(path, cell, scale)
        cells.append(cell)
    table = job.output_dir / _file_name(job, "per_cell_coefficients", "colocalization_results.csv")
    write_cells(table, cells, scale)
    rows = read_values(table)
    job.delivered = sum(math.isfinite(value) for _, _, value in rows)
    groups = {name: np.array([v for _, c, v in rows if c == name and math.isfinite(v)]) for name in conditions}
    tests = compare(groups)
    write_tests(job.output_dir / _file_name(job, "pairwise_pvalues", "pairwise_pvalues.csv"), tests)
    write_summary(job.output_dir / "colocalization_summary.csv", groups)
    with job.attempt("figures"):
        draw_values(job, groups, tests)
    with job.attempt("panels"):
        draw_examples(job, rows, groups, scale)
    write_report(job, cells, groups, tests, scale)


def _file_name(job: Job, identifier: str, default: str) -> str:
    wanted = job.wanted.get(identifier)
    return wanted.patterns[0].rsplit("/", 1)[-1].replace("*", "") if wanted and wanted.patterns else default


def in_order(names: set[str]) -> list[str]:
    """Return conditions in natural order, controls first."""
    return sorted(names, key=lambda name: ("control" not in name.lower(), natural_key(Path(name))))


def _named(job: Job, path: Path) -> Cell:
    parts = re.fullmatch(r"(\d+)h_(\d+)_(\d+)", path.stem)
    hours, replicate, cell = parts.groups() if parts else ("", "", "")
    name = path.relative_to(job.input_dir).as_posix()
    digest = name
    with job.attempt(name):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Cell(name, path.parent.name, hours, replicate, cell, digest, math.nan, math.nan, math.nan)


# --- one image ------------------------------------------------------------------------------------------------------


def signal_of_all(image: npt.NDArray[np.generic]) -> Array:
    """Return the mean of the channels, each with background 0 and its own signal's median 1."""
    total = np.zeros(image.shape[:2])
    for channel in range(image.shape[2]):
        smooth = ndi.gaussian_filter(image[..., channel].astype(float), 1.0)
        root = ndi.gaussian_filter(np.sqrt(np.clip(smooth, 0, None)), 2.0)
        background = float(np.percentile(smooth, 5))
        bright = smooth[root > otsu(root)]
        level = float(np.median(bright)) - background if bright.size else 0.0
        if level > 0:
            total += np.minimum((smooth - background) / level, 2.0)
    return np.asarray(total / image.shape[2])


def central_object(mask: npt.NDArray[np.generic]) -> Mask:
    """Return the filled component, or the label, with most weight near the middle of the crop."""
    labels = mask if mask.dtype != bool else ndi.label(mask)[0]
    count = int(labels.max())
    if count == 0:
        return np.asarray(labels, bool)
    height, width = mask.shape
    y, x = np.ogrid[:height, :width]
    weight = np.exp(-(((y - height / 2) / (height / 3)) ** 2) - ((x - width / 2) / (width / 3)) ** 2)
    heaviest = 1 + int(np.argmax(ndi.sum(weight, labels, np.arange(1, count + 1))))
    return np.asarray(ndi.binary_fill_holes(labels == heaviest), bool)


def outline_of_cell(image: npt.NDArray[np.generic]) -> Mask:
    """Return the mask of the crop's cell, nucleus included."""
    signal = signal_of_all(image)
    smooth = ndi.gaussian_filter(signal, 1.5)
    mask = central_object(opened(smooth > 0.5 * otsu(smooth), 2.0))
    for _ in range(ROUNDS):
        depth = distance_inside(np.pad(mask, 1))[1:-1, 1:-1]
        band = (depth > BAND[0]) & (depth <= BAND[1])
        if not band.any():
            break
        weight = ndi.gaussian_filter(band.astype(float), REACH)
        level = ndi.gaussian_filter(np.where(band, signal, 0.0), REACH) / np.maximum(weight, 1e-6)
        level = np.where(weight > 1e-3, level, np.median(signal[band]))
        near = ndi.binary_dilation(mask, iterations=6)
        mask = central_object(opened((ndi.gaussian_filter(signal, 0.7) > EDGE * level) & near, BRIDGE))
    depth = ndi.gaussian_filter(distance_inside(np.pad(mask, 1))[1:-1, 1:-1], 2.0)
    parts = split_touching(mask, np.asarray(depth / max(float(depth.max()), 1.0), np.float32), WAIST)
    return central_object(parts)


def spearman(one: npt.NDArray[np.generic], two: npt.NDArray[np.generic], mask: Mask) -> float:
    """Return Spearman's coefficient of two channels over a mask; NaN where one of them does not vary."""
    a, b = one[mask], two[mask]
    if a.size < 3 or a.min() == a.max() or b.min() == b.max():
        return math.nan
    return float(stats.spearmanr(a, b).statistic)


def measure(path: Path, cell: Cell, scale: figures.Scale) -> Cell:
    """Measure one image."""
    image = read_image(path)
    if image.ndim != 3:
        raise ValueError("is not a colour image")
    mask = outline_of_cell(image)
    if mask.mean() < SMALLEST_SHARE:
        raise ValueError(f"no cell found: the outline covers {100 * mask.mean():.1f} % of the crop")
    coefficient = spearman(image[..., FIRST], image[..., SECOND], mask)
    if not math.isfinite(coefficient):
        raise ValueError("a channel does not vary over the cell")
    step = max(2, round(SHIFT_UM / scale.pixel_um)) if scale.pixel_um else 20
    shifts = [(0, step), (step, 0), (0, -step), (-step, 0)]
    chance = [_shifted(image, mask, *shift) for shift in shifts]
    return Cell(
        cell.image,
        cell.condition,
        cell.hours,
        cell.replicate,
        cell.number,
        cell.digest,
        float(scale.area(float(mask.sum()))),
        coefficient,
        float(np.nanmean(chance)),
    )


def _shifted(image: npt.NDArray[np.generic], mask: Mask, dy: int, dx: int) -> float:
    """Return the coefficient after moving the second channel, over pixels that lie in the cell before and after."""
    moved = np.roll(image[..., SECOND], (dy, dx), axis=(0, 1))
    return spearman(image[..., FIRST], moved, mask & np.roll(mask, (dy, dx), axis=(0, 1)))


# --- tables and tests -----------------------------------------------------------------------------------------------


def write_cells(path: Path, cells: Sequence[Cell], scale: figures.Scale) -> None:
    """Write one row per image; an image that could not be measured has an empty coefficient."""
    first: dict[str, str] = {}
    rows: list[Sequence[object]] = []
    for cell in cells:
        copy_of = first.setdefault(cell.digest, cell.image)
        values = [f"{value:.6f}" if math.isfinite(value) else "" for value in (cell.coefficient, cell.shifted)]
        area = f"{cell.area:.2f}" if math.isfinite(cell.area) else ""
        same = "" if copy_of == cell.image else copy_of
        rows.append(
            (cell.image, cell.condition, values[0], cell.hours, cell.replicate, cell.number, area, values[1], same)
        )
    columns = ["image", "condition", "spearman_coefficient", "hours", "replicate", "cell"]
    columns += [f"cell_area_{'um2' if scale.pixel_um else 'px'}", "spearman_after_shift", "copy_of"]
    write_table(path, columns, rows, delimiter=",")


def read_values(path: Path) -> list[tuple[str, str, float]]:
    """Read image, condition and coefficient of the delivered table back."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            (row["image"], row["condition"], float(row["spearman_coefficient"] or "nan"))
            for row in csv.DictReader(file)
        ]


@dataclass(frozen=True)
class Test:
    """A Mann-Whitney test of two conditions; the effect is the share of pairs in which the second is higher."""

    first: str
    second: str
    consecutive: bool
    p: float
    corrected: float
    effect: float


def compare(groups: dict[str, Array]) -> list[Test]:
    """Compare all pairs of conditions, Holm-corrected; pairs with an empty group are left out."""
    names = list(groups)
    raw = []
    for one, two in itertools.combinations(range(len(names)), 2):
        a, b = groups[names[one]], groups[names[two]]
        if a.size and b.size:
            result = stats.mannwhitneyu(b, a, alternative="two-sided")
            raw.append((one, two, float(result.pvalue), float(result.statistic) / (a.size * b.size)))
    corrected = [math.nan] * len(raw)
    largest = 0.0
    for rank, k in enumerate(sorted(range(len(raw)), key=lambda k: raw[k][2])):
        largest = max(largest, min(1.0, raw[k][2] * (len(raw) - rank)))
        corrected[k] = largest
    return [
        Test(names[one], names[two], two == one + 1, p, corrected[k], effect)
        for k, (one, two, p, effect) in enumerate(raw)
    ]


def write_tests(path: Path, tests: Sequence[Test]) -> None:
    """Write one row per pair of conditions."""
    rows = [(test.first, test.second, f"{test.p:.6g}", f"{test.corrected:.6g}", test.effect) for test in tests]
    columns = ["condition_1", "condition_2", "p_value", "p_value_corrected", "share_of_pairs_second_higher"]
    write_table(path, columns, rows, delimiter=",")


def write_summary(path: Path, groups: dict[str, Array]) -> None:
    """Write n, mean, standard deviation, median and quartiles of each condition."""
    rows = []
    for name, values in groups.items():
        summary = Summary.of(values)
        rows.append((name, summary.n, summary.mean, summary.sd, summary.median, summary.lower, summary.upper))
    write_table(path, ["condition", "n", "mean", "sd", "median", "q1", "q3"], rows, delimiter=",")


# --- figures --------------------------------------------------------------------------------------------------------


def _p_text(p: float) -> str:
    return f"p = {p:.2g}" if p >= 0.001 else "p < 0.001"


def draw_values(job: Job, groups: dict[str, Array], tests: Sequence[Test]) -> None:
    """Plot all cells over box plots, with the p-values of consecutive conditions."""
    figure = figures.new_figure(110, 85)
    axis = figure.subplots()
    rng = np.random.default_rng(0)
    names = list(groups)
    top = max((float(values.max()) for values in groups.values() if values.size), default=1.0)
    bottom = min((float(values.min()) for values in groups.values() if values.size), default=0.0)
    for place, (values, colour) in enumerate(zip(groups.values(), figures.COLOURS, strict=False)):
        if not values.size:
            continue
        axis.boxplot(values, positions=[place], widths=0.55, showfliers=False, medianprops={"color": "black"})
        spread = place + rng.uniform(-0.18, 0.18, values.size)
        axis.plot(spread, values, ".", color=figures.hexadecimal(colour), alpha=0.7, markersize=4)
    step = 0.07 * max(top - bottom, 1e-6)
    for level, test in enumerate(test for test in tests if test.consecutive):
        left, right = names.index(test.first), names.index(test.second)
        y = top + step * (1 + 1.3 * level)
        axis.plot([left, left, right, right], [y - 0.3 * step, y, y, y - 0.3 * step], color="black", linewidth=0.8)
        axis.text((left + right) / 2, y, _p_text(test.p), ha="center", va="bottom", fontsize=7)
    axis.set_xticks(range(len(names)), [f"{name}\nn = {groups[name].size}" for name in names])
    axis.set_ylabel("Spearman coefficient per cell")
    figures.save_figure(figure, job.output_dir / "figures", "coefficients")


def draw_examples(
    job: Job, rows: Sequence[tuple[str, str, float]], groups: dict[str, Array], scale: figures.Scale
) -> None:
    """Show the cell nearest to the median of each condition: both stains and their merge, with the outline used."""
    shown = []
    for name, values in groups.items():
        if values.size:
            middle = float(np.median(values))
            own = [row for row in rows if row[1] == name and math.isfinite(row[2])]
            shown.append(min(own, key=lambda row: (abs(row[2] - middle), row[0])))
    figure = figures.new_figure(150, 48 * len(shown))
    axes = np.atleast_2d(figure.subplots(len(shown), 3))
    for line, (name, condition, value) in zip(axes, shown, strict=True):
        image = read_image(job.input_dir / name)
        outline = outline_of_cell(image).astype(np.int32)
        display = np.stack([figures.to_rgb(image[..., k], high=99.7)[..., 0] for k in (FIRST, SECOND)], axis=-1)
        none = np.zeros_like(display[..., 0])
        layers = (
            np.stack([display[..., 0], none, none], axis=-1),
            np.stack([none, display[..., 1], none], axis=-1),
            np.stack([display[..., 0], display[..., 1], none], axis=-1),
        )
        titles = (f"{condition}: red", f"green, rho = {value:.2f}", name)
        for axis, layer, title in zip(line, layers, titles, strict=True):
            figures.show_image(axis, figures.draw_outlines(layer, [(outline, figures.SKY)]), scale, title)
    figures.save_figure(figure, job.output_dir / "figures", "examples")


# --- report ---------------------------------------------------------------------------------------------------------


def write_report(
    job: Job, cells: Sequence[Cell], groups: dict[str, Array], tests: Sequence[Test], scale: figures.Scale
) -> None:
    """Write the report; values and tests are those of the delivered tables."""
    report = Report("Does the green stain gather where the red one is?")
    report.section(
        "Question",
        "How closely does the green stain follow the red one in each cell, and does that differ between conditions?",
    )
    report.section("Result")
    report.table(
        ["condition", "Spearman coefficient"], [(name, Summary.of(values).text()) for name, values in groups.items()]
    )
    report.table(
        [
            "pair",
            "Mann-Whitney p",
            "Holm-corrected",
            "pairs in which the second is higher",
            f"at {ALPHA:g}, uncorrected",
        ],
        [
            (
                f"{test.first} – {test.second}",
                f"{test.p:.3g}",
                f"{test.corrected:.3g}",
                f"{100 * test.effect:.0f} %",
                "different" if test.p < ALPHA else "not shown to differ",
            )
            for test in tests
        ],
    )
    report.text("N counts cells. All cells: `figures/coefficients`; examples with outlines: `figures/examples`.")
    report.section("Method")
    size = f"{scale.pixel_um:g} µm per pixel" if scale.pixel_um else "the pixel size is not known"
    report.bullets(
        f"Images: red is channel {FIRST}, green channel {SECOND}; {size}.",
        "Outline: mean of the three channels, each scaled by its own signal (faint and strong stains weigh alike); "
        f"threshold, then the edge at {EDGE:g} of the level {BAND[0]:g} to {BAND[1]:g} px inside it, {ROUNDS} times; "
        f"attachments narrower than {2 * BRIDGE:g} px are cut off and neighbours parted at waists, holes (the nucleus) "
        "filled, the central object "
        "kept.",
        "Coefficient: Spearman's rank correlation of red and green over all pixels of the outline, images unsmoothed; "
        "it depends neither on offsets nor on gains.",
        "Comparison: two-sided Mann-Whitney U for all pairs, Holm's correction beside the plain p-values.",
    )
    report.section("Quality control")
    report.failures(job.failures, len(cells), "images")
    shifted = [cell.shifted for cell in cells if cell.measured]
    length = f"{SHIFT_UM:g} µm" if scale.pixel_um else "20 px"
    report.text(f"Chance: after a shift of green by {length}, {Summary.of(shifted).text()} cells.")
    _report_copies(report, cells, groups)
    known = [values for values in groups.values() if values.size > 2]
    if len(known) > 1:
        levene = stats.levene(*known)
        shapiro = {n: float(stats.shapiro(v).pvalue) for n, v in groups.items() if v.size > 2 and np.ptp(v) > 0}
        normal = "; ".join(f"{name} p = {p:.2g}" for name, p in shapiro.items())
        report.text(f"Shapiro-Wilk: {normal}. Levene: p = {levene.pvalue:.2g}. A rank test needs neither assumption.")
    report.section("Caveats")
    report.bullets(
        "The coefficient is that of one optical section, and of whole cells: diffuse stain far from the structure "
        "counts.",
        "Noise lowers every coefficient, most in faint cells; the conditions differ in brightness.",
        "Cells of one image field or replicate are not independent; the tests take them as if they were.",
    )
    report.write(job.output_dir / "report.md")
    job.log("; ".join(f"{name} {number(float(np.median(values)))}" for name, values in groups.items() if values.size))


def _report_copies(report: Report, cells: Sequence[Cell], groups: dict[str, Array]) -> None:
    """Name images that are there twice, and repeat the tests without the later ones."""
    first: dict[str, Cell] = {}
    copies: list[tuple[Cell, Cell]] = []
    for cell in cells:
        original = first.setdefault(cell.digest, cell)
        if original is not cell:
            copies.append((cell, original))
    if not copies:
        report.text("No two images are the same.")
        return
    report.text(f"{len(copies)} images are copies of others, byte for byte; they are no independent cells:")
    report.bullets(*(f"`{cell.image}` is `{original.image}`" for cell, original in copies))
    names = {cell.image for cell, _ in copies}
    once = {
        name: np.array([c.coefficient for c in cells if c.condition == name and c.measured and c.image not in names])
        for name in groups
    }
    kept = [test for test in compare(once) if test.consecutive]
    report.text(
        "Without them: "
        + "; ".join(f"{test.first} – {test.second} p = {test.p:.3g}" for test in kept)
        + " (uncorrected)."
    )
