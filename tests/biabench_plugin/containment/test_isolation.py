"""What an agent sees: neutral paths, an allow-listed system, and exactly what was declared."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.base import Bind, Launch
from biabench_plugin import isolation, supervisor
from biabench_plugin._system_view import gpu_nodes
from biabench_plugin.isolation import (
    Containment,
    ContainmentError,
    IsolationUnavailable,
    Rooms,
    containment_for,
    plan,
)

ROOT = Path(__file__).resolve().parents[3]
Run = Callable[..., "object"]


# --- is it possible here? ----------------------------------------------------------------------------------------


@pytest.fixture
def fresh() -> object:
    """Look again at whether bubblewrap works, and forget the result afterwards."""
    isolation._usable.cache_clear()
    yield
    isolation._usable.cache_clear()


def test_without_bubblewrap_required_says_how_to_install_it(fresh: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(IsolationUnavailable, match="not installed; install it: "):
        containment_for("required")
    containment = containment_for("auto")
    assert not containment.in_force
    assert "not installed" in str(containment.reason)


@pytest.mark.parametrize(
    ("version", "complaint", "settings", "fix"),
    [
        ("0.4.1", "bwrap: Unknown option --disable-userns", {}, "0.8 or newer"),
        (
            "0.8.0",
            "bwrap: No permissions to create new namespace",
            {"kernel.unprivileged_userns_clone": "0"},
            "clone=1",
        ),
        (
            "0.8.0",
            "bwrap: Creating new namespace failed",
            {"user.max_user_namespaces": "0"},
            "max_user_namespaces=15000",
        ),
        ("0.9.0", "bwrap: Can't mount proc on /newroot/proc", {}, "systempaths=unconfined"),
        ("0.9.0", "bwrap: setting up uid map: Permission denied", {}, "seccomp=unconfined"),
        ("0.9.0", "bwrap: --disable-userns not supported in setuid mode", {}, "chmod u-s"),
    ],
)
def test_advice_names_the_fix(
    monkeypatch: pytest.MonkeyPatch, version: str, complaint: str, settings: dict[str, str], fix: str
) -> None:
    monkeypatch.setattr(isolation, "_sysctl", settings.get)
    assert fix in isolation._advice(version, [complaint])


def test_apparmor_advice_is_for_ordinary_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_sysctl", {"kernel.apparmor_restrict_unprivileged_userns": "1"}.get)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "apparmor_restrict_unprivileged_userns=0" in isolation._advice("0.9.0", ["bwrap: setting up uid map"])


def test_bubblewrap_that_cannot_work_here_is_noticed(
    fresh: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo bubblewrap 0.8.0 && exit\necho "bwrap: no" >&2; exit 1\n'
    )
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    containment = containment_for("auto")
    assert not containment.in_force
    assert "does not work (bwrap: no)" in str(containment.reason)


def test_synthetic_agents_run_outside_and_say_so() -> None:
    containment = containment_for("required", contained=False)
    assert not containment.in_force
    assert "reads the truth" in str(containment.describe()["reason"])


def test_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="required, auto, off"):
        containment_for("maybe")  # type: ignore[arg-type]


def test_paths(boxed: Containment, unboxed: Containment, rooms: Rooms) -> None:
    inside, outside = boxed.paths(rooms), unboxed.paths(rooms)
    assert (inside.input_dir, inside.output_dir, inside.instruction_file) == ("/input", "/output", "/instruction.md")
    assert (outside.input_dir, outside.output_dir) == (str(rooms.input), str(rooms.output))


# --- the view ----------------------------------------------------------------------------------------------------


def test_rooms_are_where_the_agent_is_told(run: Run, containment: Containment, rooms: Rooms) -> None:
    (rooms.input / "a.txt").write_text("pixels")
    script = """
    cat "$BIABENCH_INPUT/a.txt" "$BIABENCH_INSTRUCTION"
    echo result > "$BIABENCH_OUTPUT/r.txt"; echo h > "$HOME/h"; echo t > "$TMPDIR/t"; pwd
    """
    ran = run(script, containment, rooms=rooms)
    output = containment.paths(rooms).output_dir
    assert ran.out == f"pixelsCount the cells.\n{output}\n"
    assert (rooms.output / "r.txt").read_text() == "result\n"
    assert (rooms.home / "h").exists()
    assert (rooms.tmp / "t").exists()


def test_user_and_network_names(run: Run, boxed: Containment) -> None:
    ran = run("id -un; id -u; hostname; getent hosts localhost | cut -d' ' -f1; ls /home /etc/ssl", boxed)
    lines = ran.out.split()
    assert lines[:3] == ["user", "1000", "analysis"]
    assert "private" not in lines


def test_etc_shows_no_accounts(run: Run, boxed: Containment) -> None:
    assert run("cut -d: -f1 /etc/passwd", boxed).out.split() == ["root", "user", "nobody"]
    assert "shadow" not in run("ls -a /etc", boxed).out


def test_certificates_and_libraries_work(run: Run, boxed: Containment) -> None:
    script = (
        "import ssl, ctypes, multiprocessing; ctypes.CDLL('libc.so.6'); multiprocessing.Semaphore(); "
        "print(ssl.create_default_context().cert_store_stats()['x509_ca'])"
    )
    ran = run((sys.executable, "-c", script), boxed, launch={"python_prefix": True})
    assert int(ran.out) == ssl.create_default_context().cert_store_stats()["x509_ca"], ran.err


def test_new_processes_do_not_lift_the_view(run: Run, boxed: Containment, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    assert run(f"setsid sh -c 'cat {secret}' && echo read; ls {tmp_path}", boxed).out == ""


# --- environment -------------------------------------------------------------------------------------------------


def test_environment_is_an_allow_list(run: Run, containment: Containment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERATOR_SECRET", "s3cret")
    monkeypatch.setenv("AGENT_KEY", "k3y")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    launch = {"environment": {"MINE": "1"}, "pass_environment": ("AGENT_KEY", "NOT_SET")}
    seen = dict(line.split("=", 1) for line in run("env", containment, launch=launch).out.splitlines())
    assert "OPERATOR_SECRET" not in seen
    assert "NOT_SET" not in seen
    assert (seen["MINE"], seen["AGENT_KEY"], seen["OMP_NUM_THREADS"]) == ("1", "k3y", "3")
    expected = {"HOME", "TMPDIR", "LANG", "USER", "PATH", "BIABENCH_INPUT", "BIABENCH_OUTPUT", "BIABENCH_INSTRUCTION"}
    assert expected <= seen.keys()
    assert "PYTEST_CURRENT_TEST" not in seen


def test_harness_variables_cannot_be_overridden(boxed: Containment, rooms: Rooms) -> None:
    launch = Launch(("true",), environment={"BIABENCH_OUTPUT": "/elsewhere"})
    assert plan(launch, rooms, boxed).environment["BIABENCH_OUTPUT"] == "/output"


# --- what an agent declares --------------------------------------------------------------------------------------


def test_declared_binds(run: Run, boxed: Containment, tmp_path: Path) -> None:
    shown, kept = tmp_path / "shown", tmp_path / "kept"
    for folder in (shown, kept):
        folder.mkdir()
        (folder / "f").write_text(folder.name)
    binds = (Bind(shown, "/opt/agent"), Bind(kept, str(kept), writable=True), Bind(shown / "f", "/home/user/.config/f"))
    script = f"cat /opt/agent/f /home/user/.config/f; echo x > /opt/agent/f; echo new > {kept}/f; ls {tmp_path}"
    ran = run(script, boxed, launch={"binds": binds})
    assert ran.out == "shownshownkept\n"
    assert (shown / "f").read_text() == "shown"
    assert (kept / "f").read_text() == "new\n"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("/input/extra", "may not cover"),
        ("/output", "may not cover"),
        ("/proc/extra", "may not cover"),
        ("/", "absolute target below /"),
        ("relative", "absolute target"),
        ("/opt/../etc", "absolute target"),
        ("/usr/bin/tool", "may not change the system"),
        ("/tmp", "may not cover"),
    ],
)
def test_unfit_bind_is_refused(boxed: Containment, rooms: Rooms, tmp_path: Path, target: str, words: str) -> None:
    with pytest.raises(ContainmentError, match=words):
        plan(Launch(("true",), binds=(Bind(tmp_path, target),)), rooms, boxed)


def test_missing_bind_is_refused(boxed: Containment, rooms: Rooms, tmp_path: Path) -> None:
    with pytest.raises(ContainmentError, match=r"does not exist: .*nowhere"):
        plan(Launch(("true",), binds=(Bind(tmp_path / "nowhere", "/x"),)), rooms, boxed)


def test_moving_bind_needs_containment(unboxed: Containment, rooms: Rooms, tmp_path: Path) -> None:
    with pytest.raises(ContainmentError, match="needs containment"):
        plan(Launch(("true",), binds=(Bind(tmp_path, "/opt/agent"),)), rooms, unboxed)
    plan(Launch(("true",), binds=(Bind(tmp_path, str(tmp_path)),)), rooms, unboxed)


def test_bind_that_contains_the_project_hides_it(run: Run, boxed: Containment) -> None:
    ran = run(
        f"ls -A {ROOT} | wc -l; ls {ROOT.parent} | grep -c '^{ROOT.name}$'",
        boxed,
        launch={"binds": (Bind(ROOT.parent, str(ROOT.parent)),)},
    )
    assert ran.out.split() == ["0", "1"]


def test_bind_of_the_project_itself_is_refused(boxed: Containment, rooms: Rooms) -> None:
    with pytest.raises(ContainmentError, match="must stay hidden"):
        plan(Launch(("true",), binds=(Bind(ROOT, "/project"),)), rooms, boxed)


def test_part_of_the_project_can_be_shown(run: Run, boxed: Containment) -> None:
    ran = run(
        "cat /agent.py | head -n 1; ls /", boxed, launch={"binds": (Bind(ROOT / "agents" / "empty.py", "/agent.py"),)}
    )
    assert ran.out.startswith('"""An agent that does nothing')
    assert "evaluators" not in ran.out


