"""Judging the trials of a campaign: which runs, in what order, within what cost; tags; JUnit brought up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from biabench_plugin.records import RecordError, TrialRecord, read_record, record_path, write_atomically
from biabench_plugin.report.rows import Row, from_campaign
from biabench_plugin.taskspec import TaskSpec, render_instruction
from biabench_plugin.workspace import INPUTS
from evaluators.process.evidence import Source
from evaluators.process.judge import JudgeUnavailableError, Plan, Run, judge_async, plan
from evaluators.process.model import Judgement, JudgeUsage
from evaluators.process.prices import price_of
from evaluators.process.requests import Asking
from evaluators.process.store import JudgementError, latest
from evaluators.process.tags import Ending, read_tags, tag_run
from evaluators.process.views import RULES, ProcessView, view

NOT_MEASURED = "agreement with human experts: not measured"
FOLDER = "judging"  # in a campaign: batches under way
_GROUP = 16  # trials whose requests, with their pictures, are held in memory at once
_PROPERTIES = ("process", "auditability", "judge", "judge_protocol", "judge_agreement", "tags")


def runs(campaign: Path, tasks: Mapping[str, TaskSpec]) -> Iterator[tuple[Row, Run]]:
    """Yield the trials of a campaign that can be judged, by their attempt that counts.

    Refused trials and infrastructure faults say nothing about an agent and are left out.

    Raises
    ------
    ValueError
        A trial's task is not among ``tasks``.
    """
    for row in from_campaign(campaign):
        record, folder = row.record, row.folder
        if record is None or folder is None or not record.counts:
            continue
        if record.task not in tasks:
            raise ValueError(f"{folder}: task {record.task!r} is not known; name its folder with --tasks")
        yield row, run_of(record, folder, tasks[record.task])


def run_of(record: TrialRecord, attempt: Path, task: TaskSpec) -> Run:
    """Describe an attempt for the judge; nothing of its outcome goes along."""
    request = render_instruction(
        task,
        record.instruction_level,
        gpu=bool(record.provenance.gpu),
        input_dir="INPUT",
        output_dir="OUTPUT",
    )
    names = attempt / INPUTS
    return Run(
        trial=record.trial,
        task=record.task,
        source=Source(
            attempt=attempt,
            request=request,
            deliverables=task.deliverables,
            input_names=names.read_text("utf-8", errors="replace").splitlines() if names.is_file() else (),
            input_unchanged=not record.input_changed,
        ),
        sections=task.rubric_sections,
        not_applicable=task.not_applicable,
    )


def ending_of(record: TrialRecord) -> Ending:
    """Describe how a trial ended, for its tags."""
    problems = () if record.score is None else tuple((one.code, one.where) for one in record.score.problems)
    return Ending(
        status=record.status.value,
        timed_out=record.timed_out,
        quota_exceeded=record.quota_exceeded,
        exit_code=record.exit_code,
        final_message=record.final_message,
        problems=problems,
    )


@dataclass
class Summary:
    """What a session of judging did."""

    judge: str
    judged: list[tuple[Row, Judgement]] = field(default_factory=list)
    left: int = 0
    usage: JudgeUsage = field(default_factory=JudgeUsage)

    @property
    def errors(self) -> int:
        """Runs on which the judge failed to answer, or answered the false statement with a pass."""
        views = [view(judgement) for _, judgement in self.judged]
        return sum(bool(one.errors) for one in views) + sum(judgement.canary_tripped for _, judgement in self.judged)

    def lines(self) -> list[str]:
        """Say it for a terminal."""
        views = [view(judgement) for _, judgement in self.judged]
        scored = [one for one in views if one.score is not None]
        text = f"judge {self.judge}: {len(scored)} of {len(views)} trials have a process score"
        if scored:
            mean = sum(one.score or 0.0 for one in scored) / len(scored)
            coverage = sum(one.coverage or 0.0 for one in scored) / len(scored)
            text += f", mean {mean:.3f} over {coverage:.0%} of the rubric's weight"
        lines = [text, f"protocol {views[0].protocol_version}, {NOT_MEASURED}" if views else NOT_MEASURED]
        if self.usage.requests:
            price = "price not known" if self.usage.cost_usd is None else f"{self.usage.cost_usd:.4f} USD"
            lines.append(f"judge's own tokens: {self.usage.requests} requests, {price}")
        if self.errors:
            lines.append(
                f"{self.errors} trial(s) have no process score because of the judge; run `biabench judge` again"
            )
        if self.left:
            lines.append(f"{self.left} trial(s) were not judged: the cost limit was reached")
        return lines


def check_access(model: str, base_url: str | None = None) -> None:
    """Raise ``JudgeUnavailableError`` where a judge cannot be asked for want of a key."""
    if model != RULES:
        from evaluators.process.sending import Access

        Access(base_url).client(model)


def judge_campaign(
    campaign: Path,
    tasks: Mapping[str, TaskSpec],
    asking: Asking,
    *,
    base_url: str | None = None,
    batch: bool = False,
    max_cost: float | None = None,
    concurrency: int = 4,
    poll_seconds: float = 30.0,
    progress: Callable[[int, int, str], None] | None = None,
) -> Summary:
    """Judge every trial of a campaign, tag it, and bring its JUnit file up to date.

    What was judged already is taken as it is; an interrupted session is continued by the same call.

    Parameters
    ----------
    max_cost
        In USD, for this session; a run that would go beyond it is not begun.
    progress
        Called with the number of trials done, of all, and what is being waited for.

    Raises
    ------
    JudgeUnavailableError
        The judge cannot be asked; trials judged so far are stored.
    """
    work = _Work(campaign, asking, batch, max_cost, concurrency, poll_seconds, progress or (lambda *_: None))
    try:
        return asyncio.run(work.all(list(runs(campaign, tasks)), base_url))
    finally:
        rewrite_junit(campaign)


@dataclass
class _Work:
    campaign: Path
    asking: Asking
    batch: bool
    max_cost: float | None
    concurrency: int
    poll_seconds: float
    progress: Callable[[int, int, str], None]

    async def all(self, todo: Sequence[tuple[Row, Run]], base_url: str | None) -> Summary:
        summary = Summary(self.asking.model)
        if self.asking.model == RULES:
            return await self._each(todo, None, summary)
        if self.max_cost is not None and price_of(self.asking.model) is None:
            raise JudgeUnavailableError(f"the price of {self.asking.model} is not known, so its cost cannot be limited")
        from evaluators.process.sending import Access

        async with Access(base_url).client(self.asking.model) as client:
            if self.batch:
                await self._batches(todo, client, summary)
            return await self._each(todo, client, summary)

    async def _batches(self, todo: Sequence[tuple[Row, Run]], client: object, summary: Summary) -> None:
        """Send everything in batches and wait; a trial beyond the cost limit is not sent."""
        from evaluators.process.batch import Batches

        batches = Batches(self.campaign / FOLDER)
        left = self.max_cost
        group: list[Plan] = []
        for number, (row, run) in enumerate(todo):
            self.progress(number, len(todo), f"sending {row.task}")
            made = plan(run, self.asking, batch=True)
            if left is not None:
                left -= made.estimate().cost_usd or 0.0
                if left < 0:
                    break
            group.append(made)
            if len(group) == _GROUP:
                await batches.submit(group, client)  # type: ignore[arg-type]
                group = []
        await batches.submit(group, client)  # type: ignore[arg-type]
        await batches.collect(
            client,  # type: ignore[arg-type]
            poll_seconds=self.poll_seconds,
            progress=lambda done, total: self.progress(done, total, "waiting for the batch"),
        )

    async def _each(self, todo: Sequence[tuple[Row, Run]], client: object, summary: Summary) -> Summary:
        spent = 0.0
        for number, (row, run) in enumerate(todo):
            self.progress(number, len(todo), f"{row.task} {row.configuration}")
            made = plan(run, self.asking, batch=self.batch)
            fresh = made.done is None
            if self.batch:
                from evaluators.process.batch import Batches

                Batches(self.campaign / FOLDER).take([made])
            pending = self._unbatched(made)
            found = await judge_async(
                [pending],
                client,  # type: ignore[arg-type]
                concurrency=self.concurrency,
                max_cost=self.max_cost,
                spent=spent,
            )
            if not found:
                summary.left = len(todo) - number
                break
            summary.judged.append((row, found[0]))
            if row.record is not None:
                tag_run(run.source.attempt, ending_of(row.record))
            if fresh:
                spent += found[0].usage.cost_usd or 0.0
                _add(summary.usage, found[0].usage)
        self.progress(len(todo), len(todo), "done")
        return summary

    @staticmethod
    def _unbatched(made: Plan) -> Plan:
        """What a batch did not answer is sent, and priced, alone."""
        made.batch = False
        return made


def _add(total: JudgeUsage, part: JudgeUsage) -> None:
    for name in ("requests", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens"):
        setattr(total, name, getattr(total, name) + getattr(part, name))
    if part.cost_usd is not None:
        total.cost_usd = (total.cost_usd or 0.0) + part.cost_usd


def estimate_campaign(
    campaign: Path, tasks: Mapping[str, TaskSpec], asking: Asking, *, batch: bool = False
) -> list[tuple[Row, JudgeUsage]]:
    """Return what judging each trial would take, and spend nothing."""
    return [(row, plan(run, asking, batch=batch).estimate()) for row, run in runs(campaign, tasks)]


# --- JUnit ----------------------------------------------------------------------------------------------------------


def process_properties(found: ProcessView | None) -> list[tuple[str, str]]:
    """Return the properties of a process score; what there is not has none."""
    if found is None:
        return []
    values = {
        "process": None if found.score is None else f"{found.score:.6f}",
        "auditability": None if found.auditability is None or found.errors else f"{found.auditability:.6f}",
        "judge": found.judge,
        "judge_protocol": found.protocol_version,
        "judge_agreement": "not measured",
    }
    return [(f"biabench.{name}", value) for name, value in values.items() if value is not None]


def _tag_properties(attempt: Path) -> list[tuple[str, str]]:
    try:
        tags = read_tags(attempt)
    except ValueError:
        return []
    return [("biabench.tags", ",".join(tag.tag for tag in tags))] if tags else []


def rewrite_junit(campaign: Path, junit: Path | None = None) -> bool:
    """Bring the process properties of a campaign's JUnit file up to date; return whether anything changed.

    A file that is missing or damaged is left alone: it is an index, and records and judgements are the source.
    """
    path = junit or campaign / "junit.xml"
    try:
        tree = ElementTree.parse(path)  # noqa: S314 - written by pytest, which escapes what it holds
    except (OSError, ElementTree.ParseError):
        return False
    names = {f"biabench.{name}" for name in _PROPERTIES}
    before = ElementTree.tostring(tree.getroot())
    for case in tree.getroot().iter("testcase"):
        holder = case.find("properties")
        record = None if holder is None else _record_of(holder, campaign)
        if holder is None or record is None:
            continue
        for node in [node for node in holder if node.get("name") in names]:
            holder.remove(node)
        for name, value in [*process_properties(view_of(record)), *_tag_properties(record.parent)]:
            ElementTree.SubElement(holder, "property", {"name": name, "value": value})
    text = ElementTree.tostring(tree.getroot(), encoding="unicode")
    if text.encode() == before:
        return False
    write_atomically(path, f'<?xml version="1.0" encoding="utf-8"?>{text}')
    return True


def view_of(record: Path) -> ProcessView | None:
    """Return the process score beside a record, ``None`` where there is none that can be read."""
    try:
        return latest(record.parent)
    except JudgementError:
        return None


def _record_of(holder: ElementTree.Element, campaign: Path) -> Path | None:
    named = next((str(node.get("value")) for node in holder if node.get("name") == "biabench.record"), None)
    if named is None:
        return None
    path = Path(named)
    if not path.is_file() and "runs" in path.parts:  # the campaign was moved
        path = campaign.joinpath(*path.parts[len(path.parts) - 1 - path.parts[::-1].index("runs") :])
    try:
        return record_path(campaign, read_record(path)) if path.is_file() else None
    except RecordError:
        return None
