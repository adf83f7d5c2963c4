"""What an agent can see and touch: an allow-listed view of the host, made by bubblewrap.

The view starts empty. What is in it was put there by this module: the system's programs and libraries, the parts of
``/etc`` that programs need, what the agent declares, and the rooms of the trial. docs/containment.md says what that
promises, and against whom.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from agents.base import Bind, Launch, OwnContainer
from biabench_plugin import _reaper
from biabench_plugin._input_view import InputError, InputView, opaque_input
from biabench_plugin._private_python import SYSTEM_PATH, PrivatePython
from biabench_plugin._system_view import SYSTEM_ROOTS, ContainmentError, gpu_environment, is_system, system_view

__all__ = [
    "AgentPaths",
    "Box",
    "Containment",
    "ContainmentError",
    "InputError",
    "InputView",
    "IsolationUnavailable",
    "Rooms",
    "containment_for",
    "opaque_input",
    "plan",
]

Mode = Literal["required", "auto", "off"]
Network = Literal["open", "model", "none"]

HOME = "/home/user"
HOST_NAME = "analysis"
RELAY_SOCKET = "/run/relay.sock"

# What keeps an agent in; docs/containment.md has the reason for each. Nothing here is optional.
_NAMESPACES = (
    "--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
    "--hostname", HOST_NAME, "--cap-drop", "ALL", "--disable-userns", "--die-with-parent",
    "--new-session",
)  # fmt: skip

_PASSWD = (
    "root:x:0:0:root:/root:/usr/sbin/nologin\n"
    f"user:x:1000:1000:user:{HOME}:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
)
_GROUP = "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n"

_THREADS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS",
)  # fmt: skip

_WEIGHTS = {  # sub-folder of the weights cache -> variable by which its library finds it
    "huggingface": "HF_HUB_CACHE",
    "torch": "TORCH_HOME",
    "cellpose": "CELLPOSE_LOCAL_MODELS_PATH",
    "keras": "KERAS_HOME",
}


class IsolationUnavailable(ContainmentError):
    """Containment is required and this host cannot give it; the message has the exact fix."""


@dataclass(frozen=True)
class Rooms:
    """Host paths of one trial.

    ``input`` is read-only for the agent; ``output``, ``home`` and ``tmp`` are its own; ``instruction`` is a file it may
    read; ``logs`` is ours. The folder that holds them must have a name that gives nothing away.
    """

    input: Path
    output: Path
    home: Path
    tmp: Path
    instruction: Path
    logs: Path

    @property
    def writable(self) -> tuple[Path, Path, Path]:
        """What the agent can write, and what its quota covers."""
        return self.output, self.home, self.tmp


@dataclass(frozen=True)
class AgentPaths:
    """The same places as the agent sees them."""

    input_dir: str
    output_dir: str
    instruction_file: str
    home: str
    tmp: str


@dataclass(frozen=True)
class Containment:
    """What stands between agents and this host."""

    in_force: bool
    requested: Mode
    reason: str | None = None
    trusted: bool = False  # one of our own agents, which reads truth
    own: OwnContainer | None = None  # what the agent brings instead; what is started here is its driver
    program: Path | None = None
    version: str | None = None

    def paths(self, rooms: Rooms) -> AgentPaths:
        """Return the paths that an agent is told: neutral ones where containment is in force."""
        if self.in_force:
            return AgentPaths("/input", "/output", "/instruction.md", HOME, "/tmp")  # noqa: S108
        if self.own is not None:
            private = (str(rooms.instruction), str(rooms.home), str(rooms.tmp))  # of the driver; never told the agent
            return AgentPaths(self.own.input_dir, self.own.output_dir, *private)
        return AgentPaths(str(rooms.input), str(rooms.output), str(rooms.instruction), str(rooms.home), str(rooms.tmp))

    def describe(self) -> dict[str, object]:
        """Return what was in force and what was not given, for the record."""
        sockets = self.in_force and _scopes_sockets()
        in_force = self.in_force or self.own is not None
        promises = {
            "truth_hidden": in_force,
            "other_runs_hidden": in_force,
            "input_read_only": in_force,
            "neutral_paths": in_force,
            "own_process_namespace": in_force,
            "logs_out_of_reach": in_force,
            "operator_environment_hidden": True,
            "descendants_killed": True,
            "host_abstract_sockets_hidden_with_open_network": sockets,
        }
        return {
            "in_force": in_force,
            "requested": self.requested,
            "reason": self.reason,
            "tool": "bubblewrap" if self.in_force else (self.own.engine if self.own is not None else None),
            "version": self.version,
            "started_by_root": os.geteuid() == 0,
            "given": sorted(name for name, given in promises.items() if given),
            "not_given": sorted(name for name, given in promises.items() if not given),
        }


@dataclass(frozen=True)
class Box:
    """How to start one agent: what the supervisor needs to know.

    ``options`` and ``files`` are bubblewrap's (files are (path inside, text)); ``options`` is ``None`` without it.
    """

    argv: tuple[str, ...]
    environment: dict[str, str]
    cwd: str
    program: str | None = None
    options: tuple[str, ...] | None = None
    files: tuple[tuple[str, str], ...] = ()
    scope_sockets: bool = False


# --- is it possible here? ------------------------------------------------------------------------------------------


def containment_for(mode: Mode, contained: bool = True, own: OwnContainer | None = None) -> Containment:
    """Return the containment that ``--isolation=MODE`` gives on this host.

    Parameters
    ----------
    mode
        ``required`` raises where it is impossible, ``auto`` goes without and says why, ``off`` goes without.
    contained
        ``False`` for our own synthetic agents that read truth; they run outside, and the record says so.
    own
        The container that the agent brings with it, whatever the mode.

    Raises
    ------
    IsolationUnavailable
        When required and impossible, with what to do about it.
    """
    if mode not in ("required", "auto", "off"):
        raise ValueError(f"isolation {mode!r}: expected one of required, auto, off")
    if own is not None:
        return Containment(False, mode, f"the agent runs in its own container ({own.engine})", own=own)
    if not contained:
        reason = "a synthetic agent of the benchmark that reads the truth; it runs outside containment by design"
        return Containment(False, mode, reason, trusted=True)
    if mode == "off":
        return Containment(False, mode, "switched off by --isolation=off")
    program, version, problem = _usable()
    if problem is None:
        return Containment(True, mode, program=program, version=version)
    if mode == "required":
        raise IsolationUnavailable(f"--isolation=required: {problem}")
    return Containment(False, mode, problem)


@cache
def _usable() -> tuple[Path | None, str | None, str | None]:
    """Return bubblewrap's path and version, and why it cannot be used: found by really using it, once a process."""
    if sys.platform != "linux":
        return None, None, f"bubblewrap needs Linux; this is {sys.platform}"
    found = shutil.which("bwrap")
    if found is None:
        return None, None, "bubblewrap is not installed; install it: " + _install_command()
    program = Path(found)
    try:
        said = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
        version = said.split()[-1]
        with _arguments([*_NAMESPACES, *system_view("none"), "--remount-ro", "/"]) as descriptor:
            done = subprocess.run(
                [found, "--args", str(descriptor), "--", "true"],
                capture_output=True,
                text=True,
                timeout=60,
                pass_fds=(descriptor,),
                env={"PATH": SYSTEM_PATH},
            )
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        return program, None, f"bubblewrap ({found}) cannot be run: {error}"
    if done.returncode == 0:
        return program, version, None
    return program, version, _advice(version, done.stderr.strip().splitlines()[-1:] or [f"exit {done.returncode}"])


