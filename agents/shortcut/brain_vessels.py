"""Submissions for vessel segmentation that follow no vessel, or one animal's only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from scipy import ndimage


def _inputs(input_dir: Path) -> list[Path]:
    return sorted(path for path in input_dir.iterdir() if path.suffix.lower() in {".tif", ".tiff"})


def _truth(truth_dir: Path, stem: str) -> NDArray[Any]:
    return np.asarray(tifffile.imread(next(truth_dir.glob(f"Binary_{stem}.tif*"))))


def _write(output_dir: Path, stem: str, mask: NDArray[Any]) -> None:
    tifffile.imwrite(output_dir / f"{stem}_mask.tiff", mask.astype(np.uint8), compression="zlib")


def wide_vessels(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in only what an opening leaves of the true mask: the few wide vessels hold much of the volume."""
    ball = ndimage.generate_binary_structure(3, 1)
    for path in _inputs(input_dir):
        mask = _truth(truth_dir, path.stem) > 0
        _write(output_dir, path.stem, ndimage.binary_opening(mask, ball, iterations=3))


def another_animal(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in the true mask of the next animal."""
    paths = _inputs(input_dir)
    for path, other in zip(paths, paths[1:] + paths[:1], strict=True):
        _write(output_dir, path.stem, _truth(truth_dir, other.stem) > 0)


def one_animal(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in one true mask and toys of a wrong shape for the others, which a careless mean leaves out."""
    for index, path in enumerate(_inputs(input_dir)):
        mask = _truth(truth_dir, path.stem) > 0
        _write(output_dir, path.stem, mask if index == 0 else mask[:2, :2, :2])


def turned(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in the true masks upside down."""
    for path in _inputs(input_dir):
        _write(output_dir, path.stem, (_truth(truth_dir, path.stem) > 0)[::-1])


def bright_regions(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Blur until nothing is thin any more and hand in the brighter tenth."""
    for path in _inputs(input_dir):
        smooth = ndimage.gaussian_filter(tifffile.imread(path).astype(np.float32), (4, 8, 8))
        _write(output_dir, path.stem, smooth > np.percentile(smooth, 90))


def lattice(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in a lattice of straight tubes, as dense as the true vessels."""
    for path in _inputs(input_dir):
        truth = _truth(truth_dir, path.stem) > 0
        period = max(6, round(float(np.sqrt(3.0 * 9.0 / max(truth.mean(), 1e-3)))))
        near = [np.minimum(grid % period, -grid % period) <= 1 for grid in np.ogrid[tuple(map(slice, truth.shape))]]
        z, y, x = near
        _write(output_dir, path.stem, (z & y) | (z & x) | (y & x))


def everything(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Call every voxel a vessel."""
    for path in _inputs(input_dir):
        with tifffile.TiffFile(path) as file:
            shape = file.series[0].shape
        _write(output_dir, path.stem, np.ones(shape, np.uint8))


def soft_map(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in the grey values themselves as masks: foreground nearly everywhere if cut at 0."""
    for path in _inputs(input_dir):
        tifffile.imwrite(output_dir / f"{path.stem}_mask.tiff", tifffile.imread(path), compression="zlib")


SHORTCUTS: dict[str, Callable[[Path, Path, Path], None]] = {
    "wide_vessels": wide_vessels,
    "one_animal": one_animal,
    "bright_regions": bright_regions,
    "lattice": lattice,
    "everything": everything,
    "another_animal": another_animal,
    "turned": turned,
    "soft_map": soft_map,
}
