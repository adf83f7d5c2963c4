"""Planes and channels however they were written; what cannot be told apart is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from evaluators.problems import Refusal
from evaluators.readers.channel_stack import ChannelStack
from tasks._lsm import Channel, write_lsm

STACK = np.random.default_rng(0).integers(0, 4000, (3, 4, 20, 24)).astype(np.uint16)
SWAPPED = np.ascontiguousarray(STACK.swapaxes(0, 1))
LAST = np.ascontiguousarray(STACK.transpose(0, 2, 3, 1))
PAGES = STACK.reshape(12, 20, 24)


def lsm(path: Path, array: np.ndarray) -> None:
    channels = [Channel(name, (0, 255, 0), (400.0, 500.0)) for name in "abcd"]
    write_lsm(path, array, channels=channels, voxel_um=(5.0, 0.4, 0.4))


def each_page(path: Path, array: np.ndarray) -> None:
    with tifffile.TiffWriter(path) as file:
        for page in array:
            file.write(page, metadata=None)


def written(array: np.ndarray, **options: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tifffile.imwrite(path, array, **options)

    return write


def opened(path: Path, write: Callable[[Path], None]) -> ChannelStack:
    write(path)
    return ChannelStack(path.open("rb"), planes=3, channels=4)


@pytest.mark.parametrize(
    "write",
    [
        written(STACK, imagej=True, metadata={"axes": "ZCYX"}),
        written(STACK, imagej=True, metadata={"axes": "TCYX"}),  # planes called times
        written(STACK, ome=True, metadata={"axes": "ZCYX"}),
        written(SWAPPED, ome=True, metadata={"axes": "CZYX"}),
        written(STACK, photometric="minisblack"),  # axes without names: 3 and 4 can only be one thing
        written(SWAPPED, photometric="minisblack"),
        written(STACK, photometric="minisblack", compression="lzw"),
        written(STACK.astype(np.float32), photometric="minisblack"),
        written(STACK),  # the writer makes samples of the channels
        written(SWAPPED),  # and here of the planes
        written(LAST, photometric="rgb"),
        lambda path: lsm(path, STACK),  # a microscope's file under another name
    ],
)
def test_the_same_stack_in_many_containers(write: Callable[[Path], None], tmp_path: Path) -> None:
    with opened(tmp_path / "a.tif", write) as stack:
        assert (stack.planes, stack.channels, stack.rows, stack.columns) == (3, 4, 20, 24)
        for z in range(3):
            for channel in range(4):
                assert np.array_equal(stack.plane(z, channel), STACK[z, channel])


@pytest.mark.parametrize(
    ("write", "planes", "channels"),
    [
        (written(STACK.max(axis=0), photometric="minisblack"), 1, 4),
        (written(STACK.max(axis=0), ome=True, metadata={"axes": "CYX"}), 1, 4),
        (written(STACK[:, 2], photometric="minisblack"), 3, 1),
        (written(STACK[0, 2]), 1, 1),
        (written((STACK[0, :3].transpose(1, 2, 0) // 16).astype(np.uint8)), 1, 3),
        (written(SWAPPED, ome=True, metadata={"axes": "ZCYX"}), 4, 3),  # what the file says is believed
    ],
)
def test_other_shapes_are_read_as_what_they_are(
    write: Callable[[Path], None], planes: int, channels: int, tmp_path: Path
) -> None:
    with opened(tmp_path / "a.tif", write) as stack:
        assert (stack.planes, stack.channels) == (planes, channels)


@pytest.mark.parametrize(
    "write",
    [
        written(PAGES, photometric="minisblack", metadata=None),
        written(PAGES, photometric="minisblack"),
        lambda path: each_page(path, PAGES),
        written(np.stack([STACK, STACK]), photometric="minisblack"),
    ],
)
def test_planes_without_a_word_about_channels_are_ambiguous(write: Callable[[Path], None], tmp_path: Path) -> None:
    with pytest.raises(Refusal) as refusal:
        opened(tmp_path / "a.tif", write)
    assert refusal.value.code == "ambiguous_axes"


def test_broken_and_not_finite_planes_are_refused(tmp_path: Path) -> None:
    holed = STACK.astype(np.float32)
    holed[1, 2, 3, 4] = np.nan
    with opened(tmp_path / "a.tif", written(holed, photometric="minisblack")) as stack:
        assert stack.plane(1, 1).shape == (20, 24)
        with pytest.raises(Refusal, match="NaN") as refusal:
            stack.plane(1, 2)
        assert refusal.value.code == "non_finite"
    data = (tmp_path / "a.tif").read_bytes()
    (tmp_path / "b.tif").write_bytes(data[: len(data) // 2])
    with pytest.raises(Refusal):
        ChannelStack((tmp_path / "b.tif").open("rb"), planes=3, channels=4).plane(2, 3)
