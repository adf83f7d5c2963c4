"""Where trials run: this process and pytest-xdist (nothing to do here), or Slurm."""
