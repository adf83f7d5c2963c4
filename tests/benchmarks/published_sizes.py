"""Make, read or score submissions of published size: ``published_sizes.py TASK FOLDER STEP``.

``make`` writes reference and submission, ``read`` only decodes their files, ``score`` scores; the last two print JSON.
Volumes and the mosaic are made here, with an error put in. The other tasks start from their demo data, brought to the
published number and size of images and rows, and the submission is the replayed reference.
"""

from __future__ import annotations

import csv
import json
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from biabench_plugin.datasets import build_demo
from biabench_plugin.taskspec import TaskSpec, load_task
from evaluators.evaluation import evaluate, replay

ROOT = Path(__file__).resolve().parents[2]


def spec_of(slug: str) -> TaskSpec:
    return load_task(ROOT / "tasks" / slug / "task.yaml")


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


def images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".tif", ".tiff", ".png"))


def blank(path: Path, shape: tuple[int, ...], dtype: Any = np.uint8) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    tifffile.imwrite(path, np.zeros(shape, dtype), photometric="rgb" if shape[-1] == 3 else "minisblack")


def rows_of(path: Path) -> tuple[list[str], list[list[str]]]:
    header, *rows = csv.reader(path.read_text().splitlines())
    return header, rows


def write_rows(path: Path, header: list[str], rows: list[list[Any]]) -> None:
    path.write_text("\n".join(",".join(map(str, row)) for row in [header, *rows]) + "\n")


