"""How one trial's agent reaches its model: the provider, its key, and the relay between them."""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from agents.base import Agent, Bind, Launch
from agents.endpoints import Endpoint, Provider, effort_style, find_provider
from agents.relay import forward
from agents.relay.ledger import FILE_NAME

if TYPE_CHECKING:
    from biabench_plugin.campaign import Configuration

_START_SECONDS = 60.0
_PORT = 8788  # inside a box with a loopback of its own
_FORWARDER = "/opt/forward.py"
_ROOT = Path(__file__).resolve().parents[1]


class RelayError(RuntimeError):
    """The relay could not be started; a fault of this host, not of the agent."""


@dataclass(frozen=True)
class Access:
    """What a trial has: the endpoint that the agent is told, and the relay's socket where the network is the relay."""

    endpoint: Endpoint | None = None
    socket: Path | None = None
    ledger: Path | None = None

    def launch(self, launch: Launch) -> Launch:
        """Return the launch with what carries connections to the relay's socket, where there is one."""
        if self.socket is None:
            return launch
        from biabench_plugin.isolation import RELAY_SOCKET

        program = (sys.executable, "-I", "-B", "-S", _FORWARDER, str(_PORT), RELAY_SOCKET, "--")
        bind = Bind(Path(forward.__file__), _FORWARDER)
        return replace(launch, argv=(*program, *launch.argv), binds=(*launch.binds, bind), python_prefix=True)


def provider_of(agent: Agent, configuration: Configuration) -> Provider | None:
    """Return the provider of a configuration, ``None`` for an agent that takes no base URL.

    Raises ``ValueError`` for an unknown provider, or one that does not speak the agent's protocol.
    """
    if agent.protocol is None:
        return None
    provider = find_provider(configuration.provider, configuration.key_variable)
    provider.root(agent.protocol)
    return provider


def missing_key(agent: Agent, configuration: Configuration) -> str | None:
    """Say which key is missing, and how to give it; ``None`` where nothing is."""
    provider = provider_of(agent, configuration)
    if provider is None or os.environ.get(provider.key_variable):
        return None
    return f"no key for {provider.name}: set {provider.key_variable}, or name another variable with --key-variable"


@contextmanager
def model_access(
    agent: Agent, configuration: Configuration, folder: Path, *, relay: bool, confined: bool
) -> Iterator[Access]:
    """Give a trial's agent its model for as long as the context lasts.

    Parameters
    ----------
    folder
        The attempt's folder, where the ledger goes.
    relay
        Whether the relay stands between; without it the agent's own process gets the real key.
    confined
        Whether the relay is all the network that the agent has: it then listens on a Unix socket, and refuses
        requests by which the provider itself would fetch from the web.
    """
    provider = provider_of(agent, configuration)
    if provider is None:
        yield Access()
        return
    key = os.environ.get(provider.key_variable, "")
    style = effort_style(provider.openai)
    if not relay:
        if confined:
            raise ValueError("--network=model is the relay and nothing else; it cannot be had with --relay=off")
        yield Access(Endpoint(provider.messages, provider.openai, key, False, provider.authentication, style))
        return
    with tempfile.TemporaryDirectory(prefix="relay-") as place:  # short: a socket's path has at most 108 bytes
        socket = Path(place, "s") if confined else None
        with _relay(provider, key, folder / FILE_NAME, socket, configuration.model) as (port, token):
            root = f"http://127.0.0.1:{port or _PORT}"
            endpoint = Endpoint(provider.messages and root, provider.openai and root, token, True, effort_style=style)
            yield Access(endpoint, socket, folder / FILE_NAME)


@contextmanager
def _relay(
    provider: Provider, key: str, ledger: Path, socket: Path | None, model: str | None = None
) -> Iterator[tuple[int, str]]:
    token = f"relay-{secrets.token_hex(16)}"
    openai = provider.openai or provider.messages or ""
    messages = provider.messages or provider.openai or ""
    given: dict[str, object] = {
        "upstream": {
            "roots": {"messages": messages, "responses": openai, "chat": openai, "other": openai},
            "key": key,
            "authentication": provider.authentication,
            "token": token,
            "web": socket is None,
            "model": model,
        },
        "ledger": str(ledger),
        "socket": None if socket is None else str(socket),
    }
    ledger.touch()
    with tempfile.TemporaryFile() as errors:  # a pipe that nobody reads would hold the relay up once it is full
        process = subprocess.Popen(
            [sys.executable, "-m", "agents.relay"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=_ROOT,
            env=_environment(provider.key_variable),
            start_new_session=True,  # Ctrl-C ends the agent first, and the relay after it
        )
        try:
            port = _started(process, given, errors)
            yield port, token
            if process.poll() is not None:  # what the agent did after that says nothing about it
                raise RelayError(f"the relay ended before its agent (exit code {process.returncode})")
        finally:
            _stop(process)


def _environment(key_variable: str) -> dict[str, str]:
    """Return what the relay's process needs: proxies and certificates of this host, and no key."""
    names = {"PATH", "HOME", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}
    found = {name: value for name, value in os.environ.items() if name.upper() in names and name != key_variable}
    return found | {"PYTHONPATH": str(_ROOT)}


def _started(process: subprocess.Popen[bytes], given: dict[str, object], errors: IO[bytes]) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(given).encode() + b"\n")
        process.stdin.flush()
        said, _, _ = select.select([process.stdout], [], [], _START_SECONDS)
        line = process.stdout.readline() if said else b""
    except BrokenPipeError:
        line = b""
    if line.strip().isdigit():
        return int(line)
    process.kill()
    process.communicate()
    errors.seek(0)
    last = errors.read().decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
    raise RelayError(f"the relay did not start: {last[0]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        try:
            process.communicate(timeout=15)  # closes its standard input, which ends it
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def keep_home_files(home: Path, patterns: tuple[str, ...], target: Path, limit: int = 256 << 20) -> None:
    """Copy an agent's own logs out of its HOME before that is deleted: real files only, up to ``limit`` bytes."""
    left = limit
    for pattern in patterns:
        for path in sorted(home.glob(pattern)):
            inside = path.relative_to(home)
            parents = [home / part for part in inside.parents]
            if path.is_symlink() or not path.is_file() or any(parent.is_symlink() for parent in parents):
                continue
            left -= path.stat().st_size
            if left < 0:
                return
            (target / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / inside, follow_symlinks=False)
