"""Commands on the published data: ``biabench data list|fetch|verify|where|remove|reconstruct``."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from biabench_plugin.cli._app import TaskFolders, app, find_tasks, stop
from biabench_plugin.data import fetch as machinery
from biabench_plugin.data.cache import (
    FIELDS,
    PUBLISHED_REVISION,
    DataError,
    Field,
    TaskStore,
    citation,
    needed_fields,
    published_root,
)
from biabench_plugin.data.fetch import Job
from biabench_plugin.taskspec import TaskSpec

data = typer.Typer(
    name="data",
    help="Fetch, check and find the published data of the tasks.",
    no_args_is_help=True,
    add_completion=False,
)
app.add_typer(data)

FAILED = 1

Names = Annotated[list[str] | None, typer.Argument(metavar="[TASK]...", help="Slugs or dataset ids; default: all.")]
Revision = Annotated[str, typer.Option("--revision", help="Tag, branch or commit of the published data.")]
Only = Annotated[str | None, typer.Option("--only", help="input or evaluation; default: both.")]


def _tasks(names: list[str] | None, extra: list[Path] | None) -> list[TaskSpec]:
    known = find_tasks(extra)
    if not names:
        return list(known.values())
    by_name = {spec.dataset_id: spec for spec in known.values()} | known
    if unknown := [name for name in names if name not in by_name]:
        stop(f"unknown task {', '.join(map(repr, unknown))}; tasks: {', '.join(known)}")
    return list({by_name[name].slug: by_name[name] for name in names}.values())


def _fields(only: str | None) -> tuple[Field, ...]:
    if only is None:
        return FIELDS
    if only not in FIELDS:
        stop(f"--only {only}: expected input or evaluation")
    return (only,)


def _megabytes(count: float) -> str:
    return f"{count / 1e6:,.1f}"


def _state(store: TaskStore) -> str:
    present, needed = store.present(), needed_fields(store.spec)
    if set(needed) <= set(present):
        return "fetched"
    return f"{' and '.join(present)} only" if present else "-"


@data.command("list")
def list_data(names: Names = None, revision: Revision = PUBLISHED_REVISION, tasks: TaskFolders = None) -> None:
    """Show licence, size and state of each task's data; needs no network."""
    table = Table(box=None, pad_edge=False)
    for column in ("task", "dataset id", "input MB", "evaluation MB", "licence", "state"):
        table.add_column(column, overflow="fold", justify="right" if column.endswith("MB") else "left")
    try:
        for spec in _tasks(names, tasks):
            store = TaskStore(spec, revision)
            receipt = store.receipt()
            sizes = [
                receipt.fields[field].bytes
                if receipt is not None and field in receipt.fields
                else spec.published_bytes(field)
                for field in FIELDS
            ]
            table.add_row(
                spec.slug,
                spec.dataset_id,
                *(_megabytes(size) if size else "-" for size in sizes),
                spec.source.license,
                _state(store),
            )
    except DataError as error:
        stop(str(error), FAILED)
    _console().print(table)
    print(f"Folder: {published_root(revision)}")


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 240, markup=False, highlight=False)


@data.command("fetch")
def fetch_data(
    names: Names = None,
    revision: Revision = PUBLISHED_REVISION,
    only: Only = None,
    source_dir: Annotated[
        Path | None, typer.Option("--from", help="Folder laid out like the data repository, used instead of the hub.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=32, help="Archives at the same time.")] = 4,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be fetched, and stop.")] = False,
    tasks: TaskFolders = None,
) -> None:
    """Fetch, check and unpack the data; goes on where it stopped, and does nothing where all is there.

    HF_ENDPOINT names another hub, HF_TOKEN is used where set.
    Exit status: 0 all is there, 1 something failed, 2 misuse.
    """
    from biabench_plugin.data.hub import Hub, Mirror, Source

    fields, specs = _fields(only), _tasks(names, tasks)
    try:
        wanted = machinery.missing(specs, revision, fields)
        if not wanted:
            print(f"all of it is there already: {published_root(revision)}")
            return
        source: Source = Mirror(source_dir) if source_dir is not None else Hub(revision)
        jobs, faults = machinery.plan(wanted, source, revision, fields)
        _announce(wanted, jobs, source.name, revision, source.commit)
        if dry_run:
            _end(faults)
            return
        machinery.check_space(jobs)
        reporter = Bars(Console(stderr=True)) if sys.stderr.isatty() else Lines()
        with reporter:
            faults += machinery.fetch(jobs, source, reporter, workers)
    except DataError as error:
        stop(str(error), FAILED)
    except KeyboardInterrupt:
        stop("stopped; the same command goes on where it was", 130)
    _end(faults)


