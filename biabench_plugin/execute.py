"""Run one attempt of one trial: agent, end state, score, record."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agents.base import Agent, Evidence, Launch, Session, Usage
from agents.pricing import priced
from agents.relay.ledger import FILE_NAME as LEDGER
from agents.relay.ledger import Exchange, read_ledger
from agents.signals import difference, effort_on_wire, merge_usage, weigh, wire
from agents.transcript import FILE_NAME as TRANSCRIPT
from agents.transcript import write_transcript
from biabench_plugin import checkout, supervisor
from biabench_plugin.campaign import Configuration, Settings, Trial
from biabench_plugin.datasets import TaskData, cache_dir
from biabench_plugin.endstate import EndState, classify
from biabench_plugin.gpu import Gpu, still_there
from biabench_plugin.isolation import Containment, InputView, containment_for, opaque_input
from biabench_plugin.model_access import RelayError, keep_home_files, model_access, provider_of
from biabench_plugin.probe import probe
from biabench_plugin.records import (
    DatasetIdentity,
    Provenance,
    RecordError,
    TrialRecord,
    write_atomically,
    write_record,
)
from biabench_plugin.source_study import audit_attempt
from biabench_plugin.supervisor import RunResult, SupervisionError
from biabench_plugin.taskspec import TaskSpec, render_instruction
from biabench_plugin.workspace import Attempt, TrialFolder, note_inputs
from evaluators import OutcomeScore, evaluate_bounded

_PACKAGES = ("numpy", "scipy", "scikit-image", "tifffile", "imagecodecs", "pandas", "pytest")


def template_digest(task: TaskSpec, level: str) -> str:
    """Digest of the instruction with placeholders for what differs between hosts: paths and GPU."""
    text = render_instruction(task, level, gpu=False, input_dir="{input}", output_dir="{output}")
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Host:
    """What is fixed for a session: how agents are contained, and what else they may use."""

    settings: Settings
    dataset_name: str

    def containment(self, agent: Agent) -> Containment:
        return containment_for(self.settings.isolation, contained=agent.contained, own=agent.container())


@cache
def _packages() -> dict[str, str]:
    return {name: version(name) for name in _PACKAGES}


def provenance(containment: Containment, gpu: Gpu | None, tools: dict[str, object], view: InputView) -> Provenance:
    """Describe this host and the versions that a score depends on."""
    described = {"how": view.how, "name_visible": view.name_visible, "note": view.note}
    return _provenance(containment, gpu, tools, described)


def _provenance(
    containment: Containment, gpu: Gpu | None, tools: dict[str, object], view: dict[str, Any]
) -> Provenance:
    return Provenance(
        biabench=checkout.version(),
        commit=checkout.commit(),
        python=sys.version.split()[0],
        packages=_packages(),
        host=socket.gethostname(),
        platform=platform.platform(),
        cpus=len(os.sched_getaffinity(0)),
        gpu=[] if gpu is None else [gpu.description],
        isolation=containment.describe(),
        input_view=view,
        tools=tools,
    )


def _tools(containment: Containment, launch: Launch, settings: Settings, gpu: Gpu | None) -> dict[str, object]:
    """What the agent found inside: asked once per environment, then remembered."""
    return probe(
        containment,
        cache_dir=cache_dir() / "probes",
        python_prefix=launch.python_prefix,
        gpu_devices=() if gpu is None else (gpu.uuid,),
        tool_env=settings.agent_env,
        weights=settings.agent_weights,
    )


def run_attempt(
    folder: TrialFolder, agent: Agent, host: Host, data: TaskData, gpu: Gpu | None, resume_key: str
) -> tuple[TrialRecord, Path]:
    """Run one attempt under the trial's lock and write its record.

    Whatever the agent does, a record comes out; faults of our own (unreadable truth, full disk) raise, and leave the
    attempt without a record, so that the next session runs it again.
    """
    trial = folder.trial
    attempt = folder.new_attempt()
    try:
        containment = host.containment(agent)
        view = opaque_input(data.input, attempt.work, containment.in_force, opaque=data.opaque)
        paths = containment.paths(attempt.rooms)
        instruction = render_instruction(
            trial.task,
            trial.configuration.instruction,
            gpu=gpu is not None,
            input_dir=paths.input_dir,
            output_dir=paths.output_dir,
        )
        attempt.write_instruction(instruction)
        note_inputs(attempt.path, data.input)
        settings = host.settings
        with model_access(
            agent,
            trial.configuration,
            attempt.path,
            relay=settings.relay,
            confined=settings.network == "model",
        ) as access:
            session = Session(
                instruction=instruction,
                instruction_file=paths.instruction_file,
                input_dir=paths.input_dir,
                output_dir=paths.output_dir,
                budget_seconds=settings.budget_seconds,
                model=trial.configuration.model,
                effort=trial.configuration.effort,
                command=trial.configuration.command,
                truth_dir=data.truth if agent.reads_truth else None,
                task_dir=trial.task.folder if agent.reads_truth else None,
                home_dir=paths.home,
                endpoint=access.endpoint,
                web=_web(trial.configuration, settings),
                network=settings.network,
            )
            launch = access.launch(agent.launch(session))
            attempt.write_home(launch.home_files)
            probed = agent.contained and containment.own is None  # of a container of its own, its driver tells
            tools = _tools(containment, launch, settings, gpu) if probed else {}
            run = supervisor.run(
                launch,
                rooms=attempt.rooms,
                containment=containment,
                limits=supervisor.Limits(
                    budget_seconds=settings.budget_seconds,
                    output_bytes=int(settings.output_quota_gb * 1e9),
                ),
                network="none" if settings.network == "model" and access.socket is None else settings.network,
                gpu_devices=() if gpu is None else (gpu.uuid,),
                tool_env=settings.agent_env,
                weights=settings.agent_weights,
                relay_socket=access.socket,
                hidden=() if agent.reads_truth else (data.truth, folder.campaign, cache_dir()),
            )
        lost = gpu is not None and not still_there(gpu)
        exchanges = [] if access.ledger is None else read_ledger(access.ledger)
        evidence, transcript_problem = _read(agent, attempt)
        if lost:
            evidence = replace(evidence, infrastructure=evidence.infrastructure or f"GPU gone during the run: {gpu}")
        input_changed = view.changed()
        attempt.collect()
    except (SupervisionError, RelayError) as error:  # what watches or serves the agent failed: not the agent's fault
        attempt.discard(keep=True)
        record = fault(folder, agent, host, data, gpu, str(error), resume_key, attempt.number)
        with suppress(ValueError, OSError):  # what was asked until then was paid for
            exchanges = read_ledger(attempt.path / LEDGER)
            record = record.model_copy(update=_metered(agent, trial, Evidence(), exchanges))
        return record, write_record(record, attempt.path)
    except BaseException:
        attempt.discard()
        raise
    record = _record(
        trial,
        agent,
        host,
        data,
        provenance(containment, gpu, tools, view),
        attempt,
        run,
        weigh(
            exchanges,
            evidence,
            budget_seconds=settings.budget_seconds,
            model=trial.configuration.model,
            relayed=access.ledger is not None,
        ),
        input_changed,
        resume_key,
    ).model_copy(update={"transcript_problem": transcript_problem, **_metered(agent, trial, evidence, exchanges)})
    folder.check_held()
    path = write_record(record, attempt.path)
    with suppress(ValueError):  # `biabench audit` names what cannot be read; the run is not lost for it
        audit_attempt(attempt.path, trial.task)
    return record, path


def fault(
    folder: TrialFolder,
    agent: Agent,
    host: Host,
    data: TaskData,
    gpu: Gpu | None,
    reason: str,
    resume_key: str,
    attempt: int,
) -> TrialRecord:
    """Return the record of an attempt that an infrastructure fault ended before anything could be scored."""
    view = {"how": "unknown", "name_visible": False, "note": None}
    return TrialRecord(
        **_identity(folder.trial, agent, host, data, attempt, resume_key),
        status=EndState.NO_DELIVERABLE,
        status_reason="an infrastructure fault ended the attempt; it says nothing about the agent",
        timed_out=False,
        quota_exceeded=False,
        infrastructure=reason,
        score=None,
        usage=Usage(),
        final_message=None,
        exit_code=None,
        signal=None,
        survivors_killed=0,
        log_truncated=False,
        input_changed=False,
        started=datetime.now(UTC),
        wall_seconds=0.0,
        evaluation_seconds=0.0,
        provenance=_provenance(host.containment(agent), gpu, {}, view),
        run_folder=(folder.trial.relative_folder / f"attempt-{attempt}").as_posix(),
    )


def _web(configuration: Configuration, settings: Settings) -> bool | None:
    """Whether the agent may search the web; ``None`` leaves that as the study had it. Without a network it may not."""
    if settings.network != "open":
        return False
    return None if configuration.web_tools is None else configuration.web_tools == "on"


def _metered(agent: Agent, trial: Trial, evidence: Evidence, exchanges: list[Exchange]) -> dict[str, object]:
    """Return what the relay's ledger says about a run: usage, what differs from the agent's own, models, effort."""
    configuration = trial.configuration
    provider = provider_of(agent, configuration)
    usage = merge_usage(evidence.usage, exchanges)
    found: dict[str, object] = {
        "usage": priced(usage, configuration.model),
        "provider": None if provider is None else provider.name,
        "web_tools": configuration.web_tools,
    }
    if exchanges:
        expected = agent.effort_word(configuration.effort) if agent.effort_control else None
        found["usage_reported"] = evidence.usage
        found["usage_difference"] = difference(evidence.usage, usage)
        found["wire"] = wire(exchanges, model=configuration.model, effort=expected)
        if agent.effort_control:
            found["effort_applied"] = effort_on_wire(exchanges) or "not known: no request"
    return found


def _read(agent: Agent, attempt: Attempt) -> tuple[Evidence, str | None]:
    """Read what the agent left about itself; a transcript that cannot be read is no reason to lose the run."""
    logs = attempt.rooms.logs
    try:
        keep_home_files(attempt.rooms.home, agent.keeps, logs / "home")
        found = agent.read(logs / "stdout.log", logs / "stderr.log", attempt.rooms.output)
        if found.steps:
            write_transcript(found.steps, attempt.path / TRANSCRIPT)
    except Exception as error:  # a wrapper's own fault: whatever it is, the submission is scored
        return Evidence(), f"{type(error).__name__}: {error}"
    return (
        replace(
            found,
            final_message=_storable(found.final_message),
            refused=_storable(found.refused),
            infrastructure=_storable(found.infrastructure),
        ),
        None,
    )


def _storable(text: str | None) -> str | None:
    """Replace lone surrogates, which a provider's JSON can hold and a record cannot."""
    return None if text is None else text.encode("utf-8", "replace").decode()


