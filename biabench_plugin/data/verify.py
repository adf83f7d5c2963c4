"""Open every file of a task's data and compare it with the layout that ``task.yaml`` declares."""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tifffile
from PIL import Image

from biabench_plugin.checktask import Finding, replayed
from biabench_plugin.data.layout import FileGroup
from biabench_plugin.taskspec import TaskSpec

_CLUTTER = {".ds_store", "thumbs.db", "desktop.ini"}
_MICROMETRES = {"um", "µm", "μm", "micron", "microns", "micrometer", "micrometre", "\\u00b5m"}
_OME_UNITS = {"m": 1e6, "mm": 1e3, "nm": 1e-3, "µm": 1.0, "μm": 1.0, "um": 1.0}
_TOLERANCE = 0.01  # relative, of a pixel size: files round it


@dataclass(frozen=True)
class Opened:
    """What a file turned out to hold."""

    axes: str = ""  # as the file names them; i and q where it does not say
    lengths: tuple[int, ...] = ()
    dtype: str = ""
    pixel_um: dict[str, float] | None = None
    columns: tuple[tuple[str, ...], ...] = ()  # of each table in the file
    rows: int = 0


def deep(spec: TaskSpec, input_dir: Path, truth: Path, *, demo: bool) -> Iterator[Finding]:
    """Check a task's folders against its declared layout, then replay its truth.

    Parameters
    ----------
    spec
        The task.
    input_dir, truth
        Its two folders.
    demo
        Whether they hold demo data.

    Yields
    ------
    Finding
        Faults and warnings by file, then one line per group of files that is as declared, then the replay.
    """
    yield from layout(spec, input_dir, truth, demo=demo)
    with tempfile.TemporaryDirectory(prefix="biabench-verify-") as room:
        yield replayed(spec, input_dir, truth, Path(room))


def layout(spec: TaskSpec, input_dir: Path, truth: Path, *, demo: bool) -> Iterator[Finding]:
    """Check a task's folders against its declared layout; as :func:`deep`, without the replay."""
    if spec.data is None:
        yield Finding("FAIL", "layout", f"{spec.slug}: task.yaml declares no data layout")
        return
    shapes: dict[str, dict[str, int]] = {}
    for field, folder, groups in (
        ("input", input_dir, spec.data.input),
        ("evaluation", truth, spec.data.evaluation),
    ):
        yield from _folder(field, folder, [group.for_demo() if demo else group for group in groups], shapes)


def _folder(field: str, folder: Path, groups: list[FileGroup], shapes: dict[str, dict[str, int]]) -> Iterator[Finding]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir()]
    patterns = [_pattern(group.files) for group in groups]
    sorted_out: list[list[tuple[Path, re.Match[str]]]] = [[] for _ in groups]
    for path in files:
        name = path.relative_to(folder).as_posix()
        hits = [(index, match) for index, pattern in enumerate(patterns) if (match := pattern.fullmatch(name))]
        if path.is_symlink() or not path.is_file():
            yield Finding("FAIL", field, f"{name}: is a link or no regular file")
        elif path.name.lower() in _CLUTTER or path.name.startswith("._"):
            yield Finding("warn", field, f"{name}: is clutter of an operating system")
        elif not hits:
            yield Finding("FAIL", field, f"{name}: task.yaml does not declare such a file")
        else:
            sorted_out[hits[0][0]].append((path, hits[0][1]))
    for group, members in zip(groups, sorted_out, strict=True):
        faults = list(_group(field, folder, group, members, shapes))
        yield from (Finding("FAIL", field, fault) for fault in faults)
        if not faults and members:
            yield Finding("ok", field, f"{group.files}: {len(members)} {'file' if len(members) == 1 else 'files'}")


def _pattern(glob: str) -> re.Pattern[str]:
    """Return the expression of a path pattern; every ``*`` is a group."""
    words = {"*": "([^/]*)", "?": "[^/]"}
    return re.compile("".join(words.get(char, re.escape(char)) for char in glob))


def _group(
    field: str,
    folder: Path,
    group: FileGroup,
    members: list[tuple[Path, re.Match[str]]],
    shapes: dict[str, dict[str, int]],
) -> Iterator[str]:
    if not group.count[0] <= len(members) <= group.count[1]:
        yield f"{group.files}: expected {_words(group.count)} files, found {len(members)}"
    for path, match in members:
        name = path.relative_to(folder).as_posix()
        try:
            opened = _OPENERS[group.kind](path)
        except Exception as error:  # whatever a decoder raises, the file is at fault
            why = (str(error) or repr(error)).splitlines()[0]
            yield f"{name}: cannot be opened as {group.kind}: {why}"
            continue
        yield from (f"{name}: {fault}" for fault in _faults(group, opened))
        named = _named(group, opened) or {}
        if field == "input":
            shapes[name] = named
        elif group.partner is not None:
            partner = group.partner.format(*match.groups())
            if partner not in shapes:
                yield f"{name}: belongs to input/{partner}, which is not there or cannot be opened"
            elif other := [axis for axis, size in named.items() if shapes[partner].get(axis, size) != size]:
                yield f"{name}: differs from input/{partner} in length along {', '.join(other)}"


def _named(group: FileGroup, opened: Opened) -> dict[str, int] | None:
    """Return the length of each declared axis; ``None`` where the file has other ones."""
    if len(opened.axes) != len(group.shape):
        return None
    if any(found not in (wanted, *"iq") for found, wanted in zip(opened.axes, group.shape, strict=True)):
        return None
    return dict(zip(group.shape, opened.lengths, strict=True))


