"""Score a submission, or write the perfect one, by the kind of a task's outcome."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from evaluators.model import Deliverable, OutcomeScore, OutcomeSpec
from evaluators.outcome.parameters import Parameters, read_parameters
from evaluators.submission import Submission

DECIMALS = 6  # of outcome and strict: equal on every machine


def check_parameters(outcome: OutcomeSpec, deliverables: Sequence[Deliverable]) -> None:
    """Check what a task says about its evaluator; loads no evaluator.

    Raises
    ------
    ValueError
        The kind is unknown, a parameter is wrong, or a deliverable that the evaluator needs is not there.
    """
    read_parameters(outcome, deliverables)


def is_delivered(deliverables: Sequence[Deliverable], submission: Path) -> bool:
    """Return whether at least one required deliverable has a file that can be what it asks for, by its header."""
    return Submission(submission, deliverables).delivered


def evaluator(kind: str) -> Any:
    """Return the module of an outcome kind: ``VERSION``, ``score`` and ``replay``."""
    return import_module(f"evaluators.outcome.{kind}")


def evaluator_version(kind: str) -> str:
    """Return the version that scores of this kind carry now; a stored score of another one is out of date."""
    version: str = evaluator(kind).VERSION
    return version


def evaluate(
    outcome: OutcomeSpec,
    deliverables: Sequence[Deliverable],
    submission: Path,
    truth: Path,
    input_dir: Path | None = None,
) -> OutcomeScore:
    """Score a submission in this process.

    Use :func:`evaluators.evaluate_bounded` for files that you do not trust.

    Parameters
    ----------
    outcome, deliverables
        As in the task file.
    submission
        The output folder; a missing one scores 0.
    truth
        The ``evaluation`` folder.
    input_dir
        The ``input`` folder, where at hand: image sizes, and which images exist.

    Raises
    ------
    TruthError
        The reference data cannot be used.
    ValueError
        As for :func:`check_parameters`.
    """
    parameters = read_parameters(outcome, deliverables)
    reference = _reference(truth, input_dir, parameters)
    score: OutcomeScore = evaluator(outcome.kind).score(Submission(submission, deliverables), reference, parameters)
    return score.model_copy(
        update={
            "outcome": round(score.outcome, DECIMALS),
            "strict": None if score.strict is None else round(score.strict, DECIMALS),
        }
    )


def replay(
    outcome: OutcomeSpec,
    deliverables: Sequence[Deliverable],
    truth: Path,
    input_dir: Path | None,
    destination: Path,
) -> None:
    """Write the submission that the reference data make, in the form that the deliverables ask for.

    Raises
    ------
    TruthError
        The reference data cannot be used.
    """
    parameters = read_parameters(outcome, deliverables)
    evaluator(outcome.kind).replay(_reference(truth, input_dir, parameters), deliverables, parameters, destination)


def _reference(truth: Path, input_dir: Path | None, parameters: Parameters) -> Any:
    from evaluators.truth import Truth

    return Truth(truth, input_dir, required=parameters.needs_truth)
