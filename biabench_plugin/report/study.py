"""The runs of one dataset in the order in which tables and figures show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from biabench_plugin.report import stats
from biabench_plugin.report.runs import PUBLISHED, Run
from biabench_plugin.taskspec import Difficulty, Subtask, TaskSpec

ENOUGH = 3  # scored runs per task; fewer are marked †
AS_PUBLISHED = "as its entry states (the paper measured 87 %, κ = 0.67, for Claude Sonnet 5)"
DEMO = "Demo data check an installation and an agent; these are no benchmark results."
FEWEST_AGENTS = 3  # agents that share a model, for a comparison of agents

# Steps from raw images to the scored result; a subtask stands on those of an earlier step. Visualization is not scored.
_STEPS: Mapping[Subtask, int] = {
    Subtask.DENOISING: 0,
    Subtask.STITCHING: 0,
    Subtask.SEGMENTATION: 1,
    Subtask.SPOT_DETECTION: 1,
    Subtask.FILAMENT_EXTRACTION: 1,
    Subtask.TRACKING: 2,
    Subtask.CLASSIFICATION: 2,
    Subtask.COLOCALIZATION: 2,
    Subtask.FEATURE_EXTRACTION: 3,
    Subtask.STATISTICAL_PLOTTING: 4,
}
_SIZES = ((0.0, 50.0, "below 50 MB"), (50.0, 500.0, "50 to 500 MB"), (500.0, 1500.0, "0.5 to 1.5 GB"))


@dataclass(frozen=True)
class Study:
    """Runs of one dataset. ``real`` leaves synthetic agents out, unless there is nothing else."""

    dataset: str
    runs: list[Run]
    specs: Mapping[str, TaskSpec]

    @cached_property
    def real(self) -> list[Run]:
        return [run for run in self.runs if not run.synthetic] or self.runs

    @cached_property
    def grid(self) -> stats.Grid:
        """Outcome of every configuration, best first, by task in display order; synthetic agents last."""
        raw = stats.grid(self.runs)
        synthetic = {run.configuration: run.synthetic for run in self.runs}
        order = sorted(
            range(len(raw.configurations)),
            key=lambda index: (
                synthetic[raw.configurations[index]],
                -np.nan_to_num(raw.means[index], nan=-1.0),
                self.first[raw.configurations[index]].label,
                raw.configurations[index],
            ),
        )
        columns = [raw.tasks.index(task) for task in self.tasks]
        names = tuple(raw.configurations[index] for index in order)
        return stats.Grid(names, tuple(self.tasks), raw.values[order][:, columns], raw.counts[np.ix_(order, columns)])

    @cached_property
    def real_grid(self) -> stats.Grid:
        real = {run.configuration for run in self.real}
        return self.grid.of([name for name in self.grid.configurations if name in real])

    @cached_property
    def bootstrap(self) -> stats.Bootstrap:
        return stats.bootstrap(self.real_grid)

    @cached_property
    def first(self) -> dict[str, Run]:
        """One run of every configuration, for what all of them share."""
        found: dict[str, Run] = {}
        for run in self.runs:
            if run.configuration not in found or (found[run.configuration].model is None and run.model is not None):
                found[run.configuration] = run
        return found

    @cached_property
    def by_configuration(self) -> dict[str, list[Run]]:
        groups = stats.by(self.runs, lambda run: run.configuration)
        return {name: groups[name] for name in self.grid.configurations}

    @cached_property
    def labels(self) -> dict[str, str]:
        """A short name per configuration; where two would be the same, the configuration itself."""
        labels = {name: run.label for name, run in self.first.items()}
        taken = list(labels.values())
        return {name: label if taken.count(label) == 1 else name for name, label in labels.items()}

    @cached_property
    def tasks(self) -> list[str]:
        """Tasks by difficulty, within it by mean outcome over configurations, highest first, as in the paper."""
        raw = stats.grid(self.focus)
        level = dict(zip(raw.tasks, stats.mean_along(raw.task_means, axis=0), strict=True))
        ranks = {difficulty: rank for rank, difficulty in enumerate(Difficulty)}
        slugs = dict.fromkeys(run.task for run in self.runs)
        return sorted(
            slugs,
            key=lambda slug: (
                ranks[self.specs[slug].difficulty] if slug in self.specs else len(ranks),
                -np.nan_to_num(level.get(slug, np.nan), nan=-1.0),
                slug,
            ),
        )

    def task_label(self, slug: str) -> str:
        return self.specs[slug].label if slug in self.specs else slug

    @cached_property
    def title_suffix(self) -> str:
        """What titles add, so that nobody takes other data for the benchmark's."""
        return "" if self.dataset == PUBLISHED else f" ({self.dataset})"

    @cached_property
    def id_suffix(self) -> str:
        """The dataset as a part of file names."""
        return "-" + "".join(letter if letter.isalnum() else "-" for letter in self.dataset)

    @cached_property
    def judges(self) -> str:
        """Say who judged the process scores, and how well that judge is known to agree with experts."""
        judged = [run for run in self.runs if run.judge and run.process is not None]
        names = sorted({(str(run.judge), run.source == "record") for run in judged})
        if not names:
            return "No process score was judged."
        return " ".join(
            f"Process judged by {name}; agreement with experts {'not measured' if ours else AS_PUBLISHED}."
            for name, ours in names
        )

    @cached_property
    def focus(self) -> list[Run]:
        """The comparison of agents: the runs of the model on which most agents ran, under one instruction level.

        Where no model was given to at least three agents, all real runs of the commonest level.
        """
        levels = stats.by(self.real, lambda run: run.instruction)
        level = max(levels, key=lambda name: len(levels[name]))
        models = stats.by(levels[level], lambda run: run.model)
        agents = {model: {run.agent for run in members} for model, members in models.items()}
        model = max(agents, key=lambda name: len(agents[name]))
        return models[model] if model is not None and len(agents[model]) >= FEWEST_AGENTS else levels[level]

    @cached_property
    def focus_names(self) -> list[str]:
        inside = {run.configuration for run in self.focus}
        return [name for name in self.grid.configurations if name in inside]

    @cached_property
    def focus_grid(self) -> stats.Grid:
        return self.grid.of(self.focus_names)

    @cached_property
    def focus_text(self) -> str:
        """Name the comparison of agents for captions."""
        models = {run.model for run in self.focus}
        number = len(self.focus_names)
        what = f"{number} configuration{'s' if number != 1 else ''}"
        return f"{what} on {models.pop()}" if len(models) == 1 and None not in models else what


