"""Where published data come from: the Hugging Face hub, or a folder with the same files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from biabench_plugin.data.cache import DataError, downloads

REPOSITORY = "BIABench/BIABench"
MANIFEST = "manifest.json"
Advance = Callable[[int], None]


class ZipEntry(BaseModel):
    model_config = ConfigDict(extra="ignore")
    zip_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class ManifestTask(BaseModel):
    """Archives of a task; a field that is missing says that the task has no such data."""

    model_config = ConfigDict(extra="ignore")
    input: ZipEntry | None = None
    evaluation: ZipEntry | None = None


class Manifest(BaseModel):
    """``manifest.json`` at the root of the data repository; keys that we do not know are passed over."""

    model_config = ConfigDict(extra="ignore")
    tasks: dict[str, ManifestTask]

    @classmethod
    def read(cls, content: bytes, where: str) -> Manifest:
        try:
            return cls.model_validate_json(content)
        except ValidationError as error:
            fault = error.errors()[0]
            place = ".".join(map(str, fault["loc"])) or "the whole file"
            raise DataError(f"{where}: is not a manifest of the published data: {place}: {fault['msg']}") from error


class Source(Protocol):
    """A place that holds ``manifest.json`` and ``<dataset id>/<field>.zip``."""

    name: str
    commit: str | None

    def manifest(self) -> Manifest:
        """Read the manifest."""

    def size(self, path: str) -> int | None:
        """Return the bytes of a file; ``None`` where the place does not say. Raise where there is no such file."""

    def waiting(self, path: str, sha256: str) -> int:
        """Return how many bytes of a file still have to come."""

    def archive(self, path: str, sha256: str, advance: Advance) -> AbstractContextManager[Path]:
        """Lend a local copy of a file with this digest; after an error it stays for the next time."""


def sha256_of(path: Path, advance: Advance = lambda _: None) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
            advance(0)  # lets a caller stop us
    return digest.hexdigest()


class Mirror:
    """A local folder laid out like the data repository (``--from DIR``); archives are read where they lie."""

    commit: str | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.name = str(self.folder)
        if not self.folder.is_dir():
            raise DataError(f"--from {folder}: no such folder; expected {MANIFEST} and <task>/input.zip below it")

    def manifest(self) -> Manifest:
        path = self.folder / MANIFEST
        try:
            return Manifest.read(path.read_bytes(), str(path))
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}; a mirror needs it at its top") from error

    def size(self, path: str) -> int | None:
        try:
            return (self.folder / path).stat().st_size
        except OSError as error:
            raise DataError(
                f"{self.folder / path}: listed in {MANIFEST}, but cannot be read: {error.strerror}"
            ) from error

    def waiting(self, path: str, sha256: str) -> int:
        return 0

    @contextlib.contextmanager
    def archive(self, path: str, sha256: str, advance: Advance) -> Iterator[Path]:
        local = self.folder / path
        self.size(path)
        if (found := sha256_of(local, advance)) != sha256:
            raise DataError(f"{local}: wrong checksum: expected SHA-256 {sha256}, found {found}")
        yield local


class Hub:
    """The data repository on the Hugging Face hub, at one commit.

    ``HF_ENDPOINT`` and ``HF_TOKEN`` are honoured; the data are public and need no token. Transfers go over plain HTTP
    with ranges, because the client's own ``hf_hub_download`` begins anew after a process died, and these files are big.

    Parameters
    ----------
    revision
        Tag, branch or commit.
    repository
        Name of the dataset repository.
    """

    def __init__(self, revision: str, repository: str = REPOSITORY) -> None:
        from huggingface_hub import HfApi, constants
        from huggingface_hub.utils import logging

        logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # its retries are not ours to report
        self.endpoint = (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
        self.repository = repository
        self.revision = revision
        self.name = f"{self.endpoint}/datasets/{repository}"
        with self._errors("the list of files"):
            info = HfApi(endpoint=self.endpoint).dataset_info(repository, revision=revision, files_metadata=True)
        if not info.sha:
            raise DataError(f"{self.name}: names no commit for revision {revision!r}")
        self.commit: str | None = info.sha
        self._sizes = {file.rfilename: file.size for file in info.siblings or ()}

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Turn the client's errors into one line each."""
        import httpx2
        from huggingface_hub import errors

        where = f"{self.name} (revision {self.revision})"
        try:
            yield
        except errors.RevisionNotFoundError as error:
            raise DataError(f"{self.name}: unknown revision {self.revision!r}; see its tags there") from error
        except errors.GatedRepoError as error:
            raise DataError(f"{where}: access needs a token (HF_TOKEN) of an account that was let in") from error
        except errors.RepositoryNotFoundError as error:
            raise DataError(f"{self.name}: no such dataset, or it is not public (HF_TOKEN, HF_ENDPOINT)") from error
        except errors.EntryNotFoundError as error:
            raise DataError(f"{where}: {what} is missing there") from error
        except errors.OfflineModeIsEnabled as error:
            raise DataError(f"{where}: HF_HUB_OFFLINE is set, and {what} is not in the cache yet") from error
        except errors.HfHubHTTPError as error:
            raise DataError(f"{where}: {what}: {str(error).splitlines()[0]}") from error
        except httpx2.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise DataError(
                f"{where}: {what} cannot be fetched: {reason}; check the network and HF_ENDPOINT, then run the same "
                f"command again: it goes on where it stopped"
            ) from error

    def _url(self, path: str) -> str:
        from huggingface_hub import hf_hub_url

        return hf_hub_url(self.repository, path, repo_type="dataset", revision=self.commit, endpoint=self.endpoint)

    def manifest(self) -> Manifest:
        with tempfile.TemporaryDirectory(prefix="biabench-manifest-") as room:
            path = Path(room) / MANIFEST
            self._transfer(MANIFEST, path, lambda _: None)
            return Manifest.read(path.read_bytes(), f"{self.name}/{MANIFEST}")

    def size(self, path: str) -> int | None:
        if path not in self._sizes:
            raise DataError(f"{self.name} (revision {self.revision}): {path} is missing there")
        return self._sizes[path]

    def _places(self, sha256: str) -> tuple[Path, Path]:
        return downloads() / f"{sha256}.zip", downloads() / f"{sha256}.zip.part"

    def waiting(self, path: str, sha256: str) -> int:
        whole, part = self._places(sha256)
        if whole.is_file():
            return 0
        return max((self.size(path) or 0) - (part.stat().st_size if part.is_file() else 0), 0)

    @contextlib.contextmanager
    def archive(self, path: str, sha256: str, advance: Advance) -> Iterator[Path]:
        whole, part = self._places(sha256)
        whole.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{whole}.lock"):  # two tasks, or two revisions, may share an archive
            if not whole.is_file():
                self._transfer(path, part, advance)
                if (found := sha256_of(part, advance)) != sha256:
                    part.unlink()
                    raise DataError(
                        f"{self.name}/{path}: wrong checksum: {MANIFEST} says SHA-256 {sha256}, the file that came has "
                        f"{found}; it was thrown away"
                    )
                part.rename(whole)
            yield whole
            whole.unlink()

    def _transfer(self, path: str, target: Path, advance: Advance) -> None:
        """Fetch a file into ``target``, going on behind what is there already."""
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils._headers import build_hf_headers
        from huggingface_hub.utils.tqdm import tqdm

        class Counter(tqdm):
            """Hands the client's count of bytes on; shows nothing itself."""

            def __init__(self, *args: Any, **settings: Any) -> None:
                super().__init__(*args, **{**settings, "disable": True})  # type: ignore[no-untyped-call]

            def update(self, n: float | None = 1) -> bool | None:
                advance(int(n or 0))
                return None

        expected = self.size(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("ab") as stream:
            have = stream.tell()
            if expected is not None and have > expected:
                stream.truncate(0)
                have = 0
            try:
                with self._errors(path):
                    http_get(
                        self._url(path),
                        stream,
                        resume_size=have,
                        expected_size=expected,
                        headers=build_hf_headers(),
                        displayed_filename=path,
                        tqdm_class=Counter,
                    )
            except DataError:
                raise
            except OSError as error:
                stream.flush()
                if error.errno is not None:  # our side: disk full, no permission
                    raise DataError(f"{target}: cannot be written: {error.strerror}") from error
                raise DataError(
                    f"{self.name}/{path}: the transfer was truncated: {target.stat().st_size} of {expected} bytes "
                    f"came; run the same command again: it goes on where it stopped"
                ) from error
            stream.flush()
            os.fsync(stream.fileno())


def remove_downloads() -> int:
    """Delete what was transferred in part; return its bytes."""
    size = 0
    for path in downloads().glob("*.zip*"):
        size += path.stat().st_size
        path.unlink()
    return size
