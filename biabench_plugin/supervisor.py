"""Start an agent, hold it to its budget and its quota, and be sure that nothing of it is left.

The agent is started by a small process of its own (``_reaper.py``), which survives this one just long enough to kill
everything. What happens here is watching: the clock, the size of the rooms, and the two streams, which go to files that
the agent cannot write and are never held in memory.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Literal

from agents.base import Launch
from biabench_plugin import isolation
from biabench_plugin._quota import Meter, settle
from biabench_plugin.isolation import Box, Containment, Rooms

GIB = 1 << 30
# Imported, not run as a script, so that Python uses its byte code: compiling takes as long as everything else.
_REAPER = (
    "-I", "-S", "-c", "import sys; sys.path.append(sys.argv[1]); import _reaper; _reaper.main(int(sys.argv[2]))",
    str(Path(__file__).parent),
)  # fmt: skip
_TOKEN = "BIABENCH_RUN"  # noqa: S105 (a name)
_LAST_WORDS = (b"ended", b"failed", b"aborted", b"closed")
_END_SECONDS = 90.0
_BLOCK = 1 << 16


class SupervisionError(RuntimeError):
    """The machinery that watches agents failed (killed from outside, or a process that cannot be killed)."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one run.

    Parameters
    ----------
    budget_seconds
        Wall-clock time from the start; then SIGTERM to every process.
    grace_seconds
        Time from SIGTERM to SIGKILL.
    output_bytes, output_files
        What output, HOME and TMPDIR may hold together: allocated bytes, and files and folders. Looked at about once a
        second; a single file cannot grow beyond ``output_bytes`` at any moment.
    log_bytes
        What is kept of standard output, and again of standard error.
    """

    budget_seconds: float
    grace_seconds: float = 10.0
    output_bytes: int = 50 * GIB
    log_bytes: int = GIB // 4
    output_files: int = 300_000

    def __post_init__(self) -> None:
        for name in ("budget_seconds", "output_bytes", "log_bytes", "output_files"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, found {getattr(self, name)}")
        if self.grace_seconds < 0:
            raise ValueError(f"grace_seconds cannot be negative, found {self.grace_seconds}")


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    ``exit_code`` or ``signal`` is set, not both; inside containment a program that was killed by signal *n* and one
    that exited with 128 + *n* look the same. Both are ``None`` where ``start_error`` says why the program never ran.
    ``survivors_killed`` counts processes that were still there when the agent had ended, or had ignored SIGTERM.
    """

    exit_code: int | None
    signal: int | None
    timed_out: bool
    quota_exceeded: bool
    wall_seconds: float
    started: datetime
    log_truncated: bool
    survivors_killed: int
    start_error: str | None


def run(
    launch: Launch,
    *,
    rooms: Rooms,
    containment: Containment,
    limits: Limits,
    network: Literal["open", "model", "none"] = "open",
    gpu_devices: Sequence[str] = (),
    tool_env: Path | None = None,
    weights: Path | None = None,
    relay_socket: Path | None = None,
    hidden: Sequence[Path] = (),
) -> RunResult:
    """Run an agent to its end; on return every process that it started is dead.

    Standard output and error are in ``rooms.logs`` (``stdout.log``, ``stderr.log``). An exception that arrives while
    the agent runs (Ctrl-C, for example) ends it as the budget does, SIGTERM, grace, SIGKILL, and is then raised again;
    a second one ends it at once.

    Parameters are those of :func:`biabench_plugin.isolation.plan`, with the limits.

    Raises
    ------
    ContainmentError
        When the view cannot be built as asked.
    SupervisionError
        When the watching process died or a process could not be killed.
    """
    box = isolation.plan(
        launch,
        rooms,
        containment,
        network=network,
        gpu_devices=gpu_devices,
        tool_env=tool_env,
        weights=weights,
        relay_socket=relay_socket,
        hidden=hidden,
    )
    run_ = _Run(box, launch.stdin, rooms, limits)
    try:
        run_.start()
        run_.watch()
    except BaseException:
        run_.abort()
        raise
    finally:
        run_.close()
    return run_.result()


