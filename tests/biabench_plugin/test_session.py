"""The commands that users rely on, run as processes: selection, verdicts, records, resume, workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., "Session"]  # noqa: F821 - defined in conftest.py

COUNT = """
import os, pathlib
import numpy as np, tifffile
from scipy import ndimage
source, target = (pathlib.Path(os.environ["BIABENCH_" + name]) for name in ("INPUT", "OUTPUT"))
for path in sorted(source.glob("*.tiff")):
    image = tifffile.imread(path)
    labels, n = ndimage.label(image > 100)
    rows = "".join(f"{x},{y}\\n" for y, x in ndimage.center_of_mass(image, labels, range(1, n + 1)))
    (target / (path.stem + ".csv")).write_text("X,Y\\n" + rows)
"""


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    """Write a Python program for the agent `command` and return the option that starts it."""

    def write(text: str) -> str:
        folder = tmp_path / "program"
        folder.mkdir(exist_ok=True)
        (folder / "agent.py").write_text(text, encoding="utf-8")
        return f"--agent-command={sys.executable} {folder / 'agent.py'}"

    return write


# --- inert without --agent ------------------------------------------------------------------------------------------


def test_without_agent_nothing_is_added(tmp_path: Path, run_pytest: Run) -> None:
    program = """
import sys
ROOMS = ("biabench_plugin", "agents", "evaluators", "tasks", "pydantic", "rich", "jinja2")
def test_x():
    loaded = {name for name in sys.modules if name.partition(".")[0] in ROOMS}
    assert loaded == {"biabench_plugin", "biabench_plugin.plugin", "biabench_plugin.options"}
