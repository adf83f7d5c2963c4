"""Starts one agent, keeps every descendant within reach, and ends them all.

A program of its own, because what it does must not depend on pytest being alive: when the process that started it dies,
its control pipe closes and everything below dies with it. It imports nothing but the standard library, and only what
starts fast. :func:`main` takes the descriptor on which it finds its plan.

Without containment it is a *subreaper*: a descendant that is orphaned, ``setsid`` or not, becomes its child. With
containment it starts bubblewrap, whose process namespace holds all descendants; their init is what must die.

Plan (marshal)
    ``parent`` pid that must be alive, ``argv``, ``environment``, ``cwd``, ``file_bytes`` (largest single file),
    ``control`` and ``status`` descriptors, ``box``: ``None`` or ``{"program", "options", "files", "scope_sockets"}``.
Control (bytes read)
    ``T`` SIGTERM to every process of the agent, ``K`` or end of file: kill all.
Status (lines written)
    First ``started PID``. Last one of: ``failed MESSAGE``, it could not be started; ``aborted``, a signal told this
    process to stop; ``ended CODE SURVIVORS READY STUCK``. CODE is as in ``subprocess`` (negative for a signal),
    SURVIVORS the processes that had to be killed, READY is 0 when the program never ran, STUCK the processes that could
    not be killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import marshal
import os
import resource
import select
import signal
import time

TYPE_CHECKING = False  # typing itself takes longer to import than everything else here
if TYPE_CHECKING:
    from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_CHILD_SUBREAPER = 36
_LANDLOCK_CREATE_RULESET, _LANDLOCK_RESTRICT_SELF = 444, 446  # the same on every architecture
_LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET = 1
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
_KEYCTL_JOIN_SESSION_KEYRING = 1
_SETUP_SECONDS = 60.0
_KILL_SECONDS = 30.0

_libc = ctypes.CDLL(None, use_errno=True)


def landlock_abi() -> int:
    """Return the kernel's Landlock version, 0 where there is none; from 6 on it can scope abstract sockets."""
    return max(0, int(_libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1))))


def _scope_abstract_sockets() -> None:
    """Keep this process and its children from connecting to abstract sockets made outside (they ignore mounts)."""
    attributes = (ctypes.c_uint64 * 3)(0, 0, _LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET)
    ruleset = _libc.syscall(
        _LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(ctypes.sizeof(attributes)), ctypes.c_uint(0)
    )
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock: no ruleset")
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if _libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, ctypes.c_uint(0)) < 0:
        raise OSError(ctypes.get_errno(), "landlock: not restricted")
    os.close(ruleset)


def _leave_session_keyring() -> None:
    """Take a new, empty session keyring; the inherited one may hold the operator's keys."""
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        _libc.syscall(number, ctypes.c_long(_KEYCTL_JOIN_SESSION_KEYRING), None)


def processes() -> dict[int, tuple[int, str]]:
    """Return parent and state (``Z`` for a zombie) of every process that this one can see."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stream:  # noqa: PTH123 (pathlib costs start-up time)
                    fields = stream.read().rpartition(b")")[2].split()
            except OSError:
                continue
            found[int(name)] = (int(fields[1]), fields[0].decode())
    return found


def descendants(root: int) -> list[int]:
    """Return the living processes below ``root``, itself and zombies left out, parents before children."""
    table = processes()
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    below, queue = [], [root]
    while queue:
        for pid in children.get(queue.pop(), ()):
            queue.append(pid)
            if table[pid][1] not in "ZX":
                below.append(pid)
    return below


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill_descendants(seconds: float) -> int:
    """Kill and reap everything below this process; return how many were left after ``seconds`` (0 is the rule)."""
    deadline = time.monotonic() + seconds
    pause = 0.001
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return 0
        stopped: set[int] = set()
        while fresh := [pid for pid in descendants(os.getpid()) if pid not in stopped]:
            for pid in fresh:  # stop first: a stopped process starts no other behind our back
                _signal(pid, signal.SIGSTOP)
            stopped.update(fresh)
            if time.monotonic() > deadline:
                break
        for pid in stopped:
            _signal(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return len(descendants(os.getpid()))
        time.sleep(pause)
        pause = min(0.05, pause * 2)


def _spawn(plan: dict[str, Any], argv: list[str], inherit: tuple[int, ...]) -> tuple[int, str]:
    """Fork and execute; return the child's pid and an empty text, or why it could not start."""
    reader, writer = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)
            os.setsid()  # its process group is not ours: `kill 0` must not reach this process
            for number in (
                signal.SIGPIPE,
                signal.SIGXFSZ,
                signal.SIGCHLD,
                signal.SIGTERM,
                signal.SIGINT,
                signal.SIGHUP,
            ):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            size = plan["file_bytes"] if hard == resource.RLIM_INFINITY else min(plan["file_bytes"], hard)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            if plan["box"] is not None:
                _leave_session_keyring()
                if plan["box"]["scope_sockets"]:
                    _scope_abstract_sockets()
            os.chdir(plan["cwd"])
            for descriptor in inherit:
                os.set_inheritable(descriptor, True)
            os.execvpe(argv[0], argv, plan["environment"])  # noqa: S606
        except BaseException as error:  # whatever it is, this is a forked child: report and leave
            text = error.strerror if isinstance(error, OSError) and error.strerror else repr(error)
            os.write(writer, f"{argv[0]}: {text}".encode())
        os._exit(127)
    os.close(writer)
    with open(reader, "rb") as stream:  # noqa: PTH123
        message = stream.read().decode(errors="replace")
    return pid, message


