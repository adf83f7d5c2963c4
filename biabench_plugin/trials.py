"""The test function of a trial and its fixtures: data, GPU, agent, run folder, record."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agents.base import Agent
from biabench_plugin import execute, gpu, options
from biabench_plugin.datasets import DatasetError, TaskData
from biabench_plugin.doctor import cannot_run
from biabench_plugin.endstate import EndState
from biabench_plugin.isolation import ContainmentError, InputError
from biabench_plugin.model_access import missing_key
from biabench_plugin.records import MOST_FAULTS, TrialRecord, current_attempt, junit_properties, record_path
from biabench_plugin.workspace import BusyError, TrialFolder
from evaluators import TruthError, evaluator_version
from evaluators.outcome.parameters import read_parameters

if TYPE_CHECKING:
    from biabench_plugin.session import TrialItem, TrialSession


BACKSTOP = pytest.StashKey[Any]()  # the settings of an item's timeout, as pytest-timeout made them
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # no trial could be recorded, so none is started


class InfrastructureFault(pytest.fail.Exception):  # type: ignore[misc,name-defined]
    """The trial says nothing about the agent; pytest shows it as an error, in one sentence, not as a failure."""

    __module__ = "builtins"  # as pytest's own outcomes, so that it is shown without a module's name

    def __init__(self, message: str) -> None:
        super().__init__(message, pytrace=False)


def trial_delivers(biabench_record: TrialRecord, biabench_folder: TrialFolder, pytestconfig: pytest.Config) -> None:
    """The trial passes when the agent delivered, and fails with the reason when it did not."""
    record = biabench_record
    run_folder = biabench_folder.campaign / record.run_folder
    if record.status is EndState.REFUSED:
        pytest.skip(f"refused by the provider: {record.status_reason}")
    if record.status is not EndState.DELIVERED:
        pytest.fail(f"{record.status.value}: {record.status_reason}; {run_folder}", pytrace=False)
    least = options.get(pytestconfig, "min_outcome")
    if least is not None and (record.score is None or record.score.outcome < least):
        found = "none" if record.score is None else f"{record.score.outcome:.4f}"
        pytest.fail(f"outcome {found} is below --min-outcome={least}; {run_folder}", pytrace=False)


@pytest.fixture
def biabench_session(pytestconfig: pytest.Config) -> TrialSession:
    """The session's configurations, dataset and settings."""
    session: TrialSession = pytestconfig.pluginmanager.get_plugin("biabench.session")  # type: ignore[assignment]
    return session


@pytest.fixture
def biabench_agent(request: pytest.FixtureRequest, biabench_session: TrialSession) -> Agent:
    """The trial's agent."""
    item: TrialItem = request.node
    if reason := biabench_session.excluded(item.trial):
        pytest.skip(f"excluded by the operator: {reason}")
    return biabench_session.agents[item.trial.configuration.agent]


@pytest.fixture
def biabench_data(request: pytest.FixtureRequest, biabench_session: TrialSession) -> TaskData:
    """Input and truth of the trial's task."""
    item: TrialItem = request.node
    try:
        return biabench_session.data(item.trial.task)
    except (DatasetError, OSError) as error:
        raise InfrastructureFault(f"{item.trial.task.slug}: no data: {error}") from None


@pytest.fixture
def input_dir(biabench_data: TaskData) -> Path:
    """The task's images, as the host sees them."""
    return biabench_data.input


@pytest.fixture
def biabench_folder(request: pytest.FixtureRequest, biabench_session: TrialSession) -> Iterator[TrialFolder]:
    """The trial's folder in the campaign, held for this process."""
    item: TrialItem = request.node
    folder = TrialFolder(biabench_session.folder, item.trial)
    with ExitStack() as held:
        try:
            held.enter_context(folder.locked())
        except BusyError as error:
            raise InfrastructureFault(str(error)) from None
        except OSError as error:
            raise _disk_fault(item, error) from None
        yield folder


@pytest.fixture
def biabench_record(
    request: pytest.FixtureRequest,
    biabench_agent: Agent,
    biabench_data: TaskData,
    biabench_folder: TrialFolder,
    biabench_session: TrialSession,
) -> TrialRecord:
    """The record of the attempt that counts: a stored one, or that of the run which happens here."""
    item: TrialItem = request.node
    task, campaign = item.trial.task, biabench_folder.campaign
    rerun = options.get(biabench_session.config, "rerun")
    try:
        execute.check_truth(task, biabench_data)
        found, reused = _reuse_or_run(item, biabench_folder, biabench_agent, biabench_session, biabench_data, rerun)
        biabench_folder.use(found.resume_key)
    except TruthError as error:
        raise InfrastructureFault(f"truth of {task.slug} cannot be used: {error}") from None
    except OSError as error:
        raise _disk_fault(item, error) from None
    except (ValueError, ContainmentError, InputError, BusyError) as error:
        raise InfrastructureFault(f"{item.trial.id}: {error}") from None
    known = junit_properties(found, record_path(campaign, found))
    item.user_properties[:] = [*(pair for pair in item.user_properties if pair[0] not in dict(known)), *known]
    if reused:
        item.user_properties.append(("biabench.reused", "true"))
    if not found.valid:
        raise InfrastructureFault(f"{found.infrastructure}; {campaign / found.run_folder}")
    return found


