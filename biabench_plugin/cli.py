"""The ``biabench`` command: everything that needs no pytest session."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from biabench_plugin import checkout
from biabench_plugin.taskspec import Subtask, TaskError, TaskSpec, load_tasks

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


def _stop(message: str, code: int = MISUSE) -> NoReturn:
    print(f"biabench: {message}", file=sys.stderr)
    raise typer.Exit(code)


def _tasks(extra: list[Path] | None) -> dict[str, TaskSpec]:
    try:
        return load_tasks(checkout.TASKS, *(extra or ()))
    except TaskError as error:
        _stop(str(error))


def _task(name: str, extra: list[Path] | None) -> TaskSpec:
    tasks = _tasks(extra)
    for task in tasks.values():
        if name in (task.slug, task.dataset_id):
            return task
    _stop(f"unknown task {name!r}; tasks: {', '.join(tasks)}")


@app.callback()
def _start() -> None:
    try:
        checkout.check_rooms()
    except RuntimeError as error:
        _stop(str(error))


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
    found = sorted(_tasks(tasks).values(), key=lambda task: (order[task.difficulty], task.slug))
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

    spec = _task(task, tasks)
    if any((dest / name).exists() for name in ("input", "evaluation")):
        _stop(f"{dest}: already holds input/ or evaluation/; choose an empty folder")
    try:
        dest.mkdir(parents=True, exist_ok=True)
        build_demo(spec, dest, seed)
    except (DatasetError, OSError) as error:
        _stop(str(error))
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

    spec = _task(task, tasks)
    for name, folder in (("SUBMISSION", submission), ("--truth", truth)):
        if not folder.is_dir():
            _stop(f"{name} {folder}: no such folder")
    if input_dir is not None and not input_dir.is_dir():
        _stop(f"--input {input_dir}: no such folder")
    beside = truth.resolve().parent / "input"
    chosen = input_dir or (beside if beside.is_dir() else None)
    try:
        result = evaluate_bounded(spec.outcome, spec.deliverables, submission, truth, chosen)
    except TruthError as error:
        _stop(f"truth cannot be used: {error}", UNREADABLE_TRUTH)
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


@app.command()
def report(
    paths: Annotated[list[Path], typer.Argument(help="Campaign folders and JUnit XML files, in any mix.")],
    out: Annotated[Path | None, typer.Option(help="Folder to write to; default: the first campaign folder.")] = None,
    rank_by: Annotated[str, typer.Option(help="outcome or strict")] = "outcome",
    tasks: TaskFolders = None,
) -> None:
    """Aggregate campaigns: leaderboard.json, report/index.html and a table."""
    from biabench_plugin.records import RecordError
    from biabench_plugin.report import build

    if rank_by not in ("outcome", "strict"):
        _stop(f"--rank-by {rank_by}: expected outcome or strict")
    for path in paths:
        if not path.exists():
            _stop(f"{path}: no such campaign folder or JUnit file")
    folder = out or (paths[0] if paths[0].is_dir() else paths[0].parent)
    try:
        made = build(paths, folder, _tasks(tasks), rank_by=rank_by)  # type: ignore[arg-type]
    except (RecordError, OSError) as error:
        _stop(str(error))
    print("\n".join(made.terminal_lines()))


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
        _stop(str(error))
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
        _stop(f"{folder}: no task folder; expected a folder with task.yaml")
    failed = False
    for finding in check(folder, seed):
        print(finding, flush=True)
        failed |= finding.verdict == "FAIL"
    if failed:
        raise typer.Exit(1)


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
