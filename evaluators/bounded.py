"""Score files that are not trusted: in a child process with a bound on memory and time.

A server process loads the scoring libraries once, in about two seconds, and forks a child for each score, in a few
milliseconds. It is started with the first score, belongs to the process that started it, and ends with it. Unlike the
standard library's fork server it never imports the caller's main module, which may be a test runner or a notebook.

Whatever happens to a child, a score comes back: at its memory bound, at its time bound, or killed, it is 0 with a named
problem. The time bound is only a distant backstop: sizes, not seconds, decide what is read.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evaluators.model import Deliverable, OutcomeScore, OutcomeSpec, Problem, TruthError
from evaluators.outcome.parameters import read_parameters
from evaluators.problems import shown

if TYPE_CHECKING:
    from evaluators.process.evidence import Evidence, Source

_ROOT = Path(__file__).resolve().parents[1]
_MAX_REPLY_BYTES = 256 << 20
_START_SECONDS = 300.0  # for loading the libraries on a busy machine
_STARTER = (
    "import sys; sys.path.insert(0, sys.argv[1]); from evaluators.bounded_server import main; main(int(sys.argv[2]))"
)
# One thread each: scores must not depend on the number of cores, and a forked child inherits no threads.
_THREADED = ("OMP", "OPENBLAS", "MKL", "NUMBA", "TIFFFILE")
_ENVIRONMENT = {f"{library}_NUM_THREADS": "1" for library in _THREADED}


@dataclass(frozen=True)
class Limits:
    """What one score may use.

    Attributes
    ----------
    memory_bytes
        Address space beyond what the loaded libraries take.
    seconds
        Wall-clock time.
    """

    memory_bytes: int = 8 << 30
    seconds: float = 3600.0


def evaluate_bounded(
    outcome: OutcomeSpec,
    deliverables: Sequence[Deliverable],
    submission: Path,
    truth: Path,
    input_dir: Path | None = None,
    limits: Limits | None = None,
) -> OutcomeScore:
    """Score a submission in a bounded child process; parameters as for :func:`evaluators.evaluate`.

    Returns
    -------
    OutcomeScore
        Where the child did not get to a score it is 0, with the problem ``over_memory``, ``over_time`` or
        ``evaluator_failed``.

    Raises
    ------
    TruthError
        The reference data cannot be used.
    ValueError
        As for :func:`evaluators.check_parameters`.
    RuntimeError
        The scoring server cannot be started, or was killed twice.
    """
    limits = limits or Limits()
    parameters = read_parameters(outcome, deliverables)
    request = {
        "outcome": outcome.model_dump(mode="json"),
        "deliverables": [deliverable.model_dump(mode="json") for deliverable in deliverables],
        "submission": _encoded(submission),
        "truth": _encoded(truth),
        "input_dir": None if input_dir is None else _encoded(input_dir),
        "memory_bytes": limits.memory_bytes,
    }
    reply = _ask({"do": "evaluate", **request}, limits.seconds)
    if "score" in reply:
        return OutcomeScore.model_validate(reply["score"])
    if "truth_error" in reply:
        raise TruthError(reply["truth_error"])
    what = _ask({"do": "describe", **request}, min(limits.seconds, 120.0))
    return OutcomeScore(
        outcome=0.0,
        strict=0.0,
        delivered=bool(what.get("delivered", False)),
        evaluator=outcome.kind,
        evaluator_version=str(what.get("version", "unknown")),
        parameters=parameters.model_dump(mode="json"),
        problems=[Problem(code=reply["failure"], where=".", message=shown(reply["message"], 600))],
    )


def gather_evidence(source: Source, limits: Limits | None = None) -> Evidence:
    """Gather the evidence on a run, for the process score, in a bounded child process.

    Where decoding brings the child down, images and tables are not opened, and ``left_out`` says so.

    Raises
    ------
    RuntimeError
        Nothing could be gathered even so.
    """
    from evaluators.process.evidence import Evidence

    limits = limits or Limits()
    request = {
        "do": "gather",
        "attempt": _encoded(source.attempt),
        "request": source.request,
        "deliverables": [deliverable.model_dump(mode="json") for deliverable in source.deliverables],
        "input_names": list(source.input_names),
        "input_unchanged": source.input_unchanged,
        "budgets": asdict(source.budgets),
        "memory_bytes": limits.memory_bytes,
    }
    reply = _ask({**request, "decode": True}, limits.seconds)
    if "evidence" in reply:
        return Evidence.model_validate(reply["evidence"])
    why = shown(reply["message"], 300)
    reply = _ask({**request, "decode": False}, limits.seconds)
    if "evidence" not in reply:
        raise RuntimeError(f"{source.attempt}: the evidence cannot be gathered: {shown(reply['message'], 300)}")
    evidence = Evidence.model_validate(reply["evidence"])
    evidence.left_out.append(f"contents of images and tables: {why}")
    return evidence


def agreement_bounded(
    outcome: OutcomeSpec,
    deliverables: Sequence[Deliverable],
    submission: Path,
    reference: Path,
    input_dir: Path | None = None,
    limits: Limits | None = None,
) -> float:
    """Compare two submissions in a bounded child process, as :func:`evaluators.agreement.directed_agreement` does.

    Raises
    ------
    TruthError
        The second one cannot serve as a reference, or the child did not get to a score; the message says why.
    """
    limits = limits or Limits()
    with tempfile.TemporaryDirectory(prefix="biabench-agreement-") as scratch:
        request = {
            "do": "agree",
            "outcome": outcome.model_dump(mode="json"),
            "deliverables": [deliverable.model_dump(mode="json") for deliverable in deliverables],
            "submission": _encoded(submission),
            "reference": _encoded(reference),
            "scratch": _encoded(Path(scratch)),
            "input_dir": None if input_dir is None else _encoded(input_dir),
            "memory_bytes": limits.memory_bytes,
        }
        reply = _ask(request, limits.seconds)
    if "agreement" in reply:
        return float(reply["agreement"])
    raise TruthError(reply.get("truth_error") or shown(reply["message"], 600))


def warm_up() -> None:
    """Start the server of this process now and wait until it has loaded the scoring libraries."""
    _ask({"do": "nothing", "memory_bytes": Limits().memory_bytes}, _START_SECONDS)


def inspect_bounded(
    what: Literal["audit", "look"],
    deliverables: Sequence[Deliverable],
    paths: Mapping[str, Path | None],
    *,
    final_message: str | None = None,
    limits: Limits | None = None,
) -> dict[str, Any] | str:
    """Audit or look at a submission in a bounded child process, for a report.

    Parameters
    ----------
    what
        ``audit`` gives :class:`evaluators.process.consistency.Audit` (paths ``submission``, ``transcript``), ``look``
        gives :class:`evaluators.previews.Preview` (paths ``submission``, ``reference``, ``input``), as JSON values.
    final_message
        The run's closing message, for ``audit``.

    Returns
    -------
    dict or str
        The values, or in words why there are none: these files were too much for the child.
    """
    limits = limits or Limits(memory_bytes=4 << 30, seconds=120.0)
    reply = _ask(
        {
            "do": what,
            "deliverables": [deliverable.model_dump(mode="json") for deliverable in deliverables],
            "paths": {name: None if path is None else _encoded(path) for name, path in paths.items()},
            "final_message": final_message,
            "memory_bytes": limits.memory_bytes,
        },
        limits.seconds,
    )
    return dict(reply["found"]) if "found" in reply else shown(str(reply.get("message", "no answer")), 600)


def replay_bounded(
    outcome: OutcomeSpec,
    deliverables: Sequence[Deliverable],
    truth: Path,
    folder: Path,
    input_dir: Path | None = None,
    limits: Limits | None = None,
) -> str | None:
    """Write the perfect submission into ``folder`` in a child process; return why that was not possible, or ``None``.

    For pictures of truth beside a submission; :func:`evaluators.replay` raises instead.
    """
    limits = limits or Limits(seconds=300.0)
    reply = _ask(
        {
            "do": "replay",
            "outcome": outcome.model_dump(mode="json"),
            "deliverables": [deliverable.model_dump(mode="json") for deliverable in deliverables],
            "paths": {
                "truth": _encoded(truth),
                "folder": _encoded(folder),
                "input": None if input_dir is None else _encoded(input_dir),
            },
            "memory_bytes": limits.memory_bytes,
        },
        limits.seconds,
    )
    return None if reply.get("replayed") else str(reply.get("truth_error", reply.get("message", "no answer")))


class _ServerEndedError(RuntimeError):
    """The server is gone; a new one may do."""


class _Server:
    """The server process and the socket over which children are asked for."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.owner = os.getpid()
        self._control = ours
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _STARTER, str(_ROOT), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                cwd="/",
                env={**os.environ, **_ENVIRONMENT},
                start_new_session=True,  # Ctrl-C at a terminal must reach the caller alone
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        self._control.close()  # the server ends, and its children with it
        if self.owner == os.getpid():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5.0)
            self._process.kill()
            self._process.wait()

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Have a child answer a request; a child that cannot answers with ``failure`` and ``message``."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                try:
                    socket.send_fds(self._control, [b"."], [theirs.fileno()])
                except OSError as error:
                    raise _ServerEndedError("the scoring server has ended") from error
            return _Conversation(ours).hold(request, seconds, self)


