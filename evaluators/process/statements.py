"""Find in a report what it states in numbers: totals, coverage, averages, and values by condition."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from evaluators.process.claims import sentences

_NUMBER = r"\d{1,3}(?:[,\u202f\u2009]\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:e[-+]?\d+)?"
# Words before the noun that make it no smaller set: "1,609 segmented nuclei" are all, "40 positive nuclei" are not.
_WHOLE = {
    "segmented", "detected", "quantified", "measured", "analysed", "analyzed", "total", "individual", "single",
    "identified", "unique", "delivered", "valid", "final", "accepted", "retained", "tracked", "localised", "localized",
}  # fmt: skip
_TOTAL = re.compile(
    r"(?i)\b(?:in\s+total|total|in\s+all|all|altogether|overall|quantified|segmented|processed|measured|analy[sz]ed"
    r"|covers?|covering|contains?|rows?)\b"
)
_PART = re.compile(
    r"(?i)\b(?:of\s+which|of\s+them|per|each|removed|rejected|excluded|discarded|left\s+out|filtered|dropped|touching"
    r"|exceed\w*|below|above|at\s+least|fewer|more\s+than|less\s+than|about|only|without|before|initially|candidates?|first|last)\b"
)
_STOP = frozenset(
    """mean means average median total sum number count counts share fraction percent percentage sd se sem the and of in
    per by for a an with is are was were to at on each condition conditions group n all value values their its from
    respectively reports report run runs""".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Statement:
    """A number with its sentence. ``is_total`` where the sentence speaks of everything; ``topic`` are its words."""

    value: float
    sentence: str
    is_total: bool = False
    topic: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Vector:
    """One number per condition, in the order in which the conditions were given."""

    values: tuple[float, ...]
    sentence: str
    topic: frozenset[str] = field(default=frozenset())
    is_mean: bool = False
    in_table: bool = False


def numbers_of(text: str) -> list[float]:
    """Return the numbers in a text, thousands separators removed."""
    return [_value(match[0]) for match in re.finditer(rf"(?<![\w.])(?:{_NUMBER})(?![\w])", text)]


def _value(text: str) -> float:
    return float(re.sub("[,\u202f\u2009]", "", text))


def words(text: str) -> frozenset[str]:
    """Return the telling words of a heading or sentence, in the singular, without words of measure."""
    found = re.findall(r"[a-z]{2,}", text.lower().replace("_", " "))
    return frozenset(_singular(word) for word in found) - _STOP


def _singular(word: str) -> str:
    irregular = {"nuclei": "nucleus", "puncta": "punctum", "foci": "focus", "radii": "radius", "bacteria": "bacterium"}
    if word in irregular:
        return irregular[word]
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _alternatives(forms: frozenset[str]) -> str:
    return "|".join(sorted((re.escape(form) for form in forms), key=len, reverse=True))


def count_statements(text: str, forms: frozenset[str]) -> list[Statement]:
    """Return statements like ``1,609 nuclei``, ``nuclei: 1609`` and ``N = 1609 nuclei`` about whole sets."""
    nouns = _alternatives(forms)
    before = re.compile(
        rf"(?<![\w.,/–-])({_NUMBER})\s+((?:[\w-]+\s+){{0,2}}?)(?:{nouns})\b(?!\s*(?:per|/))", re.IGNORECASE
    )
    after = re.compile(rf"\b(?:{nouns})\b\s*(?:\([^)]*\)\s*)?[:=]\s*\**\s*({_NUMBER})(?![\w.%/])", re.IGNORECASE)
    found = []
    for line in sentences(text):
        if line.startswith("|"):
            continue
        for match in before.finditer(line):
            adjectives = [word.lower() for word in match[2].split()]
            if all(word in _WHOLE for word in adjectives) and not _partial(line, match.start(), match.end()):
                found.append(_statement(line, match[1]))
        found += [
            _statement(line, match[1])
            for match in after.finditer(line)
            if not _partial(line, match.start(), match.end())
        ]
    return [statement for statement in found if statement.value == int(statement.value)]


def _partial(line: str, start: int, end: int) -> bool:
    """Whether the words around a number say that it counts a part, or something before a selection."""
    before = re.split(r"[;.(]", line[max(0, start - 30) : start])[-1]
    after = re.split(r"[;,.(]", line[end : end + 40])[0]
    return bool(_PART.search(before) or _PART.search(after))


def _statement(line: str, number: str) -> Statement:
    return Statement(_value(number), line[:200], bool(_TOTAL.search(line)))


def coverage_statements(text: str, forms: frozenset[str]) -> list[Statement]:
    """Return statements like ``27/27 images`` or ``96 of 96 wells``; total where both numbers are the same."""
    pattern = re.compile(
        rf"(?<![\w.,/])(\d{{1,6}})\s*(?:/|of|out\s+of)\s*(\d{{1,6}})\s+(?:[\w-]+\s+){{0,2}}?(?:{_alternatives(forms)})\b",
        re.IGNORECASE,
    )
    return [
        Statement(float(match[1]), line[:200], match[1] == match[2])
        for line in sentences(text)
        for match in pattern.finditer(line)
    ]


def per_unit_statements(text: str, forms: frozenset[str]) -> list[Statement]:
    """Return statements like ``a mean of 8.2 puncta per nucleus`` over everything, with their topic."""
    pattern = re.compile(
        rf"(?<![\w.,/±-])({_NUMBER})\s+((?:[\w-]+\s+){{1,3}}?)per\s+(?:{_alternatives(forms)})\b", re.IGNORECASE
    )
    found = []
    for line in sentences(text):
        if re.search(r"(?i)\b(?:mean|average)", line) and not re.search(
            r"(?i)\bper\s+(?:image|field|stack|well)", line
        ):
            found += [
                Statement(_value(match[1]), line[:200], topic=words(match[2])) for match in pattern.finditer(line)
            ]
    return found


def label_pattern(label: str, labels: Sequence[str]) -> re.Pattern[str] | None:
    """Return what finds a condition by its label or by a part that no other label has; ``None`` if nothing can."""
    own = _tokens(label)
    others = {token for other in labels if other != label for token in _tokens(other)}
    telling = [token for token in own if token not in others and len(token) > 1 and re.search("[a-z]", token)]
    names = [r"[^a-z0-9\n]{1,3}".join(map(re.escape, own)), *(re.escape(token) for token in telling)]
    if {"wt", "wildtype"} & set(own):
        names += [r"wild[\s-]?type", "wt"]
    if {"ctrl", "control"} & set(own):
        names += ["controls?", "ctrl"]
    if not telling and len(label) < 2:
        return None
    return re.compile(
        rf"(?<![a-z0-9])(?:{'|'.join(sorted(set(names), key=len, reverse=True))})(?![a-z0-9])", re.IGNORECASE
    )


def _tokens(label: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", label.lower())


def vectors(text: str, patterns: Sequence[re.Pattern[str]]) -> list[Vector]:
    """Return every set of numbers, one per condition, from the tables and the sentences of a text."""
    return [*_from_tables(text, patterns), *_from_sentences(text, patterns)]


def _from_tables(text: str, patterns: Sequence[re.Pattern[str]]) -> list[Vector]:
    found: list[Vector] = []
    block: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.strip().startswith("|"):
            block.append([cell.strip(" *`") for cell in line.strip().strip("|").split("|")])
        elif block:
            found += _from_block(block, patterns)
            block = []
    return found


def _from_block(block: list[list[str]], patterns: Sequence[re.Pattern[str]]) -> list[Vector]:
    header, rows = block[0], [row for row in block[1:] if not all(re.fullmatch(r":?-*:?", cell) for cell in row)]
    places = []
    for pattern in patterns:
        matching = [row for row in rows if row and pattern.search(row[0])]
        if len(matching) != 1:
            return []
        places.append(matching[0])
    if len({id(row) for row in places}) < len(patterns):
        return []
    found = []
    for index in range(1, len(header)):
        cells = [row[index] if index < len(row) else "" for row in places]
        values = [re.match(rf"[<>~≈]?\s*({_NUMBER})\s*%?(?![\w])", cell) for cell in cells]
        if all(values):
            numbers = tuple(_value(match[1]) for match in values if match)
            found.append(
                Vector(
                    numbers,
                    f"column {header[index]}",
                    words(header[index]),
                    is_mean="mean" in header[index].lower(),
                    in_table=True,
                )
            )
    return found


def _from_sentences(text: str, patterns: Sequence[re.Pattern[str]]) -> list[Vector]:
    found = []
    for line in sentences(text):
        if line.startswith("|"):
            continue
        places = [list(pattern.finditer(line)) for pattern in patterns]
        if not all(len(matches) == 1 for matches in places):
            continue
        starts = sorted((matches[0].start(), matches[0].end(), index) for index, matches in enumerate(places))
        values: dict[int, float] = {}
        for place, (_, end, index) in enumerate(starts):
            until = starts[place + 1][0] if place + 1 < len(starts) else len(line)
            numbers = numbers_of(line[end:until])
            if len(numbers) == 1:
                values[index] = numbers[0]
        if len(values) == len(patterns):
            head = line[: starts[0][0]]
            found.append(
                Vector(
                    tuple(values[index] for index in range(len(patterns))),
                    line[:200],
                    words(head),
                    bool(re.search(r"(?i)\b(?:mean|average)", line)),
                )
            )
    return found
