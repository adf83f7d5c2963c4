"""What a campaign knows of the commands that were given to it: one file per command, ``sessions/<digest>.json``.

It says what was planned and whether it came to its end, so that the same command continues an unfinished campaign, and
``biabench status`` knows how much is left.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from biabench_plugin.records import write_atomically

FOLDER = "sessions"


@dataclass
class Command:
    """One command on a campaign: the trials it stands for, and when it last began and ended."""

    digest: str
    words: list[str]
    budget_seconds: float
    planned: list[str] = field(default_factory=list)
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    finished: str | None = None
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)

    def write(self, campaign: Path) -> None:
        write_atomically(campaign / FOLDER / f"{self.digest}.json", json.dumps(asdict(self), indent=1) + "\n")

    def begin(self, campaign: Path, planned: Iterable[str]) -> None:
        """Note that the command runs, and which trials it will end with."""
        self.planned = sorted(planned)
        self.write(campaign)

    def end(self, campaign: Path) -> None:
        """Note that every planned trial was reported."""
        self.finished = datetime.now(UTC).isoformat(timespec="seconds")
        self.write(campaign)


def digest(parts: Any) -> str:
    """Identity of a command: what decides which trials it stands for, and nothing else (not ``-n``, not ``-v``)."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def read(path: Path) -> Command | None:
    """Return a command's file, or ``None`` where it is missing or damaged: it is a convenience, records are not."""
    with suppress(OSError, ValueError, TypeError):
        return Command(**json.loads(path.read_text(encoding="utf-8")))
    return None


def commands(campaign: Path) -> Iterator[Command]:
    """Yield the commands that a campaign has seen, oldest first."""
    found = [command for path in (campaign / FOLDER).glob("*.json") if (command := read(path)) is not None]
    yield from sorted(found, key=lambda command: command.started)


def default_folder(base: Path, dataset: str, command: str) -> Path:
    """Return the campaign that the command continues, or ``campaigns/<date>-<dataset>`` below ``base``.

    A campaign of an earlier day is continued while the same command has not come to its end there: midnight and a
    killed session do not start a campaign over.
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(dataset).name).strip("-") or "campaign"
    dated = re.compile(rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}-{re.escape(name)}")
    earlier = [path for path in (base / "campaigns").glob(f"*-{name}") if dated.fullmatch(path.name)]
    for folder in sorted(earlier, reverse=True):
        known = read(folder / FOLDER / f"{command}.json")
        if known is not None and known.finished is None:
            return folder
    return base / "campaigns" / f"{datetime.now(UTC).date().isoformat()}-{name}"


def words(arguments: Sequence[str]) -> list[str]:
    """Return a command line for people to read; what an agent is started with may hold a secret and stays out."""
    shown: list[str] = []
    for argument in arguments:
        name, separator, _ = argument.partition("=")
        if shown and shown[-1] == "--agent-command":
            argument = "…"
        shown.append(f"{name}=…" if separator and name == "--agent-command" else argument)
    return shown
