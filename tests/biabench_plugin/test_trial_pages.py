"""The page of a trial shows everything, and nothing that an agent wrote can run, load or link in it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import tifffile
from PIL import Image

from agents.audit import Access, Audit
from agents.relay.ledger import Exchange
from agents.transcript import Step, write_transcript
from biabench_plugin.records import TrialRecord, write_record
from biabench_plugin.report import trial_page
from biabench_plugin.report.consistency import stored_audit
from biabench_plugin.report.rows import Row, load
from biabench_plugin.report.sanitise import markdown_html, svg_image
from biabench_plugin.report.trial_page import TrialPage, read_requests, write_pages
from biabench_plugin.taskspec import load_tasks
from evaluators.model import Problem
from evaluators.previews import look
from evaluators.process.model import Citation, Decision, Judgement
from evaluators.process.rubric import load_rubric

TASKS = load_tasks(Path(__file__).resolve().parents[2] / "tasks")
PAYLOADS = (
    "<script>alert('p1')</script>",
    "<img src=x onerror=alert('p2')>",
    "<svg onload=alert('p3')></svg>",
    "<iframe src=javascript:alert('p4')></iframe>",
    "[x](javascript:alert('p5))",
    "![x](http://evil.example/p6.png)",
    "\"'><style>@import url(http://evil.example/p7)</style>",
    "<a href=\"javascript:alert('p8')\">x</a>",
    "</pre><script>alert('p9')</script>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert('p10')></style></mglyph></table></mtext></math>",
    "{{ 7 * 191 }}",
)
STATEMENT = next(item.statement for item in load_rubric().items if item.id == 7)
DRAWING = """<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY e "x">]>
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 9 9" onload="alert(1)">
<script>alert(2)</script><style>@import url(http://evil.example/a.css);</style>
<a xlink:href="javascript:alert(3)"><rect width="5" height="5" style="fill:url(http://evil.example/b)"/></a>
<image href="http://evil.example/c.png"/><use href="http://evil.example/d.svg#a"/><use xlink:href="#ok"/>
<foreignObject><body xmlns="http://www.w3.org/1999/xhtml"><script>alert(4)</script></body></foreignObject>
<animate attributeName="href" values="javascript:alert(5)"/><set attributeName="onload" to="alert(6)"/>
<path id="ok" d="M0 0L5 5" stroke="#123456"/></svg>"""


class _Elements(HTMLParser):
    """Collects what a browser would build of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)


def _assert_harmless(page: str) -> None:
    links = re.compile(r"(\.\./index\.html|[\w.-]+\.html)")
    for tag, attributes in _Elements(page).found:
        assert tag not in ("script", "iframe", "object", "embed", "base", "form", "svg", "math", "link"), tag
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name != "style", tag
            if name == "src":
                assert (value or "").startswith("data:image/"), value
            if name == "href":
                assert links.fullmatch(value or ""), value


@pytest.fixture
def trial(tmp_path: Path, make_record: Callable[..., TrialRecord]) -> Callable[..., Row]:
    """Write a trial of the cell counting task with a submission full of payloads."""

    def write(repeat: int = 1) -> Row:
        where = f"runs/cell_counting/command+brief/r{repeat}/attempt-1"
        folder = tmp_path / "campaign" / where
        words = " ".join(PAYLOADS)
        record = make_record(
            task="cell_counting",
            agent="command",
            configuration="command[brief]",
            repeat=repeat,
            synthetic=False,
            run_folder=where,
            final_message=f"All images were processed. {words}",
            status_reason=words,
            usage_difference={"input_tokens": 3},
            review=[words],
        )
        assert record.score is not None
        record.score.problems.append(Problem(code="bad", where=words[:150], message=words[:400]))
        record.score.metrics.update({"f1": 0.5, words[:40]: words[:60]})
        record.score.items.append({words[:30]: words[:50]})
        write_record(record, folder)
        (folder / "instruction.md").write_text(words)
        logs, submission = folder / "logs", folder / "submission"
        logs.mkdir()
        submission.mkdir()
        (logs / "stdout.log").write_text(words)
        (submission / "0.csv").write_text("X,Y\n1,2\n3,4\n")
        (submission / f"{PAYLOADS[1]}.csv").write_text(f"X,Y,{PAYLOADS[0]}\n5,6,{PAYLOADS[1]}\n")
        (submission / "report.md").write_text(
            "# Report\n\n" + "\n\n".join(PAYLOADS) + "\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
        )
        (submission / "evil.svg").write_text(DRAWING)
        (submission / "figure.png").write_bytes(b"")
        Image.new("RGB", (40, 30), (1, 2, 3)).save(submission / "figure.png")
        write_transcript(
            [
                Step(step=1, kind="message", text=words),
                Step(
                    step=2,
                    kind="tool",
                    tool=words,
                    code=words,
                    output=words,
                    files_written=[words],
                    images_viewed=[words],
                ),
            ],
            folder / "transcript.jsonl",
        )
        (folder / "judgements").mkdir()
        decision = Decision(
            item=7, verdict="fail", rationale=words, by="model", citations=[Citation(file=words, quote=words)]
        )
        judgement = Judgement(
            digest="d",
            trial="t",
            task="cell_counting",
            judge=words,
            rubric_version=load_rubric().version,
            protocol_version="2",
            evidence_digest="e",
            decisions=[decision],
            made=datetime(2026, 1, 1, tzinfo=UTC),
        )
        (folder / "judgements" / "d.json").write_text(judgement.model_dump_json())
        (folder / "tags.json").write_text(json.dumps({"schema_version": 1, "tags": [{"tag": words, "why": words}]}))
        exchange = Exchange(
            number=1, at=0.5, method="POST", path="/v1/messages", protocol="messages", model=words, error=words
        )
        (folder / "relay.jsonl").write_text(exchange.model_dump_json() + "\n")
        hit = Access(step=2, how="fetch", target=words, kind="publication", hits=[words])
        (folder / "audit.json").write_text(Audit(steps=2, accesses=[hit]).model_dump_json())
        return next(row for row in load([tmp_path / "campaign"]) if row.repeat == repeat)

    return write


