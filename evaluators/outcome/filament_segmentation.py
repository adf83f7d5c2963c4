"""Filament segmentation: one binary mask of thin structures per image.

*Outcome* (published): mean over images of the Dice coefficient. *Strict*: harmonic mean of three parts, each a mean
over images and above what a blind drawing around the filaments reaches: centreline Dice (clDice), continuity along the
true branches, and the share of the mask that lies on or beside a filament. Dice depends on the drawn width more than on
the path, and hardly on gaps; clDice alone is perfect for a mask that covers everything.

An image that is missing, ambiguous, unreadable, of another shape, or not binary scores 0 in every measure; where truth
and mask are both empty it scores 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray

from evaluators.metrics.points import above_chance
from evaluators.metrics.skeletons import (
    CentrelineScores,
    betti_numbers,
    centreline_scores,
    continuity,
    distance_to,
    skeletonise,
)
from evaluators.model import Deliverable, OutcomeScore, TruthError
from evaluators.outcome.aggregate import bootstrap_interval, harmonic_mean
from evaluators.outcome.files import deliverable_path, own_files
from evaluators.outcome.parameters import FilamentSegmentation
from evaluators.pairing import pair_files
from evaluators.problems import Refusal
from evaluators.readers.masks import read_mask
from evaluators.readers.tiff import TiffImage, check_shape
from evaluators.submission import Submission, SubmittedFile, stem_of
from evaluators.truth import IMAGE_SUFFIXES, Truth

VERSION = "1"

_MOSTLY = 0.5  # share of foreground above which a mask is taken for inverted, and said so
_SCORES = ("dice", "iou", "precision", "recall", "cl_dice", "topology_precision", "topology_sensitivity", "continuity")
_PARTS = ("strict_centreline", "strict_continuity", "strict_band")

Mask = NDArray[np.bool_]


def score(submission: Submission, truth: Truth, parameters: FilamentSegmentation) -> OutcomeScore:
    """Score a submission.

    Raises
    ------
    TruthError
        A reference is missing or cannot be read.
    """
    references = _references(truth, parameters)
    shapes = {}
    for name, path in references.items():
        with truth.open_image(path) as image:
            shapes[name] = image.header.shape
    deliverable = submission.deliverables[parameters.masks]

    def check(file: SubmittedFile, name: str) -> None:
        with TiffImage(file.open()) as image:
            check_shape(image.header.shape, shapes[name])

    pairing = pair_files(submission, deliverable, list(references), check)
    images = []
    for name, path in references.items():
        status, mask = pairing.reasons.get(name, "scored"), None
        if name in pairing.files:
            try:
                mask = _read(pairing.files[name], shapes[name])
            except Refusal as refusal:
                submission.problems.refused(f"{deliverable.id}: {name}", refusal)
                status = refusal.code
        if mask is not None and mask.mean() > _MOSTLY:
            message = f"{mask.mean():.0%} of the pixels are foreground; are background and filaments exchanged?"
            submission.problems.add("mostly_foreground", f"{deliverable.id}: {name}", message)
        images.append(_compare(name, status, truth.labels(path) > 0, mask, parameters))
    return _result(submission, parameters, images, pairing.unpaired)


def replay(truth: Truth, deliverables: Sequence[Deliverable], parameters: FilamentSegmentation, folder: Path) -> None:
    """Write the references as a submission."""
    deliverable = next(one for one in deliverables if one.id == parameters.masks)
    for name, path in _references(truth, parameters).items():
        mask = (truth.labels(path) > 0).astype(np.uint8)
        tifffile.imwrite(deliverable_path(folder, deliverable, f"{name}_mask.tif"), mask, compression="zlib")


def _references(truth: Truth, parameters: FilamentSegmentation) -> dict[str, Path]:
    """Return the reference masks by image: the name without the words that tell truth and input apart."""

    def found(folder: Path, suffix: str, suffixes: Sequence[str]) -> dict[str, Path]:
        files: dict[str, Path] = {}
        for path in sorted(folder.iterdir()):
            stem = stem_of(path.name)
            if path.name.startswith(".") or path.suffix.lower() not in suffixes or not stem.endswith(suffix):
                continue
            name = stem.removesuffix(suffix)
            if name in files:
                raise TruthError(f"{path}: {files[name].name} is the reference of the same image")
            files[name] = path
        return files

    references = found(truth.folder, parameters.truth_suffix, (".tif", ".tiff"))
    if not references:
        raise TruthError(f"{truth.folder}: no reference *{parameters.truth_suffix}.tiff")
    if truth.input_dir is not None:
        inputs = found(truth.input_dir, parameters.input_suffix, IMAGE_SUFFIXES)
        if lacking := sorted(set(inputs) - set(references)):
            raise TruthError(f"{truth.folder}: no reference for input image {', '.join(lacking[:5])}")
        references = {name: path for name, path in references.items() if name in inputs} if inputs else references
    return references


@dataclass(frozen=True)
class _Image:
    """Scores of one image; the last ones are parts of the strict score."""

    name: str
    status: str
    scores: Mapping[str, float]
    parts: Mapping[str, float]
    extra: Mapping[str, float | int | None]


def _read(file: SubmittedFile, shape: tuple[int, ...]) -> Mask:
    with TiffImage(file.open()) as image:
        check_shape(image.header.shape, shape)
        return read_mask(image)


def _compare(name: str, status: str, truth: Mask, mask: Mask | None, parameters: FilamentSegmentation) -> _Image:
    topology = dict(zip(("truth_components", "truth_holes"), betti_numbers(truth), strict=True))
    if mask is None:
        nothing = {"components": None, "holes": None, "foreground": None}
        return _Image(name, status, dict.fromkeys(_SCORES, 0.0), dict.fromkeys(_PARTS, 0.0), {**topology, **nothing})
    shared, drawn, true = (int(np.count_nonzero(part)) for part in (mask & truth, mask, truth))
    truth_line = skeletonise(truth)
    lines = centreline_scores(mask, truth, truth_skeleton=truth_line)
    unbroken = continuity(mask, truth_line)
    follows = float(not drawn) if unbroken is None else unbroken
    scores = (
        2.0 * shared / (drawn + true) if drawn + true else 1.0,
        shared / (drawn + true - shared) if drawn + true else 1.0,
        shared / drawn if drawn else float(not true),
        shared / true if true else float(not drawn),
        lines.dice,
        lines.precision,
        lines.sensitivity,
        follows,
    )
    parts = _above_chance(truth, mask, lines, follows, parameters)
    components, holes = betti_numbers(mask)
    found = {"components": components, "holes": holes, "foreground": drawn / mask.size}
    return _Image(
        name,
        status,
        dict(zip(_SCORES, scores, strict=True)),
        dict(zip(_PARTS, parts, strict=True)),
        {**topology, **found},
    )


def _above_chance(
    truth: Mask, mask: Mask, lines: CentrelineScores, follows: float, parameters: FilamentSegmentation
) -> tuple[float, float, float]:
    """Return centreline Dice, continuity and band precision, 0 for what is drawn without regard to the filaments.

    Chance is counted in the neighbourhood of the filaments, so that knowing where the cell lies is worth nothing: a
    line there meets a filament as often as filaments fill the neighbourhood, and a mask covers as much of their length
    as of the neighbourhood.
    """
    if not (truth.any() and mask.any()):
        alike = float(truth.any() == mask.any())
        return alike, alike, alike
    distance = distance_to(truth)
    around = distance <= parameters.neighbourhood_px
    size = np.count_nonzero(around)
    filled = np.count_nonzero(truth) / size
    covered = np.count_nonzero(mask & around) / size
    beside = distance <= parameters.tolerance_px
    centreline = CentrelineScores(above_chance(lines.precision, filled), above_chance(lines.sensitivity, covered)).dice
    band = float(np.mean(beside[mask]))
    return centreline, above_chance(follows, covered), above_chance(band, np.count_nonzero(beside) / size)


def _result(
    submission: Submission, parameters: FilamentSegmentation, images: Sequence[_Image], files_without_image: int
) -> OutcomeScore:
    primary = np.array([image.scores[parameters.primary] for image in images])
    means = {name: float(np.mean([image.scores[name] for image in images])) for name in _SCORES}
    parts = {name: float(np.mean([image.parts[name] for image in images])) for name in _PARTS}
    low, high = bootstrap_interval(primary)
    return OutcomeScore(
        outcome=float(primary.mean()),
        strict=harmonic_mean(list(parts.values())),
        delivered=submission.delivered,
        evaluator="filament_segmentation",
        evaluator_version=VERSION,
        parameters=parameters.model_dump(mode="json"),
        metrics={
            **means,
            **parts,
            **{f"{name}_sd": _sd([image.scores[name] for image in images]) for name in ("dice", "cl_dice")},
            "components_error": _mean_error(images, "components"),
            "holes_error": _mean_error(images, "holes"),
            "outcome_ci_low": low,
            "outcome_ci_high": high,
            "images": len(images),
            "items_not_scored": sum(image.status != "scored" for image in images),
            "files_without_image": files_without_image,
        },
        items=[
            {"image": image.name, "status": image.status, **image.scores, **image.parts, **image.extra}
            for image in images
        ],
        problems=submission.problems.list(),
    )


def _sd(values: Sequence[float]) -> float | None:
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def _mean_error(images: Sequence[_Image], feature: str) -> float | None:
    """Mean absolute difference in the number of components or holes, over the images that have a mask."""
    pairs = [(image.extra[f"truth_{feature}"], image.extra[feature]) for image in images]
    errors = [abs(float(found) - float(true)) for true, found in pairs if true is not None and found is not None]
    return float(np.mean(errors)) if errors else None


def as_reference(submission: Submission, given: Truth, parameters: FilamentSegmentation, folder: Path) -> Path | None:
    """Write a submission as the reference data that others are compared with; see :mod:`evaluators.agreement`."""
    suffix = parameters.input_suffix
    stems = [stem.removesuffix(suffix) for stem in given.input_stems if stem.endswith(suffix)]
    for name, file in own_files(submission, parameters.masks, stems).items():
        with TiffImage(file.open()) as image:
            mask = read_mask(image)
        tifffile.imwrite(folder / f"{name}{parameters.truth_suffix}.tiff", mask.astype(np.uint8), compression="zlib")
    return None
