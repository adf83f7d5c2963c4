"""Keep what reviewers answer: one file each, written whole after every answer."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock

from biabench_plugin.records import write_atomically
from biabench_plugin.review.model import (
    ANSWERS,
    Answer,
    Answers,
    GivenAnswer,
    Review,
    ReviewError,
    SkipReason,
    read_answers,
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,59}")


class AnswerStore:
    """The answers of all reviewers of one blinded copy; safe for several processes at once."""

    def __init__(self, copy: Path, review: Review) -> None:
        self._folder = copy / ANSWERS
        self._review = review

    def path(self, reviewer: str) -> Path:
        """Return the file of a reviewer; raise ``ValueError`` for a name that cannot be one."""
        if not _NAME.fullmatch(reviewer) or reviewer.endswith((".", " ")):
            raise ValueError("a reviewer's name has 1 to 60 letters, digits, spaces, '.', '_' or '-'")
        return self._folder / f"{reviewer.lower().replace(' ', '_')}.json"

    def read(self, reviewer: str) -> Answers:
        """Return a reviewer's answers, none for a new one; raise :class:`ReviewError` for those of another review."""
        path = self.path(reviewer)
        if not path.exists():
            return Answers(review=self._review.id, reviewer=reviewer)
        return _checked(read_answers(path), path, self._review.id)

    def everybody(self) -> list[Answers]:
        """Return the answers of every reviewer, sorted by file name."""
        return [_checked(read_answers(path), path, self._review.id) for path in sorted(self._folder.glob("*.json"))]

    def give(
        self, reviewer: str, run: str, item: int, answer: Answer | None, reason: SkipReason | None, note: str
    ) -> GivenAnswer:
        """Store one answer.

        Raises
        ------
        ValueError
            The run or the item is not part of the review, or the name cannot be used.
        """
        if run not in {known.id for known in self._review.runs} or item not in self._review.run(run).items:
            raise ValueError(f"run {run} has no item {item}")
        given = GivenAnswer(answer=answer, reason=reason if answer == "skip" else None, note=note, at=datetime.now(UTC))
        path = self.path(reviewer)
        self._folder.mkdir(exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            answers = self.read(reviewer)
            answers.answers.setdefault(run, {})[item] = given
            write_atomically(path, answers.model_dump_json(indent=1) + "\n")
        return given


def _checked(answers: Answers, path: Path, review: str) -> Answers:
    if answers.review != review:
        raise ReviewError(f"{path}: answers to review {answers.review}, but this is review {review}")
    return answers
