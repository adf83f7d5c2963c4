"""What the tests of the process score share."""

from __future__ import annotations

from typing import Any

import pytest

from biabench_plugin import checkout
from biabench_plugin.taskspec import TaskSpec, load_tasks


@pytest.fixture(scope="session")
def tasks() -> dict[str, TaskSpec]:
    """All tasks of the suite."""
    return load_tasks(checkout.TASKS)


@pytest.fixture
def task(tasks: dict[str, TaskSpec], request: pytest.FixtureRequest) -> Any:
    """The task that a test is parametrised with, else the smallest."""
    return tasks[getattr(request, "param", "histology_nuclei")]
