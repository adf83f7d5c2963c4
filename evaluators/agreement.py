"""How alike two submissions of one task are, by the task's own metric. Needs no truth.

One submission is written as reference data, by the ``as_reference`` of the outcome's kind, and the other is scored
against it; then the other way round, and the mean is taken. So whatever a metric demands of a submission (an image, a
frame, a condition) counts as disagreement where only one of the two has it. Images that neither has are not seen.

The score that is read is the outcome. Two kinds look in their outcome at a pattern and not at a reference
(:mod:`evaluators.outcome.condition_pattern`, :mod:`evaluators.outcome.dose_response`); there it is the strict score.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from evaluators.evaluation import evaluate, evaluator
from evaluators.model import Deliverable, OutcomeSpec, TruthError
from evaluators.outcome.parameters import read_parameters
from evaluators.problems import Refusal
from evaluators.submission import Submission
from evaluators.truth import Truth


def measure(kind: str) -> str:
    """Return which score is the agreement of an outcome kind, ``outcome`` or ``strict``."""
    return getattr(evaluator(kind), "AGREEMENT", "outcome")


def directed_agreement(
    outcome: OutcomeSpec,
    deliverables: Sequence[Deliverable],
    submission: Path,
    reference: Path,
    input_dir: Path | None = None,
    scratch: Path | None = None,
) -> float:
    """Score a submission with another one in the place of truth, in this process.

    Use :func:`evaluators.bounded.agreement_bounded` for files that you do not trust. The reference is written below
    ``scratch``, by default the system's folder for temporary files, and removed.

    Raises
    ------
    TruthError
        The other one cannot serve as a reference: nothing in it can be read, or not what a reference must have.
    """
    parameters = read_parameters(outcome, deliverables)
    module = evaluator(outcome.kind)
    if not hasattr(module, "as_reference"):
        raise TruthError(f"outcome kind {outcome.kind} cannot take a submission as reference")
    folder = Path(tempfile.mkdtemp(prefix="biabench-agreement-", dir=scratch))
    try:
        given = Truth(folder, input_dir, required=False)
        try:
            inputs = module.as_reference(Submission(reference, deliverables), given, parameters, folder)
        except Refusal as refusal:
            raise TruthError(str(refusal)) from refusal
        score = evaluate(outcome, deliverables, submission, folder, inputs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    value = score.outcome if measure(outcome.kind) == "outcome" else score.strict
    if value is None:
        raise TruthError(f"{outcome.kind} has no {measure(outcome.kind)} score against this reference")
    return value
