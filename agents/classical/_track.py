"""Tracking of segmented objects that move, grow, divide and leave: one frame pair at a time.

Between two frames every cell can continue, divide into two, or be lost; two regions can also turn out to be one (a
segmentation fault in one of both frames). All these hypotheses compete in one assignment, solved exactly; a cell
takes part in one hypothesis at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

from ._segment import Labels

GATE_RADII = 2.5  # search distance between centres, in object radii; overlapping objects are always candidates
OVERLAP_WEIGHT = 0.6  # of the overlap (IoU) in a hypothesis's gain; the rest is likeness in size and place
LEAST_GAIN = 0.15  # what a hypothesis must be worth to beat "lost and new"
SIZE_RATIO = (0.7, 1.4)  # joint area of two daughters relative to the mother
DAUGHTER_RATIO = 0.4  # smaller daughter to larger one, unless the image border cuts one
CONTINUE_RATIO = 0.6  # a cell that loses more than this of its area between two frames has hardly continued


@dataclass(frozen=True)
class Objects:
    """The objects of one frame, by label - 1: area, centre, whether the image border cuts them."""

    labels: Labels
    area: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    x: npt.NDArray[np.float64]
    edge: npt.NDArray[np.bool_]
    length: npt.NDArray[np.float64]  # full axes of the ellipse with the same second moments
    width: npt.NDArray[np.float64]

    @classmethod
    def of(cls, labels: Labels) -> Objects:
        """Measure a label image whose labels are 1, 2, 3, … without gaps."""
        count = int(labels.max(initial=0))
        inside = labels > 0
        owner = labels[inside] - 1
        y, x = (axis.astype(float) for axis in np.nonzero(inside))
        area = np.bincount(owner, minlength=count).astype(float)
        cy, cx = np.bincount(owner, y, count) / area, np.bincount(owner, x, count) / area
        dy, dx = y - cy[owner], x - cx[owner]
        vy = np.bincount(owner, dy * dy, count) / area + 1 / 12
        vx = np.bincount(owner, dx * dx, count) / area + 1 / 12
        cov = np.bincount(owner, dy * dx, count) / area
        root = np.sqrt(((vy - vx) / 2) ** 2 + cov**2)
        edge = np.zeros(count + 1, dtype=bool)
        for line in (labels[0], labels[-1], labels[:, 0], labels[:, -1]):
            edge[line] = True
        mean = (vy + vx) / 2
        return cls(labels, area, cy, cx, edge[1:], 4 * np.sqrt(mean + root), 4 * np.sqrt(np.maximum(mean - root, 0)))

    def __len__(self) -> int:
        return len(self.area)


@dataclass(frozen=True)
class Links:
    """What happened between two frames, as 0-based object indices of the earlier and the later one."""

    continued: list[tuple[int, int]]
    divided: list[tuple[int, int, int]]  # mother, two daughters
    merged: list[tuple[int, int, int]]  # two earlier objects, one later region


def link(before: Objects, after: Objects, radius: float) -> Links:
    """Explain the objects of one frame by those of the frame before.

    Parameters
    ----------
    before, after
        Objects of both frames.
    radius
        Typical inner radius of an object in pixels; sets the gate.
    """
    if len(before) == 0 or len(after) == 0:
        return Links([], [], [])
    overlap = _overlaps(before.labels, after.labels, len(after))
    forward = _candidates(before, after, overlap, radius)
    hypotheses: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    gains: list[float] = []

    def consider(old: tuple[int, ...], new: tuple[int, ...], penalty: float = 0.0) -> None:
        gain = _likeness(before, after, old, new, overlap, radius) - LEAST_GAIN - penalty
        if gain > 0:
            hypotheses.append((old, new))
            gains.append(gain)

    backward: dict[int, list[int]] = {}
    for i, later in enumerate(forward):
        for place, j in enumerate(later):
            backward.setdefault(j, []).append(i)
            consider((i,), (j,), _shrinkage(before, after, i, j))
            for k in later[place + 1 :]:
                if overlap.get((i, j), 0) + overlap.get((i, k), 0) and _plausible(before, after, i, j, k):
                    consider((i,), (j, k))
    for j, earlier in backward.items():
        for place, i in enumerate(earlier):
            for k in earlier[place + 1 :]:
                if overlap.get((i, j), 0) and overlap.get((k, j), 0) and _plausible(after, before, j, i, k):
                    consider((i, k), (j,))
    return _select(hypotheses, gains, len(before), len(after))


def _overlaps(before: Labels, after: Labels, count: int) -> dict[tuple[int, int], int]:
    both = (before > 0) & (after > 0)
    code = (before[both].astype(np.int64) - 1) * count + (after[both] - 1)
    pairs, pixels = np.unique(code, return_counts=True)
    return {divmod(code, count): number for code, number in zip(pairs.tolist(), pixels.tolist(), strict=True)}


def _candidates(before: Objects, after: Objects, overlap: dict[tuple[int, int], int], radius: float) -> list[list[int]]:
    """Return for each earlier object the later ones that overlap it or lie within the gate."""
    tree = cKDTree(np.stack([after.y, after.x], axis=1))
    near = tree.query_ball_point(np.stack([before.y, before.x], axis=1), GATE_RADII * radius)
    result = [set(found) for found in near]
    for i, j in overlap:
        result[i].add(j)
    return [sorted(found) for found in result]


def _likeness(
    before: Objects,
    after: Objects,
    old: tuple[int, ...],
    new: tuple[int, ...],
    overlap: dict[tuple[int, int], int],
    radius: float,
) -> float:
    """Return how alike two groups of objects are, from 0 to 1: their overlap, and their size and centre."""
    area_old, area_new = sum(before.area[i] for i in old), sum(after.area[j] for j in new)
    shared = sum(overlap.get((i, j), 0) for i in old for j in new)
    iou = shared / (area_old + area_new - shared)
    dy = (
        sum(before.area[i] * before.y[i] for i in old) / area_old
        - sum(after.area[j] * after.y[j] for j in new) / area_new
    )
    dx = (
        sum(before.area[i] * before.x[i] for i in old) / area_old
        - sum(after.area[j] * after.x[j] for j in new) / area_new
    )
    size = min(area_old, area_new) / max(area_old, area_new)
    near = np.exp(-(dy * dy + dx * dx) / (4 * radius) ** 2)
    return float(OVERLAP_WEIGHT * iou + (1 - OVERLAP_WEIGHT) * size * near)


def _shrinkage(before: Objects, after: Objects, i: int, j: int) -> float:
    """Return the penalty for a continued cell of very different size; none where the image border cuts it."""
    ratio = min(before.area[i], after.area[j]) / max(before.area[i], after.area[j])
    if ratio >= CONTINUE_RATIO or before.edge[i] or after.edge[j]:
        return 0.0
    return float(0.1 + 0.5 * (CONTINUE_RATIO - ratio) / CONTINUE_RATIO)


def _plausible(one: Objects, two: Objects, whole: int, first: int, second: int) -> bool:
    """Return whether two objects of ``two`` can be the halves of an object of ``one``, by their areas."""
    a, b = two.area[first], two.area[second]
    cut = one.edge[whole] or two.edge[first] or two.edge[second]
    low, high = SIZE_RATIO
    return bool(cut or (low < (a + b) / one.area[whole] < high and min(a, b) >= DAUGHTER_RATIO * max(a, b)))


def _select(
    hypotheses: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], gains: Sequence[float], earlier: int, later: int
) -> Links:
    """Choose the set of hypotheses with the largest total gain in which no object occurs twice."""
    chosen = Links([], [], [])
    if not hypotheses:
        return chosen
    rows: list[int] = []
    start = [0]
    for old, new in hypotheses:
        rows += [*old, *(earlier + j for j in new)]
        start.append(len(rows))
    members = csr_array((np.ones(len(rows)), rows, start), shape=(len(hypotheses), earlier + later)).T
    solution = milp(
        -np.asarray(gains),
        integrality=np.ones(len(hypotheses)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(members, -np.inf, 1),
        options={"time_limit": 60.0},
    )
    if solution.x is None:
        raise RuntimeError(f"the assignment of {earlier} to {later} objects was not solved: {solution.message}")
    for index in np.flatnonzero(solution.x > 0.5).tolist():
        old, new = hypotheses[index]
        if len(new) == 2:
            chosen.divided.append((old[0], new[0], new[1]))
        elif len(old) == 2:
            chosen.merged.append((old[0], old[1], new[0]))
        else:
            chosen.continued.append((old[0], new[0]))
    return chosen


# --- tracks -----------------------------------------------------------------------------------------------------


@dataclass
class Track:
    """One cell's life: frames from ``start`` to ``end``, both included; ``parent`` 0 where unknown."""

    id: int
    start: int
    end: int
    parent: int = 0


