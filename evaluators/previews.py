"""Small pictures and heads of tables of a submission, beside the same from truth; for people, no score uses them.

The reference is a folder in the form of a submission, as :func:`evaluators.replay` writes it, so that both sides are
drawn by the same code. Files are hostile: call :func:`evaluators.bounded.inspect_bounded`.
"""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from pydantic import BaseModel, ConfigDict, Field

from evaluators.model import Content, Deliverable
from evaluators.pairing import NameMatcher
from evaluators.problems import Refusal, shown
from evaluators.process.tables import GroupTable, read_group_table
from evaluators.readers.text import read_text
from evaluators.readers.tiff import TiffImage
from evaluators.readers.workbooks import read_workbook
from evaluators.submission import Submission, SubmittedFile, stem_of

SIDE = 300  # pixels of a picture's longer side
_FIGURE_SIDE = 560
_PER_DELIVERABLE = 3  # files of one deliverable: first, middle and last
_ROWS = 8
_COLUMNS = 12
_FIGURES = 8
_FIGURE_PIXELS = 60_000_000
_FIGURE_BYTES = 20 << 20
_TRAIL_FRAMES = 60
_TEXTS = 2
_TEXT_BYTES = 200_000
_FILES = 300

Pixels = NDArray[np.uint8]  # (y, x, 3)
FOUND, TRUE, BOTH = (214, 94, 0), (0, 114, 178), (225, 225, 225)  # orange, blue, grey: told apart by everybody


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Picture(_Model):
    """A WebP picture as base64, with words for people who cannot see it."""

    webp: str
    alt: str


class Head(_Model):
    """The first rows of a table."""

    columns: list[str]
    rows: list[list[str]]
    total: int


class Item(_Model):
    """One file of a deliverable on both sides. A side without a picture or head has a note, or no such file."""

    name: str
    found: Picture | None = None
    truth: Picture | None = None
    both: Picture | None = None
    found_head: Head | None = None
    truth_head: Head | None = None
    note: str = ""


class Panel(_Model):
    """A deliverable: how many files there are on both sides, and some of them."""

    deliverable: str
    files: int
    expected: int | None
    items: list[Item] = Field(default_factory=list)


class Preview(_Model):
    """Everything that a page shows of a submission."""

    panels: list[Panel] = Field(default_factory=list)
    figures: list[tuple[str, Picture]] = Field(default_factory=list)
    texts: list[tuple[str, str]] = Field(default_factory=list)
    files: list[tuple[str, int]] = Field(default_factory=list)
    more_files: int = 0


def look(
    submission: Path, deliverables: Sequence[Deliverable], reference: Path | None, input_dir: Path | None
) -> Preview:
    """Draw a submission.

    Parameters
    ----------
    submission
        The output folder.
    deliverables
        What the task asks for.
    reference
        The perfect submission, where at hand.
    input_dir
        The task's images; labels are laid over an image of the same name and size.
    """
    found = Submission(submission, deliverables)
    truth = None if reference is None else Submission(reference, deliverables)
    inputs = {} if input_dir is None else _inputs(input_dir)
    taken = {file.path for name in found.deliverables for file in found.candidates(name)}
    return Preview(
        panels=[_panel(name, found, truth, inputs) for name in found.deliverables],
        figures=_figures(found, taken),
        texts=_texts(found, taken),
        files=[(shown(file.path), file.size) for file in found.files[:_FILES]],
        more_files=max(0, len(found.files) - _FILES),
    )


def _panel(name: str, found: Submission, truth: Submission | None, inputs: dict[str, Path]) -> Panel:
    deliverable = found.deliverables[name]
    ours = found.candidates(name)
    theirs = truth.candidates(name) if truth is not None else ()
    draw = _drawer(deliverable)
    items = [draw(one, other, inputs) for one, other in _chosen(_paired(deliverable, ours, theirs), _PER_DELIVERABLE)]
    return Panel(deliverable=name, files=len(ours), expected=None if truth is None else len(theirs), items=items)


Pair = tuple[SubmittedFile | None, SubmittedFile | None]


