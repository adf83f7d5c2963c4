"""task.yaml is validated with every fault named, and instructions render to the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from biabench_plugin.checktask import leaks
from biabench_plugin.taskspec import LEVELS, TaskError, load_task, load_tasks, render_instruction

ROOT = Path(__file__).resolve().parents[2]
TASKS = load_tasks(ROOT / "tasks")


def test_every_task_of_the_suite_is_valid() -> None:
    assert {"hela_segmentation", "histology_nuclei", "cell_counting", "bacteria_tracking"} <= set(TASKS)
    assert len({task.dataset_id for task in TASKS.values()}) == len(TASKS)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("slug", sorted(TASKS))
def test_instruction_has_body_and_four_blocks_in_order(slug: str, level: str) -> None:
    task = TASKS[slug]
    text = render_instruction(task, level, gpu=False, input_dir="/input", output_dir="/output")
    again = render_instruction(task, level, gpu=False, input_dir="/input", output_dir="/output")
    assert text.encode() == again.encode()
    marks = [
        text.index(mark) for mark in ("Required output files", "Source-study policy", "Compute environment", "Paths:")
    ]
    assert marks == sorted(marks)
    assert text.startswith(task.body(level).strip())
    for deliverable in task.deliverables:
        assert f"- {deliverable.id} (" in text
        assert all(pattern in text for pattern in deliverable.patterns)
        assert all(column in text for column in deliverable.columns)
    assert "/input" in text
    assert "/output" in text


@pytest.mark.parametrize("slug", sorted(TASKS))
def test_nothing_about_source_or_scoring_reaches_the_agent(slug: str) -> None:
    for level in LEVELS:
        text = render_instruction(TASKS[slug], level, gpu=True, input_dir="/input", output_dir="/output")
        assert leaks(TASKS[slug], text) == []


def test_compute_line_follows_the_gpu() -> None:
    task = next(iter(TASKS.values()))
    paths = {"input_dir": "/input", "output_dir": "/output"}
    with_gpu = render_instruction(task, "brief", gpu=True, **paths)
    without = render_instruction(task, "brief", gpu=False, **paths)
    assert "CUDA-capable GPU is available" in with_gpu
    assert "No GPU" in without
    assert len(set(with_gpu.splitlines()) ^ set(without.splitlines())) == 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "cell_counting"
    target.mkdir()
    for path in (ROOT / "tasks" / "cell_counting").glob("*.*"):
        (target / path.name).write_bytes(path.read_bytes())
    return target


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("difficulty: easy", "difficulty: trivial", "difficulty.*'easy', 'medium' or 'hard'"),
        ("subtasks: [spot_detection]", "subtasks: [spotting]", "subtasks.*'segmentation'"),
        ("modality: widefield", "modality: radio", "modality"),
        ("slug: cell_counting", "slug: other", "differs from its folder"),
        ("channels: 1", "chanels: 1", "chanels.*[Ee]xtra"),
        ('patterns: ["*.csv"]', 'patterns: ["*"]', "names no file extension"),
        ("    multiple: true", "    required: false", "no deliverable is required"),
        ("organism:", "? [organism", "is not YAML"),
    ],
)
def test_unfit_spec_names_the_fault(folder: Path, old: str, new: str, fault: str) -> None:
    path = folder / "task.yaml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(TaskError, match=fault) as caught:
        load_task(path)
    assert str(path) in str(caught.value)


def test_missing_instruction_is_named(folder: Path) -> None:
    (folder / "detailed.md").unlink()
    with pytest.raises(TaskError, match=r"detailed\.md: missing"):
        load_task(folder / "task.yaml")


def test_a_slug_in_two_roots_is_an_error(folder: Path) -> None:
    with pytest.raises(TaskError, match="already loaded"):
        load_tasks(ROOT / "tasks", folder.parent)
