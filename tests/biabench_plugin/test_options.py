"""Option values are checked with one clear sentence."""

from __future__ import annotations

import argparse

import pytest

from biabench_plugin import options


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 90.0),
        ("30s", 30.0),
        ("45m", 2700.0),
        ("4h", 14400.0),
        ("1h30m", 5400.0),
        ("0.5h", 1800.0),
        ("1d", 86400.0),
    ],
)
def test_durations(text: str, expected: float) -> None:
    assert options.seconds(text) == expected


@pytest.mark.parametrize("text", ["", "fast", "-3h", "4 hours", "1h30", "0", "1h-2m", "nan"])
def test_bad_durations(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        options.seconds(text)


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_bad_repeats(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="whole number"):
        options.repeats(text)


@pytest.mark.parametrize("text", ["1.1", "-0.1", "nan", "high"])
def test_bad_share(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="from 0 to 1"):
        options.share(text)
