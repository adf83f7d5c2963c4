"""The shortcut agent: how it is started, what it hands in, and what it says when it cannot."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agents import AGENTS, load_agent
from agents.base import Session
from agents.shortcut.run import main, tricks

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(
    path.stem for path in (ROOT / "agents" / "shortcut").glob("[a-z]*.py") if path.stem not in ("agent", "run")
)


def session(tmp_path: Path, model: str | None = None, task: str = "cell_counting") -> Session:
    return Session(
        instruction="",
        instruction_file=str(tmp_path / "instruction.md"),
        input_dir=str(tmp_path / "input"),
        output_dir=str(tmp_path / "output"),
        budget_seconds=60.0,
        model=model,
        truth_dir=tmp_path / "evaluation",
        task_dir=ROOT / "tasks" / task,
    )


@pytest.fixture
def field(tmp_path: Path) -> Path:
    """A counting task of one field with three cells."""
    import numpy as np
    import tifffile

    for name in ("input", "evaluation"):
        (tmp_path / name).mkdir()
    tifffile.imwrite(tmp_path / "input" / "0.tiff", np.zeros((30, 40), np.uint8))
    (tmp_path / "evaluation" / "0.csv").write_text("X,Y\n1,2\n3,4\n5,6\n")
    return tmp_path


def start(launched: Session) -> subprocess.CompletedProcess[str]:
    """Start the agent as the supervisor does, with nothing of this process's environment."""
    launch = load_agent("shortcut").launch(launched)
    environment = {"PATH": os.environ["PATH"], **launch.environment}
    return subprocess.run(
        launch.argv, env=environment, capture_output=True, text=True, timeout=60, cwd="/", check=False
    )


def test_it_says_what_it_is() -> None:
    agent = load_agent("shortcut")
    assert "shortcut" in AGENTS
    assert (agent.contained, agent.reads_truth, agent.synthetic, agent.needs_model) == (False, True, True, False)
    assert agent.fingerprint() == load_agent("shortcut").fingerprint()


def test_without_a_name_the_first_trick_is_handed_in(field: Path) -> None:
    done = start(session(field))
    assert done.returncode == 0, done.stderr
    assert next(iter(tricks("cell_counting"))) in done.stdout
    lines = (field / "output" / "0.csv").read_text().split()
    assert len(lines) == 4


def test_a_name_chooses_the_trick(field: Path) -> None:
    done = start(session(field, "headers_alone"))
    assert done.returncode == 0, done.stderr
    assert (field / "output" / "0.csv").read_text() == "X,Y\n"


@pytest.mark.parametrize(
    ("model", "task", "message"),
    [("no_such_trick", "cell_counting", "choose from right_counts"), (None, "no_such_task", "no shortcut is known")],
)
def test_what_it_does_not_know_it_says(field: Path, model: str | None, task: str, message: str) -> None:
    done = start(session(field, model, task))
    assert done.returncode == 2
    assert message in done.stderr
    assert not (field / "output").exists()


def test_it_cannot_start_without_task_and_truth(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="task"):
        load_agent("shortcut").launch(
            Session("", "", str(tmp_path), str(tmp_path), budget_seconds=1.0, task_dir=None, truth_dir=None)
        )


@pytest.mark.parametrize("task", MODULES)
def test_every_module_has_tricks_and_says_what_they_are(task: str) -> None:
    found = tricks(task)
    assert len(found) >= 3
    assert all(name.isidentifier() and name.islower() for name in found)


def test_a_fault_inside_a_module_is_not_taken_for_a_missing_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import agents.shortcut

    (tmp_path / "broken.py").write_text("import no_such_library\n")
    monkeypatch.setattr(agents.shortcut, "__path__", [*agents.shortcut.__path__, str(tmp_path)])
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        tricks("broken")


def test_the_command_line_needs_its_folders(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--task", "cell_counting"])
    assert "--truth" in capsys.readouterr().err
