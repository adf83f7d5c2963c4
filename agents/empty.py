"""An agent that does nothing: the floor of both scales."""

from __future__ import annotations

from typing import ClassVar

from agents.base import Agent, Launch, Session


class Empty(Agent):
    """Ends at once and leaves no file."""

    name: ClassVar[str] = "empty"
    description: ClassVar[str] = "does nothing; fixes the bottom of both scales"
    synthetic: ClassVar[bool] = True

    def launch(self, session: Session) -> Launch:
        return Launch(("true",))
