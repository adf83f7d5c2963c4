"""What the probe finds is what an agent finds, and it is asked once."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from biabench_plugin import probe as probing
from biabench_plugin.isolation import Containment
from biabench_plugin.probe import probe


def test_finds_libraries_of_the_prefix(boxed: Containment) -> None:
    found = probe(boxed, python_prefix=True)
    python = found["python"]
    assert isinstance(python, dict)
    assert python["libraries"]["numpy"] == version("numpy")
    assert python["version"] == ".".join(map(str, sys.version_info[:3]))
    assert python["cpus"] == len(os.sched_getaffinity(0))


def test_finds_tools_of_an_environment_first(boxed: Containment, tmp_path: Path) -> None:
    tool = tmp_path / "env" / "bin" / "fiji"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    weights = tmp_path / "weights"
    (weights / "cellpose").mkdir(parents=True)
    found = probe(boxed, tool_env=tool.parent.parent, weights=weights)
    assert found["tools"]["fiji"] == str(tool)  # type: ignore[index]
    assert found["weights"] == ["cellpose"]
    assert found["gpus"] == []


def test_is_asked_once_for_each_environment(
    boxed: Containment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    look = probing._look

    def counted(*arguments: object) -> dict[str, object]:
        asked.append(arguments)
        return look(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(probing, "_look", counted)
    tools = tmp_path / "env"
    (tools / "bin").mkdir(parents=True)
    first = probe(boxed, cache_dir=tmp_path / "cache", tool_env=tools)
    assert probe(boxed, cache_dir=tmp_path / "cache", tool_env=tools) == first
    assert len(asked) == 1
    (tools / "bin" / "ilastik").touch(mode=0o755)
    os.utime(tools / "bin", (0, 0))
    assert "ilastik" in probe(boxed, cache_dir=tmp_path / "cache", tool_env=tools)["tools"]  # type: ignore[operator]
    assert len(asked) == 2
