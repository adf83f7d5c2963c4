"""Trials as Slurm jobs: each is an array task that runs the same pytest command for one item.

The waiting session and its jobs share nothing but the campaign folder. A job's session writes the pytest reports of its
item to ``CAMPAIGN/slurm/<token>/<index>.json``; the waiting session hands them to pytest as if the item had run here,
as pytest-xdist does with reports of its workers. What was submitted stands in ``CAMPAIGN/slurm/<token>/batch.json``,
written before the submission and completed after it, so that a session that starts later finds the jobs of one that
died.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biabench_plugin import execute, options
from biabench_plugin.records import MOST_FAULTS, TrialRecord, write_atomically, write_record
from biabench_plugin.workspace import TrialFolder

if TYPE_CHECKING:
    import pytest

    from agents.base import Agent
    from biabench_plugin.datasets import TaskData
    from biabench_plugin.execute import Host
    from biabench_plugin.session import TrialItem, TrialSession

FOLDER = "slurm"
POLL_SECONDS = float(os.environ.get("BIABENCH_SLURM_POLL", "10"))
_QUIET_SECONDS = 30.0  # a report may become visible later than the job's end, on a network file system
_SPARE_MINUTES = 40  # beyond the budget: both attempts' start and end, scoring, and Slurm's own signal before the limit
_ENDED = frozenset(
    ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
)
_GONE = "UNKNOWN"
_WAITING_ONLY = (
    *("engine", "slurm", "detach", "campaign", "repeats", "until_scored", "report_to"),
    *("judge", "judge_chunk", "judge_batch", "judge_max_cost", "judge_url"),  # after the last trial, here
)


class SlurmError(RuntimeError):
    """Slurm cannot be used as asked; the message has Slurm's own words."""


@dataclass
class Batch:
    """One submission: the trials of an array job, in the order of its indices."""

    token: str
    trials: list[str]
    experiments: list[str]
    job: str | None = None

    def path(self, campaign: Path) -> Path:
        return campaign / FOLDER / self.token / "batch.json"

    def write(self, campaign: Path) -> None:
        write_atomically(self.path(campaign), json.dumps(asdict(self), indent=1) + "\n")

    @property
    def name(self) -> str:
        """What squeue shows, and by which a submission is found again that was cut off before it was noted."""
        return f"biabench-{self.token}"

    def element(self, index: int) -> str:
        """Return the Slurm id of one trial's job."""
        return str(self.job) if len(self.trials) == 1 else f"{self.job}_{index}"


@dataclass
class Job:
    """A trial that was handed to Slurm."""

    item: TrialItem
    batch: Batch
    index: int
    tries: int = 1
    ended_at: float | None = None
    reports: Path = field(init=False)

    def __post_init__(self) -> None:
        self.reports = Path(self.batch.token) / f"{self.index}.json"

    @property
    def id(self) -> str:
        return self.batch.element(self.index)


def parse_parameters(text: str | None, budget_seconds: float) -> dict[str, Any]:
    """Turn ``partition=gpu,gres=gpu:1,time=04:30:00`` into submitit's parameters.

    Raises
    ------
    ValueError
        For words that are no ``name=value``, or a time limit that is shorter than the budget of a trial.
    """
    parameters: dict[str, Any] = {"stderr_to_stdout": True}
    extra: dict[str, str] = {}
    known = _known_parameters()
    for word in (text or "").split(","):
        name, separator, value = (part.strip() for part in word.partition("="))
        if not word.strip():
            continue
        if not separator or not name or not value:
            raise ValueError(f"--slurm: expected name=value, such as partition=gpu,gres=gpu:1; found {word!r}")
        name = name.replace("-", "_")
        if name == "time":
            parameters["time"] = _minutes(value)
        elif name in known:
            parameters[name] = int(value) if value.isdecimal() else value
        else:
            extra[name.replace("_", "-")] = value
    needed = math.ceil(budget_seconds / 60)
    if parameters.setdefault("time", 2 * needed + _SPARE_MINUTES) < needed:
        raise ValueError(
            f"--slurm: time={parameters['time']} min is shorter than the budget of a trial ({needed} min); "
            "give more, or a smaller --budget"
        )
    if extra:
        parameters["additional_parameters"] = extra
    return parameters


def _known_parameters() -> set[str]:
    import submitit

    known: set[str] = submitit.SlurmExecutor._valid_parameters()
    return known


