"""The relay itself: an HTTP server that sends each request on with the real key and tells the ledger about it."""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, NoReturn

from aiohttp import (
    ClientError,
    ClientPayloadError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
    web,
)
from multidict import CIMultiDict
from yarl import URL

from agents.relay.confine import objections
from agents.relay.ledger import Ending, Exchange
from agents.relay.mask import Mask
from agents.relay.meter import Asked, Meter, protocol_of, read_request, storable

Authentication = Literal["bearer", "x-api-key", "both"]

_LARGEST_REQUEST = 64 << 20
_MOST_HELD = 256 << 20  # bytes of all requests that are on their way
_CONNECT_SECONDS = 60.0
# Headers that belong to one connection, and those that the relay sets itself.
_OWN = frozenset(
    ("host", "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te",
     "trailer", "transfer-encoding", "upgrade", "expect", "content-length", "authorization", "x-api-key",
     "accept-encoding")
)  # fmt: skip
# What the key is good for: asking models, and which models there are. An agent must not reach the operator's account,
# files or keys at the provider with it.
_ASKING = frozenset(("/v1/messages", "/v1/messages/count_tokens", "/v1/responses", "/v1/chat/completions"))
_MODEL = re.compile(r"/v1/models(?:/(?!\.+(?:/|$))[A-Za-z0-9_.:@-]+){0,3}")  # no way up, in no spelling
_NOT_BACK = _OWN - {"content-length"}


@dataclass(frozen=True)
class Upstream:
    """Where requests go, with which key, and what is not let through.

    Parameters
    ----------
    roots
        Base URL per protocol; the agent's path (``/v1/messages``, ``/v1/responses``, ``/v1/chat/completions``) is
        appended. ``other`` takes the requests that ask no model.
    key
        The real key; it leaves this process towards the provider only.
    authentication
        Which header carries it.
    token
        What the agent must present instead.
    web
        Whether requests may ask the provider to search or fetch the web by itself.
    model
        The only model that may be asked where the web may not be; ``None`` for any.
    """

    roots: Mapping[str, str]
    key: str
    authentication: Authentication
    token: str
    web: bool = True
    model: str | None = None


class _Held:
    """How many bytes of requests are held by all of them together."""

    size = 0


class _Body:
    """A request's body on its way: it goes on block by block, so that megabytes do not wait for their own end.

    Where the web is not allowed, the last byte is held back until the whole was read: a request that is not let through
    stays a torso, which no provider acts upon.
    """

    def __init__(self, request: web.Request, upstream: Upstream, held: _Held) -> None:
        self._request, self._upstream, self._held = request, upstream, held
        self._blocks: list[bytes] = []
        self._size = 0
        self.received = time.monotonic()  # when all of it was here; until then, when its head was
        self.refusal: tuple[int, str] | None = None

    def raw(self) -> bytes:
        """Return what has come so far."""
        return b"".join(self._blocks)

    def drop(self) -> None:
        """Let go of what was kept."""
        self._held.size -= self._size
        self._blocks, self._size = [], 0

    async def blocks(self) -> AsyncIterator[bytes]:
        """Yield the body; a refusal ends it with an error before its end."""
        held = b""
        async for block in self._request.content.iter_any():
            self._blocks.append(block)
            self._size += len(block)
            self._held.size += len(block)
            if self._size > _LARGEST_REQUEST:
                self._refuse(413, f"the relay passes on requests of at most {_LARGEST_REQUEST >> 20} MiB")
            if self._held.size > _MOST_HELD:
                self._refuse(503, f"the relay holds at most {_MOST_HELD >> 20} MiB of requests at a time")
            if self._upstream.web:
                yield block
                continue
            piece, held = held + block[:-1], block[-1:]
            if piece:
                yield piece
        self.received = time.monotonic()
        if not held:
            return
        if found := objections(self.raw(), self._upstream.model):
            self._refuse(403, f"this run has its model and no web, and the request holds {', '.join(found)[:300]}")
        yield held

    def _refuse(self, status: int, message: str) -> NoReturn:
        self.refusal = (status, message)
        raise ClientPayloadError(message)


