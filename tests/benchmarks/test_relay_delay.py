"""What the relay adds to the first byte of an answer. It prints; the clock decides nothing.

pytest tests/benchmarks/test_relay_delay.py -s
"""

from __future__ import annotations

import http.client
import json
import statistics
import time
from pathlib import Path

import pytest

from agents.endpoints import Provider
from biabench_plugin import model_access
from tests.model_server import ModelServer, Turn

ROUNDS = 200
PAUSE = 0.03  # seconds; an agent does something between an answer and its next request


def first_bytes(port: int, key: str, size: int, pause: float) -> list[float]:
    """Milliseconds until the first byte of a streamed answer, one connection, one request after the other."""
    body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "x" * size}]}).encode()
    connection, found = http.client.HTTPConnection("127.0.0.1", port, timeout=30), []
    for _ in range(ROUNDS):
        time.sleep(pause)
        begun = time.perf_counter()
        connection.request("POST", "/v1/messages", body, {"x-api-key": key, "Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read(1)
        found.append(1000 * (time.perf_counter() - begun))
        answer.read()
    connection.close()
    return found


@pytest.mark.parametrize("pause", [PAUSE, 0], ids=["with pauses", "back to back"])
@pytest.mark.parametrize("size", [1_000, 100_000, 3_000_000])
def test_delay(tmp_path: Path, size: int, pause: float) -> None:
    with ModelServer([Turn(text="Four cells in the image.")]) as server:
        provider = Provider("test", server.url, server.url, "KEY", "both")
        direct = first_bytes(int(server.url.rpartition(":")[2]), "k", size, pause)
        with model_access._relay(provider, "k", tmp_path / "relay.jsonl", None) as (port, token):
            through = first_bytes(port, token, size, pause)
    added = statistics.median(through) - statistics.median(direct)
    print(
        f"request of {size / 1e3:6.0f} kB, {1e3 * pause:2.0f} ms apart: direct {statistics.median(direct):6.2f} ms, "
        f"through {statistics.median(through):6.2f} ms, added {added:5.2f} ms (medians of {ROUNDS})"
    )
    assert len(through) == ROUNDS
