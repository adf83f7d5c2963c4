"""Where the command-line agents are installed: ``npm ci`` in this folder, at the versions of ``package-lock.json``."""

from __future__ import annotations

import hashlib
import json
import platform
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
MODULES = FOLDER / "node_modules"
INSTALL = "run `npm ci` in agents/cli"
_PROCESSORS = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
_PROVIDER_FAULTS = frozenset((401, 402, 403, 404, 408, 429))


def provider_fault(status: int) -> bool:
    """Tell whether an HTTP status that a program reports is the provider's or the account's fault, not the agent's."""
    return status in _PROVIDER_FAULTS or status >= 500


def processor() -> str:
    """Return this machine's processor in npm's words."""
    return _PROCESSORS.get(platform.machine().lower(), platform.machine())


@cache
def pinned(package: str) -> str:
    """Return the version of a package that is pinned, as it enters records and resume keys."""
    return str(json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))["dependencies"][package])


def fingerprint(package: str, *wrapper: Path) -> str:
    """Return a digest of what an agent is: its pinned version, everything that is locked with it, and its wrapper."""
    digest = hashlib.sha256(pinned(package).encode())
    for path in (FOLDER / "package-lock.json", FOLDER.parent / "_events.py", *wrapper):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def missing(package: str, program: Path) -> str | None:
    """Say what to do where a program is not installed, or not at the pinned version; ``None`` where it is."""
    if not program.is_file():
        return f"{package} {pinned(package)} is not installed: {INSTALL}"
    found = json.loads((MODULES / package / "package.json").read_text(encoding="utf-8"))["version"]
    if found != pinned(package):
        return f"{package} is installed at {found}, and {pinned(package)} is pinned: {INSTALL}"
    return None