class Relay:
    """Passes requests through, unchanged but for the key, and writes one line per request into the ledger."""

    def __init__(self, upstream: Upstream, ledger: IO[str]) -> None:
        self._upstream = upstream
        self._ledger = ledger
        self._begun = time.monotonic()
        self._number = 0
        self._tools: tuple[str, ...] | None = None
        self._session: ClientSession | None = None
        self._held = _Held()
        self._heard: dict[int, float] = {}  # of each open exchange, when the provider sent something last

    def application(self) -> web.Application:
        """Return the server's application."""
        application = web.Application(client_max_size=_LARGEST_REQUEST)
        application.router.add_route("*", "/{path:.*}", self._serve)
        application.cleanup_ctx.append(self._client)
        return application

    async def _client(self, _: web.Application) -> Any:
        timeout = ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)  # how long to wait is the agent's affair
        connector = TCPConnector(limit=0)
        async with ClientSession(
            connector=connector,
            timeout=timeout,
            auto_decompress=False,
            trust_env=True,
            skip_auto_headers=("User-Agent",),
            cookie_jar=DummyCookieJar(),
        ) as self._session:
            yield

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = _Body(request, self._upstream, self._held)
        self._number += 1
        exchange = Exchange(
            number=self._number,
            at=round(body.received - self._begun, 3),
            method=storable(request.method),
            path=storable(request.path),
            protocol=protocol_of(request.method, request.path),
            ending="client_gone",  # until something else is known
        )
        try:
            if refusal := self._refusal(request):
                return _error(exchange, *refusal)
            return await self._pass(request, body, exchange)
        finally:
            now, begun, raw = time.monotonic(), body.received, body.raw()
            exchange.request_bytes = len(raw)
            self._describe(exchange, read_request(raw))  # only now: reading megabytes would delay the request
            exchange.seconds = round(now - begun, 3)
            exchange.silent_seconds = round(now - max(begun, self._heard.pop(exchange.number, begun)), 3)
            body.drop()
            self._ledger.write(_line(exchange) + "\n")
            self._ledger.flush()

    def _describe(self, exchange: Exchange, asked: Asked) -> None:
        exchange.model, exchange.effort, exchange.stream = asked.model, asked.effort, asked.stream
        exchange.web = list(asked.web)
        if asked.tools and asked.tools != self._tools:
            self._tools = asked.tools
            exchange.tools = list(asked.tools)

    def _refusal(self, request: web.Request) -> tuple[int, str] | None:
        presented = request.headers.get("x-api-key") or request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(presented.encode(), self._upstream.token.encode()):
            return 401, "the relay does not know this key"
        if not _asks_models(request.method, request.raw_path.partition("?")[0]):
            return 404, "the relay passes on requests to models, and nothing else"
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            return 415, "the relay cannot read a compressed request, so it cannot tell which model it asks"
        return None

    async def _pass(self, request: web.Request, body: _Body, exchange: Exchange) -> web.StreamResponse:
        assert self._session is not None
        root = self._upstream.roots.get(exchange.protocol) or self._upstream.roots["other"]
        url = URL(root.rstrip("/") + request.raw_path, encoded=True)
        try:
            answer = await self._session.request(
                request.method,
                url,
                data=body.blocks() if request.can_read_body else None,
                headers=self._headers(request),
                allow_redirects=False,
            )
        except (ClientError, TimeoutError, OSError) as error:
            if body.refusal:
                return _error(exchange, *body.refusal)
            exchange.ending = "unreachable"
            exchange.error = self._mask().text(f"{type(error).__name__}: {error}")[:500]
            return _error(exchange, 502, "the relay cannot reach the provider")
        async with answer:
            exchange.status = answer.status
            named = answer.headers.get("request-id") or answer.headers.get("x-request-id")
            exchange.request_id = named and storable(self._mask().text(named))
            return await self._send_back(request, answer, exchange, body)

    async def _send_back(
        self, request: web.Request, answer: ClientResponse, exchange: Exchange, body: _Body
    ) -> web.StreamResponse:
        """Pass an answer on as it comes, and note what it says; an agent that goes away leaves what came until then."""
        mask = self._mask()
        back = CIMultiDict(
            (name, mask.text(value)) for name, value in answer.headers.items() if name.lower() not in _NOT_BACK
        )
        response = web.StreamResponse(status=answer.status, reason=mask.text(answer.reason or ""), headers=back)
        kind, encoding = answer.headers.get("Content-Type", ""), answer.headers.get("Content-Encoding", "")
        meter = Meter(exchange.protocol, answer.status, kind, encoding)
        whole = False
        try:
            await response.prepare(request)
            cut = await self._copy(answer, request, response, mask, meter, exchange, body)
            _note(exchange, meter, cut)
            whole = True
            if cut and request.transport is not None:
                request.transport.close()  # the agent must see a cut answer as one
            else:
                await response.write_eof()
        finally:
            if not whole:
                _note(exchange, meter, True)
                exchange.ending = "client_gone"
        return response

    async def _copy(
        self,
        answer: ClientResponse,
        request: web.Request,
        response: web.StreamResponse,
        mask: Mask,
        meter: Meter,
        exchange: Exchange,
        body: _Body,
    ) -> bool:
        """Copy the body block by block; return whether the provider cut it. The agent's own end raises."""
        try:
            async for block in answer.content.iter_any():
                self._heard[exchange.number] = time.monotonic()
                shown = mask.feed(block)
                if shown:
                    await response.write(shown)
                if exchange.first_byte_ms is None:
                    exchange.first_byte_ms = round(1000 * (time.monotonic() - body.received), 2)
                exchange.response_bytes += len(block)
                meter.feed(shown)
            if rest := mask.rest():
                await response.write(rest)
                meter.feed(rest)
        except (ClientError, ConnectionError, TimeoutError) as error:
            if request.transport is None or request.transport.is_closing():
                raise
            exchange.error = f"{type(error).__name__}: {error}"[:500]
            return True
        return False

    def _mask(self) -> Mask:
        return Mask(self._upstream.key)

    def _headers(self, request: web.Request) -> CIMultiDict[str]:
        headers = CIMultiDict((name, value) for name, value in request.headers.items() if name.lower() not in _OWN)
        if (length := request.headers.get("Content-Length")) is not None:
            headers["Content-Length"] = length  # the body goes on as it comes, and in the form in which it came
        headers["Accept-Encoding"] = "identity"  # so that what passes can be read
        if self._upstream.authentication in ("bearer", "both"):
            headers["Authorization"] = f"Bearer {self._upstream.key}"
        if self._upstream.authentication in ("x-api-key", "both"):
            headers["x-api-key"] = self._upstream.key
        return headers


