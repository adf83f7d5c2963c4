"""Good files with a few bytes changed: they read, or they are refused; nothing else comes out of a reader."""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Callable

import numpy as np
import pytest
import tifffile

from evaluators.problems import Refusal
from evaluators.readers.tables import check_columns, read_numbers
from evaluators.readers.tiff import TiffImage, as_labels, check_shape
from evaluators.readers.track_table import read_track_table

STACK = (np.arange(5 * 24 * 16, dtype=np.uint16) % 300).reshape(5, 24, 16)
WAYS = (
    {},
    {"imagej": True},
    {"ome": True},
    {"compression": "zlib", "predictor": True},
    {"compression": "lzw"},
    {"tile": (16, 16), "compression": "zstd"},
    {"bigtiff": True},
    {"truncate": True},
    {"byteorder": ">", "compression": "packbits"},
)


def encoded(**options: object) -> bytes:
    target = io.BytesIO()
    tifffile.imwrite(target, STACK, **options)
    return target.getvalue()


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_images(options: dict[str, object]) -> None:
    good = encoded(**options)
    generator = random.Random(str(options))
    read = refused = 0
    for _ in range(60):
        data = bytearray(good)
        for _ in range(generator.choice([1, 2, 4])):
            place = generator.randrange(min(len(data), 700))  # the headers
            data[place] = generator.choice(
                [0, 255, generator.randrange(256), data[place] ^ 1 << generator.randrange(8)]
            )
        if generator.random() < 0.1:
            del data[generator.randrange(len(data)) :]
        try:
            with TiffImage(io.BytesIO(bytes(data))) as image:
                check_shape(image.header.shape, STACK.shape)
                as_labels(image.whole())
            read += 1
        except Refusal:
            refused += 1
    assert read
    assert refused


TEXTS: tuple[bytes, ...] = (
    b"X,Y\n1.5,2\n3,4\n",
    '\ufeffX;Y\n1,5;2\n"3";4\n'.encode(),
    "X,Y\n1,2\n".encode("utf-16"),
    b"1 0 4 0\n2 5 9 1\n",
)
READERS: dict[str, Callable[[io.BytesIO], object]] = {
    "numbers": lambda handle: read_numbers(handle, ("X", "Y")),
    "columns": lambda handle: check_columns(handle, ("X", "Y")),
    "tracks": read_track_table,
}


@pytest.mark.parametrize("reader", READERS)
def test_texts(reader: str) -> None:
    generator = random.Random(reader)
    for _ in range(3000):
        data = bytearray(generator.choice(TEXTS))
        for _ in range(generator.choice([1, 2, 5])):
            place = generator.randrange(len(data) or 1)
            byte = generator.choice([0, 255, 10, 13, 34, 44, 59, 9, generator.randrange(256)])
            data[place : place + generator.choice([0, 1])] = bytes([byte]) * generator.choice([0, 1, 2])
        with contextlib.suppress(Refusal):
            READERS[reader](io.BytesIO(bytes(data)))
