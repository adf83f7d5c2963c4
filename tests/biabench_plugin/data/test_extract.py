"""An archive from outside stays in its folder, makes no links and does not grow without bound."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest

from biabench_plugin.data.cache import DataError
from biabench_plugin.data.extract import Bounds, extract, unpacked_bytes

pytestmark = pytest.mark.usefixtures("cache")


def member(name: str, *, mode: int = stat.S_IFREG | 0o644, method: int = zipfile.ZIP_DEFLATED) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    info.compress_type = method
    return info


@pytest.fixture
def packed(tmp_path: Path) -> Any:
    """Return a function that writes members and their content into an archive, and an empty folder."""
    (tmp_path / "out").mkdir()

    def pack(*members: tuple[zipfile.ZipInfo, bytes]) -> tuple[Path, Path]:
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as opened:
            for info, content in members:
                opened.writestr(info, content)
        return tmp_path / "a.zip", tmp_path / "out"

    return pack


def test_files_come_out_with_size_and_digest(packed: Any) -> None:
    archive, out = packed((member("input/", mode=stat.S_IFDIR | 0o755), b""), (member("input/Stage 1/é.tif"), b"abc"))
    assert unpacked_bytes(archive) == 3
    counted: list[int] = []
    entries = extract(archive, "input", out, advance=counted.append)
    assert {path: (entry.bytes, entry.sha256[:8]) for path, entry in entries.items()} == {
        "Stage 1/é.tif": (3, "ba7816bf")
    }
    written = out / "Stage 1" / "é.tif"
    assert written.read_bytes() == b"abc"
    assert stat.S_IMODE(written.stat().st_mode) == 0o444
    assert sum(counted) == 3


@pytest.mark.parametrize(
    ("info", "said"),
    [
        (member("input/../../x"), "leaves the folder"),
        (member("../input/x"), "leaves the folder"),
        (member("/input/x"), "absolute path"),
        (member("C:/input/x"), "absolute path"),
        (member("input//x"), "leaves the folder"),
        (member("input/./x"), "leaves the folder"),
        (member("input/a\\..\\x"), "backslash"),
        (member("input/a\nx"), "control character"),
        (member("input/" + "a" * 600), "too long"),
        (member("evaluation/x"), "lies outside input/"),
        (member("input"), "is a file where the folder"),
        (member("input/link", mode=stat.S_IFLNK | 0o777), "is a link or a device"),
        (member("input/pipe", mode=stat.S_IFIFO | 0o644), "is a link or a device"),
        (member("input/OK.TIF"), "occurs twice"),
        (member("input/ok.tif/below"), "lies below a member that is a file"),
        (member("input/x", method=zipfile.ZIP_BZIP2), "is packed by method 12"),
    ],
)
def test_what_must_not_be_in_an_archive(info: zipfile.ZipInfo, said: str, packed: Any, tmp_path: Path) -> None:
    archive, out = packed((member("input/ok.tif"), b"fine"), (info, b"/etc/passwd"))
    with pytest.raises(DataError, match=r"a\.zip: ") as refused:
        extract(archive, "input", out)
    assert said in str(refused.value)
    assert list(out.iterdir()) == []  # nothing was written, also not what came before
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "cache") == ["a.zip", "out"]


def test_bounds_on_count_size_and_ratio(packed: Any) -> None:
    archive, out = packed(*((member(f"input/{n}"), bytes(1000)) for n in range(30)))
    for bounds, said in (
        (Bounds(files=29), "holds 30 members"),
        (Bounds(bytes=29_999), "at most 29999 bytes"),
    ):
        with pytest.raises(DataError, match=said):
            extract(archive, "input", out, bounds)
    assert len(extract(archive, "input", out, Bounds(files=30, bytes=30_000))) == 30


def test_a_bomb_is_refused_and_an_empty_mask_is_not(packed: Any) -> None:
    archive, out = packed((member("input/mask.tif"), bytes(50_000_000)))
    assert archive.stat().st_size < 60_000  # deflate ends near 1 to 1030
    with pytest.raises(DataError, match="2 times the archive"):
        extract(archive, "input", out, Bounds(ratio=2))
    assert extract(archive, "input", out)["mask.tif"].bytes == 50_000_000


def test_more_bytes_than_stated_are_damage(packed: Any) -> None:
    archive, out = packed((member("input/x", method=zipfile.ZIP_STORED), b"0123456789"))
    content = bytearray(archive.read_bytes())
    content[content.index(b"0123456789")] = ord("X")  # the CRC no longer fits
    archive.write_bytes(bytes(content))
    with pytest.raises(DataError, match="is damaged"):
        extract(archive, "input", out)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04"])
def test_no_archive(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(DataError, match="is not a zip archive"):
        extract(tmp_path / "a.zip", "input", tmp_path)


def test_encrypted_members_are_refused(packed: Any) -> None:
    archive, out = packed((member("input/x", method=zipfile.ZIP_STORED), b"0123456789"))
    content = bytearray(archive.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    archive.write_bytes(bytes(content))
    with pytest.raises(DataError, match="is encrypted"):
        extract(archive, "input", out)
