"""Leader, client and settings, under the names that CopilotJ uses."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import subprocess
import urllib.error
import urllib.request
from types import SimpleNamespace as Namespace

log = logging.getLogger("copilotj")


class APIStatusError(Exception):
    def __init__(self, status: int, code: object) -> None:
        super().__init__(f"status {status}")
        self.status_code, self.code = status, code


class Config:
    def __init__(self) -> None:
        self.model = os.environ["COPILOTJ_LLM_MODEL"]


class OpenAIClient:
    async def _create(self, messages: list, **options: object) -> Namespace:
        body = {"model": os.environ["COPILOTJ_MODEL"], "messages": messages, **options, **options.pop("extra_body", {})}
        request = urllib.request.Request(
            os.environ["COPILOTJ_BASE_URL"] + "/chat/completions",
            data=json.dumps(body).encode(),
            headers={"Authorization": "Bearer " + os.environ["COPILOTJ_API_KEY"], "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request) as response:
                return json.loads(response.read(), object_hook=lambda fields: Namespace(**fields))
        except urllib.error.HTTPError as error:
            raise APIStatusError(error.code, json.loads(error.read())["error"]["code"]) from None


async def attach_single_client(target: str) -> str:
    return target


class LeaderDriven:
    def __init__(self, client: str, cfg: Config, ui: object) -> None:
        self.port = int(client.rsplit(":", 1)[1])
        self.model = OpenAIClient()

    async def run(self, task: str) -> None:
        messages = [{"role": "user", "content": task}]
        while True:
            answer = await self.model._create(messages)
            usage = answer.usage
            cached = usage.prompt_tokens_details.cached_tokens if len(messages) > 1 else "n/a"
            log.info(
                f"[CACHE] model={answer.model} prompt={usage.prompt_tokens} cached={cached} "
                f"completion={usage.completion_tokens}"
            )
            text = answer.choices[0].message.content
            if not text:
                log.info("dialog failed: empty reply")
                return
            if found := re.match(r"Action: (\w+)\n(.*)", text, re.S):
                log.info(f"[CALL] Calling Tool: {found[1]} | Params: {json.dumps(found[2])}")
                messages.append({"role": "user", "content": self.tool(found[1], found[2])})
                continue
            print(f"[FINAL RESULT] Dialog 1 Finished!\n{text}", flush=True)
            log.info("bye")
            return

    def tool(self, name: str, text: str) -> str:
        if name == "execute_python_script":
            done = subprocess.run(["python", "-c", text], capture_output=True, text=True)
            print(done.stdout + done.stderr, flush=True)
            return done.stdout + done.stderr
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(f"{name}\n".encode())
        return ""
