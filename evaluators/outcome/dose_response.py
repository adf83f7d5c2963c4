"""Dose response of a plate: one measurement per well, several cell lines.

*Outcome* (published): mean over cell lines of the mean of three parts: Spearman's correlation of dose with the mean per
dose (0 where negative), consistency of replicates (their mean coefficient of variation), and 1 - p of a one-sided Welch
test of the highest against the lowest dose. Doses and cell lines come from the plate map, not from the submission. A
well that is missing, given twice, or without a positive ratio counts as the least favourable value it could have had.
The table of cells, where it agrees with the table of wells, gives the samples of the test, as published.

*Strict* needs the true ratio of each well, which only simulated plates have: harmonic mean of the concordance of
wells within their dose, above chance, and, for each line, of the rank correlation of doses with the true means and of
the fold change recovered. Values invented from the plate map, a flat plate, one line only, or an added offset fail
one of these.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluators.metrics.dose_response import (
    consistency,
    fold_agreement,
    replicate_cv,
    welch_greater,
    worst_spearman,
)
from evaluators.metrics.group_patterns import concordance_within
from evaluators.metrics.points import above_chance
from evaluators.model import Deliverable, OutcomeScore, TruthError
from evaluators.outcome.aggregate import harmonic_mean
from evaluators.outcome.files import deliverable_path, write_rows
from evaluators.outcome.parameters import DoseResponse
from evaluators.outcome.single_table import Rows, read_single_table
from evaluators.problems import Refusal, shown
from evaluators.readers.text import read_text
from evaluators.submission import Submission
from evaluators.truth import Truth

VERSION = "1"

TRUTH_FILE = "per_well_truth.csv"
RATIO = "mean_nuc_over_cyto_ratio"
CELL_RATIO = "nuc_over_cyto_ratio"
AGREEMENT = "strict"  # the outcome looks at properties of the response, not at a reference
CHANCE_CONCORDANCE = 0.25  # 98 % of plates with random differences within doses stay below
_RATIOS = (1e-6, 1e6)  # what can be a ratio at all
_AGREE = 0.02  # relative difference of the mean of a well's cells from the well's value that rounding explains

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Plate:
    """Wells in reading order with their cell line and log10 dose."""

    wells: dict[str, tuple[str, float]]

    def doses(self, line: str) -> list[tuple[float, list[str]]]:
        """Return the doses of a line, ascending, each with its wells."""
        found: dict[float, list[str]] = {}
        for well, (own, dose) in self.wells.items():
            if own == line:
                found.setdefault(dose, []).append(well)
        return sorted(found.items())


def score(submission: Submission, truth: Truth, parameters: DoseResponse) -> OutcomeScore:
    """Score a submission.

    Raises
    ------
    TruthError
        There is no readable plate map, or the true values cannot be read.
    """
    plate = read_plate(truth, parameters)
    true_ratios = _true_ratios(truth, plate)
    ratios, status = _well_ratios(submission, plate, parameters)
    cells = _cell_ratios(submission, plate, parameters, ratios)
    lines = {line: _Line.of(line, plate, ratios, cells, parameters) for line in parameters.cell_lines}
    metrics: dict[str, float | int | str | None] = {
        f"{line}_{name}": value for line, result in lines.items() for name, value in result.metrics().items()
    }
    metrics |= {
        "wells": len(plate.wells),
        "wells_scored": int(np.isfinite(list(ratios.values())).sum()),
        "cells_used": sum(map(len, cells.values())),
    }
    strict = None
    if true_ratios is not None:
        parts = _strict_parts(plate, true_ratios, ratios, parameters)
        strict = harmonic_mean(list(parts.values()))
        metrics |= {f"strict_{name}": value for name, value in parts.items()}
    return OutcomeScore(
        outcome=float(np.mean([result.score for result in lines.values()])),
        strict=strict,
        delivered=submission.delivered,
        evaluator="dose_response",
        evaluator_version=VERSION,
        parameters=parameters.model_dump(mode="json"),
        metrics=metrics,
        items=[
            {
                "well": well,
                "cell_line": line,
                "log10_dose": dose,
                "status": status[well],
                "ratio": None if math.isnan(ratios[well]) else ratios[well],
                "true_ratio": None if true_ratios is None else true_ratios[well],
            }
            for well, (line, dose) in plate.wells.items()
        ],
        problems=submission.problems.list(),
    )


def replay(truth: Truth, deliverables: Sequence[Deliverable], parameters: DoseResponse, folder: Path) -> None:
    """Write the true ratios as a submission; raise :class:`TruthError` where nobody knows them (published data)."""
    plate = read_plate(truth, parameters)
    ratios = _true_ratios(truth, plate)
    if ratios is None:
        raise TruthError(
            f"{truth.folder}: no {TRUTH_FILE}; the published plate has no reference that could be replayed"
        )
    deliverable = next(one for one in deliverables if one.id == parameters.per_well)
    rows = [f"{well},{line},{dose!r},{ratios[well]!r}" for well, (line, dose) in plate.wells.items()]
    text = "\n".join([f"well,cell_type,dose,{RATIO}", *rows]) + "\n"
    deliverable_path(folder, deliverable, f"{parameters.per_well}.csv").write_text(text, encoding="utf-8")


# --- plate ------------------------------------------------------------------------------------------------------------


def well_name(text: str) -> str | None:
    """Return a well as letter and two digits (``a1``, ``A-01`` and ``A 1`` are A01), or ``None``."""
    found = re.fullmatch(r"\s*([A-Za-z])\s*[-_ ]?\s*0*([0-9]{1,2})\s*", text)
    return f"{found[1].upper()}{int(found[2]):02d}" if found else None


def log_dose(text: str) -> float | None:
    """Return log10 of a dose written as ``10^-7``, ``1e-7`` or ``-7`` (a power of ten); units after it do not matter.

    A dose of 0 is minus infinity, the lowest; ``None`` where there is no number.
    """
    text = text.strip().replace("−", "-")
    power = re.match(r"10\s*(?:\^|\*\*)\s*\(?\s*([+-]?[0-9]*\.?[0-9]+)", text)
    if power:
        return float(power[1])
    plain = re.match(r"[+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]{1,3})?", text)
    if not plain:
        return None
    value = float(plain[0])
    return value if value < 0 else math.log10(value) if value > 0 else -math.inf


def read_plate(truth: Truth, parameters: DoseResponse) -> Plate:
    """Read the plate map from the input: the table of wells, else the list of doses in reading order.

    Raises
    ------
    TruthError
        Neither can be read, or they do not give all wells of all cell lines.
    """
    folder = truth.input_dir
    sources: list[Path] = []
    if folder is not None:
        found = [path for path in sorted(folder.rglob("*")) if "platemap" in path.name.lower() and path.is_file()]
        sources = sorted(found, key=lambda path: path.suffix.lower() != ".csv")
    elif (truth.folder / TRUTH_FILE).is_file():
        sources = [truth.folder / TRUTH_FILE]
    faults = []
    for path in sources:
        if path.suffix.lower() not in (".csv", ".txt"):
            continue
        try:
            with path.open("rb") as handle:
                text = read_text(handle)
            wells = _from_table(text, parameters) if path.suffix.lower() == ".csv" else _from_list(text, parameters)
        except (Refusal, OSError) as error:
            faults.append(f"{path.name}: {error}")
            continue
        expected = {
            f"{row}{column:02d}" for row in "".join(parameters.cell_lines.values()) for column in _span(parameters)
        }
        if set(wells) == expected:
            return Plate(dict(sorted(wells.items())))
        faults.append(f"{path.name}: gives {len(wells)} wells of {len(expected)}")
    raise TruthError(
        f"{folder or truth.folder}: no readable plate map ({'; '.join(faults) or 'no file named *platemap*'})"
    )


def _span(parameters: DoseResponse) -> range:
    return range(1, parameters.columns + 1)


def _from_table(text: str, parameters: DoseResponse) -> dict[str, tuple[str, float]]:
    """Read wells from a table with a header that names well (or row and column) and dose."""
    lines = [line for line in text.splitlines() if line.strip()]
    separator = max(",;\t", key=lines[0].count) if lines else ","
    table = [[cell.strip().strip('"') for cell in line.split(separator)] for line in lines]
    names = [name.lower() for name in table[0]] if table else []

    def place(*fragments: str) -> int | None:
        return next((names.index(name) for fragment in fragments for name in names if fragment in name), None)

    row, column, well, dose = place("row"), place("col"), place("well"), place("dose", "conc", "tnf")
    line = place("cell", "line")
    if dose is None or (well is None and (row is None or column is None)):
        raise Refusal("missing_columns", f"expected row, column and dose, found {shown(', '.join(names), 80)}")
    of_row = {letter: name for name, letters in parameters.cell_lines.items() for letter in letters}
    wells: dict[str, tuple[str, float]] = {}
    for cells in table[1:]:
        if len(cells) < len(names):
            continue
        name = well_name(cells[row] + cells[column]) if row is not None and column is not None else None
        name = name or (well_name(cells[well]) if well is not None else None)
        value = log_dose(cells[dose])
        if name is None or value is None or name[0] not in of_row:
            continue
        stated = _canonical(cells[line], parameters) if line is not None else None
        wells[name] = (stated or of_row[name[0]], value)
    return wells


def _from_list(text: str, parameters: DoseResponse) -> dict[str, tuple[str, float]]:
    """Read the doses of all wells in reading order, one a line; lines without a dose are headings."""
    of_row = {letter: name for name, letters in parameters.cell_lines.items() for letter in letters}
    doses = [dose for line in text.splitlines() if (dose := log_dose(line)) is not None]
    names = [f"{letter}{column:02d}" for letter in sorted(of_row) for column in _span(parameters)]
    if len(doses) != len(names):
        raise Refusal("wrong_length", f"expected {len(names)} doses, found {len(doses)}")
    return {name: (of_row[name[0]], dose) for name, dose in zip(names, doses, strict=True)}


def _canonical(name: str, parameters: DoseResponse) -> str | None:
    """Return the cell line that a spelling means: case and punctuation do not count."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return next((line for line in parameters.cell_lines if re.sub(r"[^a-z0-9]", "", line.lower()) == plain), None)


