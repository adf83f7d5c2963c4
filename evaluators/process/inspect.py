"""What every file of a submission is, found out without truth: type, size, dimensions, values, columns.

Files are hostile: they are opened without following links, sized before they are decoded, and meant to be looked at in
the bounded child process (:func:`evaluators.process.evidence.gather_bounded`).
"""

from __future__ import annotations

import csv
import io
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from evaluators.model import Content, Deliverable
from evaluators.problems import Refusal, shown
from evaluators.readers.text import read_text
from evaluators.readers.tiff import TiffImage
from evaluators.readers.workbooks import read_workbook
from evaluators.submission import MAX_DEPTH, MAX_FILES, Submission, SubmittedFile

Kind = Literal["image", "vector", "table", "code", "report", "text", "other"]
CODE = {".py", ".ipynb", ".groovy", ".ijm", ".java", ".r", ".m", ".sh", ".jl", ".cppipe"}
REPORTS = {".md", ".rst"}
TABLES = {".csv", ".tsv", ".xlsx"}
PICTURES = {".png", ".jpg", ".jpeg", ".gif", ".webp"}
TIFFS = {".tif", ".tiff"}
VECTORS = {".svg", ".pdf", ".eps"}
TEXTS = {".txt", ".log", ".json", ".yaml", ".yml", ".html", ".jsonl", ".toml", ".xml"}

_LABELS = (Content.LABEL_IMAGE, Content.BINARY_IMAGE, Content.LABEL_STACK)
_MAX_PIXELS = 64_000_000  # decoded from one file
_MAX_DECODED = 24  # files of one deliverable; the others are known by their headers
_TABLE_BYTES = 8 << 20
_ROWS = 20_000
_SVG_BYTES = 4 << 20
_INCH_CM, _INCH_M = 2.54, 39.3701


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Column(_Model):
    """A column of a table: ``low`` and ``high`` where all its values are numbers."""

    name: str
    low: float | None = None
    high: float | None = None


class Table(_Model):
    """A table's shape and beginning. ``recurring`` is the share of track identifiers seen in two frames or more."""

    columns: list[Column] = Field(default_factory=list)
    rows: int = 0
    first: list[list[str]] = Field(default_factory=list)
    sheet: str | None = None
    recurring: float | None = None


class Picture(_Model):
    """An image's header and, where decoded, its values. Lengths in pixels; ``dots_per_inch`` as the file says."""

    shape: list[int] = Field(default_factory=list)
    dtype: str | None = None
    bits: int | None = None
    compression: str | None = None
    dots_per_inch: float | None = None
    pixel_size: str | None = None
    low: float | None = None
    high: float | None = None
    labels: int | None = None
    recurring: float | None = None
    blank: bool | None = None


class Vector(_Model):
    """What a machine can tell of a vector graphic: number of plots, of those with both axes named, and of legends."""

    axes: int = 0
    named: int = 0
    legends: int = 0


class FileFact(_Model):
    """One file of a submission. ``path`` is shown in a safe form; ``deliverable`` names what it was taken for."""

    path: str
    size: int
    kind: Kind
    suffix: str
    deliverable: str | None = None
    picture: Picture | None = None
    tables: list[Table] = Field(default_factory=list)
    vector: Vector | None = None
    problem: str | None = None


def kind_of(name: str) -> Kind:
    """Tell what a file is from its name."""
    suffix = PurePosixPath(name).suffix.lower()
    kinds: dict[Kind, set[str]] = {
        "image": PICTURES | TIFFS,
        "vector": VECTORS,
        "table": TABLES,
        "code": CODE,
        "report": REPORTS,
        "text": TEXTS,
    }
    return next((kind for kind, suffixes in kinds.items() if suffix in suffixes), "other")


def walk(root: Path) -> tuple[list[SubmittedFile], list[str]]:
    """List all regular files of a folder in the order of their paths, and say what was not looked at.

    Unlike :class:`evaluators.submission.Submission` it looks into ``supporting``.
    """
    files: list[SubmittedFile] = []
    passed_over: list[str] = []
    for parts, information in _entries(root, ()):
        path = shown("/".join(parts))
        if stat.S_ISREG(information.st_mode):
            if len(files) >= MAX_FILES:
                passed_over.append(f"files after the first {MAX_FILES}")
                break
            files.append(SubmittedFile(root, parts, information.st_size))
        elif not stat.S_ISDIR(information.st_mode):
            passed_over.append(f"{path}: a link or special file")
        elif len(parts) >= MAX_DEPTH:
            passed_over.append(f"{path}: deeper than {MAX_DEPTH} folders")
    return files, passed_over


def _entries(root: Path, folder: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], os.stat_result]]:
    try:
        with os.scandir(root.joinpath(*folder)) as found:
            entries = sorted(found, key=lambda entry: os.fsencode(entry.name))
            listed = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries[: MAX_FILES + 1]]
    except OSError:
        return
    for name, information in listed:
        if name.startswith("."):
            continue
        parts = (*folder, name)
        yield parts, information
        if stat.S_ISDIR(information.st_mode) and len(parts) < MAX_DEPTH:
            yield from _entries(root, parts)


