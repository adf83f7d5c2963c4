"""The protocol that every agent follows: say how to start it, then read what it left.

Adding an agent is one module with a class like :class:`Agent` and one row in :data:`agents.AGENTS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from agents.endpoints import Endpoint, Protocol
from agents.transcript import Step


@dataclass(frozen=True)
class Bind:
    """A file or folder of the host that an agent may see, at ``target`` inside its view.

    A target other than the source's own path needs containment: without it the launch is refused.
    """

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True)
class OwnContainer:
    """Containment that an agent brings: a container engine, and where its image has input and output.

    Its driver runs outside, is our own code, and shows the container nothing but the trial's input (read-only), its
    output and private folders.
    """

    engine: str
    input_dir: str
    output_dir: str


@dataclass(frozen=True)
class Session:
    """What an agent is told about one trial. Paths are those that the agent itself sees.

    ``truth_dir`` and ``task_dir`` are set only for agents that declare ``reads_truth`` (the synthetic ones, which run
    outside containment). ``endpoint`` is where the model is, for agents that declare a ``protocol``. ``web`` says
    whether the agent may search the web with tools of its own; ``None`` leaves that as the study had it.
    """

    instruction: str
    instruction_file: str
    input_dir: str
    output_dir: str
    budget_seconds: float
    model: str | None = None
    effort: str = "medium"
    command: str | None = None
    truth_dir: Path | None = None
    task_dir: Path | None = None
    home_dir: str = "/home/user"
    endpoint: Endpoint | None = None
    web: bool | None = None
    network: str = "open"

    @property
    def contained(self) -> bool:
        """Whether paths are the neutral ones of containment."""
        return self.input_dir == "/input"


@dataclass(frozen=True)
class Launch:
    """How to start an agent: everything it needs, declared, so that containment can allow exactly that.

    Parameters
    ----------
    argv
        Program and arguments, as seen from inside.
    stdin
        Bytes for standard input; ``None`` closes it.
    environment
        Variables of the agent's own; nothing else of the operator's environment passes.
    pass_environment
        Names of variables taken over from the operator where they are set (a key for this agent alone).
    binds
        Files and folders of the host, besides the system, that it needs.
    python_prefix
        Whether it runs on this interpreter: its prefix is then visible, read-only, and ``python`` is a private layer
        over it into which ``pip install`` works.
    home_files
        Files to write below the agent's HOME before it starts: path to text.
    """

    argv: tuple[str, ...]
    stdin: bytes | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    pass_environment: tuple[str, ...] = ()
    binds: tuple[Bind, ...] = ()
    python_prefix: bool = False
    home_files: Mapping[str, str] = field(default_factory=dict)


class Usage(BaseModel):
    """What a run consumed. A signal that an agent does not give stays ``None``, never 0.

    ``input_tokens`` is the whole prompt; ``cached_tokens`` (read from a cache) and ``cache_write_tokens`` are parts of
    it, and ``reasoning_tokens`` is a part of ``output_tokens``: nothing is counted twice. ``tool_calls`` and
    ``executed_blocks`` mean what the agent itself calls so, and are not comparable between agents.
    """

    model_config = ConfigDict(extra="forbid")

    input_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    tool_calls: int | None = None
    executed_blocks: int | None = None
    requests: int | None = None  # to a model
    cost_usd: float | None = None
    cost_source: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class Evidence:
    """What was read from an agent's logs after it ended.

    ``review`` holds what a person should look at, because the signals do not decide it.
    """

    usage: Usage = field(default_factory=Usage)
    final_message: str | None = None
    refused: str | None = None  # the provider's structured refusal, never words printed by the agent
    infrastructure: str | None = None  # a structured fault of provider or host
    steps: Sequence[Step] = ()
    review: tuple[str, ...] = ()


class Agent:
    """Base class: an agent that is started once and left alone.

    ``contained`` is ``False`` only for our own synthetic agents, which read truth; records say so. ``version`` enters
    the resume key: raise it when the agent's behaviour changes.
    """

    name: ClassVar[str]
    version: ClassVar[str] = "1"
    description: ClassVar[str] = ""
    contained: ClassVar[bool] = True
    reads_truth: ClassVar[bool] = False
    needs_model: ClassVar[bool] = False
    effort_control: ClassVar[bool] = False  # whether a reasoning effort can be set
    synthetic: ClassVar[bool] = False  # fixes an end of the scale; never ranked among real agents
    protocol: ClassVar[Protocol | None] = None  # how it speaks to its model, for agents that take a base URL
    keeps: ClassVar[tuple[str, ...]] = ()  # patterns below HOME of logs to keep; ``read`` finds them in logs/home

    def unavailable(self) -> str | None:
        """Say why this agent cannot run here and what would help, or ``None``."""
        return None

    def container(self) -> OwnContainer | None:
        """Return the container that this agent runs in, where it brings its own; ``None``: it is put into ours."""
        return None

    def fingerprint(self) -> str:
        """Identity of the agent's own code for the resume key, beyond ``version``."""
        return self.version

    def effort_word(self, effort: str) -> str:
        """Return the word for an effort that this agent's requests carry."""
        return effort

    def launch(self, session: Session) -> Launch:
        """Return how to start the agent on ``session``."""
        raise NotImplementedError

    def read(self, stdout: Path, stderr: Path, output_dir: Path) -> Evidence:
        """Read usage, closing message, transcript and structured faults from what the run left.

        ``stdout.parent / "home"`` holds the files that ``keeps`` names. They, unlike the two streams, lay where the
        agent could write.
        """
        return Evidence()
