"""``python -m agents.relay``: started by the operator's side, told everything on standard input, gone when that closes.

The first line of standard input is a JSON object (``upstream``, ``ledger``, ``socket``); no key is ever on a command
line or in an environment. The first line of standard output is the port. The end of standard input is the end of the
relay, so that it never outlives the one who started it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from agents.relay.server import Upstream, serve

_CLOSING_SECONDS = 10.0


def _first_line(descriptor: int) -> bytes:
    """Read a line without a buffer, which would keep the end of the stream from being seen."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(descriptor, 1)):
        line += byte
    return line


async def _main() -> None:
    loop = asyncio.get_running_loop()
    given = json.loads(_first_line(sys.stdin.fileno()))
    stop = asyncio.Event()

    def ready(port: int) -> None:
        print(port, flush=True)
        loop.add_reader(sys.stdin.fileno(), read)

    def read() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            loop.remove_reader(sys.stdin.fileno())  # it stays readable: the loop would spin until all is closed
            stop.set()
            loop.call_later(_CLOSING_SECONDS, os._exit, 1)  # a connection that cannot be closed must not keep it

    socket = Path(given["socket"]) if given["socket"] else None
    await serve(Upstream(**given["upstream"]), Path(given["ledger"]), socket, stop, ready)


if __name__ == "__main__":
    asyncio.run(_main())
