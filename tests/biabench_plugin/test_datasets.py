"""Datasets are named clearly, built once, and identified by their content."""

from __future__ import annotations

from pathlib import Path

import pytest

from biabench_plugin import datasets
from biabench_plugin.datasets import Dataset, DatasetError, demo_folder, folder_digest
from biabench_plugin.taskspec import load_task, load_tasks

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BIABENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_parse() -> None:
    assert Dataset.parse(None) == Dataset("demo")
    assert Dataset.parse("demo:7").seed == 7
    assert Dataset.parse("demo:7").name == "demo:7"
    for text in ("demo:x", "full", "nowhere"):
        with pytest.raises(DatasetError, match=f"--dataset={text}"):
            Dataset.parse(text)


def test_once_published_data_are_there_the_dataset_must_be_named(cache: Path) -> None:
    (cache / "full" / "v1.0" / "0123").mkdir(parents=True)
    assert Dataset.parse(None).kind == "demo"  # an interrupted fetch counts for nothing
    (cache / "full" / "v1.0" / "0123" / "dataset.json").write_text("{}")
    with pytest.raises(DatasetError, match="say --dataset=demo or --dataset=full"):
        Dataset.parse(None)
    assert Dataset.parse("full").default_repeats == 3


def test_demo_data_are_built_once_and_their_folder_gives_nothing_away(make_task, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    task = load_task(make_task() / "tiny" / "task.yaml")
    folder = demo_folder(task, 0)
    assert sorted(path.name for path in folder.iterdir()) == ["evaluation", "input"]
    assert "tiny" not in str(folder.relative_to(datasets.cache_dir()))
    monkeypatch.setattr(datasets, "build_demo", None)  # a second build would fail
    assert demo_folder(task, 0) == folder


def test_failed_simulator_leaves_nothing(make_task) -> None:  # type: ignore[no-untyped-def]
    root = make_task()
    (root / "tiny" / "demo.py").write_text(
        "def make(destination, seed):\n    (destination / 'input').mkdir()\n    1 / 0\n"
    )
    with pytest.raises(ZeroDivisionError):
        demo_folder(load_task(root / "tiny" / "task.yaml"), 0)
    assert [path.suffix for path in (datasets.cache_dir() / "demo").iterdir()] == [".lock"]


def test_digest_follows_content_and_names_only(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        (folder / "sub").mkdir(parents=True)
        (folder / "sub" / "a.csv").write_text("X,Y\n")
    assert folder_digest(one) == folder_digest(two)
    (two / "sub" / "a.csv").write_text("X,Y\n1,2\n")
    assert folder_digest(one) != folder_digest(two)
    (one / "sub" / "a.csv").rename(one / "sub" / "b.csv")
    changed = folder_digest(one)
    assert changed != folder_digest(two)
    assert folder_digest(tmp_path / "none") == "absent"


def test_folder_dataset_takes_slug_or_dataset_id_and_some_tasks_only(tmp_path: Path) -> None:
    tasks = load_tasks(ROOT / "tasks")
    counting, hela = tasks["cell_counting"], tasks["hela_segmentation"]
    for name in (counting.slug, hela.dataset_id):
        for part in ("input", "evaluation"):
            (tmp_path / "data" / name / part).mkdir(parents=True)
    dataset = Dataset.parse(str(tmp_path / "data"))
    dataset.check(tasks)
    for task in (counting, hela):
        found = dataset.locate(task)
        assert found is not None
        assert not found.opaque
    assert dataset.locate(tasks["histology_nuclei"]) is None
    (tmp_path / "data" / "cell_counting" / "evaluation").rmdir()
    with pytest.raises(DatasetError, match="no evaluation/"):
        dataset.locate(counting)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="holds none of the tasks"):
        Dataset.parse(str(tmp_path / "empty")).check(tasks)
