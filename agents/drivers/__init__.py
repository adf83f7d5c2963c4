"""Programs that start and watch the parts of an agent. They run inside its view, on the standard library alone.

They are never imported by the benchmark: a wrapper shows this folder to its agent and starts one of them.
"""
