"""``pip install`` inside works, offline, into the private HOME, and changes nothing outside."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from biabench_plugin import isolation
from biabench_plugin._private_python import PrivatePython
from biabench_plugin.isolation import Containment, Rooms

Run = Callable[..., "object"]


def build_wheel(folder: Path, name: str = "tinytool", version: str = "1.2") -> Path:
    """Write the smallest wheel that pip accepts, with a command."""
    files = {
        f"{name}.py": f"VALUE = '{version}'\ndef main():\n    print('tool', VALUE)\n",
        f"{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{name}-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{name}-{version}.dist-info/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    rows = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text)}")
    record = f"{name}-{version}.dist-info/RECORD"
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(record, "\n".join([*rows, f"{record},,"]) + "\n")
    return wheel


def has_pip(python: str) -> bool:
    return subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0


INSTALL = """
python -m pip install --no-index --quiet --no-warn-script-location "$BIABENCH_INPUT"/*.whl || exit 9
python -c 'import tinytool; print(tinytool.VALUE, tinytool.__file__)'
tinytool
"""


def test_install_on_this_interpreter(run: Run, containment: Containment, rooms: Rooms) -> None:
    if not has_pip(sys.executable):
        pytest.skip("this interpreter has no pip")
    build_wheel(rooms.input)
    ran = run(
        INSTALL + "python -c 'import numpy; print(numpy.__name__)'",
        containment,
        rooms=rooms,
        launch={"python_prefix": True},
    )
    home = containment.paths(rooms).home
    lines = ran.out.split()
    assert lines[0] == "1.2", ran.err
    assert lines[1].startswith(home)
    assert lines[2:] == ["tool", "1.2", "numpy"]
    assert subprocess.run([sys.executable, "-c", "import tinytool"], capture_output=True, check=False).returncode != 0


def test_install_on_a_virtual_environment_of_the_operator(
    run: Run, boxed: Containment, rooms: Rooms, tmp_path: Path
) -> None:
    """A tool environment that is a venv keeps its packages, its interpreter is found, and stays as it was."""
    if not has_pip(sys.executable):
        pytest.skip("this interpreter has no pip")
    tools = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tools)], check=True)
    packages = next(tools.glob("lib/python3.*/site-packages"))
    (packages / "operators_tool.py").write_text("NAME = 'operators tool'\n")
    script = "import operators_tool, sys; print(operators_tool.NAME, sys.version_info[:2])"
    ran = run(("python", "-c", script), boxed, tool_env=tools)
    assert ran.out == f"operators tool {sys.version_info[:2]}\n", ran.err
    before = sorted(path.name for path in tools.rglob("*"))
    run(
        ("python", "-c", "import site, pathlib; pathlib.Path(site.getsitepackages()[0], 'x').touch()"),
        boxed,
        tool_env=tools,
    )
    assert sorted(path.name for path in tools.rglob("*")) == before


def test_install_on_the_system_interpreter(run: Run, boxed: Containment, rooms: Rooms) -> None:
    if not (Path("/usr/bin/python3").exists() and has_pip("/usr/bin/python3")):
        pytest.skip("no system Python with pip")
    build_wheel(rooms.input)
    ran = run(INSTALL.replace("python ", "python3 "), boxed, rooms=rooms)
    assert ran.out.split()[0] == "1.2", ran.err
    assert ran.out.split()[1].startswith("/home/user/.local/")


def test_an_environment_that_is_no_venv_needs_no_layer(tmp_path: Path) -> None:
    prefix = tmp_path / "conda"
    (prefix / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
    python = PrivatePython.find(prefix, False)
    assert python is not None
    assert (python.needs_private, python.version) == (False, "3.12")
    assert PrivatePython.bases(prefix) == ()


def test_a_folder_of_programs_has_no_python(tmp_path: Path) -> None:
    assert PrivatePython.find(tmp_path, True) is None


def test_the_prefix_is_visible_and_read_only(run: Run, boxed: Containment) -> None:
    script = "import sys, pathlib; p = pathlib.Path(sys.argv[1]); print(p.is_dir()); (p / 'x').touch()"
    ran = run((sys.executable, "-c", script, sys.prefix), boxed, launch={"python_prefix": True})
    assert ran.out == "True\n"
    assert "Read-only file system" in ran.err


def test_a_venv_inside_the_project_shows_only_itself(
    run: Run, boxed: Containment, rooms: Rooms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    prefix = project / ".venv"
    (prefix / "bin").mkdir(parents=True)
    (project / "evaluators").mkdir()
    monkeypatch.setattr(isolation, "_protected", lambda: (project,))
    ran = run(f"ls -A {project} {prefix}", boxed, rooms=rooms, tool_env=prefix)
    assert ran.out.split() == [f"{project}:", ".venv", f"{prefix}:", "bin"]


def test_packages_of_the_benchmark_inside_a_prefix_are_covered(
    run: Run, boxed: Containment, rooms: Rooms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = tmp_path / "env"
    packages = prefix / "lib" / "python3.11" / "site-packages"
    for name in ("evaluators", "tasks", "numpy"):
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").write_text("secret = 1\n")
    monkeypatch.setattr(isolation, "_protected", lambda: (packages / "evaluators", packages / "tasks"))
    ran = run(f"cd {packages} && ls *", boxed, rooms=rooms, tool_env=prefix)
    assert ran.out.split() == ["evaluators:", "numpy:", "__init__.py", "tasks:"]