def _asks_models(method: str, path: str) -> bool:
    if method == "POST":
        return path in _ASKING
    return method == "GET" and _MODEL.fullmatch(path) is not None


def _line(exchange: Exchange) -> str:
    """Return a ledger's line; one that cannot be written whole still says that there was a request."""
    try:
        return exchange.model_dump_json(exclude_defaults=True)
    except ValueError as error:
        kept = Exchange(
            number=exchange.number,
            at=exchange.at,
            method="?",
            path="?",
            protocol=exchange.protocol,
            status=exchange.status,
            ending=exchange.ending,
            error=f"this line could not be written: {type(error).__name__}",
        )
        return kept.model_dump_json(exclude_defaults=True)


def _note(exchange: Exchange, meter: Meter, cut: bool) -> None:
    """Copy what the meter read into the exchange."""
    answer = meter.close()
    ending: Ending = "complete" if answer.complete and not cut else "truncated"
    exchange.ending = ending
    exchange.model_answered, exchange.stop, exchange.refusal = answer.model, answer.stop, answer.refusal
    exchange.error_type, exchange.error = answer.error_type, answer.error or exchange.error
    exchange.text, exchange.reasoning, exchange.calls = answer.text, answer.reasoning, answer.calls
    exchange.input_tokens, exchange.cached_tokens = answer.input_tokens, answer.cached_tokens
    exchange.cache_write_tokens, exchange.output_tokens = answer.cache_write_tokens, answer.output_tokens
    exchange.reasoning_tokens, exchange.cost_usd = answer.reasoning_tokens, answer.cost_usd


def _error(exchange: Exchange, status: int, message: str) -> web.Response:
    """Return an error of the relay's own in the form of the protocol."""
    if exchange.error is None:
        exchange.ending, exchange.error = "refused_by_relay", message
    if exchange.protocol == "messages":
        body: dict[str, Any] = {"type": "error", "error": {"type": "permission_error", "message": message}}
    else:
        body = {"error": {"message": message, "type": "relay", "code": "relay", "param": None}}
    return web.json_response(body, status=status)


async def serve(upstream: Upstream, ledger: Path, socket: Path | None, stop: asyncio.Event, ready: Any) -> None:
    """Serve until ``stop``; ``ready`` is called with the port (or 0, on a socket) once requests are taken."""
    with ledger.open("a", encoding="utf-8", buffering=1) as stream:
        runner = web.AppRunner(
            Relay(upstream, stream).application(), handler_cancellation=True, shutdown_timeout=2.0, access_log=None
        )
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0) if socket is None else web.UnixSite(runner, str(socket))
        await site.start()
        ready(0 if socket is not None else runner.addresses[0][1])
        try:
            await stop.wait()
        finally:
            await runner.cleanup()
