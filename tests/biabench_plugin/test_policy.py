"""What happens to a trial that went wrong: retried once, taken out by the operator, topped up, interrupted."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from biabench_plugin import exclusions, sessions
from biabench_plugin.records import RecordError, TrialRecord, write_record
from biabench_plugin.report.rows import from_campaign
from biabench_plugin.topup import repeats

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., Any]

PERFECT = """
import os, pathlib
target = pathlib.Path(os.environ["BIABENCH_OUTPUT"])
(target / "0.csv").write_text("X,Y\\n10,12\\n30,40\\n50,20\\n")
(target / "1.csv").write_text("X,Y\\n")
"""


@pytest.fixture
def tiny(make_task: Callable[..., Path]) -> list[str]:
    return [f"--tasks={make_task()}", "-k", "tiny"]


def command(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "agent.py").write_text(text)
    return ["--agent=command", f"--agent-command={sys.executable} {tmp_path / 'agent.py'}"]


def cli(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "biabench_plugin.cli", *words],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


# --- infrastructure faults ------------------------------------------------------------------------------------------


def test_a_killed_watcher_is_retried_once_then_excluded_and_listed(
    tmp_path: Path, run_pytest: Run, tiny: list[str]
) -> None:
    kill_watcher = (
        "import os, signal, pathlib\n"
        "pid = int(pathlib.Path('/proc/self/stat').read_text().rpartition(')')[2].split()[1])\n"
        "os.kill(pid, signal.SIGKILL)\n"
    )
    words = [*command(tmp_path, kill_watcher), "--isolation=off", *tiny]
    done = run_pytest(*words, cwd=tmp_path)
    assert "1 error" in done.out, done.out
    assert "the process that watches the agent was killed" in done.out
    assert "Traceback" not in done.out
    assert "biabench_plugin/" not in done.out.partition("ERRORS")[2].partition("generated xml")[0]  # no source lines
    attempts = sorted((done.campaign / "runs/tiny/command+brief/r1").glob("attempt-*/record.json"))
    assert len(attempts) == 2
    records = [json.loads(path.read_text()) for path in attempts]
    assert all(record["infrastructure"] and record["score"] is None for record in records)
    again = run_pytest(*words, cwd=tmp_path)
    assert "1 error" in again.out
    assert len(list((done.campaign / "runs/tiny/command+brief/r1").glob("attempt-*"))) == 2
    (row,) = from_campaign(done.campaign)
    assert (row.status, row.faults, row.counts) == ("infrastructure", 2, False)
    more = run_pytest(*words, "--rerun=failed", cwd=tmp_path)  # adds attempts, replaces none
    assert len(list((more.campaign / "runs/tiny/command+brief/r1").glob("attempt-*/record.json"))) == 4


@pytest.mark.full
def test_unusable_reference_data_blame_no_agent(tmp_path: Path, run_pytest: Run) -> None:
    data = tmp_path / "data" / "nfkb_translocation"
    made = cli("demo", "nfkb_translocation", str(data))
    assert made.returncode == 0, made.stderr
    for path in (data / "evaluation").iterdir():
        path.unlink()
    words = ["--agent=replay", f"--dataset={data.parent}", "--repeats=1"]
    done = run_pytest(*words, cwd=tmp_path)
    assert "1 skipped" in done.out, done.out
    assert "needs reference data" in done.out
    (data / "evaluation" / "notes.txt").write_text("nothing that a score could use")
    done = run_pytest(*words, cwd=tmp_path)
    assert "crashed" not in done.out, done.out
    assert "1 error" in done.out
    assert "unusable reference data" in done.out


# --- the operator's exclusions ---------------------------------------------------------------------------------------


def test_exclusions_leave_the_means_and_stay_visible(tmp_path: Path, run_pytest: Run, tiny: list[str]) -> None:
    words = ["--agent=replay", "--agent=empty", "--repeats=2", *tiny]
    done = run_pytest(*words, cwd=tmp_path)
    trial = done.campaign / "runs/tiny/replay+brief/r1/attempt-1"
    assert cli("exclude", str(trial), "--reason", "read the truth (audit)").returncode == 0
    assert cli("exclude", "empty[brief]", "--reason", "pilot", "--campaign", str(done.campaign)).returncode == 0
    report = cli("report", str(done.campaign))
    assert "excluded by the operator: read the truth (audit)" in report.stdout
    rows = {row["configuration"]: row for row in json.loads((done.campaign / "leaderboard.json").read_text())["rows"]}
    assert rows["replay[brief]"]["cells"]["tiny"]["scored"] == 1
    assert (rows["empty[brief]"]["outcome"], rows["empty[brief]"]["excluded"]) == (None, 2)
    assert rows["replay[brief]"]["excluded"] == 1
    assert "read the truth (audit)" in (done.campaign / "report" / "index.html").read_text()
    status = cli("status", str(done.campaign))
    assert "3 excluded" in status.stdout
    again = run_pytest(*words, cwd=tmp_path)
    assert (again.code, "3 skipped" in again.out, "1 passed" in again.out) == (0, True, True), again.out
    undone = cli("exclude", "empty[brief]", "--reason", "kept", "--campaign", str(done.campaign), "--undo")
    assert undone.returncode == 0, undone.stderr
    assert len(exclusions.history(done.campaign)) == 3  # append-only
    assert len(from_campaign(done.campaign)) == 4
    assert sum(row.excluded is not None for row in from_campaign(done.campaign)) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x[brief]", "--reason", "r"], "say which campaign"),
        (["x[brief]", "--reason", "r", "--campaign", "CAMPAIGN"], "knows no trial or configuration 'x[brief]'"),
        (["x[brief]", "--reason", " ", "--campaign", "CAMPAIGN"], "say why"),
        (["a[brief]", "--reason", "r", "--campaign", "CAMPAIGN", "--undo"], "nothing to undo"),
        (["a[brief]", "--reason", "r", "--campaign", "nowhere"], "no campaign folder"),
    ],
)
def test_exclude_says_what_is_wrong(
    tmp_path: Path, make_record: Callable[..., TrialRecord], words: list[str], message: str
) -> None:
    (tmp_path / "campaign.json").write_text("{}")
    folder = "runs/tiny/a+brief/r1/attempt-1"
    write_record(make_record(configuration="a[brief]", run_folder=folder), tmp_path / folder)
    done = cli("exclude", *(str(tmp_path) if word == "CAMPAIGN" else word for word in words))
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / exclusions.FILE).exists()


def test_an_append_that_was_cut_off_is_no_decision(tmp_path: Path) -> None:
    exclusions.add(tmp_path, "a[brief]", "one")
    with (tmp_path / exclusions.FILE).open("ab") as stream:
        stream.write(b'{"when": "2026')
    assert exclusions.active(tmp_path) == {"a[brief]": "one"}
    exclusions.add(tmp_path, "b[brief]", "two")
    assert exclusions.active(tmp_path) == {"a[brief]": "one", "b[brief]": "two"}
    (tmp_path / exclusions.FILE).write_text("nonsense\n")
    with pytest.raises(RecordError, match=r"exclusions\.jsonl:1"):
        exclusions.active(tmp_path)


# --- topping up ------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_until_scored_adds_repeats_in_place_of_excluded_ones(tmp_path: Path, run_pytest: Run, tiny: list[str]) -> None:
    words = [*command(tmp_path, PERFECT), "--until-scored=2", *tiny]
    done = run_pytest(*words, cwd=tmp_path)
    assert "2 passed" in done.out, done.out
    trial = done.campaign / "runs/tiny/command+brief/r1"
    cli("exclude", str(trial), "--reason", "operator pulled the plug")
    for more in ([], ["-n", "2"]):
        again = run_pytest(*words, *more, cwd=tmp_path)
        assert "2 passed, 1 skipped" in again.out, again.out
    assert sorted(path.name for path in trial.parent.iterdir()) == ["r1", "r2", "r3"]
    (row,) = json.loads((done.campaign / "leaderboard.json").read_text())["rows"]
    assert (row["cells"]["tiny"]["scored"], row["excluded"]) == (2, 1)


def test_topping_up_has_an_end(tmp_path: Path, make_record: Callable[..., TrialRecord]) -> None:
    def add(repeat: int, **changes: object) -> None:
        folder = f"runs/tiny/a+brief/r{repeat}/attempt-1"
        write_record(
            make_record(configuration="a[brief]", repeat=repeat, run_folder=folder, **changes), tmp_path / folder
        )

    add(1)
    assert repeats(tmp_path, 3) == {}
    add(2, infrastructure="once")  # will be tried again by itself
    assert repeats(tmp_path, 3) == {}
    for repeat in range(3, 9):
        add(repeat, status="refused")
    assert repeats(tmp_path, 3) == {"tiny a[brief]": 6}


# --- the same command ------------------------------------------------------------------------------------------------


def test_midnight_does_not_start_a_campaign_over(tmp_path: Path) -> None:
    yesterday = (datetime.now(UTC) - timedelta(days=1)).date().isoformat()
    folder = tmp_path / "campaigns" / f"{yesterday}-demo"
    command = sessions.Command("abc", ["--agent=x"], 60.0)
    command.begin(folder, ["t"])
    assert sessions.default_folder(tmp_path, "demo", "abc") == folder
    today = tmp_path / "campaigns" / f"{datetime.now(UTC).date().isoformat()}-demo"
    assert sessions.default_folder(tmp_path, "demo", "another command") == today
    assert sessions.default_folder(tmp_path, "demo:1", "abc").name.endswith("-demo-1")
    command.end(folder)
    assert sessions.default_folder(tmp_path, "demo", "abc") == today


@pytest.mark.full
def test_a_command_is_through_when_every_trial_was_reported(tmp_path: Path, run_pytest: Run, tiny: list[str]) -> None:
    words = ["--agent=replay", "--agent=empty", *tiny]
    stopped = run_pytest(*words, "-x", cwd=tmp_path)
    assert [found.finished for found in sessions.commands(stopped.campaign)] == [None]
    status = cli("status", str(stopped.campaign))
    assert "1/2 done" in status.stdout, status.stdout
    assert re.search("unfinished  pytest .*--agent=replay", status.stdout)
    for more in ([], ["-n", "2"]):
        run_pytest(*words, *more, cwd=tmp_path)
        (found,) = sessions.commands(stopped.campaign)
        assert found.finished is not None
        assert len(found.planned) == 2


def test_last_failed_selects_failed_trials(tmp_path: Path, run_pytest: Run, tiny: list[str]) -> None:
    words = ["--agent=replay", "--agent=empty", *tiny, "-p", "cacheprovider"]
    run_pytest(*words, cwd=tmp_path)
    again = run_pytest(*words, "--lf", cwd=tmp_path)
    assert "1 failed" in again.out, again.out
    assert "passed" not in again.out.splitlines()[-1]
    assert "rerun previous 1 failure" in again.out


# --- seeing it run, and stopping it ----------------------------------------------------------------------------------

SLOW = (
    PERFECT
    + """
