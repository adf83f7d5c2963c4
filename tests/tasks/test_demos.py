"""Demo data: same bytes per seed, the published layout, truth without contradictions, and the cases that are hard."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from scipy import ndimage

SLUGS = ("bacteria_tracking", "cell_counting", "hela_segmentation", "histology_nuclei")

# a small instance of each simulator, to run it several times
SMALL: dict[str, dict[str, Any]] = {
    "bacteria_tracking": {"FRAMES": 7},
    "cell_counting": {"SHAPE": (300, 400), "CELLS_PER_FIELD": ((9, 12),)},
    "hela_segmentation": {"SHAPE": (180, 240), "CELLS_PER_IMAGE": (9,)},
    "histology_nuclei": {"SHAPE": (220, 240), "PER_ORGAN": 1},
}


def _small(module: ModuleType, slug: str, folder: Path, seed: int) -> Path:
    for name, value in SMALL[slug].items():
        assert hasattr(module, name)
        setattr(module, name, value)
    module.make(folder, seed)
    return folder


@pytest.mark.parametrize("slug", SLUGS)
def test_a_seed_gives_the_same_bytes_and_another_seed_other_images(
    slug: str, load_simulator: Any, digests: Any, tmp_path: Path
) -> None:
    first = digests(_small(load_simulator(slug), slug, tmp_path / "a", 3))
    np.random.seed(99)  # noqa: NPY002 - global state must not matter
    second = digests(_small(load_simulator(slug), slug, tmp_path / "b", 3))
    other = digests(_small(load_simulator(slug), slug, tmp_path / "c", 4))
    assert first == second
    assert set(first) == set(other)
    images = [name for name in first if name.startswith("input/")]
    assert images
    assert all(first[name] != other[name] for name in images)


@pytest.mark.full
@pytest.mark.parametrize("seed", [0, 11, 2**31])
@pytest.mark.parametrize("slug", SLUGS)
def test_full_size_is_the_same_bytes_twice(
    slug: str, seed: int, load_simulator: Any, digests: Any, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        load_simulator(slug).make(tmp_path / name, seed)
    assert digests(tmp_path / "a") == digests(tmp_path / "b")


@pytest.mark.parametrize("slug", SLUGS)
def test_size_stays_small(slug: str, demo: Any) -> None:
    data = demo(slug)
    assert sum(path.stat().st_size for path in data.folder.rglob("*") if path.is_file()) < 15e6


@pytest.mark.parametrize("slug", SLUGS)
def test_only_the_published_folders_and_no_hidden_files(slug: str, demo: Any) -> None:
    data = demo(slug)
    assert {path.name for path in data.folder.iterdir()} == {"input", "evaluation"}
    assert not [path for path in data.folder.rglob("*") if path.name.startswith(".") or path.is_symlink()]


@pytest.mark.parametrize("slug", SLUGS)
def test_metadata_of_the_input_names_neither_source_nor_tool(slug: str, demo: Any) -> None:
    for path in demo(slug).input.iterdir():
        head = path.read_bytes()[:4096].lower()
        for word in (b"biabench", b"simulat", b"toiam", b"helacytonuc", b"nuinsseg", b"cellfmcount"):
            assert word not in head


def _objects_are_whole(labels: NDArray[np.integer]) -> None:
    """Labels run from 1 without gaps and every object is one connected piece."""
    values = np.unique(labels[labels > 0])
    assert np.array_equal(values, np.arange(1, len(values) + 1))
    for value, where in enumerate(ndimage.find_objects(labels), start=1):
        assert ndimage.label(labels[where] == value)[1] == 1, f"label {value} is in pieces"


def _touching_pairs(labels: NDArray[np.integer]) -> int:
    """Number of pairs of labels that share an edge."""
    pairs = set()
    for a, b in ((labels[1:], labels[:-1]), (labels[:, 1:], labels[:, :-1])):
        meet = (a != b) & (a > 0) & (b > 0)
        pairs |= {tuple(sorted(pair)) for pair in zip(a[meet].tolist(), b[meet].tolist(), strict=True)}
    return len(pairs)


def _at_border(labels: NDArray[np.integer]) -> int:
    edge = np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]])
    return len(np.unique(edge[edge > 0]))


# HeLa ----------------------------------------------------------------------------------------------------------------


def _hela(data: Any) -> list[tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]]:
    return [
        (
            tifffile.imread(path),
            tifffile.imread(data.evaluation / "nuclei_masks" / path.name),
            tifffile.imread(data.evaluation / "cytoplasm_masks" / path.name),
        )
        for path in sorted(data.input.iterdir())
    ]


def test_hela_layout_is_the_published_one(demo: Any) -> None:
    data = demo("hela_segmentation")
    names = {path.name for path in data.input.iterdir()}
    assert len(names) >= 5
    assert all(re.fullmatch(r"24\d\d\.tif", name) for name in names)
    for folder in ("nuclei_masks", "cytoplasm_masks"):
        assert {path.name for path in (data.evaluation / folder).iterdir()} == names
    for path in data.input.iterdir():
        with tifffile.TiffFile(path) as tif:
            page = tif.pages.first
            assert (page.shape, page.dtype, page.compression) == ((520, 696, 3), np.uint8, 1)
            assert page.photometric == tifffile.PHOTOMETRIC.RGB
    for path in data.evaluation.rglob("*.tif"):
        with tifffile.TiffFile(path) as tif:
            page = tif.pages.first
            assert (page.shape, page.dtype, page.compression) == ((520, 696), np.uint8, 1)


def test_hela_ids_link_every_nucleus_to_the_cell_around_it(demo: Any) -> None:
    for _, nuclei, cells in _hela(demo("hela_segmentation")):
        _objects_are_whole(nuclei)
        _objects_are_whole(cells)
        assert nuclei.max() == cells.max() <= 255
        assert np.array_equal(cells[nuclei > 0], nuclei[nuclei > 0])  # the cell contains its nucleus
        areas = np.bincount(nuclei.ravel()) / np.bincount(cells.ravel())
        assert np.all(areas[1:] < 0.9)


def test_hela_hard_cases_are_there(demo: Any) -> None:
    images = _hela(demo("hela_segmentation"))
    assert sum(_touching_pairs(cells) for _, _, cells in images) > 40
    assert sum(_touching_pairs(nuclei) for _, nuclei, _ in images) >= 3
    assert sum(_at_border(cells) for _, _, cells in images) > 10
    assert sum(int((image == 255).sum()) for image, _, _ in images) > 100  # clipping
    assert max(int(image[..., 1].max()) for image, _, _ in images) < 10  # green is empty
    solidity = []
    for _, nuclei, _ in images:
        for value, where in enumerate(ndimage.find_objects(nuclei), start=1):
            shape = nuclei[where] == value
            solidity.append(shape.sum() / shape.size)
    assert min(solidity) < 0.55 < float(np.median(solidity))  # lobed or plate-like against round
    brightness = [
        [float(np.median(image[..., 0][cells == value])) for value in range(1, int(cells.max()) + 1)]
        for image, _, cells in images
    ]
    assert all(np.percentile(one, 90) > 2.0 * np.percentile(one, 10) for one in brightness)


def test_hela_channels_show_their_compartment(demo: Any) -> None:
    for image, nuclei, cells in _hela(demo("hela_segmentation")):
        assert image[..., 2][nuclei > 0].mean() > 3.0 * image[..., 2][cells == 0].mean()
        assert image[..., 0][cells > 0].mean() > 1.8 * image[..., 0][cells == 0].mean()


# H&E -----------------------------------------------------------------------------------------------------------------


def _histology(data: Any) -> list[tuple[str, NDArray[np.uint8], NDArray[np.uint16]]]:
    return [
        (path.stem, imagecodecs.png_decode(path.read_bytes()), tifffile.imread(data.evaluation / f"{path.stem}.tif"))
        for path in sorted(data.input.iterdir())
    ]


def test_histology_layout_is_the_published_one(demo: Any) -> None:
    data = demo("histology_nuclei")
    stems = {path.stem for path in data.input.iterdir()}
    assert all(re.fullmatch(r"human_(kidney|pancreas)_\d\d\.png", path.name) for path in data.input.iterdir())
    assert {path.name for path in data.evaluation.iterdir()} == {f"{stem}.tif" for stem in stems}
    assert Counter(stem.split("_")[1] for stem in stems) == {"kidney": 3, "pancreas": 3}
    for _, image, labels in _histology(data):
        assert (image.shape, image.dtype) == ((512, 512, 3), np.uint8)
        assert (labels.shape, labels.dtype) == ((512, 512), np.uint16)
    with tifffile.TiffFile(next(data.evaluation.iterdir())) as tif:
        assert tif.pages.first.compression == tifffile.COMPRESSION.ADOBE_DEFLATE


def test_histology_nuclei_are_whole_and_darker_than_the_tissue(demo: Any) -> None:
    for _, image, labels in _histology(demo("histology_nuclei")):
        _objects_are_whole(labels)
        assert np.bincount(labels.ravel())[1:].min() >= 45
        assert image[labels > 0][:, 0].mean() < image[labels == 0][:, 0].mean() - 30  # red light: hematoxylin
        assert image[..., 1].mean() < image[..., 2].mean() < 250  # pink, not grey


def test_histology_hard_cases_are_there(demo: Any) -> None:
    images = _histology(demo("histology_nuclei"))
    assert all(_touching_pairs(labels) >= 5 for _, _, labels in images)
    assert all(_at_border(labels) >= 3 for _, _, labels in images)
    assert all(labels.max() > 80 for _, _, labels in images)
    areas = np.concatenate([np.bincount(labels.ravel())[1:] for _, _, labels in images])
    assert np.percentile(areas, 95) > 2.5 * np.percentile(areas, 10)
    colours = np.array([image.reshape(-1, 3).mean(axis=0) for _, image, _ in images])
    assert np.all(np.ptp(colours, axis=0) > 3.0)  # slides differ in stain
    contrasts = []
    for _, image, labels in images:
        means = ndimage.mean(image[..., 0].astype(float), labels, np.arange(1, labels.max() + 1))
        contrasts.append(np.percentile(means, 95) - np.percentile(means, 5))
    assert min(contrasts) > 50.0  # pale next to dark nuclei


# counting ------------------------------------------------------------------------------------------------------------


def _counting(data: Any) -> list[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    pairs = []
    for path in sorted(data.input.iterdir()):
        lines = (data.evaluation / f"{path.stem}.csv").read_text().splitlines()
        assert lines[0] == "X,Y"
        points = np.array([line.split(",") for line in lines[1:]], np.int64).reshape(-1, 2)
        pairs.append((tifffile.imread(path), points))
    return pairs


def test_counting_layout_is_the_published_one(demo: Any) -> None:
    data = demo("cell_counting")
    count = len(list(data.input.iterdir()))
    assert {path.name for path in data.input.iterdir()} == {f"{n}.tiff" for n in range(count)}
    assert {path.name for path in data.evaluation.iterdir()} == {f"{n}.csv" for n in range(count)}
    for path in data.input.iterdir():
        with tifffile.TiffFile(path) as tif:
            page = tif.pages.first
            assert (page.shape, page.dtype, page.compression) == ((1200, 1600), np.uint8, 1)


def test_counting_has_empty_sparse_and_dense_fields(demo: Any) -> None:
    counts = sorted(len(points) for _, points in _counting(demo("cell_counting")))
    assert counts[:2] == [0, 0]
    assert 1 <= counts[2] <= 2
    assert counts[-1] >= 120
    assert len(set(counts)) >= 5


def test_counting_points_lie_on_cells_inside_the_image(demo: Any) -> None:
    for image, points in _counting(demo("cell_counting")):
        assert np.all((points >= 0) & (points < [1600, 1200]))
        assert len(np.unique(points, axis=0)) == len(points)
        if not len(points):
            continue
        smooth = ndimage.gaussian_filter(image.astype(float), 2.0)
        ground = ndimage.zoom(ndimage.median_filter(smooth[::8, ::8], 15), 8, order=1)
        contrast = (smooth - ground)[points[:, 1], points[:, 0]]
        assert np.mean(contrast > 3.0) > 0.95


def test_counting_empty_fields_have_no_cell_but_distractors(demo: Any) -> None:
    for image, points in _counting(demo("cell_counting")):
        smooth = ndimage.gaussian_filter(image, 1.5, output=float)
        bodies = ndimage.grey_opening(smooth, size=(9, 9))  # specks and fibres are narrower, glows far wider
        largest = (bodies - ndimage.grey_opening(bodies, size=(31, 31))).max()
        if len(points):
            assert largest > 20.0
        else:
            assert largest < 10.0
            assert image.max() > np.median(image) + 40  # specks
            assert smooth.max() > 1.3 * np.median(smooth)  # glows


def test_counting_colonies_touch_and_some_cells_lie_at_the_edge(demo: Any) -> None:
    fields = [points for _, points in _counting(demo("cell_counting")) if len(points) > 30]
    close = 0
    for points in fields:
        gaps = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1).astype(float))
        close += int(((gaps > 0) & (gaps < 18)).any(axis=1).sum())
    assert close > 20  # diameters are 13 to 21 px
    everything = np.concatenate(fields)
    assert np.minimum(everything, [1599, 1199] - everything).min() < 30


# bacteria ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def movie(demo: Any) -> tuple[NDArray[np.uint8], NDArray[np.uint16], NDArray[np.int64]]:
    data = demo("bacteria_tracking")
    table = np.loadtxt(data.evaluation / "man_track.txt", dtype=np.int64)
    return tifffile.imread(data.input / "00.ome.tif"), tifffile.imread(data.evaluation / "00_GT.ome.tif"), table


def test_bacteria_layout_and_metadata_are_the_published_ones(demo: Any) -> None:
    data = demo("bacteria_tracking")
    assert [path.name for path in data.input.iterdir()] == ["00.ome.tif"]
    assert {path.name for path in data.evaluation.iterdir()} == {"00_GT.ome.tif", "man_track.txt"}
    for path, dtype in ((data.input / "00.ome.tif", np.uint8), (data.evaluation / "00_GT.ome.tif", np.uint16)):
        with tifffile.TiffFile(path) as tif:
            assert tif.is_ome
            assert len(tif.series) == 1
            assert (tif.series[0].axes, tif.series[0].dtype, len(tif.pages)) == ("TYX", dtype, len(tif.series[0].pages))
            assert tif.ome_metadata is not None
            assert 'PhysicalSizeX="0.072"' in tif.ome_metadata
            assert 'TimeIncrement="60.0"' in tif.ome_metadata
    assert re.fullmatch(r"(\d+ \d+ \d+ \d+\n)+", (data.evaluation / "man_track.txt").read_text())


def test_bacteria_table_and_masks_say_the_same(movie: Any) -> None:
    images, labels, table = movie
    assert images.shape == labels.shape
    assert len(np.unique(table[:, 0])) == len(table)
    rows = {int(row[0]): row for row in table}
    frames: dict[int, list[int]] = {}
    for frame, image in enumerate(labels):
        for value in np.unique(image[image > 0]).tolist():
            frames.setdefault(value, []).append(frame)
    assert set(frames) == set(rows)
    for track, seen in frames.items():
        assert seen == list(range(rows[track][1], rows[track][2] + 1)), f"track {track} has a gap"


def test_bacteria_lineage_is_valid(movie: Any) -> None:
    _, labels, table = movie
    rows = {int(row[0]): row for row in table}
    children = Counter(table[table[:, 3] > 0, 3].tolist())
    assert max(children.values()) == 2
    for track, first, _, parent in table:
        if parent:
            assert parent != track
            assert rows[int(parent)][2] == first - 1
    assert sum(count == 2 for count in children.values()) > 40  # divisions
    for mother in [m for m, count in children.items() if count == 2][:30]:
        end = int(rows[mother][2])
        before = (labels[end] == mother).sum()
        after = sum((labels[end + 1] == row[0]).sum() for row in table if row[3] == mother)
        if _at_border(np.where(labels[end] == mother, 1, 0)) == 0:
            assert 0.75 * before < after < 1.35 * before  # the daughters are what the mother was


def test_bacteria_objects_are_whole_and_no_slivers(movie: Any) -> None:
    _, labels, _ = movie
    for frame in labels[:: len(labels) // 6]:
        for value, where in enumerate(ndimage.find_objects(frame), start=1):
            if where is not None:
                assert ndimage.label(frame[where] == value)[1] == 1
                assert (frame[where] == value).sum() >= 40


def test_bacteria_hard_cases_are_there(movie: Any) -> None:
    images, labels, table = movie
    last = len(labels) - 1
    counts = [len(np.unique(frame)) - 1 for frame in labels]
    assert 2 <= counts[0] <= 4
    assert counts[-1] > 60
    mothers = set(table[:, 3].tolist())
    exits = [row for row in table if row[2] < last and row[0] not in mothers]
    assert exits
    for track, _, end, _ in exits:
        assert _at_border(np.where(labels[end] == track, 1, 0)) > 0 or _near_border(labels[end] == track)
    assert _touching_pairs(labels[-1]) > 30
    inside, outside = images[-1][labels[-1] > 0].mean(), images[-1][labels[-1] == 0].mean()
    assert inside < 0.85 * outside  # dark bodies
    first = images[0].astype(float) / ndimage.gaussian_filter(images[0].astype(float), 25.0)
    ring = ndimage.binary_dilation(labels[0] > 0, iterations=6) & ~ndimage.binary_dilation(labels[0] > 0, iterations=3)
    far = ~ndimage.binary_dilation(labels[0] > 0, iterations=18)
    assert first[ring].mean() > first[far].mean() + 0.01  # bright halo


def _near_border(mask: NDArray[np.bool_]) -> bool:
    return bool(ndimage.binary_dilation(mask, iterations=14)[[0, -1]].any()) or bool(
        ndimage.binary_dilation(mask, iterations=14)[:, [0, -1]].any()
    )


def test_bacteria_move_less_than_a_width_between_frames_and_snap(movie: Any) -> None:
    _, labels, table = movie
    moves = []
    for before, after in pairwise(labels):
        common = np.intersect1d(before[before > 0], after[after > 0])
        a = np.array(ndimage.center_of_mass(before > 0, before, common))
        b = np.array(ndimage.center_of_mass(after > 0, after, common))
        moves.append(np.hypot(*(a - b).T))
    everything = np.concatenate(moves)
    assert np.percentile(everything, 99) < 12.0
    assert np.median(everything) < 4.0
    angles = []
    for mother in {int(m) for m in table[:, 3] if m}:
        daughters = table[table[:, 3] == mother]
        if len(daughters) == 2:
            frame = labels[int(daughters[0][1])]
            headings = [_heading(frame == track) for track in daughters[:, 0]]
            bend = abs(headings[0] - headings[1]) % np.pi
            angles.append(min(bend, np.pi - bend))
    assert np.percentile(angles, 75) > 0.3  # V shapes
    assert np.percentile(angles, 10) < 0.2  # and straight pairs


def _heading(mask: NDArray[np.bool_]) -> float:
    y, x = np.nonzero(mask)
    values, vectors = np.linalg.eigh(np.cov(np.stack([y, x])))
    return float(np.arctan2(vectors[0, np.argmax(values)], vectors[1, np.argmax(values)]))


def test_an_object_kind_more_leaves_the_truth_as_it_was(load_simulator: Any, tmp_path: Path) -> None:
    plain = load_simulator("cell_counting")
    _small(plain, "cell_counting", tmp_path / "a", 5)
    cleaner = load_simulator("cell_counting")
    no_dirt: Callable[..., NDArray[np.float64]] = lambda shape, *_: np.zeros(shape)  # noqa: E731
    cleaner.debris = no_dirt
    _small(cleaner, "cell_counting", tmp_path / "b", 5)
    for path in (tmp_path / "a" / "evaluation").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / "evaluation" / path.name).read_bytes()
    assert (tmp_path / "a/input/0.tiff").read_bytes() != (tmp_path / "b/input/0.tiff").read_bytes()
