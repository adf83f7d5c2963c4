"""How the agent is started, how it reads the request, and that it stays apart from the rest of the project."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image as PillowImage

from agents.base import Session
from agents.classical import agent as agent_module
from agents.classical._figures import Scale, draw_outlines, outline, to_rgb
from agents.classical._io import (
    as_grey,
    frame_interval_seconds,
    list_images,
    pixel_size_um,
    read_image,
    spread,
    stem,
    write_labels,
)
from agents.classical._job import CannotStart, Job, parse_contract, parse_interval_seconds, parse_pixel_size_um
from agents.classical._pipelines import PIPELINES, choose
from agents.classical._report import Report, Summary, compare_groups, mean_interval, number
from agents.classical.agent import Classical
from biabench_plugin.taskspec import LEVELS, load_task, render_instruction

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "agents" / "classical"


def session(input_dir: str) -> Session:
    return Session("", "/instruction.md", input_dir, "/output", 60.0)


# --- launch -----------------------------------------------------------------------------------------------------


def test_inside_containment_the_repository_path_is_not_shown() -> None:
    launch = Classical().launch(session("/input"))
    assert launch.argv[0] == sys.executable
    assert not any(str(ROOT) in word for word in launch.argv[1:])
    (bind,) = launch.binds
    assert (bind.source, bind.writable) == (PACKAGE, False)
    assert launch.argv[-1] == f"{bind.target}/run.py"
    assert launch.python_prefix


def test_without_containment_it_runs_from_the_repository() -> None:
    launch = Classical().launch(session("/somewhere/input"))
    assert launch.argv[-1] == str(PACKAGE / "run.py")
    assert launch.binds == ()
    assert launch.environment["OMP_NUM_THREADS"] == "1"


def test_the_fingerprint_follows_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    monkeypatch.setattr(agent_module, "_HERE", tmp_path)
    first = Classical().fingerprint()
    assert Classical().fingerprint() == first
    (tmp_path / "a.py").write_text("x = 2\n")
    assert Classical().fingerprint() != first


def test_the_closing_message_is_the_last_line(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("one\nDone: 3 items delivered.\n\n")
    evidence = Classical().read(tmp_path / "out", tmp_path / "none", tmp_path)
    assert evidence.final_message == "Done: 3 items delivered."
    assert Classical().read(tmp_path / "none", tmp_path / "none", tmp_path).final_message is None


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.name)
def test_pipelines_import_nothing_of_the_benchmark(path: Path) -> None:
    allowed = {"agents"} if path.name == "agent.py" else set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 1, f"{path.name} reaches above its own package"
        roots = {name.partition(".")[0] for name in names}
        assert not roots & ({"agents", "tasks", "evaluators", "biabench_plugin"} - allowed), f"{path.name}: {roots}"


@pytest.mark.parametrize("missing", ["BIABENCH_INPUT", "BIABENCH_OUTPUT", "BIABENCH_INSTRUCTION"])
def test_a_missing_path_is_named(missing: str, tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "instruction.md").write_text("- centroids_per_image (required, one file per image or sequence)\n")
    environment = {
        "BIABENCH_INPUT": str(tmp_path / "input"),
        "BIABENCH_OUTPUT": str(tmp_path / "output"),
        "BIABENCH_INSTRUCTION": str(tmp_path / "instruction.md"),
    }
    assert Job.from_environment(environment).output_dir.is_dir()
    del environment[missing]
    with pytest.raises(CannotStart, match=missing):
        Job.from_environment(environment)


def test_an_unknown_request_ends_with_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "instruction.md").write_text("- phase_of_the_moon (required, one file)\n")
    result = subprocess.run(
        [sys.executable, "-I", "-B", str(PACKAGE / "run.py")],
        env={
            "BIABENCH_INPUT": str(tmp_path / "input"),
            "BIABENCH_OUTPUT": str(tmp_path / "output"),
            "BIABENCH_INSTRUCTION": str(tmp_path / "instruction.md"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "phase_of_the_moon" in result.stderr
    assert "Traceback" not in result.stderr


# --- the request ------------------------------------------------------------------------------------------------


def job(instruction: str, folder: Path) -> Job:
    return Job(folder, folder, instruction, parse_contract(instruction))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", sorted(set(PIPELINES) & {path.parent.name for path in ROOT.glob("tasks/*/task.yaml")}))
def test_each_task_finds_its_pipeline(name: str, level: str, tmp_path: Path) -> None:
    spec = load_task(ROOT / "tasks" / name / "task.yaml")
    instruction = render_instruction(spec, level, gpu=False, input_dir="/input", output_dir="/output")
    wanted = parse_contract(instruction)
    assert list(wanted) == [deliverable.id for deliverable in spec.deliverables]
    assert [item.required for item in wanted.values()] == [item.required for item in spec.deliverables]
    assert [item.multiple for item in wanted.values()] == [item.multiple for item in spec.deliverables]
    assert [item.patterns for item in wanted.values()] == [item.patterns for item in spec.deliverables]
    assert choose(job(instruction, tmp_path)) == name


def test_the_same_files_without_a_word_of_the_task_fit_no_pipeline(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="segmentation_masks"):
        choose(job("Find the things.\n- segmentation_masks (required, one file)\n", tmp_path))
    with pytest.raises(CannotStart, match="no required output file"):
        choose(job("Find the things.\n- table (optional, one file)\n", tmp_path))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One pixel is\n0.645 µm wide.", 0.645),
        ("Taken at 20x, and one pixel is 0.275 µm.", 0.275),
        ("The scale is 0.072 um per pixel.", 0.072),
        ("pixel size of 0.1 micrometers", 0.1),
        ("Blobs of 5-30 pixels; the medium was 2.5 µm deep.", None),
        ("Nobody noted the magnification.", None),
    ],
)
def test_pixel_sizes_are_read_from_the_request(text: str, expected: float | None) -> None:
    assert parse_pixel_size_um(text) == expected


def test_frame_intervals_are_read_from_the_request() -> None:
    assert parse_interval_seconds("There is one frame\nper minute, and more.") == 60.0
    assert parse_interval_seconds("There are some frames.") is None


# --- files ------------------------------------------------------------------------------------------------------


def test_images_are_listed_in_natural_order_without_hidden_files(tmp_path: Path) -> None:
    for name in ("10.tif", "2.tif", ".3.tif", "notes.txt", "1.PNG"):
        (tmp_path / name).touch()
    assert [path.name for path in list_images(tmp_path)] == ["1.PNG", "2.tif", "10.tif"]
    assert stem(Path("00.ome.tif")) == "00"
    assert stem(Path("a.b.tif")) == "a.b"
    assert spread(list(range(10)), 4) == [0, 3, 6, 9]
    assert spread([1, 2], 4) == [1, 2]
    assert spread([], 4) == []


def test_images_are_read_whatever_their_layout(tmp_path: Path) -> None:
    rgb = np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", rgb, photometric="rgb")
    tifffile.imwrite(tmp_path / "b.tif", np.moveaxis(rgb, -1, 0), photometric="rgb", planarconfig="separate")
    alpha = np.dstack([rgb, np.full((20, 30), 255, dtype=np.uint8)])
    PillowImage.fromarray(alpha).save(tmp_path / "c.png")
    for name in ("a.tif", "b.tif", "c.png"):
        np.testing.assert_array_equal(read_image(tmp_path / name), rgb)
    tifffile.imwrite(tmp_path / "d.tif", rgb[None, ..., 0])
    np.testing.assert_array_equal(read_image(tmp_path / "d.tif"), rgb[..., 0])
    tifffile.imwrite(tmp_path / "e.tif", np.zeros((5, 6, 7), dtype=np.uint8))
    with pytest.raises(ValueError, match="one grey or RGB image"):
        read_image(tmp_path / "e.tif")
    one = np.zeros((4, 5, 3), dtype=np.uint8)
    one[..., 1] = np.arange(5)
    np.testing.assert_array_equal(as_grey(one), one[..., 1].astype(np.float32))


def test_scale_is_read_from_metadata_and_print_resolution_is_not_scale(tmp_path: Path) -> None:
    image = np.zeros((3, 8, 8), dtype=np.uint8)
    metadata = {"axes": "TYX", "PhysicalSizeX": 65.0, "PhysicalSizeXUnit": "nm"}
    metadata |= {"TimeIncrement": 2.0, "TimeIncrementUnit": "min"}
    tifffile.imwrite(tmp_path / "a.ome.tif", image, metadata=metadata)
    assert pixel_size_um(tmp_path / "a.ome.tif") == pytest.approx(0.065)
    assert frame_interval_seconds(tmp_path / "a.ome.tif") == 120.0
    tifffile.imwrite(tmp_path / "b.tif", image, imagej=True, resolution=(4.0, 4.0), metadata={"unit": "um"})
    assert pixel_size_um(tmp_path / "b.tif") == pytest.approx(0.25)
    tifffile.imwrite(tmp_path / "c.tif", image[0], resolution=(300, 300), resolutionunit="INCH")
    assert pixel_size_um(tmp_path / "c.tif") is None
    assert frame_interval_seconds(tmp_path / "c.tif") is None


def test_labels_are_unsigned_16_bit_or_refused(tmp_path: Path) -> None:
    write_labels(tmp_path / "deep" / "a.tif", np.array([[0, 300]]))
    read = tifffile.imread(tmp_path / "deep" / "a.tif")
    assert (read.dtype, read.tolist()) == (np.dtype(np.uint16), [[0, 300]])
    with pytest.raises(ValueError, match="16 bits"):
        write_labels(tmp_path / "b.tif", np.array([[70000]]))


# --- failures, figures, report ----------------------------------------------------------------------------------


def test_one_failure_is_kept_and_the_next_item_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = job("", tmp_path)
    for name in ("good", "bad", "fine"):
        with work.attempt(name):
            if name == "bad":
                raise ValueError("broken\nfile")
            work.delivered += 1
    assert work.delivered == 2
    assert [(failure.item, failure.reason) for failure in work.failures] == [("bad", "ValueError: broken file")]
    assert "bad" in capsys.readouterr().err
    assert work.finish(lambda _: None) == 0
    assert "2 items delivered, 1 failed" in capsys.readouterr().out.splitlines()[-1]
    assert (tmp_path / "scripts" / "classical" / "run.py").is_file()
    assert not (tmp_path / "scripts" / "classical" / "agent.py").exists()
    assert job("", tmp_path).finish(lambda _: None) == 1


def test_scale_bars_are_round_and_about_a_fifth() -> None:
    assert Scale(0.645).bar(696) == (pytest.approx(50 / 0.645), "50 µm")
    assert Scale(None).bar(1600) == (200, "200 px")
    assert Scale(0.5).area(8.0) == 2.0
    assert Scale(None).area_unit == "px²"


def test_outlines_are_inside_objects_and_enlarged_copies_leave_the_original() -> None:
    labels = np.zeros((5, 5), dtype=np.int32)
    labels[1:4, 1:4] = 1
    assert outline(labels).sum() == 8
    grey = np.arange(25).reshape(5, 5)
    rgb = to_rgb(grey)
    assert rgb.shape == (5, 5, 3)
    drawn = draw_outlines(rgb, [(labels, (255, 0, 0))], zoom=2)
    assert drawn.shape == (10, 10, 3)
    assert (drawn == (255, 0, 0)).all(axis=2).any()
    assert not (rgb == (255, 0, 0)).all(axis=2).any()


def test_statistics_are_those_of_numpy() -> None:
    found = Summary.of([1.0, 2.0, 3.0, np.nan])
    assert (found.n, found.mean, found.sd, found.median) == (3, 2.0, 1.0, 2.0)
    assert "N = 3" in found.text("px")
    assert Summary.of([]).text() == "no values"
    assert mean_interval([1.0]) is None
    interval = mean_interval([1.0, 2.0, 3.0])
    assert interval is not None
    assert interval == (pytest.approx(2 - 2.4841, abs=1e-3), pytest.approx(2 + 2.4841, abs=1e-3))
    assert "too few" in compare_groups([1.0], [2.0, 3.0])
    assert "N = 3 and 3" in compare_groups([1.0, 2.0, 3.0], [2.0, 3.0, 5.0])
    assert [number(x) for x in (1234.6, 12.345, 0.0012345, 0.0, np.nan)] == ["1235", "12.3", "0.00123", "0", "–"]


def test_reports_have_no_empty_runs_of_lines(tmp_path: Path) -> None:
    report = Report("T")
    report.section("A", "text")
    report.table(["x", "y"], [(1, 2.5)])
    report.section("B")
    report.failures([], 3, "images")
    report.write(tmp_path / "report.md")
    text = (tmp_path / "report.md").read_text()
    assert "| 1 | 2.50 |" in text
    assert "All 3 images were processed" in text
    assert "\n\n\n" not in text
