"""microtubules: the ends of the scale, damage of every kind, and the cheap tricks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from scipy import ndimage

SEEDS = [0, pytest.param(1, marks=pytest.mark.full), pytest.param(2, marks=pytest.mark.full)]

Mask = NDArray[np.bool_]


@pytest.fixture(params=SEEDS)
def data(request: pytest.FixtureRequest, bench: Any) -> Any:
    return bench("microtubules", request.param)


def changed(data: Any, change: Callable[[Mask, np.random.Generator], NDArray[Any]]) -> Any:
    """Score perfect masks after a change; each image has the same random numbers in every call."""

    def edit(folder: Path) -> None:
        for number, path in enumerate(sorted(folder.glob("*.tif"))):
            result = change(tifffile.imread(path) > 0, np.random.default_rng(number))
            tifffile.imwrite(path, result if result.dtype != bool else result.astype(np.uint8))

    return data.edited(edit)


def cut(mask: Mask, rng: np.random.Generator, gaps: int) -> Mask:
    """Cut gaps of five pixels at random places of the filaments; more gaps contain fewer."""
    places = rng.permutation(np.argwhere(mask))[:gaps]
    holes = np.zeros(mask.shape, bool)
    holes[tuple(places.T)] = True
    return np.asarray(mask & ~ndimage.binary_dilation(holes, np.ones((5, 5))))


def specks(mask: Mask, rng: np.random.Generator, share: float) -> Mask:
    return np.asarray(mask | (rng.random(mask.shape) < share))


def without_patches(mask: Mask, rng: np.random.Generator, share: float) -> Mask:
    """Leave out a share of square patches."""
    patches = rng.random((20, 20)) < share
    return np.asarray(mask & ~np.kron(patches, np.ones((20, 20), bool))[: mask.shape[0], : mask.shape[1]])


def test_ends_of_the_scale(data: Any) -> None:
    perfect = data.score(data.perfect())
    assert perfect.outcome == perfect.strict == 1.0
    assert not perfect.problems
    assert perfect.metrics["components_error"] == perfect.metrics["holes_error"] == 0
    for folder in (data.new(), data.bluff()):
        nothing = data.score(folder)
        assert (nothing.outcome, nothing.strict, nothing.delivered) == (0.0, 0.0, False)


def test_half_of_the_files_is_half_of_the_score(data: Any) -> None:
    def edit(folder: Path) -> None:
        for path in sorted(folder.glob("*.tif"))[::2]:
            path.unlink()

    score = data.edited(edit)
    assert score.outcome == pytest.approx(0.5)
    assert score.strict == pytest.approx(0.5)
    assert [problem.code for problem in score.problems] == ["missing_file"] * 3


def test_wrong_shapes_count_as_missing(data: Any) -> None:
    # 3 right masks and 3 of 2 x 2 pixels: the published mean leaves the latter out and gives 1
    def edit(folder: Path) -> None:
        for path in sorted(folder.glob("*.tif"))[::2]:
            tifffile.imwrite(path, np.ones((2, 2), np.uint8))

    score = data.edited(edit)
    assert score.outcome == pytest.approx(0.5)
    assert {problem.code for problem in score.problems} == {"wrong_shape"}


def test_damage_never_pays(data: Any, falls: Any) -> None:
    def shifted(mask: Mask, rng: np.random.Generator, by: int) -> Mask:
        return np.roll(mask, (by, -by), (0, 1))

    def widened(mask: Mask, rng: np.random.Generator, by: int) -> Mask:
        return np.asarray(ndimage.binary_dilation(mask, iterations=by)) if by else mask

    def swapped(mask: Mask, rng: np.random.Generator, transpose: bool) -> Mask:
        return mask.T if transpose else mask

    ladders: dict[Any, tuple[Any, ...]] = {
        cut: (0, 5, 20, 80),
        specks: (0.0, 0.002, 0.01, 0.05),
        without_patches: (0.0, 0.1, 0.3, 0.7),
        shifted: (0, 1, 2, 4),
        widened: (0, 1, 3, 6),
        swapped: (False, True),
    }
    for damage, rungs in ladders.items():
        falls([changed(data, lambda mask, rng, d=damage, rung=rung: d(mask, rng, rung)) for rung in rungs])


def test_mild_damage_is_forgiven(data: Any) -> None:
    def mild(mask: Mask, rng: np.random.Generator) -> Mask:
        mask = np.roll(mask, 1, 0) & ~ndimage.binary_erosion(mask, np.ones((5, 5)))
        return specks(cut(without_patches(mask, rng, 0.03), rng, 5), rng, 0.0005)

    score = changed(data, mild)
    assert score.outcome > 0.65
    assert score.strict > 0.6


def test_width_costs_the_outcome_and_hardly_the_strict_score(data: Any) -> None:
    wide = changed(data, lambda mask, rng: np.asarray(ndimage.binary_dilation(mask)))
    assert wide.outcome < 0.85
    assert wide.strict > 0.9


def test_inverted_masks_are_named(data: Any) -> None:
    score = changed(data, lambda mask, rng: ~mask)
    assert score.outcome < 0.02
    assert score.strict == 0.0
    assert {problem.code for problem in score.problems} == {"mostly_foreground"}


def test_names_and_forms_that_mean_the_same(data: Any) -> None:
    def edit(folder: Path) -> None:
        inner = folder / "masks"
        inner.mkdir()
        for number, path in enumerate(sorted(folder.glob("*.tif"))):
            mask = tifffile.imread(path)
            index = int(path.stem.split("_")[1])
            name, form, options = (
                (f"report_{index}_mask.tiff", mask * np.uint8(255), {"compression": "lzw"}),
                (f"mask_report_{index:04d}.tif", mask[None].astype(np.uint16), {"imagej": True}),
                (f"report_{index:04d}.tif", mask.astype(np.float32), {}),
                (f"Report_{index:04d}_Segmentation_Mask.ome.tif", mask > 0, {}),
                (f"report_{index:04d}.noisy_mask.tif", mask.astype(np.int16), {"bigtiff": True}),
                (f"{index:05d}_mask.tif", mask, {"tile": (64, 64)}),
            )[number]
            tifffile.imwrite(inner / name, form, **options)
            path.unlink()

    score = data.edited(edit)
    assert score.outcome == score.strict == 1.0, score.problems


def test_cheap_tricks_fail_in_the_strict_score(data: Any) -> None:
    outcomes = {}
    for name, trick in data.tricks().items():
        score = data.trick(name, trick)
        assert score.strict <= 0.2, (name, score.strict)
        outcomes[name] = score.outcome
    assert outcomes["dashes"] > 0.6  # the honest limit of the published definition
