"""Stitched mosaic and image cytometry: one multi-channel stack, and the mean features of two cell populations.

*Outcome* (published): 0.7 times the quality of the mosaic (half from the size of its canvas, half from the correlation
of intensity profiles in a band across its middle, per channel) plus 0.3 times the nearness of six population means to
the reference table. *Strict*: harmonic mean of the share of pairs of tiles that lie right to each other to a pixel; of
the correlation of every channel and plane with its own reference, each of them necessary; of the direction of all
sixteen differences between the populations, above chance; and of the size of three of them. The band shows one row of
tiles, and decibels that are far off are still near in relative terms; strict sees the whole mosaic, and differences.

Either deliverable can be missing and then scores 0 in its part. A mosaic that is shifted or has a margin is compared
where it overlaps, if that fits better than stretching its profile.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from evaluators.metrics.cytometry import (
    Key,
    contrast_agreement,
    direction_agreement,
    effect_size_agreement,
    relative_agreement,
)
from evaluators.metrics.points import above_chance
from evaluators.metrics.stitching import (
    Location,
    Placement,
    aligned_correlation,
    canvas_agreement,
    global_shift,
    locate,
    placement,
    plane_identity,
    profile_correlation,
)
from evaluators.model import Deliverable, OutcomeScore, TruthError
from evaluators.outcome.aggregate import harmonic_mean
from evaluators.outcome.files import deliverable_path, write_rows
from evaluators.outcome.parameters import MosaicCytometry
from evaluators.outcome.single_table import Rows, read_single_table
from evaluators.problems import Refusal
from evaluators.readers.channel_stack import ChannelStack
from evaluators.submission import Submission, SubmittedFile
from evaluators.truth import Truth

VERSION = "1"

POPULATIONS = ("WBC", "MCF7")
FEATURES = ("Sigma", "r", "rf", "M")
TABLE = "reference_table_1.csv"
POSITIONS = "tile_positions.csv"
REACH_PX = 40  # how far a tile is looked for
LEAST_CORRELATION = 0.8  # of a tile that was found
BLOCK_PX = 320  # tiles are reduced to about this size before they are looked for
PICTURE_PX = 1500  # and whole planes before they are compared
_MAX_CHECKED = 16

Image = NDArray[np.float32]
Array = NDArray[np.float64]


@dataclass
class _Mosaic:
    """What is needed of a mosaic: its size, the profile in its band, the sum over planes of one channel."""

    planes: int
    channels: int
    rows: int
    columns: int
    profiles: dict[int, Array] = field(default_factory=dict)
    locator: Image | None = None
    faults: dict[int, Refusal] = field(default_factory=dict)


def score(submission: Submission, truth: Truth, parameters: MosaicCytometry) -> OutcomeScore:
    """Score a submission.

    Raises
    ------
    TruthError
        The stitched stack or the table is missing or cannot be read.
    """
    reference = _reference_stack(truth)
    means, effects = _reference_table(truth, parameters)
    tiles = _tile_corners(truth)
    with _open_truth(reference, parameters) as stack:
        true = _survey(stack, parameters, None)
        if true.faults:
            raise TruthError(f"{reference}: {next(iter(true.faults.values()))}")
        file = _choose(submission, parameters, (true.rows, true.columns))
        image = _score_image(submission, parameters, file, stack, true, tiles)
    features = _score_features(submission, parameters, means, effects)
    stitching = 0.5 * image.canvas + 0.5 * float(np.mean(image.profiles))
    outcome = parameters.stitching_weight * stitching + (1.0 - parameters.stitching_weight) * features.alignment
    strict = harmonic_mean(
        [image.placement.pairs, image.content, above_chance(features.direction, 0.5), features.contrast]
    )
    names = parameters.channels
    return OutcomeScore(
        outcome=outcome,
        strict=strict,
        delivered=submission.delivered,
        evaluator="mosaic_cytometry",
        evaluator_version=VERSION,
        parameters=parameters.model_dump(mode="json"),
        metrics={
            "stitching_quality": stitching,
            "canvas": image.canvas,
            "profile": float(np.mean(image.profiles)),
            **{f"profile_{name}": value for name, value in zip(names, image.profiles, strict=True)},
            "placed_tiles": image.placement.share,
            "placed_pairs": image.placement.pairs,
            "content": image.content,
            **{f"content_{name}": value for name, value in zip(names, image.by_channel, strict=True)},
            "feature_alignment": features.alignment,
            "direction_agreement": features.direction,
            "contrast_agreement": features.contrast,
            "effect_size_rank_correlation": features.effect_size,
            "reported_means": features.reported,
        },
        items=[*image.items, *features.items],
        problems=submission.problems.list(),
    )


def replay(truth: Truth, deliverables: Sequence[Deliverable], parameters: MosaicCytometry, folder: Path) -> None:
    """Write the stitched stack and the table of means as a submission."""
    known = {deliverable.id: deliverable for deliverable in deliverables}
    with _open_truth(_reference_stack(truth), parameters) as stack:
        planes = [[stack.plane(z, c) for c in range(stack.channels)] for z in range(stack.planes)]
    tifffile.imwrite(
        deliverable_path(folder, known[parameters.image], "stitched_mosaic.tif"),
        np.asarray(planes),
        imagej=True,
        metadata={"axes": "ZCYX"},
    )
    means, _ = _reference_table(truth, parameters)
    lines = ["population,channel,feature,mean", *(f"{','.join(key)},{value!r}" for key, value in means.items())]
    target = deliverable_path(folder, known[parameters.summary], "summary_statistics.csv")
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


# --- reference data ---------------------------------------------------------------------------------------------


def _reference_stack(truth: Truth) -> Path:
    suffixes = (".lsm", ".tif", ".tiff")
    found = [path for path in sorted(truth.folder.iterdir()) if path.suffix.lower() in suffixes]
    found = [path for path in found if not path.name.startswith(".")]
    named = [path for path in found if "stitch" in path.name.lower()] or found
    if len(named) != 1:
        names = ", ".join(path.name for path in named) or "none"
        raise TruthError(f"{truth.folder}: expected one stitched stack ({', '.join(suffixes)}), found {names}")
    return named[0]


def _open_truth(path: Path, parameters: MosaicCytometry) -> ChannelStack:
    try:
        stack = ChannelStack(path.open("rb"), planes=parameters.planes, channels=len(parameters.channels))
    except (Refusal, OSError) as error:
        raise TruthError(f"{path}: {error}") from error
    if (stack.planes, stack.channels) != (parameters.planes, len(parameters.channels)):
        expected = f"{parameters.planes} planes and {len(parameters.channels)} channels"
        raise TruthError(f"{path}: expected {expected}, found {stack.planes} and {stack.channels}")
    return stack


def _reference_table(
    truth: Truth, parameters: MosaicCytometry
) -> tuple[dict[Key, float], dict[tuple[str, str], float]]:
    """Return the means by population, channel and feature, and the discriminability D of each channel and feature."""
    path = truth.folder / TABLE
    table = truth.texts(path, ["Feature", "WBC_Mean", "MCF7_Mean"], ["D"])
    means: dict[Key, float] = {}
    effects: dict[tuple[str, str], float] = {}
    for index, cells in enumerate(table.rows):
        words = cells["Feature"].split(maxsplit=1)
        channel = _channel(words[0], parameters.channels) if words else None
        feature = _feature(words[1]) if len(words) > 1 else None
        if channel is None or feature is None:
            continue  # combinations by regression
        for population in POPULATIONS:
            means[population, channel, feature] = table.number(index, f"{population}_Mean")
        if "D" in cells and np.isfinite(size := table.number(index, "D")):
            effects[channel, feature] = size
    lacking = [
        f"{channel} {feature}"
        for channel in parameters.channels
        for feature in FEATURES
        for population in POPULATIONS
        if not np.isfinite(means.get((population, channel, feature), np.nan))
    ]
    if lacking:
        raise TruthError(f"{path}: no means of {', '.join(dict.fromkeys(lacking))}")
    return means, effects


def _tile_corners(truth: Truth) -> Array | None:
    """Return where each tile lies in the stitched stack, ``(tiles, 2)`` as y, x, or ``None`` where it is not told."""
    path = truth.folder / POSITIONS
    return truth.numbers(path, ["y", "x"]) if path.is_file() else None


def _blocks(true: _Mosaic, tiles: Array | None, grid: tuple[int, int]) -> list[tuple[slice, slice]]:
    """Return the part of the stitched stack that belongs to each tile, without its rim."""
    canvas = np.array([true.rows, true.columns], float)
    if tiles is None:
        size = canvas / grid
        corners = np.array([(row, column) for row in range(grid[0]) for column in range(grid[1])]) * size
    else:
        corners, size = tiles, canvas - tiles.max(axis=0)
    first = np.clip(np.rint(corners + 0.04 * size), 0, canvas - 1).astype(int)
    last = np.clip(np.rint(corners + 0.96 * size), 1, canvas).astype(int)
    return [(slice(y0, y1), slice(x0, x1)) for (y0, x0), (y1, x1) in zip(first, last, strict=True)]


# --- mosaic -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ImageScores:
    canvas: float
    profiles: list[float]
    placement: Placement
    by_channel: list[float]
    items: list[dict[str, Any]]

    @property
    def content(self) -> float:
        """Every channel is necessary."""
        return harmonic_mean(self.by_channel)


def _choose(submission: Submission, parameters: MosaicCytometry, canvas: tuple[int, int]) -> SubmittedFile | None:
    """Return the file that is the mosaic; name every file that is not, and refuse two that could be."""
    candidates = submission.candidates(parameters.image)
    if not candidates:
        submission.missing(parameters.image)
        return None
    ranked: list[tuple[tuple[bool, int], SubmittedFile]] = []
    for file in candidates[:_MAX_CHECKED]:
        try:
            with ChannelStack(file.open(), planes=parameters.planes, channels=len(parameters.channels)) as stack:
                right = (stack.planes, stack.channels) == (parameters.planes, len(parameters.channels))
                ranked.append(((not right, file.depth), file))
        except Refusal as refusal:
            submission.problems.refused(f"{parameters.image}: {file.path}", refusal)
    if not ranked:
        return None
    ranked.sort(key=lambda entry: entry[0])
    best = [file for rank, file in ranked if rank == ranked[0][0]]
    others = [file.path for _, file in ranked if file not in best]
    if len(best) > 1 and len({_digest(file) for file in best}) > 1:
        paths = ", ".join(file.path for file in best[:4])
        submission.problems.add(
            "ambiguous_files", parameters.image, f"{paths} differ and could all be the mosaic; hand in one"
        )
        return None
    if others:
        submission.problems.add(
            "duplicate_file", parameters.image, f"{best[0].path} is scored, not {', '.join(others[:3])}"
        )
    return best[0]


def _digest(file: SubmittedFile) -> str:
    with file.open() as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _band(rows: int, height: int) -> slice:
    first = max(0, rows // 2 - height // 2)
    return slice(first, min(rows, first + height))


def _survey(stack: ChannelStack, parameters: MosaicCytometry, band: slice | None) -> _Mosaic:
    """Read a stack once: its profile per channel over a band of rows, and the sum over planes for finding tiles."""
    found = _Mosaic(stack.planes, stack.channels, stack.rows, stack.columns)
    band = band or _band(stack.rows, parameters.band_rows)
    locator = parameters.channels.index(parameters.locator)
    for channel in range(min(stack.channels, len(parameters.channels))):
        profile = np.zeros(stack.columns)
        try:
            for z in range(stack.planes):
                plane = stack.plane(z, channel)
                rows = plane[max(0, band.start) : max(0, band.stop)]
                if len(rows):
                    profile += rows.mean(axis=0, dtype=np.float64) / stack.planes
                if channel == locator and stack.channels == len(parameters.channels):
                    found.locator = plane.astype(np.float32) + (0 if found.locator is None else found.locator)
        except Refusal as refusal:
            found.faults[channel] = refusal
            continue
        found.profiles[channel] = profile
    if locator in found.faults:
        found.locator = None
    return found


def _score_image(
    submission: Submission,
    parameters: MosaicCytometry,
    file: SubmittedFile | None,
    stack: ChannelStack,
    true: _Mosaic,
    tiles: Array | None,
) -> _ImageScores:
    channels = len(parameters.channels)
    blocks = _blocks(true, tiles, parameters.grid)
    nothing = placement([None] * len(blocks), parameters.tile_tolerance_px, LEAST_CORRELATION)
    worst = _ImageScores(0.0, [0.0] * channels, nothing, [0.0] * channels, [])
    if file is None:
        return worst
    try:
        with ChannelStack(file.open(), planes=parameters.planes, channels=channels) as own:
            found = _survey(own, parameters, None)
            shift = None
            if found.locator is not None and true.locator is not None:
                shift = global_shift(true.locator, found.locator)
            locations = _locations(blocks, true, found, shift)
            placed = placement(locations, parameters.tile_tolerance_px, LEAST_CORRELATION)
            if placed.shift is not None and shift is not None:
                shift = (shift[0] + round(placed.shift[0]), shift[1] + round(placed.shift[1]))
            right = (own.planes, own.channels) == (parameters.planes, channels)
            content = _content(own, stack, shift) if right and shift is not None else np.zeros((0, channels))
            profiles = _profiles(own, parameters, true, found, shift)
    except Refusal as refusal:
        submission.problems.refused(f"{parameters.image}: {file.path}", refusal)
        return worst
    where = f"{parameters.image}: {file.path}"
    for fault in found.faults.values():
        submission.problems.refused(where, fault)
    if not right:
        expected = f"{parameters.planes} planes and {channels} channels"
        submission.problems.add(
            "wrong_shape", where, f"has {own.planes} planes and {own.channels} channels; expected {expected}"
        )
    canvas = 0.0
    if right:
        sizes = ((true.rows, true.columns), (found.rows, found.columns))
        canvas = canvas_agreement(*sizes, parameters.canvas_tolerance_px)
    by_channel = [harmonic_mean(planes) for planes in content.T.tolist()] if len(content) else [0.0] * channels
    items = [
        {
            "tile": k,
            "found": location is not None and location.correlation >= LEAST_CORRELATION,
            "correlation": None if location is None else location.correlation,
            "error_px": float(error) if np.isfinite(error) else None,
        }
        for k, (location, error) in enumerate(zip(locations, placed.errors, strict=True))
    ]
    return _ImageScores(canvas, profiles, placed, by_channel, items)


def _locations(
    blocks: Sequence[tuple[slice, slice]], true: _Mosaic, found: _Mosaic, shift: tuple[int, int] | None
) -> list[Location | None]:
    """Return where the content of each tile lies in the submitted mosaic, relative to the shift of the whole."""
    if shift is None or true.locator is None or found.locator is None:
        return [None] * len(blocks)
    step = max(1, min(true.rows, true.columns, *(s.stop - s.start for block in blocks for s in block)) // BLOCK_PX)
    return [
        locate(
            true.locator[block],
            found.locator,
            (block[0].start + shift[0], block[1].start + shift[1]),
            REACH_PX,
            step=step,
        )
        for block in blocks
    ]


def _profiles(
    own: ChannelStack, parameters: MosaicCytometry, true: _Mosaic, found: _Mosaic, shift: tuple[int, int] | None
) -> list[float]:
    """Return the correlation of each channel's profile, stretched (as published) or aligned, whichever is higher."""
    aligned: dict[int, Array] = {}
    if shift is not None and ((true.rows, true.columns) != (found.rows, found.columns) or shift != (0, 0)):
        band = _band(true.rows, parameters.band_rows)
        aligned = _survey(own, parameters, slice(band.start + shift[0], band.stop + shift[0])).profiles
    result = []
    for channel in range(len(parameters.channels)):
        value = 0.0
        if channel in found.profiles:
            value = profile_correlation(true.profiles[channel], found.profiles[channel])
        if channel in aligned and shift is not None:
            value = max(value, aligned_correlation(true.profiles[channel], aligned[channel], shift[1]))
        result.append(value)
    return result


