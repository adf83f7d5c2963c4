"""Run pytest as a user does: a process of its own, in an empty folder, with demo data cached once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from biabench_plugin.records import TrialRecord
from tests.samples import TINY_DEMO, trial_record

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


@pytest.fixture(scope="session", autouse=True)
def ctrl_c() -> None:
    """A shell starts what it runs in the background deaf to Ctrl-C, and children would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def demo_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the cache in which all tests of a session find demo data, built once."""
    return Path(os.environ.get("BIABENCH_CACHE") or tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def run_pytest(demo_cache: Path) -> Callable[..., Session]:
    """Return a function that runs ``pytest ARGS`` in ``cwd``."""

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
                "BIABENCH_CACHE": str(demo_cache),
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
        text = re.sub(r"(?ms)^data:\n.*?(?=^[a-z])", "", text)  # its demo is another one
        for old, new in changes.items():
            assert old in text, old
            text = text.replace(old, new)
        folder = tmp_path / "tasks_of_mine" / slug
        folder.mkdir(parents=True)
        (folder / "task.yaml").write_text(text, encoding="utf-8")
        for level in ("brief", "detailed"):
            (folder / f"{level}.md").write_text("Please count the cells in every image.\n", encoding="utf-8")
        (folder / "demo.py").write_text(TINY_DEMO, encoding="utf-8")
        return folder.parent

    return make


@pytest.fixture
def make_record() -> Callable[..., TrialRecord]:
    return trial_record
