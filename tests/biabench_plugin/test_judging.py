"""Judging as a user does: in the session, and later from the command line."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from biabench_plugin.cli import app
from evaluators.process.store import judgements, latest
from tests.evaluators.process.judge_server import Asked, Fault, JudgeServer, serve

MODEL = "claude-sonnet-5"
AGENTS = ("classical", "empty", "bluff")


@dataclass
class Judged:
    """A demo campaign of one task, judged by rules in its session."""

    out: str
    code: int
    campaign: Path
    properties: dict[str, dict[str, str]]

    def attempt(self, agent: str) -> Path:
        return self.campaign / "runs" / "oncogenic_puncta" / f"{agent}+brief" / "r1" / "attempt-1"


@pytest.fixture(scope="module")
def campaign(run_pytest: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Judged:
    folder = tmp_path_factory.mktemp("judged")
    agents = [f"--agent={agent}" for agent in AGENTS]
    done = run_pytest(*agents, "--dataset=demo", "--judge=rules", "-k", "oncogenic_puncta", cwd=folder)
    properties = {name.split("::")[-1].split("[")[0]: found for name, found in done.properties().items()}
    return Judged(done.out, done.code, done.campaign, properties)


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with serve(lambda asked: asked.decide("pass")) as running:
        yield running


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def biabench(*args: str, **environment: str) -> Done:
    """Run the command in this process: the libraries that read images are loaded once."""
    without = {"ANTHROPIC_API_KEY": None, "OPENROUTER_API_KEY": None, "COLUMNS": "200"}
    result = CliRunner().invoke(app, args, env={**without, **environment})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)


def test_session_judged_by_rules_scores_the_real_run_alone(campaign: Judged) -> None:
    """The demo campaign shows a process score with its coverage, without a key."""
    classical = campaign.properties["classical"]
    assert 0.0 < float(classical["process"]) <= 1.0
    assert 0.5 < float(classical["auditability"]) < 1.0
    assert classical["judge"] == "rules"
    assert classical["judge_agreement"] == "not measured"
    assert classical["judge_protocol"]
    for agent in ("empty", "bluff"):
        assert "process" not in campaign.properties[agent]
        assert float(campaign.properties[agent]["auditability"]) == 1.0
    assert "judge rules: 1 of 3 trials have a process score" in campaign.out
    assert "agreement with human experts: not measured" in campaign.out


def test_every_trial_has_tags(campaign: Judged) -> None:
    tags = {
        agent: [tag["tag"] for tag in json.loads((campaign.attempt(agent) / "tags.json").read_text())["tags"]]
        for agent in AGENTS
    }
    assert tags == {"classical": ["none"], "empty": ["premature_end"], "bluff": ["premature_end"]}
    assert {agent: found["tags"].split(",") for agent, found in campaign.properties.items()} == tags


def test_judgement_knows_the_names_of_the_inputs_and_nothing_of_the_outcome(campaign: Judged) -> None:
    attempt = campaign.attempt("classical")
    assert ".tif\n" in (attempt / "inputs.txt").read_text()
    (made,) = judgements(attempt)
    record = json.loads((attempt / "record.json").read_text())
    assert f"{record['score']['outcome']:.4f}"[:6] not in made.model_dump_json()


def test_dry_run_prints_requests_tokens_and_price_and_sends_nothing(campaign: Judged, server: JudgeServer) -> None:
    done = biabench("judge", str(campaign.campaign), "--dry-run", f"--model={MODEL}", f"--base-url={server.url}")
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if "classical" in line).split()
    assert line[-6] == "38"  # 75 items, two in a request
    assert float(line[-1]) > 0.05
    assert "nothing was sent" in done.stdout
    assert server.asked == []


def test_later_judging_rewrites_junit_and_keeps_the_judges_apart(campaign: Judged, server: JudgeServer) -> None:
    arguments = ("judge", str(campaign.campaign), f"--model={MODEL}", "--chunk=all", f"--base-url={server.url}")
    done = biabench(*arguments, ANTHROPIC_API_KEY="key")
    assert done.returncode == 0, done.stderr
    assert f"judge {MODEL}: 1 of 3 trials have a process score" in done.stdout
    assert len(server.asked) == 1
    attempt = campaign.attempt("classical")
    assert {one.judge for one in judgements(attempt)} == {"rules", MODEL}
    text = (campaign.campaign / "junit.xml").read_text()
    assert f'name="biabench.judge" value="{MODEL}"' in text
    assert f'name="biabench.process" value="{latest(attempt).score:.6f}"' in text  # type: ignore[union-attr]
    again = biabench(*arguments, ANTHROPIC_API_KEY="key")
    assert again.returncode == 0
    assert len(server.asked) == 1


def test_batch_from_the_command_line(campaign: Judged, server: JudgeServer) -> None:
    done = biabench(
        "judge", str(campaign.campaign), f"--model={MODEL}", "--chunk=17", "--batch", "--poll-seconds=0.05",
        f"--base-url={server.url}", ANTHROPIC_API_KEY="key",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [len(requests) for requests in server.batches.values()] == [5]
    assert len(server.asked) == 5


def test_cost_limit_is_kept(campaign: Judged, server: JudgeServer) -> None:
    done = biabench(
        "judge", str(campaign.campaign), f"--model={MODEL}", "--chunk=3", "--max-cost=0.01",
        f"--base-url={server.url}", ANTHROPIC_API_KEY="key",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "not judged: the cost limit was reached" in done.stdout
    assert server.asked == []


def test_judge_that_fails_ends_the_command_with_an_error(campaign: Judged) -> None:
    with serve(lambda _: Fault(401, "authentication_error")) as server:
        done = biabench(
            "judge",
            str(campaign.campaign),
            "--model=claude-opus-5",
            f"--base-url={server.url}",
            ANTHROPIC_API_KEY="key",
        )
    assert done.returncode == 4
    assert "401" in done.stderr


def test_errors_of_the_judge_are_told_and_asked_again(campaign: Judged) -> None:
    def forgetful(asked: Asked) -> Any:
        return "no answer" if len(asked.statements) > 25 else asked.decide("pass")

    arguments = ("judge", str(campaign.campaign), "--model=claude-opus-5", "--chunk=30")
    with serve(forgetful) as server:
        done = biabench(*arguments, f"--base-url={server.url}", ANTHROPIC_API_KEY="key")
    assert done.returncode == 4
    assert "no process score: the judge gave no valid answer on" in done.stdout
    with serve(lambda asked: asked.decide("pass")) as server:
        done = biabench(*arguments, f"--base-url={server.url}", ANTHROPIC_API_KEY="key")
        assert len(server.asked) == 2
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere",), "no such campaign folder"),
        ((".", "--chunk=0"), "--chunk 0"),
        ((".", "--model=some/model"), "set OPENROUTER_API_KEY"),
        ((".", "--model=unpriced", "--max-cost=1"), "price of unpriced is not known"),
    ],
)
def test_misuse_is_named(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    place = (str(tmp_path), *arguments[1:]) if arguments[0] == "." else arguments
    done = biabench("judge", *place)
    assert done.returncode in (2, 4)
    assert words in done.stderr


def test_session_refuses_a_judge_without_a_key_before_agents_run(
    run_pytest: Callable[..., Any], tmp_path: Path
) -> None:
    done = run_pytest("--agent=empty", "--judge=anthropic/claude-sonnet-5", cwd=tmp_path)
    assert done.code == 4
    assert "set OPENROUTER_API_KEY" in done.out
    assert not (tmp_path / "campaign").exists()


def test_all_in_one_batch_costs_a_quarter_of_the_published_scheme(campaign: Judged) -> None:
    """The table of docs/judge.md, on the run that lies here."""
    path = Path(__file__).resolve().parents[2] / "docs" / "build_judge_costs.py"
    spec = importlib.util.spec_from_file_location("biabench_docs_build_judge_costs", path)
    assert spec is not None
    assert spec.loader is not None
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    found, tasks = builder.costs(campaign.campaign)
    assert tasks == 1  # empty and bluff cost nothing and are not counted
    price = {name: usages[0].cost_usd for name, usages in found.items()}
    published, *_, batch = price.values()
    assert batch <= published / 4
    assert found["published: 2 items, no canary"][0].requests == 38
    assert "| all in one, batch | 1.0 |" in builder.table(found, tasks)
