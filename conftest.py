"""Make a bare checkout work: import path and plugin, where the package is not installed."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Load the plugin before the command line is read; where it is registered already this does nothing."""
    pluginmanager.import_plugin("biabench_plugin.plugin")
