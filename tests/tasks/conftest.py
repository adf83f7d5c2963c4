"""Demo data for the tests of the simulators, each built once per session."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from biabench_plugin import datasets

ROOT = Path(__file__).resolve().parents[2]

Load = Callable[[str], ModuleType]
Digest = Callable[[Path], dict[str, str]]


@dataclass(frozen=True)
class Demo:
    """Demo data of one task."""

    folder: Path

    @property
    def input(self) -> Path:
        return self.folder / "input"

    @property
    def evaluation(self) -> Path:
        return self.folder / "evaluation"


@pytest.fixture(scope="session")
def load_simulator() -> Load:
    """Return a fresh module of a task's ``demo.py``."""
    return lambda slug: datasets.load_simulator(ROOT / "tasks" / slug)


@pytest.fixture(scope="session")
def demo(load_simulator: Load, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Demo]:
    """Return the demo data of a task, seed 11, built on first use."""
    built: dict[str, Demo] = {}

    def build(slug: str) -> Demo:
        if slug not in built:
            folder = tmp_path_factory.mktemp(slug)
            load_simulator(slug).make(folder, 11)
            built[slug] = Demo(folder)
        return built[slug]

    return build


@pytest.fixture(scope="session")
def digests() -> Digest:
    """Return the digest of every file below a folder, by its relative path."""

    def digest(folder: Path) -> dict[str, str]:
        return {
            path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }

    return digest
