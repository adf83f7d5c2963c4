"""Budget, quota, streams, and that nothing of an agent is left, with and without containment."""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agents.base import Launch
from biabench_plugin import _quota, supervisor
from biabench_plugin._reaper import descendants
from biabench_plugin.isolation import Containment, Rooms
from biabench_plugin.supervisor import Limits

Run = Callable[..., "object"]


def marked(mark: str) -> list[int]:
    """Return living processes that carry ``mark`` in their environment or on their command line."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                text = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
                if mark.encode() in text and "Z" not in (folder / "stat").read_text().rpartition(")")[2].split()[0]:
                    found.append(int(folder.name))
    return found


@pytest.fixture
def mark() -> str:
    return f"mark-{secrets.token_hex(8)}"


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Return as soon as a condition holds; the bound is for a broken test only."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


# --- how it ended ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "exit_code", "number"),
    [("exit 0", 0, None), ("exit 3", 3, None), ("kill -SEGV $$", None, 11), ("kill -KILL $$", None, 9)],
)
def test_exit(run: Run, containment: Containment, script: str, exit_code: int | None, number: int | None) -> None:
    before = datetime.now(UTC)
    result = run(script, containment).result
    assert (result.exit_code, result.signal, result.start_error) == (exit_code, number, None)
    assert (result.timed_out, result.quota_exceeded, result.log_truncated) == (False, False, False)
    assert result.survivors_killed == 0
    assert before <= result.started <= datetime.now(UTC)
    assert 0 < result.wall_seconds < 60


def test_program_that_does_not_exist(run: Run, containment: Containment) -> None:
    result = run(("/nonexistent/program",), containment).result
    assert (result.exit_code, result.signal) == (None, None)
    assert "/nonexistent/program" in str(result.start_error)
    assert "No such file" in str(result.start_error)


def test_program_that_is_no_program(run: Run, containment: Containment, rooms: Rooms) -> None:
    (rooms.input / "data").write_text("no program")
    result = run((f"{containment.paths(rooms).input_dir}/data",), containment, rooms=rooms).result
    assert "Permission denied" in str(result.start_error)


def test_exit_of_one_is_no_start_error(run: Run, containment: Containment) -> None:
    result = run("echo 'bwrap: not really' >&2; exit 1", containment).result
    assert (result.exit_code, result.start_error) == (1, None)


# --- streams -----------------------------------------------------------------------------------------------------


def test_streams_go_to_files(run: Run, containment: Containment) -> None:
    ran = run("echo out; echo err >&2", containment)
    assert (ran.out, ran.err) == ("out\n", "err\n")


def test_large_streams_are_cut_and_never_block(run: Run, containment: Containment) -> None:
    script = """
    head -c 3000000 /dev/zero | tr '\\0' x; head -c 3000000 /dev/zero | tr '\\0' y >&2
    echo done > "$BIABENCH_OUTPUT/done"
    """
    ran = run(script, containment, limits=Limits(60.0, log_bytes=100_000))
    assert ran.result.exit_code == 0
    assert ran.result.log_truncated
    assert (ran.out, ran.err) == ("x" * 100_000, "y" * 100_000)
    assert (ran.rooms.output / "done").exists()


def test_streams_up_to_the_limit_are_whole(run: Run, unboxed: Containment) -> None:
    ran = run("head -c 100000 /dev/zero | tr '\\0' x", unboxed, limits=Limits(60.0, log_bytes=100_000))
    assert len(ran.out) == 100_000
    assert not ran.result.log_truncated


def test_standard_input_of_any_size(run: Run, containment: Containment) -> None:
    text = os.urandom(1 << 20).hex().encode()
    ran = run("cat", containment, launch={"stdin": text})
    assert ran.out.encode() == text


def test_standard_input_that_nobody_reads(run: Run, containment: Containment) -> None:
    ran = run("exec 0<&-; echo fine", containment, launch={"stdin": b"x" * (1 << 20)})
    assert ran.out == "fine\n"
    assert ran.result.exit_code == 0


def test_no_standard_input_is_at_its_end(run: Run, containment: Containment) -> None:
    assert run("cat; echo end", containment).out == "end\n"


# --- budget ------------------------------------------------------------------------------------------------------


def test_budget_gives_a_grace_period(run: Run, containment: Containment) -> None:
    script = "trap 'echo saved > \"$BIABENCH_OUTPUT/r\"; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
    ran = run(script, containment, limits=Limits(0.7, grace_seconds=20.0))
    assert ran.result.timed_out
    assert ran.result.exit_code == 0
    assert (ran.rooms.output / "r").read_text() == "saved\n"
    assert 0.7 <= ran.result.wall_seconds < 10
    assert ran.result.survivors_killed == 0


def test_grace_reaches_every_process(run: Run, containment: Containment) -> None:
    """SIGTERM goes to a grandchild in a session of its own too, and it may still save its work after its parent."""
    script = """
    setsid sh -c 'trap "sleep 0.2; echo saved > $BIABENCH_OUTPUT/deep; exit" TERM; while :; do sleep 0.02; done' &
    wait
    """
    ran = run(script, containment, limits=Limits(0.7, grace_seconds=20.0))
    assert ran.result.timed_out
    assert (ran.rooms.output / "deep").read_text() == "saved\n"


def test_silent_agent_that_ignores_everything_is_killed(run: Run, containment: Containment, mark: str) -> None:
    script = "trap '' TERM INT HUP; setsid sleep 60 & while :; do sleep 0.02; done"
    ran = run(script, containment, limits=Limits(0.5, grace_seconds=0.3), launch={"environment": {"MARK": mark}})
    assert (ran.result.timed_out, ran.result.signal) == (True, signal.SIGKILL)
    assert ran.result.survivors_killed >= 2
    assert 0.8 <= ran.result.wall_seconds < 10
    assert marked(mark) == []


def test_chatty_agent_cannot_outrun_its_budget(run: Run, containment: Containment) -> None:
    ran = run("yes", containment, limits=Limits(0.5, grace_seconds=5.0, log_bytes=1000))
    assert ran.result.timed_out
    assert ran.result.wall_seconds < 5
    assert ran.out == "y\n" * 500


# --- nothing is left ---------------------------------------------------------------------------------------------


def test_daemons_die_with_the_agent(run: Run, containment: Containment, mark: str) -> None:
    """A double fork with ``setsid`` outlives its parent everywhere else; here it is counted and dead on return."""
    script = """
    (setsid sh -c 'trap "" TERM HUP; while :; do echo late >> $BIABENCH_OUTPUT/late; sleep 0.005; done' &) &
    until [ -s "$BIABENCH_OUTPUT/late" ]; do sleep 0.005; done
    exit 4
    """
    ran = run(script, containment, launch={"environment": {"MARK": mark}})
    assert (ran.result.exit_code, ran.result.timed_out) == (4, False)
    assert ran.result.survivors_killed >= 1
    assert marked(mark) == []


def test_fork_storm_is_ended(run: Run, containment: Containment, mark: str) -> None:
    script = "f() { for i in $(seq 100); do setsid sleep 60 & sleep 0.002; done; }; f & f & sleep 0.1; exit 0"
    ran = run(script, containment, launch={"environment": {"MARK": mark}})
    assert ran.result.exit_code == 0
    assert ran.result.survivors_killed > 2
    assert marked(mark) == []


def test_no_process_or_descriptor_of_ours_is_left(run: Run, containment: Containment) -> None:
    before = set(descendants(os.getpid())), len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
    run("true", containment)
    run("sleep 60", containment, limits=Limits(0.2, grace_seconds=0.1))
    after = set(descendants(os.getpid())), len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
    assert after == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_agent_that_kills_its_whole_group(run: Run, containment: Containment, number: signal.Signals) -> None:
    result = run(f"kill -{number.value} 0; exec sleep 60", containment).result
    assert (result.exit_code, result.signal, result.start_error) == (None, number, None)


def test_agent_that_kills_all_it_can_see(run: Run, boxed: Containment) -> None:
    result = run("kill -KILL -1; kill -KILL 1; kill -TERM 1; exit 5", boxed).result
    assert result.exit_code == 5


def test_agent_that_kills_its_watcher_is_still_ended(run: Run, unboxed: Containment, mark: str) -> None:
    """Only possible without containment; the run is then an infrastructure fault, and still nothing is left."""
    script = "setsid sleep 60 & kill -KILL $PPID; sleep 60"
    with pytest.raises(supervisor.SupervisionError, match="was killed"):
        run(script, unboxed, launch={"environment": {"MARK": mark}})
    assert marked(mark) == []


# --- quota -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", ["BIABENCH_OUTPUT", "HOME", "TMPDIR"])
def test_filling_a_room_ends_the_run(run: Run, containment: Containment, room: str) -> None:
    script = f'i=0; while :; do i=$((i+1)); head -c 1000000 /dev/zero > "${room}/$i"; sleep 0.01; done'
    limits = Limits(60.0, grace_seconds=2.0, output_bytes=8_000_000)
    result = run(script, containment, limits=limits).result
    assert (result.quota_exceeded, result.timed_out) == (True, False)
    assert result.wall_seconds < 30


def test_many_small_files_end_the_run(run: Run, boxed: Containment) -> None:
    script = 'cd "$BIABENCH_OUTPUT"; i=0; while :; do i=$((i+1)); : > $i; done'
    result = run(script, boxed, limits=Limits(60.0, grace_seconds=2.0, output_files=500)).result
    assert result.quota_exceeded


def test_one_file_can_never_pass_the_quota(run: Run, containment: Containment) -> None:
    ran = run('exec cat /dev/zero > "$BIABENCH_OUTPUT/big"', containment, limits=Limits(60.0, output_bytes=1_000_000))
    assert ran.result.quota_exceeded
    assert (ran.rooms.output / "big").stat().st_size <= 1_000_000


def test_bytes_hidden_in_a_closed_folder_are_counted(run: Run, boxed: Containment) -> None:
    script = 'cd "$BIABENCH_OUTPUT"; mkdir d; head -c 3000000 /dev/zero > d/f; chmod 0 d .'
    ran = run(script, boxed, limits=Limits(60.0, output_bytes=2_000_000 + 4096, log_bytes=1000))
    assert ran.result.quota_exceeded


def test_usage_counts_blocks_links_and_depth(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "full").write_bytes(b"x" * 100_000)
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    with (tmp_path / "sparse").open("wb") as stream:
        stream.truncate(1 << 30)
    size, files = _quota.usage([tmp_path])
    assert files == 4
    assert 100_000 <= size < 200_000
    assert _quota.usage([tmp_path / "nowhere"]) == (0, 0)


@pytest.mark.parametrize(("name", "depth"), [("d", 200), ("long" * 60, 40)])
def test_endless_folders_count_as_too_many_and_are_cut(run: Run, boxed: Containment, name: str, depth: int) -> None:
    """Neither a recursion limit nor the longest path may break what comes after the run."""
    script = (
        "import os\nos.chdir(os.environ['BIABENCH_OUTPUT'])\n"
        f"for _ in range({depth}): os.mkdir('{name}'); os.chdir('{name}')\n"
        "os.chmod('..', 0)"
    )
    ran = run((sys.executable, "-c", script), boxed, launch={"python_prefix": True})
    assert (ran.result.exit_code, ran.result.quota_exceeded) == (0, True), ran.err
    found = list(ran.rooms.output.rglob("*"))
    assert 5 <= len(found) <= _quota.MAX_DEPTH


def test_what_is_left_is_harmless(run: Run, containment: Containment) -> None:
    script = """
    cd "$BIABENCH_OUTPUT"; cp /bin/true tool; chmod 6755 tool; mkdir closed; echo x > closed/f; chmod 0 closed/f closed
    ln -s /etc/passwd link; chmod 0 .
    """
    output = run(script, containment).rooms.output
    assert not (output / "tool").stat().st_mode & (stat.S_ISUID | stat.S_ISGID)
    assert (output / "closed" / "f").stat().st_mode & stat.S_IRUSR
    assert output.stat().st_mode & stat.S_IRWXU == stat.S_IRWXU
    assert (output / "link").is_symlink()


# --- limits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["budget_seconds", "output_bytes", "log_bytes", "output_files"])
def test_limits_must_be_positive(name: str) -> None:
    values = {"budget_seconds": 1.0, name: 0}
    with pytest.raises(ValueError, match=f"{name} must be positive"):
        Limits(**values)  # type: ignore[arg-type]


def test_no_core_dumps(run: Run, containment: Containment) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard == 0:
        pytest.skip("there are no core dumps here at all")
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        assert run("ulimit -c", containment).out == "0\n"
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


# --- interruptions -----------------------------------------------------------------------------------------------


class Interruption(BaseException):
    """Stands for KeyboardInterrupt without upsetting pytest."""


def interrupted(rooms: Rooms, containment: Containment, script: str, grace: float, mark: str) -> None:
    """Run a script and raise in this thread once it is ready."""

    def raise_now(*_: object) -> None:
        raise Interruption

    previous = signal.signal(signal.SIGUSR1, raise_now)
    main = threading.main_thread().ident
    assert main is not None

    def poke() -> None:
        wait_until((rooms.output / "ready").exists)
        signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=poke)
    thread.start()
    try:
        with pytest.raises(Interruption):
            supervisor.run(
                Launch(("sh", "-c", script), environment={"MARK": mark}),
                rooms=rooms,
                containment=containment,
                limits=Limits(60.0, grace_seconds=grace),
            )
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, previous)


def test_interruption_ends_the_agent_cleanly(containment: Containment, rooms: Rooms, mark: str) -> None:
    script = """
    trap 'echo saved > "$BIABENCH_OUTPUT/r"; echo bye; exit 0' TERM
    touch "$BIABENCH_OUTPUT/ready"; while :; do sleep 0.02; done
    """
    interrupted(rooms, containment, script, 20.0, mark)
    assert (rooms.output / "r").read_text() == "saved\n"
    assert (rooms.logs / "stdout.log").read_text() == "bye\n"
    assert marked(mark) == []


def test_interruption_of_a_stubborn_agent(containment: Containment, rooms: Rooms, mark: str) -> None:
    script = "trap '' TERM; touch \"$BIABENCH_OUTPUT/ready\"; setsid sleep 60 & while :; do sleep 0.02; done"
    interrupted(rooms, containment, script, 0.2, mark)
    assert marked(mark) == []


# --- the harness dies --------------------------------------------------------------------------------------------

_CONTROLLER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from agents.base import Launch
from biabench_plugin import supervisor
from biabench_plugin.isolation import containment_for
from biabench_plugin.probe import scratch_rooms
rooms = scratch_rooms(Path(sys.argv[2]))
script = "trap '' TERM HUP INT; setsid sleep 60 & touch $BIABENCH_OUTPUT/ready; while :; do sleep 0.02; done"
supervisor.run(Launch(("sh", "-c", script), environment={"MARK": sys.argv[4]}), rooms=rooms,
               containment=containment_for(sys.argv[3]), limits=supervisor.Limits(300))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_everything_dies_with_the_harness(
    containment: Containment, tmp_path: Path, mark: str, number: signal.Signals
) -> None:
    work = tmp_path / "rooms"
    work.mkdir()
    root = Path(__file__).resolve().parents[3]
    controller = subprocess.Popen(
        [sys.executable, "-c", _CONTROLLER, str(root), str(work), containment.requested, mark]
    )
    try:
        assert wait_until((work / "output" / "ready").exists)
        assert len(marked(mark)) >= 3
        controller.send_signal(number)
        controller.wait(20)
        assert wait_until(lambda: marked(mark) == [])
    finally:
        controller.kill()
        controller.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_everything_dies_with_the_reaper(
    containment: Containment, tmp_path: Path, mark: str, number: signal.Signals
) -> None:
    work = tmp_path / "rooms"
    work.mkdir()
    root = Path(__file__).resolve().parents[3]
    controller = subprocess.Popen(
        [sys.executable, "-c", _CONTROLLER, str(root), str(work), containment.requested, mark],
        stderr=subprocess.PIPE,
    )
    try:
        assert wait_until((work / "output" / "ready").exists)
        reaper = next(
            pid for pid in descendants(controller.pid) if b"_reaper" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        os.kill(reaper, number)
        assert controller.wait(20) == 1
        assert b"SupervisionError" in controller.stderr.read()  # type: ignore[union-attr]
        assert wait_until(lambda: marked(mark) == [])
    finally:
        controller.kill()
        controller.wait()


def test_a_terminals_interrupt_does_not_reach_the_agent(run: Run, containment: Containment) -> None:
    """The agent is in a session of its own: Ctrl-C goes to the harness, which decides."""
    ran = run("ps -o sid= -p $$ 2>/dev/null || cut -d' ' -f6 /proc/$$/stat", containment)
    assert ran.out.strip() != str(os.getsid(0))
