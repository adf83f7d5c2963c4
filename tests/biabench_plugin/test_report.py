"""Reports are views of records: right means, honest marks, hostile text kept as text."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from biabench_plugin.endstate import EndState
from biabench_plugin.records import DatasetIdentity, RecordError, TrialRecord, junit_properties, write_record
from biabench_plugin.report import build
from biabench_plugin.report.rows import Row, from_junit, load
from biabench_plugin.report.summary import summarise
from biabench_plugin.taskspec import load_tasks
from evaluators.model import OutcomeScore, Problem


@pytest.fixture
def add(tmp_path: Path, make_record: Callable[..., TrialRecord]) -> Callable[..., TrialRecord]:
    """Write one record into the campaign at ``tmp_path``."""

    def write(
        task: str, configuration: str, outcome: float, *, repeat: int = 1, attempt: int = 1, **changes: Any
    ) -> TrialRecord:
        folder = f"runs/{task}/{configuration.replace('[', '+').rstrip(']')}/r{repeat}/attempt-{attempt}"
        record = make_record(
            trial=f"tasks/{task}/task.yaml::{configuration}-{repeat}",
            task=task,
            agent=configuration.partition("[")[0],
            configuration=configuration,
            repeat=repeat,
            attempt=attempt,
            run_folder=folder,
            synthetic=False,
            score=OutcomeScore(
                outcome=outcome, strict=outcome / 2, delivered=True, evaluator="e", evaluator_version="1"
            ),
            **changes,
        )
        write_record(record, tmp_path / folder)
        return record

    return write


def test_mean_is_over_tasks_then_repeats(tmp_path: Path, add: Callable[..., TrialRecord]) -> None:
    for repeat, outcome in enumerate((0.0, 0.3, 0.9), start=1):
        add("a", "x[brief]", outcome, repeat=repeat)
    add("b", "x[brief]", 1.0)
    (line,) = summarise(load([tmp_path]))
    assert line.outcome == pytest.approx((0.4 + 1.0) / 2)
    assert line.strict == pytest.approx(0.35)
    assert line.outcome_sd == pytest.approx(0.6 / 2**0.5)
    assert line.cells["a"].scored == 3


def test_refused_and_faulty_trials_leave_the_means_and_are_counted(
    tmp_path: Path, add: Callable[..., TrialRecord]
) -> None:
    add("a", "x[brief]", 0.8)
    add("a", "x[brief]", 0.0, repeat=2, status=EndState.REFUSED)
    add("a", "x[brief]", 0.0, repeat=3, status=EndState.CRASHED, infrastructure="node lost")
    add("a", "x[brief]", 0.0, repeat=4, status=EndState.CRASHED)
    (line,) = summarise(load([tmp_path]))
    assert line.outcome == pytest.approx(0.4)
    assert line.end_states == "1/0/1/1"
    assert line.infrastructure == 1


def test_datasets_are_never_pooled(tmp_path: Path, add: Callable[..., TrialRecord]) -> None:
    add("a", "x[brief]", 0.2)
    full = DatasetIdentity(kind="full", name="full", revision="v1.0", input_digest="a", truth_digest="b")
    add("a", "x[brief]", 0.9, repeat=2, dataset=full)
    lines = summarise(load([tmp_path]))
    assert [(line.dataset, line.outcome, line.demo) for line in lines] == [("demo", 0.2, True), ("full", 0.9, False)]


def test_rank_by_strict(tmp_path: Path, add: Callable[..., TrialRecord]) -> None:
    add("a", "x[brief]", 0.9)
    add("a", "y[brief]", 0.8)
    path = tmp_path / "runs/a/y+brief/r1/attempt-1/record.json"
    record = json.loads(path.read_text())
    record["score"]["strict"] = 0.7
    path.write_text(json.dumps(record))
    rows = load([tmp_path])
    assert [line.configuration for line in summarise(rows)] == ["x[brief]", "y[brief]"]
    assert [line.configuration for line in summarise(rows, "strict")] == ["y[brief]", "x[brief]"]


def test_attempts_are_kept_and_the_first_valid_one_counts(tmp_path: Path, add: Callable[..., TrialRecord]) -> None:
    add("a", "x[brief]", 0.0, infrastructure="node lost")
    add("a", "x[brief]", 0.3, attempt=2)
    add("a", "x[brief]", 0.9, attempt=3)
    (row,) = load([tmp_path])
    assert row.outcome == 0.3
    assert row.attempts == 3


def test_hostile_text_stays_text(tmp_path: Path, add: Callable[..., TrialRecord]) -> None:
    payload = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
    record = add("a", "x[brief]", 0.3)
    assert record.score is not None
    record.score.problems.append(Problem(code="bad", where=payload, message=payload))
    write_record(record, tmp_path / record.run_folder)
    made = build([tmp_path], tmp_path, {})
    page = made.page.read_text()
    trial = next((tmp_path / "report" / "trials").glob("*.html")).read_text()
    for text in (page, trial):
        assert payload not in text
        assert not re.search(r'<img(?! src="data:)', text)
        assert "default-src 'none'" in text
        assert "unsafe-inline" not in text
    assert page.count("<script") == 1  # our own, allowed by its digest alone
    assert "<script" not in trial
    assert "&lt;script&gt;" in trial


def test_same_records_give_the_same_files(tmp_path: Path, add: Callable[..., TrialRecord]) -> None:
    add("a", "x[brief]", 0.3)
    first = build([tmp_path], tmp_path / "one", {})
    second = build([tmp_path], tmp_path / "two", {})
    assert first.leaderboard.read_bytes() == second.leaderboard.read_bytes()


def test_terminal_summary_fits_and_names_failures(tmp_path: Path, add: Callable[..., TrialRecord]) -> None:
    for number in range(9):
        add("a_task_with_a_long_name", f"configuration-number-{number}[some-long-model-name-brief]", 0.1 * number)
    add("b", "x[brief]", 0.0, status=EndState.CRASHED, status_reason="exit code 3 " * 20)
    lines = build([tmp_path], tmp_path, {}).terminal_lines()
    assert max(map(len, lines[:-2])) <= 100
    assert any(line.startswith("b x[brief] r1: crashed: exit code 3") for line in lines)


def test_terminal_rows_and_colour(tmp_path: Path, add: Callable[..., TrialRecord]) -> None:
    add("a", "good[brief]", 0.9)
    add("a", "bad[brief]", 0.0, status=EndState.NO_DELIVERABLE, status_reason="nothing\nthere")
    made = build([tmp_path], tmp_path, {})
    plain, coloured = made.terminal_lines(), made.terminal_lines(colour=True)
    assert not any("\x1b" in line for line in plain)
    assert any("\x1b" in line for line in coloured)
    assert [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in coloured] == plain
    rows = plain[plain.index(next(line for line in plain if line.startswith("configuration"))) :]
    assert sum(line.startswith("good[brief]") for line in rows) == 1
    assert sum(line.startswith("bad[brief]") for line in rows) == 1
    assert [line for line in plain if "no_deliverable" in line] == ["a bad[brief] r1: no_deliverable: nothing there"]


def test_board_says_who_is_best_and_where_everybody_fails(tmp_path: Path, add: Callable[..., TrialRecord]) -> None:
    for name, scores in {"x": (0.9, 0.1), "y": (0.7, 0.15)}.items():
        for task, score in zip(("a", "b"), scores, strict=True):
            add(task, f"{name}[brief]", score)
    (board,) = build([tmp_path], tmp_path, {}).boards
    assert board.best.startswith("x")
    assert "is best with 0.50" in board.best
    assert "the second, y" in board.certainty
    assert board.hard == ["b"]
    assert [key for key, spot in board.spots.items() if spot.best] == [("x[brief]", "a"), ("y[brief]", "b")]


def test_one_task_settles_nothing(tmp_path: Path, add: Callable[..., TrialRecord]) -> None:
    add("a", "x[brief]", 0.9)
    add("a", "y[brief]", 0.1)
    made = build([tmp_path], tmp_path, {})
    (board,) = made.boards
    assert "is best with 0.90, averaged over 1 task" in board.best
    assert board.certainty.startswith("Next is the second, y")
    assert board.lead is None
    assert all(place.low is None for place in board.places)
    assert "clearly" not in made.page.read_text()
    tables = tmp_path / "report" / "tables"
    assert " – " in (tables / "differences.md").read_text()
    assert "Nothing was repeated" in (tables / "intervals.md").read_text()


def test_without_scores_nobody_fails(tmp_path: Path, add: Callable[..., TrialRecord]) -> None:
    add("a", "x[brief]", 0.0, status=EndState.REFUSED)
    page = build([tmp_path], tmp_path, {}).page.read_text()
    assert "No run has a score." in page
    assert "everybody fails" not in page


def test_what_should_not_be_mixed_is_named(tmp_path: Path, add: Callable[..., TrialRecord]) -> None:
    add("a", "x[brief]", 0.4)
    add("a", "x[brief]", 0.4, repeat=2, effort_requested="high", agent_version="99")
    record = add("a", "y[brief]", 0.4)
    assert record.score is not None
    other = record.model_copy(
        update={
            "score": record.score.model_copy(update={"evaluator_version": "77"}),
            "dataset": record.dataset.model_copy(update={"revision": "other"}),
        }
    )
    write_record(other, tmp_path / record.run_folder)
    made = build([tmp_path], tmp_path, {})
    said = [line for line in made.terminal_lines() if line.startswith("MIXED")]
    assert len(said) == 4
    for words in ("a (demo): runs differ in data", "evaluator: e 1, e 77", "agent version: ", "effort: high, medium"):
        assert any(words in line for line in said), words
    assert made.page.read_text().count("MIXED") == 4


def test_numbers_are_never_cut_and_words_steer_no_terminal(tmp_path: Path, add: Callable[..., TrialRecord]) -> None:
    for number in range(6):
        name = f"deepseek_harness:anthropic-claude-opus-5-{number}[brief]"
        add("a", name, 0.125 * number, status=EndState.NO_DELIVERABLE, status_reason="\x1b[31m red \x07")
    lines = build([tmp_path], tmp_path, {}).terminal_lines()
    assert max(map(len, lines[:-2])) <= 100
    assert not any("\x1b" in line or "\x07" in line for line in lines)
    assert any(line.endswith("configurations") and " of 6 " in line for line in lines)
    rows = [line for line in lines if "-5-3[brief]" in line and "0.375" in line and "0.188" in line]
    assert rows, lines


def test_synthetic_agents_are_never_the_best(tmp_path: Path, add: Callable[..., TrialRecord]) -> None:
    add("a", "x[brief]", 0.4)
    path = tmp_path / add("a", "replay[brief]", 1.0).run_folder / "record.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"synthetic": True}))
    (board,) = build([tmp_path], tmp_path, {}).boards
    assert board.best.startswith("x")
    assert "reached 0.40" in board.best


def test_synthetic_agents_alone_are_not_the_best_either(tmp_path: Path, add: Callable[..., TrialRecord]) -> None:
    for name in ("replay", "empty"):
        path = tmp_path / add("a", f"{name}[brief]", 1.0).run_folder / "record.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"synthetic": True}))
    (board,) = build([tmp_path], tmp_path, {}).boards
    assert "never best" in board.best
    assert (board.certainty, board.hard) == ("", [])


def _junit(path: Path, cases: str) -> Path:
    path.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    return path


def test_junit_gives_what_records_do_not_know(tmp_path: Path, add: Callable[..., TrialRecord]) -> None:
    record = add("a", "x[brief]", 0.25)
    properties = "".join(
        f'<property name="{name}" value="{value}"/>'
        for name, value in junit_properties(record, tmp_path / record.run_folder / "record.json")
    )
    skipped = (
        '<properties><property name="biabench.task" value="b"/><property name="biabench.configuration" '
        'value="x[brief]"/><property name="biabench.dataset" value="demo"/></properties><skipped message="no key"/>'
    )
    junit = _junit(
        tmp_path / "junit.xml",
        f"<testcase><properties>{properties.replace('0.250000', '0.999999')}</properties></testcase>"
        f"<testcase>{skipped}</testcase>",
    )
    rows = {row.task: row for row in load([junit])}
    assert rows["a"].outcome == 0.25  # the record wins
    assert rows["b"].record is None
    assert rows["b"].note == "no key"
    (line,) = summarise(list(rows.values()))
    assert line.not_run == 1
    assert line.outcome == 0.25


def test_moved_campaign_is_still_read(tmp_path: Path, add: Callable[..., TrialRecord]) -> None:
    record = add("a", "x[brief]", 0.25)
    gone = Path("/gone/campaign") / record.run_folder / "record.json"
    cells = "".join(f'<property name="{n}" value="{v}"/>' for n, v in junit_properties(record, gone))
    junit = _junit(tmp_path / "junit.xml", f"<testcase><properties>{cells}</properties></testcase>")
    (row,) = from_junit(junit)
    assert row.record == record
    assert row.folder == tmp_path / "runs/a/x+brief/r1/attempt-1"


def test_bad_inputs_are_named(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_text("<testsuites")
    with pytest.raises(RecordError, match=r"junit\.xml"):
        load([tmp_path / "junit.xml"])
    with pytest.raises(RecordError, match="no such campaign"):
        load([tmp_path / "none"])


def test_row_of_an_item_that_never_ran_counts_nowhere() -> None:
    row = Row("a", "x[brief]", "x", "demo", 1, "skipped", "no key", None, 0, None)
    assert not row.counts
    assert not replace(row, status="delivered").counts


@pytest.mark.full
def test_720_records_take_less_than_20_seconds(tmp_path: Path, add: Callable[..., TrialRecord]) -> None:
    tasks = load_tasks(Path(__file__).resolve().parents[2] / "tasks")
    for agent in range(15):
        for slug in tasks:
            for repeat in (1, 2, 3):
                add(slug, f"a{agent}[brief]", (agent * 7 + repeat * 13 + len(slug)) % 100 / 100, repeat=repeat)
    seconds = []
    for _ in range(2):
        began = time.process_time()
        build([tmp_path], tmp_path, tasks)
        seconds.append(time.process_time() - began)
    print(f"720 records: {seconds[0]:.1f} s of processor time; again {seconds[1]:.1f} s")
    assert max(seconds) < 20
    assert len(list((tmp_path / "report" / "trials").glob("*.html"))) == 720
