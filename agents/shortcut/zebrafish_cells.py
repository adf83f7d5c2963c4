"""Submissions for 3D cell segmentation that separate no cell: the outcome rewards most of them, the strict score none.

The strongest take the true tissue, as a perfect tissue mask would give it, and cut it without looking at membranes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from scipy import ndimage
from scipy.spatial import cKDTree

Labels = NDArray[Any]
Cut = Callable[[Labels], Labels]


def _cut_truth(truth_dir: Path, output_dir: Path, cut: Cut) -> None:
    for path in sorted(truth_dir.glob("*_seg.tif*")):
        labels = cut(tifffile.imread(path))
        tifffile.imwrite(output_dir / f"{path.stem}.tif", labels.astype(np.uint16), compression="zlib")


def one_label(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in the true tissue as a single cell."""
    _cut_truth(truth_dir, output_dir, lambda truth: truth > 0)


def random_labels(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in the true tissue, each voxel with a random label."""
    rng = np.random.default_rng(0)
    _cut_truth(truth_dir, output_dir, lambda truth: (truth > 0) * rng.integers(1, 120, truth.shape))


def grid(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Cut the true tissue into upright square columns, as many as there are cells."""

    def cut(truth: Labels) -> Labels:
        footprint = (truth > 0).any(axis=0)
        side = max(2, round(float(np.sqrt(footprint.sum() / max(1, len(np.unique(truth)) - 1)))))
        y, x = np.indices(footprint.shape) // side
        return np.asarray((truth > 0) * (1 + y * (footprint.shape[1] // side + 1) + x))

    _cut_truth(truth_dir, output_dir, cut)


def even_columns(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Cut the true tissue into as many evenly spread columns as there are cells (Lloyd's algorithm in the plane)."""

    def cut(truth: Labels) -> Labels:
        points = np.argwhere((truth > 0).any(axis=0)).astype(float)
        count = len(np.unique(truth)) - 1
        centres = points[np.random.default_rng(0).choice(len(points), count, replace=False)]
        for _ in range(15):
            owner = cKDTree(centres).query(points)[1]
            sizes = np.maximum(np.bincount(owner, minlength=count), 1)
            centres = np.stack([np.bincount(owner, points[:, d], count) / sizes for d in (0, 1)], axis=1)
        plane = np.zeros(truth.shape[1:], int)
        plane[tuple(points.astype(int).T)] = 1 + cKDTree(centres).query(points)[1]
        return np.asarray((truth > 0) * plane)

    _cut_truth(truth_dir, output_dir, cut)


def tissue_mask(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Blur each stack until membranes run into each other, threshold, and hand in what is bright as one cell."""
    for path in sorted(input_dir.glob("*.tif*")):
        smooth = ndimage.gaussian_filter(tifffile.imread(path).astype(np.float32), (4, 10, 10))
        mask = smooth > smooth.mean()
        tifffile.imwrite(output_dir / f"{path.stem}_seg.tif", mask.astype(np.uint16), compression="zlib")


def everything(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Call every voxel foreground."""
    for path in sorted(input_dir.glob("*.tif*")):
        with tifffile.TiffFile(path) as file:
            shape = file.series[0].shape
        tifffile.imwrite(output_dir / f"{path.stem}_seg.tif", np.ones(shape, np.uint16), compression="zlib")


SHORTCUTS: dict[str, Callable[[Path, Path, Path], None]] = {
    "even_columns": even_columns,
    "grid": grid,
    "one_label": one_label,
    "random_labels": random_labels,
    "tissue_mask": tissue_mask,
    "everything": everything,
}
