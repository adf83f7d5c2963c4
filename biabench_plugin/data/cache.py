"""Where published data lie on this machine, and what is known about them.

One cache serves all campaigns::

    <cache>/full/downloads/<sha256>.zip[.part]        archives on their way
    <cache>/full/<revision>/<opaque name>/
        input/ evaluation/                            what the archives held, byte for byte
        dataset.json                                  where from, licence, citation, every file with size and SHA-256
        NOTICE.txt                                    licence and citation for a person

A folder counts as fetched only once ``dataset.json`` lists it, which is written last: whatever was interrupted is
simply not there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import platformdirs
from filelock import FileLock
from pydantic import BaseModel, ConfigDict, ValidationError

from biabench_plugin.taskspec import TaskSpec

PUBLISHED_REVISION = "v1.0"
Field = Literal["input", "evaluation"]
FIELDS: tuple[Field, ...] = ("input", "evaluation")


class DataError(ValueError):
    """Published data cannot be fetched or used; the message names the file and what to do."""


class FileEntry(BaseModel):
    model_config = ConfigDict(extra="forbid")
    bytes: int
    sha256: str


class FieldReceipt(BaseModel):
    """What one archive held when it was unpacked."""

    model_config = ConfigDict(extra="forbid")
    zip_sha256: str
    zip_bytes: int
    fetched: datetime
    files: dict[str, FileEntry]  # by path below the folder, with /

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())


class TaskReceipt(BaseModel):
    """``dataset.json``: the data of one task."""

    model_config = ConfigDict(extra="forbid")
    schema_version: Literal[1] = 1
    task: str
    dataset_id: str
    source: str
    revision: str
    commit: str | None
    license: str
    citation: str
    fields: dict[Field, FieldReceipt] = {}


def cache_dir() -> Path:
    """Folder for demo and published data: ``BIABENCH_CACHE`` or the user's cache folder."""
    return Path(os.environ.get("BIABENCH_CACHE") or platformdirs.user_cache_dir("biabench")).resolve()


def published_root(revision: str = PUBLISHED_REVISION) -> Path:
    """Folder of one revision of the published data."""
    return cache_dir() / "full" / quote(revision, safe="")


def downloads() -> Path:
    """Folder of archives that are not unpacked yet."""
    return cache_dir() / "full" / "downloads"


def any_published(revision: str = PUBLISHED_REVISION) -> bool:
    """Return whether the data of any task are there, in part or as a whole."""
    return any(published_root(revision).glob("*/dataset.json"))


def citation(spec: TaskSpec) -> str:
    """Return one line that names the study and its data."""
    return f"{spec.source.study}. doi:{spec.source.doi}. Data: {spec.source.accession}" + (
        f", {spec.source.url}" if spec.source.url else ""
    )


def needed_fields(spec: TaskSpec) -> tuple[Field, ...]:
    """Return the folders without which a task cannot run and be scored."""
    return FIELDS if spec.truth == "files" else ("input",)


class TaskStore:
    """The published data of one task and revision in the cache.

    Parameters
    ----------
    spec
        The task.
    revision
        A tag, branch or commit of the published data.

    Attributes
    ----------
    folder : Path
        Its name gives nothing away about the task, so that ``folder/input`` can be bound for an agent as it is.
    """

    def __init__(self, spec: TaskSpec, revision: str = PUBLISHED_REVISION) -> None:
        self.spec = spec
        self.revision = revision
        name = hashlib.sha256(f"{spec.dataset_id}@{revision}".encode()).hexdigest()[:24]
        self.folder = published_root(revision) / name

    def receipt(self) -> TaskReceipt | None:
        """Read ``dataset.json``; ``None`` where nothing was fetched."""
        path = self.folder / "dataset.json"
        try:
            return TaskReceipt.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise DataError(
                f"{path}: is damaged ({error.errors()[0]['msg']}); remove it with: biabench data remove "
                f"{self.spec.slug} --revision {self.revision}"
            ) from error

    def present(self) -> tuple[Field, ...]:
        """Return the folders that were fetched completely."""
        receipt = self.receipt()
        if receipt is None:
            return ()
        return tuple(field for field in FIELDS if field in receipt.fields and (self.folder / field).is_dir())

    def complete(self) -> bool:
        """Return whether everything that the task needs is there."""
        return set(needed_fields(self.spec)) <= set(self.present())

    @contextlib.contextmanager
    def locked(self, *fields: Field) -> Iterator[None]:
        """Hold the right to fill or remove folders, against other processes and threads."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            for field in fields:
                stack.enter_context(FileLock(f"{self.folder}.{field}.lock"))
            yield

    def staging(self, field: Field) -> Path:
        """Return a new empty folder beside the final one, for :meth:`switch`; clears those of dead processes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob(f".{field}-*"):
            _delete(left)
        return Path(tempfile.mkdtemp(prefix=f".{field}-", dir=self.folder))

    def switch(self, field: Field, staged: Path, entry: FieldReceipt, *, source: str, commit: str | None) -> None:
        """Put a verified folder in the place of the one that was there; the caller holds the field's lock."""
        with FileLock(f"{self.folder}.lock"):
            self._switch(field, staged, entry, source, commit)

    def _switch(self, field: Field, staged: Path, entry: FieldReceipt, source: str, commit: str | None) -> None:
        spec, before = self.spec, self.receipt()
        fields = {} if before is None else {name: old for name, old in before.fields.items() if name != field}
        receipt = TaskReceipt(
            task=spec.slug,
            dataset_id=spec.dataset_id,
            source=source,
            revision=self.revision,
            commit=commit,
            license=spec.source.license,
            citation=citation(spec),
            fields=fields,
        )
        final = self.folder / field
        if final.exists():
            self._write(receipt)  # not listed while two folders change places
            old = self.folder / f".{field}-old"
            _delete(old)
            final.rename(old)
            _delete(old)
        staged.chmod(0o755)
        staged.rename(final)
        _sync_folder(self.folder)
        self._write(receipt.model_copy(update={"fields": {**fields, field: entry}}))

    def _write(self, receipt: TaskReceipt) -> None:
        size = sum(entry.bytes for entry in receipt.fields.values())
        notice = (
            f"{self.spec.label} ({receipt.dataset_id})\n\nLicence: {receipt.license}\nCitation: {receipt.citation}\n"
            f"Fetched from: {receipt.source}, revision {receipt.revision}"
            + (f" (commit {receipt.commit})" if receipt.commit else "")
            + f"\nSize: {size / 1e6:.1f} MB\n\nThe licence above holds for every copy.\n"
        )
        write_durably(self.folder / "NOTICE.txt", notice.encode())
        write_durably(self.folder / "dataset.json", receipt.model_dump_json(indent=1).encode())

    def remove(self) -> int:
        """Delete the data; return the bytes they took. ``dataset.json`` goes first."""
        with self.locked(*FIELDS):
            size = sum(path.lstat().st_size for path in self.folder.rglob("*") if path.is_file())
            (self.folder / "dataset.json").unlink(missing_ok=True)
            _delete(self.folder)
        return size


def write_durably(path: Path, content: bytes) -> None:
    """Write a file so that after a crash it is the old one or the new one, whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for folder, _, _ in os.walk(path):
            Path(folder).chmod(0o755)
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
