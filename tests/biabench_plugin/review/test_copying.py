"""The blinded copy holds what a reviewer needs and nothing that tells the agent or the judge."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from biabench_plugin.review.copying import prepare
from biabench_plugin.review.model import KEY_FILE, REVIEW_FILE, BlindedRun, ReviewError, ReviewItem
from biabench_plugin.review.preview import Previewer
from biabench_plugin.taskspec import TaskSpec

TELLING = (b"codex", b"claude", b"lab_pipeline", b"lab pipeline", b"openai", b"anthropic", b"gpt-5", b"sonnet")


@pytest.fixture
def codex(prepared_once) -> BlindedRun:
    return prepared_once.review.run(prepared_once.id_of("codex"))


def test_the_draw_covers_agents_and_tasks_and_leaves_out_what_cannot_be_reviewed(prepared_once) -> None:
    entries = prepared_once.key.entries
    assert {entry.agent for entry in entries} == {"codex", "claude_code", "lab_pipeline"}
    assert len({entry.task for entry in entries}) == 4
    assert [entry.id for entry in entries] == ["R01", "R02", "R03", "R04", "R05"]
    assert any("synthetic" in line for line in prepared_once.key.left_out)
    assert any("do not count" in line for line in prepared_once.key.left_out)


def test_no_byte_of_the_copy_names_an_agent_or_holds_a_decision(prepared_once) -> None:
    paths = [path for path in prepared_once.copy.rglob("*") if path.is_file()]
    assert len(paths) > 40
    for path in paths:
        data = path.read_bytes().lower() + str(path.relative_to(prepared_once.copy)).lower().encode()
        for name in (*TELLING, b"judge-says-pass", str(prepared_once.campaign).lower().encode(), b'"outcome"'):
            assert name not in data, (path, name)
    assert not any(path.is_symlink() for path in prepared_once.copy.rglob("*"))


def test_the_names_were_there_before(prepared_once) -> None:
    """Else the test above could not fail."""
    folder = prepared_once.campaign / prepared_once.key.entries[0].run_folder
    data = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    assert any(name in data.lower() for name in TELLING)


def test_the_key_stays_with_the_operator(prepared_once) -> None:
    assert (prepared_once.folder / KEY_FILE).stat().st_mode & 0o077 == 0
    assert not list(prepared_once.copy.rglob(KEY_FILE))
    assert all((prepared_once.campaign / entry.run_folder).is_dir() for entry in prepared_once.key.entries)


def test_every_kind_of_evidence_is_there(codex: BlindedRun) -> None:
    kinds = {file.path: file.kind for file in codex.files}
    assert kinds["instruction.md"] == "instruction"
    assert kinds["transcript"] == "log"
    assert kinds["report.md"] == "report"
    assert kinds["run_AGENT.py"] == "code"
    assert kinds["0.csv"] == "table"
    assert kinds["AGENT_plot.png"] == kinds["labels.tif"] == kinds["plot.svg"] == "figure"
    assert kinds["supporting/AGENT/notes.txt"] == "text"
    assert kinds["weights.bin"] == "other"


def test_a_transcript_stands_for_the_raw_log(prepared_once, codex: BlindedRun) -> None:
    (transcript,) = [file for file in codex.files if file.path == "transcript"]
    text = (prepared_once.copy / transcript.stored).read_text()
    assert "python run_AGENT.py" in text
    assert "exit status 0" in text
    assert "AGENT counted 41 cells" in text
    assert "shell" not in text  # the tool's own name tells the agent
    assert "logs/stdout.log" not in {file.path for file in codex.files}
    assert any("stdout.log" in line for line in codex.left_out)
    other = prepared_once.review.run(prepared_once.id_of("claude_code"))
    assert {"closing message", "logs/stdout.log", "logs/stderr.log"} <= {file.path for file in other.files}


def test_images_are_drawn_anew_with_facts_on_the_original(prepared_once, codex: BlindedRun) -> None:
    files = {file.path: file for file in codex.files}
    plot, labels = files["AGENT_plot.png"], files["labels.tif"]
    assert "320 x 200 px" in plot.facts
    assert "300 dpi" in plot.facts
    with Image.open(prepared_once.copy / plot.stored) as image:
        assert image.getpixel((3, 3)) == (30, 90, 160)
        assert not image.info.get("Author")
    assert "uint16" in labels.facts
    assert "2 values besides background" in labels.note
    with Image.open(prepared_once.copy / labels.stored) as image:
        shown = np.asarray(image)
    assert (shown[0, 0] == 0).all()
    assert len({tuple(shown[7, 7]), tuple(shown[25, 40]), (0, 0, 0)}) == 3


def test_what_is_not_shown_is_said(codex: BlindedRun) -> None:
    files = {file.path: file for file in codex.files}
    assert files["broken.png"].stored is None
    assert "cannot be read" in files["broken.png"].note
    assert files["weights.bin"].stored is None
    assert {line.partition(":")[0] for line in codex.left_out} >= {"secret.txt", "pipe.txt"}


def test_an_existing_review_is_never_overwritten(
    prepared, task_specs: dict[str, TaskSpec], items_of: Callable[[TaskSpec], list[ReviewItem]]
) -> None:
    with pytest.raises(ReviewError, match="already holds a review"):
        prepare(prepared.campaign, prepared.folder, task_specs, items_of, "1", sample=5, seed=1)


def test_an_interrupted_copy_is_made_again(
    prepared, task_specs: dict[str, TaskSpec], items_of: Callable[[TaskSpec], list[ReviewItem]]
) -> None:
    (prepared.copy / REVIEW_FILE).unlink()
    (prepared.folder / "copy.partial").mkdir()
    key = prepare(prepared.campaign, prepared.folder, task_specs, items_of, "1", sample=5, seed=3)
    assert [entry.run_folder for entry in key.entries] == [entry.run_folder for entry in prepared.key.entries]
    assert (prepared.copy / REVIEW_FILE).is_file()


def test_a_folder_that_is_no_campaign_is_named(
    tmp_path: Path, task_specs: dict[str, TaskSpec], items_of: Callable[[TaskSpec], list[ReviewItem]]
) -> None:
    with pytest.raises(ReviewError, match="holds no run"):
        prepare(tmp_path, tmp_path / "review", task_specs, items_of, "1", sample=5, seed=0)


def test_stacks_become_contact_sheets_and_bombs_are_refused(tmp_path: Path) -> None:
    stack = np.arange(20 * 30 * 40, dtype=np.uint16).reshape(20, 30, 40)
    tifffile.imwrite(tmp_path / "stack.tif", stack, photometric="minisblack")
    tifffile.imwrite(tmp_path / "float.tif", np.full((8, 8), np.nan, np.float32))
    header = b"P6 60000 60000 255\n"
    (tmp_path / "bomb.png").write_bytes(header + b"\0" * 100)
    with Previewer() as previewer:
        made = previewer.make(tmp_path / "stack.tif", tmp_path / "stack.png")
        assert "9 planes" in made["note"]
        assert "20x30x40" in made["facts"]
        with Image.open(tmp_path / "stack.png") as sheet:
            assert sheet.size == (3 * 44, 3 * 34)
        assert "failure" not in previewer.make(tmp_path / "float.tif", tmp_path / "float.png")
        assert "failure" in previewer.make(tmp_path / "bomb.png", tmp_path / "b.png")
        assert not (tmp_path / "b.png").exists()


def test_a_crashed_decoder_ends_neither_the_review_nor_the_next_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("L", (4, 4)).save(tmp_path / "good.png")
    with Previewer() as previewer:
        assert "failure" not in previewer.make(tmp_path / "good.png", tmp_path / "1.png")
        child = previewer._child
        assert child is not None
        child.kill()
        child.wait()
        assert "failure" not in previewer.make(tmp_path / "good.png", tmp_path / "2.png")
        monkeypatch.setattr("biabench_plugin.review.preview._SECONDS", 0.0)
        Image.new("L", (2000, 2000)).save(tmp_path / "slow.png")
        assert "failure" in previewer.make(tmp_path / "slow.png", tmp_path / "3.png")


def test_workbooks_are_shown_as_tables(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.title = "Table 1"
    book.active.append(["cell", "area"])
    book.active.append([1, 2.5])
    book.save(tmp_path / "book.xlsx")
    with Previewer() as previewer:
        made = previewer.make(tmp_path / "book.xlsx", tmp_path / "book.txt")
    assert "Table 1" in made["facts"]
    assert (tmp_path / "book.txt").read_text().splitlines() == ["# sheet Table 1", "cell\tarea", "1\t2.5"]


def test_many_pictures_alike_are_thinned_out_and_listed(
    prepared, task_specs: dict[str, TaskSpec], items_of: Callable[[TaskSpec], list[ReviewItem]], tmp_path: Path
) -> None:
    for entry in prepared.key.entries:
        folder = prepared.campaign / entry.run_folder / "submission" / "overlays"
        folder.mkdir()
        for number in range(30):
            Image.new("L", (4, 4)).save(folder / f"o{number:02d}.png")
    notebook = {"cells": [{"cell_type": "code", "source": ["1+1"], "outputs": [{"data": {"text/plain": ["2"]}}]}]}
    (folder.parent / "work.ipynb").write_text(json.dumps(notebook))
    prepare(prepared.campaign, tmp_path / "other", task_specs, items_of, "1", sample=5, seed=3)
    run = json.loads((tmp_path / "other" / "copy" / REVIEW_FILE).read_text())["runs"][-1]
    overlays = [file for file in run["files"] if file["path"].startswith("overlays/")]
    assert len(overlays) == 30
    assert sum(file["stored"] is not None for file in overlays) == 24
    assert all("many alike" in file["note"] for file in overlays if file["stored"] is None)
    (work,) = [file for file in run["files"] if file["path"] == "work.ipynb"]
    assert (tmp_path / "other" / "copy" / work["stored"]).read_text() == "# %% [code]\n1+1\n# output:\n2\n"
