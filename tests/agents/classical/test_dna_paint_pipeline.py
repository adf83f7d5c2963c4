"""The localisation pipeline on movies made here, and on movies of other people."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile

from agents.classical._job import Job, parse_contract
from agents.classical.dna_paint import Localiser, _events, run
from evaluators.metrics.localizations import match_localizations

REAL = Path(__file__).resolve().parents[3].parent / "shared" / "real" / "smlm"
INSTRUCTION = """\
- localization_list (required, one file)
  File name: *LocalizationList*.txt
Molecules whose centre lies less than 4 px from an
edge of the image are left out.
"""


def make_movie(frames: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Blinks of a few frames on a background that rises from left to right; rows are frame, x, y, light."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:48, :48]
    light = np.zeros((frames, 48, 48)) + 30.0 + x
    light += 200.0 * np.exp(-((y - 24) ** 2 + (x - 24) ** 2) / 2.0)  # glows all the time
    rows = []
    for _ in range(frames // 4):
        start, length = rng.integers(0, frames), rng.integers(1, 6)
        py, px = rng.uniform(6.0, 41.0, 2)
        for t in range(start, min(frames, start + length)):
            photons = rng.uniform(700.0, 1500.0)
            light[t] += photons / (2 * np.pi) * np.exp(-((y - py) ** 2 + (x - px) ** 2) / 2.0)
            rows.append((t, px + 0.5, py + 0.5, photons))
    return (10 * rng.poisson(light) + 100).astype(np.uint16), np.array(rows)


def test_blinks_are_found_with_place_and_light() -> None:
    movie, rows = make_movie(120)
    spots = Localiser(movie).locate()
    found = np.column_stack((spots.x, spots.y)) + 0.5
    pairs = match_localizations(rows[:, 1:3], rows[:, 0].astype(int), found, spots.frame, 0.5)
    assert pairs.recall > 0.9
    assert pairs.precision > 0.9
    light = spots.light[pairs.predicted_index] / (10 * rows[pairs.truth_index, 3])
    assert np.median(light) == pytest.approx(1.0, abs=0.08)


def test_lasting_spots_are_no_molecules() -> None:
    movie, _ = make_movie(120)
    spots = Localiser(movie).locate()
    assert np.mean(np.hypot(spots.x - 24, spots.y - 24) < 1.0) < 0.05


def test_events_join_consecutive_frames() -> None:
    movie, _ = make_movie(80)
    spots = Localiser(movie).locate()
    lengths = _events(spots)
    assert lengths.sum() == len(spots)
    assert lengths.min() >= 1
    assert lengths.max() > 2


def test_a_broken_movie_costs_only_itself(tmp_path: Path) -> None:
    given, output = tmp_path / "input", tmp_path / "output"
    given.mkdir()
    output.mkdir()
    movie, _ = make_movie(90)
    tifffile.imwrite(given / "MOVIE_good.tiff", movie)
    tifffile.imwrite(given / "a_broken.tiff", movie, compression="zlib")
    damaged = bytearray((given / "a_broken.tiff").read_bytes())
    damaged[len(damaged) // 4 : 3 * len(damaged) // 4] = bytes(len(damaged) // 2)
    (given / "a_broken.tiff").write_bytes(damaged)
    job = Job(given, output, INSTRUCTION, parse_contract(INSTRUCTION))
    assert job.finish(run) == 0
    assert job.delivered == 1
    assert any("a_broken" in failure.item or failure.item == "pipeline" for failure in job.failures)
    table = np.loadtxt(output / "MOVIE_LocalizationList.txt", skiprows=1)
    assert table[:, 1:3].min() >= 4.0
    assert table[:, 1:3].max() <= 44.0
    report = (output / "report.md").read_text()
    assert f"{len(table)} localisations in 90 frames" in report
    assert {path.suffix for path in (output / "figures").iterdir()} == {".png", ".svg"}


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the movies of other programs in ../shared/real/smlm")
def test_emitters_of_another_simulator() -> None:
    folder = REAL / "storm_analysis_test"
    movie = tifffile.imread(folder / "test.tif")
    truth = np.genfromtxt(folder / "ground_truth.csv", delimiter=",", names=True)
    spots = Localiser(movie).locate()
    # the list holds the emitters of the first frame; every other frame has about as many elsewhere
    first = spots.take(spots.frame == 0)
    rows, found = np.column_stack((truth["x"], truth["y"])), np.column_stack((first.x, first.y))
    pairs = match_localizations(rows, np.zeros(len(rows), int), found, first.frame, 1.0)
    assert pairs.jaccard > 0.9
    assert np.bincount(spots.frame, minlength=len(movie)) == pytest.approx(200, abs=20)


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the movies of other programs in ../shared/real/smlm")
def test_bright_blinks_of_a_public_tool_are_found() -> None:
    folder = REAL / "picasso_dnapaint_sim"
    movie = tifffile.imread(folder / "testdata.tif")
    table = np.genfromtxt(folder / "picasso_locs_first100.csv", delimiter=",", names=True)
    spots = Localiser(movie).locate()
    rows = np.column_stack((table["x"], table["y"]))
    found = np.column_stack((spots.x, spots.y))
    pairs = match_localizations(rows, table["frame"].astype(int), found, spots.frame, 1.0)
    assert pairs.recall > 0.85
