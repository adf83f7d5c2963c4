"""Workbooks of unknown origin: read within bounds, refused with a reason."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import openpyxl
import pytest

from evaluators.problems import Refusal
from evaluators.readers.workbooks import check_workbook, read_workbook


def workbook(rows: list[list[object]], names: tuple[str, ...] = ("one",)) -> bytes:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name in names:
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def repacked(content: bytes, name: str, replacement: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for entry in source.namelist():
            target.writestr(entry, replacement if entry == name else source.read(entry))
    return buffer.getvalue()


def test_values_come_by_sheet() -> None:
    sheets = read_workbook(io.BytesIO(workbook([["a", "b"], [1, 2.5], [None, "x"]], ("one", "two"))))
    assert list(sheets) == ["one", "two"]
    assert sheets["one"] == [("a", "b"), (1, 2.5), (None, "x")]


def test_formulas_without_a_saved_value_are_blank() -> None:
    assert read_workbook(io.BytesIO(workbook([["a"], ["=1+1"]])))["one"] == [("a",)]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "empty_file"),
        (b"Time,Volume\n1,2\n", "unreadable"),
        (bytes.fromhex("d0cf11e0a1b11ae1") + bytes(600), "unreadable"),
        (workbook([["a"]])[:-40], "unreadable"),
        (repacked(workbook([["a"]]), "xl/workbook.xml", b"<broken"), "unreadable"),
    ],
)
def test_what_is_no_workbook_is_refused(content: bytes, code: str) -> None:
    with pytest.raises(Refusal) as refusal:
        read_workbook(io.BytesIO(content))
    assert refusal.value.code == code


def test_bombs_are_refused_before_they_are_unpacked() -> None:
    with pytest.raises(Refusal, match="too_large"):
        check_workbook(io.BytesIO(repacked(workbook([["a"]]), "xl/worksheets/sheet1.xml", bytes(80 << 20))))


def test_entities_are_refused() -> None:
    laughs = b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><x>&b;</x>'
    with pytest.raises(Refusal, match="document type"):
        read_workbook(io.BytesIO(repacked(workbook([["a"]]), "xl/worksheets/sheet1.xml", laughs)))


def test_a_zip_of_something_else_is_no_workbook(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.xlsx", "w") as archive:
        archive.writestr("readme.txt", "nothing")
    with (tmp_path / "x.xlsx").open("rb") as handle, pytest.raises(Refusal, match="holds no"):
        check_workbook(handle)
