"""Pictures of a trial's submission beside the truth, for its page."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath

from biabench_plugin.datasets import Dataset, DatasetError, TaskData, demo_path
from biabench_plugin.records import DatasetIdentity
from biabench_plugin.report.sanitise import MAX_SVG_BYTES, svg_image
from biabench_plugin.taskspec import TaskSpec
from evaluators.bounded import inspect_bounded, replay_bounded
from evaluators.previews import Preview
from evaluators.problems import Refusal, shown
from evaluators.submission import Submission

_MAX_TRUTH_BYTES = 1 << 30  # of a truth that is written out for pictures
_DRAWINGS = 4


@dataclass(frozen=True)
class Truth:
    """A task's truth in the form of a submission, or in words why it cannot be shown."""

    reference: Path | None
    input: Path | None
    note: str = ""


def locate(task: TaskSpec, identity: DatasetIdentity) -> TaskData | None:
    """Return the data that a trial ran on, where they are at hand and still the same; builds nothing."""
    try:
        dataset = Dataset.parse(identity.name)
        if dataset.kind == "demo" and not demo_path(task, dataset.seed).is_dir():
            return None
        data = dataset.locate(task)
    except (DatasetError, OSError):
        return None
    return data if data is not None and data.digests == (identity.input_digest, identity.truth_digest) else None


@contextmanager
def truth_of(task: TaskSpec, identity: DatasetIdentity) -> Iterator[Truth]:
    """Write the truth out in the form of a submission for as long as pages are made."""
    data = locate(task, identity)
    if data is None:
        yield Truth(None, None, "The data of this trial are not on this machine, so the truth is not shown.")
        return
    size = sum(path.stat().st_size for path in data.truth.rglob("*") if path.is_file()) if data.truth.is_dir() else 0
    if size > _MAX_TRUTH_BYTES:
        yield Truth(None, data.input, "The truth is too large to be drawn here.")
        return
    with tempfile.TemporaryDirectory(prefix="biabench-truth-") as folder:
        failure = replay_bounded(task.outcome, task.deliverables, data.truth, Path(folder), data.input)
        if failure is None:
            yield Truth(Path(folder), data.input)
        else:
            yield Truth(None, data.input, f"The truth cannot be drawn: {failure}")


def preview(submission: Path, task: TaskSpec, truth: Truth) -> Preview | str:
    """Draw a submission in the bounded child; in words why that was not possible."""
    paths = {"submission": submission, "reference": truth.reference, "input": truth.input}
    found = inspect_bounded("look", task.deliverables, paths)
    return found if isinstance(found, str) else Preview.model_validate(found)


def drawings(submission: Path) -> list[tuple[str, str]]:
    """Return the agent's SVG figures that have no twin in pixels, made harmless, as addresses for ``<img>``."""
    files = Submission(submission, ()).files
    twins = {(file.folder, file.stem) for file in files if PurePath(file.name).suffix.lower() in (".png", ".jpg")}
    found: list[tuple[str, str]] = []
    for file in files:
        if len(found) == _DRAWINGS:
            break
        if not file.name.lower().endswith(".svg") or (file.folder, file.stem) in twins or file.size > MAX_SVG_BYTES:
            continue
        try:
            with file.open() as handle:
                address = svg_image(handle.read(MAX_SVG_BYTES + 1).decode("utf-8", "replace"))
        except (Refusal, OSError):
            continue
        if address is not None:
            found.append((shown(file.path), address))
    return found
