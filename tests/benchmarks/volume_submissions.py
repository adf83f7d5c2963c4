"""Make, read or score submissions of published size: ``volume_submissions.py {cells,vessels,mosaic} FOLDER STEP``.

``make`` writes reference and submission, ``read`` only decodes their files, ``score`` scores; the last two print JSON.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray

from biabench_plugin.taskspec import TaskSpec, load_task
from evaluators.evaluation import evaluate

ROOT = Path(__file__).resolve().parents[2]
SLUGS = {"cells": "zebrafish_cells", "vessels": "brain_vessels", "mosaic": "tile_stitching"}


def task(kind: str) -> TaskSpec:
    folders = (ROOT / room / SLUGS[kind] for room in ("tasks", "staging"))
    return load_task(next(folder for folder in folders if folder.is_dir()) / "task.yaml")


def make_cells(folder: Path) -> None:
    """Three stacks of 150 x 1000 x 1300 voxels with about 130 cells in a tenth of the volume, and a shifted copy."""
    rng = np.random.default_rng(0)
    for index in range(3):
        seeds = rng.uniform((10, 20, 30), (40, 80, 100), (130, 3))
        z, y, x = np.ogrid[:50, :100, :130]
        nearest = np.zeros((50, 100, 130), np.uint16)
        best = np.full(nearest.shape, 90.0)  # squared radius beyond which is background
        for label, (sz, sy, sx) in enumerate(seeds, start=1):
            distance = (z - sz) ** 2 + (y - sy) ** 2 + (x - sx) ** 2
            wins = distance < best
            best[wins], nearest[wins] = np.broadcast_to(distance, best.shape)[wins], label
        labels = nearest.repeat(3, 0).repeat(10, 1).repeat(10, 2)
        stem = f"{index:010X}_8bit_lynEGFP"
        tifffile.imwrite(folder / "evaluation" / f"{stem}_seg.tif", labels, photometric="minisblack")
        tifffile.imwrite(folder / "out" / f"{stem}_seg.tif", np.roll(labels, 3, axis=2), photometric="minisblack")


def vessels(rng: np.random.Generator, shape: tuple[int, int, int]) -> NDArray[np.bool_]:
    """Random walks of balls of radius 2 to 5: some 2 % of the volume."""
    mask = np.zeros(shape, bool)
    for _ in range(260):
        radius = int(rng.choice([2, 2, 3, 3, 5]))
        grid = np.indices((2 * radius + 1,) * 3) - radius
        ball = (grid**2).sum(axis=0) <= radius**2
        steps = np.cumsum(rng.normal(0, 0.25, (500, 3)), axis=0)
        path = rng.uniform(20, 480, 3) + np.cumsum(steps / np.linalg.norm(steps, axis=1, keepdims=True), axis=0)
        for place in np.rint(path).astype(int):
            if np.all(place > radius) and np.all(place < np.array(shape) - radius - 1):
                mask[tuple(slice(p - radius, p + radius + 1) for p in place)] |= ball
    return mask


def make_vessels(folder: Path) -> None:
    """Six volumes of 501 x 500 x 500 voxels, and a copy that is shifted by a voxel."""
    for index, animal in enumerate((204, 218, 608, 640, 641, 642)):
        mask = vessels(np.random.default_rng(index), (501, 500, 500)).astype(np.uint8)
        name = f"control{animal}_r_RA"
        tifffile.imwrite(folder / "evaluation" / f"Binary_{name}.tiff", mask, photometric="minisblack")
        tifffile.imwrite(folder / "out" / f"{name}_mask.tiff", np.roll(mask, 1, axis=2), photometric="minisblack")


def make_mosaic(folder: Path) -> None:
    """A stack of 3 planes, 4 channels and 7476 x 7476 pixels with 20,000 spots, and a shifted copy."""
    rng = np.random.default_rng(0)
    size = 7476
    options = {"shape": (3, 4, size, size), "dtype": np.uint16, "imagej": True, "metadata": {"axes": "ZCYX"}}
    reference = tifffile.memmap(folder / "evaluation" / "x_Stitched.tif", **options)
    submission = tifffile.memmap(folder / "out" / "stitched_mosaic.tif", **options)
    y, x = np.indices((41, 41)) - 20
    spot = np.exp(-(x**2 + y**2) / 128.0)
    for channel in range(4):
        places = rng.integers(0, size - 41, (20_000, 2))
        for z in range(3):
            plane = np.full((size, size), 100.0, np.float32)
            for (py, px), height in zip(places, rng.uniform(100, 900, len(places)), strict=True):
                plane[py : py + 41, px : px + 41] += height * spot
            reference[z, channel] = plane.astype(np.uint16)
            submission[z, channel] = np.roll(plane, (2, -3), axis=(0, 1)).astype(np.uint16)
    keys = [(c, f) for c in ("Bodipy", "PanCK", "DAPI", "CD45") for f in ("Sigma", "r", "rf", "M")]
    rows = [f"{c} {f},1.0,0.1,{2.0 + k},0.1,3.0" for k, (c, f) in enumerate(keys)]
    table = "\n".join(["Feature,WBC_Mean,WBC_SD,MCF7_Mean,MCF7_SD,D", *rows])
    (folder / "evaluation" / "reference_table_1.csv").write_text(table)
    means = [f"{p},{c},{f},{1.0 if p == 'WBC' else 2.0 + k}" for p in ("WBC", "MCF7") for k, (c, f) in enumerate(keys)]
    (folder / "out" / "summary_statistics.csv").write_text("\n".join(["population,channel,feature,mean", *means]))


def main(kind: str, folder: Path, step: str) -> None:
    if step == "make":
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("evaluation", "out"):
            (folder / name).mkdir(parents=True)
        {"cells": make_cells, "vessels": make_vessels, "mosaic": make_mosaic}[kind](folder)
        return
    start = time.perf_counter()
    result = {}
    if step == "read":
        for path in sorted(folder.glob("*/*.tif*")):
            with tifffile.TiffFile(path) as file:
                for page in file.pages:
                    page.asarray()
    else:
        spec = task(kind)
        score = evaluate(spec.outcome, spec.deliverables, folder / "out", folder / "evaluation")
        result = {"outcome": score.outcome, "strict": score.strict, "problems": len(score.problems)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": time.perf_counter() - start, "peak_mb": peak, **result}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
