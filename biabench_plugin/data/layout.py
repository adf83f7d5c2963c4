"""The files that a task's input and evaluation folders hold, declared in ``task.yaml`` under ``data``.

The published data are declared; ``demo`` names what the demo data have otherwise (they are smaller). Everything that is
not overridden holds for both, so that the specification, the demo and the published data cannot drift apart.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

AXES = "mtzcyxs"  # tile, time, plane, channel, row, column, colour sample


def _range(value: Any) -> Any:
    if value is None:
        return (0, 2**62)
    return (value, value) if isinstance(value, int) else value


def _ordered(value: tuple[int, int]) -> tuple[int, int]:
    if not 0 <= value[0] <= value[1]:
        raise ValueError(f"expected a number or [least, most], found {list(value)}")
    return value


def _several(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else (value,)


Range = Annotated[tuple[int, int], BeforeValidator(_range), AfterValidator(_ordered)]
"""A number, ``[least, most]``, or null for any."""
Names = Annotated[tuple[str, ...], BeforeValidator(_several)]
Numbers = Annotated[tuple[float, ...], BeforeValidator(_several)]
Kind = Literal["tiff", "picture", "table", "workbook", "zip", "text", "other"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DemoOverride(_Model):
    """What differs in the demo data; axes of ``shape`` that are not named stay as published."""

    count: Range | None = None
    shape: dict[str, Range] = {}
    pixel_um: dict[str, Numbers] | None = None
    rows: Range | None = None


class FileGroup(_Model):
    """Files of one kind.

    Parameters
    ----------
    files
        Pattern of the path below the folder; ``*`` and ``?`` stay within one part of the path.
    kind
        How the files are opened.
    count
        How many there are; ``0`` where only the demo has them.
    shape
        Length of each axis, in the order in which the file holds them: ``m`` tile, ``t`` time, ``z`` plane,
        ``c`` channel, ``y`` row, ``x`` column, ``s`` colour sample.
    dtype
        NumPy names of the allowed types.
    pixel_um
        Allowed sizes of a pixel along axes, in µm. A file that states another size is at fault.
    pixel_stored
        Whether each file must state its pixel size.
    columns
        Column names that a table, or each sheet of a workbook, must have.
    rows
        Rows of a table without its header, per file.
    partner
        Path of the input file that belongs to a file, with ``{0}`` for what the first ``*`` stands for. It must exist
        and agree in the axes that both have.
    demo
        What is otherwise in the demo data.
    """

    files: str = Field(min_length=1)
    kind: Kind
    count: Range
    shape: dict[str, Range] = {}
    dtype: Names = ()
    pixel_um: dict[str, Numbers] = {}
    pixel_stored: bool = False
    columns: tuple[str, ...] = ()
    rows: Range = (0, 2**62)
    partner: str | None = None
    demo: DemoOverride = DemoOverride()

    @model_validator(mode="after")
    def _consistent(self) -> FileGroup:
        axes = [*self.shape, *self.demo.shape, *self.pixel_um, *(self.demo.pixel_um or {})]
        if unknown := sorted({axis for axis in axes if axis not in AXES or len(axis) != 1}):
            raise ValueError(f"{self.files}: unknown axes {', '.join(unknown)}; known: {', '.join(AXES)}")
        if foreign := sorted(set(self.demo.shape) - set(self.shape)):
            raise ValueError(f"{self.files}: demo names the axes {', '.join(foreign)}, which the published data lack")
        if self.kind in ("tiff", "picture") and self.count[1] > 0 and not (self.shape and self.dtype):
            raise ValueError(f"{self.files}: an image needs shape and dtype")
        return self

    def for_demo(self) -> FileGroup:
        """Return the group as the demo data have it."""
        demo = self.demo
        return self.model_copy(
            update={
                "count": self.count if demo.count is None else demo.count,
                "shape": {axis: demo.shape.get(axis, size) for axis, size in self.shape.items()},
                "pixel_um": self.pixel_um if demo.pixel_um is None else demo.pixel_um,
                "rows": self.rows if demo.rows is None else demo.rows,
            }
        )


class DataLayout(_Model):
    """Both folders of a task."""

    input: tuple[FileGroup, ...] = Field(min_length=1)
    evaluation: tuple[FileGroup, ...] = ()
