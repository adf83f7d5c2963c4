"""What an agent's closing message says about its work: the one detector that every table and audit uses."""

from __future__ import annotations

import re
from typing import Literal

Claim = Literal["claimed", "denied", "promised", "unknown"]

_TAIL = 4_000  # characters at the end of a message that can be its closing words

_VERBS = (
    r"continue|produce|write|finish|complete|generate|save|run|deliver|process|create|proceed|export|compute|analy[sz]e"
    r"|segment|quantify|report back|update you|wait|monitor|check back"
)
_PROMISES = re.compile(
    rf"""
    \b(?:i|we)\s*(?:['’]ll|\s+will|['’]m\s+going\s+to|\s+am\s+going\s+to|\s+shall)\s+(?:\w+\s+){{0,3}}?(?:{_VERBS})\b
    | \b(?:still|currently|now)\s+(?:running|processing|working|computing|in\s+progress|being\s+\w+ed)\b
    | \b(?:is|are)\s+(?:running|in\s+progress|underway|being\s+(?:generated|processed|written|computed|produced))\b
    | \bwill\s+(?:then\s+|automatically\s+)?be\s+
      (?:written|saved|produced|generated|available|ready|completed|created|exported)\b
    | \b(?:once|when|as\s+soon\s+as)\s+(?:it|this|that|they|the\s+[\w-]+(?:\s+[\w-]+)?)\s+
      (?:has\s+|have\s+)?(?:finish|complet|end)\w*
    | \bin\s+the\s+background\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_OFFERS = re.compile(
    r"\bif\s+you\b|\blet\s+me\s+know\b|\bhappy\s+to\b|\bglad\s+to\b|\bwould\s+you\s+like\b|\bcan\s+also\b"
    r"|\bfuture\s+(?:work|stud)|\?\s*$",
    re.IGNORECASE,
)
_DENIALS = re.compile(
    r"\b(?:could|can|did|was|were|do|does|is|are)\s*(?:not|n['’]t)\s+(?:able|be\s+)?\s*"
    r"(?:complet|finish|produc|deliver|writ|generat|process|creat|save|done|run|determin|confirm|obtain)\w*"
    r"|\bcannot\s+(?:complet|finish|produc|deliver|confirm|writ)\w*|\bunable\s+to\b|\bincomplete\b|\bunfinished\b|\bgave\s+up\b"
    r"|\bran\s+out\s+of\b|\b(?:job|run|task|analysis|pipeline|script|step)\s+(?:has\s+)?failed\b|\bnot\s+(?:complete|finished|done)\b|\bno\s+(?:output|result)s?\s+(?:was|were|could)\b",
    re.IGNORECASE,
)
_CLAIMS = re.compile(
    r"\bcomplet(?:e|ed|ely|ion)\b|\bsuccess\w*|\bfinished\b|\bdone\b|\bdelivered\b|\b(?:all|every)\b[^.\n]{0,40}\b(?:deliverable|output|file)s?\b"
    r"|\b(?:saved|written|wrote|created|generated|produced|exported)\b",
    re.IGNORECASE,
)


def sentences(text: str) -> list[str]:
    """Split a message into sentences and lines."""
    return [part.strip() for part in re.split(r"(?<=[.!?])\s+|\n+", text) if part.strip()]


def promises(text: str | None) -> list[str]:
    """Return the sentences of a closing message that say that work goes on; offers of further help are none."""
    if not text:
        return []
    return [line for line in sentences(text[-_TAIL:]) if _PROMISES.search(line) and not _OFFERS.search(line)]


def closing_claim(text: str | None) -> Claim:
    """Say what a closing message claims.

    ``promised`` (work is said to go on) and ``denied`` (something is said to be missing) win over ``claimed``. A
    message that is absent, or says none of it, is ``unknown`` and belongs in no denominator.

    Examples
    --------
    >>> closing_claim("All 96 wells were processed and the tables were saved.")
    'claimed'
    >>> closing_claim("Analysis is still running. I'll continue and produce the tables.")
    'promised'
    >>> closing_claim("I could not complete the segmentation.")
    'denied'
    """
    if not text or not text.strip():
        return "unknown"
    if promises(text):
        return "promised"
    tail = text[-_TAIL:]
    if _DENIALS.search(tail):
        return "denied"
    return "claimed" if _CLAIMS.search(tail) else "unknown"
