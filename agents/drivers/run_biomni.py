"""Run Biomni's agent ``A1`` on one instruction, in Biomni's own environment.

Every model that Biomni makes, for its agent and for its tools, is the one under test, and is metered where it is
called: ``A1`` itself drops what a call used. Code that the model writes runs in this process, as Biomni does it; the
events are therefore the agent's word, and the relay's ledger is the measurement.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agents.drivers._driver import Events, obey_sigterm, read_job, service_fault
else:  # beside this file, wherever it is shown
    from _driver import Events, obey_sigterm, read_job, service_fault


def _usage(message: Any, output: Any) -> dict[str, int]:
    """Return a call's tokens; what the provider did not say is left out."""
    found = getattr(message, "usage_metadata", None) or {}
    if found:
        names = {
            "input_tokens": found.get("input_tokens"),
            "output_tokens": found.get("output_tokens"),
            "cached_tokens": (found.get("input_token_details") or {}).get("cache_read"),
            "reasoning_tokens": (found.get("output_token_details") or {}).get("reasoning"),
        }
    else:
        token_usage = (output or {}).get("token_usage") or {}
        names = {
            "input_tokens": token_usage.get("prompt_tokens"),
            "output_tokens": token_usage.get("completion_tokens"),
        }
    return {name: value for name, value in names.items() if isinstance(value, int)}


def _meter(events: Events) -> Any:
    from langchain_core.callbacks import BaseCallbackHandler

    class Meter(BaseCallbackHandler):  # type: ignore[misc]
        """Sees every model call of the process."""

        def on_llm_end(self, response: Any, **_: Any) -> None:
            message = getattr(response.generations[0][0], "message", None)
            about = getattr(message, "response_metadata", None) or {}
            events.send("usage", model=about.get("model_name"), **_usage(message, response.llm_output))
            content = getattr(message, "content", "")
            extra = getattr(message, "additional_kwargs", None) or {}
            if about.get("finish_reason") == "content_filter" or extra.get("refusal"):
                events.send("refusal", why=str(extra.get("refusal") or "the provider ended the reply: content_filter"))
            else:
                events.send("answered")
            events.send("step", kind="message", text=content if isinstance(content, str) else str(content))

        def on_llm_error(self, error: BaseException, **_: Any) -> None:
            found = service_fault(error)
            if found is not None:
                events.send(found.pop("event"), **found)

    return Meter()


def _prepare_models(job: dict[str, Any], meter: Any) -> None:
    """Make every model of Biomni the one under test, metered, at the effort asked for."""
    import biomni.llm

    make = biomni.llm.get_llm

    def metered(*arguments: Any, **keywords: Any) -> Any:
        model = make(*arguments, **keywords)
        model.callbacks = [*(getattr(model, "callbacks", None) or []), meter]
        if job["effort_style"] == "openrouter":
            model.extra_body = {**(getattr(model, "extra_body", None) or {}), "reasoning": {"effort": job["effort"]}}
        else:
            model.reasoning_effort = job["effort"]
        return model

    biomni.llm.get_llm = metered


def _watch_blocks(events: Events) -> None:
    """Report each executed block: its code, what came out, and how long it took."""
    import biomni.agent.a1 as module

    run = module.run_with_timeout

    def reported(function: Any, args: Any = None, *more: Any, **keywords: Any) -> Any:
        begun = time.monotonic()
        result = run(function, args, *more, **keywords)
        events.send(
            "step",
            kind="tool",
            tool=getattr(function, "__name__", "execute").removeprefix("run_"),
            code=str(args[0]) if args else None,
            output=str(result),
            seconds=round(time.monotonic() - begun, 3),
        )
        return result

    module.run_with_timeout = reported


def _configure(job: dict[str, Any]) -> None:
    """Set Biomni's settings; the key is taken out of the environment again, so that no child inherits it."""
    packages = Path(os.environ["HOME"], ".packages")  # the environment itself is read-only
    os.environ.update(
        BIOMNI_LLM=job["model"],
        BIOMNI_SOURCE="Custom",
        BIOMNI_CUSTOM_BASE_URL=job["base_url"],
        BIOMNI_CUSTOM_API_KEY=job["key"],
        BIOMNI_TIMEOUT_SECONDS=str(job["step_seconds"]),
        BIOMNI_PATH=str(Path(os.environ["HOME"], "biomni")),
        PIP_TARGET=str(packages),
        PYTHONPATH=str(packages),
        MPLBACKEND="Agg",
        PATH=f"{Path(sys.prefix, 'bin')}:{os.environ.get('PATH', '')}",
    )
    sys.path.append(str(packages))
    import biomni.config  # noqa: F401 - reads the variables now

    del os.environ["BIOMNI_CUSTOM_API_KEY"]


def main() -> int:
    """Run the job; return the exit code."""
    events = Events()
    obey_sigterm()
    job = read_job()
    os.chdir(job["output"])
    _configure(job)
    _prepare_models(job, _meter(events))
    from biomni.agent import A1

    _watch_blocks(events)
    events.send("limits", step_seconds=job["step_seconds"])
    agent = A1(
        path=os.environ["BIOMNI_PATH"],
        llm=job["model"],
        source="Custom",
        base_url=job["base_url"],
        api_key=job["key"],
        timeout_seconds=job["step_seconds"],
        expected_data_lake_files=[],  # otherwise 11 GB are downloaded first
    )
    try:
        _log, final = agent.go(job["instruction"])
    except Exception:
        traceback.print_exc()
        return 1
    events.send("final", text=str(final))
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # a block that ran over its time is a thread that nothing can end
