"""Records survive: atomic writes, one rule for the attempt that counts, properties without invented zeros."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.base import Usage
from biabench_plugin import records
from biabench_plugin.endstate import EndState
from biabench_plugin.records import (
    RecordError,
    TrialRecord,
    current_attempt,
    junit_properties,
    read_record,
    write_atomically,
    write_record,
)


def test_record_reads_back_as_written(tmp_path: Path, make_record: Callable[..., TrialRecord]) -> None:
    record = make_record()
    assert read_record(write_record(record, tmp_path)) == record


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema_version": 1}'])
def test_damaged_record_names_its_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(RecordError, match=r"record\.json"):
        read_record(path)


def test_newer_schema_is_refused(tmp_path: Path, make_record: Callable[..., TrialRecord]) -> None:
    path = write_record(make_record(), tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 99}), encoding="utf-8")
    with pytest.raises(RecordError, match="newer"):
        read_record(path)


def test_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.json"
    write_atomically(path, "old")

    def fail(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_first_valid_attempt_of_the_newest_experiment_counts(make_record: Callable[..., TrialRecord]) -> None:
    fault = make_record(attempt=1, infrastructure="node lost")
    first = make_record(attempt=2)
    second = make_record(attempt=3)
    assert current_attempt([second, fault, first]) is first
    edited = make_record(attempt=4, resume_key="other")
    assert current_attempt([fault, first, second, edited]) is edited
    assert current_attempt([fault]) is fault
    assert current_attempt([fault, first, second, edited], key="k") is first
    refused = make_record(attempt=1, status=EndState.REFUSED)
    assert current_attempt([refused]) is refused
    assert current_attempt([refused, first]) is first


def test_absent_signals_give_no_property(make_record: Callable[..., TrialRecord]) -> None:
    found = dict(junit_properties(make_record(), Path("record.json")))
    assert found["biabench.outcome"] == "0.500000"
    for name in ("strict", "input_tokens", "cost_usd", "tool_calls", "model", "infrastructure"):
        assert f"biabench.{name}" not in found
    measured = dict(junit_properties(make_record(usage=Usage(input_tokens=0)), Path("record.json")))
    assert measured["biabench.input_tokens"] == "0"


def test_what_counts(make_record: Callable[..., TrialRecord]) -> None:
    assert make_record(status=EndState.CRASHED).counts
    assert not make_record(status=EndState.REFUSED).counts
    assert not make_record(infrastructure="gateway").counts
    assert not make_record(input_changed=True).counts


def test_schema_version_is_written(tmp_path: Path, make_record: Callable[..., TrialRecord]) -> None:
    path = write_record(make_record(), tmp_path)
    assert json.loads(path.read_text())["schema_version"] == records.SCHEMA_VERSION
