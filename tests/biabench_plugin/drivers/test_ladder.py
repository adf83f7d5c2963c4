"""Each way a run of a driven agent can end, through real trials: the right end state, usage and evidence.

Biomni and CopilotJ speak to the model through the relay, Agentic-J by itself. One pytest process runs every rung of
every agent, two at a time, so that displays, ports and containers of two runs meet; the name of the model chooses the
script that the loopback model follows.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agents.transcript import read_transcript
from biabench_plugin.isolation import containment_for
from biabench_plugin.records import TrialRecord, iter_records

pytestmark = pytest.mark.skipif(not containment_for("auto").in_force, reason="needs bubblewrap")

CANARY = "sk-canary-7f3a9"
BUDGET = 8
COUNT = """
import os, pathlib, sys
import tifffile
from scipy import ndimage
source, target = (pathlib.Path(path) for path in ({input!r}, {output!r}))
for path in sorted(source.glob("*.tif*")):
    image = ndimage.gaussian_filter(tifffile.imread(path).astype("float32"), 2)
    labels, n = ndimage.label(image > image.mean() + 2 * image.std())
    rows = "".join(f"{{x}},{{y}}\\n" for y, x in ndimage.center_of_mass(image, labels, range(1, n + 1)))
    (target / (path.stem + ".csv")).write_text("X,Y\\n" + rows)
print("counted")
"""
ONE = """
import pathlib
source, target = (pathlib.Path(path) for path in ({input!r}, {output!r}))
path = sorted(source.glob("*.tif*"))[0]
(target / (path.stem + ".csv")).write_text("X,Y\\n5,5\\n")
"""
SLOW = ONE + "\nimport time; time.sleep(1000)\n"
CHILD = ONE + "\nimport subprocess as s; s.Popen(['sleep', '31415'], start_new_session=True, stdout=-3, stderr=-3)\n"
ENVIRONMENT = """
import glob, os
print(dict(os.environ))
for name in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline"):
    try: print(name, open(name, "rb").read())
    except OSError: pass
