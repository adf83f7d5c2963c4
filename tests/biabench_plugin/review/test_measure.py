"""Answers and judgements are joined by run and item; judges and views never mix."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biabench_plugin.report import reviews
from biabench_plugin.review.answers import AnswerStore
from biabench_plugin.review.measure import AgreementReport, JudgeAgreement, interval, measure, stated
from biabench_plugin.review.model import ReviewError
from evaluators.process.agreement import Estimate
from evaluators.process.model import Decision, Judgement

JudgeRun = Callable[..., Judgement]
ANSWER = {"pass": "yes", "fail": "no", "unknown": "skip"}


@pytest.fixture
def give(prepared) -> Callable[..., None]:
    """Answer items for a reviewer."""
    store = AnswerStore(prepared.copy, prepared.review)

    def all_items(reviewer: str, answers: dict[tuple[str, int], str]) -> None:
        for (run, item), answer in answers.items():
            store.give(reviewer, run, item, answer, None, "")  # type: ignore[arg-type]

    return all_items


@pytest.fixture
def run_measure(prepared, judgements_of) -> Callable[..., AgreementReport]:
    def run(**options: Any) -> AgreementReport:
        return measure(prepared.campaign, prepared.folder, judgements_of, **{"resamples": 200, **options})

    return run


def every_item(prepared) -> Iterator[tuple[str, int]]:
    for run in prepared.review.runs:
        for item in run.items:
            yield run.id, item


def only(report: AgreementReport, view: str = "ours") -> JudgeAgreement:
    (found,) = [one for one in report.judges if one.view in (view, "both")]
    return found


def simulate(prepared, give, judge_run: JudgeRun, judge: str, wrong: float, seed: int) -> tuple[int, int]:
    """Let a judge repeat the reviewer's answers but for a share ``wrong``; return agreeing and all items."""
    rng = np.random.default_rng(seed)
    agreeing = total = 0
    for entry in prepared.key.entries:
        verdicts = {}
        for item in prepared.review.run(entry.id).items:
            said = "pass" if (item + len(entry.task)) % 3 else "fail"
            give("kim", {(entry.id, item): ANSWER[said]})
            differs = rng.random() < wrong
            agreeing, total = agreeing + (not differs), total + 1
            verdicts[item] = {"pass": "fail", "fail": "pass"}[said] if differs else said
        judge_run(prepared.campaign / entry.run_folder, judge, verdicts)
    return agreeing, total


def test_answers_meet_the_decisions_on_the_same_run_and_item(prepared, give, run_measure, judge_run) -> None:
    agreeing, total = simulate(prepared, give, judge_run, "good", 0.2, 1)
    report = run_measure()
    found = only(report)
    assert (found.overall.both, found.overall.items) == (total, total)
    assert found.overall.accuracy == pytest.approx(agreeing / total)
    assert 0 < agreeing < total
    estimate = found.overall.estimates["kappa"]
    assert estimate.low is not None
    assert estimate.value is not None
    assert estimate.low < estimate.value
    assert sum(one.both for one in found.severities.values()) == total
    assert set(found.sections) == {"Input", "Reporting", "Quantification"}
    specific = found.kinds["task-specific items"]  # items 5 and 6
    assert specific.both == found.sections["Quantification"].both < found.kinds["general items"].both
    assert report.reference == "kim"


def test_judges_stand_side_by_side(prepared, give, run_measure, judge_run) -> None:
    good = simulate(prepared, give, judge_run, "good", 0.0, 1)
    bad = simulate(prepared, give, judge_run, "bad", 0.5, 2)
    report = run_measure()
    accuracies = {one.judge: one.overall.accuracy for one in report.judges}
    assert accuracies == {"good": good[0] / good[1], "bad": pytest.approx(bad[0] / bad[1])}
    assert [one.judge for one in run_measure(judges=["bad"]).judges] == ["bad"]
    with pytest.raises(ReviewError, match="judged by nobody_else"):
        run_measure(judges=["nobody_else"])


def test_the_newest_judgement_counts_and_other_settings_are_another_judge(
    prepared, give, run_measure, judge_run
) -> None:
    (entry, *_) = prepared.key.entries
    folder = prepared.campaign / entry.run_folder
    give("kim", {(entry.id, 1): "yes"})
    judge_run(folder, "j", {1: "pass"}, made=datetime(2026, 3, 1, tzinfo=UTC))
    judge_run(folder, "j", {1: "fail"}, made=datetime(2026, 2, 1, tzinfo=UTC))
    judge_run(folder, "j", {1: "fail"}, settings={"chunk": "10"})
    report = run_measure()
    assert {one.settings.get("chunk"): one.overall.accuracy for one in report.judges} == {None: 1.0, "10": 0.0}
    assert any("several settings" in note for note in report.notes)


def test_settings_that_come_from_the_task_do_not_split_a_judge(prepared, give, run_measure, judge_run) -> None:
    for position, entry in enumerate(prepared.key.entries):
        give("kim", {(entry.id, 1): "yes"})
        settings = {"chunk": "2", "not_applicable": str(position)}
        judge_run(prepared.campaign / entry.run_folder, "j", {1: "pass"}, settings=settings)
    found = only(run_measure())
    assert (found.overall.both, found.settings) == (5, {"chunk": "2"})


