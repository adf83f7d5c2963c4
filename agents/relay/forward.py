"""Inside a box without a network: run a program, and carry its connections to the relay's socket.

``python forward.py PORT SOCKET -- PROGRAM ARGUMENT...`` listens on 127.0.0.1:PORT, passes each connection to the Unix
socket, and ends with the program's own exit code. Standard library only, and no import of this project: it runs where
the agent runs.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
    except OSError:
        pass
    for end, how in ((target, socket.SHUT_WR), (source, socket.SHUT_RD)):
        with contextlib.suppress(OSError):
            end.shutdown(how)


def _carry(connection: socket.socket, path: str) -> None:
    relay = socket.socket(socket.AF_UNIX)
    try:
        relay.connect(path)
        there = threading.Thread(target=_copy, args=(connection, relay), daemon=True)
        there.start()
        _copy(relay, connection)
        there.join()
    except OSError:
        pass
    finally:
        relay.close()
        connection.close()


def _listen(server: socket.socket, path: str) -> None:
    while True:
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_carry, args=(connection, path), daemon=True).start()


def main(port: str, path: str, _: str, *command: str) -> int:
    """Serve while the command runs; return its exit code, 128 + n for signal n."""
    server = socket.create_server(("127.0.0.1", int(port)))
    threading.Thread(target=_listen, args=(server, path), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: None)  # the program gets its own, and the relay is there until it ends
    try:
        program = subprocess.Popen(command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    code = program.wait()
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]))
