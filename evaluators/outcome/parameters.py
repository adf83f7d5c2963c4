"""What a task may set about its evaluator. Light: task files are checked with it, without loading any evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from typing import ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from evaluators.model import Content, Deliverable, OutcomeSpec


class Parameters(BaseModel):
    """Base of the parameters of an outcome kind."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    needs_truth: ClassVar[bool] = True  # whether there is nothing to score without an ``evaluation`` folder

    def deliverable_ids(self) -> dict[str, Content]:
        """Return the deliverables that the evaluator reads and what each must hold."""
        raise NotImplementedError

    def check_deliverables(self, deliverables: Sequence[Deliverable]) -> None:
        """Raise ``ValueError`` where a deliverable is missing, or holds something else than the evaluator reads."""
        known = {deliverable.id: deliverable for deliverable in deliverables}
        for identifier, content in self.deliverable_ids().items():
            if identifier not in known:
                raise ValueError(f"no deliverable {identifier!r}; the task has {', '.join(sorted(known))}")
            if known[identifier].content is not content:
                raise ValueError(f"deliverable {identifier!r} holds {known[identifier].content}, expected {content}")
            if not known[identifier].required:
                raise ValueError(f"deliverable {identifier!r} decides the score and must be required")


class Measurements(BaseModel):
    """An optional table with one row per object of a label image.

    Attributes
    ----------
    deliverable
        The table.
    image, object, size
        Its columns with the image's stem (or the part of it before the first underscore), the label, and the size in
        pixels or voxels.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    deliverable: str
    image: str
    object: str
    size: str


class InstanceSegmentation(Parameters):
    """Label images per input image, in one or more compartments.

    Attributes
    ----------
    compartments
        Name of each compartment and its deliverable.
    truth_folders
        Folder of each compartment's references below ``evaluation``; ``<compartment>_masks`` by default.
    truth_name
        How a reference is named after its image, without the extension.
    linked_ids
        Two compartments, inner first, in which the same cell has the same label.
    groups
        Name and glob on image stems of groups that are reported separately.
    primary
        Score that is averaged into the outcome.
    boundary_px
        Tolerance of the boundary F1, in pixels; ``None`` leaves it out (it takes most of the time on large volumes).
    measurements
        A table of sizes that is compared with the first compartment, for diagnosis only.
    """

    compartments: dict[str, str] = Field(min_length=1)
    truth_folders: dict[str, str] = Field(default_factory=dict)
    truth_name: str = Field(default="{}", pattern=r"^[^{}]*\{\}[^{}]*$")
    linked_ids: tuple[str, str] | None = None
    groups: dict[str, str] = Field(default_factory=dict)
    primary: Literal["dice", "iou", "ap_50", "ap_75", "pq", "aji"] = "dice"
    boundary_px: float | None = Field(default=2.0, gt=0, le=20)
    measurements: Measurements | None = None

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        named = {*self.truth_folders, *(self.linked_ids or ())}
        if unknown := sorted(named - set(self.compartments)):
            raise ValueError(f"unknown compartment {', '.join(unknown)}; expected {', '.join(self.compartments)}")
        if self.linked_ids is not None and self.linked_ids[0] == self.linked_ids[1]:
            raise ValueError("linked_ids names one compartment twice")
        if len(set(self.compartments.values())) != len(self.compartments):
            raise ValueError("two compartments share a deliverable")
        return self

    def truth_folder(self, compartment: str) -> str:
        """Return the folder of a compartment's references."""
        return self.truth_folders.get(compartment, f"{compartment}_masks")

    def deliverable_ids(self) -> dict[str, Content]:
        """Return one deliverable of label images per compartment."""
        return dict.fromkeys(self.compartments.values(), Content.LABEL_IMAGE)


class CellCounting(Parameters):
    """Tables of points per image.

    Attributes
    ----------
    distance_px
        Largest distance between a true point and its partner, in pixels.
    points
        The deliverable.
    """

    distance_px: float = Field(default=10.0, gt=0)
    points: str = "centroids_per_image"

    def deliverable_ids(self) -> dict[str, Content]:
        """Return the deliverable of points."""
        return {self.points: Content.TABLE}


