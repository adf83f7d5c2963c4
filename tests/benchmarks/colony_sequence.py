"""Write a time-lapse of a growing colony of rods with a flawed tracking result, to measure scoring on.

``python colony_sequence.py FOLDER`` makes ``truth.tif``, ``result.tif`` (one zlib-compressed 16-bit page per frame),
``man_track.txt`` and ``res_track.txt``: by default 800 frames of 938 x 1094 pixels, 2 to 1430 cells, about 174,000 cell
instances. The same arguments give the same pixels.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray
from scipy.spatial import cKDTree

WIDTH, BIRTH_LENGTH, ROOM = 8.0, 18.0, 240.0  # pixels; area of the colony per cell


@dataclass
class Frame:
    """Centre (y, x), angle, length and id of each cell."""

    centre: NDArray[np.float64]
    angle: NDArray[np.float64]
    length: NDArray[np.float64]
    ids: NDArray[np.int64]


@dataclass
class Colony:
    """Frames and track table (id, first frame, last frame, parent) of a simulated colony."""

    frames: list[Frame] = field(default_factory=list)
    tracks: list[list[int]] = field(default_factory=list)


def grow(count: int, last_cells: int, shape: tuple[int, int], seed: int) -> Colony:
    """Simulate exponential growth from two cells: rods lengthen, divide, snap and push each other outwards."""
    rng = np.random.default_rng(seed)
    middle = np.array(shape) / 2.0
    rate = np.log(last_cells / 2.0) / (count - 1)
    centre = middle + np.array([[-6.0, 0.0], [6.0, 0.0]])
    angle, length, ids = rng.uniform(0, np.pi, 2), BIRTH_LENGTH * np.array([1.0, 1.5]), np.array([1, 2])
    colony = Colony(tracks=[[1, 0, 0, 0], [2, 0, 0, 0]])
    for frame in range(count):
        if frame:
            length = length * np.exp(rate * rng.normal(1.0, 0.3, len(length)))
            centre = middle + (centre - middle) * np.exp(rate / 2.0)
            due = round(2.0 * np.exp(rate * frame)) - len(ids)
            mothers = np.argsort(-length, kind="stable")[:due] if due > 0 else np.empty(0, int)
            stay = np.setdiff1d(np.arange(len(ids)), mothers)
            along = _direction(angle[mothers]) * length[mothers, None] / 4.0
            first = len(colony.tracks) + 1
            born = np.arange(first, first + 2 * len(mothers))
            colony.tracks += [[int(new), frame, frame, int(ids[mothers[(new - first) // 2]])] for new in born]
            snap = rng.normal(0.0, 0.35, 2 * len(mothers))
            pairs = np.stack((centre[mothers] - along, centre[mothers] + along), axis=1).reshape(-1, 2)
            centre = np.concatenate((centre[stay], pairs))
            angle = np.concatenate((angle[stay], np.repeat(angle[mothers], 2) + snap))
            length = np.concatenate((length[stay], np.repeat(length[mothers] / 2.0, 2)))
            ids = np.concatenate((ids[stay], born))
        for _ in range(6):
            centre, angle = _push_apart(centre, angle, length)
        radius = np.linalg.norm(centre - middle, axis=1, keepdims=True)
        rim = np.sqrt(ROOM * len(ids) / np.pi)
        centre = middle + (centre - middle) * np.minimum(1.0, 0.7 + 0.3 * rim / np.maximum(radius, 1.0))
        for cell in ids:
            colony.tracks[cell - 1][2] = frame
        colony.frames.append(Frame(centre, angle, length, ids))
    return colony


def _direction(angle: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.column_stack((np.sin(angle), np.cos(angle)))


def _push_apart(
    centre: NDArray[np.float64], angle: NDArray[np.float64], length: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Move and turn rods, seen as three discs each, by half of what their discs overlap."""
    arm = (length[:, None] / 2.0 - WIDTH / 2.0) * np.array([-1.0, 0.0, 1.0])
    along = _direction(angle)
    discs = (centre[:, None] + arm[..., None] * along[:, None]).reshape(-1, 2)
    pairs = cKDTree(discs).query_pairs(WIDTH, output_type="ndarray")
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    pairs = pairs[pairs[:, 0] // 3 != pairs[:, 1] // 3]
    gap = discs[pairs[:, 1]] - discs[pairs[:, 0]]
    distance = np.linalg.norm(gap, axis=1)
    push = gap * (0.5 * (WIDTH - distance) / np.maximum(distance, 1e-6))[:, None]
    force = np.zeros_like(discs)
    np.add.at(force, pairs[:, 0], -push)
    np.add.at(force, pairs[:, 1], push)
    force = force.reshape(-1, 3, 2)
    normal = np.column_stack((along[:, 1], -along[:, 0]))
    torque = (np.einsum("cdk,ck->cd", force, normal) * arm).sum(axis=1)
    return centre + force.sum(axis=1) / 1.5, angle + np.clip(torque / np.maximum(length, 1.0) ** 2, -0.2, 0.2)


def draw(frame: Frame, shape: tuple[int, int]) -> NDArray[np.uint16]:
    """Paint the cells as label image, by points that lie closer than pixels."""
    image = np.zeros(shape, np.uint16)
    radius = WIDTH / 2.0 - 0.6
    along = np.linspace(-1.0, 1.0, 2 + int(frame.length.max() / 0.7)) * frame.length[:, None] / 2.0
    across = np.linspace(-radius, radius, 2 + int(2.0 * radius / 0.7))
    beyond = np.maximum(np.abs(along) - (frame.length[:, None] / 2.0 - radius), 0.0)
    inside = beyond[..., None] ** 2 + across**2 <= radius**2
    direction = _direction(frame.angle)
    points = [
        np.rint(
            frame.centre[:, axis, None, None]
            + along[..., None] * direction[:, axis, None, None]
            + sign * across * direction[:, 1 - axis, None, None]
        ).astype(np.int32)
        for axis, sign in ((0, 1.0), (1, -1.0))
    ]
    inside &= (points[0] >= 0) & (points[0] < shape[0]) & (points[1] >= 0) & (points[1] < shape[1])
    labels = np.broadcast_to(frame.ids.astype(np.uint16)[:, None, None], inside.shape)
    image[points[0][inside], points[1][inside]] = labels[inside]
    return image


def flawed(frame: Frame, number: int, ids: NDArray[np.int64], seed: int) -> Frame:
    """Give new ids, lose one cell in a hundred, join one in two hundred with another and shift all by half a pixel."""
    rng = np.random.default_rng((seed, number))
    fate = rng.random(len(frame.ids))
    new = ids[frame.ids].copy()
    joined = np.flatnonzero(fate > 0.995)
    new[joined] = np.roll(new, 1)[joined]
    kept = fate >= 0.01 if len(new) > 10 else np.ones(len(new), bool)
    return Frame(frame.centre[kept] + 0.5, frame.angle[kept], frame.length[kept], new[kept])


def write(folder: Path, count: int, last_cells: int, shape: tuple[int, int], seed: int) -> int:
    """Write the sequence; return the number of cell instances drawn in truth."""
    colony = grow(count, last_cells, shape, seed)
    tracks = np.array(colony.tracks)
    ids = np.concatenate(([0], 1 + np.random.default_rng(seed).permutation(len(tracks))))

    def truth() -> Iterator[NDArray[np.uint16]]:
        return (draw(frame, shape) for frame in colony.frames)

    def result() -> Iterator[NDArray[np.uint16]]:
        return (draw(flawed(frame, number, ids, seed), shape) for number, frame in enumerate(colony.frames))

    folder.mkdir(parents=True, exist_ok=True)
    for name, pages in (("truth.tif", truth()), ("result.tif", result())):
        with tifffile.TiffWriter(folder / name, bigtiff=True) as file:
            file.write(pages, shape=(count, *shape), dtype=np.uint16, compression="zlib", photometric="minisblack")
    np.savetxt(folder / "man_track.txt", tracks, "%d")
    np.savetxt(folder / "res_track.txt", np.column_stack((ids[tracks[:, 0]], tracks[:, 1:3], ids[tracks[:, 3]])), "%d")
    return sum(len(frame.ids) for frame in colony.frames)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--frames", type=int, default=800)
    parser.add_argument("--last-cells", type=int, default=1430)
    parser.add_argument("--shape", type=int, nargs=2, default=(938, 1094))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(write(options.folder, options.frames, options.last_cells, tuple(options.shape), options.seed))


if __name__ == "__main__":
    main()
