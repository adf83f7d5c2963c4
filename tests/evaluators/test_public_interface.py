"""The package from outside: cheap to import, clear about wrong parameters, six decimals, replay as a command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evaluators
from evaluators import Content, Deliverable, OutcomeSpec, TruthError, check_parameters, evaluate, replay_main
from evaluators.evaluation import evaluator
from evaluators.outcome.aggregate import bootstrap_interval, harmonic_mean
from evaluators.outcome.parameters import PARAMETERS

Desk = Any
ROOT = Path(__file__).resolve().parents[2]


def run_python(code: str) -> str:
    """Run code in a fresh interpreter."""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.strip()


def test_importing_and_checking_parameters_loads_nothing_heavy(hela: Desk) -> None:
    spec = hela.outcome.model_dump_json()
    deliverables = "[" + ",".join(one.model_dump_json() for one in hela.deliverables) + "]"
    code = (
        "import json, evaluators as e; "
        f"e.check_parameters(e.OutcomeSpec.model_validate_json({spec!r}), "
        f"[e.Deliverable.model_validate(one) for one in json.loads({deliverables!r})]); "
        "print([name for name in ('numpy', 'scipy', 'skimage', 'tifffile', 'pytest') if name in sys.modules])"
    )
    assert run_python(code) == "[]"


def test_scoring_needs_no_pytest(histology: Desk) -> None:
    code = (
        "import evaluators.bounded, evaluators.bounded_server, evaluators.replay_main; "
        "evaluators.bounded_server._load(); "
        "print([name for name in sys.modules if name.split('.')[0] in ('pytest', '_pytest', 'biabench_plugin')])"
    )
    assert run_python(code) == "[]"


def test_every_public_name_exists() -> None:
    for name in evaluators.__all__:
        assert getattr(evaluators, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        getattr(evaluators, "nothing")  # noqa: B009


def test_every_kind_has_version_score_and_replay() -> None:
    for kind in PARAMETERS:
        module = evaluator(kind)
        assert isinstance(module.VERSION, str)
        assert callable(module.score)
        assert callable(module.replay)


MASKS = Deliverable(
    id="masks",
    patterns=("*.tif",),
    format="TIFF",
    content=Content.LABEL_IMAGE,
    multiple=True,
    description="labels of nuclei",
)


@pytest.mark.parametrize(
    ("kind", "parameters", "words"),
    [
        ("segmentation", {}, "unknown outcome kind 'segmentation'; expected one of"),
        ("instance_segmentation", {}, "compartments: Field required"),
        (
            "instance_segmentation",
            {"compartments": {"a": "masks"}, "primary": "dise"},
            "primary: Input should be 'dice'",
        ),
        ("instance_segmentation", {"compartments": {"a": "other"}}, "no deliverable 'other'; the task has masks"),
        (
            "instance_segmentation",
            {"compartments": {"a": "masks"}, "iou_threshold": 0.5},
            "iou_threshold: Extra inputs",
        ),
        ("instance_segmentation", {"compartments": {"a": "masks"}, "linked_ids": ["a", "b"]}, "unknown compartment b"),
        ("instance_segmentation", {"compartments": {"a": "masks"}, "linked_ids": ["a", "a"]}, "one compartment twice"),
        ("instance_segmentation", {"compartments": {"a": "masks", "b": "masks"}}, "share a deliverable"),
        ("cell_counting", {"points": "masks"}, "holds label_image, expected table"),
        ("cell_counting", {"distance_px": -1}, "distance_px"),
        ("cell_tracking", {"seg_weight": 0.9}, "add up to 1.4"),
    ],
)
def test_wrong_parameters_are_named(kind: str, parameters: dict[str, Any], words: str) -> None:
    """Published: a typo in the primary metric scored 0, and a threshold that was set had no effect."""
    with pytest.raises(ValueError, match="outcome") as caught:
        check_parameters(OutcomeSpec(kind=kind, parameters=parameters), [MASKS])
    assert words in str(caught.value)


def test_what_decides_the_score_must_be_required() -> None:
    optional = MASKS.model_copy(update={"required": False})
    with pytest.raises(ValueError, match="must be required"):
        check_parameters(
            OutcomeSpec(kind="instance_segmentation", parameters={"compartments": {"a": "masks"}}), [optional]
        )


@pytest.mark.parametrize("slug", ["hela_segmentation", "histology_nuclei", "cell_counting", "bacteria_tracking"])
def test_the_tasks_pass_the_check(slug: str, request: pytest.FixtureRequest) -> None:
    fixture = {"hela_segmentation": "hela", "histology_nuclei": "histology", "cell_counting": "counting"}
    desk = request.getfixturevalue(fixture.get(slug, "tracking"))
    check_parameters(desk.outcome, desk.deliverables)


def test_scores_have_six_decimals_and_metrics_all(histology: Desk) -> None:
    histology.replay()
    path = histology.output / "human_kidney_01.tif"
    import tifffile

    histology.write(path.name, np.roll(tifffile.imread(path), 1, axis=0))
    score = histology.score()
    assert score.outcome == round(score.metrics["dice"], 6)
    assert score.outcome != score.metrics["dice"]
    assert score.strict == round(score.strict, 6)
    assert score.parameters["primary"] == "dice"
    assert (score.evaluator, score.evaluator_version) == ("instance_segmentation", "1")


def test_a_missing_truth_folder_is_an_error_even_for_an_empty_submission(histology: Desk, tmp_path: Path) -> None:
    with pytest.raises(TruthError, match="nowhere"):
        evaluate(histology.outcome, histology.deliverables, histology.output, tmp_path / "nowhere", None)
    with pytest.raises(TruthError, match="nowhere"):
        evaluate(histology.outcome, histology.deliverables, histology.output, histology.truth, tmp_path / "nowhere")


def test_replay_as_a_command(counting: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        *("--task-dir", str(ROOT / "tasks" / "cell_counting")),
        *("--truth", str(counting.truth)),
        *("--input", str(counting.input)),
        *("--output", str(counting.output)),
    ]
    assert replay_main.main(arguments) == 0
    assert counting.score().outcome == 1.0
    (counting.truth / "3.csv").unlink()
    with pytest.raises(SystemExit) as ended:
        replay_main.main(arguments)
    assert ended.value.code == 3
    assert "input image 3" in capsys.readouterr().err


def test_harmonic_mean() -> None:
    assert harmonic_mean([1.0, 1.0]) == 1.0
    assert harmonic_mean([1.0, 0.0]) == 0.0
    assert harmonic_mean([0.25]) == 0.25
    almost = 1.0 - 2.0**-53
    assert all(harmonic_mean([almost] * parts) <= almost for parts in range(1, 20))  # never above its parts
    assert harmonic_mean([1.0 + 2.0**-52, 1.0 + 2.0**-52]) == 1.0  # nor above 1 where rounding lifted a part
    assert harmonic_mean([1.0, 0.5]) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="at least one"):
        harmonic_mean([])


def test_bootstrap_interval() -> None:
    assert bootstrap_interval([0.5]) == (0.5, 0.5)
    values = np.random.default_rng(0).random(200)
    low, high = bootstrap_interval(values)
    error = values.std() / len(values) ** 0.5
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.2 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.2 * error)
    assert bootstrap_interval(values) == (low, high)
    narrow = bootstrap_interval(values, level=0.5)
    assert low < narrow[0] < narrow[1] < high
    with pytest.raises(ValueError, match="at least one"):
        bootstrap_interval([])
