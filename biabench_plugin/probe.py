"""What an agent finds inside its view: Python, libraries, tools, asked from the inside and remembered."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from agents.base import Launch
from biabench_plugin import supervisor
from biabench_plugin._private_python import SYSTEM_PATH
from biabench_plugin.isolation import Containment, ContainmentError, Rooms

LIBRARIES = (
    "numpy", "scipy", "pandas", "scikit-image", "scikit-learn", "opencv-python", "opencv-python-headless", "SimpleITK",
    "itk", "tifffile", "imagecodecs", "zarr", "aicsimageio", "bioio", "nd2", "readlif", "napari", "pyimagej", "scyjava",
    "cellpose", "stardist", "csbdeep", "instanseg-torch", "micro-sam", "segment-anything", "torch", "torchvision",
    "tensorflow", "jax", "cupy-cuda12x", "pyclesperanto", "pyclesperanto-prototype", "trackpy", "laptrack", "btrack",
    "ultrack", "connected-components-3d", "edt", "skan", "picasso", "picassosr", "m2stitch", "ashlar", "bigstitcher",
    "mahotas", "porespy", "matplotlib", "seaborn", "statsmodels", "numba", "dask", "pip", "uv",
)  # fmt: skip
TOOLS = (
    "python3", "pip", "uv", "conda", "mamba", "R", "java", "fiji", "fiji-linux-x64", "ImageJ-linux64", "ilastik",
    "cellprofiler", "QuPath", "matlab", "octave", "nvidia-smi", "nvcc", "git", "gcc", "node", "ffmpeg", "convert",
    "xvfb-run",
)  # fmt: skip

_SECONDS = 120.0
_VERSION = 1

# The shell part finds programs (a view may have no Python at all); the Python part reads package metadata, because
# importing the libraries would take a minute.
_SHELL = r"""
for tool in {tools}; do place=$(command -v "$tool") && printf 'tool\t%s\t%s\n' "$tool" "$place"; done
command -v java >/dev/null && printf 'java\t%s\n' "$(java -version 2>&1 | head -n 1)"
command -v nvidia-smi >/dev/null && \
  nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null |
  while IFS= read -r line; do printf 'gpu\t%s\n' "$line"; done
python=$(command -v python || command -v python3) && exec "$python" -
"""
_PYTHON = r"""
import json, os, platform, sys
from importlib.metadata import PackageNotFoundError, version
found = {{}}
for name in {libraries!r}:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        pass
print("python\t" + json.dumps({{
    "version": platform.python_version(), "executable": sys.executable, "libraries": found,
    "cpus": len(os.sched_getaffinity(0)),
}}))
"""


def probe(
    containment: Containment,
    *,
    cache_dir: Path | None = None,
    python_prefix: bool = False,
    gpu_devices: Sequence[str] = (),
    tool_env: Path | None = None,
    weights: Path | None = None,
) -> dict[str, object]:
    """Return what a program finds in the view that such a run would get.

    Parameters
    ----------
    containment, python_prefix, gpu_devices, tool_env, weights
        As for a run; see :func:`biabench_plugin.isolation.plan`.
    cache_dir
        Where results are kept between sessions; one file for each different environment. Without it, every call looks.

    Returns
    -------
    dict
        ``python`` (``version``, ``executable``, ``libraries`` by distribution name, ``cpus``) or ``None`` where there
        is none; ``tools`` (name → path), ``java``, ``gpus``, ``weights`` (names of what is there).

    Raises
    ------
    ContainmentError
        When the view cannot be built or the probe does not end.
    """
    key = _fingerprint(containment, python_prefix, gpu_devices, tool_env, weights)
    kept = cache_dir / f"probe-{key}.json" if cache_dir else None
    if kept is not None and kept.is_file():
        result: dict[str, object] = json.loads(kept.read_text())
        return result
    result = _look(containment, python_prefix, gpu_devices, tool_env, weights)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        fresh = kept.with_name(f".{kept.name}.{os.getpid()}")
        fresh.write_text(json.dumps(result, indent=1, sort_keys=True))
        fresh.replace(kept)
    return result


def _look(
    containment: Containment,
    python_prefix: bool,
    gpu_devices: Sequence[str],
    tool_env: Path | None,
    weights: Path | None,
) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="probe-") as folder:
        rooms = scratch_rooms(Path(folder))
        shell = _SHELL.format(tools=" ".join(TOOLS))
        run = supervisor.run(
            Launch(
                ("/bin/sh", "-c", shell),
                stdin=_PYTHON.format(libraries=LIBRARIES).encode(),
                python_prefix=python_prefix,
            ),
            rooms=rooms,
            containment=containment,
            limits=supervisor.Limits(_SECONDS, grace_seconds=1.0),
            gpu_devices=gpu_devices,
            tool_env=tool_env,
            weights=weights,
        )
        if run.start_error or run.timed_out:
            raise ContainmentError(f"the environment of agents cannot be examined: {run.start_error or 'no end'}")
        lines = (rooms.logs / "stdout.log").read_text(errors="replace").splitlines()
    tools: dict[str, str] = {}
    gpus: list[str] = []
    result: dict[str, object] = {"python": None, "java": None, "tools": tools, "gpus": gpus}
    for line in lines:
        kind, *rest = line.split("\t")
        if kind == "tool":
            tools[rest[0]] = rest[1]
        elif kind == "java":
            result["java"] = rest[0]
        elif kind == "gpu":
            gpus.append(rest[0])
        elif kind == "python":
            result["python"] = json.loads(rest[0])
    result["weights"] = sorted(path.name for path in weights.iterdir()) if weights is not None else []
    return result


def scratch_rooms(folder: Path) -> Rooms:
    """Make empty rooms below ``folder``, for a run that is no trial."""
    rooms = Rooms(*(folder / name for name in ("input", "output", "home", "tmp", "instruction.md", "logs")))
    for room in (rooms.input, rooms.output, rooms.home, rooms.tmp, rooms.logs):
        room.mkdir()
    rooms.instruction.write_text("")
    return rooms


def _fingerprint(
    containment: Containment,
    python_prefix: bool,
    gpu_devices: Sequence[str],
    tool_env: Path | None,
    weights: Path | None,
) -> str:
    """Digest of everything that decides what is found; installing something touches one of these folders."""
    watched = [Path(part) for part in SYSTEM_PATH.split(":")]
    watched += [Path("/var/lib/dpkg/status"), Path("/var/lib/rpm"), *Path("/usr/lib/python3").glob("dist-packages")]
    for prefix in (tool_env, Path(sys.prefix) if python_prefix else None):
        if prefix is not None:
            watched += [prefix / "bin", prefix / "conda-meta", *prefix.glob("lib/python3.*/site-packages")]
    if weights is not None:
        watched.append(weights)
    facts = {
        "version": _VERSION,
        "kernel": platform.release(),
        "machine": platform.node(),
        "in_force": containment.in_force,
        "bubblewrap": containment.version,
        "path": None if containment.in_force else os.environ.get("PATH"),
        "cpus": sorted(os.sched_getaffinity(0)),
        "gpus": list(gpu_devices),
        "questions": [LIBRARIES, TOOLS],
        "watched": {str(path): path.stat().st_mtime_ns for path in watched if path.exists()},
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]
