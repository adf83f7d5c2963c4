"""Making a task: the skeleton works, the check finds what is wrong, and the guide's commands do what it says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import yaml

from biabench_plugin import checktask
from biabench_plugin.checktask import Finding, check_task, leaks
from biabench_plugin.newtask import NewTaskError, create, kinds
from biabench_plugin.taskspec import LEVELS, TaskSpec, load_task, render_instruction
from evaluators import check_parameters
from evaluators.outcome.parameters import PARAMETERS

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., Any]
MakeTask = Callable[..., Path]


def biabench(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "biabench_plugin.cli", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "160"},
        timeout=300,
    )


def verdicts(findings: list[Finding]) -> dict[str, str]:
    return {finding.check: finding.verdict for finding in findings}


# --- the guide --------------------------------------------------------------------------------------------------------


def guide_commands() -> list[list[str]]:
    """Return the commands of the walk through in docs/new-task.md, in order."""
    text = (ROOT / "docs" / "new-task.md").read_text(encoding="utf-8")
    section = text.partition("## A walk through\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines() if line.strip()]


def test_the_guide_can_be_followed(tmp_path: Path, run_pytest: Run) -> None:
    outputs, sessions = {}, []
    for program, *arguments in guide_commands():
        if program == "pytest":
            sessions.append(run_pytest(*arguments, cwd=tmp_path))
            continue
        done = biabench(*arguments, cwd=tmp_path)
        assert (program, done.returncode) == ("biabench", 0), (arguments, done.stdout + done.stderr)
        outputs[arguments[0]] = done.stdout
    assert set(outputs) == {"new-task", "check-task", "tasks", "demo", "score"}
    checks = outputs["check-task"].splitlines()
    assert not [line for line in checks if line.startswith("FAIL")]
    assert any(line.startswith("ok    replay") for line in checks)
    assert "my_study" in outputs["tasks"]
    assert (tmp_path / "my_data/my_study/input/0.tif").is_file()
    assert "outcome 1.0000, strict 1.0000" in outputs["score"]
    (session,) = sessions
    assert session.code == 1, session.out
    assert {name.rpartition("::")[2]: float(values["outcome"]) for name, values in session.properties().items()} == {
        "replay[brief-r1]": 1.0,
        "empty[brief-r1]": 0.0,
        "bluff[brief-r1]": 0.0,
    }


# --- skeletons --------------------------------------------------------------------------------------------------------


def test_kinds_with_a_template_or_a_task_can_be_started() -> None:
    found = kinds()
    assert {"cell_counting", "instance_segmentation", "artifact"} <= set(found) <= set(PARAMETERS)
    assert found["cell_tracking"] == ROOT / "tasks" / "bacteria_tracking"
    assert found["cell_counting"].parent.name == "skeleton"


@pytest.mark.parametrize("kind", sorted(kinds()))
def test_skeletons_are_valid_and_explained(kind: str, tmp_path: Path) -> None:
    files = create("my_study", tmp_path / "new", kind)
    assert [path.name for path in files] == ["task.yaml", "brief.md", "detailed.md", "demo.py"]
    spec = load_task(files[0])
    assert spec.outcome.kind == kind
    check_parameters(spec.outcome, spec.deliverables)
    lines = files[0].read_text(encoding="utf-8").splitlines()
    fields = {name: number for number, line in enumerate(lines) for name in re.findall(r"^([a-z_]+):", line)}
    assert set(TaskSpec.model_fields) - {"folder"} == set(fields)
    for name, number in fields.items():
        before = lines[number - 1]
        assert before.startswith("#"), name
    for name in PARAMETERS[kind].model_fields:
        assert any(re.match(rf"#   .*\b{name}\b.*:", line) for line in lines), name
    assert max(len(line) for line in lines if line.startswith("#")) <= 120
    for level in LEVELS:
        assert leaks(spec, render_instruction(spec, level, gpu=True, input_dir="/input", output_dir="/output")) == []


@pytest.mark.parametrize("kind", ["instance_segmentation", "artifact"])
def test_templates_make_data_that_pass_the_check(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checktask, "_build", build_here)
    create("my_study", tmp_path, kind)
    found = verdicts(list(check_task(tmp_path / "my_study")))
    assert "FAIL" not in found.values()
    assert (found["replay"], found["empty"], found["bluff"], found["determinism"]) == ("ok",) * 4


@pytest.mark.parametrize(
    ("slug", "kind", "message"),
    [
        ("My-Study", "cell_counting", "a slug is made of"),
        ("../x", "cell_counting", "a slug is made of"),
        ("my_study", "counting", "unknown kind 'counting'; kinds: artifact, cell_counting"),
        ("taken", "cell_counting", "exists already"),
        ("cell_counting", "cell_counting", "already"),
    ],
)
def test_misuse_writes_nothing(slug: str, kind: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "task.yaml").write_text("mine\n")
    with pytest.raises(NewTaskError, match=message):
        create(slug, tmp_path, kind)
    assert [path.name for path in tmp_path.rglob("*")] == ["taken", "task.yaml"]
    assert (tmp_path / "taken" / "task.yaml").read_text() == "mine\n"


def test_commands_exit_with_2_on_misuse_and_with_1_on_a_failed_check(tmp_path: Path, make_task: MakeTask) -> None:
    twice = biabench("new-task", "no/slug", cwd=tmp_path)
    assert (twice.returncode, "a slug is made of" in twice.stderr) == (2, True)
    nothing = biabench("check-task", "nowhere", cwd=tmp_path)
    assert (nothing.returncode, "no task folder" in nothing.stderr) == (2, True)
    root = make_task(**{"difficulty: easy": "difficulty: trivial"})
    unfit = biabench("check-task", str(root / "tiny"), cwd=tmp_path)
    assert unfit.returncode == 1
    assert re.match(r"FAIL  spec .*difficulty.*'easy', 'medium' or 'hard'", unfit.stdout)
    assert len(unfit.stdout.splitlines()) == 1


# --- the check --------------------------------------------------------------------------------------------------------


def build_here(spec: TaskSpec, wanted: dict[Path, int], hash_seed: int) -> str | None:
    """Build demo data in this process, which is faster."""
    from biabench_plugin.datasets import build_demo

    for folder, seed in wanted.items():
        folder.mkdir()
        build_demo(spec, folder, seed)
    return None


@pytest.fixture
def tiny(make_task: MakeTask) -> Path:
    """The folder of a valid little task."""
    return make_task() / "tiny"


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_a_fit_task_in_processes_of_its_own(tiny: Path) -> None:
    found = list(check_task(tiny))
    assert verdicts(found) == {
        "spec": "ok",
        "outcome": "ok",
        "placeholders": "ok",
        "brief": "warn",  # seven words
        "detailed": "warn",
        "leak": "ok",
        "demo": "ok",
        "determinism": "warn",  # its data do not depend on the seed
        "input": "ok",
        "replay": "ok",
        "empty": "ok",
        "bluff": "ok",
    }
    assert all("\n" not in str(finding) for finding in found)


@pytest.mark.parametrize(
    ("planted", "name"),
    [
        ("as in Zenodo 17088532", "Zenodo 17088532"),
        ("see 10.5281/zenodo.17088532", "10.5281/zenodo.17088532"),
        ("the fluo-cell-counting-2d-cellfmcount images", "fluo-cell-counting-2d-cellfmcount"),
        ("this is called cell_counting", "cell_counting"),
        ("for IF cell counting", "IF cell counting"),
        ("the score is", "score"),
        ("compared with the ground-truth", "ground-truth"),
        ("as in the reference annotations", "reference annotations"),
        ("the Dice coefficient", "dice"),
        ("our benchmark", "benchmark"),
        ("a strict rule", "strict"),
    ],
)
@pytest.mark.parametrize("level", LEVELS)
def test_leaks_are_found_in_either_instruction(tiny: Path, level: str, planted: str, name: str) -> None:
    assert checktask._instructions(load_task(tiny / "task.yaml")).verdict == "ok"
    rewrite(tiny / f"{level}.md", "Please", f"Please, {planted}:")
    finding = checktask._instructions(load_task(tiny / "task.yaml"))
    assert finding.verdict == "FAIL"
    assert level in finding.message
    assert repr(name) in finding.message


def test_a_leak_in_the_contract_is_found(tiny: Path) -> None:
    rewrite(tiny / "task.yaml", "One table per input image", "Scored per image: one table per input image")
    assert "scored" in checktask._instructions(load_task(tiny / "task.yaml")).message


def test_words_of_the_field_are_no_leak(tiny: Path) -> None:
    spec = load_task(tiny / "task.yaml").model_copy(update={"slug": "microglia", "label": "Microglia"})
    text = "Microglia underscore their diced, scoreless, metrical f10 and evaluated predicates. centroids_per_image"
    assert leaks(spec, text) == []


def test_unfit_parameters_end_the_check(tiny: Path) -> None:
    rewrite(tiny / "task.yaml", "distance_px", "distance")
    found = list(check_task(tiny))
    assert verdicts(found) == {"spec": "ok", "outcome": "FAIL"}
    assert "distance: Extra inputs" in found[-1].message


def test_a_slug_of_the_suite_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / "cell_counting"
    folder.mkdir()
    for path in (ROOT / "tasks" / "cell_counting").glob("*.*"):
        (folder / path.name).write_bytes(path.read_bytes())
    (finding,) = check_task(folder)
    assert (finding.verdict, "already" in finding.message) == ("FAIL", True)


def test_what_is_left_to_fill_in_is_named(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checktask, "_build", build_here)
    rewrite(tiny / "task.yaml", "organism: mammalian", "organism: TODO mammalian")
    (finding,) = (finding for finding in check_task(tiny) if finding.check == "placeholders")
    assert finding.verdict == "warn"
    assert re.search(r"task\.yaml:\d+$", finding.message)


def fake(write: Callable[[Path, int], None]) -> Callable[..., str | None]:
    """Return a builder that writes the data of the little task and then does something to them."""
    count = 0

    def build(spec: TaskSpec, wanted: dict[Path, int], hash_seed: int) -> str | None:
        nonlocal count
        build_here(spec, wanted, hash_seed)
        for folder in wanted:
            write(folder, count)
            count += 1
        return None

    return build


def no_truth(folder: Path, _: int) -> None:
    for path in (folder / "evaluation").iterdir():
        path.unlink()


def stray(folder: Path, _: int) -> None:
    (folder / "notes.txt").write_text("x")


def other_bytes(folder: Path, count: int) -> None:
    (folder / "input" / "2.tiff").write_bytes(b"x" * count)


def truth_in_input(folder: Path, _: int) -> None:
    (folder / "input" / "cells.csv").write_bytes((folder / "evaluation" / "0.csv").read_bytes())


def name_in_input(folder: Path, _: int) -> None:
    (folder / "input" / "Fluo-cell-counting-2d-cellfmcount.txt").write_text("x")


def no_reference_for_an_image(folder: Path, _: int) -> None:
    tifffile.imwrite(folder / "input" / "7.tiff", np.zeros((8, 8), np.uint8))


def broken_truth(folder: Path, _: int) -> None:
    (folder / "evaluation" / "0.csv").write_text("a,b\n1,2\n")


def only_empty_fields(folder: Path, _: int) -> None:
    (folder / "evaluation" / "0.csv").write_text("X,Y\n")


@pytest.mark.parametrize(
    ("damage", "check", "verdict", "message"),
    [
        (no_truth, "demo", "FAIL", "left evaluation without a file"),
        (stray, "demo", "FAIL", "wrote evaluation, input, notes.txt; expected evaluation and input"),
        (other_bytes, "determinism", "FAIL", "input/2.tiff"),
        (truth_in_input, "input", "FAIL", "input/cells.csv is the same file as evaluation/0.csv"),
        (name_in_input, "input", "FAIL", "names the task"),
        (no_reference_for_an_image, "replay", "FAIL", "cannot be replayed"),
        (broken_truth, "replay", "FAIL", "cannot be replayed"),
        (only_empty_fields, "replay", "warn", "strict undecided"),
    ],
)
def test_faults_of_the_data_are_found(
    tiny: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Path, int], None],
    check: str,
    verdict: str,
    message: str,
) -> None:
    monkeypatch.setattr(checktask, "_build", fake(damage))
    (finding,) = (finding for finding in check_task(tiny) if finding.check == check)
    assert finding.verdict == verdict, finding
    assert message in finding.message


def test_a_demo_that_stops_is_named(tiny: Path) -> None:
    (tiny / "demo.py").write_text("def make(destination, seed):\n    raise ValueError('no cells today')\n")
    found = list(check_task(tiny))
    assert found[-1] == Finding("FAIL", "demo", "demo.py stopped: ValueError: no cells today")
    (tiny / "demo.py").unlink()
    assert list(check_task(tiny))[-1].verdict == "warn"


def test_data_that_depend_on_the_hash_seed_are_not_deterministic(tiny: Path) -> None:
    """The usual accident: the order of a set of strings."""
    with (tiny / "demo.py").open("a") as handle:
        handle.write("    names = ' '.join({str(k) for k in range(50)})\n")
        handle.write("    (destination / 'input' / 'order.txt').write_text(names)\n")
    found = {finding.check: finding for finding in check_task(tiny)}
    assert found["determinism"].verdict == "FAIL"
    assert "input/order.txt" in found["determinism"].message


def test_a_scale_without_a_top_or_a_bottom_fails(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checktask, "_build", build_here)
    real = checktask.evaluate

    def wrong(*arguments: Any) -> Any:
        return real(*arguments).model_copy(update={"outcome": 0.5})

    monkeypatch.setattr(checktask, "evaluate", wrong)
    found = {finding.check: finding for finding in check_task(tiny)}
    assert [found[name].verdict for name in ("replay", "empty", "bluff")] == ["FAIL"] * 3
    assert "must reach 0.999" in found["replay"].message
    assert found["empty"].message == "nothing scores 0.5, expected 0"


def test_a_study_without_truth_may_stay_a_little_below_one(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checktask, "_build", build_here)
    real = checktask.evaluate

    def nearly(*arguments: Any) -> Any:
        score = real(*arguments)
        return score.model_copy(update={"outcome": min(score.outcome, 0.993)})

    monkeypatch.setattr(checktask, "evaluate", nearly)
    assert verdicts(list(check_task(tiny)))["replay"] == "FAIL"
    text = yaml.safe_load((tiny / "task.yaml").read_text()) | {"truth": "none"}
    (tiny / "task.yaml").write_text(yaml.safe_dump(text))
    assert verdicts(list(check_task(tiny)))["replay"] == "ok"
