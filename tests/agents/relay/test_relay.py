"""The relay passes everything through, keeps the key, and writes down what passed."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from agents.endpoints import Provider
from agents.relay import forward
from agents.relay.ledger import Exchange, metered_usage, read_ledger
from agents.relay.mask import Mask
from agents.relay.meter import Asked, read_request
from biabench_plugin import model_access
from tests.model_server import Counts, Fault, ModelServer, Turn

KEY = "real-key-of-the-operator"
PATHS = {"messages": "/v1/messages", "responses": "/v1/responses", "chat": "/v1/chat/completions"}
Start = Callable[..., AbstractContextManager[tuple[int, str, Path]]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Return a context manager that starts a relay before a server; it gives port, token and ledger."""

    @contextmanager
    def run(url: str, *, unix: Path | None = None, authentication: Any = "both") -> Iterator[tuple[int, str, Path]]:
        provider = Provider("test", url, url, "TEST_KEY", authentication)
        ledger = tmp_path / "relay.jsonl"
        with model_access._relay(provider, KEY, ledger, unix) as (port, token):
            yield port, token, ledger

    return run


def ask(
    port: int, token: str, path: str, body: dict[str, Any], method: str = "POST", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    raw = json.dumps(body).encode()
    connection.request(method, path, raw, {"Authorization": f"Bearer {token}", **headers})
    answer = connection.getresponse()
    try:
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def body(protocol: str, **more: Any) -> dict[str, Any]:
    where = "input" if protocol == "responses" else "messages"
    return {"model": "m", "stream": True, where: [{"role": "user", "content": "count ü"}], **more}


def wait_for(ledger: Path, number: int) -> list[Exchange]:
    end = time.monotonic() + 10
    while len(found := read_ledger(ledger)) < number and time.monotonic() < end:
        time.sleep(0.02)
    return found


@pytest.mark.parametrize("protocol", PATHS)
def test_bytes_pass_unchanged_and_are_metered(start: Start, protocol: str) -> None:
    turn = Turn(reasoning="hm", text="Four cells.", counts=Counts(100, 40, 7, 20, 5, cost=0.25))
    with ModelServer([turn]) as server, start(server.url) as (port, token, ledger):
        for number, stream in enumerate((True, False)):
            asked = body(protocol, stream=stream)
            direct = ask(int(server.url.rpartition(":")[2]), KEY, PATHS[protocol], asked)
            through = ask(port, token, PATHS[protocol] + "?beta=true", asked, **{"anthropic-beta": "x-1"})
            first, second = server.requests[-2:]
            assert first.raw == second.raw
            assert second.path == PATHS[protocol] + "?beta=true"
            assert second.headers["anthropic-beta"] == "x-1"
            assert through[0] == 200
            assert through[1]["content-type"] == direct[1]["content-type"]
            names = [f"_{2 * number + turned:04d}".encode() for turned in (1, 2)]  # the server numbers its answers
            assert through[2].replace(names[1], names[0]) == direct[2]
            check_metered(wait_for(ledger, number + 1)[number], protocol, stream)


def check_metered(row: Exchange, protocol: str, stream: bool) -> None:
    assert (row.status, row.ending, row.model, row.model_answered, row.stream) == (200, "complete", "m", "m", stream)
    assert (row.text, row.calls, row.reasoning) == (True, 0, True)
    assert (row.input_tokens, row.cached_tokens, row.output_tokens) == (147, 40, 20)
    assert row.first_byte_ms is not None
    assert row.answered
    if protocol != "messages":
        assert (row.reasoning_tokens, row.cost_usd) == (5, 0.25)
        assert metered_usage([row]).cost_usd == 0.25


@pytest.mark.parametrize(
    ("authentication", "headers"),
    [("bearer", {"authorization"}), ("x-api-key", {"x-api-key"}), ("both", {"authorization", "x-api-key"})],
)
def test_the_key_goes_to_the_provider_and_the_token_does_not(
    start: Start, authentication: str, headers: set[str]
) -> None:
    with ModelServer([Turn(text="x")]) as server, start(server.url, authentication=authentication) as relay:
        assert ask(relay[0], relay[1], PATHS["messages"], body("messages"))[0] == 200
        received = server.requests[0].headers
        assert {name for name in ("authorization", "x-api-key") if name in received} == headers
        assert all(KEY in received[name] for name in headers)
        assert relay[1] not in str(received)


def test_a_wrong_token_gets_nothing(start: Start) -> None:
    with ModelServer([Turn(text="x")]) as server, start(server.url) as (port, _, ledger):
        status, _, answer = ask(port, "guess", PATHS["chat"], body("chat"))
        assert status == 401
        assert KEY.encode() not in answer
        assert server.everything == []
        assert wait_for(ledger, 1)[0].ending == "refused_by_relay"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/files"),
        ("POST", "/v1/keys"),
        ("GET", "/api/v1/credits"),
        ("POST", "/v1/messages/batches"),
        ("POST", "/x/v1/messages"),
        ("GET", "/v1/models/../keys"),
        ("GET", "/v1/models/%2e%2e/credits"),
        ("GET", "/v1/models/.%2e/credits"),
        ("GET", "/v1/models/%2E%2E/files/file-1/content"),
        ("GET", "/v1/models/.."),
        ("GET", "/v1/models/./keys"),
        ("GET", "/v1/models/m\\..\\..\\keys"),
        ("GET", "/v1/models/a/b/c/d"),
        ("DELETE", "/v1/models/m"),
        ("POST", "http://x@127.0.0.1:1/v1/messages"),
    ],
)
def test_the_key_opens_nothing_but_models(start: Start, method: str, path: str) -> None:
    """An agent must not reach the operator's account, files or keys at the provider."""
    with ModelServer([Turn(text="no")]) as server, start(server.url) as (port, token, ledger):
        assert ask(port, token, path, body("messages"), method=method)[0] in (400, 404)
        assert server.everything == []
        for exchange in read_ledger(ledger):
            assert exchange.ending == "refused_by_relay"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models?limit=5", "/v1/models/maker/m-1.5:free/endpoints"])