def _announce(specs: list[TaskSpec], jobs: list[Job], where: str, revision: str, commit: str | None) -> None:
    """Say what comes, from where, and under which licence, before anything is fetched."""
    print(f"From {where}, revision {revision}" + (f", commit {commit}" if commit else ""))
    table = Table(box=None, pad_edge=False)
    for column in ("task", "archive MB", "unpacked MB", "licence"):
        table.add_column(column, overflow="fold", justify="right" if column.endswith("MB") else "left")
    for spec in specs:
        mine = [job for job in jobs if job.store.spec.slug == spec.slug]
        sizes = (sum(job.zip_bytes or 0 for job in mine), sum(job.unpacked for job in mine))
        table.add_row(spec.slug, *map(_megabytes, sizes), spec.source.license)
    _console().print(table)
    for spec in specs:
        print(f"Cite for {spec.slug}: {citation(spec)}")
    left = sum(job.waiting for job in jobs)
    print(f"{len(jobs)} archives, {_megabytes(left)} MB to transfer", flush=True)


def _end(faults: list[str]) -> None:
    for fault in faults:
        print(f"biabench: {fault}", file=sys.stderr)
    if len(faults) > 1:
        print(f"biabench: {len(faults)} archives failed", file=sys.stderr)
    if faults:
        raise typer.Exit(FAILED)


class Lines:
    """A line when an archive ended, and one per tenth of it: for logs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, int] = {}

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def transferred(self, job: Job, count: int) -> None:
        with self._lock:
            before = self._seen.get(job.path, 0)
            self._seen[job.path] = before + count
        total = job.waiting
        if total > 50_000_000 and before * 10 // total < (before + count) * 10 // total:
            print(f"{job.path}: {_megabytes(before + count)} of {_megabytes(total)} MB", flush=True)

    def unpacking(self, job: Job, total: int) -> None:
        pass

    def unpacked(self, job: Job, count: int) -> None:
        pass

    def finished(self, job: Job, error: str | None) -> None:
        print(f"{job.path}: {'done' if error is None else 'FAILED'}", flush=True)


class Bars:
    """A bar per archive: for terminals."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._lock = threading.Lock()
        self._bars: dict[str, TaskID] = {}

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _bar(self, job: Job) -> TaskID:
        with self._lock:
            if job.path not in self._bars:
                name = f"{job.store.spec.slug} {job.field}"
                self._bars[job.path] = self._progress.add_task(name, total=job.waiting)
            return self._bars[job.path]

    def transferred(self, job: Job, count: int) -> None:
        self._progress.advance(self._bar(job), count)

    def unpacking(self, job: Job, total: int) -> None:
        name = f"{job.store.spec.slug} {job.field}, unpacking"
        self._progress.reset(self._bar(job), total=total, description=name)

    def unpacked(self, job: Job, count: int) -> None:
        self._progress.advance(self._bar(job), count)

    def finished(self, job: Job, error: str | None) -> None:
        self._progress.update(self._bar(job), visible=error is None)
        self._progress.console.print(f"{job.path}: {'done' if error is None else 'FAILED'}", markup=False)


@data.command("verify")
def verify_data(
    names: Names = None,
    revision: Revision = PUBLISHED_REVISION,
    only: Only = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also open every file, compare it with task.yaml, and replay the truth.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option("--in", help="Folder of <task>/input and <task>/evaluation instead of the cache."),
    ] = None,
    tasks: TaskFolders = None,
) -> None:
    """Compare every file with its SHA-256 at the fetch. Without TASK: all that was fetched.

    Exit status: 0 all is as it was, 1 a file differs or is missing, or nothing was fetched, 2 misuse.
    """
    specs, fields = _tasks(names, tasks), _fields(only)
    if only is not None and deep:
        stop("--deep replays the truth and needs both folders; leave --only out")
    if folder is not None:
        _verify_folder(specs, folder, bool(names), deep)
        return
    faults = checked = 0
    try:
        for spec in specs:
            store = TaskStore(spec, revision)
            if not names and not store.present():
                continue
            checked += 1
            found = 0
            for fault in machinery.verify(store, fields):
                found += 1
                print(f"FAIL  {fault}", flush=True)
            if not found:
                print(f"ok    {spec.slug}: as fetched", flush=True)
                if deep:
                    found += _deep(spec, store.folder / "input", store.folder / "evaluation")
            faults += found
    except DataError as error:
        stop(str(error), FAILED)
    if not checked:
        stop(f"nothing of revision {revision} was fetched; run: biabench data fetch", FAILED)
    if faults:
        raise typer.Exit(FAILED)


