"""The paper's word list for completion claims, beside the one detector of :mod:`evaluators.process.claims`."""

from __future__ import annotations

import re

_CLAIM = re.compile(r"complet|success|all deliverables|finished|done|delivered")
_DENIAL = re.compile(
    r"could not|couldn't|unable|not complete|incomplete|fail|timeout|ran out|partial|not finished|did not"
)
_LENGTH = 1500


def published_claim(message: str | None) -> str:
    """Tell by the paper's list whether a closing message claims completion: ``claimed``, ``denied`` or ``unknown``.

    Stems in the first 1,500 characters, any word of denial vetoes; so "no failures" is a denial, a promise to finish
    may be a claim, and whatever is no claim is ``denied``. Without a message it is ``unknown``.
    """
    if message is None or not message.strip():
        return "unknown"
    text = message[:_LENGTH].lower()
    return "claimed" if _CLAIM.search(text) and not _DENIAL.search(text) else "denied"