def test_models_can_be_listed(start: Start, path: str) -> None:
    with ModelServer([Turn(text="no")]) as server, start(server.url) as (port, token, _):
        ask(port, token, path, {}, method="GET")
        assert [request.path for request in server.everything] == [path]


def test_effort_tools_and_web_are_read_from_the_request(start: Start) -> None:
    tools = [{"type": "function", "name": "exec"}, {"type": "web_search"}]
    with ModelServer([Turn(text="x")]) as server, start(server.url) as (port, token, ledger):
        ask(port, token, PATHS["responses"], body("responses", reasoning={"effort": "high"}, tools=tools))
        ask(port, token, PATHS["messages"], body("messages", thinking={"type": "enabled", "budget_tokens": 31999}))
    first, second = read_ledger(ledger)
    assert (first.effort, first.tools, first.web) == ("high", ["exec", "web_search"], ["web_search"])
    assert second.effort == "31999 thinking tokens"


@pytest.mark.parametrize("length", [10, 3_000_000])
def test_a_confined_relay_refuses_what_would_read_the_web(start: Start, length: int) -> None:
    unix = Path("/tmp", f"relay-test-{os.getpid()}")
    with ModelServer([Turn(text="x")]) as server, start(server.url, unix=unix) as (port, token, ledger):
        assert port == 0
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(unix))
        for number, (more, status) in enumerate((({"plugins": [{"id": "web"}]}, 403), ({}, 200)), start=1):
            asked = json.dumps(body("chat", user="x" * length, **more))
            connection.request("POST", PATHS["chat"], asked, {"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status
            assert len(wait_for(ledger, number)) == number
        connection.request("POST", PATHS["chat"], asked[:-1] + ",", {"Authorization": f"Bearer {token}"})
        assert connection.getresponse().status == 403  # nobody knows what another parser makes of it
        assert len(server.requests) == 1  # the provider never had the refused ones whole
        refused, passed, _ = wait_for(ledger, 3)
    assert (refused.ending, refused.web) == ("refused_by_relay", ["plugin web"])
    assert (passed.ending, passed.request_bytes) == ("complete", len(asked))


def test_a_request_goes_on_while_it_comes(start: Start) -> None:
    """Megabytes do not wait for their own end; the clock of the ledger starts at their end."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(10)
    with start(f"http://127.0.0.1:{listener.getsockname()[1]}") as (port, token, ledger):
        agent = socket.create_connection(("127.0.0.1", port), timeout=10)
        head = f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nx-api-key: {token}\r\nContent-Length: 400010\r\n\r\n"
        agent.sendall(head.encode() + b"x" * 400_000)
        provider, _ = listener.accept()
        provider.settimeout(10)
        early = b""
        while len(early) < 100_000:
            early += provider.recv(1 << 16)
        time.sleep(0.3)
        agent.sendall(b"y" * 10)
        while not early.endswith(b"y" * 10):
            early += provider.recv(1 << 16)
        provider.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        assert agent.recv(1 << 16).startswith(b"HTTP/1.1 200")
        (row,) = wait_for(ledger, 1)
        for end in (agent, provider, listener):
            end.close()
    assert early.count(b"x") >= 400_000
    assert row.request_bytes == 400_010
    assert row.first_byte_ms is not None
    assert row.first_byte_ms < 300


def test_an_agent_that_goes_away_while_it_sends_leaves_its_line(start: Start) -> None:
    with ModelServer([Turn(text="x")]) as server, start(server.url) as (port, token, ledger):
        agent = socket.create_connection(("127.0.0.1", port), timeout=10)
        head = f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nx-api-key: {token}\r\nContent-Length: 400010\r\n\r\n"
        agent.sendall(head.encode() + b"x" * 200_000)
        agent.close()
        (row,) = wait_for(ledger, 1)
        assert server.requests == []
    assert row.ending in ("client_gone", "unreachable")
    assert row.status is None


def test_a_compressed_request_is_refused(start: Start) -> None:
    """It would hide its model, and what it asks of the web."""
    with ModelServer([Turn(text="x")]) as server, start(server.url) as (port, token, ledger):
        headers = {"Content-Encoding": "gzip"}
        assert ask(port, token, PATHS["messages"], body("messages"), **headers)[0] == 415
        assert server.everything == []
        assert wait_for(ledger, 1)[0].ending == "refused_by_relay"


@pytest.mark.parametrize("text", ["\ud83d", "ü", '"}'])
def test_any_text_in_a_request_leaves_its_model_readable(text: str) -> None:
    asked = json.dumps({"messages": [{"content": text}], "model": "m", "tools": [{"type": "web_search"}]}).encode()
    assert read_request(asked) == Asked(model="m", tools=("web_search",), web=("web_search",))


def test_an_error_passes_with_its_status_and_headers(start: Start) -> None:
    fault = Fault(status=429, message="slow down", headers={"retry-after": "7"})
    with ModelServer([Turn(fault=fault)]) as server, start(server.url) as (port, token, ledger):
        status, headers, answer = ask(port, token, PATHS["messages"], body("messages"))
    assert (status, headers["retry-after"]) == (429, "7")
    assert json.loads(answer)["error"]["message"] == "slow down"
    (row,) = read_ledger(ledger)
    assert (row.status, row.error_type, row.error) == (429, "rate_limit_error", "slow down")


def test_a_cut_answer_is_cut_for_the_agent_too(start: Start) -> None:
    cut = Turn(text="a long answer", fault=Fault(kind="truncated"))
    with ModelServer([cut]) as server, start(server.url) as (port, token, ledger):  # noqa: SIM117
        with pytest.raises(http.client.IncompleteRead):
            ask(port, token, PATHS["messages"], body("messages"))
    (row,) = read_ledger(ledger)
    assert row.ending == "truncated"
    assert row.input_tokens == 140  # what was said before the cut counts


def test_an_unreachable_provider_is_told_apart(start: Start) -> None:
    with start("http://127.0.0.1:9") as (port, token, ledger):
        assert ask(port, token, PATHS["messages"], body("messages"))[0] == 502
        assert wait_for(ledger, 1)[0].ending == "unreachable"


@pytest.mark.parametrize("kind", ["hang", "stalled"])
def test_an_agent_that_goes_away_leaves_its_line(start: Start, kind: Any) -> None:
    silent = Turn(text="a long answer", fault=Fault(kind=kind))
    with ModelServer([silent]) as server, start(server.url) as (port, token, ledger):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("POST", PATHS["messages"], json.dumps(body("messages")), {"x-api-key": token})
        time.sleep(0.4)
        connection.close()
        (row,) = wait_for(ledger, 1)
    assert row.ending == "client_gone"
    assert row.silent_seconds >= 0.3
    assert row.input_tokens == (None if kind == "hang" else 140)


def test_the_relay_ends_with_its_operator_and_not_with_ctrl_c(start: Start) -> None:
    with ModelServer([Turn(text="x")]) as server:
        program = f"""
import os, sys, pathlib
sys.path.insert(0, {str(model_access._ROOT)!r})
from agents.endpoints import Provider
from biabench_plugin import model_access
provider = Provider("t", {server.url!r}, None, "K", "both")
with model_access._relay(provider, "k", pathlib.Path({os.devnull!r}), None) as x:
    print(x[0], flush=True)
    os.kill(os.getpid(), 9)
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert done.returncode == -signal.SIGKILL
        port, end = int(done.stdout), time.monotonic() + 10
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except ConnectionRefusedError:
                return
            time.sleep(0.05)
    pytest.fail("the relay outlives the process that started it")


def test_the_relay_ends_although_an_answer_hangs(start: Start) -> None:
    with ModelServer([Turn(fault=Fault(kind="hang"))]) as server:
        program = f"""
import http.client, json, os, sys, pathlib, threading, time
sys.path.insert(0, {str(model_access._ROOT)!r})
from agents.endpoints import Provider
from biabench_plugin import model_access
provider = Provider("t", {server.url!r}, None, "K", "both")
with model_access._relay(provider, "k", pathlib.Path({os.devnull!r}), None) as (port, token):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/v1/messages", json.dumps({{"model": "m", "messages": []}}), {{"x-api-key": token}})
    time.sleep(0.5)
    print(*pathlib.Path(f"/proc/self/task/{{os.getpid()}}/children").read_text().split(), flush=True)
    os.kill(os.getpid(), 9)
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        relay, end = Path("/proc", done.stdout.strip(), "cmdline"), time.monotonic() + 20
        while time.monotonic() < end:
            if not relay.is_file() or b"agents.relay" not in relay.read_bytes():
                return
            time.sleep(0.1)
    pytest.fail("the relay is still there")


def kill_relay() -> None:
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        if b"agents.relay" in Path("/proc", pid, "cmdline").read_bytes():
            os.kill(int(pid), signal.SIGKILL)
    time.sleep(0.3)


def test_a_relay_that_dies_is_a_fault_of_ours(start: Start) -> None:
    with pytest.raises(model_access.RelayError, match="ended before its agent"), start("http://127.0.0.1:9"):
        kill_relay()


def test_no_key_in_arguments_or_environment_of_the_relay(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    with start("http://127.0.0.1:9"):
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        seen = [(Path("/proc", pid, "cmdline").read_bytes(), Path("/proc", pid, "environ").read_bytes())
                for pid in children]  # fmt: skip
    relays = [pair for pair in seen if b"agents.relay" in pair[0]]
    assert relays
    assert not any(KEY.encode() in part for pair in relays for part in pair)


def test_a_relay_that_cannot_start_says_why(start: Start, tmp_path: Path) -> None:
    nowhere = tmp_path / "no" / "such" / "folder" / "s"
    with pytest.raises(model_access.RelayError, match="did not start"), start("http://127.0.0.1:9", unix=nowhere):
        pass


# --- ledger ---------------------------------------------------------------------------------------------------------


def test_a_damaged_ledger_names_its_line_and_a_cut_end_is_left_out(tmp_path: Path) -> None:
    good = Exchange(number=1, at=0.0, method="POST", path="/v1/messages", protocol="messages").model_dump_json()
    ledger = tmp_path / "relay.jsonl"
    ledger.write_text(f'{good}\n{{"number": 2, "at"')
    assert len(read_ledger(ledger)) == 1
    ledger.write_text(f"{good}\nnonsense\n{good}\n")
    with pytest.raises(ValueError, match=r"relay\.jsonl:2"):
        read_ledger(ledger)
    assert read_ledger(tmp_path / "absent") == []


def test_half_a_bill_is_no_bill() -> None:
    def row(cost: float | None) -> Exchange:
        return Exchange(
            number=1, at=0, method="POST", path="/", protocol="chat", output_tokens=1, input_tokens=2, cost_usd=cost
        )

    assert metered_usage([row(0.5), row(0.25)]).cost_usd == 0.75
    assert metered_usage([row(0.5), row(None)]).cost_usd is None
    assert metered_usage([]).input_tokens is None


# --- the forwarder --------------------------------------------------------------------------------------------------


def test_the_forwarder_carries_connections_and_returns_the_exit_code(start: Start) -> None:
    unix = Path("/tmp", f"relay-forward-{os.getpid()}")
    with ModelServer([Turn(text="Four cells.")]) as server, start(server.url, unix=unix) as (_, token, _ledger):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        client = (
            f"import sys, urllib.request as u; r = u.Request('http://127.0.0.1:{port}/v1/messages', "
            f"b'{{\"model\": \"m\"}}', {{'x-api-key': '{token}'}}); "
            "sys.stdout.write(u.urlopen(r).read().decode()); sys.exit(7)"
        )
        words = [sys.executable, "-I", forward.__file__, str(port), str(unix), "--", sys.executable, "-c", client]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 7, done.stderr
    assert json.loads(done.stdout)["content"][0]["text"] == "Four cells."


@pytest.mark.parametrize(("program", "code"), [("/no/such/program", 127), ("/etc/passwd", 126)])
def test_the_forwarder_says_what_cannot_be_started(tmp_path: Path, program: str, code: int) -> None:
    words = [sys.executable, "-I", forward.__file__, "0", str(tmp_path / "s"), "--", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert program in done.stderr


def test_many_agents_that_go_away_do_not_hold_the_relay_up(start: Start) -> None:
    """Each leaves a traceback somewhere; a pipe that nobody reads would be full after some."""
    with ModelServer([Turn(text="x" * 200_000)]) as server, start(server.url) as (port, token, ledger):
        for _ in range(120):
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("POST", PATHS["messages"], json.dumps(body("messages")), {"x-api-key": token})
            connection.close()
        assert ask(port, token, PATHS["messages"], body("messages"))[0] == 200
        assert len(wait_for(ledger, 121)) == 121


# --- what a provider repeats, and what a ledger can hold -------------------------------------------------------------


def test_a_key_that_the_provider_repeats_reaches_nobody(start: Start) -> None:
    """Some quote it in their errors; a record or an agent must not have it, wherever blocks are cut."""
    said = json.dumps({"error": {"type": "authentication_error", "message": f"Incorrect API key provided: {KEY}."}})
    head = f"HTTP/1.1 401 Unauthorized\r\nX-Echo: {KEY}\r\nContent-Type: application/json\r\n"
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(20)

    def answer() -> None:
        for cut in range(len(said)):
            provider, _ = listener.accept()
            provider.recv(1 << 16)
            provider.sendall(f"{head}Content-Length: {len(said)}\r\nConnection: close\r\n\r\n{said[:cut]}".encode())
            time.sleep(0.005)
            provider.sendall(said[cut:].encode())
            provider.close()

    threading.Thread(target=answer, daemon=True).start()
    with start(f"http://127.0.0.1:{listener.getsockname()[1]}") as (port, token, ledger):
        for _ in said:
            status, headers, raw = ask(port, token, PATHS["messages"], body("messages"))
            assert (status, headers["x-echo"]) == (401, "*" * len(KEY))
            assert raw.decode() == said.replace(KEY, "*" * len(KEY))
        assert KEY not in ledger.read_text()
        assert "Incorrect API key provided: ***" in ledger.read_text()
    listener.close()


def test_a_mask_delays_nothing_but_what_may_be_the_key() -> None:
    mask = Mask("sk-abcdefgh")
    assert mask.feed(b"data: one\n\n") == b"data: one\n\n"
    assert mask.feed(b"two s") == b"two "
    assert mask.feed(b"k-abc") == b""
    assert mask.feed(b"x") == b"sk-abcx"
    assert mask.feed(b"sk-abcdefgh sk-abcdefg") == b"*********** "
    assert mask.rest() == b"sk-abcdefg"
    assert Mask("x").feed(b"xyx") == b"xyx"  # a placeholder is no secret
    assert Mask('a"/bcdefg').text(json.dumps('a"/bcdefg')) == '"' + "*" * 10 + '"'


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "m\ud83d"},
        {"model": "m", "tools": [{"type": "function", "function": {"name": "\ud83d"}}]},
        {"model": "m", "reasoning_effort": "\udfff"},
        {"model": "m" * 3_000_000, "tools": [{"name": f"{number}" * 300} for number in range(5000)]},
    ],
    ids=["model", "tool", "effort", "megabytes"],
)
def test_no_request_is_missing_in_the_ledger(start: Start, asked: dict[str, Any]) -> None:
    with ModelServer([Turn(text="x")]) as server, start(server.url) as (port, token, ledger):
        assert ask(port, token, PATHS["chat"], body("chat") | asked)[0] == 200
        (row,) = wait_for(ledger, 1)
    assert row.ending == "complete"
    assert row.input_tokens is not None
    assert row.model is not None
    assert row.model.startswith("m")
    assert ledger.stat().st_size < 300_000


def test_surrogates_in_an_answer_leave_its_line(start: Start) -> None:
    fault = Fault(status=400, message="bad \ud83d")
    with ModelServer([Turn(fault=fault)]) as server, start(server.url) as (port, token, ledger):
        assert ask(port, token, PATHS["messages"], body("messages"))[0] == 400
        (row,) = wait_for(ledger, 1)
    assert row.error == "bad ?"


def test_expect_is_answered_by_the_relay_alone(start: Start) -> None:
    """A provider that ignores it would wait for a body that the relay waits to send."""
    with ModelServer([Turn(text="x")]) as server, start(server.url) as (port, token, _):
        assert ask(port, token, PATHS["chat"], body("chat", user="x" * 2_000_000), Expect="100-continue")[0] == 200
        assert "expect" not in server.requests[0].headers


def test_redirects_and_cookies_stay_with_the_agent(start: Start) -> None:
    """A redirect would carry the key to another host; a cookie belongs to one answer."""
    fault = Fault(status=307, message="elsewhere", headers={"Location": "/v1/keys", "Set-Cookie": "a=b"})
    with ModelServer([Turn(fault=fault)]) as server:
        named = server.url.replace("127.0.0.1", "localhost")  # a jar keeps no cookies of bare addresses
        with start(named) as (port, token, _):
            for _ in range(2):
                assert ask(port, token, PATHS["messages"], body("messages"))[0] == 307
        assert [request.path for request in server.everything] == [PATHS["messages"]] * 2
        assert "cookie" not in server.everything[1].headers


@pytest.mark.full
def test_what_was_sent_on_is_let_go(start: Start) -> None:
    """More goes through one after the other than may be held at a time."""
    with ModelServer([Turn(text="x")]) as server, start(server.url) as (port, token, ledger):
        for number in range(1, 6):
            assert ask(port, token, PATHS["chat"], body("chat", user="x" * 60_000_000))[0] == 200
            assert wait_for(ledger, number)[-1].request_bytes > 60_000_000
            server.everything.clear()


def test_a_request_that_is_too_large_is_refused(start: Start) -> None:
    with ModelServer([Turn(text="x")]) as server, start(server.url) as (port, token, ledger):
        agent = socket.create_connection(("127.0.0.1", port), timeout=20)
        head = f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nx-api-key: {token}\r\nContent-Length: {1 << 30}\r\n\r\n"
        agent.sendall(head.encode())
        with contextlib.suppress(OSError):
            for _ in range(80):
                agent.sendall(b"x" * (1 << 20))
        assert b" 413 " in agent.recv(1 << 10)
        agent.close()
        assert wait_for(ledger, 1)[0].ending == "refused_by_relay"
        assert server.requests == []
