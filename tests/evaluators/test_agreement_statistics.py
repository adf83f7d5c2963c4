"""Agreement between judge and reviewers: published figures, hand-derived values, simulated raters with known kappa."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from evaluators.process.agreement import (
    FAIL,
    PASS,
    UNDECIDED,
    agreement,
    between_reviewers,
    cohen_kappa,
    consensus,
    item_counts,
    kappa,
    most_failed,
    often_skipped,
    relation,
    resample,
    run_scores,
    severity_counts,
    tables,
)


def table(decided: list[list[int]]) -> NDArray[np.float64]:
    found = np.zeros((1, 3, 3))
    found[0, :2, :2] = decided
    return found


def simulated(
    rng: np.random.Generator, runs: int, items: int, *, passes: float, over: float, under: float, spread: float = 0.0
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return run, reviewer and judge of raters whose confusion is given; ``spread`` makes the errors of a run alike."""
    run = np.repeat(np.arange(runs), items)
    truth = np.where(rng.random(runs * items) < passes, PASS, FAIL)
    shift = rng.choice([-spread, spread], runs)[run]
    wrong = rng.random(runs * items) < np.where(truth == PASS, under, over) + shift
    return run, truth, np.where(wrong, 1 - truth, truth)


def known_kappa(passes: float, over: float, under: float) -> float:
    """Population kappa of :func:`simulated`, from its definition."""
    observed = passes * (1 - under) + (1 - passes) * (1 - over)
    judged = passes * (1 - under) + (1 - passes) * over
    chance = passes * judged + (1 - passes) * (1 - judged)
    return (observed - chance) / (1 - chance)


def test_the_published_table_gives_the_published_figures() -> None:
    found = agreement(table([[623, 48], [68, 183]]))
    assert found.both == 922
    assert found.accuracy == pytest.approx(0.874, abs=5e-4)
    assert found.kappa == pytest.approx(0.674, abs=5e-4)
    assert found.estimates["over_credit"].value == pytest.approx(68 / 251)
    assert found.estimates["under_credit"].value == pytest.approx(48 / 671)
    assert found.estimates["leniency"].value == pytest.approx(20 / 922)


def test_the_published_abstentions_give_the_published_rates() -> None:
    counts = table([[623, 48], [68, 183]])
    counts[0, :2, UNDECIDED] = 96, 67
    counts[0, UNDECIDED] = 60, 34, 94
    found = agreement(counts).estimates
    assert found["skip_rate"].value == pytest.approx(188 / 1273)
    assert found["abstention"].value == pytest.approx(257 / 1273)
    assert found["skips_abstained"].value == pytest.approx(0.5)
    assert found["abstentions_decided"].value == pytest.approx(163 / 257)


@pytest.mark.parametrize(("passes", "over", "under"), [(0.7, 0.27, 0.07), (0.5, 0.1, 0.1), (0.9, 0.5, 0.02)])
def test_simulated_raters_have_their_known_kappa(passes: float, over: float, under: float) -> None:
    run, reviewer, judge = simulated(np.random.default_rng(1), 20, 5000, passes=passes, over=over, under=under)
    found = agreement(tables(run, reviewer, judge, 20), resample(20, 2000))
    assert found.kappa == pytest.approx(known_kappa(passes, over, under), abs=0.015)
    assert found.estimates["over_credit"].value == pytest.approx(over, abs=0.015)
    assert found.estimates["under_credit"].value == pytest.approx(under, abs=0.015)


def test_raters_who_guess_have_no_kappa_and_copies_have_all() -> None:
    rng = np.random.default_rng(2)
    run, reviewer, _ = simulated(rng, 10, 4000, passes=0.8, over=0.0, under=0.0)
    guessed = rng.permutation(reviewer)
    assert agreement(tables(run, reviewer, guessed, 10)).kappa == pytest.approx(0.0, abs=0.02)
    assert agreement(tables(run, reviewer, reviewer, 10)).kappa == 1.0


def test_kappa_is_undefined_where_both_sides_never_differ_nor_vary() -> None:
    found = agreement(table([[12, 0], [0, 0]]))
    assert found.accuracy == 1.0
    assert found.kappa is None
    assert found.estimates["over_credit"].value is None


def test_kappa_of_three_verdicts_by_hand() -> None:
    # po = 7/10; margins (5, 3, 2) and (4, 4, 2): pe = (20 + 12 + 4) / 100
    counts = np.array([[4, 1, 0], [0, 2, 1], [0, 1, 1]], float)
    assert float(cohen_kappa(counts)) == pytest.approx((0.7 - 0.36) / (1 - 0.36))


def test_bootstrap_is_the_loop_it_replaces_and_repeats() -> None:
    rng = np.random.default_rng(3)
    run, reviewer, judge = simulated(rng, 6, 30, passes=0.6, over=0.3, under=0.1)
    per_run = tables(run, reviewer, judge, 6)
    draws = resample(6, 500, seed=11)
    looped = []
    for row in draws.index:
        members = [np.flatnonzero(run == which) for which in row]
        chosen = np.concatenate(members)
        looped.append(float(kappa(tables(np.zeros_like(chosen), reviewer[chosen], judge[chosen], 1).sum(0))))
    found = agreement(per_run, draws).estimates["kappa"]
    assert (found.low, found.high) == pytest.approx(tuple(np.nanpercentile(looped, [2.5, 97.5])))
    assert agreement(per_run, resample(6, 500, seed=11)).estimates["kappa"] == found
    assert agreement(per_run, resample(6, 500, seed=12)).estimates["kappa"] != found


