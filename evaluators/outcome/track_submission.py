"""Find the masks and the lineage of a tracking submission."""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evaluators.model import Deliverable
from evaluators.problems import Problems, Refusal
from evaluators.readers.sequence import FileFrames, LabelFrames, StackFrames
from evaluators.readers.tiff import TiffImage, check_shape
from evaluators.readers.track_table import TrackTable, check_track_table, read_track_table
from evaluators.submission import Submission, SubmittedFile

_MAX_LOOKED_AT = 32  # files whose content is looked at to find the masks, and the lineage
_FRAME_NAME = re.compile(r"mask([0-9]{1,9})")


@dataclass(frozen=True)
class _Masks:
    """A possible set of masks: a stack, or one file per frame of one folder."""

    files: tuple[SubmittedFile, ...]
    frames: LabelFrames
    rank: tuple[int, int, int, int]

    @property
    def path(self) -> str:
        return self.files[0].path if len(self.files) == 1 else f"{self.files[0].path} and {len(self.files) - 1} more"


def find_masks(
    submission: Submission, deliverable: Deliverable, frames: Sequence[int], shape: tuple[int, ...]
) -> LabelFrames | None:
    """Return the masks to score, ``None`` where there are none; name everything that was not taken.

    Stacks of another frame shape do not take part. Of the others, the right number of frames goes first, then the order
    of the deliverable's patterns, then a folder named after the deliverable, then the shallowest. If several are left
    and differ, the masks are ambiguous and none are scored.
    """
    files = submission.candidates(deliverable.id)
    if not files:
        submission.missing(deliverable.id)
        return None
    by_folder: dict[tuple[str, ...], list[SubmittedFile]] = defaultdict(list)
    stacks = []
    for file in files:
        if _FRAME_NAME.fullmatch(file.stem.lower()):
            by_folder[file.parts[:-1]].append(file)
        else:
            stacks.append(file)
    found = [
        masks
        for masks in (
            *(_stack(submission.problems, deliverable, file, frames, shape) for file in stacks[:_MAX_LOOKED_AT]),
            *(_folder(submission.problems, deliverable, group, frames, shape) for group in by_folder.values()),
        )
        if masks is not None
    ]
    found.sort(key=lambda masks: masks.rank)
    best = [masks for masks in found if masks.rank == found[0].rank]
    if len(best) > 1 and len({_digest(masks.files) for masks in best}) > 1:
        paths = " and ".join(masks.path for masks in best[:3])
        submission.problems.add("ambiguous_files", deliverable.id, f"{paths} differ and could both be the masks")
        best = []
    elif len(found) > 1:
        others = ", ".join(masks.path for masks in found[1:4])
        submission.problems.add("duplicate_file", deliverable.id, f"{found[0].path} is scored, not {others}")
    for masks in found:
        if not best or masks is not best[0]:
            masks.frames.close()
    return best[0].frames if best else None


def find_lineage(
    submission: Submission, deliverable: Deliverable, masks: LabelFrames | None
) -> NDArray[np.int64] | None:
    """Return the usable rows of the lineage, sorted by id; ``None`` where there is none; name every fault.

    The file is chosen by content: one whose lines are four whole numbers. Of several, ``res_track.txt`` goes first,
    then the shallowest; if several are left and differ, the lineage is ambiguous.
    """
    files = submission.candidates(deliverable.id)
    if not files:
        submission.missing(deliverable.id)
        return None
    found: list[SubmittedFile] = []
    refusals: list[tuple[SubmittedFile, Refusal]] = []
    for file in files[:_MAX_LOOKED_AT]:
        try:
            with file.open() as handle:
                check_track_table(handle)
            found.append(file)
        except Refusal as refusal:
            refusals.append((file, refusal))
    if not found:
        for file, reason in refusals:
            submission.problems.refused(f"{deliverable.id}: {file.path}", reason)
        return None
    found.sort(key=_lineage_rank)
    best = [file for file in found if _lineage_rank(file) == _lineage_rank(found[0])]
    if len(best) > 1 and len({_digest([file]) for file in best}) > 1:
        paths = " and ".join(file.path for file in best[:3])
        submission.problems.add("ambiguous_files", deliverable.id, f"{paths} differ and could both be the lineage")
        return None
    if len(found) > 1:
        others = ", ".join(file.path for file in found[1:4])
        submission.problems.add("duplicate_file", deliverable.id, f"{found[0].path} is scored, not {others}")
    where = f"{deliverable.id}: {found[0].path}"
    try:
        with found[0].open() as handle:
            table = read_track_table(handle)
    except Refusal as refusal:
        submission.problems.refused(where, refusal)
        return None
    return _usable_rows(submission.problems, where, table)


