"""What drivers promise beyond the ladder: clashes, a part that never works, a killed driver, unfit images."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agents import load_agent
from agents.base import Session
from agents.drivers._driver import service_fault
from agents.endpoints import Endpoint
from agents.relay.meter import read_request
from biabench_plugin.campaign import Configuration
from biabench_plugin.isolation import containment_for
from biabench_plugin.model_access import model_access

DRIVERS = Path(__file__).resolve().parents[3] / "agents" / "drivers"
bubblewrap = pytest.mark.skipif(not containment_for("auto").in_force, reason="needs bubblewrap")
xvfb = pytest.mark.skipif(shutil.which("Xvfb") is None, reason="needs Xvfb")


def _endpoint(url: str) -> Endpoint:
    root = url.removesuffix("/v1")
    return Endpoint(root, root, "relay-token", True)


def _session(folder: Path, **changes: Any) -> Session:
    for name in ("input", "output", "home", "tmp"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {
        "instruction": "count",
        "instruction_file": str(folder / "instruction.md"),
        "input_dir": str(folder / "input"),
        "output_dir": str(folder / "output"),
        "budget_seconds": 60.0,
        "model": "m",
        "endpoint": _endpoint("http://127.0.0.1:9/v1"),
    }
    return Session(**(values | changes))


@pytest.fixture
def start(
    monkeypatch: pytest.MonkeyPatch, agents_home: Path, engines: Path
) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Return a function that starts an agent's driver as the supervisor does without containment."""
    monkeypatch.setenv("BIABENCH_AGENTS", str(agents_home))
    monkeypatch.setenv("PATH", f"{engines}:{os.environ['PATH']}")
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-test")
    started: list[subprocess.Popen[bytes]] = []

    def begin(name: str, folder: Path, **changes: Any) -> subprocess.Popen[bytes]:
        session = _session(folder, **changes)
        launch = load_agent(name).launch(session)
        rooms = {f"BIABENCH_ROOM_{room.upper()}": str(folder / room) for room in ("input", "output", "home", "tmp")}
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), **rooms, **launch.environment}
        process = subprocess.Popen(
            launch.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
            cwd=folder / "home",
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(launch.stdin or b"")
        process.stdin.close()
        process.stdin = None
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def _events(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def _wait(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


# --- the job --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["biomni", "copilotj"])
def test_the_job_holds_what_the_session_gives_and_no_key_of_the_operator(
    name: str, tmp_path: Path, agents_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIABENCH_AGENTS", str(agents_home))
    for variable in ("OPENROUTER_API_KEY", "MY_KEY"):
        monkeypatch.setenv(variable, "sk-operator")
    monkeypatch.setenv("BIABENCH_KEY_VARIABLE", "MY_KEY")
    launch = load_agent(name).launch(_session(tmp_path))
    assert launch.stdin is not None
    job = json.loads(launch.stdin)
    assert (job["base_url"], job["key"]) == ("http://127.0.0.1:9/v1", "relay-token")
    assert b"sk-operator" not in launch.stdin
    assert not launch.environment
    assert not launch.pass_environment
    with pytest.raises(AssertionError):
        load_agent(name).launch(_session(tmp_path, endpoint=None))


@pytest.mark.parametrize(
    ("provider", "style", "body"),
    [
        ("openrouter", "openrouter", {"reasoning": {"effort": "xhigh"}}),
        ("https://openrouter.ai/api/v1", "openrouter", {"reasoning": {"effort": "xhigh"}}),
        ("openai", "openai", {"reasoning_effort": "xhigh"}),
        ("http://127.0.0.1:9/openrouter", "openai", {"reasoning_effort": "xhigh"}),
    ],
)
@pytest.mark.parametrize("relay", [True, False])
def test_the_effort_is_asked_for_as_the_provider_takes_it(
    provider: str, style: str, body: dict[str, Any], relay: bool, tmp_path: Path, agents_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("BIABENCH_AGENTS", str(agents_home))
    monkeypatch.setenv("MY_KEY", "sk-operator")
    agent = load_agent("biomni")
    configuration = Configuration(agent="biomni", model="m", effort="max", provider=provider, key_variable="MY_KEY")
    with model_access(agent, configuration, tmp_path, relay=relay, confined=False) as access:
        launch = agent.launch(_session(tmp_path, endpoint=access.endpoint, effort="max"))
    assert launch.stdin is not None
    job = json.loads(launch.stdin)
    assert (job["effort_style"], job["effort"]) == (style, "xhigh")
    assert (job["key"] == "sk-operator") is not relay
    assert read_request(json.dumps(body).encode()).effort == agent.effort_word("max")  # so that wire has no problems


# --- CopilotJ -------------------------------------------------------------------------------------------------------


@xvfb
def test_a_fiji_that_never_works_is_no_fault_of_the_agent(tmp_path: Path, start: Any, agents_home: Path) -> None:
    (agents_home / "Fiji" / "broken").touch()
    try:
        out, err = start("copilotj", tmp_path).communicate(timeout=60)
    finally:
        (agents_home / "Fiji" / "broken").unlink()
    (fault,) = [event for event in _events(out) if event["event"] == "fault"]
    assert "fiji ended with exit code 1 before bridge was ready" in fault["why"]
    assert b"cannot start" in err
    stopped = [event["name"] for event in _events(out) if event.get("state") == "stopped"]
    assert stopped == ["fiji", "bridge", "xvfb"]


@xvfb
def test_a_taken_port_is_named_with_the_ways_out(tmp_path: Path, start: Any) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 8786))
        taken.listen()
        out, _ = start("copilotj", tmp_path).communicate(timeout=60)
    (fault,) = [event for event in _events(out) if event["event"] == "fault"]
    assert "port 8786 is in use" in fault["why"]
    assert "--network=model" in fault["why"]
    assert "BIABENCH_COPILOTJ_FIJI_OPTIONS" in fault["why"]


@xvfb
def test_sigterm_stops_every_part(tmp_path: Path, start: Any, serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve({"m": [{"hang": 1000}]}) as server:
        monkeypatch.setenv("BIABENCH_COPILOTJ_FIJI_OPTIONS", "-Dbridge.port={port}")
        process = start("copilotj", tmp_path, endpoint=_endpoint(server.url))
        _wait(lambda: server.requests)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    events = _events(out)
    assert [event["name"] for event in events if event.get("state") == "stopped"] == [
        "leader", "fiji", "bridge", "xvfb",
    ]  # fmt: skip
    (connected,) = [event for event in events if event.get("state") == "connected"]
    with socket.socket() as probe:  # the port is free again
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", connected["port"]))
    assert not Path(f"/tmp/.X11-unix/X{connected['display'].removeprefix(':')}").exists()


def test_copilotj_is_private_and_leaves_its_checkout_alone(tmp_path: Path, agents_home: Path) -> None:
    launch_binds = {"checkout": agents_home / "copilotj", "fiji": agents_home / "Fiji"}
    os.environ["BIABENCH_AGENTS"] = str(agents_home)
    try:
        launch = load_agent("copilotj").launch(_session(tmp_path, input_dir="/input", output_dir="/output"))
    finally:
        del os.environ["BIABENCH_AGENTS"]
    shown = {bind.source: bind.writable for bind in launch.binds}
    assert all(shown[path] is False for path in launch_binds.values())
    assert not launch.pass_environment


# --- Agentic-J ------------------------------------------------------------------------------------------------------


@bubblewrap
def test_a_killed_driver_takes_its_container_with_it(
    tmp_path: Path, start: Any, serve: Any, engines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docker's containers are children of its daemon: no process group, namespace or subreaper of ours holds them."""
    with serve({"m": [{"hang": 1000}]}) as server:
        monkeypatch.setenv("BIABENCH_BASE_URL", server.url)
        monkeypatch.setenv("AGENTIC_J_IMAGE", "agentic-j:stand-in")
        process = start("agentic_j", tmp_path, input_dir="/benchmark/input", output_dir="/benchmark/output")
        _wait(lambda: server.requests)
        (container,) = (engines / "containers").iterdir()
        number = int(container.read_text())
        os.kill(number, 0)
        clients = _children(process.pid)
        process.kill()
        for client in clients:  # the supervisor kills what it can see: the driver and the engine's client
            os.kill(client, signal.SIGKILL)
        _wait(lambda: not container.exists())
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def _children(parent: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


@bubblewrap
def test_two_under_apptainer_at_once_have_displays_of_their_own(
    tmp_path: Path, start: Any, serve: Any, agents_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sif = agents_home / "agentic_j" / ".apptainer" / "agentic_j.sif"
    sif.touch()
    try:
        done = "All counted."
        with serve({"a": [{"hang": 1.5, "text": done}], "b": [{"hang": 1.5, "text": done}]}) as server:
            monkeypatch.setenv("BIABENCH_BASE_URL", server.url)
            paths = {"input_dir": "/benchmark/input", "output_dir": "/benchmark/output"}
            runs = [start("agentic_j", tmp_path / name, model=name, **paths) for name in "ab"]
            ended = [run.communicate(timeout=60) for run in runs]
            assert [run.returncode for run in runs] == [0, 0], ended
            assert len(server.requests) == 2
    finally:
        sif.unlink()
    for out, _ in ended:
        assert [event["text"] for event in _events(out) if event["event"] == "final"] == [done]
    for name in "ab":
        assert not list((tmp_path / name / "output").iterdir())  # instruction, result and debug log are taken out
        seeded = tmp_path / name / "home" / "container" / "seeded-0" / "part.jar"
        assert seeded.read_text() == "jar"
        assert (tmp_path / name / "home" / "container" / "data" / "learned").exists()
        assert not (tmp_path / name / "home" / "environment").exists()  # it held the key


def test_an_image_that_would_list_the_inputs_is_refused(
    tmp_path: Path, start: Any, engines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not containment_for("auto").in_force:
        pytest.skip("needs bubblewrap")
    hooks = engines / "rootfs" / "app" / "src" / "imagentj" / "benchmark_gui_hooks.py"
    text = hooks.read_text()
    hooks.write_text(text.replace("BENCHMARK_ENUMERATE_INPUTS", ""))
    monkeypatch.setenv("AGENTIC_J_IMAGE", "agentic-j:stand-in")
    try:
        out, _ = start("agentic_j", tmp_path).communicate(timeout=60)
    finally:
        hooks.write_text(text)
    (fault,) = [event for event in _events(out) if event["event"] == "fault"]
    assert "is too old" in fault["why"]
    assert "BENCHMARK_ENUMERATE_INPUTS" in fault["why"]


def _agentic_j_driver() -> Any:
    sys.path.insert(0, str(DRIVERS))
    try:
        import run_agentic_j
    finally:
        sys.path.remove(str(DRIVERS))
    return run_agentic_j


def test_usage_of_a_result_file_prefers_what_can_be_split() -> None:
    totals = _agentic_j_driver().totals
    session = {"session_totals": {"totals": {"input_tokens": 10, "output_tokens": 3, "cached_input_tokens": 4}}}
    queries = {"usage_report": {"conversation": {"queries": [{"input_tokens": 1, "output_tokens": 2}, "x", {}]}}}
    assert totals({"metadata": session | queries}) == {"input_tokens": 10, "output_tokens": 3, "cached_tokens": 4}
    assert totals({"metadata": {**queries, "tool_calls": 7}}) == {
        "input_tokens": 1,
        "output_tokens": 2,
        "tool_calls": 7,
    }
    assert totals({"metadata": {"total_tokens": 99}}) == {}  # no split, no signal
    assert totals({"metadata": None}) == {}


def test_a_result_that_the_container_forged_as_a_link_is_not_followed(tmp_path: Path) -> None:
    driver = _agentic_j_driver()
    (tmp_path / "secret.json").write_text("{}")
    (tmp_path / "result.json").symlink_to(tmp_path / "secret.json")
    assert driver.read_result(tmp_path / "result.json") is None
    (tmp_path / "half.json").write_text('{"success": tr')
    assert driver.read_result(tmp_path / "half.json") is None
    (tmp_path / "list.json").write_text("[1]")
    assert driver.read_result(tmp_path / "list.json") is None


# --- what a provider's answer means ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "event"),
    [
        (400, None, "rejected"), (400, "content_filter", "refusal"), (401, None, "fault"), (402, 402, "fault"),
        (404, None, "rejected"), (413, None, "rejected"), (429, None, "fault"), (500, None, "fault"),
        (529, None, "fault"),
    ],
)  # fmt: skip
def test_signals_of_the_provider(status: int, code: object, event: str) -> None:
    error = Exception("refused, 402, quota")  # words decide nothing
    error.status_code, error.code = status, code  # type: ignore[attr-defined]
    found = service_fault(error)
    assert found is not None
    assert found["event"] == event
    assert service_fault(Exception("error code: 429, insufficient credits")) is None


# --- the real Biomni --------------------------------------------------------------------------------------------------


@pytest.mark.full
@bubblewrap
def test_real_biomni(tmp_path: Path, serve: Any, run_pytest: Any) -> None:
    """Biomni as PyPI has it, installed by ``biabench setup biomni``, analyses the demo images."""
    home = os.environ.get("BIABENCH_AGENTS") or str(tmp_path / "agents")
    environment = {"BIABENCH_AGENTS": home, "MY_KEY": "sk-canary-real"}
    done = subprocess.run(
        [sys.executable, "-m", "biabench_plugin.cli", "setup", "biomni"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        pytest.skip(f"Biomni cannot be installed here: {done.stdout[-300:]}")
    code = """
import pathlib, tifffile
from scipy import ndimage
for path in sorted(pathlib.Path("/input").glob("*.tif*")):
    image = ndimage.gaussian_filter(tifffile.imread(path).astype("float32"), 2)
    labels, n = ndimage.label(image > image.mean() + 2 * image.std())
    rows = "".join(f"{x},{y}\\n" for y, x in ndimage.center_of_mass(image, labels, range(1, n + 1)))
    pathlib.Path("/output", path.stem + ".csv").write_text("X,Y\\n" + rows)
print("counted")
"""
    scripts = {
        "m": [  # the first call is Biomni's tool retriever
            {"text": "TOOLS: []\nDATA_LAKE: []\nLIBRARIES: []"},
            {"text": f"<execute>{code}</execute>"},
            {"text": "<execute>#!BASH\nenv; cat /proc/*/environ</execute>"},
            {"text": "<solution>All images counted.</solution>"},
        ],
        "refusal": [{"text": "TOOLS: []"}, {"text": "", "finish": "content_filter"}, {"text": "", "status": 402}],
        "unpaid": [{"status": 402}],
    }
    with serve(scripts) as server:
        ran = run_pytest(
            *(f"--agent=biomni={model}" for model in scripts),
            *("-k", "cell_counting", "--isolation=required", "--effort=low", "--budget=3m"),
            *(f"--provider={server.url}", "--key-variable=MY_KEY"),
            cwd=tmp_path,
            environment=environment,
        )
        found = {
            model: json.loads(path.read_text())
            for model in scripts
            for path in ran.campaign.glob(f"runs/cell_counting/biomni+{model}-*/r1/attempt-1/record.json")
        }
        assert all(request["reasoning_effort"] == "low" for request in server.requests)
    record = found["m"]
    assert record["status"] == "delivered", ran.out
    assert record["score"]["outcome"] > 0.1
    assert (record["usage"]["input_tokens"], record["usage"]["cached_tokens"]) == (400, 160)
    assert record["usage"]["tool_calls"] == 2
    assert record["final_message"] == "<solution>All images counted.</solution>"
    assert (record["usage"]["source"], record["wire"]["problems"]) == ("relay", [])
    assert record["usage_difference"] == {}
    assert "the provider answered HTTP 402" in found["unpaid"]["infrastructure"]
    for path in ran.campaign.rglob("*"):
        assert not path.is_file() or b"sk-canary-real" not in path.read_bytes(), path