class _Run:
    """One run: its process, its streams, its clock."""

    def __init__(self, box: Box, stdin: bytes | None, rooms: Rooms, limits: Limits) -> None:
        self._box = box
        self._limits = limits
        self._rooms = rooms
        self._process: subprocess.Popen[bytes] | None = None
        self._token = os.urandom(16).hex()
        self._selector = selectors.DefaultSelector()
        self._status = b""
        self._pending = memoryview(stdin or b"")
        self._stdin: int | None = None
        self._control: int | None = None
        self._status_reader = -1
        self._logs: dict[int, _Log] = {}
        self._opened: list[int] = []
        self._meter = Meter(rooms.writable, limits.output_bytes, limits.output_files)
        self._asked_at: float | None = None
        self._wall = 0.0
        self.timed_out = False
        self._started = datetime.now(UTC)
        self._begun = time.monotonic()

    # -- start ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        control, self._control = self._pipe()
        self._status_reader, status = self._pipe()
        stdout, child_out = self._pipe()
        stderr, child_err = self._pipe()
        if self._pending:
            child_in, self._stdin = self._pipe()
        else:
            child_in = self._keep(os.open(os.devnull, os.O_RDONLY))
        plan = self._keep(os.memfd_create("plan"))
        os.write(plan, marshal.dumps(self._plan(control, status)))
        os.lseek(plan, 0, os.SEEK_SET)
        for descriptor, name in ((stdout, "stdout.log"), (stderr, "stderr.log")):
            self._logs[descriptor] = _Log((self._rooms.logs / name).open("wb", buffering=0), self._limits.log_bytes)
            self._register(descriptor, selectors.EVENT_READ)
        self._register(self._status_reader, selectors.EVENT_READ)
        if self._stdin is not None:
            self._register(self._stdin, selectors.EVENT_WRITE)
        self._begun = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, *_REAPER, str(plan)],
            stdin=child_in,
            stdout=child_out,
            stderr=child_err,
            pass_fds=(plan, control, status),
            start_new_session=True,  # a terminal's Ctrl-C is ours to pass on
            env={"PATH": self._box.environment["PATH"], "LANG": "C.UTF-8"},
            cwd="/",
        )
        for descriptor in (control, status, child_in, child_out, child_err, plan):
            self._close(descriptor)
        self._meter.start()

    def _plan(self, control: int, status: int) -> dict[str, object]:
        environment = dict(self._box.environment)
        box: dict[str, object] | None = None
        if self._box.options is None:
            environment[_TOKEN] = self._token  # finds what is left should the reaper itself be killed
        else:
            box = {
                "program": self._box.program,
                "options": list(self._box.options),
                "files": list(self._box.files),
                "scope_sockets": self._box.scope_sockets,
            }
        return {
            "parent": os.getpid(),
            "argv": list(self._box.argv),
            "environment": environment,
            "cwd": self._box.cwd,
            "file_bytes": self._limits.output_bytes,
            "control": control,
            "status": status,
            "box": box,
        }

    def _pipe(self) -> tuple[int, int]:
        reader, writer = os.pipe()
        return self._keep(reader), self._keep(writer)

    def _keep(self, descriptor: int) -> int:
        self._opened.append(descriptor)
        return descriptor

    def _close(self, descriptor: int) -> None:
        if descriptor in self._opened:
            self._opened.remove(descriptor)
            os.close(descriptor)

    def _register(self, descriptor: int, events: int) -> None:
        os.set_blocking(descriptor, False)
        self._selector.register(descriptor, events)

    # -- watch ------------------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Stream, and watch clock and quota, until the reaper says that everything is over."""
        while not self._ended():
            now = time.monotonic()
            if self._asked_at is None:
                if now - self._begun >= self._limits.budget_seconds:
                    self.timed_out = True
                    self._ask(b"T")
                elif self._meter.exceeded:
                    self._ask(b"T")
            elif now - self._asked_at >= self._limits.grace_seconds:
                self._ask(b"K")
                self._until_end(_END_SECONDS)
                break
            self._turn(self._patience(time.monotonic()))
        self._wall = time.monotonic() - self._begun
        self._drain()

    def _patience(self, now: float) -> float:
        if self._asked_at is not None:
            return max(0.0, self._asked_at + self._limits.grace_seconds - now)
        return max(0.0, min(1.0, self._begun + self._limits.budget_seconds - now))

    def _turn(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            descriptor = key.fd
            if descriptor in self._logs:
                self._read_log(descriptor)
            elif descriptor == self._status_reader:
                self._read_status()
            elif descriptor == self._stdin:
                self._write_stdin()

    def _read_log(self, descriptor: int) -> bool:
        try:
            data = os.read(descriptor, _BLOCK)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(descriptor)
            return False
        self._logs[descriptor].write(data)
        return True

    def _read_status(self) -> None:
        data = os.read(self._status_reader, _BLOCK)
        if not data:
            self._selector.unregister(self._status_reader)
        self._status += data or b"closed\n"

    def _write_stdin(self) -> None:
        assert self._stdin is not None
        try:
            written = os.write(self._stdin, self._pending[:_BLOCK])
            self._pending = self._pending[written:]
        except BlockingIOError:
            return
        except BrokenPipeError:  # the agent does not want the rest
            self._pending = self._pending[:0]
        if not self._pending:
            self._selector.unregister(self._stdin)
            self._close(self._stdin)
            self._stdin = None

    def _ended(self) -> bool:
        return any(line.startswith(_LAST_WORDS) for line in self._status.splitlines())

    def _ask(self, command: bytes) -> None:
        self._asked_at = self._asked_at or time.monotonic()
        if self._control is not None:
            with contextlib.suppress(BrokenPipeError):  # it is over already
                os.write(self._control, command)

    def _until_end(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._ended() and (left := deadline - time.monotonic()) > 0:
            self._turn(min(1.0, left))
        if not self._ended():
            raise SupervisionError(f"the agent's processes could not be killed within {seconds:.0f} s")

    def _drain(self) -> None:
        """Read what is left in the pipes; every writer is dead."""
        for descriptor in self._logs:
            while self._read_log_if_open(descriptor):
                pass

    def _read_log_if_open(self, descriptor: int) -> bool:
        return descriptor in self._selector.get_map() and self._read_log(descriptor)

    # -- end --------------------------------------------------------------------------------------------------------

    def abort(self) -> None:
        """End the agent because of an exception here: SIGTERM, grace, SIGKILL; a second exception shortens it."""
        if self._process is None or self._ended():
            return
        try:
            self._ask(b"T")
            deadline = time.monotonic() + self._limits.grace_seconds
            while not self._ended() and (left := deadline - time.monotonic()) > 0:
                self._turn(min(1.0, left))
        finally:
            self._ask(b"K")
            self._until_end(_END_SECONDS)
            self._drain()

    def close(self) -> None:
        """Release everything; the reaper's control pipe closes with it, which kills whatever is left."""
        self._meter.stop()
        if self._control is not None:
            self._close(self._control)
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._selector.close()
        for log in self._logs.values():
            log.close()
        for descriptor in tuple(self._opened):
            self._close(descriptor)
        if self._process is not None and not self._said(b"ended") and not self._said(b"failed"):
            _kill_marked(f"{_TOKEN}={self._token}".encode())

    def _said(self, word: bytes) -> list[str] | None:
        for line in self._status.splitlines():
            if line.startswith(word):
                return line.decode(errors="replace").split(maxsplit=1)[1:]
        return None

    def result(self) -> RunResult:
        """Return how it went; call it after everything is over."""
        self._meter.look()
        settle(self._rooms.writable)
        code: int | None = None
        survivors, error = 0, None
        if failed := self._said(b"failed"):
            error = failed[0]
        elif ended := self._said(b"ended"):
            code, survivors, ready, stuck = (int(word) for word in ended[0].split())
            if stuck:
                raise SupervisionError(f"{stuck} processes of the agent could not be killed")
            if not ready and not (self.timed_out or self._meter.exceeded):
                code, error = None, self._last_complaint()
        else:
            raise SupervisionError("the process that watches the agent was killed")
        exit_code, number = _outcome(code, contained=self._box.options is not None)
        return RunResult(
            exit_code=exit_code,
            signal=number,
            timed_out=self.timed_out,
            quota_exceeded=self._meter.exceeded or number == signal.SIGXFSZ,
            wall_seconds=self._wall,
            started=self._started,
            log_truncated=any(log.truncated for log in self._logs.values()),
            survivors_killed=survivors,
            start_error=error,
        )

    def _last_complaint(self) -> str:
        with (self._rooms.logs / "stderr.log").open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _BLOCK))
            lines = stream.read().decode(errors="replace").splitlines()
        said = [line for line in lines if line.startswith("bwrap:")]
        return said[-1] if said else "bubblewrap ended before the program started"


def _outcome(code: int | None, *, contained: bool) -> tuple[int | None, int | None]:
    """Split a return code into exit code and signal; bubblewrap reports signal *n* as 128 + *n*, as a shell does."""
    if code is None:
        return None, None
    if code < 0:
        return None, -code
    if contained and 128 < code <= 128 + signal.NSIG:
        return None, code - 128
    return code, None


class _Log:
    """A stream's file, bounded: what comes later is read and dropped, so that the agent never blocks."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._stream = stream
        self._left = limit
        self.truncated = False

    def write(self, data: bytes) -> None:
        kept = data[: self._left]
        self.truncated |= len(kept) < len(data)
        self._left -= len(kept)
        if kept:
            self._stream.write(kept)

    def close(self) -> None:
        self._stream.close()


# --- last resort ---------------------------------------------------------------------------------------------------


def _kill_marked(mark: bytes) -> None:
    """Kill every process that carries the run's mark in its environment; needed only when the reaper was killed."""
    for _ in range(20):
        found = False
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)
                    found = True
            except OSError:
                continue
        if not found:
            return
        time.sleep(0.05)