def check_truth(task: TaskSpec, data: TaskData) -> None:
    """Raise ``TruthError`` before an agent spends hours, where the truth cannot be used; remembered by digest."""
    _, digest = data.digests
    seal = hashlib.sha256(f"{task.slug}:{task.outcome.model_dump_json()}:{digest}".encode()).hexdigest()
    good = cache_dir() / "truth" / seal
    if good.is_file():
        return
    with tempfile.TemporaryDirectory() as empty:
        score(task, Path(empty), data)
    good.parent.mkdir(parents=True, exist_ok=True)
    good.touch()


def score(task: TaskSpec, submission: Path, data: TaskData) -> OutcomeScore:
    """Score a folder against a task's truth in the bounded child process."""
    return evaluate_bounded(task.outcome, task.deliverables, submission, data.truth, data.input)


def rescore(record: TrialRecord, path: Path, task: TaskSpec, data: TaskData) -> TrialRecord:
    """Score an attempt's stored submission again, keeping the former record beside the new one."""
    submission = path.parent / "submission"
    if not submission.is_dir():
        raise RecordError(f"{submission}: the stored submission is gone, so it cannot be scored again")
    fresh = score(task, submission, data)
    former = "none" if record.score is None else record.score.evaluator_version
    write_atomically(path.with_name(f"record.evaluator-{former}.{record.resume_key[:8]}.json"), path.read_text())
    updated = record.model_copy(update={"score": fresh, **_status(record, fresh)})
    write_record(updated, path.parent)
    return updated


