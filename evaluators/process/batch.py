"""Judging through the provider's Message Batches: half the price, answers within a day, resumed after an interruption.

A batch does nothing but fill the store of answers: it is the same requests that would be sent one by one, and what the
batch did not answer is sent so afterwards. The identifiers of batches under way are kept in a file, so that no request
is paid for twice.
"""

from __future__ import annotations

import asyncio
import json
import os
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


class BatchState:
    """The batches under way, in a file: identifier of each batch and of its requests."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.batches: dict[str, list[str]] = {}
        if path.is_file():
            try:
                self.batches = {str(key): list(value) for key, value in json.loads(path.read_text("utf-8")).items()}
            except (ValueError, AttributeError, TypeError) as error:
                raise JudgeUnavailableError(f"{path}: is no list of batches: {error}") from error

    def add(self, batch: str, requests: Sequence[str]) -> None:
        self.batches[batch] = list(requests)
        self._write()

    def drop(self, batch: str) -> None:
        del self.batches[batch]
        self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".part")
        with temporary.open("w", encoding="utf-8") as stream:
            json.dump(self.batches, stream, indent=1)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(self._path)


async def run_batches(
    plans: Sequence[Plan],
    client: anthropic.AsyncAnthropic,
    state_file: Path,
    *,
    poll_seconds: float = 30.0,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Send all pending requests in batches, wait for them, and store the valid answers.

    Parameters
    ----------
    plans
        Planned with ``batch=True``.
    state_file
        Where batches under way are noted; those of an interrupted session are waited for, not sent again.
    poll_seconds
        Time between two questions for the state of a batch.
    progress
        Called with the numbers of ended and of all requests.

    Returns
    -------
    int
        Number of answers that were stored.

    Raises
    ------
    JudgeUnavailableError
        The provider takes no batch.
    """
    state = BatchState(state_file)
    asked = {custom_id(request): (one, request) for one in plans for request in one.pending()}
    under_way = {name for requests in state.batches.values() for name in requests}
    fresh = [(name, request) for name, (_, request) in asked.items() if name not in under_way]
    for part in _parts(fresh):
        try:
            batch = await client.messages.batches.create(requests=[_entry(*one) for one in part])  # type: ignore[misc]
        except anthropic.APIError as error:
            raise JudgeUnavailableError(f"the batch was not taken: {type(error).__name__}: {error.message}") from error
        state.add(batch.id, [name for name, _ in part])
    total = sum(map(len, state.batches.values()))
    stored = ended = 0
    for identifier in list(state.batches):
        await _wait(client, identifier, poll_seconds, partial(_tell, progress, ended, total))
        async for result in await client.messages.batches.results(identifier):
            if result.custom_id in asked and result.result.type == "succeeded":
                stored += _store(*asked[result.custom_id], result.result.message.model_dump(mode="json"))
        ended += len(state.batches[identifier])
        state.drop(identifier)
    return stored


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
