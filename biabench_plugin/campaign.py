"""Which trials exist: configurations, their ids, the campaign folder and its settings."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents import load_agent
from agents.base import Agent, Session
from biabench_plugin.model_access import provider_of
from biabench_plugin.taskspec import TaskSpec

_MOST_FILES = 20_000  # of a folder that a command line names


class Configuration(BaseModel):
    """Agent, model, instruction level and settings: one row of the leaderboard."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    agent: str
    model: str | None = Field(default=None, min_length=1, max_length=200)
    instruction: Literal["brief", "detailed"] = "brief"
    effort: Literal["minimal", "low", "medium", "high", "max"] = "medium"
    command: str | None = None
    provider: str | None = None
    key_variable: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    web_tools: Literal["on", "off"] | None = None
    label: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")

    @property
    def id(self) -> str:
        """Text that tells configurations apart in ids and folders, for example ``codex[gpt-5-brief]``."""
        model = _plain(self.model) + "-" if self.model else ""
        effort = "" if self.effort == "medium" else f"-{self.effort}"
        return f"{self.label or self.agent}[{model}{self.instruction}{effort}]"

    def item_name(self, repeat: int) -> str:
        """Name of the pytest item of one repeat, for example ``codex[gpt-5-brief-r1]``."""
        return f"{self.id[:-1]}-r{repeat}]"

    @property
    def folder_name(self) -> str:
        return self.id.replace("[", "+").rstrip("]")


def _plain(text: str) -> str:
    """Write a model's name so that it is safe in ids and file names, and different names stay different."""
    safe = quote(text.replace("~", "%7E"), safe="").replace("%257E", "=7E").replace("%2F", "~").replace("%", "=")
    return safe if len(safe) <= 120 else f"{safe[:100]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


class Settings(BaseModel):
    """What holds for every trial of a session."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: str
    repeats: int
    budget_seconds: float = 4 * 3600.0
    network: Literal["open", "model", "none"] = "open"
    relay: bool = True
    isolation: Literal["required", "auto", "off"] = "auto"
    agent_env: Path | None = None
    agent_weights: Path | None = None
    output_quota_gb: float = 50.0


@dataclass(frozen=True)
class Trial:
    """One task × one configuration × one repeat."""

    task: TaskSpec
    configuration: Configuration
    repeat: int

    @property
    def name(self) -> str:
        return self.configuration.item_name(self.repeat)

    @property
    def id(self) -> str:
        return f"tasks/{self.task.slug}/task.yaml::{self.name}"

    @property
    def relative_folder(self) -> Path:
        return Path("runs") / self.task.slug / self.configuration.folder_name / f"r{self.repeat}"


def parse_agents(
    values: Iterable[str], *, instruction: str, effort: str, command: str | None, **more: str | None
) -> list[Configuration]:
    """Turn ``NAME[=MODEL]`` values into configurations; raise ``ValueError`` for unknown agents."""
    configurations = []
    for value in values:
        name, _, model = value.partition("=")
        configurations.append(
            Configuration.model_validate(
                {
                    "agent": name,
                    "model": model or None,
                    "instruction": instruction,
                    "effort": effort,
                    "command": command if name == "command" else None,
                    **more,
                }
            )
        )
    return configurations


def read_configurations(path: Path, *, instruction: str, effort: str, **more: str | None) -> list[Configuration]:
    """Read a YAML list of configurations; fields left out take the session's values."""
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"--config {path}: cannot be read: {error}") from error
    if not isinstance(raw, list) or not all(isinstance(row, dict) for row in raw) or not raw:
        raise ValueError(f"--config {path}: expected a list of configurations, such as '- agent: classical'")
    configurations = []
    for number, row in enumerate(raw, start=1):
        try:
            configurations.append(
                Configuration.model_validate({"instruction": instruction, "effort": effort, **more, **row})
            )
        except ValidationError as error:
            faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
            raise ValueError(f"--config {path}: configuration {number}: {faults}") from error
    return configurations


def check_configurations(configurations: Sequence[Configuration]) -> dict[str, Agent]:
    """Load the agents, refuse duplicates and contradictions; raise ``ValueError`` with one clear sentence."""
    agents: dict[str, Agent] = {}
    seen: set[str] = set()
    for configuration in configurations:
        if configuration.id in seen:
            raise ValueError(f"configuration {configuration.id} is given twice; a `label` in --config tells them apart")
        seen.add(configuration.id)
        agent = agents.setdefault(configuration.agent, load_agent(configuration.agent))
        if configuration.agent == "command" and not configuration.command:
            raise ValueError("--agent=command needs --agent-command='PROGRAM …'")
        if configuration.command:
            agent.launch(_dry_session(configuration))  # raises ValueError where the command line cannot be used
        if agent.needs_model and not configuration.model:
            raise ValueError(f"--agent={configuration.agent} needs a model: --agent={configuration.agent}=MODEL")
        provider_of(agent, configuration)
    return agents


def _dry_session(configuration: Configuration) -> Session:
    return Session(
        instruction="",
        instruction_file="/instruction.md",
        input_dir="/input",
        output_dir="/output",
        budget_seconds=1.0,
        model=configuration.model,
        command=configuration.command,
    )


def plan(tasks: Iterable[TaskSpec], configurations: Sequence[Configuration], repeats: int) -> list[Trial]:
    """Return all trials, task by task."""
    return [
        Trial(task, configuration, repeat)
        for task in tasks
        for configuration in configurations
        for repeat in range(1, repeats + 1)
    ]


def running_order(trial: Trial) -> tuple[int, float, str]:
    """Sort key: repeat-major, long tasks first, so that workers end together."""
    return (trial.repeat, -trial.task.expected_minutes, trial.id)


def resume_key(
    trial: Trial, agent: Agent, settings: Settings, data_digest: str, template: str, *, contained: bool
) -> str:
    """Digest of everything that makes two runs of a trial the same experiment.

    The evaluator's version is not part of it: a new evaluator rescores, it does not rerun.
    """
    parts: dict[str, Any] = {
        "task": trial.task.slug,
        "data": data_digest,
        "agent": [agent.name, agent.version, agent.fingerprint()],
        "configuration": trial.configuration.model_dump(exclude={"label", "key_variable"}),
        "command": _named_files(trial.configuration.command or ""),
        "budget": settings.budget_seconds,
        "network": settings.network,
        "isolation": settings.isolation,
        "contained": contained,
        "output_quota": settings.output_quota_gb,
        "agent_weights": str(settings.agent_weights or ""),
        "agent_env": str(settings.agent_env or ""),
        "instruction": template,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def _named_files(command: str) -> dict[str, str]:
    """Digests of the files and folders that a command line names: an edited script is another experiment."""
    words = shlex.split(command)
    paths = [Path(word).expanduser() for word in words]
    if words and (program := shutil.which(words[0])):
        paths[0] = Path(program)
    return {str(path): digest for path in paths if (digest := _digest(path)) is not None}


def _digest(path: Path) -> str | None:
    """Digest of a file's content, or of what a folder lists: names, sizes and times of its files."""
    if path.is_file():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    if not path.is_dir():
        return None
    listing = sorted(
        (str(found.relative_to(path)), found.stat().st_size, found.stat().st_mtime_ns)
        for found in islice(path.rglob("*"), _MOST_FILES)
        if found.is_file() and found.suffix != ".pyc"
    )
    return hashlib.sha256(json.dumps(listing).encode("utf-8", "surrogateescape")).hexdigest()
