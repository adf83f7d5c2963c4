"""Statistics of runs: pure functions on arrays, defined with their sources in ``docs/statistics.md``.

Scores are held in a :class:`Grid`, configuration × task × repeat, padded with ``nan``. A resample is drawn for all
configurations at once, so that differences between configurations are paired by task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from biabench_plugin.report.runs import Run

Floats = NDArray[np.float64]

RESAMPLES = 10_000
SEED = 0
LEVEL = 0.95
MOVED = 0.2  # a pair whose repeats differ by more is called moving (paper, section 5.3)
DIFFERS = 0.05  # repeats that differ by less have no best one (paper, figure 6c); near-zero outcome (figure 2e)
SOLVED = 0.5  # outcome from which a run counts as solved, for pass^k
TIERS = (0.1, 0.5)  # outcome tiers of figure 6b
_CHUNK = 4_000_000  # random draws held at once


@dataclass(frozen=True)
class Grid:
    """Scores by configuration, task and repeat; ``values[c, t, counts[c, t]:]`` is ``nan``."""

    configurations: tuple[str, ...]
    tasks: tuple[str, ...]
    values: Floats  # (configurations, tasks, most repeats)
    counts: NDArray[np.intp]  # (configurations, tasks)

    @cached_property
    def task_means(self) -> Floats:
        """Mean over repeats, (configurations, tasks); ``nan`` where a configuration has no scored run."""
        return mean_along(self.values, axis=2)

    @cached_property
    def means(self) -> Floats:
        """Mean of the task means, (configurations,)."""
        return mean_along(self.task_means, axis=1)

    @cached_property
    def ranges(self) -> Floats:
        """Largest minus smallest repeat, (configurations, tasks); ``nan`` with fewer than two scored runs."""
        padded = np.where(np.isnan(self.values), -np.inf, self.values)
        spread = padded.max(axis=2, initial=-np.inf) - np.where(np.isnan(self.values), np.inf, self.values).min(
            axis=2, initial=np.inf
        )
        return np.where(self.counts >= 2, spread, np.nan)

    def common_tasks(self) -> NDArray[np.bool_]:
        """Return which tasks every configuration has a scored run of."""
        return np.asarray((self.counts > 0).all(axis=0))

    def of_tasks(self, keep: NDArray[np.bool_]) -> Grid:
        tasks = tuple(task for task, kept in zip(self.tasks, keep, strict=True) if kept)
        return Grid(self.configurations, tasks, self.values[:, keep], self.counts[:, keep])

    def of(self, configurations: Sequence[str]) -> Grid:
        index = [self.configurations.index(name) for name in configurations]
        return Grid(tuple(configurations), self.tasks, self.values[index], self.counts[index])


def grid(runs: Sequence[Run], value: Callable[[Run], float | None] = lambda run: run.outcome) -> Grid:
    """Arrange the scored runs that have a value; configurations and tasks in the order of first appearance."""
    cells: dict[tuple[str, str], list[float]] = {}
    configurations: dict[str, None] = {}
    tasks: dict[str, None] = {}
    for run in runs:
        configurations.setdefault(run.configuration)
        tasks.setdefault(run.task)
        if run.scored and (one := value(run)) is not None:
            cells.setdefault((run.configuration, run.task), []).append(one)
    names, slugs = tuple(configurations), tuple(tasks)
    most = max((len(found) for found in cells.values()), default=0)
    values = np.full((len(names), len(slugs), most), np.nan)
    counts = np.zeros((len(names), len(slugs)), np.intp)
    row, column = ({name: index for index, name in enumerate(axis)} for axis in (names, slugs))
    for (name, slug), found in cells.items():
        values[row[name], column[slug], : len(found)] = found
        counts[row[name], column[slug]] = len(found)
    return Grid(names, slugs, values, counts)


def mean_along(values: Floats, axis: int) -> Floats:
    present = ~np.isnan(values)
    number = present.sum(axis=axis)
    with np.errstate(invalid="ignore"):
        result: Floats = np.where(present, values, 0.0).sum(axis=axis) / np.where(number == 0, np.nan, number)
    return result


# --- resampling ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    """An estimate with its percentile interval."""

    value: float
    low: float
    high: float


_LEAST_TASKS = 2  # for an interval over tasks


@dataclass(frozen=True)
class Bootstrap:
    """Resampled slot means: tasks drawn with replacement, then runs within each drawn task.

    ``slots[c, b, s]`` is the mean of the resampled runs of configuration ``c`` on the task drawn in slot ``s`` of
    resample ``b``; ``nan`` where the configuration has no scored run of that task.
    """

    grid: Grid
    slots: NDArray[np.float32]
    means: Floats  # (configurations, resamples)

    def interval(self, configuration: int) -> Interval:
        """Return the mean and its interval; of one task alone there is none, for tasks are what is drawn."""
        if (self.grid.counts[configuration] > 0).sum() < _LEAST_TASKS:
            return Interval(float(self.grid.means[configuration]), np.nan, np.nan)
        return _interval(float(self.grid.means[configuration]), self.means[configuration])

    def difference(self, first: int, second: int) -> tuple[Interval, float]:
        """Return first minus second over the tasks that both have, and the share of resamples in which first leads."""
        one, two = self.slots[first], self.slots[second]
        counts = self.grid.counts
        both = (counts[first] > 0) & (counts[second] > 0)
        if not both.any():
            return Interval(np.nan, np.nan, np.nan), np.nan
        means = self.grid.task_means
        value = float((means[first] - means[second])[both].mean())
        if both.sum() < _LEAST_TASKS:
            return Interval(value, np.nan, np.nan), np.nan
        whole = both.all() or (counts[first] > 0).tolist() == (counts[second] > 0).tolist()
        drawn = self.means[first] - self.means[second] if whole else mean_along((one - two).astype(np.float64), axis=1)
        drawn = drawn[~np.isnan(drawn)]
        better = float((drawn > 1e-9).mean() + (np.abs(drawn) <= 1e-9).mean() / 2)
        return _interval(value, drawn), better

    def ranks(self) -> NDArray[np.int32]:
        """Rank of every configuration in every resample, 1 is best, ties share the better rank: (C, B)."""
        order = np.sort(-np.nan_to_num(self.means, nan=-1.0), axis=0)
        columns = range(order.shape[1])
        ranks = np.empty(self.means.shape, np.int32)
        negative = -np.nan_to_num(self.means, nan=-1.0)
        for column in columns:
            ranks[:, column] = np.searchsorted(order[:, column], negative[:, column], side="left") + 1
        return ranks


def bootstrap(scores: Grid, resamples: int = RESAMPLES, seed: int = SEED) -> Bootstrap:
    """Resample tasks with replacement, then the runs of each drawn task (hierarchical bootstrap).

    The same tasks are drawn for every configuration; a task drawn twice has its runs resampled twice.

    References
    ----------
    .. [1] Davison, Hinkley, *Bootstrap Methods and their Application*, 1997, section 3.8 (two-stage resampling).
    """
    rng = np.random.default_rng(seed)
    configurations, tasks, most = scores.values.shape
    slots = np.full((configurations, resamples, tasks), np.nan, np.float32)
    means = np.full((configurations, resamples), np.nan)
    drawn = rng.integers(tasks, size=(resamples, tasks)) if tasks else np.empty((resamples, 0), np.intp)
    step = max(1, _CHUNK // max(1, tasks * most))
    flat = np.nan_to_num(scores.values).reshape(configurations, -1)
    for start in range(0, resamples if most else 0, step):
        task = drawn[start : start + step]
        offset = task * most
        for configuration in range(configurations):
            number = scores.counts[configuration][task]
            total = np.zeros(task.shape)
            for repeat in range(int(scores.counts[configuration].max(initial=0))):
                pick = (rng.random(task.shape, dtype=np.float32) * number).astype(np.intp)
                # float32 rounds values next to 1 up to 1.0: stay inside the cell
                np.minimum(pick, np.maximum(number - 1, 0), out=pick)
                total += np.where(repeat < number, flat[configuration][offset + pick], 0.0)
            with np.errstate(invalid="ignore"):
                found = total / np.where(number == 0, np.nan, number)
            slots[configuration, start : start + step] = found
            means[configuration, start : start + step] = mean_along(found, axis=1)
    return Bootstrap(scores, slots, means)


def _interval(value: float, drawn: Floats) -> Interval:
    drawn = drawn[~np.isnan(drawn)]
    if not drawn.size:
        return Interval(value, np.nan, np.nan)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value, float(low), float(high))


# --- reliability ---------------------------------------------------------------------------------------------------


def pass_hat(scores: Grid, k: int, solved: float = SOLVED) -> Floats:
    """Return pass^k per configuration: chance that k runs of a task all reach ``solved``, C(c,k)/C(n,k), over tasks.

    Only tasks with at least k scored runs enter; ``nan`` where there is none [1]_.

    References
    ----------
    .. [1] Yao, Shinn, Razavi, Narasimhan, tau-bench, arXiv 2406.12045, section 3.
    """
    wins = (scores.values >= solved).sum(axis=2)
    return _per_cell(scores, k, lambda c, t: comb(int(wins[c, t]), k) / comb(int(scores.counts[c, t]), k))


def worst_of(scores: Grid, k: int, *, best: bool = False) -> Floats:
    """Return the expected lowest (or highest) of k runs drawn without replacement, mean over tasks with n >= k."""

    def expected(c: int, t: int) -> float:
        n = int(scores.counts[c, t])
        ordered = np.sort(scores.values[c, t, :n])[:: -1 if best else 1]
        weights = [comb(n - 1 - index, k - 1) for index in range(n)]
        return float(np.dot(ordered, weights) / comb(n, k))

    return _per_cell(scores, k, expected)


def _per_cell(scores: Grid, k: int, function: Callable[[int, int], float]) -> Floats:
    result = np.full(len(scores.configurations), np.nan)
    for configuration in range(len(result)):
        usable = np.flatnonzero(scores.counts[configuration] >= k)
        if usable.size:
            result[configuration] = np.mean([function(configuration, int(task)) for task in usable])
    return result


def moving(scores: Grid, by: float = MOVED) -> tuple[int, int]:
    """Return how many configuration-task pairs moved by more than ``by`` between repeats, and how many have repeats."""
    ranges = scores.ranges[~np.isnan(scores.ranges)]
    return int((ranges > by).sum()), int(ranges.size)


def repeats_to_separate(scores: Grid, first: int, second: int, power: float = 0.8) -> tuple[int | None, int | None]:
    """Return how many repeats per task, and how many tasks, a two-sided 5 % test needs to tell two apart.

    Repeats: the tasks are held fixed and only run-to-run variance is averaged down,
    r = z² Σ(s₁² + s₂²) / (T² d²). Tasks: the tasks are a sample and the repeats stay as they are,
    T = z² var(d_t) / d². Here z = z(0.975) + z(power), d the mean difference and d_t its value per task. ``None``
    where it cannot be estimated or the means are equal.
    """
    z = float(ndtri(0.975) + ndtri(power))
    both = (scores.counts[first] > 0) & (scores.counts[second] > 0)
    gaps = (scores.task_means[first] - scores.task_means[second])[both]
    if not gaps.size or abs(gap := float(gaps.mean())) < 1e-9:
        return None, None
    repeated = both & (scores.counts[first] > 1) & (scores.counts[second] > 1)
    repeats = None
    if repeated.any():
        variance = sum(np.nanvar(scores.values[index][repeated], axis=1, ddof=1).mean() for index in (first, second))
        repeats = max(1, int(np.ceil(z**2 * variance / (gaps.size * gap**2))))
    tasks = max(2, int(np.ceil(z**2 * gaps.var(ddof=1) / gap**2))) if gaps.size > 1 else None
    return repeats, tasks


# --- where the variance lies ---------------------------------------------------------------------------------------


def _long(scores: Grid) -> tuple[Floats, NDArray[np.intp], NDArray[np.intp]]:
    configuration, task, _repeat = np.nonzero(~np.isnan(scores.values))
    return scores.values[~np.isnan(scores.values)], configuration, task


def shares(scores: Grid, first: str = "task") -> dict[str, float]:
    """Decompose the total sum of squares with fixed effects, one factor after the other (type I).

    ``first`` is the factor fitted first, ``task`` or ``agent``; the other is fitted given it, then the interaction,
    and what is left lies within pairs. The paper's figure 3b fits the task first. Nothing is returned where no pair
    was repeated: interaction and runs could not be told apart.
    """
    if scores.counts.max(initial=0) < 2:
        return {}
    values, agent, task = _long(scores)
    total = float(((values - values.mean()) ** 2).sum()) if values.size else 0.0
    if total == 0:
        return {}
    leading = task if first == "task" else agent
    explained_first = _explained(values, leading)
    dummies = np.column_stack([np.eye(len(scores.tasks))[task], np.eye(len(scores.configurations))[agent]])
    fitted = dummies @ np.linalg.lstsq(dummies, values, rcond=None)[0]
    explained_both = float(((fitted - values.mean()) ** 2).sum())
    explained_cells = _explained(values, agent * len(scores.tasks) + task)
    second = "agent" if first == "task" else "task"
    return {
        first: explained_first / total,
        second: (explained_both - explained_first) / total,
        "interaction": (explained_cells - explained_both) / total,
        "run": 1 - explained_cells / total,
    }


def _explained(values: Floats, group: NDArray[np.intp]) -> float:
    number = np.bincount(group)
    sums = np.bincount(group, values)
    used = number > 0
    return float((number[used] * (sums[used] / number[used] - values.mean()) ** 2).sum())


def variance_components(scores: Grid) -> dict[str, float]:
    """Estimate random-effects variance components by the method of moments, over tasks that all configurations have.

    Two-way crossed model: score = mean + task + agent + interaction + run. Analysis of unweighted cell means with the
    harmonic mean of the cell sizes where these differ; negative estimates are set to 0. Returned as variances [1]_.

    References
    ----------
    .. [1] Searle, Casella, McCulloch, *Variance Components*, 1992, sections 4.3 and 5.
    """
    complete = scores.of_tasks(scores.common_tasks())
    a, t = complete.counts.shape
    if a < 2 or t < 2 or not (complete.counts > 1).any():
        return {}
    cells = complete.task_means
    harmonic = 1 / float((1 / complete.counts).mean())
    values, agent, task = _long(complete)
    freedom = values.size - a * t
    run = float(((values - cells[agent, task]) ** 2).sum() / freedom)
    by_agent, by_task, grand = cells.mean(axis=1), cells.mean(axis=0), cells.mean()
    ms_agent = t * float(((by_agent - grand) ** 2).sum()) / (a - 1)
    ms_task = a * float(((by_task - grand) ** 2).sum()) / (t - 1)
    residual = cells - by_agent[:, None] - by_task[None] + grand
    ms_both = float((residual**2).sum()) / ((a - 1) * (t - 1))
    found = {
        "task": (ms_task - ms_both) / a,
        "agent": (ms_agent - ms_both) / t,
        "interaction": ms_both - run / harmonic,
        "run": run,
    }
    return {name: max(0.0, value) for name, value in found.items()}


def as_shares(components: Mapping[str, float]) -> dict[str, float]:
    total = sum(components.values())
    return {name: value / total for name, value in components.items()} if total else {}


# --- associations --------------------------------------------------------------------------------------------------


def pearson(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Pearson's r; ``None`` for fewer than three points or a constant."""
    one, two = np.asarray(first, float), np.asarray(second, float)
    if one.size < 3 or np.ptp(one) == 0 or np.ptp(two) == 0:
        return None
    return float(np.corrcoef(one, two)[0, 1])


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rank correlation, ties averaged; ``None`` for fewer than three points or a constant."""
    if len(first) < 3:
        return None
    from scipy.stats import rankdata  # takes a second to load, which short sessions need not wait for

    return pearson(rankdata(first).tolist(), rankdata(second).tolist())


def process_and_outcome(runs: Sequence[Run], above: float | None = None) -> float | None:
    """Pearson's r of process and outcome over scored runs, optionally with outcome above a bound."""
    pairs = [
        (run.process, run.outcome)
        for run in runs
        if run.scored and run.process is not None and run.outcome is not None and (above is None or run.outcome > above)
    ]
    return pearson([process for process, _outcome in pairs], [outcome for _process, outcome in pairs])