def _only(pages: dict[trial_page.RowKey, TrialPage]) -> str:
    (page,) = pages.values()
    return page.path.read_text()


def test_no_payload_runs(trial: Callable[..., Row], tmp_path: Path) -> None:
    page = _only(write_pages([trial()], tmp_path / "trials", TASKS))
    _assert_harmless(page)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "script-src" not in policy[1]
    assert "unsafe" not in policy[1]
    assert "1337" not in page  # no template of theirs was rendered


def test_everything_is_shown(trial: Callable[..., Row], tmp_path: Path) -> None:
    page = _only(write_pages([trial()], tmp_path / "trials", TASKS))
    for what in (
        "IF cell counting",
        "0.500",
        "Closing message",
        "Instruction",
        "2 step(s)",
        "end of stdout.log",
        "Rubric 1",
        STATEMENT,
        "1 request(s)",
        "The agent reached for the study",
        "USAGE the agent reports otherwise than metered: input_tokens +3",
    ):
        assert what in page, what
    assert "centroids_per_image" in page
    assert "the agent's figure figure.png" in page
    assert "the agent's drawing evil.svg" in page
    assert "evaluator" in page
    assert "The data of this trial are not on this machine" in page
    assert "<h1>Report</h1>" in page  # the agent's report is rendered


def test_contradictions_are_kept_beside_the_record(trial: Callable[..., Row], tmp_path: Path) -> None:
    row = trial()
    assert row.folder is not None
    (page,) = write_pages([row], tmp_path / "trials", TASKS).values()
    assert page.audit is not None
    assert stored_audit(row.folder) == page.audit


def test_unchanged_pages_stay_and_changed_ones_are_made_anew(trial: Callable[..., Row], tmp_path: Path) -> None:
    rows = [trial(1), trial(2)]
    pages = write_pages(rows, tmp_path / "trials", TASKS)
    for page in pages.values():
        page.path.write_text(page.path.read_text() + "<!-- mark -->")
    assert rows[1].folder is not None
    (rows[1].folder / "tags.json").write_text('{"tags": []}')
    again = write_pages(rows, tmp_path / "trials", TASKS)
    marked = ["<!-- mark -->" in page.path.read_text() for page in again.values()]
    assert marked == [True, False]
    assert 'rel="next"' in again[rows[0].key].path.read_text()
    write_pages(rows[:1], tmp_path / "trials", TASKS)
    assert len(list((tmp_path / "trials").glob("*.html"))) == 1  # the page of a trial that is gone goes too


def test_a_damaged_ledger_and_another_rubric_do_not_stop_a_page(trial: Callable[..., Row], tmp_path: Path) -> None:
    row = trial()
    assert row.folder is not None
    (row.folder / "relay.jsonl").write_text("no\nledger\n")
    (row.folder / "audit.json").write_text("no audit")
    path = row.folder / "judgements" / "d.json"
    path.write_text(path.read_text().replace(load_rubric().version, "0.1"))
    page = _only(write_pages([row], tmp_path / "t", TASKS))
    assert "relay.jsonl:1: is no line of a relay&#39;s ledger" in page
    assert "Rubric 0.1" in page
    assert STATEMENT not in page  # another rubric may say something else there


def test_the_middle_of_many_requests_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "relay.jsonl"
    one = {"at": 0, "method": "POST", "path": "/v1/responses", "protocol": "responses"}
    path.write_text("".join(json.dumps({**one, "number": number}) + "\n" for number in range(1, 501)))
    found = read_requests(path)
    assert found is not None
    assert [exchange.number for exchange in found.exchanges] == [*range(1, 101), *range(401, 501)]
    assert found.left_out == 300
    assert read_requests(tmp_path / "none") is None


