"""Providers, keys and the relay as a user meets them: options, usage errors, skips, and one trial by the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agents import load_agent
from agents.base import Launch, Session
from agents.endpoints import Endpoint, find_provider
from biabench_plugin.campaign import Configuration, check_configurations
from biabench_plugin.isolation import IsolationUnavailable, containment_for
from biabench_plugin.model_access import Access, keep_home_files, missing_key
from biabench_plugin.records import iter_records
from tests.model_server import ModelServer, Turn

Run = Callable[..., "Session"]  # defined in conftest.py


def configuration(**values: str) -> Configuration:
    return Configuration(agent="api", model="m", **values)  # type: ignore[arg-type]


# --- providers and keys ---------------------------------------------------------------------------------------------


def test_providers_by_name_and_by_url() -> None:
    assert find_provider(None).name == "openrouter"
    assert find_provider("anthropic").root("messages") == "https://api.anthropic.com"
    own = find_provider("http://127.0.0.1:8000/v1/")
    assert (own.messages, own.openai, own.key_variable) == (
        "http://127.0.0.1:8000", "http://127.0.0.1:8000", "BIABENCH_API_KEY",
    )  # fmt: skip
    assert find_provider("openai", "MY_KEY").key_variable == "MY_KEY"


@pytest.mark.parametrize("name", ["nobody", "ftp://host", "http://user:secret@host", ""])
def test_unknown_provider_names_the_choices(name: str) -> None:
    if not name:
        assert find_provider(name).name == "openrouter"
        return
    with pytest.raises(ValueError, match=r"openrouter.*base URL"):
        find_provider(name)


def test_a_provider_that_does_not_speak_the_protocol_is_refused_before_anything_runs() -> None:
    with pytest.raises(ValueError, match="openai does not speak"):
        check_configurations([Configuration(agent="claude_code", model="m", provider="openai")])
    with pytest.raises(ValueError, match="anthropic does not speak"):
        check_configurations([Configuration(agent="codex", model="m", provider="anthropic")])


def test_missing_key_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    monkeypatch.setenv("MY_KEY", "k")
    assert "OPENROUTER_API_KEY" in str(missing_key(load_agent("api"), configuration()))
    assert missing_key(load_agent("api"), configuration(key_variable="MY_KEY")) is None
    assert missing_key(load_agent("empty"), Configuration(agent="empty")) is None


def test_a_secret_is_no_variable_name() -> None:
    with pytest.raises(ValueError, match="key_variable"):
        configuration(key_variable="sk-or-v1-0123456789")


# --- launches -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["api", "claude_code", "codex", "deepseek_harness"])
@pytest.mark.parametrize("contained", [True, False])
def test_launch_gives_the_instruction_and_only_that(name: str, contained: bool) -> None:
    told = Session(
        instruction="Count ü.\n",
        instruction_file="/instruction.md",
        input_dir="/input" if contained else "/somewhere/input",
        output_dir="/output",
        budget_seconds=60.0,
        model="maker/model",
        endpoint=Endpoint("http://127.0.0.1:1", "http://127.0.0.1:1", "secret-key", True),
    )
    launch: Launch = load_agent(name).launch(told)
    assert launch.stdin == "Count ü.\n".encode()
    assert not any("Count" in word or "secret-key" in word for word in launch.argv)  # process lists show neither
    assert "secret-key" in launch.environment.values()
    assert not any("secret-key" in text for text in launch.home_files.values())
    assert "maker/model" in " ".join([*launch.argv, *launch.home_files.values()])
    if not contained:
        assert all(str(bind.source.resolve()) == str(Path(bind.target).resolve()) for bind in launch.binds)
    if name == "claude_code":
        slots = [value for variable, value in launch.environment.items() if "MODEL" in variable]
        assert len(slots) == 6
        assert set(slots) == {"maker/model"}


def test_without_a_socket_a_launch_is_left_alone() -> None:
    launch = Launch(("x",))
    assert Access().launch(launch) is launch


# --- logs out of HOME -----------------------------------------------------------------------------------------------


def test_only_real_files_are_kept_from_home(tmp_path: Path) -> None:
    home, secret = tmp_path / "home", tmp_path / "secret.jsonl"
    (home / ".logs" / "deep").mkdir(parents=True)
    secret.write_text("secret")
    (home / ".logs" / "deep" / "a.jsonl").write_text("mine")
    (home / ".logs" / "link.jsonl").symlink_to(secret)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "b.jsonl").write_text("secret")
    (home / ".logs" / "folder").symlink_to(tmp_path / "elsewhere")
    (home / ".logs" / "big.jsonl").write_text("x" * 1000)
    keep_home_files(home, (".logs/**/*.jsonl", ".logs/folder/*.jsonl"), tmp_path / "kept", limit=500)
    kept = {path.name: path.read_text() for path in (tmp_path / "kept").rglob("*") if path.is_file()}
    assert "secret" not in kept.values()
    assert "big.jsonl" not in kept
    assert kept in ({"a.jsonl": "mine"}, {})


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--network=model", "--relay=off"], "cannot be had with --relay=off"),
        (["--network=none"], "use --network=model"),
    ],
)
def test_contradictions_are_usage_errors(tmp_path: Path, run_pytest: Run, arguments: list[str], message: str) -> None:
    done = run_pytest("--agent=api=m", *arguments, cwd=tmp_path)
    assert done.code == 4
    assert message in done.out


def test_one_trial_by_the_command(tmp_path: Path, run_pytest: Run, make_task: Callable[..., Path]) -> None:
    try:
        containment_for("required")
    except IsolationUnavailable as error:
        pytest.skip(str(error))
    tables = "printf 'X,Y\\n10,12\\n' > /output/0.csv"
    options = [f"--tasks={make_task()}", "-k", "tiny", "--budget=60", "--network=model", "--key-variable=MY_KEY"]
    with ModelServer([Turn(shell=tables), Turn(text="Done.")]) as server:
        common = [f"--provider={server.url}", *options]
        environment = {"MY_KEY": "canary-1"}
        done = run_pytest("--agent=api=m", *common, cwd=tmp_path, campaign=tmp_path / "b", environment=environment)
        assert done.code == 0, done.out
        assert {request.key for request in server.requests} == {"canary-1"}
        ((path, record),) = iter_records(tmp_path / "b")
    assert record.network == "model"
    assert record.usage.source == "relay"
    assert record.provider == server.url
    assert (path.parent / "relay.jsonl").is_file()
    assert (path.parent / "transcript.jsonl").is_file()
    assert "canary-1" not in done.out
    written = [file.read_bytes() for file in (tmp_path / "b").rglob("*") if file.is_file()]
    assert written
    assert not any(b"canary-1" in data for data in written)
