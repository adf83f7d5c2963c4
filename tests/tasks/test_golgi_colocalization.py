"""Demo data of golgi_colocalization: the published layout, the published pattern on every seed, and its traps."""

from __future__ import annotations

import csv
import hashlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import tifffile
from scipy import ndimage, stats

from biabench_plugin.datasets import load_simulator

ROOT = Path(__file__).resolve().parents[2]
SLUG = "golgi_colocalization"
HOME = ROOT / "tasks" / SLUG
GROUPS = ("Control", "Stage 1", "Stage 2", "Stage 3")


def _simulator() -> ModuleType:
    return load_simulator(HOME)


def _digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _truth(folder: Path) -> dict[str, float]:
    with (folder / "evaluation" / "per_cell_truth.csv").open() as handle:
        return {row["image"]: float(row["spearman_coefficient"]) for row in csv.DictReader(handle)}


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cells")
    _simulator().make(folder, 11)
    return folder


def test_a_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        module = _simulator()
        module.GROUPS = tuple(replace(group, crops=4, copies=min(group.copies, 2)) for group in module.GROUPS)
        np.random.seed(seed)  # noqa: NPY002 - global state must not matter
        module.make(tmp_path / name, seed)
    first, second, other = (_digests(tmp_path / name) for name in "abc")
    assert first == second
    assert not set(first.values()) & {value for name, value in other.items() if name.endswith(".tif")}


def test_layout_is_the_published_one(cells: Path) -> None:
    images = sorted((cells / "input").rglob("*.tif"))
    assert {path.parent.name for path in images} == set(GROUPS)
    assert set(_truth(cells)) == {path.relative_to(cells / "input").as_posix() for path in images}
    for path in images:
        image = tifffile.imread(path)
        assert image.dtype == np.uint8
        assert image.ndim == 3
        assert image.shape[2] == 3
        hours, replicate, number = path.stem.split("_")
        assert hours.endswith("h")
        assert (hours[:-1] + replicate + number).isdigit()
    assert len({tifffile.imread(path).shape for path in images}) > 20
    assert (cells / "input" / "colors.txt").is_file()
    assert sum(path.stat().st_size for path in images) < 20e6


def test_half_of_stage_1_are_copies_of_controls(cells: Path) -> None:
    digests = _digests(cells / "input")
    control = {digest for name, digest in digests.items() if name.startswith("Control")}
    stage = [digest for name, digest in digests.items() if name.startswith("Stage 1")]
    assert sum(digest in control for digest in stage) == len(stage) // 2
    truth = _truth(cells)
    by_digest = {digests[name]: value for name, value in truth.items() if name.startswith("Control")}
    copies = [name for name in truth if name.startswith("Stage 1") and digests[name] in control]
    assert all(truth[name] == by_digest[digests[name]] for name in copies)


@pytest.mark.parametrize(
    "seed", [11, pytest.param(12, marks=pytest.mark.full), pytest.param(13, marks=pytest.mark.full)]
)
def test_truth_has_the_published_pattern(seed: int, cells: Path, tmp_path: Path) -> None:
    if seed != 11:
        _simulator().make(tmp_path, seed)
        cells = tmp_path
    truth = _truth(cells)
    groups = {group: [value for name, value in truth.items() if name.split("/")[0] == group] for group in GROUPS}
    assert stats.mannwhitneyu(groups["Control"], groups["Stage 1"]).pvalue > 0.5
    assert stats.mannwhitneyu(groups["Stage 1"], groups["Stage 2"]).pvalue < 0.01
    assert stats.mannwhitneyu(groups["Stage 2"], groups["Stage 3"]).pvalue < 0.01
    assert np.median(groups["Stage 3"]) > np.median(groups["Stage 2"]) > np.median(groups["Stage 1"])


def test_brightness_does_not_tell_and_the_surroundings_inflate(cells: Path) -> None:
    truth = _truth(cells)
    late = [name for name in truth if name.startswith("Stage 3")]
    brightness = [tifffile.imread(cells / "input" / name)[..., 1].mean() for name in late]
    assert abs(stats.spearmanr(brightness, [truth[name] for name in late]).statistic) < 0.6
    for name in late[:4]:
        image = tifffile.imread(cells / "input" / name)
        whole = stats.spearmanr(image[..., 0].ravel(), image[..., 1].ravel()).statistic
        assert whole > truth[name] + 0.1


def test_the_true_outline_gives_the_true_value() -> None:
    module = _simulator()
    group = module.GROUPS[3]
    for number in range(2):
        image, true = module._crop(group, 0.4, 5, number)
        body = module.Cell.grow(module.stream(5, "cell", group.name, number)).body
        assert ndimage.label(body)[1] == 1
        measured = stats.spearmanr(image[..., 0][body], image[..., 1][body]).statistic
        assert measured == pytest.approx(true, abs=0.08)
        assert true == pytest.approx(0.4, abs=0.03)
