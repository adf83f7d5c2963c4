"""The shared imaging model: hand-derived values, conservation, and files that are the same bytes twice."""

from __future__ import annotations

import math
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile

from tasks._optics import (
    Blob,
    Camera,
    Objective,
    blur,
    compete,
    debris,
    haze,
    oriented_field,
    render_points,
    rod_coordinates,
    rotation_2d,
    scatter,
    smooth_field,
    stream,
    uneven_light,
    wander,
    wide_blur,
    window,
    write_csv,
    write_imagej,
    write_ome,
    write_png,
    write_tiff,
)


def test_streams_repeat_by_name_and_are_independent() -> None:
    first = stream(5, "cells", 3).random(4)
    assert np.array_equal(first, stream(5, "cells", 3).random(4))
    for other in (stream(6, "cells", 3), stream(5, "cells", 4), stream(5, "nuclei", 3)):
        assert not np.any(first == other.random(4))
    assert stream(0, "pinned").integers(1_000_000) == PINNED, "demo data of all tasks would change"


PINNED = 992248


def test_point_spread_follows_the_paraxial_formula() -> None:
    objective = Objective(na=1.2, wavelength_nm=500.0, pixel_size_um=0.1, z_step_um=0.3, index=1.33)
    lateral = math.sqrt(2) * 0.5 / (2 * math.pi * 1.2) / 0.1  # 0.9378 px
    axial = 2 * math.sqrt(3) * 1.33 * 0.5 / (2 * math.pi * 1.44) / 0.3
    assert objective.sigma_px == pytest.approx((axial, lateral, lateral))
    confocal = Objective(na=1.2, wavelength_nm=500.0, pixel_size_um=0.1, confocal=True)
    assert confocal.sigma_px == pytest.approx((lateral / math.sqrt(2),) * 2)
    assert objective.defocused_px(0.0) == pytest.approx(lateral)
    assert objective.defocused_px(1.0) > objective.defocused_px(-0.5) > lateral


@pytest.mark.parametrize("shape", [(40, 50), (12, 30, 34)])
def test_points_keep_their_light_and_their_place(shape: tuple[int, ...]) -> None:
    place = np.array([length / 2 - 0.37 for length in shape])
    image = render_points(shape, [place], 250.0, 1.2)
    assert image.sum() == pytest.approx(250.0, rel=1e-4)
    for axis, grid in enumerate(np.indices(shape)):
        assert (grid * image).sum() / image.sum() == pytest.approx(place[axis], abs=1e-4)
        variance = ((grid - place[axis]) ** 2 * image).sum() / image.sum()
        assert variance == pytest.approx(1.2**2 + 1 / 12, rel=1e-3)  # the spread, and the pixel that collects it


def test_points_beyond_the_edge_shed_what_reaches_in() -> None:
    assert render_points((20, 20), [[-0.5, 10.0]], 8.0, 1.0).sum() == pytest.approx(4.0, rel=1e-3)
    assert render_points((20, 20), [[-30.0, 10.0]], 8.0, 1.0).sum() == 0.0
    assert render_points((20, 20), np.zeros((0, 2)), 8.0, 1.0).sum() == 0.0


@pytest.mark.parametrize("scale", [1.5, 6.0, (3.0, 9.0)])
def test_smooth_field_has_zero_mean_and_unit_variance(scale: float) -> None:
    field = smooth_field((500, 700), scale, stream(1, "field"))
    assert field.mean() == pytest.approx(0.0, abs=0.05)
    assert field.std() == pytest.approx(1.0, abs=0.06)
    volume = smooth_field((30, 60, 70), (2.0, 4.0, 4.0), stream(1, "volume"))
    assert volume.std() == pytest.approx(1.0, abs=0.08)


def test_smooth_field_varies_on_its_scale() -> None:
    def step(scale: float) -> float:
        return float(np.abs(np.diff(smooth_field((300, 300), scale, stream(2, "step")), axis=1)).mean())

    assert step(4.0) > 1.8 * step(9.0) > 3.5 * step(40.0)


def test_oriented_field_runs_along_its_angle() -> None:
    field = oriented_field((200, 260), 0.0, 8.0, 1.0, stream(3, "fibres"))
    assert np.abs(np.diff(field, axis=0)).mean() > 4 * np.abs(np.diff(field, axis=1)).mean()


