"""Check a task folder before anybody runs it: specification, instructions, demo data, top and bottom of the scale."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from biabench_plugin import checkout
from biabench_plugin.taskspec import LEVELS, TaskError, TaskSpec, load_task, render_instruction
from evaluators import TruthError, check_parameters, evaluate, replay

WORDS = {"brief": (120, 400), "detailed": (230, 900)}
TOP = 0.999  # rounding of published tables; see TOP_WITHOUT_TRUTH for the exception
TOP_WITHOUT_TRUTH = 0.99  # a study without reference data is replayed from what its conclusion implies
DEMO_SECONDS = 8.0
DEMO_MB = 20.0
BUILD_TIMEOUT_SECONDS = 600
PLACEHOLDER = "TODO"

# Words by which an instruction would tell how a submission is judged.
SCORING_WORDS = (
    r"ground.?truth",
    r"reference (?:mask|label|value|annotation|table)s?",
    r"evaluators?",
    r"scor(?:e|es|ed|ing)",
    r"outcome scores?",
    r"metrics?",
    r"strict",
    r"dice",
    r"jaccard",
    r"f1",
    r"panoptic",
    r"benchmarks?",
    r"rubrics?",
)


@dataclass(frozen=True)
class Finding:
    """The result of one check, one line for a person."""

    verdict: Literal["ok", "warn", "FAIL"]
    check: str
    message: str

    def __str__(self) -> str:
        return f"{self.verdict:<5} {self.check:<12} {self.message}"


def leaks(spec: TaskSpec, text: str) -> list[str]:
    """Return what a rendered instruction gives away: the task, its source, or how a submission is judged.

    Names of a single plain word, such as an organism that is also a slug, give nothing away and are allowed; so are the
    ids of deliverables, which are part of the contract.
    """
    text = text.lower()
    source, allowed = spec.source, {deliverable.id for deliverable in spec.deliverables}
    names = (spec.slug, spec.dataset_id, spec.label, spec.outcome.kind, source.doi, source.accession, source.url or "")
    found = [name for name in names if not re.fullmatch(r"[A-Za-z]*", name) and name.lower() in text]
    found = [name for name in found if name not in allowed]
    for pattern in SCORING_WORDS:
        found += sorted({match[0] for match in re.finditer(rf"\b{pattern}\b", text)})
    return found


def check_task(folder: Path, seed: int = 0) -> Iterator[Finding]:
    """Yield a finding per check; checks that cannot be made after a failure are left out.

    Parameters
    ----------
    folder
        A task folder. Its ``demo.py`` is run, in processes of its own.
    seed
        Of the demo data.
    """
    try:
        spec = load_task(folder.resolve() / "task.yaml")
    except TaskError as error:
        yield Finding("FAIL", "spec", str(error))
        return
    taken = checkout.TASKS / spec.slug
    if taken.is_dir() and taken.resolve() != folder.resolve():
        yield Finding("FAIL", "spec", f"the suite has a task {spec.slug!r} already; a slug must be unique")
        return
    yield Finding("ok", "spec", f"task.yaml and both instructions of {spec.slug} can be read")
    try:
        check_parameters(spec.outcome, spec.deliverables)
    except ValueError as error:
        yield Finding("FAIL", "outcome", str(error))
        return
    yield Finding("ok", "outcome", f"parameters of kind {spec.outcome.kind} fit the deliverables")
    yield _placeholders(spec)
    for level in LEVELS:
        yield _length(spec, level)
    yield _instructions(spec)
    with tempfile.TemporaryDirectory(prefix="biabench-check-") as room:
        yield from _data(spec, Path(room), seed)


def _placeholders(spec: TaskSpec) -> Finding:
    places = [
        f"{name}:{number}"
        for name in ("task.yaml", *(f"{level}.md" for level in LEVELS))
        for number, line in enumerate((spec.folder / name).read_text(encoding="utf-8").splitlines(), start=1)
        if PLACEHOLDER in line
    ]
    if places:
        return Finding("warn", "placeholders", f"{PLACEHOLDER} is left in {', '.join(places)}")
    return Finding("ok", "placeholders", "none left")


def _length(spec: TaskSpec, level: str) -> Finding:
    words, (low, high) = len(spec.body(level).split()), WORDS[level]
    message = f"{words} words"
    if low <= words <= high:
        return Finding("ok", level, message)
    return Finding("warn", level, f"{message}; {low} to {high} are usual")


def _instructions(spec: TaskSpec) -> Finding:
    for level in LEVELS:
        for gpu in (False, True):
            text = render_instruction(spec, level, gpu=gpu, input_dir="/input", output_dir="/output")
            if found := leaks(spec, text):
                return Finding("FAIL", "leak", f"the {level} instruction says {', '.join(map(repr, found))}")
    return Finding("ok", "leak", "no instruction names the task, its source, or how a submission is judged")


# --- data -------------------------------------------------------------------------------------------------------------


def _data(spec: TaskSpec, room: Path, seed: int) -> Iterator[Finding]:
    if not (spec.folder / "demo.py").is_file():
        yield Finding("warn", "demo", "there is no demo.py; nothing can be replayed without data")
        return
    first, again, other = (room / name for name in ("first", "again", "other"))
    before = os.times()
    fault = _build(spec, {first: seed}, hash_seed=0)
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    if fault is None:
        fault = _layout(spec, first)
    if fault is not None:
        yield Finding("FAIL", "demo", fault)
        return
    megabytes = sum(path.stat().st_size for path in first.rglob("*") if path.is_file()) / 1e6
    large = seconds > DEMO_SECONDS or megabytes > DEMO_MB
    message = f"{seconds:.1f} s of CPU, {megabytes:.1f} MB"
    message += f"; at most {DEMO_SECONDS:g} s and {DEMO_MB:g} MB are wanted" if large else ""
    yield Finding("warn" if large else "ok", "demo", message)
    yield _same_bytes(spec, first, again, other, seed)
    yield _input(spec, first)
    yield from _declared(spec, first)
    yield from _scale(spec, first, room)


_BUILD = """
import sys
from pathlib import Path
from biabench_plugin.datasets import build_demo
from biabench_plugin.taskspec import load_task
task = load_task(Path(sys.argv[1]))
for folder, seed in zip(sys.argv[2::2], sys.argv[3::2]):
    build_demo(task, Path(folder), int(seed))
