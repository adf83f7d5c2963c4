"""Demo data of nfkb_translocation: the published layout, and what makes the plate hard."""

from __future__ import annotations

import csv
import hashlib
import zipfile
from pathlib import Path
from types import ModuleType

import imagecodecs
import numpy as np
import pytest

from biabench_plugin.datasets import load_simulator

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "tasks" / "nfkb_translocation"


def _simulator() -> ModuleType:
    return load_simulator(HOME)


def _digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def plate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plate of small images."""
    folder = tmp_path_factory.mktemp("plate")
    module = _simulator()
    module.SHAPE, module.TRIES = (60, 80), 2
    module.make(folder, 11)
    return folder


def _truth(plate: Path) -> dict[str, tuple[str, float, float]]:
    with (plate / "evaluation" / "per_well_truth.csv").open() as handle:
        return {
            row["well"]: (row["cell_type"], float(row["dose"]), float(row["mean_nuc_over_cyto_ratio"]))
            for row in csv.DictReader(handle)
        }


def test_a_seed_gives_the_same_bytes(plate: Path, tmp_path: Path) -> None:
    module = _simulator()
    module.SHAPE, module.TRIES = (60, 80), 2
    np.random.seed(99)  # noqa: NPY002 - global state must not matter
    module.make(tmp_path, 11)
    assert _digests(plate) == _digests(tmp_path)


def test_layout_is_the_published_one(plate: Path) -> None:
    images = sorted((plate / "input").glob("*.Bmp"))
    assert len(images) == 192
    assert {path.name for path in images} >= {"Channel 1-01-A-01-00.Bmp", "Channel 2-96-H-12-00.Bmp"}
    pixels = imagecodecs.bmp_decode(images[0].read_bytes())
    assert pixels.dtype == np.uint8
    assert pixels.shape[:2] == (60, 80)
    with zipfile.ZipFile(plate / "input" / "BBBC014_v1_images.zip") as archive:
        assert sorted(Path(name).name for name in archive.namelist()) == [path.name for path in images]
        assert archive.read(f"BBBC014_v1_images/{images[0].name}") == images[0].read_bytes()
    others = {path.name for path in (plate / "input").iterdir()} - {path.name for path in images}
    assert len(others) == 6


def test_rows_of_a_bmp_run_upwards(tmp_path: Path) -> None:
    image = np.arange(15, dtype=np.uint8).reshape(3, 5)
    decoded = imagecodecs.bmp_decode(_simulator()._bmp(image))
    assert np.array_equal(decoded if decoded.ndim == 2 else decoded[..., 0], image)


def test_plate_map_and_truth_agree(plate: Path) -> None:
    truth = _truth(plate)
    with (plate / "input" / "BBBC014_v1_platemap_dosekey.csv").open() as handle:
        key = {f"{row['row']}{int(row['column']):02d}": row for row in csv.DictReader(handle)}
    assert len(truth) == 96
    for well, (line, dose, _) in truth.items():
        assert key[well]["cell_type"] == line == ("MCF7" if well[0] in "ABCD" else "A549")
        assert key[well]["dose"] == f"10^{dose:g}"
    listed = (plate / "input" / "BBBC014_v1_platemap_all.txt").read_text().split("\n")
    assert listed[0].startswith("DESCRIPTION")
    assert [line for line in listed[1:] if line] == [f"10^{dose:g}" for _, dose, _ in truth.values()]


@pytest.mark.parametrize("seed", range(6))
def test_lines_respond_differently_and_dip_below_the_threshold(seed: int) -> None:
    plate = _simulator()._ratios(seed)
    half = {}
    for line in ("MCF7", "A549"):
        groups: dict[float, list[float]] = {}
        for own, dose, ratio in plate.values():
            if own == line:
                groups.setdefault(dose, []).append(ratio)
        doses = sorted(groups)
        means = np.array([np.mean(groups[dose]) for dose in doses])
        assert len(doses) == 12
        assert list(np.argsort(means)) == [1, 2, 0, *range(3, 12)]  # two doses below the untreated wells, then a rise
        assert means[-1] / means[0] > 1.5
        assert 0.04 < np.mean([np.std(groups[dose], ddof=1) / np.mean(groups[dose]) for dose in doses]) < 0.15
        half[line] = np.interp(0.5 * (means[0] + means[-1]), means[3:], doses[3:])
    assert half["A549"] - half["MCF7"] > 0.4
