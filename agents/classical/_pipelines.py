"""Which pipeline answers which instruction: decided by the ids of the required files, then by words of the request.

To add a task, write ``<name>.py`` with ``run(job)`` and add one row here.
"""

from __future__ import annotations

from dataclasses import dataclass

from ._job import CannotStart, Job


@dataclass(frozen=True)
class Signature:
    """How an instruction is recognised.

    Parameters
    ----------
    required
        Ids of all required deliverables.
    words
        Words (lower case) that tell apart requests for the same ids; the row with more hits wins.
    """

    required: frozenset[str]
    words: tuple[str, ...] = ()


PIPELINES: dict[str, Signature] = {
    "bacteria_tracking": Signature(frozenset({"segmentation_masks", "tracking_lineage"})),
    "wound_healing": Signature(frozenset({"speed_kymograph", "velocity_x", "velocity_y"})),
    "microtubules": Signature(frozenset({"segmentation_masks"}), ("microtubule", "filament")),
    "dna_paint": Signature(frozenset({"localization_list"})),
    "cell_counting": Signature(frozenset({"centroids_per_image"})),
    "hela_segmentation": Signature(frozenset({"nuclei_masks", "cytoplasm_masks"})),
    "oncogenic_puncta": Signature(frozenset({"cell_quants"})),
    "nuclear_pore": Signature(frozenset({"kinetics_per_cell"})),
    "microglia": Signature(frozenset({"cell_labels"})),
    "tile_stitching": Signature(frozenset({"stitched_image", "summary_statistics"})),
    "brain_vessels": Signature(frozenset({"vessel_masks"})),
    "zebrafish_cells": Signature(frozenset({"segmentation_masks"}), ("plasma membrane", "lumen", "rosette")),
    "golgi_colocalization": Signature(frozenset({"per_cell_coefficients"})),
    "histology_nuclei": Signature(frozenset({"segmentation_masks"}), ("hematoxylin", "haematoxylin", "eosin", "h&e")),
    "nfkb_translocation": Signature(frozenset({"per_well_summary"})),
    "repair_foci": Signature(frozenset({"coloc_results"})),
}


def choose(job: Job) -> str:
    """Return the name of the pipeline that fits a job's contract; raise :class:`CannotStart` where none or two do."""
    required = frozenset(wanted.id for wanted in job.wanted.values() if wanted.required)
    if not required:
        raise CannotStart("the instruction names no required output file")
    text = job.instruction.lower()
    hits = {
        name: sum(word in text for word in signature.words)
        for name, signature in PIPELINES.items()
        if signature.required == required
    }
    fitting = {name: count for name, count in hits.items() if count or not PIPELINES[name].words}
    best = [name for name, count in fitting.items() if count == max(fitting.values())]
    if len(best) != 1:
        asked = ", ".join(sorted(required))
        known = "; ".join(f"{name}: {', '.join(sorted(row.required))}" for name, row in PIPELINES.items())
        raise CannotStart(
            f"no single pipeline for the required files {asked}"
            + (f" (several fit: {', '.join(best)})" if best else "")
            + f"; there are {known}"
        )
    return best[0]
