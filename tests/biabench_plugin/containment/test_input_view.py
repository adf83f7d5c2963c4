"""The input folder of a trial: neutral name, own bytes where needed, changes noticed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from biabench_plugin import _input_view
from biabench_plugin.isolation import InputError, opaque_input


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "hela_segmentation" / "input"
    (folder / "deep" / "empty").mkdir(parents=True)
    (folder / "0.tif").write_bytes(b"pixels")
    (folder / "deep" / "1.tif").write_bytes(b"more pixels")
    return folder


def listing(folder: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("contained", [True, False])
def test_shows_the_same_files_under_a_neutral_name(source: Path, tmp_path: Path, contained: bool) -> None:
    with opaque_input(source, tmp_path / "0123456789abcdef", contained) as view:
        assert view.path == tmp_path / "0123456789abcdef" / "input"
        assert listing(view.path) == listing(source)
        assert "hela" not in str(view.path.resolve())
        assert not view.name_visible
        assert not view.changed()
    assert not view.path.exists()
    assert (source / "0.tif").read_bytes() == b"pixels"


def test_hard_links_for_contained_agents(source: Path, tmp_path: Path) -> None:
    view = opaque_input(source, tmp_path / "work", True)
    assert view.how == "linked"
    assert (view.path / "0.tif").stat().st_ino == (source / "0.tif").stat().st_ino


def test_never_a_hard_link_without_containment(source: Path, tmp_path: Path) -> None:
    view = opaque_input(source, tmp_path / "work", False)
    assert view.how in ("copied", "reflinked")
    assert (view.path / "0.tif").stat().st_ino != (source / "0.tif").stat().st_ino
    assert (view.path / "0.tif").stat().st_mtime == (source / "0.tif").stat().st_mtime


def test_a_folder_named_by_a_digest_is_bound_as_it_is(source: Path, tmp_path: Path) -> None:
    cached = tmp_path / "cache" / "0123456789abcdef" / "input"
    cached.parent.mkdir(parents=True)
    source.rename(cached)
    view = opaque_input(cached, tmp_path / "work", True)
    assert (view.how, view.path.resolve()) == ("bound", cached)
    view.remove()
    assert (cached / "0.tif").exists()
    assert opaque_input(cached, tmp_path / "off", False).how in ("copied", "reflinked")


def test_the_caller_knows_best_whether_a_name_gives_something_away(source: Path, tmp_path: Path) -> None:
    assert opaque_input(source, tmp_path / "a", True, opaque=True).how == "bound"
    cached = tmp_path / "0123456789abcdef"
    source.rename(cached)
    assert opaque_input(cached, tmp_path / "b", True, opaque=False).how == "linked"


def _no_links(*_: object, **__: object) -> None:
    raise OSError(18, "Invalid cross-device link")


def test_on_another_file_system_it_is_copied(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", _no_links)
    view = opaque_input(source, tmp_path / "work", True)
    assert view.how in ("copied", "reflinked")
    assert listing(view.path) == listing(source)


def test_too_large_to_copy_is_bound_and_said(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", _no_links)
    view = opaque_input(source, tmp_path / "work", True, copy_limit=10)
    assert (view.how, view.name_visible) == ("bound", True)
    assert "path visible" in str(view.note)


# --- changes -----------------------------------------------------------------------------------------------------


def test_changed_bytes_are_noticed_even_with_the_old_time(source: Path, tmp_path: Path) -> None:
    view = opaque_input(source, tmp_path / "work", False)
    victim = view.path / "deep" / "1.tif"
    before = victim.stat()
    victim.chmod(0o600)
    victim.write_bytes(b"MORE PIXELS")
    os.utime(victim, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert view.changes() == ["deep/1.tif"]
    assert (source / "deep" / "1.tif").read_bytes() == b"more pixels"


def test_touching_is_no_change(source: Path, tmp_path: Path) -> None:
    view = opaque_input(source, tmp_path / "work", False)
    os.utime(view.path / "0.tif", (1, 1))
    assert not view.changed()


def test_added_removed_and_replaced_files_are_noticed(source: Path, tmp_path: Path) -> None:
    view = opaque_input(source, tmp_path / "work", False)
    for folder in (view.path, view.path / "deep"):
        folder.chmod(0o755)
    (view.path / "new.tif").touch()
    (view.path / "0.tif").unlink()
    (view.path / "deep" / "1.tif").unlink()
    (view.path / "deep" / "1.tif").symlink_to("/dev/zero")
    assert view.changes() == ["0.tif", "deep/1.tif", "new.tif"]
    view.remove()
    assert not view.path.exists()


def test_a_change_of_the_original_is_noticed(source: Path, tmp_path: Path) -> None:
    view = opaque_input(source, tmp_path / "work", True)
    (source / "0.tif").write_bytes(b"pixels, and more")
    assert view.changes() == ["0.tif"]


# --- links and worse ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("contained", [True, False])
def test_links_are_followed(source: Path, tmp_path: Path, contained: bool) -> None:
    store = tmp_path / "store"
    (store / "stack").mkdir(parents=True)
    (store / "stack" / "2.tif").write_bytes(b"z")
    (source / "2.tif").symlink_to(store / "stack" / "2.tif")
    (source / "stack").symlink_to(store / "stack")
    view = opaque_input(source, tmp_path / "work", contained, opaque=True)
    assert listing(view.path)["2.tif"] == listing(view.path)["stack/2.tif"] == b"z"
    assert not any(path.is_symlink() for path in view.path.rglob("*"))


def test_broken_link_is_refused(source: Path, tmp_path: Path) -> None:
    (source / "lost.tif").symlink_to("nowhere")
    with pytest.raises(InputError, match=r"lost\.tif: the link is broken"):
        opaque_input(source, tmp_path / "work", True)


def test_loop_is_refused(source: Path, tmp_path: Path) -> None:
    (source / "deep" / "up").symlink_to(source)
    with pytest.raises(InputError, match="leads back"):
        opaque_input(source, tmp_path / "work", True)


def test_link_into_the_truth_is_refused(source: Path, tmp_path: Path) -> None:
    truth = source.parent / "evaluation"
    truth.mkdir()
    (truth / "0.tif").write_bytes(b"labels")
    (source / "labels.tif").symlink_to(truth / "0.tif")
    with pytest.raises(InputError, match="into the truth"):
        opaque_input(source, tmp_path / "work", True)


def test_special_file_is_refused(source: Path, tmp_path: Path) -> None:
    os.mkfifo(source / "pipe")
    with pytest.raises(InputError, match="pipe: neither a file nor a folder"):
        opaque_input(source, tmp_path / "work", False)


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        opaque_input(tmp_path / "nowhere", tmp_path / "work", True)


def test_a_clone_has_the_bytes_whatever_the_file_system_can(tmp_path: Path) -> None:
    path, target = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"x" * 10_000)
    assert _input_view._clone(path, target) in ("copied", "reflinked")
    assert target.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("opaque", [True, False])
def test_five_gigabytes_are_shown_without_a_copy(tmp_path: Path, opaque: bool) -> None:
    folder = tmp_path / "data" / "input"
    folder.mkdir(parents=True)
    with (folder / "stack.tif").open("wb") as stream:
        stream.truncate(5 << 30)
    view = opaque_input(folder, tmp_path / "0123456789abcdef", True, opaque=opaque)
    shown = view.path / "stack.tif"
    assert view.how == ("bound" if opaque else "linked")
    assert shown.stat().st_ino == (folder / "stack.tif").stat().st_ino
    assert not view.changed()
    with (folder / "stack.tif").open("r+b") as stream:
        stream.write(b"changed")
    assert view.changes() == ["stack.tif"]
    view.remove()
    assert (folder / "stack.tif").stat().st_size == 5 << 30
