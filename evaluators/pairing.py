"""Match the files of a submission to the images of a task, by name and never by position.

The rule
--------
1. *Exact*: the file's stem is the image's stem, letter by letter.
2. *Normalised*: stems are cut into runs of letters and runs of digits; case, punctuation and leading zeros do not
   count, and words of a fixed list (``mask``, ``labels``, ``pred``, …, and the words of the deliverable's id) are
   dropped from both ends. ``2408_nuclei``, ``nuclei-2408`` and ``mask_02408`` are image ``2408``;
   ``human_kidney_1_instances`` is ``human_kidney_01``; ``kidney_01`` is nothing.
3. *Index*: only where the images differ in nothing but one number. A file whose name holds exactly one of those
   numbers as a whole run of digits is that image: ``run_20260827_2408`` is ``2408``. Likewise where they differ in one
   field between underscores, hyphens, dots or blanks: of ``056F63395C_8bit`` and ``A1B2_8bit`` it is the sample's id.

Several files for one image: the better kind of name wins, then a file in a folder named after the deliverable, then the
shallowest. Files that cannot be what is asked for (wrong shape, colour, broken header) do not take part, so that strays
steal nothing. If more than one is left at the same rank and they are not byte by byte the same, the image is ambiguous:
it has no file, and scores 0. All of this is named in the problems.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from evaluators.model import Deliverable
from evaluators.problems import Refusal
from evaluators.submission import Submission, SubmittedFile

# Words that may stand before or after an image's name, in any order and number.
ALIASES = frozenset(
    """
    mask masks seg segs segmentation segmentations segmented label labels labeled labelled labelmap labelmaps
    instance instances object objects pred preds prediction predictions predicted output outputs out
    result results res final image images img centroid centroids center centers centre centres point points
    coord coords coordinate coordinates detection detections detected spot spots cell cells
    """.split()  # noqa: SIM905
)
_MAX_CHECKED = 64  # files per image whose content is looked at

Tokens = tuple[str, ...]


def tokens(stem: str) -> Tokens:
    """Cut a stem into lower-case words and numbers without leading zeros.

    Examples
    --------
    >>> tokens("Human-kidney_01")
    ('human', 'kidney', '1')
    """
    found = re.findall(r"[0-9]+|[^\W\d_]+", stem.lower())
    return tuple(token.lstrip("0") or "0" if token.isdecimal() else token for token in found)


class NameMatcher:
    """Tells which image a file name means.

    Parameters
    ----------
    items
        Stems of the images, each once.
    words
        Further words that may surround an image's name.
    """

    def __init__(self, items: Sequence[str], words: Sequence[str] = ()) -> None:
        self._aliases = ALIASES | {word for text in words for word in tokens(text)}
        self._exact = set(items)
        by_tokens: dict[Tokens, list[str]] = defaultdict(list)
        for item in items:
            by_tokens[self._trimmed(item)].append(item)
        self._normalised = {key: names[0] for key, names in by_tokens.items() if key and len(names) == 1}
        self._by_number = self._numbers(items)
        self._by_field = self._distinct_fields(items)

    def match(self, stem: str) -> tuple[str, int] | None:
        """Return the image and the kind of match (0 exact, 1 normalised, 2 index), or ``None``."""
        if stem in self._exact:
            return stem, 0
        trimmed = self._trimmed(stem)
        if (item := self._normalised.get(trimmed)) is not None:
            return item, 1
        numbers = {token for token in tokens(stem) if token in self._by_number}
        if len(numbers) == 1:
            return self._by_number[numbers.pop()], 2
        named = {field for field in _fields(stem) if field in self._by_field}
        if len(named) == 1 and not numbers:
            return self._by_field[named.pop()], 2
        return None

    def _trimmed(self, stem: str) -> Tokens:
        found = list(tokens(stem))
        while found and found[0] in self._aliases:
            del found[0]
        while found and found[-1] in self._aliases:
            del found[-1]
        return tuple(found)

    def _numbers(self, items: Sequence[str]) -> dict[str, str]:
        """Map the one number in which the images differ to each of them; empty where they differ otherwise."""
        split = {item: tokens(item) for item in items}
        if len({tuple("#" if token.isdecimal() else token for token in found) for found in split.values()}) != 1:
            return {}
        places = [
            place
            for place, column in enumerate(zip(*split.values(), strict=True))
            if all(token.isdecimal() for token in column) and (len(set(column)) > 1 or len(items) == 1)
        ]
        if len(places) != 1:
            return {}
        numbers = Counter(found[places[0]] for found in split.values())
        return {found[places[0]]: item for item, found in split.items() if numbers[found[places[0]]] == 1}

    def _distinct_fields(self, items: Sequence[str]) -> dict[str, str]:
        """Map the one field in which the images differ to each of them; empty where they differ otherwise."""
        split = {item: _fields(item) for item in items}
        if len(items) < 2 or len({len(found) for found in split.values()}) != 1:
            return {}
        places = [place for place, column in enumerate(zip(*split.values(), strict=True)) if len(set(column)) > 1]
        if len(places) != 1:
            return {}
        fields = Counter(found[places[0]] for found in split.values())
        return {found[places[0]]: item for item, found in split.items() if fields[found[places[0]]] == 1}


def _fields(stem: str) -> list[str]:
    return [field for field in re.split(r"[_\-. ]+", stem.lower()) if field]


@dataclass(frozen=True)
class Pairing:
    """Which file stands for which image.

    Attributes
    ----------
    files
        By image; images without an entry have none.
    reasons
        Code of the problem of each image without a file.
    unpaired
        Number of files of the deliverable that mean no image.
    """

    files: Mapping[str, SubmittedFile]
    reasons: Mapping[str, str]
    unpaired: int


def pair_files(
    submission: Submission,
    deliverable: Deliverable,
    items: Sequence[str],
    check: Callable[[SubmittedFile, str], None],
    match: Callable[[SubmittedFile], tuple[str, int] | None] | None = None,
) -> Pairing:
    """Pair the files of a deliverable with images; name every image without a file and every choice between files.

    Parameters
    ----------
    submission
        Its problems grow.
    deliverable
        A deliverable with one file per image.
    items
        Stems of all images that exist.
    check
        Called with a file and its image; raises :class:`Refusal` where the file cannot be what is asked for.
    match
        Tells which image a file means, and how plainly (0 is best), where its stem alone does not.
    """
    if not submission.candidates(deliverable.id):
        submission.missing(deliverable.id)
        return Pairing({}, dict.fromkeys(items, "missing_deliverable"), 0)
    matcher = NameMatcher(items, [deliverable.id])
    by_item: dict[str, list[tuple[tuple[int, int, int], SubmittedFile]]] = defaultdict(list)
    unpaired: list[str] = []
    for file in submission.candidates(deliverable.id):
        meant = matcher.match(file.stem) if match is None else match(file)
        if meant is None:
            unpaired.append(file.path)
        else:
            declared = file.folder.lower() == deliverable.id
            by_item[meant[0]].append(((meant[1], 0 if declared else 1, file.depth), file))
    files: dict[str, SubmittedFile] = {}
    reasons: dict[str, str] = {}
    for item in items:
        where = f"{deliverable.id}: {item}"
        try:
            if not by_item[item]:
                hint = f"; files without image: {', '.join(unpaired[:3])}" if unpaired else ""
                raise Refusal("missing_file", f"no file for this image{hint}")
            files[item] = _choose(submission, where, item, by_item[item], check)
        except Refusal as refusal:
            submission.problems.refused(where, refusal)
            reasons[item] = refusal.code
    return Pairing(files, reasons, len(unpaired))


def _choose(
    submission: Submission,
    where: str,
    item: str,
    ranked: list[tuple[tuple[int, int, int], SubmittedFile]],
    check: Callable[[SubmittedFile, str], None],
) -> SubmittedFile:
    """Return the best file of an image; refuse where there is none or no single one."""
    ranked.sort(key=lambda entry: (entry[0], entry[1].depth))
    fitting: list[tuple[tuple[int, int, int], SubmittedFile]] = []
    first_refusal: Refusal | None = None
    refused: list[str] = []
    for rank, file in ranked[:_MAX_CHECKED]:
        if fitting and fitting[0][0] != rank:
            break
        try:
            check(file, item)
            fitting.append((rank, file))
        except Refusal as refusal:
            first_refusal = first_refusal or Refusal(refusal.code, f"{file.path} {refusal.message}")
            refused.append(file.path)
    if not fitting:
        raise first_refusal or Refusal("missing_file", "no file for this image")
    chosen = fitting[0][1]
    paths = [file.path for _, file in fitting]
    if len(fitting) > 1 and len({_digest(file) for _, file in fitting}) > 1:
        raise Refusal("ambiguous_files", f"{' and '.join(paths[:4])} differ and stand for the same image")
    if len(ranked) > 1:
        others = [file.path for _, file in ranked if file is not chosen]
        unfit = f" ({', '.join(refused[:3])} cannot be meant: {first_refusal.message})" if first_refusal else ""
        message = (
            f"{len(ranked)} files stand for this image; {chosen.path} is scored, not {', '.join(others[:3])}{unfit}"
        )
        submission.problems.add("duplicate_file", where, message)
    return chosen


def _digest(file: SubmittedFile) -> str:
    with file.open() as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
