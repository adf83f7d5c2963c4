"""Masks of nuclei in which no nucleus is told from another: foreground Dice does not see it, the strict score does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from agents.shortcut._label_images import CHANGES, Change, every


def _masks(change: Change, input_dir: Path, truth_dir: Path, output_dir: Path) -> None:
    every(change)(truth_dir, output_dir / "segmentation_masks")


SHORTCUTS: dict[str, Callable[[Path, Path, Path], None]] = {
    name: partial(_masks, change) for name, change in CHANGES.items()
}
