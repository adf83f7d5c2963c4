"""Small tasks with known answers, one per outcome kind, and the folders that real data lie in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import tifffile
import yaml
from numpy.typing import NDArray

from evaluators import Deliverable, OutcomeScore, OutcomeSpec, evaluate, replay

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Desk:
    """One task with its folders: what a submission is written to and scored against."""

    slug: str
    folder: Path
    outcome: OutcomeSpec = field(init=False)
    deliverables: list[Deliverable] = field(init=False)

    def __post_init__(self) -> None:
        task = yaml.safe_load((ROOT / "tasks" / self.slug / "task.yaml").read_text(encoding="utf-8"))
        self.outcome = OutcomeSpec.model_validate(task["outcome"])
        self.deliverables = [Deliverable.model_validate(entry) for entry in task["deliverables"]]
        for path in (self.truth, self.input, self.output):
            path.mkdir(parents=True, exist_ok=True)

    @property
    def truth(self) -> Path:
        return self.folder / "evaluation"

    @property
    def input(self) -> Path:
        return self.folder / "input"

    @property
    def output(self) -> Path:
        return self.folder / "output"

    def write(self, name: str, content: NDArray[np.generic] | str | bytes, **options: object) -> Path:
        """Write a file of the submission."""
        return write(self.output / name, content, **options)

    def replay(self) -> None:
        replay(self.outcome, self.deliverables, self.truth, self.input, self.output)

    def score(self, *, with_input: bool = True) -> OutcomeScore:
        return evaluate(self.outcome, self.deliverables, self.output, self.truth, self.input if with_input else None)


def write(path: Path, content: NDArray[np.generic] | str | bytes, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, np.ndarray):
        tifffile.imwrite(path, content, **options)
    elif isinstance(content, str):
        path.write_text(content, encoding="utf-8", newline="")
    else:
        path.write_bytes(content)
    return path


def grid_of_cells(shape: tuple[int, int], pitch: int, radius: int) -> NDArray[np.uint16]:
    """Return discs on a grid, labelled in raster order."""
    labels = np.zeros(shape, np.uint16)
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    number = 0
    for row in range(pitch // 2, shape[0] - radius, pitch):
        for column in range(pitch // 2, shape[1] - radius, pitch):
            number += 1
            labels[(rows - row) ** 2 + (columns - column) ** 2 <= radius**2] = number
    return labels


@pytest.fixture(name="write")
def write_fixture() -> Callable[..., Path]:
    return write


@pytest.fixture(scope="session")
def cells() -> Callable[[tuple[int, int], int, int], NDArray[np.uint16]]:
    """Return :func:`grid_of_cells`."""
    return grid_of_cells


@pytest.fixture
def codes() -> Callable[[OutcomeScore], set[str]]:
    """Return the codes of a score's problems."""
    return lambda score: {problem.code for problem in score.problems}


@pytest.fixture
def hela(tmp_path: Path) -> Desk:
    """Return three images of nuclei and cells, 80 x 60, ids linked."""
    desk = Desk("hela_segmentation", tmp_path / "hela")
    for number in (2408, 2409, 2411):
        write(desk.input / f"{number}.tif", np.zeros((80, 60, 3), np.uint8), photometric="rgb")
        nuclei, bodies = grid_of_cells((80, 60), 20, 4), grid_of_cells((80, 60), 20, 8)
        write(desk.truth / "nuclei_masks" / f"{number}.tif", nuclei.astype(np.uint8))
        write(desk.truth / "cytoplasm_masks" / f"{number}.tif", bodies.astype(np.uint8))
    return desk


@pytest.fixture
def histology(tmp_path: Path) -> Desk:
    """Return two kidney and two pancreas images, 64 x 48."""
    desk = Desk("histology_nuclei", tmp_path / "histology")
    for stem in ("human_kidney_01", "human_kidney_02", "human_pancreas_01", "human_pancreas_02"):
        png = (
            b"\x89PNG\r\n\x1a\n"
            + b"\0\0\0\rIHDR"
            + (48).to_bytes(4, "big")
            + (64).to_bytes(4, "big")
            + b"\x08\x02\0\0\0"
        )
        write(desk.input / f"{stem}.png", png)
        write(desk.truth / f"{stem}.tif", grid_of_cells((64, 48), 16, 5), compression="lzw")
    return desk