def look(root: Path, deliverables: Sequence[Deliverable], *, decode: bool = True) -> tuple[list[FileFact], list[str]]:
    """Return facts on every file of a submission, and what was not looked at.

    Parameters
    ----------
    root
        The output folder; may be missing.
    deliverables
        What the task asks for.
    decode
        Whether to open files at all; without, names and sizes are all that is known.
    """
    files, passed_over = walk(root)
    wanted = {
        file.path: deliverable
        for deliverable in deliverables
        for file in Submission(root, deliverables).candidates(deliverable.id)
    }
    decoded: dict[str, int] = {}
    facts = []
    for file in files:
        deliverable = wanted.get(file.path)
        fact = FileFact(
            path=shown(file.path, 200),
            size=file.size,
            kind="table" if deliverable is not None and _is_table(deliverable) else kind_of(file.name),
            suffix=shown(PurePosixPath(file.name).suffix.lower(), 12),
            deliverable=None if deliverable is None else deliverable.id,
        )
        family = fact.deliverable or "/".join(file.parts[:-1]) + fact.suffix
        decoded[family] = decoded.get(family, 0) + 1
        if decode:
            _look_into(fact, file, deliverable, values=decoded[family] <= _MAX_DECODED)
        facts.append(fact)
    return facts, passed_over


def _is_table(deliverable: Deliverable) -> bool:
    return deliverable.content in (Content.TABLE, Content.WORKBOOK, Content.LINEAGE)


def _look_into(fact: FileFact, file: SubmittedFile, deliverable: Deliverable | None, *, values: bool) -> None:
    try:
        if fact.kind == "image":
            is_tiff = PurePosixPath(file.name).suffix.lower() in TIFFS
            fact.picture = _tiff(file) if is_tiff else _flat(file, values=values)
            if is_tiff and values and int(np.prod(fact.picture.shape)) <= _MAX_PIXELS:
                with file.open() as handle, TiffImage(handle, samples=True) as image:
                    labels = deliverable is not None and deliverable.content in _LABELS
                    _describe(fact.picture, image.whole(), labels=labels)
        elif fact.kind == "table" and values:
            fact.tables = _tables(file, lineage=deliverable is not None and deliverable.content is Content.LINEAGE)
        elif fact.suffix == ".svg":
            fact.vector = _vector(file)
    except Refusal as refusal:
        fact.problem = shown(refusal.message)
    except MemoryError:
        fact.problem = "needs more memory than is given to it"
    except Exception as error:  # libraries raise anything on broken files; the fact is that it cannot be read
        fact.problem = shown(f"cannot be read: {type(error).__name__}: {error}")