class Plain:
    """An agent without containment: a child, and a subreaper that inherits whatever it leaves behind."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.error = ""
        self.ready = True
        self.code: int | None = None
        self.pid, self.error = _spawn(plan, list(plan["argv"]), ())

    def handles(self) -> list[int]:
        return []  # SIGCHLD wakes the loop

    def pause(self) -> float | None:
        return None

    def alive(self) -> list[int]:
        return descendants(os.getpid())

    def ended(self) -> bool:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == self.pid:
                    self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def finish(self) -> None:
        if self.code is None:  # killed before it ended by itself
            _signal(self.pid, signal.SIGKILL)
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Boxed:
    """An agent inside bubblewrap.

    bubblewrap leaves as soon as the agent does, and takes the namespace with it: nobody could then tell what was still
    running, and TERM to its last processes would come too late. So bubblewrap is stopped (SIGSTOP) once the namespace
    exists, this process watches the agent and init themselves, and lets bubblewrap go on when it has counted. That
    moment is known from a file that bubblewrap copies during set-up: its pipe is full, so it becomes writable when the
    set-up has begun, and the set-up goes no further until the pipe is closed.
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        box = plan["box"]
        self.ready = False
        self.code: int | None = None
        self.agent: int | None = None  # handle of the agent's own process
        self.init: int | None = None
        self.init_pid = 0
        self._pause = 0.0005
        self._said = b""
        hold, self._hold = os.pipe()
        said, said_writer = os.pipe()
        self._said_reader = said
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._hold, fcntl.F_SETPIPE_SZ, 4096)
        os.set_blocking(self._hold, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self._hold, b"\n" * 4096)
        options = ["--file", str(hold), "/tmp/.hold", "--json-status-fd", str(said_writer)]  # noqa: S108 (hidden by the real /tmp)
        inherit = [hold, said_writer]
        for target, text in box["files"]:
            inherit.append(_memory_file(text.encode()))
            options += ["--file", str(inherit[-1]), target]
        options += box["options"]
        inherit.append(_memory_file(b"".join(option.encode("utf-8", "surrogateescape") + b"\0" for option in options)))
        argv = [box["program"], "--args", str(inherit[-1]), "--", *plan["argv"]]
        self.pid, self.error = _spawn(plan, argv, tuple(inherit))
        for descriptor in inherit:
            os.close(descriptor)
        if not self.error:
            self._hold_bubblewrap(plan["control"])

    def _hold_bubblewrap(self, control: int) -> None:
        poller = select.poll()
        poller.register(self._hold, select.POLLOUT)
        poller.register(control, select.POLLHUP)  # the controller is gone
        events = dict(poller.poll(_SETUP_SECONDS * 1000))
        if events.get(self._hold) == select.POLLOUT and control not in events:
            self._read_said(b'"child-pid":')
            digits = self._said.partition(b'"child-pid":')[2].split(b",")[0].strip(b" }\n")
            self.init_pid = int(digits)
            self.init = os.pidfd_open(self.init_pid)
            _signal(self.pid, signal.SIGSTOP)
        else:  # it died while reading its options, or nobody waits for the result
            _signal(self.pid, signal.SIGKILL)
        os.close(self._hold)

    def _read_said(self, word: bytes) -> bool:
        while word not in self._said and (data := os.read(self._said_reader, 4096)):
            self._said += data
        return word in self._said

    def _find_agent(self) -> bool:
        """Look for process 2 of the namespace; return whether it is gone already."""
        try:
            with open(f"/proc/{self.init_pid}/task/{self.init_pid}/children") as stream:  # noqa: PTH123
                children = [int(pid) for pid in stream.read().split()]
        except OSError:
            children = [pid for pid, (parent, _) in processes().items() if parent == self.init_pid]
        inner = 0
        for pid in children:
            try:
                handle = os.pidfd_open(pid)
            except OSError:
                continue
            try:
                with open(f"/proc/{pid}/status") as stream:  # noqa: PTH123
                    inner = next((int(line.split()[-1]) for line in stream if line.startswith("NSpid:")), 0)
            except OSError:
                inner = 0
            if inner == 2:
                self.agent = handle
                return False
            os.close(handle)
        return inner > 2

    def handles(self) -> list[int]:
        return [handle for handle in (self.init, self.agent) if handle is not None and not _is_over(handle)]

    def pause(self) -> float | None:
        if self.agent is not None or self.init is None:
            return None
        self._pause = min(0.01, self._pause * 1.5)
        return self._pause

    def alive(self) -> list[int]:
        return descendants(self.init_pid) if self.init is not None else []

    def ended(self) -> bool:
        if self.init is None or _is_over(self.init):
            return True
        if self.agent is None:
            return self._find_agent()
        return _is_over(self.agent)

    def finish(self) -> None:
        """End the namespace; on return it is empty, unless ``_KILL_SECONDS`` were not enough."""
        if not self.ended():
            self._kill_init()
        _signal(self.pid, signal.SIGCONT)  # bubblewrap tells the exit status and leaves
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        told = self._read_said(b'"exit-code":')
        self.ready = told or (self.code < 0 and self.init is not None)
        if self.init is not None:
            self._kill_init()
            poller = select.poll()
            poller.register(self.init, select.POLLIN)
            poller.poll(_KILL_SECONDS * 1000)

    def _kill_init(self) -> None:
        if self.init is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.init, signal.SIGKILL)


