"""Vessel segmentation: one binary volume per input volume, and optionally a table that describes each network.

*Outcome* (published): mean over volumes of the Dice coefficient. *Strict*: mean over volumes of the harmonic mean of
the centreline Dice and the surface Dice at one voxel, both above chance, and the continuity along the true branches.
Dice is decided by where thin vessels' walls are drawn, and sees neither missing capillaries nor broken ones.

A volume that is missing, ambiguous, unreadable, of another shape, or no mask scores 0 in every measure and stays in all
means. Two empty masks agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from evaluators.metrics.points import above_chance
from evaluators.metrics.skeletons import centreline_length, centreline_scores, continuity, skeletonise
from evaluators.metrics.surfaces import holds_block, surface_scores
from evaluators.model import Deliverable, OutcomeScore
from evaluators.outcome.aggregate import bootstrap_interval, harmonic_mean
from evaluators.outcome.files import deliverable_path, own_files
from evaluators.outcome.parameters import VesselSegmentation
from evaluators.outcome.single_table import read_single_table
from evaluators.pairing import Pairing, pair_files
from evaluators.problems import Refusal
from evaluators.readers.masks import read_mask
from evaluators.readers.tiff import TiffImage, check_shape
from evaluators.skeleton_cache import remembered_skeleton
from evaluators.submission import Submission, SubmittedFile
from evaluators.truth import Truth

VERSION = "1"

AT_ONCE = 2  # volumes; thinning leaves the interpreter free
SOLID_BLOCK = 64  # voxels: thinning anything thicker takes minutes, and no vessel network holds such a block
MAX_FOREGROUND = 0.25  # and three times the true one: beyond it a mask is no network, and thinning takes minutes too
HINT_BELOW = 0.3  # Dice, below which other orientations are tried for the report

Mask = NDArray[np.bool_]

_SCORES = (
    "dice",
    "iou",
    "precision",
    "recall",
    "volumetric_similarity",
    "cl_dice",
    "cl_precision",
    "cl_sensitivity",
    "surface_dice",
    "continuity",
    "strict",
)


@dataclass
class _Volume:
    """What is known about one volume."""

    stem: str
    status: str = "scored"
    scores: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_SCORES, 0.0))
    true_fraction: float = 0.0
    predicted_fraction: float = 0.0
    true_length_um: float = 0.0
    true_pieces: int = 0
    predicted_pieces: int = 0
    refusals: list[Refusal] = field(default_factory=list)


def score(submission: Submission, truth: Truth, parameters: VesselSegmentation) -> OutcomeScore:
    """Score a submission.

    Raises
    ------
    TruthError
        A reference is missing or cannot be read.
    """
    references = truth.manifest(name=parameters.truth_name)
    pairing = _pair(submission, truth, parameters, references)

    def one(stem: str) -> _Volume:
        return _score_volume(stem, truth.mask(references[stem]), pairing, parameters)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        volumes = list(pool.map(one, references))
    for volume in volumes:
        for refusal in volume.refusals:
            submission.problems.refused(f"{parameters.masks}: {volume.stem}", refusal)
    return _result(submission, parameters, volumes, pairing)


def replay(truth: Truth, deliverables: Sequence[Deliverable], parameters: VesselSegmentation, folder: Path) -> None:
    """Write the references as a submission."""
    known = {deliverable.id: deliverable for deliverable in deliverables}
    for stem, path in truth.manifest(name=parameters.truth_name).items():
        target = deliverable_path(folder, known[parameters.masks], f"{stem}_mask.tiff")
        tifffile.imwrite(target, truth.mask(path).astype(np.uint8), compression="zlib", metadata=None)


def _pair(
    submission: Submission, truth: Truth, parameters: VesselSegmentation, references: Mapping[str, Path]
) -> Pairing:
    shapes = {}
    for stem, path in references.items():
        with truth.open_image(path) as image:
            shapes[stem] = image.header.shape

    def check(file: SubmittedFile, stem: str) -> None:
        with TiffImage(file.open()) as image:
            check_shape(image.header.shape, shapes[stem])

    return pair_files(submission, submission.deliverables[parameters.masks], list(references), check)


def _score_volume(stem: str, truth: Mask, pairing: Pairing, parameters: VesselSegmentation) -> _Volume:
    volume = _Volume(stem, pairing.reasons.get(stem, "scored"))
    volume.true_fraction = float(np.count_nonzero(truth) / truth.size)
    skeleton = remembered_skeleton(truth)
    volume.true_length_um = centreline_length(skeleton, parameters.spacing_um)
    volume.true_pieces = _pieces(truth)
    if stem not in pairing.files:
        return volume
    try:
        with TiffImage(pairing.files[stem].open()) as image:
            check_shape(image.header.shape, truth.shape)
            predicted = read_mask(image)
    except Refusal as refusal:
        volume.refusals.append(refusal)
        volume.status = refusal.code
        return volume
    volume.scores.update(_overlap(truth, predicted))
    volume.predicted_fraction = float(np.count_nonzero(predicted) / predicted.size)
    volume.predicted_pieces = _pieces(predicted)
    if volume.scores["dice"] < HINT_BELOW and (hint := _orientation(truth, predicted, volume.scores["dice"])):
        volume.refusals.append(Refusal("orientation", hint))
    surfaces = surface_scores(truth, predicted)
    volume.scores["surface_dice"] = surfaces.dice
    if reason := _no_network(predicted, volume):
        volume.refusals.append(Refusal("no_network", reason))
        return volume
    along = centreline_scores(predicted, truth, predicted_skeleton=skeletonise(predicted), truth_skeleton=skeleton)
    unbroken = continuity(predicted, skeleton)
    volume.scores |= {
        "cl_dice": along.dice,
        "cl_precision": along.precision,
        "cl_sensitivity": along.sensitivity,
        "continuity": float(not predicted.any()) if unbroken is None else unbroken,
    }
    fraction = volume.true_fraction
    chance = 2.0 * fraction / (1.0 + fraction)  # of a centreline everywhere: all of the true one, a share that is right
    volume.scores["strict"] = harmonic_mean(
        [
            above_chance(along.dice, chance),
            above_chance(surfaces.dice, surfaces.chance),
            volume.scores["continuity"],
        ]
    )
    return volume


def _overlap(truth: Mask, predicted: Mask) -> dict[str, float]:
    """Return the voxel scores; where both masks are empty all are 1, where one is, 0."""
    true, found = np.count_nonzero(truth), np.count_nonzero(predicted)
    if not true or not found:
        return dict.fromkeys(("dice", "iou", "precision", "recall", "volumetric_similarity"), float(true == found))
    shared = np.count_nonzero(truth & predicted)
    return {
        "dice": 2.0 * shared / (true + found),
        "iou": shared / (true + found - shared),
        "precision": shared / found,
        "recall": shared / true,
        "volumetric_similarity": 1.0 - abs(true - found) / (true + found),
    }


def _pieces(mask: Mask) -> int:
    import cc3d

    return int(cc3d.connected_components(mask, connectivity=26, return_N=True)[1])


def _no_network(predicted: Mask, volume: _Volume) -> str | None:
    """Say why a mask cannot be a network of vessels; centrelines of such masks mean nothing and take very long."""
    most = max(MAX_FOREGROUND, 3.0 * volume.true_fraction)
    if volume.predicted_fraction > most:
        return (
            f"{volume.predicted_fraction:.0%} of the volume is foreground: no centreline is measured above {most:.0%}"
        )
    if holds_block(predicted, SOLID_BLOCK):
        return f"holds a solid block of {SOLID_BLOCK} voxels along each axis: no centreline is measured"
    return None


def _orientation(truth: Mask, predicted: Mask, dice: float) -> str | None:
    """Say whether the mask fits much better when mirrored or with rows and columns exchanged."""
    small = truth[::2, ::2, ::2]
    best = (dice + 0.3, "")
    for exchange, *mirrored in product((False, True), repeat=4):
        if exchange and truth.shape[1] != truth.shape[2]:
            continue
        turned = predicted.swapaxes(1, 2) if exchange else predicted
        turned = turned[tuple(slice(None, None, -1) if flip else slice(None) for flip in mirrored)][::2, ::2, ::2]
        fit = _overlap(small, turned)["dice"]
        if fit > best[0]:
            axes = [axis for axis, flip in zip("zyx", mirrored, strict=True) if flip]
            ways = (["with rows and columns exchanged"] if exchange else []) + (
                [f"mirrored along {', '.join(axes)}"] if axes else []
            )
            best = (fit, f"fits with Dice {fit:.2f} instead of {dice:.2f} when {' and '.join(ways)}")
    return best[1] or None


def _result(
    submission: Submission, parameters: VesselSegmentation, volumes: Sequence[_Volume], pairing: Pairing
) -> OutcomeScore:
    metrics: dict[str, float | int | str | None] = {
        name: float(np.mean([volume.scores[name] for volume in volumes])) for name in _SCORES if name != "strict"
    }
    primary = [volume.scores[parameters.primary] for volume in volumes]
    low, high = bootstrap_interval(primary)
    metrics |= {
        "dice_sd": float(np.std([volume.scores["dice"] for volume in volumes])),
        "outcome_ci_low": low,
        "outcome_ci_high": high,
        "volumes": len(volumes),
        "items_not_scored": sum(volume.status != "scored" for volume in volumes),
        "files_without_image": pairing.unpaired,
        **_morphology(submission, parameters, volumes),
    }
    return OutcomeScore(
        outcome=float(np.mean(primary)),
        strict=float(np.mean([volume.scores["strict"] for volume in volumes])),
        delivered=submission.delivered,
        evaluator="vessel_segmentation",
        evaluator_version=VERSION,
        parameters=parameters.model_dump(mode="json"),
        metrics=metrics,
        items=[_row(volume) for volume in volumes],
        problems=submission.problems.list(),
    )


def _morphology(
    submission: Submission, parameters: VesselSegmentation, volumes: Sequence[_Volume]
) -> dict[str, float | int | str | None]:
    """Compare the delivered table with what the references give: median relative errors, for diagnosis only."""
    if parameters.morphology is None:
        return {}
    optional = ["total_length_um", "vessel_volume_fraction"]
    rows = read_single_table(submission, parameters.morphology, ["sample_id"], optional, mergeable=True)
    errors: dict[str, list[float]] = {name: [] for name in optional}
    if rows is not None:
        true = {volume.stem.lower(): (volume.true_length_um, volume.true_fraction) for volume in volumes}
        samples = [cells["sample_id"].strip().lower() for cells in rows.cells]
        for place, name in enumerate(optional):
            if not rows.has(name):
                continue
            for sample, value in zip(samples, rows.numbers(name).tolist(), strict=True):
                if sample in true and np.isfinite(value) and true[sample][place] > 0:
                    errors[name].append(abs(value - true[sample][place]) / true[sample][place])
    return {
        "length_error": float(np.median(errors["total_length_um"])) if errors["total_length_um"] else None,
        "fraction_error": (
            float(np.median(errors["vessel_volume_fraction"])) if errors["vessel_volume_fraction"] else None
        ),
    }


def _row(volume: _Volume) -> dict[str, Any]:
    return {
        "volume": volume.stem,
        "status": volume.status,
        "true_fraction": volume.true_fraction,
        "predicted_fraction": volume.predicted_fraction,
        "true_length_um": volume.true_length_um,
        "true_pieces": volume.true_pieces,
        "predicted_pieces": volume.predicted_pieces,
        **volume.scores,
    }


def as_reference(submission: Submission, given: Truth, parameters: VesselSegmentation, folder: Path) -> Path | None:
    """Write a submission as the reference data that others are compared with; see :mod:`evaluators.agreement`."""
    for stem, file in own_files(submission, parameters.masks, given.input_stems).items():
        with TiffImage(file.open()) as image:
            mask = read_mask(image)
        path = folder / f"{parameters.truth_name.format(stem)}.tif"
        tifffile.imwrite(path, mask.astype(np.uint8), compression="zlib", metadata=None)
    return None
