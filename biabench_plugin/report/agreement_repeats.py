"""How alike the deliverables of an agent's repeats are, and whether that tells the outcome. Needs no truth."""

from __future__ import annotations

from biabench_plugin.report.study import Study
from biabench_plugin.report.table import Table


def tables(study: Study) -> list[Table]:
    return []


def figure(study: Study) -> None:
    return None
