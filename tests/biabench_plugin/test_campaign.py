"""Configurations: names that stay apart, closed values, what makes a run another experiment."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from biabench_plugin import campaign
from biabench_plugin.campaign import Configuration


@given(st.lists(st.text(min_size=1, max_size=60), min_size=2, max_size=2, unique=True))
def test_different_models_have_different_ids_and_folders(models: list[str]) -> None:
    one, two = (Configuration(agent="command", model=model) for model in models)
    assert one.id != two.id
    assert one.folder_name != two.folder_name
    for configuration in (one, two):
        assert "/" not in configuration.folder_name
        assert len(configuration.folder_name.encode()) < 250


def test_label_and_model_do_not_run_together() -> None:
    one = Configuration(agent="command", label="x", model="y")
    two = Configuration(agent="command", label="x-y")
    assert one.folder_name != two.folder_name


@pytest.mark.parametrize("field", [{"effort": "../../out"}, {"effort": "a/b"}, {"label": "a/b"}, {"model": "x" * 300}])
def test_values_that_would_leave_the_campaign_are_refused(field: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        Configuration.model_validate({"agent": "command", **field})


def test_edited_programs_are_other_experiments(tmp_path: Path) -> None:
    program, folder = tmp_path / "agent.py", tmp_path / "package"
    folder.mkdir()
    for path in (program, folder / "__main__.py"):
        path.write_text("1\n")
    command = f"python3 {program} {folder}"
    before = campaign._named_files(command)
    program.write_text("2\n")
    edited = campaign._named_files(command)
    (folder / "__main__.py").write_text("22\n")
    assert len({str(before), str(edited), str(campaign._named_files(command))}) == 3
