"""Data rebuilt from small sources in the studies' own formats, fetched with the real pooch from a loopback server."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from biabench_plugin.data.cache import DataError
from biabench_plugin.data.reconstruct import RECIPES, REFUSALS, recipes, reconstruct, sources
from biabench_plugin.taskspec import load_tasks

ROOT = Path(__file__).resolve().parents[3]
TASKS = load_tasks(ROOT / "tasks")

pytestmark = pytest.mark.usefixtures("cache")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder that stands for every archive; the recipes' addresses lead to it."""
    root = tmp_path / "web"
    root.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in ("ZENODO", "BIOSTUDIES", "GITHUB_RAW", "BBBC"):
        monkeypatch.setattr(sources, name, f"http://127.0.0.1:{server.server_port}")
    yield root
    server.shutdown()
    server.server_close()


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def zenodo(web: Path, record: int, files: dict[str, bytes], damaged: str | None = None) -> None:
    """Offer a record: its list with MD5 digests, and its files."""
    listed = []
    for name, content in files.items():
        put(web / "files" / str(record) / name, content + (b"!" if name == damaged else b""))
        digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
        link = f"{sources.ZENODO}/files/{record}/{name}"
        listed.append({"key": name, "size": len(content), "checksum": f"md5:{digest}", "links": {"self": link}})
    put(web / "api" / "records" / str(record), json.dumps({"files": listed}).encode())


