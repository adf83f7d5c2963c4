"""Items that files themselves decide, without a model.

A rule looks at facts (types, resolutions, columns, labels, text in vector graphics) and answers only where those leave
no choice; everything else stays open. What a rule cites was read from the file, so it is verified by construction.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath

from evaluators.model import Content, Deliverable
from evaluators.process.evidence import Evidence
from evaluators.process.inspect import PICTURES, Column, FileFact, Table
from evaluators.process.model import Citation, Decision, Verdict

NO_RULE = "no_rule"  # the reason of what rules leave open
NO_ANALYSIS = "no_relevant_evidence"

_UNIT = re.compile(r"(?i)[_ (\[](nm|um|µm|μm|mm)([23²³]|\^[23])?([)\]]|$|[_ /]\w)")
_PLACE = re.compile(r"(?i)^(x|y|z|row|col(umn)?|centroid\w*|time|frame)\b|^[xyz]_")
_GROUPING = re.compile(
    r"(?i)^(image|file|filename|file_?name|image[_ ]?name|condition|group|well|plate|frame|embryo|"
    r"series|sample|experiment|dose|treatment|cell[_ ]?line|movie)\b"
)
_P_VALUE = re.compile(r"(?i)^(p|p[_ -]?val(ue)?s?|p[_ -]?adj\w*|padj|q[_ -]?val(ue)?|p[_ -]?value[_ -]\w+)$")
_P_TEXT = re.compile(r"(?i)\bp\s?(?:-?value)?\s?[=<≤]\s?\d")
_TEST = re.compile(
    r"(?i)mann.?whitney|wilcoxon|welch|student|t-test|anova|kruskal|kolmogorov|fisher'?s? exact|chi.?squared?|"
    r"permutation test|dunn'?s|tukey"
)
_EFFECT = re.compile(r"(?i)cohen'?s? ?d|hedges|cliff'?s|effect[_ ]size|rank.biserial|odds ratio|eta.?squared|95 ?% CI")
_N_TEXT = re.compile(r"\b[Nn]\s?=\s?\d+")
_METHODS = re.compile(r"(?im)^#{1,6}\s*.*\bmethods?\b.*$")
_SPEED = re.compile(r"(?i)speed|velocity|displacement|step[_ ]length|path[_ ]length")
_MIN_METHODS_WORDS = 40
_MIN_CAPTION = 20
_DPI = 299.0  # 300, as PNG stores it in whole dots per metre

Found = tuple[Verdict, str, list[Citation]] | None


class Case:
    """Facts on one run, in the forms that rules ask for."""

    def __init__(self, evidence: Evidence, deliverables: Iterable[Deliverable]) -> None:
        self.evidence = evidence
        self.facts = evidence.facts
        self.content = {deliverable.id: deliverable for deliverable in deliverables}

    def of(self, *contents: Content) -> list[FileFact]:
        """Files that were taken for deliverables of these kinds."""
        return [fact for fact in self.facts if fact.deliverable and self.content[fact.deliverable].content in contents]

    def asked(self, *contents: Content) -> bool:
        return any(deliverable.content in contents for deliverable in self.content.values())

    def tables(self) -> Iterator[tuple[FileFact, Table]]:
        for fact in self.facts:
            for table in fact.tables:
                if table.rows:
                    yield fact, table

    def columns(self) -> Iterator[tuple[FileFact, Column]]:
        for fact, table in self.tables():
            for column in table.columns:
                yield fact, column

    def figures(self) -> list[FileFact]:
        """Pictures and vector graphics that are no deliverables."""
        return [
            fact
            for fact in self.facts
            if fact.deliverable is None
            and (fact.kind == "vector" or (fact.suffix in PICTURES and fact.picture is not None))
        ]

    def quote(self, pattern: re.Pattern[str]) -> Citation | None:
        """First place in a report where a pattern is found."""
        for name, text in self.evidence.reports.items():
            if found := pattern.search(text):
                start = text.rfind("\n", 0, found.start()) + 1
                end = text.find("\n", found.end())
                line = text[start : end if end >= 0 else len(text)].strip()
                return Citation(file=name, quote=line[:160], verified=True)
        return None


def _cite(fact: FileFact, quote: str | None = None) -> Citation:
    return Citation(file=fact.path, quote=quote, verified=True)


def _raw_data_unchanged(case: Case) -> Found:
    if case.evidence.input_unchanged is None:
        return None
    if case.evidence.input_unchanged:
        return "pass", "The input has the same digest after the run.", [Citation(file="record", verified=True)]
    return "fail", "The input was changed during the run.", [Citation(file="record", verified=True)]


def _units(case: Case) -> Found:
    for fact, column in case.columns():
        if column.low is not None and _UNIT.search(column.name) and not _PLACE.search(column.name):
            return "pass", "A measured column names its physical unit.", [_cite(fact, column.name)]
    return None


def _table(case: Case) -> Found:
    for fact, table in case.tables():
        return "pass", f"A table with {len(table.columns)} columns and rows of values.", [_cite(fact)]
    if case.asked(Content.TABLE, Content.WORKBOOK):
        return "fail", "No readable table with rows among the files.", []
    return None


def _grouping(case: Case) -> Found:
    for fact, column in case.columns():
        if _GROUPING.match(column.name):
            return "pass", "A column tells the image or condition of each row.", [_cite(fact, column.name)]
    return None


def _captions(case: Case) -> Found:
    figures = case.figures()
    if not figures:
        return "fail", "There is no figure, and so no legend of one.", []
    texts = "\n".join(case.evidence.reports.values())
    captions = {
        PurePosixPath(match[2]).stem: match[1] for match in re.finditer(r"!\[([^\]]*)\]\(([^)\s]+)[^)]*\)", texts)
    }
    stems = {PurePosixPath(fact.path).stem for fact in figures}
    if all(len(captions.get(stem, "")) >= _MIN_CAPTION for stem in stems):
        return "pass", "The report gives a caption for every figure.", [_cite(fact) for fact in figures[:3]]
    words = "\n".join([texts, *(part.text for part in case.evidence.parts if part.kind in ("text", "transcript"))])
    if not re.search(r"(?i)\bfig|legend|caption", words) and not any(stem in words for stem in stems):
        return "fail", "No text speaks of any figure.", [_cite(figures[0])]
    return None


def _names(case: Case) -> Found:
    inputs = {PurePosixPath(name).stem.lower() for name in case.evidence.input_names}
    made = [fact for fact in case.facts if fact.deliverable and case.content[fact.deliverable].multiple]
    if not inputs or len(made) < 2:
        return None
    long = [stem for stem in inputs if len(stem) >= 2]  # "a" is in every word
    related = [
        fact
        for fact in made
        if PurePosixPath(fact.path).stem.lower() in inputs or any(stem in fact.path.lower() for stem in long)
    ]
    if len(related) == len(made):
        return "pass", "Every deliverable bears the name of an input.", [_cite(fact) for fact in related[:2]]
    return None


def _lossless(case: Case) -> Found:
    pictures = [fact for fact in case.facts if fact.picture is not None]
    if not pictures:
        return None
    lossy = [fact for fact in pictures if fact.suffix in (".jpg", ".jpeg") or _is_jpeg(fact)]
    if not lossy:
        return "pass", "All images are in lossless formats.", [_cite(fact) for fact in pictures[:2]]
    if len(lossy) == len(pictures):
        return "fail", "All images are JPEG.", [_cite(lossy[0])]
    return None


def _is_jpeg(fact: FileFact) -> bool:
    return fact.picture is not None and "JPEG" in (fact.picture.compression or "").upper()


def _methods(case: Case) -> Found:
    for name, text in case.evidence.reports.items():
        for match in _METHODS.finditer(text):
            rest = re.split(r"(?m)^#{1,6} ", text[match.end() :])[0]
            if len(rest.split()) >= _MIN_METHODS_WORDS:
                citation = Citation(file=name, quote=match[0].strip()[:160], verified=True)
                return "pass", f"A methods part of {len(rest.split())} words.", [citation]
    return None


def _resolution(case: Case) -> Found:
    figures = case.figures()
    if not figures:
        return "fail", "There is no figure.", []
    vector = {str(PurePosixPath(fact.path).with_suffix("")) for fact in figures if fact.kind == "vector"}
    poor = [
        fact
        for fact in figures
        if fact.picture is not None
        and (fact.picture.dots_per_inch or 0.0) < _DPI
        and str(PurePosixPath(fact.path).with_suffix("")) not in vector
    ]
    if not poor:
        return (
            "pass",
            "Every figure is a vector graphic or has 300 dots per inch.",
            [_cite(fact) for fact in figures[:2]],
        )
    if len(poor) == len(figures):
        return "fail", "No figure is a vector graphic or has 300 dots per inch.", [_cite(poor[0])]
    return None


def _counts(case: Case) -> Found:
    if citation := case.quote(_N_TEXT):
        return "pass", "The report states N.", [citation]
    for fact, column in case.columns():
        if re.fullmatch(r"(?i)n|n[_ ](cells|images|objects|nuclei)|count", column.name) and column.low is not None:
            return "pass", "A column states N.", [_cite(fact, column.name)]
    return None


def _axes(case: Case) -> Found:
    plots = [fact for fact in case.facts if fact.vector is not None and fact.vector.axes]
    if plots and all(fact.vector is not None and fact.vector.named == fact.vector.axes for fact in plots):
        return (
            "pass",
            "Both axes of every plot in the vector graphics bear a name.",
            [_cite(fact) for fact in plots[:3]],
        )
    return None


def _legend(case: Case) -> Found:
    plots = [fact for fact in case.facts if fact.vector is not None and fact.vector.legends]
    if plots:
        return "pass", "A vector graphic holds a legend.", [_cite(plots[0])]
    return None


def _mosaic_lossless(case: Case) -> Found:
    mosaics = [fact for fact in case.of(Content.CHANNEL_STACK) if fact.picture is not None]
    if not mosaics:
        return None
    if any(_is_jpeg(fact) for fact in mosaics):
        return "fail", "The mosaic is compressed with loss.", [_cite(mosaics[0])]
    return "pass", "The mosaic is a TIFF without lossy compression.", [_cite(mosaics[0])]


def _labels(case: Case) -> Found:
    counted = [fact for fact in case.of(Content.LABEL_IMAGE, Content.LABEL_STACK) if fact.picture is not None]
    numbers = [fact.picture.labels for fact in counted if fact.picture and fact.picture.labels is not None]
    if not numbers:
        return None
    if max(numbers) > 1:
        best = max(counted, key=lambda fact: (fact.picture.labels or 0) if fact.picture else 0)
        return "pass", f"Label images hold up to {max(numbers)} labels.", [_cite(best)]
    return "fail", "No label image holds more than one label.", [_cite(counted[0])]


def _p_columns(case: Case) -> Iterator[Citation]:
    for fact, column in case.columns():
        if _P_VALUE.match(column.name) and column.low is not None and column.low >= 0 and (column.high or 0) <= 1:
            yield _cite(fact, column.name)


def _p_value(case: Case) -> Found:
    for citation in _p_columns(case):
        return "pass", "A table holds p-values.", [citation]
    if stated := case.quote(_P_TEXT):
        return "pass", "The report gives a p-value.", [stated]
    return None


def _test(case: Case) -> Found:
    named = case.quote(_TEST)
    value: Citation | None = next(_p_columns(case), None) or case.quote(_P_TEXT)
    if named and value:
        return "pass", "A named test with its p-values.", [named, value]
    return None


def _effect(case: Case) -> Found:
    if citation := case.quote(_EFFECT):
        return "pass", "The report gives an effect with its size.", [citation]
    for fact, column in case.columns():
        if _EFFECT.search(column.name) and column.low is not None:
            return "pass", "A column holds effect sizes.", [_cite(fact, column.name)]
    return None


def _coordinates(case: Case) -> Found:
    for fact, table in case.tables():
        names = {
            re.sub(r"(?i)[_ (\[]*(px|pixels?|nm|um|µm)[)\]]*$", "", column.name).lower() for column in table.columns
        }
        if {"x", "y"} <= names or {"centroid_x", "centroid_y"} <= names or {"centroid-0", "centroid-1"} <= names:
            return "pass", f"A table gives coordinates of {table.rows} rows.", [_cite(fact)]
    return None


def _track_identity(case: Case) -> Found:
    for fact in case.facts:
        shares = [table.recurring for table in fact.tables if table.recurring is not None]
        if fact.picture is not None and fact.picture.recurring is not None:
            shares.append(fact.picture.recurring)
        if any(share > 0 for share in shares):
            return "pass", f"{max(shares):.0%} of identifiers occur in two frames or more.", [_cite(fact)]
        if shares:
            return "fail", "No identifier occurs in two frames.", [_cite(fact)]
    return None


def _motion(case: Case) -> Found:
    for fact, column in case.columns():
        if _SPEED.search(column.name) and column.low is not None:
            return "pass", "A column holds speeds or displacements.", [_cite(fact, column.name)]
    return None


RULES: dict[int, Callable[[Case], Found]] = {
    8: _raw_data_unchanged,
    25: _units,
    26: _table,
    29: _grouping,
    34: _captions,
    35: _names,
    36: _lossless,
    37: _methods,
    41: _resolution,
    46: _counts,
    48: _axes,
    49: _legend,
    53: _mosaic_lossless,
    65: _labels,
    73: _test,
    79: _p_value,
    81: _effect,
    93: _coordinates,
    97: _track_identity,
    101: _motion,
}


def digest() -> str:
    """Digest of the rules: another version of them makes another judgement."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def decide(number: int, case: Case) -> Decision | None:
    """Return the decision of a rule on an item, ``None`` where there is no rule or it leaves the item open."""
    rule = RULES.get(number)
    found = None if rule is None or case.evidence.analysis is None else rule(case)
    if found is None:
        return None
    verdict, rationale, citations = found
    return Decision(item=number, verdict=verdict, rationale=rationale, citations=citations, confidence=1.0, by="rule")
