"""The study's configurations and the pages about campaigns say what is true."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from biabench_plugin.campaign import read_configurations
from biabench_plugin.records import TrialRecord

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("biabench_docs_build_records", ROOT / "docs" / "build_records.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_of_records_is_current(builder: ModuleType) -> None:
    assert builder.main(["--check"]) == 0


def test_every_field_of_a_record_is_listed_once(builder: ModuleType) -> None:
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", builder.page(), re.M | re.S))
    for model in builder._models(TrialRecord):
        assert re.findall(r"^\| `(\w+)` \|", sections[model.__name__], re.M) == list(model.model_fields)


def test_an_outdated_page_is_named(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(builder, "PAGE", tmp_path / "records.md")
    assert builder.main(["--check"]) == 1
    assert "python docs/build_records.py" in capsys.readouterr().err
    assert builder.main([]) == 0
    assert builder.main(["--check"]) == 0


def test_the_study_has_fifteen_configurations() -> None:
    found = read_configurations(ROOT / "examples" / "study.yaml", instruction="brief", effort="medium")
    assert len({configuration.id for configuration in found}) == 15
    assert sum(configuration.instruction == "detailed" for configuration in found) == 2
    assert len({configuration.agent for configuration in found}) == 6
    assert sum(configuration.model == "openai/gpt-5.6-sol" for configuration in found) == 7
    text = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
    for configuration in re.findall(r"'(\w+\[[^']+\])'", text):
        assert configuration in {one.id for one in found}