def _memory_file(content: bytes) -> int:
    descriptor = os.memfd_create("biabench")
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _is_over(handle: int) -> bool:
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    return bool(poller.poll(0))


def supervise(plan: dict[str, Any]) -> None:
    """Run one plan to its end."""
    control, status = plan["control"], plan["status"]
    wake, wake_writer = os.pipe()
    for descriptor in (wake, wake_writer):
        os.set_blocking(descriptor, False)
    asked: list[int] = []
    signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)  # second line; the control pipe is the first
    if os.getppid() != plan["parent"]:
        return

    def tell(line: str) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more
            os.write(status, (" ".join(line.split()) + "\n").encode())

    job = Plain(plan) if plan["box"] is None else Boxed(plan)
    if job.error:
        tell(f"failed {job.error}")
        kill_descendants(_KILL_SECONDS)
        return
    tell(f"started {job.pid}")
    _watch(job, control, wake, asked)
    survivors = len(job.alive())
    job.finish()
    stuck = kill_descendants(_KILL_SECONDS)
    tell("aborted" if asked else f"ended {job.code} {survivors} {int(job.ready)} {stuck}")


def _watch(job: Plain | Boxed, control: int, wake: int, asked: list[int]) -> None:
    """Return when the agent has ended, or when everything is to be killed."""
    terminating = told = False
    while True:
        if terminating and not told:
            for pid in job.alive():  # none while the view is still being set up
                _signal(pid, signal.SIGTERM)
                told = True
        if job.ended() and not (terminating and job.alive()):
            return
        poller = select.poll()
        for descriptor in (control, wake, *job.handles()):
            poller.register(descriptor, select.POLLIN)
        pause = 0.02 if terminating else job.pause()
        ready = {descriptor for descriptor, _ in poller.poll(None if pause is None else max(1.0, pause * 1000))}
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
        command = os.read(control, 16) if control in ready else None
        if asked or (command is not None and (not command or b"K" in command)):
            return
        terminating = terminating or bool(command)


def main(descriptor: int) -> None:
    """Read the plan from ``descriptor`` and run it."""
    os.set_inheritable(descriptor, False)
    with open(descriptor, "rb") as stream:
        plan = marshal.loads(stream.read())  # noqa: S302 (written by the process that started this one)
    for name in ("control", "status"):
        os.set_inheritable(plan[name], False)
    supervise(plan)
