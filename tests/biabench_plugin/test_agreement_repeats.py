"""Repeats are compared without truth, kept in the campaign, and set against the outcome in the report."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from biabench_plugin import checkout
from biabench_plugin.cli import app
from biabench_plugin.datasets import demo_folder
from biabench_plugin.records import TrialRecord, write_record
from biabench_plugin.report import agreement_repeats
from biabench_plugin.report.agreement_repeats import FILE, Pair, compare_repeats, most_typical, read_agreements
from biabench_plugin.report.runs import RunError, load_runs
from biabench_plugin.report.study import Study
from biabench_plugin.taskspec import TaskSpec, load_tasks
from evaluators import TruthError, replay
from evaluators.bounded import agreement_bounded
from evaluators.model import OutcomeScore

TASK = "cell_counting"


@pytest.fixture(scope="module")
def tasks() -> dict[str, TaskSpec]:
    return load_tasks(checkout.TASKS)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the demo data are built, once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def campaign(
    tmp_path: Path,
    tasks: dict[str, TaskSpec],
    make_record: Callable[..., TrialRecord],
    monkeypatch: pytest.MonkeyPatch,
    cache: Path,
) -> Path:
    """Three repeats on demo data: two perfect ones, and one that lost every fourth cell."""
    monkeypatch.setenv("BIABENCH_CACHE", str(cache))
    data = demo_folder(tasks[TASK], 0)
    for repeat, outcome in ((1, 1.0), (2, 1.0), (3, 0.75)):
        folder = f"runs/{TASK}/x+brief/r{repeat}/attempt-1"
        submission = tmp_path / folder / "submission"
        submission.mkdir(parents=True)
        replay(tasks[TASK].outcome, tasks[TASK].deliverables, data / "evaluation", data / "input", submission)
        if repeat == 3:
            for path in submission.rglob("*.csv"):
                lines = path.read_text().splitlines()
                path.write_text("\n".join([lines[0], *(line for k, line in enumerate(lines[1:]) if k % 4)]) + "\n")
        record = make_record(
            task=TASK,
            agent="x",
            configuration="x[brief]",
            repeat=repeat,
            run_folder=folder,
            synthetic=False,
            score=OutcomeScore(outcome=outcome, delivered=True, evaluator="cell_counting", evaluator_version="1"),
        )
        write_record(record, tmp_path / folder)
    return tmp_path


def test_repeats_are_compared_kept_and_shown(campaign: Path, tasks: dict[str, TaskSpec]) -> None:
    done = CliRunner().invoke(app, ["repeats", str(campaign)])
    assert done.exit_code == 0, done.output
    assert "3 pairs of repeats compared" in done.output
    values = {
        (pair.first.split("/")[3], pair.second.split("/")[3]): pair.agreement for pair in read_agreements(campaign)
    }
    alike, one, two = values["r1", "r2"], values["r1", "r3"], values["r2", "r3"]
    assert alike == pytest.approx(1)
    assert one is not None
    assert 0.5 < one < 0.9
    assert one == two
    study = Study("demo", load_runs([campaign], tasks), tasks)
    (table,) = agreement_repeats.tables(study)
    row = {column.key: cell for column, cell in zip(table.columns, table.rows[-1], strict=True)}
    assert row["configuration"] == "all"
    assert (row["runs"], row["pairs"]) == (3, 3)
    assert row["r"] == pytest.approx(1)  # the odd one out is the wrong one
    assert row["typical"] == 1.0
    assert row["mean"] == pytest.approx(2.75 / 3)
    figure = agreement_repeats.figure(study)
    assert figure is not None
    assert "r = 1.00" in figure.alt
    assert figure.svg


def test_unchanged_pairs_are_not_compared_again(
    campaign: Path, tasks: dict[str, TaskSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compare_repeats(campaign, tasks)
    asked: list[Path] = []

    def spy(*arguments: object) -> float:
        asked.append(arguments[2])  # type: ignore[arg-type]
        return 0.5

    monkeypatch.setattr(agreement_repeats, "agreement_bounded", spy)
    assert compare_repeats(campaign, tasks) == first
    assert asked == []
    path = next((campaign / f"runs/{TASK}/x+brief/r3/attempt-1/submission").rglob("*.csv"))
    path.write_text(path.read_text() + "5,5\n")
    changed = compare_repeats(campaign, tasks)
    assert len(asked) == 4  # two pairs with the changed run, in both directions
    assert [pair.agreement for pair in changed].count(0.5) == 2


def test_what_cannot_be_a_reference_is_compared_one_way(campaign: Path, tasks: dict[str, TaskSpec]) -> None:
    submission = campaign / f"runs/{TASK}/x+brief/r3/attempt-1/submission"
    for path in submission.rglob("*.csv"):
        path.write_text("no,such,columns\n")
    (pair,) = [pair for pair in compare_repeats(campaign, tasks) if "/r1/" in pair.first and "/r3/" in pair.second]
    assert pair.agreement == 0.0
    assert pair.problem is not None
    task = tasks[TASK]
    data = demo_folder(task, 0)
    with pytest.raises(TruthError, match="X"):
        agreement_bounded(task.outcome, task.deliverables, submission, submission, data / "input")


def test_a_missing_dataset_is_named(campaign: Path, tasks: dict[str, TaskSpec]) -> None:
    for path in campaign.rglob("record.json"):
        record = json.loads(path.read_text())
        record["dataset"]["name"] = "/no/such/folder"
        path.write_text(json.dumps(record))
    pairs = compare_repeats(campaign, tasks)
    assert [pair.agreement for pair in pairs] == [None] * 3
    assert all("/no/such/folder" in str(pair.problem) for pair in pairs)
    assert agreement_repeats.tables(Study("demo", load_runs([campaign], tasks), tasks))[0].rows == []


def test_a_damaged_file_is_named(campaign: Path) -> None:
    (campaign / FILE).write_text('{"pairs": 3}')
    with pytest.raises(RunError, match=r"agreement\.json"):
        read_agreements(campaign)


def test_most_typical_run_first(campaign: Path, tasks: dict[str, TaskSpec]) -> None:
    runs = sorted(load_runs([campaign], tasks), key=lambda run: run.outcome or 0)
    odd, *alike = runs
    agreement = {odd.key: 0.4, alike[0].key: 0.7, alike[1].key: 0.7}
    ((first, *_rest, last),) = most_typical([odd, *alike], agreement)
    assert (first.outcome, last.outcome) == (1.0, 0.75)
    assert list(most_typical([replace(odd, status="refused")], agreement)) == []


def test_pairs_have_a_form() -> None:
    with pytest.raises(ValueError, match="extra"):
        Pair.model_validate({"surplus": 1})
