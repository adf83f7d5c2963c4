"""Turn an agent's images and workbooks into something a browser can show, in a child process with bounds.

The child reads one job per line on standard input and answers one line each, as JSON. A decoder that crashes, hangs or
takes too much memory ends the child, not the review; the next file gets a new one.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

_MEMORY_BYTES = 4 << 30
_SECONDS = 120.0  # a distant backstop; sizes are checked before anything is decoded
_MAX_PIXELS = 200_000_000
_MAX_SIDE = 2400  # of a preview
_PLANES = 9
_MAX_SHEET_ROWS, _MAX_SHEETS = 2000, 10
_MAX_CELL = 500
TABLES = (".xlsx", ".xlsm")
IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff")


class Previewer:
    """Makes previews one after the other; use it as a context manager."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> Previewer:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def make(self, source: Path, target: Path, labels: bool = False) -> dict[str, str]:
        """Write a preview of ``source`` to ``target``.

        Returns
        -------
        dict
            ``facts`` on the original; ``note`` on how it is shown; ``failure`` where there is no preview.
        """
        job = json.dumps({"source": str(source), "target": str(target), "labels": labels})
        child = self._running()
        assert child.stdin is not None
        assert child.stdout is not None
        answer = ""
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(job + "\n")
            child.stdin.flush()
            if select.select([child.stdout], [], [], _SECONDS)[0]:
                answer = child.stdout.readline()
        try:
            return {str(key): str(value) for key, value in json.loads(answer).items()}
        except ValueError:  # no answer, or half of one
            self._end()
            target.unlink(missing_ok=True)
            return {"failure": "reading it took too much memory or time, or crashed the decoder"}

    def _running(self) -> subprocess.Popen[str]:
        if self._child is None or self._child.poll() is not None:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "biabench_plugin.review.preview"],
                cwd=Path(__file__).resolve().parents[2],
                env={"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "OMP_NUM_THREADS": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        return self._child

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None


def main(jobs: IO[str], answers: IO[str]) -> None:
    """Serve jobs until standard input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    for line in jobs:
        job = json.loads(line)
        source, target = Path(job["source"]), Path(job["target"])
        try:
            made = (
                _workbook(source, target) if source.suffix.lower() in TABLES else _image(source, target, job["labels"])
            )
        except MemoryError:
            made = {"failure": "needs too much memory"}
        except Exception as error:  # whatever a hostile file makes a decoder raise
            made = {"failure": f"cannot be read: {type(error).__name__}: {error}"[:300]}
        answers.write(json.dumps(made) + "\n")
        answers.flush()


def _image(source: Path, target: Path, labels: bool) -> dict[str, str]:
    if source.suffix.lower() in (".tif", ".tiff"):
        return _tiff(source, target, labels)
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = _MAX_PIXELS
    with Image.open(source) as image:
        if image.width * image.height > _MAX_PIXELS:
            return {"failure": f"{image.width} x {image.height} pixels are too many to show"}
        dpi = image.info.get("dpi")
        facts = [f"{image.format}", f"{image.width} x {image.height} px", f"mode {image.mode}"]
        facts += [f"{round(float(dpi[0]))} dpi"] if dpi else ["no dpi stated"]
        frames = int(getattr(image, "n_frames", 1))
        facts += [f"{frames} frames"] if frames > 1 else []
        image.seek(0)
        if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
            over = image.convert("RGBA")
            shown = Image.new("RGBA", image.size, "white")
            shown.alpha_composite(over)
            made, note = _fit(shown.convert("RGB")), ""
        elif image.mode.startswith(("I", "F")):
            import numpy as np

            pixels, note = _display(np.asarray(image), labels)
            made = _fit(Image.fromarray(pixels))
        else:
            made, note = _fit(image.convert("RGB")), ""
        made.save(target, "PNG", compress_level=3)
        return {"facts": ", ".join(facts), "note": _scaled(note, image.width, made.width)}


def _fit(image: Any) -> Any:
    """Reduce an image to the size of a preview; pixels stay pixels where it is small."""
    image.thumbnail((_MAX_SIDE, _MAX_SIDE))
    return image


def _scaled(note: str, width: int, shown: int) -> str:
    return note if width == shown else f"{note}; reduced from {width} px wide".removeprefix("; ")


def _tiff(source: Path, target: Path, labels: bool) -> dict[str, str]:
    import numpy as np
    import tifffile
    from PIL import Image

    with tifffile.TiffFile(source) as file:
        series = file.series[0]
        page: Any = file.pages[0]
        facts = ["TIFF", "x".join(map(str, series.shape)) + f" {series.axes}", str(series.dtype)]
        facts.append(f"compression {page.compression.name.lower()}")
        resolution = page.tags.get("XResolution")
        unit = page.tags.get("ResolutionUnit")
        per = {2: "inch", 3: "cm"}.get(int(unit.value) if unit is not None else 1)
        if per is not None and resolution is not None and resolution.value[1]:
            facts.append(f"{resolution.value[0] / resolution.value[1]:g} px per {per}")
        total = int(np.prod([int(side) for side in page.shape]))
        if total > _MAX_PIXELS:
            return {"facts": ", ".join(facts), "failure": f"a plane of {total} values is too large to show"}
        pages = list(range(len(series.pages)))
        take = [pages[i] for i in np.unique(np.linspace(0, len(pages) - 1, _PLANES).round().astype(int))]
        whole = len(pages) == 1
        planes, note = [], ""
        for number in take:
            plane = np.squeeze(series.pages[number].asarray()) if not whole else _planes_of(series, total)
            planes += list(plane) if whole and plane.ndim == 3 and plane.shape[-1] not in (3, 4) else [plane]
    shown = np.stack([_flat(plane) for plane in planes])
    pixels, note = _display(shown, labels)
    count = len(shown)
    sheet = _sheet(pixels)
    if count > 1:
        note = f"{count} planes, evenly spread over the file, left to right and top to bottom; {note}".removesuffix(
            "; "
        )
    made = _fit(Image.fromarray(sheet))
    made.save(target, "PNG", compress_level=3)
    return {"facts": ", ".join(facts), "note": _scaled(note, sheet.shape[1], made.width)}


def _planes_of(series: Any, total: int) -> Any:
    """Return the planes of a series that lies in one page, at most as many as fit on a sheet."""
    import numpy as np

    if series.size > _MAX_PIXELS or total > _MAX_PIXELS:
        raise ValueError(f"{series.size} values are too many to show")
    data = np.squeeze(series.asarray())
    if data.ndim <= 2 or (data.ndim == 3 and data.shape[-1] in (3, 4)):
        return data
    stack = data.reshape(-1, *data.shape[-2:])
    return stack[np.unique(np.linspace(0, len(stack) - 1, _PLANES).round().astype(int))]


def _flat(plane: Any) -> Any:
    """Return a plane as (y, x) or (y, x, 3); of more channels the first."""
    import numpy as np

    plane = np.asarray(plane)
    if plane.ndim == 3 and plane.shape[-1] in (3, 4):
        return plane[..., :3]
    while plane.ndim > 2:
        plane = plane[0]
    return np.atleast_2d(plane)


def _display(data: Any, labels: bool) -> tuple[Any, str]:
    """Return 8-bit RGB or grey pixels of (…, y, x) values, and how they were made."""
    import numpy as np

    if data.ndim and data.shape[-1] == 3 and data.dtype == np.uint8:
        return data, ""
    if labels and data.dtype.kind in "bui":
        number = len(np.unique(data))
        colours = np.random.default_rng(1).integers(60, 256, (1024, 3), dtype=np.uint8)
        picture = colours[data.astype(np.int64) % 1023 + 1]
        picture[data == 0] = 0
        return picture, f"labels in colours of their own ({number - int((data == 0).any())} values besides background)"
    values = np.nan_to_num(np.asarray(data, np.float32))
    low, high = (float(np.percentile(values[..., ::4, ::4] if values.ndim > 1 else values, q)) for q in (1, 99.8))
    if data.dtype == np.uint8 and data.max() > 60:
        return data, ""
    if high <= low:
        low, high = float(values.min()), float(values.max())
    scaled = np.clip((values - low) / ((high - low) or 1.0), 0, 1)
    return (scaled * 255).astype(np.uint8), f"grey values from {low:g} (black) to {high:g} (white)"


def _sheet(pixels: Any) -> Any:
    """Lay (n, y, x[, 3]) planes out in rows of three."""
    import numpy as np

    count = len(pixels)
    if count == 1:
        return pixels[0]
    step = max(1, int(np.ceil(max(pixels.shape[1:3]) / 700)))
    pixels = pixels[:, ::step, ::step]
    across = min(3, count)
    blank = np.zeros_like(pixels[0])
    rows = []
    for start in range(0, count, across):
        row = [*pixels[start : start + across], *[blank] * across][:across]
        rows.append(
            np.concatenate(
                [np.pad(cell, [(2, 2), (2, 2)] + [(0, 0)] * (cell.ndim - 2), constant_values=128) for cell in row],
                axis=1,
            )
        )
    return np.concatenate(rows, axis=0)


def _workbook(source: Path, target: Path) -> dict[str, str]:
    """Write the sheets of a workbook as tab-separated text, each under a line with its name."""
    import openpyxl

    book = openpyxl.load_workbook(source, read_only=True, data_only=True)
    lines, cut = [], ""
    for sheet in book.worksheets[:_MAX_SHEETS]:
        lines.append(f"# sheet {sheet.title}")
        for number, row in enumerate(_rows(sheet)):
            if number == _MAX_SHEET_ROWS:
                cut = f"sheets are cut after {_MAX_SHEET_ROWS} rows"
                break
            lines.append("\t".join(row))
    target.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="replace")
    return {
        "facts": f"workbook with {len(book.worksheets)} sheets: {', '.join(book.sheetnames[:20])}"[:300],
        "note": cut,
    }


def _rows(sheet: Any) -> Iterator[list[str]]:
    for row in sheet.iter_rows(values_only=True):
        yield ["" if value is None else " ".join(str(value)[:_MAX_CELL].split()) for value in row[:200]]


if __name__ == "__main__":
    ours = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what decoders print must not stand among the answers
    main(sys.stdin, ours)