class CellTracking(Parameters):
    """A label stack or challenge folder and a lineage.

    Attributes
    ----------
    seg_weight, tra_weight
        Weights of SEG and TRA in the outcome; they add up to 1.
    masks, lineage
        The deliverables.
    """

    seg_weight: float = Field(default=0.5, ge=0, le=1)
    tra_weight: float = Field(default=0.5, ge=0, le=1)
    masks: str = "segmentation_masks"
    lineage: str = "tracking_lineage"

    @model_validator(mode="after")
    def _weights_add_up(self) -> Self:
        if abs(self.seg_weight + self.tra_weight - 1.0) > 1e-9:
            raise ValueError(f"seg_weight and tra_weight add up to {self.seg_weight + self.tra_weight}, expected 1")
        return self

    def deliverable_ids(self) -> dict[str, Content]:
        """Return the masks and the lineage."""
        return {self.masks: Content.LABEL_STACK, self.lineage: Content.LINEAGE}


class DoseResponse(Parameters):
    """A table of one measurement per well of a plate.

    Attributes
    ----------
    per_well, per_cell
        The deliverables; the table of cells is optional.
    cell_lines
        Name of each cell line and the letters of its rows on the plate.
    columns
        Columns of the plate, each one dose.
    replicate_cv_tolerance
        Mean coefficient of variation of replicates up to which they count as consistent.
    """

    needs_truth: ClassVar[bool] = False

    per_well: str
    per_cell: str | None = None
    cell_lines: dict[str, str] = Field(min_length=1)
    columns: int = Field(default=12, ge=2, le=48)
    replicate_cv_tolerance: float = Field(default=0.15, ge=0, lt=1)

    def deliverable_ids(self) -> dict[str, Content]:
        """Return the table of wells."""
        return {self.per_well: Content.TABLE}

    def check_deliverables(self, deliverables: Sequence[Deliverable]) -> None:
        """Check the optional table as well."""
        super().check_deliverables(deliverables)
        if self.per_cell is not None and self.per_cell not in {one.id for one in deliverables}:
            raise ValueError(f"no deliverable {self.per_cell!r}")


class MoleculeLocalization(Parameters):
    """One list of single-molecule localisations.

    Attributes
    ----------
    distance_px
        Largest distance between a true molecule and its partner, in pixels.
    jaccard_weight, intensity_weight
        Weights in the outcome; they add up to 1.
    border_px, image_px
        Width of the border that does not count, and (rows, columns) of the movie, in pixels.
    strict_distances_px
        Distances over which the strict score averages detection.
    localizations
        The deliverable.
    """

    distance_px: float = Field(default=1.0, gt=0)
    jaccard_weight: float = Field(default=0.7, ge=0, le=1)
    intensity_weight: float = Field(default=0.3, ge=0, le=1)
    border_px: float = Field(default=0.0, ge=0)
    image_px: tuple[int, int] | None = None
    strict_distances_px: tuple[float, ...] = Field(default=(0.5, 1.0), min_length=1)
    localizations: str = "localization_list"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if abs(self.jaccard_weight + self.intensity_weight - 1.0) > 1e-9:
            raise ValueError("jaccard_weight and intensity_weight must add up to 1")
        if self.border_px and self.image_px is None:
            raise ValueError("border_px needs image_px")
        return self

    def deliverable_ids(self) -> dict[str, Content]:
        """Return the list."""
        return {self.localizations: Content.TABLE}


class Comparison(BaseModel):
    """Two conditions, and whether they are expected to differ significantly."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pair: tuple[str, str]
    significant: bool


class Ordering(BaseModel):
    """Two conditions, the one with the higher median first."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    higher: str
    lower: str


