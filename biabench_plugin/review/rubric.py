"""The items that a reviewer answers, taken from the rubric that the judge uses."""

from __future__ import annotations

from biabench_plugin.review.model import ReviewItem
from biabench_plugin.taskspec import TaskSpec


def rubric_version() -> str:
    """Return the version of the rubric at hand."""
    from evaluators.process.rubric import load_rubric

    return str(load_rubric().version)


def rubric_items(task: TaskSpec) -> list[ReviewItem]:
    """Return the items that a task selects, without those that its task file says cannot apply."""
    from evaluators.process.rubric import load_rubric

    rubric = load_rubric()
    never = task.not_applicable
    return [
        ReviewItem(
            number=item.id,
            section=item.section,
            title=rubric.sections[item.section].title,
            general=rubric.sections[item.section].general,
            severity=item.severity,
            weight=rubric.weight(item.id),
            statement=item.statement,
            evidence=item.evidence,
            absence=item.absence,
            unless=item.unless,
        )
        for item in rubric.select(task.rubric_sections)
        if item.id not in never
    ]
