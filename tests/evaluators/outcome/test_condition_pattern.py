"""condition_pattern: what is read, what counts, and one test per known weakness of the published evaluator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from evaluators.evaluation import check_parameters, evaluate, replay
from evaluators.model import Content, Deliverable, OutcomeScore, OutcomeSpec, TruthError

DELIVERABLES = (
    Deliverable(
        id="per_cell",
        patterns=("*colocalization_results*.csv",),
        format="csv",
        content=Content.TABLE,
        columns=("image", "condition", "spearman_coefficient"),
        description="one row per image",
    ),
    Deliverable(
        id="pairwise",
        patterns=("*pairwise*.csv",),
        format="csv",
        content=Content.TABLE,
        required=False,
        columns=("condition_1", "condition_2", "p_value"),
        description="one row per comparison",
    ),
)
PARAMETERS: dict[str, Any] = {
    "table": "per_cell",
    "pairwise": "pairwise",
    "conditions": ["Control", "Stage 1", "Stage 2"],
    "aliases": {"Control": ["mock"]},
    "value": "spearman_coefficient",
    "value_range": [-1.0, 1.0],
    "comparisons": [
        {"pair": ["Control", "Stage 1"], "significant": False},
        {"pair": ["Stage 1", "Stage 2"], "significant": True},
    ],
    "orderings": [{"higher": "Stage 2", "lower": "Control"}, {"higher": "Stage 2", "lower": "Stage 1"}],
    "published_ranges": {"Control": [0.1, 0.15], "Stage 1": [0.1, 0.15], "Stage 2": [0.3, 0.4]},
}
OUTCOME = OutcomeSpec(kind="condition_pattern", parameters=PARAMETERS)
COUNTS = {"Control": 12, "Stage 1": 8, "Stage 2": 8}
LEVEL = {"Control": 0.1, "Stage 1": 0.1, "Stage 2": 0.3}
Row = tuple[object, object, object]
Score = Callable[..., OutcomeScore]


def _value(condition: str, k: int) -> float:
    return round(LEVEL[condition] + 0.15 * (k + 0.5) / COUNTS[condition], 4)


GOOD: list[Row] = [
    (f"{condition}/5h_1_{k}.tif", condition, _value(condition, k)) for condition, n in COUNTS.items() for k in range(n)
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for condition, n in COUNTS.items():
        folder = tmp_path / "input" / condition
        folder.mkdir(parents=True)
        for k in range(n):
            (folder / f"5h_1_{k}.tif").write_bytes(f"{condition} {k}".encode())
    # the last two of Stage 1 are copies of control images
    for k, source in ((6, 9), (7, 11)):
        copy = tmp_path / "input" / "Stage 1" / f"5h_1_{k}.tif"
        copy.write_bytes((tmp_path / "input" / "Control" / f"5h_1_{source}.tif").read_bytes())
    (tmp_path / "input" / "colors.txt").write_text("red green blue")
    (tmp_path / "evaluation").mkdir()
    truth = ["image,condition,spearman_coefficient", *(",".join(map(str, row)) for row in GOOD)]
    (tmp_path / "evaluation" / "per_cell_truth.csv").write_text("\n".join(truth) + "\n")
    return tmp_path


@pytest.fixture
def score(data: Path) -> Score:
    """Return a function that scores a table given as rows or text, with further files."""

    def write(rows: Sequence[Row] | str | bytes | None, files: dict[str, str] | None = None) -> OutcomeScore:
        folder = data / f"submission{len(list(data.iterdir()))}"
        folder.mkdir()
        if rows is not None:
            if not isinstance(rows, str | bytes):
                rows = "\n".join(["image,condition,spearman_coefficient", *(",".join(map(str, row)) for row in rows)])
            (folder / "colocalization_results.csv").write_bytes(rows if isinstance(rows, bytes) else rows.encode())
        for name, text in (files or {}).items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        return evaluate(OUTCOME, DELIVERABLES, folder, data / "evaluation", data / "input")

    return write


def _codes(result: OutcomeScore) -> set[str]:
    return {problem.code for problem in result.problems}


def _changed(change: Callable[[Row], Row | None]) -> list[Row]:
    return [row for row in map(change, GOOD) if row is not None]


def _group(condition: str) -> list[float]:
    return [float(str(row[2])) for row in GOOD if row[1] == condition]


def test_parts_by_hand(score: Score) -> None:
    result = score(GOOD)
    assert (result.outcome, result.strict, result.delivered) == (1.0, 1.0, True)
    p = stats.mannwhitneyu(_group("Stage 1"), _group("Stage 2")).pvalue
    assert result.metrics["p_stage_1_vs_stage_2"] == pytest.approx(p)
    assert result.metrics["median_control"] == pytest.approx(np.median(_group("Control")))
    assert result.metrics["effect_stage_2_vs_stage_1"] == 1.0
    assert not result.problems


def test_reversed_biology_keeps_the_significances(score: Score) -> None:
    result = score(_changed(lambda row: (row[0], row[1], -float(str(row[2])))))
    assert result.outcome == pytest.approx(0.7)
    assert result.strict == 0.0


def test_few_cells_decide_nothing(score: Score) -> None:
    """Weaknesses 1 and 4: three cells per condition, or one, scored 1."""
    few = [row for row in GOOD if str(row[0])[-5] in "012"]
    assert score(few).outcome == 0.0
    assert score([row for row in few if "_0." in str(row[0])]).outcome == 0.0


def test_p_values_that_are_handed_in_never_decide(score: Score) -> None:
    """Weaknesses 2, 6 and 7: they overrode the data, a p of 0 was taken for none, NaN and -5 were accepted."""
    flat = _changed(lambda row: (row[0], row[1], 0.1 + 0.01 * (ord(str(row[0])[-5]) % 7)))
    claims = "condition_1,condition_2,p_value\nControl,Stage 1,0.5\nStage 2,Stage 1,0.0\n"
    alone, claimed = score(flat), score(flat, {"pairwise.csv": claims})
    assert alone.outcome == claimed.outcome <= 0.5
    assert "p_value_differs" in _codes(claimed)
    assert claimed.metrics["reported_p_stage_1_vs_stage_2"] == 0.0
    odd = score(GOOD, {"pairwise.csv": claims.replace("0.5", "nan").replace("0.0", "-5")})
    assert odd.outcome == 1.0
    assert [problem.code for problem in odd.problems] == ["invalid_p_value"] * 2


@pytest.mark.parametrize("name", ["run.log", "report.md", "supporting/old.txt"])
def test_prose_is_not_read(score: Score, name: str) -> None:
    """Weaknesses 8, 9 and 10."""
    prose = "Kruskal-Wallis across Control, Stage 1, Stage 2: p-value = 3e-12\nControl vs Stage 1: p-value = 0.01\n"
    assert score(GOOD, {name: prose}).outcome == 1.0
    assert score(None, {name: prose}).outcome == 0.0


def test_repeated_rows_do_not_count(score: Score) -> None:
    """Weakness 5: every row five times made a difference significant."""
    result = score(GOOD * 5)
    assert (result.outcome, result.strict) == (0.0, 0.0)
    assert "duplicate_image" in _codes(result)


def test_only_the_named_column_is_read(score: Score) -> None:
    """Weakness 11: the first header that looked alike was taken, p-values for instance."""
    text = ["image,condition,spearman_p,pearson_coefficient,spearman_coefficient"]
    text += [f"{image},{condition},0.5,-0.9,{value}" for image, condition, value in GOOD]
    assert score("\n".join(text)).strict == 1.0
    other = "\n".join(text).replace(",spearman_coefficient", ",manders_coefficient")
    assert (score(other).outcome, score(other).delivered) == (0.0, False)


@pytest.mark.parametrize("spelling", ["Stage1", "stage_1", "STAGE-1", " Stage  1 "])
def test_spellings_of_conditions_are_one(score: Score, spelling: str) -> None:
    """Weaknesses 12 and 13."""
    rows = [
        (str(image).split("/")[1], spelling if condition == "Stage 1" and k % 2 else condition, value)
        for k, (image, condition, value) in enumerate(GOOD)
    ]
    result = score(rows)
    assert result.strict == 1.0
    assert not result.problems


def test_the_folder_tells_the_condition(score: Score) -> None:
    result = score(_changed(lambda row: (f"/input/{row[0]}", "Stage 2" if row[1] == "Control" else row[1], row[2])))
    assert result.strict == 1.0
    assert _codes(result) == {"condition_differs"}
    windows = _changed(lambda row: (str(row[0]).replace("/", "\\").removesuffix(".tif"), row[1], row[2]))
    assert score(windows).strict == 1.0


def test_unknown_names_are_said(score: Score) -> None:
    result = score([*GOOD, ("Stage 1/9h_9_9.tif", "Stage 1", 0.2), ("5h_1_1.tif", "infected", 0.2)])
    assert result.strict == 1.0
    assert _codes(result) == {"unknown_image", "unknown_condition"}


def test_what_spreadsheets_write_is_understood(score: Score) -> None:
    """Weakness 14."""
    text = "\ufeffImage;CONDITION;Spearman_Coefficient\r\n"
    text += "\r\n".join(f"{image};{condition};{str(value).replace('.', ',')}" for image, condition, value in GOOD)
    assert score(text).strict == 1.0


def test_one_table_per_condition_is_put_together(score: Score) -> None:
    """Weakness 15: only the first was read."""
    files = {
        f"{condition}_colocalization_results.csv": "\n".join(
            ["image,condition,spearman_coefficient", *(",".join(map(str, row)) for row in GOOD if row[1] == condition)]
        )
        for condition in COUNTS
    }
    result = score(None, files)
    assert result.strict == 1.0
    assert _codes(result) == {"split_table"}


def test_a_summary_is_not_a_table_of_cells(score: Score) -> None:
    """Weakness 16: four means scored 0.53; and no other file stands in."""
    summary = "image,condition,spearman_coefficient\n" + "\n".join(f"all,{name},{v}" for name, v in LEVEL.items())
    assert score(summary).outcome == 0.0
    assert score(None, {"summary.csv": summary}).delivered is False


def test_copies_may_be_left_out(score: Score) -> None:
    """Weakness 18: dropping the images that are there twice is right, and costs nothing but the row."""
    rows = _changed(lambda row: None if str(row[0]) in ("Stage 1/5h_1_6.tif", "Stage 1/5h_1_7.tif") else row)
    result = score(rows)
    assert result.outcome == 1.0
    assert "copies_filled" in _codes(result)
    others = _changed(lambda row: None if str(row[0]) in ("Stage 1/5h_1_0.tif", "Stage 1/5h_1_1.tif") else row)
    assert score(others).strict < 1.0


@pytest.mark.parametrize("value", ["", "nan", "inf", "1.01", "-30", "n.s."])
def test_an_impossible_value_is_a_missing_one(score: Score, value: str) -> None:
    """Weakness 20: values beyond [-1, 1] were dropped without a word."""
    rows = _changed(lambda row: (*row[:2], value) if row[1] == "Stage 2" else row)
    result = score(rows)
    assert result.outcome == pytest.approx(0.35)  # only Control against Stage 1 is left
    assert "invalid_value" in _codes(result)


def test_leaving_out_a_cell_against_the_trend_does_not_help(score: Score) -> None:
    outlier = _changed(lambda row: (*row[:2], -0.9) if str(row[0]) == "Stage 2/5h_1_7.tif" else row)
    without = [row for row in outlier if str(row[0]) != "Stage 2/5h_1_7.tif"]
    assert score(without).outcome <= score(outlier).outcome
    assert score(without).strict <= score(outlier).strict


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\xff\x00",
        b"image,condition\n",
        b"image,condition,spearman_coefficient\n",
        b'image,condition,spearman_coefficient\n"Control/5h_1_1.tif,Control,' + b"9" * 300_000,
        b"image,condition,spearman_coefficient\n,,\n../../etc/passwd,Control,0.1\n\\,/,0\nx\n",
    ],
)
def test_broken_tables_score_nothing_and_say_why(score: Score, content: bytes) -> None:
    result = score(content)
    assert (result.outcome, result.strict) == (0.0, 0.0)
    assert result.problems


def test_published_data_are_replayed_from_the_published_ranges(score: Score, data: Path, tmp_path: Path) -> None:
    (data / "evaluation" / "per_cell_truth.csv").unlink()
    folder = tmp_path / "replayed"
    folder.mkdir()
    replay(OUTCOME, DELIVERABLES, data / "evaluation", data / "input", folder)
    result = evaluate(OUTCOME, DELIVERABLES, folder, data / "evaluation", data / "input")
    assert (result.outcome, result.strict) == (1.0, None)


def test_input_without_a_condition_is_the_operators_fault(score: Score, data: Path) -> None:
    (data / "input" / "Stage 2").rename(data / "input" / "other")
    with pytest.raises(TruthError, match="no image of condition Stage 2"):
        score(GOOD)
    with pytest.raises(TruthError, match="input folder"):
        evaluate(OUTCOME, DELIVERABLES, data, data / "evaluation", None)


def test_truth_with_gaps_is_the_operators_fault(score: Score, data: Path) -> None:
    (data / "evaluation" / "per_cell_truth.csv").write_text("image,spearman_coefficient\nControl/5h_1_1.tif,0.1\n")
    with pytest.raises(TruthError, match="27 of 28"):
        score(GOOD)


def test_parameters_name_known_conditions() -> None:
    wrong = {**PARAMETERS, "orderings": [{"higher": "Stage 9", "lower": "Control"}]}
    with pytest.raises(ValueError, match="unknown condition Stage 9"):
        check_parameters(OutcomeSpec(kind="condition_pattern", parameters=wrong), DELIVERABLES)