def test_errors_and_void_runs_are_neither_abstentions_nor_scored(prepared, give, run_measure, judge_run) -> None:
    one, other, third = prepared.key.entries[:3]
    give("kim", {(entry.id, item): "yes" for entry in (one, other, third) for item in (1, 2, 3)})
    judge_run(prepared.campaign / one.run_folder, "j", {1: "pass", 2: "unknown", 3: "judge_error"})
    judge_run(prepared.campaign / other.run_folder, "j", {1: "fail", 2: "fail", 3: "fail"}, canary_tripped=True)
    found = only(run_measure())
    assert (found.overall.items, found.overall.both, found.errors, found.void_runs) == (2, 1, 1, 1)
    assert found.not_judged == 6
    assert found.overall.estimates["abstention"].value == 0.5


def test_the_published_view_takes_the_judges_own_word(prepared, give, run_measure, judge_run) -> None:
    (entry, *_) = prepared.key.entries
    give("kim", {(entry.id, item): "yes" for item in (1, 2, 3)})
    decisions = [
        Decision(item=1, verdict="unknown", claimed="pass", by="model"),
        Decision(item=2, verdict="pass", by="rule"),
        Decision(item=3, verdict="not_applicable", by="model"),
    ]
    judge_run(prepared.campaign / entry.run_folder, "j", {}, decisions=decisions)
    report = run_measure()
    assert only(report).overall.table[0] == (1, 0, 2)  # the rule's pass; the rest undecided
    assert only(report, "published").overall.table[0] == (1, 0, 2)  # the model's claim; the rule says nothing
    assert [one.view for one in report.judges] == ["ours", "published"]
    assert only(report).by_rule == 1
    assert only(report, "published").by_rule == 0
    assert only(report).agreed == {1: (0, 0), 2: (1, 1), 3: (0, 0)}
    assert only(report, "published").agreed == {1: (1, 1), 2: (0, 0), 3: (0, 0)}


def test_single_items_name_judges_and_views_apart(prepared, give, run_measure, judge_run) -> None:
    simulate(prepared, give, judge_run, "good", 0.0, 1)
    simulate(prepared, give, judge_run, "bad", 0.5, 2)
    entry = prepared.key.entries[0]
    decisions = [Decision(item=1, verdict="unknown", claimed="pass", by="model")]
    judge_run(prepared.campaign / entry.run_folder, "bad", {}, decisions=decisions, settings={"thinking": "1"})
    items = run_measure(judges=["good", "bad"]).reviewed
    assert reviews.judges(items) == ["good", "bad", "bad (ours)", "bad (published)"]
    here = next(item for item in items if (item.run, item.item) == (entry.run_folder, 1))
    assert (here.verdicts["bad (ours)"], here.verdicts["bad (published)"]) == ("unknown", "pass")
    assert all(item.verdicts["good"] == item.expert for item in items)
    assert len(items) == len(list(every_item(prepared)))


def test_several_reviewers_give_a_majority_and_a_kappa_of_their_own(prepared, give, run_measure, judge_run) -> None:
    (entry, *_) = prepared.key.entries
    give("kim", {(entry.id, 1): "yes", (entry.id, 2): "yes", (entry.id, 3): "skip", (entry.id, 4): "no"})
    give("lee", {(entry.id, 1): "yes", (entry.id, 2): "no", (entry.id, 3): "no", (entry.id, 4): "no"})
    judge_run(prepared.campaign / entry.run_folder, "j", dict.fromkeys((1, 2, 3, 4), "pass"))
    report = run_measure()
    assert report.reference == "majority of kim, lee"
    assert only(report).overall.table == ((1, 0, 0), (2, 0, 0), (1, 0, 0))
    (pair,) = report.pairs
    assert (pair.one, pair.other, pair.items, pair.both) == ("kim", "lee", 4, 3)
    assert pair.accuracy.value == pytest.approx(2 / 3)
    assert pair.kappa.value == pytest.approx((2 / 3 - 4 / 9) / (1 - 4 / 9))
    assert only(run_measure(reviewer="lee")).overall.table == ((1, 0, 0), (3, 0, 0), (0, 0, 0))
    with pytest.raises(ReviewError, match="no answers of reviewer 'max'; answered by: kim, lee"):
        run_measure(reviewer="max")


def test_items_without_an_answer_stay_out(prepared, give, run_measure, judge_run) -> None:
    (entry, *_) = prepared.key.entries
    judge_run(prepared.campaign / entry.run_folder, "j", dict.fromkeys((1, 2, 3), "pass"))
    with pytest.raises(ReviewError, match="no item was answered"):
        run_measure()
    give("kim", {(entry.id, 1): "skip"})
    report = run_measure()
    assert (report.items, report.runs, only(report).overall.items) == (1, 1, 1)


