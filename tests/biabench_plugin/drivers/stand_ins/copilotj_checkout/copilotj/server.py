"""The bridge: Fiji connects and stays; one text line a command."""

from __future__ import annotations

import argparse
import socket
import threading


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    options = parser.parse_args()
    listener = socket.create_server((options.host, options.port), reuse_port=False)
    fiji: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        hello = connection.makefile().readline()
        if hello.startswith("plugin"):
            fiji.append(connection)
            print("2026-01-01 10:00:00,000 - bridge - INFO - WebSocket connection established", flush=True)
        elif fiji:
            fiji[0].sendall(hello.encode())
            connection.close()

    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


main()