"""
    (tmp_path / "test_x.py").write_text(program)
    done = run_pytest("-q", cwd=tmp_path)
    assert done.code == 0, done.out
    fixtures = run_pytest("--fixtures", "-q", cwd=tmp_path)
    for name in ("agent", "record", "input_dir", "trial_folder"):
        assert f"\n{name} " not in fixtures.out
    assert "biabench tasks of this kind" not in run_pytest("--markers", cwd=tmp_path).out


@pytest.mark.parametrize("option", ["--repeats=2", "--dataset=demo", "--min-outcome=0.5", "--isolation=off"])
def test_option_without_agent_is_a_usage_error(tmp_path: Path, run_pytest: Run, option: str) -> None:
    done = run_pytest(option, cwd=tmp_path)
    assert done.code == 4
    assert f"{option.partition('=')[0]}: needs --agent" in done.out


# --- usage errors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--agent=nobody"], "nobody.*classical"),
        (["--agent=empty", "tasks/no_such_task"], "no_such_task.*cell_counting"),
        (["--agent=empty", str(ROOT / "tests")], "only tasks can be selected.*cell_counting"),
        (["--agent=empty", "--instruction=long"], "invalid choice: 'long'.*brief"),
        (["--agent=empty", "--repeats=0"], "whole number"),
        (["--agent=empty", "--budget=soon"], "is no duration"),
        (["--agent=empty", "--dataset=nowhere"], "expected demo, demo:SEED, full or an existing folder"),
        (["--agent=empty", "--dataset=full"], "no published data"),
        (["--agent=empty", "--agent=empty"], "given twice"),
        (["--agent=command"], "needs --agent-command"),
        (["--agent=command", "--agent-command=/no/such/program"], "no such program"),
        (["--agent=empty", "--isolation=off", "--network=none"], "needs containment"),
        (["--agent=empty", "--tasks=nowhere"], "no such folder of tasks"),
        (["--agent=empty", "--agent-env=nowhere"], "no such folder"),
        (["--config=nowhere.yaml"], "cannot be read"),
    ],
)
def test_misuse_is_one_clear_usage_error(tmp_path: Path, run_pytest: Run, arguments: list[str], message: str) -> None:
    import re

    done = run_pytest(*arguments, cwd=tmp_path)
    assert done.code == 4, done.out
    assert re.search(message, done.out), done.out
    assert "Traceback" not in done.out


def test_unfit_task_is_a_usage_error(tmp_path: Path, run_pytest: Run, make_task: Callable[..., Path]) -> None:
    root = make_task(**{"difficulty: easy": "difficulty: trivial"})
    done = run_pytest("--agent=empty", f"--tasks={root}", cwd=tmp_path)
    assert done.code == 4
    assert "task.yaml: difficulty" in done.out
    assert "'easy', 'medium' or 'hard'" in done.out


def test_unknown_outcome_kind_names_the_choices(
    tmp_path: Path, run_pytest: Run, make_task: Callable[..., Path]
) -> None:
    root = make_task(**{"kind: cell_counting": "kind: counting_of_cells"})
    done = run_pytest("--agent=empty", f"--tasks={root}", cwd=tmp_path)
    assert done.code == 4
    assert "counting_of_cells" in done.out
    assert "instance_segmentation" in done.out


# --- collection -----------------------------------------------------------------------------------------------------


def _ids(output: str) -> list[str]:
    return [line for line in output.splitlines() if "task.yaml::" in line]


def test_ids_show_task_agent_level_and_repeat(tmp_path: Path, run_pytest: Run) -> None:
    done = run_pytest(
        "--collect-only",
        "-q",
        "--agent=empty",
        "--agent=bluff=some/model",
        "--repeats=2",
        "-k",
        "counting",
        cwd=tmp_path,
    )
    assert _ids(done.out) == [
        f"tasks/cell_counting/task.yaml::{name}-r{repeat}]"
        for repeat in (1, 2)
        for name in ("bluff[some~model-brief", "empty[brief")
    ]


def test_ids_do_not_depend_on_folders(tmp_path: Path, run_pytest: Run) -> None:
    (tmp_path / "deep").mkdir()
    here = run_pytest("--collect-only", "-q", "--agent=empty", "--instruction=detailed", cwd=tmp_path / "deep")
    there = run_pytest(
        "--collect-only", "-q", "--agent=empty", "--instruction=detailed", cwd=ROOT, campaign=tmp_path / "there"
    )
    assert _ids(here.out) == _ids(there.out)
    assert "tasks/hela_segmentation/task.yaml::empty[detailed-r1]" in _ids(here.out)


@pytest.mark.parametrize(
    ("arguments", "present", "absent"),
    [
        (["-m", "hard and tracking"], "bacteria_tracking", "cell_counting"),
        (["-m", "not timelapse"], "cell_counting", "bacteria_tracking"),
        (["-m", "histology"], "histology_nuclei", "hela_segmentation"),
        (["-m", "easy and two_d and spot_detection"], "cell_counting", "histology_nuclei"),
        (["tasks/hela_segmentation"], "hela_segmentation", "cell_counting"),
        (["tasks/hela_segmentation/task.yaml::empty[brief-r1]"], "hela_segmentation", "cell_counting"),
        (["-k", "bacteria"], "bacteria_tracking", "cell_counting"),
    ],
)
def test_selection(tmp_path: Path, run_pytest: Run, arguments: list[str], present: str, absent: str) -> None:
    found = _ids(run_pytest("--collect-only", "-q", "--agent=empty", *arguments, cwd=ROOT, campaign=tmp_path / "c").out)
    assert any(present in name for name in found), found
    assert not any(absent in name for name in found)


# --- running --------------------------------------------------------------------------------------------------------


@pytest.fixture
def tiny(make_task: Callable[..., Path]) -> list[str]:
    """Arguments that select one tiny task."""
    return [f"--tasks={make_task()}", "-k", "tiny"]


def test_synthetic_agents_fix_the_scale(tmp_path: Path, run_pytest: Run, tiny: list[str]) -> None:
    done = run_pytest("--agent=replay", "--agent=empty", "--agent=bluff", *tiny, cwd=tmp_path)
    assert done.code == 1, done.out
    found = {name.rpartition("::")[2]: values for name, values in done.properties().items()}
    assert float(found["replay[brief-r1]"]["outcome"]) == 1.0
    assert float(found["replay[brief-r1]"]["strict"]) == 1.0
    assert found["replay[brief-r1]"]["status"] == "delivered"
    for name in ("empty", "bluff"):
        assert float(found[f"{name}[brief-r1]"]["outcome"]) == 0.0
        assert found[f"{name}[brief-r1]"]["status"] == "no_deliverable"
    assert "1 passed" in done.out
    assert "2 failed" in done.out
    for text in ("outcome score by task", "replay[brief]", "Demo data", str(done.campaign), "report/index.html"):
        assert text in done.out
    summary = done.out.partition("= biabench =")[2].partition("campaign  ")[0].splitlines()[1:]
    assert max(map(len, summary)) <= 100
    board = json.loads((done.campaign / "leaderboard.json").read_text())
    assert [row["configuration"] for row in board["rows"]] == ["replay[brief]", "bluff[brief]", "empty[brief]"]
    assert all(row["demo"] for row in board["rows"])
    page = (done.campaign / "report" / "index.html").read_text()
    assert "replay[brief]" in page
    assert "Demo data" in page


def test_record_holds_provenance_and_instruction_lies_beside_it(
    tmp_path: Path, run_pytest: Run, tiny: list[str]
) -> None:
    done = run_pytest("--agent=bluff", *tiny, cwd=tmp_path)
    attempt = done.campaign / "runs" / "tiny" / "bluff+brief" / "r1" / "attempt-1"
    record = json.loads((attempt / "record.json").read_text())
    assert record["schema_version"] == 1
    assert record["run_folder"] == str(attempt.relative_to(done.campaign))
    assert record["provenance"]["isolation"]["in_force"] is True
    assert record["dataset"]["kind"] == "demo"
    assert len(record["dataset"]["input_digest"]) == len(record["dataset"]["truth_digest"]) == 64
    assert record["usage"]["input_tokens"] is None
    instruction = (attempt / "instruction.md").read_text()
    assert "/input" in instruction
    assert "tiny" not in instruction
    assert (attempt / "submission").is_dir()
    assert (attempt / "logs" / "stdout.log").is_file()
    assert not (done.campaign / "work").exists()


def test_a_program_is_an_agent(tmp_path: Path, run_pytest: Run, tiny: list[str], script: Callable[[str], str]) -> None:
    done = run_pytest("--agent=command", script(COUNT), *tiny, cwd=tmp_path)
    assert done.code == 0, done.out
    (found,) = done.properties().values()
    assert float(found["outcome"]) == 1.0
    assert found["isolation"] == "bubblewrap"


def test_same_command_resumes_and_rerun_adds_an_attempt(
    tmp_path: Path, run_pytest: Run, tiny: list[str], script: Callable[[str], str]
) -> None:
    command = script(COUNT)
    run_pytest("--agent=command", command, *tiny, cwd=tmp_path)
    again = run_pytest("--agent=command", command, *tiny, "-v", cwd=tmp_path)
    assert "REUSED" in again.out
    trial = again.campaign / "runs" / "tiny" / "command+brief" / "r1"
    assert sorted(path.name for path in trial.glob("attempt-*")) == ["attempt-1"]
    kept = run_pytest("--agent=command", command, *tiny, "--rerun=failed", cwd=tmp_path)
    assert "attempt-2" not in [path.name for path in trial.iterdir()], kept.out
    run_pytest("--agent=command", command, *tiny, "--rerun=all", cwd=tmp_path)
    assert sorted(path.name for path in trial.glob("attempt-*")) == ["attempt-1", "attempt-2"]
    edited = run_pytest("--agent=command", script(COUNT + "# edited\n"), *tiny, cwd=tmp_path)
    assert "attempt-3" in [path.name for path in trial.iterdir()], edited.out


def test_two_workers_give_the_same_scores_and_report(
    tmp_path: Path, run_pytest: Run, make_task: Callable[..., Path]
) -> None:
    root = make_task()
    arguments = ["--agent=replay", "--agent=empty", f"--tasks={root}", "-k", "tiny", "--repeats=3"]
    alone = run_pytest(*arguments, cwd=tmp_path, campaign=tmp_path / "alone")
    both = run_pytest(*arguments, "-n", "2", cwd=tmp_path, campaign=tmp_path / "both")
    assert both.code == alone.code == 1, both.out
    strip = [{k: v for k, v in row.items() if k != "minutes"} for row in _rows(alone.campaign)]
    assert strip == [{k: v for k, v in row.items() if k != "minutes"} for row in _rows(both.campaign)]
    scores = [{n: v["outcome"] for n, v in done.properties().items()} for done in (alone, both)]
    assert scores[0] == scores[1]
    assert len(scores[0]) == 6


def _rows(campaign: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads((campaign / "leaderboard.json").read_text())["rows"]
    return rows


@pytest.mark.parametrize(
    ("program", "status", "flag"),
    [
        ("raise SystemExit(3)", "crashed", None),
        ("import os; os.kill(os.getpid(), 9)", "crashed", None),
        ("print('task complete, all deliverables saved')", "no_deliverable", None),
        ("import time; time.sleep(600)", "no_deliverable", "timed_out"),
        (COUNT + "import time; time.sleep(600)", "delivered", "timed_out"),
        (COUNT + "raise SystemExit(1)", "delivered", None),
    ],
)
def test_end_states(
    tmp_path: Path,
    run_pytest: Run,
    tiny: list[str],
    script: Callable[[str], str],
    program: str,
    status: str,
    flag: str | None,
) -> None:
    done = run_pytest("--agent=command", script(program), "--budget=6s", *tiny, cwd=tmp_path)
    (found,) = done.properties().values()
    assert found["status"] == status, done.out
    assert found["timed_out"] == str(flag == "timed_out").lower()
    assert float(found["outcome"]) == (1.0 if status == "delivered" else 0.0)
    assert done.code == (0 if status == "delivered" else 1)


def test_min_outcome_is_a_gate(tmp_path: Path, run_pytest: Run, tiny: list[str]) -> None:
    good = run_pytest("--agent=replay", "--min-outcome=0.9", *tiny, cwd=tmp_path)
    assert good.code == 0, good.out
    half = (
        "import os, pathlib\nout = pathlib.Path(os.environ['BIABENCH_OUTPUT'])\n(out / '1.csv').write_text('X,Y\\n')\n"
    )
    (tmp_path / "half.py").write_text(half)
    option = f"--agent-command={sys.executable} {tmp_path / 'half.py'}"
    bad = run_pytest("--agent=command", option, "--min-outcome=0.9", *tiny, cwd=tmp_path)
    assert bad.code == 1
    assert "below --min-outcome=0.9" in bad.out


def test_unreadable_truth_is_an_error_and_blames_no_agent(
    tmp_path: Path, run_pytest: Run, make_task: Callable[..., Path]
) -> None:
    root = make_task()
    data = tmp_path / "data" / "tiny"
    subprocess.run(
        [sys.executable, "-m", "biabench_plugin.cli", "demo", "tiny", str(data), "--tasks", str(root)],
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    arguments = ["--agent=replay", f"--tasks={root}", f"--dataset={data.parent}", "--repeats=1"]
    good = run_pytest(*arguments, cwd=tmp_path, campaign=tmp_path / "good")
    assert good.code == 0, good.out
    assert "Demo data" not in good.out.partition("= biabench =")[2]
    (data / "evaluation" / "0.csv").write_bytes(b"\xff\xfe\x00broken")
    bad = run_pytest("--agent=empty", *arguments[1:], cwd=tmp_path, campaign=tmp_path / "bad")
    assert "1 error" in bad.out, bad.out
    assert "0.csv" in bad.out
    assert not list((tmp_path / "bad").rglob("record.json"))
    (row,) = _rows(tmp_path / "bad")  # the fault is not lost from the report
    assert (row["configuration"], row["not_run"], row["outcome"]) == ("empty[brief]", 1, None)


def test_configurations_from_a_file(tmp_path: Path, run_pytest: Run, tiny: list[str]) -> None:
    rows = [{"agent": "empty"}, {"agent": "empty", "instruction": "detailed"}, {"agent": "bluff", "label": "boaster"}]
    (tmp_path / "rows.yaml").write_text(yaml.safe_dump(rows))
    done = run_pytest("--config=rows.yaml", "--collect-only", "-q", *tiny, cwd=tmp_path)
    assert sorted(name.rpartition("::")[2] for name in _ids(done.out)) == [
        "boaster[brief-r1]",
        "empty[brief-r1]",
        "empty[detailed-r1]",
    ]


def test_killed_session_continues(
    tmp_path: Path, run_pytest: Run, tiny: list[str], script: Callable[[str], str]
) -> None:
    slow = script("import time; time.sleep(2)\n" + COUNT)
    arguments = ["--agent=command", slow, "--repeats=2", *tiny]
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "biabench_plugin.plugin",
            *arguments,
            f"--campaign={tmp_path / 'campaign'}",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not list((tmp_path / "campaign").glob("work/*/output")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = run_pytest(*arguments, cwd=tmp_path)
    assert done.code == 0, done.out
    records = sorted((tmp_path / "campaign").rglob("record.json"))
    assert len(records) == 2
    assert not (tmp_path / "campaign" / "work").exists()


# --- what a session must not mix up ---------------------------------------------------------------------------------

HALF = "import os, pathlib\nout = pathlib.Path(os.environ['BIABENCH_OUTPUT'])\n(out / '1.csv').write_text('X,Y\\n')\n"


@pytest.mark.full
def test_report_shows_the_experiment_that_the_session_used(
    tmp_path: Path, run_pytest: Run, tiny: list[str], script: Callable[[str], str]
) -> None:
    good = script(COUNT)
    first = run_pytest("--agent=command=a/b", good, *tiny, cwd=tmp_path)
    (tmp_path / "half.py").write_text(HALF)
    half = f"--agent-command={sys.executable} {tmp_path / 'half.py'}"
    other = run_pytest("--agent=command=a-b", half, *tiny, cwd=tmp_path)
    assert {row["configuration"]: row["outcome"] for row in _rows(other.campaign)} == {
        "command[a~b-brief]": 1.0,
        "command[a-b-brief]": 0.5,
    }
    changed = run_pytest("--agent=command=a/b", half, *tiny, cwd=tmp_path)  # the same row with another program
    assert {row["outcome"] for row in _rows(changed.campaign)} == {0.5}
    back = run_pytest("--agent=command=a/b", good, *tiny, cwd=tmp_path)
    assert "1 passed" in back.out
    assert next(row for row in _rows(first.campaign) if "~" in str(row["configuration"]))["outcome"] == 1.0


def test_rerun_never_replaces_what_counts_and_says_the_same_everywhere(
    tmp_path: Path, run_pytest: Run, tiny: list[str], script: Callable[[str], str]
) -> None:
    flag = tmp_path / "program" / "fixed"
    command = script(f"import pathlib\nif not pathlib.Path({str(flag)!r}).exists(): raise SystemExit(3)\n" + COUNT)
    first = run_pytest("--agent=command", command, "--isolation=off", *tiny, cwd=tmp_path)
    assert first.code == 1
    flag.touch()
    again = run_pytest("--agent=command", command, "--isolation=off", "--rerun=failed", *tiny, cwd=tmp_path)
    (found,) = again.properties().values()
    assert (again.code, found["status"], found["attempt"]) == (1, "crashed", "1")
    (row,) = _rows(again.campaign)
    assert row["outcome"] == 0.0
    assert (again.campaign / "runs/tiny/command+brief/r1/attempt-2/record.json").is_file()


def test_damaged_record_is_named_and_run_again(tmp_path: Path, run_pytest: Run, tiny: list[str]) -> None:
    done = run_pytest("--agent=replay", *tiny, cwd=tmp_path)
    record = done.campaign / "runs/tiny/replay+brief/r1/attempt-1/record.json"
    record.write_text(record.read_text()[:200])
    listed = subprocess.run(
        [sys.executable, "-m", "biabench_plugin.cli", "report", str(done.campaign)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert listed.returncode == 0, listed.stderr
    assert "damaged record" in listed.stdout
    again = run_pytest("--agent=replay", *tiny, cwd=tmp_path)
    assert again.code == 0, again.out
    assert (record.parent.parent / "attempt-2" / "record.json").is_file()


def test_edited_parameters_score_the_stored_submission_again(
    tmp_path: Path, run_pytest: Run, make_task: Callable[..., Path]
) -> None:
    root = make_task()
    arguments = ["--agent=replay", f"--tasks={root}", "-k", "tiny"]
    run_pytest(*arguments, cwd=tmp_path)
    path = root / "tiny" / "task.yaml"
    path.write_text(path.read_text().replace("distance_px: 10.0", "distance_px: 3.0"))
    again = run_pytest(*arguments, cwd=tmp_path)
    attempt = again.campaign / "runs/tiny/replay+brief/r1/attempt-1"
    assert json.loads((attempt / "record.json").read_text())["score"]["parameters"]["distance_px"] == 3.0
    assert len(list(attempt.glob("record.evaluator-*.json"))) == 1
    assert not (attempt.parent / "attempt-2").exists()


def test_looking_leaves_nothing_and_datasets_are_not_mixed(tmp_path: Path, run_pytest: Run, tiny: list[str]) -> None:
    looked = run_pytest("--agent=empty", "--collect-only", "-q", *tiny, cwd=tmp_path)
    assert looked.code == 0
    assert not looked.campaign.exists()
    run_pytest("--agent=empty", *tiny, cwd=tmp_path)
    mixed = run_pytest("--agent=empty", "--dataset=demo:5", *tiny, cwd=tmp_path)
    assert mixed.code == 4
    assert "holds dataset demo" in mixed.out
