"""Agents that run behind a driver: one job in, one stream of events out, the same for all of them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import platformdirs
from pydantic import ValidationError

from agents.base import Agent, Bind, Evidence, Session, Usage
from agents.endpoints import EffortStyle, effort_style
from agents.transcript import Step

DRIVERS = Path(__file__).resolve().parent / "drivers"
_INSIDE = "/opt/driver"
_TOKENS = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
OUTPUT_CHARACTERS = 20_000  # of one tool call, in a transcript


def agents_home() -> Path:
    """Folder where ``biabench setup`` installs agents: ``BIABENCH_AGENTS`` or the user's data folder."""
    return Path(os.environ.get("BIABENCH_AGENTS") or platformdirs.user_data_path("biabench") / "agents").absolute()


@dataclass(frozen=True)
class Service:
    """An OpenAI-compatible service and the variable that holds its key, for an agent that cannot use the relay."""

    base_url: str
    key_variable: str

    @staticmethod
    def chosen() -> Service:
        """Return what ``BIABENCH_BASE_URL`` and ``BIABENCH_KEY_VARIABLE`` name; OpenRouter by default."""
        return Service(
            os.environ.get("BIABENCH_BASE_URL") or "https://openrouter.ai/api/v1",
            os.environ.get("BIABENCH_KEY_VARIABLE") or "OPENROUTER_API_KEY",
        )

    @property
    def key(self) -> str | None:
        return os.environ.get(self.key_variable) or None

    @property
    def effort_style(self) -> EffortStyle:
        """How the service is asked for a reasoning effort."""
        return effort_style(self.base_url)

    def missing(self) -> str | None:
        """Say which key is missing, and how to set it."""
        if self.key is None:
            return (
                f"no key for {self.base_url}: export {self.key_variable}=… "
                "(BIABENCH_KEY_VARIABLE=NAME names another variable)"
            )
        return None


class Driven(Agent):
    """Base of the agents behind a driver."""

    needs_model: ClassVar[bool] = True
    effort_control: ClassVar[bool] = True
    driver: ClassVar[str]  # file in agents/drivers
    usage_source: ClassVar[str]

    def fingerprint(self) -> str:
        """Digest of the drivers: an edited one is another experiment."""
        digest = hashlib.sha256(self.version.encode())
        for path in sorted(DRIVERS.glob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        return digest.hexdigest()[:16]

    def effort_word(self, effort: str) -> str:
        """Return the word of OpenAI's and OpenRouter's services for an effort."""
        return "xhigh" if effort == "max" else effort

    def driver_path(self, session: Session) -> tuple[str, tuple[Bind, ...]]:
        """Return the driver's path as the agent sees it, and what must be shown for it."""
        if contained(session):
            return f"{_INSIDE}/{self.driver}", (Bind(DRIVERS, _INSIDE),)
        return str(DRIVERS / self.driver), ()

    def job(self, session: Session, **more: Any) -> bytes:
        """Return the job for standard input. The key is in it and nowhere else: no variable, no argument, no file."""
        base_url, key, style = self._model_at(session)
        fields = {
            "instruction": session.instruction,
            "input": session.input_dir,
            "output": session.output_dir,
            "model": session.model,
            "effort": self.effort_word(session.effort),
            "effort_style": style,
            "base_url": base_url,
            "key": key,
        }
        return json.dumps(fields | more).encode()

    def _model_at(self, session: Session) -> tuple[str, str, EffortStyle]:
        """Return base URL, key and effort style: the session's, or without a protocol the chosen service's."""
        if self.protocol is None:
            chosen = Service.chosen()
            return chosen.base_url, chosen.key or "", chosen.effort_style
        assert session.endpoint is not None  # never the operator's own key in its place
        return session.endpoint.openai_v1, session.endpoint.key, session.endpoint.effort_style

    def read(self, stdout: Path, stderr: Path, output_dir: Path) -> Evidence:
        """Read the driver's events."""
        return _Reading(self.usage_source).read(stdout)


def contained(session: Session) -> bool:
    """Tell whether the session's paths are those of a view of its own."""
    return session.input_dir == "/input"


@dataclass
class _Reading:
    """What the events of a run add up to."""

    source: str
    steps: list[Step] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=dict)
    tool_calls: int | None = None
    final: str | None = None
    refused: str | None = None
    fault: str | None = None

    def read(self, path: Path) -> Evidence:
        for event in _events(path):
            handler = getattr(self, f"_on_{event.get('event')}", None)
            if handler is not None:
                handler(event)
        usage = Usage(
            input_tokens=self.tokens.get("input_tokens"),
            cached_tokens=self.tokens.get("cached_tokens"),
            output_tokens=self.tokens.get("output_tokens"),
            reasoning_tokens=self.tokens.get("reasoning_tokens"),
            tool_calls=self.tool_calls,
            source=self.source if self.tokens or self.tool_calls is not None else None,
        )
        return Evidence(
            usage=usage,
            final_message=self.final,
            refused=self.refused,
            infrastructure=self.fault,
            steps=tuple(self.steps),
        )

    def _on_usage(self, event: dict[str, Any]) -> None:
        self.tool_calls = self.tool_calls or 0
        self._add_tokens(event)

    def _on_answered(self, event: dict[str, Any]) -> None:
        self.refused = self.fault = None  # what was before did not end the run

    def _on_totals(self, event: dict[str, Any]) -> None:
        self.tokens = {}
        self._add_tokens(event)
        calls = _count(event.get("tool_calls"))
        self.tool_calls = self.tool_calls if calls is None else calls

    def _add_tokens(self, event: dict[str, Any]) -> None:
        for name in _TOKENS:
            value = _count(event.get(name))
            if value is not None:
                self.tokens[name] = self.tokens.get(name, 0) + value

    def _on_step(self, event: dict[str, Any]) -> None:
        fields = {name: value for name, value in event.items() if name in Step.model_fields and name != "step"}
        output = fields.get("output")
        if isinstance(output, str) and len(output) > OUTPUT_CHARACTERS:
            fields |= {"output": output[:OUTPUT_CHARACTERS], "shortened": True}
        try:
            step = Step.model_validate({**fields, "step": len(self.steps) + 1})
        except ValidationError as error:
            step = Step(step=len(self.steps) + 1, kind="error", text=f"an unreadable event: {error.errors()[0]['msg']}")
        self.steps.append(step)
        if step.kind == "tool":
            self.tool_calls = (self.tool_calls or 0) + 1

    def _on_final(self, event: dict[str, Any]) -> None:
        self.final = str(event.get("text", ""))
        self.steps.append(Step(step=len(self.steps) + 1, at=_time(event), kind="final", text=self.final))

    def _on_refusal(self, event: dict[str, Any]) -> None:
        self.refused = str(event.get("why") or "refused by the provider")

    def _on_fault(self, event: dict[str, Any]) -> None:
        self.fault = str(event.get("why") or "a fault of the provider")

    def _on_rejected(self, event: dict[str, Any]) -> None:
        self.steps.append(Step(step=len(self.steps) + 1, at=_time(event), kind="error", text=str(event.get("why"))))


def _count(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53:
        return value
    return None


def _time(event: dict[str, Any]) -> float | None:
    at = event.get("at")
    return float(at) if isinstance(at, int | float) else None


def _events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a run; the last line of a killed one may be cut, and an agent may have written others."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict):
                yield event