class _arguments:
    """bubblewrap's options in a file without a name, so that no process list shows them."""

    def __init__(self, options: Sequence[str]) -> None:
        self._descriptor = os.memfd_create("arguments")
        os.write(self._descriptor, b"".join(os.fsencode(option) + b"\0" for option in options))
        os.lseek(self._descriptor, 0, os.SEEK_SET)

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _install_command() -> str:
    for tool, command in (
        ("apt-get", "apt-get install bubblewrap"),
        ("dnf", "dnf install bubblewrap"),
        ("pacman", "pacman -S bubblewrap"),
        ("zypper", "zypper install bubblewrap"),
    ):
        if shutil.which(tool):
            return command
    return "https://github.com/containers/bubblewrap"


def _sysctl(name: str) -> str | None:
    try:
        return Path("/proc/sys", name.replace(".", "/")).read_text().strip()
    except OSError:
        return None


def _advice(version: str, said: Sequence[str]) -> str:
    """Turn bubblewrap's complaint into a sentence with the fix."""
    message = said[-1]
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if "Unknown option" in message or numbers < (0, 8):
        fix = f"version 0.8 or newer is needed, found {version}; install a newer one and put it first on PATH"
    elif "setuid" in message:
        fix = "it is installed setuid; remove that: chmod u-s $(command -v bwrap)"
    elif _sysctl("kernel.unprivileged_userns_clone") == "0":
        fix = "user namespaces are off; switch them on: sysctl -w kernel.unprivileged_userns_clone=1"
    elif _sysctl("user.max_user_namespaces") == "0":
        fix = "user namespaces are off; switch them on: sysctl -w user.max_user_namespaces=15000"
    elif _sysctl("kernel.apparmor_restrict_unprivileged_userns") == "1" and os.geteuid() != 0:
        fix = (
            "AppArmor forbids user namespaces to it; give bwrap a profile with 'userns,' or run: "
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        )
    elif "proc" in message:
        fix = (
            "inside a container, /proc is masked; start the container with "
            "--security-opt systempaths=unconfined --security-opt seccomp=unconfined"
        )
    else:
        fix = (
            "user namespaces seem to be forbidden here; inside a container, start it with "
            "--security-opt seccomp=unconfined --security-opt apparmor=unconfined"
        )
    return f"bubblewrap is installed and does not work ({message}): {fix}"


