"""A report names what the relay saw otherwise than asked for."""

from __future__ import annotations

from collections.abc import Callable

from biabench_plugin.records import TrialRecord
from biabench_plugin.report.rows import Row
from biabench_plugin.report.wire_notes import wire_lines


def row(record: TrialRecord | None) -> Row:
    return Row("tiny", "api[m-brief]", "api", "demo", 1, "delivered", "", record, 1, None)


def test_lines(make_record: Callable[..., TrialRecord]) -> None:
    record = make_record(
        wire={"problems": ["2 requests named the model small"], "unmetered": 1},
        usage_difference={"input_tokens": -5, "cached_tokens": 3},
        transcript_problem="ValueError: a log\nof two lines",
        review=["the model ended with an empty turn"],
    )
    assert wire_lines([row(record), row(None), row(make_record())], 200) == [
        "tiny api[m-brief] r1: WIRE 2 requests named the model small",
        "tiny api[m-brief] r1: USAGE 1 request(s) ended without token counts: tokens and cost are at least these",
        "tiny api[m-brief] r1: USAGE the agent reports otherwise than metered: cached_tokens +3, input_tokens -5",
        "tiny api[m-brief] r1: TRANSCRIPT not read: ValueError: a log of two lines",
        "tiny api[m-brief] r1: REVIEW the model ended with an empty turn",
    ]
    many = wire_lines([row(record)] * 9, 40)
    assert len(many) == 11
    assert many[-1].startswith("… and 35 more")
    assert max(map(len, many[:-1])) <= 40
