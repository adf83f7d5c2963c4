"""Agentic-J: its published container, under Apptainer or Docker, behind one driver."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any, ClassVar

import yaml

from agents.base import Launch, OwnContainer, Session
from agents.driven import DRIVERS, Driven, Service, agents_home

_ROLES = ("supervisor", "worker", "analyst", "nano", "curator", "vlm")
_LFS_STUB_BYTES = 1024
_ENGINE_FIX = {"apptainer": "conda install -c conda-forge apptainer", "docker": "apt-get install docker.io"}


class AgenticJ(Driven):
    """The container is the containment: it sees the trial's input and output, and nothing else of the host."""

    name: ClassVar[str] = "agentic_j"
    description: ClassVar[str] = "Agentic-J in its own container (Apptainer or Docker), behind a driver"
    driver: ClassVar[str] = "run_agentic_j.py"
    usage_source: ClassVar[str] = "agentic_j: its result file"

    @property
    def checkout(self) -> Path:
        """``AGENTIC_J_DIR``, or ``agentic_j`` in the agents' folder."""
        named = os.environ.get("AGENTIC_J_DIR")
        return Path(named).expanduser().absolute() if named else agents_home() / "agentic_j"

    def image(self) -> tuple[str, str] | None:
        """Return engine and image: ``AGENTIC_J_SIF`` or the newest SIF of the checkout, else ``AGENTIC_J_IMAGE``."""
        named = os.environ.get("AGENTIC_J_SIF")
        found = [Path(named).absolute()] if named else list((self.checkout / ".apptainer").glob("*.sif"))
        images = sorted((path for path in found if path.is_file()), key=lambda path: path.stat().st_mtime)
        if images:
            return "apptainer", str(images[-1])
        docker = os.environ.get("AGENTIC_J_IMAGE")
        return ("docker", docker) if docker else None

    def installed(self) -> str | None:
        """Return the name of the image."""
        found = self.image()
        return None if found is None else Path(found[1]).name

    def container(self) -> OwnContainer:
        found = self.image()
        return OwnContainer("docker" if found is None else found[0], "/benchmark/input", "/benchmark/output")

    def unavailable(self) -> str | None:
        found = self.image()
        if found is None:
            return (
                f"no image of Agentic-J: put its SIF into {self.checkout / '.apptainer'} or name it with "
                "AGENTIC_J_SIF=FILE (Apptainer) or AGENTIC_J_IMAGE=NAME (Docker)"
            )
        if shutil.which(found[0]) is None:
            return f"{found[0]} is missing, which the image {found[1]} needs: {_ENGINE_FIX[found[0]]}"
        if not (self.checkout / "imagentj_config.yaml").is_file():
            missing = f"no imagentj_config.yaml in {self.checkout}"
            return f"{missing}: clone Agentic-J there (AGENTIC_J_DIR names another folder)"
        if (stub := self._stub()) is not None:
            return f"{stub} is a Git LFS stub, so retrieval would be off: run `git lfs pull` in {self.checkout}"
        return Service.chosen().missing()

    def _stub(self) -> Path | None:
        """Return a file of the knowledge base that Git LFS has not fetched."""
        for path in sorted((self.checkout / "qdrant_data").rglob("*")):
            if path.is_file() and path.stat().st_size <= _LFS_STUB_BYTES:
                with path.open("rb") as stream:
                    if stream.read(40).startswith(b"version https://git-lfs"):
                        return path
        return None

    def fingerprint(self) -> str:
        return f"{super().fingerprint()}:{self.installed()}"

    def launch(self, session: Session) -> Launch:
        found = self.image()
        if found is None:
            raise ValueError("no image of Agentic-J")
        if session.network == "model":
            raise ValueError("agentic_j cannot be confined to the relay: its container has no forwarder to it")
        engine, image = found
        qdrant = self.checkout / "qdrant_data"
        endpoint = Service.chosen()
        keys = {"OPEN_ROUTER_API_KEY": endpoint.key or ""}
        if endpoint.effort_style != "openrouter":
            keys = {"OPENAI_API_KEY": endpoint.key or "", "OPENAI_BASE_URL": endpoint.base_url}
        return Launch(
            argv=(sys.executable, "-E", "-s", "-B", str(DRIVERS / self.driver)),
            stdin=self.job(
                session,
                engine=engine,
                image=image,
                network=session.network,
                config=self._config(session),
                qdrant=str(qdrant) if qdrant.is_dir() else None,
                key_variables=keys,
                locks=None,
            ),
        )

    def _config(self, session: Session) -> str:
        """Return Agentic-J's configuration with every role on the model and the effort under test."""
        path = self.checkout / "imagentj_config.yaml"
        config: Any = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        if not isinstance(config, dict):
            raise ValueError(f"{path}: expected a mapping, found {type(config).__name__}")
        roles = dict.fromkeys((*_ROLES, *(config.get("models") or {})), session.model)
        config |= {"models": roles, "reasoning_effort": dict.fromkeys(roles, self.effort_word(session.effort))}
        return yaml.safe_dump(config, sort_keys=True)