def _paired(deliverable: Deliverable, ours: Sequence[SubmittedFile], theirs: Sequence[SubmittedFile]) -> list[Pair]:
    """Pair files by name; the truth's files decide which ones are shown."""
    if not theirs:
        return [(file, None) for file in ours]
    if not deliverable.multiple:
        return [(ours[0] if ours else None, theirs[0])]
    stems = {file.stem: file for file in theirs}
    matcher = NameMatcher(list(stems), (deliverable.id,))
    by_stem: dict[str, SubmittedFile] = {}
    for file in ours:
        if (match := matcher.match(file.stem)) is not None:
            by_stem.setdefault(match[0], file)
    return [(by_stem.get(stem), file) for stem, file in stems.items()]


def _chosen(pairs: list[Pair], number: int) -> list[Pair]:
    """Take the first, the last and what lies between at equal distances."""
    if len(pairs) <= number:
        return pairs
    return [pairs[round(index * (len(pairs) - 1) / (number - 1))] for index in range(number)]


Drawer = Callable[[SubmittedFile | None, SubmittedFile | None, dict[str, Path]], Item]


def _drawer(deliverable: Deliverable) -> Drawer:
    content = deliverable.content
    if content in (Content.LABEL_IMAGE, Content.BINARY_IMAGE):
        return _draw_labels
    if content is Content.LABEL_STACK:
        return _draw_tracks
    if content in (Content.IMAGE, Content.CHANNEL_STACK):
        return _draw_intensities
    if content is Content.WORKBOOK:
        return _draw_workbook
    if content is Content.LINEAGE:
        return _draw_lineage
    return lambda found, truth, inputs: _draw_table(found, truth, deliverable.columns)


def _name(found: SubmittedFile | None, truth: SubmittedFile | None) -> str:
    file = found or truth
    return "" if file is None else shown(file.path)


def _sides(
    found: SubmittedFile | None, truth: SubmittedFile | None, read: Callable[[SubmittedFile], Any]
) -> tuple[Any, Any, str]:
    """Read both sides; what cannot be read is named."""
    values: list[Any] = []
    notes = []
    for side, file in (("submission", found), ("truth", truth)):
        value = None
        if file is not None:
            try:
                value = read(file)
            except Refusal as refusal:
                notes.append(f"{side}: {refusal.message}")
        elif side == "submission":
            notes.append("no such file in the submission")
        values.append(value)
    return values[0], values[1], "; ".join(notes)


# --- images -----------------------------------------------------------------------------------------------------------


