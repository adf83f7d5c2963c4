"""Which files of an output folder count, and that nothing hostile in it is touched."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from evaluators import Content, Deliverable, is_delivered, submission
from evaluators.problems import Problems, Refusal, shown
from evaluators.submission import Submission, stem_of

Write = Callable[..., Path]

NUCLEI = Deliverable(
    id="nuclei_masks",
    patterns=("*nuclei*.tif*",),
    format="label TIFF",
    content=Content.LABEL_IMAGE,
    multiple=True,
    description="labels of nuclei",
)
BODIES = NUCLEI.model_copy(update={"id": "cytoplasm_masks", "patterns": ("*cytoplasm*.tif*",)})
TABLES = Deliverable(
    id="points",
    patterns=("*.csv",),
    format="table",
    content=Content.TABLE,
    multiple=True,
    columns=("X", "Y"),
    description="points of cells",
)


def names(found: Submission, deliverable: Deliverable) -> list[str]:
    return [file.path for file in found.candidates(deliverable.id)]


def problem_codes(found: Submission) -> list[str]:
    return [problem.code for problem in found.problems.list()]


@pytest.mark.parametrize(
    ("path", "belongs_to"),
    [
        ("2408_nuclei.tif", "nuclei_masks"),
        ("NUCLEI_2408.TIFF", "nuclei_masks"),
        ("nuclei_masks/2408.tif", "nuclei_masks"),
        ("nuclei_masks/run/2408.ome.tif", "nuclei_masks"),
        ("nuclei_and_cytoplasm/2408_cytoplasm.tif", "cytoplasm_masks"),
        ("cytoplasm/nuclei/2408.tif", "nuclei_masks"),
        ("nuclei/cytoplasm/2408.tif", "cytoplasm_masks"),
        ("2408.tif", None),
        ("nuclei_2408.tif.bak", None),
        ("nuclei_2408.tif.aux.xml", None),
        ("nuclei_2408.png", None),
        ("._2408_nuclei.tif", None),
        (".hidden/2408_nuclei.tif", None),
        ("__MACOSX/2408_nuclei.tif", None),
        ("supporting/2408_nuclei.tif", None),
    ],
)
def test_the_nearest_name_decides_the_deliverable(
    path: str, belongs_to: str | None, tmp_path: Path, write: Write
) -> None:
    write(tmp_path / path, b"x")
    found = Submission(tmp_path, [NUCLEI, BODIES])
    assert names(found, NUCLEI) == ([path] if belongs_to == "nuclei_masks" else [])
    assert names(found, BODIES) == ([path] if belongs_to == "cytoplasm_masks" else [])


@pytest.mark.parametrize("path", ["nuclei_cytoplasm_2408.tif", "nuclei_cytoplasm/2408.tif"])
def test_a_name_that_fits_two_deliverables_belongs_to_none(path: str, tmp_path: Path, write: Write) -> None:
    write(tmp_path / path, b"x")
    found = Submission(tmp_path, [NUCLEI, BODIES])
    assert not names(found, NUCLEI)
    assert not names(found, BODIES)
    assert problem_codes(found) == ["ambiguous_deliverable"]


def test_a_special_pattern_goes_before_a_general_one(tmp_path: Path, write: Write) -> None:
    summary = TABLES.model_copy(update={"id": "summary", "patterns": ("*summary*.csv",), "multiple": False})
    write(tmp_path / "summary.csv", b"x")
    write(tmp_path / "3.csv", b"x")
    found = Submission(tmp_path, [TABLES, summary])
    assert names(found, TABLES) == ["3.csv"]
    assert names(found, summary) == ["summary.csv"]


def test_links_to_files_and_folders_are_refused(tmp_path: Path, write: Write) -> None:
    truth = write(tmp_path / "truth" / "3.csv", "X,Y\n1,2\n")
    output = tmp_path / "output"
    output.mkdir()
    (output / "3.csv").symlink_to(truth)
    (output / "points").symlink_to(truth.parent)
    found = Submission(output, [TABLES])
    assert not names(found, TABLES)
    assert problem_codes(found) == ["link", "link"]
    assert not is_delivered([TABLES], output)


def test_a_link_put_in_place_after_the_walk_is_not_followed(tmp_path: Path, write: Write) -> None:
    truth = write(tmp_path / "truth" / "3.csv", "X,Y\n1,2\n")
    write(tmp_path / "output" / "a" / "3.csv", "X,Y\n")
    found = Submission(tmp_path / "output", [TABLES])
    (file,) = found.candidates("points")
    (tmp_path / "output" / "a" / "3.csv").unlink()
    (tmp_path / "output" / "a" / "3.csv").symlink_to(truth)
    with pytest.raises(Refusal, match="cannot be opened"):
        file.open()
    (tmp_path / "output" / "a" / "3.csv").unlink()
    (tmp_path / "output" / "a").rmdir()
    (tmp_path / "output" / "a").symlink_to(truth.parent)
    with pytest.raises(Refusal, match="cannot be opened"):
        file.open()


def test_a_pipe_put_in_place_after_the_walk_does_not_block(tmp_path: Path, write: Write) -> None:
    write(tmp_path / "3.csv", "X,Y\n")
    (file,) = Submission(tmp_path, [TABLES]).candidates("points")
    (tmp_path / "3.csv").unlink()
    os.mkfifo(tmp_path / "3.csv")
    with pytest.raises(Refusal, match="regular file"):
        file.open()


def test_pipes_sockets_and_folders_named_like_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    os.mkfifo(tmp_path / "1.csv")
    (tmp_path / "2.csv").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("3.csv")
        found = Submission(tmp_path, [TABLES])
    assert not names(found, TABLES)
    assert sorted(problem_codes(found)) == ["folder_not_file", "special_file", "special_file"]


def test_a_missing_folder_is_a_problem_not_an_error(tmp_path: Path) -> None:
    found = Submission(tmp_path / "nothing", [TABLES])
    assert problem_codes(found) == ["missing_folder"]
    assert not found.delivered


def test_hostile_names_are_shown_escaped_and_short(tmp_path: Path) -> None:
    for name in (b"a\nb.csv", b"\xff\xfe.csv", b"x" * 240 + b".csv"):
        (tmp_path / os.fsdecode(name)).symlink_to("/etc/passwd")
    problems = Submission(tmp_path, [TABLES]).problems.list()
    assert len(problems) == 3
    for problem in problems:
        assert problem.where.isprintable()
        assert len(problem.where) <= 160
        problem.model_dump_json()
    assert "a\\nb.csv" in {problem.where for problem in problems}


def test_shown_takes_any_text() -> None:
    assert shown("plain") == "plain"
    assert shown("\u202egpj.exe") == "\\u202egpj.exe"
    assert shown("\ud800\udcff").isprintable()
    assert len(shown("é" * 10**6)) == 160


def test_a_flood_of_problems_is_counted_not_kept() -> None:
    problems = Problems()
    for number in range(10_000):
        problems.add("link", str(number), "links are not followed")
    listed = problems.list()
    assert len(listed) == 51
    assert listed[-1].message == "9950 more of this kind"


def test_the_walk_is_bounded(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "MAX_FILES", 5)
    monkeypatch.setattr(submission, "MAX_FOLDER_ENTRIES", 8)
    monkeypatch.setattr(submission, "MAX_DEPTH", 3)
    for number in range(7):
        write(tmp_path / "many" / f"{number}.csv", b"x")
    found = Submission(tmp_path / "many", [TABLES])
    assert len(found.files) == 5
    assert problem_codes(found) == ["too_many_files"]
    for number in range(9):
        write(tmp_path / "crowded" / "a" / f"{number}.csv", b"x")
    write(tmp_path / "crowded" / "0.csv", b"x")
    found = Submission(tmp_path / "crowded", [TABLES])
    assert names(found, TABLES) == ["0.csv"]
    assert problem_codes(found) == ["too_many_files"]
    write(tmp_path / "deep/a/b/c/d/e/0.csv", b"x")
    found = Submission(tmp_path / "deep", [TABLES])
    assert not found.files
    assert problem_codes(found) == ["too_deep"]


def test_the_order_does_not_depend_on_the_file_system(tmp_path: Path, write: Write) -> None:
    for name in ("b/2.csv", "10.csv", "9.csv", "a/1.csv"):
        write(tmp_path / name, b"x")
    assert names(Submission(tmp_path, [TABLES]), TABLES) == ["10.csv", "9.csv", "a/1.csv", "b/2.csv"]


def test_delivered_needs_one_conforming_required_file(tmp_path: Path, write: Write) -> None:
    optional = TABLES.model_copy(update={"id": "optional", "patterns": ("*extra*.csv",), "required": False})
    asked = [NUCLEI, optional]
    write(tmp_path / "extra.csv", "X,Y\n")
    assert not is_delivered(asked, tmp_path)
    write(tmp_path / "1_nuclei.tif", b"no image")
    assert not is_delivered(asked, tmp_path)
    write(tmp_path / "2_nuclei.tif", np.zeros((4, 4, 3), np.uint8), photometric="rgb")
    assert not is_delivered(asked, tmp_path)
    write(tmp_path / "3_nuclei.tif", np.zeros((4, 4), np.uint16))
    assert is_delivered(asked, tmp_path)


def test_delivered_is_told_from_headers_alone(tmp_path: Path, write: Write) -> None:
    """Published: the whole stack was loaded to look at it, several gigabytes of it."""
    data = bytearray(write(tmp_path / "1_nuclei.tif", np.ones((64, 64), np.uint16), compression="zlib").read_bytes())
    data[data.index(b"\x78\x9c") :] = b"\xff" * (len(data) - data.index(b"\x78\x9c"))
    write(tmp_path / "1_nuclei.tif", bytes(data))
    assert is_delivered([NUCLEI], tmp_path)


@pytest.mark.parametrize("place", ["raw/input", "evaluation", "supporting", "nuclei"])
def test_where_the_folder_lies_does_not_matter(place: str, tmp_path: Path, write: Write) -> None:
    """Published: folders named raw or input anywhere above the submission changed the score."""
    write(tmp_path / place / "nuclei_masks" / "1.tif", b"x")
    write(tmp_path / place / "1.tif", b"x")
    assert names(Submission(tmp_path / place, [NUCLEI]), NUCLEI) == ["nuclei_masks/1.tif"]


@pytest.mark.parametrize(
    ("name", "stem"),
    [("00_RES.ome.tif", "00_RES"), ("x.OME.TIFF", "x"), ("day1.5.csv", "day1.5"), ("plain", "plain"), ("a.tif", "a")],
)
def test_stem(name: str, stem: str) -> None:
    assert stem_of(name) == stem
