#!/usr/bin/env python3
"""Stand-in for ``docker`` and ``apptainer``: their documented command lines over bubblewrap, with one image.

As with the real Docker, the container is no child of the client, and it loses its standard input when the client dies.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE / "rootfs"
NAMES = HERE / "containers"


def sandbox(mounts, variables, argv, cwd="/"):
    prefixes = {sys.prefix, sys.base_prefix}
    words = ["bwrap", "--unshare-pid", "--unshare-user", "--as-pid-1", "--die-with-parent", "--clearenv"]
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for place in ("/usr", "/bin", "/lib", "/lib64", "/etc"):
        words += ["--ro-bind", place, place] if Path(place).exists() else []
    words += ["--ro-bind", str(ROOT / "app"), "/app", "--ro-bind", str(ROOT / "opt"), "/opt"]
    entry = next((m for m in mounts if m[1] == "/docker-entrypoint.sh"), None)
    words += [] if entry else ["--ro-bind", str(ROOT / "docker-entrypoint.sh"), "/docker-entrypoint.sh"]
    for source, target, writable in mounts:
        words += ["--bind" if writable else "--ro-bind", source, target]
    for place in sorted(prefixes):  # the image's own Python; last, for it may lie in /tmp here
        words += ["--ro-bind", place, place]
    path = f"{sys.prefix}/bin:/usr/bin:/bin"
    for name, value in {"PATH": path, **variables}.items():
        words += ["--setenv", name, value]
    return [*words, "--chdir", cwd, "--", *argv]


def read_variables(file):
    assert Path(file).stat().st_mode & 0o077 == 0, "the file with the key is readable by others"
    return dict(line.split("=", 1) for line in Path(file).read_text().splitlines())


def take(words, single=(), flags=()):
    """Split a command line into options and the rest."""
    options, words = [], list(words)
    while words and words[0].startswith("-"):
        name = words.pop(0)
        if name in flags or "=" in name:
            options.append((name, None))
        else:
            assert name in single, f"unknown option {name}"
            options.append((name, words.pop(0)))
    return options, words


def docker(words):
    if words[:2] == ["image", "inspect"]:
        print(json.dumps({"Entrypoint": ["/docker-entrypoint.sh"], "Cmd": None}))
        return 0
    if words[0] == "rm":
        file = NAMES / words[-1]
        if file.exists():
            subprocess.run(["kill", "-KILL", file.read_text()])
            file.unlink()
        return 0
    assert words[0] == "run", words
    single = (
        "--network",
        "--name",
        "--label",
        "--user",
        "--cap-drop",
        "--security-opt",
        "--workdir",
        "--env-file",
        "--mount",
        "--entrypoint",
        "--gpus",
    )
    options, rest = take(words[1:], single, ("--rm", "--interactive"))
    values = dict(options)
    mounts = []
    for name, value in options:
        if name == "--mount":
            fields = dict(part.partition("=")[::2] for part in value.split(","))
            mounts.append((fields["source"], fields["target"], "readonly" not in fields))
    variables = read_variables(values["--env-file"]) if "--env-file" in values else {}
    variables["OWN_NETWORK"] = "1"  # the real Docker gives one; here the loopback model must stay reachable
    argv = [values["--entrypoint"], *rest[1:]]
    command = sandbox(mounts, variables, argv, values.get("--workdir", "/"))
    if "--interactive" not in values:
        return subprocess.run(command).returncode
    return daemon(command, values["--name"])


def daemon(command, name):
    """Run the container as a child of nobody; pass standard input on while this client lives."""
    reader, writer = os.pipe()
    done, finished = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.close(writer)
        os.close(done)
        process = subprocess.Popen([word for word in command if word != "--die-with-parent"], stdin=reader)
        os.close(reader)
        NAMES.mkdir(exist_ok=True)
        (NAMES / name).write_text(str(process.pid))
        code = process.wait()
        (NAMES / name).unlink(missing_ok=True)
        os.write(finished, str(code if code >= 0 else 128 - code).encode())
        os._exit(0)
    os.close(reader)
    os.close(finished)
    said = os.read(done, 16)  # the write end of the container's standard input closes with this process
    return int(said or b"1")


def apptainer(words):
    verb, single = words[0], ("--pwd", "--home", "--env-file", "--bind", "--network")
    options, rest = take(words[1:], single, ("--containall", "--cleanenv", "--writable-tmpfs", "--net", "--nv"))
    assert {"--containall", "--cleanenv"} <= {name for name, _ in options}, "host paths would be visible"
    values = dict(options)
    mounts = [
        (value.split(":")[0], value.split(":")[1], not value.endswith(":ro"))
        for name, value in options
        if name in ("--bind", "--home")
    ]
    variables = read_variables(values["--env-file"]) if "--env-file" in values else {}
    argv = rest[1:] if verb == "exec" else ["/docker-entrypoint.sh"]
    command = sandbox(mounts, variables, argv, values.get("--pwd", "/"))
    os.execvp(command[0], command)


name = Path(sys.argv[0]).name
sys.exit((docker if name == "docker" else apptainer)(sys.argv[1:]))