def test_intervals_hold_whole_runs_together() -> None:
    """Errors that are alike within a run widen the interval; items that are drawn one by one would not show it."""
    rng = np.random.default_rng(4)
    draws = resample(20, 4000)
    width = {}
    for spread in (0.0, 0.15):
        values = simulated(rng, 20, 60, passes=0.7, over=0.2, under=0.2, spread=spread)
        estimate = agreement(tables(*values, 20), draws).estimates["accuracy"]
        assert estimate.low is not None
        assert estimate.high is not None
        width[spread] = estimate.high - estimate.low
    assert width[0.15] > 1.8 * width[0.0]


def test_intervals_cover_the_known_value() -> None:
    rng = np.random.default_rng(5)
    truth = known_kappa(0.7, 0.25, 0.1)
    covered = 0
    for seed in range(60):
        values = simulated(rng, 20, 50, passes=0.7, over=0.25, under=0.1)
        estimate = agreement(tables(*values, 20), resample(20, 600, seed=seed)).estimates["kappa"]
        assert estimate.low is not None
        assert estimate.high is not None
        covered += estimate.low <= truth <= estimate.high
    assert 50 <= covered <= 60  # 95 % nominal; percentile intervals of 20 clusters fall a little short


def test_one_run_has_no_interval() -> None:
    estimate = agreement(table([[5, 1], [1, 5]]), resample(1, 100)).estimates["kappa"]
    assert estimate.value is not None
    assert estimate.low is None


def test_verdicts_outside_the_range_are_refused() -> None:
    with pytest.raises(ValueError, match="from 0 to 2, found -1"):
        tables([0, 0], [PASS, -1], [PASS, PASS], 1)
    with pytest.raises(ValueError, match="one verdict of each side"):
        tables([0], [PASS, FAIL], [PASS], 1)


def test_consensus_needs_a_majority_of_those_who_decided() -> None:
    verdicts = [[PASS, PASS, FAIL, UNDECIDED, PASS], [PASS, FAIL, FAIL, UNDECIDED, UNDECIDED]]
    assert consensus(verdicts).tolist() == [PASS, UNDECIDED, FAIL, UNDECIDED, PASS]


def test_run_scores_weigh_decided_items_only() -> None:
    scores = run_scores([0, 0, 0, 1], [PASS, FAIL, UNDECIDED, UNDECIDED], [3, 1, 2, 3], 2)
    assert scores[0] == 0.75
    assert np.isnan(scores[1])


def test_relation_of_scores() -> None:
    found = relation([0.1, 0.2, 0.3, 0.4, np.nan], [0.2, 0.3, 0.4, 0.9, 0.5], 500)
    assert found.runs == 4
    assert found.spearman.value == pytest.approx(1.0)
    assert found.pearson.value == pytest.approx(np.corrcoef([0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.4, 0.9])[0, 1])
    assert found.difference == pytest.approx(0.2)
    constant = relation([0.5, 0.5, 0.5], [0.1, 0.2, 0.3], 100)
    assert constant.pearson.value is None


def test_rank_correlation_shares_ranks_between_ties() -> None:
    assert relation([1, 1, 2, 3], [1, 2, 3, 4], 10).spearman.value == pytest.approx(0.9486833)


def test_most_failed_and_often_skipped_items() -> None:
    item = [7] * 4 + [8] * 4 + [9] * 4
    reviewer = [FAIL, FAIL, FAIL, PASS, FAIL, UNDECIDED, UNDECIDED, UNDECIDED, PASS, PASS, FAIL, UNDECIDED]
    judge = [FAIL, PASS, UNDECIDED, PASS, FAIL, FAIL, FAIL, FAIL, PASS, PASS, FAIL, FAIL]
    counts = item_counts(item, reviewer, judge)
    worst = most_failed(counts, least_runs=3)
    assert [(count.item, count.failed, count.decided, count.agreed, count.both) for count in worst] == [
        (7, 3, 4, 2, 3),
        (9, 1, 3, 3, 3),
    ]
    assert [count.item for count in often_skipped(counts)] == [8]


def test_severities_carry_weight_and_failures() -> None:
    found = severity_counts(["critical", "critical", "minor", "minor"], [3, 3, 1, 1], [PASS, PASS, FAIL, UNDECIDED])
    assert [(count.severity, count.decided, count.failed) for count in found] == [("critical", 2, 0), ("minor", 1, 1)]
    assert found[0].weight_share == pytest.approx(6 / 7)
    assert found[1].failure_share == 1.0


def test_reviewers_are_compared_with_and_without_skips() -> None:
    counts = table([[40, 2], [3, 20]])
    counts[0, UNDECIDED, UNDECIDED] = 10
    pair = between_reviewers("kim", "sam", counts)
    assert pair.kappa.value == pytest.approx(float(kappa(counts[0])))
    assert pair.kappa3.value is not None
    assert pair.kappa.value is not None
    assert pair.kappa3.value > pair.kappa.value
