"""doctor, setup, audit and cost, as a user calls them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from agents.base import Usage
from agents.transcript import Step, write_transcript
from biabench_plugin import billing, doctor
from biabench_plugin.campaign import Configuration
from biabench_plugin.cli import app
from biabench_plugin.model_access import missing_key
from biabench_plugin.records import TrialRecord, write_record
from biabench_plugin.source_study import read_audit

ROOT = Path(__file__).resolve().parents[2]
START = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("BIABENCH_AGENTS", str(tmp_path / "agents"))
    for name in ("BIABENCH_COPILOTJ_DIR", "AGENTIC_J_DIR", "AGENTIC_J_SIF", "AGENTIC_J_IMAGE", "BIABENCH_BIOMNI_ENV"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "agents"


# --- doctor and setup -----------------------------------------------------------------------------------------------


def test_doctor_names_host_and_agents(nothing_installed: Path) -> None:
    done = call("doctor")
    assert done.exit_code == 0, done.output
    for word in ("python", "containment", "gpu", "disk", "ok  classical"):
        assert word in done.output
    assert "FIX biomni" in done.output
    assert "biabench setup biomni" in done.output
    assert "AGENTIC_J_IMAGE=NAME (Docker)" in done.output


def test_doctor_fails_for_a_named_agent_that_cannot_run(nothing_installed: Path) -> None:
    assert call("doctor", "biomni").exit_code == 1
    assert call("doctor", "classical").exit_code == 0
    unknown = call("doctor", "nobody")
    assert unknown.exit_code == 2
    assert "classical" in unknown.output


def test_a_trial_is_skipped_with_the_words_of_the_doctor(
    nothing_installed: Path, tmp_path: Path, run_pytest: Callable[..., Any]
) -> None:
    words = call("doctor", "biomni").output.splitlines()[-1].partition("  ")[2].strip()
    assert words.startswith("biomni cannot run here: ")
    environment = {"BIABENCH_AGENTS": str(nothing_installed)}
    done = run_pytest("--agent=biomni=m", "-k", "cell_counting", "-rs", cwd=tmp_path, environment=environment)
    assert done.code == 0, done.out
    assert words in done.out.replace("\n", "")


def test_a_missing_key_is_named_by_doctor_and_skip_in_the_same_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_pytest: Callable[..., Any]
) -> None:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    words = call("doctor", "api").output.splitlines()[-1].partition("  ")[2].strip()
    assert words.startswith("api cannot run here: no key for openrouter")
    done = run_pytest("--agent=api=m", "-k", "cell_counting", "-rs", cwd=tmp_path)
    assert words in done.out.replace("\n", "")


def test_doctor_examines_with_the_provider_and_key_of_the_trials(
    nothing_installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENROUTER_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "BIABENCH_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("agents.codex.Codex.unavailable", lambda agent: None)
    assert "no key for openai: set OPENAI_API_KEY" in call("doctor", "codex", "--provider", "openai").output
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    assert call("doctor", "codex", "--provider", "openai").exit_code == 0
    assert call("doctor", "codex", "--key-variable", "OPENAI_API_KEY").exit_code == 0
    other = call("doctor", "codex", "--provider", "openai", "--key-variable", "MY_KEY")
    assert other.exit_code == 1
    assert "set MY_KEY" in other.output
    assert "set BIABENCH_API_KEY" in call("doctor", "codex", "--provider", "http://127.0.0.1:1").output


def test_doctor_lists_every_agent_where_the_provider_does_not_fit_one(nothing_installed: Path) -> None:
    done = call("doctor", "api", "codex", "classical", "--provider", "openai")
    assert done.exit_code == 1
    assert "api cannot run here: provider openai does not speak the protocol" in done.output
    assert "ok  classical" in done.output


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--provider", "nobody", "--provider=nobody: expected openrouter, anthropic"),
        ("--key-variable", "1x", "--key-variable=1x: String should match"),
    ],
)
def test_doctor_refuses_what_a_session_refuses(option: str, value: str, message: str) -> None:
    done = call("doctor", "classical", option, value)
    assert done.exit_code == 2
    assert message in done.output


def test_each_missing_thing_of_an_agent_is_named_in_turn(
    nothing_installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from agents import load_agent

    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)

    def reason(name: str) -> str:
        return load_agent(name).unavailable() or "ready"

    def program(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)

    assert "apt-get install xvfb" in reason("copilotj")
    program(programs / "Xvfb")
    assert "uv sync" in reason("copilotj")
    program(nothing_installed / "copilotj" / ".venv" / "bin" / "python")
    assert "no Fiji" in reason("copilotj")
    program(nothing_installed / "Fiji" / "fiji-linux-x64")
    assert "Maven" in reason("copilotj")
    program(nothing_installed / "Fiji" / "plugins" / "CopilotJBridge.jar")
    assert reason("copilotj") == "ready"
    no_key = missing_key(load_agent("copilotj"), Configuration(agent="copilotj"))
    assert no_key is not None
    assert "set OPENROUTER_API_KEY" in no_key
    assert doctor.examine_agent("copilotj").problem == f"copilotj cannot run here: {no_key}"
    monkeypatch.setenv("OPENROUTER_API_KEY", "k")
    assert doctor.examine_agent("copilotj").problem is None
    monkeypatch.delenv("OPENROUTER_API_KEY")

    assert "AGENTIC_J_SIF" in reason("agentic_j")
    program(nothing_installed / "agentic_j" / ".apptainer" / "a.sif")
    assert "apptainer is missing" in reason("agentic_j")
    program(programs / "apptainer")
    assert "imagentj_config.yaml" in reason("agentic_j")
    (nothing_installed / "agentic_j" / "imagentj_config.yaml").write_text("models: {}\n")
    stub = nothing_installed / "agentic_j" / "qdrant_data" / "x.bin"
    stub.parent.mkdir()
    stub.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
    assert "git lfs pull" in reason("agentic_j")
    stub.unlink()
    assert "export OPENROUTER_API_KEY=" in reason("agentic_j")
    monkeypatch.setenv("OPENROUTER_API_KEY", "k")
    assert reason("agentic_j") == "ready"

    packages = nothing_installed / "biomni" / "lib" / "python3.11" / "site-packages"
    (packages / "biomni-0.0.7.dist-info").mkdir(parents=True)
    assert "0.0.7 is installed, 0.0.8 is needed" in reason("biomni")


def test_setup_says_what_it_would_run_and_what_no_registry_holds(
    nothing_installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dry = call("setup", "biomni", "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert f"-m venv {nothing_installed / 'biomni'}" in dry.output
    assert "requirements/biomni.txt" in dry.output
    assert not nothing_installed.exists()
    refused = call("setup", "copilotj")
    assert refused.exit_code == 1
    assert "no package registry holds it" in refused.output
    assert "needs no installation" in call("setup", "classical").output
    assert call("setup", "nobody").exit_code == 2


def test_setup_runs_its_commands_and_names_the_one_that_fails(
    nothing_installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [([sys.executable, "-c", "pass"], ROOT), ([sys.executable, "-c", "raise SystemExit(3)"], ROOT)]
    monkeypatch.setattr(doctor, "commands", lambda name: steps)
    done = call("setup", "biomni")
    assert done.exit_code == 1
    assert "SystemExit(3)" in done.output


# --- audit ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path, make_record: Callable[..., TrialRecord]) -> Callable[..., Path]:
    """Return a function that stores an attempt of a campaign and returns its folder."""

    def write(repeat: int = 1, steps: list[Step] | None = None, **changes: Any) -> Path:
        name = f"runs/cell_counting/codex+m-brief/r{repeat}/attempt-1"
        values = {
            "trial": f"tasks/cell_counting/task.yaml::codex[m-brief-r{repeat}]",
            "task": "cell_counting", "agent": "codex", "configuration": "codex[m-brief]", "model": "maker/m",
            "synthetic": False, "repeat": repeat, "started": START + timedelta(hours=repeat), "wall_seconds": 600.0,
            "run_folder": name,
        }  # fmt: skip
        folder = tmp_path / "campaign" / name
        folder.mkdir(parents=True)
        write_record(make_record(**(values | changes)), folder)
        if steps is not None:
            write_transcript(steps, folder / "transcript.jsonl")
        return folder

    return write


def test_audit_flags_a_look_up_in_file_report_and_exit_status(store: Callable[..., Path], tmp_path: Path) -> None:
    campaign = tmp_path / "campaign"
    guilty = store(1, [Step(step=1, kind="tool", urls=["https://zenodo.org/records/17088532/files/GT.zip"])])
    clean = store(2, [Step(step=1, kind="tool", code="pip install cellpose")])
    store(3)
    done = call("audit", campaign)
    assert done.exit_code == 1
    assert "FLAGGED tasks/cell_counting/task.yaml::codex[m-brief-r1] attempt 1: 1 dataset" in done.output
    assert "step 1 fetch: https://zenodo.org/records/17088532/files/GT.zip = " in done.output
    assert "accession 17088532" in done.output
    assert "NOT CHECKED runs/cell_counting/codex+m-brief/r3/attempt-1: no transcript" in done.output
    assert "2 checked, 1 flagged, 1 not checked" in done.output
    found = read_audit(guilty)
    assert found is not None
    assert found.flagged
    assert not json.loads((clean / "audit.json").read_text())["accesses"][0]["hits"]
    report = call("report", campaign)
    assert "SOURCE STUDY cell_counting codex[m-brief] r1: https://zenodo.org/records/17088532" in report.output
    as_json = json.loads(call("audit", campaign, "--json").output)
    assert [trial["flagged"] for trial in as_json["trials"]] == [True, False]


def test_an_audit_of_nothing_is_no_clean_bill(store: Callable[..., Path], tmp_path: Path) -> None:
    store(1)
    done = call("audit", tmp_path / "campaign")
    assert done.exit_code == 3
    assert "0 checked" in done.output
    assert call("audit", tmp_path / "nowhere").exit_code == 2


def test_a_damaged_transcript_is_named_and_not_taken_for_clean(store: Callable[..., Path], tmp_path: Path) -> None:
    folder = store(1, [])
    (folder / "transcript.jsonl").write_text("nonsense\n")
    done = call("audit", tmp_path / "campaign")
    assert done.exit_code == 3
    assert "transcript.jsonl:1" in done.output


# --- cost -----------------------------------------------------------------------------------------------------------

USED = Usage(input_tokens=1_000_000, cached_tokens=400_000, output_tokens=100_000, cost_usd=1.0, cost_source="relay")


def test_a_bill_is_joined_by_run_request_and_time(store: Callable[..., Path], tmp_path: Path) -> None:
    campaign = tmp_path / "campaign"
    first, second = store(1, usage=USED), store(2, usage=USED)
    (second / "relay.jsonl").write_text(json.dumps({"number": 1, "request_id": "gen-7"}) + "\n{cut")
    rows = [
        "created_at,id,model,run,cost",
        ",,,runs/cell_counting/codex+m-brief/r1/attempt-1,0.25",
        ",gen-7,,,0.50",
        "2026-03-04T12:05:00Z,,maker/m:free,,0.125",  # within the second run
        "2026-03-04T12:05:00Z,,other/model,,9",
        "2026-03-05,,maker/m,,7",  # a bare day joins nothing
    ]
    export = tmp_path / "activity.csv"
    export.write_text("\n".join(rows) + "\n")
    done = call("cost", "import", export, "--campaign", campaign)
    assert done.exit_code == 1, done.output
    assert "NOT JOINED row 4 ($9.0000)" in done.output
    assert "$0.8750 joined to 2 runs; $16.0000 in 2 rows not joined" in done.output
    assert billing.read_bills(first).cost_usd == 0.25
    (bill,) = billing.read_bills(second).bills
    assert (bill.cost_usd, bill.rows, bill.joined_by) == (0.625, 2, ["request", "time and model"])
    assert (bill.export, len(bill.sha256)) == ("activity.csv", 64)

    again = call("cost", "import", export, "--campaign", campaign)  # nothing changes
    assert "$0.8750 in 3 rows booked before" in again.output
    assert billing.read_bills(second).bills == [bill]
    (line,) = [line for line in call("cost", "show", campaign).output.splitlines() if line.startswith("codex")]
    assert line.split() == ["codex[m-brief]", "2", "2.0000", "0.8750", "relay"]  # metered and billed side by side


def test_a_time_that_fits_two_runs_joins_neither(store: Callable[..., Path], tmp_path: Path) -> None:
    for repeat in (1, 2):
        store(repeat, started=START)
    export = tmp_path / "bill.json"
    export.write_text(json.dumps({"data": [{"timestamp": "2026-03-04T10:01:00Z", "model": "m", "cost": 3}]}))
    done = call("cost", "import", export, "--campaign", tmp_path / "campaign")
    assert "2 attempts fit by time and model" in done.output
    assert done.exit_code == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "no column with a cost"),
        ("cost\nfree\n", "row 1: the cost 'free' is no number"),
        ("cost\nnan\n", "not a sum of money"),
        ("cost\n-inf\n", "not a sum of money"),
        ("model,usage\nm,1200\n", "no column with a cost"),  # tokens, not dollars
        ("cost,note\n1," + "x" * 200_000 + "\n", "field larger than field limit"),
        ("cost\n", "found none"),
        ("{bad", "neither JSON nor JSON lines"),
        ("[1]", "expected a list of objects"),
    ],
)
def test_an_unfit_export_is_named(store: Callable[..., Path], tmp_path: Path, text: str, message: str) -> None:
    store(1)
    export = tmp_path / "bill"
    export.write_text(text)
    done = call("cost", "import", export, "--campaign", tmp_path / "campaign")
    assert done.exit_code == 2
    assert message in done.output
    assert str(export) in done.output.replace("\n", "")


RUN = "runs/cell_counting/codex+m-brief/r1/attempt-1"


@pytest.mark.parametrize("order", [("week", "month"), ("month", "week"), ("week", "month", "week", "month")])
@pytest.mark.parametrize("named", [True, False])
def test_exports_that_overlap_bill_each_charge_once(
    store: Callable[..., Path], tmp_path: Path, named: bool, order: tuple[str, ...]
) -> None:
    folder = store(1)
    rows = [
        {"id": "gen-1", "run": RUN, "time": "2026-03-04T11:01:00Z", "model": "m", "cost": "0.25"},
        {"id": "gen-2", "run": RUN, "time": "2026-03-04T11:01:00Z", "model": "m", "cost": "0.25"},  # as the first one
        {"id": "gen-3", "run": RUN, "time": "2026-03-04T11:02:00+00:00", "model": "m", "cost": "1"},
    ]
    if not named:
        rows = [{name: value for name, value in row.items() if name != "id"} for row in rows]
    for name, held in (("week", rows[:2]), ("month", rows)):
        (tmp_path / name).write_text(json.dumps(held))
    outputs = [call("cost", "import", tmp_path / name, "--campaign", tmp_path / "campaign").output for name in order]
    assert billing.read_bills(folder).cost_usd == 1.5
    assert sum(bill.rows for bill in billing.read_bills(folder).bills) == 3
    assert "booked before" not in outputs[0]
    assert "$0.5000 in 2 rows booked before" in outputs[1]


def test_the_same_export_read_otherwise_takes_the_place_of_what_it_was(
    store: Callable[..., Path], tmp_path: Path
) -> None:
    folder = store(1)
    export = tmp_path / "bill.csv"
    export.write_text(f"id,run,cost,paid\n1,{RUN},9,0.5\n")
    words = ("cost", "import", export, "--campaign", tmp_path / "campaign")
    call(*words)
    assert "booked before" not in call(*words, "--column", "cost=paid").output
    assert billing.read_bills(folder).cost_usd == 0.5


def test_a_refund_lowers_the_bill(store: Callable[..., Path], tmp_path: Path) -> None:
    folder = store(1)
    for name, rows in (("week", ("1,{},$2",)), ("month", ("1,{},-$0.50", "1,{},$2"))):  # newest first, with the same id
        export = tmp_path / name
        export.write_text("\n".join(["id,run,cost", *(row.format(RUN) for row in rows)]))
        done = call("cost", "import", export, "--campaign", tmp_path / "campaign")
        assert done.exit_code == 0, done.output
    assert billing.read_bills(folder).cost_usd == 1.5


def test_a_bill_of_an_earlier_version_is_read_and_replaced_by_its_own_export(
    store: Callable[..., Path], tmp_path: Path
) -> None:
    folder = store(1)
    export = tmp_path / "bill.csv"
    export.write_text(f"id,run,cost\n1,{RUN},0.5\n")
    call("cost", "import", export, "--campaign", tmp_path / "campaign")
    stored = json.loads((folder / "bills.json").read_text())
    assert stored["bills"][0].pop("charges") == ["id 1 #1"]
    (folder / "bills.json").write_text(json.dumps(stored))
    assert billing.read_bills(folder).cost_usd == 0.5
    call("cost", "import", export, "--campaign", tmp_path / "campaign")
    (bill,) = billing.read_bills(folder).bills
    assert (bill.cost_usd, bill.charges) == (0.5, ["id 1 #1"])


def test_other_names_of_columns_can_be_given(store: Callable[..., Path], tmp_path: Path) -> None:
    folder = store(1)
    export = tmp_path / "bill.jsonl"
    row = {"Betrag": "$0.5", "Lauf": "tasks/cell_counting/task.yaml::codex[m-brief-r1]"}
    export.write_text(json.dumps(row) + "\n" + json.dumps(row) + "\n")
    words = ("cost", "import", export, "--campaign", tmp_path / "campaign", "--column", "cost=betrag")
    assert call(*words, "--column", "run=Lauf").exit_code == 0
    assert billing.read_bills(folder).cost_usd == 1.0
    assert "has no column" in call(*words, "--column", "run=nope").output
    assert "expected one of" in call(*words, "--column", "price=Betrag").output


def test_report_can_be_priced_anew(store: Callable[..., Path], tmp_path: Path) -> None:
    folder = store(1, usage=USED)
    bill = billing.Bill(
        export="e.csv", sha256="0", imported=datetime(2026, 10, 1, tzinfo=UTC), rows=1, cost_usd=7, joined_by=["run"]
    )
    (folder / "bills.json").write_text(billing.Bills(bills=[bill]).model_dump_json())
    assert call("report", tmp_path / "campaign").exit_code == 0
    tables = tmp_path / "campaign" / "report" / "tables"
    assert "| 7.00*" in (tables / "table1.md").read_text()  # as billed
    table = tmp_path / "prices.yaml"
    table.write_text("date: 2026-10-01\nsource: mine\nmodels:\n  m: {input: 2.0, cached: 0.5, output: 10.0}\n")
    done = call("report", tmp_path / "campaign", "--prices", table)
    assert done.exit_code == 0, done.output
    (line,) = [line for line in done.output.splitlines() if "price table of 2026-10-01" in line]
    assert line.split()[2] == "2.4000"  # 0.6 M x 2 + 0.4 M x 0.5 + 0.1 M x 10
    assert "| 2.40 " in (tables / "table1.md").read_text()
    assert "by the table of 2026-10-01 (mine)" in (tables / "tableF2.md").read_text()
    assert "| 2.000 | 0.500 | 10.000 |" in (tables / "tableF2.md").read_text()
    assert "list price" in (tables / "cost.md").read_text()
    (folder / "bills.json").write_text("[]")
    assert "bills.json: holds no bills" in call("report", tmp_path / "campaign").output.replace("\n", "")
    unfit = tmp_path / "unfit.yaml"
    unfit.write_text("models: {}\n")
    assert call("report", tmp_path / "campaign", "--prices", unfit).exit_code == 2
