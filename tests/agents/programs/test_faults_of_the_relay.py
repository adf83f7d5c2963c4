"""What a run leaves when its relay dies, and when its provider repeats the operator's key."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.agents.programs.conftest import CANARY, TABLES, Ran
from tests.model_server import Fault, Turn


def kill_relay() -> None:
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        if b"agents.relay" in Path("/proc", pid, "cmdline").read_bytes():
            os.kill(int(pid), signal.SIGKILL)


class Deadly(list[Turn]):
    """A script in which the second request finds the relay dead."""

    def __iter__(self) -> Iterator[Turn]:
        yield self[0]
        time.sleep(0.5)
        kill_relay()
        yield self[1]


def test_what_was_asked_before_the_relay_died_is_in_the_record(run_trial: Callable[..., Ran]) -> None:
    ran = run_trial("api", Deadly([Turn(shell=TABLES), Turn(text="Done.")]), budget=30.0)
    assert ran.record.infrastructure is not None
    assert "the relay ended before its agent" in ran.record.infrastructure
    assert ran.record.score is None
    assert ran.record.usage.input_tokens == sum(row.input_tokens or 0 for row in ran.ledger) > 0
    assert ran.record.wire["requests"] == 1


def test_a_key_in_a_providers_error_is_in_nothing_that_was_written(run_trial: Callable[..., Ran]) -> None:
    fault = Fault(status=401, message=f"Incorrect API key provided: {CANARY}. Look it up.", headers={"x-key": CANARY})
    ran = run_trial("api", [Turn(shell=TABLES), Turn(fault=fault)])
    assert "Incorrect API key provided: ****" in (ran.folder / "record.json").read_text() + str(ran.ledger[-1].error)
    searched = [path for path in ran.folder.rglob("*") if path.is_file()]
    assert len(searched) > 5
    assert not [path for path in searched if CANARY.encode() in path.read_bytes()]
    assert {request.key for request in ran.server.requests} == {CANARY}
