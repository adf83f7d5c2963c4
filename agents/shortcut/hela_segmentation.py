"""Masks of nuclei and cells in which no cell is told from another, or one compartment stands in for both."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from agents.shortcut._label_images import CHANGES, Change, Labels, every

NUCLEI, CELLS = "nuclei_masks", "cytoplasm_masks"


def _both(change: Change, input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    for compartment in (NUCLEI, CELLS):
        every(change)(truth_dir / compartment, output_dir / compartment)


def _copied(source: str, targets: tuple[str, ...], input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    for target in targets:
        every(lambda labels: labels)(truth_dir / source, output_dir / target)


def exchanged_ids(input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    """Perfect masks whose numbers do not say which nucleus belongs to which cell."""

    def turned(labels: Labels) -> Labels:
        count = int(labels.max(initial=0))
        lookup = np.concatenate([[0], np.roll(np.arange(1, count + 1), 1)])
        return np.asarray(lookup[labels])

    every(lambda labels: labels)(truth_dir / NUCLEI, output_dir / NUCLEI)
    every(turned)(truth_dir / CELLS, output_dir / CELLS)


SHORTCUTS: dict[str, Callable[[Path, Path, Path], None]] = {
    **{name: partial(_both, change) for name, change in CHANGES.items()},
    "exchanged_ids": exchanged_ids,
    "nuclei_for_both": partial(_copied, NUCLEI, (NUCLEI, CELLS)),
    "cells_for_both": partial(_copied, CELLS, (NUCLEI, CELLS)),
    "nuclei_only": partial(_copied, NUCLEI, (NUCLEI,)),
    "cells_only": partial(_copied, CELLS, (CELLS,)),
}
