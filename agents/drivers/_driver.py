"""What every driver shares: its job, its events, and the parts (processes) that it starts, watches and stops.

A driver reads one JSON object, the job, from standard input and writes one JSON object a line, the events, to standard
output. Everything that its parts print goes to standard error. It runs on the agent's own interpreter (3.9 or newer)
and imports the standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

BROKEN = 70  # exit code: a part of the agent died, or never worked
_STOP_SECONDS = 5.0
_LONGEST_LINE = 1 << 20  # bytes; a longer one is taken in pieces


class NotReady(Exception):
    """A part did not come up: nothing of the task was tried, so this says nothing about the agent."""


_secret = ""  # the key: taken out of whatever is written here


def redacted(text: str) -> str:
    """Return a text without the key, which an agent that lists its environment may print."""
    return text.replace(_secret, "[key]") if _secret else text


class Events:
    """The stream of events; nothing else can write to it by accident."""

    def __init__(self) -> None:
        self._stream = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
        os.dup2(2, 1)  # what libraries print to standard output goes to standard error
        self._lock = threading.Lock()
        self._begun = time.monotonic()

    def send(self, event: str, **fields: Any) -> None:
        """Write one event at once, so that a killed run keeps what it had."""
        line = json.dumps({"event": event, "at": round(time.monotonic() - self._begun, 3), **fields}, default=str)
        with self._lock:
            self._stream.write(redacted(line) + "\n")
            self._stream.flush()


def read_job() -> dict[str, Any]:
    """Read the job from standard input."""
    global _secret
    job = json.loads(sys.stdin.buffer.read())
    if not isinstance(job, dict):
        raise SystemExit("the job on standard input is no JSON object")
    _secret = str(job.get("key") or "")
    return job


def obey_sigterm() -> None:
    """Let SIGTERM run every ``finally``, so that the parts are stopped."""

    def leave(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, leave)


class Part:
    """One process of the agent, in a session of its own, with its output line by line."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bytes | None = None,
        keep_stdin: bool = False,
        pass_fds: Sequence[int] = (),
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        self.name = name
        self._on_line = on_line
        self._waiting: queue.Queue[str | None] = queue.Queue(10_000)
        self.process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE if stdin is not None or keep_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            cwd=cwd,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if stdin is not None and self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write(stdin)
            self.process.stdin.close()

    def _read(self) -> None:
        stream: IO[bytes] | None = self.process.stdout
        assert stream is not None
        while raw := stream.readline(_LONGEST_LINE):
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            print(f"[{self.name}] {redacted(line)}", file=sys.stderr, flush=True)
            if self._on_line is not None:
                self._on_line(line)
            with contextlib.suppress(queue.Full):
                self._waiting.put_nowait(line)
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)

    @property
    def code(self) -> int | None:
        """Exit code, ``None`` while it runs."""
        return self.process.poll()

    def wait_for(self, pattern: str, seconds: float, others: Sequence[Part] = ()) -> str:
        """Return the first line that matches; raise :class:`NotReady` where the part ends or takes too long."""
        wanted = re.compile(pattern)
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            for part in (self, *others):
                if part.code is not None:
                    raise NotReady(f"{part.name} ended with exit code {part.code} before {self.name} was ready")
            try:
                line = self._waiting.get(timeout=min(0.5, left))
            except queue.Empty:
                continue
            if line is not None and wanted.search(line):
                return line
        raise NotReady(f"{self.name} was not ready within {seconds:.0f} s")

    def finish_reading(self, seconds: float = 10.0) -> None:
        """Wait until everything that an ended part had printed was read (a child may hold its output open)."""
        self._reader.join(seconds)

    def stop(self) -> None:
        """End the part and its process group: SIGTERM, a few seconds, SIGKILL."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_STOP_SECONDS)
                if number == signal.SIGTERM:
                    continue  # the leader is gone; what else is in its group gets SIGKILL now
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_STOP_SECONDS)


class Parts:
    """All parts of one agent; leaving the context stops them, the last one first."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._parts: list[Part] = []

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *_: object) -> None:
        for part in reversed(self._parts):
            part.stop()
            self._events.send("part", name=part.name, state="stopped", code=part.code)

    def start(self, name: str, argv: Sequence[str], **options: Any) -> Part:
        """Start a part; raise :class:`NotReady` where its program cannot be started."""
        try:
            part = Part(name, argv, **options)
        except OSError as error:
            raise NotReady(f"{name} cannot be started: {argv[0]}: {error.strerror}") from error
        self._parts.append(part)
        self._events.send("part", name=name, state="started")
        return part

    def dead(self, but: Part) -> Part | None:
        """Return a part, other than ``but``, that has ended."""
        return next((part for part in self._parts if part is not but and part.code is not None), None)


def watch(parts: Parts, worker: Part) -> int:
    """Wait for the worker; return its exit code, or :data:`BROKEN` where another part died under it."""
    while worker.code is None:
        dead = parts.dead(worker)
        if dead is not None:
            print(f"{dead.name} ended with exit code {dead.code} during the run", file=sys.stderr)
            return BROKEN
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.process.wait(0.2)
    worker.finish_reading()
    return worker.process.returncode


def lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file, none where it does not exist."""
    with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace") as stream:
        yield from stream


# --- faults of the model's service, from structured fields only -----------------------------------------------------

_SERVICE_FAULTS = {401, 402, 403, 408, 409, 429}
_POLICY_CODES = {"content_filter", "content_policy_violation", "content_policy", "refusal"}


def service_fault(error: BaseException) -> dict[str, Any] | None:
    """Return fields of a ``fault`` or ``refusal`` event for an exception of a model's client library, if it is one."""
    status = getattr(error, "status_code", None)
    code = getattr(error, "code", None)
    if isinstance(code, str) and code in _POLICY_CODES:
        return {"event": "refusal", "why": f"the provider answered {status} with code {code}"}
    if isinstance(status, int):
        if status in _SERVICE_FAULTS or status >= 500:
            return {"event": "fault", "status": status, "why": f"the provider answered {status}"}
        return {"event": "rejected", "status": status, "why": f"the provider answered {status}"}
    if type(error).__name__ in ("APIConnectionError", "APITimeoutError"):
        return {"event": "fault", "status": None, "why": f"no answer from the provider: {type(error).__name__}"}
    return None
