"""Read images with several planes and channels, however they were written: ImageJ, OME, LSM, or plain TIFF.

Which axis is which follows from the file's metadata. Axes without a letter of their own are told apart by their length,
where that leaves no choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from evaluators.problems import Refusal
from evaluators.readers.tiff import TiffImage


class ChannelStack:
    """A TIFF file seen as planes ``(z, channel)`` of shape ``(y, x)``, decoded one at a time.

    Parameters
    ----------
    handle
        Binary file; closed with the stack.
    planes, channels
        Lengths that are expected: an axis without a name is taken for the one that it fits.

    Attributes
    ----------
    planes, channels, rows, columns : int
        What the file holds.

    Raises
    ------
    Refusal
        As :class:`evaluators.readers.tiff.TiffImage`; ``ambiguous_axes`` where planes and channels cannot be told
        apart.
    """

    def __init__(self, handle: BinaryIO, *, planes: int, channels: int) -> None:
        self._image = TiffImage(handle, samples=True)
        try:
            self._arrange(planes, channels)
        except BaseException:
            self._image.close()
            raise
        self._held: tuple[int, NDArray[Any]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._image.close()

    def plane(self, z: int, channel: int) -> NDArray[Any]:
        """Decode one plane, ``(y, x)``.

        Raises
        ------
        Refusal
            It is corrupt, or holds NaN or infinite values (``non_finite``).
        """
        page, sample = divmod(z * self._z_step + channel * self._channel_step, self._samples)
        if self._held is None or self._held[0] != page:
            self._held = (page, self._image.plane(page))
        values = self._held[1]
        if self._samples > 1:
            values = values[sample] if self._sample_axis == 0 else values[..., sample]
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise Refusal("non_finite", f"holds NaN or infinite values in plane {z} of channel {channel}")
        return values

    def _arrange(self, planes: int, channels: int) -> None:
        header = self._image.header
        page_shape = tuple(header.plane_shape)
        if len(page_shape) == 2:
            self._samples, self._sample_axis = 1, 0
            self.rows, self.columns = page_shape
        elif len(page_shape) == 3:
            self._sample_axis = 0 if page_shape[0] <= page_shape[-1] else 2
            self._samples = page_shape[self._sample_axis]
            self.rows, self.columns = page_shape[1:] if self._sample_axis == 0 else page_shape[:2]
        else:
            raise Refusal("ambiguous_axes", f"a page has shape {page_shape}; expected rows and columns, and channels")
        outer = self._outer_axes(header.planes * self._samples, self._samples)
        role = _roles(outer, planes, channels)
        self.planes = math.prod(length for (_, length), kind in zip(outer, role, strict=True) if kind == "z")
        self.channels = math.prod(length for (_, length), kind in zip(outer, role, strict=True) if kind == "c")
        self._z_step = self._channel_step = 0
        step = 1
        for (_, length), kind in reversed(list(zip(outer, role, strict=True))):
            if kind == "z":
                self._z_step = step
            elif kind == "c":
                self._channel_step = step
            step *= length

    def _outer_axes(self, count: int, samples: int) -> list[tuple[str, int]]:
        """Return letter and length of each axis besides rows and columns, samples within a page last."""
        named = self._image.axes()
        if named is None:
            return [("I", count // samples), *([("S", samples)] if samples > 1 else [])]
        letters, lengths = named
        outer = [(letter, length) for letter, length in zip(letters, lengths, strict=True) if letter not in "YX"]
        outer = [(letter, length) for letter, length in outer if length != 1]
        if samples > 1 and self._sample_axis == 2:  # interleaved: the axis stands behind rows and columns
            outer = [axis for axis in outer if axis[0] != "S"] + [("S", samples)]
        if math.prod(length for _, length in outer) != count:
            return [("I", count // samples), *([("S", samples)] if samples > 1 else [])]
        return outer


def _roles(axes: Sequence[tuple[str, int]], planes: int, channels: int) -> list[str]:
    """Tell for each axis whether it counts planes (``z``) or channels (``c``)."""
    role = [{"Z": "z", "C": "c"}.get(letter, "") for letter, _ in axes]
    if "c" not in role and (role.count("") == 1 or sorted(length for _, length in axes) != sorted([planes, channels])):
        # Samples are channels, unless a writer has split the wrong one of two nameless axes into samples.
        role = ["c" if letter == "S" else kind for (letter, _), kind in zip(axes, role, strict=True)]
    if role.count("z") > 1 or role.count("c") > 1:
        raise Refusal("ambiguous_axes", f"has axes {_spoken(axes)}; expected one of planes and one of channels")
    free = [place for place, kind in enumerate(role) if not kind]
    if not free:
        return role
    missing = [kind for kind in "zc" if kind not in role]
    if len(free) > len(missing):
        raise Refusal("ambiguous_axes", f"has axes {_spoken(axes)}; expected planes, channels, rows and columns")
    if len(free) == len(missing) == 1:
        role[free[0]] = missing[0]
        return role
    lengths = [axes[place][1] for place in free]
    expected = {"z": planes, "c": channels}
    fitting = [kind for kind in missing if expected[kind] == lengths[0]]
    if len(free) == 1:
        if len(fitting) != 1:
            raise Refusal(
                "ambiguous_axes",
                f"holds {lengths[0]} planes without a word about which are channels; write the axes into the file",
            )
        role[free[0]] = fitting[0]
        return role
    if planes != channels and sorted(lengths) == sorted([planes, channels]):
        for place in free:
            role[place] = "z" if axes[place][1] == planes else "c"
    else:
        role[free[0]], role[free[1]] = "z", "c"
    return role


def _spoken(axes: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{letter} of {length}" for letter, length in axes)
