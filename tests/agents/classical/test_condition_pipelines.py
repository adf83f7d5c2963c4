"""Classical pipelines of plates, cells in conditions, and movies of foci: parts by hand, and whole small jobs."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import tifffile

from agents.classical import _figures as figures
from agents.classical import golgi_colocalization as golgi
from agents.classical import nfkb_translocation as plate
from agents.classical import repair_foci as foci
from agents.classical._job import Job
from agents.classical._pipelines import choose
from biabench_plugin.datasets import load_simulator
from biabench_plugin.taskspec import TaskSpec, load_task, render_instruction
from evaluators.evaluation import evaluate

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def coarse_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw figures at few dots per inch, which takes a tenth of the time."""
    monkeypatch.setattr(figures, "DPI", 40)


def _home(slug: str) -> Path:
    return ROOT / "tasks" / slug


def _simulator(slug: str) -> ModuleType:
    return load_simulator(_home(slug))


def _job(slug: str, data: Path) -> tuple[Job, TaskSpec]:
    task, output = load_task(_home(slug) / "task.yaml"), data / "output"
    text = render_instruction(task, "brief", gpu=False, input_dir=str(data / "input"), output_dir=str(output))
    (data / "instruction.md").write_text(text, encoding="utf-8")
    names = {"INPUT": data / "input", "OUTPUT": output, "INSTRUCTION": data / "instruction.md"}
    job = Job.from_environment({f"BIABENCH_{name}": str(path) for name, path in names.items()})
    assert choose(job) == slug
    return job, task


def _run(slug: str, data: Path, run: Callable[[Job], None]) -> tuple[Job, TaskSpec]:
    job, task = _job(slug, data)
    run(job)
    report = (data / "output" / "report.md").read_text(encoding="utf-8")
    for heading in ("## Question", "## Result", "## Method", "## Quality control", "## Caveats"):
        assert heading in report
    return job, task


# --- plate ----------------------------------------------------------------------------------------------------------


def test_doses_and_wells_are_read_from_the_plate_map(tmp_path: Path) -> None:
    assert plate.parse_dose("10^-7.5") == -7.5
    assert plate.parse_dose("1e-9") == pytest.approx(-9.0)
    assert plate.parse_dose("0") == -math.inf
    assert plate.parse_dose("none") is None
    (tmp_path / "notes.csv").write_text("a,b\n1,2\n")
    (tmp_path / "map.csv").write_text("Row,Column,Dose,Cell Type\nB,2,10^-8,X\nA,1,10^-7,Y\n\n")
    wells, name = plate.read_plate_map(tmp_path)
    assert name == "map.csv"
    assert wells == [plate.Well("A01", "Y", -7.0), plate.Well("B02", "X", -8.0)]
    (tmp_path / "map.csv").unlink()
    with pytest.raises(ValueError, match="no plate map"):
        plate.read_plate_map(tmp_path)


def test_a_ratio_is_measured_inside_the_cell_and_without_background() -> None:
    y, x = np.mgrid[:80, :80]
    distance = np.hypot(y - 40, x - 40)
    dna = (20.0 + 100.0 * (distance < 8)).astype(np.float32)
    factor = (30.0 + 40.0 * (distance < 20) + 40.0 * (distance < 8)).astype(np.float32)
    cells = plate.measure(plate.Well("A01", "X", -7.0), dna, factor, 8.0)
    assert len(cells.ratios) == 1
    assert cells.ratios[0] == pytest.approx(2.0, abs=0.05)
    assert cells.nucleus_area[0] == pytest.approx(math.pi * 64, rel=0.1)
    assert cells.kept[0]


def test_cells_far_off_the_others_are_left_out() -> None:
    values = np.array([1.0, 1.1, 0.9, 1.05, 0.95, 4.0, np.nan])
    kept = plate.within_spread(values, np.array([True] * 6 + [False]))
    assert kept.tolist() == [True] * 5 + [False] * 2


def test_a_small_plate_with_a_broken_image(tmp_path: Path) -> None:
    module = _simulator("nfkb_translocation")
    module.SHAPE, module.TRIES = (70, 90), 2
    module.make(tmp_path, 21)
    (tmp_path / "input" / "Channel 1-14-B-02-00.Bmp").write_bytes(b"BM")
    job, task = _run("nfkb_translocation", tmp_path, plate.run)
    assert [failure.item for failure in job.failures] == ["B02"]
    assert job.delivered == 95
    result = evaluate(task.outcome, task.deliverables, tmp_path / "output", tmp_path / "evaluation", tmp_path / "input")
    assert result.metrics["wells_scored"] == 95
    assert {problem.code for problem in result.problems} == {"invalid_ratio"}
    assert result.metrics["A549_score"] > 0.85
    assert result.metrics["A549_control_vs_treated"] > 0.9


# --- cells in conditions --------------------------------------------------------------------------------------------


def test_conditions_begin_with_the_control() -> None:
    assert golgi.in_order({"Stage 10", "Stage 2", "Control"}) == ["Control", "Stage 2", "Stage 10"]


def test_the_outline_lies_at_half_height_and_leaves_a_neighbour_out() -> None:
    y, x = np.mgrid[:120, :160]
    cell = np.hypot(y - 60, x - 65) < 45
    other = np.hypot(y - 60, x - 160) < 40
    rng = np.random.default_rng(0)
    light = 60.0 * golgi.ndi.gaussian_filter((cell | other).astype(float), 1.0) + 3.0
    image = np.stack([rng.poisson(light * weight) for weight in (1.0, 0.4, 0.7)], axis=-1).astype(np.uint8)
    mask = golgi.outline_of_cell(image)
    assert (mask & cell).sum() / (mask | cell).sum() > 0.95


