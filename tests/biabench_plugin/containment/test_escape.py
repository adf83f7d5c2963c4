"""An agent that tries to get out: every try must fail, and every try must be one that works where nothing holds it."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import pwd
import secrets
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from agents.base import Bind, Launch
from biabench_plugin import supervisor
from biabench_plugin._reaper import landlock_abi
from biabench_plugin.isolation import Containment, Rooms, containment_for, opaque_input

ROOT = Path(__file__).resolve().parents[3]
AGENT = Path(__file__).with_name("escape_agent.py")
TASK, STUDY = "hela_segmentation", "fluo-helacytonuc-cell-segmentation"
KEY = "biabench-escape-canary"
SHARED_MEMORY = secrets.randbelow(1 << 30) + 1


# Harmless where nothing holds them, and real: they must succeed there. An attempt that fails everywhere proves nothing.
REAL_WITHOUT = (
    "truth_by_absolute_path",
    "truth_by_proc_root",
    "truth_by_climbing",
    "truth_by_link_in_output",
    "sibling_run_by_path",
    "sibling_run_by_guessing",
    "repository_by_path",
    "operator_home",
    "host_tmp_file",
    "operator_accounts",
    "host_processes",
    "session_keyring",
    "shared_memory",
    "abstract_socket",
    "socket_by_path",
    "signal_to_the_harness",
    "add_to_input",
    "rewrite_instruction",
    "write_to_host_paths",
)
HELD_WITHOUT = ("own_environment", "rewrite_own_log")


def _attempts() -> list[str]:
    spec = importlib.util.spec_from_file_location("escape_agent", AGENT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.ATTEMPTS)


ATTEMPTS = _attempts()


@dataclass(frozen=True)
class World:
    """A host with something to steal, and what the agent made of it."""

    rooms: Rooms
    result: supervisor.RunResult
    attempts: dict[str, tuple[object, str]]
    originals: dict[Path, bytes]
    keyring: bool


@contextmanager
def _world(folder: Path, containment: Containment, new_rooms: Callable[[Path], Rooms]) -> Iterator[World]:
    dataset = folder / "data" / TASK
    campaign = folder / "campaign"
    rooms = new_rooms(campaign)
    sibling = new_rooms(campaign)
    secret = f"TRUTH-{secrets.token_hex(8)}"
    canary = f"sk-{secrets.token_hex(16)}"
    record = campaign / "runs" / TASK / "record.json"
    files = {
        dataset / "evaluation" / "truth.tif": secret,
        dataset / "input" / "0.tif": "pixels",
        dataset / "input" / "deep" / "1.tif": "pixels",
        folder / "operator" / ".ssh" / "id_ed25519": secret,
        folder / "host_tmp" / "note": secret,
        sibling.output / "answer.csv": secret,
        record: "{}",
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    rooms.input.rmdir()
    opaque_input(dataset / "input", rooms.input.parent, containment.in_force)
    truth = dataset / "evaluation" / "truth.tif"
    target = {
        "truth": str(truth),
        "truth_inode": truth.stat().st_ino,
        "device": truth.stat().st_dev,
        "sibling": str(sibling.output / "answer.csv"),
        "sibling_folder": sibling.output.parent.name,
        "repository": str(ROOT),
        "home_secret": str(folder / "operator" / ".ssh" / "id_ed25519"),
        "tmp_secret": str(folder / "host_tmp" / "note"),
        "account": next((user.pw_name for user in pwd.getpwall() if user.pw_name in ("daemon", "man")), "daemon"),
        "canary": canary,
        "secrets": [canary, TASK, STUDY, str(truth), str(dataset)],
        "names": [TASK, STUDY, "runs/", str(dataset)],
        "key": KEY,
        "shared_memory": SHARED_MEMORY,
        "abstract": f"biabench-{secrets.token_hex(8)}",
        "socket": str(folder / "host_tmp" / "s"),
        "controller": os.getpid(),
        "controller_command": Path("/proc/self/cmdline").read_text(),
        "writes": [
            str(truth),
            str(record),
            str(rooms.logs / "stdout.log"),
            str(rooms.logs / "record.json"),
            str(sibling.output / "answer.csv"),
            str(folder / "host_tmp" / "note"),
            str(folder / "escaped"),
            "/etc/escaped-biabench",
            "/usr/escaped-biabench",
        ]
        if containment.in_force
        else [str(truth), str(record)],
        "attempts": ATTEMPTS if containment.in_force else [*REAL_WITHOUT, *HELD_WITHOUT],
    }
    originals = {path: path.read_bytes() for path in files}
    with (
        _listening("\0" + str(target["abstract"])),
        _listening(str(target["socket"])),
        _shared(),
        _operator(canary) as keyring,
    ):
        result = supervisor.run(
            Launch(
                (sys.executable, "/agent.py" if containment.in_force else str(AGENT)),
                stdin=json.dumps(target).encode(),
                binds=(Bind(AGENT, "/agent.py" if containment.in_force else str(AGENT)),),
                python_prefix=True,
            ),
            rooms=rooms,
            containment=containment,
            limits=supervisor.Limits(60.0),
        )
    assert result.exit_code == 0, (rooms.logs / "stderr.log").read_text()
    yield World(rooms, result, json.loads((rooms.logs / "stdout.log").read_text()), originals, keyring)


@contextmanager
def _listening(address: str) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        yield


@contextmanager
def _shared() -> Iterator[None]:
    """Hold a System V shared memory segment with something in it."""
    libc = ctypes.CDLL(None)
    libc.shmat.restype = ctypes.c_void_p
    segment = libc.shmget(SHARED_MEMORY, ctypes.c_size_t(16), 0o1600)  # create, for the owner
    place = libc.shmat(segment, None, 0)
    ctypes.memmove(place, b"secret", 6)
    try:
        yield
    finally:
        libc.shmdt(ctypes.c_void_p(place))
        libc.shmctl(segment, 0, None)


@contextmanager
def _operator(canary: str) -> Iterator[bool]:
    """Give this process what an operator has: a key in its environment and, where there are keyrings, in its own."""
    os.environ["OPERATOR_API_KEY"] = canary
    numbers = {"x86_64": (248, 250), "aarch64": (217, 219)}.get(os.uname().machine)
    planted = False
    if numbers:
        libc = ctypes.CDLL(None)
        libc.syscall(numbers[1], ctypes.c_long(1), None)  # a session keyring of its own, so that nothing stays behind
        key = libc.syscall(numbers[0], b"user", KEY.encode(), b"secret", ctypes.c_size_t(6), ctypes.c_long(-3))
        planted = key > 0
    try:
        yield planted
    finally:
        del os.environ["OPERATOR_API_KEY"]


@pytest.fixture(scope="module")
def inside(
    boxed: Containment, tmp_path_factory: pytest.TempPathFactory, new_rooms: Callable[[Path], Rooms]
) -> Iterator[World]:
    with _world(tmp_path_factory.mktemp("inside"), boxed, new_rooms) as world:
        yield world


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory, new_rooms: Callable[[Path], Rooms]) -> Iterator[World]:
    with _world(tmp_path_factory.mktemp("outside"), containment_for("off"), new_rooms) as world:
        yield world


@pytest.mark.parametrize("name", ATTEMPTS)
def test_attempt_fails_inside(inside: World, name: str, record_property: Callable[[str, object], None]) -> None:
    got, why = inside.attempts[name]
    record_property("held_by", why)
    if name == "abstract_socket" and landlock_abi() < 6:
        pytest.skip("this kernel cannot scope abstract sockets; records list it under not_given")
    assert got is None, f"the agent got hold of {got}"


def test_attempts_are_reported_as_a_table(inside: World) -> None:
    for name, (_, why) in inside.attempts.items():
        print(f"{name:32} {why}")
    assert set(inside.attempts) == set(ATTEMPTS)


def test_host_is_untouched(inside: World) -> None:
    assert {path: path.read_bytes() for path in inside.originals} == inside.originals
    assert not (inside.rooms.input / "added.txt").exists()
    assert not Path("/etc/escaped-biabench").exists()
    assert not Path("/usr/escaped-biabench").exists()
    assert inside.rooms.instruction.read_text() == "Count the cells.\n"


def test_nothing_survived(inside: World) -> None:
    assert inside.result.survivors_killed == 0


@pytest.mark.parametrize("name", REAL_WITHOUT)
def test_attempt_is_real_without_containment(outside: World, name: str) -> None:
    if name == "add_to_input" and os.geteuid() != 0:
        pytest.skip("the copied input is read-only for an ordinary user")
    if name == "session_keyring" and not outside.keyring:
        pytest.skip("no keyrings here")
    got, why = outside.attempts[name]
    assert got is not None, why


@pytest.mark.parametrize("name", HELD_WITHOUT)
def test_attempt_fails_even_without_containment(outside: World, name: str) -> None:
    assert outside.attempts[name][0] is None


def test_off_says_what_is_not_given() -> None:
    described = containment_for("off").describe()
    assert described["in_force"] is False
    assert set(described["not_given"]) >= {"truth_hidden", "input_read_only", "other_runs_hidden", "neutral_paths"}  # type: ignore[call-overload]
    assert set(described["given"]) == {"descendants_killed", "operator_environment_hidden"}  # type: ignore[call-overload]
    assert "--isolation=off" in str(described["reason"])


def test_required_gives_everything(boxed: Containment) -> None:
    described = boxed.describe()
    assert described["tool"] == "bubblewrap"
    assert set(described["not_given"]) <= {"host_abstract_sockets_hidden_with_open_network"}  # type: ignore[call-overload]
