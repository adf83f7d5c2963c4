"""The input folder of one trial: no path that names the task, and never the original where an agent could write."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

COPY_LIMIT = 2 << 30
_FICLONE = 0x40049409
_DIGEST_NAME = re.compile(r"[0-9a-f]{12,}")
How = Literal["bound", "linked", "reflinked", "copied"]


class InputError(RuntimeError):
    """A task's input folder cannot be given to an agent; the message names the file. It is the operator's fault."""


@dataclass(frozen=True)
class _State:
    """What changes when somebody writes to a file."""

    inode: int
    size: int
    modified_ns: int


@dataclass(frozen=True)
class InputView:
    """What an agent gets as its input folder.

    Attributes
    ----------
    path
        The folder to bind or to name; for ``how == "bound"`` a symbolic link to the original.
    how
        ``bound``: the original itself, read-only; ``linked``: hard links under a neutral name, read-only;
        ``reflinked`` or ``copied``: its own bytes.
    name_visible
        Whether the original's path can be read from inside (in ``/proc/self/mountinfo``).
    note
        Why the view is not the usual one, for the record.
    """

    path: Path
    how: How
    name_visible: bool
    note: str | None
    _before: dict[str, _State] = field(repr=False)
    _digests: dict[str, str] | None = field(repr=False)

    def changes(self) -> list[str]:
        """Return the files that are not as they were, relative to the folder: changed, added or removed."""
        root = self.path.resolve()
        now = {name: _state(path) for name, path in _walk(root)}
        changed = {name for name in self._before.keys() | now.keys() if self._before.get(name) != now.get(name)}
        if self._digests is not None:  # without containment times can be forged; bytes cannot
            for name in now.keys() & self._digests.keys():
                if _digest(root / name) == self._digests[name]:
                    changed.discard(name)
                else:
                    changed.add(name)
        return sorted(changed)

    def changed(self) -> bool:
        """Return whether anything in the folder is not as it was."""
        return bool(self.changes())

    def remove(self) -> None:
        """Delete the view, never the original."""
        if self.path.is_symlink():
            self.path.unlink()
        elif self.path.exists():
            for folder, _, _ in os.walk(self.path):
                Path(folder).chmod(stat.S_IRWXU)
            shutil.rmtree(self.path)

    def __enter__(self) -> InputView:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def opaque_input(
    source: Path,
    rooms_dir: Path,
    contained: bool,
    *,
    opaque: bool | None = None,
    copy_limit: int = COPY_LIMIT,
) -> InputView:
    """Make ``rooms_dir/input`` show the files of ``source``, without giving away where they lie.

    Parameters
    ----------
    source
        A task's input folder. Links to files and folders in it are followed; broken ones, loops and special files are
        refused, and so is a link into the truth beside it.
    rooms_dir
        Folder of one trial, with a name that gives nothing away.
    contained
        Whether the agent sees the folder through a read-only mount. If not it always gets bytes of its own.
    opaque
        Whether the path of ``source`` gives nothing away; ``None``: when it is named by a digest.
    copy_limit
        Bytes up to which a contained agent's input is copied where it cannot be hard-linked.

    Raises
    ------
    InputError
        When the folder holds what cannot be given to an agent, or does not exist.
    """
    place = rooms_dir / "input"
    files, plain = _inventory(source)
    if opaque is None:
        opaque = any(_DIGEST_NAME.fullmatch(name) for name in (source.resolve().name, source.resolve().parent.name))
    rooms_dir.mkdir(parents=True, exist_ok=True)
    if contained and opaque and plain:
        return _bound(source, place, visible=False, note=None)
    if contained and (how := _transfer(source, files, place, link=True)) is not None:
        return _finished(place, how, contained)
    if contained and sum(path.stat().st_size for path in files.values()) > copy_limit:
        if not plain:
            raise InputError(f"{source}: it holds links, lies on another file system, and is too large to copy")
        return _bound(source, place, visible=True, note="on another file system and too large to copy: path visible")
    how = _transfer(source, files, place, link=False)
    assert how is not None  # only linking can be impossible
    return _finished(place, how, contained)


def _bound(source: Path, place: Path, *, visible: bool, note: str | None) -> InputView:
    place.symlink_to(source.resolve())
    return InputView(place, "bound", visible, note, {name: _state(path) for name, path in _walk(place.resolve())}, None)


def _finished(place: Path, how: How, contained: bool) -> InputView:
    found = list(_walk(place))
    digests = None if contained else {name: _digest(path) for name, path in found}
    return InputView(place, how, False, None, {name: _state(path) for name, path in found}, digests)


def _inventory(source: Path) -> tuple[dict[str, Path], bool]:
    """Return name → real path of every file (an empty folder's name ends in ``/``), and whether there is no link."""
    if not source.is_dir():
        raise InputError(f"{source}: the input folder does not exist")
    truth = (source / os.pardir / "evaluation").resolve()
    files: dict[str, Path] = {}
    plain = True
    stack: list[tuple[str, Path, tuple[Path, ...]]] = [("", source.resolve(), ())]
    while stack:
        prefix, folder, above = stack.pop()
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        if not entries and prefix:
            files[prefix] = folder
        for entry in entries:
            name, path = prefix + entry.name, Path(entry.path)
            if entry.is_symlink():
                plain = False
                path = _follow(name, path, truth)
            mode = path.stat().st_mode
            if stat.S_ISDIR(mode):
                if path == folder or path in above:
                    raise InputError(f"{source / name}: the link leads back to a folder that contains it")
                stack.append((name + "/", path, (*above, folder)))
            elif stat.S_ISREG(mode):
                files[name] = path
            else:
                raise InputError(f"{source / name}: neither a file nor a folder")
    return files, plain


def _follow(name: str, link: Path, truth: Path) -> Path:
    try:
        target = link.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise InputError(f"{name}: the link is broken or leads to itself: {link}") from error
    if target.is_relative_to(truth):
        raise InputError(f"{name}: the link leads into the truth: {target}")
    return target


def _transfer(source: Path, files: dict[str, Path], place: Path, *, link: bool) -> How | None:
    """Fill ``place``; return how, or ``None`` when hard links are impossible (nothing is left behind then)."""
    hows: set[How] = set()
    place.mkdir()
    for name, path in files.items():
        target = place / name
        if name.endswith("/"):
            target.mkdir(parents=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if not link:
            hows.add(_clone(path, target))
            continue
        try:
            os.link(path, target)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP):
                raise
            shutil.rmtree(place)
            return None
    for folder in sorted((Path(folder) for folder, _, _ in os.walk(place)), reverse=True):
        shutil.copystat(source, folder)
        folder.chmod(0o755 if link else 0o555)
    if link:
        return "linked"
    return "copied" if "copied" in hows else "reflinked"


def _clone(path: Path, target: Path) -> How:
    """Copy a file with its times, sharing blocks where the file system can; the copy is read-only."""
    how: How = "reflinked"
    with path.open("rb") as reader, target.open("xb") as writer:
        try:
            fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
        except OSError:
            how = "copied"
            shutil.copyfileobj(reader, writer, 1 << 20)
    shutil.copystat(path, target)
    target.chmod(0o444)
    return how


def _walk(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield relative name and path of everything below ``root`` that is no folder, without following links."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            yield path.relative_to(root).as_posix(), path


def _state(path: Path) -> _State:
    found = path.lstat()
    return _State(found.st_ino, found.st_size, found.st_mtime_ns)


def _digest(path: Path) -> str:
    if not stat.S_ISREG(path.lstat().st_mode):
        return "not a file"
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, hashlib.blake2b).hexdigest()
