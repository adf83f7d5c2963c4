"""Demo data of microglia: the published layout, and a series that is hard for the right reasons."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tifffile
from scipy import ndimage

from biabench_plugin.taskspec import LEVELS, load_task, render_instruction
from evaluators.evaluation import check_parameters

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "tasks" / "microglia"
SERIES = "input/extracted_data/Replicate 1"


@pytest.fixture(scope="module")
def data(demo: Callable[[str], Any]) -> Path:
    return demo("microglia").folder


@pytest.fixture(scope="module")
def rows(data: Path) -> pd.DataFrame:
    return pd.read_csv(data / "evaluation" / "Replicate1annotation.csv")


def image(data: Path, frame: int) -> np.ndarray:
    return tifffile.imread(data / SERIES / f"IMG_20x_{frame}.tif").astype(float)


def test_layout_is_the_published_one(data: Path, rows: pd.DataFrame) -> None:
    names = (data / SERIES / "filelist.txt").read_text().split()
    assert names[10] == "IMG_20x_10.tif"
    files = {path.relative_to(data).as_posix() for path in data.rglob("*") if path.is_file()}
    assert files == {f"{SERIES}/{name}" for name in (*names, "filelist.txt")} | {"evaluation/Replicate1annotation.csv"}
    assert sum((data / file).stat().st_size for file in files) < 20e6
    first = tifffile.imread(data / SERIES / names[0])
    assert first.dtype == np.uint16
    assert first.shape[0] != first.shape[1]  # x and y cannot be exchanged unseen
    assert list(rows.columns) == ["index", "axis-0", "axis-1", "axis-2", "label"]
    assert set(rows["axis-0"]) == set(range(len(names)))
    assert rows["axis-1"].max() < first.shape[0]
    assert rows["axis-2"].max() < first.shape[1]
    assert rows["axis-2"].max() > first.shape[0]


def test_same_seed_same_bytes(load_simulator: Any, digests: Any, tmp_path: Path) -> None:
    simulator = load_simulator("microglia")
    simulator.FRAMES = 2
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        simulator.make(tmp_path / name, seed)
    first, second, other = (digests(tmp_path / name) for name in "abc")
    assert first == second
    assert all(first[name] != other[name] for name in first if name.endswith((".tif", ".csv")))


def test_the_population_shifts_and_amoeboid_is_rare(rows: pd.DataFrame) -> None:
    shares = rows.groupby(["axis-0", "label"]).size().unstack(fill_value=0)
    shares = shares.div(shares.sum(axis=1), axis=0)
    assert shares["ramified"].iloc[0] > 0.6
    assert shares["ramified"].iloc[-1] < 0.35
    assert shares["round"].iloc[-1] - shares["round"].iloc[0] > 0.3
    assert rows.label.value_counts().idxmin() == "amoeboid"
    assert (rows.label == "amoeboid").mean() > 0.05


def test_round_cells_shine_and_the_others_are_dark(data: Path, rows: pd.DataFrame) -> None:
    values: dict[str, list[float]] = {}
    for frame in (3, 16, 26):
        picture = image(data, frame)
        relative = ndimage.uniform_filter(picture / np.median(picture), 3)
        for _, cell in rows[rows["axis-0"] == frame].iterrows():
            place = (min(int(cell["axis-1"]), picture.shape[0] - 1), min(int(cell["axis-2"]), picture.shape[1] - 1))
            values.setdefault(cell.label, []).append(float(relative[place]))
    assert np.median(values["round"]) > 1.2
    assert np.median(values["ramified"]) < 0.9
    assert np.median(values["amoeboid"]) < 1.1


def test_hard_for_the_right_reasons(data: Path, rows: pd.DataFrame) -> None:
    last = rows[rows["axis-0"] == rows["axis-0"].max()]
    places = last[["axis-1", "axis-2"]].to_numpy()
    apart = np.sqrt(((places[:, None] - places[None]) ** 2).sum(axis=2)) + 1e3 * np.eye(len(places))
    assert np.mean(apart.min(axis=0) < 22.0) > 0.15  # touching cells
    light = ndimage.gaussian_filter(np.median([image(data, t) for t in range(0, 30, 5)], axis=0), 25)
    assert light.max() > 1.12 * light.min()
    assert len(rows[rows["axis-0"] == 20]) > len(rows[rows["axis-0"] == 0])  # cells arrive


def test_specification_and_instructions() -> None:
    spec = load_task(HOME / "task.yaml")
    check_parameters(spec.outcome, spec.deliverables)
    for level, low, high in zip(LEVELS, (120, 230), (400, 900), strict=True):
        assert low <= len(spec.body(level).split()) <= high
        text = render_instruction(spec, level, gpu=False, input_dir="/input", output_dir="/output")
        for name in (
            "bbbc",
            "svensson",
            "caltech",
            "broad institute",
            "annotation.csv",
            "score",
            "F1",
            "15 px",
            "biabench",
        ):
            assert name not in text.lower()
