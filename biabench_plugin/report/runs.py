"""One run as every table and figure sees it, and its readers: campaigns, JUnit files, leaderboard entries, run CSVs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from agents.pricing import PriceTable
from biabench_plugin.billing import cost_of
from biabench_plugin.records import RecordError
from biabench_plugin.report.claims import published_claim
from biabench_plugin.report.rows import Row, from_campaign, from_junit, properties
from biabench_plugin.taskspec import TaskSpec
from evaluators.process import store
from evaluators.process.claims import closing_claim
from evaluators.process.rubric import load_rubric

Status = Literal["delivered", "no_deliverable", "crashed", "refused", "infrastructure", "not_run"]
STATES: tuple[Status, ...] = ("delivered", "no_deliverable", "crashed", "refused")

PUBLISHED = "full"  # the dataset that the paper and the leaderboard use
PAPER = Path(__file__).parent / "paper"
PAPER_PREFIX = "paper-"

_CLASSES = {
    "claude_code": "general",
    "codex": "general",
    "deepseek_harness": "general",
    "biomni": "biology",
    "copilotj": "biology",
    "agentic_j": "biology",
}
_OPEN = ("deepseek", "glm", "gpt-oss", "kimi", "llama", "mistral", "qwen")
_CLOSED = ("claude", "gemini", "gpt-", "grok", "opus", "sonnet")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one configuration on one task; what was not measured is ``None``, never 0.

    ``configuration`` tells rows apart within a dataset. ``sections`` holds, by rubric section, how many items passed
    and how many were decided. ``process_published`` is the process score by the paper's rules, the only one that may
    stand beside the paper's.
    """

    dataset: str
    configuration: str
    agent: str
    model: str | None
    instruction: str
    task: str
    run_id: str
    status: Status
    outcome: float | None = None
    strict: float | None = None
    process: float | None = None
    process_published: float | None = None
    auditability: float | None = None
    judge: str | None = None
    sections: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    timed_out: bool | None = None
    wall_minutes: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    cached_tokens: float | None = None
    reasoning_tokens: float | None = None
    tool_calls: float | None = None
    executed_blocks: float | None = None
    cost_usd: float | None = None
    cost_source: str | None = None  # "billed" or "list_price"
    budget_minutes: float | None = None
    claim: str | None = None  # of the closing message: claimed, denied, promised; unknown without one
    claim_published: str | None = None  # the same by the paper's word list
    tags: tuple[str, ...] = ()
    agent_class: str | None = None  # "general", "biology" or None
    effort: str | None = None
    usage_source: str | None = None
    synthetic: bool = False
    folder: Path | None = None
    note: str = ""
    source: str = "record"

    @property
    def scored(self) -> bool:
        """Whether the run enters means: crashes and time-outs do, refusals and infrastructure faults do not."""
        return self.outcome is not None and self.status in ("delivered", "no_deliverable", "crashed")

    @property
    def demo(self) -> bool:
        return self.dataset.partition(":")[0] == "demo"

    @property
    def label(self) -> str:
        """Agent, model and level as a person names them."""
        parts = [self.agent] + ([self.model] if self.model else [])
        return " · ".join(parts) + (" (detailed)" if self.instruction == "detailed" else "")

    @property
    def weights(self) -> str | None:
        """Whether the model's weights are ``open`` or ``closed``; ``None`` for a model that is not known here."""
        name = (self.model or "").lower()
        for kind, words in (("open", _OPEN), ("closed", _CLOSED)):
            if any(word in name for word in words):
                return kind
        return None

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.dataset, self.configuration, self.task, self.run_id)


class RunError(RecordError):
    """A file of runs cannot be used; the message names the file, what was expected and what was found."""


