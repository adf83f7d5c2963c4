"""Localisation lists that nobody measured: places without brightness, brightness without places, neither."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray
from scipy import ndimage

Rows = NDArray[np.float64]


def _true_rows(truth_dir: Path) -> Rows:
    path = next(truth_dir.glob("*LocalizationList*.txt"))
    return np.loadtxt(path, skiprows=1)


def _movie(input_dir: Path) -> NDArray[np.float64]:
    return tifffile.imread(next(input_dir.glob("*.tif*"))).astype(float)


def _write(output_dir: Path, rows: Rows) -> None:
    lines = ["frame\tx\ty\tintensity", *(f"{int(t)}\t{x:.3f}\t{y:.3f}\t{grey:.3f}" for t, x, y, grey in rows)]
    (output_dir / "DNAPAINT_LocalizationList.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def constant_intensity(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Take perfect places and give all molecules one brightness."""
    rows = _true_rows(truth_dir)
    rows[:, 3] = 1000.0
    _write(output_dir, rows)


def random_intensity(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Take perfect places and draw the brightness of each molecule."""
    rows = _true_rows(truth_dir)
    rows[:, 3] = np.random.default_rng(0).lognormal(8.0, 0.5, len(rows))
    _write(output_dir, rows)


def two_rows(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in the dimmest and the brightest molecule and nothing else."""
    rows = _true_rows(truth_dir)
    order = np.argsort(rows[:, 3])
    _write(output_dir, rows[order[[0, -1]]])


def all_sites_always(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Take perfect sites and let each of them shine in every frame, with its mean brightness."""
    rows = _true_rows(truth_dir)
    frames = int(rows[:, 0].max()) + 1
    left, sites = rows, []
    while len(left):  # rows within a pixel of one another are one site
        near = np.hypot(*(left[:, 1:3] - left[0, 1:3]).T) < 1.0
        sites.append(left[near, 1:].mean(axis=0))
        left = left[~near]
    _write(output_dir, np.concatenate([np.column_stack((np.full(len(sites), t), sites)) for t in range(frames)]))


def other_times(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Take perfect places, rates and brightness, and draw the moments: the frames of the list are permuted."""
    rows = _true_rows(truth_dir)
    frames = int(rows[:, 0].max()) + 1
    rows[:, 0] = np.random.default_rng(0).permutation(frames)[rows[:, 0].astype(int)]
    _write(output_dir, rows)


def one_picture(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Find the spots of the movie's maximum projection and report them in every frame."""
    movie = _movie(input_dir)
    picture = ndimage.gaussian_filter(movie.max(axis=0) - np.median(movie, axis=0), 1.0)
    peaks = (picture == ndimage.maximum_filter(picture, 5)) & (picture > picture.mean() + picture.std())
    y, x = np.nonzero(peaks)
    spots = np.column_stack((x + 0.5, y + 0.5, picture[peaks]))
    _write(output_dir, np.concatenate([np.column_stack((np.full(len(spots), t), spots)) for t in range(len(movie))]))


def grid(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Cover every frame with a regular grid, each point with the grey value under it."""
    movie = _movie(input_dir)
    y, x = (part.ravel() for part in np.mgrid[9 : movie.shape[1] - 8 : 18, 9 : movie.shape[2] - 8 : 18])
    blocks = [np.column_stack((np.full(len(x), t), x + 0.5, y + 0.5, frame[y, x])) for t, frame in enumerate(movie)]
    _write(output_dir, np.concatenate(blocks))


def random_points(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Draw as many places as there are molecules in each frame."""
    rows = _true_rows(truth_dir)
    shape = _movie(input_dir).shape
    rows[:, 1:3] = np.random.default_rng(0).uniform(4.0, np.array(shape[2:0:-1]) - 4.0, (len(rows), 2))
    _write(output_dir, rows)


SHORTCUTS: dict[str, Callable[[Path, Path, Path], None]] = {
    "constant_intensity": constant_intensity,
    "random_intensity": random_intensity,
    "two_rows": two_rows,
    "other_times": other_times,
    "all_sites_always": all_sites_always,
    "one_picture": one_picture,
    "grid": grid,
    "random_points": random_points,
}
