"""Stand-in for CopilotJ: its documented command lines, log lines and names, and a leader that follows a script."""