def _lineage_rank(file: SubmittedFile) -> tuple[bool, int]:
    return file.name.lower() != "res_track.txt", file.depth


def _usable_rows(problems: Problems, where: str, table: TrackTable) -> NDArray[np.int64] | None:
    """Drop rows that contradict themselves or each other, so that their order does not matter."""
    if table.header is not None:
        problems.add("header_line", where, f"expected no header; {table.header!r} was skipped")
    if table.invalid_count:
        line, text = table.invalid[0]
        message = f"{table.invalid_count} lines are not four whole numbers, the first is line {line}: {text}"
        problems.add("invalid_row", where, message)
    rows = np.unique(table.rows, axis=0)
    valid = (rows[:, 0] > 0) & (rows[:, 1] >= 0) & (rows[:, 2] >= rows[:, 1]) & (rows[:, 3] >= 0)
    if not valid.all():
        example = " ".join(str(value) for value in rows[~valid][0])
        message = (
            f"{int((~valid).sum())} rows have an id below 1, a negative value, or end before their begin: {example}"
        )
        problems.add("invalid_row", where, message)
    rows = rows[valid]
    ids, counts = np.unique(rows[:, 0], return_counts=True)
    if (counts > 1).any():
        message = f"{int((counts > 1).sum())} ids have rows that differ ({ids[counts > 1][0]}); none of them is used"
        problems.add("repeated_id", where, message)
    rows = rows[np.isin(rows[:, 0], ids[counts == 1])]
    if not len(rows):
        problems.add("not_a_lineage", where, "no row can be used")
        return None
    return rows


def _stack(
    problems: Problems, deliverable: Deliverable, file: SubmittedFile, frames: Sequence[int], shape: tuple[int, ...]
) -> _Masks | None:
    where = f"{deliverable.id}: {file.path}"
    image: TiffImage | None = None
    try:
        image = TiffImage(file.open())
        stack = StackFrames(image, first=frames[0])
        _check_stack_shape(stack, len(frames), shape)
    except Refusal as refusal:
        if image is not None:
            image.close()
        problems.refused(where, refusal)
        return None
    return _Masks((file,), stack, _rank(deliverable, file, stack.count == len(frames)))


def _check_stack_shape(stack: StackFrames, count: int, shape: tuple[int, ...]) -> None:
    if stack.frame_shape != shape:
        check_shape((stack.count, *stack.frame_shape), (count, *shape))
        check_shape(stack.frame_shape, shape)
    if stack.count > 2 * count + 10:
        raise Refusal("wrong_shape", f"has {stack.count} frames, expected {count}")


def _folder(
    problems: Problems,
    deliverable: Deliverable,
    files: Sequence[SubmittedFile],
    frames: Sequence[int],
    shape: tuple[int, ...],
) -> _Masks | None:
    by_number: dict[int, list[SubmittedFile]] = defaultdict(list)
    for file in files:
        match = _FRAME_NAME.fullmatch(file.stem.lower())
        if match is not None:
            by_number[int(match[1])].append(file)
    single = {}
    for number, group in sorted(by_number.items()):
        if len(group) == 1 or len({_digest([file]) for file in group}) == 1:
            single[number] = group[0]
        else:
            paths = " and ".join(file.path for file in group[:3])
            where = f"{deliverable.id}: frame {number}"
            problems.add("ambiguous_files", where, f"{paths} differ and stand for the same frame")
    if not single:
        return None
    if len(single) > 2 * len(frames) + 10:
        problems.add("wrong_shape", deliverable.id, f"{len(single)} frames, expected {len(frames)}")
        return None
    rank = _rank(deliverable, files[0], len(single) == len(frames))
    source = FileFrames({number: file.open for number, file in single.items()}, shape)
    return _Masks(tuple(single.values()), source, rank)


def _rank(deliverable: Deliverable, file: SubmittedFile, complete: bool) -> tuple[int, int, int, int]:
    names = (file.name.lower(), file.path.lower())
    pattern = next(
        (
            place
            for place, pattern in enumerate(deliverable.patterns)
            if any(fnmatch.fnmatchcase(name, pattern.lower()) for name in names)
        ),
        len(deliverable.patterns),
    )
    return 0 if complete else 1, pattern, 0 if file.folder.lower() == deliverable.id else 1, file.depth


def _digest(files: Sequence[SubmittedFile]) -> str:
    digest = hashlib.sha256()
    for file in files:
        if len(files) > 1:
            digest.update(file.name.encode("utf-8", "surrogateescape") + b"\0")
        with file.open() as handle:
            digest.update(hashlib.file_digest(handle, "sha256").digest())
    return digest.hexdigest()
