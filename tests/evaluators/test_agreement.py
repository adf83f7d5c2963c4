"""Two submissions of one task are compared by the task's own metric, with one of them in the place of truth."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import openpyxl
import pytest
import tifffile

from biabench_plugin.datasets import build_demo
from biabench_plugin.taskspec import TaskSpec, load_tasks
from evaluators import evaluate, replay
from evaluators.agreement import directed_agreement, measure

ROOT = Path(__file__).resolve().parents[2]
TASKS = load_tasks(ROOT / "tasks")
# large data, or the kind of another task; the others take about a second each
SLOW = {
    "brain_vessels",
    "hela_segmentation",
    "nfkb_translocation",
    "nuclear_pore",
    "oncogenic_puncta",
    "tile_stitching",
    "wound_healing",
    "zebrafish_cells",
}
SEED = 0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    built: dict[str, Path] = {}

    def get(slug: str) -> Path:
        if slug not in built:
            built[slug] = tmp_path_factory.mktemp(slug)
            build_demo(TASKS[slug], built[slug], SEED)
        return built[slug]

    return get


def perfect(spec: TaskSpec, data: Path, folder: Path) -> Path:
    folder.mkdir(parents=True)
    replay(spec.outcome, spec.deliverables, data / "evaluation", data / "input", folder)
    return folder


def damage(folder: Path) -> None:
    """Lose a part of every file: rows of tables, the lower third of images, the last rows of workbooks."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".csv", ".txt") and path.name != "res_track.txt":
            lines = path.read_text().splitlines()
            path.write_text("\n".join([lines[0], *(line for k, line in enumerate(lines[1:]) if k % 4)]) + "\n")
        elif path.suffix in (".tif", ".tiff") and path.stat().st_size:
            with tifffile.TiffFile(path) as file:
                image, imagej, axes = file.asarray(), file.is_imagej, file.series[0].axes
            image[..., -image.shape[-2] // 3 :, :] = 0
            about = {"imagej": True, "metadata": {"axes": axes}} if imagej else {}
            if axes == "TYX":
                about = {"ome": True, "metadata": {"axes": axes}}
            tifffile.imwrite(path, image, **about)
        elif path.suffix == ".xlsx":
            book = openpyxl.load_workbook(path)
            for sheet in book:
                sheet.delete_rows(sheet.max_row - 5, 5)
            book.save(path)


@pytest.mark.parametrize("slug", [pytest.param(s, marks=pytest.mark.full if s in SLOW else ()) for s in TASKS])
def test_a_replayed_truth_is_as_good_a_reference_as_truth(
    slug: str, data: Callable[[str], Path], tmp_path: Path
) -> None:
    """A damaged submission agrees with the perfect one as well as it scores."""
    spec, folder = TASKS[slug], data(slug)
    whole = perfect(spec, folder, tmp_path / "whole")
    damaged = tmp_path / "damaged"
    shutil.copytree(whole, damaged)
    damage(damaged)

    def agree(one: Path, other: Path) -> float:
        return directed_agreement(spec.outcome, spec.deliverables, one, other, folder / "input")

    assert agree(whole, whole) >= 0.999
    score = evaluate(spec.outcome, spec.deliverables, damaged, folder / "evaluation", folder / "input")
    expected = score.outcome if measure(spec.outcome.kind) == "outcome" else score.strict
    assert expected is not None
    found = agree(damaged, whole)
    assert found == pytest.approx(expected, abs=0.02)
    assert found < 0.99