class ConditionPattern(Parameters):
    """A table with one measurement per image, and the pattern of differences between conditions.

    Attributes
    ----------
    table, pairwise
        The deliverables; the table of comparisons is optional.
    conditions
        Conditions, which are the names of the input's folders of images.
    aliases
        Further spellings of conditions; case and punctuation never matter.
    value, value_range
        Column of the measurement, and between what it must lie.
    comparisons, orderings
        The expected pattern.
    alpha
        A p-value below is significant.
    significance_weight, direction_weight
        Weights of the two parts of the outcome; they add up to 1.
    closeness_scale
        Error of a single measurement that counts as all wrong, in the strict score.
    published_ranges
        Where the published values of each condition lie; what is replayed where no value per image is known.
    """

    table: str
    pairwise: str | None = None
    conditions: tuple[str, ...] = Field(min_length=2)
    aliases: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    value: str
    value_range: tuple[float, float]
    comparisons: tuple[Comparison, ...] = Field(min_length=1)
    orderings: tuple[Ordering, ...] = Field(min_length=1)
    alpha: float = Field(default=0.05, gt=0, lt=1)
    significance_weight: float = Field(default=0.7, ge=0, le=1)
    direction_weight: float = Field(default=0.3, ge=0, le=1)
    closeness_scale: float = Field(default=0.3, gt=0)
    published_ranges: dict[str, tuple[float, float]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        named = {*self.aliases, *self.published_ranges}
        named.update(*(comparison.pair for comparison in self.comparisons))
        named.update(*((ordering.higher, ordering.lower) for ordering in self.orderings))
        if unknown := sorted(named - set(self.conditions)):
            raise ValueError(f"unknown condition {', '.join(unknown)}; expected {', '.join(self.conditions)}")
        if abs(self.significance_weight + self.direction_weight - 1.0) > 1e-9:
            raise ValueError("significance_weight and direction_weight must add up to 1")
        return self

    def deliverable_ids(self) -> dict[str, Content]:
        """Return the table of measurements."""
        return {self.table: Content.TABLE}

    def check_deliverables(self, deliverables: Sequence[Deliverable]) -> None:
        """Check the optional table as well."""
        super().check_deliverables(deliverables)
        if self.pairwise is not None and self.pairwise not in {one.id for one in deliverables}:
            raise ValueError(f"no deliverable {self.pairwise!r}")


class FilamentSegmentation(Parameters):
    """Binary masks of thin structures, one per input image.

    Attributes
    ----------
    primary
        Score that is averaged into the outcome.
    tolerance_px
        Distance from a filament up to which a foreground pixel is beside it.
    neighbourhood_px
        Distance from the filaments up to which chance is counted.
    truth_suffix, input_suffix
        What the stems of reference and input files have after the name of the image.
    masks
        The deliverable.
    """

    primary: Literal["dice", "iou", "cl_dice"] = "dice"
    tolerance_px: float = Field(default=2.0, ge=0)
    neighbourhood_px: float = Field(default=12.0, gt=0)
    truth_suffix: str = ".binary"
    input_suffix: str = ".noisy"
    masks: str = "segmentation_masks"

    def deliverable_ids(self) -> dict[str, Content]:
        """Return the masks."""
        return {self.masks: Content.BINARY_IMAGE}


class VesselSegmentation(Parameters):
    """One binary volume per input volume.

    Attributes
    ----------
    masks
        The deliverable of masks.
    morphology
        An optional table with columns ``sample_id``, ``total_length_um``, ``vessel_volume_fraction`` that is compared
        with the references, for diagnosis only.
    truth_name
        How a reference is named after its volume, without the extension.
    spacing_um
        Size of a voxel along z, y, x.
    primary
        Score that is averaged into the outcome.
    """

    masks: str = "vessel_masks"
    morphology: str | None = None
    truth_name: str = Field(default="{}", pattern=r"^[^{}]*\{\}[^{}]*$")
    spacing_um: tuple[float, float, float] = (1.0, 1.0, 1.0)
    primary: Literal["dice", "iou", "precision", "recall", "volumetric_similarity", "cl_dice"] = "dice"

    def deliverable_ids(self) -> dict[str, Content]:
        """Return the deliverable of masks."""
        return {self.masks: Content.BINARY_IMAGE}


class PhenotypeDynamics(Parameters):
    """One table of cells over time, each with a place and a class.

    Attributes
    ----------
    classes
        Names of the classes.
    synonyms
        Other names of classes.
    distance_px, strict_distance_px
        Largest distance between a true cell and its partner, in pixels, in the outcome and in the strict score.
    cells
        The deliverable.
    """

    classes: tuple[str, ...] = Field(min_length=2)
    synonyms: dict[str, str] = Field(default_factory=dict)
    distance_px: float = Field(default=15.0, gt=0)
    strict_distance_px: float = Field(default=8.0, gt=0)
    cells: str = "cell_labels"

    @model_validator(mode="after")
    def _synonyms_name_classes(self) -> Self:
        if unknown := sorted(set(self.synonyms.values()) - set(self.classes)):
            raise ValueError(f"synonyms of unknown class {', '.join(unknown)}")
        return self

    def deliverable_ids(self) -> dict[str, Content]:
        """Return the table of cells."""
        return {self.cells: Content.TABLE}


class OnsetDistribution(Parameters):
    """A table of events with a normalised onset each, by condition.

    Attributes
    ----------
    table
        The deliverable.
    conditions
        Name of each condition and further spellings; case and punctuation never matter.
    truth_column
        Header of the values in the reference table, whose conditions stand side by side.
    distance_px, frames
        How far in place and time a submitted event may lie from a true one, in the strict score.
    onset_scale
        Error of an event's normalised onset that counts as all wrong, in the strict score.
    """

    table: str
    conditions: dict[str, tuple[str, ...]] = Field(min_length=1)
    truth_column: str = "Start normalized"
    distance_px: float = Field(default=5.0, gt=0)
    frames: int = Field(default=2, ge=0)
    onset_scale: float = Field(default=0.3, gt=0)

    def deliverable_ids(self) -> dict[str, Content]:
        """Return the table of events."""
        return {self.table: Content.TABLE}


class PunctaPerNucleus(Parameters):
    """One table of nuclei in volumes, each with a number of puncta.

    Attributes
    ----------
    voxel_um
        Size of a voxel along z, y and x; the reference's own volumes, where it has them, set the scale.
    distance_um, strict_distance_um
        Largest distance between a true nucleus and its partner, in the outcome and in the strict score.
    bearing
        Number of puncta from which a nucleus counts as one that has puncta, in the strict score.
    condition_words
        Name of each condition and words, in small letters, by which it is recognised; the first name that fits.
    nuclei
        The deliverable.
    """

    voxel_um: tuple[float, float, float]
    distance_um: float = Field(default=5.0, gt=0)
    strict_distance_um: float = Field(default=3.0, gt=0)
    bearing: int = Field(default=3, ge=1)
    condition_words: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    nuclei: str = "cell_quants"

    @model_validator(mode="after")
    def _voxels_have_a_size(self) -> Self:
        if min(self.voxel_um) <= 0:
            raise ValueError("voxel_um must be positive")
        return self

    def deliverable_ids(self) -> dict[str, Content]:
        """Return the table of nuclei."""
        return {self.nuclei: Content.TABLE}


class SpeedKymograph(Parameters):
    """Speed kymographs and velocity fields of wound closure, one of each per experiment.

    Attributes
    ----------
    weights
        Of accuracy, pattern, direction and completeness in the outcome; they add up to 1.
    near_rows, far_from
        Bands that count as near the wound, and the first one that counts as far from it.
    leading_percentile
        Percentile of the distance to the wound up to which directions are compared.
    patch_um
        Width of a band and of the patches over which velocities are compared in the strict score.
    kymograph, velocity_x, velocity_y
        The deliverables.
    """

    weights: dict[str, float] = {"accuracy": 0.5, "pattern": 0.25, "direction": 0.15, "completeness": 0.1}
    near_rows: int = Field(default=3, ge=1)
    far_from: int = Field(default=10, ge=1)
    leading_percentile: float = Field(default=40.0, gt=0, le=100)
    patch_um: float = Field(default=15.0, gt=0)
    kymograph: str = "speed_kymograph"
    velocity_x: str = "velocity_x"
    velocity_y: str = "velocity_y"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        parts, weights = {"accuracy", "pattern", "direction", "completeness"}, self.weights.values()
        if set(self.weights) != parts or abs(sum(weights) - 1.0) > 1e-9 or min(weights) < 0:
            raise ValueError(f"weights needs {', '.join(sorted(parts))}, which add up to 1")
        if self.far_from < self.near_rows:
            raise ValueError("far_from must not lie within near_rows")
        return self

    def deliverable_ids(self) -> dict[str, Content]:
        """Return the three families of images."""
        return dict.fromkeys((self.kymograph, self.velocity_x, self.velocity_y), Content.IMAGE)


class RecruitmentKinetics(Parameters):
    """One table per dividing cell: the moment of division and curves of both daughters.

    Attributes
    ----------
    frame_cap, strict_frame_cap
        Error of the onset, in frames, from which it scores 0, in the outcome and in the strict score.
    onset_minutes
        Largest distance from time 0 of the row that marks the onset.
    pairing_minutes
        Largest distance in time of two paired points of a curve.
    tables
        The deliverable.
    """

    frame_cap: float = Field(default=20.0, gt=0)
    strict_frame_cap: float = Field(default=10.0, gt=0)
    onset_minutes: float = Field(default=0.5, ge=0)
    pairing_minutes: float = Field(default=0.51, gt=0)
    tables: str = "kinetics_per_cell"

    def deliverable_ids(self) -> dict[str, Content]:
        """Return the workbooks."""
        return {self.tables: Content.WORKBOOK}


class Interval(BaseModel):
    """Two columns of a table that together are an interval.

    Attributes
    ----------
    start, end
        The columns.
    inclusive
        Whether both are whole units that belong to the interval, such as the first and the last frame of an event.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    start: str
    end: str
    inclusive: bool = False


class ArtifactTable(BaseModel):
    """One delivered table and how it is compared with its reference.

    Attributes
    ----------
    deliverable
        The table.
    truth
        File of the reference below ``evaluation``; ``<deliverable>.csv`` by default.
    keys
        Columns that together name a row; with an ``interval`` they name what the interval lies on.
    interval
        Start and end by which rows are paired, instead of by their keys alone.
    values, labels
        Columns of numbers and of classes.
    matrix
        Whether all columns beside the keys hold numbers of one quantity, with names that are identifiers as well.
    depends_on
        Artifacts from which this one follows. They tell its depth; it is graded by itself.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    deliverable: str
    truth: str | None = Field(default=None, pattern=r"^[^./\\][^/\\]*$")
    keys: tuple[str, ...] = ()
    interval: Interval | None = None
    values: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    matrix: bool = False
    depends_on: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.keys and self.interval is None:
            raise ValueError("keys or an interval must tell rows apart")
        names = [name.strip().lower() for name in (*self.identifiers, *self.values, *self.labels)]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"column {', '.join(repeated)} is named twice")
        if self.matrix and (self.values or self.labels or self.interval):
            raise ValueError("a matrix has keys and no values, labels or interval")
        return self

    @property
    def identifiers(self) -> tuple[str, ...]:
        """Columns by which rows are paired."""
        return (*self.keys, *((self.interval.start, self.interval.end) if self.interval else ()))


