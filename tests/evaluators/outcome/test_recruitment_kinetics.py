"""Kinetics after division: each weakness of the published scorer with the value that is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openpyxl
import pytest
import tifffile

from evaluators import Content, Deliverable, OutcomeScore, OutcomeSpec, TruthError, evaluate, replay
from evaluators.outcome.recruitment_kinetics import cell_key

SPEC = OutcomeSpec(kind="recruitment_kinetics")
TABLES = Deliverable(
    id="kinetics_per_cell",
    patterns=("*.xlsx",),
    format="xlsx",
    content=Content.WORKBOOK,
    multiple=True,
    description="one per movie",
)
HEADER = [
    "Time Point",
    "Time after anaphase onset (min)",
    *(
        f"{name}_{n}{unit}"
        for n in (1, 2)
        for name, unit in (
            ("Volume_Nucleus", " (um3)"),
            ("SurfaceArea_Nucleus", " (um2)"),
            ("Normalized_total_Intensity_InnerCore", ""),
            ("Normalized_total_Intensity_NonCore", ""),
        )
    ),
]
Rows = list[list[object]]


def course(onset: int, half: float, frames: int = 30) -> Rows:
    rows: Rows = [list(HEADER)]
    for frame in range(1, frames + 1):
        t = 0.5 * (frame - onset)
        values: list[object] = [None] * 8
        if t >= 0:
            for n in (0, 1):
                h = half + 1.5 * n
                curve = 1 / (1 + (h / max(t, 1e-3)) ** 4)
                later = 1 / (1 + ((h - 1) / max(t, 1e-3)) ** 4)
                values[4 * n : 4 * n + 4] = [50 + (10 - h) * t, 80 + 3 * t, curve * (n + 1), 8 * later]
        rows.append([frame, t, *values])
    return rows


TRUE = {f"160701-cell{n}": course(4 + 2 * n, 2.0 + n) for n in (1, 2, 3)}


def save(path: Path, sheets: dict[str, Rows]) -> None:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)


class Desk:
    def __init__(self, folder: Path) -> None:
        self.truth, self.input, self.output = (folder / name for name in ("evaluation", "input", "output"))
        for path in (self.truth, self.input, self.output):
            path.mkdir()
        for n in (1, 2, 3):
            tifffile.imwrite(self.input / f"160701-Nup107-cell-{n}-t6.tif", np.zeros((2, 2), np.uint16))
        # the reference holds further cells, one of them of another day and the same number
        save(self.truth / "processed.xlsx", {"151125-cell1": course(9, 5.0), **TRUE, "160701-cell10": course(5, 4.0)})

    def score(self, sheets: dict[str, Rows] | None = None) -> OutcomeScore:
        for name, rows in (sheets or {}).items():
            save(self.output / f"{name}.xlsx", {"Sheet1": rows})
        return evaluate(SPEC, [TABLES], self.output, self.truth, self.input)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def codes(score: OutcomeScore) -> set[str]:
    return {problem.code for problem in score.problems}


def test_only_cells_whose_movies_are_given_count(desk: Desk) -> None:
    replay(SPEC, [TABLES], desk.truth, desk.input, desk.output)
    assert len(list(desk.output.iterdir())) == 3
    score = desk.score()
    assert (score.outcome, score.strict) == (1.0, 1.0)  # five of ten sheets capped a perfect analysis at a half
    assert not score.problems


def test_names_of_cells() -> None:
    assert cell_key("160701-Nup107-cell-1-t6") == ("160701", 1)
    assert cell_key("20160701_cell 02") == ("160701", 2)
    assert cell_key("160701_c3") == ("160701", 3)
    assert cell_key("Sheet1") == (None, None)


def test_another_day_or_number_never_stands_in(desk: Desk) -> None:
    score = desk.score({"160701-cell10": TRUE["160701-cell1"], "151125-cell2": TRUE["160701-cell2"]})
    assert score.metrics["cells_with_table"] == 0
    assert score.outcome == 0.0
    assert "unknown_cell" in codes(score)


def test_input_names_are_enough(desk: Desk) -> None:
    score = desk.score({f"160701-Nup107-cell-{n}-t6": TRUE[f"160701-cell{n}"] for n in (1, 2, 3)})
    assert score.outcome == 1.0


def test_two_rows_are_no_curve(desk: Desk) -> None:
    def two(rows: Rows) -> Rows:
        after = [row for row in rows[1:] if row[2] is not None]
        return [rows[0], after[0], after[-1]]

    score = desk.score({name: two(rows) for name, rows in TRUE.items()})
    assert score.outcome == pytest.approx(0.5 + 0.5 * 2 / 24, abs=0.05)


def test_one_daughter_is_half_of_the_curves(desk: Desk) -> None:
    score = desk.score({name: [row[:6] for row in rows] for name, rows in TRUE.items()})
    assert score.outcome == pytest.approx(0.75)
    assert score.strict == 0.0
    assert "missing_columns" in codes(score)


def test_further_columns_and_summaries_disturb_nothing(desk: Desk) -> None:
    def wider(rows: Rows) -> Rows:
        extra = ["Anaphase_time_frame", "Mean Normalized_total_Intensity_InnerCore", "Volume_Nucleus_mean"]
        return [[*extra, *rows[0]], *([6, 1.0, 2.0, *row] for row in rows[1:])]

    sheets = {name: wider(rows) for name, rows in TRUE.items()}
    save(desk.output / "all_cells_summary.xlsx", {"summary": [["cell", "onset"], ["cell1", 6]]})
    assert desk.score(sheets).outcome == 1.0


def test_one_workbook_with_a_sheet_per_cell_is_taken(desk: Desk) -> None:
    save(desk.output / "kinetics.xlsx", TRUE)
    assert desk.score().outcome == 1.0


def test_two_different_tables_of_one_cell_are_ambiguous(desk: Desk) -> None:
    score = desk.score({**TRUE, "160701-Nup107-cell-1": course(9, 6.0)})
    assert score.metrics["cells_with_table"] == 2
    assert "ambiguous_files" in codes(score)
    same = desk.score({"160701-Nup107-cell-1": TRUE["160701-cell1"]})
    assert same.outcome == 1.0


@pytest.mark.parametrize("content", [b"", b"no zip", bytes.fromhex("d0cf11e0a1b11ae1") + bytes(99)])
def test_hostile_files_have_a_name_and_no_traceback(desk: Desk, content: bytes) -> None:
    (desk.output / "160701-cell1.xlsx").write_bytes(content)
    score = desk.score({name: rows for name, rows in TRUE.items() if name != "160701-cell1"})
    assert score.outcome == pytest.approx(2 / 3)
    assert {"missing_cell"} < codes(score)


def test_text_in_cells_is_a_missing_point(desk: Desk) -> None:
    sheets = {name: [list(row) for row in rows] for name, rows in TRUE.items()}
    sheets["160701-cell1"][20][4] = "n/a"
    sheets["160701-cell1"][21][4] = True
    sheets["160701-cell1"][22][4] = 1e300
    score = desk.score(sheets)
    assert 0.98 < score.outcome < 1.0


def test_headers_alone_and_csv_alone_are_nothing(desk: Desk) -> None:
    (desk.output / "160701-cell1.csv").write_text("a,b\n1,2\n")
    assert desk.score().delivered is False
    score = desk.score({"160701-cell1": [list(HEADER)]})
    assert score.outcome == 0.0


def test_unusable_truth_is_our_fault(desk: Desk) -> None:
    save(desk.truth / "processed.xlsx", {"170101-cell1": course(5, 3.0)})
    with pytest.raises(TruthError, match="no sheet is a cell of the input"):
        desk.score(TRUE)
    (desk.truth / "processed.xlsx").write_bytes(b"broken")
    with pytest.raises(TruthError):
        desk.score()
