"""Read text files of unknown origin within bounds."""

from __future__ import annotations

import codecs
from typing import BinaryIO

from evaluators.problems import Refusal

MAX_TEXT_BYTES = 64 << 20


def read_text(handle: BinaryIO, max_bytes: int = MAX_TEXT_BYTES, *, head: bool = False) -> str:
    """Decode a text file: UTF-8 with or without a byte order mark, or UTF-16 with one (what spreadsheets write).

    Parameters
    ----------
    handle
        Binary file.
    max_bytes
        Largest size that is read.
    head
        Whether only the beginning is wanted: a larger file is then cut after its last complete line.

    Raises
    ------
    Refusal
        ``empty_file``, ``too_large`` or ``not_text``.
    """
    data = handle.read(max_bytes + 1)
    if not data:
        raise Refusal("empty_file", "has no content at all, not even a header")
    cut = len(data) > max_bytes
    if cut and not head:
        raise Refusal("too_large", f"is larger than {max_bytes >> 20} MiB")
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    if cut:
        end = max(data.rfind(b"\n"), data.rfind(b"\r"))
        if end < 0:
            raise Refusal("not_text", f"has no line end in its first {max_bytes >> 10} KiB")
        data = data[: end + 1 if encoding == "utf-8-sig" else (end + 2) & ~1]
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise Refusal("not_text", f"is not UTF-8 text (byte {error.start})") from error
    if "\0" in text:
        raise Refusal("not_text", "holds NUL bytes")
    return text