def _status(record: TrialRecord, fresh: OutcomeScore) -> dict[str, object]:
    """End state of a stored run under a fresh score."""
    if record.score is not None and fresh.delivered == record.score.delivered:
        return {}
    run = RunResult(
        exit_code=record.exit_code,
        signal=record.signal,
        timed_out=record.timed_out,
        quota_exceeded=record.quota_exceeded,
        wall_seconds=record.wall_seconds,
        started=record.started,
        log_truncated=record.log_truncated,
        survivors_killed=record.survivors_killed,
        start_error=None,
    )
    refused = record.status_reason if record.status is EndState.REFUSED else None
    ending = classify(fresh.delivered, run, Evidence(refused=refused))
    return {"status": ending.state, "status_reason": ending.reason}


def _effort_applied(agent: Agent, configuration: Configuration) -> str:
    return configuration.effort if agent.effort_control else "no control"


def _identity(trial: Trial, agent: Agent, host: Host, data: TaskData, attempt: int, resume_key: str) -> dict[str, Any]:
    """Return the fields that say which experiment an attempt belongs to."""
    input_digest, truth_digest = data.digests
    return {
        "trial": trial.id,
        "task": trial.task.slug,
        "agent": agent.name,
        "agent_version": agent.version,
        "configuration": trial.configuration.id,
        "model": trial.configuration.model,
        "instruction_level": trial.configuration.instruction,
        "effort_requested": trial.configuration.effort,
        "effort_applied": _effort_applied(agent, trial.configuration),
        "repeat": trial.repeat,
        "attempt": attempt,
        "synthetic": agent.synthetic,
        "resume_key": resume_key,
        "dataset": DatasetIdentity(
            kind=data.kind,
            name=host.dataset_name,
            revision=data.revision,
            input_digest=input_digest,
            truth_digest=truth_digest,
        ),
        "instruction_digest": template_digest(trial.task, trial.configuration.instruction),
        "budget_seconds": host.settings.budget_seconds,
        "network": host.settings.network,
    }


