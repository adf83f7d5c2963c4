"""The trial session: which items there are, and what happens around them. Registered only with ``--agent``."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agents import register
from agents.base import Agent
from biabench_plugin import checkout, exclusions, options, sessions, trials
from biabench_plugin.campaign import (
    Configuration,
    Settings,
    Trial,
    check_configurations,
    parse_agents,
    plan,
    read_configurations,
    resume_key,
    running_order,
)
from biabench_plugin.datasets import Dataset, DatasetError, TaskData, cache_dir
from biabench_plugin.execute import Host, template_digest
from biabench_plugin.isolation import IsolationUnavailable, containment_for
from biabench_plugin.records import TrialRecord, write_atomically
from biabench_plugin.supervisor import Limits
from biabench_plugin.taskspec import LEVELS, Difficulty, Modality, Subtask, TaskError, TaskSpec, load_tasks
from biabench_plugin.workspace import TrialFolder
from evaluators import check_parameters

if TYPE_CHECKING:
    from biabench_plugin.report.summary import RankBy

_LEAST_DRAWN = 12  # runs; `biabench report` draws any number
_EVALUATION_BACKSTOP_SECONDS = 2 * 3600.0


class TrialItem(pytest.Function):
    """One trial as a pytest item; fixtures, marks and reports work as for a test function."""

    trial: Trial

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        if isinstance(parsed := getattr(self, "_id", None), object) and hasattr(parsed, "parse"):
            self._id = parsed.parse(str(parsed))  # pytest 9.2 compares ids in parts: --lf, --ff, --sw find no item else

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.name


class TaskFile(pytest.File):
    """Collects the trials of one ``task.yaml``."""

    def collect(self) -> Iterable[pytest.Item]:
        session: TrialSession = self.config.pluginmanager.get_plugin("biabench.session")  # type: ignore[assignment]
        task = session.tasks_by_path[self.path.resolve()]
        if not session.dataset.holds(task):
            return
        for trial in session.planned(task):
            item: TrialItem = TrialItem.from_parent(self, name=trial.name, callobj=trials.trial_delivers)
            item.trial = trial
            item.user_properties.extend(session.known_properties(trial))
            for marker in task.markers:
                item.add_marker(marker)
            if self.config.pluginmanager.hasplugin("timeout"):
                item.add_marker(pytest.mark.timeout(session.backstop_seconds, method="signal"))
            yield item


class TrialSession:
    """Everything that is decided once per session, and the hooks that use it."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.is_worker = hasattr(config, "workerinput")
        try:
            checkout.check_rooms()
            self._decide()
        except (ValueError, RuntimeError, IsolationUnavailable) as error:  # also a judge without a key
            raise pytest.UsageError(str(error)) from error
        self._demo: dict[str, TaskData] = {}
        self._take_over_collection()
        self.report: Any = None
        self.judged: list[str] = []

    def _decide(self) -> None:
        config = self.config
        invocation = config.invocation_params.dir
        roots = [checkout.TASKS, *((invocation / name).resolve() for name in options.get(config, "tasks") or ())]
        self.roots = roots
        self.tasks: dict[str, TaskSpec] = load_tasks(*roots)
        for task in self.tasks.values():
            try:
                check_parameters(task.outcome, task.deliverables)
            except ValueError as error:
                raise TaskError(f"{task.folder / 'task.yaml'}: outcome: {error}") from error
        self.tasks_by_path = {(task.folder / "task.yaml").resolve(): task for task in self.tasks.values()}
        self.dataset = Dataset.parse(options.get(config, "dataset"))
        self.dataset.check(self.tasks)
        self.configurations = self._configurations(invocation)
        self.agents: dict[str, Agent] = check_configurations(self.configurations)
        defaults: dict[str, Any] = {
            "repeats": self.dataset.default_repeats,
            "budget": 4 * 3600.0,
            "network": "open",
            "isolation": "auto",
            "output_quota": 50.0,
        }
        chosen = {name: options.get(config, name) or default for name, default in defaults.items()}
        self.settings = Settings(
            dataset=self.dataset.name,
            repeats=chosen["repeats"],
            budget_seconds=chosen["budget"],
            network=chosen["network"],
            isolation=chosen["isolation"],
            agent_env=self._folder("agent_env"),
            agent_weights=self._folder("agent_weights"),
            output_quota_gb=chosen["output_quota"],
            relay=options.get(config, "relay") != "off",
        )
        self.host = Host(self.settings, self.dataset.name)
        self.in_job = options.get(config, "report_to") is not None  # one trial of a session that waits elsewhere
        # With another engine, trials run elsewhere; this session only submits, waits and reports.
        self.waits = options.get(config, "engine") == "slurm"
        if not self.waits and any(agent.contained and agent.container() is None for agent in self.agents.values()):
            containment_for(self.settings.isolation)  # refuses here, once, where containment is required and missing
        if self.settings.isolation == "off" and self.settings.network != "open":
            raise ValueError(
                f"--network={self.settings.network} needs containment; it cannot be had with --isolation=off"
            )
        if self.settings.network == "none" and (cut := [name for name, agent in self.agents.items() if agent.protocol]):
            raise ValueError(f"--network=none cuts {', '.join(cut)} off from its model; use --network=model")
        if self.settings.network == "model" and not self.settings.relay:
            raise ValueError("--network=model is the relay and nothing else; it cannot be had with --relay=off")
        if (model := options.get(config, "judge")) and not (self.is_worker or self.in_job):
            from biabench_plugin.judging import check_access

            check_access(model, options.get(config, "judge_url"))  # before agents run for hours
        self.command = self._command()
        self.folder = self._campaign_folder(invocation)
        self.excluded_targets = exclusions.active(self.folder)
        self.repeats = self._repeats()
        self._check_engine()
        self.backstop_seconds = (
            2 * (self.settings.budget_seconds + Limits(1.0).grace_seconds) + _EVALUATION_BACKSTOP_SECONDS
        )

    def _configurations(self, invocation: Path) -> list[Configuration]:
        for reference in options.get(self.config, "agent_class") or ():
            register(reference)
        level = options.get(self.config, "instruction") or LEVELS[0]
        effort = options.get(self.config, "effort") or "medium"
        more = {name: options.get(self.config, name) for name in ("provider", "key_variable", "web_tools")}
        named = parse_agents(
            options.get(self.config, "agent") or (),
            instruction=level,
            effort=effort,
            command=options.get(self.config, "agent_command"),
            **more,
        )
        file = options.get(self.config, "config")
        listed = (
            [] if file is None else read_configurations(invocation / file, instruction=level, effort=effort, **more)
        )
        return named + listed

    def _folder(self, option: str) -> Path | None:
        value = options.get(self.config, option)
        if value is None:
            return None
        path = (self.config.invocation_params.dir / Path(value).expanduser()).absolute()
        if not path.is_dir():
            raise ValueError(f"--{option.replace('_', '-')}={value}: no such folder")
        return path

    def _campaign_folder(self, invocation: Path) -> Path:
        if self.is_worker:
            return Path(self.config.workerinput["biabench_campaign"])  # type: ignore[attr-defined]
        named = options.get(self.config, "campaign")
        folder = (
            (invocation / Path(named).expanduser()).resolve()
            if named
            else sessions.default_folder(invocation, self.dataset.name, self.command)
        )
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"--campaign={named}: exists and is no folder")
        taken = [*self.roots, cache_dir(), *([self.dataset.path] if self.dataset.path else [])]
        if any(folder.is_relative_to(root) for root in taken):
            raise ValueError(
                f"--campaign={folder}: lies among tasks or data, which agents may see; choose another folder"
            )
        self._check_dataset(folder)
        if self._looks_only() or self.in_job:
            return folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / "campaign.json", json.dumps({"dataset": self.dataset.name}) + "\n")
        except OSError as error:
            raise ValueError(f"--campaign={folder}: cannot be made: {error.strerror}") from error
        return folder

    def _check_dataset(self, folder: Path) -> None:
        """Refuse to mix datasets in one campaign: their trials would have the same names."""
        try:
            held = json.loads((folder / "campaign.json").read_text(encoding="utf-8"))["dataset"]
        except (OSError, ValueError, KeyError, TypeError):
            return
        if held != self.dataset.name:
            raise ValueError(
                f"campaign {folder} holds dataset {held}; choose another --campaign for {self.dataset.name}"
            )

    def _take_over_collection(self) -> None:
        """Collect task folders and nothing else, wherever pytest was started and whatever its ini file says."""
        config = self.config
        if config.args_source is pytest.Config.ArgsSource.ARGS:
            config.args = [self._task_argument(argument) for argument in config.args]
        else:
            config.args = [str(root) for root in self.roots]
        quiet = self.is_worker or self.in_job or self.detached or self._looks_only()
        if not quiet and getattr(config.option, "xmlpath", "") is None:
            config.option.xmlpath = str(self.folder / "junit.xml")
        for name in ("two_d", "three_d", "timelapse", *Difficulty, *Modality, *Subtask):
            config.addinivalue_line("markers", f"{name}: biabench tasks of this kind")

    def _task_argument(self, argument: str) -> str:
        path, separator, item = argument.partition("::")
        absolute = (self.config.invocation_params.dir / path).absolute()
        for candidate in (absolute, checkout.ROOT / path):
            resolved = candidate.resolve()
            if resolved in self.roots or resolved in self.tasks_by_path or resolved / "task.yaml" in self.tasks_by_path:
                target = resolved / "task.yaml" if resolved / "task.yaml" in self.tasks_by_path else resolved
                return f"{target}{separator}{item}"
        raise pytest.UsageError(
            f"{argument}: with --agent only tasks can be selected, as tasks/<task>; tasks: {', '.join(self.tasks)}"
        )

    def _check_engine(self) -> None:
        self.lost: dict[str, str] = {}  # trials that Slurm could not bring to their end, and why
        self.detached = bool(options.get(self.config, "detach"))
        for option in ("slurm", "detach"):
            if options.get(self.config, option) and not self.waits:
                raise ValueError(f"--{option}: needs --engine=slurm")
        if self.waits:
            from biabench_plugin.engines import slurm

            self.slurm_parameters = slurm.check(self.config, self.settings.budget_seconds)

    def _command(self) -> str:
        """Digest of what decides which trials this command stands for."""
        config = self.config
        selection: list[object] = [config.args if config.args_source is pytest.Config.ArgsSource.ARGS else []]
        selection += [getattr(config.option, name, "") for name in ("keyword", "markexpr", "deselect")]
        return sessions.digest(
            [
                [configuration.model_dump() for configuration in self.configurations],
                self.settings.model_dump(mode="json"),
                [str(root) for root in self.roots],
                [options.get(config, name) for name in ("rerun", "until_scored")],
                selection,
            ]
        )

    def _repeats(self) -> dict[str, int]:
        """Return how many repeats of a task and configuration are planned, where ``--until-scored`` raised it."""
        wanted = options.get(self.config, "until_scored")
        if wanted is None:
            return {}
        if self.is_worker:
            return dict(self.config.workerinput["biabench_repeats"])  # type: ignore[attr-defined]
        from biabench_plugin import topup

        return topup.repeats(self.folder, wanted)

    def planned(self, task: TaskSpec) -> list[Trial]:
        """Return the trials of a task."""
        least = options.get(self.config, "until_scored") or self.settings.repeats
        return [
            trial
            for configuration in self.configurations
            for trial in plan([task], [configuration], self.repeats.get(f"{task.slug} {configuration.id}", least))
        ]

    def data(self, task: TaskSpec) -> TaskData:
        """Return the task's data, building demo data when needed; these cannot change, so they are found once."""
        if task.slug in self._demo:
            return self._demo[task.slug]
        located = self.dataset.locate(task)
        if located is None:
            raise DatasetError(f"{self.dataset.name}: does not hold task {task.slug}")
        if located.kind == "demo":
            self._demo[task.slug] = located
        return located

    def resume_key(self, trial: Trial, data: TaskData, *, contained: bool | None = None) -> str:
        """Digest that says whether a stored attempt is the same experiment as this trial."""
        agent = self.agents[trial.configuration.agent]
        return resume_key(
            trial,
            agent,
            self.settings,
            "+".join(data.digests),
            template_digest(trial.task, trial.configuration.instruction),
            contained=self.host.containment(agent).in_force if contained is None else contained,
        )

    def resume_keys(self, trial: Trial, data: TaskData) -> list[str]:
        """Keys under which a finished attempt may be stored; containment is decided where trials run."""
        if not self.waits:
            return [self.resume_key(trial, data)]
        return [self.resume_key(trial, data, contained=contained) for contained in (True, False)]

    def excluded(self, trial: Trial) -> str | None:
        """Say why the operator excluded a trial, or ``None``."""
        return exclusions.reason_for(self.excluded_targets, trial.id, trial.configuration.id)

    def is_settled(self, item: TrialItem) -> bool:
        """Return whether an item needs no run: it is excluded, or a stored attempt of it counts."""
        if self.excluded(item.trial):
            return True
        folder = TrialFolder(self.folder, item.trial)
        rerun = options.get(self.config, "rerun")
        return trials.stored(folder, self, self.data(item.trial.task), rerun)[1] is not None

    def note_running(self, running: set[str]) -> None:
        """Tell the live view which trials Slurm runs now."""
        for trial in running:
            self.config.hook.pytest_runtest_logstart(nodeid=trial, location=("", 0, trial))

    def interrupted(self, folder: TrialFolder, agent: Agent, data: TaskData, key: str) -> list[TrialRecord]:
        """Write down the attempts of this Slurm job that preemption or a failed node cut off, where it runs in one."""
        if not self.in_job:
            return []
        from biabench_plugin.engines import slurm

        reason = slurm.requeued()
        return [] if reason is None else slurm.close_interrupted(folder, agent, self.host, data, key, reason)

    def known_properties(self, trial: Trial) -> list[tuple[str, str]]:
        """Properties of an item that hold whatever happens to it, so that skipped and faulty ones are not lost."""
        configuration = trial.configuration
        values = {
            "task": trial.task.slug,
            "agent": configuration.agent,
            "configuration": configuration.id,
            "model": configuration.model,
            "instruction": configuration.instruction,
            "effort": configuration.effort,
            "repeat": trial.repeat,
            "dataset": self.dataset.name,
        }
        return [(f"biabench.{name}", str(value)) for name, value in values.items() if value is not None]

    def companions(self) -> dict[str, object]:
        """Return the further plugins of this process: its clock, and on a controller its life and its view."""
        from biabench_plugin.lifecycle import ItemClock, Lifecycle

        found: dict[str, object] = {"clock": ItemClock()}
        if self.in_job:
            from biabench_plugin.engines.slurm import ReportWriter

            found["reports"] = ReportWriter(self.config, Path(options.get(self.config, "report_to")))
        elif not self.is_worker and not self._looks_only():
            from biabench_plugin.live import LiveView

            found |= {"lifecycle": Lifecycle(self), "live": LiveView(self)}
        return found

    # --- pytest hooks -----------------------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Look at task folders only: no test module, and no folder below a task."""
        if collection_path.is_dir():
            inside = any(root.is_relative_to(collection_path) or collection_path == root for root in self.roots)
            return not (inside or collection_path.parent in self.roots)
        return collection_path.resolve() not in self.tasks_by_path

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> TaskFile | None:
        task = self.tasks_by_path.get(file_path.resolve())
        if task is None:
            return None
        # An id of its own, so that items are called the same from every working folder and rootdir.
        return TaskFile.from_parent(parent, path=file_path, nodeid=f"tasks/{task.slug}/{file_path.name}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: running_order(item.trial) if isinstance(item, TrialItem) else (0, 0.0, item.nodeid))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell an xdist worker where the campaign lies."""
        node.workerinput["biabench_campaign"] = str(self.folder)
        node.workerinput["biabench_repeats"] = self.repeats

    def pytest_report_header(self) -> list[str]:
        if self.waits:
            state = "trials run by Slurm, which says what contains them"
        elif containment_for(self.settings.isolation).in_force:
            state = "containment: bubblewrap"
        else:
            state = "containment: NONE (truth is not protected)"
        return [
            f"biabench: dataset {self.dataset.name}, {len(self.configurations)} configuration(s), {state}",
            f"campaign: {self.folder}",
        ]

    @pytest.hookimpl(optionalhook=True)
    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        if (
            getattr(report, "when", None) == "call"
            and report.passed
            and ("biabench.reused", "true") in report.user_properties
        ):
            return "passed", "r", "REUSED"
        return None

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Judge, and aggregate after the JUnit file is written, on the controller only."""
        result = yield
        if not self.is_worker and not self._looks_only() and not self.detached and not self.in_job:
            from biabench_plugin import report

            with suppress(OSError):  # workspace of agents; other sessions may still use it
                (self.folder / "work").rmdir()
            junit = getattr(self.config.option, "xmlpath", None)
            self._judge(session, junit)
            paths = [self.folder] if junit is None else [self.folder, Path(junit)]
            enough = session.testscollected >= _LEAST_DRAWN
            self.report = report.build(paths, self.folder, self.tasks, rank_by=self.rank_by, figures=enough)
        return result

    def _judge(self, session: pytest.Session, junit: str | None) -> None:
        """Judge the trials where that was asked for; that the judge fails is told, and costs no trial."""
        model = options.get(self.config, "judge")
        if not model:
            return
        if session.exitstatus == pytest.ExitCode.INTERRUPTED:
            self.judged = [f"not judged, as the session was interrupted: biabench judge {self.folder} --model {model}"]
            return
        from biabench_plugin import judging
        from evaluators.process.judge import JudgeUnavailableError
        from evaluators.process.requests import Asking

        chunk = options.get(self.config, "judge_chunk") or 2
        try:
            summary = judging.judge_campaign(
                self.folder,
                self.tasks,
                Asking(model, chunk=None if chunk == "all" else chunk),
                base_url=options.get(self.config, "judge_url"),
                batch=bool(options.get(self.config, "judge_batch")),
                max_cost=options.get(self.config, "judge_max_cost"),
            )
            self.judged = summary.lines()
            failed = summary.errors > 0
        except (JudgeUnavailableError, ValueError, OSError, RuntimeError) as error:
            self.judged = [f"judging stopped: {error}", f"continue with: biabench judge {self.folder} --model {model}"]
            failed = True
        if junit is not None:
            judging.rewrite_junit(self.folder, Path(junit))
        if failed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _looks_only(self) -> bool:
        """Whether the session runs nothing, and so must leave nothing behind."""
        names = ("collectonly", "markers", "showfixtures", "show_fixtures_per_test")
        return any(getattr(self.config.option, name, False) for name in names)

    @property
    def rank_by(self) -> RankBy:
        """The score that orders the tables."""
        return "strict" if options.get(self.config, "rank_by") == "strict" else "outcome"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.report is None:
            return
        terminalreporter.section("biabench")
        for line in [*self.report.terminal_lines(colour=terminalreporter.hasmarkup), *self.judged]:
            terminalreporter.write_line(line)
