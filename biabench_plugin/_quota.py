"""How much an agent has written, and making what it left harmless."""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

MAX_DEPTH = 100
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

    Stops early at ``stop_bytes`` or ``stop_files``. A tree deeper than ``MAX_DEPTH`` counts as beyond any number of
    files: nobody needs one, and walking it costs a descriptor a level. The agent may rename and replace what is walked
    at any moment, so every step goes through the descriptor of the folder above.
    """
    total, count = 0, 0
    for folder in folders:
        stack: list[tuple[int, list[str]]] = []
        try:
            _enter(str(folder), None, stack)
            while stack:
                handle, names = stack[-1]
                if not names:
                    os.close(stack.pop()[0])
                    continue
                name = names.pop()
                try:
                    found = os.stat(name, dir_fd=handle, follow_symlinks=False)
                except OSError:  # gone meanwhile
                    continue
                count += 1
                total += found.st_blocks * 512
                if total >= stop_bytes or count >= stop_files:
                    return total, count
                if stat.S_ISDIR(found.st_mode):
                    if len(stack) >= MAX_DEPTH:
                        return total, sys.maxsize
                    _enter(name, handle, stack)
        finally:
            for handle, _ in stack:
                os.close(handle)
    return total, count


def _enter(name: str, above: int | None, stack: list[tuple[int, list[str]]]) -> None:
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
        stack.append((handle, os.listdir(handle)))  # noqa: PTH208
    except OSError:
        os.close(handle)


def settle(folders: Iterable[Path]) -> None:
    """Make what an agent left harmless and readable for us: no setuid programs, no closed folders or files.

    Call it when every process of the agent is dead.
    """
    for folder in folders:
        _open_up(folder)
        for root, names, files in os.walk(folder):
            for name in (*names, *files):
                _open_up(Path(root, name))


def _open_up(path: Path) -> None:
    mode = path.lstat().st_mode
    wanted = stat.S_IMODE(mode) & ~(stat.S_ISUID | stat.S_ISGID)
    if stat.S_ISDIR(mode):
        wanted |= stat.S_IRWXU
    elif stat.S_ISREG(mode):
        wanted |= stat.S_IRUSR | stat.S_IWUSR
    else:
        return
    if wanted != stat.S_IMODE(mode):
        path.chmod(wanted)
