"""Tricks with label images that several tasks share: the right foreground, or none, but no objects told apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

Labels = NDArray[Any]
Change = Callable[[Labels], Labels]
Folder = Callable[[Path, Path], None]  # folder of references, folder to write to

TILE_PX = 16


def every(change: Change) -> Folder:
    """Return a function that writes each reference image, changed, under its own name."""

    def write(references: Path, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(references.glob("*.tif*")):
            labels = change(tifffile.imread(path))
            tifffile.imwrite(folder / path.name, labels.astype(np.uint16), compression="zlib", metadata=None)

    return write


def one_label(labels: Labels) -> Labels:
    """Every object is the same one."""
    return np.asarray(labels > 0)


def all_foreground(labels: Labels) -> Labels:
    """The whole image is one object."""
    return np.ones_like(labels)


def noise(labels: Labels) -> Labels:
    """Each pixel of the foreground is an object of its own or shares it at random."""
    return np.where(labels > 0, np.random.default_rng(0).integers(1, 10_000, labels.shape), 0)


def tiles(labels: Labels) -> Labels:
    """Squares all over the image."""
    rows, columns = (np.arange(length) // TILE_PX for length in labels.shape[-2:])
    return np.asarray(rows[:, None] * (columns[-1] + 1) + columns + 1)


def tiles_on_foreground(labels: Labels) -> Labels:
    """Squares, but only where objects are."""
    return np.where(labels > 0, tiles(labels), 0)


def nothing(labels: Labels) -> Labels:
    """An image without objects."""
    return np.zeros_like(labels)


CHANGES: dict[str, Change] = {
    "one_label_for_all": one_label,
    "tiles_on_the_right_foreground": tiles_on_foreground,
    "noise_labels": noise,
    "all_foreground": all_foreground,
    "tiles": tiles,
    "empty_images": nothing,
}
