"""Draw ``docs/images/classical_failures.png``: what the agent ``classical`` misses on real images.

``python docs/build_failures.py`` needs the public image sets in ``../shared/real``, no part of the repository,
and runs the pipelines on them as ``tests/agents/classical/test_real_images.py`` does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image
from skimage.segmentation import find_boundaries

ROOT = Path(__file__).resolve().parents[1]
REAL = ROOT.parent / "shared" / "real"
PICTURE = ROOT / "docs" / "images" / "classical_failures.png"
sys.path.insert(0, str(ROOT))  # run as a script, only this folder is on the path
mpl.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402

from biabench_plugin.taskspec import load_task, render_instruction  # noqa: E402
from evaluators.metrics.points import match_points  # noqa: E402

FOUND, MISSED, EXTRA = "#0072B2", "#D55E00", "#E69F00"
Labels = NDArray[np.int64]


def run(slug: str, folder: Path) -> None:
    """Run the pipeline of a task on ``folder/input``."""
    spec = load_task(ROOT / "tasks" / slug / "task.yaml")
    rooms = [str(folder / name) for name in ("input", "output")]
    (folder / "instruction.md").write_text(
        render_instruction(spec, "brief", gpu=False, input_dir=rooms[0], output_dir=rooms[1])
    )
    subprocess.run(
        [sys.executable, "-I", "-B", str(ROOT / "agents" / "classical" / "run.py")],
        env={
            **os.environ,
            "BIABENCH_INPUT": rooms[0],
            "BIABENCH_OUTPUT": rooms[1],
            "BIABENCH_INSTRUCTION": str(folder / "instruction.md"),
        },
        check=True,
        stdout=subprocess.DEVNULL,
    )


def nuclei(folder: Path) -> tuple[NDArray[np.uint8], Labels, Labels]:
    image = tifffile.imread(REAL / "nuc2d/stardist_dsb2d/img2d.tif").astype(np.uint8)
    rgb = np.stack([image, np.zeros_like(image), image], axis=-1)
    tifffile.imwrite(folder / "input" / "2408.tif", rgb, photometric="rgb")
    run("hela_segmentation", folder)
    found = tifffile.imread(next((folder / "output").rglob("*nuclei*/*.tif")))
    truth = tifffile.imread(REAL / "nuc2d/stardist_dsb2d/mask2d.tif")
    shown = np.clip(image.astype(float) ** 0.5 * 17, 0, 255).astype(np.uint8)
    return np.stack([shown] * 3, axis=-1), truth.astype(np.int64), found.astype(np.int64)


def sections(folder: Path) -> tuple[NDArray[np.uint8], Labels, Labels]:
    """Return the image with the lowest share of nuclei found."""
    source = REAL / "he_nuclei/dsb2018_he"
    paths = sorted((source / "images").glob("*.png"))
    for number, path in enumerate(paths, start=1):
        Image.open(path).convert("RGB").save(folder / "input" / f"human_kidney_{number:02d}.png")
    run("histology_nuclei", folder)
    every = []
    for number, path in enumerate(paths, start=1):
        truth = tifffile.imread(source / "labels" / f"{path.stem}.tif").astype(np.int64)
        mask = next((folder / "output").rglob(f"*human_kidney_{number:02d}*.tif"))
        image = np.asarray(Image.open(path).convert("RGB"))
        found = tifffile.imread(mask).astype(np.int64)
        every.append((len(overlapping(truth, found)) / max(len(np.unique(truth)) - 1, 1), number, image, truth, found))
    _, _, image, truth, found = min(every, key=lambda entry: entry[:2])
    return image, truth, found


def overlapping(truth: Labels, found: Labels) -> set[int]:
    """Return the true labels that some submitted object overlaps by half of their union."""
    pairs, counts = np.unique(np.stack([truth.ravel(), found.ravel()]), axis=1, return_counts=True)
    sizes, others = np.bincount(truth.ravel()), np.bincount(found.ravel())
    return {
        int(t) for (t, f), n in zip(pairs.T, counts, strict=True) if t and f and n / (sizes[t] + others[f] - n) >= 0.5
    }


def draw_labels(axes: plt.Axes, image: NDArray[np.uint8], truth: Labels, found: Labels, title: str) -> None:
    shown = image.copy()
    hits, good = overlapping(truth, found), overlapping(found, truth)
    for labels, chosen, colour in (
        (found, [k for k in np.unique(found) if k and k not in good], EXTRA),
        (truth, [k for k in np.unique(truth) if k and k not in hits], MISSED),
        (found, sorted(good), FOUND),
    ):
        outline = find_boundaries(np.where(np.isin(labels, chosen), labels, 0), mode="inner")
        shown[outline] = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    axes.imshow(shown, interpolation="nearest")
    axes.set_title(f"{title}: {len(hits)} of {len(np.unique(truth)) - 1}", fontsize=9)


def draw_dots(axes: plt.Axes, folder: Path) -> None:
    """Draw the synthetic field with the most missed dots."""
    source = REAL / "counting/vgg_cells_synthetic"
    paths = sorted(source.glob("*cell.png"))
    for number, path in enumerate(paths):
        tifffile.imwrite(folder / "input" / f"{number}.tiff", np.asarray(Image.open(path))[..., 2])
    run("cell_counting", folder)
    every = []
    for number, path in enumerate(paths):
        table = path.with_name(path.name.replace("cell.png", "_centroids.csv"))
        truth = np.loadtxt(table, delimiter=",", skiprows=1, ndmin=2)[:, :2]
        mine = next((folder / "output").rglob(f"{number}.csv"))
        found = np.loadtxt(mine, delimiter=",", skiprows=1, ndmin=2)[:, :2]
        every.append((len(match_points(truth, found, 10.0).distances) / len(truth), number, path, truth, found))
    _, _, path, truth, found = min(every, key=lambda entry: entry[:2])
    pairs = match_points(truth, found, 10.0)
    axes.imshow(np.asarray(Image.open(path))[..., 2], cmap="gray")
    missed = np.delete(truth, pairs.truth_index, axis=0)
    extra = np.delete(found, pairs.predicted_index, axis=0)
    for points, colour in ((found[pairs.predicted_index], FOUND), (missed, MISSED), (extra, EXTRA)):
        axes.plot(*points.T, "o", mfc="none", mec=colour, ms=4, mew=1)
    axes.set_title(f"synthetic dots: {len(pairs.distances)} of {len(truth)}", fontsize=9)


def main() -> int:
    if not REAL.is_dir():
        print(f"{REAL}: the public image sets are not here", file=sys.stderr)
        return 2
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.9))
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place, name) for name in ("nuclei", "sections", "dots")]
        for folder in folders:
            (folder / "input").mkdir(parents=True)
        draw_labels(axes[0], *nuclei(folders[0]), "fluorescence nuclei")
        draw_labels(axes[1], *sections(folders[1]), "worst H&E image")
        draw_dots(axes[2], folders[2])
    for panel in axes:
        panel.set_axis_off()
    figure.text(0.5, 0.02, "blue: found · vermilion: missed · orange: no such object", ha="center", fontsize=9)
    figure.subplots_adjust(0.01, 0.08, 0.99, 0.92, 0.03)
    figure.savefig(PICTURE, dpi=130, metadata={"Software": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