def zipped(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def tiff(array: Any) -> bytes:
    stream = io.BytesIO()
    tifffile.imwrite(stream, np.asarray(array), photometric="minisblack")
    return stream.getvalue()


def tree(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_every_task_can_be_rebuilt_or_says_why_not(biabench: Callable[..., Any]) -> None:
    assert set(RECIPES) | set(REFUSALS) == set(TASKS)
    assert not set(RECIPES) & set(REFUSALS)
    listed = biabench("reconstruct").output
    for slug, why in REFUSALS.items():
        assert f"no    {slug} cannot be rebuilt from its sources: {why}" in listed
        failed = biabench("reconstruct", slug)
        assert failed.exit_code == 1
        assert why in failed.output
    for slug in RECIPES:
        assert f"yes   {slug}: https://" in listed


# --- each recipe ------------------------------------------------------------------------------------------------------


def test_dna_paint(web: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = web / "Endesfelder-Lab" / "SMLMComputational" / "HEAD" / "Data"
    put(data / "DNAPAINT_substack.tiff", b"any bytes")
    put(data / "DNAPAINT_LocalizationList.txt", b"0 5.5 6.25 1000.0\n")
    with pytest.raises(DataError, match="expected 12492137 bytes, found 9; the source has changed"):
        reconstruct(TASKS["dna_paint"], tmp_path / "out")
    monkeypatch.setattr(recipes, "_PAINT_FILES", dict.fromkeys(recipes._PAINT_FILES))
    made = reconstruct(TASKS["dna_paint"], tmp_path / "out")
    assert (made.input / "DNAPAINT_substack.tiff").read_bytes() == b"any bytes"
    table = made.evaluation / "DNAPAINT_LocalizationList.txt"
    assert table.read_bytes() == b"frame x y intensity\n0 5.5 6.25 1000.0\n"  # 20 bytes more, as published
    record = json.loads((tmp_path / "out" / "reconstruction.json").read_text())
    assert record["sources"]["DNAPAINT_substack.tiff"] == hashlib.sha256(b"any bytes").hexdigest()
    assert record["license"] == TASKS["dna_paint"].source.license


# two cells; the first divides: outlines in SEG with numbers of their own, markers with track ids in TRA
OUTLINES = [
    [[7, 7, 7, 0, 9, 9]] * 3,
    [[3, 3, 0, 4, 4, 9]] * 3,
]
MARKERS = [
    [[0] * 6, [0, 1, 0, 0, 2, 0], [0] * 6],
    [[0] * 6, [0, 3, 0, 4, 0, 2], [0] * 6],
]
TRACKS = [
    [[1, 1, 1, 0, 2, 2]] * 3,
    [[3, 3, 0, 4, 4, 2]] * 3,
]
TABLE = b"1 0 0 0\n2 0 1 0\n3 1 1 1\n4 1 1 1\n"


def challenge(outlines: Any = OUTLINES, markers: Any = MARKERS) -> dict[str, bytes]:
    """Return the files of a sequence in the form of the Cell Tracking Challenge."""
    files = {"ctc_format/00_GT/TRA/man_track.txt": TABLE}
    for n, marks in enumerate(markers):
        files[f"ctc_format/00/t{n:03}.tif"] = tiff(np.full((3, 6), 10 * n, np.uint8))
        files[f"ctc_format/00_GT/TRA/man_track{n:03}.tif"] = tiff(np.array(marks, np.uint16))
        files[f"ctc_format/01/t{n:03}.tif"] = tiff(np.full((3, 6), 99, np.uint8))  # another sequence
    for n, shapes in enumerate(outlines):
        files[f"ctc_format/00_GT/SEG/man_seg{n:03}.tif"] = tiff(np.array(shapes, np.uint16))
    return files


@pytest.mark.parametrize("full_masks", [True, False])
def test_bacteria(full_masks: bool, web: Path, tmp_path: Path) -> None:
    files = challenge(outlines=(), markers=TRACKS) if full_masks else challenge()
    zenodo(web, 7260137, {"ctc_format.zip": zipped(files), "other.zip": zipped({})})
    made = reconstruct(TASKS["bacteria_tracking"], tmp_path / "out")
    with tifffile.TiffFile(made.input / "00.ome.tif") as movie:
        assert (movie.series[0].axes, movie.series[0].dtype, len(movie.pages)) == ("TYX", np.uint8, 2)
        assert 'PhysicalSizeX="0.072"' in str(movie.ome_metadata)
        assert 'TimeIncrement="60.0"' in str(movie.ome_metadata)
        assert movie.asarray()[:, 0, 0].tolist() == [0, 10]
    labels = tifffile.imread(made.evaluation / "00_GT.ome.tif")
    assert labels.dtype == np.uint16
    assert labels.tolist() == TRACKS
    assert (made.evaluation / "man_track.txt").read_bytes() == TABLE
    again = reconstruct(TASKS["bacteria_tracking"], tmp_path / "again")
    for name in ("input/00.ome.tif", "evaluation/00_GT.ome.tif"):
        assert (made.folder / name).read_bytes() == (again.folder / name).read_bytes()
    assert not (tmp_path / "cache" / "sources" / TASKS["bacteria_tracking"].dataset_id / "other.zip").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.pop("ctc_format/00/t000.tif"), "number 0 is missing"),
        (lambda f: f.pop("ctc_format/00/t001.tif"), "1 frames of sequence 00, but 2 of its track masks"),
        (lambda f: f.pop("ctc_format/00_GT/TRA/man_track.txt"), "man_track.txt is not there"),
        (lambda f: f.update({"ctc_format/00/t001.tif": b"II*"}), "frame 1: is not a readable TIFF"),
        (lambda f: f.update({"ctc_format/00/t001.tif": tiff(np.zeros((2, 6), "u1"))}), "frame 1 is uint8 (2, 6)"),
        (lambda f: f.update(challenge(markers=[np.zeros((3, 6)), MARKERS[1]])), "holds no track markers"),
        (lambda f: f.update(challenge(outlines=[np.ones((3, 6)), OUTLINES[1]])), "holds several track markers"),
    ],
)
def test_bacteria_sources_that_do_not_fit(change: Any, said: str, tmp_path: Path) -> None:
    files = challenge()
    change(files)
    put(tmp_path / "given" / "ctc_format.zip", zipped(files))
    with pytest.raises(DataError) as refused:
        reconstruct(TASKS["bacteria_tracking"], tmp_path / "out" / "task", tmp_path / "given")
    assert said in str(refused.value)
    assert list((tmp_path / "out").iterdir()) == []  # nothing is left of it


