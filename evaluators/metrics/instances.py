"""Instance segmentation scores, all from one overlap table."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from evaluators.metrics.assignment import assign
from evaluators.metrics.detection import Matching
from evaluators.metrics.overlap import Labels, OverlapTable

IOU_THRESHOLDS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


@dataclass(frozen=True, eq=False)
class InstanceMatching(Matching):
    """A one-to-one matching of predicted to true objects at an IoU threshold.

    Attributes
    ----------
    iou : (k,) float64
        Intersection over union of each pair.
    """

    iou: NDArray[np.float64]

    @property
    def mean_iou(self) -> float | None:
        """Mean IoU of the matched pairs; ``None`` where nothing matched."""
        return float(self.iou.mean()) if len(self.iou) else None


def match_instances(table: OverlapTable, threshold: float = 0.5, *, strict: bool = False) -> InstanceMatching:
    """Match objects one to one: as many pairs as possible, then the largest total IoU.

    Parameters
    ----------
    table : OverlapTable
    threshold : float
        Smallest IoU of a pair.
    strict : bool
        Whether the IoU must lie above the threshold instead of reaching it. Above 0.5 an object has one partner at
        most; at exactly 0.5 it can have two, as when one label covers two equal nuclei.
    """
    iou = table.iou()
    pairs = np.flatnonzero(iou > threshold if strict else iou >= threshold)
    unique = threshold > 0.5 or (strict and threshold >= 0.5)
    if not unique:
        pairs = pairs[assign(table.truth_index[pairs], table.predicted_index[pairs], 1.0 - iou[pairs])]
    return InstanceMatching(
        table.truth_index[pairs], table.predicted_index[pairs], table.truth_count, table.predicted_count, iou[pairs]
    )


def average_precision(table: OverlapTable, thresholds: tuple[float, ...] = IOU_THRESHOLDS) -> NDArray[np.float64]:
    """Return TP / (TP + FP + FN) at each IoU threshold, which itself matches; 1 if both sides are empty.

    The definition of the 2018 Data Science Bowl (Caicedo et al., *Nat. Methods* 16:1247, 2019): a score at one
    operating point, not the area under a precision-recall curve.
    """
    return np.array([match_instances(table, threshold).jaccard for threshold in thresholds])


@dataclass(frozen=True)
class PanopticQuality:
    """Panoptic quality and its factors, ``pq = sq * rq``."""

    pq: float
    sq: float
    rq: float


def panoptic_quality(table: OverlapTable) -> PanopticQuality:
    """Return panoptic, segmentation and recognition quality (Kirillov et al., CVPR 2019, eq. 1-2).

    A pair matches at an IoU above 0.5, not at 0.5. SQ is the mean IoU of the pairs, RQ their F1. Without any object on
    either side all are 1, without any pair 0.
    """
    matching = match_instances(table, 0.5, strict=True)
    rq = matching.f1
    sq = matching.mean_iou
    if sq is None:
        sq = rq
    return PanopticQuality(pq=sq * rq, sq=sq, rq=rq)


def aggregated_jaccard(table: OverlapTable) -> float:
    """Return the aggregated Jaccard index (Kumar et al., *IEEE Trans. Med. Imaging* 36:1550, 2017, algorithm 1).

    Each true object takes the predicted one with the largest IoU, which others may take too; intersections and unions
    are added up, and predicted objects that nobody took are added to the union. 1 if both sides are empty.
    """
    iou = table.iou()
    order = np.lexsort((-table.overlaps, -iou, table.truth_index))
    owner = table.truth_index[order]
    best = order[np.flatnonzero(np.diff(owner, prepend=-1))]
    overlaps = table.overlaps[best]
    missed = np.ones(table.truth_count, bool)
    missed[table.truth_index[best]] = False
    unused = np.ones(table.predicted_count, bool)
    unused[table.predicted_index[best]] = False
    taken = table.truth_sizes[table.truth_index[best]] + table.predicted_sizes[table.predicted_index[best]] - overlaps
    union = int(taken.sum() + table.truth_sizes[missed].sum() + table.predicted_sizes[unused].sum())
    return int(overlaps.sum()) / union if union else 1.0


def boundary_f1(truth: Labels, predicted: Labels, table: OverlapTable, *, tolerance: float = 2.0) -> float:
    """Return the F1 of object outlines, each compared with the outline of its own partner only.

    An outline holds the pixels of an object that touch another label or background along an axis. An outline pixel is
    right if a pixel of the partner's outline lies within the tolerance; partners have an IoU above 0.5. Precision is
    the share of right pixels among the outlines of all predicted objects, recall among those of all true objects
    (Csurka et al., BMVC 2013, per object). Outlines without partner are wrong, so that noise labels, which have
    outlines everywhere, and one label for all objects do not score.

    Parameters
    ----------
    truth, predicted : array of integers, same shape
        The label images of the table.
    table : OverlapTable
        ``overlap_table(truth, predicted)``.
    tolerance : float
        Largest distance in pixels.

    Returns
    -------
    float
        1 if both images are empty, 0 if one is.
    """
    if not table.truth_count or not table.predicted_count:
        return float(table.truth_count == table.predicted_count)
    pairs = match_instances(table, 0.5, strict=True)
    truth_ids, predicted_ids = table.truth_ids[pairs.truth_index], table.predicted_ids[pairs.predicted_index]
    truth_outline, predicted_outline = _outlines(truth, int(tolerance)), _outlines(predicted, int(tolerance))
    truth_total, predicted_total = np.count_nonzero(truth_outline), np.count_nonzero(predicted_outline)
    if not truth_total or not predicted_total:  # objects that fill the image have no outline
        return float(truth_total == predicted_total and pairs.true_positives > 0)
    recall = _right_pixels(truth_outline, truth_ids, predicted_outline, predicted_ids, tolerance) / truth_total
    precision = _right_pixels(predicted_outline, predicted_ids, truth_outline, truth_ids, tolerance) / predicted_total
    return float(2.0 * precision * recall / (precision + recall)) if precision + recall else 0.0


def _outlines(labels: Labels, margin: int) -> Labels:
    """Keep the labels of outline pixels, 0 elsewhere, with a margin of 0. The border of the image is no outline."""
    outline = np.zeros(labels.shape, bool)
    for axis in range(labels.ndim):
        along, edge = np.moveaxis(labels, axis, 0), np.moveaxis(outline, axis, 0)
        differs = along[1:] != along[:-1]
        edge[1:] |= differs
        edge[:-1] |= differs
    return np.ascontiguousarray(np.pad(labels * outline, margin))


def _right_pixels(
    outline: Labels, ids: NDArray[np.int64], other: Labels, partner_ids: NDArray[np.int64], tolerance: float
) -> int:
    """Count the pixels of ``outline`` with a pixel of their partner's outline, in ``other``, within the tolerance."""
    if not len(ids):
        return 0
    strides = np.array(outline.strides) // outline.itemsize
    own, opposite = outline.ravel(), other.ravel()
    position = np.flatnonzero(own)
    labels = own[position].astype(np.int64)
    order = np.argsort(ids)
    slot = order[np.minimum(np.searchsorted(ids, labels, sorter=order), len(ids) - 1)]
    paired = ids[slot] == labels
    position, wanted = position[paired], partner_ids[slot[paired]].astype(opposite.dtype)
    total = len(wanted)
    reach = range(-int(tolerance), int(tolerance) + 1)
    steps = (np.array(step) for step in product(reach, repeat=outline.ndim))
    for step in sorted(steps, key=lambda step: int(step @ step)):  # near ones first: most pixels are right there
        if step @ step > tolerance**2:
            break
        wrong = opposite[position + step @ strides] != wanted
        position, wanted = position[wrong], wanted[wrong]
    return total - len(wanted)


