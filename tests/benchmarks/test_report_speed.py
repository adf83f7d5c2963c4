"""How long the report of 720 and of 10,080 runs takes, and how much memory; 10,000 resamples of 720 runs.

Targets on two idle cores: 20 s for 720 runs; 90 s and 1.5 GB for 10,000. Processor time is printed beside the clock's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import json, resource, sys, time
from dataclasses import replace
from pathlib import Path
from biabench_plugin import checkout
from biabench_plugin.report import stats
from biabench_plugin.report.export import export
from biabench_plugin.report.runs import load_runs, paper_runs, write_runs
from biabench_plugin.taskspec import load_tasks

copies, out = int(sys.argv[1]), Path(sys.argv[2])
tasks = load_tasks(checkout.TASKS)
runs = [
    replace(run, configuration=f"{run.configuration}-{copy}", agent=f"{run.agent} {copy}" if copy else run.agent)
    for copy in range(copies) for run in paper_runs(tasks)
]
write_runs(runs, out / "given.csv")
began, used = time.perf_counter(), time.process_time()
made = export(load_runs([out / "given.csv"], tasks), tasks, out)
seconds, processor = time.perf_counter() - began, time.process_time() - used
grid = stats.grid(paper_runs(tasks))
began = time.perf_counter()
stats.bootstrap(grid, 10_000)
print(json.dumps({
    "runs": len(runs), "seconds": seconds, "processor": processor, "bootstrap": time.perf_counter() - began,
    "mebibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "tables": len(made.tables), "figures": len(made.figures),
}))
"""


@pytest.mark.parametrize("copies", [1, 14])
def test_report_speed(copies: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(copies), str(tmp_path)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    print(found)
    assert found["runs"] == 720 * copies
    assert found["tables"] >= 20
    assert found["mebibytes"] <= 1500  # memory does not depend on the load
