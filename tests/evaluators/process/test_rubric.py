"""The rubric against the published counts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from evaluators.process.rubric import Rubric, load_rubric

# dataset id of the published task: items, sum of weights
PUBLISHED = {
    "3d-confocal-puncta-quantification-sbiad1556": (75, 143),
    "3d-fluo-cell-segmentation-lateral-line-idr0079": (59, 111),
    "3d-light-sheet-brain-vessels": (63, 119),
    "5D-npc-assembly-kinetics-idr0115": (74, 141),
    "confocal-mosaic-4channel-stitching-ctc-model": (69, 131),
    "cytoplasm-nucleus-translocation-bbbc014": (64, 121),
    "fluo-cell-counting-2d-cellfmcount": (51, 93),
    "fluo-coronavirus-golgi-colocalization": (68, 128),
    "fluo-dna-repair-foci-colocalization-sbsst227": (75, 141),
    "fluo-helacytonuc-cell-segmentation": (50, 92),
    "he-nuinsseg-nuclear-segmentation": (50, 92),
    "microglia-phenotype-progression-bbbc054": (72, 137),
    "phase-contrast-bacteria-tracking-toiam": (55, 102),
    "sim-microtubules-segmentation": (58, 108),
    "smlm-localization-dnapaint": (51, 93),
    "wound-healing-speed-kymograph-gigadb100118": (49, 90),
}
# first and last number in Table E1, critical, major, minor
SECTIONS = {
    "input-understanding": (1, 9, 7, 2, 0),
    "tool-use": (10, 18, 1, 4, 4),
    "reporting": (19, 24, 0, 1, 5),
    "quantification": (25, 31, 1, 4, 2),
    "visualization": (32, 45, 1, 5, 8),
    "visualization-advanced": (46, 50, 0, 5, 0),
    "stitching": (51, 60, 3, 4, 3),
    "segmentation": (61, 65, 2, 2, 1),
    "feature-extraction": (66, 69, 1, 3, 0),
    "classification": (70, 72, 0, 3, 0),
    "statistical-plotting": (73, 82, 2, 6, 2),
    "filament-extraction": (83, 86, 1, 2, 1),
    "denoising": (87, 90, 1, 2, 1),
    "spot-detection": (91, 96, 0, 6, 0),
    "tracking": (97, 101, 1, 3, 1),
    "colocalization": (102, 105, 1, 2, 1),
}


@pytest.fixture
def rubric() -> Rubric:
    return load_rubric()


def test_holds_the_published_numbers_severities_and_weight(rubric: Rubric) -> None:
    found = {}
    for name in rubric.sections:
        items = [item for item in rubric.items if item.section == name]
        severities = Counter(item.severity for item in items)
        assert [item.id for item in items] == list(range(items[0].id, items[-1].id + 1))
        found[name] = (items[0].id, items[-1].id, *(severities[level] for level in ("critical", "major", "minor")))
    assert found == SECTIONS
    assert sum(rubric.weight(item.id) for item in rubric.items) == 203
    assert rubric.weights == {"critical": 3, "major": 2, "minor": 1}


def test_tasks_select_the_published_items(rubric: Rubric, tasks: dict[str, object]) -> None:
    found = {}
    for task in tasks.values():
        items = rubric.select(task.rubric_sections)  # type: ignore[attr-defined]
        found[task.dataset_id] = (len(items), sum(rubric.weight(item.id) for item in items))  # type: ignore[attr-defined]
    assert found == PUBLISHED
    assert sum(count for count, _ in found.values()) == 983


def test_what_a_task_takes_out_is_among_what_it_selects(rubric: Rubric, tasks: dict[str, object]) -> None:
    for slug, task in tasks.items():
        selected = {item.id: item for item in rubric.select(task.rubric_sections)}  # type: ignore[attr-defined]
        for number, why in task.not_applicable.items():  # type: ignore[attr-defined]
            assert number in selected, slug
            assert selected[number].unless is not None, (slug, number)
            assert len(why) > 10


def test_statements_are_positive_sentences_of_our_own(rubric: Rubric) -> None:
    assert [item.id for item in rubric.items if item.reversed] == [57, 95, 96]
    for item in rubric.items:
        assert item.statement.endswith(".")
        assert "?" not in item.statement
        assert not item.statement.startswith(("Did ", "Is ", "Are ", "Does "))
    assert len({item.statement for item in rubric.items}) == 105


def test_unknown_section_is_named(rubric: Rubric) -> None:
    with pytest.raises(ValueError, match="no such rubric section: segmentaton"):
        rubric.select(["segmentaton"])
    assert len(rubric.select([])) == 45


def test_damaged_rubric_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "rubric.yaml"
    file.write_text("version: [")
    with pytest.raises(ValueError, match=r"rubric\.yaml: is no rubric"):
        load_rubric(file)
