"""What a pipeline was asked to do, where its files lie, and what went wrong on the way."""

from __future__ import annotations

import re
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


class CannotStart(Exception):
    """The trial cannot be run at all: a missing path, or an instruction that no pipeline fits."""


@dataclass(frozen=True)
class Wanted:
    """One required or optional file (family) of the instruction's contract block."""

    id: str
    required: bool
    multiple: bool
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failure:
    """An item that could not be processed, and why."""

    item: str
    reason: str


_ENTRY = re.compile(r"^- ([a-z][a-z0-9_]*) \((required|optional), ([^)]*)\)\s*$")
_NAME = re.compile(r"^\s+File name: (.+?)\s*$")
_MICRON = r"(?:µm|μm|um|micrometers?|micrometres?|microns?)"
_PIXEL_SIZES = (
    re.compile(rf"([0-9]+(?:\.[0-9]+)?)\s*{_MICRON}\s*(?:per|/)\s*(?:pixel|px)\b", re.IGNORECASE),
    re.compile(rf"\bpixel(?:s| size)?\b[^.;\n]{{0,40}}?([0-9]+\.[0-9]+)\s*{_MICRON}", re.IGNORECASE),
)
_INTERVALS = (
    (re.compile(r"one (?:frame|image|picture) (?:per|every|each|a) minute", re.IGNORECASE), 60.0),
    (re.compile(r"one (?:frame|image|picture) (?:per|every|each|a) second", re.IGNORECASE), 1.0),
)


def parse_contract(instruction: str) -> dict[str, Wanted]:
    """Return the deliverables of an instruction, by id, in its order."""
    wanted: dict[str, Wanted] = {}
    current: str | None = None
    for line in instruction.splitlines():
        if entry := _ENTRY.match(line):
            current = entry[1]
            wanted[current] = Wanted(current, entry[2] == "required", "per" in entry[3])
        elif current is not None and (name := _NAME.match(line)):
            old = wanted[current]
            wanted[current] = Wanted(old.id, old.required, old.multiple, tuple(name[1].split(" or ")))
    return wanted


def parse_pixel_size_um(instruction: str) -> float | None:
    """Return the pixel size that the text states, in µm, or ``None``."""
    text = " ".join(instruction.split())
    for pattern in _PIXEL_SIZES:
        if found := pattern.search(text):
            return float(found[1])
    return None


def parse_interval_seconds(instruction: str) -> float | None:
    """Return the time between frames that the text states, in seconds, or ``None``."""
    text = " ".join(instruction.split())
    return next((seconds for pattern, seconds in _INTERVALS if pattern.search(text)), None)


@dataclass
class Job:
    """One trial, as the pipelines see it.

    A pipeline writes its deliverables first, then figures, then the report, and wraps the work on each image in
    :meth:`attempt`, so that one bad file never costs the rest.
    """

    input_dir: Path
    output_dir: Path
    instruction: str
    wanted: dict[str, Wanted]
    failures: list[Failure] = field(default_factory=list)
    delivered: int = 0
    _start: float = field(default_factory=time.monotonic)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Job:
        """Read the three paths that the harness sets; raise :class:`CannotStart` where one does not do."""
        paths = {}
        for name in ("BIABENCH_INPUT", "BIABENCH_OUTPUT", "BIABENCH_INSTRUCTION"):
            if not environment.get(name):
                raise CannotStart(f"{name} is not set")
            paths[name] = Path(environment[name])
        try:
            instruction = paths["BIABENCH_INSTRUCTION"].read_text(encoding="utf-8")
        except OSError as error:
            raise CannotStart(f"{paths['BIABENCH_INSTRUCTION']}: {error.strerror}") from error
        if not paths["BIABENCH_INPUT"].is_dir():
            raise CannotStart(f"{paths['BIABENCH_INPUT']}: no such input folder")
        paths["BIABENCH_OUTPUT"].mkdir(parents=True, exist_ok=True)
        return cls(paths["BIABENCH_INPUT"], paths["BIABENCH_OUTPUT"], instruction, parse_contract(instruction))

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    def log(self, message: str) -> None:
        """Print a progress line with the time since the start."""
        print(f"[{self.seconds:7.1f} s] {message}", flush=True)

    @contextmanager
    def attempt(self, item: str) -> Iterator[None]:
        """Run the work on one item; record and print what it raises, then go on with the next."""
        try:
            yield
        except Exception as error:  # whatever a broken file causes must not end the batch
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            self.failures.append(Failure(item, reason))
            print(f"classical: {item}: {reason}", file=sys.stderr)
            traceback.print_exc(file=sys.stderr)

    def folder(self, name: str) -> Path:
        """Return a folder below the output folder; it is made if missing."""
        path = self.output_dir / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def finish(self, run: Callable[[Job], None]) -> int:
        """Run a pipeline, keep its scripts beside the results, print the closing line and return the exit status."""
        with self.attempt("pipeline"):
            run(self)
        with self.attempt("scripts"):
            scripts = self.folder("scripts/classical")
            for source in sorted(Path(__file__).parent.glob("*.py")):
                if source.name != "agent.py":  # the harness's side; no part of the analysis
                    shutil.copyfile(source, scripts / source.name)
        for failure in self.failures:
            self.log(f"failed: {failure.item}: {failure.reason}")
        items = f"{self.delivered} item{'s' * (self.delivered != 1)}"
        self.log(f"Done: {items} delivered, {len(self.failures)} failed; see report.md.")
        return 0 if self.delivered else 1
