"""`biabench review` and `biabench agreement` as a user types them."""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from biabench_plugin.cli import app
from biabench_plugin.review.answers import AnswerStore
from biabench_plugin.review.model import COPY, REVIEW_FILE, read_key, read_review

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, items_of, judgements_of) -> CliRunner:
    monkeypatch.setattr("biabench_plugin.review.rubric.rubric_items", items_of)
    monkeypatch.setattr("biabench_plugin.review.rubric.rubric_version", lambda: "1")
    monkeypatch.setattr("biabench_plugin.cli.review._judgements", judgements_of)
    return CliRunner()


def test_review_draws_once_and_continues_later(reviewed_campaign: Path, cli: CliRunner, tmp_path: Path) -> None:
    base = ["review", str(reviewed_campaign), "--out", str(tmp_path), "--no-serve"]
    made = cli.invoke(app, [*base, "--sample", "6", "--seed", "2"])
    assert made.exit_code == 0, made.output
    assert "left out: 1 runs of synthetic agents" in made.output
    key = read_key(tmp_path)
    assert (key.sample, key.seed, len(key.entries)) == (6, 2, 6)
    before = (tmp_path / COPY / REVIEW_FILE).read_bytes()
    for again in ([], ["--sample", "6"], ["--seed", "2"]):
        assert cli.invoke(app, [*base, *again]).exit_code == 0
    refused = cli.invoke(app, [*base, "--seed", "3"])
    assert refused.exit_code == 2
    assert "--sample 6 --seed 2" in refused.output
    assert (tmp_path / COPY / REVIEW_FILE).read_bytes() == before


def test_a_sample_that_cannot_cover_is_refused(reviewed_campaign: Path, cli: CliRunner, tmp_path: Path) -> None:
    done = cli.invoke(app, ["review", str(reviewed_campaign), "--out", str(tmp_path), "--no-serve", "--sample", "3"])
    assert done.exit_code == 2
    assert "take at least 4" in done.output


def test_synthetic_agents_take_part_on_request(reviewed_campaign: Path, cli: CliRunner, tmp_path: Path) -> None:
    arguments = ["review", str(reviewed_campaign), "--out", str(tmp_path), "--no-serve", "--synthetic"]
    assert cli.invoke(app, arguments).exit_code == 0
    assert "empty" in {entry.agent for entry in read_key(tmp_path).entries}


def test_a_copy_that_was_sent_is_served_without_the_campaign(prepared_once, tmp_path: Path) -> None:
    copy = tmp_path / "sent"
    copy.symlink_to(prepared_once.copy)  # by whatever name
    process = subprocess.Popen(
        [sys.executable, "-m", "biabench_plugin.cli", "review", str(copy)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", process.stdout.readline())
        assert found is not None
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(found[0], timeout=10) as answer:
            assert "BIABench review" in answer.read().decode()
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=20)[0]
        assert process.returncode == 0
        assert "answers are in" in rest
    finally:
        process.kill()
        process.communicate()


def test_agreement_prints_every_table_and_feeds_the_report(prepared, cli: CliRunner, judge_run, tmp_path: Path) -> None:
    review = read_review(prepared.copy)
    store = AnswerStore(prepared.copy, review)
    for entry in prepared.key.entries:
        items = review.run(entry.id).items
        for item in items:
            store.give("kim", entry.id, item, "no" if item == 4 else "skip" if item == 5 else "yes", None, "")
            store.give("lee", entry.id, item, "no" if item == 4 else "yes", None, "")
        verdicts = {item: "pass" if (item + len(entry.task)) % 4 else "fail" for item in items}
        judge_run(prepared.campaign / entry.run_folder, "judge-one", verdicts)
        judge_run(prepared.campaign / entry.run_folder, "judge-two", dict.fromkeys(items, "pass"))
    done = cli.invoke(app, ["agreement", str(prepared.campaign), "--resamples", "200"])
    assert done.exit_code == 0, done.output
    for wanted in (
        "Judges",
        "judge-one",
        "judge-two",
        "over-credit",
        "by section and severity",
        "Process scores of runs",
        "Reviewers with each other",
        "kim, lee",
        "Severities under review",
        "Failed most often (decided in at least 2 runs)",
        "Evidence by agent",
    ):
        assert wanted in done.output
    report = json.loads((prepared.folder / "agreement.json").read_text())
    assert [one["judge"] for one in report["judges"]] == ["judge-one", "judge-two"]
    for name in ("planted.json", "tags.json"):  # what reviewers must not see; not what a report reads
        for planted in prepared.campaign.rglob(name):
            planted.unlink()
    shown = cli.invoke(app, ["report", str(prepared.campaign), "--out", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    (overall, *_) = csv.DictReader((tmp_path / "report" / "tables" / "tableE2.csv").open())
    first = report["judges"][0]["overall"]
    assert (overall["judge"], overall["n"]) == ("judge-one", str(first["both"]))
    for name in ("accuracy", "kappa", "over_credit", "under_credit"):
        assert float(overall[name]) == pytest.approx(first["estimates"][name]["value"])
    assert (tmp_path / "report" / "figures" / "figure5.svg").is_file()
    one = cli.invoke(app, ["agreement", str(prepared.campaign), "--json", "--judge", "judge-two", "--reviewer", "kim"])
    assert one.exit_code == 0, one.output
    parsed = json.loads(one.stdout)
    assert parsed["reference"] == "kim"
    assert [count["item"] for count in parsed["skipped"]] == [5]
    assert parsed["resamples"] == 10_000


def test_faults_are_told_in_a_sentence(prepared, cli: CliRunner, tmp_path: Path) -> None:
    for arguments, words in (
        (["review", str(tmp_path / "none")], "no such folder"),
        (["review", str(tmp_path)], "holds no run"),
        (["agreement", str(tmp_path)], "key.json: cannot be read"),
        (["agreement", str(prepared.campaign)], "no item was answered"),
    ):
        done = cli.invoke(app, arguments)
        assert done.exit_code == 2
        assert words in done.output
        assert "Traceback" not in done.output


def test_reviewers_answer_the_items_that_the_rubric_selects_for_a_task(task_specs) -> None:
    rubric = pytest.importorskip("evaluators.process.rubric", reason="the rubric is not in this checkout").load_rubric()
    from biabench_plugin.review.rubric import rubric_items, rubric_version

    assert rubric_version() == rubric.version
    for task in task_specs.values():
        items = rubric_items(task)
        assert {item.number for item in items} == {item.id for item in rubric.select(task.rubric_sections)} - set(
            task.not_applicable
        )
        assert all(item.weight == {"critical": 3, "major": 2, "minor": 1}[item.severity] for item in items)
        assert all(item.statement and item.evidence for item in items)


def test_judgements_come_from_the_judges_store(prepared, judge_run) -> None:
    store = pytest.importorskip("evaluators.process.store", reason="the judge's store is not in this checkout")
    from biabench_plugin.cli.review import _judgements

    folder = prepared.campaign / prepared.key.entries[0].run_folder
    (folder / "judgements" / "planted.json").unlink()
    judgement = judge_run(folder, "j", {1: "pass"})
    assert list(_judgements(folder)) == store.judgements(folder) == [judgement]
