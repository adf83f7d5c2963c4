"""zebrafish_cells: the top, the bottom, and what lies between."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from scipy import ndimage

SLUG = "zebrafish_cells"
SEEDS = [0, pytest.param(1, marks=pytest.mark.full), pytest.param(2, marks=pytest.mark.full)]

Labels = NDArray[np.uint16]


def read(folder: Path) -> dict[str, Labels]:
    return {path.name: tifffile.imread(path) for path in sorted(folder.glob("*_seg.tif"))}


def write(folder: Path, volumes: dict[str, NDArray[Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, labels in volumes.items():
        tifffile.imwrite(folder / name, labels.astype(np.uint16), compression="zlib")
    return folder


@pytest.fixture(scope="module", params=SEEDS)
def task(request: Any, bench: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The task with every second voxel along each axis: the same cells in an eighth of the time."""
    full = bench(SLUG, request.param)
    base = tmp_path_factory.mktemp("half")
    for folder in ("input", "evaluation"):
        (base / "data" / folder).mkdir(parents=True)
        for path in (full.folder / folder).iterdir():
            half = np.ascontiguousarray(tifffile.imread(path)[::2, ::2, ::2])
            tifffile.imwrite(base / "data" / folder / path.name, half)
    return type(full)(full.spec, base / "data", base / "submissions")


def test_truth_is_the_top(task: Any) -> None:
    folder = task.perfect()
    result = task.score(folder)
    assert (result.outcome, result.strict) == (1.0, 1.0)
    assert not result.problems
    assert {path.name for path in folder.iterdir()} == {path.name for path in task.truth.glob("*.tif")}


def test_nothing_and_talk_are_the_bottom(task: Any) -> None:
    for folder in (task.new(), task.bluff()):
        result = task.score(folder)
        assert (result.outcome, result.strict, result.delivered) == (0.0, 0.0, False)
        assert "missing_deliverable" in {problem.code for problem in result.problems}


def test_one_stack_of_three_is_a_third(task: Any) -> None:
    def keep_one(folder: Path) -> None:
        for path in sorted(folder.iterdir())[1:]:
            path.unlink()

    result = task.edited(keep_one)
    assert result.outcome == pytest.approx(1 / 3)
    assert result.strict == pytest.approx(1 / 3)


def test_shortcuts_fail_the_strict_score(task: Any) -> None:
    for name, trick in task.tricks().items():
        result = task.trick(name, trick)
        assert result.strict <= 0.2, name
        if name in {"even_columns", "grid", "one_label", "random_labels"}:
            assert result.outcome == pytest.approx(1.0)  # the published score does not see it


def merged(labels: Labels, rng: np.random.Generator, share: float) -> Labels:
    """Give a share of the cells the label of a touching neighbour; larger shares contain the smaller ones."""
    names = np.arange(labels.max() + 1)
    order = rng.permutation(np.arange(1, len(names)))
    pairs = np.stack([labels[:, 1:].ravel(), labels[:, :-1].ravel()])
    pairs = np.unique(pairs[:, (pairs[0] != pairs[1]) & (pairs > 0).all(axis=0)], axis=1)
    for cell in order[: round(share * len(order))]:
        neighbours = pairs[1][pairs[0] == cell]
        if len(neighbours):
            names[names == names[cell]] = names[neighbours[0]]
    return names[labels].astype(np.uint16)


def split(labels: Labels, rng: np.random.Generator, share: float) -> Labels:
    """Cut a share of the cells in two halves along x."""
    result = labels.copy()
    order = rng.permutation(np.arange(1, labels.max() + 1))
    boxes = ndimage.find_objects(labels)
    for cell in order[: round(share * len(order))]:
        inside = np.nonzero(labels[boxes[cell - 1]] == cell)
        far = inside[2] > np.median(inside[2])
        result[boxes[cell - 1]][tuple(axis[far] for axis in inside)] = labels.max() + cell
    return result


def eroded(labels: Labels, steps: int) -> Labels:
    """Leave a gap between cells, as watershed lines do, then peel more and more voxels off every cell."""
    mask = np.ones(labels.shape, bool)
    for axis in range(3 if steps else 0):
        view, along = np.moveaxis(mask, axis, 0), np.moveaxis(labels, axis, 0)
        view[:-1] &= along[:-1] == along[1:]
    if steps > 1:
        mask = ndimage.binary_erosion(mask, iterations=steps - 1, border_value=1)
    return np.where(mask, labels, 0)


def dropped(labels: Labels, rng: np.random.Generator, share: float) -> Labels:
    order = rng.permutation(np.arange(1, labels.max() + 1))
    return np.where(np.isin(labels, order[: round(share * len(order))]), 0, labels)


BLIND = {"merged", "split"}
LADDERS: dict[str, tuple[float, ...]] = {
    "merged": (0.0, 0.15, 0.4, 1.0),
    "split": (0.0, 0.15, 0.5, 1.0),
    "eroded": (0, 1, 2, 4),
    "dropped": (0.0, 0.1, 0.5, 0.9),
    "shifted": (0, 1, 4, 15),
}


