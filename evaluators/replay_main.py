"""``python -m evaluators.replay_main``: write the perfect submission of a task from its reference data."""

from __future__ import annotations

import argparse
from pathlib import Path

import yaml

from evaluators.evaluation import replay
from evaluators.model import Deliverable, OutcomeSpec, TruthError


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 when written, 3 when the reference data cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m evaluators.replay_main", description=__doc__)
    parser.add_argument("--task-dir", type=Path, required=True, help="folder of task.yaml")
    parser.add_argument("--truth", type=Path, required=True, help="the evaluation folder")
    parser.add_argument("--input", type=Path, help="the input folder")
    parser.add_argument("--output", type=Path, required=True, help="where the submission is written")
    options = parser.parse_args(arguments)
    task = yaml.safe_load((options.task_dir / "task.yaml").read_text(encoding="utf-8"))
    outcome = OutcomeSpec.model_validate(task["outcome"])
    deliverables = [Deliverable.model_validate(entry) for entry in task["deliverables"]]
    try:
        replay(outcome, deliverables, options.truth, options.input, options.output)
    except TruthError as error:
        parser.exit(3, f"unusable reference data: {error}\n")
    print("Wrote the perfect submission from the reference data.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
