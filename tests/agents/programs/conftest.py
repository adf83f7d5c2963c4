"""Run real trials of the real programs against the scripted provider: no network, no key, no model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from agents import load_agent
from agents.relay.ledger import FILE_NAME as LEDGER
from agents.relay.ledger import Exchange, read_ledger
from agents.transcript import FILE_NAME as TRANSCRIPT
from agents.transcript import Step, read_transcript
from biabench_plugin.campaign import Configuration, Settings, Trial
from biabench_plugin.datasets import Dataset
from biabench_plugin.execute import Host, run_attempt
from biabench_plugin.isolation import IsolationUnavailable, containment_for
from biabench_plugin.records import TrialRecord
from biabench_plugin.taskspec import load_tasks
from biabench_plugin.workspace import TrialFolder
from tests.model_server import ModelServer, Turn
from tests.samples import TINY_DEMO

ROOT = Path(__file__).resolve().parents[3]
CANARY = "canary-5f1d0c7e9a"

# What a model would write: threshold, label, one table per image, with what every Python here has.
ANALYSIS = """\
cat > /tmp/count.py <<'END'
import os, pathlib
import numpy as np, tifffile
from scipy import ndimage
source, target = (pathlib.Path(os.environ["BIABENCH_" + name]) for name in ("INPUT", "OUTPUT"))
paths = sorted(source.glob("*.tif*"))
for path in paths[: int(os.environ.get("HOW_MANY", len(paths)))]:
    image = ndimage.gaussian_filter(tifffile.imread(path).astype(float), 2)
    peaks = (image == ndimage.maximum_filter(image, 15)) & (image > np.median(image) + 0.25 * np.ptp(image))
    rows = "".join(f"{x},{y}\\n" for y, x in np.argwhere(peaks))
    (target / (path.stem + ".csv")).write_text("X,Y\\n" + rows)
print("tables:", len(list(target.glob("*.csv"))))
END
python3 /tmp/count.py"""


# The same in one line of shell, for tests that are not about the analysis.
TABLES = "printf 'X,Y\\n10,12\\n30,40\\n50,20\\n' > /output/0.csv; printf 'X,Y\\n' > /output/1.csv"


@dataclass(frozen=True)
class Ran:
    """A finished trial and everything that it left."""

    record: TrialRecord
    folder: Path
    server: ModelServer

    @property
    def instruction(self) -> str:
        return (self.folder / "instruction.md").read_text(encoding="utf-8")

    @property
    def ledger(self) -> list[Exchange]:
        return read_ledger(self.folder / LEDGER)

    @property
    def steps(self) -> list[Step]:
        path = self.folder / TRANSCRIPT
        return list(read_transcript(path)) if path.exists() else []


def _script(turns: Sequence[Turn]) -> Iterator[Turn]:
    yield from turns
    while True:
        yield turns[-1]


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Demo data and probes, once per session."""
    former = os.environ.get("BIABENCH_CACHE")
    os.environ.setdefault("BIABENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    if former is None:
        del os.environ["BIABENCH_CACHE"]


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes a task of two small images, with the given instruction."""

    def make(instruction: str) -> Path:
        folder = tmp_path / "tasks" / "tiny"
        folder.mkdir(parents=True)
        text = (ROOT / "tasks" / "cell_counting" / "task.yaml").read_text(encoding="utf-8")
        (folder / "task.yaml").write_text(text.replace("slug: cell_counting", "slug: tiny"), encoding="utf-8")
        for level in ("brief", "detailed"):
            (folder / f"{level}.md").write_text(instruction, encoding="utf-8")
        (folder / "demo.py").write_text(TINY_DEMO, encoding="utf-8")
        return folder.parent

    return make


@pytest.fixture
def run_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: Callable[[str], Path]) -> Callable[..., Ran]:
    """Return a function that runs one trial against a script, of a tiny task or of the one that is named."""

    def run(
        name: str,
        turns: Sequence[Turn],
        *,
        budget: float = 90.0,
        network: str = "open",
        relay: bool = True,
        isolation: str = "required",
        effort: str = "medium",
        model: str = "test-model",
        web_tools: str | None = None,
        task_name: str | None = None,
        instruction: str = "Please count the cells in every image.\n",
        after_start: Callable[[ModelServer], object] = lambda _: None,
    ) -> Ran:
        agent = load_agent(name)
        if reason := agent.unavailable():
            pytest.skip(f"{name} cannot run here: {reason}")
        try:
            containment_for("required")
        except IsolationUnavailable as error:
            pytest.skip(str(error))
        tasks = load_tasks(ROOT / "tasks" if task_name else tiny(instruction))
        task = tasks[task_name or "tiny"]
        dataset = Dataset.parse("demo")
        data = dataset.locate(task)
        assert data is not None
        monkeypatch.setenv("BIABENCH_API_KEY", CANARY)
        settings = Settings(
            dataset="demo", repeats=1, budget_seconds=budget, network=network, isolation=isolation, relay=relay
        )  # type: ignore[arg-type]
        with ModelServer(lambda request: next(script)) as server:
            after_start(server)
            script = _script(turns)
            configuration = Configuration(
                agent=name, model=model, provider=server.url, effort=effort, web_tools=web_tools
            )  # type: ignore[arg-type]
            folder = TrialFolder(tmp_path / "campaign", Trial(task, configuration, 1))
            with folder.locked():
                record, path = run_attempt(folder, agent, Host(settings, "demo"), data, None, "key")
        return Ran(record, path.parent, server)

    return run
