"""Specification, demo data and published data cannot drift apart: every file is opened and compared with task.yaml."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pytest
import tifffile
from PIL import Image

from biabench_plugin import checktask
from biabench_plugin.data.layout import DataLayout, FileGroup
from biabench_plugin.data.verify import deep
from biabench_plugin.datasets import build_demo, demo_folder
from biabench_plugin.newtask import create
from biabench_plugin.taskspec import TaskSpec, load_task, load_tasks

ROOT = Path(__file__).resolve().parents[3]
TASKS = load_tasks(ROOT / "tasks")


@pytest.mark.parametrize("slug", TASKS)
def test_demo_data_pass_the_check_of_the_published_data(
    slug: str, demo_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIABENCH_CACHE", str(demo_cache))
    spec = TASKS[slug]
    data = demo_folder(spec, 0)
    findings = list(deep(spec, data / "input", data / "evaluation", demo=True))
    assert [str(finding) for finding in findings if finding.verdict != "ok"] == []
    assert findings[-1].check == "replay"
    assert {"input"} <= {finding.check for finding in findings}


@pytest.mark.parametrize("slug", TASKS)
def test_layouts_are_complete_and_fit_the_published_sizes(slug: str) -> None:
    spec = TASKS[slug]
    assert spec.data is not None
    for field, groups in (("input", spec.data.input), ("evaluation", spec.data.evaluation)):
        raw = 0
        for group in groups:
            fixed = all(low == high for low, high in (group.count, *group.shape.values()))
            if group.kind not in ("tiff", "picture") or not fixed:
                break
            raw += group.count[0] * prod(low for low, _ in group.shape.values()) * np.dtype(group.dtype[0]).itemsize
        else:
            # stored without compression, but for these
            if raw and (slug, field) not in {("histology_nuclei", "input"), ("histology_nuclei", "evaluation")}:
                assert spec.published_bytes(field) == pytest.approx(raw, rel=0.02)


# --- faults -----------------------------------------------------------------------------------------------------------

LAYOUT = DataLayout(
    input=(
        FileGroup(
            files="*.tif", kind="tiff", count=2, shape={"z": 3, "y": [4, 5], "x": 6}, dtype="uint16",
            pixel_um={"z": 2.0, "y": 0.5, "x": 0.5}, pixel_stored=True,
        ),
        FileGroup(files="plate/*.bmp", kind="picture", count=[1, 2], shape={"y": 4, "x": 6}, dtype="uint8"),
        FileGroup(files="map.zip", kind="zip", count=1),
    ),
    evaluation=(
        FileGroup(
            files="*_seg.tif", kind="tiff", count=2, shape={"z": 3, "y": None, "x": None}, dtype=["uint16", "uint8"],
            partner="{0}.tif",
        ),
        FileGroup(files="cells.csv", kind="table", count=1, columns=["X", "Y"], rows=2),
        FileGroup(files="book.xlsx", kind="workbook", count=1, columns=["Time"]),
        FileGroup(files="notes.txt", kind="text", count=1),
    ),
)  # fmt: skip


def stack(path: Path, shape: tuple[int, ...] = (3, 4, 6), dtype: type = np.uint16, pixel: float = 0.5) -> None:
    tifffile.imwrite(
        path, np.ones(shape, dtype), imagej=True, resolution=(1 / pixel, 1 / pixel),
        metadata={"axes": "ZYX"[-len(shape) :], "unit": "um", "spacing": 2.0},
    )  # fmt: skip


def plain(path: Path, shape: tuple[int, ...] = (3, 4, 6)) -> None:
    tifffile.imwrite(path, np.ones(shape, np.uint16), photometric="minisblack")


def book(path: Path, column: str) -> None:
    made = openpyxl.Workbook()
    made.active.append([column, "other"])
    made.active.append([1, 2])
    made.save(path)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    for name in ("input/plate", "evaluation"):
        (tmp_path / "task" / name).mkdir(parents=True)
    images, truth = tmp_path / "task" / "input", tmp_path / "task" / "evaluation"
    for name in "ab":
        stack(images / f"{name}.tif")
        plain(truth / f"{name}_seg.tif")
    Image.fromarray(np.zeros((4, 6), np.uint8)).convert("P").save(images / "plate" / "1.bmp")
    with zipfile.ZipFile(images / "map.zip", "w") as archive:
        archive.writestr("x", "0123456789")
    (truth / "cells.csv").write_text("X,Y,more\n1,2,3\n4,5,6\n")
    (truth / "notes.txt").write_text("notes\n")
    book(truth / "book.xlsx", "Time")
    return tmp_path / "task"


def faults(folder: Path, layout: DataLayout = LAYOUT) -> list[str]:
    spec: TaskSpec = TASKS["cell_counting"].model_copy(update={"data": layout})
    found = deep(spec, folder / "input", folder / "evaluation", demo=False)
    return [f"{finding.check}/{finding.message}" for finding in found if finding.verdict == "FAIL"][
        :-1
    ]  # not the replay


def test_what_is_declared_is_right(good: Path) -> None:
    assert faults(good) == []


def _time_axis(folder: Path) -> None:
    tifffile.imwrite(folder / "input/a.tif", np.ones((3, 4, 6), "u2"), imagej=True, metadata={"axes": "TYX"})


def _cut(path: Path, keep: int) -> None:
    path.write_bytes(path.read_bytes()[:keep])


def _cut_block(folder: Path) -> None:
    """One raw block whose first page is whole: tifffile alone reads the page and says nothing."""
    plain(folder / "evaluation/a_seg.tif", (3, 40, 60))
    _cut(folder / "evaluation/a_seg.tif", 9000)


def _wrong_crc(folder: Path) -> None:
    path = folder / "input/map.zip"
    path.write_bytes(path.read_bytes().replace(b"0123456789", b"012345678X"))


def _ome(folder: Path) -> None:
    tifffile.imwrite(
        folder / "input/a.tif", np.ones((3, 4, 6), np.uint16), ome=True,
        metadata={"axes": "ZYX", "PhysicalSizeX": 500.0, "PhysicalSizeXUnit": "nm", "PhysicalSizeY": 0.6},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: (f / "input/b.tif").unlink(), "input/*.tif: expected 2 files, found 1"),
        (lambda f: shutil.copy(f / "input/a.tif", f / "input/c.tif"), "input/*.tif: expected 2 files, found 3"),
        (lambda f: (f / "input/readme").write_text("x"), "input/readme: task.yaml does not declare such a file"),
        (lambda f: (f / "input/deep").mkdir() or stack(f / "input/deep/a.tif"), "input/deep/a.tif: task.yaml does not"),
        (lambda f: (f / "input/plate/l.bmp").symlink_to("1.bmp"), "input/plate/l.bmp: is a link"),
        (lambda f: stack(f / "input/a.tif", (3, 6, 6)), "input/a.tif: expected 4 to 5 along y, found 6"),
        (lambda f: stack(f / "input/a.tif", (4, 6)), "input/a.tif: expected the axes zyx, found yx of lengths (4, 6)"),
        (
            _time_axis,
            "input/a.tif: expected the axes zyx, found tyx",
        ),
        (lambda f: stack(f / "input/a.tif", dtype=np.uint8), "input/a.tif: expected uint16, found uint8"),
        (lambda f: stack(f / "input/a.tif", pixel=0.65), "input/a.tif: expected 0.5 um per pixel along y, found 0.65"),
        (_ome, "input/a.tif: expected 0.5 um per pixel along y, found 0.6"),
        (
            lambda f: plain(f / "input/a.tif"),
            "input/a.tif: states no pixel size along z",
        ),
        (lambda f: _cut(f / "input/a.tif", 320), "input/a.tif: cannot be opened as tiff"),
        (
            _cut_block,
            "evaluation/a_seg.tif: cannot be opened as tiff: it is cut off: 9000 of at least",
        ),
        (lambda f: (f / "input/plate/1.bmp").write_bytes(b"BM"), "input/plate/1.bmp: cannot be opened as picture"),
        (_wrong_crc, "input/map.zip: cannot be opened as zip"),
        (
            lambda f: plain(f / "evaluation/a_seg.tif", (3, 4, 7)),
            "evaluation/a_seg.tif: differs from input/a.tif in length along x",
        ),
        (
            lambda f: (f / "evaluation/a_seg.tif").rename(f / "evaluation/q_seg.tif"),
            "evaluation/q_seg.tif: belongs to input/q.tif, which is not there",
        ),
        (
            lambda f: (f / "evaluation/cells.csv").write_text("x,Y\n1,2\n4,5\n"),
            "evaluation/cells.csv: lacks the columns X; found x, Y",
        ),
        (lambda f: (f / "evaluation/cells.csv").write_text("X,Y\n1,2\n"), "cells.csv: expected 2 rows, found 1"),
        (lambda f: book(f / "evaluation/book.xlsx", "time"), "evaluation/book.xlsx: lacks the columns Time"),
        (lambda f: (f / "evaluation/notes.txt").write_text(" \n"), "evaluation/notes.txt: cannot be opened as text"),
    ],
)  # fmt: skip
def test_each_drift_is_named(damage: Callable[[Path], Any], said: str, good: Path) -> None:
    damage(good)
    assert any(said in fault for fault in faults(good)), faults(good)


def test_clutter_is_a_warning_only(good: Path) -> None:
    (good / "input" / ".DS_Store").write_bytes(b"x")
    (good / "evaluation" / "._a_seg.tif").write_bytes(b"x")
    assert faults(good) == []


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ({"files": "*", "kind": "tiff", "count": 1}, "an image needs shape and dtype"),
        ({"files": "*", "kind": "tiff", "count": 1, "shape": {"q": 1}, "dtype": "uint8"}, "unknown axes q"),
        ({"files": "*", "kind": "text", "count": [2, 1]}, "expected a number or"),
        (
            {"files": "*", "kind": "tiff", "count": 1, "shape": {"y": 1}, "dtype": "u1", "demo": {"shape": {"x": 1}}},
            "which the published data lack",
        ),
    ],
)
def test_a_layout_that_says_nothing_sound_is_refused(group: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        FileGroup(**group)


@pytest.mark.parametrize("kind", ["artifact", "cell_counting", "instance_segmentation"])
def test_check_task_compares_the_demo_of_a_new_task(kind: str, tmp_path: Path) -> None:
    folder = create("my_study", tmp_path, kind)[0].parent
    spec = load_task(folder / "task.yaml")
    build_demo(spec, tmp_path / "data", 0)
    (finding,) = checktask._declared(spec, tmp_path / "data")
    assert (finding.verdict, finding.check) == ("ok", "layout")
    stray = tmp_path / "data" / "input" / "readme.txt"
    stray.write_text("x")
    (finding,) = checktask._declared(spec, tmp_path / "data")
    assert (finding.verdict, finding.message) == ("FAIL", "input/readme.txt: task.yaml does not declare such a file")
