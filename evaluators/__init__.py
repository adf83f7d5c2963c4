"""Score what an agent left against the reference data of its task. Knows no agent and no pytest.

Importing this package is cheap: what needs NumPy is loaded with the first score.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from evaluators.model import (
    Content,
    Deliverable,
    OutcomeScore,
    OutcomeSpec,
    Problem,
    TruthError,
)

if TYPE_CHECKING:
    from evaluators.bounded import Limits, evaluate_bounded, warm_up
    from evaluators.evaluation import check_parameters, evaluate, evaluator_version, is_delivered, replay

__all__ = [
    "Content",
    "Deliverable",
    "Limits",
    "OutcomeScore",
    "OutcomeSpec",
    "Problem",
    "TruthError",
    "check_parameters",
    "evaluate",
    "evaluate_bounded",
    "evaluator_version",
    "is_delivered",
    "replay",
    "warm_up",
]

_HOMES = {
    "Limits": "evaluators.bounded",
    "evaluate_bounded": "evaluators.bounded",
    "warm_up": "evaluators.bounded",
    "check_parameters": "evaluators.evaluation",
    "evaluate": "evaluators.evaluation",
    "evaluator_version": "evaluators.evaluation",
    "is_delivered": "evaluators.evaluation",
    "replay": "evaluators.evaluation",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
