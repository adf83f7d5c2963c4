"""Cells and their phenotypes over time: one table of frame, place and class.

*Outcome* (published): mean of localisation (F1 of points matched within the distance over all frames), classification
(macro F1 over the classes on matched cells) and trend ((mean r + 1) / 2 of the class proportions over time, of all
classified cells, matched or not). A frame without any row takes part: its cells are wrong in every class, and the trend
counts only for the share of frames that are there.

*Strict*: harmonic mean of detection (F1 at the smaller distance above what a blind grid reaches), classification (kappa
with unmatched cells as wrong and with chance taken in each frame, so that proportions without images earn nothing) and
trend (correlation of the proportions among matched cells, negative ones being 0, times the share of frames).

A row without a usable frame and place, or outside the series, is a cell that is not there. A row without one of the
classes has none: that is wrong for the true class. Pairs are optimal, not greedy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluators.metrics.phenotypes import (
    class_f1,
    kappa_within,
    pooled_trend_correlation,
    proportions,
    trend_correlation,
)
from evaluators.metrics.points import PointMatching, above_chance, grid_f1, match_points
from evaluators.model import Deliverable, OutcomeScore, TruthError
from evaluators.outcome.aggregate import harmonic_mean
from evaluators.outcome.files import deliverable_path, write_rows
from evaluators.outcome.parameters import PhenotypeDynamics
from evaluators.outcome.single_table import read_single_table
from evaluators.problems import Refusal
from evaluators.readers.headers import require_columns
from evaluators.submission import Submission
from evaluators.truth import Truth

VERSION = "1"

COLUMNS = {
    "frame": ("frame", "image_index", "frame_index", "image", "timepoint", "time_index", "t"),
    "x": ("x", "centroid_x", "col", "column", "x_px", "centroid-1"),
    "y": ("y", "centroid_y", "row", "y_px", "centroid-0"),
    "phenotype": ("predicted_phenotype", "predicted_label", "phenotype", "label", "class", "predicted_class"),
}
_NO_FRAME = -1
_ANY_FRAME = 10**9  # more frames than any series has
_MAX_LOOKED_AT = 32

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Cells:
    """Cells of one side: frame (-1: none of the series), place (x, y; NaN: none) and class (-1: none)."""

    frames: Codes
    places: NDArray[np.float64]
    classes: Codes


_NOTHING = Cells(np.zeros(0, np.int64), np.zeros((0, 2)), np.zeros(0, np.int64))


def score(submission: Submission, truth: Truth, parameters: PhenotypeDynamics) -> OutcomeScore:
    """Score a submission.

    Raises
    ------
    TruthError
        The annotation or an image is missing or cannot be read.
    """
    reference = _reference(truth, parameters)
    shape = _image_shape(truth)
    found = _submitted(submission, parameters, int(reference.frames.max()) + 1)
    comparison = _Comparison(reference, found or _NOTHING, shape, parameters)
    if found is not None:
        _name_faults(submission, comparison)
    return _result(submission, comparison, scored=found is not None)


def replay(truth: Truth, deliverables: Sequence[Deliverable], parameters: PhenotypeDynamics, folder: Path) -> None:
    """Write the annotation as a submission."""
    deliverable = next(one for one in deliverables if one.id == parameters.cells)
    reference = _reference(truth, parameters)
    rows = [
        f"{frame},{float(x)!r},{float(y)!r},{parameters.classes[label]}"
        for frame, (x, y), label in zip(reference.frames, reference.places, reference.classes, strict=True)
    ]
    text = "\n".join(["frame,x,y,phenotype", *rows]) + "\n"
    deliverable_path(folder, deliverable, f"{parameters.cells}.csv").write_text(text, encoding="utf-8")


def _class(text: str, parameters: PhenotypeDynamics) -> int:
    name = text.strip().lower()
    name = parameters.synonyms.get(name, name)
    return parameters.classes.index(name) if name in parameters.classes else -1


def _reference(truth: Truth, parameters: PhenotypeDynamics) -> Cells:
    """Read the only ``*annotation*.csv`` of the evaluation folder: axis-0 frame, axis-1 row, axis-2 column, label."""
    paths = [
        path
        for path in sorted(truth.folder.iterdir())
        if "annotation" in path.name.lower() and path.suffix.lower() == ".csv" and not path.name.startswith(".")
    ]
    if len(paths) != 1:
        raise TruthError(f"{truth.folder}: expected one *annotation*.csv, found {len(paths)}")
    values = truth.numbers(paths[0], ["axis-0", "axis-1", "axis-2"])
    labels = [row["label"] for row in truth.texts(paths[0], ["label"]).rows]
    classes = np.array([_class(label, parameters) for label in labels], np.int64)
    if not len(values):
        raise TruthError(f"{paths[0]}: no cell")
    if (classes < 0).any():
        raise TruthError(f"{paths[0]}: {labels[int(np.argmax(classes < 0))]!r} is none of the classes")
    frames = values[:, 0].astype(np.int64)
    if (frames != values[:, 0]).any() or frames.min() < 0:
        raise TruthError(f"{paths[0]}: axis-0 holds something else than frames from 0")
    return Cells(frames, values[:, [2, 1]], classes)


def _image_shape(truth: Truth) -> tuple[int, int] | None:
    """Return (rows, columns) of the series' first image, or ``None`` where no input is at hand."""
    if truth.input_dir is None:
        return None
    paths = sorted(path for path in truth.input_dir.rglob("*.tif*") if not path.name.startswith("."))
    if not paths:
        raise TruthError(f"{truth.input_dir}: no TIFF image anywhere below")
    with truth.open_image(paths[0]) as image:
        rows, columns = image.header.plane_shape[:2]
    return rows, columns


