"""Conversions between the formats of sources and those of the tasks."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray

from biabench_plugin.data.cache import DataError

PIXEL_UM = 0.072
FRAME_SECONDS = 60.0


def _decoded(frames: Iterable[bytes | NDArray[np.integer]]) -> Iterator[NDArray[np.integer]]:
    for number, frame in enumerate(frames):
        if isinstance(frame, np.ndarray):
            yield frame
            continue
        try:
            yield tifffile.imread(io.BytesIO(frame))
        except Exception as error:  # whatever the decoder raises, the file is at fault
            raise DataError(f"frame {number}: is not a readable TIFF: {error}") from error


def frames_to_ome(target: Path, frames: Iterable[bytes | NDArray[np.integer]], count: int) -> None:
    """Write single images as one OME-TIFF with axes (t, y, x), one frame in memory at a time.

    Parameters
    ----------
    target
        The file.
    frames
        Images of one shape and one unsigned integer type, as arrays or TIFF files.
    count
        How many there are.
    """
    decoded = _decoded(frames)
    first = next(decoded)
    if first.ndim != 2 or first.dtype.kind != "u":
        raise DataError(f"{target.name}: frames are {first.dtype} {first.shape}; expected unsigned (y, x)")

    def checked() -> Iterator[NDArray[np.integer]]:
        for number, frame in enumerate(chain([first], decoded)):
            if frame.shape != first.shape or frame.dtype != first.dtype:
                expected = f"expected {first.dtype} {first.shape}"
                raise DataError(f"{target.name}: frame {number} is {frame.dtype} {frame.shape}; {expected}")
            yield frame

    target.parent.mkdir(parents=True, exist_ok=True)
    with tifffile.TiffWriter(target, ome=True, bigtiff=first.nbytes * count > 1 << 31) as writer:
        writer.write(
            checked(),
            shape=(count, *first.shape),
            dtype=first.dtype,
            photometric="minisblack",
            compression="zlib",
            metadata={
                "axes": "TYX",
                "UUID": "00000000-0000-0000-0000-000000000000",  # same sources, same bytes
                "PhysicalSizeX": PIXEL_UM,
                "PhysicalSizeXUnit": "µm",
                "PhysicalSizeY": PIXEL_UM,
                "PhysicalSizeYUnit": "µm",
                "TimeIncrement": FRAME_SECONDS,
                "TimeIncrementUnit": "s",
            },
        )


def label_frames(tracks: Iterable[bytes], shapes: Iterable[bytes | None]) -> Iterator[NDArray[np.uint16]]:
    """Yield label images whose objects have the outlines of ``shapes`` and the track ids of ``tracks``.

    The Cell Tracking Challenge keeps outlines (SEG) and track ids (TRA, possibly markers only) apart. A frame without a
    SEG image takes its outlines from TRA.

    Raises
    ------
    DataError
        An outlined object holds no marker or several, or a track id does not fit 16 bits.
    """
    for number, (track, shape) in enumerate(zip(_decoded(tracks), shapes, strict=False)):
        labels = track
        if shape is not None:
            outlines = next(_decoded([shape]))
            if outlines.shape != track.shape:
                raise DataError(f"frame {number}: SEG {outlines.shape} and TRA {track.shape} differ in shape")
            labels = _relabelled(number, outlines, track)
        if labels.max(initial=0) > 65_535:
            raise DataError(f"frame {number}: track id {labels.max()} does not fit 16 bits")
        yield labels.astype(np.uint16)


def _relabelled(number: int, outlines: NDArray[np.integer], track: NDArray[np.integer]) -> NDArray[np.integer]:
    inside = (outlines > 0) & (track > 0)
    pairs = np.unique(np.stack([outlines[inside], track[inside]], axis=1), axis=0)
    objects, markers = np.unique(pairs[:, 0], return_counts=True)
    bare = np.setdiff1d(np.unique(outlines[outlines > 0]), objects)
    if len(bare) or np.any(markers > 1):
        worst = bare[0] if len(bare) else objects[np.argmax(markers)]
        raise DataError(f"frame {number}: SEG object {worst} holds {'no' if len(bare) else 'several'} track markers")
    table = np.zeros(int(outlines.max(initial=0)) + 1, dtype=track.dtype)
    table[pairs[:, 0]] = pairs[:, 1]
    relabelled: NDArray[np.integer] = table[outlines]
    return relabelled
