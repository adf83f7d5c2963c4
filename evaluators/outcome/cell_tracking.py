"""Cell tracking: labels over time and a lineage, by the measures of the Cell Tracking Challenge.

*Outcome* (published weights, the challenge's definitions): ``seg_weight`` SEG + ``tra_weight`` TRA. *Strict*: harmonic
mean of segmentation (mean over frames of SEG, times the share of result objects that are no false ones), LNK, the F1 of
divisions (within one frame) and the F1 of complete tracks; a part that truth cannot decide (no division, no link) is
left out. Masks without links reach 0.93 in the outcome and 0 in strict.

What is missing scores 0 in its part. Without masks both parts are 0. Without a lineage the TRA part is 0. An object
whose label has no row in the lineage is no part of the tracking: TRA counts it as missed, SEG does not mind. A frame
that is missing or cannot be read is an empty one. Objects in frames beyond the truth are false. Page i of a stack is
frame i: nothing is shifted, but a shift that would fit better is named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from evaluators.metrics.overlap import OverlapTable, foreground_iou, overlap_table
from evaluators.metrics.tracking import FrameScore, TrackingAccumulator, TrackingScore
from evaluators.model import Deliverable, OutcomeScore, TruthError
from evaluators.outcome.aggregate import harmonic_mean
from evaluators.outcome.files import deliverable_path, label_type, write_labels
from evaluators.outcome.parameters import CellTracking
from evaluators.outcome.track_submission import find_lineage, find_masks
from evaluators.outcome.track_truth import TrackTruth, track_truth
from evaluators.problems import Problems, Refusal
from evaluators.readers.sequence import FileFrames, LabelFrames, Labels, StackFrames
from evaluators.readers.tiff import TiffImage
from evaluators.submission import Submission
from evaluators.truth import Truth

VERSION = "1"

MAX_OBJECTS = 20_000  # per frame
_MAX_NOISE_FRAMES = 16  # after so many frames above that, no further one is decoded
_DIVISION_FRAMES = 1  # tolerance of the strict score

_FAULTS = {
    "outside_rows": ("row_outside", "rows of the lineage begin before the first or end after the last frame"),
    "unknown_parents": ("unknown_parent", "rows name a parent that has no row, or themselves"),
    "late_parents": ("late_parent", "rows begin before their parent has ended; the link is not counted"),
    "empty_rows": ("row_without_object", "rows of the lineage have no object in any frame"),
    "missing_objects": ("track_gap", "frames that a row covers lack its object"),
    "uncovered_objects": ("object_outside_row", "objects lie in frames that no row of their label covers"),
}


def score(submission: Submission, truth: Truth, parameters: CellTracking) -> OutcomeScore:
    """Score a submission.

    Raises
    ------
    TruthError
        A reference is missing or cannot be read, or holds no object.
    """
    with track_truth(truth) as reference:
        masks = find_masks(submission, submission.deliverables[parameters.masks], reference.frames, reference.shape)
        lineage = find_lineage(submission, submission.deliverables[parameters.lineage], masks)
        with closing(masks or FileFrames({}, reference.shape)) as frames:
            if masks is not None:
                _name_frame_faults(submission.problems, parameters.masks, reference, frames)
            comparison = _compare(submission.problems, parameters.masks, reference, frames, lineage)
    return _result(submission, parameters, comparison, lineage is not None, masks is not None)


def replay(truth: Truth, deliverables: Sequence[Deliverable], parameters: CellTracking, folder: Path) -> None:
    """Write the reference as a submission: a stack for a stack, a challenge folder for a challenge folder.

    Where the challenge has segmentation masks apart from its markers, the masks take the labels of the markers in them.
    """
    known = {deliverable.id: deliverable for deliverable in deliverables}
    with track_truth(truth) as reference:
        dtype = label_type(int(reference.tracks[:, 0].max(initial=1)))
        images = (_perfect(reference, frame).astype(dtype) for frame in reference.frames)
        if reference.challenge:
            for frame, image in zip(reference.frames, images, strict=True):
                write_labels(deliverable_path(folder, known[parameters.masks], f"mask{frame:03d}.tif"), image)
        else:
            path = deliverable_path(folder, known[parameters.masks], f"{reference.name}_RES.ome.tif")
            with tifffile.TiffWriter(path, ome=True) as writer:
                shape = (len(reference.frames), *reference.shape)
                axes = "TZYX"[-len(shape) :] if len(shape) == 4 else "TYX"
                writer.write(images, shape=shape, dtype=dtype, compression="zlib", metadata={"axes": axes})
        rows = "".join(" ".join(str(value) for value in row) + "\n" for row in reference.tracks.tolist())
        deliverable_path(folder, known[parameters.lineage], "res_track.txt").write_text(rows, encoding="ascii")


@dataclass
class _Comparison:
    """Result of comparing all frames."""

    score: TrackingScore
    frames: list[FrameScore]
    status: dict[int, str]
    truth_frames: int
    surplus_frames: int
    covering: int  # result objects that cover a reference marker
    objects: int  # result objects, with or without a row
    rowless: int = 0


def _compare(
    problems: Problems,
    masks_id: str,
    reference: TrackTruth,
    masks: LabelFrames,
    lineage: NDArray[np.int64] | None,
) -> _Comparison:
    tracks = np.empty((0, 4), np.int64) if lineage is None else lineage
    accumulator = TrackingAccumulator(reference.tracks, tracks)
    reader = _FrameReader(problems, masks_id, masks, reference.shape)
    scores: list[FrameScore] = []
    begins: dict[int, int] = {}
    covering = objects = rowless = 0
    for frame in sorted({*reference.frames, *masks.frames}):
        markers = reference.markers(frame)
        segmentation = reference.segmentation(frame, markers)
        result, table = reader.read(frame, markers)
        if len(unknown := np.setdiff1d(table.truth_ids, reference.tracks[:, 0])):
            raise TruthError(f"{reference.folder}: label {unknown[0]} of frame {frame} has no row in man_track.txt")
        seg_table = table if segmentation is markers else None
        if segmentation is not None and seg_table is None:
            seg_table = overlap_table(segmentation, result)
        pairs = 2 * table.overlaps > table.truth_sizes[table.truth_index]
        covering += len(np.unique(table.predicted_index[pairs]))
        objects += table.predicted_count
        for label in table.predicted_ids.tolist():
            begins.setdefault(label, frame)
        known = np.isin(table.predicted_ids, tracks[:, 0])
        rowless += int((~known).sum())
        scores.append(accumulator.add_tables(frame, _only(table, known), seg_table))
    try:
        score = accumulator.score((0, _DIVISION_FRAMES))
    except ValueError as error:
        raise TruthError(f"the reference sequence {reference.name}: {error}") from error
    if lineage is not None and masks.frames:
        _name_lineage_faults(problems, score, tracks, begins, rowless)
    surplus = len(set(masks.frames) - set(reference.frames))
    return _Comparison(score, scores, reader.status, len(reference.frames), surplus, covering, objects, rowless)


@dataclass
class _FrameReader:
    """Reads result frames; one that cannot be used is empty, and named."""

    problems: Problems
    masks_id: str
    masks: LabelFrames
    shape: tuple[int, ...]
    status: dict[int, str] = field(default_factory=dict)
    noise_frames: int = 0

    def __post_init__(self) -> None:
        self.existing = frozenset(self.masks.frames)

    def read(self, frame: int, markers: Labels) -> tuple[Labels, OverlapTable]:
        """Return a result frame and its overlap with the markers."""
        if frame in self.existing:
            try:
                if self.noise_frames >= _MAX_NOISE_FRAMES:
                    raise Refusal("too_many_objects", "not read: too many frames before held too many objects")
                result = self.masks.read(frame)
                table = overlap_table(markers, result)
                if table.predicted_count > MAX_OBJECTS:
                    self.noise_frames += 1
                    raise Refusal("too_many_objects", f"holds {table.predicted_count} objects, like noise")
                self.status[frame] = "scored"
                return result, table
            except Refusal as refusal:
                self.problems.refused(f"{self.masks_id}: frame {frame}", refusal)
                self.status[frame] = refusal.code
        else:
            self.status[frame] = "missing_frame"
        empty = np.zeros(self.shape, np.uint8)
        return empty, overlap_table(markers, empty)


def _only(table: OverlapTable, keep: NDArray[np.bool_]) -> OverlapTable:
    """Return a table with some of its predicted objects."""
    if keep.all():
        return table
    place = np.cumsum(keep) - 1
    rows = keep[table.predicted_index]
    return replace(
        table,
        predicted_ids=table.predicted_ids[keep],
        predicted_sizes=table.predicted_sizes[keep],
        truth_index=table.truth_index[rows],
        predicted_index=place[table.predicted_index[rows]],
        overlaps=table.overlaps[rows],
    )


def _name_frame_faults(problems: Problems, masks_id: str, reference: TrackTruth, masks: LabelFrames) -> None:
    """Name missing and surplus frames, and a shift that would fit better."""
    expected, found = reference.frames, masks.frames
    if expected == found:
        return
    if missing := sorted(set(expected) - set(found)):
        message = f"{len(missing)} of {len(expected)} frames are missing ({_ranges(missing)}) and count as empty"
        problems.add("missing_frames", masks_id, message)
    if surplus := sorted(set(found) - set(expected)):
        message = f"{len(surplus)} frames lie beyond the sequence ({_ranges(surplus)}); their objects count as false"
        problems.add("surplus_frames", masks_id, message)
    best, shift = max((_fit(reference, masks, shift), -abs(shift), shift) for shift in _shifts(expected, found))[::2]
    if shift and best > _fit(reference, masks, 0) + 0.02:
        message = (
            f"frame {shift:+d} of the result fits the reference better than the frame of the same number (overlap "
            f"{best:.2f}); frames are taken by number all the same"
        )
        problems.add("shifted_frames", masks_id, message)


def _shifts(expected: Sequence[int], found: Sequence[int]) -> set[int]:
    return {0, found[0] - expected[0], found[-1] - expected[-1], 1, -1}


def _fit(reference: TrackTruth, masks: LabelFrames, shift: int) -> float:
    """Return the mean foreground overlap of a few frames with those ``shift`` later."""
    existing = set(masks.frames)
    pairs = [frame for frame in reference.frames if frame + shift in existing]
    values = []
    for frame in pairs[:: max(1, len(pairs) // 5)][:5]:
        try:
            values.append(foreground_iou(overlap_table(reference.markers(frame), masks.read(frame + shift))))
        except Refusal:
            values.append(0.0)
    return float(np.mean(values)) if values else 0.0


def _ranges(frames: Sequence[int]) -> str:
    cuts = np.flatnonzero(np.diff(frames) > 1) + 1
    parts = [f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in np.split(np.array(frames), cuts)]
    return ", ".join(parts[:5]) + (", …" if len(parts) > 5 else "")


def _name_lineage_faults(
    problems: Problems, score: TrackingScore, tracks: NDArray[np.int64], begins: Mapping[int, int], rowless: int
) -> None:
    for name, (code, text) in _FAULTS.items():
        count = getattr(score.result_faults, name)
        if count:
            problems.add(code, "tracking_lineage", f"{count} {text}")
    if rowless:
        message = f"{rowless} objects have labels without a row; they are no part of the tracking"
        problems.add("label_without_row", "tracking_lineage", message)
    late = [begin - begins[label] for label, begin in tracks[:, :2].tolist() if label in begins]
    if late and (shift := int(np.median(late))) and np.mean(np.array(late) == shift) >= 0.8:
        message = f"first frames are off by {shift:+d} from the masks in most rows; frames count from 0"
        problems.add("off_by_one_frames", "tracking_lineage", message)


def _result(
    submission: Submission, parameters: CellTracking, comparison: _Comparison, has_lineage: bool, has_masks: bool
) -> OutcomeScore:
    score = comparison.score
    if score.seg is None:
        raise TruthError("the reference has no segmentation with an object")
    seg, tra, lnk = score.seg, score.tra if has_lineage else 0.0, score.lnk if has_lineage else 0.0
    divisions, tracks = score.divisions, score.complete_tracks
    frame_seg = np.array([frame.seg for frame in comparison.frames if frame.seg is not None])
    precision = comparison.covering / comparison.objects if comparison.objects else 0.0
    parts = {"segmentation": float(frame_seg.mean()) * precision}
    if score.truth_edges:
        parts["links"] = lnk
    if divisions[_DIVISION_FRAMES].truth:
        parts["divisions"] = divisions[_DIVISION_FRAMES].f1
    parts["complete_tracks"] = tracks.f1 if has_lineage else 0.0
    return OutcomeScore(
        outcome=parameters.seg_weight * seg + parameters.tra_weight * tra,
        strict=harmonic_mean(list(parts.values())),
        delivered=submission.delivered,
        evaluator="cell_tracking",
        evaluator_version=VERSION,
        parameters=parameters.model_dump(mode="json"),
        metrics={
            "seg": seg,
            "tra": tra,
            "det": score.det if has_lineage else 0.0,
            "lnk": lnk,
            "division_f1": divisions[0].f1,
            "division_precision": divisions[0].precision,
            "division_recall": divisions[0].recall,
            "division_f1_within_1": divisions[_DIVISION_FRAMES].f1,
            "complete_tracks_f1": tracks.f1,
            "complete_tracks_recall": tracks.recall,
            "object_precision": precision,
            **_seg_by_density(comparison.frames),
            "seg_frame_mean": float(frame_seg.mean()),
            "truth_objects": score.truth_nodes,
            "result_objects": comparison.objects,
            "result_objects_without_row": comparison.rowless,
            "truth_links": score.truth_edges,
            "result_links": score.result_edges,
            "truth_divisions": divisions[0].truth,
            "result_divisions": divisions[0].result,
            "truth_tracks": tracks.truth,
            "missed_objects": len(score.errors.missed_nodes),
            "false_objects": len(score.errors.false_nodes),
            "merged_objects": len(score.errors.split_nodes),
            "missing_links": len(score.errors.missing_edges),
            "redundant_links": len(score.errors.redundant_edges),
            "wrong_links": len(score.errors.wrong_edges),
            "truth_frames": comparison.truth_frames,
            "frames_not_scored": sum(status != "scored" for status in comparison.status.values()),
            "surplus_frames": comparison.surplus_frames,
            "masks": "scored" if has_masks else "missing",
            "lineage": "scored" if has_lineage else "missing",
        },
        items=[_row(frame, comparison.status[frame.frame]) for frame in comparison.frames],
        problems=submission.problems.list(),
    )


def _seg_by_density(frames: Sequence[FrameScore]) -> dict[str, float | None]:
    """Return the mean SEG of the frames with the fewest, middle and most objects, a third each."""
    rated = sorted((frame for frame in frames if frame.seg is not None), key=lambda frame: frame.seg_objects)
    thirds = np.array_split(np.array([frame.seg for frame in rated], float), 3)
    names = ("seg_sparse", "seg_medium", "seg_dense")
    return {name: float(third.mean()) if len(third) else None for name, third in zip(names, thirds, strict=True)}


def _row(frame: FrameScore, status: str) -> dict[str, Any]:
    return {
        "frame": frame.frame,
        "status": status,
        "truth_objects": frame.truth_objects,
        "result_objects": frame.result_objects,
        "seg": frame.seg,
        "missed": frame.missed,
        "false": frame.false,
        "merged": frame.splits,
    }


def _perfect(reference: TrackTruth, frame: int) -> Labels:
    """Return the segmentation of a frame with the labels of its tracks."""
    markers = reference.markers(frame)
    segmentation = reference.segmentation(frame, markers)
    if segmentation is None or segmentation is markers:
        return markers
    table = overlap_table(markers, segmentation)
    pairs = np.flatnonzero(2 * table.overlaps > table.truth_sizes[table.truth_index])
    lookup = np.zeros(int(segmentation.max(initial=0)) + 1, np.int64)
    taken = table.predicted_ids[table.predicted_index[pairs]]
    lookup[taken[::-1]] = table.truth_ids[table.truth_index[pairs]][::-1]
    result = lookup[segmentation]
    lost = np.setdiff1d(markers[markers != 0], result)
    return np.where(np.isin(markers, lost) & (markers != 0), markers, result)


def as_reference(submission: Submission, given: Truth, parameters: CellTracking, folder: Path) -> Path | None:
    """Write a submission as the reference data that others are compared with; see :mod:`evaluators.agreement`."""
    count, shape = _own_size(submission, parameters.masks)
    masks = find_masks(submission, submission.deliverables[parameters.masks], range(count), shape)
    lineage = find_lineage(submission, submission.deliverables[parameters.lineage], masks)
    if masks is None or lineage is None:
        raise TruthError(f"{parameters.masks if masks is None else parameters.lineage}: nothing to compare with")
    with closing(masks) as frames:
        seen: dict[int, list[int]] = {}
        for frame in frames.frames:
            for label in np.unique(frames.read(frame)).tolist():
                seen.setdefault(label, []).append(frame)
        rows = _consistent(lineage, seen)
        spans = {row[0]: (row[1], row[2]) for row in rows}
        with tifffile.TiffWriter(folder / "00_GT.ome.tif", ome=True) as writer:
            for frame in range(count):
                image = frames.read(frame) if frame in frames.frames else np.zeros(shape, np.uint32)
                kept = [label for label, (first, last) in spans.items() if first <= frame <= last]
                writer.write(
                    np.where(np.isin(image, kept), image, 0).astype(np.uint32), contiguous=False, compression="zlib"
                )
    text = "".join(" ".join(map(str, row)) + "\n" for row in rows)
    (folder / "man_track.txt").write_text(text, encoding="ascii")
    return None


def _own_size(submission: Submission, deliverable_id: str) -> tuple[int, tuple[int, ...]]:
    """Return number and shape of the frames of a submission: of its first stack, else of its files ``mask<frame>``."""
    files = submission.candidates(deliverable_id)
    if not files:
        raise TruthError(f"{deliverable_id}: no file")
    numbers = [int(file.stem[4:]) for file in files if re.fullmatch(r"mask[0-9]{1,6}", file.stem.lower())]
    with closing(StackFrames(TiffImage(files[0].open()))) as stack:
        if numbers:
            return max(numbers) + 1, stack.frame_shape if stack.count == 1 else (stack.count, *stack.frame_shape)
        return stack.count, stack.frame_shape


def _consistent(lineage: NDArray[np.int64], seen: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Cut the rows of a lineage to the frames that hold their label without a gap, and drop parents that then fail.

    A reference must be consistent; a submission need not be.
    """
    rows: dict[int, list[int]] = {}
    for label, first, last, parent in lineage.tolist():
        inside = [frame for frame in seen.get(label, ()) if first <= frame <= last]
        if inside:
            end = inside[0]
            while end + 1 in inside:
                end += 1
            rows[label] = [label, inside[0], end, parent]
    for row in rows.values():
        parent = rows.get(row[3])
        if parent is None or parent[2] >= row[1]:
            row[3] = 0
    return list(rows.values())
