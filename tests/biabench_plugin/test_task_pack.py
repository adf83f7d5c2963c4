"""A folder of tasks outside the suite: a tabular study in YAML is collected, rendered, run and scored."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from biabench_plugin.checktask import leaks
from biabench_plugin.taskspec import LEVELS, TaskSpec, load_tasks, render_instruction

ROOT = Path(__file__).resolve().parents[2]
PACK = ROOT / "examples" / "task_pack"
Run = Callable[..., Any]

# What an analyst would do in a few lines: flatten, threshold, count, measure, classify.
ANALYSIS = """
import csv, os
from collections import Counter
from pathlib import Path

import numpy as np
import tifffile
from scipy import ndimage

source, target = (Path(os.environ["BIABENCH_" + name]) for name in ("INPUT", "OUTPUT"))
compound = {row["well"]: row["compound"] for row in csv.DictReader((source / "plate_map.csv").open())}
flat = {}
for well in compound:
    image = ndimage.gaussian_filter(tifffile.imread(source / f"{well}.tif").astype(float), 1)
    flat[well] = image - np.percentile(image, 20)
level = 0.5 * np.percentile(np.concatenate([image.ravel() for image in flat.values()]), 98)
across = np.hypot(*np.mgrid[-4:5, -4:5]) <= 4
rows = []
for well, image in flat.items():
    mask = ndimage.binary_fill_holes(image > level)
    pieces, _ = ndimage.label(mask)
    sizes = np.bincount(pieces.ravel())[1:]
    broken = np.mean(sizes < 50) > 0.5
    if broken:
        mask = ndimage.binary_closing(np.pad(mask, 9), across)[9:-9, 9:-9] | mask
    labels, _ = ndimage.label(mask)
    areas = np.bincount(labels.ravel(), weights=(image > level).ravel())[1:]
    areas = areas[areas > 5]
    kind = "fragmented" if broken else "large" if np.median(areas) > 220 else "normal"
    rows.append((well, len(areas), round(float(areas.mean()), 1), kind))
with (target / "well_table.csv").open("w") as handle:
    csv.writer(handle).writerows([("well", "nuclei", "mean_area_px", "phenotype"), *rows])
def mean(name):
    return float(np.mean([n for well, n, *_ in rows if compound[well] == name]))
with (target / "compound_table.csv").open("w") as handle:
    writer = csv.writer(handle)
    writer.writerow(("compound", "relative_count", "phenotype"))
    for name in sorted(set(compound.values())):
        kinds = Counter(kind for well, _, _, kind in rows if compound[well] == name)
        writer.writerow((name, round(mean(name) / mean("vehicle"), 3), kinds.most_common(1)[0][0]))
"""


@pytest.fixture(scope="module")
def plate() -> TaskSpec:
    return load_tasks(PACK)["compound_plate"]


def test_the_pack_is_yaml_and_text_but_for_its_demo_data() -> None:
    for folder in PACK.iterdir():
        assert {path.name for path in folder.iterdir() if path.is_file()} == {
            "task.yaml",
            "brief.md",
            "detailed.md",
            "demo.py",
        }


@pytest.mark.parametrize("level", LEVELS)
def test_it_renders_like_a_task_of_the_suite(plate: TaskSpec, level: str) -> None:
    text = render_instruction(plate, level, gpu=False, input_dir="/input", output_dir="/output")
    assert text.startswith(plate.body(level).strip())
    for deliverable in plate.deliverables:
        assert f"- {deliverable.id} (required, one file)" in text
        assert f"Columns: {', '.join(deliverable.columns)}" in text
    assert leaks(plate, text) == []
    assert "depends" not in text


def test_it_is_collected_beside_the_suite(tmp_path: Path, run_pytest: Run) -> None:
    found = run_pytest("--collect-only", "-q", "--agent=empty", f"--tasks={PACK}", "-m", "classification", cwd=tmp_path)
    assert "compound_plate/task.yaml::empty[brief-r1]" in found.out


def test_it_runs_and_is_scored(tmp_path: Path, run_pytest: Run, plate: TaskSpec) -> None:
    (tmp_path / "analysis.py").write_text(ANALYSIS)
    done = run_pytest(
        *(f"--agent={name}" for name in ("replay", "empty", "bluff", "command")),
        f"--agent-command={sys.executable} {tmp_path / 'analysis.py'}",
        f"--tasks={PACK}",
        *("-k", "compound_plate"),
        cwd=tmp_path,
    )
    assert done.code == 1, done.out  # empty and bluff deliver nothing
    found = {name.rpartition("::")[2].partition("[")[0]: values for name, values in done.properties().items()}
    assert {name: values["status"] for name, values in found.items()} == {
        "replay": "delivered",
        "empty": "no_deliverable",
        "bluff": "no_deliverable",
        "command": "delivered",
    }
    for name, value in (("replay", 1.0), ("empty", 0.0), ("bluff", 0.0)):
        assert float(found[name]["outcome"]) == float(found[name].get("strict", "0")) == value
    assert float(found["command"]["outcome"]) == 1.0
    assert float(found["command"]["strict"]) >= 0.6

    attempt = done.campaign / "runs" / "compound_plate" / "command+brief" / "r1" / "attempt-1"
    record = json.loads((attempt / "record.json").read_text())
    assert [(item["artifact"], item["depth"]) for item in record["score"]["items"]] == [("wells", 1), ("compounds", 2)]
    assert leaks(plate, (attempt / "instruction.md").read_text()) == []
    again = scored(tmp_path, attempt / "submission", plate)
    assert again["outcome"] == float(found["command"]["outcome"])
    assert again["metrics"]["strict"] == float(found["command"]["strict"])
    assert again["metrics"]["passed_depth_2"] == 1.0


def scored(tmp_path: Path, submission: Path, plate: TaskSpec) -> dict[str, Any]:
    """Score a folder with the command, against demo data of the same seed."""
    from biabench_plugin.datasets import build_demo

    build_demo(plate, tmp_path / "data", 0)
    words = ["score", plate.dataset_id, str(submission), "--truth", str(tmp_path / "data" / "evaluation"), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "biabench_plugin.cli", *words, "--tasks", str(PACK)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
