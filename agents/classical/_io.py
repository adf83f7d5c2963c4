"""Reading images with their scale, and writing deliverables. Everything is read-only on the input side."""

from __future__ import annotations

import csv
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import tifffile
from PIL import Image as PillowImage

T = TypeVar("T")

IMAGE_SUFFIXES = (".tif", ".tiff", ".png", ".jpg", ".jpeg", ".bmp")


def natural_key(path: Path) -> tuple[tuple[int, int | str], ...]:
    """Sort key in which ``2.tif`` comes before ``10.tif``."""
    parts = re.split(r"(\d+)", path.name.lower())
    return tuple((0, int(part)) if part.isdigit() else (1, part) for part in parts)


def list_images(folder: Path, suffixes: Sequence[str] = IMAGE_SUFFIXES) -> list[Path]:
    """Return the images below a folder in natural order; hidden files are left out."""
    found = [
        path
        for path in folder.rglob("*")
        if path.is_file() and path.suffix.lower() in suffixes and not path.name.startswith(".")
    ]
    return sorted(found, key=lambda path: (path.parent.as_posix(), natural_key(path)))


def spread(items: Sequence[T], most: int) -> list[T]:
    """Return up to ``most`` items, evenly spaced, first and last included where there are more."""
    if len(items) <= most:
        return list(items)
    return [items[round(k * (len(items) - 1) / max(most - 1, 1))] for k in range(most)]


def stem(path: Path) -> str:
    """Return a file's name without its extension; ``.ome.tif`` is one extension."""
    return re.sub(r"\.ome$", "", path.stem, flags=re.IGNORECASE)


def read_image(path: Path) -> npt.NDArray[Any]:
    """Read one image as ``(y, x)`` or ``(y, x, c)``; singleton axes are dropped and an alpha channel is left out."""
    if path.suffix.lower() in (".tif", ".tiff"):
        data = np.squeeze(tifffile.imread(path))
        if data.ndim == 3 and data.shape[0] in (3, 4) and data.shape[-1] not in (3, 4):
            data = np.moveaxis(data, 0, -1)
    else:
        with PillowImage.open(path) as image:
            data = np.asarray(image.convert("RGB") if image.mode in ("P", "RGBA", "CMYK") else image)
    if data.ndim == 3 and data.shape[-1] == 4:
        data = data[..., :3]
    if data.ndim not in (2, 3) or (data.ndim == 3 and data.shape[-1] != 3):
        raise ValueError(f"{path.name}: expected one grey or RGB image, found an array of shape {data.shape}")
    return data


