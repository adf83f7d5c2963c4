"""The whole harness of the agent ``api``: ask the model, run the tools that it calls, until it calls none.

It runs where the agent runs, on the Anthropic SDK, and imports nothing of this project. No system prompt, no nudge, no
limit on turns. What happens is written to standard output, one JSON object per line.
"""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from typing import Any

import anthropic

MAX_TOKENS = 32_000  # of one answer
MAX_OUTPUT = 30_000  # characters of a tool's output that the model gets
MAX_SIDE = 1_568  # pixels of an image that the model gets
DEFAULT_TIMEOUT = 600  # seconds of a command, where the model gives none
_PLAIN = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}

_TIMEOUT = {"type": "integer", "description": f"seconds after which it is stopped (default {DEFAULT_TIMEOUT})"}
TOOLS = [
    {
        "name": "bash",
        "description": "Run a shell command and return its output and exit code. Each call is a new shell.",
        "input_schema": {
            "type": "object",
            "properties": {"command": {"type": "string"}, "timeout": _TIMEOUT},
            "required": ["command"],
        },
    },
    {
        "name": "python",
        "description": "Run Python code and return what it prints and its exit code. Each call is a new interpreter.",
        "input_schema": {
            "type": "object",
            "properties": {"code": {"type": "string"}, "timeout": _TIMEOUT},
            "required": ["code"],
        },
    },
    {
        "name": "view_image",
        "description": (
            "Look at an image file (PNG, JPEG, TIFF and others). Of a stack, the first plane is shown; more than 8 "
            "bits are scaled to the range of the image; large images are reduced."
        ),
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
]


def tell(**event: Any) -> None:
    """Write one event."""
    print(json.dumps(event), flush=True)


def execute(words: list[str], timeout: Any) -> tuple[str, int | None]:
    """Run a program; return what it printed, shortened, and its exit code (``None`` when it was stopped)."""
    seconds = timeout if isinstance(timeout, int) and timeout > 0 else DEFAULT_TIMEOUT
    with tempfile.TemporaryFile() as output:  # a file, so that what it leaves in the background cannot hold us
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = None
        output.seek(0)
        said = output.read(4 * MAX_OUTPUT).decode(errors="replace")
    if len(said) > MAX_OUTPUT:
        said = said[:MAX_OUTPUT] + "\n[output cut]"
    return said, code


def view(path: str) -> list[dict[str, Any]]:
    """Return an image file as the content of a tool's result."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None
    with Image.open(path) as image:
        if image.format in _PLAIN and max(image.size) <= MAX_SIDE:
            with open(path, "rb") as stream:  # noqa: PTH123 (a path of the model's, as it wrote it)
                data, kind = stream.read(), _PLAIN[image.format]
        else:
            data, kind = _as_png(image), "image/png"
    source = {"type": "base64", "media_type": kind, "data": base64.standard_b64encode(data).decode()}
    return [{"type": "image", "source": source}]


def _as_png(image: Any) -> bytes:
    import numpy as np
    from PIL import Image

    if image.mode not in ("L", "RGB", "RGBA"):
        pixels = np.asarray(image, dtype=float)
        if image.mode in ("1", "P", "CMYK", "LA", "YCbCr"):
            image = image.convert("RGB")
        else:
            low, high = float(np.nanmin(pixels)), float(np.nanmax(pixels))
            image = Image.fromarray(((pixels - low) * (255.0 / ((high - low) or 1.0))).astype(np.uint8))
    image.thumbnail((MAX_SIDE, MAX_SIDE))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def call(name: str, given: dict[str, Any]) -> tuple[Any, bool, int | None]:
    """Run one tool; return the content of its result, whether it failed, and an exit code where there is one."""
    try:
        if name == "view_image":
            return view(str(given["path"])), False, None
        if name == "bash":
            said, code = execute(["bash", "-c", str(given["command"])], given.get("timeout"))
        elif name == "python":
            said, code = execute(["python3", "-c", str(given["code"])], given.get("timeout"))
        else:
            return f"there is no tool {name}", True, None
    except KeyError as error:
        return f"the argument {error} is missing", True, None
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}", True, None
    ending = "stopped after its time" if code is None else f"exit code {code}"
    return f"{said}\n[{ending}]", code != 0, code


def answer(content: Any) -> list[dict[str, Any]]:
    """Run every tool that an answer calls; return the results for the model."""
    results = []
    for block in content:
        if block.type != "tool_use":
            continue
        found, failed, code = call(block.name, block.input if isinstance(block.input, dict) else {})
        tell(type="result", id=block.id, output=found if isinstance(found, str) else "[image]", exit_code=code)
        results.append({"type": "tool_result", "tool_use_id": block.id, "content": found, "is_error": failed})
    return results


def cached(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with a cache mark on the last block; the text is unchanged."""
    *before, last = messages
    *blocks, final = last["content"]
    return [*before, {**last, "content": [*blocks, {**final, "cache_control": {"type": "ephemeral"}}]}]


def main(model: str, effort: str) -> int:
    """Run the loop on the instruction from standard input."""
    instruction = sys.stdin.buffer.read().decode()
    client = anthropic.Anthropic(timeout=None, max_retries=4)
    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": instruction}]}]
    extra = {"output_config": {"effort": effort}, "thinking": {"type": "adaptive"}}
    tell(type="start", anthropic=anthropic.__version__, model=model, effort=effort)
    while True:
        try:
            with client.messages.stream(
                model=model,
                max_tokens=MAX_TOKENS,
                messages=cached(messages),  # type: ignore[arg-type]
                tools=TOOLS,  # type: ignore[arg-type]
                extra_body=extra,
            ) as stream:
                message = stream.get_final_message()
        except (anthropic.APIError, AssertionError) as error:  # the SDK asserts that a stream held a message
            tell(type="error", kind=type(error).__name__, status=getattr(error, "status_code", None), text=str(error))
            return 1
        except Exception as error:  # a stream that was cut surfaces as the HTTP library's own error
            tell(type="error", kind=type(error).__name__, status=None, text=str(error))
            return 1
        tell(type="assistant", message=message.model_dump(mode="json", exclude_none=True))
        if message.stop_reason == "refusal":
            return 1
        messages.append({"role": "assistant", "content": message.model_dump(exclude_none=True)["content"]})
        results = answer(message.content)
        if results:
            messages.append({"role": "user", "content": results})
        elif message.stop_reason != "pause_turn":
            return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
