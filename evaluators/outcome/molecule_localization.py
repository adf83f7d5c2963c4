"""Single-molecule localisation: one list of frame, position and intensity.

*Outcome* (published): 0.7 x Jaccard index at 1 px + 0.3 x Pearson correlation of the intensities of matched molecules,
negative correlations being 0. *Strict*: harmonic mean of detection (Jaccard index, mean of a fine and the published
tolerance, above what is reached by knowing all places but not the moments) and brightness (rank correlation of the
intensities times the share of molecules for which they are known). Two perfect rows earn 0.3 in the outcome, perfect
places with a constant intensity 0.7; both are 0 in strict.

A row that is no localisation counts as one that is invented. A matched molecule without a finite intensity does not
enter the correlation, which counts only for the share that has one. Molecules near the border are neither right nor
wrong. Pairs are optimal, not greedy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluators.metrics.agreement import pearson, spearman
from evaluators.metrics.detection import Matching
from evaluators.metrics.localizations import jaccard_at_other_times, match_localizations
from evaluators.metrics.points import above_chance
from evaluators.model import Deliverable, OutcomeScore, TruthError
from evaluators.outcome.aggregate import harmonic_mean
from evaluators.outcome.files import deliverable_path
from evaluators.outcome.parameters import MoleculeLocalization
from evaluators.problems import Refusal
from evaluators.readers.localizations import LocalizationList, read_localizations
from evaluators.submission import Submission, SubmittedFile
from evaluators.truth import Truth

VERSION = "1"

_MAX_LOOKED_AT = 32

Values = NDArray[np.float64]


def score(submission: Submission, truth: Truth, parameters: MoleculeLocalization) -> OutcomeScore:
    """Score a submission.

    Raises
    ------
    TruthError
        The reference list is missing or cannot be read.
    """
    reference = _reference(truth)
    found = _submitted(submission, parameters.localizations)
    comparison = _Comparison(reference, found or _NOTHING, parameters)
    if found is not None:
        _name_faults(submission, parameters.localizations, found, comparison)
    return _result(submission, comparison, parameters, scored=found is not None)


def replay(truth: Truth, deliverables: Sequence[Deliverable], parameters: MoleculeLocalization, folder: Path) -> None:
    """Write the reference as a submission."""
    deliverable = next(one for one in deliverables if one.id == parameters.localizations)
    reference = _reference(truth)
    rows = zip(reference.frames, reference.positions, reference.intensities, strict=True)
    lines = [f"{frame}\t{float(x)!r}\t{float(y)!r}\t{float(grey)!r}" for frame, (x, y), grey in rows]
    text = "\n".join(["frame\tx\ty\tintensity", *lines]) + "\n"
    deliverable_path(folder, deliverable, _reference_path(truth).name).write_text(text, encoding="utf-8")


_NOTHING = LocalizationList(np.zeros(0, np.int64), np.zeros((0, 2)), np.zeros(0), [])


def _reference_path(truth: Truth) -> Path:
    """Return the only ``*LocalizationList*.txt`` of the evaluation folder."""
    paths = [
        path
        for path in sorted(truth.folder.iterdir())
        if "localizationlist" in path.name.lower() and path.suffix.lower() == ".txt" and not path.name.startswith(".")
    ]
    if len(paths) != 1:
        raise TruthError(f"{truth.folder}: expected one *LocalizationList*.txt, found {len(paths)}")
    return paths[0]


def _reference(truth: Truth) -> LocalizationList:
    path = _reference_path(truth)
    try:
        with path.open("rb") as handle:
            reference = read_localizations(handle)
    except (Refusal, OSError) as error:
        raise TruthError(f"{path}: {error}") from error
    if reference.invalid or not np.isfinite(reference.intensities).all():
        line = reference.invalid[0][0] if reference.invalid else 1 + int(np.argmax(np.isnan(reference.intensities)))
        raise TruthError(f"{path}: line {line} is not four finite numbers")
    if not len(reference.frames):
        raise TruthError(f"{path}: no localisation")
    return reference


def _submitted(submission: Submission, deliverable_id: str) -> LocalizationList | None:
    """Read the list: of several files the one with the plain name, then the shallowest, if that is one."""
    candidates = submission.candidates(deliverable_id)
    if not candidates:
        submission.missing(deliverable_id)
        return None
    plain = {pattern.replace("*", "").lower() for pattern in submission.deliverables[deliverable_id].patterns}

    def rank(file: SubmittedFile) -> tuple[bool, int, int]:
        return not any(file.name.lower().endswith(name) for name in plain), file.depth, len(file.name)

    readable: list[tuple[SubmittedFile, LocalizationList, str]] = []
    for file in sorted(candidates, key=rank)[:_MAX_LOOKED_AT]:
        if readable and rank(readable[0][0]) != rank(file):
            break
        try:
            with file.open() as handle:
                digest = hashlib.file_digest(handle, "sha256").hexdigest()
                handle.seek(0)
                readable.append((file, read_localizations(handle), digest))
        except Refusal as refusal:
            submission.problems.refused(file.path, refusal)
    if not readable:
        return None
    chosen = readable[0][0]
    if len({digest for _, _, digest in readable}) > 1:
        names = ", ".join(file.path for file, _, _ in readable[:4])
        submission.problems.add("ambiguous_files", deliverable_id, f"{names} differ and stand for the same list")
        return None
    if len(candidates) > 1:
        others = ", ".join(file.path for file in candidates if file is not chosen)
        submission.problems.add("duplicate_file", deliverable_id, f"{chosen.path} is scored, not {others}")
    return readable[0][1]


def _ordered(rows: LocalizationList) -> LocalizationList:
    """Sort rows, brightness last, so that the order of molecules at the same place decides nothing."""
    order = np.lexsort((rows.intensities, *rows.positions.T[::-1], rows.frames))
    return LocalizationList(rows.frames[order], rows.positions[order], rows.intensities[order], rows.invalid)


class _Comparison:
    """One list against the reference."""

    def __init__(self, reference: LocalizationList, found: LocalizationList, parameters: MoleculeLocalization) -> None:
        self.reference = reference = _ordered(reference)
        self.found = found = _ordered(found)
        self.parameters = parameters
        self.matching = self.match(parameters.distance_px)
        one, other = self.matching.truth_index, self.matching.predicted_index
        self.residuals = found.positions[other] - reference.positions[one]
        self.intensities = reference.intensities[one], found.intensities[other]
        self.known = float(np.isfinite(self.intensities[1]).mean()) if len(one) else 0.0

    def match(self, distance: float, shift: tuple[float, float] = (0.0, 0.0), frame_shift: int = 0) -> Matching:
        """Match at a tolerance, after moving what was found by (x, y) pixels and frames."""
        shape = self.parameters.image_px
        return match_localizations(
            self.reference.positions,
            self.reference.frames,
            self.found.positions + np.asarray(shift),
            self.found.frames + frame_shift,
            distance,
            shape=None if shape is None else (float(shape[0]), float(shape[1])),
            border=self.parameters.border_px,
        )

    @property
    def outcome(self) -> float:
        """The published composite."""
        share = max(0.0, pearson(*self.intensities) or 0.0) * self.known
        weights = self.parameters
        return weights.jaccard_weight * self.matching.jaccard + weights.intensity_weight * share

    @cached_property
    def detection(self) -> float:
        """Jaccard above chance, mean over the strict tolerances."""
        reference = self.reference
        values = []
        for distance in self.parameters.strict_distances_px:
            chance = jaccard_at_other_times(reference.positions, reference.frames, distance)
            values.append(above_chance(self.match(distance).jaccard, chance))
        return float(np.mean(values))

    @cached_property
    def brightness(self) -> float:
        """Rank correlation of intensities, times the share of true molecules for which it is known."""
        agreement = spearman(*self.intensities)
        return max(0.0, agreement or 0.0) * self.known * self.matching.recall


@dataclass(frozen=True)
class _Offset:
    """A constant shift between found and true positions, and the Jaccard index without it."""

    x: float | None
    y: float | None
    jaccard: float


def _offset(comparison: _Comparison) -> _Offset:
    near = comparison.match(2.0 * comparison.parameters.distance_px)
    if not len(near.truth_index):
        return _Offset(None, None, comparison.matching.jaccard)
    apart = comparison.found.positions[near.predicted_index] - comparison.reference.positions[near.truth_index]
    x, y = (float(value) for value in np.median(apart, axis=0))
    return _Offset(x, y, comparison.match(comparison.parameters.distance_px, (-x, -y)).jaccard)


def _name_faults(submission: Submission, where: str, found: LocalizationList, comparison: _Comparison) -> None:
    """Name rows that were not taken, and mistakes of convention that explain a low score."""
    problems, parameters = submission.problems, comparison.parameters
    invalid = int(np.isnan(found.positions).any(axis=1).sum())
    if invalid:
        line, text = found.invalid[0]
        message = f"{invalid} rows are no localisation and count as invented, the first is line {line}: {text}"
        problems.add("invalid_row", where, message)
    unknown = int(np.isnan(found.intensities).sum()) - invalid
    if unknown:
        problems.add("missing_intensity", where, f"{unknown} rows have no finite intensity")
    if parameters.image_px is not None:
        x, y = found.positions[:, 0], found.positions[:, 1]
        with np.errstate(invalid="ignore"):
            outside = (x < 0) | (y < 0) | (x > parameters.image_px[1]) | (y > parameters.image_px[0])
        if outside.any():
            problems.add("outside_image", where, f"{int(outside.sum())} positions lie outside the image")
    pairs = comparison.matching.true_positives
    enough = max(20, pairs + pairs // 5)
    distance = parameters.distance_px
    for step, meaning in ((-1, "frames seem to count from 1"), (1, "frames seem to be one too small")):
        if comparison.match(distance, frame_shift=step).true_positives > enough:
            problems.add("frame_shift", where, f"{meaning}: more molecules match when moved by {step:+d} frame")
    offset = _offset(comparison)
    if offset.x is not None and offset.y is not None and offset.jaccard > 1.1 * comparison.matching.jaccard + 0.02:
        message = f"positions differ by a constant ({offset.x:+.2f}, {offset.y:+.2f}) px; see the origin of x and y"
        problems.add("origin", where, message)
    swapped = LocalizationList(found.frames, found.positions[:, ::-1], found.intensities, found.invalid)
    if _Comparison(comparison.reference, swapped, parameters).matching.true_positives > enough:
        problems.add("axes_swapped", where, "more molecules match with x and y exchanged")


def _result(
    submission: Submission, comparison: _Comparison, parameters: MoleculeLocalization, *, scored: bool
) -> OutcomeScore:
    matching, residuals = comparison.matching, comparison.residuals
    one, other = comparison.intensities
    offset = _offset(comparison)
    frames = comparison.reference.frames
    with np.errstate(invalid="ignore", divide="ignore"):
        logarithms = np.log1p(np.maximum(one, 0.0)), np.log1p(np.where(other > 0.0, other, 0.0 * other))
    hits = np.bincount(frames[matching.truth_index], minlength=int(frames.max()) + 1)
    present = np.bincount(frames, minlength=len(hits))
    claimed = np.bincount(comparison.found.frames[comparison.found.frames < len(hits)], minlength=len(hits))
    return OutcomeScore(
        outcome=float(np.clip(comparison.outcome, 0.0, 1.0)),
        strict=harmonic_mean([comparison.detection, comparison.brightness]) if scored else 0.0,
        delivered=submission.delivered,
        evaluator="molecule_localization",
        evaluator_version=VERSION,
        parameters=parameters.model_dump(mode="json"),
        metrics={
            "jaccard": matching.jaccard,
            "f1": matching.f1,
            "precision": matching.precision,
            "recall": matching.recall,
            "detection_strict": comparison.detection,
            "brightness_strict": comparison.brightness,
            "intensity_pearson": pearson(one, other),
            "intensity_spearman": spearman(one, other),
            "intensity_log_pearson": pearson(*logarithms),
            "intensity_known_share": comparison.known,
            "rmse_x_px": _rms(residuals[:, 0]),
            "rmse_y_px": _rms(residuals[:, 1]),
            "mean_distance_px": float(np.hypot(*residuals.T).mean()) if len(residuals) else None,
            "offset_x_px": offset.x,
            "offset_y_px": offset.y,
            "jaccard_without_offset": offset.jaccard,
            "true_positives": matching.true_positives,
            "false_positives": matching.false_positives,
            "false_negatives": matching.false_negatives,
            "invalid_rows": int(np.isnan(comparison.found.positions).any(axis=1).sum()),
            "truth_localizations": len(frames),
            "predicted_localizations": len(comparison.found.frames),
        },
        items=[
            {
                "frame": frame,
                "truth": int(present[frame]),
                "predicted": int(claimed[frame]),
                "matched": int(hits[frame]),
            }
            for frame in range(len(hits))
        ],
        problems=submission.problems.list(),
    )


def _rms(values: Values) -> float | None:
    return float(np.sqrt(np.mean(values**2))) if len(values) else None


def as_reference(submission: Submission, given: Truth, parameters: MoleculeLocalization, folder: Path) -> Path | None:
    """Write a submission as the reference data that others are compared with; see :mod:`evaluators.agreement`."""
    found = _submitted(submission, parameters.localizations)
    if found is None:
        raise TruthError(f"{parameters.localizations}: no list")
    whole = np.isfinite(found.positions).all(axis=1) & np.isfinite(found.intensities)
    lines = [
        f"{frame}\t{x!r}\t{y!r}\t{grey!r}"
        for frame, (x, y), grey in zip(
            found.frames[whole].tolist(),
            found.positions[whole].tolist(),
            found.intensities[whole].tolist(),
            strict=True,
        )
    ]
    text = "\n".join(["frame\tx\ty\tintensity", *lines]) + "\n"
    (folder / "LocalizationList.txt").write_text(text, encoding="utf-8")
    return None