def _verify_folder(specs: list[TaskSpec], folder: Path, named: bool, deep: bool) -> None:
    from biabench_plugin.datasets import Dataset, DatasetError

    if not deep:
        stop("--in DIR has no checksums to compare with; add --deep")
    if not folder.is_dir():
        stop(f"--in {folder}: no such folder")
    faults = checked = 0
    for spec in specs:
        try:
            found = Dataset("folder", path=folder.resolve()).locate(spec)
        except DatasetError as error:
            stop(str(error), FAILED)
        if found is None:
            if named:
                stop(f"{folder}: holds neither {spec.slug}/input nor {spec.dataset_id}/input", FAILED)
            continue
        checked += 1
        faults += _deep(spec, found.input, found.truth)
    if not checked:
        stop(f"{folder}: holds none of the tasks", FAILED)
    if faults:
        raise typer.Exit(FAILED)


def _deep(spec: TaskSpec, input_dir: Path, truth: Path) -> int:
    from biabench_plugin.data.verify import deep

    faults = 0
    for finding in deep(spec, input_dir, truth, demo=False):
        print(f"{finding.verdict:<5} {spec.slug} {finding.check}: {finding.message}", flush=True)
        faults += finding.verdict == "FAIL"
    return faults


@data.command("where")
def where_data(
    names: Names = None, revision: Revision = PUBLISHED_REVISION, only: Only = None, tasks: TaskFolders = None
) -> None:
    """Print the folder of each task (or, with --only, of its input or evaluation); without TASK: of all of them."""
    if not names:
        print(published_root(revision))
        return
    fields = _fields(only)
    lacking = []
    for spec in _tasks(names, tasks):
        store = TaskStore(spec, revision)
        try:
            present = store.present()
        except DataError as error:
            stop(str(error), FAILED)
        wanted = [field for field in fields if only is not None or field in needed_fields(spec)]
        if not set(wanted) <= set(present):
            lacking.append(spec.slug)
            continue
        print(store.folder if only is None else store.folder / only)
    if lacking:
        stop(f"not fetched: {', '.join(lacking)}; run: biabench data fetch {' '.join(lacking)}", FAILED)


@data.command("remove")
def remove_data(
    names: Names = None,
    revision: Revision = PUBLISHED_REVISION,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before everything is removed.")] = False,
    tasks: TaskFolders = None,
) -> None:
    """Delete the data of tasks from the cache; without TASK: of all of them, after asking."""
    if not names and not yes:
        typer.confirm(f"Remove all data of revision {revision} below {published_root(revision)}?", abort=True)
    for spec in _tasks(names, tasks):
        store = TaskStore(spec, revision)
        if store.folder.is_dir():
            print(f"{spec.slug}: {_megabytes(store.remove())} MB removed")
        elif names:
            print(f"{spec.slug}: nothing there")
    if not names:
        from biabench_plugin.data.hub import remove_downloads

        print(f"unfinished transfers: {_megabytes(remove_downloads())} MB removed")


@data.command("reconstruct")
def reconstruct_data(
    task: Annotated[
        str | None, typer.Argument(help="Slug or dataset id; without: say which tasks can be rebuilt.")
    ] = None,
    into: Annotated[
        Path | None, typer.Option("--into", help="Folder of tasks to write to; default: in the cache.")
    ] = None,
    source_dir: Annotated[
        Path | None, typer.Option("--from", help="Folder with the sources, downloaded by hand; zips may stay packed.")
    ] = None,
    tasks: TaskFolders = None,
) -> None:
    """Rebuild a task's data from its study's own archive, then check it as verify --deep does.

    The result is for --dataset=PATH. Exit status: 0 rebuilt and as declared, 1 not, 2 misuse.
    """
    from biabench_plugin.data.reconstruct import default_root, reconstruct, reconstructible

    if task is None:
        for spec in _tasks(None, tasks):
            try:
                print(f"yes   {spec.slug}: {reconstructible(spec).home}")
            except DataError as error:
                print(f"no    {error}")
        return
    (spec,) = _tasks([task], tasks)
    try:
        folder = (into or default_root()).resolve() / spec.dataset_id
        made = reconstruct(spec, folder, source_dir, lambda line: print(line, flush=True))
    except DataError as error:
        stop(str(error), FAILED)
    except OSError as error:
        stop(f"{error.filename or 'cannot write'}: {error.strerror}", FAILED)
    print(f"Cite: {citation(spec)}")
    for difference in made.differences:
        print(f"differs: {difference}")
    faults = _deep(spec, made.input, made.evaluation)
    print(f"{made.folder}\nrun on it with: pytest --agent=NAME --dataset={made.folder.parent}")
    if faults:
        raise typer.Exit(FAILED)
