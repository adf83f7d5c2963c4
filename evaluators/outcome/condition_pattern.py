"""A pattern of differences between conditions, from one measurement per image.

*Outcome* (published): the share of comparisons whose Mann-Whitney test is significant, or not, as in the study, and
the share of pairs of conditions whose medians are ordered as in the study, weighted. The tests are always computed
here from the measurements; p-values that are handed in are compared and reported, and never decide. Which images
there are, and to which condition each belongs, is read from the input. An image without one valid measurement counts
as the least favourable value, except that an image whose file is the same, byte for byte, as another's takes that
one's value.

*Strict* needs the true value of each image, which only simulated data have: harmonic mean of the concordance of
images within their condition, above chance, of the closeness to the true values, and of the agreement of the
differences between conditions. Measurements that are invented from the expected pattern, constants, and few rows have
no concordance.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluators.metrics.group_patterns import (
    closeness,
    common_language_effect,
    concordance_within,
    effect_agreement,
    worst_median_gap,
    worst_rank_sum_p,
)
from evaluators.metrics.points import above_chance
from evaluators.model import Deliverable, OutcomeScore, TruthError
from evaluators.outcome.aggregate import harmonic_mean
from evaluators.outcome.files import deliverable_path, write_rows
from evaluators.outcome.parameters import ConditionPattern
from evaluators.outcome.single_table import read_single_table
from evaluators.problems import shown
from evaluators.submission import Submission, stem_of
from evaluators.truth import IMAGE_SUFFIXES, Truth

VERSION = "1"

TRUTH_FILE = "per_cell_truth.csv"
IMAGE, CONDITION = "image", "condition"
AGREEMENT = "strict"  # the outcome compares with the published pattern, not with values
CHANCE_CONCORDANCE = 0.25  # 98 % of random orders within groups like these stay below

Image = tuple[str, str]  # condition and stem of the file's name
Values = NDArray[np.float64]


def score(submission: Submission, truth: Truth, parameters: ConditionPattern) -> OutcomeScore:
    """Score a submission.

    Raises
    ------
    TruthError
        It is not known which images there are, or the true values cannot be read.
    """
    images = input_images(truth, parameters)
    true_values = _true_values(truth, images, parameters)
    values, status = _measurements(submission, images, parameters)
    _fill_copies(submission, truth, images, values, status)
    groups = {
        condition: np.array([values[image] for image in images if image[0] == condition])
        for condition in parameters.conditions
    }
    comparisons = {
        (first, second): worst_rank_sum_p(groups[first], groups[second], significant=comparison.significant)
        for comparison in parameters.comparisons
        for first, second in [comparison.pair]
    }
    passed = [
        (p < parameters.alpha) == comparison.significant
        for p, comparison in zip(comparisons.values(), parameters.comparisons, strict=True)
    ]
    gaps = {
        (one.higher, one.lower): worst_median_gap(groups[one.higher], groups[one.lower]) for one in parameters.orderings
    }
    anything = any(math.isfinite(value) for value in values.values())
    significance = float(np.mean(passed)) if anything else 0.0
    direction = float(np.mean([gap > 0 for gap in gaps.values()]))
    metrics: dict[str, float | int | str | None] = {
        "significance_score": significance,
        "direction_score": direction,
        "images": len(images),
        "images_scored": sum(math.isfinite(value) for value in values.values()),
        **{f"p_{_key(*pair)}": p for pair, p in comparisons.items()},
        **{f"median_gap_{_key(*pair)}": gap if math.isfinite(gap) else None for pair, gap in gaps.items()},
        **_described(groups, parameters),
    }
    metrics |= _reported(submission, comparisons, parameters)
    strict = None
    if true_values is not None:
        parts = _strict_parts(images, true_values, values, parameters)
        strict = harmonic_mean(list(parts.values()))
        metrics |= {f"strict_{name}": value for name, value in parts.items()}
    return OutcomeScore(
        outcome=parameters.significance_weight * significance + parameters.direction_weight * direction,
        strict=strict,
        delivered=submission.delivered,
        evaluator="condition_pattern",
        evaluator_version=VERSION,
        parameters=parameters.model_dump(mode="json"),
        metrics=metrics,
        items=[
            {
                "condition": image[0],
                "image": image[1],
                "status": status[image],
                "value": values[image] if math.isfinite(values[image]) else None,
                "true_value": None if true_values is None else true_values[image],
            }
            for image in images
        ],
        problems=submission.problems.list(),
    )


def replay(truth: Truth, deliverables: Sequence[Deliverable], parameters: ConditionPattern, folder: Path) -> None:
    """Write the true values as a submission; where none are known, values spread over the published ranges."""
    images = input_images(truth, parameters)
    values = _true_values(truth, images, parameters) or _published(images, parameters)
    deliverable = next(one for one in deliverables if one.id == parameters.table)
    rows = [f"{path},{image[0]},{values[image]!r}" for image, path in images.items()]
    name = max((pattern.replace("*", "") for pattern in deliverable.patterns), key=len)
    text = "\n".join([f"{IMAGE},{CONDITION},{parameters.value}", *rows]) + "\n"
    deliverable_path(folder, deliverable, name).write_text(text, encoding="utf-8")


# --- which images there are -------------------------------------------------------------------------------------------


def condition_of(name: str, parameters: ConditionPattern) -> str | None:
    """Return the condition that a spelling means: case, blanks and punctuation do not count."""

    def plain(text: str) -> str:
        return re.sub(r"[^a-z0-9]", "", text.lower())

    wanted = plain(name)
    for condition in parameters.conditions:
        if wanted and wanted in {plain(text) for text in (condition, *parameters.aliases.get(condition, ()))}:
            return condition
    return None


def input_images(truth: Truth, parameters: ConditionPattern) -> dict[Image, str]:
    """Return the path of each image below its input (``Stage 1/5h_1_1.tif``), in order.

    Raises
    ------
    TruthError
        There is no input, a condition has no image, or two images have one name.
    """
    images: dict[Image, str] = {}
    if truth.input_dir is None:
        raise TruthError(f"{truth.folder}: which images exist is read from the input folder, which is not at hand")
    for path in sorted(truth.input_dir.rglob("*")):
        condition = condition_of(path.parent.name, parameters)
        if condition is None or path.suffix.lower() not in IMAGE_SUFFIXES or path.name.startswith("."):
            continue
        image = (condition, stem_of(path.name))
        if image in images:
            raise TruthError(f"{path}: another image of condition {condition} has the same name")
        images[image] = path.relative_to(truth.input_dir).as_posix()
    if lacking := [name for name in parameters.conditions if not any(image[0] == name for image in images)]:
        raise TruthError(f"{truth.input_dir}: no image of condition {', '.join(lacking)}")
    truth_order = {name: rank for rank, name in enumerate(parameters.conditions)}
    return dict(sorted(images.items(), key=lambda item: (truth_order[item[0][0]], item[0][1])))


def _true_values(truth: Truth, images: Mapping[Image, str], parameters: ConditionPattern) -> dict[Image, float] | None:
    path = truth.folder / TRUTH_FILE
    if not path.is_file():
        return None
    table = truth.texts(path, (IMAGE, parameters.value))
    by_path = {row[IMAGE]: table.number(k, parameters.value) for k, row in enumerate(table.rows)}
    found = {image: by_path[name] for image, name in images.items() if math.isfinite(by_path.get(name, math.nan))}
    if len(found) != len(images):
        raise TruthError(f"{path}: has no value for {len(images) - len(found)} of {len(images)} images")
    return found


def _published(images: Mapping[Image, str], parameters: ConditionPattern) -> dict[Image, float]:
    values: dict[Image, float] = {}
    for condition in parameters.conditions:
        if condition not in parameters.published_ranges:
            raise TruthError(f"no value per image is known, nor a published range of {condition}")
        own = [image for image in images if image[0] == condition]
        values |= zip(own, np.linspace(*parameters.published_ranges[condition], len(own)).tolist(), strict=True)
    return values


# --- submission -------------------------------------------------------------------------------------------------------


def _measurements(
    submission: Submission, images: Mapping[Image, str], parameters: ConditionPattern
) -> tuple[dict[Image, float], dict[Image, str]]:
    """Return the measurement of each image, NaN where there is none to score, and why."""
    values = dict.fromkeys(images, math.nan)
    status = dict.fromkeys(images, "missing")
    rows = read_single_table(submission, parameters.table, (IMAGE, CONDITION, parameters.value), mergeable=True)
    if rows is None:
        return values, status
    by_stem: dict[str, list[Image]] = {}
    for image in images:
        by_stem.setdefault(image[1].lower(), []).append(image)
    named = [_image(cells, by_stem, parameters) for cells in rows.cells]
    count = Counter(image for image, _ in named if image is not None)
    low, high = parameters.value_range
    numbers = rows.numbers(parameters.value)
    for (meant, fault), value, place, cells in zip(named, numbers, rows.places, rows.cells, strict=True):
        if fault is not None:
            submission.problems.add(fault, place, f"{shown(cells[IMAGE], 60)!r}, {shown(cells[CONDITION], 30)!r}")
        if meant is None or count[meant] > 1:
            continue
        if low <= value <= high:
            values[meant], status[meant] = float(value), "scored"
        else:
            status[meant] = "invalid_value"
            message = f"{shown(cells[parameters.value], 30)!r} is no number between {low:g} and {high:g}"
            submission.problems.add("invalid_value", place, message)
    for repeated, times in count.items():
        if times > 1:
            status[repeated] = "duplicate"
            message = f"has {times} rows, none of them counts"
            submission.problems.add("duplicate_image", f"{parameters.table}: {images[repeated]}", message)
    if missing := [name for image, name in images.items() if status[image] == "missing"]:
        listed = f"{', '.join(missing[:6])}{' …' if len(missing) > 6 else ''}"
        submission.problems.add("missing_image", parameters.table, f"{len(missing)} images have no row: {listed}")
    return values, status


def _image(
    cells: Mapping[str, str], by_stem: Mapping[str, Sequence[Image]], parameters: ConditionPattern
) -> tuple[Image | None, str | None]:
    """Return the image that a row means, and the code of what is wrong with the row.

    The folder in the image's name tells the condition, and where there is none, the column does.
    """
    parts = [part for part in re.split(r"[/\\]+", cells[IMAGE].strip()) if part]
    stem = re.sub(r"(?i)\.(tiff?|png)$", "", parts[-1]).lower() if parts else ""
    known = by_stem.get(stem, ())
    stated = condition_of(cells[CONDITION], parameters)
    from_path = next((name for part in parts[-2::-1] if (name := condition_of(part, parameters))), None)
    condition = from_path or stated
    fitting = [image for image in known if image[0] == condition]
    if not fitting:
        return None, "unknown_image" if condition else "unknown_condition"
    return fitting[0], "condition_differs" if stated != condition else None


def _fill_copies(
    submission: Submission,
    truth: Truth,
    images: Mapping[Image, str],
    values: dict[Image, float],
    status: dict[Image, str],
) -> None:
    """Give images without a row the value of an image whose file is the same byte for byte."""
    lacking = [image for image in images if status[image] == "missing"]
    if not lacking or len(lacking) == len(images) or truth.input_dir is None:
        return
    digests = {image: _digest(truth.input_dir / name) for image, name in images.items()}
    sources = {digests[image]: image for image in images if math.isfinite(values[image])}
    copies = {image: sources[digests[image]] for image in lacking if digests[image] in sources}
    for image, source in copies.items():
        values[image], status[image] = values[source], "copy"
    if copies:
        first = next(iter(copies))
        message = f"{len(copies)} images without a row are copies of others, whose values they take ({images[first]})"
        submission.problems.add("copies_filled", "", message)


def _digest(path: Path) -> bytes:
    try:
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").digest()
    except OSError as error:
        raise TruthError(f"{path}: cannot be read: {error.strerror}") from error


def _described(groups: Mapping[str, Values], parameters: ConditionPattern) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name, group in groups.items():
        known = group[np.isfinite(group)]
        found[f"median_{_key(name)}"] = float(np.median(known)) if len(known) else None
    for comparison in parameters.comparisons:
        first, second = (groups[name][np.isfinite(groups[name])] for name in comparison.pair)
        found[f"effect_{_key(*comparison.pair[::-1])}"] = common_language_effect(second, first)
    return found


def _reported(
    submission: Submission, comparisons: Mapping[tuple[str, str], float], parameters: ConditionPattern
) -> dict[str, float | None]:
    """Compare p-values that were handed in with the ones computed here."""
    if parameters.pairwise is None:
        return {}
    columns = ("condition_1", "condition_2", "p_value")
    rows = read_single_table(submission, parameters.pairwise, columns, mergeable=False)
    if rows is None:
        return {}
    found: dict[str, float | None] = {}
    for cells, p in zip(rows.cells, rows.numbers("p_value"), strict=True):
        stated = {condition_of(cells[column], parameters) for column in columns[:2]}
        for pair, computed in comparisons.items():
            name = f"reported_p_{_key(*pair)}"
            if stated != set(pair) or name in found:
                continue
            found[name] = float(p) if 0 <= p <= 1 else None
            where = f"{parameters.pairwise}: {pair[0]}, {pair[1]}"
            if not 0 <= p <= 1:
                submission.problems.add("invalid_p_value", where, f"{shown(cells['p_value'], 30)!r} is no probability")
            elif (p < parameters.alpha) != (computed < parameters.alpha):
                message = f"reported {p:.3g}, computed from the measurements {computed:.3g}; the computed one counts"
                submission.problems.add("p_value_differs", where, message)
    return found


def _key(*names: str) -> str:
    return "_vs_".join(re.sub(r"[^a-z0-9]+", "_", name.lower()) for name in names)


def _strict_parts(
    images: Mapping[Image, str],
    true_values: Mapping[Image, float],
    values: Mapping[Image, float],
    parameters: ConditionPattern,
) -> dict[str, float]:
    def grouped(source: Mapping[Image, float]) -> dict[str, Values]:
        return {name: np.array([source[one] for one in images if one[0] == name]) for name in parameters.conditions}

    true, own = grouped(true_values), grouped(values)
    pairs = {comparison.pair for comparison in parameters.comparisons}
    pairs |= {(one.lower, one.higher) for one in parameters.orderings}
    effects = [effect_agreement(true[first], true[second], own[first], own[second]) for first, second in sorted(pairs)]
    every_true, every = (np.concatenate(list(groups.values())) for groups in (true, own))
    return {
        "images": above_chance(concordance_within(list(true.values()), list(own.values())), CHANCE_CONCORDANCE),
        "closeness": closeness(every_true, every, parameters.closeness_scale),
        "effects": float(np.mean(effects)),
    }


def as_reference(submission: Submission, given: Truth, parameters: ConditionPattern, folder: Path) -> Path | None:
    """Write a submission as the reference data that others are compared with; see :mod:`evaluators.agreement`."""
    images = input_images(given, parameters)
    values, status = _measurements(submission, images, parameters)
    _fill_copies(submission, given, images, values, status)
    measured = {image: path for image, path in images.items() if math.isfinite(values[image])}
    write_rows(
        folder / TRUTH_FILE, (IMAGE, parameters.value), [(path, values[image]) for image, path in measured.items()]
    )
    assert given.input_dir is not None  # without it, which images exist is not known: an error above
    inputs = folder / "input"
    for path in measured.values():  # images that it does not measure are not compared
        link = inputs / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(given.input_dir / path)
    if not measured:
        raise TruthError(f"{parameters.table}: no image is measured")
    return inputs
