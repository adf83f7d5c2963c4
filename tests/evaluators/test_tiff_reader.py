"""TIFF files: what usual programs write is read alike, what is broken or hostile is refused before it costs much."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray

from evaluators.problems import Refusal
from evaluators.readers import tiff
from evaluators.readers.sequence import FileFrames, StackFrames
from evaluators.readers.tiff import TiffImage, as_labels, check_shape

STACK = (np.arange(5 * 24 * 16, dtype=np.uint16) % 300).reshape(5, 24, 16)
PLANE = STACK[0]


def encoded(image: NDArray[np.generic], **options: object) -> bytes:
    target = io.BytesIO()
    tifffile.imwrite(target, image, **options)
    return target.getvalue()


def read(data: bytes) -> NDArray[np.generic]:
    with TiffImage(io.BytesIO(data)) as image:
        whole = image.whole()
        assert image.header.shape == whole.shape
        return whole


def refusal(data: bytes) -> str:
    with pytest.raises(Refusal) as caught:
        read(data)
    return caught.value.code


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"imagej": True},
        {"ome": True},
        {"bigtiff": True},
        {"byteorder": ">"},
        {"compression": "lzw"},
        {"compression": "zlib"},
        {"compression": "zlib", "predictor": True},
        {"compression": "zstd"},
        {"compression": "packbits"},
        {"compression": "lzma"},
        {"tile": (16, 16)},
        {"rowsperstrip": 5, "compression": "zlib"},
        {"truncate": True},
        {"truncate": True, "byteorder": ">"},
        {"volumetric": True},
    ],
    ids=str,
)
def test_every_usual_way_of_writing_a_stack_reads_alike(options: dict[str, object]) -> None:
    np.testing.assert_array_equal(read(encoded(STACK, **options)), STACK)


def test_one_page_per_series_is_one_stack() -> None:
    target = io.BytesIO()
    with tifffile.TiffWriter(target) as writer:
        for plane in STACK:
            writer.write(plane)
    with tifffile.TiffFile(io.BytesIO(target.getvalue())) as file:
        assert len(file.series) == 5
    np.testing.assert_array_equal(read(target.getvalue()), STACK)


def test_a_large_imagej_stack_has_one_directory_for_all_planes() -> None:
    data = encoded(STACK, imagej=True)
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        second = file.pages[0].offset + 2 + 12 * len(file.pages[0].tags)
        assert file.pages[0].is_contiguous
    cut = bytearray(data)
    struct.pack_into(">I" if data[:2] == b"MM" else "<I", cut, second, 0)  # ImageJ writes no further directory
    np.testing.assert_array_equal(read(bytes(cut)), STACK)
    short = bytes(cut).replace(b"images=5", b"images=9")
    assert refusal(short) == "truncated"


@pytest.mark.parametrize("shape", [(1, 24, 16), (24, 16, 1), (1, 1, 24, 16), (24, 16)])
def test_axes_of_length_one_are_dropped(shape: tuple[int, ...]) -> None:
    np.testing.assert_array_equal(read(encoded(PLANE.reshape(shape))), PLANE)


def test_ome_metadata_cannot_name_another_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.ome.tif"
    tifffile.imwrite(secret, np.full((24, 16), 7, np.uint16), ome=True)
    description = (
        '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image ID="Image:0"><Pixels ID="Pixels:0" '
        'DimensionOrder="XYCZT" Type="uint16" SizeX="16" SizeY="24" SizeC="1" SizeZ="1" SizeT="2">'
        '<TiffData IFD="0" FirstT="0" PlaneCount="1"/><TiffData IFD="0" FirstT="1" PlaneCount="1">'
        f'<UUID FileName="{secret.name}">urn:uuid:1</UUID></TiffData></Pixels></Image></OME>'
    )
    path = tmp_path / "mask.ome.tif"
    tifffile.imwrite(path, PLANE, description=description, metadata=None)
    with TiffImage(path.open("rb")) as image:
        assert image.header.shape == (24, 16)
        np.testing.assert_array_equal(image.whole(), PLANE)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "unreadable"),
        (b"\x80\x04\x95pickled" * 30, "unreadable"),
        (b"\x93NUMPY\x01\x00", "unreadable"),
        (b"II*\0", "unreadable"),
        (b"II*\0\xff\xff\xff\x7f" + b"\0" * 30, "truncated"),
        (b"II*\0\0\0\0\0", "unreadable"),
        (encoded(np.zeros((8, 9, 3), np.uint8), photometric="rgb"), "colour"),
        (encoded(np.zeros((3, 8, 9), np.uint8), photometric="rgb", planarconfig="separate"), "colour"),
        (encoded(np.zeros((8, 9), np.complex64)), "wrong_dtype"),
        (encoded(np.zeros((16, 16), np.uint8), compression="jpeg"), "unsupported_compression"),
        (encoded(STACK)[:-900], "truncated"),
        (encoded(STACK, compression="zlib", metadata=None)[:-40], "truncated"),
    ],
    ids="empty pickle npy header beyond nothing rgb rgb_planes complex jpeg cut cut_list".split(),  # noqa: SIM905
)
def test_what_is_no_label_image_is_refused(data: bytes, code: str) -> None:
    assert refusal(data) == code


def test_a_corrupt_strip_is_refused() -> None:
    data = bytearray(encoded(np.random.default_rng(0).integers(0, 99, (24, 16)).astype(np.uint16), compression="zlib"))
    with tifffile.TiffFile(io.BytesIO(bytes(data))) as file:
        start = file.pages[0].dataoffsets[0]
    data[start : start + 40] = b"\xff" * 40
    assert refusal(bytes(data)) == "unreadable"


def test_pages_in_a_circle_are_refused() -> None:
    data = bytearray(encoded(STACK, metadata=None))
    with tifffile.TiffFile(io.BytesIO(bytes(data))) as file:
        pages = [page.offset for page in file.pages]
        tags = len(file.pages[-1].tags)
    struct.pack_into("<I", data, pages[-1] + 2 + 12 * tags, pages[0])
    assert refusal(bytes(data)) == "unreadable"


def bomb(rows: int, columns: int, strip: bytes) -> bytes:
    """Return a TIFF that declares an image and holds one deflated strip."""
    tags = [
        (256, columns),
        (257, rows),
        (258, 8),
        (259, 8),
        (262, 1),
        (273, 134),
        (277, 1),
        (278, rows),
        (279, len(strip)),
    ]
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return (struct.pack("<2sHI", b"II", 42, 8) + directory + struct.pack("<I", 0)).ljust(134, b"\0") + strip


def test_a_declared_image_of_a_million_by_a_million_is_refused_from_the_header() -> None:
    assert refusal(bomb(10**6, 10**6, b"x")) == "too_large"


def test_a_strip_that_inflates_beyond_its_plane_is_refused() -> None:
    inflating = zlib.compress(bytes(64 << 20))
    assert refusal(bomb(24, 16, inflating)) == "unreadable"
    np.testing.assert_array_equal(read(bomb(24, 16, zlib.compress(bytes(24 * 16)))), np.zeros((24, 16)))


def test_tiles_far_larger_than_their_plane_are_refused() -> None:
    data = bytearray(encoded(PLANE, tile=(16, 16), metadata=None))
    with tifffile.TiffFile(io.BytesIO(bytes(data))) as file:
        for code in (322, 323):
            struct.pack_into("<H", data, file.pages[0].tags[code].valueoffset, 65520)
    assert refusal(bytes(data)) == "too_large"


def test_too_many_pages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiff, "MAX_PLANES", 3)
    assert refusal(encoded(STACK, metadata=None)) == "too_large"


def test_a_plane_of_another_size_is_refused_when_it_is_read() -> None:
    target = io.BytesIO()
    with tifffile.TiffWriter(target) as writer:
        writer.write(PLANE)
        writer.write(PLANE[:5])
    image = TiffImage(io.BytesIO(target.getvalue()))
    np.testing.assert_array_equal(image.plane(0), PLANE)
    with pytest.raises(Refusal, match="wrong_shape"):
        image.plane(1)


@pytest.mark.parametrize(
    ("values", "code"),
    [
        (np.array([[0.0, 0.5]]), "non_integer"),
        (np.array([[0.0, np.nan]]), "non_finite"),
        (np.array([[0.0, np.inf]], np.float32), "non_finite"),
        (np.array([[0, -1]], np.int16), "negative_labels"),
        (np.array([[0.0, -2.0]]), "negative_labels"),
        (np.array([[0, 2**63]], np.uint64), "label_too_large"),
        (np.array([[0, 2**25]], np.float32), "label_too_large"),
    ],
)
def test_values_that_are_no_labels_are_refused(values: NDArray[np.generic], code: str) -> None:
    with pytest.raises(Refusal) as caught:
        as_labels(values)
    assert caught.value.code == code


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int32, np.uint32, np.int64, np.float32, np.float64])
def test_whole_numbers_of_any_type_are_labels(dtype: type) -> None:
    labels = as_labels(np.array([[0, 1]]).astype(dtype))
    assert labels.dtype.kind in "ui"
    assert labels.tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("found", "words"),
    [((16, 24), "transposed"), ((48, 32), "rescaled"), ((3, 24, 16), "3 planes"), ((24, 17), "expected (24, 16)")],
)
def test_a_wrong_shape_is_explained(found: tuple[int, ...], words: str) -> None:
    with pytest.raises(Refusal) as caught:
        check_shape(found, (24, 16))
    assert words in caught.value.message
    check_shape((24, 16), (1, 24, 16))


def test_a_stack_and_single_files_are_the_same_frames(tmp_path: Path) -> None:
    for frame, plane in enumerate(STACK):
        tifffile.imwrite(tmp_path / f"{frame}.tif", plane)

    def opener(frame: int) -> Callable[[], io.BufferedReader]:
        return lambda: (tmp_path / f"{frame}.tif").open("rb")

    files = FileFrames({frame: opener(frame) for frame in reversed(range(5))}, (24, 16))
    for options in ({}, {"volumetric": True}):
        stack = StackFrames(TiffImage(io.BytesIO(encoded(STACK, **options))))
        assert stack.frames == files.frames == (0, 1, 2, 3, 4)
        for frame in stack.frames:
            np.testing.assert_array_equal(stack.read(frame), files.read(frame))
    wrong = FileFrames({0: opener(0)}, (16, 24))
    with pytest.raises(Refusal, match="transposed"):
        wrong.read(0)
