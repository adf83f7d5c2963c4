"""The ``biabench`` command: everything that needs no pytest session. One module per group of commands."""

from __future__ import annotations

from biabench_plugin.cli import results, review, suite
from biabench_plugin.cli._app import app

__all__ = ["app", "main", "results", "review", "suite"]
from biabench_plugin.cli import judging, results, suite
from biabench_plugin.cli._app import app

__all__ = ["app", "judging", "main", "results", "suite"]
from biabench_plugin.cli import data, results, suite
from biabench_plugin.cli._app import app

__all__ = ["app", "data", "main", "results", "suite"]


def main() -> None:
    """Entry point of the console script."""
    app()
