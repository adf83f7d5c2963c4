"""Kinds of failure, by rules and by the judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.transcript import FILE_NAME, Step, write_transcript
from evaluators.process.model import TAGS
from evaluators.process.tags import Ending, read_tags, tag_run
from evaluators.process.views import view
from tests.evaluators.process.judge_server import Answer, Asked
from tests.evaluators.process.runs import empty_run, real_run
from tests.evaluators.process.test_judge import ask


def tool(number: int, code: str, output: str = "", exit_code: int = 1) -> Step:
    return Step(step=number, kind="tool", tool="Bash", code=code, exit_code=exit_code, output=output)


MISSING = "Traceback\nModuleNotFoundError: No module named 'stardist'\n"


@pytest.mark.parametrize(
    ("steps", "ending", "tags"),
    [
        ([], Ending("delivered"), ["none"]),
        ([], Ending("no_deliverable", timed_out=True), ["budget_exhausted"]),
        ([], Ending("delivered", quota_exceeded=True), ["budget_exhausted"]),
        ([tool(1, "python a.py", MISSING)], Ending("crashed", exit_code=1), ["environment_setup_failure"]),
        ([tool(1, "python a.py", MISSING), tool(2, "x", "", 0)], Ending("delivered"), ["none"]),
        ([tool(at, "python a.py", "ValueError") for at in range(4)], Ending("delivered"), ["retry_loop"]),
        ([tool(at, f"python {at}.py", "ValueError") for at in range(4)], Ending("delivered"), ["none"]),
        ([], Ending("delivered", problems=[("missing_columns", "cells.csv")]), ["format_violation"]),
        ([], Ending("delivered", problems=[("missing_images", "cells.csv")]), ["none"]),
        ([], Ending("no_deliverable"), ["premature_end"]),
        (
            [tool(1, "ls", "", 0)],
            Ending("no_deliverable", final_message="Now I will write the masks."),
            ["premature_end"],
        ),
        ([tool(1, "ls", "", 0)], Ending("no_deliverable", final_message="The images are empty."), ["none"]),
        (
            [tool(at, "python a.py", MISSING) for at in range(5)],
            Ending("no_deliverable", timed_out=True),
            ["budget_exhausted", "environment_setup_failure", "retry_loop"],
        ),
    ],
)
def test_rules(steps: list[Step], ending: Ending, tags: list[str], tmp_path: Path) -> None:
    attempt = empty_run(tmp_path)
    if steps:
        write_transcript(steps, attempt / FILE_NAME)
    found = tag_run(attempt, ending)
    assert [tag.tag for tag in found] == tags
    assert read_tags(attempt) == found
    assert all(tag.by == "rule" for tag in found)


def test_scripts_that_admit_to_making_data_up(tmp_path: Path) -> None:
    attempt = real_run(tmp_path)
    (attempt / "submission" / "make.py").write_text("# placeholder values until segmentation works\nx = 1\n")
    (tag,) = tag_run(attempt, Ending("delivered"))
    assert tag.tag == "placeholder_or_synthetic_output"
    assert tag.citations[0].file == "make.py"


def test_missing_program_without_transcript(tmp_path: Path) -> None:
    attempt = empty_run(tmp_path)
    (attempt / "logs").mkdir()
    (attempt / "logs" / "stderr.log").write_text("sh: 1: fiji: command not found\n")
    assert [tag.tag for tag in tag_run(attempt, Ending("crashed", exit_code=127))] == ["environment_setup_failure"]


def test_tags_of_the_judge_need_words_that_were_found_and_change_no_score(tmp_path: Path, task: Any) -> None:
    def answer(asked: Asked) -> Answer:
        said = asked.decide("pass")
        said["tags"] = [
            {"tag": "wrong_method", "why": "x", "citations": [{"file": "report.md", "quote": "by a local threshold"}]},
            {"tag": "input_misread", "why": "x", "citations": [{"file": "report.md", "quote": "swapped channels"}]},
        ]
        return said

    attempt = real_run(tmp_path)
    made, _ = ask(attempt, task, answer, chunk=None)
    assert view(made).score == 1.0
    found = tag_run(attempt, Ending("delivered"))
    assert [(tag.tag, tag.by) for tag in found] == [("wrong_method", "model")]
    assert found[0].citations[0].verified


def test_vocabulary_is_closed_and_damage_is_named(tmp_path: Path) -> None:
    assert len(TAGS) == 11
    assert read_tags(tmp_path) == []
    (tmp_path / "tags.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tags\.json: holds no tags"):
        read_tags(tmp_path)
