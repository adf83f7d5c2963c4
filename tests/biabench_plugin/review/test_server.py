"""The server answers on loopback, to a token, from the copy alone; what agents wrote cannot run."""

from __future__ import annotations

import http.client
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from biabench_plugin.review.answers import AnswerStore
from biabench_plugin.review.model import ANSWERS, REVIEW_FILE, ReviewError, read_answers
from biabench_plugin.review.server import HOST, ReviewServer


class Client:
    """Speak HTTP to a server; paths go out as they are written."""

    def __init__(self, server: ReviewServer) -> None:
        self.server = server
        self.cookie = f"biabench_review_{server.port}={server.token}"

    def ask(
        self, path: str, method: str = "GET", body: object = None, **headers: str | None
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(HOST, self.server.port, timeout=10)
        sent: dict[str, str | None] = {"Cookie": self.cookie, "Content-Type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(
                method,
                path,
                None if body is None else json.dumps(body),
                {name: value for name, value in sent.items() if value is not None},
            )
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        status, _, body = self.ask(path)
        assert status == 200, body
        return json.loads(body)

    def answer(self, run: str, item: int, answer: str | None = "yes", **more: Any) -> tuple[int, Any]:
        body = {"reviewer": "kim", "run": run, "item": item, "answer": answer, **more}
        status, _, reply = self.ask("/answer", "PUT", body)
        return status, json.loads(reply)


@pytest.fixture
def client(prepared) -> Iterator[Client]:
    with ReviewServer(prepared.copy) as server:
        yield Client(server)


def test_it_listens_on_loopback_only(client: Client) -> None:
    address = client.server._server.socket.getsockname()
    assert address[0] == "127.0.0.1"
    assert len(client.server.token) >= 32


def test_the_printed_address_lets_in_and_nothing_else_does(client: Client) -> None:
    status, headers, _ = client.ask(client.server.url.removeprefix(client.server.origin), Cookie=None)
    assert status == 303
    assert headers["location"] == "/"
    assert "HttpOnly" in headers["set-cookie"]
    assert "SameSite=Strict" in headers["set-cookie"]
    for path in ("/", "/review", "/page.js", "/answers?reviewer=kim", "/text/R01/1", "/image/R01/9"):
        assert client.ask(path, Cookie=None)[0] == 403, path
        assert client.ask(path, Cookie=client.cookie[:-1] + "~")[0] == 403, path
    assert client.ask("/?token=wrong", Cookie=None)[0] == 403
    assert client.ask("/?token=", Cookie=None)[0] == 403
    assert client.ask("/answer", "PUT", {"reviewer": "kim"}, Cookie=None)[0] == 403


def test_a_foreign_page_cannot_speak_through_the_browser(client: Client) -> None:
    assert client.ask("/review", Host="evil.example")[0] == 421
    body = {"reviewer": "kim", "run": "R01", "item": 1, "answer": "yes"}
    assert client.ask("/answer", "PUT", body, Origin="http://evil.example")[0] == 403
    assert client.ask("/answer", "PUT", body, Content_Type="text/plain")[0] == 404
    assert client.ask("/answer", "PUT", body, Origin=client.server.origin)[0] == 200
    assert "access-control-allow-origin" not in client.ask("/review")[1]


@pytest.mark.parametrize(
    "path",
    [
        "/../key.json",
        "/text/R01/../../../key.json",
        "/text/R01/%2e%2e%2f%2e%2e%2fkey.json",
        "/text/../review.json/1",
        "/text/R01/1/../../../../key.json",
        "//etc/passwd",
        "/runs/R01/1.txt",
        "/review.json",
        "/answers/kim.json",
        "/text/R99/1",
        "/text/R01/99999",
        "/text/R01/-1",
        "/image/R01/1",
        "/page.py",
        "/server.py",
    ],
)
def test_no_path_leads_out_of_the_copy(client: Client, path: str) -> None:
    status, _, body = client.ask(path)
    assert status == 404, body
    assert b"seed" not in body


def test_a_manifest_that_points_elsewhere_is_refused(prepared) -> None:
    path = prepared.copy / REVIEW_FILE
    text = path.read_text()
    for evil in ("../key.json", "/etc/passwd", "runs/R01/../../../key.json", "runs/R01/1.html"):
        path.write_text(text.replace('"runs/R01/1.txt"', json.dumps(evil), 1))
        with pytest.raises(ReviewError, match=r"review\.json.*stored"):
            ReviewServer(prepared.copy)


def test_a_file_replaced_by_a_link_or_pipe_is_not_read(prepared, client: Client) -> None:
    first = prepared.copy / "runs" / "R01" / "1.txt"
    assert client.ask("/text/R01/1")[0] == 200
    first.unlink()
    first.symlink_to(prepared.folder / "key.json")
    assert client.ask("/text/R01/1")[0] == 404
    first.unlink()
    os.mkfifo(first)
    assert client.ask("/text/R01/1")[0] == 404
    (prepared.copy / "runs" / "R02").rename(prepared.copy / "runs" / "elsewhere")
    (prepared.copy / "runs" / "R02").symlink_to(prepared.copy / "runs" / "elsewhere")
    assert client.ask("/text/R02/1")[0] == 404


def test_every_answer_forbids_what_it_does_not_need(prepared, client: Client) -> None:
    run = prepared.id_of("codex")
    for path in ("/", "/review", f"/text/{run}/1", f"/image/{run}/{prepared.number(run, 'plot.svg')}"):
        headers = client.ask(path)[1]
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe-inline" not in headers["content-security-policy"].partition("script-src")[2].partition(";")[0]
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"


def test_nothing_from_an_agent_is_sent_as_a_page(prepared, client: Client) -> None:
    run = prepared.id_of("codex")
    kinds = set()
    for file in prepared.review.run(run).files:
        if file.stored is None:
            assert client.ask(f"/text/{run}/{file.number}")[0] == 404
            continue
        for how in ("text", "table", "image"):
            status, headers, _ = client.ask(f"/{how}/{run}/{file.number}")
            if status == 200:
                kinds.add(headers["content-type"])
                assert "sandbox" in headers["content-security-policy"]
    assert kinds == {"application/json", "image/png", "image/svg+xml"}


def test_text_and_tables_come_in_parts(prepared, client: Client) -> None:
    run = prepared.id_of("codex")
    table = prepared.number(run, "0.csv")
    first = client.json(f"/table/{run}/{table}")
    assert first["rows"][:2] == [["X", "Y"], ["0", "<b>0</b>"]]
    assert (len(first["rows"]), first["total"], first["columns"]) == (200, 451, 2)
    last = client.json(f"/table/{run}/{table}?start=400")
    assert last["rows"][-1] == ["449", "<b>449</b>"]
    page = client.json(f"/text/{run}/{prepared.number(run, 'report.html')}")
    assert "<script>" in page["text"]
    assert client.ask(f"/text/{run}/{table}?start=-5")[0] == 400
    assert client.json(f"/text/{run}/{table}?start=999999")["text"] == ""


def test_answers_are_saved_at_once_and_come_back(prepared, client: Client) -> None:
    assert client.answer("R01", 2, "yes", note="clear")[0] == 200
    assert client.answer("R01", 3, "skip", reason="does_not_apply")[0] == 200
    assert client.answer("R02", 1, "no", reason="cannot_tell")[0] == 200
    stored = read_answers(prepared.copy / ANSWERS / "kim.json")
    assert stored.reviewer == "kim"
    assert (stored.answers["R01"][2].answer, stored.answers["R01"][2].note) == ("yes", "clear")
    assert stored.answers["R01"][3].reason == "does_not_apply"
    assert stored.answers["R02"][1].reason is None  # only a skip has one
    assert client.answer("R01", 2, None, note="on second thought")[0] == 200
    again = client.json("/answers?reviewer=kim")["answers"]
    assert again["R01"]["2"]["answer"] is None
    assert again["R01"]["2"]["note"] == "on second thought"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"run": "R99", "item": 1}, 400),
        ({"run": "R01", "item": 77}, 400),
        ({"run": "../key", "item": 1}, 400),
        ({"run": "R01", "item": 1, "answer": "maybe"}, 400),
        ({"run": "R01", "item": 1, "note": "x" * 10_001}, 400),
        ({"run": "R01", "item": 1, "note": "x" * 70_000}, 413),
        ({"run": "R01", "item": 1, "reviewer": "../../key"}, 400),
        ({"run": "R01", "item": 1, "reviewer": ""}, 400),
        ({"run": "R01", "item": 1, "reviewer": "a/b"}, 400),
        ({"run": "R01", "item": 1, "extra": 1}, 400),
    ],
)
def test_bad_answers_are_refused_and_nothing_is_written(
    prepared, client: Client, body: dict[str, Any], status: int
) -> None:
    assert client.ask("/answer", "PUT", {"reviewer": "kim", "answer": "yes", **body})[0] == status
    assert not list(prepared.copy.glob(f"{ANSWERS}/*.json"))
    assert {path.name for path in prepared.folder.iterdir()} == {"copy", "key.json"}


