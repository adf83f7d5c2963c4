"""A task's input and evaluation folders: demo data built here, published data, or any folder laid out like them."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock

from biabench_plugin.data.cache import PUBLISHED_REVISION, DataError, TaskStore, any_published, cache_dir
from biabench_plugin.taskspec import TaskSpec

__all__ = ["Dataset", "DatasetError", "TaskData", "build_demo", "cache_dir", "demo_folder", "folder_digest"]


class DatasetError(ValueError):
    """A dataset cannot be used; the message says which folder was expected and what to do."""


@dataclass(frozen=True)
class TaskData:
    """Where one task's images and truth lie, and their identity."""

    kind: Literal["demo", "full", "folder"]
    revision: str
    input: Path
    truth: Path
    opaque: bool  # whether the path of `input` gives nothing away about the task

    @cached_property
    def digests(self) -> tuple[str, str]:
        """The SHA-256 digests of the input and of the truth folder, as they were when first asked for."""
        return folder_digest(self.input), folder_digest(self.truth)


@dataclass(frozen=True)
class Dataset:
    """What ``--dataset`` names."""

    kind: Literal["demo", "full", "folder"]
    seed: int = 0
    path: Path | None = None
    revision: str = PUBLISHED_REVISION  # of the published data

    @classmethod
    def parse(cls, text: str | None) -> Dataset:
        """Parse ``demo[:SEED]``, ``full[:REVISION]`` or a folder; ``None`` is demo until data are fetched."""
        if text is None:
            if any_published():
                raise DatasetError("the published data are present: say --dataset=demo or --dataset=full")
            return cls("demo")
        name, separator, seed = text.partition(":")
        if name == "demo" and (not separator or (seed.isdecimal() and seed.isascii())):
            return cls("demo", seed=int(seed or 0))
        if name == "full" and (seed or not separator):
            revision = seed or PUBLISHED_REVISION
            if not any_published(revision):
                raise DatasetError(
                    f"--dataset={text}: no published data of revision {revision} in {cache_dir()}; get them with: "
                    f"biabench data fetch, or name a folder of tasks with --dataset=PATH"
                )
            return cls("full", revision=revision)
        path = Path(text).expanduser().resolve()
        if not path.is_dir():
            raise DatasetError(f"--dataset={text}: expected demo, demo:SEED, full or an existing folder")
        return cls("folder", path=path)

    @property
    def name(self) -> str:
        """Short text for records and folder names."""
        if self.kind == "demo":
            return "demo" if self.seed == 0 else f"demo:{self.seed}"
        if self.kind == "full":
            return "full" if self.revision == PUBLISHED_REVISION else f"full:{self.revision}"
        return str(self.path)

    @property
    def default_repeats(self) -> int:
        return 1 if self.kind == "demo" else 3

    def locate(self, task: TaskSpec) -> TaskData | None:
        """Return the data of a task, building demo data when needed; ``None`` when a folder does not hold the task."""
        if self.kind == "demo":
            folder = demo_folder(task, self.seed)
            return TaskData("demo", f"demo-{self.seed}-{folder.name}", folder / "input", folder / "evaluation", True)
        if self.kind == "full":
            store = self._fetched(task)
            if store is None:
                return None
            return TaskData("full", self.revision, store.folder / "input", store.folder / "evaluation", True)
        found = self._folder(task)
        if found is None:
            return None
        if task.truth == "files" and not (found / "evaluation").is_dir():
            raise DatasetError(f"{found}: has input/ but no evaluation/; without truth nothing can be scored")
        return TaskData("folder", "local", found / "input", found / "evaluation", False)

    def holds(self, task: TaskSpec) -> bool:
        """Return whether the dataset has the task; demo data can be made for every one."""
        if self.kind == "full":
            return self._fetched(task) is not None
        return self.path is None or self._folder(task) is not None

    def _fetched(self, task: TaskSpec) -> TaskStore | None:
        """Return the published data of a task; ``None`` where they are not there as a whole."""
        store = TaskStore(task, self.revision)
        try:
            return store if store.complete() else None
        except DataError as error:
            raise DatasetError(str(error)) from error

    def _folder(self, task: TaskSpec) -> Path | None:
        """Return the folder of a task in a folder of tasks, called by its slug or its dataset id."""
        assert self.path is not None
        folders = (self.path / name for name in (task.slug, task.dataset_id))
        return next((folder for folder in folders if (folder / "input").is_dir()), None)

    def check(self, tasks: dict[str, TaskSpec]) -> None:
        """Raise when a folder holds none of the tasks."""
        if any(self.holds(task) for task in tasks.values()):
            return
        if self.kind == "full":
            raise DatasetError(
                f"--dataset={self.name}: no task was fetched as a whole; run: biabench data fetch (what is missing: "
                f"biabench data list)"
            )
        raise DatasetError(
            f"--dataset={self.path}: holds none of the tasks; expected <task>/input and <task>/evaluation, with "
            f"<task> one of {', '.join(sorted(tasks))} (or their dataset ids)"
        )