import signal, sys, time
def leave(*_):
    (target / "goodbye.txt").write_text("asked to leave")
    sys.exit(0)
if {patient}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, leave)
time.sleep(600)
"""
)


class Terminal:
    """A pytest session on a pseudo-terminal, in the foreground of its own session, as a user has it."""

    def __init__(self, words: list[str], cwd: Path) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "CI"}
        environment |= {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": "150", "LINES": "40"}
        self._pid, self._descriptor = pty.fork()
        if self._pid == 0:
            os.chdir(cwd)
            program = [sys.executable, "-m", "pytest", "-p", "biabench_plugin.plugin", "-p", "no:cacheprovider", *words]
            os.execve(program[0], program, environment)
        os.set_blocking(self._descriptor, False)
        self.text = ""

    def until(self, pattern: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.text):
            assert time.monotonic() < deadline, self.text[-3000:]
            self._read()
            time.sleep(0.05)

    def press_ctrl_c(self) -> None:
        os.write(self._descriptor, b"\x03")

    def wait(self, seconds: float = 60.0) -> int:
        deadline = time.monotonic() + seconds
        while True:
            self._read()
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > deadline:
                os.kill(self._pid, signal.SIGKILL)
                raise AssertionError(self.text[-3000:])
            time.sleep(0.05)

    def _read(self) -> None:
        try:
            self.text += os.read(self._descriptor, 1 << 16).decode(errors="replace")
        except (BlockingIOError, OSError):
            return


def agents_left(tmp_path: Path) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(tmp_path / "agent.py") in words[1:3]:
            found.append(folder.name)
    return found


@pytest.mark.parametrize("workers", [[], pytest.param(["-n", "2"], marks=pytest.mark.full)])
def test_live_view_and_ctrl_c_ends_agents_cleanly(
    tmp_path: Path, run_pytest: Run, tiny: list[str], workers: list[str]
) -> None:
    campaign = tmp_path / "campaign"
    words = [*command(tmp_path, SLOW.format(patient=False)), f"--campaign={campaign}", "--repeats=3", *tiny]
    terminal = Terminal([*words, *workers], tmp_path)
    terminal.until(r"0/3 done, [12] running")
    terminal.until(r"tiny command\[brief-r1\]\s+0:00:0\d of 4:00:00")
    status = cli("status", str(campaign))
    assert re.search(r"0/3 done, [12] running", status.stdout), status.stdout
    assert "running  tiny command[brief-r1]" in status.stdout
    written = len(list(campaign.glob("work/*/output/1.csv")))
    terminal.press_ctrl_c()
    assert terminal.wait() == 2
    assert written
    assert not agents_left(tmp_path)
    assert not list(campaign.rglob("record.json"))
    (tmp_path / "agent.py").write_text(PERFECT)
    done = run_pytest(*words[:-3], *words[-3:], cwd=tmp_path, campaign=campaign)
    assert "3 passed" in done.out, done.out


def test_ctrl_c_gives_an_agent_its_grace_and_a_second_one_ends_it_at_once(
    tmp_path: Path, run_pytest: Run, tiny: list[str]
) -> None:
    campaign = tmp_path / "campaign"
    words = [*command(tmp_path, SLOW.format(patient=True)), f"--campaign={campaign}", *tiny]
    terminal = Terminal(words, tmp_path)
    terminal.until(r"0/1 done, 1 running")
    deadline = time.monotonic() + 30
    while not list(campaign.glob("work/*/output/1.csv")) and time.monotonic() < deadline:
        time.sleep(0.05)
    terminal.press_ctrl_c()
    time.sleep(1.0)
    assert agents_left(tmp_path)  # it ignores SIGTERM and has ten seconds
    terminal.press_ctrl_c()
    begun = time.monotonic()
    assert terminal.wait() == 2
    assert time.monotonic() - begun < 8
    assert not agents_left(tmp_path)


@pytest.mark.parametrize("workers", [pytest.param([], marks=pytest.mark.full), ["-n", "2"]])
def test_plain_lines_in_a_log(tmp_path: Path, run_pytest: Run, tiny: list[str], workers: list[str]) -> None:
    done = run_pytest("--agent=replay", "--agent=empty", *tiny, *workers, cwd=tmp_path)
    lines = [line for line in done.out.splitlines() if " done, " in line]
    assert re.match(r"tiny \S+\[brief-r1\]: \w+ [01]\.000 in 0:00:0\d \| \d/2 done", lines[0]), done.out
    assert "2/2 done, 1 delivered, 1 failed, 0 running" in lines[-1]
    assert "  replay[brief]  1.000 (n=1)" in done.out
    assert "\x1b[" not in done.out
    assert "FAILED tasks/tiny/task.yaml::empty[brief-r1]" in done.out
