"""Benchmarks measure and print; they never judge a time, and they run only when asked for by path.

``pytest`` and ``pytest tests`` leave this folder out, since the clock of a loaded machine is nobody's fault. To run
them: ``pytest tests/benchmarks``, or one file or test below it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent.resolve()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if HERE not in (collection_path, *collection_path.parents):
        return None
    start = config.invocation_params.dir
    asked = [(start / argument.split("::")[0]).resolve() for argument in config.args]
    return None if any(HERE in (path, *path.parents) for path in asked) else True