def _submitted(submission: Submission, parameters: PhenotypeDynamics, count: int) -> Cells | None:
    where, problems = parameters.cells, submission.problems
    columns: dict[str, str] | None = None
    for file in submission.candidates(where)[:_MAX_LOOKED_AT]:
        try:
            with file.open() as handle:
                columns = require_columns(handle, COLUMNS)
            break
        except Refusal as refusal:
            problems.refused(file.path, refusal)
    if columns is None:
        if not submission.candidates(where):
            submission.missing(where)
        return None
    rows = read_single_table(submission, where, list(columns.values()), mergeable=True)
    if rows is None:
        return None
    if not rows.cells:
        problems.add("no_rows", where, "the table has a header and no row")
        return None
    frames = rows.numbers(columns["frame"])
    for number, row in enumerate(rows.cells):
        if np.isnan(frames[number]) and (named := re.search(r"_(\d{1,9})(\.tiff?)?$", row[columns["frame"]], re.I)):
            frames[number] = float(named[1])  # the image's name instead of its number
    places = np.column_stack([rows.numbers(columns[axis]) for axis in ("x", "y")])
    classes = np.array([_class(row[columns["phenotype"]], parameters) for row in rows.cells], np.int64)
    inside = np.isfinite(frames) & (frames == np.floor(frames)) & (frames >= 0) & (frames < count)
    lost = ~inside | ~np.isfinite(places).all(axis=1)
    if lost.any():
        where_first = rows.places[int(np.argmax(lost))]
        message = f"{int(lost.sum())} rows have no frame of the series or no place; the first is {where_first}"
        problems.add("invalid_row", where, message)
    if (classes < 0).any():
        first = int(np.argmax(classes < 0))
        text = rows.cells[first][columns["phenotype"]]
        message = f"{int((classes < 0).sum())} rows have none of {', '.join(parameters.classes)}; the first is "
        problems.add("not_a_phenotype", where, f"{message}{text!r} in {rows.places[first]}")
    return Cells(
        np.where(lost, _NO_FRAME, np.nan_to_num(frames, nan=_NO_FRAME, posinf=_NO_FRAME, neginf=_NO_FRAME)).astype(
            np.int64
        ),
        np.where(lost[:, None], np.nan, places),
        classes,
    )


