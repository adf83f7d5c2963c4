"""Run Agentic-J on one instruction, in its own container, under Apptainer or Docker.

This driver runs outside the container and is the only thing that the supervisor starts. The container sees the trial's
input (read-only), its output and private folders, and nothing else of the host. Agentic-J's documented hooks read
``instruction.txt`` in the output folder and write ``result.json`` there when the agent has finished; both are taken out
again, so that they are no part of the submission.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agents.drivers._driver import BROKEN, Events, NotReady, Part, Parts, obey_sigterm, read_job
else:  # beside this file, wherever it is shown
    from _driver import BROKEN, Events, NotReady, Part, Parts, obey_sigterm, read_job

HOOKS = "/app/src/imagentj/benchmark_gui_hooks.py"
ENTRYPOINT = "/docker-entrypoint.sh"
SWITCHES = ("BENCHMARK_ENUMERATE_INPUTS", "BENCHMARK_DUPLICATE_OUTPUTS", "BENCHMARK_WORKSPACE_SUBDIR")
_SEEDED = ("/opt/Fiji.app/plugins", "/opt/Fiji.app/jars", "/opt/appose", "/app/scripts/saved_scripts")
_DISPLAYS = range(20, 220)
_RESULT_BYTES = 64 << 20
_AFTER_RESULT_SECONDS = 30.0
_CONTROL = ("instruction.txt", "result.json", "agentic-j_debug.log", "agentic_j_debug.log")
# The container lives as long as somebody holds its standard input: should this driver be killed, everything in it dies,
# although the engine's daemon started it and no process tree leads there.
_LEASE = '[ $$ -eq 1 ] || exit 70; exec 3<&0; (cat <&3 >/dev/null; kill -KILL -1) & "$@" 3<&- </dev/null & wait $!'


class Box:
    """A container engine: how it reads a file of the image, and how it starts the container."""

    def __init__(self, job: dict[str, Any], home: Path) -> None:
        self.job = job
        self.home = home
        self.mounts: list[tuple[Path, str, bool]] = []
        self.variables: dict[str, str] = {}

    def mount(self, source: Path, target: str, *, writable: bool = False) -> None:
        self.mounts.append((source, target, writable))

    def private(self, name: str, *targets: str, mode: int = 0o700) -> Path:
        """Give the container an empty folder of this trial's own."""
        folder = self.home / "container" / name
        folder.mkdir(parents=True)
        folder.chmod(mode)
        for target in targets:
            self.mount(folder, target, writable=True)
        return folder

    def read(self, path: str) -> str:
        """Return a text file of the image."""
        done = subprocess.run(self._cat(path), capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise NotReady(f"the image {self.job['image']} has no {path}: {done.stderr.strip()[-300:]}")
        return done.stdout

    def _cat(self, path: str) -> list[str]:
        raise NotImplementedError

    def prepare(self) -> None:
        """Make ready what this engine needs besides the mounts."""

    def command(self, environment_file: Path) -> list[str]:
        """Return the command that runs the container in the foreground."""
        raise NotImplementedError

    def remove(self) -> None:
        """Remove the container, whatever state it is in."""


class Docker(Box):
    """Docker, or a program that takes its command line."""

    def __init__(self, job: dict[str, Any], home: Path) -> None:
        super().__init__(job, home)
        self.name = f"biabench-{os.urandom(8).hex()}"

    def _cat(self, path: str) -> list[str]:
        return ["docker", "run", "--rm", "--network", "none", "--entrypoint", "cat", self.job["image"], path]

    def _original(self) -> list[str]:
        done = subprocess.run(
            ["docker", "image", "inspect", "--format", "{{json .Config}}", self.job["image"]],
            capture_output=True,
            text=True,
            timeout=60,
        )
        try:
            config = json.loads(done.stdout)
        except ValueError:
            raise NotReady(
                f"docker does not know the image {self.job['image']}: {done.stderr.strip()[-300:]}"
            ) from None
        return [*(config.get("Entrypoint") or [ENTRYPOINT]), *(config.get("Cmd") or [])]

    def command(self, environment_file: Path) -> list[str]:
        words = [
            "docker",
            "run",
            "--rm",
            "--interactive",
            "--init=false",
            "--name",
            self.name,
            "--label",
            "biabench=trial",
        ]
        words += ["--user", f"{os.getuid()}:{os.getgid()}", "--cap-drop", "ALL"]
        words += ["--security-opt", "no-new-privileges", "--workdir", "/app", "--env-file", str(environment_file)]
        words += ["--network", "none"] if self.job["network"] == "none" else []
        words += ["--gpus", f'"device={self.job["gpu"]}"'] if self.job["gpu"] else []
        for source, target, writable in self.mounts:
            words += ["--mount", f"type=bind,source={source},target={target}{'' if writable else ',readonly'}"]
        return [*words, "--entrypoint", "/bin/sh", self.job["image"], "-c", _LEASE, "sh", *self._original()]

    def remove(self) -> None:
        subprocess.run(["docker", "rm", "--force", self.name], capture_output=True, timeout=60)


class Apptainer(Box):
    """Apptainer: the container's processes are this driver's own, and it shares the host's network."""

    _display: IO[str] | None = None

    def _cat(self, path: str) -> list[str]:
        return ["apptainer", "exec", "--containall", "--cleanenv", self.job["image"], "cat", path]

    def prepare(self) -> None:
        number = self._free_display()
        text, count = re.subn(r"(?<![\w.]):1(?![\d.])", f":{number}", self.read(ENTRYPOINT))
        if count == 0:
            raise NotReady(f"the image's {ENTRYPOINT} names no display :1, which this driver must change")
        patched = self.home / "entrypoint.sh"
        patched.write_text(text, encoding="utf-8")
        patched.chmod(0o755)
        self.mount(patched, ENTRYPOINT)
        self.variables["DISPLAY"] = f":{number}"
        for index, target in enumerate(_SEEDED):  # a bind hides what the image has there, so it is copied out first
            folder = self.private(f"seeded-{index}", target)
            self._seed(target, folder)

    def _seed(self, target: str, folder: Path) -> None:
        with tempfile.TemporaryFile(dir=self.home) as archive:
            done = subprocess.run(
                [
                    "apptainer",
                    "exec",
                    "--containall",
                    "--cleanenv",
                    self.job["image"],
                    "tar",
                    "-C",
                    target,
                    "-cf",
                    "-",
                    ".",
                ],
                stdout=archive,
                stderr=subprocess.PIPE,
                timeout=900,
            )
            if done.returncode != 0:
                raise NotReady(f"the image has no {target}: {done.stderr.decode(errors='replace').strip()[-300:]}")
            archive.seek(0)
            subprocess.run(["tar", "-C", str(folder), "-xf", "-"], stdin=archive, check=True, timeout=900)

    def _free_display(self) -> int:
        """Return a display number that nobody on this host uses, and hold it while this driver lives."""
        used = {int(number) for number in re.findall(r"\.X11-unix/X(\d+)", Path("/proc/net/unix").read_text())}
        for number in _DISPLAYS:
            if number in used:
                continue
            lock = Path(tempfile.gettempdir() if not self.job["locks"] else self.job["locks"], f"display-{number}.lock")
            lock.parent.mkdir(parents=True, exist_ok=True)
            self._display = lock.open("w")
            try:
                fcntl.flock(self._display, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self._display.close()
                continue
            return number
        raise NotReady("no free display number from 20 to 219")

    def command(self, environment_file: Path) -> list[str]:
        home = next(source for source, target, _ in self.mounts if target == "/home/imagentj")
        words = ["apptainer", "run", "--containall", "--cleanenv", "--writable-tmpfs", "--pwd", "/app"]
        words += ["--home", f"{home}:/home/imagentj", "--env-file", str(environment_file)]
        words += ["--nv"] if self.job["gpu"] else []
        words += ["--net", "--network", "none"] if self.job["network"] == "none" else []
        for source, target, writable in self.mounts:
            if target != "/home/imagentj":
                words += ["--bind", f"{source}:{target}:{'rw' if writable else 'ro'}"]
        return [*words, self.job["image"]]


ENGINES = {"docker": Docker, "apptainer": Apptainer}


def check_contract(box: Box) -> None:
    """Refuse an image that would list the inputs or dump its workspace among the results."""
    text = box.read(HOOKS)
    missing = [name for name in SWITCHES if name not in text]
    if missing:
        raise NotReady(f"the image {box.job['image']} is too old: its hooks do not know {', '.join(missing)}")


def assemble(job: dict[str, Any], box: Box, rooms: dict[str, Path]) -> Path:
    """Declare the container's folders and variables; return the file with the variables."""
    box.mount(rooms["input"], job["input"])
    box.mount(rooms["output"], job["output"], writable=True)
    box.private("home", "/home/imagentj")
    box.private("data", "/data", "/app/data")
    x11 = box.private("tmp", "/tmp", mode=0o1777) / ".X11-unix"  # noqa: S108 - inside the container
    x11.mkdir()
    x11.chmod(0o1777)
    config = box.home / "imagentj_config.yaml"
    config.write_text(job["config"], encoding="utf-8")
    box.mount(config, "/app/imagentj_config.yaml")
    if job["qdrant"]:
        shutil.copytree(job["qdrant"], box.private("qdrant", "/app/qdrant_data"), dirs_exist_ok=True)
    box.variables |= {
        "FIJI_PATH": "/opt/Fiji.app",
        "QDRANT_DATA_PATH": "/app/qdrant_data",
        "DISPLAY": ":1",
        "PYTHONPATH": "/app:/app/src",
        "HOME": "/home/imagentj",
        "IMAGENTJ_CONFIG": "/app/imagentj_config.yaml",
        "IMAGENTJ_UNATTENDED": "true",
        "IMAGENTJ_REASONING_EFFORT": job["effort"],
        "BENCHMARK_MODE": "true",
        "BENCHMARK_INPUT_DIR": job["input"],
        "BENCHMARK_OUTPUT_DIR": job["output"],
        "BENCHMARK_INTERACTIVE": "false",
        **dict(zip(SWITCHES, ("0", "0", "supporting"), strict=True)),
        "LANGSMITH_TRACING": "false",
        "LANGCHAIN_TRACING_V2": "false",
        **job["key_variables"],
    }
    box.prepare()
    file = box.home / "environment"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.writelines(f"{name}={value}\n" for name, value in box.variables.items())
    return file


def read_result(path: Path) -> dict[str, Any] | None:
    """Return the result file once it is whole; the container writes it, so it is read with care."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as stream:
        about = os.fstat(stream.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_size > _RESULT_BYTES:
            return None
        try:
            found = json.loads(stream.read(_RESULT_BYTES))
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def await_result(container: Part, path: Path) -> dict[str, Any] | None:
    """Wait until the hooks write their result, or the container ends without one."""
    while True:
        ended = container.code is not None
        found = read_result(path)
        if found is not None:
            deadline = time.monotonic() + _AFTER_RESULT_SECONDS
            while container.code is None and time.monotonic() < deadline:
                time.sleep(0.1)
            return found
        if ended:
            return None
        time.sleep(0.2)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _folder(value: Any, *names: str) -> dict[str, Any]:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def totals(result: dict[str, Any]) -> dict[str, int]:
    """Return a run's usage: the session's totals, else the sum over its queries, else nothing.

    The bare ``total_tokens`` cannot be split into input and output, and the cost is the key's, not the run's.
    """
    metadata = _folder(result, "metadata")
    names = {"input_tokens": "input_tokens", "output_tokens": "output_tokens", "cached_input_tokens": "cached_tokens"}
    session = _folder(metadata, "session_totals", "totals")
    found = {ours: count for theirs, ours in names.items() if (count := _count(session.get(theirs))) is not None}
    queries = _folder(metadata, "usage_report", "conversation").get("queries")
    if not found and isinstance(queries, list):
        for query in queries:
            for name in ("input_tokens", "output_tokens"):
                count = _count(_folder({"query": query}, "query").get(name))
                if count is not None:
                    found[name] = found.get(name, 0) + count
    calls = _count(metadata.get("tool_calls"))
    return found if calls is None else {**found, "tool_calls": calls}


def report(result: dict[str, Any], events: Events) -> int:
    """Turn the result into events; return the exit code."""
    queries = _folder(result, "metadata", "usage_report", "conversation").get("queries")
    for query in queries if isinstance(queries, list) else ():
        calls = _folder({"query": query}, "query").get("tool_call_log")
        for call in calls if isinstance(calls, list) else ():
            events.send("step", kind="tool", **_tool_step(call))
    events.send("totals", **totals(result))
    message = result.get("message")
    if message:
        events.send("final", text=str(message))
    verdict = str(_folder(result, "metadata").get("plausibility_verdict") or "")
    doubted = verdict.removeprefix("PLAUSIBILITY VERDICT:").strip().upper().startswith("FAIL")
    if result.get("success") is True or doubted:  # it finished; that it doubts its own result is no failure of the run
        return 0
    print(f"Agentic-J reports a failed run: {result.get('error')}", file=sys.stderr)
    return 1


def _tool_step(call: Any) -> dict[str, Any]:
    fields = _folder({"call": call}, "call")
    found = {
        "tool": fields.get("name") or fields.get("tool"),
        "code": fields.get("args"),
        "output": fields.get("result"),
    }
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in found.items()
        if value is not None
    }


def tidy(output: Path) -> None:
    """Take the hooks' own files out of the output; the debug log goes to standard error."""
    for name in _CONTROL:
        path = output / name
        try:
            regular = stat.S_ISREG(path.lstat().st_mode)
        except OSError:
            continue
        if regular and name.endswith(".log"):
            with path.open(encoding="utf-8", errors="replace") as stream:
                shutil.copyfileobj(stream, sys.stderr)
        if regular or path.is_symlink():
            path.unlink()


def run(job: dict[str, Any], events: Events, rooms: dict[str, Path]) -> int:
    """Start the container, wait for its result, stop it; return the exit code."""
    box = ENGINES[job["engine"]](job, rooms["home"])
    check_contract(box)
    environment_file = assemble(job, box, rooms)
    (rooms["output"] / "instruction.txt").write_bytes(job["instruction"].encode())
    try:
        with Parts(events) as parts:
            container = parts.start("container", box.command(environment_file), keep_stdin=True)
            result = await_result(container, rooms["output"] / "result.json")
            container.finish_reading(1.0)
    finally:
        box.remove()
        environment_file.unlink(missing_ok=True)
        tidy(rooms["output"])
    if result is None:
        print(f"the container ended with exit code {container.code} and without a result", file=sys.stderr)
        return container.code or BROKEN
    return report(result, events)


def main() -> int:
    """Run the job; return the exit code."""
    events = Events()
    obey_sigterm()
    job = read_job()
    rooms = {name: Path(os.environ[f"BIABENCH_ROOM_{name.upper()}"]) for name in ("input", "output", "home", "tmp")}
    try:
        return run({**job, "gpu": os.environ.get("BIABENCH_ROOM_GPU", "")}, events, rooms)
    except NotReady as error:
        events.send("fault", status=None, why=f"Agentic-J did not come up: {error}")
        print(error, file=sys.stderr)
        return BROKEN
    except Exception:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    sys.exit(main())
