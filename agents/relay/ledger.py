"""The ledger: one line per request that an agent made of its model, as the relay saw it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from agents.base import Usage
from agents.pricing import PROVIDERS_OWN

FILE_NAME = "relay.jsonl"  # in an attempt's folder, beside record.json

Protocol = Literal["messages", "responses", "chat", "other"]
Ending = Literal["complete", "truncated", "client_gone", "unreachable", "refused_by_relay"]


class Exchange(BaseModel):
    """One request and what came back.

    Parameters
    ----------
    at, first_byte_ms, seconds, silent_seconds
        Start in seconds since the relay started; time until the first byte of the answer was passed on; whole time;
        time from the last byte that came from the provider to the end.
    model, effort, web
        As the request says them; ``web`` names tools that the provider itself would run on the open web.
    tools
        Names of the tools that the request offers to the model, where they differ from those of the request before.
    status
        The provider's HTTP status, ``None`` where none arrived.
    ending
        ``complete`` (the answer ended by its protocol's own sign), ``truncated`` (it ended before that),
        ``client_gone`` (the agent went away, or was killed, first), ``unreachable`` (no connection to the provider),
        ``refused_by_relay`` (never sent).
    model_answered, stop, error_type, error
        As the provider says them; ``error`` is shortened.
    text, reasoning, calls
        Whether the answer holds text and reasoning, and how many tool calls.
    input_tokens
        The whole prompt: with what was read from and written to a cache. ``cached_tokens`` and ``cache_write_tokens``
        are parts of it, ``reasoning_tokens`` is a part of ``output_tokens``. A count the provider does not give is
        ``None``.
    cost_usd
        What the provider says that the request cost, where it does.
    """

    model_config = ConfigDict(extra="forbid")

    number: int
    at: float
    method: str
    path: str
    protocol: Protocol
    model: str | None = None
    effort: str | None = None
    stream: bool = False
    web: list[str] = []
    tools: list[str] | None = None
    status: int | None = None
    ending: Ending = "complete"
    model_answered: str | None = None
    stop: str | None = None
    refusal: bool = False
    error_type: str | None = None
    error: str | None = None
    text: bool = False
    reasoning: bool = False
    calls: int = 0
    input_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None
    first_byte_ms: float | None = None
    seconds: float = 0.0
    silent_seconds: float = 0.0
    request_bytes: int = 0
    response_bytes: int = 0
    request_id: str | None = None

    @property
    def asks_model(self) -> bool:
        """Whether the request asks a model for an answer (and does not, for example, list models)."""
        return self.protocol != "other"

    @property
    def answered(self) -> bool:
        """Whether the provider's own answer arrived whole."""
        return self.status == 200 and self.ending == "complete" and self.error_type is None

    @property
    def unmetered(self) -> bool:
        """Whether the provider may have charged for an answer whose token counts never came."""
        lost = self.ending in ("client_gone", "truncated") or self.answered
        return lost and self.output_tokens is None and self.input_tokens is None

    @property
    def empty(self) -> bool:
        """Whether an answer arrived with neither text nor call nor refusal."""
        return self.status == 200 and self.error_type is None and not (self.text or self.calls or self.refusal)


def read_ledger(path: Path) -> list[Exchange]:
    """Read a ledger; an absent one is empty. A last line that a kill cut off is left out; other damage raises."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(Exchange.model_validate_json(line))
        except ValidationError as error:
            if number == len(lines):
                break
            raise ValueError(f"{path}:{number}: is no line of a relay's ledger: {error.errors()[0]['msg']}") from error
    return found


def metered_usage(exchanges: Iterable[Exchange]) -> Usage:
    """Sum what the relay saw; a signal that no answer carried stays ``None``.

    A provider's cost counts only if every answered request has one: half a bill is no bill.
    """
    asked = [exchange for exchange in exchanges if exchange.asks_model]
    priced = [exchange for exchange in asked if exchange.output_tokens or exchange.input_tokens]
    costs = [exchange.cost_usd for exchange in priced if exchange.cost_usd is not None]
    return Usage(
        input_tokens=_sum(exchange.input_tokens for exchange in asked),
        cached_tokens=_sum(exchange.cached_tokens for exchange in asked),
        cache_write_tokens=_sum(exchange.cache_write_tokens for exchange in asked),
        output_tokens=_sum(exchange.output_tokens for exchange in asked),
        reasoning_tokens=_sum(exchange.reasoning_tokens for exchange in asked),
        tool_calls=sum(exchange.calls for exchange in asked) if any(exchange.answered for exchange in asked) else None,
        requests=len(asked),
        cost_usd=sum(costs) if costs and len(costs) == len(priced) else None,
        cost_source=PROVIDERS_OWN if costs and len(costs) == len(priced) else None,
        source="relay",
    )


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
