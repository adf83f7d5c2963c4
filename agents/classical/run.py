"""Entry point inside a trial: read the instruction, choose the pipeline, run it.

Started as a file, on a bare interpreter; makes its own folder importable as the package ``classical`` without touching
``sys.path``, so that no module here can stand in for a library's.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

PACKAGE = "classical"


def _import_package() -> None:
    folder = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location(
        PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} is no package")
    module = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = module
    spec.loader.exec_module(module)


def main() -> int:
    """Run the pipeline that fits the instruction; return 0 when something was delivered, 1 when not, 2 on misuse."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    # the libraries' caches go where writing is allowed, and never into the output folder
    os.environ.setdefault("MPLCONFIGDIR", os.environ.get("TMPDIR", "/tmp"))
    _import_package()
    job_module = importlib.import_module(f"{PACKAGE}._job")
    choose = importlib.import_module(f"{PACKAGE}._pipelines").choose
    try:
        job = job_module.Job.from_environment(os.environ)
        name = choose(job)
    except job_module.CannotStart as error:
        print(f"classical: {error}", file=sys.stderr)
        return 2
    job.log(f"pipeline {name}")
    return int(job.finish(importlib.import_module(f"{PACKAGE}.{name}").run))


if __name__ == "__main__":
    sys.exit(main())
