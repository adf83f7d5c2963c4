"""pytest hooks of the benchmark; without ``--agent`` or ``--config`` all of them do nothing.

Everything that a trial session needs lives in :class:`biabench_plugin.session.TrialSession`, which is imported and
registered only then: its hooks read like a table of contents of what happens.
"""

from __future__ import annotations

import pytest

from biabench_plugin import options


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if not options.trial_mode(config):
        options.refuse_orphans(config)
        return
    from biabench_plugin import session, trials

    trial_session = session.TrialSession(config)
    config.pluginmanager.register(trial_session, "biabench.session")
    config.pluginmanager.register(trials, "biabench.trials")
    for name, plugin in trial_session.companions().items():
        config.pluginmanager.register(plugin, f"biabench.{name}")
