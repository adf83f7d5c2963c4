"""The agents that need no model: empty, bluff, replay, command."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from agents import AGENTS, load_agent
from agents.base import Agent, Launch, Session
from biabench_plugin import supervisor
from biabench_plugin.isolation import Containment, IsolationUnavailable, Rooms, containment_for
from biabench_plugin.probe import scratch_rooms
from biabench_plugin.taskspec import load_tasks, render_instruction

ROOT = Path(__file__).resolve().parents[2]
TASKS = load_tasks(ROOT / "tasks")


@pytest.fixture
def rooms(tmp_path: Path) -> Rooms:
    folder = tmp_path / "0123456789abcdef"
    folder.mkdir()
    return scratch_rooms(folder)


@pytest.fixture
def boxed() -> Containment:
    try:
        return containment_for("required")
    except IsolationUnavailable as error:
        pytest.skip(str(error))


def session(rooms: Rooms, containment: Containment, task: str = "cell_counting", **changes: object) -> Session:
    paths = containment.paths(rooms)
    text = render_instruction(TASKS[task], "brief", gpu=False, input_dir=paths.input_dir, output_dir=paths.output_dir)
    values: dict[str, object] = {
        "instruction": text,
        "instruction_file": paths.instruction_file,
        "input_dir": paths.input_dir,
        "output_dir": paths.output_dir,
        "budget_seconds": 60.0,
    }
    return Session(**{**values, **changes})  # type: ignore[arg-type]


def run(agent: Agent, rooms: Rooms, containment: Containment, told: Session) -> supervisor.RunResult:
    return supervisor.run(
        agent.launch(told), rooms=rooms, containment=containment, limits=supervisor.Limits(120.0, grace_seconds=2.0)
    )


# --- the table ---------------------------------------------------------------------------------------------------


def test_unknown_agent_names_the_choices() -> None:
    with pytest.raises(ValueError, match=r"unknown agent 'nobody': choose from .*bluff, .*empty, .*replay"):
        load_agent("nobody")


@pytest.mark.parametrize("name", ["bluff", "command", "empty", "replay"])
def test_table_leads_to_the_agent_of_that_name(name: str) -> None:
    assert load_agent(name).name == name
    assert load_agent(name).description


def test_only_agents_that_read_truth_run_outside() -> None:
    for name in AGENTS:
        agent = load_agent(name)
        assert agent.contained is not agent.reads_truth


# --- empty and bluff ---------------------------------------------------------------------------------------------


def test_empty_leaves_nothing(rooms: Rooms, boxed: Containment) -> None:
    result = run(load_agent("empty"), rooms, boxed, session(rooms, boxed))
    assert (result.exit_code, result.start_error) == (0, None)
    assert list(rooms.output.iterdir()) == []


@pytest.mark.parametrize("task", sorted(TASKS))
def test_bluff_claims_everything_and_delivers_nothing(rooms: Rooms, boxed: Containment, task: str) -> None:
    agent = load_agent("bluff")
    result = run(agent, rooms, boxed, session(rooms, boxed, task))
    assert result.exit_code == 0
    assert [path.name for path in rooms.output.rglob("*")] == ["report.md"]
    report = (rooms.output / "report.md").read_text()
    for deliverable in TASKS[task].deliverables:
        assert f"`{deliverable.id}`: complete" in report
        assert not any(Path("report.md").match(pattern) for pattern in deliverable.patterns)
    evidence = agent.read(rooms.logs / "stdout.log", rooms.logs / "stderr.log", rooms.output)
    assert "analysis is complete" in str(evidence.final_message)


# --- replay ------------------------------------------------------------------------------------------------------


def test_replay_starts_our_own_code_on_the_truth(rooms: Rooms, tmp_path: Path) -> None:
    outside = containment_for("required", contained=False)
    told = session(rooms, outside, truth_dir=tmp_path / "evaluation", task_dir=ROOT / "tasks" / "cell_counting")
    launch = load_agent("replay").launch(told)
    assert launch.argv[:3] == (sys.executable, "-m", "evaluators.replay_main")
    words = dict(zip(launch.argv[3::2], launch.argv[4::2], strict=True))
    assert words == {
        "--task-dir": str(ROOT / "tasks" / "cell_counting"),
        "--truth": str(tmp_path / "evaluation"),
        "--input": str(rooms.input),
        "--output": str(rooms.output),
    }
    assert Path(launch.environment["PYTHONPATH"]) == ROOT


def test_replay_without_truth_says_so(rooms: Rooms) -> None:
    with pytest.raises(ValueError, match="needs the task's truth"):
        load_agent("replay").launch(session(rooms, containment_for("off", contained=False)))


def test_replay_runs_where_nothing_is_installed(rooms: Rooms, tmp_path: Path) -> None:
    """From any working folder, it ends with the module's own complaint about a truth folder that does not exist."""
    outside = containment_for("required", contained=False)
    told = session(rooms, outside, truth_dir=tmp_path / "nowhere", task_dir=ROOT / "tasks" / "cell_counting")
    result = run(load_agent("replay"), rooms, outside, told)
    assert result.start_error is None
    assert result.exit_code not in (0, None)
    assert "No module named" not in (rooms.logs / "stderr.log").read_text()


