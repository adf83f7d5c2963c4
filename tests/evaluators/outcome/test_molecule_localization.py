"""Single-molecule localisation: the published score on correct data, and each known weakness with its right value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluators.evaluation import check_parameters, evaluate, is_delivered, replay
from evaluators.model import Content, Deliverable, OutcomeScore, OutcomeSpec, TruthError

NAME = "DNAPAINT_LocalizationList.txt"
DELIVERABLE = Deliverable(
    id="localization_list",
    patterns=("*LocalizationList*.txt", "*LocalizationList*.csv"),
    format="text table",
    content=Content.TABLE,
    description="frame, x, y, intensity",
)
SPEC = OutcomeSpec(kind="molecule_localization", parameters={"border_px": 4.0, "image_px": [100, 100]})
# Eight molecules in four frames, far apart.
TRUTH = [(t, 20.25 + 10 * t + 30 * k, 30.5 + 8 * t, 100.0 * (1 + t + 4 * k)) for t in range(4) for k in range(2)]

Scorer = Callable[[str | dict[str, str]], OutcomeScore]


def rows(*values: tuple[float, ...], header: str = "frame\tx\ty\tintensity", separator: str = "\t") -> str:
    return "\n".join([header, *(separator.join(map(str, row)) for row in values)]) + "\n"


@pytest.fixture
def truth(tmp_path: Path) -> Path:
    folder = tmp_path / "evaluation"
    folder.mkdir()
    (folder / NAME).write_text(rows(*TRUTH, header="frame x y intensity", separator=" "))
    return folder


@pytest.fixture
def score(truth: Path, tmp_path: Path) -> Scorer:
    def run(files: str | dict[str, str]) -> OutcomeScore:
        output = tmp_path / "output"
        for name, text in ({NAME: files} if isinstance(files, str) else files).items():
            path = output / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return evaluate(SPEC, [DELIVERABLE], output, truth)

    return run


def codes(result: OutcomeScore) -> set[str]:
    return {problem.code for problem in result.problems}


def test_replay(truth: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.mkdir()
    replay(SPEC, [DELIVERABLE], truth, None, output)
    result = evaluate(SPEC, [DELIVERABLE], output, truth)
    assert (result.outcome, result.strict, result.problems) == (1.0, 1.0, [])
    assert is_delivered([DELIVERABLE], output)


def test_the_composite_of_a_partly_right_list(score: Scorer) -> None:
    # 4 of 8 molecules, and 2 that do not exist: Jaccard 4 / 10; brightness of the four in reverse: r = -1 counts 0.
    found = [(t, x, y, 1000.0 - grey) for t, x, y, grey in TRUTH[:4]]
    result = score(rows(*found, (0, 70.0, 70.0, 1.0), (9, 20.0, 20.0, 1.0)))
    assert result.outcome == pytest.approx(0.7 * 0.4)
    assert result.metrics["intensity_pearson"] == pytest.approx(-1.0)
    assert (result.metrics["true_positives"], result.metrics["false_positives"]) == (4, 2)


def test_two_rows_earn_the_published_share_and_nothing_in_strict(score: Scorer) -> None:
    result = score(rows(TRUTH[0], TRUTH[5]))
    assert result.outcome == pytest.approx(0.7 * 2 / 8 + 0.3)
    assert result.metrics["brightness_strict"] == pytest.approx(0.25)


def test_pixel_centre_origin_is_named_and_its_score_without_offset_reported(score: Scorer) -> None:
    result = score(rows(*((t, x - 0.8, y - 0.8, grey) for t, x, y, grey in TRUTH)))
    assert result.outcome == 0.0
    assert "origin" in codes(result)
    assert result.metrics["jaccard_without_offset"] == 1.0
    assert result.metrics["offset_x_px"] == pytest.approx(-0.8)


@pytest.mark.parametrize("bad", ["0\tnan\t5\t100", "inf\t5\t5\t100", "1e400\t5\t5\t1", "2.5\t20\t30\t1", "-1\t5\t5\t1"])
def test_a_row_that_is_no_localisation_counts_as_one_invented(score: Scorer, bad: str) -> None:
    result = score(rows(*TRUTH) + bad + "\n")
    assert result.outcome == pytest.approx(0.7 * 8 / 9 + 0.3)
    assert "invalid_row" in codes(result)


def test_a_nan_intensity_costs_its_share_only(score: Scorer) -> None:
    found = [*TRUTH[:7], (*TRUTH[7][:3], float("nan"))]
    result = score(rows(*found))
    assert result.outcome == pytest.approx(0.7 + 0.3 * 7 / 8)
    assert "missing_intensity" in codes(result)


def test_intensities_of_two_molecules_do_not_stand_for_all(score: Scorer) -> None:
    found = [(*row[:3], row[3] if k in (0, 7) else float("nan")) for k, row in enumerate(TRUTH)]
    assert score(rows(*found)).outcome == pytest.approx(0.7 + 0.3 * 2 / 8)


def test_no_intensity_column(score: Scorer) -> None:
    result = score(rows(*(row[:3] for row in TRUTH), header="frame\tx\ty"))
    assert result.outcome == pytest.approx(0.7)
    assert result.strict == 0.0


def test_one_outlier_rules_pearson_but_not_the_ranks(score: Scorer) -> None:
    result = score(rows(*TRUTH[:7], (*TRUTH[7][:3], 1e12)))
    assert result.metrics["intensity_pearson"] < 0.7  # type: ignore[operator]
    assert result.metrics["intensity_spearman"] == pytest.approx(1.0)
    assert result.strict == 1.0


def test_scale_and_unit_of_brightness_do_not_matter(score: Scorer) -> None:
    assert score(rows(*((t, x, y, 0.01 * grey + 3) for t, x, y, grey in TRUTH))).outcome == pytest.approx(1.0)


def test_frames_from_one_are_named(score: Scorer, truth: Path) -> None:
    many = [(t, 10.0 + 2.7 * t, 20.0, 50.0 + t) for t in range(25)]
    (truth / NAME).write_text(rows(*many, separator=" ", header="frame x y intensity"))
    result = score(rows(*((t + 1, x, y, grey) for t, x, y, grey in many)))
    assert result.outcome == 0.0
    assert "frame_shift" in codes(result)


def test_columns_are_found_by_name(score: Scorer) -> None:
    text = rows(*((k, x, y, t, grey) for k, (t, x, y, grey) in enumerate(TRUTH)), header="\tX\tY [px]\tFrame\tPhotons")
    assert score(text).outcome == 1.0


def test_pairs_are_optimal_not_greedy(score: Scorer, truth: Path) -> None:
    (truth / NAME).write_text("frame x y intensity\n0 20 20 1\n0 20.9 20 2\n")
    result = score(rows((0, 20.5, 20.0, 1), (0, 20.6, 20.0, 2)))  # both nearest to 20.9
    assert result.metrics["true_positives"] == 2


def test_errors_of_nothing_are_unknown_not_zero(score: Scorer) -> None:
    result = score(rows((0, 90.0, 90.0, 1.0)))
    assert result.metrics["rmse_x_px"] is None
    assert result.metrics["mean_distance_px"] is None


def test_the_border_does_not_count(score: Scorer) -> None:
    border = [(0, 2.0, 50.0, 9.0), (1, 50.0, 97.5, 9.0)]
    assert score(rows(*TRUTH, *border)).outcome == 1.0
    beyond = score(rows(*TRUTH, (0, -3.0, 50.0, 9.0), (0, 50.0, 150.0, 9.0)))
    assert beyond.outcome == pytest.approx(0.7 * 8 / 10 + 0.3)
    assert "outside_image" in codes(beyond)


def test_a_stray_text_file_is_not_the_list(score: Scorer) -> None:
    result = score({"README.txt": rows(*TRUTH)})
    assert (result.outcome, result.delivered) == (0.0, False)
    assert "missing_deliverable" in codes(result)


def test_of_several_lists_the_plain_name_wins_and_equals_are_ambiguous(score: Scorer) -> None:
    wrong = rows((0, 50.0, 50.0, 1.0))
    result = score({f"draft_{NAME}".replace("List", "List_old"): wrong, NAME: rows(*TRUTH)})
    assert result.outcome == 1.0
    assert "duplicate_file" in codes(result)
    result = score({NAME: rows(*TRUTH), NAME.replace("txt", "csv"): wrong})
    assert result.outcome == 0.0
    assert "ambiguous_files" in codes(result)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty_file"),
        ("no table at all\njust words\n", "missing_columns"),
        ("frame,x [nm],y [nm],intensity [photon]\n0,2025,3050,100\n", "wrong_unit"),
        ("0 1 20.25 30.5 100\n", "ambiguous_columns"),
        ("\0\0\0\0", "not_text"),
        ("frame\tx\tx\ty\n0\t1\t2\t3\n", "duplicate_columns"),
        ("frame x y intensity\na b c d\n", "not_a_table"),
    ],
)
def test_what_cannot_be_read_is_named(score: Scorer, text: str, code: str) -> None:
    result = score(text)
    assert result.outcome == result.strict == 0.0
    assert code in codes(result)


def test_a_header_alone_finds_nothing(score: Scorer) -> None:
    result = score("frame\tx\ty\tintensity\n")
    assert result.outcome == 0.0
    assert result.metrics["precision"] == 0.0


def test_a_million_invented_rows_end_in_a_score(score: Scorer) -> None:
    assert "too_large" in codes(score("frame\tx\ty\tintensity\n" + "0\t1\t1\t1\n" * 500_001))


@pytest.mark.parametrize("text", ["", "frame x y intensity\n0 nan 1 2\n", "frame x y intensity\n0 5 5 nan\n"])
def test_unreadable_truth_is_our_fault(score: Scorer, truth: Path, text: str) -> None:
    (truth / NAME).write_text(text)
    with pytest.raises(TruthError, match=NAME):
        score(rows(*TRUTH))


def test_parameters_are_checked() -> None:
    for wrong in ({"jaccard_weight": 0.9}, {"border_px": 4.0}, {"distance_px": 0}, {"other": 1}):
        with pytest.raises(ValueError, match=r"molecule_localization|weight|image_px|distance_px|other"):
            check_parameters(OutcomeSpec(kind="molecule_localization", parameters=wrong), [DELIVERABLE])


def test_same_score_for_any_order(score: Scorer) -> None:
    rng = np.random.default_rng(0)
    noisy = [(t, x + rng.normal(0, 0.5), y, grey) for t, x, y, grey in TRUTH]
    first: Any = score(rows(*noisy))
    assert score(rows(*noisy[::-1])).model_dump(exclude={"items"}) == first.model_dump(exclude={"items"})


def test_two_molecules_at_one_place_are_told_apart_by_brightness(score: Scorer, truth: Path) -> None:
    pair = [(0, 20.0, 20.0, 50.0), (0, 20.0, 20.0, 900.0), (1, 40.0, 40.0, 300.0)]
    (truth / NAME).write_text(rows(*pair, separator=" ", header="frame x y intensity"))
    assert score(rows(*pair)).outcome == score(rows(*pair[::-1])).outcome == 1.0