def load_runs(paths: Iterable[Path], tasks: Mapping[str, TaskSpec], prices: PriceTable | None = None) -> list[Run]:
    """Read campaign folders, JUnit XML files, leaderboard entry JSONs and run CSVs, in any mix.

    A run that several of them hold is taken once; a record is preferred to every other source. What a run cost is the
    provider's bill where there is one, else its tokens at list price; with ``prices`` the tokens of records are priced
    by this table instead (the other sources do not tell cached tokens, and keep their cost).

    Raises
    ------
    RunError
        A path does not exist, or is none of the four; the message names it.
    RecordError
        A JUnit file, or an attempt's bills, cannot be read.
    """
    slugs = {task.dataset_id: slug for slug, task in tasks.items()}
    found: dict[tuple[str, str, str, str], Run] = {}
    for path in paths:
        for run in _read(path, slugs, prices):
            known = found.get(run.key)
            if known is None or (run.source == "record" and known.source != "record"):
                found[run.key] = run
    ran = {_trial(run) for run in found.values() if run.source == "record" and run.status != "not_run"}
    # an index without its record says less than the record of the same trial
    return [run for run in found.values() if run.source == "record" or _trial(run) not in ran]


def _trial(run: Run) -> tuple[str, str, str, str]:
    return (run.dataset, run.configuration, run.task, run.run_id.partition("@")[0])


def paper_runs(tasks: Mapping[str, TaskSpec]) -> list[Run]:
    """Return the 720 runs of the study's 15 configurations (figures of the public leaderboard, BSD-3-Clause)."""
    return load_runs([PAPER / "runs.csv"], tasks)


def with_paper(runs: Sequence[Run], tasks: Mapping[str, TaskSpec]) -> list[Run]:
    """Put the study's configurations beside the runs, under the rules that make them comparable.

    Raises
    ------
    RunError
        A run is of another dataset than the published one: its scores cannot be compared.
    """
    others = sorted({run.dataset for run in runs if run.dataset != PUBLISHED})
    if others:
        raise RunError(
            f"--compare paper: found runs on {', '.join(others)}; only runs on the published data (dataset "
            f"'{PUBLISHED}') can stand beside the paper's. Demo data check an installation and are no benchmark results"
        )
    ours = [replace(run, process=run.process_published) if run.source == "record" else run for run in runs]
    known = {run.key for run in ours}
    return [*ours, *(run for run in paper_runs(tasks) if run.key not in known)]


def _read(path: Path, slugs: Mapping[str, str], prices: PriceTable | None) -> Iterable[Run]:
    if path.is_dir():
        return (_from_row(row, prices) for row in from_campaign(path))
    if not path.is_file():
        raise RunError(f"{path}: no such campaign folder, JUnit XML, entry JSON or run CSV")
    readers: dict[str, Callable[[Path, Mapping[str, str]], Iterator[Run]]] = {
        ".xml": partial(_read_junit, prices=prices),
        ".json": _read_entry,
        ".csv": _read_csv,
    }
    if path.suffix.lower() not in readers:
        raise RunError(f"{path}: expected a campaign folder, or a file .xml, .json or .csv; found {path.suffix!r}")
    return readers[path.suffix.lower()](path, slugs)


# --- campaigns -----------------------------------------------------------------------------------------------------


def _from_row(row: Row, prices: PriceTable | None) -> Run:
    record = row.record
    if record is None:
        ran = row.status == "damaged record"
        agent, _, rest = row.configuration.partition("[")
        return Run(
            dataset=row.dataset,
            configuration=row.configuration,
            agent=row.agent or agent,
            model=None,
            instruction="detailed" if "detailed" in rest else "brief",
            task=row.task,
            run_id=f"r{row.repeat}@",
            status="infrastructure" if ran else "not_run",
            note=row.note or row.status,
            folder=row.folder,
        )
    score = record.score if record.counts else None
    view, sections = _judged(row.folder)
    cost = cost_of(record, row.folder, prices)
    return Run(
        dataset=PUBLISHED if record.dataset.kind == "full" else record.dataset.name,
        configuration=record.configuration,
        agent=record.agent,
        model=record.model,
        instruction=record.instruction_level,
        task=record.task,
        run_id=f"r{record.repeat}@{record.started.isoformat()}",
        status=record.status.value if record.valid else "infrastructure",
        outcome=None if score is None else score.outcome,
        strict=None if score is None else score.strict,
        process=getattr(view, "score", None),
        process_published=getattr(view, "published", None),
        auditability=getattr(view, "auditability", None),
        judge=None if view is None else f"{view.judge}, protocol {view.protocol_version}",
        sections=sections,
        timed_out=record.timed_out,
        wall_minutes=record.wall_seconds / 60,
        input_tokens=record.usage.input_tokens,
        output_tokens=record.usage.output_tokens,
        cached_tokens=record.usage.cached_tokens,
        reasoning_tokens=record.usage.reasoning_tokens,
        tool_calls=record.usage.tool_calls,
        executed_blocks=record.usage.executed_blocks,
        cost_usd=cost.best_usd if prices is None else cost.metered_usd,
        cost_source=cost.provenance if prices is None or cost.metered_usd is None else "list_price",
        budget_minutes=record.budget_seconds / 60,
        claim=_claim(record.final_message),
        claim_published=published_claim(record.final_message),
        tags=_tags(row.folder),
        agent_class=_CLASSES.get(record.agent),
        effort=record.effort_applied,
        usage_source=record.usage.source,
        synthetic=record.synthetic,
        folder=row.folder,
        note=row.note,
    )