def _minutes(text: str) -> int:
    """Read a time limit as Slurm does: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS; round up to minutes."""
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in parts) or len(parts) > 3 or (dash and not days.isdecimal()):
        raise ValueError(f"--slurm: time={text!r} is no time limit of Slurm; write 270, 04:30:00 or 1-00:00")
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, (minutes, seconds) = 0, (*numbers, 0)[:2]
    return (int(days or 0) * 24 + hours) * 60 + minutes + math.ceil(seconds / 60)


def check(config: pytest.Config, budget_seconds: float) -> dict[str, Any]:
    """Return the parameters of the submission, or raise ``ValueError`` where the command cannot work."""
    if getattr(config.option, "numprocesses", None) or getattr(config.option, "tx", None):
        raise ValueError("--engine=slurm and -n exclude each other; Slurm decides how many trials run at once")
    try:
        return parse_parameters(options.get(config, "slurm"), budget_seconds)
    except ImportError as error:
        raise ValueError("--engine=slurm needs submitit: pip install 'biabench[slurm]'") from error


# --- the waiting session -------------------------------------------------------------------------------------------


class SlurmEngine:
    """Submits what is not finished, waits, and reports each item as its job ends."""

    def __init__(self, session: TrialSession, parameters: dict[str, Any]) -> None:
        self._session = session
        self._campaign = session.folder
        self._parameters = parameters
        self._waiting: list[Job] = []

    def run(self, items: Sequence[TrialItem], pytest_session: pytest.Session, *, detach: bool) -> None:
        """Bring every item to its report; with ``detach`` only submit."""
        unfinished = []
        for item in items:
            if self._session.is_settled(item):
                self._report_here(item)
            else:
                unfinished.append(item)
        self._waiting, fresh = self._adopt(unfinished)
        self._submit(fresh)
        if detach:
            self._say(f"{len(self._waiting)} trial(s) in Slurm's hands; the same command without --detach reports them")
            return
        try:
            while self._waiting:
                self._turn()
                if pytest_session.shouldfail:
                    raise pytest_session.Failed(pytest_session.shouldfail)
                if pytest_session.shouldstop:
                    raise pytest_session.Interrupted(pytest_session.shouldstop)
        except BaseException:
            jobs = sorted({str(job.batch.job) for job in self._waiting})
            self._say(f"jobs go on; the same command picks them up. To end them: scancel {' '.join(jobs)}")
            raise

    def _say(self, text: str) -> None:
        reporter = self._session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(f"biabench: {text}")

    # -- submission -------------------------------------------------------------------------------------------------

    def _adopt(self, items: Iterable[TrialItem]) -> tuple[list[Job], list[TrialItem]]:
        """Split items into those that a job of an earlier session holds, and those that need one."""
        known: dict[tuple[str, str], Job] = {}
        wanted = {item.trial.id: item for item in items}
        for batch in self._batches():
            for index, (trial, experiment) in enumerate(zip(batch.trials, batch.experiments, strict=True)):
                if trial in wanted and not self._is_settled(batch, index):
                    known[trial, experiment] = Job(wanted[trial], batch, index)
        jobs, fresh = [], []
        for item in wanted.values():
            job = known.pop((item.trial.id, self._experiment(item)), None)
            jobs.append(job) if job is not None else fresh.append(item)
        states = _states(job.id for job in known.values())
        if other := [job.id for job in known.values() if states.get(job.id, _GONE) not in (*_ENDED, _GONE)]:
            raise SlurmError(
                "jobs of the same trials with other settings are still running; wait for them, or: scancel "
                + " ".join(other)
            )
        return jobs, fresh

    def _batches(self) -> Iterator[Batch]:
        found = []
        for path in (self._campaign / FOLDER).glob("*/batch.json"):
            batch = Batch(**json.loads(path.read_text(encoding="utf-8")))
            if batch.job is None:  # the session died between submitting and noting the number
                batch.job = _find(batch.name)
                if batch.job is None:
                    path.unlink()
                    continue
                batch.write(self._campaign)
            found.append(batch)
        yield from sorted(found, key=lambda batch: batch.token)

    def _is_settled(self, batch: Batch, index: int) -> bool:
        """Whether a session has reported this job already: its trial is finished, or goes on in a later job."""
        return (self._campaign / FOLDER / batch.token / f"{index}.reported").exists()

    def _experiment(self, item: TrialItem) -> str:
        return self._session.resume_keys(item.trial, self._session.data(item.trial.task))[0]

    def _submit(self, items: Sequence[TrialItem], *, tries: int = 1) -> None:
        if not items:
            return
        import submitit

        token = f"{time.time_ns():x}"
        batch = Batch(token, [item.trial.id for item in items], [self._experiment(item) for item in items])
        batch.write(self._campaign)
        jobs = [Job(item, batch, index, tries) for index, item in enumerate(items)]
        folder = batch.path(self._campaign).parent
        executor = submitit.SlurmExecutor(folder=folder)
        parameters = dict(self._parameters)
        if len(items) == 1:
            parameters.pop("array_parallelism", None)
        executor.update_parameters(job_name=batch.name, **parameters)
        commands = [
            submitit.helpers.CommandFunction(self._command(job), cwd=self._cwd(), verbose=False) for job in jobs
        ]
        try:
            with executor.batch():
                submitted = [executor.submit(command) for command in commands]
        except (OSError, subprocess.CalledProcessError, submitit.core.utils.FailedJobError) as error:
            batch.path(self._campaign).unlink()
            raise SlurmError(f"sbatch refused the jobs: {error}") from error
        batch.job = str(submitted[0].job_id).partition("_")[0]
        batch.write(self._campaign)
        self._waiting += jobs
        self._say(f"{len(jobs)} trial(s) submitted as job {batch.job}")

    def _cwd(self) -> Path:
        return self._session.config.invocation_params.dir

    def _command(self, job: Job) -> list[str]:
        """Return the pytest command of one item: the options of this session, and where its reports go."""
        trial = job.item.trial
        return [
            *("env", "-u", "PYTEST_ADDOPTS", sys.executable, "-m", "pytest", "-q", "-p", "biabench_plugin.plugin"),
            *("-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(self._campaign)),
            f"{trial.task.folder / 'task.yaml'}::{trial.name}",
            *_own_options(self._session.config),
            f"--campaign={self._campaign}",
            f"--repeats={max(trial.repeat, self._session.settings.repeats)}",
            f"--report-to={self._campaign / FOLDER / job.reports}",
        ]

    # -- waiting ----------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Look once at every job."""
        for job in [job for job in self._waiting if (self._campaign / FOLDER / job.reports).is_file()]:
            self._waiting.remove(job)
            self._hand_over(job)
        states = _states(job.id for job in self._waiting)
        for job in list(self._waiting):
            state = states.get(job.id, _GONE)
            if state not in (*_ENDED, _GONE):
                job.ended_at = None  # it may have been requeued
                continue
            job.ended_at = job.ended_at or time.monotonic()
            quiet = _QUIET_SECONDS if state in ("COMPLETED", _GONE) else POLL_SECONDS
            if time.monotonic() - job.ended_at >= quiet and not (self._campaign / FOLDER / job.reports).is_file():
                self._waiting.remove(job)
                self._lost(job, state)
        self._session.note_running({job.item.nodeid for job in self._waiting if states.get(job.id) == "RUNNING"})
        if self._waiting:
            time.sleep(POLL_SECONDS)

    def _hand_over(self, job: Job) -> None:
        """Give the reports that the job's session wrote to pytest."""
        config, item = self._session.config, job.item
        reports = json.loads((self._campaign / FOLDER / job.reports).read_text(encoding="utf-8"))
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for data in reports:
            report = config.hook.pytest_report_from_serializable(config=config, data=data)
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        self._settle(job)

    def _settle(self, job: Job) -> None:
        (self._campaign / FOLDER / job.batch.token / f"{job.index}.reported").touch()

    def _report_here(self, item: TrialItem) -> None:
        """Let an item run in this process, where it finds its stored record."""
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)

    def _lost(self, job: Job, state: str) -> None:
        """Record the fault of a job that ended without a report; submit the trial once more, or report the fault."""
        log = _last_words(self._campaign / FOLDER / job.batch.token, job.id)
        reason = f"Slurm job {job.id} ended as {state} without a result{log}"
        session, trial = self._session, job.item.trial
        folder = TrialFolder(self._campaign, trial)
        agent, data = session.agents[trial.configuration.agent], session.data(trial.task)
        with folder.locked(), folder.leased():
            close_interrupted(folder, agent, session.host, data, self._experiment(job.item), reason, at_least_one=True)
        self._settle(job)
        if session.is_settled(job.item) or job.tries >= MOST_FAULTS:
            session.lost[trial.id] = reason
            self._report_here(job.item)
        else:
            self._say(f"{trial.id}: {reason}; submitted once more")
            self._submit([job.item], tries=job.tries + 1)


