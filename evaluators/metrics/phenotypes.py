"""Classes of objects over time: agreement of labels, chance within groups, curves of proportions, blind detection."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evaluators.metrics.agreement import pearson

Codes = NDArray[np.int64]
Values = NDArray[np.float64]


def class_f1(truth: ArrayLike, predicted: ArrayLike, classes: int) -> Values:
    """Return the F1 of each class over paired labels.

    Parameters
    ----------
    truth, predicted : (n,) array_like of int
        Class of each object, from 0; -1 in ``predicted`` is no class at all and is wrong for the true one.
    classes : int
        Number of classes.

    Returns
    -------
    (classes,) float64
        NaN for a class that occurs on neither side.

    Examples
    --------
    >>> class_f1([0, 0, 1], [0, 1, 1], 3)
    array([0.66666667, 0.66666667,        nan])
    """
    one, other = _labels(truth, predicted, classes)
    hits = np.bincount(one[one == other], minlength=classes)
    total = np.bincount(one, minlength=classes) + np.bincount(other[other >= 0], minlength=classes)
    with np.errstate(invalid="ignore"):
        return np.asarray(2.0 * hits / total)


def kappa_within(truth: ArrayLike, predicted: ArrayLike, groups: ArrayLike, classes: int) -> float | None:
    """Return Cohen's kappa in which chance is that of each group: labels drawn from a group's own proportions reach 0.

    Cohen, *Educ. Psychol. Meas.* 20:37 (1960); the expected agreement is taken per group (per frame) and averaged by
    size, so that knowing how common each class is at each time earns nothing.

    Parameters
    ----------
    truth, predicted : (n,) array_like of int
        As for :func:`class_f1`.
    groups : (n,) array_like of int
        Group of each object.

    Returns
    -------
    float or None
        At most 1; ``None`` where truth has no two classes in any group.
    """
    one, other = _labels(truth, predicted, classes)
    _, part = np.unique(np.asarray(groups), return_inverse=True)
    if part.shape != one.shape:
        raise ValueError(f"expected {len(one)} groups, found {part.shape}")
    count = int(part.max(initial=-1)) + 1
    true = np.zeros((count, classes))
    np.add.at(true, (part, one), 1.0)
    claimed = np.zeros((count, classes))
    valid = other >= 0
    np.add.at(claimed, (part[valid], other[valid]), 1.0)
    size = true.sum(axis=1)
    if not ((true > 0).sum(axis=1) > 1).any():
        return None
    # A group of one class cannot tell knowledge from chance; it stays out.
    mixed = (true > 0).sum(axis=1) > 1
    inside = mixed[part]
    expected = float((true[mixed] * claimed[mixed]).sum(axis=1) @ (1.0 / size[mixed]) / size[mixed].sum())
    observed = float((one == other)[inside].mean())
    return (observed - expected) / (1.0 - expected)


def proportions(groups: ArrayLike, labels: ArrayLike, count: int, classes: int) -> Values:
    """Return the share of each class in each group, shape (count, classes); NaN for a group without a label.

    Parameters
    ----------
    groups, labels : (n,) array_like of int
        Group from 0 and class from 0; objects with a class of -1 or a group outside the range do not count.
    """
    part, label = np.asarray(groups, np.int64), np.asarray(labels, np.int64)
    valid = (label >= 0) & (part >= 0) & (part < count)
    table = np.zeros((count, classes))
    np.add.at(table, (part[valid], label[valid]), 1.0)
    with np.errstate(invalid="ignore"):
        return np.asarray(table / table.sum(axis=1, keepdims=True))


def trend_correlation(reference: ArrayLike, predicted: ArrayLike) -> float | None:
    """Return the mean over classes of Pearson's correlation of their proportions over time.

    Parameters
    ----------
    reference, predicted : (times, classes) array_like
        Proportions; times that lack on either side do not enter.

    Returns
    -------
    float or None
        Mean over the classes that vary in the reference; one that does not vary in the prediction has a correlation of
        0. ``None`` where no class varies in the reference.
    """
    one, other = _common_times(reference, predicted)
    varying = [column for column in range(one.shape[1]) if len(one) > 1 and np.ptp(one[:, column]) > 0.0]
    values = [pearson(one[:, column], other[:, column]) or 0.0 for column in varying]
    return float(np.mean(values)) if values else None


def pooled_trend_correlation(reference: ArrayLike, predicted: ArrayLike) -> float | None:
    """Return one correlation of the proportions of all classes over time, each about its own mean.

    Classes thus count by how much they change, and a rare class cannot decide by its noise. ``None`` where nothing
    varies in the reference; 0 where nothing varies in the prediction.
    """
    one, other = _common_times(reference, predicted)
    if len(one) < 2 or not np.ptp(one, axis=0).any():
        return None
    one, other = one - one.mean(axis=0), other - other.mean(axis=0)
    length = float(np.sqrt((one**2).sum() * (other**2).sum()))
    return float((one * other).sum() / length) if length > 0.0 else 0.0


def _labels(truth: ArrayLike, predicted: ArrayLike, classes: int) -> tuple[Codes, Codes]:
    one, other = np.asarray(truth, np.int64), np.asarray(predicted, np.int64)
    if one.shape != other.shape or one.ndim != 1:
        raise ValueError(f"expected paired labels, found {one.shape} and {other.shape}")
    if len(one) and (one.min() < 0 or max(one.max(), other.max()) >= classes or other.min() < -1):
        raise ValueError(f"expected classes from 0 to {classes - 1}")
    return one, other


def _common_times(reference: ArrayLike, predicted: ArrayLike) -> tuple[Values, Values]:
    one, other = np.asarray(reference, float), np.asarray(predicted, float)
    if one.shape != other.shape or one.ndim != 2:
        raise ValueError(f"expected two tables of one shape, found {one.shape} and {other.shape}")
    both = np.isfinite(one).all(axis=1) & np.isfinite(other).all(axis=1)
    return one[both], other[both]
