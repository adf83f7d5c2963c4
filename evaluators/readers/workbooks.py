"""Read Excel workbooks of unknown origin: values only, within bounds that are checked before anything is unpacked."""

from __future__ import annotations

import zipfile
from typing import Any, BinaryIO

from evaluators.problems import Refusal, shown

MAX_BYTES = 64 << 20
MAX_UNPACKED_BYTES = 256 << 20
MAX_RATIO = 200  # of a part's size to its compressed size
MAX_PARTS = 500
MAX_SHEETS = 100
MAX_ROWS = 20_000
MAX_COLUMNS = 200

Cell = str | int | float | bool | None
Sheet = list[tuple[Cell, ...]]


def check_workbook(handle: BinaryIO) -> None:
    """Check from its directory that a file is an Excel workbook of bearable size.

    Raises
    ------
    Refusal
        ``empty_file``, ``unreadable``, ``too_large``, ``encrypted``.
    """
    size = handle.seek(0, 2)
    handle.seek(0)
    if size == 0:
        raise Refusal("empty_file", "has no content at all")
    if size > MAX_BYTES:
        raise Refusal("too_large", f"is larger than {MAX_BYTES >> 20} MiB")
    if handle.read(8) == bytes.fromhex("d0cf11e0a1b11ae1"):
        raise Refusal("unreadable", "is an old or encrypted Excel file; save it as .xlsx without a password")
    handle.seek(0)
    try:
        with zipfile.ZipFile(handle) as archive:
            parts = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError) as error:
        raise Refusal("unreadable", f"is no .xlsx workbook: {error}") from error
    if any(part.flag_bits & 1 for part in parts):
        raise Refusal("encrypted", "is protected by a password")
    if not any(part.filename == "xl/workbook.xml" for part in parts):
        raise Refusal("unreadable", "is no .xlsx workbook: it holds no xl/workbook.xml")
    unpacked = sum(part.file_size for part in parts)
    worst = max(part.file_size / max(part.compress_size, 1) for part in parts)
    if len(parts) > MAX_PARTS or unpacked > MAX_UNPACKED_BYTES or (worst > MAX_RATIO and unpacked > MAX_BYTES):
        raise Refusal("too_large", f"declares {len(parts)} parts with {unpacked >> 20} MiB")


def read_workbook(handle: BinaryIO) -> dict[str, Sheet]:
    """Return the sheets of a workbook by name; the cells of a formula hold the value that was saved with it, if any.

    Raises
    ------
    Refusal
        As for :func:`check_workbook`.
    """
    check_workbook(handle)
    _refuse_entities(handle)
    import openpyxl

    handle.seek(0)
    try:
        book = openpyxl.load_workbook(handle, read_only=True, data_only=True, keep_links=False)
        if len(book.sheetnames) > MAX_SHEETS:
            raise Refusal("too_large", f"has more than {MAX_SHEETS} sheets")
        return {shown(sheet.title): _rows(sheet) for sheet in book.worksheets}
    except Refusal:
        raise
    except Exception as error:  # openpyxl raises whatever its parsers do
        raise Refusal(
            "unreadable", f"cannot be read as a workbook: {type(error).__name__}: {shown(str(error))}"
        ) from error


def _refuse_entities(handle: BinaryIO) -> None:
    """Refuse document types in any part: no writer of workbooks declares one, and entities can grow without bound."""
    handle.seek(0)
    try:
        with zipfile.ZipFile(handle) as archive:
            for part in archive.infolist():
                with archive.open(part) as stream:
                    head = stream.read(4096)
                if b"<!DOCTYPE" in head or b"<!ENTITY" in head or head[:2] in (b"\xff\xfe", b"\xfe\xff"):
                    raise Refusal("unreadable", f"{shown(part.filename)} declares a document type or is not UTF-8")
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, ValueError) as error:
        raise Refusal("unreadable", f"is damaged: {error}") from error
    except Exception as error:
        if isinstance(error, Refusal):
            raise
        raise Refusal("unreadable", f"is damaged: {type(error).__name__}") from error


def _rows(sheet: Any) -> Sheet:
    sheet.reset_dimensions()  # what a file declares need not be what it holds
    rows: Sheet = []
    for row in sheet.iter_rows(values_only=True):
        if len(rows) == MAX_ROWS or len(row) > MAX_COLUMNS:
            raise Refusal(
                "too_large", f"sheet {shown(sheet.title)} reaches beyond {MAX_ROWS} rows or {MAX_COLUMNS} columns"
            )
        cells = [cell if isinstance(cell, str | int | float | bool) else None for cell in row]
        while cells and cells[-1] is None:
            cells.pop()
        rows.append(tuple(cells))
    while rows and not rows[-1]:
        rows.pop()
    return rows
