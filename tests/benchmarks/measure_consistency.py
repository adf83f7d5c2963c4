"""How often the self-consistency audit errs on a campaign: ``python tests/benchmarks/measure_consistency.py CAMPAIGN…``

Counts contradictions on sound runs (outcome at least 0.5, as they are) and on the same runs after one kind of damage
to the delivered tables, with the report left as it was.
"""

from __future__ import annotations

import csv
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from biabench_plugin.records import TrialRecord
from biabench_plugin.report.rows import load
from biabench_plugin.taskspec import TaskSpec, load_tasks
from evaluators.model import Content
from evaluators.process.consistency import Audit, audit
from evaluators.submission import Submission

Table = list[list[str]]


def _half(table: Table) -> Table:
    return [table[0], *random.Random(1).sample(table[1:], len(table[1:]) // 2)]


def _twice(table: Table) -> Table:
    return [*table, *table[1:]]


def _rotated(table: Table) -> Table:
    """Give every condition the name of the next one."""
    for place in range(len(table[0])):
        labels = sorted({row[place] for row in table[1:]})
        if 2 <= len(labels) <= 8 and not all(label.replace(".", "").replace("-", "").isdecimal() for label in labels):
            following = dict(zip(labels, labels[1:] + labels[:1], strict=True))
            return [table[0], *([*row[:place], following[row[place]], *row[place + 1 :]] for row in table[1:])]
    return table


DAMAGE: dict[str, Callable[[Table], Table]] = {"half of the rows": _half, "rows twice": _twice, "conditions": _rotated}


def _tables(folder: Path, task: TaskSpec) -> Iterator[Path]:
    files = Submission(folder, task.deliverables)
    for deliverable in task.deliverables:
        if deliverable.content is Content.TABLE:
            yield from (folder.joinpath(*file.parts) for file in files.candidates(deliverable.id))


def _damaged(folder: Path, task: TaskSpec, record: TrialRecord, damage: Callable[[Table], Table]) -> Audit | None:
    """Audit a copy whose tables are damaged; ``None`` where there is nothing to damage."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(shutil.copytree(folder, Path(scratch) / "submission"))
        changed = False
        for path in _tables(copy, task):
            before = list(csv.reader(path.read_text().splitlines()))
            after = damage([list(row) for row in before])
            changed |= after != before
            with path.open("w", newline="") as stream:
                csv.writer(stream).writerows(after)
        return audit(copy, task.deliverables, record.final_message) if changed else None


def main(campaigns: list[str]) -> None:
    tasks = load_tasks(Path(__file__).resolve().parents[2] / "tasks")
    sound: list[Audit] = []
    caught: dict[str, list[bool]] = {name: [] for name in DAMAGE}
    for row in load(map(Path, campaigns)):
        if row.record is None or row.folder is None or (row.outcome or 0) < 0.5:
            continue
        task, submission = tasks[row.task], row.folder / "submission"
        found = audit(submission, task.deliverables, row.record.final_message)
        sound.append(found)
        if not found.compared:
            continue
        for name, damage in DAMAGE.items():
            result = _damaged(submission, task, row.record, damage)
            if result is not None:
                caught[name].append(bool(result.contradictions))
    stated = [found for found in sound if found.compared]
    wrong = sum(bool(found.contradictions) for found in sound)
    print(f"sound runs flagged: {wrong} of {len(sound)} ({len(stated)} of them with statements to compare, "
          f"{sum(found.compared for found in stated)} in all)")  # fmt: skip
    for name, hits in caught.items():
        print(f"caught, {name}: {sum(hits)} of {len(hits)}")


if __name__ == "__main__":
    main(sys.argv[1:])