@pytest.mark.parametrize("packed", [True, False])
def test_brain_vessels(packed: bool, web: Path, tmp_path: Path) -> None:
    files = {f"{prefix}{name}": f"{prefix}{name}".encode() for name in recipes._VESSELS for prefix in ("", "Binary_")}
    offered = {"data.zip": zipped({f"x/{name}": content for name, content in files.items()})} if packed else files
    zenodo(web, 6025935, offered)
    made = reconstruct(TASKS["brain_vessels"], tmp_path / "out")
    assert tree(made.input) == set(recipes._VESSELS)
    assert tree(made.evaluation) == {f"Binary_{name}" for name in recipes._VESSELS}
    assert (made.evaluation / "Binary_control640_r_RA.tiff").read_bytes() == b"Binary_control640_r_RA.tiff"


def test_a_record_that_lacks_a_file(web: Path, tmp_path: Path) -> None:
    zenodo(web, 6025935, dict.fromkeys(recipes._VESSELS, b"x"))
    with pytest.raises(DataError, match=r"lists neither Binary_control204_r_RA\.tiff"):
        reconstruct(TASKS["brain_vessels"], tmp_path / "out")


def test_a_source_with_another_checksum_than_its_archive_states(web: Path, tmp_path: Path) -> None:
    files = {f"{prefix}{name}": b"x" for name in recipes._VESSELS for prefix in ("", "Binary_")}
    zenodo(web, 6025935, files, damaged="control608_r_RA.tiff")
    with pytest.raises(DataError, match=r"control608_r_RA\.tiff: .*hash"):
        reconstruct(TASKS["brain_vessels"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    kept = tmp_path / "cache" / "sources" / TASKS["brain_vessels"].dataset_id
    assert "control608_r_RA.tiff" not in tree(kept)


def test_stitching_says_what_no_archive_holds(web: Path, tmp_path: Path) -> None:
    names = recipes._MOSAIC_FILES
    zenodo(web, 44884, {names["input"]: b"tiles", names["evaluation"]: b"canvas", "pure_wbc.lsm": b"not wanted"})
    made = reconstruct(TASKS["tile_stitching"], tmp_path / "out")
    assert tree(made.input) == {names["input"]}
    assert tree(made.evaluation) == {names["evaluation"]}
    assert "reference_table_1.csv is missing" in made.differences[0]


def test_nfkb(web: Path, tmp_path: Path) -> None:
    wells = [(row, column) for row in "ABCDEFGH" for column in range(1, 13)]
    images = {
        f"Channel {channel}-{n:02}-{row}-{column:02}-00.Bmp": f"{channel}{row}{column}".encode()
        for channel in (1, 2)
        for n, (row, column) in enumerate(wells, 1)
    }
    packed = zipped({f"BBBC014_v1_images/{name}": content for name, content in images.items()})
    for name, content in zip(recipes._PLATE_FILES, (packed, b"DESCRIPTION\n", b"row,column\n"), strict=True):
        put(web / "BBBC014" / name, content)
    made = reconstruct(TASKS["nfkb_translocation"], tmp_path / "out")
    assert tree(made.input) == {*images, *recipes._PLATE_FILES}
    assert (made.input / "Channel 2-96-H-12-00.Bmp").read_bytes() == b"2H12"
    assert made.evaluation.is_dir()
    images.popitem()
    put(tmp_path / "given" / recipes._PLATE_FILES[0], zipped(images))
    for name in recipes._PLATE_FILES[1:]:
        put(tmp_path / "given" / name, b"x")
    with pytest.raises(DataError, match="191 images of the plate; expected 2 channels of 96 wells"):
        reconstruct(TASKS["nfkb_translocation"], tmp_path / "less", tmp_path / "given")


def test_puncta_from_a_listed_web_folder(web: Path, tmp_path: Path) -> None:
    study = web / "S-BIAD" / "556" / "S-BIAD1556" / "Files" / "Point_Mutants"
    name = "08172023_HEK_ZFTA_Mutants.sld - 08172023_ZFTA_RELA_WT - Position 1.tif"
    for condition in recipes._CONDITIONS:
        put(study / "Raw_Tiff" / condition / name, condition.encode())
        for part in ("cell_quants", "puncta_quants"):
            put(study / "Analysis_Results" / part / condition / f"{name}_trimmed.csv", b"x\n")
    put(study / "Raw_Tiff" / "08172023_other" / name, b"not wanted")
    put(study / "Analysis_Results" / "cell_quants.csv", b"condition\n")
    put(study / "Analysis_Results" / "notes.md", b"not wanted")
    made = reconstruct(TASKS["oncogenic_puncta"], tmp_path / "out")
    assert tree(made.input) == {f"{condition}/{name}" for condition in recipes._CONDITIONS}
    assert (made.input / recipes._CONDITIONS[1] / name).read_bytes() == recipes._CONDITIONS[1].encode()
    assert tree(made.evaluation) == {"cell_quants.csv"} | {
        f"{part}/{condition}/{name}_trimmed.csv"
        for part in ("cell_quants", "puncta_quants")
        for condition in recipes._CONDITIONS
    }


def test_microglia_takes_what_was_downloaded_by_hand(tmp_path: Path) -> None:
    task = TASKS["microglia"]
    with pytest.raises(
        DataError, match=r"download them from https://bbbc\.broadinstitute\.org/BBBC054/ and say --from"
    ):
        reconstruct(task, tmp_path / "out")
    given = tmp_path / "given"
    for n in range(12):
        put(given / "images" / "Replicate 1" / f"IMG_20x_{n}.tif", b"%d" % n)
        put(given / "images" / "Replicate 2" / f"IMG_20x_{n}.tif", b"other")
    put(given / "images" / "Replicate 1" / "filelist.txt", b"IMG_20x_0.tif\n")
    put(
        given / "annotations.zip", zipped({"a/Replicate1annotation.csv": b"index\n", "a/Replicate2annotation.csv": b""})
    )
    made = reconstruct(task, tmp_path / "out", given)
    frames = {f"extracted_data/Replicate 1/IMG_20x_{n}.tif" for n in range(12)}
    assert tree(made.input) == frames | {"extracted_data/Replicate 1/filelist.txt"}
    assert (made.input / "extracted_data/Replicate 1/IMG_20x_11.tif").read_bytes() == b"11"
    assert tree(made.evaluation) == {"Replicate1annotation.csv"}


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_checks_what_it_built_and_refuses_to_overwrite(
    tmp_path: Path, biabench: Callable[..., Any]
) -> None:
    rng = np.random.default_rng(0)
    given, into = tmp_path / "given", tmp_path / "rebuilt"
    tifffile.imwrite(given.mkdir() or given / "DNAPAINT_substack.tiff", np.ones((300, 144, 144), np.uint16))
    rows = [
        f"{n % 300} {12 + 20 * (n // 300)}.25 {rng.uniform(10, 130):.2f} {rng.uniform(1e4, 2e5):.1f}"
        for n in range(1723)
    ]
    (given / "DNAPAINT_LocalizationList.txt").write_text("\n".join(rows) + "\n")
    done = biabench("reconstruct", "dna_paint", "--from", given, "--into", into)
    assert done.exit_code == 0, done.output
    assert "dna_paint replay: outcome 1.0000" in done.output
    assert f"--dataset={into}" in done.output
    again = biabench("reconstruct", "dna_paint", "--from", given, "--into", into)
    assert again.exit_code == 1
    assert "exists already" in again.output
    assert biabench("verify", "--deep", "--in", into).exit_code == 0

    (given / "DNAPAINT_LocalizationList.txt").write_text("\n".join(rows[:-1]) + "\n")
    failed = biabench("reconstruct", "dna_paint", "--from", given, "--into", tmp_path / "other")
    assert failed.exit_code == 1
    assert "expected 1723 rows, found 1722" in failed.output


def test_no_network(tmp_path: Path, biabench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ZENODO", "BBBC"):
        monkeypatch.setattr(sources, name, "http://127.0.0.1:9")
    monkeypatch.setattr("pooch.core.time.sleep", lambda _: None)
    for slug in ("brain_vessels", "nfkb_translocation"):
        failed = biabench("reconstruct", slug, "--into", tmp_path / "x")
        assert failed.exit_code == 1
        assert "http://127.0.0.1:9/" in failed.stderr
        assert "Traceback" not in failed.output
