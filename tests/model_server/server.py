"""The server itself: aiohttp in a thread, on a free port of loopback."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable
from typing import Self

from aiohttp import web

from tests.model_server.protocols import answer, encode, error_body, events, protocol_of
from tests.model_server.script import Fault, Request, Turn

_SIDE = Turn(text="A title")


class ModelServer:
    """Serves a script: each request of a model takes the next turn; the last one repeats.

    Parameters
    ----------
    script
        Turns in order, or a function from a request to a turn.
    side
        Says which requests do not belong to the script (a session's title, for example); they get a short text.
    """

    def __init__(
        self, script: Iterable[Turn] | Callable[[Request], Turn], side: Callable[[Request], bool] | None = None
    ) -> None:
        self._turns = script if callable(script) else list(script)
        self._side = side
        self._next = 0
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stopping: asyncio.Event | None = None
        self._runner: web.AppRunner | None = None
        self.everything: list[Request] = []  # also those that address no model
        self.url = ""

    @property
    def requests(self) -> list[Request]:
        """The requests to a model, in order."""
        return [request for request in self.everything if request.protocol is not None and request.method == "POST"]

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(30)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    async def _start(self) -> None:
        self._stopping = asyncio.Event()
        application = web.Application(client_max_size=1 << 30)
        application.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(application, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}"

    async def _stop(self) -> None:
        assert self._stopping is not None
        assert self._runner is not None
        self._stopping.set()
        await self._runner.cleanup()

    async def _serve(self, http: web.Request) -> web.StreamResponse:
        raw = await http.read()
        headers = {name.lower(): value for name, value in http.headers.items()}
        request = Request(http.method, http.path_qs, headers, raw, protocol_of(http.path))
        self.everything.append(request)
        if request.protocol is None or request.method != "POST":
            return web.json_response({}, status=200 if http.path == "/" else 404)
        turn, number = self._turn(request)
        await asyncio.sleep(turn.delay)
        whole = ("error", "empty_body", "hang") if request.stream else ("error", "empty_body", "hang", "stream_error")
        if turn.fault is not None and turn.fault.kind in whole:
            return await self._fail(request, turn.fault)
        if not request.stream and turn.fault is None:
            return web.json_response(answer(request, turn, number))
        return await self._stream(http, request, turn, number)

    def _turn(self, request: Request) -> tuple[Turn, int]:
        with self._lock:
            if self._side is not None and self._side(request):
                return _SIDE, len(self.everything)
            if callable(self._turns):
                return self._turns(request), len(self.everything)
            turn = self._turns[min(self._next, len(self._turns) - 1)]
            self._next += 1
            return turn, len(self.everything)

    async def _fail(self, request: Request, fault: Fault) -> web.StreamResponse:
        if fault.kind == "hang":
            await self._forever()
        if fault.kind == "empty_body":
            return web.Response(status=200, body=b"", content_type="text/event-stream")
        return web.json_response(
            error_body(request.protocol, fault),
            status=fault.status,
            headers={"request-id": "req_test", **fault.headers},
        )

    async def _forever(self) -> None:
        assert self._stopping is not None
        await self._stopping.wait()

    async def _stream(self, http: web.Request, request: Request, turn: Turn, number: int) -> web.StreamResponse:
        kind = "text/event-stream" if request.stream else "application/json"
        response = web.StreamResponse(headers={"Content-Type": kind, "request-id": "req_test"})
        await response.prepare(http)
        frames = [encode(event) for event in events(request, turn, number)]
        if not request.stream:  # one that was to be cut in its middle
            frames = [part.encode() for part in json.dumps(answer(request, turn, number)).split(",")]
        fault = turn.fault
        if fault is not None and fault.kind == "stream_error":
            frames = [*frames[:2], _error_event(request, fault)]
        elif fault is not None:
            frames = frames[: max(1, len(frames) // 2)]
        for frame in frames:
            await response.write(frame)
        if fault is not None and fault.kind == "stalled":
            await self._forever()
        if fault is not None and fault.kind == "truncated":
            await asyncio.sleep(0.05)  # what was written leaves before the connection is torn
            assert http.transport is not None
            http.transport.abort()
        return response


def _error_event(request: Request, fault: Fault) -> bytes:
    body = error_body(request.protocol, fault)
    if request.protocol == "messages":
        return encode(("error", body))
    if request.protocol == "responses":
        failed = {"id": "resp", "status": "failed", "error": {"code": "server_error", "message": fault.message}}
        return encode(("response.failed", {"type": "response.failed", "sequence_number": 2, "response": failed}))
    return encode((None, body))
