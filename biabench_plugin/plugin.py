"""pytest hooks of the benchmark, a few lines each; without ``--agent`` none of them does anything."""
