"""Any program as an agent: ``--agent=command --agent-command='python3 mine.py {input} {output}'``."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from agents.base import Agent, Bind, Launch, Session

_SYSTEM = tuple(Path(name) for name in ("/usr", "/bin", "/sbin", "/lib", "/lib64"))
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


class Command(Agent):
    """Runs the command line of the session, once, without a shell.

    ``{input}``, ``{output}``, ``{instruction}`` (a file) and ``{model}`` are replaced by the values of the trial; the
    same are in the environment: ``BIABENCH_INPUT``, ``BIABENCH_OUTPUT``, ``BIABENCH_INSTRUCTION``, ``BIABENCH_MODEL``.
    Inside containment the command sees the files and folders that its own words name (and nothing beside them), the
    interpreter in a script's first line, and the environment that a program in an environment's ``bin`` belongs to.
    """

    name: ClassVar[str] = "command"
    description: ClassVar[str] = "any program, given by --agent-command"

    def launch(self, session: Session) -> Launch:
        words = _split(session.command or "")
        seen = _Needs()
        argv = [self._fill(seen.word(word, program=not index), session) for index, word in enumerate(words)]
        environment = {} if session.model is None else {"BIABENCH_MODEL": session.model}
        return Launch(
            tuple(argv), environment=environment, binds=tuple(seen.binds.values()), python_prefix=seen.own_python
        )

    @staticmethod
    def _fill(word: str, session: Session) -> str:
        if "{model}" in word and session.model is None:
            raise ValueError("the command uses {model}, and no model was given: --agent=command=MODEL")
        values = {
            "{input}": session.input_dir,
            "{output}": session.output_dir,
            "{instruction}": session.instruction_file,
            "{model}": session.model or "",
        }
        for placeholder, value in values.items():
            word = word.replace(placeholder, value)
        return word


def _split(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"--agent-command: {error}: {command!r}") from error
    if not words:
        raise ValueError("--agent=command needs --agent-command='PROGRAM …'")
    return words


class _Needs:
    """What a command must see besides the system."""

    def __init__(self) -> None:
        self.binds: dict[Path, Bind] = {}
        self.own_python = False

    def word(self, word: str, *, program: bool) -> str:
        """Return a word as it must be written, and note what it needs."""
        if program and "/" not in word:
            found = shutil.which(word)
            if found is not None and Path(found).parent == Path(sys.prefix, "bin"):
                self.own_python = True
                return word
            if found is None or shutil.which(word, path=_SYSTEM_PATH) is not None:
                return word  # found by its name inside too, or, perhaps, only there
            word = found
        path = Path(word).expanduser().absolute()
        if not (program or path.is_file() or (path.is_dir() and "/" in word)):
            return word
        if not path.exists():
            raise ValueError(f"--agent-command: no such program: {word}")
        self._show(path, program=program)
        return os.path.normpath(path)

    def _show(self, path: Path, *, program: bool) -> None:
        if path.is_relative_to(sys.prefix) or path.is_relative_to(sys.base_prefix):
            self.own_python = True
            return
        environment = path.parent.parent
        if program and path.parent.name == "bin" and _is_environment(environment):
            for folder in (environment, *_bases(environment)):
                self._bind(folder)
            return
        self._bind(path)
        if path.is_symlink():
            self._bind(path.resolve())
        interpreter = _interpreter(path) if program else None
        if interpreter is not None:
            self._show(interpreter, program=True)

    def _bind(self, path: Path) -> None:
        if not _is_system(path):
            self.binds[path] = Bind(path, os.path.normpath(path))


def _is_system(path: Path) -> bool:
    return any(path.is_relative_to(root) for root in _SYSTEM)


def _is_environment(folder: Path) -> bool:
    return (folder / "pyvenv.cfg").is_file() or (folder / "conda-meta").is_dir()


def _bases(environment: Path) -> Iterator[Path]:
    """Yield the installation that a virtual environment's interpreter belongs to."""
    for name in ("python", "python3"):
        python = environment / "bin" / name
        if python.exists():
            yield python.resolve().parent.parent
            return


def _interpreter(path: Path) -> Path | None:
    """Return the program that a script's first line names, where it is no part of the system."""
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        line = stream.readline(256)
    words = line[2:].split() if line.startswith(b"#!") else []
    interpreter = Path(os.fsdecode(words[0])) if words else None
    if interpreter is None or _is_system(interpreter) or not interpreter.exists():
        return None
    return interpreter
