"""Stand-in: the one class that the driver needs."""
