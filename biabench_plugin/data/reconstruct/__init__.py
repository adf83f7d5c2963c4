"""Rebuild a task's data from the original sources: the study's own archives, converted to the published layout.

The result is a folder of tasks for ``--dataset PATH``, never the published data: records call it local. Sources are
downloaded with pooch, checked against the checksums or sizes that are known, and kept; ``--from DIR`` takes what was
downloaded by hand, unpacked or not.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from biabench_plugin.data.cache import DataError, cache_dir, citation
from biabench_plugin.data.hub import sha256_of
from biabench_plugin.data.reconstruct.recipes import RECIPES, REFUSALS, Recipe
from biabench_plugin.data.reconstruct.sources import Tree
from biabench_plugin.taskspec import TaskSpec

__all__ = ["RECIPES", "REFUSALS", "Reconstruction", "default_root", "reconstruct", "reconstructible"]


@dataclass(frozen=True)
class Reconstruction:
    """What was rebuilt, and in what it is known to differ from the published data."""

    folder: Path
    input: Path
    evaluation: Path
    differences: tuple[str, ...]


def default_root() -> Path:
    """Return the folder of tasks that are rebuilt, unless another one is named."""
    return cache_dir() / "reconstructed"


def reconstructible(spec: TaskSpec) -> Recipe:
    """Return how a task is rebuilt.

    Raises
    ------
    DataError
        It cannot be; the message says why.
    """
    if spec.slug in RECIPES:
        return RECIPES[spec.slug]
    why = REFUSALS.get(spec.slug, "no recipe was written for it")
    raise DataError(f"{spec.slug} cannot be rebuilt from its sources: {why}")


def reconstruct(
    spec: TaskSpec, destination: Path, given: Path | None = None, say: Callable[[str], None] = lambda _: None
) -> Reconstruction:
    """Rebuild a task below ``destination``, which appears only once it is whole.

    Parameters
    ----------
    spec
        The task.
    destination
        Folder for ``input`` and ``evaluation``; must not exist, or be empty.
    given
        Folder with the sources, downloaded by hand; ``None`` downloads them.
    say
        Takes lines for the user.

    Raises
    ------
    DataError
        The task cannot be rebuilt, or a source lacks something, is damaged, or has changed.
    """
    recipe = reconstructible(spec)
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise DataError(f"{destination}: exists already; choose another folder with --into, or remove it")
    if given is None:
        if recipe.download is None:
            raise DataError(
                f"{spec.slug}: the address of its files is not known well enough to fetch them; download them from "
                f"{recipe.home} and say --from DIR"
            )
        sources = cache_dir() / "sources" / spec.dataset_id
        sources.mkdir(parents=True, exist_ok=True)
        say(f"sources: {recipe.home} ({spec.source.license}); {recipe.megabytes:,.0f} MB or more")
        recipe.download(sources, say)
    else:
        sources = given
        if not sources.is_dir():
            raise DataError(f"--from {given}: no such folder")
    destination.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{destination.name}-", dir=destination.parent))
    try:
        with Tree(sources) as tree:
            recipe.build(tree, building)
        (building / "evaluation").mkdir(exist_ok=True)
        _provenance(spec, recipe, sources, building)
        building.chmod(0o755)
        if destination.exists():
            destination.rmdir()
        building.rename(destination)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return Reconstruction(destination, destination / "input", destination / "evaluation", recipe.differences)


def _provenance(spec: TaskSpec, recipe: Recipe, sources: Path, folder: Path) -> None:
    """Write what the data were made of beside them."""
    used = sorted(path for path in sources.rglob("*") if path.is_file() and not path.name.startswith("."))
    record = {
        "schema_version": 1,
        "task": spec.slug,
        "source": recipe.home,
        "license": spec.source.license,
        "citation": citation(spec),
        "sources": {path.relative_to(sources).as_posix(): sha256_of(path) for path in used},
        "differences": list(recipe.differences),
    }
    (folder / "reconstruction.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
