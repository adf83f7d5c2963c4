"""What containment and supervision add to a run that does nothing. It prints; the clock decides nothing.

pytest tests/benchmarks/test_trial_overhead.py -s
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.base import Launch
from biabench_plugin import isolation, supervisor
from biabench_plugin.isolation import Containment, IsolationUnavailable, containment_for, opaque_input
from biabench_plugin.probe import probe, scratch_rooms

ROUNDS = 20


def measure(name: str, act: Callable[[], object], rounds: int = ROUNDS) -> float:
    act()
    seconds = []
    for _ in range(rounds):
        begun = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - begun)
    median = statistics.median(seconds)
    print(f"{name:58} {1000 * min(seconds):8.1f} {1000 * median:8.1f} ms (best, median of {rounds})")
    return median


@pytest.fixture
def boxed() -> Containment:
    try:
        return containment_for("required")
    except IsolationUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def run_nothing(tmp_path: Path) -> Callable[[Containment], None]:
    count = iter(range(10**6))

    def run(containment: Containment) -> None:
        folder = tmp_path / f"{next(count):016x}"
        folder.mkdir()
        result = supervisor.run(
            Launch(("true",)),
            rooms=scratch_rooms(folder),
            containment=containment,
            limits=supervisor.Limits(60.0),
        )
        assert result.exit_code == 0

    return run


def test_run_of_a_program_that_does_nothing(
    boxed: Containment, run_nothing: Callable[[Containment], None], tmp_path: Path
) -> None:
    print()
    rooms_folder = tmp_path / "plan"
    rooms_folder.mkdir()
    rooms = scratch_rooms(rooms_folder)
    measure("the program alone", lambda: subprocess.run(["true"], check=True))
    measure("this interpreter alone", lambda: subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True))
    measure("working out the view", lambda: isolation.plan(Launch(("true",)), rooms, boxed))
    box = isolation.plan(Launch(("true",)), rooms, boxed)
    assert box.options is not None
    options = box.options

    def bare() -> None:
        with isolation._arguments(options) as descriptor:
            subprocess.run(
                [str(box.program), "--args", str(descriptor), "--", "true"], pass_fds=(descriptor,), check=True
            )

    measure("bubblewrap with all options, alone", bare)
    measure("supervised run, containment off", lambda: run_nothing(containment_for("off")))
    measure("supervised run, containment on", lambda: run_nothing(boxed))
    measure("probe, asked before", lambda: probe(boxed, cache_dir=tmp_path / "cache"))


def test_input_of_many_files(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(1000):
        (source / f"{number}.tif").write_bytes(b"x" * 10_000)
    print()
    for contained in (True, False):

        def view(contained: bool = contained) -> None:
            with opaque_input(source, tmp_path / "work", contained) as made:
                assert not made.changed()

        measure(f"input of 1000 files, made and checked, contained={contained}", view, rounds=5)


def test_streams_of_a_chatty_agent(boxed: Containment, tmp_path: Path) -> None:
    """256 MiB through a pipe into a bounded file: time of this process, and its memory."""
    folder = tmp_path / "0123456789abcdef"
    folder.mkdir()
    before = resource.getrusage(resource.RUSAGE_SELF)
    begun = time.perf_counter()
    result = supervisor.run(
        Launch(("sh", "-c", "head -c 268435456 /dev/zero")),
        rooms=scratch_rooms(folder),
        containment=boxed,
        limits=supervisor.Limits(120.0, log_bytes=1 << 24),
    )
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert result.log_truncated
    print(
        f"\n256 MiB of output: {time.perf_counter() - begun:.2f} s, of which here "
        f"{after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.2f} s CPU; "
        f"peak memory grew by {(after.ru_maxrss - before.ru_maxrss) / 1024:.0f} MiB"
    )
