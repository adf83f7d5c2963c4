"""Demo data of wound_healing: the published layout and conventions, and motion that texture alone shows."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import tifffile
from scipy import ndimage

from biabench_plugin.datasets import load_simulator
from biabench_plugin.taskspec import LEVELS, load_task, render_instruction
from evaluators.evaluation import check_parameters
from evaluators.metrics.kymographs import profile_free_concordance

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "tasks" / "wound_healing"


@pytest.fixture(scope="module")
def simulator() -> ModuleType:
    return load_simulator(HOME)


@pytest.fixture(scope="module")
def demo(simulator: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wound_healing")
    simulator.make(folder, 5)
    return folder


@pytest.fixture(scope="module")
def experiments(demo: Path) -> list[tuple[Path, Path]]:
    """Return input and truth of each experiment, as paths without the last part of their names."""
    stacks = sorted(demo.glob("input/*/*_image_stack.tif"))
    return [
        (stack.with_name(name), demo / "evaluation" / stack.parent.name / name)
        for stack in stacks
        for name in [stack.name.removesuffix("_image_stack.tif")]
    ]


def part(path: Path, suffix: str) -> np.ndarray:
    return tifffile.imread(path.with_name(f"{path.name}_{suffix}.tif"))


def test_layout_is_the_published_one(demo: Path, experiments: list[tuple[Path, Path]]) -> None:
    assert len(experiments) == 6
    assert sum(path.stat().st_size for path in demo.rglob("*.tif")) < 20e6
    for given, truth in experiments:
        assert given.name in given.parent.name
        stack, roi = part(given, "image_stack"), part(given, "roi")
        assert stack.dtype == roi.dtype == np.uint8
        assert stack.shape[1:] == roi.shape
        assert set(np.unique(roi)) == {0, 1}
        with tifffile.TiffFile(given.with_name(f"{given.name}_image_stack.tif")) as tiff:
            assert tiff.imagej_metadata["finterval"] == 14.5
            assert tiff.imagej_metadata["tunit"] == "min"
            per_um, of = tiff.pages[0].tags["YResolution"].value
        pixel_um = of / per_um
        assert pixel_um in (2.48, 1.758)
        table = part(truth, "speedKymograph")
        fields = part(truth, "mf_dxs"), part(truth, "mf_dys")
        assert table.dtype == fields[0].dtype == fields[1].dtype == np.float64
        assert fields[0].shape == fields[1].shape == roi.shape
        deepest = ndimage.distance_transform_edt(roi).max()
        assert len(table) == int(min(300, deepest) // math.ceil(15.0 / pixel_um))
        assert table.shape[1] <= len(stack) - 1
        assert np.isfinite(table).all()
        assert all(not field[roi == 0].any() for field in fields)


def test_both_directions_and_series_that_go_on_after_contact(experiments: list[tuple[Path, Path]]) -> None:
    tall = [roi.shape[0] > roi.shape[1] for roi in (part(given, "roi") for given, _ in experiments)]
    assert 0 < sum(tall) < len(tall)
    ended = [
        part(truth, "speedKymograph").shape[1] < len(part(given, "image_stack")) - 1 for given, truth in experiments
    ]
    assert sum(ended) < len(ended)


def test_same_seed_same_bytes(simulator: ModuleType, tmp_path: Path) -> None:
    experiments, simulator.EXPERIMENTS = simulator.EXPERIMENTS, simulator.EXPERIMENTS[2:3]
    try:
        for name, seed in (("a", 3), ("b", 3), ("c", 4)):
            simulator.make(tmp_path / name, seed)
    finally:
        simulator.EXPERIMENTS = experiments
    first, second, other = (
        [path.read_bytes() for path in sorted((tmp_path / name).rglob("*")) if path.is_file()] for name in "abc"
    )
    assert first == second
    assert all(one != two for one, two in zip(first, other, strict=True))


def test_near_the_wound_is_faster_and_a_wave_travels(experiments: list[tuple[Path, Path]]) -> None:
    tables = [part(truth, "speedKymograph") for _, truth in experiments]
    for table in tables:
        assert (table[:3].mean(axis=0) > table[10:].mean(axis=0)).all()
        assert 1.0 < table.min() < table.max() < 60.0
        profiles = table.mean(axis=1, keepdims=True) + table.mean(axis=0, keepdims=True) - table.mean()
        assert np.std(table - profiles) > 0.15 * np.std(table)  # much that no profile explains
    first = tables[0]
    for other in tables[1:]:  # and that no other experiment tells
        rows, columns = (min(pair) for pair in zip(first.shape, other.shape, strict=True))
        assert (profile_free_concordance(other[:rows, :columns], first[:rows, :columns]) or 0.0) < 0.85


def test_the_velocity_field_moves_the_texture(experiments: list[tuple[Path, Path]]) -> None:
    for given, truth in experiments:
        stack = part(given, "image_stack")[:2].astype(float)
        cells = part(given, "roi") > 0
        with tifffile.TiffFile(given.with_name(f"{given.name}_image_stack.tif")) as tiff:
            per_um, of = tiff.pages[0].tags["YResolution"].value
        shift = np.stack([part(truth, "mf_dys"), part(truth, "mf_dxs")]) * (14.5 / 60.0) * per_um / of
        assert 0.5 < np.percentile(np.hypot(*shift)[cells], 95) < 6.0
        inner = ndimage.binary_erosion(cells, iterations=8)
        inner[:8], inner[-8:], inner[:, :8], inner[:, -8:] = False, False, False, False
        flat = [frame / ndimage.gaussian_filter(frame, 12) for frame in stack]
        agreements = []
        for sign in (1.0, 0.0, -1.0):
            moved = ndimage.map_coordinates(flat[1], np.indices(cells.shape) + sign * shift, order=1, mode="nearest")
            agreements.append(np.corrcoef(flat[0][inner], moved[inner])[0, 1])
        assert agreements[0] > max(agreements[1:]) + 0.03
        assert agreements[0] > 0.5


def test_brightness_tells_neither_cells_nor_speed(experiments: list[tuple[Path, Path]]) -> None:
    for given, _ in experiments:
        frame, cells = part(given, "image_stack")[0].astype(float), part(given, "roi") > 0
        frame = frame / ndimage.gaussian_filter(frame, 30)
        inside, outside = frame[cells], frame[~cells]
        assert abs(inside.mean() - outside.mean()) < 0.3 * inside.std()
        assert inside.std() > 1.4 * outside.std()  # texture does


def test_specification_and_instructions() -> None:
    spec = load_task(HOME / "task.yaml")
    check_parameters(spec.outcome, spec.deliverables)
    for level in LEVELS:
        text = " ".join(
            render_instruction(spec, level, gpu=False, input_dir="/input", output_dir="/output").lower().split()
        )
        for name in ("gigadb", "zaritsky", "gigascience", "score", "matlab", "biabench"):
            assert name not in text
        assert "b*p < d <= (b+1)*p" in text
        assert "positive downward" in text
