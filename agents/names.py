"""Words that give away which agent, model or vendor was at work; a blinded copy of a run hides them."""

from __future__ import annotations

# Hidden anywhere, also inside longer words; "-" stands for any separator or none.
TELLTALE = (
    "agentic-j",
    "anthropic",
    "biomni",
    "chat-gpt",
    "claude-code",
    "claude",
    "codex",
    "copilot-j",
    "copilot",
    "deep-seek",
    "gemini",
    "imagent-j",
    "mistral",
    "moonshot",
    "open-ai",
    "open-router",
    "qwen",
)

# Hidden as words of their own only: they are part of ordinary words too.
TELLTALE_WORDS = ("gpt", "glm", "grok", "haiku", "kimi", "opus", "sonnet")

# Names of agents here that are ordinary words: hidden, as words of their own, only where such an agent took part.
COMMON = frozenset({"bluff", "empty", "replay", "shortcut"})

# Names of agents here that every script and log contains; hiding them would hide nothing but the text.
ORDINARY = frozenset({"api", "command"})
