"""The agents that can be named on the command line: one row each, and those that other distributions bring."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from agents.base import Agent

AGENTS: dict[str, str] = {
    "agentic_j": "agents.agentic_j:AgenticJ",
    "api": "agents.api:Api",
    "biomni": "agents.biomni:Biomni",
    "bluff": "agents.bluff:Bluff",
    "classical": "agents.classical.agent:Classical",
    "claude_code": "agents.claude_code:ClaudeCode",
    "codex": "agents.codex:Codex",
    "command": "agents.command:Command",
    "copilotj": "agents.copilotj:CopilotJ",
    "deepseek_harness": "agents.deepseek_harness:DeepSeekHarness",
    "empty": "agents.empty:Empty",
    "replay": "agents.replay:Replay",
    "shortcut": "agents.shortcut.agent:Shortcut",
}

GROUP = "biabench.agents"  # entry points of other distributions: name = "package.module:Class"
_REGISTERED: dict[str, str] = {}  # by register(), in this process


def register(reference: str) -> str:
    """Make the class at ``package.module:Class`` available under its own ``name``, and return that name.

    Raises
    ------
    ValueError
        When it cannot be imported, is no :class:`agents.base.Agent`, or its name is unfit or taken.
    """
    agent = _load(reference, f"--agent-class={reference}")
    name = getattr(agent, "name", "")
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(
            f"--agent-class={reference}: its `name` is {name!r}; expected small letters, digits and _, as in 'my_agent'"
        )
    if name in AGENTS or _REGISTERED.get(name, reference) != reference:
        raise ValueError(f"--agent-class={reference}: the name {name!r} is taken by {(AGENTS | _REGISTERED)[name]}")
    _REGISTERED[name] = reference
    return name


def known_agents() -> dict[str, str]:
    """Return every agent that can be named here, with where its class lies. Built-in names cannot be replaced."""
    foreign = {point.name: point.value for point in _entry_points()}
    return foreign | _REGISTERED | AGENTS


def load_agent(name: str) -> Agent:
    """Return a new agent by its name; raise ``ValueError`` with the choices for any other."""
    known = known_agents()
    if name not in known:
        raise ValueError(f"unknown agent {name!r}: choose from {', '.join(sorted(known))}")
    agent = _load(known[name], f"agent {name!r} ({known[name]})")
    if name not in AGENTS and getattr(agent, "name", None) != name:
        raise ValueError(
            f"agent {name!r} ({known[name]}): the class says that its name is {getattr(agent, 'name', None)!r}"
        )
    return agent


def _entry_points() -> list[EntryPoint]:
    return [point for point in entry_points(group=GROUP) if point.name not in AGENTS]


def _load(reference: str, what: str) -> Agent:
    module, colon, attribute = reference.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"{what}: expected package.module:Class")
    try:
        found = getattr(import_module(module), attribute)
    except ImportError as error:
        raise ValueError(
            f"{what}: cannot be imported: {error}; is it installed, or its folder on PYTHONPATH?"
        ) from error
    except AttributeError:
        raise ValueError(f"{what}: module {module} has no {attribute}") from None
    if not (isinstance(found, type) and issubclass(found, Agent)):
        raise ValueError(f"{what}: is no subclass of agents.base.Agent")
    return found()
