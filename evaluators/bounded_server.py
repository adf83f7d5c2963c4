"""The server side of :mod:`evaluators.bounded`: loads the scoring libraries, then forks one child per request."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
from pathlib import Path
from typing import Any

from evaluators.agreement import directed_agreement
from evaluators.evaluation import evaluate, evaluator, is_delivered
from evaluators.model import Deliverable, OutcomeSpec, TruthError
from evaluators.outcome.parameters import PARAMETERS

_PR_SET_PDEATHSIG = 1


def main(control_descriptor: int) -> None:
    """Serve until the caller closes its end of the control socket."""
    _load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are not waited for
    with socket.socket(fileno=control_descriptor) as control:
        while True:
            data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
            if not data:
                return
            for descriptor in descriptors:
                with socket.socket(fileno=descriptor) as connection:
                    if os.fork() == 0:
                        control.close()
                        _child(connection)


def _load() -> None:
    """Import all evaluators and the codecs that decoding loads late, so that a child finds them loaded."""
    for kind in PARAMETERS:
        evaluator(kind)
    import imagecodecs
    import scipy.optimize
    import scipy.sparse.csgraph
    import scipy.spatial  # noqa: F401

    for name in ("zlib_decode", "deflate_decode", "lzw_decode", "packbits_decode", "zstd_decode", "delta_decode"):
        getattr(imagecodecs, name)


def _child(connection: socket.socket) -> None:
    """Answer one request and end."""
    try:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):  # libraries print about broken files
            os.dup2(nowhere, stream)
        connection.sendall(f"{os.getpid()}\n".encode())
        request = json.loads(b"".join(iter(lambda: connection.recv(1 << 16), b"")))
        connection.sendall(json.dumps(_answer(request)).encode())
    finally:
        os._exit(0)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        _bound(int(request["memory_bytes"]))
        return _do(request)
    except TruthError as error:
        return {"truth_error": str(error)}
    except MemoryError:
        gibibytes = request["memory_bytes"] / 2**30
        return {"failure": "over_memory", "message": f"scoring needed more than {gibibytes:g} GiB of memory"}
    except Exception as error:
        # An evaluator that fails on hostile files must not take the trial with it; the place helps to repair it.
        return {"failure": "evaluator_failed", "message": f"{type(error).__name__}: {error} ({_place(error)})"}


def _do(request: dict[str, Any]) -> dict[str, Any]:
    if request["do"] == "nothing":
        return {}
    if request["do"] == "gather":
        return _gather(request)
    if request["do"] in ("audit", "look", "replay"):
        return _inspect(request)
    outcome = OutcomeSpec.model_validate(request["outcome"])
    deliverables = [Deliverable.model_validate(entry) for entry in request["deliverables"]]
    submission = _decoded(request["submission"])
    if request["do"] == "describe":
        return {"version": evaluator(outcome.kind).VERSION, "delivered": is_delivered(deliverables, submission)}
    input_dir = None if request["input_dir"] is None else _decoded(request["input_dir"])
    if request["do"] == "agree":
        reference, scratch = _decoded(request["reference"]), _decoded(request["scratch"])
        return {"agreement": directed_agreement(outcome, deliverables, submission, reference, input_dir, scratch)}
    score = evaluate(outcome, deliverables, submission, _decoded(request["truth"]), input_dir)
    return {"score": score.model_dump(mode="json")}


def _gather(request: dict[str, Any]) -> dict[str, Any]:
    """Gather evidence for the process score; imports it here, so that scoring alone loads no imaging library more."""
    from evaluators.process.evidence import Budgets, Source, gather

    source = Source(
        attempt=_decoded(request["attempt"]),
        request=request["request"],
        deliverables=[Deliverable.model_validate(entry) for entry in request["deliverables"]],
        input_names=request["input_names"],
        input_unchanged=request["input_unchanged"],
        budgets=Budgets(**request["budgets"]),
    )
    return {"evidence": gather(source, decode=request["decode"]).model_dump(mode="json")}


def _inspect(request: dict[str, Any]) -> dict[str, Any]:
    """Look at a submission, or write the perfect one, for a report: no score depends on it."""
    deliverables = [Deliverable.model_validate(entry) for entry in request["deliverables"]]
    paths: dict[str, Any] = {name: path and _decoded(path) for name, path in request["paths"].items()}
    if request["do"] == "audit":
        from evaluators.process.consistency import audit_files

        found: Any = audit_files(paths["submission"], deliverables, request["final_message"], paths["transcript"])
    elif request["do"] == "replay":
        from evaluators.evaluation import replay

        outcome = OutcomeSpec.model_validate(request["outcome"])
        replay(outcome, deliverables, paths["truth"], paths["input"], paths["folder"])
        return {"replayed": True}
    else:
        from evaluators.previews import look

        found = look(paths["submission"], deliverables, paths["reference"], paths["input"])
    return {"found": found.model_dump(mode="json")}


def _bound(memory_bytes: int) -> None:
    """Limit the address space to what is used now and so much more; leave no core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = 0
    with contextlib.suppress(OSError):
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory_bytes, used + memory_bytes))


def _place(error: BaseException) -> str:
    """Return the innermost place in this package that an exception came through."""
    trace, place = error.__traceback__, "unknown place"
    while trace is not None:
        path = Path(trace.tb_frame.f_code.co_filename)
        if "evaluators" in path.parts:
            place = f"{path.name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _decoded(path: str) -> Path:
    return Path(os.fsdecode(bytes.fromhex(path)))
