"""Which GPUs this host has, and a lease of one per trial."""

from __future__ import annotations

import os
import re
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

_CARD = re.compile(r"GPU (\d+): .*\(UUID: (GPU-[^)]+)\)")
_SLICE = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[^)]+)\)")


@dataclass(frozen=True)
class Gpu:
    """One GPU of this host, or one MIG slice: card index and UUID as nvidia-smi gives them, a line for the record."""

    index: int
    uuid: str
    description: str  # model, memory, driver; for a slice also its profile
    card: str = ""  # UUID of the card that a slice belongs to

    def __str__(self) -> str:
        return f"{self.uuid} ({self.description})"


def _ask(*arguments: str) -> str | None:
    """Return what nvidia-smi says, ``None`` where there is no driver or it does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _listed() -> list[Gpu]:
    """Return every unit that a trial can have: whole cards, and slices of the cards that are cut up."""
    said = _ask("--query-gpu=index,uuid,name,memory.total,driver_version", "--format=csv,noheader")
    cards: dict[str, Gpu] = {}
    for line in (said or "").splitlines():
        index, uuid, *rest = (cell.strip() for cell in line.split(","))
        if index.isdigit():
            cards[uuid] = Gpu(int(index), uuid, ", ".join(rest))
    if not cards:
        return []
    slices: dict[str, list[Gpu]] = {}
    card: Gpu | None = None
    for line in (_ask("-L") or "").splitlines():
        if found := _CARD.match(line):
            card = cards.get(found[2])
        elif card is not None and (found := _SLICE.match(line)):
            unit = Gpu(card.index, found[3], f"{card.description}, MIG {found[1]}", card.uuid)
            slices.setdefault(card.uuid, []).append(unit)
    return [unit for uuid, whole in cards.items() for unit in slices.get(uuid, [whole])]


def _allowed(units: list[Gpu], names: str | None) -> list[Gpu]:
    """Keep what ``CUDA_VISIBLE_DEVICES`` names: card indices, UUIDs or their beginnings, slices.

    As in CUDA, the first name that fits nothing ends the list (``-1`` hides everything).
    """
    if names is None:
        return units
    kept: list[Gpu] = []
    for name in (part.strip() for part in names.split(",")):
        fitting = [unit for unit in units if _is_named(unit, name)]
        if not fitting:
            break
        kept += [unit for unit in fitting if unit not in kept]
    return kept


def _is_named(unit: Gpu, name: str) -> bool:
    if name.isdigit():
        return unit.index == int(name)
    return name.startswith(("GPU-", "MIG-")) and any(uuid.startswith(name) for uuid in (unit.uuid, unit.card))


@cache
def installed() -> tuple[Gpu, ...]:
    """Return the GPUs that nvidia-smi lists and ``CUDA_VISIBLE_DEVICES`` allows; none where there is no driver."""
    return tuple(_allowed(_listed(), os.environ.get("CUDA_VISIBLE_DEVICES")))


def still_there(gpu: Gpu) -> bool:
    """Return whether the driver still lists a GPU that was there before."""
    return any(unit.uuid == gpu.uuid for unit in _listed())


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
            lock = FileLock(folder / f"{gpu.uuid.replace('/', '_')}.lock", timeout=0)
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