def _judged(folder: Path | None) -> tuple[Any, dict[str, tuple[int, int]]]:
    """Return the view of an attempt's latest judgement, and per rubric section how many items passed and were decided.

    ``None`` and nothing where the attempt was not judged. Items count alike there, as in Table 2 of the paper.
    """
    if folder is None or not (folder / "judgements").is_dir():
        return None, {}
    try:
        view = store.latest(folder)
        judgements = store.judgements(folder)
    except ValueError as error:  # its message names the file
        raise RunError(str(error)) from error
    if view is None or view.score is None:
        return view, {}
    judgement = [found for found in judgements if found.judge == view.judge][-1]
    rubric = load_rubric()
    counts: dict[str, tuple[int, int]] = {}
    for decision in judgement.decisions:
        if decision.verdict in ("pass", "fail"):
            section = str(rubric[decision.item].section)
            passed, decided = counts.get(section, (0, 0))
            counts[section] = (passed + (decision.verdict == "pass"), decided + 1)
    return view, counts


def _claim(message: str | None) -> str:
    """Return what a closing message claims."""
    return str(closing_claim(message))


def _tags(folder: Path | None) -> tuple[str, ...]:
    path = None if folder is None else folder / "tags.json"
    if path is None or not path.is_file():
        return ()
    try:
        return tuple(sorted({str(entry["tag"]) for entry in json.loads(path.read_bytes())["tags"]}))
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f'{path}: expected {{"tags": [{{"tag": …}}]}}: {error}') from error


# --- JUnit, entries, CSV -------------------------------------------------------------------------------------------


def _read_junit(path: Path, slugs: Mapping[str, str], prices: PriceTable | None = None) -> Iterator[Run]:
    """Take runs from records where these still lie where the file says, else from the item's properties."""
    for row, case in zip(from_junit(path), properties(path), strict=True):
        run = _from_row(row, prices)
        yield (
            run
            if row.record is not None
            else replace(run, **_from_properties(case), run_id=f"r{row.repeat}@{path}", source="junit")
        )


def _from_properties(found: Mapping[str, str]) -> dict[str, Any]:
    def number(name: str) -> float | None:
        return float(found[name]) if name in found else None

    infrastructure = "infrastructure" in found
    values: dict[str, Any] = {
        "model": found.get("model"),
        "instruction": found.get("instruction", "brief"),
        "outcome": number("outcome"),
        "strict": number("strict"),
        "process": number("process"),
        "auditability": number("auditability"),
        "timed_out": found["timed_out"] == "true" if "timed_out" in found else None,
        "wall_minutes": None if (seconds := number("wall_seconds")) is None else seconds / 60,
        "agent_class": _CLASSES.get(found.get("agent", "")),
        **{name: number(name) for name in ("input_tokens", "output_tokens", "tool_calls", "cost_usd")},
    }
    if infrastructure or found.get("status") in get_args(Status):
        values["status"] = "infrastructure" if infrastructure else found["status"]
    return values


def _status(name: str, where: str) -> Status:
    name = "crashed" if name == "crash" else name
    if name not in get_args(Status):
        raise RunError(f"{where}: status {name!r}: expected one of {', '.join(get_args(Status))}")
    return name  # type: ignore[return-value]