def as_grey(image: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return one channel as float: the image itself, or of an RGB image the channel with the largest variance."""
    if image.ndim == 2:
        return image.astype(np.float32)
    variances = [float(np.var(image[..., channel])) for channel in range(image.shape[-1])]
    return image[..., int(np.argmax(variances))].astype(np.float32)


# --- scale ------------------------------------------------------------------------------------------------------


_TO_MICRON = {"µm": 1.0, "um": 1.0, "micron": 1.0, "microns": 1.0, "nm": 1e-3, "mm": 1e3, "cm": 1e4, "m": 1e6}


def pixel_size_um(path: Path) -> float | None:
    """Return the pixel size in a TIFF's own metadata (OME, ImageJ), in µm, or ``None``.

    Plain resolution tags (dots per inch) say how to print, not how large a pixel is, and are not used.
    """
    if path.suffix.lower() not in (".tif", ".tiff"):
        return None
    with tifffile.TiffFile(path) as file:
        pixels = _ome_pixels(file)
        if pixels is not None and "PhysicalSizeX" in pixels:
            factor = _TO_MICRON.get(pixels.get("PhysicalSizeXUnit", "µm").replace("μ", "µ"))
            return None if factor is None else float(pixels["PhysicalSizeX"]) * factor
        unit = str((file.imagej_metadata or {}).get("unit", "")).replace("\\u00B5", "µ").replace("μ", "µ")
        resolution = file.pages[0].tags.get("XResolution")  # type: ignore[union-attr]
        if unit in _TO_MICRON and resolution is not None and resolution.value[0]:
            return float(resolution.value[1]) / float(resolution.value[0]) * _TO_MICRON[unit]
    return None


def frame_interval_seconds(path: Path) -> float | None:
    """Return the time between frames in a TIFF's OME metadata, in seconds, or ``None``."""
    if path.suffix.lower() not in (".tif", ".tiff"):
        return None
    with tifffile.TiffFile(path) as file:
        pixels = _ome_pixels(file)
    if pixels is None or "TimeIncrement" not in pixels:
        return None
    factor = {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0}.get(pixels.get("TimeIncrementUnit", "s"))
    return None if factor is None else float(pixels["TimeIncrement"]) * factor


def _ome_pixels(file: tifffile.TiffFile) -> dict[str, str] | None:
    if not file.ome_metadata:
        return None
    try:
        root = ElementTree.fromstring(file.ome_metadata)
    except ElementTree.ParseError:
        return None
    element = next((item for item in root.iter() if item.tag.endswith("}Pixels") or item.tag == "Pixels"), None)
    return None if element is None else dict(element.attrib)


# --- sequences --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sequence2D:
    """A time series of ``(y, x)`` frames that is read one frame at a time.

    ``files`` is one multi-page TIFF or one file per frame.
    """

    name: str
    files: tuple[Path, ...]
    length: int
    shape: tuple[int, int]

    def __iter__(self) -> Iterator[npt.NDArray[np.float32]]:
        if len(self.files) > 1:
            for path in self.files:
                yield self._checked(tifffile.imread(path), path.name)
            return
        with tifffile.TiffFile(self.files[0]) as file:
            for number, page in enumerate(file.pages):
                yield self._checked(page.asarray(), f"page {number}")

    def frame(self, number: int) -> npt.NDArray[np.float32]:
        """Return one frame."""
        if len(self.files) > 1:
            return self._checked(tifffile.imread(self.files[number]), self.files[number].name)
        return self._checked(tifffile.imread(self.files[0], key=number), f"page {number}")

    def _checked(self, data: npt.NDArray[Any], where: str) -> npt.NDArray[np.float32]:
        frame = as_grey(np.squeeze(data))
        if frame.shape != self.shape:
            raise ValueError(f"{self.name}, {where}: shape {frame.shape} differs from the first frame's {self.shape}")
        return frame


def find_sequences(folder: Path) -> list[Sequence2D]:
    """Return the time series below a folder: every multi-page TIFF, and every folder of single-page TIFFs.

    A file that cannot be opened keeps its place among the frames of its folder, so that those after it keep their
    numbers; a folder without any readable file gives no series.
    """
    series: list[Sequence2D] = []
    singles: dict[Path, list[tuple[Path, tuple[int, int] | None]]] = {}
    for path in list_images(folder, (".tif", ".tiff")):
        try:
            with tifffile.TiffFile(path) as file:
                pages = len(file.pages)
                rows, cols = file.pages[0].shape[:2]
        except (OSError, ValueError, IndexError):  # tifffile's own error is a ValueError
            singles.setdefault(path.parent, []).append((path, None))
            continue
        if pages > 1:
            series.append(Sequence2D(stem(path), (path,), pages, (rows, cols)))
        else:
            singles.setdefault(path.parent, []).append((path, (rows, cols)))
    for parent, entries in singles.items():
        shape = next((shape for _, shape in entries if shape is not None), None)
        if shape is not None:
            name = parent.name if parent != folder else "00"
            series.append(Sequence2D(name, tuple(path for path, _ in entries), len(entries), shape))
    return sorted(series, key=lambda sequence: sequence.name)


def read_pages(path: Path) -> Iterator[npt.NDArray[Any]]:
    """Yield the pages of the first series of a TIFF as they are stored, one at a time."""
    with tifffile.TiffFile(path) as file:
        for page in file.series[0].pages:
            if page is not None:
                yield page.asarray()


# --- deliverables -----------------------------------------------------------------------------------------------


def write_labels(path: Path, labels: npt.NDArray[np.integer]) -> None:
    """Write a label image as a compressed unsigned 16-bit TIFF."""
    if labels.max(initial=0) > np.iinfo(np.uint16).max:
        raise ValueError(f"{path.name}: {labels.max()} objects do not fit into 16 bits")
    path.parent.mkdir(parents=True, exist_ok=True)
    tifffile.imwrite(path, labels.astype(np.uint16), compression="zlib", photometric="minisblack")


def write_label_stack(
    path: Path,
    frames: Iterable[npt.NDArray[np.integer]],
    shape: tuple[int, int, int],
    dtype: npt.DTypeLike,
    *,
    pixel_um: float | None = None,
    interval_seconds: float | None = None,
) -> None:
    """Write ``(t, y, x)`` labels page by page into one series of an OME-TIFF, compressed."""
    metadata: dict[str, Any] = {"axes": "TYX"}
    if pixel_um is not None:
        metadata |= {f"PhysicalSize{axis}": pixel_um for axis in "XY"}
        metadata |= {f"PhysicalSize{axis}Unit": "µm" for axis in "XY"}
    if interval_seconds is not None:
        metadata |= {"TimeIncrement": interval_seconds, "TimeIncrementUnit": "s"}
    pages = (np.ascontiguousarray(frame, dtype=dtype) for frame in frames)
    with tifffile.TiffWriter(path, ome=True) as writer:
        writer.write(pages, shape=shape, dtype=dtype, compression="zlib", photometric="minisblack", metadata=metadata)


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]], delimiter: str = "\t") -> None:
    """Write a delimited table; floats with six significant digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(
            [f"{value:.6g}" if isinstance(value, float | np.floating) else value for value in row] for row in rows
        )
