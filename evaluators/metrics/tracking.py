"""Cell Tracking Challenge measures, fed frame by frame: SEG, DET, TRA, LNK, divisions and complete tracks.

Definitions: Maška et al., *Bioinformatics* 30:1609 (2014) for SEG; Matula et al., *PLoS ONE* 10:e0144959 (2015) for the
acyclic oriented graph matching (AOGM) behind DET, TRA and LNK; Ulman et al., *Nat. Methods* 14:1141 (2017) for complete
tracks and division events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evaluators.metrics.assignment import assign
from evaluators.metrics.lineage import Index, Lineage, LineageFaults
from evaluators.metrics.overlap import Labels, OverlapTable, overlap_table

# Weights of the challenge: the effort of the manual correction of each kind of error.
SPLIT_NODE, MISSED_NODE, FALSE_NODE = 5.0, 10.0, 1.0
REDUNDANT_EDGE, MISSING_EDGE, WRONG_EDGE = 1.0, 1.5, 1.0


@dataclass(frozen=True)
class FrameScore:
    """Node errors and segmentation of one frame.

    Attributes
    ----------
    frame : int
    truth_objects, result_objects : int
        Reference markers and objects of the result.
    missed, false, splits : int
        Markers without object, objects without marker, and markers beyond the first in one object.
    seg_objects : int
        Objects of the reference segmentation; 0 where the frame has none.
    seg : float or None
        Mean Jaccard index of the reference objects; ``None`` without any.
    """

    frame: int
    truth_objects: int
    result_objects: int
    missed: int
    false: int
    splits: int
    seg_objects: int
    seg: float | None


@dataclass(frozen=True)
class EventScore:
    """Detection of events: ``matched`` of ``truth`` true ones among ``result`` reported ones."""

    matched: int
    truth: int
    result: int

    @property
    def precision(self) -> float:
        """Matched among reported; 1 if there is no event on either side."""
        return self.matched / self.result if self.result else float(not self.truth)

    @property
    def recall(self) -> float:
        """Matched among true; 1 if there is no event on either side."""
        return self.matched / self.truth if self.truth else float(not self.result)

    @property
    def f1(self) -> float:
        """2 matched / (truth + result); 1 if there is no event on either side."""
        total = self.truth + self.result
        return 2.0 * self.matched / total if total else 1.0


@dataclass(frozen=True, eq=False)
class TrackingErrors:
    """Every error, as the logs of the challenge list them.

    Nodes are rows of (frame, label), edges rows of (frame, label, frame, label). ``missed_nodes`` and ``missing_edges``
    carry labels of truth, the others those of the result. A result object that covers k markers occurs k - 1 times
    among ``split_nodes``.
    """

    split_nodes: Index
    missed_nodes: Index
    false_nodes: Index
    redundant_edges: Index
    missing_edges: Index
    wrong_edges: Index


@dataclass(frozen=True, eq=False)
class TrackingScore:
    """Measures of a whole sequence.

    Attributes
    ----------
    seg : float or None
        Mean Jaccard index over all objects of the annotated frames, a missed object counting 0; ``None`` where no frame
        has a reference segmentation with an object.
    seg_objects : int
        Objects of the reference segmentation.
    truth_nodes, result_nodes, truth_edges, result_edges : int
        Size of both graphs.
    errors : TrackingErrors
    divisions : dict of int to EventScore
        Divisions found within so many frames.
    complete_tracks : EventScore
        Tracks that one result track follows from begin to end.
    truth_faults, result_faults : LineageFaults
        Faults of both track tables.
    """

    seg: float | None
    seg_objects: int
    truth_nodes: int
    result_nodes: int
    truth_edges: int
    result_edges: int
    errors: TrackingErrors
    divisions: dict[int, EventScore]
    complete_tracks: EventScore
    truth_faults: LineageFaults
    result_faults: LineageFaults

    @property
    def node_cost(self) -> float:
        """Weighted sum of node errors."""
        return (
            SPLIT_NODE * len(self.errors.split_nodes)
            + MISSED_NODE * len(self.errors.missed_nodes)
            + FALSE_NODE * len(self.errors.false_nodes)
        )

    @property
    def edge_cost(self) -> float:
        """Weighted sum of edge errors."""
        return (
            REDUNDANT_EDGE * len(self.errors.redundant_edges)
            + MISSING_EDGE * len(self.errors.missing_edges)
            + WRONG_EDGE * len(self.errors.wrong_edges)
        )

    @property
    def aogm(self) -> float:
        """AOGM: the weighted effort of turning the graph of the result into that of truth."""
        return self.node_cost + self.edge_cost

    @property
    def det(self) -> float:
        """Detection, 1 - min(D, D0) / D0 of the node cost D; D0 is that of an empty result."""
        return _normalised(self.node_cost, MISSED_NODE * self.truth_nodes)

    @property
    def tra(self) -> float:
        """Tracking, 1 - min(A, A0) / A0 of AOGM; A0 is that of an empty result."""
        return _normalised(self.aogm, MISSED_NODE * self.truth_nodes + MISSING_EDGE * self.truth_edges)

    @property
    def lnk(self) -> float:
        """Linking, 1 - min(L, L0) / L0 of the edge cost L; L0 is that of a result without edges.

        Where truth has no edge, 1 if the result has no wrong one, else 0.
        """
        return _normalised(self.edge_cost, MISSING_EDGE * self.truth_edges)


def _normalised(cost: float, worst: float) -> float:
    if worst == 0:
        return float(cost == 0)
    return 1.0 - min(cost, worst) / worst


class TrackingAccumulator:
    """Compares a result with truth one frame at a time; holds numbers of objects, never images.

    Parameters
    ----------
    truth_tracks, result_tracks : (r, 4) array_like of integers
        Track tables: rows of track id, first frame, last frame (included) and parent id, 0 for none.

    Examples
    --------
    >>> frames = np.array([[[0, 1, 1]], [[0, 1, 1]]])
    >>> accumulator = TrackingAccumulator([[1, 0, 1, 0]], [[1, 0, 0, 0]])
    >>> for frame, image in enumerate(frames):
    ...     _ = accumulator.add_frame(frame, image, image, segmentation=image)
    >>> score = accumulator.score()
    >>> score.seg, score.det, score.lnk, round(score.tra, 4)
    (1.0, 1.0, 0.0, 0.9302)
    """

    def __init__(self, truth_tracks: ArrayLike, result_tracks: ArrayLike) -> None:
        self._truth_tracks, self._result_tracks = truth_tracks, result_tracks
        self._frames: set[int] = set()
        self._truth = _NodeList()
        self._result = _NodeList()
        self._partners: list[Index] = []  # per truth node: its result node, -1 where missed
        self._seg_sum, self._seg_objects = 0.0, 0

    def add_frame(self, frame: int, truth: Labels, result: Labels, *, segmentation: Labels | None = None) -> FrameScore:
        """Add the images of one frame.

        Parameters
        ----------
        frame : int
            Number of the frame, at least 0; each once, in any order.
        truth : array of integers
            Reference markers (``TRA`` masks) of any dimension; all zero in a frame beyond the truth.
        result : array of integers, same shape
            Objects of the result; all zero in a frame that it lacks.
        segmentation : array of integers, same shape, optional
            Reference segmentation (``SEG`` masks), where this frame has one; may be ``truth`` itself.

        Returns
        -------
        FrameScore
        """
        markers = overlap_table(truth, result)
        if segmentation is None or segmentation is truth:
            return self.add_tables(frame, markers, None if segmentation is None else markers)
        return self.add_tables(frame, markers, overlap_table(segmentation, result))

    def add_tables(self, frame: int, markers: OverlapTable, segmentation: OverlapTable | None = None) -> FrameScore:
        """Add one frame by its overlap tables, for a caller that derives other scores from them too."""
        if frame < 0 or frame in self._frames:
            raise ValueError(f"frame {frame}: expected each frame once, counted from 0")
        self._frames.add(frame)
        partner = np.full(markers.truth_count, -1, np.int64)
        pairs = _covering(markers)
        partner[markers.truth_index[pairs]] = markers.predicted_index[pairs]
        hits = np.bincount(partner[partner >= 0], minlength=markers.predicted_count)
        self._partners.append(np.where(partner >= 0, partner + self._result.count, -1))
        self._truth.add(frame, markers.truth_ids)
        self._result.add(frame, markers.predicted_ids)

        seg, seg_objects = None, 0 if segmentation is None else segmentation.truth_count
        if segmentation is not None and seg_objects:
            total = float(segmentation.iou()[_covering(segmentation)].sum())
            self._seg_sum += total
            self._seg_objects += seg_objects
            seg = total / seg_objects
        return FrameScore(
            frame=frame,
            truth_objects=markers.truth_count,
            result_objects=markers.predicted_count,
            missed=int((partner < 0).sum()),
            false=int((hits == 0).sum()),
            splits=int((hits[hits > 1] - 1).sum()),
            seg_objects=seg_objects,
            seg=seg,
        )

    def score(self, division_tolerances: tuple[int, ...] = (0, 1)) -> TrackingScore:
        """Return the measures of all frames added so far.

        Parameters
        ----------
        division_tolerances : tuple of int
            Frames by which a division may be early or late, one division score for each.

        Raises
        ------
        ValueError
            The reference has no object, or a track table has not four columns.
        TypeError
            A track table does not hold integers.
        """
        if not self._truth.count:
            raise ValueError("the reference has no object in any frame")
        frame_range = min(self._frames), max(self._frames)
        truth = Lineage(*self._truth.arrays(), self._truth_tracks, frame_range)
        result = Lineage(*self._result.arrays(), self._result_tracks, frame_range)
        pairing = _Pairing(truth, result, np.concatenate(self._partners))
        return TrackingScore(
            seg=self._seg_sum / self._seg_objects if self._seg_objects else None,
            seg_objects=self._seg_objects,
            truth_nodes=len(truth),
            result_nodes=len(result),
            truth_edges=len(truth.sources),
            result_edges=len(result.sources),
            errors=pairing.errors(),
            divisions={tolerance: pairing.divisions(tolerance) for tolerance in division_tolerances},
            complete_tracks=pairing.complete_tracks(),
            truth_faults=truth.faults,
            result_faults=result.faults,
        )


def score_tracking(
    frames: Iterable[tuple[int, Labels, Labels, Labels | None]], truth_tracks: ArrayLike, result_tracks: ArrayLike
) -> TrackingScore:
    """Score a sequence of (frame, truth, result, segmentation or ``None``); see :class:`TrackingAccumulator`."""
    accumulator = TrackingAccumulator(truth_tracks, result_tracks)
    for frame, truth, result, segmentation in frames:
        accumulator.add_frame(frame, truth, result, segmentation=segmentation)
    return accumulator.score()


def _covering(table: OverlapTable) -> Index:
    """Return the pairs whose overlap exceeds half of the reference object: one per reference object at most."""
    return np.flatnonzero(2 * table.overlaps > table.truth_sizes[table.truth_index])


class _NodeList:
    """Frames and labels of the objects of one side, grown frame by frame."""

    def __init__(self) -> None:
        self.count = 0
        self._frames: list[int] = []
        self._labels: list[Index] = []

    def add(self, frame: int, labels: Index) -> None:
        self._frames.append(frame)
        self._labels.append(labels)
        self.count += len(labels)

    def arrays(self) -> tuple[Index, Index]:
        sizes = [len(labels) for labels in self._labels]
        return np.repeat(np.array(self._frames, np.int64), sizes), np.concatenate(self._labels)


class _Pairing:
    """Two lineages and the result node that covers each truth node."""

    def __init__(self, truth: Lineage, result: Lineage, partners: Index) -> None:
        """``partners`` are in the order in which nodes were added; here they follow the sorted nodes."""
        self.truth, self.result = truth, result
        position = np.empty(len(result), np.int64)
        position[result.order] = np.arange(len(result))
        partners = partners[truth.order]
        self.partner = partners.copy()  # truth node -> result node, -1 where missed
        self.partner[partners >= 0] = position[partners[partners >= 0]]
        self.hits = np.bincount(self.partner[partners >= 0], minlength=len(result))  # truth nodes in a result node
        # Edges are compared where both of their nodes are matched one to one.
        self.unique = np.full(len(truth), -1, np.int64)
        alone = np.flatnonzero(self.partner >= 0)
        alone = alone[self.hits[self.partner[alone]] == 1]
        self.unique[alone] = self.partner[alone]
        self.origin = np.full(len(result), -1, np.int64)  # result node -> truth node, -1 unless matched one to one
        self.origin[self.unique[alone]] = alone

    def errors(self) -> TrackingErrors:
        """List node errors, and edge errors among the nodes that are matched one to one."""
        truth, result = self.truth, self.result
        twin = _edges_between(result, self.unique[truth.sources], self.unique[truth.targets])
        kept = _edges_between(truth, self.origin[result.sources], self.origin[result.targets]) >= 0
        comparable = (self.origin[result.sources] >= 0) & (self.origin[result.targets] >= 0)
        wrong = twin[twin >= 0][result.parental[twin[twin >= 0]] != truth.parental[twin >= 0]]
        return TrackingErrors(
            split_nodes=_node_rows(result, np.repeat(np.arange(len(result)), np.maximum(self.hits - 1, 0))),
            missed_nodes=_node_rows(truth, np.flatnonzero(self.partner < 0)),
            false_nodes=_node_rows(result, np.flatnonzero(self.hits == 0)),
            redundant_edges=_edge_rows(result, np.flatnonzero(comparable & ~kept)),
            missing_edges=_edge_rows(truth, np.flatnonzero(twin < 0)),
            wrong_edges=_edge_rows(result, np.sort(wrong)),
        )

    def complete_tracks(self) -> EventScore:
        """Count the truth tracks whose objects are matched one to one with all the objects of one result track.

        The table must link all objects of the result track, so that masks without a track table have no track of two
        frames or more.
        """
        truth, result = self.truth, self.result
        heads, lengths = truth.tracks()
        result_heads, result_lengths = result.tracks()
        if not len(result):
            return EventScore(0, len(heads), 0)
        track = np.repeat(np.arange(len(result_heads)), result_lengths)
        links = np.bincount(track[result.sources[~result.parental]], minlength=len(result_heads))
        follower = np.where(self.unique >= 0, track[self.unique], -1)
        candidate = follower[heads]
        complete = candidate >= 0
        complete &= np.minimum.reduceat(follower, heads) == np.maximum.reduceat(follower, heads)
        complete &= result_lengths[candidate] == lengths
        complete &= links[candidate] == lengths - 1
        return EventScore(int(complete.sum()), len(heads), len(result_heads))

    def divisions(self, tolerance: int) -> EventScore:
        """Match divisions of both sides that lie at most ``tolerance`` frames apart.

        Two divisions are the same if the mothers end at most so many frames apart and are matched in the last frame of
        the one that ends first, and if there are equally many daughters, which pair up: begun at most so many frames
        apart and matched in the first frame of the later one.
        """
        truth, result = self.truth, self.result
        true, found = truth.divisions(), result.divisions()
        event_of = {int(result.labels[node]): event for event, node in enumerate(found.mother)}
        pairs: list[tuple[int, int, int]] = []
        for event, mother in enumerate(true.mother):
            label, end = truth.labels[mother], truth.frames[mother]
            frames = np.arange(end, end - tolerance - 1, -1)
            for frame, node in zip(frames, truth.find(np.full(len(frames), label), frames), strict=True):
                if node < 0 or self.partner[node] < 0:
                    continue
                candidate = event_of.get(int(result.labels[self.partner[node]]))
                if candidate is None:
                    continue
                late = int(result.frames[found.mother[candidate]] - end)
                if min(0, late) != frame - end or late > tolerance:
                    continue
                if self._same_daughters(true.daughters_of(event), found.daughters_of(candidate), tolerance):
                    pairs.append((event, candidate, abs(late)))
        columns = np.array(pairs, np.int64).reshape(-1, 3)
        matched = assign(columns[:, 0], columns[:, 1], columns[:, 2].astype(float))
        return EventScore(len(matched), len(true), len(found))

    def _same_daughters(self, truth_nodes: Index, result_nodes: Index, tolerance: int) -> bool:
        if len(truth_nodes) != len(result_nodes):
            return False
        true, found = (side.ravel() for side in np.meshgrid(truth_nodes, result_nodes))
        begins, found_begins = self.truth.frames[true], self.result.frames[found]
        node = self.truth.find(self.truth.labels[true], np.maximum(begins, found_begins))
        partner = np.where(node >= 0, self.partner[node], -1)
        same = (partner >= 0) & (self.result.labels[partner] == self.result.labels[found])
        same &= np.abs(begins - found_begins) <= tolerance
        return len(assign(true[same], found[same], np.zeros(same.sum()))) == len(truth_nodes)


def _edges_between(lineage: Lineage, sources: Index, targets: Index) -> Index:
    """Find the edges of a lineage between pairs of its nodes, -1 where there is none or a node is -1."""
    keys = lineage.sources * len(lineage) + lineage.targets
    wanted = np.where((sources >= 0) & (targets >= 0), sources * len(lineage) + targets, -1)
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(keys)
    edge = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
    return np.where(keys[edge] == wanted, edge, -1)


def _node_rows(lineage: Lineage, nodes: Index) -> Index:
    """Return frame and label of nodes, by frame, then label."""
    rows = np.column_stack((lineage.frames[nodes], lineage.labels[nodes]))
    return rows[np.lexsort((rows[:, 1], rows[:, 0]))]


def _edge_rows(lineage: Lineage, edges: Index) -> Index:
    """Return frame and label of both ends of edges, by the first end, then the second."""
    source, target = lineage.sources[edges], lineage.targets[edges]
    rows = np.column_stack(
        (lineage.frames[source], lineage.labels[source], lineage.frames[target], lineage.labels[target])
    )
    return rows[np.lexsort(rows.T[::-1])]
