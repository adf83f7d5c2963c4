"""Trials as Slurm jobs, on a real Slurm: the waiting session dies, jobs are cancelled and requeued, nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from biabench_plugin.engines.slurm import _minutes, parse_parameters

pytest.importorskip("submitit")

ROOT = Path(__file__).resolve().parents[3]

COUNT = """
import os, pathlib, time
import numpy as np, tifffile
from scipy import ndimage
while pathlib.Path({gate!r}).exists():
    time.sleep(0.1)
source, target = (pathlib.Path(os.environ["BIABENCH_" + name]) for name in ("INPUT", "OUTPUT"))
for path in sorted(source.glob("*.tiff")):
    image = tifffile.imread(path)
    labels, n = ndimage.label(image > 100)
    rows = "".join(f"{{x}},{{y}}\\n" for y, x in ndimage.center_of_mass(image, labels, range(1, n + 1)))
    (target / (path.stem + ".csv")).write_text("X,Y\\n" + rows)
"""


class Campaign:
    """The same command again and again, on one campaign."""

    def __init__(self, folder: Path, tasks: Path, environment: dict[str, str], repeats: int) -> None:
        self.folder = folder / "campaign"
        self.gate = folder / "gate"
        self._cwd = folder
        (folder / "agent.py").write_text(COUNT.format(gate=str(self.gate)))
        self._environment = os.environ | environment | {"PYTHONPATH": str(ROOT), "BIABENCH_SLURM_POLL": "0.5"}
        self._environment["BIABENCH_CACHE"] = str(folder / "cache")
        self.words = [
            *(sys.executable, "-m", "pytest", "-p", "biabench_plugin.plugin", "-p", "no:cacheprovider"),
            *("--agent=command", f"--agent-command={sys.executable} {folder / 'agent.py'}", f"--tasks={tasks}"),
            *("-k", "tiny", f"--repeats={repeats}", "--isolation=off", f"--campaign={self.folder}"),
            *("--engine=slurm", "--slurm=partition=debug,cpus_per_task=1,mem=0,array_parallelism=4"),
        ]

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.words,
            cwd=self._cwd,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *more: str) -> tuple[int, str]:
        done = subprocess.run(
            [*self.words, *more],
            cwd=self._cwd,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=400,
        )
        return done.returncode, done.stdout + done.stderr

    def attempts(self) -> dict[str, list[str | None]]:
        """Return what ended each attempt of each repeat: ``None`` for a valid one."""
        found: dict[str, list[str | None]] = {}
        for path in sorted(self.folder.rglob("record.json")):
            record = json.loads(path.read_text())
            found.setdefault(f"r{record['repeat']}", []).append(record["infrastructure"])
        return found

    def held(self) -> list[Path]:
        return sorted(self.folder.glob("work/*/output"))

    def batches(self) -> list[dict[str, object]]:
        return [json.loads(path.read_text()) for path in sorted(self.folder.glob("slurm/*/batch.json"))]


def test_jobs_outlive_the_session_and_faults_are_retried_once(
    tmp_path: Path, slurm: Callable[..., str], make_task: Callable[..., Path]
) -> None:
    campaign = Campaign(tmp_path, make_task(), slurm.environment, repeats=12)  # type: ignore[attr-defined]
    campaign.gate.touch()
    first = campaign.start()
    try:
        slurm.until(lambda: len(campaign.held()) == 2)  # type: ignore[attr-defined]
    finally:
        first.send_signal(signal.SIGKILL)
        output, _ = first.communicate()
    (batch,) = campaign.batches()
    assert len(batch["trials"]) == 12, output  # type: ignore[arg-type]
    running = slurm("squeue", "-h", "-r", "-t", "running", "-o", "%i").split()
    assert len(running) == 2
    cancelled, requeued = running
    slurm("scontrol", "requeue", requeued)
    slurm("scancel", cancelled)
    campaign.gate.unlink()
    slurm.until(lambda: "PENDING" in slurm("squeue", "-h", "-t", "all", "-j", requeued, "-o", "%T"))  # type: ignore[attr-defined]
    slurm("scontrol", "update", f"jobid={requeued}", "StartTime=now")
    code, output = campaign.run()
    assert code == 0, output
    assert "12 passed" in output
    cases = list(ElementTree.parse(campaign.folder / "junit.xml").getroot().iter("testcase"))
    assert len(cases) == 12
    for case in cases:
        values = {str(node.get("name")): node.get("value") for node in case.iter("property")}
        assert float(str(values["biabench.outcome"])) == 1.0
    attempts = campaign.attempts()
    assert len(attempts) == 12
    faults = sorted(str(ended[0]) for ended in attempts.values() if ended[0] is not None)
    assert [found.count("CANCELLED") or found.count("requeued") for found in faults] == [1, 1], faults
    assert sorted(map(len, attempts.values())) == [1] * 10 + [2, 2]
    assert all(ended[-1] is None for ended in attempts.values())
    assert len(campaign.batches()) == 2  # what was submitted, and the cancelled one once more
    again, output = campaign.run()  # everything is stored: nothing is submitted
    assert (again, len(campaign.batches())) == (0, 2), output
    assert "12 passed" in output


@pytest.mark.full
def test_detached_jobs_are_reported_by_the_same_command_and_dead_ones_listed(
    tmp_path: Path, slurm: Callable[..., str], make_task: Callable[..., Path]
) -> None:
    campaign = Campaign(tmp_path, make_task(), slurm.environment, repeats=1)  # type: ignore[attr-defined]
    campaign.gate.touch()
    code, output = campaign.run("--detach")
    assert code == 0, output
    assert "1 trial(s) in Slurm's hands" in output
    assert not (campaign.folder / "junit.xml").exists()
    waiting = campaign.start()
    for number in (1, 2):  # the job dies twice: retried once, then listed
        slurm.until(lambda number=number: len(campaign.batches()) == number and campaign.held())  # type: ignore[attr-defined]
        slurm("scancel", str(campaign.batches()[-1]["job"]))
        slurm.until(lambda number=number: len(campaign.attempts().get("r1", [])) == number)  # type: ignore[attr-defined]
    output, _ = waiting.communicate(timeout=120)
    assert waiting.returncode == 1, output
    assert "1 error" in output
    assert "CANCELLED without a result" in output
    assert "Traceback" not in output
    campaign.gate.unlink()
    code, output = campaign.run("--rerun=failed")
    assert code == 0, output
    assert [ended is None for ended in campaign.attempts()["r1"]] == [False, False, True]


def test_parameters_of_sbatch() -> None:
    found = parse_parameters("partition=gpu,gres=gpu:1,time=1-00:00,array_parallelism=8,licenses=x", 4 * 3600.0)
    assert found["partition"] == "gpu"
    assert found["gres"] == "gpu:1"
    assert found["time"] == 24 * 60
    assert found["array_parallelism"] == 8
    assert found["additional_parameters"] == {"licenses": "x"}
    assert parse_parameters(None, 3600.0)["time"] > 120  # room for the retry of a fault
    for text, message in (
        ("time=30", "shorter than the budget"),
        ("gpu", "name=value"),
        ("time=soon", "no time limit"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_parameters(text, 3600.0)


@pytest.mark.parametrize(
    ("text", "minutes"), [("90", 90), ("10:30", 11), ("04:30:00", 270), ("1-0", 1440), ("1-01:30", 1530)]
)
def test_time_limits_are_read_as_slurm_does(text: str, minutes: int) -> None:
    assert _minutes(text) == minutes


def test_engine_options_that_contradict(tmp_path: Path, run_pytest: Callable[..., object]) -> None:
    for words, message in (
        (["--detach"], "--detach: needs --engine=slurm"),
        (["--slurm=partition=x"], "--slurm: needs --engine=slurm"),
        (["--engine=slurm", "-n", "2"], "exclude each other"),
        (["--engine=slurm", "--slurm=time=10"], "shorter than the budget"),
    ):
        done = run_pytest("--agent=empty", *words, cwd=tmp_path)
        assert done.code == 4, done.out  # type: ignore[attr-defined]
        assert message in done.out  # type: ignore[attr-defined]