def test_a_damaged_transcript_is_named(trial: Callable[..., Row], tmp_path: Path) -> None:
    row = trial()
    assert row.folder is not None
    (row.folder / "transcript.jsonl").write_text('{"step": 1}\n')
    assert "transcript.jsonl:1: is no step of a transcript" in _only(write_pages([row], tmp_path / "t", TASKS))


# --- sanitising -------------------------------------------------------------------------------------------------------


def test_drawings_lose_everything_that_runs_or_loads() -> None:
    address = svg_image(DRAWING)
    assert address is not None
    text = base64.b64decode(address.partition(",")[2]).decode()
    for word in (
        "script",
        "alert",
        "evil",
        "foreignObject",
        "onload",
        "animate",
        "<set",
        "javascript",
        "import",
        "ENTITY",
    ):
        assert word not in text, word
    root = ElementTree.fromstring(text)  # still a drawing
    assert [node.get("stroke") for node in root.iter() if node.get("stroke")] == ["#123456"]


@pytest.mark.parametrize("text", ["", "no drawing", "<html><body>x</body></html>", "<svg" + "x" * 500_000])
def test_what_is_no_drawing_is_not_shown(text: str) -> None:
    assert svg_image(text) is None


@pytest.mark.parametrize("payload", PAYLOADS)
def test_reports_lose_everything_that_runs_or_loads(payload: str) -> None:
    for tag, attributes in _Elements(markdown_html(f"text\n\n{payload}\n\n**bold** {payload}")).found:
        assert tag in ("p", "strong", "h2", "pre", "code", "hr", "em"), tag
        assert attributes == {}


# --- previews ---------------------------------------------------------------------------------------------------------


def test_labels_are_drawn_beside_the_truth_and_their_agreement(tmp_path: Path) -> None:
    masks = TASKS["histology_nuclei"].deliverables
    for side, shift in (("found", 0), ("truth", 10)):
        labels = np.zeros((60, 80), np.uint16)
        labels[10 + shift : 30 + shift, 10:30] = 1
        labels[10:20, 50:60] = 2
        (tmp_path / side).mkdir()
        tifffile.imwrite(tmp_path / side / "human_kidney_01.tif", labels)
    shown = look(tmp_path / "found", masks, tmp_path / "truth", None)
    ((item,),) = [panel.items for panel in shown.panels]
    assert item.found is not None
    assert item.truth is not None
    assert item.both is not None
    assert "2 labels" in item.found.alt
    assert "overlap 0.43" in item.both.alt  # (200 + 100) / (600 + 100)


def test_a_missing_and_a_broken_file_are_named(tmp_path: Path) -> None:
    masks = TASKS["histology_nuclei"].deliverables
    for side in ("found", "truth"):
        (tmp_path / side).mkdir()
    tifffile.imwrite(tmp_path / "truth" / "human_kidney_01.tif", np.ones((9, 9), np.uint16))
    tifffile.imwrite(tmp_path / "truth" / "human_kidney_02.tif", np.ones((9, 9), np.uint16))
    (tmp_path / "found" / "human_kidney_02.tif").write_bytes(b"II*\0garbage")
    first, second = look(tmp_path / "found", masks, tmp_path / "truth", None).panels[0].items
    assert first.note == "no such file in the submission"
    assert second.note.startswith("submission: ")


@pytest.mark.parametrize("slug", ["cell_counting", "oncogenic_puncta", "nfkb_translocation"])
def test_tables_are_drawn_and_their_heads_shown(slug: str, tmp_path: Path) -> None:
    deliverable = TASKS[slug].deliverables[0]
    name = deliverable.patterns[0].replace("*", "") if not deliverable.multiple else "0.csv"
    columns = list(deliverable.columns)
    rows = [
        ",".join(str(number + index) if index else f"c{number % 2}" for index in range(len(columns)))
        for number in range(20)
    ]
    if slug == "cell_counting":
        rows = [f"{number},{2 * number}" for number in range(20)]
    (tmp_path / name).write_text("\n".join([",".join(columns), *rows]) + "\n")
    ((item, *_), *_) = [panel.items for panel in look(tmp_path, TASKS[slug].deliverables, None, None).panels]
    assert item.found_head is not None
    assert item.found_head.total == 20
    assert len(item.found_head.rows) == 8
    assert item.both is not None


def test_a_bomb_of_a_figure_is_not_decoded(tmp_path: Path) -> None:
    Image.new("1", (8_000, 8_000)).save(tmp_path / "bomb.png")
    (tmp_path / "text.png").write_text("no picture")
    assert look(tmp_path, (), None, None).figures == []
