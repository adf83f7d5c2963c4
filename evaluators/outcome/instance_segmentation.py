"""Instance segmentation: one label image per input image, in one or several compartments.

*Outcome* (published): mean over compartments of the mean over images of foreground Dice. *Strict*: harmonic mean of the
panoptic quality of each compartment and, where labels link two compartments, of the agreement of ids above chance.
Foreground Dice does not see whether objects are told apart; strict does.

An image that is missing, ambiguous, unreadable, of another shape, or does not hold labels scores 0 in every measure. An
image that is empty in both scores 1. A compartment without any file is a compartment of missing images.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluators.metrics.instances import (
    IOU_THRESHOLDS,
    aggregated_jaccard,
    average_precision,
    boundary_f1,
    id_agreement,
    match_instances,
    panoptic_quality,
)
from evaluators.metrics.overlap import OverlapTable, foreground_dice, foreground_iou, overlap_table
from evaluators.metrics.points import above_chance
from evaluators.model import Deliverable, OutcomeScore, TruthError
from evaluators.outcome.aggregate import bootstrap_interval, harmonic_mean
from evaluators.outcome.files import deliverable_path, own_files, write_labels
from evaluators.outcome.measurements import compare_measurements
from evaluators.outcome.parameters import InstanceSegmentation
from evaluators.pairing import Pairing, pair_files
from evaluators.problems import Refusal
from evaluators.readers.tiff import TiffImage, as_labels, check_shape
from evaluators.submission import Submission, SubmittedFile, stem_of
from evaluators.truth import Truth

VERSION = "1"

MAX_OBJECTS = 20_000  # per image; per plane of a volume

Labels = NDArray[np.integer]

_SCORES = ("dice", "iou", *(f"ap_{round(100 * t)}" for t in IOU_THRESHOLDS), "pq", "sq", "rq", "aji")
_GROUP_SCORES = {"dice", "ap_50", "pq", "boundary_f1"}
_SIZES = ("small", "medium", "large")


def score(submission: Submission, truth: Truth, parameters: InstanceSegmentation) -> OutcomeScore:
    """Score a submission.

    Raises
    ------
    TruthError
        A reference is missing or cannot be read.
    """
    references = _references(truth, parameters)
    stems = list(next(iter(references.values())))
    shapes: dict[tuple[str, str], tuple[int, ...]] = {}
    for compartment, files in references.items():
        for stem, path in files.items():
            with truth.open_image(path) as image:
                shapes[compartment, stem] = image.header.shape
    pairings = {compartment: _pair(submission, compartment, parameters, shapes, stems) for compartment in references}
    images: list[_Image] = []
    agreements: list[float] = []
    for stem in stems:
        views = {compartment: _View(truth.labels(references[compartment][stem])) for compartment in references}
        for compartment, view in views.items():
            images.append(_score_image(submission, parameters, compartment, stem, view, pairings[compartment]))
        if parameters.linked_ids is not None:
            agreement = _agreement(*(views[compartment] for compartment in parameters.linked_ids))
            if agreement is not None:
                agreements.append(agreement)
    return _result(submission, parameters, images, agreements, pairings)


def replay(truth: Truth, deliverables: Sequence[Deliverable], parameters: InstanceSegmentation, folder: Path) -> None:
    """Write the references as a submission."""
    known = {deliverable.id: deliverable for deliverable in deliverables}
    for compartment, files in _references(truth, parameters).items():
        for path in files.values():
            name = f"{stem_of(path.name)}.tif"
            write_labels(
                deliverable_path(folder, known[parameters.compartments[compartment]], name), truth.labels(path)
            )


@dataclass
class _View:
    """One compartment of one image: truth, what was submitted, and their overlap."""

    truth: Labels
    predicted: Labels | None = None
    table: OverlapTable | None = None


@dataclass(frozen=True)
class _Image:
    """Scores of one compartment of one image."""

    stem: str
    compartment: str
    status: str
    scores: Mapping[str, float]
    truth_sizes: NDArray[np.int64]
    found: NDArray[np.bool_]
    matched: NDArray[np.int64]  # (k, 2): label of each found object, and its true size
    predicted_objects: int
    truth_foreground: float
    predicted_foreground: float


def _names(parameters: InstanceSegmentation) -> tuple[str, ...]:
    """Return the scores that are measured."""
    return _SCORES if parameters.boundary_px is None else (*_SCORES, "boundary_f1")


def _references(truth: Truth, parameters: InstanceSegmentation) -> dict[str, dict[str, Path]]:
    """Return the reference files by compartment and stem, the same stems in each."""
    references = {
        name: truth.manifest(parameters.truth_folder(name), name=parameters.truth_name)
        for name in parameters.compartments
    }
    first = next(iter(references))
    for name, files in references.items():
        if difference := sorted(set(files) ^ set(references[first])):
            folder = truth.folder / parameters.truth_folder(name)
            raise TruthError(f"{folder}: not the images of compartment {first}: {', '.join(difference[:5])}")
    return references


def _pair(
    submission: Submission,
    compartment: str,
    parameters: InstanceSegmentation,
    shapes: Mapping[tuple[str, str], tuple[int, ...]],
    stems: Sequence[str],
) -> Pairing:
    def check(file: SubmittedFile, stem: str) -> None:
        with TiffImage(file.open()) as image:
            check_shape(image.header.shape, shapes[compartment, stem])

    return pair_files(submission, submission.deliverables[parameters.compartments[compartment]], stems, check)


def _score_image(
    submission: Submission,
    parameters: InstanceSegmentation,
    compartment: str,
    stem: str,
    view: _View,
    pairing: Pairing,
) -> _Image:
    """Compare one image; fill in its view."""
    where = f"{parameters.compartments[compartment]}: {stem}"
    status = pairing.reasons.get(stem, "scored")
    if stem in pairing.files:
        try:
            view.predicted = _read(pairing.files[stem], view.truth.shape)
            view.table = overlap_table(view.truth, view.predicted)
            planes = int(np.prod(view.truth.shape[:-2]))
            if view.table.predicted_count > MAX_OBJECTS * planes:
                raise Refusal("too_many_objects", f"holds {view.table.predicted_count} objects, like noise")
        except Refusal as refusal:
            submission.problems.refused(where, refusal)
            status, view.predicted, view.table = refusal.code, None, None
    if view.predicted is None or view.table is None:
        empty = overlap_table(view.truth, np.zeros_like(view.truth))
        nothing = np.zeros(empty.truth_count, bool)
        scores = dict.fromkeys(_names(parameters), 0.0)
        sizes, pairs, foreground = empty.truth_sizes, np.empty((0, 2), np.int64), _foreground(view.truth)
        return _Image(stem, compartment, status, scores, sizes, nothing, pairs, 0, foreground, 0.0)
    table = view.table
    quality = panoptic_quality(table)
    values = [
        foreground_dice(table),
        foreground_iou(table),
        *average_precision(table).tolist(),
        quality.pq,
        quality.sq,
        quality.rq,
        aggregated_jaccard(table),
    ]
    if parameters.boundary_px is not None:
        values.append(boundary_f1(view.truth, view.predicted, table, tolerance=parameters.boundary_px))
    matching = match_instances(table, 0.5, strict=True)
    found = np.zeros(table.truth_count, bool)
    found[matching.truth_index] = True
    matched = np.column_stack((table.predicted_ids[matching.predicted_index], table.truth_sizes[matching.truth_index]))
    return _Image(
        stem,
        compartment,
        status,
        dict(zip(_names(parameters), values, strict=True)),
        table.truth_sizes,
        found,
        matched,
        table.predicted_count,
        _foreground(view.truth),
        _foreground(view.predicted),
    )


def _read(file: SubmittedFile, shape: tuple[int, ...]) -> Labels:
    with TiffImage(file.open()) as image:
        check_shape(image.header.shape, shape)
        return as_labels(image.whole())


def _foreground(labels: Labels) -> float:
    return np.count_nonzero(labels) / labels.size


def _agreement(inner: _View, outer: _View) -> float | None:
    """Return how well labels link two compartments of an image, above chance.

    Chance is one of the found objects: what shuffled labels agree in. ``None`` where truth links nothing.
    """
    linked = overlap_table(inner.truth, outer.truth)
    if inner.predicted is None or inner.table is None or outer.predicted is None:
        nothing = np.zeros_like(inner.truth)
        matching = match_instances(overlap_table(inner.truth, nothing), 0.5, strict=True)
        counts = id_agreement(linked, overlap_table(nothing, nothing), matching)
    else:
        matching = match_instances(inner.table, 0.5, strict=True)
        counts = id_agreement(linked, overlap_table(inner.predicted, outer.predicted), matching)
    if not counts.linked:
        return None
    if counts.found < 2:
        return counts.share_of_found
    return above_chance(counts.share_of_found, 1.0 / counts.found)


def _result(
    submission: Submission,
    parameters: InstanceSegmentation,
    images: Sequence[_Image],
    agreements: Sequence[float],
    pairings: Mapping[str, Pairing],
) -> OutcomeScore:
    metrics: dict[str, float | int | str | None] = {}
    several = len(pairings) > 1
    names = _names(parameters)
    for name in names:
        metrics[name] = _mean(images, name)
    metrics["ap_mean"] = float(np.mean([metrics[name] for name in names if name.startswith("ap_")]))
    parts: dict[str, float] = {}
    for compartment in pairings:
        own = [image for image in images if image.compartment == compartment]
        parts[f"{compartment}_pq"] = _mean(own, "pq")
        if several:
            metrics |= {f"{compartment}_{name}": _mean(own, name) for name in names}
        prefix = f"{compartment}_" if several else ""
        metrics[f"{prefix}truth_objects"] = sum(len(image.truth_sizes) for image in own)
        metrics[f"{prefix}predicted_objects"] = sum(image.predicted_objects for image in own)
        metrics |= {f"{prefix}{key}": value for key, value in _recall_by_size(own).items()}
    for group, pattern in parameters.groups.items():
        members = [image for image in images if fnmatch.fnmatchcase(image.stem, pattern)]
        if members:
            metrics |= {f"{group}_{name}": _mean(members, name) for name in names if name in _GROUP_SCORES}
    if agreements:
        parts["id_agreement"] = float(np.mean(agreements))
        metrics["id_agreement"] = parts["id_agreement"]
    if parameters.measurements is not None:
        first = [image for image in images if image.compartment == next(iter(pairings))]
        matched = {image.stem: image.matched for image in first}
        truth_count = sum(len(image.truth_sizes) for image in first)
        metrics |= compare_measurements(submission, parameters.measurements, matched, truth_count)
    stems = list(dict.fromkeys(image.stem for image in images))
    per_image = [_mean([image for image in images if image.stem == stem], parameters.primary) for stem in stems]
    low, high = bootstrap_interval(per_image)
    metrics |= {
        "outcome_ci_low": low,
        "outcome_ci_high": high,
        "images": len(stems),
        "items_not_scored": sum(image.status != "scored" for image in images),
        "files_without_image": sum(pairing.unpaired for pairing in pairings.values()),
    }
    return OutcomeScore(
        outcome=float(np.mean(per_image)),
        strict=harmonic_mean(list(parts.values())),
        delivered=submission.delivered,
        evaluator="instance_segmentation",
        evaluator_version=VERSION,
        parameters=parameters.model_dump(mode="json"),
        metrics=metrics,
        items=[_row(image) for image in images],
        problems=submission.problems.list(),
    )


def _mean(images: Sequence[_Image], name: str) -> float:
    return float(np.mean([image.scores[name] for image in images]))


def _recall_by_size(images: Sequence[_Image]) -> dict[str, float | None]:
    """Return the share of found objects (IoU above 0.5) among the smallest, middle and largest third."""
    sizes = np.concatenate([image.truth_sizes for image in images])
    found = np.concatenate([image.found for image in images])
    thirds = np.array_split(np.argsort(sizes, kind="stable"), 3)
    return {
        f"recall_{size}": float(found[third].mean()) if len(third) else None
        for size, third in zip(_SIZES, thirds, strict=True)
    }


def _row(image: _Image) -> dict[str, Any]:
    return {
        "image": image.stem,
        "compartment": image.compartment,
        "status": image.status,
        "truth_objects": len(image.truth_sizes),
        "predicted_objects": image.predicted_objects,
        "truth_foreground": image.truth_foreground,
        "predicted_foreground": image.predicted_foreground,
        **image.scores,
    }


def as_reference(submission: Submission, given: Truth, parameters: InstanceSegmentation, folder: Path) -> Path | None:
    """Write a submission as the reference data that others are compared with; see :mod:`evaluators.agreement`."""
    files = {
        compartment: own_files(submission, deliverable, given.input_stems)
        for compartment, deliverable in parameters.compartments.items()
    }
    common = set.intersection(*(set(found) for found in files.values()))
    for compartment, found in files.items():
        target = folder / parameters.truth_folder(compartment)
        target.mkdir(parents=True, exist_ok=True)
        for stem in sorted(common):
            with TiffImage(found[stem].open()) as image:
                write_labels(target / f"{parameters.truth_name.format(stem)}.tif", as_labels(image.whole()))
    return None
