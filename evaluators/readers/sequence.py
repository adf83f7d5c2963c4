"""Label images over time, read frame by frame: one stack, or one file per frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BufferedReader
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from evaluators.problems import Refusal
from evaluators.readers.tiff import TiffImage, as_labels, check_shape, squeezed

Labels = NDArray[np.integer]


class LabelFrames(Protocol):
    """A sequence of label images."""

    @property
    def frames(self) -> tuple[int, ...]:
        """Numbers of the frames that exist, ascending."""

    def read(self, frame: int) -> Labels:
        """Decode one frame.

        Raises
        ------
        Refusal
            It cannot be read, has another shape than the first, or does not hold labels.
        """

    def close(self) -> None:
        """Close what is open."""


class StackFrames:
    """The planes of one TIFF file as frames.

    Parameters
    ----------
    image
        Closed with the stack.
    first
        Number of the first frame.
    """

    def __init__(self, image: TiffImage, first: int = 0) -> None:
        self._image = image
        self._first = first
        header = image.header
        plane = squeezed(header.plane_shape)
        self._volume: NDArray[Any] | None = None
        self._in_one_plane = header.planes == 1 and len(plane) == 3
        if self._in_one_plane:
            self.count, self.frame_shape = plane[0], plane[1:]
        else:
            self.count, self.frame_shape = header.planes, plane

    @property
    def frames(self) -> tuple[int, ...]:
        """Numbers of the frames."""
        return tuple(range(self._first, self._first + self.count))

    def read(self, frame: int) -> Labels:
        """Decode one frame."""
        index = frame - self._first
        if not self._in_one_plane:
            return as_labels(self._image.plane(index).reshape(self.frame_shape))
        if self._volume is None:
            self._volume = self._image.whole().reshape(self.count, *self.frame_shape)
        return as_labels(self._volume[index])

    def close(self) -> None:
        """Close the file."""
        self._image.close()


class FileFrames:
    """One TIFF file per frame.

    Parameters
    ----------
    files
        How to open each frame.
    shape
        Expected shape of a frame, without axes of length 1.
    """

    def __init__(self, files: Mapping[int, Callable[[], BufferedReader]], shape: tuple[int, ...]) -> None:
        self._files = dict(sorted(files.items()))
        self._shape = shape

    @property
    def frames(self) -> tuple[int, ...]:
        """Numbers of the frames."""
        return tuple(self._files)

    def read(self, frame: int) -> Labels:
        """Decode one frame."""
        try:
            handle = self._files[frame]()
        except OSError as error:
            raise Refusal("unreadable", f"cannot be opened: {error.strerror}") from error
        with TiffImage(handle) as image:
            check_shape(image.header.shape, self._shape)
            return as_labels(image.whole())

    def close(self) -> None:
        """Nothing stays open."""
