"""Every figure of a report, drawn with matplotlib in colours that colour-blind readers can tell apart."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from matplotlib.figure import Figure as Canvas

from biabench_plugin.report.runs import Run
from biabench_plugin.report.tables import Table
from biabench_plugin.taskspec import TaskSpec


@dataclass(frozen=True)
class Figure:
    """One figure: ``svg`` and ``png`` are drawn when first asked for. ``alt`` says in words what it shows.

    ``data`` holds the numbers behind it, for readers who cannot see it and for machines.
    """

    id: str
    title: str
    caption: str
    alt: str
    draw: Callable[[], Canvas]
    data: Table | None = None

    @cached_property
    def _canvas(self) -> Canvas:
        return self.draw()

    @cached_property
    def svg(self) -> bytes:
        """Return the figure as SVG without a time stamp: the same runs give the same bytes."""
        stream = io.BytesIO()
        self._canvas.savefig(stream, format="svg", metadata={"Date": None, "Creator": None, "Title": self.title})
        return stream.getvalue()

    @cached_property
    def png(self) -> bytes:
        """Return the figure as PNG, 150 dots per inch."""
        stream = io.BytesIO()
        self._canvas.savefig(stream, format="png", dpi=150, metadata={"Software": None, "Title": self.title})
        return stream.getvalue()


def all_figures(runs: Sequence[Run], tasks: Mapping[str, TaskSpec]) -> list[Figure]:
    """Return every figure that the runs determine, in the order of a report; see :func:`tables.all_tables`."""
    return []