class _Comparison:
    """Submitted against annotated cells."""

    def __init__(
        self, reference: Cells, found: Cells, shape: tuple[int, int] | None, parameters: PhenotypeDynamics
    ) -> None:
        self.reference = reference
        self.found = found
        self.shape = shape
        self.parameters = parameters
        self.count = int(reference.frames.max()) + 1
        self.frames = np.unique(reference.frames)
        self.covered = np.isin(self.frames, found.frames)
        self.coverage = float(self.covered.mean())
        self.near = self.match(parameters.distance_px)
        self.close = self.match(parameters.strict_distance_px)
        self.true_shares = self._shares(reference.frames, reference.classes)

    def match(self, distance: float, frame_shift: int = 0, *, swap: bool = False) -> PointMatching:
        """Match at a distance; ``frame_shift`` is added to the submitted frames, ``swap`` exchanges x and y."""
        places = self.found.places[:, ::-1] if swap else self.found.places
        return match_points(
            self.reference.places,
            places,
            distance,
            truth_groups=self.reference.frames,
            predicted_groups=self.found.frames + frame_shift,
        )

    def _shares(self, frames: Codes, classes: Codes) -> NDArray[np.float64]:
        return proportions(frames, classes, self.count, len(self.parameters.classes))

    def _claimed(self, matching: PointMatching, *, all_cells: bool) -> tuple[Codes, Codes]:
        """Return true and claimed class of the matched cells, or of all cells, those without partner being wrong."""
        claimed = np.full(len(self.reference.frames), -1, np.int64)
        claimed[matching.truth_index] = self.found.classes[matching.predicted_index]
        chosen = np.zeros(len(claimed), bool)
        chosen[matching.truth_index] = True
        if all_cells:
            chosen[:] = True
        else:  # the cells of a frame that is missing altogether are wrong, not left out
            chosen |= ~np.isin(self.reference.frames, self.found.frames)
        return self.reference.classes[chosen], claimed[chosen]

    @cached_property
    def per_class(self) -> NDArray[np.float64]:
        """F1 of each class; NaN where it is not in the annotation."""
        values = class_f1(*self._claimed(self.near, all_cells=False), len(self.parameters.classes))
        present = np.bincount(self.reference.classes, minlength=len(values)) > 0
        return np.where(present, np.nan_to_num(values, nan=0.0), np.nan)

    @property
    def localization(self) -> float:
        """F1 at the published distance."""
        return self.near.f1

    @property
    def classification(self) -> float:
        """Macro F1 over the annotated classes."""
        return float(np.nanmean(self.per_class)) if len(self.near.truth_index) else 0.0

    @cached_property
    def mean_r(self) -> float | None:
        """Mean correlation of the proportions of all submitted cells."""
        return trend_correlation(self.true_shares, self._shares(self.found.frames, self.found.classes))

    @property
    def trend(self) -> float | None:
        """Published trend score; ``None`` where the annotation has no trend."""
        if trend_correlation(self.true_shares, self.true_shares) is None:
            return None
        return 0.0 if self.mean_r is None else (self.mean_r + 1.0) / 2.0 * self.coverage

    @property
    def outcome(self) -> float:
        """The published mean, of the parts that the annotation defines."""
        parts = [self.localization, self.classification, self.trend]
        return min(1.0, float(np.mean([part for part in parts if part is not None])))

    @cached_property
    def chance(self) -> float | None:
        """F1 of the best blind grid at the strict distance, over a sample of frames; ``None`` without images."""
        if self.shape is None:
            return None
        chosen = self.frames[np.linspace(0, len(self.frames) - 1, min(12, len(self.frames))).astype(int)]
        size = (float(self.shape[1]), float(self.shape[0]))
        return float(
            np.mean(
                [
                    grid_f1(self.reference.places[self.reference.frames == t], size, self.parameters.strict_distance_px)
                    for t in chosen
                ]
            )
        )

    @cached_property
    def kappa(self) -> float | None:
        """Agreement of the classes within frames, cells without partner being wrong."""
        true, claimed = self._claimed(self.close, all_cells=True)
        return kappa_within(true, claimed, self.reference.frames, len(self.parameters.classes))

    @cached_property
    def matched_r(self) -> float | None:
        """Correlation of the proportions among matched cells."""
        partner = self.close.predicted_index
        shares = self._shares(self.found.frames[partner], self.found.classes[partner])
        if pooled_trend_correlation(self.true_shares, self.true_shares) is None:
            return None
        seen = np.isfinite(shares[self.frames]).all(axis=1).mean()
        return max(0.0, pooled_trend_correlation(self.true_shares, shares) or 0.0) * float(seen)

    @property
    def strict(self) -> float | None:
        """The strict score; ``None`` without images, or where the annotation has a single class."""
        if self.chance is None or self.kappa is None:
            return None
        parts = [above_chance(self.close.f1, self.chance), max(0.0, self.kappa), self.matched_r]
        return harmonic_mean([part for part in parts if part is not None])


