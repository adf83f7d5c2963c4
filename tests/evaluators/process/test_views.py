"""Scores of judgements, by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from evaluators.process.model import Decision, Judgement
from evaluators.process.store import JudgementError, find, judgements, latest, write_judgement
from evaluators.process.views import view


def judgement(
    *decisions: Decision, digest: str = "d1", judge: str = "model", minutes: int = 0, **more: object
) -> Judgement:
    return Judgement.model_validate(
        {
            "digest": digest,
            "trial": "t",
            "task": "histology_nuclei",
            "judge": judge,
            "rubric_version": "1",
            "protocol_version": "1",
            "evidence_digest": "e",
            "decisions": list(decisions),
            "made": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes),
            **more,
        }
    )


def said(item: int, verdict: str, by: str = "model", claimed: str | None = None) -> Decision:
    return Decision.model_validate({"item": item, "verdict": verdict, "by": by, "claimed": claimed})


# items 1, 2: critical (3), input understanding; 3: major (2); 11: minor (1), tool use; 12: major, tool use
MIXED = (
    said(1, "pass"),
    said(2, "fail"),
    said(3, "not_applicable"),
    said(11, "pass", "rule"),
    said(12, "unknown", claimed="pass"),
)


def test_score_interval_and_auditability() -> None:
    found = view(judgement(*MIXED))
    assert found.score == pytest.approx(4 / 7)  # 3 + 1 of 3 + 3 + 1
    assert (found.low, found.high) == (pytest.approx(4 / 9), pytest.approx(6 / 9))
    assert found.auditability == pytest.approx(2 / 9)
    assert found.coverage == pytest.approx(7 / 9)
    assert (found.items, found.decided, found.not_applicable, found.unverified) == (4, 3, 1, 1)
    assert (found.by_rule, found.by_model) == (1, 2)


def test_published_view_keeps_what_the_model_said() -> None:
    found = view(judgement(*MIXED))
    assert found.published == pytest.approx(5 / 8)  # 3 + 2 of 3 + 3 + 2: the rule's item is none of the model's
    assert view(judgement(said(1, "pass", "rule"), judge="rules")).published is None


def test_sections_and_stages() -> None:
    found = view(judgement(*MIXED))
    assert found.sections["input-understanding"].score == pytest.approx(0.5)
    assert found.sections["tool-use"].score == 1.0
    assert found.sections["tool-use"].auditability == pytest.approx(2 / 3)
    assert "stitching" not in found.sections
    assert found.stages["load"].decided == 2
    assert found.stages["report"].score == 1.0  # item 11
    assert found.stages["detect"].score is None


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (judgement(said(1, "pass"), said(2, "judge_error")), "no valid answer on 1 of 2"),
        (judgement(said(1, "pass"), canary_tripped=True), "void"),
        (judgement(said(1, "unknown", "rule"), no_analysis="shows no analysis"), "no analysis"),
    ],
)
def test_runs_without_a_score_say_why(made: Judgement, words: str) -> None:
    found = view(made)
    assert found.score is found.low is found.high is found.published is None
    assert found.problem is not None
    assert words in found.problem
    assert all(section.score is None for section in found.sections.values())


def test_nothing_decided_is_no_score() -> None:
    found = view(judgement(said(1, "unknown")))
    assert found.score is None
    assert found.auditability == 1.0


def test_other_task_is_refused() -> None:
    with pytest.raises(ValueError, match="not on dna_paint"):
        view(judgement(said(1, "pass")), "dna_paint")


def test_judgements_are_immutable(tmp_path: Path) -> None:
    first = judgement(said(1, "pass"))
    write_judgement(tmp_path, first)
    with pytest.raises(FileExistsError):
        write_judgement(tmp_path, judgement(said(1, "fail")))
    assert judgements(tmp_path) == [first]
    assert not [path for path in (tmp_path / "judgements").iterdir() if path.suffix != ".json"]


def test_judgements_with_errors_leave_the_name_free(tmp_path: Path) -> None:
    broken = judgement(said(1, "judge_error"))
    names = [write_judgement(tmp_path, broken).name for _ in range(2)]
    assert names == ["d1-error-1.json", "d1-error-2.json"]
    assert find(tmp_path, "d1") is None
    write_judgement(tmp_path, judgement(said(1, "pass"), minutes=1))
    assert find(tmp_path, "d1") is not None
    assert latest(tmp_path).score == 1.0  # type: ignore[union-attr]


def test_judges_never_mix(tmp_path: Path) -> None:
    assert latest(tmp_path) is None
    write_judgement(tmp_path, judgement(said(1, "pass"), digest="a", judge="one"))
    write_judgement(tmp_path, judgement(said(1, "fail"), digest="b", judge="two", minutes=1))
    write_judgement(tmp_path, judgement(said(1, "pass", "rule"), digest="c", judge="rules", minutes=2))
    assert latest(tmp_path).judge == "two"  # type: ignore[union-attr]
    assert latest(tmp_path, "one").score == 1.0  # type: ignore[union-attr]
    assert latest(tmp_path, "rules").by_rule == 1  # type: ignore[union-attr]
    assert latest(tmp_path, "three") is None


def test_damaged_judgement_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "judgements"
    folder.mkdir()
    (folder / "x.json").write_text('{"digest": 1}')
    with pytest.raises(JudgementError, match=r"x\.json: is no judgement"):
        judgements(tmp_path)