def same_id(inner_outer: OverlapTable) -> NDArray[np.bool_]:
    """Tell for each inner object whether the outer object that it overlaps most carries the same id.

    Parameters
    ----------
    inner_outer : OverlapTable
        ``overlap_table(inner, outer)``, for example of nuclei and cells.

    Returns
    -------
    (n,) bool
        By inner object; false where it overlaps nothing. Among equally large overlaps the same id is enough.
    """
    linked = np.zeros(inner_outer.truth_count, bool)
    if not len(inner_outer.overlaps):
        return linked
    inner = inner_outer.truth_index
    heads = np.flatnonzero(np.diff(inner, prepend=-1))
    largest = np.zeros(inner_outer.truth_count, np.int64)
    largest[inner[heads]] = np.maximum.reduceat(inner_outer.overlaps, heads)
    equal = inner_outer.truth_ids[inner] == inner_outer.predicted_ids[inner_outer.predicted_index]
    linked[inner[equal & (inner_outer.overlaps == largest[inner])]] = True
    return linked


@dataclass(frozen=True)
class IdAgreement:
    """How well ids link the objects of two compartments.

    Attributes
    ----------
    linked : int
        True inner objects (nuclei) whose cell carries their id: the true linkage.
    found : int
        Those of them that a predicted inner object matches.
    agreeing : int
        Those of the found ones whose predicted inner object has the id of its own predicted cell.
    """

    linked: int
    found: int
    agreeing: int

    @property
    def share(self) -> float:
        """Agreeing objects among all linked ones; 1 where truth links none."""
        return self.agreeing / self.linked if self.linked else 1.0

    @property
    def share_of_found(self) -> float:
        """Agreeing objects among the found ones; 1 where truth links none, 0 where none was found."""
        if not self.linked:
            return 1.0
        return self.agreeing / self.found if self.found else 0.0


def id_agreement(truth: OverlapTable, predicted: OverlapTable, inner: InstanceMatching) -> IdAgreement:
    """Compare the id linkage of two compartments with the true one.

    Parameters
    ----------
    truth : OverlapTable
        ``overlap_table(true inner, true outer)``.
    predicted : OverlapTable
        ``overlap_table(predicted inner, predicted outer)``.
    inner : InstanceMatching
        Matching of ``overlap_table(true inner, predicted inner)``. Objects have the same numbers in all tables of an
        image, since these follow their position.

    Raises
    ------
    ValueError
        The tables are not of the same inner images.
    """
    if (inner.truth_count, inner.predicted_count) != (truth.truth_count, predicted.truth_count):
        raise ValueError("the matching and the tables have different numbers of inner objects")
    linked = same_id(truth)
    found = linked[inner.truth_index]
    agreeing = found & same_id(predicted)[inner.predicted_index]
    return IdAgreement(int(linked.sum()), int(found.sum()), int(agreeing.sum()))
