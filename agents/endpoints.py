"""Where models are: providers by name or base URL, and what an agent is told about the one it uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

Protocol = Literal["messages", "responses", "chat"]
Authentication = Literal["bearer", "x-api-key", "both"]
EffortStyle = Literal["openrouter", "openai"]

DEFAULT_PROVIDER = "openrouter"
DEFAULT_KEY = "BIABENCH_API_KEY"  # for a provider given by its URL


@dataclass(frozen=True)
class Provider:
    """A provider's base URLs and the variable of the operator's environment that holds its key.

    ``messages`` is what ``/v1/messages`` is appended to, ``openai`` what ``/v1/responses`` and
    ``/v1/chat/completions`` are appended to; ``None`` where the provider does not speak the protocol.
    """

    name: str
    messages: str | None
    openai: str | None
    key_variable: str
    authentication: Authentication

    def root(self, protocol: Protocol) -> str:
        """Return the base URL for a protocol; raise ``ValueError`` where the provider does not speak it."""
        found = self.messages if protocol == "messages" else self.openai
        if found is None:
            raise ValueError(f"provider {self.name} does not speak the protocol that the agent needs ({protocol})")
        return found


def effort_style(url: str | None) -> EffortStyle:
    """Return how Chat Completions at a URL take an effort: OpenRouter's ``reasoning``, else ``reasoning_effort``."""
    host = urlsplit(url or "").hostname or ""
    return "openrouter" if host == "openrouter.ai" or host.endswith(".openrouter.ai") else "openai"


PROVIDERS = {
    provider.name: provider
    for provider in (
        Provider(
            "openrouter", "https://openrouter.ai/api", "https://openrouter.ai/api", "OPENROUTER_API_KEY", "bearer"
        ),
        Provider("anthropic", "https://api.anthropic.com", None, "ANTHROPIC_API_KEY", "x-api-key"),
        Provider("openai", None, "https://api.openai.com", "OPENAI_API_KEY", "bearer"),
        Provider(
            "deepseek", "https://api.deepseek.com/anthropic", "https://api.deepseek.com", "DEEPSEEK_API_KEY", "both"
        ),
    )
}


def find_provider(name: str | None, key_variable: str | None = None) -> Provider:
    """Return a provider by its name or its base URL (without ``/v1``); raise ``ValueError`` with the choices."""
    known = PROVIDERS.get(name or DEFAULT_PROVIDER)
    if known is None:
        parts = urlsplit(name or "")
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.username:
            raise ValueError(
                f"--provider={name}: expected {', '.join(PROVIDERS)} or a base URL such as http://HOST:PORT"
            )
        root = (name or "").rstrip("/").removesuffix("/v1")
        known = Provider(root, root, root, DEFAULT_KEY, "both")
    if key_variable is None:
        return known
    return Provider(known.name, known.messages, known.openai, key_variable, known.authentication)


@dataclass(frozen=True)
class Endpoint:
    """What an agent is told: a base URL per protocol and a key.

    With the relay both are the relay's, and the key is a token that is good for nothing else; without it they are the
    provider's own. ``effort_style`` is the provider's either way: the relay passes requests on unchanged.
    """

    messages: str | None
    openai: str | None
    key: str
    relayed: bool
    authentication: Authentication = "both"
    effort_style: EffortStyle = "openai"

    @property
    def openai_v1(self) -> str:
        """The base URL as OpenAI's clients take it."""
        if self.openai is None:
            raise ValueError("the provider does not speak OpenAI's protocols")
        return f"{self.openai}/v1"