"""


def _scripts(act: Callable[[str], str], done: str, crash: str) -> dict[str, list[dict[str, Any]]]:
    return {
        "count": [{"text": act(COUNT)}, {"text": done}],
        "refusal": [{"text": "", "finish": "content_filter"}],
        "empty": [{"text": ""}],
        "unpaid": [{"status": 402}],
        "policy": [{"status": 400, "code": "content_policy_violation"}],
        "crash": [{"text": crash}, {"hang": 1000}],
        "half": [{"text": act(SLOW)}],
        "child": [{"text": act(CHILD)}, {"text": done}],
        "hang": [{"hang": 1000}],
        "secrets": [{"text": act(ENVIRONMENT)}, {"text": done}],
    }


SHORT = ("count", "refusal", "secrets")  # the rungs of the plain run; the others are marked full


@dataclass
class Ladder:
    """One agent's part of a finished campaign, and what the model was asked."""

    agent: str
    campaign: Path
    out: str
    records: dict[str, list[TrialRecord]]
    server: Any

    @property
    def relayed(self) -> bool:
        return self.agent != "agentic_j"

    def asked(self, rung: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.server.of(f"{self.agent}/{rung}")
        return found

    def last(self, rung: str) -> TrialRecord:
        return self.records[rung][-1]

    def attempt(self, rung: str) -> Path:
        return self.campaign / self.last(rung).run_folder


def _act_copilotj(code: str) -> str:
    return "Action: execute_python_script\n" + code.format(input="/input", output="/output")


def _act_biomni(code: str) -> str:
    return "<execute>" + code.format(input="/input", output="/output") + "</execute>"


def _act_agentic_j(code: str) -> str:
    return "Action: run_script\n" + code.format(input="/benchmark/input", output="/benchmark/output")


AGENTS = {
    "biomni": (_act_biomni, "<solution>All images counted.</solution>", _act_biomni("import os; os._exit(9)")),
    "copilotj": (_act_copilotj, "All images counted.", "Action: quit_fiji\n"),
    "agentic_j": (_act_agentic_j, "All images counted.", "Action: crash\n"),
}


def _environment(agents_home: Path) -> dict[str, str]:
    return {
        "BIABENCH_AGENTS": str(agents_home),
        "MY_KEY": CANARY,
        "BIABENCH_COPILOTJ_FIJI_OPTIONS": "-Dbridge.port={port}",
    }


@pytest.fixture(scope="module")
def campaign(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    run_pytest: Callable[..., Any],
    agents_home: Path,
    engines: Path,
    serve: Callable[..., Any],
) -> Iterator[dict[str, Ladder]]:
    present = [agent for agent in AGENTS if agent != "copilotj" or shutil.which("Xvfb")]
    here = [item for item in request.session.items if item.path == request.path]
    short = not any(item.get_closest_marker("full") for item in here)
    scripts = {
        f"{agent}/{rung}": script
        for agent in present
        for rung, script in _scripts(*AGENTS[agent]).items()
        if rung in SHORT or not short
    }
    folder = tmp_path_factory.mktemp("ladder")
    with serve(scripts) as server:
        environment = {
            "BIABENCH_AGENTS": str(agents_home),
            **_environment(agents_home),
            "BIABENCH_BASE_URL": server.url,  # these two for Agentic-J
            "BIABENCH_KEY_VARIABLE": "MY_KEY",
            "AGENTIC_J_IMAGE": "agentic-j:stand-in",
            "PATH": f"{engines}:{os.environ['PATH']}",
        }
        done = run_pytest(
            *(f"--agent={name.partition('/')[0]}={name}" for name in scripts),
            *(
                "-n",
                "2",
                "--dataset=demo",
                "--isolation=required",
                "-k",
                "cell_counting",
                f"--budget={BUDGET}s",
                "--effort=low",
                f"--provider={server.url}",
                "--key-variable=MY_KEY",
            ),
            f"--agent-env={sys.prefix}",
            cwd=folder,
            environment=environment,
        )
        records: dict[str, dict[str, list[TrialRecord]]] = {agent: {} for agent in present}
        for _, record in iter_records(done.campaign):
            assert isinstance(record, TrialRecord), record
            records[record.agent].setdefault(str(record.model).partition("/")[2], []).append(record)
        assert {f"{agent}/{rung}" for agent in records for rung in records[agent]} == set(scripts), done.out
        yield {agent: Ladder(agent, done.campaign, done.out, records[agent], server) for agent in present}


@pytest.fixture(params=sorted(AGENTS))
def ladder(request: pytest.FixtureRequest, campaign: dict[str, Ladder]) -> Ladder:
    if request.param not in campaign:
        pytest.skip("Xvfb is not installed")
    return campaign[request.param]


def test_a_scripted_analysis_is_delivered_and_scored(ladder: Ladder) -> None:
    record = ladder.last("count")
    assert (record.status, record.exit_code, record.timed_out) == ("delivered", 0, False), ladder.out
    assert record.score is not None
    assert record.score.outcome > 0.1
    assert (record.usage.input_tokens, record.usage.output_tokens) == (200, 40)
    assert (record.usage.cached_tokens, record.usage.tool_calls) == (80, 1)
    assert record.usage.cost_usd is None
    assert record.final_message is not None
    assert "All images counted." in record.final_message
    assert record.survivors_killed == 0


def test_usage_is_the_relays_and_the_agents_own_is_kept_beside_it(ladder: Ladder) -> None:
    record = ladder.last("count")
    if not ladder.relayed:
        assert (record.usage_reported, record.usage.source) == (None, "agentic_j: its result file")
        return
    assert (record.usage.source, record.usage.requests) == ("relay", 2)
    assert record.usage.reasoning_tokens == 10
    assert record.usage_reported is not None
    assert record.usage_reported.source is not None
    assert record.usage_reported.source.startswith(f"{record.agent}: ")
    assert (record.usage_reported.input_tokens, record.usage_reported.output_tokens) == (200, 40)
    # of its first call, CopilotJ's log says "n/a"
    assert record.usage_difference == ({"cached_tokens": -40} if record.agent == "copilotj" else {})


def test_the_agent_gets_the_rendered_instruction_byte_for_byte(ladder: Ladder) -> None:
    asked = ladder.asked("count")[0]["messages"]
    expected = (ladder.attempt("count") / "instruction.md").read_bytes()
    assert [message["content"].encode() for message in asked if message["role"] == "user"] == [expected]
    submission = {path.name for path in (ladder.attempt("count") / "submission").rglob("*") if path.is_file()}
    assert submission
    assert all(name.endswith(".csv") for name in submission)


def test_effort_and_model_are_on_the_wire(ladder: Ladder) -> None:
    for request in ladder.asked("count"):
        assert request["reasoning_effort"] == "low"
    assert set(ladder.server.keys) == {f"Bearer {CANARY}"}
    if ladder.relayed:
        record = ladder.last("count")
        assert (record.wire["problems"], record.effort_applied) == ([], "low")
        assert record.provider == ladder.server.url.removesuffix("/v1")


@pytest.mark.full
@pytest.mark.parametrize(
    ("rung", "status", "timed_out"),
    [
        ("empty", {"biomni": "crashed", "copilotj": "no_deliverable", "agentic_j": "crashed"}, False),
        ("crash", "crashed", False),
        ("half", "delivered", True),
        ("child", "delivered", False),
        ("secrets", "no_deliverable", False),
    ],
)
def test_end_state(ladder: Ladder, rung: str, status: str | dict[str, str], timed_out: bool) -> None:
    record = ladder.last(rung)
    wanted = status if isinstance(status, str) else status[record.agent]
    assert (record.status, record.timed_out, record.infrastructure) == (wanted, timed_out, None), ladder.out
    assert record.wall_seconds < BUDGET + 6
    assert len(ladder.records[rung]) == 1


@pytest.mark.full
def test_a_provider_that_never_answers_is_no_fault_of_the_agent_where_it_is_seen(ladder: Ladder) -> None:
    record = ladder.last("hang")
    assert (record.status, record.timed_out) == ("no_deliverable", True)
    if ladder.relayed:
        assert record.infrastructure is not None
        assert "the provider sent nothing for the last" in record.infrastructure
        assert len(ladder.records["hang"]) == 2
    else:
        assert record.infrastructure is None


def test_refusals_are_those_that_the_relay_saw(ladder: Ladder) -> None:
    for rung in {"refusal", "policy"} & set(ladder.records):
        record = ladder.last(rung)
        if not ladder.relayed:  # its result file does not say why
            assert record.status == "crashed"
        else:
            assert record.status == "refused", record.status_reason
            assert "content" in record.status_reason


@pytest.mark.full
def test_an_unpaid_account_is_no_fault_of_the_agent_and_is_tried_twice(ladder: Ladder) -> None:
    record = ladder.last("unpaid")
    if not ladder.relayed:
        assert record.status == "crashed"
        return
    assert record.infrastructure is not None
    assert "the provider answered HTTP 402" in record.infrastructure
    assert len(ladder.records["unpaid"]) == 2


@pytest.mark.full
def test_a_killed_run_has_metered_usage(ladder: Ladder) -> None:
    usage = ladder.last("half").usage
    if not ladder.relayed:  # its result comes at the end only
        assert usage.input_tokens is None
        return
    assert (usage.input_tokens, usage.source) == (100, "relay")
    hung = ladder.last("hang").usage
    assert (hung.input_tokens, hung.requests) == (None, 1)


def test_nothing_is_left_running(ladder: Ladder) -> None:
    deadline = time.monotonic() + 5
    while (left := _running()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


def _running() -> list[str]:
    found = []
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if any(sign in words for sign in ("sleep 31415", "copilotj.server", "/app/imagentj.py", "run_copilotj.py")):
            found.append(words)
    return found


def test_the_key_is_in_nothing_that_was_written(ladder: Ladder) -> None:
    searched = 0
    for path in ladder.campaign.rglob("*"):
        if path.is_file():
            searched += 1
            assert CANARY.encode() not in path.read_bytes(), path
    assert searched > 20
    assert CANARY not in ladder.out
    logs = ladder.attempt("secrets") / "logs"
    text = (logs / "stdout.log").read_text() + (logs / "stderr.log").read_text()
    assert "BIABENCH_INPUT" in text or "BENCHMARK_INPUT_DIR" in text  # the search above looked at a real listing


def test_steps_are_read_in_the_common_form(ladder: Ladder) -> None:
    from agents import load_agent

    attempt = ladder.attempt("count")
    agent = load_agent(ladder.last("count").agent)
    evidence = agent.read(attempt / "logs" / "stdout.log", attempt / "logs" / "stderr.log", attempt / "submission")
    tools = [step for step in evidence.steps if step.kind == "tool"]
    assert len(tools) == 1
    assert "gaussian_filter" in str(tools[0].code)
    if agent.name != "copilotj":  # its log does not repeat what a tool printed in one place
        assert "counted" in str(tools[0].output)
    assert evidence.steps[-1].kind == "final"
    if (attempt / "transcript.jsonl").exists():
        assert list(read_transcript(attempt / "transcript.jsonl")) == list(evidence.steps)


def test_the_record_says_what_contained_the_agent(ladder: Ladder) -> None:
    isolation = ladder.last("count").provenance.isolation
    assert isolation["in_force"]
    assert isolation["tool"] == ("docker" if ladder.last("count").agent == "agentic_j" else "bubblewrap")
    assert "truth_hidden" in isolation["given"]
    assert json.dumps(isolation)


# --- the two agents of the relay, without a network of their own, and without the relay -----------------------------


def _few(
    tmp_path: Path, run_pytest: Callable[..., Any], agents_home: Path, serve: Any, rungs: tuple[str, ...], *words: str
) -> tuple[dict[tuple[str, str], list[TrialRecord]], Any]:
    """Run some rungs of the two agents; return their records and the model."""
    present = [agent for agent in ("biomni", "copilotj") if agent != "copilotj" or shutil.which("Xvfb")]
    scripts = {f"{agent}/{rung}": _scripts(*AGENTS[agent])[rung] for agent in present for rung in rungs}
    with serve(scripts) as server:
        done = run_pytest(
            *(f"--agent={name.partition('/')[0]}={name}" for name in scripts),
            *("--dataset=demo", "--isolation=required", "-k", "cell_counting", "--budget=60s", "--effort=low"),
            *(f"--provider={server.url}", "--key-variable=MY_KEY", f"--agent-env={sys.prefix}", *words),
            cwd=tmp_path,
            environment=_environment(agents_home),
        )
    found: dict[tuple[str, str], list[TrialRecord]] = {}
    for _, record in iter_records(done.campaign):
        assert isinstance(record, TrialRecord), record
        found.setdefault((record.agent, str(record.model).partition("/")[2]), []).append(record)
    assert {f"{agent}/{rung}" for agent, rung in found} == set(scripts), done.out
    return found, server


def test_the_relay_is_network_enough(
    tmp_path: Path, run_pytest: Callable[..., Any], agents_home: Path, serve: Any
) -> None:
    found, server = _few(tmp_path, run_pytest, agents_home, serve, ("count",), "--network=model")
    for (record,) in found.values():
        assert (record.status, record.network, record.usage.source) == ("delivered", "model", "relay"), record
        assert record.wire["problems"] == []
    assert set(server.keys) == {f"Bearer {CANARY}"}


@pytest.mark.full
def test_without_the_relay_the_agents_own_events_decide(
    tmp_path: Path, run_pytest: Callable[..., Any], agents_home: Path, serve: Any
) -> None:
    found, server = _few(tmp_path, run_pytest, agents_home, serve, ("count", "refusal", "unpaid"), "--relay=off")
    for (agent, rung), records in found.items():
        record = records[-1]
        assert (record.usage_reported, record.wire) == (None, {})
        if rung == "count":
            assert record.status == "delivered"
            assert (record.usage.input_tokens, record.usage.tool_calls) == (200, 1)
            assert record.usage.cached_tokens == (40 if agent == "copilotj" else 80)
            assert str(record.usage.source).startswith(f"{agent}: ")
        elif rung == "refusal":
            assert record.status == "refused"
        else:
            assert record.infrastructure == "the provider answered 402"
            assert len(records) == 2
    assert set(server.keys) == {f"Bearer {CANARY}"}
