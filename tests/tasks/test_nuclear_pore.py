"""Demo data of nuclear_pore: the published layout, and movies that are hard for the right reasons."""

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
SLUG = "nuclear_pore"
HOME = ROOT / "tasks" / SLUG
FRAME, TIME = "Time Point", "Time after anaphase onset (min)"


@pytest.fixture(scope="module")
def data(demo: Callable[[str], Any]) -> Path:
    return demo(SLUG).folder


@pytest.fixture(scope="module")
def tables(data: Path) -> dict[str, pd.DataFrame]:
    return pd.read_excel(data / "evaluation" / "processed data NUP107.xlsx", sheet_name=None)


@pytest.fixture(scope="module")
def movie(data: Path) -> np.ndarray:
    return tifffile.imread(data / "input" / "160701-Nup107-cell-1-t6.tif").astype(float)


def half_time(table: pd.DataFrame, series: str) -> float:
    column = next(name for name in table.columns if series in name)
    return float(table[TIME][table[column] > 0.5 * table[column].iloc[-5:].mean()].iloc[0])


def test_layout_is_the_published_one(data: Path, tables: dict[str, pd.DataFrame]) -> None:
    paths = sorted((data / "input").iterdir())
    assert [path.name for path in paths] == [f"160701-Nup107-cell-{n + 1}-t6.tif" for n in range(len(paths))]
    assert list(tables) == [f"160701-cell{n + 1}" for n in range(len(paths))]
    assert sum(path.stat().st_size for path in paths) < 20e6
    with tifffile.TiffFile(paths[0]) as file:
        assert file.series[0].axes == "TZCYX"
        assert file.series[0].dtype == np.uint16
        assert file.imagej_metadata["spacing"] == 1.0
        frames = file.series[0].shape[0]
    for table in tables.values():
        assert table[FRAME].tolist() == list(range(1, frames + 1))
        assert (table[TIME] == 0).sum() == 1
        assert np.diff(table[TIME]) == pytest.approx(0.5)
        assert table[table[TIME] < 0].iloc[:, 2:].isna().all(axis=None)
        assert table[table[TIME] >= 0].notna().all(axis=None)


def test_same_seed_same_bytes(load_simulator: Any, digests: Any, tmp_path: Path) -> None:
    simulator = load_simulator(SLUG)
    simulator.CELLS, simulator.FRAMES = 2, 3
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        simulator.make(tmp_path / name, seed)
    first, second, other = (digests(tmp_path / name) for name in "abc")
    assert first == second
    assert all(first[name] != other[name] for name in first)


def test_cells_and_daughters_differ_in_time(tables: dict[str, pd.DataFrame]) -> None:
    onsets = [float(table[FRAME][table[TIME] == 0].iloc[0]) for table in tables.values()]
    assert max(onsets) - min(onsets) >= 6
    rest = [half_time(table, f"NonCore_{n}") for table in tables.values() for n in (1, 2)]
    core = [half_time(table, f"InnerCore_{n}") for table in tables.values() for n in (1, 2)]
    assert max(rest) - min(rest) > 1.5
    assert np.mean(np.array(core) > np.array(rest)) > 0.8


def test_the_dna_parts_at_the_onset(movie: np.ndarray, tables: dict[str, pd.DataFrame]) -> None:
    table = tables["160701-cell1"]
    onset = int(table[FRAME][table[TIME] == 0].iloc[0]) - 1
    counts = []
    for frame in (onset - 2, onset + 1, onset + 8):
        dna = ndimage.gaussian_filter(movie[frame, :, 1], (0.5, 1.2, 1.2))
        low, high = np.percentile(dna, [50, 99.8])
        pieces, count = ndimage.label(dna > 0.5 * (low + high))
        counts.append(int((np.bincount(pieces.ravel(), minlength=count + 1)[1:] > 40).sum()))
    assert counts == [1, 2, 2]


def test_the_rim_appears_and_the_cytoplasm_is_used_up(movie: np.ndarray) -> None:
    early, late = (ndimage.gaussian_filter(movie[frame, 6, 0], 0.8) - 40.0 for frame in (0, -1))
    inside = early > 0.5 * np.percentile(early, 90)
    assert np.percentile(late, 99.5) / np.median(late[inside]) > 1.5 * np.percentile(early, 99.5) / np.median(
        early[inside]
    )
    assert np.median(late[inside]) < 0.8 * np.median(early[inside])


def test_totals_in_whole_frames_do_not_show_recruitment(movie: np.ndarray, tables: dict[str, pd.DataFrame]) -> None:
    table = tables["160701-cell1"]
    after = table[TIME] >= 0
    truth = table.filter(like="NonCore").sum(axis=1)[after]
    total = movie[:, :, 0].sum(axis=(1, 2, 3))[after.to_numpy()]
    assert np.ptp(total) / total.mean() < 0.6 * np.ptp(truth) / truth.mean()


def test_specification_and_instructions() -> None:
    spec = load_task(HOME / "task.yaml")
    check_parameters(spec.outcome, spec.deliverables)
    for level, low, high in zip(LEVELS, (120, 230), (400, 900), strict=True):
        assert low <= len(spec.body(level).split()) <= high
        text = render_instruction(spec, level, gpu=False, input_dir="/input", output_dir="/output").lower()
        for name in ("idr0115", "otsuka", "ellenberg", "score", "pearson", "biabench", "processed data"):
            assert name not in text
        assert "faces the sister" in text.replace("\n", " ").replace("  ", " ")
