"""Statistics on arrays whose answers are derived by hand, or known from how the numbers were drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from biabench_plugin.report import stats
from biabench_plugin.report.runs import Run


def run(outcome: float | None, *, task: str = "a", configuration: str = "x", number: int = 1, **more: object) -> Run:
    values: dict[str, object] = {
        "dataset": "full",
        "configuration": configuration,
        "agent": configuration,
        "model": None,
        "instruction": "brief",
        "task": task,
        "run_id": f"r{number}",
        "status": "delivered",
        "outcome": outcome,
    }
    return Run(**(values | more))  # type: ignore[arg-type]


def grid(values: NDArray[np.float64]) -> stats.Grid:
    """A grid of (configurations, tasks, repeats); ``nan`` where there is no run."""
    runs = [
        run(float(values[c, t, r]), task=f"t{t}", configuration=f"c{c}", number=r)
        for c, t, r in np.ndindex(values.shape)
        if not np.isnan(values[c, t, r])
    ]
    return stats.grid(runs)


def test_means_go_over_repeats_then_tasks_and_leave_refused_runs_out() -> None:
    runs = [run(0.0), run(0.3, number=2), run(0.9, number=3), run(1.0, task="b"), run(None, task="c", status="refused")]
    found = stats.grid(runs)
    assert found.means[0] == pytest.approx((0.4 + 1.0) / 2)
    assert np.isnan(found.task_means[0, found.tasks.index("c")])
    assert found.ranges[0, 0] == pytest.approx(0.9)
    assert np.isnan(found.ranges[0, 1])  # one run has no range
    assert stats.moving(found) == (1, 1)


def test_crashes_and_time_outs_count_faults_do_not() -> None:
    runs = [run(0.0, status="crashed"), run(0.5, number=2, timed_out=True), run(0.9, number=3, status="infrastructure")]
    assert stats.grid(runs).means[0] == pytest.approx(0.25)


def test_bootstrap_over_tasks_has_the_standard_error_of_the_mean() -> None:
    values = np.random.default_rng(1).uniform(size=(1, 16, 1))
    drawn = stats.bootstrap(grid(values), 20_000)
    assert drawn.means[0].std() == pytest.approx(values.std() / 4, rel=0.02)
    assert drawn.means[0].mean() == pytest.approx(values.mean(), abs=0.003)


def test_bootstrap_resamples_the_runs_of_a_task() -> None:
    values = np.array([[[0.1, 0.4, 0.9]]])
    drawn = stats.bootstrap(grid(values), 20_000)
    assert drawn.means[0].std() == pytest.approx(values.std() / 3**0.5, rel=0.02)


def test_a_task_drawn_twice_has_its_runs_resampled_twice() -> None:
    """Two tasks of equal runs: variance of the mean is that of 2 × 3 runs, not of 3."""
    values = np.tile([0.1, 0.4, 0.9], (1, 2, 1))
    drawn = stats.bootstrap(grid(values), 20_000)
    assert drawn.means[0].var() == pytest.approx(values.var() / 6, rel=0.04)


def test_unequal_numbers_of_runs_are_each_drawn_whole() -> None:
    values = np.array([[[0.0, 1.0, np.nan], [0.5, 0.5, 0.5]]])
    drawn = stats.bootstrap(grid(values), 20_000)
    # drawn tasks: half the slots hold task 0, whose mean of two draws has variance 1/8
    assert drawn.means[0].mean() == pytest.approx(0.5, abs=0.005)
    assert drawn.means[0].var() == pytest.approx((1 / 8) * (2 * 0.5) / 4, rel=0.05)


def test_differences_are_paired_by_task() -> None:
    """A constant lead on every task is certain, however much the tasks differ."""
    base = np.linspace(0, 0.8, 16)[None, :, None]
    drawn = stats.bootstrap(grid(np.concatenate([base + 0.1, base])), 2000)
    found, better = drawn.difference(0, 1)
    assert (found.value, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1))
    assert better == 1.0
    assert drawn.interval(0).low < drawn.interval(1).high  # although the intervals overlap


def test_equal_configurations_are_equally_good() -> None:
    values = np.repeat(np.linspace(0, 1, 8)[None, :, None], 2, axis=0)
    found, better = stats.bootstrap(grid(values), 500).difference(0, 1)
    assert (found.low, found.high, better) == pytest.approx((0, 0, 0.5))


def test_differences_go_over_common_tasks() -> None:
    values = np.array([[[0.5], [0.5], [0.9]], [[0.4], [0.4], [np.nan]]])
    found, _better = stats.bootstrap(grid(values), 500).difference(0, 1)
    assert (found.value, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1))


def test_ranks_share_ties() -> None:
    values = np.array([[[0.9]], [[0.5]], [[0.5]], [[0.1]]])
    assert stats.bootstrap(grid(values), 3).ranks()[:, 0].tolist() == [1, 2, 2, 4]


def test_same_seed_same_resamples() -> None:
    values = np.random.default_rng(2).uniform(size=(3, 5, 3))
    assert np.array_equal(stats.bootstrap(grid(values), 100).means, stats.bootstrap(grid(values), 100).means)


@pytest.mark.full
def test_intervals_cover_the_true_mean() -> None:
    """16 tasks × 3 runs, tasks drawn from a population: the figure in docs/statistics.md."""
    rng = np.random.default_rng(3)
    hit = 0
    for _ in range(400):
        level = rng.beta(2, 2, 16)
        values = np.clip(level[None, :, None] + rng.normal(0, 0.12, (1, 16, 3)), 0, 1)
        found = stats.bootstrap(grid(values), 1000).interval(0)
        hit += found.low <= 0.5 <= found.high
    assert 0.90 <= hit / 400 <= 0.98


def test_pass_hat_counts_combinations() -> None:
    scores = grid(np.array([[[0.6, 0.7, 0.1]]]))
    assert [float(stats.pass_hat(scores, k)[0]) for k in (1, 2, 3)] == pytest.approx([2 / 3, 1 / 3, 0])
    assert np.isnan(stats.pass_hat(scores, 4)[0])


def test_worst_and_best_of_two_of_three() -> None:
    scores = grid(np.array([[[0.0, 0.5, 1.0]]]))
    assert stats.worst_of(scores, 2)[0] == pytest.approx(0.5 / 3)  # pairs: 0, 0, 0.5
    assert stats.worst_of(scores, 2, best=True)[0] == pytest.approx(2.5 / 3)


@given(st.lists(st.floats(0, 1), min_size=3, max_size=6), st.integers(1, 3))
def test_worst_of_k_falls_with_k(values: list[float], k: int) -> None:
    scores = grid(np.array([[values]]))
    assert stats.worst_of(scores, k)[0] >= min(values) - 1e-12
    if k > 1:
        assert stats.worst_of(scores, k)[0] <= stats.worst_of(scores, k - 1)[0] + 1e-12


def test_repeats_needed() -> None:
    """d = 0.1 on each of two tasks, run variances 0.01 each: r = (1.960 + 0.842)² · 0.02 / (2 · 0.01) = 7.85."""
    spread = 0.1 * np.array([-1.0, 0.0, 1.0])
    values = np.stack([np.tile(0.6 + spread, (2, 1)), np.tile(0.5 + spread, (2, 1))])
    assert stats.repeats_to_separate(grid(values), 0, 1) == (8, 2)
    assert stats.repeats_to_separate(grid(values), 0, 0) == (None, None)


def test_tasks_needed() -> None:
    """d_t = 0.2 and 0.0: mean 0.1, variance 0.02: T = 7.85 · 0.02 / 0.01 = 15.7."""
    values = np.array([[[0.7], [0.5]], [[0.5], [0.5]]])
    assert stats.repeats_to_separate(grid(values), 0, 1) == (None, 16)


def test_without_repeats_runs_have_no_share() -> None:
    assert stats.shares(grid(np.random.default_rng(1).uniform(size=(3, 4, 1)))) == {}


def test_one_task_gives_no_interval() -> None:
    drawn = stats.bootstrap(grid(np.array([[[0.1, 0.2, 0.3]], [[0.7, 0.8, 0.9]]])), 200)
    assert drawn.interval(0).value == pytest.approx(0.2)
    assert np.isnan(drawn.interval(0).low)
    difference, better = drawn.difference(1, 0)
    assert difference.value == pytest.approx(0.6)
    assert np.isnan([difference.low, difference.high, better]).all()


def test_shares_of_an_additive_design() -> None:
    agent, task = np.array([0.0, 0.2]), np.array([0.0, 0.4, 0.8])
    found = stats.shares(grid((agent[:, None] + task[None])[..., None].repeat(3, axis=2)))
    assert found["interaction"] == pytest.approx(0, abs=1e-12)
    assert found["run"] == pytest.approx(0, abs=1e-12)
    assert found["agent"] / found["task"] == pytest.approx(agent.var() / task.var())


@given(st.integers(0, 10_000))
def test_shares_add_up_in_either_order(seed: int) -> None:
    values = np.random.default_rng(seed).uniform(size=(3, 4, 2))
    values[0, 0, 1] = np.nan  # unbalanced
    for first in ("task", "agent"):
        found = stats.shares(grid(values), first)
        assert sum(found.values()) == pytest.approx(1)
        assert min(found.values()) >= -1e-9


def test_variance_components_are_recovered() -> None:
    """40 agents × 60 tasks × 3 runs with known standard deviations."""
    rng = np.random.default_rng(4)
    agent, task, both, noise = 0.1, 0.3, 0.15, 0.2
    values = (
        rng.normal(0, agent, (40, 1, 1))
        + rng.normal(0, task, (1, 60, 1))
        + rng.normal(0, both, (40, 60, 1))
        + rng.normal(0, noise, (40, 60, 3))
    )
    found = stats.variance_components(grid(values))
    assert found["run"] == pytest.approx(noise**2, rel=0.1)
    assert found["interaction"] == pytest.approx(both**2, rel=0.15)
    assert found["task"] == pytest.approx(task**2, rel=0.4)
    assert found["agent"] == pytest.approx(agent**2, rel=0.5)


def test_pareto_front() -> None:
    points = [(1.0, 0.5), (2.0, 0.4), (3.0, 0.7), (3.0, 0.8), (0.5, 0.5)]
    assert stats.pareto(points) == [4, 3]


def test_correlations_need_three_points_that_differ() -> None:
    assert stats.pearson([1, 2], [1, 2]) is None
    assert stats.pearson([1, 1, 1], [1, 2, 3]) is None
    assert stats.spearman([1, 2, 3], [10, 20, 15]) == pytest.approx(0.5)
    assert stats.spearman([1, 1, 2], [1, 2, 3]) == pytest.approx(0.866, abs=1e-3)  # ties averaged


def test_within_task_correlation_ignores_how_hard_tasks_are() -> None:
    runs = [
        run(outcome, task=task, number=number, process=value)
        for task, level in (("a", 0.0), ("b", 0.5))
        for number, (outcome, value) in enumerate(((level, 0.9 - level), (level + 0.1, 0.7 - level)))
    ]
    assert stats.within_task(runs, lambda one: one.process) == pytest.approx(-1)
    assert stats.process_and_outcome(runs) == pytest.approx(-0.97, abs=0.02)


def test_thirds_by_time_are_cut_within_tasks() -> None:
    runs = [
        run(0.1 * n, task=task, number=n, wall_minutes=scale * n)
        for task, scale in (("a", 1), ("b", 100))
        for n in range(3)
    ]
    assert [[one.run_id for one in third] for third in stats.time_terciles(runs)] == [
        ["r0"] * 2,
        ["r1"] * 2,
        ["r2"] * 2,
    ]


def test_longest_is_best_with_a_tie_in_time() -> None:
    tied = [run(0.1, wall_minutes=5.0), run(0.9, number=2, wall_minutes=5.0)]
    close = [run(0.50, task="b", wall_minutes=1.0), run(0.54, task="b", number=2, wall_minutes=2.0)]
    assert stats.longest_is_best([*tied, *close]) == (1, 0, 1)


def test_far_out_costs() -> None:
    bound = stats.far_out([1.0, 2.0, 3.0, 4.0, 60.0])
    assert bound == pytest.approx(4 + 3 * 2)
    assert stats.far_out([1.0, 2.0, 3.0]) is None


def test_sample_and_population_spread() -> None:
    assert stats.spread([0.0, 1.0]) == pytest.approx(0.5**0.5)
    assert stats.spread([0.0, 1.0], sample=False) == pytest.approx(0.5)
    assert stats.spread([1.0]) is None
