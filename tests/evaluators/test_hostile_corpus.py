"""Broken and malicious files, each in place of one good file: a score, a named problem, never a traceback, soon."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from evaluators import Limits, OutcomeScore, bounded, evaluate_bounded, warm_up

Desk = Any
Write = Callable[..., Any]
LIMITS = Limits(seconds=300.0)  # a backstop: most submissions take a tenth of a second


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    warm_up()
    yield
    if bounded._current is not None:
        bounded._current.close()
        bounded._current = None


def scored(desk: Desk) -> OutcomeScore:
    score = evaluate_bounded(desk.outcome, desk.deliverables, desk.output, desk.truth, desk.input, LIMITS)
    assert not {problem.code for problem in score.problems} & {"evaluator_failed", "over_memory", "over_time"}
    score.model_dump_json()
    for problem in score.problems:
        assert "Traceback" not in problem.message
        assert problem.where.isprintable()
    return score


def tiff(image: np.ndarray[Any, Any], **options: Any) -> bytes:
    target = io.BytesIO()
    tifffile.imwrite(target, image, **options)
    return target.getvalue()


def declared(rows: int, columns: int, data: bytes, *, compression: int = 8, bits: int = 16) -> bytes:
    """Return a TIFF that declares an image and holds whatever data in one strip."""
    tags = [(256, columns), (257, rows), (258, bits), (259, compression), (262, 1), (273, 134), (277, 1)]
    tags += [(278, rows), (279, len(data))]
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return (struct.pack("<2sHI", b"II", 42, 8) + directory + struct.pack("<I", 0)).ljust(134, b"\0") + data


def zip_bomb() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(50 << 20))
    return target.getvalue()


class Exploding:
    """An object whose unpickling would leave a trace."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (f"/tmp/unpickled-{os.getpid()}",)


def pickled_array() -> bytes:
    target = io.BytesIO()
    np.save(target, np.array([Exploding()], dtype=object), allow_pickle=True)
    return target.getvalue()


GOOD = np.arange(64 * 48, dtype=np.uint16).reshape(64, 48) % 5
RNG = np.random.default_rng(0)

IMAGES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "unreadable"),
    "text": (b"not an image\n", "unreadable"),
    "pickle": (pickle.dumps(Exploding()), "unreadable"),
    "pickled_npy": (pickled_array(), "unreadable"),
    "zip_bomb": (zip_bomb(), "unreadable"),
    "cut_in_the_header": (tiff(GOOD)[:60], "truncated"),
    "cut_in_the_pixels": (tiff(GOOD)[:-100], "truncated"),
    "cut_compressed": (tiff(RNG.integers(0, 99, (64, 48)).astype(np.uint16), compression="zlib")[:-100], "truncated"),
    "million_squared": (declared(10**6, 10**6, b"x"), "too_large"),
    "many_rows": (declared(2**31, 1, b"x"), "too_large"),
    "inflating_strip": (declared(64, 48, zlib.compress(bytes(200 << 20))), "unreadable"),
    "strip_of_garbage": (declared(64, 48, os.urandom(500)), "unreadable"),
    "short_strip": (declared(64, 48, zlib.compress(bytes(100))), "unreadable"),
    "uncompressed_lie": (declared(64, 48, bytes(10), compression=1), "unreadable"),
    "odd_bits": (declared(64, 48, zlib.compress(bytes(64 * 48 * 20)), bits=160), "wrong_dtype"),
    "no_rows": (declared(0, 48, b"x"), "unreadable"),
    "rgb": (tiff(np.zeros((64, 48, 3), np.uint8), photometric="rgb"), "colour"),
    "rgba": (tiff(np.zeros((64, 48, 4), np.uint8), photometric="rgb"), "colour"),
    "planes": (tiff(np.zeros((3, 64, 48), np.uint16), photometric="minisblack"), "wrong_shape"),
    "complex": (tiff(np.zeros((64, 48), np.complex128)), "wrong_dtype"),
    "nan": (tiff(np.full((64, 48), np.nan, np.float32)), "non_finite"),
    "infinite": (tiff(np.full((64, 48), np.inf)), "non_finite"),
    "probabilities": (tiff(RNG.random((64, 48)).astype(np.float32)), "non_integer"),
    "negative": (tiff(-GOOD.astype(np.int32)), "negative_labels"),
    "wrapping": (tiff(np.full((64, 48), 2**64 - 1, np.uint64)), "label_too_large"),
    "transposed": (tiff(GOOD.T), "wrong_shape"),
    "jpeg": (tiff(GOOD.astype(np.uint8), compression="jpeg"), "unsupported_compression"),
}


