"""Reaching a judge through the provider's SDK, and sending it requests."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anthropic

from evaluators.process.judge import InvalidAnswerError, JudgeUnavailableError, Plan, check, keep, note_waste
from evaluators.process.requests import JudgeRequest

ROUTER = "https://openrouter.ai/api"


@dataclass(frozen=True)
class Access:
    """How a judge is reached. Without ``base_url``, a model id with a slash goes to the router, others to the provider.

    The variables OPENROUTER_API_KEY and ANTHROPIC_API_KEY hold the keys; each is sent to its own side only.
    """

    base_url: str | None = None
    api_key: str | None = None
    timeout_seconds: float = 300.0
    retries: int = 8  # of rate limits, overload, server faults and lost connections; waits as the server asks

    def client(self, model: str) -> anthropic.AsyncAnthropic:
        """Return the provider's client; raise :class:`JudgeUnavailableError` where there is no key."""
        routed = "/" in model
        name = "OPENROUTER_API_KEY" if routed else "ANTHROPIC_API_KEY"
        key = self.api_key or os.environ.get(name)
        if not key:
            raise JudgeUnavailableError(f"judge {model}: set {name}, or judge with --judge rules, which asks no model")
        base = self.base_url or (ROUTER if routed else os.environ.get("ANTHROPIC_BASE_URL"))
        credentials: dict[str, Any] = {"auth_token": key} if routed else {"api_key": key}
        return anthropic.AsyncAnthropic(
            base_url=base, timeout=self.timeout_seconds, max_retries=self.retries, **credentials
        )


class Sender:
    """Sends requests, a few at a time, and keeps every valid answer.

    Parameters
    ----------
    client
        The provider's.
    concurrency
        Requests in flight at once.
    """

    def __init__(self, client: anthropic.AsyncAnthropic, concurrency: int = 4) -> None:
        self._client = client
        self._gate = asyncio.Semaphore(concurrency)
        self._without_temperature = False

    async def ask(self, plan: Plan, request: JudgeRequest) -> str | None:
        """Get the answer to a request and keep it; return why there is none, or ``None``."""
        items = {item.id: item for item in plan.items}
        async with self._gate:
            spent: list[Mapping[str, Any]] = []
            messages = request.body["messages"]
            problem = ""
            for _ in range(2):  # an invalid answer is repaired once
                try:
                    message = await self._send({**request.body, "messages": messages})
                except anthropic.APIError as error:
                    return _told(error, plan.asking.model)
                spent.append(message["usage"])
                try:
                    check(message, request, items)
                except InvalidAnswerError as error:
                    problem = str(error)
                    if message.get("stop_reason") == "refusal":
                        break
                    messages = [*request.body["messages"], *_repair(message, problem)]
                    continue
                keep(plan, request, message, spent)
                return None
            note_waste(plan.answers / "wasted.jsonl", spent)
            return f"no valid answer: {problem}"

    async def _send(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request; where the model takes no temperature, send it without."""
        warm = "temperature" in body and not self._without_temperature
        try:
            return await self._create(body, warm)
        except anthropic.BadRequestError as error:
            if not warm or "temperature" not in str(error):
                raise
            self._without_temperature = True
            return await self._create(body, False)

    async def _create(self, body: Mapping[str, Any], warm: bool) -> dict[str, Any]:
        arguments = {name: value for name, value in body.items() if name != "temperature"}
        if warm:
            arguments["extra_body"] = {"temperature": body["temperature"]}  # newer clients have no argument for it
        message = await self._client.messages.create(**arguments)
        return dict(message.model_dump(mode="json"))


def _told(error: anthropic.APIError, model: str) -> str:
    """Describe a failure of one request; raise where no request can succeed."""
    hopeless = (anthropic.AuthenticationError, anthropic.PermissionDeniedError, anthropic.NotFoundError)
    status = getattr(error, "status_code", None)
    if isinstance(error, hopeless) or status == 402:
        raise JudgeUnavailableError(f"judge {model}: {type(error).__name__} ({status}): {error.message}") from error
    return f"{type(error).__name__}{'' if status is None else f' ({status})'}: {str(error.message)[:300]}"


def _repair(message: Mapping[str, Any], problem: str) -> list[dict[str, Any]]:
    """The turns that ask the model to hand in its answer again."""
    said = [block for block in message["content"] if block["type"] in ("text", "tool_use")]
    kept = [{name: block[name] for name in ("type", "text", "id", "name", "input") if name in block} for block in said]
    text = f"The answer does not have the asked form: {problem}. Hand in all decisions of this request again."
    calls = [block for block in kept if block["type"] == "tool_use"]
    results: list[dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": call["id"], "content": text, "is_error": True} for call in calls
    ]
    turns = [{"role": "user", "content": results or [{"type": "text", "text": text}]}]
    return [{"role": "assistant", "content": kept}, *turns] if kept else turns