def within_task(runs: Sequence[Run], value: Callable[[Run], float | None]) -> float | None:
    """Pearson's r of a value and the outcome after the mean of each task is taken out of both."""
    pairs: list[tuple[float, float]] = []
    for members in by([run for run in runs if run.scored and value(run) is not None], lambda run: run.task).values():
        one = np.array([value(run) for run in members], float)
        two = np.array([run.outcome for run in members], float)
        pairs += zip((one - one.mean()).tolist(), (two - two.mean()).tolist(), strict=True)
    return pearson([first for first, _second in pairs], [second for _first, second in pairs])


def spearman_map(scores: Grid) -> Floats:
    """Rank correlation of task means between every two configurations, over their common tasks: (C, C)."""
    number = len(scores.configurations)
    result = np.full((number, number), np.nan)
    for one in range(number):
        result[one, one] = 1.0
    for one, two in combinations(range(number), 2):
        both = (scores.counts[one] > 0) & (scores.counts[two] > 0)
        rho = spearman(scores.task_means[one][both].tolist(), scores.task_means[two][both].tolist())
        result[one, two] = result[two, one] = np.nan if rho is None else rho
    return result


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return indices of (cost, outcome) points that no cheaper or equally cheap point reaches, cheapest first."""
    best = -np.inf
    front = []
    for index in sorted(range(len(points)), key=lambda item: (points[item][0], -points[item][1])):
        if points[index][1] > best + 1e-9:
            front.append(index)
            best = points[index][1]
    return front


# --- time and outcome ----------------------------------------------------------------------------------------------


def _timed(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.scored and run.wall_minutes is not None]


def time_terciles(runs: Sequence[Run]) -> list[list[Run]]:
    """Cut the runs of each task into thirds by wall time; return shortest, middle, longest, pooled over tasks."""
    thirds: list[list[Run]] = [[], [], []]
    for members in by(_timed(runs), lambda run: run.task).values():
        ordered = sorted(members, key=lambda run: run.wall_minutes or 0.0)
        for third, part in zip(thirds, np.array_split(np.arange(len(ordered)), 3), strict=True):
            third += [ordered[index] for index in part]
    return thirds


def time_rank_correlation(runs: Sequence[Run]) -> float | None:
    """Return the median over tasks of Spearman's correlation of wall time and outcome."""
    found = []
    for members in by(_timed(runs), lambda run: run.task).values():
        rho = spearman([run.wall_minutes or 0.0 for run in members], [run.outcome or 0.0 for run in members])
        if rho is not None:
            found.append(rho)
    return float(np.median(found)) if found else None


