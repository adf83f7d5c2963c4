"""Stand-in for Biomni 0.0.8: its names, its tags, its limits, and an agent that follows a script."""
