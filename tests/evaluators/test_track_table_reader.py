"""Lineages: told from other text by their content, every line that is no row named."""

from __future__ import annotations

import io

import pytest

from evaluators.problems import Refusal
from evaluators.readers.track_table import TrackTable, check_track_table, read_track_table


def read(content: str) -> TrackTable:
    check_track_table(io.BytesIO(content.encode()))
    return read_track_table(io.BytesIO(content.encode()))


@pytest.mark.parametrize(
    "content",
    [
        "1 0 4 0\n2 5 9 1\n",
        "1\t0\t4\t0\r\n2\t5\t9\t1\r\n",
        "1,0,4,0\n2, 5, 9, 1",
        "\ufeff1;0;4;0\n\n2;5;9;1\n",
        "# made by a tracker\n1 0 4 0\n 2  5  9  1 \n",
        "1.0 0.0 4.0 0.0\n2.0 5.0 9.0 1.0\n",
    ],
    ids="blanks tabs commas bom comment floats".split(),  # noqa: SIM905
)
def test_usual_separators_read_alike(content: str) -> None:
    table = read(content)
    assert table.rows.tolist() == [[1, 0, 4, 0], [2, 5, 9, 1]]
    assert not table.invalid_count
    assert table.header is None


def test_a_header_is_skipped_and_told() -> None:
    table = read("label begin end parent\n1 0 4 0\n")
    assert table.rows.tolist() == [[1, 0, 4, 0]]
    assert table.header == "label begin end parent"
    assert not table.invalid_count


@pytest.mark.parametrize(
    "line", ["inf 0 4 0", "1e400 0 4 0", "nan 0 4 0", "9" * 40 + " 0 4 0", "2 0 4", "2 0 4 0 7", "2.5 0 4 0"]
)
def test_a_line_that_is_no_row_is_counted_not_fatal(line: str) -> None:
    table = read(f"1 0 4 0\n{line}\n3 0 4 0\n")
    assert table.rows[:, 0].tolist() == [1, 3]
    assert table.invalid_count == 1
    assert table.invalid[0][0] == 2


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", "empty_file"),
        ("All 800 frames were tracked.\nSee 4 figures.\n", "not_a_lineage"),
        ("1 0 4 0\nword\nword 2\nword 3\n", "not_a_lineage"),
        ("\x001 0 4 0\n", "not_text"),
    ],
)
def test_other_text_is_no_lineage(content: str, code: str) -> None:
    with pytest.raises(Refusal) as caught:
        read_track_table(io.BytesIO(content.encode()))
    assert caught.value.code == code
