"""Instance segmentation: the published weaknesses of loading and completeness, each with what is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tifffile

from evaluators import OutcomeScore, TruthError
from evaluators.outcome import instance_segmentation

Codes = Callable[[OutcomeScore], set[str]]
Desk = Any  # the classes of the fixtures live in conftest.py
Write = Callable[..., Any]


def replayed(desk: Desk) -> Desk:
    desk.replay()
    return desk


def labels(desk: Desk, path: str) -> np.ndarray[Any, Any]:
    return tifffile.imread(desk.output / path)


def test_replay_is_perfect(hela: Desk, histology: Desk) -> None:
    for desk in (hela, histology):
        score = replayed(desk).score()
        assert (score.outcome, score.strict, score.delivered, score.problems) == (1.0, 1.0, True, [])
        assert all(item["status"] == "scored" for item in score.items)
        assert score.metrics["boundary_f1"] == score.metrics["ap_95"] == score.metrics["aji"] == 1.0


def test_replay_follows_the_contract(hela: Desk, histology: Desk) -> None:
    replayed(hela)
    replayed(histology)
    assert (
        sorted(path.parent.name for path in hela.output.rglob("*.tif"))
        == ["cytoplasm_masks"] * 3 + ["nuclei_masks"] * 3
    )
    assert (histology.output / "human_kidney_01.tif").is_file()
    assert labels(hela, "nuclei_masks/2408.tif").dtype == np.uint16


def test_an_empty_folder_scores_zero(hela: Desk, codes: Codes) -> None:
    score = hela.score()
    assert (score.outcome, score.strict, score.delivered) == (0.0, 0.0, False)
    assert codes(score) == {"missing_deliverable"}
    assert len(score.items) == 6


def test_a_flat_copy_of_one_compartment_stands_for_none(hela: Desk, codes: Codes) -> None:
    """Published: any .tif satisfied both deliverables."""
    hela.write("2408.tif", labels_of(hela, "nuclei", 2408))
    score = hela.score()
    assert score.outcome == 0.0
    assert not score.delivered
    assert codes(score) == {"missing_deliverable"}


def labels_of(desk: Desk, compartment: str, number: int) -> np.ndarray[Any, Any]:
    return tifffile.imread(desk.truth / f"{compartment}_masks" / f"{number}.tif")


def test_nuclei_alone_are_worth_their_half(hela: Desk, codes: Codes) -> None:
    """Published: nuclei were scored as cytoplasm too, for 0.73; with unmatched names only half was lost."""
    for path in (replayed(hela).output / "cytoplasm_masks").iterdir():
        path.unlink()
    score = hela.score()
    assert score.outcome == 0.5
    assert score.strict == 0.0
    assert score.metrics["nuclei_dice"] == 1.0
    assert score.metrics["cytoplasm_dice"] == score.metrics["cytoplasm_boundary_f1"] == 0.0
    assert codes(score) == {"missing_deliverable"}
    hela.write("cytoplasm_masks/other.tif", np.ones((80, 60), np.uint16))
    assert hela.score().outcome == 0.5


def test_half_of_the_files_is_about_half(hela: Desk, histology: Desk, codes: Codes) -> None:
    for path in replayed(histology).output.glob("*_02.tif"):
        path.unlink()
    score = histology.score()
    assert score.outcome == 0.5
    assert score.strict == 0.5
    assert score.metrics["boundary_f1"] == 0.5  # published: images left out raised it
    assert score.metrics["items_not_scored"] == 2
    assert codes(score) == {"missing_file"}
    (replayed(hela).output / "nuclei_masks" / "2408.tif").unlink()
    assert hela.score().outcome == pytest.approx(5 / 6, abs=1e-6)


def test_an_image_empty_on_both_sides_is_right(histology: Desk, write: Write) -> None:
    """Published: dice and pq 0, ap 1."""
    write(histology.truth / "human_kidney_01.tif", np.zeros((64, 48), np.uint16))
    score = replayed(histology).score()
    assert (score.outcome, score.strict) == (1.0, 1.0)
    histology.write("human_kidney_01.tif", labels_like(histology))
    assert histology.score().outcome == 0.75
    (histology.output / "human_kidney_01.tif").unlink()
    assert histology.score().outcome == 0.75


def labels_like(desk: Desk) -> np.ndarray[Any, Any]:
    return tifffile.imread(desk.truth / "human_kidney_02.tif")


def test_one_label_for_all_is_seen_by_strict_only(histology: Desk) -> None:
    """The published outcome is foreground Dice; that loophole of the definition is closed in strict."""
    for path in replayed(histology).output.iterdir():
        histology.write(path.name, (tifffile.imread(path) > 0).astype(np.uint16))
    score = histology.score()
    assert score.outcome == 1.0
    assert score.strict == 0.0
    assert score.metrics["ap_50"] == score.metrics["boundary_f1"] == 0.0


def test_all_foreground_reports_the_fraction_that_makes_it_work(histology: Desk) -> None:
    for path in histology.truth.glob("*.tif"):
        histology.write(path.name, np.ones((64, 48), np.uint16))
    score = histology.score()
    fraction = score.items[0]["truth_foreground"]
    assert score.items[0]["dice"] == pytest.approx(2 * fraction / (1 + fraction))
    assert score.strict == 0.0


def test_shuffled_ids_are_seen_by_strict_only(hela: Desk) -> None:
    for path in (replayed(hela).output / "cytoplasm_masks").iterdir():
        image = tifffile.imread(path)
        lookup = np.concatenate(([0], np.roll(np.arange(1, image.max() + 1), 1)))
        hela.write(f"cytoplasm_masks/{path.name}", lookup[image].astype(np.uint16))
    score = hela.score()
    assert score.outcome == 1.0
    assert score.metrics["id_agreement"] == 0.0
    assert score.strict == 0.0


def test_leaving_out_an_image_never_raises_id_agreement(hela: Desk) -> None:
    image = labels(replayed(hela), "cytoplasm_masks/2408.tif")
    hela.write("cytoplasm_masks/2408.tif", np.where(image > 0, image.max() + 1 - image, 0).astype(np.uint16))
    shuffled = hela.score()
    (hela.output / "cytoplasm_masks/2408.tif").unlink()
    left_out = hela.score()
    assert left_out.metrics["id_agreement"] <= shuffled.metrics["id_agreement"]
    assert left_out.strict < shuffled.strict


def test_truth_without_linked_ids_leaves_the_part_out(hela: Desk, write: Write) -> None:
    for path in (hela.truth / "cytoplasm_masks").iterdir():
        image = tifffile.imread(path)
        write(path, np.where(image > 0, image + 100, 0).astype(np.uint8))
    score = replayed(hela).score()
    assert score.strict == 1.0
    assert "id_agreement" not in score.metrics


@pytest.mark.parametrize("seed", range(3))
def test_relabelling_changes_nothing(hela: Desk, seed: int) -> None:
    replayed(hela)
    for path in (hela.output / "nuclei_masks").iterdir():  # make the scores differ from 1
        image = tifffile.imread(path)
        hela.write(f"nuclei_masks/{path.name}", np.roll(image, 2, axis=0))
    before = hela.score()
    lookup = np.concatenate(([0], 1 + np.random.default_rng(seed).permutation(60_000)[:100])).astype(np.uint16)
    for path in hela.output.rglob("*.tif"):
        tifffile.imwrite(path, lookup[tifffile.imread(path)])
    after = hela.score()
    assert (after.outcome, after.strict) == (before.outcome, before.strict)
    assert after.metrics == before.metrics
    assert 0.0 < before.strict < 1.0


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda image: image.astype(np.float32) * 0.5, "non_integer"),
        (lambda image: np.where(image == 1, -1, image).astype(np.int16), "negative_labels"),
        (lambda image: image.astype(np.uint64) + np.uint64(2**63), "label_too_large"),
        (lambda image: np.where(image == 1, np.nan, image.astype(float)), "non_finite"),
        (lambda image: image.T, "wrong_shape"),
        (lambda image: np.kron(image, np.ones((2, 2), np.uint16)), "wrong_shape"),
        (lambda image: np.stack([image] * 3), "wrong_shape"),
        (lambda image: np.stack([image] * 3, axis=-1).astype(np.uint8), "colour"),
    ],
    ids="half negative wrapping nan transposed rescaled channels rgb".split(),  # noqa: SIM905
)
def test_an_invalid_image_scores_zero_in_everything(
    change: Callable[[Any], Any], code: str, histology: Desk, codes: Codes
) -> None:
    """Published: dice and instance scores disagreed on float masks, negative and wrapped ids."""
    image = labels(replayed(histology), "human_kidney_01.tif")
    changed = change(image)
    options = {"photometric": "rgb"} if changed.shape[-1] == 3 else {"photometric": "minisblack"}
    histology.write("human_kidney_01.tif", changed, **options)
    score = histology.score()
    assert score.outcome == score.strict == 0.75
    assert codes(score) == {code}
    assert "human_kidney_01" in score.problems[0].where
    (item,) = [item for item in score.items if item["image"] == "human_kidney_01"]
    assert item["status"] == code
    assert item["dice"] == item["ap_50"] == item["boundary_f1"] == 0.0


@pytest.mark.parametrize(
    ("change", "options"),
    [
        (lambda image: image.astype(np.uint8), {}),
        (lambda image: image.astype(np.int32), {}),
        (lambda image: image.astype(np.float32), {}),
        (lambda image: image[None], {}),
        (lambda image: image[..., None], {}),
        (lambda image: image, {"compression": "lzw"}),
        (lambda image: image, {"ome": True}),
        (lambda image: image, {"imagej": True}),
        (lambda image: image, {"bigtiff": True, "byteorder": ">"}),
    ],
)
def test_what_a_competent_person_hands_in_scores(
    change: Callable[[Any], Any], options: dict[str, Any], histology: Desk
) -> None:
    for path in replayed(histology).output.glob("*.tif"):
        image = tifffile.imread(path)
        histology.write(path.name, change(image), **options)
    score = histology.score()
    assert (score.outcome, score.strict, score.problems) == (1.0, 1.0, [])


@pytest.mark.parametrize(
    "name", ["{}_mask.tif", "{}_instances.tif", "{}.tiff", "labels/{}_label_mask.ome.tif", "{}.TIF"]
)
def test_documented_names_score(name: str, histology: Desk) -> None:
    """Published: ten names of the form <stem>_instances were paired by position."""
    for path in replayed(histology).output.glob("*.tif"):
        image = tifffile.imread(path)
        path.unlink()
        histology.write(name.format(path.stem), image)
    assert histology.score().outcome == 1.0


def test_mixed_extensions_all_count(histology: Desk) -> None:
    path = replayed(histology).output / "human_kidney_01.tif"
    path.rename(path.with_suffix(".tiff"))
    assert histology.score().outcome == 1.0


def test_other_formats_are_no_answer_and_named(histology: Desk) -> None:
    for path in replayed(histology).output.glob("*.tif"):
        path.rename(path.with_suffix(".png"))
    score = histology.score()
    assert score.outcome == 0.0
    assert "human_kidney_01.png" in score.problems[0].message


def test_a_prediction_cannot_be_read_through_a_link(histology: Desk, codes: Codes) -> None:
    for path in histology.truth.glob("*.tif"):
        (histology.output / path.name).symlink_to(path)
    score = histology.score()
    assert score.outcome == 0.0
    assert not score.delivered
    assert codes(score) == {"link", "missing_deliverable"}


def test_an_intermediate_raster_does_not_take_the_place_of_a_mask(histology: Desk, codes: Codes) -> None:
    """Published: a_hematoxylin/<stem>.tif sorted first and was scored."""
    replayed(histology)
    histology.write("a_hematoxylin/human_kidney_01.tif", np.full((64, 48), 200, np.uint8))
    score = histology.score()
    assert score.outcome == 1.0
    assert codes(score) == {"duplicate_file"}
    (histology.output / "masks").mkdir()
    (histology.output / "human_kidney_01.tif").rename(histology.output / "masks" / "human_kidney_01.tif")
    score = histology.score()
    assert score.outcome == 0.75  # two folders, neither declared: refused, not guessed
    assert codes(score) == {"ambiguous_files"}


def test_a_stray_overlay_does_not_take_the_place_of_a_mask(hela: Desk) -> None:
    replayed(hela)
    hela.write("a/nuclei_overlay_2408.tif", np.zeros((3, 80, 60), np.uint8), photometric="rgb")
    hela.write("nuclei_prob/2408.tif", np.full((80, 60), 200, np.uint8))
    assert hela.score().outcome == 1.0


def test_crossed_folder_tokens(hela: Desk) -> None:
    """Published: both halves were scored on nuclei_and_cytoplasm/2408_cytoplasm.tif."""
    replayed(hela)
    for path in list(hela.output.rglob("*.tif")):
        compartment = path.parent.name.removesuffix("_masks")
        target = hela.output / "nuclei_and_cytoplasm" / f"{path.stem}_{compartment}.tif"
        target.parent.mkdir(exist_ok=True)
        path.rename(target)
    assert hela.score().outcome == 1.0


def test_mac_resource_forks_are_ignored(histology: Desk) -> None:
    replayed(histology)
    histology.write("._human_kidney_01.tif", b"Mac OS X")
    histology.write("__MACOSX/._human_kidney_02.tif", b"Mac OS X")
    histology.write("__MACOSX/human_kidney_02.tif", b"Mac OS X")
    assert histology.score().outcome == 1.0


def test_noise_labels_are_refused(histology: Desk, codes: Codes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance_segmentation, "MAX_OBJECTS", 1000)
    replayed(histology)
    histology.write("human_kidney_01.tif", np.arange(64 * 48, dtype=np.uint32).reshape(64, 48))
    score = histology.score()
    assert score.outcome == 0.75
    assert codes(score) == {"too_many_objects"}


def test_two_equal_nuclei_in_one_label(histology: Desk, write: Write) -> None:
    """Published: an IoU of exactly 0.5 counted for PQ; it needs more."""
    truth = np.zeros((64, 48), np.uint16)
    truth[10:20, 10:20], truth[10:20, 20:30] = 1, 2
    for path in histology.truth.glob("*.tif"):
        write(path, truth)
        histology.write(path.name, (truth > 0).astype(np.uint16))
    score = histology.score()
    assert score.metrics["ap_50"] == 0.5
    assert score.metrics["pq"] == 0.0


def test_groups_and_interval_are_reported(histology: Desk) -> None:
    for path in replayed(histology).output.glob("human_kidney*"):
        path.unlink()
    metrics = histology.score().metrics
    assert metrics["kidney_dice"] == 0.0
    assert metrics["pancreas_dice"] == 1.0
    assert 0.0 <= metrics["outcome_ci_low"] < 0.5 < metrics["outcome_ci_high"] <= 1.0
    assert metrics == histology.score().metrics


def test_recall_by_size(histology: Desk, write: Write) -> None:
    truth = np.zeros((64, 48), np.uint16)
    truth[2:4, 2:4], truth[10:16, 10:16], truth[20:40, 20:40] = 1, 2, 3
    for path in histology.truth.glob("*.tif"):
        write(path, truth)
        histology.write(path.name, np.where(truth > 1, truth, 0).astype(np.uint16))
    metrics = histology.score().metrics
    assert (metrics["recall_small"], metrics["recall_medium"], metrics["recall_large"]) == (0.0, 1.0, 1.0)


@pytest.mark.parametrize("broken", ["missing_folder", "missing_file", "unreadable"])
def test_unusable_truth_blames_nobody(broken: str, hela: Desk) -> None:
    """Published: a missing compartment silently changed the metric, an unreadable mask was charged to the agent."""
    replayed(hela)
    folder = hela.truth / "cytoplasm_masks"
    if broken == "missing_folder":
        folder.rename(folder.with_name("elsewhere"))
    elif broken == "missing_file":
        (folder / "2408.tif").unlink()
    else:
        (folder / "2408.tif").write_bytes(b"II*\0")
    with pytest.raises(TruthError, match="cytoplasm_masks"):
        hela.score()
    with pytest.raises(TruthError, match="cytoplasm_masks"):
        hela.score(with_input=False)


def test_overlays_in_truth_are_no_required_images(histology: Desk, write: Write) -> None:
    """Published: one extra file in evaluation/ lowered the best score to 10/11."""
    replayed(histology)
    write(histology.truth / "overlay.png", b"x")
    write(histology.truth / "._human_kidney_01.tif", b"x")
    write(histology.truth / "overlay.tif", np.zeros((5, 5), np.uint8))
    assert histology.score().outcome == 1.0


def test_volumes_are_images_too(histology: Desk, write: Write) -> None:
    volume = np.zeros((6, 20, 20), np.uint16)
    volume[1:5, 3:9, 3:9], volume[2:4, 12:18, 12:18] = 1, 2
    for path in histology.truth.glob("*.tif"):
        write(path, volume)
    assert replayed(histology).score().strict == 1.0
    histology.write("human_kidney_01.tif", volume.transpose(2, 1, 0))
    score = histology.score()
    assert score.outcome == 0.75
    assert "transposed" in score.problems[0].message
