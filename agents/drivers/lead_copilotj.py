"""CopilotJ's leader agent, without its window: runs in CopilotJ's environment, talks to the bridge.

CopilotJ has moved its classes and renamed its settings between releases, so each is found by its definition in the
installed package, and both forms of the settings are set. The instruction is passed as it is: no preamble, no nudge.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import json
import logging
import os
import re
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agents.drivers._driver import obey_sigterm, read_job, service_fault
else:  # beside this file, wherever it is shown
    from _driver import obey_sigterm, read_job, service_fault

sys.path.pop(0)


def find(name: str) -> Any:
    """Return the class or function that CopilotJ's package defines under a name; ``None`` where there is none."""
    spec = importlib.util.find_spec("copilotj")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the package copilotj is not installed in this environment")
    wanted = re.compile(rf"^(?:async def|def|class) {name}\b", re.M)
    for root in map(Path, spec.submodule_search_locations):
        for path in sorted(root.rglob("*.py")):
            if wanted.search(path.read_text(encoding="utf-8", errors="replace")):
                parts = path.relative_to(root).with_suffix("").parts
                words = [word for word in ("copilotj", *parts) if word != "__init__"]
                return getattr(importlib.import_module(".".join(words)), name)
    return None


def settings(job: dict[str, Any]) -> dict[str, str]:
    """Return CopilotJ's settings in its old and its new spelling; the image model is the model under test too."""
    values: dict[str, str] = {}
    for prefix in ("COPILOTJ_", "COPILOTJ_LLM_", "COPILOTJ_VLM_"):
        values |= {
            f"{prefix}MODEL": job["model"],
            f"{prefix}API_KEY": job["key"],
            f"{prefix}BASE_URL": job["base_url"],
        }
    return values | {"COPILOTJ_KB_AUTOSAVE": "0"}


def meter(job: dict[str, Any], send: Any) -> int:
    """Wrap the calls of CopilotJ's model clients: set the effort, report refusals and faults; return how many."""
    wrapped = 0
    for name in ("OpenAIClient", "OpenAIResponsesClient", "OpenAIChatClient", "OpenAICompatibleClient"):
        client = find(name)
        if client is None or not hasattr(client, "_create"):
            continue
        client._create = _metered(client._create, job, send)
        wrapped += 1
    send("effort", applied=job["effort"] if wrapped else None)
    return wrapped


def _metered(create: Any, job: dict[str, Any], send: Any) -> Any:
    async def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if job["effort_style"] == "openrouter":
            extra = dict(keywords.get("extra_body") or {})
            keywords["extra_body"] = {**extra, "reasoning": {"effort": job["effort"]}}
        else:
            keywords["reasoning_effort"] = job["effort"]
        try:
            answer = create(self, *arguments, **keywords)
            answer = await answer if inspect.isawaitable(answer) else answer
        except Exception as error:
            found = service_fault(error)
            if found is not None:
                send(found.pop("event"), **found)
            raise
        why = _refusal(answer)
        send("answered") if why is None else send("refusal", why=why)
        return answer

    return call


def _refusal(answer: Any) -> str | None:
    for choice in getattr(answer, "choices", None) or ():
        said = getattr(getattr(choice, "message", None), "refusal", None)
        if getattr(choice, "finish_reason", None) == "content_filter" or said:
            return str(said or "the provider ended the reply: content_filter")
    return None


def headless() -> Any:
    """Return a window that is none: it agrees, and has no hands."""
    base = find("HeadlessUI")
    if base is not None:
        return base()

    class Nobody:
        def __getattr__(self, name: str) -> Any:
            async def answer(*_: Any, **__: Any) -> Any:
                return True if "confirm" in name else ""

            return answer

    return Nobody()


async def attach(job: dict[str, Any]) -> Any:
    """Connect to the bridge's plugin client."""
    for name in ("attach_dev_client", "attach_single_client"):
        function = find(name)
        if function is not None:
            api = find("HTTPPluginAPI") or find("HttpPluginAPI")
            target = api(job["bridge_url"]) if api is not None else job["bridge_url"]
            found = function(target)
            return await found if inspect.isawaitable(found) else found
    raise SystemExit("this CopilotJ has neither attach_dev_client nor attach_single_client")


async def work(job: dict[str, Any]) -> int:
    """Run one dialog. CopilotJ calls some dialogs failed and still ends normally; the files say what it delivered."""
    client = await attach(job)
    leader_class = find("LeaderDriven")
    if leader_class is None:
        raise SystemExit("this CopilotJ has no LeaderDriven")
    options: dict[str, Any] = {"ui": headless()}
    if "cfg" in inspect.signature(leader_class).parameters and (config := find("Config")) is not None:
        options["cfg"] = config()
    await leader_class(client, **options).run(job["instruction"])
    return 0


def main() -> int:
    """Run the job; return the exit code."""
    obey_sigterm()
    job = read_job()
    stream = os.fdopen(job.pop("events"), "w", encoding="utf-8", errors="replace")

    def send(event: str, **fields: Any) -> None:
        stream.write(json.dumps({"event": event, **fields}, default=str) + "\n")
        stream.flush()

    values = settings(job)
    os.environ.update(values)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s - %(name)s - %(levelname)s - %(message)s")
    try:
        load = find("load_env")
        if load is not None:
            load()
        meter(job, send)
        return asyncio.run(work(job))
    except Exception:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    sys.exit(main())
