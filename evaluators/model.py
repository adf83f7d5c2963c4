"""The words that evaluators, agents and the plugin share: deliverables, problems, scores."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator


class TruthError(Exception):
    """The reference data of a task cannot be used. It is the operator's fault, never an agent's."""


class Content(StrEnum):
    """What a deliverable holds; decides which checks a file must pass before it is decoded."""

    LABEL_IMAGE = "label_image"  # 2D or 3D, one integer per pixel, 0 = background, one file per image
    BINARY_IMAGE = "binary_image"  # 2D or 3D, background 0 and one foreground value
    LABEL_STACK = "label_stack"  # (t, y, x) labels over time, one file or one file per frame
    IMAGE = "image"  # intensities
    CHANNEL_STACK = "channel_stack"  # intensities, several planes and channels in one file
    TABLE = "table"  # delimited text with a header
    WORKBOOK = "workbook"  # Excel workbook (.xlsx) with tables
    LINEAGE = "lineage"  # Cell Tracking Challenge track table, four integers per line


class Deliverable(BaseModel):
    """One file, or one family of files, that a task requires. This is all of the contract that an agent reads.

    Parameters
    ----------
    id
        Short name, letters, digits and ``_``.
    patterns
        Case-insensitive globs, matched against a file's name and against its path below the output folder.
    format
        The format in words, as the instruction shows it.
    content
        What the file holds, for the checks (not shown to agents).
    required
        Whether the outcome needs it.
    multiple
        One file per image (``True``) or one file in all.
    columns
        Column names that a table must have; upper and lower case are the same, further columns are allowed.
    description
        Everything else that a person needs to write the file: units, origin, axis order, label conventions.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    patterns: tuple[str, ...] = Field(min_length=1)
    format: str = Field(min_length=3)
    content: Content
    required: bool = True
    multiple: bool = False
    columns: tuple[str, ...] = ()
    description: str = Field(min_length=10)

    @field_validator("patterns")
    @classmethod
    def _pattern_has_suffix(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            if "." not in pattern.rsplit("/", 1)[-1]:
                raise ValueError(f"pattern {pattern!r} names no file extension")
        return patterns


class OutcomeSpec(BaseModel):
    """Which evaluator scores a task, and with which constants."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str
    parameters: dict[str, Any] = Field(default_factory=dict)
    tiebreak: str | None = None


class Problem(BaseModel):
    """One named fault of a submission: where it lies, what was expected and what was found.

    ``code`` is stable and short (``missing_file``, ``wrong_shape``, …); ``where`` names the deliverable, file, frame or
    row; ``message`` is a sentence for a person.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    code: str
    where: str
    message: str


class OutcomeScore(BaseModel):
    """The deterministic score of one submission.

    ``outcome`` follows the published definition and ranks; ``strict`` answers the loopholes of that definition and is
    ``None`` where truth cannot decide it. ``metrics`` holds unrounded diagnostics, ``items`` one row per image, frame
    or other unit that was averaged.
    """

    model_config = ConfigDict(extra="forbid")

    outcome: float = Field(ge=0.0, le=1.0)
    strict: float | None = Field(default=None, ge=0.0, le=1.0)
    delivered: bool
    evaluator: str
    evaluator_version: str
    parameters: dict[str, Any] = Field(default_factory=dict)
    metrics: dict[str, float | int | str | None] = Field(default_factory=dict)
    items: list[dict[str, Any]] = Field(default_factory=list)
    problems: list[Problem] = Field(default_factory=list)
