"""wound_healing: the ends of the scale, damage of every kind, and the cheap tricks."""

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

Values = NDArray[np.float64]
Change = Callable[[Values, np.random.Generator], Values]


@pytest.fixture(params=SEEDS)
def data(request: pytest.FixtureRequest, bench: Any) -> Any:
    return bench("wound_healing", request.param)


def changed(data: Any, kymograph: Change | None = None, velocity: Change | None = None) -> Any:
    """Score perfect files after a change; each file has the same random numbers in every call."""

    def edit(folder: Path) -> None:
        for number, path in enumerate(sorted(folder.rglob("*.tif"))):
            change = kymograph if "Kymograph" in path.name else velocity
            if change is not None:
                result = change(tifffile.imread(path), np.random.default_rng(number))
                tifffile.imwrite(path, result.astype(np.float32))

    return data.edited(edit)


def test_ends_of_the_scale(data: Any) -> None:
    perfect = data.score(data.perfect())
    assert perfect.outcome == perfect.strict == 1.0
    assert not perfect.problems
    for folder in (data.new(), data.bluff()):
        nothing = data.score(folder)
        assert (nothing.outcome, nothing.strict, nothing.delivered) == (0.0, 0.0, False)
        assert {problem.code for problem in nothing.problems} == {"missing_deliverable"}


def test_half_of_the_experiments_is_half_of_the_score(data: Any) -> None:
    def edit(folder: Path) -> None:
        for condition in sorted(folder.iterdir())[::2]:
            for path in condition.iterdir():
                path.unlink()

    score = data.edited(edit)
    assert score.outcome == pytest.approx(0.5)
    assert score.strict == pytest.approx(0.5)
    assert {problem.code for problem in score.problems} == {"missing_file"}


@pytest.mark.parametrize(
    ("missing", "left"),
    [("speedKymograph", 0.15 + 0.1 * 2 / 3), ("mf_dxs", 0.75 + 0.1 * 2 / 3), ("mf_d", 0.75 + 0.1 / 3)],
)
def test_a_missing_deliverable_is_0_in_its_part(data: Any, missing: str, left: float) -> None:
    def edit(folder: Path) -> None:
        for path in folder.rglob(f"*{missing}*"):
            path.unlink()

    score = data.edited(edit)
    assert score.outcome == pytest.approx(left, abs=1e-6)
    assert score.strict == 0.0


def test_damage_never_pays(data: Any, falls: Any) -> None:
    def noisy(values: Values, rng: np.random.Generator, size: float) -> Values:
        return np.asarray(values + size * 5.0 * rng.standard_normal(values.shape))

    def holes(values: Values, rng: np.random.Generator, share: float) -> Values:
        return np.where(rng.random(values.shape) < share, np.nan, values)

    def scaled(values: Values, rng: np.random.Generator, by: float) -> Values:
        return values * by

    def late(values: Values, rng: np.random.Generator, frames: int) -> Values:
        return np.roll(values, frames, axis=1)

    def short(values: Values, rng: np.random.Generator, columns: int) -> Values:
        return values[:, : values.shape[1] - columns]

    def turned(values: Values, rng: np.random.Generator, by: float) -> Values:
        return values * np.cos(by) + ndimage.gaussian_filter(rng.standard_normal(values.shape), 6) * 150 * np.sin(by)

    ladders: list[tuple[str, Any, tuple[Any, ...]]] = [
        ("kymograph", noisy, (0.0, 0.2, 0.6, 2.0)),
        ("kymograph", holes, (0.0, 0.1, 0.3, 0.8)),
        ("kymograph", scaled, (1.0, 1.3, 2.0, 0.0)),
        ("kymograph", late, (0, 1, 3, 6)),
        ("kymograph", short, (0, 1, 4, 8)),
        ("velocity", noisy, (0.0, 0.5, 2.0, 8.0)),
        ("velocity", holes, (0.0, 0.1, 0.3, 0.8)),
        ("velocity", scaled, (1.0, 0.6, 0.2, 0.0)),
        ("velocity", turned, (0.0, 0.4, 0.9, 1.5)),
    ]
    for part, damage, rungs in ladders:
        falls([changed(data, **{part: lambda v, rng, d=damage, r=rung: d(v, rng, r)}) for rung in rungs])


