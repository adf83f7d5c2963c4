"""Reference sequences of tracking tasks, as one stack or as a folder of the Cell Tracking Challenge."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedReader
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluators.model import TruthError
from evaluators.problems import Refusal
from evaluators.readers.sequence import FileFrames, LabelFrames, Labels, StackFrames
from evaluators.truth import Truth


class TrackTruth:
    """Reference tracks and segmentation of one sequence.

    Attributes
    ----------
    folder
        Where it lies.
    name
        Name of the sequence, ``00`` in ``00_GT.ome.tif``.
    challenge
        Whether it is a challenge folder with markers (``TRA``) apart from segmentation masks (``SEG``).
    frames
        Numbers of the frames, without gaps.
    shape
        Shape of a frame.
    tracks : (n, 4) int64
        Track id, first frame, last frame, parent id.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        markers: LabelFrames,
        segmentation: LabelFrames | None,
        tracks: NDArray[np.int64],
        shape: tuple[int, ...],
    ) -> None:
        self.name = name
        self.challenge = segmentation is not None
        self.frames = markers.frames
        self.shape = shape
        self.tracks = tracks
        self.folder = folder
        self._markers = markers
        self._segmentation = segmentation
        self._annotated = frozenset(segmentation.frames if segmentation is not None else ())

    def markers(self, frame: int) -> Labels:
        """Return the reference markers of a frame, all zero beyond the sequence."""
        if not self.frames[0] <= frame <= self.frames[-1]:
            return np.zeros(self.shape, np.uint8)
        return self._read(self._markers, frame)

    def segmentation(self, frame: int, markers: Labels) -> Labels | None:
        """Return the reference segmentation of a frame or ``None``; for a stack it is ``markers`` itself."""
        if self._segmentation is None:
            return markers if self.frames[0] <= frame <= self.frames[-1] else None
        return self._read(self._segmentation, frame) if frame in self._annotated else None

    def _read(self, frames: LabelFrames, frame: int) -> Labels:
        try:
            return frames.read(frame)
        except Refusal as refusal:
            raise TruthError(f"{self.folder}: frame {frame}: {refusal}") from refusal

    def close(self) -> None:
        """Close what is open."""
        self._markers.close()


@contextmanager
def track_truth(truth: Truth) -> Iterator[TrackTruth]:
    """Open the reference sequence of an evaluation folder.

    That is ``*_GT.ome.tif`` and ``man_track.txt``, or a challenge folder: the folder itself or the only ``*_GT`` folder
    in it.

    Raises
    ------
    TruthError
        Neither is there, or something is missing or cannot be read.
    """
    stacks = [
        path
        for path in sorted(truth.folder.iterdir())
        if re.fullmatch(r"[^.].*_gt(\.ome)?\.tiff?", path.name.lower()) and path.is_file()
    ]
    if len(stacks) > 1:
        raise TruthError(f"{truth.folder}: more than one *_GT.ome.tif")
    reference = _from_stack(truth, stacks[0]) if stacks else _from_folder(truth)
    try:
        yield reference
    finally:
        reference.close()


def _from_stack(truth: Truth, path: Path) -> TrackTruth:
    stack = StackFrames(truth.open_image(path))
    name = re.sub(r"(?i)_gt(\.ome)?\.tiff?$", "", path.name)
    tracks = truth.track_table(truth.folder / "man_track.txt")
    return TrackTruth(name, truth.folder, stack, None, tracks, stack.frame_shape)


def _from_folder(truth: Truth) -> TrackTruth:
    folder = truth.folder
    if not (folder / "TRA").is_dir():
        inner = [path for path in sorted(folder.iterdir()) if path.name.endswith("_GT") and path.is_dir()]
        if len(inner) != 1:
            raise TruthError(f"{folder}: expected *_GT.ome.tif and man_track.txt, or TRA and SEG of a challenge folder")
        folder = inner[0]
    markers = _numbered(folder / "TRA", "man_track")
    masks = _numbered(folder / "SEG", "man_seg")
    first, last = min(markers), max(markers)
    if lacking := sorted(set(range(first, last + 1)) - set(markers)):
        raise TruthError(f"{folder / 'TRA'}: no markers of frame {lacking[0]}")
    if beyond := sorted(set(masks) - set(markers)):
        raise TruthError(f"{folder / 'SEG'}: frame {beyond[0]} has no markers in TRA")
    with truth.open_image(markers[first]) as image:
        shape = image.header.shape
    tracks = truth.track_table(folder / "TRA" / "man_track.txt")
    opened = [
        FileFrames({frame: partial(_open, path) for frame, path in files.items()}, shape) for files in (markers, masks)
    ]
    return TrackTruth(folder.name.removesuffix("_GT"), folder, opened[0], opened[1], tracks, shape)


def _numbered(folder: Path, prefix: str) -> dict[int, Path]:
    """Return the frames of a challenge folder."""
    if not folder.is_dir():
        raise TruthError(f"{folder}: no such folder")
    files: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        if re.fullmatch(rf"{prefix}_[0-9]+_[0-9]+\.tif", path.name):
            raise TruthError(f"{path}: references of single planes are not read; expected {prefix}<frame>.tif")
        if match := re.fullmatch(rf"{prefix}([0-9]+)\.tif", path.name):
            if int(match[1]) in files:
                raise TruthError(f"{path}: frame {int(match[1])} occurs twice")
            files[int(match[1])] = path
    if not files:
        raise TruthError(f"{folder}: no file {prefix}<frame>.tif")
    return files


def _open(path: Path) -> BufferedReader:
    return path.open("rb")
