"""Write the table of ``docs/judge.md``: what judging one run costs, by how it is asked.

Run any campaign with realistic runs, then this script; nothing is sent and no key is needed::

    pytest --agent=classical --dataset=demo --campaign=campaigns/classical
    python docs/build_judge_costs.py campaigns/classical
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a script, only this folder is on the path

from biabench_plugin.judging import runs  # noqa: E402
from biabench_plugin.taskspec import load_tasks  # noqa: E402
from evaluators.process.evidence import gather_bounded  # noqa: E402
from evaluators.process.judge import DEFAULT_MODEL, OUTPUT_PER_DECISION, estimate  # noqa: E402
from evaluators.process.model import JudgeUsage  # noqa: E402
from evaluators.process.requests import Asking, build  # noqa: E402
from evaluators.process.rubric import load_rubric  # noqa: E402

PAGE = ROOT / "docs" / "judge.md"
BEGIN, END = "<!-- table: python docs/build_judge_costs.py -->", "<!-- end of table -->"
SCHEMES = {
    "published: 2 items, no canary": (Asking(DEFAULT_MODEL, chunk=2, canary=False, tags=False), False),
    "2 items (default)": (Asking(DEFAULT_MODEL, chunk=2), False),
    "10 items": (Asking(DEFAULT_MODEL, chunk=10), False),
    "all in one": (Asking(DEFAULT_MODEL, chunk=None), False),
    "all in one, batch": (Asking(DEFAULT_MODEL, chunk=None), True),
}


def costs(campaign: Path) -> tuple[dict[str, list[JudgeUsage]], int]:
    """Return the estimates of each scheme on every run with analysis, and the number of tasks."""
    found: dict[str, list[JudgeUsage]] = {name: [] for name in SCHEMES}
    tasks = set()
    for _, run in runs(campaign, load_tasks(ROOT / "tasks")):
        evidence = gather_bounded(run.source)
        if evidence.analysis is None:
            continue
        tasks.add(run.task)
        items = load_rubric().select(run.sections)
        for name, (asking, batch) in SCHEMES.items():
            requests = build(evidence, items, asking, "0" * 24)
            found[name].append(estimate(requests, evidence, asking.model, batch))
    return found, len(tasks)


def table(found: dict[str, list[JudgeUsage]], tasks: int) -> str:
    """Return the Markdown table: means per run."""
    lines = [["asked", "requests", "fresh", "cache written", "cache read", "output", "USD per run", "of published"]]
    base = mean(usage.cost_usd or 0.0 for usage in next(iter(found.values())))
    for name, usages in found.items():
        counts = [
            mean(getattr(usage, field) for usage in usages)
            for field in ("requests", "input_tokens", "cache_write_tokens", "cache_read_tokens", "output_tokens")
        ]
        price = mean(usage.cost_usd or 0.0 for usage in usages)
        numbers = [f"{counts[0]:.1f}", *(f"{count:,.0f}" for count in counts[1:])]
        lines.append([name, *numbers, f"{price:.3f}", f"{price / base:.0%}"])
    text = "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], ["---"] * len(lines[0]), *lines[1:]])
    runs_counted = len(next(iter(found.values())))
    return (
        f"{text}\n\nMeans over {runs_counted} runs on {tasks} tasks, judge `{DEFAULT_MODEL}`, tokens estimated from "
        f"the exact requests, {OUTPUT_PER_DECISION} output tokens for each decision."
    )


def main(paths: list[str]) -> int:
    if len(paths) != 1:
        print(__doc__)
        return 2
    text = table(*costs(Path(paths[0])))
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(re.sub(f"{BEGIN}.*{END}", f"{BEGIN}\n{text}\n{END}", page, flags=re.DOTALL), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
