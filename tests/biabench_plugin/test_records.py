"""Records survive: atomic writes, one rule for the attempt that counts, properties without invented zeros."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agents.base import Usage
from biabench_plugin import records
from biabench_plugin.endstate import EndState
from biabench_plugin.records import (
    DatasetIdentity,
    Provenance,
    RecordError,
    TrialRecord,
    current_attempt,
    junit_properties,
    read_record,
    write_atomically,
    write_record,
)
from evaluators.model import OutcomeScore


@pytest.fixture
def make_record() -> Callable[..., TrialRecord]:
    def make(**changes: Any) -> TrialRecord:
        values: dict[str, Any] = {
            "trial": "tasks/tiny/task.yaml::empty[brief-r1]",
            "task": "tiny",
            "agent": "empty",
            "agent_version": "1",
            "configuration": "empty[brief]",
            "model": None,
            "instruction_level": "brief",
            "effort_requested": "medium",
            "effort_applied": "no control",
            "repeat": 1,
            "attempt": 1,
            "synthetic": True,
            "resume_key": "k",
            "dataset": DatasetIdentity(kind="demo", name="demo", revision="r", input_digest="a", truth_digest="b"),
            "instruction_digest": "c",
            "status": EndState.DELIVERED,
            "status_reason": "",
            "timed_out": False,
            "quota_exceeded": False,
            "infrastructure": None,
            "score": OutcomeScore(outcome=0.5, delivered=True, evaluator="e", evaluator_version="1"),
            "usage": Usage(),
            "final_message": None,
            "exit_code": 0,
            "signal": None,
            "survivors_killed": 0,
            "log_truncated": False,
            "input_changed": False,
            "budget_seconds": 10.0,
            "network": "open",
            "started": datetime(2026, 1, 1, tzinfo=UTC),
            "wall_seconds": 1.0,
            "evaluation_seconds": 0.1,
            "provenance": Provenance(
                biabench="0",
                commit=None,
                python="3",
                packages={},
                host="h",
                platform="p",
                cpus=1,
                gpu=[],
                isolation={"in_force": True},
            ),
            "run_folder": "runs/tiny/empty-brief/r1/attempt-1",
        }
        return TrialRecord(**(values | changes))

    return make


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
