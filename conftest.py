"""Make a bare checkout work: put it on the import path and load the plugin unless it is registered already."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

pytest_plugins = ("biabench_plugin.plugin",)
