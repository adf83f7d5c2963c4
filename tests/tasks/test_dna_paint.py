"""Demo data of dna_paint: the published layout and conventions, and a movie that is hard for the right reasons."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import tifffile
from scipy import ndimage

from biabench_plugin.datasets import load_simulator
from biabench_plugin.taskspec import LEVELS, load_task, render_instruction
from evaluators.evaluation import check_parameters

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "tasks" / "dna_paint"


@pytest.fixture(scope="module")
def simulator() -> ModuleType:
    return load_simulator(HOME)


@pytest.fixture(scope="module")
def demo(simulator: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dna_paint")
    simulator.make(folder, 5)
    return folder


@pytest.fixture(scope="module")
def movie(demo: Path) -> np.ndarray:
    return tifffile.imread(demo / "input" / "DNAPAINT_substack.tiff").astype(float)


@pytest.fixture(scope="module")
def rows(demo: Path) -> np.ndarray:
    return np.loadtxt(demo / "evaluation" / "DNAPAINT_LocalizationList.txt", skiprows=1)


def test_layout_is_the_published_one(demo: Path) -> None:
    files = sorted(path.relative_to(demo).as_posix() for path in demo.rglob("*") if path.is_file())
    assert files == ["evaluation/DNAPAINT_LocalizationList.txt", "input/DNAPAINT_substack.tiff"]
    assert sum((demo / file).stat().st_size for file in files) < 20e6
    with tifffile.TiffFile(demo / files[1]) as tiff:
        assert (tiff.series[0].shape, tiff.series[0].dtype) == ((300, 144, 144), np.uint16)
        assert "resolution" not in str(tiff.pages[0].tags.get("ImageDescription", "")).lower()
    assert (demo / files[0]).read_text().startswith("frame x y intensity\n0 ")


def test_same_seed_same_bytes(simulator: ModuleType, tmp_path: Path) -> None:
    frames, simulator.FRAMES = simulator.FRAMES, 25
    try:
        for name, seed in (("a", 3), ("b", 3), ("c", 4)):
            simulator.make(tmp_path / name, seed)
    finally:
        simulator.FRAMES = frames
    first, second, other = (
        [path.read_bytes() for path in sorted((tmp_path / name).rglob("*")) if path.is_file()] for name in "abc"
    )
    assert first == second
    assert all(one != two for one, two in zip(first, other, strict=True))


def test_truth_follows_the_conventions(rows: np.ndarray) -> None:
    frames, places, greys = rows[:, 0], rows[:, 1:3], rows[:, 3]
    assert 1200 < len(rows) < 2600
    assert set(frames.astype(int)) <= set(range(300))  # from 0
    assert len(set(frames)) > 290
    assert places.min() >= 4.0
    assert places.max() <= 140.0
    assert (greys > 0).all()
    assert np.percentile(greys, 95) > 4 * np.percentile(greys, 5)
    # molecules stay for several frames: most have one within a pixel in the next frame
    stays = [np.hypot(*(places[frames == t + 1] - places[k]).T).min(initial=9) < 1 for k, t in enumerate(frames[:400])]
    assert 0.55 < np.mean(stays) < 0.95


def test_positions_count_from_the_outer_corner(movie: np.ndarray, rows: np.ndarray) -> None:
    background = np.median(movie, axis=0)
    bright = rows[np.argsort(rows[:, 3])[-60:]]
    offsets = []
    for t, x, y, _ in bright:
        row, column = int(y), int(x)  # the pixel that holds the point
        box = np.clip(movie[int(t)] - background, 0, None)[row - 3 : row + 4, column - 3 : column + 4]
        centre = ndimage.center_of_mass(box)
        offsets.append((y - (row - 3 + centre[0]), x - (column - 3 + centre[1])))
    assert np.median(offsets, axis=0) == pytest.approx([0.5, 0.5], abs=0.08)


def test_brightness_is_what_the_camera_adds_up(movie: np.ndarray, rows: np.ndarray) -> None:
    background = np.median(movie[:50], axis=0)
    early = rows[(rows[:, 0] < 50) & (rows[:, 3] > 40_000)]
    sums = []
    for t, x, y, _ in early:
        box = (movie[int(t)] - background)[int(y) - 4 : int(y) + 5, int(x) - 4 : int(x) + 5]
        sums.append(box.sum())
    assert np.median(np.array(sums) / early[:, 3]) == pytest.approx(1.0, abs=0.2)


def test_hard_for_the_right_reasons(movie: np.ndarray, rows: np.ndarray) -> None:
    # the background drifts in level and in pattern by more than the noise
    early, late = movie[:20].mean(axis=0), movie[-20:].mean(axis=0)
    noise = np.std(np.diff(movie, axis=0)) / np.sqrt(2 * 20)
    assert np.std(ndimage.gaussian_filter(early - late, 6)) > 3 * noise
    # neighbours close enough to overlap, far enough apart to be told from each other
    apart = []
    for t in range(300):
        places = rows[rows[:, 0] == t, 1:3]
        distances = np.hypot(*(places[:, None] - places[None]).T) + 99 * np.eye(len(places))
        apart += distances.min(axis=0, initial=99).tolist()
    assert 0.03 < np.mean((np.array(apart) > 2) & (np.array(apart) < 7)) < 0.4
    # dim molecules are no brighter than the haze varies: one threshold on grey values cannot do
    dim = rows[rows[:, 3] < np.percentile(rows[:, 3], 10)]
    peaks = [movie[int(t), int(y), int(x)] for t, x, y, _ in dim]
    assert np.median(peaks) < np.percentile(movie[:, 8:-8, 8:-8], 99.5)


def test_spots_that_never_blink_are_in_the_movie_and_not_in_truth(movie: np.ndarray, rows: np.ndarray) -> None:
    lasting = np.percentile(movie, 20, axis=0)
    spots = ndimage.gaussian_filter(lasting, 1.2) - ndimage.gaussian_filter(lasting, 4)
    peaks = np.argwhere((spots == ndimage.maximum_filter(spots, 7)) & (spots > 6 * np.median(np.abs(spots))))
    assert len(peaks) >= 4
    per_frame = [np.sum(np.hypot(rows[:, 1] - x - 0.5, rows[:, 2] - y - 0.5) < 1.5) / 300 for y, x in peaks]
    assert np.median(per_frame) < 0.1


def test_specification_and_instructions() -> None:
    spec = load_task(HOME / "task.yaml")
    check_parameters(spec.outcome, spec.deliverables)
    for level in LEVELS:
        text = render_instruction(spec, level, gpu=False, input_dir="/input", output_dir="/output")
        for name in ("Endesfelder", "GATTA", "Jaccard", "score", "biabench"):
            assert name.lower() not in text.lower()
        assert "0.5" in text  # the origin is stated
