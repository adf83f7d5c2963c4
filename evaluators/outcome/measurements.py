"""Compare a delivered table of measured objects with the true objects. A diagnostic: no score depends on it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from evaluators.outcome.parameters import Measurements
from evaluators.outcome.single_table import read_single_table
from evaluators.submission import Submission

Matched = NDArray[np.int64]


def compare_measurements(
    submission: Submission, parameters: Measurements, matched: Mapping[str, Matched], truth_count: int
) -> dict[str, float | int | str | None]:
    """Return how many of the true objects have a measured size, and how far it is off.

    Parameters
    ----------
    submission
        Its problems grow.
    parameters
        Deliverable and columns.
    matched
        By image: label of each submitted object that is a true one (IoU above 0.5), and the size of the latter,
        shape (k, 2).
    truth_count
        All true objects.

    Returns
    -------
    dict
        ``measured_share``: share of the true objects with a size in the table; ``measured_size_error``: median of the
        relative error of these sizes against the true ones, ``None`` without any.
    """
    columns = [parameters.image, parameters.object, parameters.size]
    rows = read_single_table(submission, parameters.deliverable, columns, mergeable=True)
    sizes: dict[tuple[str, int], float] = {}
    if rows is not None:
        names = {name: stem for stem in matched for name in (stem.lower(), stem.lower().split("_")[0])}
        for cells, label, size in zip(
            rows.cells, rows.numbers(parameters.object), rows.numbers(parameters.size), strict=True
        ):
            stem = names.get(cells[parameters.image].strip().lower())
            if stem is not None and np.isfinite(label) and np.isfinite(size):
                sizes.setdefault((stem, int(label)), float(size))
    errors = [
        abs(sizes[stem, label] - true_size) / true_size
        for stem, pairs in matched.items()
        for label, true_size in pairs.tolist()
        if (stem, label) in sizes
    ]
    return {
        "measured_share": len(errors) / truth_count if truth_count else None,
        "measured_size_error": float(np.median(errors)) if errors else None,
    }
