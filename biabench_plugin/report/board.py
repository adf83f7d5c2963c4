"""The first screen of a report: who is best, how sure that is, and where everybody fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from biabench_plugin.report import stats
from biabench_plugin.report.runs import Run
from biabench_plugin.report.study import Study, studies
from biabench_plugin.report.summary import RankBy
from biabench_plugin.taskspec import TaskSpec

HARD = 0.2  # a task on which no configuration reaches this mean is one where everybody fails
_SETTLED = 0.975  # share of resamples from which on a lead counts as settled


@dataclass(frozen=True)
class Place:
    """One configuration in the ranking; ``low`` and ``high`` are its 95 % interval, ``None`` where there is none."""

    configuration: str
    label: str
    value: float | None
    low: float | None
    high: float | None
    tasks: int
    synthetic: bool


@dataclass(frozen=True)
class Spot:
    """One configuration on one task."""

    value: float | None
    scored: int
    refused: bool
    best: bool


@dataclass(frozen=True)
class Board:
    """One dataset: configurations best first, tasks from easy to hard, and a value for each pair."""

    dataset: str
    places: list[Place]
    tasks: list[str]
    spots: Mapping[tuple[str, str], Spot]
    lead: float | None  # share of resamples in which the first is better than the second, on the tasks of both

    @property
    def demo(self) -> bool:
        return self.dataset.partition(":")[0] == "demo"

    @property
    def real(self) -> list[Place]:
        """Configurations that are no fixed ends of the scale, unless there are no others."""
        return [place for place in self.places if not place.synthetic and place.value is not None] or self.places

    @property
    def best(self) -> str:
        """Who is best, in a sentence."""
        first = self.real[0]
        if first.value is None:
            return "No run has a score."
        if first.synthetic:
            return "Only synthetic agents ran: they fix the ends of the scale and are never best."
        sure = f" (95 % interval {first.low:.2f} to {first.high:.2f})" if first.low is not None else ""
        verb = "reached" if len(self.real) == 1 else "is best with"
        return f"{first.label} {verb} {first.value:.2f}{sure}, averaged over {_tasks(first.tasks)}."

    @property
    def certainty(self) -> str:
        """How sure that is, in a sentence; empty for a single configuration."""
        if len(self.real) < 2 or self.real[1].value is None or self.real[0].synthetic:
            return ""
        second = self.real[1]
        ahead = f"the second, {second.label} ({second.value:.2f})"
        if self.lead is None:
            return f"Next is {ahead}."
        if self.lead >= _SETTLED:
            return f"It is clearly ahead of {ahead}: better in {self.lead:.0%} of resamples."
        return f"Its lead over {ahead} is not settled: better in {self.lead:.0%} of resamples of tasks and runs."

    @property
    def scored(self) -> bool:
        """Whether any real configuration has a score."""
        return any(place.value is not None and not place.synthetic for place in self.places)

    @property
    def repeated(self) -> bool:
        """Whether any configuration ran a task more than once."""
        return any(spot.scored > 1 for spot in self.spots.values())

    @property
    def hard(self) -> list[str]:
        """Tasks on which no real configuration reaches :data:`HARD`."""
        names = {place.configuration for place in self.real if not place.synthetic}
        found = []
        for task in self.tasks:
            values = [spot.value for (name, slug), spot in self.spots.items() if slug == task and name in names]
            known = [value for value in values if value is not None]
            if known and max(known) < HARD:
                found.append(task)
        return found


def _tasks(number: int) -> str:
    return f"{number} task" if number == 1 else f"{number} tasks"


def boards(runs: Sequence[Run], tasks: Mapping[str, TaskSpec], by: RankBy) -> list[Board]:
    """Return one board per dataset, ranked by a score; datasets are never pooled."""
    return [_of_study(found, by) for found in studies(runs, tasks)]


def _of_study(study: Study, by: RankBy) -> Board:
    if by == "outcome":
        grid, drawn = study.grid, study.bootstrap
    else:
        grid = stats.grid(study.runs, lambda run: run.strict)
        ranked = sorted(range(len(grid.configurations)), key=lambda index: -(_known(grid.means[index]) or 0.0))
        grid = grid.of([grid.configurations[index] for index in ranked])
        grid = grid.of_tasks(np.asarray(grid.counts.any(axis=0)))
        drawn = stats.bootstrap(grid)
    synthetic = {run.configuration for run in study.runs if run.synthetic}
    refused = {(run.configuration, run.task) for run in study.runs if run.status == "refused"}
    places = []
    for index, name in enumerate(grid.configurations):
        interval = drawn.interval(drawn.grid.configurations.index(name)) if name in drawn.grid.configurations else None
        known = interval is not None and interval.low == interval.low
        places.append(
            Place(
                name,
                study.labels[name],
                _known(grid.means[index]),
                interval.low if interval is not None and known else None,
                interval.high if interval is not None and known else None,
                int((grid.counts[index] > 0).sum()),
                name in synthetic,
            )
        )
    places.sort(key=lambda place: place.synthetic)
    values = {
        (name, task): (_known(grid.task_means[row, column]), int(grid.counts[row, column]))
        for row, name in enumerate(grid.configurations)
        for column, task in enumerate(grid.tasks)
    }
    board = Board(study.dataset, places, list(grid.tasks), _spots(values, refused, synthetic), None)
    if len(board.real) < 2:
        return board
    first, second = (drawn.grid.configurations.index(place.configuration) for place in board.real[:2])
    _, better = drawn.difference(first, second)
    return Board(board.dataset, board.places, board.tasks, board.spots, _known(better))


def _known(value: Any) -> float | None:
    """Return a number of NumPy's as Python's, NaN as ``None``."""
    return float(value) if value == value else None


def _spots(
    values: Mapping[tuple[str, str], tuple[float | None, int]], refused: set[tuple[str, str]], synthetic: set[str]
) -> dict[tuple[str, str], Spot]:
    best: dict[str, float] = {}
    compared = len({name for name, _ in values} - synthetic) > 1
    for (name, task), (value, _) in values.items():
        if value is not None and name not in synthetic:
            best[task] = max(best.get(task, 0.0), value)
    return {
        (name, task): Spot(
            value,
            scored,
            value is None and (name, task) in refused,
            compared
            and value is not None
            and name not in synthetic
            and value > 0
            and round(value, 2) >= round(best[task], 2),
        )
        for (name, task), (value, scored) in values.items()
    }
