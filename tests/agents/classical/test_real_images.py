"""The classical agent on real images, laid out as the published data: what it reaches there, held by loose bounds.

The images are not part of the repository; the tests skip where ``../shared/real`` is absent.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import imageio.v3 as iio
import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray

from biabench_plugin.taskspec import load_task, render_instruction
from evaluators import OutcomeScore, evaluate
from evaluators.metrics.overlap import foreground_dice, overlap_table
from evaluators.metrics.points import match_points

ROOT = Path(__file__).resolve().parents[3]
REAL = ROOT.parent / "shared" / "real"

pytestmark = pytest.mark.skipif(not REAL.is_dir(), reason="the real image sets (../shared/real) are not here")


def run(slug: str, folder: Path) -> None:
    """Run the agent on ``folder/input`` as the harness does; its files go to ``folder/output``."""
    output, instruction = folder / "output", folder / "instruction.md"
    output.mkdir()
    spec = load_task(ROOT / "tasks" / slug / "task.yaml")
    text = render_instruction(spec, "brief", gpu=False, input_dir=str(folder / "input"), output_dir=str(output))
    instruction.write_text(text, encoding="utf-8")
    environment = {
        "PATH": os.environ["PATH"],
        "TMPDIR": str(folder),
        "BIABENCH_INPUT": str(folder / "input"),
        "BIABENCH_OUTPUT": str(output),
        "BIABENCH_INSTRUCTION": str(instruction),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-I", "-B", str(ROOT / "agents" / "classical" / "run.py")],
        env=environment,
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr


def score(slug: str, folder: Path, truth: Path) -> OutcomeScore:
    spec = load_task(ROOT / "tasks" / slug / "task.yaml")
    result = evaluate(spec.outcome, spec.deliverables, folder / "output", truth, folder / "input")
    print(f"{slug}: outcome {result.outcome:.3f}, strict {result.strict}")
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("input", "evaluation"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.mark.full
def test_fluorescence_nuclei(folder: Path) -> None:
    """Data Science Bowl nuclei as the blue channel; there is no actin image, so only nuclei are compared."""
    nuclei = tifffile.imread(REAL / "nuc2d/stardist_dsb2d/img2d.tif").astype(np.uint8)
    image = np.stack([nuclei, np.zeros_like(nuclei), nuclei], axis=-1)
    tifffile.imwrite(folder / "input" / "2408.tif", image, photometric="rgb")
    run("hela_segmentation", folder)
    found = tifffile.imread(next((folder / "output").rglob("*nuclei*/*.tif")))
    truth = tifffile.imread(REAL / "nuc2d/stardist_dsb2d/mask2d.tif").astype(np.int64)
    dice = foreground_dice(overlap_table(truth, found.astype(np.int64)))
    print(f"nuclei: Dice {dice:.3f}, {len(np.unique(found)) - 1} of {len(np.unique(truth)) - 1} objects")
    assert dice >= 0.85


@pytest.mark.full
def test_stained_sections(folder: Path) -> None:
    source = REAL / "he_nuclei/dsb2018_he"
    for number, path in enumerate(sorted((source / "images").glob("*.png")), start=1):
        iio.imwrite(folder / "input" / f"human_kidney_{number:02d}.png", iio.imread(path)[..., :3])
        labels = tifffile.imread(source / "labels" / f"{path.stem}.tif")
        tifffile.imwrite(folder / "evaluation" / f"human_kidney_{number:02d}.tif", labels)
    run("histology_nuclei", folder)
    assert score("histology_nuclei", folder, folder / "evaluation").outcome >= 0.6


@pytest.mark.full
def test_dots(folder: Path) -> None:
    for number, path in enumerate(sorted((REAL / "counting/vgg_cells_synthetic").glob("*cell.png"))):
        tifffile.imwrite(folder / "input" / f"{number}.tiff", iio.imread(path)[..., 2])
        centres = path.with_name(path.name.replace("cell.png", "_centroids.csv")).read_text()
        (folder / "evaluation" / f"{number}.csv").write_text(centres.replace("x,y", "X,Y"))
    run("cell_counting", folder)
    assert score("cell_counting", folder, folder / "evaluation").outcome >= 0.6


def test_challenge_sequence(folder: Path) -> None:
    source = REAL / "ctc/simplus_01_f09-20"
    frames = np.stack([tifffile.imread(path) for path in sorted((source / "01").glob("t*.tif"))])
    tifffile.imwrite(folder / "input" / "00.ome.tif", frames, metadata={"axes": "TYX"})
    run("bacteria_tracking", folder)
    assert score("bacteria_tracking", folder, source / "01_GT").outcome >= 0.75


def localizations(path: Path) -> NDArray[np.float64]:
    """Return frame, x, y of a submitted list; pixel centres at index + 0.5, as the contract says."""
    lines = path.read_text().splitlines()[1:]
    return np.array([[float(cell) for cell in line.split()[:3]] for line in lines])


def test_molecules(folder: Path) -> None:
    """A STORM test movie of ten frames; the 200 known places are those of its first frame, the others differ."""
    source = REAL / "smlm/storm_analysis_test"
    shutil.copy(source / "test.tif", folder / "input" / "DNAPAINT_substack.tiff")
    run("dna_paint", folder)
    found = localizations(next((folder / "output").glob("*LocalizationList*")))
    found = found[found[:, 0] == 0, 1:]
    truth = np.loadtxt(source / "ground_truth.csv", delimiter=",", skiprows=1)[:, :2] + 0.5
    truth = truth[((truth >= 4) & (truth < 252)).all(axis=1)]
    pairs = len(match_points(truth, found, 1.0).distances)
    jaccard = pairs / (len(truth) + len(found) - pairs)
    print(f"molecules: Jaccard {jaccard:.3f}, {len(truth)} places, {len(found)} found")
    assert jaccard >= 0.6


@pytest.mark.full
def test_blinks(folder: Path) -> None:
    """A simulated DNA-PAINT movie: the bright blinks that a public tool found are found here, near its places."""
    source = REAL / "smlm/picasso_dnapaint_sim"
    shutil.copy(source / "testdata.tif", folder / "input" / "DNAPAINT_substack.tiff")
    run("dna_paint", folder)
    found = localizations(next((folder / "output").glob("*LocalizationList*")))
    theirs = np.loadtxt(source / "picasso_locs_first100.csv", delimiter=",", skiprows=1)[:, :3] + (0.0, 0.5, 0.5)
    theirs = theirs[((theirs[:, 1:] >= 4) & (theirs[:, 1:] < 28)).all(axis=1)]
    matching = match_points(
        theirs[:, 1:],
        found[:, 1:],
        1.0,
        truth_groups=theirs[:, 0].astype(int),
        predicted_groups=found[:, 0].astype(int),
    )
    print(f"blinks: {len(matching.distances)} of {len(theirs)} found, {len(found)} in all")
    assert len(matching.distances) >= 0.8 * len(theirs)
