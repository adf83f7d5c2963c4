"""How much an agent has written, and making what it left harmless."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

MAX_DEPTH = 64
MAX_PATH = 2048
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Meter:
    """Looks about once a second at what the writable rooms hold; less often when looking takes long."""

    def __init__(self, folders: Iterable[Path], limit_bytes: int, limit_files: int) -> None:
        self._folders = tuple(folders)
        self._bytes = limit_bytes
        self._files = limit_files
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="quota", daemon=True)
        self.exceeded = False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def look(self) -> None:
        """Measure once."""
        size, files = usage(self._folders, self._bytes, self._files)
        if size >= self._bytes or files >= self._files:
            self.exceeded = True

    def _watch(self) -> None:
        pause = 1.0
        while not self._stop.wait(pause) and not self.exceeded:
            begun = time.monotonic()
            self.look()
            pause = max(1.0, 5 * (time.monotonic() - begun))


def usage(
    folders: Iterable[Path], stop_bytes: float = float("inf"), stop_files: float = float("inf")
) -> tuple[int, int]:
    """Return allocated bytes and number of entries below ``folders``; links are counted, never followed.

    Stops early at ``stop_bytes`` or ``stop_files``. A tree deeper than ``MAX_DEPTH`` or with paths longer than
    ``MAX_PATH`` bytes counts as beyond any number of files: no analysis needs one, and other programs stumble over it.
    """
    total, count = 0, 0
    beyond: list[str] = []
    for folder in folders:
        for _, _, found in _entries(folder, lambda _, name: beyond.append(name)):
            count += 1
            total += found.st_blocks * 512
            if total >= stop_bytes or count >= stop_files or beyond:
                return total, sys.maxsize if beyond else count
    return total, sys.maxsize if beyond else count


def settle(folders: Iterable[Path]) -> None:
    """Make what an agent left harmless and readable for us.

    No setuid programs, no closed folders or files, and nothing beyond ``MAX_DEPTH`` and ``MAX_PATH``. Call it when
    every process of the agent is dead.
    """
    for folder in folders:
        if folder.is_symlink() or not folder.is_dir():  # without containment an agent can replace the room itself
            folder.unlink(missing_ok=True)
            folder.mkdir()
        folder.chmod(stat.S_IRWXU | stat.S_IMODE(folder.stat().st_mode) & 0o777)
        for handle, name, found in _entries(folder, _remove):
            mode = stat.S_IMODE(found.st_mode)
            if stat.S_ISDIR(found.st_mode):
                wanted = mode & ~(stat.S_ISUID | stat.S_ISGID) | stat.S_IRWXU
            elif stat.S_ISREG(found.st_mode):
                wanted = mode & ~(stat.S_ISUID | stat.S_ISGID) | stat.S_IRUSR | stat.S_IWUSR
            else:
                continue
            if wanted != mode:
                os.chmod(name, wanted, dir_fd=handle)


def _entries(folder: Path, beyond: Callable[[int, str], None]) -> Iterator[tuple[int, str, os.stat_result]]:
    """Yield (handle of the folder that holds it, name, status) of everything below ``folder``, parents first.

    The agent may rename and replace what is walked at any moment, so every step goes through the handle of the folder
    above, and no link is followed. A folder beyond the bounds is not entered: ``beyond`` is called with it instead.
    """
    stack: list[tuple[int, list[str], int]] = []
    try:
        _enter(os.fspath(folder), None, 0, stack)
        while stack:
            handle, names, length = stack[-1]
            if not names:
                os.close(stack.pop()[0])
                continue
            name = names.pop()
            try:
                found = os.stat(name, dir_fd=handle, follow_symlinks=False)
            except OSError:  # gone meanwhile
                continue
            length += 1 + len(os.fsencode(name))
            folder_beyond = stat.S_ISDIR(found.st_mode) and (len(stack) >= MAX_DEPTH or length > MAX_PATH - 256)
            if folder_beyond:
                beyond(handle, name)
                continue
            yield handle, name, found
            if stat.S_ISDIR(found.st_mode):
                _enter(name, handle, length, stack)
    finally:
        for handle, _, _ in stack:
            os.close(handle)


def _enter(name: str, above: int | None, length: int, stack: list[tuple[int, list[str], int]]) -> None:
    """Open a folder and push its listing; one that its owner has closed is opened again, nothing may hide there."""
    try:
        try:
            handle = os.open(name, os.O_RDONLY | _FOLDER, dir_fd=above)
        except PermissionError:
            pinned = os.open(name, os.O_PATH | _FOLDER, dir_fd=above)
            try:
                Path(f"/proc/self/fd/{pinned}").chmod(stat.S_IRWXU)
            finally:
                os.close(pinned)
            handle = os.open(name, os.O_RDONLY | _FOLDER, dir_fd=above)
    except OSError:  # gone meanwhile, no folder any more, or not ours
        return
    try:
        stack.append((handle, os.listdir(handle), length))  # noqa: PTH208
    except OSError:
        os.close(handle)


def _remove(handle: int, name: str) -> None:
    remove(Path(f"/proc/{os.getpid()}/fd/{handle}"), name)


def remove(place: Path, name: str) -> None:
    """Delete ``place/name`` whatever its depth and permissions; no link is followed.

    Python's own ways end at its recursion limit or at the longest path.
    """
    subprocess.run(["chmod", "-R", "u+rwX", "--", name], cwd=place, stderr=subprocess.DEVNULL, check=False)
    subprocess.run(["rm", "-rf", "--", name], cwd=place, stderr=subprocess.DEVNULL, check=False)
