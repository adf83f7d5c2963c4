"""What the ladder tests of all tasks share: demo data built once, scoring of folders, the rungs of a ladder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count, pairwise
from pathlib import Path

import pytest

from biabench_plugin.datasets import build_demo
from biabench_plugin.taskspec import TaskSpec, load_task
from evaluators.evaluation import evaluate, replay
from evaluators.model import OutcomeScore

ROOT = Path(__file__).resolve().parents[3]
TOLERANCE = 0.02

Edit = Callable[[Path], None]
Trick = Callable[[Path, Path, Path], None]


@dataclass
class Bench:
    """Demo data of one task and seed, and scores of submissions to it.

    Attributes
    ----------
    spec
        The task.
    folder
        Holds ``input`` and ``evaluation``.
    scratch
        New folders are made below.
    """

    spec: TaskSpec
    folder: Path
    scratch: Path
    _numbers: count[int] = field(default_factory=count)

    @property
    def input(self) -> Path:
        return self.folder / "input"

    @property
    def truth(self) -> Path:
        return self.folder / "evaluation"

    def new(self) -> Path:
        """Return a new empty folder."""
        folder = self.scratch / f"{next(self._numbers):03d}"
        folder.mkdir(parents=True)
        return folder

    def perfect(self, edit: Edit | None = None) -> Path:
        """Return a replayed submission, changed by ``edit``."""
        source = self.scratch / "perfect"
        if not source.exists():
            source.mkdir(parents=True)
            replay(self.spec.outcome, self.spec.deliverables, self.truth, self.input, source)
        folder = self.new()
        shutil.copytree(source, folder, dirs_exist_ok=True)
        if edit is not None:
            edit(folder)
        return folder

    def score(self, submission: Path, truth: Path | None = None) -> OutcomeScore:
        """Score a folder."""
        truth = truth or self.truth
        return evaluate(self.spec.outcome, self.spec.deliverables, submission, truth, self.input)

    def edited(self, edit: Edit) -> OutcomeScore:
        """Score a replayed submission changed by ``edit``."""
        return self.score(self.perfect(edit))

    def trick(self, name: str, trick: Trick) -> OutcomeScore:
        """Score what a shortcut writes."""
        folder = self.new()
        trick(self.input, self.truth, folder)
        assert any(folder.rglob("*")), f"{name} wrote nothing"
        return self.score(folder)

    def tricks(self) -> dict[str, Trick]:
        """Return the task's shortcuts."""
        shortcuts: dict[str, Trick] = import_module(f"agents.shortcut.{self.spec.slug}").SHORTCUTS
        return shortcuts

    def bluff(self) -> Path:
        """Return a submission with a confident report and nothing else."""
        folder = self.new()
        (folder / "report.md").write_text("# Report\n\nAll images were analysed. All files were written.\n")
        return folder


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Bench]:
    """Return demo data of a task and seed with its scorer, built on first use."""
    built: dict[tuple[str, int], Bench] = {}

    def build(slug: str, seed: int) -> Bench:
        if (slug, seed) not in built:
            base = tmp_path_factory.mktemp(f"{slug}_{seed}_")
            task = load_task(ROOT / "tasks" / slug / "task.yaml")
            build_demo(task, base / "data", seed)
            built[slug, seed] = Bench(task, base / "data", base / "submissions")
        return built[slug, seed]

    return build


@pytest.fixture(scope="session")
def falls() -> Callable[[Sequence[OutcomeScore]], None]:
    """Return a check that neither score rises from rung to rung, and that the last rung is below the first."""

    def check(scores: Sequence[OutcomeScore]) -> None:
        for values in ([score.outcome for score in scores], [score.strict for score in scores]):
            known = [value for value in values if value is not None]
            assert all(later <= earlier + TOLERANCE for earlier, later in pairwise(known)), values
        assert scores[-1].outcome < scores[0].outcome, [score.outcome for score in scores]

    return check
