"""Masks that follow no filament: the outcome forgives gaps, the centreline score forgives everything drawn too wide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from scipy import ndimage

Mask = NDArray[np.bool_]


def _truths(truth_dir: Path) -> dict[str, Mask]:
    return {path.name.split(".")[0]: tifffile.imread(path) > 0 for path in sorted(truth_dir.glob("*.binary.tif*"))}


def _images(input_dir: Path) -> dict[str, NDArray[Any]]:
    return {path.name.split(".")[0]: tifffile.imread(path) for path in sorted(input_dir.glob("*.noisy.tif*"))}


def _write(output_dir: Path, name: str, mask: Mask) -> None:
    tifffile.imwrite(output_dir / f"{name}_mask.tif", mask.astype(np.uint8), compression="zlib")


def dashes(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Cut perfect masks into dashes of six pixels."""
    for name, truth in _truths(truth_dir).items():
        y, x = np.indices(truth.shape)
        cut = (y % 8 < 2) & (x % 8 < 8) | (x % 8 < 2)
        _write(output_dir, name, truth & ~cut)


def everything(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Call every pixel filament."""
    for name, image in _images(input_dir).items():
        _write(output_dir, name, np.ones(image.shape, bool))


def whole_cell(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Take the outline of the cell from perfect masks and fill it."""
    for name, truth in _truths(truth_dir).items():
        _write(output_dir, name, ndimage.binary_closing(np.pad(truth, 40), iterations=40)[40:-40, 40:-40] | truth)


def fat_filaments(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Draw perfect filaments so wide that they run into each other."""
    for name, truth in _truths(truth_dir).items():
        _write(output_dir, name, ndimage.binary_dilation(truth, iterations=12))


def stripes(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Draw parallel lines, three pixels wide and nine apart, over the middle of the image."""
    for name, image in _images(input_dir).items():
        y, x = np.indices(image.shape)
        middle = np.hypot(y - image.shape[0] / 2, x - image.shape[1] / 2) < 0.36 * min(image.shape)
        _write(output_dir, name, middle & ((x + y) % 9 < 3))


def other_image(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in the perfect mask of the next image."""
    truths = _truths(truth_dir)
    for name, other in zip(truths, [*list(truths)[1:], *list(truths)[:1]], strict=True):
        _write(output_dir, name, truths[other])


SHORTCUTS: dict[str, Callable[[Path, Path, Path], None]] = {
    "dashes": dashes,
    "fat_filaments": fat_filaments,
    "whole_cell": whole_cell,
    "stripes": stripes,
    "other_image": other_image,
    "everything": everything,
}
