"""The agents that can be named on the command line: one row each."""

from __future__ import annotations

from importlib import import_module

from agents.base import Agent

AGENTS: dict[str, str] = {
    "api": "agents.api:Api",
    "bluff": "agents.bluff:Bluff",
    "classical": "agents.classical.agent:Classical",
    "claude_code": "agents.claude_code:ClaudeCode",
    "codex": "agents.codex:Codex",
    "command": "agents.command:Command",
    "deepseek_harness": "agents.deepseek_harness:DeepSeekHarness",
    "empty": "agents.empty:Empty",
    "replay": "agents.replay:Replay",
    "shortcut": "agents.shortcut.agent:Shortcut",
}


def load_agent(name: str) -> Agent:
    """Return a new agent by its name in :data:`AGENTS`; raise ``ValueError`` with the choices for any other."""
    try:
        module, _, attribute = AGENTS[name].partition(":")
    except KeyError:
        raise ValueError(f"unknown agent {name!r}: choose from {', '.join(sorted(AGENTS))}") from None
    agent = getattr(import_module(module), attribute)()
    if not isinstance(agent, Agent):
        raise TypeError(f"{AGENTS[name]} is no agents.base.Agent")
    return agent
