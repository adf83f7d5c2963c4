"""Nodes, edges and divisions of one tracking result: label images over time plus a track table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Index = NDArray[np.int64]


@dataclass(frozen=True)
class LineageFaults:
    """What is wrong with a track table, alone and beside its label images; all zero for a valid one.

    Attributes
    ----------
    invalid_rows : int
        Rows with an id below 1, or with an end before the begin. They are not used.
    repeated_ids : int
        Further rows of an id. The first one is used.
    outside_rows : int
        Rows that begin before the first or end after the last frame.
    unknown_parents : int
        Rows whose parent, above 0, has no row, or is the track itself.
    late_parents : int
        Rows that begin before or when their parent ends.
    empty_rows : int
        Rows without an object in any frame.
    missing_objects : int
        Frames of the sequence that a row covers while the label is absent, in rows with an object elsewhere.
    uncovered_objects : int
        Objects in frames that no row of their label covers.
    """

    invalid_rows: int
    repeated_ids: int
    outside_rows: int
    unknown_parents: int
    late_parents: int
    empty_rows: int
    missing_objects: int
    uncovered_objects: int

    def __bool__(self) -> bool:
        return any(vars(self).values())


@dataclass(frozen=True, eq=False)
class Divisions:
    """Mothers with at least two daughters: one row per daughter, those of a mother together.

    Attributes
    ----------
    mother : (e,) int64
        Last node of each mother.
    heads : (e,) int64
        First row of each mother in ``daughters``.
    daughters : (d,) int64
        First node of each daughter.
    """

    mother: Index
    heads: Index
    daughters: Index

    def __len__(self) -> int:
        return len(self.mother)

    def daughters_of(self, event: int) -> Index:
        """Return the first nodes of the daughters of one event."""
        stop = self.heads[event + 1] if event + 1 < len(self.heads) else len(self.daughters)
        return self.daughters[self.heads[event] : stop]


class Lineage:
    """The directed graph of a result: a node for each object in each frame, an edge from each node to its successors.

    Two kinds of edges exist: *links* join the nodes of a track in consecutive frames, where its row covers both;
    *parent edges* lead from the last frame of a track to the first one of a track that names it as parent. These may
    skip frames: so the Cell Tracking Challenge writes a cell that was lost for a while. An edge needs both of its
    objects in the images.

    Parameters
    ----------
    frames, labels : (n,) int64
        Frame and label of each object; a pair occurs once.
    tracks : (r, 4) array_like of integers
        Rows of track id, first frame, last frame (included) and parent id, 0 for none.
    frame_range : (int, int)
        First and last frame of the sequence.

    Attributes
    ----------
    frames, labels : (n,) int64
        The nodes, sorted by label, then by frame.
    order : (n,) int64
        Row of each sorted node in the input.
    sources, targets : (e,) int64
        The edges, as nodes.
    parental : (e,) bool
        Whether each edge is a parent edge.
    faults : LineageFaults
    """

    def __init__(self, frames: Index, labels: Index, tracks: ArrayLike, frame_range: tuple[int, int]) -> None:
        self.order = np.lexsort((frames, labels))
        self.frames, self.labels = frames[self.order], labels[self.order]
        self._track_ids, track = np.unique(self.labels, return_inverse=True)
        self._span = frame_range[1] - frame_range[0] + 1
        self._places = track * self._span + self.frames - frame_range[0]  # ascending: one number for label and frame
        rows, invalid, repeated = _usable(tracks)
        ids, begins, ends, parents = rows.T
        self._frame_range = first, last = frame_range

        # The row of each node, if it covers the node.
        row = _find(ids, self.labels)
        covered = (row >= 0) & (begins[row] <= self.frames) & (self.frames <= ends[row]) if len(ids) else row >= 0
        follows = (np.diff(self.labels) == 0) & (np.diff(self.frames) == 1) & covered[:-1] & covered[1:]
        link_sources = np.flatnonzero(follows)

        parent_row = _find(ids, parents)
        unknown = (parents > 0) & ((parent_row < 0) | (parents == ids))
        child = np.flatnonzero((parents > 0) & ~unknown)
        late = ends[parent_row[child]] >= begins[child]
        child = child[~late]
        parent_sources = self.find(parents[child], ends[parent_row[child]])
        parent_targets = self.find(ids[child], begins[child])
        exist = (parent_sources >= 0) & (parent_targets >= 0)

        self.sources = np.concatenate((link_sources, parent_sources[exist]))
        self.targets = np.concatenate((link_sources + 1, parent_targets[exist]))
        self.parental = np.arange(len(self.sources)) >= len(link_sources)

        objects = np.bincount(row[covered], minlength=len(ids))
        spans = np.maximum(np.minimum(ends, last) - np.maximum(begins, first) + 1, 0)
        self.faults = LineageFaults(
            invalid_rows=invalid,
            repeated_ids=repeated,
            outside_rows=int(((begins < first) | (ends > last)).sum()),
            unknown_parents=int(unknown.sum()),
            late_parents=int(late.sum()),
            empty_rows=int((objects == 0).sum()),
            missing_objects=int((spans - objects)[objects > 0].sum()),
            uncovered_objects=int((~covered).sum()),
        )

    def __len__(self) -> int:
        return len(self.labels)

    def tracks(self) -> tuple[Index, Index]:
        """Return the first node and the number of nodes of each label."""
        heads = np.flatnonzero(np.diff(self.labels, prepend=-1))
        return heads, np.diff(heads, append=len(self.labels))

    def divisions(self) -> Divisions:
        """Return the divisions."""
        sources, targets = self.sources[self.parental], self.targets[self.parental]
        order = np.lexsort((targets, sources))
        sources, targets = sources[order], targets[order]
        heads = np.flatnonzero(np.diff(sources, prepend=-1))
        counts = np.diff(heads, append=len(sources))
        dividing = np.repeat(counts >= 2, counts)
        sources, targets = sources[dividing], targets[dividing]
        heads = np.flatnonzero(np.diff(sources, prepend=-1))
        return Divisions(sources[heads], heads, targets)

    def find(self, labels: Index, frames: Index) -> Index:
        """Find the nodes of labels in frames, -1 where there is none."""
        first, last = self._frame_range
        track = _find(self._track_ids, labels)
        inside = (track >= 0) & (frames >= first) & (frames <= last)
        return _find(self._places, np.where(inside, track * self._span + np.clip(frames, first, last) - first, -1))


def _usable(tracks: ArrayLike) -> tuple[Index, int, int]:
    """Return the usable rows of a track table sorted by id, and how many were invalid and repeated."""
    rows = np.asarray(tracks)
    rows = rows.reshape(0, 4) if rows.size == 0 else rows
    if rows.ndim != 2 or rows.shape[1] != 4:
        raise ValueError(f"tracks: expected rows of four numbers, found shape {rows.shape}")
    if rows.size and rows.dtype.kind not in "ui":
        raise TypeError(f"tracks: expected integers, found {rows.dtype}")
    rows = rows.astype(np.int64)
    valid = rows[(rows[:, 0] >= 1) & (rows[:, 2] >= rows[:, 1])]
    _, firsts = np.unique(valid[:, 0], return_index=True)
    return valid[firsts], len(rows) - len(valid), len(valid) - len(firsts)


def _find(ids: Index, wanted: Index) -> Index:
    """Find values in sorted ids, -1 where they are absent."""
    if not len(ids):
        return np.full(len(wanted), -1, np.int64)
    place = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return np.where(ids[place] == wanted, place, -1)