def test_swapped_conditions_and_components_fail(data: Any) -> None:
    def swap(folder: Path) -> None:
        paths = sorted(folder.rglob("*speedKymograph.tif"))
        tables = [tifffile.imread(path) for path in paths]
        for path, table in zip(paths, [*tables[1:], tables[0]], strict=True):
            tifffile.imwrite(path, table)

    assert data.edited(swap).strict < 0.45

    def exchange(folder: Path) -> None:
        for x in folder.rglob("*_mf_dxs.tif"):
            y = x.with_name(x.name.replace("dxs", "dys"))
            one, other = tifffile.imread(x), tifffile.imread(y)
            tifffile.imwrite(x, other)
            tifffile.imwrite(y, one)

    exchanged = data.edited(exchange)
    assert exchanged.strict < 0.2
    upward = changed(data, velocity=lambda values, rng: -values)
    assert upward.metrics["direction"] == 0.0
    assert upward.strict == 0.0


def test_wrong_units_keep_the_outcome_and_lose_the_strict_score(data: Any) -> None:
    score = changed(data, kymograph=lambda values, rng: values / 60.0 + 5.0)  # um/min, and an offset
    assert score.outcome == pytest.approx(1.0, abs=1e-3)  # the honest limit of the published definition
    assert score.strict < 0.1


def test_mild_damage_is_forgiven(data: Any) -> None:
    def blurred(values: Values, rng: np.random.Generator) -> Values:
        return 0.92 * ndimage.gaussian_filter(values, 0.5) + 0.4 * rng.standard_normal(values.shape)

    def patchy(values: Values, rng: np.random.Generator) -> Values:
        smooth = ndimage.uniform_filter(values, 5) + 2.0 * ndimage.gaussian_filter(rng.standard_normal(values.shape), 2)
        return np.asarray(smooth)

    score = changed(data, kymograph=blurred, velocity=patchy)
    assert score.outcome > 0.95
    assert score.strict > 0.6


def test_columns_after_the_edges_have_met_do_not_count(data: Any) -> None:
    def longer(values: Values, rng: np.random.Generator) -> Values:
        return np.concatenate([values, np.full((len(values), 9), 99.0)], axis=1)

    score = changed(data, kymograph=longer)
    assert score.outcome == score.strict == 1.0


def test_names_and_forms_that_mean_the_same(data: Any) -> None:
    def edit(folder: Path) -> None:
        for number, condition in enumerate(sorted(folder.iterdir())):
            for path in sorted(condition.iterdir()):
                values = tifffile.imread(path)
                name = path.name.split("_")
                exp, suffix = "_".join(name[:2]), "_".join(name[2:])
                target = (
                    folder / f"{condition.name}_{suffix}",
                    condition / f"agent_{exp.lower()}_{suffix}",
                    folder / exp / f"field_{suffix}",
                    condition / f"{exp}_{suffix}f",
                    folder / f"{exp}_{suffix}",
                    condition / path.name,
                )[number]
                path.unlink()
                target.parent.mkdir(exist_ok=True)
                tifffile.imwrite(target, values[None].astype(np.float32), compression="lzw")

    score = data.edited(edit)
    assert score.outcome == pytest.approx(1.0, abs=1e-6), score.problems
    assert score.strict == pytest.approx(1.0, abs=1e-4)


def test_cheap_tricks_fail_in_the_strict_score(data: Any) -> None:
    outcomes = {}
    for name, trick in data.tricks().items():
        score = data.trick(name, trick)
        assert score.strict <= 0.2, (name, score.strict)
        outcomes[name] = score.outcome
    assert outcomes["exponential"] > 0.8  # the honest limit of the published definition
    assert outcomes["two_cells"] < 0.25  # 0.97 where cells that are not finite are left out
    assert outcomes["tiny"] < 0.1
