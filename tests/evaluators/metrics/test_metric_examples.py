"""The examples in docstrings are true."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from evaluators.metrics import overlap, tracking


@pytest.mark.parametrize("module", [overlap, tracking])
def test_docstring_examples(module: object) -> None:
    failures, examples = doctest.testmod(module, extraglobs={"np": np})
    assert (failures, examples > 0) == (0, True)
