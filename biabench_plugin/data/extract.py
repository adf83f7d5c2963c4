"""Unpack an archive from outside: nothing leaves the folder, nothing is a link, nothing grows without bound."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from biabench_plugin.data.cache import DataError, FileEntry

_CHUNK = 1 << 20
_METHODS = {zipfile.ZIP_STORED: "stored", zipfile.ZIP_DEFLATED: "deflated"}


@dataclass(frozen=True)
class Bounds:
    """What an archive may hold. The largest published one unpacks to 9.1 GB in 82 files, the richest to 530 files."""

    files: int = 20_000
    bytes: int = 64 << 30
    ratio: float = 1000.0  # empty label images shrink well; deflate itself ends at 1032
    path_bytes: int = 512


def unpacked_bytes(archive: Path) -> int:
    """Return the size that an archive states for what it holds."""
    with _opened(archive) as opened:
        return sum(member.file_size for member in opened.infolist())


def extract(
    archive: Path,
    prefix: str,
    destination: Path,
    bounds: Bounds = Bounds(),
    advance: Callable[[int], None] = lambda _: None,
) -> dict[str, FileEntry]:
    """Unpack ``prefix/…`` of a zip archive into a folder.

    Every member is checked before the first is written; CRC-32 and size of each are checked while it is.

    Parameters
    ----------
    archive
        Zip file; stored or deflated members.
    prefix
        Name of the one top-level folder that the archive may hold; it is left out below ``destination``.
    destination
        Existing, empty folder.
    bounds
        What is too much.
    advance
        Called with the number of bytes written since the last call.

    Returns
    -------
    dict
        Size and SHA-256 of every file by its path below ``destination``.

    Raises
    ------
    DataError
        The archive is damaged or holds what it must not.
    """
    with _opened(archive) as opened:
        members = _checked(archive, opened.infolist(), prefix, bounds)
        try:
            return {path: _write(opened, member, destination / path, advance) for path, member in members.items()}
        except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError) as error:
            raise DataError(f"{archive.name}: is damaged: {error}") from error


def _opened(archive: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(archive)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise DataError(f"{archive.name}: is not a zip archive: {error}") from error


def _checked(archive: Path, members: list[zipfile.ZipInfo], prefix: str, bounds: Bounds) -> dict[str, zipfile.ZipInfo]:
    """Return the files to write by their relative path."""

    def refuse(member: zipfile.ZipInfo, why: str) -> DataError:
        return DataError(f"{archive.name}: member {member.filename!r} {why}; nothing was unpacked")

    if len(members) > bounds.files:
        raise DataError(f"{archive.name}: holds {len(members)} members; at most {bounds.files} are unpacked")
    total = sum(member.file_size for member in members)
    packed = archive.stat().st_size
    if total > bounds.bytes or total > bounds.ratio * max(packed, 1 << 16):
        raise DataError(
            f"{archive.name}: {packed} bytes say they unpack to {total}; at most {bounds.bytes} bytes and "
            f"{bounds.ratio:g} times the archive are unpacked"
        )
    found: dict[str, zipfile.ZipInfo] = {}
    taken: set[str] = set()
    for member in members:
        name = member.filename
        if len(name.encode()) > bounds.path_bytes or re.search(r"[\x00-\x1f\\]", name):
            raise refuse(member, "has a path that is too long or holds a backslash or a control character")
        parts = name.rstrip("/").split("/")
        if name.startswith("/") or re.match(r"[A-Za-z]:", name) or any(part in ("", ".", "..") for part in parts):
            raise refuse(member, "has an absolute path or one that leaves the folder")
        if parts[0] != prefix:
            raise refuse(member, f"lies outside {prefix}/")
        mode = member.external_attr >> 16
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise refuse(member, "is a link or a device")
        if member.flag_bits & 0x1:
            raise refuse(member, "is encrypted")
        if member.compress_type not in _METHODS:
            raise refuse(member, f"is packed by method {member.compress_type}; expected stored or deflated")
        if member.is_dir() or stat.S_ISDIR(mode):
            continue
        if len(parts) < 2:
            raise refuse(member, f"is a file where the folder {prefix}/ is expected")
        path = "/".join(parts[1:])
        if path.casefold() in taken:
            raise refuse(member, "occurs twice (upper and lower case being the same)")
        taken.add(path.casefold())
        found[path] = member
    for path in found:
        ancestors = path.casefold().split("/")[:-1]
        if any("/".join(ancestors[:n]) in taken for n in range(1, len(ancestors) + 1)):
            raise DataError(f"{archive.name}: {path!r} lies below a member that is a file; nothing was unpacked")
    if not found:
        raise DataError(f"{archive.name}: holds no file below {prefix}/")
    return found


def _write(opened: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, advance: Callable[[int], None]) -> FileEntry:
    """Write one member, hashing it on the way; reading checks its CRC-32 and stops at the stated size."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(descriptor, "wb") as out, opened.open(member) as source:
        while chunk := source.read(_CHUNK):
            out.write(chunk)
            digest.update(chunk)
            size += len(chunk)
            advance(len(chunk))
        if size != member.file_size:
            raise DataError(f"{member.filename!r}: {size} bytes; the archive states {member.file_size}")
        out.flush()
        os.fsync(out.fileno())
    target.chmod(0o444)
    return FileEntry(bytes=size, sha256=digest.hexdigest())
