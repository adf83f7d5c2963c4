"""Fetched data are what ``--dataset=full`` runs on, and once they are there the dataset must be named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from biabench_plugin.data.cache import TaskStore
from biabench_plugin.data.layout import DataLayout
from biabench_plugin.datasets import demo_folder
from biabench_plugin.taskspec import load_tasks

ROOT = Path(__file__).resolve().parents[3]
TASKS = load_tasks(ROOT / "tasks")
PAINT = TASKS["dna_paint"]


@pytest.fixture
def fetched(hub: Any, biabench: Callable[..., Any], demo_cache: Path, cache: Path, monkeypatch: Any) -> Path:
    """Return a cache that holds one task, fetched from a hub that offers its demo data as published ones."""
    monkeypatch.setenv("BIABENCH_CACHE", str(demo_cache))
    demo = demo_folder(PAINT, 0)
    monkeypatch.setenv("BIABENCH_CACHE", str(cache))
    folders = {
        name: {path.relative_to(demo / name).as_posix(): path.read_bytes() for path in (demo / name).rglob("*.*")}
        for name in ("input", "evaluation")
    }
    hub.offer(PAINT.dataset_id, **folders)
    done = biabench("fetch", "dna_paint")
    assert done.exit_code == 0, done.output
    return cache


def test_trials_run_on_fetched_data(fetched: Path, run_pytest: Any, tmp_path: Path) -> None:
    here = {"BIABENCH_CACHE": str(fetched)}
    done = run_pytest("--agent=replay", "--dataset=full", "--repeats=1", cwd=tmp_path, environment=here)
    assert done.code == 0, done.out
    ((name, values),) = done.properties().items()  # the task that was fetched, no other one
    assert "dna_paint" in name
    assert float(values["outcome"]) == 1.0
    record = json.loads(next(done.campaign.glob("runs/*/*/*/*/record.json")).read_text())
    assert (record["dataset"]["kind"], record["dataset"]["name"], record["dataset"]["revision"]) == (
        "full",
        "full",
        "v1.0",
    )

    unnamed = run_pytest("--agent=replay", cwd=tmp_path, environment=here, campaign=tmp_path / "other")
    assert unnamed.code == 4
    assert "say --dataset=demo or --dataset=full" in unnamed.out


def test_deep_verify_of_fetched_data(fetched: Path, biabench: Callable[..., Any], monkeypatch: Any) -> None:
    failed = biabench("verify", "--deep")
    assert failed.exit_code == 1
    assert "ok    dna_paint: as fetched" in failed.output
    assert "expected 1723 rows" in failed.output  # demo data are not the published ones

    assert PAINT.data is not None
    layout = DataLayout(
        input=tuple(group.for_demo() for group in PAINT.data.input),
        evaluation=tuple(group.for_demo() for group in PAINT.data.evaluation),
    )
    changed = {"dna_paint": PAINT.model_copy(update={"data": layout})}
    monkeypatch.setattr("biabench_plugin.cli.data.find_tasks", lambda extra: changed)
    done = biabench("verify", "--deep")
    assert done.exit_code == 0, done.output
    assert "dna_paint replay: outcome 1.0000" in done.output

    truth = TaskStore(PAINT).folder / "evaluation" / "DNAPAINT_LocalizationList.txt"
    truth.chmod(0o644)
    truth.write_text(truth.read_text().replace("frame", "Frame", 1))
    failed = biabench("verify", "--deep", "dna_paint")
    assert failed.exit_code == 1
    assert hashlib.sha256(truth.read_bytes()).hexdigest() in failed.output
    assert "replay" not in failed.output  # what is not what was fetched is not looked at any further
