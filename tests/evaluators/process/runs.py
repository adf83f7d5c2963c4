"""Small run folders, as an agent would leave them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tifffile
from PIL import Image

from agents.transcript import FILE_NAME, Step, write_transcript
from biabench_plugin.taskspec import TaskSpec
from evaluators.process.evidence import Source
from evaluators.process.judge import Run

REPORT = """# Nuclei

## Method

Images were read with tifffile at full bit depth. Nuclei were found by a local threshold of the hematoxylin channel
after a Gaussian filter of 1 pixel, parted by a watershed on the distance transform, and objects below 30 pixels removed
because no nucleus of this tissue is smaller. All images went through the same settings.

## Result

N = 12 nuclei, Mann-Whitney p = 0.02. See figures/overlay.png.
"""
SCRIPT = """import tifffile
from skimage.segmentation import watershed
image = tifffile.imread('/input/a.tif')
labels = watershed(-image)
"""


def real_run(attempt: Path) -> Path:
    """A run with labels, a table, a script, a report, figures and a transcript."""
    submission = attempt / "submission"
    for folder in (submission / "figures", submission / "scripts", attempt / "logs"):
        folder.mkdir(parents=True)
    labels = np.zeros((32, 32), np.uint16)
    labels[2:8, 2:8], labels[12:20, 12:20] = 1, 2
    for name in ("a", "b"):
        tifffile.imwrite(submission / f"{name}.tif", labels)
    (submission / "nuclei.csv").write_text("image,label,area_um2\na,1,9.0\na,2,16.0\n")
    (submission / "report.md").write_text(REPORT)
    (submission / "scripts" / "segment.py").write_text(SCRIPT)
    pixels = np.random.default_rng(0).integers(0, 255, (40, 40, 3), np.uint8)
    Image.fromarray(pixels).save(submission / "figures" / "overlay.png", dpi=(300, 300))
    steps = [
        Step(step=1, kind="message", text="I look at the images first."),
        Step(step=2, kind="tool", tool="Bash", code=SCRIPT, exit_code=0, output="saved a.tif\n"),
        Step(step=3, kind="final", text="Done."),
    ]
    write_transcript(steps, attempt / FILE_NAME)
    (attempt / "logs" / "stdout.log").write_text("done\n")
    return attempt


def empty_run(attempt: Path) -> Path:
    (attempt / "submission").mkdir(parents=True)
    return attempt


def bluff_run(attempt: Path) -> Path:
    """A report and a closing message, and nothing else."""
    (attempt / "submission").mkdir(parents=True)
    (attempt / "logs").mkdir()
    (attempt / "submission" / "report.md").write_text(REPORT)
    (attempt / "logs" / "stdout.log").write_text("The analysis is complete.\n")
    return attempt


def source(attempt: Path, task: TaskSpec, **more: object) -> Source:
    return Source(attempt, "Please segment all nuclei.", task.deliverables, **more)  # type: ignore[arg-type]


def run(attempt: Path, task: TaskSpec, **more: object) -> Run:
    return Run(
        trial="t",
        task=task.slug,
        source=source(attempt, task, **more),
        sections=task.rubric_sections,
        not_applicable=task.not_applicable,
    )
