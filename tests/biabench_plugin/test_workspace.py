"""What an agent left can always be deleted, and nothing beside it is."""

from __future__ import annotations

import os
from pathlib import Path

from biabench_plugin.workspace import remove_tree


def test_trees_of_any_depth_and_permission_are_deleted(tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    here = Path.cwd()
    os.chdir(room)
    try:
        for _ in range(3000):  # beyond the recursion limit, and beyond the longest path
            Path("deep").mkdir()
            os.chdir("deep")
    finally:
        os.chdir(here)
    closed = room / "closed"
    (closed / "inner").mkdir(parents=True)
    closed.chmod(0)
    remove_tree(room)
    assert not room.exists()


def test_links_are_deleted_and_never_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("kept")
    kept.chmod(0o755)
    room = tmp_path / "room"
    room.mkdir()
    (room / "link").symlink_to(kept)
    remove_tree(room)
    (tmp_path / "linked_room").symlink_to(kept)
    remove_tree(tmp_path / "linked_room")
    remove_tree(tmp_path / "never_there")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (kept / "file").read_text() == "kept"
