"""Puncta per nucleus: one table of nuclei of all volumes, with a place and a number of puncta each.

*Outcome* (published): mean over conditions of 1 - error / sum of true counts, at least 0. The error is the difference
of counts of paired nuclei, the whole count of true nuclei without partner, and that of submitted ones without partner.
Twice the counts thus score 0, as does nothing, and nuclei without puncta do not count at all.

*Strict*: harmonic mean of nuclei without puncta (F1: right place and right in having none), nuclei with puncta (the
same), counts (sum of the smaller over sum of the larger counts, above what is reached by not knowing which nucleus has
how many; mean over conditions) and the order of the conditions' means (pairs in order minus pairs out of order).

Nuclei are paired optimally and in µm, within their image. Images are known by file name, so that a wrong condition
beside a right name is only reported. A row without a place, a count or an image belongs to no nucleus: its count is
surplus.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluators.metrics.agreement import pearson
from evaluators.metrics.count_agreement import blind_overlap, order_agreement, overlap_share, relative_error
from evaluators.metrics.points import PointMatching, above_chance, match_points
from evaluators.model import Deliverable, OutcomeScore, TruthError
from evaluators.outcome.aggregate import harmonic_mean
from evaluators.outcome.files import deliverable_path, write_rows
from evaluators.outcome.parameters import PunctaPerNucleus
from evaluators.outcome.single_table import Rows, read_single_table
from evaluators.submission import Submission
from evaluators.truth import Truth

VERSION = "1"

CONDITION, IMAGE, COUNT = "condition", "Image name", "number of GFP puncta"
AXES = ("z", "y", "x")
COLUMNS = (CONDITION, IMAGE, *AXES, COUNT)
_VOLUMES = ("ROI volume pix", "ROI volume um")
_NO_IMAGE = -1
_MOST_PUNCTA = 1e6

Index = NDArray[np.int64]
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Nuclei:
    """Nuclei of one side: number of the image (-1: none), place (z, y, x; NaN: none) and count (NaN: none)."""

    images: Index
    places: Values
    counts: Values


@dataclass(frozen=True)
class Reference:
    """The true nuclei, and what their images are called."""

    nuclei: Nuclei
    names: list[str]  # of the images
    condition_of: Index  # number of each image's condition
    conditions: list[str]
    spacing_um: tuple[float, float, float]


def score(submission: Submission, truth: Truth, parameters: PunctaPerNucleus) -> OutcomeScore:
    """Score a submission.

    Raises
    ------
    TruthError
        The reference table is missing or cannot be read.
    """
    reference = _reference(truth, parameters)
    rows = read_single_table(submission, parameters.nuclei, COLUMNS, mergeable=True)
    found = None if rows is None else _submitted(submission, parameters, reference, rows)
    nothing = Nuclei(np.zeros(0, np.int64), np.zeros((0, 3)), np.zeros(0))
    surplus = np.zeros(len(reference.conditions)) if found is None else found[1]
    comparison = _Comparison(reference, nothing if found is None else found[0], surplus, parameters)
    if found is not None:
        _name_conventions(submission, comparison)
    return _result(submission, comparison, scored=found is not None)


def replay(truth: Truth, deliverables: Sequence[Deliverable], parameters: PunctaPerNucleus, folder: Path) -> None:
    """Write the reference as a submission."""
    deliverable = next(one for one in deliverables if one.id == parameters.nuclei)
    _reference(truth, parameters)
    deliverable_path(folder, deliverable, "cell_quants.csv").write_bytes(_reference_path(truth).read_bytes())


def image_key(name: str) -> str:
    """Return what identifies an image: its file name without folders, extensions, ``_trimmed``, case and punctuation.

    Examples
    --------
    >>> image_key("WT/slide.sld - Position 1.tif_trimmed.tif"), image_key("Slide.sld - position 1")
    ('slidesldposition1', 'slidesldposition1')
    """
    name = re.split(r"[/\\]", name.strip())[-1].lower()
    name = re.sub(r"(_trimmed|\.ome|\.tiff?)+$", "", name)
    return "".join(mark for mark in name if mark.isalnum())


def _reference_path(truth: Truth) -> Path:
    """Return ``cell_quants.csv``, the shallowest, else the shallowest table with that in its name."""
    found = [path for path in truth.folder.rglob("*.csv") if "cell_quants" in path.name.lower() and path.name[0] != "."]
    ranked = sorted(found, key=lambda path: (path.name.lower() != "cell_quants.csv", len(path.parts), path.as_posix()))
    if not ranked:
        raise TruthError(f"{truth.folder}: no cell_quants.csv")
    return ranked[0]


def _reference(truth: Truth, parameters: PunctaPerNucleus) -> Reference:
    path = _reference_path(truth)
    values = truth.numbers(path, [*AXES, COUNT])
    table = truth.texts(path, [CONDITION, IMAGE], _VOLUMES)
    if not len(values):
        raise TruthError(f"{path}: no nucleus")
    if (values[:, 3] < 0).any():
        raise TruthError(f"{path}: a negative count")
    keys = [image_key(row[IMAGE]) for row in table.rows]
    names = sorted(set(keys))
    conditions = sorted({row[CONDITION] for row in table.rows})
    condition_of = np.full(len(names), -1, np.int64)
    for key, row in zip(keys, table.rows, strict=True):
        number, own = names.index(key), conditions.index(row[CONDITION])
        if condition_of[number] not in (-1, own):
            raise TruthError(f"{path}: image {row[IMAGE]} is in two conditions")
        condition_of[number] = own
    images = np.array([names.index(key) for key in keys], np.int64)
    spacing = np.array(parameters.voxel_um)
    sizes = np.array([[table.number(row, column) for column in _VOLUMES] for row in range(len(table.rows))])
    known = np.isfinite(sizes).all(axis=1) & (sizes > 0).all(axis=1)
    if known.any():  # the aspect is ours, the volume of a voxel that of the reference
        voxel = float(np.median(sizes[known, 1] / sizes[known, 0]))
        spacing = spacing * (voxel / np.prod(spacing)) ** (1.0 / 3.0)
    z, y, x = (float(step) for step in spacing)
    return Reference(Nuclei(images, values[:, :3], values[:, 3]), names, condition_of, conditions, (z, y, x))


def _canonical(condition: str, words: Mapping[str, Sequence[str]]) -> str:
    """Return what a condition is called: the first name with a word in it, else the text without case and punctuation.

    Short words (``wt``) must stand alone, so that ``growth`` is none of them.
    """
    parts = re.findall(r"[a-z0-9]+", condition.lower())
    compact = "".join(parts)
    for name, marks in words.items():
        if any(mark in parts or (len(mark) > 3 and mark in compact) for mark in marks):
            return name
    return compact


def _find_images(rows: Rows, reference: Reference, words: Mapping[str, Sequence[str]]) -> tuple[Index, Index]:
    """Return image and condition of each row, -1 where it names none."""
    by_key = {key: number for number, key in enumerate(reference.names)}
    by_condition = {_canonical(name, words): number for number, name in enumerate(reference.conditions)}
    known: dict[tuple[str, str], tuple[int, int]] = {}
    for cells in rows.cells:
        label = (cells[IMAGE], cells[CONDITION])
        if label in known:
            continue
        key, condition = image_key(cells[IMAGE]), by_condition.get(_canonical(cells[CONDITION], words), -1)
        image = by_key.get(key, _NO_IMAGE)
        if image == _NO_IMAGE and key and condition >= 0:  # "Position 1" beside its condition
            fitting = [
                number
                for number, name in enumerate(reference.names)
                if reference.condition_of[number] == condition
                and name.endswith(key)
                and not (key[0].isdigit() and name[: -len(key)][-1:].isdigit())
            ]
            image = fitting[0] if len(fitting) == 1 else _NO_IMAGE
        known[label] = image, condition
    found = [known[cells[IMAGE], cells[CONDITION]] for cells in rows.cells]
    pairs = np.array(found, np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _submitted(
    submission: Submission, parameters: PunctaPerNucleus, reference: Reference, rows: Rows
) -> tuple[Nuclei, Values] | None:
    """Return the nuclei that have an image, a place and a count, and the surplus of the others per condition."""
    problems, where = submission.problems, parameters.nuclei
    if not rows.cells:
        problems.add("no_rows", where, "the table has a header and no row")
        return None
    images, conditions = _find_images(rows, reference, parameters.condition_words)
    places = np.column_stack([rows.numbers(axis) for axis in AXES])
    counts = rows.numbers(COUNT)
    unusable = np.asarray(~np.isfinite(counts) | (counts < 0) | (counts > _MOST_PUNCTA))
    placeless = np.asarray(~np.isfinite(places).all(axis=1))
    faults: Mapping[str, tuple[NDArray[np.bool_], str]] = {
        "unknown_image": (images < 0, "name no image of this task"),
        "invalid_place": (placeless, "have no place in voxels"),
        "invalid_count": (unusable, "have no number of puncta of at least 0"),
    }
    for code, (rows_at_fault, what) in faults.items():
        if rows_at_fault.any():
            first = rows.places[int(np.argmax(rows_at_fault))]
            problems.add(
                code, where, f"{int(rows_at_fault.sum())} rows {what} and are no nucleus; the first is {first}"
            )
    named = (images >= 0) & (conditions >= 0)
    wrong = named & (reference.condition_of[np.maximum(images, 0)] != conditions)
    if wrong.any():
        first = rows.places[int(np.argmax(wrong))]
        message = f"{int(wrong.sum())} rows give another condition than their image's; the image counts; see {first}"
        problems.add("wrong_condition", where, message)
    lost = np.zeros(len(counts), bool)
    for rows_at_fault, _ in faults.values():
        lost |= rows_at_fault
    surplus = np.zeros(len(reference.conditions))
    for row in np.flatnonzero(lost & ~unusable):
        own = reference.condition_of[images[row]] if images[row] >= 0 else conditions[row]
        if own >= 0:
            surplus[own] += counts[row]
        else:
            surplus += counts[row] / len(surplus)
    return Nuclei(images[~lost], places[~lost], counts[~lost]), surplus


class _Comparison:
    """Submitted against true nuclei."""

    def __init__(self, reference: Reference, found: Nuclei, surplus: Values, parameters: PunctaPerNucleus) -> None:
        self.reference = reference
        self.truth = reference.nuclei
        self.found = found
        self.lost = surplus
        self.parameters = parameters
        self.near = self.match(parameters.distance_um)
        self.close = self.match(parameters.strict_distance_um)

    def match(self, distance: float, axes: Sequence[int] = (0, 1, 2), *, in_um: bool = False) -> PointMatching:
        """Match in µm; ``axes`` and ``in_um`` try other conventions of the submitted places."""
        step = np.array(self.reference.spacing_um)
        return match_points(
            self.truth.places * step,
            self.found.places[:, list(axes)] * (1.0 if in_um else step),
            distance,
            truth_groups=self.truth.images,
            predicted_groups=self.found.images,
        )

    def paired(self, matching: PointMatching, condition: int) -> tuple[Values, Values, float]:
        """Return true and submitted counts of a condition's true nuclei, and the counts that belong to none."""
        submitted = np.zeros(len(self.truth.counts))
        submitted[matching.truth_index] = self.found.counts[matching.predicted_index]
        free = np.ones(len(self.found.counts), bool)
        free[matching.predicted_index] = False
        own = self.reference.condition_of[self.truth.images] == condition
        of_found = self.reference.condition_of[self.found.images] == condition
        surplus = float(self.found.counts[free & of_found].sum()) + float(self.lost[condition])
        return self.truth.counts[own], submitted[own], surplus

    @cached_property
    def scores(self) -> Values:
        """Published score of each condition; NaN without a true punctum and without a claimed one."""
        errors = [relative_error(*self.paired(self.near, number)) for number in range(len(self.reference.conditions))]
        scores = np.clip(1.0 - np.array(errors), 0.0, 1.0)
        empty = [
            not self.truth.counts[self.reference.condition_of[self.truth.images] == number].any()
            for number in range(len(scores))
        ]
        return np.where(np.array(empty) & (scores == 1.0), np.nan, scores)

    @property
    def outcome(self) -> float:
        """Mean over conditions; one without true puncta takes part only where some were claimed."""
        return float(np.nanmean(self.scores)) if np.isfinite(self.scores).any() else float(len(self.found.counts) > 0)

    @cached_property
    def counts(self) -> float:
        """Overlap of counts above chance, mean over conditions."""
        values = []
        for number in range(len(self.reference.conditions)):
            true, submitted, surplus = self.paired(self.close, number)
            values.append(above_chance(overlap_share(true, submitted, surplus), blind_overlap(true)))
        return float(np.mean(values))

    def state_f1(self, *, bearing: bool) -> float | None:
        """F1 of nuclei with (without) puncta: at the place of one, and alike; ``None`` where truth has none."""
        one = (self.truth.counts >= self.parameters.bearing) == bearing
        other = (self.found.counts >= self.parameters.bearing) == bearing
        if not one.any():
            return None
        hits = int((one[self.close.truth_index] & other[self.close.predicted_index]).sum())
        return 2.0 * hits / (int(one.sum()) + int(other.sum()))

    def means(self, nuclei: Nuclei) -> Values:
        """Mean count of each condition; NaN without a nucleus."""
        own = self.reference.condition_of[nuclei.images]
        number = np.bincount(own, minlength=len(self.reference.conditions))
        with np.errstate(invalid="ignore"):
            return np.asarray(np.bincount(own, nuclei.counts, len(number)) / number)

    @cached_property
    def order(self) -> float | None:
        """Agreement of the order of the conditions' means."""
        return order_agreement(self.means(self.truth), self.means(self.found))

    @property
    def strict(self) -> float:
        """The strict score."""
        order = None if self.order is None else max(0.0, self.order)
        parts = [self.counts, self.state_f1(bearing=True), self.state_f1(bearing=False), order]
        return harmonic_mean([part for part in parts if part is not None])


