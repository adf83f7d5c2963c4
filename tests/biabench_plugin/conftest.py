"""Run pytest as a user does: a process of its own, in an empty folder, with demo data cached once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Session:
    """A finished pytest process and what it left."""

    code: int
    out: str
    campaign: Path

    def properties(self) -> dict[str, dict[str, str]]:
        """JUnit user properties per item name."""
        root = ElementTree.parse(self.campaign / "junit.xml").getroot()
        return {
            f"{case.get('classname')}::{case.get('name')}": {
                str(node.get("name")).removeprefix("biabench."): str(node.get("value"))
                for node in case.iter("property")
            }
            for case in root.iter("testcase")
        }


@pytest.fixture(scope="session")
def run_pytest(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Session]:
    """Return a function that runs ``pytest ARGS`` in ``cwd``."""
    cache = tmp_path_factory.mktemp("cache")

    def run(*args: str, cwd: Path, campaign: Path | None = None, environment: dict[str, str] | None = None) -> Session:
        folder = campaign or cwd / "campaign"
        if any(argument.startswith(("--agent=", "--agent", "--config")) for argument in args):
            args = (*args, f"--campaign={folder}")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "biabench_plugin.plugin", "-p", "no:cacheprovider", *args],
            cwd=cwd,
            env={
                **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
                "PYTHONPATH": str(ROOT),
                "BIABENCH_CACHE": os.environ.get("BIABENCH_CACHE", str(cache)),
                "COLUMNS": "200",
                **(environment or {}),
            },
            capture_output=True,
            text=True,
            timeout=600,
        )
        return Session(done.returncode, done.stdout + done.stderr, folder)

    return run


@pytest.fixture
def make_task(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a small counting task into a folder of tasks of its own."""

    def make(slug: str = "tiny", **changes: str) -> Path:
        text = (ROOT / "tasks" / "cell_counting" / "task.yaml").read_text(encoding="utf-8")
        text = text.replace("slug: cell_counting", f"slug: {slug}")
        for old, new in changes.items():
            assert old in text, old
            text = text.replace(old, new)
        folder = tmp_path / "tasks_of_mine" / slug
        folder.mkdir(parents=True)
        (folder / "task.yaml").write_text(text, encoding="utf-8")
        for level in ("brief", "detailed"):
            (folder / f"{level}.md").write_text("Please count the cells in every image.\n", encoding="utf-8")
        (folder / "demo.py").write_text(_DEMO, encoding="utf-8")
        return folder.parent

    return make


_DEMO = '''"""Two images, three cells and none."""

import numpy as np
import tifffile


def make(destination, seed):
    for name in ("input", "evaluation"):
        (destination / name).mkdir(parents=True)
    points = [(10, 12), (30, 40), (50, 20)]
    image = np.full((64, 64), 10, np.uint8)
    for x, y in points:
        image[y - 2 : y + 3, x - 2 : x + 3] = 200
    tifffile.imwrite(destination / "input" / "0.tiff", image)
    tifffile.imwrite(destination / "input" / "1.tiff", np.full((64, 64), 10, np.uint8))
    rows = "".join(f"{x},{y}\\n" for x, y in points)
    (destination / "evaluation" / "0.csv").write_text("X,Y\\n" + rows)
    (destination / "evaluation" / "1.csv").write_text("X,Y\\n")
'''