def studies(runs: Sequence[Run], tasks: Mapping[str, TaskSpec]) -> list[Study]:
    """Split the runs by dataset, the published one first; datasets are never pooled."""
    groups = stats.by(runs, lambda run: run.dataset)
    return [Study(name, groups[name], tasks) for name in sorted(groups, key=lambda name: (name != "full", name))]


# --- strata --------------------------------------------------------------------------------------------------------


def chain_depth(task: TaskSpec) -> int:
    """Return how many artifacts stand on each other between the raw images and the scored result."""
    return max(1, len({_STEPS[subtask] for subtask in task.subtasks if subtask in _STEPS}))


def input_size(task: TaskSpec) -> str:
    return next((name for low, high, name in _SIZES if low <= task.input_size_mb < high), "1.5 GB and more")


def strata(tasks: Mapping[str, TaskSpec]) -> dict[str, dict[str, list[str]]]:
    """Return, per kind of stratum, the tasks of every stratum, in a meaningful order. Subtasks overlap."""
    specs = tasks.values()
    depth = {name: [t.slug for t in specs if _capped(chain_depth(t)) == name] for name in ("1", "2", "3+")}
    chained = sorted({len(t.subtasks) for t in specs})
    modalities = sorted({t.modality.value for t in specs})
    sizes = [name for _low, _high, name in _SIZES] + ["1.5 GB and more"]
    found = {
        "subtask": {
            subtask.value.replace("_", " "): [t.slug for t in specs if subtask in t.subtasks] for subtask in Subtask
        },
        "dimension": {
            name: [t.slug for t in specs if (t.dimension, t.temporal) == key]
            for name, key in (
                ("2D", ("2D", "static")),
                ("2D time-lapse", ("2D", "time-lapse")),
                ("3D", ("3D", "static")),
                ("3D time-lapse", ("3D", "time-lapse")),
            )
        },
        "difficulty": {level.value: [t.slug for t in specs if t.difficulty is level] for level in Difficulty},
        "modality": {
            name.replace("_", " "): [t.slug for t in specs if t.modality.value == name] for name in modalities
        },
        "input size": {name: [t.slug for t in specs if input_size(t) == name] for name in sizes},
        "chained subtasks": {str(n): [t.slug for t in specs if len(t.subtasks) == n] for n in chained},
        "artifact-chain depth": depth,
    }
    return {kind: {name: slugs for name, slugs in groups.items() if slugs} for kind, groups in found.items()}


def _capped(depth: int) -> str:
    return str(depth) if depth < 3 else "3+"