@cache
def _scopes_sockets() -> bool:
    return _reaper.landlock_abi() >= 6


# --- one agent's view ----------------------------------------------------------------------------------------------


def plan(
    launch: Launch,
    rooms: Rooms,
    containment: Containment,
    *,
    network: Network = "open",
    gpu_devices: Sequence[str] = (),
    tool_env: Path | None = None,
    weights: Path | None = None,
    relay_socket: Path | None = None,
    hidden: Sequence[Path] = (),
) -> Box:
    """Work out how to start an agent: program, environment, and the view it gets.

    Parameters
    ----------
    launch
        What the agent declares.
    network
        ``open`` is the host's network; ``none`` is loopback only; ``model`` is ``none`` plus the relay's socket.
    gpu_devices
        Indices (PCI order, as nvidia-smi counts), UUIDs or device files; none means that no GPU is visible.
    tool_env
        Folder of a tool environment (``bin/`` below it), shown read-only at its own path, first on ``PATH``.
    weights
        Folder of model weights, shown read-only at its own path.
    relay_socket
        The relay's Unix socket, for ``network="model"``.
    hidden
        Further host paths that stay invisible even where something shown contains them.

    Raises
    ------
    ContainmentError
        When something declared does not exist, would show what must stay hidden, or cannot be enforced.
    """
    _check_rooms(rooms)
    if network not in ("open", "model", "none"):
        raise ValueError(f"network {network!r}: expected one of open, model, none")
    if containment.own is not None:
        return _plan_driver(launch, rooms, containment, gpu_devices)
    if network != "open" and not containment.in_force and not containment.trusted:
        raise ContainmentError(f"--network={network} cannot be enforced without containment ({containment.reason})")
    if network == "model" and relay_socket is None and not containment.trusted:
        raise ContainmentError(
            "--network=model needs the model relay, and none is running; use --network=open or --network=none"
        )
    for name, folder in (("--agent-env", tool_env), ("the weights cache", weights)):
        if folder is not None and not folder.is_dir():
            raise ContainmentError(f"{name}: no such folder: {folder}")
    for bind in launch.binds:
        _check_bind(bind, containment.in_force)
    seen = containment.paths(rooms)
    python = PrivatePython.find(tool_env, launch.python_prefix)
    environment = _environment(launch, seen, containment, gpu_devices, tool_env, weights, relay_socket, python)
    if python is not None and python.needs_private:
        python.build(rooms.home, seen.home)
    if not containment.in_force:
        return Box(launch.argv, environment, seen.output_dir)
    mounts = [*_prefix_mounts(launch.python_prefix, tool_env, weights), *_declared_mounts(launch.binds)]
    mounts += _covers(mounts, (*_protected(), *hidden, rooms.logs))
    options = [
        *_NAMESPACES,
        *system_view(network, gpu_devices),
        *_covers_of_system((*_protected(), *hidden)),
        *("--bind", str(rooms.tmp.resolve()), seen.tmp),
        *("--bind", str(rooms.home.resolve()), seen.home),
        *("--ro-bind", str(rooms.input.resolve()), seen.input_dir),
        *("--bind", str(rooms.output.resolve()), seen.output_dir),
        *("--ro-bind", str(rooms.instruction.resolve()), seen.instruction_file),
        *(option for mount in sorted(mounts, key=lambda mount: mount.depth) for option in mount.options),
    ]
    if relay_socket is not None and network == "model":
        options += ["--ro-bind", str(relay_socket.resolve()), RELAY_SOCKET]
    options += ["--remount-ro", "/", "--chdir", seen.output_dir]
    files = (("/etc/passwd", _PASSWD), ("/etc/group", _GROUP), ("/etc/hosts", _hosts()), ("/etc/hostname", HOST_NAME))
    return Box(
        launch.argv,
        environment,
        "/",
        program=str(containment.program),
        options=tuple(options),
        files=files,
        scope_sockets=_scopes_sockets(),
    )


