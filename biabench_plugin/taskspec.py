"""The task.yaml model, its validation, and the rendering of instructions."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from biabench_plugin.data.layout import DataLayout
from evaluators.model import Deliverable, OutcomeSpec


class TaskError(ValueError):
    """A task folder cannot be used; the message names the file and what is wrong with it."""


class Subtask(StrEnum):
    """The eleven analysis steps of the suite (Table A1 of the paper)."""

    SEGMENTATION = "segmentation"
    FEATURE_EXTRACTION = "feature_extraction"
    STATISTICAL_PLOTTING = "statistical_plotting"
    SPOT_DETECTION = "spot_detection"
    COLOCALIZATION = "colocalization"
    TRACKING = "tracking"
    CLASSIFICATION = "classification"
    FILAMENT_EXTRACTION = "filament_extraction"
    DENOISING = "denoising"
    STITCHING = "stitching"
    VISUALIZATION = "visualization"


class Modality(StrEnum):
    """Imaging modalities of the suite; also pytest markers."""

    WIDEFIELD = "widefield"
    CONFOCAL = "confocal"
    SPINNING_DISK = "spinning_disk"
    LIGHT_SHEET = "light_sheet"
    PHASE_CONTRAST = "phase_contrast"
    DIC = "dic"
    SMLM = "smlm"
    AIRYSCAN = "airyscan"
    HISTOLOGY = "histology"
    SIMULATED = "simulated"
    OTHER = "other_modality"


class Difficulty(StrEnum):
    EASY = "easy"
    MEDIUM = "medium"
    HARD = "hard"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(_Model):
    """The published study behind a task. None of it is shown to an agent."""

    study: str
    accession: str
    doi: str
    license: str
    url: str | None = None


class TaskSpec(_Model):
    """One task. Only ``deliverables`` and the two instruction bodies reach an agent."""

    slug: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    label: str
    dataset_id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    difficulty: Difficulty
    modality: Modality
    dimension: Literal["2D", "3D"]
    temporal: Literal["static", "time-lapse"]
    channels: int = Field(ge=1)
    subtasks: tuple[Subtask, ...] = Field(min_length=1)
    organism: str
    structure: str
    source: Source
    input_size_mb: float = Field(gt=0)
    evaluation_size_mb: float = Field(default=0.0, ge=0)
    data: DataLayout | None = None
    input_description: str = Field(min_length=20)
    expected_minutes: float = Field(default=10.0, gt=0)
    deliverables: tuple[Deliverable, ...] = Field(min_length=1)
    truth: Literal["files", "none"] = "files"
    outcome: OutcomeSpec
    rubric_sections: tuple[str, ...] = ()
    not_applicable: dict[int, str] = Field(default_factory=dict)  # rubric items that cannot apply here, and why
    folder: Path = Field(exclude=True)

    @model_validator(mode="after")
    def _consistent(self) -> TaskSpec:
        ids = [deliverable.id for deliverable in self.deliverables]
        if duplicates := sorted({name for name in ids if ids.count(name) > 1}):
            raise ValueError(f"deliverable ids occur twice: {', '.join(duplicates)}")
        if not any(deliverable.required for deliverable in self.deliverables):
            raise ValueError("no deliverable is required")
        if len(set(self.subtasks)) != len(self.subtasks):
            raise ValueError("a subtask occurs twice")
        return self

    @property
    def markers(self) -> tuple[str, ...]:
        """Marker names for ``pytest -m``: difficulty, dimension, modality and every subtask."""
        dimension = "three_d" if self.dimension == "3D" else "two_d"
        timelapse = ("timelapse",) if self.temporal == "time-lapse" else ()
        kinds = (self.difficulty.value, self.modality.value, *(subtask.value for subtask in self.subtasks))
        return (dimension, *timelapse, *kinds)

    def published_bytes(self, field: str) -> int:
        """Return the size of the published ``input`` or ``evaluation`` folder."""
        return int(1e6 * (self.input_size_mb if field == "input" else self.evaluation_size_mb))

    def body(self, level: str) -> str:
        """Return the instruction body of a level, ``brief`` or ``detailed``."""
        return (self.folder / f"{level}.md").read_text(encoding="utf-8").strip() + "\n"


LEVELS = ("brief", "detailed")


def load_task(path: Path) -> TaskSpec:
    """Read and validate ``task.yaml``; raise :class:`TaskError` with every fault found."""
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TaskError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise TaskError(f"{path}: is not YAML: {error}") from error
    if not isinstance(raw, dict):
        raise TaskError(f"{path}: expected a mapping of fields, found {type(raw).__name__}")
    try:
        spec = TaskSpec.model_validate({**raw, "folder": path.parent})
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(str(part) for part in fault['loc']) or 'task'}: {fault['msg']}" for fault in error.errors()
        )
        raise TaskError(f"{path}: {faults}") from error
    if spec.slug != path.parent.name:
        raise TaskError(f"{path}: slug {spec.slug!r} differs from its folder {path.parent.name!r}")
    for level in LEVELS:
        body = path.parent / f"{level}.md"
        if not body.is_file() or not body.read_text(encoding="utf-8").strip():
            raise TaskError(f"{body}: missing or empty; a task needs brief.md and detailed.md")
    return spec


def load_tasks(*roots: Path) -> dict[str, TaskSpec]:
    """Load every ``<root>/<slug>/task.yaml``, sorted by slug; a slug that occurs twice is an error."""
    tasks: dict[str, TaskSpec] = {}
    for root in roots:
        if not root.is_dir():
            raise TaskError(f"{root}: no such folder of tasks")
        for path in sorted(root.glob("*/task.yaml")):
            spec = load_task(path)
            if spec.slug in tasks:
                raise TaskError(f"{path}: task {spec.slug!r} was already loaded from {tasks[spec.slug].folder}")
            tasks[spec.slug] = spec
    return dict(sorted(tasks.items()))


_SOURCE_POLICY = """\
Source-study policy:
- The data come from a published study. Do not look for, download or read that publication, its figures, supplements or
  reported values, and do not try to identify it from file names or metadata. Every number you report must be measured
  on the data provided here; copying a published value invalidates the work. General background, methods literature
  and documentation of software may be used freely.
