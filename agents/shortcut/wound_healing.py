"""Kymographs and velocities without tracking: the outcome pays for the usual shape, the strict score for motion."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from scipy import ndimage

Array = NDArray[Any]


@dataclass(frozen=True)
class _Given:
    """What the input folder holds of one experiment."""

    condition: str
    name: str
    stack: Path
    cells: NDArray[np.bool_]
    pixel_um: float
    frames: int

    @property
    def bands(self) -> int:
        """Number of rows of the kymograph."""
        deepest = float(ndimage.distance_transform_edt(self.cells).max())
        return int(min(300.0, deepest) // math.ceil(15.0 / self.pixel_um))

    def true(self, truth_dir: Path) -> Array:
        """Return the true kymograph."""
        return np.asarray(tifffile.imread(truth_dir / self.condition / f"{self.name}_speedKymograph.tif"))


def _experiments(input_dir: Path) -> Iterator[_Given]:
    for roi in sorted(input_dir.glob("*/*_roi.tif")):
        name = roi.name.removesuffix("_roi.tif")
        stack = roi.with_name(f"{name}_image_stack.tif")
        with tifffile.TiffFile(stack) as file:
            tag = file.pages[0].tags["YResolution"].value  # type: ignore[union-attr]
            frames = len(file.pages)
        yield _Given(roi.parent.name, name, stack, tifffile.imread(roi) > 0, tag[1] / tag[0], frames)


def _write(output_dir: Path, given: _Given, kymograph: Array, velocity: Array) -> None:
    folder = output_dir / given.condition
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"speedKymograph": kymograph, "mf_dys": velocity[0], "mf_dxs": velocity[1]}
    for suffix, values in parts.items():
        tifffile.imwrite(folder / f"{given.name}_{suffix}.tif", np.asarray(values, np.float32), metadata=None)


def _down_the_map(given: _Given, speed: float = 15.0) -> Array:
    """Return velocities that point to the wound everywhere, from the given mask."""
    distance = ndimage.distance_transform_edt(given.cells)
    return np.asarray(-speed * np.stack(np.gradient(distance)) * given.cells)


def mean_profiles(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Add the true mean profiles of distance and time; velocities from the distance map."""
    for given in _experiments(input_dir):
        true = given.true(truth_dir)
        _write(
            output_dir,
            given,
            np.nanmean(true, axis=1, keepdims=True) + np.nanmean(true, axis=0, keepdims=True) - np.nanmean(true),
            _down_the_map(given),
        )


def exponential(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Let the speed fall with distance as it usually does, the same at all times; velocities from the distance map."""
    for given in _experiments(input_dir):
        profile = 5.0 + 15.0 * np.exp(-np.arange(given.bands) / 4.0)
        _write(output_dir, given, np.repeat(profile[:, None], given.frames - 1, axis=1), _down_the_map(given))


def ramp(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Count the bands down; velocities from the distance map."""
    for given in _experiments(input_dir):
        profile = float(given.bands) - np.arange(given.bands)
        _write(output_dir, given, np.repeat(profile[:, None], given.frames - 1, axis=1), _down_the_map(given))


def two_cells(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Fill in two cells of the kymograph and leave the rest open; velocities from the distance map."""
    for given in _experiments(input_dir):
        kymograph = np.full((given.bands, given.frames - 1), np.nan)
        kymograph[0, 0], kymograph[-1, 0] = 2.0, 1.0
        _write(output_dir, given, kymograph, _down_the_map(given))


def tiny(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in four falling numbers and a single moving pixel."""
    for given in _experiments(input_dir):
        velocity = np.zeros((2, *given.cells.shape))
        full = _down_the_map(given)
        y, x = np.argwhere(np.hypot(*full) > 0)[0]
        velocity[:, y, x] = full[:, y, x]
        _write(output_dir, given, np.array([[4.0], [3.0], [2.0], [1.0]]), velocity)


def brightness_changes(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Take changes of brightness from frame to frame for speed, in bands of the first mask, at the usual level."""
    for given in _experiments(input_dir):
        frames = tifffile.imread(given.stack).astype(np.float32)
        patch = math.ceil(15.0 / given.pixel_um)
        band = np.ceil(ndimage.distance_transform_edt(given.cells) / patch).astype(int)
        changes = np.abs(np.diff(frames, axis=0))
        kymograph = np.stack([ndimage.mean(change, band, np.arange(1, given.bands + 1)) for change in changes], axis=1)
        _write(output_dir, given, 12.0 * kymograph / kymograph.mean(), _down_the_map(given))


def one_for_all(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in the true result of the next experiment, fitted to the size of this one."""
    all_given = list(_experiments(input_dir))
    for given, other in zip(all_given, [*all_given[1:], all_given[0]], strict=True):
        true = other.true(truth_dir)
        rows = np.minimum(np.arange(given.bands), len(true) - 1)
        columns = np.minimum(np.arange(given.frames - 1), true.shape[1] - 1)
        path = truth_dir / other.condition / other.name
        velocity = np.stack([tifffile.imread(f"{path}_mf_dys.tif"), tifffile.imread(f"{path}_mf_dxs.tif")])
        if velocity.shape[1:] != given.cells.shape:  # the wound runs the other way
            velocity = velocity[::-1].swapaxes(1, 2)
        _write(output_dir, given, true[np.ix_(rows, columns)], velocity * given.cells)


SHORTCUTS: dict[str, Callable[[Path, Path, Path], None]] = {
    "mean_profiles": mean_profiles,
    "exponential": exponential,
    "ramp": ramp,
    "brightness_changes": brightness_changes,
    "one_for_all": one_for_all,
    "two_cells": two_cells,
    "tiny": tiny,
}
