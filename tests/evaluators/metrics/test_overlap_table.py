"""The overlap table and foreground scores: hand-made arrays, invariants, limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from evaluators.metrics import overlap
from evaluators.metrics.overlap import OverlapTable, foreground_dice, foreground_iou, overlap_table

SHAPES = st.one_of(
    arrays.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=7), st.sampled_from([(0, 4), (3, 0, 2)])
)


@st.composite
def label_pairs(draw: st.DrawFn) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    shape = draw(SHAPES)
    images = arrays.arrays(np.uint16, shape, elements=st.integers(0, 5))
    return draw(images), draw(images)


def as_dict(table: OverlapTable) -> dict[tuple[int, int], int]:
    truth = table.truth_ids[table.truth_index].tolist()
    predicted = table.predicted_ids[table.predicted_index].tolist()
    return dict(zip(zip(truth, predicted, strict=True), table.overlaps.tolist(), strict=True))


def brute_force(truth: NDArray[np.uint16], predicted: NDArray[np.uint16]) -> dict[tuple[int, int], int]:
    pairs: dict[tuple[int, int], int] = {}
    for pair in zip(truth.ravel().tolist(), predicted.ravel().tolist(), strict=True):
        if all(pair):
            pairs[pair] = pairs.get(pair, 0) + 1
    return pairs


def test_hand_made_pair() -> None:
    truth = np.array([[1, 1, 0, 0], [1, 1, 0, 5]])
    predicted = np.array([[0, 9, 9, 0], [0, 9, 9, 5]])
    table = overlap_table(truth, predicted)
    assert dict(zip(table.truth_ids.tolist(), table.truth_sizes.tolist(), strict=True)) == {1: 4, 5: 1}
    assert dict(zip(table.predicted_ids.tolist(), table.predicted_sizes.tolist(), strict=True)) == {9: 4, 5: 1}
    assert as_dict(table) == {(1, 9): 2, (5, 5): 1}
    assert table.iou().tolist() == [2 / 6, 1.0]
    assert foreground_dice(table) == 2 * 3 / (5 + 5)
    assert foreground_iou(table) == 3 / 7


@given(label_pairs())
@settings(deadline=None)
def test_table_counts_what_a_loop_counts(pair: tuple[NDArray[np.uint16], NDArray[np.uint16]]) -> None:
    truth, predicted = pair
    table = overlap_table(truth, predicted)
    assert as_dict(table) == brute_force(truth, predicted)
    for ids, sizes, image in (
        (table.truth_ids, table.truth_sizes, truth),
        (table.predicted_ids, table.predicted_sizes, predicted),
    ):
        assert sorted(ids.tolist()) == sorted(set(image.ravel().tolist()) - {0})
        assert all(size == (image == label).sum() for label, size in zip(ids, sizes, strict=True))


@given(label_pairs(), st.permutations(range(1, 6)))
@settings(deadline=None)
def test_relabelling_changes_only_the_ids(pair: tuple[NDArray[np.uint16], NDArray[np.uint16]], new: list[int]) -> None:
    truth, predicted = pair
    table = overlap_table(truth, predicted)
    other = overlap_table(np.array([0, *new])[truth], predicted)
    assert other.truth_ids.tolist() == [new[label - 1] for label in table.truth_ids]
    for field in ("truth_sizes", "predicted_ids", "truth_index", "predicted_index", "overlaps"):
        assert getattr(other, field).tolist() == getattr(table, field).tolist()


@given(label_pairs())
@settings(deadline=None)
def test_swapping_sides_transposes_the_table(pair: tuple[NDArray[np.uint16], NDArray[np.uint16]]) -> None:
    truth, predicted = pair
    table, swapped = overlap_table(truth, predicted), overlap_table(predicted, truth)
    assert {(b, a): n for (a, b), n in as_dict(swapped).items()} == as_dict(table)
    assert foreground_dice(table) == foreground_dice(swapped)
    assert 0.0 <= foreground_iou(table) <= foreground_dice(table) <= 1.0


@given(label_pairs(), st.integers(1, 9))
@settings(deadline=None)
def test_size_of_the_chunks_does_not_matter(pair: tuple[NDArray[np.uint16], NDArray[np.uint16]], chunk: int) -> None:
    whole = overlap_table(*pair)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlap, "_CHUNK", chunk)
        parts = overlap_table(*pair)
    for field in vars(whole):
        assert getattr(parts, field).tolist() == getattr(whole, field).tolist()


def test_objects_are_numbered_by_their_first_pixel() -> None:
    image = np.array([[0, 8, 8], [3, 3, 8], [5, 0, 3]])
    assert overlap_table(image, image).truth_ids.tolist() == [8, 3, 5]


def test_memory_order_and_views_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(0, 5, (2, 12, 14))
    expected = as_dict(overlap_table(truth, predicted))
    assert as_dict(overlap_table(np.asfortranarray(truth), predicted)) == expected
    assert as_dict(overlap_table(truth.T[::-1], predicted.T[::-1])) == expected
    assert as_dict(overlap_table(truth.astype(">u2"), predicted.astype(np.uint8))) == expected


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint32, np.int64, np.uint64])
def test_every_integer_type_is_read(dtype: type) -> None:
    image = np.array([[0, 100], [100, 7]], dtype)
    assert as_dict(overlap_table(image, image)) == {(100, 100): 2, (7, 7): 1}


def test_ids_beyond_32_bit_stay_apart() -> None:
    truth = np.array([[2**62, 2**62 + 1, 1]])
    predicted = np.array([[1, 2**33, 2**33 + 1]])
    assert as_dict(overlap_table(truth, predicted)) == {(2**62, 1): 1, (2**62 + 1, 2**33): 1, (1, 2**33 + 1): 1}


def test_both_empty_counts_as_agreement_and_one_empty_as_none() -> None:
    blank, filled = np.zeros((3, 3), int), np.ones((3, 3), int)
    assert foreground_dice(overlap_table(blank, blank)) == foreground_iou(overlap_table(blank, blank)) == 1.0
    assert foreground_dice(overlap_table(blank, filled)) == foreground_iou(overlap_table(filled, blank)) == 0.0


def test_all_foreground_reaches_what_the_facts_say() -> None:
    truth = np.zeros((10, 10), int)
    truth[:7] = 1  # foreground fraction 0.7
    assert foreground_dice(overlap_table(truth, np.ones_like(truth))) == pytest.approx(0.824, abs=5e-4)


def test_floats_and_shapes_and_negative_ids_are_refused() -> None:
    image = np.ones((2, 3), int)
    with pytest.raises(TypeError, match="predicted: expected integer labels, found float64"):
        overlap_table(image, image * 0.5)
    with pytest.raises(ValueError, match=r"shapes differ: truth \(2, 3\), predicted \(3, 2\)"):
        overlap_table(image, image.T)
    with pytest.raises(ValueError, match="between 0 and"):
        overlap_table(image, -image)
    with pytest.raises(ValueError, match="between 0 and"):
        overlap_table(np.full((2, 3), 2**63, np.uint64), image)


def test_a_million_labels_make_no_dense_matrix() -> None:
    noise = np.random.default_rng(0).permutation(1_000_000).reshape(1000, 1000).astype(np.uint32) + np.uint32(1)
    blocks = np.arange(1, 401).repeat(2500).reshape(400, 2500).reshape(1000, 1000)
    table = overlap_table(blocks, noise)  # a dense one would hold 4e8 numbers
    assert (table.truth_count, table.predicted_count, len(table.overlaps)) == (400, 1_000_000, 1_000_000)
    assert foreground_dice(table) == 1.0
