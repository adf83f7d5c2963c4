"""Cell counting: one table of points per image.

*Outcome* (published): mean over images of the count accuracy, which does not look at places. *Strict*: harmonic mean of
two parts, fields with cells (F1 of points matched within the distance, above what a blind regular grid reaches) and
empty fields (count accuracy). Right counts at the wrong places, a constant number of points and headers alone fail one
of the two.

An image without a valid table scores 0. A row without two finite numbers, and a point outside the image, is a detection
that cannot be right: it counts as one and matches nothing. A table with text in a coordinate, such as a unit, is not
valid; nor is a file without any content, which is what an interrupted program leaves: an empty field is a header alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluators.metrics.counts import count_accuracy, count_errors
from evaluators.metrics.points import PointMatching, above_chance, grid_f1, match_points
from evaluators.model import Deliverable, OutcomeScore
from evaluators.outcome.aggregate import bootstrap_interval, harmonic_mean
from evaluators.outcome.files import deliverable_path, own_files, write_rows
from evaluators.outcome.parameters import CellCounting
from evaluators.pairing import pair_files
from evaluators.problems import Refusal
from evaluators.readers.tables import check_columns, read_numbers
from evaluators.submission import Submission, SubmittedFile
from evaluators.truth import Truth

VERSION = "1"

COLUMNS = ("X", "Y")
_EDGE_PX = 1.0  # a point may lie so far outside: pixels counted from 1, or cell centres on the border

Points = NDArray[np.float64]


def score(submission: Submission, truth: Truth, parameters: CellCounting) -> OutcomeScore:
    """Score a submission.

    Raises
    ------
    TruthError
        A reference is missing or cannot be read.
    """
    references = {stem: truth.numbers(path, COLUMNS) for stem, path in truth.manifest(suffixes=(".csv",)).items()}
    shapes = {stem: truth.image_shape(stem) for stem in references}
    deliverable = submission.deliverables[parameters.points]

    def check(file: SubmittedFile, stem: str) -> None:
        with file.open() as handle:
            check_columns(handle, deliverable.columns or COLUMNS)

    pairing = pair_files(submission, deliverable, list(references), check)
    fields = []
    for stem, points in references.items():
        status, found = pairing.reasons.get(stem, "scored"), None
        if stem in pairing.files:
            try:
                found = _read(submission, pairing.files[stem], f"{deliverable.id}: {stem}", shapes[stem])
            except Refusal as refusal:
                submission.problems.refused(f"{deliverable.id}: {stem}", refusal)
                status = refusal.code
        matching = match_points(points, np.empty((0, 2)) if found is None else found, parameters.distance_px)
        shape = shapes[stem]
        chance = None if shape is None else grid_f1(points, shape[::-1], parameters.distance_px)
        fields.append(_Field(stem, status, len(points), None if found is None else len(found), matching, chance))
    return _result(submission, parameters, fields, pairing.unpaired)


def replay(truth: Truth, deliverables: Sequence[Deliverable], parameters: CellCounting, folder: Path) -> None:
    """Write the references as a submission."""
    deliverable = next(one for one in deliverables if one.id == parameters.points)
    for stem, path in truth.manifest(suffixes=(".csv",)).items():
        rows = [",".join(repr(float(value)) for value in point) for point in truth.numbers(path, COLUMNS)]
        text = "\n".join([",".join(COLUMNS), *rows]) + "\n"
        deliverable_path(folder, deliverable, f"{stem}.csv").write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class _Field:
    """One image: the counts and the matching; ``predicted`` is ``None`` without a valid table."""

    stem: str
    status: str
    truth: int
    predicted: int | None
    matching: PointMatching
    chance: float | None

    @property
    def f1(self) -> float:
        return 0.0 if self.predicted is None else self.matching.f1


def _read(submission: Submission, file: SubmittedFile, where: str, shape: tuple[int, int] | None) -> Points:
    """Read the points of an image as (x, y); those that cannot be right are NaN."""
    with file.open() as handle:
        table = read_numbers(handle, COLUMNS)
    points = table.values
    invalid = ~np.isfinite(points).all(axis=1)
    if invalid.any():
        line, text = table.invalid[0]
        message = (
            f"{int(invalid.sum())} rows without two finite numbers count as false, the first is line {line}: {text}"
        )
        submission.problems.add("invalid_row", where, message)
    points[invalid] = np.nan
    if shape is not None:
        rows, columns = shape
        low, high = -0.5 - _EDGE_PX, np.array([columns, rows]) - 0.5 + _EDGE_PX
        outside = ((points < low) | (points > high)).any(axis=1)
        if outside.any():
            swapped = ((points >= low) & (points <= high[::-1])).all(axis=1).sum() == (~invalid).sum()
            hint = "; x and y seem to be swapped" if swapped and rows != columns else ""
            message = f"{int(outside.sum())} points outside the image of {columns} x {rows} px count as false{hint}"
            submission.problems.add("outside_image", where, message)
            points[outside] = np.nan
    finite = points[np.isfinite(points).all(axis=1)]
    if repeated := len(finite) - len(np.unique(finite, axis=0)):
        submission.problems.add("repeated_points", where, f"{repeated} rows repeat the place of another row")
    return points


def _result(
    submission: Submission, parameters: CellCounting, fields: Sequence[_Field], files_without_image: int
) -> OutcomeScore:
    truth = np.array([field.truth for field in fields], float)
    predicted = np.array([np.nan if field.predicted is None else field.predicted for field in fields], float)
    accuracy = count_accuracy(predicted, truth)
    filled = truth > 0
    true_positives = sum(field.matching.true_positives for field in fields)
    detections = int(np.nansum(predicted))
    pairs = np.concatenate([field.matching.distances for field in fields])
    errors = count_errors(predicted, truth)
    low, high = bootstrap_interval(accuracy)
    total = int(truth.sum()) + detections
    filled_f1 = [field.f1 for field in fields if field.truth]
    return OutcomeScore(
        outcome=float(accuracy.mean()),
        strict=_strict(fields, accuracy[~filled]),
        delivered=submission.delivered,
        evaluator="cell_counting",
        evaluator_version=VERSION,
        parameters=parameters.model_dump(mode="json"),
        metrics={
            "f1": 2.0 * true_positives / total if total else float(not np.isnan(predicted).any()),
            "precision": true_positives / detections if detections else float(not truth.any()),
            "recall": true_positives / truth.sum() if truth.any() else float(not detections),
            "f1_per_image": float(np.mean([field.f1 for field in fields])),
            "f1_filled": float(np.mean(filled_f1)) if filled_f1 else None,
            "localisation_error_px": float(pairs.mean()) if len(pairs) else None,
            "localisation_rmse_px": float(np.sqrt(np.mean(pairs**2))) if len(pairs) else None,
            "count_mae": errors.mae,
            "count_rmse": errors.rmse,
            "count_mape": errors.mape,
            "count_bias": errors.bias,
            "count_accuracy_filled": float(accuracy[filled].mean()) if filled.any() else None,
            "count_accuracy_empty": float(accuracy[~filled].mean()) if not filled.all() else None,
            "outcome_ci_low": low,
            "outcome_ci_high": high,
            "images": len(fields),
            "images_empty": int((~filled).sum()),
            "items_not_scored": sum(field.status != "scored" for field in fields),
            "files_without_image": files_without_image,
            "truth_points": int(truth.sum()),
            "predicted_points": detections,
            "true_positives": true_positives,
            "false_positives": detections - true_positives,
            "false_negatives": int(truth.sum()) - true_positives,
        },
        items=[
            {
                "image": field.stem,
                "status": field.status,
                "truth_count": field.truth,
                "predicted_count": field.predicted,
                "count_accuracy": float(value),
                "f1": field.f1,
                "chance_f1": field.chance,
                "localisation_error_px": field.matching.mean_distance,
            }
            for field, value in zip(fields, accuracy, strict=True)
        ],
        problems=submission.problems.list(),
    )


def _strict(fields: Sequence[_Field], empty_accuracy: NDArray[np.float64]) -> float | None:
    """Return the strict score; ``None`` without images, which set the chance level, or without any cell in truth."""
    scores = [above_chance(field.f1, field.chance) for field in fields if field.truth and field.chance is not None]
    if len(scores) != sum(field.truth > 0 for field in fields) or not scores:
        return None
    parts = [float(np.mean(scores))]
    if len(empty_accuracy):
        parts.append(float(empty_accuracy.mean()))
    return harmonic_mean(parts)


def as_reference(submission: Submission, given: Truth, parameters: CellCounting, folder: Path) -> Path | None:
    """Write a submission as the reference data that others are compared with; see :mod:`evaluators.agreement`."""
    for stem, file in own_files(submission, parameters.points, given.input_stems).items():
        points = _read(submission, file, stem, given.image_shape(stem))
        write_rows(folder / f"{stem}.csv", COLUMNS, points[np.isfinite(points).all(axis=1)].tolist())
    return None