def _name_conventions(submission: Submission, comparison: _Comparison) -> None:
    """Name mistakes of convention that explain a low score."""
    problems, where = submission.problems, comparison.parameters.nuclei
    reference, found = comparison.reference, comparison.found
    present = np.unique(found.images)
    if len(present) < len(reference.names):
        lacking = [name for number, name in enumerate(reference.names) if number not in present]
        shown = ", ".join(lacking[:3])
        problems.add("missing_images", where, f"{len(lacking)} of {len(reference.names)} images have no row: {shown}")
    pairs = comparison.close.true_positives
    enough = max(10, pairs + pairs // 5)
    distance = comparison.parameters.strict_distance_um
    for axes, meaning in (((0, 2, 1), "x and y"), ((2, 1, 0), "z and x")):
        if comparison.match(distance, axes).true_positives > enough:
            problems.add("axes_swapped", where, f"more nuclei match with {meaning} exchanged")
    if comparison.match(distance, in_um=True).true_positives > enough:
        problems.add("units", where, "places seem to be in micrometres; voxels are wanted")


def _result(submission: Submission, comparison: _Comparison, *, scored: bool) -> OutcomeScore:
    reference, near = comparison.reference, comparison.near
    true_means, means = comparison.means(comparison.truth), comparison.means(comparison.found)
    pairs = comparison.truth.counts[near.truth_index], comparison.found.counts[near.predicted_index]
    items = []
    for number, name in enumerate(reference.conditions):
        true, submitted, surplus = comparison.paired(near, number)
        own = comparison.scores[number]
        items.append(
            {
                "condition": name,
                "score": None if np.isnan(own) else float(own),
                "true_nuclei": len(true),
                "true_mean": float(true_means[number]),
                "predicted_mean": None if np.isnan(means[number]) else float(means[number]),
                "count_overlap": overlap_share(true, submitted, surplus),
                "count_overlap_chance": blind_overlap(true),
                "surplus": surplus,
            }
        )
    return OutcomeScore(
        outcome=comparison.outcome if scored else 0.0,
        strict=comparison.strict if scored else 0.0,
        delivered=submission.delivered,
        evaluator="puncta_per_nucleus",
        evaluator_version=VERSION,
        parameters=comparison.parameters.model_dump(mode="json"),
        metrics={
            "count_overlap": float(np.mean([float(str(item["count_overlap"])) for item in items])),
            "count_overlap_above_chance": comparison.counts,
            "nucleus_f1": near.f1,
            "nucleus_f1_strict_distance": comparison.close.f1,
            "f1_with_puncta": comparison.state_f1(bearing=True),
            "f1_without_puncta": comparison.state_f1(bearing=False),
            "condition_order": comparison.order,
            "per_nucleus_pearson": pearson(*pairs),
            "per_nucleus_rmse": float(np.sqrt(np.mean((pairs[0] - pairs[1]) ** 2))) if len(pairs[0]) else None,
            "distance_um": near.mean_distance,
            "true_nuclei": len(comparison.truth.counts),
            "predicted_nuclei": len(comparison.found.counts),
            "matched_nuclei": near.true_positives,
            "true_puncta": float(comparison.truth.counts.sum()),
            "predicted_puncta": float(comparison.found.counts.sum() + comparison.lost.sum()),
        },
        items=items,
        problems=submission.problems.list(),
    )


def as_reference(submission: Submission, given: Truth, parameters: PunctaPerNucleus, folder: Path) -> Path | None:
    """Write a submission as the reference data that others are compared with; see :mod:`evaluators.agreement`."""
    rows = read_single_table(submission, parameters.nuclei, COLUMNS, mergeable=True)
    if rows is None or not rows.cells:
        raise TruthError(f"{parameters.nuclei}: no row")
    named = [(cells[CONDITION], cells[IMAGE]) for cells in rows.cells]
    if given.input_dir is not None:
        images = _given_images(given.input_dir)
        numbers, _conditions = _find_images(rows, images, parameters.condition_words)
        labels = [(images.conditions[own], name) for name, own in zip(images.names, images.condition_of, strict=True)]
        named = [labels[number] if number >= 0 else ("", "") for number in numbers]
    values = np.column_stack([*(rows.numbers(axis) for axis in AXES), rows.numbers(COUNT)])
    whole = np.isfinite(values).all(axis=1) & (values[:, 3] >= 0) & (values[:, 3] <= _MOST_PUNCTA)
    table = [
        (*names, *numbers)
        for names, numbers, good in zip(named, values.tolist(), whole, strict=True)
        if good and names[1]
    ]
    write_rows(folder / "cell_quants.csv", COLUMNS, table)
    return None


def _given_images(folder: Path) -> Reference:
    """Return the images of an input folder, each below the folder of its condition, without any nucleus."""
    paths = [path for path in sorted(folder.rglob("*.tif*")) if not path.name.startswith(".")]
    conditions = sorted({path.parent.name for path in paths})
    own = np.array([conditions.index(path.parent.name) for path in paths], np.int64)
    nothing = Nuclei(np.zeros(0, np.int64), np.zeros((0, 3)), np.zeros(0))
    return Reference(nothing, [image_key(path.name) for path in paths], own, conditions, (1.0, 1.0, 1.0))
