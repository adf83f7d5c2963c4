"""Speed kymographs of wound closure, and the velocity field of the first pair of frames, one of each per experiment.

*Outcome* (published): 0.50 accuracy (correlation with the true kymograph) + 0.25 pattern (near the wound faster than
far from it) + 0.15 direction (motion towards the wound, relative to the true field) + 0.10 completeness. Half of it is
free for a table that falls with distance and a field that follows the distance map.

*Strict*: harmonic mean, over means of experiments, of the concordance of what is left of the kymographs without their
mean profiles of distance and time (above what the kymographs of the other experiments reach), of the concordance of the
whole in um/h, and of the agreement of the velocities beyond the way to the wound.

Values that are missing or not finite where truth has one count as missing: accuracy is multiplied by the share that is
there, a frame pair without them has no pattern, a pixel without velocity has direction 0. What truth does not have,
such as frame pairs after the edges have met, is ignored. A file of an experiment that is missing, ambiguous, unreadable
or of an impossible shape scores 0 in its parts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from evaluators.metrics.agreement import concordance
from evaluators.metrics.kymographs import (
    coverage,
    fitted,
    leading_band,
    mean_cosine,
    moving,
    near_faster_share,
    pooled_correlation,
    profile_free_concordance,
    sideways_agreement,
    toward_wound,
)
from evaluators.metrics.points import above_chance
from evaluators.model import Deliverable, OutcomeScore, TruthError
from evaluators.outcome.aggregate import bootstrap_interval, harmonic_mean
from evaluators.outcome.files import deliverable_path
from evaluators.outcome.parameters import SpeedKymograph
from evaluators.pairing import Pairing, pair_files, tokens
from evaluators.problems import Refusal
from evaluators.readers.tiff import TiffImage, check_shape
from evaluators.submission import Submission, SubmittedFile, stem_of
from evaluators.truth import Truth

VERSION = "1"

SUFFIXES = {"kymograph": "_speedKymograph", "velocity_x": "_mf_dxs", "velocity_y": "_mf_dys"}
_ROI = "_roi.tif"
MAX_KYMOGRAPH = 100_000_000  # cells

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def score(submission: Submission, truth: Truth, parameters: SpeedKymograph) -> OutcomeScore:
    """Score a submission.

    Raises
    ------
    TruthError
        A reference or the mask of an experiment is missing or cannot be read.
    """
    experiments = _experiments(truth, parameters)
    pairings = {part: _pair(submission, part, parameters, experiments) for part in SUFFIXES}
    results = [_compare(submission, parameters, experiment, pairings) for experiment in experiments.values()]
    return _result(submission, parameters, results, sum(pairing.unpaired for pairing in pairings.values()))


def replay(truth: Truth, deliverables: Sequence[Deliverable], parameters: SpeedKymograph, folder: Path) -> None:
    """Write the references as a submission, in their own folders."""
    known = {deliverable.id: deliverable for deliverable in deliverables}
    for experiment in _experiments(truth, parameters).values():
        for part, suffix in SUFFIXES.items():
            values = {"kymograph": experiment.kymograph, "velocity_y": experiment.velocity[0]}.get(
                part, experiment.velocity[1]
            )
            deliverable = known[getattr(parameters, part)]
            path = deliverable_path(folder / experiment.folder, deliverable, f"{experiment.name}{suffix}.tif")
            tifffile.imwrite(path, values, compression="zlib", metadata=None)


@dataclass(frozen=True, eq=False)
class _Experiment:
    """Reference data of one experiment; velocity as (y, x) components, all in um/h."""

    name: str
    folder: Path  # below the evaluation folder
    kymograph: Array
    velocity: Array
    cells: Mask
    chance: float  # mean concordance, without profiles, with the kymographs of the other experiments
    patch_px: int | None  # of the patches over which velocities are compared; unknown without a pixel size


@dataclass(frozen=True)
class _Scores:
    """Scores of one experiment; ``None`` where truth has no such thing."""

    name: str
    status: Mapping[str, str]
    accuracy: float
    pattern: float | None
    direction: float | None
    files: int
    pearson: float | None
    coverage: float
    nrmse: float | None
    profile_free: float
    concordance: float
    sideways: float | None


# --- truth --------------------------------------------------------------------------------------------------------


def _experiments(truth: Truth, parameters: SpeedKymograph) -> dict[str, _Experiment]:
    """Read the references, by experiment: every ``*_speedKymograph.tif`` below the evaluation folder."""
    suffix = SUFFIXES["kymograph"]
    found: dict[str, _Experiment] = {}
    for path in sorted(truth.folder.rglob("*.tif*")):
        stem = stem_of(path.name)
        if path.name.startswith(".") or not stem.lower().endswith(suffix.lower()):
            continue
        name = stem[: -len(suffix)]
        if name in found:
            raise TruthError(f"{path}: experiment {name} occurs twice")
        kymograph = _plane(truth, path)
        velocity = [
            _plane(truth, path.with_name(f"{name}{SUFFIXES[part]}.tif")) for part in ("velocity_y", "velocity_x")
        ]
        cells, pixel_um = _cells(truth, path, name)
        if kymograph.ndim != 2 or not np.isfinite(kymograph).any():
            raise TruthError(f"{path}: expected a table of distance bands and frame pairs, found {kymograph.shape}")
        if any(component.shape != cells.shape for component in velocity):
            raise TruthError(f"{path.parent}: velocities and cells of {name} differ in shape")
        patch = math.ceil(parameters.patch_um / pixel_um) if pixel_um else None
        folder = path.parent.relative_to(truth.folder)
        found[name] = _Experiment(name, folder, kymograph, np.stack(velocity), cells, 0.0, patch)
    if not found:
        raise TruthError(f"{truth.folder}: no *{suffix}.tif")
    return {name: replace(one, chance=_chance(one, list(found.values()))) for name, one in found.items()}


def _chance(one: _Experiment, all_of_them: Sequence[_Experiment]) -> float:
    """Return what the kymograph of another experiment of this kind is worth here, on average."""
    others = [other.kymograph for other in all_of_them if other is not one]
    worth = [profile_free_concordance(fitted(other, one.kymograph.shape), one.kymograph) for other in others]
    return max(0.0, float(np.mean([value or 0.0 for value in worth]))) if worth else 0.0


def _plane(truth: Truth, path: Path) -> Array:
    """Read a single-plane image with both of its axes, whatever their length."""
    with truth.open_image(path) as image:
        try:
            return np.asarray(image.plane(0), float)
        except Refusal as refusal:
            raise TruthError(f"{path}: {refusal}") from refusal


def _cells(truth: Truth, kymograph: Path, name: str) -> tuple[Mask, float | None]:
    """Return the cells at the first frame and the pixel size; the mask lies beside the truth or in the input."""
    places = [kymograph.parent, *([truth.input_dir] if truth.input_dir is not None else [])]
    masks = [path for place in places for path in sorted(place.rglob(f"{name}_roi.tif*"))]
    if not masks:
        raise TruthError(f"{kymograph}: no {name}_roi.tif in the evaluation or input folder; directions need it")
    cells = _plane(truth, masks[0]) > 0
    stacks = [path for place in places for path in sorted(place.rglob(f"{name}_image_stack.tif*"))]
    return cells, _pixel_size_um(stacks[0]) if stacks else None


def _pixel_size_um(path: Path) -> float | None:
    """Return the pixel size of an ImageJ stack in um: the inverse of its resolution tag."""
    try:
        with tifffile.TiffFile(path, _multifile=False) as file:
            tag: Any = file.pages.first.tags.get("YResolution")
    except Exception as error:
        raise TruthError(f"{path}: cannot be read: {error}") from error
    return float(tag.value[1]) / float(tag.value[0]) if tag is not None and tag.value[0] else None


# --- submission -----------------------------------------------------------------------------------------------------


class _PathMatcher:
    """Tells which experiment a path means: the one whose name, cut into words and numbers, is part of it."""

    def __init__(self, names: Sequence[str], suffix: str) -> None:
        self._names = {name: tokens(name) for name in names}
        self._suffix = suffix.lower()

    def __call__(self, file: SubmittedFile) -> tuple[str, int] | None:
        stem = file.stem
        for name in self._names:
            if stem.lower() == name.lower() + self._suffix:
                return name, 0
        for rank, texts in ((1, [stem]), (2, file.parts[-2::-1])):
            for text in texts:
                held = tokens(re.sub(re.escape(self._suffix), " ", text, flags=re.IGNORECASE))
                hits = [name for name, words in self._names.items() if _contains(held, words)]
                if len(hits) == 1:
                    return hits[0], rank
                if hits:
                    return None
        return None


def _contains(held: tuple[str, ...], words: tuple[str, ...]) -> bool:
    return any(held[start : start + len(words)] == words for start in range(len(held) - len(words) + 1))


def _pair(
    submission: Submission, part: str, parameters: SpeedKymograph, experiments: Mapping[str, _Experiment]
) -> Pairing:
    def check(file: SubmittedFile, name: str) -> None:
        with TiffImage(file.open()) as image:
            shape = image.header.plane_shape if image.header.planes == 1 else image.header.shape
            if part == "kymograph":
                _check_kymograph(shape, experiments[name].kymograph.shape)
            else:
                check_shape(image.header.shape, experiments[name].cells.shape)

    deliverable = submission.deliverables[getattr(parameters, part)]
    return pair_files(
        submission, deliverable, list(experiments), check, _PathMatcher(list(experiments), SUFFIXES[part])
    )


def _check_kymograph(found: tuple[int, ...], truth: tuple[int, ...]) -> None:
    """Refuse what cannot be a table of bands and frame pairs; a smaller or larger one is taken as it is."""
    if len(found) != 2:
        raise Refusal("wrong_shape", f"has shape {found}; expected a single page of distance bands x frame pairs")
    if found[0] * found[1] > MAX_KYMOGRAPH:
        raise Refusal("too_large", f"has shape {found}, far more than bands and frame pairs")
    if found[0] != truth[0] and found[1] == truth[0]:
        raise Refusal("transposed", f"has shape {found}; expected {truth[0]} rows, one per distance band")


def _read(submission: Submission, pairing: Pairing, name: str) -> tuple[Array | None, str]:
    """Return an image as floats, and what became of it."""
    file = pairing.files.get(name)
    if file is None:
        return None, pairing.reasons.get(name, "missing_file")
    try:
        with TiffImage(file.open()) as image:
            if image.header.dtype.kind == "b":
                raise Refusal("wrong_dtype", "holds truth values; expected numbers in um/h")
            values = image.plane(0)
    except Refusal as refusal:
        submission.problems.refused(file.path, refusal)
        return None, refusal.code
    return np.asarray(values, float).reshape(values.shape[-2:]), "scored"


def _compare(
    submission: Submission, parameters: SpeedKymograph, experiment: _Experiment, pairings: Mapping[str, Pairing]
) -> _Scores:
    read = {part: _read(submission, pairing, experiment.name) for part, pairing in pairings.items()}
    status = {part: code for part, (_, code) in read.items()}
    truth = experiment.kymograph
    table = read["kymograph"][0]
    if table is not None and len(table) != len(truth):
        message = f"has {len(table)} distance bands, expected {len(truth)}; rows are compared from the wound outward"
        submission.problems.add("row_count", f"{parameters.kymograph}: {experiment.name}", message)
    kymograph = np.full(truth.shape, np.nan) if table is None else fitted(table, truth.shape)
    known = np.isfinite(truth)
    share = coverage(kymograph, truth)
    if table is not None and share < 1.0:
        message = f"has {share:.0%} of the finite values that are expected; the others count as missing"
        submission.problems.add("incomplete", f"{parameters.kymograph}: {experiment.name}", message)
    correlation = pooled_correlation(kymograph, np.where(known, truth, np.nan))
    near = near_faster_share(kymograph, truth, parameters.near_rows, parameters.far_from)
    x, y = read["velocity_x"][0], read["velocity_y"][0]
    velocity = None if x is None or y is None else np.stack([y, x])
    return _Scores(
        name=experiment.name,
        status=status,
        accuracy=max(0.0, correlation or 0.0) * share,
        pattern=None if near is None else max(0.0, 2.0 * near - 1.0),
        direction=_direction(velocity, experiment, parameters.leading_percentile),
        files=_complete(table, (x, y), experiment, share),
        pearson=correlation,
        coverage=share,
        nrmse=_nrmse(kymograph, truth),
        profile_free=above_chance((profile_free_concordance(kymograph, truth) or 0.0) * share, experiment.chance),
        concordance=max(0.0, concordance(kymograph, truth) or 0.0) * share,
        sideways=_sideways(velocity, experiment),
    )


def _direction(velocity: Array | None, experiment: _Experiment, percentile: float) -> float | None:
    """Return motion towards the wound relative to the true field; ``None`` where that has none."""
    distance, toward = toward_wound(experiment.cells)
    band = leading_band(distance, toward, experiment.cells, percentile) & moving(experiment.velocity)
    expected = mean_cosine(experiment.velocity, toward, band)
    if expected is None or expected <= 0.0:
        return None
    found = None if velocity is None else mean_cosine(velocity, toward, band)
    return 0.0 if found is None else float(np.clip(found / expected, 0.0, 1.0))


def _sideways(velocity: Array | None, experiment: _Experiment) -> float | None:
    if experiment.patch_px is None:
        return None
    expected = sideways_agreement(experiment.velocity, experiment.velocity, experiment.cells, experiment.patch_px)
    if expected is None:
        return None
    if velocity is None:
        return 0.0
    agreement = sideways_agreement(velocity, experiment.velocity, experiment.cells, experiment.patch_px)
    return max(0.0, agreement or 0.0)


def _complete(
    table: Array | None, components: tuple[Array | None, Array | None], experiment: _Experiment, share: float
) -> int:
    """Count the files of an experiment that hold every value that truth has."""
    known = np.isfinite(experiment.velocity).all(axis=0)
    whole = [component is not None and bool(np.isfinite(component[known]).all()) for component in components]
    return int(table is not None and share == 1.0) + sum(whole)


def _nrmse(found: Array, truth: Array) -> float | None:
    """Return the root mean square error over the mean true speed, where both are finite."""
    both = np.isfinite(found) & np.isfinite(truth)
    scale = float(np.abs(truth[both]).mean()) if both.any() else 0.0
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.mean((found[both] - truth[both]) ** 2))) / scale if scale > 0.0 else None


# --- result ---------------------------------------------------------------------------------------------------------


def _result(
    submission: Submission, parameters: SpeedKymograph, results: Sequence[_Scores], files_without_experiment: int
) -> OutcomeScore:
    weights = parameters.weights
    parts = {
        "accuracy": float(np.mean([one.accuracy for one in results])),
        "pattern": _mean([one.pattern for one in results]),
        "direction": _mean([one.direction for one in results]),
        "completeness": sum(one.files for one in results) / (len(SUFFIXES) * len(results)),
    }
    # A part that truth leaves undefined everywhere has no weight.
    defined = {name: value for name, value in parts.items() if value is not None}
    total = sum(weights[name] for name in defined)
    outcome = sum(weights[name] * value for name, value in defined.items()) / total
    profile_free = float(np.mean([one.profile_free for one in results]))
    level = float(np.mean([one.concordance for one in results]))
    sideways = _mean([one.sideways for one in results])
    correlations = [one.pearson for one in results if one.pearson is not None]
    errors = [one.nrmse for one in results if one.nrmse is not None]
    low, high = bootstrap_interval([one.accuracy for one in results])
    return OutcomeScore(
        outcome=float(np.clip(outcome, 0.0, 1.0)),
        strict=None if sideways is None else harmonic_mean([profile_free, level, sideways]),
        delivered=submission.delivered,
        evaluator="speed_kymograph",
        evaluator_version=VERSION,
        parameters=parameters.model_dump(mode="json"),
        metrics={
            **parts,
            "profile_free_concordance": profile_free,
            "kymograph_concordance": level,
            "sideways_agreement": sideways,
            "kymograph_pearson": float(np.mean([max(0.0, one.pearson or 0.0) for one in results])),
            "kymograph_pearson_defined": float(np.mean(correlations)) if correlations else None,
            "kymographs_with_pearson": len(correlations),
            "kymograph_nrmse": float(np.mean(errors)) if errors else None,
            "kymograph_coverage": float(np.mean([one.coverage for one in results])),
            "accuracy_ci_low": low,
            "accuracy_ci_high": high,
            "experiments": len(results),
            "items_not_scored": sum(code != "scored" for one in results for code in one.status.values()),
            "files_without_experiment": files_without_experiment,
        },
        items=[_item(one) for one in results],
        problems=submission.problems.list(),
    )


def _item(one: _Scores) -> dict[str, Any]:
    return {
        "experiment": one.name,
        **{f"{part}_status": code for part, code in one.status.items()},
        "accuracy": one.accuracy,
        "pattern": one.pattern,
        "direction": one.direction,
        "complete_files": one.files,
        "pearson": one.pearson,
        "coverage": one.coverage,
        "nrmse": one.nrmse,
        "profile_free_concordance": one.profile_free,
        "concordance": one.concordance,
        "sideways_agreement": one.sideways,
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def as_reference(submission: Submission, given: Truth, parameters: SpeedKymograph, folder: Path) -> Path | None:
    """Write a submission as the reference data that others are compared with; see :mod:`evaluators.agreement`."""
    if given.input_dir is None:
        raise TruthError("which experiments exist is read from the input folder, which is not at hand")
    masks = {path.name[: path.name.lower().index(_ROI)]: path for path in sorted(given.input_dir.rglob(f"*{_ROI}*"))}
    names = list(masks)
    pairings = {
        part: pair_files(
            submission,
            submission.deliverables[getattr(parameters, part)],
            names,
            lambda _file, _name: None,
            _PathMatcher(names, SUFFIXES[part]),
        )
        for part in SUFFIXES
    }
    for name, mask in masks.items():
        read = {part: _read(submission, pairing, name)[0] for part, pairing in pairings.items()}
        shape = (_plane(given, mask) > 0).shape
        kymograph = read["kymograph"]
        moved = [read[part] for part in ("velocity_x", "velocity_y")]
        if kymograph is None or not np.isfinite(kymograph).any() or any(v is None or v.shape != shape for v in moved):
            continue  # not a whole experiment: nothing to compare with
        for part, suffix in SUFFIXES.items():
            tifffile.imwrite(folder / f"{name}{suffix}.tif", read[part], compression="zlib", metadata=None)
    return given.input_dir