def outcome_tiers(runs: Sequence[Run]) -> list[list[Run]]:
    """Split scored runs by outcome: below 0.1, 0.1 to below 0.5, from 0.5."""
    low, high = TIERS
    tiers: list[list[Run]] = [[], [], []]
    for run in _timed(runs):
        assert run.outcome is not None
        tiers[0 if run.outcome < low else 1 if run.outcome < high else 2].append(run)
    return tiers


def longest_is_best(runs: Sequence[Run], differs: float = DIFFERS) -> tuple[int, int, int]:
    """Count pairs whose longest run scored best: with ties in time in favour, without, and the pairs that differ.

    A pair is a configuration on a task whose scored runs differ by more than ``differs``.
    """
    lenient = strict = pairs = 0
    for members in by(_timed(runs), lambda run: (run.configuration, run.task)).values():
        outcomes = np.array([run.outcome for run in members], float)
        if len(members) < 2 or np.ptp(outcomes) <= differs:
            continue
        pairs += 1
        minutes = np.array([run.wall_minutes for run in members], float)
        longest = minutes == minutes.max()
        best = outcomes == outcomes.max()
        lenient += bool((longest & best).any())
        strict += bool((best[longest]).all())
    return lenient, strict, pairs


# --- small helpers -------------------------------------------------------------------------------------------------