def test_failed_and_skipped_items_are_listed(prepared, give, run_measure) -> None:
    answers = dict.fromkeys(every_item(prepared), "yes")
    answers |= {key: "no" for key in answers if key[1] == 4}
    answers |= {key: "skip" for key in answers if key[1] == 5}
    give("kim", answers)
    report = run_measure()
    assert report.least_runs == 2  # four tenths of five
    assert (report.failed[0].item, report.failed[0].failed, report.failed[0].decided) == (4, 5, 5)
    assert [count.item for count in report.skipped] == [5]
    assert report.statements[4].startswith("Statement number 4")
    assert any("no reviewed run was judged" in note for note in report.notes)


def test_process_scores_of_runs_are_related(prepared, give, run_measure, judge_run) -> None:
    for position, entry in enumerate(prepared.key.entries):
        items = prepared.review.run(entry.id).items
        give("kim", {(entry.id, item): "yes" if item > position else "no" for item in items})
        judge_run(prepared.campaign / entry.run_folder, "j", {i: "pass" if i > position else "fail" for i in items})
    found = only(run_measure())
    assert found.process.pearson.value == pytest.approx(1.0)
    assert found.process.difference == pytest.approx(0.0)
    assert found.process.runs == 5
    assert found.judge_outcome.pearson.value is None  # all outcomes of this campaign are 0.5


def test_a_run_with_errors_has_no_process_score(prepared, give, run_measure, judge_run) -> None:
    for position, entry in enumerate(prepared.key.entries):
        items = prepared.review.run(entry.id).items
        give("kim", {(entry.id, item): "yes" for item in items})
        verdicts = dict.fromkeys(items, "pass") | ({1: "judge_error"} if position == 0 else {})
        judge_run(prepared.campaign / entry.run_folder, "j", verdicts)
    found = only(run_measure())
    assert (found.errors, found.process.runs, found.judge_outcome.runs) == (1, 4, 4)


def test_evidence_of_each_agent(prepared, give, run_measure, judge_run) -> None:
    for entry in prepared.key.entries:
        silent = entry.agent == "codex"
        items = prepared.review.run(entry.id).items
        give("kim", {(entry.id, item): "skip" if silent and item < 4 else "yes" for item in items})
        judge_run(prepared.campaign / entry.run_folder, "j", dict.fromkeys(items, "unknown" if silent else "pass"))
    for script in prepared.campaign.glob("runs/*/claude_code+brief/r1/attempt-1/submission/run_claude_code.py"):
        script.unlink()
    rows = {row.agent: row for row in run_measure().evidence}
    assert set(rows) == {"codex", "claude_code", "lab_pipeline"}
    assert [rows[agent].runs for agent in sorted(rows)] == [4, 4, 4]
    assert rows["claude_code"].script == 0.0
    assert rows["lab_pipeline"].script == rows["codex"].report == rows["codex"].log == 1.0
    skip_rate = rows["codex"].skip_rate
    assert skip_rate is not None
    assert skip_rate >= 0.5
    assert rows["codex"].abstention == {"j (both)": 1.0}
    assert rows["lab_pipeline"].abstention == {"j (both)": 0.0}


def test_the_report_is_json_and_the_same_twice(prepared, give, run_measure, judge_run) -> None:
    simulate(prepared, give, judge_run, "good", 0.2, 1)
    text = run_measure().to_json()
    assert text == run_measure().to_json()
    assert json.loads(text)["judges"][0]["overall"]["estimates"]["kappa"]["value"] is not None


def test_measured_agreement_is_stated_beside_a_score(prepared, give, run_measure, judge_run) -> None:
    simulate(prepared, give, judge_run, "good", 0.2, 1)
    assert stated(prepared.campaign, "good", "p1") == "not measured"
    report = run_measure()
    (prepared.folder / "agreement.json").write_text(report.to_json())
    kappa = only(report).overall.estimates["kappa"]
    assert stated(prepared.campaign, "good", "p1") == f"κ {interval(kappa)} on {report.items} items of 5 runs"
    assert stated(prepared.campaign, "good", "p1", "published") == stated(prepared.campaign, "good", "p1")
    assert stated(prepared.campaign, "good", "p2") == "not measured"
    assert stated(prepared.campaign, "other", "p1") == "not measured"
    (prepared.folder / "agreement.json").write_text("{")
    with pytest.raises(ReviewError, match=r"agreement\.json"):
        stated(prepared.campaign, "good", "p1")


def test_an_estimate_without_interval_or_value_is_written_so() -> None:
    assert interval(Estimate(0.674, 0.61, 0.73)) == "0.67 [0.61, 0.73]"
    assert interval(Estimate(0.674)) == "0.67"
    assert interval(Estimate(None)) == "–"


def test_a_campaign_that_is_not_the_reviewed_one_is_named(prepared, judgements_of, give, tmp_path: Path) -> None:
    give("kim", {("R01", 1): "yes"})
    with pytest.raises(ReviewError, match="reviewed run R01 is gone"):
        measure(tmp_path, prepared.folder, judgements_of)
