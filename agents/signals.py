"""From what the relay saw to what it says about a run: refusal, a fault of the provider, or nothing of the kind.

The relay's ledger decides, because no agent can write it; an agent's own events are used only where there was no relay.
Only the last exchange counts: whatever went wrong before it was overcome. docs/agents.md has the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agents.base import Evidence, Usage
from agents.relay.ledger import Exchange, metered_usage

_PROVIDER_FAULTS = frozenset((401, 402, 403, 404, 407, 408, 409, 425, 429))
_POLICY = frozenset(("content_filter", "content_policy_violation", "content_policy", "moderation", "refusal"))
_SIZE = frozenset(("context_length_exceeded", "request_too_large", "string_above_max_length"))
_SIZE_WORDS = ("prompt is too long", "context length", "context window", "maximum context")
_POLICY_WORDS = ("policy", "safety", "flagged", "violat", "not allowed", "prohibited", "harmful")
_HANG_SECONDS = 600.0
_HANG_SHARE = 0.5  # of the budget


def weigh(
    exchanges: Sequence[Exchange],
    reported: Evidence,
    *,
    budget_seconds: float,
    model: str | None = None,
    relayed: bool = True,
) -> Evidence:
    """Return an agent's evidence as the relay's ledger confirms or replaces it.

    Parameters
    ----------
    exchanges
        The ledger; empty where there was no relay, which leaves ``reported`` as it is.
    reported
        What the agent's own events say.
    budget_seconds
        The run's budget, against which a request that was never answered is held.
    model
        The configured model. Requests that name another one decide nothing where any names this one.
    relayed
        Whether there was a relay at all.
    """
    asked = [exchange for exchange in exchanges if exchange.asks_model]
    if not asked:
        silent = ("the agent never asked its model",) if relayed else ()
        return replace(reported, review=(*reported.review, *silent))
    meant = [exchange for exchange in asked if exchange.model in (None, model)]
    if not any(exchange.model == model for exchange in meant):
        meant = asked
    last = max(meant, key=lambda exchange: exchange.at + exchange.seconds)
    refused, infrastructure, review = _verdict(last, budget_seconds)
    notes = list(reported.review) + ([review] if review else [])
    if reported.refused and not refused:
        notes.append(f"the agent reports a refusal that the relay did not see: {reported.refused}")
    if reported.infrastructure and not (infrastructure or refused):
        notes.append(f"the agent reports a fault that the relay did not see: {reported.infrastructure}")
    return replace(reported, refused=refused, infrastructure=infrastructure, review=tuple(notes))


def _verdict(last: Exchange, budget: float) -> tuple[str | None, str | None, str | None]:
    """Return refusal, fault of the provider, and what a person should look at."""
    said = f": {last.error}" if last.error else ""
    if last.refusal:
        return f"the model's provider refused (stop reason {last.stop})", None, None
    if last.ending == "unreachable":
        return None, f"the provider could not be reached{said}", None
    if last.ending == "refused_by_relay":
        return None, None, f"the relay let the last request not through{said}"
    if last.error_type is not None and last.error_type in _POLICY:
        return f"the provider refused ({last.error_type}){said}", None, None
    if last.status is not None and last.status >= 400:
        return _error_status(last, said)
    if last.ending == "client_gone":
        return _unanswered(last, budget)
    if last.error_type is not None:
        return None, f"the provider broke off its answer ({last.error_type}){said}", None
    if last.ending == "truncated":
        what = "an answer without content" if not last.response_bytes else "an answer that was cut off"
        return None, f"the provider sent {what}{said}", None
    if last.empty:
        return _empty(last)
    return None, None, None


def _error_status(last: Exchange, said: str) -> tuple[str | None, str | None, str | None]:
    status, text = last.status or 0, (last.error or "").lower()
    if last.error_type in _SIZE or status == 413 or any(words in text for words in _SIZE_WORDS):
        return None, None, f"the provider's size limit ended the run (HTTP {status}){said}"
    if status in _PROVIDER_FAULTS or status >= 500:
        return None, f"the provider answered HTTP {status} ({last.error_type}){said}", None
    if any(word in text for word in _POLICY_WORDS):
        return None, None, f"HTTP {status} whose words may be a refusal{said}"
    return None, None, f"the provider rejected the agent's request (HTTP {status}, {last.error_type}){said}"


def _unanswered(last: Exchange, budget: float) -> tuple[str | None, str | None, str | None]:
    """Judge a request that was open when the agent, or its connection, ended."""
    waited = last.silent_seconds
    if waited >= min(_HANG_SECONDS, _HANG_SHARE * budget):
        return None, f"the provider sent nothing for the last {waited:.0f} s of the run", None
    if last.first_byte_ms is None:
        return None, None, f"the agent ended, or was ended, {waited:.0f} s after a request that had no answer yet"
    return None, None, None


def _empty(last: Exchange) -> tuple[str | None, str | None, str | None]:
    if last.output_tokens == 0:
        return None, "the provider's gateway sent an empty answer (no output tokens)", None
    if last.output_tokens is None:
        return None, None, "the last answer is empty and says no token count: the model's or its gateway's doing"
    return None, None, f"the model ended with an empty turn ({last.output_tokens} output tokens, no text and no call)"


def merge_usage(reported: Usage, exchanges: Sequence[Exchange]) -> Usage:
    """Return one usage: tokens as metered, and calls as the agent counts them; without a relay, as reported."""
    if not any(exchange.asks_model for exchange in exchanges):
        return reported
    metered = metered_usage(exchanges)
    calls = metered.tool_calls if reported.tool_calls is None else reported.tool_calls
    return metered.model_copy(update={"tool_calls": calls, "executed_blocks": reported.executed_blocks})


def difference(reported: Usage, metered: Usage) -> dict[str, int]:
    """Return what the agent reports beyond (or, negative, short of) what the relay metered, where both say it."""
    found = {}
    for name in ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens"):
        ours, theirs = getattr(metered, name), getattr(reported, name)
        if ours is not None and theirs is not None and ours != theirs:
            found[name] = theirs - ours
    return found


def wire(exchanges: Sequence[Exchange], *, model: str | None, effort: str | None) -> dict[str, Any]:
    """Summarise the ledger for the record: what was really asked of which model.

    ``effort`` is the word that the agent's request should carry, ``None`` where none is expected. ``problems`` names
    what differs from the configuration: another model, another effort, a tool of the provider that reads the web.
    """
    asked = [exchange for exchange in exchanges if exchange.asks_model]
    read = [exchange for exchange in asked if exchange.model is not None]  # not those that ended before they were read
    models = Counter(exchange.model for exchange in read)
    efforts = Counter(exchange.effort or "none" for exchange in read)
    tools = sorted({tool for exchange in exchanges for tool in exchange.tools or ()})
    problems = [f"{count} requests named the model {name}" for name, count in models.items() if model and name != model]
    if effort is not None:
        problems += [
            f"{count} requests carried the effort {name} instead of {effort}"
            for name, count in efforts.items()
            if name != effort
        ]
    return {
        "requests": len(asked),
        "not_read": len(asked) - len(read),
        "unmetered": sum(exchange.unmetered for exchange in asked),
        "models": dict(models),
        "models_answered": sorted({exchange.model_answered for exchange in asked if exchange.model_answered}),
        "efforts": dict(efforts),
        "endings": dict(Counter(f"{exchange.status} {exchange.ending}" for exchange in asked)),
        "tools": tools,
        "web_tools": sorted({name for exchange in asked for name in exchange.web}),
        "problems": problems,
    }


def effort_on_wire(exchanges: Sequence[Exchange]) -> str | None:
    """Return the effort that the requests carried, or ``not on the wire``; ``None`` without requests."""
    asked = [exchange for exchange in exchanges if exchange.asks_model and exchange.model is not None]
    if not asked:
        return None
    return "+".join(sorted({exchange.effort or "not on the wire" for exchange in asked}))
