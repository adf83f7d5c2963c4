"""The tools of our own loop."""

from __future__ import annotations

import base64
import io
import time
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from agents import _api_loop as loop


def test_a_command_returns_output_and_exit_code() -> None:
    assert loop.call("bash", {"command": "echo a; echo b >&2; exit 3"}) == ("a\nb\n\n[exit code 3]", True, 3)
    assert loop.call("python", {"code": "print(6 * 7)"}) == ("42\n\n[exit code 0]", False, 0)


def test_a_command_is_stopped_after_its_time_with_its_children() -> None:
    begun = time.monotonic()
    said, failed, code = loop.call("bash", {"command": "echo begun; sleep 60 & sleep 60", "timeout": 1})
    assert (failed, code) == (True, None)
    assert "begun" in said
    assert "stopped after its time" in said
    assert time.monotonic() - begun < 20


def test_a_child_in_the_background_does_not_hold_the_loop() -> None:
    begun = time.monotonic()
    assert loop.call("bash", {"command": "sleep 20 & echo $!"})[2] == 0
    assert time.monotonic() - begun < 10


def test_long_output_is_cut() -> None:
    said = loop.call("bash", {"command": "yes | head -c 1000000"})[0]
    assert len(said) < loop.MAX_OUTPUT + 100
    assert "[output cut]" in said


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [("bash", {}, "missing"), ("view_image", {"path": "/no/such.png"}, "No such file"), ("fly", {}, "no tool fly"),
     ("view_image", {"path": "/etc/passwd"}, "identify")],
)  # fmt: skip
def test_faults_are_told_to_the_model(name: str, given: dict[str, str], words: str) -> None:
    said, failed, _ = loop.call(name, given)
    assert failed
    assert words in said


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_microscopy_images_are_shown_as_png(tmp_path: Path, dtype: type) -> None:
    ramp = np.tile(np.linspace(0, 200, 3000), (40, 1)).astype(dtype)
    tifffile.imwrite(tmp_path / "a.tif", ramp)
    (block,) = loop.view(str(tmp_path / "a.tif"))
    assert block["source"]["media_type"] == "image/png"
    shown = Image.open(io.BytesIO(base64.b64decode(block["source"]["data"])))
    assert max(shown.size) <= loop.MAX_SIDE
    pixels = np.asarray(shown)
    assert pixels[0, 0] < 5
    assert pixels[0, -1] > 190


def test_a_cache_mark_changes_no_text() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    marked = loop.cached(messages)
    assert marked[0]["content"][0]["text"] == "a"
    assert "cache_control" in marked[0]["content"][0]
    assert "cache_control" not in messages[0]["content"][0]
