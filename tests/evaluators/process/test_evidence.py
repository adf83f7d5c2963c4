"""What a judge is shown, and that it is never more than the run itself."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

from agents.transcript import FILE_NAME
from evaluators.process.evidence import Evidence, gather, gather_bounded
from tests.evaluators.process.runs import bluff_run, empty_run, real_run, source


@pytest.fixture
def evidence(tmp_path: Path, task: Any) -> Evidence:
    return gather(source(real_run(tmp_path), task))


def part(evidence: Evidence, name: str) -> str:
    return next(part.text for part in evidence.parts if part.name == name)


def test_holds_every_kind_of_evidence(evidence: Evidence) -> None:
    names = {part.name: part.kind for part in evidence.parts}
    assert names == {
        "request": "request",
        "inventory": "inventory",
        "digest": "digest",
        "report.md": "report",
        "commands": "code",
        "scripts/segment.py": "code",
        "transcript": "transcript",
    }
    assert "a.tif; " in part(evidence, "inventory")
    assert "300 dpi" in part(evidence, "inventory")
    assert "shape 32x32, uint16, values 0 to 2, 2 labels" in part(evidence, "digest")
    assert "area_um2: 9 to 16" in part(evidence, "digest")
    assert "row: a | 1 | 9.0" in part(evidence, "digest")
    assert "[2] tool Bash, exit code 0" in part(evidence, "transcript")
    assert [figure.members for figure in evidence.figures] == [["figures/overlay.png"]]
    assert evidence.left_out == []


def test_the_bounded_process_finds_the_same(tmp_path: Path, task: Any) -> None:
    real_run(tmp_path)
    assert gather_bounded(source(tmp_path, task)).digest == gather(source(tmp_path, task)).digest


def test_same_run_elsewhere_has_the_same_digest(tmp_path: Path, task: Any) -> None:
    one, two = (gather(source(real_run(tmp_path / name), task)) for name in ("one", "two"))
    assert one.digest == two.digest
    (tmp_path / "two" / "submission" / "report.md").write_text("Other words.")
    assert gather(source(tmp_path / "two", task)).digest != one.digest


def test_nothing_computed_from_truth_enters(tmp_path: Path, task: Any) -> None:
    real_run(tmp_path)
    planted = {"score": {"outcome": 0.777123, "problems": [{"message": "TRUTH-WORD"}]}, "final_message": "TRUTH-WORD"}
    (tmp_path / "record.json").write_text(json.dumps(planted))
    (tmp_path / "record.evaluator-1.json").write_text(json.dumps(planted))
    (tmp_path / "tags.json").write_text(json.dumps(planted))
    (tmp_path / "evaluation").mkdir()
    (tmp_path / "evaluation" / "truth.csv").write_text("TRUTH-WORD,0.777123\n")
    (tmp_path / "submission" / "linked.csv").symlink_to(tmp_path / "evaluation" / "truth.csv")
    (tmp_path / "submission" / "folder").symlink_to(tmp_path / "evaluation")
    text = gather(source(tmp_path, task)).model_dump_json()
    assert "TRUTH-WORD" not in text
    assert "0.777123" not in text
    assert "linked.csv: a link or special file" in text


def test_nothing_is_cut_silently(tmp_path: Path, task: Any) -> None:
    attempt = real_run(tmp_path)
    scripts = attempt / "submission" / "scripts"
    for number in range(9):
        (scripts / f"helper_{number}.py").write_text(f"# helper {number}\n" + "x = 1\n" * 3000)
    (attempt / "submission" / "report.md").write_text(("See segment.py. " + "word " * 3000)[:15_000])
    evidence = gather(source(attempt, task))
    assert "[… 7,000 characters are not shown …]" in part(evidence, "report.md")
    assert "report report.md: 7,000 of 15,000 characters" in evidence.left_out
    texts = [one for one in evidence.parts if one.kind in ("report", "code", "transcript", "text")]
    assert sum(len(one.text) for one in texts) <= 60_000 + 100 * len(texts)
    gone = [line for line in evidence.left_out if "beyond the total of texts" in line]
    shown = {one.name for one in evidence.parts}
    assert {f"scripts/helper_{number}.py" for number in range(9)} - shown == {line.split(":")[0][5:] for line in gone}
    assert gone
    assert "scripts/segment.py" in shown  # the report names it, so it goes first
    assert evidence.budgets["total"] == 60_000


def test_long_logs_keep_both_ends_and_lose_progress_bars(tmp_path: Path, task: Any) -> None:
    attempt = real_run(tmp_path)
    (attempt / FILE_NAME).unlink()
    bars = "".join(f" {at}%|####      | {at}/100\r" for at in range(100))
    log = "begin\n" + bars + "\n" + "\n".join(f"line {at}" for at in range(4000)) + "\nend"
    (attempt / "logs" / "stdout.log").write_text(log)
    text = part(gather(source(attempt, task)), "transcript")
    assert "begin" in text
    assert text.endswith("end")
    assert "%|" not in text
    assert "characters are not shown" in text


def test_damaged_transcript_is_told(tmp_path: Path, task: Any) -> None:
    attempt = real_run(tmp_path)
    with (attempt / FILE_NAME).open("a") as stream:
        stream.write("{broken\n")
    evidence = gather(source(attempt, task))
    assert any(line.startswith("transcript after step 3") for line in evidence.left_out)
    assert "[2] tool Bash" in part(evidence, "transcript")


def test_figures_are_reduced_numbered_after_encoding_and_families_collapse(tmp_path: Path, task: Any) -> None:
    attempt = real_run(tmp_path)
    figures = attempt / "submission" / "figures"
    Image.new("RGB", (4000, 1000), "red").save(figures / "wide.png")
    (figures / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    for number in range(20):
        Image.new("L", (64, 64), number * 10).save(figures / f"field_{number:02}.png")
    Image.fromarray(np.full((30, 30), 40_000, np.uint16)).save(figures / "deep.png")
    evidence = gather(source(attempt, task))
    assert [figure.number for figure in evidence.figures] == [1, 2, 3, 4, 5]
    assert evidence.figures[0].members == ["figures/overlay.png"]  # the report names it
    by_first = {figure.members[0]: figure for figure in evidence.figures}
    assert max(by_first["figures/wide.png"].width, by_first["figures/wide.png"].height) == 1568
    assert by_first["figures/wide.png"].reduced
    sheet = evidence.figures[-1]
    assert len(sheet.members) == 12
    assert any("broken.png: cannot be read" in line for line in evidence.left_out)
    assert any("7 of 20 not shown" in line for line in evidence.left_out)
    assert "... 18 more named figures/field_#.png" in part(evidence, "inventory")


def test_at_most_eight_pictures_and_the_rest_is_named(tmp_path: Path, task: Any) -> None:
    attempt = real_run(tmp_path)
    for letter in "abcdefghijkl":
        Image.new("RGB", (64, 64), "blue").save(attempt / "submission" / "figures" / f"{letter}.png")
    evidence = gather(source(attempt, task))
    assert len(evidence.figures) == 8
    assert sum("beyond the first 8 pictures" in line for line in evidence.left_out) == 5


def test_large_families_and_hostile_files_are_bearable(tmp_path: Path, task: Any) -> None:
    attempt = real_run(tmp_path)
    submission = attempt / "submission"
    (submission / "bomb.png").write_bytes(_png_header(100_000, 100_000))
    (submission / "c.tif").write_bytes(b"II*\0garbage")
    (submission / "wide.csv").write_text(",".join(f"c{at}" for at in range(3000)) + "\n" + ",".join("1" * 3000) + "\n")
    (submission / "bad.ipynb").write_text("{")
    (submission / os.fsdecode(b"\xff\xfe.py")).write_bytes(b"print(1)")
    os.mkfifo(submission / "pipe.py")
    evidence = gather_bounded(source(attempt, task))
    facts = {fact.path: fact for fact in evidence.facts}
    assert facts["c.tif"].problem is not None
    assert len(facts["wide.csv"].tables[0].columns) == 60
    assert any("bomb.png" in line for line in evidence.left_out)
    assert any("pipe.py: a link or special file" in line for line in evidence.left_out)


def _png_header(width: int, height: int) -> bytes:
    import struct
    import zlib

    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))


def test_ome_files_cannot_reach_outside(tmp_path: Path, task: Any) -> None:
    attempt = real_run(tmp_path)
    secret = tmp_path / "secret.tif"
    tifffile.imwrite(secret, np.full((8, 8), 77, np.uint8))
    description = (
        '<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image ID="Image:0">'
        '<Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint8" SizeX="8" SizeY="8" SizeZ="1" SizeC="1" SizeT="1">'
        '<TiffData IFD="0" PlaneCount="1"><UUID FileName="../../secret.tif">urn:uuid:x</UUID></TiffData>'
        "</Pixels></Image></OME>"
    )
    tifffile.imwrite(attempt / "submission" / "c.tif", np.zeros((8, 8), np.uint8), description=description)
    evidence = gather(source(attempt, task))
    assert "values 77" not in part(evidence, "digest")


@pytest.mark.parametrize("make", [empty_run, bluff_run])
def test_words_are_no_analysis(make: Any, tmp_path: Path, tasks: dict[str, Any]) -> None:
    attempt = make(tmp_path)
    assert all(gather(source(attempt, task)).analysis is None for task in tasks.values())


def test_scripts_that_nobody_ran_are_no_analysis(tmp_path: Path, task: Any) -> None:
    attempt = bluff_run(tmp_path)
    (attempt / "submission" / "analysis.py").write_text("import tifffile\ntifffile.imread('x')\n")
    (attempt / "submission" / "empty.csv").write_text("image,count\n")
    Image.new("L", (1, 1)).save(attempt / "submission" / "pixel.png")
    assert gather(source(attempt, task)).analysis is None


def test_a_run_without_its_deliverables_still_shows_analysis(tmp_path: Path, task: Any) -> None:
    attempt = real_run(tmp_path)
    for path in (attempt / "submission").glob("*.tif"):
        path.unlink()
    (attempt / "submission" / "nuclei.csv").unlink()
    assert gather(source(attempt, task)).analysis == "image figures/overlay.png"
    (attempt / "submission" / "figures" / "overlay.png").unlink()
    assert gather(source(attempt, task)).analysis == "code run in step 2"