@dataclass
class CountingDesk(Desk):
    """The counting task with its true points by image."""

    points: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    def tables(self, points: Mapping[str, NDArray[np.float64]]) -> None:
        """Write tables of points as the submission."""
        for stem, values in points.items():
            self.write(f"{stem}.csv", as_table(values))


def as_table(points: NDArray[np.float64]) -> str:
    return "X,Y\n" + "".join(f"{x},{y}\n" for x, y in points)


@pytest.fixture
def counting(tmp_path: Path) -> CountingDesk:
    """Return seven images of 300 x 400 px (rows x columns): four with cells, three empty."""
    generator = np.random.default_rng(7)
    desk = CountingDesk("cell_counting", tmp_path / "counting")
    points = {}
    for stem, count in zip("0123456", (20, 0, 8, 1, 0, 31, 0), strict=True):
        points[stem] = np.round(generator.random((count, 2)) * [400, 300] - 0.5, 1)
        write(desk.input / f"{stem}.tiff", np.zeros((300, 400), np.uint8))
        write(desk.truth / f"{stem}.csv", as_table(points[stem]))
    desk.points = points
    return desk


@dataclass
class TrackingDesk(Desk):
    """The tracking task with its true stack and lineage."""

    stack: NDArray[np.uint16] = field(default_factory=lambda: np.zeros((0, 0, 0), np.uint16))
    tracks: list[tuple[int, int, int, int]] = field(default_factory=list)

    def submit(self, stack: NDArray[np.generic], tracks: list[tuple[int, int, int, int]] | None = None) -> None:
        """Write a stack and a lineage as the submission."""
        self.write("00_RES.ome.tif", stack, ome=True)
        self.write("res_track.txt", as_lineage(self.tracks if tracks is None else tracks))


def as_lineage(tracks: list[tuple[int, int, int, int]]) -> str:
    return "".join(" ".join(map(str, row)) + "\n" for row in tracks)


@pytest.fixture
def tracking(tmp_path: Path) -> TrackingDesk:
    """Return ten frames of 32 x 40 px: a mother (frames 0-4) with two daughters (5-9), and a cell that leaves."""
    desk = TrackingDesk("bacteria_tracking", tmp_path / "tracking")
    stack = np.zeros((10, 32, 40), np.uint16)
    for frame in range(10):
        if frame < 5:
            stack[frame, 4 + frame : 10 + frame, 6:20] = 1
        else:
            stack[frame, 4 + frame : 10 + frame, 6:12] = 2
            stack[frame, 4 + frame : 10 + frame, 14:20] = 3
        if frame < 7:
            stack[frame, 20:26, 26 + 2 * frame :] = 4
    desk.stack, desk.tracks = stack, [(1, 0, 4, 0), (2, 5, 9, 1), (3, 5, 9, 1), (4, 0, 6, 0)]
    write(desk.input / "00.ome.tif", np.zeros((10, 32, 40), np.uint8), ome=True)
    write(desk.truth / "00_GT.ome.tif", stack, ome=True)
    write(desk.truth / "man_track.txt", as_lineage(desk.tracks))
    return desk


@pytest.fixture(scope="session")
def real_sets() -> Path:
    """Return the folder of real images beside the checkout."""
    folder = (ROOT / "../shared/real").resolve()
    if not folder.is_dir():
        pytest.skip(f"no real images at {folder}")
    return folder


@pytest.fixture(scope="session")
def challenge_cases() -> Path:
    """Return the folder of sequences with official Cell Tracking Challenge scores."""
    folder = (ROOT / "../shared/oracle/ctc").resolve()
    if not folder.is_dir():
        pytest.skip(f"no Cell Tracking Challenge cases at {folder}")
    return folder