def _plan_driver(launch: Launch, rooms: Rooms, containment: Containment, gpu_devices: Sequence[str]) -> Box:
    """Start the driver of an agent that brings its own container: outside, with the host's paths of the rooms."""
    seen = containment.paths(rooms)
    environment = _environment(launch, seen, containment, (), None, None, None, None) | {
        f"BIABENCH_ROOM_{name.upper()}": str(getattr(rooms, name)) for name in ("input", "output", "home", "tmp")
    }
    environment["BIABENCH_ROOM_GPU"] = ",".join(gpu_devices)
    return Box(launch.argv, environment, str(rooms.home))


def _check_rooms(rooms: Rooms) -> None:
    for name in ("input", "output", "home", "tmp", "logs"):
        folder: Path = getattr(rooms, name)
        if not folder.is_dir():
            raise ContainmentError(f"the trial's {name} folder does not exist: {folder}")
    if not rooms.instruction.is_file():
        raise ContainmentError(f"the trial's instruction does not exist: {rooms.instruction}")


_OURS = ("/input", "/output", "/instruction.md", "/proc", "/sys", "/dev")


def _check_bind(bind: Bind, contained: bool) -> None:
    target = Path(bind.target)
    if not bind.source.exists():
        raise ContainmentError(f"an agent's bind does not exist: {bind.source}")
    if not target.is_absolute() or ".." in target.parts or target == Path("/"):
        raise ContainmentError(f"an agent's bind needs an absolute target below /: {bind.target!r}")
    if not contained:
        if target.resolve() != bind.source.resolve():
            raise ContainmentError(
                f"an agent's bind moves {bind.source} to {bind.target}, which needs containment; "
                "bind it at its own path to run without"
            )
    elif any(target.is_relative_to(root) for root in _OURS) or target in (Path(HOME), Path("/tmp")):  # noqa: S108
        raise ContainmentError(f"an agent's bind may not cover {bind.target}")
    elif is_system(target) and target.resolve() != bind.source.resolve():
        raise ContainmentError(f"an agent's bind may not change the system: {bind.target}")


@dataclass(frozen=True)
class _Mount:
    target: Path
    options: tuple[str, ...]
    source: Path | None = None  # None for a cover

    @property
    def depth(self) -> tuple[int, bool]:
        return len(self.target.parts), self.source is None


def _shown(source: Path, target: Path, *, writable: bool = False) -> list[_Mount]:
    if is_system(target):
        return []  # visible already
    return [_Mount(target, ("--bind" if writable else "--ro-bind", str(source.resolve()), str(target)), source)]


def _declared_mounts(binds: Sequence[Bind]) -> list[_Mount]:
    return [mount for bind in binds for mount in _shown(bind.source, Path(bind.target), writable=bind.writable)]


def _prefix_mounts(python_prefix: bool, tool_env: Path | None, weights: Path | None) -> list[_Mount]:
    """Show interpreters, tool environment and weights at their own paths; two names of one folder show it twice."""
    folders: set[Path] = set()
    if python_prefix:
        folders |= {Path(sys.prefix), Path(sys.base_prefix)}
    if tool_env is not None:
        folders |= {tool_env.absolute(), *PrivatePython.bases(tool_env)}
    if weights is not None:
        folders.add(weights.absolute())
    folders |= {folder.resolve() for folder in folders}
    return [mount for folder in sorted(folders) for mount in _shown(folder, folder)]


