"""The written report: question, method, quality control, result, caveats; and the statistics that it states."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import stats

from ._job import Failure


@dataclass(frozen=True)
class Summary:
    """What describes a sample: size, mean, standard deviation (n - 1), median and quartiles."""

    n: int
    mean: float
    sd: float
    median: float
    lower: float
    upper: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Summary:
        """Summarise finite values; the spread of fewer than two is not a number."""
        data = np.asarray(list(values), dtype=float)
        data = data[np.isfinite(data)]
        if data.size == 0:
            return cls(0, np.nan, np.nan, np.nan, np.nan, np.nan)
        lower, median, upper = (float(q) for q in np.percentile(data, [25, 50, 75]))
        sd = float(np.std(data, ddof=1)) if data.size > 1 else float("nan")
        return cls(data.size, float(np.mean(data)), sd, median, lower, upper)

    def text(self, unit: str = "", digits: int = 3) -> str:
        """Return mean ± SD, median with quartiles, and N, in one phrase."""
        if self.n == 0:
            return "no values"
        tail = f" {unit}" if unit else ""
        spread = "" if np.isnan(self.sd) else f" ± {number(self.sd, digits)}"
        quartiles = f"{number(self.median, digits)} [{number(self.lower, digits)}, {number(self.upper, digits)}]"
        return (
            f"{number(self.mean, digits)}{spread}{tail} (mean ± SD), median [quartiles] {quartiles}{tail}, N = {self.n}"
        )


def number(value: float, digits: int = 3) -> str:
    """Return a number with so many significant digits, without an exponent; thousands keep all their digits."""
    if not np.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - int(np.floor(np.log10(abs(value)))))
    return f"{value:.{decimals}f}"


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Return Student's confidence interval of a mean, or ``None`` for fewer than two values."""
    data = np.asarray(values, dtype=float)
    if data.size < 2:
        return None
    half = float(stats.t.ppf(0.5 + confidence / 2, data.size - 1) * stats.sem(data))
    return float(np.mean(data)) - half, float(np.mean(data)) + half


def compare_groups(one: npt.ArrayLike, two: npt.ArrayLike) -> str:
    """Compare two samples of independent units: difference of means with 95 % interval (Welch) and its p value."""
    first, second = np.asarray(one, dtype=float), np.asarray(two, dtype=float)
    if min(first.size, second.size) < 2:
        return "too few independent units for a test"
    result = stats.ttest_ind(first, second, equal_var=False)
    interval = result.confidence_interval(0.95)
    return (
        f"difference {number(float(first.mean() - second.mean()))} "
        f"(95 % CI {number(float(interval.low))} to {number(float(interval.high))}), "
        f"Welch t = {result.statistic:.2f}, df = {result.df:.1f}, p = {result.pvalue:.3g}, "
        f"N = {first.size} and {second.size}"
    )


@dataclass
class Report:
    """A Markdown report that is filled section by section."""

    title: str
    _lines: list[str] = field(default_factory=list)

    def section(self, heading: str, *paragraphs: str) -> None:
        """Begin a section."""
        self._lines += ["", f"## {heading}", ""]
        self.text(*paragraphs)

    def text(self, *paragraphs: str) -> None:
        """Add paragraphs."""
        for paragraph in paragraphs:
            self._lines += [paragraph, ""]

    def bullets(self, *items: str) -> None:
        """Add a list."""
        self._lines += [*(f"- {item}" for item in items), ""]

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Add a table; floats with three significant digits."""
        self._lines += [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
        for row in rows:
            cells = [number(value) if isinstance(value, float) else str(value) for value in row]
            self._lines.append(f"| {' | '.join(cells)} |")
        self._lines.append("")

    def failures(self, failures: Sequence[Failure], expected: int, unit: str) -> None:
        """State which items failed, or that none did."""
        if not failures:
            self.text(f"All {expected} {unit} were processed; none was left out.")
            return
        self.text(f"{len(failures)} of {expected} {unit} could not be processed and have no result:")
        self.bullets(*(f"`{failure.item}`: {failure.reason}" for failure in failures))

    def write(self, path: Path) -> None:
        """Write the report, with the software that was used at its end."""
        versions = ", ".join(
            f"{name} {_version(name)}"
            for name in ("numpy", "scipy", "scikit-image", "tifffile", "matplotlib", "Pillow")
        )
        self.section("Software", f"Python {platform.python_version()}, {versions}. The scripts lie in `scripts/`.")
        text = re.sub(r"\n{3,}", "\n\n", "\n".join([f"# {self.title}", *self._lines])).rstrip() + "\n"
        path.write_text(text, encoding="utf-8")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(version unknown)"
