"""Remember the centrelines of large reference masks, which take seconds each and never change.

A file holds the positions of the centreline's voxels and is named after the digest of the mask. What is read back is
checked to be part of the mask; a file that is not is ignored and written anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluators.metrics.skeletons import skeletonise

LARGE = 8_000_000  # voxels from which remembering pays
_VERSION = "1"  # of the centreline's definition

Mask = NDArray[np.bool_]


def remembered_skeleton(mask: Mask) -> Mask:
    """Return the centreline of a reference mask (:func:`evaluators.metrics.skeletons.skeletonise`)."""
    if mask.size < LARGE:
        return skeletonise(mask)
    path = _folder() / f"{_digest(mask)}.npy"
    skeleton = _read(path, mask)
    if skeleton is None:
        skeleton = skeletonise(mask)
        _write(path, np.flatnonzero(skeleton))
    return skeleton


def _folder() -> Path:
    import platformdirs

    return Path(os.environ.get("BIABENCH_CACHE") or platformdirs.user_cache_dir("biabench")) / "skeletons"


def _digest(mask: Mask) -> str:
    library = version("scikit-image")
    digest = hashlib.blake2b(f"{_VERSION} {library} {mask.shape}".encode(), digest_size=16)
    digest.update(np.packbits(mask).tobytes())
    return digest.hexdigest()


def _read(path: Path, mask: Mask) -> Mask | None:
    try:
        places = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if places.ndim != 1 or places.dtype != np.int64 or not len(places):
        return None
    if places.min() < 0 or places.max() >= mask.size or not mask.ravel()[places].all():
        return None
    skeleton = np.zeros(mask.shape, bool)
    skeleton.ravel()[places] = True
    return skeleton


def _write(path: Path, places: NDArray[np.int64]) -> None:
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, nothing else
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as handle:
            np.save(handle, places.astype(np.int64))
        Path(handle.name).replace(path)