@pytest.mark.parametrize("name", IMAGES)
def test_label_images(name: str, histology: Desk) -> None:
    content, code = IMAGES[name]
    histology.replay()
    histology.write("human_kidney_01.tif", content)
    score = scored(histology)
    assert score.outcome == score.strict == 0.75
    assert [problem.code for problem in score.problems] == [code], score.problems
    assert "human_kidney_01" in score.problems[0].where
    assert not Path(f"/tmp/unpickled-{os.getpid()}").exists()


@pytest.mark.parametrize("name", [name for name in IMAGES if name not in ("planes", "text")])
def test_frames_of_a_challenge_folder(name: str, tracking: Desk) -> None:
    """The same files as one frame: that frame counts as empty."""
    content, _ = IMAGES[name]
    for frame, image in enumerate(tracking.stack):
        tracking.write(f"mask{frame:03d}.tif", image)
    tracking.write("res_track.txt", "".join(" ".join(map(str, row)) + "\n" for row in tracking.tracks))
    tracking.write("mask003.tif", content)
    score = scored(tracking)
    assert score.metrics["seg"] == pytest.approx(20 / 22)
    assert any("frame 3" in problem.where for problem in score.problems)


@pytest.mark.parametrize("name", IMAGES)
def test_stacks(name: str, tracking: Desk) -> None:
    tracking.submit(tracking.stack)
    tracking.write("00_RES.ome.tif", IMAGES[name][0])
    score = scored(tracking)
    assert score.outcome == 0.0
    assert "00_RES.ome.tif" in score.problems[0].where


def test_a_million_labels(histology: Desk, write: Write) -> None:
    large = (1024, 1024)
    for path in histology.truth.glob("*.tif"):
        write(path, np.pad(tifffile.imread(path), ((0, 960), (0, 976))))
    histology.replay()
    noise = RNG.permutation(large[0] * large[1]).astype(np.uint32).reshape(large)
    for stem in ("human_kidney_01", "human_pancreas_01"):
        histology.write(f"{stem}.tif", noise)
    score = scored(histology)
    assert score.outcome == 0.5
    assert [problem.code for problem in score.problems] == ["too_many_objects"] * 2


TABLES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty_file"),
    "blank": (b" \n\n", "empty_file"),
    "binary": (bytes(range(256)), "not_text"),
    "nul": (b"X,Y\n1\x00,2\n", "not_text"),
    "latin": ("X,Y\n1,2\nµ,3\n".encode("latin-1"), "not_text"),
    "pickle": (pickle.dumps(Exploding()), "not_text"),
    "xlsx": (zip_bomb(), "not_text"),
    "no_header": (b"12,40\n13,50\n", "missing_columns"),
    "other_columns": (b"row,col\n1,2\n", "missing_columns"),
    "repeated": (b"X,Y,X\n1,2,3\n", "duplicate_columns"),
    "unit": (b"X,Y\n12.3 px,40\n", "not_numeric"),
    "formula": (b"X,Y\n=cmd|' /C calc'!A0,40\n", "not_numeric"),
    "huge_number": (b"X,Y\n" + b"9" * 5000 + b",1\n", "invalid_row"),
    "huge_field": (b'X,Y\n"' + b"a" * 300_000 + b'",1\n', "not_a_table"),
    "open_quote": (b'X,Y\n"1,2\n' + b"1,2\n" * 60_000, "not_a_table"),
    "wide_row": (b"X,Y\n" + b"1," * 10**7 + b"\n", "too_large"),
    "wide_header": (b"X,Y" + b",a" * 10**6 + b"\n1,2\n", "not_text"),
    "long": (b"X,Y\n" + b"1,2\n" * 300_000, "too_large"),
    "larger_than_read": (b"X,Y\n" + b"1,2\n" * (17 << 20), "too_large"),
    "nan": (b"X,Y\nnan,5\n", "invalid_row"),
    "infinite": (b"X,Y\n1,inf\n", "invalid_row"),
    "outside": (b"X,Y\n1e300,-1e300\n", "outside_image"),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables(name: str, counting: Desk) -> None:
    content, code = TABLES[name]
    counting.replay()
    counting.write("2.csv", content)
    score = scored(counting)
    assert code in {problem.code for problem in score.problems}, score.problems
    assert any("2" in problem.where for problem in score.problems)
    assert score.outcome < 1.0
    assert score.strict is not None
    assert score.strict < 1.0
    assert score.metrics["images"] == 7


