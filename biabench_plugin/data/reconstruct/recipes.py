"""How each task's data are made of its sources, and why some cannot be.

What a source holds is known from the study's archive and the published data's own description. Where the choice, the
names or the numbers of the published data are not recorded in public, nothing is guessed: the task is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from biabench_plugin.data.cache import DataError
from biabench_plugin.data.reconstruct import sources
from biabench_plugin.data.reconstruct.convert import frames_to_ome, label_frames
from biabench_plugin.data.reconstruct.sources import Remote, Say, Tree


@dataclass(frozen=True)
class Recipe:
    """How a task is rebuilt.

    Attributes
    ----------
    home
        Where a person finds the sources.
    megabytes
        What has to be downloaded, roughly.
    download
        Fills a folder with the sources; ``None`` where the files' addresses are not known.
    build
        Writes ``input`` and ``evaluation`` below a folder.
    differences
        In what the result is known to differ from the published data.
    """

    home: str
    megabytes: float
    download: Callable[[Path, Say], None] | None
    build: Callable[[Tree, Path], None]
    differences: tuple[str, ...] = ()


# --- DNA-PAINT: two files of a repository ----------------------------------------------------------------------------

_PAINT_FILES = {"DNAPAINT_substack.tiff": 12_492_137, "DNAPAINT_LocalizationList.txt": 42_339}


def _paint_download(folder: Path, say: Say) -> None:
    base = f"{sources.GITHUB_RAW}/Endesfelder-Lab/SMLMComputational/HEAD/Data"
    sources.download([Remote(name, f"{base}/{name}", bytes=size) for name, size in _PAINT_FILES.items()], folder, say)


def _paint_build(tree: Tree, folder: Path) -> None:
    stack = "DNAPAINT_substack.tiff"
    tree.one(r"DNAPAINT_substack\.tiff", stack).copy(folder / "input" / stack)
    rows = tree.one(r"DNAPAINT_LocalizationList\.txt", "DNAPAINT_LocalizationList.txt").read()
    header = b"frame x y intensity\n"
    (folder / "evaluation").mkdir()
    content = rows if rows.startswith(header) else header + rows
    (folder / "evaluation" / "DNAPAINT_LocalizationList.txt").write_bytes(content)


# --- NF-kB: the plate of BBBC014 -------------------------------------------------------------------------------------

_PLATE_FILES = ("BBBC014_v1_images.zip", "BBBC014_v1_platemap_all.txt", "BBBC014_v1_platemap_dosekey.csv")


def _plate_download(folder: Path, say: Say) -> None:
    sources.download([Remote(name, f"{sources.BBBC}/BBBC014/{name}") for name in _PLATE_FILES], folder, say)


def _plate_build(tree: Tree, folder: Path) -> None:
    for name in _PLATE_FILES:
        tree.one(name.replace(".", r"\."), name).copy(folder / "input" / name)
    images = tree.find(r"(Channel [12]-\d\d-[A-H]-\d\d-00\.Bmp)")
    if len(images) != 192:
        raise DataError(f"{tree.folder}: {len(images)} images of the plate; expected 2 channels of 96 wells")
    for image in images:
        image.copy(folder / "input" / image.groups[0])


# --- bacteria: a sequence in the form of the Cell Tracking Challenge -------------------------------------------------


def _bacteria_download(folder: Path, say: Say) -> None:
    _from_zenodo(7260137, ("ctc_format.zip",), folder, say)


def _bacteria_build(tree: Tree, folder: Path) -> None:
    frames = _numbered(tree, r"00/t(\d+)\.tiff?", "frames 00/t000.tif, …")
    tracks = _numbered(tree, r"00_GT/TRA/man_track(\d+)\.tiff?", "00_GT/TRA/man_track000.tif, …")
    shapes = {int(entry.groups[0]): entry for entry in tree.find(r"00_GT/SEG/man_seg_?(\d+)\.tiff?")}
    if len(frames) != len(tracks):
        raise DataError(f"{tree.folder}: {len(frames)} frames of sequence 00, but {len(tracks)} of its track masks")
    table = tree.one(r"00_GT/TRA/man_track\.txt", "00_GT/TRA/man_track.txt")
    frames_to_ome(folder / "input" / "00.ome.tif", (entry.read() for entry in frames), len(frames))
    labels = label_frames(
        (entry.read() for entry in tracks), (shapes[n].read() if n in shapes else None for n in range(len(tracks)))
    )
    frames_to_ome(folder / "evaluation" / "00_GT.ome.tif", labels, len(tracks))
    table.copy(folder / "evaluation" / "man_track.txt")


def _numbered(tree: Tree, expression: str, what: str) -> list[sources.Entry]:
    """Return entries in the order of their number, which must run from 0 without a gap."""
    found = sorted(tree.find(expression), key=lambda entry: int(entry.groups[0]))
    if not found:
        raise DataError(f"{tree.folder}: {what} are not there, nor inside a zip archive in it")
    numbers = [int(entry.groups[0]) for entry in found]
    if numbers != list(range(len(found))):
        lacking = sorted(set(range(numbers[-1] + 1)) - set(numbers))
        raise DataError(
            f"{tree.folder}: {what}: number {lacking[0] if lacking else numbers} is missing or occurs twice"
        )
    return found


# --- brain vessels: six volumes and their masks ----------------------------------------------------------------------

_ANIMALS = (204, 218, 608, 640, 641, 642)
_VESSELS = tuple(f"control{animal}_r_RA.tiff" for animal in _ANIMALS)


def _vessels_download(folder: Path, say: Say) -> None:
    _from_zenodo(6025935, (*_VESSELS, *(f"Binary_{name}" for name in _VESSELS)), folder, say)


def _vessels_build(tree: Tree, folder: Path) -> None:
    for name in _VESSELS:
        for part, wanted in (("input", name), ("evaluation", f"Binary_{name}")):
            tree.one(wanted.replace(".tiff", r"\.tiff?"), wanted).copy(folder / part / wanted)


# --- stitching: a mosaic and its authors' own stitched stack ---------------------------------------------------------

_MOSAIC = "day15_1_6_wbc_wbca1_mcf7_dapi_bodipy_panck_cd45_zstack_8x8"
_MOSAIC_FILES = {"input": f"{_MOSAIC}.lsm", "evaluation": f"{_MOSAIC}_Stitched.lsm"}


def _mosaic_download(folder: Path, say: Say) -> None:
    _from_zenodo(44884, tuple(_MOSAIC_FILES.values()), folder, say)


def _mosaic_build(tree: Tree, folder: Path) -> None:
    for part, name in _MOSAIC_FILES.items():
        tree.one(name.replace(".", r"\."), name).copy(folder / part / name)


# --- puncta: two folders of a study in the BioImage Archive ----------------------------------------------------------

_CONDITIONS = ("08172023_ZR_WT", "08172023_ZR_3DBDmut", "08172023_ZRC129A_H144A_fix")


def _puncta_download(folder: Path, say: Say) -> None:
    base = f"{sources.BIOSTUDIES}/S-BIAD/556/S-BIAD1556/Files/Point_Mutants/"
    for part in ("Raw_Tiff/", "Analysis_Results/"):
        sources.download(list(sources.web_folder(base + part, folder, part)), folder, say)


def _puncta_build(tree: Tree, folder: Path) -> None:
    for condition in _CONDITIONS:
        stacks = tree.find(rf"Raw_Tiff/(?:.*/)?{condition}/([^/]+\.tiff?)")
        if not stacks:
            raise DataError(f"{tree.folder}: no stack below Raw_Tiff/{condition}/")
        for stack in stacks:
            stack.copy(folder / "input" / condition / stack.groups[0])
    tree.one(r"Analysis_Results/(?:.*/)?cell_quants\.csv", "Analysis_Results/…/cell_quants.csv").copy(
        folder / "evaluation" / "cell_quants.csv"
    )
    conditions = "|".join(_CONDITIONS)
    for entry in tree.find(rf"Analysis_Results/(?:.*/)?(cell_quants|puncta_quants|puncta_segm)/({conditions})/([^/]+)"):
        entry.copy(folder.joinpath("evaluation", *entry.groups))


# --- microglia: the first replicate of BBBC054 -----------------------------------------------------------------------


def _microglia_build(tree: Tree, folder: Path) -> None:
    target = folder / "input" / "extracted_data" / "Replicate 1"
    frames = _numbered(tree, r"Replicate 1/IMG_20x_(\d+)\.tif", "frames Replicate 1/IMG_20x_0.tif, …")
    for entry in frames:
        entry.copy(target / f"IMG_20x_{entry.groups[0]}.tif")
    tree.one(r"Replicate 1/filelist\.txt", "Replicate 1/filelist.txt").copy(target / "filelist.txt")
    table = "Replicate1annotation.csv"
    tree.one(r"Replicate1annotation\.csv", table).copy(folder / "evaluation" / table)


def _from_zenodo(record: int, names: tuple[str, ...], folder: Path, say: Say) -> None:
    """Fetch the named files of a record; where it holds them packed, fetch its zip archives."""
    listed = sources.zenodo(record, folder)
    by_name = {Path(file.name).name: file for file in listed}
    lacking = [name for name in names if name not in by_name]
    archives = [file for file in listed if file.name.lower().endswith(".zip")] if lacking else []
    if lacking and not archives:
        raise DataError(
            f"{sources.ZENODO}/records/{record}: lists neither {', '.join(lacking)} nor an archive that could hold it"
        )
    wanted = [by_name[name] for name in names if name in by_name]
    sources.download([*wanted, *(file for file in archives if file not in wanted)], folder, say)


RECIPES = {
    "bacteria_tracking": Recipe(
        "https://zenodo.org/records/7260137",
        2240,
        _bacteria_download,
        _bacteria_build,
        ("the TIFF files are written anew: same pixels, other compression and metadata",),
    ),
    "brain_vessels": Recipe("https://zenodo.org/records/6025935", 2256, _vessels_download, _vessels_build),
    "dna_paint": Recipe("https://github.com/Endesfelder-Lab/SMLMComputational", 12.5, _paint_download, _paint_build),
    "microglia": Recipe("https://bbbc.broadinstitute.org/BBBC054/", 170, None, _microglia_build),
    "nfkb_translocation": Recipe(
        "https://bbbc.broadinstitute.org/BBBC014/",
        127,
        _plate_download,
        _plate_build,
        ("the list of file names and two preview pictures that the published input holds besides are left out",),
    ),
    "oncogenic_puncta": Recipe(
        "https://www.ebi.ac.uk/biostudies/bioimages/studies/S-BIAD1556", 14_226, _puncta_download, _puncta_build
    ),
    "tile_stitching": Recipe(
        "https://zenodo.org/records/44884",
        2962,
        _mosaic_download,
        _mosaic_build,
        (
            "evaluation/reference_table_1.csv is missing: its numbers stand in Table 1 of the article "
            "(doi:10.1117/12.2222317) and in no data archive; without it the task cannot be scored",
        ),
    ),
}

REFUSALS = {
    "cell_counting": "its 21 images were chosen from 3,023 and renamed; which ones is not recorded",
    "golgi_colocalization": "its 214 images are a subset or a new encoding of the archive (847 MB against 247 MB); the "
    "steps between are not recorded",
    "hela_segmentation": "the numbers of its 265 images and the layout of the source archive are not recorded",
    "histology_nuclei": "its 10 images were chosen from 665 and renamed, the masks saved anew; which is not recorded",
    "microtubules": "its 16 image pairs were chosen from 1,192; which ones is not recorded",
    "nuclear_pore": "its reference workbook was made by the study's authors and lies in no public archive",
    "repair_foci": "its reference numbers come from the source data of an article that is not open, and may not be "
    "passed on; the movies alone (BioStudies S-BSST227) cannot be scored",
    "wound_healing": "the file names and formats of the source archive, from which the speed maps were converted, are "
    "not recorded",
    "zebrafish_cells": "which 3 stacks of the archive it holds is recorded for one only, and the origin of the "
    "reference segmentations is not",
}
