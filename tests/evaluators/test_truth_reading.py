"""Reference data: which images exist, and that whatever is wrong stops with an error that names the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluators import TruthError
from evaluators.truth import Truth

Write = Callable[..., Path]


@pytest.fixture
def folders(tmp_path: Path, write: Write) -> tuple[Path, Path]:
    for stem in ("1", "2"):
        write(tmp_path / "input" / f"{stem}.tif", np.zeros((5, 7, 3), np.uint8), photometric="rgb")
        write(tmp_path / "evaluation" / f"{stem}.tif", np.ones((5, 7), np.uint8), compression="lzw")
    return tmp_path / "evaluation", tmp_path / "input"


def test_strays_in_the_folder_are_no_images(folders: tuple[Path, Path], write: Write) -> None:
    evaluation, input_dir = folders
    write(evaluation / "._1.tif", b"resource fork")
    write(evaluation / "overlay.png", b"x")
    write(evaluation / "overlay.tif", np.zeros((3, 3), np.uint8))
    write(input_dir / "notes.txt", "x")
    assert list(Truth(evaluation, input_dir).manifest()) == ["1", "2"]


def test_a_partial_truth_is_an_error(folders: tuple[Path, Path]) -> None:
    evaluation, input_dir = folders
    (evaluation / "2.tif").unlink()
    with pytest.raises(TruthError, match="no reference for input image 2"):
        Truth(evaluation, input_dir).manifest()
    assert list(Truth(evaluation).manifest()) == ["1"]


def test_two_references_of_one_image_are_an_error(folders: tuple[Path, Path], write: Write) -> None:
    write(folders[0] / "2.tiff", np.zeros((5, 7), np.uint8))
    with pytest.raises(TruthError, match=r"2\.tiff.*same image"):
        Truth(*folders).manifest()


@pytest.mark.parametrize(
    "break_it",
    [
        lambda evaluation: evaluation.rename(evaluation.with_name("gone")),
        lambda evaluation: [path.unlink() for path in evaluation.iterdir()],
    ],
    ids=["folder", "files"],
)
def test_no_truth_is_an_error(break_it: Callable[[Path], Any], folders: tuple[Path, Path]) -> None:
    break_it(folders[0])
    with pytest.raises(TruthError, match="evaluation"):
        Truth(*folders).manifest()


def test_a_broken_file_is_an_error_that_names_it(folders: tuple[Path, Path], write: Write) -> None:
    path = write(folders[0] / "1.tif", b"II*\0 broken")
    with pytest.raises(TruthError, match=r"1\.tif"):
        Truth(*folders).labels(path)
    table = write(folders[0] / "1.csv", "X,Y\n1,nan\n")
    with pytest.raises(TruthError, match=r"1\.csv: line 2"):
        Truth(*folders).numbers(table, ("X", "Y"))
    lineage = write(folders[0] / "man_track.txt", "1 0 4 0\n2 5 9 1\n3 5 9 1\nx y\n")
    with pytest.raises(TruthError, match=r"man_track\.txt: line 4"):
        Truth(*folders).track_table(lineage)
    with pytest.raises(TruthError, match=r"nothing\.txt"):
        Truth(*folders).track_table(folders[0] / "nothing.txt")


def test_image_sizes_come_from_headers(folders: tuple[Path, Path], write: Write) -> None:
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (7).to_bytes(4, "big") + (5).to_bytes(4, "big")
    write(folders[1] / "3.png", head)
    write(folders[1] / "4.png", b"no image")
    truth = Truth(*folders)
    assert truth.image_shape("1") == truth.image_shape("3") == (5, 7)
    assert truth.image_shape("unknown") is None
    assert Truth(folders[0]).image_shape("1") is None
    with pytest.raises(TruthError, match=r"4\.png"):
        truth.image_shape("4")


def test_links_are_followed_in_truth(folders: tuple[Path, Path]) -> None:
    """Download caches hold links."""
    original = folders[0] / "1.tif"
    original.rename(folders[0].parent / "blob")
    original.symlink_to(folders[0].parent / "blob")
    truth = Truth(*folders)
    assert truth.labels(truth.manifest()["1"]).sum() == 35