def _words(bounds: tuple[int, int]) -> str:
    low, high = bounds
    return str(low) if low == high else f"at least {low}" if high >= 2**62 else f"{low} to {high}"


def _faults(group: FileGroup, opened: Opened) -> Iterator[str]:
    if group.shape:
        named = _named(group, opened)
        if named is None:
            yield f"expected the axes {''.join(group.shape)}, found {opened.axes} of lengths {opened.lengths}"
        for axis, size in (named or {}).items():
            low, high = group.shape[axis]
            if not low <= size <= high:
                yield f"expected {_words((low, high))} along {axis}, found {size}"
    if group.dtype and opened.dtype not in group.dtype:
        yield f"expected {' or '.join(group.dtype)}, found {opened.dtype}"
    for columns in opened.columns if group.columns else ():
        if lacking := [name for name in group.columns if name not in columns]:
            yield f"lacks the columns {', '.join(lacking)}; found {', '.join(columns)[:200]}"
    if group.columns and not opened.columns:
        yield "holds no table"
    if group.kind == "table" and not group.rows[0] <= opened.rows <= group.rows[1]:
        yield f"expected {_words(group.rows)} rows, found {opened.rows}"
    stated = opened.pixel_um or {}
    for axis, allowed in group.pixel_um.items():
        if axis in stated:
            if not any(abs(stated[axis] - size) <= _TOLERANCE * size for size in allowed):
                sizes = " or ".join(f"{size:g}" for size in allowed)
                yield f"expected {sizes} um per pixel along {axis}, found {stated[axis]:g}"
        elif group.pixel_stored:
            yield f"states no pixel size along {axis}"


# --- openers ----------------------------------------------------------------------------------------------------------


def _tiff(path: Path) -> Opened:
    with tifffile.TiffFile(path) as tif:
        series = tif.series[0]
        if series.dataoffset is not None:  # one raw block, of which the pages need not know
            wanted, found = series.dataoffset + series.nbytes, path.stat().st_size
            if wanted > found:
                raise ValueError(f"it is cut off: {found} of at least {wanted} bytes")
        for page in tif.pages:  # decode everything, one page in memory at a time
            page.asarray()
        return Opened(series.axes.lower(), tuple(map(int, series.shape)), str(series.dtype), _pixel_um(tif))


def _pixel_um(tif: tifffile.TiffFile) -> dict[str, float]:
    """Return the sizes that a file states, in µm; resolutions of printing say nothing about a microscope."""
    if tif.is_ome and tif.ome_metadata:
        pixels = re.search(r"<(?:\w+:)?Pixels\b[^>]*>", tif.ome_metadata)
        attributes = dict(re.findall(r'(\w+)="([^"]*)"', pixels[0] if pixels else ""))
        return {
            axis: float(attributes[f"PhysicalSize{axis.upper()}"])
            * _OME_UNITS.get(attributes.get(f"PhysicalSize{axis.upper()}Unit", "µm"), np.nan)
            for axis in "zyx"
            if f"PhysicalSize{axis.upper()}" in attributes
        }
    if tif.is_lsm:
        lsm: dict[str, Any] = tif.lsm_metadata or {}
        return {
            axis: float(lsm[f"VoxelSize{axis.upper()}"]) * 1e6 for axis in "zyx" if lsm.get(f"VoxelSize{axis.upper()}")
        }
    if tif.is_imagej:
        imagej: dict[str, Any] = tif.imagej_metadata or {}
        if str(imagej.get("unit", "um")).lower() not in _MICROMETRES:
            return {}
        found = {}
        for axis, tag in (("y", "YResolution"), ("x", "XResolution")):
            value = tif.pages.first.tags.get(tag)
            if value is not None and value.value[0] and (value.value != (1, 1) or "unit" in imagej):
                found[axis] = value.value[1] / value.value[0]
        if found and imagej.get("spacing"):
            found["z"] = float(imagej["spacing"])
        return found
    return {}


def _picture(path: Path) -> Opened:
    with Image.open(path) as image:
        # a palette of greys is how some formats store one grey channel
        array = np.asarray(image.convert("L") if image.mode == "P" else image)
    return Opened("yxs"[: array.ndim], array.shape, str(array.dtype))


def _table(path: Path) -> Opened:
    first = path.read_text(encoding="utf-8-sig").split("\n", 1)[0]
    separator = next((mark for mark in (",", "\t", ";") if mark in first), r"\s+")
    frame = pd.read_csv(path, sep=separator, encoding="utf-8-sig")
    return Opened(columns=(tuple(map(str, frame.columns)),), rows=len(frame))


def _workbook(path: Path) -> Opened:
    sheets = pd.read_excel(path, sheet_name=None, engine="openpyxl")
    return Opened(columns=tuple(tuple(map(str, sheet.columns)) for sheet in sheets.values()))


def _zip(path: Path) -> Opened:
    with zipfile.ZipFile(path) as archive:
        if (broken := archive.testzip()) is not None:
            raise ValueError(f"{broken} has a wrong checksum")
    return Opened()


def _text(path: Path) -> Opened:
    if not path.read_text(encoding="utf-8-sig").strip():
        raise ValueError("it is empty")
    return Opened()


def _other(path: Path) -> Opened:
    size = 0
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            size += len(chunk)
    if not size:
        raise ValueError("it is empty")
    return Opened()


_OPENERS = {
    "tiff": _tiff,
    "picture": _picture,
    "table": _table,
    "workbook": _workbook,
    "zip": _zip,
    "text": _text,
    "other": _other,
}
