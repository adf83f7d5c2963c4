"""Commands on the suite and on single submissions: tasks, demo, score, new-task, check-task."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from biabench_plugin.cli._app import UNREADABLE_TRUTH, TaskFolders, app, find_task, find_tasks, stop
from biabench_plugin.taskspec import Subtask


@app.command("tasks")
def list_tasks(
    matrix: Annotated[
        bool, typer.Option("--matrix", help="Show which of the eleven subtasks each task exercises.")
    ] = False,
    tasks: TaskFolders = None,
) -> None:
    """Print the suite as a table."""
    table = Table(box=None, pad_edge=False)
    order = {"easy": 0, "medium": 1, "hard": 2}
    found = sorted(find_tasks(tasks).values(), key=lambda task: (order[task.difficulty], task.slug))
    columns = ["task", "label", "difficulty", "modality", "dimension", "channels", "input MB", "deliverables"]
    for name in ["task", *Subtask] if matrix else columns:
        table.add_column(name.replace("_", " "), overflow="fold")
    for task in found:
        if matrix:
            table.add_row(task.slug, *("●" if subtask in task.subtasks else "" for subtask in Subtask))
        else:
            dimension = task.dimension + (" + time" if task.temporal == "time-lapse" else "")
            table.add_row(
                task.slug,
                task.label,
                task.difficulty,
                task.modality.replace("_", " "),
                dimension,
                str(task.channels),
                f"{task.input_size_mb:g}",
                ", ".join(deliverable.id for deliverable in task.deliverables),
            )
    Console(width=None if sys.stdout.isatty() else 200, markup=False).print(table)


@app.command()
def demo(
    task: str,
    dest: Path,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same bytes.")] = 0,
    tasks: TaskFolders = None,
) -> None:
    """Write demo data of TASK to DEST/input and DEST/evaluation."""
    from biabench_plugin.datasets import DatasetError, build_demo

    spec = find_task(task, tasks)
    if any((dest / name).exists() for name in ("input", "evaluation")):
        stop(f"{dest}: already holds input/ or evaluation/; choose an empty folder")
    try:
        dest.mkdir(parents=True, exist_ok=True)
        build_demo(spec, dest, seed)
    except (DatasetError, OSError) as error:
        stop(str(error))
    print(f"{dest / 'input'}\n{dest / 'evaluation'}")


@app.command()
def score(
    task: str,
    submission: Path,
    truth: Annotated[
        Path, typer.Option("--truth", help="The task's evaluation folder (or a challenge's 01_GT folder).")
    ],
    input_dir: Annotated[
        Path | None, typer.Option("--input", help="The task's input folder; default: beside the truth.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    tasks: TaskFolders = None,
) -> None:
    """Score the folder SUBMISSION against TRUTH, with no agent and no pytest.

    Exit status: 0 scored (also when the score is 0), 2 misuse, 3 the truth cannot be read.
    """
    from evaluators import TruthError, evaluate_bounded

    spec = find_task(task, tasks)
    for name, folder in (("SUBMISSION", submission), ("--truth", truth)):
        if not folder.is_dir():
            stop(f"{name} {folder}: no such folder")
    if input_dir is not None and not input_dir.is_dir():
        stop(f"--input {input_dir}: no such folder")
    beside = truth.resolve().parent / "input"
    chosen = input_dir or (beside if beside.is_dir() else None)
    try:
        result = evaluate_bounded(spec.outcome, spec.deliverables, submission, truth, chosen)
    except TruthError as error:
        stop(f"truth cannot be used: {error}", UNREADABLE_TRUTH)
    status = "delivered" if result.delivered else "no_deliverable"
    if as_json:
        print(
            json.dumps(
                {
                    "task": spec.slug,
                    "outcome": result.outcome,
                    "status": status,
                    "metrics": {"strict": result.strict, **result.metrics},
                    "problems": [problem.model_dump() for problem in result.problems],
                    "items": result.items,
                    "evaluator": f"{result.evaluator} {result.evaluator_version}",
                }
            )
        )
        return
    print(f"{spec.label}: outcome {result.outcome:.4f}", end="")
    print("" if result.strict is None else f", strict {result.strict:.4f}", f"({status})")
    for metric, value in result.metrics.items():
        print(f"  {metric}: {value:.4f}" if isinstance(value, float) else f"  {metric}: {value}")
    for problem in result.problems:
        print(f"  problem {problem.code} in {problem.where}: {problem.message}")


@app.command("new-task")
def new_task(
    slug: str,
    into: Annotated[Path, typer.Option(help="Folder of tasks to write to; default: here.")] = Path(),
    kind: Annotated[str, typer.Option(help="Kind of outcome that the skeleton is for.")] = "cell_counting",
) -> None:
    """Write the skeleton of a task to INTO/SLUG: task.yaml, brief.md, detailed.md, demo.py."""
    from biabench_plugin.newtask import NewTaskError, create

    try:
        files = create(slug, into, kind)
    except (NewTaskError, OSError) as error:
        stop(str(error))
    print("\n".join(map(str, files)), f"next: biabench check-task {into / slug}", sep="\n")


@app.command("check-task")
def check_task(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A task folder; its demo.py is run.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the demo data.")] = 0,
) -> None:
    """Check a task folder: specification, instructions, demo data, replay 1.0, empty 0. One line per check.

    Exit status: 0 fit (warnings included), 1 a check failed, 2 misuse.
    """
    from biabench_plugin.checktask import check_task as check

    if not (folder / "task.yaml").is_file():
        stop(f"{folder}: no task folder; expected a folder with task.yaml")
    failed = False
    for finding in check(folder, seed):
        print(finding, flush=True)
        failed |= finding.verdict == "FAIL"
    if failed:
        raise typer.Exit(1)
