"""Scripted expert pipelines: no model, no key, no network.

:mod:`.agent` is what the harness starts; everything else runs inside the trial, sees only the input folder and the
instruction, and imports nothing of the benchmark.
"""