class Artifacts(Parameters):
    """Tables of a study, each graded against its reference.

    Attributes
    ----------
    artifacts
        Name of each artifact and how it is graded.
    pass_at
        Score from which an artifact passes.
    overlap
        Least intersection over union of two intervals that pair.
    """

    artifacts: dict[str, ArtifactTable] = Field(min_length=1)
    pass_at: float = Field(default=0.8, gt=0, le=1)
    overlap: float = Field(default=0.5, gt=0, le=1)

    @model_validator(mode="after")
    def _dependencies_exist(self) -> Self:
        used = [artifact.deliverable for artifact in self.artifacts.values()]
        if len(set(used)) != len(used):
            raise ValueError("two artifacts share a deliverable")
        for name, artifact in self.artifacts.items():
            if unknown := sorted(set(artifact.depends_on) - set(self.artifacts)):
                raise ValueError(f"{name} depends on unknown artifact {', '.join(unknown)}")
        try:
            self.order()
        except CycleError as error:
            raise ValueError(f"artifacts depend on each other: {' -> '.join(error.args[1])}") from error
        return self

    def order(self) -> tuple[str, ...]:
        """Return the names of the artifacts, each after those that it depends on."""
        return tuple(TopologicalSorter({name: one.depends_on for name, one in self.artifacts.items()}).static_order())

    def depths(self) -> dict[str, int]:
        """Return the length of the longest chain that ends at each artifact, 1 without dependency."""
        depths: dict[str, int] = {}
        for name in self.order():
            depths[name] = 1 + max((depths[other] for other in self.artifacts[name].depends_on), default=0)
        return depths

    def deliverable_ids(self) -> dict[str, Content]:
        """Return the table of each artifact."""
        return {artifact.deliverable: Content.TABLE for artifact in self.artifacts.values()}


