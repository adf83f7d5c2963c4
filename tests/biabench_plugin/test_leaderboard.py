"""Leaderboard entries: the paper's import and rank as published; every rule of the form is enforced."""

from __future__ import annotations

import copy
import csv
import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agents.base import Usage
from biabench_plugin.cli import app
from biabench_plugin.endstate import EndState
from biabench_plugin.records import DatasetIdentity, TrialRecord, write_record
from biabench_plugin.report import leaderboard
from biabench_plugin.report.leaderboard import About, Entry, EntryError
from biabench_plugin.report.rows import from_campaign
from biabench_plugin.taskspec import load_tasks
from evaluators.model import OutcomeScore

TASKS = load_tasks(Path(__file__).resolve().parents[2] / "tasks")
IDS = [task.dataset_id for task in TASKS.values()]
FULL = DatasetIdentity(kind="full", name="full", revision="v1.0", input_digest="a", truth_digest="b")
ABOUT = About(
    id="lab-agent-brief",
    submitter="A lab",
    contact="lab@example.org",
    submitted=date(2026, 12, 1),
    artifacts_url="https://example.org/runs",
)
run = CliRunner().invoke


def _published() -> list[dict[str, str]]:
    with (leaderboard.PAPER / "aggregates.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


# --- the paper's entries ----------------------------------------------------------------------------------------------


def test_the_paper_ranks_as_published() -> None:
    entries = leaderboard.paper_entries()
    assert len(entries) == 15
    assert sum(len(task.runs) for entry in entries for task in entry.tasks.values()) == 720
    ranked = leaderboard.rank(entries)
    assert [row.id for row in ranked] == [line["entry_id"] for line in _published()]


@pytest.mark.parametrize("line", _published(), ids=lambda line: line["entry_id"])
def test_aggregates_are_those_published(line: dict[str, str]) -> None:
    (entry,) = [entry for entry in leaderboard.paper_entries() if entry.id == line["entry_id"]]
    found = leaderboard.standing(entry)
    for name in ("n_runs", "n_scored", "tasks_scored", "delivered", "no_deliverable", "crash", "refused"):
        assert getattr(found, name) == int(line[name]), name
    for name, printed in line.items():
        mine = {"outcome_sd_tasks": "outcome_sd_tasks_population"}.get(name, name)
        if re.fullmatch(r"\d+\.\d+", printed) and mine in leaderboard.Standing.__dataclass_fields__:
            digits = len(printed.partition(".")[2])
            assert getattr(found, mine) == pytest.approx(float(printed), abs=0.5001 * 10**-digits), name


def test_both_standard_deviations() -> None:
    (entry,) = [e for e in leaderboard.paper_entries() if e.id == "paper-codex-cli-gpt-5.6-sol-brief"]
    found = leaderboard.standing(entry)
    assert found.outcome_sd_tasks_sample == pytest.approx(0.267, abs=5e-4)  # Table 1 of the paper
    assert found.outcome_sd_tasks_population == pytest.approx(0.258, abs=1e-3)  # the public leaderboard


def test_the_papers_entries_keep_every_rule_and_survive_a_round_trip(tmp_path: Path) -> None:
    for entry in leaderboard.paper_entries():
        assert leaderboard.check(entry, IDS, entry.id) == []
        path = tmp_path / f"{entry.id}.json"
        path.write_text(entry.dump())
        assert leaderboard.read_entry(path) == entry


# --- the form ---------------------------------------------------------------------------------------------------------


def test_schema_file_is_current() -> None:
    assert leaderboard.SCHEMA.read_text() == leaderboard.json_schema(), (
        "biabench leaderboard schema > entry_schema.json"
    )


def test_schema_takes_what_we_take() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: the schema file is not tried")
    validator = jsonschema.Draft7Validator(json.loads(leaderboard.SCHEMA.read_text()))
    entry = json.loads(leaderboard.paper_entries()[0].dump())
    validator.validate(entry)
    entry["agent"]["colour"] = "red"
    assert not validator.is_valid(entry)


def _entry() -> dict[str, Any]:
    found = copy.deepcopy(json.loads(leaderboard.paper_entries()[0].dump()))
    assert isinstance(found, dict)
    return found


def _first(entry: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = entry["tasks"][IDS[0]]["runs"][0]
    return found


BROKEN: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "file name": (lambda e: e.update(id="another-id"), "differs from the file name"),
    "missing task": (lambda e: e["tasks"].pop(IDS[0]), f"tasks are missing: {IDS[0]}"),
    "unknown task": (lambda e: e["tasks"].update(x=e["tasks"][IDS[0]]), "unknown tasks: x"),
    "run id twice": (lambda e: _first(e).update(run_id=e["tasks"][IDS[0]]["runs"][1]["run_id"]), "occurs twice"),
    "refused with outcome": (lambda e: _first(e).update(status="refused", outcome=0.4), "refused run has no outcome"),
    "no number": (lambda e: _first(e).update(status="delivered", outcome=None), "needs a number"),
    "nothing scored": (lambda e: _first(e).update(status="no_deliverable", outcome=0.2), "means outcome 0"),
    "crash scored": (lambda e: _first(e).update(status="crash", outcome=0.2), "means outcome 0"),
    "repeats": (lambda e: e["settings"].update(repeats=2), "most tasks have 3 runs"),
    "no judge": (lambda e: e["settings"].update(judge_model=None), "names no judge_model"),
    "no address": (lambda e: e.update(source="community"), "artifacts.url"),
    "no runs": (lambda e: e["tasks"][IDS[0]].update(runs=[]), "has no run"),
    "field": (lambda e: e.update(note="x"), "Extra inputs"),
    "id": (lambda e: e.update(id="A B"), "should match pattern"),
    "outcome above 1": (lambda e: _first(e).update(outcome=1.2), "less than or equal to 1"),
    "negative tokens": (lambda e: _first(e).update(input_tokens=-1), "greater than or equal to 0"),
    "status": (lambda e: _first(e).update(status="great"), "Input should be"),
    "level": (lambda e: e["settings"].update(instruction_level="expert"), "Input should be"),
    "infinite": (lambda e: _first(e).update(cost_usd=float("inf")), "finite number"),
    "text as number": (lambda e: _first(e).update(outcome="0.5"), "valid number"),
    "truth value": (lambda e: _first(e).update(outcome=True), "valid number"),
    "refused and judged": (
        lambda e: _first(e).update(status="refused", outcome=None, process=0.9),
        "refused run has no process score",
    ),
    "schema version": (lambda e: e.update(schema_version="2"), "Input should be '1'"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_every_rule_is_enforced(name: str, tmp_path: Path) -> None:
    entry = _entry()
    path = tmp_path / f"{entry['id']}.json"
    assert leaderboard.check(Entry.model_validate(entry), IDS, path.stem) == []
    breaking, words = BROKEN[name]
    breaking(entry)
    path.write_text(json.dumps(entry))
    result = run(app, ["leaderboard", "check", str(path)])
    assert result.exit_code == 1
    assert words in result.output
    assert str(path) in result.output


def test_a_field_that_stands_twice_is_refused(tmp_path: Path) -> None:
    text = leaderboard.paper_entries()[0].dump()
    path = tmp_path / "x.json"
    path.write_text(text.replace('"id":', '"id": "paper-other", "id":', 1))
    with pytest.raises(leaderboard.EntryError, match="stands twice"):
        leaderboard.read_entry(path)


def test_names_cannot_be_markup() -> None:
    entry = _entry()
    entry["agent"]["name"] = "<script>alert(1)</script>|x"
    text = leaderboard.leaderboard_markdown([Entry.model_validate(entry)])
    assert "<script>" not in text
    assert "&lt;script>alert(1)&lt;/script>\\|x" in text


def test_process_without_scores_but_with_a_judge() -> None:
    entry = _entry()
    for task in entry["tasks"].values():
        for one in task["runs"]:
            one.pop("process", None)
    assert "no process score" in leaderboard.check(Entry.model_validate(entry), IDS)[0]


# --- export -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def campaign(tmp_path: Path, make_record: Callable[..., TrialRecord]) -> Callable[..., Path]:
    """Write a campaign of three repeats on all tasks; ``changes`` go to every record."""

    def write(**changes: Any) -> Path:
        folder = tmp_path / "campaign"
        for slug in TASKS:
            for repeat in (1, 2, 3):
                where = f"runs/{slug}/command+brief/r{repeat}/attempt-1"
                values: dict[str, Any] = {
                    "task": slug,
                    "trial": f"{slug}-{repeat}",
                    "agent": "command",
                    "configuration": "command[brief]",
                    "repeat": repeat,
                    "synthetic": False,
                    "dataset": FULL,
                    "usage": Usage(input_tokens=1000, output_tokens=10, cost_usd=0.5, source="list prices"),
                    "score": OutcomeScore(outcome=0.123456, delivered=True, evaluator="e", evaluator_version="1"),
                    "started": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=repeat),
                    "wall_seconds": 90.0,
                    "run_folder": where,
                }
                write_record(make_record(**(values | changes)), folder / where)
        return folder

    return write


def test_export_checks_and_ranks(campaign: Callable[..., Path], tmp_path: Path) -> None:
    folder = campaign()
    arguments = ["leaderboard", "export", str(folder), "--id=lab-agent-brief", "--submitter=A lab", "--contact=x@y.z"]
    result = run(app, [*arguments, f"--out={tmp_path}", "--artifacts-url=https://example.org/r"])
    assert result.exit_code == 0, result.output
    path = tmp_path / "lab-agent-brief.json"
    assert run(app, ["leaderboard", "check", str(path)]).exit_code == 0
    entry = json.loads(path.read_text())
    assert set(entry["tasks"]) == set(IDS)
    one = entry["tasks"][IDS[0]]["runs"][0]
    assert one == {
        "run_id": "r1-20260101T000100Z",
        "status": "delivered",
        "outcome": 0.1235,
        "wall_min": 1.5,
        "input_tokens": 1000.0,
        "output_tokens": 10.0,
        "cost_usd": 0.5,
    }
    assert entry["settings"]["cost_provenance"] == "list_price"
    assert entry["settings"]["repeats"] == 3
    built = run(app, ["leaderboard", "build", str(path), "--paper", f"--out={tmp_path / 'board'}"])
    assert built.exit_code == 0, built.output
    board = json.loads((tmp_path / "board" / "leaderboard.json").read_text())
    assert [row["rank"] for row in board["entries"]][-1] == 16
    assert board["entries"][-1]["id"] == "lab-agent-brief"
    assert board["updated"] == entry["submitted"]


def test_ends_of_runs_are_translated(campaign: Callable[..., Path], make_record: Callable[..., TrialRecord]) -> None:
    folder = campaign()

    def change(repeat: int, **values: object) -> None:
        path = folder / f"runs/dna_paint/command+brief/r{repeat}/attempt-1/record.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    change(1, status=EndState.REFUSED)
    change(2, status=EndState.CRASHED, score=json.loads(OutcomeScore(
        outcome=0.0, delivered=False, evaluator="e", evaluator_version="1").model_dump_json()))  # fmt: skip
    change(3, infrastructure="node lost")
    entry = leaderboard.export(from_campaign(folder), TASKS, ABOUT)
    runs = entry.tasks[TASKS["dna_paint"].dataset_id].runs
    assert [(one.status, one.outcome) for one in runs] == [("refused", None), ("crash", 0.0)]
    assert "1 run(s) with infrastructure faults" in (entry.artifacts.notes or "")
    assert leaderboard.check(entry, IDS) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"dataset": DatasetIdentity(kind="demo", name="demo", revision="r", input_digest="a", truth_digest="b")},
            "demo",
        ),
        ({"synthetic": True}, "synthetic"),
    ],
)
def test_what_is_no_result_is_refused(changes: dict[str, Any], words: str, campaign: Callable[..., Path]) -> None:
    folder = campaign(**changes)
    result = run(app, ["leaderboard", "export", str(folder), "--id=abc", "--submitter=x", "--contact=y"])
    assert result.exit_code == 2
    assert words in result.output
    assert not Path("abc.json").exists()


def test_a_missing_task_and_a_second_configuration_are_named(campaign: Callable[..., Path]) -> None:
    rows = from_campaign(campaign())
    with pytest.raises(EntryError, match="tasks without a valid run: smlm"):
        leaderboard.export([row for row in rows if row.task != "dna_paint"], TASKS, ABOUT)
    with pytest.raises(EntryError, match="holds command"):
        leaderboard.export(rows, TASKS, ABOUT, "other[brief]")


def test_ties_share_a_rank() -> None:
    first, second = leaderboard.paper_entries()[:2]
    same = second.model_copy(update={"tasks": first.tasks})
    ranked = leaderboard.rank([first, same])
    assert [row.rank for row in ranked] == [1, 1]
