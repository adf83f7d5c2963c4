"""Instance scores: hand-made cases, known weaknesses with the right value, an independent peer, invariants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from scipy import ndimage

from evaluators.metrics.instances import (
    IOU_THRESHOLDS,
    aggregated_jaccard,
    average_precision,
    boundary_f1,
    id_agreement,
    match_instances,
    panoptic_quality,
    same_id,
)
from evaluators.metrics.overlap import foreground_dice, overlap_table

Image = NDArray[np.int64]
IMAGES = arrays.arrays(np.int64, (5, 6), elements=st.integers(0, 4))
BLANK = np.zeros((12, 12), np.int64)


def grid(gap: int = 2, size: int = 10, count: int = 5) -> Image:
    """Return ``count`` x ``count`` squares, numbered from 1."""
    step = size + gap
    image = np.zeros((count * step + gap, count * step + gap), np.int64)
    for number in range(count**2):
        row, column = gap + step * (number // count), gap + step * (number % count)
        image[row : row + size, column : column + size] = number + 1
    return image


def scores(truth: Image, predicted: Image) -> dict[str, float]:
    table = overlap_table(truth, predicted)
    return {
        "dice": foreground_dice(table),
        "ap_50": average_precision(table)[0],
        "pq": panoptic_quality(table).pq,
        "aji": aggregated_jaccard(table),
        "boundary_f1": boundary_f1(truth, predicted, table),
    }


# Peer: dense masks and textbook augmenting paths, sharing no code with the module.


def dense_iou(truth: Image, predicted: Image) -> NDArray[np.float64]:
    rows = [truth == label for label in sorted(set(truth.ravel().tolist()) - {0})]
    columns = [predicted == label for label in sorted(set(predicted.ravel().tolist()) - {0})]
    values = [[(a & b).sum() / (a | b).sum() for b in columns] for a in rows]
    return np.array(values, float).reshape(len(rows), len(columns))


def most_pairs(allowed: NDArray[np.bool_]) -> int:
    owner: dict[int, int] = {}

    def place(row: int, seen: set[int]) -> bool:
        for column in np.flatnonzero(allowed[row]).tolist():
            if column not in seen:
                seen.add(column)
                if column not in owner or place(owner[column], seen):
                    owner[column] = row
                    return True
        return False

    return sum(place(row, set()) for row in range(len(allowed)))


@given(IMAGES, IMAGES)
@settings(deadline=None)
def test_ap_and_pq_agree_with_an_independent_peer(truth: Image, predicted: Image) -> None:
    table, iou = overlap_table(truth, predicted), dense_iou(truth, predicted)
    n, m = iou.shape
    thresholds = (0.1, 0.3, *IOU_THRESHOLDS)
    for threshold, found in zip(thresholds, average_precision(table, thresholds), strict=True):
        tp = most_pairs(iou >= threshold)
        assert found == (tp / (n + m - tp) if n + m else 1.0)
    good = iou[iou > 0.5]
    quality = panoptic_quality(table)
    assert quality.pq == pytest.approx(2 * good.sum() / (n + m) if n + m else 1.0)
    assert quality.sq == pytest.approx(good.mean() if len(good) else float(n + m == 0))
    assert quality.rq == pytest.approx(2 * len(good) / (n + m) if n + m else 1.0)


@given(IMAGES, IMAGES, st.permutations(range(1, 5)), st.permutations(range(1, 5)))
@settings(deadline=None)
def test_labels_carry_no_meaning(truth: Image, predicted: Image, new: list[int], other: list[int]) -> None:
    assert scores(truth, predicted) == scores(np.array([0, *new])[truth], np.array([0, *other])[predicted] * 7)


@given(IMAGES, IMAGES)
@settings(deadline=None)
def test_scores_are_bounded_and_most_are_symmetric(truth: Image, predicted: Image) -> None:
    found, swapped = scores(truth, predicted), scores(predicted, truth)
    assert all(0.0 <= value <= 1.0 for value in found.values())
    for name in ("dice", "ap_50", "pq", "boundary_f1"):  # AJI is not: truth chooses its partners
        assert found[name] == pytest.approx(swapped[name])
    precision = average_precision(overlap_table(truth, predicted))
    assert (np.diff(precision) <= 0).all()
    quality = panoptic_quality(overlap_table(truth, predicted))
    assert quality.pq <= min(quality.sq, quality.rq)


@given(IMAGES)
@settings(deadline=None)
def test_truth_itself_scores_one(truth: Image) -> None:
    assert all(value == 1.0 for value in scores(truth, truth).values())


@given(IMAGES, IMAGES)
@settings(deadline=None)
def test_a_false_object_on_background_never_helps(truth: Image, predicted: Image) -> None:
    truth, predicted = np.pad(truth, (0, 3)), np.pad(predicted, (0, 3))
    more = predicted.copy()
    more[-2:, -2:] = 99
    before, after = scores(truth, predicted), scores(truth, more)
    assert all(after[name] <= before[name] for name in before)


def test_volumes_score_like_images() -> None:
    flat = grid(count=3)
    moved = np.roll(flat, 2, axis=1)
    deep, deep_moved = (np.repeat(image[None], 4, axis=0) for image in (flat, moved))
    # every plane repeats the image, and no outline lies between equal planes
    assert scores(deep, deep_moved) == pytest.approx(scores(flat, moved))


def test_memory_order_does_not_matter() -> None:
    truth = grid(gap=1, size=13)
    predicted = np.roll(truth, (2, 1), axis=(0, 1))
    expected = scores(truth, predicted)
    assert scores(np.asfortranarray(truth), predicted) == expected
    assert scores(truth.T[::-1], predicted.T[::-1]) == pytest.approx(expected)
    assert scores(truth.astype(">u2"), predicted.astype(np.uint8)) == expected


def test_both_images_empty_score_one() -> None:
    assert scores(BLANK, BLANK) == {"dice": 1, "ap_50": 1, "pq": 1, "aji": 1, "boundary_f1": 1}
    quality = panoptic_quality(overlap_table(BLANK, BLANK))
    assert (quality.sq, quality.rq) == (1.0, 1.0)


@pytest.mark.parametrize("truth_is_empty", [True, False])
def test_one_image_empty_scores_zero(truth_is_empty: bool) -> None:
    filled = np.pad(np.ones((4, 4), np.int64), 4)
    pair = (BLANK, filled) if truth_is_empty else (filled, BLANK)
    assert set(scores(*pair).values()) == {0.0}


def test_one_label_for_all_objects_scores_only_in_dice() -> None:
    truth = grid()
    found = scores(truth, np.minimum(truth, 1))
    assert found["dice"] == 1.0
    assert found["ap_50"] == found["pq"] == found["boundary_f1"] == 0.0
    assert found["aji"] == 2500 / (25 * 2500)


def test_two_equal_nuclei_in_one_label_are_no_match_for_pq() -> None:
    """IoU is exactly 0.5 with each: one match where the threshold itself counts, none where it must be exceeded."""
    truth = np.array([[1, 1, 2, 2]])
    merged = np.ones_like(truth)
    table = overlap_table(truth, merged)
    assert table.iou().tolist() == [0.5, 0.5]
    assert match_instances(table, 0.5).true_positives == 1
    assert average_precision(table)[0] == 0.5
    assert match_instances(table, 0.5, strict=True).true_positives == 0
    assert panoptic_quality(table).pq == 0.0


def test_low_thresholds_are_matched_optimally_not_greedily() -> None:
    """The best pair (0.6) would leave both others alone; two pairs exist."""
    truth = np.repeat([[1, 2]], [6, 6], axis=1)
    predicted = np.repeat([[7, 8, 7, 0]], [3, 3, 3, 3], axis=1)
    table = overlap_table(truth, predicted)
    iou = dict(
        zip(zip(table.truth_index.tolist(), table.predicted_index.tolist(), strict=True), table.iou(), strict=True)
    )
    assert iou == {(0, 0): 3 / 9, (0, 1): 0.5, (1, 0): 3 / 9}
    matching = match_instances(table, 0.3)
    assert sorted(zip(matching.truth_index.tolist(), matching.predicted_index.tolist(), strict=True)) == [
        (0, 1),
        (1, 0),
    ]
    assert matching.mean_iou == pytest.approx((0.5 + 1 / 3) / 2)


def test_thresholds_are_inclusive_to_the_last_bit() -> None:
    for hundredths in range(50, 100, 5):
        truth = np.ones((1, 100), np.int64)
        predicted = (np.arange(100) < hundredths).astype(np.int64)[None]
        reached = average_precision(overlap_table(truth, predicted))
        assert reached.tolist() == [float(threshold <= hundredths / 100) for threshold in IOU_THRESHOLDS]


def test_missing_small_objects_lower_pq_and_ap_but_hardly_dice() -> None:
    truth = np.zeros((200, 200), np.int64)
    truth[:100, :100] = 1
    for number in range(40):
        truth[110 + 4 * (number % 20), 4 * (number // 20)] = number + 2
    found = scores(truth, np.where(truth == 1, 1, 0))
    assert found["dice"] > 0.99
    assert found["ap_50"] == pytest.approx(1 / 41)
    assert found["pq"] == pytest.approx(1 / (1 + 40 / 2))


def test_aggregated_jaccard_by_hand() -> None:
    truth = np.array([[1, 1, 1, 1, 0, 0, 2, 2, 0, 3]])
    predicted = np.array([[5, 5, 5, 0, 0, 0, 6, 6, 6, 0]])
    more = np.array([[5, 5, 5, 0, 9, 0, 6, 6, 6, 0]])
    # intersections 3 + 2; unions 4 + 3; the missed object 1
    assert aggregated_jaccard(overlap_table(truth, predicted)) == 5 / (4 + 3 + 1)
    assert aggregated_jaccard(overlap_table(truth, more)) == 5 / (4 + 3 + 1 + 1)


def test_aggregated_jaccard_of_a_split_object() -> None:
    """The better half is the partner; the other half only adds to the union."""
    table = overlap_table(np.array([[1] * 10]), np.array([[1] * 6 + [2] * 4]))
    assert aggregated_jaccard(table) == 6 / (10 + 4)


def test_outlines_of_noise_labels_do_not_score() -> None:
    truth = grid()
    noise = np.random.default_rng(0).integers(1, 2**16, truth.shape)
    found = scores(truth, noise)
    assert found["boundary_f1"] == 0.0
    assert found["pq"] == 0.0
    assert found["ap_50"] == 0.0


def test_a_shift_within_the_tolerance_keeps_outlines_and_a_larger_one_does_not() -> None:
    truth = grid(gap=8, size=12)
    values = []
    for shift in (1, 2, 3, 5):
        moved = np.roll(truth, (0, shift), axis=(0, 1))
        values.append(boundary_f1(truth, moved, overlap_table(truth, moved)))
    assert values[:2] == [1.0, 1.0]
    assert 0.4 < values[2] < 1.0
    assert values[3] == 0.0  # IoU 7/17: no partner any more


def test_outlines_count_only_against_their_own_partner() -> None:
    """Two flat objects touch: each predicted outline lies within 2 px of the wrong neighbour everywhere."""
    truth = np.zeros((20, 30), np.int64)
    truth[4:7], truth[7:10] = 1, 2
    predicted = np.where(truth > 0, 3 - truth, 0)
    predicted[4:10, :10] = 0
    predicted[10:13, 10:] = 1  # grows one object away from its partner
    table = overlap_table(truth, predicted)
    everywhere = _published_boundary_f1(truth, predicted)
    assert boundary_f1(truth, predicted, table) < everywhere - 0.1


def _published_boundary_f1(truth: Image, predicted: Image) -> float:
    """Any outline pixel within 2 px of any other outline pixel, as it was before."""
    edges = []
    for image in (truth, predicted):
        edge = np.zeros(image.shape, bool)
        for axis in (0, 1):
            differs = np.diff(image, axis=axis) != 0
            edge |= np.pad(differs, [(1, 0) if a == axis else (0, 0) for a in (0, 1)])
            edge |= np.pad(differs, [(0, 1) if a == axis else (0, 0) for a in (0, 1)])
        edges.append(edge)
    shares = [(ndimage.distance_transform_edt(~b)[a] <= 2).mean() for a, b in (edges, edges[::-1])]
    return float(2 * shares[0] * shares[1] / sum(shares))


@pytest.mark.parametrize("shift", [(3, 0), (2, 2)])
def test_boundary_f1_equals_a_distance_transform_per_object(shift: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    truth = grid(gap=1, size=13)
    predicted = np.roll(np.where(rng.random(26)[truth] < 0.8, truth, 0), shift, axis=(0, 1))
    table = overlap_table(truth, predicted)
    pairs = match_instances(table, 0.5, strict=True)
    assert 5 < pairs.true_positives < 25
    total, right = np.zeros(2), np.zeros(2)
    outlines = []
    for image in (truth, predicted):
        inner = [ndimage.binary_erosion(image == label, border_value=1) for label in np.unique(image)[1:]]
        outlines.append(np.where(np.logical_or.reduce(inner), 0, image))
        total[len(outlines) - 1] = np.count_nonzero(outlines[-1])
    for t, p in zip(table.truth_ids[pairs.truth_index], table.predicted_ids[pairs.predicted_index], strict=True):
        masks = outlines[0] == t, outlines[1] == p
        for side in (0, 1):
            right[side] += (ndimage.distance_transform_edt(~masks[1 - side])[masks[side]] <= 2).sum()
    recall, precision = right / total
    assert boundary_f1(truth, predicted, table) == pytest.approx(2 * precision * recall / (precision + recall))


def test_object_that_fills_the_image_has_no_outline() -> None:
    full, split = np.ones((4, 6), np.int64), np.repeat([[1, 2]], [5, 1], axis=1).repeat(4, axis=0)
    assert boundary_f1(full, full * 3, overlap_table(full, full * 3)) == 1.0
    assert boundary_f1(full, split, overlap_table(full, split)) == 0.0


def cells_and_nuclei() -> tuple[Image, Image]:
    cells = grid(count=3)
    nuclei = np.where(ndimage.binary_erosion(cells > 0, iterations=3), cells, 0)
    return nuclei, cells


def agreement(nuclei: Image, cells: Image) -> tuple[float, float]:
    true_nuclei, true_cells = cells_and_nuclei()
    found = id_agreement(
        overlap_table(true_nuclei, true_cells),
        overlap_table(nuclei, cells),
        match_instances(overlap_table(true_nuclei, nuclei)),
    )
    return found.share, found.share_of_found


def test_equal_ids_agree_whatever_they_are() -> None:
    nuclei, cells = cells_and_nuclei()
    new = np.array([0, 5, 9, 1, 2, 100, 3, 44, 8, 7])
    assert agreement(nuclei, cells) == agreement(new[nuclei], new[cells]) == (1.0, 1.0)


def test_shuffled_cell_ids_do_not_agree() -> None:
    nuclei, cells = cells_and_nuclei()
    assert agreement(nuclei, np.array([0, 2, 3, 4, 5, 6, 7, 8, 9, 1])[cells]) == (0.0, 0.0)
    assert agreement(nuclei, np.array([0, 2, 1, 3, 4, 5, 6, 7, 8, 9])[cells]) == pytest.approx((7 / 9, 7 / 9))


def test_lost_nuclei_count_only_in_the_share_of_all() -> None:
    nuclei, cells = cells_and_nuclei()
    assert agreement(np.where(nuclei > 3, nuclei, 0), cells) == (pytest.approx(6 / 9), 1.0)
    assert agreement(np.zeros_like(nuclei), cells) == (0.0, 0.0)
    assert agreement(nuclei, np.zeros_like(cells)) == (0.0, 0.0)


def test_one_id_for_all_agrees_with_nothing() -> None:
    nuclei, cells = cells_and_nuclei()
    assert agreement(np.minimum(nuclei, 1), np.minimum(cells, 1)) == (0.0, 0.0)


def test_truth_without_links_asks_for_none() -> None:
    nuclei, cells = cells_and_nuclei()
    table = overlap_table(nuclei, np.where(cells, cells + 1, 0))
    found = id_agreement(table, table, match_instances(overlap_table(nuclei, nuclei)))
    assert (found.linked, found.share, found.share_of_found) == (0, 1.0, 1.0)


def test_best_overlap_decides_the_cell_of_a_nucleus() -> None:
    nuclei = np.array([[1, 1, 1, 2, 2, 0, 3]])
    cells = np.array([[1, 7, 7, 2, 7, 3, 0]])  # 2 and 7 tie under nucleus 2
    assert same_id(overlap_table(nuclei, cells)).tolist() == [False, True, False]


def test_tables_of_other_images_are_refused() -> None:
    nuclei, cells = cells_and_nuclei()
    table = overlap_table(nuclei, cells)
    with pytest.raises(ValueError, match="different numbers"):
        id_agreement(table, table, match_instances(overlap_table(np.minimum(nuclei, 1), nuclei)))
