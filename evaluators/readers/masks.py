"""Read binary masks: background 0 and one foreground value, plane by plane."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluators.problems import Refusal
from evaluators.readers.tiff import TiffImage, squeezed


def read_mask(image: TiffImage) -> NDArray[np.bool_]:
    """Decode an opened image as a mask without axes of length 1.

    Any one value other than 0 is foreground (1, 255, also -1 of a signed type). Two of them are refused rather than
    cut at 0: a map of grey values or probabilities would become nearly all foreground, and labels are not asked for.

    Raises
    ------
    Refusal
        ``not_binary``, ``non_finite``, and what decoding raises.
    """
    header = image.header
    mask = np.empty((header.planes, *header.plane_shape), bool)
    foreground: Any = None
    for index in range(header.planes):
        plane = image.plane(index)
        np.not_equal(plane, 0, out=mask[index])
        values = plane if plane.dtype.kind == "b" else plane[mask[index]]
        if not values.size or plane.dtype.kind == "b":
            continue
        if foreground is None:
            foreground = values.flat[0]
        if plane.dtype.kind == "f" and not np.isfinite(values).all():
            raise Refusal("non_finite", "holds NaN or infinite values; a mask holds 0 and one other value")
        if (values != foreground).any():
            other = values[values != foreground].flat[0]
            raise Refusal(
                "not_binary",
                f"holds {foreground}, {other} and perhaps more besides 0; a mask has one foreground value, and where to"
                " cut grey values is not for the reader to guess",
            )
    return mask.reshape(squeezed(mask.shape))
