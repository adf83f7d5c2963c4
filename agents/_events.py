"""What the wrappers share to turn an agent's own events into the canonical transcript."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agents.transcript import Step, StepKind

_MOST_TEXT = 40_000  # characters of one field of one step
_MOST_STEPS = 200_000
_IMAGE = re.compile(r"\.(png|jpe?g|gif|webp|tiff?|bmp)$", re.IGNORECASE)
_URL = re.compile(r"https?://[^\s'\"<>\\)\]}]+")


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file of lines; what is none (a warning, a cut last line) is passed over."""
    try:
        with path.open("rb") as stream:
            for line in stream:
                if not line.lstrip().startswith(b"{"):
                    continue
                try:
                    found = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(found, dict):
                    yield found
    except FileNotFoundError:
        return


def is_image(path: str) -> bool:
    """Tell from its name whether a file is an image."""
    return bool(_IMAGE.search(path))


def addresses(text: str) -> list[str]:
    """Return the web addresses in a text, each once, loopback ones left out."""
    found = dict.fromkeys(url.rstrip(".,;:") for url in _URL.findall(text))
    return [url for url in found if not re.match(r"https?://(127\.|localhost|\[::1\])", url)]


def obj(value: Any) -> dict[str, Any]:
    """Return a JSON object, an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a JSON list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text(value: Any) -> str:
    """Return a JSON string, or an empty one."""
    return value if isinstance(value, str) else ""


def count(value: Any) -> int | None:
    """Return a JSON whole number that is no boolean and not negative, else ``None``."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


class Steps:
    """Collects the steps of a transcript, numbers them, and keeps them small and storable."""

    def __init__(self) -> None:
        self.found: list[Step] = []

    def add(self, kind: StepKind, **fields: Any) -> Step | None:
        """Append a step; return it, so that a later event (a tool's result) can complete it."""
        if len(self.found) >= _MOST_STEPS:
            return None
        step = Step(step=len(self.found) + 1, kind=kind)
        self.found.append(step)
        self.complete(step, **fields)
        return step

    def complete(self, step: Step | None, **fields: Any) -> None:
        """Fill fields of a step; long text is shortened in its middle, and the step says so."""
        if step is None:
            return
        for name, value in fields.items():
            if isinstance(value, str):
                value, cut = _storable(value)
                step.shortened |= cut
            elif isinstance(value, list):
                value = [_storable(item)[0] for item in value]
            setattr(step, name, value)

    def insert(self, position: int, step: Step) -> None:
        """Put a step that another source tells of where it belongs; :meth:`close` numbers all anew."""
        self.found.insert(position, step)

    def close(self, final: str | None) -> tuple[Step, ...]:
        """Return the steps, with the closing message as the last one."""
        if final and final.strip():
            said = self.found[-1] if self.found else None
            if said is not None and said.kind == "message" and said.text == _storable(final)[0]:
                said.kind = "final"
            else:
                self.add("final", text=final)
        for number, step in enumerate(self.found, 1):
            step.step = number
        return tuple(self.found)


def _storable(value: str) -> tuple[str, bool]:
    clean = value.encode("utf-8", "replace").decode()
    if len(clean) <= _MOST_TEXT:
        return clean, False
    half = _MOST_TEXT // 2
    left = len(clean) - 2 * half
    return f"{clean[:half]}\n[… {left} characters left out …]\n{clean[-half:]}", True
