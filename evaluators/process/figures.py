"""Figures for the judge: chosen, reduced in size, families of similar ones put on contact sheets."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from pydantic import BaseModel, ConfigDict

from evaluators.problems import Refusal, shown
from evaluators.process.inspect import PICTURES
from evaluators.submission import SubmittedFile

_MAX_PIXELS = 100_000_000
_SHEET_COLUMNS, _SHEET_MEMBERS, _THUMBNAIL = 4, 12, 380
_PNG_BYTES = 700_000  # above, JPEG: a photograph as PNG costs bytes and shows nothing more


class Figure(BaseModel):
    """One picture as it is sent. ``members`` are the files it shows, several on a contact sheet; sizes in pixels."""

    model_config = ConfigDict(extra="forbid")

    number: int
    members: list[str]
    media_type: str
    data: str
    width: int
    height: int
    reduced: bool


def family_of(path: str) -> str:
    """Name of the family of a file: folder, stem with every run of digits replaced, suffix."""
    pure = PurePosixPath(path)
    return f"{pure.parent}/{re.sub(r'[0-9]+', '#', pure.stem)}{pure.suffix.lower()}"


def choose(
    files: Sequence[SubmittedFile], deliverables: set[str], named_in: str, *, most: int, side: int, most_bytes: int
) -> tuple[list[Figure], list[str]]:
    """Return the figures to show, numbered after encoding, and a line for each picture that is not shown.

    Parameters
    ----------
    files
        All files of the submission.
    deliverables
        Paths of files that the outcome score reads; they are described by the digest and not shown.
    named_in
        Text of the reports: figures that they name go first.
    most
        Largest number of pictures.
    side
        Longest side of a picture, in pixels.
    most_bytes
        Bytes of all encoded pictures together.
    """
    families: dict[str, list[SubmittedFile]] = {}
    for file in files:
        if PurePosixPath(file.name).suffix.lower() in PICTURES and file.path not in deliverables:
            families.setdefault(family_of(file.path), []).append(file)
    ordered = sorted(families.items(), key=lambda family: (_rank(family[1], named_in), family[0]))
    figures: list[Figure] = []
    left_out: list[str] = []
    used = 0
    for members in _wishes([family for _, family in ordered], left_out):
        name = shown(members[0].path, 200) + (f" and {len(members) - 1} like it" if len(members) > 1 else "")
        if len(figures) >= most:
            left_out.append(f"figure {name}: beyond the first {most} pictures")
            continue
        figure, problems = _encode(members, side)
        left_out += problems
        if figure is None:
            continue
        used += len(figure.data) * 3 // 4
        if used > most_bytes:
            left_out.append(f"figure {name}: beyond {most_bytes >> 20} MiB of pictures")
            used -= len(figure.data) * 3 // 4
            continue
        figure.number = len(figures) + 1
        figures.append(figure)
    return figures, left_out


def _rank(family: Sequence[SubmittedFile], text: str) -> int:
    """Place of a family: its files are named in the text, or their folder is, or neither."""
    if any(file.stem and file.stem in text for file in family):
        return 0
    return 1 if any(file.folder and f"{file.folder}/" in text for file in family) else 2


def _wishes(families: Sequence[list[SubmittedFile]], left_out: list[str]) -> list[list[SubmittedFile]]:
    """Turn families into pictures: one or two members alone; of more, the first alone and then a sheet of them.

    First pictures of all families come before the sheets, so that one batch of images cannot push out a figure.
    """
    first, second = [], []
    for family in families:
        first.append([family[0]])
        if len(family) == 2:
            second.append([family[1]])
        elif len(family) > 2:
            rest = family[1:]
            step = max(1.0, len(rest) / _SHEET_MEMBERS)
            sheet = [rest[int(at * step)] for at in range(min(len(rest), _SHEET_MEMBERS))]
            second.append(sheet)
            if len(rest) > len(sheet):
                left_out.append(
                    f"figures like {shown(family[0].path, 200)}: {len(rest) - len(sheet)} of {len(family)} not shown"
                )
    return first + second


def _encode(members: Sequence[SubmittedFile], side: int) -> tuple[Figure | None, list[str]]:
    from PIL import Image

    opened: list[tuple[str, Any]] = []
    problems: list[str] = []
    for file in members:
        name = shown(file.path, 200)
        try:
            opened.append((name, _open(file, side if len(members) == 1 else _THUMBNAIL)))
        except (Refusal, OSError, ValueError, MemoryError, SyntaxError, Image.DecompressionBombError) as error:
            problems.append(f"figure {name}: cannot be read: {shown(str(error))}")
    if not opened:
        return None, problems
    reduced = len(members) > 1 or any(image.info.get("biabench_reduced") for _, image in opened)
    picture = opened[0][1] if len(members) == 1 else _sheet([image for _, image in opened])
    data, media_type = _compressed(picture)
    figure = Figure(
        number=0,
        members=[name for name, _ in opened],
        media_type=media_type,
        data=base64.b64encode(data).decode(),
        width=picture.width,
        height=picture.height,
        reduced=reduced,
    )
    return figure, problems


def _open(file: SubmittedFile, side: int) -> Any:
    """Decode the first frame on white, with its longest side at most ``side``."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # sizes are checked here
    with file.open() as handle, Image.open(handle) as opened:
        if opened.width * opened.height > _MAX_PIXELS:
            raise Refusal("too_large", f"has {opened.width} x {opened.height} pixels")
        image: Any = opened
        reduced = max(image.size) > side
        if image.mode.startswith(("I", "F")):
            image = _stretched(image)
        if image.mode in ("RGBA", "LA", "P", "PA"):
            image = image.convert("RGBA")
            ground = Image.new("RGBA", image.size, "white")
            ground.alpha_composite(image)
            image = ground
        image = image.convert("RGB")
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
    image.info = {"biabench_reduced": reduced}
    return image


def _stretched(image: Any) -> Any:
    """Bring a picture of more than 8 bits to 8 between its 1st and 99th percentile."""
    import numpy as np
    from PIL import Image

    values = np.asarray(image, dtype=float)
    low, high = np.percentile(values, [1, 99])
    scaled = np.clip((values - low) / max(high - low, 1e-12), 0, 1) * 255
    return Image.fromarray(scaled.astype("uint8"))


def _sheet(images: Sequence[Any]) -> Any:
    """Put thumbnails in rows, each with its position in the list of members."""
    from PIL import Image, ImageDraw

    columns = min(_SHEET_COLUMNS, len(images))
    rows = -(-len(images) // columns)
    cell, label = _THUMBNAIL + 8, 16
    sheet = Image.new("RGB", (columns * cell, rows * (cell + label)), "white")
    draw = ImageDraw.Draw(sheet)
    for at, image in enumerate(images):
        left, top = at % columns * cell, at // columns * (cell + label)
        draw.text((left + 4, top + 2), str(at + 1), fill="black")
        sheet.paste(image, (left + 4, top + label))
    return sheet


def _compressed(image: Any) -> tuple[bytes, str]:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    if buffer.tell() <= _PNG_BYTES:
        return buffer.getvalue(), "image/png"
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=88)
    return buffer.getvalue(), "image/jpeg"
