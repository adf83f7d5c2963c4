"""Records to tables, the leaderboard file and the HTML page. Everything here is a view; nothing here scores."""

from biabench_plugin.report.build import Report, build

__all__ = ["Report", "build"]