def damage(ladder: str, labels: Labels, amount: float) -> Labels:
    rng = np.random.default_rng(7)
    match ladder:
        case "merged":
            return merged(labels, rng, amount)
        case "split":
            return split(labels, rng, amount)
        case "eroded":
            return eroded(labels, int(amount))
        case "dropped":
            return dropped(labels, rng, amount)
    return np.roll(labels, int(amount), axis=2)


@pytest.mark.parametrize("ladder", LADDERS)
def test_no_score_rises_with_damage(ladder: str, task: Any, falls: Any) -> None:
    truth = read(task.truth)
    scores = [
        task.score(write(task.new(), {name: damage(ladder, labels, amount) for name, labels in truth.items()}))
        for amount in LADDERS[ladder]
    ]
    if ladder in BLIND:  # foreground Dice does not see whether cells are told apart
        assert all(score.outcome == 1.0 for score in scores)
        assert np.all(np.diff([score.strict for score in scores]) <= 0.02)
    else:
        falls(scores)
    assert scores[0].strict == 1.0
    assert scores[1].strict >= 0.6  # the first step is the damage of an honest analysis
    assert scores[-1].strict < 0.5


def test_labels_and_order_of_files_do_not_matter(task: Any) -> None:
    rng = np.random.default_rng(3)
    damaged = {name: merged(split(labels, rng, 0.2), rng, 0.1) for name, labels in read(task.truth).items()}
    renamed = {}
    for name in reversed(damaged):
        labels = damaged[name]
        names = np.concatenate([[0], 1 + rng.permutation(60_000)[: labels.max()]])
        renamed[name] = names[labels]
    one, two = (task.score(write(task.new(), volumes)) for volumes in (damaged, renamed))
    assert round(one.outcome, 6) == round(two.outcome, 6)
    assert round(one.strict, 6) == round(two.strict, 6)


def test_names_metadata_and_containers_of_competent_people(task: Any) -> None:
    folder = task.new()
    for name, labels in read(task.truth).items():
        match name[0]:
            case "0":
                tifffile.imwrite(folder / name, labels, imagej=True, metadata={"axes": "ZYX"})
            case "2":
                upper = name.upper().replace(".TIF", ".tiff")
                tifffile.imwrite(folder / upper, labels[:, None].astype(np.int32), compression="lzw")
            case _:
                (folder / "segmentation_masks").mkdir()
                with tifffile.TiffWriter(folder / "segmentation_masks" / name) as file:
                    for plane in labels:
                        file.write(plane, metadata=None)  # one page per series
    result = task.score(folder)
    assert (result.outcome, result.strict) == (1.0, 1.0)


def test_wrong_axis_order_says_so(task: Any) -> None:
    name, labels = next(iter(read(task.truth).items()))
    turned = np.ascontiguousarray(labels.transpose(1, 2, 0))
    result = task.edited(lambda folder: tifffile.imwrite(folder / name, turned))
    assert result.outcome == pytest.approx(2 / 3)
    (problem,) = result.problems
    assert problem.code == "wrong_shape"
    assert "another order" in problem.message


def test_every_voxel_its_own_label_is_noise_not_a_crash(task: Any) -> None:
    name, labels = next(iter(read(task.truth).items()))
    noise = np.arange(labels.size, dtype=np.uint32).reshape(labels.shape)
    result = task.edited(lambda folder: tifffile.imwrite(folder / name, noise))
    assert result.strict == pytest.approx(2 / 3, abs=1e-3)


def test_the_feature_list_beside_the_truth_is_no_image(task: Any, tmp_path: Path) -> None:
    truth = tmp_path / "evaluation"
    shutil.copytree(task.truth, truth)
    (truth / "table_of_features.md").write_text("| feature |\n|---|\n")
    tifffile.imwrite(truth / "preview.tif", np.zeros((4, 4), np.uint8))
    assert task.score(task.perfect(), truth).outcome == 1.0


def test_a_wrong_table_of_volumes_is_seen(task: Any) -> None:
    rows = [
        (name.split("_")[0], cell, size)
        for name, labels in read(task.truth).items()
        for cell, size in enumerate(np.bincount(labels.ravel()))
        if cell
    ]
    for factor in (1.0, 1.5):
        lines = [f"{sample},{cell},{size * factor}" for sample, cell, size in rows]
        table = "\n".join(["sample_id,cell_id,volume_voxels", *lines])
        result = task.edited(lambda folder, table=table: (folder / "cell_morphometrics.csv").write_text(table))
        assert result.metrics["measured_share"] == 1.0
        assert result.metrics["measured_size_error"] == pytest.approx(factor - 1.0)
        assert (result.outcome, result.strict) == (1.0, 1.0)
