"""The ``biabench`` command: everything that needs no pytest session. One module per group of commands."""

from __future__ import annotations

from biabench_plugin.cli import agents, results, suite
from biabench_plugin.cli._app import app

__all__ = ["agents", "app", "main", "results", "suite"]


def main() -> None:
    """Entry point of the console script."""
    app()
