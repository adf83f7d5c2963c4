"""What can run on this host, what is missing, and how to get it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from agents import AGENTS, known_agents, load_agent
from agents.base import Agent
from agents.endpoints import find_provider
from biabench_plugin import checkout, gpu
from biabench_plugin.campaign import Configuration
from biabench_plugin.isolation import containment_for
from biabench_plugin.model_access import missing_key

CLI = checkout.ROOT / "agents" / "cli"
_NPM = ("claude_code", "codex", "deepseek_harness")


class SetupError(RuntimeError):
    """An agent cannot be installed from here; the message says what to do instead."""


@dataclass(frozen=True)
class Finding:
    """One line of the examination.

    ``problem`` says what is wrong and the exact fix; ``None`` where nothing is. ``raised`` marks an agent that could
    not be examined, by a fault of its own.
    """

    name: str
    found: str
    problem: str | None = None
    raised: bool = False


def cannot_run(agent: Agent, reason: str) -> str:
    """Return the sentence with which an agent is skipped, and with which the examination names it."""
    return f"{agent.name} cannot run here: {reason}"


def check_access(provider: str | None, key_variable: str | None) -> None:
    """Raise ``ValueError`` for a provider or a name of a variable that a session of trials would refuse too."""
    find_provider(provider)
    try:
        Configuration(agent="any", key_variable=key_variable)
    except ValidationError as error:
        raise ValueError(f"--key-variable={key_variable}: {error.errors()[0]['msg']}") from error


def examine_agent(name: str, *, provider: str | None = None, key_variable: str | None = None) -> Finding:
    """Examine one agent, with a provider (``None``: the default one) and its key.

    That the provider does not speak the agent's protocol is a finding, since it may speak another agent's; so is what
    the agent's own code raises.

    Raises
    ------
    ValueError
        For an unknown agent.
    """
    known = name in known_agents()
    try:
        agent = load_agent(name)
        installed = getattr(agent, "installed", lambda: agent.version)()
        reason = agent.unavailable()
    except Exception as error:  # other people's code: whatever it is, the other agents are examined
        if not known:
            raise
        said = " ".join(f"{type(error).__name__}: {error}".split())
        return Finding(name, "", f"{name} cannot be examined, its code raised {said}", raised=True)
    configuration = Configuration(agent=name, provider=provider, key_variable=key_variable)
    try:
        reason = reason or missing_key(agent, configuration)
    except ValueError as error:
        reason = str(error)
    return Finding(name, installed or "not installed", None if reason is None else cannot_run(agent, reason))


def examine_host() -> list[Finding]:
    """Examine what every trial needs, whatever the agent."""
    containment = containment_for("auto")
    devices = [device.description for device in gpu.installed()]
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    return [
        Finding("python", f"{sys.version.split()[0]} at {sys.prefix}"),
        Finding(
            "containment",
            f"bubblewrap {containment.version}" if containment.in_force else "none",
            None if containment.in_force else f"agents would run without containment: {containment.reason}",
        ),
        Finding("gpu", ", ".join(devices) or "none (agents are told that there is none)"),
        Finding(
            "disk", f"{free:.0f} GB free here", None if free > 60 else "a trial may write 50 GB: --output-quota=GB"
        ),
    ]


def examine(
    names: Sequence[str], *, provider: str | None = None, key_variable: str | None = None
) -> tuple[list[Finding], list[Finding]]:
    """Examine the host and the agents named, or all of them; raise ``ValueError`` where something named is unfit."""
    check_access(provider, key_variable)
    return examine_host(), [
        examine_agent(name, provider=provider, key_variable=key_variable) for name in names or sorted(known_agents())
    ]


# --- install --------------------------------------------------------------------------------------------------------


def commands(name: str) -> list[tuple[list[str], Path]]:
    """Return the commands that install an agent, each with its folder.

    Raises
    ------
    SetupError
        For an agent that no registry holds, or that needs nothing; the message says so.
    """
    agent = load_agent(name)
    if name == "biomni":
        from agents.biomni import REQUIREMENTS, Biomni

        environment = Biomni().environment
        python = str(environment / "bin" / "python")
        return [
            ([sys.executable, "-m", "venv", str(environment)], checkout.ROOT),
            ([python, "-m", "pip", "install", "--requirement", str(REQUIREMENTS)], checkout.ROOT),
        ]
    if name in _NPM:
        if not (CLI / "package-lock.json").is_file():
            raise SetupError(f"{CLI / 'package-lock.json'} is missing: the checkout is incomplete")
        if shutil.which("npm") is None:
            raise SetupError("npm is missing: apt-get install npm")
        return [(["npm", "ci"], CLI)]
    reason = agent.unavailable()
    if reason is None:
        raise SetupError(f"{name} needs no installation")
    where = "no package registry holds it" if name in AGENTS else "it comes from another distribution"
    raise SetupError(f"{name} cannot be installed by this command ({where}): {reason}")


def install(name: str) -> None:
    """Run the commands that install an agent; raise :class:`SetupError` with the one that failed."""
    for argv, folder in commands(name):
        try:
            subprocess.run(argv, cwd=folder, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise SetupError(f"{' '.join(argv)}: {error}") from error
