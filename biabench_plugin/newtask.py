"""Write the skeleton of a task: a specification with every field explained, two instructions, demo data that work."""

from __future__ import annotations

import re
import textwrap
from inspect import getdoc
from pathlib import Path

from biabench_plugin import checkout
from biabench_plugin.taskspec import Modality, Subtask, TaskError, load_tasks
from evaluators.model import Content
from evaluators.outcome.parameters import PARAMETERS

SKELETON = Path(__file__).resolve().parent / "skeleton"
DEFAULT_KIND = "cell_counting"

# What depends on the kind of outcome. Everything else of task.yaml is the same for all.
_BLOCKS = (
    *("modality", "dimension", "temporal", "channels", "subtasks"),
    *("input_description", "data", "deliverables", "truth", "outcome"),
)


class NewTaskError(ValueError):
    """A skeleton cannot be written; the message says why and what to do."""


def kinds() -> dict[str, Path]:
    """Return for each kind of outcome the folder that a skeleton is made from.

    Where there is no template of a kind, that is a task of the suite: its deliverables, outcome and demo data.
    """
    found = {path.parent.name: path.parent for path in sorted(SKELETON.glob("*/task.yaml"))}
    try:
        tasks = load_tasks(checkout.TASKS)
    except TaskError as error:
        raise NewTaskError(str(error)) from error
    for task in tasks.values():
        if (task.folder / "demo.py").is_file():
            found.setdefault(task.outcome.kind, task.folder)
    return dict(sorted(found.items()))


def create(slug: str, into: Path, kind: str = DEFAULT_KIND) -> list[Path]:
    """Write ``into/slug`` and return its files.

    Raises
    ------
    NewTaskError
        The slug is no slug or taken, the kind is unknown, or the folder exists already; nothing is written.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", slug):
        raise NewTaskError(f"{slug!r}: a slug is made of lower-case letters, digits and _, and begins with a letter")
    if kind not in PARAMETERS:
        raise NewTaskError(f"unknown kind {kind!r}; kinds: {', '.join(kinds())}")
    if kind not in kinds():
        raise NewTaskError(f"there is no example of kind {kind!r} to start from; kinds with one: {', '.join(kinds())}")
    folder = into / slug
    if folder.exists() or folder.is_symlink():
        raise NewTaskError(f"{folder}: exists already; nothing was written")
    if (checkout.TASKS / slug).is_dir():
        raise NewTaskError(f"the suite has a task {slug!r} already; a slug must be unique")
    example = kinds()[kind]
    files = {
        "task.yaml": _specification(slug, kind, example),
        "brief.md": (SKELETON / "brief.md").read_text(encoding="utf-8"),
        "detailed.md": (SKELETON / "detailed.md").read_text(encoding="utf-8"),
        "demo.py": (example / "demo.py").read_text(encoding="utf-8"),
    }
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in files]


def _specification(slug: str, kind: str, example: Path) -> str:
    blocks = _blocks((example / "task.yaml").read_text(encoding="utf-8"))
    values = {
        "slug": slug,
        "words": slug.replace("_", " "),
        "dashed": slug.replace("_", "-").strip("-"),
        "modalities": ", ".join(Modality) + ".",
        "subtasks_known": ", ".join(Subtask) + ".",
        "contents": ", ".join(Content),
        "parameters": _parameters(kind),
        "truth": "truth: files",
    }
    values |= {name: blocks[name] for name in _BLOCKS if name in blocks}
    text = re.sub(r"@(\w+)@", lambda match: values[match[1]], (SKELETON / "task.yaml").read_text(encoding="utf-8"))
    return "".join(f"{wrapped}\n" for line in text.splitlines() for wrapped in _wrapped_comment(line))


def _blocks(text: str) -> dict[str, str]:
    """Cut a task.yaml into the texts of its top-level fields."""
    parts = re.split(r"^(?=[a-z_]+:)", text, flags=re.MULTILINE)
    return {part.partition(":")[0]: part.rstrip("\n") for part in parts if re.match(r"[a-z_]+:", part)}


def _parameters(kind: str) -> str:
    """Return the parameters of a kind as comments, in the words of its class."""
    model = PARAMETERS[kind]
    _, _, text = (getdoc(model) or "").partition("Attributes\n----------\n")
    lines = []
    for names, description in re.findall(r"^(\w[^\n]*)\n((?:[ ]+[^\n]*\n?)+)", text, re.MULTILINE):
        lines.append(f"#   {names}: {' '.join(description.split())}")
    return "\n".join(lines) or "#   none"


def _wrapped_comment(line: str, width: int = 120) -> list[str]:
    """Break a long comment, so that the file reads well."""
    if len(line) <= width or not line.startswith("#"):
        return [line]
    indent = re.sub(r"\S.*", "", line[1:])
    return textwrap.wrap(line, width, subsequent_indent=f"#{indent}{'  ' if len(indent) > 1 else ''}")
