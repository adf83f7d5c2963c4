"""Read TIFF images of unknown origin: look at headers first, decode plane by plane, within bounds.

The planes of a file are its image directories in the order of the file. That reads alike what ImageJ, OME, Bio-Formats
and tifffile write, one series of many pages or many series of one page each, and it never opens another file: OME
metadata can name further files, so they are not consulted.
"""

from __future__ import annotations

import json
import logging
import math
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import tifffile
from numpy.typing import NDArray

from evaluators.problems import Refusal

MAX_PLANES = 20_000
MAX_PLANE_BYTES = 2 << 30
MAX_IMAGE_BYTES = 4 << 30  # of a volume that is decoded as a whole
_SPARE_BYTES = 64 << 20  # strips and tiles may reach so far beyond their plane, and three times its size
MAX_LABEL = 2**63 - 1

# Codecs that lose nothing and whose output tifffile bounds by the declared size.
_LOSSLESS = {
    "NONE",
    "CCITTRLE",
    "CCITT_T4",
    "CCITT_T6",
    "LZW",
    "ADOBE_DEFLATE",
    "DEFLATE",
    "PACKBITS",
    "LZMA",
    "ZSTD",
    "ZSTD_DEPRECATED",
}
_COLOUR = {"RGB", "YCBCR", "SEPARATED", "CIELAB", "ICCLAB", "ITULAB"}

logging.getLogger("tifffile").setLevel(logging.CRITICAL)  # it reports every corrupt tag of a hostile file


@dataclass(frozen=True)
class TiffHeader:
    """What a file declares, before any pixel is decoded.

    Attributes
    ----------
    planes : int
        Number of planes (image directories; pages).
    plane_shape : tuple of int
        Shape of the first plane, (y, x), or more where one directory holds more than a plane.
    dtype : numpy.dtype
    """

    planes: int
    plane_shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """(planes, y, x) without axes of length 1."""
        return squeezed((self.planes, *self.plane_shape))


def squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without axes of length 1."""
    return tuple(length for length in shape if length != 1)


class TiffImage:
    """A single-channel TIFF file, opened and checked but not decoded.

    Parameters
    ----------
    handle
        Binary file; closed with the image.
    samples
        Whether a page may hold several channels as samples of its pixels; the shape of a plane then has their axis
        first or last.

    Raises
    ------
    Refusal
        ``unreadable`` (no TIFF, or corrupt), ``truncated``, ``colour``, ``unsupported_compression``, ``wrong_dtype``,
        ``too_large``.
    """

    def __init__(self, handle: BinaryIO, *, samples: bool = False) -> None:
        self._handle = handle
        self._samples = samples
        try:
            with _parsing():
                directories, size = _directories(handle)
                handle.seek(0)
                self._tiff = tifffile.TiffFile(handle, name="image.tif", _multifile=False, _useframes=False)
                self._pages = [
                    index for index in range(directories) if directories == 1 or not self._page(index).is_reduced
                ]
                if not self._pages:
                    raise Refusal("unreadable", "holds no image")
                first = self._page(self._pages[0])
                self._virtual = _virtual_planes(first, size) if directories == 1 else 1
                self._size = size
                self._check(first)
                planes = self._virtual if self._virtual > 1 else len(self._pages)
                self.header = TiffHeader(planes, tuple(first.shape), np.dtype(first.dtype))
        except BaseException:
            handle.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._handle.close()

    def plane(self, index: int) -> NDArray[Any]:
        """Decode one plane.

        Raises
        ------
        Refusal
            It is corrupt, or differs from the first plane in shape or type.
        """
        if self._virtual > 1:
            return self._virtual_plane(index)
        with _parsing():
            page = self._page(self._pages[index])
            self._check(page)
            if (tuple(page.shape), np.dtype(page.dtype)) != (self.header.plane_shape, self.header.dtype):
                found, first = f"{page.dtype} {page.shape}", f"{self.header.dtype} {self.header.plane_shape}"
                raise Refusal("wrong_shape", f"plane {index} is {found}, the first one {first}")
            return np.asarray(page.asarray(maxworkers=1))

    def axes(self) -> tuple[str, tuple[int, ...]] | None:
        """Return letters and lengths of all axes as the file's metadata name them, where they cover all planes.

        ``None`` where the metadata do not describe the file as one array; letters that nobody chose are ``Q`` or ``I``.
        """
        with _parsing():
            self._handle.seek(0)
            # A reader of its own: looking for series replaces pages by abridged ones.
            series = tifffile.TiffFile(self._handle, name="image.tif", _multifile=False).series
            if len(series) < 1:
                return None
            axes, shape = str(series[0].axes), tuple(int(length) for length in series[0].shape)
        count = self.header.planes * math.prod(self.header.plane_shape)
        return (axes, shape) if math.prod(shape) == count and len(axes) == len(shape) else None

    def whole(self) -> NDArray[Any]:
        """Decode all planes into one array without axes of length 1."""
        header = self.header
        count = header.planes * int(np.prod(header.plane_shape, dtype=object))
        if count * header.dtype.itemsize > MAX_IMAGE_BYTES:
            raise Refusal("too_large", f"declares {header.shape} {header.dtype}, more than is decoded at once")
        if header.planes == 1:
            return self.plane(0).reshape(header.shape)
        stack = np.empty((header.planes, *header.plane_shape), header.dtype)
        for index in range(header.planes):
            stack[index] = self.plane(index)
        return stack.reshape(header.shape)

    def _page(self, index: int) -> Any:
        page = self._tiff.pages[index]
        if not isinstance(page, tifffile.TiffPage):
            raise Refusal("unreadable", f"image directory {index} cannot be read")
        return page

    def _virtual_plane(self, index: int) -> NDArray[Any]:
        header = self.header
        count = int(np.prod(header.plane_shape))
        with _parsing():
            page = self._page(self._pages[0])
            self._handle.seek(page.dataoffsets[0] + index * count * header.dtype.itemsize)
            data = self._handle.read(count * header.dtype.itemsize)
            plane = np.frombuffer(data, header.dtype.newbyteorder(self._tiff.byteorder), count)
            return plane.reshape(header.plane_shape).astype(header.dtype)

    def _check(self, page: Any) -> None:
        """Refuse what cannot be a single-channel image, from the header of one page."""
        with _parsing():
            photometric = getattr(page.photometric, "name", "unknown")
            compression = getattr(page.compression, "name", str(page.compression))
            dtype, shape = page.dtype, tuple(int(length) for length in page.shape)
            samples = int(page.samplesperpixel)
            offsets, counts = tuple(page.dataoffsets), tuple(page.databytecounts)
            decoded = int(np.prod(page.chunks, dtype=object)) * len(offsets)
            if not self._samples and (photometric in _COLOUR or samples != 1):
                raise Refusal("colour", f"is a colour image ({samples} samples per pixel); expected one channel")
            if compression not in _LOSSLESS:
                raise Refusal(
                    "unsupported_compression", f"compression {compression} is not taken; use deflate, LZW, ZSTD or none"
                )
            if dtype is None or np.dtype(dtype).kind not in "uifb":
                raise Refusal("wrong_dtype", f"pixels of type {dtype} are not taken")
            pixels = int(np.prod(shape, dtype=object)) if shape else 0
            if pixels == 0 or not offsets:
                raise Refusal("unreadable", f"declares an empty image of shape {shape}")
            if pixels * np.dtype(dtype).itemsize > MAX_PLANE_BYTES:
                raise Refusal(
                    "too_large", f"declares a plane of {shape} {dtype}, more than {MAX_PLANE_BYTES >> 30} GiB"
                )
            item = np.dtype(dtype).itemsize
            if decoded * item > 4 * pixels * item + _SPARE_BYTES:
                raise Refusal("too_large", f"its strips or tiles hold {decoded} pixels for a plane of {pixels}")
            if len(offsets) != len(counts) or min(counts) <= 0:
                raise Refusal("truncated", "declares image data without bytes")
            end = max(offset + count for offset, count in zip(offsets, counts, strict=True))
            if end > self._size:
                raise Refusal("truncated", f"image data end at byte {end}, the file at byte {self._size}")


def as_labels(values: NDArray[Any]) -> NDArray[np.integer]:
    """Check that an array holds instance labels: whole numbers of at least 0.

    Floating point is taken where every value is a whole number that its type holds exactly.

    Raises
    ------
    Refusal
        ``non_finite``, ``non_integer``, ``negative_labels`` or ``label_too_large``.
    """
    kind = values.dtype.kind
    if kind == "b":
        return values.astype(np.uint8)
    if not values.size:
        raise Refusal("unreadable", "is empty")
    if kind == "f":
        if not np.isfinite(values).all():
            raise Refusal("non_finite", "holds NaN or infinite values; labels are whole numbers")
        if (values != np.floor(values)).any():
            raise Refusal("non_integer", "holds fractions, like a probability map; labels are whole numbers")
        exact = 2 ** (np.finfo(values.dtype).nmant + 1)
        if values.max() > exact:
            raise Refusal("label_too_large", f"holds labels above {exact}, which {values.dtype} does not tell apart")
    if kind in "if" and values.min() < 0:
        raise Refusal("negative_labels", f"holds negative labels, the smallest is {int(values.min())}")
    if values.dtype.itemsize == 8 and kind == "u" and values.max() > MAX_LABEL:
        raise Refusal("label_too_large", "holds labels above 2**63 - 1")
    return values.astype(np.int64) if kind == "f" else values


def check_shape(found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Refuse an image whose shape, without axes of length 1, is not the expected one; name swapped axes."""
    expected = squeezed(expected)
    if found == expected:
        return
    hint = ""
    if sorted(found) == sorted(expected):
        hint = "; the axes seem to be in another order (transposed)"
    elif (
        len(found) == len(expected)
        and found[0]
        and all(one * expected[0] == other * found[0] for one, other in zip(found, expected, strict=True))
    ):
        hint = "; it seems to be rescaled"
    elif len(found) == len(expected) + 1:
        hint = f"; it has {found[0]} planes or channels instead of one" if found[1:] == expected else ""
    raise Refusal("wrong_shape", f"has shape {found}, expected {expected}{hint}")