def test_hidden_paths_stay_hidden(run: Run, boxed: Containment, tmp_path: Path) -> None:
    folder = tmp_path / "shown"
    for path in (folder / "data" / "truth.csv", folder / "notes.txt", folder / "tool"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    ran = run(
        f"find {folder} -type f -size +0 -readable | sort",
        boxed,
        launch={"binds": (Bind(folder, str(folder)),)},
        hidden=(folder / "data", folder / "notes.txt"),
    )
    assert ran.out.split() == [str(folder / "tool")]


def test_missing_room_is_refused(boxed: Containment, rooms: Rooms) -> None:
    rooms.tmp.rmdir()
    with pytest.raises(ContainmentError, match="tmp folder does not exist"):
        plan(Launch(("true",)), rooms, boxed)


# --- network -----------------------------------------------------------------------------------------------------

_CONNECT = """
import socket, sys
for host, port in (("127.0.0.1", int(sys.argv[1])),):
    try:
        socket.create_connection((host, port), 5).close(); print("reached")
    except OSError as error:
        print(type(error).__name__)
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname(), 5); print("loopback")
"""


@pytest.mark.parametrize(("network", "expected"), [("open", "reached"), ("none", "ConnectionRefusedError")])
def test_network(run: Run, boxed: Containment, network: str, expected: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        argv = (sys.executable, "-c", _CONNECT, str(server.getsockname()[1]))
        ran = run(argv, boxed, network=network, launch={"python_prefix": True})
    assert ran.out.split() == [expected, "loopback"], ran.err


def test_no_network_means_no_interface_but_loopback(run: Run, boxed: Containment) -> None:
    ran = run("tail -n +3 /proc/net/dev | cut -d: -f1", boxed, network="none")
    assert ran.out.split() == ["lo"]


def test_model_network_needs_the_relay(boxed: Containment, rooms: Rooms) -> None:
    with pytest.raises(ContainmentError, match="needs the model relay"):
        plan(Launch(("true",)), rooms, boxed, network="model")


def test_model_network_reaches_the_relay_and_nothing_else(run: Run, boxed: Containment, tmp_path: Path) -> None:
    path = tmp_path / "relay"
    with socket.socket(socket.AF_UNIX) as relay, socket.create_server(("127.0.0.1", 0)) as host:
        relay.bind(str(path))
        relay.listen()
        answer = threading.Thread(target=lambda: relay.accept()[0].sendall(b"hello"))
        answer.start()
        script = _CONNECT + (
            "import os\nrelay = socket.socket(socket.AF_UNIX)\n"
            "relay.connect(os.environ['BIABENCH_RELAY_SOCKET'])\nprint(relay.recv(5).decode())\n"
        )
        argv = (sys.executable, "-c", script, str(host.getsockname()[1]))
        ran = run(argv, boxed, network="model", relay_socket=path, launch={"python_prefix": True})
        answer.join(10)
    assert ran.out.split() == ["ConnectionRefusedError", "loopback", "hello"], ran.err


def test_network_cannot_be_promised_without_containment(unboxed: Containment, rooms: Rooms) -> None:
    with pytest.raises(ContainmentError, match="cannot be enforced"):
        plan(Launch(("true",)), rooms, unboxed, network="none")
    plan(Launch(("true",)), rooms, containment_for("off", contained=False), network="none")


# --- tools, weights, GPUs ----------------------------------------------------------------------------------------


def test_tool_environment_comes_first(run: Run, containment: Containment, tmp_path: Path) -> None:
    tools = tmp_path / "env"
    (tools / "bin").mkdir(parents=True)
    (tools / "bin" / "sed").write_text("#!/bin/sh\necho tool environment\n")
    (tools / "bin" / "sed").chmod(0o755)
    ran = run(f"sed; echo x > {tools}/bin/new; ls {tools}/bin", containment, tool_env=tools)
    assert ran.out.split("\n")[0] == "tool environment"
    if containment.in_force:
        assert not (tools / "bin" / "new").exists()


def test_weights_are_read_only_and_announced(run: Run, boxed: Containment, tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    (weights / "torch").mkdir(parents=True)
    (weights / "torch" / "w.pt").write_text("w")
    ran = run(
        'cat "$BIABENCH_WEIGHTS/torch/w.pt"; echo " $TORCH_HOME $KERAS_HOME"; echo x > "$TORCH_HOME/y"',
        boxed,
        weights=weights,
    )
    assert ran.out == f"w {weights}/torch \n"
    assert not (weights / "torch" / "y").exists()


@pytest.mark.parametrize("option", ["tool_env", "weights"])
def test_missing_folder_is_refused(boxed: Containment, rooms: Rooms, tmp_path: Path, option: str) -> None:
    with pytest.raises(ContainmentError, match="no such folder"):
        plan(Launch(("true",)), rooms, boxed, **{option: tmp_path / "nowhere"})


def test_gpu_devices_by_index_and_uuid(tmp_path: Path) -> None:
    proc, dev = tmp_path / "proc", tmp_path / "dev"
    dev.mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (dev / name).touch()
    for bus, minor, uuid in (("0000:01:00.0", 1, "GPU-aaaa"), ("0000:02:00.0", 0, "GPU-bbbb")):
        folder = proc / "driver" / "nvidia" / "gpus" / bus
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t A GPU\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")

    def nodes(*devices: str) -> list[str]:
        return [path.name for path in gpu_nodes(devices, proc, dev)]

    control = ["nvidiactl", "nvidia-uvm"]
    assert nodes("0") == ["nvidia1", *control]  # the first by bus is not the first by device number
    assert nodes("GPU-bbbb") == ["nvidia0", *control]
    assert nodes("MIG-cccc") == ["nvidia0", "nvidia1", *control]
    assert nodes() == []
    with pytest.raises(ContainmentError, match=r"no such GPU device: .*nvidia7"):
        nodes("7")


def test_gpu_device_file_and_sys_appear_only_when_given(run: Run, boxed: Containment, tmp_path: Path) -> None:
    script = "ls /sys 2>/dev/null | head -n 1; test -c /dev/kmsg && echo device"
    assert run(script, boxed).out == ""
    if not Path("/dev/kmsg").exists():
        pytest.skip("no device file to stand in for a GPU")
    assert run(script, boxed, gpu_devices=("/dev/kmsg",)).out == "bus\ndevice\n"


def test_without_containment_other_gpus_are_not_offered(unboxed: Containment, rooms: Rooms) -> None:
    assert plan(Launch(("true",)), rooms, unboxed).environment["CUDA_VISIBLE_DEVICES"] == ""
    assert plan(Launch(("true",)), rooms, unboxed, gpu_devices=("1",)).environment["CUDA_VISIBLE_DEVICES"] == "1"


# --- who runs it -------------------------------------------------------------------------------------------------

_AS_USER = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from agents.base import Launch
from biabench_plugin import supervisor
from biabench_plugin.isolation import Rooms, containment_for
from biabench_plugin.probe import scratch_rooms
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
if not os.access(sys.executable, os.X_OK):
    sys.executable = "/usr/bin/python3"
work = Path(sys.argv[2]); work.mkdir(); rooms = scratch_rooms(work)
inside = containment_for("auto")
script = "setsid sleep 300 & id -u; touch /input/x /usr/x && echo written; chmod 0 /output; exit 3"
result = supervisor.run(Launch(("sh", "-c", script)), rooms=rooms, containment=inside, limits=supervisor.Limits(60))
out = (rooms.logs / "stdout.log").read_text()
print(json.dumps([inside.reason, out, result.exit_code, result.survivors_killed]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="the whole suite runs as an ordinary user already")
def test_works_for_an_ordinary_user(boxed: Containment) -> None:
    if not (ROOT.stat().st_mode & 0o005 == 0o005 and Path("/usr/bin/python3").exists()):
        pytest.skip("an ordinary user cannot read the project here")
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path, whose parents are closed to others
        Path(folder).chmod(0o777)
        done = subprocess.run(
            [sys.executable, "-c", _AS_USER, str(ROOT), f"{folder}/work"], capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    reason, out, code, survivors = json.loads(done.stdout)
    if reason is not None:
        pytest.skip(f"an ordinary user cannot use bubblewrap here: {reason}")
    assert (out, code, survivors) == ("1000\n", 3, 1)


def test_plan_leaves_nothing_in_process_lists(boxed: Containment, rooms: Rooms) -> None:
    """Host paths and secrets go to bubblewrap through a descriptor, never as arguments."""
    result = supervisor.run(
        Launch(("sh", "-c", "cat /proc/1/cmdline | tr '\\0' ' '")),
        rooms=rooms,
        containment=boxed,
        limits=supervisor.Limits(60.0),
    )
    assert result.exit_code == 0
    assert str(rooms.output.parent) not in (rooms.logs / "stdout.log").read_text()
