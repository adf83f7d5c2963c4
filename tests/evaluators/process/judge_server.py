"""A stand-in for the provider on loopback: Messages and Message Batches, answered by a function of the statements."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = dict[str, Any]  # the input of the tool call
Judge = Callable[["Asked"], "Answer | Fault | str"]


@dataclass(frozen=True)
class Fault:
    """An error answer of the provider."""

    status: int
    kind: str
    message: str = "no"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """One request for decisions, taken apart as a model would."""

    body: dict[str, Any]
    headers: Mapping[str, str]
    number: int

    @property
    def content(self) -> list[dict[str, Any]]:
        return list(self.body["messages"][0]["content"])

    @property
    def statements(self) -> dict[str, str]:
        text = self.content[-1]["text"]
        return {found[1]: found[2] for found in re.finditer(r"(?m)^(q\d+): (.*)$", text)}

    @property
    def false_label(self) -> str | None:
        return next((label for label, text in self.statements.items() if text.startswith("A table ")), None)

    @property
    def repairing(self) -> bool:
        return len(self.body["messages"]) > 1

    def decide(self, verdict: str = "pass", **changes: Any) -> Answer:
        """Return the same decision on every statement, with a fail on the false one."""
        decisions = []
        for label in self.statements:
            one = {
                "id": label,
                "verdict": "fail" if label == self.false_label else verdict,
                "confidence": 0.9,
                "rationale": "Shown by the list of files.",
                "citations": [{"file": "inventory", "quote": "files,"}],
                **changes,
            }
            if one["verdict"] == "unknown":
                one.setdefault("unknown_reason", "ambiguous_evidence")
            decisions.append(one)
        answer: Answer = {"decisions": decisions}
        if "Tags are asked for" in self.content[-1]["text"]:
            answer["tags"] = []
        return answer


class JudgeServer:
    """Serves until closed; ``asked`` holds all requests for decisions, ``batches`` those that came as batches."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.asked: list[Asked] = []
        self.batches: dict[str, list[dict[str, Any]]] = {}
        self.polls: dict[str, int] = {}
        self.polls_needed = 1
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if self.path.startswith("/v1/messages/batches"):
                    self._send(*server.take_batch(body))
                else:
                    self._send(*server.answer(body, dict(self.headers)))

            def do_GET(self) -> None:
                name = self.path.split("?")[0].split("/")[4]
                if self.path.split("?")[0].endswith("/results"):
                    self._send(200, server.results(name), {})
                else:
                    self._send(*server.state(name, self.headers["host"]))

            def _send(self, status: int, body: Any, headers: Mapping[str, str]) -> None:
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in {"content-type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, body: dict[str, Any], headers: Mapping[str, str]) -> tuple[int, Any, Mapping[str, str]]:
        with self._lock:
            asked = Asked(body, {name.lower(): value for name, value in headers.items()}, len(self.asked))
            self.asked.append(asked)
        said = self.judge(asked)
        if isinstance(said, Fault):
            error = {"type": "error", "error": {"type": said.kind, "message": said.message}}
            return said.status, error, said.headers
        return 200, self._message(asked, said), {}

    def _message(self, asked: Asked, said: Answer | str) -> dict[str, Any]:
        cached = any("cache_control" in block for block in asked.content)
        call = {"type": "tool_use", "id": f"toolu_{asked.number}", "name": "decide", "input": said}
        return {
            "id": f"msg_{asked.number}",
            "type": "message",
            "role": "assistant",
            "model": f"{asked.body['model']}-served",
            "content": [{"type": "text", "text": said}] if isinstance(said, str) else [call],
            "stop_reason": "end_turn" if isinstance(said, str) else "tool_use",
            "stop_sequence": None,
            "usage": {
                "input_tokens": 100,
                "output_tokens": 50,
                "cache_read_input_tokens": 1000 if cached and asked.number else 0,
                "cache_creation_input_tokens": 1000 if cached and not asked.number else 0,
            },
        }

    def take_batch(self, body: dict[str, Any]) -> tuple[int, Any, Mapping[str, str]]:
        with self._lock:
            name = f"msgbatch_{len(self.batches)}"
            self.batches[name] = body["requests"]
            self.polls[name] = 0
        return 200, self._batch(name, "in_progress", ""), {}

    def state(self, name: str, host: str) -> tuple[int, Any, Mapping[str, str]]:
        if name not in self.batches:
            return 404, {"type": "error", "error": {"type": "not_found_error", "message": "no batch"}}, {}
        self.polls[name] += 1
        done = self.polls[name] >= self.polls_needed
        return 200, self._batch(name, "ended" if done else "in_progress", host), {}

    def _batch(self, name: str, status: str, host: str) -> dict[str, Any]:
        ended = status == "ended"
        count = len(self.batches[name])
        zero = {"canceled": 0, "errored": 0, "expired": 0}
        return {
            "id": name,
            "type": "message_batch",
            "processing_status": status,
            "request_counts": {"processing": 0 if ended else count, "succeeded": count if ended else 0, **zero},
            "created_at": "2026-01-01T00:00:00Z",
            "expires_at": "2026-01-02T00:00:00Z",
            "ended_at": "2026-01-01T01:00:00Z" if ended else None,
            "archived_at": None,
            "cancel_initiated_at": None,
            "results_url": f"http://{host}/v1/messages/batches/{name}/results" if ended else None,
        }

    def results(self, name: str) -> bytes:
        lines = []
        for request in self.batches[name]:
            status, body, _ = self.answer(request["params"], {})
            result = {"type": "succeeded", "message": body} if status == 200 else {"type": "errored", "error": body}
            lines.append(json.dumps({"custom_id": request["custom_id"], "result": result}))
        return "\n".join(reversed(lines)).encode()  # a provider keeps no order


@contextmanager
def serve(judge: Judge) -> Iterator[JudgeServer]:
    """Run a server with a judge for the time of a block."""
    server = JudgeServer(judge)
    try:
        yield server
    finally:
        server.close()
