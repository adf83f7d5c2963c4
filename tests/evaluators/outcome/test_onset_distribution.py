"""onset_distribution: what is read, what counts, and one test per known weakness of the published evaluator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from evaluators.evaluation import evaluate, replay
from evaluators.model import Content, Deliverable, OutcomeScore, OutcomeSpec, TruthError
from evaluators.outcome.onset_distribution import condition_of
from evaluators.outcome.parameters import OnsetDistribution

DELIVERABLES = (
    Deliverable(
        id="coloc_results",
        patterns=("*coloc*results*.csv",),
        format="csv",
        content=Content.TABLE,
        columns=("condition", "start_normalized"),
        description="one row per event",
    ),
)
PARAMETERS = {
    "table": "coloc_results",
    "conditions": {"siControl": ["control", "mock", "siCtrl"], "si53BP1": ["53bp1", "53bp1 knockdown"]},
}
OUTCOME = OutcomeSpec(kind="onset_distribution", parameters=PARAMETERS)
CONTROL, DEPLETED = (0.1, 0.2, 0.3, 0.4), (0.05, 0.1, 0.15, 0.2)
Row = tuple[object, ...]
Score = Callable[..., OutcomeScore]
# (condition, frame, y, x, onset); the true events of both conditions
EVENTS: list[Row] = [
    *(("siControl", 10 + 3 * k, 20.0 + 30 * k, 40.0, onset) for k, onset in enumerate(CONTROL)),
    *(("si53BP1", 10 + 3 * k, 20.0 + 30 * k, 140.0, onset) for k, onset in enumerate(DEPLETED)),
]
VALUES = [(row[0], row[4]) for row in EVENTS]
PLACED = "condition,frame,y,x,start_normalized"


@pytest.fixture
def truth(tmp_path: Path) -> Path:
    folder = tmp_path / "evaluation"
    folder.mkdir()
    header = "S-phase length (h),Start coloc after S entry (h),Start normalized"
    rows = [f"10,{10 * a},{a},12,{12 * b},{b}" for a, b in zip(CONTROL, DEPLETED, strict=True)]
    (folder / "coloc_results.csv").write_text(
        "\n".join(["siControl,,,si53BP1,,", f"{header},{header}", *rows, ",,,,,", "mean,,n/a,,,nan"]) + "\n"
    )
    events = [PLACED, *(",".join(map(str, row)) for row in EVENTS)]
    (folder / "events.csv").write_text("\n".join(events) + "\n")
    return folder


@pytest.fixture
def score(truth: Path) -> Score:
    """Return a function that scores a table given as rows or text."""

    def write(
        rows: Sequence[Row] | str | bytes, header: str = "condition,start_normalized", **more: str
    ) -> OutcomeScore:
        folder = truth.parent / f"submission{len(list(truth.parent.iterdir()))}"
        folder.mkdir()
        if not isinstance(rows, str | bytes):
            rows = "\n".join([header, *(",".join(map(str, row)) for row in rows)])
        (folder / "coloc_results.csv").write_bytes(rows if isinstance(rows, bytes) else rows.encode())
        for name, text in more.items():
            (folder / f"{name}.csv").write_text(text)
        return evaluate(OUTCOME, DELIVERABLES, folder, truth)

    return write


def _codes(result: OutcomeScore) -> set[str]:
    return {problem.code for problem in result.problems}


def test_perfect_events(score: Score) -> None:
    result = score(EVENTS, PLACED)
    assert (result.outcome, result.strict, result.delivered) == (1.0, 1.0, True)
    assert not result.problems
    assert result.metrics["siControl_events"] == 4
    assert result.metrics["mae_start_normalized"] == pytest.approx(0.0)


def test_vectors_by_hand(score: Score) -> None:
    shifted = [("siControl", 0.5), ("siControl", 0.6)]
    assert score([*shifted, *VALUES[4:]]).metrics["siControl_ks_distance"] == 1.0
    spread = [("siControl", 0.15), ("siControl", 0.35)]
    result = score([*spread, *VALUES[4:]])
    assert result.metrics["siControl_ks_distance"] == pytest.approx(0.25)
    assert result.outcome == pytest.approx((0.75 + 1.0) / 2)


def test_a_condition_with_fewer_than_two_events_is_0(score: Score) -> None:
    assert score(VALUES[:4]).outcome == 0.5
    result = score([*VALUES[:4], VALUES[4]])
    assert result.outcome == 0.5
    assert "too_few_events" in _codes(result)


def test_counts_do_not_enter_the_published_measure_but_strict(score: Score) -> None:
    """Weaknesses 2, 5, 6 and 11."""
    two = [("siControl", 0.15), ("siControl", 0.35), ("si53BP1", 0.075), ("si53BP1", 0.175)]
    result = score(two)
    assert result.outcome == 0.75
    assert result.strict == 0.0
    assert result.metrics["siControl_count_relative_error"] == 0.5
    assert score(VALUES * 50).outcome == 1.0
    assert score(VALUES * 50).strict == 0.0


def test_no_effect_and_a_reversed_one_fail_strict(score: Score) -> None:
    """Weaknesses 3 and 4."""
    pooled = [(name, *row[1:]) for name in ("siControl", "si53BP1") for row in EVENTS]
    assert score(pooled, PLACED).outcome > 0.5
    assert score(pooled, PLACED).strict < 0.6  # every true event is there, and as many that are none
    other = {"siControl": "si53BP1", "si53BP1": "siControl"}
    assert score([(other[str(row[0])], *row[1:]) for row in EVENTS], PLACED).strict < 0.5


@pytest.mark.parametrize(
    ("label", "condition"),
    [
        ("SIcontrol ", "siControl"),
        ("si 53BP1", "si53BP1"),
        ("siControl_cell12", "siControl"),
        ("siCtrl-rep2", "siControl"),
        ("mock", "siControl"),
        ("53BP1 knockdown", "si53BP1"),
        ("Figure2b_si53BP1.tif", "si53BP1"),
        ("c", None),
        ("si", None),
        ("siControl_vs_si53BP1", None),
        ("53BP1 control", None),
        ("", None),
    ],
)
def test_labels(label: str, condition: str | None) -> None:
    """Weaknesses 8 and 9: too few spellings were known, and any part of a name was enough."""
    assert condition_of(label, OnsetDistribution.model_validate(PARAMETERS)) == condition


def test_labels_of_cells_are_pooled(score: Score) -> None:
    """Weakness 7: only the first label of a condition was used."""
    result = score([(f"{name}_cell{k}", value) for k, (name, value) in enumerate(VALUES)])
    assert result.outcome == 1.0


def test_unknown_labels_are_said(score: Score) -> None:
    result = score([*VALUES, ("wild boar", 0.3)])
    assert result.outcome == 1.0
    assert "unknown_condition" in _codes(result)


@pytest.mark.parametrize("value", ["", "nan", "inf", "-0.1", "1.5", "late"])
def test_a_value_that_is_none_stays_in_the_count(score: Score, value: str) -> None:
    """Weakness 10: hard events vanished without a trace, any number was accepted."""
    result = score([*VALUES[:3], ("siControl", value), *VALUES[4:]])
    assert result.metrics["siControl_ks_distance"] == pytest.approx(0.25)
    assert "invalid_onset" in _codes(result)


def test_hours_are_noticed(score: Score) -> None:
    result = score([(name, float(str(value)) * 10 + 1) for name, value in VALUES])
    assert result.outcome == 0.0
    assert any("hours or percent" in problem.message for problem in result.problems)


def test_the_same_event_twice_counts_once(score: Score) -> None:
    result = score([*EVENTS, *EVENTS[:3]], PLACED)
    assert (result.outcome, result.strict) == (1.0, 1.0)
    assert "repeated_event" in _codes(result)


def test_events_are_matched_in_place_and_time(score: Score) -> None:
    near = [(row[0], int(str(row[1])) + 2, float(str(row[2])) + 3, float(str(row[3])) - 3, row[4]) for row in EVENTS]
    assert score(near, PLACED).strict == 1.0
    late = [(row[0], int(str(row[1])) + 3, *row[2:]) for row in EVENTS]
    assert score(late, PLACED).strict == 0.0
    swapped = [(row[0], row[1], row[3], row[2], row[4]) for row in EVENTS]
    assert score(swapped, PLACED).strict < 0.3
    without = score(VALUES)
    assert without.strict == 0.0
    assert "no_location" in _codes(without)
    blank = [(*row[:3], "", row[4]) if k % 2 else row for k, row in enumerate(EVENTS)]
    assert "unlocated_event" in _codes(score(blank, PLACED))
    assert 0.3 < score(blank, PLACED).strict < 0.7


def test_what_spreadsheets_write_is_understood(score: Score) -> None:
    """Weaknesses 12 and 13."""
    rows = "\r\n".join(f"{name};{str(value).replace('.', ',')}" for name, value in VALUES)
    assert score("\ufeffCondition;Start_Normalized\r\n" + rows).outcome == 1.0
    tabs = "\n".join(f"{name}\t{value}" for name, value in VALUES)
    assert score("condition\tstart_normalized\n" + tabs).outcome == 1.0


def test_the_plain_name_wins_and_equals_are_ambiguous(score: Score, truth: Path) -> None:
    """Weakness 14: the first path in order was scored, such as a quality check per cell."""
    result = score(VALUES, coloc_results_per_cell="condition,start_normalized\nsiControl,0.9\n")
    assert result.outcome == 1.0
    folder = truth.parent / "ambiguous"
    folder.mkdir()
    for name in ("coloc_results_a.csv", "coloc_results_b.csv"):
        (folder / name).write_text(f"condition,start_normalized\nsiControl,0.{len(name)}\n{name[14]},0.2\n")
    result = evaluate(OUTCOME, DELIVERABLES, folder, truth)
    assert result.outcome == 0.0
    assert "ambiguous_files" in _codes(result)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x01",
        b"condition,start\nsiControl,0.1\n",
        b"condition,start_normalized\n",
        b'condition,start_normalized\n"siControl,0.1\n' + b"x" * 140_000,
        b"condition,start_normalized\nsiControl\n,\n\xc3\x28,0.2\n",
    ],
)
def test_broken_tables_score_nothing_and_say_why(score: Score, content: bytes) -> None:
    """Weakness 15: some ended as a run without a score."""
    result = score(content)
    assert (result.outcome, result.strict) == (0.0, 0.0)
    assert result.problems


def test_very_many_events_are_scored(score: Score) -> None:
    rows = [("siControl", 1 + k % 60, k % 250, (k * 7) % 250, 0.3) for k in range(40_000)]
    result = score([*rows, *EVENTS], PLACED)
    assert result.strict < 0.2


def test_unusable_truth_is_the_operators_fault(score: Score, truth: Path) -> None:
    """Weakness 16: a missing reference gave no score, a broken one 0."""
    (truth / "events.csv").write_text(PLACED + "\nsiControl,1,2,,0.5\n")
    with pytest.raises(TruthError, match="no number"):
        score(VALUES)
    (truth / "events.csv").unlink()
    assert score(VALUES).strict is None
    (truth / "coloc_results.csv").write_text("siControl\nStart normalized\n0.1\n0.2\n")
    with pytest.raises(TruthError, match="of condition si53BP1"):
        score(VALUES)
    (truth / "coloc_results.csv").unlink()
    with pytest.raises(TruthError, match="no reference table"):
        score(VALUES)


def test_published_data_are_replayed_without_places(truth: Path, tmp_path: Path) -> None:
    (truth / "events.csv").unlink()
    folder = tmp_path / "replayed"
    folder.mkdir()
    replay(OUTCOME, DELIVERABLES, truth, None, folder)
    result = evaluate(OUTCOME, DELIVERABLES, folder, truth)
    assert (result.outcome, result.strict) == (1.0, None)
