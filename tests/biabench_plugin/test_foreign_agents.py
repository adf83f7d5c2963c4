"""Agents that other people write: by --agent-class, by entry point, and as docs/new-agent.md tells it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agents.base import Agent
from biabench_plugin.cli import app
from biabench_plugin.isolation import containment_for

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "new-agent.md").read_text(encoding="utf-8")
bubblewrap = pytest.mark.skipif(not containment_for("auto").in_force, reason="needs bubblewrap")


def _block(language: str, name: str) -> str:
    """Return the block of the page that begins with the comment ``# name``."""
    found: list[str] = re.findall(rf"```{language}\n# {re.escape(name)}\n(.*?)```", PAGE, re.S)
    assert len(found) == 1, name
    return found[0]


@pytest.fixture
def follow(tmp_path: Path) -> Path:
    """Return a folder with the files of the page."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("counter.py", "my_agents.py"):
        (folder / name).write_text(_block("python", name), encoding="utf-8")
    return folder


def _environment(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "COUNTER_API_KEY": "k", "OTHER_KEY": "not for agents"}


@bubblewrap
def test_the_page_can_be_followed(follow: Path, tmp_path: Path, run_pytest: Callable[..., Any]) -> None:
    (commands,) = re.findall(r"### 3\. Run it\n\n```bash\n(.*?)```", PAGE, re.S)
    examine, run = (shlex.split(line) for line in commands.splitlines())
    assert (examine[0], run[0]) == ("biabench", "pytest")
    environment = {**os.environ, **_environment(follow)}
    done = subprocess.run(
        [sys.executable, "-m", "biabench_plugin.cli", *examine[1:]], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok  counter" in done.stdout

    # with a worker, which must know the class too
    ran = run_pytest(*run[1:], "--isolation=required", "-n", "1", cwd=tmp_path, environment=_environment(follow))
    assert ran.code == 0, ran.out
    (path,) = ran.campaign.glob("runs/cell_counting/counter+some~model-brief/r1/attempt-1/record.json")
    record = json.loads(path.read_text())
    assert (record["agent"], record["agent_version"], record["status"]) == ("counter", "1", "delivered")
    assert record["usage"]["output_tokens"] == 7
    assert record["usage"]["cached_tokens"] is None
    words = (path.parent / "instruction.md").read_text().split()
    assert record["usage"]["input_tokens"] == len(words)
    assert record["usage"]["tool_calls"] == 1
    assert record["final_message"] == "I wrote one table per image."


def test_an_entry_point_is_found_without_an_option(follow: Path) -> None:
    project = tomllib.loads(_block("toml", "pyproject.toml"))["project"]
    about = follow / f"my_agents-{project['version']}.dist-info"  # as an installer writes it
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in rows.items())
        for group, rows in project["entry-points"].items()
    )
    (about / "entry_points.txt").write_text(points)
    program = "from agents import load_agent; print(type(load_agent('counter'))); load_agent('nobody')"
    environment = {**os.environ, **_environment(follow)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert "my_agents.Counter" in done.stdout
    assert "unknown agent 'nobody': choose from agentic_j" in done.stderr
    assert "counter" in done.stderr


MODULE = """
from agents.base import Agent
class Fit(Agent):
    name = "fit"
class Taken(Agent):
    name = "empty"
class Nameless(Agent):
    pass
class Odd(Agent):
    name = "Has Spaces"
class NoAgent:
    name = "x"
"""


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("odd_agents:Taken", "the name 'empty' is taken"),
        ("odd_agents:Nameless", "its `name` is ''"),
        ("odd_agents:Odd", "its `name` is 'Has Spaces'"),
        ("odd_agents:NoAgent", "is no subclass of agents.base.Agent"),
        ("odd_agents:Missing", "has no Missing"),
        ("no_such_module:X", "is it installed, or its folder on PYTHONPATH?"),
        ("odd_agents", "expected package.module:Class"),
    ],
)
def test_an_unfit_class_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, message: str) -> None:
    import agents

    (tmp_path / "odd_agents.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "odd_agents", raising=False)
    with pytest.raises(ValueError, match=re.escape(message)):
        agents.register(reference)


def test_a_registered_class_is_loaded_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import agents

    (tmp_path / "odd_agents.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "odd_agents", raising=False)
    monkeypatch.setattr(agents, "_REGISTERED", {})
    assert agents.register("odd_agents:Fit") == "fit"
    assert agents.register("odd_agents:Fit") == "fit"  # twice is once
    assert isinstance(agents.load_agent("fit"), Agent)


@pytest.mark.parametrize("named", [["classical", "torn"], []])
def test_doctor_lists_the_others_where_an_agent_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: list[str]
) -> None:
    import agents

    (tmp_path / "torn_agents.py").write_text(
        "from agents.base import Agent\nclass Torn(Agent):\n    name = 'torn'\n"
        "    def unavailable(self):\n        raise KeyError('HOME_OF_TORN')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(agents, "_REGISTERED", {})
    done = CliRunner().invoke(app, ["doctor", *named, "--agent-class", "torn_agents:Torn"])
    assert done.exit_code == 1
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert "torn cannot be examined, its code raised KeyError: 'HOME_OF_TORN'" in done.output
    assert "ok  classical" in done.output


def test_a_class_without_an_agent_to_run_is_a_usage_error(tmp_path: Path, run_pytest: Callable[..., Any]) -> None:
    done = run_pytest("--agent-class=x:Y", cwd=tmp_path)
    assert done.code == 4
    assert "--agent-class" in done.out
    assert "needs --agent" in done.out
    wrong = run_pytest("--agent=empty", "--agent-class=no_such:Y", cwd=tmp_path)
    assert wrong.code == 4
    assert "no_such" in wrong.out
    assert "Traceback" not in wrong.out


def test_a_reader_that_raises_is_named_on_the_terminal_and_the_page(
    tmp_path: Path, run_pytest: Callable[..., Any]
) -> None:
    (tmp_path / "mute_agents.py").write_text(
        "from agents.base import Agent, Launch\nclass Mute(Agent):\n    name = 'mute'\n"
        "    def launch(self, session):\n        return Launch(argv=('/bin/true',))\n"
        "    def read(self, stdout, stderr, output_dir):\n        raise LookupError('no events')\n"
    )
    environment = {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    words = ("--agent=mute", "--agent-class=mute_agents:Mute", "-k", "cell_counting")
    done = run_pytest(*words, cwd=tmp_path, environment=environment)
    assert "TRANSCRIPT not read: LookupError: no events" in done.out
    pages = [path.read_text() for path in (done.campaign / "report").rglob("*.html")]
    assert any("TRANSCRIPT not read: LookupError: no events" in page for page in pages)
