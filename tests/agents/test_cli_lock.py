"""The lockfile is whole: `npm ci` refuses one that is not, and takes no package whose digest is not locked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents import cli

PACKAGE: dict[str, Any] = json.loads((cli.FOLDER / "package.json").read_text(encoding="utf-8"))
LOCKED: dict[str, Any] = json.loads((cli.FOLDER / "package-lock.json").read_text(encoding="utf-8"))["packages"]


def test_every_dependency_is_locked_on_every_platform() -> None:
    names = {path.rpartition("node_modules/")[2] for path in LOCKED}
    wanted = {name for entry in LOCKED.values() for kind in ("dependencies", "optionalDependencies")
              for name in entry.get(kind, ())}  # fmt: skip
    assert wanted - names == set()


def test_versions_are_exact_and_the_lock_agrees() -> None:
    for kind in ("dependencies", "optionalDependencies"):
        assert LOCKED[""][kind] == PACKAGE[kind]
        for name, version in PACKAGE[kind].items():
            assert version[0].isdigit(), name
            assert LOCKED[f"node_modules/{name}"]["version"] == version


def test_what_linux_installs_has_its_digest_and_no_registry_is_named() -> None:
    for path, entry in LOCKED.items():
        assert "resolved" not in entry, path
        if path and "linux" in entry.get("os", ["linux"]) and "x64" in entry.get("cpu", ["x64"]):
            assert entry.get("integrity", "").startswith("sha"), path


def test_what_is_missing_is_said_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "npm ci" in str(cli.missing("@openai/codex", tmp_path / "codex"))
    program = tmp_path / "@openai" / "codex" / "codex"
    program.parent.mkdir(parents=True)
    program.touch()
    monkeypatch.setattr(cli, "MODULES", tmp_path)
    for version, said in ((cli.pinned("@openai/codex"), None), ("0.0.1", "installed at 0.0.1")):
        (program.parent / "package.json").write_text(json.dumps({"version": version}))
        found = cli.missing("@openai/codex", program)
        assert found is None if said is None else said in str(found)
