"""The documentation says what is true: generated tables are current, named tests exist, every task is covered."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from biabench_plugin.taskspec import Subtask, load_tasks

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
TASKS = load_tasks(ROOT / "tasks")
CLASSES = {"loading", "headline", "strict", "not applicable"}


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    """The generator of the tables, loaded by path."""
    spec = importlib.util.spec_from_file_location("biabench_docs_build_tasks", DOCS / "build_tasks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_current(builder: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    status = builder.main(["--check"])
    assert status == 0, capsys.readouterr().err


def test_an_outdated_page_is_named_and_then_written(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(builder, "PAGE", tmp_path / "tasks.md")
    assert builder.main(["--check"]) == 1
    assert "python docs/build_tasks.py" in capsys.readouterr().err
    assert builder.main([]) == 0
    assert builder.main(["--check"]) == 0
    (tmp_path / "tasks.md").write_text("# Tasks\n", encoding="utf-8")
    assert builder.main(["--check"]) == 1


def test_every_task_is_in_the_tables_with_its_subtasks(builder: ModuleType) -> None:
    lines = builder.page(TASKS).splitlines()
    for slug, task in TASKS.items():
        (row,) = [line for line in lines if line.startswith(f"| {task.difficulty} |") and f"| `{slug}` |" in line]
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[:2] == [task.difficulty.value, task.label]
        marked = {subtask for subtask, cell in zip(Subtask, cells[-len(Subtask) :], strict=True) if cell}
        assert marked == set(task.subtasks)
        assert any(task.source.doi in line and task.source.license in line for line in lines)
        for deliverable in task.deliverables:
            assert any(f"`{deliverable.id}`" in line and deliverable.patterns[0] in line for line in lines)


def test_tables_have_as_many_cells_in_every_row(builder: ModuleType) -> None:
    for block in re.split(r"\n(?!\|)", builder.page(TASKS)):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) <= 1, rows[:2]


def test_measured_shortcuts_become_a_table(builder: ModuleType) -> None:
    slug = next(iter(TASKS))
    measured = {slug: {"one_trick": {"outcome": 0.98765, "strict": None, "seed": 0}}, "gone": {}}
    page = builder.page(TASKS, measured)
    assert f"| {TASKS[slug].label} | one trick | 0.988 | – |" in page
    assert "no benchmark results" in page
    assert "shortcut" not in builder.page(TASKS)


def weakness_tables() -> dict[str, list[list[str]]]:
    """Rows of the table of each section of docs/weaknesses.md, without its head."""
    found: dict[str, list[list[str]]] = {}
    for section in (DOCS / "weaknesses.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        rows = [line for line in section.splitlines() if line.startswith("| ")]
        found[section.splitlines()[0]] = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[1:]]
    return found


def test_every_task_has_its_definition_and_its_weaknesses() -> None:
    scoring = (DOCS / "scoring.md").read_text(encoding="utf-8")
    assert set(TASKS) <= set(re.findall(r"^### (\w+)$", scoring, re.MULTILINE))
    assert {"All tasks", *TASKS} <= set(weakness_tables())


def test_weaknesses_are_numbered_and_classified() -> None:
    for section, rows in weakness_tables().items():
        assert [row[0] for row in rows] == [str(number) for number in range(1, len(rows) + 1)], section
        for row in rows:
            assert len(row) == 5, (section, row)
            assert row[2] in CLASSES, (section, row)
            assert row[4] or row[2] == "not applicable" or "no test" in row[3], (section, row)


def test_tests_named_in_the_documentation_exist() -> None:
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    named = {
        name for path in DOCS.glob("*.md") for name in re.findall(r"`(test_\w+)`", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    assert not named - defined


def test_links_between_pages_lead_somewhere() -> None:
    for path in DOCS.glob("*.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), (path.name, target)
