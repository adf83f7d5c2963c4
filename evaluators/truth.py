"""Read the reference data of a task.

Whatever is wrong here is the operator's fault and stops with :class:`TruthError`; it never lowers a score.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from io import BufferedReader
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from evaluators.model import TruthError
from evaluators.problems import Refusal
from evaluators.readers.masks import read_mask
from evaluators.readers.tables import TextTable, column_names, read_numbers, read_texts
from evaluators.readers.tiff import TiffImage, as_labels
from evaluators.readers.track_table import read_track_table
from evaluators.submission import stem_of

T = TypeVar("T")

IMAGE_SUFFIXES = (".tif", ".tiff", ".png")


class Truth:
    """The reference data of one task and, where it is at hand, its input.

    Parameters
    ----------
    folder
        The ``evaluation`` folder.
    input_dir
        The ``input`` folder, which tells which images exist and how large they are.
    required
        Whether ``folder`` must exist; there is none for a task without reference data.

    Raises
    ------
    TruthError
        A folder does not exist.
    """

    def __init__(self, folder: Path, input_dir: Path | None = None, *, required: bool = True) -> None:
        for path in (folder if required else None, input_dir):
            if path is not None and not path.is_dir():
                raise TruthError(f"{path}: no such folder")
        self.folder = folder
        self.input_dir = input_dir
        self._inputs = self._input_images()

    @property
    def input_stems(self) -> list[str]:
        """Stems of the images at the top of the input folder; empty where no input is at hand."""
        return list(self._inputs)

    def manifest(
        self, subfolder: str = ".", suffixes: Sequence[str] = (".tif", ".tiff"), name: str = "{}"
    ) -> dict[str, Path]:
        """Return the reference files of a folder by image stem, in the order of the stems.

        Names that begin with a dot, and other suffixes, do not count. With input at hand a reference without an input
        image (an overlay, a summary) is left out, and an input image without a reference is an error.

        Parameters
        ----------
        subfolder
            Folder below ``evaluation``.
        suffixes
            Extensions that count.
        name
            How the stem of a reference follows from that of its image, for example ``{}_seg`` or ``Binary_{}``; files
            that are named otherwise do not count.

        Raises
        ------
        TruthError
            No file, two files with one stem, or an input image without reference.
        """
        folder = self.folder / subfolder
        if not folder.is_dir():
            raise TruthError(f"{folder}: the folder of reference files does not exist")
        before, after = name.split("{}")
        pattern = re.compile(f"{re.escape(before)}(.+){re.escape(after)}", re.IGNORECASE)
        files: dict[str, Path] = {}
        for path in sorted(folder.iterdir()):
            if path.name.startswith(".") or path.suffix.lower() not in suffixes or not path.is_file():
                continue
            named = pattern.fullmatch(stem_of(path.name))
            if named is None:
                continue
            stem = named[1]
            if stem in files:
                raise TruthError(f"{path}: {files[stem].name} is the reference of the same image")
            files[stem] = path
        if not files:
            raise TruthError(f"{folder}: no reference file ({', '.join(name.format('*') + end for end in suffixes)})")
        if self._inputs:
            lacking = [stem for stem in self._inputs if stem not in files]
            if lacking:
                raise TruthError(
                    f"{folder}: no reference for input image {', '.join(lacking[:5])} ({len(lacking)} in all)"
                )
            files = {stem: path for stem, path in files.items() if stem in self._inputs}
        return files

    def image_shape(self, stem: str) -> tuple[int, int] | None:
        """Return (rows, columns) of an input image, or ``None`` where no input is at hand.

        Raises
        ------
        TruthError
            The input image cannot be read.
        """
        path = self._inputs.get(stem)
        if path is None:
            return None
        if path.suffix.lower() == ".png":
            head = self._read(path, lambda handle: handle.read(24))
            if len(head) < 24 or head[12:16] != b"IHDR":
                raise TruthError(f"{path}: is not a PNG image")
            columns, rows = struct.unpack(">II", head[16:24])
            return rows, columns
        import tifffile

        try:
            with tifffile.TiffFile(path, _multifile=False) as file:
                page = file.pages.first
                return int(page.imagelength), int(page.imagewidth)
        except Exception as error:
            raise TruthError(f"{path}: cannot be read: {error}") from error

    def labels(self, path: Path) -> NDArray[np.integer]:
        """Read a label image; axes of length 1 are dropped."""

        def read(handle: BufferedReader) -> NDArray[np.integer]:
            with TiffImage(handle) as image:
                return as_labels(image.whole())

        return self._read(path, read)

    def mask(self, path: Path) -> NDArray[np.bool_]:
        """Read a binary image or volume; axes of length 1 are dropped."""

        def read(handle: BufferedReader) -> NDArray[np.bool_]:
            with TiffImage(handle) as image:
                return read_mask(image)

        return self._read(path, read)

    def open_image(self, path: Path) -> TiffImage:
        """Open a TIFF file that is read plane by plane."""
        try:
            return TiffImage(path.open("rb"))
        except (Refusal, OSError) as error:
            raise TruthError(f"{path}: {error}") from error

    def numbers(self, path: Path, columns: Sequence[str]) -> NDArray[np.float64]:
        """Read the columns of a table, which must be finite, shape (rows, columns)."""
        table = self._read(path, lambda handle: read_numbers(handle, columns))
        if table.invalid:
            line, text = table.invalid[0]
            raise TruthError(f"{path}: line {line} is not finite: {text}")
        return table.values

    def texts(self, path: Path, columns: Sequence[str], optional: Sequence[str] = ()) -> TextTable:
        """Read columns of a table as text."""
        return self._read(path, lambda handle: read_texts(handle, columns, optional))

    def column_names(self, path: Path, columns: Sequence[str]) -> list[str]:
        """Return all names in the header of a table, which must have the columns."""
        return self._read(path, lambda handle: column_names(handle, columns))

    def track_table(self, path: Path) -> NDArray[np.int64]:
        """Read a lineage, shape (tracks, 4)."""
        table = self._read(path, read_track_table)
        if table.invalid:
            line, text = table.invalid[0]
            raise TruthError(f"{path}: line {line} is not four whole numbers: {text}")
        return table.rows

    def _read(self, path: Path, reader: Callable[[BufferedReader], T]) -> T:
        try:
            with path.open("rb") as handle:
                return reader(handle)
        except (Refusal, OSError) as error:
            raise TruthError(f"{path}: {error}") from error

    def _input_images(self) -> dict[str, Path]:
        if self.input_dir is None:
            return {}
        paths = [path for path in sorted(self.input_dir.iterdir()) if path.suffix.lower() in IMAGE_SUFFIXES]
        return {stem_of(path.name): path for path in paths if not path.name.startswith(".")}
