import json
import urllib.error
import urllib.request
from types import SimpleNamespace


class APIStatusError(Exception):
    def __init__(self, status, code):
        super().__init__(f"status {status}")
        self.status_code, self.code = status, code


class Model:
    """Chat Completions, with callbacks where a model is invoked."""

    def __init__(self, name, base_url, api_key):
        self.name, self.base_url, self.api_key = name, base_url, api_key
        self.extra_body, self.reasoning_effort, self.callbacks = {}, None, None

    def invoke(self, text):
        body = {"model": self.name, "messages": [{"role": "user", "content": text}], **self.extra_body}
        if self.reasoning_effort:
            body["reasoning_effort"] = self.reasoning_effort
        request = urllib.request.Request(
            self.base_url + "/chat/completions",
            data=json.dumps(body).encode(),
            headers={"Authorization": "Bearer " + self.api_key, "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request) as response:
                answer = json.loads(response.read())
        except urllib.error.HTTPError as fault:
            error = APIStatusError(fault.code, json.loads(fault.read())["error"]["code"])
            for callback in self.callbacks:
                callback.on_llm_error(error)
            raise error from None
        usage, choice = answer["usage"], answer["choices"][0]
        message = SimpleNamespace(
            content=choice["message"]["content"],
            additional_kwargs={},
            response_metadata={"finish_reason": choice["finish_reason"], "model_name": answer["model"]},
            usage_metadata={
                "input_tokens": usage["prompt_tokens"],
                "output_tokens": usage["completion_tokens"],
                "input_token_details": {"cache_read": usage["prompt_tokens_details"]["cached_tokens"]},
                "output_token_details": {"reasoning": usage["completion_tokens_details"]["reasoning_tokens"]},
            },
        )
        for callback in self.callbacks:
            callback.on_llm_end(SimpleNamespace(generations=[[SimpleNamespace(message=message)]], llm_output=None))
        return message.content


def get_llm(name, source, base_url, api_key):
    assert source == "Custom"
    return Model(name, base_url, api_key)
