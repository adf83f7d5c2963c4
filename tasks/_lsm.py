"""Write Zeiss LSM files, the same bytes for the same content: mosaics of tiles, and stacks.

An LSM file is a TIFF whose pages alternate between a plane with all its channels, one strip each, and a thumbnail. The
first page points to a record of sizes, voxel size and tables (names and wavelengths of channels, positions of tiles).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_MAGIC = 67127628  # LSM 3.2 and later
_RECORD_BYTES = 404
_THUMBNAIL = 32


@dataclass(frozen=True)
class Channel:
    """A detection channel: its name, colour on the screen and band in nm."""

    name: str
    colour: tuple[int, int, int]
    band_nm: tuple[float, float]


def write_lsm(
    path: Path,
    planes: NDArray[np.uint16],
    *,
    channels: Sequence[Channel],
    voxel_um: tuple[float, float, float],
    tile_positions_um: NDArray[np.float64] | None = None,
) -> None:
    """Write a stack ``(z, c, y, x)`` or tiles ``(tile, z, c, y, x)``.

    Parameters
    ----------
    planes
        16-bit grey values.
    channels
        One per channel, in the order of the array.
    voxel_um
        Size of a voxel along z, y, x.
    tile_positions_um
        ``(tiles, 3)``, z, y, x of each tile's centre on the stage.
    """
    tiles = planes.reshape(-1, *planes.shape[-4:])
    count, depth, bands, height, width = tiles.shape
    pages = tiles.reshape(count * depth, bands, height, width)
    data = bytearray(struct.pack("<2sHI", b"II", 42, 0))

    def put(block: bytes) -> int:
        if len(data) % 2:
            data.append(0)
        data.extend(block)
        return len(data) - len(block)

    colours = put(_colour_table(channels))
    wavelengths = put(
        struct.pack("<i", bands) + b"".join(struct.pack("<2d", *(edge * 1e-9 for edge in c.band_nm)) for c in channels)
    )
    positions = 0
    if tile_positions_um is not None:
        metres = np.asarray(tile_positions_um, np.float64)[:, ::-1] * 1e-6  # x, y, z
        positions = put(struct.pack("<I", count) + metres.astype("<f8").tobytes())
    record = put(
        _record(
            (count if tile_positions_um is not None else 0, depth, bands, height, width),
            voxel_um,
            {"colours": colours, "wavelengths": wavelengths, "positions": positions},
        )
    )
    link = 4  # where the offset of the next page goes
    for index, page in enumerate(pages):
        strips = [put(np.ascontiguousarray(plane, "<u2").tobytes()) for plane in page]
        small = _thumbnail(page)
        thumbnail = put(small.tobytes())
        bits = put(struct.pack(f"<{bands}H", *[16] * bands))
        offsets = put(struct.pack(f"<{bands}I", *strips))
        sizes = put(struct.pack(f"<{bands}I", *[height * width * 2] * bands))
        entries = [
            (254, 4, 1, 0),
            (256, 4, 1, width),
            (257, 4, 1, height),
            (258, 3, bands, bits),
            (259, 3, 1, 1),
            (262, 3, 1, 1),
            (273, 4, bands, offsets),
            (277, 3, 1, bands),
            (279, 4, bands, sizes),
            (284, 3, 1, 2),
        ]
        if index == 0:
            entries.append((34412, 1, _RECORD_BYTES, record))
        link = _page(data, link, entries)
        eight = put(struct.pack("<3H", 8, 8, 8))
        entries = [
            (254, 4, 1, 1),
            (256, 4, 1, _THUMBNAIL),
            (257, 4, 1, _THUMBNAIL),
            (258, 3, 3, eight),
            (259, 3, 1, 1),
            (262, 3, 1, 2),
            (273, 4, 1, thumbnail),
            (277, 3, 1, 3),
            (279, 4, 1, small.nbytes),
            (284, 3, 1, 1),
        ]
        link = _page(data, link, entries)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(data))


def _page(data: bytearray, link: int, entries: list[tuple[int, int, int, int]]) -> int:
    """Append an image directory, let the previous one point to it, and return where its own pointer lies."""
    if len(data) % 2:
        data.append(0)
    start = len(data)
    data[link : link + 4] = struct.pack("<I", start)
    data.extend(struct.pack("<H", len(entries)))
    for tag, kind, count, value in entries:
        data.extend(struct.pack("<HHII", tag, kind, count, value))
    data.extend(struct.pack("<I", 0))
    return len(data) - 4


def _record(
    shape: tuple[int, int, int, int, int], voxel_um: tuple[float, float, float], offsets: dict[str, int]
) -> bytes:
    tiles, depth, bands, height, width = shape
    record = bytearray(_RECORD_BYTES)
    size_z, size_y, size_x = (size * 1e-6 for size in voxel_um)
    sizes = (width, height, depth, bands, 1)
    struct.pack_into("<IiiiiiiIii", record, 0, _MAGIC, _RECORD_BYTES, *sizes, 2, _THUMBNAIL, _THUMBNAIL)
    struct.pack_into("<6d", record, 40, size_x, size_y, size_z, 0.0, 0.0, 0.0)
    struct.pack_into("<HHI", record, 88, 0, 0, 0)  # scan type 0: x-y-z
    struct.pack_into("<I", record, 108, offsets["colours"])
    struct.pack_into("<d", record, 112, 1.0)
    struct.pack_into("<4d", record, 152, 1.0, 1.0, 1.0, 1.0)
    struct.pack_into("<I", record, 204, offsets["wavelengths"])
    struct.pack_into("<ii", record, 264, 0, tiles)  # positions, tiles
    struct.pack_into("<I", record, 336, offsets["positions"])
    return bytes(record)


def _colour_table(channels: Sequence[Channel]) -> bytes:
    colours = b"".join(struct.pack("<4B", *channel.colour, 0) for channel in channels)
    names = b""
    for channel in channels:
        text = channel.name.encode("ascii") + b"\0"
        names += struct.pack("<I", len(text)) + text
    head = 24
    size = head + len(colours) + len(names)
    return struct.pack("<6I", size, len(channels), len(channels), head, head + len(colours), 0) + colours + names


def _thumbnail(page: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """Return a small RGB picture of the first three channels."""
    rows = np.arange(_THUMBNAIL) * page.shape[1] // _THUMBNAIL
    columns = np.arange(_THUMBNAIL) * page.shape[2] // _THUMBNAIL
    small = page[:3][:, rows][:, :, columns]
    if len(small) < 3:
        small = np.repeat(small[:1], 3, axis=0)
    scaled = small.astype(np.int64) * 255 // max(int(small.max()), 1)
    return np.ascontiguousarray(scaled.astype(np.uint8).transpose(1, 2, 0))
