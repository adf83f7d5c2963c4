"""Find and read a deliverable that is one table in all."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evaluators.problems import Refusal
from evaluators.readers.tables import TextTable, check_columns, read_texts
from evaluators.submission import EXTENSIONS, Submission, SubmittedFile

_MAX_LOOKED_AT = 32


@dataclass(frozen=True)
class Rows:
    """The rows of a table, or of its parts one after another.

    Attributes
    ----------
    cells : list of dict
        Wanted name of a column to the text of the cell.
    places : list of str
        File and line of each row, for problems.
    parts : list of TextTable
        The tables they come from, for :meth:`numbers`.
    """

    cells: list[dict[str, str]]
    places: list[str]
    parts: list[TextTable]

    def numbers(self, column: str) -> NDArray[np.float64]:
        """Return a column as numbers, NaN where a cell holds none."""
        return np.array([part.number(row, column) for part in self.parts for row in range(len(part.rows))], float)

    def has(self, column: str) -> bool:
        """Whether every part has a column."""
        return all(column in cells for cells in self.cells)


def read_single_table(
    submission: Submission,
    deliverable_id: str,
    columns: Sequence[str],
    optional: Sequence[str] = (),
    *,
    mergeable: bool,
) -> Rows | None:
    """Read the table of a deliverable; name what is wrong and return ``None`` where there is none to score.

    Among several files that have the columns, the one whose name is the pattern or the deliverable's id and nothing
    more wins, then the shallowest. Files of equal rank are taken together as parts of one table where the evaluator
    can tell rows apart (``mergeable``); otherwise they are ambiguous, and none is scored.

    Parameters
    ----------
    submission
        Its problems grow.
    deliverable_id
        A deliverable with content ``table``.
    columns, optional
        Columns that the evaluator reads. The deliverable's own columns must be present as well.
    mergeable
        Whether rows have a key, so that parts can be put together and overlaps noticed.
    """
    deliverable = submission.deliverables[deliverable_id]
    candidates = submission.candidates(deliverable_id)
    if not candidates:
        if deliverable.required:
            submission.missing(deliverable_id)
        return None
    plain = {pattern.rsplit("/", 1)[-1].replace("*", "").lower() for pattern in deliverable.patterns}
    plain |= {f"{deliverable_id}{suffix}" for suffix in EXTENSIONS[deliverable.content]}
    ranked = sorted(candidates, key=lambda file: (file.name.lower() not in plain, file.depth))
    chosen: list[SubmittedFile] = []
    refused: list[tuple[SubmittedFile, Refusal]] = []
    rank: tuple[bool, int] | None = None
    for file in ranked[:_MAX_LOOKED_AT]:
        own = (file.name.lower() not in plain, file.depth)
        if rank is not None and own != rank:
            break
        try:
            with file.open() as handle:
                check_columns(handle, [*deliverable.columns, *columns])
        except Refusal as refusal:
            refused.append((file, refusal))
            continue
        rank = own
        chosen.append(file)
    if not chosen:
        for file, reason in refused:
            submission.problems.refused(file.path, reason)
        return None
    chosen = _distinct(chosen)
    paths = ", ".join(file.path for file in chosen[:4])
    if len(chosen) > 1 and not mergeable:
        submission.problems.add(
            "ambiguous_files", deliverable_id, f"{paths} differ and stand for the same table; hand in one table"
        )
        return None
    if len(chosen) > 1:
        submission.problems.add("split_table", deliverable_id, f"{paths} are taken together as one table")
    if others := [
        file.path for file in candidates if file not in chosen and file not in [unfit for unfit, _ in refused]
    ]:
        submission.problems.add("duplicate_file", deliverable_id, f"{paths} is scored, not {', '.join(others[:3])}")
    return _read(submission, chosen, columns, optional)


def _read(
    submission: Submission, files: Sequence[SubmittedFile], columns: Sequence[str], optional: Sequence[str]
) -> Rows | None:
    rows = Rows([], [], [])
    for file in files:
        try:
            with file.open() as handle:
                table = read_texts(handle, columns, optional)
        except Refusal as refusal:
            submission.problems.refused(file.path, refusal)
            continue
        rows.parts.append(table)
        rows.cells.extend(table.rows)
        rows.places.extend(f"{file.path}, line {line}" for line in table.lines)
    return rows if rows.parts else None


def _distinct(files: Sequence[SubmittedFile]) -> list[SubmittedFile]:
    """Drop files that are byte by byte the same as an earlier one."""
    if len(files) == 1:
        return list(files)
    kept: dict[str, SubmittedFile] = {}
    for file in files:
        with file.open() as handle:
            kept.setdefault(hashlib.file_digest(handle, "sha256").hexdigest(), file)
    return list(kept.values())