"""

_COMPUTE = {
    True: "Compute environment:\n- A CUDA-capable GPU is available to you; use it for heavy steps where a library "
    "supports it, and the CPU otherwise.\n",
    False: "Compute environment:\n- No GPU is available; plan for CPU execution.\n",
}


def _contract(deliverables: tuple[Deliverable, ...]) -> str:
    lines = ["Required output files (they are looked for by name inside the output folder):"]
    for deliverable in deliverables:
        need = "required" if deliverable.required else "optional"
        count = "one file per image or sequence" if deliverable.multiple else "one file"
        lines += [
            f"- {deliverable.id} ({need}, {count})",
            f"  File name: {' or '.join(deliverable.patterns)}",
            f"  Format: {deliverable.format}",
        ]
        if deliverable.columns:
            lines.append(f"  Columns: {', '.join(deliverable.columns)}")
        lines.append(f"  {' '.join(deliverable.description.split())}")
    return "\n".join(lines) + "\n"


def render_instruction(spec: TaskSpec, level: str, *, gpu: bool, input_dir: str, output_dir: str) -> str:
    """Return the whole text that an agent receives: body, contract, policy, compute line, paths.

    The same arguments give the same bytes. Nothing about scoring is part of it.
    """
    if level not in LEVELS:
        raise ValueError(f"instruction level {level!r}: expected one of {', '.join(LEVELS)}")
    paths = (
        "Paths:\n"
        f"- Input folder (read-only): {input_dir}\n"
        "  All data of this task lie below it; explore its layout yourself.\n"
        f"- Output folder (write here): {output_dir}\n"
        "  Only files inside this folder are part of your submission. Use absolute paths.\n"
    )
    blocks = [spec.body(level), _contract(spec.deliverables), _SOURCE_POLICY, _COMPUTE[gpu], paths]
    return "\n---\n\n".join(re.sub(r"[ \t]+\n", "\n", block) for block in blocks)
