"""Run CopilotJ on one instruction: a private X display, its bridge, Fiji with the bridge plugin, and its leader agent.

All parts are started here, on a display and a port of their own, watched while the leader works, and stopped. The signs
are CopilotJ's documented ones: the bridge prints that the WebSocket is established, each model call is a line
``[CACHE] model=… prompt=… cached=… completion=…``, each tool call a line ``[CALL] Calling Tool: …``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

_HERE = Path(__file__).resolve().parent
if TYPE_CHECKING:
    from agents.drivers._driver import Events, NotReady, Part, Parts, obey_sigterm, read_job, watch
else:  # beside this file, wherever it is shown
    from _driver import Events, NotReady, Part, Parts, obey_sigterm, read_job, watch

DOCUMENTED_PORT = 8786  # where the plugin looks unless it is told otherwise
_CONNECTED = r"(?i)websocket.*(established|connected)"
_CACHE = re.compile(r"\[CACHE\] model=(\S+) prompt=(\d+) cached=(\d+|n/a) completion=(\d+)")
_BANNER = re.compile(r"\[FINAL RESULT\] Dialog \d+ Finished!")
_LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d")
_CALL = re.compile(r"\[CALL\] Calling Tool: ([^|]+?)\s*(?:\|\s*(?:Params|Task):\s*(.*))?$")


def own_network() -> bool:
    """Tell whether this process has a network of its own: then every port is free and seen by nobody else."""
    return [name for _, name in socket.if_nameindex()] == ["lo"]


def choose_port(fiji_options: str) -> int:
    """Return the bridge's port: the documented one where it is private or the plugin cannot be told another."""
    wanted = 0 if "{port}" in fiji_options and not own_network() else DOCUMENTED_PORT
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            raise NotReady(
                f"port {wanted} is in use on this host, perhaps by another CopilotJ; run with --network=model, "
                "or say how the plugin is told a port: BIABENCH_COPILOTJ_FIJI_OPTIONS='… {port}'"
            ) from None
        return int(probe.getsockname()[1])


def start_display(parts: Parts, seconds: float) -> str:
    """Start an X server on a number that it finds free itself; return its name."""
    reader, writer = os.pipe()
    part = parts.start(
        "xvfb",
        ["Xvfb", "-displayfd", str(writer), "-screen", "0", "1920x1080x24", "-nolisten", "tcp", "-noreset"],
        pass_fds=(writer,),
    )
    os.close(writer)
    said: list[str] = []

    def read() -> None:
        with os.fdopen(reader) as stream:
            said.append(stream.readline().strip())

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(seconds)
    if not said or not said[0].isdecimal():
        raise NotReady(f"xvfb gave no display within {seconds:.0f} s (exit code {part.code})")
    return f":{said[0]}"


def private_checkout(checkout: str) -> str:
    """Copy CopilotJ's source into HOME: it writes beside itself, and nothing of that may outlive the trial."""
    target = Path(os.environ["HOME"], "copilotj")
    unwanted = (".venv", ".git", ".env*", "node_modules", "temp", "__pycache__", "target")
    shutil.copytree(checkout, target, symlinks=True, ignore=shutil.ignore_patterns(*unwanted))
    return str(target)


class Log:
    """Turns the documented lines of the leader's log into events; ``close`` ends it."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._closing: list[str] | None = None  # the last dialog's result, while it is being printed

    def close(self) -> None:
        """Report the closing message, once everything was read."""
        text = "\n".join(self._closing or ()).strip()
        if text:
            self._events.send("final", text=text)
        self._closing = None

    def __call__(self, line: str) -> None:
        if _BANNER.search(line):
            self._closing = []
            return
        if self._closing is not None:
            if not _LOG_LINE.match(line):
                self._closing.append(line)
                return
            self.close()
        if found := _CACHE.search(line):
            model, prompt, cached, completion = found.groups()
            known = {} if cached == "n/a" else {"cached_tokens": int(cached)}
            self._events.send("usage", model=model, input_tokens=int(prompt), output_tokens=int(completion), **known)
        elif found := _CALL.search(line):
            self._events.send("step", kind="tool", tool=found.group(1), code=found.group(2))
        elif " - ERROR - " in line:
            self._events.send("step", kind="error", text=line)


def forward(events: Events, reader: int) -> None:
    """Pass on the leader's own events (refusals, faults, effort)."""
    with os.fdopen(reader, encoding="utf-8", errors="replace") as stream:
        for line in stream:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and event.get("event") in ("answered", "refusal", "fault", "rejected", "effort"):
                events.send(str(event.pop("event")), **{name: value for name, value in event.items() if name != "at"})


def run(job: dict[str, Any], events: Events, parts: Parts) -> int:
    """Bring everything up, let the leader work, return the exit code."""
    boot = float(job["boot_seconds"])
    python, checkout = job["python"], private_checkout(job["checkout"])
    job = {**job, "checkout": checkout}
    port = choose_port(job["fiji_options"])
    environment = {
        "DISPLAY": start_display(parts, boot),
        "COPILOTJ_HOME": checkout,
        "COPILOTJ_KB_AUTOSAVE": "0",  # otherwise later runs would recall this one
        "PYTHONPATH": f"{checkout}:{checkout}/src",
    }
    bridge = parts.start(
        "bridge",
        [python, "-m", "copilotj.server", "--host", "127.0.0.1", "--port", str(port)],
        environment=environment,
        cwd=checkout,
    )
    options = [word.replace("{port}", str(port)) for word in job["fiji_options"].split()]
    fiji = parts.start(
        "fiji",
        [job["fiji"], "-Dij.debug=true", "-Dimagej.updater.disableAutocheck=true", *options],
        environment=environment,
    )
    bridge.wait_for(_CONNECTED, boot, others=(fiji,))
    events.send("part", name="fiji", state="connected", port=port, display=environment["DISPLAY"])
    return lead(job, events, parts, port, environment)


def lead(job: dict[str, Any], events: Events, parts: Parts, port: int, environment: dict[str, str]) -> int:
    """Run the leader agent in CopilotJ's environment."""
    reader, writer = os.pipe()
    log = Log(events)
    fields = {**job, "bridge_url": f"http://127.0.0.1:{port}", "events": writer}
    leader: Part = parts.start(
        "leader",
        [job["python"], "-B", str(_HERE / "lead_copilotj.py")],
        environment=environment,
        cwd=job["checkout"],
        stdin=json.dumps(fields).encode(),
        pass_fds=(writer,),
        on_line=log,
    )
    os.close(writer)
    thread = threading.Thread(target=forward, args=(events, reader), daemon=True)
    thread.start()
    code = watch(parts, leader)
    if leader.code is not None:  # otherwise its end of the pipe stays open until it is stopped
        thread.join(5.0)
    log.close()
    return code


def main() -> int:
    """Run the job; return the exit code."""
    events = Events()
    obey_sigterm()
    job = read_job()
    try:
        with Parts(events) as parts:
            return run(job, events, parts)
    except NotReady as error:
        events.send("fault", status=None, why=f"CopilotJ did not come up: {error}")
        print(error, file=sys.stderr)
        return 70
    except Exception:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    sys.exit(main())
