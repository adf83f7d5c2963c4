"""The key in what a provider sends back: some repeat it in their errors, and an agent or a record must not have it."""

from __future__ import annotations

import json

_SHORTEST = 8  # a shorter one is a placeholder of a server without keys, and a word of many texts


class Mask:
    """Replaces a key by asterisks of the same length, in any form that JSON has for it, also across blocks.

    Blocks are not delayed: only a tail that may be the beginning of the key waits for the next one.
    """

    def __init__(self, key: str) -> None:
        forms = {key, json.dumps(key)[1:-1], key.replace("/", "\\/")} if len(key) >= _SHORTEST else set()
        self._forms = [form.encode() for form in forms]
        self._held = b""

    def text(self, text: str) -> str:
        """Return a text without the key."""
        return self._replace(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def feed(self, block: bytes) -> bytes:
        """Return the next bytes without the key."""
        data = self._replace(self._held + block)
        begun = max((_begun(data, form) for form in self._forms), default=0)
        self._held = data[len(data) - begun :]
        return data[: len(data) - begun]

    def rest(self) -> bytes:
        """Return what was held back, after the last block."""
        held, self._held = self._held, b""
        return held

    def _replace(self, data: bytes) -> bytes:
        for form in self._forms:
            data = data.replace(form, b"*" * len(form))
        return data


def _begun(data: bytes, form: bytes) -> int:
    """Return how many of the last bytes are the beginning of ``form``."""
    return next((size for size in range(min(len(form) - 1, len(data)), 0, -1) if data.endswith(form[:size])), 0)
