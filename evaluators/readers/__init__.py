"""Readers for files of unknown origin. They see open files, never paths, and refuse with a reason."""

from __future__ import annotations

from typing import BinaryIO

from evaluators.model import Content, Deliverable


def check_header(handle: BinaryIO, deliverable: Deliverable) -> None:
    """Check without decoding pixels that a file can be what a deliverable asks for; close it.

    Raises
    ------
    Refusal
        With the reason.
    """
    with handle:
        if deliverable.content is Content.TABLE:
            from evaluators.readers.tables import check_columns

            check_columns(handle, deliverable.columns)
        elif deliverable.content is Content.WORKBOOK:
            from evaluators.readers.workbooks import check_workbook

            check_workbook(handle)
        elif deliverable.content is Content.LINEAGE:
            from evaluators.readers.track_table import check_track_table

            check_track_table(handle)
        else:
            from evaluators.readers.tiff import TiffImage

            TiffImage(handle, samples=deliverable.content is Content.CHANNEL_STACK).close()
