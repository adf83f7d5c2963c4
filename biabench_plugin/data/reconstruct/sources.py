"""Get the files of a study's archive, and look into them: plain files and members of zip archives alike."""

from __future__ import annotations

import html
import logging
import re
import shutil
import urllib.parse
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from biabench_plugin.data.cache import DataError

ZENODO = "https://zenodo.org"
BIOSTUDIES = "https://ftp.ebi.ac.uk/biostudies/fire"
GITHUB_RAW = "https://raw.githubusercontent.com"
BBBC = "https://data.broadinstitute.org/bbbc"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Remote:
    """A file of an archive, and what is known about it.

    Attributes
    ----------
    name
        Path to keep it under.
    url
        Where it lies.
    checksum
        ``algorithm:digest``, as archives state it; ``None`` where unknown.
    bytes
        Its size; ``None`` where unknown.
    """

    name: str
    url: str
    checksum: str | None = None
    bytes: int | None = None


def download(files: Iterable[Remote], folder: Path, say: Say) -> None:
    """Fetch files with pooch; what is there and right is kept.

    Raises
    ------
    DataError
        A file cannot be fetched, or is not what its archive says.
    """
    import pooch
    import requests

    pooch.get_logger().setLevel(logging.ERROR)
    for file in files:
        target = folder / file.name
        if file.checksum is None and target.is_file() and file.bytes not in (None, target.stat().st_size):
            target.unlink()
        say(f"{file.name}" + (f" ({file.bytes / 1e6:,.1f} MB)" if file.bytes else ""))
        fetcher = pooch.create(
            path=folder, base_url="", registry={file.name: file.checksum}, urls={file.name: file.url}, retry_if_failed=2
        )
        try:
            fetcher.fetch(file.name)
        except ValueError as error:  # pooch's word for a checksum that differs
            raise DataError(
                f"{file.url}: {_first_line(error)}; the source has changed or the transfer failed"
            ) from error
        except (requests.RequestException, OSError) as error:
            raise DataError(f"{file.url}: cannot be fetched: {_first_line(error)}") from error
        size = target.stat().st_size
        if file.bytes is not None and size != file.bytes:
            target.unlink()
            raise DataError(f"{file.url}: expected {file.bytes} bytes, found {size}; the source has changed")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _page(url: str, folder: Path) -> str:
    """Return the text of a page; never kept, as listings change."""
    import pooch
    import requests

    try:
        path = folder / ".listing"
        path.unlink(missing_ok=True)
        pooch.HTTPDownloader(progressbar=False)(url, str(path), None)
        text = path.read_text(encoding="utf-8")
        path.unlink()
    except (requests.RequestException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{url}: cannot be read: {_first_line(error)}") from error
    return text


def zenodo(record: int, folder: Path) -> list[Remote]:
    """Return the files of a Zenodo record with the MD5 that it states."""
    import json

    url = f"{ZENODO}/api/records/{record}"
    try:
        listed: list[dict[str, Any]] = json.loads(_page(url, folder))["files"]
        return [Remote(file["key"], file["links"]["self"], file["checksum"], int(file["size"])) for file in listed]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{url}: lists no files in the form that is known ({error!r})") from error


def web_folder(url: str, folder: Path, below: str = "") -> Iterator[Remote]:
    """Yield all files below a folder that a web server lists, with their path below it."""
    for link in re.findall(r'href="([^"]+)"', _page(url, folder), flags=re.IGNORECASE):
        link = html.unescape(link)
        name = urllib.parse.unquote(link)
        if link.startswith(("?", "/", "#")) or "://" in link or name in ("../", "./") or ".." in name.split("/"):
            continue
        if link.endswith("/"):
            yield from web_folder(url + link, folder, below + name)
        else:
            yield Remote(below + name, url + link)


@dataclass(frozen=True)
class Entry:
    """A file of the sources: its path, with an archive being a folder, and the groups of the expression it met."""

    path: str
    groups: tuple[str, ...]
    opens: Callable[[], IO[bytes]]

    def read(self) -> bytes:
        with self.opens() as stream:
            return stream.read()

    def copy(self, target: Path) -> None:
        """Write the bytes to a file that is not there yet."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with self.opens() as source, target.open("xb") as out:
            shutil.copyfileobj(source, out, 1 << 20)


class Tree:
    """The files below a folder and inside the zip archives in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open = ExitStack()
        self._files: list[tuple[str, Callable[[], IO[bytes]]]] = []
        archives = []
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                name = path.relative_to(folder).as_posix()
                self._files.append((name, lambda path=path: path.open("rb")))  # type: ignore[misc]
                archives += [(name, path)] if path.suffix.lower() == ".zip" else []
        for name, path in archives:  # behind the plain files, which are preferred
            try:
                archive = self._open.enter_context(zipfile.ZipFile(path))
            except (zipfile.BadZipFile, OSError) as error:
                raise DataError(f"{path}: is not a zip archive: {error}") from error
            for member in archive.infolist():
                if not member.is_dir():
                    inside = f"{name}/{member.filename}"
                    self._files.append((inside, lambda archive=archive, member=member: archive.open(member)))  # type: ignore[misc]

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def find(self, expression: str) -> list[Entry]:
        """Return the files whose path, or its end behind a ``/``, matches; one per tuple of groups."""
        found: dict[tuple[str, ...], Entry] = {}
        pattern = re.compile(rf"(?:.*/)?{expression}")
        for path, opens in self._files:
            if match := pattern.fullmatch(path):
                found.setdefault(match.groups(), Entry(path, match.groups(), opens))
        return list(found.values())

    def one(self, expression: str, name: str) -> Entry:
        """Return the one file that matches.

        Raises
        ------
        DataError
            There is none.
        """
        found = self.find(expression)
        if not found:
            raise DataError(f"{self.folder}: {name} is not there, nor inside a zip archive in it")
        return found[0]
