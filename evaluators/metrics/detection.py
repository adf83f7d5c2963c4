"""What every one-to-one matching of true to predicted objects has in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Matching:
    """A one-to-one matching and its detection scores.

    A score of two empty sides is 1 (nothing was there and nothing was claimed), with one side empty it is 0.

    Attributes
    ----------
    truth_index, predicted_index : (k,) int64
        The matched objects, by truth object.
    truth_count, predicted_count : int
        All objects of both sides, matched or not.
    """

    truth_index: NDArray[np.int64]
    predicted_index: NDArray[np.int64]
    truth_count: int
    predicted_count: int

    @property
    def true_positives(self) -> int:
        """Matched pairs (TP)."""
        return len(self.truth_index)

    @property
    def false_positives(self) -> int:
        """Predicted objects without partner (FP)."""
        return self.predicted_count - self.true_positives

    @property
    def false_negatives(self) -> int:
        """True objects without partner (FN)."""
        return self.truth_count - self.true_positives

    @property
    def precision(self) -> float:
        """TP / (TP + FP)."""
        return self.true_positives / self.predicted_count if self.predicted_count else float(not self.truth_count)

    @property
    def recall(self) -> float:
        """TP / (TP + FN)."""
        return self.true_positives / self.truth_count if self.truth_count else float(not self.predicted_count)

    @property
    def f1(self) -> float:
        """2 TP / (2 TP + FP + FN)."""
        total = self.truth_count + self.predicted_count
        return 2.0 * self.true_positives / total if total else 1.0

    @property
    def jaccard(self) -> float:
        """TP / (TP + FP + FN), also called threat score or, at an IoU threshold, average precision."""
        total = self.truth_count + self.predicted_count - self.true_positives
        return self.true_positives / total if total else 1.0
