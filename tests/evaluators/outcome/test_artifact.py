"""Tables graded against reference tables: the definition, reading, chains, tricks, hostile input."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluators import Content, Deliverable, OutcomeScore, OutcomeSpec, TruthError, check_parameters, evaluate, replay
from evaluators.outcome import artifact

Codes = Callable[[OutcomeScore], set[str]]


def table(identifier: str, *columns: str, **changes: Any) -> Deliverable:
    return Deliverable(
        id=identifier,
        patterns=(f"{identifier}.csv",),
        format="comma-separated text",
        content=Content.TABLE,
        columns=columns,
        description="one row per item of the study",
        **changes,
    )


@dataclass
class Study:
    """A task of artifacts in a folder of its own."""

    folder: Path
    artifacts: dict[str, dict[str, Any]]
    deliverables: list[Deliverable]
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in (self.truth, self.output):
            path.mkdir(parents=True, exist_ok=True)

    @property
    def truth(self) -> Path:
        return self.folder / "evaluation"

    @property
    def output(self) -> Path:
        return self.folder / "output"

    @property
    def spec(self) -> OutcomeSpec:
        return OutcomeSpec(kind="artifact", parameters={"artifacts": self.artifacts, **self.settings})

    def refer(self, name: str, text: str) -> None:
        (self.truth / name).write_text(text, encoding="utf-8")

    def write(self, name: str, content: str | bytes) -> None:
        data = content.encode() if isinstance(content, str) else content
        (self.output / name).write_bytes(data)

    def replay(self) -> None:
        replay(self.spec, self.deliverables, self.truth, None, self.output)

    def score(self) -> OutcomeScore:
        return evaluate(self.spec, self.deliverables, self.output, self.truth, None)

    def item(self, name: str) -> dict[str, Any]:
        return next(item for item in self.score().items if item["artifact"] == name)


WELLS = 24


def wells() -> list[tuple[str, float, float, str]]:
    """Well, count, area, phenotype: a plate of 4 x 6."""
    generator = np.random.default_rng(3)
    phenotypes = ("normal", "large", "fragmented")
    return [
        (
            f"{'ABCD'[k // 6]}{k % 6 + 1:02d}",
            float(generator.integers(10, 60)),
            round(float(generator.normal(150, 40)), 1),
            phenotypes[int(generator.integers(3))],
        )
        for k in range(WELLS)
    ]


def as_text(rows: Any, header: str = "well,nuclei,area,phenotype") -> str:
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


TREATMENTS = "treatment,mean\na,10.5\nb,22.0\nc,35.25\nd,18.0\ne,44.0\nf,29.5\n"


@pytest.fixture
def plate(tmp_path: Path) -> Study:
    """Two artifacts, the second made from the first."""
    study = Study(
        tmp_path,
        {
            "wells": {
                "deliverable": "well_table",
                "keys": ["well"],
                "values": ["nuclei", "area"],
                "labels": ["phenotype"],
            },
            "treatments": {
                "deliverable": "summary",
                "keys": ["treatment"],
                "values": ["mean"],
                "depends_on": ["wells"],
            },
        },
        [table("well_table", "well"), table("summary", "treatment", "mean")],
    )
    study.refer("well_table.csv", as_text(wells()))
    study.refer("summary.csv", TREATMENTS)
    return study


def test_docstring_examples() -> None:
    assert doctest.testmod(artifact).failed == 0


def test_replay_is_perfect(plate: Study) -> None:
    plate.replay()
    score = plate.score()
    assert (score.outcome, score.strict, score.delivered, score.problems) == (1.0, 1.0, True, [])
    assert score.metrics["mean_score"] == 1.0
    assert score.metrics["artifacts_passed"] == 2
    assert [item["depth"] for item in score.items] == [1, 2]
    assert (plate.output / "well_table.csv").read_text().startswith("well,nuclei,area,phenotype\nA01,")


def test_empty_folder_and_report_alone_are_zero(plate: Study, codes: Codes) -> None:
    score = plate.score()
    assert (score.outcome, score.strict, score.delivered) == (0.0, 0.0, False)
    assert codes(score) == {"missing_deliverable"}
    plate.write("report.md", "All tables were written and checked.\n")
    assert (plate.score().outcome, plate.score().strict) == (0.0, 0.0)


def test_outcome_is_the_share_of_artifacts_that_pass(plate: Study) -> None:
    plate.replay()
    (plate.output / "summary.csv").unlink()
    score = plate.score()
    assert (score.outcome, score.strict) == (0.5, 0.5)
    assert score.metrics["passed_depth_1"] == 1.0
    assert score.metrics["passed_depth_2"] == 0.0


def test_an_artifact_is_graded_by_itself_and_its_chain_is_reported(plate: Study) -> None:
    """As published: what a table was made from does not enter; that it passed on a failed one is shown."""
    plate.replay()
    (plate.output / "well_table.csv").unlink()
    score = plate.score()
    assert score.outcome == 0.5
    assert score.metrics["passed_on_a_failure"] == 1
    assert plate.item("treatments")["passed_on_a_failure"]


# --- the definition ---------------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Study:
    """One artifact of four rows, one column of numbers and one of labels."""
    study = Study(
        tmp_path,
        {"cells": {"deliverable": "cells", "keys": ["id"], "values": ["size"], "labels": ["kind"]}},
        [table("cells", "id")],
    )
    study.refer("cells.csv", "id,size,kind\na,1,x\nb,2,x\nc,3,y\nd,4,y\n")
    return study


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a,1,x\nb,2,x\nc,3,y\nd,4,y", {"row_f1": 1, "concordance": 1, "macro_f1": 1}),
        ("d,4,y\nc,3,y\na,1,x\nb,2,x", {"row_f1": 1, "concordance": 1, "macro_f1": 1}),
        # three of four rows and one that is not there: 2 * 3 / (4 + 4)
        ("a,1,x\nb,2,x\nc,3,y\nz,4,y", {"row_f1": 6 / 8, "concordance": 1, "macro_f1": 1}),
        # half of the rows: 2 * 2 / (4 + 2); class y is not among them
        ("a,1,x\nb,2,x", {"row_f1": 4 / 6, "concordance": 1, "macro_f1": 1}),
        # all numbers 1 too high: variances and covariance 5/4: 2.5 / (2.5 + 1)
        ("a,2,x\nb,3,x\nc,4,y\nd,5,y", {"row_f1": 1, "concordance": 2.5 / 3.5, "macro_f1": 1}),
        # one label wrong: x has 2 * 1 / (2 + 1), y has 2 * 2 / (2 + 3)
        ("a,1,x\nb,2,y\nc,3,y\nd,4,y", {"row_f1": 1, "concordance": 1, "macro_f1": (2 / 3 + 4 / 5) / 2}),
        # one cell without a number: 3 of 4 cells, which agree
        ("a,1,x\nb,2,x\nc,3,y\nd,,y", {"row_f1": 1, "concordance": 3 / 4, "macro_f1": 1}),
        ("a,1,x\nb,2,x\nc,3,y\nd,four,y", {"row_f1": 1, "concordance": 3 / 4, "macro_f1": 1}),
        ("a,1,x\nb,2,x\nc,3,y\nd,inf,y", {"row_f1": 1, "concordance": 3 / 4, "macro_f1": 1}),
        # a row twice the same counts once and is one too many: 2 * 4 / (4 + 5)
        ("a,1,x\na,1,x\nb,2,x\nc,3,y\nd,4,y", {"row_f1": 8 / 9, "concordance": 1, "macro_f1": 1}),
        # a row twice with different cells: none counts, both are too many: 2 * 3 / (4 + 5)
        ("a,1,x\na,9,x\nb,2,x\nc,3,y\nd,4,y", {"row_f1": 6 / 9, "concordance": 1, "macro_f1": 1}),
    ],
)
def test_parts_by_hand(small: Study, text: str, parts: dict[str, float]) -> None:
    small.write("cells.csv", f"id,size,kind\n{text}\n")
    item = small.item("cells")
    assert item["column_f1"] == 1.0
    assert {name: item[name] for name in parts} == pytest.approx(parts)
    product = np.prod(list(parts.values()))
    assert item["score"] == pytest.approx(product)
    assert small.score().outcome == float(product >= 0.8)


def test_a_missing_column_is_paid_by_the_f1_of_columns_and_is_nothing_in_strict(small: Study, codes: Codes) -> None:
    small.write("cells.csv", "id,size\na,1\nb,2\nc,3\nd,4\n")
    item = small.item("cells")
    assert item["column_f1"] == pytest.approx(2 / 3)
    assert (item["concordance"], item["macro_f1"], item["score"]) == (1.0, 0.0, 0.0)
    assert item["strict"] == 0.0
    assert "missing_columns" in codes(small.score())


def test_columns_that_the_contract_names_are_needed_for_a_table_to_be_taken(plate: Study, codes: Codes) -> None:
    plate.write("summary.csv", "treatment,average\na,10.5\n")
    assert plate.item("treatments")["status"] == "unusable"
    assert "missing_columns" in codes(plate.score())


def test_threshold_is_inclusive_and_a_parameter(small: Study) -> None:
    small.write("cells.csv", "id,size,kind\na,2,x\nb,3,x\nc,4,y\nd,5,y\n")  # 2.5 / 3.5
    assert small.score().outcome == 0.0
    small.settings = {"pass_at": 0.7}
    assert small.score().outcome == 1.0
    small.write("cells.csv", "id,size,kind\na,1,x\nb,2,x\nc,3,y\nd,4,y\n" + "e,1,x\nf,1,x\n")
    small.settings = {"pass_at": 0.8}  # 2 * 4 / (4 + 6) = 0.8
    assert small.item("cells")["score"] == 0.8
    assert small.score().outcome == 1.0


def test_cells_that_are_empty_in_the_reference(small: Study, codes: Codes) -> None:
    small.refer("cells.csv", "id,size,kind\na,1,x\nb,2,x\nc,3,y\nd,NA,y\n")
    small.replay()
    assert (small.score().outcome, small.score().strict, small.score().problems) == (1.0, 1.0, [])
    small.write("cells.csv", "id,size,kind\na,1,x\nb,2,x\nc,3,y\nd,9,y\n")
    assert small.item("cells")["concordance"] == pytest.approx(0.75)
    assert codes(small.score()) == {"not_a_number"}


# --- names ------------------------------------------------------------------------------------------------------------


def test_what_people_write_differently_is_the_same_name(plate: Study) -> None:
    rows = [(f" {well[0].lower()}{int(well[1:])}", n, area, kind.upper()) for well, n, area, kind in wells()]
    plate.write("well_table.csv", "\ufeff" + as_text(rows, "WELL, Nuclei ,Area,Phenotype").replace(",", ";"))
    assert plate.item("wells")["score"] == 1.0
    plate.write("well_table.csv", as_text(wells()).replace(",", "\t"))
    assert plate.item("wells")["score"] == 1.0


def test_names_that_differ_in_nothing_else_must_be_written_exactly(small: Study) -> None:
    small.refer("cells.csv", "id,size,kind\nA1,1,x\na1,2,x\nc,3,y\nd,4,y\n")
    small.replay()
    assert small.score().outcome == 1.0
    small.write("cells.csv", "id,size,kind\nA01,1,x\na01,2,x\nc,3,y\nd,4,y\n")
    assert small.item("cells")["row_f1"] == pytest.approx(4 / 8)


def test_numbers_as_keys(small: Study) -> None:
    small.refer("cells.csv", "id,size,kind\n0.5,1,x\n5,2,x\n10,3,y\n-5,4,y\n")
    small.write("cells.csv", "id;size;kind\n0,50;1,0;x\n5.0;2;x\n1e1;3;y\n-5;4;y\n")
    assert small.item("cells")["score"] == 1.0
    small.write("cells.csv", "id,size,kind\n0.05,1,x\n50,2,x\n100,3,y\n+5,4,y\n")
    assert small.item("cells")["row_f1"] == pytest.approx(2 / 8)  # +5 is 5


def test_several_keys(tmp_path: Path) -> None:
    study = Study(
        tmp_path,
        {"dose": {"deliverable": "dose", "keys": ["line", "dose"], "values": ["ratio"]}},
        [table("dose", "line", "dose", "ratio")],
    )
    study.refer("dose.csv", "line,dose,ratio\nA,0,1.0\nA,10,2.0\nB,0,1.1\nB,10,1.4\n")
    study.write("dose.csv", "dose,ratio,line\n0,1.0,A\n10,2.0,A\n0,1.1,B\n10,1.4,B\n")
    assert study.score().outcome == 1.0
    study.write("dose.csv", "dose,ratio,line\n0,1.0,B\n10,2.0,B\n0,1.1,A\n10,1.4,A\n")
    assert study.item("dose")["row_f1"] == 1.0
    assert study.item("dose")["concordance"] < 0.8


# --- matrices ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def matrix(tmp_path: Path) -> Study:
    study = Study(
        tmp_path,
        {"counts": {"deliverable": "counts", "keys": ["marker"], "matrix": True}},
        [table("counts", "marker")],
    )
    study.refer("counts.csv", "marker,s1,s2,s3\np53,1,2,3\nki67,4,5,6\n")
    return study


def test_matrix_by_hand(matrix: Study, codes: Codes) -> None:
    matrix.replay()
    assert (matrix.score().outcome, matrix.score().strict, matrix.score().problems) == (1.0, 1.0, [])
    # s3 is not there and two others are: 2 * 2 / (3 + 4); the cells of s1 and s2 are right
    matrix.write("counts.csv", "marker,x,s1,S2,y\np53,0,1,2,0\nki67,0,4,5,0\n")
    item = matrix.item("counts")
    assert item["column_f1"] == pytest.approx(4 / 7)
    assert (item["row_f1"], item["concordance"]) == (1.0, 1.0)
    assert codes(matrix.score()) == {"missing_columns", "unknown_columns"}
    # one row and one cell wrong: 1, 2, 3 against 1, 2, 6: means 2, 3; variances 2/3, 14/3; covariance 5/3
    matrix.write("counts.csv", "marker,s1,s2,s3\np53,1,2,6\n")
    item = matrix.item("counts")
    assert item["row_f1"] == pytest.approx(2 / 3)
    assert item["concordance"] == pytest.approx((10 / 3) / (16 / 3 + 1))


def test_columns_of_a_matrix_that_mean_the_same_are_ambiguous(matrix: Study, codes: Codes) -> None:
    matrix.write("counts.csv", "marker,s1,s01,s2,s3\np53,1,9,2,3\nki67,4,9,5,6\n")
    assert matrix.item("counts")["column_f1"] == pytest.approx(2 * 2 / (3 + 4))
    assert "ambiguous_columns" in codes(matrix.score())


def test_numbers_without_an_index_name_are_no_matrix(matrix: Study, codes: Codes) -> None:
    matrix.write("counts.csv", ",s1,s2,s3\np53,1,2,3\n")
    assert matrix.score().outcome == 0.0
    assert codes(matrix.score()) == {"missing_columns"}


def test_a_transposed_matrix_is_not_one(matrix: Study) -> None:
    matrix.write("counts.csv", "marker,p53,ki67\ns1,1,4\ns2,2,5\ns3,3,6\n")
    assert matrix.score().outcome == matrix.score().strict == 0.0


# --- intervals --------------------------------------------------------------------------------------------------------


@pytest.fixture
def mitoses(tmp_path: Path) -> Study:
    """Divisions in three movies, each with its first and last frame and a class."""
    study = Study(
        tmp_path,
        {
            "mitoses": {
                "deliverable": "mitoses",
                "keys": ["movie"],
                "interval": {"start": "first", "end": "last", "inclusive": True},
                "labels": ["fate"],
            }
        },
        [table("mitoses", "movie", "first", "last")],
    )
    generator = np.random.default_rng(5)
    rows = []
    for movie in "abc":
        first = 0
        for _ in range(8):
            first += int(generator.integers(10, 60))
            rows.append((movie, first, first + int(generator.integers(2, 8)), generator.choice(["divides", "dies"])))
    study.refer("mitoses.csv", as_text(rows, "movie,first,last,fate"))
    return study


def read_rows(path: Path) -> list[list[str]]:
    return [line.split(",") for line in path.read_text().splitlines()[1:]]


def test_intervals(mitoses: Study, codes: Codes) -> None:
    mitoses.replay()
    assert (mitoses.score().outcome, mitoses.score().strict, mitoses.score().problems) == (1.0, 1.0, [])
    rows = read_rows(mitoses.truth / "mitoses.csv")
    header = "movie,first,last,fate"
    mitoses.write("mitoses.csv", as_text(rows[:12], header))
    assert mitoses.item("mitoses")["interval_f1"] == pytest.approx(24 / 36)
    swapped = [("x" if movie == "a" else movie, *rest) for movie, *rest in rows]
    mitoses.write("mitoses.csv", as_text(swapped, header))
    assert mitoses.item("mitoses")["interval_f1"] == pytest.approx(2 * 16 / 48)
    assert "unknown_rows" in codes(mitoses.score())
    mitoses.write("mitoses.csv", as_text([(movie, last, first, fate) for movie, first, last, fate in rows], header))
    assert mitoses.score().outcome == 0.0
    assert "invalid_interval" in codes(mitoses.score())


def test_blind_intervals_earn_little(mitoses: Study) -> None:
    header = "movie,first,last,fate"
    for length, pitch in ((500, 500), (6, 6), (6, 12), (10, 20)):
        tiles = [(m, k, k + length - 1, "divides") for m in "abc" for k in range(0, 400, pitch)]
        mitoses.write("mitoses.csv", as_text(tiles, header))
        score = mitoses.score()
        assert score.outcome == 0.0
        assert score.strict is not None
        assert score.strict <= 0.2


def test_a_flood_of_intervals_is_not_looked_at(mitoses: Study, codes: Codes) -> None:
    mitoses.write("mitoses.csv", "movie,first,last,fate\n" + "a,1,500,dies\n" * 20_000)
    assert mitoses.score().outcome == 0.0
    assert "too_many_rows" in codes(mitoses.score())


# --- strict: chance and tricks ----------------------------------------------------------------------------------------


def changed(column: int, values: Any) -> str:
    rows = [list(row) for row in wells()]
    for row, value in zip(rows, values, strict=True):
        row[column] = value
    return as_text(rows)


@pytest.mark.parametrize("column", [1, 2])
@pytest.mark.parametrize("trick", ["mean", "zero", "rotated", "reversed", "sorted", "index", "empty"])
def test_identifiers_with_numbers_that_nobody_measured(plate: Study, column: int, trick: str) -> None:
    """Everything else is copied from the reference: the strongest form of the trick."""
    numbers = [row[column] for row in wells()]
    submitted = {
        "mean": [float(np.mean(numbers))] * WELLS,
        "zero": [0] * WELLS,
        "rotated": [*numbers[7:], *numbers[:7]],
        "reversed": numbers[::-1],
        "sorted": sorted(numbers),
        "index": list(range(WELLS)),
        "empty": [""] * WELLS,
    }[trick]
    plate.write("well_table.csv", changed(column, submitted))
    plate.write("summary.csv", "treatment,mean\n" + "".join(f"{name},26.5\n" for name in "abcdef"))
    score = plate.score()
    assert score.outcome == 0.0
    assert score.strict is not None
    assert score.strict <= 0.2


@pytest.mark.parametrize("trick", ["one class", "rotated", "another word"])
def test_identifiers_with_labels_that_nobody_looked_for(plate: Study, trick: str) -> None:
    labels = [row[3] for row in wells()]
    submitted = {
        "one class": ["normal"] * WELLS,
        "rotated": [*labels[5:], *labels[:5]],
        "another word": ["healthy"] * WELLS,
    }[trick]
    plate.write("well_table.csv", changed(3, submitted))
    score = plate.score()
    assert score.outcome == 0.0
    assert score.strict is not None
    assert score.strict <= 0.2


def test_identifiers_alone(plate: Study) -> None:
    plate.write("well_table.csv", "well\n" + "".join(f"{row[0]}\n" for row in wells()))
    plate.write("summary.csv", "treatment,mean\n" + "".join(f"{name},\n" for name in "abcdef"))
    assert plate.score().delivered
    assert (plate.score().outcome, plate.score().strict) == (0.0, 0.0)


def test_mild_honest_damage_keeps_most(plate: Study) -> None:
    plate.replay()
    generator = np.random.default_rng(0)
    rows = [[well, n + int(generator.integers(-2, 3)), a + generator.normal(0, 6), k] for well, n, a, k in wells()]
    rows[4][3] = "normal" if rows[4][3] != "normal" else "large"
    plate.write("well_table.csv", as_text(rows))
    score = plate.score()
    assert score.outcome == 1.0
    assert score.strict is not None
    assert score.strict >= 0.6


def test_damage_never_raises_a_score(plate: Study) -> None:
    """Nested: each step loses rows and blurs numbers more than the one before."""
    generator = np.random.default_rng(2)
    noise, order = generator.normal(0, 1, (WELLS, 2)), generator.permutation(WELLS)
    before = (1.0, 1.0, 1.0)
    for step in range(6):
        kept = set(order[step * 3 :].tolist())
        rows = [
            (well, n + step * 4 * noise[k, 0], area + step * 15 * noise[k, 1], kind)
            for k, (well, n, area, kind) in enumerate(wells())
            if k in kept
        ]
        plate.replay()
        plate.write("well_table.csv", as_text(rows))
        score = plate.score()
        assert score.strict is not None
        after = (score.outcome, score.strict, plate.item("wells")["score"])
        assert all(new <= old + 0.02 for new, old in zip(after, before, strict=True))
        before = after
    assert before[0] == 0.5
    assert before[1] <= 0.55  # the second artifact alone


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(range(WELLS)), st.permutations(range(4)), st.integers(0, WELLS - 1))
def test_order_changes_nothing_and_leaving_a_row_out_never_pays_in_strict(
    plate: Study, rows: list[int], columns: list[int], left_out: int
) -> None:
    header = ("well", "nuclei", "area", "phenotype")
    noisy = [(w, n + (k % 5), a * (1 + 0.03 * (k % 3)), p) for k, (w, n, a, p) in enumerate(wells())]
    plate.write("well_table.csv", as_text(noisy))
    base = plate.score()
    mixed = [[noisy[row][column] for column in columns] for row in rows]
    plate.write("well_table.csv", as_text(mixed, ",".join(header[column] for column in columns)))
    assert (plate.score().outcome, plate.score().strict) == (base.outcome, base.strict)
    plate.write("well_table.csv", as_text(row for k, row in enumerate(noisy) if k != left_out))
    fewer = plate.score().strict
    assert fewer is not None
    assert base.strict is not None
    assert fewer <= base.strict


def test_columns_without_two_values_decide_nothing(small: Study) -> None:
    small.refer("cells.csv", "id,size,kind\na,3,x\nb,3,x\nc,3,x\nd,3,x\n")
    small.replay()
    assert (small.score().outcome, small.score().strict) == (1.0, None)
    small.refer("cells.csv", "id,size,kind\na,3,x\nb,3,x\nc,3,y\nd,3,y\n")
    small.replay()
    assert (small.score().outcome, small.score().strict) == (1.0, 1.0)


# --- hostile and broken input -----------------------------------------------------------------------------------------

BROKEN: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "empty_file"),
    "blank lines": (b"\n\n\n", "empty_file"),
    "header alone": (b"well,nuclei,area,phenotype\n", "no_rows"),
    "not text": (b"\x89PNG\r\n\x1a\n\0\0\0\xff\xfe", "not_text"),
    "nul bytes": (b"well,nuclei,area,phenotype\nA01,\0,1,normal\n", "not_text"),
    "another header": (b"position,n\nA01,3\n", "missing_columns"),
    "key twice": (b"well,well,nuclei\nA01,A02,3\n", "duplicate_columns"),
    "endless cell": (b'well,nuclei,area,phenotype\nA01,"' + b"x" * 200_000 + b'",1,normal\n', "not_a_table"),
    "far too many columns": (b"well" + b",x" * 2000 + b"\nA01\n", "too_large"),
    "far too many rows": (b"well,nuclei\n" + b"A01,1\n" * 200_001, "too_large"),
    "the same row a lot": (b"well,nuclei,area,phenotype\n" + b"A01,1,1,normal\n" * 50_000, "repeated_row"),
    "rows of nothing": (b"well,nuclei,area,phenotype\n,,,\n;;;\n", "unknown_rows"),
    "huge numbers": (b"well,nuclei,area,phenotype\nA01,1e308,-1e308,normal\nA02,-1e308,1e308,large\n", "missing_rows"),
    "beyond floats": (b"well,nuclei,area,phenotype\nA01,1e999,nan,normal\n", "not_a_number"),
    "formulas": (b'well,nuclei,area,phenotype\nA01,"=1+1",1,"=cmd|/c"\n', "unknown_label"),
    "control characters": ("well,nuclei,area,phenotype\n\x1b[31mA\u202e1,1,1,normal\n".encode(), "unknown_rows"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_tables_are_named_and_score_nothing(plate: Study, codes: Codes, name: str) -> None:
    content, code = BROKEN[name]
    plate.replay()
    plate.write("well_table.csv", content)
    score = plate.score()
    assert score.outcome == 0.5  # the other artifact
    assert score.strict is not None
    assert score.strict <= 0.55
    assert code in codes(score)
    for problem in score.problems:
        assert problem.where.isprintable()
        assert problem.message.isprintable()
        assert len(problem.message) < 700
    score.model_dump_json()


def test_a_link_to_the_reference_is_refused(plate: Study, codes: Codes) -> None:
    (plate.output / "well_table.csv").symlink_to(plate.truth / "well_table.csv")
    (plate.output / "summary.csv").symlink_to(plate.truth / "summary.csv")
    score = plate.score()
    assert (score.outcome, score.delivered) == (0.0, False)
    assert "link" in codes(score)


def test_a_table_never_stands_in_for_another(plate: Study) -> None:
    plate.replay()
    (plate.output / "summary.csv").rename(plate.output / "summary_of_treatments.csv")
    assert plate.item("treatments")["status"] == "missing"


def test_parts_of_a_table_are_put_together(plate: Study, codes: Codes) -> None:
    for name, rows in (("a", wells()[:12]), ("b", wells()[12:])):
        (plate.output / name).mkdir()
        plate.write(f"{name}/well_table.csv", as_text(rows))
    assert plate.item("wells")["score"] == 1.0
    assert "split_table" in codes(plate.score())


# --- references and parameters ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cells.csv"),
        ("id,size,kind\n", "no row"),
        ("id,kind\na,x\n", "size"),
        ("id,size,kind\na,1,x\na,2,y\n", "two rows are named a"),
        ("id,size,kind\na,1,x\nb,3 px,y\n", "line 3: '3 px' is no number"),
        ("id,size,kind\na,1,x\nb,2,\n", "without a label"),
    ],
)
def test_a_reference_that_cannot_be_used_is_our_fault(small: Study, text: str | None, message: str) -> None:
    if text is None:
        (small.truth / "cells.csv").unlink()
    else:
        small.refer("cells.csv", text)
    with pytest.raises(TruthError, match=message):
        small.score()


def test_a_reference_of_intervals_must_hold_intervals(mitoses: Study) -> None:
    mitoses.refer("mitoses.csv", "movie,first,last,fate\na,9,3,dies\n")
    with pytest.raises(TruthError, match="line 2: is not an interval"):
        mitoses.score()


def test_the_reference_may_have_another_name_and_further_columns(small: Study) -> None:
    (small.truth / "cells.csv").rename(small.truth / "table_3.csv")
    small.artifacts["cells"]["truth"] = "table_3.csv"
    small.refer("table_3.csv", 'note,id,size,kind\n"a, b",a,1,x\n,b,2,y\n')
    small.deliverables = [table("cells", "id", "note")]
    small.replay()
    assert small.score().outcome == 1.0
    assert (small.output / "cells.csv").read_text() == 'id,note,size,kind\na,"a, b",1,x\nb,,2,y\n'


@pytest.mark.parametrize(
    ("artifacts", "words"),
    [
        ({}, "at least 1 item"),
        ({"a": {"deliverable": "well_table"}}, "keys or an interval must tell rows apart"),
        ({"a": {"deliverable": "other", "keys": ["k"]}}, "no deliverable 'other'"),
        ({"a": {"deliverable": "well_table", "keys": ["k"], "values": ["K"]}}, "column k is named twice"),
        ({"a": {"deliverable": "well_table", "keys": ["k"], "matrix": True, "values": ["v"]}}, "a matrix has keys"),
        ({"a": {"deliverable": "well_table", "keys": ["k"], "truth": "../x.csv"}}, "truth"),
        ({"a": {"deliverable": "well_table", "keys": ["k"], "depends_on": ["b"]}}, "unknown artifact b"),
        ({"a": {"deliverable": "well_table", "keys": ["k"], "depends_on": ["a"]}}, "depend on each other"),
        (
            {
                "a": {"deliverable": "well_table", "keys": ["k"], "depends_on": ["b"]},
                "b": {"deliverable": "summary", "keys": ["k"], "depends_on": ["a"]},
            },
            "depend on each other",
        ),
        (
            {"a": {"deliverable": "summary", "keys": ["k"]}, "b": {"deliverable": "summary", "keys": ["k"]}},
            "two artifacts share",
        ),
    ],
)
def test_wrong_parameters_are_named(plate: Study, artifacts: dict[str, Any], words: str) -> None:
    plate.artifacts = artifacts
    with pytest.raises(ValueError, match="outcome artifact") as caught:
        check_parameters(plate.spec, plate.deliverables)
    assert words in str(caught.value)


def test_depth_is_the_longest_chain() -> None:
    from evaluators.outcome.parameters import Artifacts

    chain = {"d": ["b", "a"], "b": ["c"], "c": ["a"], "a": []}
    parameters = Artifacts.model_validate(
        {"artifacts": {name: {"deliverable": name, "keys": ["k"], "depends_on": of} for name, of in chain.items()}}
    )
    assert parameters.depths() == {"a": 1, "c": 2, "b": 3, "d": 4}
