"""Linking, lineages and their rules on drawn objects."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile

from agents.classical._io import find_sequences, read_pages, write_label_stack
from agents.classical._track import Lineage, Links, Objects, Track, check, link, read_lineage, write_lineage
from agents.classical.bacteria_tracking import (
    divide_region,
    doubling_frames,
    is_dark,
    lineage_order,
    without_holes,
)

SHAPE = (60, 100)
RADIUS = 4.0


def rods(*boxes: tuple[int, int, int, int]) -> Objects:
    """Rectangles (y0, y1, x0, x1), numbered in order."""
    labels = np.zeros(SHAPE, dtype=np.int32)
    for number, (y0, y1, x0, x1) in enumerate(boxes, start=1):
        labels[y0:y1, x0:x1] = number
    return Objects.of(labels)


# --- objects and links ------------------------------------------------------------------------------------------


def test_objects_are_measured_in_pixels() -> None:
    objects = rods((10, 18, 20, 50), (0, 8, 60, 70))
    assert objects.area.tolist() == [240, 80]
    assert (objects.y[0], objects.x[0]) == (13.5, 34.5)
    assert objects.edge.tolist() == [False, True]
    assert objects.length[0] == pytest.approx(30 * 2 / np.sqrt(3), rel=0.01)  # axis of the ellipse of the same moments
    assert objects.width[0] == pytest.approx(8 * 2 / np.sqrt(3), rel=0.02)
    assert len(Objects.of(np.zeros(SHAPE, dtype=np.int32))) == 0


def test_neighbours_that_move_keep_their_partners() -> None:
    before = rods((10, 18, 20, 50), (20, 28, 20, 50), (30, 38, 20, 50))
    after = rods((32, 40, 22, 53), (12, 20, 22, 53), (22, 30, 22, 53))
    assert sorted(link(before, after, RADIUS).continued) == [(0, 1), (1, 2), (2, 0)]


def test_a_halved_cell_is_a_division_and_two_that_join_are_a_merge() -> None:
    whole, halves = rods((10, 18, 20, 50)), rods((10, 18, 19, 34), (12, 20, 36, 51))
    forward = link(whole, halves, RADIUS)
    assert (forward.continued, forward.divided, forward.merged) == ([], [(0, 0, 1)], [])
    backward = link(halves, whole, RADIUS)
    assert (backward.continued, backward.divided, backward.merged) == ([], [], [(0, 1, 0)])


def test_a_cell_that_leaves_and_one_that_arrives_are_not_linked() -> None:
    links = link(rods((10, 18, 2, 20)), rods((40, 48, 70, 95)), RADIUS)
    assert links == Links([], [], [])
    assert link(rods(), rods((1, 5, 1, 9)), RADIUS) == Links([], [], [])


def test_a_third_of_a_cell_beside_a_new_neighbour_is_no_division() -> None:
    before = rods((10, 18, 20, 50))
    after = rods((10, 18, 20, 50), (10, 18, 51, 57))
    links = link(before, after, RADIUS)
    assert links.continued == [(0, 0)]
    assert links.divided == []


# --- lineage ----------------------------------------------------------------------------------------------------


def lineage(*steps: tuple[int, Links]) -> Lineage:
    result = Lineage()
    for count, links in steps:
        result.add(count, links)
    return result


NONE = Links([], [], [])


def test_a_division_ends_the_mother_and_starts_two() -> None:
    tracks, frames = lineage((1, NONE), (1, Links([(0, 0)], [], [])), (2, Links([], [(0, 0, 1)], []))).finish()
    assert tracks == [Track(1, 0, 1, 0), Track(2, 2, 2, 1), Track(3, 2, 2, 1)]
    assert [row.tolist() for row in frames] == [[1], [1], [2, 3]]


def test_sisters_that_become_one_again_never_divided() -> None:
    made = lineage(
        (1, NONE), (2, Links([], [(0, 0, 1)], [])), (1, Links([], [], [(0, 1, 0)])), (1, Links([(0, 0)], [], []))
    )
    assert made.undone == 1
    tracks, frames = made.finish()
    assert tracks == [Track(1, 0, 3, 0)]
    assert [sorted(row.tolist()) for row in frames] == [[1], [1, 1], [1], [1]]


def test_old_sisters_are_strangers() -> None:
    both = Links([(0, 0), (1, 1)], [], [])
    made = lineage((1, NONE), (2, Links([], [(0, 0, 1)], [])), *[(2, both)] * 8)
    assert not made.sisters(2, 3, 9)
    assert made.sisters(2, 3, 2)


def test_a_mother_left_with_one_daughter_goes_on_as_that_daughter() -> None:
    made = lineage((1, NONE), (2, Links([], [(0, 0, 1)], [])), (2, Links([], [(0, 0, 1)], [])))
    # take the second daughter of the first division out, as a correction would
    made.objects[1][1] = made.objects[0][0] = 1
    del made.tracks[3]
    made.alias[3] = 1
    made.objects[1] = np.array([2])
    tracks, _ = made.finish()
    assert tracks == [Track(1, 0, 1, 0), Track(2, 2, 2, 1), Track(3, 2, 2, 1)]


@pytest.mark.parametrize(
    ("tracks", "frames", "fault"),
    [
        ([Track(1, 0, 1)], [[1], []], "not in every frame"),
        ([Track(1, 0, 0)], [[1], [2]], "without a track"),
        ([Track(1, 0, 0), Track(2, 2, 2, 1), Track(3, 2, 2, 1)], [[1], [], [2, 3]], "right after its mother"),
        ([Track(1, 0, 0), Track(2, 1, 1, 1)], [[1], [2]], "single daughter"),
    ],
)
def test_each_broken_rule_is_named(tracks: list[Track], frames: list[list[int]], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        check(tracks, [np.array(row, dtype=np.int64) for row in frames])


def test_lineage_files_survive_a_round_trip(tmp_path: Path) -> None:
    tracks = [Track(1, 0, 4), Track(2, 5, 9, 1), Track(3, 5, 7, 1)]
    write_lineage(tmp_path / "res_track.txt", tracks)
    assert (tmp_path / "res_track.txt").read_text() == "1 0 4 0\n2 5 9 1\n3 5 7 1\n"
    assert read_lineage(tmp_path / "res_track.txt") == tracks
    height = lineage_order(tracks)
    assert height[1] == pytest.approx((height[2] + height[3]) / 2)


# --- sequences --------------------------------------------------------------------------------------------------


def test_a_stack_is_written_as_one_series_with_its_scale(tmp_path: Path) -> None:
    frames = [np.full((6, 8), number, dtype=np.uint16) for number in range(5)]
    path = tmp_path / "00_RES.ome.tif"
    write_label_stack(path, iter(frames), (5, 6, 8), np.uint16, pixel_um=0.072, interval_seconds=60.0)
    with tifffile.TiffFile(path) as file:
        assert len(file.series) == 1
        assert file.series[0].shape == (5, 6, 8)
        assert file.series[0].axes == "TYX"
        assert file.is_ome
    np.testing.assert_array_equal(list(read_pages(path)), frames)


def test_frames_in_files_and_in_one_stack_are_both_found(tmp_path: Path) -> None:
    (tmp_path / "02").mkdir()
    for number in (0, 1, 2, 10):
        tifffile.imwrite(tmp_path / "02" / f"t{number}.tif", np.full((4, 5), number, dtype=np.uint8))
    (tmp_path / "02" / "t3.tif").write_bytes(b"not an image")
    tifffile.imwrite(tmp_path / "00.ome.tif", np.zeros((7, 4, 5), dtype=np.uint8))
    stack, folder = find_sequences(tmp_path)
    assert (stack.name, stack.length, stack.shape) == ("00", 7, (4, 5))
    assert (folder.name, folder.length) == ("02", 5)
    assert [path.name for path in folder.files] == ["t0.tif", "t1.tif", "t2.tif", "t3.tif", "t10.tif"]
    assert folder.frame(4).mean() == 10
    with pytest.raises(ValueError, match="TIFF"):
        folder.frame(3)


# --- parts of the colony pipeline -------------------------------------------------------------------------------


def test_polarity_is_seen() -> None:
    rng = np.random.default_rng(0)
    cell = np.zeros((80, 80))
    cell[30:38, 20:60] = 40
    noise = rng.normal(0, 2, cell.shape)
    assert is_dark([(100 - cell + noise).astype(np.float32)])
    assert not is_dark([(100 + cell + noise).astype(np.float32)])


def test_two_strangers_in_one_region_are_cut_along_their_old_outlines() -> None:
    before = rods((10, 18, 20, 50), (18, 26, 20, 50))
    joined = rods((10, 26, 20, 50))
    signal = np.ones(SHAPE, dtype=np.float32)
    parts = [before.labels == 1, before.labels == 2]
    cut = divide_region(joined.labels, signal, 1, parts)
    assert cut is not None
    np.testing.assert_array_equal(cut > 0, joined.labels > 0)
    assert np.unique(cut[10:18, 20:50]).size == np.unique(cut[18:26, 20:50]).size == 1
    assert divide_region(joined.labels, signal, 1, [parts[0], np.zeros(SHAPE, dtype=bool)]) is None


def test_small_holes_are_filled_and_gaps_between_cells_stay() -> None:
    mask = np.ones((30, 30), dtype=bool)
    mask[5, 5] = False
    mask[10:20, 10:20] = False
    filled = without_holes(mask, 20)
    assert filled[5, 5]
    assert not filled[15, 15]


def test_doubling_time_of_exponential_growth() -> None:
    counts = np.round(100 * 2 ** (np.arange(40) / 12)).astype(np.int64)
    found = doubling_frames(counts)
    assert found is not None
    assert found[0] == pytest.approx(12, rel=0.01)
    assert doubling_frames(np.full(20, 5)) is None
