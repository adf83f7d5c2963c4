"""Puncta per nucleus: each weakness of the published scorer with the value that is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluators import Content, Deliverable, OutcomeScore, OutcomeSpec, TruthError, check_parameters, evaluate

WORDS = {"3dbd": ["3dbd"], "c129a": ["c129a", "h144a"], "wt": ["wt", "wildtype"]}
SPEC = OutcomeSpec(kind="puncta_per_nucleus", parameters={"voxel_um": [0.2, 0.065, 0.065], "condition_words": WORDS})
COLUMNS = ("condition", "Image name", "z", "y", "x", "number of GFP puncta")
NUCLEI = Deliverable(
    id="cell_quants",
    patterns=("*cell_quants*.csv",),
    format="CSV",
    content=Content.TABLE,
    columns=COLUMNS,
    description="one per nucleus",
)
Row = tuple[object, ...]
WT, DBD = "081_ZR_WT", "081_ZR_3DBDmut"
TRUE: list[Row] = [
    (WT, "WT - Position 1.tif", 20, 200, 200, 40),
    (WT, "WT - Position 1.tif", 20, 200, 600, 0),
    (WT, "WT - Position 2.tif", 20, 400, 400, 20),
    (DBD, "DBD - Position 1.tif", 20, 200, 200, 10),
    (DBD, "DBD - Position 1.tif", 20, 700, 200, 0),
]


class Desk:
    def __init__(self, folder: Path) -> None:
        self.truth, self.output = folder / "evaluation", folder / "output"
        for path in (self.truth, self.output):
            path.mkdir()
        self.write(self.truth / "cell_quants.csv", TRUE)

    @staticmethod
    def write(path: Path, rows: list[Row], header: tuple[str, ...] = COLUMNS) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([",".join(header), *(",".join(map(str, row)) for row in rows)]) + "\n")

    def score(self, rows: list[Row] | None = None, header: tuple[str, ...] = COLUMNS) -> OutcomeScore:
        if rows is not None:
            self.write(self.output / "cell_quants.csv", rows, header)
        return evaluate(SPEC, [NUCLEI], self.output, self.truth)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def codes(score: OutcomeScore) -> set[str]:
    return {problem.code for problem in score.problems}


def changed(row: int, **cells: object) -> list[Row]:
    names = {"condition": 0, "image": 1, "z": 2, "y": 3, "x": 4, "count": 5}
    rows = [list(one) for one in TRUE]
    for name, value in cells.items():
        rows[row][names[name]] = value
    return [tuple(one) for one in rows]


def test_truth_is_the_top_whatever_the_spelling_of_headers(desk: Desk) -> None:
    score = desk.score(TRUE)
    assert (score.outcome, score.strict, score.problems) == (1.0, 1.0, [])
    header = ("Condition", " image name", "Z", "Y", "X ", "Number of GFP Puncta")
    assert desk.score(TRUE, header).outcome == 1.0


def test_optimal_pairs_in_micrometres(desk: Desk) -> None:
    truth = [(WT, "p.tif", 20, 0, 0, 40), (WT, "p.tif", 20, 0, 60, 0)]
    desk.write(desk.truth / "cell_quants.csv", truth)
    assert desk.score([(WT, "p.tif", 20, 0, 50, 40), (WT, "p.tif", 20, 0, 105, 0)]).outcome == 1.0
    # 4.5 um away in the plane is near, 9 um away along z is not
    desk.write(desk.truth / "cell_quants.csv", truth[:1])
    assert desk.score([(WT, "p.tif", 20, 0, 69, 40)]).outcome == 1.0
    assert desk.score([(WT, "p.tif", 65, 0, 0, 40)]).outcome == 0.0


def test_the_volume_of_a_voxel_comes_from_the_reference_where_it_is_there(desk: Desk) -> None:
    header = (*COLUMNS, "ROI volume pix", "ROI volume um")
    voxel = 8 * 0.2 * 0.065 * 0.065  # twice as large along each axis
    desk.write(desk.truth / "cell_quants.csv", [(*row, 1000, 1000 * voxel) for row in TRUE], header)
    assert desk.score(changed(0, x=235)).outcome == 1.0  # 4.55 um
    assert desk.score(changed(0, x=245)).outcome < 1.0  # 5.85 um


def test_double_counts_differ_from_nothing_in_the_overlap(desk: Desk) -> None:
    double, nothing = ([(*row[:5], factor * int(str(row[5]))) for row in TRUE] for factor in (2, 0))
    one, other = desk.score(double), desk.score(nothing)
    assert one.outcome == other.outcome == 0.0
    assert one.metrics["count_overlap"] == 0.5
    assert other.metrics["count_overlap"] == 0.0


def test_missing_a_nucleus_without_puncta_is_seen_in_strict_only(desk: Desk) -> None:
    score = desk.score([row for row in TRUE if row[5]])
    assert (score.outcome, score.strict) == (1.0, 0.0)


def test_a_row_that_is_no_nucleus_is_surplus_and_named(desk: Desk) -> None:
    for bad, code in (
        ((WT, "WT - Position 1.tif", "", 1, 1, 30), "invalid_place"),
        ((WT, "WT - Position 9.tif", 1, 1, 1, 30), "unknown_image"),
        (("other", "nowhere.tif", 1, 1, 1, 60), "unknown_image"),
    ):
        score = desk.score([*TRUE, bad])
        assert code in codes(score)
        assert score.outcome < 0.8
    assert score.outcome == pytest.approx((0.5 + 0.0) / 2)  # a surplus of 30 in each condition


@pytest.mark.parametrize("count", ["nan", "", "-3", "inf", "1e300", "many"])
def test_one_count_that_is_none_costs_one_nucleus(desk: Desk, count: str) -> None:
    score = desk.score(changed(2, count=count))
    assert "invalid_count" in codes(score)
    assert score.outcome == pytest.approx((40 / 60 + 1.0) / 2)


def test_conditions_by_any_of_their_names(desk: Desk) -> None:
    for name in ("Wild-Type", "WT", "wildtype", "zr wt"):
        rows = [(name, "Position 2", *row[2:]) if row[1] == "WT - Position 2.tif" else row for row in TRUE]
        assert desk.score(rows).outcome == 1.0
    growth = [("growth", "Position 2", *row[2:]) if row[1] == "WT - Position 2.tif" else row for row in TRUE]
    assert desk.score(growth).outcome < 1.0


def test_a_wrong_condition_beside_a_right_image_is_reported_not_charged_twice(desk: Desk) -> None:
    score = desk.score(changed(2, condition=DBD))
    assert "wrong_condition" in codes(score)
    assert score.outcome == 1.0


def test_the_same_nucleus_twice_is_surplus(desk: Desk) -> None:
    score = desk.score([*TRUE, TRUE[0]])
    assert score.outcome == pytest.approx((1 - 40 / 60 + 1.0) / 2)
    empty = desk.score([*TRUE, TRUE[1]])
    assert empty.strict is not None
    assert empty.strict < 1.0


def test_image_names_with_and_without_extensions(desk: Desk) -> None:
    for change in (str.upper, lambda n: f"some/where/{n}_trimmed.tif", lambda n: n.replace(".tif", ".ome.tif")):
        assert desk.score([(row[0], change(str(row[1])), *row[2:]) for row in TRUE]).outcome == 1.0


def test_a_condition_without_puncta_counts_only_where_some_are_claimed(desk: Desk) -> None:
    truth = [*TRUE, ("C129A", "c - Position 1.tif", 20, 10, 10, 0)]
    desk.write(desk.truth / "cell_quants.csv", truth)
    assert desk.score(truth).outcome == 1.0
    assert desk.score([*TRUE, ("C129A", "c - Position 1.tif", 20, 10, 10, 5)]).outcome == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "empty_file"),
        (",".join(COLUMNS).encode() + b"\n", "no_rows"),
        (b"\xff\xfe\x00", "not_text"),
        (b"condition,image\n1,2\n", "missing_columns"),
        (",".join(COLUMNS).encode() + b'\na,"b\n', None),
    ],
)
def test_hostile_tables_have_a_name_and_no_traceback(desk: Desk, content: bytes, code: str | None) -> None:
    (desk.output / "cell_quants.csv").write_bytes(content)
    score = desk.score()
    assert (score.outcome, score.strict) == (0.0, 0.0)
    assert score.problems
    if code:
        assert code in codes(score)


def test_bom_and_semicolons_are_read(desk: Desk) -> None:
    text = "\n".join([";".join(COLUMNS), *(";".join(map(str, row)) for row in TRUE)])
    (desk.output / "cell_quants.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert desk.score().outcome == 1.0


def test_unusable_truth_is_our_fault(desk: Desk) -> None:
    desk.write(desk.truth / "cell_quants.csv", [])
    with pytest.raises(TruthError):
        desk.score(TRUE)
    (desk.truth / "cell_quants.csv").unlink()
    with pytest.raises(TruthError):
        desk.score(TRUE)


def test_parameters_are_checked() -> None:
    with pytest.raises(ValueError, match="positive"):
        check_parameters(OutcomeSpec(kind="puncta_per_nucleus", parameters={"voxel_um": [0, 1, 1]}), [NUCLEI])