def test_reviewers_do_not_see_or_change_each_others_answers(prepared, client: Client) -> None:
    client.answer("R01", 1, "yes", reviewer="kim")
    client.answer("R01", 1, "no", reviewer="Sam Lee")
    assert client.json("/answers?reviewer=kim")["answers"]["R01"]["1"]["answer"] == "yes"
    assert client.json("/answers?reviewer=Sam%20Lee")["answers"]["R01"]["1"]["answer"] == "no"
    assert client.json("/answers?reviewer=new")["answers"] == {}
    assert "kim" not in json.dumps(client.json("/review"))
    store = AnswerStore(prepared.copy, prepared.review)
    assert [one.reviewer for one in store.everybody()] == ["kim", "Sam Lee"]


def test_two_processes_lose_no_answer_of_one_reviewer(prepared) -> None:
    """Each thread has a store of its own, as another server on the same copy would."""
    run = prepared.review.runs[0]

    def work(item: int) -> None:
        store = AnswerStore(prepared.copy, prepared.review)
        for _ in range(5):
            store.give("kim", run.id, item, "yes", None, "")

    threads = [threading.Thread(target=work, args=(item,)) for item in run.items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(AnswerStore(prepared.copy, prepared.review).read("kim").answers[run.id]) == set(run.items)


def test_answers_to_another_review_or_damaged_ones_are_named_and_kept(prepared, client: Client) -> None:
    client.answer("R01", 1)
    path = prepared.copy / ANSWERS / "kim.json"
    path.write_text(path.read_text().replace(prepared.review.id, "0" * 16))
    status, reply = client.answer("R01", 2)
    assert status == 409
    assert "kim.json" in reply["error"]
    assert "0" * 16 in path.read_text()
    path.write_text("{")
    assert client.ask("/answers?reviewer=kim")[0] == 409
    assert path.read_text() == "{"


def test_a_copy_without_a_description_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReviewError, match=r"review\.json: cannot be read"):
        ReviewServer(tmp_path)
