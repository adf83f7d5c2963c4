"""Submissions that win without an analysis: one module per task, the limits of the published scores."""
