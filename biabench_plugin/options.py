"""Every command-line option in one place, and the checks that need nothing but their values.

This module is imported by every pytest run that has the plugin installed: it imports the standard library only.
"""

from __future__ import annotations

import argparse
import math
import re
from typing import Any

import pytest

EFFORTS = ("minimal", "low", "medium", "high", "max")
LEVELS = ("brief", "detailed")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
PREFIX = "biabench_"
_LONGEST = 30 * 86400.0


def seconds(text: str) -> float:
    """Parse a duration such as ``90``, ``30s``, ``45m``, ``4h`` or ``1h30m`` into seconds."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip().lower())
    if not parts or "".join(number + unit for number, unit in parts) != text.strip().lower():
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; write 90, 30s, 45m, 4h or 1h30m")
    if len(parts) > 1 and any(not unit for _, unit in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; every part of it needs a unit, as in 1h30m")
    total = sum(float(number) * _UNITS[unit or "s"] for number, unit in parts)
    if not 0 < total <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r}: a duration must be longer than 0 and at most 30d")
    return total


def repeats(text: str) -> int:
    """Parse a positive number of repeats."""
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from 1 on")
    return int(text)


def gigabytes(text: str) -> float:
    """Parse a size in GB."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.001 <= value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a size in GB, from 0.001 to 1000000")
    return value


def share(text: str) -> float:
    """Parse a score threshold between 0 and 1."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number from 0 to 1")
    return value


def chunk(text: str) -> int | str:
    """Parse a number of rubric items, or ``all``."""
    return text if text == "all" else repeats(text)


def dollars(text: str) -> float:
    """Parse an amount in USD."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: expected an amount in USD")
    return value


def add(parser: pytest.Parser) -> None:
    """Declare the options. Defaults are ``None`` so that an option given without ``--agent`` can be told apart."""
    group = parser.getgroup("biabench", "biabench: run AI agents on bioimage analysis tasks")

    def option(name: str, **keywords: Any) -> None:
        group.addoption(name, dest=PREFIX + name.strip("-").replace("-", "_"), default=None, **keywords)

    option("--agent", action="append", metavar="NAME[=MODEL]", help="agent to run, with its model; repeatable")
    option("--agent-class", action="append", metavar="MODULE:CLASS", help="agent of your own for --agent; repeatable")
    option("--config", metavar="FILE", help="YAML list of configurations to run, instead of --agent")
    option("--instruction", choices=LEVELS, help="instruction level (default: brief)")
    option("--repeats", type=repeats, metavar="N", help="trials per task and configuration (default: demo 1, else 3)")
    option(
        "--dataset",
        metavar="{demo[:SEED],full[:REVISION],PATH}",
        help="images and truth (default: demo until data are fetched)",
    )
    option("--tasks", action="append", metavar="DIR", help="further folder of tasks; repeatable")
    option("--effort", choices=EFFORTS, help="reasoning effort requested from the agent (default: medium)")
    option("--budget", type=seconds, metavar="TIME", help="wall-clock budget of a trial (default: 4h)")
    option("--network", choices=("open", "model", "none"), help="network of the agent (default: open)")
    option("--provider", metavar="NAME|URL", help="where the model is: a known provider, or a base URL without /v1")
    option("--key-variable", metavar="NAME", help="environment variable that holds the provider's key")
    option("--relay", choices=("on", "off"), help="stand between agent and model, for keys and metering (default: on)")
    option("--web-tools", choices=("on", "off"), help="the agent's own web search (default: as in the study)")
    option("--isolation", choices=("required", "auto", "off"), help="containment of the agent (default: auto)")
    option(
        "--agent-command", metavar="COMMAND", help="what --agent=command starts; {input} {output} {instruction} {model}"
    )
    option("--agent-env", metavar="PATH", help="tool environment that the agent sees, read-only, first on its PATH")
    option("--agent-weights", metavar="PATH", help="folder of model weights that the agent sees, read-only")
    option("--output-quota", type=gigabytes, metavar="GB", help="largest output of a trial, in GB (default: 50)")
    option("--campaign", metavar="DIR", help="folder of the campaign (default: campaigns/<date>-<dataset>)")
    option("--rerun", choices=("failed", "all"), help="add an attempt to finished trials instead of reusing them")
    option(
        "--until-scored",
        type=repeats,
        metavar="N",
        help="plan further repeats in place of refused, excluded or faulty ones, until N of a task are scored",
    )
    option("--engine", choices=("local", "slurm"), help="where trials run (default: local; with -n N in parallel)")
    option("--slurm", metavar="NAME=VALUE,…", help="sbatch options, e.g. partition=gpu,gres=gpu:1,array_parallelism=8")
    option(
        "--detach", action="store_true", help="with --engine=slurm: submit and leave; the same command reports later"
    )
    option("--report-to", metavar="FILE", help=argparse.SUPPRESS)  # of the session in a Slurm job
    option("--min-outcome", type=share, metavar="X", help="an item below this outcome score fails")
    option("--judge", metavar="MODEL", help="judge the process of each trial afterwards; `rules` asks no model")
    option("--judge-chunk", type=chunk, metavar="N", help="rubric items in a request, or all (default: 2)")
    option("--judge-batch", action="store_const", const=True, help="judge through Message Batches, at half the price")
    option("--judge-max-cost", type=dollars, metavar="USD", help="largest cost of judging in this session")
    option("--judge-url", metavar="URL", help="any endpoint compatible with Anthropic's Messages")
    option("--rank-by", choices=("outcome", "strict"), help="score that orders the tables (default: outcome)")


def get(config: pytest.Config, name: str) -> Any:
    """Return the value of one of our options, ``None`` where it was not given."""
    return config.getoption(PREFIX + name, None)


def trial_mode(config: pytest.Config) -> bool:
    """Tell whether this session runs trials."""
    return bool(get(config, "agent") or get(config, "config"))


def refuse_orphans(config: pytest.Config) -> None:
    """Stop when an option of ours was given in a session that runs no trials."""
    given = [name for name, value in vars(config.option).items() if name.startswith(PREFIX) and value is not None]
    if given:
        names = ", ".join("--" + name.removeprefix(PREFIX).replace("_", "-") for name in sorted(given))
        raise pytest.UsageError(f"{names}: needs --agent=NAME (or --config=FILE), which turns a session into trials")
