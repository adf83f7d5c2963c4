"""Where this project lies, and whether the imported rooms belong to it."""

from __future__ import annotations

import subprocess
import tomllib
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TASKS = ROOT / "tasks"


def check_rooms() -> None:
    """Raise ``RuntimeError`` when ``agents``, ``evaluators`` or ``tasks`` came from another distribution.

    Their names are short, and other packages install modules of the same name.
    """
    for name in ("agents", "evaluators", "tasks"):
        found = Path(import_module(name).__file__ or "").resolve().parent
        if found != ROOT / name:
            raise RuntimeError(
                f"the package {name!r} was imported from {found}, expected {ROOT / name}: another installed package "
                f"has the same name; use a virtual environment of its own for biabench"
            )


@cache
def version() -> str:
    """Return the version of this project, also in a checkout that is not installed."""
    try:
        return installed_version("biabench")
    except PackageNotFoundError:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return f"{project['version']}+checkout"


@cache
def commit() -> str | None:
    """Return the commit of the checkout, with ``+changes`` when the work tree differs, or ``None`` outside git."""
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--dirty=+changes", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
