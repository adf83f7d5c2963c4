"""Agreement of judges and an expert: the published counts, simulated raters with a known kappa, Tables E2 and E3."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from biabench_plugin.report.figures_review import agreement_figures
from biabench_plugin.report.reviews import (
    Reviewed,
    agreement,
    agreement_tables,
    failed_items,
    process_scores,
    read_reviews,
    reviews_below,
    write_reviews,
)
from biabench_plugin.report.runs import RunError

PASS, FAIL = "pass", "fail"


def item(run: str, number: int, expert: str, judge: str, severity: str = "major", **more: object) -> Reviewed:
    return Reviewed(
        run=run,
        agent=f"agent-{run[-1]}",
        item=number,
        statement=f"statement {number}",
        section="segmentation" if number % 2 else "reporting",
        severity=severity,
        expert=expert,
        verdicts={"judge": judge, "other": PASS},
        outcome=more.get("outcome"),  # type: ignore[arg-type]
    )


def raters(true_kappa: float, items: int = 12_000, seed: int = 0) -> list[Reviewed]:
    """Two raters who pass half of the items and agree by chance plus a share of ``true_kappa``."""
    rng = np.random.default_rng(seed)
    expert = rng.random(items) < 0.5
    copied = rng.random(items) < true_kappa
    judged = np.where(copied, expert, rng.random(items) < 0.5)
    words = {True: PASS, False: FAIL}
    return [item(f"run{n % 20}", n % 50, words[bool(expert[n])], words[bool(judged[n])]) for n in range(items)]


def test_published_counts() -> None:
    items = [
        item(f"run{n % 20}", n, expert, judge)
        for (expert, judge), number in {
            (PASS, PASS): 623,
            (PASS, FAIL): 48,
            (FAIL, PASS): 68,
            (FAIL, FAIL): 183,
        }.items()
        for n in range(number)
    ]
    found = agreement(items, "judge", 500)
    assert found.both == 922
    shown = {name: f"{estimate.value:.3f}" for name, estimate in found.estimates.items() if estimate.value is not None}
    assert (shown["accuracy"], shown["kappa"]) == ("0.874", "0.674")
    assert (shown["over_credit"], shown["under_credit"]) == ("0.271", "0.072")


@pytest.mark.parametrize("true", [0.0, 0.4, 0.9])
def test_simulated_raters(true: float) -> None:
    intervals = [agreement(raters(true, 4000, seed), "judge", 400).estimates["kappa"] for seed in range(12)]
    assert np.mean([found.value for found in intervals]) == pytest.approx(true, abs=0.015)
    assert sum(found.low <= true <= found.high for found in intervals) >= 9  # of 95 % intervals


def test_abstentions_leave_agreement_and_are_counted() -> None:
    items = [
        item("a", 1, PASS, PASS),
        item("a", 2, "skip", FAIL),
        item("b", 3, FAIL, "unknown"),
        item("b", 4, FAIL, FAIL),
    ]
    found = agreement(items, "judge", 100)
    assert (found.items, found.both) == (4, 2)
    assert found.accuracy == 1.0
    assert found.estimates["abstention"].value == 0.25


def test_process_score_weighs_by_severity() -> None:
    items = [item("a", 1, PASS, FAIL, "critical"), item("a", 2, FAIL, PASS, "minor"), item("a", 3, "skip", PASS)]
    assert process_scores(items) == {"a": 0.75}
    assert process_scores(items, "judge") == {"a": pytest.approx(3 / 6)}


def test_items_failed_most_often() -> None:
    items = [item(f"run{n}", 1, FAIL if n < 6 else PASS, FAIL) for n in range(20)]
    items += [item(f"run{n}", 2, FAIL, PASS) for n in range(8)]
    items += [item(f"run{n}", 3, FAIL, PASS) for n in range(7)]  # decided too seldom
    rows = [(one.item, count.failed, count.decided, count.agreed, count.both) for one, count in failed_items(items)]
    assert rows == [(2, 8, 8, 0, 8), (1, 6, 20, 6, 20)]


def test_tables_and_figure_are_made() -> None:
    items = raters(0.7, 800)
    e2, e3 = agreement_tables(items)
    assert [row[:2] for row in e2.rows][:2] == [("judge", "all items"), ("other", "all items")]
    assert len(e3.rows) == 12
    (figure,) = agreement_figures(items)
    assert figure.svg.startswith(b"<?xml")
    assert "κ" in figure.alt
    assert agreement_tables([]) == []


def test_reviews_are_read_and_bad_ones_named(tmp_path: Path) -> None:
    path = tmp_path / "reviews.csv"
    header = "run,agent,item,statement,section,severity,expert,outcome,sonnet\n"
    path.write_text(header + "r1,codex,7,Says so.,reporting,minor,fail,0.5,pass\n")
    (found,) = read_reviews(path)
    assert (found.item, found.expert, found.verdicts, found.outcome) == (7, "fail", {"sonnet": "pass"}, 0.5)
    path.write_text(header + "r1,codex,7,Says so.,reporting,minor,perhaps,0.5,pass\n")
    with pytest.raises(RunError, match=r"reviews\.csv: line 2"):
        read_reviews(path)
    path.write_text(header + "r1,codex,7,Says so.,reporting,minor,fail,zz,pass\n")
    with pytest.raises(RunError, match="a number as outcome"):
        read_reviews(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(RunError, match="in UTF-8"):
        read_reviews(path)
    path.write_text("run,agent\n")
    with pytest.raises(RunError, match="expected columns"):
        read_reviews(path)


def test_reviews_are_written_as_they_are_read(tmp_path: Path) -> None:
    items = [item("a,b", 1, PASS, FAIL, outcome=0.5), item("r", 2, "skip", "unknown")]
    items.append(replace(items[0], run="q", verdicts={"other": FAIL}, statement='Says "so",\nand more.'))
    path = tmp_path / "campaign" / "review" / "reviews.csv"
    path.parent.mkdir(parents=True)
    path.write_text(write_reviews(items))
    assert read_reviews(path) == items
    assert [one.run for one in reviews_below([path.parents[1], tmp_path])] == [
        f"{path.parents[1]}/{one.run}" for one in items
    ]
