"""Make images of published size, or run a pipeline on them: ``published_inputs.py TASK FOLDER {make,run,score}``.

The three largest inputs of the suite. Stacks and movies come from the demo simulators with the published shape; stacks
beyond the first of a construct are turned copies. The mosaic is cut from the mirrored demo mosaic. ``run`` starts the
agent ``classical`` as a program and prints its seconds and its peak memory.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import tifffile

from biabench_plugin.datasets import load_simulator
from biabench_plugin.taskspec import load_task, render_instruction
from evaluators.evaluation import evaluate

ROOT = Path(__file__).resolve().parents[2]


def simulator(slug: str) -> ModuleType:
    return load_simulator(ROOT / "tasks" / slug)


def make_puncta(folder: Path) -> None:
    """27 stacks of 41 x 2 x 1072 x 1072 voxels, 5 GB: one simulated field per construct and its mirror images."""
    module = simulator("oncogenic_puncta")
    coarse = np.prod(module.SPACING)
    module.SHAPE, module.SPACING, module.FIELDS = (41, 1072, 1072), (0.2, 0.065, 0.065), 1
    for name in ("DNA_OPTICS", "GFP_OPTICS"):
        setattr(module, name, replace(getattr(module, name), pixel_size_um=0.065, z_step_um=0.2))
    paint = module.render_points  # as many photons on smaller voxels would be a dimmer droplet above the same haze
    module.render_points = lambda shape, points, weights, sigma: paint(
        shape, points, weights * coarse / np.prod(module.SPACING), sigma
    )
    module.make(folder, 0)
    table = folder / "evaluation" / "cell_quants.csv"
    header, *rows = table.read_text().splitlines()
    z_y_x = [header.split(",").index(name) for name in "zyx"]
    for path, wanted in zip(sorted(folder.glob("input/*/*.tif")), (9, 8, 10), strict=True):
        stack = tifffile.imread(path)
        mine = [row for row in rows if path.name in row]
        for number in range(1, wanted + 1):
            name = path.name.replace("Position 1.tif", f"Position {number}.tif")
            flip_y, flip_x = number % 2 == 0, number % 4 > 1
            turned = stack[:, :, :: -1 if flip_y else 1, :: -1 if flip_x else 1]
            tifffile.imwrite(
                path.with_name(name),
                np.ascontiguousarray(turned),
                imagej=True,
                resolution=(1 / 0.065, 1 / 0.065),
                metadata={"axes": "ZCYX", "unit": "um", "spacing": 0.2},
            )
            for row in mine if number > 1 else ():
                cells = row.replace("Position 1.tif", f"Position {number}.tif").split(",")
                for column, flip in zip(z_y_x[1:], (flip_y, flip_x), strict=True):
                    cells[column] = str(1071 - float(cells[column])) if flip else cells[column]
                rows.append(",".join(cells))
    table.write_text("\n".join([header, *rows]) + "\n")


def make_pores(folder: Path) -> None:
    """Five movies of 244 x 21 x 2 x 123 x 173 voxels, 2.2 GB."""
    module = simulator("nuclear_pore")
    module.SHAPE, module.FRAMES, module.CELLS = (21, 123, 173), 244, 5
    module.make(folder, 0)


def make_mosaic(folder: Path) -> None:
    """64 tiles of 3 x 4 x 1024 x 1024 pixels, 1.6 GB, about a tenth of them overlap, on a stage that jitters."""
    module = simulator("tile_stitching")
    module.make(folder, 0)
    demo = next((folder / "evaluation").glob("*_Stitched.lsm"))
    small = tifffile.imread(demo)
    for path in folder.glob("input/*"):
        path.unlink()
    step, tile, grid = 922, 1024, 8
    size = 20 + (grid - 1) * step + tile
    pad = [(0, 0), (0, 0), *((0, size - n) for n in small.shape[2:])]
    mosaic = np.pad(small, pad, mode="symmetric")
    rng = np.random.default_rng(0)
    order = [(row, column if row % 2 == 0 else grid - 1 - column) for row in range(grid) for column in range(grid)]
    places = np.asarray(order) * step + 10 + rng.integers(-7, 8, (len(order), 2))
    places -= places.min(axis=0)
    tiles = np.stack([mosaic[:, :, y : y + tile, x : x + tile] for y, x in places])
    noisy = rng.normal(0.0, 3.0, tiles.shape[1:])
    for index in range(len(tiles)):
        tiles[index] = np.clip(tiles[index] + np.roll(noisy, 37 * index, axis=-1), 0, 65535)
    nominal = np.asarray(order) * step * module.PIXEL_UM
    module.write_lsm(
        folder / "input" / f"{module.STEM.format(grid)}.lsm",
        tiles,
        channels=module.CHANNELS,
        voxel_um=(module.STEP_UM, module.PIXEL_UM, module.PIXEL_UM),
        tile_positions_um=np.column_stack([np.zeros(len(nominal)), nominal]),
    )
    end = places.max(axis=0) + tile
    demo.unlink()
    module.write_lsm(
        demo.with_name(f"{module.STEM.format(grid)}_Stitched.lsm"),
        np.ascontiguousarray(mosaic[:, :, : end[0], : end[1]]),
        channels=module.CHANNELS,
        voxel_um=(module.STEP_UM, module.PIXEL_UM, module.PIXEL_UM),
    )
    rows = [f"{index},{y:.3f},{x:.3f}" for index, (y, x) in enumerate(places)]
    (folder / "evaluation" / "tile_positions.csv").write_text("\n".join(["tile,y,x", *rows]) + "\n")


MAKERS: dict[str, Callable[[Path], None]] = {
    "oncogenic_puncta": make_puncta,
    "nuclear_pore": make_pores,
    "tile_stitching": make_mosaic,
}


def run(slug: str, folder: Path) -> dict[str, float]:
    """Run the pipeline of a task as its own program; return seconds and peak MB."""
    spec = load_task(ROOT / "tasks" / slug / "task.yaml")
    rooms = {name: str(folder / name) for name in ("input", "out")}
    text = render_instruction(spec, "brief", gpu=False, input_dir=rooms["input"], output_dir=rooms["out"])
    (folder / "instruction.md").write_text(text)
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-I", "-B", str(ROOT / "agents" / "classical" / "run.py")],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "BIABENCH_INPUT": rooms["input"],
            "BIABENCH_OUTPUT": rooms["out"],
            "BIABENCH_INSTRUCTION": str(folder / "instruction.md"),
        },
        check=True,
        stdout=subprocess.DEVNULL,
    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_mb": used.ru_maxrss / 1024,
    }


def main(slug: str, folder: Path, step: str) -> None:
    if step == "make":
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        MAKERS[slug](folder)
    elif step == "run":
        print(json.dumps(run(slug, folder)))
    else:
        spec = load_task(ROOT / "tasks" / slug / "task.yaml")
        score = evaluate(spec.outcome, spec.deliverables, folder / "out", folder / "evaluation", folder / "input")
        print(json.dumps({"outcome": score.outcome, "strict": score.strict, "problems": len(score.problems)}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
