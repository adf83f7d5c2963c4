"""Write the table of ``docs/classical.md`` from campaigns of the agent ``classical``.

Run the campaigns on seeds that no pipeline was tuned on, then this script::

    for seed in 101 102 103; do pytest --agent=classical --dataset=demo:$seed --campaign=campaigns/classical-$seed; done
    python docs/build_classical.py campaigns/classical-101 campaigns/classical-102 campaigns/classical-103

The text around the table is written by hand and stays as it is.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a script, only this folder is on the path

from biabench_plugin.report.rows import Row, load  # noqa: E402
from biabench_plugin.taskspec import load_tasks  # noqa: E402

PAGE = ROOT / "docs" / "classical.md"
BEGIN, END = "<!-- table: python docs/build_classical.py -->", "<!-- end of table -->"


def table(rows: list[Row]) -> str:
    """Return the Markdown table: outcome and strict per seed, means, seconds."""
    rows = [row for row in rows if row.agent == "classical" and row.record is not None]
    datasets = sorted({row.dataset for row in rows})
    tasks = sorted({row.task for row in rows})
    found = {(row.task, row.dataset): row for row in rows}
    labels = {slug: task.label for slug, task in load_tasks(ROOT / "tasks").items()}
    header = ["task", *(f"{name} outcome" for name in datasets), "mean", *(f"{name} strict" for name in datasets)]
    lines = [[*header, "mean strict", "seconds"]]
    for task in tasks:
        mine = [found[task, name] for name in datasets]
        outcomes, stricts = [row.outcome or 0.0 for row in mine], [row.strict for row in mine]
        known = [value for value in stricts if value is not None]
        seconds = mean(row.record.wall_seconds for row in mine if row.record is not None)
        lines.append(
            [
                labels.get(task, task),
                *(f"{value:.3f}" for value in outcomes),
                f"**{mean(outcomes):.3f}**",
                *("–" if value is None else f"{value:.3f}" for value in stricts),
                f"**{mean(known):.3f}**" if known else "–",
                f"{seconds:.0f}",
            ]
        )
    outcome = mean(mean(found[task, name].outcome or 0.0 for name in datasets) for task in tasks)
    strict = mean(found[task, name].strict or 0.0 for task in tasks for name in datasets)
    text = "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], ["---"] * len(lines[0]), *lines[1:]])
    return f"{text}\n\nMean over tasks: outcome **{outcome:.3f}**, strict **{strict:.3f}**."


def main(paths: list[str]) -> int:
    if not paths:
        print(__doc__)
        return 2
    page = PAGE.read_text(encoding="utf-8")
    block = f"{BEGIN}\n\n{table(load(Path(path) for path in paths))}\n\n{END}"
    PAGE.write_text(
        re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: block, page, flags=re.S), encoding="utf-8"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