def close_interrupted(
    folder: TrialFolder,
    agent: Agent,
    host: Host,
    data: TaskData,
    key: str,
    reason: str,
    *,
    at_least_one: bool = False,
) -> list[TrialRecord]:
    """Write the fault down for attempts that were cut off, under the trial's lock; a job may not have made one."""
    numbers = [int(path.name.removeprefix("attempt-")) for path in folder.interrupted()]
    if not numbers and at_least_one:
        attempt = folder.new_attempt()
        attempt.discard(keep=True)
        numbers = [attempt.number]
    records = []
    for number in numbers:
        record = execute.fault(folder, agent, host, data, None, reason, key, number)
        write_record(record, folder.path / f"attempt-{number}")
        records.append(record)
    return records


def requeued() -> str | None:
    """Say that this process is a job which Slurm started again, or return ``None``."""
    count = os.environ.get("SLURM_RESTART_COUNT", "0")
    if "SLURM_JOB_ID" not in os.environ or count == "0":
        return None
    return f"Slurm job {os.environ['SLURM_JOB_ID']} was preempted or its node failed; it was requeued ({count})"


def _own_options(config: pytest.Config) -> list[str]:
    """Return this session's options of ours as words for another command line."""
    words = []
    for name, value in sorted(vars(config.option).items()):
        short = name.removeprefix(options.PREFIX)
        if short == name or value in (None, False) or short in _WAITING_ONLY:
            continue
        option = "--" + short.replace("_", "-")
        values = value if isinstance(value, list) else [value]
        words += [option if one is True else f"{option}={one}" for one in values]
    return words