def _content(own: ChannelStack, stack: ChannelStack, shift: tuple[int, int]) -> Array:
    """Return how well each plane of each channel shows its own reference, ``(planes, channels)``."""
    step = max(2, round(min(stack.rows, stack.columns) / PICTURE_PX))
    true, found = [], []
    for z in range(stack.planes):
        for channel in range(stack.channels):
            plane = stack.plane(z, channel)
            true.append(_picture(plane, (0, 0), plane.shape, step))
            try:
                found.append(_picture(own.plane(z, channel), shift, plane.shape, step))
            except Refusal:  # named when the profile was read
                found.append(np.zeros_like(true[-1]))
    scores = plane_identity(np.asarray(true), np.asarray(found))
    return scores.reshape(stack.planes, stack.channels)


def _picture(plane: NDArray[Any], corner: tuple[int, int], shape: tuple[int, ...], step: int) -> Array:
    """Return a part of a plane, 0 beyond its edge, reduced by block means, as one line of pixels."""
    part = np.zeros(shape, np.float32)
    rows = slice(max(0, corner[0]), min(plane.shape[0], corner[0] + shape[0]))
    columns = slice(max(0, corner[1]), min(plane.shape[1], corner[1] + shape[1]))
    if rows.start < rows.stop and columns.start < columns.stop:
        target = (
            slice(rows.start - corner[0], rows.stop - corner[0]),
            slice(columns.start - corner[1], columns.stop - corner[1]),
        )
        part[target] = plane[rows, columns]
    height, width = (length // step for length in shape)
    blocks = part[: height * step, : width * step].reshape(height, step, width, step)
    return np.asarray(blocks.mean(axis=(1, 3), dtype=np.float64).ravel())


# --- features ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _FeatureScores:
    alignment: float
    direction: float
    contrast: float
    effect_size: float | None
    reported: int
    items: list[dict[str, Any]]


def _score_features(
    submission: Submission,
    parameters: MosaicCytometry,
    references: Mapping[Key, float],
    effects: Mapping[tuple[str, str], float],
) -> _FeatureScores:
    rows = read_single_table(
        submission, parameters.summary, ["population", "channel", "feature", "mean"], ["sd", "n"], mergeable=True
    )
    means: dict[Key, float] = {}
    spreads: dict[Key, float] = {}
    if rows is not None:
        means, spreads = _read_summary(submission, parameters, rows)
        _fill_from_cells(submission, parameters, means)
    pairs = [(channel, feature) for channel in parameters.channels for feature in FEATURES]
    six = [(population, *pair) for pair in parameters.headline for population in POPULATIONS]
    nearness = {key: relative_agreement(means.get(key), references[key]) for key in six}
    items = [
        {
            "population": key[0],
            "channel": key[1],
            "feature": key[2],
            "mean": means.get(key),
            "reference": reference,
            "agreement": nearness.get(key),
        }
        for key, reference in references.items()
    ]
    return _FeatureScores(
        alignment=float(np.mean(list(nearness.values()))),
        direction=direction_agreement(means, references, pairs, POPULATIONS),
        contrast=contrast_agreement(means, references, parameters.headline, POPULATIONS),
        effect_size=effect_size_agreement(means, spreads, effects, POPULATIONS),
        reported=len(means),
        items=items,
    )


def _read_summary(
    submission: Submission, parameters: MosaicCytometry, rows: Rows
) -> tuple[dict[Key, float], dict[Key, float]]:
    """Return means and standard deviations; name rows that cannot be understood and keys with two different values."""
    means: dict[Key, float] = {}
    spreads: dict[Key, float] = {}
    twice: set[Key] = set()
    values = rows.numbers("mean").tolist()
    deviations = rows.numbers("sd").tolist() if rows.has("sd") else [float("nan")] * len(values)
    for cells, place, value, deviation in zip(rows.cells, rows.places, values, deviations, strict=True):
        population = _population(cells["population"])
        channel, feature = _channel(cells["channel"], parameters.channels), _feature(cells["feature"])
        if population is None or channel is None or feature is None:
            words = ", ".join(cells[name] for name in ("population", "channel", "feature"))
            submission.problems.add("unknown_row", place, f"cannot be told what this is: {words}")
            continue
        if not np.isfinite(value):
            continue
        key = (population, channel, feature)
        if key in means and means[key] != value:
            twice.add(key)
            submission.problems.add("duplicate_row", place, f"{' '.join(key)} is there twice with different means")
            continue
        if feature == "Sigma" and value > 300.0:
            message = f"{' '.join(key)} is {value:g}; Sigma is 10 log10 of the counts (dB), not the counts"
            submission.problems.add("wrong_unit", place, message)
        means[key] = value
        if np.isfinite(deviation):
            spreads[key] = deviation
    for key in twice:
        del means[key]
    return means, spreads


def _fill_from_cells(submission: Submission, parameters: MosaicCytometry, means: dict[Key, float]) -> None:
    """Take means that the summary lacks from the table of cells, where one was delivered."""
    if parameters.cells is None:
        return
    columns = {
        f"{channel}_{feature}{unit}": (channel, feature)
        for channel in parameters.channels
        for feature, units in _UNITS.items()
        for unit in units
    }
    rows = read_single_table(submission, parameters.cells, ["cell_type"], list(columns), mergeable=False)
    if rows is None:
        return
    kinds = [_population(cells["cell_type"]) for cells in rows.cells]
    filled = 0
    for name, (channel, feature) in columns.items():
        if not rows.has(name):
            continue
        values = rows.numbers(name)
        for population in POPULATIONS:
            key = (population, channel, feature)
            own = values[[kind == population for kind in kinds]]
            own = own[np.isfinite(own)]
            if key not in means and len(own):
                means[key] = float(own.mean())
                filled += 1
    if filled:
        message = f"{filled} means that the summary lacks are taken from here"
        submission.problems.add("filled_from_cells", parameters.cells, message)


_UNITS: dict[str, tuple[str, ...]] = {
    "Sigma": ("", "_dB", "_dBct"),
    "r": ("", "_um"),
    "rf": ("", "_per_um", "_1_um", "_inv_um"),
    "M": ("",),
}
_POPULATION_WORDS = {
    "WBC": ("wbc", "leuko", "leuco", "white", "blood", "cd45"),
    "MCF7": ("mcf", "cancer", "tumor", "tumour", "ctc", "epithel", "breast"),
}
_CHANNEL_WORDS = {
    "Bodipy": ("bodipy", "lipid"),
    "PanCK": ("panck", "keratin", "568"),
    "DAPI": ("dapi", "dna", "nucle", "hoechst"),
    "CD45": ("cd45", "leuko", "leuco", "647"),
}


def _population(text: str) -> str | None:
    return _one_of(text, _POPULATION_WORDS)


def _channel(text: str, channels: Sequence[str]) -> str | None:
    known = {name: (name.lower(), *_CHANNEL_WORDS.get(name, ())) for name in channels}
    return _one_of(text, known)


def _one_of(text: str, words: Mapping[str, Sequence[str]]) -> str | None:
    """Return the name one of whose words is part of a text, without regard to case and punctuation; not two of them."""
    plain = re.sub(r"[^a-z0-9]", "", text.lower())
    found = [name for name, parts in words.items() if any(part in plain for part in parts)]
    return found[0] if len(found) == 1 else None


def _feature(text: str) -> str | None:
    """Return the feature that a label means: ``r_um``, ``spatial frequency``, ``Sigma (dB)``, ``M = r*rf``."""
    lowered = re.sub(r"\(.*?\)|\[.*?\]|=.*", " ", text.lower())
    parts = set(re.findall(r"[a-z]+", lowered))
    if re.search(r"(?<![a-z])r[ _-]?f(?![a-z])", lowered) or any("freq" in part for part in parts):
        return "rf"
    if parts & {"m", "product"}:
        return "M"
    if "sigma" in parts or parts & {"sum", "total", "intensity", "signal", "σ"} or "σ" in lowered:
        return "Sigma"
    if parts & {"r", "radius", "size", "spatial"}:
        return "r"
    return None


def as_reference(submission: Submission, given: Truth, parameters: MosaicCytometry, folder: Path) -> Path | None:
    """Write a submission as the reference data that others are compared with; see :mod:`evaluators.agreement`."""
    file = _choose(submission, parameters, (0, 0))
    rows = read_single_table(
        submission, parameters.summary, ["population", "channel", "feature", "mean"], ["sd", "n"], mergeable=True
    )
    if file is None or rows is None:
        raise TruthError(f"{parameters.image if file is None else parameters.summary}: nothing to compare with")
    with file.open() as source, (folder / "stitched.tif").open("wb") as target:
        shutil.copyfileobj(source, target)
    means, _spreads = _read_summary(submission, parameters, rows)
    _fill_from_cells(submission, parameters, means)
    table = [
        (f"{channel} {feature}", *(means.get((population, channel, feature), "") for population in POPULATIONS))
        for channel in parameters.channels
        for feature in FEATURES
    ]
    write_rows(folder / TABLE, ("Feature", *(f"{population}_Mean" for population in POPULATIONS)), table)
    return None
