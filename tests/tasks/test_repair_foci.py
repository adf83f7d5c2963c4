"""Demo data of repair_foci: the published layout, events without contradictions, and what makes the movies hard."""

from __future__ import annotations

import csv
import hashlib
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import tifffile

from biabench_plugin.datasets import load_simulator
from evaluators.metrics.distributions import ks_distance

ROOT = Path(__file__).resolve().parents[2]
SLUG = "repair_foci"
HOME = ROOT / "tasks" / SLUG


def _simulator() -> ModuleType:
    return load_simulator(HOME)


def _digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def movies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("movies")
    _simulator().make(folder, 11)
    return folder


def _events(folder: Path) -> list[dict[str, str]]:
    with (folder / "evaluation" / "events.csv").open() as handle:
        return list(csv.DictReader(handle))


def _frames(folder: Path, condition: str) -> list[Path]:
    base = folder / "input" / "Figure2b" / "single images movies"
    return sorted((base / f"Figure2b_{condition}.tif").iterdir())


def test_a_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        module = _simulator()
        module.CONDITIONS = tuple(
            replace(one, frames=one.frames // 2, length=(12, 14), complete=1) for one in module.CONDITIONS
        )
        np.random.seed(len(name))  # noqa: NPY002 - global state must not matter
        module.make(tmp_path / name, 3)
    assert _digests(tmp_path / "a") == _digests(tmp_path / "b")


def test_layout_is_the_published_one(movies: Path) -> None:
    for condition, count in (("siControl", 62), ("si53BP1", 48)):
        frames = _frames(movies, condition)
        assert [path.name for path in frames] == [f"T{k:05d}C01Z001.tif" for k in range(1, count + 1)]
        image = tifffile.imread(frames[5])
        assert image.dtype == np.uint8
        assert image.shape == (256, 256, 3)
        stamp = image[5:19, -70:-5]
        assert (stamp == 255).all(axis=-1).mean() > 0.1  # in all channels
        body = image[30:].astype(int)
        assert np.abs(body[..., 2] - body[..., 0]).max() <= 4  # blue is a copy of red
        assert np.corrcoef(body[..., 0].ravel(), body[..., 1].ravel())[0, 1] < 0.97
    rows = (movies / "evaluation" / "coloc_results.csv").read_text().split("\n")
    assert rows[0] == "siControl,,,si53BP1,,"
    assert rows[1].split(",")[2] == "Start normalized"
    assert sum(path.stat().st_size for path in movies.rglob("*.tif") if path.is_file()) < 20e6


def test_events_agree_with_each_other(movies: Path) -> None:
    events = _events(movies)
    with (movies / "evaluation" / "coloc_results.csv").open() as handle:
        table = list(csv.reader(handle))[2:]
    for start, condition in ((0, "siControl"), (3, "si53BP1")):
        own = [row for row in events if row["condition"] == condition]
        listed = [tuple(row[start : start + 3]) for row in table if row[start]]
        assert listed == [(row["s_phase_length_h"], row["start_coloc_h"], row["start_normalized"]) for row in own]
        assert len(own) == 25
        frames = len(_frames(movies, condition))
        for row in own:
            entry, leave, frame = (int(row[name]) for name in ("s_entry_frame", "s_exit_frame", "frame"))
            assert 1 < entry < frame < leave <= frames
            assert float(row["start_normalized"]) == pytest.approx((frame - entry) / (leave - entry), abs=1e-5)
    onsets = [
        [float(row["start_normalized"]) for row in events if row["condition"] == name]
        for name in ("siControl", "si53BP1")
    ]
    assert np.median(onsets[0]) > np.median(onsets[1]) + 0.1
    assert 0.5 < (ks_distance(*onsets) or 0.0) < 0.95


def test_both_foci_are_at_the_events_and_the_repair_spot_is_new(movies: Path) -> None:
    before, after = [], []
    for row in _events(movies):
        frames = _frames(movies, row["condition"])
        y, x, frame = round(float(row["y"])), round(float(row["x"])), int(row["frame"])
        window = np.s_[max(0, y - 1) : y + 2, max(0, x - 1) : x + 2]
        now = tifffile.imread(frames[frame - 1])[window].astype(float)
        earlier = tifffile.imread(frames[frame - 2])[window].astype(float)
        assert now[..., 0].max() > 60
        before.append(earlier[..., 1].mean())
        after.append(now[..., 1].mean())
    assert np.median(np.array(after) / np.maximum(before, 1.0)) > 1.5


def test_other_nuclei_and_spots_are_there_to_mislead() -> None:
    module = _simulator()
    for condition in module.CONDITIONS:
        nuclei = module._nuclei(condition, 11)
        phases = [(nucleus.entry, nucleus.exit) for nucleus in nuclei]
        assert sum(entry is None for entry, _ in phases) >= 1
        assert any(entry is not None and entry < 0 for entry, _ in phases)
        assert any(end is not None and end > condition.frames for _, end in phases)
        assert sum(len(nucleus.lone) for nucleus in nuclei) >= 5
        assert sum(focus.onset is None for nucleus in nuclei for focus in nucleus.foci) >= 20
    stamp = re.compile(r"^[01]{5}( [01]{5}){6}$")
    assert all(stamp.match(glyph) for glyph in module.GLYPHS.values())