def test_wide_blur_agrees_with_the_exact_one() -> None:
    image = np.zeros((260, 300))
    image[60:120, 100:220] = 1.0
    assert wide_blur(image, 25.0) == pytest.approx(blur(image, 25.0), abs=0.01)
    assert np.allclose(wide_blur(np.ones((33, 47)), 12.0), 1.0)


def test_light_and_background_are_positive_and_deterministic() -> None:
    light = uneven_light((200, 300), stream(4, "lamp"), falloff=0.3)
    assert 0.6 < light.min() < light.max() < 1.1
    assert haze((200, 300), stream(4, "haze"), 30.0, 50.0).min() > 0.0
    assert haze((400, 500), stream(4, "haze"), 30.0, 20.0).mean() == pytest.approx(30.0, rel=0.15)
    dirt = debris((100, 100), stream(4, "dirt"), 12)
    assert dirt.min() >= 0.0
    assert dirt.max() > 20.0
    assert np.array_equal(dirt, debris((100, 100), stream(4, "dirt"), 12))
    assert not debris((10, 10), stream(4, "dirt"), 0).any()


def test_a_smooth_blob_is_an_ellipsoid() -> None:
    disc = Blob.random(stream(5, "blob"), (30.0, 34.0), (12.0, 6.0), rotation_2d(0.4), roughness=0.0)
    place = disc.on((64, 64))
    assert place is not None
    assert (place[1] < 1.0).sum() == pytest.approx(math.pi * 12 * 6, rel=0.03)
    ball = Blob.random(stream(5, "ball"), (20.3, 20.1, 19.6), (9.0, 9.0, 9.0), np.eye(3), roughness=0.0)
    place = ball.on((41, 41, 41))
    assert place is not None
    assert (place[1] < 1.0).sum() == pytest.approx(4 / 3 * math.pi * 9**3, rel=0.02)


@pytest.mark.parametrize("roughness", [0.1, 0.3])
def test_a_rough_blob_stays_within_its_reach_and_is_star_convex(roughness: float) -> None:
    for number in range(20):
        blob = Blob.random(stream(6, number), (100.0, 100.0), (20.0, 14.0), rotation_2d(number), roughness)
        place = blob.on((200, 200), margin=1.4)
        assert place is not None
        where, rho = place
        y, x = np.ogrid[where]
        distance = np.hypot(y - 100, x - 100)
        assert distance[rho < 1.0].max() <= blob.reach
        way = np.array([0.6, 0.8])
        along = blob.rho([way[0] * np.arange(1.0, 40.0), way[1] * np.arange(1.0, 40.0)])
        assert np.allclose(along, along[0] * np.arange(1.0, 40.0))


def test_window_clips_and_vanishes_off_the_image() -> None:
    place = window((20, 30), (1.0, 29.0), 3.0)
    assert place is not None
    (rows, columns), (y, x) = place
    assert (rows, columns) == (slice(0, 5), slice(26, 30))
    assert (y.shape, x.shape) == ((5, 1), (1, 4))
    assert y[0, 0] == -1.0
    assert window((20, 30), (-9.0, 10.0), 3.0) is None


def test_touching_bodies_share_a_border_whatever_the_order() -> None:
    blobs = [Blob.random(stream(7, k), (20.0, 16.0 + 9.0 * k), (9.0, 8.0), rotation_2d(0.0)) for k in range(3)]
    results = []
    for order in ((0, 1, 2), (2, 0, 1)):
        labels, best = np.zeros((40, 50), int), np.full((40, 50), np.inf)
        for k in order:
            place = blobs[k].on(labels.shape)
            assert place is not None
            compete(labels, best, *place, k + 1)
        results.append(labels)
    assert np.array_equal(*results)
    assert set(np.unique(results[0])) == {0, 1, 2, 3}


def test_rod_coordinates_by_hand() -> None:
    y, x = np.array([0.0, 3.0, 0.0]), np.array([0.0, 2.0, 9.0])
    distance, along = rod_coordinates([y, x], (0.0, 5.0))
    assert distance == pytest.approx([0.0, 3.0, 4.0])
    assert along == pytest.approx([0.5, 0.7, 1.0])