def _record(
    trial: Trial,
    agent: Agent,
    host: Host,
    data: TaskData,
    where: Provenance,
    attempt: Attempt,
    run: RunResult,
    evidence: Evidence,
    input_changed: bool,
    resume_key: str,
) -> TrialRecord:
    begun = time.monotonic()
    result = score(trial.task, attempt.submission, data)
    evaluation_seconds = time.monotonic() - begun
    ending = classify(result.delivered, run, evidence)
    return TrialRecord(
        **_identity(trial, agent, host, data, attempt.number, resume_key),
        status=ending.state,
        status_reason=ending.reason,
        timed_out=ending.timed_out,
        quota_exceeded=run.quota_exceeded,
        infrastructure="the input was changed during the run" if input_changed else ending.infrastructure,
        score=result,
        usage=evidence.usage,
        review=list(evidence.review),
        final_message=evidence.final_message,
        exit_code=run.exit_code,
        signal=run.signal,
        survivors_killed=run.survivors_killed,
        log_truncated=run.log_truncated,
        input_changed=input_changed,
        started=run.started,
        wall_seconds=run.wall_seconds,
        evaluation_seconds=evaluation_seconds,
        provenance=where,
        run_folder=attempt.path.relative_to(attempt.campaign).as_posix(),
    )
