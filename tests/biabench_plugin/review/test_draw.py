"""The draw covers every agent and every task, evenly, and repeats for a seed."""

from __future__ import annotations

from collections import Counter

import pytest

from biabench_plugin.review.draw import Candidate, draw, smallest_cover


def grid(agents: int, tasks: int, repeats: int = 1) -> list[Candidate]:
    return [
        Candidate(f"agent{a}", f"task{t}", f"agent{a}[brief]")
        for t in range(tasks)
        for a in range(agents)
        for _ in range(repeats)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_twenty_runs_cover_six_agents_and_sixteen_tasks_evenly(seed: int) -> None:
    candidates = grid(6, 16, 3)
    chosen = draw(candidates, 20, seed)
    assert len(chosen) == len(set(chosen)) == 20
    agents = Counter(candidates[i].agent for i in chosen)
    tasks = Counter(candidates[i].task for i in chosen)
    assert len(agents) == 6
    assert len(tasks) == 16
    assert set(agents.values()) <= {3, 4}
    assert set(tasks.values()) == {1, 2}


def test_same_seed_same_draw_and_another_seed_another() -> None:
    candidates = grid(3, 8)
    assert draw(candidates, 10, 4) == draw(candidates, 10, 4)
    assert draw(candidates, 10, 4) != draw(candidates, 10, 5)


@pytest.mark.parametrize("seed", range(8))
def test_a_sparse_matrix_is_covered_with_the_fewest_runs(seed: int) -> None:
    """Agents that share few tasks: a careless choice would need more runs than the smallest cover."""
    pairs = [("a", "1"), ("a", "2"), ("b", "1"), ("c", "1"), ("c", "3"), ("d", "4"), ("a", "4")]
    candidates = [Candidate(agent, task) for agent, task in pairs]
    assert smallest_cover(candidates) == 4
    chosen = draw(candidates, 4, seed)
    assert {candidates[i].agent for i in chosen} == set("abcd")
    assert {candidates[i].task for i in chosen} == set("1234")


def test_a_sample_too_small_to_cover_is_refused_with_the_least_that_does() -> None:
    with pytest.raises(ValueError, match="take at least 16"):
        draw(grid(6, 16), 15, 0)


def test_all_runs_are_taken_where_there_are_fewer_than_asked_for() -> None:
    assert sorted(draw(grid(2, 3), 20, 0)) == list(range(6))


def test_configurations_of_one_agent_share_the_draw() -> None:
    candidates = [Candidate("a", f"t{t}", f"a[{level}]") for t in range(4) for level in ("brief", "detailed")]
    chosen = draw(candidates, 4, 0)
    assert Counter(candidates[i].configuration for i in chosen) == {"a[brief]": 2, "a[detailed]": 2}


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_missing_goes_before_what_is_even(turned: bool) -> None:
    """One agent alone has four of six tasks (or one task alone four of six agents): the draw has to lean on it."""
    pairs = [("a", str(task)) for task in (1, 2, 3, 4)] + [("b", "5"), ("b", "6")]
    candidates = [Candidate(*(pair[::-1] if turned else pair)) for pair in pairs for _ in range(3)]
    for seed in range(5):
        chosen = draw(candidates, 6, seed)
        assert {(candidates[i].agent, candidates[i].task) for i in chosen} == {
            pair[::-1] if turned else pair for pair in pairs
        }