LINEAGES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty_file"),
    "words": (b"All cells were tracked.\n" * 50, "not_a_lineage"),
    "nul": (b"1 0 4 0\n\x00", "not_text"),
    "binary": (os.urandom(4000) + b"\xff", "not_text"),
    "infinite": (b"inf 0 1 0\n1e400 0 1 0\n", "not_a_lineage"),
    "huge": (b"9" * 10**4 + b" 0 1 0\n1 0 4 0\n", "invalid_row"),
    "negative": (b"-1 -5 -2 -3\n", "invalid_row"),
    "far_frames": (b"1 0 2147483647 0\n2 5 9 1\n", "row_outside"),
    "cycle": (b"1 0 4 2\n2 5 9 1\n3 5 9 3\n4 0 6 4\n", "unknown_parent"),
    "repeated": (b"1 0 4 0\n1 0 5 0\n2 5 9 1\n", "repeated_id"),
    "many_rows": (b"".join(b"%d 0 9 0\n" % number for number in range(1, 300_001)), "row_without_object"),
    "endless_line": (b"1 " * 10**6, "not_text"),
    "long": (b"1 0 4 0\n" * (9 << 20), "too_large"),
}


@pytest.mark.parametrize("name", LINEAGES)
def test_lineages(name: str, tracking: Desk) -> None:
    content, code = LINEAGES[name]
    tracking.submit(tracking.stack)
    tracking.write("res_track.txt", content)
    score = scored(tracking)
    assert code in {problem.code for problem in score.problems}, score.problems
    assert score.metrics["seg"] == 1.0
    assert 0.5 <= score.outcome < 1.0


def hostile_entries(folder: Path, name: bytes, secret: Path) -> None:
    """Put links, pipes and folders where a file is expected."""

    def entry(name: bytes) -> Path:
        return folder / os.fsdecode(name)

    entry(name).symlink_to(secret)
    os.mkfifo(entry(b"fifo_" + name))
    entry(b"folder_" + name).mkdir()
    entry(b"loop").symlink_to(folder)
    entry(b"root").symlink_to("/proc/self/root")
    for odd in (b"new\nline_" + name, b"\xff\xfe_" + name, b"." + name, b"-rf_" + name, b"a" * 240 + b"_" + name[-8:]):
        entry(odd).write_bytes(b"x")


@pytest.mark.parametrize("task", ["histology", "counting", "tracking", "hela"])
def test_entries_that_are_no_files(task: str, request: pytest.FixtureRequest) -> None:
    desk = request.getfixturevalue(task)
    name, secret = {
        "histology": (b"human_kidney_01.tif", "human_kidney_01.tif"),
        "counting": (b"2.csv", "2.csv"),
        "tracking": (b"00_RES.ome.tif", "00_GT.ome.tif"),
        "hela": (b"2408_nuclei.tif", "nuclei_masks/2408.tif"),
    }[task]
    hostile_entries(desk.output, name, desk.truth / secret)
    score = scored(desk)
    assert score.outcome == 0.0
    assert not score.delivered
    assert {"link", "special_file", "folder_not_file"} <= {problem.code for problem in score.problems}


def test_a_crowd_of_files(counting: Desk) -> None:
    counting.replay()
    (counting.output / "crowd").mkdir()
    for number in range(3000):
        (counting.output / "crowd" / f"{number}.csv").write_bytes(b"X,Y\n")
    score = scored(counting)
    assert score.outcome == 1.0
    assert {problem.code for problem in score.problems} == {"duplicate_file"}


def test_hundreds_of_drafts_of_one_image(counting: Desk) -> None:
    counting.replay()
    (counting.output / "3.csv").unlink()
    for number in range(300):
        counting.write(f"draft{number}/3.csv", f"X,Y\n{number},1\n")
    score = scored(counting)
    assert score.outcome == pytest.approx(6 / 7, abs=1e-6)
    assert [problem.code for problem in score.problems] == ["ambiguous_files"]
