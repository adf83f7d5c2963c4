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
from biabench_plugin import checkout, options, trials
from biabench_plugin.campaign import (
    Configuration,
    Settings,
    Trial,
    check_configurations,
    default_folder,
    parse_agents,
    plan,
    read_configurations,
    resume_key,
    running_order,
)
from biabench_plugin.datasets import Dataset, DatasetError, TaskData, cache_dir
from biabench_plugin.execute import Host, template_digest
from biabench_plugin.isolation import IsolationUnavailable, containment_for
from biabench_plugin.records import write_atomically
from biabench_plugin.supervisor import Limits
from biabench_plugin.taskspec import LEVELS, Difficulty, Modality, Subtask, TaskError, TaskSpec, load_tasks
from evaluators import check_parameters

if TYPE_CHECKING:
    from biabench_plugin.report.summary import RankBy

_EVALUATION_BACKSTOP_SECONDS = 2 * 3600.0


class TrialItem(pytest.Function):
    """One trial as a pytest item; fixtures, marks and reports work as for a test function."""

    trial: Trial

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.name


class TaskFile(pytest.File):
    """Collects the trials of one ``task.yaml``."""

    def collect(self) -> Iterable[pytest.Item]:
        session: TrialSession = self.config.pluginmanager.get_plugin("biabench.session")  # type: ignore[assignment]
        task = session.tasks_by_path[self.path.resolve()]
        if not session.dataset.holds(task):
            return
        for trial in plan([task], session.configurations, session.settings.repeats):
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
        except (ValueError, RuntimeError, IsolationUnavailable) as error:
            raise pytest.UsageError(str(error)) from error
        self._take_over_collection()
        self.report: Any = None

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
        )
        self.host = Host(self.settings, self.dataset.name)
        if any(agent.contained and agent.container() is None for agent in self.agents.values()):
            containment_for(self.settings.isolation)  # refuses here, once, where containment is required and missing
        if self.settings.isolation == "off" and self.settings.network == "none":
            raise ValueError("--network=none needs containment; it cannot be had with --isolation=off")
        self.folder = self._campaign_folder(invocation)
        self.backstop_seconds = (
            2 * (self.settings.budget_seconds + Limits(1.0).grace_seconds) + _EVALUATION_BACKSTOP_SECONDS
        )

    def _configurations(self, invocation: Path) -> list[Configuration]:
        for reference in options.get(self.config, "agent_class") or ():
            register(reference)
        level = options.get(self.config, "instruction") or LEVELS[0]
        effort = options.get(self.config, "effort") or "medium"
        named = parse_agents(
            options.get(self.config, "agent") or (),
            instruction=level,
            effort=effort,
            command=options.get(self.config, "agent_command"),
        )
        file = options.get(self.config, "config")
        listed = [] if file is None else read_configurations(invocation / file, instruction=level, effort=effort)
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
            else default_folder(invocation, self.dataset.name)
        )
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"--campaign={named}: exists and is no folder")
        taken = [*self.roots, cache_dir(), *([self.dataset.path] if self.dataset.path else [])]
        if any(folder.is_relative_to(root) for root in taken):
            raise ValueError(
                f"--campaign={folder}: lies among tasks or data, which agents may see; choose another folder"
            )
        self._check_dataset(folder)
        if self._looks_only():
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
        if not self.is_worker and not self._looks_only() and getattr(config.option, "xmlpath", "") is None:
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

    def data(self, task: TaskSpec) -> TaskData:
        """Return the task's data, building demo data when needed."""
        located = self.dataset.locate(task)
        if located is None:
            raise DatasetError(f"{self.dataset.path}: does not hold task {task.slug}")
        return located

    def resume_key(self, trial: Trial, data: TaskData) -> str:
        """Digest that says whether a stored attempt is the same experiment as this trial."""
        return resume_key(
            trial,
            self.agents[trial.configuration.agent],
            self.settings,
            "+".join(data.digests),
            template_digest(trial.task, trial.configuration.instruction),
            contained=self.host.containment(self.agents[trial.configuration.agent]).in_force,
        )

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

    def pytest_report_header(self) -> list[str]:
        containment = containment_for(self.settings.isolation)
        state = "containment: bubblewrap" if containment.in_force else "containment: NONE (truth is not protected)"
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
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        """Aggregate after the JUnit file is written, on the controller only."""
        result = yield
        if not self.is_worker and not self._looks_only():
            from biabench_plugin import report

            with suppress(OSError):  # workspace of agents; other sessions may still use it
                (self.folder / "work").rmdir()
            junit = getattr(self.config.option, "xmlpath", None)
            paths = [self.folder] if junit is None else [self.folder, Path(junit)]
            self.report = report.build(paths, self.folder, self.tasks, rank_by=self.rank_by)
        return result

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
        for line in self.report.terminal_lines():
            terminalreporter.write_line(line)
