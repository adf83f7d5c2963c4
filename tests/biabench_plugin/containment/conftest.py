"""Rooms of a trial that is none, and a way to run a program in them."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agents.base import Launch
from biabench_plugin import supervisor
from biabench_plugin.isolation import Containment, IsolationUnavailable, Rooms, containment_for


@dataclass(frozen=True)
class Ran:
    """A run that has ended, and what it printed."""

    result: supervisor.RunResult
    rooms: Rooms

    @property
    def out(self) -> str:
        return (self.rooms.logs / "stdout.log").read_text(errors="replace")

    @property
    def err(self) -> str:
        return (self.rooms.logs / "stderr.log").read_text(errors="replace")


def build_rooms(campaign: Path) -> Rooms:
    work = campaign / "work" / secrets.token_hex(8)
    rooms = Rooms(
        input=work / "input",
        output=work / "output",
        home=work / "home",
        tmp=work / "tmp",
        instruction=work / "instruction.md",
        logs=campaign / "runs" / work.name / "logs",
    )
    for room in (rooms.input, rooms.output, rooms.home, rooms.tmp, rooms.logs):
        room.mkdir(parents=True)
    rooms.instruction.write_text("Count the cells.\n")
    return rooms


@pytest.fixture(scope="session")
def new_rooms() -> Callable[[Path], Rooms]:
    """Return a function that makes the rooms of a new trial in a campaign folder."""
    return build_rooms


@pytest.fixture
def rooms(tmp_path: Path) -> Rooms:
    return build_rooms(tmp_path / "campaign")


@pytest.fixture(scope="session")
def boxed() -> Containment:
    """Containment that is in force."""
    try:
        return containment_for("required")
    except IsolationUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def unboxed() -> Containment:
    return containment_for("off")


@pytest.fixture(params=["required", "off"])
def containment(request: pytest.FixtureRequest) -> Containment:
    """Both kinds, one after the other."""
    fixture = {"required": "boxed", "off": "unboxed"}[request.param]
    found: Containment = request.getfixturevalue(fixture)
    return found


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Ran]:
    """Return a function that runs a program (words, or a shell script in one string) in new rooms."""

    def start(
        program: str | tuple[str, ...],
        containment: Containment,
        *,
        limits: supervisor.Limits | None = None,
        rooms: Rooms | None = None,
        launch: dict[str, Any] | None = None,
        **options: Any,
    ) -> Ran:
        rooms = rooms or build_rooms(tmp_path / "campaign")
        argv = ("/bin/sh", "-c", program) if isinstance(program, str) else program
        result = supervisor.run(
            Launch(argv, **(launch or {})),
            rooms=rooms,
            containment=containment,
            limits=limits or supervisor.Limits(60.0, grace_seconds=2.0),
            **options,
        )
        return Ran(result, rooms)

    return start
