"""Judging through the provider's Message Batches: half the price, answers within a day, resumed after an interruption.

A batch does nothing but fill the store of answers: it is the same requests that would be sent one by one, and what the
batch did not answer is sent so afterwards. The identifiers of batches under way are kept in a file, so that no request
is paid for twice.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anthropic

from evaluators.process.judge import InvalidAnswerError, JudgeUnavailableError, Plan, check, keep
from evaluators.process.requests import JudgeRequest

MAX_REQUESTS = 5_000
MAX_BYTES = 128 << 20  # the provider takes 256 MB
_ID_CHARACTERS = 60  # of the digest; the provider takes 64


class Batches:
    """The batches of one campaign: which are under way, and answers that were fetched and not yet taken.

    Parameters
    ----------
    folder
        Where ``batches.json`` (identifiers of batches and of their requests) and the answers lie.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "batches.json"
        self.under_way: dict[str, list[str]] = {}
        if self._path.is_file():
            try:
                stored = json.loads(self._path.read_text("utf-8"))
                self.under_way = {str(key): list(value) for key, value in stored.items()}
            except (ValueError, AttributeError, TypeError) as error:
                raise JudgeUnavailableError(f"{self._path}: is no list of batches: {error}") from error

    async def submit(self, plans: Sequence[Plan], client: anthropic.AsyncAnthropic) -> int:
        """Send the pending requests that no batch holds yet; return how many.

        Raises
        ------
        JudgeUnavailableError
            The provider takes no batch.
        """
        held = {name for requests in self.under_way.values() for name in requests}
        pending = [(custom_id(request), request) for one in plans for request in one.pending()]
        fresh = [(name, one) for name, one in pending if name not in held and not self._answer(name).is_file()]
        for part in _parts(fresh):
            try:
                batch = await client.messages.batches.create(requests=[_entry(*one) for one in part])  # type: ignore[misc]
            except anthropic.APIError as error:
                raise JudgeUnavailableError(
                    f"the batch was not taken: {type(error).__name__}: {error.message}"
                ) from error
            self.under_way[batch.id] = [name for name, _ in part]
            self._write()
        return len(fresh)

    async def collect(
        self,
        client: anthropic.AsyncAnthropic,
        *,
        poll_seconds: float = 30.0,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Wait for all batches under way and fetch their answers.

        ``progress`` is called with the numbers of ended and of all requests.
        """
        total = sum(map(len, self.under_way.values()))
        ended = 0
        for identifier in list(self.under_way):
            await _wait(client, identifier, poll_seconds, partial(_tell, progress, ended, total))
            async for result in await client.messages.batches.results(identifier):
                if result.result.type == "succeeded":
                    _write_whole(self._answer(result.custom_id), result.result.message.model_dump(mode="json"))
            ended += len(self.under_way.pop(identifier))
            self._write()

    def take(self, plans: Sequence[Plan]) -> int:
        """Move fetched answers to the plans that they belong to; return how many were valid.

        An invalid one is dropped: it is asked for again, and repaired, outside the batch.
        """
        taken = 0
        for one in plans:
            for request in one.pending():
                path = self._answer(custom_id(request))
                if path.is_file():
                    taken += _store(one, request, json.loads(path.read_text("utf-8")))
                    path.unlink()
        return taken

    def _answer(self, name: str) -> Path:
        if not re.fullmatch(r"[0-9a-f]+", name):  # a name that the provider gave back
            raise JudgeUnavailableError(f"the provider answered for a request that was not sent: {name[:80]!r}")
        return self._folder / "answers" / f"{name}.json"

    def _write(self) -> None:
        _write_whole(self._path, self.under_way)


def _write_whole(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    with temporary.open("w", encoding="utf-8") as stream:
        json.dump(value, stream)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def _tell(progress: Callable[[int, int], None] | None, before: int, total: int, done: int) -> None:
    if progress is not None:
        progress(before + done, total)


def custom_id(request: JudgeRequest) -> str:
    """Name of a request within a batch."""
    return request.key[:_ID_CHARACTERS]


def _entry(name: str, request: JudgeRequest) -> dict[str, Any]:
    return {"custom_id": name, "params": request.body}


def _parts(requests: Sequence[tuple[str, JudgeRequest]]) -> Iterator[list[tuple[str, JudgeRequest]]]:
    """Divide requests into batches that the provider takes."""
    part: list[tuple[str, JudgeRequest]] = []
    size = 0
    for name, request in requests:
        length = len(json.dumps(request.body))
        if part and (len(part) >= MAX_REQUESTS or size + length > MAX_BYTES):
            yield part
            part, size = [], 0
        part.append((name, request))
        size += length
    if part:
        yield part


async def _wait(
    client: anthropic.AsyncAnthropic, identifier: str, poll_seconds: float, tell: Callable[[int], object]
) -> None:
    while True:
        try:
            batch = await client.messages.batches.retrieve(identifier)
        except anthropic.NotFoundError as error:
            raise JudgeUnavailableError(
                f"batch {identifier} is not known to the provider any more; delete the file of batches to send it again"
            ) from error
        counts = batch.request_counts
        tell(counts.succeeded + counts.errored + counts.canceled + counts.expired)
        if batch.processing_status == "ended":
            return
        await asyncio.sleep(poll_seconds)


def _store(plan: Plan, request: JudgeRequest, message: Mapping[str, Any]) -> bool:
    """Keep a valid answer; an invalid one is asked for, and repaired, outside the batch."""
    try:
        check(message, request, {item.id: item for item in plan.items})
    except InvalidAnswerError:
        return False
    keep(plan, request, message, [message["usage"]])
    return True
