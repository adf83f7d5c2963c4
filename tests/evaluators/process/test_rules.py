"""Items that files decide: each rule passes, fails or stays silent for a reason that a person would accept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

from evaluators.process.evidence import gather
from evaluators.process.rules import Case, decide
from tests.evaluators.process.runs import real_run, source

Change = Callable[[Path], object]
AXES = (
    '<g id="axes_1"><g id="matplotlib.axis_1"><g id="xtick_1"><g id="text_1"></g></g><g id="text_2"></g></g>'
    '<g id="matplotlib.axis_2"><g id="ytick_1"><g id="text_3"></g></g>{}</g></g>'
)


def write(name: str, text: str) -> Change:
    def change(submission: Path) -> None:
        (submission / name).parent.mkdir(exist_ok=True)
        (submission / name).write_text(text)

    return change


def remove(*names: str) -> Change:
    return lambda submission: [(submission / name).unlink() for name in names]


def one_label(submission: Path) -> None:
    for name in ("a", "b"):
        tifffile.imwrite(submission / f"{name}.tif", np.eye(32, dtype=np.uint16))


def jpeg_only(submission: Path) -> None:
    remove("a.tif", "b.tif", "figures/overlay.png")(submission)
    Image.new("RGB", (40, 40), "red").save(submission / "a.jpg")


def coarse(submission: Path) -> None:
    Image.effect_noise((40, 40), 50).save(submission / "figures" / "overlay.png", dpi=(72, 72))


def stack(shift: int) -> Change:
    def change(submission: Path) -> None:
        frames = np.zeros((3, 20, 20), np.uint16)
        for at in range(3):
            frames[at, 5:9, 5:9] = 1 + at * shift
        tifffile.imwrite(submission / "mask.tif", frames, photometric="minisblack")

    return change


def mosaic(compression: str) -> Change:
    pixels = np.zeros((3, 4, 32, 32), np.uint8)
    return lambda submission: tifffile.imwrite(
        submission / "stitched.tif", pixels, compression=compression, photometric="minisblack"
    )


CASES: list[tuple[int, str, Change, str | None]] = [
    (8, "histology_nuclei", lambda _: None, "pass"),
    (25, "histology_nuclei", lambda _: None, "pass"),
    (25, "histology_nuclei", write("nuclei.csv", "image,area,x_um\na,9,1\n"), None),
    (26, "histology_nuclei", lambda _: None, "pass"),
    (26, "histology_nuclei", remove("nuclei.csv"), None),  # masks alone may be all that is asked
    (26, "cell_counting", remove("nuclei.csv"), "fail"),
    (29, "histology_nuclei", lambda _: None, "pass"),
    (29, "histology_nuclei", write("nuclei.csv", "label,area_um2\n1,9\n"), None),
    (34, "histology_nuclei", write("report.md", "![Nuclei outlined on the raw image](figures/overlay.png)"), "pass"),
    (34, "histology_nuclei", write("report.md", "Done."), "fail"),
    (34, "histology_nuclei", lambda _: None, None),  # the report speaks of the figure; whether enough, a reader decides
    (34, "histology_nuclei", remove("figures/overlay.png"), "fail"),
    (35, "histology_nuclei", lambda _: None, "pass"),
    (36, "histology_nuclei", lambda _: None, "pass"),
    (36, "histology_nuclei", jpeg_only, "fail"),
    (37, "histology_nuclei", lambda _: None, "pass"),
    (37, "histology_nuclei", write("report.md", "## Method\nOtsu.\n## Result\n" + "word " * 60), None),
    (41, "histology_nuclei", lambda _: None, "pass"),
    (41, "histology_nuclei", coarse, "fail"),
    (41, "histology_nuclei", remove("figures/overlay.png"), "fail"),
    (46, "microglia", lambda _: None, "pass"),
    (46, "microglia", write("report.md", "Many cells."), None),
    (48, "microglia", write("figures/plot.svg", AXES.format('<g id="text_4"></g>')), "pass"),
    (48, "microglia", write("figures/plot.svg", AXES.format("")), None),
    (49, "microglia", write("figures/plot.svg", AXES.format('<g id="legend_1"></g>')), "pass"),
    (53, "tile_stitching", mosaic("zlib"), "pass"),
    (53, "tile_stitching", mosaic("jpeg"), "fail"),
    (65, "histology_nuclei", lambda _: None, "pass"),
    (65, "histology_nuclei", one_label, "fail"),
    (73, "microglia", lambda _: None, "pass"),
    (73, "microglia", write("report.md", "p = 0.02"), None),
    (79, "microglia", write("tests.csv", "pair,p_value\na,0.01\n"), "pass"),
    (79, "microglia", write("report.md", "No test."), None),
    (81, "microglia", write("report.md", "Cohen's d = 0.8"), "pass"),
    (93, "cell_counting", write("0.csv", "X,Y\n1,2\n"), "pass"),
    (93, "cell_counting", lambda _: None, None),
    (97, "bacteria_tracking", stack(0), "pass"),
    (97, "bacteria_tracking", stack(1), "fail"),
    (97, "repair_foci", write("tracks.csv", "track_id,frame,x\n1,0,5\n1,1,5\n2,0,9\n"), "pass"),
    (97, "repair_foci", write("tracks.csv", "track_id,frame,x\n1,0,5\n2,1,5\n"), "fail"),
    (101, "repair_foci", write("tracks.csv", "track_id,mean_speed_um_s\n1,0.5\n"), "pass"),
    (2, "histology_nuclei", lambda _: None, None),
]  # fmt: skip


@pytest.mark.parametrize(("item", "slug", "change", "verdict"), CASES)
def test_rule(item: int, slug: str, change: Change, verdict: str | None, tmp_path: Path, tasks: dict[str, Any]) -> None:
    attempt = real_run(tmp_path)
    change(attempt / "submission")
    evidence = gather(
        source(attempt, tasks[slug], input_unchanged=True, input_names=("a.tif", "folder/b.tif", "ab.txt"))
    )
    decision = decide(item, Case(evidence, tasks[slug].deliverables))
    assert (decision.verdict if decision else None) == verdict
    if decision and decision.verdict == "pass":
        assert decision.by == "rule"
        assert decision.citations
        assert all(citation.verified for citation in decision.citations)


def test_changed_input_fails(tmp_path: Path, task: Any) -> None:
    for unchanged, verdict in ((False, "fail"), (None, None)):
        evidence = gather(
            source(tmp_path if unchanged is None else real_run(tmp_path), task, input_unchanged=unchanged)
        )
        decision = decide(8, Case(evidence, task.deliverables))
        assert (decision.verdict if decision else None) == verdict
