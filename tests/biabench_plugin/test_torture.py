"""Nothing that ran is lost: SIGKILL at random moments, two sessions on one campaign, disks that refuse."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from biabench_plugin._reaper import descendants

ROOT = Path(__file__).resolve().parents[2]
REPEATS = 5

AGENT = """
import os, pathlib, subprocess, sys, time
if len(sys.argv) > 1:
    time.sleep(3600)
subprocess.Popen([sys.executable, __file__, "stay"], start_new_session=True)
target = pathlib.Path(os.environ["BIABENCH_OUTPUT"])
(target / "0.csv").write_text("X,Y\\n10,12\\n30,40\\n50,20\\n")
(target / "1.csv").write_text("X,Y\\n")
time.sleep(0.7)
"""


class Session:
    """The same command on the same campaign, started as often as needed."""

    def __init__(self, folder: Path, tasks: Path, name: str) -> None:
        folder.mkdir()
        self.program = folder / "agent.py"
        self.program.write_text(AGENT)
        self.campaign = folder / name
        self._cwd = folder
        self.words = [
            *(sys.executable, "-m", "pytest", "-p", "biabench_plugin.plugin", "-p", "no:cacheprovider", "-n", "2"),
            *("--agent=command", f"--agent-command={sys.executable} {self.program}", f"--tasks={tasks}"),
            *("-k", "tiny", f"--repeats={REPEATS}", f"--campaign={self.campaign}"),
        ]
        self.environment = os.environ | {"PYTHONPATH": str(ROOT), "BIABENCH_CACHE": str(folder.parent / "cache")}

    def start(self) -> subprocess.Popen[bytes]:
        log = (self._cwd / "log").open("ab")
        return subprocess.Popen(self.words, cwd=self._cwd, env=self.environment, stdout=log, stderr=log)

    def finish(self) -> None:
        done = subprocess.run(
            self.words, cwd=self._cwd, env=self.environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout

    def records(self) -> dict[str, list[dict[str, object]]]:
        found: dict[str, list[dict[str, object]]] = {}
        for path in sorted(self.campaign.glob("runs/*/*/r*/attempt-*/record.json")):
            record = json.loads(path.read_text())
            found.setdefault(record["trial"], []).append(record)
        return found

    def board(self) -> list[dict[str, object]]:
        rows = json.loads((self.campaign / "leaderboard.json").read_text())["rows"]
        return [{name: value for name, value in row.items() if name != "minutes"} for row in rows]

    def has_written(self) -> bool:
        return bool(self.agents()) and bool(list(self.campaign.glob("work/*/output/1.csv")))

    def agents(self) -> list[int]:
        """Return the processes of agents: their own and what they left behind."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if os.fsencode(self.program) in words[1:3]:
                found.append(int(folder.name))
        return found


