"""Make a bare checkout work: import path and plugin, where the package is not installed."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.has_plugin("biabench_plugin.plugin"):
        from biabench_plugin import plugin

        config.pluginmanager.register(plugin, "biabench_plugin.plugin")
