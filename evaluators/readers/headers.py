"""Find the columns of a table under any of the names that people give them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from evaluators.problems import Refusal, shown
from evaluators.readers.text import read_text

_HEAD_BYTES = 64 << 10
_SEPARATORS = (",", ";", "\t")


def name_columns(handle: BinaryIO, roles: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return for each role the name, in lower case, of the column that holds it.

    The separator is the one under which most roles are found; of several names of a role that occur, the one listed
    first counts. A role without any of its names has no entry.

    Raises
    ------
    Refusal
        ``empty_file``, ``not_text``.
    """
    text = read_text(handle, _HEAD_BYTES, head=True)
    line = next((line for line in text.splitlines() if line.strip()), "")
    if not line:
        raise Refusal("empty_file", "has no header")
    best: dict[str, str] = {}
    for separator in _SEPARATORS:
        try:
            names = {name.strip().lower() for name in next(csv.reader([line], delimiter=separator))}
        except (csv.Error, StopIteration):
            continue
        found = {
            role: next(name for name in known if name in names)
            for role, known in roles.items()
            if any(name in names for name in known)
        }
        if len(found) > len(best):
            best = found
    return best


def require_columns(handle: BinaryIO, roles: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the column of each role, as :func:`name_columns`.

    Raises
    ------
    Refusal
        As there, and ``missing_columns`` where a role has none.
    """
    found = name_columns(handle, roles)
    if lacking := [role for role in roles if role not in found]:
        names = "; ".join(f"{role} ({', '.join(roles[role])})" for role in lacking)
        raise Refusal("missing_columns", f"the header has no column for {shown(names)}")
    return found
