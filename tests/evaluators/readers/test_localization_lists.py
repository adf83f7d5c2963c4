"""Localisation lists as different programs write them."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.problems import Refusal
from evaluators.readers.localizations import LocalizationList, read_localizations

WANTED = [[0, 12.5, 13.25, 900.0], [3, 1.0, 2.0, 4.5]]


def read(text: str, encoding: str = "utf-8") -> LocalizationList:
    return read_localizations(io.BytesIO(text.encode(encoding)))


@pytest.mark.parametrize(
    "text",
    [
        "frame x y intensity\n0 12.5 13.25 900\n3 1 2 4.5\n",
        "0 12.5 13.25 900\n3 1 2 4.5\n",
        "frame\tx\ty\tintensity\r\n0\t12,5\t13,25\t900\r\n3\t1\t2\t4,5\r\n",
        "0 12,5 13,25 900\n3 1 2 4,5\n",
        "Frame;X;Y;Intensity\n0;12,5;13,25;900\n3;1;2;4,5\n",
        "frame,x,y,intensity\n0,12.5,13.25,900\n3,1.0,2.0,4.5\n",
        "frame, x, y, intensity\n0, 12.5, 13.25, 900\n3, 1.0, 2.0, 4.5\n",
        "# made by a script\n# frame x y intensity\n0 12.5 13.25 900\n3 1 2 4.5\n",
        "\n\n# a comment\n0.0 1.25e1 13.25 9e2\n\n# in between\n3.0 1.0 2.0 4.5\n",
        '"frame","x_px","y_px","photons"\n0,12.5,13.25,900\n3,1,2,4.5\n',
        "y [px] x [px] frame intensity [ADU]\n13.25 12.5 0 900\n2 1 3 4.5\n",
        ",frame,x,y,sigma,intensity\n0,0,12.5,13.25,1.1,900\n1,3,1,2,1.0,4.5\n",
        "   0   12.5   13.25   900  \n   3    1.0    2.00   4.5\n",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_any_usual_form(text: str, encoding: str) -> None:
    found = read(text, encoding)
    assert np.column_stack((found.frames, found.positions, found.intensities)).tolist() == WANTED
    assert not found.invalid


@pytest.mark.parametrize("unit", ["x [nm]", "x_nm", "x (um)", "x[µm]"])
def test_lengths_in_other_units_are_refused(unit: str) -> None:
    with pytest.raises(Refusal, match="wrong_unit"):
        read(f"frame,{unit},y,intensity\n0,1,2,3\n")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("frame x y intensity\n0 0 12.5 13.25 900\n", "ambiguous_columns"),  # row names without a name
        ("0 0 12.5 13.25 900\n", "ambiguous_columns"),
        ("1 2\n", "ambiguous_columns"),
        ("time x y\n0 1 2\n", "missing_columns"),
        ("x y intensity\n0 1 2\n", "missing_columns"),
        ("# nothing but a comment\n", "empty_file"),
    ],
)
def test_what_is_ambiguous_is_refused(text: str, code: str) -> None:
    with pytest.raises(Refusal, match=code):
        read(text)


def test_rows_that_are_none_are_kept_as_such() -> None:
    found = read("frame x y intensity\n0 1 2 3\n1 1\nx y z w\n2 1 2 nan\n")
    assert found.frames.tolist() == [0, 0, 0, 2]
    assert np.isnan(found.positions).any(axis=1).tolist() == [False, True, True, False]
    assert [line for line, _ in found.invalid] == [3, 4]
    assert np.isnan(found.intensities[3])


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = read(text.replace("\ud800", ""), "utf-8")
    except (Refusal, UnicodeEncodeError):
        return
    assert len(found.frames) == len(found.positions) == len(found.intensities)
