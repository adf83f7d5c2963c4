"""Stand-in for the program in Agentic-J's image: its documented files, and an agent that follows a script."""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request

display = int(sys.argv[1].removeprefix(":"))
assert os.environ["DISPLAY"] == sys.argv[1], (os.environ["DISPLAY"], sys.argv)
x_server = socket.socket(socket.AF_UNIX)
if "OWN_NETWORK" not in os.environ:
    x_server.bind(f"\0/tmp/.X11-unix/X{display}")  # fails where another one has it

output = pathlib.Path(os.environ["BENCHMARK_OUTPUT_DIR"])
config = pathlib.Path(os.environ["IMAGENTJ_CONFIG"]).read_text()
model = re.search(r"supervisor: (\S+)", config.split("models:")[1])[1]
instruction = (output / "instruction.txt").read_bytes().decode()
(output / "agentic-j_debug.log").write_text("booted\n")
pathlib.Path("/data/learned").write_text("private\n")
queries, calls, message = [], [], instruction


def finish(**fields):
    totals = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0, "cached_input_tokens": 0}
    for query in queries:
        totals = {name: value + query.get(name, 0) for name, value in totals.items()}
    metadata = {
        "total_tokens": totals["total_tokens"],
        "total_cost_usd": 99.0,
        "tool_calls": len(calls),
        "usage_report": {"conversation": {"queries": [{"tool_call_log": calls}]}},
        "session_totals": {"totals": totals},
        "plausibility_verdict": fields.pop("verdict", None),
    }
    (output / "result.json").write_text(json.dumps({"message": None, "error": None, "metadata": metadata, **fields}))
    sys.exit(0)


while True:
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        data=json.dumps(
            {
                "model": model,
                "messages": [{"role": "user", "content": message}],
                "reasoning_effort": os.environ["IMAGENTJ_REASONING_EFFORT"],
            }
        ).encode(),
        headers={"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request) as response:
            answer = json.loads(response.read())
    except urllib.error.HTTPError as error:
        finish(success=False, error=f"Error code: {error.code}")
    usage = answer["usage"]
    queries.append(
        {
            "input_tokens": usage["prompt_tokens"],
            "output_tokens": usage["completion_tokens"],
            "total_tokens": usage["total_tokens"],
            "cached_input_tokens": 40,
        }
    )
    text = answer["choices"][0]["message"]["content"]
    if found := re.match(r"Action: (\w+)\n(.*)", text, re.S):
        if found[1] == "crash":
            os.abort()
        done = subprocess.run(["python", "-c", found[2]], capture_output=True, text=True)
        message = done.stdout + done.stderr
        calls.append({"name": found[1], "args": {"code": found[2]}, "result": message})
        continue
    doubted = text.startswith("FAIL")
    finish(
        success=bool(text) and not doubted,
        message=text,
        verdict=text if doubted else None,
        error=None if text else "empty reply",
    )
