"""Scoring in a bounded child: the same scores, and a score whatever becomes of the child."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evaluators import Limits, TruthError, bounded, evaluate_bounded, warm_up
from evaluators.model import OutcomeScore

Desk = Any
ROOT = Path(__file__).resolve().parents[2]


def scored(desk: Desk, limits: Limits | None = None) -> OutcomeScore:
    return evaluate_bounded(desk.outcome, desk.deliverables, desk.output, desk.truth, desk.input, limits)


@pytest.fixture(scope="module", autouse=True)
def _close() -> Iterator[None]:
    yield
    if bounded._current is not None:
        bounded._current.close()
        bounded._current = None


def test_same_score_as_in_this_process(hela: Desk, counting: Desk, tracking: Desk) -> None:
    for desk in (hela, counting, tracking):
        desk.replay()
        assert scored(desk) == desk.score()


def test_relative_paths(counting: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    counting.replay()
    monkeypatch.chdir(counting.folder)
    score = evaluate_bounded(counting.outcome, counting.deliverables, Path("output"), Path("evaluation"), Path("input"))
    assert score.outcome == 1.0


def test_truth_errors_and_wrong_parameters_come_through(counting: Desk) -> None:
    (counting.truth / "3.csv").unlink()
    with pytest.raises(TruthError, match="input image 3"):
        scored(counting)
    counting.outcome = counting.outcome.model_copy(update={"kind": "nothing"})
    with pytest.raises(ValueError, match="unknown outcome kind"):
        scored(counting)


def test_over_memory_is_a_score(counting: Desk) -> None:
    counting.replay()
    score = scored(counting, Limits(memory_bytes=1 << 20))
    assert (score.outcome, score.strict) == (0.0, 0.0)
    assert {problem.code for problem in score.problems} <= {"over_memory", "evaluator_failed"}
    assert score.problems
    assert score.evaluator == "cell_counting"
    assert score.parameters["distance_px"] == 10.0
    assert scored(counting).outcome == 1.0


def test_over_time_is_a_score_and_the_child_is_dead(counting: Desk) -> None:
    counting.replay()
    server = bounded._server()
    score = scored(counting, Limits(seconds=0.0))
    assert (score.outcome, score.strict) == (0.0, 0.0)
    assert [problem.code for problem in score.problems] == ["over_time"]
    assert children_gone(server._process.pid)
    assert scored(counting).outcome == 1.0


def children_gone(pid: int) -> bool:
    """Wait until a process has no child left."""
    until = time.monotonic() + 20
    listing = Path(f"/proc/{pid}/task/{pid}/children")
    while listing.read_text().strip():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def test_a_child_that_dies_is_a_score(counting: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill the child as soon as it has told its number, as the kernel does when memory runs out."""
    counting.replay()
    original = bounded._Child.__init__

    def killed(self: bounded._Child, pid: int) -> None:
        original(self, pid)
        self.kill()

    warm_up()
    monkeypatch.setattr(bounded._Child, "__init__", killed)
    score = scored(counting)
    assert score.outcome == 0.0
    assert [problem.code for problem in score.problems] == ["evaluator_failed"]
    assert not score.delivered  # nobody was left to look
    monkeypatch.undo()
    assert scored(counting).outcome == 1.0


def test_an_evaluator_that_raises_is_a_score_without_traceback(counting: Desk, tmp_path: Path) -> None:
    """A server whose evaluator is broken stands for a fault of ours that a hostile file finds."""
    counting.replay()
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Breaker:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'evaluators.bounded_server':\n"
        "            import evaluators.outcome.cell_counting as kind\n"
        "            def score(*arguments):\n"
        "                raise KeyError('a\\nb')\n"
        "            kind.score = score\n"
        "sys.meta_path.insert(0, Breaker())\n"
    )
    patched = pytest.MonkeyPatch()
    try:
        patched.setenv("PYTHONPATH", str(tmp_path))
        patched.setattr(bounded, "_current", None)
        score = scored(counting)
        assert bounded._current is not None
        bounded._current.close()
    finally:
        patched.undo()
    assert (score.outcome, score.strict, score.delivered) == (0.0, 0.0, True)
    (problem,) = score.problems
    assert problem.code == "evaluator_failed"
    assert "KeyError" in problem.message
    assert "evaluation.py:" in problem.message
    assert "\n" not in problem.message


def test_a_server_that_was_killed_is_started_again(counting: Desk) -> None:
    counting.replay()
    warm_up()
    assert bounded._current is not None
    bounded._current._process.kill()
    bounded._current._process.wait()
    assert scored(counting).outcome == 1.0


def test_many_threads_share_one_server(counting: Desk) -> None:
    counting.replay()
    warm_up()
    server = bounded._current
    scores: list[float] = []
    threads = [threading.Thread(target=lambda: scores.append(scored(counting).outcome)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert scores == [1.0] * 4
    assert bounded._current is server


def test_a_fork_of_the_caller_starts_its_own_server(counting: Desk) -> None:
    counting.replay()
    warm_up()
    server = bounded._current
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if scored(counting).outcome == 1.0 and bounded._current is not server else 2
            bounded._close()
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert scored(counting).outcome == 1.0
    assert bounded._current is server


def test_the_callers_main_module_is_not_run_again(counting: Desk, tmp_path: Path) -> None:
    counting.replay()
    script = tmp_path / "main.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from pathlib import Path\n"
        "print('main runs', flush=True)\n"
        "import evaluators\n"
        f"outcome = evaluators.OutcomeSpec.model_validate_json({counting.outcome.model_dump_json()!r})\n"
        f"asked = [evaluators.Deliverable.model_validate_json(one) for one in "
        f"{[one.model_dump_json() for one in counting.deliverables]!r}]\n"
        f"folder = Path({str(counting.folder)!r})\n"
        "for _ in range(2):\n"
        "    score = evaluators.evaluate_bounded("
        "outcome, asked, folder / 'output', folder / 'evaluation', folder / 'input')\n"
        "    print(score.outcome)\n"
        "print(evaluators.bounded._current._process.pid)\n"
    )
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    *lines, pid = ended.stdout.split("\n")[:-1]
    assert lines == ["main runs", "1.0", "1.0"]
    assert not ended.stderr
    assert not Path(f"/proc/{pid}").exists()  # the server ended with its owner
