"""Hide who made a run: names of agents, models and vendors, and paths of this host, in any text and file name."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agents.names import COMMON, ORDINARY, TELLTALE, TELLTALE_WORDS

HIDDEN = "AGENT"  # fits into a file name and into code, so that both still match after the replacement
_SEPARATORS = re.compile(r"[-_.\s/~+]+")
_SHORT = 4  # shorter names are hidden as words only


class Blinding:
    """Replace telling names in text.

    Parameters
    ----------
    names
        Names of the campaign's agents, configurations and models, beside those known everywhere.
    paths
        Folders of this host that may occur in logs; the first one that fits is replaced by ``/run``.
    """

    def __init__(self, names: Iterable[str] = (), paths: Iterable[str] = ()) -> None:
        longer = {*TELLTALE, *names}
        pieces = {piece for name in longer if "/" in name for piece in name.split("/")}
        wanted = {name.strip().lower() for name in longer | pieces} - ORDINARY - {""}
        self._names = sorted(
            ((name, re.compile(_pattern(name), re.IGNORECASE)) for name in wanted | set(TELLTALE_WORDS)),
            key=lambda pair: (-len(pair[0]), pair[0]),
        )
        self._paths = sorted({path for path in paths if len(path) > 1}, key=lambda path: (-len(path), path))

    def text(self, text: str) -> str:
        """Return ``text`` with every telling name replaced by :data:`HIDDEN`."""
        for path in self._paths:
            text = text.replace(path, "/run")
        squeezed = _SEPARATORS.sub("", text.lower())
        for name, pattern in self._names:
            if _SEPARATORS.sub("", name) in squeezed:  # far cheaper than the pattern on megabytes without a hit
                text = pattern.sub(HIDDEN, text)
        return text

    def path(self, path: str) -> str:
        """Return a path with telling names hidden; the separators stay."""
        return "/".join(self.text(part) for part in path.split("/"))


def _pattern(name: str) -> str:
    """Return a pattern for a name with any or no separators; short and ambiguous ones only as words of their own."""
    parts = [re.escape(part) for part in _SEPARATORS.split(name) if part]
    body = r"[-_.\s/~+]?".join(parts)
    if name in TELLTALE_WORDS:  # with the version that follows: gpt-5.6-sol
        return rf"(?<![a-z0-9]){body}(?:[-_. ]?[0-9][a-z0-9.-]*)?(?![a-z0-9])"
    if name in COMMON or len("".join(parts)) < _SHORT:
        return rf"(?<![a-z0-9]){body}(?![a-z0-9])"
    return body
