"""Check the report of the short campaign: perfect, empty and classical submissions score as they must."""

import json
import sys
from pathlib import Path

campaign = Path(sys.argv[1])
rows = {row["configuration"]: row for row in json.loads((campaign / "leaderboard.json").read_text())["rows"]}
suite = {path.parent.name: path.read_text(encoding="utf-8") for path in Path("tasks").glob("*/task.yaml")}
tasks = {slug: text for slug, text in suite.items() if "\ndifficulty: hard\n" not in text}  # a short campaign
faults = []


def expect(condition: bool, message: str) -> None:
    if not condition:
        faults.append(message)


expect(set(rows) == {"replay[brief]", "empty[brief]", "classical[brief]"}, f"configurations: {sorted(rows)}")
for name, row in rows.items():
    expect(set(row["cells"]) == set(tasks), f"{name}: tasks {sorted(row['cells'])}, expected {sorted(tasks)}")
    expect(row["infrastructure"] == row["not_run"] == 0, f"{name}: infrastructure faults")
for task, cell in rows["replay[brief]"]["cells"].items():
    # Without a published reference the formula rewards a monotone response, which honest data reach to 0.99 only.
    least = 0.99 if "\ntruth: none\n" in tasks[task] else 0.999
    expect(cell["outcome"] >= least, f"replay on {task}: outcome {cell['outcome']}")
    expect(cell["strict"] is None or cell["strict"] >= 0.999, f"replay on {task}: strict {cell['strict']}")
for task, cell in rows["empty[brief]"]["cells"].items():
    expect(cell["outcome"] == 0.0, f"empty on {task}: outcome {cell['outcome']}")
classical = rows["classical[brief]"]
expect(classical["outcome"] >= 0.75, f"classical: mean outcome {classical['outcome']}")
expect(classical["uncontained"] == 0, "classical: ran without containment")
for task, cell in classical["cells"].items():
    expect(cell["outcome"] >= 0.5, f"classical on {task}: outcome {cell['outcome']}")
page = (campaign / "report" / "index.html").read_text(encoding="utf-8")
expect("classical[brief]" in page and "Demo data" in page, "report page is incomplete")
if faults:
    sys.exit("campaign check failed:\n" + "\n".join(faults))
print(f"campaign check: {len(tasks)} tasks, classical {classical['outcome']:.3f} (strict {classical['strict']:.3f})")