@dataclass
class Lineage:
    """Tracks that grow frame by frame. ``objects[t][k]`` is the track of object ``k`` in frame ``t``.

    ``sister_window`` is the number of frames in which a division that turns out as a fault of segmentation (the two
    parts are one region again) is taken back.
    """

    sister_window: int = 1
    tracks: dict[int, Track] = field(default_factory=dict)
    objects: list[npt.NDArray[np.int64]] = field(default_factory=list)
    undone: int = 0  # divisions that were taken back
    alias: dict[int, int] = field(default_factory=dict)

    def resolve(self, track: int) -> int:
        """Return the track that a number stands for after all corrections."""
        while track in self.alias:
            track = self.alias[track]
        return track

    def sisters(self, one: int, two: int, now: int) -> bool:
        """Return whether two tracks came from one division not long before frame ``now``."""
        first, second = self.tracks[self.resolve(one)], self.tracks[self.resolve(two)]
        return (
            first.parent != 0
            and first.parent == second.parent
            and first.start == second.start
            and now - first.start <= self.sister_window
        )

    def add(self, count: int, links: Links) -> None:
        """Append a frame of ``count`` objects; merged regions must be sisters (others are split beforehand)."""
        now = len(self.objects)
        current = np.zeros(count, dtype=np.int64)
        past = self.objects[-1] if now else np.zeros(0, dtype=np.int64)
        for i, j in links.continued:
            current[j] = self.resolve(int(past[i]))
            self.tracks[int(current[j])].end = now
        for i, j, k in links.divided:
            mother = self.resolve(int(past[i]))
            current[j], current[k] = self._new(now, mother), self._new(now, mother)
        for i, k, j in links.merged:
            current[j] = self._rejoin(self.resolve(int(past[i])), self.resolve(int(past[k])), now)
        for j in np.flatnonzero(current == 0).tolist():
            current[j] = self._new(now, 0)
        self.objects.append(current)

    def _new(self, now: int, parent: int) -> int:
        number = len(self.tracks) + len(self.alias) + 1
        self.tracks[number] = Track(number, now, now, parent)
        return number

    def _rejoin(self, one: int, two: int, now: int) -> int:
        mother = self.tracks[one].parent
        for number in (one, two):
            self.alias[number] = mother
            del self.tracks[number]
        self.tracks[mother].end = now
        self.undone += 1
        return mother

    def finish(self) -> tuple[list[Track], list[npt.NDArray[np.int64]]]:
        """Return valid tracks, numbered in order of appearance, and each frame's objects in these numbers.

        A mother that was left with one daughter goes on as that daughter. Raises ``ValueError`` if a rule of the
        challenge's format is broken.
        """
        children: dict[int, list[int]] = {}
        for track in self.tracks.values():
            if track.parent:
                children.setdefault(track.parent, []).append(track.id)
        for mother in sorted(children, key=lambda number: -self.tracks[number].start):
            if len(children[mother]) == 1:
                only = children[mother][0]
                self.tracks[mother].end = self.tracks[only].end
                children[mother] = children.pop(only, [])  # already settled: it started later
                for grandchild in children[mother]:
                    self.tracks[grandchild].parent = mother
                self.alias[only] = mother
                del self.tracks[only]
        order = sorted(self.tracks.values(), key=lambda track: (track.start, track.id))
        number = {track.id: place for place, track in enumerate(order, start=1)}
        final = [Track(number[t.id], t.start, t.end, number[t.parent] if t.parent else 0) for t in order]
        frames = [
            np.array([number[self.resolve(track)] for track in row.tolist()], dtype=np.int64) for row in self.objects
        ]
        check(final, frames)
        return final, frames


