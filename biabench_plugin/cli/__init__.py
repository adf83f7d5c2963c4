"""The ``biabench`` command: everything that needs no pytest session. One module per group of commands."""

from __future__ import annotations

from biabench_plugin.cli import agents, campaigns, data, judging, leaderboard, repeats, results, review, suite
from biabench_plugin.cli._app import app

__all__ = [
    "agents",
    "app",
    "campaigns",
    "data",
    "judging",
    "leaderboard",
    "main",
    "repeats",
    "results",
    "review",
    "suite",
]


def main() -> None:
    """Entry point of the console script."""
    app()
