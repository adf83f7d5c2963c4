"""A stand-in for the Hugging Face hub: the requests that the real client makes, the answers that the hub gives.

Big files are stored apart: ``resolve`` answers with a redirect to a content-addressed place that takes ranges, and with
the headers by which the client knows commit, size and SHA-256. Errors carry ``X-Error-Code``.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import threading
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import Result
from typer.testing import CliRunner

from biabench_plugin import checkout
from biabench_plugin.cli import app
from biabench_plugin.taskspec import TaskSpec, load_tasks

REPOSITORY = "BIABench/BIABench"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def archive(files: dict[str, bytes]) -> bytes:
    """Return a zip of files by their path."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as opened:
        for path, content in files.items():
            opened.writestr(path, content)
    return stream.getvalue()


def manifest(files: dict[str, bytes]) -> bytes:
    """Return a ``manifest.json`` for ``<task>/<field>.zip`` files."""
    tasks: dict[str, dict[str, dict[str, str]]] = {}
    for path, content in files.items():
        task, _, name = path.partition("/")
        tasks.setdefault(task, {})[name.removesuffix(".zip")] = {"zip_sha256": hashlib.sha256(content).hexdigest()}
    return json.dumps({"tasks": tasks}).encode()


@dataclass
class FakeHub:
    """One dataset repository with one commit, and the ways in which it can fail."""

    files: dict[str, bytes] = field(default_factory=dict)
    revisions: tuple[str, ...] = ("v1.0", "main", COMMIT)
    cut_after: dict[str, int] = field(default_factory=dict)  # path → bytes, then the connection breaks, each time
    short: dict[str, int] = field(default_factory=dict)  # path → bytes: a shorter file that says it is whole
    slow_seconds: float = 0.0  # before each chunk
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)  # method, path, range
    sent: Counter[str] = field(default_factory=Counter)  # bytes per file
    together: int = 0
    most_together: int = 0
    endpoint: str = ""

    def offer(self, task: str, **folders: dict[str, bytes]) -> None:
        """Put archives of a task into the repository, and into its manifest."""
        for name, files in folders.items():
            self.files[f"{task}/{name}.zip"] = archive({f"{name}/{path}": content for path, content in files.items()})
        zips = {path: content for path, content in self.files.items() if path.endswith(".zip")}
        self.files["manifest.json"] = manifest(zips)

    def asked_for(self, part: str) -> list[tuple[str, str, str | None]]:
        """Return the requests whose path holds ``part``."""
        return [request for request in self.requests if part in request[1]]

    def __enter__(self) -> FakeHub:
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        started.set()
        self._loop.run_forever()

    async def _start(self) -> None:
        application = web.Application(middlewares=[self._log])
        application.router.add_get(f"/api/datasets/{REPOSITORY}/revision/{{revision}}", self._info)
        application.router.add_get(f"/datasets/{REPOSITORY}/resolve/{{revision}}/{{path:.+}}", self._resolve)
        application.router.add_get("/store/{digest}", self._store)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.endpoint = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    @web.middleware
    async def _log(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests.append((request.method, request.path, request.headers.get("Range")))
        answer: web.StreamResponse = await handler(request)
        return answer

    @staticmethod
    def _error(code: str, message: str) -> web.Response:
        return web.json_response(
            {"error": message}, status=404, headers={"X-Error-Code": code, "X-Error-Message": message}
        )

    async def _info(self, request: web.Request) -> web.StreamResponse:
        revision = request.match_info["revision"]
        if revision not in self.revisions:
            return self._error("RevisionNotFound", f"Invalid rev id: {revision}")
        siblings = [
            {
                "rfilename": path,
                "size": len(content),
                "blobId": hashlib.sha1(content).hexdigest(),
                **(
                    {"lfs": {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}}
                    if path.endswith(".zip")
                    else {}
                ),
            }
            for path, content in self.files.items()
        ]
        return web.json_response({"id": REPOSITORY, "sha": COMMIT, "private": False, "siblings": siblings})

    async def _resolve(self, request: web.Request) -> web.StreamResponse:
        revision, path = request.match_info["revision"], request.match_info["path"]
        if revision not in self.revisions:
            return self._error("RevisionNotFound", f"Invalid rev id: {revision}")
        if path not in self.files:
            return self._error("EntryNotFound", "Entry not found")
        content = self.files[path]
        digest = hashlib.sha256(content).hexdigest()
        headers = {"X-Repo-Commit": COMMIT, "X-Linked-Size": str(len(content)), "X-Linked-ETag": f'"{digest}"'}
        if path.endswith(".zip"):
            place = f"{self.endpoint}/store/{digest}"
            return web.Response(status=302, headers={**headers, "Location": place})
        return web.Response(body=content, headers={"X-Repo-Commit": COMMIT, "ETag": f'"{digest[:40]}"'})

    async def _store(self, request: web.Request) -> web.StreamResponse:
        path, content = next(
            (path, content)
            for path, content in self.files.items()
            if hashlib.sha256(content).hexdigest() == request.match_info["digest"]
        )
        if path in self.short:
            content = content[: self.short[path]]
        start, wanted = 0, request.headers.get("Range")
        if wanted:
            start = int(wanted.removeprefix("bytes=").split("-")[0])
            if start >= len(content):
                return web.Response(status=416)
        headers = {"Content-Length": str(len(content) - start), "Accept-Ranges": "bytes"}
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        answer = web.StreamResponse(status=206 if wanted else 200, headers=headers)
        await answer.prepare(request)
        self.together += 1
        self.most_together = max(self.most_together, self.together)
        try:
            budget = self.cut_after.get(path)
            for at in range(start, len(content), 1 << 14):
                chunk = content[at : at + (1 << 14)]
                if budget is not None:
                    chunk = chunk[: max(budget, 0)]
                    budget -= len(chunk)
                if self.slow_seconds:
                    await asyncio.sleep(self.slow_seconds)
                if not chunk:
                    request.transport.abort()  # type: ignore[union-attr]
                    return answer
                await answer.write(chunk)
                self.sent[path] += len(chunk)
        finally:
            self.together -= 1
        return answer


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache of the test's own."""
    monkeypatch.setenv("BIABENCH_CACHE", str(tmp_path / "cache"))
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """Return a running hub that ``HF_ENDPOINT`` names."""
    with FakeHub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.endpoint)
        yield running


@pytest.fixture(scope="session")
def suite() -> dict[str, TaskSpec]:
    return load_tasks(checkout.TASKS)


@pytest.fixture
def biabench(suite: dict[str, TaskSpec], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs ``biabench data WORDS``; the suite is read once."""
    monkeypatch.setattr("biabench_plugin.cli.data.find_tasks", lambda extra: suite)
    return lambda *words, **settings: CliRunner().invoke(app, ["data", *map(str, words)], **settings)


@pytest.fixture
def instant_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the client try again without waiting, and write what it has every 64 KiB instead of every 10 MB."""
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1 << 16)
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda _: None)