@cache
def _protected() -> tuple[Path, ...]:
    """Folders of this project that no agent may see: the checkout, or, where it is installed, its packages."""
    root = Path(__file__).resolve().parent.parent
    if (root / "pyproject.toml").is_file():
        return (root,)
    specs = (find_spec(name) for name in ("biabench_plugin", "evaluators", "tasks"))
    return tuple(Path(place).resolve() for spec in specs if spec for place in spec.submodule_search_locations or ())


def _cover(target: Path, kind: Path) -> _Mount:
    if kind.is_dir():
        return _Mount(target, ("--tmpfs", str(target), "--remount-ro", str(target)))
    return _Mount(target, ("--ro-bind", "/dev/null", str(target)))


def _covers(mounts: Sequence[_Mount], protected: Sequence[Path]) -> list[_Mount]:
    """Cover what must stay hidden inside a mount that contains it."""
    covers = {}
    for mount in mounts:
        source = mount.source.resolve() if mount.source else mount.target
        for path in protected:
            secret = path.resolve()
            if not secret.exists() or not secret.is_relative_to(source):
                continue
            if secret == source:
                raise ContainmentError(f"{mount.source} must stay hidden from agents, and would be shown to one")
            target = mount.target / secret.relative_to(source)
            covers[target] = _cover(target, secret)
    return list(covers.values())


def _covers_of_system(protected: Sequence[Path]) -> list[str]:
    """The same for the system's folders, for a project that is installed or checked out below /usr."""
    system = [_Mount(Path(root), (), Path(root)) for root in SYSTEM_ROOTS if Path(root).is_dir()]
    return [option for cover in _covers(system, protected) for option in cover.options]


def _hosts() -> str:
    try:
        own = Path("/etc/hosts").read_text(errors="replace")
    except OSError:
        own = "127.0.0.1 localhost\n::1 localhost\n"
    return f"{own.rstrip()}\n127.0.1.1 {HOST_NAME}\n"


# --- environment ---------------------------------------------------------------------------------------------------


def _environment(
    launch: Launch,
    seen: AgentPaths,
    containment: Containment,
    gpu_devices: Sequence[str],
    tool_env: Path | None,
    weights: Path | None,
    relay_socket: Path | None,
    python: PrivatePython | None,
) -> dict[str, str]:
    """Return the agent's whole environment; nothing of the operator's passes but what is named here or declared."""
    environment = {
        "HOME": seen.home,
        "TMPDIR": seen.tmp,
        "LANG": "C.UTF-8",
        "USER": "user",
        "LOGNAME": "user",
        "SHELL": "/bin/sh",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_BREAK_SYSTEM_PACKAGES": "1",  # the system's folders are read-only; pip goes to HOME instead
    }
    operator = os.environ
    environment |= {name: operator[name] for name in (*_THREADS, "TZ") if name in operator}
    path = [SYSTEM_PATH] if containment.in_force else [operator.get("PATH", SYSTEM_PATH)]
    if launch.python_prefix:
        path.insert(0, str(Path(sys.prefix, "bin")))
    if tool_env is not None:
        path.insert(0, str(tool_env.absolute() / "bin"))
    if python is not None and python.needs_private:
        venv = PrivatePython.place(seen.home)
        path.insert(0, f"{venv}/bin")
        environment["VIRTUAL_ENV"] = venv
    path.insert(len(path) - 1, f"{seen.home}/.local/bin")
    environment["PATH"] = ":".join(path)
    if weights is not None:
        environment["BIABENCH_WEIGHTS"] = str(weights.absolute())
        for folder, name in _WEIGHTS.items():
            if (weights / folder).is_dir():
                environment[name] = str(weights.absolute() / folder)
    environment |= gpu_environment(gpu_devices, containment.in_force)
    if relay_socket is not None:
        environment["BIABENCH_RELAY_SOCKET"] = RELAY_SOCKET if containment.in_force else str(relay_socket)
    environment |= {name: operator[name] for name in launch.pass_environment if name in operator}
    environment |= dict(launch.environment)
    return environment | {
        "BIABENCH_INPUT": seen.input_dir,
        "BIABENCH_OUTPUT": seen.output_dir,
        "BIABENCH_INSTRUCTION": seen.instruction_file,
    }
