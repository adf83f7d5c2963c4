"""Which file is which image. Every case of the published matchers that went wrong is here with what is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from evaluators import Content, Deliverable
from evaluators.pairing import NameMatcher, Pairing, pair_files, tokens
from evaluators.problems import Refusal
from evaluators.submission import Submission, SubmittedFile

Write = Callable[..., Path]

HELA = [str(number) for number in range(2408, 2420)]
NUMBERS = [str(number) for number in range(21)]
TISSUES = [f"human_{organ}_{number:02d}" for organ in ("kidney", "pancreas") for number in range(1, 6)]


@pytest.mark.parametrize(
    ("stem", "items", "words", "image"),
    [
        ("2408", HELA, "nuclei_masks", "2408"),
        ("2408_nuclei", HELA, "nuclei_masks", "2408"),
        ("nuclei_2408", HELA, "nuclei_masks", "2408"),
        ("Nuclei-Mask-02408", HELA, "nuclei_masks", "2408"),
        ("20260827_2408_nuclei", HELA, "nuclei_masks", "2408"),
        ("x12408", HELA, "nuclei_masks", None),
        ("2408_2409_nuclei", HELA, "nuclei_masks", None),
        ("cells11", NUMBERS, "centroids", "11"),
        ("img-11", NUMBERS, "centroids", "11"),
        ("agent_run_11", NUMBERS, "centroids", "11"),
        ("11_centroids", NUMBERS, "centroids", "11"),
        ("centroids_011", NUMBERS, "centroids", "11"),
        ("detections_2026", NUMBERS, "centroids", None),
        ("run_2_image_11", NUMBERS, "centroids", None),
        ("all_cells", NUMBERS, "centroids", None),
        ("00", NUMBERS, "centroids", "0"),
        ("human_kidney_01", TISSUES, "segmentation_masks", "human_kidney_01"),
        ("human_kidney_01_mask", TISSUES, "segmentation_masks", "human_kidney_01"),
        ("human_kidney_01_instances", TISSUES, "segmentation_masks", "human_kidney_01"),
        ("human_kidney_01_label_mask", TISSUES, "segmentation_masks", "human_kidney_01"),
        ("Human_Kidney_01", TISSUES, "segmentation_masks", "human_kidney_01"),
        ("human-kidney-01", TISSUES, "segmentation_masks", "human_kidney_01"),
        ("human_kidney_1", TISSUES, "segmentation_masks", "human_kidney_01"),
        ("kidney_01", TISSUES, "segmentation_masks", None),
        ("mouse_kidney_01", TISSUES, "segmentation_masks", None),
        ("x_kidney_01", TISSUES, "segmentation_masks", None),
        ("biomni_human_kidney_01", TISSUES, "segmentation_masks", None),
        ("prob", TISSUES, "segmentation_masks", None),
    ],
)
def test_names(stem: str, items: Sequence[str], words: str, image: str | None) -> None:
    match = NameMatcher(items, [words]).match(stem)
    assert (match and match[0]) == image
    assert NameMatcher(list(reversed(items)), [words]).match(stem) == match  # whatever order folders are listed in


def test_images_that_normalise_alike_are_found_by_exact_name_only() -> None:
    matcher = NameMatcher(["cell_1", "cell-1", "cell_2"])
    assert matcher.match("cell_1") == ("cell_1", 0)
    assert matcher.match("cell_01") is None
    assert matcher.match("cell_02") == ("cell_2", 1)


def test_tokens_take_names_of_any_script() -> None:
    assert tokens("Überlauf 007_Ж") == ("überlauf", "7", "ж")
    assert tokens("") == ()


TABLES = Deliverable(
    id="centroids_per_image",
    patterns=("*.csv",),
    format="table",
    content=Content.TABLE,
    multiple=True,
    description="points of cells",
)


def anything(file: SubmittedFile, item: str) -> None:
    pass


def unless_bad(file: SubmittedFile, item: str) -> None:
    with file.open() as handle:
        if handle.read() == b"bad":
            raise Refusal("colour", "is a colour image")


@pytest.fixture
def pair(tmp_path: Path, write: Write) -> Callable[..., tuple[Pairing, dict[str, str]]]:
    """Write files, pair them with images 3 and 6, return the pairing and the problems by code."""

    def run(
        files: dict[str, str], check: Callable[[SubmittedFile, str], None] = anything
    ) -> tuple[Pairing, dict[str, str]]:
        for name, content in files.items():
            write(tmp_path / name, content)
        found = Submission(tmp_path, [TABLES])
        pairing = pair_files(found, TABLES, ["3", "6"], check)
        return pairing, {problem.code: problem.message for problem in found.problems.list()}

    return run


def test_two_drafts_of_one_image_are_ambiguous(pair: Callable[..., tuple[Pairing, dict[str, str]]]) -> None:
    pairing, problems = pair({"draft/3.csv": "a", "final/3.csv": "b", "6.csv": "c"})
    assert set(pairing.files) == {"6"}
    assert pairing.reasons == {"3": "ambiguous_files"}
    assert "draft/3.csv" in problems["ambiguous_files"]
    assert "final/3.csv" in problems["ambiguous_files"]


def test_identical_copies_are_not_ambiguous(pair: Callable[..., tuple[Pairing, dict[str, str]]]) -> None:
    pairing, problems = pair({"draft/3.csv": "a", "final/3.csv": "a", "6.csv": "c"})
    assert pairing.files["3"].path == "draft/3.csv"
    assert set(problems) == {"duplicate_file"}


@pytest.mark.parametrize(
    ("wins", "loses"),
    [
        ("3.csv", "x/3.csv"),
        ("centroids_per_image/3.csv", "3.csv"),
        ("deep/er/3.csv", "3_points.csv"),
        ("3_points.csv", "run_3.csv"),
        ("3.csv", "03.csv"),
    ],
)
def test_better_names_and_places_win(
    wins: str, loses: str, pair: Callable[..., tuple[Pairing, dict[str, str]]]
) -> None:
    pairing, problems = pair({wins: "a", loses: "b", "6.csv": "c"})
    assert pairing.files["3"].path == wins
    assert loses in problems["duplicate_file"]


def test_strays_steal_nothing(pair: Callable[..., tuple[Pairing, dict[str, str]]]) -> None:
    pairing, problems = pair({"aggregate/detections_2026.csv": "a", "all_cells.csv": "b", "3.csv": "c", "6.csv": "d"})
    assert {item: file.path for item, file in pairing.files.items()} == {"3": "3.csv", "6": "6.csv"}
    assert pairing.unpaired == 2
    assert not problems


def test_a_file_that_cannot_be_meant_does_not_take_part(
    pair: Callable[..., tuple[Pairing, dict[str, str]]],
) -> None:
    pairing, problems = pair({"3.csv": "bad", "masks/3.csv": "good", "6.csv": "bad"}, unless_bad)
    assert pairing.files["3"].path == "masks/3.csv"
    assert pairing.reasons == {"6": "colour"}
    assert "cannot be meant" in problems["duplicate_file"]


def test_never_by_position(pair: Callable[..., tuple[Pairing, dict[str, str]]]) -> None:
    pairing, problems = pair({"a.csv": "x", "b.csv": "y"})
    assert not pairing.files
    assert pairing.reasons == {"3": "missing_file", "6": "missing_file"}
    assert "a.csv" in problems["missing_file"]


def test_no_file_at_all(pair: Callable[..., tuple[Pairing, dict[str, str]]]) -> None:
    pairing, problems = pair({"report.md": "done"})
    assert pairing.reasons == {"3": "missing_deliverable", "6": "missing_deliverable"}
    assert "report.md" in problems["missing_deliverable"]
