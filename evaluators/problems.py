"""Naming what is wrong with a submission: refusals, safe display of hostile names, a bounded list of problems."""

from __future__ import annotations

from collections import Counter

from evaluators.model import Problem

_SHOWN_CHARACTERS = 160
_MESSAGE_CHARACTERS = 600
_PER_CODE = 50


class Refusal(Exception):
    """A file, frame or row of a submission that is not taken; handled by scoring 0 for it and naming the reason.

    Parameters
    ----------
    code
        Short and stable, for example ``wrong_shape``.
    message
        A sentence for a person: what was expected and what was found.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


def shown(text: str, characters: int = _SHOWN_CHARACTERS) -> str:
    r"""Return a hostile name or value for display: one line, valid Unicode, bounded length.

    Characters that do not print, and bytes that are not UTF-8 (surrogates in Python's file names), become escapes.

    Examples
    --------
    >>> shown("a\nb")
    'a\\nb'
    """
    if len(text) > 4 * characters:
        text = text[: 2 * characters] + text[-2 * characters :]
    text = "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode("ascii") for mark in text)
    if len(text) > characters:
        head = (characters - 1) * 2 // 3
        text = f"{text[:head]}…{text[head + 1 - characters :]}"
    return text


class Problems:
    """The problems of one submission in the order in which they were found, at most 50 of each code.

    Further ones are counted and summed up in one entry per code, so that a hostile submission cannot make the list
    grow without bound.
    """

    def __init__(self) -> None:
        self._kept: list[Problem] = []
        self._seen: Counter[str] = Counter()

    def add(self, code: str, where: str, message: str) -> None:
        """Add a problem; ``where`` and ``message`` may hold hostile text."""
        self._seen[code] += 1
        if self._seen[code] <= _PER_CODE:
            self._kept.append(Problem(code=code, where=shown(where), message=shown(message, _MESSAGE_CHARACTERS)))

    def refused(self, where: str, refusal: Refusal) -> None:
        """Add a refusal."""
        self.add(refusal.code, where, refusal.message)

    def list(self) -> list[Problem]:
        """Return all problems, with one entry for those beyond the bound of each code."""
        more = [
            Problem(code=code, where="", message=f"{count - _PER_CODE} more of this kind")
            for code, count in sorted(self._seen.items())
            if count > _PER_CODE
        ]
        return [*self._kept, *more]
