"""Perfect masks without tracking, or no cells told apart: TRA gives links little weight, the strict score all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

Stack = NDArray[Any]
Tracks = NDArray[np.int64]
Change = Callable[[Stack, Tracks], tuple[Stack, Tracks]]


def _result(change: Change, input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    path = next(iter(sorted(truth_dir.glob("*_GT.ome.tif*"))))
    tracks = np.loadtxt(truth_dir / "man_track.txt", dtype=np.int64, ndmin=2)
    stack, rows = change(tifffile.imread(path), tracks)
    name = path.name.replace("_GT", "_RES")
    kind = np.uint16 if stack.max() < 2**16 else np.uint32
    with tifffile.TiffWriter(output_dir / name, ome=True) as writer:
        writer.write(stack.astype(kind), metadata={"axes": "TYX"}, compression="zlib", photometric="minisblack")
    np.savetxt(output_dir / "res_track.txt", rows, fmt="%d")


def masks_without_links(stack: Stack, tracks: Tracks) -> tuple[Stack, Tracks]:
    """Every object of every frame is a track of its own."""
    result = np.zeros(stack.shape, np.int64)
    rows, used = [], 0
    for frame, image in enumerate(stack):
        names = np.unique(image[image > 0])
        lookup = np.zeros(int(stack.max()) + 1, np.int64)
        lookup[names] = used + np.arange(1, len(names) + 1)
        result[frame] = lookup[image]
        rows += [(name, frame, frame, 0) for name in range(used + 1, used + len(names) + 1)]
        used += len(names)
    return result, np.array(rows)


def counted_anew(stack: Stack, tracks: Tracks) -> tuple[Stack, Tracks]:
    """Objects are numbered from 1 by position in every frame, as a labelling without tracking does."""
    result = np.zeros_like(stack)
    last: dict[int, list[int]] = {}
    for frame, image in enumerate(stack):
        names, first = np.unique(image[image > 0], return_index=True)
        lookup = np.zeros(int(stack.max()) + 1, stack.dtype)
        lookup[names[np.argsort(first)]] = np.arange(1, len(names) + 1)
        result[frame] = lookup[image]
        for name in range(1, len(names) + 1):
            last.setdefault(name, [frame, frame])[1] = frame
    return result, np.array([(name, begin, end, 0) for name, (begin, end) in last.items()])


def first_frame_for_ever(stack: Stack, tracks: Tracks) -> tuple[Stack, Tracks]:
    """The first frame, repeated."""
    still = np.repeat(stack[:1], len(stack), axis=0)
    return still, np.array([(name, 0, len(stack) - 1, 0) for name in np.unique(stack[0][stack[0] > 0])])


CHANGES: dict[str, Change] = {
    "no_divisions": lambda stack, tracks: (stack, tracks * np.array([1, 1, 1, 0])),
    "masks_without_links": masks_without_links,
    "one_dummy_row": lambda stack, tracks: (stack, np.array([[60_000, 0, 0, 0]])),
    "labels_counted_anew_in_every_frame": counted_anew,
    "one_label_for_all": lambda stack, tracks: (stack > 0, np.array([[1, 0, len(stack) - 1, 0]])),
    "all_foreground": lambda stack, tracks: (np.ones_like(stack), np.array([[1, 0, len(stack) - 1, 0]])),
    "first_frame_for_ever": first_frame_for_ever,
}

SHORTCUTS: dict[str, Callable[[Path, Path, Path], None]] = {
    name: partial(_result, change) for name, change in CHANGES.items()
}
