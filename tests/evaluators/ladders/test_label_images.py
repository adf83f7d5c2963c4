"""hela_segmentation and histology_nuclei: the top, the bottom, and what lies between."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from scipy import ndimage
from skimage.morphology import disk, erosion
from skimage.segmentation import expand_labels

TASKS = ("hela_segmentation", "histology_nuclei")
TOLERANCE = 0.02

Labels = NDArray[Any]
Change = Callable[[Labels, Path], Labels]


def small(full: Any, base: Path) -> Any:
    """Return the task with its first and its last image only."""
    stems = sorted(path.stem for path in full.input.iterdir())
    kept = {stems[0], stems[-1]}
    for path in full.folder.rglob("*"):
        if path.stem in kept:
            target = base / "data" / path.relative_to(full.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    return type(full)(full.spec, base / "data", base / "submissions")


@pytest.fixture(scope="module", params=TASKS)
def task(request: Any, bench: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return small(bench(request.param, 1), tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def hela(bench: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return small(bench("hela_segmentation", 1), tmp_path_factory.mktemp("hela"))


def every(change: Change) -> Callable[[Path], None]:
    """Return an edit that changes every mask of a submission."""

    def edit(folder: Path) -> None:
        for path in sorted(folder.rglob("*.tif")):
            changed = change(tifffile.imread(path), path)
            tifffile.imwrite(path, changed.astype(np.uint16), compression=None)

    return edit


def order_of(labels: Labels, path: Path) -> NDArray[np.int64]:
    """Return the labels of an image in a random order that is the same in every rung and compartment."""
    generator = np.random.default_rng([ord(mark) for mark in path.stem])
    return generator.permutation(np.arange(1, int(labels.max(initial=0)) + 1))


def shifted(pixels: int) -> Change:
    return lambda labels, _: np.pad(labels, ((0, 0), (pixels, 0)))[:, : labels.shape[1]]


def dropped(share: float) -> Change:
    def change(labels: Labels, path: Path) -> Labels:
        order = order_of(labels, path)
        return np.where(np.isin(labels, order[: round(share * len(order))]), 0, labels)

    return change


def eroded(pixels: int) -> Change:
    return lambda labels, _: labels if not pixels else erosion(labels, disk(pixels))


def grown(pixels: int) -> Change:
    return lambda labels, _: expand_labels(labels, pixels) if pixels else labels


def split(share: float) -> Change:
    """Cut a share of the objects in two at their median column."""

    def change(labels: Labels, path: Path) -> Labels:
        result = labels.copy()
        boxes = ndimage.find_objects(labels)
        for name in order_of(labels, path)[: round(share * int(labels.max(initial=0)))]:
            box = boxes[name - 1]
            rows, columns = np.nonzero(labels[box] == name)
            right = columns > np.median(columns)
            result[box][rows[right], columns[right]] = int(labels.max()) + name
        return result

    return change


def merged(share: float) -> Change:
    """Give a share of the objects the label of their nearest neighbour."""

    def change(labels: Labels, path: Path) -> Labels:
        count = int(labels.max(initial=0))
        lookup = np.arange(count + 1)
        centres = np.array(ndimage.center_of_mass(labels > 0, labels, np.arange(1, count + 1)))
        for name in order_of(labels, path)[: round(share * count)]:
            distance = np.linalg.norm(centres - centres[name - 1], axis=1)
            distance[name - 1] = np.inf
            if np.isfinite(distance).any():
                lookup[lookup == lookup[name]] = lookup[int(np.nanargmin(distance)) + 1]
        return lookup[labels]

    return change


def speckled(share: float) -> Change:
    """Add false objects of 4 x 4 px on background, as many as a share of the true ones."""

    def change(labels: Labels, path: Path) -> Labels:
        result = labels.copy()
        generator = np.random.default_rng([ord(mark) for mark in path.stem])
        count = int(labels.max(initial=0))
        places = generator.integers(0, np.array(labels.shape) - 4, (2 * count, 2))
        for number, (row, column) in enumerate(places[: round(share * count)]):
            place = result[row : row + 4, column : column + 4]
            place[labels[row : row + 4, column : column + 4] == 0] = 2 * count + number + 1
        return result

    return change


def exchanged(share: float) -> Change:
    """Exchange labels of a share of the cells in the cytoplasm masks (hela) only."""

    def change(labels: Labels, path: Path) -> Labels:
        if "cytoplasm" not in str(path):
            return labels
        order = order_of(labels, path)
        some = np.sort(order[: round(share * len(order))])
        lookup = np.arange(int(labels.max(initial=0)) + 1)
        lookup[some] = np.roll(some, 1)
        return lookup[labels]

    return change


LADDERS: dict[str, tuple[Change, ...]] = {
    "shifted": tuple(map(shifted, (0, 1, 2, 4, 8, 16))),
    "dropped": tuple(map(dropped, (0.0, 0.1, 0.3, 0.6, 1.0))),
    "eroded": tuple(map(eroded, (0, 1, 2, 3, 5))),
    "grown": tuple(map(grown, (0, 1, 2, 4, 12))),
    "split": tuple(map(split, (0.0, 0.1, 0.3, 0.6, 1.0))),
    "merged": tuple(map(merged, (0.0, 0.05, 0.2, 0.5, 1.0))),
    "speckled": tuple(map(speckled, (0.0, 0.1, 0.3, 1.0, 2.0))),
}
MILD: dict[str, Change] = {
    "shifted": shifted(1),
    "dropped": dropped(0.1),
    "eroded": eroded(1),
    "grown": grown(1),
    "split": split(0.1),
    "merged": merged(0.05),
    "speckled": speckled(0.1),
}


def never_rises(scores: list[Any]) -> None:
    for values in ([score.outcome for score in scores], [score.strict for score in scores]):
        assert all(later <= earlier + TOLERANCE for earlier, later in pairwise(values)), values
    assert scores[-1].strict < scores[0].strict - 0.3, [score.strict for score in scores]


def ladder(task: Any, name: str) -> None:
    never_rises([task.edited(every(change)) for change in LADDERS[name]])


@pytest.mark.parametrize("name", LADDERS)
def test_damage_never_raises_a_score(task: Any, name: str) -> None:
    ladder(task, name)


@pytest.mark.full
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("slug", TASKS)
def test_damage_never_raises_a_score_on_more_seeds(slug: str, seed: int, bench: Any) -> None:
    task = bench(slug, seed)  # with all images
    for name in LADDERS:
        ladder(task, name)
    for change in MILD.values():
        assert task.edited(every(change)).strict >= 0.6


def test_mild_damage_keeps_strict(task: Any) -> None:
    found = {name: task.edited(every(change)).strict for name, change in MILD.items()}
    assert min(found.values()) >= 0.6, found


def test_truth_is_the_top_and_nothing_the_bottom(task: Any) -> None:
    perfect = task.score(task.perfect())
    assert (perfect.outcome, perfect.strict, perfect.problems) == (1.0, 1.0, [])
    for folder in (task.new(), task.bluff()):
        score = task.score(folder)
        assert (score.outcome, score.strict, score.delivered) == (0.0, 0.0, False)


def test_half_of_the_images_is_half(task: Any) -> None:
    stems = sorted({path.stem for path in task.perfect().rglob("*.tif")})

    def keep_half(folder: Path) -> None:
        for path in folder.rglob("*.tif"):
            if path.stem in stems[len(stems) // 2 :]:
                path.unlink()

    expected = (len(stems) // 2) / len(stems)
    score = task.edited(keep_half)
    assert score.outcome == pytest.approx(expected, abs=1e-6)
    assert score.strict == pytest.approx(expected, abs=0.02)


def test_leaving_out_images_one_by_one_never_raises_a_score(task: Any) -> None:
    damaged = task.perfect(every(exchanged(1.0)))
    scores = [task.score(damaged)]
    for path in sorted(damaged.rglob("*.tif")):
        path.unlink()
        scores.append(task.score(damaged))
    for values in ([score.outcome for score in scores], [score.strict for score in scores]):
        assert all(later <= earlier + 1e-9 for earlier, later in pairwise(values)), values
    assert scores[-1].outcome == 0.0


def noise(labels: Labels, path: Path) -> Labels:
    generator = np.random.default_rng(len(path.stem))
    return np.where(labels > 0, generator.integers(1, 10_000, labels.shape), 0)


def tiles(labels: Labels, _: Path) -> Labels:
    rows, columns = (np.arange(length) // 16 for length in labels.shape)
    return rows[:, None] * 100 + columns + 1


TRICKS: dict[str, Change] = {
    "one_label_for_all": lambda labels, _: labels > 0,
    "all_foreground": lambda labels, _: np.ones_like(labels),
    "noise_labels": noise,
    "tiles": tiles,
    "tiles_on_the_right_foreground": lambda labels, path: np.where(labels > 0, tiles(labels, path), 0),
    "empty_images": lambda labels, _: np.zeros_like(labels),
}


@pytest.mark.parametrize("name", TRICKS)
def test_tricks_fail_the_strict_score(task: Any, name: str) -> None:
    score = task.edited(every(TRICKS[name]))
    assert score.strict <= 0.2, name
    if name == "one_label_for_all":
        assert score.outcome == 1.0  # an honest limit of the published score


def test_tricks_with_two_compartments(hela: Any) -> None:
    def copy(source: str, target: str) -> Callable[[Path], None]:
        def edit(folder: Path) -> None:
            shutil.rmtree(folder / target)
            shutil.copytree(folder / source, folder / target)

        return edit

    for edit in (
        copy("nuclei_masks", "cytoplasm_masks"),
        copy("cytoplasm_masks", "nuclei_masks"),
        lambda folder: shutil.rmtree(folder / "cytoplasm_masks"),
        lambda folder: shutil.rmtree(folder / "nuclei_masks"),
        every(exchanged(1.0)),
    ):
        assert hela.edited(edit).strict <= 0.2
    assert hela.edited(every(exchanged(1.0))).outcome == 1.0


def test_exchanged_ids_never_raise_a_score(hela: Any) -> None:
    never_rises([hela.edited(every(exchanged(share))) for share in (0.0, 0.1, 0.3, 0.6, 1.0)])
    assert hela.edited(every(exchanged(0.1))).strict >= 0.6