def _name_faults(submission: Submission, comparison: _Comparison) -> None:
    """Name what is missing, and mistakes of convention that explain a low score."""
    problems, where, found = submission.problems, comparison.parameters.cells, comparison.found
    if not comparison.covered.all():
        lacking = comparison.frames[~comparison.covered]
        shown = ", ".join(map(str, lacking[:8].tolist()))
        problems.add("missing_frames", where, f"{len(lacking)} frames have no row: {shown}{' …' * (len(lacking) > 8)}")
    x, y = found.places.T
    if comparison.shape is not None:
        rows, columns = comparison.shape
        with np.errstate(invalid="ignore"):
            outside = (x < -1) | (y < -1) | (x > columns) | (y > rows)
        if outside.any():
            problems.add("outside_image", where, f"{int(outside.sum())} cells lie outside the image")
        reach = np.nanmax(found.places, axis=0, initial=0.0)
        if len(found.places) > 20 and reach[0] < 0.75 * columns and reach[1] < 0.75 * rows:
            problems.add(
                "units", where, "all cells lie near the origin: positions are wanted in pixels, not micrometres"
            )
    pairs = comparison.near.true_positives
    enough = max(20, pairs + pairs // 5)
    distance = comparison.parameters.distance_px
    here = comparison.close.mean_distance
    for step, meaning in ((-1, "frames seem to count from 1"), (1, "frames seem to be one too small")):
        moved = comparison.match(comparison.parameters.strict_distance_px, step)
        nearer = here is not None and moved.mean_distance is not None and moved.mean_distance < 0.7 * here - 0.05
        if nearer and moved.true_positives > 0.9 * comparison.close.true_positives + 20:
            problems.add("frame_shift", where, f"{meaning}: cells lie nearer when moved by {step:+d} frame")
    if comparison.match(distance, swap=True).true_positives > enough:
        problems.add("axes_swapped", where, "more cells match with x and y exchanged; x is the column")


def _result(submission: Submission, comparison: _Comparison, *, scored: bool) -> OutcomeScore:
    parameters, near = comparison.parameters, comparison.near
    reference, found = comparison.reference, comparison.found
    true, claimed = comparison._claimed(near, all_cells=False)
    hits = np.bincount(reference.frames[near.truth_index], minlength=comparison.count)
    present = np.bincount(reference.frames, minlength=comparison.count)
    usable = found.frames >= 0
    rows = np.bincount(found.frames[usable], minlength=comparison.count)
    shares = comparison._shares(found.frames, found.classes)
    strict = comparison.strict
    return OutcomeScore(
        outcome=comparison.outcome if scored else 0.0,
        strict=strict if scored or strict is None else 0.0,
        delivered=submission.delivered,
        evaluator="phenotype_dynamics",
        evaluator_version=VERSION,
        parameters=parameters.model_dump(mode="json"),
        metrics={
            "localization_f1": comparison.localization,
            "precision": near.precision,
            "recall": near.recall,
            "classification_macro_f1": comparison.classification,
            "classification_accuracy": float(np.mean(true == claimed)) if len(true) else None,
            **{
                f"f1_{name}": None if np.isnan(value) else float(value)
                for name, value in zip(parameters.classes, comparison.per_class, strict=True)
            },
            "trend_score": comparison.trend,
            "trend_mean_pearson": comparison.mean_r,
            "frame_coverage": comparison.coverage,
            "strict_localization_f1": comparison.close.f1,
            "strict_localization_chance": comparison.chance,
            "strict_kappa": comparison.kappa,
            "strict_trend": comparison.matched_r,
            "localisation_error_px": near.mean_distance,
            "true_cells": len(reference.frames),
            "predicted_cells": len(found.frames),
            "matched_cells": near.true_positives,
            "rows_without_place": int((~usable).sum()),
            "rows_without_class": int((found.classes < 0).sum()),
        },
        items=[
            {
                "frame": int(frame),
                "truth": int(present[frame]),
                "predicted": int(rows[frame]),
                "matched": int(hits[frame]),
                **{
                    f"{side}_{name}": None if np.isnan(value) else float(value)
                    for side, table in (("truth", comparison.true_shares), ("predicted", shares))
                    for name, value in zip(parameters.classes, table[frame], strict=True)
                },
            }
            for frame in comparison.frames
        ],
        problems=submission.problems.list(),
    )


def as_reference(submission: Submission, given: Truth, parameters: PhenotypeDynamics, folder: Path) -> Path | None:
    """Write a submission as the reference data that others are compared with; see :mod:`evaluators.agreement`."""
    found = _submitted(submission, parameters, _ANY_FRAME)
    if found is None:
        raise TruthError(f"{parameters.cells}: no table")
    whole = (found.frames >= 0) & np.isfinite(found.places).all(axis=1) & (found.classes >= 0)
    rows = [
        (frame, y, x, parameters.classes[label])
        for frame, (x, y), label in zip(
            found.frames[whole].tolist(), found.places[whole].tolist(), found.classes[whole].tolist(), strict=True
        )
    ]
    write_rows(folder / "annotation.csv", ("axis-0", "axis-1", "axis-2", "label"), rows)
    return given.input_dir
