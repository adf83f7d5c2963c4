"""Published data come whole or not at all: against a stand-in for the hub, with the real client."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from biabench_plugin.cli.data import Bars
from biabench_plugin.data import cache as cache_module
from biabench_plugin.data import fetch as machinery
from biabench_plugin.data.cache import FIELDS, TaskStore
from biabench_plugin.data.hub import Hub
from biabench_plugin.datasets import Dataset, DatasetError
from biabench_plugin.taskspec import TaskSpec, load_tasks

ROOT = Path(__file__).resolve().parents[3]
TASKS = load_tasks(ROOT / "tasks")
COUNTING, PAINT, NFKB = (TASKS[slug] for slug in ("cell_counting", "dna_paint", "nfkb_translocation"))

pytestmark = pytest.mark.usefixtures("cache")


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.fixture
def two_tasks(hub: Any) -> Any:
    hub.offer(COUNTING.dataset_id, input={"0.tiff": b"image", "sub folder/1.tiff": b""}, evaluation={"0.csv": b"X,Y\n"})
    hub.offer(PAINT.dataset_id, input={"stack.tiff": noise(40_000)}, evaluation={"list.txt": b"frame x y intensity\n"})
    return hub


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def nothing_looks_complete(spec: TaskSpec, biabench: Any, only: tuple[str, ...] = ("evaluation", "input")) -> None:
    """Check that no part of the program takes a task for fetched."""
    assert not set(only) & set(TaskStore(spec).present())
    assert not Dataset("full").holds(spec)
    assert Dataset("full").locate(spec) is None
    assert biabench("where", spec.slug).exit_code == 1
    assert biabench("verify", spec.slug).exit_code == 1


# --- the way it should go ---------------------------------------------------------------------------------------------


def test_fetch_unpacks_what_the_archives_hold_and_keeps_licence_and_citation_beside_it(
    two_tasks: Any, biabench: Any
) -> None:
    done = biabench("fetch", "cell_counting", PAINT.dataset_id)
    assert done.exit_code == 0, done.output
    store = TaskStore(COUNTING)
    assert files(store.folder / "input") == {"0.tiff": b"image", "sub folder/1.tiff": b""}
    assert files(store.folder / "evaluation") == {"0.csv": b"X,Y\n"}
    notice = (store.folder / "NOTICE.txt").read_text()
    assert COUNTING.source.license in notice
    assert COUNTING.source.doi in notice
    receipt = store.receipt()
    assert receipt is not None
    assert (receipt.revision, receipt.license, len(receipt.commit or "")) == ("v1.0", "CC-BY-SA-4.0", 40)
    assert receipt.source == f"{two_tasks.endpoint}/datasets/BIABench/BIABench"
    for name in (COUNTING.slug, COUNTING.dataset_id):  # an agent may see the path of its input
        assert name not in str(store.folder)
    assert sorted(path.name for path in store.folder.parent.parent.glob("downloads/*.zip*[!k]")) == []
    assert "fetched" in biabench("list", "dna_paint").output


def test_licence_citation_and_size_are_shown_before_anything_is_transferred(two_tasks: Any, biabench: Any) -> None:
    shown = biabench("fetch", "cell_counting", "--dry-run")
    assert shown.exit_code == 0
    assert "CC-BY-SA-4.0" in shown.output
    assert f"Cite for cell_counting: {COUNTING.source.study}" in shown.output
    assert "2 archives" in shown.output
    assert two_tasks.asked_for("/store/") == []
    table = biabench("list").output
    for spec in TASKS.values():
        assert spec.dataset_id in table
        assert f"{spec.input_size_mb:,.1f}" in table


def test_offline_after_the_first_fetch(two_tasks: Any, biabench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert biabench("fetch", "cell_counting").exit_code == 0
    before = len(two_tasks.requests)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    for words in (("fetch", "cell_counting"), ("verify", "cell_counting"), ("where", "cell_counting"), ("list",)):
        assert biabench(*words).exit_code == 0, words
    assert Dataset.parse("full").locate(COUNTING) is not None
    assert len(two_tasks.requests) == before
    failed = biabench("fetch", "dna_paint")
    assert failed.exit_code == 1
    assert "check the network and HF_ENDPOINT" in failed.output


def test_one_cache_for_two_fetches_at_once(two_tasks: Any) -> None:
    two_tasks.offer(PAINT.dataset_id, input={"stack.tiff": noise(400_000)})
    two_tasks.slow_seconds = 0.01
    faults: list[str] = []

    def run() -> None:
        source = Hub("v1.0")
        jobs, missing = machinery.plan([PAINT], source, "v1.0", ("input",))
        assert len(jobs) == 1
        faults.extend(missing + machinery.fetch(jobs, source, Silent()))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    path = f"{PAINT.dataset_id}/input.zip"
    assert two_tasks.sent[path] == len(two_tasks.files[path])  # transferred once
    assert TaskStore(PAINT).present() == ("input",)


class Silent:
    def transferred(self, *_: object) -> None: ...
    def unpacking(self, *_: object) -> None: ...
    def unpacked(self, *_: object) -> None: ...
    def finished(self, *_: object) -> None: ...


def test_archives_come_side_by_side(two_tasks: Any, biabench: Any) -> None:
    for seed, task in ((0, COUNTING), (2, PAINT)):
        folders = {"input": {"a": noise(200_000, seed)}, "evaluation": {"b": noise(200_000, seed + 1)}}
        two_tasks.offer(task.dataset_id, **folders)
    two_tasks.slow_seconds = 0.02
    assert biabench("fetch", "cell_counting", "dna_paint", "--workers", 4).exit_code == 0
    assert two_tasks.most_together == 4


def test_only_one_folder_then_the_other(two_tasks: Any, biabench: Any) -> None:
    assert biabench("fetch", "cell_counting", "--only", "input").exit_code == 0
    assert TaskStore(COUNTING).present() == ("input",)
    assert "input only" in biabench("list", "cell_counting").output
    assert not Dataset("full").holds(COUNTING)
    assert biabench("where", "cell_counting", "--only", "input").output.strip().endswith("/input")
    assert biabench("where", "cell_counting").exit_code == 1
    assert biabench("fetch", "cell_counting").exit_code == 0
    assert TaskStore(COUNTING).present() == FIELDS
    sent = two_tasks.sent[f"{COUNTING.dataset_id}/input.zip"]
    assert sent == len(two_tasks.files[f"{COUNTING.dataset_id}/input.zip"])
    assert biabench("fetch", "--only", "truth").exit_code == 2


def test_a_task_without_published_truth_is_complete_without_it(two_tasks: Any, biabench: Any) -> None:
    two_tasks.offer(NFKB.dataset_id, input={"plate.bmp": b"B"})
    assert biabench("fetch", "nfkb_translocation").exit_code == 0
    assert TaskStore(NFKB).complete()
    asked = len(two_tasks.requests)
    assert biabench("fetch", "nfkb_translocation").exit_code == 0
    assert len(two_tasks.requests) == asked


def test_a_local_mirror_needs_no_hub(two_tasks: Any, biabench: Any, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    for path, content in two_tasks.files.items():
        (mirror / path).parent.mkdir(parents=True, exist_ok=True)
        (mirror / path).write_bytes(content)
    done = biabench("fetch", "cell_counting", "--from", mirror)
    assert done.exit_code == 0, done.output
    assert two_tasks.requests == []
    assert TaskStore(COUNTING).complete()
    assert (mirror / COUNTING.dataset_id / "input.zip").is_file()  # it stays the mirror's

    archive = mirror / PAINT.dataset_id / "input.zip"
    archive.write_bytes(archive.read_bytes()[:-1])
    failed = biabench("fetch", "dna_paint", "--from", mirror)
    assert failed.exit_code == 1
    assert "wrong checksum" in failed.output
    archive.unlink()
    assert "cannot be read" in biabench("fetch", "dna_paint", "--from", mirror).output
    (mirror / "manifest.json").unlink()
    assert "manifest.json: cannot be read" in biabench("fetch", "dna_paint", "--from", mirror).output
    assert "no such folder" in biabench("fetch", "dna_paint", "--from", tmp_path / "nowhere").output
    nothing_looks_complete(PAINT, biabench, ("input",))


def test_revisions_lie_apart(two_tasks: Any, biabench: Any) -> None:
    assert biabench("fetch", "cell_counting", "--revision", "main").exit_code == 0
    with pytest.raises(DatasetError, match=r"no published data of revision v1\.0"):
        Dataset.parse("full")
    assert Dataset.parse(None).kind == "demo"
    main = Dataset.parse("full:main")
    assert main.name == "full:main"
    found = main.locate(COUNTING)
    assert found is not None
    assert (found.kind, found.revision, found.opaque) == ("full", "main", True)


def test_remove(two_tasks: Any, biabench: Any) -> None:
    assert biabench("fetch", "cell_counting", "dna_paint").exit_code == 0
    assert "removed" in biabench("remove", "cell_counting").output
    assert not TaskStore(COUNTING).folder.exists()
    assert TaskStore(PAINT).complete()
    assert biabench("remove", input="n\n").exit_code == 1
    assert TaskStore(PAINT).complete()
    assert biabench("remove", "--yes").exit_code == 0
    assert not TaskStore(PAINT).folder.exists()


# --- the ways it goes wrong -------------------------------------------------------------------------------------------


def _wrong_checksum(hub: Any) -> None:
    path = f"{COUNTING.dataset_id}/input.zip"
    listed = hub.files["manifest.json"]
    hub.offer(COUNTING.dataset_id, input={"0.tiff": b"another image"})
    assert len(hub.files[path])
    hub.files["manifest.json"] = listed


def _missing_zip(hub: Any) -> None:
    del hub.files[f"{COUNTING.dataset_id}/input.zip"]


def _truncated(hub: Any) -> None:
    hub.short[f"{COUNTING.dataset_id}/input.zip"] = 60


def _cut_off(hub: Any) -> None:
    hub.cut_after[f"{COUNTING.dataset_id}/input.zip"] = 0


def _unlisted_task(hub: Any) -> None:
    listed = json.loads(hub.files["manifest.json"])
    del listed["tasks"][COUNTING.dataset_id]
    hub.files["manifest.json"] = json.dumps(listed).encode()


def _unlisted_input(hub: Any) -> None:
    listed = json.loads(hub.files["manifest.json"])
    del listed["tasks"][COUNTING.dataset_id]["input"]
    hub.files["manifest.json"] = json.dumps(listed).encode()


def _no_manifest(hub: Any) -> None:
    del hub.files["manifest.json"]


def _damaged_manifest(hub: Any) -> None:
    hub.files["manifest.json"] = b'{"tasks": {"x": {"input": {"zip_sha256": "12"}}}}'


def _unknown_revision(hub: Any) -> None:
    hub.revisions = ("v2.0",)


def _leaves_the_folder(hub: Any) -> None:
    hub.offer(COUNTING.dataset_id, input={"../../outside": b"x"})


@pytest.mark.usefixtures("instant_retries")
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (_wrong_checksum, "wrong checksum: manifest.json says SHA-256"),
        (_missing_zip, "input.zip is missing there"),
        (_truncated, "the transfer was truncated: 60 of"),
        (_cut_off, "cannot be fetched"),
        (_unlisted_task, "lists no task fluo-cell-counting-2d-cellfmcount"),
        (_unlisted_input, "the manifest lists no input archive, which the task needs"),
        (_no_manifest, "manifest.json is missing there"),
        (_damaged_manifest, "is not a manifest of the published data: tasks.x.input.zip_sha256"),
        (_unknown_revision, "unknown revision 'v1.0'"),
        (_leaves_the_folder, "has an absolute path or one that leaves the folder"),
    ],
)
def test_each_fault_is_one_clear_error_and_nothing_looks_complete(
    fault: Any, said: str, two_tasks: Any, biabench: Any
) -> None:
    fault(two_tasks)
    failed = biabench("fetch", "cell_counting")
    assert failed.exit_code == 1, failed.output
    errors = [line for line in failed.stderr.splitlines() if line]
    assert len(errors) == 1
    assert said in errors[0]
    assert "Traceback" not in failed.output
    nothing_looks_complete(COUNTING, biabench, ("input",))


def test_a_failure_leaves_other_tasks_alone_and_is_repaired_by_the_same_command(two_tasks: Any, biabench: Any) -> None:
    good = dict(two_tasks.files)
    _wrong_checksum(two_tasks)
    assert biabench("fetch", "cell_counting", "dna_paint").exit_code == 1
    assert TaskStore(PAINT).complete()
    assert TaskStore(COUNTING).present() == ("evaluation",)
    two_tasks.files = good
    assert biabench("fetch", "cell_counting", "dna_paint").exit_code == 0
    assert TaskStore(COUNTING).complete()


@pytest.mark.usefixtures("instant_retries")
def test_an_archive_shared_by_two_tasks_comes_once_at_a_time(two_tasks: Any, biabench: Any) -> None:
    for task in (COUNTING, PAINT):
        two_tasks.offer(task.dataset_id, input={"same": noise(50_000)})
    two_tasks.slow_seconds = 0.01
    assert biabench("fetch", "cell_counting", "dna_paint").exit_code == 0
    for task in (COUNTING, PAINT):
        assert files(TaskStore(task).folder / "input") == {"same": noise(50_000)}


@pytest.mark.usefixtures("instant_retries")
def test_a_connection_that_breaks_again_and_again_is_taken_up_where_it_broke(two_tasks: Any, biabench: Any) -> None:
    path = f"{PAINT.dataset_id}/input.zip"
    two_tasks.offer(PAINT.dataset_id, input={"stack.tiff": noise(300_000)})
    two_tasks.cut_after[path] = 90_000
    assert biabench("fetch", "dna_paint").exit_code == 0
    ranges = [wanted for method, _, wanted in two_tasks.asked_for("/store/") if method == "GET" and wanted]
    assert len(ranges) >= 3
    assert two_tasks.sent[path] <= 1.5 * len(two_tasks.files[path])  # what was not yet on disk comes again


SMALL_CHUNKS = """
from huggingface_hub import constants
constants.DOWNLOAD_CHUNK_SIZE = 1 << 16  # 10 MB otherwise
from biabench_plugin.cli import main
main()
"""


def test_a_killed_fetch_looks_like_nothing_and_goes_on_where_it_was(two_tasks: Any, biabench: Any, cache: Path) -> None:
    path = f"{PAINT.dataset_id}/input.zip"
    two_tasks.offer(PAINT.dataset_id, input={"stack.tiff": noise(2_000_000)})
    two_tasks.slow_seconds = 0.02
    child = subprocess.Popen(
        [sys.executable, "-c", SMALL_CHUNKS, "data", "fetch", "dna_paint", "--only", "input"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while two_tasks.sent[path] < 700_000 and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    nothing_looks_complete(PAINT, biabench, ("input",))
    with pytest.raises(DatasetError, match="no published data"):
        Dataset.parse("full")
    (part,) = (cache / "full" / "downloads").glob("*.part")
    have = part.stat().st_size
    assert have > 0

    two_tasks.slow_seconds = 0.0
    two_tasks.requests.clear()
    done = biabench("fetch", "dna_paint", "--only", "input")
    assert done.exit_code == 0, done.output
    assert [wanted for _, _, wanted in two_tasks.asked_for("/store/")] == [f"bytes={have}-"]
    assert files(TaskStore(PAINT).folder / "input") == {"stack.tiff": noise(2_000_000)}


def test_ctrl_c_stops_at_once_and_keeps_what_came(two_tasks: Any, cache: Path) -> None:
    path = f"{PAINT.dataset_id}/input.zip"
    two_tasks.offer(PAINT.dataset_id, input={"stack.tiff": noise(2_000_000)})
    two_tasks.slow_seconds = 0.05
    child = subprocess.Popen(
        [sys.executable, "-c", SMALL_CHUNKS, "data", "fetch", "dna_paint", "--only", "input"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while two_tasks.sent[path] < 300_000 and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=30)
    assert child.returncode == 130
    assert said.splitlines()[-1] == "biabench: stopped; the same command goes on where it was"
    assert two_tasks.sent[path] < 1_500_000
    (part,) = (cache / "full" / "downloads").glob("*.part")
    assert part.stat().st_size > 0


def test_bars_follow_transfer_and_unpacking(two_tasks: Any) -> None:
    source = Hub("v1.0")
    jobs, _ = machinery.plan([COUNTING], source, "v1.0", FIELDS)
    screen = io.StringIO()
    with Bars(Console(file=screen, force_terminal=True, width=120)) as bars:
        assert machinery.fetch(jobs, source, bars) == []
        bars.finished(jobs[0], "some fault")
    assert "cell_counting input, unpacking" in screen.getvalue()
    assert f"{COUNTING.dataset_id}/evaluation.zip: done" in screen.getvalue()
    assert "FAILED" in screen.getvalue()


def test_too_little_space_is_said_before_anything_is_transferred(
    two_tasks: Any, biabench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 3 * 10**8, 3 * 10**8))
    failed = biabench("fetch", "cell_counting")
    assert failed.exit_code == 1
    assert "0.3 GB are needed, 0.3 GB are free" in failed.stderr
    assert "BIABENCH_CACHE" in failed.stderr
    assert two_tasks.asked_for("/store/") == []


@pytest.mark.parametrize("step", range(1, 7))
def test_a_crash_at_any_step_of_the_switch_leaves_nothing_that_looks_complete(
    step: int, two_tasks: Any, biabench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is there already, in another version; the program dies before the n-th change of a name."""
    assert biabench("fetch", "cell_counting").exit_code == 0
    store = TaskStore(COUNTING)
    old = store.receipt()
    assert old is not None
    staged = store.staging("input")
    (staged / "0.tiff").write_bytes(b"newer")
    entry = old.fields["input"].model_copy(
        update={
            "zip_sha256": "0" * 64,
            "files": {"0.tiff": cache_module.FileEntry(bytes=5, sha256=hashlib.sha256(b"newer").hexdigest())},
        }
    )
    steps = 0

    def counted(method: Any) -> Any:
        def call(*words: Any, **more: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == step:
                raise KeyboardInterrupt
            return method(*words, **more)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", counted(Path.rename))
        patch.setattr(cache_module, "write_durably", counted(cache_module.write_durably))
        with store.locked("input"), pytest.raises(KeyboardInterrupt):
            store.switch("input", staged, entry, source="test", commit=None)
    receipt = store.receipt()
    assert receipt is not None
    assert store.present() in ((*FIELDS,), ("evaluation",))
    if "input" in store.present():  # then it is the old one, whole
        assert receipt.fields["input"].zip_sha256 == old.fields["input"].zip_sha256
        assert list(machinery.verify(store)) == []
    assert biabench("fetch", "cell_counting").exit_code == 0
    assert list(machinery.verify(store)) == []
    assert (
        sorted(path.name for path in store.folder.iterdir() if not path.name.startswith(".dataset"))
        == [
            "NOTICE.txt",
            "dataset.json",
            "evaluation",
            "input",
        ]
        or step <= 2
    )


# --- verify -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "0.tiff").write_bytes(b"imagE"), "input/0.tiff: expected SHA-256"),
        (lambda folder: (folder / "0.tiff").write_bytes(b"im"), "input/0.tiff: expected 5 bytes, found 2"),
        (lambda folder: (folder / "0.tiff").unlink(), "input/0.tiff: is missing"),
        (lambda folder: (folder / "9.tiff").write_bytes(b""), "input/9.tiff: was not in the archive"),
    ],
)
def test_verify_finds_every_change(damage: Any, said: str, two_tasks: Any, biabench: Any) -> None:
    assert biabench("fetch", "cell_counting", "dna_paint").exit_code == 0
    assert biabench("verify").exit_code == 0
    folder = TaskStore(COUNTING).folder / "input"
    (folder / "0.tiff").chmod(0o644)
    damage(folder)
    found = biabench("verify")
    assert found.exit_code == 1
    assert said in found.output
    assert "ok    dna_paint" in found.output
    assert biabench("verify", "cell_counting", "--only", "evaluation").exit_code == 0


def test_a_damaged_receipt_is_named(two_tasks: Any, biabench: Any) -> None:
    assert biabench("fetch", "cell_counting").exit_code == 0
    path = TaskStore(COUNTING).folder / "dataset.json"
    path.write_text("{")
    for words in (("verify",), ("where", "cell_counting"), ("list",), ("fetch", "cell_counting")):
        failed = biabench(*words)
        assert failed.exit_code == 1, words
        assert "dataset.json: is damaged" in failed.output
    with pytest.raises(DatasetError, match="is damaged"):
        Dataset("full").locate(COUNTING)
    assert biabench("remove", "cell_counting").exit_code == 0
    assert biabench("fetch", "cell_counting").exit_code == 0


def test_unknown_task_is_misuse(biabench: Any) -> None:
    failed = biabench("fetch", "nonsense")
    assert failed.exit_code == 2
    assert "unknown task 'nonsense'" in failed.output
