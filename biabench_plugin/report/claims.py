"""Whether an agent's closing message claims completion. One detector, and the published word list beside it."""

from __future__ import annotations

import re
from typing import Literal

Claim = Literal["claimed", "denied", "promised", "unknown"]

_END = 600  # characters of the end of the message that speak of what comes next
_DONE = re.compile(
    r"\b(complete[ds]?|completion|success(?:ful(?:ly)?)?|finished|done|delivered|saved|written|wrote|generated|"
    r"processed|all (?:required )?(?:deliverables|outputs|files))\b",
    re.IGNORECASE,
)
_NOT_DONE = re.compile(
    r"\b(could ?n[o']t|cannot|can't|unable|not (?:been )?(?:able|completed?|finish(?:ed)?|written|produced|possible)|"
    r"in ?complete|(?:has|have|was|were) n[o']t|did(?: not|n't)|ran out|gave up|giv(?:e|ing) up|"
    r"partial(?:ly)? (?:complete|done|finished|results?|outputs?)|timed? ?out|no output (?:was|has))\b",
    re.IGNORECASE,
)
_WILL = re.compile(
    r"\b(I(?:'| wi)ll|I am going to|I'm going to|we(?:'| wi)ll|going to|let me|next,? I|once (?:it|this|that|the)|"
    r"will (?:be|now|then|continue|resume|finish|check|report|notify|write|verify|wait)|"
    r"(?:is|are) (?:still )?(?:running|in progress)|waiting for)\b",
    re.IGNORECASE,
)
_PUBLISHED_CLAIM = re.compile(r"complet|success|all deliverables|finished|done|delivered")
_PUBLISHED_DENIAL = re.compile(
    r"could not|couldn't|unable|not complete|incomplete|fail|timeout|ran out|partial|not finished|did not"
)
_PUBLISHED_LENGTH = 1500


def claim(message: str | None, *, published: bool = False) -> Claim:
    """Tell what a closing message says about the work.

    Parameters
    ----------
    message
        The last message of the run; ``None`` or blank gives ``unknown``, which leaves every denominator.
    published
        Use the paper's list instead: stems in the first 1,500 characters, any denial word vetoes. It takes
        "no failures" for a denial and knows no promises; anything that is no claim is ``denied``.
    """
    if message is None or not message.strip():
        return "unknown"
    if published:
        text = message[:_PUBLISHED_LENGTH].lower()
        claims = _PUBLISHED_CLAIM.search(text) and not _PUBLISHED_DENIAL.search(text)
        return "claimed" if claims else "denied"
    if _NOT_DONE.search(message):
        return "denied"
    if _WILL.search(message[-_END:]):
        return "promised"
    return "claimed" if _DONE.search(message) else "unknown"
