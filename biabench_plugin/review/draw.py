"""Draw runs for review so that every agent and every task is among them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import maximum_bipartite_matching


@dataclass(frozen=True)
class Candidate:
    """What the draw looks at: who ran what. ``configuration`` spreads the draw where an agent has several."""

    agent: str
    task: str
    configuration: str = ""


def smallest_cover(candidates: Sequence[Candidate]) -> int:
    """Return the fewest runs that hold every agent and every task (a minimum edge cover)."""
    pairs = {(candidate.agent, candidate.task) for candidate in candidates}
    agents, tasks = {agent for agent, _ in pairs}, {task for _, task in pairs}
    return len(agents) + len(tasks) - len(_matching(sorted(pairs)))


def draw(candidates: Sequence[Candidate], sample: int, seed: int) -> list[int]:
    """Choose ``sample`` runs, all of them where there are fewer.

    The first runs pair as many agents as possible with a task of their own; then each task and agent that is still
    missing gets a run; the rest goes where least was drawn, so that tasks, agents and configurations stay even.

    Parameters
    ----------
    candidates
        All runs; their order matters, together with ``seed``, for what is drawn.

    Returns
    -------
    list of int
        Positions in ``candidates``, in random order.

    Raises
    ------
    ValueError
        ``sample`` is too small to hold every agent and task; the message gives the smallest one that is not.
    """
    if not candidates:
        raise ValueError("there is no run to draw from")
    if sample < (least := smallest_cover(candidates)):
        raise ValueError(f"{sample} runs cannot hold every agent and task; take at least {least}")
    chance = random.Random(seed)
    rest = list(range(len(candidates)))
    chance.shuffle(rest)
    pairs = list({(candidates[i].agent, candidates[i].task): None for i in rest})
    chosen = [next(i for i in rest if (candidates[i].agent, candidates[i].task) == pair) for pair in _matching(pairs)]
    rest = [i for i in rest if i not in set(chosen)]
    while rest and len(chosen) < sample:
        counts = [Counter(getattr(candidates[i], what) for i in chosen) for what in ("task", "agent", "configuration")]
        agents = {candidates[i].agent for i in rest} - set(counts[1])
        tasks = {candidates[i].task for i in rest} - set(counts[0])

        def need(i: int) -> tuple[int, ...]:
            one = candidates[i]
            missing = (one.task in tasks) + (one.agent in agents)  # noqa: B023 - used before the next turn
            load = (counts[0][one.task], counts[1][one.agent], counts[2][one.configuration])  # noqa: B023
            return (-missing, *load)

        best = min(rest, key=need)
        rest.remove(best)
        chosen.append(best)
    chance.shuffle(chosen)
    return chosen


def _matching(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return a largest set of pairs in which no agent and no task occurs twice."""
    agents = list(dict.fromkeys(agent for agent, _ in pairs))
    tasks = list(dict.fromkeys(task for _, task in pairs))
    rows = [agents.index(agent) for agent, _ in pairs]
    columns = [tasks.index(task) for _, task in pairs]
    graph = coo_array((np.ones(len(pairs)), (rows, columns)), shape=(len(agents), len(tasks))).tocsr()
    partner = maximum_bipartite_matching(graph, perm_type="column")
    return [(agent, tasks[partner[row]]) for row, agent in enumerate(agents) if partner[row] >= 0]
