"""A loopback model that speaks Chat Completions from a script: enough for the agents behind drivers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class ChatServer:
    """Answers each request with the next reply of its model's script, and the last one from then on.

    A reply is ``{"text": …}``, ``{"status": 429}``,
    ``{"text": "", "finish": "content_filter"}`` or ``{"hang": seconds}``.
    """

    scripts: dict[str, list[dict[str, Any]]]
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    url: str = ""

    def reply(self, request: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(request)
        asked = sum(earlier["model"] == request["model"] for earlier in self.requests)
        script = self.scripts[request["model"]]
        return script[min(asked, len(script)) - 1]

    def of(self, model: str) -> list[dict[str, Any]]:
        """Return the requests for one model."""
        return [request for request in self.requests if request["model"] == model]


@contextmanager
def serve(scripts: dict[str, list[dict[str, Any]]]) -> Iterator[ChatServer]:
    """Serve scripts on a free port of the loopback interface."""
    server = ChatServer(scripts)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.keys.append(self.headers.get("Authorization", ""))
            reply = server.reply(request)
            time.sleep(reply.get("hang", 0))
            status = reply.get("status", 200)
            body: dict[str, Any] = {"error": {"message": "no", "code": reply.get("code", status)}}
            if status == 200:
                body = {
                    "id": "c1",
                    "object": "chat.completion",
                    "created": 1,
                    "model": request["model"],
                    "choices": [
                        {
                            "index": 0,
                            "finish_reason": reply.get("finish", "stop"),
                            "message": {"role": "assistant", "content": reply.get("text", "")},
                        }
                    ],
                    "usage": {
                        "prompt_tokens": 100,
                        "completion_tokens": 20,
                        "total_tokens": 120,
                        "prompt_tokens_details": {"cached_tokens": 40},
                        "completion_tokens_details": {"reasoning_tokens": 5},
                    },
                }
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    httpd.block_on_close = False
    server.url = f"http://127.0.0.1:{httpd.server_port}/v1"
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        httpd.shutdown()
        httpd.server_close()
