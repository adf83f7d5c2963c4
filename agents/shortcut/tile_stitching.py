"""Mosaics that no tile was registered for, and tables that no cell was measured for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from scipy import ndimage

Stack = NDArray[Any]

CHANNELS = ("Bodipy", "PanCK", "DAPI", "CD45")
FEATURES = ("Sigma", "r", "rf", "M")


def _reference(truth_dir: Path) -> Stack:
    return np.asarray(tifffile.imread(next(truth_dir.glob("*titched*.lsm"))))


def _image(output_dir: Path, stack: Stack) -> None:
    tifffile.imwrite(output_dir / "stitched_mosaic.tif", stack, imagej=True, metadata={"axes": "ZCYX"})


def _table(output_dir: Path, means: dict[tuple[str, str, str], float]) -> None:
    lines = [f"{','.join(key)},{value}" for key, value in means.items()]
    (output_dir / "summary_statistics.csv").write_text("\n".join(["population,channel,feature,mean", *lines]) + "\n")


def _true_table(truth_dir: Path, output_dir: Path, factor: float = 1.0) -> None:
    lines = (truth_dir / "reference_table_1.csv").read_text().splitlines()
    names = lines[0].split(",")
    means = {}
    for line in lines[1:]:
        row = dict(zip(names, line.split(","), strict=True))
        words = row["Feature"].split()
        if len(words) == 2:
            for population in ("WBC", "MCF7"):
                means[population, words[0], words[1]] = factor * float(row[f"{population}_Mean"])
    _table(output_dir, means)


def _plausible(output_dir: Path) -> None:
    """Write what one would guess: small cells, large cells, markers where they belong."""
    guess = {"Sigma": (50.0, 55.0), "r": (3.0, 6.0), "rf": (0.3, 0.2), "M": (1.0, 1.2)}
    means = {}
    for channel in CHANNELS:
        for feature in FEATURES:
            low, high = guess[feature]
            if channel == "CD45" and feature != "r":
                low, high = high, low
            means["WBC", channel, feature], means["MCF7", channel, feature] = low, high
    _table(output_dir, means)


def _nominal(input_dir: Path) -> Stack:
    """Put the tiles where the stage was asked to go."""
    path = next(path for path in input_dir.iterdir() if path.suffix.lower() == ".lsm")
    with tifffile.TiffFile(path) as file:
        tiles = file.series[0].asarray()
        metadata = file.lsm_metadata or {}
    places = np.asarray(metadata["TilePositions"])[:, 1::-1] / metadata["VoxelSizeX"]
    corners = np.rint(places - places.min(axis=0)).astype(int)
    height, width = corners.max(axis=0) + tiles.shape[-2:]
    canvas = np.zeros((*tiles.shape[1:3], height, width), tiles.dtype)
    for tile, (y, x) in zip(tiles, corners, strict=True):
        canvas[:, :, y : y + tile.shape[-2], x : x + tile.shape[-1]] = tile
    return canvas


def nominal_positions(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Place the tiles by the metadata, register nothing, and hand in the true table."""
    _image(output_dir, _nominal(input_dir))
    _true_table(truth_dir, output_dir)


def middle_band(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in the true canvas with nothing but the rows that the profile is taken from, and the true table."""
    truth = _reference(truth_dir)
    band = np.zeros_like(truth)
    rows = slice(truth.shape[2] // 2 - 50, truth.shape[2] // 2 + 50)
    band[:, :, rows] = truth[:, :, rows]
    _image(output_dir, band)
    _true_table(truth_dir, output_dir)


def streaks(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in the true profile of the band, drawn down the whole canvas, and the true table."""
    truth = _reference(truth_dir)
    rows = slice(truth.shape[2] // 2 - 50, truth.shape[2] // 2 + 50)
    profile = truth[:, :, rows].mean(axis=2, keepdims=True)
    _image(output_dir, np.broadcast_to(np.rint(profile), truth.shape).astype(truth.dtype))
    _true_table(truth_dir, output_dir)


def one_channel(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in the true DNA channel four times, and the true table."""
    truth = _reference(truth_dir)
    _image(output_dir, np.repeat(truth[:, 2:3], 4, axis=1))
    _true_table(truth_dir, output_dir)


def guessed_table(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Place the tiles by the metadata, and guess the means without looking at a cell."""
    _image(output_dir, _nominal(input_dir))
    _plausible(output_dir)


def equal_means(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in the true mosaic, and for both populations the same mean of the two true ones."""
    _image(output_dir, _reference(truth_dir))
    _true_table(truth_dir, output_dir)
    path = output_dir / "summary_statistics.csv"
    rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
    mean: dict[tuple[str, str], float] = {}
    for _, channel, feature, value in rows:
        mean[channel, feature] = mean.get((channel, feature), 0.0) + 0.5 * float(value)
    _table(output_dir, {(row[0], row[1], row[2]): mean[row[1], row[2]] for row in rows})


def guessed_cells(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in the true mosaic, and means guessed without looking at a cell."""
    _image(output_dir, _reference(truth_dir))
    _plausible(output_dir)


def blurred(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in the nominal mosaic blurred until misplaced tiles do not show, and a guessed table."""
    stack = ndimage.gaussian_filter(_nominal(input_dir).astype(np.float32), (0, 0, 12, 12))
    _image(output_dir, np.rint(stack).astype(np.uint16))
    _plausible(output_dir)


def right_canvas(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Hand in an empty canvas of the right size, and the true table."""
    _image(output_dir, np.zeros_like(_reference(truth_dir)))
    _true_table(truth_dir, output_dir)


SHORTCUTS: dict[str, Callable[[Path, Path, Path], None]] = {
    "middle_band": middle_band,
    "streaks": streaks,
    "equal_means": equal_means,
    "guessed_cells": guessed_cells,
    "nominal_positions": nominal_positions,
    "one_channel": one_channel,
    "guessed_table": guessed_table,
    "blurred": blurred,
    "right_canvas": right_canvas,
}