def test_scattered_points_keep_their_distance() -> None:
    points = scatter(stream(8, "points"), 300, (0.0, 0.0), (100.0, 120.0), 9.0)
    gaps = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))[np.triu_indices(len(points), 1)]
    assert gaps.min() >= 9.0
    assert 60 < len(points) <= 300
    assert np.hypot(*np.diff(wander(stream(8, "path"), (5.0, 5.0), 0.3, 20.0, 0.05), axis=0).T) == pytest.approx(0.5)


def test_camera_adds_shot_and_read_noise_and_clips() -> None:
    camera = Camera(gain=2.0, offset=10.0, read_noise_e=3.0, bits=12, efficiency=0.5)
    grey = camera.expose(np.full((300, 300), 400.0), stream(9, "camera"))
    assert grey.dtype == np.uint16
    assert grey.mean() == pytest.approx(2.0 * 200.0 + 10.0, rel=0.005)
    assert grey.var() == pytest.approx(4.0 * (200.0 + 9.0), rel=0.05)
    assert camera.expose(np.full((20, 20), 1e6), stream(9, "bright")).min() == 4095
    dark = Camera(offset=0.0).expose(np.full((50, 50), -5.0), stream(9, "dark"))
    assert dark.dtype == np.uint8
    assert dark.min() == 0


def _write_all(folder: Path) -> dict[str, bytes]:
    rng = np.random.default_rng(1)
    grey, stack = rng.integers(0, 255, (20, 30), np.uint8), rng.integers(0, 999, (4, 20, 30)).astype(np.uint16)
    colour = rng.integers(0, 255, (20, 30, 3), np.uint8)
    write_tiff(folder / "grey.tif", grey)
    write_tiff(folder / "packed.tif", stack[0], compression="zlib")
    write_tiff(folder / "colour.tif", colour)
    write_imagej(folder / "hyper.tif", stack, "ZYX", pixel_size_um=0.2, z_step_um=0.5, interval_s=3.0)
    write_ome(folder / "movie.ome.tif", stack, "TYX", pixel_size_um=0.072, interval_s=60.0, compression="zlib")
    write_ome(folder / "c.ome.tif", stack.reshape(2, 2, 20, 30), "CZYX", z_step_um=0.3, channels=("DAPI", "GFP"))
    write_png(folder / "picture.png", colour)
    write_csv(folder / "table.csv", ("X", "Y"), [(1, 2), (0.5, 3.25)])
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_files_are_the_same_bytes_twice_and_read_back(tmp_path: Path) -> None:
    first, second = _write_all(tmp_path / "a"), _write_all(tmp_path / "b")
    assert first == second
    rng = np.random.default_rng(1)
    grey, stack = rng.integers(0, 255, (20, 30), np.uint8), rng.integers(0, 999, (4, 20, 30)).astype(np.uint16)
    folder = tmp_path / "a"
    assert np.array_equal(tifffile.imread(folder / "grey.tif"), grey)
    assert np.array_equal(tifffile.imread(folder / "packed.tif"), stack[0])
    assert imagecodecs.png_decode(first["picture.png"]).shape == (20, 30, 3)
    assert first["table.csv"] == b"X,Y\n1,2\n0.5,3.25\n"
    with tifffile.TiffFile(folder / "colour.tif") as tif:
        assert tif.pages.first.photometric == tifffile.PHOTOMETRIC.RGB
        assert "ImageDescription" not in tif.pages.first.tags
    with tifffile.TiffFile(folder / "hyper.tif") as tif:
        assert tif.imagej_metadata is not None
        assert tif.imagej_metadata["spacing"] == 0.5
        assert tif.series[0].axes == "ZYX"
    with tifffile.TiffFile(folder / "movie.ome.tif") as tif:
        assert (len(tif.pages), len(tif.series), tif.series[0].axes) == (4, 1, "TYX")
        assert tif.ome_metadata is not None
        for mark in ('PhysicalSizeX="0.072"', 'TimeIncrement="60.0"', 'TimeIncrementUnit="s"', 'SizeT="4"'):
            assert mark in tif.ome_metadata
        assert np.array_equal(tif.asarray(), stack)
    with tifffile.TiffFile(folder / "c.ome.tif") as tif:
        assert tif.ome_metadata is not None
        assert 'Name="DAPI"' in tif.ome_metadata
        assert 'PhysicalSizeZ="0.3"' in tif.ome_metadata
