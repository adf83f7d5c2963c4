"""Phenotypes over time: each weakness of the published scorer with the value that is right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tifffile

from evaluators import Content, Deliverable, OutcomeScore, OutcomeSpec, TruthError, check_parameters, evaluate, replay

SPEC = OutcomeSpec(
    kind="phenotype_dynamics",
    parameters={"classes": ["round", "amoeboid", "ramified"], "synonyms": {"stratified": "ramified"}},
)
CELLS = Deliverable(
    id="cell_labels", patterns=("*cell_labels*.csv",), format="CSV", content=Content.TABLE, description="one per cell"
)
Row = tuple[object, object, object, object]


class Desk:
    def __init__(self, folder: Path) -> None:
        self.truth, self.input, self.output = (folder / name for name in ("evaluation", "input", "output"))
        for path in (self.truth, self.input, self.output):
            path.mkdir()
        tifffile.imwrite(self.input / "IMG_20x_0.tif", np.zeros((200, 300), np.uint16))

    def annotate(self, rows: list[Row]) -> None:
        lines = ["index,axis-0,axis-1,axis-2,label", *(f"{i},{t},{y},{x},{c}" for i, (t, x, y, c) in enumerate(rows))]
        (self.truth / "Replicate1annotation.csv").write_text("\n".join(lines) + "\n")

    def submit(
        self, rows: list[Row], header: str = "frame,x,y,phenotype", name: str = "cell_labels.csv"
    ) -> OutcomeScore:
        (self.output / name).write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
        return self.score()

    def score(self) -> OutcomeScore:
        return evaluate(SPEC, [CELLS], self.output, self.truth, self.input)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def series(frames: int = 6) -> list[Row]:
    """Five cells per frame, ramified at first, round in the end; one is amoeboid in the middle."""
    rows: list[Row] = []
    for t in range(frames):
        for k in range(5):
            label = "round" if k < t else "amoeboid" if k == 4 and t == 3 else "ramified"
            rows.append((t, 30.0 + 50 * k, 40.0 + 20 * k, label))
    return rows


def codes(score: OutcomeScore) -> set[str]:
    return {problem.code for problem in score.problems}


def test_replay_is_the_top_for_one_frame_and_for_two_classes_as_well(desk: Desk) -> None:
    for rows in (series(), [*series(1), (0, 5.0, 5.0, "round")], [r for r in series() if r[3] != "amoeboid"]):
        desk.annotate(rows)
        replay(SPEC, [CELLS], desk.truth, desk.input, desk.output)
        score = desk.score()
        assert score.outcome == pytest.approx(1.0)
        assert score.strict == pytest.approx(1.0)


def test_optimal_pairs_not_greedy_ones(desk: Desk) -> None:
    desk.annotate([(0, 0.0, 50.0, "round"), (0, 20.0, 50.0, "ramified")])
    score = desk.submit([(0, 12, 50, "round"), (0, 30, 50, "ramified")])
    assert score.metrics["matched_cells"] == 2


def test_frames_that_are_missing_are_not_left_out(desk: Desk) -> None:
    desk.annotate(series())
    ends = [row for row in series() if row[0] in (0, 5)]
    score = desk.submit(ends)
    # localisation 2*10/40; classes over all frames; trend: two of six frames
    assert score.metrics["localization_f1"] == pytest.approx(0.5)
    assert score.metrics["trend_score"] == pytest.approx(2 / 6, abs=0.09)
    assert score.outcome < 0.5
    assert "missing_frames" in codes(score)


def test_an_invalid_row_is_a_cell_that_is_not_there(desk: Desk) -> None:
    desk.annotate(series())
    for bad in (
        ("", 5, 5, "round"),
        (0, "nan", 5, "round"),
        (99, 5, 5, "round"),
        (0.5, 5, 5, "round"),
        (-1, 5, 5, "round"),
    ):
        score = desk.submit([*series(), bad])
        assert score.metrics["localization_f1"] == pytest.approx(60 / 61)
        assert score.metrics["trend_score"] == pytest.approx(1.0)  # its label does not shape the trend
        assert "invalid_row" in codes(score)


def test_a_row_without_a_class_is_not_cheaper_than_a_wrong_one_in_strict(desk: Desk) -> None:
    desk.annotate(series())
    blank = desk.submit([(t, x, y, "" if i % 2 else c) for i, (t, x, y, c) in enumerate(series())])
    assert "not_a_phenotype" in codes(blank)
    assert blank.strict is not None
    assert blank.strict < 0.75
    assert blank.metrics["classification_macro_f1"] < 0.8


def test_labels_that_are_object_numbers_are_named(desk: Desk) -> None:
    desk.annotate(series())
    score = desk.submit([(t, x, y, i) for i, (t, x, y, _) in enumerate(series())], "frame,x,y,label")
    assert "not_a_phenotype" in codes(score)
    assert score.metrics["classification_macro_f1"] == 0.0
    assert score.strict == 0.0


def test_published_names_of_columns_are_taken_and_others_are_named(desk: Desk) -> None:
    desk.annotate(series())
    assert desk.submit(series(), "Image_Index,X,Y,Predicted_Label").outcome == pytest.approx(1.0)
    score = desk.submit(series(), "frame,x,y,kind")
    assert score.outcome == 0.0
    assert "missing_columns" in codes(score)


def test_another_table_never_stands_in(desk: Desk) -> None:
    desk.annotate(series())
    score = desk.submit(series(), name="class_proportions.csv")
    assert (score.outcome, score.strict, score.delivered) == (0.0, 0.0, False)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "empty_file"),
        (b"frame,x,y,phenotype\n", "no_rows"),
        (b"\x00\xff\xfe\x01", "not_text"),
        (b'frame,x,y,phenotype\n0,1,2,round\n0,1,2,"round', None),
        (b"frame,x,y,phenotype\n1e400,1,2,round\n", "invalid_row"),
        (b"frame,x,y,phenotype\n0,1e308,-1e308,round\n", "outside_image"),
    ],
)
def test_hostile_tables_have_a_name_and_no_traceback(desk: Desk, content: bytes, code: str | None) -> None:
    desk.annotate(series())
    (desk.output / "cell_labels.csv").write_bytes(content)
    score = desk.score()
    assert score.outcome < 0.6
    assert score.strict == 0.0
    if code is not None:
        assert code in codes(score)


def test_without_images_there_is_no_strict_score(desk: Desk) -> None:
    desk.annotate(series())
    replay(SPEC, [CELLS], desk.truth, None, desk.output)
    score = evaluate(SPEC, [CELLS], desk.output, desk.truth, None)
    assert score.outcome == pytest.approx(1.0)
    assert score.strict is None


def _unknown_label(desk: Desk) -> None:
    desk.annotate([(0, 1, 1, "dead")])


def _nothing(desk: Desk) -> None:
    desk.annotate([])


@pytest.mark.parametrize("fault", [_unknown_label, _nothing, lambda desk: None])
def test_unusable_truth_is_our_fault(desk: Desk, fault: Callable[[Desk], None]) -> None:
    fault(desk)
    with pytest.raises(TruthError):
        desk.score()


def test_parameters_are_checked() -> None:
    wrong = OutcomeSpec(kind="phenotype_dynamics", parameters={"classes": ["a", "b"], "synonyms": {"c": "d"}})
    with pytest.raises(ValueError, match="unknown class d"):
        check_parameters(wrong, [CELLS])
