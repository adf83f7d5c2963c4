"""The instruction bodies: length, voice, nothing that gives away source, scoring or hidden values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from biabench_plugin.taskspec import LEVELS, TaskSpec, load_task, load_tasks, render_instruction

ROOT = Path(__file__).resolve().parents[2]
SLUGS = ("bacteria_tracking", "cell_counting", "hela_segmentation", "histology_nuclei")
TASKS = {slug: load_task(ROOT / "tasks" / slug / "task.yaml") for slug in SLUGS}
SUITE = load_tasks(ROOT / "tasks")

FORBIDDEN = (
    r"dice|iou|jaccard|panoptic|\bpq\b|\bap\b|\baji\b|f1|\bseg\b|\btra\b|\blnk\b|\bdet\b|aogm|recall",
    r"scor\w*|evaluator\w*|metric\w*|grad(?:ed|ing)|benchmark\w*|rubric\w*|judg(?:e|ed|ing)\b.*\bby us",
    r"ground.?truth|reference (?:mask|label|value|annotation)s?|annotator\w*|tolerance\w*",
    r"toiam|tracking.one|nuinsseg|helacytonuc|cellfmcount|rodare|zenodo|\bdoi\b|eccv|icdm|published|publicly|accession",
)
BIOLOGY = (
    "H&E",
    "RNAi",
    "HeLa",
    "NF",
    "TNF",
    "DNA",
    "PAINT",
    "53BP1",
    "MCF7",
    "WBC",
    "SARS",
    "3D",
    "4D",
    "5D",
    "RELA",
    "ZFTA",
)
TOOLS = r"otsu|watershed|threshold\w*|gaussian|stardist|cellpose|u-net|deconvolution|segment(?:ation)? model|kernel"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("slug", SUITE)
def test_length(slug: str, level: str) -> None:
    words = len(SUITE[slug].body(level).split())
    low, high = (120, 400) if level == "brief" else (230, 900)
    assert low <= words <= high


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("slug", SUITE)
def test_nothing_about_scoring_or_source(slug: str, level: str) -> None:
    spec = SUITE[slug]
    body = spec.body(level).lower()
    for pattern in FORBIDDEN:
        assert not re.search(rf"\b(?:{pattern})\b", body), re.findall(rf"\b(?:{pattern})\b", body)
    text = render_instruction(spec, level, gpu=False, input_dir="/input", output_dir="/output").lower()
    named = spec.slug if "_" in spec.slug else spec.dataset_id  # one plain word is the biology, not the task
    secrets = {spec.dataset_id, named, spec.label, spec.source.accession, spec.source.doi, spec.outcome.kind}
    for secret in secrets - {deliverable.id for deliverable in spec.deliverables}:
        assert secret.lower() not in text
    for word in re.split(r"[\s,:/-]+", spec.source.study.split("(")[0]):
        if re.search(r"[A-Z].*[A-Z]", word) and word not in BIOLOGY:
            assert word.lower() not in text  # names such as a data set's


@pytest.mark.parametrize("slug", SLUGS)
def test_brief_is_a_biologist_speaking(slug: str) -> None:
    brief = TASKS[slug].body("brief").lower()
    assert re.search(r"\b(i|we|my|our|me)\b", brief)
    assert not re.search(rf"\b(?:{TOOLS})\b", brief)
    assert not re.search(r"^\s*(?:[-*]|\d+\.)\s", brief, re.MULTILINE)


@pytest.mark.parametrize("slug", SLUGS)
def test_detailed_is_a_protocol_with_parameters(slug: str) -> None:
    detailed = TASKS[slug].body("detailed")
    assert len(re.findall(r"^\d+\. ", detailed, re.MULTILINE)) >= 4
    assert re.search(TOOLS, detailed.lower())
    assert len(re.findall(r"\d+(?:\.\d+)? (?:to \d+(?:\.\d+)? )?(?:px|µm)", detailed)) >= 3
    assert "scale bar" in detailed.lower() or "pixel size is unknown" in detailed.lower()


# numbers of images, frames, objects and image sizes, which differ between demo and published data or are hidden
HIDDEN = {
    "bacteria_tracking": ("800", "1094", "938", "1430", "thousand", "five sequences", "0.80", "0.90"),
    "cell_counting": ("21", "1200", "1600", "141", "2126", "2,000", "2000", "500", "seven"),
    "hela_segmentation": ("265", "2408", "520", "696", "256"),
    "histology_nuclei": ("512", "ten", "five", "665", "31"),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("slug", SLUGS)
def test_no_hidden_number_is_stated(slug: str, level: str) -> None:
    body = TASKS[slug].body(level).lower()
    for number in HIDDEN[slug]:
        assert not re.search(rf"(?<![\w.,]){re.escape(number)}(?![\w,]|\.\d)", body), number


def test_no_count_of_the_demo_truth_is_stated(demo: Any) -> None:
    counts = {
        "cell_counting": {len(p.read_text().splitlines()) - 1 for p in demo("cell_counting").evaluation.iterdir()},
        "hela_segmentation": {
            int(tifffile.imread(p).max()) for p in demo("hela_segmentation").evaluation.rglob("*.tif")
        },
        "histology_nuclei": {int(tifffile.imread(p).max()) for p in demo("histology_nuclei").evaluation.iterdir()},
    }
    for slug, values in counts.items():
        for level in LEVELS:
            numbers = {int(n) for n in re.findall(r"(?<![\d.])\d+(?![\d.])", TASKS[slug].body(level))}
            assert not {n for n in numbers if n > 30} & values


@pytest.mark.parametrize("slug", SLUGS)
def test_pixel_size_is_stated_where_known_and_only_there(slug: str) -> None:
    sizes = {"bacteria_tracking": "0.072", "hela_segmentation": "0.645", "histology_nuclei": "0.275"}
    for level in LEVELS:
        body = TASKS[slug].body(level)
        found = set(re.findall(r"0\.\d{3}", body))
        assert found == ({sizes[slug]} if slug in sizes else set())


def test_corrections_to_the_published_wording() -> None:
    hela = " ".join(TASKS["hela_segmentation"].body("brief").split())
    assert "nucleus included" in hela
    assert "same number" in hela
    counting = " ".join(TASKS["cell_counting"].body("brief").split())
    assert "comma-separated" in counting
    assert "nothing under the header" in counting
    assert "Excel" not in counting
    for level in LEVELS:
        assert not re.search(r"\bX,Y,Z|\bz-", TASKS["cell_counting"].body(level))
    tracking = " ".join(TASKS["bacteria_tracking"].body("detailed").split())
    assert "begin in the frame after her last one" in tracking


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("slug", SUITE)
def test_rendering_is_byte_stable(slug: str, level: str, gpu: bool) -> None:
    spec: TaskSpec = SUITE[slug]

    def render() -> bytes:
        fresh = load_task(spec.folder / "task.yaml")
        return render_instruction(fresh, level, gpu=gpu, input_dir="/input", output_dir="/output").encode()

    assert render() == render()
    text = render().decode()
    assert text.count("\n---\n") == 4
    assert text.isprintable() or all(c.isprintable() or c == "\n" for c in text)
    footer = text.removeprefix(spec.body(level).strip())
    assert 150 < len(footer.split()) < 560


@pytest.mark.parametrize("slug", SLUGS)
def test_truth_and_contract_fit(slug: str, demo: Any) -> None:
    """The columns and formats of the contract are those of the truth."""
    spec, data = TASKS[slug], demo(slug)
    for deliverable in spec.deliverables:
        if deliverable.columns:
            for path in data.evaluation.iterdir():
                assert path.read_text().splitlines()[0] == ",".join(deliverable.columns)
    compartments = spec.outcome.parameters.get("compartments", {})
    for name, deliverable_id in compartments.items():
        assert deliverable_id in {deliverable.id for deliverable in spec.deliverables}
        folder = data.evaluation / spec.outcome.parameters.get("truth_folders", {}).get(name, f"{name}_masks")
        files = list(folder.glob("*.tif"))
        assert {path.stem for path in files} == {path.stem for path in data.input.iterdir()}
        assert all(np.issubdtype(tifffile.imread(path).dtype, np.unsignedinteger) for path in files)
