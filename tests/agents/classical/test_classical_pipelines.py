"""Four pipelines as the harness starts them, on drawn images in the published layouts, one file broken in each."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import tifffile
from PIL import Image as PillowImage
from scipy import ndimage as ndi

from biabench_plugin.taskspec import load_task, render_instruction

ROOT = Path(__file__).resolve().parents[3]
RUN = ROOT / "agents" / "classical" / "run.py"


@dataclass(frozen=True)
class Trial:
    output: Path
    result: subprocess.CompletedProcess[str]

    @property
    def report(self) -> str:
        return (self.output / "report.md").read_text(encoding="utf-8")

    def files(self, pattern: str) -> list[str]:
        return sorted(path.relative_to(self.output).as_posix() for path in self.output.rglob(pattern))


def trial(name: str, folder: Path) -> Trial:
    """Run the agent on ``folder/input`` with the task's real instruction, on a bare interpreter."""
    spec = load_task(ROOT / "tasks" / name / "task.yaml")
    source, output, instruction = folder / "input", folder / "output", folder / "instruction.md"
    output.mkdir()
    text = render_instruction(spec, "brief", gpu=False, input_dir=str(source), output_dir=str(output))
    instruction.write_text(text, encoding="utf-8")
    environment = {
        "PATH": os.environ["PATH"],
        "TMPDIR": str(folder),
        "BIABENCH_INPUT": str(source),
        "BIABENCH_OUTPUT": str(output),
        "BIABENCH_INSTRUCTION": str(instruction),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-I", "-B", str(RUN)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)
    return Trial(output, result)


def disc(shape: tuple[int, int], y: float, x: float, radius: float) -> np.ndarray:
    rows, cols = np.ogrid[: shape[0], : shape[1]]
    return (rows - y) ** 2 + (cols - x) ** 2 <= radius**2


def assert_presentable(run: Trial, figures: list[str]) -> None:
    """Figures exist as PNG at 300 dots per inch and as SVG, overlays too; scripts and a table lie beside the report."""
    for name in figures:
        with PillowImage.open(run.output / "figures" / f"{name}.png") as picture:
            assert picture.info["dpi"][0] == pytest.approx(300, abs=1)
        assert ElementTree.parse(run.output / "figures" / f"{name}.svg").getroot().tag.endswith("svg")
    overlays = run.files("overlays/*.png")
    assert overlays
    with PillowImage.open(run.output / overlays[0]) as picture:
        assert picture.info["dpi"][0] == pytest.approx(300, abs=1)
    assert "scripts/classical/run.py" in run.files("*.py")
    for heading in ("Question", "Result", "Method", "Quality control", "Caveats", "Software"):
        assert f"## {heading}" in run.report
    assert run.result.stdout.strip().splitlines()[-1].endswith("see report.md.")


# --- two channels -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hela(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    folder = tmp_path_factory.mktemp("hela")
    (folder / "input").mkdir()
    rng = np.random.default_rng(0)
    shape = (150, 180)
    for number, centres in ((2408, [(40, 40), (40, 110), (110, 60), (110, 125)]), (2409, [(60, 50), (75, 120)])):
        dapi, actin = np.zeros(shape), np.zeros(shape)
        for y, x in centres:
            dapi += 90 * disc(shape, y, x, 9)
            actin = np.maximum(actin, 60 * disc(shape, y, x, 24))
        image = np.zeros((*shape, 3))
        image[..., 2] = 8 + ndi.gaussian_filter(dapi, 1.2)
        image[..., 0] = 8 + ndi.gaussian_filter(actin, 1.2)
        image += rng.normal(0, 1.5, image.shape)
        tifffile.imwrite(folder / "input" / f"{number}.tif", np.clip(image, 0, 255).astype(np.uint8), photometric="rgb")
    (folder / "input" / "2410.tif").write_bytes(b"II*\0broken")
    return trial("hela_segmentation", folder)


def test_nuclei_and_cells_share_their_numbers(hela: Trial) -> None:
    assert hela.result.returncode == 0, hela.result.stderr
    masks = [f"{kind}_masks/{number}.tif" for kind in ("cytoplasm", "nuclei") for number in (2408, 2409)]
    assert hela.files("*.tif*") == masks
    for number, count in ((2408, 4), (2409, 2)):
        nuclei, cells = (
            tifffile.imread(hela.output / f"{kind}_masks" / f"{number}.tif") for kind in ("nuclei", "cytoplasm")
        )
        assert nuclei.dtype == cells.dtype == np.uint16
        assert nuclei.shape == cells.shape == (150, 180)
        assert set(np.unique(nuclei)) == set(np.unique(cells)) == set(range(count + 1))
        assert np.array_equal(nuclei[nuclei > 0], cells[nuclei > 0])
        sizes = np.bincount(cells.ravel())[1:]
        assert np.all(np.abs(sizes - np.pi * 24**2) < 0.25 * np.pi * 24**2)


def test_a_broken_image_is_reported_and_the_others_delivered(hela: Trial) -> None:
    assert "`2410.tif`" in hela.report
    assert "1 of 3 images could not be processed" in hela.report
    assert "2410.tif" in hela.result.stderr
    assert hela.result.stdout.strip().endswith("Done: 2 items delivered, 1 failed; see report.md.")


def test_the_report_counts_what_was_delivered(hela: Trial) -> None:
    assert_presentable(hela, ["example", "areas"])
    assert "6 cells in 2 of 3 images" in hela.report
    assert "0.645 µm per pixel" in hela.report
    nucleus = [
        np.bincount(tifffile.imread(hela.output / name).ravel())[1:] for name in hela.files("nuclei_masks/*.tif")
    ]
    with (hela.output / "supporting" / "cells.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    areas = [float(row["nucleus_area_um2"]) for row in rows]
    np.testing.assert_allclose(areas, np.concatenate(nucleus) * 0.645**2, rtol=1e-5)
    mean = re.search(r"nucleus area ([0-9.]+)", hela.report)
    assert mean is not None
    assert float(mean[1]) == pytest.approx(np.mean(areas), rel=0.01)


# --- sections ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sections(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    folder = tmp_path_factory.mktemp("sections")
    (folder / "input").mkdir()
    rng = np.random.default_rng(1)
    shape = (160, 160)
    for name, centres in (
        ("human_kidney_01", [(30, 30), (30, 100), (90, 40), (100, 120), (130, 70)]),
        ("human_pancreas_01", [(40, 40), (40, 57), (110, 100)]),
    ):
        amount = ndi.gaussian_filter(sum(disc(shape, y, x, 9) for y, x in centres).clip(0, 1).astype(float), 1.0)
        eosin, purple = np.array([230, 160, 200.0]), np.array([70, 50, 130.0])
        image = eosin + amount[..., None] * (purple - eosin) + rng.normal(0, 3, (*shape, 3))
        PillowImage.fromarray(np.clip(image, 0, 255).astype(np.uint8)).save(folder / "input" / f"{name}.png")
    (folder / "input" / "human_pancreas_02.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    return trial("histology_nuclei", folder)


def test_every_tif_is_a_final_mask(sections: Trial) -> None:
    assert sections.result.returncode == 0, sections.result.stderr
    assert sections.files("*.tif*") == ["human_kidney_01.tif", "human_pancreas_01.tif"]
    counts = []
    for name in sections.files("*.tif"):
        mask = tifffile.imread(sections.output / name)
        assert (mask.dtype, mask.shape) == (np.dtype(np.uint16), (160, 160))
        counts.append(int(mask.max()))
        assert np.unique(mask).tolist() == list(range(counts[-1] + 1))
    assert counts == [5, 3]


def test_groups_come_from_the_names(sections: Trial) -> None:
    assert_presentable(sections, ["examples", "groups"])
    assert "8 nuclei in 2 of 3 images" in sections.report
    assert "| human_kidney | 1 | 5 |" in sections.report
    assert "| human_pancreas | 1 | 3 |" in sections.report
    assert "`human_pancreas_02.png`" in sections.report
    assert "too few independent units" in sections.report


# --- fields of cells --------------------------------------------------------------------------------------------

CENTRES = [(40, 40), (40, 120), (100, 80), (150, 200), (60, 200), (150, 40), (150, 120), (100, 160)]


@pytest.fixture(scope="module")
def fields(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    folder = tmp_path_factory.mktemp("fields")
    (folder / "input").mkdir()
    rng = np.random.default_rng(2)
    shape = (190, 250)
    rows, cols = np.mgrid[: shape[0], : shape[1]]
    for number, centres in ((0, CENTRES), (1, []), (11, CENTRES[:1])):
        image = 12 + 0.03 * rows + 60 * np.exp(-((rows - 120) ** 2 + (cols - 230) ** 2) / (2 * 40.0**2))
        for y, x in centres:
            image = image + 90 * ndi.gaussian_filter(disc(shape, y, x, 8).astype(float), 1.0)
        image[70:72, 20:110] += 60  # a fibre
        image[5, 5] += 120  # a speck
        image = image + rng.normal(0, 2.0, shape)
        tifffile.imwrite(folder / "input" / f"{number}.tiff", np.clip(image, 0, 255).astype(np.uint8))
    (folder / "input" / "2.tiff").write_bytes(b"")
    return trial("cell_counting", folder)


def points(path: Path) -> np.ndarray:
    with path.open(encoding="utf-8", newline="") as file:
        return np.array([(float(row["X"]), float(row["Y"])) for row in csv.DictReader(file)]).reshape(-1, 2)


def test_one_table_per_readable_image_even_if_it_is_empty(fields: Trial) -> None:
    assert fields.result.returncode == 0, fields.result.stderr
    assert fields.files("*.csv") == ["0.csv", "1.csv", "11.csv"]
    assert (fields.output / "1.csv").read_bytes() == b"X,Y\n"
    found = points(fields.output / "0.csv")
    assert len(found) == len(CENTRES)
    for y, x in CENTRES:
        assert np.hypot(found[:, 0] - x, found[:, 1] - y).min() < 1.0
    assert len(points(fields.output / "11.csv")) == 1


def test_counts_in_the_report_are_those_of_the_tables(fields: Trial) -> None:
    assert_presentable(fields, ["counts"])
    assert "9 cells in 3 of 4 images; 1 images hold none" in fields.report
    for name, count in (("0", 8), ("1", 0), ("11", 1)):
        assert f"| {name} | {count} |" in fields.report
    assert "`2.tiff`" in fields.report
    with (fields.output / "supporting" / "candidates.tsv").open(encoding="utf-8") as file:
        assert sum(int(row["counted"]) for row in csv.DictReader(file, delimiter="\t")) == 9


# --- a colony ---------------------------------------------------------------------------------------------------


def rod(shape: tuple[int, int], y: float, x: float, length: float, radius: float = 6.0) -> np.ndarray:
    """Optical thickness of a horizontal rod."""
    rows, cols = np.mgrid[: shape[0], : shape[1]]
    beyond = np.maximum(np.abs(cols - x) - (length / 2 - radius), 0)
    return np.sqrt(np.clip(1 - (beyond**2 + (rows - y) ** 2) / radius**2, 0, 1))


@pytest.fixture(scope="module")
def colony(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    folder = tmp_path_factory.mktemp("colony")
    (folder / "input").mkdir()
    rng = np.random.default_rng(3)
    shape, frames = (110, 150), []
    for t in range(10):
        thickness = rod(shape, 60, 70 + 0.5 * t, 30 + t)  # keeps growing
        if t < 5:
            thickness = np.maximum(thickness, rod(shape, 30, 70, 34 + 2 * t))
        else:  # divides; the daughters part
            for sign in (-1, 1):
                thickness = np.maximum(thickness, rod(shape, 30 + sign * (t - 5), 70 + sign * (12 + t - 5), 22))
        thickness = np.maximum(thickness, rod(shape, 90, 20 - 9 * t, 30))  # leaves
        frame = 150 - 60 * ndi.gaussian_filter(thickness, 1.0) + rng.normal(0, 2.0, shape)
        frames.append(np.clip(frame, 0, 255).astype(np.uint8))
    metadata = {"axes": "TYX", "PhysicalSizeX": 0.072, "PhysicalSizeXUnit": "µm"}
    metadata |= {"TimeIncrement": 60.0, "TimeIncrementUnit": "s"}
    tifffile.imwrite(folder / "input" / "00.ome.tif", np.stack(frames), metadata=metadata)
    return trial("bacteria_tracking", folder)


def test_tracks_follow_cells_through_a_division(colony: Trial) -> None:
    assert colony.result.returncode == 0, colony.result.stderr
    assert colony.files("*.tif*") == ["00_RES.ome.tif"]
    assert colony.files("*track*.txt") == ["res_track.txt"]
    with tifffile.TiffFile(colony.output / "00_RES.ome.tif") as file:
        assert len(file.series) == 1
        stack = file.asarray()
    assert (stack.dtype, stack.shape) == (np.dtype(np.uint16), (10, 110, 150))
    rows = np.loadtxt(colony.output / "res_track.txt", dtype=int)
    assert rows.shape == (5, 4)
    for track, start, end, _ in rows:
        assert np.flatnonzero((stack == track).any(axis=(1, 2))).tolist() == list(range(start, end + 1))
    mother, stays = stack[0, 30, 70], stack[0, 60, 70]
    assert rows[rows[:, 0] == stays].tolist() == [[stays, 0, 9, 0]]
    assert rows[rows[:, 0] == mother].tolist() == [[mother, 0, 4, 0]]
    daughters = rows[rows[:, 3] == mother]
    assert daughters[:, 1:3].tolist() == [[5, 9], [5, 9]]
    leaver = rows[rows[:, 0] == stack[0, 90, 20]][0]
    assert leaver[2] < 6
    assert np.bincount(stack[0].ravel())[stays] == pytest.approx((rod((110, 150), 60, 70, 30) > 0).sum(), rel=0.2)


def test_the_colony_report_gives_lives_and_trust(colony: Trial) -> None:
    assert_presentable(colony, ["colony", "lineage_tree"])
    assert "5 tracks and 1 divisions in 10 frames" in colony.report
    assert "0.072 µm per pixel" in colony.report
    assert "| interval (min) |" in colony.report
    stack = tifffile.imread(colony.output / "00_RES.ome.tif")
    objects = sum(np.unique(frame[frame > 0]).size for frame in stack)
    assert f"{objects} objects in all" in colony.report
    with (colony.output / "supporting" / "objects.tsv").open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file, delimiter="\t"))) == objects


def test_an_unreadable_frame_counts_as_empty_and_is_named(tmp_path: Path) -> None:
    from agents.classical._io import find_sequences
    from agents.classical._job import Job
    from agents.classical.bacteria_tracking import calibrate, track_sequence

    shape = (60, 90)
    (tmp_path / "01").mkdir()
    for t in range(5):
        frame = 150 - 60 * ndi.gaussian_filter(rod(shape, 30, 40 + t, 36), 1.0)
        frame += np.random.default_rng(t).normal(0, 2.0, shape)
        tifffile.imwrite(tmp_path / "01" / f"t{t:03d}.tif", frame.astype(np.uint8))
    (tmp_path / "01" / "t002.tif").write_bytes(b"II*\0broken")
    (sequence,) = find_sequences(tmp_path)
    job = Job(tmp_path, tmp_path, "", {})
    stack, lineage = tmp_path / "01_RES.ome.tif", tmp_path / "res_track.txt"
    track_sequence(job, sequence, calibrate(sequence), stack, lineage, None, None)
    assert [failure.item for failure in job.failures] == ["frame 2"]
    assert [int(frame.max()) for frame in tifffile.imread(stack)] == [1, 1, 0, 2, 2]
    assert lineage.read_text() == "1 0 1 0\n2 3 4 0\n"