def by(runs: Sequence[Run], key: Callable[[Run], Any]) -> dict[Any, list[Run]]:
    """Group runs, groups in the order of first appearance."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None and not np.isnan(value)]
    return float(np.mean(present)) if present else None


def median(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return float(np.median(present)) if present else None


def spread(values: Sequence[float | None], *, sample: bool = True) -> float | None:
    """Standard deviation, sample (n - 1) or population; ``None`` where it is undefined."""
    present = [value for value in values if value is not None and not np.isnan(value)]
    if len(present) < (2 if sample else 1):
        return None
    return float(np.std(present, ddof=1 if sample else 0))


def far_out(values: Sequence[float]) -> float | None:
    """Return the bound above which a value is an outlier: third quartile plus three times the interquartile range [1]_.

    References
    ----------
    .. [1] Tukey, *Exploratory Data Analysis*, 1977 ("far out" values).
    """
    if len(values) < 4:
        return None
    low, high = np.quantile(values, [0.25, 0.75])
    return float(high + 3 * (high - low))


def wilson(successes: int, trials: int) -> Interval | None:
    """Return a proportion with Wilson's 95 % interval; ``None`` without trials."""
    if not trials:
        return None
    from scipy.stats import binomtest

    found = binomtest(successes, trials).proportion_ci(LEVEL, "wilson")
    return Interval(successes / trials, float(found.low), float(found.high))
