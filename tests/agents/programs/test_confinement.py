"""What an agent can reach with --network=model, and where the operator's key is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agents.programs.conftest import CANARY, TABLES, Ran
from tests.model_server import ModelServer, Turn

# Everything that a curious agent would look into: its environment and arguments, every process, its files.
SEARCH = (
    "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; ps axww 2>/dev/null; "
    "grep -rIs canary ~ /tmp /run /opt/*.py /etc 2>/dev/null | head -50; "
)
# One line per address: what is open to it.
REACH = """python3 - <<'END'
import socket
for where in (("127.0.0.1", {port}), ("1.1.1.1", 443), ("10.0.2.2", 80)):
    try:
        socket.create_connection(where, timeout=3).close()
        print("REACHED", where)
    except OSError as error:
        print("closed", where, error)
END
"""


def files(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield path, path.read_bytes()


def full(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.full)


@pytest.mark.parametrize("name", ["api", full("claude_code"), full("codex"), full("deepseek_harness")])
def test_confined_to_the_relay(run_trial: Callable[..., Ran], name: str) -> None:
    turns = [Turn(shell=SEARCH + TABLES), Turn(), Turn(text="Done.")]

    def aim(server: ModelServer) -> None:
        """Ask for the provider's own port, which must be out of reach."""
        turns[1] = Turn(shell=REACH.format(port=server.url.rpartition(":")[2]))

    ran = run_trial(name, turns, network="model", after_start=aim)
    assert ran.record.status.value == "delivered", (ran.record.status_reason, ran.record.review)
    assert ran.record.network == "model"
    shells = [step for step in ran.steps if step.kind == "tool"]
    assert len(shells) == 2
    assert "closed ('127.0.0.1'" in (shells[1].output or "")
    assert "REACHED" not in (shells[1].output or "")
    assert ran.record.survivors_killed == 0
    assert ran.record.wire["web_tools"] == []

    # the key: at the provider, and nowhere else
    assert {request.key for request in ran.server.requests} == {CANARY}
    assert "BIABENCH_INPUT" in (shells[0].output or "")  # the search did see the environment
    found = [str(path) for path, data in files(ran.folder.parents[4]) if CANARY.encode() in data]
    assert found == []
    assert CANARY not in ran.record.model_dump_json()


def test_the_key_stays_out_of_an_open_network_too(run_trial: Callable[..., Ran]) -> None:
    ran = run_trial("api", [Turn(shell=SEARCH + TABLES), Turn(text="Done.")])
    assert ran.record.status.value == "delivered"
    assert {request.key for request in ran.server.requests} == {CANARY}
    found = [str(path) for path, data in files(ran.folder.parents[4]) if CANARY.encode() in data]
    assert found == []


@pytest.mark.full
@pytest.mark.parametrize("name", ["api", "claude_code", "codex", "deepseek_harness"])
@pytest.mark.parametrize("relay", [True, False])
def test_without_containment(run_trial: Callable[..., Ran], name: str, relay: bool) -> None:
    """It runs as well; without the relay too, which gives the agent the key, and the agent's own word for usage."""
    tables = TABLES.replace("/output", '"$BIABENCH_OUTPUT"')
    ran = run_trial(name, [Turn(shell=tables), Turn(text="Done.")], isolation="off", relay=relay)
    assert ran.record.status.value == "delivered", (ran.record.status_reason, ran.record.review)
    assert {request.key for request in ran.server.requests} == {CANARY}
    assert ran.instruction in ran.server.requests[0].user_texts()
    assert (ran.record.usage.input_tokens, ran.record.usage.output_tokens) == (280, 40)
    assert (ran.record.usage.source == "relay") == relay
    assert not any(CANARY in word for word in ran.record.model_dump_json().split('"'))