"""


def _build(spec: TaskSpec, wanted: dict[Path, int], hash_seed: int) -> str | None:
    """Build demo data of the wanted folders and seeds in a process of its own; return what went wrong."""
    for folder in wanted:
        folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(checkout.ROOT), "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-c", _BUILD, str(spec.folder / "task.yaml")]
    command += [word for folder, seed in wanted.items() for word in (str(folder), str(seed))]
    try:
        done = subprocess.run(
            command,
            cwd=next(iter(wanted)).parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"demo.py did not end within {BUILD_TIMEOUT_SECONDS} s"
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return f"demo.py stopped: {last}"
    return None


def _layout(spec: TaskSpec, folder: Path) -> str | None:
    found = {path.name for path in folder.iterdir()}
    wanted = {"input"} if spec.truth == "none" else {"input", "evaluation"}
    if not wanted <= found or found - {"input", "evaluation"}:
        return f"demo.py wrote {', '.join(sorted(found)) or 'nothing'}; expected {' and '.join(sorted(wanted))}"
    if empty := [name for name in sorted(wanted) if not any(path.is_file() for path in (folder / name).rglob("*"))]:
        return f"demo.py left {' and '.join(empty)} without a file"
    return None


def _digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _same_bytes(spec: TaskSpec, first: Path, again: Path, other: Path, seed: int) -> Finding:
    if fault := _build(spec, {again: seed, other: seed + 1}, hash_seed=1):
        return Finding("FAIL", "determinism", f"a second time: {fault}")
    one, two = _digests(first), _digests(again)
    if differing := sorted(name for name in one.keys() | two.keys() if one.get(name) != two.get(name)):
        return Finding("FAIL", "determinism", f"seed {seed} gave other bytes a second time: {', '.join(differing[:3])}")
    if one == _digests(other):
        return Finding("warn", "determinism", f"seeds {seed} and {seed + 1} give the same data")
    return Finding("ok", "determinism", f"seed {seed} gives the same bytes in two processes")


def _input(spec: TaskSpec, data: Path) -> Finding:
    """Check that the input holds neither the truth nor the name of the task."""
    truth = {digest: name for name, digest in _digests(data / "evaluation").items()} if spec.truth == "files" else {}
    for name, digest in _digests(data / "input").items():
        if digest in truth:
            return Finding("FAIL", "input", f"input/{name} is the same file as evaluation/{truth[digest]}")
        if ("_" in spec.slug and spec.slug in name) or spec.dataset_id.lower() in name.lower():
            return Finding("FAIL", "input", f"input/{name} names the task")
    return Finding("ok", "input", "holds no file of the truth and no name of the task")


def _declared(spec: TaskSpec, data: Path) -> Iterator[Finding]:
    """Compare the demo data with the layout that task.yaml declares, where it does."""
    from biabench_plugin.data.verify import layout

    if spec.data is None:
        return
    found = [one for one in layout(spec, data / "input", data / "evaluation", demo=True) if one.verdict != "ok"]
    faults = [Finding(one.verdict, "layout", f"{one.check}/{one.message}") for one in found]
    yield from faults or (Finding("ok", "layout", "every file of the demo data is as task.yaml declares"),)


# --- scale ------------------------------------------------------------------------------------------------------------


def _scale(spec: TaskSpec, data: Path, room: Path) -> Iterator[Finding]:
    truth, images = data / "evaluation", data / "input"
    nothing, words = (room / name for name in ("nothing", "words"))
    for folder in (nothing, words):
        folder.mkdir()
    top = replayed(spec, images, truth, room)
    yield top
    if top.message.startswith(_UNUSABLE):
        return
    (words / "report.md").write_text("# Report\n\nAll files were written and checked.\n", encoding="utf-8")
    for name, folder, what in (("empty", nothing, "nothing"), ("bluff", words, "a report alone")):
        score = evaluate(spec.outcome, spec.deliverables, folder, truth, images)
        zero = score.outcome == 0 and not score.strict and not score.delivered
        yield Finding(
            "ok" if zero else "FAIL", name, f"{what} scores {score.outcome:g}{'' if zero else ', expected 0'}"
        )


_UNUSABLE = "the truth cannot be replayed"


def replayed(spec: TaskSpec, images: Path, truth: Path, room: Path) -> Finding:
    """Hand the truth in as a submission, written below ``room``, and say whether it reaches the top of the scale."""
    perfect = room / "perfect"
    perfect.mkdir()
    try:
        replay(spec.outcome, spec.deliverables, truth, images, perfect)
        score = evaluate(spec.outcome, spec.deliverables, perfect, truth, images)
    except (TruthError, ValueError) as error:
        return Finding("FAIL", "replay", f"{_UNUSABLE}: {error}")
    wanted = TOP_WITHOUT_TRUTH if spec.truth == "none" else TOP
    strict = "undecided" if score.strict is None else f"{score.strict:.4f}"
    message = f"outcome {score.outcome:.4f}, strict {strict}"
    if score.outcome < wanted or (score.strict is not None and score.strict < TOP) or not score.delivered:
        named = "".join(f"; {problem.code} in {problem.where}: {problem.message}" for problem in score.problems[:3])
        message += f"; truth handed in must reach {wanted:g} and {TOP:g}{named}"
        return Finding("FAIL", "replay", message)
    if score.problems:
        return Finding("warn", "replay", f"{message}; {len(score.problems)} problems, {score.problems[0].message}")
    if score.strict is None and spec.truth == "files":
        return Finding("warn", "replay", f"{message}: the truth cannot tell a guess from a measurement")
    return Finding("ok", "replay", message)
