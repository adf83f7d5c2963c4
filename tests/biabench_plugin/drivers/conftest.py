"""Stand-ins for programs that no registry holds, laid out as the wrappers look for them, and a loopback model."""

from __future__ import annotations

import importlib.util
import shutil
import stat
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).resolve().parent
STAND_INS = HERE / "stand_ins"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"biabench_tests_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def serve() -> Callable[..., object]:
    """Return the context manager that serves scripts as a model."""
    return _load("chat_server").serve  # type: ignore[no-any-return]


def _python(environment: Path) -> None:
    """Make a folder look like a virtual environment over this interpreter's base."""
    (environment / "bin").mkdir(parents=True)
    base = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    for name in ("python", "python3"):
        (environment / "bin" / name).symlink_to(base)
    (environment / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")


def _program(path: Path) -> None:
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


@pytest.fixture(scope="session")
def agents_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with every agent where ``biabench setup`` and the documentation put it."""
    home = tmp_path_factory.mktemp("agents")
    shutil.copytree(STAND_INS / "copilotj_checkout", home / "copilotj")
    _python(home / "copilotj" / ".venv")
    (home / "Fiji" / "plugins").mkdir(parents=True)
    (home / "Fiji" / "plugins" / "CopilotJBridge-1.0.0.jar").touch()
    shutil.copy(STAND_INS / "fiji-linux-x64", home / "Fiji")
    _program(home / "Fiji" / "fiji-linux-x64")

    _python(home / "biomni")
    packages = home / "biomni" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    shutil.copytree(STAND_INS / "biomni_packages", packages)
    (packages / "biomni-0.0.8.dist-info").mkdir()
    (packages / "analysis.pth").write_text(sysconfig.get_path("purelib") + "\n")  # visible with --agent-env

    (home / "agentic_j" / ".apptainer").mkdir(parents=True)
    (home / "agentic_j" / "imagentj_config.yaml").write_text("models: {supervisor: other/model, extra: other/model}\n")
    (home / "agentic_j" / "qdrant_data").mkdir()
    (home / "agentic_j" / "qdrant_data" / "index.bin").write_bytes(b"x" * 2000)
    return home


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with ``docker`` and ``apptainer``, for ``PATH``."""
    folder = tmp_path_factory.mktemp("engines")
    for name in ("docker", "apptainer"):
        program = folder / name
        text = (STAND_INS / "agentic_j" / "engine.py").read_text()
        program.write_text(text.replace("#!/usr/bin/env python3", f"#!{sys.executable}"))
        _program(program)
    root = folder / "rootfs"
    (root / sys.prefix[1:]).mkdir(parents=True)  # where the stand-in shows this interpreter
    hooks = root / "app" / "src" / "imagentj" / "benchmark_gui_hooks.py"
    hooks.parent.mkdir(parents=True)
    hooks.write_text("BENCHMARK_ENUMERATE_INPUTS BENCHMARK_DUPLICATE_OUTPUTS BENCHMARK_WORKSPACE_SUBDIR\n")
    for name in ("app/.imagentj", "app/data", "app/qdrant_data", "app/scripts/saved_scripts", "opt/appose"):
        (root / name).mkdir(parents=True)
    for name in ("plugins", "jars"):
        (root / "opt" / "Fiji.app" / name).mkdir(parents=True)
        (root / "opt" / "Fiji.app" / name / "part.jar").write_text("jar")
    shutil.copy(STAND_INS / "agentic_j" / "imagentj.py", root / "app")
    (root / "app" / "imagentj_config.yaml").touch()
    entry = root / "docker-entrypoint.sh"
    entry.write_text("#!/bin/sh\nexport DISPLAY=:1\nexec python /app/imagentj.py :1\n")
    _program(entry)
    return folder
