"""Onsets of events in two or more conditions, as distributions and, where truth tells, event by event.

*Outcome* (published): mean over conditions of ``1 - D``, with D the Kolmogorov-Smirnov distance of the submitted from
the reference onsets, compared to three decimals; 0 for a condition with fewer than two events. A row without a number
between 0 and 1 stays in the count as an event that lies beyond every true one; a row that repeats an event's place
and time counts once.

*Strict* needs true events with place and time, which only simulated movies have: harmonic mean of the F1 of matched
events of each condition, each match weighted by how close its normalised onset is, above chance, and of the difference
between conditions recovered. A few quantiles, a grid or any list of numbers that was not found in the movies fails.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from evaluators.metrics.assignment import assign
from evaluators.metrics.distributions import ks_distance
from evaluators.metrics.group_patterns import common_language_effect, effect_agreement
from evaluators.metrics.points import above_chance
from evaluators.model import Deliverable, OutcomeScore, TruthError
from evaluators.outcome.aggregate import harmonic_mean
from evaluators.outcome.files import deliverable_path, write_rows
from evaluators.outcome.parameters import OnsetDistribution
from evaluators.outcome.single_table import Rows, read_single_table
from evaluators.problems import Refusal, shown
from evaluators.readers.text import read_text
from evaluators.submission import Submission
from evaluators.truth import Truth

VERSION = "1"

EVENTS_FILE = "events.csv"
CONDITION, ONSET = "condition", "start_normalized"
LOCATION = ("frame", "y", "x")
DECIMALS = 3  # of onsets; a reference gives no more
CHANCE_F1 = 0.1  # events set at random on replication foci in S phase stay below
_SUFFIX = r"(?:(?:cell|nucleus|nuc|rep|replicate|movie|track|roi|pos|fov|event|c|n|r)?[0-9]+)*"

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Events:
    """Events of one condition.

    Attributes
    ----------
    onsets : (n,) float64
        Normalised onsets; infinite where a row holds none.
    places : (n, 3) float64 or None
        Frame, y, x; NaN where a row holds none; ``None`` without these columns.
    """

    onsets: Values
    places: Values | None


def score(submission: Submission, truth: Truth, parameters: OnsetDistribution) -> OutcomeScore:
    """Score a submission.

    Raises
    ------
    TruthError
        The reference table, or the table of true events, cannot be used.
    """
    references = read_reference(truth, parameters)
    true_events = _true_events(truth, parameters)
    events = _events(submission, parameters)
    distances = {name: _distance(references[name], events[name].onsets) for name in parameters.conditions}
    scores = {name: 0.0 if distance is None else max(0.0, 1.0 - distance) for name, distance in distances.items()}
    for name, found in events.items():
        if len(found.onsets) < 2:
            message = f"{len(found.onsets)} events; a distribution needs two at least, the condition scores 0"
            submission.problems.add("too_few_events", f"{parameters.table}: {name}", message)
    metrics: dict[str, float | int | str | None] = {}
    for name in parameters.conditions:
        metrics |= _described(name, references[name], events[name].onsets, distances[name])
    metrics |= _compared(references, events, parameters)
    strict = None
    if true_events is not None:
        parts = _strict_parts(submission, true_events, events, parameters)
        strict = harmonic_mean(list(parts.values()))
        metrics |= {f"strict_{name}": value for name, value in parts.items()}
    return OutcomeScore(
        outcome=float(np.mean(list(scores.values()))),
        strict=strict,
        delivered=submission.delivered,
        evaluator="onset_distribution",
        evaluator_version=VERSION,
        parameters=parameters.model_dump(mode="json"),
        metrics=metrics,
        items=[
            {
                "condition": name,
                "score": scores[name],
                "ks_distance": distances[name],
                "events": len(events[name].onsets),
                "reference_events": len(references[name]),
            }
            for name in parameters.conditions
        ],
        problems=submission.problems.list(),
    )


def replay(truth: Truth, deliverables: Sequence[Deliverable], parameters: OnsetDistribution, folder: Path) -> None:
    """Write the true events as a submission; without places where only the reference table is known."""
    deliverable = next(one for one in deliverables if one.id == parameters.table)
    references, true_events = read_reference(truth, parameters), _true_events(truth, parameters)
    lines = [",".join((CONDITION, *LOCATION, ONSET) if true_events else (CONDITION, ONSET))]
    for name in parameters.conditions:
        if true_events is None:
            lines += [f"{name},{onset!r}" for onset in references[name].tolist()]
        else:
            own = true_events[name]
            assert own.places is not None
            lines += [
                f"{name},{frame:g},{y!r},{x!r},{onset!r}"
                for (frame, y, x), onset in zip(own.places.tolist(), own.onsets.tolist(), strict=True)
            ]
    target = deliverable_path(folder, deliverable, f"{parameters.table}.csv")
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


# --- truth ------------------------------------------------------------------------------------------------------------


def condition_of(name: str, parameters: OnsetDistribution) -> str | None:
    """Return the condition that a label means, or ``None`` where it is none or several.

    Case, blanks and punctuation do not count, nor the figure's name before it, nor numbers of cells or replicates after
    it (``siControl_cell3``).
    """
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    plain = re.sub(r"^fig(?:ure)?[0-9][a-z](?=[a-z0-9])|tif$", "", plain)
    found = []
    for condition, aliases in parameters.conditions.items():
        spellings = sorted({re.sub(r"[^a-z0-9]", "", text.lower()) for text in (condition, *aliases)})
        if any(re.fullmatch(re.escape(spelling) + _SUFFIX, plain) for spelling in spellings):
            found.append(condition)
    return found[0] if len(found) == 1 else None


def read_reference(truth: Truth, parameters: OnsetDistribution) -> dict[str, Values]:
    """Read the reference onsets: conditions side by side, their names in the first row, headers in the second.

    Raises
    ------
    TruthError
        There is no such table, or a condition has no values.
    """
    paths = sorted(truth.folder.rglob(f"{parameters.table}.csv"))
    if not paths:
        raise TruthError(f"{truth.folder}: no reference table {parameters.table}.csv")
    path = paths[0]
    try:
        with path.open("rb") as handle:
            rows = list(csv.reader(read_text(handle).splitlines()))
    except (Refusal, OSError, csv.Error) as error:
        raise TruthError(f"{path}: {error}") from error
    if len(rows) < 3:
        raise TruthError(f"{path}: expected a row of conditions, a row of headers and values")
    starts = [column for column, cell in enumerate(rows[0]) if cell.strip()]
    wanted = parameters.truth_column.strip().lower()
    references: dict[str, Values] = {}
    for start, stop in zip(starts, [*starts[1:], len(rows[1])], strict=True):
        name = condition_of(rows[0][start], parameters)
        headers = [cell.strip().lower() for cell in rows[1][start:stop]]
        if name is None or wanted not in headers:
            continue
        column = start + headers.index(wanted)
        values = [value for row in rows[2:] if column < len(row) and (value := _finite(row[column])) is not None]
        references[name] = np.array(values)
    if lacking := [name for name in parameters.conditions if len(references.get(name, ())) < 2]:
        raise TruthError(f"{path}: no values {parameters.truth_column!r} of condition {', '.join(lacking)}")
    return references


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _true_events(truth: Truth, parameters: OnsetDistribution) -> dict[str, Events] | None:
    path = truth.folder / EVENTS_FILE
    if not path.is_file():
        return None
    table = truth.texts(path, (CONDITION, *LOCATION, ONSET))
    onsets = np.array([table.number(k, ONSET) for k in range(len(table.rows))], float)
    places = np.array([[table.number(k, axis) for axis in LOCATION] for k in range(len(table.rows))], float)
    names = [condition_of(row[CONDITION], parameters) for row in table.rows]
    if None in names or not (np.isfinite(onsets).all() and np.isfinite(places).all()):
        raise TruthError(f"{path}: a row has no known condition, or a cell that is no number")
    of = {name: np.array([own == name for own in names], bool) for name in parameters.conditions}
    return {name: Events(onsets[mask], places[mask]) for name, mask in of.items()}


# --- submission -------------------------------------------------------------------------------------------------------


def _events(submission: Submission, parameters: OnsetDistribution) -> dict[str, Events]:
    rows = read_single_table(submission, parameters.table, (CONDITION, ONSET), LOCATION, mergeable=False)
    if rows is None:
        return {name: Events(np.empty(0), None) for name in parameters.conditions}
    labels = {text: condition_of(text, parameters) for text in {cells[CONDITION] for cells in rows.cells}}
    for text in sorted(text for text, name in labels.items() if name is None):
        count = sum(cells[CONDITION] == text for cells in rows.cells)
        message = f"{shown(text, 40)!r} ({count} rows) is none of {', '.join(parameters.conditions)}"
        submission.problems.add("unknown_condition", parameters.table, message)
    names = np.array([labels[cells[CONDITION]] or "" for cells in rows.cells], dtype=object)
    onsets = rows.numbers(ONSET)
    places = np.stack([rows.numbers(axis) for axis in LOCATION], axis=1) if _located(rows) else None
    return {
        name: _of_condition(
            submission, f"{parameters.table}: {name}", onsets[own], None if places is None else places[own]
        )
        for name in parameters.conditions
        for own in [np.asarray(names == name, bool)]
    }


def _located(rows: Rows) -> bool:
    return bool(rows.cells) and all(rows.has(axis) for axis in LOCATION)


def _of_condition(submission: Submission, where: str, onsets: Values, places: Values | None) -> Events:
    """Name what is wrong with the events of a condition; drop repetitions."""
    wrong = ~((onsets >= 0.0) & (onsets <= 1.0))
    if wrong.any():
        beyond = onsets[wrong & np.isfinite(onsets)]
        hint = "; all lie above 1: hours or percent instead of a fraction?" if len(beyond) == len(onsets) else ""
        message = f"{int(wrong.sum())} of {len(onsets)} rows hold no number between 0 and 1 and match nothing{hint}"
        submission.problems.add("invalid_onset", where, message)
    onsets = np.where(wrong, math.inf, onsets)
    if places is None:
        return Events(onsets, None)
    known = np.isfinite(places).all(axis=1)
    if not known.all():
        message = f"{int((~known).sum())} rows have no frame, y and x"
        submission.problems.add("unlocated_event", where, message)
    _, first = np.unique(places[known], axis=0, return_index=True)
    kept = np.sort(np.concatenate([np.flatnonzero(known)[first], np.flatnonzero(~known)]))
    if len(kept) < len(onsets):
        message = f"{len(onsets) - len(kept)} rows repeat the place and time of another; each event counts once"
        submission.problems.add("repeated_event", where, message)
    return Events(onsets[kept], places[kept])


# --- scores -----------------------------------------------------------------------------------------------------------


def _distance(reference: Values, onsets: Values) -> float | None:
    """Return the distance of two samples as published tables print them: equal values that were rounded stay equal."""
    return ks_distance(np.round(reference, DECIMALS), np.round(onsets, DECIMALS))


def _described(name: str, reference: Values, onsets: Values, distance: float | None) -> dict[str, float | int | None]:
    known = onsets[np.isfinite(onsets)]
    return {
        f"{name}_ks_distance": distance,
        f"{name}_events": len(onsets),
        f"{name}_count_relative_error": abs(len(onsets) - len(reference)) / len(reference),
        f"{name}_mean": float(known.mean()) if len(known) else None,
        f"{name}_sd": float(known.std(ddof=1)) if len(known) > 1 else None,
        f"{name}_median": float(np.median(known)) if len(known) else None,
        f"{name}_reference_mean": float(reference.mean()),
        f"{name}_reference_median": float(np.median(reference)),
    }


def _compared(
    references: Mapping[str, Values], events: Mapping[str, Events], parameters: OnsetDistribution
) -> dict[str, float | None]:
    """Agreement of means, and how the first condition differs from the second."""
    known = {name: found.onsets[np.isfinite(found.onsets)] for name, found in events.items()}
    errors = [abs(float(known[name].mean() - references[name].mean())) if len(known[name]) else 1.0 for name in known]
    found: dict[str, float | None] = {
        "mae_start_normalized": float(np.mean(errors)),
        "mean_agreement": max(0.0, 1.0 - float(np.mean(errors))),
    }
    if len(parameters.conditions) == 2:
        first, second = (known[name] for name in parameters.conditions)
        found["effect_first_over_second"] = common_language_effect(first, second)
        testable = min(len(first), len(second)) > 0
        found["mann_whitney_p"] = float(stats.mannwhitneyu(first, second).pvalue) if testable else None
    return found


def _strict_parts(
    submission: Submission,
    true_events: Mapping[str, Events],
    events: Mapping[str, Events],
    parameters: OnsetDistribution,
) -> dict[str, float]:
    parts: dict[str, float] = {}
    if all(found.places is None for found in events.values()) and any(len(found.onsets) for found in events.values()):
        message = f"no columns {', '.join(LOCATION)}: events cannot be looked up in the movies"
        submission.problems.add("no_location", parameters.table, message)
    for name, true in true_events.items():
        weight = _matched(true, events[name], parameters)
        total = len(true.onsets) + len(events[name].onsets)
        parts[f"{name}_events"] = above_chance(2.0 * weight / total if total else 1.0, CHANCE_F1)
    names = list(parameters.conditions)
    if len(names) == 2:
        true_first, true_second = (true_events[name].onsets for name in names)
        first, second = (events[name].onsets for name in names)
        known = [onsets[np.isfinite(onsets)] for onsets in (first, second)]
        recovered = effect_agreement(true_first, true_second, *known) if all(map(len, known)) else 0.0
        parts["difference"] = recovered
    return parts


def _matched(true: Events, found: Events, parameters: OnsetDistribution) -> float:
    """Return the sum over optimally matched events of the closeness of their onsets, 0 to 1 each."""
    if found.places is None or true.places is None or not len(found.onsets) or not len(true.onsets):
        return 0.0
    if 2 * len(true.onsets) <= CHANCE_F1 * (len(true.onsets) + len(found.onsets)):
        return 0.0  # so many events that even a full match is no better than chance
    tolerance = np.array([parameters.frames + 0.5, parameters.distance_px, parameters.distance_px])
    order = np.lexsort((found.onsets, *found.places.T))
    apart = (found.places[order][None] - true.places[:, None]) / tolerance
    near = (np.abs(apart[..., 0]) <= 1.0) & (np.hypot(apart[..., 1], apart[..., 2]) <= 1.0)
    row, column = np.nonzero(near)
    costs = np.sum(apart[row, column] ** 2, axis=1)
    chosen = assign(row.astype(np.int64), column.astype(np.int64), costs)
    error = np.abs(found.onsets[order][column] - true.onsets[row]) / parameters.onset_scale
    return float(np.maximum(0.0, 1.0 - error)[chosen].sum())


def as_reference(submission: Submission, given: Truth, parameters: OnsetDistribution, folder: Path) -> Path | None:
    """Write a submission as the reference data that others are compared with; see :mod:`evaluators.agreement`."""
    events = _events(submission, parameters)
    known = {name: found.onsets[np.isfinite(found.onsets)].tolist() for name, found in events.items()}
    most = max(map(len, known.values()))
    rows = [[values[row] if row < len(values) else "" for values in known.values()] for row in range(most)]
    header = [list(known), [parameters.truth_column] * len(known)]
    write_rows(folder / f"{parameters.table}.csv", header[0], [header[1], *rows])
    return None