def test_holm_by_hand() -> None:
    groups = {"a": np.arange(8.0), "b": np.arange(8.0) + 20, "c": np.arange(8.0) + 0.5}
    tests = golgi.compare(groups)
    raw = sorted(test.p for test in tests)
    assert [test.consecutive for test in tests] == [True, False, True]
    assert sorted(test.corrected for test in tests)[0] == pytest.approx(3 * raw[0])
    assert max(test.corrected for test in tests) == pytest.approx(max(raw))
    assert tests[0].effect == 1.0


def test_a_small_set_of_cells_with_a_broken_image(tmp_path: Path) -> None:
    module = _simulator("golgi_colocalization")
    module.GROUPS = tuple(replace(group, crops=7, copies=min(group.copies, 2)) for group in module.GROUPS)
    module.make(tmp_path, 21)
    broken = sorted((tmp_path / "input" / "Stage 3").glob("*.tif"))[0]
    broken.write_bytes(b"II*\0")
    job, task = _run("golgi_colocalization", tmp_path, golgi.run)
    assert [failure.item for failure in job.failures] == [f"Stage 3/{broken.name}"]
    assert job.delivered == 27
    report = (tmp_path / "output" / "report.md").read_text(encoding="utf-8")
    assert "2 images are copies of others" in report
    result = evaluate(task.outcome, task.deliverables, tmp_path / "output", tmp_path / "evaluation", tmp_path / "input")
    assert result.metrics["direction_score"] == 1.0
    assert result.metrics["strict_closeness"] > 0.8
    with (tmp_path / "output" / "colocalization_results.csv").open() as handle:
        rows = {row["image"]: row["spearman_coefficient"] for row in csv.DictReader(handle)}
    assert rows[f"Stage 3/{broken.name}"] == ""
    assert len(rows) == 28


# --- movies of foci -------------------------------------------------------------------------------------------------


def test_the_width_of_the_field_gives_the_pixel_size() -> None:
    assert foci.pixel_size("The whole field is 108 µm wide.", 1000) == pytest.approx(0.108)
    assert foci.pixel_size("Nothing is said.", 1000) is None


def test_spots_are_located_to_a_fraction_of_a_pixel() -> None:
    y, x = np.mgrid[:40, :40]
    image = 10.0 + 80.0 * np.exp(-((y - 20.3) ** 2 + (x - 14.7) ** 2) / (2 * 1.3**2))
    spots, homes = foci.find_spots(foci.response(image, 1.3), np.ones((40, 40), np.int32), 5.0)
    assert homes.tolist() == [1]
    assert spots[0, :2] == pytest.approx([20.3, 14.7], abs=0.1)


def _nucleus(grain: list[float]) -> foci.Nucleus:
    nucleus = foci.Nucleus(1)
    nucleus.grain = dict(enumerate(grain))
    nucleus.centres = {t: np.array([20.0, 20.0 + t]) for t in range(len(grain))}
    return nucleus


def test_s_phase_is_the_lasting_punctate_period() -> None:
    quiet, loud = [0.20, 0.21, 0.19, 0.20, 0.21, 0.20], [0.4] * 9
    nucleus = _nucleus([*quiet, 0.30, *loud, 0.29, *quiet])
    foci.find_s_phase(nucleus, 0.32, 23)
    assert (nucleus.entry, nucleus.exit) == (6, 17)  # the frames in which foci gather and fade belong to it
    for grain, reason in (
        ([*loud, *quiet], "from the first frame"),
        ([*quiet, *loud], "to the last frame"),
        (quiet * 3, "never"),
    ):
        cut = _nucleus(grain)
        foci.find_s_phase(cut, 0.32, len(grain))
        assert cut.entry is None
        assert reason in cut.reason


def test_an_event_is_a_repair_focus_that_joins_and_stays() -> None:
    nucleus = _nucleus([0.4] * 12)
    nucleus.entry, nucleus.exit = 0, 12

    def spots(*columns: float, t: int) -> np.ndarray:
        return np.array([[20.0, t + column, 50.0] for column in columns]).reshape(-1, 3)

    # foci at 10, 20 and 30; repair foci: one joins at 5, one passes by at 4, one was there before
    nucleus.red = {t: spots(10, 20, *((30,) if t >= 3 else ()), t=t) for t in range(12)}
    nucleus.green = {t: spots(*((10,) if t >= 5 else ()), *((20,) if t == 4 else ()), 30, t=t) for t in range(12)}
    nucleus.tracks = foci.follow(nucleus, 3.0)
    foci.find_onsets(nucleus, 3.0)
    assert [len(track.places) for track in nucleus.tracks] == [12, 12, 9]
    assert [track.onset for track in nucleus.tracks] == [5, None, None]


def test_two_small_movies(tmp_path: Path) -> None:
    module = _simulator("repair_foci")
    module.CONDITIONS = tuple(replace(one, frames=34, length=(20, 23), complete=2) for one in module.CONDITIONS)
    module.make(tmp_path, 21)
    job, task = _run("repair_foci", tmp_path, foci.run)
    assert not job.failures
    result = evaluate(task.outcome, task.deliverables, tmp_path / "output", tmp_path / "evaluation", tmp_path / "input")
    assert not result.problems
    assert result.outcome > 0.6
    assert result.strict > 0.6
    stamped = tifffile.imread(sorted((tmp_path / "input").rglob("T00003*.tif"))[0])
    rows, columns = foci.find_movies(tmp_path / "input")[0].stamp
    stamped[rows, columns] = 0
    assert not (stamped[:25, 150:] == 255).all(axis=-1).any()


def test_folders_without_what_is_asked_for_fail_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    for slug, run in (("nfkb_translocation", plate.run), ("repair_foci", foci.run)):
        job, _ = _job(slug, tmp_path)
        with pytest.raises(ValueError, match="no "):
            run(job)