# --- command -----------------------------------------------------------------------------------------------------


def launch_of(command: str, **changes: object) -> Launch:
    values: dict[str, object] = {
        "instruction": "text",
        "instruction_file": "/instruction.md",
        "input_dir": "/input",
        "output_dir": "/output",
        "budget_seconds": 60.0,
        "command": command,
    }
    return load_agent("command").launch(Session(**{**values, **changes}))  # type: ignore[arg-type]


def test_placeholders_and_quotes() -> None:
    launch = launch_of("tool '{input}/a b' --out={output} -m {model} {instruction} '{\"json\": {}}'", model="m/1")
    assert launch.argv == ("tool", "/input/a b", "--out=/output", "-m", "m/1", "/instruction.md", '{"json": {}}')
    assert launch.environment == {"BIABENCH_MODEL": "m/1"}
    assert launch.binds == ()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("", "--agent-command='PROGRAM"),
        ("tool 'open", "No closing quotation"),
        ("tool {model}", "no model was given"),
        ("/nonexistent/tool", "no such program: /nonexistent/tool"),
    ],
)
def test_unfit_commands_are_refused(command: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        launch_of(command)


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture(params=["required", "off"])
def either(request: pytest.FixtureRequest) -> Containment:
    found: Containment = request.getfixturevalue("boxed") if request.param == "required" else containment_for("off")
    return found


def ran(command: str, rooms: Rooms, containment: Containment, **changes: object) -> tuple[str, str]:
    told = session(rooms, containment, command=command, **changes)
    run(load_agent("command"), rooms, containment, told)
    return (rooms.logs / "stdout.log").read_text(), (rooms.logs / "stderr.log").read_text()


def test_program_of_the_system(rooms: Rooms, either: Containment) -> None:
    (rooms.input / "a").touch()
    assert ran("ls {input}", rooms, either)[0] == "a\n"


def test_program_of_ones_own(rooms: Rooms, either: Containment, tmp_path: Path) -> None:
    tool = script(tmp_path / "home" / "mine.sh", '#!/bin/sh\necho "$1" $BIABENCH_MODEL; ls "$(dirname "$0")"\n')
    (tmp_path / "home" / "private").touch()
    out, err = ran(f"{tool} {{output}}", rooms, either, model="m")
    lines = out.split()
    assert lines[:3] == [either.paths(rooms).output_dir, "m", "mine.sh"], err
    assert ("private" in lines) is not either.in_force


def test_relative_program_and_file(
    rooms: Rooms, boxed: Containment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "here" / "tool", '#!/bin/sh\ncat "$1"\n')
    (tmp_path / "here" / "settings.txt").write_text("settings")
    monkeypatch.chdir(tmp_path / "here")
    assert ran("./tool settings.txt", rooms, boxed)[0] == "settings"


def test_script_on_this_interpreter(
    rooms: Rooms, either: Containment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``python mine.py`` runs on the Python that runs pytest, with its libraries."""
    monkeypatch.setenv("PATH", f"{Path(sys.prefix, 'bin')}:{os.environ['PATH']}")
    mine = script(tmp_path / "mine.py", "import numpy, sys\nprint(numpy.__version__, sys.argv[1])\n")
    import numpy

    out, err = ran(f"python {mine} {{input}}", rooms, either)
    assert out == f"{numpy.__version__} {either.paths(rooms).input_dir}\n", err


def test_interpreter_in_the_first_line(rooms: Rooms, boxed: Containment, tmp_path: Path) -> None:
    shell = tmp_path / "env" / "bin" / "myshell"
    shell.parent.mkdir(parents=True)
    shell.symlink_to("/bin/sh")
    (tmp_path / "env" / "conda-meta").mkdir()
    (tmp_path / "env" / "share").write_text("of the environment")
    tool = script(tmp_path / "tool", f'#!{shell}\ncat "$1"\n')
    assert ran(f"{tool} {tmp_path}/env/share", rooms, boxed)[0] == "of the environment"


def test_program_found_on_the_operators_path(
    rooms: Rooms, boxed: Containment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "bin" / "my-own-agent", "#!/bin/sh\necho mine\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert ran("my-own-agent", rooms, boxed)[0] == "mine\n"


def test_program_that_is_nowhere_is_a_start_error(rooms: Rooms, boxed: Containment) -> None:
    told = session(rooms, boxed, command="no-such-agent-anywhere")
    result = run(load_agent("command"), rooms, boxed, told)
    assert "no-such-agent-anywhere" in str(result.start_error)
