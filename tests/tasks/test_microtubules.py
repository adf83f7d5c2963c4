"""Demo data of microtubules: the published layout and conventions, and images that are hard for the right reasons."""

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
HOME = ROOT / "tasks" / "microtubules"

Pair = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def simulator() -> ModuleType:
    return load_simulator(HOME)


@pytest.fixture(scope="module")
def demo(simulator: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("microtubules")
    simulator.make(folder, 5)
    return folder


@pytest.fixture(scope="module")
def pairs(demo: Path) -> list[Pair]:
    names = sorted(path.name.split(".")[0] for path in (demo / "input").iterdir())
    return [
        (
            tifffile.imread(demo / "input" / f"{name}.noisy.tiff"),
            tifffile.imread(demo / "evaluation" / f"{name}.binary.tiff"),
        )
        for name in names
    ]


def test_layout_is_the_published_one(demo: Path, pairs: list[Pair]) -> None:
    given = sorted(path.name for path in (demo / "input").iterdir())
    truth = sorted(path.name for path in (demo / "evaluation").iterdir())
    assert [name.split(".")[0] for name in given] == [name.split(".")[0] for name in truth]
    assert all(name.endswith(".noisy.tiff") and name.startswith("report_00") and len(name) == 22 for name in given)
    assert all(name.endswith(".binary.tiff") for name in truth)
    for image, mask in pairs:
        assert image.dtype == mask.dtype == np.uint8
        assert image.shape == mask.shape
        assert set(np.unique(mask)) == {0, 1}


def test_same_seed_same_bytes(simulator: ModuleType, tmp_path: Path) -> None:
    images, simulator.IMAGES = simulator.IMAGES, 1
    try:
        for name, seed in (("a", 3), ("b", 3), ("c", 4)):
            simulator.make(tmp_path / name, seed)
    finally:
        simulator.IMAGES = images
    first, second, other = (
        [path.read_bytes() for path in sorted((tmp_path / name).rglob("*")) if path.is_file()] for name in "abc"
    )
    assert first == second
    assert all(one != two for one, two in zip(first, other, strict=True))


def test_filaments_are_thin_long_and_in_the_middle(pairs: list[Pair]) -> None:
    for _, mask in pairs:
        assert 0.015 < mask.mean() < 0.09
        assert not mask[:20].any()
        assert not mask[:, -20:].any()
        depth = ndimage.distance_transform_edt(mask)
        assert np.median(depth[mask > 0]) < 2.0
        sizes = np.bincount(ndimage.label(mask, np.ones((3, 3)))[0].ravel())[1:]
        assert sizes.max() > 0.3 * sizes.sum()  # crossings join filaments into large pieces


def test_brightness_alone_does_not_tell_filaments_from_background(pairs: list[Pair]) -> None:
    overlap = []
    for image, mask in pairs:
        inside, outside = (
            image[mask > 0].astype(float),
            image[(mask == 0) & ndimage.binary_dilation(mask, iterations=30)],
        )
        overlap.append(np.mean(np.percentile(outside, 90) > inside))
    assert 0.2 < np.mean(overlap) < 0.7


def test_filaments_fade_toward_their_ends(simulator: ModuleType) -> None:
    profiles = [simulator._brightness(np.random.default_rng(seed), 400) for seed in range(20)]
    middle = np.mean([profile[180:220].mean() for profile in profiles])
    ends = np.mean([(profile[:10].mean() + profile[-10:].mean()) / 2 for profile in profiles])
    assert ends < 0.4 * middle


def test_truth_is_the_band_around_the_axis(simulator: ModuleType) -> None:
    path = np.column_stack((np.full(101, 50.25), np.linspace(40.0, 90.0, 101)))
    mask = simulator._truth([simulator.Filament(path, np.ones(101))])
    assert np.flatnonzero(mask[:, 60]).tolist() == [49, 50, 51]
    assert np.flatnonzero(mask[50]).tolist() == list(range(39, 92))


def test_specification_and_instructions() -> None:
    spec = load_task(HOME / "task.yaml")
    check_parameters(spec.outcome, spec.deliverables)
    for level in LEVELS:
        text = render_instruction(spec, level, gpu=False, input_dir="/input", output_dir="/output").lower()
        for name in ("micsim", "zenodo", "cytosim", "score", "dice", "biabench"):
            assert name not in text
        assert "about 3 px wide" in " ".join(text.split())  # the width is stated
