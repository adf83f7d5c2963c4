"""Tables: kind to what spreadsheets write, strict about what is a number, bounded in size."""

from __future__ import annotations

import io

import numpy as np
import pytest

from evaluators.problems import Refusal
from evaluators.readers import tables, text
from evaluators.readers.tables import NumberTable, check_columns, read_numbers

COLUMNS = ("X", "Y")


def read(content: str | bytes) -> NumberTable:
    data = content if isinstance(content, bytes) else content.encode()
    check_columns(io.BytesIO(data), COLUMNS)
    return read_numbers(io.BytesIO(data), COLUMNS)


def refusal(content: str | bytes) -> Refusal:
    data = content if isinstance(content, bytes) else content.encode()
    with pytest.raises(Refusal) as caught:
        read_numbers(io.BytesIO(data), COLUMNS)
    return caught.value


@pytest.mark.parametrize(
    "content",
    [
        "X,Y\n1.5,2\n3,4\n",
        "\ufeffX,Y\r\n1.5,2\r\n3,4\r\n",
        "X,Y\n1.5,2\n3,4\n".encode("utf-16"),
        "X;Y\n1.5;2\n3;4\n",
        "X;Y\n1,5;2\n3;4\n",
        "X\tY\n1.5\t2\n3\t4",
        " x , y \n 1.5 , 2 \n3,4\n",
        '"X","Y"\n"1.5","2"\n"3","4"\n',
        "id,Y,X,score\n1,2,1.5,0.9\n2,4,3,0.8\n",
        "col,row,X,Y\n9,9,1.5,2\n9,9,3,4\n",
        "\n\nX,Y\n\n1.5,2\n\n3,4\n,\n",
        "X,Y\r1.5,2\r3,4\r",
        "X,Y\n+1.5,2e0\n3.,.4e1\n",
    ],
    ids="plain bom utf16 semicolon decimal_comma tab blanks quotes further other_axes empty mac exponents".split(),  # noqa: SIM905
)
def test_what_people_write_reads_alike(content: str | bytes) -> None:
    table = read(content)
    assert table.values.tolist() == [[1.5, 2.0], [3.0, 4.0]]
    assert not table.invalid


def test_a_header_alone_is_an_empty_table() -> None:
    assert read("X,Y\n").values.shape == (0, 2)


@pytest.mark.parametrize("cell", ["nan", "NaN", "inf", "-Infinity", "", "1e999"])
def test_a_number_that_is_not_finite_is_an_invalid_row(cell: str) -> None:
    table = read(f"X,Y\n1,2\n{cell},5\n")
    assert len(table.values) == 2
    assert np.isnan(table.values[1, 0])
    assert table.invalid == [(3, f"{cell},5")]


def test_a_short_row_is_an_invalid_row() -> None:
    table = read("X,Y\n1\n")
    assert np.isnan(table.values[0, 1])
    assert len(table.invalid) == 1


@pytest.mark.parametrize("cell", ["12.3 px", "abc", "1_000", "0x10", "1.2.3", "1,5"])
def test_text_in_a_number_refuses_the_table(cell: str) -> None:
    refused = refusal(f'X,Y\n"{cell}",40\n')
    assert refused.code == "not_numeric"
    assert "line 2" in refused.message


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", "empty_file"),
        ("\n \n", "empty_file"),
        ("12,40\n13,50\n", "missing_columns"),
        ("x_coord,y_coord\n1,2\n", "missing_columns"),
        ("X,Y,x\n1,2,3\n", "duplicate_columns"),
        (b"X,Y\n\xff\xfe\n", "not_text"),
        (b"X,Y\n1\x00,2\n", "not_text"),
        (b"\x80\x04\x95pickle", "not_text"),
        ("X,Y\n" + "9" * 200_000 + ",1\n", "not_a_table"),
        ("X,Y\n" + "1," * 100_000 + "\n", "too_large"),
        ("X" + ",Y" * 1_000_000 + "\n", "too_large"),
    ],
    ids="empty blank no_header aliases repeated bytes nul pickle huge_field wide_row wide_header".split(),  # noqa: SIM905
)
def test_what_is_no_such_table_is_refused(content: str | bytes, code: str) -> None:
    assert refusal(content).code == code


def test_rows_and_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_ROWS", 3)
    assert len(read("X,Y\n1,2\n1,2\n1,2\n").values) == 3
    assert refusal("X,Y\n1,2\n1,2\n1,2\n1,2\n").code == "too_large"
    with pytest.raises(Refusal, match="larger"):
        text.read_text(io.BytesIO(b"x" * 11), 10)


def test_the_head_of_a_long_table_tells_its_columns() -> None:
    check_columns(io.BytesIO(b"X,Y\n" + b"1,2\n" * 100_000), COLUMNS)
    check_columns(io.BytesIO(("\ufeffX,Y\n" + "1,2\n" * 100_000).encode("utf-16-be")), COLUMNS)
    with pytest.raises(Refusal, match="no line end"):
        check_columns(io.BytesIO(b"X" * 200_000), COLUMNS)