def _limit(configuration: str, run: Mapping[str, Any]) -> tuple[bool | None, float | None]:
    """Tell whether a run of the study was stopped at the wall-clock limit, and at which.

    Its entries have no such field; a scored run without token counts that lasted two or four hours is one that the
    limit stopped (39 runs, as many as Table 2 of the paper counts).
    """
    if not configuration.startswith(PAPER_PREFIX) or run["wall_min"] is None:
        return None, None
    if run["input_tokens"] is not None:
        return False, None
    for limit in (120.0, 240.0):
        if limit <= run["wall_min"] < limit + 0.1:
            return True, limit
    return False, None


def _read_entry(path: Path, slugs: Mapping[str, str]) -> Iterator[Run]:
    """Read one entry of the published leaderboard schema."""
    try:
        entry = json.loads(path.read_bytes())
        settings, agent, model = entry["settings"], entry["agent"], entry["model"]
        tasks = {str(name): list(held["runs"]) for name, held in entry["tasks"].items()}
        about = {
            "dataset": PUBLISHED,
            "configuration": str(entry["id"]),
            "agent": str(agent["name"]),
            "model": str(model["name"]),
            "instruction": str(settings["instruction_level"]),
            "judge": settings.get("judge_model"),
            "cost_source": settings.get("cost_provenance"),
            "agent_class": agent.get("class"),
            "source": "entry",
        }
        for task, runs in tasks.items():
            for run in runs:
                yield _entry_run(about, slugs.get(task, task), run, f"{path}: task {task}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, RunError):
            raise
        raise RunError(f"{path}: is no leaderboard entry: {type(error).__name__}: {error}") from error


def _entry_run(about: dict[str, Any], task: str, run: Mapping[str, Any], where: str) -> Run:
    given = {name: run.get(name) for name in ("process", "wall_min", "input_tokens", "output_tokens", "cost_usd")}
    status = _status(str(run["status"]), where)
    timed_out, budget = (None, None) if status == "refused" else _limit(about["configuration"], given)
    return Run(
        **about,
        task=task,
        run_id=str(run["run_id"]),
        status=status,
        outcome=None if status == "refused" else _number(run["outcome"], 1.0, where),
        process=_number(given["process"], 1.0, where),
        process_published=_number(given["process"], 1.0, where),
        wall_minutes=_number(given["wall_min"], None, where),
        input_tokens=_number(given["input_tokens"], None, where),
        output_tokens=_number(given["output_tokens"], None, where),
        cost_usd=_number(given["cost_usd"], None, where),
        timed_out=timed_out,
        budget_minutes=budget,
    )


def _number(value: object, most: float | None, where: str) -> float | None:
    if value is None or value == "":
        return None
    try:
        number = float(str(value))
    except ValueError:
        number = float("nan")
    if not 0 <= number <= (float("inf") if most is None else most):
        raise RunError(f"{where}: expected a number of at least 0{f' and at most {most:g}' if most else ''}: {value!r}")
    return number


_ALIASES = {
    "entry_id": "configuration",
    "task_id": "task",
    "instruction_level": "instruction",
    "wall_min": "wall_minutes",
}
_TEXTS = {"cost_source", "judge", "agent_class", "claim", "claim_published", "effort", "usage_source", "note"}
_SCORES = {"outcome", "strict", "process", "process_published", "auditability"}
_NUMBERS = {
    "wall_minutes",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "tool_calls",
    "executed_blocks",
    "cost_usd",
    "budget_minutes",
}
_FLAGS = {"timed_out", "synthetic"}
_NEEDED = ("configuration", "agent", "model", "instruction", "task", "run_id", "status", "outcome")
COLUMNS = (*_NEEDED[:-1], "dataset", *sorted(_SCORES), *sorted(_FLAGS), *sorted(_NUMBERS), *sorted(_TEXTS), "tags")


def csv_stream(path: Path) -> io.StringIO:
    """Return a CSV's text for :mod:`csv`; raise :class:`RunError` where it is not in UTF-8."""
    try:
        return io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")
    except UnicodeDecodeError as error:
        raise RunError(f"{path}: expected a CSV in UTF-8: {error}") from error


def _read_csv(path: Path, slugs: Mapping[str, str]) -> Iterator[Run]:
    """Read a run CSV: the ``runs.csv`` of a report, or the form of the public leaderboard's transcript.

    The latter names its configurations ``entry_id`` and is of the published data; class and source of cost come from
    ``entries.csv`` beside it, where there is one.
    """
    stream = csv_stream(path)
    try:
        reader = csv.DictReader(stream)
        header = list(reader.fieldnames or [])
        names = {column: _ALIASES.get(column, column) for column in header}
        missing = [name for name in _NEEDED if name not in names.values()]
        published = "entry_id" in header
        if not published and "dataset" not in header:
            missing.append("dataset")
        if missing:
            raise RunError(
                f"{path}: is no run CSV: columns {', '.join(missing)} are missing; found {', '.join(header)}"
            )
        about = _entries_beside(path) if published else {}
        seen: dict[tuple[str, str], tuple[str, str | None, str]] = {}
        for number, line in enumerate(reader, start=2):
            values = {names[column]: value or "" for column, value in line.items() if column in names}
            run = _csv_run(values, about, slugs, f"{path}: line {number}", published=published)
            who = (run.agent, run.model, run.instruction)
            if seen.setdefault((run.dataset, run.configuration), who) != who:
                first = ", ".join(map(str, seen[run.dataset, run.configuration]))
                raise RunError(
                    f"{path}: line {number}: configuration {run.configuration!r} is {first} before, and here "
                    f"{', '.join(map(str, who))}; one configuration has one agent, model and instruction"
                )
            if published and run.task not in slugs.values():
                raise RunError(f"{path}: line {number}: task {values['task']!r} is none of {', '.join(sorted(slugs))}")
            yield run
    except csv.Error as error:
        raise RunError(f"{path}: cannot be read as CSV: {error}") from error


def _csv_run(
    values: dict[str, str],
    about: Mapping[str, dict[str, str]],
    slugs: Mapping[str, str],
    where: str,
    *,
    published: bool,
) -> Run:
    entry = about.get(values["configuration"], {})
    status = _status(values["status"], where)
    given: dict[str, Any] = {name: _number(values.get(name), 1.0, where) for name in _SCORES}
    given |= {name: _number(values.get(name), None, where) for name in _NUMBERS}
    given |= {name: values.get(name) or None for name in _TEXTS - {"note"}} | {"note": values.get("note", "")}
    given |= {name: {"true": True, "false": False}.get(values.get(name, "").lower()) for name in _FLAGS}
    if published:
        given["process_published"] = given["process"]
        given |= {
            "agent_class": entry.get("agent_class") or None,
            "cost_source": entry.get("cost_provenance") or None,
            "judge": entry.get("judge_model") or None,
        }
        if status != "refused":
            timed = {"wall_min": given["wall_minutes"], "input_tokens": given["input_tokens"]}
            given["timed_out"], given["budget_minutes"] = _limit(values["configuration"], timed)
    given["synthetic"] = bool(given["synthetic"])
    given["outcome"] = None if status == "refused" else given["outcome"]
    return Run(
        dataset=PUBLISHED if published else values["dataset"],
        configuration=values["configuration"],
        agent=values["agent"],
        model=values["model"] or None,
        instruction=values["instruction"],
        task=slugs.get(values["task"], values["task"]),
        run_id=values["run_id"],
        status=status,
        tags=tuple(filter(None, values.get("tags", "").split(";"))),
        source="csv",
        **given,
    )


def _entries_beside(path: Path) -> dict[str, dict[str, str]]:
    beside = path.with_name("entries.csv")
    if not beside.is_file():
        return {}
    with beside.open(encoding="utf-8", newline="") as stream:
        return {line["entry_id"]: line for line in csv.DictReader(stream)}


def write_runs(runs: Iterable[Run], path: Path) -> None:
    """Write the runs as a CSV that :func:`load_runs` reads; absent values are empty cells."""
    known = {item.name for item in fields(Run)}
    assert known.issuperset(COLUMNS)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        for run in runs:
            writer.writerow([_csv_value(getattr(run, name)) for name in COLUMNS])


def _csv_value(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return ";".join(value) if isinstance(value, tuple) else value