class MosaicCytometry(Parameters):
    """A stitched mosaic of several channels and planes, and mean features of two populations of cells.

    Attributes
    ----------
    image, summary, cells
        The deliverables: mosaic, table of means, and (optional) table of cells.
    channels
        Names of the channels, in the order of the mosaic.
    planes
        Number of planes.
    grid
        Rows and columns of tiles, where the reference data do not tell the position of each.
    locator
        Channel in which tiles are looked for.
    headline
        Channel and feature of the means that are compared with the reference.
    stitching_weight
        Weight of the mosaic in the outcome.
    canvas_tolerance_px, band_rows, tile_tolerance_px
        Tolerance of the canvas, height of the band of the profile, and largest error of a tile that lies right.
    """

    image: str = "stitched_image"
    summary: str = "summary_statistics"
    cells: str | None = None
    channels: tuple[str, ...] = Field(min_length=1)
    planes: int = Field(ge=1)
    grid: tuple[int, int]
    locator: str = "DAPI"
    headline: tuple[tuple[str, str], ...] = (("Bodipy", "Sigma"), ("DAPI", "r"), ("CD45", "rf"))
    stitching_weight: float = Field(default=0.7, ge=0, le=1)
    canvas_tolerance_px: float = Field(default=20.0, gt=0)
    band_rows: int = Field(default=100, ge=1)
    tile_tolerance_px: float = Field(default=1.0, gt=0)

    @model_validator(mode="after")
    def _channels_exist(self) -> Self:
        named = {self.locator, *(channel for channel, _ in self.headline)}
        if unknown := sorted(named - set(self.channels)):
            raise ValueError(f"unknown channel {', '.join(unknown)}; expected {', '.join(self.channels)}")
        return self

    def deliverable_ids(self) -> dict[str, Content]:
        """Return the mosaic and the table of means."""
        return {self.image: Content.CHANNEL_STACK, self.summary: Content.TABLE}