def _slurm(*command: str) -> str | None:
    """Return what a command of Slurm prints, nothing where it does not answer; ``None``: it knows no such job."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except FileNotFoundError as error:
        raise SlurmError(
            f"{command[0]} is not installed here; --engine=slurm runs on a host that submits jobs"
        ) from error
    except subprocess.TimeoutExpired:
        return ""
    if done.returncode == 0:
        return done.stdout
    return None if "Invalid job id" in done.stderr else ""


def _find(name: str) -> str | None:
    """Return the number of the job of that name, if there is one."""
    for command in (
        ("squeue", "-h", "-t", "all", "-n", name, "-o", "%F"),
        ("sacct", "-n", "-X", "-P", f"--name={name}", "-o", "JobID"),
    ):
        if said := (_slurm(*command) or "").split():
            return said[0].partition("_")[0]
    return None


def _states(ids: Iterable[str]) -> dict[str, str]:
    """Return the state of each job that Slurm knows: squeue's, which forgets after minutes, else accounting's."""
    wanted = set(ids)
    numbers = ",".join(sorted({job.partition("_")[0] for job in wanted}))
    if not wanted:
        return {}
    states: dict[str, str] = {}
    for number in numbers.split(","):
        said = _slurm("squeue", "-h", "-r", "-t", "all", "-j", number, "-o", "%i %T")
        if said is None:  # no such job any more
            said = _slurm("sacct", "-n", "-X", "-j", number, "-o", "JobID%40,State%40") or ""
        elif not said.strip():  # Slurm did not answer: nothing is known, so nothing has ended
            states |= {job: "PENDING" for job in wanted if job.partition("_")[0] == number}
        states |= {line.split()[0]: line.split()[1].rstrip("+") for line in said.splitlines() if len(line.split()) > 1}
    return {job: state for job, state in states.items() if job in wanted}


def _last_words(folder: Path, job: str) -> str:
    """Return the end of a job's log, for the message of its fault."""
    for path in sorted(folder.glob(f"{job}_*log.out")):
        lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
        if lines:
            return f" (its log ends: {' / '.join(lines[-3:])[:500]})"
    return ""


# --- the session in a job ------------------------------------------------------------------------------------------


class ReportWriter:
    """Plugin of the session that runs inside a job: writes the reports of its item for the waiting session."""

    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config = config
        self._path = path
        self._reports: list[Any] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._reports and self._reports[-1]["when"] == "teardown":
            write_atomically(self._path, json.dumps(self._reports))
            session.exitstatus = 0  # the job did its work, whatever the agent did
