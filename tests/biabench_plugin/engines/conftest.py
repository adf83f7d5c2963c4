"""A real Slurm of one node, as root, in a temporary folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_CONF = """
ClusterName=test
SlurmctldHost=localhost
SlurmctldPort={port}
SlurmdPort={node_port}
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
JobRequeue=1
MinJobAge=600
KillWait=3
SchedulerParameters=sched_interval=1,batch_sched_delay=0,requeue_setup_env_fail
PriorityType=priority/basic
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
MpiDefault=none
NodeName=localhost NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=debug Nodes=localhost Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Slurm:
    """A running controller and node; commands find them by ``environment``."""

    environment: dict[str, str]

    def __call__(self, *command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | self.environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def until(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self("squeue", "-r", "-t", "all", "-o", "%i %T %r")
            time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    for program in ("slurmctld", "slurmd", "munged", "sbatch"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: apt-get install slurm-wlm munge")
    if os.geteuid() != 0:
        pytest.skip("the test's own Slurm needs root")
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    conf = folder / "slurm.conf"
    conf.write_text(_CONF.format(folder=folder, port=_free_port(), node_port=_free_port()))
    environment = {"SLURM_CONF": str(conf)}
    daemons = []
    if subprocess.run(["munge", "-n"], capture_output=True).returncode != 0:
        Path("/run/munge").mkdir(exist_ok=True)
        shutil.chown("/run/munge", "munge", "munge")
        daemons.append(subprocess.Popen(["runuser", "-u", "munge", "--", "munged", "--foreground", "--force"]))
    running = Slurm(environment)
    try:
        running.until(lambda: subprocess.run(["munge", "-n"], capture_output=True).returncode == 0, 20)
        for command in (["slurmctld", "-D", "-c"], ["slurmd", "-D", "-N", "localhost"]):
            daemons.append(
                subprocess.Popen(
                    command,
                    env=os.environ | environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
        running.until(
            lambda: (
                "idle"
                in subprocess.run(
                    ["sinfo", "-h", "-o", "%t"], capture_output=True, text=True, env=os.environ | environment
                ).stdout
            ),
            60,
        )
        yield running
    finally:
        subprocess.run(["scancel", "-u", "root"], env=os.environ | environment, capture_output=True)
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in reversed(daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
