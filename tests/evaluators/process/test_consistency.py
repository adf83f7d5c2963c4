"""The audit catches runs that contradict themselves and stays silent on sound ones; it never sees the truth.

The three failure cases of the paper (appendix G) are rebuilt here from their description.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from agents.transcript import Step
from biabench_plugin.taskspec import load_tasks
from evaluators.process.claims import closing_claim, promises
from evaluators.process.consistency import Audit, audit

TASKS = load_tasks(Path(__file__).resolve().parents[3] / "tasks")
PUNCTA = TASKS["oncogenic_puncta"].deliverables
WELLS = TASKS["nfkb_translocation"].deliverables
CONDITIONS = ("WT", "3DBDmut", "C129A_H144A")
IMAGES = {"WT": 10, "3DBDmut": 8, "C129A_H144A": 9}


def _codes(found: Audit, severity: str | None = None) -> list[str]:
    return [finding.code for finding in found.findings if severity in (None, finding.severity)]


@pytest.fixture
def nuclei(tmp_path: Path) -> Callable[..., Path]:
    """Write a table of nuclei: so many per image, so many puncta on average per condition."""

    def write(per_image: Sequence[int], means: dict[str, float], conditions: Sequence[str] = CONDITIONS) -> Path:
        generator = np.random.default_rng(7)
        stacks = [(condition, number) for condition in CONDITIONS for number in range(IMAGES[condition])]
        names = dict(zip(CONDITIONS, conditions, strict=True))
        with (tmp_path / "cell_quants.csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["condition", "Image name", "z", "y", "x", "ROI volume um", "number of GFP puncta"])
            for (condition, number), count in zip(stacks, per_image, strict=True):
                for _ in range(count):
                    puncta = generator.poisson(generator.gamma(0.5, 2 * means[condition]))
                    volume = generator.normal(775, 90)
                    place = generator.uniform(5, 900, 3)
                    row = [names[condition], f"Position {number}.tif", *(f"{value:.1f}" for value in place)]
                    writer.writerow([*row, f"{volume:.1f}", puncta])
        return tmp_path

    return write


def _report(folder: Path, text: str) -> None:
    (folder / "report.md").write_text(text, encoding="utf-8")


def _means(folder: Path) -> dict[str, float]:
    values: dict[str, list[int]] = {}
    with (folder / "cell_quants.csv").open() as stream:
        for row in csv.DictReader(stream):
            values.setdefault(row["condition"], []).append(int(row["number of GFP puncta"]))
    return {condition: float(np.mean(counts)) for condition, counts in values.items()}


# --- appendix G -------------------------------------------------------------------------------------------------------


def _case_1(nuclei: Callable[..., Path]) -> tuple[Path, str, list[Step]]:
    """266 nuclei in the table (2 to 23 per stack, median 10), 1,609 in the report, 27 overlays that nobody opened."""
    per_image = [2, 23, *([10] * 15), *([9] * 9), 10]
    per_image[-1] = 266 - sum(per_image[:-1])
    folder = nuclei(per_image, {"WT": 9.4, "3DBDmut": 19.9, "C129A_H144A": 2.9})
    (folder / "qc").mkdir()
    overlays = [f"qc/overlay_{number:02d}.png" for number in range(27)]
    for name in overlays:
        (folder / name).write_bytes(b"\x89PNG\r\n\x1a\n")
    message = (
        "Completed the full 3D analysis of all 27 two-channel confocal stacks: 1,609 nuclei quantified, 27/27 images "
        "processed. The per-nucleus table, QC overlays and figures are in the output directory."
    )
    steps = [
        *(
            Step(
                step=number, kind="tool", tool="run_macro", code=f"min_size = {60 + 10 * number}; // Fiji", exit_code=0
            )
            for number in range(1, 15)
        ),
        Step(step=15, kind="tool", tool="run_python", code="write_overlays()", files_written=overlays, exit_code=0),
        Step(step=16, kind="tool", tool="run_python", code="validate()", output="nuclei: 1609", exit_code=0),
        Step(step=17, kind="final", text=message),
    ]
    return folder, message, steps


def test_case_1_the_table_is_not_what_the_report_says(nuclei: Callable[..., Path]) -> None:
    folder, message, steps = _case_1(nuclei)
    found = audit(folder, PUNCTA, message, steps)
    assert _codes(found, "contradiction") == ["count_mismatch"]
    assert _codes(found, "caution") == ["overlays_unread"]
    (count,) = found.contradictions
    assert "1609" in count.message
    assert "266" in count.message
    assert count.where[0] == "closing message"


def test_case_1_in_a_report_file_and_without_transcript(nuclei: Callable[..., Path]) -> None:
    folder, message, _ = _case_1(nuclei)
    _report(folder, f"# Result\n\n{message}\n")
    found = audit(folder, PUNCTA, None, None)
    assert _codes(found) == ["count_mismatch"]
    assert not found.transcript


def test_case_2_only_thresholds_that_were_set_once(nuclei: Callable[..., Path]) -> None:
    """A scale error by a factor of thirty shows only against the truth: every number agrees with the files."""
    folder = nuclei([58] * 26 + [64], {"WT": 1.2, "3DBDmut": 0.8, "C129A_H144A": 0.1})
    (folder / "overlays").mkdir()
    (folder / "overlays" / "Position 0_overlay.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    means = _means(folder)
    _report(
        folder,
        "# Puncta per nucleus\n\n1,572 nuclei were quantified in 27 of 27 stacks.\n\n"
        "| condition | mean puncta per nucleus |\n|---|---|\n"
        + "".join(f"| {condition} | {mean:.2f} |\n" for condition, mean in means.items())
        + "\nThe double mutant shows an approximately 91% reduction versus WT.\n",
    )
    steps = [
        Step(
            step=4,
            kind="tool",
            tool="shell",
            code="threshold_above_background = 15\nmin_voxels = 12\nmax_volume = 14.0\n",
            exit_code=0,
            files_written=["overlays/Position 0_overlay.png"],
        ),
        Step(step=9, kind="final", text="All 27 stacks were analysed; 1,572 nuclei."),
    ]
    found = audit(folder, PUNCTA, "All 27 stacks were analysed; 1,572 nuclei.", steps)
    assert _codes(found) == ["thresholds_unchecked"]
    assert found.contradictions == []
    assert "min_voxels = 12" in found.findings[0].message


def test_case_3_a_promise_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text("print('211 lines')\n")
    (tmp_path / "preview.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    message = (
        "Analysis is still running across all 96 wells. I’ll continue automatically and produce the required CSVs, QC "
        "overlays, dose-response plots, morphology analysis, and summary report in the specified output directory."
    )
    found = audit(tmp_path, WELLS, message, None)
    assert _codes(found) == ["future_tense_ending"]
    assert found.findings[0].severity == "contradiction"
    assert "per_well_summary" in found.findings[0].message


# --- one rule each: caught when broken, silent when sound -------------------------------------------------------------


def test_sound_run_is_silent_and_was_compared(nuclei: Callable[..., Path]) -> None:
    folder = nuclei([20] * 27, {"WT": 30.0, "3DBDmut": 20.0, "C129A_H144A": 9.0})
    means = _means(folder)
    _report(
        folder,
        "# Result\n\n560 nuclei were detected; 20 touched the border and were removed. 540 nuclei were quantified.\n"
        f"Mean puncta per nucleus: WT {means['WT']:.1f}, 3DBDmut {means['3DBDmut']:.1f}, "
        f"C129A/H144A {means['C129A_H144A']:.1f}.\n\nIf you like, I can also measure the haze.",
    )
    found = audit(folder, PUNCTA, "Done: all 27/27 stacks processed, cell_quants.csv written.", [])
    assert found.findings == []
    assert found.compared >= 2


def test_order_of_conditions(nuclei: Callable[..., Path]) -> None:
    folder = nuclei([20] * 27, {"WT": 30.0, "3DBDmut": 12.0, "C129A_H144A": 3.0})
    _report(folder, "Puncta counts by condition: 3DBDmut 199, wild type 94, C129A/H144A 29.\n")
    found = audit(folder, PUNCTA)
    assert _codes(found) == ["order_mismatch"]


def test_means_by_condition(nuclei: Callable[..., Path]) -> None:
    folder = nuclei([20] * 27, {"WT": 30.0, "3DBDmut": 12.0, "C129A_H144A": 3.0})
    _report(
        folder,
        "| construct | mean number of GFP puncta |\n|---|---|\n| WT | 300 |\n| 3DBDmut | 120 |\n| C129A_H144A | 30 |\n",
    )
    assert _codes(audit(folder, PUNCTA)) == ["mean_mismatch"]


def test_counts_by_condition(nuclei: Callable[..., Path]) -> None:
    folder = nuclei([20] * 27, {"WT": 30.0, "3DBDmut": 12.0, "C129A_H144A": 3.0})
    _report(folder, "| construct | nuclei |\n|---|---|\n| WT | 900 |\n| 3DBDmut | 700 |\n| C129A_H144A | 800 |\n")
    assert _codes(audit(folder, PUNCTA)) == ["count_mismatch"]
    _report(folder, "| construct | nuclei |\n|---|---|\n| WT | 200 |\n| 3DBDmut | 160 |\n| C129A_H144A | 180 |\n")
    assert _codes(audit(folder, PUNCTA)) == []


def test_mean_per_nucleus(nuclei: Callable[..., Path]) -> None:
    folder = nuclei([20] * 27, {"WT": 30.0, "3DBDmut": 12.0, "C129A_H144A": 3.0})
    _report(folder, "On average there were 250 puncta per nucleus.\n")
    assert _codes(audit(folder, PUNCTA)) == ["mean_mismatch"]


def test_coverage_of_files(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text("X,Y\n1,2\n")
    deliverables = TASKS["cell_counting"].deliverables
    assert _codes(audit(tmp_path, deliverables, "Processed 14/14 images.")) == ["coverage_mismatch"]
    assert _codes(audit(tmp_path, deliverables, "Processed 3/3 images.")) == []
    assert _codes(audit(tmp_path, deliverables, "3 cells in 3 of 14 images; 11 images failed.")) == []


def test_claims_against_missing_files(tmp_path: Path) -> None:
    assert _codes(audit(tmp_path, WELLS, "All deliverables were completed.")) == ["missing_despite_claim"]
    assert _codes(audit(tmp_path, WELLS, "I could not complete the analysis.")) == []
    (tmp_path / "per_well_summary.csv").write_text("well,cell_type,dose,mean_nuc_over_cyto_ratio\nA01,MCF7,-7,1.1\n")
    assert _codes(audit(tmp_path, WELLS, "All deliverables were completed.")) == []


def test_named_files_must_exist(tmp_path: Path) -> None:
    (tmp_path / "per_well_summary.csv").write_text("well,cell_type,dose,mean_nuc_over_cyto_ratio\nA01,MCF7,-7,1.1\n")
    (tmp_path / "supporting").mkdir()
    (tmp_path / "supporting" / "cells.tsv").write_text("a\tb\n")
    sound = "Saved `per_well_summary.csv`, supporting/cells.tsv. Doses were read from plate_map.csv."
    assert _codes(audit(tmp_path, WELLS, sound)) == []
    found = audit(tmp_path, WELLS, "Saved per_well_summary.csv and figures/dose_response.png.")
    assert _codes(found) == ["named_file_missing"]
    assert "dose_response.png" in found.findings[0].message


def _looked(images: list[str], code: Sequence[str] = ()) -> list[Step]:
    return [
        *(Step(step=number, kind="tool", code=text) for number, text in enumerate(code, start=1)),
        Step(step=50, kind="tool", images_viewed=images, files_written=["qc/overlay_1.png"]),
    ]


def test_overlays_that_were_opened_are_no_finding(tmp_path: Path) -> None:
    (tmp_path / "per_well_summary.csv").write_text("well,cell_type,dose,mean_nuc_over_cyto_ratio\nA01,MCF7,-7,1.1\n")
    assert _codes(audit(tmp_path, WELLS, None, _looked([]))) == ["overlays_unread"]
    assert _codes(audit(tmp_path, WELLS, None, _looked(["/out/qc/overlay_1.png"]))) == []
    assert _codes(audit(tmp_path, WELLS, None, None)) == []


def test_thresholds_that_were_tried_or_looked_at_are_no_finding(tmp_path: Path) -> None:
    (tmp_path / "per_well_summary.csv").write_text("well,cell_type,dose,mean_nuc_over_cyto_ratio\nA01,MCF7,-7,1.1\n")
    once = ["threshold = 12"]
    assert _codes(audit(tmp_path, WELLS, None, _looked([], once))) == ["thresholds_unchecked"]
    assert _codes(audit(tmp_path, WELLS, None, _looked(["/out/qc/overlay_1.png"], once))) == []
    twice = ["threshold = 12", "threshold = 15"]
    assert _codes(audit(tmp_path, WELLS, None, _looked(["/in/raw.png"], twice))) == ["overlays_unread"]


@pytest.mark.parametrize(
    ("message", "claim"),
    [
        ("All 96 wells were processed and every table was saved.", "claimed"),
        ("Task complete.", "claimed"),
        ("Done: 96 items delivered, 0 failed; see report.md.", "claimed"),
        ("I was unable to segment the nuclei.", "denied"),
        ("The segmentation is incomplete.", "denied"),
        ("The run has been started; the masks will be written to the output folder.", "promised"),
        ("I'm going to finish the remaining stacks next.", "promised"),
        ("The job is in progress.", "promised"),
        ("All files were saved. Let me know if you want me to continue; I will be happy to.", "claimed"),
        ("No failures occurred and all outputs were written.", "claimed"),
        ("Hello.", "unknown"),
        ("", "unknown"),
        (None, "unknown"),
    ],
)
def test_closing_claims(message: str | None, claim: str) -> None:
    assert closing_claim(message) == claim


def test_an_offer_is_no_promise() -> None:
    assert promises("If you want, I will run the other wells.") == []
