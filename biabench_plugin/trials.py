"""The test function of a trial and its fixtures: data, GPU, agent, run folder, record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agents.base import Agent
from biabench_plugin import execute, gpu, options
from biabench_plugin.datasets import DatasetError, TaskData
from biabench_plugin.doctor import cannot_run
from biabench_plugin.endstate import EndState
from biabench_plugin.isolation import ContainmentError, InputError
from biabench_plugin.records import TrialRecord, current_attempt, junit_properties, record_path
from biabench_plugin.supervisor import SupervisionError
from biabench_plugin.workspace import BusyError, TrialFolder
from evaluators import TruthError, evaluator_version
from evaluators.outcome.parameters import read_parameters

if TYPE_CHECKING:
    from biabench_plugin.session import TrialItem, TrialSession


class InfrastructureFault(Exception):
    """The trial says nothing about the agent; pytest shows it as an error, not as a failure."""

    def __str__(self) -> str:
        return str(self.args[0])


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
    """The trial's agent; skips where it cannot run on this machine."""
    item: TrialItem = request.node
    found = biabench_session.agents[item.trial.configuration.agent]
    if reason := found.unavailable():
        pytest.skip(cannot_run(found, reason))
    return found


@pytest.fixture
def biabench_data(request: pytest.FixtureRequest, biabench_session: TrialSession) -> TaskData:
    """Input and truth of the trial's task."""
    item: TrialItem = request.node
    try:
        return biabench_session.data(item.trial.task)
    except (DatasetError, OSError) as error:
        raise InfrastructureFault(f"{item.trial.task.slug}: no data: {error}") from error


@pytest.fixture
def input_dir(biabench_data: TaskData) -> Path:
    """The task's images, as the host sees them."""
    return biabench_data.input


@pytest.fixture
def biabench_folder(request: pytest.FixtureRequest, biabench_session: TrialSession) -> Iterator[TrialFolder]:
    """The trial's folder in the campaign, held for this process."""
    item: TrialItem = request.node
    folder = TrialFolder(biabench_session.folder, item.trial)
    try:
        with folder.locked():
            yield folder
    except BusyError as error:
        raise InfrastructureFault(str(error)) from error


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
    key = biabench_session.resume_key(item.trial, biabench_data)
    rerun = options.get(biabench_session.config, "rerun")
    try:
        execute.check_truth(task, biabench_data)
        found, reused = _reuse_or_run(biabench_folder, biabench_agent, biabench_session, biabench_data, key, rerun)
        biabench_folder.use(key)
    except TruthError as error:
        raise InfrastructureFault(f"truth of {task.slug} cannot be used: {error}") from None
    except (OSError, ValueError, ContainmentError, InputError, SupervisionError) as error:
        raise InfrastructureFault(f"{item.trial.id}: {error}") from error
    known = junit_properties(found, record_path(campaign, found))
    item.user_properties[:] = [*(pair for pair in item.user_properties if pair[0] not in dict(known)), *known]
    if reused:
        item.user_properties.append(("biabench.reused", "true"))
    if not found.valid:
        raise InfrastructureFault(f"{found.infrastructure}; {campaign / found.run_folder}")
    return found


def _reuse_or_run(
    folder: TrialFolder, agent: Agent, session: TrialSession, data: TaskData, key: str, rerun: str | None
) -> tuple[TrialRecord, bool]:
    same = [record for record in folder.records() if record.resume_key == key]
    stored = current_attempt(same) if same else None
    if stored is not None and rerun != "all" and not (rerun == "failed" and stored.status is not EndState.DELIVERED):
        faults = sum(not record.valid for record in same)
        if stored.valid or faults >= 2:
            return _up_to_date(stored, session, folder, data), True
    attempts = same
    for _ in range(2):  # an infrastructure fault is retried once
        with gpu.leased() as device:
            record, _path = execute.run_attempt(folder, agent, session.host, data, device, key)
        attempts = [*attempts, record]
        if record.valid:
            break
    return current_attempt(attempts), False


def _up_to_date(record: TrialRecord, session: TrialSession, folder: TrialFolder, data: TaskData) -> TrialRecord:
    """Score a stored submission again when the evaluator has a newer version; the run itself is kept."""
    task = session.tasks[record.task]
    current = evaluator_version(task.outcome.kind)
    parameters = read_parameters(task.outcome, task.deliverables).model_dump(mode="json")
    if record.score is None or (record.score.evaluator_version, record.score.parameters) == (current, parameters):
        return record
    return execute.rescore(record, record_path(folder.campaign, record), task, data)