# The outcome kinds. The evaluator of a kind is the module ``evaluators.outcome.<kind>``.
PARAMETERS: dict[str, type[Parameters]] = {
    "artifact": Artifacts,
    "recruitment_kinetics": RecruitmentKinetics,
    "speed_kymograph": SpeedKymograph,
    "puncta_per_nucleus": PunctaPerNucleus,
    "phenotype_dynamics": PhenotypeDynamics,
    "vessel_segmentation": VesselSegmentation,
    "mosaic_cytometry": MosaicCytometry,
    "filament_segmentation": FilamentSegmentation,
    "molecule_localization": MoleculeLocalization,
    "instance_segmentation": InstanceSegmentation,
    "cell_counting": CellCounting,
    "cell_tracking": CellTracking,
    "dose_response": DoseResponse,
    "condition_pattern": ConditionPattern,
    "onset_distribution": OnsetDistribution,
}


def read_parameters(outcome: OutcomeSpec, deliverables: Sequence[Deliverable]) -> Parameters:
    """Return the checked parameters of a task's evaluator.

    Raises
    ------
    ValueError
        The kind is unknown, a parameter is not one of its, or a deliverable does not fit; the message says which.
    """
    model = PARAMETERS.get(outcome.kind)
    if model is None:
        raise ValueError(f"unknown outcome kind {outcome.kind!r}; expected one of {', '.join(sorted(PARAMETERS))}")
    try:
        parameters = model.model_validate(outcome.parameters)
    except ValidationError as error:
        faults = (
            f"{'.'.join(str(part) for part in fault['loc']) or 'parameters'}: {fault['msg']}"
            for fault in error.errors()
        )
        raise ValueError(f"outcome {outcome.kind}: {'; '.join(faults)}") from error
    try:
        parameters.check_deliverables(deliverables)
    except ValueError as error:
        raise ValueError(f"outcome {outcome.kind}: {error}") from error
    return parameters
