"""The rubric: 105 items with stable numbers, and which of them a task selects."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

FILE = Path(__file__).with_name("rubric.yaml")
GENERAL = "general_evaluation"  # in a task's rubric_sections: all general sections

Severity = Literal["critical", "major", "minor"]
Stage = Literal["load", "preprocess", "detect", "measure", "statistics", "visualise", "report"]
STAGES: tuple[Stage, ...] = ("load", "preprocess", "detect", "measure", "statistics", "visualise", "report")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Section(_Model):
    """A group of items; ``general`` ones apply to every task."""

    title: str
    general: bool = False


class Item(_Model):
    """One statement about a run; ``id`` is its number in Table E1 of the paper.

    ``absence`` says what it means that nothing shows it: ``fail`` or ``unknown``. ``unless`` is the condition under
    which it does not apply, ``None`` where it always does. ``reversed`` marks items whose published wording is
    negative; ours are all positive.
    """

    id: int
    section: str
    stage: Stage
    severity: Severity
    statement: str
    evidence: str
    absence: Literal["fail", "unknown"]
    unless: str | None = None
    reversed: bool = False


class Rubric(_Model):
    """All items of one version."""

    version: str
    weights: dict[Severity, int]
    sections: dict[str, Section]
    items: tuple[Item, ...]
    digest: str = Field(exclude=True)

    @model_validator(mode="after")
    def _consistent(self) -> Rubric:
        if [item.id for item in self.items] != list(range(1, len(self.items) + 1)):
            raise ValueError("items are not numbered from 1 on without gaps")
        if unknown := {item.section for item in self.items} - set(self.sections):
            raise ValueError(f"items name sections that do not exist: {', '.join(sorted(unknown))}")
        return self

    def __getitem__(self, number: int) -> Item:
        return self.items[number - 1]

    def weight(self, number: int) -> int:
        """Weight of an item by its severity."""
        return self.weights[self[number].severity]

    def select(self, sections: Iterable[str]) -> tuple[Item, ...]:
        """Return the items of the named sections in order of their numbers.

        ``general_evaluation`` names all general sections. No section at all selects the general ones.

        Raises
        ------
        ValueError
            A section does not exist.
        """
        named = set(sections) or {GENERAL}
        if unknown := named - set(self.sections) - {GENERAL}:
            raise ValueError(
                f"no such rubric section: {', '.join(sorted(unknown))}; sections: {GENERAL}, {', '.join(self.sections)}"
            )
        if GENERAL in named:
            named |= {name for name, section in self.sections.items() if section.general}
        return tuple(item for item in self.items if item.section in named)


@cache
def load_rubric(path: Path = FILE) -> Rubric:
    """Read the rubric; raise ``ValueError`` that names the file when it is not one."""
    raw = path.read_bytes()
    try:
        return Rubric.model_validate({**yaml.safe_load(raw), "digest": hashlib.sha256(raw).hexdigest()})
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: is no rubric: {error}") from error
