"""Which GPUs this host has, and a lease of one per trial."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from filelock import FileLock, Timeout


@dataclass(frozen=True)
class Gpu:
    """One GPU of this host: index and UUID as nvidia-smi gives them, and a line for the record."""

    index: int
    uuid: str
    description: str


@cache
def installed() -> tuple[Gpu, ...]:
    """Return the GPUs that nvidia-smi lists and ``CUDA_VISIBLE_DEVICES`` allows; none where there is no driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    try:
        done = subprocess.run(
            [program, "--query-gpu=index,uuid,name,memory.total,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    found = []
    for line in done.stdout.splitlines():
        index, uuid, *rest = (cell.strip() for cell in line.split(","))
        if index.isdigit():
            found.append(Gpu(int(index), uuid, ", ".join(rest)))
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return tuple(found)
    names = [name.strip() for name in allowed.split(",") if name.strip()]
    return tuple(gpu for gpu in found if str(gpu.index) in names or any(gpu.uuid.startswith(name) for name in names))


@contextmanager
def leased(poll_seconds: float = 1.0) -> Iterator[Gpu | None]:
    """Hold one GPU among all workers of this host, waiting until one is free; ``None`` where the host has none.

    A lease is a file lock, which ends with its holder.
    """
    if not installed():
        yield None
        return
    folder = Path(tempfile.gettempdir()) / f"biabench-gpu-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    while True:
        for gpu in installed():
            lock = FileLock(folder / f"{gpu.uuid}.lock", timeout=0)
            try:
                lock.acquire()
            except Timeout:
                continue
            try:
                yield gpu
            finally:
                lock.release()
            return
        time.sleep(poll_seconds)
