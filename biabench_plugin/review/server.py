"""Serve a blinded copy to reviewers on this machine: loopback only, behind a token, read from the copy alone.

What agents wrote never runs: text and tables travel as JSON and are put on the page as text, images are PNGs drawn by
us, and SVG is shown as an image under a policy that allows it nothing. No path is taken from a request: files are asked
for by run and number, as listed in the copy.
"""

from __future__ import annotations

import csv
import hmac
import io
import json
import os
import re
import secrets
import stat
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from biabench_plugin.review.answers import AnswerStore
from biabench_plugin.review.model import Answer, CopiedFile, ReviewError, SkipReason, read_review

HOST = "127.0.0.1"
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_FILE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'"
_STATIC = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
_IMAGES = {".png": "image/png", ".svg": "image/svg+xml"}
_MAX_BODY = 64 << 10
_TEXT_STEP = 200_000  # characters sent at once
_TABLE_STEP = 200  # rows sent at once
_MAX_COLUMNS, _MAX_CELL = 60, 400
_FILE = re.compile(r"/(text|table|image)/(R[0-9]{1,6})/([0-9]{1,6})")


class _Refused(Exception):
    """A request that is not answered; carries the status and a sentence."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class _NewAnswer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    reviewer: str
    run: str
    item: int
    answer: Answer | None = None
    reason: SkipReason | None = None
    note: str = Field(default="", max_length=10_000)


class ReviewServer:
    """A running server; use it as a context manager, or :meth:`serve` until interrupted.

    Parameters
    ----------
    copy
        The blinded copy.
    port
        0 takes a free one.
    reviewer
        Name that the page starts with; it can be changed there.

    Raises
    ------
    ReviewError
        The copy cannot be read.
    OSError
        The port is taken.
    """

    def __init__(self, copy: Path, port: int = 0, reviewer: str = "") -> None:
        self.token = secrets.token_urlsafe(24)
        self._site = _Site(copy, self.token, reviewer)
        site = self._site

        class Handler(_Handler):
            @property
            def site(self) -> _Site:
                return site

        self._server = ThreadingHTTPServer((HOST, port), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        site.cookie = f"biabench_review_{self.port}"  # cookies are shared between the ports of a host
        self._thread: threading.Thread | None = None

    @property
    def origin(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """Address that lets a reviewer in."""
        return f"{self.origin}/?token={self.token}"

    def serve(self) -> None:
        """Serve until interrupted."""
        try:
            self._server.serve_forever()
        finally:
            self._server.server_close()

    def __enter__(self) -> ReviewServer:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        if self._thread is not None:
            self._thread.join()


class _Site:
    """What the server knows: the copy, its description, the answers."""

    def __init__(self, copy: Path, token: str, reviewer: str) -> None:
        self.copy = copy.resolve()
        self.review = read_review(copy)
        self.answers = AnswerStore(copy, self.review)
        self.token = token
        self.cookie = ""
        self.reviewer = reviewer

    def allowed(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(given.encode(), self.token.encode())

    def overview(self) -> dict[str, Any]:
        return {"reviewer": self.reviewer, **self.review.model_dump(mode="json")}

    def file(self, run: str, number: int) -> CopiedFile:
        try:
            found = [file for file in self.review.run(run).files if file.number == number]
        except KeyError:
            found = []
        if not found or found[0].stored is None:
            raise _Refused(HTTPStatus.NOT_FOUND, "no such file in the review")
        return found[0]

    def read(self, file: CopiedFile) -> bytes:
        """Read a file of the copy, through no link and from nowhere else."""
        assert file.stored is not None
        path = self.copy / file.stored
        try:
            if path.resolve(strict=True) != path:
                raise _Refused(HTTPStatus.NOT_FOUND, "not a file of the copy")
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
            raise _Refused(HTTPStatus.NOT_FOUND, "not a file of the copy") from error
        with os.fdopen(handle, "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise _Refused(HTTPStatus.NOT_FOUND, "not a file of the copy")
            return stream.read()

    def text(self, file: CopiedFile, start: int) -> dict[str, Any]:
        text = self.read(file).decode("utf-8", "replace")
        return {"text": text[start : start + _TEXT_STEP], "start": start, "total": len(text)}

    def table(self, file: CopiedFile, start: int) -> dict[str, Any]:
        text = self.read(file).decode("utf-8", "replace")
        mark = _separator(text)
        try:
            rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=mark))
        except csv.Error:  # a cell beyond any size, for example after a quote that never closes
            rows = [line.split(mark) for line in text.splitlines()]
        width = max(map(len, rows), default=0)
        shown = [[cell[:_MAX_CELL] for cell in row[:_MAX_COLUMNS]] for row in rows[start : start + _TABLE_STEP]]
        return {"rows": shown, "start": start, "total": len(rows), "columns": width, "shown_columns": _MAX_COLUMNS}


def _separator(text: str) -> str:
    head = [line for line in text[:20_000].splitlines()[:20] if line.strip()]
    return max((",", "\t", ";"), key=lambda mark: sum(line.count(mark) for line in head))


class _Handler(BaseHTTPRequestHandler):
    server_version = "biabench-review"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = 30

    @property
    def site(self) -> _Site:
        raise NotImplementedError

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent: request lines hold the token."""

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_PUT(self) -> None:
        self._answer(self._put)

    def _answer(self, act: Callable[[], None]) -> None:
        try:
            self._check_host()
            act()
        except _Refused as refused:
            self.close_connection = True  # a body may be unread
            self._json({"error": str(refused)}, refused.status)
        except ReviewError as error:
            self._json({"error": str(error)}, HTTPStatus.CONFLICT)
        except ValueError as error:
            self._json({"error": str(error)}, HTTPStatus.BAD_REQUEST)
        except ConnectionError:  # the browser went away
            self.close_connection = True

    def _check_host(self) -> None:
        """Refuse names that a foreign page had pointed at this machine."""
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        if host not in (HOST, "localhost", "::1"):
            raise _Refused(HTTPStatus.MISDIRECTED_REQUEST, "this server answers to 127.0.0.1 only")

    def _check_token(self) -> None:
        try:
            morsel = SimpleCookie(self.headers.get("Cookie", "")).get(self.site.cookie)
        except CookieError:
            morsel = None
        if not self.site.allowed(None if morsel is None else morsel.value):
            raise _Refused(HTTPStatus.FORBIDDEN, "open the address that biabench review printed; it holds the token")

    def _get(self) -> None:
        address = urlsplit(self.path)
        query = parse_qs(address.query)
        if address.path == "/" and "token" in query:
            self._let_in(query["token"][0])
            return
        self._check_token()
        if address.path in _STATIC:
            name, kind = _STATIC[address.path]
            self._send((files("biabench_plugin.review") / name).read_bytes(), kind, _PAGE_POLICY)
        elif address.path == "/review":
            self._json(self.site.overview())
        elif address.path == "/answers":
            self._json(self.site.answers.read(query.get("reviewer", [""])[0]).model_dump(mode="json"))
        elif match := _FILE.fullmatch(address.path):
            self._file(match[1], self.site.file(match[2], int(match[3])), _start(query))
        else:
            raise _Refused(HTTPStatus.NOT_FOUND, "no such address")

    def _let_in(self, token: str) -> None:
        if not self.site.allowed(token):
            raise _Refused(HTTPStatus.FORBIDDEN, "wrong token")
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Location", "/")
        self.send_header("Set-Cookie", f"{self.site.cookie}={token}; Path=/; HttpOnly; SameSite=Strict")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _file(self, how: str, file: CopiedFile, start: int) -> None:
        assert file.stored is not None
        if how == "image":
            kind = _IMAGES.get(Path(file.stored).suffix)
            if kind is None:
                raise _Refused(HTTPStatus.NOT_FOUND, "not an image")
            self._send(self.site.read(file), kind, _FILE_POLICY)
        else:
            self._json(self.site.table(file, start) if how == "table" else self.site.text(file, start))

    def _put(self) -> None:
        self._check_token()
        origin = self.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != self.headers.get("Host"):
            raise _Refused(HTTPStatus.FORBIDDEN, "answers are taken from the review page only")
        if urlsplit(self.path).path != "/answer" or self.headers.get_content_type() != "application/json":
            raise _Refused(HTTPStatus.NOT_FOUND, "no such address")
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdecimal() or int(length) > _MAX_BODY:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"an answer has at most {_MAX_BODY} bytes")
        try:
            new = _NewAnswer.model_validate_json(self.rfile.read(int(length)))
        except ValidationError as error:
            raise ValueError(f"not an answer: {error.errors()[0]['msg']}") from error
        given = self.site.answers.give(new.reviewer, new.run, new.item, new.answer, new.reason, new.note)
        self._json(given.model_dump(mode="json"))

    def _json(self, value: object, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(json.dumps(value).encode(), "application/json", _FILE_POLICY, status)

    def _send(self, body: bytes, kind: str, policy: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", policy),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _start(query: dict[str, list[str]]) -> int:
    given = query.get("start", ["0"])[0]
    if not given.isascii() or not given.isdecimal() or len(given) > 12:
        raise _Refused(HTTPStatus.BAD_REQUEST, "start is a number from 0")
    return int(given)
