"""Which accesses the source-study audit sees, what it calls them, and what it holds against an agent."""

from __future__ import annotations

from typing import Any

import pytest

from agents.audit import Identifiers, audit, classify
from agents.transcript import Step

PUNCTA = Identifiers.of(
    study="Arabzade, Baggett, Shirnekhi et al., Nature Cell Biology 2025",
    accession="S-BIAD1556",
    doi="10.1038/s41556-025-01745-3",
    url="https://www.ebi.ac.uk/biostudies/bioimages/studies/S-BIAD1556",
    dataset_id="3d-confocal-puncta-quantification-sbiad1556",
    known="Count GFP puncta per nucleus in confocal stacks of HEK293T cells.",
)
HELA = Identifiers.of(
    study="HeLaCytoNuc, hand-drawn test subset; images of a calibration set of an RNAi screen (BMC Genomics 15:1162)",
    accession="RODARE record 3001",
    doi="10.14278/rodare.3001",
    url=None,
    dataset_id="fluo-helacytonuc-cell-segmentation",
    known="Segment nuclei and cytoplasm of HeLa cells.",
)


def step(**fields: Any) -> Step:
    return Step(step=1, **{"kind": "tool", **fields})


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("https://pypi.org/simple/cellpose/", "packages"),
        ("https://files.pythonhosted.org/packages/x.whl", "packages"),
        ("https://huggingface.co/mouseland/cellpose-sam", "models"),
        ("https://huggingface.co/datasets/someone/cells", "dataset"),
        ("https://cellpose.readthedocs.io/en/latest/", "documentation"),
        ("https://docs.example.org/guide", "documentation"),
        ("https://doi.org/10.1038/x", "publication"),
        ("https://www.nature.com/articles/x", "publication"),
        ("https://zenodo.org/records/1", "dataset"),
        ("s3://idr/zarr", "dataset"),
        ("https://notzenodo.org/records/1", "other"),
        ("cell counting in images", "other"),
    ],
)
def test_places_are_classified(url: str, kind: str) -> None:
    assert classify(url) == kind


@pytest.mark.parametrize(
    "fields",
    [
        {"urls": ["https://www.nature.com/articles/s41556-025-01745-3"], "hit": True},  # the DOI's suffix
        {"urls": ["https://doi.org/10.1038%2Fs41556-025-01745-3"], "hit": True},
        {"urls": ["https://www.ebi.ac.uk/biostudies/bioimages/studies/S-BIAD1556?x=1"], "hit": True},
        {"queries": ["S-BIAD1556 ground truth"], "hit": True},
        {"queries": ["Arabzade Baggett Shirnekhi 2025 condensates"], "hit": True},
        {"queries": ["how to count puncta per nucleus in 3D"], "hit": False},
        {"queries": ["nature cell biology imaging guidelines"], "hit": False},
        {"code": "wget https://ftp.ebi.ac.uk/biostudies/S-BIAD1556/file.tif", "hit": True},
        {"code": "import requests\nname = 'S-BIAD' + '1556'\nrequests.get(base + name)", "hit": False},
        {"code": "import requests\nstudy = 'S-BIAD1556'\nrequests.get(base + study)", "hit": True},
        {"code": "curl -sO https://example.org/S-BIAD15567.tif", "hit": False},
        {"code": "pip install cellpose", "hit": False},
        {"code": "print('S-BIAD1556')", "hit": False},  # no network: a mention
    ],
)
def test_hits(fields: dict[str, Any]) -> None:
    hit = fields.pop("hit")
    found = audit([step(**fields)], PUNCTA)
    assert found.flagged is hit, found


def test_a_short_number_needs_its_repository() -> None:
    assert audit([step(urls=["https://rodare.hzdr.de/record/3001"])], HELA).flagged
    assert not audit([step(urls=["https://example.org/3001"])], HELA).flagged
    assert audit([step(queries=["HeLaCytoNuc dataset"])], HELA).hits[0].hits == ["name HeLaCytoNuc"]
    assert not audit([step(queries=["HeLa cytoplasm and nuclei segmentation RNAi"])], HELA).flagged


def test_version_of_a_collection_does_not_hide_it() -> None:
    named = Identifiers.of(
        study="x", accession="BBBC014v1", doi="10.1038/nmeth.2083", url=None, dataset_id="c-bbbc014", known=""
    )
    for url in ("https://bbbc.broadinstitute.org/BBBC014", "https://data.broadinstitute.org/BBBC014_v1_images.zip"):
        assert audit([step(urls=[url])], named).flagged, url
    assert not audit([step(urls=["https://bbbc.broadinstitute.org/BBBC0140"])], named).flagged


def test_counts_mentions_and_local_addresses() -> None:
    found = audit(
        [
            step(kind="message", text="This looks like S-BIAD1556."),
            step(code="pip install stardist && pip install cellpose"),
            step(code="curl http://127.0.0.1:8000/x; wget https://zenodo.org/records/5/files/a.zip"),
            step(urls=["http://localhost:1/x"], queries=["watershed"]),
        ],
        PUNCTA,
    )
    assert found.counts == {"packages": 1, "dataset": 1, "other": 1}
    assert not found.flagged
    assert found.mentions == ["accession S-BIAD1556"]
    assert found.steps == 4


def test_every_task_can_be_named_and_its_own_words_accuse_nobody() -> None:
    from pathlib import Path

    from biabench_plugin.source_study import identifiers
    from biabench_plugin.taskspec import load_tasks

    for task in load_tasks(Path(__file__).resolve().parents[2] / "tasks").values():
        named = identifiers(task)
        assert named.exact
        for text in (f"https://doi.org/{task.source.doi}", task.source.url, task.dataset_id, task.source.study):
            assert text is None or named.hits(text), (task.slug, text)
        assert any(named.hits(text) for text in (task.source.accession, f"x {task.source.accession} y")), task.slug
        for level in ("brief", "detailed"):
            body = (task.folder / f"{level}.md").read_text(encoding="utf-8")
            assert named.hits(body) == [], task.slug


def test_a_hostile_command_costs_no_time() -> None:
    import time

    begun = time.monotonic()
    audit([step(code="pip " * 200_000 + "\n" + "https://" * 100_000, queries=["%" * 100_000])], PUNCTA)
    assert time.monotonic() - begun < 5