def load_simulator(folder: Path) -> Any:
    """Return a fresh module of a task folder's ``demo.py``, loaded by path."""
    spec = importlib.util.spec_from_file_location(f"biabench_demo_{folder.name}", folder / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def build_demo(task: TaskSpec, destination: Path, seed: int) -> None:
    """Run a task's simulator: writes ``destination/input`` and ``destination/evaluation``."""
    if not (task.folder / "demo.py").is_file():
        raise DatasetError(f"{task.folder / 'demo.py'}: there are no demo data; name a folder with --dataset=PATH")
    load_simulator(task.folder).make(destination, seed)


_version = cache(version)  # parses a package's metadata each time


def demo_path(task: TaskSpec, seed: int) -> Path:
    """Return where the demo data of a task and seed are cached; the folder's name gives nothing away."""
    digest = hashlib.sha256(f"{task.slug}:{seed}".encode())
    for path in (task.folder / "demo.py", *sorted(Path(__file__).resolve().parent.parent.glob("tasks/_*.py"))):
        if path.is_file():
            digest.update(path.read_bytes())
    for package in ("numpy", "scipy", "scikit-image", "tifffile", "imagecodecs"):
        digest.update(_version(package).encode())
    return cache_dir() / "demo" / digest.hexdigest()[:24]


def demo_folder(task: TaskSpec, seed: int) -> Path:
    """Return the cached demo data of a task and seed, building them once."""
    folder = demo_path(task, seed)
    root = folder.parent
    if folder.is_dir():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            building = Path(tempfile.mkdtemp(prefix="building-", dir=root))
            try:
                build_demo(task, building, seed)
                building.chmod(0o755)
                building.rename(folder)
            finally:
                shutil.rmtree(building, ignore_errors=True)
    return folder


def _files(folder: Path) -> Iterator[Path]:
    entered: set[Path] = set()
    for root, names, files in os.walk(folder, followlinks=True):
        real = Path(root).resolve()
        if real in entered:
            names.clear()  # a loop of links
            continue
        entered.add(real)
        yield from (Path(root, name) for name in files if Path(root, name).is_file())


def folder_digest(folder: Path) -> str:
    """Return the SHA-256 of a folder's relative paths and file contents.

    Contents are read once per machine: a digest is reused while no file's size or time changed.
    """
    if not folder.is_dir():
        return "absent"
    listing = [(path, path.stat()) for path in sorted(_files(folder))]
    signature = hashlib.sha256(
        json.dumps(
            [
                str(folder.resolve()),
                *((str(p.relative_to(folder)), s.st_size, s.st_mtime_ns, s.st_ino) for p, s in listing),
            ]
        ).encode()
    ).hexdigest()
    remembered = cache_dir() / "digests" / signature[:2] / signature
    if remembered.is_file():
        return remembered.read_text(encoding="ascii")
    digest = hashlib.sha256()
    for path, _ in listing:
        with path.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    remembered.parent.mkdir(parents=True, exist_ok=True)
    temporary = remembered.with_suffix(f".{os.getpid()}")
    temporary.write_text(digest.hexdigest(), encoding="ascii")
    temporary.replace(remembered)
    return digest.hexdigest()
