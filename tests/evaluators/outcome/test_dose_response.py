"""dose_response: what is read, what counts, and one test per known weakness of the published evaluator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from evaluators.evaluation import evaluate, replay
from evaluators.model import Content, Deliverable, OutcomeScore, OutcomeSpec, TruthError
from evaluators.outcome.dose_response import log_dose, well_name

RATIO = "mean_nuc_over_cyto_ratio"
CELLS = "well,cell_type,dose,nuc_intensity,cyto_intensity,nuc_over_cyto_ratio"
DELIVERABLES = (
    Deliverable(
        id="per_well_summary",
        patterns=("*per_well_summary*.csv",),
        format="csv",
        content=Content.TABLE,
        columns=("well", "cell_type", "dose", RATIO),
        description="one row per well",
    ),
    Deliverable(
        id="per_cell_features",
        patterns=("*per_cell_features*.csv",),
        format="csv",
        content=Content.TABLE,
        required=False,
        columns=tuple(CELLS.split(",")),
        description="one row per cell",
    ),
)
OUTCOME = OutcomeSpec(
    kind="dose_response",
    parameters={
        "per_well": "per_well_summary",
        "per_cell": "per_cell_features",
        "cell_lines": {"MCF7": "AB", "A549": "CD"},
        "columns": 4,
    },
)
DOSES = (-7.0, -8.0, -9.0, -13.0)  # by column
Row = tuple[str, str, object, object]
Write = Callable[..., OutcomeScore]


def _wells() -> list[tuple[str, str, float]]:
    return [
        (f"{row}{column + 1:02d}", "MCF7" if row in "AB" else "A549", dose)
        for row in "ABCD"
        for column, dose in enumerate(DOSES)
    ]


def _good(well: str, dose: float) -> float:
    """A clear response with replicates that differ a little."""
    return round(1.0 + (dose + 13.0) / 6.0 + 0.02 * "ABCD".index(well[0]), 4)


GOOD: list[Row] = [(well, line, dose, _good(well, dose)) for well, line, dose in _wells()]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "input").mkdir()
    (tmp_path / "evaluation").mkdir()
    key = ["row,column,dose,cell_type"]
    key += [f"{well[0]},{int(well[1:])},10^{dose:g},{line}" for well, line, dose in _wells()]
    (tmp_path / "input" / "BBBC014_v1_platemap_dosekey.csv").write_text("\n".join(key) + "\n")
    truth = [f"well,{RATIO}", *(f"{well},{_good(well, dose)}" for well, _, dose in _wells())]
    (tmp_path / "evaluation" / "per_well_truth.csv").write_text("\n".join(truth) + "\n")
    return tmp_path


@pytest.fixture
def score(data: Path) -> Write:
    """Return a function that scores a table of wells given as rows or as text."""

    def write(rows: Sequence[Row] | str | bytes, cells: str | None = None, **more: str) -> OutcomeScore:
        folder = data / f"submission{len(list(data.iterdir()))}"
        folder.mkdir()
        if not isinstance(rows, str | bytes):
            rows = "\n".join([",".join(("well", "cell_type", "dose", RATIO)), *(",".join(map(str, r)) for r in rows)])
        content = rows if isinstance(rows, bytes) else rows.encode()
        (folder / "per_well_summary.csv").write_bytes(content)
        if cells is not None:
            (folder / "per_cell_features.csv").write_text(cells)
        for name, text in more.items():
            (folder / f"{name}.csv").write_text(text)
        return evaluate(OUTCOME, DELIVERABLES, folder, data / "evaluation", data / "input")

    return write


def _codes(result: OutcomeScore) -> set[str]:
    return {problem.code for problem in result.problems}


def _changed(change: Callable[[Row], Row | None]) -> list[Row]:
    return [row for row in map(change, GOOD) if row is not None]


def test_parts_by_hand(score: Write) -> None:
    result = score(GOOD)
    control, treated = ([_good(f"{row}0{column}", dose) for row in "AB"] for column, dose in ((4, -13.0), (1, -7.0)))
    p = stats.ttest_ind(treated, control, equal_var=False, alternative="greater").pvalue
    assert result.metrics["MCF7_spearman_r"] == pytest.approx(1.0)
    assert result.metrics["MCF7_control_vs_treated_p"] == pytest.approx(p)
    groups = [[_good(f"{row}0{column + 1}", dose) for row in "AB"] for column, dose in enumerate(DOSES)]
    cv = np.mean([np.std(group, ddof=1) / np.mean(group) for group in groups])
    assert result.metrics["MCF7_replicate_mean_cv"] == pytest.approx(cv)
    lines = [result.metrics["MCF7_score"], result.metrics["A549_score"]]
    assert result.outcome == pytest.approx(np.mean(lines), abs=1e-6)
    assert lines[0] == pytest.approx((1.0 + 1.0 + 1.0 - p) / 3)
    assert result.strict == 1.0
    assert result.delivered
    assert not result.problems


def test_coverage_is_that_of_the_plate(score: Write) -> None:
    """Weakness 1 and 18: four rows of one line scored 1, two doses always correlate."""
    four = [row for row in GOOD if row[0] in ("A01", "B01", "A04", "B04")]
    result = score(four)
    assert result.metrics["MCF7_dose_response"] == 0.0  # the doses between may have had any mean
    assert result.outcome < 0.25
    assert result.strict == 0.0


def test_a_missing_line_is_half(score: Write) -> None:
    result = score([row for row in GOOD if row[1] == "MCF7"])
    assert result.outcome == pytest.approx(result.metrics["MCF7_score"] / 2, abs=1e-6)
    assert "missing_well" in _codes(result)


@pytest.mark.parametrize("value", ["", "NaN", "inf", "-0.5", "0", "high", "1e9", "1e400"])
def test_a_ratio_that_is_none_is_a_missing_well(score: Write, value: str) -> None:
    """Weaknesses 6 and 14: dropped rows were free, logarithms were accepted."""
    result = score(_changed(lambda row: (*row[:3], value) if row[0] == "B02" else row))
    gone = score(_changed(lambda row: None if row[0] == "B02" else row))
    assert (result.outcome, result.strict) == (gone.outcome, gone.strict)
    assert result.outcome < score(GOOD).outcome - 0.05
    assert "invalid_ratio" in _codes(result)


def test_an_outlying_well_is_not_better_left_out(score: Write) -> None:
    outlier = _changed(lambda row: (*row[:3], 9.0) if row[0] == "A03" else row)
    without = [row for row in outlier if row[0] != "A03"]
    assert score(without).outcome <= score(outlier).outcome
    assert score(without).strict <= score(outlier).strict


def test_rows_given_twice_do_not_count(score: Write) -> None:
    """Weakness 7: repeated rows acted as replicates."""
    result = score([*GOOD, *[row for row in GOOD if row[0] == "A01"]])
    gone = score(_changed(lambda row: None if row[0] == "A01" else row))
    assert result.outcome == gone.outcome
    assert "duplicate_well" in _codes(result)


def test_lines_and_doses_come_from_the_plate_map(score: Write) -> None:
    """Weaknesses 3, 5, 8, 9, 10 and 12: spelling, encoding or swapping of labels decided the score."""
    expected = score(GOOD)
    changes: list[tuple[str | None, Callable[[Row], Row]]] = [
        (None, lambda row: (row[0], row[1].lower().replace("7", "-7"), row[2], row[3])),
        (None, lambda row: (row[0], row[1], f"10^{row[2]}", row[3])),
        (None, lambda row: (row[0], row[1], f"{10.0 ** float(str(row[2])):g} M", row[3])),
        (None, lambda row: (row[0], row[1], 0 if row[2] == -13.0 else 10.0 ** float(str(row[2])), row[3])),
        ("dose_differs", lambda row: (row[0], row[1], -float(str(row[2])), row[3])),
        ("dose_differs", lambda row: (row[0], row[1], 1e6 if row[0] == "A03" else row[2], row[3])),
        ("cell_type_differs", lambda row: (row[0], "HeLa", row[2], row[3])),
    ]
    for code, change in changes:
        result = score(_changed(change))
        assert (result.outcome, result.strict) == (expected.outcome, expected.strict)
        assert _codes(result) == ({code} if code else set())


def test_a_line_that_was_not_on_the_plate_adds_nothing(score: Write) -> None:
    extra: list[Row] = [(f"E{k}", "HeLa", -k, k) for k in range(1, 5)]
    result = score([*GOOD, *extra])
    assert result.outcome == score(GOOD).outcome
    assert "unknown_well" in _codes(result)


def test_flat_and_reversed_plates_keep_their_published_third_and_no_strict_score(score: Write) -> None:
    """Weaknesses 2 and 3 lie in the published definition; the strict score answers them."""
    flat = score(_changed(lambda row: (*row[:3], 1.0)))
    assert flat.outcome == pytest.approx(1 / 3, abs=1e-6)
    assert flat.strict == 0.0
    turned = score(_changed(lambda row: (*row[:3], 5.0 - float(str(row[3])))))
    assert turned.outcome == pytest.approx(1 / 3, abs=0.02)
    assert turned.strict == 0.0


def test_an_added_offset_fails_strict(score: Write) -> None:
    """Weakness 13: it hides the scatter of replicates."""
    result = score(_changed(lambda row: (*row[:3], float(str(row[3])) + 100.0)))
    assert result.outcome > 0.99
    assert result.strict < 0.2


def _cells(factor: float = 1.0, drop: str = "", count: int = 5) -> str:
    rows = [
        f"{well},{line},{dose},2,1,{_good(well, dose) * factor + 0.3 * (k - (count - 1) / 2)}"
        for well, line, dose in _wells()
        for k in range(count)
        if well != drop
    ]
    return "\n".join([CELLS, *rows]) + "\n"


def test_cells_are_tested_where_they_agree_with_the_wells(score: Write) -> None:
    alone, both = score(GOOD), score(GOOD, cells=_cells())
    control = [_good(f"{r}04", -13.0) + 0.3 * (k - 2) for r in "AB" for k in range(5)]
    treated = [_good(f"{r}01", -7.0) + 0.3 * (k - 2) for r in "AB" for k in range(5)]
    p = stats.ttest_ind(treated, control, equal_var=False, alternative="greater").pvalue
    assert both.metrics["MCF7_control_vs_treated_p"] == pytest.approx(p)
    assert both.metrics["MCF7_control_vs_treated_p"] != alone.metrics["MCF7_control_vs_treated_p"]


@pytest.mark.parametrize("cells", [_cells(1.1), _cells(drop="A04"), "well,x\nA01,1\n", CELLS + "\n"])
def test_cells_that_contradict_or_lack_wells_are_left_aside(score: Write, cells: str) -> None:
    """Weakness 16: the optional table could hurt, help, or contradict unseen."""
    result = score(GOOD, cells=cells)
    assert result.metrics["MCF7_control_vs_treated_p"] == score(GOOD).metrics["MCF7_control_vs_treated_p"]
    assert result.problems


def test_what_spreadsheets_write_is_understood(score: Write) -> None:
    """Weaknesses 19 and 20: trailing separators, capitals, byte order mark, semicolons."""
    expected = score(GOOD).outcome
    header = "Well;Cell_Type;DOSE;Mean_Nuc_Over_Cyto_Ratio;Note"
    body = [f"{w};{line};{dose};{str(ratio).replace('.', ',')};;;" for w, line, dose, ratio in GOOD]
    assert score("\ufeff" + "\r\n".join([header, *body])).outcome == expected
    tabs = ["\t".join(("well", "cell_type", "dose", RATIO)), *("\t".join(map(str, row)) for row in GOOD)]
    assert score("\n".join(tabs).encode("utf-16")).outcome == expected


def test_parts_of_a_table_are_put_together(data: Path) -> None:
    """Weakness 21: of two tables only the first was scored."""
    folder = data / "split"
    folder.mkdir()
    for line in ("A549", "MCF7"):
        rows = [",".join(map(str, row)) for row in GOOD if row[1] == line]
        text = "\n".join([",".join(("well", "cell_type", "dose", RATIO)), *rows])
        (folder / f"{line}_per_well_summary.csv").write_text(text)
    result = evaluate(OUTCOME, DELIVERABLES, folder, data / "evaluation", data / "input")
    assert result.strict == 1.0
    assert _codes(result) == {"split_table"}


def test_the_plain_name_wins_over_other_files(score: Write) -> None:
    result = score(GOOD, old_per_well_summary_v1="\n".join(["well,cell_type,dose," + RATIO, "A01,MCF7,-7,3"]))
    assert result.strict == 1.0
    assert _codes(result) == {"duplicate_file"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x01\x02",
        b"well,cell_type,dose\nA01,MCF7,-7\n",
        b'well,cell_type,dose,mean_nuc_over_cyto_ratio\n"A01,MCF7,-7,' + b"x" * 200_000,
        b"\xff\xfe\x00",
        b"well,cell_type,dose,mean_nuc_over_cyto_ratio\n",
        "well,cell_type,dose,mean_nuc_over_cyto_ratio\nÄ01,MCF7,-7,1\nA01\n,,,\n".encode(),
    ],
)
def test_broken_tables_score_nothing_and_say_why(score: Write, content: bytes) -> None:
    result = score(content)
    assert (result.outcome, result.strict) == (0.0, 0.0)
    assert result.problems


def test_huge_numbers_do_not_break_the_scores(score: Write) -> None:
    result = score(_changed(lambda row: (*row[:3], "1e6" if row[0][0] == "A" else "1e-6")))
    assert 0.0 <= result.outcome <= 1.0
    assert math.isfinite(result.strict or 0.0)


def test_the_list_of_doses_stands_in_for_the_table(score: Write, data: Path) -> None:
    expected = score(GOOD)
    (data / "input" / "BBBC014_v1_platemap_dosekey.csv").write_text("this is no plate map\n")
    doses = [f"10^{dose:g}" for _, _, dose in _wells()]
    (data / "input" / "BBBC014_v1_platemap_all.txt").write_text("\n".join(["DESCRIPTION TNF", *doses]))
    assert score(GOOD).outcome == expected.outcome


def test_without_a_plate_map_it_is_the_operators_fault(score: Write, data: Path) -> None:
    (data / "input" / "BBBC014_v1_platemap_dosekey.csv").write_text("row,column,dose\nA,1,10^-7\n")
    with pytest.raises(TruthError, match="gives 1 wells of 16"):
        score(GOOD)


def test_published_data_have_no_strict_score_and_nothing_to_replay(score: Write, data: Path, tmp_path: Path) -> None:
    (data / "evaluation" / "per_well_truth.csv").unlink()
    result = score(GOOD)
    assert result.outcome > 0.9
    assert result.strict is None
    with pytest.raises(TruthError, match="no reference that could be replayed"):
        replay(OUTCOME, DELIVERABLES, data / "evaluation", data / "input", tmp_path)


def test_truth_with_gaps_is_the_operators_fault(score: Write, data: Path) -> None:
    (data / "evaluation" / "per_well_truth.csv").write_text(f"well,{RATIO}\nA01,1.0\n")
    with pytest.raises(TruthError, match="15 wells"):
        score(GOOD)


def test_spellings_of_wells_and_doses() -> None:
    assert [well_name(text) for text in ("a1", "A-01", " H 12 ", "A_1")] == ["A01", "A01", "H12", "A01"]
    assert [well_name(text) for text in ("", "AA1", "12", "A123", "A")] == [None] * 5
    assert log_dose("10^-7.523") == -7.523
    assert log_dose("1e-7 g/mL") == pytest.approx(-7.0)
    assert log_dose("-7") == -7.0
    assert log_dose("0 ng/mL") == -math.inf
    assert log_dose("none") is None