def _plane(file: SubmittedFile) -> tuple[NDArray[Any], int, int]:
    """Decode the middle plane; return it with its number and how many there are."""
    with TiffImage(file.open()) as image:
        planes = image.header.planes
        plane = image.plane(planes // 2)
    plane = plane.reshape([length for length in plane.shape if length != 1] or [1])
    if plane.ndim == 3:
        return plane[len(plane) // 2], len(plane) // 2, len(plane)
    if plane.ndim != 2:
        raise Refusal("wrong_shape", f"has shape {plane.shape}; a plane has rows and columns")
    return plane, planes // 2, planes


def _small(plane: NDArray[Any]) -> NDArray[Any]:
    step = max(1, -(-max(plane.shape[:2]) // SIDE))
    return plane[::step, ::step]


def _draw_labels(found: SubmittedFile | None, truth: SubmittedFile | None, inputs: dict[str, Path]) -> Item:
    one, other, note = _sides(found, truth, _plane)
    item = Item(name=_name(found, truth), note=note)
    image = _input_plane(found or truth, inputs, one or other)
    for side, value in (("found", one), ("truth", other)):
        if value is not None:
            plane, index, planes = value
            number = len(np.unique(plane)) - int((plane == 0).any())
            words = f"plane {index + 1} of {planes}, " if planes > 1 else ""
            setattr(item, side, _picture(_coloured(_small(plane), image), f"{words}{number} labels in view"))
    if one is not None and other is not None and one[0].shape == other[0].shape:
        item.both = _agreement(_small(one[0]) != 0, _small(other[0]) != 0)
    return item


def _coloured(labels: NDArray[Any], image: Pixels | None) -> Pixels:
    """Give every label a colour of its own, over the image where there is one, with a dark rim between neighbours."""
    codes = np.unique(labels, return_inverse=True)[1].reshape(labels.shape)
    generator = np.random.default_rng(5)
    palette = generator.integers(70, 256, (int(codes.max(initial=0)) + 1, 3)).astype(np.uint8)
    if (labels == 0).any():
        palette[0] = 0
    colours = palette[codes]
    rim = np.zeros(labels.shape, bool)
    rim[1:] |= (labels[1:] != labels[:-1]) & (labels[1:] != 0) & (labels[:-1] != 0)
    rim[:, 1:] |= (labels[:, 1:] != labels[:, :-1]) & (labels[:, 1:] != 0) & (labels[:, :-1] != 0)
    colours[rim] = 0
    if image is not None and image.shape == colours.shape:
        mixed = np.where((labels == 0)[..., None], image, (colours.astype(np.uint16) + image) // 2)
        return mixed.astype(np.uint8)
    return colours


def _agreement(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> Picture:
    pixels = np.zeros((*one.shape, 3), np.uint8)
    pixels[one & other], pixels[one & ~other], pixels[~one & other] = BOTH, FOUND, TRUE
    either = int((one | other).sum())
    share = int((one & other).sum()) / either if either else 1.0
    return _picture(
        pixels, f"foreground in both grey, only in the submission orange, only in truth blue; overlap {share:.2f}"
    )


def _inputs(folder: Path) -> dict[str, Path]:
    """Images of the task by stem, where stems are unique."""
    found: dict[str, list[Path]] = {}
    for root, _, names in os.walk(folder, followlinks=True):
        for name in sorted(names)[:5_000]:
            if name.lower().endswith((".tif", ".tiff", ".png", ".bmp")):
                found.setdefault(stem_of(name), []).append(Path(root, name))
    return {stem: paths[0] for stem, paths in found.items() if len(paths) == 1}


def _input_plane(
    file: SubmittedFile | None, inputs: dict[str, Path], value: tuple[NDArray[Any], int, int] | None
) -> Pixels | None:
    """Return the image under a label image, grey and stretched; ``None`` where none of its name and size is there."""
    if file is None or value is None or not inputs:
        return None
    match = NameMatcher(list(inputs)).match(file.stem)
    if match is None:
        return None
    path = inputs[match[0]]
    plane, index, planes = value
    try:
        if path.suffix.lower() in (".tif", ".tiff"):
            with TiffImage(path.open("rb"), samples=True) as image:
                header = image.header
                here = image.plane(index if header.planes == planes else header.planes // 2)
                if here.ndim == 3:
                    here = here.mean(axis=int(np.argmin(here.shape)))
        else:
            here = np.asarray(Image.open(path).convert("L"))
    except (Refusal, OSError, ValueError, Image.DecompressionBombError):
        return None
    return _grey(_small(here)) if here.shape == plane.shape else None


def _grey(plane: NDArray[Any]) -> Pixels:
    """Stretch between the 1st and the 99.8th percentile; what is not finite is red."""
    values = plane.astype(np.float64)
    finite = np.isfinite(values)
    low, high = np.percentile(values[finite], [1, 99.8]) if finite.any() else (0.0, 1.0)
    scaled = np.clip((np.where(finite, values, low) - low) / (high - low if high > low else 1.0), 0, 1) * 255
    pixels = np.repeat(scaled.astype(np.uint8)[..., None], 3, axis=2)
    pixels[~finite] = (255, 0, 0)
    return pixels


def _draw_intensities(found: SubmittedFile | None, truth: SubmittedFile | None, _: dict[str, Path]) -> Item:
    def read(file: SubmittedFile) -> tuple[Pixels, str]:
        with TiffImage(file.open(), samples=True) as image:
            header = image.header
            plane = image.plane(header.planes // 2)
        while plane.ndim > 2:
            plane = plane.take(plane.shape[int(np.argmin(plane.shape))] // 2, axis=int(np.argmin(plane.shape)))
        where = f"plane {header.planes // 2 + 1} of {header.planes}, " if header.planes > 1 else ""
        finite = plane[np.isfinite(plane)] if plane.dtype.kind == "f" else plane
        limits = f"values {float(finite.min()):.4g} to {float(finite.max()):.4g}" if finite.size else "no finite value"
        return _grey(_small(plane)), f"{where}{limits}"

    one, other, note = _sides(found, truth, read)
    return Item(
        name=_name(found, truth),
        found=None if one is None else _picture(*one),
        truth=None if other is None else _picture(*other),
        note=note,
    )


def _draw_tracks(found: SubmittedFile | None, truth: SubmittedFile | None, inputs: dict[str, Path]) -> Item:
    """Labels of the last frame with the path that each centre took until then."""
    one, other, note = _sides(found, truth, _track_picture)
    return Item(name=_name(found, truth), found=one, truth=other, note=note)


def _track_picture(file: SubmittedFile) -> Picture:
    with TiffImage(file.open()) as image:
        planes = image.header.planes
        frames = sorted({round(index) for index in np.linspace(0, planes - 1, min(planes, _TRAIL_FRAMES))})
        centres: dict[int, list[tuple[float, float]]] = {}
        labels = np.zeros((1, 1), np.int64)
        for frame in frames:
            plane = image.plane(frame)
            plane = _small(plane.reshape([length for length in plane.shape if length != 1] or [1, 1]))
            if plane.ndim != 2 or plane.dtype.kind not in "iub":
                raise Refusal("wrong_shape", f"frame {frame} is {plane.dtype} {plane.shape}; expected labels")
            labels = plane
            codes, inverse = np.unique(plane, return_inverse=True)
            y, x = np.indices(plane.shape)
            size = np.bincount(inverse.ravel())
            middle_y = np.bincount(inverse.ravel(), weights=y.ravel()) / size
            middle_x = np.bincount(inverse.ravel(), weights=x.ravel()) / size
            for code, row, column in zip(codes, middle_y, middle_x, strict=True):
                if code:
                    centres.setdefault(int(code), []).append((float(column), float(row)))
    picture = Image.fromarray(_coloured(labels, None))
    draw = ImageDraw.Draw(picture)
    for path in centres.values():
        if len(path) > 1:
            draw.line(path, fill=(255, 255, 255), width=1)
    return _picture(np.asarray(picture), f"frame {planes} of {planes} with the paths of {len(centres)} tracks")


# --- tables -----------------------------------------------------------------------------------------------------------


def _read_table(file: SubmittedFile) -> GroupTable:
    with file.open() as handle:
        return read_group_table(file.name, handle)


def _draw_table(found: SubmittedFile | None, truth: SubmittedFile | None, wanted: Sequence[str]) -> Item:
    one, other, note = _sides(found, truth, _read_table)
    item = Item(
        name=_name(found, truth),
        note=note,
        found_head=None if one is None else _head(one),
        truth_head=None if other is None else _head(other),
    )
    tables = [table for table in (one, other) if table is not None]
    if tables:
        colours = ([FOUND] if one is not None else []) + ([TRUE] if other is not None else [])
        item.both = _scatter(tables, colours) or _strips(tables, colours, wanted)
    return item


def _head(table: GroupTable) -> Head:
    names = list(table.columns)[:_COLUMNS]
    return Head(
        columns=[shown(name, 40) for name in names],
        rows=[[shown(table.columns[name][row], 40) for name in names] for row in range(min(_ROWS, table.rows))],
        total=table.rows,
    )


def _column(table: GroupTable, *names: str) -> NDArray[np.float64] | None:
    for name, values in table.numeric.items():
        if name.strip().lower() in names:
            return values
    return None


def _scatter(tables: Sequence[GroupTable], colours: Sequence[tuple[int, int, int]]) -> Picture | None:
    """Draw places, x to the right and y down, where the tables have them."""
    points = []
    for table in tables:
        x, y = _column(table, "x", "centroid_x", "x_px"), _column(table, "y", "centroid_y", "y_px")
        if x is None or y is None:
            return None
        usable = np.isfinite(x) & np.isfinite(y)
        points.append(np.column_stack([x[usable], y[usable]])[:20_000])
    every = np.concatenate(points)
    if not len(every):
        return None
    span = float(max(np.ptp(every[:, 0]), np.ptp(every[:, 1]), 1e-9))
    low = every.min(axis=0)
    picture = Image.new("RGB", (SIDE, SIDE), (255, 255, 255))
    draw = ImageDraw.Draw(picture)
    for places, colour, radius in zip(points, colours, (1.6, 3.2), strict=False):
        for column, row in (places - low) / span * (SIDE - 20) + 10:
            draw.ellipse((column - radius, row - radius, column + radius, row + radius), outline=colour)
    return _picture(np.asarray(picture), _legend("places of all rows", tables))


def _strips(
    tables: Sequence[GroupTable], colours: Sequence[tuple[int, int, int]], wanted: Sequence[str]
) -> Picture | None:
    """Draw the last required column of numbers by condition, one dot per row."""
    names = [name for name in wanted if all(_column(table, name.lower()) is not None for table in tables)]
    if not names:
        return None
    values = [_column(table, names[-1].lower()) for table in tables]
    groups = [next(iter(table.conditions().items()), None) for table in tables]
    labels = sorted({label for group in groups if group for label in group[1]})[:8] or ["all"]
    finite = np.concatenate([part[np.isfinite(part)] for part in values if part is not None])
    if not finite.size:
        return None
    low, high = float(finite.min()), float(finite.max())
    picture = Image.new("RGB", (SIDE, SIDE), (255, 255, 255))
    draw = ImageDraw.Draw(picture)
    width = SIDE / len(labels)
    jitter = np.random.default_rng(3)
    for side, (table, part, group) in enumerate(zip(tables, values, groups, strict=True)):
        for place, label in enumerate(labels):
            member = np.array([cell == label for cell in table.columns[group[0]]]) if group else slice(None)
            chosen = part[member] if part is not None else np.empty(0)
            for value in chosen[np.isfinite(chosen)][:2_000]:
                column = (place + 0.3 + 0.4 * side + jitter.uniform(-0.12, 0.12)) * width
                row = SIDE - 24 - (value - low) / (high - low or 1.0) * (SIDE - 40)
                draw.ellipse((column - 2, row - 2, column + 2, row + 2), outline=colours[side])
    for place, label in enumerate(labels):
        draw.text((place * width + 4, SIDE - 14), shown(label, 14).encode("ascii", "replace").decode(), fill=(0, 0, 0))
    what = f"{shown(names[-1], 40)} from {low:.4g} (bottom) to {high:.4g} (top), by {', '.join(map(shown, labels))}"
    return _picture(np.asarray(picture), _legend(what, tables))


def _legend(what: str, tables: Sequence[GroupTable]) -> str:
    return f"{what}; submission orange, truth blue" if len(tables) == 2 else what


def _draw_workbook(found: SubmittedFile | None, truth: SubmittedFile | None, _: dict[str, Path]) -> Item:
    def read(file: SubmittedFile) -> GroupTable:
        with file.open() as handle:
            sheets = read_workbook(handle)
        sheet = next((rows for rows in sheets.values() if len(rows) > 1), [])
        header = (
            [str(cell) if cell is not None else f"column {index}" for index, cell in enumerate(sheet[0])]
            if sheet
            else []
        )
        return GroupTable(
            file.name,
            {
                name: ["" if index >= len(row) or row[index] is None else str(row[index]) for row in sheet[1:]]
                for index, name in enumerate(header)
            },
        )

    one, other, note = _sides(found, truth, read)
    tables = [table for table in (one, other) if table is not None]
    colours = ([FOUND] if one is not None else []) + ([TRUE] if other is not None else [])
    return Item(
        name=_name(found, truth),
        note=note,
        found_head=None if one is None else _head(one),
        truth_head=None if other is None else _head(other),
        both=_curves(tables, colours),
    )


def _curves(tables: Sequence[GroupTable], colours: Sequence[tuple[int, int, int]]) -> Picture | None:
    """Draw the columns of intensities over the rows."""
    series = [
        (values, colour)
        for table, colour in zip(tables, colours, strict=True)
        for name, values in table.numeric.items()
        if "intensity" in name.lower()
    ]
    finite = [values[np.isfinite(values)] for values, _ in series]
    if not finite or not sum(part.size for part in finite):
        return None
    every = np.concatenate(finite)
    low, high = float(every.min()), float(every.max())
    longest = max(len(values) for values, _ in series)
    picture = Image.new("RGB", (SIDE, SIDE * 2 // 3), (255, 255, 255))
    draw = ImageDraw.Draw(picture)
    for values, colour in series:
        points = [
            (
                8 + index / max(longest - 1, 1) * (SIDE - 16),
                SIDE * 2 // 3 - 8 - (value - low) / (high - low or 1.0) * (SIDE * 2 // 3 - 16),
            )
            for index, value in enumerate(values)
            if np.isfinite(value)
        ]
        if len(points) > 1:
            draw.line(points, fill=colour, width=1)
    what = f"columns of intensities over the rows, from {low:.3g} to {high:.3g}"
    return _picture(np.asarray(picture), _legend(what, tables))


def _draw_lineage(found: SubmittedFile | None, truth: SubmittedFile | None, _: dict[str, Path]) -> Item:
    def read(file: SubmittedFile) -> Head:
        with file.open() as handle:
            lines = [line.split() for line in read_text(handle, 4 << 20).splitlines() if line.strip()]
        names = ["track", "first frame", "last frame", "parent"]
        return Head(
            columns=names, rows=[[shown(cell, 20) for cell in line[:4]] for line in lines[:_ROWS]], total=len(lines)
        )

    one, other, note = _sides(found, truth, read)
    return Item(name=_name(found, truth), note=note, found_head=one, truth_head=other)


# --- figures and texts ------------------------------------------------------------------------------------------------


def _figures(found: Submission, taken: set[str]) -> list[tuple[str, Picture]]:
    """Decode the agent's own figures and encode them anew, so that nothing but pixels remains."""
    figures: list[tuple[str, Picture]] = []
    for file in found.files:
        if len(figures) == _FIGURES:
            break
        if PurePath(file.name).suffix.lower() not in (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp"):
            continue
        if file.path in taken or file.size > _FIGURE_BYTES:
            continue
        try:
            with file.open() as handle, Image.open(handle, formats=("PNG", "JPEG", "GIF", "WEBP", "BMP")) as image:
                if image.width * image.height > _FIGURE_PIXELS:
                    continue
                image.draft("RGB", (_FIGURE_SIDE, _FIGURE_SIDE))
                small = image.convert("RGBA")
                small.thumbnail((_FIGURE_SIDE, _FIGURE_SIDE))
        except Exception:  # noqa: S112 - a picture that no decoder takes is not shown
            continue
        paper = Image.new("RGB", small.size, (255, 255, 255))
        paper.paste(small, mask=small.getchannel("A"))
        figures.append((shown(file.path), _encoded(paper, shown(file.path))))
    return figures


def _texts(found: Submission, taken: set[str]) -> list[tuple[str, str]]:
    texts: list[tuple[str, str]] = []
    for file in found.files:
        if len(texts) == _TEXTS:
            break
        if file.path in taken or PurePath(file.name).suffix.lower() not in (".md", ".markdown"):
            continue
        try:
            with file.open() as handle:
                texts.append((shown(file.path), read_text(handle, _TEXT_BYTES)))
        except Refusal:
            continue
    return texts


def _picture(pixels: Pixels, alt: str) -> Picture:
    image = Image.fromarray(np.ascontiguousarray(pixels))
    if max(image.size) < SIDE // 2:  # small images would be stamps
        factor = SIDE // 2 // max(image.size) + 1
        image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    return _encoded(image, alt)


def _encoded(image: Image.Image, alt: str) -> Picture:
    stream = io.BytesIO()
    image.save(stream, "WEBP", quality=78, method=2)
    return Picture(webp=base64.b64encode(stream.getvalue()).decode(), alt=alt)
