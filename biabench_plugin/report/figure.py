"""A figure of a report: drawn with matplotlib, in colours that colour-blind readers can tell apart."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import NullFormatter

from biabench_plugin.report.table import Table

# Okabe and Ito, "Color Universal Design", 2008: eight colours that all common kinds of colour vision tell apart.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")  # the second code beside colour
INK, SOFT, GRID = "#1c2427", "#5c6a70", "#d8e0e3"
SEQUENTIAL = "cividis"  # even in lightness, made for colour-blind readers
DPI = 130

_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "biabench",
    "figure.facecolor": "white",
    "path.simplify": True,
    "text.parse_math": False,  # names may hold dollar signs
}


@contextmanager
def style() -> Iterator[None]:
    """Set the look of figures for as long as one is drawn or saved."""
    with mpl.rc_context(_STYLE):
        yield


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
    def _images(self) -> tuple[bytes, bytes]:
        with style():
            canvas = self.draw()
            renderer = FigureCanvasAgg(canvas).get_renderer()  # type: ignore[no-untyped-call]
            canvas.draw_without_rendering()
            canvas.set_layout_engine("none")  # placed once; laying out for each format takes most of the time
            box = canvas.get_tightbbox(renderer).padded(0.06)
            vector, raster = io.BytesIO(), io.BytesIO()
            about = {"Date": None, "Creator": None, "Title": self.title}
            canvas.savefig(vector, format="svg", metadata=about, bbox_inches=box)
            canvas.savefig(raster, format="png", dpi=DPI, metadata={"Software": None}, bbox_inches=box)
        return vector.getvalue(), raster.getvalue()

    @property
    def svg(self) -> bytes:
        """The figure as SVG without a time stamp: the same runs give the same bytes."""
        return self._images[0]

    @property
    def png(self) -> bytes:
        """The figure as PNG."""
        return self._images[1]


def canvas(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Canvas, Any]:
    """Return an empty figure, in inches, and its axes (one, or an array)."""
    made = Canvas(figsize=(width, height), layout="constrained")
    return made, made.subplots(rows, columns, **options)


def colour(index: int) -> str:
    return PALETTE[index % len(PALETTE)]


def marker(index: int) -> str:
    """A marker that changes when the colours have been used up, so that every pair of both occurs once."""
    return MARKERS[(index + index // len(PALETTE)) % len(MARKERS)]


def rules(axes: Axes, axis: str = "y") -> None:
    """Draw soft grid lines behind the data."""
    axes.grid(visible=True, axis=axis, color=GRID, linewidth=0.6)  # type: ignore[arg-type]
    axes.set_axisbelow(True)


def plain_log(axis: Axis) -> None:
    """Write the ticks of a logarithmic axis as plain numbers."""
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def legend(axes: Axes, **options: Any) -> None:
    """Put the legend outside, to the right."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, **options)
