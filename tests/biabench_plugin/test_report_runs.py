"""Runs are read from campaigns, JUnit files, leaderboard entries and CSVs in any mix, each run once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from agents.base import Usage
from biabench_plugin import checkout
from biabench_plugin.billing import Bill, Bills
from biabench_plugin.cli import app
from biabench_plugin.endstate import EndState
from biabench_plugin.records import DatasetIdentity, TrialRecord, junit_properties, write_record
from biabench_plugin.report import runs as runs_module
from biabench_plugin.report import stats
from biabench_plugin.report.claims import published_claim
from biabench_plugin.report.runs import PAPER, RunError, load_runs, paper_runs, with_paper, write_runs
from biabench_plugin.report.study import studies
from biabench_plugin.report.tables_paper import signals
from biabench_plugin.taskspec import TaskSpec, load_tasks
from evaluators.model import OutcomeScore

FULL = DatasetIdentity(kind="full", name="full", revision="v1.0", input_digest="a", truth_digest="b")
Add = Callable[..., TrialRecord]


@pytest.fixture(scope="module")
def tasks() -> dict[str, TaskSpec]:
    return load_tasks(checkout.TASKS)


@pytest.fixture
def add(tmp_path: Path, make_record: Callable[..., TrialRecord]) -> Add:
    """Write a record of a run into the campaign at ``tmp_path / "campaign"``."""

    def write(
        outcome: float, *, task: str = "cell_counting", agent: str = "codex", repeat: int = 1, **more: Any
    ) -> TrialRecord:
        folder = f"runs/{task}/{agent}+m-brief/r{repeat}/attempt-1"
        record = make_record(
            task=task,
            agent=agent,
            configuration=f"{agent}[m-brief]",
            model="m",
            repeat=repeat,
            run_folder=folder,
            synthetic=False,
            score=OutcomeScore(
                outcome=outcome, strict=outcome / 2, delivered=True, evaluator="e", evaluator_version="1"
            ),
            **more,
        )
        write_record(record, tmp_path / "campaign" / folder)
        return record

    return write


def entry(tmp_path: Path, **changes: Any) -> Path:
    """Write a leaderboard entry with one task and three runs."""
    runs = [
        {"run_id": "a", "status": "delivered", "outcome": 0.5, "process": 0.8, "wall_min": 10, "cost_usd": 1.5},
        {"run_id": "b", "status": "crash", "outcome": 0.0, "process": None, "wall_min": 2, "input_tokens": 1000},
        {"run_id": "c", "status": "refused", "outcome": None},
    ]
    content: dict[str, Any] = {
        "schema_version": "1",
        "id": "community-x-brief",
        "agent": {"name": "X", "class": "biology"},
        "model": {"name": "Kimi K2.6", "identifier": "moonshotai/kimi-k2.6"},
        "settings": {"instruction_level": "brief", "judge_model": "j", "cost_provenance": "billed"},
        "tasks": {"smlm-localization-dnapaint": {"runs": runs}},
    }
    path = tmp_path / "community-x-brief.json"
    path.write_text(json.dumps(content | changes))
    return path


def test_a_mix_gives_every_run_once(tmp_path: Path, add: Add, tasks: dict[str, TaskSpec]) -> None:
    add(0.4, dataset=FULL)
    record = add(0.6, dataset=FULL, repeat=2)
    cells = "".join(
        f'<property name="{name}" value="{value}"/>'
        for name, value in junit_properties(record, tmp_path / "campaign" / record.run_folder / "record.json")
    )
    junit = tmp_path / "junit.xml"
    junit.write_text(
        f"<testsuites><testsuite><testcase><properties>{cells}</properties></testcase></testsuite></testsuites>"
    )
    runs = load_runs([PAPER / "runs.csv", junit, tmp_path / "campaign", entry(tmp_path), PAPER / "runs.csv"], tasks)
    assert len(runs) == 720 + 2 + 3
    own = [run for run in runs if run.configuration == "codex[m-brief]"]
    assert sorted(run.outcome or 0 for run in own) == [0.4, 0.6]
    assert {run.source for run in own} == {"record"}
    (study,) = studies(runs, tasks)  # published data, one study
    assert len(study.grid.configurations) == 17


def test_junit_without_its_records_still_counts(tmp_path: Path, add: Add, tasks: dict[str, TaskSpec]) -> None:
    record = add(0.6, wall_seconds=90.0, timed_out=True)
    cells = "".join(
        f'<property name="{name}" value="{value}"/>'
        for name, value in junit_properties(record, Path("/gone/record.json"))
    )
    junit = tmp_path / "junit.xml"
    junit.write_text(
        f"<testsuites><testsuite><testcase><properties>{cells}</properties></testcase></testsuite></testsuites>"
    )
    (run,) = load_runs([junit], tasks)
    assert (run.outcome, run.strict, run.wall_minutes, run.timed_out) == (0.6, 0.3, 1.5, True)
    assert (run.source, run.agent_class, run.scored) == ("junit", "general", True)
    assert load_runs([junit, tmp_path / "campaign"], tasks)[0].source == "record"  # the record says more, and once
    assert len(load_runs([junit, tmp_path / "campaign"], tasks)) == 1


def test_entries_are_read(tmp_path: Path, tasks: dict[str, TaskSpec]) -> None:
    runs = load_runs([entry(tmp_path)], tasks)
    assert [(run.task, run.status, run.outcome) for run in runs] == [
        ("dna_paint", "delivered", 0.5),
        ("dna_paint", "crashed", 0.0),
        ("dna_paint", "refused", None),
    ]
    assert stats.grid(runs).means[0] == 0.25  # a crash counts, a refusal does not
    assert (runs[0].agent_class, runs[0].weights, runs[0].cost_source, runs[0].judge) == (
        "biology",
        "open",
        "billed",
        "j",
    )
    assert runs[0].timed_out is None  # an entry does not say


def test_signals_are_those_of_the_records(tmp_path: Path, add: Add, tasks: dict[str, TaskSpec]) -> None:
    add(0.4, usage=Usage(input_tokens=10, cached_tokens=4, output_tokens=2, executed_blocks=3, source="relay"))
    add(0.4, repeat=2, usage=Usage(input_tokens=10, output_tokens=2, source="relay"))
    (study,) = studies(load_runs([tmp_path / "campaign"], tasks), tasks)
    found = signals(study)
    row = dict(zip((column.key for column in found.columns), found.rows[0], strict=True))
    assert (row["tokens"], row["cached"], row["reasoning"], row["executed"], row["cost"]) == (1.0, 0.5, 0.0, 0.5, 0.0)
    (paper,) = studies(load_runs([PAPER / "runs.csv"], tasks), tasks)
    row = dict(zip((column.key for column in found.columns), signals(paper).rows[0], strict=True))
    assert row["executed"] is None  # the study's rows do not say
    assert row["cached"] is None


@pytest.mark.parametrize(
    ("usage", "bill", "expected"),
    [
        (Usage(cost_usd=0.5, cost_source="provider, per request", source="relay"), None, (0.5, "billed")),
        (Usage(cost_usd=0.5, cost_source="price table of 2026-01-01", source="relay"), None, (0.5, "list_price")),
        (Usage(cost_usd=0.5, cost_source="price table of 2026-01-01", source="relay"), 0.7, (0.7, "billed")),
        (Usage(source="relay"), 0.7, (0.7, "billed")),
        (Usage(source="relay"), None, (None, None)),
    ],
)
def test_a_cost_is_the_bill_where_there_is_one(
    tmp_path: Path, add: Add, tasks: dict[str, TaskSpec], usage: Usage, bill: float | None, expected: tuple[Any, Any]
) -> None:
    record = add(0.4, usage=usage)
    if bill is not None:
        found = Bill(export="e.csv", sha256="0", imported=record.started, rows=1, cost_usd=bill, joined_by=["request"])
        (tmp_path / "campaign" / record.run_folder / "bills.json").write_text(Bills(bills=[found]).model_dump_json())
    (run,) = load_runs([tmp_path / "campaign"], tasks)
    assert (run.cost_usd, run.cost_source) == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.encode("latin-1", "replace") + b"\xe9", "in UTF-8"),
        (lambda text: (text + text.splitlines()[1].replace("Agentic-J", "Other")).encode(), "has one agent"),
        (lambda text: text.replace("3d-light-sheet-brain-vessels", "foo").encode(), "task 'foo' is none of"),
        (lambda text: (text + '"' + "x" * 200_000).encode(), "as CSV"),
    ],
    ids=["encoding", "two agents", "unknown task", "huge field"],
)
def test_a_run_csv_that_cannot_be_right_is_refused(
    tmp_path: Path, tasks: dict[str, TaskSpec], change: Callable[[str], bytes], words: str
) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(change((PAPER / "runs.csv").read_text()))
    with pytest.raises(RunError, match=words):
        load_runs([path], tasks)


def test_runs_csv_is_read_back(tmp_path: Path, add: Add, tasks: dict[str, TaskSpec]) -> None:
    add(0.4, final_message="All done.", timed_out=True)
    add(0.0, repeat=2, status=EndState.REFUSED)
    first = load_runs([tmp_path / "campaign", PAPER / "runs.csv"], tasks)
    write_runs(first, tmp_path / "runs.csv")
    second = load_runs([tmp_path / "runs.csv"], tasks)
    write_runs(second, tmp_path / "again.csv")
    assert (tmp_path / "runs.csv").read_bytes() == (tmp_path / "again.csv").read_bytes()
    assert [(run.key, run.outcome, run.timed_out, run.claim) for run in first] == [
        (run.key, run.outcome, run.timed_out, run.claim) for run in second
    ]


def test_compare_paper_refuses_demo_data(tmp_path: Path, add: Add, tasks: dict[str, TaskSpec]) -> None:
    add(0.9)
    runs = load_runs([tmp_path / "campaign"], tasks)
    with pytest.raises(RunError, match="demo"):
        with_paper(runs, tasks)
    done = CliRunner().invoke(app, ["report", str(tmp_path / "campaign"), "--compare", "paper"])
    assert done.exit_code == 2
    assert not (tmp_path / "campaign" / "report" / "tables").exists()


def test_compare_paper_puts_a_configuration_among_them(tmp_path: Path, add: Add, tasks: dict[str, TaskSpec]) -> None:
    for task in tasks:
        for repeat in (1, 2, 3):
            add(0.6, task=task, repeat=repeat, dataset=FULL)
    (study,) = studies(with_paper(load_runs([tmp_path / "campaign"], tasks), tasks), tasks)
    place = study.grid.configurations.index("codex[m-brief]")
    assert place == 4  # below 0.631, above 0.588
    assert study.bootstrap.interval(place).value == pytest.approx(0.6)
    assert all(run.process is None for run in study.runs if run.source == "record")


def test_only_the_published_view_stands_beside_the_paper(tasks: dict[str, TaskSpec]) -> None:
    run = paper_runs(tasks)[0]
    mine = replace(run, configuration="mine", process=0.9, process_published=0.7, source="record")
    assert with_paper([mine], tasks)[0].process == 0.7


class _Judged:
    """Stands for the modules of the process score: one judgement of three items."""

    view = SimpleNamespace(score=0.8, published=0.7, auditability=0.1, judge="m", protocol_version="2")
    judgement = SimpleNamespace(
        judge="m",
        decisions=[SimpleNamespace(item=n, verdict=v) for n, v in enumerate(("pass", "fail", "unknown", "pass"))],
    )

    @classmethod
    def store(cls) -> SimpleNamespace:
        return SimpleNamespace(latest=lambda _folder: cls.view, judgements=lambda _folder: [cls.judgement])

    @staticmethod
    def load_rubric() -> list[SimpleNamespace]:
        return [SimpleNamespace(section=name) for name in ("tracking", "tracking", "tracking", "tool-use")]


def test_judgements_of_an_attempt_are_read(
    tmp_path: Path, add: Add, tasks: dict[str, TaskSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = add(0.4, final_message="Done; I will write the table.")
    assert load_runs([tmp_path / "campaign"], tasks)[0].process is None
    folder = tmp_path / "campaign" / record.run_folder
    (folder / "judgements").mkdir()
    (folder / "tags.json").write_text('{"schema_version": 1, "tags": [{"tag": "wrong method", "by": "rule"}]}')
    monkeypatch.setattr(runs_module, "store", _Judged.store())
    monkeypatch.setattr(runs_module, "load_rubric", _Judged.load_rubric)
    (run,) = load_runs([tmp_path / "campaign"], tasks)
    assert (run.process, run.process_published, run.judge) == (0.8, 0.7, "m, protocol 2")
    assert run.sections == {"tracking": (1, 2), "tool-use": (1, 1)}
    assert run.tags == ("wrong method",)
    assert (run.claim, run.claim_published) == ("promised", "claimed")
    monkeypatch.setattr(_Judged, "view", None)
    assert load_runs([tmp_path / "campaign"], tasks)[0].judge is None
    (folder / "tags.json").write_text("[]")
    with pytest.raises(RunError, match=r"tags\.json"):
        load_runs([tmp_path / "campaign"], tasks)


def test_bad_files_are_named(tmp_path: Path, tasks: dict[str, TaskSpec]) -> None:
    with pytest.raises(RunError, match="no such campaign folder"):
        load_runs([tmp_path / "none"], tasks)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(RunError, match=r"notes\.txt: expected"):
        load_runs([tmp_path / "notes.txt"], tasks)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(RunError, match=r"other\.csv: is no run CSV: columns .*outcome"):
        load_runs([tmp_path / "other.csv"], tasks)
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(RunError, match=r"other\.json: is no leaderboard entry"):
        load_runs([tmp_path / "other.json"], tasks)
    bad = {"run_id": "a", "status": "delivered", "outcome": 1.5}
    with pytest.raises(RunError, match=r"at most 1: 1\.5"):
        load_runs([entry(tmp_path, tasks={"smlm-localization-dnapaint": {"runs": [bad]}})], tasks)
    bad |= {"status": "great", "outcome": 0.5}
    with pytest.raises(RunError, match="status 'great'"):
        load_runs([entry(tmp_path, tasks={"smlm-localization-dnapaint": {"runs": [bad]}})], tasks)
    header, line = (PAPER / "runs.csv").read_text().splitlines()[:2]
    (tmp_path / "runs.csv").write_text(f"{header}\n{line.replace('delivered,0.0', 'delivered,nan')}\n")
    with pytest.raises(RunError, match=r"runs\.csv: line 2"):
        load_runs([tmp_path / "runs.csv"], tasks)


def test_a_copied_paper_csv_has_no_classes_but_all_scores(tmp_path: Path, tasks: dict[str, TaskSpec]) -> None:
    shutil.copy(PAPER / "runs.csv", tmp_path / "elsewhere.csv")
    runs = load_runs([tmp_path / "elsewhere.csv"], tasks)
    assert len(runs) == 720
    assert {run.agent_class for run in runs} == {None}


@pytest.mark.parametrize(
    ("message", "claimed"),
    [
        (None, "unknown"),
        ("  ", "unknown"),
        ("All 27 stacks were processed and the table was saved. Task complete.", "claimed"),
        ("Completed the full analysis without any failures.", "denied"),
        ("I could not finish the last image; the results are incomplete.", "denied"),
        ("Successfully segmented. I'll continue with the next step and deliver the table.", "claimed"),
        (f"{'.' * 1500} done", "denied"),
        ("Here is a description of the cells.", "denied"),
    ],
)
def test_claims_by_the_papers_words(message: str | None, claimed: str) -> None:
    assert published_claim(message) == claimed