@contextmanager
def _parsing() -> Iterator[None]:
    """Turn whatever a parser raises on a broken file into a refusal; its exceptions are not an interface."""
    try:
        yield
    except Refusal:
        raise
    except MemoryError as error:
        raise Refusal("too_large", "needs more memory than is granted") from error
    except Exception as error:
        raise Refusal("unreadable", f"cannot be read as TIFF: {type(error).__name__}: {error}") from error


def _directories(handle: BinaryIO) -> tuple[int, int]:
    """Count the image directories by their chain of offsets alone; return it with the size of the file.

    tifffile stops silently at a broken link, so that the frames behind it would be missing without a word.
    """
    size = handle.seek(0, 2)
    handle.seek(0)
    start = handle.read(16)
    order = {b"II": "<", b"MM": ">"}.get(start[:2])
    if order is None or len(start) < 8:
        raise Refusal("unreadable", "is not a TIFF file" if size else "is an empty file")
    version = struct.unpack(f"{order}H", start[2:4])[0]
    if version == 42:
        number, tag, link, offset = "H", 12, "I", struct.unpack(f"{order}I", start[4:8])[0]
    elif version == 43 and len(start) == 16:
        number, tag, link, offset = "Q", 20, "Q", struct.unpack(f"{order}Q", start[8:16])[0]
    else:
        raise Refusal("unreadable", "is not a TIFF file")
    width, seen = struct.calcsize(number), set[int]()
    while offset:
        if offset in seen:
            raise Refusal("unreadable", "its list of pages leads in a circle")
        seen.add(offset)
        if len(seen) > MAX_PLANES:
            raise Refusal("too_large", f"holds more than {MAX_PLANES} pages")
        handle.seek(offset)
        head = handle.read(width)
        tags = struct.unpack(order + number, head)[0] if len(head) == width else 0
        if offset + width + tags * tag + struct.calcsize(link) > size or not 0 < tags <= 4096:
            raise Refusal("truncated", f"its list of pages breaks off after {len(seen) - 1} of them")
        handle.seek(tags * tag, 1)
        offset = struct.unpack(order + link, handle.read(struct.calcsize(link)))[0]
    if not seen:
        raise Refusal("unreadable", "holds no image")
    return len(seen), size


def _virtual_planes(page: Any, size: int) -> int:
    """Return how many planes lie behind a single directory, as ImageJ and tifffile write stacks above 4 GB."""
    description = str(page.description or "")[:10_000]
    declared = 1
    if description.startswith("ImageJ=") and (images := re.search(r"^images=([0-9]{1,9})$", description, re.MULTILINE)):
        declared = int(images[1])
    elif description.startswith("{") and '"truncated"' in description:
        shape = json.loads(description).get("shape", [])
        plane = int(np.prod(page.shape, dtype=object))
        declared = int(np.prod([int(length) for length in shape], dtype=object)) // max(plane, 1)
    if declared <= 1:
        return 1
    raw = page.is_contiguous and getattr(page.compression, "name", "") == "NONE" and page.predictor == 1
    if not raw or page.fillorder != 1 or page.bitspersample % 8:
        raise Refusal("unreadable", f"declares {declared} planes in one directory that is not plain contiguous data")
    if declared > MAX_PLANES:
        raise Refusal("too_large", f"declares {declared} planes")
    if page.dataoffsets[0] + declared * page.nbytes > size:
        raise Refusal("truncated", f"declares {declared} planes, but the file is too short for them")
    return declared
