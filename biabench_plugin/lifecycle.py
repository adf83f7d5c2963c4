"""What surrounds the items of a session on its controller: the command's file, the engine, the clock of an item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from biabench_plugin import sessions, trials

if TYPE_CHECKING:
    from biabench_plugin.session import TrialItem, TrialSession


class ItemClock:
    """Plugin of every process that runs items: remembers how an item's timeout was set, so that it can be paused."""

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> None:
        item.stash[trials.BACKSTOP] = settings


class Lifecycle:
    """Plugin of the controller: notes what the command plans and when it is through; hands items to an engine."""

    def __init__(self, session: TrialSession) -> None:
        config = session.config
        self._session = session
        self._planned: set[str] = set()
        self._finished: set[str] = set()
        self._command = sessions.Command(
            session.command, sessions.words(config.invocation_params.args), session.settings.budget_seconds
        )

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self._begin([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        if not self._planned:
            self._begin(ids)

    def _begin(self, ids: list[str]) -> None:
        self._planned = set(ids)
        self._command.begin(self._session.folder, ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if not self._session.waits or session.config.option.collectonly:
            return None
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            return None  # pytest's own loop says so
        from biabench_plugin.engines.slurm import SlurmEngine, SlurmError

        items: list[TrialItem] = list(session.items)  # type: ignore[arg-type]
        engine = SlurmEngine(self._session, self._session.slurm_parameters)
        try:
            engine.run(items, session, detach=self._session.detached)
        except SlurmError as error:
            raise pytest.UsageError(str(error)) from error
        return True

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._finished.add(nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if self._planned and self._finished >= self._planned:
            self._command.end(self._session.folder)
