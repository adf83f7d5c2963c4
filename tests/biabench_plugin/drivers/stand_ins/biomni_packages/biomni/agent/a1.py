import contextlib
import io
import re
import subprocess

from biomni.llm import get_llm

namespace = {}


def run_python_repl(code):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, namespace)  # in this process, as Biomni does it
    return out.getvalue()


def run_bash_script(code):
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True)
    return done.stdout + done.stderr


def run_with_timeout(function, args=None, kwargs=None, timeout=600):
    return function(*args)


class A1:
    def __init__(self, path, llm, source, base_url, api_key, timeout_seconds, expected_data_lake_files=None):
        assert expected_data_lake_files == [], "11 GB would be downloaded"
        self.llm = get_llm(llm, source, base_url, api_key)
        self.timeout = timeout_seconds

    def go(self, prompt):
        text = prompt
        for _ in range(500):
            said = self.llm.invoke(text)
            if "<solution>" in said:
                return [], said
            found = re.search(r"<execute>(.*?)</execute>", said, re.S)
            if found is None:
                text = "There are no tags"
                continue
            code = found[1]
            bash = code.strip().startswith("#!BASH")
            text = run_with_timeout(run_bash_script if bash else run_python_repl, [code], timeout=self.timeout)
        raise RecursionError("Recursion limit of 500 reached")