class _Conversation:
    """One request to one child."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._data = bytearray()

    def hold(self, request: dict[str, Any], seconds: float, server: _Server) -> dict[str, Any]:
        with contextlib.suppress(OSError):  # a child that has died already is seen below
            self._connection.sendall(json.dumps(request).encode())
            self._connection.shutdown(socket.SHUT_WR)
        if not self._receive(lambda: b"\n" in self._data, time.monotonic() + _START_SECONDS):
            raise RuntimeError("the scoring server does not answer")
        if b"\n" not in self._data:
            if server.alive:
                return {"failure": "evaluator_failed", "message": "the scoring process died before it began"}
            raise _ServerEndedError("the scoring server could not start; its error is printed above")
        first, _, rest = bytes(self._data).partition(b"\n")
        self._data = bytearray(rest)
        with _Child(int(first)) as child:
            ended = self._receive(lambda: len(self._data) > _MAX_REPLY_BYTES, time.monotonic() + seconds)
            child.kill()
        if not ended:
            return {"failure": "over_time", "message": f"scoring took longer than {seconds:g} s"}
        try:
            reply = json.loads(bytes(self._data))
        except ValueError:
            if not server.alive:  # killed from outside, and its children with it: nobody's files are to blame
                raise _ServerEndedError("the scoring server was killed") from None
            return {"failure": "evaluator_failed", "message": "the scoring process ended without a result"}
        return dict(reply)

    def _receive(self, enough: Any, deadline: float) -> bool:
        """Collect data until ``enough`` says so or the child closes its end; return whether that was in time."""
        while not enough():
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not select.select([self._connection], [], [], remaining)[0]:
                return False
            try:
                block = self._connection.recv(1 << 20)
            except ConnectionError:
                return True
            if not block:
                return True
            self._data += block
        return True


class _Child:
    """A handle on the child that no other process can get by reuse of its number."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._handle = -1
        with contextlib.suppress(OSError):
            self._handle = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else -1

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self._handle >= 0:
            os.close(self._handle)

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            if self._handle >= 0:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)


def _ask(request: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Ask the server of this process, and a new one where it has ended meanwhile."""
    try:
        return _server().ask(request, seconds)
    except _ServerEndedError:
        return _server().ask(request, seconds)


_lock = threading.Lock()
_current: _Server | None = None


def _server() -> _Server:
    """Return the server of this process, started anew after a fork or where it has died."""
    global _current
    with _lock:
        if _current is None or _current.owner != os.getpid() or not _current.alive:
            if _current is not None:
                _current.close()
            _current = _Server()
        return _current


@atexit.register
def _close() -> None:
    if _current is not None and _current.owner == os.getpid():
        _current.close()


def _encoded(path: Path) -> str:
    """Return an absolute path in a form that JSON can carry, whatever bytes its name has."""
    return os.fsencode(path.absolute()).hex()