def _disk_fault(item: TrialItem, error: OSError) -> InfrastructureFault:
    """Stop the session where nothing can be written any more: no further trial could be recorded."""
    if error.errno in _UNWRITABLE:
        item.session.shouldstop = f"nothing can be recorded: {error}; once that is mended, the same command continues"
    return InfrastructureFault(f"{item.trial.id}: {error}")


def stored(
    folder: TrialFolder, session: TrialSession, data: TaskData, rerun: str | None
) -> tuple[list[TrialRecord], TrialRecord | None]:
    """Return the finished attempts of this experiment, and the one that counts where no further one is due."""
    keys = session.resume_keys(folder.trial, data)
    same = [record for record in folder.records() if record.resume_key in keys]
    counting = current_attempt(same) if same else None
    if counting is None or rerun == "all" or (rerun == "failed" and counting.status is not EndState.DELIVERED):
        return same, None
    faults = sum(not record.valid for record in same)
    return same, counting if counting.valid or faults >= MOST_FAULTS else None


def _reuse_or_run(
    item: TrialItem, folder: TrialFolder, agent: Agent, session: TrialSession, data: TaskData, rerun: str | None
) -> tuple[TrialRecord, bool]:
    same, counting = stored(folder, session, data, rerun)
    if counting is not None:
        return _up_to_date(counting, session, folder, data), True
    if session.waits:
        raise InfrastructureFault(session.lost.get(item.trial.id, "no Slurm job brought this trial to its end"))
    if (
        agent.reads_truth
        and folder.trial.task.truth == "none"
        and not (data.truth.is_dir() and any(data.truth.iterdir()))
    ):
        pytest.skip(f"{agent.name} needs reference data, and this dataset has none for {folder.trial.task.slug}")
    if reason := agent.unavailable() or missing_key(agent, folder.trial.configuration):
        pytest.skip(cannot_run(agent, reason))
    with folder.leased():
        same, counting = stored(folder, session, data, rerun)  # another host may have finished it meanwhile
        if counting is not None:
            return counting, True
        return _run(item, folder, agent, session, data, same, fresh=rerun is not None), False


def _run(
    item: TrialItem,
    folder: TrialFolder,
    agent: Agent,
    session: TrialSession,
    data: TaskData,
    same: list[TrialRecord],
    *,
    fresh: bool,
) -> TrialRecord:
    """Run attempts until one says something about the agent; an infrastructure fault is retried once."""
    key = session.resume_key(folder.trial, data)
    attempts = [*same, *session.interrupted(folder, agent, data, key)]
    tries = MOST_FAULTS if fresh else max(0, MOST_FAULTS - sum(not record.valid for record in attempts))
    for _ in range(tries):
        with _gpu(item) as device:
            record, _path = execute.run_attempt(folder, agent, session.host, data, device, key)
        attempts = [*attempts, record]
        if record.valid:
            break
    return current_attempt(attempts)


@contextmanager
def _gpu(item: pytest.Item) -> Iterator[gpu.Gpu | None]:
    """Lease a GPU; waiting for one is no part of the trial, so its clock stands still meanwhile."""
    armed = item.stash.get(BACKSTOP, None)
    if armed is not None:
        item.ihook.pytest_timeout_cancel_timer(item=item)
    with gpu.leased() as device:
        if armed is not None:
            item.ihook.pytest_timeout_set_timer(item=item, settings=armed)
        yield device


def _up_to_date(record: TrialRecord, session: TrialSession, folder: TrialFolder, data: TaskData) -> TrialRecord:
    """Score a stored submission again when the evaluator has a newer version; the run itself is kept."""
    task = session.tasks[record.task]
    current = evaluator_version(task.outcome.kind)
    parameters = read_parameters(task.outcome, task.deliverables).model_dump(mode="json")
    if record.score is None or (record.score.evaluator_version, record.score.parameters) == (current, parameters):
        return record
    return execute.rescore(record, record_path(folder.campaign, record), task, data)
