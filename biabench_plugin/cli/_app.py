"""The Typer application and what its commands share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from biabench_plugin import checkout
from biabench_plugin.taskspec import TaskError, TaskSpec, load_tasks

app = typer.Typer(
    name="biabench",
    help="Benchmark for AI agents on bioimage analysis. Trials are run by pytest: pytest --agent=NAME",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

MISUSE = 2
UNREADABLE_TRUTH = 3

TaskFolders = Annotated[list[Path] | None, typer.Option("--tasks", help="Further folder of tasks; repeatable.")]


def stop(message: str, code: int = MISUSE) -> NoReturn:
    print(f"biabench: {message}", file=sys.stderr)
    raise typer.Exit(code)


def find_tasks(extra: list[Path] | None) -> dict[str, TaskSpec]:
    try:
        return load_tasks(checkout.TASKS, *(extra or ()))
    except TaskError as error:
        stop(str(error))


def find_task(name: str, extra: list[Path] | None) -> TaskSpec:
    tasks = find_tasks(extra)
    for task in tasks.values():
        if name in (task.slug, task.dataset_id):
            return task
    stop(f"unknown task {name!r}; tasks: {', '.join(tasks)}")


@app.callback()
def _start() -> None:
    try:
        checkout.check_rooms()
    except RuntimeError as error:
        stop(str(error))
