"""Write deliverables, for replay, and references, for comparing submissions with each other."""

from __future__ import annotations

import csv
import fnmatch
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray

from evaluators.model import Deliverable, TruthError
from evaluators.pairing import pair_files
from evaluators.submission import Submission, SubmittedFile


def deliverable_path(folder: Path, deliverable: Deliverable, name: str) -> Path:
    """Return where a file of a deliverable belongs, making its folder.

    That is the top of the output folder where the file's own name says what it is, else a folder named after the
    deliverable.

    Raises
    ------
    ValueError
        Neither name fits the deliverable's patterns.
    """
    for path in (name, f"{deliverable.id}/{name}"):
        if any(fnmatch.fnmatchcase(path.lower(), pattern.lower()) for pattern in deliverable.patterns):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            return target
    raise ValueError(f"{name}: no name of deliverable {deliverable.id} ({', '.join(deliverable.patterns)})")


def label_type(largest: int) -> np.dtype[np.unsignedinteger]:
    """Return the type in which labels are delivered: 16 bit where they fit, else 32 bit, else 64 bit."""
    return np.dtype(np.uint16 if largest < 2**16 else np.uint32 if largest < 2**32 else np.uint64)


def write_labels(path: Path, labels: NDArray[np.integer]) -> None:
    """Write a label image as deflated TIFF without metadata of its own."""
    largest = int(labels.max(initial=0))
    tifffile.imwrite(path, labels.astype(label_type(largest)), compression="zlib", metadata=None)


def own_files(submission: Submission, deliverable_id: str, stems: Sequence[str]) -> dict[str, SubmittedFile]:
    """Return a submission's files by image: of the named images, or, where none are known, by the files' own stems.

    Raises
    ------
    TruthError
        No file belongs to an image, so that the submission cannot serve as a reference.
    """
    known = stems or sorted({file.stem for file in submission.candidates(deliverable_id)})
    files = dict(pair_files(submission, submission.deliverables[deliverable_id], known, lambda _f, _stem: None).files)
    if not files:
        raise TruthError(f"{deliverable_id}: no file of an image")
    return files


def write_rows(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a comma-separated table."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
