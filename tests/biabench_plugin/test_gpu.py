"""GPUs, told by a stand-in for nvidia-smi: which there are, one per trial, in the record and in the instruction."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from biabench_plugin import gpu

Run = Callable[..., Any]
CARDS = "0, GPU-aaaa-1, NVIDIA A10, 23028 MiB, 550.54\n1, GPU-bbbb-2, NVIDIA A10, 23028 MiB, 550.54\n"
LIST = """GPU 0: NVIDIA A10 (UUID: GPU-aaaa-1)
GPU 1: NVIDIA A10 (UUID: GPU-bbbb-2)
"""
SLICED = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa-1)
  MIG 3g.20gb     Device  0: (UUID: MIG-s0)
  MIG 3g.20gb     Device  1: (UUID: MIG-s1)
GPU 1: NVIDIA A10 (UUID: GPU-bbbb-2)
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Path]]:
    """Put a program called nvidia-smi first on PATH; return a function that says what it answers."""
    folder = tmp_path / "driver"
    folder.mkdir()
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\ncase "$1" in -L) cat {folder}/list;; *) cat {folder}/cards;; esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def answer(cards: str = CARDS, listed: str = LIST) -> Path:
        (folder / "cards").write_text(cards)
        (folder / "list").write_text(listed)
        gpu.installed.cache_clear()
        return folder

    yield answer
    gpu.installed.cache_clear()


def uuids() -> list[str]:
    gpu.installed.cache_clear()
    return [unit.uuid for unit in gpu.installed()]


def test_a_host_without_a_driver_has_no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert uuids() == []
    with gpu.leased() as unit:
        assert unit is None
    gpu.installed.cache_clear()


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["GPU-aaaa-1", "GPU-bbbb-2"]),
        ("1", ["GPU-bbbb-2"]),
        ("1,0", ["GPU-bbbb-2", "GPU-aaaa-1"]),
        ("GPU-bb", ["GPU-bbbb-2"]),
        ("", []),
        ("-1", []),
        ("0,7,1", ["GPU-aaaa-1"]),  # CUDA stops at the first name that fits nothing
        ("NoDevFiles", []),
    ],
)
def test_cuda_visible_devices_is_respected(
    driver: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: list[str]
) -> None:
    driver()
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert uuids() == expected


def test_slices_are_units_of_their_own(driver: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    driver(CARDS, SLICED)
    assert uuids() == ["MIG-s0", "MIG-s1", "GPU-bbbb-2"]
    assert gpu.installed()[0].description == "NVIDIA A10, 23028 MiB, 550.54, MIG 3g.20gb"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-s1")
    assert uuids() == ["MIG-s1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert uuids() == ["MIG-s0", "MIG-s1"]


def test_a_gpu_that_is_gone_is_noticed(driver: Callable[..., Path]) -> None:
    driver()
    first, second = gpu.installed()
    driver(CARDS.splitlines(keepends=True)[1])
    assert not gpu.still_there(first)
    assert gpu.still_there(second)


def _hold(ready: Any, folder: str) -> None:
    import tempfile

    tempfile.tempdir = folder
    with gpu.leased(poll_seconds=0.05) as unit:
        ready.put((os.getpid(), unit.uuid if unit else None))
        time.sleep(600)


def test_a_dead_worker_frees_its_gpu(driver: Callable[..., Path], tmp_path: Path) -> None:
    driver()
    context = multiprocessing.get_context("spawn")
    ready = context.Queue()
    workers = [context.Process(target=_hold, args=(ready, str(tmp_path))) for _ in range(3)]
    for worker in workers:
        worker.start()
    try:
        held = dict([ready.get(timeout=60), ready.get(timeout=60)])
        assert set(held.values()) == {"GPU-aaaa-1", "GPU-bbbb-2"}
        time.sleep(0.5)
        assert ready.empty()  # the third waits
        os.kill(next(iter(held)), signal.SIGKILL)
        _, unit = ready.get(timeout=60)
        assert unit == next(iter(held.values()))
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


AGENT = """
import os, pathlib, sys, time
target = pathlib.Path(os.environ["BIABENCH_OUTPUT"])
(target / "0.csv").write_text("X,Y\\n10,12\\n30,40\\n50,20\\n")
(target / "1.csv").write_text("X,Y\\n")
(target / "gpu.txt").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
time.sleep(0.5)
"""


def _environment(driver_folder: Path, tmp_path: Path) -> dict[str, str]:
    return {"PATH": f"{driver_folder}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}


def test_one_gpu_per_trial_in_record_and_instruction(
    tmp_path: Path, run_pytest: Run, make_task: Callable[..., Path], driver: Callable[..., Path]
) -> None:
    folder = driver(CARDS.splitlines(keepends=True)[0], LIST.splitlines(keepends=True)[0])
    (tmp_path / "agent.py").write_text(AGENT)
    words = ["--agent=command", f"--agent-command={sys.executable} {tmp_path / 'agent.py'}", "--isolation=off"]
    words += [f"--tasks={make_task()}", "-k", "tiny", "--repeats=2", "-n", "2"]
    done = run_pytest(*words, cwd=tmp_path, environment=_environment(folder, tmp_path))
    assert "2 passed" in done.out, done.out
    times = []
    for repeat in (1, 2):
        attempt = done.campaign / f"runs/tiny/command+brief/r{repeat}/attempt-1"
        record = json.loads((attempt / "record.json").read_text())
        assert record["provenance"]["gpu"] == ["NVIDIA A10, 23028 MiB, 550.54"]
        assert (attempt / "submission" / "gpu.txt").read_text() == "GPU-aaaa-1"
        assert "CUDA-capable GPU is available" in (attempt / "instruction.md").read_text()
        times.append((record["started"], record["wall_seconds"]))
    begun = sorted(times)
    from datetime import datetime

    gap = (datetime.fromisoformat(begun[1][0]) - datetime.fromisoformat(begun[0][0])).total_seconds()
    assert gap >= begun[0][1]  # two workers, one GPU: one after the other


def test_a_gpu_gone_during_the_run_is_a_fault_that_is_retried(
    tmp_path: Path, run_pytest: Run, make_task: Callable[..., Path], driver: Callable[..., Path]
) -> None:
    folder = driver()
    (tmp_path / "agent.py").write_text(
        f"import pathlib\npathlib.Path({str(folder / 'cards')!r}).write_text('')\nraise SystemExit(1)\n"
    )
    words = ["--agent=command", f"--agent-command={sys.executable} {tmp_path / 'agent.py'}", "--isolation=off"]
    words += [f"--tasks={make_task()}", "-k", "tiny"]
    done = run_pytest(*words, cwd=tmp_path, environment=_environment(folder, tmp_path))
    assert "1 error" in done.out, done.out
    assert "GPU gone during the run: GPU-aaaa-1" in done.out
    assert len(list(done.campaign.rglob("record.json"))) == 2


def test_waiting_for_a_gpu_does_not_use_up_the_backstop(driver: Callable[..., Path], tmp_path: Path) -> None:
    """The item's timeout is cancelled before the wait and set anew after it."""
    from biabench_plugin import trials

    driver()
    order: list[str] = []

    class Hooks:
        def pytest_timeout_cancel_timer(self, item: Any) -> None:
            order.append("cancel")

        def pytest_timeout_set_timer(self, item: Any, settings: Any) -> None:
            order.append(settings)

    class Item:
        ihook = Hooks()
        stash = pytest.Stash()

    item = Item()
    item.stash[trials.BACKSTOP] = "set as before"
    with trials._gpu(item) as unit:  # type: ignore[arg-type]
        assert unit is not None
        order.append("run")
    assert order == ["cancel", "set as before", "run"]
