"""Figure 5: agreement of judges with a human expert."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from biabench_plugin.report.figure import INK, SOFT, Figure, canvas, colour, marker, rules
from biabench_plugin.report.reviews import (
    WEIGHTS,
    Reviewed,
    agreement,
    agreement_tables,
    failed_items,
    judges,
    process_scores,
)
from biabench_plugin.report.stats import pearson
from biabench_plugin.report.table import shown

_SEVERITY = {severity: colour(place) for place, severity in enumerate(WEIGHTS)}


def agreement_figures(items: Sequence[Reviewed]) -> list[Figure]:
    """Return Figure 5; nothing where nobody reviewed."""
    if not items or not judges(items):
        return []
    adopted = judges(items)[0]
    whole = agreement(items, adopted)
    kappa = whole.estimates["kappa"]

    def draw() -> Canvas:
        made, axes = canvas(11, 7, 2, 3)
        _judges(items, axes[0, 0])
        _strata(items, adopted, axes[0, 1])
        _confusion(items, adopted, axes[0, 2])
        _run_level(items, adopted, axes[1, 0])
        _against_outcome(items, axes[1, 1])
        _failed(items, axes[1, 2])
        return made

    return [
        Figure(
            "figure5",
            "Figure 5. Agreement of judges and expert",
            "a) Accuracy, Cohen's κ and over-crediting of each judge, on items that both decided, with 95 % intervals "
            "over runs. b) κ of the adopted judge by section and severity; n is the number of items. c) Its decisions "
            "against the expert's. d) Process score of each run, expert against judge. e) Expert's process score "
            "against outcome. f) Items failed most often.",
            f"{adopted} agrees with the expert on {shown(whole.accuracy, 2)} of {whole.both} items, κ = "
            f"{shown(whole.kappa, 2)} ({shown(kappa.low, 2)} to {shown(kappa.high, 2)}); it passes "
            f"{shown(whole.estimates['over_credit'].value, 2)} of what the expert failed.",
            draw,
            agreement_tables(items)[0],
        )
    ]


def _judges(items: Sequence[Reviewed], axes: Axes) -> None:
    names = judges(items)
    found = [agreement(items, judge) for judge in names]
    for place, measure in enumerate(("accuracy", "kappa", "over_credit")):
        values = [one.estimates[measure] for one in found]
        x = np.arange(len(names)) + 0.25 * (place - 1)
        centre = np.array([value.value for value in values], float)
        spread = np.abs(np.array([[value.low, value.high] for value in values], float).T - centre)
        label = measure.replace("_", "-").replace("kappa", "κ")
        axes.bar(x, centre, 0.23, yerr=np.nan_to_num(spread), color=colour(place), label=label, error_kw={"lw": 0.8})
    axes.set_xticks(range(len(names)), names, rotation=15)
    axes.set_ylim(0, 1)
    axes.set_title("a  judges")
    axes.legend(fontsize=7)


def _strata(items: Sequence[Reviewed], adopted: str, axes: Axes) -> None:
    rows: list[tuple[str, float, str]] = []
    for kind, shade in (("section", colour(2)), ("severity", INK)):
        for value in sorted({getattr(item, kind) for item in items}):
            one = agreement([item for item in items if getattr(item, kind) == value], adopted, resamples=0)
            rows.append((f"{value} (n = {one.both})", one.kappa or 0.0, shade))
    axes.barh(range(len(rows)), [row[1] for row in rows], color=[row[2] for row in rows])
    axes.set_yticks(range(len(rows)), [row[0] for row in rows], fontsize=7)
    axes.axvline(agreement(items, adopted, resamples=0).kappa or 0.0, linestyle="--", color=SOFT)
    axes.invert_yaxis()
    axes.set_title("b  κ by stratum")


def _confusion(items: Sequence[Reviewed], adopted: str, axes: Axes) -> None:
    table = np.zeros((2, 2), int)
    for item in items:
        if item.expert in ("pass", "fail") and (verdict := item.verdicts.get(adopted)) in ("pass", "fail"):
            table[int(item.expert == "fail"), int(verdict == "fail")] += 1
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="cividis", vmin=0, vmax=1)
    for row in range(2):
        for column in range(2):
            text = f"{table[row, column]}\n{100 * shares[row, column]:.0f} %"
            shade = "white" if shares[row, column] < 0.55 else "black"
            axes.text(column, row, text, ha="center", va="center", color=shade)
    axes.set_xticks(range(2), ["judge: pass", "judge: fail"])
    axes.set_yticks(range(2), ["expert: pass", "expert: fail"])
    axes.set_title("c  decisions")


def _points(axes: Axes, items: Sequence[Reviewed], points: dict[str, tuple[float, float]]) -> None:
    agents = sorted({item.agent for item in items})
    of_run = {item.run: item.agent for item in items}
    for place, agent in enumerate(agents):
        own = [point for run, point in points.items() if of_run[run] == agent]
        axes.scatter(
            [x for x, _y in own], [y for _x, y in own], s=24, color=colour(place), marker=marker(place), label=agent
        )
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    rules(axes, "both")


def _run_level(items: Sequence[Reviewed], adopted: str, axes: Axes) -> None:
    expert, judged = process_scores(items), process_scores(items, adopted)
    points = {run: (expert[run], judged[run]) for run in expert if run in judged}
    _points(axes, items, points)
    axes.plot([0, 1], [0, 1], "--", color=SOFT, linewidth=0.8)
    r = pearson([x for x, _y in points.values()], [y for _x, y in points.values()])
    axes.set(xlabel="process, expert", ylabel="process, judge", title=f"d  r = {shown(r, 2)}")
    axes.legend(fontsize=6.5)


def _against_outcome(items: Sequence[Reviewed], axes: Axes) -> None:
    expert = process_scores(items)
    outcome = {item.run: item.outcome for item in items if item.outcome is not None}
    points = {run: (outcome[run], expert[run]) for run in expert if run in outcome}
    _points(axes, items, points)
    r = pearson([x for x, _y in points.values()], [y for _x, y in points.values()])
    axes.set(xlabel="outcome", ylabel="process, expert", title=f"e  r = {shown(r, 2)}")


def _failed(items: Sequence[Reviewed], axes: Axes) -> None:
    rows = failed_items(items)
    axes.barh(
        range(len(rows)),
        [count.fail_rate or 0.0 for _, count in rows],
        color=[_SEVERITY[item.severity] for item, _ in rows],
    )
    labels = [f"{item.item}: {item.statement[:38]} {count.failed}/{count.decided}" for item, count in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=6)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_title("f  failed most often")