def _flat(file: SubmittedFile, *, values: bool) -> Picture:
    """Look at a picture in a format of the web."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # sizes are checked here
    with file.open() as handle, Image.open(handle) as image:
        dots = image.info.get("dpi")
        picture = Picture(
            shape=[image.height, image.width],
            dtype=image.mode,
            bits={"1": 1, "I": 32, "F": 32}.get(image.mode, 16 if image.mode.startswith("I;16") else 8),
            compression=image.format,
            dots_per_inch=round(float(dots[0]), 1) if dots else None,
        )
        if values and image.width * image.height <= _MAX_PIXELS:
            bands = image.convert("L").getextrema()
            picture.blank = bands[0] == bands[1]
        return picture


def _tiff(file: SubmittedFile) -> Picture:
    """Read the header of a TIFF."""
    import tifffile

    with file.open() as handle, tifffile.TiffFile(handle, name="image.tif", _multifile=False) as tiff:
        page: Any = tiff.pages.first
        series = tiff.series[0] if tiff.series else None
        return Picture(
            shape=[int(length) for length in (series.shape if series is not None else page.shape)][:8],
            dtype=str(page.dtype),
            bits=int(np.dtype(page.dtype).itemsize * 8) if page.dtype is not None else None,
            compression=str(getattr(page.compression, "name", page.compression)),
            dots_per_inch=_dots_per_inch(page),
            pixel_size=_pixel_size(tiff, page),
        )


def _describe(picture: Picture, pixels: NDArray[Any], *, labels: bool) -> None:
    if pixels.size == 0:
        return
    finite = pixels[np.isfinite(pixels)] if pixels.dtype.kind == "f" else pixels
    if finite.size:
        picture.low, picture.high = float(finite.min()), float(finite.max())
    picture.blank = picture.low == picture.high
    if labels and pixels.dtype.kind in "iu":
        found = np.unique(pixels)
        picture.labels = int((found != 0).sum())
        if pixels.ndim == 3 and pixels.shape[0] > 1:
            picture.recurring = _recurring_labels(pixels)


def _recurring_labels(stack: NDArray[Any]) -> float | None:
    """Share of labels that occur in two frames or more."""
    frames = [np.unique(frame) for frame in stack]
    labels, counts = np.unique(np.concatenate(frames), return_counts=True)
    counts = counts[labels != 0]
    return float((counts > 1).mean()) if counts.size else None


def _dots_per_inch(page: Any) -> float | None:
    try:
        numerator, denominator = page.tags["XResolution"].value
        unit = int(page.tags["ResolutionUnit"].value)
        per_unit = numerator / denominator
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None
    return round(per_unit * {2: 1.0, 3: _INCH_CM}.get(unit, 0.0), 1) or None


def _pixel_size(tiff: Any, page: Any) -> str | None:
    """Say where the file states a pixel size, in its own words."""
    if tiff.is_imagej and (tiff.imagej_metadata or {}).get("unit") and "XResolution" in page.tags:
        return shown(f"ImageJ, unit {tiff.imagej_metadata['unit']}", 60)
    found = re.search(r'PhysicalSizeX="([^"]{1,20})"', tiff.ome_metadata or "") if tiff.is_ome else None
    return shown(f"OME, PhysicalSizeX {found[1]}", 60) if found else None


def _tables(file: SubmittedFile, *, lineage: bool) -> list[Table]:
    if PurePosixPath(file.name).suffix.lower() == ".xlsx":
        with file.open() as handle:
            sheets = read_workbook(handle)
        rows = {
            name: [["" if cell is None else str(cell) for cell in row] for row in sheet]
            for name, sheet in sheets.items()
        }
        return [_table(cells, shown(name, 60)) for name, cells in list(rows.items())[:20]]
    with file.open() as handle:
        text = read_text(handle, _TABLE_BYTES, head=True)
    first = text.split("\n", 1)[0]
    separator = max(",\t;", key=first.count)
    if first.count(separator) == 0 and " " in first.strip():
        separator = " "
    cells = [row for row in csv.reader(io.StringIO(text), delimiter=separator) if any(cell.strip() for cell in row)]
    if lineage:
        cells = [["label", "first_frame", "last_frame", "parent"], *cells]
    table = _table(cells, None)
    if file.size > _TABLE_BYTES:
        table.rows = -1
    return [table]


def _table(cells: list[list[str]], sheet: str | None) -> Table:
    if not cells:
        return Table(sheet=sheet)
    header, body = [cell.strip() for cell in cells[0]], cells[1:]
    columns = [_column(name, [row[at] for row in body[:_ROWS] if at < len(row)]) for at, name in enumerate(header[:60])]
    return Table(
        columns=columns,
        rows=len(body),
        first=[[shown(cell.strip(), 40) for cell in row[:20]] for row in body[:3]],
        sheet=sheet,
        recurring=_recurring_rows(header, body[:_ROWS]),
    )


def _column(name: str, values: list[str]) -> Column:
    try:
        numbers = np.array([float(value) for value in values if value.strip()])
    except ValueError:
        return Column(name=shown(name, 60))
    finite = numbers[np.isfinite(numbers)]
    if not finite.size:
        return Column(name=shown(name, 60))
    return Column(name=shown(name, 60), low=float(f"{finite.min():.6g}"), high=float(f"{finite.max():.6g}"))


def _recurring_rows(header: list[str], body: list[list[str]]) -> float | None:
    """Share of track identifiers that occur in two frames or more; ``None`` without such columns."""
    names = [re.sub(r"[^a-z]", "", name.lower()) for name in header]
    tracks = [
        at for at, name in enumerate(names) if "track" in name and not name.endswith(("length", "count", "duration"))
    ]
    frames = [at for at, name in enumerate(names) if name in ("frame", "t", "time", "timepoint", "framenumber")]
    if not tracks or not frames:
        return None
    seen: dict[str, set[str]] = {}
    for row in body:
        if max(tracks[0], frames[0]) < len(row) and row[tracks[0]].strip():
            seen.setdefault(row[tracks[0]].strip(), set()).add(row[frames[0]].strip())
    return sum(len(found) > 1 for found in seen.values()) / len(seen) if seen else None


def _vector(file: SubmittedFile) -> Vector:
    """Read axes and legends of an SVG by the identifiers that matplotlib gives them."""
    with file.open() as handle:
        text = read_text(handle, _SVG_BYTES, head=True)
    blocks = re.split(r'<g id="axes_\d+">', text)[1:]
    return Vector(
        axes=sum('id="matplotlib.axis_' in block for block in blocks),
        named=sum(_names_both_axes(block) for block in blocks if 'id="matplotlib.axis_' in block),
        legends=sum('id="legend_' in block for block in blocks),
    )


def _names_both_axes(block: str) -> bool:
    """Whether both axis groups hold a text of their own beside those of their ticks."""
    axes = re.split(r'<g id="matplotlib\.axis_\d+">', block)[1:3]
    named = []
    for axis in axes:
        last_tick = max(axis.rfind('id="xtick_'), axis.rfind('id="ytick_'))
        texts = [found.start() for found in re.finditer(r'<g id="text_\d+">', axis)]
        # The last tick holds one text; a further one names the axis.
        named.append(sum(start > last_tick for start in texts) >= (2 if last_tick >= 0 else 1))
    return len(named) == 2 and all(named)
