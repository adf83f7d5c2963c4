"""Canvas, profiles, places of tiles, identity of planes, and tables of means: values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from evaluators.metrics.cytometry import (
    contrast_agreement,
    direction_agreement,
    effect_size_agreement,
    relative_agreement,
)
from evaluators.metrics.stitching import (
    Location,
    aligned_correlation,
    canvas_agreement,
    correlation,
    global_shift,
    locate,
    placement,
    plane_identity,
    profile_correlation,
)


def texture(seed: int = 0, shape: tuple[int, int] = (180, 200)) -> np.ndarray:
    rng = np.random.default_rng(seed)
    spots = np.zeros(shape, np.float32)
    spots[rng.integers(0, shape[0], 90), rng.integers(0, shape[1], 90)] = rng.uniform(200, 900, 90)
    return ndimage.gaussian_filter(spots, 2.5).astype(np.float32)


def test_canvas_loses_in_proportion_to_both_differences() -> None:
    assert canvas_agreement((7476, 7476), (7476, 7476), 20) == 1.0
    assert canvas_agreement((7476, 7476), (7476, 7466), 20) == 0.75
    assert canvas_agreement((7476, 7476), (7456, 7496), 20) == 0.0


def test_profiles_ignore_gain_and_offset_and_are_stretched_onto_each_other() -> None:
    profile = np.sin(np.linspace(0, 9, 101))
    assert profile_correlation(profile, 3 * profile + 7) == pytest.approx(1.0)
    assert profile_correlation(profile, -profile) == 0.0
    assert profile_correlation(profile, np.ones(101)) == 0.0
    assert profile_correlation(profile, np.sin(np.linspace(0, 9, 201))) == pytest.approx(1.0, abs=1e-3)
    assert profile_correlation(profile, [1.0]) == 0.0


def test_aligned_profiles_are_compared_where_they_overlap() -> None:
    profile = np.random.default_rng(0).random(100)
    padded = np.concatenate([np.zeros(7), profile, np.zeros(13)])
    assert aligned_correlation(profile, padded, 7) == pytest.approx(1.0)
    assert aligned_correlation(profile, profile[20:], -20) == pytest.approx(1.0)
    assert aligned_correlation(profile, profile[60:], -60) == 0.0  # less than half in common
    assert aligned_correlation(profile, padded, 0) < 0.5


def test_correlation_of_a_constant_is_nothing() -> None:
    assert correlation([1, 1, 1], [1, 2, 3]) == 0.0


@settings(max_examples=25, deadline=None)
@given(st.integers(-25, 25), st.integers(-25, 25))
def test_a_shift_of_the_whole_is_found(dy: int, dx: int) -> None:
    image = texture()
    larger = np.zeros((240, 260), np.float32)
    larger[30 + dy : 30 + dy + 180, 30 + dx : 30 + dx + 200] = image
    assert global_shift(image, larger) == (30 + dy, 30 + dx)


@pytest.mark.parametrize(("dy", "dx"), [(0.0, 0.0), (3.4, -6.7), (-11.0, 9.5)])
@pytest.mark.parametrize("step", [1, 2])
def test_a_block_is_found_to_a_fraction_of_a_pixel(dy: float, dx: float, step: int) -> None:
    image = texture()
    moved = ndimage.shift(image, (dy, dx), order=3).astype(np.float32)
    found = locate(image[60:120, 60:130], moved, (60, 60), 20, step=step)
    assert found is not None
    assert found.correlation > 0.95
    assert (found.dy, found.dx) == (pytest.approx(dy, abs=0.25), pytest.approx(dx, abs=0.25))


def test_a_block_without_structure_or_beyond_the_image_is_not_found() -> None:
    image = texture()
    assert locate(np.zeros((40, 40), np.float32), image, (50, 50), 10) is None
    assert locate(image[:40, :40], np.zeros_like(image), (50, 50), 10) is None
    assert locate(image[:40, :40], image, (400, 400), 10) is None
    at_edge = locate(image[:40, :40], image, (0, 0), 10)
    assert at_edge is not None
    assert (at_edge.dy, at_edge.dx) == (pytest.approx(0, abs=0.1), pytest.approx(0, abs=0.1))


def test_tiles_are_judged_after_one_shift_of_the_whole() -> None:
    def at(dy: float, dx: float, match: float = 0.99) -> Location:
        return Location(dy, dx, match)

    alike = placement([at(4.0, -3.0)] * 9, 1.0, 0.8)
    assert (alike.share, alike.pairs, alike.shift) == (1.0, 1.0, (4.0, -3.0))
    one_off = placement([at(0, 0)] * 8 + [at(0, 3)], 1.0, 0.8)
    assert one_off.share == pytest.approx(8 / 9)
    assert one_off.pairs == pytest.approx(8 * 7 / (9 * 8))
    apart = placement([at(10.0 * k, 0) for k in range(9)], 1.0, 0.8)
    assert (apart.share, apart.pairs) == (pytest.approx(1 / 9), 0.0)  # a tile alone agrees with itself
    missing = placement([at(0, 0, 0.5), None, at(0, 0), at(0, 0)], 1.0, 0.8)
    assert (missing.share, missing.pairs) == (0.5, pytest.approx(2 / 12))
    assert np.isinf(missing.errors[:2]).all()
    nothing = placement([None] * 4, 1.0, 0.8)
    assert (nothing.share, nothing.pairs, nothing.shift) == (0.0, 0.0, None)


def test_planes_must_fit_their_own_reference_best() -> None:
    true = np.random.default_rng(0).random((4, 500))
    noisy = true + 0.2 * np.random.default_rng(1).standard_normal(true.shape)
    assert (plane_identity(true, noisy) > 0.7).all()
    assert (plane_identity(true, noisy[[1, 0, 2, 3]])[:2] < 0.05).all()
    assert (plane_identity(true, noisy[[1, 0, 2, 3]])[2:] > 0.7).all()
    copies = plane_identity(true, np.repeat(true[:1], 4, axis=0))
    assert copies[0] == pytest.approx(1.0)
    assert copies[1:].max() < 0.05
    assert (plane_identity(true, np.zeros_like(true)) == 0.0).all()


WBC, MCF7 = "WBC", "MCF7"
TRUE = {
    (WBC, "Bodipy", "Sigma"): 48.0,
    (MCF7, "Bodipy", "Sigma"): 60.0,
    (WBC, "DAPI", "r"): 2.5,
    (MCF7, "DAPI", "r"): 4.0,
    (WBC, "CD45", "rf"): 0.3,
    (MCF7, "CD45", "rf"): 0.6,
}
PAIRS = (("Bodipy", "Sigma"), ("DAPI", "r"), ("CD45", "rf"))


def test_relative_agreement_falls_linearly_to_nothing() -> None:
    assert relative_agreement(50.0, 50.0) == 1.0
    assert relative_agreement(60.0, 50.0) == pytest.approx(0.8)
    assert relative_agreement(100.0, 50.0) == 0.0
    assert (
        relative_agreement(None, 50.0) == relative_agreement(float("nan"), 50.0) == relative_agreement(1.0, 0.0) == 0.0
    )
    assert relative_agreement(60.0, 50.0, 0.5) == pytest.approx(0.6)


def test_ten_decibels_too_many_are_near_in_relative_terms_and_right_in_contrast() -> None:
    high = {key: value + 10.0 if key[2] == "Sigma" else value for key, value in TRUE.items()}
    assert relative_agreement(high[WBC, "Bodipy", "Sigma"], 48.0) == pytest.approx(0.79, abs=0.01)
    assert contrast_agreement(high, TRUE, PAIRS, (WBC, MCF7)) == pytest.approx(1.0)


def test_equal_means_have_no_contrast_and_no_direction() -> None:
    equal = dict.fromkeys(TRUE, 50.0)
    assert contrast_agreement(equal, TRUE, PAIRS, (WBC, MCF7)) == 0.0
    assert direction_agreement(equal, TRUE, PAIRS, (WBC, MCF7)) == 0.0


def test_missing_means_count_as_wrong() -> None:
    some = {key: value for key, value in TRUE.items() if key[1] == "DAPI"}
    assert contrast_agreement(some, TRUE, PAIRS, (WBC, MCF7)) == pytest.approx(1 / 3)
    assert direction_agreement(some, TRUE, PAIRS, (WBC, MCF7)) == pytest.approx(1 / 3)
    del some[WBC, "DAPI", "r"]
    assert direction_agreement(some, TRUE, PAIRS, (WBC, MCF7)) == 0.0


def test_direction_is_exchanged_with_the_populations() -> None:
    exchanged = {({WBC: MCF7, MCF7: WBC}[p], c, f): value for (p, c, f), value in TRUE.items()}
    assert direction_agreement(exchanged, TRUE, PAIRS, (WBC, MCF7)) == 0.0
    assert contrast_agreement(exchanged, TRUE, PAIRS, (WBC, MCF7)) == 0.0


def test_effect_sizes_are_compared_by_rank() -> None:
    spreads = dict.fromkeys(TRUE, 1.0)
    reference = {("Bodipy", "Sigma"): 9.0, ("DAPI", "r"): 3.0, ("CD45", "rf"): 1.0}
    assert effect_size_agreement(TRUE, spreads, reference, (WBC, MCF7)) == pytest.approx(1.0)
    reversed_reference = {("Bodipy", "Sigma"): 1.0, ("DAPI", "r"): 3.0, ("CD45", "rf"): 9.0}
    assert effect_size_agreement(TRUE, spreads, reversed_reference, (WBC, MCF7)) == pytest.approx(-1.0)
    assert effect_size_agreement(TRUE, {}, reference, (WBC, MCF7)) is None