def grow_counting(folder: Path) -> None:
    """21 fields, up to 2,126 cells in one: 16,000 cells."""
    rng = np.random.default_rng(0)
    for index in range(21):
        blank(folder / "input" / f"{index}.tiff", (1200, 1600))
        places = np.stack(np.unravel_index(rng.choice(80 * 60, index * 2126 // 28, replace=False), (80, 60)), axis=1)
        write_rows(folder / "evaluation" / f"{index}.csv", ["X", "Y"], (places * 20 + 10).tolist())


def grow_hela(folder: Path) -> None:
    """265 images of 520 x 696 pixels, two masks each."""
    for compartment in ("nuclei_masks", "cytoplasm_masks"):
        masks = [tifffile.imread(path) for path in images(folder / "evaluation" / compartment)]
        for index in range(len(masks), 265):
            mask = np.roll(masks[index % len(masks)], 7 * index, axis=1)
            tifffile.imwrite(folder / "evaluation" / compartment / f"{2408 + index}.tif", mask)
            blank(folder / "input" / f"{2408 + index}.tif", (520, 696, 3))


def grow_histology(folder: Path) -> None:
    """Ten images of 512 x 512 pixels."""
    for organ in ("human_kidney", "human_pancreas"):
        for index in (4, 5):
            mask = tifffile.imread(folder / "evaluation" / f"{organ}_0{index - 3}.tif")
            tifffile.imwrite(folder / "evaluation" / f"{organ}_0{index}.tif", np.roll(mask, 50, axis=0))
            Image.new("RGB", (512, 512)).save(folder / "input" / f"{organ}_0{index}.png")


def grow_microglia(folder: Path) -> None:
    """60 frames of 1280 x 1080 pixels with some 58,000 cells."""
    first = folder / "input" / "extracted_data" / "Replicate 1"
    for frame in range(60):
        blank(first / f"IMG_20x_{frame}.tif", (1080, 1280), np.uint16)
    (first / "filelist.txt").write_text("".join(f"IMG_20x_{frame}.tif\n" for frame in range(60)))
    table = folder / "evaluation" / "Replicate1annotation.csv"
    header, rows = rows_of(table)
    grown = [
        [2 * float(t) + half, float(y) + dy, float(x) + dx, label]
        for _, t, y, x, label in rows
        for half in (0, 1)
        for dy in (0, 320, 640)
        for dx in (0, 384, 768)
    ]
    write_rows(table, header, [[index, *row] for index, row in enumerate(grown)])


def grow_microtubules(folder: Path) -> None:
    """16 images of 666 x 666 pixels."""
    masks = [tifffile.imread(path) for path in images(folder / "evaluation")]
    for room in ("input", "evaluation"):
        for path in images(folder / room):
            path.unlink()
    for index in range(16):
        mask = np.pad(masks[index % len(masks)], 133)
        tifffile.imwrite(folder / "evaluation" / f"report_{index:04}.binary.tiff", mask)
        blank(folder / "input" / f"report_{index:04}.noisy.tiff", mask.shape)


def grow_golgi(folder: Path) -> None:
    """214 cells in four folders."""
    table = folder / "evaluation" / "per_cell_truth.csv"
    header, rows = rows_of(table)
    counts = {"Control": 111, "Stage 1": 20, "Stage 2": 24, "Stage 3": 59}
    for condition, wanted in counts.items():
        cells = [row for row in rows if row[1] == condition]
        for index in range(len(cells), wanted):
            name = f"{condition}/99h_9_{index}.tif"
            source = tifffile.imread(folder / "input" / cells[index % len(cells)][0])
            source[0, 0, 0] = index  # no byte-identical copy
            tifffile.imwrite(folder / "input" / name, source, photometric="rgb")
            rows.append([name, condition, cells[index % len(cells)][2]])
    write_rows(table, header, rows)


def grow_wound(folder: Path) -> None:
    """Six experiments of 1024 x 1024 pixels: two float64 fields each, kymographs as published."""
    for room in ("input", "evaluation"):
        for path in images(folder / room):
            if path.stem.endswith("speedKymograph"):
                continue
            with tifffile.TiffFile(path) as file:
                data, tags = file.asarray(key=0), file.pages[0].tags  # one frame stands for the series: it is not read
                resolution = (tags["XResolution"].value, tags["YResolution"].value) if "XResolution" in tags else None
            grown = ndimage.zoom(data, (1024 / data.shape[0], 1024 / data.shape[1]), order=0)
            tifffile.imwrite(path, grown, resolution=resolution)


def grow_puncta(folder: Path) -> None:
    """60 nuclei in each of six stacks; the images are not read."""
    table = folder / "evaluation" / "cell_quants.csv"
    header, rows = rows_of(table)
    by_image: dict[str, list[list[str]]] = {}
    for row in rows:
        by_image.setdefault(row[header.index("Image name")], []).append(row)
    z, y, x = (header.index(name) for name in "zyx")
    grown = []
    for cells in by_image.values():
        for index in range(60):
            row = list(cells[index % len(cells)])
            turn = index // len(cells)
            row[0] = str(index + 1)
            row[z], row[y], row[x] = (
                str(float(row[place]) + shift)
                for place, shift in ((z, 0.0), (y, 272.0 * (turn % 4)), (x, 272.0 * (turn // 4)))
            )
            grown.append(row)
    write_rows(table, header, grown)


def as_it_is(folder: Path) -> None:
    """The demo data have the size of the published reference already."""


MAKERS: dict[str, Callable[[Path], None]] = {
    "zebrafish_cells": make_cells,
    "brain_vessels": make_vessels,
    "tile_stitching": make_mosaic,
}
GROWN: dict[str, Callable[[Path], None]] = {
    "cell_counting": grow_counting,
    "hela_segmentation": grow_hela,
    "histology_nuclei": grow_histology,
    "microglia": grow_microglia,
    "microtubules": grow_microtubules,
    "golgi_colocalization": grow_golgi,
    "wound_healing": grow_wound,
    "oncogenic_puncta": grow_puncta,
    "dna_paint": as_it_is,
    "nfkb_translocation": as_it_is,
    "repair_foci": as_it_is,
    "nuclear_pore": as_it_is,
}


def make(slug: str, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("evaluation", "out"):
        (folder / name).mkdir(parents=True)
    if slug in MAKERS:
        MAKERS[slug](folder)
        return
    spec = spec_of(slug)
    (folder / "evaluation").rmdir()
    build_demo(spec, folder, 0)
    GROWN[slug](folder)
    replay(spec.outcome, spec.deliverables, folder / "evaluation", folder / "input", folder / "out")


def decode(folder: Path) -> None:
    """Read what scoring reads: every file of reference and submission."""
    for path in sorted(path for room in ("evaluation", "out") for path in (folder / room).rglob("*") if path.is_file()):
        if path.suffix in (".tif", ".tiff"):
            with tifffile.TiffFile(path) as file:
                for page in file.pages:
                    page.asarray()
        else:
            path.read_bytes()


def main(slug: str, folder: Path, step: str) -> None:
    if step == "make":
        make(slug, folder)
        return
    start = time.perf_counter()
    result = {}
    if step == "read":
        decode(folder)
    else:
        spec = spec_of(slug)
        beside = folder / "input"
        score = evaluate(
            spec.outcome, spec.deliverables, folder / "out", folder / "evaluation", beside if beside.is_dir() else None
        )
        result = {"outcome": score.outcome, "strict": score.strict, "problems": len(score.problems)}
    seconds = time.perf_counter() - start
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(entry.ru_utime + entry.ru_stime for entry in used)
    print(json.dumps({"seconds": seconds, "cpu": cpu, "peak_mb": used[0].ru_maxrss / 1024, **result}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
