"""Every figure of a report, from the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from biabench_plugin.report import figures_beyond, figures_paper, figures_time
from biabench_plugin.report.figure import Figure
from biabench_plugin.report.figures_review import agreement_figures
from biabench_plugin.report.reviews import Reviewed
from biabench_plugin.report.runs import Run
from biabench_plugin.report.study import DEMO, studies
from biabench_plugin.taskspec import TaskSpec

__all__ = ["Figure", "all_figures"]


def all_figures(runs: Sequence[Run], tasks: Mapping[str, TaskSpec], reviewed: Sequence[Reviewed] = ()) -> list[Figure]:
    """Return every figure that the runs determine, in the order of a report; parameters as for ``all_tables``."""
    figures = figures_paper.suite(tasks)
    groups = studies(runs, tasks)
    for study in groups:
        found = [*figures_paper.figures(study), *figures_time.figures(study), *figures_beyond.figures(study)]
        named = study.id_suffix if len(groups) > 1 else ""
        demo = f"{DEMO} " if study.runs[0].demo else ""
        figures += [
            replace(
                figure,
                id=figure.id + named,
                title=figure.title + study.title_suffix,
                caption=demo + figure.caption,
            )
            for figure in found
        ]
    return [*figures, *agreement_figures(reviewed)]