def _true_ratios(truth: Truth, plate: Plate) -> dict[str, float] | None:
    path = truth.folder / TRUTH_FILE
    if not path.is_file():
        return None
    table = truth.texts(path, ("well", RATIO))
    ratios = {well_name(row["well"]): table.number(k, RATIO) for k, row in enumerate(table.rows)}
    found = {well: ratios[well] for well in plate.wells if well in ratios and ratios[well] > 0}
    if len(found) != len(plate.wells):
        raise TruthError(f"{path}: has no positive ratio for {len(plate.wells) - len(found)} wells of the plate map")
    return found


# --- submission -------------------------------------------------------------------------------------------------------


def _well_ratios(
    submission: Submission, plate: Plate, parameters: DoseResponse
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the ratio of each well, NaN where there is none to score, and why."""
    ratios = dict.fromkeys(plate.wells, math.nan)
    status = dict.fromkeys(plate.wells, "missing")
    where = parameters.per_well
    rows = read_single_table(submission, where, ("well", RATIO), ("cell_type", "dose"), mergeable=True)
    if rows is None:
        return ratios, status
    values = rows.numbers(RATIO)
    names = [well_name(cells["well"]) for cells in rows.cells]
    count = Counter(names)
    for name, value, place, cells in zip(names, values, rows.places, rows.cells, strict=True):
        if name is None or name not in ratios:
            submission.problems.add("unknown_well", place, f"{shown(cells['well'], 30)!r} is no well of the plate")
        elif count[name] > 1:
            status[name] = "duplicate"
        elif not _RATIOS[0] <= value <= _RATIOS[1]:
            status[name] = "invalid_ratio"
            submission.problems.add("invalid_ratio", place, f"{shown(cells[RATIO], 30)!r} is no positive ratio")
        else:
            status[name], ratios[name] = "scored", float(value)
    for name, times in count.items():
        if times > 1 and name in ratios:
            submission.problems.add("duplicate_well", f"{where}: {name}", f"has {times} rows, none of them counts")
    if missing := [name for name in plate.wells if status[name] == "missing"]:
        listed = f"{', '.join(missing[:12])}{' …' if len(missing) > 12 else ''}"
        submission.problems.add("missing_well", where, f"{len(missing)} wells have no row: {listed}")
    _compare_with_plate(submission, plate, parameters, rows, names)
    return ratios, status


def _compare_with_plate(
    submission: Submission, plate: Plate, parameters: DoseResponse, rows: Rows, names: Sequence[str | None]
) -> None:
    """Name cell lines and doses that differ from the plate map; the plate map counts."""
    wrong_line = []
    pairs: list[tuple[float, float]] = []
    for name, cells in zip(names, rows.cells, strict=True):
        if name not in plate.wells:
            continue
        line, dose = plate.wells[name]
        if "cell_type" in cells and _canonical(cells["cell_type"], parameters) != line:
            wrong_line.append(name)
        stated = log_dose(cells.get("dose", ""))
        if stated is not None:
            pairs.append((dose, stated))
    if wrong_line:
        message = f"differs from the plate map in {len(wrong_line)} wells ({', '.join(wrong_line[:6])}); the map counts"
        submission.problems.add("cell_type_differs", parameters.per_well, message)
    by_dose: dict[float, set[float]] = {}
    for dose, stated in pairs:
        by_dose.setdefault(dose, set()).add(stated)
    order = [max(by_dose[dose]) for dose in sorted(by_dose)]
    several = any(len(stated) > 1 for stated in by_dose.values())
    if several or any(lower >= higher for lower, higher in itertools.pairwise(order)):
        message = "doses are not in the order of the plate map; the map counts"
        submission.problems.add("dose_differs", parameters.per_well, message)


def _cell_ratios(
    submission: Submission, plate: Plate, parameters: DoseResponse, ratios: Mapping[str, float]
) -> dict[str, list[float]]:
    """Return the ratios of single cells by well, for lines whose two extreme doses agree with the table of wells."""
    if parameters.per_cell is None:
        return {}
    rows = read_single_table(submission, parameters.per_cell, ("well", CELL_RATIO), mergeable=True)
    if rows is None:
        return {}
    by_well: dict[str, list[float]] = {}
    for cells, value in zip(rows.cells, rows.numbers(CELL_RATIO), strict=True):
        name = well_name(cells["well"])
        if name in plate.wells and _RATIOS[0] <= value <= _RATIOS[1]:
            by_well.setdefault(name, []).append(float(value))
    kept: dict[str, list[float]] = {}
    for line in parameters.cell_lines:
        doses = plate.doses(line)
        wells = [*doses[0][1], *doses[-1][1]]
        off = [well for well in wells if not _agrees(by_well.get(well, []), ratios[well])]
        if off:
            message = f"{line}: the mean of the cells is not the well's ratio in {', '.join(off[:6])}; wells are tested"
            submission.problems.add("tables_disagree", parameters.per_cell, message)
        else:
            kept |= {well: by_well[well] for well in wells}
    return kept


def _agrees(cells: Sequence[float], ratio: float) -> bool:
    return bool(cells) and math.isfinite(ratio) and abs(float(np.mean(cells)) - ratio) <= _AGREE * ratio


# --- scores -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Line:
    """The parts of one cell line."""

    rho: float
    mean_cv: float | None
    p_value: float | None
    consistency: float
    fold: float | None

    @classmethod
    def of(
        cls,
        line: str,
        plate: Plate,
        ratios: Mapping[str, float],
        cells: Mapping[str, Sequence[float]],
        parameters: DoseResponse,
    ) -> _Line:
        doses = plate.doses(line)
        groups = [np.array([ratios[well] for well in wells]) for _, wells in doses]
        means = np.array([group.mean() for group in groups])  # NaN where a well is missing
        low, high = groups[0], groups[-1]
        p_value = welch_greater(high, low)
        if all(well in cells for well in [*doses[0][1], *doses[-1][1]]):
            control, treated = (np.concatenate([cells[well] for well in doses[k][1]]) for k in (0, -1))
            p_value = welch_greater(treated, control)
        mean_cv = replicate_cv(groups)
        return cls(
            rho=worst_spearman([rank for rank, _ in enumerate(doses)], means),
            mean_cv=mean_cv,
            p_value=p_value,
            consistency=consistency(mean_cv, parameters.replicate_cv_tolerance),
            fold=_fold(low, high),
        )

    @property
    def score(self) -> float:
        return float(np.mean([max(0.0, self.rho), self.consistency, self.separation]))

    @property
    def separation(self) -> float:
        return 0.0 if self.p_value is None else 1.0 - self.p_value

    def metrics(self) -> dict[str, float | None]:
        return {
            "score": self.score,
            "dose_response": max(0.0, self.rho),
            "spearman_r": self.rho,
            "replicate_consistency": self.consistency,
            "replicate_mean_cv": self.mean_cv,
            "control_vs_treated": self.separation,
            "control_vs_treated_p": self.p_value,
            "fold_change": self.fold,
        }


def _fold(low: Values, high: Values) -> float | None:
    value = float(high.mean() / low.mean())
    return value if math.isfinite(value) else None


def _strict_parts(
    plate: Plate, true_ratios: Mapping[str, float], ratios: Mapping[str, float], parameters: DoseResponse
) -> dict[str, float]:
    parts: dict[str, float] = {}
    true_groups: list[Values] = []
    groups: list[Values] = []
    for line in parameters.cell_lines:
        wells = [names for _, names in plate.doses(line)]
        true_own = [np.array([true_ratios[well] for well in names]) for names in wells]
        own = [np.array([ratios[well] for well in names]) for names in wells]
        true_means, means = ([group.mean() for group in side] for side in (true_own, own))
        parts[f"{line}_trend"] = max(0.0, worst_spearman(true_means, means))
        parts[f"{line}_fold"] = fold_agreement(float(true_means[-1] / true_means[0]), _fold(own[0], own[-1]))
        true_groups += [np.log(group) for group in true_own]
        groups += own
    parts["wells"] = above_chance(concordance_within(true_groups, groups), CHANCE_CONCORDANCE)
    return parts


def as_reference(submission: Submission, given: Truth, parameters: DoseResponse, folder: Path) -> Path | None:
    """Write a submission as the reference data that others are compared with; see :mod:`evaluators.agreement`."""
    plate = read_plate(given, parameters)
    ratios, _status = _well_ratios(submission, plate, parameters)
    rows = [(well, ratio) for well, ratio in ratios.items() if math.isfinite(ratio)]
    write_rows(folder / TRUTH_FILE, ("well", RATIO), rows)
    return given.input_dir