def _until(condition: Callable[[], object], seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _victims(kind: str, session: Session, controller: subprocess.Popen[bytes]) -> list[int]:
    if kind == "controller":
        return [controller.pid]
    if kind == "agent":
        return session.agents()
    workers = []
    for pid in descendants(controller.pid):
        try:
            if b"exec(eval(sys.stdin.readline()))" in Path(f"/proc/{pid}/cmdline").read_bytes():
                workers.append(pid)
        except OSError:
            continue
    return workers


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.full)])
def test_killed_at_any_moment_the_same_command_ends_as_if_undisturbed(
    tmp_path: Path, make_task: Callable[..., Path], kills: int
) -> None:
    tasks = make_task()
    calm = Session(tmp_path / "calm", tasks, "campaign")
    calm.finish()
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    session = Session(tmp_path / "shaken", tasks, "campaign")
    killed = dict.fromkeys(("controller", "worker", "agent"), 0)
    kinds = [kind for _ in range(kills // 3) for kind in killed]
    for kind in kinds:
        controller = session.start()
        if len(session.records()) == REPEATS:  # everything is done: shake a campaign that is begun over
            _begin_over(session, chance)
        # An agent that is killed has crashed and is scored as it stands: here it has written its files by then.
        _until(lambda running=controller: session.has_written() or running.poll() is not None)
        time.sleep(chance.uniform(0.0, 0.8))
        if victims := _victims(kind, session, controller):
            os.kill(chance.choice(victims), signal.SIGKILL)
            killed[kind] += 1
        if kind == "controller":
            controller.wait()
            assert _until(lambda: not session.agents(), 20), "processes of an agent outlived the session"
        else:
            controller.wait(timeout=120)
    session.finish()
    print(f"killed: {killed}")
    assert sum(killed.values()) >= kills // 2
    assert not session.agents()
    found = session.records()
    assert sorted(found) == sorted(calm.records())
    assert all(len(records) == 1 for records in found.values())  # no trial was run to its end twice
    assert all(record["status"] == "delivered" for (record,) in found.values())
    assert session.board() == calm.board()
    assert not (session.campaign / "work").exists()
    assert not list(session.campaign.rglob(".record.json.*"))


def _begin_over(session: Session, chance: random.Random) -> None:
    """Take the records of half of the trials away, so that there is something to disturb."""
    for path in session.campaign.glob("runs/*/*/r*/attempt-*/record.json"):
        if chance.random() < 0.5:
            path.unlink()


def test_two_sessions_on_one_campaign_run_every_trial_once(tmp_path: Path, make_task: Callable[..., Path]) -> None:
    session = Session(tmp_path / "shared", make_task(), "campaign")
    session.words.remove("-n")
    session.words.remove("2")
    both = [session.start() for _ in range(2)]
    for process in both:
        process.wait(timeout=300)
    log = (tmp_path / "shared" / "log").read_text()
    assert [process.returncode for process in both] == [0, 0], log
    found = session.records()
    assert len(found) == REPEATS
    assert all(len(records) == 1 for records in found.values())
    assert f"{REPEATS} passed" in log
    assert "(stored)" in log  # the trials of the other session


@pytest.mark.parametrize("kind", ["full", pytest.param("read-only", marks=pytest.mark.full)])
def test_a_disk_that_refuses_stops_the_session_and_nothing_is_half_written(
    tmp_path: Path, make_task: Callable[..., Path], kind: str
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    session = Session(tmp_path / "session", make_task(), "campaign")
    words = [word for word in session.words if word not in ("-n", "2")]
    words[-1] = f"--campaign={disk / 'campaign'}"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], capture_output=True).returncode:
        pytest.skip("a disk of its own needs the right to mount")
    try:
        if kind == "full":
            (disk / "ballast").write_bytes(bytes(1 << 20)[: (1 << 20) - 40960])
        else:
            (disk / "campaign").mkdir()
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        done = subprocess.run(words, env=session.environment, cwd=tmp_path, capture_output=True, text=True)
        said = done.stdout + done.stderr
        assert done.returncode not in (0, 1), said
        assert ("No space left on device" if kind == "full" else "Read-only file system") in said
        assert said.count("Traceback") == 0, said
        assert not list(disk.rglob(".*.json.*"))
        for path in disk.rglob("record.json"):
            json.loads(path.read_text())
        subprocess.run(["mount", "-o", "remount,rw,size=64m", str(disk)], check=True)
        again = subprocess.run(words, env=session.environment, cwd=tmp_path, capture_output=True, text=True)
        assert again.returncode == 0, again.stdout + again.stderr
        assert f"{REPEATS} passed" in again.stdout
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_an_input_that_vanishes_is_named(tmp_path: Path, make_task: Callable[..., Path]) -> None:
    tasks = make_task()
    session = Session(tmp_path / "session", tasks, "campaign")
    data = tmp_path / "data" / "tiny"
    subprocess.run(
        [sys.executable, "-m", "biabench_plugin.cli", "demo", "tiny", str(data), "--tasks", str(tasks)],
        check=True,
        env=session.environment,
        stdout=subprocess.DEVNULL,
    )
    session.program.write_text(f"import shutil; shutil.rmtree({str(data / 'input')!r})\n" + AGENT)
    words = [word for word in session.words if word not in ("-n", "2")] + [f"--dataset={data.parent}"]
    done = subprocess.run(
        [*words, "--isolation=off"], env=session.environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stdout
    assert f"{REPEATS} errors" in done.stdout
    assert f"{data / 'input'}: no such folder" in done.stdout
    assert f"{data.parent}: does not hold task tiny" in done.stdout
    assert "Traceback" not in done.stdout
    assert not list(session.campaign.rglob("record.json"))
