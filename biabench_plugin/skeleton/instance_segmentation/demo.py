"""Demo data: nuclei in three fields of 200 x 240 px, with a label image each.

State: outlines. Truth is the rendered outlines; the image is what a camera makes of the nuclei, with haze and uneven
light. Replace this by what makes the real data hard.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from tasks._optics import (
    Blob,
    Camera,
    Objective,
    compete,
    haze,
    rotation_2d,
    scatter,
    smooth_field,
    stream,
    uneven_light,
    write_tiff,
)

SHAPE = (200, 240)
NUCLEI_PER_FIELD = (12, 25, 38)
OBJECTIVE = Objective(na=0.75, wavelength_nm=461.0, pixel_size_um=0.5)
CAMERA = Camera(gain=1.0, offset=100.0, read_noise_e=3.0, bits=16)


def make(destination: Path, seed: int) -> None:
    """Write ``input/<name>.tif`` and ``evaluation/nuclei_masks/<name>.tif``, the same bytes for the same seed."""
    for index, count in enumerate(NUCLEI_PER_FIELD):
        rng = stream(seed, "field", index)
        labels, depth = np.zeros(SHAPE, np.uint16), np.full(SHAPE, np.inf)
        for number, centre in enumerate(scatter(rng, count, [0, 0], np.array(SHAPE) - 1, spacing_px=17.0), start=1):
            axes = rotation_2d(float(rng.uniform(0.0, math.pi)))
            nucleus = Blob.random(rng, centre, rng.uniform(7.0, 11.0, 2), axes)
            if (place := nucleus.on(SHAPE)) is not None:
                compete(labels, depth, *place, label=number)
        brightness = rng.uniform(0.6, 1.3, count + 1) * (np.arange(count + 1) > 0)
        light = 500.0 * brightness[labels] * (1.0 + 0.15 * smooth_field(SHAPE, 4.0, rng))
        photons = OBJECTIVE.blur(light) + haze(SHAPE, rng, 80.0, 80.0)
        image = CAMERA.expose(photons * uneven_light(SHAPE, rng), rng)
        write_tiff(destination / "input" / f"field_{index + 1}.tif", image)
        write_tiff(destination / "evaluation" / "nuclei_masks" / f"field_{index + 1}.tif", labels, compression="zlib")
