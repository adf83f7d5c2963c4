"""Which Python an agent's ``python`` is, and a private layer above it that ``pip install`` can write to.

The interpreter that an agent is given is read-only. One that is no virtual environment falls back to the user's
site-packages by itself, which lie in the private HOME. A virtual environment does not, so a private one is laid over
it: the same interpreter, the same packages, and a writable folder in front. It is written by hand because ``venv``
takes longer than the whole start of a trial, and because a venv of a venv would lose the packages of the one below.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_FOLDER = ".venv"


@dataclass(frozen=True)
class PrivatePython:
    """An interpreter, and whether it needs a private layer.

    Parameters
    ----------
    executable
        Path of the interpreter that is not part of any virtual environment.
    version
        ``3.11`` and the like.
    site_packages
        Folders of the environment below, in order.
    needs_private
        Whether installing into it would fail: it is a virtual environment.
    """

    executable: Path
    version: str
    site_packages: tuple[Path, ...]
    needs_private: bool

    @staticmethod
    def find(tool_env: Path | None, python_prefix: bool) -> PrivatePython | None:
        """Return the Python that an agent gets from its tool environment or from this interpreter, if any.

        Without containment nothing is read-only, so nothing would need a layer; there it keeps an agent from changing
        the environment that the benchmark itself runs on.
        """
        if tool_env is not None:
            return PrivatePython._of(tool_env.absolute())
        if python_prefix:
            return PrivatePython._of(Path(sys.prefix))
        return None

    @staticmethod
    def _of(prefix: Path) -> PrivatePython | None:
        folders = tuple(sorted(prefix.glob("lib/python3.*/site-packages")))
        if not folders:
            return None
        version = folders[-1].parent.name.removeprefix("python")
        home = _configured_home(prefix)
        executable = (home or prefix / "bin") / f"python{version}"
        return PrivatePython(executable, version, folders, home is not None)

    @staticmethod
    def bases(prefix: Path) -> tuple[Path, ...]:
        """Return the prefixes that a virtual environment needs besides its own; none for another kind of folder."""
        home = _configured_home(prefix)
        return () if home is None else tuple(dict.fromkeys((home.parent, home.resolve().parent)))

    @staticmethod
    def place(home: str) -> str:
        """Return where the layer lies, as the agent sees it."""
        return f"{home}/{_FOLDER}"

    def build(self, home: Path, home_seen: str) -> None:
        """Write the layer into ``home``, for an agent that sees it as ``home_seen``."""
        root = home / _FOLDER
        packages = root / "lib" / f"python{self.version}" / "site-packages"
        packages.mkdir(parents=True)
        (root / "bin").mkdir()
        for name in ("python", "python3", f"python{self.version}"):
            (root / "bin" / name).symlink_to(self.executable)
        place = self.place(home_seen)
        for name in ("pip", "pip3"):
            script = root / "bin" / name
            script.write_text(f'#!/bin/sh\nexec "{place}/bin/python" -m pip "$@"\n')
            script.chmod(0o755)
        (root / "pyvenv.cfg").write_text(
            f"home = {self.executable.parent}\ninclude-system-site-packages = true\nversion = {self.version}\n"
        )
        lines = [f"import site; site.addsitedir({str(folder)!r})\n" for folder in self.site_packages]
        (packages / "_below.pth").write_text("".join(lines))


def _configured_home(prefix: Path) -> Path | None:
    """Return ``home`` of a virtual environment's ``pyvenv.cfg``, or ``None`` where there is no such file."""
    try:
        lines = (prefix / "pyvenv.cfg").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        key, _, value = line.partition("=")
        if key.strip().lower() == "home":
            return Path(value.strip())
    return None
