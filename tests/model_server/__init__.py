"""A model provider on loopback that follows a script: three protocols, streams, faults, and a record of all requests.

It speaks Anthropic Messages, OpenAI Responses and OpenAI Chat Completions, streamed or not, as the real programs expect
them, so that agents can be run end to end without a model. Example::

    with ModelServer([Turn(shell="echo 1 > /output/a.csv"), Turn(text="Done.")]) as server:
        ...  # point an agent's base URL at server.url (Anthropic) or f"{server.url}/v1" (OpenAI)
    assert server.requests[0].model == "some-model"
"""

from __future__ import annotations

from tests.model_server.script import Counts, Fault, Request, Turn
from tests.model_server.server import ModelServer

__all__ = ["Counts", "Fault", "ModelServer", "Request", "Turn"]
