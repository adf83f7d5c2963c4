"""Seeing a campaign run: a live view on a terminal, plain lines in logs and CI.

It lives on the controller and sees what pytest's hooks bring there, so it is the same for one process, pytest-xdist and
Slurm.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from biabench_plugin.progress import Progress, clock, short

if TYPE_CHECKING:
    from biabench_plugin.session import TrialSession

_LINE_SECONDS = 2.0  # no more often than this in a log; the last trial and every trial without a deliverable are told
_MOST_RUNNING = 12


class LiveView:
    """Plugin that shows progress; ``terminal`` draws over the lines that pytest would print for each item."""

    def __init__(self, session: TrialSession) -> None:
        config = session.config
        self._session = session
        self._verbosity = config.get_verbosity()
        self.progress = Progress(budget_seconds=session.settings.budget_seconds)
        self._outcomes: dict[str, str] = {}
        self._values: dict[str, dict[str, str]] = {}
        self._told = 0.0
        self._live: Live | None = None
        self.terminal = (
            sys.stdout.isatty()
            and self._verbosity == 0
            and "CI" not in os.environ
            and os.environ.get("TERM", "dumb") != "dumb"
            and config.getoption("capture", "fd") != "no"
        )
        # pytest redirects the descriptor of standard output while an item runs; this copy stays the terminal.
        self._screen = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") if self.terminal else None

    # -- pytest hooks -----------------------------------------------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self._plan([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        if not self.progress.planned:
            self._plan(ids)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.progress.running.setdefault(nodeid, time.time())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        trial = report.nodeid
        if report.when != "call" and report.failed:
            self._outcomes[trial] = "error"
        elif report.when == "call" or not report.passed:
            self._outcomes[trial] = report.outcome
        prefix = "biabench."
        self._values[trial] = {
            name.removeprefix(prefix): str(value) for name, value in report.user_properties if name.startswith(prefix)
        }
        if report.when not in ("setup", "call", "teardown"):  # what pytest-xdist says of a worker that died
            self.pytest_runtest_logfinish(trial)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        values, outcome = self._values.pop(nodeid, {}), self._outcomes.pop(nodeid, "error")
        self.progress.finish(nodeid, values, outcome)
        if not self.terminal and self._verbosity >= 0:
            self._tell(nodeid, values, outcome)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """Print no letter per item: the lines here say more."""
        if self._verbosity != 0 or not isinstance(report, pytest.TestReport):
            return None
        if report.passed:
            return ("passed" if report.when == "call" else "", "", "")
        word = "error" if report.failed and report.when != "call" else report.outcome
        return word, "", word.upper()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self.stop()

    def pytest_unconfigure(self) -> None:
        self.stop()

    # -- drawing ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _plan(self, ids: list[str]) -> None:
        tasks = self._session.tasks
        planned = set(ids)
        self.progress.planned = len(planned)
        self.progress.left = planned
        for trial in planned:
            if (task := tasks.get(trial.split("/")[-2])) is not None:
                self.progress.minutes[trial] = task.expected_minutes
        self.progress.began = time.time()
        reporter = self._session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and self._verbosity == 0:
            reporter.showfspath = False
        if self._screen is not None and self._live is None:
            console = Console(file=self._screen, force_terminal=True)
            self._live = Live(
                console=console,
                get_renderable=self._view,
                refresh_per_second=2,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def _view(self) -> Group:
        now = time.time()
        runs = self.progress.runs(now)
        lines = [Text(self.progress.headline(now), style="bold")]
        lines += [Text("  " + line) for line in self.progress.means()]
        lines += [Text("  ▸ " + line, style="cyan") for line in runs[:_MOST_RUNNING]]
        if len(runs) > _MOST_RUNNING:
            lines.append(Text(f"  … and {len(runs) - _MOST_RUNNING} more"))
        return Group(*lines)

    def _tell(self, trial: str, values: dict[str, str], outcome: str) -> None:
        now = time.time()
        last = self.progress.done == self.progress.planned
        if not last and now - self._told < _LINE_SECONDS and values.get("status") == "delivered":
            return
        reporter = self._session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None:
            return
        self._told = now
        what = values.get("status", outcome) if outcome != "error" else "infrastructure fault"
        if "outcome" in values:
            what += f" {float(values['outcome']):.3f}"
        if values.get("reused") == "true":
            what += " (stored)"
        elif "wall_seconds" in values:
            what += f" in {clock(float(values['wall_seconds']))}"
        reporter.ensure_newline()
        reporter.write_line(f"{short(trial)}: {what} | {self.progress.headline(now)}")
        if last:
            for line in self.progress.means():
                reporter.write_line("  " + line)
