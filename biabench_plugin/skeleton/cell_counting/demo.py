"""Demo data: round cells in three fields and an empty one, 200 x 240 px.

State: centres and radii. Truth is the rounded centres; the image is what a camera makes of the cells, with haze, uneven
light and dirt. Replace this by what makes the real data hard.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tasks._optics import Blob, Camera, Objective, debris, haze, scatter, stream, uneven_light, write_csv, write_tiff

SHAPE = (200, 240)
CELLS_PER_FIELD = (28, 0, 6, 15)
OBJECTIVE = Objective(na=0.45, wavelength_nm=520.0, pixel_size_um=0.6)
CAMERA = Camera(gain=0.4, offset=5.0, read_noise_e=3.0, bits=8)


def make(destination: Path, seed: int) -> None:
    """Write ``input/<N>.tif`` and ``evaluation/<N>.csv``, the same bytes for the same seed on every machine."""
    order = stream(seed, "order").permutation(len(CELLS_PER_FIELD))
    for index, field in enumerate(order.tolist()):
        rng = stream(seed, "field", index)
        centres = scatter(rng, CELLS_PER_FIELD[field], [6, 6], [SHAPE[0] - 7, SHAPE[1] - 7], spacing_px=15.0)
        light = np.zeros(SHAPE)
        for centre in centres:
            cell = Blob.random(rng, centre, rng.uniform(4.0, 7.0, 2), np.eye(2))
            if (place := cell.on(SHAPE)) is not None:
                where, rho = place
                light[where] += 300.0 * rng.uniform(0.6, 1.2) * np.sqrt(np.maximum(1.0 - rho**2, 0.0))
        photons = OBJECTIVE.blur(light) + haze(SHAPE, rng, 40.0, 80.0) + debris(SHAPE, rng, 6, (0.4, 0.9), (40, 120))
        image = CAMERA.expose(photons * uneven_light(SHAPE, rng), rng)
        write_tiff(destination / "input" / f"{index}.tif", image)
        points = [(round(x), round(y)) for y, x in centres.tolist()]
        write_csv(destination / "evaluation" / f"{index}.csv", ("X", "Y"), points)