def check(tracks: Sequence[Track], frames: Sequence[npt.NDArray[np.int64]]) -> None:
    """Check the challenge's rules; raise ``ValueError`` with the first that is broken.

    A track's label occurs in every frame from its start to its end and in no other; a daughter starts in the frame
    after its mother's last one; a mother has two daughters at least.
    """
    seen: dict[int, list[int]] = {}
    for frame, row in enumerate(frames):
        for number in set(row.tolist()):
            seen.setdefault(number, []).append(frame)
    known = {track.id: track for track in tracks}
    if set(seen) != set(known):
        raise ValueError(f"labels without a track or tracks without a label: {sorted(set(seen) ^ set(known))[:5]}")
    daughters: dict[int, int] = {}
    for track in tracks:
        if seen[track.id] != list(range(track.start, track.end + 1)):
            raise ValueError(f"track {track.id} is not in every frame from {track.start} to {track.end}")
        if track.parent:
            daughters[track.parent] = daughters.get(track.parent, 0) + 1
            if track.parent not in known or known[track.parent].end != track.start - 1:
                raise ValueError(f"track {track.id} does not begin right after its mother {track.parent}")
    if alone := [mother for mother, number in daughters.items() if number < 2]:
        raise ValueError(f"track {alone[0]} has a single daughter")


def write_lineage(path: Path, tracks: Sequence[Track]) -> None:
    """Write tracks in the challenge's text form: id, first frame, last frame, parent."""
    path.write_text("".join(f"{t.id} {t.start} {t.end} {t.parent}\n" for t in tracks), encoding="ascii")


def read_lineage(path: Path) -> list[Track]:
    """Read what :func:`write_lineage` wrote."""
    rows = [[int(value) for value in line.split()] for line in path.read_text(encoding="ascii").splitlines() if line]
    return [Track(*row) for row in rows]
