"""Demo data: sixteen images of small or large nuclei, 160 x 160 px, and a table of what is in them.

State: outlines. The truth table is counted from the rendered outlines; the image is what a camera makes of them.
Replace this by what makes the real data hard.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tasks._optics import Blob, Camera, Objective, compete, haze, scatter, stream, uneven_light, write_csv, write_tiff

SHAPE = (160, 160)
IMAGES = 16
RADIUS = {"small": 6.0, "large": 9.5}
OBJECTIVE = Objective(na=0.75, wavelength_nm=461.0, pixel_size_um=0.5)
CAMERA = Camera(gain=1.0, offset=100.0, read_noise_e=3.0, bits=16)


def make(destination: Path, seed: int) -> None:
    """Write ``input/<name>.tif`` and ``evaluation/image_table.csv``, the same bytes for the same seed."""
    rows = []
    for index, size in enumerate(stream(seed, "sizes").permutation(list(RADIUS) * (IMAGES // 2)).tolist()):
        rng = stream(seed, "image", index)
        labels, depth = np.zeros(SHAPE, np.uint16), np.full(SHAPE, np.inf)
        centres = scatter(rng, int(rng.integers(4, 24)), [12, 12], np.array(SHAPE) - 13, spacing_px=24.0)
        for number, centre in enumerate(centres, start=1):
            nucleus = Blob.random(rng, centre, RADIUS[size] * rng.uniform(0.85, 1.15, 2), np.eye(2))
            if (place := nucleus.on(SHAPE)) is not None:
                compete(labels, depth, *place, label=number)
        photons = OBJECTIVE.blur(np.where(labels > 0, 400.0, 0.0)) + haze(SHAPE, rng, 80.0, 60.0)
        image = CAMERA.expose(photons * uneven_light(SHAPE, rng), rng)
        write_tiff(destination / "input" / f"image_{index + 1:02d}.tif", image)
        area = float(np.bincount(labels.ravel())[1:].mean())
        rows.append((f"image_{index + 1:02d}", len(centres), round(area, 2), size))
    columns = ("image", "nuclei", "mean_area_px", "size")
    write_csv(destination / "evaluation" / "image_table.csv", columns, rows)
