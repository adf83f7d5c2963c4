"""How far a campaign is: what the live view, the log lines and ``biabench status`` show, from one set of numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import mean


def clock(seconds: float) -> str:
    """Write a duration as ``H:MM:SS``."""
    whole = max(0, round(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


@dataclass
class Progress:
    """Numbers of a campaign that runs.

    ``states`` counts finished trials as delivered, failed (crashed or without a deliverable), refused, faulty (an
    infrastructure fault) and excluded; ``reused`` of them were stored before. ``minutes`` is what a trial is expected
    to take, for the time that is left.
    """

    planned: int = 0
    states: Counter[str] = field(default_factory=Counter)
    reused: int = 0
    outcomes: dict[str, list[float]] = field(default_factory=dict)
    cost_usd: float | None = None
    running: dict[str, float] = field(default_factory=dict)  # trial -> time.time() of its start
    budget_seconds: float = 0.0
    began: float = 0.0
    minutes: dict[str, float] = field(default_factory=dict)
    ran: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)

    @property
    def done(self) -> int:
        return self.states.total()

    def finish(self, trial: str, values: Mapping[str, str], outcome: str) -> None:
        """Count a trial from its ``biabench.*`` properties; ``outcome`` is pytest's: passed, failed, skipped, error."""
        self.running.pop(trial, None)
        self.left.discard(trial)
        self.states[_state(values, outcome)] += 1
        if values.get("reused") == "true":
            self.reused += 1
        else:
            self.ran.add(trial)
        if "outcome" in values:
            self.outcomes.setdefault(values["configuration"], []).append(float(values["outcome"]))
        if "cost_usd" in values:
            self.cost_usd = (self.cost_usd or 0.0) + float(values["cost_usd"])

    def seconds_left(self, now: float) -> float | None:
        """Estimate from how fast trials went so far, weighed by what their tasks are expected to take."""
        done = sum(self._expected(trial) for trial in self.ran)
        done += sum(min(self._expected(trial), (now - start) / 60) for trial, start in self.running.items())
        if not self.ran or done <= 0:
            return None
        left = sum(self._expected(trial) for trial in self.left)
        left -= sum(min(self._expected(trial), (now - start) / 60) for trial, start in self.running.items())
        return max(0.0, left) * (now - self.began) / done

    def _expected(self, trial: str) -> float:
        return self.minutes.get(trial, 1.0)

    def headline(self, now: float) -> str:
        """One line: done of planned, states, running, elapsed, left, cost."""
        parts = [f"{self.done}/{self.planned} done"]
        parts += [f"{count} {state}" for state in STATES if (count := self.states[state])]
        parts.append(f"{len(self.running)} running")
        if self.reused:
            parts.append(f"{self.reused} reused")
        if self.began:
            parts.append(f"{clock(now - self.began)} elapsed")
        left = self.seconds_left(now)
        if left is not None and self.done < self.planned:
            parts.append(f"about {clock(left)} left")
        if self.cost_usd is not None:
            parts.append(f"${self.cost_usd:.2f}")
        return ", ".join(parts)

    def means(self) -> list[str]:
        """One line per configuration: mean outcome so far, and over how many trials."""
        return [f"{name}  {mean(found):.3f} (n={len(found)})" for name, found in sorted(self.outcomes.items())]

    def runs(self, now: float) -> list[str]:
        """One line per running trial: how long, of which budget."""
        budget = f" of {clock(self.budget_seconds)}" if self.budget_seconds else ""
        ordered = sorted(self.running.items(), key=lambda run: run[1])
        return [f"{short(trial)}  {clock(now - start)}{budget}" for trial, start in ordered]


STATES = ("delivered", "failed", "refused", "faulty", "excluded")


def short(trial: str) -> str:
    """``tasks/x/task.yaml::agent[brief-r1]`` → ``x agent[brief-r1]``."""
    path, _, name = trial.partition("::")
    return f"{path.split('/')[-2]} {name}" if "/" in path else trial


def _state(values: Mapping[str, str], outcome: str) -> str:
    if outcome == "error" or "infrastructure" in values:
        return "faulty"
    if outcome == "skipped":
        return "refused" if values.get("status") == "refused" else "excluded"
    return "delivered" if values.get("status") == "delivered" else "failed"
