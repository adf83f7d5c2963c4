"""Check that an image is a binary mask."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluators.problems import Refusal
from evaluators.readers.tiff import TiffImage, squeezed


def as_mask(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return foreground of a binary image: 0 is background, one other value foreground.

    A constant image is empty where it is 0 and all foreground otherwise. Labels, probabilities and masks whose
    background is not 0 are refused: it is not known which pixels they mean.

    Raises
    ------
    Refusal
        ``unreadable``, ``non_finite`` or ``not_binary``.
    """
    if not values.size:
        raise Refusal("unreadable", "is empty")
    foreground, value = _foreground(values)
    _check_constant(foreground, value)
    return foreground


def read_mask(image: TiffImage) -> NDArray[np.bool_]:
    """Decode an opened image or volume as :func:`as_mask` does, plane by plane, without axes of length 1.

    Raises
    ------
    Refusal
        As :func:`as_mask`, and what decoding raises.
    """
    header = image.header
    mask = np.empty((header.planes, *header.plane_shape), bool)
    value: Any = None
    for index in range(header.planes):
        mask[index], found = _foreground(image.plane(index))
        if value is None:
            value = found
        elif found is not None and found != value:
            raise Refusal("not_binary", f"holds {value} in one plane and {found} in another; expected 0 and 1")
    _check_constant(mask, value)
    return mask.reshape(squeezed(mask.shape))


def _foreground(values: NDArray[Any]) -> tuple[NDArray[np.bool_], Any]:
    """Return the pixels that are not 0 and their one value, ``None`` where there are none."""
    if values.dtype.kind == "b":
        return np.asarray(values, bool), None
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise Refusal("non_finite", "holds NaN or infinite values; a mask holds 0 and 1")
    foreground = np.asarray(values != 0)
    if not foreground.any():
        return foreground, None
    first = values.flat[int(np.argmax(foreground))]
    if (values[foreground] != first).any():
        kind = "probabilities" if values.dtype.kind == "f" else "labels or grey values"
        low, high = values.min(), values.max()
        raise Refusal("not_binary", f"holds more than two values ({low} to {high}), like {kind}; expected 0 and 1")
    if first < 0 and first != -1:  # -1 is what 255 and True become in a signed type
        raise Refusal("not_binary", f"its foreground is {first}; expected 0 and 1")
    return foreground, first


def _check_constant(foreground: NDArray[np.bool_], value: Any) -> None:
    if value is not None and value not in (1, -1, 255) and foreground.all():
        raise Refusal("not_binary", f"holds nothing but {value}; expected 0 and 1")
