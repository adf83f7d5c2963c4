"""Fetch, check and remove published data: what the commands do, without the terminal."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from biabench_plugin.data.cache import (
    FIELDS,
    DataError,
    Field,
    FieldReceipt,
    FileEntry,
    TaskStore,
    cache_dir,
    needed_fields,
)
from biabench_plugin.data.extract import extract, unpacked_bytes
from biabench_plugin.data.hub import Manifest, Source, sha256_of
from biabench_plugin.taskspec import TaskSpec

RESERVE = 256 << 20  # bytes of the disk that are left alone


@dataclass(frozen=True)
class Job:
    """One archive to fetch."""

    store: TaskStore
    field: Field
    sha256: str
    zip_bytes: int | None
    waiting: int

    @property
    def path(self) -> str:
        """Path in the data repository."""
        return f"{self.store.spec.dataset_id}/{self.field}.zip"

    @property
    def unpacked(self) -> int:
        """Bytes that the folder will take, as far as is known before the archive is here."""
        published = self.store.spec.published_bytes(self.field)
        return max(published, self.zip_bytes or 0)


class Reporter(Protocol):
    """Hears how a fetch goes; called from several threads."""

    def transferred(self, job: Job, count: int) -> None: ...

    def unpacking(self, job: Job, total: int) -> None: ...

    def unpacked(self, job: Job, count: int) -> None: ...

    def finished(self, job: Job, error: str | None) -> None: ...


class Cancelled(Exception):
    """The user stopped the command."""


def missing(specs: Iterable[TaskSpec], revision: str, fields: Sequence[Field] = FIELDS) -> list[TaskSpec]:
    """Return the tasks of which a wanted folder is not in the cache; needs no network."""
    return [spec for spec in specs if _absent(TaskStore(spec, revision), fields)]


def _absent(store: TaskStore, fields: Sequence[Field]) -> list[Field]:
    present = store.present()
    known = store.receipt()
    needed = needed_fields(store.spec)
    # without a receipt nobody knows yet whether a task without truth has an evaluation archive
    return [field for field in fields if field not in present and (field in needed or known is None)]


def plan(
    specs: Iterable[TaskSpec], source: Source, revision: str, fields: Sequence[Field]
) -> tuple[list[Job], list[str]]:
    """Return what has to be fetched, and one sentence per wanted thing that the source does not have."""
    manifest: Manifest = source.manifest()
    jobs: list[Job] = []
    faults: list[str] = []
    for spec in specs:
        store = TaskStore(spec, revision)
        listed = manifest.tasks.get(spec.dataset_id)
        if listed is None:
            faults.append(f"{spec.slug}: {source.name} (revision {revision}) lists no task {spec.dataset_id}")
            continue
        for field in _absent(store, fields):
            entry = getattr(listed, field)
            if entry is None:
                if field in needed_fields(spec):
                    faults.append(f"{spec.slug}: the manifest lists no {field} archive, which the task needs")
                continue
            path = f"{spec.dataset_id}/{field}.zip"
            try:
                size = source.size(path)
                jobs.append(Job(store, field, entry.zip_sha256, size, source.waiting(path, entry.zip_sha256)))
            except DataError as error:
                faults.append(f"{spec.slug}: {error}")
    return jobs, faults


def check_space(jobs: Sequence[Job]) -> None:
    """Raise where the disk of the cache cannot take what is wanted."""
    folder = next(path for path in (cache_dir(), *cache_dir().parents) if path.is_dir())
    free = shutil.disk_usage(folder).free
    needed = sum(job.waiting + job.unpacked for job in jobs) + RESERVE
    if needed > free:
        raise DataError(
            f"{folder}: {needed / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free; make room, name fewer tasks or "
            f"--only, or put the cache elsewhere with BIABENCH_CACHE"
        )


def fetch(jobs: Sequence[Job], source: Source, reporter: Reporter, workers: int = 4) -> list[str]:
    """Fetch, check and unpack archives side by side; return one sentence per failure.

    A failure leaves the others alone. What was transferred of it stays for the next time, unless it was wrong.
    """
    stopped = threading.Event()
    failures: list[str] = []
    with ThreadPoolExecutor(max_workers=workers) as pool:
        waiting: dict[Future[None], Job] = {pool.submit(_one, job, source, reporter, stopped): job for job in jobs}
        try:
            for job, error in _ended(waiting):
                if error is not None:
                    failures.append(f"{job.store.spec.slug} {job.field}: {error}")
                reporter.finished(job, error)
        except BaseException:
            stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return sorted(failures)


def _ended(waiting: dict[Future[None], Job]) -> Iterator[tuple[Job, str | None]]:
    while waiting:
        done, _ = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)  # the timeout lets Ctrl-C through
        for future in done:
            job = waiting.pop(future)
            try:
                future.result()
                yield job, None
            except DataError as error:
                yield job, str(error)
            except OSError as error:
                yield job, f"{error.filename or job.store.folder}: {error.strerror or error}"


def _one(job: Job, source: Source, reporter: Reporter, stopped: threading.Event) -> None:
    def moved(count: int) -> None:
        if stopped.is_set():
            raise Cancelled
        reporter.transferred(job, count)

    def written(count: int) -> None:
        if stopped.is_set():
            raise Cancelled
        reporter.unpacked(job, count)

    with job.store.locked(job.field):
        if job.field in job.store.present():  # another process was faster
            return
        with source.archive(job.path, job.sha256, moved) as archive:
            size = unpacked_bytes(archive)
            reporter.unpacking(job, size)
            free = shutil.disk_usage(job.store.folder.parent).free
            if size + RESERVE > free:
                raise DataError(f"{size / 1e9:.1f} GB are needed to unpack it, {free / 1e9:.1f} GB are free")
            staged = job.store.staging(job.field)
            files = extract(archive, job.field, staged, advance=written)
            entry = FieldReceipt(
                zip_sha256=job.sha256, zip_bytes=archive.stat().st_size, fetched=datetime.now(UTC), files=files
            )
            job.store.switch(job.field, staged, entry, source=source.name, commit=source.commit)


def verify(store: TaskStore, fields: Sequence[Field] = FIELDS) -> Iterator[str]:
    """Yield one sentence per file that is not what was unpacked: missing, foreign, or of another size or SHA-256."""
    receipt = store.receipt()
    present = store.present()
    for field in fields:
        if field not in present:
            if field in needed_fields(store.spec):
                yield f"{store.spec.slug} {field}: not fetched completely; biabench data fetch {store.spec.slug}"
            continue
        assert receipt is not None
        folder, listed = store.folder / field, receipt.fields[field].files
        below = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
        found = {path.relative_to(folder).as_posix(): path for path in below}
        for name in sorted(listed.keys() | found.keys()):
            if fault := _fault(found.get(name), listed.get(name)):
                yield f"{store.spec.slug} {field}/{name}: {fault}"


def _fault(path: Path | None, wanted: FileEntry | None) -> str | None:
    if wanted is None:
        return "was not in the archive"
    if path is None:
        return "is missing"
    if path.is_symlink() or not path.is_file():
        return "is a link or no regular file"
    if (size := path.stat().st_size) != wanted.bytes:
        return f"expected {wanted.bytes} bytes, found {size}"
    if (digest := sha256_of(path)) != wanted.sha256:
        return f"expected SHA-256 {wanted.sha256}, found {digest}"
    return None
